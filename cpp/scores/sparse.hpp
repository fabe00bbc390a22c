// score[i, l] = intercept[l] + sum over features f of X[i, f] * W[l, f]: the products rounded to double and added in
// increasing order of f, starting from the intercept, zeros left out. Nothing else determines the order, so a score is
// bit for bit the same for sparse and dense storage and for any batch, block or number of threads. (This is why the
// file that binds these kernels is compiled without contraction into fused multiply-adds.)
//
// This header has the interface of all weights, and weights by feature; scores/compressed.hpp has those in 8 or 16
// bits, scores/dense.hpp has dense weights by label.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "scores/best_labels.hpp"
#include "scores/lines.hpp"
#include "scores/rows.hpp"
#include "simd/arrays.hpp"
#include "simd/threads.hpp"

namespace widemargin {

// Float32 estimates of scores with a bound on their error, to find the few labels that can be among the top k. An
// estimate reads and writes 4 bytes of sum per product instead of 8, and its products may be added in any order; this
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

// W by feature, in arrays that the caller owns. Labels are in blocks of `labels_per_block`. In block b, the labels with
// a weight for feature f are base + labels[starts[b][f] .. starts[b][f + 1]), in increasing order. A feature that most
// labels have is a line instead: lines[line_of[f]] has its weight for every label, zeros included.
template <typename T>
struct FeatureIndex {
    const T *data;           // (n_stored,)
    const uint16_t *labels;  // (n_stored,)
    int64_t n_stored;
    const int64_t *starts;  // (n_blocks, n_features + 1)
    const T *lines;         // (n_lines, line_stride)
    int64_t n_lines, line_stride;
    const int32_t *line_of;  // (n_features,); −1 for the features in `labels`
    const double *largest;   // (n_features,) largest |weight| of a label, duplicate entries added up
    int64_t most_repeats;    // most entries of one label and feature
    int64_t labels_per_block;
};

constexpr int64_t BYTES_PER_NONZERO = 16;  // feature and value of a loaded row

// Numbers in a block of labels have 16 bits. The work arrays have a place for each, so an index from a damaged file
// cannot make a kernel write elsewhere.
constexpr int64_t MOST_LOCAL_LABELS = 1 << 16;

// Work arrays of one thread. They are kept for the next call: making them took longer than scoring one row.
struct LabelArrays {
    AlignedArray<double> sums = untouched_array<double>(MOST_LOCAL_LABELS);
    AlignedArray<float> estimates = untouched_array<float>(MOST_LOCAL_LABELS);
    AlignedArray<int32_t> touched = untouched_array<int32_t>(MOST_LOCAL_LABELS + 1);
    AlignedArray<uint32_t> stamps = aligned_array<uint32_t>(MOST_LOCAL_LABELS);
    uint32_t stamp = 0;
};

class LabelArraysPool {
  public:
    std::unique_ptr<LabelArrays> take() {
        const std::lock_guard<std::mutex> guard(lock_);
        if (free_.empty()) return std::make_unique<LabelArrays>();
        auto arrays = std::move(free_.back());
        free_.pop_back();
        return arrays;
    }
    void give_back(std::unique_ptr<LabelArrays> arrays) {
        const std::lock_guard<std::mutex> guard(lock_);
        free_.push_back(std::move(arrays));
    }

  private:
    std::mutex lock_;
    std::vector<std::unique_ptr<LabelArrays>> free_;
};

// Arrays of the pool, given back at the end.
class PooledArrays {
  public:
    explicit PooledArrays(LabelArraysPool &pool) : pool_(&pool), arrays_(pool.take()) {}
    PooledArrays(PooledArrays &&) = default;
    ~PooledArrays() {
        if (arrays_ != nullptr) pool_->give_back(std::move(arrays_));
    }
    LabelArrays *operator->() const { return arrays_.get(); }

  private:
    LabelArraysPool *pool_;
    std::unique_ptr<LabelArrays> arrays_;
};

template <typename T>
class BlockRow;

// `by_intercept` lists the labels of each block, best intercept first.
template <typename T>
class SparseWeights final : public LinearWeights {
  public:
    using Row = BlockRow<T>;
    static constexpr bool HAS_ESTIMATES = true;

