// A streaming reader for XMC and svmlight text: it takes blocks of bytes and builds CSR arrays.
//
// Each block is cut at newlines into one piece per thread. The pieces are parsed in parallel and appended in order, so
// the arrays and the first problem do not depend on blocks or threads. Memory: the arrays, one block, and its pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "simd/arrays.hpp"
#include "simd/threads.hpp"
#include "text/lines.hpp"

namespace widemargin {

constexpr std::int64_t kMaxCount = 2147483647;                // counts and offsets are 32-bit
constexpr std::int64_t kMaxIndex = kMaxCount - 1;             // so the number of features fits 32 bits as well
constexpr std::size_t kMinPieceBytes = std::size_t{1} << 16;  // below this, starting a thread costs more than it saves
constexpr std::size_t kMaxTokenBytes = 80;                    // longest token shown in a message

// glibc never takes a block of this size from its heap, no matter what was freed before (DEFAULT_MMAP_THRESHOLD_MAX is
// 32 MB). An array that starts at this size grows by remapping pages; in the heap it would be copied and leave holes.
// Memory that is reserved but not written costs nothing.
constexpr std::size_t kRemappedBytes = (std::size_t{32} << 20) + 4096;

enum class IndexBase : int { automatic = -1, zero = 0, one = 1 };

struct TextOptions {
    TextFormat format = TextFormat::xmc;
    IndexBase base = IndexBase::automatic;
    std::int64_t n_features = -1;  // svmlight only; -1 when not known
    bool refuse_disorder = false;
    std::int64_t max_nonzeros = kMaxCount;
    int n_threads = 1;
    std::size_t min_piece_bytes = kMinPieceBytes;  // tests make it small
    std::size_t reserve_bytes = 0;                 // for each array; see kRemappedBytes
};

struct TextHeader {
    std::int64_t n_samples = -1, n_features = -1, n_labels = -1, line = 0;
};

template <typename Value, typename Label>
class TextReader {
  public:
    explicit TextReader(const TextOptions &options) : options_(options) {
        pieces_.resize(static_cast<std::size_t>(std::max(1, options.n_threads)));
        rules_.format = options.format;
        rules_.refuse_disorder = options.refuse_disorder;
        set_range(options.n_features, &rules_.min_feature, &rules_.max_feature);
        indices.reserve(options.reserve_bytes / sizeof(std::int32_t));
        data.reserve(options.reserve_bytes / sizeof(Value));
        labels.reserve(options.reserve_bytes / sizeof(Label));
        indptr.reserve(options.reserve_bytes / sizeof(std::int32_t));
        label_indptr.reserve(options.reserve_bytes / sizeof(std::int32_t));
        indptr.push(0);
        label_indptr.push(0);
    }

    // Takes the next bytes of the file; false if there is a problem, and reading can stop.
    bool feed(const char *begin, std::size_t size) {
        const char *end = begin + size;
        if (finding) return false;
        if (!carry_.empty()) {
            const char *newline = static_cast<const char *>(std::memchr(begin, '\n', size));
            const char *cut = newline == nullptr ? end : newline + 1;
            carry_.append(begin, cut);
            begin = cut;
            if (newline != nullptr) parse_carry();
        }
        const char *last = end;
        while (last > begin && last[-1] != '\n') --last;
        if (last > begin) parse_lines(begin, last);
        carry_.append(last, end);
        stop_at_endless_binary_line(last, end);
        return !finding;
    }

    // Ends the text; the last line may lack its newline. False if there is a problem.
    bool finish() {
        if (!finding && !carry_.empty()) {
            carry_.push_back('\n');
            parse_carry();
        }
        if (!finding) check_end();
        if (finding.token.size() > kMaxTokenBytes) finding.token.resize(kMaxTokenBytes);
        return !finding;
    }

    // After the arrays of the rows so far were handed over: later rows go to new arrays.
    void begin_new_arrays(std::int64_t n_rows_given) {
        n_rows_given_ += n_rows_given;
        indptr.push(0);
        label_indptr.push(0);
    }

    // Sets: what was read. Take the arrays only after `finish` returned true, or part by part.
    GrowingArray<std::int32_t> indices;
    GrowingArray<Value> data;
    GrowingArray<std::int32_t> indptr;
    GrowingArray<Label> labels;
    GrowingArray<std::int32_t> label_indptr;
    TextHeader header;
    TextStats stats;
    Finding finding;
    std::int64_t n_lines = 0;

