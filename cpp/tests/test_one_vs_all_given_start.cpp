// Given weights: a second solve at another C from the weights of the first, and the objectives of pruned weights. Both
// are recomputed here.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "check.hpp"
#include "one_vs_all/fast.hpp"
#include "one_vs_all/stored_objective.hpp"
#include "one_vs_all_data.hpp"

using namespace widemargin;

namespace {

using Matrix = TestRows::Matrix;

// The last columns are in no row.
TestRows make_data() {
    TestRows d(160);
    std::mt19937 random(7);
    std::uniform_real_distribution<double> uniform(0, 1);
    for (int64_t i = 0; i < 1200; ++i) {
        const int length = static_cast<int>(10 * uniform(random));
        for (int k = 0; k < length; ++k) {
            const int64_t col = k * 15 + static_cast<int>(15 * uniform(random));
            d.add_entry(col, (uniform(random) - 0.3) / std::sqrt(length));
        }
        d.end_row(0.5 + uniform(random));
    }
    d.draw_labels({0.0, 0.002, 0.01, 0.03, 0.1, 0.3, 0.6, 0.995, 1.0}, [&] { return uniform(random); });
    return d;
}

double objective(const TestRows &d, int64_t j, const StoredLabel &label, double C, double prune) {
    std::vector<double> w(d.n_cols, 0.0);
    for (size_t k = 0; k < label.cols.size(); ++k) {
        if (std::abs(static_cast<double>(label.vals[k])) >= prune) w[label.cols[k]] = label.vals[k];
    }
    return d.objective(j, w, label.intercept, C, SquaredHinge::value);
}

struct Weights {
    std::vector<float> data, intercept;
    std::vector<int32_t> indices;
    std::vector<int64_t> indptr{0};
    explicit Weights(const std::vector<StoredLabel> &labels) {
        for (const StoredLabel &label : labels) {
            data.insert(data.end(), label.vals.begin(), label.vals.end());
            indices.insert(indices.end(), label.cols.begin(), label.cols.end());
            indptr.push_back(static_cast<int64_t>(data.size()));
            intercept.push_back(label.intercept);
        }
    }
    WeightsView view() const { return {data.data(), indices.data(), indptr.data(), intercept.data()}; }
};

std::vector<StoredLabel> solve(const TestRows &d, double C, int n_threads, const WeightsView &start) {
    const Matrix X = d.view();
    const LabelBlock labels = d.block();
    FastOneVsAll<Matrix> solver(X, d.row_weight.data(), {C, 1.0, 0.0, 0.01, 1e-3, 0.0, 100, n_threads, false});
    solver.begin(labels, start);
    solver.solve(0, labels.n_labels);
    return solver.take(0, labels.n_labels, false, int64_t{1} << 40);
}

void check_warm_start(const TestRows &d, double C, int n_threads, const std::vector<StoredLabel> &before) {
    const Weights start(before);
    const std::vector<StoredLabel> after = solve(d, C, n_threads, start.view());
    for (size_t j = 0; j < after.size(); ++j) {
        CHECK(after[j].converged);
        const double value = objective(d, static_cast<int64_t>(j), after[j], C, 0);
        CHECK(std::abs(value - after[j].bounds[PRIMAL]) <= 1e-9 * (1 + value));
        CHECK(after[j].bounds[PRIMAL] - after[j].bounds[DUAL] <= 1e-3 * after[j].bounds[PRIMAL]);
    }
}

// Labels in two parts with their rows of a start, in which some labels are missing: the weights of the whole.
void check_parts(const TestRows &d, int64_t cut, std::vector<StoredLabel> before) {
    for (size_t j = 0; j < before.size(); j += 2) before[j] = {};
    const Weights start(before);
    const Matrix X = d.view();
    FastOneVsAll<Matrix> solver(X, d.row_weight.data(), {2.0, 1.0, 0.0, 0.01, 1e-3, 0.0, 100, 2, false});
    solver.begin(d.block(), start.view());
    const SharedChoices all = solver.shared_choices();
    const std::vector<StoredLabel> whole = solve(d, 2.0, 2, start.view());
    for (const auto &[first, last] : {std::pair{cut, d.n_labels()}, std::pair{int64_t{0}, cut}}) {
        SharedChoices choices{{}, all.whole, BiasPrior(all.prior.sums(), all.prior.counts())};
        for (int64_t j : all.pilot) {
            CHECK(before[j].cols.empty());
            if (j >= first && j < last) choices.pilot.push_back(j - first);
        }
        WeightsView view = start.view();
        view.indptr += first;
        view.intercept += first;
        solver.begin_part(d.block(first, last), choices, view);
        solver.solve(0, last - first);
        const std::vector<StoredLabel> part = solver.take(0, last - first, false, int64_t{1} << 40);
        for (int64_t j = first; j < last; ++j) {
            CHECK(part[j - first].cols == whole[j].cols && part[j - first].vals == whole[j].vals);
            CHECK(part[j - first].intercept == whole[j].intercept && part[j - first].n_iter == whole[j].n_iter);
        }
    }
}

void check_objectives(const TestRows &d, int n_threads, std::vector<StoredLabel> labels) {
    labels[3].cols.push_back(static_cast<int32_t>(d.n_cols) - 1);  // a weight that no row uses still costs its square
    labels[3].vals.push_back(0.5f);
    const Weights weights(labels);
    const std::vector<double> thresholds{0.0, 0.05, 0.4, 100.0};
    std::vector<double> values(thresholds.size() * labels.size());
    const Matrix X = d.view();
    pruned_objectives(X, d.row_weight.data(), {3.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0, n_threads, false}, d.block(),
                      weights.view(), thresholds, values.data());
    for (size_t t = 0; t < thresholds.size(); ++t) {
        for (size_t j = 0; j < labels.size(); ++j) {
            const double expected = objective(d, static_cast<int64_t>(j), labels[j], 3.0, thresholds[t]);
            CHECK(std::abs(values[t * labels.size() + j] - expected) <= 1e-9 * (1 + expected));
        }
    }
}

}  // namespace

int main() {
    const TestRows d = make_data();
    const std::vector<StoredLabel> first = solve(d, 1.0, 1, {});
    check_warm_start(d, 4.0, 1, first);
    check_warm_start(d, 0.2, 3, first);
    check_parts(d, 4, first);
    check_objectives(d, 1, first);
    check_objectives(d, 3, first);
    return 0;
}
