// Read-only state shared by all labels and threads of a fast one-vs-all fit: the rows, the kernels, the allowances of a
// pass, samples of rows, and the usual intercept of labels by frequency.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "one_vs_all/batch_pass.hpp"
#include "one_vs_all/kernels.hpp"
#include "one_vs_all/row_store.hpp"
#include "one_vs_all/screened_pass.hpp"

namespace widemargin {

constexpr double SLACK_OUTLIERS = 0.005;  // share of rows that need the most slack, and are always emitted instead
// Of −1 − b, the distance of a row without common features from the margin: with more slack, most rows are emitted.
constexpr double SLACK_SHARE = 0.25;
constexpr int64_t SAMPLE_ROWS = 2048, SPREAD_ROWS = 128;
constexpr double LARGEST_START_BIAS = -1.03;

// Rows of the first working set, in addition to the positives and the evenly spaced rows.
inline int64_t wanted_seed_rows(int64_t n_positive) {
    return 300 + 15 * std::min<int64_t>(n_positive, 64) + 3 * std::max<int64_t>(0, n_positive - 64);
}
inline int64_t seed_rows(int64_t n_positive, int64_t n_rows) {
    return std::min(n_rows / 4, wanted_seed_rows(n_positive));
}

// The usual intercept of labels with a given frequency, learned from the pilot labels and then frozen.
class BiasPrior {
  public:
    void add(int64_t n_positive, double bias) {
        sum_[bin(n_positive)] += bias;
        ++count_[bin(n_positive)];
    }
    double operator()(int64_t n_positive) const {
        double sum = PRIOR_BIAS, count = 1;
        for (int k = std::max(0, bin(n_positive) - 1); k <= std::min(BINS - 1, bin(n_positive) + 1); ++k) {
            const double share = k == bin(n_positive) ? 1.0 : NEIGHBOUR_SHARE;
            sum += share * sum_[k];
            count += share * count_[k];
        }
        return std::min(LARGEST_START_BIAS, sum / count);
    }

    static constexpr int BINS = 64;
    // Sums and counts of the intercepts in each bin, to be sent to another process.
    const double *sums() const { return sum_; }
    const double *counts() const { return count_; }
    BiasPrior() = default;
    BiasPrior(const double *sums, const double *counts) {
        std::copy(sums, sums + BINS, sum_);
        std::copy(counts, counts + BINS, count_);
    }
    static int bin(int64_t n) { return n < 1 ? 0 : 63 - __builtin_clzll(static_cast<unsigned long long>(n)); }

  private:
    static constexpr double PRIOR_BIAS = -1.25, NEIGHBOUR_SHARE = 0.2;
    double sum_[BINS] = {}, count_[BINS] = {};
};

// Everything that is the same for all labels and threads.
struct FastShared {
    const RowStore &store;
    PackedRows packed;
    const VectorKernels &kernels;
    std::vector<float> slack;           // (n_rows,) see RowSlack
    double usual_slack;                 // for pruning, the largest except for rows that are always emitted
    std::vector<int64_t> sample_start;  // evenly spaced rows, copied into one array
    std::vector<RowEntry> sample_entries;
    std::vector<uint32_t> spread;  // evenly spaced rows of every first working set
    double prune;
    BiasPrior prior;
    RowIndex index;  // empty: all passes are batch passes
    bool keep_duals = false;

    // Whether a pass for weights with this intercept bounds the scores of the pruned weights as well.
    bool covers_pruning(double bias) const { return usual_slack == 0 || usual_slack <= SLACK_SHARE * (-1 - bias); }

    // Weights whose pass bounds the scores of `weights` before and after pruning. If no x is below zero, these are ŵ:
    // the weights without those in (−prune, 0). ŵ_f ≥ w_f and ŵ_f ≥ pruned(w)_f for every f, so ŵ·x bounds both scores
    // from above. Otherwise the slack of the rows has to cover pruning.
    LabelWeights envelope(const LabelWeights &weights) const {
        if (!store.nonnegative) return weights;
        LabelWeights out;
        out.bias = weights.bias;
        out.cols.resize(weights.cols.size());
        out.vals.resize(weights.cols.size());
        size_t count = 0;
        for (size_t k = 0; k < weights.cols.size(); ++k) {  // without a branch, which would be unpredictable
            const double w = weights.vals[k];
            out.cols[count] = weights.cols[k];
            out.vals[count] = weights.vals[k];
            count += !((w < 0) & (std::abs(w) < prune));
        }
        out.cols.resize(count);
        out.vals.resize(count);
        return out;
    }
};

// The slack of the rows for pruning, which moves a score by at most prune · ‖x‖₁; none if the envelope covers it.
inline void set_slack(FastShared &shared) {
    const RowStore &store = shared.store;
    const double prune = store.nonnegative ? 0.0 : shared.prune;
    double usual_norm = std::numeric_limits<double>::infinity();
    if (prune > 0 && store.n_rows > 0) {
        std::vector<float> norms = store.l1_norm;
        const int64_t rank = static_cast<int64_t>((1 - SLACK_OUTLIERS) * static_cast<double>(store.n_rows - 1));
        std::nth_element(norms.begin(), norms.begin() + rank, norms.end());
        usual_norm = norms[rank];
    }
    shared.usual_slack = prune > 0 ? NORM_SLACK * prune * usual_norm : 0.0;
    shared.slack.resize(store.n_rows);
    for (int64_t i = 0; i < store.n_rows; ++i) {
        const bool always = shared.packed.unbounded[i] || store.l1_norm[i] > usual_norm;
        shared.slack[i] = always ? ALWAYS_EMITTED : static_cast<float>(NORM_SLACK * prune * store.l1_norm[i]);
    }
}

inline FastShared make_shared(const RowStore &store, const VectorKernels &kernels, double prune) {
    FastShared shared{store, pack_rows(store), kernels, {}, 0.0, {0}, {}, {}, prune, {}, {}};
    set_slack(shared);
    const int64_t size = std::min(store.n_rows, SAMPLE_ROWS), spread = std::min(store.n_rows, SPREAD_ROWS);
    for (int64_t k = 0; k < size; ++k) {
        const int64_t row = k * store.n_rows / size;
        shared.sample_entries.insert(shared.sample_entries.end(), store.entries.get() + store.start[row],
                                     store.entries.get() + store.start[row + 1]);
        shared.sample_start.push_back(static_cast<int64_t>(shared.sample_entries.size()));
    }
    for (int64_t k = 0; k < spread; ++k) shared.spread.push_back(static_cast<uint32_t>(k * store.n_rows / spread));
    return shared;
}

}  // namespace widemargin
