// Parses lines of text into rows of a CSR matrix with their labels.
//
//     [labels] {feature:value} [# comment]
//
// `LineParser::fast` tries a line first: one pass over the characters, which handles well-formed rows and gives up at
// anything unusual. Then `LineParser::slow` decides, token by token, exactly as tests/reference/text_reader.py does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simd/arrays.hpp"
#include "text/numbers.hpp"

namespace widemargin {

// What can be wrong with a text file, with the same numbers as `Problem` in tests/reference/text_reader.py.

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
    missing_target = 11,  // svmlight with one label: the row starts with a feature
    blank_line = 12,      // svmlight with many labels: ambiguous, a row or not
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

// The first problem in a text: `line` counts from 1, `token` is the piece of text to show.
struct Finding {
    Problem problem = Problem::none;
    std::int64_t line = 0;
    std::string token;

    explicit operator bool() const { return problem != Problem::none; }
};

enum class TextFormat : int { xmc = 0, svmlight = 1, svmlight_multilabel = 2 };

// Rules for all lines of a file. Indices are as written, before any change of base.
struct LineRules {
    TextFormat format = TextFormat::xmc;
    std::int64_t min_feature = 0, max_feature = 0;
    std::int64_t min_label = 0, max_label = 0;
    bool refuse_disorder = false;
};

// Counts and extremes of the text so far; lines count from 1, and 0 means never.
struct TextStats {
    std::int64_t min_feature = INT64_MAX, max_feature = -1;
    std::int64_t min_label = INT64_MAX, max_label = -1;
    std::int64_t feature_limit_line = 0, label_limit_line = 0;  // first line with the largest allowed index
    std::int64_t n_unsorted_rows = 0, n_duplicate_rows = 0, disorder_line = 0;
};

// Rows of one piece of text. Label is int32 (indices, XMC) or double (values, svmlight); `ends[r]` closes row r.
template <typename Value, typename Label>
struct Piece {
    GrowingArray<std::int32_t> indices;
    GrowingArray<Value> data;
    GrowingArray<std::int32_t> ends;
    GrowingArray<Label> labels;
    GrowingArray<std::int32_t> label_ends;
    GrowingArray<std::int32_t> row_lines;
    std::int64_t n_lines = 0;
    TextStats stats;
    Finding finding;

    // Reserves room for the features of any text of n_bytes: each takes at least 4 bytes ("1:1 ").
    void start(std::size_t n_bytes) {
        indices.truncate(0), data.truncate(0), ends.truncate(0);
        labels.truncate(0), label_ends.truncate(0), row_lines.truncate(0);
        indices.reserve(n_bytes / 4 + 1), data.reserve(n_bytes / 4 + 1);
        n_lines = 0;
        stats = TextStats();
        finding = Finding();
    }
};

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
inline bool is_blank_or_end(char c) { return is_blank(c) || c == '\n' || c == '\r'; }

// The first byte of a line that is not text, or -1: a control byte anywhere, or a byte above 127 before a comment.
inline int foreign_byte(std::string_view line) {
    bool in_comment = false;
    for (const char c : line) {
        const auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && c != '\t') || byte == 0x7f || (byte > 0x7f && !in_comment)) return byte;
        in_comment |= c == '#';
    }
    return -1;
}

inline std::string_view without_comment(std::string_view line) { return line.substr(0, line.find('#')); }

inline std::vector<std::string_view> split_at_blanks(std::string_view text) {
    std::vector<std::string_view> tokens;
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t end = begin;
        while (end < text.size() && !is_blank(text[end])) ++end;
        if (end > begin) tokens.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return tokens;
}

