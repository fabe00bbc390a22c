// Starts from means of rows: mean-separating weights (Schultheis & Babbar, 2022, section 4), and the minimiser of the
// label's objective in the span of the same vectors.
//
//     p̄ mean of the positive rows, x̄ mean of all rows, both with the intercept's input;  w₀ = u p̄ + v x̄ [+ intercept]
//
// Means are weighted by the weights of the rows, not by the factors of the labels. X·x̄ is the same for every label and
// computed once. Work area per thread: n_cols + 2 n_rows doubles. Twin: tests/reference/starts.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/newton_solver.hpp"

namespace widemargin {

constexpr double DEPENDENT_SINE2 = 1e-10;   // 1 − cos² of p̄ and x̄ up to which they count as linearly dependent
constexpr double ORTHOGONAL_COSINE = 1e-6;  // |cos| up to which they count as orthogonal
constexpr int MAX_SUBSPACE_STEPS = 30;      // text takes 4 to 8
constexpr double SUBSPACE_DECREMENT =
    1e-3;                                 // relative to the objective: more accuracy does not pay off outside the span
constexpr double DEPENDENT_PIVOT = 1e-9;  // relative to its diagonal, a pivot of a 3 × 3 Hessian this small is rounding
constexpr int MAX_SUBSPACE_BACKTRACKS = 20;

// The mean of all rows without the intercept's input: x (n_cols,), and its scores X·x (n_rows,).
struct MeanRow {
    const double *x;
    const double *scores;
    double total_weight;
};

template <class Matrix>
void mean_row(const Matrix &X, const double *row_weight, double *x, double *scores) {
    double total = 0;
    std::fill(x, x + X.n_cols, 0.0);
    for (int64_t i = 0; i < X.n_rows; ++i) {
        X.add_row(i, row_weight[i], x);
        total += row_weight[i];
    }
    for (int64_t k = 0; k < X.n_cols; ++k) x[k] /= total;
    for (int64_t i = 0; i < X.n_rows; ++i) scores[i] = X.row_dot(i, x);
}

// A point u p̄ + v x̄ of the span, with its own intercept.
struct SpanPoint {
    double p = 0, x = 0, bias = 0;
};

// Inner products of the means.
struct MeanProducts {
    double pp, px, xx;
};

// The shortest w with w·p̄ = s and w·n̄ = t, eq. (23)–(24) and (27); zero if p̄ and x̄ are linearly dependent. `share`
// is |P| / |X|; the products include the intercept's input.
inline SpanPoint mean_separating(const MeanProducts &dot, double share, double s, double t) {
    const double scale = dot.pp * dot.xx, cosine2 = scale > 0 ? dot.px * dot.px / scale : 1.0;
    if (!(1 - cosine2 > DEPENDENT_SINE2)) return {};
    const double along_x = t + (s - t) * share;  // w · x̄
    if (cosine2 <= ORTHOGONAL_COSINE * ORTHOGONAL_COSINE) return {s / dot.pp, along_x / dot.xx, 0};
    const double u = (dot.px * along_x - s * dot.xx) / (dot.px * dot.px - scale);
    return {u, (s - u * dot.pp) / dot.px, 0};
}

// Solves the symmetric positive semidefinite system H d = −g in three variables, skipping variables that depend on
// others.
inline void solve_three(double H[3][3], const double g[3], double d[3]) {
    const double diagonal[3] = {H[0][0], H[1][1], H[2][2]};
    double r[3] = {-g[0], -g[1], -g[2]};
    bool used[3];
    for (int k = 0; k < 3; ++k) {
        used[k] = H[k][k] > DEPENDENT_PIVOT * diagonal[k];
        for (int i = k + 1; used[k] && i < 3; ++i) {
            const double factor = H[i][k] / H[k][k];
            for (int j = k + 1; j < 3; ++j) H[i][j] -= factor * H[k][j];
            r[i] -= factor * r[k];
        }
    }
    for (int k = 2; k >= 0; --k) {
        for (int j = k + 1; j < 3; ++j) r[k] -= H[k][j] * d[j];
        d[k] = used[k] ? r[k] / H[k][k] : 0.0;
    }
}

// The label's objective on the span, L(θ) = ½ θ'Gθ + Σ_i c_i φ(y_i (θ₀ a_i + θ₁ b_i + θ₂ bias_value)), where a = X p̄
// and b = X x̄. Newton with backtracking from zero.
template <class Matrix, class Loss>
class SubspaceProblem {
  public:
    // `z` is a work array of n_rows entries; `dot` has the products of the means without the intercept's input.
    SubspaceProblem(const BinaryProblem<Matrix> &problem, const double *a, const double *b, const MeanProducts &dot,
                    double *z)
        : problem_(problem),
          a_(a),
          b_(b),
          G_{{dot.pp, dot.px, 0}, {dot.px, dot.xx, 0}, {0, 0, problem.bias_penalty}},
          z_(z) {}

