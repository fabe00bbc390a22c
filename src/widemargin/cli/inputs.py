"""Inputs of the commands: training data, models with their tables, and the labels of a file in terms of a model.

A table of text is read by a `TableSpec`: the options make it in training, the model keeps it, and options of later
commands may replace parts of it. A file and a model need not have the same form of labels: svmlight holds the label
numbers that occur, the Extreme Classification Repository columns, arrays the labels themselves. Labels are matched by
name; unknown ones count as misses, with a warning, and it is an error if none can be matched.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.cli.console import print_note
from widemargin.cli.options import OPTIONS_OF, TREE_METHODS, Given, zero_based
from widemargin.data.load import Dataset, load_data, recognize_format
from widemargin.data.names import read_names
from widemargin.data.tables import TableSpec, TextRows, Texts, is_table, table_format
from widemargin.exceptions import DataFormatError, DataFormatWarning
from widemargin.files import refuse_input_as_output
from widemargin.labels.encoding import EncodedTargets

__all__ = [
    "OpenModel", "changed_model", "check_rows_fit", "display_names", "facts_of", "labelled_for_model",
    "labels_of_rows", "load_for_model", "load_training", "new_targets", "open_model", "read_table", "reading_options",
    "refuse_table", "separator_of", "standard_input", "table_spec", "targets_for", "truth_in_model_columns",
    "vectorizer_of",
]  # fmt: skip


def table_spec(given: Given) -> TableSpec | None:
    """The description of a training table, None for rows of numbers; an error for options that do not fit the data."""
    if given.text is None:
        if is_table(given.data):
            example = "--text title,body --labels tags"
            raise ValueError(f"{given.data} is a table; name its text columns and its label column, as in {example}")
        return None
    if given.labels is None:
        raise ValueError("--labels is missing; with --text, use it to name the label column")
    if given.features is not None:
        raise ValueError("--features does not apply to text, where the features are the terms; leave it out")
    names = {"delimiter": given.delimiter, "quotes": given.quotes is not False, "encoding": given.encoding or "utf-8"}
    found = table_format(given.data)
    return TableSpec(tuple(given.text), str(given.labels), given.label_sep, **names, format=found)


def vectorizer_of(given: Given) -> Any:
    """The vectoriser that the options describe, not fitted."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    parameters: dict[str, Any] = {}
    for option in OPTIONS_OF["train"].values():
        if (option.parameter or "").startswith("text__") and getattr(given, option.name) is not None:
            parameters[str(option.parameter).removeprefix("text__")] = getattr(given, option.name)
    return TfidfVectorizer(dtype=np.float32, **parameters)


def load_training(
    given: Given, spec: TableSpec | None, test_size: float | None = None
) -> tuple[Dataset, Dataset | None, Any]:
    """Labelled training data of any kind, with the fitted vectoriser for text; the rows held out, if any; and groups.

    The groups of --group are those of the training rows, shape (n_samples,); None without the option. The ids of --id
    or --row-ids are `row_ids` of the data.
    """
    group, id_column, ids_file = (getattr(given, name, None) for name in ("group", "id", "row_ids"))
    if id_column is not None and ids_file is not None:
        raise ValueError("--id and --row-ids both give the ids of the rows; leave one out")
    if spec is None:
        names = {"label_names": given.labels, "feature_names": given.features}
        dataset = load_data(given.data, **names, zero_based=zero_based(given))
        groups = None if group is None else _groups_of_file(Path(group), dataset.X.shape[0])
        dataset = replace(dataset, row_ids=_ids_of_file(ids_file, dataset.X.shape[0]))
        dataset, groups = _labelled(dataset, given.skip_unlabelled, groups)
        return _split(dataset, test_size, given.seed, groups)
    keep = tuple(name for name in (group, id_column) if name is not None)
    rows = TextRows(given.data, spec, keep=keep, skip_unlabelled=given.skip_unlabelled)
    vectorizer, held_out = vectorizer_of(given), None
    try:
        if test_size is None:
            X = vectorizer.fit_transform(rows)
            y = _labels_of_table(rows)
            groups, ids = _kept_columns(rows, group, id_column, ids_file)
        else:
            texts = np.array(list(rows), dtype=object)
            groups, ids = _kept_columns(rows, group, id_column, ids_file)
            whole = Dataset(texts, _labels_of_table(rows), None, None, "", row_ids=ids)
            part, held_out, groups = _split(whole, test_size, given.seed, groups)
            X, y, ids = vectorizer.fit_transform(part.X), part.Y, part.row_ids
    except DataFormatError:
        raise
    except ValueError as error:  # no terms, or options that contradict each other
        raise DataFormatError(str(error), path=given.data) if rows.n_rows else no_rows(given.data) from None
    if held_out is not None:
        held_out = replace(held_out, X=vectorizer.transform(held_out.X), path=given.data)
    from widemargin.estimators.text import TextPart

    terms = list(map(str, vectorizer.get_feature_names_out()))
    text = TextPart(vectorizer, spec)
    return Dataset(X, y, None, terms, str(given.data), text=text, row_ids=ids), held_out, groups


