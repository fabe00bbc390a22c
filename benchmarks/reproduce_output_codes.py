"""Does it pay to learn the code? A random code, the same code learned, and a greedy one, on digits, usps and letter.

    PYTHONPATH=benchmarks python benchmarks/reproduce_output_codes.py            # everything, then the page
    PYTHONPATH=benchmarks python benchmarks/reproduce_output_codes.py --seconds 200   # a piece; run again to go on

Goal: accuracy on held-out rows, mean ± standard deviation over 10 random splits, at code sizes 0.4, 1.5 and 4; C of
learned codes by cross-validation on the training rows; tests of significance against the random code. Finished
runs are kept in benchmarks/results/output-codes.json, the page is docs/reproductions/output-codes.md. The binary
classifiers of a split and size are trained once for all methods, from the pieces that OutputCodeClassifier uses.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
import warnings

import numpy as np
import scipy.stats
from sklearn.model_selection import KFold, StratifiedKFold, StratifiedShuffleSplit

from _common import ROOT, describe_machine, write_text
from _multiclass import digits, letter, usps
from widemargin import OneVsAllClassifier, OutputCodeClassifier
from widemargin.labels.codes import random_code
from widemargin.problems.codes import expected_error, greedy_code
from widemargin.solvers.codes.continuous import continuous_code

RUNS = ROOT / "benchmarks" / "results" / "output-codes.json"
PAGE = ROOT / "docs" / "reproductions" / "output-codes.md"
N_SPLITS = 10
SIZES = (0.4, 1.5, 4.0)
ROUNDS = 3  # of interleaving
FIXED_C = 0.1  # of the first comparison of interleaving
FOLDS = 5  # for outputs; scikit-learn's splitters here, the estimator's own there
NORMS = ("l1", "l2", "linf")
ROUND_KINDS = {"interleave": f"C = {FIXED_C}", "interleave-cv": "chosen C"}
SETS = {  # loader, training rows, rows to test on, norms of learned codes
    "digits": (digits, 400, 1000, NORMS),
    "usps": (usps, 300, 1000, NORMS),
    "letter, few rows": (letter, 260, 2000, NORMS),
    "letter": (letter, 1040, 2000, ("l2",)),
}
INTERLEAVED = ("digits", "usps", "letter")
GRID = tuple(float(f"{digit}e{power}") for power in range(-5, 4) for digit in (1, 3))  # values of C
FIRST_C = {"l1": (10.0, 1.0), "l2": (1.0, 0.1), "linf": (0.1, 0.003)}  # for the smallest codes and for the others
SEARCH_TOL, TOL = 1e-2, 1e-3  # relative gaps of codes in cross-validation, and of the code that is kept
NORM_TITLES = {"l1": "l1", "l2": "l2", "linf": "l∞"}
TITLES = {norm: f"learned, {title}" for norm, title in NORM_TITLES.items()} | {"greedy": "greedy, Hamming"}


def split_rows(y, n_train, n_test, seed):
    """Numbers of training and test rows, both with all classes in proportion."""
    splitter = StratifiedShuffleSplit(1, train_size=n_train, test_size=n_test, random_state=seed)
    return next(splitter.split(np.zeros(len(y)), y))


def learn(norm, C, h, y, k, tol):
    """The code matrix of a norm."""
    return continuous_code(h, y, norm=norm, C=C, n_classes=k, tol=tol).code


def choose_C(norm, size, h, y, k, seed):
    """The C with the smallest error on halves of the training rows that the code was not learned on.

    Values next to each other on the grid are tried from the first one, up and then down, as long as the error falls;
    where it is that of chance the code is 0, and C goes up.
    """
    parts = list(StratifiedKFold(2, shuffle=True, random_state=seed).split(h, y))

    @functools.cache
    def error(place):
        codes = [learn(norm, GRID[place], h[a], y[a], k, SEARCH_TOL) for a, _ in parts]
        return float(np.mean([expected_error(h[b] @ code.T, y[b]) for code, (_, b) in zip(codes, parts, strict=True)]))

    first = place = GRID.index(FIRST_C[norm][size >= 1])
    while place + 1 < len(GRID) and (error(place + 1) < error(place) or error(place) > 1 - 1.5 / k):
        place += 1
    while place <= first and place > 0 and error(place - 1) < error(place):
        place -= 1
    return GRID[place]


def outputs(X, y, code, seed):
    """Outputs for the training rows by folds, and the classifiers of all rows."""
    targets = (code[y] > 0).astype(np.int8)
    h = np.empty(targets.shape)
    for a, b in KFold(FOLDS, shuffle=True, random_state=seed).split(X):
        h[b] = OneVsAllClassifier().fit(X[a], targets[a]).decision_function(X[b])
    return h, OneVsAllClassifier().fit(X, targets)


def compare(name, size, seed):
    """Accuracy of every method on one split, with the chosen C."""
    load, n_train, n_test, norms = SETS[name]
    X, y = load()
    train, test = split_rows(y, n_train, n_test, seed)
    k = int(y.max()) + 1
    code = random_code(k, int(k * size), random_state=seed)
    h, columns = outputs(X[train], y[train], code, seed)
    h_test = columns.decision_function(X[test])

    def accuracy(scores):
        return 1.0 - expected_error(scores, y[test])

    greedy = greedy_code(h, y[train], n_classes=k).code
    signs = np.where(h_test >= 0, 1.0, -1.0)
    found = {
        "random": accuracy(h_test @ code.T),
        "greedy": accuracy(signs @ greedy.T),
        "greedy, inner": accuracy(h_test @ greedy.T),
    }
    for norm in norms:
        C = choose_C(norm, size, h, y[train], k, seed)
        found[norm] = accuracy(h_test @ learn(norm, C, h, y[train], k, TOL).T)
        found[f"C of {norm}"] = C
    return found


def interleave(name, size, seed, C):
    """Accuracy of the l2 code without and with rounds of interleaving at one C, and which round the estimator keeps."""
    load, n_train, n_test, _ = SETS[name]
    X, y = load()
    train, test = split_rows(y, n_train, n_test, seed)
    plain = OutputCodeClassifier(learn="l2", C=C, code_size=size, random_state=seed).fit(X[train], y[train])
    rounds = OutputCodeClassifier(learn="l2", C=C, code_size=size, random_state=seed, interleave=ROUNDS)
    rounds.fit(X[train], y[train])
    return {
        "plain": plain.score(X[test], y[test]),
        "interleaved": rounds.score(X[test], y[test]),
        "kept": int(np.flatnonzero(rounds.history_["kept"])[0]),
        "objective": [float(v) for v in rounds.history_["primal"]],
        "error": [float(v) for v in rounds.history_["expected_error"]],
    }


def interleave_at_chosen_C(name, size, seed):
    """The same at the C that cross-validation chose for this split, without rounds."""
    C = json.loads(RUNS.read_text())[f"compare/{name}/{size:g}/{seed}"]["C of l2"]
    return interleave(name, size, seed, C) | {"C": C}


def tasks():
    """Every run by its key."""
    for name in SETS:
        for size in SIZES:
            for seed in range(N_SPLITS):
                yield f"compare/{name}/{size:g}/{seed}", compare, (name, size, seed)
    for name in INTERLEAVED:
        for seed in range(N_SPLITS):
            yield f"interleave/{name}/1.5/{seed}", interleave, (name, 1.5, seed, FIXED_C)
    for name in INTERLEAVED:
        for seed in range(N_SPLITS):
            yield f"interleave-cv/{name}/1.5/{seed}", interleave_at_chosen_C, (name, 1.5, seed)


def run(seconds):
    """Do what is not done yet, for at most that many seconds; whether all is done."""
    done = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    start = time.perf_counter()
    for key, work, arguments in tasks():
        if key in done:
            continue
        if time.perf_counter() - start > seconds:
            return done, False
        cpu = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = work(*arguments)
        done[key] = result | {"cpu_s": round(time.process_time() - cpu, 2)}
        print(key, {n: round(v, 4) for n, v in result.items() if isinstance(v, float)}, flush=True)
        write_text(RUNS, json.dumps(done, indent=0) + "\n")
    return done, True


def values(done, kind, name, size, method):
    """The figures of a method over the splits."""
    keys = [f"{kind}/{name}/{size:g}/{seed}" for seed in range(N_SPLITS)]
    return np.array([done[key][method] for key in keys if key in done and method in done[key]])


def p_value(difference, n_train, n_test):
    """Two-sided corrected resampled t-test (Nadeau and Bengio, 2003) of a difference over the splits."""
    n = len(difference)
    deviation = difference.std(ddof=1)
    if deviation == 0:
        return 1.0
    t = difference.mean() / (deviation * np.sqrt(1 / n + n_test / n_train))
    return float(2 * scipy.stats.t.sf(abs(t), n - 1))


def significance(difference, name):
    """† for p < 0.05 by Wilcoxon's signed ranks, ‡ if by the corrected resampled t-test as well."""
    if not difference.any() or scipy.stats.wilcoxon(difference).pvalue >= 0.05:
        return ""
    return "‡" if p_value(difference, *SETS[name][1:3]) < 0.05 else "†"


