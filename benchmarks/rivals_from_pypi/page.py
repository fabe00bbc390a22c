"""The tables as Markdown sections, shared by the dated result file and the page of the documentation."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _common import format_table, write_text
from rivals_from_pypi.environments import Environment
from rivals_from_pypi.measuring import Line, Results, shown_values
from rivals_from_pypi.rivals import OUR_DEFAULT, OUR_FIT, OURS, Entry, Rival
from rivals_from_pypi.tasks import DECISION_MEASURES, PLACES, Task, precision_differences

TITLE = "Rivals from PyPI"
INTRO = """\
One command, `make bench-rivals`, runs widemargin and every rival available from PyPI. Each rival has its own virtual
environment, and each run its own process with one thread. C = 1 and the settings in the tables apply; everything else
is the package's default.

With several labels per row, every method is shown with its defaults and *tuned*. All methods, ours included, are tuned
in the same way: five settings are trained on the same part of the training rows and compared on the same held-out
tenth, by the mean of P@1, P@3 and P@5. The best one is trained again on all training rows. For the large task, yso, the
five settings are trained on a quarter of the training rows. Two variants are not tuned, LIBLINEAR's `-s 2` and
`LinearSVC(dual=False)`: they solve the same problem as the tuned variant beside them, with our stopping rule. Our
default is what `widemargin train` does without options. Our five settings were picked after earlier experiments on
the test rows of debian-tags, rcv1v2-subsets, bibtex and yso; only the data listed as having played no part in any
choice are free of that advantage.

- *CPU s*: CPU seconds of training, all threads and child processes, without reading or converting data (except omikuji,
  whose training reads its file). Steps shorter than two seconds are the median of three.
- *tuning CPU s*: CPU seconds of the five settings, with the prediction of the held-out rows, and of the final fit.
- *memory*: largest resident memory of the whole process, with Python, libraries and data.
- *model*: bytes on disk as saved by the package; for LIBLINEAR, which has no model with many labels, the weights in
  memory.
- *µs per row*: CPU time to find the top 5 labels (trees: one node) of a test row, with all rows in one call if the
  package allows it.
- Quality is computed by `widemargin.metrics` from the lists that each process wrote, in per cent. PSP@k uses the
  propensities of Jain et al. with A = 0.55 and B = 1.5.
- *label sets*: micro-F1 over all labels, macro-F1 over the labels that occur in the test rows. `train_thresholding` of
  libmultilabel 0.10 fails with current versions of SciPy; the runner repairs the call that fails.

