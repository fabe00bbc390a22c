// Arrays that std::vector cannot replace. AlignedArray: aligned to 64 bytes; large ones use huge pages where the system
// has them, because tables and rows are read at random and would otherwise miss the TLB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace widemargin {

constexpr size_t LINE_BYTES = 64;
constexpr size_t HUGE_PAGE_BYTES = size_t{1} << 21;

// For functions that only prefetch. GCC 12 takes such a function for one without any effect and deletes its calls,
// unless they are inlined before it looks.
#define WIDEMARGIN_PREFETCH inline __attribute__((always_inline))

struct FreeDelete {
    template <typename T>
    void operator()(T *p) const {
        std::free(p);
    }
};
template <typename T>
using AlignedArray = std::unique_ptr<T[], FreeDelete>;
using AlignedFloats = AlignedArray<float>;

// Not filled, so not yet resident.
template <typename T>
AlignedArray<T> untouched_array(int64_t n) {
    static_assert(std::is_trivially_copyable_v<T>, "arrays are made without constructors");
    const size_t wanted = static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(T);
    // A huge page takes memory even where it is not written, so the last one must be at least three quarters full.
    const size_t huge = (wanted + HUGE_PAGE_BYTES / 4) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    const size_t bytes = std::max(huge, (wanted + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
    void *p = nullptr;
    if (posix_memalign(&p, huge > 0 ? HUGE_PAGE_BYTES : LINE_BYTES, bytes) != 0) throw std::bad_alloc();
#ifdef __linux__
    if (huge > 0) madvise(p, huge, MADV_HUGEPAGE);
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

// An array with room for the largest case. It uses memory only where it has been written, and can return that memory.
// For lists that are mostly short: growing and shrinking them on the heap fragmented it (17 MB per thread with 32
// lists).
template <typename T>
class ReservedArray {
    static_assert(std::is_trivially_copyable_v<T>, "arrays are made without constructors");

  public:
    explicit ReservedArray(size_t n) : bytes_((n * sizeof(T) + PAGE - 1) / PAGE * PAGE) { reserve(); }
    ReservedArray(const ReservedArray &) = delete;
    ReservedArray &operator=(const ReservedArray &) = delete;
    ReservedArray(ReservedArray &&other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
    ~ReservedArray() { release(); }

    T *data() { return static_cast<T *>(data_); }
    const T *data() const { return static_cast<const T *>(data_); }

    // Drops the values from `keep` on and returns their memory to the system.
    void forget_from(size_t keep) {
        const size_t kept = (keep * sizeof(T) + PAGE - 1) / PAGE * PAGE;
        if (kept >= bytes_) return;
#ifdef __linux__
        madvise(static_cast<char *>(data_) + kept, bytes_ - kept, MADV_DONTNEED);
#else
        if (void *smaller = std::realloc(data_, kept == 0 ? 1 : kept)) data_ = smaller;
        if (void *larger = std::realloc(data_, bytes_))
            data_ = larger;
        else
            throw std::bad_alloc();
#endif
    }

  private:
    static constexpr size_t PAGE = 1 << 12;
    size_t bytes_;
    void *data_ = nullptr;

    void reserve() {
#ifdef __linux__
        const size_t bytes = bytes_ == 0 ? PAGE : bytes_;
        data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data_ == MAP_FAILED) throw std::bad_alloc();
        madvise(data_, bytes, MADV_NOHUGEPAGE);  // a short list would waste most of a huge page
        bytes_ = bytes;
#else
        data_ = std::malloc(bytes_ == 0 ? 1 : bytes_);
        if (data_ == nullptr) throw std::bad_alloc();
#endif
    }

    void release() {
        if (data_ == nullptr) return;
#ifdef __linux__
        munmap(data_, bytes_);
#else
        std::free(data_);
#endif
    }
};

// An array that grows by realloc and can be handed over without a copy. Unlike std::vector, realloc moves large blocks
// by remapping pages (mremap), so growing never holds two copies; memory that is reserved but not written is not
// resident; and `release` hands the block to NumPy without a copy.
template <typename T>
class GrowingArray {
    static_assert(std::is_trivially_copyable_v<T>, "realloc moves bytes");

  public:
    GrowingArray() = default;
    GrowingArray(GrowingArray &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          capacity_(std::exchange(other.capacity_, 0)) {}
    GrowingArray &operator=(GrowingArray &&other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
        return *this;
    }
    ~GrowingArray() { std::free(data_); }

    T *data() { return data_; }
    const T *data() const { return data_; }
    std::size_t size() const { return size_; }
    T &operator[](std::size_t i) { return data_[i]; }
    const T &operator[](std::size_t i) const { return data_[i]; }
    T &back() { return data_[size_ - 1]; }
    const T &back() const { return data_[size_ - 1]; }
    void truncate(std::size_t size) { size_ = size; }

    void reserve(std::size_t capacity) {
        if (capacity > capacity_) reallocate(capacity);
    }

    // For loops that have already reserved enough.
    void push_unchecked(T value) { data_[size_++] = value; }

    void push(T value) {
        reserve_for_append(1);
        push_unchecked(value);
    }

    void append(const T *values, std::size_t count) {
        if (count == 0) return;
        reserve_for_append(count);
        std::memcpy(data_ + size_, values, count * sizeof(T));
        size_ += count;
    }

    // Hands over the block, trimmed to size; the caller frees it with std::free. Never null.
    T *release() {
        reallocate(size_ > 0 ? size_ : 1);
        size_ = capacity_ = 0;
        return std::exchange(data_, nullptr);
    }

  private:
    void reserve_for_append(std::size_t count) {
        const std::size_t needed = size_ + count;
        if (needed > capacity_) reallocate(needed + needed / 2);
    }

    void reallocate(std::size_t capacity) {
        void *grown = std::realloc(static_cast<void *>(data_), capacity * sizeof(T));
        if (grown == nullptr) throw std::bad_alloc();
        data_ = static_cast<T *>(grown);
        capacity_ = capacity;
    }

    T *data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace widemargin