  private:
    using PieceType = Piece<Value, Label>;

    std::int64_t n_rows() const { return n_rows_given_ + static_cast<std::int64_t>(indptr.size()) - 1; }

    // The allowed indices, as written. With an automatic base both 0 and `count` are allowed, and Python decides at the
    // end.
    void set_range(std::int64_t count, std::int64_t *min, std::int64_t *max) const {
        *min = options_.base == IndexBase::one ? 1 : 0;
        *max = count < 0 ? kMaxIndex : count - (options_.base == IndexBase::zero ? 1 : 0);
    }

    void parse_carry() {
        const std::string line = std::move(carry_);
        carry_.clear();
        parse_lines(line.data(), line.data() + line.size());
    }

    // A binary file may have no newline for gigabytes; a zero byte in the tail gives it away.
    void stop_at_endless_binary_line(const char *begin, const char *end) {
        if (begin < end && !finding && std::memchr(begin, 0, static_cast<std::size_t>(end - begin)) != nullptr) {
            carry_.push_back('\n');
            parse_carry();
        }
    }

    void parse_lines(const char *begin, const char *end) {
        if (n_lines == 0 && end - begin >= 3 && std::memcmp(begin, "\xef\xbb\xbf", 3) == 0) begin += 3;
        while (begin < end && options_.format == TextFormat::xmc && header.line == 0 && !finding)
            begin = parse_header_line(begin, end);
        if (begin < end && !finding) parse_pieces(begin, end);
    }

    const char *parse_header_line(const char *begin, const char *end) {
        const auto *newline =
            static_cast<const char *>(std::memchr(begin, '\n', static_cast<std::size_t>(end - begin)));
        std::string_view line(begin, static_cast<std::size_t>(newline - begin));
        ++n_lines;
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        const int byte = foreign_byte(line);
        const std::string_view content = without_comment(line);
        const std::vector<std::string_view> tokens = split_at_blanks(content);
        if (byte >= 0)
            finding = {Problem::not_text, n_lines, std::to_string(byte)};
        else if (!tokens.empty())
            set_header(tokens, content);
        return newline + 1;
    }

    void set_header(const std::vector<std::string_view> &tokens, std::string_view content) {
        if (tokens.size() != 3 || !std::all_of(tokens.begin(), tokens.end(), all_digits)) {
            finding = {Problem::bad_header, n_lines, std::string(content)};
            return;
        }
        std::int64_t counts[3];
        for (int i = 0; i < 3; ++i) {
            const char *p = tokens[static_cast<std::size_t>(i)].data();
            counts[i] = static_cast<std::int64_t>(scan_digits(p));
            if (counts[i] > kMaxCount) {
                finding = {Problem::header_too_large, n_lines, std::string(content)};
                return;
            }
        }
        header = {counts[0], counts[1], counts[2], n_lines};
        set_range(header.n_features, &rules_.min_feature, &rules_.max_feature);
        set_range(header.n_labels, &rules_.min_label, &rules_.max_label);
    }

    // One piece per thread, cut after the newline that follows an even share.
    std::vector<const char *> cuts(const char *begin, const char *end) const {
        const auto size = static_cast<std::size_t>(end - begin);
        const std::size_t n_pieces = std::clamp<std::size_t>(size / options_.min_piece_bytes, 1, pieces_.size());
        std::vector<const char *> result = {begin};
        for (std::size_t i = 1; i < n_pieces; ++i) {
            const char *share = std::max(result.back(), begin + size * i / n_pieces);
            result.push_back(
                static_cast<const char *>(std::memchr(share, '\n', static_cast<std::size_t>(end - share))) + 1);
            if (result.back() == end) return result;
        }
        result.push_back(end);
        return result;
    }

    void parse_pieces(const char *begin, const char *end) {
        const std::vector<const char *> bounds = cuts(begin, end);
        const std::size_t n_pieces = bounds.size() - 1;
        parallel_for(static_cast<std::int64_t>(n_pieces), static_cast<int>(n_pieces), [&](int, std::int64_t i) {
            LineParser<Value, Label>(rules_, pieces_[i]).parse(bounds[i], bounds[i + 1]);
        });
        for (std::size_t i = 0; i < n_pieces && !finding; ++i) absorb(pieces_[i]);
    }

