"""The page of the reproduction: the method, where orthogonal transfer wins and where it does not, the tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from _common import write_text
from reproduce_orthogonal_transfer import paper
from reproduce_orthogonal_transfer.cells import (
    COMMON,
    EPSILON,
    OTHER_SPLITS,
    PUBLISHED,
    PUBLISHED_ITERATIONS,
    PUBLISHED_SPLITS,
    RIVAL,
    TUNED,
    TUNED_VARIANTS,
    Results,
)
from reproduce_orthogonal_transfer.methods import VARIANTS
from reproduce_orthogonal_transfer.paired import LEVEL
from reproduce_orthogonal_transfer.tables import (
    ORTHOGONAL,
    alpha_table,
    changes_with_C,
    comparison,
    leads,
    other_C_table,
    paired_table,
    published_table,
    result_table,
    rival_table,
    share_table,
    signed,
    sizes_table,
    verdicts,
)
from reproduce_orthogonal_transfer.tasks import CATEGORIES, SUFFIX, Task

WIDTH = 120
PAPER_SPLITS = 50

INTRODUCTION = """# Orthogonal transfer: the paper's tables

This page repeats tables 2–8 of Zhou, Xiao & Wu, "Hierarchical classification via orthogonal transfer" (ICML 2011;
MSR-TR-2011-54). One command writes the page and its figure:

    WIDEMARGIN_DATA=data PYTHONPATH=benchmarks python -m reproduce_orthogonal_transfer --splits {n_splits}

**{n_splits} random splits here, {paper_splits} in the paper.** The same solver trains all methods to a certified
`decrease_gap`, with rows of unit length and no intercept. A section below covers the paper's own algorithm."""

DATA = """## Data

The rows come from rcv1v2-subsets, not from the LYRL2004 split. Compare methods with each other and differences with the
paper's differences, not absolute numbers. A task is the subtree below a top category, with the rows that have exactly
one label path inside it. The "hierarchical" tasks leave out first-level categories without children. A split draws as
many training rows as the task has in the standard split of rcv1v2-subsets, about half of all rows. The paper trained on
3 % of its rows, about as many rows as here, and tested on many more.

Only children are merged into their parents (C1511, C331, C411, E121, E411), and M143, which has no rows in this data,
is left out. The paper does not mention this step. After it, the numbers of nodes and leaves match the paper's (except
for M143 and one node of CCAT), the trees have two levels, and α = 1 is positive definite, as the paper says. Without
it, CCAT has three levels and α = 1 is not positive definite (last section). Rows of the missing M143 are labelled M14
here. Any prediction below M14 counts as correct for them, so MCAT is easier than in the paper.

A prediction below an inner label is correct (0/1 error) and costs nothing (tree loss: half the number of edges between
label and prediction). Micro-F1 of one prediction per row is 100 minus the 0/1 error. "Flat" and "tree-loss, leaves" can
only train on rows labelled with leaves. "Tree-loss, all nodes" is the paper's formula: inner nodes compete in training
and may be predicted. "α = 0" is orthogonal transfer without its coupling; only the larger weight of upper nodes
remains. "α = 0" and "tree-loss, leaves" are not in the paper."""

COMMON_TEXT = """## The paper's C for all methods

C = 1 in the paper's form (each loss has cost C/N; per-node training divides C by the number of rows that pass the
parent, `node_scaling="paper"`), and α = 1 where the table above says so. Values are per cent, mean ± standard deviation
over {n_splits} random splits; the smallest mean of each column is in bold."""

OTHER_C_TEXT = """### Larger common values of C

The paper: "We also tried different values of C varying from 1 to 100, but didn't observe significant differences in the
results." {verdict} The table shows the 0/1 error with C = 1 / 10 / 100, mean over the first {n_few} splits:"""

