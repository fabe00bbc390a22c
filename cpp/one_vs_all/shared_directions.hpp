// Directions in which the subspace search of every label in a batch may move, next to its own: the leading eigenvectors
// of Σ c_i x_i x_i', where the Hessians of all labels are large.
//
// The search along −g resolves only one of the large eigenvalues per iteration; with four of them in the subspace, the
// batches of five text sets take 21 to 40 % fewer iterations. X v_j is the same for all labels, so the directions cost
// no pass, only a larger search. (As a preconditioner, the same eigenvectors save nothing: see
// one_vs_all/batch_search.hpp.) Rough eigenvectors are enough: sums of 16 groups of rows, one step of the power method,
// and the best combinations (Rayleigh–Ritz). That takes as long as two iterations of a batch.
//
// Memory: 16 bytes per column and row; 132 bytes per column and 64 bytes per row while they are computed. Twin:
// tests/reference/batch_subspace.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/row_store.hpp"
#include "simd/arrays.hpp"

namespace widemargin {

constexpr double SMALLEST_EIGENVALUE = 1e-9;  // relative to the largest: combinations below it are rounding
constexpr int JACOBI_SWEEPS = 12;

struct SharedDirections {
    std::vector<float> columns;  // (n_used, N_SHARED), orthonormal, or zero if X has fewer directions
    std::vector<float> scores;   // (n_rows, N_SHARED) X v_j
};

namespace shared_directions_detail {

using Square = double[LANES][LANES];

// Eigenvalues of a symmetric matrix (its diagonal afterwards) and eigenvectors (columns of `vectors`) by rotations that
// set one off-diagonal entry to zero each.
inline void diagonalise(Square a, Square vectors) {
    for (int j = 0; j < LANES; ++j) {
        for (int k = 0; k < LANES; ++k) vectors[j][k] = j == k;
    }
    for (int sweep = 0; sweep < JACOBI_SWEEPS; ++sweep) {
        for (int p = 0; p < LANES; ++p) {
            for (int q = p + 1; q < LANES; ++q) {
                if (a[p][q] == 0) continue;
                const double ratio = (a[q][q] - a[p][p]) / (2 * a[p][q]);
                const double t = std::copysign(1 / (std::abs(ratio) + std::hypot(1.0, ratio)), ratio);
                const double c = 1 / std::hypot(1.0, t), s = t * c;
                for (int k = 0; k < LANES; ++k) {
                    const double x = a[k][p], y = a[k][q];
                    a[k][p] = c * x - s * y, a[k][q] = s * x + c * y;
                    const double u = vectors[k][p], v = vectors[k][q];
                    vectors[k][p] = c * u - s * v, vectors[k][q] = s * u + c * v;
                }
                for (int k = 0; k < LANES; ++k) {
                    const double x = a[p][k], y = a[q][k];
                    a[p][k] = c * x - s * y, a[q][k] = s * x + c * y;
                }
            }
        }
    }
}

// The N_SHARED combinations y of lines t with the largest y' (Σ c s s') y among those with y' (Σ t t') y = 1; zero
// where there are fewer.
inline void best_combinations(Square columns, const Square rows, float (*out)[N_SHARED]) {
    Square basis, projected = {}, vectors;
    diagonalise(columns, basis);
    double largest = 0;
    for (int j = 0; j < LANES; ++j) largest = std::max(largest, columns[j][j]);
    for (int j = 0; j < LANES; ++j) {  // orthonormal combinations
        const bool used = columns[j][j] > SMALLEST_EIGENVALUE * largest;
        for (int k = 0; k < LANES; ++k) basis[k][j] = used ? basis[k][j] / std::sqrt(columns[j][j]) : 0.0;
    }
    for (int j = 0; j < LANES; ++j) {
        for (int k = 0; k < LANES; ++k) {
            for (int a = 0; a < LANES; ++a) {
                for (int b = 0; b < LANES; ++b) projected[j][k] += basis[a][j] * rows[a][b] * basis[b][k];
            }
        }
    }
    diagonalise(projected, vectors);
    for (int j = 0; j < N_SHARED; ++j) {
        int best = 0;
        for (int k = 0; k < LANES; ++k) best = projected[k][k] > projected[best][best] ? k : best;
        const bool used = projected[best][best] > 0;
        projected[best][best] = -1;
        for (int a = 0; a < LANES; ++a) {
            double sum = 0;
            for (int k = 0; k < LANES; ++k) sum += basis[a][k] * vectors[k][best];
            out[a][j] = used && std::isfinite(sum) ? static_cast<float>(sum) : 0.0f;
        }
    }
}

// (n, N_SHARED) combinations of the lines of a table
inline std::vector<float> combine(int64_t n, const float *table, const float (*combinations)[N_SHARED]) {
    std::vector<float> out(n * N_SHARED);
    for (int64_t i = 0; i < n; ++i) {
        float sums[N_SHARED] = {};
        for (int a = 0; a < LANES; ++a) {
            for (int j = 0; j < N_SHARED; ++j) sums[j] += table[i * LANES + a] * combinations[a][j];
        }
        std::copy(sums, sums + N_SHARED, out.begin() + i * N_SHARED);
    }
    return out;
}

}  // namespace shared_directions_detail

inline SharedDirections find_shared_directions(const RowStore &store, const VectorKernels &kernels) {
    using namespace shared_directions_detail;
    AlignedFloats sums = aligned_floats(store.n_used * LANES), stepped = aligned_floats(store.n_used * LANES);
    AlignedFloats scores = untouched_array<float>(store.n_rows * LANES);
    // Costs relative to their sum, so that the steps keep the size of the rows.
    double total = 0;
    for (double weight : store.weight) total += weight;
    std::vector<float> cost(store.n_rows, 0.0f);
    for (int64_t i = 0; i < store.n_rows && total > 0; ++i) cost[i] = static_cast<float>(store.weight[i] / total);
    for (int64_t i = 0; i < store.n_rows; ++i) {
        for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
            sums[static_cast<size_t>(store.entries[k].col) * LANES + i % LANES] += cost[i] * store.entries[k].val;
        }
    }
    const PowerArgs args{store.n_rows, store.entries.get(), store.start.data(), cost.data(), sums.get(), stepped.get(),
                         nullptr};
    kernels.power_step(args);
    kernels.power_step({args.n_rows, args.entries, args.start, args.cost, stepped.get(), nullptr, scores.get()});
    Square by_column = {}, by_row = {};
    kernels.gram(store.n_used, stepped.get(), nullptr, by_column);
    kernels.gram(store.n_rows, scores.get(), cost.data(), by_row);
    float combinations[LANES][N_SHARED];
    best_combinations(by_column, by_row, combinations);
    return {combine(store.n_used, stepped.get(), combinations), combine(store.n_rows, scores.get(), combinations)};
}

}  // namespace widemargin
