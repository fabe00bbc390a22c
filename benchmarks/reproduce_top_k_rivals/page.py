"""The page: the method, the tables, and the verdict, which is computed from the tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from _common import write_text
from reproduce_top_k_rivals.methods import BASE, Method
from reproduce_top_k_rivals.paper import TABLE_1
from reproduce_top_k_rivals.problems import SILHOUETTES
from reproduce_top_k_rivals.runs import KS, NEAR_GAP, choose
from reproduce_top_k_rivals.tables import (
    CUT,
    EACH_COLUMN,
    ONE_MODEL,
    RULES,
    Results,
    accuracy_table,
    column_table,
    difference_table,
    mean_table,
    paper_difference,
    signed,
    stopped_table,
    study_table,
)

WIDTH = 120
STUDY_KS = (1, 2, 3, 5, 10)
FAR = 2.0  # points between our difference and the paper's that are reported
KEPT_MARGIN = 1.0  # points of top-1 accuracy that count as a loss

INTRODUCTION = """# Top-k SVMs and their rivals

This page repeats Table 1 of Lapin, Hein and Schiele, "Top-k Multiclass SVM" (2015), on {name}: {n_train:,} training,
{n_valid:,} validation and {n_test:,} test rows, {n_features} features, {n_classes} classes. One command writes it:
`make reproduce-top-k-rivals`, with `WIDEMARGIN_DATA` set to the data folder. An interrupted command resumes where it
stopped; finished fits are in `benchmarks/results/top-k-rivals.json`. Remove that file to measure again. The paper's
other data sets (MIT Indoor 67, SUN 397, Places 205 and ImageNet 2012, with features from neural networks) were not run.
"""

HOW = """## How

Accuracies are per cent of the test rows. Ties count by their expectation, so a model with zero weights has accuracy
k / {n_classes}, not 1. Features are 0/1 pixels; no method has an intercept. All problems are ½‖W‖² + C · (sum of
losses), with one slack instead of the sum for Recall@k; the paper's λ is 1/(C n). C is chosen on the validation rows
from the powers of ten from 1e-5 to 1e3. The grid is extended while the best value is at an edge. One-vs-all and top-k
SVMs then try half a power on either side of the best. The paper does not say which accuracy chose C, so there are two
rules: **one model** per method, by its top-1 accuracy, and **each column** with its own C, by the accuracy of that
column. Models are trained on the training rows only, not on the validation rows.

SVM one-vs-all uses the squared hinge. TopPush and Recall@k use the reduction to one binary problem, as in the paper for
this data. Recall@k is the structural SVM over labellings with at most k · {n_train:,} positives, the constraints of
SVM-perf, solved by our own solver. Its grid is 1e-7 to 1e-4, since ξ counts all rows at once. The grid of TopPush ends
at 0.1. Larger C takes longer than the limits below allow. W++, Q/256 is our `Wsabie` with an embedding of size 256,
which skips a violator that is among the last Q of the class. This is our reading of Gupta, Bengio and Weston (2014),
whose Table 3, the pseudocode that the paper implements, was not available. Its learning rate is chosen after 3 epochs
from 0.01, 0.1, 1 and beyond; the number of epochs is then doubled, up to 24, while top-1 accuracy on the validation
rows grows. One seed was used. The tolerance is a certified relative gap of 1e-3. A fit in the search may take 30 s of
CPU time (Recall@k 40, TopPush 60). The limit is lower for large C: 10 s for C ≥ 0.1 (one-vs-all C ≥ 10), and 5 s for
Recall@k with C ≥ 1e-4. A fit checks its time between passes, so some fits take longer. A stopped fit does not solve its
problem and is not chosen. If a stopped fit with a gap below 0.1 has the best top-1 accuracy on the validation rows, it
is repeated with up to 300 s, and is chosen if it converges. The last section lists the fits that did not converge, with
their certificates.

Times are CPU seconds of one fit from a cold start at the chosen C, on one thread of a shared machine. The fits of
Recall@k, TopPush and W++ with Q > 0 are newer than the others, whose solvers have not changed since. All times were
measured on the same machine, but not at the same time.
"""

CLAIM = """## The claim over {n_splits} splits

The paper claims that top-k losses gain top-5 and top-10 accuracy over k = 1 (2.5 to 3.4 points on this data in its
table) while β keeps the top-1 accuracy. Here the rows of all three parts are split again at random, {n_splits} times,
into parts of the same sizes with the classes in proportion. C is chosen on the validation rows of each split from
0.00316, 0.01, 0.0316; the grid is extended in half powers of ten while the best value is at an edge. Differences are
paired: test accuracy minus that of the top-1 SVM on the same split. The tables show the mean ± half width of the 95 %
interval by Student's t with {freedom} degrees of freedom. In brackets is the half width corrected for the rows that
splits share (Nadeau and Bengio, 2003), which is stricter.
"""

LEVEL = """Accuracies differ from the paper's: the top-1 SVM has a top-1 accuracy of {ours:.2f} here and {theirs:.2f} in
the paper, {points:.1f} points {side}. The paper's split is not available; this one has {n_train:,} training rows, the
paper's has 4,100. The paper takes its features from earlier work, and they may differ from these pixels. It does not
say how C was chosen or whether the validation rows were used for training. Compare methods with each other, and
differences with the paper's differences, not accuracies with the paper's accuracies.
"""

CUT_TEXT = """{cut} A time limit may have changed the choice: no fit finished, or a stopped fit is better on the
validation rows than the one shown, or a stopped fit has the next smaller or larger C and a relative gap above {near:g}.
The numbers are those of the best finished fit, if any. They are not a fair comparison and are not ranked.
"""

FAR_TEXT = """These differences are more than {far:g} points from the paper's in top-1, 5 or 10. Possible reasons are a
different split, different solvers and, for W++, a different implementation. The convex problems are solved to certified
accuracy here.
"""

OTHER = """## {name}

