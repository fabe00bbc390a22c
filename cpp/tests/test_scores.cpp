// Top-k prediction against a brute-force sort, on small integers (all sums exact, many ties), for every storage and
// every instruction set of this machine.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "scores/compressed.hpp"
#include "scores/dense.hpp"

using namespace widemargin;

namespace {

struct Problem {
    int64_t n_rows, n_labels, n_features;
    std::vector<double> x, w, intercept;
};

Problem make_problem(std::mt19937 &random, int64_t n_rows, int64_t n_labels, int64_t n_features, double density) {
    std::uniform_int_distribution<int> value(-2, 2);
    std::bernoulli_distribution kept(density);
    Problem p{n_rows, n_labels, n_features, {}, {}, {}};
    for (int64_t i = 0; i < n_rows * n_features; ++i) p.x.push_back(kept(random) ? value(random) : 0);
    for (int64_t i = 0; i < n_labels * n_features; ++i) p.w.push_back(kept(random) ? value(random) : 0);
    for (int64_t i = 0; i < n_labels; ++i) p.intercept.push_back(value(random));
    return p;
}

template <typename T, typename I>
struct Csr {
    std::vector<T> data;
    std::vector<I> indices, indptr{0};
};

// CSR of a row-major matrix; if `reversed`, the entries of each row go from the last column to the first.
template <typename T, typename I>
Csr<T, I> to_csr(const std::vector<double> &dense, int64_t n_rows, int64_t n_columns, bool reversed) {
    Csr<T, I> csr;
    for (int64_t i = 0; i < n_rows; ++i) {
        for (int64_t j = 0; j < n_columns; ++j) {
            const int64_t column = reversed ? n_columns - 1 - j : j;
            if (dense[i * n_columns + column] == 0) continue;
            csr.data.push_back(T(dense[i * n_columns + column]));
            csr.indices.push_back(I(column));
        }
        csr.indptr.push_back(I(csr.indices.size()));
    }
    return csr;
}

std::vector<double> brute_force_scores(const Problem &p) {
    std::vector<double> scores;
    for (int64_t i = 0; i < p.n_rows; ++i)
        for (int64_t l = 0; l < p.n_labels; ++l) {
            double sum = p.intercept[l];
            for (int64_t f = 0; f < p.n_features; ++f) sum += p.x[i * p.n_features + f] * p.w[l * p.n_features + f];
            scores.push_back(sum);
        }
    return scores;
}

void check_weights(const Problem &p, const LinearWeights &weights, const RowSource &rows, int64_t k, WorkPlan plan) {
    const std::vector<double> expected = brute_force_scores(p);
    std::vector<double> scores(expected.size());
    weights.scores(rows, plan, scores.data());
    CHECK(scores == expected);

    std::vector<int64_t> labels(p.n_rows * k);
    std::vector<double> best(p.n_rows * k);
    weights.top_k(rows, k, plan, labels.data(), best.data());
    for (int64_t i = 0; i < p.n_rows; ++i) {
        const double *row = expected.data() + i * p.n_labels;
        std::vector<int64_t> order(p.n_labels);
        for (int64_t l = 0; l < p.n_labels; ++l) order[l] = l;
        std::stable_sort(order.begin(), order.end(), [row](int64_t a, int64_t b) { return row[a] > row[b]; });
        for (int64_t j = 0; j < k; ++j) {
            CHECK(labels[i * k + j] == (j < p.n_labels ? order[j] : -1));
            CHECK(best[i * k + j] == (j < p.n_labels ? row[order[j]] : -INFINITY));
        }
    }

    std::vector<int64_t> every_label, indptr{0};
    for (int64_t i = 0; i < p.n_rows; ++i) {
        for (int64_t l = 0; l < p.n_labels; ++l) every_label.push_back(l);
        indptr.push_back(int64_t(every_label.size()));
    }
    label_scores(weights, rows, every_label.data(), indptr.data(), plan, scores.data());
    CHECK(scores == expected);
}

// The index by feature; every feature with at least `least` weights gets a line.
template <typename T>
struct StoredIndex {
    std::vector<T> data, lines;
    std::vector<uint16_t> labels;
    std::vector<int64_t> starts;
    std::vector<int32_t> line_of, by_intercept;
    std::vector<double> largest;
    int64_t stride, labels_per_block, n_lines = 0;

