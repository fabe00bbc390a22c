// The files of a stored model, a folder or one `.wm` file, mapped and checked before they are used; and the little that
// is needed to read them: JSON, headers of .npy files, SHA-256. The layouts are those of src/widemargin/model_io.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "widemargin.h"

namespace widemargin {

// A failure with its code and a message that says what to do.
struct Failure {
    wm_status code;
    std::string message;
};

constexpr const char *DAMAGED = "the model is damaged; restore it from a copy or save the model again";

[[noreturn]] inline void fail_format(const std::string &where, const std::string &problem) {
    throw Failure{WM_ERROR_FORMAT, where + ": " + problem + "; " + DAMAGED};
}

struct Bytes {
    const uint8_t *data = nullptr;
    size_t size = 0;
    std::string_view text() const { return {reinterpret_cast<const char *>(data), size}; }
};

// FIPS 180-4.
class Sha256 {
  public:
    static std::string hex(Bytes bytes) {
        Sha256 hash;
        const size_t whole = bytes.size / 64 * 64;
        for (size_t place = 0; place < whole; place += 64) hash.add_block(bytes.data + place);
        uint8_t last[128] = {};
        const size_t rest = bytes.size - whole, length = rest < 56 ? 64 : 128;
        if (rest > 0) std::memcpy(last, bytes.data + whole, rest);
        last[rest] = 0x80;
        const uint64_t n_bits = uint64_t(bytes.size) * 8;
        for (int j = 0; j < 8; ++j) last[length - 1 - j] = uint8_t(n_bits >> (8 * j));
        for (size_t place = 0; place < length; place += 64) hash.add_block(last + place);
        std::string text;
        for (uint32_t word : hash.state_)
            for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
        return text;
    }

  private:
    static uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

