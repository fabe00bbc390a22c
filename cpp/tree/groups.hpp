// Storage of the vectors z_i of a tree: siblings together, on the features of their examples.
//
// An example changes z only at the nodes of its path and at their siblings, so the vectors of a group of siblings have
// only the features of the examples that pass through it. A group is a dense (features × width) table on its own sorted
// list of features. Memory is Σ_groups features × width, never all features × all nodes. The features of a group are a
// subset of those of its parent's group; `up` maps them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd/threads.hpp"

namespace widemargin {

// The rows of X as CSR parts.
template <typename T>
struct TreeRows {
    const T *values;
    const int32_t *cols;
    const int64_t *start;
    int64_t n_rows, n_cols;

    int64_t length(int64_t row) const { return start[row + 1] - start[row]; }
};

// Each block is an example or one level of it; its levels belong to the last `n_levels` nodes of the path to `node`.
struct TreeBlocks {
    int64_t n = 0;
    const int32_t *row = nullptr, *node = nullptr, *n_levels = nullptr;
    const double *cost = nullptr;
};

// The true tree, whether or not its levels are coupled; groups are ranges of nodes.
struct TreeShape {
    int32_t m = 0, n_groups = 0;
    const int32_t *parent = nullptr;       // (m,) −1 for top nodes
    const int32_t *group_of = nullptr;     // (m,)
    const int32_t *group_start = nullptr;  // (n_groups + 1,)

    int32_t width(int32_t g) const { return group_start[g + 1] - group_start[g]; }
    // The node above a group, −1 for the group of top nodes.
    int32_t above(int32_t g) const { return parent[group_start[g]]; }
};

// A block that passes through a group, and its level there, counted from the block's top level.
struct GroupMember {
    int32_t block, level;
};

class TreeGroups {
  public:
    std::vector<int64_t> feature_start;  // (n_groups + 1,) of `features` and `up`
    std::vector<int32_t> features, up;
    std::vector<int64_t> table_start;   // (n_groups + 1,) of the tables
    std::vector<int64_t> member_start;  // (n_groups + 1,)
    std::vector<GroupMember> members;
    std::vector<int64_t> place_start;  // (n_blocks,) of `places`
    std::vector<int32_t> places;       // for each level of a block, where the features of its row are in the group

    template <typename T>
    void build(const TreeShape &tree, const TreeRows<T> &X, const TreeBlocks &blocks, bool with_up, int n_threads) {
        list_members(tree, blocks);
        place_start.assign(blocks.n, 0);
        int64_t total = 0;
        for (int64_t b = 0; b < blocks.n; ++b) {
            place_start[b] = total;
            if (blocks.cost[b] > 0.0) total += blocks.n_levels[b] * X.length(blocks.row[b]);
        }
        places.resize(total);
        std::vector<std::vector<int32_t>> lists(tree.n_groups);
        std::vector<std::vector<int32_t>> marks(std::max(1, n_threads));
        parallel_for(tree.n_groups, n_threads, [&](int thread, int64_t g) {
            if (marks[thread].empty()) marks[thread].assign(X.n_cols, -1);
            lists[g] = number_features(X, blocks, g, marks[thread]);
        });
        feature_start.assign(tree.n_groups + 1, 0);
        table_start.assign(tree.n_groups + 1, 0);
        for (int32_t g = 0; g < tree.n_groups; ++g) {
            feature_start[g + 1] = feature_start[g] + int64_t(lists[g].size());
            table_start[g + 1] = table_start[g] + int64_t(lists[g].size()) * tree.width(g);
        }
        features.resize(feature_start.back());
        for (int32_t g = 0; g < tree.n_groups; ++g) {
            std::copy(lists[g].begin(), lists[g].end(), features.begin() + feature_start[g]);
            std::vector<int32_t>().swap(lists[g]);
        }
        if (with_up) link_features(tree, X.n_cols);
    }
    int64_t n_features(int64_t g) const { return feature_start[g + 1] - feature_start[g]; }
    int64_t table_size() const { return table_start.back(); }

