"""
A code, drawn and learned
=========================

An output code has a row for each class and a column for each binary classifier. The columns below were trained
for a code of random signs, above. Then numbers were learned for it, below, from what the classifiers say on
rows that they had not seen: a classifier that separates a class from others well can get a larger weight in its row.
"""

from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from widemargin import OutputCodeClassifier
from widemargin.displays import CodeMatrixDisplay

X, y = load_digits(return_X_y=True)
X_train, y_train, X_test, y_test = X[:900] / 16, y[:900], X[900:] / 16, y[900:]
random = OutputCodeClassifier(random_state=0).fit(X_train, y_train)
learned = OutputCodeClassifier(learn="l2", C=0.1, random_state=0).fit(X_train, y_train)

figure, (above, below) = plt.subplots(2, 1, figsize=(6, 7), layout="constrained")
CodeMatrixDisplay.from_estimator(random, ax=above)
CodeMatrixDisplay.from_estimator(learned, ax=below)
above.set_title(f"drawn: {random.score(X_test, y_test):.1%} right")
_ = below.set_title(f"learned for the same columns: {learned.score(X_test, y_test):.1%} right")
