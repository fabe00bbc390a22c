// An array that grows by realloc and can be handed over without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace widemargin {

// Why not std::vector: realloc moves large blocks by remapping pages (mremap), so that growing never holds two copies,
// memory that is reserved but not written is not resident, and `release` gives the block to NumPy as it is.
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

    // For loops that reserved enough before.
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

    // Gives the block away, cut to size; free it with std::free. Never null.
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