def cell(done, kind, name, size, method, base):
    """Mean ± standard deviation, marked by the significance of the difference from the base."""
    accuracies = values(done, kind, name, size, method)
    if len(accuracies) < 2:
        return "–"
    text = f"{accuracies.mean():.3f} ± {accuracies.std(ddof=1):.3f}"
    if method == base:
        return text
    return f"{text} {significance(accuracies - values(done, kind, name, size, base), name)}".rstrip()


def table(done, name):
    """Accuracy by method and size of the code."""
    methods = ["random", *SETS[name][3], "greedy", "greedy, inner"]
    lines = ["| code | " + " | ".join(f"size {size:g}" for size in SIZES) + " |", "|---" * 4 + "|"]
    for method in methods:
        cells = [cell(done, "compare", name, size, method, "random") for size in SIZES]
        lines.append(f"| {TITLES.get(method, method)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def interleave_table(done):
    """Whether rounds help, at the fixed C and at the chosen ones."""
    lines = ["| data, C | splits | learned once | interleaved | p, corrected | p, signed ranks |", "|---" * 6 + "|"]
    for kind, which in ROUND_KINDS.items():
        for name in INTERLEAVED:
            plain, rounds = (values(done, kind, name, 1.5, method) for method in ("plain", "interleaved"))
            if len(rounds) < 2:
                continue
            p = p_value(rounds - plain, *SETS[name][1:3]), scipy.stats.wilcoxon(rounds - plain).pvalue
            figures = " | ".join(f"{v.mean():.3f} ± {v.std(ddof=1):.3f}" for v in (plain, rounds))
            lines.append(f"| {name}, {which} | {len(rounds)} | {figures} | {p[0]:.2g} | {p[1]:.2g} |")
    return "\n".join(lines)


def said(places):
    """The parts of a sentence: where something is better, worse or not significantly different."""
    words = {"+": "better", "-": "worse", "": "no significant difference"}
    found = [f"{word} on {', '.join(places[sign])}" for sign, word in words.items() if places[sign]]
    return "; ".join(found)


def verdict(done, method, base):
    """What the figures say of one method against another, over all data sets and sizes."""
    places = {"+": [], "-": [], "": []}
    for name, size in ((name, size) for name in SETS for size in SIZES):
        pair = [values(done, "compare", name, size, which) for which in (method, base)]
        if min(map(len, pair)) == N_SPLITS:
            mark = significance(pair[0] - pair[1], name)
            sign = "" if not mark else "+" if pair[0].mean() > pair[1].mean() else "-"
            places[sign].append(f"{name} {size:g}{mark}")
    return f"- {TITLES.get(method, method)} against {TITLES.get(base, base)}: {said(places)}."


def summary(done):
    """In how many cells of the tables a learned code is better than the random one, or worse."""
    marks, gains = [], {}
    for name, size, norm in [(data, size, norm) for data in SETS for size in SIZES for norm in SETS[data][3]]:
        difference = values(done, "compare", name, size, norm) - values(done, "compare", name, size, "random")
        marks.append((significance(difference, name), difference.mean() > 0))
        gains.setdefault(name, []).append((100.0 * difference.mean(), marks[-1] == ("‡", True)))
    strict = sum(mark == "‡" and above for mark, above in marks)
    better = sum(mark == "†" and above for mark, above in marks)
    worse = sum(mark != "" and not above for mark, above in marks)
    by_set = [
        f"{name} {sum(passed for _, passed in cells)} of {len(cells)} "
        f"({min(cells)[0]:+.1f} to {max(cells)[0]:+.1f} points)".replace("-", "−")
        for name, cells in gains.items()
    ]
    return (
        f"By the planned test, {strict} of {len(marks)} learned codes are better than the random code: "
        f"{'; '.join(by_set)}.\n"
        f"A further {better} are better by signed ranks alone, and {worse} worse; the others do not differ "
        "significantly\nby either test."
    )


def interleave_verdict(done, kind):
    """The same of rounds against none, with the runs in which a later round was kept."""
    places, later, total = {"+": [], "-": [], "": []}, 0, 0
    for name in INTERLEAVED:
        plain, rounds, kept = (values(done, kind, name, 1.5, method) for method in ("plain", "interleaved", "kept"))
        mark = significance(rounds - plain, name)
        places["" if not mark else "+" if rounds.mean() > plain.mean() else "-"].append(f"{name}{mark}")
        later, total = later + int((kept > 0).sum()), total + len(kept)
    return (
        f"{said(places)}. A round after the first had the smaller objective, and was kept, in {later} of {total} runs."
    )


def chosen_table(done):
    """The values of C that were chosen: median, least and largest over the splits."""
    lines = ["| data, norm | " + " | ".join(f"size {size:g}" for size in SIZES) + " |", "|---" * 4 + "|"]
    for name, norm in [(data, some) for data in SETS for some in SETS[data][3]]:
        chosen = [values(done, "compare", name, size, f"C of {norm}") for size in SIZES]
        cells = [f"{np.median(C):.2g} ({C.min():g} to {C.max():g})" for C in chosen]
        lines.append(f"| {name}, {NORM_TITLES[norm]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def at_an_end(done):
    """How many of the values of C that were chosen are the least or the largest of the grid."""
    chosen = [v for key, run in done.items() if key.startswith("compare/") for n, v in run.items() if n[:4] == "C of"]
    return f"{sum(C in (GRID[0], GRID[-1]) for C in chosen)} of {len(chosen)}"


def write_page(done):
    """The page, from the runs."""
    cpu = sum(result["cpu_s"] for result in done.values())
    rows = "; ".join(f"{name} {n_train:,} and {n_test:,}" for name, (_, n_train, n_test, _) in SETS.items())
    tables = "\n\n".join(f"### {name}\n\n{table(done, name)}" for name in SETS)
    pairs = [(norm, "random") for norm in NORMS] + [("l1", "l2"), ("linf", "l2"), ("greedy", "random")]
    rounds = [f"- {which}: {interleave_verdict(done, kind)}" for kind, which in ROUND_KINDS.items()]
    starts = ", ".join(f"{NORM_TITLES[norm]} {small:g} and {large:g}" for norm, (small, large) in FIRST_C.items())
    write_text(PAGE, TEXT.format(
        rows=rows, tables=tables, verdicts="\n".join(verdict(done, *pair) for pair in pairs), n_rounds=ROUNDS,
        interleaved=interleave_table(done), rounds="\n".join(rounds), chosen=chosen_table(done), starts=starts,
        ends=at_an_end(done), summary=summary(done), low=GRID[0], high=GRID[-1], minutes=cpu / 60,
        machine=describe_machine(),
    ))  # fmt: skip
    print(PAGE)


TEXT = """# Output codes: does learning the code pay?

One command writes this page: `make reproduce-output-codes`, or
`PYTHONPATH=benchmarks python benchmarks/reproduce_output_codes.py`. It can be interrupted and run again; finished runs
are in `benchmarks/results/output-codes.json`. {minutes:.0f} minutes of one core in all, on a busy machine;
{machine}.

**What is compared.** Binary classifiers of a random code (`OneVsAllClassifier`, C = 1) with int(classes × size)
columns, trained once per split. *random* decodes with that code by the inner product. *learned* replaces its numbers by
those of least ‖M‖ + C · loss (l2: ½‖M‖² + C · loss), learned on outputs of 5 folds to a certified relative gap of 1e-3.
*greedy* is the discrete code grown for the same classifiers, decoded by Hamming distance, for which it is made, and by
the inner product.

**Against the paper.** Crammer and Singer (2002) propose these codes and report no accuracy of theirs: their one
experiment is the run time of figure 5, [run again here](four-quadrants.md). Data sets, sizes, grids and tests of this
page are ours, and neither confirm nor refute a figure of the paper.

**C** is chosen by cross-validation on two halves of the training rows, to a gap of 1e-2: from a first value (for size
0.4 and for larger codes: {starts}) to the next
on a grid of 1 and 3 times powers of ten, up, or down if not up, as long as the error falls. A noisy error can stop such
a search early. The grid goes from {low:g} to {high:g}; {ends} chosen values are at an end of it. Where the search
begins was set with earlier runs on the same splits in sight, accuracies on test rows included; the search itself sees
training rows only.

**How.** Accuracy on held-out rows, mean ± standard deviation over 10 random splits (training and test rows:
{rows}).
‡ marks p < 0.05 against the random code by the corrected resampled t-test of Nadeau and Bengio, the planned test;
† marks p < 0.05 by Wilcoxon's signed ranks alone. Signed ranks were added after the first results, when few cells had
passed the planned test: read † as a hint. They take splits for independent, and training rows of two splits overlap by
up to 22 %; the planned test is strict here, because there are more test rows than training rows. Neither corrects for
the number of comparisons.

Training rows are few because the linear programs of l1 and l∞ cost seconds each with 26 classes and 104 columns. l1 and
l∞ on all letters are learned on 260 rows, 10 per class; the last table has l2, which is fast, on 1,040.

## Accuracy

{tables}

{summary}

Learned codes against the random one and against each other, and the greedy code, by the same tests:

{verdicts}

A greedy code is made of signs and counts signs of outputs: it throws away how sure a classifier is, which the inner
product with the random code does not.

Values of C that were chosen, the median and the range over the splits:

{chosen}

## Interleaving

`interleave={n_rounds}` trains each column again for the learned code and learns the code again, {n_rounds} times, and
keeps the round with the smallest objective. Size 1.5, l2. The first comparison is at C = 0.1 for all; the second, added
after its results, is at the C that cross-validation chose for the code learned once.

{interleaved}

Interleaved against learned once, by the same tests:

{rounds}

`interleave=0` is the default.
"""


if __name__ == "__main__":
    time_needed = "From an empty cache this takes about 25 minutes of one core."
    parser = argparse.ArgumentParser(description=f"{__doc__.splitlines()[0]} {time_needed}")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after so many seconds; run again to go on")
    finished, complete = run(parser.parse_args().seconds)
    if complete:
        write_page(finished)
    else:
        print(f"{len(finished)} runs are done; run again to go on")
