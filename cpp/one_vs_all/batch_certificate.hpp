// The certificates of up to 16 labels at once, in float64 over all rows: the bounds of
// one_vs_all/sparse_certificate.hpp for labels whose rows near the margin are most of the data, which it would score
// one label at a time.
//
// Two passes over the rows. The first scores them; a free intercept is then moved to its exact optimum for w. The
// second adds u = Σ y_i α_i x_i, and the loss of the pruned weights, for rows that are near the margin of some lane. No
// row is left out by a bound that holds only in float32, so every certificate is valid.  Memory: 192 bytes per column
// and 130 bytes per row. Twin: tests/reference/fast_one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/sparse_certificate.hpp"

namespace widemargin {

// The smallest float that is not below x: |w| < x for a float w if and only if |w| is below it.
inline float float_at_least(double x) {
    const float rounded = static_cast<float>(x);
    return static_cast<double>(rounded) < x ? std::nextafter(rounded, std::numeric_limits<float>::infinity()) : rounded;
}

class BatchCertificate {
  public:
    BatchCertificate(const RowStore &store, const VectorKernels &kernels, double prune, bool keep_duals = false)
        : store_(store),
          kernels_(kernels),
          keep_duals_(keep_duals),
          W_(aligned_floats(store.n_used * LANES)),
          S_(untouched_array<double>(store.n_rows * LANES)),
          U_(aligned_array<double>(store.n_used * LANES)),
          signs_(store.n_rows, 0),
          args_{} {
        args_.n_rows = store.n_rows;
        args_.n_cols = store.n_used;
        args_.entries = store.entries.get();
        args_.exact = store.exact.empty() ? nullptr : store.exact.data();
        args_.start = store.start.data();
        args_.weight = store.weight.data();
        args_.l1_norm = store.l1_norm.data();
        args_.signs = signs_.data();
        args_.W = W_.get();
        args_.S = S_.get();
        args_.U = U_.get();
        args_.prune = prune;
        args_.least_kept = float_at_least(prune);
    }

    bool empty() const { return count_ == 0; }
    bool full() const { return count_ == LANES; }

    // Puts a label into the next lane.
    void add(Candidate &&candidate) {
        const int lane = count_++;
        const LabelWeights &weights = candidate.weights;
        for (size_t k = 0; k < weights.cols.size(); ++k) {
            W_[static_cast<size_t>(weights.cols[k]) * LANES + lane] = weights.vals[k];
        }
        for (uint32_t i : candidate.label.positives) signs_[i] = static_cast<uint16_t>(signs_[i] | (1u << lane));
        args_.bias[lane] = weights.bias;
        args_.positive_factor[lane] = candidate.label.positive_factor;
        args_.negative_factor[lane] = candidate.label.negative_factor;
        labels_[lane] = std::move(candidate);
    }

    // Certifies all labels and calls done(Candidate &&, const LabelBounds &) for each, with its intercept at the
    // optimum. The lanes are then free.
    template <class Done>
    void run(Done done) {
        LabelBounds bounds[LANES];
        kernels_.check_scores[wide()](args_);
        move_intercepts();
        fill_bounds(bounds);
        std::fill_n(W_.get(), store_.n_used * LANES, 0.0f);
        std::fill(signs_.begin(), signs_.end(), uint16_t{0});
        std::fill_n(args_.positive_factor, LANES, 0.0);
        std::fill_n(args_.negative_factor, LANES, 0.0);
        const int n_labels = std::exchange(count_, 0);
        for (int lane = 0; lane < n_labels; ++lane) done(std::move(labels_[lane]), bounds[lane]);
    }

  private:
    const RowStore &store_;
    const VectorKernels &kernels_;
    const bool keep_duals_;
    AlignedFloats W_;
    AlignedArray<double> S_, U_;
    std::vector<uint16_t> signs_;
    Candidate labels_[LANES];
    CheckArgs args_;
    int count_ = 0;
    alignas(LINE_BYTES) double shift_[LANES] = {};

    bool wide() const { return count_ > LANES / 2; }

    bool has_free_bias(int lane) const { return labels_[lane].label.has_bias && labels_[lane].label.bias_penalty == 0; }

