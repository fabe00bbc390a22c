// One label as the fast solver sees it: its positive rows, the costs, and when to stop; and sparse weights.
//
//     f(w, b) = ½‖w‖² + ½ bias_penalty b² + Σ_i c_i max(0, 1 − y_i (w·x_i + b))²
//
// "Positive" means the rarer side: a label with more positives than negatives is solved with the signs of y, w and b
// flipped, which does not change f.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "one_vs_all/newton_solver.hpp"
#include "one_vs_all/row_store.hpp"

namespace widemargin {

struct LabelProblem {
    std::vector<uint32_t> positives;  // positions in the row store, ascending
    double positive_factor = 1, negative_factor = 1;
    double bias_penalty = 0;
    bool has_bias = true;
    bool swapped = false;
    double rule = 0;     // tol · max(1, min(P, N)) / n · ‖∇f(0)‖
    double gap_tol = 0;  // required relative gap
};

// A sparse vector of weights over renumbered columns, and an intercept.
struct LabelWeights {
    std::vector<uint32_t> cols;
    std::vector<float> vals;
    double bias = 0;

    double squared_norm() const {
        double sum = 0;
        for (float x : vals) sum += static_cast<double>(x) * x;
        return sum;
    }

    // Drops the weights smaller than `least`.
    LabelWeights pruned(double least) const {
        LabelWeights kept;
        kept.bias = bias;
        for (size_t k = 0; k < cols.size(); ++k) {
            if (std::abs(static_cast<double>(vals[k])) < least) continue;
            kept.cols.push_back(cols[k]);
            kept.vals.push_back(vals[k]);
        }
        return kept;
    }
};

// A label on its way through the solver.
struct Candidate {
    int64_t index = 0;
    LabelProblem label;
    LabelWeights weights;
    int64_t n_iter = 0;
    bool whole = false;          // to be solved on all rows at once
    bool carried = false;        // `weights` hold a given start
    bool solved = false;         // `weights` were found on all rows and have yet to be checked
    bool stuck = false;          // float32 steps did not converge
    std::vector<RowDual> duals;  // of its certificate, by position in the row store, if they are kept
};

// Builds the problem of one label: its positives in the order of the row store, the scale of the stopping rule in
// closed form, and the sides swapped if positives are the majority.
//
//     ∇f(0) = −2 Σ_i c_i y_i (x_i, 1) = −2 ((f₊ + f₋) Σ_{positive} c_i (x_i, 1) − f₋ Σ_i c_i (x_i, 1))
//
// so a label costs only the entries of its positive rows.

// Summed weights of a label's rows, including class factors.
struct LabelSides {
    double positive = 0, negative = 0;
    bool one_sided() const { return positive == 0 || negative == 0; }
};

class LabelSetup {
  public:
    LabelSetup(const RowStore &store, const OneVsAllOptions &options)
        : store_(store), options_(options), row_sum_(store.n_cols, 0.0) {
        for (int64_t i = 0; i < store.n_rows; ++i) {
            for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
                row_sum_[store.entries[k].col] += store.weight[i] * store.value(k);
            }
            total_ += store.weight[i];
            n_weighted_ += store.weight[i] != 0;
        }
        for (double x : row_sum_) squared_row_sum_ += x * x;
    }

    // `scratch` (n_cols,) is zero before and after.
    LabelSides prepare(const LabelBlock &block, int64_t j, std::vector<double> &scratch, LabelProblem &label) const {
        label.positives.clear();
        for (int64_t k = block.positive_indptr[j]; k < block.positive_indptr[j + 1]; ++k) {
            label.positives.push_back(store_.position[block.positive_rows[k]]);
        }
        std::sort(label.positives.begin(), label.positives.end());
        label.positive_factor = block.positive_factor[j];
        label.negative_factor = block.negative_factor[j];
        label.has_bias = options_.bias_value != 0;
        label.bias_penalty = options_.bias_penalty;
        label.gap_tol = options_.gap_tol;
        const LabelSides sides = sides_of(label);
        label.rule = options_.tol * rule_scale(label, sides, scratch);
        label.swapped = 2 * static_cast<int64_t>(label.positives.size()) > store_.n_rows;
        if (label.swapped) swap_sides(label);
        return sides;
    }

  private:
    const RowStore &store_;
    const OneVsAllOptions &options_;
    std::vector<double> row_sum_;  // Σ_i c_i x_i
    double total_ = 0, squared_row_sum_ = 0;
    int64_t n_weighted_ = 0;

