"""Check the guarantees of a one-vs-all model independently of the solver: scipy, float64, all rows.

Goal: no label of the model violates the stopping rule

    ‖∇L(w, b)‖ ≤ tol · max(1, min(P, N)) / n · ‖∇L(0)‖,      L = ½‖w‖² + C Σ_i φ(y_i (w·x_i + b)),

φ(m) = max(0, 1 − m)² or, with `--loss logistic`, log(1 + e^−m), and the solver's bounds bracket the optimum. Prints the
largest ratio of both sides, the number of labels that violate the rule, the certified gaps, gaps from a dual point that
this script constructs from the weights, and the distance of the reported objectives from recomputed ones. With
--reference the truncated Newton solver, started from mean-separating weights, solves the same labels at the same
tolerance and again far beyond it. The mean objective may be at most 1e-4 worse than its mean objective, and the optimum
must lie between the bounds. Exits with code 1 on any violation.

    WIDEMARGIN_DATA=/path/to/data python benchmarks/check_stop_rule.py debian-tags --tol 1e-3
    WIDEMARGIN_DATA=/path/to/data python benchmarks/check_stop_rule.py yso-finna-en --labels 400 --reference
    WIDEMARGIN_DATA=/path/to/data python benchmarks/check_stop_rule.py yso-finna-en --labels 400 --loss logistic --C 2
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.special import entr

FILES = {
    "debian-tags": "tags_train.txt.gz",
    "rcv1v2-subsets": "train.txt.gz",
    "yso-finna-en": "train.txt.gz",
    "20newsgroups": "train.txt.gz",
}
BLOCK = 16  # labels scored at once
OPTIMUM = {"tol": 1e-5, "gap_tol": 1e-8}
ALLOWED_DIFFERENCE = 1e-4  # of the mean objective from the reference solver's


def read_training_set(name):
    """Rows of unit length (float32) and the label indicator, read by this script itself."""
    path = Path(os.environ.get("WIDEMARGIN_DATA", "data")) / name / FILES[name]
    if not path.exists():
        sys.exit(f"{path} is missing; point WIDEMARGIN_DATA at the folder with the data sets")
    with gzip.open(path, "rt") as lines:
        shape = [int(word) for word in next(lines).split()]
        labels, columns, values = [], [], []
        for line in lines:
            head, _, rest = line.rstrip("\n").partition(" ")
            if ":" in head:
                head, rest = "", line
            labels.append(np.array([int(word) for word in head.split(",") if word], dtype=np.int64))
            pairs = [word.split(":") for word in rest.split()]
            columns.append(np.array([int(pair[0]) for pair in pairs], dtype=np.int64))
            values.append(np.array([float(pair[1]) for pair in pairs]))
    X = stack(columns, values, shape[1])
    Y = stack(labels, [np.ones(len(row)) for row in labels], shape[2])
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ X)
    return X.astype(np.float32), sp.csr_array(Y > 0)


def stack(columns, values, width):
    indptr = np.append(0, np.cumsum([len(row) for row in columns]))
    matrix = sp.csr_array((np.concatenate(values), np.concatenate(columns), indptr), shape=(len(columns), width))
    matrix.sum_duplicates()
    return matrix


def loss_and_slope(m, loss):
    """φ and −φ' at margins m."""
    if loss == "logistic":
        return np.logaddexp(0.0, -m), 0.5 * (1.0 - np.tanh(0.5 * m))
    short_of = np.maximum(0.0, 1.0 - m)
    return np.square(short_of), 2 * short_of


def dual_terms(shares, loss):
    """−φ*(−a) at a = α / c: the entropy, or a − a² / 4."""
    if loss == "logistic":
        return entr(shares) + entr(1.0 - shares)
    return shares - 0.25 * np.square(shares)


