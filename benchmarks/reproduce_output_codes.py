"""Does it pay to learn the code? A random code, the same code learned, and a greedy one, on digits, usps and letter.

    PYTHONPATH=benchmarks python benchmarks/reproduce_output_codes.py            # everything, then the page
    PYTHONPATH=benchmarks python benchmarks/reproduce_output_codes.py --seconds 200   # a part; run again to resume

Goal: accuracy on held-out rows, mean ± standard deviation over 10 random splits, at code sizes 0.4, 1.5 and 4.
Cross-validation on the training rows chooses C of the learned codes. Significance is tested against the random code.
Finished runs are kept in benchmarks/results/output-codes.json; the page is docs/reproductions/output-codes.md. The
binary classifiers of a split and size are trained once for all methods, with the functions of OutputCodeClassifier.
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
from widemargin.labels.decoding import expected_error
from widemargin.problems.first_column import greedy_code
from widemargin.solvers.codes.continuous import continuous_code

RUNS = ROOT / "benchmarks" / "results" / "output-codes.json"
PAGE = ROOT / "docs" / "reproductions" / "output-codes.md"
N_SPLITS = 10
SIZES = (0.4, 1.5, 4.0)
ROUNDS = 3  # of interleaving
FIXED_C = 0.1  # in the first comparison of interleaving
FOLDS = 5  # for outputs; scikit-learn's splitters here, the estimator's own in OutputCodeClassifier
NORMS = ("l1", "l2", "linf")
ROUND_KINDS = {"interleave": f"C = {FIXED_C}", "interleave-cv": "chosen C"}
SETS = {  # loader, training rows, test rows, norms of learned codes
    "digits": (digits, 400, 1000, NORMS),
    "usps": (usps, 300, 1000, NORMS),
    "letter, few rows": (letter, 260, 2000, NORMS),
    "letter": (letter, 1040, 2000, ("l2",)),
}
INTERLEAVED = ("digits", "usps", "letter")
GRID = tuple(float(f"{digit}e{power}") for power in range(-5, 4) for digit in (1, 3))  # values of C
FIRST_C = {"l1": (10.0, 1.0), "l2": (1.0, 0.1), "linf": (0.1, 0.003)}  # smallest codes, other codes
SEARCH_TOL, TOL = 1e-2, 1e-3  # relative gaps in cross-validation and of the final code
NORM_TITLES = {"l1": "l1", "l2": "l2", "linf": "l∞"}
TITLES = {norm: f"learned, {title}" for norm, title in NORM_TITLES.items()} | {"greedy": "greedy, Hamming"}


def split_rows(y, n_train, n_test, seed):
    """Indices of training and test rows, both with all classes in proportion."""
    splitter = StratifiedShuffleSplit(1, train_size=n_train, test_size=n_test, random_state=seed)
    return next(splitter.split(np.zeros(len(y)), y))


def learn(norm, C, h, y, k, tol):
    """The learned code matrix."""
    return continuous_code(h, y, norm=norm, C=C, n_classes=k, tol=tol).code


def choose_C(norm, size, h, y, k, seed):
    """The C with the smallest error by two-fold cross-validation on the training rows.

    Neighbouring values of the grid are tried from the first one, up and then down, while the error falls. An error at
    chance level means that the code is 0, and C goes up.
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
    """Out-of-fold outputs for the training rows, and the classifiers trained on all rows."""
    targets = (code[y] > 0).astype(np.int8)
    h = np.empty(targets.shape)
    for a, b in KFold(FOLDS, shuffle=True, random_state=seed).split(X):
        h[b] = OneVsAllClassifier().fit(X[a], targets[a]).decision_function(X[b])
    return h, OneVsAllClassifier().fit(X, targets)


def compare(name, size, seed):
    """Accuracy of every method on one split, and the chosen C."""
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
    """Accuracy of the l2 code without and with interleaving at one C, and the round that the estimator keeps."""
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
    """The same at the C that cross-validation chose for this split without interleaving."""
    C = json.loads(RUNS.read_text())[f"compare/{name}/{size:g}/{seed}"]["C of l2"]
    return interleave(name, size, seed, C) | {"C": C}


def tasks():
    """All runs with their keys."""
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
    """Do the missing runs for at most `seconds`; return the finished runs and whether that is all."""
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
    """The numbers of a method over the splits."""
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
    """† for p < 0.05 by Wilcoxon's signed ranks, ‡ if the corrected resampled t-test agrees."""
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
    """Accuracy by method and code size."""
    methods = ["random", *SETS[name][3], "greedy", "greedy, inner"]
    lines = ["| code | " + " | ".join(f"size {size:g}" for size in SIZES) + " |", "|---" * 4 + "|"]
    for method in methods:
        cells = [cell(done, "compare", name, size, method, "random") for size in SIZES]
        lines.append(f"| {TITLES.get(method, method)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def interleave_table(done):
    """Whether interleaving helps, at the fixed C and at the chosen C."""
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
    """A clause that lists where something is better, worse or not significantly different."""
    words = {"+": "better", "-": "worse", "": "no significant difference"}
    found = [f"{word} on {', '.join(places[sign])}" for sign, word in words.items() if places[sign]]
    return "; ".join(found)


def verdict(done, method, base):
    """The comparison of one method with another over all data sets and sizes."""
    places = {"+": [], "-": [], "": []}
    for name, size in ((name, size) for name in SETS for size in SIZES):
        pair = [values(done, "compare", name, size, which) for which in (method, base)]
        if min(map(len, pair)) == N_SPLITS:
            mark = significance(pair[0] - pair[1], name)
            sign = "" if not mark else "+" if pair[0].mean() > pair[1].mean() else "-"
            places[sign].append(f"{name} {size:g}{mark}")
    return f"- {TITLES.get(method, method)} against {TITLES.get(base, base)}: {said(places)}."


def summary(done):
    """The number of cells in which a learned code is better or worse than the random code."""
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
        f"Another {better} are better by signed ranks only, and {worse} are worse; the others do not differ "
        "significantly\nby either test."
    )


