// Vector kernels of the fast one-vs-all solver; included by isa.hpp once for every instruction set, hence no
// #pragma once. V holds WIDTH floats; LANES / WIDTH of them make a line. Sums of many rows are flushed from float32 to
// double every FLUSH_ROWS rows. Each lane and each sum is computed in an order that does not depend on its neighbours.

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

// bit k set where a[k] > b[k]
WIDEMARGIN_INLINE uint32_t greater_bits(V a, V b) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_GT_OQ);
#elif defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 8
    return static_cast<uint32_t>(
        _mm256_movemask_ps(_mm256_cmp_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), _CMP_GT_OQ)));
#elif defined(WIDEMARGIN_X86)
    return static_cast<uint32_t>(
        _mm_movemask_ps(_mm_cmpgt_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b))));
#else
    uint32_t bits = 0;
    for (int k = 0; k < WIDTH; ++k) bits |= static_cast<uint32_t>(a[k] > b[k]) << k;
    return bits;
#endif
}

// line = bias + Σ_k val_k table[col_k], for one row
WIDEMARGIN_INLINE void row_line(const RowEntry *e, const RowEntry *end, const float *table, V *line) {
    for (; e != end; ++e) {
        __builtin_prefetch(table + static_cast<size_t>(e[PREFETCH_ENTRIES].col) * LANES);
        const float *__restrict t = table + static_cast<size_t>(e->col) * LANES;
        const V x = splat(e->val);
        for (int part = 0; part < PARTS; ++part) line[part] += x * load(t + part * WIDTH);
    }
}

// Appends row i to a lane's list, and its entries to the lane's copy if there is room. Rows come by ascending length,
// so that after the first that does not fit none does.
WIDEMARGIN_INLINE void emit(ScanArgs &args, int lane, int64_t i, float score) {
    const RowEntry *entries = args.entries + args.start[i];
    const uint32_t length = static_cast<uint32_t>(args.start[i + 1] - args.start[i]), begin = args.copied[lane];
    *args.out[lane]++ = {static_cast<uint32_t>(i), score, args.slack[i], begin};
    if (length > args.room[lane] - begin) return;
    RowEntry *copy = args.copies[lane] + begin;
    for (int ahead = 4; ahead < 6; ++ahead) __builtin_prefetch(copy + ahead * LINE_ENTRIES, 1);
    __builtin_prefetch(args.out[lane] + LINE_ENTRIES, 1);
    for (uint32_t k = 0; k < length; k += COPY_STEP) std::memcpy(copy + k, entries + k, COPY_STEP * sizeof(RowEntry));
    args.copied[lane] = begin + length;
}

// Emits every row to the lanes whose threshold its score, with the lane's allowance of slack, exceeds.
static void scan(ScanArgs &args, int64_t begin, int64_t end) {
    V bias[PARTS], threshold[PARTS], allowance[PARTS];
    for (int part = 0; part < PARTS; ++part) {
        std::memcpy(&bias[part], args.bias + part * WIDTH, sizeof(V));
        std::memcpy(&threshold[part], args.threshold + part * WIDTH, sizeof(V));
        std::memcpy(&allowance[part], args.allowance + part * WIDTH, sizeof(V));
    }
    for (int64_t i = begin; i < end; ++i) {
        V line[PARTS];
        for (int part = 0; part < PARTS; ++part) line[part] = bias[part];
        row_line(args.entries + args.start[i], args.entries + args.start[i + 1], args.table, line);
        const V slack = splat(args.slack[i]);
        uint32_t bits = 0;
        for (int part = 0; part < PARTS; ++part) {
            bits |= greater_bits(line[part] + slack * allowance[part], threshold[part]) << (part * WIDTH);
        }
        if (bits == 0) continue;
        alignas(LINE_BYTES) float scores[LANES];
        for (int part = 0; part < PARTS; ++part) store(scores + part * WIDTH, line[part]);
        for (; bits != 0; bits &= bits - 1) {
            const int lane = __builtin_ctz(bits);
            emit(args, lane, i, scores[lane]);
        }
    }
}

