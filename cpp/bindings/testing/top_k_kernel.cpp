// Single steps of the kernel top-k SVM.
#include "bindings/top_k_kernel.hpp"

#include "bindings/testing/hooks.hpp"

namespace widemargin {
namespace {

template <typename T>
void visit_rows(KernelAscentObject<T> &object, ConstVector<int64_t> rows) {
    object.ascent().visit_rows(rows.data(), static_cast<int64_t>(rows.shape(0)));
}

}  // namespace

void bind_top_k_kernel_hooks(nb::module_ &module) {
    const char *about = "Visits rows (r,) in their order.";
    module.def("visit_rows", &visit_rows<float>, nb::arg("ascent"), nb::arg("rows").noconvert(), about);
    module.def("visit_rows", &visit_rows<double>, nb::arg("ascent"), nb::arg("rows").noconvert(), about);
}

}  // namespace widemargin
