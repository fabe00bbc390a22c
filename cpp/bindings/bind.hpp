// What every bindings file shares: array types that refuse silent copies, and the list of bind functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace widemargin {

namespace nb = nanobind;

// A C-contiguous, read-only input of one dimension. Bind it with `.noconvert()`, so that a wrong dtype is a
// TypeError and not a hidden copy of a large matrix; const, so that read-only memory maps are taken as they are.
template <typename T>
using ConstVector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using ConstMatrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// Outputs are allocated by the caller and come last.
template <typename T>
using OutVector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using OutMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void bind_one_vs_all_batch(nb::module_ &module);
void bind_process(nb::module_ &module);
void bind_scores(nb::module_ &module);
void bind_text(nb::module_ &module);
void bind_one_vs_all_dense(nb::module_ &module);
void bind_one_vs_all_fast(nb::module_ &module);
void bind_tree(nb::module_ &module);
void bind_top_k_kernel(nb::module_ &module);
void bind_arrays(nb::module_ &module);
void bind_one_vs_all(nb::module_ &module);
void bind_projections(nb::module_ &module);
void bind_codes(nb::module_ &module);
void bind_top_k(nb::module_ &module);

}  // namespace widemargin