    StoredIndex(const Problem &p, int64_t per_block, int64_t least)
        : stride((p.n_labels + LINE_STEP - 1) / LINE_STEP * LINE_STEP), labels_per_block(per_block) {
        for (int64_t f = 0; f < p.n_features; ++f) {
            int64_t count = 0;
            double most = 0;
            for (int64_t l = 0; l < p.n_labels; ++l) {
                count += weight(p, l, f) != 0;
                most = std::max(most, std::abs(weight(p, l, f)));
            }
            largest.push_back(most);
            line_of.push_back(count >= least ? int32_t(n_lines++) : -1);
            for (int64_t l = 0; l < stride && count >= least; ++l)
                lines.push_back(T(l < p.n_labels ? weight(p, l, f) : 0));
        }
        for (int64_t base = 0; base < p.n_labels; base += per_block) add_block(p, base);
        for (int64_t l = 0; l < p.n_labels; ++l) by_intercept.push_back(int32_t(l));
        for (int64_t base = 0; base < p.n_labels; base += per_block)
            std::stable_sort(by_intercept.begin() + base, by_intercept.begin() + std::min(base + per_block, p.n_labels),
                             [&p](int32_t a, int32_t b) { return p.intercept[a] > p.intercept[b]; });
    }
    FeatureIndex<T> view() const {
        return {data.data(),     labels.data(), int64_t(data.size()), starts.data(),  lines.data(),
                n_lines,         stride,        line_of.data(),       largest.data(), 1,
                labels_per_block};
    }

  private:
    static double weight(const Problem &p, int64_t l, int64_t f) { return p.w[l * p.n_features + f]; }
    void add_block(const Problem &p, int64_t base) {
        for (int64_t f = 0; f < p.n_features; ++f) {
            starts.push_back(int64_t(data.size()));
            for (int64_t l = base; l < std::min(base + labels_per_block, p.n_labels); ++l) {
                if (line_of[f] >= 0 || weight(p, l, f) == 0) continue;
                data.push_back(T(weight(p, l, f)));
                labels.push_back(uint16_t(l - base));
            }
        }
        starts.push_back(int64_t(data.size()));
    }
};

// The weights in lists; those of odd features are wide. The scale is 1/2, so that q is twice the weight.
template <typename Q>
struct StoredLists {
    std::vector<Q> values;
    std::vector<uint8_t> places;
    std::vector<ListStart> starts;
    std::vector<int64_t> bases;
    std::vector<float> scale;
    int64_t labels_per_block;

