// One iteration of the batched subspace search on (rows or columns) × LANES tables; included by vector_kernels.hpp once
// for every instruction set, hence no #pragma once. Twin: reference/batch_subspace.py.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// What the kernels know of a loss φ at margins m for rows of cost c.
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

// Copies one row into the list of rows that a lane's search looks at.
WIDEMARGIN_INLINE void add_near(BatchArgs &args, int64_t i, int lane) {
    const int64_t from = i * LANES + lane;
    const bool positive = (args.signs[i] >> lane) & 1;
    NearRows &near = args.near[lane];
    float *at = near.blocks + NearRows::at(near.count++);
    at[0] = args.S[from];
    at[LANES] = args.SZ[from];
    at[2 * LANES] = args.SP[from];
    at[3 * LANES] = args.cost[i] * (positive ? args.positive_factor[lane] : -args.search_factor[lane]);
}

// Rows go to a lane's search when their margin may fall below 1, as far as the last step tells: a row's own moves along
// z and p say more than the largest move of all rows, which takes in twice as many. In a sampled lane negatives that
// are not of the sample stay out.
static void batch_dots(BatchArgs &args, int64_t begin, int64_t end) {
    const RowEntry *entries = args.entries;  // not read again for every row, as stores might have changed them
    const int64_t *start = args.start;
    const float *Z = args.Z;
    V reach[PARTS], reach_z[PARTS], reach_p[PARTS];
    for (int part = 0; part < PARTS; ++part) {
        reach[part] = -1.0f - load(args.reach + part * WIDTH);
        reach_z[part] = load(args.reach_z + part * WIDTH);
        reach_p[part] = load(args.reach_p + part * WIDTH);
    }
    int64_t to_sample = (args.sample_stride - begin % args.sample_stride) % args.sample_stride;
    for (int64_t i = begin; i < end; ++i, --to_sample) {
        V line[PARTS];
        row_line(entries + start[i], entries + start[i + 1], Z, line);
        uint32_t bits = 0;
        for (int part = 0; part < PARTS; ++part) {
            const int64_t at = i * LANES + part * WIDTH;
            store(args.SZ + at, line[part]);
            const V margin = sign_of(lane_mask(args.signs[i], part)) * load(args.S + at);
            const V allowance = reach_z[part] * magnitude(line[part]) + reach_p[part] * magnitude(load(args.SP + at));
            bits |= greater_bits(allowance - margin, reach[part]) << (part * WIDTH);
        }
        bits &= args.searched;
        if (to_sample == 0) {
            to_sample = args.sample_stride;
        } else {
            bits &= ~args.sampled | args.signs[i];
        }
        for (; bits != 0; bits &= bits - 1) add_near(args, i, __builtin_ctz(bits));
    }
}

// S, SP after the step of row i. Returns the new scores; move = how far they went.
WIDEMARGIN_INLINE V step_line(const BatchArgs &args, int64_t i, int part, V &move) {
    const int at = part * WIDTH;
    float *s = args.S + i * LANES + at, *sp = args.SP + i * LANES + at;
    const V old = load(s), step = load(args.theta[0] + at) * load(args.SZ + i * LANES + at) +
                                  load(args.theta[1] + at) * load(sp) +
                                  load(args.theta[2] + at) * (old - load(args.bias + at));
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

// G += a x for one row
WIDEMARGIN_INLINE void add_row(const RowEntry *e, const RowEntry *last, const V *a, float *G) {
    for (; e != last; ++e) {
        __builtin_prefetch(G + static_cast<size_t>(e[PREFETCH_ENTRIES].col) * LANES, 1);
        float *g = G + static_cast<size_t>(e->col) * LANES;
        const V x = splat(e->val);
        for (int part = 0; part < PARTS; ++part) store(g + part * WIDTH, load(g + part * WIDTH) + x * a[part]);
    }
}

template <class Loss>
static void batch_gradient(BatchArgs &args, int64_t begin, int64_t end) {
    const RowEntry *entries = args.entries;
    const int64_t *start = args.start;
    float *G = args.G;
    V loss[PARTS] = {}, bias_sum[PARTS] = {}, curvature[PARTS] = {}, largest[PARTS];
    for (int part = 0; part < PARTS; ++part) largest[part] = load(args.largest_move + part * WIDTH);
    for (int64_t i = begin; i < end; ++i) {
        V a[PARTS];
        uint32_t bits = 0;
        for (int part = 0; part < PARTS; ++part) {
            V move;
            const V s = step_line(args, i, part, move);
            const M positive = lane_mask(args.signs[i], part);
            const V y = sign_of(positive);
            const RowTerms row = Loss::at(y * s, cost_line(args, i, part, positive));
            a[part] = y * row.alpha;
            bits |= greater_bits(row.alpha, V{});
            loss[part] += row.value, bias_sum[part] += a[part], curvature[part] += row.curvature;
            largest[part] = blend(move > largest[part], move, largest[part]);
        }
        if (bits != 0) add_row(entries + start[i], entries + start[i + 1], a, G);
    }
    for (int lane = 0; lane < LANES; ++lane) {
        args.loss[lane] += loss[lane / WIDTH][lane % WIDTH];
        args.bias_sum[lane] += bias_sum[lane / WIDTH][lane % WIDTH];
        args.curvature[lane] += curvature[lane / WIDTH][lane % WIDTH];
        args.largest_move[lane] = largest[lane / WIDTH][lane % WIDTH];
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

// Adds the sums of rows [begin, end) at s + θ·(sz, sp, s − b, 1) for all lanes at once: the search of a loss to which
// every row counts. Half of every α and φ'', so that the squared hinge would give the sums of search_sums.
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

// One part of the lanes over columns [begin, end); sums are added to the seven rows of `sums`.
WIDEMARGIN_INLINE void feature_block(const FeatureArgs &args, int part, int64_t begin, int64_t end, V *sums) {
    const int at = part * WIDTH;
    const V t0 = load(args.theta[0] + at), t1 = load(args.theta[1] + at), t2 = load(args.theta[2] + at);
    const V scaling = load(args.scaling + at);
    for (int64_t k = begin; k < end; ++k) {
        float *w = args.W + k * LANES + at, *p = args.P + k * LANES + at;
        float *z = args.Z + k * LANES + at, *g = args.G + k * LANES + at;
        const V old = load(w), step = t0 * load(z) + t1 * load(p) + t2 * old, now = old + step;
        const V descent = load(g) - now, direction = descent / (1.0f + scaling * splat(args.spread[k]));
        store(w, now);
        store(p, step);
        store(z, direction);
        store(g, V{});
        sums[0] += direction * direction, sums[1] += direction * step, sums[2] += direction * now;
        sums[3] += step * step, sums[4] += step * now, sums[5] += now * now;
        sums[6] += descent * descent;
    }
}

static void batch_features(FeatureArgs &args) {
    double *totals[] = {args.zz, args.zp, args.zw, args.pp, args.pw, args.ww, args.gg};
    constexpr int N_TOTALS = 7;
    for (double *row : totals) std::fill_n(row, LANES, 0.0);
    for (int64_t begin = 0; begin < args.n_cols; begin += FLUSH_ROWS) {
        const int64_t end = std::min(args.n_cols, begin + FLUSH_ROWS);
        for (int part = 0; part < PARTS; ++part) {
            V sums[N_TOTALS] = {};
            feature_block(args, part, begin, end, sums);
            for (int j = 0; j < N_TOTALS; ++j) {
                for (int k = 0; k < WIDTH; ++k) totals[j][part * WIDTH + k] += sums[j][k];
            }
        }
    }
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