    // A side without weight has a weight of exactly zero.
    LabelSides sides_of(const LabelProblem &label) const {
        double positive = 0;
        int64_t n_weighted = 0;
        for (uint32_t i : label.positives) {
            positive += store_.weight[i];
            n_weighted += store_.weight[i] != 0;
        }
        const double negative = n_weighted == n_weighted_ ? 0.0 : total_ - positive;
        return {positive * label.positive_factor, negative * label.negative_factor};
    }

    // max(1, min(P, N)) / n · ‖∇f(0)‖
    double rule_scale(const LabelProblem &label, const LabelSides &sides, std::vector<double> &dense) const {
        double squares = 0, cross = 0, sum = 0;
        int64_t n_entries = 0;
        for (uint32_t i : label.positives) {
            n_entries += store_.length(i);
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                dense[store_.entries[k].col] += store_.weight[i] * store_.value(k);
            }
            sum += store_.weight[i];
        }
        auto absorb = [&](int64_t col) {  // sees the sum of a column once, later zero
            double &x = dense[col];
            squares += x * x;
            cross += x * row_sum_[col];
            x = 0;
        };
        if (n_entries >= store_.n_used) {
            for (int64_t col = 0; col < store_.n_used; ++col) absorb(col);
        } else {
            for (uint32_t i : label.positives) {
                for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) absorb(store_.entries[k].col);
            }
        }
        const double nf = label.negative_factor, both = label.positive_factor + nf;
        const double bias = options_.bias_value * (both * sum - nf * total_);
        const double norm = both * both * squares - 2 * both * nf * cross + nf * nf * squared_row_sum_ + bias * bias;
        const double total = (sides.positive + sides.negative) / options_.C;
        const double rare = std::min(sides.positive, sides.negative) / options_.C;
        return 2 * std::sqrt(std::max(0.0, norm)) * std::max(1.0, rare) / std::max(1.0, total);
    }

    void swap_sides(LabelProblem &label) const {
        std::vector<uint32_t> others;
        auto positive = label.positives.begin();
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            if (positive != label.positives.end() && *positive == i) {
                ++positive;
            } else {
                others.push_back(static_cast<uint32_t>(i));
            }
        }
        label.positives.swap(others);
        std::swap(label.positive_factor, label.negative_factor);
    }
};

// Weights from the caller: a start for the fast one-vs-all solver (the solution for another C, or of an earlier fit),
// or a stored model whose objective is requested.
//
// They are read one label at a time from a CSR matrix over the columns of X and mapped to columns of the row store,
// with the signs of the label's problem. Memory: 4 bytes per column; the caller owns the matrix.

// (n_labels, n_features) weights in CSR and (n_labels,) intercepts; null if none are given.
struct WeightsView {
    const float *data = nullptr;
    const int32_t *indices = nullptr;
    const int64_t *indptr = nullptr;
    const float *intercept = nullptr;
};

class GivenStart {
  public:
    GivenStart() = default;
    GivenStart(const RowStore &store, const WeightsView &weights) : weights_(weights) {
        if (!given()) return;
        rank_.resize(store.n_cols);
        for (int64_t k = 0; k < store.n_cols; ++k) rank_[store.col_id[k]] = static_cast<uint32_t>(k);
        n_used_ = static_cast<uint32_t>(store.n_used);
    }

    bool given() const { return weights_.indptr != nullptr; }
    // Whether label j has weights; one without them is solved as if no start was given.
    bool has(int64_t j) const { return given() && weights_.indptr[j + 1] > weights_.indptr[j]; }
    double intercept(int64_t j, bool swapped) const { return (swapped ? -1.0 : 1.0) * weights_.intercept[j]; }

    // As a start. Weights on columns without entries are dropped, because the optimum has none there.
    LabelWeights label(int64_t j, bool swapped) const { return read(j, swapped, 0, n_used_); }

    // As they are, except those below `prune`.
    LabelWeights pruned(int64_t j, bool swapped, double prune) const {
        return read(j, swapped, prune, static_cast<uint32_t>(rank_.size()));
    }

  private:
    WeightsView weights_;
    std::vector<uint32_t> rank_;  // column of X -> column of the store
    uint32_t n_used_ = 0;

    LabelWeights read(int64_t j, bool swapped, double prune, uint32_t n_cols) const {
        const float sign = swapped ? -1.0f : 1.0f;
        LabelWeights out;
        for (int64_t k = weights_.indptr[j]; k < weights_.indptr[j + 1]; ++k) {
            const float w = weights_.data[k];
            const uint32_t col = rank_[weights_.indices[k]];
            if (w == 0 || col >= n_cols || std::abs(static_cast<double>(w)) < prune) continue;
            out.cols.push_back(col);
            out.vals.push_back(sign * w);
        }
        out.bias = sign * weights_.intercept[j];
        return out;
    }
};

}  // namespace widemargin
