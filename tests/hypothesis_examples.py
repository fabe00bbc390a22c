"""Profiles of hypothesis, and how many random examples a test tries.

HYPOTHESIS_PROFILE chooses the profile: `fixed` (the default) tries the same examples in every run, `fresh` new ones, as
`make fuzz-guided` does, and `quick` only a few.
"""

from __future__ import annotations

import os

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "fixed")
QUICK_EXAMPLES = 5

settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", print_blob=True)
settings.register_profile("quick", derandomize=True, max_examples=QUICK_EXAMPLES)


def examples(count):
    """Try `count` examples without a deadline, and in the profile `quick` at most QUICK_EXAMPLES."""
    # An explicit `max_examples` overrides that of the profile.
    return settings(deadline=None, max_examples=min(count, QUICK_EXAMPLES) if PROFILE == "quick" else count)
