// Vectors of WIDTH floats and what is done with them; included by vector_kernels.hpp once for every instruction set,
// hence no #pragma once. LANES / WIDTH vectors make a line of a table.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr int WIDTH = WIDEMARGIN_ISA_WIDTH;
constexpr int PARTS = LANES / WIDTH;
constexpr int64_t FLUSH_ROWS = 512;
typedef float V __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef int32_t M __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));

#define WIDEMARGIN_INLINE static inline __attribute__((always_inline))

WIDEMARGIN_INLINE V load(const float *p) { return *reinterpret_cast<const V *>(p); }
WIDEMARGIN_INLINE void store(float *p, V v) { *reinterpret_cast<V *>(p) = v; }
WIDEMARGIN_INLINE V splat(float x) { return x - V{}; }  // x + 0 would be computed, as −0 + 0 = 0
WIDEMARGIN_INLINE V select(M m, V v) { return reinterpret_cast<V>(m & reinterpret_cast<M>(v)); }
WIDEMARGIN_INLINE V magnitude(V v) { return reinterpret_cast<V>(reinterpret_cast<M>(v) & 0x7fffffff); }
// ±1 with the sign of v
WIDEMARGIN_INLINE V copy_sign(V v) {
    return reinterpret_cast<V>((reinterpret_cast<M>(v) & static_cast<int32_t>(0x80000000)) |
                               reinterpret_cast<M>(splat(1.0f)));
}
WIDEMARGIN_INLINE double total(V v) {
    double sum = 0;
    for (int k = 0; k < WIDTH; ++k) sum += v[k];
    return sum;
}

// bit k set where m[k] is negative, as where a comparison holds
WIDEMARGIN_INLINE uint32_t sign_bits(M m) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
    return _mm512_movepi32_mask(reinterpret_cast<__m512i>(m));
#elif defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 8
    return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(m)));
#elif defined(WIDEMARGIN_X86)
    return static_cast<uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(m)));
#else
    uint32_t bits = 0;
    for (int k = 0; k < WIDTH; ++k) bits |= static_cast<uint32_t>(m[k] < 0) << k;
    return bits;
#endif
}
// bit k set where a[k] > b[k]
WIDEMARGIN_INLINE uint32_t greater_bits(V a, V b) { return sign_bits(a > b); }

// all ones in the lanes of this part whose bit is set
WIDEMARGIN_INLINE M lane_mask(uint32_t bits, int part) {
    M lane;
    for (int k = 0; k < WIDTH; ++k) lane[k] = 1 << k;
    return (lane & (M{} + static_cast<int32_t>(bits >> (part * WIDTH)))) != 0;
}
WIDEMARGIN_INLINE V blend(M m, V yes, V no) {
    return reinterpret_cast<V>((m & reinterpret_cast<M>(yes)) | (~m & reinterpret_cast<M>(no)));
}
// ±1
WIDEMARGIN_INLINE V sign_of(M positive) { return blend(positive, splat(1.0f), splat(-1.0f)); }

// line += x table[col] for one entry
WIDEMARGIN_INLINE void add_entry(const RowEntry *e, const float *table, V *line) {
    __builtin_prefetch(table + static_cast<size_t>(e[PREFETCH_ENTRIES].col) * LANES);
    const float *__restrict t = table + static_cast<size_t>(e->col) * LANES;
    const V x = splat(e->val);
    for (int part = 0; part < PARTS; ++part) line[part] += x * load(t + part * WIDTH);
}

// line = Σ_k val_k table[col_k], for one row; two chains of additions, as one would be waited for.
WIDEMARGIN_INLINE void row_line(const RowEntry *e, const RowEntry *end, const float *table, V *line) {
    V odd[PARTS] = {};
    for (int part = 0; part < PARTS; ++part) line[part] = V{};
    for (; end - e >= 2; e += 2) {
        add_entry(e, table, line);
        add_entry(e + 1, table, odd);
    }
    if (e != end) add_entry(e, table, line);
    for (int part = 0; part < PARTS; ++part) line[part] += odd[part];
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
