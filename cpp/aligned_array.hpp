// Zeroed arrays at a 64-byte boundary; large ones on huge pages where the system has them, since tables and rows are
// read at random and would miss the address cache otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace widemargin {

constexpr size_t LINE_BYTES = 64;
constexpr size_t HUGE_PAGE_BYTES = size_t{1} << 21;

struct FreeDelete {
    template <typename T>
    void operator()(T *p) const {
        std::free(p);
    }
};
template <typename T>
using AlignedArray = std::unique_ptr<T[], FreeDelete>;
using AlignedFloats = AlignedArray<float>;

// Not filled, hence not yet in memory.
template <typename T>
AlignedArray<T> untouched_array(int64_t n) {
    static_assert(std::is_trivially_copyable_v<T>, "arrays are made without constructors");
    const size_t wanted = static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(T);
    const size_t boundary = wanted >= HUGE_PAGE_BYTES / 2 ? HUGE_PAGE_BYTES : LINE_BYTES;
    const size_t bytes = (wanted + boundary - 1) / boundary * boundary;
    void *p = std::aligned_alloc(boundary, bytes);
    if (p == nullptr) throw std::bad_alloc();
#ifdef __linux__
    if (boundary == HUGE_PAGE_BYTES) madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return AlignedArray<T>(static_cast<T *>(p));
}
template <typename T>
AlignedArray<T> aligned_array(int64_t n) {
    AlignedArray<T> values = untouched_array<T>(n);
    std::fill_n(values.get(), static_cast<size_t>(std::max<int64_t>(n, 1)), T{});
    return values;
}
inline AlignedFloats aligned_floats(int64_t n) { return aligned_array<float>(n); }

}  // namespace widemargin
