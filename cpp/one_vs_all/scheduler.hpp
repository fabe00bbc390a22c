// Moves labels through the slots of a batch: each label is in its own stage, and a finished slot is refilled at once.
//
//     seed    the pass scores all rows by the sum of the positives; the best rows form the first working set,
//             solved with the intercept fixed at the usual one for labels of this frequency
//     check   (labels with a given start enter here)
//             the pass finds all rows near or inside the margin; the label is accepted if the stopping rule and the
//             certified gap hold over all rows in float64, else it is solved on positives + those rows; from the third
//             failure on, the old set is kept as well so that the set only grows and the process terminates
//     pruned  the pass finds the rows near the margin of the pruned weights, if check could not
//
// A pass is a batch pass over all rows for up to 32 labels, or, if the rows are indexed and the label has few positive
// weights, a screened pass, for which no label has to wait.
//
// The path of a label depends only on the label, so results do not depend on threads or neighbours.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "one_vs_all/batch_pass.hpp"
#include "one_vs_all/fast_shared.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/local_problem.hpp"
#include "one_vs_all/sparse_certificate.hpp"

namespace widemargin {

// Most values were measured on a prototype. Shares, band and quick rejection were later varied by factors of 2 to 10 on
// 400 labels of yso-finna-en: passes and iterations change by a few per cent, the time by less than its noise.
constexpr double SEED_RULE_SHARE = 2.0;  // accuracy of the first set's solution, in units of the stopping rule
// Accuracy of later solutions. With 0.8, 7 % of the iterations are saved on generated rows (60,000 of 12 entries, 395
// labels), but bounds move: on the Amazon-670K shape the dual falls by 1e-4.
constexpr double INNER_RULE_SHARE = 0.35, INNER_GAP_SHARE = 0.5;
constexpr double ACCEPT_SHARE = 0.999;      // of rule and gap; allows for the rounding of the check itself
constexpr double QUICK_REJECT_SHARE = 3.0;  // intercept gradient of the missing rows, in units of the stopping rule
constexpr double BAND = 0.03, BAND_SHARE = 0.4, MIN_BAND = 5e-3;
constexpr double CHECK_BAND = 0.01;           // lets the intercept move to its optimum; the slack of the rows is added
constexpr double SEED_THRESHOLD_SHARE = 1.2;  // rows requested per row wanted
constexpr int64_t SET_CAP = 1500, SET_CAP_SHARE = 2;
constexpr int64_t LARGE_SET_ENTRIES = 1 << 19;  // 4 MB
constexpr int FREE_ROUNDS = 2;                  // rounds before the old working set is kept
constexpr size_t FEW_NEGATIVES = 64;            // rows found in a pass; with fewer, the old set is kept as well
constexpr int MAX_ROUNDS = 12;
constexpr int LOCAL_MAX_ITER = 150;        // as in one_vs_all/batch_search.hpp
constexpr double RESCORE_ROUNDING = 1e-7;  // of a slack in float32
constexpr double TIGHTENING_SHARE = 0.3;   // of the inner target, if a solved set was not accurate enough

// Whether the stopping rule and the gap hold.
inline bool is_accurate(const LabelBounds &bounds, const LabelProblem &label) {
    return bounds.valid && bounds.gradient_norm <= ACCEPT_SHARE * label.rule &&
           bounds.relative_gap() <= ACCEPT_SHARE * label.gap_tol;
}

struct FinishedLabel {
    int64_t index = 0;
    LabelWeights weights;  // unpruned, in columns of the store
    LabelBounds bounds;
    int64_t n_iter = 0;
    bool accepted = false;
    std::vector<RowDual> duals;  // of its certificate, if they are kept
};

class LabelScheduler {
  public:
    explicit LabelScheduler(const FastShared &shared)
        : shared_(shared),
          store_(shared.store),
          pass_(shared.store, shared.packed, shared.kernels, shared.slack.data()),
          screened_(shared.store, shared.index, shared.kernels),
          local_(shared.store, shared.kernels),
          certificate_(shared.store, shared.kernels),
          dense_(shared.store.n_cols, 0.0f) {}