def _kept_columns(
    rows: TextRows, group: str | None, id_column: str | None, ids_file: Path | None
) -> tuple[Any, list[str] | None]:
    """Groups and ids of the rows of a table that was read, or None."""
    groups = None if group is None else np.array([str(values[0]) for values in rows.kept])
    if id_column is None:
        return groups, _ids_of_file(ids_file, rows.n_rows)
    return groups, [str(values[-1]) for values in rows.kept]


def _ids_of_file(path: Path | None, n_rows: int) -> list[str] | None:
    """One id per row, from the lines of a file; None without a file."""
    if path is None:
        return None
    ids = read_names(path)
    if len(ids) != n_rows:
        raise DataFormatError(
            f"the file has {len(ids):,} ids, but the data have {n_rows:,} rows",
            path=path,
            remedy="write one id per line, in the order of the rows; for a table, --id names a column with the ids",
        )
    return ids


def _groups_of_file(path: Path, n_rows: int) -> Any:
    """One group per row of data without columns."""
    if not path.is_file():
        raise ValueError(
            f"--group {path}: no such file; for rows of numbers, name a file with one group per line, in the order of "
            "the rows"
        )
    groups = np.array(path.read_text(encoding="utf-8").splitlines())
    if len(groups) != n_rows:
        raise DataFormatError(
            f"the file has {len(groups):,} groups, but the data have {n_rows:,} rows",
            path=path,
            remedy="write one group per line, in the order of the rows",
        )
    return groups


def read_table(path: Path, spec: TableSpec, skip_unlabelled: bool = False) -> Texts:
    """All texts of a table with their labels, for work that reads them more than once."""
    rows = TextRows(path, spec, skip_unlabelled=skip_unlabelled)
    texts = list(rows)
    if not texts:
        raise no_rows(path)
    return Texts(texts, _labels_of_table(rows))


def no_rows(path: Any) -> DataFormatError:
    """The error for data without rows."""
    return DataFormatError("the data contain no rows", path=path, remedy="provide at least one row")


def refuse_table(data: Path, command: str) -> None:
    """Raise an error for a table where rows of numbers are wanted."""
    if is_table(data):
        raise ValueError(f"{data} is a text table, but {command} requires numeric rows; use train with --text")


def _labelled(dataset: Dataset, skip_unlabelled: bool, groups: Any = None) -> tuple[Dataset, Any]:
    """Data and groups without rows that have no label if they are to be skipped; an error if none has labels."""
    if dataset.Y is None:
        raise DataFormatError("the data contain no labels", path=dataset.path, remedy="use labelled rows")
    if not skip_unlabelled or dataset.Y.ndim == 1:
        return dataset, groups
    kept = np.flatnonzero(np.diff(sp.csr_array(dataset.Y).indptr))
    if len(kept) < dataset.Y.shape[0]:
        _note_skipped(dataset.Y.shape[0] - len(kept), len(kept))
    groups = None if groups is None else groups[kept]
    return _with_rows(dataset, kept, sp.csr_array(dataset.Y)[kept]), groups


def _note_skipped(n_skipped: int, n_kept: int) -> None:
    print_note(f"{n_skipped:,} of {n_skipped + n_kept:,} rows have no label and are skipped")


