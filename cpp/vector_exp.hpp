// e^x for x ≤ 0 and log(1 + e) for 0 ≤ e ≤ 1 on vectors of floats, all the logistic loss needs; included by
// vector_kernels.hpp once for every instruction set, hence no #pragma once. Relative errors are below 3e-7 (tested
// against float64). Twin: reference/vector_exp.py.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr float SMALLEST_EXPONENT = -87.0f;  // e^−87 is the last that is not subnormal; smaller x are taken for it
constexpr float LOG2_E = 1.44269504f;
constexpr float LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;  // their sum is ln 2; n · LN2_HIGH is exact
constexpr float ROUNDER = 12582912.0f;                               // 1.5 · 2²³: adding it leaves no fraction
constexpr int MANTISSA_BITS = 23;

// x = n ln 2 + r with |r| ≤ ½ ln 2; e^r by the polynomial of the Cephes library, 2ⁿ by the exponent's bits.
WIDEMARGIN_INLINE V exp_negative(V x) {
    x = blend(x > SMALLEST_EXPONENT, x, splat(SMALLEST_EXPONENT));
    const V shifted = x * LOG2_E + ROUNDER, n = shifted - ROUNDER;
    const V r = (x - n * LN2_HIGH) - n * LN2_LOW;
    V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const V e = (p * (r * r) + r) + 1.0f;
    const M power = (reinterpret_cast<M>(shifted) - reinterpret_cast<M>(splat(ROUNDER))) << MANTISSA_BITS;
    return reinterpret_cast<V>(reinterpret_cast<M>(e) + power);
}

// log(1 + e) = 2 artanh(t) with t = e / (2 + e) ≤ ⅓: t² ≤ 1/9, so seven terms are enough.
WIDEMARGIN_INLINE V log1p_unit(V e) {
    const V t = e / (2.0f + e), q = t * t;
    V p = q * (2.0f / 13) + 2.0f / 11;
    p = p * q + 2.0f / 9;
    p = p * q + 2.0f / 7;
    p = p * q + 2.0f / 5;
    p = p * q + 2.0f / 3;
    return t * (p * q + 2.0f);
}

// For tests: n a multiple of LANES.
static void exp_log1p(int64_t n, const float *x, float *e, float *log1p) {
    for (int64_t i = 0; i < n; i += WIDTH) {
        const V power = exp_negative(load(x + i));
        store(e + i, power);
        store(log1p + i, log1p_unit(power));
    }
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
