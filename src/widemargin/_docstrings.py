"""Passages that many docstrings share, written once.

A line `<name>` in a docstring, or in a passage, stands for the passage of that name below; `with_shared_passages` puts
it there when the module is imported. `{owner}` is the name of the class.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

TEXT = """
<animals>
    >>> from widemargin import Taxonomy
    >>> tree = Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": None}})
<any_k>
    k : int or sequence of int
        Number of places that count.
<ax>
    ax : matplotlib Axes, optional
        Axes to draw in. By default, a new figure.
<bins>
    n_bins : int
        Number of bins of equal width from 0 to 1.
<classes>
    classes : sequence of length n_classes, optional
        Names of the classes.
<code>
    code : array-like of shape (n_classes, n_columns)
        The code.
<code_of_classes>
    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.

    <new_code>
<code_to_separation>
    Parameters
    ----------
    <code>

    Returns
    -------
    float
        The separation.
<columns>
    labels : array-like of names, shape (n_columns,), optional
        Names of the columns of an indicator. By default, the nodes of the taxonomy in order.
<display>
    <ax>

    Returns
    -------
    {owner}
        The display.
<drawn>
    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
<fitted>
    Returns
    -------
    {owner}
        The fitted model.
<folder>
    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
<four_classes>
    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.3 * np.random.default_rng(0).normal(size=(60, 4))
<intercept_scaling>
    intercept_scaling : float, default=1.0
        Value of the constant feature; the larger, the weaker the penalty on the intercept.
<itself>
    Returns
    -------
    {owner}
        The display itself, with `ax_` and `figure_`.
<kernel_numbers>
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant of poly and sigmoid.
    kernel_params : dict or None, default=None
        Keyword arguments of a callable kernel.
<label_sets>
    Parameters
    ----------
    Y_true, Y_pred : indicators of shape (n_samples, n_labels), label sets, or labels of shape (n_samples,)
        True and predicted labels, in any form that `fit` accepts or `predict` returns, as for `precision_recall_f1`.
    labels : array of shape (n_labels,), optional
        The labels that a model knows, ``model.classes_``. They count even if they are neither true nor predicted, and
        they name the columns of an indicator if the other argument holds labels.
<mean_at_k>
    sample_weight : array of shape (n_samples,), optional
        Weights of the rows in the mean.

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1.
<measure>
    measure : {"precision", "recall"}, default="precision"
        What to draw.
<method_and_tree>
    method : {"orthogonal", "per-node", "similarity", "tree-loss", "flat"}
        How to train.
    tree : Tree
        The tree; its root has no weights.
<n_classes>
    n_classes : int
        Number of classes, at least 2.
<n_classes_of_y>
    n_classes : int, optional
        Number of classes, at least 2. By default, one more than the largest index in y.
<n_jobs>
    n_jobs : int or None, default=None
        Threads for prediction; -1 for all cores.
<named_display>
    <ax>
    name : str, optional
        Name in the legend, to distinguish several curves in the same axes.

    Returns
    -------
    {owner}
        The display.
<named_plot>
    Parameters
    ----------
    <ax>
    name : str, optional
        Name in the legend.

    <itself>
<new_code>
    Returns
    -------
    ndarray of int8 of shape (n_classes, n_columns)
        The code.
<nnz_and_exponent>
    nnz_per_row : float
        Mean number of non-zero features per row, met within a few per cent unless n_features is hardly larger.
    exponent : float
        Exponent of Zipf's law, for labels and for background words; 0 is uniform.
<node_and_max_children>
    node : hashable, optional
        Node whose children are compared. By default, the root.
    max_children : int, default=16
        Number of children shown one by one: those with the most wrong rows.
<node_sets>
    y_true, y_pred : array-like of names of shape (n_samples,), list of label sets, or indicator
        True and predicted nodes, as for `hierarchical_precision`.
<nodes>
    y_true, y_pred : array-like of names, shape (n_samples,)
        True and predicted nodes, leaves or inner nodes. `y_true` may also hold label sets, as for
        `hierarchical_precision`; then the label nearest to the prediction counts.
<normalize>
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
<one_class>
    y : array-like of int of shape (n_samples,)
        Index of the true class of each row.
