// Solves one label's problem on a working set of rows, in compact coordinates, by subspace search in float32.
//
// The rows of the set are copied with features renumbered in order of first use, so vectors are only as long as the set
// has features. Each iteration minimises over span{−g, last step, w, intercept}: one sweep of row dots and one of
// gradient sums. Memory: 8 bytes per entry of the set, 12 bytes per feature, 20 bytes per row, and 4 bytes per column
// of X.
//
// Tried without gain: skipping rows far inside their margin until the end. Half of the rows qualify, but a search that
// ignores them must be repeated when one becomes active: no gain on yso-finna-en for rows beyond 1 to 4 times the
// largest move of a score, and 10 to 25 % more iterations with 0.5 and 0.3.
//
// Twin: tests/reference/fast_one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/subspace_search.hpp"

namespace widemargin {

struct LocalTarget {
    double gradient_norm;  // stop at ‖g‖ ≤ gradient_norm
    double gap_share;      // and ½‖g_w‖² ≤ gap_share · f
    bool fixed_bias;       // keep b fixed and ignore its gradient
    int max_iter;
};

constexpr uint32_t NO_ID = 0xffffffffu;

constexpr int64_t KEPT_LOCAL_ENTRIES = 1 << 18;  // 2 MB

class LocalProblem {
  public:
    LocalProblem(const RowStore &store, const VectorKernels &kernels)
        : store_(store), kernels_(kernels), local_id_(store.n_cols, NO_ID) {}

    // Returns the memory of an unusually large problem; later ones need a fraction of it.
    void trim() {
        if (static_cast<int64_t>(entries_.size()) <= KEPT_LOCAL_ENTRIES) return;
        std::vector<RowEntry>().swap(entries_);
        std::vector<int64_t>().swap(start_);
        std::vector<uint32_t>().swap(active_);
        for (AlignedFloats *array : {&s_, &sz_, &sp_, &cost_}) array->reset();
        row_capacity_ = 0;
    }

    // Copies `rows` (by ascending position) and starts from `weights`.
    void build(const LabelProblem &label, const std::vector<RowView> &rows, const LabelWeights &weights) {
        number_carried(weights);
        copy_rows(rows);
        label_rows(label, rows);
        resize_features(weights);
        bias_ = weights.bias;
        carried_ = !weights.cols.empty();
        bias_penalty_ = label.bias_penalty;
        kernels_.row_dots(n_rows_, start_.data(), entries_.data(), w_.get(), s_.get());
        for (int64_t i = 0; i < n_rows_; ++i) s_[i] += static_cast<float>(bias_);
    }

    // Returns the number of iterations; `converged` says whether the target was reached.
    int solve(const LocalTarget &target, bool &converged) {
        SubspaceProducts products;
        double step_products[3] = {0, 0, 0};
        float none[N_DIRECTIONS] = {0, 0, 0, 0};
        kernels_.step_features(padded_features_, none, z_.get(), p_.get(), w_.get(), step_products);
        converged = false;
        int iteration = 0;
        for (;; ++iteration) {
            const double bias_gradient = add_gradient();
            double direction[3];
            kernels_.direction_products(padded_features_, z_.get(), p_.get(), w_.get(), direction);
            const double value = loss_ + 0.5 * step_products[2] + 0.5 * bias_penalty_ * bias_ * bias_;
            const double bias_part = target.fixed_bias ? 0.0 : bias_gradient * bias_gradient;
            converged = std::sqrt(direction[0] + bias_part) <= target.gradient_norm &&
                        0.5 * direction[0] <= target.gap_share * value;
            if (converged || iteration == target.max_iter || !(direction[0] + bias_part > 0)) break;
            products = {direction[0],     direction[1],     direction[2], step_products[0],
                        step_products[1], step_products[2], bias_,        bias_penalty_};
            search_and_step(products, !target.fixed_bias, iteration, step_products);
        }
        return iteration;
    }

    // The weights in columns of the store; exact zeros are dropped.
    void read(LabelWeights &out) const {
        out.cols.resize(n_features_);
        out.vals.resize(n_features_);
        size_t count = 0;
        for (int64_t k = 0; k < n_features_; ++k) {
            out.cols[count] = features_[k];
            out.vals[count] = w_[k];
            count += w_[k] != 0;
        }
        out.cols.resize(count);
        out.vals.resize(count);
        out.bias = static_cast<float>(bias_);
    }

  private:
    const RowStore &store_;
    const VectorKernels &kernels_;
    std::vector<uint32_t> local_id_;  // column -> local feature, NO_ID outside a build
    std::vector<uint32_t> features_;  // local feature -> column
    std::vector<int64_t> start_;
    std::vector<RowEntry> entries_;
    std::vector<uint32_t> active_;
    int64_t n_rows_ = 0, padded_rows_ = 0, row_capacity_ = 0;
    int64_t n_features_ = 0, padded_features_ = 0, feature_capacity_ = 0;
    AlignedFloats s_, sz_, sp_, cost_;  // rows; cost carries the sign of y
    AlignedFloats w_, z_, p_;           // features
    double bias_ = 0, bias_penalty_ = 0, loss_ = 0;
    bool carried_ = false;  // started from weights other than zero

    static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

    void number_carried(const LabelWeights &weights) {
        features_.resize(store_.n_cols + 1);
        n_features_ = 0;
        for (uint32_t col : weights.cols) {
            local_id_[col] = static_cast<uint32_t>(n_features_);
            features_[n_features_++] = col;
        }
    }

