"""
Why a good start saves work
===========================

A row that is on the right side by more than the margin adds nothing to the loss, and nothing to the work of a
Newton step. From zero weights every row is active at first. From the best weights in the span of a few mean
rows (``init="subspace"``) only the few that may matter are, above all for rare labels, which are most of the
labels.
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
