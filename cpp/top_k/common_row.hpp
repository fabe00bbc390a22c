// Sparse rows as differences from a common row, where those have fewer values: in rows of pixels with the values 0 and
// 1, the middle of the picture is 1 almost everywhere (silhouettes: 185 values per row instead of 427).
#pragma once

#include <cstdint>
#include <vector>

#include "top_k/state.hpp"

namespace widemargin {

// μ has the most frequent value of each feature that has it in more rows than it has 0; elsewhere it is 0.
template <typename T>
class CommonRow {
  public:
    // X must be sparse. Nothing is stored unless the differences have at most MOST_KEPT of the values of X, and the
    // columns of every row ascend.
    explicit CommonRow(const DataRows<T> &X) : given_(X) {
        const int64_t n_values = X.start[X.n_rows];
        if (find_most_frequent() > MOST_KEPT * double(n_values)) return;
        cols_.reserve(n_values);
        values_.reserve(n_values);
        for (int64_t i = 0; i < X.n_rows; ++i) {
            if (subtract_from(i)) continue;
            start_.resize(1);
            return;
        }
    }

    bool is_used() const { return start_.size() > 1; }
    const std::vector<T> &mu() const { return mu_; }  // (n_cols,)
    // The differences; they read arrays of this object.
    DataRows<T> rows() const {
        double norm = 0.0;
        for (const int32_t f : features_) norm += double(mu_[f]) * double(mu_[f]);
        return {values_.data(), cols_.data(), start_.data(), given_.n_rows,
                given_.n_cols,  given_.bias,  along_.data(), norm};
    }

  private:
    static constexpr double MOST_KEPT = 0.8;  // of the values: the two more lines of W and the copy of X must pay

    // Fills mu_ and features_; returns the number of values of the differences, or a lower bound if that is too many
    // already. The vote of Boyer and Moore finds a value that more than half of a feature's values have, if there is
    // one; features with another most frequent value are left as they are.
    double find_most_frequent() {
        const DataRows<T> &X = given_;
        const int64_t n_values = X.start[X.n_rows];
        std::vector<int32_t> stored(X.n_cols);
        for (int64_t p = 0; p < n_values; ++p) ++stored[X.cols[p]];
        // Of s values, all equal at best, n − s remain where that is less. Votes read several arrays at random: on
        // 20newsgroups they took a twentieth of a fit, and features in more than half of the rows are rare in texts.
        double least = double(n_values);
        for (int64_t f = 0; f < X.n_cols; ++f) least -= double(std::max<int64_t>(2 * int64_t(stored[f]) - X.n_rows, 0));
        if (least > MOST_KEPT * double(n_values)) return least;
        return vote(stored);
    }

    double vote(const std::vector<int32_t> &stored) {
        const DataRows<T> &X = given_;
        std::vector<int64_t> votes(X.n_cols), equal(X.n_cols);
        mu_.assign(X.n_cols, T(0));
        for (int64_t p = 0; p < X.start[X.n_rows]; ++p) {
            const int32_t f = X.cols[p];
            if (votes[f] == 0) mu_[f] = X.values[p];
            votes[f] += X.values[p] == mu_[f] ? 1 : -1;
        }
        for (int64_t p = 0; p < X.start[X.n_rows]; ++p) equal[X.cols[p]] += X.values[p] == mu_[X.cols[p]];
        double kept = 0.0;
        for (int64_t f = 0; f < X.n_cols; ++f) {
            if (mu_[f] != 0 && equal[f] > X.n_rows - stored[f]) {
                features_.push_back(int32_t(f));
                kept += double(X.n_rows - equal[f]);
            } else {
                mu_[f] = 0;
                kept += double(stored[f]);
            }
        }
        return kept;
    }

    // Appends x_i − μ; false if the columns do not ascend.
    bool subtract_from(int64_t i) {
        const int64_t end = given_.start[i + 1];
        double along = 0.0;
        size_t next = 0;  // of the features of μ
        for (int64_t p = given_.start[i]; p < end; ++p) {
            const int32_t f = given_.cols[p];
            if (p > given_.start[i] && f <= given_.cols[p - 1]) return false;
            for (; next < features_.size() && features_[next] < f; ++next)
                append(features_[next], -mu_[features_[next]]);
            next += next < features_.size() && features_[next] == f;
            along += double(given_.values[p]) * double(mu_[f]);
            append(f, given_.values[p] - mu_[f]);
        }
        for (; next < features_.size(); ++next) append(features_[next], -mu_[features_[next]]);
        along_.push_back(T(along));
        start_.push_back(int64_t(cols_.size()));
        return true;
    }

    void append(int32_t f, T value) {
        if (value == 0) return;
        cols_.push_back(f);
        values_.push_back(value);
    }

    DataRows<T> given_;
    std::vector<T> mu_, values_, along_;
    std::vector<int32_t> features_, cols_;  // features_: those where μ is not 0
    std::vector<int64_t> start_{0};
};

}  // namespace widemargin
