// A model that is ready to predict: its weights by the kernels of cpp/scores, its tree, its vectoriser and its names.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "native/analysis.hpp"
#include "native/model_file.hpp"
#include "scores/compressed.hpp"
#include "scores/dense.hpp"
#include "scores/sparse.hpp"

namespace widemargin {

// Weights and intercepts as the kernels take them, with the arrays that they need.
class Scorer {
  public:
    virtual ~Scorer() = default;
    virtual const LinearWeights &weights() const = 0;
    // The weight of a label for a feature; entries that are stored twice are added up.
    virtual double weight(int64_t label, int64_t feature) const = 0;

  protected:
    // Labels of each block in the order of their intercepts, largest first.
    static std::vector<int32_t> order_by_intercept(const std::vector<double> &intercept, int64_t per_block) {
        const int64_t n_labels = int64_t(intercept.size());
        std::vector<int32_t> order(intercept.size());
        std::iota(order.begin(), order.end(), 0);
        for (int64_t first = 0; first < n_labels; first += per_block)
            std::stable_sort(order.begin() + first, order.begin() + std::min(n_labels, first + per_block),
                             [&](int32_t a, int32_t b) { return intercept[size_t(a)] > intercept[size_t(b)]; });
        return order;
    }
};

template <typename T>
class DenseScorer final : public Scorer {
  public:
    // `scale`: factors of the labels, or empty. They need a copy of the weights.
    DenseScorer(const Array &coef, std::vector<double> intercept, const std::vector<double> &scale)
        : intercept_(std::move(intercept)), scaled_(scale.empty() ? 0 : size_t(coef.n_values)) {
        const int64_t n_features = coef.shape[1];
        for (size_t j = 0; j < scaled_.size(); ++j)
            scaled_[j] = T(double(coef.as<T>()[j]) * scale[j / size_t(n_features)]);
        weights_ = std::make_unique<DenseWeights<T>>(scale.empty() ? coef.as<T>() : scaled_.data(), intercept_.data(),
                                                     coef.shape[0], n_features);
    }
    const LinearWeights &weights() const override { return *weights_; }
    double weight(int64_t label, int64_t feature) const override {
        return double(weights_->coef[label * weights_->n_features + feature]);
    }

  private:
    const std::vector<double> intercept_;
    std::vector<T> scaled_;
    std::unique_ptr<DenseWeights<T>> weights_;
};

// Weights by feature, from the arrays of the model or from an index that is built here.
template <typename T>
class SparseScorer final : public Scorer {
  public:
    SparseScorer(const FeatureIndex<T> &index, std::vector<double> intercept, int64_t n_features)
        : intercept_(std::move(intercept)), by_intercept_(order_by_intercept(intercept_, index.labels_per_block)) {
        finish(index, n_features);
    }

    SparseScorer(const CsrArray &coef, std::vector<double> intercept, const std::vector<double> &scale)
        : intercept_(std::move(intercept)), by_intercept_(order_by_intercept(intercept_, LABELS_PER_BLOCK)) {
        build(coef, scale);
    }

    const LinearWeights &weights() const override { return *weights_; }
    double weight(int64_t label, int64_t feature) const override {
        const FeatureIndex<T> &index = weights_->index;
        if (index.line_of[feature] >= 0) return double(index.lines[index.line_of[feature] * index.line_stride + label]);
        const int64_t block = label / index.labels_per_block, local = label - block * index.labels_per_block;
        const int64_t *starts = index.starts + block * (weights_->n_features + 1) + feature;
        double sum = 0;
        for (int64_t p = first_at_least(index.labels, starts[0], starts[1], local);
             p < starts[1] && index.labels[p] == local; ++p)
            sum += double(index.data[p]);
        return sum;
    }

  private:
    static constexpr int64_t LABELS_PER_BLOCK = 32768;

    void finish(const FeatureIndex<T> &index, int64_t n_features) {
        weights_ = std::make_unique<SparseWeights<T>>(index, intercept_.data(), by_intercept_.data(),
                                                      int64_t(intercept_.size()), n_features);
    }

    // All features have lists; scores do not depend on which have lines instead.
    void build(const CsrArray &coef, const std::vector<double> &scale) {
        const int64_t n_labels = coef.n_rows, n_features = coef.n_columns, n_stored = coef.data.n_values;
        const int64_t n_blocks = (n_labels + LABELS_PER_BLOCK - 1) / LABELS_PER_BLOCK, length = n_features + 1;
        starts_.assign(size_t(n_blocks * length), 0);
        data_.resize(size_t(n_stored));
        labels_.resize(size_t(n_stored));
        largest_.assign(size_t(n_features), 0.0);
        line_of_.assign(size_t(n_features), -1);
        const auto place = [&](int64_t label, int64_t p) -> int64_t & {
            const int64_t f = coef.index(p);
            if (f < 0 || f >= n_features) throw std::invalid_argument("a column index of the weights is out of range");
            return starts_[size_t(label / LABELS_PER_BLOCK * length + f)];
        };
        for (int64_t label = 0; label < n_labels; ++label)
            for (int64_t p = coef.start(label); p < coef.start(label + 1); ++p) ++place(label, p);
        int64_t total = 0;
        for (int64_t &start : starts_) total += std::exchange(start, total);
        for (int64_t label = 0; label < n_labels; ++label)
            for (int64_t p = coef.start(label); p < coef.start(label + 1); ++p) {
                const int64_t target = place(label, p)++;
                const T value = coef.data.as<T>()[p];
                data_[size_t(target)] = scale.empty() ? value : T(double(value) * scale[size_t(label)]);
                labels_[size_t(target)] = uint16_t(label % LABELS_PER_BLOCK);
            }
        // Each start is now that of the next list.
        for (size_t j = starts_.size(); j-- > 0;) starts_[j] = j == 0 ? 0 : starts_[j - 1];
        const int64_t most_repeats = note_largest(n_blocks, n_features);
        finish({data_.data(), labels_.data(), n_stored, starts_.data(), nullptr, 0, 0, line_of_.data(), largest_.data(),
                most_repeats, LABELS_PER_BLOCK},
               n_features);
    }

