#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "owned_arrays.hpp"
#include "simd/exp_in_place.hpp"
#include "top_k/kernel_ascent.hpp"

namespace widemargin {
namespace {

// Holds the arrays that the ascent reads. Runs release the GIL and end after a bounded amount of work, so that Python
// sees to signals in between.
template <typename T>
class KernelAscentObject {
  public:
    KernelAscentObject(ConstVector<int64_t> y, int64_t n_classes, ConstVector<double> costs,
                       ConstVector<double> diagonal, int64_t k, bool alpha, double smoothing, uint64_t seed,
                       int64_t n_slots, std::optional<ConstMatrix<double>> margins)
        : y_(y),
          costs_(costs),
          diagonal_(diagonal),
          margins_(margins),
          ascent_({static_cast<int64_t>(y.shape(0)),
                   n_classes,
                   y.data(),
                   costs.data(),
                   diagonal.data(),
                   {k, alpha, smoothing},
                   seed,
                   margins ? margins->data() : nullptr},
                  n_slots) {}

    void use_matrix(ConstMatrix<T> matrix) {
        matrix_ = matrix;
        ascent_.columns().use_matrix(matrix_.data());
    }
    void lend_columns(ConstMatrix<T> columns) {
        loan_ = columns;
        const std::vector<int64_t> &rows = ascent_.wanted();
        ascent_.columns().lend(rows.data(), static_cast<int64_t>(rows.size()), loan_.data());
    }
    NumpyVector<int64_t> wanted() const { return own(std::vector<int64_t>(ascent_.wanted())); }

    void set_duals(ConstVector<int64_t> indptr, ConstVector<int64_t> indices, ConstVector<double> data,
                   ConstMatrix<double> scores) {
        std::vector<DualEntry> entries;
        for (size_t i = 0; i + 1 < indptr.shape(0); ++i) {
            entries.clear();
            for (int64_t p = indptr.data()[i]; p < indptr.data()[i + 1]; ++p) {
                if (data.data()[p] > 0.0) entries.push_back({indices.data()[p], data.data()[p]});
            }
            ascent_.set_row(static_cast<int64_t>(i), entries.data(), static_cast<int64_t>(entries.size()));
        }
        ascent_.set_scores(scores.data());
    }
    std::tuple<NumpyVector<int64_t>, NumpyVector<int64_t>, NumpyVector<double>> duals() const {
        std::vector<int64_t> indptr{0}, indices;
        std::vector<double> data;
        for (size_t i = 0; i < y_.shape(0); ++i) {
            for (const DualEntry &e : ascent_.support(static_cast<int64_t>(i))) {
                indices.push_back(e.label);
                data.push_back(e.value);
            }
            indptr.push_back(static_cast<int64_t>(data.size()));
        }
        return {own(std::move(indptr)), own(std::move(indices)), own(std::move(data))};
    }

    void begin_epoch(double threshold) { ascent_.begin_epoch(threshold); }
    int run(int64_t work) {
        const nb::gil_scoped_release release;
        return static_cast<int>(ascent_.run(work));
    }
    void visit_rows(ConstVector<int64_t> rows) { ascent_.visit_rows(rows.data(), static_cast<int64_t>(rows.shape(0))); }
    std::tuple<double, double> evaluate() {
        const nb::gil_scoped_release release;
        const KernelBounds bounds = ascent_.evaluate();
        return {bounds.gap, bounds.dual};
    }
    int64_t n_active() const { return ascent_.n_active(); }
    int64_t n_visits() const { return ascent_.n_visits(); }

  private:
    ConstVector<int64_t> y_;
    ConstVector<double> costs_, diagonal_;
    std::optional<ConstMatrix<double>> margins_;
    ConstMatrix<T> matrix_, loan_;
    KernelAscent<T> ascent_;
};

template <typename T>
void bind_ascent(nb::module_ &module, const char *name) {
    using Object = KernelAscentObject<T>;
    nb::class_<Object>(module, name, "Dual ascent of the kernel top-k SVM; starts from dual variables of 0.")
        .def(nb::init<ConstVector<int64_t>, int64_t, ConstVector<double>, ConstVector<double>, int64_t, bool, double,
                      uint64_t, int64_t, std::optional<ConstMatrix<double>>>(),
             nb::arg("y").noconvert(), nb::arg("n_classes"), nb::arg("costs").noconvert(),
             nb::arg("diagonal").noconvert(), nb::arg("k"), nb::arg("alpha"), nb::arg("smoothing"), nb::arg("seed"),
             nb::arg("n_slots"), nb::arg("margins").noconvert().none() = nb::none())
        .def("use_matrix", &Object::use_matrix, nb::arg("matrix").noconvert(),
             "All columns of K (n, n), instead of slots.")
        .def("wanted", &Object::wanted, "Rows (b,) whose columns the next rows need.")
        .def("lend_columns", &Object::lend_columns, nb::arg("columns").noconvert(), "Columns (b, n) of wanted().")
        .def("set_duals", &Object::set_duals, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
             nb::arg("data").noconvert(), nb::arg("scores").noconvert(),
             "Dual variables x as CSR (n, m) with sorted labels, and the scores (n, m) = K A that belong to them.")
        .def("duals", &Object::duals, "(indptr, indices, data) of x, (n, m), 0 at the true classes.")
        .def("begin_epoch", &Object::begin_epoch, nb::arg("threshold"),
             "Rows that are awake, in random order; those with a violation up to the threshold will sleep.")
        .def("run", &Object::run, nb::arg("work"), "0: epoch done, 1: columns wanted, 2: so many multiplications done.")
        .def("visit_rows", &Object::visit_rows, nb::arg("rows").noconvert(), "Visits rows (r,) in their order.")
        .def("evaluate", &Object::evaluate, "(gap, dual) by the scores as they are.")
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
