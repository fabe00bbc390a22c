"""Top-k models survive a round trip to a folder; parts that cannot be stored are named before anything is written."""

from __future__ import annotations

import functools
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from widemargin import TopKClassifier, load, save
from widemargin.estimators.persistence import check_savable
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import read_model, write_model

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
CLASSES = np.array(["oak", "ash", "yew"])[np.arange(30) % 3]
KERNELS = {
    "linear": {},
    "rbf": {"kernel": "rbf"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 0.5},
    "precomputed": {"kernel": "precomputed"},
}


def rows_for(kernel):
    return rbf_kernel(X) if kernel == "precomputed" else X


@pytest.mark.parametrize("y", [CLASSES, np.arange(30) % 2, np.arange(30) % 3 + 5], ids=["str", "binary", "int"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_loaded_model_is_the_saved_one(tmp_path, kernel, y):
    rows = rows_for(kernel)
    model = TopKClassifier(1, 0.1, class_weight={y[0]: 2.0}, random_state=0, **KERNELS[kernel]).fit(rows, y)
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.get_params() == model.get_params()
    assert loaded.certificate_ == model.certificate_
    assert (loaded.n_iter_, loaded.status_, loaded.kind_) == (model.n_iter_, model.status_, model.kind_)
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    np.testing.assert_array_equal(loaded.decision_function(rows), model.decision_function(rows))
    np.testing.assert_array_equal(loaded.predict_topk(rows, 2).labels, model.predict_topk(rows, 2).labels)
    again = loaded.set_params(warm_start=True, C=0.2).fit(rows, y)
    assert again.certificate_.relative_gap <= again.tol


def test_sparse_support_rows_are_stored_sparse(tmp_path):
    model = TopKClassifier(kernel="rbf", random_state=0).fit(sp.csr_array(np.maximum(X, 0)), CLASSES)
    save(model, tmp_path)
    loaded = load(tmp_path)
    assert sp.issparse(loaded.support_vectors_)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_equal_models_are_equal_bytes_whatever_the_number_of_threads(tmp_path):
    for name, n_jobs in (("one", 1), ("two", 3)):
        model = TopKClassifier(kernel="rbf", random_state=0, n_jobs=n_jobs).fit(X, CLASSES)
        save(model, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)


def test_names_of_features_survive(tmp_path):
    save(TopKClassifier(C=0.1, random_state=0).fit(pd.DataFrame(X, columns=list("abcd")), CLASSES), tmp_path)
    assert load(tmp_path).feature_names_in_.tolist() == list("abcd")


def my_kernel(A, B):
    return A @ B.T


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"kernel": my_kernel}, "'my_kernel'"),
        ({"kernel": functools.partial(my_kernel)}, "'partial'"),
        ({"random_state": np.random.RandomState(0)}, "'random_state'"),
    ],
    ids=["function", "partial", "random state"],
)
def test_what_a_folder_cannot_hold_is_named(tmp_path, parameters, words):
    model = TopKClassifier(C=0.1, **parameters)
    with pytest.raises(NotSavableError, match=words):
        check_savable(model)  # before training
    with pytest.raises(NotSavableError, match=words):
        save(model.fit(X, CLASSES), tmp_path / "m")
    assert not (tmp_path / "m").exists()


DAMAGES = {
    "coefficients of other labels": lambda s: s.arrays.update(dual_coef=sp.csr_array((2, len(s.arrays["support"])))),
    "intercepts of other labels": lambda s: s.arrays.update(intercept=np.zeros(2)),
    "support rows missing": lambda s: s.arrays.pop("support_vectors"),
    "fewer support rows": lambda s: s.arrays.update(support_vectors=s.arrays["support_vectors"][:2]),
    "support beyond the rows": lambda s: s.arrays.update(support=np.asarray(s.arrays["support"]) + 30),
    "fractional support": lambda s: s.arrays.update(support=np.asarray(s.arrays["support"]) + 0.5),
    "no gamma": lambda s: s.attributes.pop("gamma"),
    "negative gamma": lambda s: s.attributes.update(gamma=-1.0),
    "another kernel": lambda s: s.params.update(kernel="os.system"),
    "precomputed without being it": lambda s: (s.params.update(kernel="precomputed"), s.arrays.pop("support_vectors")),
    "linear without weights": lambda s: s.params.update(kernel="linear"),
    "lists of labels": lambda s: s.attributes.update(kind="multilabel"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_kernel_model_is_refused(tmp_path, damage):
    save(TopKClassifier(kernel="rbf", random_state=0).fit(X, CLASSES), tmp_path / "m")
    state = read_model(tmp_path / "m")
    for part in ("arrays", "params", "attributes"):
        object.__setattr__(state, part, dict(getattr(state, part)))
    DAMAGES[damage](state)
    write_model(tmp_path / "m", state)
    with pytest.raises(ModelFormatError, match="damaged"):
        load(tmp_path / "m")


def test_the_folder_says_what_it_is(tmp_path):
    save(TopKClassifier(kernel="rbf", random_state=0).fit(X, CLASSES), tmp_path)
    manifest = json.loads((tmp_path / "model.json").read_text())
    assert manifest["kind"] == "TopKClassifier"
    assert set(manifest["arrays"]) == {
        "dual_coef", "intercept", "support", "support_vectors", "n_iter", "label_counts"
    }  # fmt: skip
