// Dense lines of weights by feature: line f has the weights of all labels for feature f.
//
//     sums[l] += Σ_j x[j] · line_j[l]      for l < count, j increasing
//
// The sums of as many labels as the registers hold are read and written once for all lines. Lanes are labels, so the
// vector width changes no sum. The instruction set is chosen at run time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "simd/cpu.hpp"

namespace widemargin {

constexpr int64_t LINE_STEP = 8;  // lines are padded to a multiple of this many labels

// A vector of one register: GCC 12 keeps wider ones in memory, which is ten times slower.
template <typename T, int LANES>
struct VectorOf {
    typedef T type __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
};

template <typename T>
struct LineKernels {
    void (*exact)(const T *const *lines, const double *x, int64_t n, double *sums, int64_t count);
    void (*estimate)(const T *const *lines, const float *x, int64_t n, float *sums, int64_t count);
};

}  // namespace widemargin

#define WIDEMARGIN_KERNEL_FILE "scores/isa_lines.hpp"
#include "simd/each_isa.hpp"

namespace widemargin {

template <typename T>
LineKernels<T> choose_line_kernels() {
    return for_instruction_set(choose_instruction_set(), &avx512::line_kernels<T>, &avx2::line_kernels<T>,
                               &baseline::line_kernels<T>)();
}

}  // namespace widemargin