<prediction_memory>
    memory_limit_mb : float, default=1024
        Limit on the dense result of `decision_function`, and on work areas of prediction.
<projected>
    Parameters
    ----------
    a : array-like of shape (d,) or (n_rows, d)
        The points to project.
<projections>
    rho : float or array-like of shape (n_rows,)
        Weight of ½⟨1,x⟩² in the objective, at least 0; 0 gives the nearest point.

    Returns
    -------
    ndarray of float64, shape of `a`
        The projections.
<ranked_truth>
    Parameters
    ----------
    Y_true : indicator of shape (n_samples, n_labels), label sets, or labels of shape (n_samples,)
        True labels, in any form that `fit` accepts. Labels and label sets need a `topk` from `predict_topk`, which
        knows the classes; unknown labels are misses. Nothing is made dense.
    topk : named tuple (labels, scores, indices) or int array of shape (n_samples, n_places)
        The result of `predict_topk`, or its `indices`: best first. −1 marks a missing place, which counts as a miss.
    k : int or sequence of int
        Number of places that count; at most n_places.
<ranking_and_attributes>
    <prediction_memory>
    callback : callable or None, default=None
        Called with a `Progress` after each round of the joint problem, or after each class; training stops when it
        returns true. `TimeLimit` sets a time limit.
    <n_jobs>
    <verbose>

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights, one row per class; for two classes the difference of the second and the first. Read-only.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Intercepts; zeros if there are none.
    certificate_ : Certificate
        Bounds on the optimum; sums over the classes in the one-vs-all form.
    history_ : History
        How training went, one row per round.
    n_iter_ : int
        Number of rounds of all problems.
    status_ : Status
        Why training stopped; `Status.CONVERGED` when the tolerance was reached, `Status.NOT_ATTAINED` when rounding
        error does not allow it. The weights are never worse than zero weights.
    <training_data_attributes>
<reduction_and_tol>
    reduction : {"joint", "one-vs-all"}, default="joint"
        Whether there is one problem of all pairs of a row and a class, or one problem per class: its rows against all
        others.
    tol : float, default=1e-3
        Training stops when the certified relative gap, primal − dual over the larger of them, is at most this in each
        of the problems.
<repository>
    References
    ----------
    .. [1] K. Bhatia et al., "The extreme classification repository: multi-label datasets and code", 2016.
       http://manikvarma.org/downloads/XC/XMLRepository.html
<row_weights>
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows, at least 0 and not all 0.
<row_weights_of_fit>
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, not negative; a row of weight 0 counts as absent.
<sample_weight>
    sample_weight : array of shape (n_samples,), optional
        Weights of the rows.
<rows_to_label>
    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows to label.
<rows_to_score>
    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows to score.
<scale>
    scale : {"objective", "gap"}, default="objective"
        Both bounds, or the relative gap between them.
<seed>
    random_state : int, numpy Generator or None
        Seed; the same number gives the same data.
<probability_bins>
    n_bins : int, default=15
        Number of bins of probability.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of the same width, or with the same number of predictions.
<share>
    <sample_weight>

    Returns
    -------
    float
        Between 0 and 1.
<small_fit>
    >>> import numpy as np
    >>> from widemargin import TopKClassifier
    >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    >>> model = TopKClassifier(random_state=0).fit(X, y)
<small_ranking>
    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> Y = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]]))
    >>> indices = np.array([[0, 1, 2], [3, 1, -1]])
<taxonomy>
    taxonomy : Taxonomy
        The tree. A label that is not in it is an error.
<taxonomy_without_root>
    taxonomy : Taxonomy
        The tree. A label that is not in it is an error. The root does not count.
<ties>
    ties : {"expected", "optimistic", "pessimistic"}
        How labels with the same score as the true label count.
<texts>
    Parameters
    ----------
    X : iterable of str
        The texts.
<top_k_passes>
    tol : float
        Relative gap to reach.
    max_iter : int
        Largest number of passes over the rows.
    seed : int
        Decides the order in which rows are visited.
<top_k_start>
    start : csr_array of shape (n_samples, n_classes) or None
        Dual variables to start from, feasible for `loss` and `costs`; 0 at the true classes.
