"""The report as a page: every family, hostile names, bounded size, and numbers checked by separate counts."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TopKClassifier,
    rivals,
)
from widemargin.comparison import Tuning
from widemargin.comparison.measure import Interval
from widemargin.exceptions import MissingExtraError
from widemargin.report import page, write_report
from widemargin.report import pictures as _pictures
from widemargin.report.outcome import label_rows, make_outcome
from widemargin.report.page import quality_of, render_report, worst_mistakes

HOSTILE = np.array(
    ["<script>alert(1)</script>", "$x^2$ & $", "\x00\n</style><b>", "\"' onload=alert(2) x='", "日本語 \u202e<!--"]
)
TREE = Taxonomy.from_edges([(name, "a<b" if place % 2 else "c&d") for place, name in enumerate(HOSTILE)])
N_ROWS = 80
DRAWN = ("labels", "code", "tree")  # the other families have the same pictures, and drawing takes most of the time


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 5, N_ROWS)
    X = rng.normal(size=(N_ROWS, 6))
    X[np.arange(N_ROWS), classes] += 1.5
    return X, classes


def label_sets(classes):
    """The class and, in some rows, the next class."""
    Y = np.eye(5, dtype=int)[classes]
    Y[::3] |= np.roll(Y[::3], 1, axis=1)
    return sp.csr_array(Y)


def several(rows):
    X, classes = rows
    return OneVsAllClassifier().fit(X, label_sets(classes)).set_label_names(list(HOSTILE)), X, label_sets(classes)


def single(estimator):
    return lambda rows: (clone(estimator).fit(rows[0], HOSTILE[rows[1]]), rows[0], HOSTILE[rows[1]])


def binary(rows):
    return TopKClassifier(random_state=0).fit(rows[0], rows[1] > 2), rows[0], rows[1] > 2


CASES = {
    "labels": (several, ["precision", "recall", "bounds", "gap", "active"]),
    "classes": (single(OneVsAllClassifier()), ["top-k", "recall", "bounds", "gap", "active"]),
    "top-k": (single(TopKClassifier(k=2, random_state=0)), ["top-k", "recall", "bounds", "gap", "active"]),
    "kernel": (single(TopKClassifier(kernel="rbf", random_state=0)), ["top-k", "recall", "bounds", "gap", "active"]),
    "binary": (binary, ["top-k", "recall", "bounds", "gap", "active"]),
    "code": (single(OutputCodeClassifier(learn="l2", random_state=0)), ["top-k", "recall", "code"]),
    "code of others": (single(OutputCodeClassifier(LogisticRegression(), random_state=0)), ["top-k", "recall", "code"]),
    "tree": (
        single(HierarchicalClassifier(TREE, random_state=0)),
        ["top-k", "recall", "taxonomy", "confusion", "orthogonality", "bounds", "gap", "active"],
    ),
    "tree, per node": (
        single(HierarchicalClassifier(TREE, method="per-node", k=2, random_state=0)),
        ["top-k", "recall", "taxonomy", "confusion"],
    ),
    "no certificate": (single(rivals.Wsabie(max_iter=3, random_state=0)), ["top-k", "recall"]),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_every_family_has_its_pictures_and_hostile_names_are_text(rows, case, monkeypatch):
    make, pictures = CASES[case]
    if case not in DRAWN:
        monkeypatch.setattr(_pictures.Picture, "draw_svg", lambda self: "<svg></svg>")
    html, facts = render_report(*make(rows), title="<script>alert(3)</script>", data_name="<img src=x>", texts=None)
    kinds = dict.fromkeys(name if not name.startswith("confusion") else "confusion" for name in facts["pictures"])
    assert list(kinds) == pictures
    assert html.count("<svg") == len(facts["pictures"])
    assert re.findall(r"<script[^>]*>", html) == ["<script>"]  # its own
    assert html.count("</style>") == 1
    assert not re.search(r"<(img|b|iframe|object|embed|link(?! rel=\"icon\" href=\"data:,\"))[ >]", html)
    assert "\x00" not in html
    ids = re.findall(r'<[^>]* id="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert not re.search(r'(src|href|url)\s*[=(]\s*["\']?\s*(https?:|//)', html)
    assert facts["mistakes"] > 0
    assert ("has no certificate" in html) == (case in ("no certificate", "code of others"))
    assert ("No explanation" in html) == (case == "kernel")


def test_the_label_table_has_the_numbers_of_scikit_learn(rows):
    model, X, Y = several(rows)
    lines = {line.name: line for line in label_rows(make_outcome(model, X, Y))}
    predicted = model.predict(X).toarray()
    precision, recall, f1, support = precision_recall_fscore_support(Y.toarray(), predicted, zero_division=np.nan)
    assert len(lines) == 5
    for place, name in enumerate(HOSTILE):
        line = lines["".join(c if c.isprintable() else " " for c in name)]
        assert (line.train, line.true, line.predicted) == (support[place], support[place], predicted[:, place].sum())
        np.testing.assert_allclose([line.precision, line.recall, line.f1], [p[place] for p in (precision, recall, f1)])


def test_labels_without_a_denominator_have_no_quotient():
    X, Y = np.eye(4), sp.csr_array(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]]))
    model = OneVsAllClassifier().fit(X, Y)
    last = label_rows(make_outcome(model, X, Y))[-1]
    assert (last.true, last.predicted, last.precision, last.recall, last.f1) == (0, 0, None, None, None)


def test_the_table_is_bounded_to_the_most_frequent_labels(rows):
    model, X, Y = several(rows)
    lines = label_rows(make_outcome(model, X, Y), max_labels=2)
    counts = np.sort(model.label_counts_)[::-1]
    assert [line.train for line in lines] == counts[:2].tolist()


def test_the_worst_mistakes_are_the_largest_margins(rows):
    X, classes = rows
    model = TopKClassifier(random_state=0).fit(X, HOSTILE[classes])
    scores, truth = model.decision_function(X), np.searchsorted(model.classes_, HOSTILE[classes])
    margins = scores.max(axis=1) - scores[np.arange(N_ROWS), truth]
    worst = worst_mistakes(make_outcome(model, X, HOSTILE[classes]), n_mistakes=4)
    assert [mistake.row for mistake in worst] == np.argsort(-margins)[:4].tolist()
    np.testing.assert_allclose([mistake.margin for mistake in worst], np.sort(margins)[::-1][:4])
    for mistake in worst:  # the reasons add up to the margin
        parts = sum(reason.contribution for reason in mistake.why.reasons) + mistake.why.others + mistake.why.intercept
        assert parts == pytest.approx(mistake.margin, abs=1e-6)
        assert mistake.why.margin == pytest.approx(mistake.margin, abs=1e-6)


def test_mistakes_of_lists_of_labels_compare_the_best_wrong_with_the_best_true_label(rows):
    model, X, Y = several(rows)
    scores, true = model.decision_function(X), Y.toarray() > 0
    margins = np.where(true, -np.inf, scores).max(axis=1) - np.where(true, scores, -np.inf).max(axis=1)
    worst = worst_mistakes(make_outcome(model, X, Y), n_mistakes=3)
    assert [mistake.row for mistake in worst] == np.argsort(-margins)[:3].tolist()
    assert worst[0].why.margin == pytest.approx(margins.max(), abs=1e-6)


def test_mistakes_on_a_tree_are_explained_where_the_paths_part(rows):
    X, classes = rows
    model = HierarchicalClassifier(TREE, random_state=0).fit(X, HOSTILE[classes])
    outcome = make_outcome(model, X, HOSTILE[classes])
    for mistake in worst_mistakes(outcome):
        true, guess = (TREE.nodes[side[mistake.row]] for side in (outcome.nodes.true, outcome.nodes.predicted))
        fork = TREE.lowest_common_ancestor(true, guess)
        lost = TREE.path(true)[TREE.path(true).index(fork) + 1]
        assert mistake.why.loser == "".join(c if c.isprintable() else " " for c in lost)
        assert mistake.why.margin > 0


def test_on_a_tree_only_the_label_itself_is_right():
    tree = Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": None}})
    rng = np.random.default_rng(0)
    y = np.array(["cat", "dog", "bird", "mammal"])[np.arange(80) % 4]
    X = np.array([[3.0, 0, 0], [0, 3.0, 0], [0, 0, 3.0], [1.5, 1.5, 0]])[np.arange(80) % 4] + rng.normal(size=(80, 3))
    model = HierarchicalClassifier(tree, random_state=0).fit(X, y)
    outcome = make_outcome(model, X, y)
    predicted = model.predict(X)
    assert "mammal" not in predicted  # no prediction ends at an inner node
    np.testing.assert_array_equal(outcome.right, predicted == y)
    assert outcome.curve[0] == pytest.approx(accuracy_score(y, predicted))
    below = np.array([t in tree.path(p) for t, p in zip(y, predicted, strict=True)])
    np.testing.assert_array_equal(outcome.at_or_below, below)
    mammal = next(line for line in label_rows(outcome) if line.name == "mammal")
    assert (mammal.true, mammal.predicted, mammal.recall) == (20, 0, 0.0)
    facts = {fact.name: fact.value for fact in quality_of(outcome)}
    assert facts["Accuracy"] == f"{accuracy_score(y, predicted):.3f}"
    assert facts["At or below the true node"] == f"{below.mean():.3f}"
    assert all(mistake.margin > 0 for mistake in worst_mistakes(outcome))


def test_labels_that_the_model_does_not_know_are_misses(rows):
    X, classes = rows
    known = classes < 4
    model = TopKClassifier(random_state=0).fit(X[known], classes[known])
    outcome = make_outcome(model, X, classes)
    assert outcome.right.sum() == np.sum(model.predict(X) == classes)
    assert outcome.curve[0] == pytest.approx(np.mean(model.predict(X) == classes))
    assert all(mistake.true for mistake in worst_mistakes(outcome))


def test_probabilities_get_a_picture(rows, monkeypatch):
    X, classes = rows
    model = TopKClassifier(random_state=0).fit(X, classes)
    twin = LogisticRegression().fit(X, classes)
    monkeypatch.setattr(_pictures.Picture, "draw_svg", lambda self: "<svg></svg>")
    monkeypatch.setattr(TopKClassifier, "predict_proba", lambda self, X: twin.predict_proba(X), raising=False)
    _, facts = render_report(model, X, classes, title=None, data_name=None, texts=None)
    assert "reliability" in facts["pictures"]


def test_the_file_appears_whole_or_not_at_all(rows, tmp_path, monkeypatch):
    model, X, Y = several(rows)
    monkeypatch.setattr(page, "pictures_of", lambda outcome: [])  # they take time
    path = tmp_path / "report.html"
    written = write_report(path, model, X, Y)
    assert path.stat().st_size == written["bytes"]
    before = path.read_bytes()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        write_report(path, model, X, Y[:3])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"a report requires jinja2; run: pip install 'widemargin\[report\]'"):
        write_report(path, model, X, Y)


def tuned(**parameters):
    """A one-vs-all model of 120 noisy rows with several labels, its rows and its labels."""
    rng = np.random.default_rng(1)
    classes = rng.integers(0, 5, 120)
    X, Y = np.eye(5, 8)[classes] + 0.7 * rng.normal(size=(120, 8)), label_sets(classes)
    return OneVsAllClassifier(**parameters).fit(X, Y), X, Y


def page_of(model, X, Y):
    html, facts = render_report(model, X, Y, title=None, data_name=None, texts=None)
    pairs = re.findall(r"<div><dt>([^<]*)</dt><dd>(.*?)</dd></div>", html)
    return html, facts["pictures"], dict(pairs)


def test_the_values_that_fit_chose_are_shown_with_their_curves():
    given = {"C": "auto", "rank_scale": "auto", "decision": "threshold", "tune_decision": True}
    model, X, Y = tuned(**given)
    html, pictures, shown = page_of(model, X, Y)
    n_rows = model.tuning_["rows"]
    note = f' <span class="soft">(chosen on {n_rows} held-out rows)</span>'
    assert shown["C"] == f"{model.C_:.4g}{note}"
    assert shown["Rank scale"] == f"{model.rank_scale_:.4g}{note}"
    assert shown["Decision rule"] == model.decision_.describe().replace(">", "&gt;")
    assert [name for name in pictures if name.startswith("tuning")] == ["tuning-C", "tuning-rank_scale"]
    for name, value in (("C", model.C_), ("rank scale", model.rank_scale_)):
        assert f"the circle marks the choice. {name} = {value:.4g}: " in html


def test_a_choice_that_was_not_made_has_its_reason_and_no_curve(rows):
    X, classes = rows
    model = OneVsAllClassifier(C="auto").fit(X, label_sets(classes))  # 80 rows
    _, pictures, shown = page_of(model, X, label_sets(classes))
    assert shown["C"].startswith(
        '1 <span class="soft">(C = 1 was not chosen on held-out rows: there are 80 rows, too few'
    )
    assert not any(name.startswith("tuning") for name in pictures)


def test_hostile_names_in_the_table_of_values_are_text():
    model, X, Y = tuned(C=0.5)
    row = {"values": {HOSTILE[1]: 0.5, HOSTILE[0]: 1}, "mean": 0.5, "low": 0.4, "high": 0.6}
    table = {"params": [HOSTILE[1], HOSTILE[0]], "tried": [row, row], "folds": 2, "rows": 9, "best": 0}
    model.tuning_ = table | {"metric": HOSTILE[1], "notes": [HOSTILE[2]]}
    html, pictures, _ = page_of(model, X, Y)
    assert pictures[2] == f"tuning-{HOSTILE[1]}"
    assert re.findall(r"<script[^>]*>", html) == ["<script>"]
    assert html.count("</style>") == 1
    assert "\x00" not in html


def test_the_history_of_updates_is_shown(rows):
    model, X, Y = several(rows)
    assert 'id="updates"' not in shown(model, X, Y)
    model.updates_ = [
        {"date": "2026-01-02T03:04:05+00:00", "added": 1234, "removed": 5, "labels_solved": 2, "gap_after": 0.001}
        | {"precision_at_1": 0.75, "precision_at_3": 0.5},
        {"date": "<b>", "labels": {"renamed": 1, "merged": 2, "dropped": 0, "added": 0}, "gap_after": None},
    ]
    page = shown(model, X, Y)
    table = re.search(r'id="updates".*?</table>', page, re.DOTALL)[0]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    assert cells[1:] == [
        ["2", "2026-01-02", "1,234", "5", "2 solved again", "0.1%", "0.750 / 0.500"],
        ["3", "&lt;b&gt;", "0", "0", "1 renamed, 2 merged", "–", "–"],
    ]


def shown(model, X, y):
    return render_report(model, X, y, title=None, data_name=None, texts=None)[0]


def test_numbers_that_were_given_are_only_among_the_parameters():
    _, pictures, shown = page_of(*tuned(C=0.5))
    assert "C" not in shown
    assert "Rank scale" not in shown
    assert not any(name.startswith("tuning") for name in pictures)
    assert page_of(*tuned(rank_scale=0.3))[2]["Rank scale"] == "0.3"


def test_the_curve_has_one_line_per_combination_and_marks_the_choice():
    values = [{"C": C, "k": k} for C in (0.1, 1.0, 10.0) for k in (1, 3)]
    means = [0.5, 0.6, 0.7, 0.8, 0.4, None]
    quality = [None if mean is None else Interval(mean, mean - 0.1, mean + 0.1) for mean in means]
    found = Tuning(("C", "k"), tuple(values), tuple(quality), "top_k_accuracy@1", 2, 100, 3)
    ax = Figure().subplots()
    _pictures.draw_tuning(ax, found)
    drawn = [(line.get_label(), line.get_xydata().tolist()) for line in ax.lines]
    assert drawn[:2] == [
        ("k = 1", [[0.1, 0.5], [1.0, 0.7], [10.0, 0.4]]),
        ("k = 3", [[0.1, 0.6], [1.0, 0.8]]),
    ]
    assert drawn[2][1] == [[1.0, 0.8]]
    assert (ax.get_xlabel(), ax.get_xscale(), ax.get_ylabel()) == ("C", "log", "top_k_accuracy@1")
