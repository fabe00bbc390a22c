// The entry point of the fast one-vs-all solver. It builds the row store once, learns the usual intercept from pilot
// labels, runs one worker per thread over two queues (frequent labels in batches over all rows, the others on working
// sets), and keeps every label as a pruned sparse row with its certificate.
//
// A label that the schedulers do not finish is solved by truncated Newton (one_vs_all/newton_solver.hpp) in double
// precision, starting from where they stopped.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "one_vs_all/batch_certificate.hpp"
#include "one_vs_all/batch_search.hpp"
#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/newton_solver.hpp"
#include "one_vs_all/row_store.hpp"
#include "one_vs_all/scheduler.hpp"
#include "simd/threads.hpp"

namespace widemargin {

// Turns the weights of a finished label into a row of the model: pruned, with the original signs, columns of X
// ascending. Never dense: it takes only the memory of the row itself.
struct StoredLabel {
    std::vector<int32_t> cols;  // ascending
    std::vector<float> vals;
    float intercept = 0;
    double bounds[N_BOUNDS] = {};
    int64_t n_iter = 0;
    uint8_t converged = 0;
    uint8_t plain = 0;           // finished by the plain Newton solver
    std::vector<RowDual> duals;  // of the lower bound, by row of X, ascending; empty unless they are kept
};

class ModelWriter {
  public:
    ModelWriter(const RowStore &store, double prune)
        : store_(store), prune_(prune), dense_(store.n_cols), used_((store.n_cols + 63) / 64, 0) {}

    // Sorts by a bitmap of the columns: one bit per kept weight, read back in order.
    void write(const LabelWeights &weights, bool swapped, StoredLabel &out) {
        const float sign = swapped ? -1.0f : 1.0f;
        size_t n_kept = 0;
        for (size_t k = 0; k < weights.cols.size(); ++k) {  // without a branch, which would be unpredictable
            const uint32_t col = store_.col_id[weights.cols[k]];
            const bool kept = !(std::abs(static_cast<double>(weights.vals[k])) < prune_);
            dense_[col] = sign * weights.vals[k];
            used_[col / 64] |= uint64_t{kept} << (col % 64);
            n_kept += kept;
        }
        out.cols.resize(n_kept);
        out.vals.resize(n_kept);
        size_t at = 0;
        for (size_t word = 0; at < n_kept; ++word) {
            for (uint64_t bits = used_[word]; bits != 0; bits &= bits - 1) {
                const size_t col = word * 64 + static_cast<size_t>(__builtin_ctzll(bits));
                out.cols[at] = static_cast<int32_t>(col);
                out.vals[at++] = dense_[col];
            }
            used_[word] = 0;
        }
        out.intercept = sign * static_cast<float>(weights.bias);
    }

  private:
    const RowStore &store_;
    double prune_;
    std::vector<float> dense_;
    std::vector<uint64_t> used_;
};

constexpr int64_t PILOT_LABELS_PER_BIN = 6;
constexpr double FREQUENT_SHARE =
    0.04;  // of all rows in a first working set: above this, a batch over all rows is as cheap
// The same with a given start, whose working sets hold mostly active rows: on debian-tags, 0.06 to 0.1 take 10 to 20 %
// less time than 0.04 at C = 1 and 8, and the same at C = 1/8.
constexpr double CARRIED_FREQUENT_SHARE = 0.08;
constexpr int64_t FEWEST_IN_BATCH = 4;  // fewer frequent labels are solved one by one, on all rows
constexpr int64_t FULL_BATCHES = 4;     // batches that a worker must be able to fill
// The labels of a queue are sorted by frequency, the most frequent first, so that threads end with small pieces, and
// within chunks of this size so that the first labels finish first. On two threads and debian-tags, it makes no
// difference whether the labels on working sets are sorted (.582 and .580 s, 26 turns), or whether every second thread
// solves them before the batches (.578 s): two processes that share nothing are as slow. What a second thread makes
// slower are the passes of batches over all rows, the dots by 22 % and the gradient by 30 % (samples of both threads
// together): the tables of two batches and the rows do not fit into the shared cache.
constexpr int64_t SORTED_LABELS = 512;

// Labels still to be solved, shared by the threads.
struct LabelQueue {
    std::vector<int64_t> labels;
    bool whole = false;      // see Candidate
    int lanes = SCAN_LANES;  // that a thread may fill so that a few labels are shared evenly
    std::atomic<int64_t> taken{0};
    int64_t left() const { return static_cast<int64_t>(labels.size()) - taken; }
    bool empty() const { return left() <= 0; }
};

// What the weights of a label depend on besides the data and the label itself; decided from all labels of a fit.
struct SharedChoices {
    std::vector<int64_t> pilot;  // labels from which the usual intercept is learned
    bool whole = false;          // too few frequent labels for a batch
    BiasPrior prior;
};

template <class Matrix>
class FastOneVsAll {
    using T = typename Matrix::value_type;

