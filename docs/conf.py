"""Sphinx configuration; `make docs` builds with warnings as errors."""

import socket
import sys
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import widemargin

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "widemargin"
author = "the widemargin developers"
release = version = widemargin.__version__

extensions = [
    "generated_text",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
numpydoc_show_class_members = False
exclude_patterns = ["_build", "_extensions", "gallery/*.ipynb", "gallery/*.py", "gallery/*.zip"]
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = "widemargin"
html_static_path = []
html_theme_options = {
    "show_prev_next": False,
    # The sidebar of every page lists all pages in sections (_templates/sidebar-nav-bs.html); there is no top bar.
    "navbar_center": [],
    "show_nav_level": 1,
    "secondary_sidebar_items": ["page-toc"],
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    # From the most common questions to displays for single methods.
    "within_subsection_order": ExplicitOrder(
        [
            f"plot_{name}.py"
            for name in (
                "convergence",
                "top_k_accuracy",
                "precision_by_frequency",
                "reliability",
                "active_rows",
                "tree_confusion",
                "taxonomy_error",
                "orthogonality",
                "code_matrix",
            )
        ]
    ),
    "backreferences_dir": None,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
}


def has_network() -> bool:
    """Whether other sites are reachable."""
    try:
        socket.create_connection(("semver.org", 443), timeout=5).close()
    except OSError:
        return False
    return True


# `make linkcheck` always checks links between our own pages, and links to other sites if there is a network.
linkcheck_timeout = 10
linkcheck_report_timeouts_as_broken = False
if "linkcheck" in sys.argv and not has_network():
    print("no network: links to other sites are not checked")
    linkcheck_ignore = ["https?://"]
