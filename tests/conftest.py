"""The tests see the same hypothesis examples in every run; `make fuzz` sets HYPOTHESIS_PROFILE=fresh for new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
