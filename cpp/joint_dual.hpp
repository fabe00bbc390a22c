// Block-coordinate ascent on the joint dual of hierarchical large-margin training: examples (tree_ascent.hpp), the
// coupling of the levels (tree_coupling.hpp), and both bounds (tree_bounds.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tree_ascent.hpp"
#include "tree_bounds.hpp"
#include "tree_coupling.hpp"
#include "tree_momentum.hpp"

namespace widemargin {

struct JointOptions {
    uint64_t seed;
    int n_threads;
    int32_t small_subtree;  // nodes up to which the S-step works on dense matrices
};

template <typename T>
class JointDual {
  public:
    // M (n_entries,) is the fixed coupling; with `learns_signs` it is K, and the coupling K∘S begins at its diagonal.
    JointDual(const TreeProblem &problem, const TreeRows<T> &X, const double *M, bool learns_signs,
              const JointOptions &options)
        : options_(options), order_(problem.blocks.n, problem.blocks.cost, options.seed) {
        state_.problem = problem;
        state_.X = X;
        state_.groups.build(problem.tree, X, problem.blocks, learns_signs, options.n_threads);
        state_.Z = aligned_array<T>(state_.groups.table_size() + STRIP);
        state_.duals.resize(problem.blocks.n);
        state_.squared_norms.resize(X.n_rows);
        for (int64_t i = 0; i < X.n_rows; ++i) {
            for (int64_t k = X.start[i]; k < X.start[i + 1]; ++k) {
                state_.squared_norms[i] += double(X.values[k]) * double(X.values[k]);
            }
        }
        bool definite;
        if (learns_signs) {
            coupling_ = std::make_unique<Coupling<T>>(state_, M, options.small_subtree, options.n_threads);
            definite = coupling_->set(std::vector<double>(coupling_->S));
        } else {
            definite = factorize(problem.paths, M, state_.factor);
            if (definite) invert_factor(problem.paths, state_.factor);
        }
        if (!definite) throw std::invalid_argument("the matrix that couples the nodes is not positive definite");
        ascent_ = std::make_unique<BlockAscent<T>>(state_);
    }
    JointDual(const JointDual &) = delete;
    JointDual &operator=(const JointDual &) = delete;

    // Dual variables by block as (loser, value), and S; Z is made of them.
    template <typename V>
    void start_from(const int64_t *start, const int32_t *losers, const double *values, const double *S,
                    const V *X_values) {
        WorkingSet set(state_.problem);
        for (int64_t b = 0; b < state_.problem.blocks.n; ++b) {
            state_.duals[b].clear();
            if (start[b] == start[b + 1]) continue;
            set.load(b, state_.factor);
            for (int64_t e = start[b]; e < start[b + 1]; ++e) {
                const int32_t at =
                    int32_t(std::find(set.node.begin(), set.node.begin() + set.n, losers[e]) - set.node.begin());
                if (values[e] > 0.0 && at < set.n && set.has_constraint(at)) state_.duals[b].push_back({at, values[e]});
            }
        }
        if (coupling_) coupling_->set(std::vector<double>(S, S + coupling_->S.size()));
        rebuild(state_, X_values, options_.n_threads);
        momentum_.restart();
        order_.wake_all();
    }
    void read_duals(std::vector<int64_t> &start, std::vector<int32_t> &losers, std::vector<double> &values) const {
        WorkingSet set(state_.problem);
        start.assign(1, 0);
        for (int64_t b = 0; b < state_.problem.blocks.n; ++b) {
            if (!state_.duals[b].empty()) set.load(b, state_.factor);
            for (const TreeDual &dual : state_.duals[b]) {
                losers.push_back(set.node[dual.loser]);
                values.push_back(dual.value);
            }
            start.push_back(int64_t(losers.size()));
        }
    }
    // Rows of Z without zeros, as CSR parts of (m, n_cols).
    void read_parts(std::vector<int64_t> &start, std::vector<int32_t> &cols, std::vector<T> &values) const {
        const TreeShape &tree = state_.problem.tree;
        start.assign(1, 0);
        for (int32_t i = 0; i < tree.m; ++i) {
            const int32_t g = tree.group_of[i], width = tree.width(g);
            const T *z = state_.table(g) + (i - tree.group_start[g]);
            const int32_t *features = state_.groups.features.data() + state_.groups.feature_start[g];
            for (int64_t f = 0; f < state_.groups.n_features(g); ++f, z += width) {
                if (*z != T(0)) cols.push_back(features[f]), values.push_back(*z);
            }
            start.push_back(int64_t(cols.size()));
        }
    }

