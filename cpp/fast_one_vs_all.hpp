// The door of the fast one-vs-all solver: builds the row store once, learns the usual bias on pilot labels, runs one
// worker a thread over two queues (frequent labels in batches over all rows, the others on working sets), and keeps
// every label as a pruned sparse row with its certificate.
//
// A label the schedulers do not finish is solved by the truncated Newton method of one_vs_all.hpp in double precision,
// started from where they stopped. Twin: reference/fast_one_vs_all.py.
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
#include "label_setup.hpp"
#include "model_writer.hpp"
#include "one_vs_all.hpp"
#include "parallel_for.hpp"
#include "row_store.hpp"
#include "squared_hinge.hpp"

namespace widemargin {

constexpr int64_t PILOT_LABELS_PER_BIN = 6;
constexpr double FREQUENT_SHARE =
    0.04;                               // of all rows in a first working set: beyond, a batch over all rows is as cheap
constexpr int64_t FEWEST_IN_BATCH = 4;  // fewer frequent labels are solved on all rows one by one
constexpr double FALLBACK_SHARE = 0.9;  // of the rule: rounding to float32 must not undo it

// Labels still to be solved, shared by the threads.
struct LabelQueue {
    std::vector<int64_t> labels;
    bool whole = false;  // see Candidate
    std::atomic<int64_t> taken{0};
    bool empty() const { return taken >= static_cast<int64_t>(labels.size()); }
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
          setup_(store_, options_),
          shared_(make_shared(store_, choose_kernels(), options.prune)) {}

    FastOneVsAll(const FastOneVsAll &) = delete;
    FastOneVsAll &operator=(const FastOneVsAll &) = delete;

    // The usual bias is learnt on the first block of labels and then frozen.
    std::vector<StoredLabel> solve(const LabelBlock &block) {
        std::vector<StoredLabel> stored(block.n_labels);
        std::vector<int64_t> pilot, rest;
        choose_pilot(block, pilot, rest);
        run(block, pilot, stored);
        for (int64_t j : pilot) {
            if (stored[j].plain || !stored[j].converged) continue;
            const bool swapped = 2 * n_positive(block, j) > X_.n_rows;
            shared_.prior.add(n_rare(block, j), swapped ? -stored[j].intercept : stored[j].intercept);
        }
        learnt_ = true;
        run(block, rest, stored);
        return stored;
    }

    SchedulerCounts counts;
    const char *instruction_set() const { return shared_.kernels.name; }

  private:
    const Matrix &X_;
    const double *row_weight_;
    const OneVsAllOptions options_;
    RowStore store_;
    LabelSetup setup_;
    FastShared shared_;
    bool learnt_ = false;
    std::mutex lock_;

    // What one thread works with.
    struct Worker {
        LabelScheduler scheduler;
        ModelWriter writer;
        std::vector<double> scratch;
        explicit Worker(const FastShared &shared)
            : scheduler(shared), writer(shared.store, shared.prune), scratch(shared.store.n_cols, 0.0) {}
    };

    RowStore make_store() const {
        std::vector<double> cost(row_weight_, row_weight_ + X_.n_rows);
        for (double &c : cost) c *= options_.C;
        return build_row_store(X_, cost.data());
    }

    static int64_t n_positive(const LabelBlock &block, int64_t j) {
        return block.positive_indptr[j + 1] - block.positive_indptr[j];
    }
    int64_t n_rare(const LabelBlock &block, int64_t j) const {
        return std::min(n_positive(block, j), X_.n_rows - n_positive(block, j));
    }
    bool is_frequent(const LabelBlock &block, int64_t j) const {
        return options_.bias_value == 0 || static_cast<double>(wanted_seed_rows(n_rare(block, j))) >=
                                               FREQUENT_SHARE * static_cast<double>(X_.n_rows);
    }

    // A few labels of every frequency on the working-set path, evenly spaced.
    void choose_pilot(const LabelBlock &block, std::vector<int64_t> &pilot, std::vector<int64_t> &rest) const {
        std::vector<std::vector<int64_t>> bins(BiasPrior::BINS);
        for (int64_t j = 0; j < block.n_labels; ++j) {
            if (!is_frequent(block, j)) bins[BiasPrior::bin(n_rare(block, j))].push_back(j);
        }
        std::vector<uint8_t> chosen(block.n_labels, 0);
        for (const auto &bin : bins) {
            const int64_t size = static_cast<int64_t>(bin.size()), take = std::min(size, PILOT_LABELS_PER_BIN);
            for (int64_t k = 0; k < take && !learnt_; ++k) chosen[bin[k * size / take]] = 1;
        }
        for (int64_t j = 0; j < block.n_labels; ++j) (chosen[j] ? pilot : rest).push_back(j);
    }

