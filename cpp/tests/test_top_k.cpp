// The sort-free projections of top_k/isa_thresholds.hpp against those of top_k/projections.hpp, sums of losses and
// visits against plain loops in double, and the ascent on a small problem, for every instruction set of this machine.
#include <random>

#include "check.hpp"
#include "top_k/ascent.hpp"

using namespace widemargin;

namespace {

// Whether clipping at the thresholds gives the projection of `values`, within `tolerance` of its sum.
template <typename T>
bool is_projection(const std::vector<double> &values, const TopKTarget &target, ClassThresholds<T> found,
                   double tolerance) {
    const int64_t n = int64_t(values.size());
    std::vector<double> expected(n), work(2 * n);
    const ProjectionSet set{target.k, target.r, target.rho, false};
    const Thresholds exact = target.alpha ? top_k_simplex(values.data(), n, set, work.data())
                                          : capped_simplex(values.data(), n, set, false, work.data());
    apply_thresholds(values.data(), n, exact, expected.data());
    double scale = target.r, error = 0.0;
    for (const double v : values) scale = std::max(scale, std::abs(v));
    for (int64_t j = 0; j < n; ++j) {
        const double x = std::min(std::max(values[j] - double(found.t), 0.0), double(found.hi));
        error = std::max(error, std::abs(x - expected[j]));
    }
    return error <= tolerance * scale;
}

std::vector<double> draw_values(std::mt19937 &random, int n, int kind) {
    std::normal_distribution<double> normal;
    std::vector<double> values(n);
    for (double &v : values) v = kind == 0 ? normal(random) : kind == 1 ? std::round(normal(random)) : 1.0;
    if (kind == 3) {
        for (double &v : values) v = -std::abs(normal(random));
    }
    return values;
}

template <typename T>
void check_thresholds(const std::string &instruction_set, int n_groups) {
    const TopKKernels<T> &kernels = choose_top_k_kernels<T>(instruction_set);
    const int width = kernels.width;
    std::mt19937 random(7);
    std::vector<double> work;
    const AlignedArray<T> b = aligned_array<T>(int64_t(n_groups) * width);
    for (int trial = 0; trial < 3000; ++trial) {
        const int n = n_groups * width - trial % width;
        if (n < 1) continue;
        std::vector<double> values = draw_values(random, n, trial % 4);
        for (double &v : values) v = double(T(v));
        std::fill_n(b.get(), n_groups * width, T(ABSENT_SCORE));
        for (int j = 0; j < n; ++j) b[j] = T(values[j]);
        const double r = std::exp2(double(trial % 13) - 6.0), rho = trial % 3 == 0 ? 0.4 : 1.0;
        const TopKTarget target{1 + trial % std::min(n, 11), r, rho, trial % 2 == 0};
        const T t = T(std::uniform_real_distribution<double>(0.0, 2.0)(random));
        const ClassThresholds<T> last{t, T(trial % 5 == 0 ? 0.0 : r / double(target.k))};
        const ClassThresholds<T> found = kernels.thresholds_of(b.get(), n_groups, target, last, work);
        CHECK(is_projection(values, target, found, sizeof(T) == 4 ? 2e-6 : 1e-13));
    }
}

// Rows in which most features have their own value, other than 0, in most rows; some values are 0 or something else.
template <typename T>
struct AlikeRows {
    std::vector<T> values;
    std::vector<int32_t> cols;
    std::vector<int64_t> start{0};
    int64_t d = 23;

