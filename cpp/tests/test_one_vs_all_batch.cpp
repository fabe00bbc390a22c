// The batched logistic solver under the sanitizers: frequent, rare, turned and one-sided labels, more of them than
// lanes, enough rows for sampled searches; objectives and bounds recomputed here.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"
#include "one_vs_all/batch_logistic.hpp"
#include "one_vs_all/matrix.hpp"

using namespace widemargin;

namespace {

using Rows = CsrView<float, int32_t>;

struct Data {
    int64_t n_rows, n_cols;
    std::vector<float> data;
    std::vector<int32_t> indices, indptr{0};
    std::vector<int64_t> positive_rows, positive_indptr{0};
    Rows view() const { return {data.data(), indices.data(), indptr.data(), n_rows, n_cols}; }
    int64_t n_labels() const { return static_cast<int64_t>(positive_indptr.size()) - 1; }
};

Data make_data(int64_t n_rows, int64_t n_cols, const std::vector<double> &shares) {
    Data d{n_rows, n_cols, {}, {}, {0}, {}, {0}};
    std::mt19937 random(6);
    std::uniform_real_distribution<double> uniform(0, 1);
    for (int64_t i = 0; i < n_rows; ++i) {
        for (int64_t col = static_cast<int64_t>(9 * uniform(random)); col < n_cols;
             col += 1 + static_cast<int64_t>(40 * uniform(random))) {
            d.indices.push_back(static_cast<int32_t>(col));
            d.data.push_back(static_cast<float>(uniform(random) - 0.3));
        }
        d.indptr.push_back(static_cast<int32_t>(d.data.size()));
    }
    for (double share : shares) {
        for (int64_t i = 0; i < n_rows; ++i) {
            if (uniform(random) < share) d.positive_rows.push_back(i);
        }
        d.positive_indptr.push_back(static_cast<int64_t>(d.positive_rows.size()));
    }
    return d;
}

double objective(const Data &d, int64_t j, const float *coef, double intercept) {
    std::vector<double> w(coef, coef + d.n_cols), y(d.n_rows, -1.0);
    double value = 0;
    for (double x : w) value += 0.5 * x * x;
    for (int64_t k = d.positive_indptr[j]; k < d.positive_indptr[j + 1]; ++k) y[d.positive_rows[k]] = 1;
    for (int64_t i = 0; i < d.n_rows; ++i) {
        value += std::log1p(std::exp(-y[i] * (d.view().row_dot(i, w.data()) + intercept)));
    }
    return value;
}

std::vector<float> check_labels(const Data &d, double prune, int n_threads) {
    const int64_t n = d.n_labels();
    const std::vector<double> weight(d.n_rows, 1.0), ones(n, 1.0);
    const Rows X = d.view();
    const BatchLogistic<Rows> solver(X, weight.data(), {1.0, 1.0, 0.0, 0.01, 1e-3, prune, 100, n_threads, false});
    std::vector<float> coef(n * d.n_cols, 0.0f), intercept(n, 0.0f);
    std::vector<double> bounds(n * N_BOUNDS, 0.0);
    std::vector<int64_t> n_iter(n, 0);
    std::vector<uint8_t> ending(n, 0);
    solver.solve({n, d.positive_rows.data(), d.positive_indptr.data(), weight.data(), ones.data(), ones.data()},
                 {coef.data(), intercept.data(), bounds.data(), n_iter.data(), ending.data()});
    for (int64_t j = 0; j < n; ++j) {
        const double *b = bounds.data() + j * N_BOUNDS;
        const int64_t n_positive = d.positive_indptr[j + 1] - d.positive_indptr[j];
        CHECK(ending[j] == (n_positive == 0 || n_positive == d.n_rows ? NOT_ATTAINED : CONVERGED));
        const double value = objective(d, j, coef.data() + j * d.n_cols, intercept[j]);
        CHECK(std::abs(value - b[PRIMAL]) <= 1e-9 * (1 + value));
        CHECK(b[DUAL] <= b[PRIMAL_BEFORE_PRUNING] && b[PRIMAL_BEFORE_PRUNING] <= b[PRIMAL_AT_ZERO]);
        if (ending[j] == CONVERGED) {
            CHECK(b[PRIMAL_BEFORE_PRUNING] - b[DUAL] <= 1e-3 * b[PRIMAL_BEFORE_PRUNING]);
        }
    }
    return coef;
}

}  // namespace

int main() {
    std::vector<double> shares{0.0, 1.0, 0.5, 0.9};
    for (int k = 0; k < 16; ++k) shares.push_back(0.01 + 0.03 * k);
    const Data some = make_data(500, 60, shares), many = make_data(9000, 100, {0.001, 0.01, 0.2});
    for (double prune : {0.0, 0.05}) {
        const std::vector<float> one = check_labels(some, prune, 1);
        CHECK(one == check_labels(some, prune, 3));
    }
    check_labels(many, 0.0, 2);
    return 0;
}
