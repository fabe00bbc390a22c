// Scores for dense weights, in the order of summation that scores/sparse.hpp defines.
//
// A blocked matrix product: a panel of PANEL labels is packed by feature as double, and every row of the block adds x *
// panel[f] to its PANEL sums, f increasing. Blocking goes over rows, labels and features; sums wait in memory between
// chunks of features, which does not change their order. Sparse rows pack only the features that occur in their block.
// The vector width is chosen at run time; lanes are labels, so it does not change a sum either.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "scores/sparse.hpp"
#include "simd/cpu.hpp"

namespace widemargin {

// The distinct features among many entries, in increasing order, and the place of each entry in that list.
//
// A bit set with one word per 64 features, and the number of set bits before each word: 12 bytes per word. If there are
// more words than entries, the list is sorted instead. (Sorting alone took 15 µs for a row as long as those of
// 20newsgroups; this takes 3.9.)
class FeatureRanks {
  public:
    // Each entry is at least 0 and below n_features. Sets: features, increasing; features[places[j]] = entries[j].
    void rank(const UnfilledVector<int64_t> &entries, int64_t n_features, std::vector<int64_t> &features,
              std::vector<int64_t> &places) {
        places.resize(entries.size());
        if (n_features / WORD_BITS < static_cast<int64_t>(entries.size())) {
            rank_by_bits(entries, n_features, features, places);
        } else {
            rank_by_sorting(entries, features, places);
        }
    }

  private:
    static constexpr int64_t WORD_BITS = 64;
    std::vector<uint64_t> words_;
    std::vector<uint32_t> before_;  // set bits in all previous words

    static void rank_by_sorting(const UnfilledVector<int64_t> &entries, std::vector<int64_t> &features,
                                std::vector<int64_t> &places) {
        features.assign(entries.begin(), entries.end());
        std::sort(features.begin(), features.end());
        features.erase(std::unique(features.begin(), features.end()), features.end());
        for (size_t j = 0; j < entries.size(); ++j)
            places[j] = std::lower_bound(features.begin(), features.end(), entries[j]) - features.begin();
    }

    void rank_by_bits(const UnfilledVector<int64_t> &entries, int64_t n_features, std::vector<int64_t> &features,
                      std::vector<int64_t> &places) {
        words_.assign(n_features / WORD_BITS + 1, 0);
        before_.resize(words_.size());
        for (int64_t f : entries) words_[f / WORD_BITS] |= uint64_t{1} << (f % WORD_BITS);
        features.clear();
        for (size_t word = 0; word < words_.size(); ++word) {
            before_[word] = static_cast<uint32_t>(features.size());
            for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1)
                features.push_back(static_cast<int64_t>(word) * WORD_BITS + __builtin_ctzll(bits));
        }
        for (size_t j = 0; j < entries.size(); ++j) {
            const uint64_t below = (uint64_t{1} << (entries[j] % WORD_BITS)) - 1;
            const int64_t word = entries[j] / WORD_BITS;
            places[j] = before_[word] + __builtin_popcountll(words_[word] & below);
        }
    }
};

constexpr int64_t PANEL = 16;  // labels in registers at a time

// c[r] += sum over j < n of x[r][j] * panel[j], for ROWS rows of PANEL sums.
template <int LANES, int ROWS>
__attribute__((always_inline)) inline void add_tile(const double *panel, const double *x, int64_t x_stride, int64_t n,
                                                    double *c, int64_t c_stride) {
    using Vector = typename VectorOf<double, LANES>::type;
    constexpr int PARTS = PANEL / LANES;
    Vector sums[ROWS][PARTS];
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < PARTS; ++v) sums[r][v] = *reinterpret_cast<const Vector *>(c + r * c_stride + v * LANES);
    for (int64_t j = 0; j < n; ++j, panel += PANEL)
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < PARTS; ++v)
                sums[r][v] += x[r * x_stride + j] * *reinterpret_cast<const Vector *>(panel + v * LANES);
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < PARTS; ++v) *reinterpret_cast<Vector *>(c + r * c_stride + v * LANES) = sums[r][v];
}

