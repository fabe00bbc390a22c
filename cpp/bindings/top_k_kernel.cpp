#include "bindings/top_k_kernel.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>

#include "simd/exp_in_place.hpp"

namespace widemargin {
namespace {

template <typename T>
void bind_ascent(nb::module_ &module, const char *name) {
    using Object = KernelAscentObject<T>;
    nb::class_<Object>(module, name, "Dual ascent for the kernel top-k SVM; starts from zero dual variables.")
        .def(nb::init<ConstVector<int64_t>, int64_t, ConstVector<double>, ConstVector<double>, int64_t, bool, double,
                      uint64_t, int64_t, std::optional<ConstMatrix<double>>>(),
             nb::arg("y").noconvert(), nb::arg("n_classes"), nb::arg("costs").noconvert(),
             nb::arg("diagonal").noconvert(), nb::arg("k"), nb::arg("alpha"), nb::arg("smoothing"), nb::arg("seed"),
             nb::arg("n_slots"), nb::arg("margins").noconvert().none() = nb::none())
        .def("use_matrix", &Object::use_matrix, nb::arg("matrix").noconvert(),
             "Use all columns of K (n, n), instead of slots.")
        .def("wanted", &Object::wanted, "Rows (b,) whose columns the next rows need.")
        .def("lend_columns", &Object::lend_columns, nb::arg("columns").noconvert(), "Columns (b, n) of wanted().")
        .def("set_duals", &Object::set_duals, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
             nb::arg("data").noconvert(), nb::arg("scores").noconvert(),
             "Set the dual variables x as CSR (n, m) with sorted labels, and the corresponding scores (n, m) = K A.")
        .def("duals", &Object::duals, "(indptr, indices, data) of x, (n, m), 0 at the true classes.")
        .def("begin_epoch", &Object::begin_epoch, nb::arg("threshold"),
             "Start an epoch over the rows that are awake, in random order; rows with a violation up to the threshold "
             "will sleep.")
        .def("run", &Object::run, nb::arg("work"),
             "Returns 0: epoch done, 1: columns needed, 2: `work` multiplications done.")
        .def("evaluate", &Object::evaluate, "(gap, dual) from the current scores.")
        .def_prop_ro("n_active", &Object::n_active, "Rows awake in this epoch.")
        .def_prop_ro("n_visits", &Object::n_visits, "Visits so far.");
}

template <class E>
void exp_values(OutMatrix<typename E::Float> values) {
    exp_in_place<E>(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace

void bind_top_k_kernel(nb::module_ &module) {
    const char *about = "values (n, d) become exp(min(values, 0)).";
    module.def("exp_in_place", &exp_values<ExpSingle>, nb::arg("values").noconvert(),
               nb::call_guard<nb::gil_scoped_release>(), about);
    module.def("exp_in_place", &exp_values<ExpDouble>, nb::arg("values").noconvert(),
               nb::call_guard<nb::gil_scoped_release>(), about);
    bind_ascent<float>(module, "KernelAscentSingle");
    bind_ascent<double>(module, "KernelAscentDouble");
}

}  // namespace widemargin
