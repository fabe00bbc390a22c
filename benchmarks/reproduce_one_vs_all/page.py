"""The page of the reproduction: figures with the paper's statements about them, and tables next to the paper's."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from _common import format_table, write_text
from reproduce_one_vs_all import paper
from reproduce_one_vs_all.claims import CLAIMS, TABLE_CLAIMS, Claim
from reproduce_one_vs_all.runs import OPTIMUM_TOL, PRUNE, STARTS, Outcome
from reproduce_one_vs_all.studies import Comparison, Study

INTRODUCTION = """# One-vs-all: the paper's figures and tables

This page repeats the experiments of Schultheis & Babbar, "Speeding-up one-versus-all training for extreme
classification via mean-separating initialization", Machine Learning 111, 2022. The method is the published one; the
data differ. This command writes the page and its figures:

    WIDEMARGIN_DATA=data make reproduce-one-vs-all

**Method.** Every start is followed by truncated Newton with the squared hinge or logistic loss, C = 1, rows of unit
length and one thread. Only the gradient rule (12)–(13) with ε₀ = 0.01 stops it (`gap_tol=None`). The preconditioner
(α = 0.01), the backtracking by halves (η = 0.01) and the CG tolerance (ε = 0.5 throughout) are as published. The last
needs `tighten_cg=False`: by default this library tightens CG for a label once a full step has been rejected.

Differences from the paper:

- CG tolerance. The paper gives ε = 0.5 and refers to LIBLINEAR, which applies it to the decrease of the quadratic
  model and tightens it with the absolute size of the gradient. Here CG stops when the norm of its residual is at most
  min(0.5, sqrt(‖∇L‖ / s)) ‖∇L‖, s = ‖∇L(0)‖ max(1, min(P, N)) / n, or a quarter of the gradient rule's bound. CG may
  take 20 steps per variable (LIBLINEAR: 1), and the line search 100 halvings (LIBLINEAR: 20).
- Intercept. It is not regularised here. In the paper's formulas it is the weight of a constant feature, regularised
  like the other weights.
- Data. None of the paper's sets was run: Eurlex-4K, Wiki10-31K, AmazonCat-13K and -14K, WikiSeeAlsoTitles-350K,
  WikiTitles-500K, Amazon-670K, WikiLSHTC-325K, Delicious-200K, Amazon-3M, and the dense features of Slice. The sets
  here are smaller. Compare ratios and shapes, not absolute numbers.
- Machine. The runs used one thread of a small shared machine instead of 128 cores.

"Bias" in the paper's main figures and tables is bias −2 here, "OvAP" is the loose variant, and "MSI" has s = 1 and
t = −2 (−3 for the logistic loss). "Subspace" is our own start: the optimum in the span of the mean rows and the
intercept."""

READING = """Curves over iterations show the mean over the labels still running, as in the paper, with the 95 % band of
the mean. They stop when fewer than five labels run. The mean objective can rise when labels with a low objective
finish; the third row of figure 1 keeps finished labels at their last objective. Curves over the number of positives
show means and 5–95 % quantiles in log₂ bins.

The paper's statements follow each figure, with the numbers measured here; `yes` and `no` are computed from these
numbers. The paper's words have fixed thresholds: an order of magnitude is a factor of 10; "much", "drastically" and
"clearly" mean a factor of 2; "significantly" means 10 %; "slightly" and "almost constant" allow a change of 10 %,
"roughly the same" of 25 %; "very sparse" and "minute" are at most 0.1, "sparse" is less than 0.5; "substantial" or
"significant" progress is 10 % of the objective; "approximately" is 10 of 11, "very rarely" at most 5 % of the labels;
"most" is more than half. The tail is the rarest quarter of the labels, the head the most frequent quarter."""


NOTES = {
    "figure-02": """e(δ; m₀) of eq. (17), computed from this library's loss and derivatives, where φ''(1) = 0 as in
eq. (19).""",
    "figure-05": """The paper draws a sketch; this figure measures it. Upper row: the scores of each label's mean
