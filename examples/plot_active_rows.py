"""
Why a good start saves work
===========================

A row that is classified correctly with more than the required margin adds nothing to the loss, and nothing to the
work of a Newton iteration. With zero weights, every row is active at first. With the best weights in the span of
a few mean rows (``init="subspace"``), only the few rows that matter are active. This helps rare labels most, and
most labels are rare.
"""

from matplotlib import pyplot as plt

from widemargin import OneVsAllClassifier, datasets
from widemargin.displays import ActiveRowsDisplay

data = datasets.load_debian_tags()
X, Y = data.X_train[:2000], data.y_train[:2000, ::4]

figure, axes = plt.subplots(2, 1, figsize=(7, 7), sharex=True, sharey=True, layout="constrained")
for ax, init in zip(axes, ("zero", "subspace"), strict=True):
    model = OneVsAllClassifier(init=init).fit(X, Y)
    ActiveRowsDisplay.from_estimator(model, ax=ax)
    ax.text(0.98, 0.9, f'init="{init}"', transform=ax.transAxes, ha="right")
axes[1].get_legend().remove()
