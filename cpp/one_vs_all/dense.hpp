// The dense solver: one step of one label, and the float64 rows of its certificate.
//
// A step is the exact minimiser over (z, p, w, intercept), where z is the negative gradient, or it follows a Newton
// direction with backtracking from a full step. On nearly separable rows, exact minimisation along Newton directions
// took twice as many steps (caltech101-silhouettes), because it stays close to the kinks. Twin:
// tests/reference/dense_one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "one_vs_all/certificate.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/matrix.hpp"
#include "one_vs_all/objective.hpp"
#include "one_vs_all/subspace_search.hpp"
#include "simd/cpu.hpp"

namespace widemargin {

// Row kernels of the dense one-vs-all solver: the work on one label between two matrix products.
//
//     s(θ) = s + θ₀ sz + θ₁ sp + θ₂ (s − b) + θ₃        scores after a step along (z, p, w, intercept)
//
// The scores of a label are contiguous float32; matrix products over blocks of labels compute them (the dense solver in
// Python). Sums run in float32 vectors that are flushed into double every FLUSH rows. Twin:
// tests/reference/dense_one_vs_all.py.

constexpr int64_t FLUSH = 512;  // rows; a multiple of every vector's width
constexpr int N_PAIRS = 10;     // upper triangle of 4 × 4

// Vectors of one register. GCC 12 left plain loops over arrays of lanes scalar, which is six times slower.
template <int WIDTH>
struct FloatVector {
    typedef float type __attribute__((vector_size(WIDTH * sizeof(float))));
    typedef int32_t ints __attribute__((vector_size(WIDTH * sizeof(int32_t))));
};

#define WIDEMARGIN_INLINE __attribute__((always_inline)) inline
#define WIDEMARGIN_LAMBDA __attribute__((always_inline))

// A loss in float32 on vectors F, with selections instead of branches: −½ φ'(m), ½ φ''(m), φ(m), and φ(m + step) −
// φ(m).
template <int WIDTH>
struct HingeLanes {
    using F = typename FloatVector<WIDTH>::type;
    static WIDEMARGIN_INLINE void derivatives(const F &m, F &half_slope, F &half_curvature) {
        const F room = 1.0f - m, one = F{} + 1.0f;
        half_slope = room > 0.0f ? room : F{};
        half_curvature = room > 0.0f ? one : F{};
    }
    static WIDEMARGIN_INLINE void value(const F &m, F &out) {
        const F room = 1.0f - m;
        out = room > 0.0f ? room * room : F{};
    }
    // Avoids the cancellation of the difference if both ends are inside the margin.
    static WIDEMARGIN_INLINE void change(const F &m, const F &step, F &out) {
        const F before = 1.0f - m, after = before - step;
        const F lost = before > 0.0f ? before * before : F{};
        const F outside = after > 0.0f ? after * after - lost : -lost;
        const F both = before < after ? before : after;
        out = both > 0.0f ? step * (step - 2.0f * before) : outside;
    }
};

template <int WIDTH>
struct LogisticLanes {
    using F = typename FloatVector<WIDTH>::type;
    using I = typename FloatVector<WIDTH>::ints;
    // e^−|m|: e^x = 2^k e^r with r in [−½ ln 2, ½ ln 2], a polynomial for e^r; the constants of Cephes' expf.
    static WIDEMARGIN_INLINE void exp_minus_abs(const F &m, F &out) {
        const F negative = m < 0.0f ? m : -m, lowest = F{} - 87.0f;
        const F x = negative > lowest ? negative : lowest;
        const I k = __builtin_convertvector(x * 1.44269504f - 0.5f, I);
        const F kf = __builtin_convertvector(k, F);
        const F r = x - kf * 0.693359375f + kf * 2.12194440e-4f;
        F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        const I bits = (k + 127) << 23;
        F power;
        std::memcpy(&power, &bits, sizeof(power));
        out = (p * r * r + r + 1.0f) * power;
    }
    static WIDEMARGIN_INLINE void derivatives(const F &m, F &half_slope, F &half_curvature) {
        F e;
        exp_minus_abs(m, e);
        const F half = 0.5f / (1.0f + e), one = F{} + 1.0f;
        half_slope = half * (m < 0.0f ? one : e);
        half_curvature = 2.0f * e * half * half;
    }
    // log(1 + e) = 2 artanh(t), t = e / (2 + e) ≤ 1/3: the series to t¹¹ is exact to float32.
    static WIDEMARGIN_INLINE void value(const F &m, F &out) {
        F e;
        exp_minus_abs(m, e);
        const F t = e / (2.0f + e), q = t * t;
        F series = q * (1 / 11.0f) + 1 / 9.0f;
        series = q * series + 1 / 7.0f;
        series = q * series + 1 / 5.0f;
        series = q * series + 1 / 3.0f;
        out = 2.0f * t * (q * series + 1.0f) - (m < 0.0f ? m : F{});
    }
    static WIDEMARGIN_INLINE void change(const F &m, const F &step, F &out) {
        F before;
        value(m, before);
        value(m + step, out);
        out -= before;
    }
};

// The rows of one label; `cost` is y c, the cost of a row with the sign of the label. `s`, `sp` and `slopes` are
// written.
struct DenseLabelRows {
    int64_t n;
    float *s;
    const float *sz;
    float *sp;
    const float *cost;
    float *slopes;  // y c φ'(m)
    float bias;
};

struct LabelSums {
    double loss = 0, slope_sum = 0, n_active = 0;
};

// Rows from `i` on, one vector of each array; past the end the cost is zero, so nothing is added.
template <int WIDTH>
struct RowChunk {
    using F = typename FloatVector<WIDTH>::type;
    F s, sz, sp, c, y;