    // Takes labels from `next` (false: none left), at most n_lanes at a time, until all are finished or `stop` is set.
    // finish(FinishedLabel) is called once per label.
    template <class Next, class Finish>
    void run(const std::atomic<bool> &stop, int n_lanes, Next next, Finish finish) {
        while (!stop) {
            int busy = 0;
            for (int lane = 0; lane < n_lanes; ++lane) {
                while (!stop && slots_[lane].stage == Stage::FREE && start_next(lane, next))
                    proceed(lane, stop, finish);
                busy += slots_[lane].stage != Stage::FREE;
            }
            if (busy == 0 || stop) return;
            pass_.run();
            for (int lane = 0; lane < SCAN_LANES && !stop; ++lane) {
                Slot &slot = slots_[lane];
                if (slot.stage == Stage::FREE) continue;
                slot.found = pass_.emitted(lane);
                slot.waits = false;
                proceed(lane, stop, finish);
            }
        }
    }

  private:
    enum class Stage { FREE, SEED, CHECK, PRUNED };
    struct Slot {
        Stage stage = Stage::FREE;
        LabelProblem label;
        FinishedLabel result;
        std::vector<uint32_t> rows;  // working set
        Emission found{};            // rows that the last pass found
        bool waits = false;          // for the next batch pass
        double threshold = 0, accuracy = 1;
        int round = 0;
        bool covers_pruning = false;  // the awaited pass bounds the scores of the pruned weights as well
        bool complete = false;        // the weights come from all rows
        bool stuck = false;           // the last solve did not reach its target; only a check can still accept it
    };
    const FastShared &shared_;
    const RowStore &store_;
    BatchPass pass_;
    ScreenedPass screened_;
    LocalProblem local_;
    SparseCertificate certificate_;
    std::vector<float> dense_, sample_scores_;
    std::vector<RowView> chosen_, merged_;
    std::vector<float> scores_;
    std::vector<EmittedRow> rescored_;
    Slot slots_[SCAN_LANES];

    // Takes a label as far as it gets without a batch pass.
    template <class Finish>
    void proceed(int lane, const std::atomic<bool> &stop, Finish &finish) {
        Slot &slot = slots_[lane];
        while (!slot.waits && !stop) {
            if (!advance(lane, slot)) continue;
            pass_.clear(lane);
            slot.stage = Stage::FREE;
            finish(slot.result);
            return;
        }
    }

    // Finds the rows above the threshold: at once if the index of the rows makes that cheap, else in the next batch
    // pass.
    void find(int lane, Slot &slot, const LabelWeights &weights, double threshold, RowSlack slack) {
        slot.waits = !screened_.find(weights, threshold, slack != RowSlack::NONE);
        if (slot.waits) {
            pass_.set(lane, weights, threshold, slack);
        } else {
            slot.found = screened_.emitted();
        }
    }

    // False if no label is left.
    template <class Next>
    bool start_next(int lane, Next &next) {
        Slot &slot = slots_[lane];
        Candidate candidate;
        if (!next(candidate)) return false;
        slot.result = FinishedLabel{candidate.index, std::move(candidate.weights), {}, candidate.n_iter, false, {}};
        slot.label = std::move(candidate.label);
        slot.accuracy = 1;
        slot.stuck = false;
        slot.rows.clear();
        slot.complete = candidate.whole || candidate.solved;
        slot.round = slot.complete ? FREE_ROUNDS : 0;
        if (candidate.whole) solve_whole(slot, candidate.carried);
        if (!slot.complete && !candidate.carried) {
            start_seed(lane, slot);
        } else {
            slot.stage = Stage::CHECK;
            await(lane, slot);
        }
        return true;
    }

