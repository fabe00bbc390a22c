// SPOC with an explicit code: dual ascent with one example per block, by the exact reduced problem of Crammer and
// Singer (2002, figure 3). See codes/problem.hpp for the problem.
//
// Passes visit the rows in random order; a row whose gap g_i is small sleeps for 2, 4, … 64 passes. Between evaluations
// of the gap over all rows, the duals move on their face (codes/face_step.hpp). A gap that is small enough counts only
// after M was recomputed from η. Large costs are approached in stages, each starting from the duals of the previous
// one: 500 rows with 10 classes and 15 columns reach 1e-6 in 0.4 s instead of 1.2 with C = 100, and 24 rows in 1 ms
// instead of 7 with C = 10,000. Seconds to a gap of 1e-3 and 1e-6 for several ways to choose the next example, with
// steps on the face except for the worst-first rule:
//                                      random       in order     by last gap  the worst (the paper)
//   four quadrants, 2,000 rows         .0010 .0018  .0019 .0027  .0014 .0027  .015 .020 (of 1,000 rows)
//   10 classes, 15 columns, 500 rows   .068  .102   .065  .123   .067  .127   5.1
// The worst-first rule (codes/worst_first.hpp) takes the fewest visits on the quadrants, one per row, but each choice
// costs a pass over the scores. Memory: η (n k numbers) and its schedule. Twin: tests/reference/spoc.py.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "codes/face_step.hpp"
#include "codes/problem.hpp"

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

