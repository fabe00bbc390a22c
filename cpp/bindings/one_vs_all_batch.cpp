// The logistic one-vs-all solver in batches.
#include <string>

#include "bindings/one_vs_all.hpp"
#include "one_vs_all/batch_logistic.hpp"

namespace widemargin {

namespace {

template <typename T, typename I>
class LogisticSolver {
  public:
    LogisticSolver(const HeldRows<T, I> &rows, const OneVsAllOptions &options)
        : rows_(rows), solver_(rows_.X, rows_.row_weight.data(), options) {}

    void solve(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
               ConstVector<double> positive_factor, ConstVector<double> negative_factor, OutMatrix<T> coef,
               OutVector<T> intercept, OutMatrix<double> bounds, OutVector<int64_t> n_iter,
               OutVector<uint8_t> converged) {
        nb::gil_scoped_release release;
        solver_.solve(label_block(positive_rows, positive_indptr, rows_.row_weight, positive_factor, negative_factor),
                      {coef.data(), intercept.data(), bounds.data(), n_iter.data(), converged.data()});
    }

  private:
    HeldRows<T, I> rows_;
    BatchLogistic<CsrView<T, I>> solver_;
};

template <typename T, typename I>
void bind_solver(nb::module_ &module, const std::string &name, CsrTypes<T, I>) {
    using Solver = LogisticSolver<T, I>;
    bind_csr_solver<Solver, T, I>(module, name, "The batched logistic one-vs-all solver on one CSR matrix.")
        .def(
            "solve", &Solver::solve, nb::arg("positive_rows").noconvert(), nb::arg("positive_indptr").noconvert(),
            nb::arg("positive_factor").noconvert(), nb::arg("negative_factor").noconvert(), nb::arg("coef").noconvert(),
            nb::arg("intercept").noconvert(), nb::arg("bounds").noconvert(), nb::arg("n_iter").noconvert(),
            nb::arg("converged").noconvert(),
            "Solve the labels of a block; `coef` (n_labels, n_features) must be zero. `bounds` (n_labels, 5) receives\n"
            "primal, dual, primal_at_zero, primal_before_pruning, pruned_share.");
}

}  // namespace

void bind_one_vs_all_batch(nb::module_ &module) {
    for_csr_types(
        [&](auto types, const char *suffix) { bind_solver(module, std::string("BatchLogistic") + suffix, types); });
}

}  // namespace widemargin