    // All rows at once: for a frequent label that has no batch to share.
    void solve_whole(Slot &slot, bool carried) {
        chosen_.clear();
        for (int64_t i = 0; i < store_.n_rows; ++i) chosen_.push_back(store_.view(static_cast<uint32_t>(i)));
        const double share = static_cast<double>(slot.label.positives.size()) / static_cast<double>(store_.n_rows);
        if (!carried) slot.result.weights.bias = slot.label.has_bias ? 2 * share - 1 : 0.0;
        solve(slot, {INNER_RULE_SHARE * slot.label.rule, INNER_GAP_SHARE * slot.label.gap_tol, !slot.label.has_bias,
                     LOCAL_MAX_ITER});
    }

    // Puts the sum of the positives into the lane; the threshold is estimated from the sample.
    void start_seed(int lane, Slot &slot) {
        for (uint32_t row : slot.label.positives) {
            for (int64_t k = store_.start[row]; k < store_.start[row + 1]; ++k) {
                dense_[store_.entries[k].col] += store_.entries[k].val;
            }
        }
        const float threshold = seed_threshold(slot.label);
        LabelWeights sum;
        for (uint32_t row : slot.label.positives) {  // sees the sum of a column once, later zero
            for (int64_t k = store_.start[row]; k < store_.start[row + 1]; ++k) {
                float &x = dense_[store_.entries[k].col];
                if (x == 0) continue;
                sum.cols.push_back(store_.entries[k].col);
                sum.vals.push_back(x);
                x = 0;
            }
        }
        find(lane, slot, sum, threshold, RowSlack::NONE);
        slot.stage = Stage::SEED;
    }

    float seed_threshold(const LabelProblem &label) {
        const int64_t n_sample = static_cast<int64_t>(shared_.sample_start.size()) - 1;
        sample_scores_.resize(n_sample);
        shared_.kernels.row_dots(n_sample, shared_.sample_start.data(), shared_.sample_entries.data(), dense_.data(),
                                 sample_scores_.data());
        const double wanted = SEED_THRESHOLD_SHARE * seed_rows(label.positives.size(), store_.n_rows);
        const int64_t size = static_cast<int64_t>(sample_scores_.size());
        const int64_t rank = std::min<int64_t>(size - 1, std::llround(wanted * size / store_.n_rows));
        std::nth_element(sample_scores_.begin(), sample_scores_.begin() + rank, sample_scores_.end(), std::greater<>());
        return std::max(sample_scores_[rank], SMALLEST_SEED_SCORE);
    }
    static constexpr float SMALLEST_SEED_SCORE = 1e-6f;  // excludes rows that share nothing with the positives

    // True when the label is finished.
    bool advance(int lane, Slot &slot) {
        if (slot.stage == Stage::PRUNED) return finish_pruned(slot);
        if (slot.stage == Stage::SEED) {
            choose_seed(slot);
            slot.result.weights.bias = shared_.prior(static_cast<int64_t>(slot.label.positives.size()));
            solve(slot,
                  {SEED_RULE_SHARE * slot.label.rule, std::numeric_limits<double>::infinity(), true, LOCAL_MAX_ITER});
            slot.stage = Stage::CHECK;
            slot.stuck = false;
            await(lane, slot);
            return false;
        }
        if (slot.round > 0) rescore(slot);
        if (slot.round > 0 && try_accept(slot)) {
            slot.result.accepted = true;
            if (slot.result.bounds.pruned_valid) return true;
            await_pruned(lane, slot);
            return false;
        }
        if (slot.stuck || ++slot.round > MAX_ROUNDS) return true;
        choose_grown(slot);
        if (is_too_large(chosen_)) {
            std::vector<RowView>().swap(chosen_);
            std::vector<RowView>().swap(merged_);
            return true;
        }
        slot.complete = false;
        const double share = slot.accuracy;
        solve(slot, {INNER_RULE_SHARE * share * slot.label.rule, INNER_GAP_SHARE * share * slot.label.gap_tol,
                     !slot.label.has_bias, LOCAL_MAX_ITER});
        await(lane, slot);
        return false;
    }