    void add_block(const uint8_t *block) {
        static constexpr uint32_t K[64] = {
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
            0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
            0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
            0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
            0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
            0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
            0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
        uint32_t w[64];
        for (int t = 0; t < 16; ++t)
            w[t] = uint32_t(block[4 * t]) << 24 | uint32_t(block[4 * t + 1]) << 16 | uint32_t(block[4 * t + 2]) << 8 |
                   block[4 * t + 3];
        for (int t = 16; t < 64; ++t) {
            const uint32_t s0 = rotated(w[t - 15], 7) ^ rotated(w[t - 15], 18) ^ w[t - 15] >> 3;
            const uint32_t s1 = rotated(w[t - 2], 17) ^ rotated(w[t - 2], 19) ^ w[t - 2] >> 10;
            w[t] = w[t - 16] + s0 + w[t - 7] + s1;
        }
        auto [a, b, c, d, e, f, g, h] = state_;
        for (int t = 0; t < 64; ++t) {
            const uint32_t s1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
            const uint32_t s0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
            const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + K[t] + w[t];
            const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
        }
        const uint32_t added[] = {a, b, c, d, e, f, g, h};
        for (int j = 0; j < 8; ++j) state_[j] += added[j];
    }

    std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

inline void append_utf8(uint32_t c, std::string &out) {
    if (c < 0x80) {
        out += char(c);
    } else if (c < 0x800) {
        out += {char(0xc0 | c >> 6), char(0x80 | (c & 63))};
    } else if (c < 0x10000) {
        out += {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
    } else {
        out += {char(0xf0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
    }
}

// The next character of UTF-8 text, as strict as Python's decoder; −1 for bytes that are none. Moves `place` behind it.
inline int64_t next_character(const uint8_t *&place, const uint8_t *end) {
    const uint32_t first = *place;
    if (first < 0x80) return *place++;
    const int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || end - place < length) return -1;
    uint32_t c = first & (0x7f >> length);
    for (int j = 1; j < length; ++j) {
        if ((place[j] & 0xc0) != 0x80) return -1;
        c = c << 6 | (place[j] & 63);
    }
    const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return -1;
    place += length;
    return c;
}

// A JSON value. Whole numbers that do not fit in 64 bits are REAL.
struct Json {
    enum Kind : uint8_t { NOTHING, BOOLEAN, INTEGER, REAL, STRING, LIST, OBJECT } kind = NOTHING;
    int64_t integer = 0;  // of a BOOLEAN, too
    double real = 0;      // of an INTEGER, too
    std::string string;
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> fields;

    const Json *find(std::string_view name) const {
        for (const auto &[key, value] : fields)
            if (key == name) return &value;
        return nullptr;
    }
    bool is(std::string_view text) const { return kind == STRING && string == text; }
};

// Reads JSON as strictly as `widemargin.files.parse_json` does: no repeated keys, no inf or nan, bounded nesting.
class JsonReader {
  public:
    static constexpr int MOST_LEVELS = 100;

    JsonReader(std::string_view text, std::string where)
        : place_(reinterpret_cast<const uint8_t *>(text.data())),
          end_(place_ + text.size()),
          where_(std::move(where)) {}

    Json document() {
        Json found = value(0);
        if (peek() != 0 || place_ != end_) refuse();
        return found;
    }

    // The next byte after white space; 0 at the end.
    uint8_t peek() {
        while (place_ < end_ && (*place_ == ' ' || *place_ == '\n' || *place_ == '\r' || *place_ == '\t')) ++place_;
        return place_ < end_ ? *place_ : 0;
    }
    bool accept(uint8_t byte) {
        if (peek() != byte || place_ == end_) return false;
        ++place_;
        return true;
    }
    void expect(uint8_t byte) {
        if (!accept(byte)) refuse();
    }
    bool at_end() { return peek() == 0 && place_ == end_; }

    // A string: a view of the text if it has no escapes, otherwise of `decoded`.
    std::string_view string(std::string &decoded) {
        expect('"');
        const uint8_t *start = place_;
        while (place_ < end_ && *place_ != '"' && *place_ != '\\') {
            if (*place_ < 0x20) refuse();
            if (next_character(place_, end_) < 0) refuse();
        }
        if (place_ == end_) refuse();
        const std::string_view plain(reinterpret_cast<const char *>(start), size_t(place_ - start));
        if (*place_ == '"') {
            ++place_;
            return plain;
        }
        decoded.assign(plain);
        while (place_ < end_ && *place_ != '"') {
            if (*place_ < 0x20) refuse();
            const uint8_t *from = place_;
            if (*place_ == '\\') {
                ++place_;
                append_escape(decoded);
            } else {
                if (next_character(place_, end_) < 0) refuse();
                decoded.append(reinterpret_cast<const char *>(from), size_t(place_ - from));
            }
        }
        if (place_ == end_) refuse();
        ++place_;
        return decoded;
    }

    // The text of a number, or of true, false and null.
    std::string_view word() {
        const uint8_t *start = place_;
        while (place_ < end_ && (std::isalnum(*place_) || *place_ == '-' || *place_ == '+' || *place_ == '.')) ++place_;
        if (place_ == start) refuse();
        return {reinterpret_cast<const char *>(start), size_t(place_ - start)};
    }

    static bool is_number(std::string_view text) {
        size_t p = !text.empty() && text[0] == '-';
        const auto digits = [&] {
            const size_t first = p;
            while (p < text.size() && text[p] >= '0' && text[p] <= '9') ++p;
            return p - first;
        };
        if (p < text.size() && text[p] == '0') {
            ++p;
        } else if (digits() == 0) {
            return false;
        }
        if (p < text.size() && text[p] == '.' && (++p, digits() == 0)) return false;
        if (p < text.size() && (text[p] == 'e' || text[p] == 'E')) {
            ++p;
            if (p < text.size() && (text[p] == '-' || text[p] == '+')) ++p;
            if (digits() == 0) return false;
        }
        return p == text.size();
    }

    [[noreturn]] void refuse() const { fail_format(where_, "the file is not valid JSON"); }

  private:
    Json value(int level) {
        if (level > MOST_LEVELS) refuse();
        Json found;
        switch (peek()) {
            case '{':
                read_object(found, level);
                break;
            case '[':
                ++place_;
                found.kind = Json::LIST;
                if (accept(']')) break;
                do found.items.push_back(value(level + 1));
                while (accept(','));
                expect(']');
                break;
            case '"': {
                found.kind = Json::STRING;
                std::string decoded;
                found.string = string(decoded);
                break;
            }
            default:
                read_word(found);
        }
        return found;
    }

    void read_object(Json &found, int level) {
        ++place_;
        found.kind = Json::OBJECT;
        if (accept('}')) return;
        std::string decoded;
        do {
            peek();
            std::string key(string(decoded));
            expect(':');
            found.fields.emplace_back(std::move(key), value(level + 1));
        } while (accept(','));
        expect('}');
        std::vector<std::string_view> keys;
        for (const auto &field : found.fields) keys.push_back(field.first);
        std::sort(keys.begin(), keys.end());
        if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) refuse();
    }

    void read_word(Json &found) {
        const std::string_view text = word();
        if (text == "null") return;
        if (text == "true" || text == "false") {
            found.kind = Json::BOOLEAN;
            found.integer = text == "true";
            return;
        }
        if (!is_number(text)) refuse();
        const char *end = text.data() + text.size();
        const auto whole = std::from_chars(text.data(), end, found.integer);
        found.kind = whole.ec == std::errc() && whole.ptr == end ? Json::INTEGER : Json::REAL;
        const auto real = std::from_chars(text.data(), end, found.real);
        if (real.ptr != end || !std::isfinite(found.real)) refuse();
        // A number that is too small is 0, one that is too large would be infinite.
        if (real.ec == std::errc::result_out_of_range && text.find("e-") == text.npos && text.find("E-") == text.npos)
            refuse();
    }

    void append_escape(std::string &out) {
        if (place_ == end_) refuse();
        static constexpr std::string_view NAMES = "\"\\/bfnrt", CHARACTERS = "\"\\/\b\f\n\r\t";
        const char name = char(*place_++);
        if (name != 'u') {
            const size_t which = NAMES.find(name);
            if (which == std::string_view::npos) refuse();
            out += CHARACTERS[which];
            return;
        }
        uint32_t c = four_digits();
        if (c >= 0xd800 && c < 0xdc00 && end_ - place_ >= 6 && place_[0] == '\\' && place_[1] == 'u') {
            const uint8_t *before = place_;
            place_ += 2;
            const uint32_t low = four_digits();
            if (low >= 0xdc00 && low < 0xe000) {
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            } else {
                place_ = before;
            }
        }
        append_utf8(c, out);
    }

    uint32_t four_digits() {
        if (end_ - place_ < 4) refuse();
        uint32_t value = 0;
        const char *first = reinterpret_cast<const char *>(place_);
        if (std::from_chars(first, first + 4, value, 16).ptr != first + 4 || *first == '-') refuse();
        place_ += 4;
        return value;
    }

    const uint8_t *place_, *end_;
    const std::string where_;
};

// A regular file, mapped read-only.
class MappedFile {
  public:
    explicit MappedFile(const std::string &path, bool follow_links) {
        const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow_links ? 0 : O_NOFOLLOW));
        if (descriptor < 0) {
            if (errno == ELOOP) fail_format(path, "a file of a model must not be a link");
            throw Failure{WM_ERROR_FILE, path + ": the file cannot be opened (" + std::strerror(errno) + ")"};
        }
        struct stat about;
        const bool is_file = fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
        size_ = is_file ? size_t(about.st_size) : 0;
        if (size_ > 0) data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
        const int problem = errno;
        close(descriptor);
        if (!is_file) fail_format(path, "this is not a regular file");
        if (data_ == MAP_FAILED)
            throw Failure{WM_ERROR_FILE, path + ": the file cannot be mapped (" + std::strerror(problem) + ")"};
    }
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;
    ~MappedFile() {
        if (data_ != nullptr && data_ != MAP_FAILED) munmap(data_, size_);
    }
    Bytes bytes() const { return {static_cast<const uint8_t *>(data_), size_}; }

  private:
    void *data_ = nullptr;
    size_t size_ = 0;
};

// The files of a model by name.
class ModelFiles {
  public:
    explicit ModelFiles(const std::string &path) : path_(path) {
        struct stat about;
        if (stat(path.c_str(), &about) != 0)
            throw Failure{WM_ERROR_FILE, path + ": " + std::strerror(errno) +
                                             "; use a file written by widemargin pack, or a model folder"};
        is_folder_ = S_ISDIR(about.st_mode);
        if (!is_folder_) read_directory();
    }

