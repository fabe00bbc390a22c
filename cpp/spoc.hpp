// SPOC with an explicit code: dual ascent, one example a block, by the exact reduced problem of Crammer and Singer
// (2002, figure 3); see spoc_task.hpp for the problem.
//
// Passes in random order; a row whose gap g_i is small sleeps 2, 4, … 64 passes. Between evaluations of the gap over
// all rows the duals move on their face (spoc_face.hpp). A gap that is small enough counts once M was computed afresh
// from η. Large costs are approached in stages, each from the duals of the one before: 500 rows of 10 classes and 15
// columns to 1e-6 take 0.4 s instead of 1.2 with C = 100, and 24 rows 1 ms instead of 7 with C = 10,000.
// Ways to choose the next example, seconds to a gap of 1e-3 and 1e-6, with steps on the face except for the worst one:
//                                      random       in order     by last gap  the worst (the paper)
//   four quadrants, 2,000 rows         .0010 .0018  .0019 .0027  .0014 .0027  .015 .020 (of 1,000 rows)
//   10 classes, 15 columns, 500 rows   .068  .102   .065  .123   .067  .127   5.1
// The worst example takes the fewest visits on the quadrants, one a row, but choosing it costs a pass over the scores.
// Memory: η, n k numbers, and its schedule. Twin: reference/spoc.py.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reduced_problem.hpp"
#include "spoc_face.hpp"
#include "spoc_task.hpp"

namespace widemargin {

struct SpocBounds {
    double primal, dual;
    bool within(double tol) const { return primal - dual <= tol * std::max(std::fabs(primal), std::fabs(dual)); }
};

struct SpocRecord {
    int64_t n_passes, n_active;
    double seconds;
    SpocBounds bounds;
};

enum class SpocEnd : int { CONVERGED = 0, MAX_ITER = 1, PAUSED = 2 };

class Spoc {
  public:
    Spoc(const SpocTask &task, uint64_t seed)
        : task_(task),
          eta_(task.n * task.k, 0.0),
          M_(task.k * task.l, 0.0),
          cost_(task.cost, task.cost + task.n),
          norms_(task.n, 0.0),
          level_(task.n, 0),
          next_(task.n, 0),
          gaps_(task.n, 0.0),
          F_(task.k),
          u_(task.k),
          work_(task.k),
          random_(seed) {
        for (int64_t i = 0; i < task.n; ++i) {
            for (int64_t t = 0; t < task.l; ++t) norms_[i] += task.row(i)[t] * task.row(i)[t];
        }
        task_.cost = cost_.data();
        begin_at(stage_of_large_costs());
    }

    const std::vector<double> &eta() const { return eta_; }
    const std::vector<double> &code() const { return M_; }  // (l, k)
    const std::vector<SpocRecord> &records() const { return records_; }
    int64_t n_passes() const { return n_passes_; }

    // Dual variables x (n, k) of the wrong classes, feasible; what they leave of C is the true class's.
    void set_duals(const double *x) {
        begin_at(1.0);
        for (int64_t i = 0; i < task_.n; ++i) {
            std::copy_n(x + i * task_.k, task_.k, &eta_[i * task_.k]);
            complete(i);
        }
        compute_code();
        next_evaluation_ = n_passes_;
    }

    // Goes on until the relative gap is at most `tol`, `max_iter` passes are done, or `seconds` since the start are
    // over; pauses at every evaluation if asked to.
    SpocEnd run(double tol, int64_t max_iter, double seconds, bool pause) {
        while (true) {
            while (n_passes_ < std::min(next_evaluation_, max_iter)) {
                sweep();
                if (elapsed() > seconds) return SpocEnd::PAUSED;
            }
            if (n_passes_ >= max_iter && stage_ > 1.0) grow(stage_);
            const SpocBounds bounds = evaluate();
            if (stage_ == 1.0) records_.push_back({n_passes_, n_active_, elapsed(), bounds});
            if (stage_ == 1.0 && bounds.within(tol) && certify().within(tol)) return SpocEnd::CONVERGED;
            if (n_passes_ >= max_iter) return SpocEnd::MAX_ITER;
            if (stage_ > 1.0 && bounds.within(STAGE_TOL))
                grow(std::min(stage_, STAGE));
            else
                prepare(bounds);
            if (pause || elapsed() > seconds) return SpocEnd::PAUSED;
        }
    }
    // Seconds since the start.
    double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }

