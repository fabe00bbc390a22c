"""The Python twin of the text reader in place of the compiled one."""

from __future__ import annotations

import pytest

from reference.text_reader import parse_text
from widemargin.data import text
from widemargin.exceptions import DataFormatError
from widemargin.files import BrokenGzip, read_blocks


@pytest.fixture
def read_by_twin(monkeypatch):
    """A function after whose call the readers parse with the twin."""

    def parts(path, options, dtype, n_threads, whole):
        blocks = []
        try:
            blocks.extend(block.tobytes() for block in read_blocks(path, text.BLOCK_BYTES))
        except BrokenGzip as error:
            n_lines = sum(block.count(b"\n") for block in blocks)
            problem, remedy = f"{error} after {n_lines} complete lines", "download or compress the file again"
            raise DataFormatError(problem, path=str(path), remedy=remedy) from None
        yield parse_text(b"".join(blocks), options, dtype)

    return lambda: monkeypatch.setattr(text, "_core_parts", parts)
