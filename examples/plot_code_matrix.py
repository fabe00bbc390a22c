"""
A random code and a learned one
===============================

An output code has one row per class and one column per binary classifier. The classifiers were trained for a code of
random signs (top). Then the entries of the code were learned (bottom) from the outputs of the classifiers on rows they
had not seen. A classifier that separates a class well from the others can get a larger weight in the row of that class.
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
above.set_title(f"random: {random.score(X_test, y_test):.1%} correct")
_ = below.set_title(f"learned for the same columns: {learned.score(X_test, y_test):.1%} correct")
