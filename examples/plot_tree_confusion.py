"""
Which branches are confused?
============================

Confusing two breeds of dog is less serious than confusing a dog with a beetle. The left picture shows where
predictions go at the top of the tree. The right picture shows only the children of a single node.
"""

from matplotlib import pyplot as plt

from widemargin import HierarchicalClassifier, datasets
from widemargin.displays import TreeConfusionDisplay

animals = datasets.load_wordnet_animals()
model = HierarchicalClassifier(animals.taxonomy, method="per-node", random_state=0)
model.fit(animals.X_train, animals.y_train)
predicted = model.predict(animals.X_test)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
TreeConfusionDisplay.from_predictions(animals.y_test, predicted, model.taxonomy_, ax=left)
TreeConfusionDisplay.from_predictions(animals.y_test, predicted, model.taxonomy_, node="dog", ax=right)
left.set_title("across the tree")
_ = right.set_title("among the children of “dog”")
