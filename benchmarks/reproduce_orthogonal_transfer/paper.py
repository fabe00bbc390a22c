"""Results of Zhou, Xiao and Wu, "Hierarchical Classification via Orthogonal Transfer" (MSR-TR-2011-54).

Per cent, mean and standard deviation over 50 random splits. Micro-F1 is always 100 minus the 0/1 error.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """0/1 error and tree-induced loss, each with its standard deviation."""

    error: float
    error_std: float
    tree_loss: float
    tree_loss_std: float


class Sizes(NamedTuple):
    """A row of tables 1 and 5."""

    n_nodes: int
    n_leaves: int
    n_train: int
    n_test: int


TABLE_OF_TASK = {
    "CCAT": 2,
    "MCAT": 3,
    "ECAT": 4,
    "CCAT-hierarchical": 6,
    "MCAT-hierarchical": 7,
    "ECAT-hierarchical": 8,
}

SIZES = {
    "CCAT": Sizes(31, 26, 5810, 203323),
    "MCAT": Sizes(9, 7, 5438, 183773),
    "ECAT": Sizes(23, 18, 2196, 69160),
    "CCAT-hierarchical": Sizes(16, 12, 3676, 134449),
    "MCAT-hierarchical": Sizes(7, 5, 3682, 119661),
    "ECAT-hierarchical": Sizes(18, 13, 1734, 55848),
}

RESULTS = {
    "CCAT": {
        "flat": Published(26.93, 0.28, 37.46, 0.47),
        "per-node": Published(26.19, 0.28, 35.80, 0.45),
        "similarity": Published(26.21, 0.26, 35.60, 0.42),
        "tree-loss": Published(37.57, 0.35, 50.45, 0.49),
        "orthogonal": Published(23.62, 0.43, 33.12, 0.58),
    },
    "MCAT": {
        "flat": Published(7.03, 0.20, 8.96, 0.27),
        "per-node": Published(7.36, 0.21, 9.32, 0.27),
        "similarity": Published(8.20, 0.22, 10.72, 0.31),
        "tree-loss": Published(26.16, 0.34, 34.28, 0.45),
        "orthogonal": Published(6.57, 0.19, 8.74, 0.27),
    },
    "ECAT": {
        "flat": Published(16.36, 0.30, 23.71, 0.40),
        "per-node": Published(15.99, 0.31, 22.77, 0.40),
        "similarity": Published(17.04, 0.36, 24.33, 0.48),
        "tree-loss": Published(26.71, 0.51, 36.49, 0.74),
        "orthogonal": Published(16.18, 0.31, 24.21, 0.45),
    },
    "CCAT-hierarchical": {
        "flat": Published(21.39, 0.29, 32.66, 0.56),
        "per-node": Published(21.41, 0.29, 32.23, 0.53),
        "similarity": Published(21.91, 0.31, 33.45, 0.56),
        "tree-loss": Published(26.32, 0.39, 40.95, 0.66),
        "orthogonal": Published(17.46, 0.74, 28.97, 0.95),
    },
    "MCAT-hierarchical": {
        "flat": Published(5.23, 0.21, 5.90, 0.23),
        "per-node": Published(4.84, 0.20, 5.41, 0.21),
        "similarity": Published(4.70, 0.20, 5.27, 0.22),
        "tree-loss": Published(13.34, 0.71, 16.31, 1.00),
        "orthogonal": Published(3.00, 0.14, 3.56, 0.15),
    },
    "ECAT-hierarchical": {
        "flat": Published(13.57, 0.26, 20.76, 0.39),
        "per-node": Published(13.57, 0.27, 20.53, 0.40),
        "similarity": Published(13.67, 0.28, 20.88, 0.41),
        "tree-loss": Published(17.13, 0.37, 26.20, 0.63),
        "orthogonal": Published(12.47, 0.30, 20.89, 0.57),
    },
}
