// The sort-free projections of top_k/isa_thresholds.hpp against those of top_k/projections.hpp, and the ascent on a
// small problem, for every instruction set of this machine.
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
            for (const bool sparse : {false, true}) {
                const int64_t k = std::min(4, n_classes - 1);
                for (const TopKLoss &loss : {TopKLoss{1, false, 0.0}, TopKLoss{k, true, 0.0}, TopKLoss{k, false, 0.0},
                                             TopKLoss{k, true, 0.5}, TopKLoss{k, false, 0.5}}) {
                    check_ascent<float>(name, n_classes, sparse, loss);
                    check_ascent<double>(name, n_classes, sparse, loss);
                }
            }
        }
    }
    return 0;
}
