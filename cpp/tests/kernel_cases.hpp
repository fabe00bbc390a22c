// Inputs and plain sums for the checks of the one-vs-all kernels. Inputs are multiples of 1/8, so scores are exact:
// fused or not, a row is on the same side of a threshold, and rows exactly at it occur.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"
#include "one_vs_all/kernels.hpp"

namespace widemargin {

inline std::mt19937 generator(1);
inline int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); }
inline float eighths(int largest) { return static_cast<float>(draw(-8 * largest, 8 * largest)) / 8; }

// An aligned table of multiples of 1/8.
inline AlignedFloats table_of(int64_t n, int largest) {
    AlignedFloats values = aligned_floats(n);
    for (int64_t k = 0; k < n; ++k) values[k] = eighths(largest);
    return values;
}
inline std::vector<double> copy_of(const AlignedFloats &values, int64_t n) { return {values.get(), values.get() + n}; }
inline void fill(float *values, int largest) {
    for (int lane = 0; lane < LANES; ++lane) values[lane] = eighths(largest);
}

// A sum of products: right if it is within `tolerance`, that of float32, of the sum of their magnitudes, or of e⁻⁸⁷,
// the least value of the exponential, times products of scores.
constexpr double OF_DOUBLES = 1e-13;  // the tolerance for sums in double
struct Sum {
    double value = 0, size = 0;
    void add(double x) { value += x, size += std::abs(x); }
    bool is(double found, double tolerance = 2e-6) const { return std::abs(found - value) <= tolerance * size + 1e-32; }
};
inline bool close(double found, double expected) {
    return std::abs(found - expected) <= 2e-6 * (1 + std::abs(expected));
}

// Rows sorted by length, from none to 40 entries, with the padding that prefetches read.
struct Rows {
    int64_t n, n_cols = 50;
    std::vector<int64_t> start{0};
    std::vector<RowEntry> entries;

    explicit Rows(int64_t n) : n(n) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t length = 41 * i / n;
            for (int64_t k = 0; k < length; ++k) {
                entries.push_back({static_cast<uint32_t>(k + draw(0, 1) * (k + 10 < n_cols ? 10 : 0)), eighths(2)});
            }
            start.push_back(static_cast<int64_t>(entries.size()));
        }
        entries.resize(entries.size() + PREFETCH_ENTRIES + LINE_ENTRIES);
    }
    template <class F>
    void each(int64_t i, F visit) const {
        for (int64_t k = start[i]; k < start[i + 1]; ++k) visit(entries[k].col, static_cast<double>(entries[k].val));
    }
};

// The sums of a subspace search over n directions v: of αy v_j, h v_j v_k and the loss.
inline void add_search_terms(const double *v, int n, double alpha_y, double h, double loss, Sum *sums) {
    int at = n;
    for (int j = 0; j < n; ++j) {
        sums[j].add(alpha_y * v[j]);
        for (int k = j; k < n; ++k) sums[at++].add(h * v[j] * v[k]);
    }
    sums[at].add(loss);
}
// The score after a step of θ along n directions.
inline double moved(double s, const double *v, int n, const float *theta) {
    for (int j = 0; j < n; ++j) s += double(theta[j]) * v[j];
    return s;
}

// −c φ'(m), c φ(m) and c φ''(m)
struct HingeTerms {
    double alpha, value, curvature;
    HingeTerms(double m, double c) : alpha(0), value(0), curvature(0) {
        if (m < 1) alpha = 2 * c * (1 - m), value = c * (1 - m) * (1 - m), curvature = 2 * c;
    }
};
struct LogisticTerms {
    double alpha, value, curvature;
    LogisticTerms(double m, double c) {
        const double share = 1 / (1 + std::exp(m));
        alpha = c * share, curvature = alpha / (1 + std::exp(-m));
        value = c * (m > 0 ? std::log1p(std::exp(-m)) : std::log1p(std::exp(m)) - m);
    }
};

}  // namespace widemargin
