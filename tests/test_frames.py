"""Results as data frames and as HTML: the same numbers, everything escaped, and pandas only when it is asked for."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from widemargin import (
    Certificate,
    Comparison,
    Contributions,
    Explanation,
    HierarchicalClassifier,
    History,
    LabelExplanation,
    OneVsAllClassifier,
    PathResult,
    TopK,
    TopKClassifier,
    Tuning,
    path,
)
from widemargin._frames import MOST_ROWS, html_table
from widemargin.comparison import MethodResult
from widemargin.comparison.measure import Cost, Interval
from widemargin.exceptions import MissingExtraError
from widemargin.problems.certificate import WorstProblem

HOSTILE = '<script>alert("x")</script>'


class Cells(HTMLParser):
    """The texts of a table by row, and the names of all tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.caption = set(), [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        self.current = tag

    def handle_endtag(self, tag):
        self.current = None

    def handle_data(self, data):
        if self.current in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.current == "caption":
            self.caption += data


def method(name, estimator, parameters, mean, cpu_s):
    cost = Cost(cpu_s, float("nan"), 1000, 1e-6)
    return MethodResult(
        name, estimator, parameters, {"accuracy": Interval(mean, mean - 0.1, mean + 0.1)}, cost, 1e-4, False
    )


def results():
    """One result of each class, with a hostile name wherever names can come from the user."""
    terms = Contributions(1.0, 0.25, (HOSTILE, "milk"), (7, 2), (2.0, 1.0), (1.5, -0.75))
    why = LabelExplanation(HOSTILE, terms, "dog", terms)
    outcomes = {HOSTILE: np.array([1.0, 1.0, 0.0]), "top-k": np.array([0.0, 1.0, 0.0])}
    methods = (
        method(HOSTILE, OneVsAllClassifier(C=2.0), {"C": [2.0, 2.0, 1.0]}, 0.8, 2.0),
        method("top-k", TopKClassifier(C=1.0, k=3), {"C": [1.0], "k": [3]}, 0.7, 1.0),
    )
    return {
        "comparison": Comparison(methods, outcomes, "accuracy", {}, {}),
        "contributions": terms,
        "label explanation": why,
        "explanation": Explanation((why,)),
        "top-k": TopK(np.array([[HOSTILE, None]], dtype=object), np.array([[0.5, -np.inf]]), np.array([[1, -1]])),
        "tuning": Tuning((HOSTILE,), ({HOSTILE: 1.0}, {HOSTILE: 2.0}), (Interval(0.5, 0.4, 0.6), None), "p", 3, 9, 0),
        "path": PathResult(
            ("C",), History({"C": np.array([1.0, 2.0]), HOSTILE: np.array([0.5, 0.25])}), {}, (HOSTILE,)
        ),
        "certificate": Certificate(10.0, 9.0, 29.0, 10.0, n_problems=2, worst=WorstProblem(3, 2.0, 1.0, 0.5)),
    }


@pytest.mark.parametrize("name", results())
def test_html_escapes_every_name_and_has_the_rows_of_the_frame(name):
    result = results()[name]
    found = Cells(result._repr_html_())
    assert found.tags == {"table", "caption", "tr", "th", "td"}
    text = " ".join([found.caption, *(cell for row in found.rows for cell in row)])
    assert HOSTILE in text or name == "certificate"
    frame = result.to_frame()
    assert [column for column in found.rows[0] if column] == list(frame.columns)
    assert len(found.rows) == 1 + len(frame)


@pytest.mark.parametrize("name", results())
def test_without_pandas_the_error_says_how_to_install_it(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = results()[name]
    with pytest.raises(MissingExtraError, match=r"^to_frame requires pandas; run: pip install pandas$"):
        result.to_frame()
    assert result._repr_html_().startswith("<table>")


def test_the_plain_repr_stays():
    found = results()
    assert repr(found["certificate"]).startswith("Certificate(primal=10.0, dual=9.0, ")
    assert repr(found["top-k"]).startswith("TopK(labels=array(")
    assert str(found["contributions"]).splitlines()[-1] == "+0.25  (intercept)"


def test_long_tables_end_in_dots_and_numbers_have_four_digits():
    found = Cells(html_table({"x": [1 / 3, np.float32(2.0), float("nan"), None, True, *range(MOST_ROWS)]}))
    assert [row[0] for row in found.rows[1:6]] == ["0.3333", "2", "", "", "True"]
    assert len(found.rows) == 1 + MOST_ROWS + 1
    assert found.rows[-1] == ["…"]


def test_a_certificate_is_one_row():
    expected = {
        "primal": 10.0, "dual": 9.0, "gap": 1.0, "relative_gap": 0.1, "decrease_gap": 0.05, "primal_at_zero": 29.0,
        "primal_before_pruning": 10.0, "n_problems": 2, "worst_index": 3, "worst_relative_gap": 0.5,
    }  # fmt: skip
    assert results()["certificate"].to_frame().to_dict("records") == [expected]
    single = Certificate(10.0, 9.0, 29.0, 10.0).to_frame()
    assert list(single.columns) == list(expected)
    assert single[["worst_index", "worst_relative_gap"]].isna().all(axis=None)


def test_lists_have_one_row_per_listed_label():
    X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]] * 4)
    y = np.array(["none", "right", "up"] * 4)
    lists = OneVsAllClassifier(C=10.0).fit(X, y).predict_topk(X[:3], k=2)
    frame = lists.to_frame()
    assert frame["row"].tolist() == [0, 0, 1, 1, 2, 2]
    assert frame["rank"].tolist() == [1, 2] * 3
    wide = frame.pivot(index="row", columns="rank", values="label").to_numpy()
    assert np.array_equal(wide, lists.labels)
    assert frame["score"].tolist() == lists.scores.ravel().tolist()
    assert "top 2 labels of 3 rows" in lists._repr_html_()