def _split(
    dataset: Dataset, test_size: float | None, seed: int | None, groups: Any
) -> tuple[Dataset, Dataset | None, Any]:
    """Rows to train on and rows to hold out, both in their order; and the groups of the first."""
    if test_size is None:
        return dataset, None, groups
    n_rows = dataset.X.shape[0]
    n_test = round(test_size * n_rows)
    if not 0 < n_test < n_rows:
        raise ValueError(
            f"--test-size {test_size:g} leaves either no rows for training or none for testing; the data have "
            f"{n_rows:,} rows"
        )
    if groups is None:
        order = np.random.default_rng(seed or 0).permutation(n_rows)
        train, test = np.sort(order[n_test:]), np.sort(order[:n_test])
    else:
        from widemargin.model_selection import stratified_split  # not above: 0.06 s for every command

        train, test = stratified_split(dataset.Y, test_size=test_size, groups=groups, random_state=seed or 0)
        groups = groups[train]
    parts = []
    for part in (train, test):
        y = [dataset.Y[row] for row in part] if isinstance(dataset.Y, list) else dataset.Y[part]
        parts.append(_with_rows(dataset, part, y))
    return parts[0], parts[1], groups


def _with_rows(dataset: Dataset, rows: Any, y: Any) -> Dataset:
    """Some of the rows, with these labels."""
    ids = None if dataset.row_ids is None else [dataset.row_ids[row] for row in rows]
    return replace(dataset, X=dataset.X[rows], Y=y, row_ids=ids)


def _labels_of_table(rows: TextRows, remedy: str = "use") -> Any:
    """The labels of a table that was read, after hints about their form."""
    if rows.n_skipped:
        _note_skipped(rows.n_skipped, rows.n_rows)
    if rows.labels is not None:
        _hint_of_lists(rows, remedy)
    y = rows.y()
    if isinstance(y, list) and rows.n_rows and not any(y):
        raise DataFormatError(f"column {rows.labels!r} contains no labels", path=rows.path)
    return y


MARKS = ("|", ";", ",")
"""Separators of labels to look for; a slash is not one, because it makes paths in a tree."""
LEAST_KNOWN = 2 / 3
"""Share of the different cells with the mark whose parts all occur as cells. A name such as "Education, Nursing" may
have such parts by chance; most names of its kind, such as "Education, Medical", do not."""
LEAST_KNOWN_CELLS = 3
"""Fewest such cells, to rule out chance."""
FEWER = 0.75
"""Largest ratio of different parts to different cells."""
LEAST_MIXED = 1 / 3
"""Share of the parts of several cells that do not always have the same place. Names with a comma, some of which are
both surnames and first names, stay far below it."""


def _hint_of_lists(rows: TextRows, remedy: str) -> None:
    """Warn if the first label cells look like lists, but not lists of the given separator."""
    cells, given = rows.label_cells, rows.spec.label_sep
    mark = None if given and any(given in cell for cell in cells) else separator_of(cells)
    if mark is not None:
        example = min((cell for cell in cells if mark in cell), key=lambda cell: (len(cell), cell))
        why = f", because no cell contains {given!r}" if given else ""
        warnings.warn(
            f"{rows.path}: column {rows.labels!r} contains cells such as {example!r}, each of which is read as one "
            f"label{why}; if they are lists of labels, {remedy} --label-sep '{mark}'",
            DataFormatWarning,
            stacklevel=1,  # always the same place, to be shown once
        )


def separator_of(cells: Iterable[str]) -> str | None:
    """The mark at which cells should be split, if they look like lists of labels; None for names of classes.

    Names of classes may contain a comma, too, such as "Smith, John" and "Food, Beverages & Tobacco". Different cells
    with a mark, however often each occurs, are taken for lists if most of them consist of parts that are also cells, as
    "red;round" does if "red" and "round" occur; or if the parts are clearly fewer than the cells, because they recur in
    other cells, and at other places: lists mix, while a surname comes first, and the steps of a path keep their level.

    Examples
    --------
    >>> from widemargin.cli.inputs import separator_of
    >>> separator_of(["red;round", "round", "blue;round", "red;blue", "red"])
    ';'
    >>> separator_of(["Smith, John", "Smith, Ann", "Jones, Ann", "Smith, John"])
    """
    counts = Counter(cells)
    characters = set("".join(counts))
    for mark in MARKS:
        if mark in characters and _are_lists(counts, mark):
            return mark
    return None


def _are_lists(counts: Counter[str], mark: str) -> bool:
    marked = [cell for cell in counts if mark in cell]
    parts_of = {cell: [part for part in map(str.strip, cell.split(mark)) if part] for cell in counts}
    known = sum(len(parts_of[cell]) > 1 and all(part in counts for part in parts_of[cell]) for cell in marked)
    if known >= LEAST_KNOWN_CELLS and known >= LEAST_KNOWN * len(marked):
        return True
    n_cells: Counter[str] = Counter()
    places: defaultdict[str, set[int]] = defaultdict(set)
    for parts in parts_of.values():
        n_cells.update(set(parts))
        for place, part in enumerate(parts):
            places[part].add(place)
    shared = [part for part, count in n_cells.items() if count > 1]
    mixed = sum(len(places[part]) > 1 for part in shared)
    return len(n_cells) <= FEWER * len(counts) and mixed >= LEAST_MIXED * len(shared)