  public:
    FastOneVsAll(const Matrix &X, const double *row_weight, const OneVsAllOptions &options)
        : X_(X),
          options_(options),
          store_(build_row_store(X, row_weight, options.C, options.n_threads)),
          setup_(store_, options_),
          shared_(make_shared(store_, choose_kernels(choose_instruction_set()), options.prune)) {}

    FastOneVsAll(const FastOneVsAll &) = delete;
    FastOneVsAll &operator=(const FastOneVsAll &) = delete;

    // Makes passes over single labels possible (one_vs_all/screened_pass.hpp), unless some value is below zero.
    void index_rows() { shared_.index = build_row_index(store_); }

    // Makes labels carry the dual points of their bounds; call it before `begin`.
    void keep_duals() { shared_.keep_duals = true; }

    // Takes all labels of the fit; the arrays must outlive the solver. Makes the choices that depend on more than one
    // label, so they do not depend on the ranges that are solved together: which labels are frequent enough to
    // share batches, and the usual intercept, learned from pilot labels, which are solved here, from given starts, and
    // from labels of the same rows that were solved before, whose intercepts are `known`.
    void begin(const LabelBlock &labels, const WeightsView &start = {}, const BiasPrior &known = {}) {
        take_labels(labels, start);
        int64_t n_frequent = 0;
        for (int64_t j = 0; j < labels.n_labels; ++j) n_frequent += is_frequent(j);
        shared_choices_ = {{}, n_frequent < FEWEST_IN_BATCH, known};
        choose_pilot();
        run(shared_choices_.pilot);
        for (int64_t j : shared_choices_.pilot) {
            if (!finished_[j] || stored_[j]->plain || !stored_[j]->converged) continue;
            shared_choices_.prior.add(n_rare(j), is_swapped(j) ? -stored_[j]->intercept : stored_[j]->intercept);
        }
        shared_.prior = shared_choices_.prior;
    }

    // Takes some labels of a fit, and the choices that `begin` made for all of its labels; `pilot` are the pilot labels
    // among these, and `start` has their rows. Each label gets the weights that it has in the whole fit: pilot labels
    // are solved again without the usual intercept.
    void begin_part(const LabelBlock &labels, const SharedChoices &choices, const WeightsView &start = {}) {
        take_labels(labels, start);
        shared_choices_ = choices;
        run(choices.pilot);
        shared_.prior = choices.prior;
    }

    // The choices of `begin`.
    const SharedChoices &shared_choices() const { return shared_choices_; }

    // Solves labels first … last − 1, except those already solved.
    void solve(int64_t first, int64_t last) {
        std::vector<int64_t> labels;
        for (int64_t j = first; j < last; ++j) {
            if (!finished_[j]) labels.push_back(j);
        }
        run(labels);
    }

    // From any thread: makes `begin` and `solve` return soon, dropping the labels in progress; they must not be called
    // again.
    void stop() { stop_ = true; }

    // Hands over labels first … last − 1; may be called while `solve` runs. Stops at the first unfinished label, unless
    // `all`, and after `max_weights` weights.
    std::vector<StoredLabel> take(int64_t first, int64_t last, bool all, int64_t max_weights) {
        std::vector<StoredLabel> labels;
        int64_t n_weights = 0;
        for (int64_t j = first; j < last && n_weights < max_weights; ++j) {
            if (!finished_[j] && !all) break;
            labels.push_back(stored_[j] ? std::move(*stored_[j]) : StoredLabel{});
            stored_[j].reset();
            n_weights += static_cast<int64_t>(labels.back().cols.size() + labels.back().duals.size());
        }
        return labels;
    }

    bool is_finished(int64_t j) const { return finished_[j]; }
    // A finished label, or null once it was handed over.
    const StoredLabel *finished_label(int64_t j) const { return stored_[j].get(); }

  private:
    const Matrix &X_;
    const OneVsAllOptions options_;
    RowStore store_;
    LabelSetup setup_;
    FastShared shared_;
    std::unique_ptr<const SharedDirections> directions_;  // of long rows, found when the first batch needs them
    LabelBlock labels_{};
    GivenStart start_;
    std::vector<std::unique_ptr<StoredLabel>> stored_;  // from the start of a label until it is handed over
    std::vector<std::atomic<uint8_t>> finished_;
    std::atomic<bool> stop_{false};
    SharedChoices shared_choices_;

