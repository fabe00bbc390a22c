// One iteration of the batched subspace search on (rows or columns) × LANES tables. Included by
// one_vs_all/isa_kernels.hpp once per instruction set, so there is no #pragma once. Twin:
// tests/reference/batch_subspace.py.
//
// Measured alone on debian-tags with AVX2, row dots take 1.2 ns per entry for 16 lanes; the same with Z in float16, and
// without prefetches once Z is in the cache; 1.1 ns with Z in 16-bit integers. On average, half of the entries are in
// rows that are active in some lane. Grouping labels by the similarity of their positives instead of by frequency
// shares no more of them (0.51 instead of 0.50) and fills the lanes less well (195 iterations per batch instead of
// 183).

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// What the kernels need from a loss φ at margins m, for rows of cost c.
struct RowTerms {
    V alpha;      // −c φ'(m)
    V value;      // c φ(m)
    V curvature;  // c φ''(m)
};
struct SquaredHingeRows {
    WIDEMARGIN_INLINE RowTerms at(V m, V cost) {
        const V short_of = 1.0f - m;
        const M active = short_of > 0.0f;
        const V cm = select(active, cost * short_of);
        return {2.0f * cm, cm * short_of, select(active, 2.0f * cost)};
    }
};

// φ(m) = log(1 + e^−m): with e = e^−|m|, φ = log(1 + e) + max(0, −m), −φ' = 1 / (1 + e) where m < 0, else e / (1 + e).
struct LogisticRows {
    WIDEMARGIN_INLINE RowTerms at(V m, V cost) {
        const V e = exp_negative(-magnitude(m)), inverse = 1.0f / (1.0f + e), ce = cost * inverse;
        return {ce * blend(m < 0.0f, splat(1.0f), e), cost * (log1p_unit(e) - select(m < 0.0f, m)), ce * (e * inverse)};
    }
};

// The near rows that the dot kernel finds in a few rows, which are still in the L1 cache when they are copied.
constexpr int64_t NEAR_ROWS = 64, ROWS_IN_WORD = 64 / LANES;
struct NearBits {
    float factor[2][LANES];  // for the costs of negatives and positives
    uint64_t words[NEAR_ROWS / ROWS_IN_WORD];
};

WIDEMARGIN_INLINE void set_factors(const BatchArgs &args, NearBits &bits) {
    for (int lane = 0; lane < LANES; ++lane) {
        bits.factor[0][lane] = -args.search_factor[lane];
        bits.factor[1][lane] = args.positive_factor[lane];
    }
}

// Copies one row into the list of rows that a lane's search looks at.
template <int SHARED>
WIDEMARGIN_INLINE void add_near(BatchArgs &args, int64_t i, int lane, const NearBits &bits) {
    const int64_t from = i * LANES + lane;
    NearRows &near = args.near[lane];
    float *at = near.blocks + NearRows::at(near.count++);
    at[0] = args.S[from];
    at[LANES] = args.SZ[from];
    at[2 * LANES] = args.SP[from];
    at[3 * LANES] = args.cost[i] * bits.factor[(args.signs[i] >> lane) & 1][lane];
    for (int j = 0; j < SHARED; ++j) at[(4 + j) * LANES] = args.shared[i * SHARED + j];
}

// Copies the near rows of [begin, end). The number of bits per row is unpredictable, so four rows are taken at a time.
// Listing the places of all 64 rows without branches first (vpcompressd) takes as long, and so do copies with the
// values of a row side by side, which the search would have to transpose.
template <int SHARED>
WIDEMARGIN_INLINE void add_all_near(BatchArgs &args, int64_t begin, int64_t end, const NearBits &bits) {
    for (int64_t i = begin; i < end; i += ROWS_IN_WORD) {
        for (uint64_t word = bits.words[(i - begin) / ROWS_IN_WORD]; word != 0; word &= word - 1) {
            const int place = __builtin_ctzll(word);
            add_near<SHARED>(args, i + place / LANES, place % LANES, bits);
        }
    }
}