def interleave_verdict(done, kind):
    """The comparison of interleaving with none, and the number of runs that kept a later round."""
    places, later, total = {"+": [], "-": [], "": []}, 0, 0
    for name in INTERLEAVED:
        plain, rounds, kept = (values(done, kind, name, 1.5, method) for method in ("plain", "interleaved", "kept"))
        mark = significance(rounds - plain, name)
        places["" if not mark else "+" if rounds.mean() > plain.mean() else "-"].append(f"{name}{mark}")
        later, total = later + int((kept > 0).sum()), total + len(kept)
    return f"{said(places)}. A later round had the smallest objective and was kept in {later} of {total} runs."


def chosen_table(done):
    """The chosen values of C: median, smallest and largest over the splits."""
    lines = ["| data, norm | " + " | ".join(f"size {size:g}" for size in SIZES) + " |", "|---" * 4 + "|"]
    for name, norm in [(data, some) for data in SETS for some in SETS[data][3]]:
        chosen = [values(done, "compare", name, size, f"C of {norm}") for size in SIZES]
        cells = [f"{np.median(C):.2g} ({C.min():g} to {C.max():g})" for C in chosen]
        lines.append(f"| {name}, {NORM_TITLES[norm]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def at_an_end(done):
    """How many chosen values of C are at an end of the grid."""
    chosen = [v for key, run in done.items() if key.startswith("compare/") for n, v in run.items() if n[:4] == "C of"]
    return f"{sum(C in (GRID[0], GRID[-1]) for C in chosen)} of {len(chosen)}"


def write_page(done):
    """Write the page from the runs."""
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
`PYTHONPATH=benchmarks python benchmarks/reproduce_output_codes.py`. An interrupted command resumes where it stopped;
finished runs are in `benchmarks/results/output-codes.json`. The runs took {minutes:.0f} minutes of CPU time in total,
on one core of a busy machine:
{machine}.

**What is compared.** All methods share the binary classifiers of a random code (`OneVsAllClassifier`, C = 1) with
int(classes × size) columns, trained once per split. *random* decodes with that code by the inner product. *learned*
replaces the entries of the code by the minimiser of ‖M‖ + C · loss (l2: ½‖M‖² + C · loss), learned on 5-fold outputs to
a certified relative gap of 1e-3. *greedy* is the discrete code grown for the same classifiers. It is decoded by Hamming
distance, for which it is designed, and by the inner product.

**Relation to the paper.** Crammer and Singer (2002) propose these codes and report no accuracy. Their only experiment
is the run time of figure 5, [repeated here](four-quadrants.md). The data sets, sizes, grids and tests of this page are
ours, and neither confirm nor refute any result of the paper.

**C** is chosen by cross-validation on two halves of the training rows, to a gap of 1e-2. The search starts at a first
value (for size 0.4 and for larger codes: {starts})
and moves along a grid of 1 and 3 times powers of ten, up or else down, while the error falls. A noisy error can stop
the search early. The grid ranges from {low:g} to {high:g}; {ends} chosen values are at an end of it. The first
values were set after earlier runs on the same splits, including their test accuracies; the search itself uses only
training rows.

**How.** The tables show accuracy on held-out rows, mean ± standard deviation over 10 random splits (training and test
rows: {rows}).
‡ marks p < 0.05 against the random code by the corrected resampled t-test of Nadeau and Bengio, the planned test;
† marks p < 0.05 by Wilcoxon's signed ranks only. Signed ranks were added after the first results, when few cells had
passed the planned test; read † as a hint. They treat splits as independent, although training rows of two splits
overlap by up to 22 %. The planned test is strict here, because there are more test rows than training rows. Neither
test corrects for the number of comparisons.

There are few training rows because each linear program of l1 and l∞ takes seconds with 26 classes and 104 columns. On
all letters l1 and l∞ use 260 rows, 10 per class; the last table shows l2, which is fast, on 1,040 rows.

## Accuracy

{tables}

{summary}

Learned codes against the random code and against each other, and the greedy code, by the same tests:

{verdicts}

A greedy code consists of signs and counts signs of outputs. It discards the confidence of the classifiers, which the
inner product with the random code keeps.

Chosen values of C, median and range over the splits:

{chosen}

## Interleaving

`interleave={n_rounds}` retrains each column for the learned code and relearns the code, {n_rounds} times, and keeps the
round with the smallest objective. The runs use size 1.5 and l2. The first comparison uses C = 0.1 for all data sets.
The second was added after its results and uses the C that cross-validation chose for the code learned once.

{interleaved}

Interleaved against learned once, by the same tests:

{rounds}

`interleave=0` is the default.
"""


if __name__ == "__main__":
    time_needed = "From an empty cache this takes about 25 minutes of one core."
    parser = argparse.ArgumentParser(description=f"{__doc__.splitlines()[0]} {time_needed}")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after SECONDS; run again to resume")
    finished, complete = run(parser.parse_args().seconds)
    if complete:
        write_page(finished)
    else:
        print(f"{len(finished)} runs are done; run again to resume")