    WIDEMARGIN_INLINE RowChunk(const DenseLabelRows &rows, int64_t i) {
        const int64_t count = rows.n - i;
        F cost;
        load(s, rows.s + i, count);
        load(sz, rows.sz + i, count);
        load(sp, rows.sp + i, count);
        load(cost, rows.cost + i, count);
        const F one = F{} + 1.0f;
        y = cost < 0.0f ? -one : one;
        c = cost * y;
    }
    static WIDEMARGIN_INLINE void load(F &to, const float *from, int64_t count) {
        to = F{};
        if (count >= WIDTH)
            std::memcpy(&to, from, sizeof(F));
        else
            std::memcpy(&to, from, count * sizeof(float));
    }
    static WIDEMARGIN_INLINE void store(float *to, const F &from, int64_t count) {
        if (count >= WIDTH)
            std::memcpy(to, &from, sizeof(F));
        else
            std::memcpy(to, &from, count * sizeof(float));
    }
};

// Calls body(first row, lanes) for every vector of rows; the lanes are added to `sums` every FLUSH rows.
template <int WIDTH, int N, class Body>
WIDEMARGIN_INLINE void sum_rows(int64_t n, double *sums, Body body) {
    typename FloatVector<WIDTH>::type lanes[N] = {};
    std::fill(sums, sums + N, 0.0);
    for (int64_t first = 0; first < n; first += FLUSH) {
        for (int64_t i = first; i < std::min(n, first + FLUSH); i += WIDTH) body(i, lanes);
        for (int j = 0; j < N; ++j) {
            for (int k = 0; k < WIDTH; ++k) sums[j] += static_cast<double>(lanes[j][k]);
            lanes[j] = typename FloatVector<WIDTH>::type{};
        }
    }
}

// The input of SubspaceSearch::absorb: −½ Σ cφ'y v_j (4), and ½ Σ cφ'' v_j v_k (10, upper triangle).
template <int WIDTH, class Loss>
WIDEMARGIN_INLINE void search_sums(const DenseLabelRows &rows, const float *theta, double *out) {
    using F = typename FloatVector<WIDTH>::type;
    sum_rows<WIDTH, N_DIRECTIONS + N_PAIRS>(rows.n, out, [&](int64_t i, F *sums) WIDEMARGIN_LAMBDA {
        const RowChunk<WIDTH> row(rows, i);
        const F w = row.s - rows.bias;
        F a, h;
        Loss::derivatives(row.y * (row.s + theta[0] * row.sz + theta[1] * row.sp + theta[2] * w + theta[3]), a, h);
        a *= row.c * row.y, h *= row.c;
        sums[0] += a * row.sz, sums[1] += a * row.sp, sums[2] += a * w, sums[3] += a;
        const F hz = h * row.sz, hp = h * row.sp, hw = h * w;
        sums[4] += hz * row.sz, sums[5] += hz * row.sp, sums[6] += hz * w, sums[7] += hz;
        sums[8] += hp * row.sp, sums[9] += hp * w, sums[10] += hp;
        sums[11] += hw * w, sums[12] += hw, sums[13] += h;
    });
}

// Σ c (φ(m + t y sz') − φ(m)) with sz' = sz + bias_step: the change of the losses along a Newton direction.
template <int WIDTH, class Loss>
WIDEMARGIN_INLINE double loss_change(const DenseLabelRows &rows, float t, float bias_step) {
    using F = typename FloatVector<WIDTH>::type;
    double sum;
    sum_rows<WIDTH, 1>(rows.n, &sum, [&](int64_t i, F *sums) WIDEMARGIN_LAMBDA {
        const RowChunk<WIDTH> row(rows, i);
        F change;
        Loss::change(row.y * row.s, t * row.y * (row.sz + bias_step), change);
        sums[0] += row.c * change;
    });
    return sum;
}

// Moves to s(θ): writes s, sp (the scores of the step, without the intercept) and the slopes.
template <int WIDTH, class Loss>
WIDEMARGIN_INLINE LabelSums advance(const DenseLabelRows &rows, const float *theta) {
    using F = typename FloatVector<WIDTH>::type;
    double sums[3];
    sum_rows<WIDTH, 3>(rows.n, sums, [&](int64_t i, F *sums) WIDEMARGIN_LAMBDA {
        const RowChunk<WIDTH> row(rows, i);
        const F moved = theta[0] * row.sz + theta[1] * row.sp + theta[2] * (row.s - rows.bias);
        const F s = row.s + moved + theta[3], one = F{} + 1.0f;
        F half_slope, half_curvature, value;
        Loss::derivatives(row.y * s, half_slope, half_curvature);
        Loss::value(row.y * s, value);
        const F slope = -2.0f * row.c * row.y * half_slope;
        sums[0] += row.c * value, sums[1] += slope, sums[2] += row.c * half_slope > 0.0f ? one : F{};
        RowChunk<WIDTH>::store(rows.s + i, s, rows.n - i);
        RowChunk<WIDTH>::store(rows.sp + i, moved, rows.n - i);
        RowChunk<WIDTH>::store(rows.slopes + i, slope, rows.n - i);
    });
    return {sums[0], sums[1], sums[2]};
}

struct RowKernels {
    void (*search_sums)(const DenseLabelRows &, const float *, double *);
    double (*loss_change)(const DenseLabelRows &, float, float);
    LabelSums (*advance)(const DenseLabelRows &, const float *);
};

// The three functions for each instruction set.
#define WIDEMARGIN_ROW_KERNELS(name, attribute, width)                                               \
    template <template <int> class Loss>                                                             \
    attribute void search_sums_##name(const DenseLabelRows &rows, const float *theta, double *out) { \
        search_sums<width, Loss<width>>(rows, theta, out);                                           \
    }                                                                                                \
    template <template <int> class Loss>                                                             \
    attribute double loss_change_##name(const DenseLabelRows &rows, float t, float bias_step) {      \
        return loss_change<width, Loss<width>>(rows, t, bias_step);                                  \
    }                                                                                                \
    template <template <int> class Loss>                                                             \
    attribute LabelSums advance_##name(const DenseLabelRows &rows, const float *theta) {             \
        return advance<width, Loss<width>>(rows, theta);                                             \
    }                                                                                                \
    template <template <int> class Loss>                                                             \
    RowKernels row_kernels_##name() {                                                                \
        return {search_sums_##name<Loss>, loss_change_##name<Loss>, advance_##name<Loss>};           \
    }
