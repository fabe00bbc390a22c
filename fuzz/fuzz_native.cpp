// Fuzz the C interface: damage packed models at random, open them, predict, explain and close.
//
//     program <number of cases> <seed> <packed models...>
//
// A quarter of the cases are damaged anywhere. In the others the files inside are damaged, or numbers and words of
// model.json are replaced, and most of these are signed: sizes, hashes and the directory are corrected, as a hostile
// author would do. Every call must return a status, with a message if it fails. The current case is kept in
// fuzz/failures/native-current.wm, so that it is there after a crash or a hang.
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "native/model_file.hpp"
#include "widemargin.h"

namespace {

using widemargin::Json;
using widemargin::JsonReader;
using widemargin::Sha256;

constexpr const char *CASE = "fuzz/failures/native-current.wm";
constexpr unsigned SECONDS_PER_CASE = 20, LONGEST_WAIT = 400;
constexpr int64_t MOST_DENSE = 1 << 16;
const std::vector<std::string> WORDS = {"null",
                                        "true",
                                        "false",
                                        "-1",
                                        "0",
                                        "1",
                                        "2",
                                        "3",
                                        "7",
                                        "8",
                                        "64",
                                        "65536",
                                        "2147483647",
                                        "4294967296",
                                        "9007199254740993",
                                        "9223372036854775807",
                                        "99999999999999999999",
                                        "0.5",
                                        "1e308",
                                        "1e999",
                                        "NaN",
                                        "\"\"",
                                        "\"x\"",
                                        "\"linear\"",
                                        "\"<f4\"",
                                        "\"<f8\"",
                                        "\"<i8\"",
                                        "\"|O\"",
                                        "\"csr\"",
                                        "\"dense\"",
                                        "\"binary\"",
                                        "\"multilabel\"",
                                        "\"\\ud800\"",
                                        "\"../../etc/passwd\"",
                                        "[]",
                                        "[0]",
                                        "[2, 3]",
                                        "[4611686018427387904, 4]",
                                        "{}",
                                        "\"char\"",
                                        "\"char_wb\"",
                                        "\"word\"",
                                        "\"english\"",
                                        "[\"a\", 1]",
                                        "{\"$tuple\": [1, 1000000]}",
                                        "\"[a-\"",
                                        "\"\\\\w{3,}\"",
                                        "\"HierarchicalClassifier\"",
                                        "\"OneVsAllClassifier\"",
                                        "\"greedy\"",
                                        "\"beam\"",
                                        "\"flat\"",
                                        "\"bool\""};
const std::vector<uint64_t> NUMBERS = {0,
                                       1,
                                       2,
                                       127,
                                       255,
                                       256,
                                       65535,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       1ull << 62,
                                       1ull << 63,
                                       ~0ull,
                                       0x7ff0000000000000,
                                       0x7ff8000000000000,
                                       0x7f800000,
                                       0x3ff0000000000000};

struct File {
    std::string name, data;
};

std::mt19937_64 engine;
size_t below(size_t n) { return n == 0 ? 0 : engine() % n; }
template <class Items>
const auto &pick(const Items &items) {
    return items[below(items.size())];
}

std::string read_file(const char *path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<File> unpack(const std::string &whole) {
    uint64_t size = 0;
    std::memcpy(&size, whole.data() + 24, 8);
    const Json directory = JsonReader(std::string_view(whole).substr(64, size), "corpus").document();
    std::vector<File> files;
    for (const auto &[name, entry] : directory.find("files")->fields)
        files.push_back(
            {name, whole.substr(size_t(entry.find("offset")->integer), size_t(entry.find("size")->integer))});
    return files;
}

std::string sha256(const std::string &text) {
    return Sha256::hex({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}

void damage_bytes(std::string &data) {
    const size_t place = below(data.size() + 1), length = std::min(data.size() - place, 1 + below(8));
    switch (below(5)) {
        case 0:
            if (place < data.size()) data[place] = char(data[place] ^ (1 << below(8)));
            break;
        case 1:
            data.resize(place);
            break;
        case 2:
            data.insert(place, 1 + below(9), char(below(256)));
            break;
        case 3:
            data.erase(place, length);
            break;
        default:
            if (place < data.size()) data[place] = char(pick(std::vector<int>{0, 1, 7, 127, 128, 255}));
    }
}

// Sets an aligned number of an array, or a few of them.
void damage_numbers(std::string &data) {
    if (data.size() < 144) return;
    const size_t width = size_t(1) << below(4), n = (data.size() - 128) / width;
    for (size_t left = 1 + below(3); left > 0 && n > 0; --left) {
        const uint64_t value = pick(NUMBERS);
        std::memcpy(&data[128 + width * below(n)], &value, width);
    }
}

// Replaces a number or a string of a JSON text by another value.
void damage_value(std::string &text) {
    const size_t start = text.find_first_of("0123456789\"-tfn", below(text.size() + 1));
    if (start == std::string::npos) return;
    size_t end = start + 1;
    if (text[start] == '"') {
        while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
        end = std::min(text.size(), end + 1);
    } else {
        while (end < text.size() && (std::isalnum(uint8_t(text[end])) || text[end] == '.')) ++end;
    }
    text.replace(start, end - start, pick(WORDS));
}

// Corrects the size and hash of a file in model.json, as text: the values after its name.
void sign(std::string &manifest, const File &file) {
    const size_t name = manifest.find("\"" + file.name + "\"");
    if (name == std::string::npos) return;
    const size_t size = manifest.find("\"size\": ", name);
    if (size == std::string::npos) return;
    const size_t digits = size + 8, end = manifest.find_first_not_of("0123456789", digits);
    if (end == std::string::npos) return;
    manifest.replace(digits, end - digits, std::to_string(file.data.size()));
    const size_t hash = manifest.find("\"sha256\": \"", digits);
    if (hash != std::string::npos && hash + 75 <= manifest.size()) manifest.replace(hash + 11, 64, sha256(file.data));
}

std::string pack(const std::vector<File> &files) {
    const size_t room = 64 * (2 + 3 * files.size());
    std::string directory = "{\"files\": {", body;
    for (size_t j = 0; j < files.size(); ++j) {
        body.resize((body.size() + 63) / 64 * 64);
        directory +=
            (j == 0 ? "\"" : ", \"") + files[j].name + "\": {\"offset\": " + std::to_string(64 + room + body.size()) +
            ", \"size\": " + std::to_string(files[j].data.size()) + ", \"sha256\": \"" + sha256(files[j].data) + "\"}";
        body += files[j].data;
    }
    directory += "}}";
    if (below(6) == 0) damage_value(directory);
    directory.resize(room, ' ');
    std::string header("\x89widemargin\r\n\x1a\n\0\1\0\0\0\0\0\0\0", 24);
    const uint64_t size = room;
    header.append(reinterpret_cast<const char *>(&size), 8);
    const std::string digest = sha256(directory);
    for (size_t j = 0; j < 64; j += 2) header += char(std::stoi(digest.substr(j, 2), nullptr, 16));
    return header + directory + body;
}

std::string damaged(const std::string &valid) {
    if (below(4) == 0) {
        std::string whole = valid;
        for (size_t left = 1 + below(3); left > 0; --left) damage_bytes(whole);
        return whole;
    }
    std::vector<File> files = unpack(valid);
    File *manifest = nullptr;
    for (File &file : files)
        if (file.name == "model.json") manifest = &file;
    const bool is_signed = below(8) != 0;
    for (size_t left = 1 + below(3); left > 0; --left) {
        File &file = below(2) ? *manifest : files[below(files.size())];
        const bool is_array = file.name.find(".npy") != std::string::npos;
        if (below(4) == 0) {
            damage_bytes(file.data);
        } else {
            is_array ? damage_numbers(file.data) : damage_value(file.data);
        }
        if (is_signed && &file != manifest) sign(manifest->data, file);
    }
    return pack(files);
}

void check(wm_status status) {
    if (status != WM_OK && *wm_error_message() == '\0') std::abort();
}

// Everything that can be done with a model. Returns whether it could be opened.
bool run_case() {
    wm_model *model = nullptr;
    const wm_status status = wm_open(CASE, below(4) == 0 ? WM_VERIFY : 0, &model);
    check(status);
    if (status == WM_ERROR_INTERNAL) std::abort();
    if (status != WM_OK) return false;
    int64_t n_labels = 0, n_features = 0, labels[7];
    double scores[7], intercept, score;
    int takes_texts = 0;
    size_t n = 0, n_parts = 0, length;
    const char *name;
    wm_contribution parts[5];
    check(wm_describe(model, &n_labels, &n_features, &takes_texts));
    for (const char *text : {"", "Fresh bread and c\xc3\xa4ke engine \xce\x9f\xce\x94\xce\x9f\xce\xa3", "\xff"}) {
        check(wm_predict_text(model, text, std::strlen(text), 7, labels, scores, &n));
        check(wm_explain_text(model, text, std::strlen(text), 0, 5, parts, &n_parts, &intercept, &score));
    }
    const std::vector<int64_t> features = {n_features - 1, 0, 1, 2, 0, n_features / 2};
    const std::vector<double> values = {1.0, -2.0, 0.0, 1e300, 0.5, 1e-300};
    for (const size_t count : {size_t(0), size_t(2), features.size()}) {
        for (const size_t k : {size_t(1), size_t(7)}) {
            if (wm_predict_sparse(model, features.data(), values.data(), count, k, labels, scores, &n) != WM_OK)
                continue;
            if (n > k) std::abort();
            for (size_t j = 0; j < n; ++j) {
                if (labels[j] < 0 || labels[j] >= n_labels) std::abort();
                check(wm_label_name(model, labels[j], &name, &length));
                check(wm_explain_sparse(model, features.data(), values.data(), count, labels[j], 5, parts, &n_parts,
                                        &intercept, &score));
            }
        }
    }
    check(wm_feature_name(model, n_features - 1, &name, &length));
    if (n_features <= MOST_DENSE) {
        const std::vector<double> row(size_t(n_features), 0.25);
        check(wm_predict_dense(model, row.data(), row.size(), 7, labels, scores, &n));
        check(wm_explain_dense(model, row.data(), row.size(), n_labels - 1, 5, parts, &n_parts, &intercept, &score));
    }
    wm_close(model);
    return true;
}

void set_limits(unsigned seconds, unsigned wait) {
    itimerval limit{};
    limit.it_value.tv_sec = seconds;
    setitimer(ITIMER_PROF, &limit, nullptr);
    alarm(wait);
}

}  // namespace

int main(int n_arguments, char **arguments) {
    if (n_arguments < 4) return 2;
    const long n_cases = std::atol(arguments[1]);
    std::vector<std::string> corpus;
    for (int i = 3; i < n_arguments; ++i) corpus.push_back(read_file(arguments[i]));
    long n_opened = 0;
    for (long i = 0; i < n_cases; ++i) {
        engine.seed(std::strtoull(arguments[2], nullptr, 10) + uint64_t(i));
        const std::string data = damaged(pick(corpus));
        std::ofstream(CASE, std::ios::binary).write(data.data(), std::streamsize(data.size()));
        set_limits(SECONDS_PER_CASE, LONGEST_WAIT);
        n_opened += run_case();
    }
    set_limits(0, 0);
    std::remove(CASE);
    std::printf("native: %ld damaged models, %ld of them opened, no crash, no hang\n", n_cases, n_opened);
    return 0;
}