    explicit AlikeRows(int64_t n) {
        std::mt19937 random(5);
        for (int64_t i = 0; i < n; ++i) {
            for (int32_t f = 0; f < d; ++f) {
                const unsigned kind = f % 5 == 4 || i == 3 ? 0 : random() % 10;  // row 3 and every fifth feature are 0
                if (kind == 0) continue;
                values.push_back(kind == 1 ? T(0.1 * double(random() % 7)) : T(1 + f % 3));
                cols.push_back(f);
            }
            start.push_back(int64_t(values.size()));
        }
    }
    DataRows<T> rows() const { return {values.data(), cols.data(), start.data(), int64_t(start.size()) - 1, d, 0.5}; }
};

template <typename T>
void check_common_row() {
    const AlikeRows<T> alike(80);
    const DataRows<T> X = alike.rows();
    const CommonRow<T> common(X);
    CHECK(common.is_used());
    const DataRows<T> D = common.rows();
    CHECK(D.start[D.n_rows] < X.start[X.n_rows] / 2);
    for (int64_t i = 0; i < X.n_rows; ++i) {
        std::vector<double> x(X.n_cols), sum(common.mu().begin(), common.mu().end());
        double along = 0.0;
        for (int64_t p = X.start[i]; p < X.start[i + 1]; ++p) {
            x[X.cols[p]] = double(X.values[p]);
            along += double(X.values[p]) * double(common.mu()[X.cols[p]]);
        }
        for (int64_t p = D.start[i]; p < D.start[i + 1]; ++p) sum[D.cols[p]] += double(D.values[p]);
        for (int64_t f = 0; f < X.n_cols; ++f) CHECK(std::abs(x[f] - sum[f]) <= 1e-6);
        CHECK(std::abs(along - double(D.along[i])) <= 1e-5 * along);
    }
    AlikeRows<T> swapped(80);
    std::swap(swapped.cols[0], swapped.cols[1]);
    CHECK(!CommonRow<T>(swapped.rows()).is_used());
    const std::vector<T> ones{1, 1};
    const std::vector<int32_t> cols{0, 1};
    const std::vector<int64_t> start{0, 1, 2, 2};
    CHECK(!CommonRow<T>({ones.data(), cols.data(), start.data(), 3, 2, 0.0}).is_used());
}

// On such rows, the bounds of the ascent, from differences, and of the certificate, from the rows themselves, agree.
template <typename T>
void check_alike_rows(const std::string &instruction_set, int n_classes, const TopKLoss &loss) {
    const AlikeRows<T> alike(120);
    const DataRows<T> X = alike.rows();
    std::vector<int32_t> y(X.n_rows);
    for (int64_t i = 0; i < X.n_rows; ++i) y[i] = int32_t(i * 7 % n_classes);
    const std::vector<double> costs(X.n_rows, 0.05);
    TopKAscent<T> ascent(X, y.data(), costs.data(), {loss, n_classes, 1, 1}, instruction_set);
    double gap = 1.0;
    for (int round = 0; round < 40 && gap > 1e-3; ++round) {
        ascent.run(25, 1e9);
        const Bounds estimated = ascent.evaluate(), certified = ascent.certify(X);
        gap = (certified.primal - certified.dual) / certified.primal;
        const double tolerance = (sizeof(T) == 4 ? 1e-4 : 1e-11) * certified.primal;
        CHECK(gap > -1e-12);
        CHECK(std::abs(estimated.primal - certified.primal) <= tolerance);
        CHECK(std::abs(estimated.dual - certified.dual) <= tolerance);
        CHECK(std::abs(ascent.evaluate().primal - certified.primal) <= tolerance);
    }
    CHECK(gap <= 1e-3);
}

// Random rows, sparse or dense: the certified gap closes and is never negative.
template <typename T>
void check_ascent(const std::string &instruction_set, int n_classes, bool sparse, const TopKLoss &loss) {
    std::mt19937 random(n_classes);
    std::normal_distribution<double> normal;
    const int64_t n = 150, d = 12;
    std::vector<T> values;
    std::vector<int32_t> cols, y(n);
    std::vector<int64_t> start{0};
    std::vector<double> costs(n, 0.5);
    for (int64_t i = 0; i < n; ++i) {
        y[i] = int32_t(random() % n_classes);
        costs[i] = i % 10 == 0 ? 0.0 : 0.5;
        for (int32_t f = 0; f < d; ++f) {
            if (sparse && (i == 5 || random() % 2 == 0)) continue;  // row 5 is empty
            values.push_back(T(normal(random) + (y[i] % d == f ? 1.0 : 0.0)));
            cols.push_back(f);
        }
        start.push_back(int64_t(values.size()));
    }
    const DataRows<T> X{values.data(), sparse ? cols.data() : nullptr, sparse ? start.data() : nullptr, n, d, T(1)};
    TopKAscent<T> ascent(X, y.data(), costs.data(), {loss, n_classes, 1, 2}, instruction_set);
    double gap = 1.0;
    for (int round = 0; round < 40 && gap > 1e-3; ++round) {
        ascent.run(25, 1e9);
        ascent.evaluate();
        const Bounds bounds = ascent.certify(X);
        gap = (bounds.primal - bounds.dual) / bounds.primal;
        CHECK(gap > -1e-12);
    }
    CHECK(gap <= 1e-3);
    const DualLists dual = ascent.duals();
    TopKAscent<T> second(X, y.data(), costs.data(), {loss, n_classes, 2, 1}, instruction_set);
    second.start_from(dual.start.data(), dual.classes.data(), dual.values.data());
    second.run(1, 1e9);
    const Bounds bounds = second.certify(X);
    CHECK(bounds.primal >= bounds.dual - 1e-12);
    CHECK(second.n_visits() == 135);
}

// Rows of multiples of 1/8, sparse (row 5 is empty) or dense, in both precisions. Rows that are alike are sparse, and
// most values of a feature are the same, so that the ascent takes differences from a common row.
enum class Kind { DENSE, SPARSE, ALIKE };
struct SmallRows {
    int64_t n, d = 12;
    std::vector<float> floats;
    std::vector<double> doubles, costs;
    std::vector<int32_t> cols, y;
    std::vector<int64_t> start{0};
    bool sparse;

