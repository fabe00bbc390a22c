"""The C++ text reader gives the same arrays, or the same problem and line, as its plain Python twin."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_text_reader import core_parse, outcome
from hypothesis_examples import examples
from reference.text_reader import parse_text
from widemargin import _core
from widemargin.data.text import Problem, TextFormat, TextOptions, TextProblem

options_strategy = st.builds(
    TextOptions,
    format=st.sampled_from(TextFormat),
    base=st.sampled_from([None, 0, 1]),
    n_features=st.none() | st.integers(0, 9),
    refuse_disorder=st.booleans(),
    max_nonzeros=st.sampled_from([2**31 - 1, 2**31 - 1, 3]),
).map(lambda o: o if o.format != TextFormat.XMC else dataclasses.replace(o, n_features=None))

ODD_NUMBERS = """0 1 -1 0.5 .5 5. +3 1e5 1e-3 00012 1e400 -1e39 nan -Inf infinity x 1_0 0x1 1e 1e+ e5 . + --1 1.2.3
    12345678901234567890 0.1000000001 16777217 1e-46 3.4028235677973366e38"""
ODD_INDICES = """0 1 2 3 5 8 9 10 2147483646 2147483647 99999999999999999999 000000000000000000000004
    -1 +1 x 1.0 qid"""
number = st.sampled_from(ODD_NUMBERS.split()) | st.just("")
index = st.sampled_from(ODD_INDICES.split()) | st.just("")
small_index = st.integers(0, 6).map(str)
feature = st.builds("{}:{}".format, small_index | index, st.floats(width=32).map(repr) | number) | st.builds(
    "{}:{}".format, small_index, st.floats(-2, 2, width=16).map(repr)
)
label_list = st.lists(small_index, max_size=4).map(",".join) | st.lists(index | number, max_size=4).map(",".join)
blank = st.sampled_from([" ", " ", " ", "  ", "\t"])
ending = st.sampled_from(["\n", "\n", "\n", "\r\n", " \n", " # note\n", "#\n", "\r", "\n\n", ""])
row = st.builds(
    lambda labels, features, gap, end: labels + "".join(gap + f for f in features) + end,
    label_list, st.lists(feature, max_size=5), blank, ending,
)  # fmt: skip
good_header = st.sampled_from(["2 7 7\n", "3 7 7\n", "1 7 7\n", "# c\n4 7 7 # d\n", "\n\n3 9 9\r\n", "\ufeff2 7 7\n"])
header = good_header | st.sampled_from(["0 0 0\n", "2 7\n", "1 7 x\n", "1 -7 7\n", "", "9999999999 1 1\n"])
well_formed_row = st.builds(
    lambda labels, features: labels + "".join(" " + f for f in features) + "\n",
    st.lists(small_index, max_size=3).map(",".join),
    st.lists(st.builds("{}:{}".format, small_index, st.floats(-1e6, 1e6).map(repr)), max_size=4),
)
text_strategy = st.builds(
    lambda first, rows: (first + "".join(rows)).encode(),
    header,
    st.lists(row | well_formed_row, max_size=5) | st.lists(well_formed_row, max_size=4),
)


@examples(400)
@given(text_strategy, options_strategy, st.sampled_from([np.float32, np.float64]), st.sampled_from([None, 1, 7]))
@pytest.mark.slow
def test_reader_agrees_with_its_twin(text, options, dtype, block_bytes):
    expected = outcome(parse_text, text, options, dtype)
    assert outcome(core_parse, text, options, dtype, block_bytes=block_bytes) == expected


@examples(200)
@given(text_strategy, options_strategy, st.data())
@pytest.mark.slow
def test_reader_agrees_with_its_twin_on_damaged_text(text, options, data):
    damaged = bytearray(text)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    expected = outcome(parse_text, bytes(damaged), options)
    assert outcome(core_parse, bytes(damaged), options, block_bytes=5) == expected


@examples(300)
@given(
    st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda v: str(np.float32(v)))
    | st.from_regex(r"[0-9]{1,25}(\.[0-9]{0,25})?(e[+-]?[0-9]{1,3})?", fullmatch=True)
)
@pytest.mark.slow
def test_numbers_are_those_of_python_rounded_to_the_type(written):
    text = f"1 1:{written}\n".encode()
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            expected = np.dtype(dtype).type(float(written))
        if np.isfinite(expected):
            parsed = core_parse(text, TextOptions(TextFormat.SVMLIGHT), dtype)
            assert parsed["data"].tobytes() == expected.tobytes()
        else:
            with pytest.raises(TextProblem, match="NOT_FINITE"):
                core_parse(text, TextOptions(TextFormat.SVMLIGHT), dtype)


def big_text(n_rows, rng):
    rows = []
    for _ in range(n_rows):
        features = np.sort(rng.choice(1000, size=rng.integers(0, 30), replace=False))
        labels = np.sort(rng.choice(50, size=rng.integers(0, 4), replace=False))
        rows.append(",".join(map(str, labels)) + "".join(f" {j}:{v:.4g}" for j, v in zip(features, rng.random(30))))  # noqa: B905
    return rows


@pytest.mark.parametrize("n_threads", [2, 3, 7])
@pytest.mark.slow
def test_arrays_do_not_depend_on_threads_and_blocks(n_threads):
    rng = np.random.default_rng(0)
    rows = big_text(3000, rng)
    text = ("3000 1000 50\n" + "\n".join(rows)).encode()
    assert len(text) > 7 * 65536
    expected = outcome(parse_text, text, TextOptions())
    assert outcome(core_parse, text, TextOptions(), n_threads=n_threads) == expected
    assert outcome(core_parse, text, TextOptions(), n_threads=n_threads, block_bytes=200_001) == expected


@pytest.mark.parametrize("bad", [5, 1500, 2990])
def test_first_problem_does_not_depend_on_threads(bad):
    rng = np.random.default_rng(1)
    rows = big_text(3000, rng)
    rows[bad] += " 1000:x"
    rows[-1] += " also:bad"
    text = ("3000 1000 50\n# a comment shifts the lines\n" + "\n".join(rows)).encode()
    for n_threads in (1, 4):
        assert outcome(core_parse, text, TextOptions(), n_threads=n_threads)[:2] == (Problem.BAD_VALUE, bad + 3)


@pytest.mark.parametrize("n_samples", [1, 1000, 2999])
def test_surplus_row_and_nonzero_limit_are_found_at_their_line_in_any_piece(n_samples):
    rows = ["0 1:1"] * 3000
    text = (f"{n_samples} 9 9\n" + "\n".join(rows)).encode() * 1
    assert outcome(core_parse, text, TextOptions(), n_threads=2)[:2] == (Problem.TOO_MANY_ROWS, n_samples + 2)
    text = ("3000 9 9\n" + "\n".join(rows)).encode()
    options = TextOptions(max_nonzeros=n_samples)
    assert outcome(core_parse, text, options, n_threads=2)[:2] == (Problem.TOO_MANY_NONZEROS, n_samples + 2)


def test_binary_file_without_newline_is_refused_before_its_end():
    reader = _core.XmcReader32(0, -1, -1, False, 2**31 - 1, 1)
    assert not reader.feed(np.zeros(100, dtype=np.uint8))
    assert (Problem(reader.problem), reader.line, reader.token) == (Problem.NOT_TEXT, 1, b"0")


def test_problem_numbers_are_those_of_the_core():
    """The names in cpp/text/lines.hpp, in lower case, with the same numbers."""

    header = (Path(__file__).parents[2] / "cpp" / "text" / "lines.hpp").read_text()

    enumeration = header.split("enum class Problem")[1].split("};")[0]
    numbers = dict(re.findall(r"^ +([a-z_]+) = (\d+),", enumeration, re.MULTILINE))
    assert numbers.pop("none") == "0"
    assert {name.upper(): int(number) for name, number in numbers.items()} == dict(Problem.__members__)
