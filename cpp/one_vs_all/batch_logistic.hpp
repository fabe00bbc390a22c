// One-vs-all with the logistic loss on sparse rows: batched subspace search for 16 labels at once (every row counts, so
// there are no working sets), with each label certified over all rows in float64. If float32 steps do not reach the
// stopping rule and the gap, the truncated Newton method continues from where they stopped. It also solves one-sided
// labels.
//
// Labels are independent; results do not depend on the number of threads. Memory: a copy of the rows with 8 bytes per
// entry, and a work area per thread of 300 bytes per column and 220 bytes per row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "one_vs_all/batch_search.hpp"
#include "one_vs_all/certificate.hpp"
#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/newton_solver.hpp"
#include "one_vs_all/row_store.hpp"
#include "one_vs_all/sparse_certificate.hpp"
#include "simd/threads.hpp"

namespace widemargin {

// The certificate of one label's weights under the logistic loss, in float64 over all rows of the store.
//
//     σ_i = 1 / (1 + e^{m_i}),  α_i = c_i σ_i,  u = Σ y_i α_i x_i,  D = Σ c_i (φ(m_i) + σ_i m_i) − ½‖u‖² (− ½ (Σ y_i
//     α_i)²)
//
// The terms are the entropies −α log(α/c) − (c − α) log(1 − α/c), written in terms of φ. A free intercept is first
// moved to its exact optimum for w; the rounding error in Σ y_i α_i is removed by shrinking the α of the heavier side
// by 1 − δ. The entropy H is concave with H(0) = 0, so that side keeps at least (1 − δ) of its sum, and u moves by at
// most |Σ y_i α_i| max‖x‖. The bound accounts for both without another pass. Twin:
// tests/reference/binary_certificate.py.

class LogisticCertificate {
  public:
    explicit LogisticCertificate(const RowStore &store)
        : store_(store),
          w_(store.n_cols, Pair{0.0f, 0.0f}),
          u_(store.n_cols, 0.0),
          scores_(store.n_rows),
          kept_scores_(store.n_rows),
          cost_(store.n_rows) {}

    // Moves a free intercept to its optimum (rounded to float32) and certifies the result.
    LabelBounds evaluate(const LabelProblem &label, double prune, LabelWeights &weights) {
        const bool free_bias = label.has_bias && label.bias_penalty == 0;
        LabelBounds bounds;
        scatter(weights, prune);
        set_costs(label);
        score_rows();
        if (free_bias) weights.bias = static_cast<float>(optimal_bias(weights.bias));
        fill_bounds(label, free_bias, weights.bias, bounds);
        bounds.valid = bounds.pruned_valid = true;
        for (uint32_t col : weights.cols) w_[col] = {0.0f, 0.0f};
        return bounds;
    }

  private:
    const RowStore &store_;
    struct Pair {
        float all, kept;  // a weight, and the same weight or 0 after pruning
    };
    typedef double Scores __attribute__((vector_size(16)));  // for all weights, and for the kept ones
    std::vector<Pair> w_;                                    // (n_cols,)
    std::vector<double> u_;                                  // (n_cols,) Σ y α x
    std::vector<double> scores_, kept_scores_;               // (n_rows,) without intercept
    std::vector<double> cost_;                               // (n_rows,) y c, and finally y α
    double norm_ = 0, kept_norm_ = 0;

    void scatter(const LabelWeights &weights, double prune) {
        norm_ = kept_norm_ = 0;
        for (size_t k = 0; k < weights.cols.size(); ++k) {
            const double w = weights.vals[k];
            const bool keep = !(std::abs(w) < prune);
            w_[weights.cols[k]] = {weights.vals[k], keep ? weights.vals[k] : 0.0f};
            norm_ += w * w;
            kept_norm_ += keep ? w * w : 0.0;
        }
    }

    void set_costs(const LabelProblem &label) {
        for (int64_t i = 0; i < store_.n_rows; ++i) cost_[i] = -store_.weight[i] * label.negative_factor;
        for (uint32_t i : label.positives) cost_[i] = store_.weight[i] * label.positive_factor;
    }

    Scores entry_scores(int64_t k) const {
        const Pair w = w_[store_.entries[k].col];
        const double x = store_.value(k);
        return Scores{x, x} * Scores{static_cast<double>(w.all), static_cast<double>(w.kept)};
    }

    // Two chains of additions per row, because each addition waits for the previous one.
    void score_rows() {
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            Scores even{0, 0}, odd{0, 0};
            int64_t k = store_.start[i];
            for (; k + 2 <= store_.start[i + 1]; k += 2) {
                even += entry_scores(k);
                odd += entry_scores(k + 1);
            }
            if (k < store_.start[i + 1]) even += entry_scores(k);
            even += odd;
            scores_[i] = even[0];
            kept_scores_[i] = even[1];
        }
    }