    SmallRows(int64_t n, int n_classes, Kind kind) : n(n), sparse(kind != Kind::DENSE) {
        std::mt19937 random(n_classes);
        for (int64_t i = 0; i < n; ++i) {
            for (int32_t f = 0; f < d; ++f) {
                if (sparse && (i == 5 || random() % (kind == Kind::ALIKE ? 6 : 2) == 0)) continue;
                const bool common = kind == Kind::ALIKE && random() % 6 != 0;
                doubles.push_back(common ? double(f % 5 - 2) / 4.0 : (double(random() % 33) - 16.0) / 8.0);
                cols.push_back(f);
            }
            start.push_back(int64_t(doubles.size()));
            costs.push_back(i % 10 == 9 ? 0.0 : 0.25);
            y.push_back(int32_t(random() % n_classes));
        }
        floats.assign(doubles.begin(), doubles.end());
    }
    template <typename Data>
    DataRows<Data> view() const {
        const Data *values;
        if constexpr (sizeof(Data) == 4) {
            values = floats.data();
        } else {
            values = doubles.data();
        }
        return {values, sparse ? cols.data() : nullptr, sparse ? start.data() : nullptr, n, d, 1.0};
    }
    // Row i with the constant feature, as d + 1 numbers.
    std::vector<double> dense(int64_t i) const {
        std::vector<double> x(d + 1, 0.0);
        for (int64_t p = start[i]; p < start[i + 1]; ++p) x[cols[p]] = doubles[p];
        x[d] = 1.0;
        return x;
    }
};

// The margins 1 + s_j − s_y of the wrong classes.
std::vector<double> margins_of(const std::vector<double> &s, int y) {
    std::vector<double> z;
    for (int j = 0; j < int(s.size()); ++j) {
        if (j != y) z.push_back(1.0 + s[j] - s[y]);
    }
    return z;
}

// Sums of losses at random weights, with weights by feature and by group, and the average of two weights.
template <typename T>
void check_losses(const std::string &instruction_set, int n_classes, Kind kind, const TopKLoss &loss) {
    const TopKKernels<T> &kernels = choose_top_k_kernels<T>(instruction_set);
    const SmallRows rows(31, n_classes, kind);
    const int n_groups = (n_classes + kernels.width - 1) / kernels.width;
    const int64_t stride = int64_t(n_groups) * kernels.width, lines = rows.d + 1;
    std::vector<uint32_t> all_groups;
    for (int g = 0; g < n_groups; ++g) all_groups.push_back(uint32_t(g));
    std::mt19937 random(3);
    for (const WeightLayout &layout : {WeightLayout{stride, kernels.width}, {kernels.width, lines * kernels.width}}) {
        const AlignedArray<T> W = aligned_array<T>(lines * stride), average = aligned_array<T>(lines * stride);
        for (int64_t k = 0; k < lines * stride; ++k) W[k] = T(int(random() % 65) - 32) / 64;
        const AlignedArray<T> scores = aligned_array<T>(rows.n * stride);
        const AlignedArray<double> exact_scores = aligned_array<double>(rows.n * stride);
        TopKStep step(loss, n_classes - 1);
        double expected = 0.0;
        for (int64_t i = 0; i < rows.n; ++i) {
            const std::vector<double> x = rows.dense(i);
            std::vector<double> s(n_classes, 0.0);
            for (int j = 0; j < n_classes; ++j) {
                for (int64_t f = 0; f < lines; ++f) {
                    s[j] += x[f] * double(W[layout.at(f, j / kernels.width) + j % kernels.width]);
                }
                scores[i * stride + j] = T(s[j]), exact_scores[i * stride + j] = s[j];
            }
            const std::vector<double> z = margins_of(s, rows.y[i]);
            expected += rows.costs[i] * step.value(z.data(), n_classes - 1);
        }
        const auto args = [&](auto X) {
            using Data = std::remove_cv_t<std::remove_reference_t<decltype(X.values[0])>>;
            return LossArgs<T, Data>{X,      rows.y.data(), rows.costs.data(), loss,   n_classes,
                                     stride, layout,        all_groups.data(), W.get()};
        };
        const auto right = [&](double found) { return std::abs(found - expected) <= 1e-12 * (1.0 + expected); };
        const auto own = args(rows.view<T>());
        CHECK(right(kernels.sum_losses(own, 0, 7) + kernels.sum_losses(own, 7, rows.n)));
        CHECK(right(kernels.exact_losses_of_floats(args(rows.view<float>()), 0, rows.n)));
        CHECK(right(kernels.exact_losses_of_doubles(args(rows.view<double>()), 0, rows.n)));
        const auto y = rows.y.data();
        const auto costs = rows.costs.data();
        CHECK(right(kernels.losses_of_scores(loss, n_classes, y, costs, rows.n, stride, scores.get())));
        CHECK(right(kernels.losses_of_exact_scores(loss, n_classes, y, costs, rows.n, stride, exact_scores.get())));
        std::fill_n(average.get(), lines * stride, T(0.5));
        kernels.average_weights(lines * stride - 1, T(0.25), W.get(), average.get());
        for (int64_t k = 0; k + 1 < lines * stride; ++k) CHECK(average[k] == T(0.375) + W[k] / 4);
        CHECK(average[lines * stride - 1] == T(0.5));
    }
}

// The same of differences from a common row μ, for W = V + μu' given as V, u and V'μ.
template <typename T>
void check_losses_of_differences(const std::string &instruction_set, int n_classes, const TopKLoss &loss) {
    const TopKKernels<T> &kernels = choose_top_k_kernels<T>(instruction_set);
    const SmallRows rows(31, n_classes, Kind::ALIKE);
    const CommonRow<T> common(rows.view<T>());
    CHECK(common.is_used());
    const DataRows<T> D = common.rows();
    const int n_groups = (n_classes + kernels.width - 1) / kernels.width;
    const int64_t stride = int64_t(n_groups) * kernels.width;
    std::vector<uint32_t> all_groups;
    for (int g = 0; g < n_groups; ++g) all_groups.push_back(uint32_t(g));
    std::mt19937 random(4);
    for (const WeightLayout &layout :
         {WeightLayout{stride, kernels.width}, {kernels.width, D.n_lines() * kernels.width}}) {
        const AlignedArray<T> V = aligned_array<T>(D.n_lines() * stride);
        for (int64_t k = 0; k < D.n_lines() * stride; ++k) V[k] = T(int(random() % 65) - 32) / 64;
        std::vector<double> W((rows.d + 1) * n_classes);
        for (int j = 0; j < n_classes; ++j) {
            const auto line = [&](int64_t f) -> T & { return V[layout.at(f, j / kernels.width) + j % kernels.width]; };
            double along = 0.0;
            for (int64_t f = 0; f <= rows.d; ++f) {
                const double mu = f < rows.d ? double(common.mu()[f]) : 0.0;
                W[f * n_classes + j] = double(line(f)) + mu * double(line(D.u_line()));
                along += mu * double(line(f));
            }
            line(D.q_line()) = T(along);
        }
        TopKStep step(loss, n_classes - 1);
        double expected = 0.0;
        for (int64_t i = 0; i < rows.n; ++i) {
            const std::vector<double> x = rows.dense(i);
            std::vector<double> s(n_classes, 0.0);
            for (int64_t f = 0; f <= rows.d; ++f) {
                for (int j = 0; j < n_classes; ++j) s[j] += x[f] * W[f * n_classes + j];
            }
            const std::vector<double> z = margins_of(s, rows.y[i]);
            expected += rows.costs[i] * step.value(z.data(), n_classes - 1);
        }
        const LossArgs<T, T> args{D,      rows.y.data(), rows.costs.data(), loss,   n_classes,
                                  stride, layout,        all_groups.data(), V.get()};
        const double found = kernels.sum_losses(args, 0, 7) + kernels.sum_losses(args, 7, rows.n);
        CHECK(std::abs(found - expected) <= 1e-12 * (1.0 + expected));
    }
}

// The dual variables (rows × classes) after exact steps of the rows in this order, from W = 0.
std::vector<double> visited_duals(const SmallRows &rows, int n_classes, const TopKLoss &loss,
                                  const std::vector<int32_t> &order) {
    const int64_t lines = rows.d + 1;
    std::vector<double> W(lines * n_classes, 0.0), duals(rows.n * n_classes, 0.0), x(n_classes - 1);
    TopKStep step(loss, n_classes - 1);
    for (const int32_t i : order) {
        const std::vector<double> row = rows.dense(i);
        std::vector<double> s(n_classes, 0.0);
        double norm = 0.0, threshold = 0.0, sum = 0.0;
        for (int64_t f = 0; f < lines; ++f) {
            norm += row[f] * row[f];
            for (int j = 0; j < n_classes; ++j) s[j] += row[f] * W[f * n_classes + j];
        }
        const std::vector<double> b = margins_of(s, rows.y[i]);  // the row's own part is 0 at its first visit
        step.maximise(b.data(), n_classes - 1, norm, rows.costs[i], threshold, x.data());
        for (int j = 0, wrong = 0; j < n_classes; ++j) {
            if (j != rows.y[i]) sum += duals[i * n_classes + j] = x[wrong++];
        }
        for (int64_t f = 0; f < lines; ++f) {
            for (int j = 0; j < n_classes; ++j) W[f * n_classes + j] -= row[f] * duals[i * n_classes + j];
            W[f * n_classes + rows.y[i]] += row[f] * sum;
        }
    }
    return duals;
}

// The first visits of all rows, one by one and as a block.
template <typename T>
void check_visits(const std::string &instruction_set, int n_classes, Kind kind, const TopKLoss &loss) {
    const SmallRows rows(40, n_classes, kind);
    const DataRows<T> X = rows.view<T>();
    if (rows.sparse) CHECK(CommonRow<T>(X).is_used() == (kind == Kind::ALIKE));
    const TopKOptions options{loss, n_classes, 1, 1};
    TopKAscent<T> one_by_one(X, rows.y.data(), rows.costs.data(), options, instruction_set);
    TopKAscent<T> block(X, rows.y.data(), rows.costs.data(), options, instruction_set);
    one_by_one.run(1, 1e9);
    const std::vector<int32_t> order = block.next_pass();
    const int64_t n = int64_t(order.size());
    CHECK(n == 36);
    std::vector<T> gram(n * n);
    for (int64_t p = 0; p < n; ++p) {
        for (int64_t q = 0; q < n; ++q) {
            const std::vector<double> a = rows.dense(order[p]), b = rows.dense(order[q]);
            for (size_t f = 0; f < a.size(); ++f) gram[p * n + q] += T(a[f] * b[f]);
        }
    }
    const AlignedArray<T> scores = aligned_array<T>(n * block.stride()), steps = aligned_array<T>(n * block.stride());
    block.visit_block(order.data(), n, gram.data(), scores.get(), steps.get());
    const std::vector<double> expected = visited_duals(rows, n_classes, loss, order);
    for (const DualLists &found : {one_by_one.duals(), block.duals()}) {
        std::vector<double> x(expected.size(), 0.0);
        for (int64_t i = 0; i < rows.n; ++i) {
            for (int64_t e = found.start[i]; e < found.start[i + 1]; ++e) {
                x[i * n_classes + found.classes[e]] = found.values[e];
            }
        }
        // Between rows that are alike, inner products are large, so a step depends more on the last bits of earlier
        // ones: with 130 classes the loop is 3e-14 from both kernels, which agree within 5e-16.
        const double tolerance = sizeof(T) == 4 ? 2e-6 : kind == Kind::ALIKE ? 1e-13 : 1e-14;
        for (size_t k = 0; k < x.size(); ++k) CHECK(std::abs(x[k] - expected[k]) <= tolerance);
    }
}

}  // namespace

