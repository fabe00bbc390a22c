"""Goal: generated labels with topics have about as many active negatives as labels of real text.

A negative is active at the optimum if its margin is below 1; the cost of a label depends on how many are. The number is
measured on random labels with OneVsAllClassifier(C=1), by number of positives, on the library titles of yso-finna-en
and on generated sets of about as many rows: of the same size with Zipf frequencies (60,000 labels, exponent ¾, because
the labels of yso-finna-en were capped), and of a quarter of the Amazon-670K shape, each with and without topics.

The constants of topical data (in widemargin/datasets/generators.py, and TOPICAL in amazon_shape.py) were chosen by
these medians, the intercept and the word frequencies. Of the 21 trials, 11 were made with 19,696 labels of exponent
0.35, 6 on the first of the generated sets, where the choice was made, and 4 on the second, which has the same
constants. Medians, 1,500 random labels each:

    active negatives by positives         1   2–3   4–8  9–16 17–32 33–64 65–128  129–   intercept
    yso-finna-en                         44    99   166   288   464   740  1,230 2,048      −1.361
    the same size, with topics           56   104   181   297   446   671  1,066 2,087      −1.358
    the same size, without topics        60   141   271   467   747 1,290  1,708 3,959      −1.192
    Amazon shape / 4, with topics        62   120   182   248   336   410    520     –      −1.161
    Amazon shape / 4, without topics    124   236   360   488   559     –      –     –      −1.053

    share of rows with the word of rank   1    10   100  1,000  10,000   non-zeros per row
    yso-finna-en                       3.6%  2.8%  .92%  .193%   .011%    9.9 (median 6)
    the same size, with topics         3.5%  2.6% 1.29%  .186%   .011%   10.0 (median 8)
    the same size, without topics       37%  4.6%  .52%  .077%   .019%    9.9 (median 10)

So generated data without topics is not easier than real text by this measure: its labels have more active negatives,
and intercepts closer to −1. It differs in which rows are active, and in its words. Topical labels are still easier to
predict than those of yso-finna-en, whose label sets are incomplete: with 19,696 labels of exponent 0.35, precision@1 on
8,000 further rows is 0.66 (0.67 without topics), against 0.44.

    WIDEMARGIN_DATA=data python benchmarks/active_negatives.py [--labels 1500]
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np

from _common import describe_machine, find_data, format_table, write_result
from amazon_shape import ROWS, SHAPES, SIZES, TOPICAL
from widemargin import OneVsAllClassifier, datasets, load_data

BINS = (1, 2, 4, 9, 17, 33, 65, 129)  # smallest number of positives
RANKS = (1, 10, 100, 1000, 10_000)  # of words
LIKE_YSO = {"n_samples": 142_576, "n_features": 42_716, "n_labels": 60_000, "labels_per_row": 4.94, "nnz_per_row": 9.9}
BLOCK = 8192


def count_active(X: Any, Y: Any, model: OneVsAllClassifier) -> Any:
    """Number of negative rows with a margin below 1, for each label."""
    counts = np.zeros(Y.shape[1], dtype=np.int64)
    for first in range(0, X.shape[0], BLOCK):
        part = slice(first, first + BLOCK)
        counts += np.sum((model.decision_function(X[part]) > -1) & (Y[part].toarray() == 0), axis=0)
    return counts


def measure(name: str, X: Any, Y: Any, n_labels: int) -> tuple[list[str], list[str]]:
    """The rows of both tables."""
    n_positive = np.bincount(Y.indices, minlength=Y.shape[1])
    used = np.flatnonzero(n_positive)
    labels = np.random.default_rng(0).choice(used, size=min(n_labels, len(used)), replace=False)
    Y = Y.tocsc()[:, labels].tocsr()
    model = OneVsAllClassifier(C=1.0).fit(X, Y)
    active, group = count_active(X, Y, model), np.searchsorted(BINS, n_positive[labels], side="right")
    medians = [f"{np.median(active[group == g]):,.0f}" if np.any(group == g) else "–" for g in range(1, len(BINS) + 1)]
    shares = np.sort(np.bincount(X.indices, minlength=X.shape[1]))[::-1] / X.shape[0]
    return (
        [name, *medians, f"{active.mean():,.0f}", f"{np.median(model.intercept_):.3f}"],
        [name, *(f"{100 * shares[rank - 1]:.3f}" for rank in RANKS), f"{X.nnz / X.shape[0]:.1f}"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=1500)
    n_labels = parser.parse_args().labels
    quarter = {name: size // (1 if name == "n_features" else 4) for name, size in SIZES.items()}
    generated = {
        "the same size, with topics": LIKE_YSO | {"exponent": 0.75} | TOPICAL,
        "the same size, without topics": LIKE_YSO | {"exponent": 0.75, "word_exponent": 1.0},
        "Amazon shape / 4, with topics": quarter | SHAPES["topical"].rows,
        "Amazon shape / 4, without topics": quarter | ROWS,
    }
    rows = []
    path = find_data("yso-finna-en/train.txt.gz")
    if path is not None:
        data = load_data(path, normalize=True)
        rows.append(measure("yso-finna-en", data.X, data.Y, n_labels))
    for name, options in generated.items():
        rows.append(measure(name, *datasets.make_zipf_multilabel(**options, random_state=0), n_labels))
    bounds = [f"{low}–{high - 1}" if high - 1 > low else f"{low}" for low, high in itertools.pairwise(BINS)]
    sections = [
        f"Median number of active negatives by number of positives, {n_labels:,} random labels, C = 1.",
        format_table(["data", *bounds, f"{BINS[-1]}–", "mean", "median intercept"], [row for row, _ in rows]),
        "Percent of rows with the word of a rank.",
        format_table(["data", *(f"{rank:,}" for rank in RANKS), "non-zeros per row"], [row for _, row in rows]),
        describe_machine(),
    ]
    write_result("active-negatives", "Active negatives of generated and of real labels", sections)


if __name__ == "__main__":
    main()
