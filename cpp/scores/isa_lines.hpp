// The sums over lines of scores/lines.hpp. Included once per instruction set (simd/each_isa.hpp), so there is no
// #pragma once.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr int LINE_DOUBLES = WIDEMARGIN_ISA_WIDTH / 2;
// Sums in registers, which leave some for the products.
constexpr int LINE_PARTS = WIDEMARGIN_ISA_WIDTH == 16 ? 16 : 8;

// LANES numbers of type T as S; both types fit in a register, and one of them fills it.
template <typename S, typename T, int LANES>
__attribute__((always_inline)) inline typename VectorOf<S, LANES>::type load_as(const T *p) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
    // GCC 12 would convert the halves of a vector of 8 and join them.
    if constexpr (std::is_same_v<S, double> && std::is_same_v<T, float>)
        return reinterpret_cast<typename VectorOf<S, LANES>::type>(_mm512_cvtps_pd(_mm256_loadu_ps(p)));
    if constexpr (std::is_same_v<S, float> && std::is_same_v<T, double>)
        return reinterpret_cast<typename VectorOf<S, LANES>::type>(_mm512_cvtpd_ps(_mm512_loadu_pd(p)));
#endif
    using Stored = typename VectorOf<T, LANES>::type;
    return __builtin_convertvector(*reinterpret_cast<const Stored *>(p), typename VectorOf<S, LANES>::type);
}

// The sums of PARTS vectors of LANES labels, from label `first` on. (Fetching the next part of each line ahead did not
// help: 7.4 ms instead of 7.1 for a single row with 670,000 labels and 19 lines.)
template <typename S, typename T, int LANES, int PARTS>
__attribute__((always_inline)) inline void add_part(const T *const *lines, int64_t first, const S *x, int64_t n,
                                                    S *sums) {
    using Vector = typename VectorOf<S, LANES>::type;
    Vector total[PARTS];
    for (int v = 0; v < PARTS; ++v) total[v] = *reinterpret_cast<const Vector *>(sums + first + v * LANES);
    for (int64_t j = 0; j < n; ++j) {
        const T *line = lines[j] + first;
        for (int v = 0; v < PARTS; ++v) total[v] += x[j] * load_as<S, T, LANES>(line + v * LANES);
    }
    for (int v = 0; v < PARTS; ++v) *reinterpret_cast<Vector *>(sums + first + v * LANES) = total[v];
}

// The last labels, at most PARTS * LANES of them.
template <typename S, typename T, int LANES, int PARTS>
__attribute__((always_inline)) inline void add_last(const T *const *lines, int64_t first, int64_t count, const S *x,
                                                    int64_t n, S *sums) {
    if constexpr (PARTS > 0) {
        if (count - first == PARTS * LANES)
            add_part<S, T, LANES, PARTS>(lines, first, x, n, sums);
        else
            add_last<S, T, LANES, PARTS - 1>(lines, first, count, x, n, sums);
    }
}

// `count` is a multiple of LANES.
template <typename S, typename T, int LANES>
void add_lines(const T *const *lines, const S *x, int64_t n, S *sums, int64_t count) {
    int64_t first = 0;
    for (; first + LINE_PARTS * LANES <= count; first += LINE_PARTS * LANES)
        add_part<S, T, LANES, LINE_PARTS>(lines, first, x, n, sums);
    add_last<S, T, LANES, LINE_PARTS - 1>(lines, first, count, x, n, sums);
}

template <typename T>
LineKernels<T> line_kernels() {
    constexpr int FLOATS = std::min<int>(LINE_STEP, LINE_DOUBLES * static_cast<int>(sizeof(double) / sizeof(T)));
    return {add_lines<double, T, LINE_DOUBLES>, add_lines<float, T, FLOATS>};
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