static void search_sums(const SearchRows &rows, float bias, const float *theta, double *sums) {
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

// Four rows at a time, as far as the shortest goes: one loop, four chains of additions. Rows come by ascending length,
// so that the rest is mostly empty. Every row is summed in the order of its entries.
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

static void batch_dots(BatchArgs &args, int64_t begin, int64_t end) {
    V reach[PARTS];
    for (int part = 0; part < PARTS; ++part) reach[part] = -1.0f - load(args.reach + part * WIDTH);
    for (int64_t i = begin; i < end; ++i) {
        V line[PARTS] = {};
        row_line(args.entries + args.start[i], args.entries + args.start[i + 1], args.Z, line);
        float *sz = args.SZ + i * LANES;
        const float *s = args.S + i * LANES, *sp = args.SP + i * LANES;
        uint32_t bits = 0;
        for (int part = 0; part < PARTS; ++part) {
            store(sz + part * WIDTH, line[part]);
            const V margin = sign_of(lane_mask(args.signs[i], part)) * load(s + part * WIDTH);
            bits |= greater_bits(-margin, reach[part]) << (part * WIDTH);
        }
        for (bits &= args.lanes; bits != 0; bits &= bits - 1) {
            const int lane = __builtin_ctz(bits);
            const bool positive = (args.signs[i] >> lane) & 1;
            NearRows &near = args.near[lane];
            float *at = near.blocks + NearRows::at(near.count++);
            at[0] = s[lane];
            at[LANES] = sz[lane];
            at[2 * LANES] = sp[lane];
            at[3 * LANES] = args.cost[i] * (positive ? args.positive_factor[lane] : -args.negative_factor[lane]);
        }
    }
}

// S, SP after the step of row i; a = 2 c y m. Returns the bits of active lanes.
WIDEMARGIN_INLINE uint32_t step_line(const BatchArgs &args, int64_t i, int part, V &a, V &m, V &move) {
    const int at = part * WIDTH;
    float *s = args.S + i * LANES + at, *sp = args.SP + i * LANES + at;
    const V old = load(s), step = load(args.theta[0] + at) * load(args.SZ + i * LANES + at) +
                                  load(args.theta[1] + at) * load(sp) +
                                  load(args.theta[2] + at) * (old - load(args.bias + at));
    const V change = step + load(args.theta[3] + at), now = old + change;
    store(sp, step);
    store(s, now);
    const M positive = lane_mask(args.signs[i], part);
    const V y = sign_of(positive);
    const V factor = blend(positive, load(args.positive_factor + at), load(args.negative_factor + at));
    m = 1.0f - y * now;
    m = select(m > 0.0f, m);
    a = (splat(2 * args.cost[i]) * factor) * (y * m);
    move = blend(change > 0.0f, change, -change);
    return greater_bits(m * factor, V{});
}

static void batch_gradient(BatchArgs &args, int64_t begin, int64_t end) {
    V loss[PARTS] = {}, bias_sum[PARTS] = {}, largest[PARTS];
    for (int part = 0; part < PARTS; ++part) largest[part] = load(args.largest_move + part * WIDTH);
    for (int64_t i = begin; i < end; ++i) {
        V a[PARTS];
        uint32_t bits = 0;
        for (int part = 0; part < PARTS; ++part) {
            V m, move;
            bits |= step_line(args, i, part, a[part], m, move);
            const V am = a[part] * m;
            loss[part] += blend(am > 0.0f, am, -am);
            bias_sum[part] += a[part];
            largest[part] = blend(move > largest[part], move, largest[part]);
        }
        if (bits == 0) continue;
        const RowEntry *last = args.entries + args.start[i + 1];
        for (const RowEntry *e = args.entries + args.start[i]; e != last; ++e) {
            __builtin_prefetch(args.G + static_cast<size_t>(e[PREFETCH_ENTRIES].col) * LANES, 1);
            float *g = args.G + static_cast<size_t>(e->col) * LANES;
            const V x = splat(e->val);
            for (int part = 0; part < PARTS; ++part) store(g + part * WIDTH, load(g + part * WIDTH) + x * a[part]);
        }
    }
    for (int lane = 0; lane < LANES; ++lane) {
        args.loss[lane] += 0.5 * loss[lane / WIDTH][lane % WIDTH];
        args.bias_sum[lane] += bias_sum[lane / WIDTH][lane % WIDTH];
        args.largest_move[lane] = largest[lane / WIDTH][lane % WIDTH];
    }
}

// One part of the lanes over columns [begin, end); sums are added to the six rows of `sums`.
WIDEMARGIN_INLINE void feature_block(const FeatureArgs &args, int part, int64_t begin, int64_t end, V *sums) {
    const int at = part * WIDTH;
    const V t0 = load(args.theta[0] + at), t1 = load(args.theta[1] + at), t2 = load(args.theta[2] + at);
    for (int64_t k = begin; k < end; ++k) {
        float *w = args.W + k * LANES + at, *p = args.P + k * LANES + at;
        float *z = args.Z + k * LANES + at, *g = args.G + k * LANES + at;
        const V old = load(w), step = t0 * load(z) + t1 * load(p) + t2 * old, now = old + step;
        const V direction = load(g) - now;
        store(w, now);
        store(p, step);
        store(z, direction);
        store(g, V{});
        sums[0] += direction * direction, sums[1] += direction * step, sums[2] += direction * now;
        sums[3] += step * step, sums[4] += step * now, sums[5] += now * now;
    }
}

static void batch_features(FeatureArgs &args) {
    double *totals[6] = {args.zz, args.zp, args.zw, args.pp, args.pw, args.ww};
    for (double *row : totals) std::fill_n(row, LANES, 0.0);
    for (int64_t begin = 0; begin < args.n_cols; begin += FLUSH_ROWS) {
        const int64_t end = std::min(args.n_cols, begin + FLUSH_ROWS);
        for (int part = 0; part < PARTS; ++part) {
            V sums[6] = {};
            feature_block(args, part, begin, end, sums);
            for (int j = 0; j < 6; ++j) {
                for (int k = 0; k < WIDTH; ++k) totals[j][part * WIDTH + k] += sums[j][k];
            }
        }
    }
}

inline const VectorKernels &kernels() {
#define WIDEMARGIN_TEXT_OF(name) #name
#define WIDEMARGIN_TEXT(name) WIDEMARGIN_TEXT_OF(name)
    static const VectorKernels table{WIDEMARGIN_TEXT(WIDEMARGIN_ISA_NAME),
                                     scan,
                                     search_sums,
                                     step_rows,
                                     step_features,
                                     direction_products,
                                     row_dots,
                                     batch_dots,
                                     batch_gradient,
                                     batch_features};
#undef WIDEMARGIN_TEXT
#undef WIDEMARGIN_TEXT_OF
    return table;
}

#undef WIDEMARGIN_INLINE

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
