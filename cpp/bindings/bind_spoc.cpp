#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "owned_arrays.hpp"
#include "spoc.hpp"

namespace widemargin {
namespace {

// Holds the arrays that the ascent reads.
class SpocObject {
  public:
    SpocObject(ConstMatrix<double> h, ConstVector<int64_t> y, int64_t n_classes, ConstVector<double> costs,
               std::optional<ConstMatrix<double>> margins, uint64_t seed)
        : h_(h),
          y_(y),
          costs_(costs),
          margins_(margins),
          spoc_({static_cast<int64_t>(h.shape(0)), n_classes, static_cast<int64_t>(h.shape(1)), h.data(), y.data(),
                 margins ? margins->data() : nullptr, costs.data()},
                seed) {}

    void set_duals(ConstMatrix<double> x) { spoc_.set_duals(x.data()); }
    int run(double tol, int64_t max_iter, double seconds, bool pause) {
        const nb::gil_scoped_release release;
        return static_cast<int>(spoc_.run(tol, max_iter, seconds, pause));
    }
    std::tuple<double, double> certify() {
        const nb::gil_scoped_release release;
        const SpocBounds bounds = spoc_.certify();
        return {bounds.primal, bounds.dual};
    }
    void visit_rows(ConstVector<int64_t> rows) { spoc_.visit_rows(rows.data(), static_cast<int64_t>(rows.shape(0))); }
    double face_step() { return spoc_.face_step(); }

    NumpyVector<double> eta() const { return own(std::vector<double>(spoc_.eta())); }
    NumpyVector<double> code() const { return own(std::vector<double>(spoc_.code())); }
    NumpyVector<double> records() const {
        std::vector<double> table;
        for (const SpocRecord &r : spoc_.records())
            for (const double value :
                 {double(r.n_passes), r.seconds, r.bounds.primal, r.bounds.dual, double(r.n_active)})
                table.push_back(value);
        return own(std::move(table));
    }
    int64_t n_passes() const { return spoc_.n_passes(); }
    double elapsed() const { return spoc_.elapsed(); }

  private:
    ConstMatrix<double> h_;
    ConstVector<int64_t> y_;
    ConstVector<double> costs_;
    std::optional<ConstMatrix<double>> margins_;
    Spoc spoc_;
};

// θ of D (k,)
double threshold(ConstVector<double> D, double total) {
    std::vector<double> work(D.shape(0));
    const ReducedThreshold at = reduced_threshold(D.data(), static_cast<int64_t>(D.shape(0)), total, work.data());
    return at.top + at.below;
}

}  // namespace

void bind_spoc(nb::module_ &module) {
    module.def("reduced_threshold", &threshold, nb::arg("D").noconvert(), nb::arg("total"),
               "The number θ with Σ_r (D_r − θ)₊ = total, for D (k,) and a total above 0.");
    nb::class_<SpocObject>(module, "SpocAscent", "SPOC with an explicit code; starts from a code of 0.")
        .def(nb::init<ConstMatrix<double>, ConstVector<int64_t>, int64_t, ConstVector<double>,
                      std::optional<ConstMatrix<double>>, uint64_t>(),
             nb::arg("h").noconvert(), nb::arg("y").noconvert(), nb::arg("n_classes"), nb::arg("costs").noconvert(),
             nb::arg("margins").noconvert().none(), nb::arg("seed"))
        .def("set_duals", &SpocObject::set_duals, nb::arg("x").noconvert(),
             "Dual variables (n, k) of the wrong classes; what they have at the true ones is not read.")
        .def("run", &SpocObject::run, nb::arg("tol"), nb::arg("max_iter"), nb::arg("seconds"), nb::arg("pause"),
             "0: gap reached and certified, 1: passes done, 2: so many seconds since the start, or an evaluation.")
        .def("certify", &SpocObject::certify, "(primal, dual) of the code, computed afresh from the dual variables.")
        .def("visit_rows", &SpocObject::visit_rows, nb::arg("rows").noconvert(), "Visits rows (r,) in their order.")
        .def("face_step", &SpocObject::face_step, "A step on the face; returns what the dual gained.")
        .def("eta", &SpocObject::eta, "Dual variables (n * k,), all classes; rows of sum C_i.")
        .def("code", &SpocObject::code, "The code's transpose, (l * k,).")
        .def("records", &SpocObject::records,
             "Passes, seconds, primal, dual, active rows of each evaluation, (e * 5,).")
        .def_prop_ro("n_passes", &SpocObject::n_passes, "Passes so far.")
        .def_prop_ro("elapsed", &SpocObject::elapsed, "Seconds since the start.");
}

}  // namespace widemargin
