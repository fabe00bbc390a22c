// What can be wrong with a text file. The numbers are those of `Problem` in reference/text_reader.py.
#pragma once

#include <cstdint>
#include <string>

namespace widemargin {

enum class Problem : int {
    none = 0,
    not_text = 1,          // a control byte, or a byte above 127 outside a comment
    empty = 2,             // no header and no row
    bad_header = 3,        // not three integers
    header_too_large = 4,  // a count that does not fit 32 bits
    too_many_rows = 5,     // more rows than the header says
    too_few_rows = 6,      // fewer rows than the header says
    bad_label = 7,         // not a number
    empty_label = 8,       // nothing between two commas
    negative_label = 9,
    label_out_of_range = 10,
    missing_target = 11,  // svmlight with one label: the row begins with a feature
    blank_line = 12,      // svmlight with many labels: a row or not a row?
    missing_colon = 13,
    bad_index = 14,
    negative_index = 15,
    feature_out_of_range = 16,
    bad_value = 17,
    not_finite = 18,      // nan, inf, or too large for the type
    sum_not_finite = 19,  // the values of a repeated feature add up to infinity
    query_id = 20,
    duplicate_label = 21,
    unsorted_labels = 22,
    duplicate_feature = 23,
    unsorted_features = 24,
    too_many_nonzeros = 25,
};

// The first problem of a text: `line` is counted from 1, `token` is the piece of text to show.
struct Finding {
    Problem problem = Problem::none;
    std::int64_t line = 0;
    std::string token;

    explicit operator bool() const { return problem != Problem::none; }
};

}  // namespace widemargin
