// score[i, l] = intercept[l] + sum over features f of X[i, f] * W[l, f]: the products rounded to double and added in
// increasing order of f, starting from the intercept, zeros left out. Nothing else determines the order, so a score is
// bit for bit the same for sparse and dense storage and for any batch, block or number of threads. (This is why the
// file that binds these kernels is compiled without contraction into fused multiply-adds.)
//
// This header has the interface of all weights, and sparse weights; scores/dense.hpp has dense weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "scores/best_labels.hpp"
#include "scores/rows.hpp"
#include "simd/threads.hpp"

namespace widemargin {

// Float32 estimates of scores with a bound on their error, to find the few labels that can be among the top k. Each
// product reads 6 bytes of weight and label instead of 8, and reads and writes 4 bytes of sum instead of 8; this
// traffic dominates the cost of a row (benchmarks/prediction.py).
//
//     |estimate − score| ≤ E = (m + 6) u (max |intercept| + Σ_f |x_f| max_l |W[l, f]|)     m features, u = 2⁻²⁴
//
// (three roundings for a product and its factors, m + 1 for the sum; Higham, Accuracy and Stability, 3.1). If τ is the
// k-th largest estimate, k labels score at least τ − E, so no label with an estimate below τ − 2E is among the top k.

constexpr double ESTIMATE_UNIT = 5.9604644775390625e-8;  // 2⁻²⁴
constexpr double ESTIMATE_SLACK = 1.01;                  // for the rounding of the bound and of the scores themselves
constexpr double SMALLEST_BOUND = 1e-37;                 // for products that underflow
constexpr double LARGEST_SUM = 1e30;                     // above this, float32 may overflow
constexpr int64_t MOST_LOCAL_LABELS = 1 << 16;

// Sparse weights by feature, prepared for estimates: 2 bytes per weight in addition to the weights themselves.
template <typename T>
struct EstimateIndex {
    std::vector<uint16_t> local_labels;  // label − first label of its block; empty if blocks are too large
    std::vector<float> intercept;
    std::vector<double> largest;  // (n_features,) largest |weight| of a label, duplicate entries added up
    double largest_intercept = 0;
    int64_t most_repeats = 1;  // most entries of one label and feature

    template <typename I>
    EstimateIndex(const T *data, const I *labels, const I *indptr, const double *given_intercept,
                  int64_t labels_per_block, int64_t n_labels, int64_t n_features) {
        if (labels_per_block > MOST_LOCAL_LABELS) return;
        local_labels.resize(indptr[n_features]);
        largest.assign(n_features, 0.0);
        for (int64_t f = 0; f < n_features; ++f) {
            double weight = 0;
            int64_t repeats = 0;
            for (int64_t p = indptr[f]; p < int64_t{indptr[f + 1]}; ++p) {
                const bool same = p > int64_t{indptr[f]} && labels[p] == labels[p - 1];
                weight = (same ? weight : 0.0) + std::abs(static_cast<double>(data[p]));
                repeats = (same ? repeats : 0) + 1;
                local_labels[p] = static_cast<uint16_t>(labels[p] % labels_per_block);
                largest[f] = std::max(largest[f], weight);
                most_repeats = std::max(most_repeats, repeats);
            }
        }
        intercept.assign(given_intercept, given_intercept + n_labels);
        for (float b : intercept) largest_intercept = std::max(largest_intercept, std::abs(static_cast<double>(b)));
    }