    // argmin over t of Σ c max(0, 1 − y (s + t))², Newton on the piecewise linear derivative inside a bracket, for all
    // lanes side by side.  Sets: shift_, the bias of every label.
    void move_intercepts() {
        double low[LANES], high[LANES];
        bool open[LANES] = {};
        std::fill_n(low, LANES, -1e300);
        std::fill_n(high, LANES, 1e300);
        std::fill_n(shift_, LANES, 0.0);
        for (int lane = 0; lane < count_; ++lane) open[lane] = has_free_bias(lane);
        alignas(LINE_BYTES) double sums[4][LANES] = {};
        for (int step = 0; step < MAX_SHIFT_STEPS && std::count(open, open + LANES, true) > 0; ++step) {
            kernels_.check_losses[wide()](args_, shift_, sums);
            for (int lane = 0; lane < count_; ++lane) {
                if (!open[lane]) continue;
                const double derivative = sums[0][lane] - sums[1][lane], curvature = sums[2][lane], t = shift_[lane];
                open[lane] = derivative != 0 && curvature > 0;
                if (!open[lane]) continue;
                (derivative < 0 ? low : high)[lane] = t;
                const double next = t - derivative / curvature;
                // Before the bracket is checked: a step that rounds to t lies on its edge, and the middle is far away.
                open[lane] = !(std::abs(next - t) < SHIFT_ACCURACY);
                const bool inside = !open[lane] || (next > low[lane] && next < high[lane]);
                shift_[lane] = inside ? next : 0.5 * (low[lane] + high[lane]);
            }
        }
        for (int lane = 0; lane < count_; ++lane) {
            double &bias = labels_[lane].weights.bias;
            const double moved = has_free_bias(lane) ? static_cast<float>(bias + shift_[lane]) : bias;
            shift_[lane] = moved - bias;
            bias = moved;
        }
    }

    // α = 2 c max(0, 1 − y (s + t)), shrunk by side as in the bound.  Sets: the duals of the lane's label.
    void keep_duals(int lane, double negative_share, double positive_share) {
        std::vector<RowDual> &duals = labels_[lane].duals;
        duals.clear();
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            const bool positive = (signs_[i] >> lane) & 1u;
            const double y = positive ? 1 : -1, share = positive ? positive_share : negative_share;
            const double c = store_.weight[i] * (positive ? args_.positive_factor : args_.negative_factor)[lane];
            const double alpha = 2 * c * share * (1 - y * (S_[i * LANES + lane] + shift_[lane]));
            if (alpha > 0) duals.push_back({static_cast<int32_t>(i), static_cast<float>(alpha)});
        }
    }

    void fill_bounds(LabelBounds *bounds) {
        alignas(LINE_BYTES) double rows[4][LANES], shrink[2][LANES], duals[2][LANES], columns[4][LANES];
        double imbalance[LANES] = {};
        kernels_.check_losses[wide()](args_, shift_, rows);
        std::fill_n(shrink[0], 2 * LANES, 1.0);
        for (int lane = 0; lane < count_; ++lane) {
            const double negative = rows[0][lane], positive = rows[1][lane];  // Σ α / 2
            imbalance[lane] = 2 * (positive - negative);
            if (has_free_bias(lane) && positive > negative) shrink[1][lane] = negative / positive;
            if (has_free_bias(lane) && positive < negative) shrink[0][lane] = positive / negative;
        }
        kernels_.check_gradient[wide()](args_, shift_, shrink, duals);
        kernels_.check_columns[wide()](args_, columns);
        for (int lane = 0; keep_duals_ && lane < count_; ++lane) {
            keep_duals(lane, shrink[0][lane], shrink[1][lane]);
        }
        for (int lane = 0; lane < count_; ++lane) {
            const LabelProblem &label = labels_[lane].label;
            const double bias = labels_[lane].weights.bias, penalty = 0.5 * label.bias_penalty * bias * bias;
            const double loss = rows[3][lane];
            LabelBounds &out = bounds[lane];
            out.primal_before_pruning = 0.5 * columns[0][lane] + penalty + loss;
            out.primal = 0.5 * columns[1][lane] + penalty + (args_.prune > 0 ? duals[1][lane] : loss);
            out.pruned_share = columns[0][lane] > 0 ? 1 - columns[1][lane] / columns[0][lane] : 0.0;
            // Shrinking moved u by at most |imbalance| · max‖x‖.
            const double moved = has_free_bias(lane) ? std::abs(imbalance[lane]) * store_.max_norm : 0.0;
            const double part = std::sqrt(columns[3][lane]) + moved;
            const double bias_part = label.has_bias ? label.bias_penalty * bias - imbalance[lane] : 0.0;
            out.gradient_norm = std::sqrt(part * part + bias_part * bias_part);
            const double u_bias = label.has_bias && !has_free_bias(lane) ? imbalance[lane] : 0.0;
            out.dual = std::max(0.0, duals[0][lane] - 0.5 * (columns[2][lane] + u_bias * u_bias));
            out.valid = out.pruned_valid = std::isfinite(out.primal_before_pruning + out.gradient_norm);
        }
    }
};

}  // namespace widemargin
