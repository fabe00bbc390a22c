// The extension module: one line for each group of kernels.
#include "bind.hpp"

NB_MODULE(_core, module) {
    module.doc() = "The C++ core of widemargin. Inputs are checked by the Python layer above; kernels trust them.";
    widemargin::bind_batch(module);
    widemargin::bind_cpu(module);
    widemargin::bind_top_k(module);
    widemargin::bind_text(module);
    widemargin::bind_dense_one_vs_all(module);
    widemargin::bind_fast_one_vs_all(module);
    widemargin::bind_growing_arrays(module);
    widemargin::bind_joint_dual(module);
    widemargin::bind_kernel_top_k(module);
    widemargin::bind_one_vs_all(module);
    widemargin::bind_projections(module);
    widemargin::bind_top_k_svm(module);
}