    // Sets: largest_. Returns the most entries of one label and feature.
    int64_t note_largest(int64_t n_blocks, int64_t n_features) {
        int64_t most = 1;
        for (int64_t block = 0; block < n_blocks; ++block)
            for (int64_t f = 0; f < n_features; ++f) {
                const int64_t *start = starts_.data() + block * (n_features + 1) + f;
                for (int64_t p = start[0]; p < start[1];) {
                    const int64_t first = p;
                    double sum = 0;
                    for (; p < start[1] && labels_[size_t(p)] == labels_[size_t(first)]; ++p)
                        sum += std::abs(double(data_[size_t(p)]));
                    most = std::max(most, p - first);
                    largest_[size_t(f)] = std::max(largest_[size_t(f)], sum);
                }
            }
        return most;
    }

    const std::vector<double> intercept_;
    const std::vector<int32_t> by_intercept_;
    std::vector<T> data_;
    std::vector<uint16_t> labels_;
    std::vector<int64_t> starts_;
    std::vector<int32_t> line_of_;
    std::vector<double> largest_;
    std::unique_ptr<SparseWeights<T>> weights_;
};

// Weights of 8 or 16 bits, as they are stored.
template <typename Q>
class CompressedScorer final : public Scorer {
  public:
    // `scale`: factors of the labels, or empty.
    CompressedScorer(CompressedLists<Q> lists, std::vector<double> intercept, const std::vector<double> &scale,
                     int64_t n_features)
        : intercept_(std::move(intercept)),
          by_intercept_(order_by_intercept(intercept_, lists.labels_per_block)),
          scaled_(scale.size()) {
        for (size_t j = 0; j < scale.size(); ++j) scaled_[j] = float(double(lists.scale[j]) * scale[j]);
        if (!scale.empty()) lists.scale = scaled_.data();
        weights_ = std::make_unique<CompressedWeights<Q>>(lists, intercept_.data(), by_intercept_.data(),
                                                          int64_t(intercept_.size()), n_features);
    }
    const LinearWeights &weights() const override { return *weights_; }
    double weight(int64_t label, int64_t feature) const override {
        const int64_t block = label / weights_->labels_per_block(),
                      local = label - block * weights_->labels_per_block();
        double sum = 0;
        for_each_entry(weights_->list(block, feature), [&](int64_t found, Q q) {
            if (found == local) sum += weights_->scale[size_t(label)] * double(q);
        });
        return sum;
    }

  private:
    const std::vector<double> intercept_;
    const std::vector<int32_t> by_intercept_;
    std::vector<float> scaled_;
    std::unique_ptr<CompressedWeights<Q>> weights_;
};

// The part of a tree in which predictions are searched, as `DecisionTree` in estimators/tree/model.py has it: nodes
// that are or cover the node of a class, breadth first and without the root; or the classes alone, where they compete
// at once.
class DecisionTree {
  public:
    enum Rule { GREEDY, BEAM, FLAT };

    // `parent` (n_nodes,), `class_node` (n_classes,): checked by the caller.
    DecisionTree(const std::vector<int64_t> &parent, const std::vector<int64_t> &class_node, bool follows_paths,
                 Rule rule, int64_t beam_width)
        : follows_paths(follows_paths), rule_(rule), beam_width_(beam_width) {
        std::vector<char> is_live(parent.size(), 0);
        for (int64_t node : class_node)
            for (; node > 0 && !is_live[size_t(node)]; node = follows_paths ? parent[size_t(node)] : 0)
                is_live[size_t(node)] = 1;
        std::vector<int64_t> number(parent.size(), -1);
        for (size_t node = 1; node < parent.size(); ++node) {
            if (!is_live[node]) continue;
            number[node] = int64_t(rows.size());
            rows.push_back(int64_t(node) - 1);
            this->parent.push_back(follows_paths ? number[size_t(parent[node])] : -1);
        }
        end_class_.assign(rows.size(), -1);
        for (size_t c = 0; c < class_node.size(); ++c) {
            place.push_back(number[size_t(class_node[c])]);
            if (place.back() >= 0) end_class_[size_t(place.back())] = int64_t(c);
        }
        for (const int64_t above : this->parent)
            if (above >= 0) end_class_[size_t(above)] = -1;
        for (size_t node = 0; node < rows.size(); ++node)
            if (node == 0 || this->parent[node] != this->parent[node - 1]) group_start.push_back(int64_t(node));
        group_start.push_back(int64_t(rows.size()));
        for (size_t g = 0; g + 1 < group_start.size(); ++g)
            for (int64_t node = group_start[g]; node < group_start[g + 1]; ++node) group.push_back(int64_t(g));
        std::vector<int64_t> depth;
        for (size_t node = 0; node < rows.size(); ++node) {
            depth.push_back(this->parent[node] < 0 ? 0 : depth[size_t(this->parent[node])] + 1);
            if (node == 0 || depth[node] != depth[node - 1]) level_start_.push_back(int64_t(node));
        }
        level_start_.push_back(int64_t(rows.size()));
    }

