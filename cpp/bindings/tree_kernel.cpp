#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/tree_problem.hpp"
#include "tree/kernel_ascent.hpp"

namespace widemargin {
namespace {

// Holds the arrays that the ascent reads. Runs release the GIL and return after a bounded amount of work.
class KernelTreeObject {
  public:
    KernelTreeObject(const ProblemArrays &problem, ConstVector<double> diagonal, OutMatrix<double> Z, int64_t n_slots,
                     uint64_t seed)
        : diagonal_(diagonal),
          Z_(Z),
          ascent_(problem.problem, int64_t(diagonal.shape(0)), diagonal.data(), Z.data(), n_slots, seed) {}

    void set_factor(ConstVector<double> R, ConstVector<double> pivots) {
        TreeFactor &factor = ascent_.state().factor;
        if (R.shape(0) != factor.R.size() || pivots.shape(0) != factor.pivots.size()) {
            throw std::invalid_argument("R must have one number per entry of the layout, and pivots one per node");
        }
        std::copy_n(R.data(), R.shape(0), factor.R.data());
        for (size_t i = 0; i < pivots.shape(0); ++i) {
            factor.pivots[i] = pivots.data()[i];
            factor.inverse_pivots[i] = 1.0 / pivots.data()[i];
        }
        ++factor.version;
    }
    void use_matrix(ConstMatrix<double> matrix) {
        matrix_ = matrix;
        ascent_.columns().use_matrix(matrix_.data());
    }
    NumpyVector<int64_t> wanted() const { return own(std::vector<int64_t>(ascent_.wanted())); }
    void lend_columns(ConstMatrix<double> columns) {
        loan_ = columns;
        ascent_.columns().lend(ascent_.wanted().data(), int64_t(ascent_.wanted().size()), loan_.data());
    }
    int run(int64_t work, double small) {
        const nb::gil_scoped_release release;
        return static_cast<int>(ascent_.run(work, small));
    }
    void wake(ConstVector<int64_t> blocks) {
        for (size_t e = 0; e < blocks.shape(0); ++e) ascent_.wake(blocks.data()[e]);
    }
    void set_duals(ConstVector<int64_t> start, ConstVector<int32_t> losers, ConstVector<double> values) {
        for (size_t b = 0; b + 1 < start.shape(0); ++b) {
            const int64_t first = start.data()[b];
            ascent_.set_duals(int64_t(b), losers.data() + first, values.data() + first, start.data()[b + 1] - first);
        }
    }
    auto duals() const { return own(ascent_.duals()); }
    double pass_gap() const { return ascent_.summary().gap; }
    int64_t n_visits() const { return ascent_.summary().n_visits; }

  private:
    ConstVector<double> diagonal_;
    OutMatrix<double> Z_;
    ConstMatrix<double> matrix_, loan_;
    KernelTreeAscent ascent_;
};

bool sweep(ConstVector<int64_t> path_start, ConstVector<int32_t> path_nodes, ConstVector<double> K,
           ConstMatrix<double> gram, double target, OutVector<double> S) {
    const AncestorPaths paths{static_cast<int32_t>(path_start.shape(0)) - 1, path_start.data(), path_nodes.data()};
    const std::vector<double> products(gram.data(), gram.data() + gram.size());
    return sweep_signs(paths, K.data(), S.data(), products, target);
}

}  // namespace

void bind_tree_kernel(nb::module_ &module) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<KernelTreeObject>(module, "KernelTreeAscent", "Dual ascent on the examples of a tree with a kernel.")
        .def(nb::init<const ProblemArrays &, ConstVector<double>, OutMatrix<double>, int64_t, uint64_t>(),
             nb::arg("problem"), nb::arg("diagonal").noconvert(), nb::arg("Z").noconvert(), nb::arg("n_slots"),
             nb::arg("seed"), nb::keep_alive<1, 2>(),
             "Diagonal (n,) of the kernel matrix; Z = L⁻¹BK (m, n) is changed in place.")
        .def("set_factor", &KernelTreeObject::set_factor, nb::arg("R").noconvert(), nb::arg("pivots").noconvert(),
             "Set R = L⁻¹ on the layout of the problem, and the pivots (m,).")
        .def("use_matrix", &KernelTreeObject::use_matrix, nb::arg("matrix").noconvert(),
             "Use all columns of the kernel matrix (n, n), instead of slots.")
        .def("wanted", &KernelTreeObject::wanted, "Rows (b,) whose columns blocks are waiting for.")
        .def("lend_columns", &KernelTreeObject::lend_columns, nb::arg("columns").noconvert(),
             "Columns (b, n) of wanted().")
        .def(
            "run", &KernelTreeObject::run, nb::arg("work"), nb::arg("small"),
            "Continue a pass; skips blocks with a gap up to `small`. Returns 0: done, 1: columns needed, 2: work done.")
        .def("wake", &KernelTreeObject::wake, nb::arg("blocks").noconvert(), "Visit blocks (b,) again.")
        .def("set_duals", &KernelTreeObject::set_duals, nb::arg("start").noconvert(), nb::arg("losers").noconvert(),
             nb::arg("values").noconvert(), Release(),
             "Set the dual variables, CSR parts of (n_blocks, m); the caller sets Z.")
        .def("duals", &KernelTreeObject::duals, "Dual variables, CSR parts of (n_blocks, m), by block and loser.")
        .def_prop_ro("pass_gap", &KernelTreeObject::pass_gap, "Sum of the gaps of the blocks, each before its visit.")
        .def_prop_ro("n_visits", &KernelTreeObject::n_visits, "Blocks visited in the last pass.");
    module.def("sweep_signs", &sweep, nb::arg("path_start").noconvert(), nb::arg("path_nodes").noconvert(),
               nb::arg("K").noconvert(), nb::arg("gram").noconvert(), nb::arg("target"), nb::arg("S").noconvert(),
               Release(),
               "Exact steps in S (n_entries,) of one subtree of b nodes; gram (b, b) is L⁻¹QL⁻ᵀ. False if not positive "
               "definite.");
}

}  // namespace widemargin
