// The data and the labels of a one-vs-all problem as Python hands them over.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/bind.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/matrix.hpp"
#include "one_vs_all/newton_solver.hpp"
#include "simd/arrays.hpp"

namespace widemargin {

template <typename T, typename I>
CsrView<T, I> csr_view(const ConstVector<T> &data, const ConstVector<I> &indices, const ConstVector<I> &indptr,
                       int64_t n_features) {
    return {data.data(), indices.data(), indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1, n_features};
}

template <typename T>
DenseView<T> dense_view(const ConstMatrix<T> &X) {
    return {X.data(), static_cast<int64_t>(X.shape(0)), static_cast<int64_t>(X.shape(1))};
}

inline LabelBlock label_block(const ConstVector<int64_t> &positive_rows, const ConstVector<int64_t> &positive_indptr,
                              const ConstVector<double> &row_weight, const ConstVector<double> &positive_factor,
                              const ConstVector<double> &negative_factor) {
    return {static_cast<int64_t>(positive_factor.shape(0)),
            positive_rows.data(),
            positive_indptr.data(),
            row_weight.data(),
            positive_factor.data(),
            negative_factor.data()};
}

// The labels of a block and how to solve them; keeps the arrays alive. Fields as in tests/reference/one_vs_all.py.
struct OneVsAllTask {
    ConstVector<int64_t> positive_rows, positive_indptr;
    ConstVector<double> row_weight, positive_factor, negative_factor;
    std::string loss;
    OneVsAllOptions options;

    LabelBlock block() const {
        return label_block(positive_rows, positive_indptr, row_weight, positive_factor, negative_factor);
    }
};

// Where dual variables go, label after label; null unless they are kept.
struct DualArrays {
    GrowingArray<int32_t> *rows;
    GrowingArray<float> *values;

    // Returns their number.
    int64_t append(const std::vector<RowDual> &duals) const {
        if (rows == nullptr || values == nullptr) return 0;
        for (const RowDual &entry : duals) {
            rows->push(entry.row);
            values->push(entry.alpha);
        }
        return static_cast<int64_t>(duals.size());
    }
};

// Calls function(Loss{}) for the named loss; a new loss is one more line here.
template <class F>
auto with_loss(const std::string &name, F function) {
    if (name == "squared_hinge") return function(SquaredHinge{});
    if (name == "logistic") return function(Logistic{});
    throw std::invalid_argument("unknown loss '" + name + "'");
}

// Keeps the arrays of a CSR matrix and the weights of its rows alive, for a solver that reads them.
template <typename T, typename I>
struct HeldRows {
    HeldRows(ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
             ConstVector<double> row_weight)
        : data(data),
          indices(indices),
          indptr(indptr),
          row_weight(row_weight),
          X(csr_view(this->data, this->indices, this->indptr, n_features)) {}

    ConstVector<T> data;
    ConstVector<I> indices, indptr;
    ConstVector<double> row_weight;
    CsrView<T, I> X;
};

// Defines functions of a matrix X and further arguments: their names end in _csr or _dense, and their first arguments
// are the arrays of X.
template <class Matrix>
struct MatrixModule;
template <typename T, typename I>
struct MatrixModule<CsrView<T, I>> {
    nb::module_ &module;

    template <typename R, typename... Rest, typename... Extra>
    void def(const std::string &name, R (*function)(const CsrView<T, I> &, Rest...), const Extra &...extra) {
        module.def((name + "_csr").c_str(),
                   [function](ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
                              Rest... rest) { return function(csr_view(data, indices, indptr, n_features), rest...); },
                   nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
                   nb::arg("n_features"), extra...);
    }
};
template <typename T>
struct MatrixModule<DenseView<T>> {
    nb::module_ &module;

    template <typename R, typename... Rest, typename... Extra>
    void def(const std::string &name, R (*function)(const DenseView<T> &, Rest...), const Extra &...extra) {
        module.def((name + "_dense").c_str(),
                   [function](ConstMatrix<T> X, Rest... rest) { return function(dense_view(X), rest...); },
                   nb::arg("X").noconvert(), extra...);
    }
};

template <typename T, typename I>
MatrixModule<CsrView<T, I>> csr_module(nb::module_ &module, CsrTypes<T, I>) {
    return {module};
}

// Calls bind(MatrixModule) for all types of matrices.
template <class Bind>
void for_matrix_types(nb::module_ &module, Bind bind) {
    for_csr_types([&](auto types, const char *) { bind(csr_module(module, types)); });
    bind(MatrixModule<DenseView<float>>{module});
    bind(MatrixModule<DenseView<double>>{module});
}

// Binds a Solver(HeldRows<T, I>, OneVsAllOptions) with its constructor.
template <class Solver, typename T, typename I>
nb::class_<Solver> bind_csr_solver(nb::module_ &module, const std::string &name, const char *about) {
    return nb::class_<Solver>(module, name.c_str(), about)
        .def(
            "__init__",
            [](Solver *self, ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
               ConstVector<double> row_weight, double C, double bias_value, double bias_penalty, double tol,
               double gap_tol, double prune, int max_iter, int n_threads) {
                new (self) Solver(HeldRows<T, I>(data, indices, indptr, n_features, row_weight),
                                  {C, bias_value, bias_penalty, tol, gap_tol, prune, max_iter, n_threads, false});
            },
            nb::kw_only(), nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
            nb::arg("n_features"), nb::arg("row_weight").noconvert(), nb::arg("C"), nb::arg("bias_value"),
            nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("prune"), nb::arg("max_iter"),
            nb::arg("n_threads"));
}

}  // namespace widemargin
