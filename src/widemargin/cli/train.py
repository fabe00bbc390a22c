"""`widemargin train`: data file in, model folder out; with `--tune`, after choosing values by cross-validation."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from widemargin.cli import console, inputs
from widemargin.cli.inspect import print_choice
from widemargin.cli.options import OPTIONS_OF, Given, executor_of, make_estimator
from widemargin.data.load import Dataset, label_files
from widemargin.estimators.one_vs_all.folder_training import train
from widemargin.estimators.persistence import save
from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.text import with_text
from widemargin.estimators.training import Estimator
from widemargin.files import refuse_input_as_output
from widemargin.model_io import check_writable, folder_size
from widemargin.solvers.limits import TimeLimit

__all__ = ["run"]

CALIBRATION_FOLDS = 3
DECIDING = ("objective", "per_label_thresholds", "min_labels", "max_labels", "precision_target", "tune_decision")
MANY = 10**6  # more classes than any k: the parameters to tune do not depend on the data


def run(given: Given) -> None:
    """Read, train into the folder, and report."""
    spec = inputs.table_spec(given)
    names = () if spec else (given.labels, given.features, *label_files(given.data))
    refuse_input_as_output(given.out, given.data, given.taxonomy, given.row_ids, *names)
    check_writable(given.out)
    # Only the rows to hold out are drawn at random in one-vs-all.
    no_seed = {"seed": None} if given.test_size is not None and given.method == "one-vs-all" else {}
    estimator = make_estimator(given.method, vars(given) | no_seed)  # wrong options are errors before a file is read
    if given.tune:
        check_tunable(estimator, given)
    elif given.metric is not None:
        if given.method != "one-vs-all" or estimator.rank_scale != "auto":
            raise ValueError("--metric requires --tune, or one-vs-all with --rank-scale auto; leave it out")
        estimator.set_params(metric=given.metric)._check_parameters()
    dataset, held_out, groups = inputs.load_training(given, spec, given.test_size)
    dataset = replace(dataset, Y=inputs.targets_for(given.method, dataset, getattr(estimator, "taxonomy", None)))
    if given.method == "one-vs-all":
        _choose_decision(estimator, dataset, given)
    if given.tune:
        X, vectorizer = (dataset.X, None) if spec is None else (_texts(given, spec), inputs.vectorizer_of(given))
        tuning = with_best_values(estimator, X, dataset.targets.labels, vectorizer, groups, given)
        if not given.json:
            print_choice(tuning)
    wall, cpu = time.perf_counter(), time.process_time()
    with console.progress_bar("Training") as callback:
        if given.time_limit is not None:
            callback = TimeLimit(given.time_limit, callback)
        estimator.set_params(callback=callback)
        how: dict[str, Any] = {"executor": executor_of(given), "memory_limit_mb": given.memory_limit}
        how |= {"shard_size": given.shard_size, "restart": given.restart, "report": console.print_note}
        how |= {"keep_rows": given.keep_rows, "keep_duals": given.keep_duals}
        fitted = train(estimator, dataset, given.out, **how, groups=groups if _chooses(estimator, groups) else None)
    model = fitted if dataset.text is None else fitted[-1]
    if given.calibrate is not None:
        model.calibrate(dataset.X, dataset.targets.labels, method=given.calibrate, cv=CALIBRATION_FOLDS)
        save(with_text(model, dataset.text), given.out)
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    measured = None if held_out is None else _measured(model, held_out)
    summary = summarize(model, dataset, seconds) | {"model": str(given.out), "model_bytes": folder_size(given.out)}
    summary |= {"test": measured} if measured else {}
    if given.json:
        console.print_json(summary)
    else:
        console.print_table(f"Model in {given.out}", table_rows(summary))
        if measured:
            from widemargin.cli.evaluate import table_rows as rows_of_metrics

            console.print_table(f"Evaluated on {measured.pop('rows'):,} held-out rows", rows_of_metrics(measured))


def _choose_decision(estimator: Any, dataset: Dataset, given: Given) -> None:
    """Make a threshold on held-out rows the decision of rows with several labels, unless the options say otherwise."""
    several = dataset.targets.kind == "multilabel"
    wanted = [name for name in DECIDING if getattr(given, name) not in (None, False)]
    if wanted and (not several or given.decision == "sign"):
        why = "--decision sign" if several else "data with one label per row"
        raise ValueError(f"{OPTIONS_OF['train'][wanted[0]].flag} does not apply to {why}; leave it out")
    if several and given.decision != "sign" and (given.tune_decision is not False or given.decision == "threshold"):
        estimator.set_params(decision="threshold", tune_decision=given.tune_decision is not False)


def _chooses(estimator: Any, groups: Any) -> bool:
    """Whether `fit` holds out rows; groups without a use are an error."""
    parameters = estimator.get_params(deep=False)
    held_out = "auto" in (parameters["C"], parameters.get("rank_scale")) or parameters.get("tune_decision", False)
    if groups is not None and not held_out and not hasattr(estimator, "tuning_"):
        raise ValueError("--group has no effect, because no rows are held out; leave it out, or use --C auto")
    return bool(held_out)


def _texts(given: Given, spec: Any) -> Any:
    """The texts of the table again: the folds of --tune have their own vectorisers."""
    return inputs.read_table(given.data, spec, given.skip_unlabelled).texts


def _measured(model: Any, held_out: Dataset) -> dict[str, Any]:
    """Metrics on the rows held out."""
    from widemargin.cli.evaluate import measure

    return {"rows": int(held_out.X.shape[0])} | measure(model, held_out, None)


def summarize(model: Any, dataset: Dataset, seconds: dict[str, float]) -> dict[str, Any]:
    """What `train` reports, as plain values."""
    n_rows, n_features = dataset.X.shape
    certificate = model.certificate_
    worst = certificate.worst
    return {
        "rows": int(n_rows),
        "features": int(n_features),
        "labels": len(model.classes_),
        **seconds,
        "C": model.C_,
        **({"rank_scale": model.rank_scale_} if hasattr(model, "rank_scale_") else {}),
        **({"decision": model.decision_.describe()} if hasattr(model, "decision_") else {}),
        **({"tuning": model.tuning_} if hasattr(model, "tuning_") else {}),
        "status": model.status_.value,
        "calibration": model.calibration_.method if hasattr(model, "calibration_") else None,
        "certificate": certificate.to_dict(),
        # The gap that `tol` bounds for models on a tree.
        **({"decrease_gap": certificate.decrease_gap} if hasattr(model, "taxonomy_") else {}),
        "worst_label": None if worst is None else model._problem_name(worst.index),
    }


def table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as lines for people."""
    certificate = summary["certificate"]
    rows = [
        ("rows", f"{summary['rows']:,}"),
        ("features", f"{summary['features']:,}"),
        ("labels", f"{summary['labels']:,}"),
        ("training", f"{summary['seconds']:.1f} s ({summary['cpu_seconds']:.1f} s CPU), {summary['status']}"),
        *([("C", _chosen_text(summary))] if "tuning" in summary else []),
        *([("rank scale", f"{summary['rank_scale']:g}")] if summary.get("rank_scale") else []),
        *([("decision rule", summary["decision"])] if "decision" in summary else []),
        *([("probabilities", f"{summary['calibration']} calibration")] if summary["calibration"] else []),
        ("objective", f"between {certificate['dual']:.6g} and {certificate['primal']:.6g}"),
        ("certified gap", console.gap_text(certificate)),
        *([("relative to decrease", f"{summary['decrease_gap']:.2e}")] if "decrease_gap" in summary else []),
    ]
    if summary["worst_label"] is not None:
        rows.append(("worst label", f"{summary['worst_label']}: {certificate['worst']['relative_gap']:.2e}"))
    rows.append(("model size", console.size_text(summary["model_bytes"])))
    return rows


