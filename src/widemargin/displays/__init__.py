"""Pictures in scikit-learn's style: computed from an estimator or from predictions, drawn with matplotlib.

Drawing needs matplotlib, which `pip install 'widemargin[report]'` installs; it is imported when something is drawn.
"""

from widemargin.displays.code_matrix import CodeMatrixDisplay
from widemargin.displays.quality import PrecisionByFrequencyDisplay, ReliabilityDisplay, TopKAccuracyDisplay
from widemargin.displays.training import ActiveRowsDisplay, ActiveRowsOfPart, ConvergenceDisplay
from widemargin.displays.trees import OrthogonalityDisplay, TaxonomyErrorDisplay, TreeConfusionDisplay

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