template <int LANES, int ROWS>
__attribute__((always_inline)) inline void add_dense_rows(const double *panel, const double *x, int64_t x_stride,
                                                          int64_t n, double *c, int64_t c_stride, int64_t n_rows) {
    int64_t r = 0;
    for (; r + ROWS <= n_rows; r += ROWS)
        add_tile<LANES, ROWS>(panel, x + r * x_stride, x_stride, n, c + r * c_stride, c_stride);
    for (; r < n_rows; ++r) add_tile<LANES, 1>(panel, x + r * x_stride, x_stride, n, c + r * c_stride, c_stride);
}

// c += sum over j < n of values[j] * panel[places[j] - first].
template <int LANES>
__attribute__((always_inline)) inline void add_sparse_row(const double *panel, int64_t first, const int64_t *places,
                                                          const double *values, int64_t n, double *c) {
    using Vector = typename VectorOf<double, LANES>::type;
    constexpr int PARTS = PANEL / LANES;
    Vector sums[PARTS];
    for (int v = 0; v < PARTS; ++v) sums[v] = *reinterpret_cast<const Vector *>(c + v * LANES);
    for (int64_t j = 0; j < n; ++j) {
        const double *line = panel + (places[j] - first) * PANEL;
        for (int v = 0; v < PARTS; ++v) sums[v] += values[j] * *reinterpret_cast<const Vector *>(line + v * LANES);
    }
    for (int v = 0; v < PARTS; ++v) *reinterpret_cast<Vector *>(c + v * LANES) = sums[v];
}

struct PanelKernels {
    void (*dense_rows)(const double *, const double *, int64_t, int64_t, double *, int64_t, int64_t);
    void (*sparse_row)(const double *, int64_t, const int64_t *, const double *, int64_t, double *);
};

// The same two functions for each instruction set; a tile has as many rows as the registers hold.
#define WIDEMARGIN_PANEL_KERNELS(name, attribute, lanes, rows)                                                 \
    attribute inline void dense_rows_##name(const double *panel, const double *x, int64_t x_stride, int64_t n, \
                                            double *c, int64_t c_stride, int64_t n_rows) {                     \
        add_dense_rows<lanes, rows>(panel, x, x_stride, n, c, c_stride, n_rows);                               \
    }                                                                                                          \
    attribute inline void sparse_row_##name(const double *panel, int64_t first, const int64_t *places,         \
                                            const double *values, int64_t n, double *c) {                      \
        add_sparse_row<lanes>(panel, first, places, values, n, c);                                             \
    }
WIDEMARGIN_PANEL_KERNELS(baseline, , 2, 1)
WIDEMARGIN_PANEL_KERNELS(avx2, WIDEMARGIN_TARGET("avx2"), 4, 2)
WIDEMARGIN_PANEL_KERNELS(avx512, WIDEMARGIN_TARGET("avx512f"), 8, 4)
#undef WIDEMARGIN_PANEL_KERNELS

inline PanelKernels choose_panel_kernels() {
    return for_instruction_set(choose_instruction_set(), PanelKernels{dense_rows_avx512, sparse_row_avx512},
                               PanelKernels{dense_rows_avx2, sparse_row_avx2},
                               PanelKernels{dense_rows_baseline, sparse_row_baseline});
}

// W row-major, n_labels x n_features.
template <typename T>
class DenseWeights final : public LinearWeights {
  public:
    DenseWeights(const T *coef, const double *intercept, int64_t n_labels, int64_t n_features)
        : LinearWeights(n_labels, n_features, intercept), coef(coef) {}

    void top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *out_labels, double *out_scores) const override;
    void scores(const RowSource &rows, WorkPlan plan, double *out) const override;
    double score(const RowBuffer &buffer, int64_t row, int64_t label) const override {
        double sum = intercept[label];
        const T *w = coef + label * n_features;
        for (int64_t j = buffer.starts[row]; j < buffer.starts[row + 1]; ++j)
            sum += buffer.values[j] * static_cast<double>(w[buffer.features[j]]);
        return sum;
    }

    const T *coef;
};

