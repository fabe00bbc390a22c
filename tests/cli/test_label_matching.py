"""Labels of data and model are matched by name and number across formats; mismatches are reported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import invoke
from widemargin import load, write_xmc
from widemargin.data.names import write_names
from widemargin.data.store import write_npz
from widemargin.data.text import write_svmlight

N_ROWS = 60
NAMES = ["apple", "car", "red"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def X():
    """Rows whose first three features are large for the row's class, row number modulo 3."""
    rng = np.random.default_rng(0)
    return rng.random((N_ROWS, 5)) + 3 * np.eye(5)[np.arange(N_ROWS) % 3]


@pytest.fixture
def Y():
    """The class of each row, and label 2 as a second label for the first three rows."""
    dense = np.eye(3)[np.arange(N_ROWS) % 3]
    dense[:3, 2] = 1
    return sp.csr_array(dense)


def evaluate(*arguments):
    return json.loads(invoke("evaluate", *arguments, "--json").stdout)


def test_multilabel_model_reads_svmlight_whose_rows_have_one_label_each(X, Y):
    write_svmlight("train.svm", X, Y)
    write_svmlight("test.svm", X, np.arange(N_ROWS) % 3)
    invoke("train", "train.svm", "--out", "m")
    best = load("m").predict_topk(X, 1).labels[:, 0].astype(int)
    assert evaluate("m", "test.svm", "--k", "1")["precision"]["1"] == np.mean(best == np.arange(N_ROWS) % 3)


def test_multiclass_model_refuses_lists_of_labels(X, Y):
    write_svmlight("train.svm", X, np.arange(N_ROWS) % 3)
    write_svmlight("test.svm", X, Y)
    invoke("train", "train.svm", "--out", "m")
    assert "row 0 (counting from 0) has 2" in invoke("evaluate", "m", "test.svm", exit_code=1).output


def test_multilabel_model_refuses_one_label_a_row(X, Y):
    write_npz("train.npz", X, Y)
    write_npz("test.npz", X, np.arange(N_ROWS) % 3)
    invoke("train", "train.npz", "--out", "m")
    assert "one label per row" in invoke("evaluate", "m", "test.npz", exit_code=1).output


@pytest.mark.parametrize(
    "labels", [np.array(NAMES), np.arange(3), np.array([1.0, 5.0, 7.0])], ids=["str", "int", "float"]
)
def test_multiclass_model_is_evaluated_on_its_data_in_any_format(X, labels):
    write_npz("data.npz", X, labels[np.arange(N_ROWS) % 3])
    invoke("convert", "data.npz", "other.txt")
    invoke("train", "data.npz", "--out", "m")
    assert evaluate("m", "other.txt", "--k", "1,2") == evaluate("m", "data.npz", "--k", "1,2")
    assert evaluate("m", "data.npz", "--k", "1")["top_k_accuracy"]["1"] > 0.9


def test_label_names_survive_the_way_through_svmlight(X, Y):
    write_xmc("foo.txt", X, Y)
    write_names("foo_labels.txt", NAMES)
    invoke("train", "foo.txt", "--out", "m")
    invoke("convert", "foo.txt", "foo2.svm")
    assert evaluate("m", "foo2.svm") == evaluate("m", "foo.txt")
    invoke("train", "foo2.svm", "--out", "m2")
    assert load("m2").classes_.tolist() == NAMES


def test_names_of_svmlight_labels_go_by_number_where_some_do_not_occur(X):
    write_svmlight("foo.svm", X[:2], sp.csr_array(np.array([[0, 0, 1.0], [1, 0, 1]])))
    write_names("foo_labels.txt", NAMES)
    invoke("train", "foo.svm", "--out", "m")
    assert load("m").classes_.tolist() == ["apple", "red"]