def recompute(X, Y, coef, intercept, tol, loss, C=1.0):
    """‖∇L‖ divided by the bound of the rule, L, and a lower bound on the optimum of every label. Shapes (n_labels,).

    The lower bound is the dual objective at α = −C φ', of which the heavier side is shrunk until both are in balance.
    """
    X, XT, Y = X.astype(np.float64), X.T.tocsr().astype(np.float64), sp.csc_array(Y)
    n, n_labels = X.shape[0], Y.shape[1]
    ratios, objectives, bounds = np.zeros(n_labels), np.zeros(n_labels), np.zeros(n_labels)
    for first in range(0, n_labels, BLOCK):
        block = slice(first, min(first + BLOCK, n_labels))
        y = 2.0 * Y[:, block].toarray() - 1.0
        w = sp.csr_array(coef[block]).toarray().astype(np.float64)
        losses, slopes = loss_and_slope(y * (X @ w.T + intercept[block].astype(np.float64)), loss)
        gradient = w.T - C * (XT @ (y * slopes))
        norm = np.sqrt(np.square(gradient).sum(axis=0) + C**2 * (y * slopes).sum(axis=0) ** 2)
        _, at_zero = loss_and_slope(np.zeros_like(y), loss)
        norm_at_zero = C * np.sqrt(np.square(XT @ (y * at_zero)).sum(axis=0) + (y * at_zero).sum(axis=0) ** 2)
        positives = (y > 0).sum(axis=0)
        ratios[block] = norm / (tol * np.maximum(1, np.minimum(positives, n - positives)) / n * norm_at_zero)
        objectives[block] = 0.5 * np.square(w).sum(axis=1) + C * losses.sum(axis=0)
        sides = np.stack([np.where(y > 0, 0.0, slopes).sum(axis=0), np.where(y > 0, slopes, 0.0).sum(axis=0)])
        shrink = sides.min(axis=0) / np.maximum(sides, 1e-300)
        slopes *= np.where(y > 0, shrink[1], shrink[0])
        u = C * (XT @ (y * slopes))
        bounds[block] = C * dual_terms(slopes, loss).sum(axis=0) - 0.5 * np.square(u).sum(axis=0)
    return ratios, objectives, bounds


def compare_with_reference(X, Y, result, objectives, tol, loss, C):
    """Print the differences from the truncated Newton solver; return the number of violations."""
    from widemargin.solvers.one_vs_all.plan import make_plan, solve
    from widemargin.solvers.one_vs_all.problem import Problem

    problem = Problem.of(X, Y, loss=loss, C=C)
    newton = solve(make_plan(problem, tol=tol, gap_tol=None, init="msi"))
    best = solve(make_plan(problem, start=(newton.coef, newton.intercept), **OPTIMUM))
    _, reference, _ = recompute(X, Y, newton.coef, newton.intercept, tol, loss, C)
    optimum = best.primal_by_label
    difference = objectives.mean() / reference.mean() - 1
    outside = (result.dual_by_label > optimum * (1 + 1e-12)) | (result.primal_by_label < best.dual_by_label)
    print(f"mean objective against the reference solver: {difference:+.1e}")
    for name, values in (("ours", objectives), ("reference", reference)):
        distance = values / optimum - 1
        print(f"distance to the optimum, {name}: mean {distance.mean():.1e}, largest {distance.max():.1e}")
    print(f"bounds that do not bracket the optimum: {outside.sum()}")
    return int(outside.sum()) + int(difference > ALLOWED_DIFFERENCE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=sorted(FILES))
    parser.add_argument("--labels", type=int, default=0, help="number of evenly spaced labels; 0: all")
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--gap-tol", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--reference", action="store_true", help="also compare with the truncated Newton solver")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--loss", choices=["squared_hinge", "logistic"], default="squared_hinge")
    arguments = parser.parse_args()
    from widemargin.solvers.one_vs_all.plan import make_plan, solve
    from widemargin.solvers.one_vs_all.problem import Problem

    X, Y = read_training_set(arguments.data)
    if arguments.labels:
        Y = sp.csr_array(sp.csc_array(Y)[:, np.linspace(0, Y.shape[1] - 1, arguments.labels).astype(int)])
    started = time.process_time()
    options = {"tol": arguments.tol, "gap_tol": arguments.gap_tol, "prune": 1e-30, "n_threads": arguments.threads}
    result = solve(make_plan(Problem.of(X, Y, loss=arguments.loss, C=arguments.C), **options))
    cpu_s = time.process_time() - started
    weights = (result.coef, result.intercept)
    ratios, objectives, bounds = recompute(X, Y, *weights, arguments.tol, arguments.loss, arguments.C)
    gaps = (result.primal_by_label - result.dual_by_label) / np.maximum(result.primal_by_label, 1e-300)
    error = np.abs(objectives - result.primal_by_label) / np.maximum(objectives, 1e-300)
    own_gaps = (objectives - bounds) / np.maximum(objectives, 1e-300)
    broken = int((ratios > 1).sum() + (gaps > arguments.gap_tol).sum() + (own_gaps > arguments.gap_tol).sum())
    print(
        f"{arguments.data}: {Y.shape[1]} labels, tol {arguments.tol:g}, {1e3 * cpu_s / Y.shape[1]:.2f} CPU ms per label"
    )
    print(f"rule: largest ratio {ratios.max():.4f}, {(ratios > 1).sum()} labels violate it")
    print(f"certified relative gap: mean {gaps.mean():.2e}, largest {gaps.max():.2e}")
    print(f"gap of the dual point constructed here: mean {own_gaps.mean():.2e}, largest {own_gaps.max():.2e}")
    print(f"reported objective: largest relative error {error.max():.1e}")
    if arguments.reference:
        broken += compare_with_reference(X, Y, result, objectives, arguments.tol, arguments.loss, arguments.C)
    sys.exit(1 if broken or error.max() > 1e-9 else 0)


if __name__ == "__main__":
    main()
