// The rows as the batch pass reads them: values in 16 bits, entries in pairs, so that a row is scored for 32 labels at
// once in integers.
//
//     x ≈ X / t,  w ≈ W / s,  X and W integers of 16 bits:   w·x ≈ Σ X W / (t s)
//
// With X = t x + δ and W = s w + ε, |δ|, |ε| ≤ ½, the sum is off by at most ½ t ‖x‖₁ + ½ s √m ‖w‖ + m/4 for a row of m
// entries. The scale s of a label is such that t s (‖x‖ ‖w‖ + |b| + 1) ≤ SUM_LIMIT for all rows, so that no sum
// overflows and the bound depends on the row alone: its allowance. In scores that is about
// (‖x‖₁ + √m) ‖w‖ 2⁻¹⁷: 4e-4 on yso-finna-en, 3e-3 on debian-tags. Sums of integers do not depend on their order, so
// that all instruction sets give the same. Memory: 12 bytes a pair. Twin: reference/packed_rows.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "aligned_array.hpp"
#include "row_store.hpp"

namespace widemargin {

constexpr double LARGEST_PACKED = 32767;
constexpr double SUM_LIMIT = 1.9e9;            // of 2³¹, the rest is for allowances
constexpr double ALLOWANCE_LIMIT = 1e8;        // rows that need more (of many millions of entries) are always emitted
constexpr double COMPARISON_ALLOWANCE = 2048;  // for what is done in float32 with a sum, eight roundings to 2⁻²⁴ of 2³¹
constexpr int64_t PREFETCH_PAIRS = 24;

// Two entries; the last of a row of odd length has a second value of zero.
struct PackedPair {
    uint32_t col[2];
    int16_t val[2];
};

struct PackedRows {
    double scale = 1;                // t
    std::vector<int64_t> start;      // (n_rows + 1,)
    AlignedArray<PackedPair> pairs;  // and PREFETCH_PAIRS more
    std::vector<int32_t> allowance;  // (n_rows,)
    std::vector<uint8_t> unbounded;  // (n_rows,) whether the allowance is not enough
};

// Rounded to the nearest integer, |x| ≤ LARGEST_PACKED; positive when it is cut off, which is faster than std::lround.
inline int16_t packed_value(double x) { return static_cast<int16_t>(static_cast<int32_t>(x + 32768.5) - 32768); }

inline double row_allowance(const RowStore &store, double scale, int64_t i) {
    const double m = static_cast<double>(store.length(i));
    const double weights = store.max_norm > 0 ? 0.5 * SUM_LIMIT / (scale * store.max_norm) * std::sqrt(m) : 0.0;
    return NORM_SLACK * (0.5 * scale * store.l1_norm[i] + weights + 0.25 * m) + COMPARISON_ALLOWANCE;
}

// Row i in pairs, and its allowance.
inline void pack_row(const RowStore &store, int64_t i, PackedRows &packed) {
    const int64_t first = store.start[i], last = store.start[i + 1];
    PackedPair *out = packed.pairs.get() + packed.start[i];
    auto value = [&](int64_t k) { return packed_value(packed.scale * store.value(k)); };
    int64_t k = first;
    for (; k + 2 <= last; k += 2) {
        *out++ = {{store.entries[k].col, store.entries[k + 1].col}, {value(k), value(k + 1)}};
    }
    if (k < last) *out = {{store.entries[k].col, 0}, {value(k), 0}};
    const double allowance = row_allowance(store, packed.scale, i);
    packed.unbounded[i] = !(allowance <= ALLOWANCE_LIMIT);
    packed.allowance[i] = packed.unbounded[i] ? 0 : static_cast<int32_t>(std::ceil(allowance));
}

// The result does not depend on the threads.
inline PackedRows pack_rows(const RowStore &store, int n_threads = 1) {
    PackedRows packed;
    float largest_sum = 0;
    for (float sum : store.l1_norm) largest_sum = std::max(largest_sum, sum);
    if (largest_sum > 0) packed.scale = std::min(LARGEST_PACKED / store.max_value, ALLOWANCE_LIMIT / largest_sum);
    packed.start.resize(store.n_rows + 1);
    for (int64_t i = 0; i < store.n_rows; ++i) packed.start[i + 1] = packed.start[i] + (store.length(i) + 1) / 2;
    packed.pairs = aligned_array<PackedPair>(packed.start[store.n_rows] + PREFETCH_PAIRS);
    packed.allowance.resize(store.n_rows);
    packed.unbounded.resize(store.n_rows);
    row_store_detail::for_row_ranges(store.n_rows, n_threads, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) pack_row(store, i, packed);
    });
    return packed;
}

// s for weights whose scores lie within `size`, see RowStore::score_size; 0 when there is no such bound.
inline double weight_scale(const PackedRows &rows, double size, double largest_weight) {
    if (!std::isfinite(size)) return 0;
    const double scale = SUM_LIMIT / (rows.scale * size);
    return largest_weight > 0 ? std::min(scale, LARGEST_PACKED / largest_weight) : scale;
}

}  // namespace widemargin
