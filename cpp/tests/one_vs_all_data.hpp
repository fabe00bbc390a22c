// Rows, labels and results of one-vs-all problems.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "one_vs_all/matrix.hpp"
#include "one_vs_all/newton_solver.hpp"

namespace widemargin {

struct TestLabels {
    std::vector<int64_t> positive_rows, positive_indptr{0};
    std::vector<double> row_weight, positive_factor, negative_factor;

    int64_t n_labels() const { return static_cast<int64_t>(positive_indptr.size()) - 1; }
    int64_t n_positive(int64_t j) const { return positive_indptr[j + 1] - positive_indptr[j]; }

    // Ends a label whose rows were added to positive_rows.
    void end_label(double positive = 1.0, double negative = 1.0) {
        positive_indptr.push_back(static_cast<int64_t>(positive_rows.size()));
        positive_factor.push_back(positive);
        negative_factor.push_back(negative);
    }

    // Labels first … last − 1.
    LabelBlock block(int64_t first, int64_t last) const {
        return {last - first,      positive_rows.data(),           positive_indptr.data() + first,
                row_weight.data(), positive_factor.data() + first, negative_factor.data() + first};
    }
    LabelBlock block() const { return block(0, n_labels()); }
};

// Sparse rows with labels, added one after another.
struct TestRows : TestLabels {
    using Matrix = CsrView<float, int32_t>;
    int64_t n_cols;
    std::vector<float> data;
    std::vector<int32_t> indices, indptr{0};

    explicit TestRows(int64_t n_cols) : n_cols(n_cols) {}
    int64_t n_rows() const { return static_cast<int64_t>(indptr.size()) - 1; }
    Matrix view() const { return {data.data(), indices.data(), indptr.data(), n_rows(), n_cols}; }

    void add_entry(int64_t col, double value) {
        indices.push_back(static_cast<int32_t>(col));
        data.push_back(static_cast<float>(value));
    }
    void end_row(double weight = 1.0) {
        indptr.push_back(static_cast<int32_t>(data.size()));
        row_weight.push_back(weight);
    }
    // One label per share; a row is positive if draw() is below the share.
    template <class Draw>
    void draw_labels(const std::vector<double> &shares, Draw draw) {
        for (double share : shares) {
            for (int64_t i = 0; i < n_rows(); ++i) {
                if (draw() < share) positive_rows.push_back(i);
            }
            end_label();
        }
    }

    // ½‖w‖² + C Σ_i weight_i loss(y_i (w·x_i + b)) of label j
    template <class Loss>
    double objective(int64_t j, const std::vector<double> &w, double intercept, double C, Loss loss) const {
        std::vector<double> y(n_rows(), -1.0);
        double value = 0;
        for (double x : w) value += 0.5 * x * x;
        for (int64_t k = positive_indptr[j]; k < positive_indptr[j + 1]; ++k) y[positive_rows[k]] = 1;
        for (int64_t i = 0; i < n_rows(); ++i) {
            value += C * row_weight[i] * loss(y[i] * (view().row_dot(i, w.data()) + intercept));
        }
        return value;
    }
};

// Random rows, each made by add_row(rows, draw), and one label per share of positives; draw() is uniform in [0, 1).
template <class AddRow>
TestRows random_rows(unsigned seed, int64_t n_rows, int64_t n_cols, const std::vector<double> &shares, AddRow add_row) {
    TestRows rows(n_cols);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    const auto draw = [&] { return uniform(random); };
    for (int64_t i = 0; i < n_rows; ++i) {
        add_row(rows, draw);
        rows.end_row();
    }
    rows.draw_labels(shares, draw);
    return rows;
}

// Arrays for the results of a block of labels.
template <typename T>
struct TestOutputs {
    std::vector<T> coef, intercept;
    std::vector<double> bounds;
    std::vector<int64_t> n_iter;
    std::vector<uint8_t> converged;
    std::vector<LabelRecord> records;

    TestOutputs(int64_t n_labels, int64_t n_cols)
        : coef(n_labels * n_cols),
          intercept(n_labels),
          bounds(n_labels * N_BOUNDS),
          n_iter(n_labels),
          converged(n_labels) {}
    BlockResult<T> view() { return {coef.data(), intercept.data(), bounds.data(), n_iter.data(), converged.data()}; }
};

}  // namespace widemargin
