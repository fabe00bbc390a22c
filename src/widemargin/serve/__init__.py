"""A model as a small HTTP service: rows or texts in, the top labels out. Needs the extra `serve`."""

from widemargin.serve.app import Limits, make_app

__all__ = ["Limits", "make_app"]
