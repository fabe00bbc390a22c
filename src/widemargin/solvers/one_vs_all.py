"""One-vs-all with a truncated Newton method, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

Newton with preconditioned conjugate gradients on the active set (eq. (19)–(20) of Schultheis & Babbar, 2022), until
‖∇L(w)‖ ≤ tol · max(1, min(P, N))/n · ‖∇L(0)‖, eq. (12)–(13), and the certified relative gap is at most `gap_tol`; P, N
and n are sums of weights. Weights are rounded to the type of X, pruned, and certified as they are stored: the upper
bound is their objective, the lower bound a dual point made from them before pruning.

Labels are solved in blocks of about half a second, between which the callback and the time limit are looked at; where
they start is in `widemargin.solvers.starts`. A label of one side only has, with a free intercept, the answer w = 0 and
b = ∓1 for the squared hinge and no minimiser for the logistic loss (b = ∓30, status NOT_ATTAINED).
Memory: X, the model, and at most `memory_limit_mb` of work (but at least one thread's vectors and one label's weights).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from widemargin.problems.losses import get_loss
from widemargin.solvers._one_vs_all_inputs import checked_initial, prepare_inputs
from widemargin.solvers._one_vs_all_run import OneVsAllResult, Run
from widemargin.solvers.result import Callback
from widemargin.solvers.starts import GivenStart, Start, make_start, start_parameters

__all__ = ["OneVsAllResult", "solve_one_vs_all"]


def solve_one_vs_all(
    X: Any,
    Y: Any,
    *,
    C: float = 1.0,
    sample_weight: Any = None,
    positive_weight: Any = None,
    negative_weight: Any = None,
    fit_intercept: bool = True,
    regularize_intercept: bool = False,
    loss: str = "squared_hinge",
    tol: float = 0.01,
    gap_tol: float | None = 1e-3,
    prune: float = 0.0,
    polish: bool = False,
    tighten_cg: bool = True,
    max_iter: int = 1000,
    n_threads: int = 1,
    callback: Callback | None = None,
    time_limit_s: float | None = None,
    init: str = "zero",
    init_params: Mapping[str, Any] | None = None,
    initial: tuple[Any, Any] | None = None,
    labels_per_block: int | None = None,
    memory_limit_mb: float = 1024.0,
    backend: Literal["core", "reference"] = "core",
) -> OneVsAllResult:
    """Solve one binary problem a label.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        float32 or float64; indices of any order and of 32 or 64 bits; read-only memory maps are not copied.
    Y : sparse or dense indicator of shape (n_samples, n_labels)
        Which labels each row has.
    C : float
        Weight of the losses against the penalty.
    sample_weight : array of shape (n_samples,), optional
        Weights of the rows; rows of weight zero take no part.
    positive_weight, negative_weight : array of shape (n_labels,), optional
        Further factors for the rows with and without each label.
    fit_intercept, regularize_intercept : bool
        Whether there is an intercept, and whether it is penalised like a weight.
    loss : {"squared_hinge", "logistic"}
        Name of the loss.
    tol : float
        The gradient rule (12)–(13).
    gap_tol : float or None
        Largest certified relative gap of a label, before rounding to the type of X and pruning; None: not asked for.
    prune : float
        Weights smaller than this are dropped, and `coef` is CSR if positive; the intercept is never dropped.
    polish : bool
        Whether to go on to rounding error once the rule and the gap hold; for small problems, where it is cheap.
    tighten_cg : bool
        Whether conjugate gradients are solved more tightly for the rest of a label once a full step was refused; False
        is the published method, whose tolerance stays at 0.5 of the gradient's norm, or less near the solution.
    max_iter : int
        Newton steps a label at most; ordinary labels take 10 to 30, nearly hard margins hundreds.
    n_threads : int
        Threads of the core; the result does not depend on them.
    callback : callable, optional
        Called with a `Progress` after each block; a true answer stops.
    time_limit_s : float, optional
        No block begins after this many seconds.
    init : {"zero", "bias", "msi", "ovap", "ovap++", "subspace", "auto"}
        Where to start, see `widemargin.solvers.starts`; "auto" is the one with the fewest steps.
    init_params : mapping, optional
        Numbers of the starts: lam, s, t, strict.
    initial : tuple of (coef, intercept), optional
        Weights to start from instead of `init`, shapes (n_labels, n_features) and (n_labels,).
    labels_per_block : int, optional
        Size of a block; by default about half a second of work.
    memory_limit_mb : float
        Bound on the work area beside X and the model.
    backend : {"core", "reference"}
        The compiled core, or its NumPy specification.

    Returns
    -------
    OneVsAllResult
        Labels never reached have zero weights, the objective there as upper and zero as lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all import solve_one_vs_all
    >>> result = solve_one_vs_all(np.eye(2), np.array([[1], [0]]), tol=1e-9)
    >>> result.coef.round(6).tolist(), result.intercept.round(6).tolist()
    ([[0.666667, -0.666667]], [0.0])
    >>> result.status.value, bool(result.certificate.relative_gap < 1e-9)
    ('converged', True)
    """
    _check_numbers(C, {"tol": tol, "gap_tol": gap_tol, "prune": prune})
    _check_counts(max_iter, n_threads, labels_per_block)
    if backend not in ("core", "reference"):
        raise ValueError(f"backend must be 'core' or 'reference', got {backend!r}")
    get_loss(loss)
    parameters = start_parameters(init, init_params, loss)
    inputs = prepare_inputs(X, Y, sample_weight, positive_weight, negative_weight)
    task = inputs.task(
        loss=loss,
        C=C,
        fit_intercept=fit_intercept,
        regularize_intercept=regularize_intercept,
        tol=tol,
        gap_tol=gap_tol,
        prune=prune,
        max_iter=max_iter,
        n_threads=n_threads,
        polish=bool(polish),
        tighten_cg=bool(tighten_cg),
    )
    given = checked_initial(initial, inputs)
    start: Start
    if given is not None:
        start = GivenStart(*given)
    else:
        start = make_start(init, parameters, inputs.X, task, backend, labels_per_block)
    return Run(inputs, task, start, backend).solve(callback, time_limit_s, labels_per_block, memory_limit_mb)


def _check_numbers(C: float, tolerances: dict[str, float | None]) -> None:
    """Refuse numbers that have no meaning, NaN included."""
    if not (np.isfinite(C) and C > 0):
        raise ValueError(f"C must be positive and finite, got {C}")
    for name, value in tolerances.items():
        if value is not None and not value >= 0:
            raise ValueError(f"{name} must not be negative, got {value}")


def _check_counts(max_iter: int, n_threads: int, labels_per_block: int | None) -> None:
    """Refuse counts that are too small."""
    counts = {"max_iter": (max_iter, 0), "n_threads": (n_threads, 1), "labels_per_block": (labels_per_block, 1)}
    for name, (count, least) in counts.items():
        if count is not None and count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")