inline bool all_digits(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

// "nan", "inf" or "infinity" in any case, with or without a sign.
inline bool names_non_finite(std::string_view text) {
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    std::string lower(text);
    for (char &c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    return lower == "nan" || lower == "inf" || lower == "infinity";
}

template <typename Value, typename Label>
class LineParser {
    static constexpr bool kLabelsAreIndices = std::is_integral_v<Label>;

  public:
    LineParser(const LineRules &rules, Piece<Value, Label> &out) : rules_(rules), out_(out) {}

    // Parses [begin, end), which holds whole lines and ends with a newline; stops at the first problem.
    void parse(const char *begin, const char *end) {
        out_.start(static_cast<std::size_t>(end - begin));
        while (begin < end) {
            ++out_.n_lines;
            labels_begin_ = out_.labels.size(), row_begin_ = out_.indices.size();
            const char *next = fast(begin);
            if (next == nullptr) {
                out_.labels.truncate(labels_begin_), out_.indices.truncate(row_begin_), out_.data.truncate(row_begin_);
                next = static_cast<const char *>(std::memchr(begin, '\n', static_cast<std::size_t>(end - begin))) + 1;
                slow(std::string_view(begin, static_cast<std::size_t>(next - 1 - begin)));
            }
            if (out_.finding) return;
            begin = next;
        }
    }

  private:
    // Parses a well-formed row without a comment. Returns the start of the next line, or null to leave the line to
    // `slow`.
    const char *fast(const char *p) {
        const char *after_labels = fast_labels(p);
        if (after_labels == nullptr) return nullptr;
        p = after_labels;
        std::int64_t previous = -1;
        bool ordered = true;
        for (;;) {
            while (is_blank(*p)) ++p;
            if (!is_digit(*p)) break;
            const auto index = static_cast<std::int64_t>(scan_digits(p));
            if (*p != ':' || !feature_in_range(index)) return nullptr;
            double value;
            p = scan_number(p + 1, &value);
            if (p == nullptr || !is_blank_or_end(*p) || !push_feature(index, value)) return nullptr;
            ordered &= index > previous;
            previous = index;
        }
        p += *p == '\r';
        if (*p != '\n') return nullptr;
        if ((ordered && labels_ordered_) || put_in_order()) close_row();
        return p + 1;
    }

    // Parses the label list, if any. Returns where the features start, or null if the line is unusual (or blank).
    const char *fast_labels(const char *p) {
        labels_ordered_ = true;
        if (is_blank(*p)) return fast_starts_with_blank(p);
        if (!is_digit(*p) && (kLabelsAreIndices || (*p != '-' && *p != '+'))) return nullptr;
        for (const char *first = p;; ++p) {
            const char *label_begin = p;
            if constexpr (kLabelsAreIndices) {
                if (!is_digit(*p)) return nullptr;
                const auto label = static_cast<std::int64_t>(scan_digits(p));
                if (*p == ':') return label_begin == first ? first : nullptr;
                if (!label_in_range(label)) return nullptr;
                push_label(static_cast<Label>(label));
            } else {
                double value;
                p = scan_number(p, &value);
                if (p == nullptr || !std::isfinite(value)) return nullptr;
                if (*p == ':' || (*p == ',' && rules_.format == TextFormat::svmlight)) return nullptr;
                push_label(value + 0.0);  // turns minus zero into zero
            }
            if (*p != ',') return is_blank_or_end(*p) ? p : nullptr;
        }
    }

    // Only features follow a leading blank; a line of blanks is left to `slow`.
    const char *fast_starts_with_blank(const char *p) const {
        if (rules_.format == TextFormat::svmlight) return nullptr;
        while (is_blank(*p)) ++p;
        return is_digit(*p) ? p : nullptr;
    }

    bool feature_in_range(std::int64_t index) {
        TextStats &stats = out_.stats;
        return in_range(index, rules_.min_feature, rules_.max_feature, stats.min_feature, stats.max_feature,
                        stats.feature_limit_line);
    }

    bool label_in_range(std::int64_t label) {
        TextStats &stats = out_.stats;
        return in_range(label, rules_.min_label, rules_.max_label, stats.min_label, stats.max_label,
                        stats.label_limit_line);
    }

    // Whether least ≤ index ≤ most. Sets: the extremes that were seen, and the first line with `most`.
    bool in_range(std::int64_t index, std::int64_t least, std::int64_t most, std::int64_t &smallest,
                  std::int64_t &largest, std::int64_t &limit_line) {
        if (index >= most) {
            if (index > most) return false;
            note_line(limit_line);
        }
        smallest = std::min(smallest, index);
        largest = std::max(largest, index);
        return index >= least;
    }

    void note_line(std::int64_t &line) const {
        if (line == 0) line = out_.n_lines;
    }

    bool push_feature(std::int64_t index, double value) {
        const auto rounded = static_cast<Value>(value);
        if (!std::isfinite(rounded)) return false;
        out_.indices.push_unchecked(static_cast<std::int32_t>(index));
        out_.data.push_unchecked(rounded);
        return true;
    }

    void push_label(Label label) {
        labels_ordered_ &= out_.labels.size() == labels_begin_ || label > out_.labels.back();
        out_.labels.push(label);
    }

    void close_row() {
        out_.ends.push(static_cast<std::int32_t>(out_.indices.size()));
        out_.label_ends.push(static_cast<std::int32_t>(out_.labels.size()));
        out_.row_lines.push(static_cast<std::int32_t>(out_.n_lines));
    }

    bool fail(Problem problem, std::string_view token) {
        out_.finding = {problem, out_.n_lines, std::string(token)};
        return false;
    }

    // Any line: a row, a comment, or a problem.
    void slow(std::string_view line) {
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        const int byte = foreign_byte(line);
        if (byte >= 0) {
            fail(Problem::not_text, std::to_string(byte));
            return;
        }
        const std::string_view content = without_comment(line);
        std::vector<std::string_view> tokens = split_at_blanks(content);
        if (tokens.empty()) {
            slow_blank(content.size() < line.size());
            return;
        }
        if (!slow_labels(tokens, is_blank(content[0]))) return;
        for (const std::string_view token : tokens)
            if (!slow_feature(token)) return;
        if (put_in_order()) close_row();
    }

    // A comment line is not a row. A blank line is a row in XMC, where the header gives the number of rows.
    void slow_blank(bool has_comment) {
        if (has_comment || rules_.format == TextFormat::svmlight) return;
        if (rules_.format == TextFormat::svmlight_multilabel)
            fail(Problem::blank_line, "");
        else
            close_row();
    }

    // Removes the label list from the front of `tokens`.
    bool slow_labels(std::vector<std::string_view> &tokens, bool starts_with_blank) {
        const std::string_view token = tokens[0];
        const bool is_feature = token.find(':') != std::string_view::npos;
        if (rules_.format == TextFormat::svmlight) {
            if (is_feature) return fail(Problem::missing_target, token);
            tokens.erase(tokens.begin());
            return slow_target(token, token);
        }
        if (starts_with_blank || is_feature) return true;
        tokens.erase(tokens.begin());
        for (std::size_t begin = 0; begin <= token.size();) {
            const std::size_t end = std::min(token.find(',', begin), token.size());
            const std::string_view label = token.substr(begin, end - begin);
            if (label.empty()) return fail(Problem::empty_label, token);
            if (!(kLabelsAreIndices ? slow_label(label) : slow_target(label, token))) return false;
            begin = end + 1;
        }
        return true;
    }

    bool slow_label(std::string_view label) {
        if (!all_digits(label)) {
            const bool negative = label[0] == '-' && all_digits(label.substr(1));
            return fail(negative ? Problem::negative_label : Problem::bad_label, label);
        }
        const char *p = label.data();
        const auto value = static_cast<std::int64_t>(scan_digits(p));
        if (!label_in_range(value)) return fail(Problem::label_out_of_range, label);
        out_.labels.push(static_cast<Label>(value));
        return true;
    }

    bool slow_target(std::string_view label, std::string_view token) {
        double value = 0;
        const char *end = scan_number(label.data(), &value);
        if (end != label.data() + label.size())
            return fail(names_non_finite(label) ? Problem::not_finite : Problem::bad_label, token);
        if (!std::isfinite(value)) return fail(Problem::not_finite, token);
        out_.labels.push(static_cast<Label>(value + 0.0));
        return true;
    }

    bool slow_feature(std::string_view token) {
        const std::size_t colon = token.find(':');
        if (colon == std::string_view::npos) return fail(Problem::missing_colon, token);
        const std::string_view index = token.substr(0, colon), value = token.substr(colon + 1);
        if (!all_digits(index)) {
            if (index == "qid" && rules_.format != TextFormat::xmc) return fail(Problem::query_id, token);
            const bool negative = !index.empty() && index[0] == '-' && all_digits(index.substr(1));
            return fail(negative ? Problem::negative_index : Problem::bad_index, token);
        }
        const char *p = index.data();
        const auto feature = static_cast<std::int64_t>(scan_digits(p));
        if (!feature_in_range(feature)) return fail(Problem::feature_out_of_range, token);
        double number = 0;
        const char *end = scan_number(value.data(), &number);
        if (end != value.data() + value.size())
            return fail(names_non_finite(value) ? Problem::not_finite : Problem::bad_value, token);
        return push_feature(feature, number) || fail(Problem::not_finite, token);
    }

    // Sorts the labels and features of the open row and merges repeated ones, or reports a problem.
    bool put_in_order() {
        bool unsorted = false, duplicate = false;
        if (!order_labels(&unsorted, &duplicate) || !order_features(&unsorted, &duplicate)) return false;
        out_.stats.n_unsorted_rows += unsorted;
        out_.stats.n_duplicate_rows += duplicate;
        if (unsorted || duplicate) note_line(out_.stats.disorder_line);
        return true;
    }

    bool order_labels(bool *unsorted, bool *duplicate) {
        Label *begin = out_.labels.data() + labels_begin_, *end = out_.labels.data() + out_.labels.size();
        Label *descent = std::is_sorted_until(begin, end);
        const Label first_descent = descent == end ? Label() : *descent;
        std::sort(begin, end);
        Label *repeated = std::adjacent_find(begin, end);
        if (rules_.refuse_disorder) {
            if (repeated != end) return fail(Problem::duplicate_label, format_label(*repeated));
            if (descent != end) return fail(Problem::unsorted_labels, format_label(first_descent));
        }
        *unsorted |= descent != end;
        *duplicate |= repeated != end;
        out_.labels.truncate(static_cast<std::size_t>(std::unique(begin, end) - out_.labels.data()));
        return true;
    }

    static std::string format_label(Label label) {
        return kLabelsAreIndices ? std::to_string(static_cast<std::int64_t>(label)) : std::string();
    }

    bool order_features(bool *unsorted, bool *duplicate) {
        std::int32_t *begin = out_.indices.data() + row_begin_, *end = out_.indices.data() + out_.indices.size();
        std::int32_t *descent = std::is_sorted_until(begin, end);
        const std::int32_t first_descent = descent == end ? 0 : *descent;
        if (descent != end) sort_features();
        std::int32_t *repeated = std::adjacent_find(begin, end);
        if (rules_.refuse_disorder) {
            if (repeated != end) return fail(Problem::duplicate_feature, std::to_string(*repeated));
            if (descent != end) return fail(Problem::unsorted_features, std::to_string(first_descent));
        }
        *unsorted |= descent != end;
        *duplicate |= repeated != end;
        return repeated == end || add_up_repeated();
    }

    void sort_features() {
        std::vector<std::pair<std::int32_t, Value>> row;
        for (std::size_t i = row_begin_; i < out_.indices.size(); ++i) row.emplace_back(out_.indices[i], out_.data[i]);
        std::stable_sort(row.begin(), row.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
        for (std::size_t i = 0; i < row.size(); ++i) {
            out_.indices[row_begin_ + i] = row[i].first;
            out_.data[row_begin_ + i] = row[i].second;
        }
    }

    // Sums in double precision and in file order, rounded once.
    bool add_up_repeated() {
        std::size_t kept = row_begin_;
        for (std::size_t i = row_begin_; i < out_.indices.size();) {
            const std::int32_t index = out_.indices[i];
            auto sum = static_cast<double>(out_.data[i]);
            for (++i; i < out_.indices.size() && out_.indices[i] == index; ++i)
                sum += static_cast<double>(out_.data[i]);
            const auto rounded = static_cast<Value>(sum);
            if (!std::isfinite(rounded)) return fail(Problem::sum_not_finite, std::to_string(index));
            out_.indices[kept] = index;
            out_.data[kept++] = rounded;
        }
        out_.indices.truncate(kept), out_.data.truncate(kept);
        return true;
    }

    const LineRules &rules_;
    Piece<Value, Label> &out_;
    std::size_t labels_begin_ = 0, row_begin_ = 0;
    bool labels_ordered_ = true;
};

}  // namespace widemargin
