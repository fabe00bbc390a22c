// Directions in which the subspace search of every label in a batch may move, next to its own: the leading eigenvectors
// of Σ c_i x_i x_i', where the Hessians of all labels are large.
//
// A search along −g alone takes an iteration for each large eigenvalue. With two of them in the subspace, all labels
// take 1,236 instead of 1,574 iterations on pypi-topics (205 entries per row) and 1,504 instead of 2,120 on bibtex
// (69), and a fit takes 16 and 19 % less time. X v_j is the same for all labels, so the directions cost no pass, only a
// larger search. Three and four directions take 4 to 12 % fewer iterations, but their searches cost as much as that.
// With 30 and 15 % of the entries of pypi-topics, the time is the same as without shared directions; on still shorter
// rows (npm-keywords, 7 entries) the larger search costs 8 %.
//
// Rough eigenvectors are enough: the sum of a sample of rows and 15 sums with random signs, one step of the power
// method on the sample, and the best combinations over all rows (Rayleigh–Ritz). That takes as long as one iteration of
// a batch. Without the signs, all sums are nearly parallel, and float32 cannot tell their combinations apart.
//
// Tried without gain, in a NumPy prototype: the label's mean positive as one more direction (2 % fewer iterations), and
// a start from the solution on every second row (one full iteration fewer, for four to nine on half of the rows).
//
// Memory: 8 bytes per column and row; 132 bytes per column and 68 bytes per row while they are computed. Twin:
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

constexpr double SMALLEST_EIGENVALUE = 1e-4;  // of sums scaled to length 1: smaller combinations are mostly rounding
constexpr int JACOBI_SWEEPS = 12;
constexpr int64_t SIGN_MULTIPLIER = 2654435761;  // 2³² divided by the golden ratio: signs without a pattern
constexpr int64_t POWER_ROWS = 2048;  // evenly spaced rows for the power method; 512 to all give the same iterations

constexpr int64_t SHARED_ROW_LENGTH = 24;  // shorter rows do without shared directions

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
    double scale[LANES];
    for (int j = 0; j < LANES; ++j) scale[j] = columns[j][j] > 0 ? 1 / std::sqrt(columns[j][j]) : 0.0;
    for (int j = 0; j < LANES; ++j) {
        for (int k = 0; k < LANES; ++k) columns[j][k] *= scale[j] * scale[k];
    }
    diagonalise(columns, basis);
    for (int j = 0; j < LANES; ++j) {  // orthonormal combinations
        const bool used = columns[j][j] > SMALLEST_EIGENVALUE;
        for (int k = 0; k < LANES; ++k) basis[k][j] = used ? scale[k] * basis[k][j] / std::sqrt(columns[j][j]) : 0.0;
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
    const int64_t stride = std::max<int64_t>(1, store.n_rows / POWER_ROWS);
    for (int64_t i = 0; i < store.n_rows; i += stride) {
        const int64_t number = i / stride, lane = 1 + number % (LANES - 1);
        const bool positive = static_cast<uint32_t>(number * SIGN_MULTIPLIER) >> 31 != 0;
        for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
            const size_t line = static_cast<size_t>(store.entries[k].col) * LANES;
            const float x = cost[i] * store.entries[k].val;
            sums[line] += x;
            sums[line + lane] += positive ? x : -x;
        }
    }
    PowerArgs args{store.n_rows, stride,     store.entries.get(), store.start.data(),
                   cost.data(),  sums.get(), stepped.get(),       nullptr};
    kernels.power_step(args);
    args.stride = 1;
    args.Z = stepped.get();
    args.G = nullptr;
    args.SZ = scores.get();
    kernels.power_step(args);
    Square by_column = {}, by_row = {};
    kernels.gram(store.n_used, stepped.get(), nullptr, by_column);
    kernels.gram(store.n_rows, scores.get(), cost.data(), by_row);
    float combinations[LANES][N_SHARED];
    best_combinations(by_column, by_row, combinations);
    return {combine(store.n_used, stepped.get(), combinations), combine(store.n_rows, scores.get(), combinations)};
}

}  // namespace widemargin