    void run(const LabelBlock &block, const std::vector<int64_t> &labels, std::vector<StoredLabel> &stored) {
        if (labels.empty()) return;
        LabelQueue frequent, rest;
        for (int64_t j : labels) (is_frequent(block, j) ? frequent : rest).labels.push_back(j);
        std::stable_sort(frequent.labels.begin(), frequent.labels.end(),
                         [&](int64_t a, int64_t b) { return n_rare(block, a) > n_rare(block, b); });
        frequent.whole = static_cast<int64_t>(frequent.labels.size()) < FEWEST_IN_BATCH;
        const int64_t useful = (static_cast<int64_t>(labels.size()) + FEWEST_IN_BATCH - 1) / FEWEST_IN_BATCH;
        const int n_threads = static_cast<int>(std::min<int64_t>(std::max(1, options_.n_threads), useful));
        parallel_for(n_threads, n_threads, [&](int, int64_t) {
            Worker worker(shared_);
            if (!frequent.whole) run_batches(block, frequent, worker, stored);
            run_singles(block, frequent, worker, stored);
            run_singles(block, rest, worker, stored);
            const std::lock_guard<std::mutex> guard(lock_);
            counts.add(worker.scheduler.counts);
        });
    }

    void run_singles(const LabelBlock &block, LabelQueue &queue, Worker &worker,
                     std::vector<StoredLabel> &stored) const {
        if (queue.empty()) return;
        worker.scheduler.run([&](Candidate &c) { return take(block, queue, worker, c, stored); },
                             [&](const FinishedLabel &done) { keep(block, done, worker, stored[done.index]); });
    }

    // Frequent labels: found in batches over all rows, then checked like all others.
    void run_batches(const LabelBlock &block, LabelQueue &queue, Worker &worker,
                     std::vector<StoredLabel> &stored) const {
        if (queue.empty()) return;
        std::vector<Candidate> waiting;
        auto take_waiting = [&](Candidate &c) {
            if (waiting.empty()) return false;
            c = std::move(waiting.back());
            waiting.pop_back();
            return true;
        };
        auto check = [&] {
            worker.scheduler.run(take_waiting,
                                 [&](const FinishedLabel &done) { keep(block, done, worker, stored[done.index]); });
        };
        BatchSubspace batch(store_, shared_.kernels);
        batch.run([&](Candidate &c) { return take(block, queue, worker, c, stored); },
                  [&](Candidate &&c) {
                      waiting.push_back(std::move(c));
                      if (waiting.size() >= LANES) check();
                  });
        check();
    }

    // The next label of a queue that needs solving; the others are finished on the way.
    bool take(const LabelBlock &block, LabelQueue &queue, Worker &worker, Candidate &out,
              std::vector<StoredLabel> &stored) const {
        for (;;) {
            const int64_t k = queue.taken++;
            if (k >= static_cast<int64_t>(queue.labels.size())) return false;
            out = Candidate{};
            out.index = queue.labels[k];
            out.whole = queue.whole;
            StoredLabel &label = stored[out.index];
            const LabelSides sides = setup_.prepare(block, out.index, worker.scratch, out.label);
            label.bounds[PRIMAL_AT_ZERO] = sides.positive + sides.negative;
            if (sides.one_sided() && out.label.has_bias && out.label.bias_penalty == 0) {
                const double margin = SquaredHinge::one_sided_margin;
                label.intercept = static_cast<float>(sides.positive == 0 ? -margin : margin);
                label.converged = 1;
            } else if (out.label.positives.empty()) {
                solve_plain(block, out.index, SparseWeights{}, label);
            } else {
                return true;
            }
        }
    }

    void keep(const LabelBlock &block, const FinishedLabel &done, Worker &worker, StoredLabel &out) const {
        if (!done.accepted || !done.bounds.pruned_valid) {
            solve_plain(block, done.index, done.weights, out);
            out.n_iter += done.n_iter;
            return;
        }
        worker.writer.write(done.weights, 2 * n_positive(block, done.index) > X_.n_rows, out);
        out.bounds[PRIMAL] = done.bounds.primal;
        out.bounds[DUAL] = std::min(done.bounds.dual, done.bounds.primal_before_pruning);
        out.bounds[PRIMAL_BEFORE_PRUNING] = done.bounds.primal_before_pruning;
        out.bounds[PRUNED_SHARE] = done.bounds.pruned_share;
        out.n_iter = done.n_iter;
        out.converged = 1;
    }

    // Truncated Newton in double precision on one label.
    void solve_plain(const LabelBlock &block, int64_t j, const SparseWeights &start, StoredLabel &out) const {
        const double sign = 2 * n_positive(block, j) > X_.n_rows ? -1 : 1;
        std::vector<T> coef(X_.n_cols, T{0});
        for (size_t k = 0; k < start.cols.size(); ++k) {
            coef[store_.col_id[start.cols[k]]] = static_cast<T>(sign * start.vals[k]);
        }
        T intercept = static_cast<T>(sign * start.bias);
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