WIDEMARGIN_ROW_KERNELS(baseline, , 4)
WIDEMARGIN_ROW_KERNELS(avx2, WIDEMARGIN_AVX2, 8)
WIDEMARGIN_ROW_KERNELS(avx512, WIDEMARGIN_AVX512, 16)
#undef WIDEMARGIN_ROW_KERNELS
#undef WIDEMARGIN_LAMBDA
#undef WIDEMARGIN_INLINE

template <template <int> class Loss>
RowKernels choose_row_kernels() {
    return for_instruction_set(choose_instruction_set(), &row_kernels_avx512<Loss>, &row_kernels_avx2<Loss>,
                               &row_kernels_baseline<Loss>)();
}

constexpr int MAX_HALVINGS = 30;  // 2⁻³⁰ is below the resolution of float32 scores

// What a step needs in addition to the rows: inner products, and for a Newton direction its intercept and slope.
struct DenseStep {
    double zz, zp, zw, pp, pw, ww;
    double bias, bias_step, slope;
    bool newton, use_w, use_bias;
    double bias_penalty;
};

// The longest step among 1, ½, ¼ … with a decrease of at least ARMIJO_SLOPE times the slope; 0 if there is none.
inline double backtrack(const RowKernels &kernels, const DenseLabelRows &rows, const DenseStep &step) {
    const double linear = step.zw + step.bias_penalty * step.bias * step.bias_step;
    const double quadratic = 0.5 * (step.zz + step.bias_penalty * step.bias_step * step.bias_step);
    double t = 1;
    for (int k = 0; k < MAX_HALVINGS; ++k, t *= BACKTRACK_FACTOR) {
        const double losses = kernels.loss_change(rows, static_cast<float>(t), static_cast<float>(step.bias_step));
        if (t * linear + t * t * quadratic + losses <= ARMIJO_SLOPE * t * step.slope) return t;
    }
    return 0;
}

