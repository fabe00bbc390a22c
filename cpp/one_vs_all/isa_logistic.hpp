// The logistic loss for up to LANES labels at once: passes of the subspace search, and the certificate in float64.
// Included by one_vs_all/isa_kernels.hpp once per instruction set, so there is no #pragma once, and after
// isa_certificate.hpp, which has the vectors of doubles. Twins: tests/reference/subspace_search.py and
// logistic_certificate.py.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// Adds the sums of a subspace search, α and φ'' halved as in search_sums, without the loss: the search does not need
// it.
WIDEMARGIN_INLINE void add_logistic_sums(V s, V z, V p, V w, V y, V cost, V *sums) {
    const V m = y * s, e = exp_negative(-magnitude(m)), inverse = 1.0f / (1.0f + e), half = 0.5f * cost * inverse;
    const V ry = half * y * blend(m < 0.0f, splat(1.0f), e), k = half * (e * inverse);
    const V kz = k * z, kp = k * p, kw = k * w;
    sums[0] += ry * z, sums[1] += ry * p, sums[2] += ry * w, sums[3] += ry;
    sums[4] += kz * z, sums[5] += kz * p, sums[6] += kz * w, sums[7] += kz;
    sums[8] += kp * p, sums[9] += kp * w, sums[10] += kp;
    sums[11] += kw * w, sums[12] += kw, sums[13] += k;
}

// The sums of one label's rows at s + θ·(sz, sp, s − b, 1); see SearchRows.
static void logistic_sums(const SearchRows &rows, float bias, const float *theta, double *sums) {
    std::fill_n(sums, N_SEARCH_SUMS, 0.0);
    for (int64_t block = 0; block < rows.n; block += FLUSH_ROWS) {
        V acc[N_SEARCH_SUMS] = {};
        const int64_t stop = std::min(rows.n, block + FLUSH_ROWS);
        for (int64_t i = block; i < stop; i += WIDTH) {
            const int64_t at = i / LANES * rows.stride + i % LANES;
            const V s = load(rows.s + at), z = load(rows.sz + at), p = load(rows.sp + at), w = s - bias;
            const V signed_cost = load(rows.signed_cost + at);
            add_logistic_sums(s + theta[0] * z + theta[1] * p + theta[2] * w + theta[3], z, p, w,
                              copy_sign(signed_cost), magnitude(signed_cost), acc);
        }
        for (int j = 0; j < N_SEARCH_SUMS; ++j) sums[j] += total(acc[j]);
    }
}

// S and SP of the lanes of `fresh`, which start: the intercept, and the scores of the mean row.
WIDEMARGIN_INLINE void start_row(const BatchArgs &args, int64_t i, uint32_t fresh, float mean_score) {
    for (int part = 0; part < PARTS; ++part) {
        const M starts = lane_mask(fresh, part);
        float *s = args.S + i * LANES + part * WIDTH, *p = args.SP + i * LANES + part * WIDTH;
        store(s, blend(starts, load(args.bias + part * WIDTH), load(s)));
        store(p, blend(starts, splat(mean_score), load(p)));
    }
}

// SZ = X Z, and the sums of a subspace search at s + θ₀ sz for all lanes: rows are taken in small blocks, which are
// still in the cache when they are summed.
constexpr int64_t SUMMED_ROWS = 32;
static void logistic_dots(const BatchArgs &args, int64_t begin, int64_t end, uint32_t fresh, const float *mean_scores,
                          double (*sums)[LANES]) {
    V acc[PARTS][N_SEARCH_SUMS] = {};
    for (int64_t block = begin; block < end; block += SUMMED_ROWS) {
        const int64_t stop = std::min(end, block + SUMMED_ROWS);
        const int64_t ahead = rows_ahead(args.start, block);
        for (int64_t i = block; i < stop; ++i) {
            V line[PARTS];
            const RowEntry *later = args.entries + args.start[std::min(i + ahead, end - 1) + 1];
            row_line(args.entries + args.start[i], args.entries + args.start[i + 1], later, args.Z, line);
            for (int part = 0; part < PARTS; ++part) store(args.SZ + i * LANES + part * WIDTH, line[part]);
            if (fresh != 0) start_row(args, i, fresh, mean_scores[i]);
        }
        for (int part = 0; part < PARTS; ++part) {
            const V b = load(args.bias + part * WIDTH), t0 = load(args.theta[0] + part * WIDTH);
            V own[N_SEARCH_SUMS];
            std::copy_n(acc[part], N_SEARCH_SUMS, own);
            for (int64_t i = block; i < stop; ++i) {
                const int64_t at = i * LANES + part * WIDTH;
                const V s = load(args.S + at), z = load(args.SZ + at), p = load(args.SP + at);
                const M positive = lane_mask(args.signs[i], part);
                const V now = s + t0 * z;
                add_logistic_sums(now, z, p, now - b, sign_of(positive), cost_line(args, i, part, positive), own);
            }
            std::copy_n(own, N_SEARCH_SUMS, acc[part]);
        }
    }
    for (int lane = 0; lane < LANES; ++lane) {
        for (int j = 0; j < N_SEARCH_SUMS; ++j) sums[j][lane] += acc[lane / WIDTH][j][lane % WIDTH];
    }
}

