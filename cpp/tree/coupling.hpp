// The S-step: the coupling M = K∘S of orthogonal transfer, with the dual variables of the examples fixed.
//
// M is block diagonal over the subtrees of the top nodes, so each subtree has its own step. Small subtrees: exact
// steps, one pair at a time, on dense matrices (CoordinateSteps). Large subtrees: the exact steps of all pairs at once,
// each computed as if it were the only one, and a line search on the true value. The Hessian is nearly diagonal there,
// because pairs interact only through high nodes, whose diagonal K_ii = size of the subtree is large. No matrix larger
// than the ancestor pairs is formed: products of weights come from the tables of Z (tree/gram.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tree/factor.hpp"
#include "tree/gram.hpp"

namespace widemargin {

// Exact coordinate steps of the S-step for a small subtree, on dense matrices.
//
// With B fixed, minimises ½ tr(Bᵀ(K∘S)⁻¹B) over |S_ij| ≤ 1, one ancestor pair after another. P = M⁻¹ and G = W Wᵀ are
// kept up to date. The minimiser along one entry of M makes w_i orthogonal to w_j (a root of a quadratic) or is at the
// bound. Twin: tests/reference/joint_dual.py.

// The change of M_ij that makes w_iᵀw_j zero, from the entries of P and G at i and j.
inline double orthogonal_change(double p_ii, double p_ij, double p_jj, double g_ii, double g_ij, double g_jj) {
    const double h = p_jj * g_ii + p_ii * g_jj;
    const double root = std::sqrt(std::max(h * h - 4.0 * p_ii * p_jj * g_ij * g_ij, 0.0));
    if (!(h + root > 0.0)) return 0.0;
    const double z = 2.0 * g_ij / (h + root);
    return z / (1.0 - z * p_ij);
}

class CoordinateSteps {
  public:
    // The nodes of the subtree ascend, top node first; `gram` (b × b) holds z_iᵀz_j.
    CoordinateSteps(const AncestorPaths &paths, const TreeFactor &factor, const std::vector<int32_t> &nodes,
                    const std::vector<int32_t> &local, const std::vector<double> &gram)
        : paths_(paths), nodes_(nodes), local_(local), b_(int32_t(nodes.size())) {
        P_.assign(size_t(b_) * b_, 0.0);
        G_.assign(size_t(b_) * b_, 0.0);
        std::vector<double> half(size_t(b_) * b_, 0.0), R(size_t(b_) * b_, 0.0);
        for (int32_t i = 0; i < b_; ++i) {  // row i of R/pivots and of gram·(R/pivots), both symmetric in use
            for (int32_t t = 0; t < paths.depth(nodes[i]); ++t) {
                const int32_t a = local[paths.path(nodes[i])[t]];
                const double r = factor.R[paths.start[nodes[i]] + t] / factor.pivots[nodes[a]];
                R[at(a, i)] = factor.R[paths.start[nodes[i]] + t];
                for (int32_t j = 0; j < b_; ++j) half[at(i, j)] += r * gram[at(a, j)];
            }
        }
        for (int32_t i = 0; i < b_; ++i) {
            for (int32_t t = 0; t < paths.depth(nodes[i]); ++t) {
                const int32_t a = local[paths.path(nodes[i])[t]];
                const double r = factor.R[paths.start[nodes[i]] + t] / factor.pivots[nodes[a]];
                for (int32_t j = 0; j < b_; ++j) {
                    P_[at(i, j)] += r * R[at(a, j)];
                    G_[at(i, j)] += r * half[at(j, a)];
                }
            }
        }
    }