    // A local copy of most of the data would take more memory than all labels together usually do. Such a label (one in
    // thousands, for example with rows without features) is left to the Newton method, which copies nothing.
    bool is_too_large(const std::vector<RowView> &rows) const {
        int64_t n_entries = 0;
        for (const RowView &row : rows) n_entries += row.length;
        return n_entries > LARGE_SET_ENTRIES && n_entries > store_.nnz() / 2;
    }

    // Solves on the rows chosen_.  Sets: the slot's rows, weights, stuck.
    void solve(Slot &slot, const LocalTarget &target) {
        bool converged = false;
        local_.build(slot.label, chosen_, slot.result.weights);
        const int iterations = local_.solve(target, converged);
        local_.read(slot.result.weights);
        local_.trim();
        slot.stuck = !converged;
        slot.result.n_iter += iterations;
        slot.rows.clear();
        if (slot.complete) return;
        for (const RowView &view : chosen_) slot.rows.push_back(view.row);
    }

    // How far beyond the margin rows are added to a set.
    static double growth_band(double bias) { return std::max(MIN_BAND, std::min(BAND, BAND_SHARE * (-1 - bias))); }

    // Puts the weights into the lane for the next check; the first one never accepts.
    void await(int lane, Slot &slot) {
        const double bias = slot.result.weights.bias;
        if (slot.round == 0) {
            slot.threshold = -1 - growth_band(bias);
            find(lane, slot, slot.result.weights, slot.threshold, RowSlack::NONE);
            return;
        }
        slot.threshold = -1 - CHECK_BAND;
        slot.covers_pruning = shared_.covers_pruning(bias);
        find(lane, slot, shared_.envelope(slot.result.weights), slot.threshold,
             slot.covers_pruning ? RowSlack::PRUNING : RowSlack::UNBOUNDED_ROWS);
    }

    // Positives, the best rows of the pass, and some evenly spaced ones.  Sets: chosen_.
    void choose_seed(const Slot &slot) {
        const int64_t wanted = seed_rows(static_cast<int64_t>(slot.label.positives.size()), store_.n_rows);
        best_emitted(slot.found, -std::numeric_limits<float>::infinity(), wanted);
        add_rows(slot.label.positives);
        add_rows(shared_.spread);
    }

    // The best rows of the pass with a score above `least`, at most about `wanted`.  Sets: chosen_, ascending.
    void best_emitted(const Emission &found, float least, int64_t wanted) {
        if (found.n > wanted) {
            scores_.clear();
            for (int64_t k = 0; k < found.n; ++k) scores_.push_back(found.rows[k].score);
            std::nth_element(scores_.begin(), scores_.begin() + wanted, scores_.end(), std::greater<>());
            least = std::max(least, scores_[wanted]);
        }
        chosen_.resize(found.n + 1);
        size_t count = 0;
        for (int64_t k = 0; k < found.n; ++k) {
            chosen_[count] = found.view(k, store_);
            count += found.rows[k].score > least;
        }
        chosen_.resize(count);
    }

    // Adds `rows` (ascending) to chosen_.
    void add_rows(const std::vector<uint32_t> &rows) {
        merged_.clear();
        auto known = chosen_.begin();
        for (uint32_t row : rows) {
            while (known != chosen_.end() && known->row < row) merged_.push_back(*known++);
            if (known == chosen_.end() || known->row != row) merged_.push_back(store_.view(row));
        }
        merged_.insert(merged_.end(), known, chosen_.end());
        chosen_.swap(merged_);
    }