def test_model_without_names_takes_the_numbers_of_svmlight(X, Y):
    write_xmc("train.txt", X, Y)
    invoke("train", "train.txt", "--out", "m")
    write_svmlight("test.svm", X[2::3], sp.csr_array(Y[2::3]))  # label 2 only
    best = load("m").predict_topk(X[2::3], 1).indices[:, 0]
    assert evaluate("m", "test.svm", "--k", "1")["precision"]["1"] == np.mean(best == 2)


def test_no_common_label_is_an_error_and_some_unknown_ones_a_warning(X, Y):
    write_xmc("train.txt", X, Y)
    write_names("train_labels.txt", NAMES)
    invoke("train", "train.txt", "--out", "m")
    write_xmc("none.txt", X, Y)
    write_names("none_labels.txt", ["x", "y", "z"])
    assert "none of the labels is known to the model" in invoke("evaluate", "m", "none.txt", exit_code=1).output
    write_xmc("some.txt", X, Y)
    write_names("some_labels.txt", ["apple", "y", "z"])
    result = invoke("evaluate", "m", "some.txt")
    assert "widemargin: warning: some.txt: 2 of 3 labels, such as 'y', are unknown to the model" in result.stderr


def test_unknown_classes_are_misses(X):
    y = np.arange(N_ROWS) % 3
    write_npz("train.npz", X, y)
    write_npz("test.npz", X, np.where(y == 2, 9, y))
    write_npz("none.npz", X, y + 10)
    invoke("train", "train.npz", "--out", "m")
    best = load("m").predict(X)
    result = invoke("evaluate", "m", "test.npz", "--k", "1", "--json")
    assert json.loads(result.stdout)["top_k_accuracy"]["1"] == pytest.approx(np.mean((best == y) & (y != 2)))
    assert "1 of 3 labels, such as '9', are unknown to the model" in result.stderr
    assert "none of the labels is known to the model" in invoke("evaluate", "m", "none.npz", exit_code=1).output


def test_names_for_data_with_one_label_a_row_are_refused(X):
    write_npz("train.npz", X, np.arange(N_ROWS) % 3)
    write_names("names.txt", NAMES)
    output = invoke("train", "train.npz", "--out", "m", "--labels", "names.txt", exit_code=1).output
    assert "one label each" in output


def test_repeated_label_names_get_their_numbers(X, Y):
    write_xmc("train.txt", X, Y)
    write_names("train_labels.txt", ["a", "b", "a"])
    output = invoke("train", "train.txt", "--out", "m").output
    assert "train_labels.txt: 1 name(s) occur more than once" in output
    assert load("m").classes_.tolist() == ["a (0)", "b", "a (2)"]


def test_ambiguous_names_are_refused_before_training(X, Y, monkeypatch):
    write_xmc("train.txt", X, Y)
    write_names("train_labels.txt", ["a", "a (0)", "a"])
    monkeypatch.setattr("widemargin.cli.train.train", None)
    output = invoke("train", "train.txt", "--out", "m", exit_code=1).output
    assert "train_labels.txt: two labels are named 'a (0)'" in output


def test_repeated_feature_names_are_allowed(X, Y):
    write_xmc("train.txt", X, Y)
    write_names("features.txt", ["same"] * 5)
    invoke("train", "train.txt", "--out", "m", "--features", "features.txt")
    assert load("m").feature_name(3) == "same"


def test_index_base_of_training_is_that_of_further_files(X):
    shifted = X.copy()
    shifted[:, 0] = 0
    write_svmlight("train.svm", X, np.arange(N_ROWS) % 3, zero_based=True)
    write_svmlight("test.svm", shifted, np.arange(N_ROWS) % 3, zero_based=True)  # feature 0 does not occur
    invoke("train", "train.svm", "--out", "m")
    expected = load("m").predict(sp.csr_array(shifted)).tolist()
    lines = invoke("predict", "m", "test.svm", "--k", "1").stdout.splitlines()
    assert [int(line.split("\t")[0]) for line in lines] == expected
    accuracy = np.mean(np.array(expected) == np.arange(N_ROWS) % 3)
    assert evaluate("m", "test.svm", "--k", "1")["top_k_accuracy"]["1"] == pytest.approx(accuracy)
    assert load("m").index_base_ == {"svmlight": 0}