    bool is_greedy() const { return rule_ == GREEDY; }

    // Margins or sums of the paths to all nodes, from their scores.
    std::vector<double> path_scores(const std::vector<double> &scores) const {
        std::vector<double> values = rule_ == GREEDY ? leads(scores) : scores;
        for (size_t node = 0; node < values.size(); ++node) {
            if (parent[node] < 0) continue;
            const double above = values[size_t(parent[node])];
            values[node] = rule_ == GREEDY ? std::min(values[node], above) : values[node] + above;
        }
        if (rule_ == GREEDY)
            for (double &value : values) value = std::isinf(value) ? 0.0 : value;
        return values;
    }

    // The top k classes by the values of their paths, best first.
    std::vector<ScoredLabel> best_ends(const std::vector<double> &values, int64_t k) const {
        const std::vector<char> kept =
            rule_ == BEAM ? kept_by_beam(values, std::max(beam_width_, k)) : std::vector<char>(values.size(), 1);
        std::vector<ScoredLabel> found;
        for (size_t node = 0; node < values.size(); ++node)
            if (end_class_[node] >= 0 && kept[node] && values[node] > MINUS_INFINITY)
                found.push_back({values[node], end_class_[node]});
        const size_t n_found = std::min(found.size(), size_t(k));
        std::partial_sort(found.begin(), found.begin() + int64_t(n_found), found.end(), is_better);
        found.resize(n_found);
        return found;
    }

    // The best sibling of a node, the first of equals; −1 if it has none.
    int64_t sibling(const std::vector<double> &scores, int64_t node) const {
        const int64_t g = group[size_t(node)];
        int64_t best = -1;
        for (int64_t other = group_start[size_t(g)]; other < group_start[size_t(g) + 1]; ++other)
            if (other != node && (best < 0 || scores[size_t(other)] > scores[size_t(best)])) best = other;
        return best;
    }

    const bool follows_paths;
    std::vector<int64_t> rows;         // row of the weights of each node
    std::vector<int64_t> parent;       // −1 for the root
    std::vector<int64_t> place;        // node of each class here, −1 for the root
    std::vector<int64_t> group_start;  // first node of each group of siblings, and the number of nodes
    std::vector<int64_t> group;        // of each node

  private:
    // Score of each node minus the best score of its siblings; +inf for an only child.
    std::vector<double> leads(const std::vector<double> &scores) const {
        std::vector<double> found(scores.size());
        for (size_t g = 0; g + 1 < group_start.size(); ++g) {
            double best = MINUS_INFINITY, second = MINUS_INFINITY;
            for (int64_t node = group_start[g]; node < group_start[g + 1]; ++node) {
                const double score = scores[size_t(node)];
                if (score > best) {
                    second = std::exchange(best, score);
                } else if (score > second) {
                    second = score;
                }
            }
            for (int64_t node = group_start[g]; node < group_start[g + 1]; ++node) {
                const double score = scores[size_t(node)];
                found[size_t(node)] = score - (score >= best ? second : best);
            }
        }
        return found;
    }

    std::vector<char> kept_by_beam(const std::vector<double> &sums, int64_t width) const {
        std::vector<char> kept(sums.size(), 0);
        for (size_t level = 0; level + 1 < level_start_.size(); ++level) {
            const int64_t first = level_start_[level], last = level_start_[level + 1];
            std::vector<ScoredLabel> reached;
            for (int64_t node = first; node < last; ++node) {
                const int64_t above = parent[size_t(node)];
                const double value = sums[size_t(node)] == sums[size_t(node)] ? sums[size_t(node)] : MINUS_INFINITY;
                if (above < 0 || kept[size_t(above)]) reached.push_back({value, node});
            }
            if (last - first > width && int64_t(reached.size()) > width) {
                std::nth_element(reached.begin(), reached.begin() + width, reached.end(), is_better);
                reached.resize(size_t(width));
            }
            for (const ScoredLabel &node : reached) kept[size_t(node.label)] = 1;
        }
        return kept;
    }