// e^x for x ≤ 0, as in simd/exp_in_place.hpp: accurate to 2 units in the last place, x below −708 is clamped.
WIDEMARGIN_INLINE D exp_negative_doubles(D x) {
    using E = ExpDouble;
    x = pick(x > E::lowest, x, splat_doubles(E::lowest));
    const D shifted = x * E::log2e + E::shifter, k = shifted - E::shifter;
    const D r = (x - k * E::high) - k * E::low;
    D p = splat_doubles(INVERSE_FACTORIAL[E::degree]);
    for (int d = E::degree - 1; d >= 0; --d) p = p * r + INVERSE_FACTORIAL[d];
    return reinterpret_cast<D>(reinterpret_cast<DM>(p) + (reinterpret_cast<DM>(shifted) << E::mantissa));
}

// log(1 + e) = 2 artanh(t), t = e / (2 + e) ≤ ⅓, as in log1p_unit; the first term that is left out is below 1e-17 t.
WIDEMARGIN_INLINE D log1p_unit_doubles(D e) {
    constexpr int LAST_POWER = 33;
    const D t = e / (2.0 + e), q = t * t;
    D p = splat_doubles(2.0 / LAST_POWER);
    for (int power = LAST_POWER - 2; power > 0; power -= 2) p = p * q + 2.0 / power;
    return t * p;
}

// Σ c log(1 + e) over rows. If all rows have the same cost it is c log Π (1 + e): a factor is at most 2, so 512 of them
// do not overflow, and the rounding of a factor (2⁻⁵³) is negligible even where e is small, because it is absolute.
template <bool UNIFORM>
struct LogSum {
    D value[HALVES], product[HALVES];

    WIDEMARGIN_INLINE void clear(LogSum &sum) {
        for (int part = 0; part < HALVES; ++part) {
            sum.value[part] = D{};
            sum.product[part] = splat_doubles(1.0);
        }
    }
    // Only where `counts`.
    WIDEMARGIN_INLINE void add(LogSum &sum, int part, D cost, D e, DM counts) {
        if (UNIFORM) {
            sum.product[part] *= pick(counts, 1.0 + e, splat_doubles(1.0));
        } else {
            sum.value[part] += pick(counts, cost * log1p_unit_doubles(e), D{});
        }
    }
    WIDEMARGIN_INLINE double lane(const LogSum &sum, int lane, double cost) {
        const int part = lane / HALF, k = lane % HALF;
        return UNIFORM ? cost * std::log(sum.product[part][k]) : sum.value[part][k];
    }
};

// How far ahead lines of W and U are prefetched.
constexpr int64_t CERTIFICATE_AHEAD = 24;

// Scores of row i for all weights and for those that are kept, without intercepts.
template <class Value>
WIDEMARGIN_INLINE void score_line(const CertificateArgs &args, int64_t i, Value value, D *all, D *kept) {
    for (int part = 0; part < HALVES; ++part) all[part] = kept[part] = D{};
    for (int64_t k = args.start[i]; k < args.start[i + 1]; ++k) {
        const size_t later = args.entries[k + CERTIFICATE_AHEAD].col;
        __builtin_prefetch(args.W + later * LANES);
        __builtin_prefetch(args.U + later * LANES, 1);
        __builtin_prefetch(args.U + later * LANES + LANES / 2, 1);
        const float *w = args.W + static_cast<size_t>(args.entries[k].col) * LANES;
        const D x = splat_doubles(value(k));
        for (int part = 0; part < HALVES; ++part) {
            const F half = load_half(w + part * HALF);
            all[part] += x * to_doubles(half);
            kept[part] += x * to_doubles(kept_half(half, args.least_kept));
        }
    }
}

struct CertificateSums {
    D alpha[HALVES], entropy[HALVES], curvature[HALVES], odds[HALVES], loss[HALVES], kept_loss[HALVES];
};

