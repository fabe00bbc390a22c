"""
Frequent and rare labels
========================

If there are many labels, most of them are rare, and a mean over all predictions hides them. Here the tags of Debian
packages are grouped by their number of training rows.
"""

from matplotlib import pyplot as plt

from widemargin import OneVsAllClassifier, datasets
from widemargin.displays import PrecisionByFrequencyDisplay

data = datasets.load_debian_tags()
model = OneVsAllClassifier(prune=0.01, n_jobs=-1).fit(data.X_train[:2000], data.y_train[:2000])

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
display = PrecisionByFrequencyDisplay.from_estimator(model, data.X_test, data.y_test, ax=left)
_ = display.plot(ax=right, measure="recall")
