"""Goal: read text at least 8 times as fast as `sklearn.datasets.load_svmlight_file`, in less than twice the memory of
the result.

    WIDEMARGIN_DATA=<folder> python benchmarks/reader.py [--repetitions 5]

The file is yso-finna-en (142,576 rows) as uncompressed svmlight text, once with its label lists and once with only the
first label of each row. If the data are missing, a file of similar shape is generated. All readers read the same file
into float32. Times are medians, and CPU time covers all threads. Peak memory is measured in one fresh process per
reader.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from _common import (
    describe_machine,
    find_data,
    format_table,
    in_fresh_process,
    n_cores,
    peak_growth_bytes,
    time_it,
    write_result,
)

DATA_FILE = "yso-finna-en/train.txt.gz"
GENERATED_ROWS, GENERATED_FEATURES, GENERATED_LABELS = 100_000, 40_000, 10_000
MB = 1e6
COPIES = 8  # of the file, to measure the memory for a larger one


def make_rows() -> tuple[str, bytes, list[bytes]]:
    """Name of the data, and header and rows in XMC format."""
    source = find_data(DATA_FILE)
    if source is not None:
        header, *rows = gzip.decompress(source.read_bytes()).splitlines()
        return "yso-finna-en (train)", header, rows
    print("using generated rows instead", file=sys.stderr)
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(GENERATED_ROWS):
        features = np.unique(rng.integers(0, GENERATED_FEATURES, rng.integers(3, 18)))
        labels = np.unique(rng.integers(0, GENERATED_LABELS, rng.integers(1, 9)))
        values = " ".join(f"{j}:{v:.4g}" for j, v in zip(features, rng.random(len(features)), strict=True))
        rows.append(f"{','.join(map(str, labels))} {values}".encode())
    return "generated rows", f"{len(rows)} {GENERATED_FEATURES} {GENERATED_LABELS}".encode(), rows


def write_files(folder: Path) -> tuple[str, dict[str, Path]]:
    """Write the same rows in all formats."""
    name, header, rows = make_rows()
    n_rows, *counts = header.split()
    larger = b" ".join([str(COPIES * int(n_rows)).encode(), *counts])
    contents = {
        "lists": rows,
        "single": [
            row.split(b",", 1)[0] + b" " + row.split(b" ", 1)[1] if b"," in row.split(b" ", 1)[0] else row
            for row in rows
        ],
        "xmc": [header, *rows],
        "larger": [larger, *rows * COPIES],
    }
    paths = {kind: folder / f"{kind}.txt" for kind in contents}
    for kind, lines in contents.items():
        paths[kind].write_bytes(b"\n".join(lines) + b"\n")
    paths["packed"] = folder / "xmc.txt.gz"
    paths["packed"].write_bytes(gzip.compress(paths["xmc"].read_bytes(), 6))
    return name, paths


def read(reader: str, path: str, n_threads: int) -> Any:
    """Read a file with one of the readers."""
    if reader.startswith("sklearn"):
        from sklearn.datasets import load_svmlight_file

        return load_svmlight_file(path, dtype=np.float32, multilabel=reader == "sklearn-lists")
    if reader == "xmc":
        from widemargin import read_xmc

        return read_xmc(path, n_threads=n_threads)
    from widemargin import read_svmlight

    return read_svmlight(path, multilabel=reader == "svmlight-lists", n_threads=n_threads)


def array_bytes(result: Any) -> int:
    """Size of the arrays in a result; scikit-learn's label lists are Python objects and are not counted."""
    total = 0
    for part in result:
        if sp.issparse(part):
            total += part.data.nbytes + part.indices.nbytes + part.indptr.nbytes
        elif isinstance(part, np.ndarray):
            total += part.nbytes
    return total


def measure_memory(reader: str, path: Path, n_threads: int) -> dict[str, int]:
    """Growth of peak memory and size of the arrays, measured in a fresh process."""
    return in_fresh_process(__file__, "--memory", reader, path, n_threads)


def print_memory(reader: str, path: str, n_threads: int) -> None:
    """In the fresh process: import and warm up on a tiny file, then read and report."""
    with tempfile.TemporaryDirectory() as folder:
        tiny = Path(folder) / "tiny.txt"
        tiny.write_bytes(b"1 9 9\n1 1:1\n" if reader == "xmc" else b"1 1:1\n")
        read(reader, str(tiny), 1)
    peak, result = peak_growth_bytes(lambda: read(reader, path, n_threads))
    print(json.dumps({"peak": peak, "arrays": array_bytes(result)}))


