"""Fuzz the reader of model folders: damage a small valid model at random, over and over.

    python fuzz/fuzz_model_loader.py --cases 30000 [--seed 0] [--keep]
    python fuzz/fuzz_model_loader.py --engine atheris --seconds 600

Every outcome must be a `ModelFormatError`, or a state whose arrays are valid and can be scored. Anything else,
including a case that takes longer than `TIME_LIMIT_S`, is a finding and is kept in `fuzz/failures`. Half of the damaged
models are signed (size and hash in the manifest are corrected), to reach the checks behind the hashes. Half of them are
packed into one file, `model.wm`, which is damaged, too; most of these have a correct directory. fuzz_models.py checks
what estimators do with a state.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import struct
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import mutations
import numpy as np
import scipy.sparse as sp
from mutations import ByteChoices, Files, pick

import widemargin.model_io.read
import widemargin.model_io.state
from widemargin.data.training_rows import write_segment
from widemargin.exceptions import ModelFormatError
from widemargin.model_io import ModelState, describe_model, write_model
from widemargin.problems.compressed import LABELS_PER_BLOCK, CompressedWeights
from widemargin.problems.scores import LinearScorer

CORPUS = Path(__file__).parent / "corpus" / "model_loader"
PACKED = "model.wm"
MOST_DAMAGES = 4


def valid_model() -> Files:
    """The files of a small model that uses all parts of the format, without its store of rows, which nobody opens."""
    coef = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]], dtype=np.float32))
    weights = CompressedWeights.of(coef, bits=8)
    lists = {f"compressed_{name}": getattr(weights, name) for name in CompressedWeights.ARRAYS}
    state = ModelState(
        "OneVsAllClassifier",
        {"C": 1.0, "class_weight": {0: 2.0}, "shape": (1, 2), "tol": float("inf")},
        {
            "coef": coef,
            "intercept": np.array([0.5, -0.5, 0.0]),
            "dense": np.ones((2, 3)),
            "none": np.empty((0, 2)),
            **lists,
        },
        labels=["a", "b", 3],
        feature_names=["x", "y", "z"],
        certificate={"primal": 1.0, "dual": 0.5},
        history={"primal": np.array([2.0, np.nan])},
        row_ids=["first", "second"],
    )
    with tempfile.TemporaryDirectory() as folder:
        name = write_segment(folder, np.eye(2, 3)).path
        write_model(folder, replace(state, stores={name: f"{folder}/{name}"}))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def sign(files: Files) -> None:
    """Correct sizes and hashes in the manifest so that only the content is wrong."""
    try:
        manifest = json.loads(files["model.json"])
    except (ValueError, RecursionError):
        return
    for entry in mutations.containers(manifest):
        name = entry.get("file") if isinstance(entry, dict) else None
        if isinstance(name, str) and name in files:
            entry["size"], entry["sha256"] = len(files[name]), hashlib.sha256(files[name]).hexdigest()
    files["model.json"] = json.dumps(manifest).encode()


def damaged_model(valid: Files, choices) -> Files:
    files = dict(valid)
    for _ in range(1 + choices.below(MOST_DAMAGES)):
        if choices.below(2):
            mutations.damage_json(files, "model.json", choices)
        else:
            name = pick(choices, sorted(files))
            if choices.below(16) == 0 and name != "model.json":
                del files[name]
            else:
                files[name] = mutations.damage_bytes(files[name], choices)
    if choices.below(2):
        sign(files)
    return {PACKED: packed(files, choices)} if choices.below(2) else files


def packed(files: Files, choices) -> bytes:
    """The files as one, by the documented layout; a part of the directory, or a few bytes, may be wrong."""
    table = {name: {"offset": 0, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
             for name, data in sorted(files.items())}  # fmt: skip
    room = 64 * (2 + 3 * len(files))  # for the directory, padded with spaces
    end = 64 + room
    for entry in table.values():
        entry["offset"] = end
        end = -(-(end + entry["size"]) // 64) * 64
    body = bytearray(end - 64 - room)
    for name, data in files.items():
        start = table[name]["offset"] - 64 - room
        body[start : start + len(data)] = data
    directory: Files = {"files": json.dumps({"files": table}).encode()}
    if choices.below(4) == 0:
        mutations.damage_json(directory, "files", choices)
    text = directory["files"][:room].ljust(room)
    head = struct.pack("<16sIIQ", b"\x89widemargin\r\n\x1a\n\x00", 1, 0, room) + hashlib.sha256(text).digest()
    whole = head + text + bytes(body)
    return mutations.damage_bytes(whole, choices) if choices.below(3) == 0 else whole


def check_state(state: ModelState, verified: bool) -> None:
    """Check what every state that was read must satisfy; assertions and crashes are findings."""
    assert all(isinstance(part, dict) for part in (state.params, state.attributes, state.arrays, state.history))
    assert state.row_ids is None or all(isinstance(name, str) for name in state.row_ids)
    assert all(Path(path) == Path(state.folder) / name for name, path in state.stores.items())
    for array in state.arrays.values():
        if sp.issparse(array) and verified:
            array.check_format(full_check=True)
        if verified:
            assert np.isfinite(array.data if sp.issparse(array) else np.asarray(array)).all()
    check_lists(state, verified)
    coef = state.arrays.get("coef")
    if coef is None or coef.ndim != 2 or coef.shape[1] > 10**6:
        return
    try:
        LinearScorer(coef).top_k(np.ones((1, coef.shape[1])), 2)
    except ValueError:
        assert not verified  # without `verify` an index may be out of range; the scorer reports it


def check_lists(state: ModelState, verified: bool) -> None:
    """Check that compressed weights are refused or scored; labels are read only with `verify`."""
    arrays = {name: state.arrays.get(f"compressed_{name}") for name in CompressedWeights.ARRAYS}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()) or arrays["starts"].ndim != 3:
        return
    weights = CompressedWeights(**arrays, labels_per_block=LABELS_PER_BLOCK)
    shape = len(arrays["scale"]) if arrays["scale"].ndim else 0, arrays["starts"].shape[1] - 1
    if shape[0] > 10**6 or not 0 <= shape[1] <= 10**6:
        return
    try:
        weights.check(shape, labels=verified)
        LinearScorer(weights).top_k(np.ones((1, shape[1])), 2)
        if verified:
            weights.tocsr()
    except ValueError:
        return


def run_case(files: Files, folder: Path) -> str:
    """Read the model with and without `verify`; return the outcome without numbers and names."""
    mutations.write_files(files, folder)
    folder = folder / PACKED if list(files) == [PACKED] else folder
    outcomes = []
    for verify in (True, False, None):
        try:
            if verify is None:
                describe_model(folder)
            else:
                check_state(widemargin.model_io.read.read_model(folder, verify=verify), verified=verify)
            outcomes.append("loaded")
        except ModelFormatError as error:
            outcomes.append(re.sub(r"\(.*\)|'[^']*'|\d+", "…", str(error).split(": ", 1)[-1]))
    return " | ".join(outcomes)


def fuzz_with_atheris(seconds: float) -> None:
    """Coverage-guided fuzzing: atheris's bytes are the choices."""
    import atheris

    for module in (widemargin.model_io.read, widemargin.model_io.state):
        for name, member in list(vars(module).items()):
            if inspect.isfunction(member):
                setattr(module, name, atheris.instrument_func(member))
    valid, folder = valid_model(), mutations.scratch_folder() / "model"
    print(f"the case being run is in {folder}")

    def test_one_input(data: bytes) -> None:
        files = damaged_model(valid, ByteChoices(data))
        try:
            run_case(files, folder)
        except BaseException:
            print(f"finding, kept as {mutations.keep_case(files, CORPUS)}")
            raise

    atheris.Setup([sys.argv[0], f"-max_total_time={int(seconds)}", "-print_final_stats=1"], test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    arguments = mutations.parse_options(__doc__)
    if arguments.engine == "atheris":
        fuzz_with_atheris(arguments.seconds)
    else:
        undamaged = valid_model()
        sys.exit(mutations.fuzz(lambda choices: damaged_model(undamaged, choices), run_case, CORPUS, arguments))