    // Σ K_ij (|w_iᵀw_j| − S_ij w_iᵀw_j) over the pairs of the subtree
    double gap(const double *K, const double *S) const {
        double sum = 0.0;
        for (int32_t i = 0; i < b_; ++i) {
            for (int32_t t = 1; t < paths_.depth(nodes_[i]); ++t) {
                const int64_t e = paths_.start[nodes_[i]] + t;
                const double g = G_[at(i, local_[paths_.path(nodes_[i])[t]])];
                sum += K[e] * (std::abs(g) - S[e] * g);
            }
        }
        return sum;
    }
    // w_iᵀw_j for the pairs of the subtree, written to their places in the layout
    void read_products(double *G) const {
        for (int32_t i = 0; i < b_; ++i) {
            for (int32_t t = 0; t < paths_.depth(nodes_[i]); ++t) {
                G[paths_.start[nodes_[i]] + t] = G_[at(i, local_[paths_.path(nodes_[i])[t]])];
            }
        }
    }
    void sweep(const double *K, double *S) {
        for (int32_t i = 0; i < b_; ++i) {
            for (int32_t t = 1; t < paths_.depth(nodes_[i]); ++t) {
                const int64_t e = paths_.start[nodes_[i]] + t;
                if (K[e] > 0.0) step(i, local_[paths_.path(nodes_[i])[t]], K[e], S[e]);
            }
        }
    }

  private:
    const AncestorPaths &paths_;
    const std::vector<int32_t> &nodes_, &local_;
    int32_t b_;
    std::vector<double> P_, G_, V_, rows_;

    size_t at(int32_t i, int32_t j) const { return size_t(i) * b_ + j; }

    void step(int32_t i, int32_t j, double K, double &S) {
        const double p = P_[at(i, i)], q = P_[at(i, j)], r = P_[at(j, j)];
        const double wanted = orthogonal_change(p, q, r, G_[at(i, i)], G_[at(i, j)], G_[at(j, j)]);
        const double next = std::clamp(S + wanted / K, -1.0, 1.0), d = K * (next - S);
        if (d == 0.0) return;
        S = next;
        const double u = 1.0 + d * q, det = u * u - d * d * p * r, x = d / det;
        V_.resize(2 * size_t(b_));
        for (int32_t k = 0; k < b_; ++k) {  // V = P[:, {i, j}] X
            const double a = P_[at(k, i)], c = P_[at(k, j)];
            V_[2 * k] = x * (-a * d * r + c * u);
            V_[2 * k + 1] = x * (a * u - c * d * p);
        }
        subtract_product(P_, i, j);
        subtract_product(G_, i, j);  // (I − V Eᵀ) G, then the same from the right
        for (int32_t k = 0; k < b_; ++k) {
            double *row = G_.data() + at(k, 0);
            const double a = row[i], c = row[j];
            for (int32_t l = 0; l < b_; ++l) row[l] -= a * V_[2 * l] + c * V_[2 * l + 1];
        }
    }
    // A −= V A[{i, j}, :]
    void subtract_product(std::vector<double> &A, int32_t i, int32_t j) {
        rows_.assign(A.begin() + at(i, 0), A.begin() + at(i, 0) + b_);
        rows_.insert(rows_.end(), A.begin() + at(j, 0), A.begin() + at(j, 0) + b_);
        for (int32_t k = 0; k < b_; ++k) {
            double *row = A.data() + at(k, 0);
            const double a = V_[2 * k], c = V_[2 * k + 1];
            for (int32_t l = 0; l < b_; ++l) row[l] -= a * rows_[l] + c * rows_[b_ + l];
        }
    }
};

// Sweeps over the pairs of a small subtree per S-step; they cost almost nothing.
constexpr int MIN_SWEEPS = 2, MAX_SWEEPS = 20;
constexpr double SUFFICIENT = 0.1;  // share of the slope that a step must gain
constexpr double SHORTER = 0.5;     // factor for a step that was too long
constexpr int MAX_SHORTENINGS = 6;
constexpr int64_t FEATURES_AT_ONCE = 64;

struct SubtreePart {
    int32_t top;
    std::vector<int32_t> nodes;   // ascending
    std::vector<int32_t> groups;  // below the top node, from the top down
    bool small;
};

template <typename T>
class Coupling {
  public:
    std::vector<double> K, S, gram, G;

