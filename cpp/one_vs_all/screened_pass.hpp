// The screened pass: for one label, the rows above a threshold, found through an index of the rows by feature.
//
// A batch pass reads all entries of all rows. If no x is below zero, most of that can be avoided for a label with few
// positive weights. Let u = max(w, 0), and divide it into three parts: v on frequent features F whose entries are
// worth skipping, negligible weights, and the rest. Then for every row
//
//     w·x ≤ u·x ≤ rest·x + ‖v‖ ‖x_F‖ + ‖negligible‖ max‖x‖
//
// The first term is summed over the index; the second needs only the norm of the row's frequent part. Rows whose bound
// exceeds the threshold are candidates. For these, v·x is computed, and if the bound still exceeds the threshold, the
// score, in double. So the rows found are those of a batch pass, except for its allowance for rounding.
//
// Sums are in integers. With X = ⌈t x⌉ and U = ⌈s u⌉, Σ X U ≥ t s rest·x, and rounding adds at most s √m ‖u‖ + t ‖x‖₁
// + m for a row of m entries. The scale s is such that t s max‖x‖ ‖u‖ ≤ INDEX_SUM_LIMIT; rows for which the sum may
// still overflow are always candidates.
//
// Generated rows in the shape of Amazon-670K (490,000 rows, 74 entries each): a pass adds up 0.49 million of 36
// million entries, and 2,200 rows are candidates, of which 810 are found (means of 285 passes of 95 labels). Not kept:
// a copy of the frequent part of each row in 4 bytes per entry, which candidates read instead of the row itself (2 %
// less time on other generated rows and 5 % on these, for 16 % more memory). Memory: 4 bytes per entry and feature, and
// 1 byte per row. Twin: tests/reference/screened_rows.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/row_store.hpp"
#include "simd/threads.hpp"

namespace widemargin {

constexpr int64_t INDEX_BLOCK = 1 << 13;        // rows whose sums are added up at once, in 32 KB
constexpr int64_t FEWEST_VALUE_BITS = 8;        // of a value in the index
constexpr int64_t FREQUENT_FEATURE_SHARE = 25;  // features in more than one of 25 rows are frequent
constexpr double INDEX_SUM_LIMIT = 1.0e9;       // of 2³¹; the rest is for rounding
constexpr double INDEX_ROUNDING_LIMIT = 1.1e9;
constexpr double LARGEST_INDEX_WEIGHT = 65535;
constexpr double SCREEN_SLACK = 1 + 1e-6;        // covers comparisons in float32
constexpr double SMALLEST_INDEXED_NORM = 1e-30;  // max‖x‖; below, float32 may lose the norms of rows
constexpr double SUM_ROUNDING = 2.3e-16;         // of a product in double, per entry of a row
constexpr double NEGLIGIBLE_ROOM = 0.1;          // share of threshold − b that negligible weights may add to the bound
// The same for the frequent features that are skipped, for a row with the usual ‖x_F‖. With 0.2, 0.3, 0.4 and 0.5, the
// last check of a label adds up 1.0, 0.66, 0.47 and 0.36 million entries, and has 2,400, 3,500, 5,200 and 8,000
// candidates (40 labels of the same rows). On two other generated sets, smaller and larger values of this share, the
// two around it, INDEX_BLOCK and FREQUENT_FEATURE_SHARE were tried in single runs (11 settings). The values here varied
// by 4 % and 20 % from run to run, and no other is faster by more than that on both sets. Since candidates are
// prefetched, seven settings on two further generated sets: none is faster by more than 2 % on both.
constexpr double FREQUENT_ROOM = 0.3;
// Of ‖v‖ ‖x_F‖, for a pass that proves nothing: v·x is rarely more.
constexpr double UNPROVEN_SHARE = 0.45;
// How far ahead candidates are prefetched, and how many lines of each. On the rows in the shape of Amazon-670K, a
// candidate takes 300 ns without prefetches, 66 with two lines of each, 64 candidates ahead, and 49 with these.
constexpr size_t CANDIDATES_AHEAD = 24;
constexpr int64_t FREQUENT_LINES = 3;
constexpr int64_t INDEX_LINES = 2;      // of a feature, prefetched for the next block
constexpr double SMALLEST_ROOM = 1e-3;  // threshold − b; below it, most rows are candidates
// A label that adds up more than 1/32 of all entries is left to a batch pass, which reads all of them for 32 labels. On
// five generated sets of 9 to 37 million values, with 4, 16, 24, 32, 48 and no index, the sums of their times per label
// are 23.3, 20.8, 20.0, 19.5, 19.4 and 23.1 ms.
constexpr int64_t INDEXED_ENTRIES_SHARE = 32;

// The entries of the rows by feature. An entry holds the row in its high bits and the value, rounded up, in the others;
// the rows of a feature ascend, and NO_ENTRY ends them.
struct RowIndex {
    static constexpr uint32_t NO_ENTRY = 0xffffffff;
    int value_bits = 0;
    double value_scale = 0;               // t
    int64_t n_frequent = 0;               // columns below n_frequent are frequent
    double largest_frequent_norm = 0;     // max ‖x_F‖
    double usual_frequent_norm = 0;       // their median
    std::vector<int64_t> start;           // (n_used + 1,)
    AlignedArray<uint32_t> entries;       // (nnz + n_used,)
    AlignedArray<uint8_t> frequent_norm;  // (n_rows,) ‖x_F‖ in units of largest_frequent_norm / 255, rounded up; padded
    std::vector<uint32_t> unbounded;      // rows whose sums may overflow, ascending