def targets_for(method: str, dataset: Dataset, taxonomy: Any = None) -> EncodedTargets:
    """The targets that a method takes: names of nodes on a tree; elsewhere lists of one label each become classes."""
    targets = dataset.targets
    if method in TREE_METHODS:
        # Numbers become text if the nodes are; svmlight has whole numbers as floats.
        names = targets.classes
        if taxonomy is not None and all(isinstance(name, str) for name in taxonomy.nodes):
            plain = (int(n) if isinstance(n, float) and n.is_integer() else n for n in names.tolist())
            names = np.array([*map(str, plain)])
        elif targets.kind != "multilabel":
            return targets
        return targets.renamed(np.array(names.tolist()))
    if method == "one-vs-all" or targets.kind != "multilabel":
        return targets
    remedy = "use rows with one label each, or --method one-vs-all"
    return _as_classes(dataset, f"--method {method} takes one label per row", remedy)


def _as_classes(dataset: Dataset, need: str, remedy: str) -> EncodedTargets:
    """Targets with one label per row, from lists that all have one; otherwise an error that says who needs it."""
    targets = dataset.targets
    counts = np.diff(targets.Y.indptr)
    if np.any(counts != 1):
        row = int(np.argmax(counts != 1))
        raise DataFormatError(
            f"{need}, but the file contains lists of labels: row {row} (counting from 0) has {counts[row]}",
            path=dataset.path,
            remedy=remedy,
        )
    return targets.renamed(targets.classes)


class OpenModel(NamedTuple):
    """A classifier and, if it was stored with one, its vectoriser and the description of its tables."""

    classifier: Any
    vectorizer: Any = None
    spec: TableSpec | None = None


def open_model(folder: Path, given: Given | None = None, *, verify: bool = True) -> OpenModel:
    """The classifier of a model folder; options replace what it knows about tables."""
    from widemargin.estimators.persistence import load

    form = {}
    for name in ("text", "labels", "label_sep", "delimiter", "quotes", "encoding"):
        if getattr(given, name, None) is not None:
            form[name] = getattr(given, name)
    model = load(folder, verify=verify)
    if not hasattr(model, "steps"):
        if form:
            raise ValueError(f"{folder} was trained on numeric rows, not on text; leave out the table options")
        return OpenModel(model)
    if isinstance(form.get("text"), list):
        form["text"] = tuple(form["text"])
    spec: TableSpec = getattr(model[-1], "table_", TableSpec())
    data = getattr(given, "data", None)
    if data is None or str(data) == "-":
        return OpenModel(model[-1], model[0], replace(spec, **form))
    spec = replace(spec.for_file(data), **form)
    if not spec.text:
        raise ValueError(f"{data}: the model does not record the text columns; name them with --text")
    return OpenModel(model[-1], model[0], spec)


def load_for_model(model: OpenModel, given: Given, data: Path | None = None) -> Dataset:
    """Labelled rows of a file for a model, with its number of features and, unless given, its index base."""
    dataset = labelled_for_model(model, given, given.data if data is None else data)
    return dataset if model.spec is None else replace(dataset, X=model.vectorizer.transform(dataset.X))


def changed_model(given: Given, *sources: Path | None) -> Path:
    """Where a changed model goes: its own folder, or another one; an error if that would change an input."""
    from widemargin.estimators.persistence import refuse_packed

    refuse_packed(given.model)
    target: Path = given.out or given.model
    in_place = target.exists() and given.model.exists() and target.samefile(given.model)
    refuse_input_as_output(target, *([] if in_place else [given.model]), *sources)
    return target


