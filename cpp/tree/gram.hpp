// Inner products of the vectors of nodes with those of their ancestors, and the update of Z after a change of coupling.
//
//     z_iᵀz_a for all ancestor pairs, from the tables;       (W Wᵀ)_ia from those, since w_i = Σ_a R[i, a] z_a /
//     pivot_a Z ← L′⁻¹ L Z, in place
//
// Both visit every feature of every group once, with its ancestors: O(Σ_groups features × width × depth). W itself,
// whose rows have all features of the top group, is never formed.
#pragma once

#include <cstdint>
#include <vector>

#include "simd/threads.hpp"
#include "tree/state.hpp"

namespace widemargin {

// The ancestors of a group, nearest first, and where they store the features of the group.
template <typename T>
class AncestorColumns {
  public:
    AncestorColumns(TreeState<T> &state, int32_t group) {
        const TreeShape &tree = state.problem.tree;
        const int32_t *up = state.groups.up.data() + state.groups.feature_start[group];
        for (int32_t a = tree.above(group); a >= 0; a = tree.parent[a]) {
            const int32_t g = tree.group_of[a];
            columns_.push_back({up, state.table(g) + (a - tree.group_start[g]), tree.width(g)});
            up = state.groups.up.data() + state.groups.feature_start[g];
        }
        at.resize(columns_.size());
    }
    int32_t size() const { return int32_t(columns_.size()); }
    // at[t] = where ancestor t stores feature f of the group
    void go_to(int64_t f) {
        for (size_t t = 0; t < columns_.size(); ++t) {
            f = columns_[t].up[f];
            at[t] = columns_[t].values + f * columns_[t].stride;
        }
    }
    std::vector<T *> at;

  private:
    struct Column {
        const int32_t *up;  // index of each feature of the group below, in the group of this ancestor
        T *values;
        int64_t stride;
    };
    std::vector<Column> columns_;
};

// In double; four sums, so that additions do not wait for each other.
template <typename T>
double inner_product(const T *a, const T *b, int64_t n) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int j = 0; j < 4; ++j) sums[j] += double(a[k + j]) * double(b[k + j]);
    }
    for (; k < n; ++k) sums[0] += double(a[k]) * double(b[k]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// sums_j += Σ_f table[f, j]²
template <typename T>
void add_squares(const T *row, int64_t n_features, int32_t width, double *sums) {
    for (int64_t f = 0; f < n_features; ++f, row += width) {
        for (int32_t j = 0; j < width; ++j) sums[j] += double(row[j]) * double(row[j]);
    }
}

// out[i, t] = z_iᵀz_{path_t} for the nodes of a group
template <typename T>
void gram_of_group(TreeState<T> &state, int32_t g, std::vector<double> &out) {
    const TreeShape &tree = state.problem.tree;
    const AncestorPaths &paths = state.problem.paths;
    AncestorColumns<T> above(state, g);
    const int32_t first = tree.group_start[g], width = tree.width(g), n_above = above.size();
    std::vector<double> sums(int64_t(width) * (n_above + 1), 0.0);
    const T *row = state.table(g);
    add_squares(row, state.groups.n_features(g), width, sums.data());
    for (int64_t f = 0; n_above > 0 && f < state.groups.n_features(g); ++f, row += width) {
        above.go_to(f);
        double *sum = sums.data() + width;
        for (int32_t t = 0; t < n_above; ++t, sum += width) {
            const double value = double(*above.at[t]);
            for (int32_t j = 0; j < width; ++j) sum[j] += value * double(row[j]);
        }
    }
    for (int32_t j = 0; j < width; ++j) {
        for (int32_t t = 0; t <= n_above; ++t) out[paths.start[first + j] + t] = sums[int64_t(t) * width + j];
    }
}

// ½ Σ_i ‖z_i‖² / pivot_i = ½ tr(WᵀMW), for Z as stored
template <typename T>
double half_trace(const TreeState<T> &state, int n_threads) {
    const TreeShape &tree = state.problem.tree;
    std::vector<double> squares(tree.m, 0.0);
    parallel_for(tree.n_groups, n_threads, [&](int, int64_t g) {
        add_squares(state.table(g), state.groups.n_features(g), tree.width(int32_t(g)),
                    squares.data() + tree.group_start[g]);
    });
    double total = 0.0;
    for (int32_t i = 0; i < tree.m; ++i) total += squares[i] / state.factor.pivots[i];
    return 0.5 * total;
}

// G = W Wᵀ on the layout from the products of z: with v = R_i / pivots, h = (z products of the path) v and
// G[i, t] = Σ_{w≥t} R[path_t, w − t] / pivot_w · h_w.
inline void weight_products(const AncestorPaths &paths, const TreeFactor &factor, const std::vector<double> &gram,
                            std::vector<double> &out) {
    out.resize(gram.size());
    std::vector<double> h;
    for (int32_t i = 0; i < paths.m; ++i) {
        const int32_t depth = paths.depth(i), *path = paths.path(i);
        const double *R = factor.R.data() + paths.start[i];
        h.assign(depth, 0.0);
        for (int32_t u = 0; u < depth; ++u) {
            const double *products = gram.data() + paths.start[path[u]];
            const double v = R[u] / factor.pivots[path[u]];
            h[u] += products[0] * v;
            for (int32_t w = u + 1; w < depth; ++w) {
                h[w] += products[w - u] * v;
                h[u] += products[w - u] * R[w] / factor.pivots[path[w]];
            }
        }
        for (int32_t t = 0; t < depth; ++t) {
            const double *above = factor.R.data() + paths.start[path[t]];
            double sum = 0.0;
            for (int32_t w = t; w < depth; ++w) sum += above[w - t] / factor.pivots[path[w]] * h[w];
            out[paths.start[i] + t] = sum;
        }
    }
}

// z_a += change[i, a] z_i for the ancestors a of the nodes of a group. Groups are processed top down, so a group
// contributes its old Z.
template <typename T>
void hand_up(TreeState<T> &state, int32_t g, const std::vector<double> &change) {
    const TreeShape &tree = state.problem.tree;
    AncestorColumns<T> above(state, g);
    const int32_t first = tree.group_start[g], width = tree.width(g), n_above = above.size();
    const double *factors = change.data() + state.problem.paths.start[first];
    const T *row = state.table(g);
    for (int64_t f = 0; f < state.groups.n_features(g); ++f, row += width) {
        above.go_to(f);
        for (int32_t t = 0; t < n_above; ++t) {
            double sum = 0.0;
            for (int32_t j = 0; j < width; ++j) sum += double(row[j]) * factors[int64_t(j) * (n_above + 1) + t + 1];
            *above.at[t] += T(sum);
        }
    }
}

// The groups below each top node, top down; they can be changed independently of those below other top nodes.
inline std::vector<std::vector<int32_t>> groups_by_top(const TreeShape &tree) {
    std::vector<std::vector<int32_t>> lists(tree.width(0));
    std::vector<int32_t> top(tree.m);
    for (int32_t i = 0; i < tree.m; ++i) top[i] = tree.parent[i] < 0 ? i : top[tree.parent[i]];
    for (int32_t g = 1; g < tree.n_groups; ++g) lists[top[tree.group_start[g]]].push_back(g);
    return lists;
}

}  // namespace widemargin
