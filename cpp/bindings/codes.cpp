#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "codes/ascent.hpp"
#include "codes/worst_first.hpp"
#include "owned_arrays.hpp"

namespace widemargin {
namespace {

const double *data_of(const std::optional<ConstMatrix<double>> &matrix) { return matrix ? matrix->data() : nullptr; }

// Holds the arrays that an ascent reads.
template <typename Ascent>
class SpocObject {
  public:
    template <typename Last>
    SpocObject(ConstMatrix<double> h, ConstVector<int64_t> y, int64_t n_classes, ConstVector<double> costs,
               std::optional<ConstMatrix<double>> margins, Last last, std::optional<ConstMatrix<double>> kernel = {})
        : h_(h),
          y_(y),
          costs_(costs),
          margins_(margins),
          kernel_(kernel),
          spoc_({static_cast<int64_t>(h.shape(0)), n_classes, static_cast<int64_t>(h.shape(1)), h.data(), y.data(),
                 data_of(margins), costs.data()},
                last) {}

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
    bool step() { return spoc_.step(); }

    NumpyVector<double> eta() const { return own(std::vector<double>(spoc_.eta())); }
    NumpyVector<double> code() const { return own(std::vector<double>(spoc_.code())); }
    NumpyVector<double> best_code() const { return own(std::vector<double>(spoc_.best_code())); }
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
    std::optional<ConstMatrix<double>> margins_, kernel_;
    Ascent spoc_;
};

// What both ascents have.
template <typename Ascent>
nb::class_<SpocObject<Ascent>> bind_ascent(nb::module_ &module, const char *name, const char *text) {
    using Object = SpocObject<Ascent>;
    return nb::class_<Object>(module, name, text)
        .def("set_duals", &Object::set_duals, nb::arg("x").noconvert(),
             "Dual variables (n, k) of the wrong classes; what they have at the true ones is not read.")
        .def("run", &Object::run, nb::arg("tol"), nb::arg("max_iter"), nb::arg("seconds"), nb::arg("pause"),
             "0: gap reached and certified, 1: passes done, 2: paused, at `seconds` since the start or an evaluation, "
             "3: rounding stops the gap above tol.")
        .def("certify", &Object::certify, "(primal, dual) of the code, computed afresh from the dual variables.")
        .def("eta", &Object::eta, "Dual variables (n * k,), all classes; rows of sum C_i.")
        .def("code", &Object::code, "The code's transpose, (l * k,); empty with a kernel matrix.")
        .def("best_code", &Object::best_code, "The transpose of the code of least objective seen, or empty.")
        .def("records", &Object::records, "Passes, seconds, primal, dual, active rows of each evaluation, (e * 5,).")
        .def_prop_ro("n_passes", &Object::n_passes, "Passes so far.")
        .def_prop_ro("elapsed", &Object::elapsed, "Seconds since the start.");
}

// θ of D (k,)
double threshold(ConstVector<double> D, double total) {
    std::vector<double> work(D.shape(0));
    const ReducedThreshold at = reduced_threshold(D.data(), static_cast<int64_t>(D.shape(0)), total, work.data());
    return at.top + at.below;
}

}  // namespace

void bind_codes(nb::module_ &module) {
    module.def("reduced_threshold", &threshold, nb::arg("D").noconvert(), nb::arg("total"),
               "The number θ with Σ_r (D_r − θ)₊ = total, for D (k,) and a total above 0.");
    bind_ascent<Spoc>(module, "SpocAscent", "SPOC with an explicit code; starts from a code of 0.")
        .def(nb::init<ConstMatrix<double>, ConstVector<int64_t>, int64_t, ConstVector<double>,
                      std::optional<ConstMatrix<double>>, uint64_t>(),
             nb::arg("h").noconvert(), nb::arg("y").noconvert(), nb::arg("n_classes"), nb::arg("costs").noconvert(),
             nb::arg("margins").noconvert().none(), nb::arg("seed"))
        .def("visit_rows", &SpocObject<Spoc>::visit_rows, nb::arg("rows").noconvert(),
             "Visits rows (r,) in their order.")
        .def("face_step", &SpocObject<Spoc>::face_step, "A step on the face; returns what the dual gained.");
    using WorstFirst = SpocObject<SpocWorstFirst>;
    bind_ascent<SpocWorstFirst>(module, "SpocWorstFirst", "SPOC, always the example with the largest violation.")
        .def(
            "__init__",
            [](WorstFirst *self, ConstMatrix<double> h, ConstVector<int64_t> y, int64_t n_classes,
               ConstVector<double> costs, std::optional<ConstMatrix<double>> margins,
               std::optional<ConstMatrix<double>> kernel) {
                new (self) WorstFirst(h, y, n_classes, costs, margins, data_of(kernel), kernel);
            },
            nb::arg("h").noconvert(), nb::arg("y").noconvert(), nb::arg("n_classes"), nb::arg("costs").noconvert(),
            nb::arg("margins").noconvert().none(), nb::arg("kernel").noconvert().none())
        .def("step", &WorstFirst::step, "One step; False if it changes nothing.");
}

}  // namespace widemargin
