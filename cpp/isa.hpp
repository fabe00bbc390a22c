// The vector kernels, compiled once for every instruction set and chosen at run time.
//
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

#define WIDEMARGIN_KERNEL_FILE "vector_kernels.hpp"
#include "each_isa.hpp"

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
