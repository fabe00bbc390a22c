"""The C interface and the static program on models of real texts: time of one row, cold start, equality with Python.

    python benchmarks/native.py [--sets debian-tags yso-finna-en] [--texts 1000] [--rows 300]

Goal: the median time of one row is at most 60 µs with 508 labels (debian-tags) and 250 µs with 19,696 labels
(yso-finna-en). The program answers one line of text within 50 ms from its start, with at most 30 MB beyond the mapped
model. On 1,000 test texts the top 5 labels are those of Python, byte for byte, and scores agree to 1e-6.

Models are one-vs-all with C = 1 and prune = 0.01 on tf-idf of the texts (debian-tags) or on the rows of the set, with a
vectoriser of its vocabulary (yso-finna-en). They stay in build/native-benchmark, so that a second run only measures.
Rows go through the C interface by ctypes, whose overhead of some microseconds is part of the figures. `predict_topk` of
Python on the same single rows is the rival. The files are in the page cache: the start is that of the process. "Start
CPU" is what the program needs itself, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from _common import ROOT, describe_machine, find_data, format_table, write_result
from widemargin import OneVsAllClassifier, TextPipeline, load, load_data, pack, save
from widemargin.estimators.persistence import restored_vectorizer, stored_options
from widemargin.files import read_lines

sys.path.insert(0, str(ROOT / "tests"))
import native_library

BUILD = ROOT / "build" / "native"
MODELS = ROOT / "build" / "native-benchmark"
GOALS_US = {"debian-tags": 60, "yso-finna-en": 250}
GOAL_START_MS, GOAL_MB, GOAL_ERROR = 50, 30, 1e-6
STARTS = 20
MB = 2**20


def lines_of(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


def debian_tags(folder):
    """A text model of the package descriptions, and test texts."""
    rows = [line.split("\t") for line in lines_of(folder / "packages.tsv.gz")[1:]]
    about = {row[0]: (row[4], row[3].split(",")) for row in rows}
    known = set((folder / "tags_labels.txt").read_text().split("\n"))
    parts = []
    for part in ("train", "test"):
        names = (folder / f"tags_{part}_packages.txt").read_text().split()
        parts.append([about[name] for name in names])
    labels = [set(tags) & known for _, tags in parts[0]]

    def train():
        vectorizer = TfidfVectorizer(min_df=3, dtype=np.float32)
        model = TextPipeline([("tfidf", vectorizer), ("model", OneVsAllClassifier(C=1.0, prune=0.01, n_jobs=-1))])
        return model.fit([text for text, _ in parts[0]], labels)

    return train, [text for text, _ in parts[1]]


def yso_finna(folder):
    """A model of the rows of the set, with a vectoriser of its vocabulary, and test texts."""

    def train():
        data = load_data(folder / "train.txt.gz")
        classifier = OneVsAllClassifier(C=1.0, prune=0.01, normalize=True, n_jobs=-1).fit(data.X, data.Y)
        classifier.set_label_names([str(name) for name in data.label_names])
        table = [line.split("\t") for line in read_lines(folder / "vocab.tsv") if line]
        terms, idf = [row[0] for row in table], np.array([float(row[1]) for row in table], dtype=np.float32)
        options = stored_options(TfidfVectorizer(dtype=np.float32, vocabulary=terms))
        return TextPipeline([("tfidf", restored_vectorizer(options, terms, idf)), ("model", classifier)])

    return train, lines_of(folder / "test_raw.txt.gz")


READERS = {"debian-tags": debian_tags, "yso-finna-en": yso_finna}


def trained(name, train):
    """The model folder and the packed file of a set; trained once."""
    folder, packed = MODELS / name, MODELS / f"{name}.wm"
    if not (folder / "model.json").exists():
        save(train(), folder)
    if not packed.exists():
        pack(folder, packed)
    return folder, packed


def median_us(calls):
    """Median time of calls, each made once after a first round."""
    times = []
    for call in calls:
        call()
    for call in calls:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def one_row(model, native, texts):
    """Median microseconds: a row and a text by the C interface, and both by Python."""
    X = model.vectors(texts).tocsr()
    rows = [(X.indices[a:b], X.data[a:b]) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    single = [sp.csr_array(X[[i]]) for i in range(len(rows))]
    prepared = [prepared_call(native, row) for row in rows]
    return {
        "row": median_us(prepared),
        "row_python": median_us([lambda x=x: model[-1].predict_topk(x, 5) for x in single]),
        "text": median_us([prepared_call(native, text) for text in texts]),
        "text_python": median_us([lambda text=text: model.predict_topk([text], 5) for text in texts]),
    }


def prepared_call(native, row, k=5):
    """A call of the C function with arguments that are made beforehand."""
    kind, arguments = native_library.arguments_of(row)
    labels, scores, n = (ctypes.c_int64 * k)(), (ctypes.c_double * k)(), ctypes.c_size_t()
    function = getattr(native.library.raw, f"wm_predict_{kind}")
    given = (native.handle, *arguments, ctypes.c_size_t(k), labels, scores, ctypes.byref(n))

    def call():
        if function(*given) != 0:
            raise AssertionError(native.library.raw.wm_error_message())

    return call


def cold_start(packed, text):
    """Median milliseconds from the start of the program to its end, for one line; CPU time; and its memory in MB."""
    command, line = [str(BUILD / "widemargin-native"), str(packed)], text.encode() + b"\n"
    times, cpu = [], []
    for _ in range(STARTS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, input=line, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(line)
        process.stdin.flush()
        process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.stdin.close()
    memory = {key: int(status.split(f"{key}:")[1].split()[0]) / 1024 for key in ("RssAnon", "RssFile")}
    return 1e3 * statistics.median(times), 1e3 * statistics.median(cpu), memory


def differences(model, native, texts):
    """Texts whose top 5 labels differ from Python's, and the largest difference of a score."""
    top, n_different, largest = model.predict_topk(texts, 5), 0, 0.0
    for i, text in enumerate(texts):
        labels, scores = native.predict(text, 5)
        n_different += [native.label(label) for label in labels] != [str(label) for label in top.labels[i]]
        largest = max(largest, float(np.abs(np.array(scores) - top.scores[i]).max()))
    return n_different, largest


