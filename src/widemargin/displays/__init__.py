"""Pictures in scikit-learn's style: computed from an estimator or from predictions, drawn with matplotlib.

Drawing needs matplotlib, which `pip install 'widemargin[report]'` brings; it is imported when something is drawn.
"""

from widemargin.displays.active_rows import ActiveRowsDisplay, ActiveRowsOfPart
from widemargin.displays.code_matrix import CodeMatrixDisplay
from widemargin.displays.convergence import ConvergenceDisplay
from widemargin.displays.orthogonality import OrthogonalityDisplay
from widemargin.displays.precision_by_frequency import PrecisionByFrequencyDisplay
from widemargin.displays.reliability import ReliabilityDisplay
from widemargin.displays.taxonomy_error import TaxonomyErrorDisplay
from widemargin.displays.top_k_accuracy import TopKAccuracyDisplay
from widemargin.displays.tree_confusion import TreeConfusionDisplay

__all__ = [
    "ActiveRowsDisplay",
    "ActiveRowsOfPart",
    "CodeMatrixDisplay",
    "ConvergenceDisplay",
    "OrthogonalityDisplay",
    "PrecisionByFrequencyDisplay",
    "ReliabilityDisplay",
    "TaxonomyErrorDisplay",
    "TopKAccuracyDisplay",
    "TreeConfusionDisplay",
]
