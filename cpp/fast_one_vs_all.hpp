// The door of the fast one-vs-all solver: builds the row store once, prepares labels, runs the schedulers (one a
// thread), and keeps every label as a pruned sparse row with its certificate.
//
// A label the schedulers do not finish is solved by the truncated Newton method of one_vs_all.hpp in double precision,
// started from where they stopped.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "batch_subspace.hpp"
#include "isa.hpp"
#include "label_scheduler.hpp"
#include "one_vs_all.hpp"
#include "parallel_for.hpp"
#include "row_store.hpp"
#include "squared_hinge.hpp"

namespace widemargin {

constexpr int64_t PILOT_LABELS_PER_BIN = 6;
constexpr double FREQUENT_SHARE = 0.04;  // of the rows in a first working set: beyond, all rows are as cheap
constexpr int64_t FEWEST_IN_BATCH = 4;
constexpr double FALLBACK_SHARE = 0.9;  // of the rule: rounding to float32 must not undo it

struct StoredLabel {
    std::vector<int32_t> cols;  // ascending
    std::vector<float> vals;
    float intercept = 0;
    double bounds[N_BOUNDS] = {};
    int64_t n_iter = 0;
    uint8_t converged = 0, plain = 0;
};

template <class Matrix>
class FastOneVsAll {
    using T = typename Matrix::value_type;

  public:
    FastOneVsAll(const Matrix &X, const double *row_weight, const OneVsAllOptions &options)
        : X_(X),
          row_weight_(row_weight),
          options_(options),
          store_(make_store()),
          shared_{store_, choose_kernels(), {}, false, {}, options.prune, {}} {
        set_slack(shared_);
        const int64_t size = std::min(X.n_rows, SAMPLE_ROWS);
        for (int64_t k = 0; k < size; ++k) shared_.sample.push_back(static_cast<uint32_t>(k * X.n_rows / size));
        row_sum_.assign(X.n_cols, 0.0);
        for (int64_t i = 0; i < X.n_rows; ++i) {
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                row_sum_[store_.entries[k].col] += store_.weight[i] * store_.value(k);
            }
            total_ += store_.weight[i];
            n_weighted_ += store_.weight[i] != 0;
        }
        for (double x : row_sum_) squared_row_sum_ += x * x;
    }

    std::vector<StoredLabel> solve(const LabelBlock &block) {
        std::vector<StoredLabel> stored(block.n_labels);
        std::vector<int64_t> pilot, rest;
        choose_pilot(block, pilot, rest);
        run(block, pilot, stored);
        if (!learnt_) {
            for (int64_t j : pilot) {
                if (stored[j].converged && !stored[j].plain) {
                    const int64_t P = n_positive(block, j);
                    shared_.prior.add(std::min(P, X_.n_rows - P),
                                      2 * P > X_.n_rows ? -stored[j].intercept : stored[j].intercept);
                }
            }
            learnt_ = true;
        }
        run(block, rest, stored);
        return stored;
    }
    SchedulerCounts counts;
    const char *instruction_set() const { return shared_.kernels.name; }

  private:
    const Matrix &X_;
    const double *row_weight_;
    OneVsAllOptions options_;
    RowStore store_;
    FastShared shared_;
    std::vector<double> row_sum_;  // Σ_i C weight_i x_i, in columns of the store
    double total_ = 0, squared_row_sum_ = 0;
    int64_t n_weighted_ = 0;
    bool learnt_ = false;
    std::mutex lock_;

    RowStore make_store() const {
        std::vector<double> cost(row_weight_, row_weight_ + X_.n_rows);
        for (double &c : cost) c *= options_.C;
        return build_row_store(X_, cost.data());
    }

    static int64_t n_positive(const LabelBlock &block, int64_t j) {
        return block.positive_indptr[j + 1] - block.positive_indptr[j];
    }

    // A few labels of every frequency, evenly spaced, to learn the usual bias on.
    void choose_pilot(const LabelBlock &block, std::vector<int64_t> &pilot, std::vector<int64_t> &rest) const {
        std::vector<std::vector<int64_t>> bins(64);
        for (int64_t j = 0; j < block.n_labels; ++j) {
            const int64_t P = n_positive(block, j), rare = std::min(P, X_.n_rows - P);
            bins[rare < 1 ? 0 : 63 - __builtin_clzll(static_cast<unsigned long long>(rare))].push_back(j);
        }
        std::vector<uint8_t> chosen(block.n_labels, 0);
        for (const auto &bin : bins) {
            const int64_t size = static_cast<int64_t>(bin.size()), take = std::min(size, PILOT_LABELS_PER_BIN);
            for (int64_t k = 0; k < take && !learnt_; ++k) chosen[bin[k * size / take]] = 1;
        }
        for (int64_t j = 0; j < block.n_labels; ++j) (chosen[j] ? pilot : rest).push_back(j);
    }

    bool is_frequent(const LabelBlock &block, int64_t j) const {
        const int64_t P = n_positive(block, j), rare = std::min(P, X_.n_rows - P);
        return wanted_seed_rows(rare) >= FREQUENT_SHARE * static_cast<double>(X_.n_rows);
    }

