// The logistic loss for up to LANES labels at once: passes of the subspace search, and the certificate in float64.
// Included by one_vs_all/isa_kernels.hpp once per instruction set, so there is no #pragma once. Twins:
// tests/reference/subspace_search.py and logistic_certificate.py.

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
        for (int64_t i = block; i < stop; ++i) {
            V line[PARTS];
            row_line(args.entries + args.start[i], args.entries + args.start[i + 1], args.Z, line);
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

// Vectors of doubles; a line of LANES of them has WIDE_PARTS.
constexpr int WIDE_WIDTH = WIDTH / 2, WIDE_PARTS = LANES / WIDE_WIDTH;
typedef double Wide __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef int64_t WideM __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef float Narrow __attribute__((vector_size(2 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef int32_t NarrowM __attribute__((vector_size(2 * WIDEMARGIN_ISA_WIDTH), may_alias));

WIDEMARGIN_INLINE Wide load_wide(const double *p) { return *reinterpret_cast<const Wide *>(p); }
WIDEMARGIN_INLINE void store_wide(double *p, Wide v) { *reinterpret_cast<Wide *>(p) = v; }
WIDEMARGIN_INLINE Narrow load_narrow(const float *p) { return *reinterpret_cast<const Narrow *>(p); }
WIDEMARGIN_INLINE Wide widen(Narrow v) { return __builtin_convertvector(v, Wide); }
// The weights that pruning keeps, else 0.
WIDEMARGIN_INLINE Narrow kept_narrow(Narrow w, float least) {
    const NarrowM bits = reinterpret_cast<NarrowM>(w);
    return reinterpret_cast<Narrow>(bits & (reinterpret_cast<Narrow>(bits & 0x7fffffff) >= least));
}
WIDEMARGIN_INLINE Wide splat_wide(double x) { return x - Wide{}; }
WIDEMARGIN_INLINE Wide blend_wide(WideM m, Wide yes, Wide no) {
    return reinterpret_cast<Wide>((m & reinterpret_cast<WideM>(yes)) | (~m & reinterpret_cast<WideM>(no)));
}
// all ones in the lanes of this part whose bit is set
WIDEMARGIN_INLINE WideM wide_lane_mask(uint32_t bits, int part) {
    WideM lane;
    for (int k = 0; k < WIDE_WIDTH; ++k) lane[k] = int64_t{1} << k;
    return (lane & (WideM{} + static_cast<int64_t>(bits >> (part * WIDE_WIDTH)))) != 0;
}

// e^x for x ≤ 0, as in simd/exp_in_place.hpp: accurate to 2 units in the last place, x below −708 is clamped.
WIDEMARGIN_INLINE Wide exp_negative_wide(Wide x) {
    using E = ExpDouble;
    x = blend_wide(x > E::lowest, x, splat_wide(E::lowest));
    const Wide shifted = x * E::log2e + E::shifter, k = shifted - E::shifter;
    const Wide r = (x - k * E::high) - k * E::low;
    Wide p = splat_wide(INVERSE_FACTORIAL[E::degree]);
    for (int d = E::degree - 1; d >= 0; --d) p = p * r + INVERSE_FACTORIAL[d];
    return reinterpret_cast<Wide>(reinterpret_cast<WideM>(p) + (reinterpret_cast<WideM>(shifted) << E::mantissa));
}

// log(1 + e) = 2 artanh(t), t = e / (2 + e) ≤ ⅓, as in log1p_unit; the first term that is left out is below 1e-17 t.
WIDEMARGIN_INLINE Wide log1p_unit_wide(Wide e) {
    constexpr int LAST_POWER = 33;
    const Wide t = e / (2.0 + e), q = t * t;
    Wide p = splat_wide(2.0 / LAST_POWER);
    for (int power = LAST_POWER - 2; power > 0; power -= 2) p = p * q + 2.0 / power;
    return t * p;
}

// Σ c log(1 + e) over rows. If all rows have the same cost it is c log Π (1 + e): a factor is at most 2, so 512 of them
// do not overflow, and the rounding of a factor (2⁻⁵³) is negligible even where e is small, because it is absolute.
template <bool UNIFORM>
struct LogSum {
    Wide value[WIDE_PARTS], product[WIDE_PARTS];

    WIDEMARGIN_INLINE void clear(LogSum &sum) {
        for (int part = 0; part < WIDE_PARTS; ++part) {
            sum.value[part] = Wide{};
            sum.product[part] = splat_wide(1.0);
        }
    }
    // Only where `counts`.
    WIDEMARGIN_INLINE void add(LogSum &sum, int part, Wide cost, Wide e, WideM counts) {
        if (UNIFORM) {
            sum.product[part] *= blend_wide(counts, 1.0 + e, splat_wide(1.0));
        } else {
            sum.value[part] += blend_wide(counts, cost * log1p_unit_wide(e), Wide{});
        }
    }
    WIDEMARGIN_INLINE double lane(const LogSum &sum, int lane, double cost) {
        const int part = lane / WIDE_WIDTH, k = lane % WIDE_WIDTH;
        return UNIFORM ? cost * std::log(sum.product[part][k]) : sum.value[part][k];
    }
};

// How far ahead lines of W and U are prefetched.
constexpr int64_t CERTIFICATE_AHEAD = 24;

// Scores of row i for all weights and for those that are kept, without intercepts.
template <class Value>
WIDEMARGIN_INLINE void score_line(const CertificateArgs &args, int64_t i, Value value, Wide *all, Wide *kept) {
    for (int part = 0; part < WIDE_PARTS; ++part) all[part] = kept[part] = Wide{};
    for (int64_t k = args.start[i]; k < args.start[i + 1]; ++k) {
        const size_t later = args.entries[k + CERTIFICATE_AHEAD].col;
        __builtin_prefetch(args.W + later * LANES);
        __builtin_prefetch(args.U + later * LANES, 1);
        __builtin_prefetch(args.U + later * LANES + LANES / 2, 1);
        const float *w = args.W + static_cast<size_t>(args.entries[k].col) * LANES;
        const Wide x = splat_wide(value(k));
        for (int part = 0; part < WIDE_PARTS; ++part) {
            const Narrow half = load_narrow(w + part * WIDE_WIDTH);
            all[part] += x * widen(half);
            kept[part] += x * widen(kept_narrow(half, args.least_kept));
        }
    }
}

struct CertificateSums {
    Wide alpha[WIDE_PARTS], entropy[WIDE_PARTS], curvature[WIDE_PARTS], odds[WIDE_PARTS], loss[WIDE_PARTS],
        kept_loss[WIDE_PARTS];
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
        Wide all[WIDE_PARTS], kept[WIDE_PARTS], a[WIDE_PARTS];
        score_line(args, i, value, all, kept);
        for (int part = 0; part < WIDE_PARTS; ++part) {
            const Wide bias = load_wide(args.bias + part * WIDE_WIDTH);
            const WideM negative = ~wide_lane_mask(args.signs[i], part);
            const Wide cost = blend_wide(
                negative, args.weight[UNIFORM ? 0 : i] * load_wide(args.negative_factor + part * WIDE_WIDTH), Wide{});
            const Wide s = all[part] + bias, s_kept = kept[part] + bias;
            const Wide over = blend_wide(s > 0.0, s, Wide{}), over_kept = blend_wide(s_kept > 0.0, s_kept, Wide{});
            const Wide e = exp_negative_wide(s - 2.0 * over), inverse = 1.0 / (1.0 + e);
            const Wide larger = inverse, smaller = e * inverse;  // σ and 1 − σ, in one order or the other
            const Wide sigma = blend_wide(s > 0.0, larger, smaller), rest = blend_wide(s > 0.0, smaller, larger);
            const Wide alpha = cost * sigma;
            sums.alpha[part] += alpha;
            sums.entropy[part] -= alpha * s;
            sums.curvature[part] += alpha * rest;
            sums.odds[part] += alpha / rest;
            sums.loss[part] += cost * over;
            sums.kept_loss[part] += cost * over_kept;
            LogSum<UNIFORM>::add(logs, part, cost, e, negative);
            LogSum<UNIFORM>::add(kept_logs, part, cost, exp_negative_wide(s_kept - 2.0 * over_kept), negative);
            a[part] = -alpha;
        }
        for (int64_t k = args.start[i]; k < args.start[i + 1]; ++k) {
            double *u = args.U + static_cast<size_t>(args.entries[k].col) * LANES;
            const Wide x = splat_wide(value(k));
            for (int part = 0; part < WIDE_PARTS; ++part) {
                double *at = u + part * WIDE_WIDTH;
                store_wide(at, load_wide(at) + x * a[part]);
            }
        }
    }
    for (int lane = 0; lane < LANES; ++lane) {
        const int part = lane / WIDE_WIDTH, k = lane % WIDE_WIDTH;
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
    for (int part = 0; part < WIDE_PARTS; ++part) {
        const int at = part * WIDE_WIDTH;
        Wide sums[4] = {};
        for (int64_t k = 0; k < args.n_cols; ++k) {
            const Narrow half = load_narrow(args.W + k * LANES + at);
            const Wide w = widen(half), kept = widen(kept_narrow(half, args.least_kept));
            const Wide u = load_wide(args.U + k * LANES + at), r = w - u;
            sums[0] += w * w, sums[1] += kept * kept, sums[2] += u * u, sums[3] += r * r;
            store_wide(args.U + k * LANES + at, Wide{});
        }
        double *totals[] = {args.norm, args.kept_norm, args.u_norm, args.residual};
        for (int j = 0; j < 4; ++j) store_wide(totals[j] + at, sums[j]);
    }
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
