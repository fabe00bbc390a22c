"""Training and test rows: splits that keep label shares, and groups of near-copies to keep together."""

from widemargin.model_selection.near_copies import near_copy_groups
from widemargin.model_selection.stratification import StratifiedLabelKFold, stratified_split

__all__ = ["StratifiedLabelKFold", "near_copy_groups", "stratified_split"]
