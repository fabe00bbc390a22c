// Texts as rows: what scikit-learn's TfidfVectorizer does, for the options that a model folder can store.
//
//     text → lower case → without accents → tokens or characters → n-grams → counts of known terms
//     value of a term = tf · idf,  tf = count, 1 (binary) or 1 + log count (sublinear);  then divided by the l1 or l2
//     norm
//
// Arithmetic, types and order of summation are those of scikit-learn and NumPy. (Only the logarithm of sublinear_tf may
// differ in its last bit.) The tables of characters are Python's (tools/text_tables.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "native/model_file.hpp"
#include "native/text_tables.hpp"

namespace widemargin {

using Characters = std::vector<uint32_t>;

// Whether a sorted list of first and last characters contains c.
template <size_t N>
bool in_ranges(const uint32_t (&ranges)[N], uint32_t c) {
    const auto after = std::upper_bound(std::begin(ranges), std::end(ranges), c);
    return (after - std::begin(ranges)) % 2 == 1 || (after != std::begin(ranges) && after[-1] == c);
}

inline bool is_word_character(uint32_t c) {
    if (c < 128) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    return in_ranges(text_tables::WORDS, c);
}
inline bool is_space(uint32_t c) { return in_ranges(text_tables::SPACES, c); }

// The place of a key in a sorted array; N if it is not there.
template <size_t N>
size_t find_key(const uint32_t (&keys)[N], uint32_t c) {
    const auto place = std::lower_bound(std::begin(keys), std::end(keys), c);
    return place != std::end(keys) && *place == c ? size_t(place - std::begin(keys)) : N;
}

// str.lower().
inline Characters lower_case(const Characters &text) {
    constexpr uint32_t DOTTED_I = 0x130, COMBINING_DOT = 0x307, SIGMA = 0x3a3, SMALL_SIGMA = 0x3c3, FINAL_SIGMA = 0x3c2;
    const auto is_final = [&](size_t place) {
        size_t before = place, after = place + 1;
        while (before > 0 && in_ranges(text_tables::IGNORABLE, text[before - 1])) --before;
        if (before == 0 || !in_ranges(text_tables::CASED, text[before - 1])) return false;
        while (after < text.size() && in_ranges(text_tables::IGNORABLE, text[after])) ++after;
        return after == text.size() || !in_ranges(text_tables::CASED, text[after]);
    };
    Characters lower;
    lower.reserve(text.size());
    for (size_t place = 0; place < text.size(); ++place) {
        const uint32_t c = text[place];
        if (c < 128) {
            lower.push_back(c >= 'A' && c <= 'Z' ? c + 32 : c);
        } else if (c == SIGMA) {
            lower.push_back(is_final(place) ? FINAL_SIGMA : SMALL_SIGMA);
        } else if (c == DOTTED_I) {
            lower.insert(lower.end(), {'i', COMBINING_DOT});
        } else {
            const size_t found = find_key(text_tables::LOWER_FROM, c);
            lower.push_back(found < std::size(text_tables::LOWER_FROM) ? text_tables::LOWER_TO[found] : c);
        }
    }
    return lower;
}

// The characters of NFKD that are no combining marks. Marks are all that normalisation reorders, so this needs no
// order.
inline Characters without_accents(const Characters &text, bool only_ascii) {
    constexpr uint32_t FIRST = 0xac00, SYLLABLES = 11172, L = 0x1100, V = 0x1161, T = 0x11a7;  // Hangul
    Characters plain;
    plain.reserve(text.size());
    const auto add = [&](uint32_t c) {
        if (!only_ascii || c < 128) plain.push_back(c);
    };
    for (const uint32_t c : text) {
        const size_t found = c < 128 ? std::size(text_tables::STRIPPED_FROM) : find_key(text_tables::STRIPPED_FROM, c);
        if (c - FIRST < SYLLABLES) {
            const uint32_t s = c - FIRST;
            add(L + s / 588);
            add(V + s % 588 / 28);
            if (s % 28 != 0) add(T + s % 28);
        } else if (found < std::size(text_tables::STRIPPED_FROM)) {
            for (size_t j = text_tables::STRIPPED_START[found]; j < text_tables::STRIPPED_START[found + 1]; ++j)
                add(text_tables::STRIPPED[j]);
        } else {
            add(c);
        }
    }
    return plain;
}

// A token_pattern that finds runs of characters of one class, of some least length. Others are refused.
//
//     pattern := ["(?u)"] ( "\b" \w-run "\b" | run )        run := item item "+" | item "+" | item "{" n ",}"
//     item    := \w | \S | \d | [characters, ranges, \w, \d, \s, \S]
class TokenPattern {
  public:
    explicit TokenPattern(std::string_view pattern) {
        std::string_view rest = pattern;
        take(rest, "(?u)");
        const bool bounded = take(rest, "\\b");
        const Class first = item(rest);
        bool good = first.kinds != 0 || !first.ranges.empty();
        least_ = 1;
        if (take(rest, "{")) {
            const char *end = rest.data() + rest.size();
            const auto number = std::from_chars(rest.data(), end, least_);
            good &= number.ec == std::errc() && least_ >= 1;
            rest.remove_prefix(size_t(number.ptr - rest.data()));
            good &= take(rest, ",}");
        } else if (!take(rest, "+")) {
            good &= item(rest) == first && take(rest, "+");
            least_ = 2;
        }
        // A run of \w always ends at boundaries; other runs need not.
        if (bounded) good &= take(rest, "\\b") && first == Class{false, WORD, {}};
        if (!good || !rest.empty())
            throw Failure{WM_ERROR_UNSUPPORTED,
                          "the vectoriser has token_pattern='" + std::string(pattern) +
                              "', which this program does not support; use the Python package, or train with a pattern "
                              "such as (?u)\\b\\w\\w+\\b, \\w+ or \\S+"};
        class_ = first;
    }