    // Throws std::invalid_argument if the index would make a kernel read outside its arrays.
    SparseWeights(const FeatureIndex<T> &index, const double *intercept, const int32_t *by_intercept, int64_t n_labels,
                  int64_t n_features)
        : LinearWeights(n_labels, n_features, intercept),
          index(index),
          by_intercept(by_intercept),
          float_intercept(intercept, intercept + n_labels),
          kernels(choose_line_kernels<T>()) {
        check_index();
        for (float b : float_intercept)
            largest_intercept_ = std::max(largest_intercept_, std::abs(static_cast<double>(b)));
    }

    void top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *labels, double *scores) const override;
    void scores(const RowSource &rows, WorkPlan plan, double *out) const override;
    double score(const RowBuffer &buffer, int64_t row, int64_t label) const override;

    int64_t labels_per_block() const { return index.labels_per_block; }
    // The line of a feature, from label `base` on, or null.
    const T *line(int64_t feature, int64_t base) const {
        const int64_t number = index.line_of[feature];
        return number < 0 ? nullptr : index.lines + number * index.line_stride + base;
    }
    // The bound E for a row with features f and values x, or infinity if estimates are useless.
    double error_bound(const int64_t *f, const double *x, int64_t n) const {
        double sum = largest_intercept_, largest_x = 0;
        for (int64_t j = 0; j < n; ++j) {
            sum += std::abs(x[j]) * index.largest[f[j]];
            largest_x = std::max(largest_x, std::abs(x[j]));
        }
        if (!(sum < LARGEST_SUM && largest_x < LARGEST_SUM)) return std::numeric_limits<double>::infinity();
        return ESTIMATE_SLACK * ESTIMATE_UNIT * static_cast<double>(n * index.most_repeats + 6) * sum + SMALLEST_BOUND;
    }

    const FeatureIndex<T> index;
    const int32_t *by_intercept;
    const std::vector<float> float_intercept;
    const LineKernels<T> kernels;
    mutable LabelArraysPool pool;

  private:
    void check_index() const {
        const int64_t per_block = index.labels_per_block, length = n_features + 1;
        if (per_block < LINE_STEP || per_block > MOST_LOCAL_LABELS || per_block % LINE_STEP != 0)
            throw std::invalid_argument("index by feature: a block has an invalid number of labels");
        if (index.line_stride % LINE_STEP != 0 || (index.n_lines > 0 && index.line_stride < n_labels))
            throw std::invalid_argument("index by feature: a line does not match the number of labels");
        for (int64_t f = 0; f < n_features; ++f)
            if (index.line_of[f] < -1 || index.line_of[f] >= index.n_lines)
                throw std::invalid_argument("index by feature: a line is missing");
        const int64_t n_blocks = (n_labels + per_block - 1) / per_block;
        for (int64_t p = 0; p < n_blocks * length; ++p)
            if (index.starts[p] < (p == 0 ? 0 : index.starts[p - 1]) || index.starts[p] > index.n_stored)
                throw std::invalid_argument("index by feature: starts must not decrease");
    }

    double largest_intercept_ = 0;
};

// A row in one block of labels: for each non-zero, its line, or the places of its weights.
template <typename T>
class BlockRow {
  public:
    BlockRow(const SparseWeights<T> &weights, const RowBuffer &buffer) : w_(weights), buffer_(buffer) {}

    // Sets: lines_, segments_ where there is no line, and their numbers.
    void find(int64_t row, int64_t block, int64_t width) {
        first_ = buffer_.starts[row];
        n_ = buffer_.starts[row + 1] - first_;
        base_ = block * w_.index.labels_per_block;
        padded_ = (width + LINE_STEP - 1) / LINE_STEP * LINE_STEP;
        lines_.resize(n_);
        segments_.resize(n_);
        run_.resize(n_);
        const int64_t *starts = w_.index.starts + block * (w_.n_features + 1);
        products_ = n_lines_ = 0;
        for (int64_t j = 0; j < n_; ++j) {
            const int64_t f = buffer_.features[first_ + j];
            lines_[j] = w_.line(f, base_);
            if (lines_[j] != nullptr) {
                prefetch(lines_[j]);
                ++n_lines_;
            } else {
                segments_[j] = {starts[f], starts[f + 1]};
                products_ += starts[f + 1] - starts[f];
            }
        }
        products_ += n_lines_ * width;
    }
    int64_t n_nonzeros() const { return n_; }
    int64_t n_products() const { return products_; }  // lines in full