SHARE_TEXT = """### Why per-node training is so far from the paper

With C = 1, the error of per-node training is up to {most:.0f} points above the paper's; on CCAT it is further from the
paper than any other method. Neither the solver nor the splits are the cause: on the same rows the paper's own algorithm
gives mean errors within {within:.1f} points of these (next section), and the standard deviation over the splits is at
most {spread:.1f} points. The cause is C. With so small a cost the weights stay close to differences of class means, and
the largest child of the root wins more rows than it has. With C = 100 the published error is reached on {at_100} of
{n_tasks} tasks, with C = 1,000 on {at_1000}. The paper does not say whether it divided C by something other than the
number of rows of a node for this method, or whether its class proportions differ (its rows are all LYRL2004 documents,
these are a subset). Per cent, mean over the first {n_few} splits:"""

PUBLISHED_TEXT = """### Algorithm 1 as published

The paper trains all five methods by regularised dual averaging. It stops when the best objective and a lower bound, an
average over all iterations, differ by ε. The paper does not state ε. Here ε = {epsilon:g} (the objective at zero
weights is 1, except for per-node and tree-loss training), with at most {iterations} iterations of one pass over the
rows each, C = 1 and the first {n_few} splits. {verdict}"""

TUNED_TEXT = """## C and α tuned for every method

C is chosen by {n_folds}-fold cross-validation of the 0/1 error on the training rows of each split, with the same folds
for all methods. The search starts with C = {first} and continues by factors of {factor:g} until the best value has a
neighbour on each side. It then tries half a step towards the better side. Per-node training uses C/N like the other
methods. α is {shares} of α*. Fits of the cross-validation start from the nearest C and stop at a `decrease_gap` of
{cv_tol:g}, final fits at {tol:g}."""

PAIRED_TEXT = """Differences are in points; negative means orthogonal transfer is better. In brackets is the p-value of
the corrected resampled t-test (Nadeau & Bengio 2003), in bold below {level:g}. This test allows for splits that share
rows, and is strict when n_test/n_train is near 1. A star marks p-values below {level:g} by the plain paired t-test,
which treats the splits as independent. The paper used a t-test at {level:g}."""

RIVAL_TEXT = """## hiclass on the same splits

`LocalClassifierPerParentNode` trains scikit-learn's `LinearSVC` (squared hinge, one-vs-rest, no intercept, tol 1e-4) at
each inner node, on the same rows in the same run. Its C multiplies the sum of losses. It is 1, or chosen by the same
search starting with 1 and 10. The other two methods use the paper's C (C/N for each row), and their fits stop at a
certified `decrease_gap` of {tol:g}. CPU seconds are for one fit on all training rows at the chosen C, with one thread.
`LocalClassifierPerNode` needs probabilities, which LinearSVC does not provide. At large C, LIBLINEAR sometimes stops at
its limit of 1,000 iterations with a warning; it runs with its defaults."""

GIVEN_TEXT = """## The trees as given

These trees keep only children and the empty M143. CCAT has three levels here, so α with C = 1 is 0.9 α*. Rows labelled
just above an only child have inner labels, and flat training cannot use them."""


def write_page(
    path: Path, results: Results, tasks: Sequence[Task], as_given: Sequence[Task], machine: str, with_rival: bool
) -> None:
    """Assemble and write the page."""
    settings = results.settings
    words = vars(settings) | {"level": LEVEL, "first": " and ".join(f"{C:,.0f}" for C in settings.first)}
    words["shares"] = ", ".join(f"{share:g}" for share in settings.shares[:-1]) + f" or {settings.shares[-1]:g}"
    few = min(PUBLISHED_SPLITS, settings.n_splits)
    sections = [
        INTRODUCTION.format(n_splits=settings.n_splits, paper_splits=PAPER_SPLITS),
        machine,
        summary(results, tasks, with_rival),
        "![0/1 error by method and task](orthogonal-transfer/errors.svg)",
        DATA,
        sizes_table(tasks),
        COMMON_TEXT.format(**words),
        *setting_sections(results, tasks, COMMON, PAIRED_TEXT.format(**words)),
        OTHER_C_TEXT.format(n_few=min(OTHER_SPLITS, settings.n_splits), verdict=C_verdict(results, tasks)),
        other_C_table(results, tasks),
        share_text(results, tasks, few),
        share_table(results, tasks),
        published_text(results, tasks, few),
        published_table(results, tasks),
        TUNED_TEXT.format(**words),
        *setting_sections(results, tasks, TUNED, ""),
        "Number of splits that chose each α:",
        alpha_table(results, tasks),
        *([RIVAL_TEXT.format(**words), rival_table(results, tasks)] if with_rival else []),
        costs(results),
        *given_sections(results, as_given),
    ]
    paragraphs = "\n\n".join(section for section in sections if section).split("\n\n")
    write_text(path, "\n\n".join(map(_filled, paragraphs)) + "\n")


