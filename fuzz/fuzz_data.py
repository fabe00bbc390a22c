"""Fuzz the data readers with randomly damaged stores, arrays, gzipped text, names and trees.

    python fuzz/fuzz_data.py --cases 20000 [--seed 0] [--keep]

Seven of eight damaged stores are signed (the hashes in `store.json` are corrected). A case must end in a
`DataFormatError`, or in arrays that are valid and can be scored. Anything else, including a case that takes longer than
`TIME_LIMIT_S`, is a finding.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import sys
import tempfile
import warnings
import zipfile
from functools import cache
from pathlib import Path

import mutations
import numpy as np
import scipy.sparse as sp
from mutations import Files, pick

from widemargin import Taxonomy
from widemargin.data.load import load_data
from widemargin.data.store import open_store, write_matrix, write_npz, write_store
from widemargin.exceptions import DataFormatError
from widemargin.problems.scores import LinearScorer

CORPUS = Path(__file__).parent / "corpus" / "data"
MOST_DAMAGES = 3
MOST_COLUMNS = 10**6
TREE = "child\tparent\nb\ta\nc\ta\n# a comment\nd\tb\n"
TEXT = "3 4 2\n0 0:1 2:0.5\n1,0 1:2\n 3:1e-3\n"


def read_folder(folder: str) -> Files:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@cache
def valid_data() -> list[Files]:
    """Stores of all kinds of arrays, and files of all formats; if there are several files, one is loaded."""
    rng = np.random.default_rng(0)
    X = sp.random_array((6, 5), density=0.5, format="csr", dtype=np.float32, random_state=rng)
    Y = sp.csr_array(rng.random((6, 3)) < 0.5).astype(np.int8)
    words = np.array(["a", "bb", "a", "c", "bb", "a"])
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        stores = [
            {"X": X, "Y": Y, "label_names": ["a", "b", "ç"], "feature_names": list("vwxyz")},
            {"X": X.toarray(), "Y": np.arange(6) % 3},
            {"X": X.astype(np.float64), "Y": words},
            {"X": X.toarray().astype(np.float64), "Y": Y.toarray()},
        ]
        for number, parts in enumerate(stores):
            write_store(Path(scratch) / str(number), **parts)
            found.append(read_folder(f"{scratch}/{number}"))
        folder = Path(scratch) / "files"
        folder.mkdir()
        write_npz(folder / "data.npz", X, Y)
        write_npz(folder / "words.npz", X.toarray(), words)
        np.savez_compressed(folder / "packed.npz", X=X.toarray(), y=np.arange(6))
        write_matrix(folder / "X.npz", X)
        write_matrix(folder / "X.npy", X.toarray())
        (folder / "text.txt.gz").write_bytes(gzip.compress(TEXT.encode(), mtime=0))
        (folder / "svm.txt").write_bytes(b"1 1:0.5 3:1\n-1 2:1\n1,2 1:1\n")
        (folder / "tree.tsv").write_bytes(TREE.encode())
        found += [{name: data} for name, data in read_folder(str(folder)).items()]
        found.append({"X.npy": (folder / "X.npy").read_bytes(), "Y.npz": (folder / "X.npz").read_bytes()})
        found.append({"text.txt": TEXT.encode(), "labels.txt": b"one\ntwo\n"})
    return found


def sign(files: Files) -> None:
    """Correct the hashes in `store.json`."""
    try:
        manifest = json.loads(files["store.json"])
        for part in mutations.containers(manifest):
            for name in part if isinstance(part, dict) else ():
                if name in files and isinstance(part[name], dict):
                    part[name]["sha256"] = hashlib.sha256(files[name]).hexdigest()
        for kind in ("label_names", "feature_names"):
            if isinstance(manifest.get(kind), dict) and f"{kind}.txt" in files:
                manifest[kind]["sha256"] = hashlib.sha256(files[f"{kind}.txt"]).hexdigest()
        files["store.json"] = json.dumps(manifest).encode()
    except (ValueError, RecursionError, AttributeError):
        return


def replace_array(files: Files, choices) -> None:
    """Change a value, the type or the shape of an array, and describe it in `store.json` if there is one."""
    name = pick(choices, [name for name in sorted(files) if name.endswith(".npy")] or [""])
    changed = mutations.damage_array(files.get(name, b""), choices)
    if changed is None:
        return
    files[name], dtype, shape = changed
    try:
        manifest = json.loads(files.get("store.json", b""))
        for matrix in (manifest.get("X"), manifest.get("Y")):
            if isinstance(matrix, dict) and name in matrix.get("files", {}):
                matrix["files"][name] |= {"dtype": dtype, "shape": shape}
                if matrix.get("kind") == "dense":
                    matrix["shape"] = shape
        files["store.json"] = json.dumps(manifest).encode()
    except (ValueError, RecursionError, AttributeError, TypeError):
        return


def repack(name: str, data: bytes, choices) -> bytes:
    """Damage the content of an archive or a gzip stream, and pack it again."""
    try:
        if name.endswith(".gz"):
            return gzip.compress(mutations.damage_bytes(gzip.decompress(data), choices), mtime=0)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        member = pick(choices, sorted(members))
        changed = mutations.damage_array(members[member], choices) if choices.below(4) else None
        members[member] = changed[0] if changed else mutations.damage_bytes(members[member], choices)
        if choices.below(8) == 0:
            del members[member]
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return buffer.getvalue()
    except mutations.READ_ERRORS:
        return data


def damaged_data(choices) -> Files:
    files = dict(pick(choices, valid_data()))
    is_store = "store.json" in files
    for _ in range(1 + choices.below(MOST_DAMAGES)):
        kind, name = choices.below(8), pick(choices, sorted(files))
        if is_store and kind < 3:
            mutations.damage_json(files, "store.json", choices)
        elif kind < 6 and any(other.endswith(".npy") for other in files):
            replace_array(files, choices)
        elif kind < 6 and name.endswith((".npz", ".gz")):
            files[name] = repack(name, files[name], choices)
        else:
            files[name] = mutations.damage_bytes(files[name], choices)
    if is_store and choices.below(8):
        sign(files)
    return files


def check_matrix(matrix) -> None:
    """Check what every matrix that was read and verified must satisfy; assertions and crashes are findings."""
    if matrix is None:
        return
    if sp.issparse(matrix):
        matrix.check_format(full_check=True)
    values = matrix.data if sp.issparse(matrix) else np.asarray(matrix)
    assert values.dtype.kind in "biufU"
    assert values.dtype.kind != "f" or np.isfinite(values).all()
    values.tolist()
    if matrix.ndim == 2 and matrix.shape[1] <= MOST_COLUMNS and values.dtype.kind != "U":
        LinearScorer(np.ones((3, matrix.shape[1]))).top_k(matrix, 2)


def use(files: Files, folder: Path) -> None:
    if "store.json" in files:
        open_store(folder)
        store = open_store(folder, verify=True)
        check_matrix(store.X)
        check_matrix(store.Y)
    if "tree.tsv" in files:
        assert Taxonomy.from_tsv(folder / "tree.tsv").n_nodes >= 1
        return
    path = folder if "store.json" in files else folder / sorted(files, key=lambda name: name.startswith(("Y", "l")))[0]
    data = load_data(path)
    check_matrix(data.X)
    check_matrix(data.Y)
    assert data.X.ndim == 2


def run_case(files: Files, folder: Path) -> str:
    """Read the data and return the outcome without numbers and names."""
    mutations.write_files(files, folder)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            use(files, folder)
        except DataFormatError as error:
            where = "store" if "store.json" in files else sorted(files)[0]
            problem = f"{error.problem}; {error.remedy}"
            return f"{where}: " + re.sub(r"\(.*\)|'[^']*'|\[[^]]*\]|\d+", "…", problem)
    return "loaded"


if __name__ == "__main__":
    sys.exit(mutations.fuzz(damaged_data, run_case, CORPUS, mutations.parse_options(__doc__)))