def labelled_for_model(
    model: OpenModel, given: Given, path: Path, id_column: str | None = None, ids_file: Path | None = None
) -> Dataset:
    """Labelled rows, or texts for a model of texts, with their ids if a column or a file gives them."""
    classifier, spec = model.classifier, model.spec
    if id_column is not None and (spec is None or ids_file is not None):
        if spec is None:
            raise ValueError("--id names a column of a table, but the model was trained on numbers; use --row-ids")
        raise ValueError("--id and --row-ids both give the ids of the rows; leave one out")
    if spec is None:
        if is_table(path):
            raise DataFormatError("the file is a text table, but the model was trained on numeric rows", path=path)
        dataset = load_data(path, **reading_options(classifier, path, given))
        check_rows_fit(classifier, path, *dataset.X.shape)
        dataset = replace(dataset, row_ids=_ids_of_file(ids_file, dataset.X.shape[0]))
        return _labelled(dataset, given.skip_unlabelled)[0]
    if spec.labels is None:
        raise ValueError(f"{path}: the model does not record the label column; name it with --labels")
    keep = () if id_column is None else (id_column,)
    rows = TextRows(path, spec, keep=keep, skip_unlabelled=given.skip_unlabelled)
    texts = list(rows)
    if not texts:
        raise no_rows(path)
    # A model with one label per row takes whole cells as labels.
    y = _labels_of_table(rows, "use" if classifier.kind_ == "multilabel" else "train the model with")
    _, ids = _kept_columns(rows, None, id_column, ids_file)
    return Dataset(texts, y, None, None, str(path), row_ids=ids)


def reading_options(classifier: Any, path: Path, given: Given) -> dict[str, Any]:
    """How to read a file of numbers for a model."""
    base = zero_based(given)
    if base == "auto":
        known = getattr(classifier, "index_base_", {}).get(recognize_format(path))
        base = "auto" if known is None else known == 0
    # A model with one label per row reads any file: lists of one label each may be matched by name.
    multilabel = True if classifier.kind_ == "multilabel" else None
    return {"n_features": classifier.n_features_in_, "zero_based": base, "multilabel": multilabel}


def check_rows_fit(classifier: Any, path: Path, n_rows: int, n_features: int) -> None:
    """Raise an error for data without rows, or with a different number of features from the model."""
    if n_rows == 0:
        raise no_rows(path)
    if n_features != classifier.n_features_in_:
        raise DataFormatError(
            f"the rows have {n_features:,} features, but the model has {classifier.n_features_in_:,}",
            path=path,
            remedy="use rows with the same features as in training",
        )


