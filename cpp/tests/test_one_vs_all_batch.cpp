// The batched logistic solver: frequent, rare, swapped and one-sided labels, more of them than lanes, and enough rows
// for sampled searches. Objectives and bounds are recomputed here.
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "one_vs_all/batch_logistic.hpp"
#include "one_vs_all_data.hpp"

using namespace widemargin;

namespace {

TestRows make_data(int64_t n_rows, int64_t n_cols, const std::vector<double> &shares) {
    return random_rows(6, n_rows, n_cols, shares, [n_cols](TestRows &d, auto draw) {
        for (int64_t col = static_cast<int64_t>(9 * draw()); col < n_cols;
             col += 1 + static_cast<int64_t>(40 * draw())) {
            d.add_entry(col, draw() - 0.3);
        }
    });
}

double objective(const TestRows &d, int64_t j, const float *coef, double intercept) {
    return d.objective(j, {coef, coef + d.n_cols}, intercept, 1.0, [](double m) { return std::log1p(std::exp(-m)); });
}

std::vector<float> check_labels(const TestRows &d, double prune, int n_threads) {
    const int64_t n = d.n_labels();
    const TestRows::Matrix X = d.view();
    BatchLogistic<TestRows::Matrix> solver(X, d.row_weight.data(),
                                           {1.0, 1.0, 0.0, 0.01, 1e-3, prune, 100, n_threads, false});
    TestOutputs<float> out(n, d.n_cols);
    solver.solve(d.block(), out.view());
    for (int64_t j = 0; j < n; ++j) {
        const double *b = out.bounds.data() + j * N_BOUNDS;
        const bool one_sided = d.n_positive(j) == 0 || d.n_positive(j) == d.n_rows();
        CHECK(out.converged[j] == (one_sided ? NOT_ATTAINED : CONVERGED));
        const double value = objective(d, j, out.coef.data() + j * d.n_cols, out.intercept[j]);
        CHECK(std::abs(value - b[PRIMAL]) <= 1e-9 * (1 + value));
        CHECK(b[DUAL] <= b[PRIMAL_BEFORE_PRUNING] && b[PRIMAL_BEFORE_PRUNING] <= b[PRIMAL_AT_ZERO]);
        if (!one_sided) {
            CHECK(b[PRIMAL_BEFORE_PRUNING] - b[DUAL] <= 1e-3 * b[PRIMAL_BEFORE_PRUNING]);
        }
    }
    return out.coef;
}

}  // namespace

int main() {
    std::vector<double> shares{0.0, 1.0, 0.5, 0.9};
    for (int k = 0; k < 16; ++k) shares.push_back(0.01 + 0.03 * k);
    const TestRows some = make_data(500, 60, shares), many = make_data(9000, 100, {0.001, 0.01, 0.2});
    for (double prune : {0.0, 0.05}) {
        const std::vector<float> one = check_labels(some, prune, 1);
        CHECK(one == check_labels(some, prune, 3));
    }
    check_labels(many, 0.0, 2);
    return 0;
}
