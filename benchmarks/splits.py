"""Goal: at least 97% of the labels with 10 rows or more are within one row or 10% of their share in every test part, on
every multi-label set, in at most 5 s of CPU; planted near-copies are never divided.

    WIDEMARGIN_DATA=<folder> python benchmarks/splits.py

Each set is split with 10% of the rows held out, into 5 folds and into 10 folds, once by `widemargin.model_selection`
and once at random into parts of the same size. The figures are for the worst test part. For near-copies, up to 1,000
rows of each set are copied with one in 30 of their features replaced (at least one), and the copies are added to the
set; the second table shows the share of pairs that a split divides, with and without `near_copy_groups`. Missing sets
are left out; generated data are used if there are none.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp

from _common import describe_machine, find_data, format_table, time_it, write_result
from widemargin import read_xmc
from widemargin.datasets import make_zipf_multilabel
from widemargin.model_selection import StratifiedLabelKFold, near_copy_groups, stratified_split

FILES = {
    "debian-tags": ("debian-tags/tags_train.txt.gz", "debian-tags/tags_test.txt.gz"),
    "yso-finna-en": ("yso-finna-en/train.txt.gz", "yso-finna-en/test.txt.gz"),
    "rcv1v2-subsets": ("rcv1v2-subsets/train.txt.gz", "rcv1v2-subsets/test.txt.gz"),
    "bibtex": ("bibtex/all.txt.gz",),
}
HELD_OUT = 0.1
FEWEST_ROWS = 10  # of a label that counts
ROWS, SHARE = 1.0, 0.1  # largest deviation of a label in a test part, whichever is larger
REPETITIONS = 3
MAX_COPIES = 1000
WORDS_PER_CHANGE = 30
WANTED_LABELS, WANTED_CPU_S = 0.97, 5.0


def load_sets():
    """Yield the name, rows and indicator of every set that is there, all parts together."""
    found = False
    for name, files in FILES.items():
        paths = [find_data(file) for file in files]
        if None not in paths:
            found = True
            parts = [read_xmc(path) for path in paths]
            X, Y = (sp.csr_array(sp.vstack([part[i] for part in parts], format="csr")) for i in range(2))
            yield name, X, Y
    if not found:
        yield "generated", *make_zipf_multilabel(20_000, 20_000, 2000, random_state=0)


def folds_of(Y, n_folds, groups=None):
    """Fold of each row; with 2 folds, fold 1 is the held-out part."""
    folds = np.zeros(Y.shape[0], dtype=int)
    if n_folds == 2:
        folds[stratified_split(Y, test_size=HELD_OUT, groups=groups)[1]] = 1
        return folds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about labels with fewer rows than folds
        for fold, (_, test) in enumerate(StratifiedLabelKFold(n_folds).split(None, Y, groups)):
            folds[test] = fold
    return folds


def quality(Y, folds, n_folds):
    """Share of labels near their wanted count, mean deviation in rows, deviation in size: of the worst test part."""
    totals = np.asarray(Y.sum(axis=0))
    counted = totals >= FEWEST_ROWS
    share = HELD_OUT if n_folds == 2 else 1 / n_folds
    wanted = share * totals[counted]
    near, deviations, sizes = [], [], []
    for fold in [1] if n_folds == 2 else range(n_folds):
        rows = folds == fold
        deviation = np.abs(np.asarray(Y[rows].sum(axis=0))[counted] - wanted)
        near.append(np.mean(deviation <= np.maximum(ROWS, SHARE * wanted) + 1e-9))
        deviations.append(deviation.mean())
        sizes.append(abs(rows.sum() / (share * len(rows)) - 1))
    return min(near), max(deviations), max(sizes)


def measure(name, Y):
    """Rows of the first table: one per number of folds."""
    rows = []
    for n_folds, parts in ((2, "10% held out"), (5, "5 folds"), (10, "10 folds")):
        cpu = time_it(lambda n_folds=n_folds: folds_of(Y, n_folds), REPETITIONS).cpu_s
        folds = folds_of(Y, n_folds)
        near, deviation, size = quality(Y, folds, n_folds)
        by_chance = np.random.default_rng(0).permutation(folds)
        near_by_chance, deviation_by_chance, _ = quality(Y, by_chance, n_folds)
        reached = (
            near >= WANTED_LABELS and cpu <= WANTED_CPU_S and near > near_by_chance and deviation < deviation_by_chance
        )
        shape = [name, f"{Y.shape[0]:,}", f"{Y.shape[1]:,}", parts]
        labels = [f"{near:.1%}", f"{near_by_chance:.1%}", f"{deviation:.2f}", f"{deviation_by_chance:.2f}"]
        rows.append([*shape, *labels, f"{size:.2%}", f"{cpu:.2f}", "yes" if reached else "NO"])
    return rows


def with_copies(X, Y, rng):
    """The set with changed copies of some rows at its end, and the numbers of the copied rows."""
    long_rows = np.flatnonzero(np.diff(X.indptr) >= WORDS_PER_CHANGE)
    copied = rng.choice(long_rows, min(MAX_COPIES, len(long_rows) // 2), replace=False)
    copies = sp.lil_array(X[copied])
    for row in range(len(copied)):
        columns = copies.rows[row]
        n_changes = len(columns) // WORDS_PER_CHANGE
        new = rng.choice(np.setdiff1d(np.arange(X.shape[1]), columns), n_changes, replace=False)
        old = rng.choice(columns, n_changes, replace=False)
        copies[row, old] = 0
        copies[row, new] = 1
    stacked = (sp.csr_array(sp.vstack(parts, format="csr")) for parts in ((X, sp.csr_array(copies)), (Y, Y[copied])))
    return *stacked, copied


def measure_copies(name, X, Y):
    """A row of the second table."""
    X, Y, copied = with_copies(X, Y, np.random.default_rng(0))
    originals, copies = copied, np.arange(X.shape[0] - len(copied), X.shape[0])
    cpu = time_it(lambda: near_copy_groups(X), 1).cpu_s
    groups = near_copy_groups(X)
    divided = [np.mean(folds[originals] != folds[copies]) for folds in (folds_of(Y, 5), folds_of(Y, 5, groups))]
    sizes = np.bincount(groups)
    near, _, size = quality(Y, folds_of(Y, 5, groups), 5)
    grouped = sizes[sizes > 1].sum() / len(groups)
    cells = [f"{share:.1%}" for share in (*divided, grouped)] + [f"{sizes.max():,}", f"{near:.1%}", f"{size:.2%}"]
    return [name, f"{len(copied):,}", *cells, f"{cpu:.1f}", "NO" if divided[1] else "yes"]


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    shares, copies = [], []
    for name, X, Y in load_sets():
        shares += measure(name, Y)
        copies.append(measure_copies(name, X, Y))
    columns = ["set", "rows", "labels", "split", "labels near", "by chance"]
    columns += ["mean deviation", "by chance", "size", "CPU s", "reached"]
    copy_columns = ["set", "copies", "divided without groups", "divided with groups", "rows in groups"]
    copy_columns += ["largest group", "labels near", "size", "CPU s", "reached"]
    note = (
        f"Labels near: labels with at least {FEWEST_ROWS} rows whose number of rows in the test part is within one row "
        f"or {SHARE:.0%} of the wanted one. Mean deviation: of these labels, in rows. Size: deviation of the number of "
        "rows. All figures are for the worst test part. By chance: random parts of the same sizes. CPU: median of "
        f"{REPETITIONS} runs."
    )
    copy_note = (
        f"Near-copies: one of {WORDS_PER_CHANGE} features changed, planted in the set and split into 5 folds. Divided: "
        "pairs of a row and its copy in different folds. CPU: `near_copy_groups` alone."
    )
    sections = [note, format_table(columns, shares), copy_note, format_table(copy_columns, copies)]
    title = "Splits of multi-label data"
    write_result("splits", title, [*sections, f"Machine: {describe_machine()}."])


if __name__ == "__main__":
    main()
