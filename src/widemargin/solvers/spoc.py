"""The former place of `widemargin.solvers.codes.spoc`, until release 0.3."""

import warnings

from widemargin.solvers.codes.spoc import *  # noqa: F403

warnings.warn(f"{__name__} has moved; import widemargin.solvers.codes.spoc instead", FutureWarning, stacklevel=2)