// All scores of a block of rows, passed to emit(row in block, first label, count, scores).
template <typename T>
class DenseBlock {
  public:
    static constexpr int64_t ROWS = 256, LABELS = 256;  // 512 KB of sums
    static constexpr int64_t MOST_ROWS = 2048;          // for sparse rows with few labels, which share the packing
    static constexpr int64_t DENSE_CHUNK = 128;         // features; a packed panel of 16 KB stays in the L1 cache
    static constexpr int64_t SPARSE_CHUNK = 2048;       // occurring features; a panel of 256 KB stays in the L2 cache
    static constexpr int64_t PACKED_TILE = 64;          // features whose lines stay in the L1 cache while they fill

    DenseBlock(const DenseWeights<T> &weights, const RowSource &rows)
        : w_(weights), rows_(rows), kernels_(choose_panel_kernels()), stride_(sums_per_row(weights)) {}

    template <typename Emit>
    void run(int64_t first, int64_t last, Emit emit) {
        first_ = first;
        n_ = last - first;
        if (!rows_.is_dense()) load_sparse();
        sums_.resize(n_ * stride_);
        for (int64_t base = 0; base < w_.n_labels; base += LABELS) {
            const int64_t count = std::min(LABELS, w_.n_labels - base);
            for (int64_t r = 0; r < n_; ++r) {
                std::copy(w_.intercept + base, w_.intercept + base + count, sums_.begin() + r * stride_);
                std::fill(sums_.begin() + r * stride_ + count, sums_.begin() + (r + 1) * stride_, 0.0);
            }
            if (rows_.is_dense())
                add_dense(base, count);
            else
                add_sparse(base, count);
            for (int64_t r = 0; r < n_; ++r) emit(r, base, count, sums_.data() + r * stride_);
        }
    }

    // Sums, plus a chunk of a dense row, or the feature, value, place and distinct feature of every non-zero.
    static int64_t bytes_per_row(const DenseWeights<T> &weights, const RowSource &rows) {
        const int64_t own = rows.is_dense() ? DENSE_CHUNK : 4 * rows.mean_row_length();
        return (sums_per_row(weights) + own) * static_cast<int64_t>(sizeof(double));
    }
    static int64_t rows_per_block(const DenseWeights<T> &weights, const RowSource &rows) {
        return rows.is_dense() ? ROWS : std::min(MOST_ROWS, ROWS * LABELS / sums_per_row(weights));
    }

  private:
    // Whole panels, at most LABELS.
    static int64_t sums_per_row(const DenseWeights<T> &weights) {
        return std::clamp((weights.n_labels + PANEL - 1) / PANEL * PANEL, PANEL, LABELS);
    }

    // Sets: features_, the features that occur in the block, in order; places_, where the feature of each non-zero is
    // in that list.
    void load_sparse() {
        buffer_.clear();
        for (int64_t r = 0; r < n_; ++r) rows_.append(first_ + r, buffer_);
        ranks_.rank(buffer_.features, w_.n_features, features_, places_);
    }

    void add_dense(int64_t base, int64_t count) {
        x_.resize(n_ * DENSE_CHUNK);
        panel_.resize(DENSE_CHUNK * PANEL);
        for (int64_t f = 0; f < w_.n_features; f += DENSE_CHUNK) {
            const int64_t n = std::min(DENSE_CHUNK, w_.n_features - f);
            for (int64_t r = 0; r < n_; ++r) rows_.copy_dense(first_ + r, f, n, x_.data() + r * DENSE_CHUNK);
            for (int64_t p = 0; p < count; p += PANEL) {
                pack(base + p, std::min(PANEL, count - p), n, [f](int64_t j) { return f + j; });
                kernels_.dense_rows(panel_.data(), x_.data(), DENSE_CHUNK, n, sums_.data() + p, stride_, n_);
            }
        }
    }

