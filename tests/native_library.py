"""The C interface through ctypes, and a build of it for tests: `WIDEMARGIN_NATIVE` names a folder that has one."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", f"-I{ROOT}/cpp", f"-I{ROOT}/include"]
VERIFY = 1
OK, ARGUMENT, FILE, FORMAT, UNSUPPORTED = range(5)
DOUBLES, INTEGERS = ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64)


class Contribution(ctypes.Structure):
    _fields_ = (("feature", ctypes.c_int64), ("value", ctypes.c_double), ("contribution", ctypes.c_double))


class Explained(NamedTuple):
    features: list[int]
    values: list[float]
    contributions: list[float]
    intercept: float
    score: float


class NativeError(Exception):
    """A status other than 0, and its message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def build(folder: Path) -> None:
    """Compile the shared library and the static program into a folder."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None or not (ROOT / "cpp" / "native").is_dir():
        pytest.skip("there is no C++ compiler, or there are no sources")
    for name in ("widemargin", "main"):
        run(compiler, *FLAGS, "-c", f"{ROOT}/cpp/native/{name}.cpp", "-o", f"{folder}/{name}.o")
    run(compiler, "-shared", "-pthread", f"{folder}/widemargin.o", "-o", f"{folder}/libwidemargin.so")
    objects = [f"{folder}/main.o", f"{folder}/widemargin.o"]
    run(compiler, "-static", "-pthread", *objects, "-o", f"{folder}/widemargin-native")


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


class Library:
    """The functions of the shared library; errors are exceptions."""

    def __init__(self, path: Path) -> None:
        self.raw = ctypes.CDLL(str(path))
        self.raw.wm_error_message.restype = ctypes.c_char_p
        self.raw.wm_close.argtypes = [ctypes.c_void_p]
        self.raw.wm_close.restype = None

    def check(self, status: int) -> None:
        if status != OK:
            raise NativeError(status, self.raw.wm_error_message().decode())

    def open(self, path: object, flags: int = 0) -> Model:
        handle = ctypes.c_void_p()
        self.check(self.raw.wm_open(str(path).encode(), flags, ctypes.byref(handle)))
        return Model(self, handle)


class Model:
    """An open model."""

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self.library, self.handle = library, handle
        labels, features, texts = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int()
        described = library.raw.wm_describe(handle, ctypes.byref(labels), ctypes.byref(features), ctypes.byref(texts))
        library.check(described)
        self.n_labels, self.n_features, self.takes_texts = labels.value, features.value, bool(texts.value)

    def close(self) -> None:
        self.library.raw.wm_close(self.handle)
        self.handle = ctypes.c_void_p()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self, function: str, index: int) -> str:
        name, length = ctypes.c_void_p(), ctypes.c_size_t()
        call = getattr(self.library.raw, function)
        self.library.check(call(self.handle, ctypes.c_int64(index), ctypes.byref(name), ctypes.byref(length)))
        return ctypes.string_at(name.value, length.value).decode("utf-8", "surrogatepass")

    def label(self, index: int) -> str:
        return self._name("wm_label_name", index)

    def feature(self, index: int) -> str:
        return self._name("wm_feature_name", index)

    def predict(self, row: object, k: int = 5) -> tuple[list[int], list[float]]:
        """Top labels and scores of a text, a dense vector, or a pair (features, values)."""
        labels, scores, n = (ctypes.c_int64 * k)(), (ctypes.c_double * k)(), ctypes.c_size_t()
        kind, arguments = arguments_of(row)
        call = getattr(self.library.raw, f"wm_predict_{kind}")
        out = (ctypes.c_size_t(k), labels, scores, ctypes.byref(n))
        self.library.check(call(self.handle, *arguments, *out))
        return labels[: n.value], scores[: n.value]

    def explain(self, row: object, label: int, capacity: int = 10_000) -> Explained:
        parts, n = (Contribution * capacity)(), ctypes.c_size_t()
        intercept, score = ctypes.c_double(), ctypes.c_double()
        kind, arguments = arguments_of(row)
        call = getattr(self.library.raw, f"wm_explain_{kind}")
        out = (ctypes.c_int64(label), ctypes.c_size_t(capacity), parts, ctypes.byref(n), ctypes.byref(intercept))
        self.library.check(call(self.handle, *arguments, *out, ctypes.byref(score)))
        found = parts[: min(capacity, n.value)]
        columns = zip(*((part.feature, part.value, part.contribution) for part in found), strict=True)
        features, values, contributions = map(list, columns) if found else ([], [], [])
        return Explained(features, values, contributions, intercept.value, score.value)


def arguments_of(row: object) -> tuple[str, tuple[object, ...]]:
    """The kind of a row, and the arguments of a function that takes it."""
    if isinstance(row, str | bytes):
        text = row.encode("utf-8", "surrogatepass") if isinstance(row, str) else row
        return "text", (text, ctypes.c_size_t(len(text)))
    if isinstance(row, tuple):
        features, values = np.array(row[0], dtype=np.int64), np.array(row[1], dtype=np.float64)
        pointers = features.ctypes.data_as(INTEGERS), values.ctypes.data_as(DOUBLES)
        return "sparse", (*pointers, ctypes.c_size_t(len(values)))
    values = np.array(row, dtype=np.float64)
    return "dense", (values.ctypes.data_as(DOUBLES), ctypes.c_size_t(len(values)))