    // argmin over b of Σ |c| φ(y (s + b)): Newton inside a bracket, like optimal_shift in one_vs_all/certificate.hpp.
    double optimal_bias(double b) const {
        double low = -std::numeric_limits<double>::infinity(), high = -low;
        for (int step = 0; step < MAX_BIAS_STEPS; ++step) {
            double derivative = 0, curvature = 0, size = 0;
            for (int64_t i = 0; i < store_.n_rows; ++i) {
                const double y = std::copysign(1.0, cost_[i]);
                const auto [slope, second] = Logistic::derivatives(y * (scores_[i] + b));
                derivative += cost_[i] * slope;
                curvature += std::abs(cost_[i]) * second;
                size -= std::abs(cost_[i]) * slope;
            }
            if (!(std::abs(derivative) > BIAS_ACCURACY * size)) break;
            (derivative < 0 ? low : high) = b;
            const double newton = b - derivative / curvature;
            const double next = newton > low && newton < high ? newton : bisection_point(low, high, b, derivative);
            if (next == b || !std::isfinite(next)) break;
            b = next;
        }
        return b;
    }
    static constexpr double BIAS_ACCURACY = 1e-9;  // relative; the intercept is rounded to float32 afterwards

    // Σ of the losses at scores + intercept
    double losses(const std::vector<double> &scores, double bias) const {
        double sum = 0;
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            sum += std::abs(cost_[i]) * Logistic::value(std::copysign(1.0, cost_[i]) * (scores[i] + bias));
        }
        return sum;
    }

    // Sums over the rows of the negatives [0] and the positives [1].
    struct SideTerms {
        double alpha[2] = {0, 0}, entropy[2] = {0, 0}, loss = 0;
    };

    // Sets: cost_ = y α.
    SideTerms dual_point(double bias) {
        SideTerms sums;
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            const double c = std::abs(cost_[i]), y = std::copysign(1.0, cost_[i]), m = y * (scores_[i] + bias);
            const double e = std::exp(-std::abs(m)), sigma = (m < 0 ? 1.0 : e) / (1 + e);
            const double value = std::log1p(e) + (m < 0 ? -m : 0.0);
            sums.loss += c * value;
            sums.alpha[y > 0] += c * sigma;
            sums.entropy[y > 0] += c * std::max(0.0, value + sigma * m);
            cost_[i] *= sigma;
        }
        return sums;
    }

    void add_rows() {
        std::fill(u_.begin(), u_.begin() + store_.n_used, 0.0);
        double *__restrict u = u_.data();
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            const double a = cost_[i];
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                u[store_.entries[k].col] += a * store_.value(k);
            }
        }
    }

    void fill_bounds(const LabelProblem &label, bool free_bias, double bias, LabelBounds &bounds) {
        const double penalty = 0.5 * label.bias_penalty * bias * bias;
        bounds.pruned_share = norm_ > 0 ? 1 - kept_norm_ / norm_ : 0.0;
        if (kept_norm_ < norm_) bounds.primal = 0.5 * kept_norm_ + penalty + losses(kept_scores_, bias);
        SideTerms sums = dual_point(bias);
        bounds.primal_before_pruning = 0.5 * norm_ + penalty + sums.loss;
        if (!(kept_norm_ < norm_)) bounds.primal = bounds.primal_before_pruning;
        add_rows();
        const double imbalance = sums.alpha[1] - sums.alpha[0], heavier = std::max(sums.alpha[0], sums.alpha[1]);
        if (free_bias && heavier > 0) sums.entropy[imbalance > 0] *= 1 - std::abs(imbalance) / heavier;
        double u_norm = 0, residual = 0;
        for (int64_t k = 0; k < store_.n_used; ++k) {
            u_norm += u_[k] * u_[k];
            residual += (w_[k].all - u_[k]) * (w_[k].all - u_[k]);
        }
        const double u = std::sqrt(u_norm) + (free_bias ? std::abs(imbalance) * store_.max_norm : 0.0);
        const double u_bias = label.has_bias && !free_bias ? imbalance : 0.0;
        const double bias_gradient = label.has_bias ? label.bias_penalty * bias - imbalance : 0.0;
        bounds.gradient_norm = std::sqrt(residual + bias_gradient * bias_gradient);
        bounds.dual = std::max(0.0, sums.entropy[0] + sums.entropy[1] - 0.5 * (u * u + u_bias * u_bias));
    }
};

constexpr double LOGISTIC_ACCEPT_SHARE = 0.999;     // of rule and gap; allows for the rounding of the check itself
constexpr double LOGISTIC_RULE_FACTOR = 0.5 / 2.0;  // |φ'(0)| relative to the squared hinge, which LabelSetup assumes

template <class Matrix>
class BatchLogistic {
    using T = typename Matrix::value_type;

  public:
    BatchLogistic(const Matrix &X, const double *row_weight, const OneVsAllOptions &options)
        : X_(X),
          options_(options),
          kernels_(choose_kernels(choose_instruction_set())),
          store_(build_row_store(X, row_weight, options.C)),
          setup_(store_, options_) {}

    BatchLogistic(const BatchLogistic &) = delete;
    BatchLogistic &operator=(const BatchLogistic &) = delete;

