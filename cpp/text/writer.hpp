// Writes rows of a CSR matrix and their labels as XMC text, with the fewest digits that read back as the same value.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <type_traits>

#include "text/numbers.hpp"

namespace widemargin {

constexpr std::size_t kMaxNumberBytes = 40;  // "-1.7976931348623157e+308" has 24

// Without std::to_chars for floating point (old macOS): the first precision that reads back as the same value.
template <typename Value>
inline void append_by_trial(Value value, std::string &out) {
    char text[kMaxNumberBytes];
    for (int digits = std::numeric_limits<Value>::digits10; digits <= std::numeric_limits<Value>::max_digits10;
         ++digits) {
        int size = std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(value));
        for (int i = 0; i < size; ++i)
            if (text[i] == ',') text[i] = '.';  // the locale's decimal comma
        if (static_cast<Value>(parse_with_strtod(text, text + size)) == value) break;
    }
    out += text;
}

template <typename Value>
inline void append_number(Value value, std::string &out) {
#if defined(__cpp_lib_to_chars)
    char text[kMaxNumberBytes];
    char *end = std::to_chars(text, text + sizeof text - 1, value).ptr;
    if constexpr (std::is_same_v<Value, float>) {
        // Readers round to double first and then to float. Only one float, 7.038531e-26, reads back as a different
        // value (all 2^31 were tried); it is written as a double.
        *end = '\n';
        double read_back = 0;
        scan_number(text, &read_back);
        if (static_cast<float>(read_back) != value)
            end = std::to_chars(text, text + sizeof text - 1, static_cast<double>(value)).ptr;
    }
    out.append(text, end);
#else
    append_by_trial(value, out);
#endif
}

inline void append_integer(std::int64_t value, std::string &out) {
    char text[kMaxNumberBytes];
    out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

// Appends to `out` the rows of CSR arrays of features and labels (row r has the features indptr[r] .. indptr[r + 1]).
template <typename Value>
void format_rows(const Value *data, const std::int32_t *indices, const std::int64_t *indptr, const std::int32_t *labels,
                 const std::int64_t *label_indptr, std::size_t n_rows, int base, std::string &out) {
    for (std::size_t r = 0; r < n_rows; ++r) {
        for (std::int64_t i = label_indptr[r]; i < label_indptr[r + 1]; ++i) {
            if (i > label_indptr[r]) out += ',';
            append_integer(std::int64_t{labels[i]} + base, out);
        }
        for (std::int64_t i = indptr[r]; i < indptr[r + 1]; ++i) {
            out += ' ';
            append_integer(std::int64_t{indices[i]} + base, out);
            out += ':';
            append_number(data[i], out);
        }
        out += '\n';
    }
}

}  // namespace widemargin
