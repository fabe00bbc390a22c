// The kernels of the top-k multiclass SVM, compiled once per instruction set and chosen at run time.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <type_traits>

#include "simd/cpu.hpp"
#include "top_k/state.hpp"

namespace widemargin {

// The data and the weights for a sum of losses; X may have a higher or lower precision than the weights.
template <typename T, typename Data>
struct LossArgs {
    DataRows<Data> X;
    const int32_t *y;
    const double *costs;
    TopKLoss loss;
    int n_classes;
    int64_t stride;
    WeightLayout layout;
    const uint32_t *all_groups;  // 0, 1, 2 …
    const T *W;
};

struct WeightProducts {
    double ww, aa, wa;  // ‖W‖², ‖average‖², ⟨W, average⟩
};

template <typename T>
struct TopKKernels {
    int width;  // classes per vector
    void (*visit_rows)(TopKState<T> &state, const int32_t *order, int64_t n);
    void (*visit_block)(TopKState<T> &state, const int32_t *order, int64_t n, const T *gram, T *scores, T *steps);
    double (*sum_losses)(const LossArgs<T, T> &args, int64_t begin, int64_t end);
    double (*sample_gaps)(const LossArgs<T, T> &args, const TopKState<T> &state, int64_t begin, int64_t end);
    double (*exact_losses_of_floats)(const LossArgs<T, float> &args, int64_t begin, int64_t end);
    double (*exact_losses_of_doubles)(const LossArgs<T, double> &args, int64_t begin, int64_t end);
    void (*average_weights)(int64_t n, T share, const T *W, T *average);
    WeightProducts (*weight_products)(int64_t n, const T *W, const T *average);
    ClassThresholds<T> (*thresholds_of)(const T *b, int n_groups, const TopKTarget &target, ClassThresholds<T> last,
                                        std::vector<double> &work);
    double (*losses_of_scores)(const TopKLoss &loss, int n_classes, const int32_t *y, const double *costs, int64_t n,
                               int64_t stride, T *scores);
    double (*losses_of_exact_scores)(const TopKLoss &loss, int n_classes, const int32_t *y, const double *costs,
                                     int64_t n, int64_t stride, double *scores);
};

}  // namespace widemargin

#define WIDEMARGIN_KERNEL_FILE "top_k/isa_kernels.hpp"
#include "simd/each_isa.hpp"

namespace widemargin {

template <typename T>
const TopKKernels<T> &choose_top_k_kernels(const std::string &instruction_set) {
    return for_instruction_set(instruction_set, &avx512::top_k_kernels<T>, &avx2::top_k_kernels<T>,
                               &baseline::top_k_kernels<T>)();
}

}  // namespace widemargin