    // Calls visit(first, last) for every token.
    template <class Visit>
    void find(const Characters &text, Visit visit) const {
        for (size_t place = 0; place < text.size();) {
            while (place < text.size() && !class_.contains(text[place])) ++place;
            const size_t first = place;
            while (place < text.size() && class_.contains(text[place])) ++place;
            if (place > first && place - first >= least_) visit(first, place);
        }
    }

  private:
    enum Kind : uint8_t { WORD = 1, DIGIT = 2, SPACE = 4, NO_SPACE = 8 };
    struct Class {
        bool negated = false;
        uint8_t kinds = 0;
        std::vector<std::pair<uint32_t, uint32_t>> ranges;

        bool operator==(const Class &other) const {
            return negated == other.negated && kinds == other.kinds && ranges == other.ranges;
        }
        bool contains(uint32_t c) const {
            bool found = ((kinds & WORD) && is_word_character(c)) || ((kinds & SPACE) && is_space(c)) ||
                         ((kinds & NO_SPACE) && !is_space(c)) || ((kinds & DIGIT) && in_ranges(text_tables::DIGITS, c));
            for (const auto &[low, high] : ranges) found |= c >= low && c <= high;
            return found != negated;
        }
    };

    static bool take(std::string_view &rest, std::string_view word) {
        if (rest.substr(0, word.size()) != word) return false;
        rest.remove_prefix(word.size());
        return true;
    }

    static uint8_t kind(std::string_view &rest) {
        return take(rest, "\\w")   ? WORD
               : take(rest, "\\d") ? DIGIT
               : take(rest, "\\s") ? SPACE
               : take(rest, "\\S") ? NO_SPACE
                                   : 0;
    }

    // An empty class for what is not understood.
    static Class item(std::string_view &rest) {
        Class found;
        if (!take(rest, "[")) {
            found.kinds = kind(rest);
            return found;
        }
        found.negated = take(rest, "^");
        while (!rest.empty() && rest[0] != ']') {
            if (const uint8_t known = kind(rest)) {
                found.kinds |= known;
                continue;
            }
            if (rest.substr(0, 2) == "-]") {  // stands for itself at the end
                rest.remove_prefix(1);
                found.ranges.emplace_back('-', '-');
                continue;
            }
            const int64_t low = plain_character(rest);
            int64_t high = low;
            if (rest.size() > 1 && rest[0] == '-' && rest[1] != ']') {
                rest.remove_prefix(1);
                high = plain_character(rest);
            }
            if (low < 0 || high < low) return {};
            found.ranges.emplace_back(uint32_t(low), uint32_t(high));
        }
        return take(rest, "]") ? found : Class{};
    }

    // A character that stands for itself in a set of Python's `re`, now and in later versions; else −1.
    static int64_t plain_character(std::string_view &rest) {
        const auto *place = reinterpret_cast<const uint8_t *>(rest.data()), *end = place + rest.size();
        if (rest.empty()) return -1;
        const bool escaped = *place == '\\' && end - place > 1 && !std::isalnum(place[1]) && place[1] < 128;
        if (escaped) ++place;
        const int64_t c = next_character(place, end);
        rest.remove_prefix(size_t(place - reinterpret_cast<const uint8_t *>(rest.data())));
        return !escaped && c >= 0 && c < 128 && std::string_view("\\[]-&|~^").find(char(c)) != std::string_view::npos
                   ? -1
                   : c;
    }

