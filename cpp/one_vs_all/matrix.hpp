// Views of the data matrix X (n_rows × n_cols), sparse or dense, behind the same few names, so that a solver is one
// template. Data are float or double as the user has them; arithmetic is double throughout.
#pragma once

#include <cmath>
#include <cstdint>

namespace widemargin {

// Dense vector helpers. Sums run in four lanes of fixed order: faster than one chain of additions, and the same on
// every machine and for every number of threads.

// a · b
inline double dot(const double *__restrict a, const double *__restrict b, int64_t n) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        s0 += a[k] * b[k];
        s1 += a[k + 1] * b[k + 1];
        s2 += a[k + 2] * b[k + 2];
        s3 += a[k + 3] * b[k + 3];
    }
    for (; k < n; ++k) s0 += a[k] * b[k];
    return (s0 + s1) + (s2 + s3);
}

// a · a; apart from `dot`, whose arguments may not overlap
inline double squared_norm(const double *a, int64_t n) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        s0 += a[k] * a[k];
        s1 += a[k + 1] * a[k + 1];
        s2 += a[k + 2] * a[k + 2];
        s3 += a[k + 3] * a[k + 3];
    }
    for (; k < n; ++k) s0 += a[k] * a[k];
    return (s0 + s1) + (s2 + s3);
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

    // x_row · v, in four lanes: one chain of additions would wait for each gather in turn
    double row_dot(int64_t row, const double *__restrict v) const {
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        int64_t k = indptr[row];
        const int64_t end = indptr[row + 1];
        for (; k + 4 <= end; k += 4) {
            s0 += data[k] * v[indices[k]];
            s1 += data[k + 1] * v[indices[k + 1]];
            s2 += data[k + 2] * v[indices[k + 2]];
            s3 += data[k + 3] * v[indices[k + 3]];
        }
        for (; k < end; ++k) s0 += data[k] * v[indices[k]];
        return (s0 + s1) + (s2 + s3);
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
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        int64_t k = 0;
        for (; k + 4 <= n_cols; k += 4) {
            s0 += x[k] * v[k];
            s1 += x[k + 1] * v[k + 1];
            s2 += x[k + 2] * v[k + 2];
            s3 += x[k + 3] * v[k + 3];
        }
        for (; k < n_cols; ++k) s0 += x[k] * v[k];
        return (s0 + s1) + (s2 + s3);
    }

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
