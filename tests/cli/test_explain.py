"""`widemargin predict --explain`: the sums behind the scores, as text and as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import invoke
from widemargin import write_svmlight

FEATURES = ["wool", "milk", "wings", "eggs", "paws", "whiskers"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows of three classes, and a model trained on them."""
    path = tmp_path_factory.mktemp("explain")
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = rng.random((30, 6)) * (rng.random((30, 6)) < 0.3)
    X[np.arange(30), 2 * y] += 1
    write_svmlight(path / "rows.svm", sp.csr_array(X), y)
    (path / "names.txt").write_text("\n".join(FEATURES) + "\n")
    invoke("train", path / "rows.svm", "--features", path / "names.txt", "--method", "top-k", "-o", path / "model")
    return path


def test_lines_name_features_and_the_runner_up(folder):
    lines = invoke("predict", folder / "model", folder / "rows.svm", "--k", 1, "--explain").stdout.splitlines()
    first = lines[: next(i for i in range(1, len(lines)) if not lines[i].startswith(" "))]
    assert first[0].startswith("0\t")
    assert "ahead of" in first[1]
    assert any(line.strip().endswith("wool") for line in first)
    assert sum(not line.startswith(" ") for line in lines) == 30


def test_json_has_an_explanation_for_each_label_that_adds_up_to_its_score(folder):
    arguments = ("predict", folder / "model", folder / "rows.svm", "--k", 2, "--explain", "--explain-features", 2)
    rows = [json.loads(line) for line in invoke(*arguments, "--json").stdout.splitlines()]
    assert len(rows) == 30
    for row in rows:
        assert [why["label"] for why in row["explanations"]] == row["labels"]
        for why, score in zip(row["explanations"], row["scores"], strict=True):
            parts = why["to_score"]
            listed = [part["contribution"] for part in parts["features"]]
            assert len(listed) <= 2
            assert sum(listed) + parts["others"] + parts["intercept"] == pytest.approx(score, abs=1e-6)


def test_a_kernel_model_is_refused_with_a_remedy(folder):
    invoke("train", folder / "rows.svm", "--method", "top-k", "--kernel", "rbf", "-o", folder / "kernel")
    result = invoke("predict", folder / "kernel", folder / "rows.svm", "--explain", exit_code=1)
    assert "kernel='linear'" in result.stderr
