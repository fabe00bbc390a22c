"""The scikit-learn face: check input once, choose a solver, keep the result."""

from widemargin.estimators._linear import TopK
from widemargin.estimators.hierarchical import HierarchicalClassifier
from widemargin.estimators.one_vs_all import OneVsAllClassifier
from widemargin.estimators.orthogonality import Orthogonality
from widemargin.estimators.persistence import load, save
from widemargin.estimators.top_k import TopKClassifier

__all__ = ["HierarchicalClassifier", "OneVsAllClassifier", "Orthogonality", "TopK", "TopKClassifier", "load", "save"]
