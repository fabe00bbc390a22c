// Runs a libFuzzer harness on random mutations of a corpus, for compilers without libFuzzer:
//
//     program <number of inputs> <seed> <corpus files...>
//
// The current input is kept in fuzz/failures/current so that it is there after a crash; SIGPROF or SIGALRM ends a
// hang.
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr unsigned kSecondsPerInput = 10;                 // of CPU time
constexpr unsigned kLongestWait = 20 * kSecondsPerInput;  // on a busy machine, an input may wait longer than it runs
constexpr std::size_t kMaxBytes = 4096;
const std::vector<std::string> kTokens = {"\n",
                                          "\r\n",
                                          "\r",
                                          "\t",
                                          " ",
                                          std::string(1, '\0'),
                                          "\xef\xbb\xbf",
                                          "3 4 5\n",
                                          " 1:1",
                                          "0",
                                          "1",
                                          "2",
                                          "9",
                                          "-1",
                                          "+",
                                          ".",
                                          "e",
                                          ":",
                                          ",",
                                          "#",
                                          "nan",
                                          "inf",
                                          "qid:",
                                          "1e39",
                                          "1e-400",
                                          "2147483647",
                                          "99999999999999999999",
                                          "1,2"};

Bytes read_file(const char *name) {
    std::ifstream file(name, std::ios::binary);
    return Bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

class Mutator {
  public:
    Mutator(std::vector<Bytes> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), engine_(seed) {}

    Bytes next() {
        Bytes data = corpus_[below(corpus_.size())];
        for (std::size_t left = 1 + below(4); left > 0; --left) edit(data);
        data.resize(std::min(data.size(), kMaxBytes));
        return data;
    }

  private:
    std::size_t below(std::size_t n) { return engine_() % n; }

    void edit(Bytes &data) {
        const std::size_t place = below(data.size() + 1), length = std::min(data.size() - place, 1 + below(8));
        const auto at = data.begin() + static_cast<std::ptrdiff_t>(place);
        const auto end = at + static_cast<std::ptrdiff_t>(length);
        switch (below(6)) {
            case 0:
                if (place < data.size()) *at = static_cast<std::uint8_t>(below(256));
                break;
            case 1:
                data.erase(at, end);
                break;
            case 2: {
                const Bytes copy(at, end);
                data.insert(at, copy.begin(), copy.end());
                break;
            }
            case 3: {
                const Bytes &other = corpus_[below(corpus_.size())];
                data.erase(at, data.end());
                data.insert(data.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)),
                            other.end());
                break;
            }
            default: {
                const std::string &token = kTokens[below(kTokens.size())];
                data.insert(at, token.begin(), token.end());
            }
        }
    }

    std::vector<Bytes> corpus_;
    std::mt19937_64 engine_;
};

void keep(const Bytes &data) {
    std::ofstream("fuzz/failures/current", std::ios::binary)
        .write(reinterpret_cast<const char *>(data.data()), static_cast<std::streamsize>(data.size()));
}

// Ends the program if an input takes too long; 0 seconds: no limit.
void set_limits(unsigned seconds, unsigned wait) {
    itimerval limit{};
    limit.it_value.tv_sec = seconds;
    setitimer(ITIMER_PROF, &limit, nullptr);
    alarm(wait);
}

}  // namespace

int main(int n_arguments, char **arguments) {
    if (n_arguments < 4) return 2;
    const long n_inputs = std::atol(arguments[1]);
    std::vector<Bytes> corpus;
    for (int i = 3; i < n_arguments; ++i) corpus.push_back(read_file(arguments[i]));
    Mutator mutator(corpus, std::strtoull(arguments[2], nullptr, 10));
    for (long i = 0; i < n_inputs; ++i) {
        const Bytes data = mutator.next();
        keep(data);
        set_limits(kSecondsPerInput, kLongestWait);
        LLVMFuzzerTestOneInput(data.data(), data.size());
    }
    set_limits(0, 0);
    std::remove("fuzz/failures/current");
    std::printf("text_reader: %ld mutated inputs, no crash, no hang\n", n_inputs);
    return 0;
}
