"""Axes to draw into."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def ax():
    return Figure().subplots()
