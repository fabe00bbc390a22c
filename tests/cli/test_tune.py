"""`widemargin train --tune`: values are chosen before training, printed, and stored in the model folder."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline

from command_line import invoke
from widemargin import OneVsAllClassifier, load, save, write_svmlight


def rows():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 6
    return np.eye(6)[y] + 0.4 * rng.normal(size=(90, 6)), y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune")
    write_svmlight(path / "rows.svm", *rows())
    edges = [("0", "a"), ("1", "a"), ("2", "a"), ("3", "b"), ("4", "b"), ("5", "b"), ("a", "root"), ("b", "root")]
    (path / "tree.tsv").write_text("".join(f"{child}\t{parent}\n" for child, parent in edges))
    return path


METHODS = {
    "one-vs-all": ("C",),
    "top-k": ("C", "k"),
    "output-code": ("estimator__C",),
    "orthogonal": ("C", "alpha_share"),
    "per-node": ("C",),
    "similarity": ("C",),
    "tree-loss": ("C",),
    "flat": ("C",),
}
TREE_METHODS = list(METHODS)[3:]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_chooses_its_values_and_keeps_what_was_tried(folder, tmp_path, method):
    tree = ("--taxonomy", folder / "tree.tsv") if method in TREE_METHODS else ()
    train = ("train", folder / "rows.svm", "--method", method, *tree, "--tune", "--folds", 2, "-o", tmp_path / "m")
    summary = json.loads(invoke(*train, "--json").stdout)
    tuning = summary["tuning"]
    assert tuple(tuning["params"]) == METHODS[method]
    chosen = tuning["tried"][tuning["best"]]
    assert chosen["mean"] == max(row["mean"] for row in tuning["tried"])
    model = load(tmp_path / "m")
    assert model.tuning_ == tuning
    parameters = model.get_params()
    assert {name: parameters[name] for name in METHODS[method]} == chosen["values"]
    assert json.loads(invoke("inspect", tmp_path / "m", "--json").stdout)["tuning"] == tuning


@pytest.mark.slow
def test_the_model_is_that_of_the_chosen_value_and_inspect_shows_the_table(folder, tmp_path):
    text = invoke("train", folder / "rows.svm", "--tune", "--folds", 3, "-o", tmp_path / "m").stdout
    model = load(tmp_path / "m")
    X, y = rows()
    search = GridSearchCV(
        OneVsAllClassifier(normalize=True, prune=0.01),
        {"C": [row["values"]["C"] for row in model.tuning_["tried"]]},
        cv=StratifiedKFold(3, shuffle=True, random_state=0),
    ).fit(X, y)
    assert search.best_params_["C"] == model.C
    np.testing.assert_allclose(
        [row["mean"] for row in model.tuning_["tried"]], search.cv_results_["mean_test_score"], atol=1e-12
    )
    invoke("train", folder / "rows.svm", "--C", model.C, "-o", tmp_path / "same")
    np.testing.assert_array_equal(model.coef_.toarray(), load(tmp_path / "same").coef_.toarray())
    assert f"C = {model.C:.4g}: the best mean top_k_accuracy@1" in text
    shown = invoke("inspect", tmp_path / "m").stdout
    assert "Values tried, 3 folds" in text
    assert text[text.index("┃") : text.index("Model in")] in shown


def test_text_is_vectorised_inside_the_folds(tmp_path):
    rng = np.random.default_rng(1)
    words = {"food": ["bread", "cake", "oven"], "cars": ["engine", "tyre", "oven"], "sea": ["wave", "boat", "tyre"]}
    table = [(" ".join(rng.choice(words[name], size=2)) + f" n{i}", name) for i, name in enumerate([*words] * 16)]
    (tmp_path / "t.tsv").write_text("body\ttag\n" + "".join(f"{text}\t{name}\n" for text, name in table))
    options = ("--text", "body", "--labels", "tag", "--tune", "--folds", 2, "--metric", "top_k_accuracy@1")
    summary = json.loads(invoke("train", tmp_path / "t.tsv", *options, "-o", tmp_path / "m", "--json").stdout)
    tried = summary["tuning"]["tried"]
    texts, y = [text for text, _ in table], [name for _, name in table]
    pipeline = make_pipeline(TfidfVectorizer(dtype=np.float32), OneVsAllClassifier(normalize=True, prune=0.01))
    grid = {"onevsallclassifier__C": [row["values"]["C"] for row in tried]}
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(pipeline, grid, cv=folds).fit(texts, y)
    np.testing.assert_allclose([row["mean"] for row in tried], search.cv_results_["mean_test_score"], atol=1e-12)
    model = load(tmp_path / "m")
    assert model.predict(["bread and cake"]).tolist() == ["food"]
    assert model[-1].tuning_ == summary["tuning"]


def test_what_is_given_is_kept(folder, tmp_path):
    train = ("train", folder / "rows.svm", "--method", "top-k", "--tune", "--folds", 2, "-o", tmp_path / "m", "--json")
    assert json.loads(invoke(*train, "--C", 0.5).stdout)["tuning"]["params"] == ["k"]
    assert load(tmp_path / "m").C == 0.5
    assert json.loads(invoke(*train, "--k", 2).stdout)["tuning"]["params"] == ["C"]
    assert load(tmp_path / "m").k == 2


def test_calibration_comes_after(folder, tmp_path):
    options = ("--tune", "--folds", 2, "--calibrate", "sigmoid", "-o", tmp_path / "m", "--json")
    summary = json.loads(invoke("train", folder / "rows.svm", *options).stdout)
    assert summary["calibration"] == "sigmoid"
    assert load(tmp_path / "m").tuning_ == summary["tuning"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tune", "--C", "1"], "--tune has nothing left to choose with --C set; leave out one of these options"),
        (["--tune", "--method", "top-k", "--C", "1", "--k", "2"], "nothing left to choose with --C and --k set"),
        (["--tune", "--method", "output-code", "--binary-C", "1"], "nothing left to choose with --binary-C set"),
        (["--folds", "3"], "--folds requires --tune"),
        (["--budget", "3s"], "--budget requires --tune"),
        (["--tune", "--budget", "soon"], "--budget must be a time such as"),
        (["--tune", "--metric", "f1"], "metric must be top_k_accuracy@k"),
        (["--tune", "--folds", "1000"], "cv must be a splitter or an integer between 2"),
    ],
)
def test_impossible_options_are_an_error(folder, tmp_path, options, message):
    result = invoke("train", folder / "rows.svm", *options, "-o", tmp_path / "m", exit_code=1)
    assert message in result.stderr
    assert not (tmp_path / "m").exists()


def inspected(model, path):
    """What `inspect` prints, and the same as JSON."""
    save(model, path)
    return invoke("inspect", path).stdout, json.loads(invoke("inspect", path, "--json").stdout)


def test_inspect_shows_what_fit_chose(tmp_path):
    rng = np.random.default_rng(0)
    Y = (rng.random((150, 4)) < 0.4).astype(int)
    X = np.hstack([Y, np.ones((150, 1))]) + 0.4 * rng.normal(size=(150, 5))
    model = OneVsAllClassifier(C="auto", rank_scale="auto").fit(X, Y)
    text, facts = inspected(model, tmp_path / "chosen")
    assert re.search(rf"│ C +│ {model.C_:.4g} ", text)
    assert re.search(rf"│ rank scale +│ {model.rank_scale_:g} ", text)
    assert (facts["C"], facts["rank_scale"], facts["tuning"]) == (model.C_, model.rank_scale_, model.tuning_)
    assert text.count("Values tried, one fold") == 2
    for table in (model.tuning_, model.tuning_["rank_scale"]):
        for row in table["tried"]:
            (value,) = row["values"].values()
            assert re.search(rf"│ +{value:.4g} │ +{row['mean']:.4f} │", text)
    assert f"\nC = {model.C_:.4g}: " in text
    assert f"\nrank scale = {model.rank_scale_:.4g}: " in text
    given, facts = inspected(OneVsAllClassifier(C=2.0).fit(X, Y), tmp_path / "given")
    assert not re.search(r"│ (C|rank scale) +│", given)
    assert facts["C"] == 2.0


def test_inspect_shows_why_nothing_was_chosen(tmp_path):
    text, facts = inspected(OneVsAllClassifier(C="auto").fit(*rows()), tmp_path / "m")  # 90 rows
    reason = (
        "C = 1 was not chosen on held-out rows: there are 90 rows, too few to hold some out (at least 100 are needed)."
    )
    assert re.search(r"│ C +│ 1 ", text)
    assert " ".join(text.split()).count(reason) == 1
    assert "Values tried" not in text
    assert facts["tuning"]["notes"] == [reason]
