"""scikit-learn's LinearSVC, one-vs-rest or by Crammer and Singer."""

from __future__ import annotations

import warnings

import joblib
import numpy as np
from _runner import Run, best_places, bytes_below
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC


def main() -> None:
    run = Run()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", message="Label not .* is present in all training examples")
    model = LinearSVC(random_state=0, **run.options)
    X, y, X_test = run.X, run.Y if run.kind == "multilabel" else run.y, run.X_test
    if run.kind == "multilabel":
        model = OneVsRestClassifier(model)
    run.train(lambda: model.fit(X, y))
    lists = run.predict(lambda: model.classes_[best_places(model.decision_function(X_test))])
    joblib.dump(model, run.out / "model.joblib")
    run.finish(np.asarray(lists), bytes_below(run.out / "model.joblib"), "scikit-learn")


if __name__ == "__main__":
    main()