    std::string name_of(const std::string &name) const { return path_ + "/" + name; }

    Bytes open(const std::string &name) {
        if (is_folder_) {
            mapped_.push_back(std::make_unique<MappedFile>(name_of(name), false));
            return mapped_.back()->bytes();
        }
        const Place *place = find(name);
        if (place == nullptr) fail_format(name_of(name), "missing");
        return {whole_.data + place->offset, place->size};
    }

  private:
    static constexpr uint64_t HEADER_BYTES = 64, ALIGNMENT = 64, LAYOUT_VERSION = 1, MOST_DIRECTORY_BYTES = 1 << 24;
    struct Place {
        std::string name;
        uint64_t offset, size;
    };

    const Place *find(const std::string &name) const {
        for (const Place &place : places_)
            if (place.name == name) return &place;
        return nullptr;
    }

    static uint64_t number(const uint8_t *bytes, int count) {
        uint64_t value = 0;
        for (int j = count - 1; j >= 0; --j) value = value << 8 | bytes[j];
        return value;
    }

    void read_directory() {
        mapped_.push_back(std::make_unique<MappedFile>(path_, true));
        whole_ = mapped_.back()->bytes();
        static constexpr std::string_view MAGIC("\x89widemargin\r\n\x1a\n\0", 16);
        if (whole_.text().substr(0, MAGIC.size()) != MAGIC)
            throw Failure{WM_ERROR_FORMAT, path_ +
                                               ": the file is not a packed model; use a file written by widemargin "
                                               "pack, or a model folder"};
        if (whole_.size < HEADER_BYTES) fail_format(path_, "the file ends within its header");
        if (number(whole_.data + 16, 4) != LAYOUT_VERSION)
            throw Failure{WM_ERROR_UNSUPPORTED, path_ +
                                                    ": the file has an unknown layout version; use the release of "
                                                    "widemargin that wrote it, or a newer one"};
        const uint64_t n_bytes = number(whole_.data + 24, 8);
        if (number(whole_.data + 20, 4) != 0 || n_bytes > MOST_DIRECTORY_BYTES || n_bytes > whole_.size - HEADER_BYTES)
            fail_format(path_, "the header of the file is damaged");
        const Bytes text{whole_.data + HEADER_BYTES, n_bytes};
        std::string digest;
        for (int j = 32; j < 64; ++j)
            digest += {"0123456789abcdef"[whole_.data[j] >> 4], "0123456789abcdef"[whole_.data[j] & 15]};
        if (Sha256::hex(text) != digest) fail_format(path_, "the directory of the file differs from what was saved");
        const Json content = JsonReader(text.text(), path_).document();
        const Json *files = content.find("files");
        if (files == nullptr || files->kind != Json::OBJECT) fail_format(path_, "the directory has no table of files");
        for (const auto &[name, entry] : files->fields) add_place(name, entry, HEADER_BYTES + n_bytes);
        const Place *manifest = find("model.json");
        if (manifest != nullptr) {
            const Json *sha256 = files->find("model.json")->find("sha256");
            if (sha256 == nullptr || !sha256->is(Sha256::hex({whole_.data + manifest->offset, manifest->size})))
                fail_format(name_of("model.json"), "the content differs from what was saved (SHA-256 mismatch)");
        }
    }

