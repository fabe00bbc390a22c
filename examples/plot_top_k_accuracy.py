"""
Is the true class in the top k?
===============================

When people see a list of suggestions, not only the first place counts. The top-k SVM is trained for lists. With
``k=1`` it is the multiclass SVM of Crammer and Singer; with a larger k the true class may be anywhere in the top k.
"""

from matplotlib import pyplot as plt

from widemargin import OneVsAllClassifier, TopKClassifier, datasets
from widemargin.displays import TopKAccuracyDisplay

animals = datasets.load_wordnet_animals()
models = {
    "one-vs-all": OneVsAllClassifier(),
    "top-k SVM, k = 1": TopKClassifier(k=1, random_state=0),
    "top-k SVM, k = 5": TopKClassifier(k=5, random_state=0),
}

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, model in models.items():
    model.fit(animals.X_train, animals.y_train)
    TopKAccuracyDisplay.from_estimator(model, animals.X_test, animals.y_test, max_k=10, ax=ax, name=name)
_ = ax.set_title("Animals from their WordNet descriptions")