def _filled(paragraph: str) -> str:
    """Wrap plain text; leave headings, tables, lists, images and code unchanged."""
    if paragraph.startswith(("#", "|", "- ", "!", "    ")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def setting_sections(results: Results, tasks: Sequence[Task], setting: str, explain: str) -> list[str]:
    """The tables of a setting, one per task, and its paired tests."""
    sections = []
    for task in tasks:
        table = f" (table {paper.TABLE_OF_TASK[task.name]})" if task.name in paper.TABLE_OF_TASK else ""
        sections += [f"### {task.name}{table}, {_words(setting)}", result_table(results, task, setting)]
    sections += [f"### Orthogonal transfer against each rival, {_words(setting)}", explain]
    for metric, name in (("error", "0/1 error:"), ("tree_loss", "Tree loss:")):
        sections += [name, paired_table(results, tasks, setting, metric)]
    return sections


def _words(setting: str) -> str:
    return "C = 1" if setting == COMMON else "tuned"


def summary(results: Results, tasks: Sequence[Task], with_rival: bool) -> str:
    """The main findings, computed from the tables."""
    chosen = [np.median(results.column(t.name, name, TUNED, "C")) for t in tasks for name in TUNED_VARIANTS]
    common, tuned = (leads(results, tasks, setting, "error") for setting in (COMMON, TUNED))
    first = (
        f"Of the five published methods, orthogonal transfer has the smallest mean 0/1 error on {len(common)} of "
        f"{len(tasks)} tasks with the paper's C = 1 (5 of 6 in the paper), by up to {max(common, default=0.0):.2f} "
        f"points, and on {len(tuned)} of {len(tasks)} tasks when C and α are tuned for every method, by up to "
        f"{max(tuned, default=0.0):.2f} points. C = 1 is far too small for all methods: the median of the chosen C "
        f"is between {min(chosen):,.0f} and {max(chosen):,.0f}."
    )
    lines = [
        "## In short",
        first,
        f"By 0/1 error and the corrected test at level {LEVEL:g}, orthogonal transfer with C = 1 is",
        "\n".join(verdicts(results, tasks, COMMON, "error")),
        "and with C and α tuned",
        "\n".join(verdicts(results, tasks, TUNED, "error")),
        details(results, tasks),
        "The paper's claims about orthogonal transfer with C = 1:",
        claims(results, tasks),
    ]
    return "\n\n".join([*lines, *([rival_line(results, tasks)] if with_rival else [])])


def claims(results: Results, tasks: Sequence[Task]) -> str:
    """The claims of the paper's section 6, each checked by the corrected test."""
    lines = []
    for words, of in (
        ("better than the other four on CCAT and MCAT", ("CCAT", "MCAT")),
        ("better than the other four on the hierarchical subsets", tuple(f"{name}{SUFFIX}" for name in CATEGORIES)),
    ):
        found = {
            (task.name, name): comparison(results, task, name, COMMON, "error").verdict
            for task in tasks
            if task.name in of
            for name, variant in VARIANTS.items()
            if variant.published and name != ORTHOGONAL
        }
        wins, losses = (sum(verdict == sign for verdict in found.values()) for sign in (-1, 1))
        word = "confirmed" if wins == len(found) else "refuted" if losses else "not confirmed"
        lines.append(
            f"- {words}: {word}; clearly better in {wins} of {len(found)} comparisons, clearly worse in {losses}"
        )
    verdict = C_verdict(results, tasks)
    lines.append(f"- C between 1 and 100 makes no significant difference: {verdict[0].lower()}{verdict[1:-1]}")
    lines.append(
        "- α = 1 makes the comparison matrices positive definite: confirmed once only children are merged into their "
        "parents; refuted for CCAT as given, which has three levels"
    )
    return "\n".join(lines)


def C_verdict(results: Results, tasks: Sequence[Task]) -> str:
    """Whether the table of larger C supports the paper's claim, by the paper's kind of test."""
    found = changes_with_C(results, tasks)
    clear = [each for each in found if each.p_plain < LEVEL]
    if not clear:
        return "Confirmed here."
    sizes = [abs(each.difference) for each in clear]
    return (
        f"Refuted here: from C = 1 to 100 the error of the published methods changes significantly (paired t-test at "
        f"{LEVEL:g}) in {len(clear)} of {len(found)} cells, by {min(sizes):.1f} to {max(sizes):.1f} points."
    )


def share_text(results: Results, tasks: Sequence[Task], n_few: int) -> str:
    """Why the errors of per-node training differ from the paper's."""
    known = [task for task in tasks if task.name in paper.RESULTS]
    errors = [results.column(task.name, "per-node", COMMON, "error") for task in known]
    published = [paper.RESULTS[task.name]["per-node"].error for task in known]
    reached = {
        C: sum(
            np.mean(results.column(task.name, "per-node", f"share-{C}", "error")) <= error
            for task, error in zip(known, published, strict=True)
        )
        for C in (100, 1000)
    }
    differences = [
        np.mean(published_errors) - np.mean(certified[: len(published_errors)])
        for published_errors, certified in (
            (results.column(task.name, "per-node", PUBLISHED, "error"), errors_of)
            for task, errors_of in zip(known, errors, strict=True)
        )
    ]
    return SHARE_TEXT.format(
        within=np.abs(differences).max(initial=0.0),
        most=max((np.mean(e) - p for e, p in zip(errors, published, strict=True)), default=0.0),
        spread=max((np.std(e, ddof=1) for e in errors), default=0.0),
        at_100=reached[100],
        at_1000=reached[1000],
        n_tasks=len(known),
        n_few=n_few,
    )


def published_text(results: Results, tasks: Sequence[Task], n_few: int) -> str:
    """Results of Algorithm 1."""
    by_method = {name: [] for name, variant in VARIANTS.items() if variant.published}
    differences, seconds = [], []
    for task in tasks:
        for name, stops in by_method.items():
            cells, certified = results.cells[task.name, name, PUBLISHED], results.cells[task.name, name, COMMON]
            stops += [cell["stopped"] for cell in cells]
            differences += [cell["error"] - other["error"] for cell, other in zip(cells, certified, strict=False)]
            seconds += [cell["cpu_s"] / other["cpu_s"] for cell, other in zip(cells, certified, strict=False)]
    stopped = ", ".join(f"{VARIANTS[name].method} {sum(stops)} of {len(stops)}" for name, stops in by_method.items())
    verdict = (
        f"Fits that reached the stopping rule: {stopped}. When the modulus of strong convexity is small, as for "
        "orthogonal transfer and tree-loss training, the first iterates are far from the solution and the average "
        "never forgets them. The weights can be good nevertheless: the 0/1 errors differ from those of the certified "
        f"fits by {signed(min(differences))} to {signed(max(differences))} points. The CPU time is "
        f"{min(seconds):.0f} to {max(seconds):.0f} times that of the certified fit, median {np.median(seconds):.0f}."
    )
    return PUBLISHED_TEXT.format(epsilon=EPSILON, iterations=PUBLISHED_ITERATIONS, n_few=n_few, verdict=verdict)


def span(results: Results, tasks: Sequence[Task], rival: str, setting: str, metric: str) -> str:
    """Describe the differences between orthogonal transfer and a rival over the tasks."""
    found = [comparison(results, task, rival, setting, metric) for task in tasks]
    low, high = min(each.difference for each in found), max(each.difference for each in found)
    better, worse = (sum(each.verdict == verdict for each in found) for verdict in (-1, 1))
    return f"{signed(low)} to {signed(high)} points (clearly better on {better} tasks, clearly worse on {worse})"


def details(results: Results, tasks: Sequence[Task]) -> str:
    """The effect of orthogonality itself, and the limits of flat training."""
    common, tuned = (span(results, tasks, "uncoupled", setting, "error") for setting in (COMMON, TUNED))
    leaves = span(results, tasks, "flat", TUNED, "leaf_error")
    return (
        f"Compared with the same model without orthogonality (α = 0), the error changes by {common} with C = 1, and by "
        f"{tuned} when both are tuned.\n\n"
        f"Flat training cannot use rows labelled with inner nodes. On test rows labelled with leaves, with both "
        f"methods tuned, the error of orthogonal transfer minus that of flat training is {leaves}."
    )


def rival_line(results: Results, tasks: Sequence[Task]) -> str:
    """Errors and times of hiclass relative to ours."""
    medians = {
        name: [np.median(results.column(task.name, name, TUNED, "cpu_s")) for task in tasks]
        for name in (RIVAL, "per-node", ORTHOGONAL)
    }
    ratios = {name: np.divide(medians[RIVAL], medians[name]) for name in ("per-node", ORTHOGONAL)}
    errors = [
        np.mean(results.column(task.name, RIVAL, TUNED, "error"))
        - np.mean(results.column(task.name, name, TUNED, "error"))
        for task in tasks
        for name in ratios
    ]
    per_node, orthogonal = (f"{ratio.min():.1f} to {ratio.max():.1f}" for ratio in ratios.values())
    return (
        f"The error of tuned hiclass with LinearSVC differs by {signed(min(errors))} to {signed(max(errors))} points "
        f"from those of per-node training and orthogonal transfer. Its fit takes {per_node} times the CPU time of "
        f"per-node training and {orthogonal} times that of orthogonal transfer."
    )


def costs(results: Results) -> str:
    """Certificates, limits of the search, and CPU time by method."""
    fits = [cell for cells in results.cells.values() for cell in cells if "gap" in cell]
    searches = [(key[1], cell) for key, cells in results.cells.items() for cell in cells if "at_limit" in cell]
    at_limit = sum(cell["at_limit"] for _, cell in searches)
    n_tried = [cell["n_tried"] for _, cell in searches]
    unfinished = sum(cell["status"] != "CONVERGED" for cell in fits)
    seconds = {name: sum(cell["cv_s"] for key, cell in searches if key == name) for name in TUNED_VARIANTS}
    times = ", ".join(f"{VARIANTS[name].label} {total:.0f}" for name, total in seconds.items())
    (low, high), (rival_low, rival_high) = results.settings.limits, results.settings.rival_limits
    return (
        "## Certificates and cost\n\n"
        f"The largest `decrease_gap` of the {len(fits):,} final fits is {max(cell['gap'] for cell in fits):.2e}; "
        f"{unfinished} stopped before their tolerance. The best C was at a limit of the search ({low:g} and {high:g}; "
        f"for LinearSVC {rival_low:g} and {rival_high:g}) in {at_limit} of {len(searches)} searches. Each search tried "
        f"{min(n_tried)} to {max(n_tried)} values. CPU seconds of cross-validation over all tasks and splits: {times}."
    )


def given_sections(results: Results, tasks: Sequence[Task]) -> list[str]:
    """Results on the trees as given in the data."""
    if not tasks:
        return []
    sections = [GIVEN_TEXT, sizes_table(tasks)]
    for task in tasks:
        for setting in (COMMON, TUNED):
            table = result_table(results, task, setting, with_paper=False)
            sections += [f"### {task.name}, {_words(setting)}", table]
    lines = ["With C = 1 orthogonal transfer is", "\n".join(verdicts(results, tasks, COMMON, "error"))]
    lines += ["and with C and α tuned", "\n".join(verdicts(results, tasks, TUNED, "error"))]
    return [*sections, *lines]