    void run(const LabelBlock &block, const std::vector<int64_t> &labels, std::vector<StoredLabel> &stored) {
        std::vector<int64_t> frequent, rest;
        for (int64_t j : labels) (is_frequent(block, j) ? frequent : rest).push_back(j);
        std::stable_sort(frequent.begin(), frequent.end(),
                         [&](int64_t a, int64_t b) { return n_positive(block, a) > n_positive(block, b); });
        Queue batch{frequent}, single{rest};
        const bool whole = static_cast<int64_t>(frequent.size()) < FEWEST_IN_BATCH;
        const int64_t wanted = (static_cast<int64_t>(labels.size()) + 3) / 4;
        const int n_threads = static_cast<int>(std::min<int64_t>(std::max(1, options_.n_threads), wanted));
        parallel_for(n_threads, n_threads, [&](int, int64_t) {
            LabelScheduler scheduler(shared_);
            auto keep_label = [&](int64_t index, const FinishedLabel &done) {
                keep(block, index, done, stored[index]);
            };
            if (!whole) run_batches(block, batch, scheduler, stored);
            if (whole) {
                scheduler.run([&](Candidate &c) { return take(block, batch, true, c, stored); }, keep_label);
            }
            scheduler.run([&](Candidate &c) { return take(block, single, false, c, stored); }, keep_label);
            const std::lock_guard<std::mutex> guard(lock_);
            counts.add(scheduler.counts);
        });
    }

    struct Queue {
        explicit Queue(const std::vector<int64_t> &all) : labels(all) {}
        const std::vector<int64_t> &labels;
        std::atomic<int64_t> taken{0};
    };

    // The next label of a queue that needs solving.
    bool take(const LabelBlock &block, Queue &queue, bool whole, Candidate &out,
              std::vector<StoredLabel> &stored) const {
        for (;;) {
            const int64_t k = queue.taken++;
            if (k >= static_cast<int64_t>(queue.labels.size())) return false;
            out = Candidate{};
            out.index = queue.labels[k];
            out.whole = whole;
            if (prepare(block, out.index, out.label, stored[out.index])) return true;
        }
    }

    // Frequent labels: found in batches over all rows, then checked like all others.
    void run_batches(const LabelBlock &block, Queue &queue, LabelScheduler &scheduler,
                     std::vector<StoredLabel> &stored) const {
        std::vector<Candidate> waiting;
        auto check = [&] {
            scheduler.run(
                [&](Candidate &c) {
                    if (waiting.empty()) return false;
                    c = std::move(waiting.back());
                    waiting.pop_back();
                    return true;
                },
                [&](int64_t index, const FinishedLabel &done) { keep(block, index, done, stored[index]); });
        };
        if (queue.taken >= static_cast<int64_t>(queue.labels.size())) return;
        BatchSubspace batch(store_, shared_.kernels);
        batch.run([&](Candidate &c) { return take(block, queue, false, c, stored); },
                  [&](Candidate &&c) {
                      waiting.push_back(std::move(c));
                      if (waiting.size() >= LANES) check();
                  });
        check();
    }

    struct Sides {
        double positive, negative;  // summed weights C · sample_weight · factor
    };

    // Fills the problem; false when the label needed no solving (one side is empty) or went to the plain solver.
    bool prepare(const LabelBlock &block, int64_t j, LabelProblem &label, StoredLabel &out) const {
        const int64_t *rows = block.positive_rows + block.positive_indptr[j], P = n_positive(block, j);
        double positive = 0;
        int64_t n_weighted = 0;
        label.positives.clear();
        for (int64_t k = 0; k < P; ++k) label.positives.push_back(store_.position[rows[k]]);
        std::sort(label.positives.begin(), label.positives.end());
        for (uint32_t i : label.positives) {
            positive += store_.weight[i];
            n_weighted += store_.weight[i] != 0;
        }
        const Sides sides{positive * block.positive_factor[j],
                          n_weighted == n_weighted_ ? 0.0 : (total_ - positive) * block.negative_factor[j]};
        out.bounds[PRIMAL_AT_ZERO] = sides.positive + sides.negative;
        label.has_bias = options_.bias_value != 0;
        label.bias_penalty = options_.bias_penalty;
        label.gap_tol = options_.gap_tol;
        const bool free_bias = label.has_bias && label.bias_penalty == 0;
        if (free_bias && (sides.positive == 0 || sides.negative == 0)) {
            out.intercept = sides.positive == 0 ? -1.0f : 1.0f;
            out.converged = 1;
            return false;
        }
        label.rule =
            options_.tol * rule_scale(label.positives, sides, block.positive_factor[j], block.negative_factor[j]);
        label.positive_factor = block.positive_factor[j];
        label.negative_factor = block.negative_factor[j];
        label.swapped = 2 * P > X_.n_rows;
        if (label.swapped) swap_sides(label);
        if (!label.has_bias || label.positives.empty()) {
            solve_plain(block, j, nullptr, out);
            return false;
        }
        return true;
    }

