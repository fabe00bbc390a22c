// Exact coordinate steps of the S-step for a small subtree, on dense matrices.
//
// With B fixed, ½ tr(Bᵀ(K∘S)⁻¹B) is minimised over |S_ij| ≤ 1, one ancestor pair after another. P = M⁻¹ and G = W Wᵀ
// are kept; the minimiser along one entry of M makes w_i orthogonal to w_j, a root of a quadratic, or is at the bound.
// Twin: reference/joint_dual.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tree_factor.hpp"

namespace widemargin {

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
    // The subtree's nodes ascending, the top one first; `gram` (b × b) has z_iᵀz_j and is used up.
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
    // w_iᵀw_j for the pairs of the subtree, to their places on the layout
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

}  // namespace widemargin
