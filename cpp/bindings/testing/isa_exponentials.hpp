// Included by exponentials.cpp once per instruction set, so there is no #pragma once.
#include "simd/isa_floats.hpp"

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// n must be a multiple of WIDTH
static void exp_log1p(int64_t n, const float *x, float *e, float *log1p) {
    for (int64_t i = 0; i < n; i += WIDTH) {
        const V power = exp_negative(load(x + i));
        store(e + i, power);
        store(log1p + i, log1p_unit(power));
    }
}

#undef WIDEMARGIN_INLINE

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