    // out (m, n_cols) += W = L⁻ᵀ diag(pivots)⁻¹ Z
    void read_weights(double *out) const {
        const TreeShape &tree = state_.problem.tree;
        const AncestorPaths &paths = state_.problem.paths;
        parallel_for(tree.m, options_.n_threads, [&](int, int64_t i) {
            for (int64_t e = paths.start[i]; e < paths.start[i + 1]; ++e) {
                const int32_t a = paths.nodes[e], g = tree.group_of[a], width = tree.width(g);
                const double factor = state_.factor.R[e] * state_.factor.inverse_pivots[a];
                const T *z = state_.table(g) + (a - tree.group_start[g]);
                const int32_t *features = state_.groups.features.data() + state_.groups.feature_start[g];
                double *row = out + i * state_.X.n_cols;
                for (int64_t f = 0; f < state_.groups.n_features(g); ++f, z += width) {
                    row[features[f]] += factor * double(*z);
                }
            }
        });
    }

    // Goes on with the present pass for some seconds; whether it is finished.
    bool run(double seconds) {
        const auto begin = std::chrono::steady_clock::now();
        if (at_end_) begin_pass();
        while (!order_.done()) {
            for (int k = 0; k < VISITS_AT_ONCE && !order_.done(); ++k) {
                __builtin_prefetch(&state_.duals[order_.ahead(3)]);  // rows come in random order: some 5 % of a pass
                state_.prefetch(order_.ahead(1));
                const int32_t block = order_.next();
                summary_.gap += ascent_->visit(block);
                ++summary_.n_visits;
                order_.note(block, ascent_->changed());
            }
            const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
            if (elapsed.count() > seconds && !order_.done()) return false;
        }
        at_end_ = true;
        return true;
    }
    PassSummary summary() const { return summary_; }

    // The S-step; returns the gap of the pairs after it, 0 where the coupling is fixed, and D(a, S) with the rounding
    // of Z.
    double improve_coupling(double target, int n_steps, double &dual) {
        if (coupling_) coupling_->improve(target, n_steps);
        dual = dual_gain(state_, options_.n_threads) - quadratic();
        return coupling_ ? coupling_->gap() : 0.0;
    }
    // Goes on in the direction of the last pass; `dual` is D(a, S) as it is.
    void extrapolate(double dual) { momentum_.move(state_, *ascent_, dual); }

    // Both bounds: Z anew from the dual variables, then the objective at the W of that Z as it is stored. Blocks where
    // something is to be gained wake up.
    template <typename V>
    void certify(const V *X_values, double &primal, double &dual) {
        dual = -rebuild(state_, X_values, options_.n_threads);
        dual += dual_gain(state_, options_.n_threads);
        if (coupling_) coupling_->measure();
        const double penalty = quadratic() + (coupling_ ? coupling_->gap() : 0.0);
        std::vector<uint8_t> awake;
        primal = penalty + sum_losses(state_, X_values, 1.0, options_.n_threads, awake);
        for (int64_t b = 0; b < state_.problem.blocks.n; ++b) {
            if (awake[b]) order_.wake(b);
        }
    }

    // Σ γ loss at a multiple of the weights.
    template <typename V>
    double losses_at(const V *X_values, double scale) const {
        std::vector<uint8_t> awake;
        return sum_losses(state_, X_values, scale, options_.n_threads, awake);
    }

    const TreeState<T> &state() const { return state_; }
    const Coupling<T> *coupling() const { return coupling_.get(); }
    int64_t n_active() const { return order_.n_active(); }

  private:
    static constexpr int VISITS_AT_ONCE = 256;  // between looks at the clock
    JointOptions options_;
    TreeState<T> state_;
    BlockOrder order_;
    std::unique_ptr<Coupling<T>> coupling_;
    std::unique_ptr<BlockAscent<T>> ascent_;
    Momentum<T> momentum_;
    PassSummary summary_;
    bool at_end_ = true;

    // ½ tr(WᵀMW), at the last measurement of a coupling that is learnt
    double quadratic() const { return coupling_ ? coupling_->half_trace() : half_trace(state_, options_.n_threads); }

    void begin_pass() {
        order_.begin_pass();
        summary_ = {};
        at_end_ = false;
    }
};

}  // namespace widemargin
