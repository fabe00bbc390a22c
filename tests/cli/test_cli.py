"""The command line from a user's view: from a data file to evaluated, certified predictions, and clear failures."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import invoke
from widemargin import OneVsAllClassifier, load, save, write_xmc
from widemargin.datasets import load_debian_tags

N_ROWS, N_FEATURES, N_LABELS = 60, 8, 4
NAMES = ["apple", "car", "red", "fast"]


@pytest.fixture(scope="module")
def data():
    """Rows in which a label is on when its own feature is large; the rest is noise."""
    rng = np.random.default_rng(0)
    X = rng.random((N_ROWS, N_FEATURES)).astype(np.float32)
    X[rng.random(X.shape) < 0.4] = 0
    return sp.csr_array(X), sp.csr_array((X[:, :N_LABELS] > 0.5).astype(np.int8))


@pytest.fixture
def data_file(data, tmp_path):
    write_xmc(tmp_path / "train.txt.gz", *data)
    (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")
    return tmp_path / "train.txt.gz"


@pytest.fixture
def model_folder(data_file, tmp_path):
    invoke("train", data_file, "--out", tmp_path / "model")
    return tmp_path / "model"


def test_train_writes_the_model_that_python_would(data, data_file, model_folder):
    X, Y = data
    chosen = {"C": "auto", "rank_scale": "auto", "decision": "threshold", "tune_decision": True}
    expected = OneVsAllClassifier(prune=0.01, normalize=True, **chosen).fit(X, Y)
    model = load(model_folder)
    np.testing.assert_array_equal(model.coef_.toarray(), expected.coef_.toarray())
    assert model.classes_.tolist() == NAMES
    assert (model.C_, model.rank_scale_) == (expected.C_, expected.rank_scale_)
    assert model.decision_.to_dict() == expected.decision_.to_dict()
    assert model.get_params() == expected.get_params()


def test_train_reports_sizes_and_certificate_as_json(data_file, tmp_path):
    summary = json.loads(invoke("train", data_file, "--out", tmp_path / "m", "--json").stdout)
    assert (summary["rows"], summary["features"], summary["labels"]) == (N_ROWS, N_FEATURES, N_LABELS)
    certificate = summary["certificate"]
    assert certificate["dual"] <= certificate["primal_before_pruning"] <= certificate["primal"] + 1e-9
    assert summary["worst_label"] in NAMES
    assert summary["status"] == "converged"


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--C", "0.25"], {"C": 0.25}),
        (["--tol", "1e-4", "--gap-tol", "1e-5"], {"tol": 1e-4, "gap_tol": 1e-5}),
        (["--prune", "0"], {"prune": 0.0}),
        (["--no-normalize"], {"normalize": False}),
        (["--no-intercept"], {"fit_intercept": False}),
        (["--regularize-intercept"], {"regularize_intercept": True}),
        (["--class-weight", "balanced"], {"class_weight": "balanced"}),
        (["--class-weight", "propensity"], {"class_weight": "propensity"}),
        (
            ["--class-weight", "propensity", "--propensity-a", "0.6", "--propensity-b", "2.6"],
            {"class_weight": "propensity", "propensity_A": 0.6, "propensity_B": 2.6},
        ),
        (["--max-iter", "50"], {"max_iter": 50}),
        (["--loss", "logistic"], {"loss": "logistic"}),
        (["--init", "ovap++"], {"init": "ovap++"}),
        (["--init", "msi", "--loss", "logistic"], {"init": "msi", "loss": "logistic"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_training_option_reaches_the_model(data_file, tmp_path, options, parameters):
    invoke("train", data_file, "--out", tmp_path / "m", *options)
    model = load(tmp_path / "m")
    assert {name: model.get_params()[name] for name in parameters} == parameters


def test_train_warns_of_a_gap_that_its_default_pruning_makes(tmp_path):
    data = load_debian_tags()
    write_xmc(tmp_path / "train.txt", data.X_train[:200], data.y_train[:200][:, :5])
    result = invoke("train", tmp_path / "train.txt", "--out", tmp_path / "model", "--C", "1e3", "--json")
    assert json.loads(result.stdout)["status"] == "converged"
    assert (
        "warning: after pruning with prune=0.01, the certified relative gap of 2 of 5 labels exceeds 0.1"
        in result.stderr
    )
    # Sharded training also warns; a smaller threshold gives no warning.
    options = ("--C", "1e3", "--json", "--shard-size", "2")
    assert (
        "after pruning with prune=0.01"
        in invoke("train", tmp_path / "train.txt", "--out", tmp_path / "s", *options).stderr
    )
    finer = invoke("train", tmp_path / "train.txt", "--out", tmp_path / "f", "--prune", "1e-6", *options).stderr
    assert "prune=" not in finer


def test_jobs_are_the_threads_of_training(data_file, tmp_path, monkeypatch):
    seen = {}

    def record(estimator, *_, **__):
        seen.update(estimator.get_params())
        raise ValueError("seen enough")

    monkeypatch.setattr("widemargin.cli.train.train", record)
    invoke("train", data_file, "--out", tmp_path / "m", "--jobs", "2", exit_code=1)
    assert seen["n_jobs"] == 2


def test_evaluate_agrees_with_a_brute_force_precision(data, data_file, model_folder):
    X, Y = data
    values = json.loads(invoke("evaluate", model_folder, data_file, "--k", "1,3", "--json").stdout)
    best = load(model_folder).predict_topk(X, 3).indices
    hits = [[Y.toarray()[row, label] for label in labels] for row, labels in enumerate(best)]
    assert values["precision"]["1"] == pytest.approx(np.mean([h[0] for h in hits]))
    assert values["precision"]["3"] == pytest.approx(np.mean([sum(h) / 3 for h in hits]))
    assert set(values) >= {"recall", "ndcg", "propensity_scored_precision", "micro_f1", "macro_f1"}


def test_evaluate_prints_a_table(model_folder, data_file):
    assert "precision @1/3" in invoke("evaluate", model_folder, data_file).stdout


def test_predict_prints_the_best_labels_by_name(data, data_file, model_folder):
    lines = invoke("predict", model_folder, data_file, "--k", "2").stdout.splitlines()
    top = load(model_folder).predict_topk(data[0], 2)
    assert len(lines) == N_ROWS
    for line, labels, scores in zip(lines, top.labels, top.scores, strict=True):
        fields = line.split("\t")
        assert fields[::2] == labels.tolist()
        np.testing.assert_allclose([float(score) for score in fields[1::2]], scores, rtol=1e-5)


def test_predict_writes_json_lines_to_a_file(data_file, model_folder, tmp_path):
    result = invoke("predict", model_folder, data_file, "--json", "--k", "9", "--out", tmp_path / "p.jsonl")
    assert result.stdout == ""
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert len(rows) == N_ROWS
    assert sorted(rows[0]["labels"]) == sorted(NAMES)
    assert not list(tmp_path.glob(".p.jsonl*"))


def test_inspect_shows_certificate_and_largest_weights(model_folder):
    summary = json.loads(invoke("inspect", model_folder, "--json").stdout)
    assert summary["labels"] == N_LABELS
    assert summary["class"] == "OneVsAllClassifier"
    assert "certified gap" in invoke("inspect", model_folder).stdout
    weights = json.loads(invoke("inspect", model_folder, "--label", "car", "--json", "--top", "3").stdout)["weights"]
    # The label is on when feature 1 is large.
    assert weights[0]["feature"] == "1"
    assert weights[0]["weight"] > 0
    assert len(weights) == 3


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.npz", "a.store"])
def test_convert_and_training_on_the_result_give_the_same_model(data_file, model_folder, tmp_path, name):
    invoke("convert", data_file, tmp_path / name)
    invoke("train", tmp_path / name, "--out", tmp_path / "again", "--labels", tmp_path / "labels.txt")
    np.testing.assert_array_equal(load(tmp_path / "again").coef_.toarray(), load(model_folder).coef_.toarray())


def test_convert_can_normalise(data_file, tmp_path):
    summary = json.loads(invoke("convert", data_file, tmp_path / "a.npz", "--normalize", "--json").stdout)
    assert summary["normalized"] is True
    invoke("train", tmp_path / "a.npz", "--out", tmp_path / "m", "--no-normalize")


def test_multiclass_data_are_evaluated_by_top_k_accuracy(tmp_path):
    rng = np.random.default_rng(1)
    y = np.arange(45) % 3
    lines = [f"{label} " + " ".join(f"{f + 1}:{rng.random() + 2 * (f == label):.3f}" for f in range(3)) for label in y]
    (tmp_path / "train.svm").write_text("\n".join(lines) + "\n")
    invoke("train", tmp_path / "train.svm", "--out", tmp_path / "m")
    assert load(tmp_path / "m").kind_ == "multiclass"
    values = json.loads(invoke("evaluate", tmp_path / "m", tmp_path / "train.svm", "--k", "1,2,9", "--json").stdout)
    assert list(values["top_k_accuracy"]) == ["1", "2"]
    assert values["top_k_accuracy"]["1"] > 0.9


FAILURES = [
    (["train", "nowhere.txt", "--out", "m"], 1, "nowhere.txt"),
    (["train", "bad.txt", "--out", "m"], 1, "bad.txt, line 2"),
    (["train", "train.txt.gz", "--out", "m", "--C", "-1"], 1, "'C' parameter of"),
    (["train", "train.txt.gz", "--out", "m", "--init", "random"], 2, "--init"),
    (
        ["train", "train.txt.gz", "--out", "m", "--init", "bias", "--no-intercept"],
        1,
        "init='bias' requires an intercept",
    ),
    (["train", "train.txt.gz"], 2, "--out"),
    (["train", "train.txt.gz", "--out", "full"], 1, "full"),
    (["evaluate", "nomodel", "train.txt.gz"], 1, "nomodel"),
    (["evaluate", "model", "train.txt.gz", "--k", "0"], 1, "--k must be positive integers"),
    (["evaluate", "model", "other.txt"], 1, "labels"),
    (["predict", "model", "wide.txt"], 1, "features"),
    (["inspect", "model", "--label", "pear"], 1, "no label 'pear'"),
    (["convert", "bad.txt", "x.npz"], 1, "line 2"),
    (["nonsense"], 2, "No such command"),
]


@pytest.mark.parametrize(("arguments", "exit_code", "message"), FAILURES, ids=lambda value: str(value)[:40])
def test_failures_are_explained_without_a_traceback(
    data_file, model_folder, tmp_path, monkeypatch, arguments, exit_code, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_text("1 2 2\n0 0:abc\n")
    (tmp_path / "other.txt").write_text(f"1 {N_FEATURES} 9\n0 0:1\n")
    (tmp_path / "wide.txt").write_text(f"1 {N_FEATURES + 1} {N_LABELS}\n0 0:1\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("keep me")
    result = invoke(*arguments, exit_code=exit_code)
    assert message in result.output
    assert "Traceback" not in result.output
    assert (tmp_path / "full" / "precious.txt").read_text() == "keep me"
    assert not (tmp_path / "m").exists()


def test_interruption_has_its_own_exit_code(data_file, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("widemargin.cli.train.train", interrupt)
    assert "interrupted" in invoke("train", data_file, "--out", tmp_path / "m", exit_code=130).output


@pytest.mark.parametrize("command", ["train", "predict", "evaluate", "inspect", "report", "convert", "demo"])
def test_every_command_teaches_itself(command):
    assert "Usage" in invoke(command, "--help").stdout


def test_help_loads_no_numerics():
    """`widemargin --help` starts quickly because it imports neither NumPy nor scikit-learn."""
    script = (
        "import sys; sys.argv = ['widemargin', '--help']\n"
        "from widemargin.cli.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'scipy', 'sklearn')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "train" in done.stdout


def test_version_is_the_package_version():
    from widemargin import __version__

    assert invoke("--version").stdout.strip() == f"widemargin {__version__}"


def test_evaluation_matches_labels_by_name_and_counts_unknown_ones_as_misses(data, tmp_path):
    X, Y = data
    train_columns, test_columns = [0, 1, 2], [3, 2, 0]
    for name, columns in (("train", train_columns), ("test", test_columns)):
        write_xmc(tmp_path / f"{name}.txt", X, sp.csr_array(Y[:, columns]))
        (tmp_path / f"{name}_labels.txt").write_text("".join(f"{NAMES[c]}\n" for c in columns))
    invoke("train", tmp_path / "train.txt", "--out", tmp_path / "m")
    values = json.loads(invoke("evaluate", tmp_path / "m", tmp_path / "test.txt", "--k", "1", "--json").stdout)
    best = load(tmp_path / "m").predict_topk(X, 1).labels[:, 0]
    truth = [{NAMES[c] for c in test_columns if row[c]} for row in Y.toarray()]
    assert values["precision"]["1"] == pytest.approx(np.mean([b in t for b, t in zip(best, truth, strict=True)]))
    recall = np.mean([(b in t) / max(1, len(t)) for b, t in zip(best, truth, strict=True)])
    assert values["recall"]["1"] == pytest.approx(recall)


def test_index_base_decides_where_a_file_cannot_tell(tmp_path):
    (tmp_path / "t.svm").write_text("0 1:1 2:3\n1 2:1\n2 1:2\n")
    for base, n_features in (("0", 3), ("1", 2)):
        summary = invoke("convert", tmp_path / "t.svm", tmp_path / "t.npz", "--index-base", base, "--json").stdout
        assert json.loads(summary)["features"] == n_features


@pytest.mark.slow
def test_a_command_starts_without_pandas_which_stays_usable(tmp_path):
    pytest.importorskip("pandas")
    save(OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"]), tmp_path / "model")
    script = (
        "import gc, sys\n"
        "from widemargin.cli.__main__ import make_app\n"
        f"make_app()(['inspect', {str(tmp_path / 'model')!r}], standalone_mode=False)\n"
        "assert 'pandas' not in sys.modules and gc.isenabled()\n"
        "import pandas\n"
        "from widemargin import load\n"
        f"print(load({str(tmp_path / 'model')!r}).predict(pandas.DataFrame({{'size': [2.0, -2.0]}}))[0])\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("yes\n")