enum class SpocEnd : int { CONVERGED = 0, MAX_ITER = 1, PAUSED = 2, NOT_ATTAINED = 3 };

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
          best_eta_(task.k),
          work_(2 * task.k),
          random_(seed) {
        for (int64_t i = 0; i < task.n; ++i) {
            for (int64_t t = 0; t < task.l; ++t) norms_[i] += task.row(i)[t] * task.row(i)[t];
        }
        task_.cost = cost_.data();
        begin_at(stage_of_large_costs());
    }

    const std::vector<double> &eta() const { return eta_; }
    const std::vector<double> &code() const { return M_; }            // (l, k)
    const std::vector<double> &best_code() const { return best_M_; }  // (l, k), smallest primal; or empty
    const std::vector<SpocRecord> &records() const { return records_; }
    int64_t n_passes() const { return n_passes_; }

    // Feasible dual variables x (n, k) of the wrong classes; the true class gets the rest of C.
    void set_duals(const double *x) {
        begin_at(1.0);
        for (int64_t i = 0; i < task_.n; ++i) {
            std::copy_n(x + i * task_.k, task_.k, &eta_[i * task_.k]);
            complete(i);
        }
        compute_code();
        next_evaluation_ = n_passes_;
    }

    // Continues until the relative gap is at most `tol`, `max_iter` passes are done, or `seconds` have passed since the
    // start; with `pause`, returns at every evaluation.
    SpocEnd run(double tol, int64_t max_iter, double seconds, bool pause) {
        while (true) {
            while (n_passes_ < std::min(next_evaluation_, max_iter)) {
                sweep();
                if (elapsed() > seconds) return SpocEnd::PAUSED;
            }
            if (n_passes_ >= max_iter && stage_ > 1.0) grow(stage_);
            const SpocBounds bounds = evaluate();
            if (stage_ == 1.0) record(bounds);
            if (stage_ == 1.0 && bounds.within(tol) && certify().within(tol)) return SpocEnd::CONVERGED;
            const bool last = n_passes_ >= max_iter;
            if (stage_ == 1.0 && cannot_reach(bounds, tol, last)) return SpocEnd::NOT_ATTAINED;
            if (last) return SpocEnd::MAX_ITER;
            if (stage_ > 1.0 && bounds.within(STAGE_TOL))
                grow(std::min(stage_, STAGE));
            else
                prepare(bounds);
            if (pause || elapsed() > seconds) return SpocEnd::PAUSED;
        }
    }
    // Seconds since the start.
    double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }

    // Bounds for the M that follows from η, which is first made exactly feasible.
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
    static constexpr double SLEEP_SHARE = 0.5;  // of the mean gap per row
    static constexpr int64_t FIRST = 4;         // pass of the first evaluation
    static constexpr int64_t PASSES = 10;       // between evaluations; 5 and 20 were up to 40 % slower
    static constexpr int MOST_FACES = 10;       // steps on faces after an evaluation
    static constexpr double WORTHWHILE = 4e-3;  // share of the gap that a step must gain for another to follow
    static constexpr double EASY = 5.0;         // costs are large if the mean of N_i C_i is above this
    static constexpr double STAGE = 10.0;       // factor by which costs grow per stage
    static constexpr double STAGE_TOL = 1e-3;   // gap at which costs grow
    static constexpr int64_t STALLED = 200;     // passes after which the gap should halve whenever they double

    // With a large N C the ascent oscillates, so it starts with smaller costs, C / stage.
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
    // Raises the costs by a factor of up to STAGE, and the dual variables by the factor that is best for the dual.
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

    void complete(int64_t i) { spoc_complete(task_, i, &eta_[i * task_.k]); }

    // Keeps the bounds, and the code if its objective is the smallest so far.
    void record(const SpocBounds &bounds) {
        records_.push_back({n_passes_, n_active_, elapsed(), bounds});
        if (!best_M_.empty() && !(bounds.primal < best_primal_)) return;
        best_primal_ = bounds.primal;
        best_M_ = M_;
    }

    // Whether the gap no longer halves while passes double and rounding exceeds what the tolerance allows; or whether
    // rounding exceeds the objective itself.
    bool cannot_reach(const SpocBounds &bounds, double tol, bool last) {
        const int64_t first = records_.front().n_passes, now = n_passes_ - first;
        while (2 * (records_[half_].n_passes - first) <= now && half_ + 1 < records_.size()) {
            half_gap_ = std::min(half_gap_, records_[half_].bounds.primal - records_[half_].bounds.dual);
            ++half_;
        }
        const bool stalled = now >= STALLED && bounds.primal - bounds.dual > 0.5 * half_gap_;
        if (!stalled && !last) return false;
        const double size = std::max(std::fabs(bounds.primal), std::fabs(bounds.dual)), noise = rounding();
        return noise > (stalled ? tol * size : size);
    }
    // Σ_i C_i ‖h_i‖ times the rounding error of ‖M‖, a sum of τ_i h_i: the uncertainty of the sum of losses.
    double rounding() const {
        double moved = 0.0, squares = 0.0;
        for (int64_t i = 0; i < task_.n; ++i) {
            const double sigma = task_.cost[i] - eta_[i * task_.k + task_.y[i]];
            moved += task_.cost[i] * std::sqrt(norms_[i]);
            squares += sigma * sigma * norms_[i];
        }
        return std::numeric_limits<double>::epsilon() * moved * std::sqrt(squares);
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

    // Decides which rows sleep and wake and when the next evaluation is, and takes steps on faces.
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

    void compute_code() { spoc_code(task_, eta_.data(), M_.data()); }

    // g_i from F_
    double row_gap(int64_t i) const { return spoc_row_gap(task_.k, &eta_[i * task_.k], F_.data()); }

    // Maximises the dual over η_i exactly; returns the previous g_i.
    double visit(int64_t i) {
        spoc_scores(task_, M_.data(), i, F_.data());
        const double gap = row_gap(i);
        if (gap <= 0.0) return 0.0;
        double *eta = &eta_[i * task_.k];
        spoc_best(task_.k, F_.data(), norms_[i], task_.cost[i], eta, work_.data(), best_eta_.data());
        for (int64_t r = 0; r < task_.k; ++r) {
            if (best_eta_[r] != eta[r]) spoc_add(task_, M_.data(), i, r, eta[r] - best_eta_[r]);
            eta[r] = best_eta_[r];
        }
        return gap;
    }

    SpocTask task_;
    const double *given_ = task_.cost;  // the costs at stage 1
    std::vector<double> eta_, M_, cost_, norms_;
    std::vector<int> level_;
    std::vector<int64_t> next_;  // pass of the next visit
    std::vector<double> gaps_;   // g_i at the last evaluation
    std::vector<double> F_, best_eta_, work_;
    std::vector<double> best_M_;
    double best_primal_ = 0.0;
    size_t half_ = 0;  // index of the first record in the second half of the passes
    double half_gap_ = std::numeric_limits<double>::infinity();
    std::mt19937_64 random_;
    std::vector<int64_t> order_;
    std::vector<SpocRecord> records_;
    int64_t n_passes_ = 0, n_active_ = 0, next_evaluation_ = FIRST;
    double sleep_below_ = 0.0, stage_ = 1.0, ridge_ = SpocFace::RIDGE;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace widemargin