def test_index_base_of_one_format_says_nothing_about_another(X, Y):
    write_svmlight("train.svm", X, Y)
    invoke("train", "train.svm", "--out", "m")
    assert load("m").index_base_ == {"svmlight": 1}
    write_xmc("train.txt", X, Y)
    assert evaluate("m", "train.txt") == evaluate("m", "train.svm")


@pytest.mark.parametrize("multilabel", [True, False])
def test_depths_beyond_the_labels_are_left_out_with_a_word(X, Y, multilabel):
    write_npz("train.npz", X, Y if multilabel else np.arange(N_ROWS) % 3)
    invoke("train", "train.npz", "--out", "m")
    result = invoke("evaluate", "m", "train.npz", "--k", "3,1,1,99999999", "--json")
    assert list(json.loads(result.stdout)["precision" if multilabel else "top_k_accuracy"]) == ["1", "3"]
    assert "--k 99999999 is ignored, because the model has only 3 labels" in result.stderr
    output = invoke("evaluate", "m", "train.npz", "--k", "10", exit_code=1).output
    assert "--k 10 exceeds the number of labels, 3" in output
    assert invoke("evaluate", "m", "train.npz").stderr == "", "the default depths are nobody's mistake"


def test_predict_can_be_asked_for_more_labels_than_there_are(X, Y):
    write_npz("train.npz", X, Y)
    invoke("train", "train.npz", "--out", "m")
    assert len(invoke("predict", "m", "train.npz", "--k", "99999999").stdout.splitlines()[0].split("\t")) == 6


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_files_that_do_not_fit_are_named(X, Y, command):
    write_npz("train.npz", X, Y)
    write_npz("wide.npz", np.ones((2, 7)), sp.csr_array(np.ones((2, 3))))
    write_npz("empty.npz", np.ones((0, 5)), sp.csr_array((0, 3)))
    invoke("train", "train.npz", "--out", "m")
    assert (
        "wide.npz: the rows have 7 features, but the model has 5"
        in invoke(command, "m", "wide.npz", exit_code=1).output
    )
    if command == "predict":  # no rows, no predictions
        assert invoke(command, "m", "empty.npz").output == ""
    else:
        assert "empty.npz: the data contain no rows" in invoke(command, "m", "empty.npz", exit_code=1).output


def test_warnings_about_data_are_one_line(X, Y):
    write_npz("train.npz", X, Y)
    Path("odd.txt").write_text("1 5 3\n0 3:1 1:1\n")
    invoke("train", "train.npz", "--out", "m")
    for arguments in (("predict", "m", "odd.txt"), ("evaluate", "m", "odd.txt"), ("convert", "odd.txt", "o.npz")):
        stderr = invoke(*arguments).stderr
        assert stderr.startswith("widemargin: warning: odd.txt")
        assert stderr.count("\n") == 1


def test_tables_that_do_not_fit_the_model_give_an_error_with_the_remedy(tmp_path):
    for name, text in {
        "train.csv": "title,tags\nfresh bread,food\na cake,food\nan engine,cars\na wheel,cars\n",
        "other.csv": "headline,tags\nbread,spaceship\n",
    }.items():
        (tmp_path / name).write_text(text)
    model, other = tmp_path / "model", tmp_path / "other.csv"
    invoke("train", tmp_path / "train.csv", "--text", "title", "--labels", "tags", "--out", model)
    message = invoke("predict", model, other, exit_code=1).stderr
    assert "its columns are 'headline', 'tags'; use one of them (--text or --labels" in message
    message = invoke("evaluate", model, other, "--text", "headline", exit_code=1).stderr
    assert "none of the labels is known to the model; the file contains 'spaceship'" in message
    assert "set their column and separator with --labels and --label-sep" in message
