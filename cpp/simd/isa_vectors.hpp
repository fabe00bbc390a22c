// Vectors of floats or doubles over classes. Included once per instruction set (simd/each_isa.hpp), so there is no
// #pragma once. A "group" is a run of classes that fills one vector.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

#ifndef WIDEMARGIN_INLINE
#define WIDEMARGIN_INLINE static inline __attribute__((always_inline))
#endif

template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
    static constexpr int WIDTH = WIDEMARGIN_ISA_WIDTH;
    typedef float V __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
    typedef int32_t M __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
};
template <>
struct Lanes<double> {
    static constexpr int WIDTH = WIDEMARGIN_ISA_WIDTH / 2;
    typedef double V __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
    typedef int64_t M __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
};
template <typename T>
using Vec = typename Lanes<T>::V;
template <typename T>
using Mask = typename Lanes<T>::M;

template <typename T>
WIDEMARGIN_INLINE Vec<T> load(const T *p) {
    return *reinterpret_cast<const Vec<T> *>(p);
}
template <typename T>
WIDEMARGIN_INLINE void store(T *p, Vec<T> v) {
    *reinterpret_cast<Vec<T> *>(p) = v;
}
template <typename T>
WIDEMARGIN_INLINE Vec<T> splat(T x) {
    return x - Vec<T>{};
}
template <typename T>
WIDEMARGIN_INLINE Vec<T> select(Mask<T> m, Vec<T> yes, Vec<T> no) {
    return reinterpret_cast<Vec<T>>((m & reinterpret_cast<Mask<T>>(yes)) | (~m & reinterpret_cast<Mask<T>>(no)));
}
template <typename T>
WIDEMARGIN_INLINE Vec<T> where(Mask<T> m, Vec<T> v) {
    return reinterpret_cast<Vec<T>>(m & reinterpret_cast<Mask<T>>(v));
}
template <typename T>
WIDEMARGIN_INLINE Vec<T> larger(Vec<T> a, Vec<T> b) {
    return a > b ? a : b;
}
template <typename T>
WIDEMARGIN_INLINE Vec<T> smaller(Vec<T> a, Vec<T> b) {
    return a < b ? a : b;
}
template <typename T>
WIDEMARGIN_INLINE Vec<T> magnitude(Vec<T> v) {
    return larger<T>(v, -v);
}

// Number of lanes that are set.
WIDEMARGIN_INLINE int count_lanes(Mask<float> m) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
    return __builtin_popcount(_mm512_movepi32_mask(reinterpret_cast<__m512i>(m)));
#elif defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 8
    return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(reinterpret_cast<__m256>(m))));
#else
    int count = 0;
    for (int k = 0; k < Lanes<float>::WIDTH; ++k) count -= static_cast<int>(m[k]);
    return count;
#endif
}
WIDEMARGIN_INLINE int count_lanes(Mask<double> m) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
    return __builtin_popcount(_mm512_movepi64_mask(reinterpret_cast<__m512i>(m)));
#elif defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 8
    return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_pd(reinterpret_cast<__m256d>(m))));
#else
    int count = 0;
    for (int k = 0; k < Lanes<double>::WIDTH; ++k) count -= static_cast<int>(m[k]);
    return count;
#endif
}

// Sum and maximum over the lanes, by halves: eight lanes take three dependent steps instead of eight.
template <typename T, typename F>
WIDEMARGIN_INLINE T fold(Vec<T> v, F combine) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    T lanes[WIDTH];
    __builtin_memcpy(lanes, &v, sizeof v);
    for (int half = WIDTH / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; ++k) lanes[k] = combine(lanes[k], lanes[k + half]);
    }
    return lanes[0];
}
// In registers on x86: GCC stores the lanes of AVX-512 and adds them one by one, which took a tenth of a fit of the
// multiclass SVM on USPS. The order of the additions is that of `fold`.
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH >= 8
WIDEMARGIN_INLINE float sum_halves(__m256 a) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
WIDEMARGIN_INLINE float max_halves(__m256 a) {
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
WIDEMARGIN_INLINE double sum_halves(__m256d a) {
    const __m128d h = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}
WIDEMARGIN_INLINE double max_halves(__m256d a) {
    const __m128d h = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_max_sd(h, _mm_unpackhi_pd(h, h)));
}
#endif
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
WIDEMARGIN_INLINE __m256 upper_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }
WIDEMARGIN_INLINE __m256d upper_half(__m512d v) { return _mm512_extractf64x4_pd(v, 1); }
WIDEMARGIN_INLINE float sum_lanes(Vec<float> v) {
    const __m512 a = reinterpret_cast<__m512>(v);
    return sum_halves(_mm256_add_ps(_mm512_castps512_ps256(a), upper_half(a)));
}
WIDEMARGIN_INLINE float max_lanes(Vec<float> v) {
    const __m512 a = reinterpret_cast<__m512>(v);
    return max_halves(_mm256_max_ps(_mm512_castps512_ps256(a), upper_half(a)));
}
WIDEMARGIN_INLINE double sum_lanes(Vec<double> v) {
    const __m512d a = reinterpret_cast<__m512d>(v);
    return sum_halves(_mm256_add_pd(_mm512_castpd512_pd256(a), upper_half(a)));
}
WIDEMARGIN_INLINE double max_lanes(Vec<double> v) {
    const __m512d a = reinterpret_cast<__m512d>(v);
    return max_halves(_mm256_max_pd(_mm512_castpd512_pd256(a), upper_half(a)));
}
#elif defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 8
WIDEMARGIN_INLINE float sum_lanes(Vec<float> v) { return sum_halves(reinterpret_cast<__m256>(v)); }
WIDEMARGIN_INLINE float max_lanes(Vec<float> v) { return max_halves(reinterpret_cast<__m256>(v)); }
WIDEMARGIN_INLINE double sum_lanes(Vec<double> v) { return sum_halves(reinterpret_cast<__m256d>(v)); }
WIDEMARGIN_INLINE double max_lanes(Vec<double> v) { return max_halves(reinterpret_cast<__m256d>(v)); }
#else
WIDEMARGIN_INLINE float sum_lanes(Vec<float> v) {
    return fold<float>(v, [](float a, float b) { return a + b; });
}
WIDEMARGIN_INLINE float max_lanes(Vec<float> v) {
    return fold<float>(v, [](float a, float b) { return a > b ? a : b; });
}
WIDEMARGIN_INLINE double sum_lanes(Vec<double> v) {
    return fold<double>(v, [](double a, double b) { return a + b; });
}
WIDEMARGIN_INLINE double max_lanes(Vec<double> v) {
    return fold<double>(v, [](double a, double b) { return a > b ? a : b; });
}
#endif

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
