"""A page on which a text model is tried: type a text, see the top labels, and the words that decided.

There is one page with two sources of answers. An exported page contains the model and computes in the browser, without
a network; the page of the service asks `POST /try`. Both get the same answer for a text (`answer`):

    labels    label, score, probability, whether the model predicts it, and the score as a sum over terms
    path      on a tree: the nodes from below the root to the label, each with its lead over the best sibling

The exported model is its arrays, as they are scored: weights by feature in their own type, with the rank scale applied
and rounded as `LinearScorer` does it, little-endian, in base64. The script adds the same products in the same order, so
scores are equal to Python's. Label names and terms are data in a script block of type JSON in which every `<` is
escaped, and the script writes them as text. The content security policy allows this script and this style by their
hashes and no connection, so a page cannot send anything. Memory: a few copies of the page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin import __version__
from widemargin.estimators.explanation import Contributions
from widemargin.estimators.persistence import HOMES
from widemargin.exceptions import NotSavableError
from widemargin.files import PathLike, atomic_file, check_file_target
from widemargin.page.analysis import describe_analysis
from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.tree_factor import TreeWeights

__all__ = ["FAMILIES", "MOST_BYTES", "answer", "base_style", "describe_model", "export_html", "service_page"]

MOST_BYTES = 30_000_000
"""Largest size of an exported page: browsers open it in a few seconds, and it can be sent by mail."""
MEGABYTE = 1_000_000
MOST_TERMS = 300
"""Terms of a sum that are listed; the rest are added up."""
LOGS = 1024
"""Counts whose logarithm a page carries: NumPy's of float32 differs from the browser's in the last bit."""
LEAST_WEIGHT = 4  # bytes of a weight, at least
ROOM = 100_000  # bytes of the page itself
ALIGNMENT = 8
FAMILIES = {
    "OneVsAllClassifier": "one-vs-all",
    "TopKClassifier": "top-k SVM",
    "OutputCodeClassifier": "output code",
    "HierarchicalClassifier": "category tree",
}
Arrays = dict[str, npt.NDArray[Any]]


def export_html(model: Any, path: PathLike, *, title: str | None = None) -> int:
    """Write a text model as one HTML file on which it can be tried, without a server or a network.

    Parameters
    ----------
    model : Pipeline
        A fitted pipeline of a `TfidfVectorizer` and a linear classifier of this package, as `load` returns it for a
        text model. Kernels and output codes have no weights of terms and are refused.
    path : str or path
        The file; it appears when it is complete.
    title : str, optional
        Headline. By default, the class of the model.

    Returns
    -------
    int
        Size of the file in bytes. A page above 30 MB is refused before anything is written; compress the model first.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from widemargin import OneVsAllClassifier, TextPipeline
    >>> from widemargin.page import export_html
    >>> texts, y = ["fresh bread", "a cake", "an engine", "the gearbox"], ["food", "food", "cars", "cars"]
    >>> model = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(texts, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_html(model, pathlib.Path(folder, "try.html")) < 200_000
    True
    """
    check_file_target(path)
    content = render_model(model, title).encode("utf-8")
    with atomic_file(path, compress=False) as file:
        file.write(content)
    return len(content)


def render_model(model: Any, title: str | None = None) -> str:
    """The page with the model inside; a NotSavableError for a model that it cannot hold."""
    classifier = _check_exportable(model)
    about = describe_model(model, title) | {"source": "local"}
    description, arrays = _model_parts(model)
    n_names = len(_json(about | description).encode())
    coef, compressed = classifier.coef_, isinstance(classifier.coef_, CompressedWeights)
    _check_size(coef.nbytes if compressed else classifier._n_weights() * LEAST_WEIGHT, n_names)  # before a copy is made
    form, weights = _weights(coef, getattr(classifier, "label_scale_", None))
    layout, blob = _joined(arrays | weights)
    _check_size(len(blob), n_names)
    about["model"] = description | {"weights": form, "arrays": layout}
    return _render(about["title"], _json(about), base64.b64encode(blob).decode("ascii"), "'none'")


def service_page() -> str:
    """The page that asks the service it came from; it says nothing about the model."""
    return _render("widemargin", _json({"source": "service", "version": __version__}), "", "'self'")


def describe_model(model: Any, title: str | None = None) -> dict[str, Any]:
    """What the page shows about a model, and the analysis of its texts.

    Parameters
    ----------
    model : fitted classifier or Pipeline
        Any model of this package.
    title : str, optional
        Headline.

    Returns
    -------
    dict
        "title", "facts" (a list of texts), "takes_text", "version", and "analysis", which is None for a model whose
        terms a page cannot find; then no words are highlighted.
    """
    check_is_fitted(model)
    takes_text = isinstance(model, Pipeline)
    classifier = model[-1] if takes_text else model
    name = type(classifier).__name__
    certificate, n_features = getattr(classifier, "certificate_", None), classifier.n_features_in_
    facts = [
        FAMILIES.get(name, name),
        f"{len(classifier.classes_):,} labels",
        f"{n_features:,} {'terms' if takes_text else 'features'}",
    ]
    if certificate is not None:
        facts.append(f"certified gap {100.0 * max(certificate.relative_gap, 0.0):.2g} %")
    try:
        analysis = describe_analysis(model[0]) if takes_text else None
    except NotSavableError:
        analysis = None
    return {
        "title": name if title is None else title,
        "facts": facts,
        "takes_text": takes_text,
        "version": __version__,
        "analysis": analysis,
    }


def answer(model: Any, text: str, k: int) -> dict[str, Any]:
    """The top labels of a text and the terms that decided, as the page shows them.

    Parameters
    ----------
    model : TextPipeline
        The model.
    text : str
        The text.
    k : int
        Number of labels.

    Returns
    -------
    dict
        "known", the number of terms of the text that the model knows; "note", why there are no explanations, if so; and
        "labels", best first.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from widemargin import OneVsAllClassifier, TextPipeline
    >>> from widemargin.page.page import answer
    >>> texts, y = ["fresh bread", "a cake", "an engine", "the gearbox"], ["food", "food", "cars", "cars"]
    >>> model = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(texts, y)
    >>> found = answer(model, "bread!", 1)
    >>> found["known"], found["labels"][0]["label"], found["labels"][0]["terms"][0][0]
    (1, 'food', 'bread')
    """
    classifier, X = model[-1], model[0].transform([text])
    k = min(k, len(classifier.classes_))
    top = classifier.predict_topk(X, k)
    listed = top.indices[0] >= 0
    indices, scores = top.indices[0][listed].tolist(), top.scores[0][listed].tolist()
    probabilities: list[float | None] = [None] * len(indices)
    if hasattr(classifier, "label_proba"):
        probabilities = classifier.label_proba(X, top.indices)[0][listed].tolist()
    predicted: set[int] | None = None
    if _decides(classifier):
        predicted = set(sp.csr_array(classifier.predict(X)).indices.tolist())
    note = ""
    whys: list[Any] = [None] * len(indices)
    try:
        names = [classifier.classes_[index] for index in indices]
        whys = list(classifier.explain(X, names, feature_names=model[0].get_feature_names_out()))
    except ValueError as error:
        note = str(error)
    labels = []
    for index, score, probability, why in zip(indices, scores, probabilities, whys, strict=True):
        found = {"label": str(classifier.classes_[index]), "score": score, "probability": probability}
        found |= {"predicted": None if predicted is None else index in predicted}
        if why is not None:
            found |= {"note": why.note, **_sum(why.to_score)}
            steps = [_step(step) for step in why.steps]
            found["path"] = steps or [{"label": name} for name in _path_names(classifier, index)]
        labels.append(found)
    return {"known": int(X.nnz), "note": note, "labels": labels}


def _step(step: Any) -> dict[str, Any]:
    """A node of a path: its lead over the best sibling as a sum."""
    found = {"label": str(step.label), "score": step.score}
    if step.to_margin is None:
        return found
    return found | {"runner_up": str(step.runner_up), "margin": step.margin, **_sum(step.to_margin)}


def _sum(total: Contributions) -> dict[str, Any]:
    terms = list(zip(total.features[:MOST_TERMS], total.contributions[:MOST_TERMS], strict=True))
    return {"terms": terms, "others": sum(total.contributions[MOST_TERMS:]), "intercept": total.intercept}


def _path_names(classifier: Any, index: int) -> list[str]:
    """Nodes from below the root to a class, on a tree."""
    if not hasattr(classifier, "taxonomy_"):
        return []
    tree = classifier.taxonomy_
    return [str(tree.nodes[node]) for node in tree.tree.path(int(classifier.class_node_[index]))[1:]]


def _check_exportable(model: Any) -> Any:
    """The classifier of a model that a page can hold; else a NotSavableError that names the remedy."""
    if not isinstance(model, Pipeline) or len(model.steps) != 2:
        raise NotSavableError(
            "export requires a text model, but this model takes rows of numbers; train on a table with --text, or use "
            "a Pipeline of a TfidfVectorizer and a classifier"
        )
    check_is_fitted(model)
    classifier, name = model[-1], type(model[-1]).__name__
    if name not in HOMES:
        raise NotSavableError(f"{name} cannot be exported as a page; use one of: {', '.join(sorted(HOMES))}")
    if not hasattr(classifier, "coef_"):
        what = "an output code" if hasattr(classifier, "code_book_") else f"a model with kernel={classifier.kernel!r}"
        raise NotSavableError(
            f"{what} has no weights of terms, which a page needs; train a linear one-vs-all, top-k or tree model, or "
            "use the page of widemargin serve"
        )
    describe_analysis(model[0])  # raises an error that names what a page cannot repeat; its tables are kept
    return classifier


def _check_size(n_array_bytes: int, n_names: int) -> None:
    """A NotSavableError if a page with these arrays and that many bytes of names and tables is too large."""
    n_bytes = n_array_bytes * 4 // 3 + n_names + ROOM  # base64 adds a third
    if n_bytes <= MOST_BYTES:
        return
    room = (MOST_BYTES - n_names - ROOM) * 3 // 4 // MEGABYTE
    size = f"the page would have {n_bytes / MEGABYTE:,.0f} MB, but the limit is {MOST_BYTES // MEGABYTE} MB"
    if room < 1:
        raise NotSavableError(
            f"{size}; the names of terms and labels alone take {n_names / MEGABYTE:,.0f} MB, so train with fewer terms "
            "(--max-features or --min-df)"
        )
    raise NotSavableError(
        f"{size}; compress the model first, as with: widemargin compress MODEL --max-size {room}MB --out SMALL"
    )


def _model_parts(model: Any) -> tuple[dict[str, Any], Arrays]:
    """The model as JSON values and arrays, without its weights."""
    vectorizer, classifier = model[0], model[-1]
    scale = getattr(classifier, "label_scale_", None)
    intercept = np.asarray(classifier.intercept_, dtype=np.float64) + 0.0
    arrays: Arrays = {"intercept": intercept if scale is None else scale * (intercept + 1.0) - 1.0}
    dtype = np.dtype(vectorizer.dtype)
    if vectorizer.use_idf:
        arrays["idf"] = vectorizer.idf_
    if vectorizer.sublinear_tf:
        arrays["logs"] = np.log(np.arange(1, LOGS, dtype=dtype))
    description = {
        "kind": classifier.kind_,
        "classes": [str(name) for name in classifier.classes_.tolist()],
        "terms": [str(term) for term in vectorizer.get_feature_names_out()],
        "vector": {
            "dtype": dtype.name,
            "binary": bool(vectorizer.binary),
            "norm": vectorizer.norm,
            "unit": bool(classifier.normalize),
        },
        "most_terms": MOST_TERMS,
    }
    if hasattr(classifier, "calibration_"):
        description["calibration"] = classifier.calibration_.method
        arrays |= {f"calibration_{name}": part for name, part in classifier.calibration_.to_arrays().items()}
    if _decides(classifier):
        rule, limits = _decision(classifier)
        description["decision"] = rule
        arrays |= limits
    if hasattr(classifier, "taxonomy_"):
        tree, parts = _tree(classifier)
        description["tree"] = tree
        arrays |= parts
    return description, arrays


def _weights(coef: Any, scale: npt.NDArray[np.float64] | None) -> tuple[dict[str, Any], Arrays]:
    """The form of the weights, and their arrays by feature."""
    n_outputs, n_features = coef.shape
    if isinstance(coef, TreeWeights):
        form, arrays = _weights(coef.parts, None)
        paths, factor = coef.factor.paths, coef.factor
        arrays |= {"path_starts": paths.path_indptr, "path_rows": paths.path_nodes}
        return form | {"factored": True}, arrays | {"path_factors": factor.R / factor.pivots[paths.path_nodes]}
    if isinstance(coef, CompressedWeights):
        lists = coef if scale is None else coef.scaled(scale)
        form = {"form": "compressed", "outputs": n_outputs, "factored": False, "per_block": coef.labels_per_block}
        return form, {name: getattr(lists, name) for name in CompressedWeights.ARRAYS}
    columns = sp.csc_array(coef)
    columns.sum_duplicates()
    if scale is not None:  # as in `FeatureIndex.of`
        columns.data = (columns.data * scale[columns.indices]).astype(columns.dtype)
    places = np.uint16 if n_outputs <= 2**16 else np.uint32
    form = {"form": "lists", "outputs": n_outputs, "factored": False}
    size = columns.dtype.itemsize
    if columns.nnz * (size + places().itemsize) > n_outputs * n_features * size:
        return form | {"form": "dense"}, {"values": columns.toarray().T}
    return form, {"values": columns.data, "places": columns.indices.astype(places), "starts": columns.indptr}


def _decides(classifier: Any) -> bool:
    """Whether a model has several labels per row and can say which of them it predicts."""
    return bool(classifier.kind_ == "multilabel" and (_is_sign(classifier) or hasattr(classifier, "decision_")))


def _is_sign(classifier: Any) -> bool:
    return getattr(classifier, "decision", "sign") == "sign"


def _decision(classifier: Any) -> tuple[dict[str, Any], Arrays]:
    """Which labels a multi-label model predicts: scores above limits, or probabilities above ½."""
    if _is_sign(classifier):
        by_probability = hasattr(classifier, "calibration_")
        limits = np.broadcast_to(getattr(classifier, "label_scale_", 1.0) - 1.0, len(classifier.classes_))
        found = {"by": "probability" if by_probability else "score", "least": 0, "most": None}
        return found, {} if by_probability else {"limits": np.array(limits, dtype=np.float64)}
    rule = classifier._rule("export")
    found = {"by": "score", "least": rule.min_labels, "most": rule.max_labels}
    limits = np.broadcast_to(classifier._rank_limits(rule), len(classifier.classes_))
    return found, {"limits": np.array(limits, dtype=np.float64)}


def _tree(classifier: Any) -> tuple[dict[str, Any], Arrays]:
    """The taxonomy, and the tree in which predictions are searched."""
    taxonomy, decisions = classifier.taxonomy_, classifier._decisions
    parts = {name: getattr(decisions, name) for name in ("rows", "parent", "place", "first_child", "end_class")}
    arrays = {f"tree_{name}": part.astype(np.int32) for name, part in parts.items()}
    arrays |= {"tree_group_start": decisions.group_start.astype(np.int32)}
    arrays |= {"node_parent": taxonomy.tree.parent.astype(np.int32)}
    arrays |= {"class_node": classifier.class_node_.astype(np.int32)}
    found = {
        "nodes": [str(name) for name in taxonomy.nodes],
        "decision": classifier._decision(),
        "beam_width": int(classifier.beam_width),
        "follows_paths": bool(classifier._follows_paths()),
    }
    return found, arrays


def _joined(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, list[Any]], bytes]:
    """All arrays in one block of bytes, and the type, the offset and the length of each."""
    layout: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, array in arrays.items():
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8:  # a typed array has no such integers
            array = array.astype(np.int32 if array.size and array.min() < 0 else np.uint32)
        content = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        layout[name] = [array.dtype.name, offset, array.size]
        content += bytes(-len(content) % ALIGNMENT)
        parts.append(content)
        offset += len(content)
    return layout, b"".join(parts)


def _json(value: Any) -> str:
    """JSON that is inert in a script block: no `<`, and no half of a surrogate pair, which UTF-8 cannot hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def base_style() -> str:
    """Colours and type of all our pages."""
    return _file("base.css")


def _file(name: str) -> str:
    return resources.files("widemargin.page").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


def _render(title: str, data: str, blob: str, connections: str) -> str:
    """The template with its parts; `connections` is what the page may connect to."""
    style, script = base_style() + _file("try.css"), _file("try.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        f"connect-src {connections}; base-uri 'none'; form-action 'none'"
    )
    # A name that JSON can hold may have half of a surrogate pair.
    title = title.encode("utf-8", "replace").decode()
    parts = {"policy": policy, "title": html.escape(title), "style": style, "script": script}
    parts |= {"data": data, "blob": blob}
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: parts[found[1]], _file("try.html"))
