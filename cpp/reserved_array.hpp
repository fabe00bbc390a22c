// An array with room for the largest case that costs memory only where it has been written to, and gives it back. For
// lists that are mostly short: growing and shrinking them on the heap left holes there, 17 MB a thread with 32 lists.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace widemargin {

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

    // The values from `keep` on are lost, and their memory is given back.
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
        madvise(data_, bytes, MADV_NOHUGEPAGE);  // a huge page for a short list would be mostly waste
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

}  // namespace widemargin