    void add_place(const std::string &name, const Json &entry, uint64_t first) {
        const Json *offset = entry.find("offset"), *size = entry.find("size");
        if (offset == nullptr || size == nullptr || offset->kind != Json::INTEGER || size->kind != Json::INTEGER)
            fail_format(path_, "the directory has no offset and size of a file");
        const uint64_t start = uint64_t(offset->integer), length = uint64_t(size->integer);
        if (offset->integer < 0 || size->integer < 0 || start % ALIGNMENT != 0 || start > whole_.size ||
            length > whole_.size - start || (length > 0 && start < first))
            fail_format(path_, "the place of a file is not inside the file");
        places_.push_back({name, start, length});
    }

    const std::string path_;
    bool is_folder_ = false;
    Bytes whole_;
    std::vector<Place> places_;
    std::vector<std::unique_ptr<MappedFile>> mapped_;
};

// An array of a model: numbers of a known type, aligned for it.
struct Array {
    std::string dtype;  // as NumPy writes it
    std::vector<int64_t> shape;
    const uint8_t *data = nullptr;
    int64_t n_values = 0;

    template <typename T>
    const T *as() const {
        return reinterpret_cast<const T *>(data);
    }
    bool is_vector(int64_t length) const { return shape.size() == 1 && shape[0] == length; }
    bool is_float() const { return dtype == "<f4" || dtype == "<f8"; }
    double real(int64_t place) const { return dtype == "<f4" ? double(as<float>()[place]) : as<double>()[place]; }
};

// A CSR array over its mapped parts.
struct CsrArray {
    Array data, indices, indptr;
    int64_t n_rows = 0, n_columns = 0;