    // Solves the labels of a block; `out.coef` must be zero.
    void solve(const LabelBlock &labels, const BlockResult<T> &out) const {
        std::vector<int64_t> order(labels.n_labels);
        std::iota(order.begin(), order.end(), int64_t{0});
        // Frequent labels take more iterations: started first, they do not keep a batch alive at the end.
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return n_rare(labels, a) > n_rare(labels, b); });
        std::atomic<int64_t> taken{0};
        const std::atomic<bool> never{false};  // stopped between blocks of labels
        const int64_t useful = (labels.n_labels + LANES - 1) / LANES;
        const int n_threads = static_cast<int>(std::min<int64_t>(std::max(1, options_.n_threads), useful));
        parallel_for(n_threads, n_threads, [&](int, int64_t) {
            Worker worker(store_, kernels_);
            worker.batch.run(
                never, [&](Candidate &c) { return next(labels, order, taken, worker, c, out); },
                [&](Candidate &&c) { finish(labels, worker, c, out); });
        });
    }

  private:
    struct Worker {
        BatchSubspace<Logistic> batch;
        LogisticCertificate certificate;
        std::vector<double> scratch;
        Worker(const RowStore &store, const VectorKernels &kernels)
            : batch(store, kernels), certificate(store), scratch(store.n_cols, 0.0) {}
    };
    const Matrix &X_;
    const OneVsAllOptions options_;
    const VectorKernels &kernels_;
    RowStore store_;
    LabelSetup setup_;

    int64_t n_rare(const LabelBlock &labels, int64_t j) const {
        return std::min(labels.n_positive(j), X_.n_rows - labels.n_positive(j));
    }

    // The next label for a lane; one-sided labels are finished on the way.
    bool next(const LabelBlock &labels, const std::vector<int64_t> &order, std::atomic<int64_t> &taken, Worker &worker,
              Candidate &candidate, const BlockResult<T> &out) const {
        for (;;) {
            const int64_t k = taken++;
            if (k >= labels.n_labels) return false;
            candidate = Candidate{};
            candidate.index = order[k];
            const LabelSides sides = setup_.prepare(labels, candidate.index, worker.scratch, candidate.label);
            candidate.label.rule *= LOGISTIC_RULE_FACTOR;
            if (!sides.one_sided() && !candidate.label.positives.empty()) {
                double *bounds = out.bounds + candidate.index * N_BOUNDS;
                bounds[PRIMAL_AT_ZERO] = (sides.positive + sides.negative) * Logistic::value(0.0);
                return true;
            }
            solve_plain(labels, candidate, out);
        }
    }

    void finish(const LabelBlock &labels, Worker &worker, Candidate &candidate, const BlockResult<T> &out) const {
        const int64_t j = candidate.index;
        const double size = candidate.weights.squared_norm() + std::abs(candidate.weights.bias);
        if (candidate.stuck || !std::isfinite(size)) return solve_plain(labels, candidate, out);
        const LabelBounds bounds = worker.certificate.evaluate(candidate.label, options_.prune, candidate.weights);
        if (!(bounds.gradient_norm <= LOGISTIC_ACCEPT_SHARE * candidate.label.rule) ||
            !(bounds.relative_gap() <= LOGISTIC_ACCEPT_SHARE * candidate.label.gap_tol)) {
            return solve_plain(labels, candidate, out);
        }
        write(candidate, options_.prune, out);
        double *stored = out.bounds + j * N_BOUNDS;
        stored[PRIMAL] = bounds.primal;
        stored[PRIMAL_BEFORE_PRUNING] = bounds.primal_before_pruning;
        stored[DUAL] = std::min(bounds.dual, bounds.primal_before_pruning);
        stored[PRUNED_SHARE] = bounds.pruned_share;
        out.n_iter[j] = candidate.n_iter;
        out.converged[j] = CONVERGED;
    }

    void write(const Candidate &candidate, double prune, const BlockResult<T> &out) const {
        const double sign = candidate.label.swapped ? -1 : 1;
        T *coef = out.coef + candidate.index * X_.n_cols;
        for (size_t k = 0; k < candidate.weights.cols.size(); ++k) {
            const double w = candidate.weights.vals[k];
            if (!(std::abs(w) < prune)) coef[store_.col_id[candidate.weights.cols[k]]] = static_cast<T>(sign * w);
        }
        out.intercept[candidate.index] = static_cast<T>(sign * candidate.weights.bias);
    }

    // Truncated Newton in double precision on one label, from the candidate's weights if they are finite.
    void solve_plain(const LabelBlock &labels, const Candidate &candidate, const BlockResult<T> &out) const {
        const int64_t j = candidate.index, n_iter = candidate.n_iter;
        if (std::isfinite(candidate.weights.squared_norm() + candidate.weights.bias)) write(candidate, 0.0, out);
        const LabelBlock one = labels.one(j);
        const OneVsAllOptions options = fallback_options(options_);
        const OneVsAllSolver<Matrix, Logistic> solver(X_, one, options);
        solver.solve({out.coef + j * X_.n_cols, out.intercept + j, out.bounds + j * N_BOUNDS, out.n_iter + j,
                      out.converged + j});
        out.n_iter[j] += n_iter;
    }
};

}  // namespace widemargin
