// Sums over rows of a narrow (features × width) table, and additions to them: the inner loops of the tree solvers.
//
// Widths are those of groups of siblings, mostly small and of any size: rows are read and written STRIP columns at a
// time, beyond their end if need be, where the sums are dropped and the additions are zero. Tables have room for that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace widemargin {

constexpr int STRIP = 8;

template <typename T>
struct StripOf;
template <>
struct StripOf<float> {
    typedef float V __attribute__((vector_size(4 * STRIP)));
};
template <>
struct StripOf<double> {
    typedef double V __attribute__((vector_size(8 * STRIP)));
};

// sums += x · the strip at p, read in type T and added in type S
template <typename S, typename T>
inline void add_strip(const T *p, S x, typename StripOf<S>::V &sums) {
    typename StripOf<T>::V values;
    std::memcpy(&values, p, sizeof values);
    sums += x * __builtin_convertvector(values, typename StripOf<S>::V);
}

// out_j = Σ_k values_k table[places_k, j]; two sums, so that one addition need not wait for the other
template <typename S, typename T, typename V>
void sum_rows(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out) {
    for (int32_t first = 0; first < width; first += STRIP) {
        typename StripOf<S>::V even{}, odd{};
        const T *strip = table + first;
        int64_t k = 0;
        for (; k + 2 <= n; k += 2) {
            add_strip<S, T>(strip + int64_t(places[k]) * width, S(values[k]), even);
            add_strip<S, T>(strip + int64_t(places[k + 1]) * width, S(values[k + 1]), odd);
        }
        if (k < n) add_strip<S, T>(strip + int64_t(places[k]) * width, S(values[k]), even);
        even += odd;
        std::memcpy(out + first, &even, sizeof(S) * std::min(STRIP, width - first));
    }
}

// table[places_k, first + j] += values_k changes_j, for one strip; changes beyond the width must be 0
template <typename T, typename V>
void add_to_strip(T *table, int32_t width, int32_t first, const int32_t *places, const V *values, int64_t n,
                  const T *changes) {
    typename StripOf<T>::V change, sum;
    std::memcpy(&change, changes, sizeof change);
    for (int64_t k = 0; k < n; ++k) {
        T *p = table + int64_t(places[k]) * width + first;
        std::memcpy(&sum, p, sizeof sum);
        sum += T(values[k]) * change;
        std::memcpy(p, &sum, sizeof sum);
    }
}

// table[places_k, column] += values_k change
template <typename T, typename V>
void add_to_column(T *table, int32_t width, int32_t column, const int32_t *places, const V *values, int64_t n,
                   double change) {
    for (int64_t k = 0; k < n; ++k) table[int64_t(places[k]) * width + column] += T(double(values[k]) * change);
}

}  // namespace widemargin
