"""Options of text: which columns of a table, and how the vectoriser makes terms of them.

The decorators add them to a command and hand them over as one argument.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import typer

__all__ = ["TableColumns", "TextOptions", "label_table_options", "table_options", "text_options", "with_options"]


class Analyzer(StrEnum):
    """Values of `--analyzer`."""

    word = "word"
    char = "char"
    char_wb = "char_wb"


class Accents(StrEnum):
    """Values of `--strip-accents`."""

    ascii = "ascii"
    unicode = "unicode"


class StopWords(StrEnum):
    """Values of `--stop-words`."""

    english = "english"


TextColumns = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="COLUMNS",
        help="The data are a table (.csv, .tsv, .jsonl, .parquet; text formats also .gz): the columns of text, "
        "separated by commas; --labels is the column of labels.",
    ),
]
LabelSep = Annotated[
    str | None,
    typer.Option("--label-sep", help="What separates the labels of a cell, such as '|'; without it a cell is a label."),
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", help="What separates the cells of a CSV or TSV file.", show_default="comma; tab"),
]

Quotes = Annotated[
    bool | None,
    typer.Option(
        "--quotes/--no-quotes", help="Whether cells of a CSV or TSV file may be in quotes.", show_default="quotes"
    ),
]
LabelColumn = Annotated[
    str | None, typer.Option("--labels", help="The column of labels of a table, if not that of the training data.")
]

FORM: dict[str, Any] = {"text": TextColumns, "delimiter": Delimiter, "quotes": Quotes}
COLUMNS: dict[str, Any] = FORM | {"label_sep": LabelSep}
# Options of the vectoriser, by the name of its parameter; None stands for scikit-learn's default.
VECTORIZER: dict[str, Any] = {
    "analyzer": Annotated[
        Analyzer | None,
        typer.Option("--analyzer", help="Terms of words, or of letters (char_wb: inside words).", show_default="word"),
    ],
    "ngram_range": Annotated[
        str | None,
        typer.Option("--ngrams", metavar="FROM,TO", help="Lengths of terms, in words or letters.", show_default="1,1"),
    ],
    "min_df": Annotated[
        str | None,
        typer.Option(
            "--min-df", help="Leave out terms in fewer texts: a number, or a share as 0.01.", show_default="1"
        ),
    ],
    "max_df": Annotated[
        str | None,
        typer.Option("--max-df", help="Leave out terms in more texts: a number, or a share.", show_default="1.0"),
    ],
    "max_features": Annotated[
        int | None, typer.Option("--max-features", min=1, help="Keep this many terms, the most frequent.")
    ],
    "stop_words": Annotated[
        StopWords | None, typer.Option("--stop-words", help="Leave out the frequent words of a language.")
    ],
    "strip_accents": Annotated[
        Accents | None, typer.Option("--strip-accents", help="Remove accents from letters.", show_default="no")
    ],
    "lowercase": Annotated[
        bool | None, typer.Option("--lowercase/--no-lowercase", help="Ignore case.", show_default="lowercase")
    ],
    "sublinear_tf": Annotated[
        bool | None,
        typer.Option(
            "--sublinear-tf/--no-sublinear-tf", help="Count a repeated term by 1 + log.", show_default="no-sublinear-tf"
        ),
    ],
}
OPTION_OF = {"ngram_range": "--ngrams"}


@dataclass(frozen=True)
class TextOptions:
    """What the options of text say: the columns, and parameters of the vectoriser."""

    columns: list[str]
    label_sep: str | None = None
    delimiter: str | None = None
    quotes: bool = True
    vectorizer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableColumns:
    """Columns and form of a table where they are not those of the training data."""

    text: list[str] | None = None
    labels: str | None = None
    label_sep: str | None = None
    delimiter: str | None = None
    quotes: bool | None = None


def text_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of text to a command, which gets them as `text`: TextOptions, or None without `--text`."""
    return with_options(command, "text", COLUMNS | VECTORIZER, _text_options)


def table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add options that name columns of text to a command, which gets them as `table`: TableColumns."""
    return with_options(command, "table", FORM, _table_columns)


def label_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add options that name columns of text and labels to a command, which gets them as `table`: TableColumns."""
    return with_options(command, "table", COLUMNS | {"labels": LabelColumn}, _table_columns)


def with_options(
    command: Callable[..., None], argument: str, added: dict[str, Any], gather: Callable[[dict[str, Any]], Any]
) -> Callable[..., None]:
    """A command with further options, which reach it as one argument; typer reads them from the signature."""
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        values = {name: given.pop(name, None) for name in added}
        command(**given, **{argument: gather(values)})

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [parameter.replace(kind=kind) for name, parameter in own.parameters.items() if name != argument]
    parameters += [inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in added.items()]
    wrapped.__dict__["__signature__"] = own.replace(parameters=parameters)
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def parse_columns(text: str) -> list[str]:
    """The names of `--text title,body`."""
    columns = [name.strip() for name in text.split(",")]
    if not all(columns) or len(set(columns)) != len(columns):
        raise ValueError(f"--text takes names of columns separated by commas, each once; got {text!r}")
    return columns


def parse_delimiter(text: str | None) -> str | None:
    r"""The value of `--delimiter`; \t stands for a tab, which is hard to type."""
    return "\t" if text == "\\t" else text


def _table_columns(values: dict[str, Any]) -> TableColumns:
    given = {name: value for name, value in values.items() if value is not None}
    if "text" in given:
        given["text"] = parse_columns(given["text"])
    if "delimiter" in given:
        given["delimiter"] = parse_delimiter(given["delimiter"])
    return TableColumns(**given)


def _text_options(values: dict[str, Any]) -> TextOptions | None:
    given = {name: value for name, value in values.items() if value is not None}
    columns = given.pop("text", None)
    if columns is None:
        for name in given:
            option = OPTION_OF.get(name, "--" + name.replace("_", "-"))
            raise ValueError(f"{option} is an option of text; give the columns of text with --text, or leave it out")
        return None
    label_sep, delimiter = given.pop("label_sep", None), parse_delimiter(given.pop("delimiter", None))
    quotes = given.pop("quotes", True)
    for name, parse in (("ngram_range", _lengths), ("min_df", _count_or_share), ("max_df", _count_or_share)):
        if name in given:
            given[name] = parse(OPTION_OF.get(name, "--" + name.replace("_", "-")), given[name])
    plain = {name: str(value) if isinstance(value, StrEnum) else value for name, value in given.items()}
    return TextOptions(parse_columns(columns), label_sep, delimiter, quotes, plain)


def _lengths(option: str, text: str) -> tuple[int, int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = []
    if len(lengths) != 2 or not 1 <= lengths[0] <= lengths[1]:
        raise ValueError(f"{option} takes the shortest and the longest length, such as 1,2; got {text!r}")
    return lengths[0], lengths[1]


def _count_or_share(option: str, text: str) -> int | float:
    """A number of texts, or a share of them if it has a point."""
    try:
        value: int | float = float(text) if "." in text else int(text)
    except ValueError:
        value = -1
    if value < 0 or (isinstance(value, float) and value > 1):
        raise ValueError(f"{option} takes a number of texts, such as 2, or a share, such as 0.01; got {text!r}")
    return value
