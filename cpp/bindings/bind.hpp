// Shared by all bindings: array types that refuse silent copies, arrays that Python owns, and the list of bind
// functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

namespace widemargin {

namespace nb = nanobind;

// A C-contiguous, read-only input with one dimension. Bind it with `.noconvert()` so that a wrong dtype is a TypeError
// instead of a hidden copy of a large matrix. It is const so that read-only memory maps are accepted.
template <typename T>
using ConstVector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using ConstMatrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// The caller allocates outputs; they come last.
template <typename T>
using OutVector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using OutMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Arrays that the core creates and hands over to Python, which frees them.
template <typename T>
using NumpyVector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// An array that owns `values`.
template <typename T>
NumpyVector<T> own(std::vector<T> &&values) {
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return NumpyVector<T>(kept->data(), {kept->size()}, owner);
}

// Calls bind(CsrTypes<T, I>(), suffix) for all supported types of values and indices.
template <typename T, typename I>
struct CsrTypes {};
template <class Bind>
void for_csr_types(Bind bind) {
    bind(CsrTypes<float, int32_t>(), "F32I32");
    bind(CsrTypes<float, int64_t>(), "F32I64");
    bind(CsrTypes<double, int32_t>(), "F64I32");
    bind(CsrTypes<double, int64_t>(), "F64I64");
}

// One for each file of this folder.
void bind_arrays(nb::module_ &module);
void bind_codes(nb::module_ &module);
void bind_one_vs_all(nb::module_ &module);
void bind_one_vs_all_batch(nb::module_ &module);
void bind_one_vs_all_dense(nb::module_ &module);
void bind_one_vs_all_fast(nb::module_ &module);
void bind_process(nb::module_ &module);
void bind_projections(nb::module_ &module);
void bind_scores(nb::module_ &module);
void bind_text(nb::module_ &module);
void bind_top_k(nb::module_ &module);
void bind_top_k_kernel(nb::module_ &module);
void bind_tree(nb::module_ &module);
void bind_tree_kernel(nb::module_ &module);

}  // namespace widemargin