    bool empty() const { return start.empty(); }
    int64_t frequency(uint32_t col) const { return start[col + 1] - start[col] - 1; }
};

namespace row_index_detail {

// Sets: frequent_norm, largest_frequent_norm, usual_frequent_norm, unbounded.
inline void measure_frequent(const RowStore &store, RowIndex &index) {
    std::vector<float> norm(store.n_rows);
    for (int64_t i = 0; i < store.n_rows; ++i) {
        double squares = 0;
        for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
            if (store.entries[k].col >= index.n_frequent) break;  // columns ascend
            squares += store.value(k) * store.value(k);
        }
        norm[i] = static_cast<float>(std::sqrt(squares) * NORM_SLACK);
        index.largest_frequent_norm = std::max<double>(index.largest_frequent_norm, norm[i]);
        const double m = static_cast<double>(store.length(i)), t = index.value_scale;
        const double rounding = INDEX_SUM_LIMIT / (t * store.max_norm) * std::sqrt(m) + t * store.l1_norm[i] + m;
        if (!(rounding <= INDEX_ROUNDING_LIMIT)) index.unbounded.push_back(static_cast<uint32_t>(i));
    }
    const double unit = index.largest_frequent_norm > 0 ? 255 / index.largest_frequent_norm : 0.0;
    index.frequent_norm = aligned_array<uint8_t>((store.n_rows + INDEX_BLOCK - 1) / INDEX_BLOCK * INDEX_BLOCK);
    for (int64_t i = 0; i < store.n_rows; ++i) {
        index.frequent_norm[i] = static_cast<uint8_t>(std::min(255.0, std::ceil(norm[i] * unit)));
    }
    std::nth_element(norm.begin(), norm.begin() + store.n_rows / 2, norm.end());
    index.usual_frequent_norm = norm[store.n_rows / 2];
}

}  // namespace row_index_detail

