#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <tuple>
#include <vector>

#include "bind.hpp"
#include "fast_one_vs_all.hpp"
#include "matrix_view.hpp"

namespace widemargin {

namespace {

template <typename T>
using NumpyVector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// An array that owns `values`.
template <typename T>
NumpyVector<T> own(std::vector<T> &&values) {
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return NumpyVector<T>(kept->data(), {kept->size()}, owner);
}

using FastResult = std::tuple<NumpyVector<float>, NumpyVector<int32_t>, NumpyVector<int64_t>, NumpyVector<float>,
                              NumpyVector<double>, NumpyVector<int64_t>, NumpyVector<uint8_t>, NumpyVector<uint8_t>>;

// Joins the pieces of the labels, giving each back as soon as it is copied.
FastResult join(std::vector<StoredLabel> &&labels) {
    const size_t n = labels.size();
    std::vector<int64_t> indptr(n + 1, 0), n_iter(n);
    std::vector<float> intercept(n);
    std::vector<double> bounds(n * N_BOUNDS);
    std::vector<uint8_t> converged(n), plain(n);
    for (size_t j = 0; j < n; ++j) indptr[j + 1] = indptr[j] + static_cast<int64_t>(labels[j].cols.size());
    std::vector<float> data(indptr[n]);
    std::vector<int32_t> indices(indptr[n]);
    for (size_t j = 0; j < n; ++j) {
        StoredLabel label = std::move(labels[j]);
        std::copy(label.vals.begin(), label.vals.end(), data.begin() + indptr[j]);
        std::copy(label.cols.begin(), label.cols.end(), indices.begin() + indptr[j]);
        std::copy(label.bounds, label.bounds + N_BOUNDS, bounds.begin() + static_cast<int64_t>(j) * N_BOUNDS);
        intercept[j] = label.intercept;
        n_iter[j] = label.n_iter;
        converged[j] = label.converged;
        plain[j] = label.plain;
    }
    return {own(std::move(data)),   own(std::move(indices)), own(std::move(indptr)),    own(std::move(intercept)),
            own(std::move(bounds)), own(std::move(n_iter)),  own(std::move(converged)), own(std::move(plain))};
}

// Holds the data matrix's arrays and the row store made of them.
template <typename T, typename I>
class FastSolver {
  public:
    FastSolver(ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
               ConstVector<double> row_weight, const OneVsAllOptions &options)
        : data_(data),
          indices_(indices),
          indptr_(indptr),
          row_weight_(row_weight),
          X_{data.data(), indices.data(), indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1, n_features},
          solver_(X_, row_weight.data(), options) {}

    FastResult solve(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                     ConstVector<double> positive_factor, ConstVector<double> negative_factor) {
        std::vector<StoredLabel> labels;
        {
            nb::gil_scoped_release release;
            labels = solver_.solve({static_cast<int64_t>(positive_factor.shape(0)), positive_rows.data(),
                                    positive_indptr.data(), row_weight_.data(), positive_factor.data(),
                                    negative_factor.data()});
        }
        return join(std::move(labels));
    }
    std::vector<double> counts() const {
        const SchedulerCounts &c = solver_.counts;
        std::vector<double> all{double(c.passes),   double(c.lanes),   double(c.iterations), double(c.solves),
                                double(c.set_rows), double(c.emitted), double(c.certified)};
        return all;
    }
    const char *instruction_set() const { return solver_.instruction_set(); }

  private:
    ConstVector<T> data_;
    ConstVector<I> indices_, indptr_;
    ConstVector<double> row_weight_;
    CsrView<T, I> X_;
    FastOneVsAll<CsrView<T, I>> solver_;
};

template <typename T, typename I>
void bind_solver(nb::module_ &module, const char *name) {
    using Solver = FastSolver<T, I>;
    nb::class_<Solver>(module, name, "The fast squared-hinge one-vs-all solver on one CSR matrix.")
        .def(
            "__init__",
            [](Solver *self, ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
               ConstVector<double> row_weight, double C, double bias_value, double bias_penalty, double tol,
               double gap_tol, double prune, int max_iter, int n_threads) {
                new (self) Solver(data, indices, indptr, n_features, row_weight,
                                  {C, bias_value, bias_penalty, tol, gap_tol, prune, max_iter, n_threads});
            },
            nb::kw_only(), nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
            nb::arg("n_features"), nb::arg("row_weight").noconvert(), nb::arg("C"), nb::arg("bias_value"),
            nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("prune"), nb::arg("max_iter"),
            nb::arg("n_threads"))
        .def("solve", &Solver::solve, nb::arg("positive_rows").noconvert(), nb::arg("positive_indptr").noconvert(),
             nb::arg("positive_factor").noconvert(), nb::arg("negative_factor").noconvert(),
             "Solve a block of labels; the positives of label j are positive_rows[positive_indptr[j]:positive_indptr[j "
             "+ 1]].\nReturns data, indices, indptr of the pruned weights (n_labels, n_features), intercept "
             "(n_labels,),\nbounds (n_labels * 5,): primal, dual, primal_at_zero, primal_before_pruning, pruned_share;"
             "\nn_iter, converged, and plain: which labels the plain Newton solver finished, (n_labels,) each.")
        .def("counts", &Solver::counts,
             "Work so far: passes, lanes used in them, local iterations, local solves, rows in working sets, rows "
             "emitted, certificates.")
        .def("instruction_set", &Solver::instruction_set, "Name of the instruction set in use.");
}

}  // namespace

void bind_fast_one_vs_all(nb::module_ &module) {
    bind_solver<float, int32_t>(module, "FastOneVsAllF32I32");
    bind_solver<float, int64_t>(module, "FastOneVsAllF32I64");
    bind_solver<double, int32_t>(module, "FastOneVsAllF64I32");
    bind_solver<double, int64_t>(module, "FastOneVsAllF64I64");
}

}  // namespace widemargin
