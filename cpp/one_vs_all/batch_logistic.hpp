// One-vs-all with the logistic loss on sparse rows: batched subspace search for 16 labels at once (every row counts, so
// there are no working sets), with 16 labels at once certified over all rows in float64. If float32 steps do not reach
// the stopping rule and the gap, the truncated Newton method continues from where they stopped. It also solves
// one-sided labels.
//
// Labels are independent; results do not depend on the number of threads. Memory: a copy of the rows with 8 bytes per
// entry, and a work area per thread of 600 bytes per column and 200 bytes per row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/logistic_search.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/newton_solver.hpp"
#include "one_vs_all/row_store.hpp"
#include "one_vs_all/sparse_certificate.hpp"
#include "simd/threads.hpp"

namespace widemargin {

// The certificate of the logistic loss for up to 16 labels at once, in float64 over all rows of the store.
//
//     σ_i = 1 / (1 + e^{m_i}),  α_i = c_i σ_i,  u = Σ y_i α_i x_i,  D = Σ c_i H(σ_i) − ½‖u‖² (− ½ (Σ y_i α_i)²)
//
// H(σ) = −σ log σ − (1 − σ) log(1 − σ) = φ(m) + σ m. With a free intercept, the α of the heavier side are multiplied by
// 1 − δ so that Σ y_i α_i = 0; any such α is feasible. H is concave with H' = m and H'' = −1 / (σ (1 − σ)), so
//
//     Σ c H((1 − δ) σ) ≥ Σ c H(σ) − δ Σ α m − ½ δ² / (1 − δ) Σ c e^−m,
//
// and ≥ (1 − δ) Σ c H(σ). What an intercept that is not optimal costs is thus of the order δ², and no search for the
// optimal one is needed. Negatives are summed by the vector kernel, positives (the rarer side) one by one, because
// their part of u is needed separately. Memory: 200 bytes per column and 2 bytes per row. Twin:
// tests/reference/logistic_certificate.py.
class LogisticCertificate {
  public:
    LogisticCertificate(const RowStore &store, const VectorKernels &kernels)
        : store_(store),
          kernels_(kernels),
          W_(aligned_floats(store.n_cols * LANES)),
          U_(aligned_array<double>(store.n_cols * LANES)),
          plus_(store.n_cols, 0.0),
          signs_(store.n_rows, 0) {}

    // What is known about one label's weights: the bounds, and the intercept to try next if they are too loose.
    struct Outcome {
        LabelBounds bounds;
        double next_bias = 0;
    };

    // Certifies n ≤ LANES labels; `out` has room for n.
    void evaluate(const std::vector<const Candidate *> &candidates, double prune, Outcome *out) {
        const int n = static_cast<int>(candidates.size());
        args_ = CertificateArgs{};
        for (int lane = 0; lane < n; ++lane) set(lane, *candidates[lane]);
        args_.n_rows = store_.n_rows;
        args_.n_cols = store_.n_used;
        args_.entries = store_.entries.get();
        args_.start = store_.start.data();
        args_.exact = store_.exact.empty() ? nullptr : store_.exact.data();
        args_.weight = store_.weight.data();
        args_.uniform = store_.uniform;
        args_.signs = signs_.data();
        args_.W = W_.get();
        args_.U = U_.get();
        args_.least_kept = least_kept(prune);
        kernels_.logistic_certificate(args_);
        Positives positives[LANES];
        for (int lane = 0; lane < n; ++lane) positives[lane] = add_positives(lane, candidates[lane]->label);
        kernels_.certificate_columns(args_);
        for (int lane = 0; lane < n; ++lane) {
            out[lane] = fill(lane, candidates[lane]->label, positives[lane]);
            clear(lane, *candidates[lane]);
        }
    }

  private:
    const RowStore &store_;
    const VectorKernels &kernels_;
    AlignedFloats W_;              // (n_cols, LANES)
    AlignedArray<double> U_;       // (n_cols, LANES) Σ y α x
    std::vector<double> plus_;     // (n_cols,) the positives' part of one lane
    std::vector<uint16_t> signs_;  // (n_rows,)
    CertificateArgs args_{};

    static size_t place(uint32_t col, int lane) { return static_cast<size_t>(col) * LANES + lane; }

    // A weight w is kept if !(|w| < prune); the smallest float that is.
    static float least_kept(double prune) {
        const float least = static_cast<float>(prune);
        return static_cast<double>(least) < prune ? std::nextafter(least, std::numeric_limits<float>::infinity())
                                                  : least;
    }

    void set(int lane, const Candidate &candidate) {
        const LabelWeights &weights = candidate.weights;
        for (size_t k = 0; k < weights.cols.size(); ++k) W_[place(weights.cols[k], lane)] = weights.vals[k];
        for (uint32_t i : candidate.label.positives) signs_[i] = static_cast<uint16_t>(signs_[i] | (1u << lane));
        args_.bias[lane] = weights.bias;
        args_.negative_factor[lane] = candidate.label.negative_factor;
    }

