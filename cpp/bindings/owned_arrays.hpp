// Arrays that are made in the core and handed to Python, which frees them.
#pragma once

#include <utility>
#include <vector>

#include "bind.hpp"

namespace widemargin {

template <typename T>
using NumpyVector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// An array that owns `values`.
template <typename T>
NumpyVector<T> own(std::vector<T> &&values) {
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return NumpyVector<T>(kept->data(), {kept->size()}, owner);
}

}  // namespace widemargin