    // sums[l] += score of label base + l − intercept, in the order that defines the score. Writes up to the padded
    // width.
    void add_exact(double *sums) {
        const double *x = buffer_.values.data() + first_;
        if (n_lines_ == n_) {
            w_.kernels.exact(lines_.data(), x, n_, sums, padded_);
            return;
        }
        for (int64_t j = 0; j < n_;) {
            const int64_t begin = j;
            while (j < n_ && lines_[j] != nullptr) ++j;
            if (j > begin) w_.kernels.exact(lines_.data() + begin, x + begin, j - begin, sums, padded_);
            for (; j < n_ && lines_[j] == nullptr; ++j)
                for (int64_t p = segments_[j].begin; p < segments_[j].end; ++p)
                    sums[w_.index.labels[p]] += x[j] * static_cast<double>(w_.index.data[p]);
        }
    }

    // The same in float32 and in any order: lines first.
    void add_estimates(float *sums) {
        const double *x = buffer_.values.data() + first_;
        int64_t n_lines = 0;
        float_x_.resize(n_);
        for (int64_t j = 0; j < n_; ++j) {
            if (lines_[j] == nullptr) continue;
            run_[n_lines] = lines_[j];
            float_x_[n_lines++] = static_cast<float>(x[j]);
        }
        if (n_lines > 0) w_.kernels.estimate(run_.data(), float_x_.data(), n_lines, sums, padded_);
        for (int64_t j = 0; j < n_; ++j) {
            if (lines_[j] != nullptr) continue;
            const float value = static_cast<float>(x[j]);
            for (int64_t p = segments_[j].begin; p < segments_[j].end; ++p)
                sums[w_.index.labels[p]] += value * static_cast<float>(w_.index.data[p]);
        }
    }

    // Calls add(label in the block, product) for every product, if no feature has a line.
    template <class Add>
    void for_each_product(Add add) const {
        for (int64_t j = 0; j < n_; ++j) {
            const double x = buffer_.values[first_ + j];
            for (int64_t p = segments_[j].begin; p < segments_[j].end; ++p)
                add(w_.index.labels[p], x * static_cast<double>(w_.index.data[p]));
        }
    }

    double error_bound() const {
        return w_.error_bound(buffer_.features.data() + first_, buffer_.values.data() + first_, n_);
    }

  private:
    struct Segment {
        int64_t begin, end;
    };

    // Of short lines, all is on its way before the first is used.
    static WIDEMARGIN_PREFETCH void prefetch(const T *line) {
        __builtin_prefetch(line);
        __builtin_prefetch(line + LINE_BYTES / sizeof(T));
    }

    const SparseWeights<T> &w_;
    const RowBuffer &buffer_;
    int64_t first_ = 0, n_ = 0, n_lines_ = 0, products_ = 0, base_ = 0, padded_ = 0;
    std::vector<const T *> lines_, run_;
    std::vector<Segment> segments_;
    std::vector<float> float_x_;
};

// Calls score(row, base, width, found) for every loaded row, in one block of labels after another so that the sums of a
// block stay in the cache. The lines of the next row are on their way to the cache while a row is scored.
template <class Weights, class Score>
void for_each_block_row(const Weights &weights, const RowBuffer &buffer, Score score) {
    typename Weights::Row found[] = {{weights, buffer}, {weights, buffer}};
    const int64_t per_block = weights.labels_per_block(), n_rows = buffer.n_rows();
    for (int64_t block = 0; block * per_block < weights.n_labels; ++block) {
        const int64_t base = block * per_block, width = std::min(per_block, weights.n_labels - base);
        if (n_rows > 0) found[0].find(0, block, width);
        for (int64_t row = 0; row < n_rows; ++row) {
            if (row + 1 < n_rows) found[(row + 1) % 2].find(row + 1, block, width);
            score(row, base, width, found[row % 2]);
        }
    }
}

