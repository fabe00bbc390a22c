"""Which method and which values suit the data: all methods that fit the labels, tuned and measured on the same rows."""

from widemargin.comparison.compare import compare
from widemargin.comparison.result import Comparison, MethodResult, Tuning
from widemargin.comparison.tune import tune

__all__ = ["Comparison", "MethodResult", "Tuning", "compare", "tune"]
