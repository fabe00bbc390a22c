// values[i] = exp(min(values[i], 0)) in place, vectorised by the compiler for each instruction set and accurate to 2
// units in the last place. Inputs below −87 (float32) or −708 (float64) are clamped, so the result is at least 1e-38 or
// 3e-308. With AVX2, np.exp takes 2.4 and 7 ns per value, this 0.5 and 1.3. Twin: np.exp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "simd/cpu.hpp"

namespace widemargin {

// exp(x) = 2^k exp(r), k = round(x / ln 2), |r| ≤ ½ ln 2; exp(r) by its Taylor polynomial, whose next term is below
// half a unit. Adding and subtracting `shifter` rounds to an integer, which is then in the lowest bits of the sum.
struct ExpSingle {
    using Float = float;
    using Bits = uint32_t;
    static constexpr float lowest = -87.0f, shifter = 12582912.0f, log2e = 1.44269504f;
    static constexpr float high = 0.693145752f, low = 1.42860677e-6f;  // high + low = ln 2
    static constexpr int degree = 7, mantissa = 23;
};
struct ExpDouble {
    using Float = double;
    using Bits = uint64_t;
    static constexpr double lowest = -708.0, shifter = 6755399441055744.0, log2e = 1.4426950408889634;
    static constexpr double high = 0.69314718036912382, low = 1.9082149292705877e-10;
    static constexpr int degree = 13, mantissa = 52;
};

constexpr double INVERSE_FACTORIAL[] = {
    1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
    1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};

template <class E>
inline __attribute__((always_inline)) typename E::Float exp_in_range(typename E::Float x) {
    using Float = typename E::Float;
    using Bits = typename E::Bits;
    const Float shifted = x * E::log2e + E::shifter, k = shifted - E::shifter;
    const Float r = (x - k * E::high) - k * E::low;
    Float p = static_cast<Float>(INVERSE_FACTORIAL[E::degree]);
    for (int d = E::degree - 1; d >= 0; --d) p = p * r + static_cast<Float>(INVERSE_FACTORIAL[d]);
    Bits power, bits;
    std::memcpy(&power, &shifted, sizeof power);
    std::memcpy(&bits, &p, sizeof bits);
    // 2^k p: k is added to the exponent; the other bits of `power` are shifted out.
    bits += power << E::mantissa;
    std::memcpy(&p, &bits, sizeof p);
    return p;
}

constexpr int64_t EXP_CHUNK = 512;  // values; they stay in the L1 cache between the loops

// Two loops: with the comparisons in the second one, compilers emitted branches and did not vectorise it.
#define WIDEMARGIN_EXP_IN_PLACE(NAME, ATTRIBUTE)                                                          \
    template <class E>                                                                                    \
    ATTRIBUTE void NAME(typename E::Float *__restrict values, int64_t n) {                                \
        using Float = typename E::Float;                                                                  \
        for (int64_t first = 0; first < n; first += EXP_CHUNK) {                                          \
            const int64_t last = n < first + EXP_CHUNK ? n : first + EXP_CHUNK;                           \
            for (int64_t i = first; i < last; ++i) {                                                      \
                const Float capped = Float(0.5) * (values[i] - std::fabs(values[i])); /* min(value, 0) */ \
                values[i] = capped > E::lowest ? capped : E::lowest;                                      \
            }                                                                                             \
            for (int64_t i = first; i < last; ++i) values[i] = exp_in_range<E>(values[i]);                \
        }                                                                                                 \
    }

WIDEMARGIN_EXP_IN_PLACE(exp_in_place_baseline, )
WIDEMARGIN_EXP_IN_PLACE(exp_in_place_avx2, WIDEMARGIN_AVX2)
WIDEMARGIN_EXP_IN_PLACE(exp_in_place_avx512, WIDEMARGIN_AVX512)
#undef WIDEMARGIN_EXP_IN_PLACE

template <class E>
void exp_in_place(typename E::Float *values, int64_t n) {
    for_instruction_set(choose_instruction_set(), &exp_in_place_avx512<E>, &exp_in_place_avx2<E>,
                        &exp_in_place_baseline<E>)(values, n);
}

}  // namespace widemargin