    Coupling(TreeState<T> &state, const double *K_values, int32_t small_subtree, int n_threads)
        : state_(state), n_threads_(n_threads) {
        const AncestorPaths &paths = state.problem.paths;
        K.assign(K_values, K_values + paths.n_entries());
        S.assign(paths.n_entries(), 0.0);
        for (int32_t i = 0; i < paths.m; ++i) S[paths.start[i]] = 1.0;
        local_.assign(paths.m, 0);
        list_parts(small_subtree);
    }

    // Sets S (n_entries,) and updates Z; false, with nothing changed, if K∘S is not positive definite.
    bool set(const std::vector<double> &next) {
        const AncestorPaths &paths = state_.problem.paths;
        std::vector<double> M(next.size());
        for (size_t e = 0; e < M.size(); ++e) M[e] = K[e] * next[e];
        TreeFactor factor;
        if (!factorize(paths, M.data(), factor)) return false;
        invert_factor(paths, factor);
        if (!state_.factor.L.empty()) {
            std::vector<double> change;
            change_of_factor(paths, state_.factor.L, factor, change);
            parallel_for(int64_t(parts_.size()), n_threads_, [&](int, int64_t p) {
                for (int32_t g : parts_[p].groups) hand_up(state_, g, change);
            });
        }
        state_.factor.L.swap(factor.L);
        state_.factor.R.swap(factor.R);
        state_.factor.pivots.swap(factor.pivots);
        state_.factor.inverse_pivots.swap(factor.inverse_pivots);
        ++state_.factor.version;
        S = next;
        return true;
    }

    // Products of weights on ancestor pairs at the current Z.
    void measure() {
        gram_on_paths();
        weight_products(state_.problem.paths, state_.factor, gram, G);
    }
    // Σ K_ij (|w_iᵀw_j| − S_ij w_iᵀw_j), at the last measurement
    double gap() const {
        double sum = 0.0;
        for (size_t e = 0; e < G.size(); ++e) sum += K[e] * (std::abs(G[e]) - S[e] * G[e]);
        return sum;
    }

    // ½ tr(BᵀM⁻¹B) = ½ Σ M_ij w_iᵀw_j, at the last measurement
    double half_trace() const {
        const AncestorPaths &paths = state_.problem.paths;
        double sum = 0.0;
        for (int32_t i = 0; i < paths.m; ++i) {
            const int64_t first = paths.start[i];
            sum += 0.5 * K[first] * G[first];
            for (int64_t e = first + 1; e < paths.start[i + 1]; ++e) sum += K[e] * S[e] * G[e];
        }
        return sum;
    }

    // An S-step: sweeps until the gap of the pairs is at most `target`, and at most `n_steps` steps for large subtrees.
    // A measurement follows; with an infinite target it is the only step. The sweeps know the resulting products
    // up to rounding.
    void improve(double target, int n_steps) {
        if (std::isinf(target)) return measure();
        std::vector<double> next = S, squares(parts_.size(), 0.0);
        const int64_t n_parts = int64_t(parts_.size());
        const double share = target / double(n_parts);
        G.resize(S.size());
        add_squares(state_.table(0), state_.groups.n_features(0), int32_t(n_parts), squares.data());
        parallel_for(n_parts, n_threads_, [&](int, int64_t p) {
            if (parts_[p].small) sweep_small(parts_[p], squares[p], share, next);
        });
        if (next != S) set(next);
        if (!has_large_) return;
        measure();
        improve_large(target, n_steps);
    }

  private:
    TreeState<T> &state_;
    int n_threads_;
    std::vector<SubtreePart> parts_;
    std::vector<int32_t> local_;  // index of a node in its part
    bool has_large_ = false;

    void list_parts(int32_t small_subtree) {
        const TreeShape &tree = state_.problem.tree;
        std::vector<std::vector<int32_t>> groups = groups_by_top(tree);
        std::vector<int32_t> part_of(tree.m);
        for (int32_t i = 0; i < tree.m; ++i) {
            if (tree.parent[i] < 0) parts_.push_back({i, {}, std::move(groups[i]), true});
            part_of[i] = tree.parent[i] < 0 ? int32_t(parts_.size()) - 1 : part_of[tree.parent[i]];
            SubtreePart &part = parts_[part_of[i]];
            local_[i] = int32_t(part.nodes.size());
            part.nodes.push_back(i);
        }
        for (SubtreePart &part : parts_) {
            part.small = int32_t(part.nodes.size()) <= small_subtree;
            has_large_ = has_large_ || !part.small;
        }
    }

