// Matrices that couple a node only with its ancestors: M = L diag(pivots) Lᵀ, eliminated leaves first, without fill-in;
// R = L⁻¹ has the same pattern. All values use one layout: for each node its path [node, parent, …, top], so place t of
// node i is the entry (path_t, i). Twin: problems/tree_factor.py.
#pragma once

#include <cstdint>
#include <vector>

namespace widemargin {

// Nodes are numbered breadth first, parents before children. Without coupling, every path has one node.
struct AncestorPaths {
    int32_t m = 0;
    const int64_t *start = nullptr;  // (m + 1,)
    const int32_t *nodes = nullptr;

    int32_t depth(int32_t i) const { return static_cast<int32_t>(start[i + 1] - start[i]); }
    const int32_t *path(int32_t i) const { return nodes + start[i]; }
    int64_t n_entries() const { return start[m]; }
};

struct TreeFactor {
    std::vector<double> L, R, pivots, inverse_pivots;
    int64_t version = 0;  // incremented by every change, for code that caches derived values
};

// Factors M (n_entries,); false, and no factor, if M is not positive definite.
inline bool factorize(const AncestorPaths &paths, const double *M, TreeFactor &out) {
    std::vector<double> rest(M, M + paths.n_entries());
    out.L.assign(rest.size(), 1.0);
    out.pivots.resize(paths.m);
    for (int32_t i = paths.m - 1; i >= 0; --i) {
        const int32_t depth = paths.depth(i), *path = paths.path(i);
        double *l = out.L.data() + paths.start[i];
        const double *above = rest.data() + paths.start[i], pivot = above[0];
        if (!(pivot > 0.0)) return false;
        out.pivots[i] = pivot;
        for (int32_t t = 1; t < depth; ++t) l[t] = above[t] / pivot;
        for (int32_t t = 1; t < depth; ++t) {
            double *row = rest.data() + paths.start[path[t]];
            for (int32_t u = t; u < depth; ++u) row[u - t] -= l[t] * above[u];
        }
    }
    return true;
}

// R and the inverse pivots: R[i, t] = −Σ_{u<t} L[path_t, path_u] R[i, u]
inline void invert_factor(const AncestorPaths &paths, TreeFactor &factor) {
    factor.R.resize(factor.L.size());
    factor.inverse_pivots.resize(paths.m);
    for (int32_t i = 0; i < paths.m; ++i) factor.inverse_pivots[i] = 1.0 / factor.pivots[i];
    for (int32_t i = 0; i < paths.m; ++i) {
        const int32_t depth = paths.depth(i), *path = paths.path(i);
        double *R = factor.R.data() + paths.start[i];
        R[0] = 1.0;
        for (int32_t t = 1; t < depth; ++t) {
            double sum = 0.0;
            for (int32_t u = 0; u < t; ++u) sum += factor.L[paths.start[path[u]] + t - u] * R[u];
            R[t] = -sum;
        }
    }
}

// out = R′L on the layout, which turns Z = L⁻¹B into Z′ = L′⁻¹B.
inline void change_of_factor(const AncestorPaths &paths, const std::vector<double> &L, const TreeFactor &next,
                             std::vector<double> &out) {
    out.assign(L.size(), 0.0);
    for (int32_t i = 0; i < paths.m; ++i) {
        const int32_t depth = paths.depth(i), *path = paths.path(i);
        const double *column = L.data() + paths.start[i];
        double *to = out.data() + paths.start[i];
        for (int32_t u = 0; u < depth; ++u) {
            const double *R = next.R.data() + paths.start[path[u]];
            for (int32_t t = u; t < depth; ++t) to[t] += R[t - u] * column[u];
        }
    }
}

// P = M⁻¹ on the layout: P[path_t, i] = Σ_{w≥t} R[i, w] R[path_t, w − t] / pivot of path_w.
inline void inverse_on_pairs(const AncestorPaths &paths, const TreeFactor &factor, std::vector<double> &out) {
    out.resize(factor.R.size());
    for (int32_t i = 0; i < paths.m; ++i) {
        const int32_t depth = paths.depth(i), *path = paths.path(i);
        const double *R = factor.R.data() + paths.start[i];
        for (int32_t t = 0; t < depth; ++t) {
            const double *above = factor.R.data() + paths.start[path[t]];
            double sum = 0.0;
            for (int32_t w = t; w < depth; ++w) sum += R[w] * above[w - t] / factor.pivots[path[w]];
            out[paths.start[i] + t] = sum;
        }
    }
}

}  // namespace widemargin
