"""Every rival on PyPI in an environment of its own, against widemargin: `python -m rivals_from_pypi`."""