    void gram_on_paths() {
        gram.assign(state_.problem.paths.n_entries(), 0.0);
        parallel_for(state_.problem.tree.n_groups, n_threads_,
                     [&](int, int64_t g) { gram_of_group(state_, int32_t(g), gram); });
    }

    // --- small subtrees ---

    // `square` is the squared norm of the top node's vector.
    void sweep_small(const SubtreePart &part, double square, double target, std::vector<double> &next) {
        const std::vector<double> products = all_products(part, square);
        CoordinateSteps steps(state_.problem.paths, state_.factor, part.nodes, local_, products);
        for (int k = 0; k < MAX_SWEEPS && part.nodes.size() > 1; ++k) {
            if (k >= MIN_SWEEPS && steps.gap(K.data(), next.data()) <= target) break;
            steps.sweep(K.data(), next.data());
        }
        steps.read_products(G.data());
    }
    // z_iᵀz_j for all pairs of nodes of a part (b × b)
    std::vector<double> all_products(const SubtreePart &part, double square) const {
        const size_t b = part.nodes.size();
        std::vector<double> sums(b * b, 0.0);
        if (part.groups.size() == 1) add_of_two_levels(part, sums);
        if (part.groups.size() > 1) add_of_levels(part, sums);
        sums[0] = square;
        for (size_t i = 0; i < b; ++i) {
            for (size_t j = 0; j < i; ++j) sums[i * b + j] = sums[j * b + i];
        }
        return sums;
    }
    // A top node and its children, which have the local indices 1, 2, …; a few features at a time, one node after the
    // other, because most groups are narrower than a vector.
    void add_of_two_levels(const SubtreePart &part, std::vector<double> &sums) const {
        const TreeGroups &groups = state_.groups;
        const int32_t g = part.groups[0], b = int32_t(part.nodes.size()), above = state_.problem.tree.width(0);
        const int32_t *up = groups.up.data() + groups.feature_start[g];
        const T *top = state_.table(0) + part.top, *row = state_.table(g);
        std::vector<double> values(size_t(b) * FEATURES_AT_ONCE);
        for (int64_t begin = 0; begin < groups.n_features(g); begin += FEATURES_AT_ONCE) {
            const int64_t n = std::min(FEATURES_AT_ONCE, groups.n_features(g) - begin);
            for (int64_t f = 0; f < n; ++f, row += b - 1) {
                values[f] = double(top[int64_t(up[begin + f]) * above]);
                for (int32_t j = 1; j < b; ++j) values[j * FEATURES_AT_ONCE + f] = double(row[j - 1]);
            }
            for (int32_t i = 0; i < b; ++i) {
                const double *own = values.data() + i * FEATURES_AT_ONCE;
                for (int32_t j = i; j < b; ++j) {
                    sums[size_t(i) * b + j] += inner_product(own, values.data() + j * FEATURES_AT_ONCE, n);
                }
            }
        }
    }
    // Walks the features of the group below the top node, with a position in the sorted list of every other group.
    void add_of_levels(const SubtreePart &part, std::vector<double> &sums) const {
        const TreeShape &tree = state_.problem.tree;
        const TreeGroups &groups = state_.groups;
        const size_t b = part.nodes.size();
        std::vector<double> values(b);
        std::vector<int64_t> at(part.groups.size(), 0);
        std::vector<int32_t> present;
        const int64_t begin = groups.feature_start[part.groups[0]];
        for (int64_t f = 0; f < groups.n_features(part.groups[0]); ++f) {
            present.assign(1, 0);
            values[0] = double(state_.table(0)[int64_t(groups.up[begin + f]) * tree.width(0) + part.top]);
            for (size_t k = 0; k < part.groups.size(); ++k) {
                const int32_t g = part.groups[k], width = tree.width(g);
                if (at[k] == groups.n_features(g) ||
                    groups.features[groups.feature_start[g] + at[k]] != groups.features[begin + f]) {
                    continue;
                }
                const T *row = state_.table(g) + at[k]++ * width;
                for (int32_t j = 0; j < width; ++j) {
                    if (row[j] == T(0)) continue;
                    values[present.size()] = double(row[j]);
                    present.push_back(local_[tree.group_start[g] + j]);
                }
            }
            for (size_t i = 0; i < present.size(); ++i) {  // present ascends, like groups
                double *to = sums.data() + size_t(present[i]) * b;
                for (size_t j = i; j < present.size(); ++j) to[present[j]] += values[i] * values[j];
            }
        }
    }

