#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/bind.hpp"
#include "bindings/tree_problem.hpp"
#include "tree/joint_dual.hpp"

namespace widemargin {
namespace {

template <typename T>
class Solver {
  public:
    Solver(const ProblemArrays &problem, ConstVector<T> values, ConstVector<int32_t> cols, ConstVector<int64_t> start,
           int64_t n_cols, ConstVector<double> M, bool learns_signs, uint64_t seed, int n_threads,
           int32_t small_subtree)
        : values_(values),
          cols_(cols),
          start_(start),
          solver_(problem.problem,
                  {values.data(), cols.data(), start.data(), static_cast<int64_t>(start.shape(0)) - 1, n_cols},
                  M.data(), learns_signs, {seed, n_threads, small_subtree}) {}

    template <typename V>
    void start_from(ConstVector<int64_t> start, ConstVector<int32_t> losers, ConstVector<double> duals,
                    ConstVector<double> S, ConstVector<V> values) {
        solver_.start_from(start.data(), losers.data(), duals.data(), S.data(), values.data());
    }
    bool run(double seconds) { return solver_.run(seconds); }
    std::tuple<double, double> improve_coupling(double target, int n_steps) {
        double dual;
        const double gap = solver_.improve_coupling(target, n_steps, dual);
        return {gap, dual};
    }
    void extrapolate(double dual) { solver_.extrapolate(dual); }
    template <typename V>
    std::tuple<double, double> certify(ConstVector<V> values) {
        double primal, dual;
        solver_.certify(values.data(), primal, dual);
        return {primal, dual};
    }
    template <typename V>
    double losses_at(ConstVector<V> values, double scale) const {
        return solver_.losses_at(values.data(), scale);
    }
    auto duals() const { return own(solver_.duals()); }
    auto parts() const { return own(solver_.parts()); }
    void read_weights(OutMatrix<double> out) const { solver_.read_weights(out.data()); }
    NumpyVector<double> inverse_factor() const { return own(std::vector<double>(solver_.state().factor.R)); }
    NumpyVector<double> pivots() const { return own(std::vector<double>(solver_.state().factor.pivots)); }
    NumpyVector<double> signs() const {
        return own(solver_.coupling() ? std::vector<double>(solver_.coupling()->S) : std::vector<double>());
    }
    NumpyVector<double> products() const {
        return own(solver_.coupling() ? std::vector<double>(solver_.coupling()->G) : std::vector<double>());
    }
    double pass_gap() const { return solver_.summary().gap; }
    int64_t n_visits() const { return solver_.summary().n_visits; }

