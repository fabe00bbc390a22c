// The dual variables of a top-k multiclass SVM as plain lists, made exactly feasible, and the weights that follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel_for.hpp"
#include "projections.hpp"
#include "top_k_state.hpp"

namespace widemargin {

// Rows of (class, x) for the wrong classes with x > 0, in double.
struct DualLists {
    std::vector<int64_t> start{0};
    std::vector<int32_t> classes;
    std::vector<double> values;
    double sum = 0, smoothing_term = 0;  // Σ_i ⟨1,x_i⟩ and Σ_i γ/(2C_i) ‖x_i‖²

    int64_t n_rows() const { return int64_t(start.size()) - 1; }
};

// Moves x (n,) into the domain of the loss at cost C: rounding may have left it by a little.
inline void make_feasible(const TopKLoss &loss, double cost, double *x, int64_t n, double *work) {
    const double k = double(loss.k);
    double sum = 0.0, top = 0.0;
    for (int64_t j = 0; j < n; ++j) {
        x[j] = std::max(x[j], 0.0);
        if (!loss.alpha) x[j] = std::min(x[j], cost / k);
        sum += x[j];
        top = std::max(top, x[j]);
    }
    if (loss.alpha && top > sum / k) {
        apply_thresholds(x, n, top_k_simplex(x, n, {loss.k, cost, 0.0, false}, work), x);
    } else if (sum > cost) {
        for (int64_t j = 0; j < n; ++j) x[j] *= cost / sum;
    }
}

// A row of zeros has margins of 1 whatever the weights are: any x of sum C is best for it, and it is never visited. So
// is a row so short that no weights with ‖W‖² ≤ 2 Σ C_i, as the best have, change its margins by more than 1e-12.
constexpr double ZERO_ROW = 1e-24;

template <typename T>
bool is_zero_row(const TopKState<T> &state, int64_t i) {
    const RowState<T> &row = state.rows[i];
    return row.cost > 0 && double(row.norm) * state.total_cost <= ZERO_ROW && state.loss.smoothing == 0.0;
}

template <typename T>
DualLists read_duals(const TopKState<T> &state, const double *costs) {
    DualLists lists;
    std::vector<double> x(state.n_classes), wrong(state.n_classes), work(state.n_classes);
    for (int64_t i = 0; i < state.X.n_rows; ++i) {
        const int y = state.rows[i].y;
        if (is_zero_row(state, i)) {
            std::fill(x.begin(), x.end(), costs[i] / (state.n_classes - 1));
        } else if (state.rows[i].sigma > 0) {
            state.read_dual(i, x.data());
        } else {
            lists.start.push_back(int64_t(lists.classes.size()));
            continue;
        }
        x[y] = 0.0;
        // The true class is not one of the coordinates of the domain.
        std::swap(x[y], x[state.n_classes - 1]);
        make_feasible(state.loss, costs[i], x.data(), state.n_classes - 1, work.data());
        std::swap(x[y], x[state.n_classes - 1]);
        double squares = 0.0;
        for (int j = 0; j < state.n_classes; ++j) {
            if (x[j] == 0.0 || j == y) continue;
            lists.classes.push_back(j);
            lists.values.push_back(x[j]);
            lists.sum += x[j];
            squares += x[j] * (x[j] / costs[i]);  // in this order: squares of small costs would be 0
        }
        if (state.loss.smoothing > 0.0) lists.smoothing_term += 0.5 * state.loss.smoothing * squares;
        lists.start.push_back(int64_t(lists.classes.size()));
    }
    return lists;
}

constexpr int64_t STRIP_BYTES = int64_t(8) << 20;
constexpr int STRIP_CLASSES = 8;  // of one task: a line of doubles

// W(A) = Σ_i a_i x_i' in double, a strip of classes at a time: take(first, last, strip) gets the columns of classes
// [first, last) as (n_cols + 1, last − first).
template <typename Data, class F>
void weights_of_duals(const DataRows<Data> &X, const int32_t *y, const DualLists &dual, int n_classes, int n_threads,
                      F take) {
    const int64_t n_lines = X.n_cols + 1;
    const int64_t affordable = STRIP_BYTES / (8 * n_lines) / STRIP_CLASSES * STRIP_CLASSES;
    const int64_t width = std::min<int64_t>((n_classes + STRIP_CLASSES - 1) / STRIP_CLASSES * STRIP_CLASSES,
                                            std::max<int64_t>(affordable, STRIP_CLASSES));
    const AlignedArray<double> strip = aligned_array<double>(n_lines * width);
    for (int64_t first = 0; first < n_classes; first += width) {
        std::fill_n(strip.get(), n_lines * width, 0.0);
        parallel_for(width / STRIP_CLASSES, n_threads, [&](int, int64_t task) {
            const int64_t low = first + task * STRIP_CLASSES, high = low + STRIP_CLASSES;
            const auto add = [&](int64_t i, int64_t j, double a) {
                double *column = strip.get() + (j - first);
                const int64_t begin = X.begin(i), length = X.length(i);
                for (int64_t p = 0; p < length; ++p) {
                    column[(X.cols == nullptr ? p : X.cols[begin + p]) * width] += a * double(X.values[begin + p]);
                }
                column[X.n_cols * width] += a * X.bias;
            };
            for (int64_t i = 0; i < dual.n_rows(); ++i) {
                double sum = 0.0;
                for (int64_t e = dual.start[i]; e < dual.start[i + 1]; ++e) {
                    sum += dual.values[e];
                    if (dual.classes[e] >= low && dual.classes[e] < high) add(i, dual.classes[e], -dual.values[e]);
                }
                if (sum > 0.0 && y[i] >= low && y[i] < high) add(i, y[i], sum);
            }
        });
        take(first, std::min<int64_t>(first + width, n_classes), strip.get(), width);
    }
}

}  // namespace widemargin
