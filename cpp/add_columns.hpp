// rows[g] += factor[g] * column for a few rows at once, compiled for every instruction set and chosen at run time.
#pragma once

#include <cstdint>
#include <string>

#include "cpu.hpp"

namespace widemargin {

constexpr int COLUMN_GROUP = 4;  // rows that share one reading of the column

template <typename T>
using AddColumn = void (*)(const T *column, int64_t n, const T *factor, T *const *rows, int n_rows);

#define WIDEMARGIN_ADD_COLUMN(NAME, ATTRIBUTE)                                                                 \
    template <typename T>                                                                                      \
    ATTRIBUTE void NAME(const T *__restrict column, int64_t n, const T *factor, T *const *rows, int n_rows) {  \
        if (n_rows == COLUMN_GROUP) {                                                                          \
            const T f0 = factor[0], f1 = factor[1], f2 = factor[2], f3 = factor[3];                            \
            T *__restrict r0 = rows[0], *__restrict r1 = rows[1], *__restrict r2 = rows[2],                    \
                          *__restrict r3 = rows[3];                                                            \
            for (int64_t i = 0; i < n; ++i) {                                                                  \
                r0[i] += f0 * column[i];                                                                       \
                r1[i] += f1 * column[i];                                                                       \
                r2[i] += f2 * column[i];                                                                       \
                r3[i] += f3 * column[i];                                                                       \
            }                                                                                                  \
            return;                                                                                            \
        }                                                                                                      \
        for (int g = 0; g < n_rows; ++g) {                                                                     \
            const T f = factor[g];                                                                             \
            T *__restrict row = rows[g];                                                                       \
            for (int64_t i = 0; i < n; ++i) row[i] += f * column[i];                                           \
        }                                                                                                      \
    }

WIDEMARGIN_ADD_COLUMN(add_column_baseline, )
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
WIDEMARGIN_ADD_COLUMN(add_column_avx2, __attribute__((target("avx2,fma"))))
WIDEMARGIN_ADD_COLUMN(add_column_avx512, __attribute__((target("avx512f,avx512vl,avx512dq,fma"))))
#endif
#undef WIDEMARGIN_ADD_COLUMN

template <typename T>
AddColumn<T> choose_add_column() {
    const std::string name = choose_instruction_set();
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    if (name == "avx512") return add_column_avx512<T>;
    if (name == "avx2") return add_column_avx2<T>;
#endif
    return add_column_baseline<T>;
}

}  // namespace widemargin
