// Vector kernels of the fast one-vs-all solver. Included by one_vs_all/kernels.hpp once per instruction set, so there
// is no #pragma once. Sums over many rows are flushed from float32 to double every FLUSH_ROWS rows. The order of
// operations in a lane or a sum does not depend on its neighbours.

#include "simd/isa_floats.hpp"

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr int PARTS = LANES / WIDTH;  // vectors in a line of a table
constexpr int64_t FLUSH_ROWS = 512;

// The entries themselves are prefetched further ahead: otherwise the prefetches of lines wait for the columns (a fifth
// of the time of both passes). Medians of four alternating fits on a busy machine: 5 % less time on bibtex and
// yso-finna-en, 8 % on debian-tags; seven later turns did not confirm the latter. No other distance was tried.
constexpr int64_t FAR_ENTRIES = 4 * PREFETCH_ENTRIES;

// While a row is read in groups of entries, each group prefetches the line of one entry of a later row, from its last
// entry backwards: columns ascend by rareness, and the lines of frequent ones are in the cache anyway. A prefetch for
// every entry took a quarter of a pass whose table is in the cache (AVX-512). In a loop of their own, before the row,
// the prefetches of every third entry cost three quarters of that, probably because its end is mispredicted. Passes
// alone, with one prefetch per four entries: dots 18 % faster on bibtex, 14 % on rcv1v2-subsets and 8 % on debian-tags,
// gradients 26, 25 and 20 %; with two, 12 and 24 % on bibtex. Certificates take 4 to 11 % longer that way. Rows in
// order of their rarest column alone, not sorted by length first, find more lines in the cache (50 instead of 36 % in a
// simulated L1 on debian-tags), but dots take a fifth longer.
constexpr int64_t LINES_AHEAD = 96;  // entries; with 48, gradients take 1 to 6 % longer, and dots as long

// How many rows ahead the lines of a row are prefetched: none, but its own, if rows are long. A division for each row
// would be slow.
WIDEMARGIN_INLINE int64_t rows_ahead(const int64_t *start, int64_t i) {
    return LINES_AHEAD / (start[i + 1] - start[i] + 1);
}
// The line of the entry before `end`.
template <typename T>
WIDEMARGIN_INLINE const T *line_before(const RowEntry *end, const T *table, int lanes = LANES) {
    return table + static_cast<size_t>(end[-1].col) * lanes;
}

// line += x table[col] for one entry
WIDEMARGIN_INLINE void add_entry(const RowEntry *e, const float *table, V *line) {
    const float *__restrict t = table + static_cast<size_t>(e->col) * LANES;
    const V x = splat(e->val);
    for (int part = 0; part < PARTS; ++part) line[part] += x * load(t + part * WIDTH);
}