def _chosen_text(summary: dict[str, Any]) -> str:
    """C and how it was chosen."""
    tuning = summary["tuning"]
    chosen = f"chosen on {tuning['rows']:,} held-out rows"
    return f"{summary['C']:.4g}, " + (chosen if tuning["folds"] else tuning["notes"][0].partition(": ")[2].rstrip("."))


def _axes(estimator: Estimator, given: Given) -> dict[str, Any]:
    """What remains to choose: parameters that were given keep their values."""
    is_code = "code_size" in estimator.get_params(deep=False)
    learned = is_code and estimator.learn is not None and estimator.norm_bound is None and estimator.learn != "greedy"
    C = given.binary_C if is_code and not learned else given.C
    return {
        "Cs": "auto" if C in (None, "auto") else None,
        "ks": "auto" if given.k is None else None,
        "alpha_shares": "auto",
    }


def check_tunable(estimator: Estimator, given: Given) -> None:
    """Raise an error before a large file is read if nothing is left to choose."""
    from widemargin.comparison.tune import grid_for

    try:
        grid_for(estimator, MANY, **_axes(estimator, given))
    except ValueError:
        names = [name for name in ("C", "binary_C", "k", "alpha") if getattr(given, name) not in (None, "auto")]
        named = " and ".join(OPTIONS_OF["train"][name].flag for name in names)
        raise ValueError(
            f"--tune has nothing left to choose with {named} set; leave out one of these options"
        ) from None


def with_best_values(estimator: LabelModel, X: Any, y: Any, vectorizer: Any, groups: Any, given: Given) -> Any:
    """Choose the values and set them; X are texts if there is a vectoriser.

    Sets: the parameters of the estimator, and its `tuning_`, which goes into the model.
    """
    from sklearn.pipeline import Pipeline

    from widemargin.comparison import tune

    whole = estimator if vectorizer is None else Pipeline([("tfidf", vectorizer), ("classifier", estimator)])
    how = {"cv": given.folds or 5, "groups": groups, "metric": given.metric, "budget": given.budget, "refit": False}
    with console.time_bar("tuning") as report:
        found = tune(whole, X, y, **_axes(estimator, given), **how, report=report)
    estimator.set_params(**({"C": 1.0} if estimator.C == "auto" else {}) | found.best)
    estimator.tuning_ = found.to_dict()
    return found
