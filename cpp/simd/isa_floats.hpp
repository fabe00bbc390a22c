// Vectors of WIDTH floats and operations on them. Included once per instruction set (simd/each_isa.hpp), so there is no
// #pragma once.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr int WIDTH = WIDEMARGIN_ISA_WIDTH;
typedef float V __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef int32_t M __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));

#define WIDEMARGIN_INLINE static inline __attribute__((always_inline))

WIDEMARGIN_INLINE V load(const float *p) { return *reinterpret_cast<const V *>(p); }
WIDEMARGIN_INLINE void store(float *p, V v) { *reinterpret_cast<V *>(p) = v; }
WIDEMARGIN_INLINE V splat(float x) { return x - V{}; }  // x + 0 could not be folded, because −0 + 0 = 0
// Conditional expressions, because with AVX-512 GCC keeps their masks in mask registers.
WIDEMARGIN_INLINE V select(M m, V v) { return m ? v : V{}; }
WIDEMARGIN_INLINE V magnitude(V v) { return reinterpret_cast<V>(reinterpret_cast<M>(v) & 0x7fffffff); }
// ±1 with the sign of v
WIDEMARGIN_INLINE V copy_sign(V v) {
    return reinterpret_cast<V>((reinterpret_cast<M>(v) & static_cast<int32_t>(0x80000000)) |
                               reinterpret_cast<M>(splat(1.0f)));
}
WIDEMARGIN_INLINE double total(V v) {
    double sum = 0;
    for (int k = 0; k < WIDTH; ++k) sum += v[k];
    return sum;
}

// bit k is set where m[k] is negative, i.e. where a comparison holds
WIDEMARGIN_INLINE uint32_t sign_bits(M m) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
    return _mm512_movepi32_mask(reinterpret_cast<__m512i>(m));
#elif defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 8
    return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(m)));
#elif defined(WIDEMARGIN_X86)
    return static_cast<uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(m)));
#else
    uint32_t bits = 0;
    for (int k = 0; k < WIDTH; ++k) bits |= static_cast<uint32_t>(m[k] < 0) << k;
    return bits;
#endif
}
// bit k is set where a[k] > b[k]
WIDEMARGIN_INLINE uint32_t greater_bits(V a, V b) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16  // otherwise GCC 12 turns the mask into a vector and back
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_GT_OQ);
#else
    return sign_bits(a > b);
#endif
}

// all ones in the lanes of this part whose bit is set
WIDEMARGIN_INLINE M lane_mask(uint32_t bits, int part) {
    M lane;
    for (int k = 0; k < WIDTH; ++k) lane[k] = 1 << k;
    return (lane & (M{} + static_cast<int32_t>(bits >> (part * WIDTH)))) != 0;
}
WIDEMARGIN_INLINE V blend(M m, V yes, V no) { return m ? yes : no; }
// ±1
WIDEMARGIN_INLINE V sign_of(M positive) { return blend(positive, splat(1.0f), splat(-1.0f)); }

// e^x for x ≤ 0 and log(1 + e) for 0 ≤ e ≤ 1, which is all that the logistic loss needs. Relative errors are below 3e-7
// (tested against float64). Twin: tests/reference/vector_exp.py.
constexpr float SMALLEST_EXPONENT = -87.0f;  // below it, e^x is subnormal; smaller x are clamped
constexpr float LOG2_E = 1.44269504f;
constexpr float LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;  // their sum is ln 2; n · LN2_HIGH is exact
constexpr float ROUNDER = 12582912.0f;                               // 1.5 · 2²³: adding it rounds to an integer
constexpr int MANTISSA_BITS = 23;

// x = n ln 2 + r with |r| ≤ ½ ln 2; e^r by the polynomial of the Cephes library, 2ⁿ through the bits of the exponent.
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

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
