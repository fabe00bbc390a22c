// The text reader and writer without Python: rows computed by hand, problems, pieces and numbers.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "check.hpp"
#include "text/reader.hpp"
#include "text/writer.hpp"

using namespace widemargin;

namespace {

using Xmc = TextReader<float, std::int32_t>;
using Svmlight = TextReader<double, double>;

// Feeds a text in blocks, each in its own memory, so reading one byte too far is detected.
template <typename Reader>
bool read(Reader &reader, const std::string &text, std::size_t block) {
    for (std::size_t begin = 0; begin < text.size(); begin += block) {
        const std::size_t size = std::min(block, text.size() - begin);
        char *copy = new char[size];
        std::memcpy(copy, text.data() + begin, size);
        reader.feed(copy, size);
        delete[] copy;
    }
    return reader.finish();
}

Problem problem_of(const std::string &text, const TextOptions &options, std::int64_t line) {
    Problem first = Problem::none;
    for (const std::size_t block : {text.size() + 1, std::size_t{1}, std::size_t{3}}) {
        Xmc reader(options);
        read(reader, text, block);
        CHECK(block == text.size() + 1 || reader.finding.problem == first);
        CHECK(reader.finding.line == line);
        first = reader.finding.problem;
    }
    return first;
}

void check_rows() {
    const std::string text = "# c\n3 4 3\n0,2 0:1 3:0.5\r\n 1:2 # x\n\n";
    for (const std::size_t block : {1, 2, 5, 1000}) {
        Xmc reader(TextOptions{});
        CHECK(read(reader, text, block));
        CHECK(reader.indptr.size() == 4 && reader.indptr[1] == 2 && reader.indptr[2] == 3 && reader.indptr[3] == 3);
        CHECK(reader.indices[0] == 0 && reader.indices[1] == 3 && reader.indices[2] == 1);
        CHECK(reader.data[0] == 1.0f && reader.data[1] == 0.5f && reader.data[2] == 2.0f);
        CHECK(reader.label_indptr[1] == 2 && reader.label_indptr[3] == 2 && reader.labels[1] == 2);
    }
}

// Rows handed over part by part equal the rows of the whole text, and the header still counts all of them.
void check_parts() {
    const std::string text = "3 4 3\n0,2 0:1 3:0.5\n1 1:2\n0 2:4\n";
    for (const std::size_t block : {1, 7, 1000}) {
        Xmc reader(TextOptions{});
        std::vector<float> values;
        std::int64_t n_rows = 0;
        const auto take = [&] {
            values.insert(values.end(), reader.data.data(), reader.data.data() + reader.data.size());
            const auto n_new = static_cast<std::int64_t>(reader.indptr.size()) - 1;
            n_rows += n_new;
            for (void *part :
                 {static_cast<void *>(reader.data.release()), static_cast<void *>(reader.indices.release()),
                  static_cast<void *>(reader.indptr.release()), static_cast<void *>(reader.labels.release()),
                  static_cast<void *>(reader.label_indptr.release())})
                std::free(part);
            reader.begin_new_arrays(n_new);
        };
        for (std::size_t begin = 0; begin < text.size(); begin += block) {
            reader.feed(text.data() + begin, std::min(block, text.size() - begin));
            take();
        }
        CHECK(reader.finish());
        take();
        CHECK(n_rows == 3 && values == std::vector<float>({1.0f, 0.5f, 2.0f, 4.0f}));
    }
}

void check_problems() {
    const TextOptions options;
    CHECK(problem_of("", options, 0) == Problem::empty);
    CHECK(problem_of("1 2\n", options, 1) == Problem::bad_header);
    CHECK(problem_of("1 2 3\n0 0:x\n", options, 2) == Problem::bad_value);
    CHECK(problem_of("1 2 3\n0 0:", options, 2) == Problem::bad_value);
    CHECK(problem_of("1 2 3\n0,", options, 2) == Problem::empty_label);
    CHECK(problem_of("1 2 3\n0 0:1\n0 0:1\n", options, 3) == Problem::too_many_rows);
    CHECK(problem_of("2 2 3\n0 0:1\n", options, 1) == Problem::too_few_rows);
    CHECK(problem_of(std::string("1 2 3\n0 0:1\0\n", 13), options, 2) == Problem::not_text);
    CHECK(problem_of("1 2 3\n0 0:1e39\n", options, 2) == Problem::not_finite);
}

void check_targets() {
    TextOptions options;
    options.format = TextFormat::svmlight_multilabel;
    Svmlight reader(options);
    CHECK(read(reader, "7,-2.5 3:1 1:2 3:0.25\n1:4\n", 4));
    CHECK(reader.labels.size() == 2 && reader.labels[0] == -2.5 && reader.labels[1] == 7.0);
    CHECK(reader.indices[0] == 1 && reader.indices[1] == 3 && reader.data[1] == 1.25 && reader.data[2] == 4.0);
    CHECK(reader.stats.n_unsorted_rows == 1 && reader.stats.n_duplicate_rows == 1 && reader.stats.disorder_line == 1);
}

// Small pieces on several threads give the same as one piece.
void check_pieces() {
    std::mt19937 random(0);
    std::string text = "500 1000 50\n";
    for (int row = 0; row < 500; ++row) {
        text += std::to_string(random() % 50);
        for (int index = 0; index < 1000; index += 1 + static_cast<int>(random() % 300))
            text += " " + std::to_string(index) + ":0." + std::to_string(random() % 10000);
        text += row % 7 == 0 ? " # comment\n" : "\n";
    }
    Xmc whole(TextOptions{});
    CHECK(read(whole, text, text.size()));
    for (const int n_threads : {2, 3, 8}) {
        TextOptions options;
        options.n_threads = n_threads;
        options.min_piece_bytes = 1;
        Xmc reader(options);
        CHECK(read(reader, text, 777));
        CHECK(reader.indices.size() == whole.indices.size() && reader.indptr.size() == whole.indptr.size());
        CHECK(std::memcmp(reader.data.data(), whole.data.data(), 4 * whole.data.size()) == 0);
        CHECK(std::memcmp(reader.indices.data(), whole.indices.data(), 4 * whole.indices.size()) == 0);
        CHECK(std::memcmp(reader.indptr.data(), whole.indptr.data(), 4 * whole.indptr.size()) == 0);
    }
}

// Random bit patterns survive writing and reading, and the fast path agrees with strtod.
template <typename Value, typename Bits>
void check_numbers() {
    std::mt19937_64 random(1);
    for (int trial = 0; trial < 20000; ++trial) {
        const auto bits = static_cast<Bits>(random());
        Value value;
        std::memcpy(&value, &bits, sizeof value);
        if (!std::isfinite(value)) continue;
        std::string text, by_trial;
        append_number(value, text);
        append_by_trial(value, by_trial);
        for (std::string written : {text, by_trial}) {
            double read_back = 0;
            written += '\n';
            CHECK(scan_number(written.data(), &read_back) == written.data() + written.size() - 1);
            CHECK(static_cast<Value>(read_back) == value);
            CHECK(read_back == parse_with_strtod(written.data(), written.data() + written.size() - 1));
        }
    }
}

}  // namespace

int main() {
    check_rows();
    check_parts();
    check_problems();
    check_targets();
    check_pieces();
    check_numbers<float, std::uint32_t>();
    check_numbers<double, std::uint64_t>();
    return 0;
}
