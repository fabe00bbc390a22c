// The certificate of one label in float64 over all rows, from sparse weights and the rows that a batch pass emitted.
//
//     α_i = 2 c_i max(0, 1 − y_i s_i),  u = Σ y_i α_i x_i,  D = Σ (α_i − α_i²/(4 c_i)) − ½‖u‖² (− ½ (Σ y_i α_i)²)
//
// A free intercept is first moved to its exact optimum for w, and the α of the heavier side are shrunk until Σ y_i α_i
// = 0 despite rounding (one_vs_all/certificate.hpp does the same over dense arrays). A row that was not emitted has a
// score below the threshold despite its allowance for rounding; this proves that it is inactive, so it needs no float64
// score. The same pass gives the objective of the pruned weights: dropping weights below `prune` moves a score by at
// most min(prune ‖x_i‖₁, ‖dropped‖ ‖x_i‖). Twin: tests/reference/fast_one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"

namespace widemargin {

struct LabelBounds {
    double primal = 0, dual = 0, primal_before_pruning = 0, pruned_share = 0;
    double gradient_norm = 0;   // of the stored weights before pruning; an upper bound
    bool valid = false;         // every row that was not scored is proven inactive
    bool pruned_valid = false;  // the same for the pruned weights

    double relative_gap() const {
        const double scale = std::max(std::abs(primal_before_pruning), std::abs(dual));
        return scale > 0 ? (primal_before_pruning - dual) / scale : 0.0;
    }
};

// For all rows that are not in `found`, score ≤ threshold; with `covers_pruning` this also holds for the pruned
// weights. For the rows that are found, score + slack is at least the threshold.
struct EmittedRows {
    Emission found;
    double threshold;
    bool covers_pruning;
};

constexpr double USUAL_SHIFT =
    0.004;  // rows further from the margin than this are scored only if the intercept moves more
constexpr double SHIFT_ACCURACY = 1e-12;  // of the exact intercept, which is rounded to float32 afterwards
constexpr int MAX_SHIFT_STEPS = 60;
constexpr size_t KEPT_SCORED = 1 << 15;  // capacity for scored rows that is kept between labels

class SparseCertificate {
  public:
    SparseCertificate(const RowStore &store, const VectorKernels &kernels)
        : store_(store),
          kernels_(kernels),
          w_(store.n_cols, Pair{0.0f, 0.0f}),
          u_(store.n_cols, 0.0),
          seen_(store.n_cols, 0),
          touched_(store.n_cols + 1) {}

    // Moves a free intercept to its optimum (rounded to float32) and certifies the result.
    LabelBounds evaluate(const LabelProblem &label, const EmittedRows &emitted, double prune, LabelWeights &weights) {
        LabelBounds bounds;
        scatter(weights, prune);
        const double room = is_bounded(weights) ? -1 - emitted.threshold : -1.0;
        const bool free_bias = label.has_bias && label.bias_penalty == 0;
        double allowed = std::min(room, USUAL_SHIFT);
        for (;;) {
            score_rows(label, emitted, -1 - allowed, weights.bias);
            shift_ = free_bias ? static_cast<float>(weights.bias + optimal_shift()) - weights.bias : 0.0;
            if (shift_ <= allowed || allowed == room) break;
            allowed = room;
        }
        bounds.valid = room >= 0 && shift_ <= room;
        bounds.pruned_valid = bounds.valid && (emitted.covers_pruning || dropped_ == 0);
        if (bounds.valid) {
            weights.bias += shift_;
            fill_bounds(label, free_bias, weights, bounds);
        }
        clear(weights);
        return bounds;
    }

    // The dual point of the last valid evaluation, by position in the row store.
    std::vector<RowDual> duals() const {
        std::vector<RowDual> out;
        for (const ActiveRow &row : active_) {
            out.push_back({static_cast<int32_t>(row.view.row), static_cast<float>(std::abs(row.signed_alpha))});
        }
        return out;
    }

    // The objective of weights that are already pruned; every row with a score above threshold is emitted.
    bool objective(const LabelProblem &label, const EmittedRows &emitted, const LabelWeights &weights, double &value) {
        scatter(weights, 0);
        score_rows(label, emitted, -1, weights.bias);
        shift_ = 0;
        value = 0.5 * norm_ + 0.5 * label.bias_penalty * weights.bias * weights.bias + losses(&Scored::s);
        clear(weights);
        return is_bounded(weights) && emitted.threshold <= -1;
    }