    void clear(int lane, const Candidate &candidate) {
        for (uint32_t col : candidate.weights.cols) W_[place(col, lane)] = 0;
        for (uint32_t i : candidate.label.positives) signs_[i] = 0;
    }

    // Sums over one side.
    struct Side {
        double loss = 0, kept_loss = 0, entropy = 0, alpha = 0, curvature = 0, odds = 0;

        // A lower bound on Σ c H if the α of this side are multiplied by `share`, see above.
        double entropy_at(double share) const {
            const double delta = 1 - share,
                         tangent = entropy - delta * (entropy - loss) - 0.5 * delta * delta / share * odds;
            return std::max(share * entropy, share > 0 ? tangent : 0.0);
        }
    };

    // The positives' side, ‖plus‖² and plus·minus, where u = plus − minus.
    struct Positives {
        Side sums;
        double squares = 0, cross = 0;
    };

    // Adds the positives' part of u to U.
    Positives add_positives(int lane, const LabelProblem &label) {
        Positives out;
        for (uint32_t i : label.positives) {
            const double alpha = add_positive(lane, i, store_.weight[i] * label.positive_factor, out.sums);
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                plus_[store_.entries[k].col] += alpha * store_.value(k);
            }
        }
        for (uint32_t i : label.positives) {  // sees the sum of a column once, later zero
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                double &plus = plus_[store_.entries[k].col], &u = U_[place(store_.entries[k].col, lane)];
                out.squares += plus * plus;
                out.cross -= plus * u;
                u += plus;
                plus = 0;
            }
        }
        return out;
    }

    // Returns α of row i, a positive.
    double add_positive(int lane, uint32_t i, double c, Side &sums) const {
        double s = 0, kept = 0;
        for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
            const float w = W_[place(store_.entries[k].col, lane)];
            const double term = store_.value(k) * w;
            s += term;
            kept += std::abs(w) >= args_.least_kept ? term : 0.0;
        }
        s += args_.bias[lane];
        kept += args_.bias[lane];
        const double e = std::exp(-std::abs(s)), sigma = (s < 0 ? 1.0 : e) / (1 + e), alpha = c * sigma;
        const double value = std::log1p(e) + std::max(0.0, -s);
        sums.loss += c * value;
        sums.kept_loss += c * Logistic::value(kept);
        sums.entropy += c * (value + sigma * s);
        sums.alpha += alpha;
        sums.curvature += alpha * (s < 0 ? e : 1.0) / (1 + e);
        sums.odds += c * std::exp(-s);
        return alpha;
    }

    Outcome fill(int lane, const LabelProblem &label, const Positives &positives) const {
        const Side negative{args_.loss[lane],  args_.kept_loss[lane], args_.entropy[lane],
                            args_.alpha[lane], args_.curvature[lane], args_.odds[lane]};
        const Side &positive = positives.sums;
        const bool free_bias = label.has_bias && label.bias_penalty == 0;
        const double imbalance = positive.alpha - negative.alpha, bias = args_.bias[lane];
        const double share = std::min(positive.alpha, negative.alpha) / std::max(positive.alpha, negative.alpha);
        const double plus_share = free_bias && imbalance > 0 ? share : 1.0;
        const double minus_share = free_bias && imbalance < 0 ? share : 1.0;
        const double minus_squares = args_.u_norm[lane] - positives.squares + 2 * positives.cross;
        const double u_bias = label.has_bias && !free_bias ? imbalance : 0.0;
        const double squared_u = plus_share * plus_share * positives.squares -
                                 2 * plus_share * minus_share * positives.cross +
                                 minus_share * minus_share * minus_squares + u_bias * u_bias;
        const double bias_gradient = label.has_bias ? label.bias_penalty * bias - imbalance : 0.0;
        const double penalty = 0.5 * label.bias_penalty * bias * bias;
        const double norm = args_.norm[lane], kept_norm = args_.kept_norm[lane];
        Outcome out;
        LabelBounds &bounds = out.bounds;
        bounds.primal_before_pruning = 0.5 * norm + penalty + positive.loss + negative.loss;
        bounds.primal = 0.5 * kept_norm + penalty + positive.kept_loss + negative.kept_loss;
        bounds.pruned_share = norm > 0 ? 1 - kept_norm / norm : 0.0;
        bounds.gradient_norm = std::sqrt(args_.residual[lane] + bias_gradient * bias_gradient);
        bounds.dual =
            std::max(0.0, positive.entropy_at(plus_share) + negative.entropy_at(minus_share) - 0.5 * squared_u);
        bounds.valid = bounds.pruned_valid = true;
        out.next_bias = bias - bias_gradient / (positive.curvature + negative.curvature + label.bias_penalty);
        return out;
    }
};