positive and mean negative row at the optimum. Lower row: the share of each label's negative rows that the MSI start
scores below −1, so that they do not enter the first Hessian.""",
}


def write_page(
    path: Path, studies: list[Study], dense: list[Study], comparisons: list[Comparison], machine: str
) -> None:
    """Assemble and write the page."""
    every = [*studies, *dense]
    sections = [
        INTRODUCTION,
        machine,
        data_table(every),
        summary(studies, dense),
        "## Figures",
        READING,
        *(figure_section(name, studies) for name in CLAIMS),
        "## Tables",
        table_1(studies, dense),
        table_2(studies),
        table_3(studies),
        table_4(studies, dense),
        steps_table(studies),
        agreement(comparisons),
    ]
    write_text(path, "\n\n".join(section for section in sections if section) + "\n")


def data_table(studies: list[Study]) -> str:
    """Sizes of the problems."""
    columns = ["data set", "rows", "features", "labels", "with the logistic loss", "positives per label"]
    rows = [
        [
            study.name,
            f"{study.n_rows:,}",
            f"{study.n_features:,}",
            _labels(study),
            str(study.n_logistic or "–"),
            f"{study.n_positives.min()}–{study.n_positives.max():,}",
        ]
        for study in studies
    ]
    return format_table(columns, rows)


def _labels(study: Study) -> str:
    """Number of labels; for a sample, also the number it was drawn from."""
    n = len(study.n_positives)
    return f"{n} of {study.n_all_labels:,}" if study.n_all_labels > n else str(n)


def summary(studies: list[Study], dense: list[Study]) -> str:
    """How many of the paper's statements hold, and which ones do not."""
    places = [(paper.FIGURES[name].split(":")[0], claims, studies) for name, claims in CLAIMS.items()]
    for name, claims in TABLE_CLAIMS.items():
        table = f"Table {name.split('-')[1]}"
        places.append((table, claims, dense if name.endswith("dense") else studies))
    found = [
        (place, claim.paper, name, holds)
        for place, claims, of in places
        for claim in claims
        for name, holds, _ in claim.answers(of)
    ]
    missed: dict[tuple[str, str], list[str]] = {}
    for place, text, name, holds in found:
        if not holds:
            missed.setdefault((place, text), []).append(name)
    n_missed = sum(len(names) for names in missed.values())
    ratio = [study.squared["zero"].ms_per_label / study.squared["msi-2"].ms_per_label for study in studies]
    n_held = len(found) - n_missed
    lines = [
        "## In short",
        "",
        f"Of {len(found)} checks of the paper's statements, {n_held} hold and {n_missed} are refuted here.",
        f"Training is {min(ratio):.1f} to {max(ratio):.1f} times as fast from the mean-separating start as from zero",
        "(1.6 to 5.0 in the paper's Table 1, 3 to 4 in its text).",
    ]
    refuted = [f"- {place}: {text} ({', '.join(names)})" for (place, text), names in missed.items()]
    return "\n".join([*lines, *(["", "Refuted here:", "", *refuted] if refuted else [])])


def figure_section(name: str, studies: list[Study]) -> str:
    """A figure, and the paper's statements with the numbers measured here."""
    lines = [f"### {paper.FIGURES[name]}", "", f"![{paper.FIGURES[name]}](one_vs_all/{name}.svg)", ""]
    if name in NOTES:
        lines += [NOTES[name], ""]
    return "\n".join([*lines, claim_list(CLAIMS[name], studies)])


def claim_list(claims: list[Claim], studies: list[Study]) -> str:
    """Statements of the paper, each followed by one answer per data set."""
    lines = []
    for claim in claims:
        answers = list(claim.answers(studies))
        if answers:
            lines.append(f"- {claim.paper}")
            lines += [f"  - {name}: {'yes' if holds else '**no**'} ({words})" for name, holds, words in answers]
    return "\n".join(lines)


def _time_row(name: str, outcomes: dict[str, Outcome], msi: str, fast: Outcome | None) -> list[str]:
    keys = ("zero", "bias-2", "ovap-loose", msi, "subspace")
    times = [outcomes[key].ms_per_label for key in keys]
    whole = outcomes["zero"].cpu_s / outcomes[msi].cpu_s
    return [
        f"**{name}**",
        *(f"{time:.3g}" for time in times[:4]),
        f"**{times[0] / times[3]:.1f}**",
        f"{whole:.1f}",
        f"{times[4]:.3g} ({times[0] / times[4]:.1f}×)",
        "–" if fast is None else f"{fast.ms_per_label:.3g} ({times[0] / fast.ms_per_label:.1f}×)",
    ]


def _time_table(ours: list[list[str]], published: list[tuple[str, float, float, float, float, float]]) -> str:
    columns = ["data set", "zero", "bias", "OvAP", "MSI", "zero/MSI", "with certificate", "subspace", "fast solver"]
    rows = [
        [name, *(f"{time:g}" for time in times), f"**{ratio}**", "–", "–", "–"] for name, *times, ratio in published
    ]
    width = len(ours[0])
    return format_table(columns[:width], [*ours, *(row[:width] for row in rows)])


def table_1(studies: list[Study], dense: list[Study]) -> str:
    """Training time by start, squared hinge."""
    rows = [_time_row(study.name, study.squared, "msi-2", study.fast) for study in [*studies, *dense]]
    return f"""### Table 1: training time by start, squared hinge

Rows in bold were measured here: CPU milliseconds per label for start and iterations, the faster of two interleaved
runs, and in brackets the speed-up over zero. The column "with certificate" is zero/MSI for the whole call, which also
certifies every label. The fast solver (the default, `init="auto"`) brings every label to a certified relative gap of
1e-3; its time includes the certificate. The other rows are the paper's, in minutes.

Dense sets were run with ε₀ = 1, as in the paper, and with 0.01. With ε₀ = 1 training stops so early that the model
depends on the start (Table 4). The paper found the same, to a lesser degree, on its own dense sets.

{_time_table(rows, paper.TABLE_1)}

{claim_list(TABLE_CLAIMS["table-1"], studies)}
{claim_list(TABLE_CLAIMS["table-1-dense"], dense)}""".rstrip()