  private:
    void list_members(const TreeShape &tree, const TreeBlocks &blocks) {
        member_start.assign(tree.n_groups + 1, 0);
        for_each_member(tree, blocks, [&](int32_t g, GroupMember) { ++member_start[g + 1]; });
        for (int32_t g = 0; g < tree.n_groups; ++g) member_start[g + 1] += member_start[g];
        members.resize(member_start.back());
        std::vector<int64_t> next(member_start.begin(), member_start.end() - 1);
        for_each_member(tree, blocks, [&](int32_t g, GroupMember member) { members[next[g]++] = member; });
    }
    template <typename F>
    static void for_each_member(const TreeShape &tree, const TreeBlocks &blocks, F visit) {
        for (int64_t b = 0; b < blocks.n; ++b) {
            if (!(blocks.cost[b] > 0.0)) continue;
            int32_t node = blocks.node[b];
            for (int32_t level = blocks.n_levels[b] - 1; level >= 0; --level, node = tree.parent[node]) {
                visit(tree.group_of[node], GroupMember{int32_t(b), level});
            }
        }
    }
    // The sorted features of a group's examples, and the places of the examples' features in that list; `mark` is −1
    // everywhere before and after.
    template <typename T>
    std::vector<int32_t> number_features(const TreeRows<T> &X, const TreeBlocks &blocks, int64_t g,
                                         std::vector<int32_t> &mark) {
        std::vector<int32_t> list = list_features(X, blocks, g, mark);
        for (size_t f = 0; f < list.size(); ++f) mark[list[f]] = int32_t(f);
        for (int64_t e = member_start[g]; e < member_start[g + 1]; ++e) {
            const int32_t row = blocks.row[members[e].block];
            int32_t *to = places.data() + place_start[members[e].block] + members[e].level * X.length(row);
            for (int64_t k = X.start[row]; k < X.start[row + 1]; ++k) *to++ = mark[X.cols[k]];
        }
        for (int32_t f : list) mark[f] = -1;
        return list;
    }
    // The sorted features, marked by a number that is not −1. With many entries, reading the list from the marks,
    // without a branch that is hard to predict, is faster than a branch per entry and a sort.
    template <typename T>
    std::vector<int32_t> list_features(const TreeRows<T> &X, const TreeBlocks &blocks, int64_t g,
                                       std::vector<int32_t> &mark) const {
        int64_t n_entries = 0;
        for_each_row(blocks, g, [&](int32_t row) { n_entries += X.length(row); });
        std::vector<int32_t> list;
        if (n_entries < int64_t(mark.size()) / 4) {
            for_each_row(blocks, g, [&](int32_t row) {
                for (int64_t k = X.start[row]; k < X.start[row + 1]; ++k) {
                    if (mark[X.cols[k]] < 0) mark[X.cols[k]] = 0, list.push_back(X.cols[k]);
                }
            });
            std::sort(list.begin(), list.end());
            return list;
        }
        for_each_row(blocks, g, [&](int32_t row) {
            for (int64_t k = X.start[row]; k < X.start[row + 1]; ++k) mark[X.cols[k]] = 0;
        });
        list.resize(mark.size());
        size_t n = 0;
        for (size_t f = 0; f < mark.size(); ++f) {
            list[n] = int32_t(f);
            n += mark[f] >= 0;
        }
        list.resize(n);
        list.shrink_to_fit();  // because the lists of all groups are kept for a while
        return list;
    }
    template <typename F>
    void for_each_row(const TreeBlocks &blocks, int64_t g, F visit) const {
        for (int64_t e = member_start[g]; e < member_start[g + 1]; ++e) visit(blocks.row[members[e].block]);
    }
    // Groups below the same parent group follow each other.
    void link_features(const TreeShape &tree, int64_t n_cols) {
        up.assign(features.size(), -1);
        std::vector<int32_t> place(n_cols);  // of the features of the parent group, in that group
        int32_t placed = -1;
        for (int32_t g = 0; g < tree.n_groups; ++g) {
            if (tree.above(g) < 0) continue;
            const int32_t parent = tree.group_of[tree.above(g)];
            const int32_t *above = features.data() + feature_start[parent];
            for (int64_t f = 0; parent != placed && f < n_features(parent); ++f) place[above[f]] = int32_t(f);
            placed = parent;
            for (int64_t f = feature_start[g]; f < feature_start[g + 1]; ++f) up[f] = place[features[f]];
        }
    }
};

}  // namespace widemargin