// How far beyond its margin a row still counts as near, by lane.
struct Reach {
    V fixed[PARTS], z[PARTS], p[PARTS];
};

// SZ of row i; returns the lanes to which it is near.
WIDEMARGIN_INLINE uint32_t dot_row(const BatchArgs &args, int64_t i, const V *line, const Reach &reach) {
    uint32_t bits = 0;
    for (int part = 0; part < PARTS; ++part) {
        const int64_t at = i * LANES + part * WIDTH;
        store(args.SZ + at, line[part]);
        const V margin = sign_of(lane_mask(args.signs[i], part)) * load(args.S + at);
        const V allowance = reach.z[part] * magnitude(line[part]) + reach.p[part] * magnitude(load(args.SP + at));
        bits |= greater_bits(allowance - margin, reach.fixed[part]) << (part * WIDTH);
    }
    return bits & args.searched;
}

// A row takes part in a lane's search if its margin may fall below 1, judging by the last step. The row's own moves
// along z and p are a better guide than the largest move of all rows, which selects twice as many. In a sampled lane,
// negatives outside the sample are skipped.
template <int SHARED>
static void batch_dots(BatchArgs &args, int64_t begin, int64_t end) {
    const RowEntry *entries = args.entries;  // local copies so that they are not reloaded after every store
    const int64_t *start = args.start;
    const float *Z = args.Z;
    Reach reach;
    NearBits near;
    set_factors(args, near);
    for (int part = 0; part < PARTS; ++part) {
        reach.fixed[part] = -1.0f - load(args.reach + part * WIDTH);
        reach.z[part] = load(args.reach_z + part * WIDTH);
        reach.p[part] = load(args.reach_p + part * WIDTH);
    }
    int64_t to_sample = (args.sample_stride - begin % args.sample_stride) % args.sample_stride;
    for (int64_t block = begin; block < end; block += NEAR_ROWS) {
        const int64_t stop = std::min(end, block + NEAR_ROWS);
        std::fill_n(near.words, NEAR_ROWS / ROWS_IN_WORD, uint64_t{0});
        const int64_t ahead = rows_ahead(start, block);
        for (int64_t i = block; i < stop; ++i, --to_sample) {
            const RowEntry *later = entries + start[std::min(i + ahead, end - 1) + 1];
            V line[PARTS];
            row_line(entries + start[i], entries + start[i + 1], later, Z, line);
            const uint64_t bits =
                dot_row(args, i, line, reach) & (to_sample == 0 ? ~0u : ~args.sampled | args.signs[i]);
            if (to_sample == 0) to_sample = args.sample_stride;
            near.words[(i - block) / ROWS_IN_WORD] |= bits << ((i - block) % ROWS_IN_WORD * LANES);
        }
        add_all_near<SHARED>(args, block, stop, near);
    }
}

// Updates S and SP of row i. Returns the new scores; move = how far they moved.
template <int SHARED>
WIDEMARGIN_INLINE V step_line(const BatchArgs &args, int64_t i, int part, V &move) {
    const int at = part * WIDTH;
    float *s = args.S + i * LANES + at, *sp = args.SP + i * LANES + at;
    const V old = load(s);
    V step = load(args.theta[0] + at) * load(args.SZ + i * LANES + at) + load(args.theta[1] + at) * load(sp) +
             load(args.theta[2] + at) * (old - load(args.bias + at));
    for (int j = 0; j < SHARED; ++j) step += args.shared[i * SHARED + j] * load(args.theta[N_DIRECTIONS + j] + at);
    const V change = step + load(args.theta[3] + at), now = old + change;
    store(sp, step);
    store(s, now);
    move = magnitude(change);
    return now;
}

WIDEMARGIN_INLINE V cost_line(const BatchArgs &args, int64_t i, int part, M positive) {
    const int at = part * WIDTH;
    return splat(args.cost[i]) * blend(positive, load(args.positive_factor + at), load(args.negative_factor + at));
}

