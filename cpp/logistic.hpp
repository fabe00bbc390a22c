// The logistic loss φ(m) = log(1 + e^−m) of the margin m, without overflow or cancellation at either end.
// Twin: problems/losses.py.
#pragma once

#include <cmath>
#include <utility>

namespace widemargin {

struct Logistic {
    // With a free intercept a label without positives (or without negatives) has no minimiser: its losses go to zero
    // as the margin grows. Here they are 1e-13, below anything that matters.
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

    // φ(m + step) − φ(m) = log(1 − φ'(m) (e^−step − 1)): short steps lose no digits. For long ones the values differ
    // enough, and the formula could overflow.
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