    // The work area of one thread.
    struct Worker {
        const FastShared &shared;
        ModelWriter writer;
        std::vector<double> scratch;
        explicit Worker(const FastShared &given)
            : shared(given), writer(given.store, given.prune), scratch(given.store.n_cols, 0.0) {}

        // Made when it is first needed: a fit of frequent labels may do without.
        LabelScheduler &scheduler() {
            if (!scheduler_) scheduler_ = std::make_unique<LabelScheduler>(shared);
            return *scheduler_;
        }

      private:
        std::unique_ptr<LabelScheduler> scheduler_;
    };

    // Kept from the pilot labels to the others: new memory costs time.
    std::vector<std::unique_ptr<Worker>> workers_;

    // Sets: labels_, start_. Resets what is finished and the usual intercept.
    void take_labels(const LabelBlock &labels, const WeightsView &start) {
        labels_ = labels;
        start_ = GivenStart(store_, start);
        stored_ = std::vector<std::unique_ptr<StoredLabel>>(labels.n_labels);
        finished_ = std::vector<std::atomic<uint8_t>>(labels.n_labels);
        shared_.prior = {};
    }

    bool is_swapped(int64_t j) const { return 2 * labels_.n_positive(j) > X_.n_rows; }
    int64_t n_rare(int64_t j) const { return std::min(labels_.n_positive(j), X_.n_rows - labels_.n_positive(j)); }
    bool is_frequent(int64_t j) const {
        const double wanted = static_cast<double>(wanted_seed_rows(n_rare(j)));
        const double share = start_.has(j) ? CARRIED_FREQUENT_SHARE : FREQUENT_SHARE;
        return options_.bias_value == 0 || wanted >= share * static_cast<double>(X_.n_rows);
    }

    // A few evenly spaced labels of every frequency on the working-set path. Labels that were solved before and labels
    // with a given start go first: their intercepts are known, and need not be solved for.  Sets: the pilot labels and
    // the usual intercept of shared_choices_.
    void choose_pilot() {
        std::vector<std::vector<int64_t>> carried(BiasPrior::BINS), bins(BiasPrior::BINS);
        for (int64_t j = 0; j < labels_.n_labels; ++j) {
            if (!is_frequent(j)) (start_.has(j) ? carried : bins)[BiasPrior::bin(n_rare(j))].push_back(j);
        }
        for (int b = 0; b < BiasPrior::BINS; ++b) {
            const double n_known = std::min<double>(shared_choices_.prior.counts()[b], PILOT_LABELS_PER_BIN);
            int64_t missing = PILOT_LABELS_PER_BIN - static_cast<int64_t>(n_known);
            const std::vector<int64_t> started = evenly_spaced(carried[b], missing);
            for (int64_t j : started) shared_choices_.prior.add(n_rare(j), start_.intercept(j, is_swapped(j)));
            missing -= static_cast<int64_t>(started.size());
            for (int64_t j : evenly_spaced(bins[b], missing)) shared_choices_.pilot.push_back(j);
        }
    }

    static std::vector<int64_t> evenly_spaced(const std::vector<int64_t> &labels, int64_t most) {
        const int64_t size = static_cast<int64_t>(labels.size()), take = std::min(size, most);
        std::vector<int64_t> chosen;
        for (int64_t k = 0; k < take; ++k) chosen.push_back(labels[k * size / take]);
        return chosen;
    }

    void run(const std::vector<int64_t> &labels) {
        if (labels.empty()) return;
        LabelQueue frequent, rest;
        for (int64_t j : labels) {
            (is_frequent(j) ? frequent : rest).labels.push_back(j);
        }
        frequent.whole = shared_choices_.whole;
        const int64_t n_frequent = static_cast<int64_t>(frequent.labels.size());
        const int64_t useful = (static_cast<int64_t>(labels.size()) + FEWEST_IN_BATCH - 1) / FEWEST_IN_BATCH;
        const int n_threads = static_cast<int>(std::min<int64_t>(std::max(1, options_.n_threads), useful));
        for (LabelQueue *queue : {&frequent, &rest}) {
            sort_by_frequency(queue->labels);
            const int64_t share = (queue->left() + n_threads - 1) / n_threads;
            queue->lanes = static_cast<int>(std::min<int64_t>(SCAN_LANES, std::max(share, FEWEST_IN_BATCH)));
        }
        const bool long_rows = store_.nnz() >= SHARED_ROW_LENGTH * store_.n_rows;
        if (n_frequent > 0 && !frequent.whole && long_rows && directions_ == nullptr) {
            directions_ = std::make_unique<const SharedDirections>(find_shared_directions(store_, shared_.kernels));
        }
        workers_.resize(std::max<size_t>(workers_.size(), n_threads));
        parallel_for(n_threads, n_threads, [&](int, int64_t number) {
            if (!workers_[number]) workers_[number] = std::make_unique<Worker>(shared_);
            Worker &worker = *workers_[number];
            // The lanes of every batch run empty at its end, so only as many workers run batches as can fill their
            // lanes several times. The other labels come last, because they are smaller pieces.
            const bool batches = number == 0 || n_frequent >= (number + 1) * FULL_BATCHES * LANES;
            if (!frequent.whole && batches) run_batches(frequent, worker);
            if (frequent.whole) run_singles(frequent, worker);
            run_singles(rest, worker);
        });
    }

