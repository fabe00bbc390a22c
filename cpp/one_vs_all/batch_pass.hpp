// The batched pass over all rows: scores up to 32 labels at once and keeps only the rows above each label's threshold,
// so there is no (rows × labels) array.
//
// Rows and weights are rounded to 16 bits, and an allowance for that is added to the scores of a row before they are
// compared (PackedRows): no row above a threshold is lost. Weights are in a (features × 32) table, of which only the
// non-zero entries of a label are written and later cleared. The entries of kept rows are copied in float32, up to
// COPY_LIMIT per label: the next steps, renumbering and scoring in float64, would otherwise spend most of their time
// waiting for distant rows (a fifth of the solver's time on yso-finna-en). Memory: 64 bytes per feature, 16 bytes per
// kept row, and at most 8 COPY_LIMIT bytes per label. Twin: tests/reference/packed_rows.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/row_store.hpp"
#include "simd/arrays.hpp"

namespace widemargin {

// Rows and weights in the form that the batch pass multiplies: rounded to 16 bits so that a row is scored for 32
// labels at once in integer arithmetic.
//
//     x ≈ X / t,  w ≈ W / s,  X and W integers of 16 bits:   w·x ≈ Σ X W / (t s)
//
// With X = t x + δ and W = s w + ε, |δ|, |ε| ≤ ROUNDING, the sum is off by at most ROUNDING (t ‖x‖₁ + s √m ‖w‖ + m) for
// a row of m entries. The scale s of a label is such that t s (‖x‖ ‖w‖ + |b| + 1) ≤ SUM_LIMIT for all rows so that no
// sum overflows and the bound depends on the row alone: its allowance. As a score, that is about (‖x‖₁ + √m) ‖w‖ 2⁻¹⁷:
// 4e-4 on yso-finna-en, 3e-3 on debian-tags. Integer sums do not depend on their order, so all instruction sets give
// the same result. Values are rounded when they are read: a copy of the rows in pairs of 12 bytes is hardly faster to
// read, and takes 8 MB on yso-finna-en. Memory: 5 bytes per row. Twin: tests/reference/packed_rows.py.

constexpr double LARGEST_PACKED = 32767;
constexpr double SUM_LIMIT = 1.9e9;            // of 2³¹; the rest is for allowances
constexpr double ALLOWANCE_LIMIT = 1e8;        // rows that need more (of many millions of entries) are always emitted
constexpr double COMPARISON_ALLOWANCE = 2048;  // for float32 arithmetic on a sum: eight roundings, each 2⁻²⁴ of 2³¹
// One half, plus a little for products in float32 (2⁻²⁴ of 2¹⁵) and for values that float32 rounds.
constexpr double ROUNDING = 0.51;

struct PackedRows {
    float scale = 1;                 // t
    std::vector<int32_t> allowance;  // (n_rows,)
    std::vector<uint8_t> unbounded;  // (n_rows,) whether the allowance is too small
};

// Rounds to the nearest integer, |x| ≤ LARGEST_PACKED, by truncating a positive number, which is faster than
// std::lround.
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

// s for weights whose scores are within `size`, see RowStore::score_size; 0 if there is no such bound.
inline double weight_scale(const PackedRows &rows, double size, double largest_weight) {
    if (!std::isfinite(size)) return 0;
    const double scale = SUM_LIMIT / (static_cast<double>(rows.scale) * size);
    return largest_weight > 0 ? std::min(scale, LARGEST_PACKED / largest_weight) : scale;
}

constexpr size_t COLUMNS_AHEAD = 16;          // how far ahead lines of the table are prefetched
constexpr int64_t COPY_LIMIT = 24 << 10;      // entries; enough for most labels of yso-finna-en, and 6 MB for all lanes
constexpr int64_t FORGOTTEN_ROWS = 16 << 10;  // only longer lists return their memory, because new pages cost time
constexpr int64_t KEPT_ROWS = 6 << 10;        // room that a lane keeps from one pass to the next

// What a pass adds to the score of a row before it is compared, besides the allowance for rounding: nothing, for a lane
// that proves nothing about the rows that are not emitted; enough for rows whose allowance is too small to be emitted
// always; or the whole slack of the rows, which covers the pruning of weights as well.
enum class RowSlack { NONE, UNBOUNDED_ROWS, PRUNING };
constexpr float ALWAYS_EMITTED = 1e30f;  // slack of a row; finite, because some lanes multiply it by 0
constexpr float SMALL_SHARE = 1e-12f;    // of the slack: as good as nothing, except for ALWAYS_EMITTED

class BatchPass {
  public:
    // slack: (n_rows,), see RowSlack.
    BatchPass(const RowStore &store, const PackedRows &packed, const VectorKernels &kernels, const float *slack)
        : store_(store),
          packed_(packed),
          kernels_(kernels),
          slack_(slack),
          table_(aligned_array<int16_t>(store.n_cols * SCAN_LANES)),
          copies_(untouched_array<RowEntry>(SCAN_LANES * (COPY_LIMIT + COPY_STEP))) {
        for (int lane = 0; lane < SCAN_LANES; ++lane) {
            emitted_.emplace_back(static_cast<size_t>(store.n_rows) + 1);
            args_.limit[lane] = std::numeric_limits<float>::infinity();
        }
    }

