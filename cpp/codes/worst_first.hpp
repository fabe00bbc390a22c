// SPOC as published: each step maximises the dual over the example that violates the optimality conditions most
// (Crammer and Singer, JMLR 2001; the outline is figure 4 of the 2002 paper),
//
//     ψ_i = max_r F_ir − min {F_ir : η_ir > 0},    F = b + K T,
//
// with K = h h' or a kernel matrix. The scores F of all examples are kept, so a step costs n (l + k), including the row
// of K. A pass is n steps, after which F is recomputed and the gap evaluated. There are no stages, no sleep and no
// steps on faces. On easy problems it takes fewer visits than the random passes of codes/ascent.hpp, but always more
// time. Visits and CPU ms to a gap of 1e-6, random and worst first (benchmarks/spoc_orders.py):
//
//     four quadrants, 1,000 rows          82,000   3,000     1.3     20
//     10 classes, 15 columns, 500 rows   103,000 332,500      35  3,000
//     digits, 300 rows, 64 columns        34,800  38,700      67    573
//     digits, 300 rows, rbf               64,500   8,100     9.7     39
//
// Memory: η and F, n k numbers each. Twin: solve() in tests/reference/spoc.py.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include "codes/ascent.hpp"
#include "codes/problem.hpp"

namespace widemargin {

class SpocWorstFirst {
  public:
    // `K` (n, n) is a kernel matrix, or null for the inner products of the rows.
    SpocWorstFirst(const SpocTask &task, const double *K)
        : task_(task),
          K_(K),
          eta_(task.n * task.k, 0.0),
          F_(task.n * task.k),
          M_(K == nullptr ? task.l * task.k : 0),
          norms_(task.n, 0.0),
          best_eta_(task.k),
          work_(2 * task.k) {
        for (int64_t i = 0; i < task.n; ++i) {
            norms_[i] = product(i, i);
            spoc_complete(task_, i, &eta_[i * task_.k]);
        }
        compute_scores();
    }

    const std::vector<double> &eta() const { return eta_; }
    const std::vector<double> &code() const { return M_; }            // (l, k), empty with a kernel matrix
    const std::vector<double> &best_code() const { return best_M_; }  // (l, k) with the smallest primal so far
    const std::vector<SpocRecord> &records() const { return records_; }
    int64_t n_passes() const { return n_passes_; }
    double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }

    // Feasible dual variables x (n, k) of the wrong classes; the true class gets the rest of C.
    void set_duals(const double *x) {
        std::copy_n(x, task_.n * task_.k, eta_.begin());
        certify();
    }

    SpocBounds certify() {
        for (int64_t i = 0; i < task_.n; ++i) spoc_complete(task_, i, &eta_[i * task_.k]);
        compute_scores();
        return evaluate();
    }

    // Like Spoc::run. A step that changes nothing is the last, because all later ones would be the same.
    SpocEnd run(double tol, int64_t max_iter, double seconds, bool pause) {
        while (true) {
            if (next_step_ == 0) {
                const SpocBounds bounds = certify();
                record(bounds);
                if (bounds.within(tol)) return SpocEnd::CONVERGED;
                if (stuck_) return SpocEnd::NOT_ATTAINED;
                if (n_passes_ >= max_iter) return SpocEnd::MAX_ITER;
                if (pause && elapsed() <= seconds) {
                    next_step_ = 1;
                    return SpocEnd::PAUSED;
                }
            }
            for (next_step_ = std::max<int64_t>(next_step_, 1); next_step_ <= task_.n && !stuck_; ++next_step_) {
                if (elapsed() > seconds) return SpocEnd::PAUSED;
                stuck_ = !step();
            }
            next_step_ = 0;
            ++n_passes_;
        }
    }

    // One step of figure 4; false if it changes nothing.
    bool step() {
        const int64_t p = worst();
        if (p < 0) return false;
        double *eta = &eta_[p * task_.k];
        spoc_best(task_.k, &F_[p * task_.k], norms_[p], task_.cost[p], eta, work_.data(), best_eta_.data());
        changed_.clear();
        for (int64_t r = 0; r < task_.k; ++r)
            if (best_eta_[r] != eta[r]) changed_.push_back(r);
        for (int64_t i = 0; i < task_.n && !changed_.empty(); ++i) {
            const double factor = product(i, p);
            for (const int64_t r : changed_) F_[i * task_.k + r] -= factor * (best_eta_[r] - eta[r]);
        }
        std::copy(best_eta_.begin(), best_eta_.end(), eta);
        return !changed_.empty();
    }

  private:
    double product(int64_t i, int64_t j) const {
        if (K_ != nullptr) return K_[j * task_.n + i];
        double sum = 0.0;
        for (int64_t t = 0; t < task_.l; ++t) sum += task_.row(i)[t] * task_.row(j)[t];
        return sum;
    }

    // The first example with the largest ψ; −1 if every ψ is 0.
    int64_t worst() const {
        int64_t found = -1;
        double largest = 0.0;
        for (int64_t i = 0; i < task_.n; ++i) {
            const double *F = &F_[i * task_.k], *eta = &eta_[i * task_.k];
            double top = F[0], least = std::numeric_limits<double>::infinity();
            for (int64_t r = 0; r < task_.k; ++r) {
                top = std::max(top, F[r]);
                if (eta[r] > 0.0) least = std::min(least, F[r]);
            }
            if (top - least > largest) {
                largest = top - least;
                found = i;
            }
        }
        return found;
    }

    void compute_scores() {
        if (K_ == nullptr) {
            spoc_code(task_, eta_.data(), M_.data());
            for (int64_t i = 0; i < task_.n; ++i) spoc_scores(task_, M_.data(), i, &F_[i * task_.k]);
            return;
        }
        for (int64_t i = 0; i < task_.n; ++i) {
            double *F = &F_[i * task_.k];
            for (int64_t r = 0; r < task_.k; ++r) F[r] = task_.margin(i, r);
            for (int64_t j = 0; j < task_.n; ++j) {
                const double *eta = &eta_[j * task_.k], value = K_[i * task_.n + j];
                double sum = 0.0;
                for (int64_t r = 0; r < task_.k; ++r) {
                    if (r == task_.y[j]) continue;
                    F[r] -= value * eta[r];
                    sum += eta[r];
                }
                F[task_.y[j]] += value * sum;
            }
        }
    }

    // D = Σ b η − ½⟨T, S⟩ and the gap Σ g_i, from the current scores.
    SpocBounds evaluate() const {
        double gap = 0.0, dual = 0.0;
        for (int64_t i = 0; i < task_.n; ++i) {
            const double *eta = &eta_[i * task_.k], *F = &F_[i * task_.k];
            const int64_t y = task_.y[i];
            gap += spoc_row_gap(task_.k, eta, F);
            for (int64_t r = 0; r < task_.k; ++r) {
                const double b = task_.margin(i, r), score = F[r] - b;
                if (r != y) dual += eta[r] * (b - 0.5 * (F[y] - score));
            }
        }
        return {dual + gap, dual};
    }

    void record(const SpocBounds &bounds) {
        if (records_.empty() || bounds.primal < best_primal_) {
            best_primal_ = bounds.primal;
            best_M_ = M_;
        }
        records_.push_back({n_passes_, task_.n, elapsed(), bounds});
    }

    SpocTask task_;
    const double *K_;
    std::vector<double> eta_, F_, M_, best_M_, norms_, best_eta_, work_;
    std::vector<int64_t> changed_;
    std::vector<SpocRecord> records_;
    int64_t n_passes_ = 0, next_step_ = 0;
    double best_primal_ = 0.0;
    bool stuck_ = false;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace widemargin