    void add_sparse(int64_t base, int64_t count) {
        const int64_t n_occurring = static_cast<int64_t>(features_.size());
        panel_.resize(std::min(SPARSE_CHUNK, n_occurring) * PANEL);
        begins_.assign(buffer_.starts.begin(), buffer_.starts.end() - 1);
        ends_.resize(n_);
        for (int64_t f = 0; f < n_occurring; f += SPARSE_CHUNK) {
            const int64_t n = std::min(SPARSE_CHUNK, n_occurring - f);
            for (int64_t r = 0; r < n_; ++r)
                ends_[r] =
                    std::lower_bound(places_.begin() + begins_[r], places_.begin() + buffer_.starts[r + 1], f + n) -
                    places_.begin();
            for (int64_t p = 0; p < count; p += PANEL) {
                const int64_t *features = features_.data() + f;
                pack(base + p, std::min(PANEL, count - p), n, [features](int64_t j) { return features[j]; });
                for (int64_t r = 0; r < n_; ++r)
                    kernels_.sparse_row(panel_.data(), f, places_.data() + begins_[r],
                                        buffer_.values.data() + begins_[r], ends_[r] - begins_[r],
                                        sums_.data() + r * stride_ + p);
            }
            begins_ = ends_;
        }
    }

    // panel[j][l] = W[label + l, feature(j)] for l < count; lanes beyond are zero and are not emitted.
    template <typename Feature>
    void pack(int64_t label, int64_t count, int64_t n, Feature feature) {
        if (count < PANEL) std::fill(panel_.begin(), panel_.begin() + n * PANEL, 0.0);
        for (int64_t first = 0; first < n; first += PACKED_TILE) {
            const int64_t last = std::min(n, first + PACKED_TILE);
            for (int64_t l = 0; l < count; ++l) {
                const T *w = w_.coef + (label + l) * w_.n_features;
                for (int64_t j = first; j < last; ++j) panel_[j * PANEL + l] = static_cast<double>(w[feature(j)]);
            }
        }
    }

    const DenseWeights<T> &w_;
    const RowSource &rows_;
    const PanelKernels kernels_;
    const int64_t stride_;  // sums per row
    int64_t first_ = 0, n_ = 0;
    RowBuffer buffer_;
    FeatureRanks ranks_;
    std::vector<int64_t> features_, places_, begins_, ends_;
    std::vector<double> sums_, x_, panel_;
};

template <typename T>
void DenseWeights<T>::top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *out_labels,
                            double *out_scores) const {
    const int64_t kept = std::min(k, n_labels);
    const int64_t per_row =
        DenseBlock<T>::bytes_per_row(*this, rows) + kept * static_cast<int64_t>(sizeof(ScoredLabel));
    const int64_t per_block = choose_rows_per_block(rows.n_rows, DenseBlock<T>::rows_per_block(*this, rows),
                                                    plan.n_threads, plan.work_bytes, per_row);
    for_each_row_block(rows.n_rows, per_block, plan.n_threads, [&]() {
        return [&, block = DenseBlock<T>(*this, rows), heaps = TopKHeaps(kept)](int64_t first, int64_t last) mutable {
            heaps.reset(last - first);
            block.run(first, last, [&](int64_t row, int64_t label, int64_t count, const double *scores) {
                heaps.offer_all(row, scores, count, label);
            });
            for (int64_t i = first; i < last; ++i)
                heaps.write_sorted(i - first, k, out_labels + i * k, out_scores + i * k);
        };
    });
}

template <typename T>
void DenseWeights<T>::scores(const RowSource &rows, WorkPlan plan, double *out) const {
    const int64_t per_block =
        choose_rows_per_block(rows.n_rows, DenseBlock<T>::rows_per_block(*this, rows), plan.n_threads, plan.work_bytes,
                              DenseBlock<T>::bytes_per_row(*this, rows));
    for_each_row_block(rows.n_rows, per_block, plan.n_threads, [&]() {
        return [&, block = DenseBlock<T>(*this, rows)](int64_t first, int64_t last) mutable {
            block.run(first, last, [&](int64_t row, int64_t label, int64_t count, const double *scores) {
                std::copy(scores, scores + count, out + (first + row) * n_labels + label);
            });
        };
    });
}

}  // namespace widemargin