    const Rule rule_;
    const int64_t beam_width_;
    std::vector<int64_t> end_class_, level_start_;
};

// The sum of NumPy's reductions: eight running sums in blocks of up to 128 numbers, larger ones halved.
inline double pairwise_sum(const double *x, int64_t n) {
    if (n < 8) {
        double sum = -0.0;
        for (int64_t j = 0; j < n; ++j) sum += x[j];
        return sum;
    }
    if (n <= 128) {
        double r[8];
        for (int j = 0; j < 8; ++j) r[j] = x[j];
        int64_t j = 8;
        for (; j < n - n % 8; j += 8)
            for (int i = 0; i < 8; ++i) r[i] += x[j + i];
        double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
        for (; j < n; ++j) sum += x[j];
        return sum;
    }
    const int64_t half = n / 2 - n / 2 % 8;
    return pairwise_sum(x, half) + pairwise_sum(x + half, n - half);
}

// Values divided by their Euclidean norm, in the arithmetic of `l2_normalize_rows`. `dense`: NumPy adds up the squares
// of a dense row from 0 on, and those of a sparse row from the first one on.
inline void normalize(std::vector<double> &values, bool single, bool dense) {
    double largest = 0;
    for (const double x : values) largest = std::max(largest, std::abs(x));
    if (!(largest > 0)) return;
    std::vector<double> squares(values.size());
    for (size_t j = 0; j < values.size(); ++j) {
        values[j] /= largest;
        squares[j] = values[j] * values[j];
    }
    const int64_t n = int64_t(values.size());
    const double norm =
        std::sqrt(dense ? pairwise_sum(squares.data(), n) : squares[0] + pairwise_sum(squares.data() + 1, n - 1));
    for (double &x : values) x = single ? double(float(x / norm)) : x / norm;
}

// What explains a score.
struct Explanation {
    std::vector<wm_contribution> parts;  // largest first
    double intercept = 0, score = 0;
};

class Model {
  public:
    Model(const std::string &path, bool verify) : stored_(path, verify), where_(path) {
        read_kind();
        read_weights();
        if (is_tree_) read_tree();
        if (stored_.manifest.find("attributes")->find("text") != nullptr) read_vectorizer();
    }

    int64_t n_labels() const { return n_labels_; }
    int64_t n_features() const { return n_features_; }
    bool takes_texts() const { return vectorizer_ != nullptr; }

    std::string_view label_name(int64_t label) const {
        const NameList *names = loaded(labels_, "labels", n_labels_, true);
        return names != nullptr ? (*names)[label] : number_name(label, label_type_);
    }
    std::string_view feature_name(int64_t feature) const {
        const NameList *names = loaded(features_, "feature_names", n_features_, false);
        return names != nullptr ? (*names)[feature] : number_name(feature, "int64");
    }

    Row row_of_text(std::string_view text) const {
        if (vectorizer_ == nullptr)
            throw Failure{WM_ERROR_ARGUMENT, "the model was trained on numbers, not on text; pass rows"};
        Row row = vectorizer_->row(text);
        if (normalize_) normalize(row.values, row.single, false);
        return row;
    }

    Row sparse_row(const int64_t *features, const double *values, size_t n) const {
        std::vector<std::pair<int64_t, double>> entries(n);
        for (size_t j = 0; j < n; ++j) {
            if (features[j] < 0 || features[j] >= n_features_)
                throw Failure{WM_ERROR_ARGUMENT, "feature " + std::to_string(features[j]) +
                                                     " is out of range; the model has " + std::to_string(n_features_) +
                                                     " features, from 0 on"};
            check_finite(values[j]);
            entries[j] = {features[j], values[j]};
        }
        const auto before = [](const auto &a, const auto &b) { return a.first < b.first; };
        if (!std::is_sorted(entries.begin(), entries.end(), before))
            std::stable_sort(entries.begin(), entries.end(), before);
        Row row;
        for (const auto &[feature, value] : entries) {
            if (!row.features.empty() && row.features.back() == feature) {
                row.values.back() += value;
            } else {
                row.features.push_back(feature);
                row.values.push_back(value);
            }
        }
        if (normalize_) normalize(row.values, false, false);
        return row;
    }

    std::vector<double> dense_row(const double *values, size_t n) const {
        if (int64_t(n) != n_features_)
            throw Failure{WM_ERROR_ARGUMENT, "the row has " + std::to_string(n) + " values, but the model has " +
                                                 std::to_string(n_features_) + " features"};
        for (size_t j = 0; j < n; ++j) check_finite(values[j]);
        std::vector<double> row(values, values + n);
        if (normalize_) normalize(row, false, true);
        return row;
    }

    static Row non_zeros(const std::vector<double> &values) {
        Row row;
        for (size_t j = 0; j < values.size(); ++j) {
            if (values[j] == 0.0) continue;
            row.features.push_back(int64_t(j));
            row.values.push_back(values[j]);
        }
        return row;
    }

    size_t predict(const Row &row, size_t k, int64_t *labels, double *scores) const {
        const int64_t indptr[] = {0, int64_t(row.features.size())};
        return top_k(
            SparseRows<double, int64_t>(row.values.data(), row.features.data(), indptr, indptr[1], 1, n_features_), k,
            labels, scores);
    }
    size_t predict(const std::vector<double> &row, size_t k, int64_t *labels, double *scores) const {
        return top_k(DenseRows<double>(row.data(), 1, n_features_), k, labels, scores);
    }

    // The features of the row are in increasing order, each once.
    Explanation explain(const Row &row, int64_t label) const {
        Explanation found;
        std::vector<double> products(row.features.size(), 0.0);
        const auto add = [&](int64_t output, double factor) {
            for (size_t j = 0; j < products.size(); ++j)
                products[j] += factor * (output_weight(output, row.features[j]) * row.values[j]);
            found.intercept += factor * intercept_[size_t(output)];
        };
        if (is_tree_) {
            explain_path(row, label, add, found.score);
        } else {
            const bool first_of_two = is_binary_ && label == 0;
            add(is_binary_ ? 0 : label, first_of_two ? -1.0 : 1.0);
            RowBuffer buffer = loaded_row(row);
            const double score = scorer_->weights().score(buffer, 0, is_binary_ ? 0 : label);
            found.score = first_of_two ? -score : score;
        }
        for (size_t j = 0; j < products.size(); ++j)
            if (products[j] != 0.0) found.parts.push_back({row.features[j], row.values[j], products[j]});
        std::stable_sort(found.parts.begin(), found.parts.end(), [](const auto &a, const auto &b) {
            const double x = std::abs(a.contribution), y = std::abs(b.contribution);
            return x > y || (x == x && y != y);  // an order for NaN, too, which a damaged file may have
        });
        return found;
    }

