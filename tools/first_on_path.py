"""A `sitecustomize.py` for a folder in PYTHONPATH: what is installed there wins over an editable install.

The finder of an editable install stands before the search of `sys.path`, so that without this `make sanitize` would
test the core of `.venv`, which has no sanitizers.
"""

import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable_")]