    void sort_by_frequency(std::vector<int64_t> &labels) const {
        const int64_t n = static_cast<int64_t>(labels.size());
        for (int64_t first = 0; first < n; first += SORTED_LABELS) {
            std::stable_sort(labels.begin() + first, labels.begin() + std::min(n, first + SORTED_LABELS),
                             [&](int64_t a, int64_t b) { return n_rare(a) > n_rare(b); });
        }
    }

    void run_singles(LabelQueue &queue, Worker &worker) {
        if (queue.empty()) return;
        worker.scheduler().run(
            stop_, queue.lanes, [&](Candidate &c) { return next(queue, worker, c); },
            [&](const FinishedLabel &done) { keep(done, worker, *stored_[done.index]); });
    }

    // Frequent labels: solved and certified in batches over all rows. The few that are not accurate enough go on as
    // working sets.
    void run_batches(LabelQueue &queue, Worker &worker) {
        if (queue.empty()) return;
        std::vector<Candidate> waiting;
        BatchSubspace batch(store_, shared_.kernels, directions_.get());
        BatchCertificate certificate(store_, shared_.kernels, options_.prune, shared_.keep_duals);
        auto check = [&] {
            certificate.run([&](Candidate &&c, const LabelBounds &bounds) {
                if (is_accurate(bounds, c.label)) {
                    keep({c.index, std::move(c.weights), bounds, c.n_iter, true, std::move(c.duals)}, worker,
                         *stored_[c.index]);
                } else {
                    waiting.push_back(std::move(c));
                }
            });
        };
        batch.run(
            stop_, [&](Candidate &c) { return next(queue, worker, c); },
            [&](Candidate &&c) {
                if (c.stuck) {
                    keep({c.index, std::move(c.weights), {}, c.n_iter, false, {}}, worker, *stored_[c.index]);
                } else {
                    certificate.add(std::move(c));
                }
                if (certificate.full()) check();
            });
        if (!stop_ && !certificate.empty()) check();
        if (waiting.empty()) return;
        worker.scheduler().run(
            stop_, SCAN_LANES,
            [&](Candidate &c) {
                if (waiting.empty()) return false;
                c = std::move(waiting.back());
                waiting.pop_back();
                return true;
            },
            [&](const FinishedLabel &done) { keep(done, worker, *stored_[done.index]); });
    }

    // The next label of a queue that needs solving; the others are finished on the way.
    bool next(LabelQueue &queue, Worker &worker, Candidate &out) {
        while (!stop_) {
            const int64_t k = queue.taken++;
            if (k >= static_cast<int64_t>(queue.labels.size())) return false;
            out = Candidate{};
            out.index = queue.labels[k];
            out.whole = queue.whole;
            stored_[out.index] = std::make_unique<StoredLabel>();
            StoredLabel &label = *stored_[out.index];
            const LabelSides sides = setup_.prepare(labels_, out.index, worker.scratch, out.label);
            label.bounds[PRIMAL_AT_ZERO] = sides.positive + sides.negative;
            if (sides.one_sided() && out.label.has_bias && out.label.bias_penalty == 0) {
                const double margin = SquaredHinge::one_sided_margin;
                label.intercept = static_cast<float>(sides.positive == 0 ? -margin : margin);
                label.converged = 1;
            } else if (out.label.positives.empty()) {
                solve_plain(out.index, LabelWeights{}, label);
            } else {
                if (start_.has(out.index)) out.weights = start_.label(out.index, out.label.swapped);
                if (!out.label.has_bias) out.weights.bias = 0;
                out.carried = !out.weights.cols.empty();
                return true;
            }
            finished_[out.index] = 1;
        }
        return false;
    }

