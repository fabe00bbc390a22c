"""Fuzz the readers of tables (CSV, TSV, JSON lines, Parquet), and the conversion of text to stores in bounded memory.

    python fuzz/fuzz_tables.py --cases 20000 [--seed 0] [--keep]

A damaged table must end in a `DataFormatError`, or in texts with labels that a vectoriser accepts. A damaged text file
must give the same store, byte for byte, as reading the whole file at once, or an error if that is an error. In both
cases no other file may be left over. Anything else, including a case that takes longer than `TIME_LIMIT_S`, is a
finding.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tempfile
import warnings
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import mutations
import numpy as np
import pyarrow
import pyarrow.parquet
from mutations import Files, pick

from widemargin import read_texts
from widemargin.cli.inputs import load_training, table_spec
from widemargin.cli.options import OPTIONS_OF, gather
from widemargin.data.load import load_data, save_data
from widemargin.data.stream import write_text_store
from widemargin.exceptions import DataFormatError

CORPUS = Path(__file__).parent / "corpus" / "tables"
MOST_DAMAGES = 3
COLUMNS = ["title", "body"]
ROWS = [
    {"title": "a red ball", "body": 'it "bounces",\nwell', "tags": "red|round", "note": "x"},
    {"title": "a kite", "body": "it flies", "tags": "red", "note": ""},
    {"title": "żółty wóz", "body": "", "tags": "yellow|round", "note": "é"},
    {"title": "a tyre", "body": "black; round", "tags": "round", "note": "1"},
]
XMC = b"3 4 3\n0,2 0:1 2:0.5\n1 1:2\n 3:1e-3 0:2\n"
ONE_LABEL = b"1 1:0.5 3:1 # a comment\n-1 2:1\n1 1:1 2:0.25\n"
LISTS = b"1,2 1:1\n 2:1\n5 1:1 4:1e-30\n"
PIECES = [
    b'"', b'""', b",", b"\t", b";", b"|", b"\n", b"\r", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xff", b"\xed\xa0\x80", b"#",
    b"{", b"}", b"[", b"]", b"null", b"NaN", b"1e999", b"\\ud800", b":", b" ", b"0", b"-1", b"99999999999999999999",
    b"2147483648:1", b"1:nan", b"title", b"tags", b"\x1f\x8b", "\u2028".encode(), b"\n\n", b",,,,", b"[" * 5000,
]  # fmt: skip
CELLS = [
    None, 1, -1.5, float("nan"), True, "", "x|y", ["a", "b"], [], [None], [["a"]], {"a": 1}, b"\xff", 10**18,
    datetime(2020, 1, 1), Decimal("1.5"), "\udcff".encode("utf-8", "surrogatepass"),
]  # fmt: skip


def csv_of(delimiter: str) -> bytes:
    lines = [ROWS[0].keys(), *(row.values() for row in ROWS)]
    cells = [['"' + cell.replace('"', '""') + '"' for cell in line] for line in lines]
    return "\n".join(delimiter.join(line) for line in cells).encode()


def parquet_of(columns: dict[str, list], compression: str = "snappy") -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer, compression=compression)
    return buffer.getvalue()


def columns_of(rows: list[dict]) -> dict[str, list]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@cache
def valid_data() -> list[Files]:
    """Tables of all formats, and numeric text with or without a file of names, one file each."""
    lists = [row | {"tags": row["tags"].split("|")} for row in ROWS]
    lines = ["\n".join(map(json.dumps, rows)).encode() for rows in (ROWS, lists)]
    return [
        {"rows.csv": csv_of(",")},
        {"rows.tsv": csv_of("\t")},
        {"rows.csv.gz": gzip.compress(csv_of(","), mtime=0)},
        {"rows.jsonl": lines[0]},
        {"rows.json": lines[1]},
        {"rows.parquet": parquet_of(columns_of(ROWS))},
        {"rows.pq": parquet_of(columns_of(lists), "none")},
        {"data.txt": XMC},
        {"data.txt": XMC, "labels.txt": b"one\ntwo\nthree\n"},
        {"data.txt.gz": gzip.compress(XMC, mtime=0)},
        {"data.svm": ONE_LABEL},
        {"data.svm": LISTS},
    ]


def damage_text(data: bytes, choices) -> bytes:
    """A small change: a byte, a piece with a meaning in one of the formats, or a repeated or moved line."""
    kind = choices.below(4)
    if kind == 0:
        return mutations.damage_bytes(data, choices)
    if kind == 1:
        lines = data.split(b"\n")
        lines.insert(choices.below(len(lines) + 1), pick(choices, lines))
        return b"\n".join(lines)
    place = choices.below(len(data) + 1)
    return data[:place] + pick(choices, PIECES) + data[place + (choices.below(4) if kind == 2 else 0) :]


def damage_lines(data: bytes, choices) -> bytes:
    """Change a value in one of the JSON lines; each line stays valid JSON."""
    lines = data.split(b"\n")
    files = {"line": pick(choices, lines)}
    before = files["line"]
    mutations.damage_json(files, "line", choices)
    return b"\n".join(files["line"] if line == before else line for line in lines)


def other_parquet(choices) -> bytes | None:
    """A file with columns of other types; None if Parquet has no such column."""
    columns = columns_of(ROWS)
    name = pick(choices, sorted(columns))
    if choices.below(4) == 0:
        del columns[name]
    else:
        value = pick(choices, CELLS)
        columns[name] = [value if choices.below(2) else pick(choices, [None, value]) for _ in ROWS]
    try:
        table = pyarrow.table(columns)
        if choices.below(4) == 0:
            table = table.append_column(name, [pyarrow.array(["twice"] * len(ROWS))])
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(table, buffer, use_dictionary=bool(choices.below(2)))
    except (pyarrow.ArrowException, TypeError):
        return None
    return buffer.getvalue()


def damage(name: str, data: bytes, choices) -> bytes:
    if name.endswith((".parquet", ".pq")):
        changed = other_parquet(choices) if choices.below(2) else None
        return mutations.damage_bytes(data, choices) if changed is None else changed
    if name.endswith(".gz"):
        try:
            return gzip.compress(damage_text(gzip.decompress(data), choices), mtime=0)
        except mutations.READ_ERRORS:
            return mutations.damage_bytes(data, choices)
    if name.endswith((".json", ".jsonl")) and choices.below(2):
        return damage_lines(data, choices)
    return damage_text(data, choices)


def damaged_data(choices) -> Files:
    files = dict(pick(choices, valid_data()))
    for _ in range(1 + choices.below(MOST_DAMAGES)):
        name = pick(choices, sorted(files))
        raw = name.endswith(".gz") and choices.below(4) == 0
        files[name] = mutations.damage_bytes(files[name], choices) if raw else damage(name, files[name], choices)
    return files


def use_table(path: Path) -> None:
    """Read texts with labels, with and without a separator and quotes, then as training reads them."""
    texts = labels = None
    for options in ({"label_sep": "|"}, {}, {"label_sep": "|", "quotes": False}):
        try:
            texts, labels = read_texts(path, COLUMNS, "tags", **options)
        except DataFormatError:
            continue
        assert len(texts) == len(labels)
        assert all(isinstance(text, str) for text in texts)
        sets = labels if isinstance(labels, list) else [[label] for label in labels.tolist()]
        assert all(isinstance(label, str) and label.strip() == label != "" for found in sets for label in found)
        json.dumps([texts, sets], ensure_ascii=False).encode()  # both are written to files later
    for label_sep in (None, "|"):
        options = {option.name: option.default for option in OPTIONS_OF["train"].values()}
        options |= {"data": path, "text": ",".join(COLUMNS), "labels": Path("tags"), "label_sep": label_sep}
        given = gather("train", options)
        found, _, _ = load_training(given, table_spec(given))
        assert found.X.shape[0] == found.targets.Y.shape[0]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def use_text(path: Path, scratch: Path) -> None:
    """The store written in parts must equal the data of `load_data`."""
    whole, parts = scratch / "whole.store", scratch / "parts.store"
    try:
        save_data(whole, load_data(path))
    except DataFormatError as error:
        try:
            write_text_store(parts, path)
        except DataFormatError as other:
            assert not content(scratch), content(scratch)
            raise other from error
        raise AssertionError("a store was written from a file that cannot be read") from error
    write_text_store(parts, path)
    assert content(whole) == content(parts)
    assert sorted(part.name for part in scratch.iterdir()) == ["parts.store", "whole.store"]


def run_case(files: Files, folder: Path) -> str:
    """Read the data and return the outcome without numbers and names."""
    mutations.write_files(files, folder)
    name = sorted(files)[0]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            if name.startswith("data"):
                with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                    use_text(folder / name, Path(scratch))
            else:
                use_table(folder / name)
        except DataFormatError as error:
            problem = f"{error.problem}; {error.remedy}"
            return f"{name}: " + re.sub(r"\(.*\)|'[^']*'|\[[^]]*\]|\d+", "…", problem)
    return "loaded"


if __name__ == "__main__":
    sys.exit(mutations.fuzz(damaged_data, run_case, CORPUS, mutations.parse_options(__doc__)))
