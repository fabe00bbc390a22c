// Dense vector helpers. Sums run in four lanes of fixed order: faster than one chain of additions, and the same on
// every machine and for every number of threads.
#pragma once

#include <cmath>
#include <cstdint>

namespace widemargin {

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

}  // namespace widemargin