    // Puts weights into a lane; rows with score + slack > threshold will be emitted.
    void set(int lane, const LabelWeights &weights, double threshold, RowSlack slack) {
        clear(lane);
        float largest = 0;
        for (float w : weights.vals) largest = std::max(largest, std::abs(w));
        const double size = store_.score_size(std::sqrt(weights.squared_norm()), weights.bias);
        const double scale = weight_scale(packed_, size, largest), units = scale * static_cast<double>(packed_.scale);
        if (units == 0) return;  // not finite: nothing is emitted, and nothing can be proved
        written_[lane] = weights.cols;
        for (size_t k = 0; k < weights.cols.size(); ++k) {
            ask_for(weights.cols, k + COLUMNS_AHEAD);
            table_[place(weights.cols[k], lane)] = packed_value(scale * weights.vals[k]);
        }
        args_.bias[lane] = static_cast<float>(weights.bias);
        args_.unit[lane] = static_cast<float>(1 / units);
        args_.limit[lane] = static_cast<float>((threshold - weights.bias) * units);
        const float share = slack == RowSlack::PRUNING ? 1.0f : slack == RowSlack::NONE ? 0.0f : SMALL_SHARE;
        args_.with_slack[lane] = share;
        args_.slack_share[lane] = share * static_cast<float>(units);
    }

    void clear(int lane) {
        // Otherwise a single label with most rows near its margin would make the lane keep memory for all rows.
        if (n_emitted_[lane] > FORGOTTEN_ROWS) emitted_[lane].forget_from(KEPT_ROWS);
        const std::vector<uint32_t> &cols = written_[lane];
        for (size_t k = 0; k < cols.size(); ++k) {
            ask_for(cols, k + COLUMNS_AHEAD);
            table_[place(cols[k], lane)] = 0;
        }
        written_[lane].clear();
        args_.limit[lane] = std::numeric_limits<float>::infinity();
    }

    void run() {
        args_.scale = packed_.scale;
        args_.allowance = packed_.allowance.data();
        args_.entries = store_.entries.get();
        args_.start = store_.start.data();
        args_.slack = slack_;
        args_.table = table_.get();
        std::fill_n(args_.copied, SCAN_LANES, 0u);
        for (int lane = 0; lane < SCAN_LANES; ++lane) {
            args_.out[lane] = emitted_[lane].data();
            args_.copies[lane] = copies_.get() + lane * (COPY_LIMIT + COPY_STEP);
            args_.room[lane] = COPY_LIMIT;
        }
        kernels_.scan(args_, 0, store_.n_rows);
        for (int lane = 0; lane < SCAN_LANES; ++lane) {
            n_emitted_[lane] = args_.out[lane] - emitted_[lane].data();
            emitted_[lane].data()[n_emitted_[lane]].begin = args_.copied[lane];
        }
    }

    Emission emitted(int lane) const {
        return {emitted_[lane].data(), n_emitted_[lane], copies_.get() + lane * (COPY_LIMIT + COPY_STEP)};
    }

  private:
    const RowStore &store_;
    const PackedRows &packed_;
    const VectorKernels &kernels_;
    const float *slack_;
    AlignedArray<int16_t> table_;
    std::vector<uint32_t> written_[SCAN_LANES];
    std::vector<ReservedArray<EmittedRow>> emitted_;  // (n_rows + 1,) per lane
    AlignedArray<RowEntry> copies_;                   // COPY_LIMIT + COPY_STEP per lane
    int64_t n_emitted_[SCAN_LANES] = {};
    ScanArgs args_{};

    static size_t place(uint32_t col, int lane) { return static_cast<size_t>(col) * SCAN_LANES + lane; }

    WIDEMARGIN_PREFETCH void ask_for(const std::vector<uint32_t> &cols, size_t k) const {
        if (k < cols.size()) __builtin_prefetch(table_.get() + place(cols[k], 0), 1);
    }
};

}  // namespace widemargin
