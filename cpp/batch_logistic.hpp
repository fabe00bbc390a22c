// One-vs-all with the logistic loss on sparse rows: the batched subspace search for 16 labels at once (every row
// counts, so there are no working sets), each label certified over all rows in float64. A label that float32 steps do
// not finish to the rule and the gap goes to the truncated Newton method from where they stopped, and so do labels of
// one side.
//
// Labels are independent; results do not depend on the number of threads. Memory: the rows once more in 8 bytes an
// entry, and a work area a thread of 300 bytes a column and 220 bytes a row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "batch_subspace.hpp"
#include "isa.hpp"
#include "label_setup.hpp"
#include "logistic.hpp"
#include "logistic_certificate.hpp"
#include "one_vs_all.hpp"
#include "parallel_for.hpp"
#include "row_store.hpp"

namespace widemargin {

constexpr double LOGISTIC_ACCEPT_SHARE = 0.999;     // of rule and gap, for the rounding of the check itself
constexpr double LOGISTIC_FALLBACK_SHARE = 0.9;     // of the rule: rounding to float32 must not undo it
constexpr double LOGISTIC_RULE_FACTOR = 0.5 / 2.0;  // |φ'(0)| over that of the squared hinge, which LabelSetup knows

template <class Matrix>
class BatchLogistic {
    using T = typename Matrix::value_type;

  public:
    BatchLogistic(const Matrix &X, const double *row_weight, const OneVsAllOptions &options)
        : X_(X),
          row_weight_(row_weight),
          options_(options),
          kernels_(choose_kernels()),
          store_(make_store()),
          setup_(store_, options_) {}

    BatchLogistic(const BatchLogistic &) = delete;
    BatchLogistic &operator=(const BatchLogistic &) = delete;

    // Solves the labels of a block; `out.coef` must be zero.
    void solve(const LabelBlock &labels, const BlockResult<T> &out) const {
        std::vector<int64_t> order(labels.n_labels);
        std::iota(order.begin(), order.end(), int64_t{0});
        // Frequent labels take more iterations: begun first, they do not keep a batch alive at the end.
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
    const double *row_weight_;
    const OneVsAllOptions options_;
    const VectorKernels &kernels_;
    RowStore store_;
    LabelSetup setup_;

    RowStore make_store() const {
        std::vector<double> cost(row_weight_, row_weight_ + X_.n_rows);
        for (double &c : cost) c *= options_.C;
        return build_row_store(X_, cost.data());
    }

    int64_t n_rare(const LabelBlock &labels, int64_t j) const {
        const int64_t n = labels.positive_indptr[j + 1] - labels.positive_indptr[j];
        return std::min(n, X_.n_rows - n);
    }

    // The next label for a lane; those of one side only are finished on the way.
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

    // Truncated Newton in double precision on one label, from the candidate's weights if they are numbers.
    void solve_plain(const LabelBlock &labels, const Candidate &candidate, const BlockResult<T> &out) const {
        const int64_t j = candidate.index, n_iter = candidate.n_iter;
        if (std::isfinite(candidate.weights.squared_norm() + candidate.weights.bias)) write(candidate, 0.0, out);
        const LabelBlock one{1,           labels.positive_rows,       labels.positive_indptr + j,
                             row_weight_, labels.positive_factor + j, labels.negative_factor + j};
        OneVsAllOptions options = options_;
        options.tol *= LOGISTIC_FALLBACK_SHARE;
        options.n_threads = 1;
        const OneVsAllSolver<Matrix, Logistic> solver(X_, one, options);
        solver.solve({out.coef + j * X_.n_cols, out.intercept + j, out.bounds + j * N_BOUNDS, out.n_iter + j,
                      out.converged + j});
        out.n_iter[j] += n_iter;
    }
};

}  // namespace widemargin