  private:
    static constexpr WorkPlan PLAN{1, int64_t(1) << 28};

    struct LazyNames {
        std::mutex lock;
        std::atomic<bool> is_read{false};
        NameList names;
        Bytes text;
        bool exists = false;
    };

    static void check_finite(double value) {
        if (!std::isfinite(value))
            throw Failure{WM_ERROR_ARGUMENT, "the row contains NaN or infinity; pass finite numbers"};
    }

    [[noreturn]] void refuse(const std::string &what) const {
        throw Failure{WM_ERROR_UNSUPPORTED, where_ + ": " + what + "; use the Python package to predict with it"};
    }

    void read_kind() {
        const Json &kind = stored_.field(stored_.manifest, "kind");
        is_tree_ = kind.is("HierarchicalClassifier");
        if (kind.is("OutputCodeClassifier")) refuse("the model is an output code, which this library does not support");
        if (!is_tree_ && !kind.is("OneVsAllClassifier") && !kind.is("TopKClassifier"))
            refuse("the model is of a kind that this library does not know");
        if (stored_.has_array("dual_coef")) refuse("the model has a kernel, which this library does not support");
        n_features_ = stored_.count(stored_.attribute("n_features"), "the number of features");
        if (n_features_ < 1) stored_.fail("the model has no features");
        const Json *scaled = stored_.parameter("normalize");
        normalize_ = scaled != nullptr && scaled->kind == Json::BOOLEAN && scaled->integer != 0;
        const Array counts = stored_.dense("label_counts");
        n_labels_ = counts.n_values;
        if (counts.shape.size() != 1 || n_labels_ < 1) stored_.fail("label_counts must be a vector");
        is_binary_ = stored_.attribute("kind").is("binary");
        if (is_binary_ && n_labels_ != 2) stored_.fail("a binary problem must have two classes");
        const Json &type = stored_.attribute("classes_dtype");
        label_type_ = type.kind == Json::STRING ? type.string : "";
        for (auto [role, names] : {std::pair{"labels", &labels_}, {"feature_names", &features_}}) {
            if (!(names->exists = stored_.has_list(role))) continue;
            const auto [text, n_names] = stored_.list(role);
            names->text = text;
            if (n_names != (names == &labels_ ? n_labels_ : n_features_))
                stored_.fail("a list of names has another length");
        }
    }

    // Names are read when they are first asked for; nullptr if there are none.
    const NameList *loaded(LazyNames &list, const char *role, int64_t n_names, bool numbers) const {
        if (!list.exists) return nullptr;
        if (!list.is_read.load(std::memory_order_acquire)) {
            const std::lock_guard<std::mutex> guard(list.lock);
            if (!list.is_read.load(std::memory_order_relaxed)) {
                NameList names;
                names.read(list.text, n_names, numbers, where_ + ": " + role);
                list.names = std::move(names);
                list.is_read.store(true, std::memory_order_release);
            }
        }
        return &list.names;
    }

    // The names of numbers that are their own: written once and kept.
    std::string_view number_name(int64_t number, const std::string &type) const {
        const std::lock_guard<std::mutex> guard(numbers_lock_);
        const bool is_real = type.rfind("float", 0) == 0;
        const std::string text =
            type == "bool" ? (number != 0 ? "True" : "False") : std::to_string(number) + (is_real ? ".0" : "");
        return *numbers_.insert(text).first;
    }

    std::vector<double> intercepts(int64_t n_outputs) {
        const Array stored = stored_.dense("intercept");
        if (!stored.is_vector(n_outputs) || !stored.is_float()) stored_.fail("intercept does not match the labels");
        std::vector<double> found(static_cast<size_t>(n_outputs));
        for (int64_t j = 0; j < n_outputs; ++j) {
            found[size_t(j)] = stored.real(j) + 0.0;  // −0.0 becomes 0.0
            if (!std::isfinite(found[size_t(j)])) stored_.fail("intercept contains NaN or infinity");
        }
        return found;
    }

    // The factors of a rank scale, which multiply 1 + score; empty without one.
    std::vector<double> scales(int64_t n_outputs) {
        const Json *q = stored_.manifest.find("attributes")->find("rank_scale");
        if (is_tree_ || q == nullptr) return {};
        if ((q->kind != Json::INTEGER && q->kind != Json::REAL) || !(q->real >= 0))
            stored_.fail("rank_scale is damaged");
        if (q->real == 0) return {};
        const Array stored = stored_.dense("label_scale");
        if (!stored.is_vector(n_outputs) || !stored.is_float()) stored_.fail("label_scale does not match the labels");
        std::vector<double> found(static_cast<size_t>(n_outputs));
        for (int64_t j = 0; j < n_outputs; ++j) {
            found[size_t(j)] = stored.real(j);
            if (!(found[size_t(j)] > 0)) stored_.fail("label_scale has factors that are not positive");
        }
        return found;
    }

