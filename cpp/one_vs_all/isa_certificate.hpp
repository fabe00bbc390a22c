// Kernels of the batched certificate (one_vs_all/batch_certificate.hpp): up to 16 labels, one per lane, in double.
// Included by one_vs_all/isa_kernels.hpp once per instruction set, so there is no #pragma once. A lane's numbers do not
// depend on its neighbours: a row is skipped only if it would add zero to every lane.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// Doubles in a vector, and vectors in a line. Kernels exist for all lanes and for the first half of them: the last
// labels of a fit seldom fill a line. USED is the number of vectors.
constexpr int HALF = WIDTH / 2, HALVES = LANES / HALF;
typedef double D __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef int64_t DM __attribute__((vector_size(4 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef float F __attribute__((vector_size(2 * WIDEMARGIN_ISA_WIDTH), may_alias));
typedef int32_t FM __attribute__((vector_size(2 * WIDEMARGIN_ISA_WIDTH), may_alias));

WIDEMARGIN_INLINE D load_doubles(const double *p) { return *reinterpret_cast<const D *>(p); }
WIDEMARGIN_INLINE void store_doubles(double *p, D v) { *reinterpret_cast<D *>(p) = v; }
WIDEMARGIN_INLINE F load_half(const float *p) { return *reinterpret_cast<const F *>(p); }
WIDEMARGIN_INLINE D splat_doubles(double x) { return x - D{}; }
WIDEMARGIN_INLINE D to_doubles(F v) { return __builtin_convertvector(v, D); }
WIDEMARGIN_INLINE D pick(DM m, D yes, D no) { return m ? yes : no; }
WIDEMARGIN_INLINE D where(DM m, D v) { return m ? v : D{}; }
WIDEMARGIN_INLINE bool any_of(DM m) { return sign_bits(reinterpret_cast<M>(m)) != 0; }
// all ones in the lanes of this part whose bit is set
WIDEMARGIN_INLINE DM half_mask(uint32_t bits, int part) {
    DM lane;
    for (int k = 0; k < HALF; ++k) lane[k] = int64_t{1} << k;
    return (lane & (DM{} + static_cast<int64_t>(bits >> (part * HALF)))) != 0;
}

// The weights that pruning keeps.
WIDEMARGIN_INLINE F kept_half(F w, float least) {
    const FM bits = reinterpret_cast<FM>(w);
    return reinterpret_cast<F>(bits & (reinterpret_cast<F>(bits & 0x7fffffff) >= least));
}

WIDEMARGIN_INLINE double exact_value(const CheckArgs &args, int64_t k) {
    return args.exact == nullptr ? static_cast<double>(args.entries[k].val) : args.exact[k];
}

// line += x W[col], or of the kept weights only
template <int USED, bool KEPT>
WIDEMARGIN_INLINE void add_exact_entry(const CheckArgs &args, int64_t k, D *line) {
    __builtin_prefetch(args.W + static_cast<size_t>(args.entries[k + PREFETCH_ENTRIES].col) * LANES);
    const float *w = args.W + static_cast<size_t>(args.entries[k].col) * LANES;
    const double x = exact_value(args, k);
    for (int part = 0; part < USED; ++part) {
        const F half = load_half(w + part * HALF);
        line[part] += x * to_doubles(KEPT ? kept_half(half, args.least_kept) : half);
    }
}

// line = bias + Σ_k x_k W[col_k] for row i, in two chains of additions
template <int USED, bool KEPT>
WIDEMARGIN_INLINE void exact_line(const CheckArgs &args, int64_t i, D *line) {
    D odd[USED] = {};
    for (int part = 0; part < USED; ++part) line[part] = load_doubles(args.bias + part * HALF);
    int64_t k = args.start[i];
    const int64_t end = args.start[i + 1];
    for (; k + 2 <= end; k += 2) {
        add_exact_entry<USED, KEPT>(args, k, line);
        add_exact_entry<USED, KEPT>(args, k + 1, odd);
    }
    if (k < end) add_exact_entry<USED, KEPT>(args, k, line);
    for (int part = 0; part < USED; ++part) line[part] += odd[part];
}

// S = X W + bias
template <int USED>
static void check_scores(const CheckArgs &args) {
    for (int64_t i = 0; i < args.n_rows; ++i) {
        D line[USED];
        exact_line<USED, false>(args, i, line);
        for (int part = 0; part < USED; ++part) store_doubles(args.S + i * LANES + part * HALF, line[part]);
    }
}

// y and c of row i in one part of the lanes
struct RowSide {
    D y, cost;
};
WIDEMARGIN_INLINE RowSide side_of(const CheckArgs &args, int64_t i, int part) {
    const DM positive = half_mask(args.signs[i], part);
    const D one = splat_doubles(1.0);
    return {pick(positive, one, -one), args.weight[i] * pick(positive, load_doubles(args.positive_factor + part * HALF),
                                                             load_doubles(args.negative_factor + part * HALF))};
}

// With m = max(0, 1 − y (S + t)): Σ c m of the negatives, Σ c m of the positives, Σ c of the rows with m > 0, and Σ c
// m².
template <int USED>
static void check_losses(const CheckArgs &args, const double *shift, double (*sums)[LANES]) {
    for (int part = 0; part < USED; ++part) {
        const D t = load_doubles(shift + part * HALF), none{};
        D negative{}, positive{}, curvature{}, loss{};
        for (int64_t i = 0; i < args.n_rows; ++i) {
            const RowSide row = side_of(args, i, part);
            const D m = 1.0 - row.y * (load_doubles(args.S + i * LANES + part * HALF) + t);
            const DM active = m > none;
            const D cm = where(active, row.cost * m), of_positive = where(row.y > none, cm);
            negative += cm - of_positive, positive += of_positive, curvature += where(active, row.cost), loss += cm * m;
        }
        store_doubles(sums[0] + part * HALF, negative);
        store_doubles(sums[1] + part * HALF, positive);
        store_doubles(sums[2] + part * HALF, curvature);
        store_doubles(sums[3] + part * HALF, loss);
    }
}

// U += a x for row i
template <int USED>
WIDEMARGIN_INLINE void add_exact_row(const CheckArgs &args, int64_t i, const D *a) {
    for (int64_t k = args.start[i]; k < args.start[i + 1]; ++k) {
        const double *ahead = args.U + static_cast<size_t>(args.entries[k + PREFETCH_ENTRIES].col) * LANES;
        __builtin_prefetch(ahead, 1);
        __builtin_prefetch(ahead + LINE_BYTES / sizeof(double), 1);
        double *u = args.U + static_cast<size_t>(args.entries[k].col) * LANES;
        const double x = exact_value(args, k);
        for (int part = 0; part < USED; ++part) {
            store_doubles(u + part * HALF, load_doubles(u + part * HALF) + x * a[part]);
        }
    }
}

// U = Σ y α x with α = 2 c max(0, 1 − y (S + t)) shrunk by side, and the sums of α − α² / (4 c) and of the loss of the
// kept weights, whose scores differ from S by at most prune ‖x‖₁: rows beyond that are not scored again.
template <int USED>
static void check_gradient(const CheckArgs &args, const double *shift, const double (*shrink)[LANES],
                           double (*sums)[LANES]) {
    D conjugates[USED] = {}, kept_loss[USED] = {};
    const D none{};
    for (int64_t i = 0; i < args.n_rows; ++i) {
        const double reach = args.prune * args.l1_norm[i];
        D a[USED];
        DM active{}, near{};
        for (int part = 0; part < USED; ++part) {
            const RowSide row = side_of(args, i, part);
            const D t = load_doubles(shift + part * HALF);
            const D m = 1.0 - row.y * (load_doubles(args.S + i * LANES + part * HALF) + t);
            const D share =
                pick(row.y > none, load_doubles(shrink[1] + part * HALF), load_doubles(shrink[0] + part * HALF));
            const DM counts = (m > none) & (row.cost > none);
            const D half = share * m;  // α / (2 c)
            conjugates[part] += where(counts, row.cost * half * (2.0 - half));
            a[part] = where(counts, 2.0 * row.y * row.cost * half);
            active |= counts;
            near |= (m > -reach) & (row.cost > none);
        }
        if (!any_of(near)) continue;
        if (args.prune > 0) {
            D line[USED];
            exact_line<USED, true>(args, i, line);
            for (int part = 0; part < USED; ++part) {
                const RowSide row = side_of(args, i, part);
                const D m = 1.0 - row.y * (line[part] + load_doubles(shift + part * HALF));
                kept_loss[part] += where(m > none, row.cost * m * m);
            }
        }
        if (any_of(active)) add_exact_row<USED>(args, i, a);
    }
    for (int part = 0; part < USED; ++part) {
        store_doubles(sums[0] + part * HALF, conjugates[part]);
        store_doubles(sums[1] + part * HALF, kept_loss[part]);
    }
}

// ‖W‖², ‖kept W‖², ‖U‖² and ‖W − U‖²: the rows of `sums`. U = 0.
template <int USED>
static void check_columns(const CheckArgs &args, double (*sums)[LANES]) {
    for (int part = 0; part < USED; ++part) {
        D all{}, kept{}, dual{}, residual{};
        for (int64_t k = 0; k < args.n_cols; ++k) {
            const F half = load_half(args.W + k * LANES + part * HALF);
            double *at = args.U + k * LANES + part * HALF;
            const D w = to_doubles(half), v = to_doubles(kept_half(half, args.least_kept)), u = load_doubles(at);
            all += w * w, kept += v * v, dual += u * u, residual += (w - u) * (w - u);
            store_doubles(at, D{});
        }
        store_doubles(sums[0] + part * HALF, all);
        store_doubles(sums[1] + part * HALF, kept);
        store_doubles(sums[2] + part * HALF, dual);
        store_doubles(sums[3] + part * HALF, residual);
    }
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
