// Dual ascent on the examples of a tree with a kernel: the visits of tree/ascent.hpp, with scores kept up to date.
//
//     Z = L⁻¹ B K,      B (m × n): column k has Σ_g γ_g Σ_c a_gc κ_c (e_winner − e_c) of the blocks of example k
//
// replaces Z = L⁻¹B: the scores of example k are L⁻ᵀ diag(pivots)⁻¹ times its column, and a step adds a column of the
// kernel matrix K to the rows of Z that it touches. A block with a small gap is left unchanged. If the columns do not
// fit in memory, blocks that have a step but no column wait in a queue, and run() pauses for them. Twin:
// tests/reference/joint_dual.py, with features X such that K = X Xᵀ.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd/kernel_columns.hpp"
#include "tree/ascent.hpp"
#include "tree/coupling.hpp"

namespace widemargin {

struct KernelTreeState {
    TreeProblem problem;
    int64_t n = 0;
    double *Z = nullptr;  // (m, n), owned by the caller
    TreeFactor factor;    // without L
    std::vector<TreeDuals> duals;
    const double *squared_norms = nullptr;  // (n,) diagonal of K
    const double *column = nullptr;         // of the visited example
    AddColumn<double> add = choose_add_column<double>();
};

inline void score_loaded(const KernelTreeState &state, int64_t block, std::vector<double> &, WorkingSet &set) {
    const double *z = state.Z + state.problem.blocks.row[block];
    for (int32_t u = 0; u < set.n; ++u) set.score[u] = z[int64_t(set.node(u)) * state.n];
    set.scores_from_parts();
}

inline void add_step(KernelTreeState &state, int64_t block, const WorkingSet &set, std::vector<double> &) {
    double factors[COLUMN_GROUP], *rows[COLUMN_GROUP];
    const double cost = state.problem.blocks.cost[block];
    for (size_t first = 0; first < set.touched.size(); first += COLUMN_GROUP) {
        const int count = int(std::min<size_t>(COLUMN_GROUP, set.touched.size() - first));
        for (int g = 0; g < count; ++g) {
            const int32_t u = set.touched[first + g];
            factors[g] = cost * set.step[u];
            rows[g] = state.Z + int64_t(set.node(u)) * state.n;
        }
        state.add(state.column, state.n, factors, rows, count);
    }
}

enum class KernelPause : int { PASS_DONE = 0, COLUMNS = 1, WORK_DONE = 2 };

class KernelTreeAscent {
  public:
    // The caller owns Z (m, n) and changes it between passes; `diagonal` (n,) is the diagonal of K.
    KernelTreeAscent(const TreeProblem &problem, int64_t n, const double *diagonal, double *Z, int64_t n_slots,
                     uint64_t seed)
        : state_(begin(problem, n, diagonal, Z)),
          order_(problem.blocks.n, problem.blocks.cost, seed),
          columns_(n, n_slots),
          rest_(n, 0),
          is_wanted_(n, 0) {}
    KernelTreeAscent(const KernelTreeAscent &) = delete;
    KernelTreeAscent &operator=(const KernelTreeAscent &) = delete;

    ColumnCache<double> &columns() { return columns_; }
    KernelTreeState &state() { return state_; }
    const std::vector<int64_t> &wanted() const { return wanted_; }
    PassSummary summary() const { return summary_; }
    void wake(int64_t block) { order_.wake(block); }

    // The dual variables of a block by loser.
    void set_duals(int64_t block, const int32_t *losers, const double *values, int64_t count) {
        widemargin::set_duals(state_, block, losers, values, count, set_);
    }
    TreeLists<double> duals() const { return read_duals(state_); }

    // Continues the current pass until it is done, columns are needed, or `work` multiplications are done. A block with
    // a gap of at most `small` is not changed.
    KernelPause run(int64_t work, double small) {
        if (at_end_) {
            order_.begin_pass();
            summary_ = {};
            at_end_ = false;
        }
        work_ = 0;
        if (asked_) visit_queue(small);  // the columns are here now
        while (!order_.done()) {
            if (work_ > work) return KernelPause::WORK_DONE;
            visit(order_.next(), small, true);
            if (int64_t(wanted_.size()) == AT_ONCE) break;
        }
        asked_ = !queue_.empty();
        if (asked_) return KernelPause::COLUMNS;
        at_end_ = true;
        return KernelPause::PASS_DONE;
    }

  private:
    static constexpr int64_t AT_ONCE = 128;  // columns requested together

    KernelTreeState state_;
    BlockOrder order_;
    BlockAscent<double, KernelTreeState> ascent_{state_};
    WorkingSet set_{state_.problem};
    ColumnCache<double> columns_;
    std::vector<int32_t> rest_;  // (n,) 1 if the last visit changed nothing: its column may be dropped
    std::vector<uint8_t> is_wanted_;
    std::vector<int32_t> queue_;
    std::vector<int64_t> wanted_;
    PassSummary summary_;
    int64_t work_ = 0;
    bool at_end_ = true, asked_ = false;

    static KernelTreeState begin(const TreeProblem &problem, int64_t n, const double *diagonal, double *Z) {
        KernelTreeState state;
        state.problem = problem;
        state.n = n;
        state.Z = Z;
        state.squared_norms = diagonal;
        state.duals.resize(problem.blocks.n);
        state.factor.R.assign(problem.paths.n_entries(), 0.0);
        state.factor.pivots.assign(problem.paths.m, 1.0);
        state.factor.inverse_pivots = state.factor.pivots;
        return state;
    }

    void visit(int32_t block, double small, bool may_wait) {
        const int64_t row = state_.problem.blocks.row[block];
        const double gap = ascent_.find_step(block);
        const bool moves = ascent_.changed() && gap > small;
        state_.column = moves ? columns_.find(row) : nullptr;
        if (moves && state_.column == nullptr && may_wait) {
            ascent_.end_visit(block, false);
            queue_.push_back(block);
            if (!is_wanted_[row]) is_wanted_[row] = 1, wanted_.push_back(row);
            return;
        }
        ascent_.end_visit(block, moves);
        summary_.gap += gap;
        ++summary_.n_visits;
        order_.note(block, moves);
        rest_[row] = !moves;
        work_ += moves ? 4 * state_.n : 64;
    }
    // Visits the queued blocks with the columns that were lent.
    void visit_queue(double small) {
        for (int32_t block : queue_) visit(block, small, false);
        for (int64_t row : wanted_) {
            columns_.keep(row, rest_.data());
            is_wanted_[row] = 0;
        }
        columns_.take_back();
        queue_.clear();
        wanted_.clear();
        asked_ = false;
    }
};

// Exact steps in the entries of S of one subtree, in sweeps until the gap of its pairs is at most `target`; `gram` (b ×
// b) is L⁻¹QL⁻ᵀ with Q = B K Bᵀ. False if K∘S is not positive definite.
inline bool sweep_signs(const AncestorPaths &paths, const double *K, double *S, const std::vector<double> &gram,
                        double target) {
    std::vector<double> M(paths.n_entries());
    for (size_t e = 0; e < M.size(); ++e) M[e] = K[e] * S[e];
    TreeFactor factor;
    if (!factorize(paths, M.data(), factor)) return false;
    invert_factor(paths, factor);
    std::vector<int32_t> nodes(paths.m);
    for (int32_t i = 0; i < paths.m; ++i) nodes[i] = i;
    CoordinateSteps steps(paths, factor, nodes, nodes, gram);
    for (int k = 0; k < MAX_SWEEPS && (k < MIN_SWEEPS || steps.gap(K, S) > target); ++k) steps.sweep(K, S);
    return true;
}

}  // namespace widemargin
