"""
The taxonomy, coloured by error
===============================

Each cell is a node, drawn to the right of its parent. Its height is its share of the test rows. The stronger the
colour, the more of its rows are lost: their predictions are neither the node nor anything below it. A lost row
stays lost further right, so look for the places where the colour starts.
"""

from matplotlib import pyplot as plt

from widemargin import HierarchicalClassifier, datasets
from widemargin.displays import TaxonomyErrorDisplay

animals = datasets.load_wordnet_animals()
model = HierarchicalClassifier(animals.taxonomy, method="per-node", random_state=0)
model.fit(animals.X_train, animals.y_train)

figure, ax = plt.subplots(figsize=(9, 5), layout="constrained")
_ = TaxonomyErrorDisplay.from_estimator(model, animals.X_test, animals.y_test, ax=ax)
