// The certificate of the logistic loss for up to LANES labels at once, in float64. Included by
// one_vs_all/isa_kernels.hpp once per instruction set, so there is no #pragma once. Twin:
// tests/reference/logistic_certificate.py.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// Vectors of doubles; a line of LANES of them has DOUBLE_PARTS.
constexpr int DOUBLE_WIDTH = WIDTH / 2, DOUBLE_PARTS = LANES / DOUBLE_WIDTH;
typedef double D __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef int64_t L __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef float HalfV __attribute__((vector_size(2 * WIDEMARGIN_ISA_WIDTH), may_alias));

WIDEMARGIN_INLINE D load_doubles(const double *p) { return *reinterpret_cast<const D *>(p); }
WIDEMARGIN_INLINE void store_doubles(double *p, D v) { *reinterpret_cast<D *>(p) = v; }
WIDEMARGIN_INLINE D widen(const float *p) { return __builtin_convertvector(*reinterpret_cast<const HalfV *>(p), D); }
WIDEMARGIN_INLINE D splat_double(double x) { return x - D{}; }
WIDEMARGIN_INLINE D blend_doubles(L m, D yes, D no) {
    return reinterpret_cast<D>((m & reinterpret_cast<L>(yes)) | (~m & reinterpret_cast<L>(no)));
}
// all ones in the lanes of this part whose bit is set
WIDEMARGIN_INLINE L double_lane_mask(uint32_t bits, int part) {
    L lane;
    for (int k = 0; k < DOUBLE_WIDTH; ++k) lane[k] = int64_t{1} << k;
    return (lane & (L{} + static_cast<int64_t>(bits >> (part * DOUBLE_WIDTH)))) != 0;
}

// e^x for x ≤ 0, as in simd/exp_in_place.hpp: accurate to 2 units in the last place, x below −708 is clamped.
WIDEMARGIN_INLINE D exp_negative_double(D x) {
    using E = ExpDouble;
    x = blend_doubles(x > E::lowest, x, splat_double(E::lowest));
    const D shifted = x * E::log2e + E::shifter, k = shifted - E::shifter;
    const D r = (x - k * E::high) - k * E::low;
    D p = splat_double(INVERSE_FACTORIAL[E::degree]);
    for (int d = E::degree - 1; d >= 0; --d) p = p * r + INVERSE_FACTORIAL[d];
    return reinterpret_cast<D>(reinterpret_cast<L>(p) + (reinterpret_cast<L>(shifted) << E::mantissa));
}

// log(1 + e) = 2 artanh(t), t = e / (2 + e) ≤ ⅓, as in log1p_unit; the first term that is left out is below 1e-17 t.
WIDEMARGIN_INLINE D log1p_unit_double(D e) {
    constexpr int LAST_POWER = 33;
    const D t = e / (2.0 + e), q = t * t;
    D p = splat_double(2.0 / LAST_POWER);
    for (int power = LAST_POWER - 2; power > 0; power -= 2) p = p * q + 2.0 / power;
    return t * p;
}

// Σ c log(1 + e) over rows. If all rows have the same cost it is c log Π (1 + e): a factor is at most 2, so 512 of them
// do not overflow, and the rounding of a factor (2⁻⁵³) is negligible even where e is small, because it is absolute.
template <bool UNIFORM>
struct LogSum {
    D value[DOUBLE_PARTS], product[DOUBLE_PARTS];

    WIDEMARGIN_INLINE void clear(LogSum &sum) {
        for (int part = 0; part < DOUBLE_PARTS; ++part) {
            sum.value[part] = D{};
            sum.product[part] = splat_double(1.0);
        }
    }
    // Only where `counts`.
    WIDEMARGIN_INLINE void add(LogSum &sum, int part, D cost, D e, L counts) {
        if (UNIFORM) {
            sum.product[part] *= blend_doubles(counts, 1.0 + e, splat_double(1.0));
        } else {
            sum.value[part] += blend_doubles(counts, cost * log1p_unit_double(e), D{});
        }
    }
    WIDEMARGIN_INLINE double lane(const LogSum &sum, int lane, double cost) {
        const int part = lane / DOUBLE_WIDTH, k = lane % DOUBLE_WIDTH;
        return UNIFORM ? cost * std::log(sum.product[part][k]) : sum.value[part][k];
    }
};

