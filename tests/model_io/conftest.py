"""Fixtures shared by the tests of the model folder."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.model_io import ModelState


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Hundreds of small models are written here; a separate test checks that files are synced."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def make_state():
    """A function that makes a state with values of every kind."""

    def make(seed=0, labels=("red", "grün", "blue")):
        rng = np.random.default_rng(seed)
        return ModelState(
            kind="OneVsAllClassifier",
            params={"C": 0.1, "tol": 1e-3, "class_weight": {0: 1.5, "a": math.inf}, "shape": (1, None)},
            arrays={
                "coef": sp.random_array((3, 7), density=0.4, format="csr", random_state=rng),
                "intercept": rng.random(3),
            },
            labels=list(labels),
            feature_names=[f"x{i}" for i in range(7)],
            certificate={"primal": 0.1 + 0.2, "dual": -math.inf, "worst": None},
            history={"iteration": np.arange(2), "dual": np.array([np.nan, 1.0])},
            attributes={"n_iter": 3, "seed": seed},
        )

    return make


@pytest.fixture
def assert_same_array():
    """A function that compares arrays including types, and sparse arrays by their parts."""

    def compare(a, b):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if sp.issparse(a):
            for part in ("data", "indices", "indptr"):
                compare(getattr(a, part), getattr(b, part))
        else:
            np.testing.assert_array_equal(a, b)

    return compare


@pytest.fixture
def assert_same_state(assert_same_array):
    """A function that compares everything in two states."""

    def compare(a, b):
        for name in ("kind", "params", "labels", "feature_names", "certificate", "attributes"):
            assert getattr(a, name) == getattr(b, name), name
        for mapping in ("arrays", "history"):
            assert sorted(getattr(a, mapping)) == sorted(getattr(b, mapping))
            for name, array in getattr(a, mapping).items():
                assert_same_array(array, getattr(b, mapping)[name])

    return compare


@pytest.fixture
def same(assert_same_state):
    """A function that returns whether two states are equal."""

    def compare(a, b):
        try:
            assert_same_state(a, b)
        except AssertionError:
            return False
        return True

    return compare


@pytest.fixture
def contents():
    """A function that returns the bytes of the files in a folder."""
    return lambda folder: {path.name: path.read_bytes() for path in folder.iterdir()}