// line = Σ_k val_k table[col_k], for one row; several chains of additions, because each addition waits for the previous
// one. Without prefetches, a pass alone is faster than with one per entry (AVX-512: 0.7 instead of 0.85 ns per entry on
// debian-tags), but a fit takes 5 to 10 % longer (pypi-topics, bibtex): the table has left the cache when its turn
// comes again.
constexpr int CHAINS = PARTS <= 2 ? 4 : 2;
WIDEMARGIN_INLINE void row_line(const RowEntry *e, const RowEntry *end, const RowEntry *later, const float *table,
                                V *line) {
    V chains[CHAINS][PARTS] = {};
    for (; end - e >= CHAINS; e += CHAINS) {
        __builtin_prefetch(e + FAR_ENTRIES);
        __builtin_prefetch(line_before(later--, table));
#pragma GCC unroll 4
        for (int chain = 0; chain < CHAINS; ++chain) add_entry(e + chain, table, chains[chain]);
    }
    for (; e != end; ++e) add_entry(e, table, chains[0]);
    for (int part = 0; part < PARTS; ++part) {
        line[part] = chains[0][part];
        for (int chain = 1; chain < CHAINS; ++chain) line[part] += chains[chain][part];
    }
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin

// clang-format off: each needs what comes before it
#include "one_vs_all/isa_batch.hpp"
#include "one_vs_all/isa_certificate.hpp"
#include "one_vs_all/isa_scan.hpp"
#include "one_vs_all/isa_logistic.hpp"
// clang-format on

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

static void own_search_sums(const SearchRows &rows, float bias, const float *theta, double *sums) {
    std::fill_n(sums, N_SEARCH_SUMS, 0.0);
    const V b = splat(bias), t0 = splat(theta[0]), t1 = splat(theta[1]), t2 = splat(theta[2]), t3 = splat(theta[3]);
    for (int64_t block = 0; block < rows.n; block += FLUSH_ROWS) {
        V acc[N_SEARCH_SUMS] = {};
        const int64_t stop = std::min(rows.n, block + FLUSH_ROWS);
        for (int64_t i = block; i < stop; i += WIDTH) {
            const int64_t at = i / LANES * rows.stride + i % LANES;
            const V s = load(rows.s + at), z = load(rows.sz + at), p = load(rows.sp + at), w = s - b;
            const V signed_cost = load(rows.signed_cost + at), cost = magnitude(signed_cost);
            const V y = copy_sign(signed_cost);
            const V m = 1.0f - y * (s + t0 * z + t1 * p + t2 * w + t3);
            const V k = select(m > 0.0f, cost);
            const V r = k * m, ry = r * y, kz = k * z, kp = k * p, kw = k * w;
            acc[0] += ry * z, acc[1] += ry * p, acc[2] += ry * w, acc[3] += ry;
            acc[4] += kz * z, acc[5] += kz * p, acc[6] += kz * w, acc[7] += kz;
            acc[8] += kp * p, acc[9] += kp * w, acc[10] += kp;
            acc[11] += kw * w, acc[12] += kw, acc[13] += k, acc[14] += r * m;
        }
        for (int j = 0; j < N_SEARCH_SUMS; ++j) sums[j] += total(acc[j]);
    }
}

// Σ k v_j v_k over a block, for directions j in [FIRST, LAST) and k ≥ j; v has all directions of a row.
template <int FIRST, int LAST, class Row>
WIDEMARGIN_INLINE void add_hessian(int64_t begin, int64_t end, Row row, double *sums) {
    constexpr int COUNT = (LAST - FIRST) * MAX_DIRECTIONS - (LAST * (LAST - 1) - FIRST * (FIRST - 1)) / 2;
    constexpr int BEFORE = FIRST * MAX_DIRECTIONS - FIRST * (FIRST - 1) / 2;
    V acc[COUNT] = {};
    for (int64_t i = begin; i < end; i += WIDTH) {
        V v[MAX_DIRECTIONS];
        const V k = row(i, v);
        int at = 0;
#pragma GCC unroll 16
        for (int a = FIRST; a < LAST; ++a) {
            const V kv = k * v[a];
#pragma GCC unroll 16
            for (int b = a; b < MAX_DIRECTIONS; ++b) acc[at++] += kv * v[b];
        }
    }
    for (int j = 0; j < COUNT; ++j) sums[MAX_DIRECTIONS + BEFORE + j] += total(acc[j]);
}

// The same with the shared directions. The sums do not fit into the registers, so they are taken in several sweeps over
// a block in the cache.
static void all_search_sums(const SearchRows &rows, float bias, const float *theta, double *sums) {
    std::fill_n(sums, MAX_SEARCH_SUMS, 0.0);
    alignas(LINE_BYTES) float curvature[FLUSH_ROWS];
    const V b = splat(bias);
    for (int64_t block = 0; block < rows.n; block += FLUSH_ROWS) {
        const int64_t stop = std::min(rows.n, block + FLUSH_ROWS);
        auto directions = [&](int64_t i, V *v) {
            const int64_t at = i / LANES * rows.stride + i % LANES;
            const V s = load(rows.s + at);
            v[0] = load(rows.sz + at), v[1] = load(rows.sp + at), v[2] = s - b, v[3] = splat(1.0f);
            for (int j = 0; j < N_SHARED; ++j) v[N_DIRECTIONS + j] = load(rows.shared + at + j * LANES);
            return s;
        };
        V gradient[MAX_DIRECTIONS] = {}, loss{};
        for (int64_t i = block; i < stop; i += WIDTH) {
            V v[MAX_DIRECTIONS];
            V f = directions(i, v);
            for (int j = 0; j < MAX_DIRECTIONS; ++j) f += theta[j] * v[j];
            const V signed_cost = load(rows.signed_cost + i / LANES * rows.stride + i % LANES);
            const V y = copy_sign(signed_cost), m = 1.0f - y * f, k = select(m > 0.0f, magnitude(signed_cost));
            const V r = k * m, ry = r * y;
            store(curvature + (i - block), k);
            for (int j = 0; j < MAX_DIRECTIONS; ++j) gradient[j] += ry * v[j];
            loss += r * m;
        }
        for (int j = 0; j < MAX_DIRECTIONS; ++j) sums[j] += total(gradient[j]);
        sums[MAX_SEARCH_SUMS - 1] += total(loss);
        if (!rows.with_hessian) continue;
        auto row = [&](int64_t i, V *v) {
            directions(i, v);
            return load(curvature + (i - block));
        };
        add_hessian<0, 2>(block, stop, row, sums);
        add_hessian<2, MAX_DIRECTIONS>(block, stop, row, sums);
    }
}

static void search_sums(const SearchRows &rows, float bias, const float *theta, double *sums) {
    (rows.shared == nullptr ? own_search_sums : all_search_sums)(rows, bias, theta, sums);
}

static void step_rows(int64_t n, float bias, const float *theta, const float *sz, float *sp, float *s) {
    const V b = splat(bias), t0 = splat(theta[0]), t1 = splat(theta[1]), t2 = splat(theta[2]), t3 = splat(theta[3]);
    for (int64_t i = 0; i < n; i += WIDTH) {
        const V old = load(s + i), step = t0 * load(sz + i) + t1 * load(sp + i) + t2 * (old - b);
        store(sp + i, step);
        store(s + i, old + (step + t3));
    }
}

static void step_features(int64_t n, const float *theta, float *z, float *p, float *w, double *products) {
    const V t0 = splat(theta[0]), t1 = splat(theta[1]), t2 = splat(theta[2]);
    std::fill_n(products, 3, 0.0);
    for (int64_t block = 0; block < n; block += FLUSH_ROWS) {
        V pp{}, pw{}, ww{};
        const int64_t stop = std::min(n, block + FLUSH_ROWS);
        for (int64_t k = block; k < stop; k += WIDTH) {
            const V old = load(w + k), step = t0 * load(z + k) + t1 * load(p + k) + t2 * old, now = old + step;
            store(p + k, step);
            store(w + k, now);
            store(z + k, -now);
            pp += step * step, pw += step * now, ww += now * now;
        }
        products[0] += total(pp), products[1] += total(pw), products[2] += total(ww);
    }
}

static void direction_products(int64_t n, const float *z, const float *p, const float *w, double *products) {
    std::fill_n(products, 3, 0.0);
    for (int64_t block = 0; block < n; block += FLUSH_ROWS) {
        V zz{}, zp{}, zw{};
        const int64_t stop = std::min(n, block + FLUSH_ROWS);
        for (int64_t k = block; k < stop; k += WIDTH) {
            const V v = load(z + k);
            zz += v * v, zp += v * load(p + k), zw += v * load(w + k);
        }
        products[0] += total(zz), products[1] += total(zp), products[2] += total(zw);
    }
}

WIDEMARGIN_INLINE float rest_of_row(const RowEntry *e, const RowEntry *end, const float *v, float sum) {
    for (; e < end; ++e) sum += e->val * v[e->col];
    return sum;
}

// Four rows at a time, up to the length of the shortest: one loop, four chains of additions. Rows are sorted by length,
// so the remainder is mostly empty. Every row is summed in the order of its entries. Without the attribute, GCC gathers
// by shuffles here, which takes 1.7 times as long (10 % of the total time on yso-finna-en).
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-vectorize")))
#endif
static void row_dots(int64_t n, const int64_t *start, const RowEntry *entries, const float *v, float *out) {
    constexpr int GROUP = 4;
    int64_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        const RowEntry *row[GROUP];
        for (int j = 0; j < GROUP; ++j) row[j] = entries + start[i + j];
        const int64_t common = start[i + 1] - start[i];
        float sum[GROUP] = {};
        for (int64_t k = 0; k < common; ++k) {
            for (int j = 0; j < GROUP; ++j) sum[j] += row[j][k].val * v[row[j][k].col];
        }
        for (int j = 0; j < GROUP; ++j)
            out[i + j] = rest_of_row(row[j] + common, entries + start[i + j + 1], v, sum[j]);
    }
    for (; i < n; ++i) out[i] = rest_of_row(entries + start[i], entries + start[i + 1], v, 0.0f);
}

