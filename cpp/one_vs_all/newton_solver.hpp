// One-vs-all by truncated Newton: solves every label of a block from its start, rounds to the stored type, prunes, and
// certifies the result with new passes over the data. Labels are independent; threads take them one at a time, each
// with its own work area of 8 (n_cols + 1) + 2 n_rows doubles and the active set. Twin: tests/reference/one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/certificate.hpp"
#include "one_vs_all/newton.hpp"
#include "one_vs_all/objective.hpp"
#include "simd/threads.hpp"

namespace widemargin {

struct OneVsAllOptions {
    double C;
    double bias_value;    // 1 with an intercept, else 0
    double bias_penalty;  // 0 for a free intercept, else 1
    double tol;
    double gap_tol;
    double prune;
    int max_iter;
    int n_threads;
    bool polish;
    // Whether one-sided labels are solved like others, up to the first iterate at which the rule holds.
    bool solve_one_sided = false;
    bool tighten_cg = true;  // see NewtonRule
};

// The labels of a block: positives of label j are positive_rows[positive_indptr[j] .. positive_indptr[j + 1]).
struct LabelBlock {
    int64_t n_labels;
    const int64_t *positive_rows;
    const int64_t *positive_indptr;
    const double *row_weight;       // (n_rows,)
    const double *positive_factor;  // (n_labels,)
    const double *negative_factor;  // (n_labels,)

    int64_t n_positive(int64_t j) const { return positive_indptr[j + 1] - positive_indptr[j]; }
    // Only label j.
    LabelBlock one(int64_t j) const {
        return {1, positive_rows, positive_indptr + j, row_weight, positive_factor + j, negative_factor + j};
    }
};

// Options for a label that a float32 solver does not finish: a stricter rule so that it still holds after rounding to
// float32.
constexpr double FALLBACK_SHARE = 0.9;
inline OneVsAllOptions fallback_options(OneVsAllOptions options) {
    options.tol *= FALLBACK_SHARE;
    options.n_threads = 1;
    return options;
}

// The problem of label j.  Sets: y (n_rows,), the signs of the rows.
template <class Matrix>
BinaryProblem<Matrix> binary_problem(const Matrix &X, const LabelBlock &block, const OneVsAllOptions &options,
                                     int64_t j, std::vector<int8_t> &y) {
    std::fill(y.begin(), y.end(), int8_t{-1});
    for (int64_t k = block.positive_indptr[j]; k < block.positive_indptr[j + 1]; ++k) y[block.positive_rows[k]] = 1;
    return {&X,
            y.data(),
            block.row_weight,
            options.C * block.positive_factor[j],
            options.C * block.negative_factor[j],
            options.bias_value,
            options.bias_penalty};
}

// Columns of the bounds of a label.
enum BoundColumn { PRIMAL, DUAL, PRIMAL_AT_ZERO, PRIMAL_BEFORE_PRUNING, PRUNED_SHARE, N_BOUNDS };

struct LabelRecord {
    int64_t label;
    IterationRecord state;
    double gradient_ratio;  // ‖∇L‖ / ‖∇L(0)‖
    double seconds;         // CPU time since the previous record, or since the start of the label
};

// Where the results go; coef and intercept hold the start when the solver is called.
template <typename T>
struct BlockResult {
    T *coef;                                // (n_labels, n_cols)
    T *intercept;                           // (n_labels,)
    double *bounds;                         // (n_labels, N_BOUNDS)
    int64_t *n_iter;                        // (n_labels,)
    uint8_t *converged;                     // (n_labels,) an Ending
    std::vector<RowDual> *duals = nullptr;  // (n_labels,) the dual points of the bounds, unless null
};

template <class Matrix, class Loss>
class OneVsAllSolver {
    using T = typename Matrix::value_type;

  public:
    OneVsAllSolver(const Matrix &X, const LabelBlock &block, const OneVsAllOptions &options)
        : X_(X), block_(block), options_(options), row_sum_(X.n_cols, 0.0), total_weight_(0) {
        for (int64_t i = 0; i < X.n_rows; ++i) {
            X.add_row(i, block.row_weight[i], row_sum_.data());
            total_weight_ += block.row_weight[i];
        }
    }

    // Solves all labels; the records are in the order of the labels.
    std::vector<LabelRecord> solve(const BlockResult<T> &out) const {
        const int n_threads = static_cast<int>(std::min<int64_t>(std::max(1, options_.n_threads), block_.n_labels));
        std::vector<Work> works;
        works.reserve(n_threads);
        for (int t = 0; t < n_threads; ++t) works.emplace_back(X_.n_rows, X_.n_cols + 1);
        std::vector<std::vector<LabelRecord>> records(block_.n_labels);
        parallel_for(block_.n_labels, n_threads,
                     [&](int thread, int64_t label) { solve_label(label, works[thread], records[label], out); });
        std::vector<LabelRecord> all;
        for (const auto &part : records) all.insert(all.end(), part.begin(), part.end());
        return all;
    }