    void absorb(const PieceType &piece) {
        const std::size_t n_kept = rows_to_keep(piece);
        append_rows(piece, n_kept);
        if (!finding && piece.finding) {
            finding = piece.finding;
            finding.line += n_lines;
        }
        merge_stats(piece.stats);
        n_lines += piece.n_lines;
    }

    // Number of rows before the first that exceeds a limit, which becomes the finding; blank rows after the last row
    // are dropped.
    std::size_t rows_to_keep(const PieceType &piece) {
        const std::size_t n = piece.ends.size();
        const std::int64_t room = header.line == 0 ? INT64_MAX : header.n_samples - n_rows();
        const auto fits = static_cast<std::size_t>(std::clamp<std::int64_t>(room, 0, static_cast<std::int64_t>(n)));
        const std::int64_t limit = options_.max_nonzeros;
        const auto over = [limit](std::size_t before, std::size_t added) {
            return static_cast<std::int64_t>(before + added) > limit;
        };
        const bool check_nonzeros =
            over(indices.size(), piece.indices.size()) || over(labels.size(), piece.labels.size());
        for (std::size_t r = check_nonzeros ? 0 : fits; r < n; ++r) {
            const auto nonzeros = static_cast<std::size_t>(piece.ends[r]);
            const auto n_labels = static_cast<std::size_t>(piece.label_ends[r]);
            if (r >= fits && !is_empty_row(piece, r)) return stop_at_row(piece, r, Problem::too_many_rows);
            if (over(indices.size(), nonzeros) || over(labels.size(), n_labels))
                return stop_at_row(piece, r, Problem::too_many_nonzeros);
        }
        return fits;
    }

    static bool is_empty_row(const PieceType &piece, std::size_t r) {
        const std::int32_t begin = r == 0 ? 0 : piece.ends[r - 1], label_begin = r == 0 ? 0 : piece.label_ends[r - 1];
        return piece.ends[r] == begin && piece.label_ends[r] == label_begin;
    }

    std::size_t stop_at_row(const PieceType &piece, std::size_t r, Problem problem) {
        finding = {problem, n_lines + piece.row_lines[r], ""};
        return 0;
    }

    void append_rows(const PieceType &piece, std::size_t n) {
        if (n == 0) return;
        const auto base = static_cast<std::int32_t>(indices.size());
        const auto label_base = static_cast<std::int32_t>(labels.size());
        indices.append(piece.indices.data(), static_cast<std::size_t>(piece.ends[n - 1]));
        data.append(piece.data.data(), static_cast<std::size_t>(piece.ends[n - 1]));
        labels.append(piece.labels.data(), static_cast<std::size_t>(piece.label_ends[n - 1]));
        for (std::size_t r = 0; r < n; ++r) indptr.push(base + piece.ends[r]);
        for (std::size_t r = 0; r < n; ++r) label_indptr.push(label_base + piece.label_ends[r]);
    }

    void merge_stats(const TextStats &piece) {
        stats.min_feature = std::min(stats.min_feature, piece.min_feature);
        stats.max_feature = std::max(stats.max_feature, piece.max_feature);
        stats.min_label = std::min(stats.min_label, piece.min_label);
        stats.max_label = std::max(stats.max_label, piece.max_label);
        stats.n_unsorted_rows += piece.n_unsorted_rows;
        stats.n_duplicate_rows += piece.n_duplicate_rows;
        merge_line(stats.feature_limit_line, piece.feature_limit_line);
        merge_line(stats.label_limit_line, piece.label_limit_line);
        merge_line(stats.disorder_line, piece.disorder_line);
    }

    void merge_line(std::int64_t &line, std::int64_t piece_line) const {
        if (line == 0 && piece_line != 0) line = n_lines + piece_line;
    }

    void check_end() {
        const bool no_header = options_.format == TextFormat::xmc && header.line == 0;
        if (no_header || (header.line == 0 && n_rows() == 0))
            finding = {Problem::empty, 0, ""};
        else if (header.line != 0 && n_rows() < header.n_samples)
            finding = {Problem::too_few_rows, header.line, std::to_string(n_rows())};
    }

    const TextOptions options_;
    LineRules rules_;
    std::vector<PieceType> pieces_;
    std::string carry_;
    std::int64_t n_rows_given_ = 0;
};

}  // namespace widemargin