constexpr double LOGISTIC_ACCEPT_SHARE = 0.999;     // of rule and gap; allows for the rounding of the check itself
constexpr int MAX_BIAS_CORRECTIONS = 2;             // Newton steps of the intercept, if the bounds are too loose
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

    // Solves the labels of a block; `out.coef` must be zero. Work areas are kept for the next block.
    void solve(const LabelBlock &labels, const BlockResult<T> &out) {
        std::vector<int64_t> order(labels.n_labels);
        std::iota(order.begin(), order.end(), int64_t{0});
        // Frequent labels take more iterations: started first, they do not keep a batch alive at the end.
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return n_rare(labels, a) > n_rare(labels, b); });
        std::atomic<int64_t> taken{0};
        const int64_t useful = (labels.n_labels + LANES - 1) / LANES;
        const int n_threads = static_cast<int>(std::min<int64_t>(std::max(1, options_.n_threads), useful));
        if (static_cast<int>(workers_.size()) < n_threads) workers_.resize(n_threads);
        parallel_for(n_threads, n_threads, [&](int, int64_t k) {
            if (!workers_[k]) workers_[k] = std::make_unique<Worker>(store_, kernels_);
            Worker &worker = *workers_[k];
            worker.batch.run([&](Candidate &c) { return next(labels, order, taken, worker, c, out); },
                             [&](Candidate &&c) { finish(labels, worker, std::move(c), out); });
            while (!worker.waiting.empty()) certify(labels, worker, out);
        });
    }

  private:
    // A label that is to be certified, and how often it was.
    struct Waiting {
        Candidate candidate;
        int attempts = 0;
    };
    struct Worker {
        LogisticSearch batch;
        LogisticCertificate certificate;
        std::vector<double> scratch;
        std::vector<Waiting> waiting;
        Worker(const RowStore &store, const VectorKernels &kernels)
            : batch(store, kernels), certificate(store, kernels), scratch(store.n_cols, 0.0) {}
    };
    const Matrix &X_;
    const OneVsAllOptions options_;
    const VectorKernels &kernels_;
    RowStore store_;
    LabelSetup setup_;
    std::vector<std::unique_ptr<Worker>> workers_;  // one per thread

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

    void finish(const LabelBlock &labels, Worker &worker, Candidate &&candidate, const BlockResult<T> &out) const {
        const double size = candidate.weights.squared_norm() + std::abs(candidate.weights.bias);
        if (candidate.stuck || !std::isfinite(size)) return solve_plain(labels, candidate, out);
        worker.waiting.push_back({std::move(candidate)});
        while (worker.waiting.size() >= LANES) certify(labels, worker, out);  // labels may have to wait again
    }

    // Certifies the labels that wait. Those whose bounds are too loose wait again with another intercept, or are solved
    // by Newton.
    void certify(const LabelBlock &labels, Worker &worker, const BlockResult<T> &out) const {
        std::vector<Waiting> group = std::move(worker.waiting);
        worker.waiting.clear();
        std::vector<const Candidate *> candidates;
        for (const Waiting &one : group) candidates.push_back(&one.candidate);
        LogisticCertificate::Outcome outcomes[LANES];
        worker.certificate.evaluate(candidates, options_.prune, outcomes);
        for (size_t k = 0; k < group.size(); ++k) {
            Candidate &candidate = group[k].candidate;
            const LabelBounds &bounds = outcomes[k].bounds;
            const double next_bias = static_cast<float>(outcomes[k].next_bias);
            if (bounds.gradient_norm <= LOGISTIC_ACCEPT_SHARE * candidate.label.rule &&
                bounds.relative_gap() <= LOGISTIC_ACCEPT_SHARE * candidate.label.gap_tol) {
                accept(candidate, bounds, out);
            } else if (candidate.label.has_bias && group[k].attempts < MAX_BIAS_CORRECTIONS &&
                       std::isfinite(next_bias) && next_bias != candidate.weights.bias) {
                candidate.weights.bias = next_bias;
                worker.waiting.push_back({std::move(candidate), group[k].attempts + 1});
            } else {
                solve_plain(labels, candidate, out);
            }
        }
    }

    void accept(const Candidate &candidate, const LabelBounds &bounds, const BlockResult<T> &out) const {
        const int64_t j = candidate.index;
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

    // Truncated Newton in double precision on one label, from the candidate's weights if they passed the search. Those
    // that did not may be far from the optimum, where Newton can take more than 1,000 steps instead of 60 from zero.
    void solve_plain(const LabelBlock &labels, const Candidate &candidate, const BlockResult<T> &out) const {
        const int64_t j = candidate.index, n_iter = candidate.n_iter;
        if (candidate.solved && !candidate.stuck) write(candidate, 0.0, out);
        const LabelBlock one = labels.one(j);
        const OneVsAllOptions options = fallback_options(options_);
        const OneVsAllSolver<Matrix, Logistic> solver(X_, one, options);
        solver.solve({out.coef + j * X_.n_cols, out.intercept + j, out.bounds + j * N_BOUNDS, out.n_iter + j,
                      out.converged + j});
        out.n_iter[j] += n_iter;
    }
};

}  // namespace widemargin