// The rows of a block that are active in some lane, and their factors. Rows between them are skipped, so prefetches
// follow this list.
constexpr int64_t GRADIENT_ROWS = 256;
struct ActiveRows {
    int64_t count = 0;
    int64_t row[GRADIENT_ROWS + 1];
    V a[GRADIENT_ROWS + 1][PARTS];
};

// G += a x for one entry
WIDEMARGIN_INLINE void add_to_column(const RowEntry *e, const V *a, float *G) {
    float *g = G + static_cast<size_t>(e->col) * LANES;
    const V x = splat(e->val);
    for (int part = 0; part < PARTS; ++part) store(g + part * WIDTH, load(g + part * WIDTH) + x * a[part]);
}

// G += Σ a x; while one row is added, the lines of a later one and the entries of one still later are prefetched.
WIDEMARGIN_INLINE void add_active(const ActiveRows &active, const RowEntry *entries, const int64_t *start, float *G) {
    const int64_t ahead = rows_ahead(start, active.row[0]), last_row = active.count - 1;
    for (int64_t k = 0; k < active.count; ++k) {
        const int64_t i = active.row[k];
        const RowEntry *later = entries + start[active.row[std::min(last_row, k + ahead)] + 1];
        const RowEntry *far = entries + start[active.row[std::min(last_row, k + 2 * ahead + 1)]];
        V a[PARTS];  // a local copy so that it is not read again after every store
        std::copy_n(active.a[k], PARTS, a);
        const RowEntry *e = entries + start[i], *last = entries + start[i + 1];
        for (; last - e >= CHAINS; e += CHAINS) {
            __builtin_prefetch(far);
            far += CHAINS;
            __builtin_prefetch(line_before(later--, G), 1);
#pragma GCC unroll 4
            for (int c = 0; c < CHAINS; ++c) add_to_column(e + c, a, G);
        }
        for (; e != last; ++e) add_to_column(e, a, G);
    }
}

// Sums over rows for all lanes.
struct GradientSums {
    V loss[PARTS] = {}, bias[PARTS] = {}, curvature[PARTS] = {}, largest_move[PARTS];
};

// Steps row i and writes its factors to a. Returns whether it is active in some lane.
template <class Loss, int SHARED>
WIDEMARGIN_INLINE bool step_row(const BatchArgs &args, int64_t i, V *a, GradientSums &sums) {
    uint32_t bits = 0;
    for (int part = 0; part < PARTS; ++part) {
        V move;
        const V s = step_line<SHARED>(args, i, part, move);
        const M positive = lane_mask(args.signs[i], part);
        const V y = sign_of(positive);
        const RowTerms row = Loss::at(y * s, cost_line(args, i, part, positive));
        a[part] = y * row.alpha;
        bits |= greater_bits(row.alpha, V{});
        sums.loss[part] += row.value, sums.bias[part] += a[part], sums.curvature[part] += row.curvature;
        sums.largest_move[part] = blend(move > sums.largest_move[part], move, sums.largest_move[part]);
    }
    return bits != 0;
}

template <class Loss, int SHARED>
static void batch_gradient(BatchArgs &args, int64_t begin, int64_t end) {
    const RowEntry *entries = args.entries;
    const int64_t *start = args.start;
    ActiveRows active;
    GradientSums sums;
    for (int part = 0; part < PARTS; ++part) sums.largest_move[part] = load(args.largest_move + part * WIDTH);
    for (int64_t block = begin; block < end; block += GRADIENT_ROWS) {
        active.count = 0;
        for (int64_t i = block; i < std::min(end, block + GRADIENT_ROWS); ++i) {
            active.row[active.count] = i;
            active.count += step_row<Loss, SHARED>(args, i, active.a[active.count], sums);
        }
        add_active(active, entries, start, args.G);
    }
    for (int lane = 0; lane < LANES; ++lane) {
        args.loss[lane] += sums.loss[lane / WIDTH][lane % WIDTH];
        args.bias_sum[lane] += sums.bias[lane / WIDTH][lane % WIDTH];
        args.curvature[lane] += sums.curvature[lane / WIDTH][lane % WIDTH];
        args.largest_move[lane] = sums.largest_move[lane / WIDTH][lane % WIDTH];
    }
}