    void read_weights() {
        int64_t n_outputs = is_binary_ ? 1 : n_labels_;
        if (is_tree_) {
            const Array parent = stored_.dense("tree_parent");
            if (parent.shape.size() != 1 || parent.n_values < 2) stored_.fail("the tree is damaged");
            n_outputs = parent.n_values - 1;
        }
        intercept_ = intercepts(n_outputs);
        const std::vector<double> scale = scales(n_outputs);
        for (size_t j = 0; j < scale.size(); ++j) intercept_[j] = scale[j] * (intercept_[j] + 1.0) - 1.0;
        try {
            if (is_tree_ && stored_.has_array("coef_parts")) {
                scorer_ = sparse_scorer(stored_.csr("coef_parts"), std::vector<double>(size_t(n_outputs)), {});
                read_factor(n_outputs);
            } else if (stored_.has_array("compressed_values")) {
                const bool small = stored_.dense("compressed_values").dtype == "|i1";
                scorer_ = small ? compressed<int8_t>("|i1", scale) : compressed<int16_t>("<i2", scale);
            } else if (stored_.is_sparse("coef")) {
                scorer_ = sparse_weights(scale);
            } else {
                const Array coef = stored_.dense("coef");
                if (coef.shape.size() != 2 || !coef.is_float()) stored_.fail("coef must be a matrix of floats");
                if (coef.dtype == "<f4") {
                    scorer_ = std::make_unique<DenseScorer<float>>(coef, intercept_, scale);
                } else {
                    scorer_ = std::make_unique<DenseScorer<double>>(coef, intercept_, scale);
                }
            }
        } catch (const std::invalid_argument &error) {
            stored_.fail(error.what());
        }
        if (scorer_->weights().n_labels != n_outputs || scorer_->weights().n_features != n_features_)
            stored_.fail("the weights do not match the labels and features");
    }

    std::unique_ptr<Scorer> sparse_scorer(const CsrArray &coef, std::vector<double> intercept,
                                          const std::vector<double> &scale) {
        // As in the Python reader: a small file must not claim any number of columns.
        const int64_t n_bytes = 12 * coef.data.n_values + 4 * coef.n_rows;
        if (coef.n_rows != int64_t(intercept.size()) || coef.n_columns != n_features_)
            stored_.fail("the weights do not match the labels and features");
        if (coef.n_columns > std::max<int64_t>(int64_t(1) << 27, n_bytes << 10))
            stored_.fail("the weights have too many columns for their number of values");
        if (coef.data.dtype == "<f4") return std::make_unique<SparseScorer<float>>(coef, std::move(intercept), scale);
        return std::make_unique<SparseScorer<double>>(coef, std::move(intercept), scale);
    }

    std::unique_ptr<Scorer> sparse_weights(const std::vector<double> &scale) {
        const CsrArray coef = stored_.csr("coef");
        const Json *numbers = stored_.manifest.find("attributes")->find("feature_index");
        if (numbers == nullptr) return sparse_scorer(coef, intercept_, scale);
        if (coef.n_rows != int64_t(intercept_.size()) || coef.n_columns != n_features_)
            stored_.fail("the weights do not match the labels and features");
        return coef.data.dtype == "<f4" ? indexed<float>(*numbers, coef) : indexed<double>(*numbers, coef);
    }

    // The index by feature that the model has.
    template <typename T>
    std::unique_ptr<Scorer> indexed(const Json &numbers, const CsrArray &coef) {
        const Array data = stored_.dense("feature_index_data"), labels = stored_.dense("feature_index_labels");
        const Array starts = stored_.dense("feature_index_starts"), lines = stored_.dense("feature_index_lines");
        const Array line_of = stored_.dense("feature_index_line_of"), largest = stored_.dense("feature_index_largest");
        const int64_t per_block = stored_.count(stored_.field(numbers, "labels_per_block"), "labels_per_block");
        const int64_t most_repeats = stored_.count(stored_.field(numbers, "most_repeats"), "most_repeats");
        const int64_t n_labels = coef.n_rows;
        if (per_block < LINE_STEP || most_repeats < 1 || most_repeats > std::max<int64_t>(1, coef.data.n_values))
            stored_.fail("the index by feature is damaged");
        const int64_t n_blocks = (n_labels + per_block - 1) / per_block;
        const int64_t padded = (n_labels + LINE_STEP - 1) / LINE_STEP * LINE_STEP;
        if (data.dtype != coef.data.dtype || !data.is_vector(labels.n_values) || labels.dtype != "<u2" ||
            !labels.is_vector(labels.n_values) || labels.n_values > coef.data.n_values || starts.dtype != "<i8" ||
            starts.shape != std::vector<int64_t>{n_blocks, n_features_ + 1} || lines.dtype != data.dtype ||
            lines.shape.size() != 2 || lines.shape[1] != padded || line_of.dtype != "<i4" ||
            !line_of.is_vector(n_features_) || largest.dtype != "<f8" || !largest.is_vector(n_features_))
            stored_.fail("the arrays of the index by feature do not match");
        const FeatureIndex<T> index{data.as<T>(),         labels.as<uint16_t>(), labels.n_values, starts.as<int64_t>(),
                                    lines.as<T>(),        lines.shape[0],        padded,          line_of.as<int32_t>(),
                                    largest.as<double>(), most_repeats,          per_block};
        return std::make_unique<SparseScorer<T>>(index, intercept_, n_features_);
    }

