"""The former place of `widemargin.solvers.codes.continuous`, until release 0.3."""

import warnings

from widemargin.solvers.codes.continuous import *  # noqa: F403

warnings.warn(f"{__name__} has moved; import widemargin.solvers.codes.continuous instead", FutureWarning, stacklevel=2)