    void keep(const FinishedLabel &done, Worker &worker, StoredLabel &out) {
        if (done.accepted && done.bounds.pruned_valid) {
            keep_accepted(done, worker, out);
        } else {
            solve_plain(done.index, done.weights, out);
            out.n_iter += done.n_iter;
        }
        finished_[done.index] = 1;  // last, because another thread may then take the label
    }

    void keep_accepted(const FinishedLabel &done, Worker &worker, StoredLabel &out) const {
        worker.writer.write(done.weights, is_swapped(done.index), out);
        out.bounds[PRIMAL] = done.bounds.primal;
        out.bounds[DUAL] = std::min(done.bounds.dual, done.bounds.primal_before_pruning);
        out.bounds[PRIMAL_BEFORE_PRUNING] = done.bounds.primal_before_pruning;
        out.bounds[PRUNED_SHARE] = done.bounds.pruned_share;
        out.n_iter = done.n_iter;
        out.converged = 1;
        if (done.bounds.dual > 0) out.duals = done.duals;  // else the bound is that of α = 0
        for (RowDual &entry : out.duals) entry.row = static_cast<int32_t>(store_.row_id[entry.row]);
        std::sort(out.duals.begin(), out.duals.end(), [](const RowDual &a, const RowDual &b) { return a.row < b.row; });
    }

    // Truncated Newton in double precision on one label.
    void solve_plain(int64_t j, const LabelWeights &start, StoredLabel &out) const {
        const double sign = is_swapped(j) ? -1 : 1;
        std::vector<T> coef(X_.n_cols, T{0});
        const bool usable = std::isfinite(start.squared_norm() + start.bias);
        for (size_t k = 0; usable && k < start.cols.size(); ++k) {
            coef[store_.col_id[start.cols[k]]] = static_cast<T>(sign * start.vals[k]);
        }
        T intercept = static_cast<T>(usable ? sign * start.bias : 0.0);
        const LabelBlock one = labels_.one(j);
        const OneVsAllOptions options = fallback_options(options_);
        const OneVsAllSolver<Matrix, SquaredHinge> solver(X_, one, options);
        std::vector<RowDual> *duals = shared_.keep_duals ? &out.duals : nullptr;
        solver.solve({coef.data(), &intercept, out.bounds, &out.n_iter, &out.converged, duals});
        if (sizeof(T) > sizeof(float)) certify_rounded(one, options, coef, intercept, out);
        for (int64_t k = 0; k < X_.n_cols; ++k) {
            if (coef[k] == 0) continue;
            out.cols.push_back(static_cast<int32_t>(k));
            out.vals.push_back(static_cast<float>(coef[k]));
        }
        out.intercept = static_cast<float>(intercept);
        out.plain = 1;
    }

    // Weights are kept in float32: rounds them and lets the solver, with no step allowed, certify the result.
    void certify_rounded(const LabelBlock &one, OneVsAllOptions options, std::vector<T> &coef, T &intercept,
                         StoredLabel &out) const {
        for (T &w : coef) w = static_cast<T>(static_cast<float>(w));
        intercept = static_cast<T>(static_cast<float>(intercept));
        options.max_iter = 0;
        const double share = out.bounds[PRUNED_SHARE], before = out.bounds[PRIMAL_BEFORE_PRUNING];
        const double dual = out.bounds[DUAL];
        int64_t no_steps = 0;
        uint8_t ignored = 0;
        const OneVsAllSolver<Matrix, SquaredHinge> solver(X_, one, options);
        std::vector<RowDual> duals;
        solver.solve({coef.data(), &intercept, out.bounds, &no_steps, &ignored, shared_.keep_duals ? &duals : nullptr});
        // Pruning happened before: keeps what is known about the weights before it, and the better lower bound.
        out.bounds[PRUNED_SHARE] = share;
        out.bounds[PRIMAL_BEFORE_PRUNING] = before;
        if (out.bounds[DUAL] > dual) out.duals = std::move(duals);
        out.bounds[DUAL] = std::max(out.bounds[DUAL], dual);
        if (share > 0 || out.bounds[PRIMAL] <= (1 + ROUNDING_GAP) * out.bounds[PRIMAL_AT_ZERO]) return;
        // Rounding to float32 has made the weights worse than zero.
        std::fill(coef.begin(), coef.end(), T{0});
        intercept = T{0};
        out.bounds[PRIMAL] = out.bounds[PRIMAL_BEFORE_PRUNING] = out.bounds[PRIMAL_AT_ZERO];
        if (out.converged == CONVERGED) out.converged = ENDED_EARLY;
    }
};

}  // namespace widemargin
