// The truncated Newton solver and starts for it.
#include "bindings/one_vs_all.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "one_vs_all/starts.hpp"

namespace widemargin {

namespace {

using RecordTable = nb::ndarray<nb::numpy, double, nb::ndim<2>>;
constexpr size_t N_RECORD_COLUMNS = 8;

// (n_records, 8): label, iteration, value, gradient_ratio, active_rows, step, cg_steps, seconds
RecordTable to_table(const std::vector<LabelRecord> &records) {
    auto *values = new double[std::max<size_t>(1, records.size() * N_RECORD_COLUMNS)];
    double *row = values;
    for (const LabelRecord &r : records) {
        const double columns[] = {
            double(r.label), double(r.state.iteration), r.state.value, r.gradient_ratio, double(r.state.active_rows),
            r.state.step,    double(r.state.cg_steps),  r.seconds};
        row = std::copy(columns, columns + N_RECORD_COLUMNS, row);
    }
    nb::capsule owner(values, [](void *p) noexcept { delete[] static_cast<double *>(p); });
    return RecordTable(values, {records.size(), N_RECORD_COLUMNS}, owner);
}

template <class Matrix, typename T = typename Matrix::value_type>
RecordTable solve_block(const Matrix &X, const OneVsAllTask &task, OutMatrix<T> coef, OutVector<T> intercept,
                        OutMatrix<double> bounds, OutVector<int64_t> n_iter, OutVector<uint8_t> converged,
                        OutVector<int64_t> n_duals, GrowingArray<int32_t> *dual_rows,
                        GrowingArray<float> *dual_values) {
    std::vector<LabelRecord> records;
    {
        nb::gil_scoped_release release;
        const LabelBlock block = task.block();
        const bool keep = dual_rows != nullptr && dual_values != nullptr;
        std::vector<std::vector<RowDual>> duals(keep ? block.n_labels : 0);
        const BlockResult<T> out{coef.data(),   intercept.data(), bounds.data(),
                                 n_iter.data(), converged.data(), keep ? duals.data() : nullptr};
        records = with_loss(task.loss, [&](auto loss) {
            return OneVsAllSolver<Matrix, decltype(loss)>(X, block, task.options).solve(out);
        });
        for (size_t j = 0; j < duals.size(); ++j) {
            n_duals.data()[j] = DualArrays{dual_rows, dual_values}.append(duals[j]);
        }
    }
    return to_table(records);
}

// Starts of a task's labels from the mean row and its scores.
template <class Matrix, typename T = typename Matrix::value_type>
void fill_starts(const Matrix &X, const OneVsAllTask &task, bool subspace, double s, double t, ConstVector<double> x,
                 ConstVector<double> scores, OutMatrix<T> coef, OutVector<T> intercept) {
    nb::gil_scoped_release release;
    double total_weight = 0;
    for (int64_t i = 0; i < X.n_rows; ++i) total_weight += task.row_weight.data()[i];
    const MeanRow mean{x.data(), scores.data(), total_weight};
    const MeanStartOptions start{subspace, s, t};
    const LabelBlock block = task.block();
    with_loss(task.loss, [&](auto loss) {
        MeanStarts<Matrix, decltype(loss)>(X, block, task.options, mean, start).fill(coef.data(), intercept.data());
    });
}

constexpr int64_t DUALS_AHEAD = 16;  // how far ahead rows are prefetched: saves a third of the time on yso-finna-en

// values[j] = D of label j at the feasible α nearest to its entries of `duals`, or zero if that is larger; the formula
// is that of solvers/one_vs_all/duals.py, with the squared hinge. Visiting the rows again instead of all columns, to
// add up and clear the sums, takes a third longer on yso-finna-en (C = 0.25).
template <class Matrix>
void dual_values(const Matrix &X, ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                 ConstVector<double> row_weight, ConstVector<double> positive_factor,
                 ConstVector<double> negative_factor, double C, double bias_value, double bias_penalty,
                 ConstVector<int64_t> dual_rows, ConstVector<int64_t> dual_indptr, ConstVector<double> duals,
                 OutVector<double> values) {
    const LabelBlock labels = label_block(positive_rows, positive_indptr, row_weight, positive_factor, negative_factor);
    const auto n_labels = static_cast<size_t>(labels.n_labels);
    const auto n_duals = static_cast<int64_t>(std::min(dual_rows.shape(0), duals.shape(0)));
    if (dual_indptr.shape(0) != n_labels + 1 || values.shape(0) != n_labels) {
        throw std::invalid_argument("dual_indptr and values do not fit the labels");
    }
    nb::gil_scoped_release release;
    const bool free = bias_value != 0 && bias_penalty == 0;
    std::vector<double> sum(X.n_cols), products;  // Σ α y x; α y
    for (size_t j = 0; j < n_labels; ++j) {
        const int64_t first = dual_indptr.data()[j], n = dual_indptr.data()[j + 1] - first;
        if (first < 0 || n < 0 || first + n > n_duals) throw std::invalid_argument("dual_indptr is out of range");
        const int64_t *row = dual_rows.data() + first;
        const int64_t *positive = labels.positive_rows + labels.positive_indptr[j];
        const int64_t *positive_end = labels.positive_rows + labels.positive_indptr[j + 1];
        double of_side[2] = {0.0, 0.0};  // Σ α of the negatives and of the positives
        products.resize(n);
        for (int64_t k = 0, before = -1; k < n; before = row[k++]) {
            if (row[k] <= before || row[k] >= X.n_rows)
                throw std::invalid_argument("dual_rows are out of range or order");
            while (positive < positive_end && *positive < row[k]) ++positive;
            const bool is_positive = positive < positive_end && *positive == row[k];
            const double factor = is_positive ? labels.positive_factor[j] : labels.negative_factor[j];
            const double alpha = labels.row_weight[row[k]] * factor > 0 ? duals.data()[first + k] : 0.0;
            of_side[is_positive] += alpha;
            products[k] = is_positive ? alpha : -alpha;
        }
        double share[2] = {1.0, 1.0};
        if (free) {
            const double smaller = std::min(of_side[0], of_side[1]);
            for (int side = 0; side < 2; ++side) share[side] = of_side[side] > 0 ? smaller / of_side[side] : 0.0;
        }
        double conjugates = 0, of_bias = 0;
        for (int64_t k = 0; k < n; ++k) {
            X.ask_for(row[std::min(k + DUALS_AHEAD, n - 1)]);
            if (products[k] == 0) continue;
            const bool is_positive = products[k] > 0;
            const double product = products[k] * share[is_positive], alpha = std::abs(product);
            const double factor = is_positive ? labels.positive_factor[j] : labels.negative_factor[j];
            conjugates += alpha - alpha * alpha / (4.0 * C * labels.row_weight[row[k]] * factor);
            of_bias += product;
            X.add_row(row[k], product, sum.data());
        }
        const double squares = sum_in_lanes(0, X.n_cols, [&](int64_t k) {
            const double value = std::exchange(sum[k], 0.0);
            return value * value;
        });
        of_bias *= free ? 0.0 : bias_value;
        values.data()[j] = std::max(0.0, conjugates - 0.5 * (squares + of_bias * of_bias));
    }
}

// Labels whose losses are added up together: the rows are read once for all of them.
constexpr int64_t LOSS_LABELS = 4;

template <class Loss, class Matrix, typename T = typename Matrix::value_type>
void add_up_losses(const Matrix &X, const LabelBlock &labels, const T *coef, const T *bias, double *losses) {
    typedef T Scores __attribute__((vector_size(LOSS_LABELS * sizeof(T)), may_alias));
    const AlignedArray<T> table = aligned_array<T>(X.n_cols * LOSS_LABELS);  // weights of a column side by side
    const Scores *lines = reinterpret_cast<const Scores *>(table.get());
    for (int64_t first = 0; first < labels.n_labels; first += LOSS_LABELS) {
        const int64_t count = std::min(LOSS_LABELS, labels.n_labels - first);
        Scores biases{};
        for (int64_t j = 0; j < count; ++j) {
            biases[j] = bias[first + j];
            for (int64_t k = 0; k < X.n_cols; ++k) table[k * LOSS_LABELS + j] = coef[(first + j) * X.n_cols + k];
        }
        auto scores = [&](int64_t i) {
            Scores sum = biases;
            X.visit_row(i, [&](int64_t k, T x) { sum += x * lines[k]; });
            return sum;
        };
        double as_negatives[LOSS_LABELS] = {};
        for (int64_t i = 0; i < X.n_rows; ++i) {
            const Scores s = scores(i);
            for (int64_t j = 0; j < LOSS_LABELS; ++j) as_negatives[j] += labels.row_weight[i] * Loss::value(-s[j]);
        }
        for (int64_t j = 0; j < count; ++j) {
            const int64_t label = first + j;
            double positive = 0, negative = as_negatives[j];
            for (int64_t p = labels.positive_indptr[label]; p < labels.positive_indptr[label + 1]; ++p) {
                const int64_t i = labels.positive_rows[p];
                const double s = scores(i)[j];
                positive += labels.row_weight[i] * Loss::value(s);
                negative -= labels.row_weight[i] * Loss::value(-s);
            }
            losses[label] = labels.positive_factor[label] * positive + labels.negative_factor[label] * negative;
        }
    }
}

// losses[j] = Σ_i c_i φ(y_i (w_j·x_i + b_j)) without C, scored in the type of X.
template <class Matrix, typename T = typename Matrix::value_type>
void label_losses(const Matrix &X, ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                  ConstVector<double> row_weight, ConstVector<double> positive_factor,
                  ConstVector<double> negative_factor, const std::string &loss, ConstMatrix<T> coef,
                  ConstVector<T> bias, OutVector<double> losses) {
    const LabelBlock labels = label_block(positive_rows, positive_indptr, row_weight, positive_factor, negative_factor);
    const auto n_labels = static_cast<size_t>(labels.n_labels);
    if (coef.shape(0) != n_labels || coef.shape(1) != static_cast<size_t>(X.n_cols) || bias.shape(0) != n_labels ||
        losses.shape(0) != n_labels) {
        throw std::invalid_argument("coef, bias and losses do not fit the labels");
    }
    nb::gil_scoped_release release;
    with_loss(loss,
              [&](auto kind) { add_up_losses<decltype(kind)>(X, labels, coef.data(), bias.data(), losses.data()); });
}

constexpr const char *SOLVE_DOC =
    "Solve the labels of a task. `coef` (n_labels, n_features) and `intercept` (n_labels,) hold the start and receive "
    "the\n"
    "stored weights; `bounds` (n_labels, 5) receives primal, dual, primal_at_zero, primal_before_pruning, "
    "pruned_share.\n"
    "If they are given, dual_rows and dual_values receive the dual variables that are not zero, label after label, "
    "and\n"
    "`n_duals` (n_labels,) their numbers.\n"
    "Returns the records (n_records, 8): label, iteration, value, gradient_ratio, active_rows, step, cg_steps, "
    "seconds.";
constexpr const char *MEAN_DOC =
    "Fill `x` (n_features,) with the weighted mean of the rows, and `scores` (n_samples,) with X·x.";
constexpr const char *START_DOC =
    "Fill `coef` (n_labels, n_features) and `intercept` (n_labels,) with starts in the span of the mean positive row,\n"
    "the mean row `x` with its `scores` (both from mean_row) and the intercept: the objective's minimiser there if\n"
    "`subspace`, otherwise mean-separating weights with `s` and `t`.";

constexpr const char *DUAL_VALUES_DOC =
    "Fill `values` (n_labels,) with the dual objectives of labels at α = duals[k] in row dual_rows[k]\n"
    "for dual_indptr[j] ≤ k < dual_indptr[j + 1], scaled to be feasible, or zero; rows of a label ascend.";

constexpr const char *LOSSES_DOC =
    "Fill `losses` (n_labels,) with Σ_i c_i φ(y_i (w_j·x_i + b_j)), without C, for the labels of a task with the "
    "weights\n"
    "`coef` (n_labels, n_features) and `bias` (n_labels,); scores are computed in the type of X.";

template <typename T, typename I>
void bind_mean_row(MatrixModule<CsrView<T, I>> matrix) {
    matrix.module.def(
        "mean_row_csr",
        [](ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, ConstVector<double> row_weight,
           OutVector<double> x, OutVector<double> scores) {
            const auto X = csr_view<T, I>(data, indices, indptr, static_cast<int64_t>(x.shape(0)));
            mean_row(X, row_weight.data(), x.data(), scores.data());
        },
        nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
        nb::arg("row_weight").noconvert(), nb::arg("x").noconvert(), nb::arg("scores").noconvert(),
        nb::call_guard<nb::gil_scoped_release>(), MEAN_DOC);
}
template <typename T>
void bind_mean_row(MatrixModule<DenseView<T>> matrix) {
    matrix.module.def(
        "mean_row_dense",
        [](ConstMatrix<T> X, ConstVector<double> row_weight, OutVector<double> x, OutVector<double> scores) {
            mean_row(dense_view(X), row_weight.data(), x.data(), scores.data());
        },
        nb::arg("X").noconvert(), nb::arg("row_weight").noconvert(), nb::arg("x").noconvert(),
        nb::arg("scores").noconvert(), nb::call_guard<nb::gil_scoped_release>(), MEAN_DOC);
}

template <class Matrix>
void bind_matrix(MatrixModule<Matrix> matrix) {
    matrix.def("solve_one_vs_all", &solve_block<Matrix>, nb::arg("task"), nb::arg("coef").noconvert(),
               nb::arg("intercept").noconvert(), nb::arg("bounds").noconvert(), nb::arg("n_iter").noconvert(),
               nb::arg("converged").noconvert(), nb::arg("n_duals").noconvert(), nb::arg("dual_rows") = nb::none(),
               nb::arg("dual_values") = nb::none(), SOLVE_DOC);
    bind_mean_row(matrix);
    matrix.def("dual_values", &dual_values<Matrix>, nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("row_weight").noconvert(),
               nb::arg("positive_factor").noconvert(), nb::arg("negative_factor").noconvert(), nb::arg("C"),
               nb::arg("bias_value"), nb::arg("bias_penalty"), nb::arg("dual_rows").noconvert(),
               nb::arg("dual_indptr").noconvert(), nb::arg("duals").noconvert(), nb::arg("values").noconvert(),
               DUAL_VALUES_DOC);
    matrix.def("label_losses", &label_losses<Matrix>, nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("row_weight").noconvert(),
               nb::arg("positive_factor").noconvert(), nb::arg("negative_factor").noconvert(), nb::arg("loss"),
               nb::arg("coef").noconvert(), nb::arg("bias").noconvert(), nb::arg("losses").noconvert(), LOSSES_DOC);
    matrix.def("fill_starts", &fill_starts<Matrix>, nb::arg("task"), nb::arg("subspace"), nb::arg("s"), nb::arg("t"),
               nb::arg("x").noconvert(), nb::arg("scores").noconvert(), nb::arg("coef").noconvert(),
               nb::arg("intercept").noconvert(), START_DOC);
}

void bind_task(nb::module_ &module) {
    nb::class_<OneVsAllTask>(module, "OneVsAllTask", "The labels of a block and how to solve them.")
        .def(
            "__init__",
            [](OneVsAllTask *self, ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
               ConstVector<double> row_weight, ConstVector<double> positive_factor, ConstVector<double> negative_factor,
               std::string loss, double C, double bias_value, double bias_penalty, double tol, double gap_tol,
               double prune, int max_iter, int n_threads, bool polish, bool solve_one_sided, bool tighten_cg) {
                new (self) OneVsAllTask{positive_rows,
                                        positive_indptr,
                                        row_weight,
                                        positive_factor,
                                        negative_factor,
                                        loss,
                                        {C, bias_value, bias_penalty, tol, gap_tol, prune, max_iter, n_threads, polish,
                                         solve_one_sided, tighten_cg}};
            },
            nb::kw_only(), nb::arg("positive_rows").noconvert(), nb::arg("positive_indptr").noconvert(),
            nb::arg("row_weight").noconvert(), nb::arg("positive_factor").noconvert(),
            nb::arg("negative_factor").noconvert(), nb::arg("loss"), nb::arg("C"), nb::arg("bias_value"),
            nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("prune"), nb::arg("max_iter"),
            nb::arg("n_threads"), nb::arg("polish") = false, nb::arg("solve_one_sided") = false,
            nb::arg("tighten_cg") = true);
}

}  // namespace

void bind_one_vs_all(nb::module_ &module) {
    bind_task(module);
    for_matrix_types(module, [](auto matrix) { bind_matrix(matrix); });
}

}  // namespace widemargin
