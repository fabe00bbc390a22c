// Columns of a kernel matrix, n values each: all of them in a matrix that the caller owns, or some of them in slots.
//
// Rows are visited in random order, so keeping the least recently used column is no worse than keeping any other. But
// we know when each row is visited next: a column is replaced only by one that is needed sooner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "simd/arrays.hpp"
#include "simd/cpu.hpp"

namespace widemargin {

template <typename T>
class ColumnCache {
  public:
    ColumnCache(int64_t n, int64_t n_slots)
        : n_(n), n_slots_(std::min(n_slots, n)), slots_(untouched_array<T>(n_slots_ * n)), place_(n, ABSENT) {}

    // All columns, as rows of a symmetric matrix; from now on used instead of the slots.
    void use_matrix(const T *matrix) { matrix_ = matrix; }
    bool has_matrix() const { return matrix_ != nullptr; }

    // The column of row i, or null.
    const T *find(int64_t i) const {
        if (matrix_ != nullptr) return matrix_ + i * n_;
        if (place_[i] == ABSENT) return nullptr;
        return place_[i] >= 0 ? slots_.get() + place_[i] * n_ : loan_ + (FIRST_LENT - place_[i]) * n_;
    }

    // Columns of some rows, which the caller keeps alive until take_back().
    void lend(const int64_t *rows, int64_t n_rows, const T *columns) {
        loan_ = columns;
        for (int64_t b = 0; b < n_rows; ++b) place_[rows[b]] = FIRST_LENT - b;
        lent_.assign(rows, rows + n_rows);
    }
    void take_back() {
        for (const int64_t i : lent_) {
            if (place_[i] <= FIRST_LENT) place_[i] = ABSENT;
        }
        lent_.clear();
    }

    // Keeps a lent column if there is a slot for it: next[i] is when row i is visited again.
    void keep(int64_t i, const int32_t *next) {
        if (matrix_ != nullptr || place_[i] > FIRST_LENT || place_[i] == ABSENT) return;
        const int64_t slot = find_slot(next[i], next);
        if (slot < 0) return;
        std::copy_n(find(i), n_, slots_.get() + slot * n_);
        place_[i] = slot;
        owner_[slot] = i;
    }

  private:
    static constexpr int64_t ABSENT = -1, FIRST_LENT = -2;
    static constexpr int64_t LOOKED_AT = 8;  // slots, before giving up

    int64_t find_slot(int32_t wanted, const int32_t *next) {
        if (static_cast<int64_t>(owner_.size()) < n_slots_) {
            owner_.push_back(0);
            return static_cast<int64_t>(owner_.size()) - 1;
        }
        for (int64_t looked = 0; looked < std::min(LOOKED_AT, n_slots_); ++looked) {
            const int64_t slot = hand_;
            hand_ = (hand_ + 1) % n_slots_;
            if (next[owner_[slot]] <= wanted) continue;
            place_[owner_[slot]] = ABSENT;
            return slot;
        }
        return -1;
    }

    int64_t n_, n_slots_, hand_ = 0;
    AlignedArray<T> slots_;       // resident once filled
    std::vector<int64_t> place_;  // where the column of row i is: a slot, ABSENT, or FIRST_LENT − its index in the loan
    std::vector<int64_t> owner_, lent_;
    const T *matrix_ = nullptr, *loan_ = nullptr;
};

// rows[g] += factor[g] * column for up to four rows at once, compiled for each instruction set and chosen at run time.

constexpr int COLUMN_GROUP = 4;  // rows that share one read of the column; 5 % faster than one at a time

template <typename T>
using AddColumn = void (*)(const T *column, int64_t n, const T *factor, T *const *rows, int n_rows);

// G rows; names beyond G alias the first row and are not used.
template <int G, typename T>
inline __attribute__((always_inline)) void add_column_to(const T *__restrict column, int64_t n, const T *factor,
                                                         T *const *rows) {
    constexpr int second = G > 1 ? 1 : 0, third = G > 2 ? 2 : 0, fourth = G > 3 ? 3 : 0;
    T *__restrict r0 = rows[0], *__restrict r1 = rows[second], *__restrict r2 = rows[third];
    T *__restrict r3 = rows[fourth];
    const T f0 = factor[0], f1 = factor[second], f2 = factor[third], f3 = factor[fourth];
    for (int64_t i = 0; i < n; ++i) {
        const T c = column[i];
        r0[i] += f0 * c;
        if constexpr (G > 1) r1[i] += f1 * c;
        if constexpr (G > 2) r2[i] += f2 * c;
        if constexpr (G > 3) r3[i] += f3 * c;
    }
}

#define WIDEMARGIN_ADD_COLUMN(NAME, ATTRIBUTE)                                                     \
    template <typename T>                                                                          \
    ATTRIBUTE void NAME(const T *column, int64_t n, const T *factor, T *const *rows, int n_rows) { \
        if (n_rows == 1) return add_column_to<1>(column, n, factor, rows);                         \
        if (n_rows == 2) return add_column_to<2>(column, n, factor, rows);                         \
        if (n_rows == 3) return add_column_to<3>(column, n, factor, rows);                         \
        add_column_to<COLUMN_GROUP>(column, n, factor, rows);                                      \
    }

WIDEMARGIN_ADD_COLUMN(add_column_baseline, )
WIDEMARGIN_ADD_COLUMN(add_column_avx2, WIDEMARGIN_AVX2)
WIDEMARGIN_ADD_COLUMN(add_column_avx512, WIDEMARGIN_AVX512)
#undef WIDEMARGIN_ADD_COLUMN

template <typename T>
AddColumn<T> choose_add_column() {
    return for_instruction_set(choose_instruction_set(), &add_column_avx512<T>, &add_column_avx2<T>,
                               &add_column_baseline<T>);
}

}  // namespace widemargin
