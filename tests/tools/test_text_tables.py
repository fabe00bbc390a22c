"""`tools/text_tables.py`: the checked-in tables of the native program are those of this Python."""

from __future__ import annotations

import runpy
import unicodedata
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "text_tables.py"


@pytest.mark.slow
def test_the_tables_are_those_of_this_python():
    tool = runpy.run_path(str(TOOL))
    text = tool["HEADER"].read_text()
    if f'UNICODE_VERSION = "{unicodedata.unidata_version}"' not in text:
        pytest.skip(f"the tables are of another version of Unicode than {unicodedata.unidata_version}")
    assert tool["header"]() == text