    int64_t index(int64_t place) const {
        return indices.dtype == "<i4" ? indices.as<int32_t>()[place] : indices.as<int64_t>()[place];
    }
    int64_t start(int64_t row) const {
        return indptr.dtype == "<i4" ? indptr.as<int32_t>()[row] : indptr.as<int64_t>()[row];
    }
};

// `model.json` and the arrays that it names.
class StoredModel {
  public:
    static constexpr int64_t LARGEST_COUNT = int64_t(1) << 62;

    StoredModel(const std::string &path, bool verify) : files_(path), verify_(verify) {
        const Bytes text = files_.open("model.json");
        where_ = files_.name_of("model.json");
        if (text.size > MOST_MANIFEST_BYTES) fail_format(where_, "the file is too long");
        manifest = JsonReader(text.text(), where_).document();
        const Json *format = manifest.find("format"), *version = manifest.find("format_version");
        if (format == nullptr || !format->is("widemargin model"))
            fail_format(where_, "the file does not describe a widemargin model");
        if (version == nullptr || version->kind != Json::INTEGER || version->integer < 1 ||
            version->integer > NEWEST_VERSION)
            throw Failure{WM_ERROR_UNSUPPORTED, where_ +
                                                    ": the model has a format version that this program does not "
                                                    "know; build it from the release that wrote the model"};
        for (const char *name : {"params", "attributes", "arrays"})
            if (field(manifest, name).kind != Json::OBJECT) fail("the field '" + std::string(name) + "' is damaged");
        if (verify) verify_all(manifest);
    }

    // A field that must be there.
    const Json &field(const Json &object, std::string_view name) const {
        const Json *found = object.find(name);
        if (found == nullptr) fail("'" + std::string(name) + "' is missing");
        return *found;
    }
    const Json &attribute(std::string_view name) const { return field(*manifest.find("attributes"), name); }
    const Json *parameter(std::string_view name) const { return manifest.find("params")->find(name); }
    bool has_array(std::string_view name) const { return manifest.find("arrays")->find(name) != nullptr; }
    int64_t count(const Json &value, const char *what) const {
        if (value.kind != Json::INTEGER || value.integer < 0 || value.integer >= LARGEST_COUNT)
            fail(std::string(what) + " must be a whole number");
        return value.integer;
    }
    [[noreturn]] void fail(const std::string &problem) const { fail_format(where_, problem); }

