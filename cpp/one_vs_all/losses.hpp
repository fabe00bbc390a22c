// Losses of the margin m. A class like these holds everything that solvers and certificates know about a loss. Twin:
// problems/losses.py.
#pragma once

#include <cmath>
#include <utility>

namespace widemargin {

// The squared hinge φ(m) = max(0, 1 − m)².
struct SquaredHinge {
    // φ is zero from here on. With a free intercept, a label without positives (or without negatives) has every margin
    // here, and an optimum of zero.
    static constexpr double one_sided_margin = 1.0;
    static constexpr bool one_sided_attained = true;

    static double value(double m) { return m < 1 ? (1 - m) * (1 - m) : 0.0; }
    static double derivative(double m) { return m < 1 ? -2 * (1 - m) : 0.0; }
    static double second_derivative(double m) { return m < 1 ? 2.0 : 0.0; }
    // φ' and φ'' at once
    static std::pair<double, double> derivatives(double m) { return {derivative(m), second_derivative(m)}; }

    // φ(m + step) − φ(m) without cancellation: close to the optimum, a line search sees changes far below the rounding
    // of the values.
    static double change(double m, double step) {
        const double before = 1 - m, after = before - step;
        if (before > 0 && after > 0) return step * (step - 2 * before);
        return (after > 0 ? after * after : 0.0) - (before > 0 ? before * before : 0.0);
    }

    // −(c φ)*(−α), the row's part of the dual, for α in [0, ∞); zero at α = 0 for any c.
    static double dual_value(double alpha, double c) { return alpha > 0 ? alpha - alpha * alpha / (4 * c) : 0.0; }
};

// The logistic loss φ(m) = log(1 + e^−m), without overflow or cancellation at either end.

struct Logistic {
    // With a free intercept, a label without positives (or without negatives) has no minimiser: its losses go to zero
    // as the margin grows. At this margin they are 1e-13, which is negligible.
    static constexpr double one_sided_margin = 30.0;
    static constexpr bool one_sided_attained = false;

    static double value(double m) { return std::log1p(std::exp(-std::abs(m))) + (m < 0 ? -m : 0.0); }

    static double derivative(double m) {
        const double e = std::exp(-std::abs(m));
        return (m < 0 ? -1.0 : -e) / (1 + e);
    }

    static double second_derivative(double m) {
        const double e = std::exp(-std::abs(m));
        return e / ((1 + e) * (1 + e));
    }

    // φ' and φ'' with one exponential
    static std::pair<double, double> derivatives(double m) {
        const double e = std::exp(-std::abs(m)), inverse = 1 / (1 + e);
        return {(m < 0 ? -1.0 : -e) * inverse, e * inverse * inverse};
    }

    // φ(m + step) − φ(m) = log(1 − φ'(m) (e^−step − 1)), which is accurate for short steps. For long steps the values
    // differ enough, and the formula could overflow.
    static double change(double m, double step) {
        if (std::abs(step) <= 1) return std::log1p(-derivative(m) * std::expm1(-step));
        return value(m + step) - value(m);
    }

    // −(c φ)*(−α) = −α log(α/c) − (c − α) log(1 − α/c), the entropy; 0 · log 0 = 0.
    static double dual_value(double alpha, double c) {
        if (!(alpha > 0) || !(alpha < c)) return 0.0;
        const double share = alpha / c;
        return share < 1 ? -alpha * std::log(share) - (c - alpha) * std::log1p(-share) : 0.0;
    }
};

}  // namespace widemargin
