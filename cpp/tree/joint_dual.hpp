// Block-coordinate ascent on the joint dual of hierarchical large-margin training: steps for the examples
// (tree/ascent.hpp) and for the coupling of the levels (tree/coupling.hpp), both bounds, and extrapolation between
// passes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "simd/threads.hpp"
#include "tree/ascent.hpp"
#include "tree/coupling.hpp"
#include "tree/state.hpp"

namespace widemargin {

// Both bounds of the joint dual in double: Z recomputed from the dual variables, and the losses at the W of that Z.

constexpr int64_t BLOCKS_PER_TASK = 512;

// Sums over chunks of blocks, added in order, so the result does not depend on the number of threads.
template <typename F>
double sum_over_blocks(int64_t n, int n_threads, F sum_of) {
    const int64_t n_tasks = (n + BLOCKS_PER_TASK - 1) / BLOCKS_PER_TASK;
    std::vector<double> sums(n_tasks, 0.0);
    parallel_for(n_tasks, n_threads, [&](int thread, int64_t task) {
        sums[task] = sum_of(thread, task * BLOCKS_PER_TASK, std::min(n, (task + 1) * BLOCKS_PER_TASK));
    });
    double total = 0.0;
    for (double sum : sums) total += sum;
    return total;
}

// One working set per thread.
inline std::vector<WorkingSet> working_sets(const TreeProblem &problem, int n_threads) {
    std::vector<WorkingSet> sets;
    for (int t = 0; t < std::max(1, n_threads); ++t) sets.emplace_back(problem);
    return sets;
}

// Rounding may leave the sum of a block's dual variables slightly above 1: scales it back so that the bound holds.
inline void make_feasible(TreeDuals &duals) {
    double sum = 0.0;
    for (TreeDual &dual : duals) sum += dual.value = std::max(dual.value, 0.0);
    if (sum > 1.0) {
        for (TreeDual &dual : duals) dual.value /= sum * (1.0 + 1e-15);
    }
}

// Z of one group from the dual variables of its blocks, computed in double and then rounded; `squares` gets ‖z_i‖²
// before rounding.
template <typename T, typename V>
void rebuild_group(TreeState<T> &state, const V *values, int64_t g, WorkingSet &set, std::vector<double> &table,
                   double *squares) {
    const TreeProblem &problem = state.problem;
    const int32_t width = problem.tree.width(int32_t(g));
    const int64_t n_features = state.groups.n_features(g);
    table.assign(n_features * width + STRIP, 0.0);
    std::vector<double> changes(width + STRIP);
    for (int64_t e = state.groups.member_start[g]; e < state.groups.member_start[g + 1]; ++e) {
        const GroupMember member = state.groups.members[e];
        const TreeDuals &duals = state.duals[member.block];
        if (duals.empty()) continue;
        set.load(member.block, state.factor);
        for (const TreeDual &dual : duals) set.add_constraint(dual.loser, dual.value);
        const int64_t row = problem.blocks.row[member.block], length = state.X.length(row);
        const int32_t first = set.level_start[member.level];
        std::fill(changes.begin(), changes.end(), 0.0);
        for (int32_t u : set.touched) {
            if (u < first || u >= first + width) continue;
            changes[u - first] = problem.blocks.cost[member.block] * set.step[u];
        }
        state.kernels->add(table.data(), width, state.places(member.block, member.level), values + state.X.start[row],
                           length, changes.data());
        set.clear_step();
    }
    T *to = state.table(g);
    const double *from = table.data();
    for (int64_t f = 0; f < n_features; ++f, from += width, to += width) {
        for (int32_t j = 0; j < width; ++j) {
            squares[j] += from[j] * from[j];
            to[j] = T(from[j]);
        }
    }
}

// Z from the dual variables; returns ½ tr(BᵀM⁻¹B) before rounding.
template <typename T, typename V>
double rebuild(TreeState<T> &state, const V *values, int n_threads) {
    const TreeShape &tree = state.problem.tree;
    for (auto &duals : state.duals) make_feasible(duals);
    std::vector<double> squares(tree.m, 0.0);
    std::vector<std::vector<double>> tables(std::max(1, n_threads));
    std::vector<WorkingSet> sets = working_sets(state.problem, n_threads);
    parallel_for(tree.n_groups, n_threads, [&](int thread, int64_t g) {
        rebuild_group(state, values, g, sets[thread], tables[thread], squares.data() + tree.group_start[g]);
    });
    double sum = 0.0;
    for (int32_t i = 0; i < tree.m; ++i) sum += squares[i] / state.factor.pivots[i];
    return 0.5 * sum;
}

// Σ γ Σ_c a_c ρ_c, the linear part of the dual.
template <typename T>
double dual_gain(const TreeState<T> &state, int n_threads) {
    const TreeBlocks &blocks = state.problem.blocks;
    std::vector<WorkingSet> sets = working_sets(state.problem, n_threads);
    return sum_over_blocks(blocks.n, n_threads, [&](int thread, int64_t begin, int64_t end) {
        double total = 0.0;
        for (int64_t b = begin; b < end; ++b) {
            if (!(blocks.cost[b] > 0.0) || state.duals[b].empty()) continue;
            if (state.problem.loss.over_all) sets[thread].load(b, state.factor);
            for (const TreeDual &dual : state.duals[b]) {
                const double rho = state.problem.loss.over_all ? sets[thread].rho(dual.loser) : 1.0;
                total += blocks.cost[b] * rho * dual.value;
            }
        }
        return total;
    });
}

// Σ γ loss at `scale` times W = L⁻ᵀ diag(pivots)⁻¹ Z; `awake` (n_blocks,) gets 1 where a step would gain something.
template <typename T, typename V>
double sum_losses(const TreeState<T> &state, const V *values, double scale, int n_threads,
                  std::vector<uint8_t> &awake) {
    const TreeBlocks &blocks = state.problem.blocks;
    awake.assign(blocks.n, 0);
    std::vector<WorkingSet> sets = working_sets(state.problem, n_threads);
    return sum_over_blocks(blocks.n, n_threads, [&](int thread, int64_t begin, int64_t end) {
        double total = 0.0;
        WorkingSet &set = sets[thread];
        for (int64_t b = begin; b < end; ++b) {
            if (!(blocks.cost[b] > 0.0)) continue;
            set.load(b, state.factor);
            score_exactly(state, b, values + state.X.start[blocks.row[b]], set);
            for (int32_t u = 0; u < set.n; ++u) set.score[u] *= scale;
            set.update_slacks();
            const double loss = set.largest_slack();
            total += blocks.cost[b] * loss;
            double kept = 0.0;
            for (const TreeDual &dual : state.duals[b]) kept += dual.value * set.slack[dual.loser];
            awake[b] = loss - kept > 1e-9;
        }
        return total;
    });
}

// Extrapolates the dual variables between passes, as in Nesterov's method, and restarts when the dual falls.
//
// Block steps are slow along directions in which many blocks must move together; on RCV1 subsets with a gap of 1e-6,
// extrapolation saves more than half of the passes (benchmarks/hierarchical.py).
template <typename T>
class Momentum {
  public:
    // Call it between passes with the dual value of the current point.
    void move(TreeState<T> &state, BlockAscent<T> &ascent, double dual) {
        if (before_.empty()) {
            before_ = state.duals;
            return forget(dual);
        }
        if (dual < dual_) t_ = 1.0;
        dual_ = dual;
        const double next = 0.5 * (1.0 + std::sqrt(1.0 + 4.0 * t_ * t_)), share = (t_ - 1.0) / next;
        t_ = next;
        if (share == 0.0) {
            before_ = state.duals;
            return;
        }
        for (int64_t b = 0; b < state.problem.blocks.n; ++b) ascent.extrapolate(b, share, before_[b]);
    }
    // Restarts, after dual variables were changed from outside.
    void restart() { before_.clear(); }

