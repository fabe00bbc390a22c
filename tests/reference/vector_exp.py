"""e^x for x ≤ 0 and log(1 + e) for 0 ≤ e ≤ 1 in float32, step by step as in the vector kernels.

    x = n ln 2 + r, |r| ≤ ½ ln 2:   e^x = 2ⁿ (1 + r + r² p(r)),  p of degree 5 (Cephes library)
    t = e / (2 + e) ≤ ⅓:            log(1 + e) = 2 artanh(t) = 2t (1 + t²/3 + t⁴/5 + … + t¹²/13)

Relative errors are below 3e-7; x below −87 counts as −87. Twin: cpp/simd/isa_floats.hpp.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["exp_negative", "log1p_unit"]

Singles = npt.NDArray[np.float32]

SMALLEST_EXPONENT = np.float32(-87.0)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
EXP_TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exp_negative(x: Singles) -> Singles:
    """Return e^x for x ≤ 0.

    Examples
    --------
    >>> exp_negative(np.array([0.0, -1.0], dtype=np.float32)).astype(float).round(6).tolist()
    [1.0, 0.367879]
    """
    x = np.maximum(x, SMALLEST_EXPONENT)
    n = np.round(x * np.float32(np.log2(np.e))).astype(np.float32)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = np.zeros_like(x)
    for term in EXP_TERMS:
        p = p * r + np.float32(term)
    power: Singles = np.ldexp((p * (r * r) + r) + np.float32(1.0), n.astype(np.int32))
    return power


def log1p_unit(e: Singles) -> Singles:
    """Return log(1 + e) for 0 ≤ e ≤ 1.

    Examples
    --------
    >>> round(float(log1p_unit(np.array([1.0], dtype=np.float32))[0]), 6)
    0.693147
    """
    t = e / (np.float32(2.0) + e)
    q = t * t
    p = np.zeros_like(e)
    for divisor in (13, 11, 9, 7, 5, 3, 1):
        p = p * q + np.float32(2.0 / divisor)
    return t * p
