// One label's objective, as an optimiser sees it: value, gradient, hess_vec, diagonal, line search.
//
//     L(v) = ½‖w‖² + ½ bias_penalty b² + Σ_i c_i φ(m_i),     m_i = y_i z_i,    z_i = x_i·w + bias_value b
//
// v = (w, b) has n_cols + 1 entries. The intercept is a feature of value 1 whose penalty is 0 (free) or 1
// (regularised); without an intercept its value is 0. The loss is a class like SquaredHinge. Twin:
// tests/reference/binary_objective.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "one_vs_all/matrix.hpp"

namespace widemargin {

constexpr double ARMIJO_SLOPE = 0.01;     // sufficient decrease, the paper's η; liblinear 2.50 newton.cpp
constexpr double BACKTRACK_FACTOR = 0.5;  // the same source
// liblinear gives up after 20; hard margins need up to 60; flat regions of the logistic loss need 1e30 = 2^100
constexpr int MAX_BACKTRACKS = 100;

// The problem of one label. Rows of weight zero are ignored.
template <class Matrix>
struct BinaryProblem {
    const Matrix *X;
    const int8_t *y;           // (n_rows,) ±1
    const double *row_weight;  // (n_rows,) sample weights; C is in the factors
    double positive_factor;
    double negative_factor;
    double bias_value;
    double bias_penalty;

    double weight(int64_t i) const { return row_weight[i] * (y[i] > 0 ? positive_factor : negative_factor); }
    bool free_intercept() const { return bias_value != 0 && bias_penalty == 0; }
    int64_t n_variables() const { return X->n_cols + 1; }

    // z = X w + bias_value b
    void scores(const double *v, double *out) const {
        const double bias = bias_value * v[X->n_cols];
        for (int64_t i = 0; i < X->n_rows; ++i) out[i] = X->row_dot(i, v) + bias;
    }

    // ½‖w‖² + ½ bias_penalty b²
    double penalty(const double *v) const {
        const double b = v[X->n_cols];
        return 0.5 * (squared_norm(v, X->n_cols) + bias_penalty * b * b);
    }
};

// Work arrays of one thread, reused for every label.
struct ObjectiveWork {
    std::vector<double> z, Xd;      // (n_rows,) scores of the weights and of a direction
    std::vector<int64_t> active;    // rows with φ'' > 0
    std::vector<double> curvature;  // c_i φ''(m_i) of these rows
    explicit ObjectiveWork(int64_t n_rows) : z(n_rows), Xd(n_rows) {
        active.reserve(n_rows);
        curvature.reserve(n_rows);
    }
};

template <class Matrix, class Loss>
class BinaryObjective {
  public:
    BinaryObjective(const BinaryProblem<Matrix> &problem, ObjectiveWork &work) : problem_(problem), work_(work) {}

    int64_t n_variables() const { return problem_.n_variables(); }
    int64_t n_active() const { return static_cast<int64_t>(work_.active.size()); }
    const double *scores() const { return work_.z.data(); }

    // Sets: z.
    void move_to(const double *v) { problem_.scores(v, work_.z.data()); }

    double value(const double *v) const {
        double losses = 0;
        for (int64_t i = 0; i < n_rows(); ++i) {
            losses += problem_.weight(i) * Loss::value(problem_.y[i] * work_.z[i]);
        }
        return losses + problem_.penalty(v);
    }

    // out = v (penalised part) + Σ_i c_i φ'(m_i) y_i (x_i, bias_value).  Sets: active, curvature.
    void gradient(const double *v, double *out) {
        start_with_penalty(v, out);
        work_.active.clear();
        work_.curvature.clear();
        double bias = 0;
        for (int64_t i = 0; i < n_rows(); ++i) {
            const double y = problem_.y[i];
            const auto [slope, second] = Loss::derivatives(y * work_.z[i]);
            if (slope == 0) continue;
            const double c = problem_.weight(i);
            problem_.X->add_row(i, c * y * slope, out);
            bias += c * y * slope;
            work_.active.push_back(i);
            work_.curvature.push_back(c * second);
        }
        out[n_cols()] += problem_.bias_value * bias;
    }

    // out = d (penalised part) + Σ_{i active} curvature_i (x_i·d) x_i, including the feature of the intercept
    void hess_vec(const double *__restrict d, double *__restrict out) const {
        start_with_penalty(d, out);
        const double d_bias = problem_.bias_value * d[n_cols()];
        double bias = 0;
        for (size_t a = 0; a < work_.active.size(); ++a) {
            const int64_t i = work_.active[a];
            const double scale = work_.curvature[a] * (problem_.X->row_dot(i, d) + d_bias);
            problem_.X->add_row(i, scale, out);
            bias += scale;
        }
        out[n_cols()] += problem_.bias_value * bias;
    }

    // The diagonal of the Hessian.
    void diagonal(double *out) const {
        std::fill(out, out + n_cols(), 1.0);
        double bias = 0;
        for (size_t a = 0; a < work_.active.size(); ++a) {
            problem_.X->add_squared_row(work_.active[a], work_.curvature[a], out);
            bias += work_.curvature[a];
        }
        out[n_cols()] = problem_.bias_penalty + problem_.bias_value * problem_.bias_value * bias;
    }

    // Backtracking along d from v; `slope` = ∇L·d < 0. Returns the step taken, 0 if no step decreases L enough. One
    // pass over X, after which a trial costs O(n_rows).  Sets: v, z.
    double line_search(const double *__restrict d, double slope, double *__restrict v) {
        problem_.scores(d, work_.Xd.data());
        const int64_t n = n_cols();
        const double linear = dot(v, d, n) + problem_.bias_penalty * v[n] * d[n], quadratic = problem_.penalty(d);
        double step = 1;
        for (int trial = 0; trial < MAX_BACKTRACKS; ++trial, step *= BACKTRACK_FACTOR) {
            const double change = step * linear + step * step * quadratic + losses_change(step);
            if (change <= ARMIJO_SLOPE * step * slope) {
                add_scaled(step, d, n_variables(), v);
                add_scaled(step, work_.Xd.data(), n_rows(), work_.z.data());
                return step;
            }
        }
        return 0;
    }

  private:
    const BinaryProblem<Matrix> &problem_;
    ObjectiveWork &work_;

    int64_t n_rows() const { return problem_.X->n_rows; }
    int64_t n_cols() const { return problem_.X->n_cols; }

    void start_with_penalty(const double *v, double *out) const {
        std::copy(v, v + n_cols(), out);
        out[n_cols()] = problem_.bias_penalty * v[n_cols()];
    }

    // Σ_i c_i (φ(m_i + step y_i Xd_i) − φ(m_i)), row by row, so small changes are not lost in rounding
    double losses_change(double step) const {
        double sum = 0;
        for (int64_t i = 0; i < n_rows(); ++i) {
            const double y = problem_.y[i];
            sum += problem_.weight(i) * Loss::change(y * work_.z[i], step * y * work_.Xd[i]);
        }
        return sum;
    }
};

}  // namespace widemargin
