// libFuzzer harness for the text reader: any bytes give valid arrays or a problem, for any blocks and threads.
//
// The first byte chooses the options, the second the size of the blocks, the rest is the text; fuzz_text_reader.py
// reads the same inputs. Build with clang++ -fsanitize=fuzzer,address,undefined, or with replay_main.cpp to replay
// files.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "text/reader.hpp"

using namespace widemargin;

namespace {

constexpr std::int64_t kSmallLimit = 3, kSmallCount = 5;

TextOptions decode_options(unsigned byte) {
    TextOptions options;
    options.format = static_cast<TextFormat>(byte % 3);
    options.base = static_cast<IndexBase>(static_cast<int>(byte / 3 % 3) - 1);
    options.refuse_disorder = byte / 9 % 2 == 1;
    if (byte / 36 % 2 == 1) options.max_nonzeros = kSmallLimit;
    if (byte / 72 % 2 == 1 && options.format != TextFormat::xmc) options.n_features = kSmallCount;
    return options;
}

void require(bool condition) {
    if (!condition) std::abort();
}

template <typename T>
bool same(const GrowingArray<T> &a, const GrowingArray<T> &b) {
    return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

void require_indptr(const GrowingArray<std::int32_t> &indptr, std::size_t size) {
    require(indptr[0] == 0 && static_cast<std::size_t>(indptr.back()) == size);
    for (std::size_t r = 1; r < indptr.size(); ++r) require(indptr[r - 1] <= indptr[r]);
}

template <typename Reader>
void require_valid(const Reader &reader, const TextOptions &options) {
    require_indptr(reader.indptr, reader.indices.size());
    require_indptr(reader.label_indptr, reader.labels.size());
    require(reader.indptr.size() == reader.label_indptr.size() && reader.data.size() == reader.indices.size());
    require(static_cast<std::int64_t>(reader.data.size()) <= options.max_nonzeros);
    if (options.format == TextFormat::xmc)
        require(static_cast<std::int64_t>(reader.indptr.size()) == reader.header.n_samples + 1);
    const std::int64_t count = options.format == TextFormat::xmc ? reader.header.n_features : options.n_features;
    for (std::size_t r = 1; r < reader.indptr.size(); ++r)
        for (std::int32_t i = reader.indptr[r - 1]; i < reader.indptr[r]; ++i) {
            const auto at = static_cast<std::size_t>(i);
            require(i == reader.indptr[r - 1] || reader.indices[at - 1] < reader.indices[at]);
            require(reader.indices[at] >= 0 && (count < 0 || reader.indices[at] <= count));
            require(std::isfinite(reader.data[at]));
        }
}

template <typename Value, typename Label>
void check(TextOptions options, const char *text, std::size_t size, std::size_t block) {
    TextReader<Value, Label> whole(options);
    whole.feed(text, size);
    const bool fine = whole.finish();
    if (fine) require_valid(whole, options);

    options.n_threads = 3;
    options.min_piece_bytes = 1;
    TextReader<Value, Label> blocks(options);
    for (std::size_t begin = 0; begin < size; begin += block) {
        const std::size_t length = block < size - begin ? block : size - begin;
        const std::vector<char> copy(text + begin, text + begin + length);
        if (!blocks.feed(copy.data(), length)) break;
    }
    require(blocks.finish() == fine);
    require(blocks.finding.problem == whole.finding.problem && blocks.finding.line == whole.finding.line);
    require(blocks.finding.token == whole.finding.token);
    if (!fine) return;
    require(same(blocks.indices, whole.indices) && same(blocks.data, whole.data) && same(blocks.indptr, whole.indptr));
    require(same(blocks.labels, whole.labels) && same(blocks.label_indptr, whole.label_indptr));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    if (size < 2) return 0;
    const TextOptions options = decode_options(data[0]);
    const bool wide = data[0] / 18 % 2 == 1, xmc = options.format == TextFormat::xmc;
    const auto *text = reinterpret_cast<const char *>(data) + 2;
    const std::size_t block = 1u + data[1] % 64;
    if (xmc)
        (wide ? check<double, std::int32_t> : check<float, std::int32_t>)(options, text, size - 2, block);
    else
        (wide ? check<double, double> : check<float, double>)(options, text, size - 2, block);
    return 0;
}
