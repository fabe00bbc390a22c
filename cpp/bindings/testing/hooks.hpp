// Hooks into the core for tests against the NumPy twins: an extension module that no wheel contains. It takes objects
// of _core as arguments, because both modules share their types.
#pragma once

#include "bindings/bind.hpp"

namespace widemargin {

// One for each file of this folder.
void bind_codes_hooks(nb::module_ &module);
void bind_exponentials_hooks(nb::module_ &module);
void bind_fast_hooks(nb::module_ &module);
void bind_newton_hooks(nb::module_ &module);
void bind_top_k_kernel_hooks(nb::module_ &module);

}  // namespace widemargin
