// Rows and weights as the batch pass multiplies them: rounded to 16 bits, so that a row is scored for 32 labels at once
// in integers.
//
//     x ≈ X / t,  w ≈ W / s,  X and W integers of 16 bits:   w·x ≈ Σ X W / (t s)
//
// With X = t x + δ and W = s w + ε, |δ|, |ε| ≤ ROUNDING, the sum is off by at most ROUNDING (t ‖x‖₁ + s √m ‖w‖ + m) for
// a row of m entries. The scale s of a label is such that t s (‖x‖ ‖w‖ + |b| + 1) ≤ SUM_LIMIT for all rows, so that no
// sum overflows and the bound depends on the row alone: its allowance. In scores that is about
// (‖x‖₁ + √m) ‖w‖ 2⁻¹⁷: 4e-4 on yso-finna-en, 3e-3 on debian-tags. Sums of integers do not depend on their order, so
// that all instruction sets give the same. Values are rounded when they are read: a copy of the rows in pairs of 12
// bytes is hardly faster to read, and takes 8 MB on yso-finna-en. Memory: 5 bytes a row. Twin:
// reference/packed_rows.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "row_store.hpp"

namespace widemargin {

constexpr double LARGEST_PACKED = 32767;
constexpr double SUM_LIMIT = 1.9e9;            // of 2³¹, the rest is for allowances
constexpr double ALLOWANCE_LIMIT = 1e8;        // rows that need more (of many millions of entries) are always emitted
constexpr double COMPARISON_ALLOWANCE = 2048;  // for what is done in float32 with a sum, eight roundings to 2⁻²⁴ of 2³¹
// Half, and a little for products in float32 (2⁻²⁴ of 2¹⁵) and values that float32 rounds.
constexpr double ROUNDING = 0.51;

struct PackedRows {
    float scale = 1;                 // t
    std::vector<int32_t> allowance;  // (n_rows,)
    std::vector<uint8_t> unbounded;  // (n_rows,) whether the allowance is not enough
};

// Rounded to the nearest integer, |x| ≤ LARGEST_PACKED; positive when it is cut off, which is faster than std::lround.
inline int16_t packed_value(double x) { return static_cast<int16_t>(static_cast<int32_t>(x + 32768.5) - 32768); }

inline double row_allowance(const RowStore &store, double scale, int64_t i) {
    const double m = static_cast<double>(store.length(i));
    const double weights = store.max_norm > 0 ? SUM_LIMIT / (scale * store.max_norm) * std::sqrt(m) : 0.0;
    return NORM_SLACK * ROUNDING * (scale * store.l1_norm[i] + weights + m) + COMPARISON_ALLOWANCE;
}

inline PackedRows pack_rows(const RowStore &store) {
    PackedRows packed;
    float largest_sum = 0;
    for (float sum : store.l1_norm) largest_sum = std::max(largest_sum, sum);
    if (largest_sum > 0) {
        packed.scale =
            static_cast<float>(std::min(LARGEST_PACKED / store.max_value, ALLOWANCE_LIMIT / largest_sum) / NORM_SLACK);
    }
    packed.allowance.resize(store.n_rows);
    packed.unbounded.resize(store.n_rows);
    for (int64_t i = 0; i < store.n_rows; ++i) {
        const double allowance = row_allowance(store, packed.scale, i);
        packed.unbounded[i] = !(allowance <= ALLOWANCE_LIMIT);
        packed.allowance[i] = packed.unbounded[i] ? 0 : static_cast<int32_t>(std::ceil(allowance));
    }
    return packed;
}

// s for weights whose scores lie within `size`, see RowStore::score_size; 0 when there is no such bound.
inline double weight_scale(const PackedRows &rows, double size, double largest_weight) {
    if (!std::isfinite(size)) return 0;
    const double scale = SUM_LIMIT / (static_cast<double>(rows.scale) * size);
    return largest_weight > 0 ? std::min(scale, LARGEST_PACKED / largest_weight) : scale;
}

}  // namespace widemargin