// Minimises over θ, into `theta`.
inline void search(const RowKernels &kernels, const DenseLabelRows &rows, const DenseStep &step, float *theta) {
    const bool use[N_DIRECTIONS] = {true, true, step.use_w, step.use_bias};
    const SubspaceProducts products{step.zz, step.zp, step.zw, step.pp, step.pw, step.ww, step.bias, step.bias_penalty};
    double sums[N_SEARCH_SUMS];
    SubspaceSearch search;
    search.begin(products, use);
    do {
        kernels.search_sums(rows, search.theta(), sums);
    } while (!search.absorb(sums));
    std::copy(search.theta(), search.theta() + N_DIRECTIONS, theta);
}

// Takes the step, written to `theta`; all zero if no step decreases the objective.
inline LabelSums take_step(const RowKernels &kernels, const DenseLabelRows &rows, const DenseStep &step, float *theta) {
    if (step.newton) {
        const double t = backtrack(kernels, rows, step);
        theta[0] = static_cast<float>(t), theta[1] = theta[2] = 0;
        theta[3] = static_cast<float>(t * step.bias_step);
    } else {
        search(kernels, rows, step, theta);
    }
    return kernels.advance(rows, theta);
}

struct CertifiedRows {
    double intercept = 0, loss = 0, conjugates = 0, slope_sum = 0, dual_sum = 0;
};

// Moves a free intercept to its optimum (rounded to float32 if `single`), and fills the slopes y c φ'(m) there and the
// dual's y α, which is feasible up to rounding. z holds the scores, including the intercept.
template <class Loss>
CertifiedRows certify_rows(const BinaryProblem<DenseView<double>> &problem, double *z, double intercept, bool single,
                           double *slopes, double *dual_slopes) {
    const int64_t n = problem.X->n_rows;
    const bool free = problem.free_intercept();
    CertifiedRows out;
    out.intercept = intercept + (free ? optimal_shift<Loss>(problem, z) : 0.0);
    if (single) out.intercept = static_cast<float>(out.intercept);
    const double move = problem.bias_value * (out.intercept - intercept);
    for (int64_t i = 0; i < n; ++i) {
        z[i] += move;
        const double y = problem.y[i], m = y * z[i], c = problem.weight(i);
        out.loss += c * Loss::value(m);
        slopes[i] = y * c * Loss::derivative(m);
        out.slope_sum += slopes[i];
    }
    const double shift = free ? optimal_shift<Loss>(problem, z) : 0.0;
    const SideShares shares = balanced_shares<Loss>(problem, z, shift);
    for (int64_t i = 0; i < n; ++i) {
        const double y = problem.y[i], c = problem.weight(i);
        const double alpha = -c * Loss::derivative(y * (z[i] + shift)) * shares.of(y);
        out.conjugates += Loss::dual_value(alpha, c);
        dual_slopes[i] = y * alpha;
        out.dual_sum += dual_slopes[i];
    }
    return out;
}

}  // namespace widemargin