    void choose_grown(const Slot &slot) {
        const bool capped = slot.round <= FREE_ROUNDS;
        const int64_t cap = SET_CAP + SET_CAP_SHARE * static_cast<int64_t>(slot.rows.size());
        best_emitted(slot.found, static_cast<float>(slot.threshold), capped ? cap : store_.n_rows);
        // With a handful of negatives, the intercept would jump across the margin of most rows.
        const bool few = chosen_.size() < FEW_NEGATIVES;
        add_rows(slot.label.positives);
        if (!capped || few) add_rows(slot.rows);
    }

    // Replaces the scores of the envelope by those of the weights, so that the path of a label does not depend on
    // `prune`; score + slack stays as it is, or grows a little: a score of −10⁵ in float32 is rounded by more than the
    // slack of a screened pass.  Sets: the slot's found rows.
    void rescore(Slot &slot) {
        const LabelWeights &weights = slot.result.weights;
        for (size_t k = 0; k < weights.cols.size(); ++k) dense_[weights.cols[k]] = weights.vals[k];
        rescored_.assign(slot.found.rows, slot.found.rows + slot.found.n + 1);
        for (int64_t k = 0; k < slot.found.n; ++k) {
            const RowView row = slot.found.view(k, store_);
            const double sum =
                sum_in_lanes(0, row.length, [&](int64_t e) { return dense_[row.entries[e].col] * row.entries[e].val; });
            EmittedRow &found = rescored_[k];
            const double upper = static_cast<double>(found.score) + found.slack;
            found.score = static_cast<float>(sum + weights.bias);
            const double slack = upper - static_cast<double>(found.score);
            found.slack = static_cast<float>(slack + RESCORE_ROUNDING * std::abs(slack));
        }
        for (uint32_t col : weights.cols) dense_[col] = 0;
        slot.found.rows = rescored_.data();
    }

    bool try_accept(Slot &slot) {
        int64_t n_missing = 0;
        const double missing = slot.complete ? 0.0 : missing_bias_gradient(slot, n_missing);
        if (missing > QUICK_REJECT_SHARE * slot.label.rule) return false;
        const EmittedRows emitted{slot.found, slot.threshold, slot.covers_pruning};
        LabelBounds &bounds = slot.result.bounds;
        bounds = certificate_.evaluate(slot.label, emitted, shared_.prune, slot.result.weights);
        if (is_accurate(bounds, slot.label)) {
            if (shared_.keep_duals) slot.result.duals = certificate_.duals();
            return true;
        }
        if (n_missing == 0) slot.accuracy *= TIGHTENING_SHARE;
        return false;
    }

    // Gradient of the intercept from active rows outside the working set.
    double missing_bias_gradient(const Slot &slot, int64_t &n_missing) const {
        const EmittedRow *rows = slot.found.rows;
        auto known = slot.rows.begin();
        double sum = 0;
        for (int64_t k = 0; k < slot.found.n; ++k) {
            if (rows[k].score <= -1) continue;
            while (known != slot.rows.end() && *known < rows[k].row) ++known;
            if (known != slot.rows.end() && *known == rows[k].row) continue;
            sum += 2 * store_.weight_of(rows[k].row) * slot.label.negative_factor * (1 + rows[k].score);
            ++n_missing;
        }
        return sum;
    }

    void await_pruned(int lane, Slot &slot) {
        const LabelWeights kept = slot.result.weights.pruned(shared_.prune);
        slot.threshold = -1;
        slot.stage = Stage::PRUNED;
        find(lane, slot, kept, slot.threshold, RowSlack::UNBOUNDED_ROWS);
    }

    bool finish_pruned(Slot &slot) {
        const EmittedRows emitted{slot.found, slot.threshold, false};
        LabelBounds &bounds = slot.result.bounds;
        bounds.pruned_valid =
            certificate_.objective(slot.label, emitted, slot.result.weights.pruned(shared_.prune), bounds.primal);
        return true;
    }
};

}  // namespace widemargin