// Empty if the rows have values below zero, no or extreme norms, or too many rows for an entry of 32 bits.
inline RowIndex build_row_index(const RowStore &store) {
    RowIndex index;
    int row_bits = 1;
    while ((int64_t{1} << row_bits) < store.n_rows + INDEX_BLOCK) ++row_bits;
    index.value_bits = std::min(16, 32 - row_bits);
    const bool usual_norms = store.max_norm > SMALLEST_INDEXED_NORM && store.max_norm < LARGEST_NORM;
    if (!store.nonnegative || !usual_norms || index.value_bits < FEWEST_VALUE_BITS) return {};
    index.value_scale = ((1 << index.value_bits) - 1) / (store.max_value * SCREEN_SLACK);
    index.start.assign(store.n_used + 1, 0);
    for (int64_t k = 0; k < store.nnz(); ++k) ++index.start[store.entries[k].col + 1];
    for (int64_t col = 0; col < store.n_used; ++col) {
        index.n_frequent += index.start[col + 1] > store.n_rows / FREQUENT_FEATURE_SHARE;
        index.start[col + 1] += index.start[col] + 1;
    }
    index.entries = untouched_array<uint32_t>(index.start[store.n_used]);
    std::vector<int64_t> next(index.start.begin(), index.start.end() - 1);
    for (int64_t i = 0; i < store.n_rows; ++i) {
        for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
            const uint32_t value = static_cast<uint32_t>(std::ceil(store.value(k) * index.value_scale));
            index.entries[next[store.entries[k].col]++] = static_cast<uint32_t>(i << index.value_bits) | value;
        }
    }
    for (int64_t end : next) index.entries[end] = RowIndex::NO_ENTRY;
    row_index_detail::measure_frequent(store, index);
    return index;
}

// The screened pass of one thread.
class ScreenedPass {
  public:
    // entries_share: see INDEXED_ENTRIES_SHARE; 0: no label is left to a batch pass because of its entries.
    ScreenedPass(const RowStore &store, const RowIndex &index, const VectorKernels &kernels,
                 int64_t entries_share = INDEXED_ENTRIES_SHARE)
        : store_(store), index_(index), kernels_(kernels), entries_share_(entries_share) {
        if (index.empty()) return;
        sums_ = aligned_array<int32_t>(INDEX_BLOCK);
        weights_ = aligned_floats(store.n_cols);
        skipped_.resize(index.n_frequent, 0.0f);
    }

    // Finds the rows with score > threshold: all of them if that is to be a proof, else nearly all. False if a batch
    // pass is cheaper.
    bool find(const LabelWeights &weights, double threshold, bool proof) {
        found_.clear();
        if (index_.empty() || !screen(weights, threshold - weights.bias, proof)) return false;
        for (size_t k = 0; k < weights.cols.size(); ++k) weights_[weights.cols[k]] = weights.vals[k];
        n_candidates_ = 0;
        for (int64_t first = 0; first < store_.n_rows; first += INDEX_BLOCK) scan(first);
        keep_above();
        for (uint32_t row : above_) score(row, weights, threshold);
        found_.push_back({});
        for (uint32_t col : weights.cols) weights_[col] = 0;
        std::fill(skipped_.begin(), skipped_.end(), 0.0f);
        return true;
    }

    // The result of the last `find`.
    Emission emitted() const { return {found_.data(), static_cast<int64_t>(found_.size()) - 1, nullptr}; }

  private:
    struct IndexedWeight {
        uint32_t col, weight;
        float u;
        const uint32_t *next;  // entry
    };
    const RowStore &store_;
    const RowIndex &index_;
    const VectorKernels &kernels_;
    const int64_t entries_share_;
    AlignedArray<int32_t> sums_;
    AlignedFloats weights_;       // (n_cols,) the weights, zero outside `find`
    std::vector<float> skipped_;  // (n_frequent,) v, zero outside `find`
    std::vector<IndexedWeight> indexed_, frequent_;
    std::vector<ScreenedRow> candidates_;
    size_t n_candidates_ = 0;
    std::vector<uint32_t> above_;  // candidates that remain
    std::vector<EmittedRow> found_;
    double unit_ = 0, room_ = 0, negligible_ = 0;
    float norm_share_ = 0, limit_ = 0;
    float rounding_ = 0;  // of a score in double

