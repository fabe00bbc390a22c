// The vector kernels, compiled once for every instruction set and chosen at run time.
//
// vector_kernels.hpp is included several times, each time inside a region whose functions are compiled for one
// instruction set (what __attribute__((target(...))) does for a single function) and in a namespace of its own.
// The environment variable WIDEMARGIN_ISA pins the choice, see cpu.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "cpu.hpp"
#include "lanes.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WIDEMARGIN_X86 1
#include <immintrin.h>
#endif

#define WIDEMARGIN_ISA_NAME baseline
#define WIDEMARGIN_ISA_WIDTH 4
#include "vector_kernels.hpp"
#undef WIDEMARGIN_ISA_NAME
#undef WIDEMARGIN_ISA_WIDTH

#ifdef WIDEMARGIN_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define WIDEMARGIN_ISA_NAME avx2
#define WIDEMARGIN_ISA_WIDTH 8
#include "vector_kernels.hpp"
#undef WIDEMARGIN_ISA_NAME
#undef WIDEMARGIN_ISA_WIDTH
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")
#endif
#define WIDEMARGIN_ISA_NAME avx512
#define WIDEMARGIN_ISA_WIDTH 16
#include "vector_kernels.hpp"
#undef WIDEMARGIN_ISA_NAME
#undef WIDEMARGIN_ISA_WIDTH
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace widemargin {

// The kernels for a named set, or null when this machine or build has none; "neon" is what the compiler makes of the
// baseline on ARM.
inline const VectorKernels *find_kernels(const std::string &name) {
    const std::vector<std::string> names = available_instruction_sets();
    if (std::find(names.begin(), names.end(), name) == names.end()) return nullptr;
#ifdef WIDEMARGIN_X86
    if (name == "avx512") return &avx512::kernels();
    if (name == "avx2") return &avx2::kernels();
#endif
    return &baseline::kernels();
}

inline const VectorKernels &choose_kernels() { return *find_kernels(choose_instruction_set()); }

}  // namespace widemargin
