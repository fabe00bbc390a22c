// Includes WIDEMARGIN_KERNEL_FILE once per instruction set, each time inside a region whose functions are compiled for
// that set (as __attribute__((target(...))) does for a single function). The file puts them in a namespace named after
// the set. No #pragma once, because several families use this.

#define WIDEMARGIN_ISA_NAME baseline
#define WIDEMARGIN_ISA_WIDTH 4
#include WIDEMARGIN_KERNEL_FILE
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
#include WIDEMARGIN_KERNEL_FILE
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
#include WIDEMARGIN_KERNEL_FILE
#undef WIDEMARGIN_ISA_NAME
#undef WIDEMARGIN_ISA_WIDTH
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
namespace widemargin {
namespace avx2 = baseline;
namespace avx512 = baseline;
}  // namespace widemargin
#endif
#undef WIDEMARGIN_KERNEL_FILE