<top_k_callback>
    callback : callable or None
        Called with a `Progress` after evaluations; stops the solver when true. A `TimeLimit` carries a deadline.
<top_k_classes>
    y : ndarray of int64 of shape (n_samples,)
        Class of each row, 0 … n_classes − 1.
    n_classes : int
        Number of classes; some may have no row.
    loss : TopKHinge
        The loss of a row's margins; its k is at most n_classes − 1.
    costs : ndarray of shape (n_samples,)
        C_i ≥ 0; rows of cost 0 count as absent.
<top_k_lists>
    Returns
    -------
    TopK
        Named tuple `(labels, scores, indices)` of arrays of shape (n_samples, k).
<training_data_attributes>
    classes_ : ndarray of shape (n_classes,)
        The labels.
    label_counts_ : ndarray of shape (n_classes,)
        Number of training rows per class.
    n_samples_fit_ : int
        Number of training rows.
    kind_ : str
        "binary" or "multiclass".
<training_rows>
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training rows.
    y : array-like of shape (n_samples,)
        Labels, of at least two classes.
<training_rows_to_model>
    Parameters
    ----------
    <training_rows>

    <fitted>
<tree_model_and_rows>
    Parameters
    ----------
    estimator : fitted HierarchicalClassifier
        The model.
    <X>
    y : array-like of shape (n_samples,)
        Labels, one per row.
<tree_problem>
    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    losses : TreeLosses
        The blocks of constraints with their costs, from `problems.tree_losses.tree_losses`.
<true_and_predicted>
    Parameters
    ----------
    y_true, y_pred : array-like of names of shape (n_samples,)
        True and predicted nodes.
    taxonomy : Taxonomy
        The tree.
<true_and_scored>
    Parameters
    ----------
    y_true : array of shape (n_samples,)
        Columns of the true labels or, with `labels`, the labels themselves.
    scores : array of shape (n_samples, n_labels)
        Scores of all labels.
    k : int or sequence of int
        Number of places that count; at most n_labels.
    labels : array of shape (n_labels,), optional
        The labels of the columns, ``model.classes_``. A true label that is not among them counts as an error.
<unit>
    unit : str, default="iteration"
        What the horizontal axis counts.
<verbose>
    verbose : int, default=0
        Level of output; progress is printed if positive.
<weighting>
    Parameters
    ----------
    weighting : {"tfidf", "counts"}, default="tfidf"
        Rows of tf-idf values with norm 1, or the counts as stored (for a `Pipeline` that weights them itself).

    Returns
    -------
    LabelledData
        The train and the test part, and the names and the tree of the labels.
<weights>
    sample_weight : array-like, optional
        Weights, of the same shape.
<X>
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows.
<y_prob>
    y_prob : array-like of float
        Probabilities, of the same shape.
"""

Documented = TypeVar("Documented", bound=Callable[..., Any] | type)

PASSAGES = {name: textwrap.dedent(text) for name, text in re.findall(r"^<(\w+)>\n((?:    .*\n|\n)+)", TEXT, re.M)}


def with_shared_passages(documented: Documented) -> Documented:
    """Replace each line `<name>` of a docstring, and those of the methods of a class, by the shared passage.

    Parameters
    ----------
    documented : function or class
        What has the docstring; it is changed in place.

    Returns
    -------
    function or class
        The same object.

    Examples
    --------
    >>> from widemargin._docstrings import with_shared_passages
    >>> def draw(ax): "<ax>"
    >>> print(with_shared_passages(draw).__doc__)
    ax : matplotlib Axes, optional
        Axes to draw in. By default, a new figure.
    """

    def filled(text: str) -> str:
        return re.sub(r"^(?P<indent> *)<(?P<name>\w+)>$", passage, text, flags=re.M)

    def passage(match: re.Match[str]) -> str:
        text = PASSAGES[match["name"]].rstrip().replace("{owner}", documented.__name__)
        return textwrap.indent(filled(text), match["indent"])

    for thing in (documented, *(vars(documented).values() if inspect.isclass(documented) else ())):
        function = getattr(thing, "__func__", thing)  # a class method has a function inside
        if callable(function) and function.__doc__:  # there is none under python -OO
            function.__doc__ = filled(function.__doc__)
    return documented
