"""Sphinx configuration; `make docs` builds with warnings as errors."""

import widemargin

project = "widemargin"
author = "the widemargin developers"
release = version = widemargin.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
myst_enable_extensions = ["dollarmath"]
autosummary_generate = True
numpydoc_show_class_members = False
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = "widemargin"
html_theme_options = {"show_prev_next": False}
