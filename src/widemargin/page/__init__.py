"""A page to try a text model: one HTML file with the model inside, or the same page in front of the service."""

from widemargin.page.page import export_html

__all__ = ["export_html"]