typedef double TwoDoubles __attribute__((vector_size(16)));

WIDEMARGIN_INLINE TwoDoubles times_pair(const float *pairs, uint32_t col, double x) {
    const float *pair = pairs + 2 * static_cast<size_t>(col);
#ifdef WIDEMARGIN_X86  // otherwise GCC converts one at a time
    const __m128i both = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(pair));
    return x * reinterpret_cast<TwoDoubles>(_mm_cvtps_pd(reinterpret_cast<__m128>(both)));
#else
    return x * TwoDoubles{pair[0], pair[1]};
#endif
}

// Two chains of additions.
template <class Value>
WIDEMARGIN_INLINE void pair_sums(const RowView &row, Value value, const float *pairs, double *out) {
    TwoDoubles even{}, odd{};
    uint32_t k = 0;
    for (; k + 2 <= row.length; k += 2) {
        even += times_pair(pairs, row.entries[k].col, value(k));
        odd += times_pair(pairs, row.entries[k + 1].col, value(k + 1));
    }
    if (k < row.length) even += times_pair(pairs, row.entries[k].col, value(k));
    const TwoDoubles sum = even + odd;
    out[0] = sum[0], out[1] = sum[1];
}

static void pair_dots(const RowView &row, const double *exact, const float *pairs, double *out) {
    if (exact == nullptr) {
        pair_sums(row, [&](uint32_t k) { return static_cast<double>(row.entries[k].val); }, pairs, out);
    } else {
        pair_sums(row, [&](uint32_t k) { return exact[k]; }, pairs, out);
    }
}

inline const VectorKernels &kernels() {
    static const VectorKernels table{scan,
                                     screen,
                                     search_sums,
                                     step_rows,
                                     step_features,
                                     direction_products,
                                     row_dots,
                                     pair_dots,
                                     {batch_dots<0>, batch_dots<N_SHARED>},
                                     {batch_gradient<SquaredHingeRows, 0>, batch_gradient<SquaredHingeRows, N_SHARED>},
                                     {batch_features<0>, batch_features<N_SHARED>},
                                     set_lanes,
                                     {first_products<1>, first_products<N_SHARED>},
                                     power_step,
                                     gram,
                                     batch_search<LogisticRows>,
                                     batch_gradient<LogisticRows, 0>,
                                     logistic_sums,
                                     logistic_dots,
                                     logistic_certificate,
                                     certificate_columns,
                                     {check_scores<HALVES / 2>, check_scores<HALVES>},
                                     {check_losses<HALVES / 2>, check_losses<HALVES>},
                                     {check_gradient<HALVES / 2>, check_gradient<HALVES>},
                                     {check_columns<HALVES / 2>, check_columns<HALVES>}};
    return table;
}

#undef WIDEMARGIN_INLINE

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