@pytest.mark.parametrize("kind", ["flat", "tree"])
def test_contributions_of_a_frame_add_up_to_scores(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), np.array(["a/x", "a/y", "b/z"] * 20)
    model = (TopKClassifier() if kind == "flat" else HierarchicalClassifier(random_state=0)).fit(X, y)
    explanation = model.explain(X[0], k=3)
    frame = explanation.to_frame()
    whole = frame[frame["step"].isna()]
    sums = whole.groupby(["label", "sum"])["contribution"].sum()
    scores = pd.Series(model.decision_function(X[:1])[0], index=model.classes_)
    for label in model.classes_:
        assert sums[label, "score"] == pytest.approx(scores[label])
        assert sums[label, "margin"] == pytest.approx(scores[label] - scores.drop(label).max())
    assert whole.loc[whole["sum"] == "score", "runner_up"].isna().all()
    steps = frame[frame["step"].notna()]
    assert set(steps["step"]) == ({"a", "b", "a/x", "a/y", "b/z"} if kind == "tree" else set())
    if kind == "tree":
        own = steps[(steps["label"] == "a/x") & (steps["step"] == "a") & (steps["sum"] == "score")]
        nodes = list(model.taxonomy_.nodes[1:])
        assert own["contribution"].sum() == pytest.approx(model.node_scores(X[:1])[0, nodes.index("a")])
    assert explanation["a/x"].to_frame().equals(frame[frame["label"] == "a/x"].reset_index(drop=True))


def test_a_path_has_the_columns_of_its_table():
    X, y = np.arange(12.0)[:, None], np.arange(12) > 5
    result = path(OneVsAllClassifier(), X, y, Cs=[0.1, 1.0], X_test=X, y_test=y)
    pd.testing.assert_frame_equal(result.to_frame(), pd.DataFrame(dict(result.table)))
    assert f"the best row is {result.best_index}" in result._repr_html_()


def test_a_tuning_and_a_comparison_show_what_was_chosen():
    found = results()
    tuned = found["tuning"].to_frame()
    assert tuned["best"].tolist() == [True, False]
    assert tuned["mean"].tolist()[0] == 0.5
    assert tuned.loc[1, ["mean", "low", "high"]].isna().all()
    compared = found["comparison"].to_frame()
    assert compared["method"].tolist() == [HOSTILE, "top-k"]
    assert compared["C"].tolist() == [2.0, 1.0]
    assert np.isnan(compared["k"][0])
    assert compared["k"][1] == 3
    assert compared[["accuracy", "accuracy_low", "accuracy_high"]].to_numpy()[0] == pytest.approx([0.8, 0.7, 0.9])
    assert compared["cpu_s"].tolist() == [2.0, 1.0]
    recommended = [m.name == found["comparison"].recommended.name for m in found["comparison"].methods]
    assert compared["recommended"].tolist() == recommended
