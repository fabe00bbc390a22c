"""The C++ text reader on bytes in memory, and outcomes of parsers that can be compared exactly."""

from __future__ import annotations

import dataclasses

import numpy as np

from widemargin import _core
from widemargin.data.text import Problem, TextFormat, TextProblem


def core_parse(text, options, dtype=np.float32, *, n_threads=1, block_bytes=None, stops=False):
    """Arrays and statistics from the C++ reader, fed in blocks of the given size; raises TextProblem.

    After a problem the reader ignores further blocks; a caller that `stops` gives it none.
    """
    kind = "Xmc" if options.format == TextFormat.XMC else "Svmlight"
    reader = getattr(_core, f"{kind}Reader{8 * np.dtype(dtype).itemsize}")(
        int(options.format),
        -1 if options.base is None else options.base,
        -1 if options.n_features is None else options.n_features,
        options.refuse_disorder,
        options.max_nonzeros,
        n_threads,
    )
    step = block_bytes or max(1, len(text))
    for start in range(0, len(text), step):
        if not reader.feed(np.frombuffer(text[start : start + step], dtype=np.uint8)) and stops:
            break
    if not reader.finish():
        raise TextProblem(Problem(reader.problem), reader.line, reader.token, reader.counts)
    return reader.take()


def outcome(parse, *args, **kwargs):
    """Arrays as bytes and statistics, or the problem, in a form that can be compared exactly."""
    try:
        result = parse(*args, **kwargs)
    except TextProblem as problem:
        return problem.problem, problem.line, problem.token, tuple(problem.counts)
    if dataclasses.is_dataclass(result):
        result = dataclasses.asdict(result)
    return {name: (v.dtype.str, v.tobytes()) if isinstance(v, np.ndarray) else v for name, v in result.items()}
