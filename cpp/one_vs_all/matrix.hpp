// Views of the data matrix X (n_rows × n_cols), sparse or dense, with the same interface so that a solver is one
// template. Data are float or double, as given; arithmetic is double throughout.
#pragma once

#include <cmath>
#include <cstdint>

#include "simd/arrays.hpp"

namespace widemargin {

// Σ_k term(k) for begin ≤ k < end, in four lanes of fixed order: faster than one chain of additions, each of which
// waits for the previous one, and identical on every machine and for any number of threads.
template <class Term>
inline __attribute__((always_inline)) double sum_in_lanes(int64_t begin, int64_t end, Term term) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t k = begin;
    for (; k + 4 <= end; k += 4) {
        s0 += term(k);
        s1 += term(k + 1);
        s2 += term(k + 2);
        s3 += term(k + 3);
    }
    for (; k < end; ++k) s0 += term(k);
    return (s0 + s1) + (s2 + s3);
}

// a · b
inline double dot(const double *__restrict a, const double *__restrict b, int64_t n) {
    return sum_in_lanes(0, n, [=](int64_t k) { return a[k] * b[k]; });
}
// a · a; separate from `dot`, whose arguments must not overlap
inline double squared_norm(const double *a, int64_t n) {
    return sum_in_lanes(0, n, [=](int64_t k) { return a[k] * a[k]; });
}

// out += scale * a
inline void add_scaled(double scale, const double *__restrict a, int64_t n, double *__restrict out) {
    for (int64_t k = 0; k < n; ++k) out[k] += scale * a[k];
}

// Compressed sparse rows; column indices need not be sorted.
template <typename T, typename I>
struct CsrView {
    using value_type = T;
    const T *data;
    const I *indices;
    const I *indptr;
    int64_t n_rows;
    int64_t n_cols;

    // x_row · v
    double row_dot(int64_t row, const double *__restrict v) const {
        const T *x = data;
        const I *columns = indices;
        return sum_in_lanes(indptr[row], indptr[row + 1], [=](int64_t k) { return x[k] * v[columns[k]]; });
    }

    // visit(column, value) for the entries of a row
    template <class Visit>
    inline __attribute__((always_inline)) void visit_row(int64_t row, Visit visit) const {
        for (int64_t k = indptr[row]; k < indptr[row + 1]; ++k) visit(indices[k], data[k]);
    }

    // Prefetches the first entries of a row that is read soon.
    WIDEMARGIN_PREFETCH void ask_for(int64_t row) const {
        __builtin_prefetch(indices + indptr[row]);
        __builtin_prefetch(data + indptr[row]);
    }

    // out += scale * x_row
    void add_row(int64_t row, double scale, double *__restrict out) const {
        for (int64_t k = indptr[row]; k < indptr[row + 1]; ++k) out[indices[k]] += scale * data[k];
    }

    // out += scale * x_row², elementwise
    void add_squared_row(int64_t row, double scale, double *__restrict out) const {
        for (int64_t k = indptr[row]; k < indptr[row + 1]; ++k) {
            const double x = data[k];
            out[indices[k]] += scale * x * x;
        }
    }
};

// Dense rows in C order.
template <typename T>
struct DenseView {
    using value_type = T;
    const T *data;
    int64_t n_rows;
    int64_t n_cols;

    double row_dot(int64_t row, const double *__restrict v) const {
        const T *x = data + row * n_cols;
        return sum_in_lanes(0, n_cols, [=](int64_t k) { return x[k] * v[k]; });
    }

    template <class Visit>
    inline __attribute__((always_inline)) void visit_row(int64_t row, Visit visit) const {
        const T *x = data + row * n_cols;
        for (int64_t k = 0; k < n_cols; ++k) visit(k, x[k]);
    }

    WIDEMARGIN_PREFETCH void ask_for(int64_t row) const { __builtin_prefetch(data + row * n_cols); }

    void add_row(int64_t row, double scale, double *__restrict out) const {
        const T *x = data + row * n_cols;
        for (int64_t k = 0; k < n_cols; ++k) out[k] += scale * x[k];
    }

    void add_squared_row(int64_t row, double scale, double *__restrict out) const {
        const T *x = data + row * n_cols;
        for (int64_t k = 0; k < n_cols; ++k) out[k] += scale * static_cast<double>(x[k]) * x[k];
    }
};

}  // namespace widemargin
