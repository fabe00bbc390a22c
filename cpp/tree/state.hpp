// The state of the joint dual ascent of a tree: the tables of Z = L⁻¹B(a), the factor, and the dual variables a.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "simd/arrays.hpp"
#include "tree/blocks.hpp"
#include "tree/kernels.hpp"

namespace widemargin {

// A non-zero dual variable; `loser` is the local index of its constraint's loser in the block.
struct TreeDual {
    int32_t loser;
    double value;
};

// The non-zero dual variables of a block. A few are kept in place, in one cache line: most blocks have no more, every
// visit reads them, and they are copied once per pass.
class alignas(64) TreeDuals {
  public:
    TreeDuals() = default;
    TreeDuals(const TreeDuals &other) { *this = other; }
    TreeDuals &operator=(const TreeDuals &other) {
        if (this == &other) return *this;
        clear();
        for (const TreeDual &dual : other) push_back(dual);
        return *this;
    }
    int32_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    TreeDual *begin() { return many_ ? many_.get() : few_; }
    TreeDual *end() { return begin() + size_; }
    const TreeDual *begin() const { return many_ ? many_.get() : few_; }
    const TreeDual *end() const { return begin() + size_; }
    const TreeDual &operator[](int32_t k) const { return begin()[k]; }
    void clear() { size_ = 0; }
    void push_back(TreeDual dual) {
        if (size_ == room_) grow();
        begin()[size_++] = dual;
    }

  private:
    static constexpr int32_t FEW = 3;
    int32_t size_ = 0, room_ = FEW;
    std::unique_ptr<TreeDual[]> many_;
    TreeDual few_[FEW];

    void grow() {
        std::unique_ptr<TreeDual[]> more(new TreeDual[2 * room_]);
        std::copy(begin(), end(), more.get());
        many_ = std::move(more);
        room_ *= 2;
    }
};

// Rows of (column, value), as CSR parts.
template <typename T>
struct TreeLists {
    std::vector<int64_t> start{0};
    std::vector<int32_t> cols;
    std::vector<T> values;
};

// Sets the dual variables of a block, given by loser; nodes that are not losers of the block are ignored. State is that
// of any tree ascent.
template <class State>
void set_duals(State &state, int64_t block, const int32_t *losers, const double *values, int64_t count,
               WorkingSet &set) {
    state.duals[block].clear();
    if (count == 0) return;
    set.load(block, state.factor);
    for (int64_t e = 0; e < count; ++e) {
        const int32_t at = set.find(losers[e]);
        if (values[e] > 0.0 && at >= 0 && set.has_constraint(at)) state.duals[block].push_back({at, values[e]});
    }
}
// All dual variables: one row per block, losers as columns.
template <class State>
TreeLists<double> read_duals(const State &state) {
    TreeLists<double> lists;
    WorkingSet set(state.problem);
    for (int64_t b = 0; b < state.problem.blocks.n; ++b) {
        if (!state.duals[b].empty()) set.load(b, state.factor);
        for (const TreeDual &dual : state.duals[b]) {
            lists.cols.push_back(set.node(dual.loser));
            lists.values.push_back(dual.value);
        }
        lists.start.push_back(int64_t(lists.cols.size()));
    }
    return lists;
}

constexpr int64_t PREFETCHED = 64;  // bytes: a cache line

template <typename T>
struct TreeState {
    TreeProblem problem;
    TreeRows<T> X;
    TreeGroups groups;
    TreeFactor factor;
    AlignedArray<T> Z;
    std::vector<TreeDuals> duals;
    std::vector<double> squared_norms;  // of the rows
    const TreeKernels<T> *kernels = &choose_tree_kernels<T>(choose_instruction_set());

    // Prefetches the row that a visit of the block reads, and its places in the tables.
    WIDEMARGIN_PREFETCH void prefetch(int64_t block) const {
        const int64_t row = problem.blocks.row[block], length = X.length(row);
        const T *values = X.values + X.start[row];
        const int32_t *features = places(block, 0);
        for (int64_t k = 0; k < length; k += PREFETCHED / sizeof(T)) __builtin_prefetch(values + k);
        for (int64_t k = 0; k < length * problem.blocks.n_levels[block]; k += PREFETCHED / sizeof(int32_t)) {
            __builtin_prefetch(features + k);
        }
    }

    T *table(int64_t group) { return Z.get() + groups.table_start[group]; }
    const T *table(int64_t group) const { return Z.get() + groups.table_start[group]; }
    const int32_t *places(int64_t block, int64_t level) const {
        return groups.places.data() + groups.place_start[block] + level * X.length(problem.blocks.row[block]);
    }
};

// Scores of the nodes of a loaded block at W = L⁻ᵀ diag(pivots)⁻¹ Z, in double; `values` are the values of the row.
template <typename T, typename V>
void score_exactly(const TreeState<T> &state, int64_t block, const V *values, WorkingSet &set) {
    const int64_t length = state.X.length(state.problem.blocks.row[block]);
    for (int32_t level = 0; level < set.n_levels; ++level) {
        const int32_t first = set.level_start[level], width = set.level_start[level + 1] - first;
        state.kernels->sum(state.table(set.group[level]), width, state.places(block, level), values, length,
                           set.score.data() + first);
    }
    set.scores_from_parts();
}

// The same for the ascent's own copy of the row, with sums of type T.
template <typename T>
void score_loaded(const TreeState<T> &state, int64_t block, std::vector<T> &sums, WorkingSet &set) {
    const int64_t row = state.problem.blocks.row[block], length = state.X.length(row);
    const T *values = state.X.values + state.X.start[row];
    if (int32_t(sums.size()) < set.n) sums.resize(set.n);
    for (int32_t level = 0; level < set.n_levels; ++level) {
        const int32_t first = set.level_start[level], width = set.level_start[level + 1] - first;
        state.kernels->sum_own(state.table(set.group[level]), width, state.places(block, level), values, length,
                               sums.data() + first);
    }
    for (int32_t u = 0; u < set.n; ++u) set.score[u] = double(sums[u]);
    set.scores_from_parts();
}

}  // namespace widemargin
