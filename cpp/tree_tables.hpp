// Sums over rows of a narrow (features × width) table, and additions to them: the inner loops of the tree solvers.
#pragma once

#include <cstdint>

namespace widemargin {

// Widths up to this have a loop of their own with the sums in registers; groups of siblings are mostly narrow.
constexpr int NARROW = 8;

template <int WIDTH, typename S, typename T, typename V>
void sum_rows_narrow(const T *table, const int32_t *places, const V *values, int64_t n, S *out) {
    S sums[WIDTH] = {};
    for (int64_t k = 0; k < n; ++k) {
        const T *row = table + int64_t(places[k]) * WIDTH;
        const S x = S(values[k]);
        for (int j = 0; j < WIDTH; ++j) sums[j] += x * S(row[j]);
    }
    for (int j = 0; j < WIDTH; ++j) out[j] = sums[j];
}

template <typename S, typename T, typename V>
void sum_rows_wide(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out) {
    for (int32_t j = 0; j < width; ++j) out[j] = S(0);
    for (int64_t k = 0; k < n; ++k) {
        const T *__restrict row = table + int64_t(places[k]) * width;
        const S x = S(values[k]);
        S *__restrict to = out;
        for (int32_t j = 0; j < width; ++j) to[j] += x * S(row[j]);
    }
}

// out_j = Σ_k values_k table[places_k, j]
template <typename S, typename T, typename V>
void sum_rows(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out) {
    switch (width) {
        case 1:
            return sum_rows_narrow<1>(table, places, values, n, out);
        case 2:
            return sum_rows_narrow<2>(table, places, values, n, out);
        case 3:
            return sum_rows_narrow<3>(table, places, values, n, out);
        case 4:
            return sum_rows_narrow<4>(table, places, values, n, out);
        case 5:
            return sum_rows_narrow<5>(table, places, values, n, out);
        case 6:
            return sum_rows_narrow<6>(table, places, values, n, out);
        case 7:
            return sum_rows_narrow<7>(table, places, values, n, out);
        case NARROW:
            return sum_rows_narrow<NARROW>(table, places, values, n, out);
        default:
            return sum_rows_wide(table, width, places, values, n, out);
    }
}

// table[places_k, j] += values_k change_j for the listed columns j; `columns` relative to `first`, as are the changes
template <typename T, typename V>
void add_to_rows(T *table, int32_t width, const int32_t *places, const V *values, int64_t n, const int32_t *columns,
                 int32_t n_columns, const double *changes) {
    for (int64_t k = 0; k < n; ++k) {
        T *row = table + int64_t(places[k]) * width;
        const double x = double(values[k]);
        for (int32_t e = 0; e < n_columns; ++e) row[columns[e]] += T(x * changes[e]);
    }
}

}  // namespace widemargin
