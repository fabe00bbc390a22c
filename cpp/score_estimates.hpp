// Estimates of scores in float32, with a bound on their error, for finding the few labels that can be among the k best:
// 6 bytes of weight and label are read for each product instead of 8, and 4 bytes of sum instead of 8 are read and
// written, which is what a row costs (see benchmarks/prediction.py).
//
//     |estimate − score| ≤ E = (m + 6) u (max |intercept| + Σ_f |x_f| max_l |W[l, f]|)     m features, u = 2⁻²⁴
//
// (three roundings of a product's factors and itself, m + 1 of the sum; Higham, Accuracy and Stability, 3.1). With τ
// the k-th largest estimate, k labels score at least τ − E, so no label with an estimate below τ − 2E is among the k
// best.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace widemargin {

constexpr double ESTIMATE_UNIT = 5.9604644775390625e-8;  // 2⁻²⁴
constexpr double ESTIMATE_SLACK = 1.01;                  // for the rounding of the bound and of the scores themselves
constexpr double SMALLEST_BOUND = 1e-37;                 // for products that underflow
constexpr double LARGEST_SUM = 1e30;                     // beyond, float32 may overflow
constexpr int64_t MOST_LOCAL_LABELS = 1 << 16;

// Sparse weights by feature, prepared for estimates; 2 bytes a weight beside the weights themselves.
template <typename T>
struct EstimateIndex {
    std::vector<uint16_t> local_labels;  // label − first label of its block; empty where blocks are too large
    std::vector<float> intercept;
    std::vector<double> largest;  // (n_features,) largest |weight| of a label, entries stored more than once added up
    double largest_intercept = 0;
    int64_t most_repeats = 1;  // entries of one label and feature

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

    // E of a row with features f and values x, or infinity where estimates are of no use.
    double error_bound(const int64_t *f, const double *x, int64_t n) const {
        if (local_labels.empty()) return std::numeric_limits<double>::infinity();
        double sum = largest_intercept;
        for (int64_t j = 0; j < n; ++j) sum += std::abs(x[j]) * largest[f[j]];
        if (!(sum < LARGEST_SUM)) return std::numeric_limits<double>::infinity();
        return ESTIMATE_SLACK * ESTIMATE_UNIT * static_cast<double>(n * most_repeats + 6) * sum + SMALLEST_BOUND;
    }
};

// First place p, begin <= p <= end, with labels[p] >= label, in an ascending range; without branches to be
// mispredicted.
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

}  // namespace widemargin
