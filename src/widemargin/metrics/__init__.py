"""Quality of rankings, label sets, top-k predictions, places in a tree and probabilities."""

from widemargin.metrics.calibration import (
    ReliabilityCurve,
    calibration_error_at_k,
    expected_calibration_error,
    reliability_curve,
)
from widemargin.metrics.hierarchical import (
    ErrorByDepth,
    error_by_depth,
    hierarchical_f1,
    hierarchical_precision,
    hierarchical_recall,
    hierarchical_zero_one_error,
    tree_induced_loss,
)
from widemargin.metrics.multilabel import PrecisionRecallF1, macro_f1, micro_f1, precision_recall_f1
from widemargin.metrics.propensity import jain_propensities, propensity_scored_precision_at_k
from widemargin.metrics.ranking import ndcg_at_k, precision_at_k, recall_at_k
from widemargin.metrics.top_k import top_k_accuracy, top_k_accuracy_from_scores, top_k_error, top_k_error_from_scores

__all__ = [
    "ErrorByDepth",
    "PrecisionRecallF1",
    "ReliabilityCurve",
    "calibration_error_at_k",
    "error_by_depth",
    "expected_calibration_error",
    "hierarchical_f1",
    "hierarchical_precision",
    "hierarchical_recall",
    "hierarchical_zero_one_error",
    "jain_propensities",
    "macro_f1",
    "micro_f1",
    "ndcg_at_k",
    "precision_at_k",
    "precision_recall_f1",
    "propensity_scored_precision_at_k",
    "recall_at_k",
    "reliability_curve",
    "top_k_accuracy",
    "top_k_accuracy_from_scores",
    "top_k_error",
    "top_k_error_from_scores",
    "tree_induced_loss",
]
