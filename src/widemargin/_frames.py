"""Results as tables: a pandas data frame, or HTML for a notebook.

A table is a dictionary of equally long columns by name. pandas is no requirement of the package and is imported when a
data frame is asked for; HTML needs nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

from widemargin.exceptions import MissingExtraError

__all__ = ["MOST_ROWS", "data_frame", "html_table"]

MOST_ROWS = 60
"""Rows that a notebook shows, as in pandas."""


def data_frame(columns: Mapping[str, Any]) -> Any:
    """The columns as a `pandas.DataFrame`."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("to_frame", "pandas") from error
    return pandas.DataFrame(dict(columns))


def html_table(columns: Mapping[str, Any], caption: str = "") -> str:
    """The columns as an HTML table of at most `MOST_ROWS` rows; names, cells and caption are escaped."""
    rows = list(zip(*(column[: MOST_ROWS + 1] for column in columns.values()), strict=True))
    body = [[_cell(value) for value in row] for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        body.append(["…"] * len(columns))
    lines = ["<table>", f"<caption>{html.escape(caption)}</caption>"]
    lines += [_line("th", map(html.escape, columns)), *(_line("td", row) for row in body), "</table>"]
    return "\n".join(lines)


def _line(tag: str, cells: Iterable[str]) -> str:
    """A row of the table; the cells are escaped already."""
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _cell(value: Any) -> str:
    """A value for people: four digits of a number with a fraction, nothing for None and NaN."""
    value = value.item() if hasattr(value, "dtype") else value
    if value is None or value != value:
        return ""
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