@contextlib.contextmanager
def standard_input(ending: str) -> Iterator[Path]:
    """A temporary file with what came on standard input."""
    with tempfile.TemporaryDirectory(prefix="widemargin-input-") as folder:
        spooled = Path(folder, f"standard-input{ending}")
        with open(spooled, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield spooled


def display_names(path: Path) -> dict[str, str]:
    """Names to show for labels, from a tab-separated file of labels and names."""
    shown = {}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        label, tab, name = line.partition("\t")
        if not tab:
            problem, remedy = "the line has no tab", "write label, tab and name"
            raise DataFormatError(problem, path=path, line=number, remedy=remedy)
        shown[label] = name
    return shown


def facts_of(dataset: Dataset, targets: EncodedTargets) -> OpenModel:
    """What a model of these data will know of labels and features, for matching a held-out file beforehand."""
    facts = SimpleNamespace(
        kind_=targets.kind,
        classes_=targets.classes,
        n_features_in_=dataset.X.shape[1],
        index_base_=dict(dataset.index_base or {}),
    )
    return OpenModel(facts)


def labels_of_rows(classifier: Any, dataset: Dataset) -> Any:
    """For a model with one label per row: each row's label, as in `classes_` if it is there, in an array of objects."""
    labels, unknown, n_labels = _one_label_per_row(classifier, dataset)
    _report_unknown(dataset, unknown, n_labels, classifier.classes_.tolist())
    return labels


def _one_label_per_row(classifier: Any, dataset: Dataset) -> tuple[Any, list[str], int]:
    """What `labels_of_rows` returns, the labels that the model does not know, and how many labels the file has."""
    targets = dataset.targets
    if targets.kind == "multilabel":
        remedy = "use rows with one label each, or train the model on lists of labels"
        targets = _as_classes(dataset, "the model predicts one label per row", remedy)
    known, values = classifier.classes_.tolist(), targets.classes.tolist()
    if (targets.classes.dtype.kind in "biuf") != (classifier.classes_.dtype.kind in "biuf"):
        known, values = [*map(str, known)], [*map(str, values)]  # one has names where the other has numbers
    label_of = dict(zip(known, classifier.classes_.tolist(), strict=True))
    unknown = sorted(str(value) for value in values if value not in label_of)
    labels = np.empty(len(values), dtype=object)  # a number stays a number next to names that are unknown
    labels[:] = [label_of.get(value, value) for value in values]
    return labels[targets.indices], unknown, len(values)


def truth_in_model_columns(classifier: Any, dataset: Dataset) -> Any:
    """The true labels as an indicator that starts with the model's labels, matched by name if there are names.

    A label that the model does not know gets its own column at the end: it is a miss.
    """
    truth, new = _in_model_columns(classifier, dataset)
    _report_unknown(dataset, new, dataset.targets.n_classes, classifier.classes_.tolist())
    return truth


def _in_model_columns(classifier: Any, dataset: Dataset) -> tuple[Any, list[str]]:
    """What `truth_in_model_columns` returns, and the names of the columns at the end."""
    targets, n_labels = dataset.targets, len(classifier.classes_)
    if targets.kind != "multilabel":
        raise DataFormatError(
            "the model predicts lists of labels, but the file has one label per row",
            path=dataset.path,
            remedy="use rows with lists of labels, or train the model on rows with one label each",
        )
    Y, known, names = targets.Y, [*map(str, classifier.classes_.tolist())], [*map(str, targets.classes.tolist())]
    # Numbers as names, which svmlight always has, are the columns of a model without names.
    has_names = classifier.classes_.dtype.kind not in "iu"
    are_named = targets.classes.dtype.kind not in "iu" and (has_names or all(name.isdecimal() for name in names))
    if are_named and names != known:
        place = {name: column for column, name in enumerate(known)}
        new = {name: n_labels + i for i, name in enumerate(n for n in names if n not in place)}
        columns = np.array([place.get(name, new.get(name)) for name in names], dtype=np.int64)
        wide = sp.csr_array((Y.data, columns[Y.indices], Y.indptr), shape=(Y.shape[0], n_labels + len(new)))
        return wide, list(new)
    if Y.shape[1] != n_labels:
        raise DataFormatError(
            f"the data have {Y.shape[1]:,} labels, but the model has {n_labels:,}",
            path=dataset.path,
            remedy="use data with the same label columns as in training, or provide label names for both",
        )
    return Y, []


def new_targets(classifier: Any, dataset: Dataset) -> tuple[Any, list[str]]:
    """Labels of rows in a form that `update` takes, in the type of the model's labels; and those that it does not have.

    Labels are matched as in `truth_in_model_columns`; a new label becomes a number if the model has numbers.
    """
    if hasattr(classifier, "taxonomy_"):
        labels = targets_for("orthogonal", dataset, classifier.taxonomy_).labels
        return labels, []
    numbers = classifier.classes_.dtype.kind in "iu"
    if classifier.kind_ != "multilabel":
        labels, new, _ = _one_label_per_row(classifier, dataset)
        if numbers:
            labels[:] = [int(name) if isinstance(name, str) and name.isdecimal() else name for name in labels]
        return labels, new
    Y, names = _in_model_columns(classifier, dataset)
    known = classifier.classes_.tolist()
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    places = [place for place in range(len(known), Y.shape[1]) if counts[place]]  # names without rows are no labels
    new = [names[place - len(known)] for place in places]
    classes = np.empty(len(places) + len(known), dtype=object)
    # New labels first: names that count up from 0 would be read as columns without names.
    classes[:] = [*(int(name) if numbers and name.isdecimal() else name for name in new), *known]
    Y = sp.csr_array(sp.csc_array(Y)[:, [*places, *range(len(known))]])
    return EncodedTargets("multilabel", classes, Y, True), new


def _report_unknown(dataset: Dataset, unknown: list[str], n_labels: int, known: list[Any]) -> None:
    """Raise an error if the model knows none of the labels; warn if it does not know some."""
    if not unknown:
        return
    if len(unknown) == n_labels:
        remedy = "provide label names that match the training data, in <name>_labels.txt next to the file"
        if is_table(dataset.path):
            remedy = (
                "write the labels as in the training data, or set their column and separator with --labels and "
                "--label-sep"
            )
        raise DataFormatError(
            f"none of the labels is known to the model; the file contains {unknown[0]!r}, the model has "
            f"{str(known[0])!r}",
            path=dataset.path,
            remedy=remedy,
        )
    warnings.warn(
        f"{dataset.path}: {len(unknown):,} of {n_labels:,} labels, such as {unknown[0]!r}, are unknown to the model "
        "and count as misses",
        DataFormatWarning,
        stacklevel=2,
    )
