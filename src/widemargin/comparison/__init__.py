"""Which method suits the data at hand: every family that fits the labels, tuned and measured on the same rows."""

from widemargin.comparison.compare import compare
from widemargin.comparison.result import Comparison, MethodResult

__all__ = ["Comparison", "MethodResult", "compare"]