    // New features get the next number, without a branch, because whether a feature is new is unpredictable.
    void copy_rows(const std::vector<RowView> &rows) {
        n_rows_ = static_cast<int64_t>(rows.size());
        start_.resize(n_rows_ + 1);
        int64_t total = 0;
        for (int64_t i = 0; i < n_rows_; ++i) {
            start_[i] = total;
            total += rows[i].length;
        }
        start_[n_rows_] = total;
        if (static_cast<int64_t>(entries_.size()) < total)
            entries_.resize(std::max(total, std::min(total + total / 2, store_.nnz())));
        RowEntry *__restrict out = entries_.data();
        uint32_t *__restrict ids = local_id_.data(), *__restrict features = features_.data();
        uint32_t count = static_cast<uint32_t>(n_features_);
        for (int64_t i = 0; i < n_rows_; ++i) {
            const RowEntry *end = rows[i].entries + rows[i].length;
            for (const RowEntry *e = rows[i].entries; e != end; ++e) {
                const uint32_t known = ids[e->col], id = known == NO_ID ? count : known;
                ids[e->col] = id;
                features[count] = e->col;
                count += known == NO_ID;
                *out++ = {id, e->val};
            }
        }
        n_features_ = count;
        for (int64_t k = 0; k < n_features_; ++k) ids[features[k]] = NO_ID;
    }

    void label_rows(const LabelProblem &label, const std::vector<RowView> &rows) {
        padded_rows_ = padded(n_rows_);
        if (padded_rows_ > row_capacity_) {
            row_capacity_ = padded(padded_rows_ + padded_rows_ / 2);
            for (AlignedFloats *array : {&s_, &sz_, &sp_, &cost_}) *array = aligned_floats(row_capacity_);
        }
        const float positive_factor = static_cast<float>(label.positive_factor);
        const float negative_factor = static_cast<float>(label.negative_factor);
        const uint32_t *positive = label.positives.data(), *last = positive + label.positives.size();
        for (int64_t i = 0; i < n_rows_; ++i) {
            while (positive != last && *positive < rows[i].row) ++positive;
            const bool is_positive = positive != last && *positive == rows[i].row;
            cost_[i] = store_.cost_of(rows[i].row) * (is_positive ? positive_factor : -negative_factor);
        }
        std::fill_n(sp_.get(), padded_rows_, 0.0f);
        for (int64_t i = n_rows_; i < padded_rows_; ++i) s_[i] = sz_[i] = cost_[i] = 0;
    }

    void resize_features(const LabelWeights &weights) {
        padded_features_ = padded(n_features_);
        if (padded_features_ > feature_capacity_) {
            feature_capacity_ = padded(padded_features_ + padded_features_ / 2);
            for (AlignedFloats *array : {&w_, &z_, &p_}) *array = aligned_floats(feature_capacity_);
        }
        for (AlignedFloats *array : {&w_, &z_, &p_}) std::fill_n(array->get(), padded_features_, 0.0f);
        std::copy(weights.vals.begin(), weights.vals.end(), w_.get());
    }

    // z −= Σ_{active} a_i x_i with a_i = −2 c_i y_i m_i; returns the gradient of the intercept.  Sets: loss_.
    double add_gradient() {
        active_.resize(n_rows_ + 1);
        uint32_t n_active = 0;
        for (int64_t i = 0; i < n_rows_; ++i) {
            active_[n_active] = static_cast<uint32_t>(i);
            n_active += std::copysign(1.0f, cost_[i]) * s_[i] < 1.0f;
        }
        double bias_sum = 0, loss = 0;
        float *__restrict z = z_.get();
        for (uint32_t a = 0; a < n_active; ++a) {
            const uint32_t i = active_[a];
            const float m = 1.0f - std::copysign(1.0f, cost_[i]) * s_[i], scale = 2 * cost_[i] * m;
            loss += 0.5 * std::abs(static_cast<double>(scale) * m);
            bias_sum += scale;
            for (int64_t k = start_[i]; k < start_[i + 1]; ++k) z[entries_[k].col] += scale * entries_[k].val;
        }
        loss_ = loss;
        return bias_penalty_ * bias_ - bias_sum;
    }

    void search_and_step(const SubspaceProducts &products, bool move_bias, int iteration, double *step_products) {
        kernels_.row_dots(n_rows_, start_.data(), entries_.data(), z_.get(), sz_.get());
        const bool use[N_DIRECTIONS] = {true, iteration > 0, carried_ || iteration >= SOLO_ITERATIONS, move_bias};
        const SearchRows rows{padded_rows_, LANES, s_.get(), sz_.get(), sp_.get(), cost_.get()};
        SubspaceSearch search;
        search.begin(products, use);
        double sums[N_SEARCH_SUMS];
        do {
            kernels_.search_sums(rows, static_cast<float>(bias_), search.theta(), sums);
        } while (!search.absorb(sums));
        const float *theta = search.theta();
        kernels_.step_rows(padded_rows_, static_cast<float>(bias_), theta, sz_.get(), sp_.get(), s_.get());
        kernels_.step_features(padded_features_, theta, z_.get(), p_.get(), w_.get(), step_products);
        bias_ += theta[3];
    }
};

}  // namespace widemargin