// One part of the lanes of batch_search over rows [begin, end).
template <class Loss>
WIDEMARGIN_INLINE void search_block(const BatchArgs &args, int part, int64_t begin, int64_t end, V *sums) {
    const int at = part * WIDTH;
    const V b = load(args.bias + at), t0 = load(args.theta[0] + at), t1 = load(args.theta[1] + at);
    const V t2 = load(args.theta[2] + at), t3 = load(args.theta[3] + at);
    for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i * LANES + at;
        const V s = load(args.S + row), z = load(args.SZ + row), p = load(args.SP + row), w = s - b;
        const M positive = lane_mask(args.signs[i], part);
        const V y = sign_of(positive);
        const RowTerms terms = Loss::at(y * (s + t0 * z + t1 * p + t2 * w + t3), cost_line(args, i, part, positive));
        const V ry = 0.5f * terms.alpha * y, k = 0.5f * terms.curvature, kz = k * z, kp = k * p, kw = k * w;
        sums[0] += ry * z, sums[1] += ry * p, sums[2] += ry * w, sums[3] += ry;
        sums[4] += kz * z, sums[5] += kz * p, sums[6] += kz * w, sums[7] += kz;
        sums[8] += kp * p, sums[9] += kp * w, sums[10] += kp;
        sums[11] += kw * w, sums[12] += kw, sums[13] += k, sums[14] += terms.value;
    }
}

// Adds the sums of rows [begin, end) at s + θ·(sz, sp, s − b, 1) for all lanes at once: the search for a loss to which
// every row contributes. α and φ'' are halved so that the squared hinge would give the sums of search_sums.
template <class Loss>
static void batch_search(const BatchArgs &args, int64_t begin, int64_t end, double (*sums)[LANES]) {
    for (int part = 0; part < PARTS; ++part) {
        V acc[N_SEARCH_SUMS] = {};
        search_block<Loss>(args, part, begin, end, acc);
        for (int j = 0; j < N_SEARCH_SUMS; ++j) {
            for (int k = 0; k < WIDTH; ++k) sums[j][part * WIDTH + k] += acc[j][k];
        }
    }
}

// One part of the lanes over columns [begin, end), with seven sums and one per shared direction.
template <int SHARED>
WIDEMARGIN_INLINE void feature_block(const FeatureArgs &args, int part, int64_t begin, int64_t end, V *sums) {
    const int at = part * WIDTH;
    const V t0 = load(args.theta[0] + at), t1 = load(args.theta[1] + at), t2 = load(args.theta[2] + at);
    const V scaling = load(args.scaling + at);
    for (int64_t k = begin; k < end; ++k) {
        float *w = args.W + k * LANES + at, *p = args.P + k * LANES + at;
        float *z = args.Z + k * LANES + at, *g = args.G + k * LANES + at;
        const float *v = args.shared + k * SHARED;
        const V old = load(w);
        V step = t0 * load(z) + t1 * load(p) + t2 * old;
        for (int j = 0; j < SHARED; ++j) step += v[j] * load(args.theta[N_DIRECTIONS + j] + at);
        const V now = old + step, descent = load(g) - now;
        const V direction = descent / (1.0f + scaling * splat(args.spread[k]));
        store(w, now);
        store(p, step);
        store(z, direction);
        store(g, V{});
        sums[0] += direction * direction, sums[1] += direction * step, sums[2] += direction * now;
        sums[3] += step * step, sums[4] += step * now, sums[5] += now * now;
        sums[6] += descent * descent;
        for (int j = 0; j < SHARED; ++j) sums[7 + j] += v[j] * direction;
    }
}