    SpanPoint minimize() {
        std::fill(z_, z_ + problem_.X->n_rows, 0.0);
        double theta[3] = {0, 0, 0}, g[3], H[3][3], d[3], value = 0;
        for (int64_t i = 0; i < problem_.X->n_rows; ++i) value += problem_.weight(i) * Loss::value(0);
        for (int step = 0; step < MAX_SUBSPACE_STEPS; ++step) {
            derivatives(theta, g, H);
            solve_three(H, g, d);
            const double slope = g[0] * d[0] + g[1] * d[1] + g[2] * d[2];
            if (!(-slope > SUBSPACE_DECREMENT * value)) break;
            const double change = move(slope, d, theta);
            if (change == 0) break;
            value += change;
        }
        return {theta[0], theta[1], theta[2]};
    }

  private:
    const BinaryProblem<Matrix> &problem_;
    const double *a_, *b_;
    const double G_[3][3];
    double *z_;

    double penalty_product(const double *left, const double *right) const {
        double sum = 0;
        for (int k = 0; k < 3; ++k) {
            for (int j = 0; j < 3; ++j) sum += left[k] * G_[k][j] * right[j];
        }
        return sum;
    }

    // Fills the gradient and the Hessian of L.
    void derivatives(const double theta[3], double g[3], double H[3][3]) const {
        double g0 = 0, g1 = 0, g2 = 0, h00 = 0, h01 = 0, h02 = 0, h11 = 0, h12 = 0, h22 = 0;
        const double one = problem_.bias_value;
        for (int64_t i = 0; i < problem_.X->n_rows; ++i) {
            const double y = problem_.y[i];
            const auto [slope, curvature] = Loss::derivatives(y * z_[i]);
            if (slope == 0) continue;
            const double c = problem_.weight(i), first = c * y * slope, second = c * curvature;
            const double a = a_[i], b = b_[i];
            g0 += first * a, g1 += first * b, g2 += first * one;
            h00 += second * a * a, h01 += second * a * b, h02 += second * a * one;
            h11 += second * b * b, h12 += second * b * one, h22 += second * one * one;
        }
        const double sums[3] = {g0, g1, g2}, upper[3][3] = {{h00, h01, h02}, {h01, h11, h12}, {h02, h12, h22}};
        for (int k = 0; k < 3; ++k) {
            g[k] = sums[k];
            for (int j = 0; j < 3; ++j) {
                g[k] += G_[k][j] * theta[j];
                H[k][j] = upper[k][j] + G_[k][j];
            }
        }
    }

    // Backtracks along d; returns the change of L, 0 if no step decreases it enough.  Sets: theta, z.
    double move(double slope, const double d[3], double theta[3]) {
        const double linear = penalty_product(theta, d), quadratic = 0.5 * penalty_product(d, d);
        double step = 1;
        for (int trial = 0; trial < MAX_SUBSPACE_BACKTRACKS; ++trial, step *= BACKTRACK_FACTOR) {
            double change = step * linear + step * step * quadratic;
            for (int64_t i = 0; i < problem_.X->n_rows; ++i) {
                const double y = problem_.y[i];
                change += problem_.weight(i) * Loss::change(y * z_[i], step * y * score(d, i));
            }
            if (!(change <= ARMIJO_SLOPE * step * slope)) continue;
            for (int64_t i = 0; i < problem_.X->n_rows; ++i) z_[i] += step * score(d, i);
            for (int k = 0; k < 3; ++k) theta[k] += step * d[k];
            return change;
        }
        return 0;
    }

