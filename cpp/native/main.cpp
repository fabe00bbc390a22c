// The command-line program: texts or rows from standard input, one per line; their top labels to standard output.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "native/model_file.hpp"
#include "widemargin.h"

namespace {

constexpr const char *HELP =
    "Usage: widemargin-native MODEL [OPTIONS] < INPUT\n"
    "\n"
    "Print the top labels for each line of standard input with their scores, best label first.\n"
    "MODEL is a file written by widemargin pack, or a model folder. A model of texts takes one text per line in\n"
    "UTF-8; other models take rows of the form 'labels feature:value feature:value ...', where the labels are ignored\n"
    "and may be missing. A first line with three numbers, as in the Extreme Classification Repository, is skipped.\n"
    "\n"
    "Options:\n"
    "  -k N           Number of labels per line. [default: 5]\n"
    "  --json         Print one JSON object per line instead of tab-separated text.\n"
    "  --explain      Show the features that contribute most to each score.\n"
    "  --one-based    Features count from 1, as in svmlight files; by default from 0.\n"
    "  --verify       Check the hashes of the model first; this reads all of it.\n"
    "  --help         Show this message and exit.\n"
    "\n"
    "Scores are those of widemargin predict. A calibrated model prints scores, too, not probabilities.\n"
    "Exit codes: 0 success, 1 a failure that the message explains, 2 wrong usage.\n"
    "Example: echo 'fresh bread' | widemargin-native model.wm -k 3\n";
constexpr size_t MOST_SHOWN = 10;

struct Options {
    const char *model = nullptr;
    size_t k = 5;
    bool json = false, explain = false, one_based = false, verify = false;
};

[[noreturn]] void stop(int code, const std::string &message) {
    std::fflush(stdout);
    std::fprintf(stderr, "widemargin-native: %s\n", message.c_str());
    std::exit(code);
}

Options parse(int n_arguments, char **arguments) {
    Options options;
    for (int i = 1; i < n_arguments; ++i) {
        const std::string_view word = arguments[i];
        if (word == "--help" || word == "-h") {
            std::fputs(HELP, stdout);
            std::exit(0);
        } else if (word == "-k" || word == "--k") {
            const char *number = i + 1 < n_arguments ? arguments[++i] : "";
            char *end = nullptr;
            const long value = std::strtol(number, &end, 10);
            if (*number == '\0' || *end != '\0' || value < 1 || value > (1L << 24))
                stop(2, "-k must be a positive number; see --help");
            options.k = size_t(value);
        } else if (word == "--json") {
            options.json = true;
        } else if (word == "--explain") {
            options.explain = true;
        } else if (word == "--one-based") {
            options.one_based = true;
        } else if (word == "--verify") {
            options.verify = true;
        } else if (word.size() > 1 && word[0] == '-') {
            stop(2, "there is no option " + std::string(word) + "; see --help");
        } else if (options.model == nullptr) {
            options.model = arguments[i];
        } else {
            stop(2, "only one model can be given; see --help");
        }
    }
    if (options.model == nullptr) stop(2, "the model is missing; see --help");
    return options;
}

// A row of numbers.
struct Numbers {
    std::vector<int64_t> features;
    std::vector<double> values;
};

// Reads the features of a line; a word without a colon at its start is its labels.
Numbers parse_row(std::string_view line, bool one_based, size_t number) {
    Numbers row;
    const auto refuse = [&](std::string_view word) {
        stop(1, "line " + std::to_string(number) + ": '" + std::string(word.substr(0, 60)) +
                    "' is not of the form feature:value");
    };
    for (size_t place = 0, n_words = 0; place < line.size(); ++n_words) {
        const size_t first = line.find_first_not_of(" \t\r", place);
        if (first == line.npos) break;
        place = std::min(line.find_first_of(" \t\r", first), line.size());
        const std::string_view word = line.substr(first, place - first);
        const size_t colon = word.find(':');
        if (colon == word.npos) {
            if (n_words > 0) refuse(word);
            continue;
        }
        int64_t feature = 0;
        double value = 0;
        const char *middle = word.data() + colon, *end = word.data() + word.size();
        const auto left = std::from_chars(word.data(), middle, feature);
        const auto right = std::from_chars(middle + 1 + (middle[1] == '+'), end, value);
        if (left.ptr != middle || left.ec != std::errc() || right.ptr != end || right.ec != std::errc()) refuse(word);
        row.features.push_back(feature - one_based);
        row.values.push_back(value);
    }
    return row;
}

bool is_header(const std::string &line) {
    long long n_rows, n_features, n_labels;
    char rest;
    return std::sscanf(line.c_str(), "%lld %lld %lld %c", &n_rows, &n_features, &n_labels, &rest) == 3;
}

// Standard output in one buffer.
class Output {
  public:
    ~Output() { flush(); }
    void flush() {
        if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) std::exit(1);
        std::fflush(stdout);
        text.clear();
    }
    void add_score(double score) {  // the shortest digits that give the same number
        char digits[32];
        text.append(digits, std::to_chars(digits, digits + sizeof(digits), score).ptr);
    }
    void add_rounded(const char *format, double score) {
        char digits[32];
        text.append(digits, size_t(std::snprintf(digits, sizeof(digits), format, score)));
    }
    void add_cell(std::string_view name) {  // whatever the name has, it stays one cell
        for (const char c : name) {
            const size_t which = std::string_view("\\\t\n\r").find(c);
            if (which == std::string_view::npos) {
                text += c;
            } else {
                text += {'\\', "\\tnr"[which]};
            }
        }
    }
    void add_string(std::string_view name) {
        text += '"';
        for (const char c : name) {
            if (c == '"' || c == '\\') {
                text += {'\\', c};
            } else if (static_cast<unsigned char>(c) < 0x20) {
                char escape[8];
                text.append(escape, size_t(std::snprintf(escape, sizeof(escape), "\\u%04x", c)));
            } else {
                text += c;
            }
        }
        text += '"';
    }
    std::string text;
};