{n_train:,} training, {n_valid:,} validation and {n_test:,} test rows, {n_features:,} features, {n_classes} classes;
one-vs-all and top-k SVMs, as above. There is only one split, so differences below one point may be chance.
"""

STOPPED = """These fits stopped at the limit of CPU time; their certificates say how far they got. None of them was
chosen, unless no fit of the method finished; the tables show this as "stopped". A stopped fit that is better on the
validation rows than the chosen one does not imply that the solution of its problem is better.
"""


def write_page(path: Path, results: Results, others: Sequence[Results], machine: str) -> Path:
    """Assemble and write the page."""
    problem, n_splits = results.problem, len(next(iter(results.study.values())))
    n_train, n_valid, n_test = problem.sizes
    words = {"name": problem.name, "n_train": n_train, "n_valid": n_valid, "n_test": n_test}
    words |= {"n_features": problem.X.shape[1], "n_classes": problem.n_classes}
    words |= {"n_splits": n_splits, "freedom": n_splits - 1}
    sections = [
        INTRODUCTION.format(**words),
        f"Machine: {machine}.",
        "## In short",
        summary(results),
        HOW.format(**words),
        "## One model per method",
        *level(results),
        accuracy_table(results),
        *left_out(results),
        *cut_text(results),
        "Differences from the top-1 SVM, in brackets those of the paper's table, whose split is not available:",
        difference_table(results, ONE_MODEL),
        disagreement(results),
        "## C chosen for each column",
        column_table(results),
        "Differences from the top-1 SVM, in brackets the paper's:",
        difference_table(results, EACH_COLUMN),
        CLAIM.format(**words),
        *(text for rule in RULES for text in (f"### {rule.capitalize()}", *study_sections(results, rule))),
        unfinished_line(results),
        *(text for other in others for text in other_sections(other)),
        "## Where fits were stopped",
        STOPPED,
        stopped_table([results, *others]),
    ]
    paragraphs = "\n\n".join(section.strip() for section in sections).split("\n\n")
    write_text(path, "\n\n".join(map(_filled, paragraphs)) + "\n")
    return path


def disagreement(results: Results) -> str:
    """Differences from k = 1 that are far from the paper's."""
    lines = []
    for method in results.methods:
        theirs = paper_difference(method.name)
        if theirs is None or results.problem.name != SILHOUETTES or method.name == BASE or results.is_cut(method.name):
            continue
        ours = np.subtract(results.row(method.name, ONE_MODEL), results.row(BASE, ONE_MODEL))
        far = [place for place, k in enumerate(KS) if k in (1, 5, 10) and abs(ours[place] - theirs[place]) > FAR]
        if far:
            parts = [f"top-{KS[place]} {signed(ours[place])}, not {signed(theirs[place])}" for place in far]
            lines.append(f"- {method.label}: {'; '.join(parts)}")
    if not lines:
        return f"None of these differences in top-1, 5 and 10 is more than {FAR:g} points from the paper's."
    return f"{FAR_TEXT.format(far=FAR).strip()}\n\n" + "\n".join(lines)


def level(results: Results) -> list[str]:
    """The distance of our accuracies from the paper's."""
    if results.problem.name != SILHOUETTES:
        return []
    ours, theirs = results.row(BASE, ONE_MODEL)[0], TABLE_1[BASE][0]
    side = "lower" if ours < theirs else "higher"
    return [
        LEVEL.format(ours=ours, theirs=theirs, points=abs(ours - theirs), side=side, n_train=results.problem.sizes[0])
    ]


def cut_text(results: Results) -> list[str]:
    """The meaning of the mark, if it is used."""
    return (
        [CUT_TEXT.format(cut=CUT, near=NEAR_GAP)]
        if any(results.is_cut(method.name) for method in results.methods)
        else []
    )


def left_out(results: Results) -> list[str]:
    """The methods that are missing in the table."""
    names = ", ".join(method.label for method in results.unfinished)
    return [f"Not finished, and left out: {names}."] if names else []


