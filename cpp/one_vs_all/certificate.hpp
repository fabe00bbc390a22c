// A lower bound on the optimum of one label's problem, from any scores z.
//
//     α_i = −c_i φ'(m_i),   u = Σ y_i α_i (x_i, bias_value),   D = Σ −(c_i φ)*(−α_i) − ½‖u‖²
//
// With a free intercept, D is a bound only if Σ y_i α_i = 0. So z is first shifted by the exact minimiser over the
// intercept, which nearly achieves this, and then the α of the heavier side are shrunk; any such α is feasible. Zero is
// a bound too, because no term of the objective is negative. Twin: tests/reference/binary_certificate.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "one_vs_all/objective.hpp"

namespace widemargin {

constexpr int MAX_BIAS_STEPS = 200;  // a bisection of doubles ends long before that

// Σ_i α_i of each side at scores z + shift, and Σ_i c_i φ''.
struct SideSums {
    double positive = 0, negative = 0, curvature = 0;
};

template <class Loss, class Matrix>
SideSums side_sums(const BinaryProblem<Matrix> &problem, const double *z, double shift) {
    SideSums sums;
    for (int64_t i = 0; i < problem.X->n_rows; ++i) {
        const double y = problem.y[i];
        const auto [slope, second] = Loss::derivatives(y * (z[i] + shift));
        if (slope == 0) continue;
        const double c = problem.weight(i);
        (y > 0 ? sums.positive : sums.negative) -= c * slope;
        sums.curvature += c * second;
    }
    return sums;
}

// Where to look next for the zero of an increasing derivative if Newton fails: the middle of the bracket, or further
// out while one of its ends is open.
inline double bisection_point(double low, double high, double t, double derivative) {
    if (std::isfinite(low) && std::isfinite(high)) return 0.5 * (low + high);
    const double step = std::max(1.0, std::abs(t));
    return derivative < 0 ? t + step : t - step;
}

// argmin over t of Σ_i c_i φ(y_i (z_i + t)): Newton on a monotone derivative, with bisection if Newton leaves the
// bracket, and growing steps while there is no bracket and no curvature (far out on the logistic loss). Exact up to
// rounding.
template <class Loss, class Matrix>
double optimal_shift(const BinaryProblem<Matrix> &problem, const double *z) {
    double low = -std::numeric_limits<double>::infinity(), high = -low, t = 0;
    for (int step = 0; step < MAX_BIAS_STEPS; ++step) {
        const SideSums sums = side_sums<Loss>(problem, z, t);
        const double derivative = sums.negative - sums.positive, size = sums.negative + sums.positive;
        if (!(std::abs(derivative) > std::numeric_limits<double>::epsilon() * size)) break;  // or NaN
        (derivative < 0 ? low : high) = t;
        const double newton = t - derivative / sums.curvature;  // not finite without curvature
        const double next = newton > low && newton < high ? newton : bisection_point(low, high, t, derivative);
        if (next == t || !std::isfinite(next)) break;
        t = next;
    }
    return t;
}

// Factors for the α of each side: 1, or with a free intercept those that make the sums of both sides equal.
struct SideShares {
    double positive = 1, negative = 1;
    double of(double y) const { return y > 0 ? positive : negative; }
};

template <class Loss, class Matrix>
SideShares balanced_shares(const BinaryProblem<Matrix> &problem, const double *z, double shift) {
    SideShares shares;
    if (!problem.free_intercept()) return shares;
    const SideSums sums = side_sums<Loss>(problem, z, shift);
    if (sums.positive > sums.negative) shares.positive = sums.negative / sums.positive;
    if (sums.negative > sums.positive) shares.negative = sums.positive / sums.negative;
    return shares;
}

// A row with α > 0 in the dual point of a certificate.
struct RowDual {
    int32_t row;
    float alpha;
};

// D at the α of scores z, or zero if that is larger. `u` is a work array of n_cols entries; `duals`, unless null,
// receives α, without the zeros.
template <class Loss, class Matrix>
double dual_bound(const BinaryProblem<Matrix> &problem, const double *z, double *u,
                  std::vector<RowDual> *duals = nullptr) {
    const bool free = problem.free_intercept();
    const double shift = free ? optimal_shift<Loss>(problem, z) : 0.0;
    const SideShares shares = balanced_shares<Loss>(problem, z, shift);
    std::fill(u, u + problem.X->n_cols, 0.0);
    double conjugates = 0, u_bias = 0;
    for (int64_t i = 0; i < problem.X->n_rows; ++i) {
        const double y = problem.y[i], slope = Loss::derivative(y * (z[i] + shift));
        if (slope == 0) continue;
        const double c = problem.weight(i), alpha = -c * slope * shares.of(y);
        conjugates += Loss::dual_value(alpha, c);
        problem.X->add_row(i, y * alpha, u);
        u_bias += y * alpha;
        if (duals != nullptr && alpha > 0) duals->push_back({static_cast<int32_t>(i), static_cast<float>(alpha)});
    }
    u_bias *= free ? 0.0 : problem.bias_value;
    const double dual = conjugates - 0.5 * (squared_norm(u, problem.X->n_cols) + u_bias * u_bias);
    if (duals != nullptr && !(dual > 0)) duals->clear();  // the bound is that of α = 0
    return std::max(0.0, dual);
}

// (primal − dual) / max(|primal|, |dual|), 0 if both are 0
inline double relative_gap(double primal, double dual) {
    const double scale = std::max(std::abs(primal), std::abs(dual));
    return scale == 0 ? 0.0 : (primal - dual) / scale;
}

}  // namespace widemargin