    Class class_;
    size_t least_ = 1;
};

// A list of names, read from its JSON text: views of the text, or of own copies where it has escapes.
class NameList {
  public:
    // `numbers`: whether names may be numbers or truth values, which are written as Python writes them.
    void read(Bytes text, int64_t n_names, bool numbers, const std::string &where) {
        JsonReader reader(text.text(), where);
        names_.reserve(size_t(n_names));
        reader.expect('[');
        std::string decoded;
        if (!reader.accept(']')) {
            do {
                if (int64_t(names_.size()) == n_names) reader.refuse();
                names_.push_back(name(reader, decoded, numbers));
            } while (reader.accept(','));
            reader.expect(']');
        }
        if (!reader.at_end() || int64_t(names_.size()) != n_names) reader.refuse();
    }
    int64_t size() const { return int64_t(names_.size()); }
    std::string_view operator[](int64_t index) const { return names_[size_t(index)]; }

  private:
    std::string_view name(JsonReader &reader, std::string &decoded, bool numbers) {
        if (reader.peek() == '"') {
            const std::string_view found = reader.string(decoded);
            return found.data() == decoded.data() ? kept(found) : found;
        }
        const std::string_view word = reader.word();
        if (!numbers) reader.refuse();
        if (word == "true") return "True";
        if (word == "false") return "False";
        if (!JsonReader::is_number(word)) reader.refuse();
        return word;
    }

    // A copy in blocks that never move.
    std::string_view kept(std::string_view name) {
        constexpr size_t BLOCK = 1 << 16;
        if (copies_.empty() || copies_.back().capacity() - copies_.back().size() < name.size()) {
            copies_.emplace_back();
            copies_.back().reserve(std::max(BLOCK, name.size()));
        }
        std::string &block = copies_.back();
        const size_t start = block.size();
        block.append(name);
        return std::string_view(block).substr(start);
    }

    std::vector<std::string_view> names_;
    std::deque<std::string> copies_;
};

// Finds the number of a term: open addressing over the names.
class Vocabulary {
  public:
    // Throws Failure if a name is repeated, or if there are more names than numbers.
    void index(const NameList &names, uint64_t seed, const std::string &where) {
        names_ = &names;
        seed_ = seed | 1;
        if (names.size() > (int64_t(1) << 31)) fail_format(where, "there are too many terms");
        size_t n_slots = 16;
        while (n_slots < 2 * size_t(names.size())) n_slots *= 2;
        slots_.assign(n_slots, Slot{0, EMPTY});
        for (int64_t j = 0; j < names.size(); ++j) {
            Slot &slot = slots_[place_of(names[j])];
            if (slot.name != EMPTY) fail_format(where, "the vectoriser has a repeated term");
            slot = {uint32_t(hash(names[j]) >> 32), uint32_t(j)};
        }
    }
    // −1 for a term that is not known.
    int64_t find(std::string_view term) const {
        const Slot &slot = slots_[place_of(term)];
        return slot.name == EMPTY ? -1 : int64_t(slot.name);
    }

  private:
    static constexpr uint32_t EMPTY = 0xffffffff;
    struct Slot {
        uint32_t hash, name;
    };

    // Multiply and fold, eight bytes at a time; the seed keeps a model from choosing names that collide.
    uint64_t hash(std::string_view term) const {
        uint64_t h = seed_ ^ term.size() * 0x9e3779b97f4a7c15u;
        for (size_t j = 0; j < term.size(); j += 8) {
            uint64_t word = 0;
            std::memcpy(&word, term.data() + j, std::min<size_t>(8, term.size() - j));
            const auto product = static_cast<unsigned __int128>(h ^ word) * (seed_ ^ 0xa0761d6478bd642fu);
            h = uint64_t(product) ^ uint64_t(product >> 64);
        }
        return h * 0x9e3779b97f4a7c15u ^ h >> 29;
    }
    // The slot of a term, or the empty one where it would be.
    size_t place_of(std::string_view term) const {
        const uint64_t h = hash(term);
        const uint32_t high = uint32_t(h >> 32);
        size_t place = h & (slots_.size() - 1);
        while (slots_[place].name != EMPTY && (slots_[place].hash != high || (*names_)[slots_[place].name] != term))
            place = (place + 1) & (slots_.size() - 1);
        return place;
    }

