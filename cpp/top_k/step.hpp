// The exact dual step of one row of a top-k SVM, and the loss of a row of margins; all in float64.
//
// For the wrong classes, b_j = 1 + s_j − s_y without the row's own part, N = K_ii and D = N + γ/C:
//     x = argmax ⟨x,b⟩ − ½D‖x‖² − ½N⟨1,x⟩²   over the domain of Cφ:   0 ≤ x_j ≤ C/k (β) or ⟨1,x⟩/k (α),  ⟨1,x⟩ ≤ C
// For k = 1, by Newton's method from the threshold of the last visit; otherwise by top_k/projections.hpp applied to
// b/D. Twin: visit() in tests/reference/top_k_ascent.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "top_k/projections.hpp"

namespace widemargin {

// Which top-k loss: k, α or β, and the smoothing γ (problems/top_k_losses.py).
struct TopKLoss {
    int64_t k;
    bool alpha;
    double smoothing;
};

// x_j = (b_j − t)₊ / D with t = max(ρS/(1 + ρq), (S − DC)/q), S and q the sum and number of the b_j above t, ρ = N/D.
// The right-hand side minus t is convex and decreasing in t, so Newton's method needs only a few steps from any start:
// the first may go too far to the left, the others go to the right. All values are relative to the largest so that a
// small C is not lost in the rounding of large b. Returns t.
inline double maximise_hinge(const double *b, int64_t n, double N, double D, double C, double start, double *x) {
    const double top = *std::max_element(b, b + n);
    if (top <= 0.0) {
        std::fill_n(x, n, 0.0);
        return 0.0;
    }
    const double rho = N / D, single = std::max(-D * C, -top / (1.0 + rho));
    double t = std::max(start, 0.0) - top;
    if (t >= 0.0) t = single;
    int64_t before = -1;
    while (t < 0.0) {  // otherwise C or top is lost in rounding, and nothing is above the threshold
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t j = 0; j < n; ++j) {
            const double u = b[j] - top;
            sum += u > t ? u : 0.0;
            count += u > t;
        }
        if (count == before) break;
        const double next = std::max((sum - D * C) / double(count), (rho * sum - top) / (1.0 + rho * double(count)));
        if (before >= 0 && next <= t) break;  // rounding: it would not terminate
        before = count;
        t = next;
    }
    for (int64_t j = 0; j < n; ++j) x[j] = std::max((b[j] - top) - t, 0.0) / D;
    return t + top;
}

class TopKStep {
  public:
    TopKStep(const TopKLoss &loss, int64_t n_wrong) : loss_(loss), work_(n_wrong), scaled_(n_wrong) {}

    double curvature(double N, double C) const { return loss_.smoothing > 0.0 ? N + loss_.smoothing / C : N; }

    // x (n,) from b (n,); `threshold` holds that of the row's last visit and gets that of this one.
    void maximise(const double *b, int64_t n, double N, double C, double &threshold, double *x) {
        const double D = curvature(N, C);
        if (D <= 0.0) {  // the weights do not move these margins
            take_vertex(b, n, C, x);
        } else if (loss_.k == 1) {
            threshold = maximise_hinge(b, n, N, D, C, threshold, x);
        } else {
            for (int64_t j = 0; j < n; ++j) scaled_[j] = b[j] / D;
            project(scaled_.data(), n, C, N / D, x);
        }
        keep_feasible(n, C, x);
    }

    // φ(z)
    double value(const double *z, int64_t n) {
        if (loss_.smoothing > 0.0) return smoothed_value(z, n);
        if (loss_.k == 1) return std::max(*std::max_element(z, z + n), 0.0);
        std::copy(z, z + n, work_.begin());
        std::nth_element(work_.begin(), work_.begin() + (loss_.k - 1), work_.begin() + n, std::greater<double>());
        double sum = 0.0;
        for (int64_t j = 0; j < loss_.k; ++j) sum += loss_.alpha ? work_[j] : std::max(work_[j], 0.0);
        return std::max(sum, 0.0) / double(loss_.k);
    }

    // γ/(2C) ‖x‖²
    double conjugate(const double *x, int64_t n, double C) const {
        if (loss_.smoothing == 0.0) return 0.0;
        double squares = 0.0;
        for (int64_t j = 0; j < n; ++j)
            squares += x[j] * (x[j] / C);  // in this order, because squares of small x underflow
        return 0.5 * loss_.smoothing * squares;
    }

  private:
    void project(const double *a, int64_t n, double r, double rho, double *x) {
        const ProjectionSet set{loss_.k, r, rho, false};
        const Thresholds at =
            loss_.alpha ? top_k_simplex(a, n, set, work_.data()) : capped_simplex(a, n, set, true, work_.data());
        apply_thresholds(a, n, at, x);
    }

    // The maximiser of ⟨z,p⟩ − ½γ‖p‖² is p/γ with p the projection of z onto the domain of γφ.
    double smoothed_value(const double *z, int64_t n) {
        project(z, n, loss_.smoothing, 0.0, scaled_.data());
        double sum = 0.0;
        for (int64_t j = 0; j < n; ++j) sum += scaled_[j] * (z[j] - 0.5 * scaled_[j]);
        return sum / loss_.smoothing;
    }

    // The largest ⟨x,b⟩: any x with sum C if all b are equal, otherwise C/k on the k largest (α: all or none, β: those
    // above 0).
    void take_vertex(const double *b, int64_t n, double C, double *x) {
        const double top = *std::max_element(b, b + n);
        if (*std::min_element(b, b + n) == top) return void(std::fill_n(x, n, top > 0.0 ? C / double(n) : 0.0));
        std::vector<int64_t> order(n);
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + loss_.k, order.end(),
                          [b](int64_t i, int64_t j) { return b[i] > b[j]; });
        std::fill_n(x, n, 0.0);
        double sum = 0.0;
        for (int64_t j = 0; j < loss_.k; ++j) sum += b[order[j]];
        for (int64_t j = 0; j < loss_.k; ++j) {
            if (loss_.alpha ? sum > 0.0 : b[order[j]] > 0.0) x[order[j]] = C / double(loss_.k);
        }
    }

    // A sum that exceeds C by rounding is scaled down, which keeps x in both domains.
    static void keep_feasible(int64_t n, double C, double *x) {
        const double sum = std::accumulate(x, x + n, 0.0);
        if (sum <= C) return;
        for (int64_t j = 0; j < n; ++j) x[j] *= C / sum;
    }

    TopKLoss loss_;
    std::vector<double> work_, scaled_;
};

}  // namespace widemargin