  private:
    ConstVector<T> values_;
    ConstVector<int32_t> cols_;
    ConstVector<int64_t> start_;
    JointDual<T> solver_;
};

template <typename T>
void bind_solver(nb::module_ &module, const char *name) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Solver<T>>(module, name)
        .def(nb::init<const ProblemArrays &, ConstVector<T>, ConstVector<int32_t>, ConstVector<int64_t>, int64_t,
                      ConstVector<double>, bool, uint64_t, int, int32_t>(),
             nb::arg("problem"), nb::arg("values").noconvert(), nb::arg("cols").noconvert(),
             nb::arg("start").noconvert(), nb::arg("n_cols"), nb::arg("M").noconvert(), nb::arg("learns_signs"),
             nb::arg("seed"), nb::arg("n_threads"), nb::arg("small_subtree"), nb::keep_alive<1, 2>(),
             "Rows of X as CSR parts; M on the ancestor layout is the coupling, or K of a coupling K∘S.")
        .def("start_from", &Solver<T>::template start_from<float>, nb::arg("start").noconvert(),
             nb::arg("losers").noconvert(), nb::arg("duals").noconvert(), nb::arg("S").noconvert(),
             nb::arg("values").noconvert(), Release(), "Dual variables, CSR parts of (n_blocks, m), and S.")
        .def("start_from", &Solver<T>::template start_from<double>, nb::arg("start").noconvert(),
             nb::arg("losers").noconvert(), nb::arg("duals").noconvert(), nb::arg("S").noconvert(),
             nb::arg("values").noconvert(), Release(), "Dual variables, CSR parts of (n_blocks, m), and S.")
        .def("run", &Solver<T>::run, nb::arg("seconds"), Release(),
             "Continue the current pass; returns whether it is finished.")
        .def("improve_coupling", &Solver<T>::improve_coupling, nb::arg("target"), nb::arg("n_steps"), Release(),
             "An S-step; returns the resulting gap of the pairs, and the dual value, subject to the rounding of Z.")
        .def("extrapolate", &Solver<T>::extrapolate, nb::arg("dual"), Release(),
             "Extrapolate in the direction of the last pass; `dual` is the current dual value.")
        .def("certify", &Solver<T>::template certify<float>, nb::arg("values").noconvert(), Release(),
             "Primal and dual bound in double; `values` are the data of X as given.")
        .def("certify", &Solver<T>::template certify<double>, nb::arg("values").noconvert(), Release(),
             "Primal and dual bound in double; `values` are the data of X as given.")
        .def("losses_at", &Solver<T>::template losses_at<float>, nb::arg("values").noconvert(), nb::arg("scale"),
             Release(), "Sum of the losses, in double, at a multiple of the weights.")
        .def("losses_at", &Solver<T>::template losses_at<double>, nb::arg("values").noconvert(), nb::arg("scale"),
             Release(), "Sum of the losses, in double, at a multiple of the weights.")
        .def("duals", &Solver<T>::duals, "Dual variables, CSR parts of (n_blocks, m), by block and loser.")
        .def("parts", &Solver<T>::parts, "Z = L⁻¹B, CSR parts of (m, n_cols).")
        .def("read_weights", &Solver<T>::read_weights, nb::arg("out").noconvert(), Release(),
             "Write the weights to out (m, n_cols), which must be zero.")
        .def("inverse_factor", &Solver<T>::inverse_factor, "R = L⁻¹ on the ancestor layout.")
        .def("pivots", &Solver<T>::pivots, "Pivots (m,) of the coupling.")
        .def("signs", &Solver<T>::signs, "S on the ancestor layout; empty if the coupling is fixed.")
        .def("products", &Solver<T>::products, "w_iᵀw_j on the ancestor layout, as last measured; or empty.")
        .def_prop_ro("pass_gap", &Solver<T>::pass_gap, "Sum of the gaps of the blocks, each before its visit.")
        .def_prop_ro("n_visits", &Solver<T>::n_visits, "Blocks visited in the last pass.");
}

}  // namespace

void bind_tree(nb::module_ &module) {
    nb::class_<ProblemArrays>(module, "TreeProblem")
        .def(nb::init<ConstVector<int32_t>, ConstVector<int32_t>, ConstVector<int32_t>, ConstVector<int64_t>,
                      ConstVector<int32_t>, ConstVector<int32_t>, ConstVector<int32_t>, ConstVector<int32_t>,
                      ConstVector<double>, bool, int, ConstVector<uint8_t>>(),
             nb::arg("parent").noconvert(), nb::arg("group_of").noconvert(), nb::arg("group_start").noconvert(),
             nb::arg("path_start").noconvert(), nb::arg("path_nodes").noconvert(), nb::arg("block_row").noconvert(),
             nb::arg("block_node").noconvert(), nb::arg("block_levels").noconvert(), nb::arg("block_cost").noconvert(),
             nb::arg("over_all"), nb::arg("rescaling"), nb::arg("is_output").noconvert(),
             "The tree (m nodes), its sibling groups, the layout of its coupling, and the blocks of constraints.");
    bind_solver<float>(module, "JointDual32");
    bind_solver<double>(module, "JointDual64");
}

}  // namespace widemargin