class Program {
  public:
    explicit Program(const Options &options) : options_(options), labels_(options.k), scores_(options.k) {
        check(wm_open(options.model, options.verify ? WM_VERIFY : 0, &model_));
        check(wm_describe(model_, nullptr, nullptr, &takes_texts_));
    }
    ~Program() { wm_close(model_); }

    void run() {
        std::string line;
        for (size_t number = 1; std::getline(std::cin, line); ++number) {
            number_ = number;
            if (!takes_texts_ && number == 1 && is_header(line)) continue;
            predict(line);
            if (out_.text.size() >= FLUSH_BYTES || std::cin.rdbuf()->in_avail() <= 0) out_.flush();
        }
        if (std::cin.bad()) stop(1, "standard input cannot be read");
    }

  private:
    static constexpr size_t FLUSH_BYTES = 1 << 16;

    void check(wm_status status) {
        if (status == WM_OK) return;
        out_.flush();
        stop(1, (number_ > 0 ? "line " + std::to_string(number_) + ": " : "") + wm_error_message());
    }

    void predict(const std::string &line) {
        size_t n = 0;
        if (takes_texts_) {
            check(wm_predict_text(model_, line.data(), line.size(), options_.k, labels_.data(), scores_.data(), &n));
        } else {
            row_ = parse_row(line, options_.one_based, number_);
            check(wm_predict_sparse(model_, row_.features.data(), row_.values.data(), row_.features.size(), options_.k,
                                    labels_.data(), scores_.data(), &n));
        }
        options_.json ? write_json(line, n) : write_cells(line, n);
    }

    std::string_view label_name(int64_t label) {
        const char *name;
        size_t length;
        check(wm_label_name(model_, label, &name, &length));
        return {name, length};
    }
    std::string_view feature_name(int64_t feature) {
        const char *name;
        size_t length;
        check(wm_feature_name(model_, feature, &name, &length));
        return {name, length};
    }

    // Sets: parts_. Returns the intercept.
    double explain(const std::string &line, int64_t label) {
        double intercept;
        size_t n = 0;
        parts_.resize(MOST_SHOWN);
        if (takes_texts_) {
            check(wm_explain_text(model_, line.data(), line.size(), label, MOST_SHOWN, parts_.data(), &n, &intercept,
                                  nullptr));
        } else {
            check(wm_explain_sparse(model_, row_.features.data(), row_.values.data(), row_.features.size(), label,
                                    MOST_SHOWN, parts_.data(), &n, &intercept, nullptr));
        }
        parts_.resize(std::min(n, MOST_SHOWN));
        return intercept;
    }

    void write_cells(const std::string &line, size_t n) {
        for (size_t j = 0; j < n; ++j) {
            if (j > 0) out_.text += '\t';
            out_.add_cell(label_name(labels_[j]));
            out_.text += '\t';
            out_.add_rounded("%.6g", scores_[j]);
        }
        out_.text += '\n';
        for (size_t j = 0; options_.explain && j < n; ++j) {
            const double intercept = explain(line, labels_[j]);
            out_.text += "  ";
            out_.add_cell(label_name(labels_[j]));
            out_.add_rounded(": score %+.4g\n", scores_[j]);
            for (const wm_contribution &part : parts_) {
                out_.add_rounded("    %+.4g  ", part.contribution);
                out_.add_cell(feature_name(part.feature));
                out_.text += '\n';
            }
            if (intercept != 0.0 || parts_.empty()) out_.add_rounded("    %+.4g  (intercept)\n", intercept);
        }
    }

    void write_json(const std::string &line, size_t n) {
        out_.text += "{\"labels\": [";
        for (size_t j = 0; j < n; ++j) {
            if (j > 0) out_.text += ", ";
            out_.add_string(label_name(labels_[j]));
        }
        out_.text += "], \"scores\": [";
        for (size_t j = 0; j < n; ++j) {
            if (j > 0) out_.text += ", ";
            out_.add_score(scores_[j]);
        }
        out_.text += ']';
        if (options_.explain) {
            out_.text += ", \"explanations\": [";
            for (size_t j = 0; j < n; ++j) {
                const double intercept = explain(line, labels_[j]);
                out_.text += j > 0 ? ", {\"intercept\": " : "{\"intercept\": ";
                out_.add_score(intercept);
                out_.text += ", \"features\": [";
                for (size_t i = 0; i < parts_.size(); ++i) {
                    out_.text += i > 0 ? ", {\"feature\": " : "{\"feature\": ";
                    out_.add_string(feature_name(parts_[i].feature));
                    out_.text += ", \"value\": ";
                    out_.add_score(parts_[i].value);
                    out_.text += ", \"contribution\": ";
                    out_.add_score(parts_[i].contribution);
                    out_.text += '}';
                }
                out_.text += "]}";
            }
            out_.text += ']';
        }
        out_.text += "}\n";
    }

    const Options options_;
    wm_model *model_ = nullptr;
    int takes_texts_ = 0;
    size_t number_ = 0;
    Numbers row_;
    std::vector<int64_t> labels_;
    std::vector<double> scores_;
    std::vector<wm_contribution> parts_;
    Output out_;
};

}  // namespace

int main(int n_arguments, char **arguments) {
    std::ios::sync_with_stdio(false);
    Program(parse(n_arguments, arguments)).run();
    return 0;
}
