"""Reports: what a model is and where it fails, as one self-contained HTML page."""

from widemargin.report.page import write_report

__all__ = ["write_report"]
