"""Names of labels and features: a text file with one name per line, or a table whose last column is the name."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from widemargin._docstrings import with_shared_passages
from widemargin.exceptions import DataFormatError, DataFormatWarning
from widemargin.files import PathLike, atomic_file, read_lines

__all__ = ["NamesLike", "check_names", "find_label_names", "names_stem", "read_names", "write_names"]

NamesLike = Iterable[str]
# Looked for next to a data file, in this order, after a file with its name (tags_train.txt.gz -> tags_labels.txt).
LABEL_FILES = ("labels.txt", "labels.tsv", "label_names.txt")
DATA_ENDINGS = (".txt", ".svm", ".svmlight", ".libsvm", ".npz", ".npy")


@with_shared_passages
def read_names(path: PathLike, *, column: int | None = None) -> list[str]:
    """Read names, one per line, in UTF-8.

    Parameters
    ----------
    path : str or path
        The file. In a `.tsv` file a line has several columns.
    column : int, optional
        Column of a `.tsv` file, from 0; by default the last.

    Returns
    -------
    names : list of str

    <folder>
    >>> from widemargin.data.names import read_names, write_names
    >>> path = os.path.join(folder.name, "labels.txt")
    >>> write_names(path, ["red", "green"])
    >>> read_names(path)
    ['red', 'green']
    >>> folder.cleanup()
    """
    names = read_lines(path)
    if not names[-1]:
        names.pop()
    for number, name in enumerate(names, start=1):
        if "\r" in name:
            problem, remedy = "the line contains a carriage return", "convert the line endings to LF or CR LF"
            raise DataFormatError(problem, path=path, line=number, remedy=remedy)
    if not os.fspath(path).endswith(".tsv"):
        return names
    return [_cell(name, -1 if column is None else column, os.fspath(path), i) for i, name in enumerate(names, start=1)]


def _cell(line: str, column: int, path: str, number: int) -> str:
    cells = line.split("\t")
    if not -len(cells) <= column < len(cells):
        raise DataFormatError(f"column {column} does not exist", path=path, line=number)
    return cells[column]


def write_names(path: PathLike, names: NamesLike) -> None:
    """Write names, one per line, in UTF-8; a name with a line break is refused.

    Parameters
    ----------
    path : str or path
        The file.
    names : iterable of str
        The names.

    Examples
    --------
    See `read_names`.
    """
    lines = [str(name) for name in names]
    broken = [name for name in lines if "\n" in name or "\r" in name]
    if broken:
        raise ValueError(f"the name {broken[0]!r} contains a line break; remove it")
    with atomic_file(path, compress=False) as file:
        file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))


def check_names(names: NamesLike, expected: int | None, path: str, *, distinct: bool = False) -> list[str]:
    """The names as a list of str, made distinct if asked; DataFormatError unless they are as many as expected."""
    checked = [str(name) for name in names]
    if expected is not None and len(checked) != expected:
        raise DataFormatError(
            f"there must be one name for each of the {expected} columns; got {len(checked)}", path=path
        )
    return make_distinct(checked, path) if distinct else checked


def make_distinct(names: list[str], path: str) -> list[str]:
    """Names that occur more than once, as homonyms in a thesaurus do, get the number of their label, with a warning."""
    repeated = {name for name, count in Counter(names).items() if count > 1}
    if not repeated:
        return names
    numbered = [f"{name} ({column})" if name in repeated else name for column, name in enumerate(names)]
    name, count = Counter(numbered).most_common(1)[0]
    if count > 1:
        raise DataFormatError(f"two labels are named {name!r}", path=path, remedy="use a distinct name for each label")
    first = next(name for name in names if name in repeated)
    warnings.warn(
        f"{path}: {len(repeated):,} name(s) occur more than once; the label number is appended to them, as in "
        f"{numbered[names.index(first)]!r}",
        DataFormatWarning,
        stacklevel=2,
    )
    return numbered


def names_stem(path: PathLike) -> str:
    """The name of a data file without the endings of its format: `a.1.txt.gz` gives `a.1`."""
    name = Path(path).name.removesuffix(".gz")
    return next((name.removesuffix(ending) for ending in DATA_ENDINGS if name.endswith(ending)), name)


def find_label_names(path: PathLike) -> Path | None:
    """The file of label names that belongs to a data file: `<prefix>_labels.txt` or `labels.txt` next to it."""
    data = Path(path)
    stem = names_stem(data)
    prefixes = [stem] if "_" not in stem else [stem, stem.rsplit("_", 1)[0]]
    candidates = [f"{prefix}_{name}" for prefix in prefixes for name in LABEL_FILES]
    return next((data.with_name(name) for name in [*candidates, *LABEL_FILES] if data.with_name(name).is_file()), None)