  private:
    // How a label ended whose weights were spoiled by rounding: float32 is the caller's choice, float64 is not.
    static constexpr Ending SPOILT = sizeof(T) > sizeof(float) ? NOT_ATTAINED : ENDED_EARLY;

    struct Work {
        ObjectiveWork objective;
        NewtonWork newton;
        std::vector<int8_t> y;
        std::vector<double> v;
        Work(int64_t n_rows, int64_t n_variables) : objective(n_rows), newton(n_variables), y(n_rows), v(n_variables) {}
    };
    // Weighted counts of positives and negatives, without C.
    struct Sides {
        double positive, negative;
    };

    const Matrix &X_;
    const LabelBlock &block_;
    const OneVsAllOptions &options_;
    std::vector<double> row_sum_;  // Σ_i row_weight_i x_i
    double total_weight_;

    const int64_t *positive_rows(int64_t j) const { return block_.positive_rows + block_.positive_indptr[j]; }

    // Both sides are summed, instead of taking a difference, so a side without weight has a weight of exactly
    // zero.
    Sides sides_of(int64_t j, const int8_t *y) const {
        Sides sides{0, 0};
        for (int64_t i = 0; i < X_.n_rows; ++i) (y[i] > 0 ? sides.positive : sides.negative) += block_.row_weight[i];
        return {sides.positive * block_.positive_factor[j], sides.negative * block_.negative_factor[j]};
    }

    // ‖∇L(0)‖ = |φ'(0)| ‖Σ_i c_i y_i (x_i, bias_value)‖ from the sum of all rows and the positive ones.
    double gradient_norm_at_zero(int64_t j, const BinaryProblem<Matrix> &problem, double *sum) const {
        const double both = problem.positive_factor + problem.negative_factor;
        for (int64_t k = 0; k < X_.n_cols; ++k) sum[k] = -problem.negative_factor * row_sum_[k];
        double bias = -problem.negative_factor * total_weight_;
        for (int64_t k = 0; k < block_.n_positive(j); ++k) {
            const int64_t i = positive_rows(j)[k];
            X_.add_row(i, both * block_.row_weight[i], sum);
            bias += both * block_.row_weight[i];
        }
        bias *= problem.bias_value;
        return std::abs(Loss::derivative(0)) * std::sqrt(squared_norm(sum, X_.n_cols) + bias * bias);
    }

    void solve_label(int64_t j, Work &work, std::vector<LabelRecord> &records, const BlockResult<T> &out) const {
        const BinaryProblem<Matrix> problem = binary_problem(X_, block_, options_, j, work.y);
        const Sides sides = sides_of(j, work.y.data());
        std::copy(out.coef + j * X_.n_cols, out.coef + (j + 1) * X_.n_cols, work.v.data());
        work.v[X_.n_cols] = options_.bias_value != 0 ? out.intercept[j] : T{0};
        const bool one_sided = problem.free_intercept() && (sides.positive == 0 || sides.negative == 0);
        if (one_sided && !options_.solve_one_sided) {
            std::fill(work.v.begin(), work.v.end(), 0.0);
            work.v[X_.n_cols] = sides.positive == 0 ? -Loss::one_sided_margin : Loss::one_sided_margin;
            out.n_iter[j] = 0;
            out.converged[j] = Loss::one_sided_attained ? CONVERGED : NOT_ATTAINED;
        } else {
            out.converged[j] = minimize(j, problem, sides, work, records, out.n_iter[j]);
        }
        out.bounds[j * N_BOUNDS + PRIMAL_AT_ZERO] = options_.C * (sides.positive + sides.negative) * Loss::value(0.0);
        store(j, problem, one_sided, work, records, out);
    }

    // Sets: work.v, the minimiser in double precision.
    Ending minimize(int64_t j, const BinaryProblem<Matrix> &problem, const Sides &sides, Work &work,
                    std::vector<LabelRecord> &records, int64_t &n_iter) const {
        double time = thread_seconds();
        BinaryObjective<Matrix, Loss> objective(problem, work.objective);
        const double norm_at_zero = gradient_norm_at_zero(j, problem, work.newton.gradient.data());
        const double total = sides.positive + sides.negative;
        // The lower bound on the total only matters if the weights of all rows sum to less than one.
        const double share = std::max(1.0, std::min(sides.positive, sides.negative)) / std::max(1.0, total);
        const NewtonRule rule{
            share * norm_at_zero, options_.tol,    GAP_SHARE * options_.gap_tol, ROUNDING_GRADIENT * norm_at_zero,
            options_.max_iter,    options_.polish, options_.tighten_cg};
        auto certified_gap = [&](const double *v) {
            return relative_gap(objective.value(v),
                                dual_bound<Loss>(problem, objective.scores(), work.newton.H_search.data()));
        };
        auto record = [&](const IterationRecord &state) {
            const double now = thread_seconds();
            const double ratio = norm_at_zero > 0 ? state.gradient_norm / norm_at_zero : 0.0;
            records.push_back({j, state, ratio, now - time});
            time = now;
        };
        if (std::all_of(work.v.begin(), work.v.end(), [](double x) { return x == 0; })) {
            std::fill(work.objective.z.begin(), work.objective.z.end(), 0.0);
        } else {
            objective.move_to(work.v.data());
        }
        return newton_cg(objective, rule, work.newton, certified_gap, record, work.v.data(), n_iter);
    }

