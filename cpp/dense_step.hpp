// One step of one label of the dense solver, and the float64 rows of its certificate.
//
// A step goes along the gradient with the exact minimiser over (z, p, w, intercept), or along a Newton direction with
// backtracking from a full step: on nearly separable rows an exact minimiser along Newton directions took twice as
// many steps (caltech101-silhouettes), because it stays close to the kinks. Twin: reference/dense_one_vs_all.py.
#pragma once

#include <vector>

#include "certificate.hpp"
#include "dense_rows.hpp"
#include "matrix_view.hpp"

namespace widemargin {

constexpr int MAX_HALVINGS = 30;  // 2⁻³⁰ is below what float32 scores can tell

// What a step needs to know beside the rows: inner products, and for a Newton direction its intercept and slope.
struct DenseStep {
    double zz, zp, zw, pp, pw, ww;
    double bias, bias_step, slope;
    bool newton, use_w, use_bias;
    double bias_penalty;
};

// The longest of 1, ½, ¼ … with a decrease of at least ARMIJO_SLOPE of the slope; 0 when none has.
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

// Minimises over θ; `theta` gets it.
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

// Takes the step: `theta` gets where it went; all zero when no step decreases the objective.
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
// dual's y α, which is feasible to rounding. z holds the scores with the intercept.
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
    double shrink_positive = 1, shrink_negative = 1;
    if (free) {
        const SideSums sums = side_sums<Loss>(problem, z, shift);
        if (sums.positive > sums.negative) shrink_positive = sums.negative / sums.positive;
        if (sums.negative > sums.positive) shrink_negative = sums.positive / sums.negative;
    }
    for (int64_t i = 0; i < n; ++i) {
        const double y = problem.y[i], c = problem.weight(i);
        const double alpha = -c * Loss::derivative(y * (z[i] + shift)) * (y > 0 ? shrink_positive : shrink_negative);
        out.conjugates += Loss::dual_value(alpha, c);
        dual_slopes[i] = y * alpha;
        out.dual_sum += dual_slopes[i];
    }
    return out;
}

}  // namespace widemargin
