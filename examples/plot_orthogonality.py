"""
Orthogonal transfer: which weights are orthogonal?
==================================================

Orthogonal transfer encourages the features that separate a node's children to differ from those that separated the
node from its siblings. Bars show the cosines between the weights of nodes and of their ancestors, level by level. The
number at the right is the number of pairs that the penalty keeps exactly orthogonal.
"""

from matplotlib import pyplot as plt

from widemargin import HierarchicalClassifier, datasets
from widemargin.displays import OrthogonalityDisplay

animals = datasets.load_wordnet_animals()
model = HierarchicalClassifier(animals.taxonomy, method="orthogonal", random_state=0)
model.fit(animals.X_train, animals.y_train)

figure, ax = plt.subplots(figsize=(7, 6), layout="constrained")
_ = OrthogonalityDisplay.from_estimator(model, ax=ax)