    // E for a row with features f and values x, or infinity if estimates are useless.
    double error_bound(const int64_t *f, const double *x, int64_t n) const {
        if (local_labels.empty()) return std::numeric_limits<double>::infinity();
        double sum = largest_intercept;
        for (int64_t j = 0; j < n; ++j) sum += std::abs(x[j]) * largest[f[j]];
        if (!(sum < LARGEST_SUM)) return std::numeric_limits<double>::infinity();
        return ESTIMATE_SLACK * ESTIMATE_UNIT * static_cast<double>(n * most_repeats + 6) * sum + SMALLEST_BOUND;
    }
};

// First place p, begin <= p <= end, with labels[p] >= label, in an ascending range; branch-free, to avoid
// mispredictions.
inline int64_t first_at_least(const uint16_t *labels, int64_t begin, int64_t end, int64_t label) {
    for (int64_t n = end - begin; n > 0;) {
        const int64_t half = (n + 1) / 2;
        begin += labels[begin + half - 1] < label ? half : 0;
        n -= half;
    }
    return begin;
}

// Calls visit(j) for all j < n with values[j] >= bar(); many comparisons at a time, since nearly all fail.
template <class Bar, class Visit>
void visit_at_least(const float *values, int64_t n, Bar bar, Visit visit) {
    constexpr int64_t STEP = 64;
    for (int64_t first = 0; first < n; first += STEP) {
        const int64_t last = std::min(first + STEP, n);
        const float limit = bar();
        int32_t count = 0;
        for (int64_t j = first; j < last; ++j) count += values[j] >= limit;
        if (count == 0) continue;
        for (int64_t j = first; j < last; ++j) {
            if (values[j] >= bar()) visit(j);
        }
    }
}

// The k-th largest of n values, −inf if there are fewer. `best`: work space.
inline float kth_largest(const float *values, int64_t n, int64_t k, std::vector<float> &best) {
    best.assign(k, -std::numeric_limits<float>::infinity());  // descending
    visit_at_least(
        values, n, [&] { return best.back(); },
        [&](int64_t j) {
            auto place = std::upper_bound(best.begin(), best.end(), values[j], std::greater<>());
            if (place == best.end()) return;
            std::copy_backward(place, best.end() - 1, best.end());
            *place = values[j];
        });
    return best.back();
}

// How to spread the work; `work_bytes` bounds the work arrays of all threads together, not counting those of a single
// row.
struct WorkPlan {
    int64_t n_threads, work_bytes;
};

class LinearWeights {
  public:
    LinearWeights(int64_t n_labels, int64_t n_features, const double *intercept)
        : n_labels(n_labels), n_features(n_features), intercept(intercept) {}
    virtual ~LinearWeights() = default;
    // The top k labels of every row: labels and scores, n_rows x k.
    virtual void top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *labels, double *scores) const = 0;
    // All scores, n_rows x n_labels.
    virtual void scores(const RowSource &rows, WorkPlan plan, double *out) const = 0;
    // The score of one loaded row for one label.
    virtual double score(const RowBuffer &buffer, int64_t row, int64_t label) const = 0;

    const int64_t n_labels, n_features;
    const double *const intercept;
};

// Calls score(i, buffer) for every row i, which is loaded into the buffer.
template <class Score>
void for_each_loaded_row(const RowSource &rows, WorkPlan plan, int64_t most_per_block, Score score) {
    const int64_t per_block = choose_rows_per_block(rows.n_rows, most_per_block, plan.n_threads, plan.work_bytes, 1);
    for_each_row_block(rows.n_rows, per_block, plan.n_threads, [&]() {
        return [&, buffer = RowBuffer()](int64_t first, int64_t last) mutable {
            for (int64_t i = first; i < last; ++i) {
                buffer.clear();
                rows.append(i, buffer);
                score(i, buffer);
            }
        };
    });
}

// out[p] = score of row i for label labels[p], for indptr[i] <= p < indptr[i + 1]: the structure of a CSR matrix Y.
template <typename I>
void label_scores(const LinearWeights &weights, const RowSource &rows, const I *labels, const I *indptr, WorkPlan plan,
                  double *out) {
    constexpr int64_t ROWS = 64;
    for_each_loaded_row(rows, plan, ROWS, [&](int64_t i, const RowBuffer &buffer) {
        for (I p = indptr[i]; p < indptr[i + 1]; ++p) out[p] = weights.score(buffer, 0, labels[p]);
    });
}

// W by feature: the labels with a weight for feature f are labels[indptr[f] .. indptr[f + 1]), in increasing order.
// `by_intercept` lists the labels of each block of `labels_per_block`, best intercept first.
template <typename T, typename I>
class SparseWeights final : public LinearWeights {
  public:
    SparseWeights(const T *data, const I *labels, const I *indptr, const double *intercept, const int32_t *by_intercept,
                  int64_t labels_per_block, int64_t n_labels, int64_t n_features)
        : LinearWeights(n_labels, n_features, intercept),
          data(data),
          labels(labels),
          indptr(indptr),
          by_intercept(by_intercept),
          labels_per_block(labels_per_block),
          estimates(data, labels, indptr, intercept, labels_per_block, n_labels, n_features) {}

    void top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *out_labels, double *out_scores) const override;
    void scores(const RowSource &rows, WorkPlan plan, double *out) const override;
    double score(const RowBuffer &buffer, int64_t row, int64_t label) const override;

    const T *data;
    const I *labels, *indptr;
    const int32_t *by_intercept;
    const int64_t labels_per_block;
    const EstimateIndex<T> estimates;
};

template <typename T, typename I>
double SparseWeights<T, I>::score(const RowBuffer &buffer, int64_t row, int64_t label) const {
    double sum = intercept[label];
    for (int64_t j = buffer.starts[row]; j < buffer.starts[row + 1]; ++j) {
        const int64_t f = buffer.features[j];
        const I *end = labels + indptr[f + 1];
        for (const I *p = std::lower_bound(labels + indptr[f], end, static_cast<I>(label)); p < end && *p == label; ++p)
            sum += buffer.values[j] * static_cast<double>(data[p - labels]);
    }
    return sum;
}

