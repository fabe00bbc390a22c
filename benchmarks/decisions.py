"""Goals: a rule chosen on held-out rows raises micro-F1 and macro-F1 well above those of the sign of the score; and
labels accepted at a precision target reach it on new rows in at least 91 of 100 random splits.

    WIDEMARGIN_DATA=… python benchmarks/decisions.py [SET …]
"""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.base import clone

from _common import describe_machine, find_data, format_table, write_result
from widemargin import OneVsAllClassifier, read_xmc
from widemargin.estimators.decisions import ACCEPTED_PER_ROW, fit_acceptance
from widemargin.metrics import micro_f1, precision_recall_f1
from widemargin.problems.scores import rank_scales

# Training and test rows, and the precision targets.
SETS = {
    "debian-tags": ("debian-tags/tags_train.txt.gz", "debian-tags/tags_test.txt.gz", (0.9, 0.95)),
    "bibtex": ("bibtex/train_idx.txt", "bibtex/test_idx.txt", ()),
    "rcv1v2-subsets": ("rcv1v2-subsets/train.txt.gz", "rcv1v2-subsets/test.txt.gz", (0.95, 0.98)),
    "yso-finna-en": ("yso-finna-en/train.txt.gz", "yso-finna-en/test.txt.gz", (0.7, 0.8, 0.9)),
}
RULES = {
    "micro-F1": {"objective": "micro-f1", "per_label_thresholds": False},
    "macro-F1": {"objective": "macro-f1"},
    "macro-F1, per label": {"objective": "macro-f1", "per_label_thresholds": True},
    "F1 per row": {"objective": "f1-per-row"},
}
ABOUT = (
    "F1 on the test rows; macro-F1 is the mean over labels that occur in them. Rules are chosen on 10% of the training "
    "rows with a model of the others, and used by a model of all training rows (C = 0.25); CPU seconds are those of "
    "both fits and the rule. Then 100 random halves of the test rows: one half chooses what is accepted at the "
    "precision target (δ = 0.05), the other measures the precision."
)
HELD_OUT = 0.1
N_SPLITS = 100
FEWEST_PAIRS = 2000
F1_COLUMNS = ("data", "decision", "q", "threshold", "micro-F1", "macro-F1", "labels per row", "CPU s", "of the rule")
SPLIT_COLUMNS = (
    "data", "target", "nothing accepted", "target reached", "mean precision", "lowest", "accepted / true labels",
    "fewest pairs",
)  # fmt: skip


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
    (X, Y), rows = train, []
    for C in (1.0, 0.25):
        model, fit_s = timed(OneVsAllClassifier(C=C, prune=0.01, normalize=True).fit, X, Y)
        rows.append([name, f"sign, C = {C:g}", "", "", *f1s(test[1], model.predict(test[0])), f"{fit_s:.1f}", ""])
    held_out = np.random.default_rng(0).random(X.shape[0]) < HELD_OUT
    part, part_s = timed(clone(model).fit, X[~held_out], Y[~held_out])
    for title, parameters in RULES.items():
        part.set_params(**RULES["micro-F1"] | parameters)
        _, rule_s = timed(part.fit_decision, X[held_out], Y[held_out])
        rule = part.decision_
        model.set_params(decision="threshold")._set_decision(rule)
        found = f1s(test[1], model.predict(test[0]))
        chosen = [f"{rule.q:g}", f"{rule.threshold:.3f}"]
        rows.append([name, title, *chosen, *found, f"{fit_s + part_s + rule_s:.1f}", f"{rule_s:.1f}"])
    return rows, model


def timed(function, *arguments):
    """The result of a call, and its CPU seconds."""
    start = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - start


def split_test_rows(name, lists, inverse_norms):
    """Rows of the second table, from the lists of all test rows."""
    lists, rows = lists.first(ACCEPTED_PER_ROW), []
    n_rows = len(lists.hits)
    for target in SETS[name][2]:
        measured = []
        for split in range(N_SPLITS):
            first = np.random.default_rng(split).permutation(n_rows) < n_rows // 2
            accepted = fit_acceptance(lists[first], inverse_norms, target)
            if accepted.threshold is not None:
                other = lists[~first].first(accepted.limit)
                above = other.values(inverse_norms**accepted.q) > accepted.threshold
                measured.append((other.hits[above].mean(), above.sum() / other.truth.nnz, above.sum()))
        if not measured:
            rows.append([name, f"{target:g}", str(N_SPLITS), "0 of 0", "", "", "", "0"])
            continue
        precision, share, pairs = np.transpose(measured)
        reached = f"{np.sum(precision >= target)} of {len(measured)}"
        found = [f"{precision.mean():.4f}", f"{precision.min():.4f}", f"{share.mean():.3f}", f"{pairs.min():,.0f}"]
        rows.append([name, f"{target:g}", str(N_SPLITS - len(measured)), reached, *found])
    return rows


def main() -> int:
    f1_rows, split_rows = [], []
    for name in sys.argv[1:] or SETS:
        parts = load(name)
        if parts is None:
            continue
        found, model = compare_rules(name, *parts)
        f1_rows += found
        split_rows += split_test_rows(name, model._held_out(*parts[1]), rank_scales(model.coef_, 1.0))
        print(format_table(F1_COLUMNS, f1_rows), format_table(SPLIT_COLUMNS, split_rows), sep="\n", flush=True)
    if not f1_rows:
        return 1
    tables = [format_table(F1_COLUMNS, f1_rows), format_table(SPLIT_COLUMNS, split_rows)]
    write_result("decisions", "Decisions of multi-label models", [ABOUT, *tables, describe_machine()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
