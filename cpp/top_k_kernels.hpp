// The kernels of the top-k multiclass SVM for one instruction set; included by top_k_isa.hpp, hence no #pragma once.

// clang-format off: each needs what comes before it
#include "class_vectors.hpp"
#include "top_k_thresholds.hpp"
#include "top_k_visits.hpp"
#include "top_k_evaluation.hpp"
// clang-format on

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

template <typename T>
const TopKKernels<T> &top_k_kernels() {
    static const TopKKernels<T> kernels{Lanes<T>::WIDTH,
                                        &visit_rows<T>,
                                        &sum_losses<T>,
                                        &sum_exact_losses<T, float>,
                                        &sum_exact_losses<T, double>,
                                        &average_weights<T>,
                                        &thresholds_of<T>};
    return kernels;
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
