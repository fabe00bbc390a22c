"""Goal: one-vs-all at a hundredth (short text) or a tenth (long text) of LIBLINEAR's CPU time at the same rule.

One run, one thread, CPU seconds a label, certificate included, against LIBLINEAR's primal solver (`-s 2 -B 1 -R`: the
same problem with a free intercept) and scikit-learn's OneVsRestClassifier(LinearSVC(dual=False)), whose intercept is
penalised. BLAS has one thread, as idle ones would count as CPU time. Rows have unit length; all stop at
‖∇‖ ≤ tol · max(1, min(P, N)) / n · ‖∇(0)‖ with tol 0.01. We solve all labels, the rivals a few evenly spaced ones.

    WIDEMARGIN_DATA=data python benchmarks/one_vs_all.py [--rival-labels 12] [--repetitions 3]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from liblinear.liblinear import parameter, problem
from liblinear.liblinearutil import train
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from _common import describe_machine, find_data, format_table, time_it, write_result
from widemargin import OneVsAllClassifier, load_data

TOL = 0.01
PRUNE = 0.01
# We solve all labels; name and file.
DATA = [
    ("yso-finna-en", "yso-finna-en/train.txt.gz"),
    ("debian-tags", "debian-tags/tags_train.txt.gz"),
    ("rcv1v2-subsets", "rcv1v2-subsets/train.txt.gz"),
]


def evenly_spaced(n, count):
    return np.unique(np.linspace(0, n - 1, min(n, count)).astype(int))


def liblinear_seconds(X, Y, repetitions):
    """Training only: the problem is given to LIBLINEAR before the clock starts."""
    X64 = sp.csr_matrix(X.astype(np.float64))
    # -e is relative to max(1, min(P, N)) / n · ‖∇(0)‖ as well: the same rule.
    options = parameter(f"-s 2 -c 1 -B 1 -R -e {TOL} -q")
    problems = [problem(np.where(Y[:, [j]].toarray()[:, 0] > 0, 1.0, -1.0), X64, bias=1) for j in range(Y.shape[1])]
    return time_it(lambda: [train(one, options) for one in problems], repetitions).cpu_s


def scikit_learn_seconds(X, Y, repetitions):
    model = OneVsRestClassifier(LinearSVC(dual=False, tol=TOL))
    return time_it(lambda: model.fit(X, Y), repetitions).cpu_s


def compare(name, path, options):
    dataset = load_data(path, normalize=True)
    X, Y = dataset.X, dataset.Y
    few = evenly_spaced(Y.shape[1], options.rival_labels)
    Y_few = sp.csr_matrix(sp.csc_array(Y)[:, few].astype(np.int32))
    model = OneVsAllClassifier(tol=TOL, prune=PRUNE)
    ours = time_it(lambda: model.fit(X, Y), options.repetitions).cpu_s / Y.shape[1]
    certificate = model.certificate_
    before_pruning = (certificate.primal_before_pruning - certificate.dual) / certificate.primal_before_pruning
    rows = [["widemargin", str(Y.shape[1]), f"{1e3 * ours:.2f}", "1.0", f"{before_pruning:.1e}"]]
    for rival, seconds in (
        ("LIBLINEAR -s 2 -B 1 -R", liblinear_seconds(X, Y_few, options.repetitions)),
        ("scikit-learn LinearSVC(dual=False)", scikit_learn_seconds(X, Y_few, options.repetitions)),
    ):
        each = seconds / len(few)
        rows.append([rival, str(len(few)), f"{1e3 * each:.1f}", f"{each / ours:.1f}", "–"])
    columns = ["solver", "labels", "CPU ms a label", "times ours", "certified gap"]
    return f"## {name}: {X.shape[0]:,} rows, {X.shape[1]:,} features\n\n" + format_table(columns, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival-labels", type=int, default=12)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sections = []
    for name, file in DATA:
        path = find_data(file)
        if path is not None:
            with threadpool_limits(1):
                sections.append(compare(name, path, options))
    packages = ("numpy", "scipy", "scikit-learn", "liblinear-official")
    intro = f"One thread, tol {TOL}, weights below {PRUNE} pruned; medians of {options.repetitions} runs.\n"
    write_result(
        "one-vs-all",
        "One-vs-all against LIBLINEAR and scikit-learn",
        [intro + f"Machine: {describe_machine(packages)}.", *sections],
    )


if __name__ == "__main__":
    main()
