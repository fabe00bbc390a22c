"""A `sitecustomize.py` for a folder in PYTHONPATH: packages installed there take precedence over an editable install.

The finder of an editable install runs before the search of `sys.path`. Without this file, `make sanitize` would test
the core in `.venv`, which has no sanitizers.
"""

import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable_")]