    const NameList *names_ = nullptr;
    uint64_t seed_ = 0;
    std::vector<Slot> slots_;
};

// The non-zeros of a row, in increasing order of features.
struct Row {
    std::vector<int64_t> features;
    std::vector<double> values;
    bool single = false;  // whether the values are float32, as those of most vectorisers
};

// A fitted vectoriser.
class Vectorizer {
  public:
    // `idf`: of shape (n_terms,), or nullptr. The names of the features are the terms.
    Vectorizer(const Json &options, const NameList &terms, const Array *idf, uint64_t seed, const std::string &where)
        : pattern_("\\w+"), idf_(idf == nullptr ? Array() : *idf), has_idf_(idf != nullptr) {
        const auto option = [&](const char *name) -> const Json & {
            const Json *found = options.find(name);
            if (found == nullptr) fail_format(where, "an option of the vectoriser is missing");
            return *found;
        };
        const auto flag = [&](const char *name) {
            if (option(name).kind != Json::BOOLEAN) fail_format(where, "an option of the vectoriser is damaged");
            return option(name).integer != 0;
        };
        const auto choice = [&](const char *name, std::initializer_list<const char *> known, bool may_be_none) {
            const Json &found = option(name);
            if (may_be_none && found.kind == Json::NOTHING) return std::string();
            for (const char *word : known)
                if (found.is(word)) return std::string(word);
            fail_format(where, "an option of the vectoriser is damaged");
        };
        for (const char *name : {"preprocessor", "tokenizer"})
            if (option(name).kind != Json::NOTHING) fail_format(where, "an option of the vectoriser is damaged");
        if (!option("input").is("content")) fail_format(where, "the vectoriser must not read files");
        lowercase_ = flag("lowercase");
        accents_ = choice("strip_accents", {"ascii", "unicode"}, true);
        analyzer_ = choice("analyzer", {"word", "char", "char_wb"}, false);
        norm_ = choice("norm", {"l1", "l2"}, true);
        single_ = choice("dtype", {"float32", "float64"}, false) == "float32";
        binary_ = flag("binary");
        sublinear_ = flag("sublinear_tf");
        if (flag("use_idf") != has_idf_ || (has_idf_ && !(idf_.is_float() && idf_.is_vector(terms.size()))))
            fail_format(where, "the idf vector of the vectoriser does not match its terms");
        const Json *lengths = &option("ngram_range");
        if (lengths->find("$tuple") != nullptr) lengths = lengths->find("$tuple");
        if (lengths->items.size() != 2 || lengths->items[0].kind != Json::INTEGER ||
            lengths->items[1].kind != Json::INTEGER || lengths->items[0].integer < 1 ||
            lengths->items[0].integer > lengths->items[1].integer)
            fail_format(where, "ngram_range of the vectoriser is damaged");
        shortest_ = size_t(lengths->items[0].integer);
        longest_ = size_t(lengths->items[1].integer);
        if (analyzer_ == "word") {
            if (option("token_pattern").kind != Json::STRING) fail_format(where, "token_pattern must be a string");
            pattern_ = TokenPattern(option("token_pattern").string);
            read_stop_words(option("stop_words"), where);
        }
        vocabulary_.index(terms, seed, where);
    }

    // Throws Failure for text that is not UTF-8.
    Row row(std::string_view text) const {
        Characters characters = decoded(text);
        if (lowercase_) characters = lower_case(characters);
        if (!accents_.empty()) characters = without_accents(characters, accents_ == "ascii");
        std::vector<int64_t> found;
        if (analyzer_ == "word") {
            find_words(characters, found);
        } else {
            find_characters(one_space(characters), found);
        }
        std::sort(found.begin(), found.end());
        return single_ ? weighted<float>(found) : weighted<double>(found);
    }

  private:
    static Characters decoded(std::string_view text) {
        Characters characters;
        characters.reserve(text.size());
        const auto *place = reinterpret_cast<const uint8_t *>(text.data()), *end = place + text.size();
        while (place < end) {
            const int64_t c = next_character(place, end);
            if (c < 0) throw Failure{WM_ERROR_ARGUMENT, "the text is not valid UTF-8; convert it to UTF-8"};
            characters.push_back(uint32_t(c));
        }
        return characters;
    }

    void read_stop_words(const Json &words, const std::string &where) {
        if (words.is("english")) {
            stop_words_.assign(std::begin(text_tables::ENGLISH_STOP_WORDS), std::end(text_tables::ENGLISH_STOP_WORDS));
        } else if (words.kind == Json::LIST) {
            for (const Json &word : words.items) {
                if (word.kind != Json::STRING) fail_format(where, "stop_words of the vectoriser are damaged");
                stop_words_.push_back(word.string);
            }
            std::sort(stop_words_.begin(), stop_words_.end());
        } else if (words.kind != Json::NOTHING) {
            fail_format(where, "stop_words of the vectoriser are damaged");
        }
    }