    template <typename Q>
    std::unique_ptr<Scorer> compressed(const char *dtype, const std::vector<double> &scale) {
        const Array values = stored_.dense("compressed_values"), places = stored_.dense("compressed_places");
        const Array starts = stored_.dense("compressed_starts"), bases = stored_.dense("compressed_bases");
        const Array scales = stored_.dense("compressed_scale");
        const Json &facts = stored_.attribute("compression");
        const int64_t per_block = stored_.count(stored_.field(facts, "labels_per_block"), "labels_per_block");
        const int64_t n_labels = int64_t(intercept_.size());
        if (per_block < LINE_STEP || per_block > MOST_LOCAL_LABELS) stored_.fail("labels_per_block is damaged");
        const int64_t n_blocks = (n_labels + per_block - 1) / per_block;
        if (values.dtype != dtype || values.shape.size() != 1 || places.dtype != "|u1" || places.shape.size() != 1 ||
            starts.dtype != "<u4" || starts.shape != std::vector<int64_t>{n_blocks, n_features_ + 1, 2} ||
            bases.dtype != "<i8" || bases.shape != std::vector<int64_t>{n_blocks, 2} || scales.dtype != "<f4" ||
            !scales.is_vector(n_labels))
            stored_.fail("the arrays of the compressed weights do not match");
        const CompressedLists<Q> lists{
            values.as<Q>(),         places.as<uint8_t>(), values.n_values,    places.n_values,
            starts.as<ListStart>(), bases.as<int64_t>(),  scales.as<float>(), per_block};
        return std::make_unique<CompressedScorer<Q>>(lists, intercept_, scale, n_features_);
    }

    // W = Rᵀ diag(pivots)⁻¹ Z, where R is stored by the paths from each node up: problems/tree_factor.py.
    void read_factor(int64_t m) {
        factor_R_ = stored_.dense("factor_R");
        const Array pivots = stored_.dense("pivots");
        if (pivots.dtype != "<f8" || !pivots.is_vector(m) || factor_R_.dtype != "<f8" || factor_R_.shape.size() != 1)
            stored_.fail("the weight factor does not match the tree");
        for (int64_t j = 0; j < m; ++j) {
            if (!(pivots.real(j) > 0)) stored_.fail("the weight factor does not match the tree");
            pivot_inverse_.push_back(1.0 / pivots.real(j));
        }
    }

    std::vector<int64_t> integers(const char *name) {
        const Array stored = stored_.dense(name);
        if (stored.shape.size() != 1 || stored.dtype != "<i8")
            stored_.fail(std::string(name) + " must be a vector of int64");
        return {stored.as<int64_t>(), stored.as<int64_t>() + stored.n_values};
    }

    void read_tree() {
        parent_ = integers("tree_parent");
        const std::vector<int64_t> class_node = integers("class_node");
        const int64_t n_nodes = int64_t(parent_.size());
        for (int64_t node = 0; node < n_nodes; ++node) {
            const int64_t above = parent_[size_t(node)], before = node > 1 ? parent_[size_t(node) - 1] : 0;
            if (node == 0 ? above != -1 : above < before || above >= node)
                stored_.fail("the nodes of the tree must be numbered breadth first");
        }
        std::vector<char> used(parent_.size(), 0);
        for (const int64_t node : class_node)
            if (node < 0 || node >= n_nodes || used[size_t(node)]++) stored_.fail("a class is not a node of the tree");
        if (int64_t(class_node.size()) != n_labels_) stored_.fail("the classes do not match the tree");
        const auto word = [&](const char *name) {
            const Json *found = stored_.parameter(name);
            return found != nullptr && found->kind == Json::STRING ? found->string : std::string();
        };
        const std::string method = word("method"), decision = word("decision");
        const bool follows_paths = method == "orthogonal" || method == "per-node" || method == "similarity";
        if (!follows_paths && method != "flat" && method != "tree-loss") stored_.fail("the method is not known");
        if (!follows_paths && used[0]) stored_.fail("the root cannot be a class");
        const bool greedy = decision == "greedy" || (decision == "auto" && follows_paths);
        if (!greedy && decision != "beam" && decision != "flat" && decision != "auto")
            stored_.fail("the decision rule is not known");
        const Json *width = stored_.parameter("beam_width");
        const int64_t beam_width = width == nullptr ? 10 : stored_.count(*width, "beam_width");
        tree_ = std::make_unique<DecisionTree>(parent_, class_node, follows_paths,
                                               greedy               ? DecisionTree::GREEDY
                                               : decision == "beam" ? DecisionTree::BEAM
                                                                    : DecisionTree::FLAT,
                                               beam_width);
        if (pivot_inverse_.empty()) return;
        int64_t n_pairs = 0;
        std::vector<int64_t> depth(parent_.size(), 0);
        for (size_t node = 1; node < parent_.size(); ++node) {
            depth[node] = depth[size_t(parent_[node])] + 1;
            path_start_.push_back(n_pairs);
            if (depth[node] > factor_R_.n_values - n_pairs) stored_.fail("the weight factor does not match the tree");
            n_pairs += depth[node];
        }
        path_start_.push_back(n_pairs);
        if (n_pairs != factor_R_.n_values) stored_.fail("the weight factor does not match the tree");
    }

    void read_vectorizer() {
        const Json &text = stored_.attribute("text");
        const NameList *terms = loaded(features_, "feature_names", n_features_, false);
        if (terms == nullptr) stored_.fail("the terms of the vectoriser are missing");
        const bool has_idf = stored_.has_array("text_idf");
        const Array idf = has_idf ? stored_.dense("text_idf") : Array();
        std::random_device device;
        const uint64_t seed = uint64_t(device()) << 32 | device();
        vectorizer_ = std::make_unique<Vectorizer>(stored_.field(text, "options"), *terms, has_idf ? &idf : nullptr,
                                                   seed, where_);
    }

