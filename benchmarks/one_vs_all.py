"""Goal: one-vs-all in 1/100 (short text) or 1/10 (long text) of LIBLINEAR's CPU time with the same stopping rule.

CPU seconds per label on one thread, certificate included, against LIBLINEAR's primal solver (`-s 2 -B 1 -R`, or `-s 0
-B 1 -R` for the logistic loss: the same problem with an unpenalised intercept) and scikit-learn's OneVsRestClassifier
of LinearSVC(dual=False) or LogisticRegression(solver="liblinear"), whose intercepts are penalised. BLAS has one thread,
because idle threads would count as CPU time. Rows have unit length. All solvers stop at ‖∇‖ ≤ tol · max(1, min(P, N)) /
n · ‖∇(0)‖ with tol 0.01. We solve all labels, the rivals a few evenly spaced ones.

Solvers take turns every few seconds, because the speed of a shared machine drifts by a third within minutes. If all
labels take us longer, they are divided into parts, and the rivals solve a few labels of each part next to it.

    WIDEMARGIN_DATA=data python benchmarks/one_vs_all.py [--rival-labels 12] [--repetitions 5] [--ours]
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp
from liblinear.liblinear import parameter, problem
from liblinear.liblinearutil import train
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from _common import add_ours_option, describe_machine, find_data, format_table, print_figures, time_it, write_result
from widemargin import OneVsAllClassifier, load_data

TOL = 0.01
PRUNE = 0.01
OURS, LIBLINEAR, SCIKIT_LEARN = "widemargin", "LIBLINEAR", "scikit-learn"
RIVALS = (LIBLINEAR, SCIKIT_LEARN)
LIBLINEAR_SOLVER = {"squared_hinge": 2, "logistic": 0}


@dataclass(frozen=True)
class Case:
    """A set with a loss: its labels are divided into `n_parts` for the table; `--ours` takes `n_ours` of them.

    Batches have 16 lanes; a number of labels that leaves most lanes of the last batch empty would not be typical.
    """

    name: str
    file: str
    n_parts: int = 1
    loss: str = "squared_hinge"
    C: float = 1.0
    n_ours: int = 100

    def __str__(self):
        return f"{self.name}, {self.loss}" + ("" if self.C == 1.0 else f", C = {self.C:g}")


YSO, DEBIAN = ("yso-finna-en", "yso-finna-en/train.txt.gz"), ("debian-tags", "debian-tags/tags_train.txt.gz")
CASES = [
    Case(*YSO, n_parts=6),
    Case(*DEBIAN),
    Case("rcv1v2-subsets", "rcv1v2-subsets/train.txt.gz"),
    Case("20newsgroups", "20newsgroups/train.txt.gz"),
    Case(*YSO, n_parts=6, loss="logistic", C=2.0, n_ours=48),
    Case(*DEBIAN, loss="logistic"),
]


def evenly_spaced(n, count):
    return np.unique(np.linspace(0, n - 1, min(n, count)).astype(int))


def our_seconds(X, Y, case, gaps):
    """Time of training including the certificate; appends its bounds (objective before pruning, dual) to `gaps`."""
    model = OneVsAllClassifier(case.C, tol=TOL, prune=PRUNE, loss=case.loss)
    seconds = time_it(lambda: model.fit(X, Y), 1).cpu_s
    gaps.append((model.certificate_.primal_before_pruning, model.certificate_.dual))
    return seconds


def liblinear_seconds(X64, Y, case):
    """Time of training only: LIBLINEAR gets the problem before the clock starts."""
    # -e is also relative to max(1, min(P, N)) / n · ‖∇(0)‖: the same rule.
    options = parameter(f"-s {LIBLINEAR_SOLVER[case.loss]} -c {case.C} -B 1 -R -e {TOL} -q")
    problems = [problem(np.where(Y[:, [j]].toarray()[:, 0] > 0, 1.0, -1.0), X64, bias=1) for j in range(Y.shape[1])]
    return time_it(lambda: [train(one, options) for one in problems], 1).cpu_s


def scikit_learn_seconds(X, Y, case):
    if case.loss == "logistic":
        binary = LogisticRegression(C=case.C, solver="liblinear", tol=TOL)
    else:
        binary = LinearSVC(C=case.C, dual=False, tol=TOL)
    return time_it(lambda: OneVsRestClassifier(binary).fit(X, Y), 1).cpu_s


def time_all_labels(X, Y, case, n_rival_labels):
    """Seconds per label of ours and of the rivals, taking turns; our relative gap; number of labels of the rivals."""
    X64, Y = sp.csr_matrix(X.astype(np.float64)), sp.csc_array(Y)
    seconds, gaps, n_solved = dict.fromkeys((OURS, *RIVALS), 0.0), [], 0
    for first in range(case.n_parts):
        part = Y[:, first :: case.n_parts]
        few = sp.csr_matrix(part[:, evenly_spaced(part.shape[1], n_rival_labels)].astype(np.int32))
        seconds[OURS] += our_seconds(X, sp.csr_array(part), case, gaps)
        seconds[LIBLINEAR] += liblinear_seconds(X64, few, case)
        seconds[SCIKIT_LEARN] += scikit_learn_seconds(X, few, case)
        n_solved += few.shape[1]
    primal, dual = np.sum(gaps, axis=0)
    each = {name: value / (Y.shape[1] if name == OURS else n_solved) for name, value in seconds.items()}
    return each, (primal - dual) / primal, n_solved


def compare(case, path, options):
    dataset = load_data(path, normalize=True)
    X, Y = dataset.X, dataset.Y
    rounds = [time_all_labels(X, Y, case, options.rival_labels) for _ in range(options.repetitions)]
    _, gap, n_solved = rounds[0]
    rows = []
    for solver in (OURS, *RIVALS):
        ms = [1e3 * each[solver] for each, _, _ in rounds]
        ratios = [each[solver] / each[OURS] for each, _, _ in rounds]
        rows.append(
            [
                solver,
                str(Y.shape[1] if solver == OURS else n_solved),
                f"{statistics.median(ms):.2f}",
                f"{min(ms):.2f}–{max(ms):.2f}",
                f"{statistics.median(ratios):.1f}",
                f"{min(ratios):.1f}–{max(ratios):.1f}",
                f"{gap:.1e}" if solver == OURS else "–",
            ]
        )
    columns = [
        "solver",
        "labels",
        "CPU ms per label",
        "lowest–highest",
        "times ours",
        "lowest–highest",
        "certified gap",
    ]
    return f"## {case}: {X.shape[0]:,} rows, {X.shape[1]:,} features\n\n" + format_table(columns, rows)


def our_pieces():
    """Fits of some labels of every case, and dense rows."""
    for case in CASES:
        path = find_data(case.file)
        if path is None:
            continue
        dataset = load_data(path, normalize=True)
        few = sp.csr_array(sp.csc_array(dataset.Y)[:, evenly_spaced(dataset.Y.shape[1], case.n_ours)])
        model = OneVsAllClassifier(case.C, tol=TOL, prune=PRUNE, loss=case.loss)
        yield str(case), partial(model.fit, dataset.X, few)
    X, y = load_digits(return_X_y=True)
    yield "digits, dense", partial(OneVsAllClassifier(tol=TOL).fit, X / 16, y)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival-labels", type=int, default=12)
    parser.add_argument("--repetitions", type=int, default=5)
    add_ours_option(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.ours:
        with threadpool_limits(1):
            print_figures(our_pieces())
        return
    sections = []
    for case in CASES:
        path = find_data(case.file)
        if path is not None:
            with threadpool_limits(1):
                sections.append(compare(case, path, options))
    packages = ("numpy", "scipy", "scikit-learn", "liblinear-official")
    intro = (
        f"One thread, tol {TOL}, weights below {PRUNE} are pruned; medians of {options.repetitions} rounds.\n"
        "LIBLINEAR: `-s 2 -B 1 -R` or `-s 0 -B 1 -R`; scikit-learn: `LinearSVC(dual=False)` or\n"
        '`LogisticRegression(solver="liblinear")`.\n'
    )
    write_result(
        "one-vs-all",
        "One-vs-all against LIBLINEAR and scikit-learn",
        [intro + f"Machine: {describe_machine(packages)}.", *sections],
    )


if __name__ == "__main__":
    main()