def measure(name, options):
    """One row of the table."""
    folder = find_data(name)
    if folder is None:
        return None
    train, test = READERS[name](folder)
    model_folder, packed = trained(name, train)
    model = load(model_folder)
    library = native_library.Library(BUILD / "libwidemargin.so")
    start = time.perf_counter()
    native = library.open(packed)
    opened_ms = 1e3 * (time.perf_counter() - start)
    times = one_row(model, native, test[: options.rows])
    started_ms, start_cpu_ms, memory = cold_start(packed, test[0])
    n_different, largest = differences(model, native, test[: options.texts])
    met = [
        times["row"] <= GOALS_US[name], started_ms <= GOAL_START_MS, memory["RssAnon"] <= GOAL_MB, n_different == 0,
        largest <= GOAL_ERROR,
    ]  # fmt: skip
    return [
        name, f"{native.n_labels:,}", f"{native.n_features:,}", f"{packed.stat().st_size / MB:.1f}",
        f"{times['row']:.0f}", f"{times['row_python']:.0f}", f"{times['text']:.0f}", f"{times['text_python']:.0f}",
        f"{opened_ms:.1f}", f"{started_ms:.1f}", f"{start_cpu_ms:.1f}", f"{memory['RssAnon']:.1f}",
        f"{memory['RssFile']:.1f}",
        f"{n_different} of {min(len(test), options.texts):,}", f"{largest:.1e}", "yes" if all(met) else "no",
    ]  # fmt: skip


COLUMNS = [
    "set", "labels", "features", "file MB", "row µs", "row Python µs", "text µs", "text Python µs", "open ms",
    "start ms", "start CPU ms", "own MB", "mapped MB", "lists that differ", "largest difference", "goals met",
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(READERS), choices=list(READERS))
    parser.add_argument("--texts", type=int, default=1000, help="test texts compared with Python")
    parser.add_argument("--rows", type=int, default=300, help="test texts whose rows are timed")
    options = parser.parse_args()
    targets = [f"build/native/{name}" for name in ("libwidemargin.so", "widemargin-native")]
    subprocess.run(["make", "--no-print-directory", "-C", str(ROOT), *targets], check=True, stdout=subprocess.DEVNULL)
    MODELS.mkdir(parents=True, exist_ok=True)
    rows = [row for row in (measure(name, options) for name in options.sets) if row is not None]
    if not rows:
        return
    table = format_table(COLUMNS, rows)
    print(table)
    if options.sets == list(READERS):
        write_result("native", "Native inference", [__doc__.split("\n\n", 2)[2], table, describe_machine()])


if __name__ == "__main__":
    main()