template <int SHARED>
static void batch_features(FeatureArgs &args) {
    constexpr int N_TOTALS = 7 + SHARED;
    double *totals[N_TOTALS] = {args.zz, args.zp, args.zw, args.pp, args.pw, args.ww, args.gg};
    for (int j = 0; j < SHARED; ++j) totals[7 + j] = args.vz[j];
    for (double *row : totals) std::fill_n(row, LANES, 0.0);
    for (int64_t begin = 0; begin < args.n_cols; begin += FLUSH_ROWS) {
        const int64_t end = std::min(args.n_cols, begin + FLUSH_ROWS);
        for (int part = 0; part < PARTS; ++part) {
            V sums[N_TOTALS] = {};
            feature_block<SHARED>(args, part, begin, end, sums);
            for (int j = 0; j < N_TOTALS; ++j) {
                for (int k = 0; k < WIDTH; ++k) totals[j][part * WIDTH + k] += sums[j][k];
            }
        }
    }
}

static void set_lanes(int64_t n, uint32_t keep, const float *by_line, const float *by_lane, float *table) {
    for (int part = 0; part < PARTS; ++part) {
        const M kept = lane_mask(keep, part);
        const V lane = load(by_lane + part * WIDTH);
        for (int64_t i = 0; i < n; ++i) {
            float *at = table + i * LANES + part * WIDTH;
            store(at, blend(kept, load(at), lane + (by_line == nullptr ? 0.0f : by_line[i])));
        }
    }
}

template <int SHARED>
static void first_products(FeatureArgs &args) {
    std::fill_n(args.zz, LANES, 0.0);
    std::fill_n(args.vz[0], N_SHARED * LANES, 0.0);
    for (int64_t begin = 0; begin < args.n_cols; begin += FLUSH_ROWS) {
        const int64_t end = std::min(args.n_cols, begin + FLUSH_ROWS);
        for (int part = 0; part < PARTS; ++part) {
            V sums[1 + SHARED] = {};
            for (int64_t k = begin; k < end; ++k) {
                const V z = load(args.Z + k * LANES + part * WIDTH);
                sums[0] += z * z;
                for (int j = 0; j < SHARED; ++j) sums[1 + j] += args.shared[k * SHARED + j] * z;
            }
            for (int k = 0; k < WIDTH; ++k) {
                args.zz[part * WIDTH + k] += sums[0][k];
                for (int j = 0; j < SHARED; ++j) args.vz[j][part * WIDTH + k] += sums[1 + j][k];
            }
        }
    }
}

static void power_step(const PowerArgs &args) {
    for (int64_t i = 0; i < args.n_rows; i += args.stride) {
        const RowEntry *e = args.entries + args.start[i], *end = args.entries + args.start[i + 1];
        V line[PARTS];
        row_line(e, end, end, args.Z, line);
        for (int part = 0; part < PARTS && args.SZ != nullptr; ++part) {
            store(args.SZ + i * LANES + part * WIDTH, line[part]);
        }
        for (V &part : line) part *= args.cost[i];
        for (; e != end && args.G != nullptr; ++e) {
            __builtin_prefetch(args.G + static_cast<size_t>(e[PREFETCH_ENTRIES].col) * LANES, 1);
            add_to_column(e, line, args.G);
        }
    }
}

static void gram(int64_t n, const float *table, const float *cost, double (*out)[LANES]) {
    for (int64_t begin = 0; begin < n; begin += FLUSH_ROWS) {
        const int64_t end = std::min(n, begin + FLUSH_ROWS);
        for (int part = 0; part < PARTS; ++part) {
            V sums[LANES] = {};
            for (int64_t i = begin; i < end; ++i) {
                const float *line = table + i * LANES;
                const V t = (cost == nullptr ? 1.0f : cost[i]) * load(line + part * WIDTH);
#pragma GCC unroll 16
                for (int j = 0; j < LANES; ++j) sums[j] += line[j] * t;
            }
            for (int j = 0; j < LANES; ++j) {
                for (int k = 0; k < WIDTH; ++k) out[j][part * WIDTH + k] += sums[j][k];
            }
        }
    }
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
