// Sums over rows of a narrow (features × width) table, and additions to them: the inner loops of the tree solvers, for
// one instruction set; included by tree_isa.hpp, hence no #pragma once.
//
// Widths are those of groups of siblings, mostly small and of any size: rows are read and written a vector at a time,
// beyond their end if need be, where the sums are dropped and the additions are zero. Tables have room for that.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// 64-byte vectors would mostly read beyond the groups of siblings.
constexpr int STRIP_BYTES = WIDEMARGIN_ISA_WIDTH >= 8 ? 32 : 16;

// As many numbers of type T as there are numbers of type S in a vector.
template <typename T, typename S>
struct StripOf {
    static constexpr int WIDTH = STRIP_BYTES / sizeof(S);
    typedef T V __attribute__((vector_size(sizeof(T) * (STRIP_BYTES / sizeof(S)))));
};
template <typename S>
using Strip = typename StripOf<S, S>::V;

// The strip at p, read in type T and converted to S
template <typename S, typename T>
inline __attribute__((always_inline)) Strip<S> load_strip(const T *p) {
    typename StripOf<T, S>::V values;
    __builtin_memcpy(&values, p, sizeof values);
    return __builtin_convertvector(values, Strip<S>);
}

// N strips of out_j = Σ_k values_k table[places_k, j], `left` of whose numbers are there. Narrow rows have two sums, so
// that one addition need not wait for the other.
template <int N, typename S, typename T, typename V>
void sum_strips(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out,
                int32_t left) {
    constexpr int WIDTH = StripOf<S, S>::WIDTH, SUMS = N < 3 ? 2 * N : N, ROWS = SUMS / N;
    Strip<S> sums[SUMS]{};
    int64_t k = 0;
    for (; k + ROWS <= n; k += ROWS) {
        for (int r = 0; r < ROWS; ++r) {
            const T *row = table + int64_t(places[k + r]) * width;
            const S x = S(values[k + r]);
            for (int s = 0; s < N; ++s) sums[r * N + s] += x * load_strip<S>(row + s * WIDTH);
        }
    }
    for (; k < n; ++k) {
        const T *row = table + int64_t(places[k]) * width;
        for (int s = 0; s < N; ++s) sums[s] += S(values[k]) * load_strip<S>(row + s * WIDTH);
    }
    for (int s = 0; ROWS > 1 && s < N; ++s) sums[s] += sums[SUMS - N + s];
    __builtin_memcpy(out, sums, sizeof(S) * size_t(left < N * WIDTH ? left : N * WIDTH));
}

// out_j = Σ_k values_k table[places_k, j]
template <typename S, typename T, typename V>
void sum_rows(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out) {
    constexpr int WIDTH = StripOf<S, S>::WIDTH;
    for (int32_t first = 0; first < width;) {
        const int32_t left = width - first;
        const T *part = table + first;
        if (left <= WIDTH) return sum_strips<1>(part, width, places, values, n, out + first, left);
        if (left <= 2 * WIDTH) return sum_strips<2>(part, width, places, values, n, out + first, left);
        if (left <= 3 * WIDTH) return sum_strips<3>(part, width, places, values, n, out + first, left);
        sum_strips<4>(part, width, places, values, n, out + first, left);
        first += 4 * WIDTH;
    }
}

// table[places_k, at_s + j] += values_k changes[at_s + j] for N strips
template <int N, typename T, typename V>
void add_strips(T *table, int32_t width, const int32_t *places, const V *values, int64_t n, const T *changes,
                const int32_t *at) {
    Strip<T> change[N];
    for (int s = 0; s < N; ++s) change[s] = load_strip<T>(changes + at[s]);
    for (int64_t k = 0; k < n; ++k) {
        T *row = table + int64_t(places[k]) * width;
        const T x = T(values[k]);
        for (int s = 0; s < N; ++s) {
            const Strip<T> sum = load_strip<T>(row + at[s]) + x * change[s];
            __builtin_memcpy(row + at[s], &sum, sizeof sum);
        }
    }
}

// table[places_k, j] += values_k changes_j, strips without a change left alone; changes (width + room) end in zeros
template <typename T, typename V>
void add_rows(T *table, int32_t width, const int32_t *places, const V *values, int64_t n, const T *changes) {
    constexpr int WIDTH = StripOf<T, T>::WIDTH;
    int32_t at[2];
    int found = 0;
    for (int32_t first = 0; first < width; first += WIDTH) {
        bool changes_here = false;
        for (int j = 0; j < WIDTH; ++j) changes_here |= changes[first + j] != T(0);
        if (changes_here) at[found++] = first;
        if (found == 2) add_strips<2>(table, width, places, values, n, changes, at), found = 0;
    }
    if (found == 1) add_strips<1>(table, width, places, values, n, changes, at);
}

template <typename T>
const TreeKernels<T> &tree_kernels() {
    static const TreeKernels<T> kernels{
        &sum_rows<T, T, T>,      &sum_rows<double, T, float>, &sum_rows<double, T, double>,
        &add_rows<T, T>,         &add_rows<double, float>,    &add_rows<double, double>,
    };
    return kernels;
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