    size_t top_k(const RowSource &row, size_t wanted, int64_t *labels, double *scores) const {
        if (wanted < 1) throw Failure{WM_ERROR_ARGUMENT, "k must be at least 1"};
        const int64_t k = int64_t(std::min<uint64_t>(wanted, uint64_t(n_labels_)));
        if (is_tree_) {
            const int64_t width = int64_t(std::min<uint64_t>(wanted, uint64_t(1) << 62));
            const auto found = tree_->best_ends(tree_->path_scores(node_scores(row)), width);
            for (size_t j = 0; j < found.size(); ++j) labels[j] = found[j].label, scores[j] = found[j].score;
            return found.size();
        }
        if (is_binary_) {  // two classes have the scores −s and s
            double score;
            scorer_->weights().scores(row, PLAN, &score);
            const int64_t top = score > 0;
            for (int64_t j = 0; j < k; ++j) {
                labels[j] = j == 0 ? top : 1 - top;
                scores[j] = labels[j] == 1 ? score : -score;
            }
            return size_t(k);
        }
        scorer_->weights().top_k(row, k, PLAN, labels, scores);
        return size_t(k);
    }

    // Scores of the nodes of the decision tree.
    std::vector<double> node_scores(const RowSource &row) const {
        std::vector<double> all(intercept_.size()), found;
        scorer_->weights().scores(row, PLAN, all.data());
        if (!pivot_inverse_.empty()) {
            for (size_t j = 0; j < all.size(); ++j) all[j] *= pivot_inverse_[j];
            std::vector<double> sums(all.size(), 0.0);
            std::vector<int64_t> path;
            for (size_t j = 0; j < all.size(); ++j) {
                path.clear();
                for (int64_t row = int64_t(j); row >= 0; row = parent_[size_t(row) + 1] - 1) path.push_back(row);
                // From the top node down, which is the order of the columns of Rᵀ.
                for (size_t t = path.size(); t-- > 0;)
                    sums[j] += factor_R_.as<double>()[path_start_[j] + int64_t(t)] * all[size_t(path[t])];
            }
            for (size_t j = 0; j < all.size(); ++j) all[j] = sums[j] + intercept_[j];
        }
        for (const int64_t r : tree_->rows) found.push_back(all[size_t(r)]);
        return found;
    }

    double output_weight(int64_t output, int64_t feature) const {
        if (pivot_inverse_.empty()) return scorer_->weight(output, feature);
        double sum = 0;
        int64_t place = path_start_[size_t(output)];
        for (int64_t row = output; row >= 0; row = parent_[size_t(row) + 1] - 1, ++place)
            sum += factor_R_.as<double>()[place] * pivot_inverse_[size_t(row)] * scorer_->weight(row, feature);
        return sum;
    }

    static RowBuffer loaded_row(const Row &row) {
        RowBuffer buffer;
        buffer.features.assign(row.features.begin(), row.features.end());
        buffer.values.assign(row.values.begin(), row.values.end());
        buffer.starts.push_back(int64_t(row.features.size()));
        return buffer;
    }

    // The score of a path: the sum along it, or the lead of its weakest node over the best sibling.
    template <class Add>
    void explain_path(const Row &row, int64_t label, Add add, double &score) const {
        const int64_t indptr[] = {0, int64_t(row.features.size())};
        const std::vector<double> scores = node_scores(
            SparseRows<double, int64_t>(row.values.data(), row.features.data(), indptr, indptr[1], 1, n_features_));
        const int64_t end = tree_->place[size_t(label)];
        score = end < 0 ? 0.0 : tree_->path_scores(scores)[size_t(end)];
        std::vector<int64_t> nodes;
        for (int64_t node = end; node >= 0; node = tree_->parent[size_t(node)]) nodes.push_back(node);
        std::reverse(nodes.begin(), nodes.end());
        int64_t weakest = -1, rival = -1;
        for (const int64_t node : nodes) {
            if (!tree_->is_greedy()) {
                add(tree_->rows[size_t(node)], 1.0);
                continue;
            }
            const int64_t sibling = tree_->sibling(scores, node);
            if (sibling < 0) continue;
            const auto lead = [&](int64_t a, int64_t b) { return scores[size_t(a)] - scores[size_t(b)]; };
            if (weakest < 0 || lead(node, sibling) < lead(weakest, rival)) weakest = node, rival = sibling;
        }
        if (weakest < 0) return;
        add(tree_->rows[size_t(weakest)], 1.0);
        add(tree_->rows[size_t(rival)], -1.0);
    }

    StoredModel stored_;
    const std::string where_;
    bool is_tree_ = false, is_binary_ = false, normalize_ = false;
    int64_t n_labels_ = 0, n_features_ = 0;
    std::string label_type_;
    std::vector<double> intercept_;
    std::unique_ptr<Scorer> scorer_;
    std::unique_ptr<DecisionTree> tree_;
    std::vector<int64_t> parent_, path_start_;
    std::vector<double> pivot_inverse_;
    Array factor_R_;
    std::unique_ptr<Vectorizer> vectorizer_;
    mutable LazyNames labels_, features_;
    mutable std::mutex numbers_lock_;
    mutable std::set<std::string> numbers_;
};

}  // namespace widemargin