The times of our first line in each task are the mean of one run before the others and one after them. Trees of labels
(omikuji, PLT, XR-Linear, libmultilabel's tree) solve a different problem from one-vs-all, and omikuji combines three
trees. It cannot be seeded: two of its runs with the same settings differed by 0.4 points of P@1 on debian-tags, which
the paired intervals do not cover. Consider time and quality together."""
VERDICTS = """\
*Ahead*, *level* and *behind* compare P@1, P@3 and P@5 on the test rows: a cell is level if the 95 % interval of the
paired differences, row by row, contains 0. Our defaults are compared with every rival's defaults, and our tuned model
with every rival's tuned one. Each task has its own tables below. Here are the numbers of cells in which we are
ahead / level / behind, and the lowest ratio of a rival's CPU time to ours over the tasks."""
NOT_MADE_FOR = """\
Not run here, because they solve one full problem per label, which takes about an hour of CPU time at the rates measured
by `benchmarks/one_vs_all.py`: {}."""
UNITS = {"multilabel": "labels", "multiclass": "classes", "tree": "nodes"}


def sections(tasks: Sequence[Task], rivals: Sequence[Rival], results: Results, machine: str, limit_s: int) -> list[str]:
    """All sections below the title."""
    date = datetime.date.today().isoformat()
    about = f"Measured on {date}. Machine: {machine}. A run may take {limit_s} CPU seconds.\n"
    about += "The machine was shared: treat differences below a third as noise."
    parts = [INTRO, about, "## Which rivals install\n\n" + _install_table(rivals, results)]
    done = [task for task in tasks if task.name in results.lines]
    against = {task.name: _duels(task, results) for task in done if task.kind == "multilabel"}
    if any(against.values()):
        parts.append("## Ahead, level or behind\n\n" + VERDICTS)
    for unseen in (False, True):
        duels = [duel for task in done if task.unseen == unseen for duel in against.get(task.name, [])]
        names = [task.name for task in done if task.unseen == unseen and against.get(task.name)]
        if duels:
            which = "Data that played no part in any choice" if unseen else "Data that our defaults were developed with"
            parts += [f"{which}: {', '.join(names)}.", _count_table(duels)]
    for task in done:
        parts += _task_sections(task, results, against.get(task.name, []))
    if results.missing:
        parts.append(f"Not measured, because the data are missing: {', '.join(results.missing)}.")
    return parts


def write_page(path: Path, parts: Sequence[str]) -> None:
    """Write the page of the documentation."""
    write_text(path, "\n\n".join([f"# {TITLE}", *parts]) + "\n")


@dataclass(frozen=True)
class Duel:
    """A line of ours against a line of a rival."""

    ours: Line
    fit: Line  # ours at a given C
    other: Line
    differences: list[tuple[float, float]]  # of P@1, P@3 and P@5: mean and half-width of its interval

    @property
    def ratios(self) -> tuple[float, float]:
        """Their CPU time over ours: of one fit at given settings, and of everything."""
        fits = self.other.row["train_cpu_s"] / self.fit.row["train_cpu_s"]
        return fits, self.other.whole_cpu_s / self.ours.whole_cpu_s


def verdict(difference: float, width: float) -> str:
    """Ours against a rival: the difference of a mean to theirs, and the half-width of its interval."""
    return "level" if abs(difference) <= width else "ahead" if difference > 0 else "behind"


def _duels(task: Task, results: Results) -> list[Duel]:
    """Our default against the rivals' defaults, then our tuned model against the rivals' tuned ones."""
    lines = [line for line in results.lines[task.name] if not line.row["reason"]]
    ours = {(line.entry.label, line.tuned): line for line in lines if line.entry.rival == OURS}
    found = []
    for entry, tuned in ((OUR_DEFAULT, False), (OUR_FIT, True)):
        line, fit = ours.get((entry.label, tuned)), ours.get((OUR_FIT.label, tuned))
        if line is not None and fit is not None:
            for other in (other for other in lines if other.entry.rival != OURS and other.tuned == tuned):
                differences = precision_differences(results.folders[task.name], line.row["lists"], other.row["lists"])
                found.append(Duel(line, fit, other, differences))
    return found


def _count_table(duels: Sequence[Duel]) -> str:
    """Cells in which we are ahead, level and behind, and the lowest ratios of CPU times, over all tasks."""
    rows = []
    for name in dict.fromkeys(_name(duel.other.entry) for duel in duels):
        cells = []
        for tuned in (False, True):
            some = [duel for duel in duels if _name(duel.other.entry) == name and duel.other.tuned == tuned]
            count = Counter(verdict(*difference) for duel in some for difference in duel.differences)
            numbers = " / ".join(str(count[word]) for word in ("ahead", "level", "behind"))
            ratios = [f"{min(ratios):.2g}" for ratios in zip(*(duel.ratios for duel in some), strict=True)]
            cells += [numbers, *ratios] if some else ["–"] * 3
        is_tree = any(duel.other.entry.label_tree for duel in duels if _name(duel.other.entry) == name)
        rows.append([name, "yes" if is_tree else "", *cells])
    defaults, tuned = ("CPU ÷ our fit", "CPU ÷ our default"), ("CPU ÷ our fit", "CPU ÷ our tuning")
    return format_table(["against", "label tree", "defaults", *defaults, "tuned", *tuned], rows)


def _install_table(rivals: Sequence[Rival], results: Results) -> str:
    versions = {
        line.entry.rival: line.row["version"]
        for lines in (*results.lines.values(), *results.decisions.values())
        for line in lines
        if "version" in line.row
    }
    lines = []
    for rival in rivals:
        if rival.name != OURS:
            environment: Environment = results.environments[rival.name]
            outcome = "yes" if environment.python is not None else f"no: {environment.reason}"
            if rival.instead_of_dependencies and environment.python is not None:
                outcome += f", with `--no-deps` and {', '.join(f'`{name}`' for name in rival.instead_of_dependencies)}"
            lines.append([rival.name, versions.get(rival.name, "–"), outcome])
    return format_table(["rival", "version", "installs"], lines)


def _task_sections(task: Task, results: Results, duels: Sequence[Duel]) -> list[str]:
    sizes, lines, decisions = (found[task.name] for found in (results.sizes, results.lines, results.decisions))
    head = f"## {task.name}\n\n{task.text} {sizes['n_train']:,} training and {sizes['n_test']:,} test rows, "
    head += f"{sizes['n_features']:,} features, {sizes['n_labels']:,} {UNITS[task.kind]}."
    done = [line for line in lines if not line.row["reason"]]
    parts = [head]
    if task.kind == "multilabel":
        parts.append(_quality_table(task, done))
        for tuned in (False, True):
            some = [duel for duel in duels if duel.other.tuned == tuned]
            if some:
                parts += [f"**{'Tuned' if tuned else 'Defaults'}, ours minus theirs, in points.**", _duel_table(some)]
        parts.append("**Memory, model and prediction.**")
    measures = () if task.kind == "multilabel" else task.measures
    parts.append(_cost_table([line for line in done if not line.tuned], sizes["n_test"], measures))
    if decisions:
        parts += ["**Label sets.**", _decision_table([line for line in decisions if not line.row["reason"]])]
    failed = [line for line in [*lines, *decisions] if line.row["reason"]]
    if failed:
        reasons = [f"- {_name(line.entry)}{', tuned' * line.tuned}: {line.row['reason']}" for line in failed]
        parts.append("Without a result:\n\n" + "\n".join(reasons))
    if results.left_out[task.name]:
        names = dict.fromkeys(_name(entry) for entry in results.left_out[task.name])
        parts.append(NOT_MADE_FOR.format(", ".join(names)))
    return parts


def _quality_table(task: Task, lines: Sequence[Line]) -> str:
    rows = []
    for line in lines:
        settings = f"tuned: {shown_values(line.values)}" if line.tuned else line.entry.settings
        spent = "–" if line.tuning_cpu_s is None else f"{line.tuning_cpu_s:.3g}"
        scores = [f"{line.row['quality'][name]:.2f}" for name in task.measures]
        rows.append([_method(line.entry), settings, f"{line.row['train_cpu_s']:.3g}", spent, *scores])
    return format_table(["method", "settings", "CPU s", "tuning CPU s", *task.measures], rows)


def _duel_table(duels: Sequence[Duel]) -> str:
    rows = []
    for duel in duels:
        cells = [f"{verdict(mean, width)} {mean:+.2f} ± {width:.2f}" for mean, width in duel.differences]
        name = _method(duel.other.entry) if duel.other.tuned else _name(duel.other.entry)
        rows.append([name, *cells, *(f"{ratio:.2g}" for ratio in duel.ratios)])
    ours, fit = duels[0].ours, duels[0].fit
    one = f"CPU ÷ our fit, {fit.row['train_cpu_s']:.3g} s"
    whole = f"CPU ÷ our {'tuning' if ours.tuned else 'default'}, {ours.whole_cpu_s:.3g} s"
    return format_table(["against", *(f"P@{k}" for k in PLACES), one, whole], rows)


def _cost_table(lines: Sequence[Line], n_test: int, measures: Sequence[str]) -> str:
    ours = next((line.row for line in lines if line.entry.rival == OURS), None)
    rows = []
    for line in lines:
        row = line.row
        times = [_ratio(row[name], ours and ours[name]) for name in ("train_cpu_s", "predict_cpu_s")]
        seconds, micro = f"{row['train_cpu_s']:.3g}", f"{1e6 * row['predict_cpu_s'] / n_test:.3g}"
        memory, model = f"{row['peak_bytes'] / 1e6:.0f}", f"{row['model_bytes'] / 1e6:.3g}"
        scores = [f"{row['quality'][name]:.2f}" for name in measures]
        rows.append([_name(line.entry), seconds, times[0], memory, model, micro, times[1], *scores])
    columns = ["method", "CPU s", "× ours", "memory MB", "model MB", "µs per row", "× ours", *measures]
    return format_table(columns, rows)


def _decision_table(lines: Sequence[Line]) -> str:
    rows = [
        [
            _name(line.entry),
            f"{line.row['train_cpu_s']:.3g}",
            *(f"{line.row['quality'][name]:.2f}" for name in DECISION_MEASURES),
        ]
        for line in lines
    ]
    return format_table(["method", "CPU s", *DECISION_MEASURES], rows)


def _ratio(value: float, ours: float | None) -> str:
    return f"{value / ours:.2g}" if ours else "–"


def _name(entry: Entry) -> str:
    return f"{entry.rival}: {entry.label}"


def _method(entry: Entry) -> str:
    return ": ".join(filter(None, (entry.rival, entry.method)))
