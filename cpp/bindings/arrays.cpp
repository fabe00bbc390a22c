#include <cstdint>
#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "bindings/bind.hpp"
#include "simd/arrays.hpp"

namespace widemargin {

namespace {

// From this size on, the C library gives an array its own pages (glibc: at most 32 MB), which grow by remapping and are
// returned to the system. Smaller arrays that grow step by step would leave holes in the heap.
constexpr std::size_t FIRST_BYTES = std::size_t{33} << 20;

template <typename T>
void bind_growing(nb::module_ &module, const char *name) {
    using Array = GrowingArray<T>;
    nb::class_<Array>(module, name, "A vector that grows in place and never holds its values twice.")
        .def("__init__",
             [](Array *self) {
                 new (self) Array();
                 self->reserve(FIRST_BYTES / sizeof(T));
             })
        .def(
            "append", [](Array &self, ConstVector<T> values) { self.append(values.data(), values.size()); },
            nb::arg("values").noconvert(), "Append values of shape (n,).")
        .def(
            "take",
            [](Array &self) {
                const std::size_t size = self.size();
                T *block = self.release();
                nb::capsule owner(block, [](void *memory) noexcept { std::free(memory); });
                return nb::ndarray<nb::numpy, T, nb::ndim<1>>(block, {size}, owner);
            },
            "Hand over the values as an array of shape (n,), without a copy; the vector is then empty.");
}

// The GNU C library keeps memory that threads freed in the middle of their heaps; a few unusual labels leave 10 MB
// there.
void release_free_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

}  // namespace

void bind_arrays(nb::module_ &module) {
    module.def("release_free_memory", &release_free_memory, nb::call_guard<nb::gil_scoped_release>(),
               "Return freed pages to the system, if the C library does not do so on its own.");
    bind_growing<float>(module, "GrowingFloat32");
    bind_growing<double>(module, "GrowingFloat64");
    bind_growing<int32_t>(module, "GrowingInt32");
}

}  // namespace widemargin
