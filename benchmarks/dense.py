"""Goal: one-vs-all on dense rows in at most a third of scikit-learn's CPU time with the same stopping rule.

CPU seconds of all threads, certificate included, against OneVsRestClassifier(LinearSVC(dual=False)): the same problem
with a penalised intercept, and the same rule, ‖∇‖ ≤ tol · max(1, min(P, N)) / n · ‖∇(0)‖ with tol 0.01. Ours also
certifies a gap of 1e-3. Runs of the two alternate. Plain NumPy recomputes the rule from the stored weights in float64.
A third set is generated: unit rows with 1,024 features, like those of a text encoder, and 200 labels.

    WIDEMARGIN_DATA=data python benchmarks/dense.py [--repetitions 5]
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from _common import describe_machine, format_table, time_it, write_result
from _multiclass import caltech, usps
from widemargin import OneVsAllClassifier

TOL = 0.01


def generated(n_rows=5000, n_features=1024, n_labels=200):
    """Classes with Zipf frequencies around centres, features of decreasing variance, rows of unit length."""
    rng = np.random.default_rng(0)
    spread = np.arange(1, n_features + 1) ** -0.5
    frequency = np.arange(1, n_labels + 1) ** -0.7
    y = rng.choice(n_labels, n_rows, p=frequency / frequency.sum())
    X = rng.normal(size=(n_labels, n_features))[y] * spread + 1.5 * rng.normal(size=(n_rows, n_features)) * spread
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def largest_rule_ratio(X, y, model):
    """Largest ‖∇‖ over all labels, divided by the bound of the rule, from the stored weights in float64."""
    X = X.astype(np.float64)
    signs = np.where(y[:, None] == model.classes_, 1.0, -1.0)

    def gradient_norms(coef, intercept):
        slopes = -2.0 * signs * np.maximum(0.0, 1.0 - signs * (X @ coef.T + intercept))
        return np.hypot(np.linalg.norm(coef.T + X.T @ slopes, axis=0), slopes.sum(axis=0) + intercept)

    n, positives = len(y), (signs > 0).sum(axis=0)
    coef, intercept = model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
    allowed = TOL * np.maximum(1, np.minimum(positives, n - positives)) / n * gradient_norms(0 * coef, 0 * intercept)
    return float((gradient_norms(coef, intercept) / allowed).max())


def compare(name, data, repetitions):
    X, y = data
    ours = OneVsAllClassifier(tol=TOL, regularize_intercept=True)
    rival = OneVsRestClassifier(LinearSVC(dual=False, tol=TOL))
    seconds = {ours: [], rival: []}
    for _ in range(repetitions):
        for model, times in seconds.items():
            times.append(time_it(lambda model=model: model.fit(X, y), 1).cpu_s)
    mine, theirs = (statistics.median(times) for times in seconds.values())
    n_labels, certificate = len(ours.classes_), ours.certificate_
    return [
        name,
        f"{X.shape[0]:,} × {X.shape[1]:,}",
        str(n_labels),
        f"{1e3 * mine / n_labels:.1f}",
        f"{1e3 * theirs / n_labels:.1f}",
        f"{theirs / mine:.1f}",
        f"{largest_rule_ratio(X, y, ours):.2f}",
        f"{certificate.relative_gap:.1e}",
        f"{certificate.worst.relative_gap:.1e}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    sets = {"usps": usps(), "caltech101-silhouettes": caltech(), "generated": generated()}
    if any(data is None for data in sets.values()):
        raise SystemExit(1)
    # scikit-learn takes minutes for the generated set, so it runs once.
    # One thread of BLAS for both: threads that wait for more work would count as time of the next fit.
    with threadpool_limits(1):
        rows = [compare(name, data, 1 if name == "generated" else options.repetitions) for name, data in sets.items()]
    columns = ["data", "rows × features", "labels", "widemargin, CPU ms per label", "scikit-learn", "ratio"]
    columns += ["largest ‖∇‖ / rule", "certified gap", "worst label's gap"]
    about = (
        f"Median of {options.repetitions} alternating runs (generated: one run); ours uses one thread. scikit-learn is "
        "OneVsRestClassifier(LinearSVC(dual=False)). Both penalise the intercept and use tol 0.01."
    )
    write_result("dense", "One-vs-all on dense rows", [about, format_table(columns, rows), describe_machine()])


if __name__ == "__main__":
    main()