template <typename T, typename I>
void SparseWeights<T, I>::scores(const RowSource &rows, WorkPlan plan, double *out) const {
    constexpr int64_t ROWS = 16;
    for_each_loaded_row(rows, plan, ROWS, [&](int64_t i, const RowBuffer &buffer) {
        double *sums = out + i * n_labels;
        std::copy(intercept, intercept + n_labels, sums);
        for (size_t j = 0; j < buffer.features.size(); ++j)
            for (int64_t p = indptr[buffer.features[j]]; p < indptr[buffer.features[j] + 1]; ++p)
                sums[labels[p]] += buffer.values[j] * static_cast<double>(data[p]);
    });
}

// The top k for a block of rows. The outer loop is over blocks of labels so that the sums of a block stay in the
// cache; the inner loop is over rows.
//
// Few labels share a feature with a row. The score of every other label is its intercept, and the best of those are at
// the front of `by_intercept`; so a row costs O(weights it meets), not O(labels). Between rows, sums_ equals the
// intercepts.
template <typename T, typename I>
class SparseTopK {
  public:
    // For a row that meets more weights than this share of a label block, a scan of all sums is faster.
    static constexpr int64_t SCAN_SHARE = 2;
    // Estimates make every product cheaper, but the exact score of a candidate then costs a search in the list of every
    // feature. So they pay off from this many products per feature and place.
    static constexpr int64_t ESTIMATED_PRODUCTS = 32;

    SparseTopK(const SparseWeights<T, I> &weights, const RowSource &rows, int64_t k, int64_t *labels, double *scores)
        : w_(weights), rows_(rows), k_(k), labels_(labels), scores_(scores), heaps_(std::min(k, weights.n_labels)) {
        const int64_t width = std::min(w_.labels_per_block, w_.n_labels);
        sums_.resize(width);
        stamps_.assign(width, 0);
        touched_.resize(width + 1);
        estimates_.resize(width);
    }

    void operator()(int64_t first, int64_t last) {
        buffer_.clear();
        for (int64_t i = first; i < last; ++i) rows_.append(i, buffer_);
        cursors_.resize(buffer_.features.size());
        ends_.resize(buffer_.features.size());
        for (size_t j = 0; j < cursors_.size(); ++j) cursors_[j] = w_.indptr[buffer_.features[j]];
        heaps_.reset(last - first);
        for (int64_t base = 0; base < w_.n_labels; base += w_.labels_per_block) {
            const int64_t width = std::min(w_.labels_per_block, w_.n_labels - base);
            std::copy(w_.intercept + base, w_.intercept + base + width, sums_.begin());
            for (int64_t row = 0; row < last - first; ++row) score_block(row, base, width);
        }
        for (int64_t i = first; i < last; ++i) heaps_.write_sorted(i - first, k_, labels_ + i * k_, scores_ + i * k_);
    }

  private:
    void score_block(int64_t row, int64_t base, int64_t width) {
        const int64_t met = find_segments(row, base + width);
        if (met * SCAN_SHARE <= width) {
            score_touched(row, base, width);
            return;
        }
        const int64_t start = buffer_.starts[row], n = buffer_.starts[row + 1] - start;
        const double bound =
            w_.estimates.error_bound(buffer_.features.data() + start, buffer_.values.data() + start, n);
        if (met >= ESTIMATED_PRODUCTS * k_ * n && bound < std::numeric_limits<double>::infinity()) {
            score_candidates(row, base, width, bound);
        } else {
            score_by_scan(row, base, width);
        }
    }

    // Estimates for all labels of the block; scores for those that can be among the top k.
    void score_candidates(int64_t row, int64_t base, int64_t width, double bound) {
        std::copy_n(w_.estimates.intercept.data() + base, width, estimates_.data());
        const uint16_t *labels = w_.estimates.local_labels.data();
        for (int64_t j = buffer_.starts[row]; j < buffer_.starts[row + 1]; ++j) {
            const float x = static_cast<float>(buffer_.values[j]);
            for (int64_t p = cursors_[j]; p < ends_[j]; ++p)
                estimates_[labels[p]] += x * static_cast<float>(w_.data[p]);
        }
        const double in_block = kth_largest(estimates_.data(), width, k_, best_) - 2 * bound;
        const double least = std::max(in_block, heaps_.threshold(row) - bound);
        // Rounded down so that the comparison in float32 misses nothing.
        const float limit = std::nextafter(static_cast<float>(least), -std::numeric_limits<float>::infinity());
        visit_at_least(
            estimates_.data(), width, [&] { return limit; },
            [&](int64_t l) { heaps_.offer(row, {score_in_block(row, base, l), base + l}); });
        for (int64_t j = buffer_.starts[row]; j < buffer_.starts[row + 1]; ++j) cursors_[j] = ends_[j];
    }

