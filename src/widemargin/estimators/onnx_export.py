"""Linear models as ONNX files: scores and the top k labels of dense rows, for runtimes without this package.

    rows (N, n_features)  →  scaled to unit length, if the model does that
                          →  scores = rows · Wᵀ + b  →  TopK  →  names of the labels

W has one row per class, zeros included: the weights of the class, their sum along a path of a tree, or the sum of an
output code's columns times the code; two classes have −w and w. The file computes in float32, which every runtime
supports. With u = 2⁻²⁴, the score of a row x differs from the score in float64 by at most about

    (n_features + 10) u (Σ_f |x_f w_f| + |b|),       for rows that are scaled (1.5 n_features + 10) u (…)

(Higham, Accuracy and Stability, section 3.1), and usually by a few u. Labels whose scores are closer than that may
change places. ONNX's TopK puts the lower index first among equal scores, as `predict_topk` does. Memory: three times
the size of the file, and 64 MB.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.pipeline import Pipeline

from widemargin import __version__
from widemargin.estimators.codes.classifier import OutputCodeClassifier
from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import COUNT
from widemargin.estimators.tree.model import TreeLabelModel
from widemargin.exceptions import MissingExtraError, NotSavableError
from widemargin.files import atomic_file, check_file_target

__all__ = ["write_onnx"]

OPSET, IR_VERSION = 17, 8  # of 2022: onnxruntime 1.12 and later read them
MOST_BYTES = 2**30  # of weights; a protobuf message, the whole file, must be below 2 GiB
BLOCK_BYTES = 2**26  # float64 weights that are made at once
INSTEAD = "use the model folder with widemargin serve, or widemargin pack for a single file"


def write_onnx(model: Any, path: str | os.PathLike[str], k: int = 5) -> None:
    """Write a linear model as an ONNX file that scores dense rows.

    The input is "rows", float32 of shape (N, n_features). The outputs are "scores", "top_scores" and "top_labels", and
    "probabilities" if the model was calibrated by sigmoids. The same model always gives the same bytes.

    Parameters
    ----------
    model : OneVsAllClassifier, TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        A fitted model whose scores are linear in the row: no kernel; an output code with linear columns and
        `decoding="inner"`; a tree with `decision="flat"`, the default for `method="tree-loss"` and "flat". Sparse
        weights are stored as dense ones. All weights together may take up to 1 GiB.
    path : path
        The file, usually called `.onnx`; an existing one is replaced.
    k : int, default=5
        Length of the lists of labels; if there are fewer labels, the lists are shorter.

    Notes
    -----
    scores : float32 of shape (N, n_classes)
        Those of `decision_function`, with a column for each of `classes_`: two classes have the scores −s and s; in a
        tree, those of `label_scores`.
    top_scores : float32 of shape (N, k)
        The scores of `predict_topk`, which include a rank scale.
    top_labels : int64 or string of shape (N, k)
        Their labels. Labels that are not integers are strings.
    probabilities : float32 of shape (N, n_classes)
        Those of `predict_proba`. Isotonic calibrations and those of trees are left out, with a warning.

    The file computes in float32: scores agree with those of this package to about six digits, and labels with nearly
    equal scores may change places. Rows are not checked: a row with NaN has meaningless scores. N must be at least 1:
    onnxruntime 1.23 crashes in TopK if there are no rows. Decision rules, feature names and the certificate are not
    part of the file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np, onnx
    >>> from widemargin import OneVsAllClassifier, write_onnx
    >>> model = OneVsAllClassifier().fit(np.eye(3), ["red", "green", "blue"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "colours.onnx")
    ...     write_onnx(model, path, k=2)
    ...     graph = onnx.load(path).graph
    >>> [output.name for output in graph.output]
    ['scores', 'top_scores', 'top_labels']
    """
    check_file_target(path)
    if not COUNT.is_satisfied_by(k):
        raise ValueError(f"k, the number of labels per row, must be a positive integer; got {k!r}")
    _refuse_what_is_not_linear(model)
    try:
        graph = _Graph()
    except ModuleNotFoundError as error:
        raise MissingExtraError("writing ONNX", "onnx", "onnx") from error
    content = _model_graph(graph, model, int(k)).to_bytes()
    with atomic_file(path, compress=False) as file:
        file.write(content)


def _refuse_what_is_not_linear(model: Any) -> None:
    """A NotSavableError for models that the file cannot represent."""
    if isinstance(model, Pipeline):
        raise NotSavableError(
            "the model reads texts, but an ONNX file takes rows of numbers; use widemargin serve or widemargin pack, "
            "which keep the vectoriser, or write the classifier alone: write_onnx(model[-1], path)"
        )
    if not isinstance(model, LabelModel):
        raise NotSavableError(
            f"write_onnx is for the classifiers of widemargin, not for a {type(model).__name__}; use skl2onnx for "
            "estimators of scikit-learn"
        )
    model.kind_of_fitted()  # an error unless it was fitted
    if "dual_coef_" in vars(model):
        kernel = model.kernel if isinstance(model.kernel, str) else "a function"
        raise NotSavableError(
            f"an ONNX file holds linear models, but this model has a kernel ({kernel}); train with kernel='linear', or "
            f"{INSTEAD}"
        )
    if isinstance(model, TreeLabelModel) and model._decision() != "flat":
        raise NotSavableError(
            f"with decision={model._decision()!r}, the labels of a tree are searched step by step, which an ONNX file "
            "cannot express; train with decision='flat' (train --decision flat), which ranks labels by the sum of the "
            f"scores along their paths, or {INSTEAD}"
        )
    if isinstance(model, OutputCodeClassifier) and model._decoding() != "inner":
        raise NotSavableError(
            f"with decoding={model._decoding()!r}, scores are not linear in the row; train with decoding='inner' "
            f"(train --decoding inner), or {INSTEAD}"
        )
    n_bytes = len(model.classes_) * model.n_features_in_ * np.dtype(np.float32).itemsize
    if n_bytes > MOST_BYTES:
        raise NotSavableError(
            f"an ONNX file stores every weight, including zeros, which takes {n_bytes / 2**20:,.0f} MB for "
            f"{len(model.classes_):,} labels × {model.n_features_in_:,} features; the limit is "
            f"{MOST_BYTES / 2**20:,.0f} MB; {INSTEAD}"
        )


def _model_graph(graph: _Graph, model: Any, k: int) -> _Graph:
    """The operations from rows to outputs."""
    n_classes = len(model.classes_)
    rows = graph.input("rows", model.n_features_in_)
    scales_rows = model.normalize
    if isinstance(model, OutputCodeClassifier):  # a foreign classifier does with its rows what it wants
        scales_rows = getattr(getattr(model._columns, "template", None), "normalize", False)
    if scales_rows:
        rows = _unit_rows(graph, rows)
    weights, intercepts = _linear_part(model)
    # A rank scale of classes is for lists only: `decision_function` and `predict` use the scores of the problems.
    is_scaled = hasattr(model, "label_scale_") and model.kind_ != "multilabel"
    name = "ranked" if is_scaled else "scores"
    ranked = graph.add(
        "Gemm", name, rows, graph.floats("weights", weights), graph.floats("intercepts", intercepts), transB=1
    )
    if is_scaled:  # ranked = a (scores + 1) − 1
        inverse = 1.0 / model.label_scale_
        unscaled = graph.add("Mul", "unscaled", ranked, graph.floats("inverse_scale", inverse))
        graph.add("Add", "scores", unscaled, graph.floats("inverse_offset", inverse - 1.0))
    graph.output("scores", np.float32, n_classes)
    _add_lists(graph, model, ranked, k)
    if hasattr(model, "calibration_"):
        _add_probabilities(graph, model, ranked)
    return graph


def _unit_rows(graph: _Graph, rows: str) -> str:
    """Rows of length one, relative to their largest entry as in `l2_normalize_rows`; rows of zeros stay zero."""
    zero, one = graph.floats("zero", 0.0), graph.floats("one", 1.0)
    largest = graph.add("ReduceMax", "largest", graph.add("Abs", "sizes", rows), axes=[1], keepdims=1)
    divisor = graph.add("Where", "divisor", graph.add("Greater", "has_values", largest, zero), largest, one)
    scaled = graph.add("Div", "scaled_rows", rows, divisor)
    # The largest entry is now 1, and the length at least 1, unless all are 0.
    length = graph.add("ReduceL2", "length", scaled, axes=[1], keepdims=1)
    return graph.add("Div", "unit_rows", scaled, graph.add("Max", "length_or_one", length, one))


def _linear_part(model: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Weights and intercepts of the classes, as the model ranks them: shapes (n_classes, n_features), (n_classes,)."""
    outputs_of_class = _combinations(model)
    n_classes, n_features = len(model.classes_), model.n_features_in_
    weights, intercepts = np.empty((n_classes, n_features), dtype=np.float32), np.empty(n_classes)
    features, step = np.arange(n_features), max(1, BLOCK_BYTES // (8 * n_features))
    with np.errstate(over="ignore"):
        for start in range(0, n_classes, step):
            classes = slice(start, start + step)
            factors = outputs_of_class[classes]
            outputs = np.unique(factors.indices)
            values, offsets = model._weights_at(outputs, features)
            weights[classes] = factors[:, outputs] @ values
            intercepts[classes] = factors[:, outputs] @ offsets
    if not np.isfinite(weights).all():
        raise NotSavableError(f"a weight of the model is too large for float32, the type of an ONNX file; {INSTEAD}")
    return weights, intercepts


def _combinations(model: Any) -> Any:
    """The score of a class as a sum of outputs of the model: CSR of shape (n_classes, n_outputs)."""
    n_classes = len(model.classes_)
    if isinstance(model, TreeLabelModel):  # the nodes on the path to the class; none for the root
        tree, entries = model._decisions, []
        for label, place in enumerate(tree.place.tolist()):
            while place >= 0:
                entries.append((label, int(tree.rows[place])))
                place = int(tree.parent[place])
        rows, nodes = np.array(entries, dtype=np.int64).reshape(-1, 2).T
        return sp.csr_array((np.ones(len(rows)), (rows, nodes)), shape=(n_classes, model.taxonomy_.n_nodes - 1))
    if model.kind_ == "binary":
        return sp.csr_array([[-1.0], [1.0]])
    return sp.csr_array(sp.eye_array(n_classes))


def _add_lists(graph: _Graph, model: Any, ranked: str, k: int) -> None:
    """The outputs "top_scores" and "top_labels"."""
    labels = model.classes_
    if isinstance(model, TreeLabelModel):  # inner nodes are classes, too, but predictions may not end there
        tree = model._decisions
        ends = np.sort(tree.end_class[tree.ends])
        if len(ends) < len(labels):
            ranked, labels = graph.add("Gather", "at_ends", ranked, graph.constant("ends", ends), axis=1), labels[ends]
    k = min(k, len(labels))
    outputs = ["top_scores", "top_places"]
    graph.add_several("TopK", outputs, ranked, graph.constant("k", np.array([k])), axis=1, largest=1, sorted=1)
    if labels.dtype.kind in "iu" and np.can_cast(labels.dtype, np.int64):
        names = labels.astype(np.int64)
    else:
        names = np.array([str(label) for label in labels.tolist()], dtype=object)
    graph.add("Gather", "top_labels", graph.constant("labels", names), "top_places", axis=0)
    graph.output("top_scores", np.float32, k)
    graph.output("top_labels", names.dtype, k)


def _add_probabilities(graph: _Graph, model: Any, ranked: str) -> None:
    """The output "probabilities", or a warning that it is left out."""
    calibration = model.calibration_
    if calibration.method != "sigmoid" or isinstance(model, TreeLabelModel):
        is_tree = isinstance(model, TreeLabelModel)
        what = "of trees" if is_tree else f"with method={calibration.method!r}"
        remedy = "" if is_tree else "calibrate with method='sigmoid', or "
        warnings.warn(
            f"probabilities {what} are not part of an ONNX file; the file has the scores only; {remedy}use the model "
            "folder for probabilities",
            UserWarning,
            stacklevel=4,
        )
        return
    slope, offset = calibration.slope, calibration.offset
    if model.kind_ == "binary":  # 1 − σ(α s + β) = σ(α (−s) − β)
        slope, offset = np.repeat(slope, 2), np.concatenate([-offset, offset])
    scaled = graph.add("Mul", "scaled_scores", ranked, graph.floats("slope", slope))
    logits = graph.add("Add", "logits", scaled, graph.floats("offset", offset))
    if calibration.temperature is None:
        graph.add("Sigmoid", "probabilities", logits)
    else:  # e^{τ v} / Σ e^{τ v} with v = log σ(z) = −softplus(−z)
        negative = graph.add("Softplus", "surprise", graph.add("Neg", "negative_logits", logits))
        exponents = graph.add("Mul", "exponents", negative, graph.floats("temperature", -calibration.temperature[0]))
        graph.add("Softmax", "probabilities", exponents, axis=1)
    graph.output("probabilities", np.float32, len(model.classes_))


class _Graph:
    """An ONNX graph under construction; every method that adds something returns its name."""

    def __init__(self) -> None:
        import onnx  # an extra

        self._onnx: Any = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, n_columns: int) -> str:
        """A float32 input of shape (N, n_columns)."""
        self._inputs.append(self._value(name, np.float32, n_columns))
        return name

    def output(self, name: str, kind: Any, n_columns: int) -> None:
        """Make a result an output; its shape is (N, n_columns)."""
        self._outputs.append(self._value(name, kind, n_columns))

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """A tensor of the model; an array of objects holds strings."""
        self._constants.append(self._onnx.numpy_helper.from_array(value, name))
        return name

    def floats(self, name: str, value: Any) -> str:
        """A tensor of float32."""
        return self.constant(name, np.asarray(value, dtype=np.float32))

    def add(self, operation: str, output: str, *inputs: str, **attributes: Any) -> str:
        """An operation with one result."""
        self.add_several(operation, [output], *inputs, **attributes)
        return output

    def add_several(self, operation: str, outputs: list[str], *inputs: str, **attributes: Any) -> None:
        """An operation with several results."""
        self._nodes.append(self._onnx.helper.make_node(operation, inputs, outputs, name=outputs[0], **attributes))

    def to_bytes(self) -> bytes:
        """The file."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "widemargin", self._inputs, self._outputs, self._constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="widemargin",
            producer_version=__version__,
        )
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _value(self, name: str, kind: Any, n_columns: int) -> Any:
        helper = self._onnx.helper
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), ["N", n_columns])