template <typename T>
double SparseWeights<T>::score(const RowBuffer &buffer, int64_t row, int64_t label) const {
    const int64_t block = label / index.labels_per_block, local = label - block * index.labels_per_block;
    const int64_t *starts = index.starts + block * (n_features + 1);
    double sum = intercept[label];
    for (int64_t j = buffer.starts[row]; j < buffer.starts[row + 1]; ++j) {
        const int64_t f = buffer.features[j];
        if (const T *weights = line(f, label)) {
            sum += buffer.values[j] * static_cast<double>(*weights);  // a weight of 0 changes no bit of the sum
            continue;
        }
        for (int64_t p = first_at_least(index.labels, starts[f], starts[f + 1], local);
             p < starts[f + 1] && index.labels[p] == local; ++p)
            sum += buffer.values[j] * static_cast<double>(index.data[p]);
    }
    return sum;
}

// Rows that are loaded at a time. They share what each block of labels brings to the cache; one block needs few, which
// stay in the cache themselves.
template <class Weights>
int64_t choose_loaded_rows(const Weights &weights, const RowSource &rows, WorkPlan plan, int64_t bytes_per_row) {
    const int64_t most = weights.n_labels <= weights.labels_per_block() ? 32 : 256;
    const int64_t per_row = bytes_per_row + rows.mean_row_length() * BYTES_PER_NONZERO + 8;
    return choose_rows_per_block(rows.n_rows, most, plan.n_threads, plan.work_bytes, per_row);
}

// All scores of weights by feature.
template <class Weights>
void scores_by_feature(const Weights &weights, const RowSource &rows, WorkPlan plan, double *out) {
    for_each_row_block(rows.n_rows, choose_loaded_rows(weights, rows, plan, 0), plan.n_threads, [&]() {
        return [&, arrays = PooledArrays(weights.pool), buffer = RowBuffer()](int64_t first, int64_t last) mutable {
            double *sums = arrays->sums.get();
            buffer.clear();
            for (int64_t i = first; i < last; ++i) rows.append(i, buffer);
            for_each_block_row(weights, buffer, [&](int64_t row, int64_t base, int64_t width, auto &found) {
                std::copy_n(weights.intercept + base, width, sums);
                found.add_exact(sums);
                std::copy_n(sums, width, out + (first + row) * weights.n_labels + base);
            });
        };
    });
}

template <typename T>
void SparseWeights<T>::scores(const RowSource &rows, WorkPlan plan, double *out) const {
    scores_by_feature(*this, rows, plan, out);
}

// The top k for a block of rows.
//
// Few labels share a feature with a row. The score of every other label is its intercept, and the best of those are at
// the front of `by_intercept`; so a row costs O(weights it meets), not O(labels).
template <class Weights>
class SparseTopK {
  public:
    // For a row that meets more weights than this share of a label block, a scan of all sums is faster.
    static constexpr int64_t SCAN_SHARE = 2;
    // Estimates make every product cheaper, but the exact score of a candidate then costs a search in the list of every
    // feature. So they pay off from this many products per feature and place.
    static constexpr int64_t ESTIMATED_PRODUCTS = 32;

    SparseTopK(const Weights &weights, const RowSource &rows, int64_t k, int64_t *labels, double *scores)
        : w_(weights),
          rows_(rows),
          k_(k),
          labels_(labels),
          scores_(scores),
          heaps_(std::min(k, weights.n_labels)),
          arrays_(weights.pool) {}

    void operator()(int64_t first, int64_t last) {
        buffer_.clear();
        for (int64_t i = first; i < last; ++i) rows_.append(i, buffer_);
        heaps_.reset(last - first);
        base_ = -1;
        for_each_block_row(w_, buffer_, [&](int64_t row, int64_t base, int64_t width, auto &found) {
            if (base != base_) sums_are_intercepts_ = false;
            base_ = base;
            width_ = width;
            found_ = &found;
            score_block(row);
        });
        for (int64_t i = first; i < last; ++i) heaps_.write_sorted(i - first, k_, labels_ + i * k_, scores_ + i * k_);
    }

  private:
    void score_block(int64_t row) {
        const int64_t products = found_->n_products();
        if (products * SCAN_SHARE <= width_) {  // so no feature has a line
            score_touched(row);
            return;
        }
        if constexpr (Weights::HAS_ESTIMATES) {
            const bool many = products >= ESTIMATED_PRODUCTS * k_ * found_->n_nonzeros();
            const double bound = many ? found_->error_bound() : std::numeric_limits<double>::infinity();
            if (bound < std::numeric_limits<double>::infinity()) {
                score_candidates(row, bound);
                return;
            }
        }
        score_by_scan(row);
    }

