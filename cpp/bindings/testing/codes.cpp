// Single steps of SPOC.
#include "bindings/codes.hpp"

#include <vector>

#include "bindings/testing/hooks.hpp"

namespace widemargin {
namespace {

// θ of D (k,)
double threshold(ConstVector<double> D, double total) {
    std::vector<double> work(D.shape(0));
    const ReducedThreshold at = reduced_threshold(D.data(), static_cast<int64_t>(D.shape(0)), total, work.data());
    return at.top + at.below;
}

void visit_rows(SpocObject<Spoc> &spoc, ConstVector<int64_t> rows) {
    spoc.ascent().visit_rows(rows.data(), static_cast<int64_t>(rows.shape(0)));
}

}  // namespace

void bind_codes_hooks(nb::module_ &module) {
    module.def("reduced_threshold", &threshold, nb::arg("D").noconvert(), nb::arg("total"),
               "The number θ with Σ_r (D_r − θ)₊ = total, for D (k,) and a total above 0.");
    module.def("visit_rows", &visit_rows, nb::arg("ascent"), nb::arg("rows").noconvert(),
               "Visits rows (r,) in their order.");
    module.def(
        "face_step", [](SpocObject<Spoc> &spoc) { return spoc.ascent().face_step(); }, nb::arg("ascent"),
        "A step on the face; returns what the dual gained.");
    module.def(
        "worst_step", [](SpocObject<SpocWorstFirst> &spoc) { return spoc.ascent().step(); }, nb::arg("ascent"),
        "One step of the worst example; False if it changes nothing.");
}

}  // namespace widemargin