    // Divides the weights.  Sets: indexed_, skipped_, unit_, room_, negligible_, norm_share_, limit_.
    bool screen(const LabelWeights &weights, double room, bool proof) {
        const double size = store_.score_size(std::sqrt(weights.squared_norm()), weights.bias);
        if (!(room > SMALLEST_ROOM) || !std::isfinite(size)) return false;
        double squares = 0, n_positive = 0;
        for (float w : weights.vals) {
            squares += w > 0 ? static_cast<double>(w) * w : 0.0;
            n_positive += w > 0;
        }
        const double norm = std::sqrt(squares) * NORM_SLACK, budget = NEGLIGIBLE_ROOM * room / store_.max_norm;
        if (norm == 0) return false;
        const double least = budget / std::sqrt(n_positive);
        double negligible = 0;
        indexed_.clear();
        frequent_.clear();
        for (size_t k = 0; k < weights.cols.size(); ++k) {
            const float u = weights.vals[k];
            if (!(u > 0) || weights.cols[k] >= store_.n_used) continue;
            if (weights.cols[k] < index_.n_frequent) {
                frequent_.push_back({weights.cols[k], 0, u, nullptr});
            } else if (u < least) {
                negligible += static_cast<double>(u) * u;
            } else {
                indexed_.push_back({weights.cols[k], 0, u, nullptr});
            }
        }
        const double skipped = skip_frequent((proof ? FREQUENT_ROOM : FREQUENT_ROOM / UNPROVEN_SHARE) * room);
        int64_t n_entries = 0;
        float largest = 0;
        for (const IndexedWeight &w : indexed_) {
            n_entries += index_.frequency(w.col);
            largest = std::max(largest, w.u);
        }
        if (n_entries * entries_share_ > store_.nnz()) {
            std::fill(skipped_.begin(), skipped_.end(), 0.0f);
            return false;
        }
        const double t = index_.value_scale;
        double s = INDEX_SUM_LIMIT / (t * store_.max_norm * norm);
        if (largest > 0) s = std::min(s, LARGEST_INDEX_WEIGHT / (SCREEN_SLACK * static_cast<double>(largest)));
        for (IndexedWeight &w : indexed_) {
            w.weight = static_cast<uint32_t>(std::ceil(s * static_cast<double>(w.u)));
            w.next = index_.entries.get() + index_.start[w.col];
            __builtin_prefetch(w.next);
        }
        room_ = room;
        unit_ = 1 / (s * t);
        negligible_ = std::sqrt(negligible) * store_.max_norm * NORM_SLACK;
        rounding_ = static_cast<float>(SUM_ROUNDING * static_cast<double>(store_.n_used + 4) * size);
        const double share = skipped * SCREEN_SLACK * index_.largest_frequent_norm / 255 / unit_;
        norm_share_ = static_cast<float>(proof ? share : UNPROVEN_SHARE * share);
        limit_ = static_cast<float>((room - negligible_) / unit_ / SCREEN_SLACK);
        return true;
    }

    // Skips frequent features, those with the least weight per entry first, and indexes the others; returns ‖v‖.
    double skip_frequent(double budget) {
        auto gain = [&](const IndexedWeight &w) { return w.u * w.u / static_cast<float>(index_.frequency(w.col)); };
        std::sort(frequent_.begin(), frequent_.end(), [&](const IndexedWeight &a, const IndexedWeight &b) {
            return gain(a) != gain(b) ? gain(a) < gain(b) : a.col < b.col;
        });
        double squares = 0;
        for (const IndexedWeight &w : frequent_) {
            const double more = squares + static_cast<double>(w.u) * w.u;
            if (std::sqrt(more) * index_.usual_frequent_norm > budget) {
                indexed_.push_back(w);
            } else {
                squares = more;
                skipped_[w.col] = w.u;
            }
        }
        return std::sqrt(squares);
    }

