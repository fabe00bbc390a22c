#include "bindings/testing/hooks.hpp"

NB_MODULE(_core_testing, module) {
    module.doc() = "Hooks into the C++ core of widemargin for its tests.";
    nanobind::module_::import_("widemargin._core");  // its classes are arguments here
    widemargin::bind_codes_hooks(module);
    widemargin::bind_exponentials_hooks(module);
    widemargin::bind_fast_hooks(module);
    widemargin::bind_newton_hooks(module);
    widemargin::bind_top_k_kernel_hooks(module);
}