    // Estimates for all labels of the block; scores for those that can be among the top k.
    void score_candidates(int64_t row, double bound) {
        float *estimates = arrays_->estimates.get();
        std::copy_n(w_.float_intercept.data() + base_, width_, estimates);
        found_->add_estimates(estimates);
        const double in_block = kth_largest(estimates, width_, k_, best_) - 2 * bound;
        const double least = std::max(in_block, heaps_.threshold(row) - bound);
        // Rounded down so that the comparison in float32 misses nothing.
        const float limit = std::nextafter(static_cast<float>(least), -std::numeric_limits<float>::infinity());
        visit_at_least(
            estimates, width_, [&] { return limit; },
            [&](int64_t l) { heaps_.offer(row, {w_.score(buffer_, row, base_ + l), base_ + l}); });
    }

    void score_by_scan(int64_t row) {
        restore_sums();
        found_->add_exact(arrays_->sums.get());
        sums_are_intercepts_ = false;
        heaps_.offer_all(row, arrays_->sums.get(), width_, base_);
    }

    void score_touched(int64_t row) {
        restore_sums();
        double *sums = arrays_->sums.get();
        uint32_t *stamps = arrays_->stamps.get();
        if (++arrays_->stamp == 0) {  // the stamps have wrapped around
            std::fill_n(stamps, MOST_LOCAL_LABELS, 0);
            arrays_->stamp = 1;
        }
        const int64_t n_touched = add_touched();
        for (int64_t j = 0; j < n_touched; ++j) {
            const int64_t local = arrays_->touched[j];
            if (local >= width_) continue;  // of a damaged index
            if (!(sums[local] < heaps_.threshold(row))) heaps_.offer(row, {sums[local], base_ + local});
            sums[local] = w_.intercept[base_ + local];
        }
        for (const int32_t *p = w_.by_intercept + base_; p < w_.by_intercept + base_ + width_; ++p) {
            if (!heaps_.can_enter(row, {w_.intercept[*p], *p})) break;
            if (stamps[*p - base_] != arrays_->stamp) heaps_.offer(row, {w_.intercept[*p], *p});
        }
    }

    // Adds up the sums of the labels that meet the row and lists each label once, without a branch.
    int64_t add_touched() {
        double *sums = arrays_->sums.get();
        uint32_t *stamps = arrays_->stamps.get(), stamp = arrays_->stamp;
        int32_t *touched = arrays_->touched.get();
        int64_t n_touched = 0;
        found_->for_each_product([&](int64_t local, double product) {
            sums[local] += product;
            touched[n_touched] = static_cast<int32_t>(local);
            n_touched += stamps[local] != stamp;
            stamps[local] = stamp;
        });
        return n_touched;
    }

    void restore_sums() {
        if (!sums_are_intercepts_) std::copy_n(w_.intercept + base_, width_, arrays_->sums.get());
        sums_are_intercepts_ = true;
    }

    const Weights &w_;
    const RowSource &rows_;
    int64_t k_;
    int64_t *labels_;
    double *scores_;
    TopKHeaps heaps_;
    RowBuffer buffer_;
    PooledArrays arrays_;
    std::vector<float> best_;
    int64_t base_ = 0, width_ = 0;            // the block of labels
    typename Weights::Row *found_ = nullptr;  // the row in it
    bool sums_are_intercepts_ = false;
};

template <class Weights>
void top_k_by_feature(const Weights &weights, const RowSource &rows, int64_t k, WorkPlan plan, int64_t *labels,
                      double *scores) {
    const int64_t per_row = std::min(k, weights.n_labels) * int64_t(sizeof(ScoredLabel));
    for_each_row_block(rows.n_rows, choose_loaded_rows(weights, rows, plan, per_row), plan.n_threads,
                       [&]() { return SparseTopK<Weights>(weights, rows, k, labels, scores); });
}

template <typename T>
void SparseWeights<T>::top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *labels, double *scores) const {
    top_k_by_feature(*this, rows, k, plan, labels, scores);
}

}  // namespace widemargin