    // --- large subtrees ---

    // Steps of all pairs at once, as long as they gain; needs a measurement before and leaves one after.
    void improve_large(double target, int n_steps) {
        std::vector<double> direction(S.size());
        for (int k = 0; k < n_steps && gap() > target; ++k) {
            std::vector<double> slope = propose(direction);
            if (!search(direction, slope)) return;
        }
    }

    // direction = minimiser of each pair alone − S; returns the slope of the value in each part.
    std::vector<double> propose(std::vector<double> &direction) const {
        const AncestorPaths &paths = state_.problem.paths;
        std::vector<double> P, slope(parts_.size(), 0.0);
        inverse_on_pairs(paths, state_.factor, P);
        std::fill(direction.begin(), direction.end(), 0.0);
        for (size_t p = 0; p < parts_.size(); ++p) {
            if (parts_[p].small) continue;
            for (int32_t i : parts_[p].nodes) {
                for (int32_t t = 1; t < paths.depth(i); ++t) {
                    const int64_t e = paths.start[i] + t, ii = paths.start[i], jj = paths.start[paths.path(i)[t]];
                    if (!(K[e] > 0.0)) continue;
                    const double d = orthogonal_change(P[ii], P[e], P[jj], G[ii], G[e], G[jj]);
                    direction[e] = std::clamp(S[e] + d / K[e], -1.0, 1.0) - S[e];
                    slope[p] += K[e] * G[e] * direction[e];
                }
            }
        }
        return slope;
    }

    std::vector<double> values_of_parts() const {
        const AncestorPaths &paths = state_.problem.paths;
        std::vector<double> values(parts_.size(), 0.0);
        for (size_t p = 0; p < parts_.size(); ++p) {
            for (int32_t i : parts_[p].nodes) values[p] += 0.5 * gram[paths.start[i]] / state_.factor.pivots[i];
        }
        return values;
    }

    // Steps along the direction in every part, with a shorter step where the gain is too small; false if no part
    // gained.
    bool search(const std::vector<double> &direction, const std::vector<double> &slope) {
        const AncestorPaths &paths = state_.problem.paths;
        const std::vector<double> before = S, value = values_of_parts();
        std::vector<double> share(parts_.size(), 1.0);
        for (int k = 0; k <= MAX_SHORTENINGS; ++k) {
            std::vector<double> next = before;
            for (size_t p = 0; p < parts_.size(); ++p) {
                if (parts_[p].small || !(slope[p] > 0.0) || k == MAX_SHORTENINGS) share[p] = share[p] < 1.0 ? 0.0 : 1.0;
                for (int32_t i : parts_[p].nodes) {
                    for (int64_t e = paths.start[i] + 1; e < paths.start[i + 1]; ++e) {
                        next[e] += share[p] * direction[e];
                    }
                }
            }
            set(next);
            measure();
            const std::vector<double> now = values_of_parts();
            bool enough = true;
            for (size_t p = 0; p < parts_.size(); ++p) {
                if (parts_[p].small || share[p] == 0.0) continue;
                if (value[p] - now[p] >= SUFFICIENT * share[p] * slope[p]) continue;
                share[p] *= SHORTER, enough = false;
            }
            if (enough) break;
        }
        return *std::max_element(share.begin(), share.end()) > 0.0;
    }
};

}  // namespace widemargin
