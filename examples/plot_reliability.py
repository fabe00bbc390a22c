"""
Do the probabilities mean what they say?
========================================

Of all predictions with probability 0.7, seven in ten should be correct; the dots are then on the dashed line. A plain
sigmoid of the score does not achieve this. A model calibrated on rows that it was not trained on comes closer.
"""

import numpy as np
from matplotlib import pyplot as plt

from widemargin import OneVsAllClassifier, datasets
from widemargin.displays import ReliabilityDisplay

data = datasets.load_debian_tags()
labels = slice(None, None, 4)
model = OneVsAllClassifier().fit(data.X_train[:2000], data.y_train[:2000, labels])
plain = 1 / (1 + np.exp(-model.decision_function(data.X_test)))
model = model.calibrate(data.X_train[2000:3000], data.y_train[2000:3000, labels])

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
ReliabilityDisplay.from_predictions(data.y_test[:, labels], plain, ax=left)
ReliabilityDisplay.from_estimator(model, data.X_test, data.y_test[:, labels], ax=right)
left.set_title("plain sigmoid of the score")
_ = right.set_title("calibrated")