  private:
    std::vector<TreeDuals> before_;
    double t_ = 1.0, dual_ = 0.0;

    void forget(double dual) {
        t_ = 1.0;
        dual_ = dual;
    }
};

struct JointOptions {
    uint64_t seed;
    int n_threads;
    int32_t small_subtree;  // largest subtree (nodes) for which the S-step uses dense matrices
};

template <typename T>
class JointDual {
  public:
    // M (n_entries,) is the fixed coupling; with `learns_signs` it is K, and the coupling K∘S starts at its diagonal.
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
            const T *row = X.values + X.start[i];
            state_.squared_norms[i] = inner_product(row, row, X.length(i));
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

    // Sets the dual variables by block as (loser, value), and S; computes Z from them.
    template <typename V>
    void start_from(const int64_t *start, const int32_t *losers, const double *values, const double *S,
                    const V *X_values) {
        WorkingSet set(state_.problem);
        for (int64_t b = 0; b < state_.problem.blocks.n; ++b) {
            set_duals(state_, b, losers + start[b], values + start[b], start[b + 1] - start[b], set);
        }
        if (coupling_) coupling_->set(std::vector<double>(S, S + coupling_->S.size()));
        rebuild(state_, X_values, options_.n_threads);
        momentum_.restart();
        order_.wake_all();
    }
    TreeLists<double> duals() const { return read_duals(state_); }
    // Rows of Z without zeros, (m, n_cols).
    TreeLists<T> parts() const {
        const TreeShape &tree = state_.problem.tree;
        TreeLists<T> lists;
        for (int32_t i = 0; i < tree.m; ++i) {
            const int32_t g = tree.group_of[i], width = tree.width(g);
            const T *z = state_.table(g) + (i - tree.group_start[g]);
            const int32_t *features = state_.groups.features.data() + state_.groups.feature_start[g];
            for (int64_t f = 0; f < state_.groups.n_features(g); ++f, z += width) {
                if (*z != T(0)) lists.cols.push_back(features[f]), lists.values.push_back(*z);
            }
            lists.start.push_back(int64_t(lists.cols.size()));
        }
        return lists;
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

    // Continues the current pass for some seconds; returns whether it is finished.
    bool run(double seconds) {
        const auto begin = std::chrono::steady_clock::now();
        if (at_end_) begin_pass();
        while (!order_.done()) {
            for (int k = 0; k < VISITS_AT_ONCE && !order_.done(); ++k) {
                // Rows come in random order; saves about 5 % of a pass.
                __builtin_prefetch(&state_.duals[order_.ahead(3)]);
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

    // The S-step; returns the resulting gap of the pairs (0 if the coupling is fixed) and D(a, S), subject to the
    // rounding of Z.
    double improve_coupling(double target, int n_steps, double &dual) {
        if (coupling_) coupling_->improve(target, n_steps);
        dual = dual_gain(state_, options_.n_threads) - quadratic();
        return coupling_ ? coupling_->gap() : 0.0;
    }
    // Extrapolates in the direction of the last pass; `dual` is the current D(a, S).
    void extrapolate(double dual) { momentum_.move(state_, *ascent_, dual); }

    // Both bounds: recomputes Z from the dual variables, then evaluates the objective at the W of that Z as stored.
    // Blocks with something to gain wake up.
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
    static constexpr int VISITS_AT_ONCE = 256;  // between checks of the clock
    JointOptions options_;
    TreeState<T> state_;
    BlockOrder order_;
    std::unique_ptr<Coupling<T>> coupling_;
    std::unique_ptr<BlockAscent<T>> ascent_;
    Momentum<T> momentum_;
    PassSummary summary_;
    bool at_end_ = true;

    // ½ tr(WᵀMW), at the last measurement of a learned coupling
    double quadratic() const { return coupling_ ? coupling_->half_trace() : half_trace(state_, options_.n_threads); }

    void begin_pass() {
        order_.begin_pass();
        summary_ = {};
        at_end_ = false;
    }
};

}  // namespace widemargin
