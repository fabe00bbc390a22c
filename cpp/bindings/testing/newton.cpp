// The pieces of one label's objective and certificate.
#include <nanobind/stl/tuple.h>

#include <tuple>
#include <vector>

#include "bindings/one_vs_all.hpp"
#include "bindings/testing/hooks.hpp"

namespace widemargin {
namespace {

// The pieces of the first label's objective at v. Returns value, dual bound, optimal shift of the scores, and step of
// the line search.
template <class Matrix>
std::tuple<double, double, double, double> inspect_label(const Matrix &X, const OneVsAllTask &task,
                                                         ConstVector<double> v, ConstVector<double> direction,
                                                         OutVector<double> gradient, OutVector<double> hess_vec,
                                                         OutVector<double> diagonal, OutVector<double> end_point) {
    std::vector<int8_t> y(X.n_rows);
    const BinaryProblem<Matrix> problem = binary_problem(X, task.block(), task.options, 0, y);
    return with_loss(task.loss, [&](auto loss) -> std::tuple<double, double, double, double> {
        using Loss = decltype(loss);
        ObjectiveWork work(X.n_rows);
        BinaryObjective<Matrix, Loss> objective(problem, work);
        objective.move_to(v.data());
        const double value = objective.value(v.data());
        objective.gradient(v.data(), gradient.data());
        objective.hess_vec(direction.data(), hess_vec.data());
        objective.diagonal(diagonal.data());
        std::vector<double> u(X.n_cols);
        const double dual = dual_bound<Loss>(problem, objective.scores(), u.data());
        const double shift = optimal_shift<Loss>(problem, objective.scores());
        std::copy(v.data(), v.data() + v.shape(0), end_point.data());
        const double slope = dot(gradient.data(), direction.data(), problem.n_variables());
        const double step = slope < 0 ? objective.line_search(direction.data(), slope, end_point.data()) : 0.0;
        return {value, dual, shift, step};
    });
}

constexpr const char *INSPECT_DOC =
    "Pieces of the first label's objective at `v` (n_features + 1,): fills gradient, hess_vec and diagonal, and\n"
    "end_point with the line search's result; returns value, dual bound, optimal shift of the scores, step.";

template <class Matrix>
void bind_matrix(MatrixModule<Matrix> matrix) {
    matrix.def("inspect_label", &inspect_label<Matrix>, nb::arg("task"), nb::arg("v").noconvert(),
               nb::arg("direction").noconvert(), nb::arg("gradient").noconvert(), nb::arg("hess_vec").noconvert(),
               nb::arg("diagonal").noconvert(), nb::arg("end_point").noconvert(), INSPECT_DOC);
}

}  // namespace

void bind_newton_hooks(nb::module_ &module) {
    for_matrix_types(module, [](auto matrix) { bind_matrix(matrix); });
}

}  // namespace widemargin