    bool is_sparse(std::string_view name) const {
        const Json &entry = field(*manifest.find("arrays"), name), *type = entry.find("type");
        return type != nullptr && type->is("csr");
    }
    Array dense(std::string_view name) {
        const Json &entry = field(*manifest.find("arrays"), name), *type = entry.find("type");
        if (type == nullptr || !type->is("dense")) fail("an array must be dense");
        return read_array(entry, true);
    }
    CsrArray csr(std::string_view name) {
        const Json &entry = field(*manifest.find("arrays"), name);
        const std::vector<int64_t> shape = shape_of(entry);
        if (!is_sparse(name) || shape.size() != 2) fail("a CSR array is damaged");
        CsrArray found{read_array(field(entry, "data"), true), read_array(field(entry, "indices"), false),
                       read_array(field(entry, "indptr"), false), shape[0], shape[1]};
        const Array &data = found.data, &indices = found.indices, &indptr = found.indptr;
        if (!data.is_float() || data.shape.size() != 1 || indices.shape != data.shape || indptr.shape.size() != 1 ||
            indptr.n_values - 1 != found.n_rows || indices.dtype != indptr.dtype ||
            (indices.dtype != "<i4" && indices.dtype != "<i8"))
            fail("the parts of a CSR array do not match");
        if (found.start(0) != 0 || found.start(found.n_rows) != indices.n_values)
            fail("the parts of a CSR array do not match");
        for (int64_t row = 0; row < found.n_rows; ++row)
            if (found.start(row) > found.start(row + 1)) fail("a CSR array has overlapping rows");
        return found;
    }

    // The text of a list of names and their number; empty if there is none.
    bool has_list(std::string_view role) const { return field(manifest, role).kind != Json::NOTHING; }
    std::pair<Bytes, int64_t> list(std::string_view role) {
        const Json &entry = field(manifest, role);
        const int64_t n_names = count(field(entry, "count"), "the number of names");
        const Bytes text = open_entry(entry, ".json");
        if (text.size > MOST_LIST_BYTES || uint64_t(n_names) > text.size) fail("a list of names is damaged");
        return {text, n_names};
    }

    Json manifest;

  private:
    static constexpr size_t MOST_MANIFEST_BYTES = 1 << 24, MOST_LIST_BYTES = 1 << 30;
    static constexpr int64_t NEWEST_VERSION = 4;

    // Compares the hashes of all files that the manifest names.
    void verify_all(const Json &value) {
        if (value.find("file") != nullptr && value.find("sha256") != nullptr) {
            const Json &name = *value.find("file");
            open_entry(value, name.kind == Json::STRING && name.string.size() > 4 &&
                                      name.string.compare(name.string.size() - 4, 4, ".npy") == 0
                                  ? ".npy"
                                  : ".json");
            return;
        }
        for (const char *role : {"arrays", "history", "labels", "feature_names", "row_ids"})
            if (&value == &manifest && manifest.find(role) != nullptr) verify_all(*manifest.find(role));
        if (&value != &manifest)
            for (const auto &inside : value.fields) verify_all(inside.second);
    }

    static bool is_file_name(const std::string &name, const std::string &ending) {
        constexpr size_t DIGITS = 12;
        if (name.size() < ending.size() + DIGITS + 2 ||
            name.compare(name.size() - ending.size(), ending.size(), ending) != 0)
            return false;
        const size_t dash = name.size() - ending.size() - DIGITS - 1;
        for (size_t j = 0; j < dash; ++j)
            if (!(name[j] == '_' || (uint8_t(name[j]) < 128 && std::isalnum(uint8_t(name[j]))))) return false;
        for (size_t j = dash + 1; j < dash + 1 + DIGITS; ++j)
            if (!((name[j] >= '0' && name[j] <= '9') || (name[j] >= 'a' && name[j] <= 'f'))) return false;
        return name[dash] == '-';
    }

