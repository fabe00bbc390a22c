"""The former place of `widemargin.solvers.codes.spoc`, until release 0.3."""

import warnings

from widemargin.solvers.codes.spoc import *  # noqa: F403

warnings.warn(f"{__name__} is now widemargin.solvers.codes.spoc", FutureWarning, stacklevel=2)
