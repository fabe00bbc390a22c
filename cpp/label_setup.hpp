// Makes the problem of one label: its positives in the order of the row store, the scale of the stop rule in closed
// form, the sides turned round when positives are the majority.
//
//     ∇f(0) = −2 Σ_i c_i y_i (x_i, 1) = −2 ((f₊ + f₋) Σ_{positive} c_i (x_i, 1) − f₋ Σ_i c_i (x_i, 1))
//
// so that a label costs the entries of its positive rows only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "label_problem.hpp"
#include "one_vs_all.hpp"
#include "row_store.hpp"

namespace widemargin {

// Summed weights of a label's rows, class factors included.
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

    // `scratch`: (n_cols,) zeros, left as zeros.
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

    // A side without weight has weight zero exactly.
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
        for (uint32_t i : label.positives) {
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                dense[store_.entries[k].col] += store_.weight[i] * store_.value(k);
            }
            sum += store_.weight[i];
        }
        for (uint32_t i : label.positives) {  // meets every column once with its sum, later with zero
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                double &x = dense[store_.entries[k].col];
                squares += x * x;
                cross += x * row_sum_[store_.entries[k].col];
                x = 0;
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

}  // namespace widemargin
