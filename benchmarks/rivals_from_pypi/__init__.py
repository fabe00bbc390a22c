"""Compares widemargin with every rival on PyPI, each in its own environment: `python -m rivals_from_pypi`."""
