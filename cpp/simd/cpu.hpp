// Which vector instruction sets this machine has, and which one is in use. Every model records the latter, because
// training gives identical results only on identical instruction sets. The environment variable WIDEMARGIN_ISA pins the
// choice.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WIDEMARGIN_X86 1
#include <immintrin.h>
// Compiles one function for an instruction set; simd/each_isa.hpp does it for whole files.
#define WIDEMARGIN_TARGET(instructions) __attribute__((target(instructions)))
#else
#define WIDEMARGIN_TARGET(instructions)
#endif
#define WIDEMARGIN_AVX2 WIDEMARGIN_TARGET("avx2,fma")
#define WIDEMARGIN_AVX512 WIDEMARGIN_TARGET("avx512f,avx512vl,avx512dq,fma")

namespace widemargin {

// Names of the sets that this machine has, widest first.
inline std::vector<std::string> available_instruction_sets() {
    std::vector<std::string> names;
#ifdef WIDEMARGIN_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
        names.emplace_back("avx512");
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) names.emplace_back("avx2");
#elif defined(__aarch64__)
    names.emplace_back("neon");
#endif
    names.emplace_back("baseline");
    return names;
}

// The set that WIDEMARGIN_ISA names, or else the widest one. A name that this machine does not have is an error: a
// silent fallback would give results different from those requested.
inline std::string choose_instruction_set() {
    const std::vector<std::string> names = available_instruction_sets();
    const char *pinned = std::getenv("WIDEMARGIN_ISA");
    if (pinned == nullptr || *pinned == '\0') return names.front();
    if (std::find(names.begin(), names.end(), pinned) != names.end()) return pinned;
    std::string message = std::string("WIDEMARGIN_ISA is '") + pinned + "', which this machine does not have; it has ";
    for (size_t k = 0; k < names.size(); ++k) message += (k == 0 ? "" : ", ") + names[k];
    throw std::invalid_argument(message + ". Unset the variable to use the first of these");
}

// Picks the variant for an instruction set; "neon" is the baseline as compiled for ARM.
template <class F>
F for_instruction_set(const std::string &name, F avx512, F avx2, F baseline) {
    return name == "avx512" ? avx512 : name == "avx2" ? avx2 : baseline;
}

}  // namespace widemargin