    // Bounds of M as it follows from η, which is made feasible to the last digit.
    SpocBounds certify() {
        if (stage_ > 1.0) grow(stage_);
        for (int64_t i = 0; i < task_.n; ++i) complete(i);
        compute_code();
        return evaluate();
    }

    void visit_rows(const int64_t *rows, int64_t n_rows) {
        for (int64_t a = 0; a < n_rows; ++a) visit(rows[a]);
    }
    double face_step() {
        SpocFace face(task_, norms_, eta_, ridge_);
        const double gain = face.step(M_, eta_);
        ridge_ = face.next_ridge();
        return gain;
    }

  private:
    static constexpr int MAX_LEVEL = 6;         // sleep of at most 64 passes
    static constexpr double SLEEP_SHARE = 0.5;  // of the mean gap of a row
    static constexpr int64_t FIRST = 4;         // pass of the first evaluation
    static constexpr int64_t PASSES = 10;       // between evaluations; 5 and 20 were up to 40 % slower
    static constexpr int MOST_FACES = 10;       // steps on faces after an evaluation
    static constexpr double WORTHWHILE = 4e-3;  // share of the gap that a step gains for another to follow
    static constexpr double EASY = 5.0;         // mean of N_i C_i from which costs count as large
    static constexpr double STAGE = 10.0;       // growth of costs
    static constexpr double STAGE_TOL = 1e-3;   // gap at which they grow

    // Costs are large where N C is: the ascent then swings. It begins with smaller ones, C / stage.
    double stage_of_large_costs() const {
        double sum = 0.0, count = 0.0;
        for (int64_t i = 0; i < task_.n; ++i) {
            sum += norms_[i] * cost_[i];
            count += cost_[i] > 0.0;
        }
        const double stage = count > 0.0 ? sum / count / EASY : 1.0;
        return stage > 1.0 && std::isfinite(stage) ? stage : 1.0;
    }
    void begin_at(double stage) {
        stage_ = stage;
        for (int64_t i = 0; i < task_.n; ++i) {
            cost_[i] = given_[i] / stage;
            eta_[i * task_.k + task_.y[i]] = cost_[i];
        }
    }
    // Costs larger by a factor up to the stage, the dual variables by the one that is best for the dual.
    void grow(double factor) {
        double asked = 0.0, squares = 0.0;
        for (int64_t i = 0; i < task_.n; ++i)
            for (int64_t r = 0; r < task_.k; ++r) asked += eta_[i * task_.k + r] * task_.margin(i, r);
        for (const double m : M_) squares += m * m;
        const double best = squares > 0.0 ? std::clamp(asked / squares, 0.0, factor) : factor;
        stage_ = factor >= stage_ ? 1.0 : stage_ / factor;
        for (double &eta : eta_) eta *= best;
        for (int64_t i = 0; i < task_.n; ++i) {
            cost_[i] = given_[i] / stage_;
            complete(i);
        }
        compute_code();
        std::fill(next_.begin(), next_.end(), int64_t{0});
        next_evaluation_ = n_passes_ + FIRST;
    }

    // The true class has what the others leave of C; these are scaled down if they are more.
    void complete(int64_t i) {
        double *eta = &eta_[i * task_.k], sum = 0.0;
        for (int64_t r = 0; r < task_.k; ++r) sum += r == task_.y[i] ? 0.0 : eta[r];
        if (sum > task_.cost[i])
            for (int64_t r = 0; r < task_.k; ++r) eta[r] *= task_.cost[i] / sum;
        eta[task_.y[i]] = std::max(task_.cost[i] - sum, 0.0);
    }

    void sweep() {
        ++n_passes_;
        order_.clear();
        for (int64_t i = 0; i < task_.n; ++i) {
            if (next_[i] <= n_passes_ && task_.cost[i] > 0.0) order_.push_back(i);
        }
        n_active_ = static_cast<int64_t>(order_.size());
        for (int64_t i = n_active_ - 1; i > 0; --i)
            std::swap(order_[i], order_[random_() % static_cast<uint64_t>(i + 1)]);
        for (const int64_t i : order_) {
            level_[i] = visit(i) <= sleep_below_ ? std::min(level_[i] + 1, MAX_LEVEL) : 0;
            next_[i] = n_passes_ + (int64_t{1} << level_[i]);
        }
    }

