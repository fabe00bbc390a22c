// Which vector instructions this machine has; recorded in every model, since results are equal only on equal sets.
#pragma once

namespace widemargin {

inline const char *detect_instruction_set() {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
    return "baseline";
#elif defined(__aarch64__)
    return "neon";
#else
    return "baseline";
#endif
}

}  // namespace widemargin
