"""What the tests of the model folder share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Hundreds of small models are written here; that files are synced at all is a test of its own."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