    Bytes open_entry(const Json &entry, const std::string &ending) {
        const Json *name = entry.find("file"), *size = entry.find("size"), *sha256 = entry.find("sha256");
        if (name == nullptr || name->kind != Json::STRING || !is_file_name(name->string, ending))
            fail("a file has an invalid name");
        const Bytes bytes = files_.open(name->string);
        if (size == nullptr || uint64_t(count(*size, "the size of a file")) != bytes.size)
            fail_format(files_.name_of(name->string), "the file has the wrong length");
        if (verify_ && (sha256 == nullptr || !sha256->is(Sha256::hex(bytes))))
            fail_format(files_.name_of(name->string), "the content differs from what was saved (SHA-256 mismatch)");
        return bytes;
    }

    std::vector<int64_t> shape_of(const Json &entry) const {
        const Json &found = field(entry, "shape");
        if (found.kind != Json::LIST || found.items.size() > 4) fail("an array has no valid shape");
        std::vector<int64_t> shape;
        for (const Json &length : found.items) shape.push_back(count(length, "the shape of an array"));
        return shape;
    }

    Array read_array(const Json &entry, bool finite) {
        static constexpr std::string_view TYPES[] = {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4",
                                                     "<u4", "<i8", "<u8", "<f4", "<f8"};
        Array array;
        array.shape = shape_of(entry);
        const Json *dtype = entry.find("dtype");
        if (dtype == nullptr || std::none_of(std::begin(TYPES), std::end(TYPES), [&](auto t) { return dtype->is(t); }))
            fail("an array has a type that is not allowed");
        array.dtype = dtype->string;
        const Bytes bytes = open_entry(entry, ".npy");
        const std::string where = files_.name_of(entry.find("file")->string);
        const size_t item = size_t(array.dtype[2] - '0'), start = check_header(bytes, array, where);
        const uint64_t room = (bytes.size - start) / item;
        uint64_t n_values = 1;
        for (int64_t length : array.shape) {
            if (length == 0) n_values = 0;
            if (n_values > 0 && uint64_t(length) > room / n_values) fail_format(where, "the file is too short");
            n_values *= uint64_t(length);
        }
        if (start + n_values * item != bytes.size) fail_format(where, "the file length does not match the array");
        array.data = bytes.data + start;
        array.n_values = int64_t(n_values);
        if (reinterpret_cast<uintptr_t>(array.data) % item != 0) fail_format(where, "the array is not aligned");
        if (verify_ && finite && array.is_float())
            for (int64_t j = 0; j < array.n_values; ++j)
                if (!std::isfinite(array.real(j))) fail_format(where, "an array contains NaN or infinity");
        return array;
    }

    // The header must be what NumPy writes for this type and shape. Returns where the numbers start.
    static size_t check_header(Bytes bytes, const Array &array, const std::string &where) {
        static constexpr std::string_view MAGIC("\x93NUMPY\x01\x00", 8);
        if (bytes.size < 10 || bytes.text().substr(0, 8) != MAGIC) fail_format(where, "the file is not a .npy file");
        const size_t length = bytes.data[8] | size_t(bytes.data[9]) << 8;
        std::string expected = "{'descr': '" + array.dtype + "', 'fortran_order': False, 'shape': (";
        for (size_t j = 0; j < array.shape.size(); ++j)
            expected += (j == 0 ? "" : ", ") + std::to_string(array.shape[j]);
        expected += array.shape.size() == 1 ? ",), }" : "), }";
        if (length > bytes.size - 10) fail_format(where, "the file ends within its header");
        const std::string_view header = bytes.text().substr(10, length);
        const size_t rest = header.find_first_not_of(' ', expected.size());
        if (header.substr(0, expected.size()) != expected || rest != header.size() - 1 || header[rest] != '\n')
            fail_format(where, "the header does not match the table of the model");
        return 10 + length;
    }

    ModelFiles files_;
    const bool verify_;
    std::string where_;
};

}  // namespace widemargin