def other_sections(results: Results) -> list[str]:
    """The table of another problem."""
    n_train, n_valid, n_test = results.problem.sizes
    words = {"name": results.problem.name, "n_train": n_train, "n_valid": n_valid, "n_test": n_test}
    words |= {"n_features": results.problem.X.shape[1], "n_classes": results.problem.n_classes}
    text, differences = OTHER.format(**words), "Differences from the top-1 SVM, C for each column:"
    return [
        text,
        accuracy_table(results),
        *left_out(results),
        *cut_text(results),
        differences,
        difference_table(results, EACH_COLUMN),
    ]


def study_sections(results: Results, rule: str) -> list[str]:
    """Differences and the underlying accuracies by one rule."""
    return [study_table(results, rule, STUDY_KS), "Means ± standard deviations over the splits:",
            mean_table(results, rule)]  # fmt: skip


def unfinished_line(results: Results) -> str:
    """How many of the chosen models were stopped."""
    chosen = [choose(fits, k) for splits in results.study.values() for fits in splits for k in STUDY_KS]
    gaps = [fit.gap for fit in chosen if not fit.converged]
    worst = f", with a relative gap of at most {max(gaps):.1e}" if gaps else ""
    return f"Of the {len(chosen)} models chosen for these tables, {len(gaps)} were stopped{worst}."


def summary(results: Results) -> str:
    """The verdict on the claim, and the best rival."""
    losses = [method for method in results.studied if method.name != BASE]
    lines = [f"- {text}" for text in level_line(results)]
    lines += [f"- {gain_line(results, losses, k)}" for k in (5, 10)]
    lines += [f"- {top_1_line(results, losses, loss)}" for loss in ("beta", "alpha")]
    lines += [f"- {rival_line(results, k)}" for k in (1, 5, 10)]
    if cut := ", ".join(method.label for method in results.methods if results.is_cut(method.name)):
        lines.append(f"- Not ranked, because time limits cut their search for C: {cut}.")
    return "\n".join(lines)


def level_line(results: Results) -> list[str]:
    """The distance from the paper's accuracies in one line."""
    if results.problem.name != SILHOUETTES:
        return []
    difference = results.row(BASE, ONE_MODEL)[0] - TABLE_1[BASE][0]
    text = f"Top-1 accuracy of the top-1 SVM, ours minus the paper's: {signed(difference)} points, on another split."
    return [f"{text} This page compares differences between methods, not absolute accuracies."]


def gain_line(results: Results, losses: list[Method], k: int) -> str:
    """Whether top-k losses gain top-k accuracy."""
    found = [(m, rule, results.difference(m.name, k, rule)) for m in losses for rule in RULES]
    means = [each.mean for *_, each in found]
    above, strictly = (sum(getattr(each, name) > 0 for *_, each in found) for name in ("sign", "sign_corrected"))
    below = sum(each.sign < 0 for *_, each in found)
    verdict = "confirmed" if above == len(found) else "refuted" if above == 0 else "partly confirmed"
    return (
        f"Top-{k} accuracy, gain over k = 1: **{verdict}**. {signed(min(means))} to {signed(max(means))} points for "
        f"{len(losses)} losses and both rules; the 95 % interval is above 0 in {above} of {len(found)} cases, the "
        f"corrected one in {strictly}, below 0 in {below}."
    )


def top_1_line(results: Results, losses: list[Method], loss: str) -> str:
    """Whether the top-1 accuracy is kept."""
    parts = []
    for method in (m for m in losses if m.name.endswith(loss)):
        found = results.difference(method.name, 1, ONE_MODEL)
        verdict = "lost" if found.sign < 0 else "gained" if found.sign > 0 else "kept"
        if verdict == "kept" and found.mean - found.half < -KEPT_MARGIN:
            verdict = f"no clear loss, but a loss of {KEPT_MARGIN:g} point is not ruled out"
        parts.append(f"{method.label} {signed(found.mean)} ± {found.half:.2f} ({verdict})")
    return f"Top-1 accuracy, difference from k = 1: {', '.join(parts)}."


def rival_line(results: Results, k: int) -> str:
    """The best top-k SVM and the best rival in a column, without methods whose search was cut, on the given split."""
    accuracies = {m.name: dict(zip(KS, results.row(m.name, EACH_COLUMN), strict=True)) for m in results.methods}
    labels = {m.name: m.label for m in results.methods}
    names = [m.name for m in results.studied]
    ranked = [name for name in labels if not results.is_cut(name)]
    ours, rivals = ([name for name in ranked if (name in names) == own] for own in (True, False))
    parts = []
    for group, text in ((ours, "the best top-k SVM is"), (rivals, "the best rival is")):
        best = max(group, key=lambda name: accuracies[name][k], default=None)
        parts.append(f"{text} {'none' if best is None else f'{labels[best]} with {accuracies[best][k]:.2f}'}")
    return (
        f"Top-{k} accuracy on the given split, C for each column: {', '.join(parts)}; "
        f"the top-1 SVM has {accuracies[BASE][k]:.2f}."
    )


def _filled(paragraph: str) -> str:
    """Wrap plain text and lists; leave headings and tables unchanged."""
    if paragraph.startswith(("#", "|")):
        return paragraph
    if paragraph.startswith("- "):
        return "\n".join(
            textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for line in paragraph.splitlines()
        )
    return textwrap.fill(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