  private:
    struct Pair {
        float all, kept;  // a weight, and the same weight or 0 after pruning
    };
    struct Scored {
        RowView view;
        double y, cost, s, kept;  // kept: the score of the pruned weights
    };
    struct ActiveRow {
        RowView view;
        double signed_alpha;
    };
    const RowStore &store_;
    const VectorKernels &kernels_;
    std::vector<Pair> w_;    // (n_cols,) the weights, zero outside
    std::vector<double> u_;  // (n_cols,)
    std::vector<uint8_t> seen_;
    std::vector<uint32_t> touched_;  // (n_cols + 1,), of which n_touched_ columns are used
    size_t n_touched_ = 0;
    std::vector<RowView> chosen_;
    std::vector<Scored> scored_;
    std::vector<ActiveRow> active_;
    double norm_ = 0, kept_ = 0, dropped_ = 0, shift_ = 0;

    // Whether a pass proves anything about the rows that it does not emit.
    bool is_bounded(const LabelWeights &weights) const {
        return std::isfinite(norm_ + weights.bias) && store_.max_norm < LARGEST_NORM;
    }

    // Sets: w_, norm_, kept_, dropped_ (squared norms).
    void scatter(const LabelWeights &weights, double prune) {
        double sums[2] = {0, 0};  // dropped, kept; indexed, because a branch would be unpredictable
        for (size_t k = 0; k < weights.cols.size(); ++k) {
            const float both[2] = {0.0f, weights.vals[k]};
            const bool keep = !(std::abs(static_cast<double>(both[1])) < prune);
            w_[weights.cols[k]] = {both[1], both[keep]};
            sums[keep] += static_cast<double>(both[1]) * both[1];
        }
        dropped_ = sums[0];
        kept_ = sums[1];
        norm_ = kept_ + dropped_;
    }

    void clear(const LabelWeights &weights) {
        for (uint32_t col : weights.cols) w_[col] = {0.0f, 0.0f};
        for (size_t k = 0; k < n_touched_; ++k) {
            u_[touched_[k]] = 0;
            seen_[touched_[k]] = 0;
        }
        n_touched_ = 0;
    }

    // The exact values of a row if float32 rounds them, else null.
    const double *exact_values(const RowView &row) const {
        return store_.exact.empty() ? nullptr : store_.exact.data() + store_.start[row.row];
    }
    static double value(const RowView &row, const double *exact, uint32_t k) {
        return exact == nullptr ? static_cast<double>(row.entries[k].val) : exact[k];
    }

    void score_row(const RowView &row, double y, double factor, double bias) {
        double scores[2];  // for all weights and for the kept ones
        kernels_.pair_dots(row, exact_values(row), &w_[0].all, scores);
        scored_.push_back({row, y, store_.weight_of(row.row) * factor, scores[0] + bias, scores[1] + bias});
    }

    // Scores the positives, and the emitted rows that may reach `least` before or after pruning.
    void score_rows(const LabelProblem &label, const EmittedRows &emitted, double least, double bias) {
        chosen_.clear();
        for (uint32_t row : label.positives) chosen_.push_back(store_.view(row));
        const uint32_t *positive = label.positives.data(), *last = positive + label.positives.size();
        for (int64_t k = 0; k < emitted.found.n; ++k) {
            const EmittedRow &e = emitted.found.rows[k];
            if (static_cast<double>(e.score) + e.slack < least) continue;
            while (positive != last && *positive < e.row) ++positive;
            if (positive == last || *positive != e.row) chosen_.push_back(emitted.found.view(k, store_));
        }
        scored_.clear();
        if (scored_.capacity() > KEPT_SCORED) std::vector<Scored>().swap(scored_);
        for (size_t k = 0; k < chosen_.size(); ++k) {
            const bool is_positive = k < label.positives.size();
            score_row(chosen_[k], is_positive ? 1 : -1, is_positive ? label.positive_factor : label.negative_factor,
                      bias);
        }
    }

    // argmin over t of Σ c max(0, 1 − y (s + t))²: Newton on the piecewise linear derivative, inside a bracket.
    double optimal_shift() const {
        double low = -1e300, high = 1e300, t = 0;
        for (int step = 0; step < MAX_SHIFT_STEPS; ++step) {
            double derivative = 0, curvature = 0;
            for (const Scored &row : scored_) {
                const double m = 1 - row.y * (row.s + t);
                if (m <= 0) continue;
                derivative -= row.cost * row.y * m;
                curvature += row.cost;
            }
            if (derivative == 0 || !(curvature > 0)) break;
            (derivative < 0 ? low : high) = t;
            double next = t - derivative / curvature;
            // Before the bracket is checked: a step that rounds to t lies on its edge, and the middle is far away.
            if (std::abs(next - t) < SHIFT_ACCURACY) return next;
            if (!(next > low && next < high)) next = 0.5 * (low + high);
            t = next;
        }
        return t;
    }

