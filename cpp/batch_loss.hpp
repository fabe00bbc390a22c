// What the batched subspace search needs to know of a loss beyond its kernels.
#pragma once

#include <cmath>

#include "lanes.hpp"
#include "logistic.hpp"
#include "squared_hinge.hpp"

namespace widemargin {

template <class Loss>
struct BatchLoss;
template <>
struct BatchLoss<SquaredHinge> {
    static constexpr bool sparse = true;  // rows beyond the margin do not count
    static double start_bias(double share) { return 2 * share - 1; }
    static auto gradient(const VectorKernels &kernels) { return kernels.batch_gradient; }
};
template <>
struct BatchLoss<Logistic> {
    static constexpr bool sparse = false;
    static double start_bias(double share) { return std::log(share / (1 - share)); }
    static auto gradient(const VectorKernels &kernels) { return kernels.logistic_gradient; }
};

}  // namespace widemargin