    // Prefetches what later candidates need: where a row starts, then its first lines, where its frequent features are.
    WIDEMARGIN_PREFETCH void ask_for(size_t k) const {
        if (k + 2 * CANDIDATES_AHEAD < n_candidates_) {
            __builtin_prefetch(store_.start.data() + candidates_[k + 2 * CANDIDATES_AHEAD].row);
        }
        if (k + CANDIDATES_AHEAD >= n_candidates_) return;
        const RowEntry *entries = store_.entries.get() + store_.start[candidates_[k + CANDIDATES_AHEAD].row];
        for (int64_t line = 0; line < FREQUENT_LINES; ++line) __builtin_prefetch(entries + line * LINE_ENTRIES);
    }

    // Adds the candidates among the rows from `first` on to the list.
    void scan(int64_t first) {
        const int64_t n = std::min(store_.n_rows - first, INDEX_BLOCK);
        const int bits = index_.value_bits;
        const uint32_t mask = (1u << bits) - 1, last = static_cast<uint32_t>(((first + n) << bits) - 1);
        uint32_t *sums = reinterpret_cast<uint32_t *>(sums_.get());  // those of unbounded rows may wrap around
        for (IndexedWeight &w : indexed_) {
            const uint32_t *e = w.next, weight = w.weight;
            for (; *e <= last; ++e) sums[(*e >> bits) % INDEX_BLOCK] += weight * (*e & mask);
            w.next = e;
            for (int64_t line = 1; line <= INDEX_LINES; ++line) __builtin_prefetch(e + line * LINE_BYTES / sizeof(*e));
        }
        candidates_.resize(std::max(candidates_.size(), n_candidates_ + INDEX_BLOCK));
        ScreenedRow *out = candidates_.data() + n_candidates_;
        const int64_t added =
            kernels_.screen(n, index_.frequent_norm.get() + first, norm_share_, limit_, sums_.get(), out);
        for (int64_t k = 0; k < added; ++k) out[k].row += static_cast<uint32_t>(first);
        n_candidates_ += static_cast<size_t>(added);
    }

    // The unbounded rows, and the candidates whose bound with v·x instead of ‖v‖ ‖x_F‖ exceeds the threshold.  Sets:
    // above_, ascending.
    void keep_above() {
        above_.clear();
        auto unbounded = index_.unbounded.begin(), last = index_.unbounded.end();
        for (size_t k = 0; k < n_candidates_; ++k) {
            ask_for(k);
            const auto [row, sum] = candidates_[k];
            while (unbounded != last && *unbounded <= row) above_.push_back(*unbounded++);
            if (!above_.empty() && above_.back() == row) continue;
            if ((skipped_product(row) + unit_ * sum) * SCREEN_SLACK + negligible_ > room_) above_.push_back(row);
        }
        above_.insert(above_.end(), unbounded, last);
    }

    // v·x
    double skipped_product(uint32_t row) const {
        double sum = 0;
        for (int64_t k = store_.start[row]; k < store_.start[row + 1]; ++k) {
            const RowEntry &e = store_.entries[k];
            if (e.col >= index_.n_frequent) break;
            sum += static_cast<double>(skipped_[e.col]) * static_cast<double>(e.val);
        }
        return sum;
    }

    // Keeps the row if its score exceeds the threshold.
    void score(uint32_t row, const LabelWeights &weights, double threshold) {
        const double sum = sum_in_lanes(store_.start[row], store_.start[row + 1], [&](int64_t k) {
            return static_cast<double>(weights_[store_.entries[k].col]) * store_.value(k);
        });
        const float score = static_cast<float>(sum + weights.bias), slack = rounding_ + 1e-6f * (1 + std::abs(score));
        if (static_cast<double>(score) + slack > threshold) found_.push_back({row, score, slack, 0});
    }
};

}  // namespace widemargin
