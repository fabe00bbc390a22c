"""The scikit-learn face: check input once, choose a solver, keep the result."""

from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.persistence import load, save
from widemargin.estimators.scoring import TopK
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.estimators.tree.model import Orthogonality

__all__ = ["HierarchicalClassifier", "OneVsAllClassifier", "Orthogonality", "TopK", "TopKClassifier", "load", "save"]
