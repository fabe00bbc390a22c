#include "top_k/projections.hpp"

#include <memory>

#include "bindings/bind.hpp"

namespace widemargin {
namespace {

// out[i] = row a[i] clipped at find(row, n, r[i], rho[i], work); one work area for all rows.
template <class F>
void project_rows(const ConstMatrix<double> &a, const double *r, const double *rho, OutMatrix<double> &out, F find) {
    const int64_t n = a.shape(1);
    const std::unique_ptr<double[]> work(new double[n]);  // not filled with zeros
    for (size_t i = 0; i < a.shape(0); ++i) {
        const double *row = a.data() + i * n;
        apply_thresholds(row, n, find(row, n, r[i], rho[i], work.get()), out.data() + i * n);
    }
}

void project_capped_simplex(ConstMatrix<double> a, int64_t k, ConstVector<double> r, ConstVector<double> rho,
                            bool exactly, bool by_fixing, OutMatrix<double> out) {
    project_rows(a, r.data(), rho.data(), out, [=](const double *row, int64_t n, double r, double rho, double *work) {
        return capped_simplex(row, n, {k, r, rho, exactly}, by_fixing, work);
    });
}

void project_top_k_simplex(ConstMatrix<double> a, int64_t k, ConstVector<double> r, ConstVector<double> rho,
                           OutMatrix<double> out) {
    project_rows(a, r.data(), rho.data(), out, [=](const double *row, int64_t n, double r, double rho, double *work) {
        return top_k_simplex(row, n, {k, r, rho, false}, work);
    });
}

}  // namespace

void bind_projections(nb::module_ &module) {
    module.def("project_capped_simplex", &project_capped_simplex, nb::arg("a").noconvert(), nb::arg("k"),
               nb::arg("r").noconvert(), nb::arg("rho").noconvert(), nb::arg("exactly"), nb::arg("by_fixing"),
               nb::arg("out").noconvert(), nb::call_guard<nb::gil_scoped_release>(),
               "Rows of a (n, d) onto {0 <= x <= r/k, sum(x) <= r (or = r)}; r and rho (n,), 1 <= k <= d, out (n, d).");
    module.def("project_top_k_simplex", &project_top_k_simplex, nb::arg("a").noconvert(), nb::arg("k"),
               nb::arg("r").noconvert(), nb::arg("rho").noconvert(), nb::arg("out").noconvert(),
               nb::call_guard<nb::gil_scoped_release>(),
               "Rows of a (n, d) onto {0 <= x <= sum(x)/k, sum(x) <= r}; r (inf: the cone) and rho (n,), out (n, d).");
}

}  // namespace widemargin
