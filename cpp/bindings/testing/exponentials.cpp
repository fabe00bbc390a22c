// The exponentials of the logistic kernels.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "bindings/testing/hooks.hpp"
#include "simd/arrays.hpp"
#include "simd/cpu.hpp"

#define WIDEMARGIN_KERNEL_FILE "bindings/testing/isa_exponentials.hpp"
#include "simd/each_isa.hpp"

namespace widemargin {
namespace {

constexpr int64_t WIDEST = 16;

void exp_log1p(ConstVector<float> x, OutVector<float> e, OutVector<float> log1p, const std::string &isa) {
    const int64_t n = static_cast<int64_t>(x.shape(0)), padded = (n + WIDEST - 1) / WIDEST * WIDEST;
    const AlignedFloats in = aligned_floats(padded), powers = aligned_floats(padded), logs = aligned_floats(padded);
    std::copy_n(x.data(), n, in.get());
    for_instruction_set(isa, &avx512::exp_log1p, &avx2::exp_log1p, &baseline::exp_log1p)(padded, in.get(), powers.get(),
                                                                                         logs.get());
    std::copy_n(powers.get(), n, e.data());
    std::copy_n(logs.get(), n, log1p.data());
}

}  // namespace

void bind_exponentials_hooks(nb::module_ &module) {
    module.def("exp_log1p", &exp_log1p, nb::arg("x").noconvert(), nb::arg("e").noconvert(),
               nb::arg("log1p").noconvert(), nb::arg("isa"), "e = exp(x) and log(1 + e) for x <= 0, all (n,).");
}

}  // namespace widemargin
