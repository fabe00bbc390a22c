// Sums over rows of a narrow (features × width) table and additions to them: the inner loops of the tree solvers.
// Included by tree/kernels.hpp once per instruction set, so there is no #pragma once.
//
// A width is the size of a group of siblings: any number, usually small. Rows are read and written by whole vectors,
// beyond their end if necessary, where sums are dropped and additions are zero. Tables have room for that.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// 64-byte vectors would mostly read beyond the groups of siblings.
constexpr int STRIP_BYTES = WIDEMARGIN_ISA_WIDTH >= 8 ? 32 : 16;

template <typename T, int WIDTH>
struct StripOf {
    typedef T V __attribute__((vector_size(sizeof(T) * WIDTH)));
};
template <typename T, int WIDTH>
using Strip = typename StripOf<T, WIDTH>::V;

// The strip at p, read in type T and converted to S
template <typename S, int WIDTH, typename T>
inline __attribute__((always_inline)) Strip<S, WIDTH> load_strip(const T *p) {
    Strip<T, WIDTH> values;
    __builtin_memcpy(&values, p, sizeof values);
    return __builtin_convertvector(values, Strip<S, WIDTH>);
}

// Sums of N strips, plus half a strip if HALF.
template <int N, bool HALF, typename S>
struct StripSums {
    static constexpr int WIDTH = STRIP_BYTES / sizeof(S), NUMBERS = N * WIDTH + (HALF ? WIDTH / 2 : 0);
    Strip<S, WIDTH> strips[N > 0 ? N : 1]{};
    Strip<S, WIDTH / 2> half{};

    template <typename T>
    inline __attribute__((always_inline)) void add(const T *row, S x) {
        for (int s = 0; s < N; ++s) strips[s] += x * load_strip<S, WIDTH>(row + s * WIDTH);
        if constexpr (HALF) half += x * load_strip<S, WIDTH / 2>(row + N * WIDTH);
    }
    inline __attribute__((always_inline)) void add(const StripSums &other) {
        for (int s = 0; s < N; ++s) strips[s] += other.strips[s];
        half += other.half;
    }
    inline __attribute__((always_inline)) void read(S *out, int32_t left) const {
        S numbers[NUMBERS];
        __builtin_memcpy(numbers, strips, N * sizeof strips[0]);
        if constexpr (HALF) __builtin_memcpy(numbers + N * WIDTH, &half, sizeof half);
        for (int32_t j = 0; j < NUMBERS && j < left; ++j) out[j] = numbers[j];
    }
};

// out_j = Σ_k values_k table[places_k, j] for all j of the strips, at most `left`; two sums so that additions do not
// wait for each other
template <int N, bool HALF, typename S, typename T, typename V>
void sum_strips(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out,
                int32_t left) {
    StripSums<N, HALF, S> even, odd;
    int64_t k = 0;
    for (; k + 2 <= n; k += 2) {
        even.add(table + int64_t(places[k]) * width, S(values[k]));
        odd.add(table + int64_t(places[k + 1]) * width, S(values[k + 1]));
    }
    if (k < n) even.add(table + int64_t(places[k]) * width, S(values[k]));
    even.add(odd);
    even.read(out, left);
}

// out_j = Σ_k values_k table[places_k, j]
template <typename S, typename T, typename V>
void sum_rows(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out) {
    constexpr int32_t HALF = STRIP_BYTES / sizeof(S) / 2;
    for (int32_t first = 0; first < width; first += 6 * HALF) {
        const int32_t left = width - first;
        const T *part = table + first;
        S *to = out + first;
        switch ((left + HALF - 1) / HALF) {
            case 1:
                return sum_strips<0, true>(part, width, places, values, n, to, left);
            case 2:
                return sum_strips<1, false>(part, width, places, values, n, to, left);
            case 3:
                return sum_strips<1, true>(part, width, places, values, n, to, left);
            case 4:
                return sum_strips<2, false>(part, width, places, values, n, to, left);
            case 5:
                return sum_strips<2, true>(part, width, places, values, n, to, left);
            default:
                sum_strips<3, false>(part, width, places, values, n, to, left);
        }
    }
}

// table[places_k, at_s + j] += values_k changes[at_s + j] for N half strips
template <int N, typename T, typename V>
void add_strips(T *table, int32_t width, const int32_t *places, const V *values, int64_t n, const T *changes,
                const int32_t *at) {
    constexpr int WIDTH = STRIP_BYTES / sizeof(T) / 2;
    Strip<T, WIDTH> change[N];
    for (int s = 0; s < N; ++s) change[s] = load_strip<T, WIDTH>(changes + at[s]);
    for (int64_t k = 0; k < n; ++k) {
        T *row = table + int64_t(places[k]) * width;
        const T x = T(values[k]);
        for (int s = 0; s < N; ++s) {
            const Strip<T, WIDTH> sum = load_strip<T, WIDTH>(row + at[s]) + x * change[s];
            __builtin_memcpy(row + at[s], &sum, sizeof sum);
        }
    }
}

// table[places_k, j] += values_k changes_j, skipping half strips without a change; `changes` ends with zeros
template <typename T, typename V>
void add_rows(T *table, int32_t width, const int32_t *places, const V *values, int64_t n, const T *changes) {
    constexpr int WIDTH = STRIP_BYTES / sizeof(T) / 2;
    int32_t at[3];
    int found = 0;
    for (int32_t first = 0; first < width; first += WIDTH) {
        bool changes_here = false;
        for (int j = 0; j < WIDTH; ++j) changes_here |= changes[first + j] != T(0);
        if (changes_here) at[found++] = first;
        if (found == 3) add_strips<3>(table, width, places, values, n, changes, at), found = 0;
    }
    if (found == 1) add_strips<1>(table, width, places, values, n, changes, at);
    if (found == 2) add_strips<2>(table, width, places, values, n, changes, at);
}

template <typename T>
const TreeKernels<T> &tree_kernels() {
    static const TreeKernels<T> kernels{&sum_rows<T, T, T>, &sum_rows<double, T, float>, &sum_rows<double, T, double>,
                                        &add_rows<T, T>,    &add_rows<double, float>,    &add_rows<double, double>};
    return kernels;
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