def table_2(studies: list[Study]) -> str:
    """Training time by start, logistic loss."""
    rows = [_time_row(study.name, study.logistic, "msi-3", None)[:-1] for study in studies]
    return f"""### Table 2: training time by start, logistic loss

Same as Table 1, with t = −3.

{_time_table(rows, paper.TABLE_2)}

{claim_list(TABLE_CLAIMS["table-2"], studies)}"""


def table_3(studies: list[Study]) -> str:
    """Speed-up of OvAP++ and MSI over zero."""
    rows = [
        [
            f"**{study.name}**",
            f"{study.squared['zero'].ms_per_label / study.squared['ovap++'].ms_per_label:.1f}",
            f"{study.squared['zero'].ms_per_label / study.squared['msi-2'].ms_per_label:.1f}",
        ]
        for study in studies
    ]
    rows += [[name, str(tree), str(msi)] for name, tree, msi in paper.TABLE_3]
    return f"""### Table 3: OvAP++ and MSI, each against zero

Speed-up over zero. Here both starts run in one program. In the paper OvAP++ runs in the program of Fang et al. (2019)
and is compared with that program's own zero start.

{format_table(["data set", "zero/OvAP++", "zero/MSI"], rows)}

{claim_list(TABLE_CLAIMS["table-3"], studies)}"""


def table_4(studies: list[Study], dense: list[Study]) -> str:
    """Prediction quality by start."""
    rows = []
    for study in [*studies, *dense]:
        outcomes = {STARTS[key].label: outcome for key, outcome in study.squared.items()}
        if study.fast is not None:
            outcomes["fast solver (ours)"] = study.fast
        for label, outcome in outcomes.items():
            if outcome.quality is not None:
                values = ("–" if np.isnan(value) else f"{100 * value:.1f}" for value in outcome.quality)
                rows.append([f"**{study.name}**", label, *values, f"{outcome.ms_per_label:.3g} ms"])
    rows += [[name, start, *map(str, values), f"{minutes} min"] for name, start, *values, minutes in paper.TABLE_4]
    columns = ["data set", "start", "P@1", "P@3", "P@5", "precision", "recall", "time"]
    return f"""### Table 4: quality by start

Measured on the test rows after pruning weights below {PRUNE}. Precision and recall are means over the labels where
they are defined. Times are per label here, and for all labels in the paper, of whose sets two are shown. P@k needs
all labels, so yso-finna-en, a sample of labels, is missing.

{format_table(columns, rows)}

{claim_list(TABLE_CLAIMS["table-4"], studies)}
{claim_list(TABLE_CLAIMS["table-4-dense"], dense)}""".rstrip()


def steps_table(studies: list[Study]) -> str:
    """Mean Newton iterations per start; the paper shows them only in figures."""
    rows = []
    for study in studies:
        for loss, outcomes in (("squared hinge", study.squared), ("logistic", study.logistic)):
            msi = "msi-2" if loss == "squared hinge" else "msi-3"
            keys = ("zero", "bias-0.9", "bias-1", "bias-2", "ovap-strict", "ovap-loose", "ovap++", msi, "subspace")
            steps = (f"{outcomes[key].n_iter.mean():.2f}" if key in outcomes else "–" for key in keys)
            rows.append([study.name, loss, str(len(outcomes["zero"].n_iter)), *steps])
    columns = ["data set", "loss", "labels", "zero", "bias −0.9", "bias −1", "bias −2", "OvAP strict", "OvAP loose"]
    return f"""### Mean Newton iterations per label by start

{format_table([*columns, "OvAP++", "MSI", "subspace"], rows)}"""


def agreement(comparisons: list[Comparison]) -> str:
    """Relative excess of each start's objectives over the smallest."""
    parts = [
        """## How close the starts come to the same optimum

The tables show the relative excess of each label's final objective over the smallest that any start reached: the
largest over the labels, and the mean in brackets. The labels are from debian-tags, evenly spaced by frequency. "Core"
is the compiled solver, "reference" its NumPy specification. Only the gradient rule stops these runs, and it is loose
for frequent labels. `gap_tol`, on by default, bounds this excess for every label."""
    ]
    for loss in dict.fromkeys(one.loss for one in comparisons):
        chosen = [one for one in comparisons if one.loss == loss]
        columns = ["start"]
        cells = []
        for one in chosen:
            values = np.array([outcome.primal for outcome in one.outcomes.values()])
            excess = values / values.min(axis=0) - 1.0
            columns.append(f"{one.backend}, tol {one.tol:g}, {values.shape[1]} labels")
            cells.append([f"{line.max():.1e} ({line.mean():.1e})" for line in excess])
        labels = [STARTS[key].label for key in chosen[0].outcomes]
        rows = [list(row) for row in zip(labels, *cells, strict=True)]
        parts += [f"### {loss}", format_table(columns, rows)]
    parts.append(f"The optimum in figure 14 was computed from the subspace start with `tol={OPTIMUM_TOL:g}`.")
    return "\n\n".join(parts)