    double losses(double Scored::*score) const {
        double sum = 0;
        for (const Scored &row : scored_) {
            const double m = 1 - row.y * (row.*score + shift_);
            if (m > 0) sum += row.cost * m * m;
        }
        return sum;
    }

    void fill_bounds(const LabelProblem &label, bool free_bias, const LabelWeights &weights, LabelBounds &bounds) {
        const double bias_penalty = 0.5 * label.bias_penalty * weights.bias * weights.bias;
        bounds.primal_before_pruning = 0.5 * norm_ + bias_penalty + losses(&Scored::s);
        bounds.primal = 0.5 * kept_ + bias_penalty + losses(&Scored::kept);
        bounds.pruned_share = norm_ > 0 ? dropped_ / norm_ : 0.0;
        double side[2] = {0, 0};  // Σ α of negatives, positives
        for (const Scored &row : scored_) side[row.y > 0] += alpha(row);
        const double imbalance = side[1] - side[0], bias_gradient = label.bias_penalty * weights.bias - imbalance;
        double shrink[2] = {1, 1};
        if (free_bias && imbalance > 0) shrink[1] = side[0] / side[1];
        if (free_bias && imbalance < 0) shrink[0] = side[1] / side[0];
        const double conjugates = add_rows(shrink);
        double u_norm = 0, residual = 0;
        for (size_t k = 0; k < n_touched_; ++k) {
            const double u = u_[touched_[k]], difference = w_[touched_[k]].all - u;
            u_norm += u * u;
            residual += difference * difference;
        }
        for (size_t k = 0; k < weights.cols.size(); ++k) {
            if (!seen_[weights.cols[k]]) residual += static_cast<double>(weights.vals[k]) * weights.vals[k];
        }
        // Shrinking moved u by at most |imbalance| · max‖x‖.
        const double part = std::sqrt(residual) + (free_bias ? std::abs(imbalance) * store_.max_norm : 0.0);
        const double bias_part = label.has_bias ? bias_gradient : 0.0;
        bounds.gradient_norm = std::sqrt(part * part + bias_part * bias_part);
        const double u_bias = label.has_bias && !free_bias ? imbalance : 0.0;
        bounds.dual = std::max(0.0, conjugates - 0.5 * (u_norm + u_bias * u_bias));
    }

    double alpha(const Scored &row) const { return 2 * row.cost * std::max(0.0, 1 - row.y * (row.s + shift_)); }

    // u = Σ y α x with shrunk α; returns Σ (α − α²/(4c)).  Sets: u_, and its columns in touched_.
    double add_rows(const double *shrink) {
        double conjugates = 0;
        int64_t n_entries = 0;
        active_.clear();
        for (const Scored &row : scored_) {
            const double a = alpha(row) * shrink[row.y > 0];
            if (!(a > 0)) continue;
            conjugates += a - a * a / (4 * row.cost);
            active_.push_back({row.view, row.y * a});
            n_entries += row.view.length;
        }
        if (n_entries >= store_.n_used) {
            scatter_active<false>();
            for (n_touched_ = 0; n_touched_ < static_cast<size_t>(store_.n_used); ++n_touched_) {
                touched_[n_touched_] = static_cast<uint32_t>(n_touched_);
                seen_[n_touched_] = 1;
            }
        } else {
            scatter_active<true>();
        }
        return conjugates;
    }

    // Keeping a list of the columns pays off if there are few entries.
    template <bool KEEP_LIST>
    void scatter_active() {
        size_t count = 0;
        for (size_t at = 0; at < active_.size(); ++at) {
            const ActiveRow &row = active_[at];
            const double *exact = exact_values(row.view);
            for (uint32_t k = 0; k < row.view.length; ++k) {
                const uint32_t col = row.view.entries[k].col;
                if (KEEP_LIST) {
                    touched_[count] = col;
                    count += seen_[col] == 0;
                    seen_[col] = 1;
                }
                u_[col] += row.signed_alpha * value(row.view, exact, k);
            }
        }
        n_touched_ = count;
    }
};

}  // namespace widemargin
