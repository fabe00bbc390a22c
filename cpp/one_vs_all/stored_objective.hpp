// The objective of stored weights in float64 over all rows, after dropping the weights below each of several
// thresholds.
//
//     f(w, b) = ½‖w‖² + ½ bias_penalty b² + Σ_i c_i max(0, 1 − y_i (w·x_i + b))²,   w without the entries |w_k| < t
//
// A batch pass over all rows finds the rows that can be active, for 32 pairs of a label and a threshold at a time. Only
// these rows get float64 scores (one_vs_all/sparse_certificate.hpp proves that the others are inactive). Memory: the
// row store and, per thread, 100 bytes per column, 16 bytes per emitted row and at most 6 MB of copied rows. Twin:
// `BinaryObjective.value` in tests/reference/binary_objective.py.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "one_vs_all/batch_pass.hpp"
#include "one_vs_all/fast_shared.hpp"
#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/sparse_certificate.hpp"
#include "simd/threads.hpp"

namespace widemargin {

// A label's weights at a threshold.
struct PrunedLabel {
    int64_t task = 0;
    LabelProblem label;
    LabelWeights weights;
};

class StoredObjective {
  public:
    std::vector<double> scratch;  // (n_cols,) zeros, for LabelSetup

    explicit StoredObjective(const FastShared &shared)
        : scratch(shared.store.n_cols, 0.0),
          pass_(shared.store, shared.packed, shared.kernels, shared.slack.data()),
          certificate_(shared.store, shared.kernels) {}

    // next(PrunedLabel &): false when none is left. done(task, value): NaN if the pass could not prove enough.
    template <class Next, class Done>
    void run(Next next, Done done) {
        for (;;) {
            int busy = 0;
            while (busy < SCAN_LANES && next(lanes_[busy])) {
                pass_.set(busy, lanes_[busy].weights, -1.0, RowSlack::UNBOUNDED_ROWS);
                ++busy;
            }
            if (busy == 0) return;
            for (int lane = busy; lane < SCAN_LANES; ++lane) pass_.clear(lane);
            pass_.run();
            for (int lane = 0; lane < busy; ++lane) done(lanes_[lane].task, value(lane));
        }
    }

  private:
    BatchPass pass_;
    SparseCertificate certificate_;
    PrunedLabel lanes_[SCAN_LANES];

    double value(int lane) {
        const EmittedRows emitted{pass_.emitted(lane), -1.0, false};
        double result = 0;
        const bool proven = certificate_.objective(lanes_[lane].label, emitted, lanes_[lane].weights, result);
        return proven ? result : std::numeric_limits<double>::quiet_NaN();
    }
};

// out: (n_thresholds, labels.n_labels).
template <class Matrix>
void pruned_objectives(const Matrix &X, const double *row_weight, const OneVsAllOptions &options,
                       const LabelBlock &labels, const WeightsView &weights, const std::vector<double> &thresholds,
                       double *out) {
    const RowStore store = build_row_store(X, row_weight, options.C);
    const LabelSetup setup(store, options);
    const FastShared shared = make_shared(store, choose_kernels(choose_instruction_set()), 0.0);
    const GivenStart given(store, weights);
    const int64_t n_tasks = labels.n_labels * static_cast<int64_t>(thresholds.size());
    std::atomic<int64_t> taken{0};
    const int n_threads =
        static_cast<int>(std::min<int64_t>(std::max(1, options.n_threads), (n_tasks + SCAN_LANES - 1) / SCAN_LANES));
    parallel_for(n_threads, n_threads, [&](int, int64_t) {
        StoredObjective worker(shared);
        worker.run(
            [&](PrunedLabel &next) {
                next.task = taken++;
                if (next.task >= n_tasks) return false;
                const int64_t j = next.task % labels.n_labels;
                setup.prepare(labels, j, worker.scratch, next.label);
                next.weights = given.pruned(j, next.label.swapped, thresholds[next.task / labels.n_labels]);
                return true;
            },
            [&](int64_t task, double value) { out[task] = value; });
    });
}

}  // namespace widemargin