    static void swap_sides(LabelProblem &label, int64_t n_rows) {
        std::vector<uint32_t> others;
        auto positive = label.positives.begin();
        for (uint32_t i = 0; i < n_rows; ++i) {
            if (positive != label.positives.end() && *positive == i) {
                ++positive;
            } else {
                others.push_back(i);
            }
        }
        label.positives.swap(others);
        std::swap(label.positive_factor, label.negative_factor);
    }
    void swap_sides(LabelProblem &label) const { swap_sides(label, X_.n_rows); }

    // max(1, min(P, N)) / n · ‖∇f(0)‖; ∇f(0) = −2 Σ c_i y_i (x_i, 1) from the sums of positive and of all rows.
    double rule_scale(const std::vector<uint32_t> &positives, const Sides &sides, double pf, double nf) const {
        double squares = 0, cross = 0, sum = 0;
        std::vector<std::pair<uint32_t, double>> parts;
        for (uint32_t i : positives) {
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                parts.emplace_back(store_.entries[k].col, store_.weight[i] * store_.value(k));
            }
            sum += store_.weight[i];
        }
        std::sort(parts.begin(), parts.end());
        for (size_t k = 0; k < parts.size();) {
            double x = 0;
            const uint32_t col = parts[k].first;
            for (; k < parts.size() && parts[k].first == col; ++k) x += parts[k].second;
            squares += x * x;
            cross += x * row_sum_[col];
        }
        const double both = pf + nf, bias = options_.bias_value * (both * sum - nf * total_);
        const double norm = both * both * squares - 2 * both * nf * cross + nf * nf * squared_row_sum_ + bias * bias;
        const double C = options_.C, total = (sides.positive + sides.negative) / C;
        const double rare = std::min(sides.positive, sides.negative) / C;
        return 2 * std::sqrt(std::max(0.0, norm)) * std::min(1.0, std::max(1.0, rare) / total);
    }

    void keep(const LabelBlock &block, int64_t j, const FinishedLabel &done, StoredLabel &out) const {
        const int64_t P = n_positive(block, j);
        const bool swapped = 2 * P > X_.n_rows;
        if (!done.accepted || !done.bounds.pruned_valid) {
            solve_plain(block, j, &done.weights, out);
            out.n_iter += done.n_iter;
            return;
        }
        std::vector<std::pair<int32_t, float>> kept;
        for (size_t k = 0; k < done.weights.cols.size(); ++k) {
            const float w = done.weights.vals[k];
            if (std::abs(static_cast<double>(w)) < options_.prune) continue;
            kept.emplace_back(static_cast<int32_t>(store_.col_id[done.weights.cols[k]]), swapped ? -w : w);
        }
        std::sort(kept.begin(), kept.end());
        out.cols.reserve(kept.size());
        out.vals.reserve(kept.size());
        for (const auto &[col, w] : kept) {
            out.cols.push_back(col);
            out.vals.push_back(w);
        }
        out.intercept = static_cast<float>(swapped ? -done.weights.bias : done.weights.bias);
        out.bounds[PRIMAL] = done.bounds.primal;
        out.bounds[DUAL] = std::min(done.bounds.dual, done.bounds.primal_before_pruning);
        out.bounds[PRIMAL_BEFORE_PRUNING] = done.bounds.primal_before_pruning;
        out.bounds[PRUNED_SHARE] = done.bounds.pruned_share;
        out.n_iter = done.n_iter;
        out.converged = 1;
    }

    // Truncated Newton in double precision on one label, from the given weights (or zero).
    void solve_plain(const LabelBlock &block, int64_t j, const SparseWeights *start, StoredLabel &out) const {
        std::vector<T> coef(X_.n_cols, T{0});
        T intercept = 0;
        const double sign = 2 * n_positive(block, j) > X_.n_rows ? -1 : 1;
        if (start != nullptr) {
            for (size_t k = 0; k < start->cols.size(); ++k) {
                coef[store_.col_id[start->cols[k]]] = static_cast<T>(sign * start->vals[k]);
            }
            intercept = static_cast<T>(sign * start->bias);
        }
        const LabelBlock one{1,           block.positive_rows,       block.positive_indptr + j,
                             row_weight_, block.positive_factor + j, block.negative_factor + j};
        OneVsAllOptions options = options_;
        options.tol *= FALLBACK_SHARE;
        options.n_threads = 1;
        OneVsAllSolver<Matrix, SquaredHinge>(X_, one, options)
            .solve({coef.data(), &intercept, out.bounds, &out.n_iter, &out.converged});
        for (int64_t k = 0; k < X_.n_cols; ++k) {
            if (coef[k] == 0) continue;
            out.cols.push_back(static_cast<int32_t>(k));
            out.vals.push_back(static_cast<float>(coef[k]));
        }
        out.intercept = static_cast<float>(intercept);
        out.plain = 1;
    }
};

}  // namespace widemargin
