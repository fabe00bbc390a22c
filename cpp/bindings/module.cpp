// The extension module: one line for each group of kernels.
#include "bindings/bind.hpp"

NB_MODULE(_core, module) {
    module.doc() = "The C++ core of widemargin. Inputs are checked by the Python layer above; kernels trust them.";
    widemargin::bind_arrays(module);
    widemargin::bind_codes(module);
    widemargin::bind_one_vs_all(module);
    widemargin::bind_one_vs_all_batch(module);
    widemargin::bind_one_vs_all_dense(module);
    widemargin::bind_one_vs_all_fast(module);
    widemargin::bind_process(module);
    widemargin::bind_projections(module);
    widemargin::bind_scores(module);
    widemargin::bind_text(module);
    widemargin::bind_top_k(module);
    widemargin::bind_top_k_kernel(module);
    widemargin::bind_tree(module);
    widemargin::bind_tree_kernel(module);
}