int main() {
    check_common_row<float>();
    check_common_row<double>();
    for (const std::string &name : available_instruction_sets()) {
        for (const int n_groups : {1, 2, 7, 30}) {
            check_thresholds<float>(name, n_groups);
            check_thresholds<double>(name, n_groups);
        }
        for (const int n_classes : {2, 9, 26, 60, 130}) {
            const int64_t few = std::min(3, n_classes - 1);
            check_alike_rows<float>(name, n_classes, {few, true, 0.0});
            check_alike_rows<double>(name, n_classes, {few, false, 0.0});
            check_alike_rows<double>(name, n_classes, {1, false, 0.3});
            const int64_t k = std::min(4, n_classes - 1);
            for (const TopKLoss &loss : {TopKLoss{1, false, 0.0}, TopKLoss{k, true, 0.0}, TopKLoss{k, false, 0.0},
                                         TopKLoss{k, true, 0.5}, TopKLoss{k, false, 0.5}}) {
                for (const bool sparse : {false, true}) {
                    check_ascent<float>(name, n_classes, sparse, loss);
                    check_ascent<double>(name, n_classes, sparse, loss);
                }
                for (const Kind kind : {Kind::DENSE, Kind::SPARSE, Kind::ALIKE}) {
                    check_losses<float>(name, n_classes, kind, loss);
                    check_losses<double>(name, n_classes, kind, loss);
                    check_visits<float>(name, n_classes, kind, loss);
                    check_visits<double>(name, n_classes, kind, loss);
                }
                check_losses_of_differences<float>(name, n_classes, loss);
                check_losses_of_differences<double>(name, n_classes, loss);
            }
        }
    }
    return 0;
}
