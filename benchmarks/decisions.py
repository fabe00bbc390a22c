"""Goals: a rule chosen on 10% of the training rows raises micro-F1 and macro-F1 on the test rows well above those of
the sign of the score; and labels accepted at a precision target reach it on new rows in at least 91 of 100 splits.

First table: F1 on the test rows, macro-F1 averaged over the labels that occur in them. "sign" is `predict` without a
rule. The rules are chosen with a model of C = 0.25 trained on 90% of the training rows, and used by a model of all
training rows; CPU seconds include both fits.

Second table: test rows are split at random 100 times. One half chooses the rule of a model of all training rows with
`precision_target`, the other half measures the precision of the accepted labels.

    WIDEMARGIN_DATA=… python benchmarks/decisions.py [SET …]
"""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.base import clone

from _common import describe_machine, find_data, format_table, write_result
from widemargin import OneVsAllClassifier, read_xmc
from widemargin.estimators.decisions import fit_rule
from widemargin.metrics import micro_f1, precision_recall_f1
from widemargin.problems.scores import rank_scales

# Training and test rows, and the precision targets.
SETS = {
    "debian-tags": ("debian-tags/tags_train.txt.gz", "debian-tags/tags_test.txt.gz", (0.9, 0.95)),
    "bibtex": ("bibtex/train_idx.txt", "bibtex/test_idx.txt", ()),
    "rcv1v2-subsets": ("rcv1v2-subsets/train.txt.gz", "rcv1v2-subsets/test.txt.gz", (0.9, 0.95)),
    "yso-finna-en": ("yso-finna-en/train.txt.gz", "yso-finna-en/test.txt.gz", (0.7, 0.8)),
}
RULES = {
    "micro-F1": {"objective": "micro-f1"},
    "macro-F1": {"objective": "macro-f1"},
    "macro-F1, per label": {"objective": "macro-f1", "per_label_thresholds": True},
    "F1 per row": {"objective": "f1-per-row"},
}
ABOUT = ""
HELD_OUT = 0.1
N_SPLITS = 100
FEWEST_PAIRS = 2000
F1_COLUMNS = ("data", "decision", "q", "threshold", "micro-F1", "macro-F1", "labels per row", "CPU s")
SPLIT_COLUMNS = ("data", "target", "splits reached", "mean precision", "lowest", "share of predicted", "fewest pairs")


def load(name):
    """Training and test rows of a set, as (X, Y) pairs, or None if its files are missing."""
    train, test, _ = SETS[name]
    paths = find_data(train), find_data(test)
    if None in paths:
        return None
    if name != "bibtex":
        return [read_xmc(path) for path in paths]
    X, Y = read_xmc(find_data("bibtex/all.txt.gz"))
    return [(X[rows], Y[rows]) for rows in (np.loadtxt(path, dtype=int) for path in paths)]


def f1s(truth, predicted):
    """Micro-F1, macro-F1 over the labels of `truth`, and the mean number of predicted labels, as text."""
    by_label = precision_recall_f1(truth, predicted, average=None)[2]
    occurs = np.bincount(truth.indices, minlength=truth.shape[1]) > 0
    per_row = predicted.nnz / predicted.shape[0]
    return [f"{micro_f1(truth, predicted):.4f}", f"{np.mean(by_label[occurs]):.4f}", f"{per_row:.2f}"]


def compare_rules(name, train, test):
    """Rows of the first table, and the model of all training rows with C = 0.25."""
    X, Y = train
    rows = []

    def fitted(C, X, Y):
        start = time.process_time()
        model = OneVsAllClassifier(C=C, prune=0.01, normalize=True, n_jobs=2).fit(X, Y)
        return model, time.process_time() - start

    for C in (1.0, 0.25):
        model, fit_s = fitted(C, X, Y)
        rows.append([name, f"sign, C = {C:g}", "", "", *f1s(test[1], model.predict(test[0])), f"{fit_s:.1f}"])
    held_out = np.random.default_rng(0).random(X.shape[0]) < HELD_OUT
    part, part_s = fitted(0.25, X[~held_out], Y[~held_out])
    for title, parameters in RULES.items():
        start = time.process_time()
        rule = part.set_params(**clone(model).get_params() | parameters).fit_decision(X[held_out], Y[held_out]).decision_
        rule_s = time.process_time() - start
        model.set_params(decision="threshold")._set_decision(rule)
        found = f1s(test[1], model.predict(test[0]))
        rows.append(
            [name, title, f"{rule.q:g}", f"{rule.threshold:.3f}", *found, f"{fit_s + part_s + rule_s:.1f} ({rule_s:.1f})"]
        )
    return rows, model


def split_test_rows(name, model, test):
    """Rows of the second table."""
    lists, rows = model._held_out(*test), []
    n_rows = len(lists.hits)
    for target in SETS[name][2]:
        precisions, shares, pairs = [], [], []
        for split in range(N_SPLITS):
            first = np.random.default_rng(split).permutation(n_rows) < n_rows // 2
            found = fit_rule(lists[first], model.coef_, precision_target=target)
            other, accepted = lists[~first].first(found.acceptance.limit), found.acceptance
            if accepted.threshold is None:
                pairs.append(0)
                continue
            above = other.values(rank_scales(model.coef_, accepted.q)) > accepted.threshold
            precisions.append(other.hits[above].mean())
            shares.append(accepted.share)
            pairs.append(int(above.sum()))
        reached = sum(precision >= target for precision in precisions)
        nothing = f", nothing accepted in {N_SPLITS - len(precisions)}" if len(precisions) < N_SPLITS else ""
        found = [f"{np.mean(precisions):.4f}", f"{min(precisions):.4f}", f"{np.mean(shares):.3f}"] if precisions else ["", "", ""]
        rows.append([name, f"{target:g}", f"{reached} of {N_SPLITS}{nothing}", *found, f"{min(pairs):,}"])
    return rows


def main() -> int:
    f1_rows, split_rows = [], []
    for name in sys.argv[1:] or SETS:
        parts = load(name)
        if parts is None:
            continue
        found, model = compare_rules(name, *parts)
        f1_rows += found
        split_rows += split_test_rows(name, model, parts[1])
        print(format_table(F1_COLUMNS, f1_rows), format_table(SPLIT_COLUMNS, split_rows), sep="\n", flush=True)
    if not f1_rows:
        return 1
    tables = [format_table(F1_COLUMNS, f1_rows), format_table(SPLIT_COLUMNS, split_rows)]
    write_result("decisions", "Decisions of multi-label models", [ABOUT, *tables, describe_machine()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