// Adds up to FLUSH_ROWS rows, each as a negative of the lanes where it is not positive: m = −s,
// σ = 1 / (1 + e^−s), α = c σ, and the loss is log(1 + e^−|s|) + max(0, s).
template <bool UNIFORM, class Value>
WIDEMARGIN_INLINE void certify_block(CertificateArgs &args, int64_t begin, int64_t end, Value value) {
    CertificateSums sums = {};
    LogSum<UNIFORM> logs, kept_logs;
    LogSum<UNIFORM>::clear(logs);
    LogSum<UNIFORM>::clear(kept_logs);
    for (int64_t i = begin; i < end; ++i) {
        D all[HALVES], kept[HALVES], a[HALVES];
        score_line(args, i, value, all, kept);
        for (int part = 0; part < HALVES; ++part) {
            const D bias = load_doubles(args.bias + part * HALF);
            const DM negative = ~half_mask(args.signs[i], part);
            const D cost =
                pick(negative, args.weight[UNIFORM ? 0 : i] * load_doubles(args.negative_factor + part * HALF), D{});
            const D s = all[part] + bias, s_kept = kept[part] + bias;
            const D over = pick(s > 0.0, s, D{}), over_kept = pick(s_kept > 0.0, s_kept, D{});
            const D e = exp_negative_doubles(s - 2.0 * over), inverse = 1.0 / (1.0 + e);
            const D larger = inverse, smaller = e * inverse;  // σ and 1 − σ, in one order or the other
            const D sigma = pick(s > 0.0, larger, smaller), rest = pick(s > 0.0, smaller, larger);
            const D alpha = cost * sigma;
            sums.alpha[part] += alpha;
            sums.entropy[part] -= alpha * s;
            sums.curvature[part] += alpha * rest;
            sums.odds[part] += alpha / rest;
            sums.loss[part] += cost * over;
            sums.kept_loss[part] += cost * over_kept;
            LogSum<UNIFORM>::add(logs, part, cost, e, negative);
            LogSum<UNIFORM>::add(kept_logs, part, cost, exp_negative_doubles(s_kept - 2.0 * over_kept), negative);
            a[part] = -alpha;
        }
        for (int64_t k = args.start[i]; k < args.start[i + 1]; ++k) {
            double *u = args.U + static_cast<size_t>(args.entries[k].col) * LANES;
            const D x = splat_doubles(value(k));
            for (int part = 0; part < HALVES; ++part) {
                double *at = u + part * HALF;
                store_doubles(at, load_doubles(at) + x * a[part]);
            }
        }
    }
    for (int lane = 0; lane < LANES; ++lane) {
        const int part = lane / HALF, k = lane % HALF;
        const double cost = args.weight[0] * args.negative_factor[lane];
        const double loss = sums.loss[part][k] + LogSum<UNIFORM>::lane(logs, lane, cost);
        args.loss[lane] += loss;
        args.kept_loss[lane] += sums.kept_loss[part][k] + LogSum<UNIFORM>::lane(kept_logs, lane, cost);
        args.entropy[lane] += loss + sums.entropy[part][k];
        args.alpha[lane] += sums.alpha[part][k];
        args.curvature[lane] += sums.curvature[part][k];
        args.odds[lane] += sums.odds[part][k];
    }
}

template <bool UNIFORM>
static void certify_rows(CertificateArgs &args) {
    for (int64_t begin = 0; begin < args.n_rows; begin += FLUSH_ROWS) {
        const int64_t end = std::min(args.n_rows, begin + FLUSH_ROWS);
        if (args.exact == nullptr) {
            certify_block<UNIFORM>(args, begin, end,
                                   [&](int64_t k) { return static_cast<double>(args.entries[k].val); });
        } else {
            certify_block<UNIFORM>(args, begin, end, [&](int64_t k) { return args.exact[k]; });
        }
    }
}

static void logistic_certificate(CertificateArgs &args) {
    args.uniform ? certify_rows<true>(args) : certify_rows<false>(args);
}

static void certificate_columns(CertificateArgs &args) {
    for (int part = 0; part < HALVES; ++part) {
        const int at = part * HALF;
        D sums[4] = {};
        for (int64_t k = 0; k < args.n_cols; ++k) {
            const F half = load_half(args.W + k * LANES + at);
            const D w = to_doubles(half), kept = to_doubles(kept_half(half, args.least_kept));
            const D u = load_doubles(args.U + k * LANES + at), r = w - u;
            sums[0] += w * w, sums[1] += kept * kept, sums[2] += u * u, sums[3] += r * r;
            store_doubles(args.U + k * LANES + at, D{});
        }
        double *totals[] = {args.norm, args.kept_norm, args.u_norm, args.residual};
        for (int j = 0; j < 4; ++j) store_doubles(totals[j] + at, sums[j]);
    }
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
