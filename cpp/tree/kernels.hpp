// The inner loops of the tree solvers (tree/isa_kernels.hpp), compiled once per instruction set and chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "simd/cpu.hpp"

namespace widemargin {

constexpr int STRIP = 8;  // numbers after a row or table that may be read, and written back unchanged

// S: type of the sums, or of the table that is updated; V: type of the values of a row
template <typename S, typename T, typename V>
using SumRows = void (*)(const T *table, int32_t width, const int32_t *places, const V *values, int64_t n, S *out);
template <typename S, typename V>
using AddRows = void (*)(S *table, int32_t width, const int32_t *places, const V *values, int64_t n, const S *changes);

template <typename T>
struct TreeKernels {
    SumRows<T, T, T> sum_own;
    SumRows<double, T, float> sum_floats;
    SumRows<double, T, double> sum_doubles;
    AddRows<T, T> add_own;
    AddRows<double, float> add_floats;
    AddRows<double, double> add_doubles;

    // out_j = Σ_k values_k table[places_k, j] in double (sum_own: in the type of the table, as the passes do)
    void sum(const T *table, int32_t width, const int32_t *places, const float *values, int64_t n, double *out) const {
        sum_floats(table, width, places, values, n, out);
    }
    void sum(const T *table, int32_t width, const int32_t *places, const double *values, int64_t n, double *out) const {
        sum_doubles(table, width, places, values, n, out);
    }
    // table[places_k, j] += values_k changes_j; `changes` ends with STRIP zeros
    void add(double *table, int32_t width, const int32_t *places, const float *values, int64_t n,
             const double *changes) const {
        add_floats(table, width, places, values, n, changes);
    }
    void add(double *table, int32_t width, const int32_t *places, const double *values, int64_t n,
             const double *changes) const {
        add_doubles(table, width, places, values, n, changes);
    }
};

}  // namespace widemargin

#define WIDEMARGIN_KERNEL_FILE "tree/isa_kernels.hpp"
#include "simd/each_isa.hpp"

namespace widemargin {

template <typename T>
const TreeKernels<T> &choose_tree_kernels(const std::string &instruction_set) {
    return for_instruction_set(instruction_set, &avx512::tree_kernels<T>, &avx2::tree_kernels<T>,
                               &baseline::tree_kernels<T>)();
}

}  // namespace widemargin