    // Like SparseWeights::score, but within the segments of this block, whose labels are in the cache.
    double score_in_block(int64_t row, int64_t base, int64_t local) const {
        const uint16_t *labels = w_.estimates.local_labels.data();
        double sum = w_.intercept[base + local];
        for (int64_t j = buffer_.starts[row]; j < buffer_.starts[row + 1]; ++j) {
            for (int64_t p = first_at_least(labels, cursors_[j], ends_[j], local); p < ends_[j] && labels[p] == local;
                 ++p)
                sum += buffer_.values[j] * static_cast<double>(w_.data[p]);
        }
        return sum;
    }

    // Returns the number of weights of the row's features in this label block.  Sets: ends_, where they end for each
    // feature.
    int64_t find_segments(int64_t row, int64_t block_end) {
        int64_t met = 0;
        for (int64_t j = buffer_.starts[row]; j < buffer_.starts[row + 1]; ++j) {
            const I *end = w_.labels + w_.indptr[buffer_.features[j] + 1];
            if (block_end < w_.n_labels)
                end = std::lower_bound(w_.labels + cursors_[j], end, static_cast<I>(block_end));
            ends_[j] = end - w_.labels;
            met += ends_[j] - cursors_[j];
        }
        return met;
    }

    void score_by_scan(int64_t row, int64_t base, int64_t width) {
        for (int64_t j = buffer_.starts[row]; j < buffer_.starts[row + 1]; ++j) {
            const double x = buffer_.values[j];
            for (int64_t p = cursors_[j]; p < ends_[j]; ++p) sums_[w_.labels[p] - base] += x * double(w_.data[p]);
            cursors_[j] = ends_[j];
        }
        heaps_.offer_all(row, sums_.data(), width, base);
        std::copy(w_.intercept + base, w_.intercept + base + width, sums_.begin());
    }

    void score_touched(int64_t row, int64_t base, int64_t width) {
        if (++stamp_ == 0) {  // the stamps have wrapped around
            std::fill(stamps_.begin(), stamps_.end(), 0);
            stamp_ = 1;
        }
        const int64_t n_touched = add_touched(row, base);
        for (int64_t j = 0; j < n_touched; ++j) {
            const int64_t local = touched_[j];
            if (!(sums_[local] < heaps_.threshold(row))) heaps_.offer(row, {sums_[local], base + local});
            sums_[local] = w_.intercept[base + local];
        }
        for (const int32_t *p = w_.by_intercept + base; p < w_.by_intercept + base + width; ++p) {
            if (!heaps_.can_enter(row, {w_.intercept[*p], *p})) break;
            if (stamps_[*p - base] != stamp_) heaps_.offer(row, {w_.intercept[*p], *p});
        }
    }

    // Adds up the sums of the labels that meet the row and lists each label once, without a branch.
    int64_t add_touched(int64_t row, int64_t base) {
        int64_t n_touched = 0;
        for (int64_t j = buffer_.starts[row]; j < buffer_.starts[row + 1]; ++j) {
            const double x = buffer_.values[j];
            for (int64_t p = cursors_[j]; p < ends_[j]; ++p) {
                const int64_t local = w_.labels[p] - base;
                sums_[local] += x * static_cast<double>(w_.data[p]);
                touched_[n_touched] = static_cast<int32_t>(local);
                n_touched += stamps_[local] != stamp_;
                stamps_[local] = stamp_;
            }
            cursors_[j] = ends_[j];
        }
        return n_touched;
    }

    const SparseWeights<T, I> &w_;
    const RowSource &rows_;
    int64_t k_;
    int64_t *labels_;
    double *scores_;
    TopKHeaps heaps_;
    RowBuffer buffer_;
    std::vector<int64_t> cursors_, ends_;
    std::vector<double> sums_;
    std::vector<uint32_t> stamps_;
    std::vector<int32_t> touched_;
    std::vector<float> estimates_, best_;
    uint32_t stamp_ = 0;
};

template <typename T, typename I>
void SparseWeights<T, I>::top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *out_labels,
                                double *out_scores) const {
    constexpr int64_t ROWS = 256, BYTES_PER_NONZERO = 32;  // feature, value, cursor and end
    const int64_t per_row =
        std::min(k, n_labels) * sizeof(ScoredLabel) + rows.mean_row_length() * BYTES_PER_NONZERO + 8;
    const int64_t per_block = choose_rows_per_block(rows.n_rows, ROWS, plan.n_threads, plan.work_bytes, per_row);
    for_each_row_block(rows.n_rows, per_block, plan.n_threads,
                       [&]() { return SparseTopK<T, I>(*this, rows, k, out_labels, out_scores); });
}

}  // namespace widemargin