    // Who sleeps and who wakes, when the next evaluation is, and steps on faces.
    void prepare(const SpocBounds &bounds) {
        const double gap = bounds.primal - bounds.dual;
        sleep_below_ = SLEEP_SHARE * gap / double(task_.n);
        next_evaluation_ = n_passes_ + (n_passes_ < PASSES ? FIRST : PASSES);
        for (int64_t i = 0; i < task_.n; ++i) {
            if (gaps_[i] > sleep_below_) next_[i] = 0;
        }
        for (int step = 0; step < MOST_FACES; ++step) {
            if (face_step() < WORTHWHILE * gap) break;
        }
    }

    SpocBounds evaluate() {
        double gap = 0.0, dual = 0.0;
        for (const double m : M_) dual -= 0.5 * m * m;
        for (int64_t i = 0; i < task_.n; ++i) {
            if (task_.cost[i] == 0.0) continue;
            spoc_scores(task_, M_.data(), i, F_.data());
            gaps_[i] = row_gap(i);
            gap += gaps_[i];
            for (int64_t r = 0; r < task_.k; ++r) dual += eta_[i * task_.k + r] * task_.margin(i, r);
        }
        return {dual + gap, dual};
    }

    void compute_code() {
        std::fill(M_.begin(), M_.end(), 0.0);
        for (int64_t i = 0; i < task_.n; ++i) {
            double sum = 0.0;
            for (int64_t r = 0; r < task_.k; ++r) {
                const double eta = eta_[i * task_.k + r];
                if (r == task_.y[i] || eta == 0.0) continue;
                sum += eta;
                spoc_add(task_, M_.data(), i, r, -eta);
            }
            if (sum > 0.0) spoc_add(task_, M_.data(), i, task_.y[i], sum);
        }
    }

    // g_i by F_
    double row_gap(int64_t i) const {
        const double *eta = &eta_[i * task_.k], top = *std::max_element(F_.begin(), F_.end());
        double gap = 0.0;
        for (int64_t r = 0; r < task_.k; ++r) gap += eta[r] * (top - F_[r]);
        return gap;
    }

    // The exact maximum of the dual over η_i; returns g_i before it.
    double visit(int64_t i) {
        spoc_scores(task_, M_.data(), i, F_.data());
        const double gap = row_gap(i), N = norms_[i], C = task_.cost[i];
        if (gap <= 0.0) return 0.0;
        double *eta = &eta_[i * task_.k];
        if (!(N * C > 0.0)) {  // the row moves no score: all of C on the largest margin
            std::fill_n(eta, task_.k, 0.0);
            eta[std::max_element(F_.begin(), F_.end()) - F_.begin()] = C;
            return gap;
        }
        for (int64_t r = 0; r < task_.k; ++r) u_[r] = F_[r] + N * eta[r];
        const ReducedThreshold at = reduced_threshold(u_.data(), task_.k, N * C, work_.data());
        for (int64_t r = 0; r < task_.k; ++r) {
            const double value = std::max((u_[r] - at.top) - at.below, 0.0) / N;
            if (value != eta[r]) spoc_add(task_, M_.data(), i, r, eta[r] - value);
            eta[r] = value;
        }
        return gap;
    }

    SpocTask task_;
    const double *given_ = task_.cost;  // the costs at stage 1
    std::vector<double> eta_, M_, cost_, norms_;
    std::vector<int> level_;
    std::vector<int64_t> next_;  // pass of the next visit
    std::vector<double> gaps_;   // g_i at the last evaluation
    std::vector<double> F_, u_, work_;
    std::mt19937_64 random_;
    std::vector<int64_t> order_;
    std::vector<SpocRecord> records_;
    int64_t n_passes_ = 0, n_active_ = 0, next_evaluation_ = FIRST;
    double sleep_below_ = 0.0, stage_ = 1.0, ridge_ = SpocFace::RIDGE;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace widemargin
