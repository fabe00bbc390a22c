// Rows of X, sparse or dense and of any supported dtype, presented to the scoring kernels in one form: lists of
// (feature, value) in double, sorted by feature. Loading a row costs O(non-zeros), which is little compared with
// scoring it. So the kernels need one instantiation per kind of weights, not one per pair of X and weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

namespace widemargin {

// A vector that does not fill the places that it adds: every one is written at once.
template <typename T>
struct NoFill : std::allocator<T> {
    template <typename U>
    struct rebind {
        using other = NoFill<U>;
    };
    template <typename U>
    void construct(U *place) noexcept {
        ::new (static_cast<void *>(place)) U;
    }
    template <typename U, typename... Values>
    void construct(U *place, Values &&...values) {
        ::new (static_cast<void *>(place)) U(std::forward<Values>(values)...);
    }
};
template <typename T>
using UnfilledVector = std::vector<T, NoFill<T>>;

// A few loaded rows: row i has the non-zeros [starts[i], starts[i + 1]).
struct RowBuffer {
    std::vector<int64_t> starts{0};
    UnfilledVector<int64_t> features;
    UnfilledVector<double> values;
    std::vector<std::pair<int64_t, double>> sorting;

    void clear() {
        starts.assign(1, 0);
        features.clear();
        values.clear();
    }
    int64_t n_rows() const { return static_cast<int64_t>(starts.size()) - 1; }
};

class RowSource {
  public:
    RowSource(int64_t n_rows, int64_t n_features) : n_rows(n_rows), n_features(n_features) {}
    virtual ~RowSource() = default;
    // Adds the non-zeros of a row to the buffer; throws std::invalid_argument if the row is not valid CSR.
    virtual void append(int64_t row, RowBuffer &buffer) const = 0;
    // For dense rows only: out[j] = X[row, first + j] for j < count.
    virtual void copy_dense(int64_t row, int64_t first, int64_t count, double *out) const = 0;
    virtual bool is_dense() const = 0;
    virtual int64_t mean_row_length() const = 0;

    const int64_t n_rows, n_features;
};

template <typename T>
class DenseRows final : public RowSource {
  public:
    DenseRows(const T *x, int64_t n_rows, int64_t n_features) : RowSource(n_rows, n_features), x_(x) {}

    void append(int64_t row, RowBuffer &buffer) const override {
        const T *x = x_ + row * n_features;
        for (int64_t j = 0; j < n_features; ++j) {
            if (x[j] == T(0)) continue;
            buffer.features.push_back(j);
            buffer.values.push_back(static_cast<double>(x[j]));
        }
        buffer.starts.push_back(static_cast<int64_t>(buffer.features.size()));
    }
    void copy_dense(int64_t row, int64_t first, int64_t count, double *out) const override {
        const T *x = x_ + row * n_features + first;
        for (int64_t j = 0; j < count; ++j) out[j] = static_cast<double>(x[j]);
    }
    bool is_dense() const override { return true; }
    int64_t mean_row_length() const override { return n_features; }

  private:
    const T *x_;
};

template <typename T, typename I>
class SparseRows final : public RowSource {
  public:
    SparseRows(const T *data, const I *indices, const I *indptr, int64_t n_stored, int64_t n_rows, int64_t n_features)
        : RowSource(n_rows, n_features), data_(data), indices_(indices), indptr_(indptr), n_stored_(n_stored) {}

    void append(int64_t row, RowBuffer &buffer) const override {
        const int64_t first = indptr_[row], last = indptr_[row + 1];
        if (first < 0 || first > last || last > n_stored_) throw std::invalid_argument("X: indptr is not increasing");
        const size_t start = buffer.features.size(), count = static_cast<size_t>(last - first);
        buffer.features.resize(start + count);
        buffer.values.resize(start + count);
        int64_t *features = buffer.features.data() + start;
        double *values = buffer.values.data() + start;
        std::copy(indices_ + first, indices_ + last, features);
        std::copy(data_ + first, data_ + last, values);
        // Nearly all rows are in order and without zeros. These loops have no branches, so they use vectors.
        bool increasing = true, no_zeros = true;
        for (size_t j = 1; j < count; ++j) increasing &= features[j - 1] <= features[j];
        for (size_t j = 0; j < count; ++j) no_zeros &= values[j] != 0.0;
        const bool in_range = increasing ? count == 0 || (features[0] >= 0 && features[count - 1] < n_features)
                                         : std::all_of(features, features + count,
                                                       [this](int64_t f) { return f >= 0 && f < n_features; });
        if (!in_range) throw std::invalid_argument("X: a column index is out of range");
        if (!no_zeros) drop_zeros(start, buffer);
        if (!increasing) sort_last_row(buffer);
        buffer.starts.push_back(static_cast<int64_t>(buffer.features.size()));
    }
    void copy_dense(int64_t, int64_t, int64_t, double *) const override {
        throw std::logic_error("sparse rows have no dense form");
    }
    bool is_dense() const override { return false; }
    int64_t mean_row_length() const override { return n_rows > 0 ? n_stored_ / n_rows + 1 : 1; }

  private:
    static void drop_zeros(size_t start, RowBuffer &buffer) {
        size_t kept = start;
        for (size_t j = start; j < buffer.values.size(); ++j) {
            if (buffer.values[j] == 0.0) continue;
            buffer.features[kept] = buffer.features[j];
            buffer.values[kept++] = buffer.values[j];
        }
        buffer.features.resize(kept);
        buffer.values.resize(kept);
    }
    // Stable so that duplicate entries of a feature are added in the order in which they are stored.
    static void sort_last_row(RowBuffer &buffer) {
        const size_t first = static_cast<size_t>(buffer.starts.back()), count = buffer.features.size() - first;
        auto &pairs = buffer.sorting;
        pairs.resize(count);
        for (size_t j = 0; j < count; ++j) pairs[j] = {buffer.features[first + j], buffer.values[first + j]};
        std::stable_sort(pairs.begin(), pairs.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
        for (size_t j = 0; j < count; ++j) {
            buffer.features[first + j] = pairs[j].first;
            buffer.values[first + j] = pairs[j].second;
        }
    }

    const T *data_;
    const I *indices_, *indptr_;
    int64_t n_stored_;
};

}  // namespace widemargin
