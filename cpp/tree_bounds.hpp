// Both bounds of the joint dual in double: Z made anew from the dual variables, and the losses at the W of that Z.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel_for.hpp"
#include "tree_state.hpp"

namespace widemargin {

constexpr int64_t BLOCKS_A_TASK = 512;

// Sum over chunks of blocks, added in order, so that it does not depend on the number of threads.
template <typename F>
double sum_over_blocks(int64_t n, int n_threads, F sum_of) {
    const int64_t n_tasks = (n + BLOCKS_A_TASK - 1) / BLOCKS_A_TASK;
    std::vector<double> sums(n_tasks, 0.0);
    parallel_for(n_tasks, n_threads, [&](int thread, int64_t task) {
        sums[task] = sum_of(thread, task * BLOCKS_A_TASK, std::min(n, (task + 1) * BLOCKS_A_TASK));
    });
    double total = 0.0;
    for (double sum : sums) total += sum;
    return total;
}

// A working set for each thread.
inline std::vector<WorkingSet> working_sets(const TreeProblem &problem, int n_threads) {
    std::vector<WorkingSet> sets;
    for (int t = 0; t < std::max(1, n_threads); ++t) sets.emplace_back(problem);
    return sets;
}

// Rounding may leave the sum of a block's dual variables above 1 by a bit: scaled back, so that the bound is strict.
inline void make_feasible(std::vector<TreeDual> &duals) {
    double sum = 0.0;
    for (TreeDual &dual : duals) sum += dual.value = std::max(dual.value, 0.0);
    if (sum > 1.0) {
        for (TreeDual &dual : duals) dual.value /= sum * (1.0 + 1e-15);
    }
}

// Z of one group from the dual variables of its blocks, in double, then rounded; `squares` gets ‖z_i‖² before that.
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
        const std::vector<TreeDual> &duals = state.duals[member.block];
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

// Z from the dual variables; returns ½ tr(BᵀM⁻¹B) of the unrounded one.
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

}  // namespace widemargin