    // Rounds to the stored type, drops small weights (never the intercept), and certifies what is stored.
    void store(int64_t j, const BinaryProblem<Matrix> &problem, bool one_sided, Work &work,
               const std::vector<LabelRecord> &records, const BlockResult<T> &out) const {
        T *coef = out.coef + j * X_.n_cols;
        double *bounds = out.bounds + j * N_BOUNDS;
        std::copy(coef, coef + X_.n_cols, work.newton.search.begin());  // the start
        work.newton.search[X_.n_cols] = options_.bias_value != 0 ? out.intercept[j] : T{0};
        // The lower bound comes from the weights before rounding and pruning: any weights give a valid bound, and these
        // give the best. A one-sided label has no feasible dual point except zero.
        BinaryObjective<Matrix, Loss>(problem, work.objective).move_to(work.v.data());
        std::vector<RowDual> *duals = out.duals == nullptr ? nullptr : out.duals + j;
        bounds[DUAL] =
            one_sided ? 0.0 : dual_bound<Loss>(problem, work.objective.z.data(), work.newton.H_search.data(), duals);
        round_to_stored(j, work, out);
        bounds[PRIMAL] = fresh_value(problem, work);
        bounds[DUAL] = std::min(bounds[PRIMAL], bounds[DUAL]);
        // Rounding to float32 can spoil weights that are large compared with the margins: such a label has not
        // converged.
        const bool gap_holds = relative_gap(bounds[PRIMAL], bounds[DUAL]) <= std::max(options_.gap_tol, ROUNDING_GAP);
        if (out.converged[j] == CONVERGED && !gap_holds) out.converged[j] = SPOILT;
        if (options_.max_iter > 0) keep_best_known(j, problem, work, records, out);
        bounds[PRIMAL_BEFORE_PRUNING] = bounds[PRIMAL];
        const double before = squared_norm(work.v.data(), X_.n_cols);
        bool pruned = false;
        for (int64_t k = 0; k < X_.n_cols; ++k) {
            if (coef[k] == 0 || !(std::abs(work.v[k]) < options_.prune)) continue;
            coef[k] = 0;
            work.v[k] = 0;
            pruned = true;
        }
        if (pruned) bounds[PRIMAL] = fresh_value(problem, work);
        bounds[PRUNED_SHARE] = pruned ? 1 - squared_norm(work.v.data(), X_.n_cols) / before : 0.0;
    }

    // Sets: coef, intercept, and work.v, to the same values.
    void round_to_stored(int64_t j, Work &work, const BlockResult<T> &out) const {
        T *coef = out.coef + j * X_.n_cols;
        for (int64_t k = 0; k <= X_.n_cols; ++k) {
            const T stored = static_cast<T>(work.v[k]);
            (k < X_.n_cols ? coef[k] : out.intercept[j]) = stored;
            work.v[k] = stored;
        }
    }

    // If rounding made the weights worse than zero, or (for a label that did not converge) worse than its start
    // (work.newton.search), the better of these two is stored. A solver without steps certifies what it is given.
    void keep_best_known(int64_t j, const BinaryProblem<Matrix> &problem, Work &work,
                         const std::vector<LabelRecord> &records, const BlockResult<T> &out) const {
        double *bounds = out.bounds + j * N_BOUNDS, known = bounds[PRIMAL_AT_ZERO];
        const bool converged = out.converged[j] == CONVERGED;
        const bool from_start = !converged && !records.empty() && records.front().state.value < known;
        if (from_start) known = records.front().state.value;
        if (bounds[PRIMAL] <= (1 + ROUNDING_GAP) * known) return;
        if (from_start) {
            std::copy(work.newton.search.begin(), work.newton.search.end(), work.v.begin());
        } else {
            std::fill(work.v.begin(), work.v.end(), 0.0);
        }
        round_to_stored(j, work, out);
        bounds[PRIMAL] = fresh_value(problem, work);
        bounds[DUAL] = std::min(bounds[PRIMAL], bounds[DUAL]);
        if (converged) out.converged[j] = SPOILT;
    }

    // The objective of work.v by a new pass over the data.  Sets: work.objective.z.
    double fresh_value(const BinaryProblem<Matrix> &problem, Work &work) const {
        BinaryObjective<Matrix, Loss> objective(problem, work.objective);
        objective.move_to(work.v.data());
        return objective.value(work.v.data());
    }
};

}  // namespace widemargin