    // Tokens are written one after another with a space between, so that an n-gram is a part of this text.
    void find_words(const Characters &text, std::vector<int64_t> &found) const {
        std::string tokens;
        std::vector<std::pair<size_t, size_t>> ends;
        pattern_.find(text, [&](size_t first, size_t last) {
            const size_t before = tokens.size();
            if (!ends.empty()) tokens += ' ';
            const size_t start = tokens.size();
            for (size_t j = first; j < last; ++j) append_utf8(text[j], tokens);
            if (!stop_words_.empty() &&
                std::binary_search(stop_words_.begin(), stop_words_.end(), std::string_view(tokens).substr(start))) {
                tokens.resize(before);
            } else {
                ends.emplace_back(start, tokens.size());
            }
        });
        for (size_t n = shortest_; n <= std::min(longest_, ends.size()); ++n)
            for (size_t j = 0; j + n <= ends.size(); ++j)
                look_up(std::string_view(tokens).substr(ends[j].first, ends[j + n - 1].second - ends[j].first), found);
    }

    // Two or more white-space characters become one space.
    static Characters one_space(const Characters &text) {
        Characters plain;
        plain.reserve(text.size());
        for (size_t place = 0; place < text.size();) {
            size_t end = place;
            while (end < text.size() && is_space(text[end])) ++end;
            plain.push_back(end - place > 1 ? ' ' : text[place]);
            place = std::max(end, place + 1);
        }
        return plain;
    }

    void find_characters(const Characters &text, std::vector<int64_t> &found) const {
        if (analyzer_ == "char") {
            find_inside(text, false, found);
            return;
        }
        for (size_t place = 0; place < text.size();) {
            if (is_space(text[place])) {
                ++place;
                continue;
            }
            Characters word{' '};
            while (place < text.size() && !is_space(text[place])) word.push_back(text[place++]);
            word.push_back(' ');
            find_inside(word, true, found);
        }
    }

    // All n-grams of characters. `whole`: a text that is shorter than n counts once, for the smallest such n.
    void find_inside(const Characters &text, bool whole, std::vector<int64_t> &found) const {
        std::string bytes;
        std::vector<size_t> starts;
        for (const uint32_t c : text) {
            starts.push_back(bytes.size());
            append_utf8(c, bytes);
        }
        starts.push_back(bytes.size());
        for (size_t n = shortest_; n <= longest_; ++n) {
            if (n >= text.size() && whole) {
                look_up(bytes, found);
                return;
            }
            if (n > text.size()) return;
            for (size_t j = 0; j + n < starts.size(); ++j)
                look_up(std::string_view(bytes).substr(starts[j], starts[j + n] - starts[j]), found);
        }
    }

    void look_up(std::string_view term, std::vector<int64_t> &found) const {
        const int64_t feature = vocabulary_.find(term);
        if (feature >= 0) found.push_back(feature);
    }

    // Counts in sorted order become values of type T, rounded as NumPy rounds them.
    template <typename T>
    Row weighted(const std::vector<int64_t> &found) const {
        Row row;
        row.single = single_;
        std::vector<T> values;
        for (size_t j = 0; j < found.size();) {
            size_t end = j;
            while (end < found.size() && found[end] == found[j]) ++end;
            T value = binary_ ? T(1) : T(int32_t(end - j));
            if (sublinear_) value = T(T(std::log(double(value))) + T(1));
            if (has_idf_) {
                const int64_t f = found[j];
                value = idf_.dtype == "<f4" && single_ ? T(float(value) * idf_.as<float>()[f])
                                                       : T(double(value) * idf_.real(f));
            }
            row.features.push_back(found[j]);
            values.push_back(value);
            j = end;
        }
        double norm = 0;
        for (const T value : values) norm += norm_ == "l2" ? double(T(value * value)) : std::abs(double(value));
        if (norm_ == "l2") norm = std::sqrt(norm);
        if (!norm_.empty() && norm != 0)
            for (T &value : values) value = T(double(value) / norm);
        row.values.assign(values.begin(), values.end());
        return row;
    }

    TokenPattern pattern_;
    Array idf_;
    bool has_idf_, lowercase_ = true, single_ = false, binary_ = false, sublinear_ = false;
    std::string accents_, analyzer_, norm_;
    size_t shortest_ = 1, longest_ = 1;
    std::vector<std::string> stop_words_;
    Vocabulary vocabulary_;
};

}  // namespace widemargin
