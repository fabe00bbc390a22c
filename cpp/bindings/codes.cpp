#include "bindings/codes.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>

namespace widemargin {
namespace {

// The methods of both ascents.
template <typename Ascent>
nb::class_<SpocObject<Ascent>> bind_ascent(nb::module_ &module, const char *name, const char *text) {
    using Object = SpocObject<Ascent>;
    return nb::class_<Object>(module, name, text)
        .def("set_duals", &Object::set_duals, nb::arg("x").noconvert(),
             "Set the dual variables (n, k) of the wrong classes; the entries of the true classes are ignored.")
        .def("run", &Object::run, nb::arg("tol"), nb::arg("max_iter"), nb::arg("seconds"), nb::arg("pause"),
             "Returns 0: gap reached and certified, 1: passes done, 2: paused, `seconds` after the start or at an "
             "evaluation, "
             "3: rounding keeps the gap above tol.")
        .def("certify", &Object::certify, "(primal, dual) of the code, recomputed from the dual variables.")
        .def("eta", &Object::eta, "Dual variables (n * k,) of all classes; each row sums to C_i.")
        .def("code", &Object::code, "The code's transpose, (l * k,); empty with a kernel matrix.")
        .def("best_code", &Object::best_code, "The transpose of the code with the smallest objective so far, or empty.")
        .def("records", &Object::records, "Passes, seconds, primal, dual, active rows of each evaluation, (e * 5,).")
        .def_prop_ro("n_passes", &Object::n_passes, "Passes so far.")
        .def_prop_ro("elapsed", &Object::elapsed, "Seconds since the start.");
}

}  // namespace

void bind_codes(nb::module_ &module) {
    bind_ascent<Spoc>(module, "SpocAscent", "SPOC with an explicit code; starts from a code of 0.")
        .def(nb::init<ConstMatrix<double>, ConstVector<int64_t>, int64_t, ConstVector<double>,
                      std::optional<ConstMatrix<double>>, uint64_t>(),
             nb::arg("h").noconvert(), nb::arg("y").noconvert(), nb::arg("n_classes"), nb::arg("costs").noconvert(),
             nb::arg("margins").noconvert().none(), nb::arg("seed"));
    using WorstFirst = SpocObject<SpocWorstFirst>;
    bind_ascent<SpocWorstFirst>(module, "SpocWorstFirst",
                                "SPOC that always visits the example with the largest violation.")
        .def(
            "__init__",
            [](WorstFirst *self, ConstMatrix<double> h, ConstVector<int64_t> y, int64_t n_classes,
               ConstVector<double> costs, std::optional<ConstMatrix<double>> margins,
               std::optional<ConstMatrix<double>> kernel) {
                new (self) WorstFirst(h, y, n_classes, costs, margins, data_of(kernel), kernel);
            },
            nb::arg("h").noconvert(), nb::arg("y").noconvert(), nb::arg("n_classes"), nb::arg("costs").noconvert(),
            nb::arg("margins").noconvert().none(), nb::arg("kernel").noconvert().none());
}

}  // namespace widemargin