// Scores of row i for all weights and for those that are kept, without intercepts.
template <class Value>
WIDEMARGIN_INLINE void score_line(const CertificateArgs &args, int64_t i, Value value, D *all, D *kept) {
    for (int part = 0; part < DOUBLE_PARTS; ++part) all[part] = kept[part] = D{};
    for (int64_t k = args.start[i]; k < args.start[i + 1]; ++k) {
        const float *next = args.W + static_cast<size_t>(args.entries[k + PREFETCH_ENTRIES].col) * 2 * LANES;
        __builtin_prefetch(next);
        __builtin_prefetch(next + LANES);
        const float *w = args.W + static_cast<size_t>(args.entries[k].col) * 2 * LANES;
        const D x = splat_double(value(k));
        for (int part = 0; part < DOUBLE_PARTS; ++part) {
            all[part] += x * widen(w + part * DOUBLE_WIDTH);
            kept[part] += x * widen(w + LANES + part * DOUBLE_WIDTH);
        }
    }
}

struct CertificateSums {
    D alpha[DOUBLE_PARTS], entropy[DOUBLE_PARTS], curvature[DOUBLE_PARTS], odds[DOUBLE_PARTS], loss[DOUBLE_PARTS],
        kept_loss[DOUBLE_PARTS];
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
        D all[DOUBLE_PARTS], kept[DOUBLE_PARTS], a[DOUBLE_PARTS];
        score_line(args, i, value, all, kept);
        for (int part = 0; part < DOUBLE_PARTS; ++part) {
            const D bias = load_doubles(args.bias + part * DOUBLE_WIDTH);
            const L negative = ~double_lane_mask(args.signs[i], part);
            const D cost = blend_doubles(
                negative, args.weight[UNIFORM ? 0 : i] * load_doubles(args.negative_factor + part * DOUBLE_WIDTH), D{});
            const D s = all[part] + bias, s_kept = kept[part] + bias;
            const D over = blend_doubles(s > 0.0, s, D{}), over_kept = blend_doubles(s_kept > 0.0, s_kept, D{});
            const D e = exp_negative_double(s - 2.0 * over), inverse = 1.0 / (1.0 + e);
            const D larger = inverse, smaller = e * inverse;  // σ and 1 − σ, in one order or the other
            const D sigma = blend_doubles(s > 0.0, larger, smaller), rest = blend_doubles(s > 0.0, smaller, larger);
            const D alpha = cost * sigma;
            sums.alpha[part] += alpha;
            sums.entropy[part] -= alpha * s;
            sums.curvature[part] += alpha * rest;
            sums.odds[part] += alpha / rest;
            sums.loss[part] += cost * over;
            sums.kept_loss[part] += cost * over_kept;
            LogSum<UNIFORM>::add(logs, part, cost, e, negative);
            LogSum<UNIFORM>::add(kept_logs, part, cost, exp_negative_double(s_kept - 2.0 * over_kept), negative);
            a[part] = -alpha;
        }
        for (int64_t k = args.start[i]; k < args.start[i + 1]; ++k) {
            double *u = args.U + static_cast<size_t>(args.entries[k].col) * LANES;
            const D x = splat_double(value(k));
            for (int part = 0; part < DOUBLE_PARTS; ++part) {
                double *at = u + part * DOUBLE_WIDTH;
                store_doubles(at, load_doubles(at) + x * a[part]);
            }
        }
    }
    for (int lane = 0; lane < LANES; ++lane) {
        const int part = lane / DOUBLE_WIDTH, k = lane % DOUBLE_WIDTH;
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

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