def speed_rows(paths: dict[str, Path], repetitions: int) -> list[list[str]]:
    """One row per reader: times, and ratios to scikit-learn's on the same rows."""
    cases = [
        ("scikit-learn, label lists", "sklearn-lists", "lists", 1, "lists"),
        ("read_svmlight, label lists", "svmlight-lists", "lists", 1, "lists"),
        ("read_svmlight, label lists", "svmlight-lists", "lists", n_cores(), "lists"),
        ("read_xmc", "xmc", "xmc", 1, "lists"),
        ("read_xmc", "xmc", "xmc", n_cores(), "lists"),
        ("read_xmc, gzip", "xmc", "packed", 1, "lists"),
        ("scikit-learn, one label", "sklearn", "single", 1, "single"),
        ("read_svmlight, one label", "svmlight", "single", 1, "single"),
        ("read_svmlight, one label", "svmlight", "single", n_cores(), "single"),
    ]
    baseline, rows = {}, []
    for name, reader, kind, n_threads, group in cases:
        path = str(paths[kind])
        timing = time_it(lambda reader=reader, path=path, n=n_threads: read(reader, path, n), repetitions)
        baseline.setdefault(group, timing)
        size = (paths["xmc"] if kind == "packed" else paths[kind]).stat().st_size
        rows.append(
            [
                name,
                str(n_threads),
                f"{timing.wall_s:.3f}",
                f"{timing.cpu_s:.3f}",
                f"{size / MB / timing.wall_s:.0f}",
                f"{baseline[group].wall_s / timing.wall_s:.1f}",
                f"{baseline[group].cpu_s / timing.cpu_s:.1f}",
            ]
        )
    return rows


def memory_rows(paths: dict[str, Path]) -> list[list[str]]:
    """One row per reader: peak memory relative to the size of the arrays."""
    cases = [
        ("scikit-learn, one label", "sklearn", "single", 1),
        ("read_svmlight, one label", "svmlight", "single", n_cores()),
        ("read_svmlight, label lists", "svmlight-lists", "lists", n_cores()),
        ("read_xmc", "xmc", "xmc", 1),
        ("read_xmc", "xmc", "xmc", n_cores()),
        ("read_xmc, gzip", "xmc", "packed", 1),
        (f"read_xmc, {COPIES} times the rows", "xmc", "larger", n_cores()),
    ]
    rows = []
    for name, reader, kind, n_threads in cases:
        memory = measure_memory(reader, paths[kind], n_threads)
        rows.append(
            [
                name,
                str(n_threads),
                f"{memory['arrays'] / MB:.1f}",
                f"{memory['peak'] / MB:.1f}",
                f"{memory['peak'] / memory['arrays']:.2f}",
            ]
        )
    return rows


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", nargs=3, metavar=("READER", "PATH", "THREADS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        reader, path, n_threads = arguments.memory
        print_memory(reader, path, int(n_threads))
        return
    with tempfile.TemporaryDirectory() as folder:
        name, paths = write_files(Path(folder))
        size = paths["lists"].stat().st_size / MB
        speed_columns = ["reader", "threads", "wall s", "CPU s", "MB/s (wall)", "ratio of wall", "ratio of CPU"]
        speed = format_table(speed_columns, speed_rows(paths, arguments.repetitions))
        memory = format_table(["reader", "threads", "arrays MB", "peak MB", "peak / arrays"], memory_rows(paths))
    about = f"""Goal: at least 8 times the throughput on the same uncompressed file; peak memory below twice the arrays.
Data: {name}, {size:.1f} MB of text. Medians of {arguments.repetitions} runs.
Machine: {describe_machine()}."""
    note = "Ratios are scikit-learn's time over the reader's, on the same rows; MB/s counts unpacked text."
    memory_title = "## Growth of peak resident memory, each reader in a fresh process"
    title = "Text readers against scikit-learn's load_svmlight_file"
    write_result("reader", title, [about, "## Speed", speed, note, memory_title, memory])


if __name__ == "__main__":
    main()