    double score(const double d[3], int64_t i) const {
        return d[0] * a_[i] + d[1] * b_[i] + d[2] * problem_.bias_value;
    }
};

struct MeanStartOptions {
    bool subspace;  // minimise in the span; else mean-separating with s and t
    double s, t;
};

// Fills coef and intercept of a block with starts. A one-sided label has no means to separate, and with a free
// intercept its solution is known: it starts from zero.
template <class Matrix, class Loss>
class MeanStarts {
    using T = typename Matrix::value_type;

  public:
    MeanStarts(const Matrix &X, const LabelBlock &block, const OneVsAllOptions &options, const MeanRow &mean,
               const MeanStartOptions &start)
        : X_(X), block_(block), options_(options), mean_(mean), start_(start), xx_(squared_norm(mean.x, X.n_cols)) {}

    void fill(T *coef, T *intercept) const {
        const int n_threads = static_cast<int>(std::min<int64_t>(std::max(1, options_.n_threads), block_.n_labels));
        std::vector<Work> works;
        works.reserve(n_threads);
        for (int t = 0; t < n_threads; ++t) works.emplace_back(start_.subspace ? X_.n_rows : 0, X_.n_cols);
        parallel_for(block_.n_labels, n_threads,
                     [&](int thread, int64_t j) { fill_label(j, works[thread], coef + j * X_.n_cols, intercept[j]); });
    }

  private:
    struct Work {
        std::vector<double> p, a, z;
        std::vector<int8_t> y;
        Work(int64_t n_rows, int64_t n_cols) : p(n_cols), a(n_rows), z(n_rows), y(n_rows) {}
    };

    const Matrix &X_;
    const LabelBlock &block_;
    const OneVsAllOptions &options_;
    const MeanRow &mean_;
    const MeanStartOptions &start_;
    double xx_;

    void fill_label(int64_t j, Work &work, T *coef, T &intercept) const {
        const int64_t *rows = block_.positive_rows + block_.positive_indptr[j];
        const int64_t n_rows = block_.n_positive(j);
        double weight = 0;
        std::fill(work.p.begin(), work.p.end(), 0.0);
        for (int64_t k = 0; k < n_rows; ++k) {
            X_.add_row(rows[k], block_.row_weight[rows[k]], work.p.data());
            weight += block_.row_weight[rows[k]];
        }
        for (double &value : work.p) value /= weight > 0 ? weight : 1.0;
        const MeanProducts dot_{squared_norm(work.p.data(), X_.n_cols), dot(work.p.data(), mean_.x, X_.n_cols), xx_};
        const bool one_sided = n_rows == 0 || n_rows == X_.n_rows;
        SpanPoint point;
        if (start_.subspace && !(one_sided && options_.bias_penalty == 0)) point = in_subspace(j, dot_, work);
        if (!start_.subspace && !one_sided) point = separating(dot_, weight);
        for (int64_t k = 0; k < X_.n_cols; ++k) {
            coef[k] = static_cast<T>(point.p * work.p[k] + point.x * mean_.x[k]);
        }
        intercept = static_cast<T>(options_.bias_value * point.bias);
    }

    SpanPoint separating(const MeanProducts &dot, double weight) const {
        const double one = options_.bias_value * options_.bias_value;
        SpanPoint point = mean_separating({dot.pp + one, dot.px + one, dot.xx + one}, weight / mean_.total_weight,
                                          start_.s, start_.t);
        point.bias = point.p + point.x;
        return point;
    }

    SpanPoint in_subspace(int64_t j, const MeanProducts &dot, Work &work) const {
        const BinaryProblem<Matrix> problem = binary_problem(X_, block_, options_, j, work.y);
        for (int64_t i = 0; i < X_.n_rows; ++i) work.a[i] = X_.row_dot(i, work.p.data());
        return SubspaceProblem<Matrix, Loss>(problem, work.a.data(), mean_.scores, dot, work.z.data()).minimize();
    }
};

}  // namespace widemargin