    StoredLists(const Problem &p, int64_t per_block) : scale(p.n_labels, 0.5f), labels_per_block(per_block) {
        for (int64_t base = 0; base < p.n_labels; base += per_block) {
            const int64_t entry = int64_t(values.size()), byte = int64_t(places.size());
            bases.insert(bases.end(), {entry, byte});
            for (int64_t f = 0; f < p.n_features; ++f) {
                starts.push_back({uint32_t(values.size() - entry), uint32_t(places.size() - byte)});
                int64_t last = 0;
                for (int64_t l = 0; l < std::min(per_block, p.n_labels - base); ++l) {
                    const double weight = p.w[(base + l) * p.n_features + f];
                    if (weight == 0 && l % 255 != 254) continue;  // a filler, needed or not
                    values.push_back(Q(2 * weight));
                    places.push_back(uint8_t(f % 2 ? l : l - last));
                    if (f % 2) places.push_back(uint8_t(l >> 8));
                    last = l;
                }
            }
            starts.push_back({uint32_t(values.size() - entry), uint32_t(places.size() - byte)});
        }
    }
    CompressedLists<Q> view() const {
        return {values.data(), places.data(), int64_t(values.size()), int64_t(places.size()),
                starts.data(), bases.data(),  scale.data(),           labels_per_block};
    }
};

template <typename T, typename I>
void check_storages(const Problem &p, int64_t k, int64_t labels_per_block, WorkPlan plan) {
    const std::vector<T> x(p.x.begin(), p.x.end()), w(p.w.begin(), p.w.end());
    const auto x_csr = to_csr<T, I>(p.x, p.n_rows, p.n_features, true);
    const DenseRows<T> dense_rows(x.data(), p.n_rows, p.n_features);
    const SparseRows<T, I> sparse_rows(x_csr.data.data(), x_csr.indices.data(), x_csr.indptr.data(),
                                       int64_t(x_csr.data.size()), p.n_rows, p.n_features);
    const RowSource *storages[] = {&dense_rows, &sparse_rows};
    const DenseWeights<T> dense(w.data(), p.intercept.data(), p.n_labels, p.n_features);
    for (const RowSource *rows : storages) check_weights(p, dense, *rows, k, plan);
    // Lines for all features, for some, for none.
    for (int64_t least : {int64_t{0}, p.n_labels / 4, p.n_labels + 1}) {
        const StoredIndex<T> stored(p, labels_per_block, least);
        const SparseWeights<T> sparse(stored.view(), p.intercept.data(), stored.by_intercept.data(), p.n_labels,
                                      p.n_features);
        for (const RowSource *rows : storages) check_weights(p, sparse, *rows, k, plan);
    }
    const StoredIndex<T> stored(p, labels_per_block, 0);  // for the order of its intercepts
    const StoredLists<int8_t> in_8_bits(p, labels_per_block);
    const StoredLists<int16_t> in_16_bits(p, labels_per_block);
    const CompressedWeights<int8_t> small(in_8_bits.view(), p.intercept.data(), stored.by_intercept.data(), p.n_labels,
                                          p.n_features);
    const CompressedWeights<int16_t> fine(in_16_bits.view(), p.intercept.data(), stored.by_intercept.data(), p.n_labels,
                                          p.n_features);
    for (const RowSource *rows : storages) {
        check_weights(p, small, *rows, k, plan);
        check_weights(p, fine, *rows, k, plan);
    }
}

// Sums over lines against plain loops. All numbers are multiples of 1/8, so the sums are exact in float32, too. Lines
// need not be aligned.
template <typename T>
void check_lines() {
    const LineKernels<T> kernels = choose_line_kernels<T>();
    std::mt19937 random(4);
    const auto eighths = [&random] { return (double(random() % 33) - 16.0) / 8.0; };
    for (int64_t count : {0, 8, 16, 56, 64, 72, 120, 128, 136, 248, 256, 264, 1000}) {
        for (int64_t n : {0, 1, 2, 19}) {
            std::vector<T> weights(n * (count + 3));
            std::vector<const T *> lines;
            std::vector<double> x, exact(count + 1);
            for (T &value : weights) value = T(eighths());
            for (int64_t j = 0; j < n; ++j)
                lines.push_back(weights.data() + j * (count + 3) + 1), x.push_back(eighths());
            for (double &sum : exact) sum = eighths();
            std::vector<double> expected = exact;  // the last number stays
            for (int64_t j = 0; j < n; ++j) {
                for (int64_t l = 0; l < count; ++l) expected[l] += x[j] * double(lines[j][l]);
            }
            const std::vector<float> float_x(x.begin(), x.end());
            std::vector<float> estimate(exact.begin(), exact.end());
            kernels.exact(lines.data(), x.data(), n, exact.data(), count);
            kernels.estimate(lines.data(), float_x.data(), n, estimate.data(), count);
            CHECK(exact == expected);
            CHECK(std::equal(expected.begin(), expected.end(), estimate.begin(), estimate.end()));
        }
    }
}

// An index that would make a kernel read outside its arrays is refused.
void check_bad_indices() {
    std::mt19937 random(2);
    const Problem p = make_problem(random, 3, 20, 5, 0.7);
    const auto refuses = [&p](StoredIndex<float> stored) {
        try {
            SparseWeights<float>(stored.view(), p.intercept.data(), stored.by_intercept.data(), p.n_labels,
                                 p.n_features);
        } catch (const std::invalid_argument &) {
            return true;
        }
        return false;
    };
    const StoredIndex<float> good(p, 8, 12);
    CHECK(!refuses(good));
    StoredIndex<float> bad = good;
    bad.starts[3] = int64_t(bad.data.size()) + 1;
    CHECK(refuses(bad));
    bad = good;
    bad.starts[0] = -1;
    CHECK(refuses(bad));
    bad = good;
    bad.line_of[2] = 5;
    CHECK(refuses(bad));
    bad = good;
    bad.labels_per_block = 12;
    CHECK(refuses(bad));
    bad = good;
    bad.stride = 16;
    CHECK(refuses(bad));
}

// Labels that a block does not have are written beside its sums, and are not listed.
void check_labels_out_of_range() {
    std::mt19937 random(3);
    const Problem p = make_problem(random, 4, 20, 30, 0.1);
    StoredIndex<float> stored(p, 8, p.n_labels + 1);
    std::fill(stored.labels.begin(), stored.labels.end(), uint16_t{65535});
    const SparseWeights<float> sparse(stored.view(), p.intercept.data(), stored.by_intercept.data(), p.n_labels,
                                      p.n_features);
    const DenseRows<double> rows(p.x.data(), p.n_rows, p.n_features);
    std::vector<int64_t> labels(p.n_rows * 3);
    std::vector<double> scores(p.n_rows * 3);
    sparse.top_k(rows, 3, {1, 1 << 20}, labels.data(), scores.data());
    for (int64_t label : labels) CHECK(label >= 0 && label < p.n_labels);
}

// Lists that would make a kernel read outside their arrays are refused; labels that a block does not have are not
// listed.
void check_bad_lists() {
    std::mt19937 random(5);
    const Problem p = make_problem(random, 3, 20, 6, 0.7);
    const StoredIndex<float> stored(p, 8, 0);
    const auto refuses = [&](StoredLists<int8_t> lists) {
        try {
            const CompressedWeights<int8_t> weights(lists.view(), p.intercept.data(), stored.by_intercept.data(),
                                                    p.n_labels, p.n_features);
            const DenseRows<double> rows(p.x.data(), p.n_rows, p.n_features);
            std::vector<int64_t> labels(p.n_rows * 3);
            std::vector<double> scores(p.n_rows * 3);
            weights.top_k(rows, 3, {1, 1 << 20}, labels.data(), scores.data());
            for (int64_t label : labels) CHECK(label >= 0 && label < p.n_labels);
        } catch (const std::invalid_argument &) {
            return true;
        }
        return false;
    };
    const StoredLists<int8_t> good(p, 8);
    CHECK(!refuses(good));
    StoredLists<int8_t> bad = good;
    bad.starts[2].entry = 1000;
    CHECK(refuses(bad));
    bad = good;
    bad.starts[2].byte += 1;
    CHECK(refuses(bad));
    bad = good;
    bad.bases[2] += 1;
    CHECK(refuses(bad));
    bad = good;
    bad.values.pop_back();
    CHECK(refuses(bad));
    bad = good;
    bad.labels_per_block = 12;
    CHECK(refuses(bad));
    bad = good;
    std::fill(bad.places.begin(), bad.places.end(), uint8_t{255});
    CHECK(!refuses(bad));
}

void check_bad_rows() {
    const std::vector<double> data{1.0};
    const std::vector<int32_t> indices{5}, indptr{0, 1}, falling{0, 7};
    RowBuffer buffer;
    for (const auto &[ptr, n_features] : {std::pair{&indptr, 3}, std::pair{&falling, 9}}) {
        const SparseRows<double, int32_t> rows(data.data(), indices.data(), ptr->data(), 1, 1, n_features);
        bool refused = false;
        try {
            rows.append(0, buffer);
        } catch (const std::invalid_argument &) {
            refused = true;
        }
        CHECK(refused);
    }
}

void check_storages_of_all_shapes() {
    std::mt19937 random(1);
    for (int64_t n_labels : {0, 1, 5, 17, 300})
        for (int64_t n_features : {0, 1, 9, 140})
            for (double density : {0.0, 0.05, 0.5}) {
                const Problem p = make_problem(random, 7, n_labels, n_features, density);
                check_storages<float, int32_t>(p, 3, 8, {1, 1 << 20});
                check_storages<double, int64_t>(p, 20, 64, {3, 100});
            }
    // More distinct features than a chunk of the dense kernel for sparse rows, and more rows than a block.
    check_storages<float, int32_t>(make_problem(random, 260, 20, 2500, 0.02), 2, 32, {2, 1 << 24});
    // So few non-zeros that their features are sorted, instead of counted in a bit set.
    check_storages<float, int32_t>(make_problem(random, 3, 20, 2500, 0.002), 2, 32, {1, 1 << 24});
    // So many labels that estimates pay off.
    check_storages<double, int64_t>(make_problem(random, 5, 700, 12, 0.8), 4, 256, {1, 1 << 24});
}

}  // namespace

int main() {
    for (const std::string &name : available_instruction_sets()) {
        setenv("WIDEMARGIN_ISA", name.c_str(), 1);
        check_storages_of_all_shapes();
        check_lines<float>();
        check_lines<double>();
    }
    check_bad_rows();
    check_bad_indices();
    check_labels_out_of_range();
    check_bad_lists();
    return 0;
}
