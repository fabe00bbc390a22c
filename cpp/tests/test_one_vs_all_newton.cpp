// The truncated Newton solver: sparse and dense, 32 and 64 bit, threads, empty rows, one-sided labels.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all_data.hpp"

using namespace widemargin;

namespace {

// Numbers in [0, 1) from a linear congruential generator (Numerical Recipes), the same everywhere.
struct Random {
    uint32_t state = 12345;
    double next() { return (state = state * 1664525u + 1013904223u) / 4294967296.0; }
};

template <typename T, typename I>
struct Data {
    std::vector<T> dense, data;
    std::vector<I> indices, indptr{0};
    int64_t n_rows, n_cols;
    Data(int64_t n, int64_t d) : dense(n * d), n_rows(n), n_cols(d) {
        Random random;
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t k = d - 1; k >= 0; --k) {  // indices from high to low: order must not matter
                if (i % 7 == 3 || random.next() > 0.4) continue;
                dense[i * d + k] = static_cast<T>(random.next() - 0.3);
                data.push_back(dense[i * d + k]);
                indices.push_back(static_cast<I>(k));
            }
            indptr.push_back(static_cast<I>(data.size()));
        }
    }
    CsrView<T, I> sparse_view() const { return {data.data(), indices.data(), indptr.data(), n_rows, n_cols}; }
    DenseView<T> dense_view() const { return {dense.data(), n_rows, n_cols}; }
};

struct Labels : TestLabels {
    Labels(int64_t n_rows, int64_t n_labels) {
        row_weight.assign(n_rows, 1.0);
        for (int64_t j = 0; j < n_labels; ++j) {  // label 0 has no positives, label 1 only positives
            for (int64_t i = 0; i < n_rows && j > 0; i += j) positive_rows.push_back(i);
            end_label(1.5, 0.5);
        }
        row_weight[2] = 0;
    }
};

template <class Matrix, typename T = typename Matrix::value_type>
TestOutputs<T> solve(const Matrix &X, const Labels &labels, OneVsAllOptions options) {
    const LabelBlock block = labels.block();
    TestOutputs<T> out(block.n_labels, X.n_cols);
    out.records = OneVsAllSolver<Matrix, SquaredHinge>(X, block, options).solve(out.view());
    return out;
}

constexpr OneVsAllOptions OPTIONS{1.0, 1.0, 0.0, 1e-8, 1e-6, 0.0, 100, 1};

template <typename T, typename I>
void bounds_meet_and_one_sided_labels_are_exact() {
    const Data<T, I> data(60, 9);
    const Labels labels(60, 6);
    const auto out = solve(data.sparse_view(), labels, OPTIONS);
    for (int64_t j = 0; j < 6; ++j) {
        const double *bounds = &out.bounds[j * N_BOUNDS];
        CHECK(out.converged[j] == CONVERGED);
        CHECK(bounds[DUAL] <= bounds[PRIMAL]);
        CHECK(bounds[PRIMAL] - bounds[DUAL] <= 1e-5 * bounds[PRIMAL]);
        CHECK(bounds[PRIMAL] <= bounds[PRIMAL_AT_ZERO]);
    }
    CHECK(out.intercept[0] == -1 && out.intercept[1] == 1 && out.n_iter[0] == 0 && out.n_iter[1] == 0);
    CHECK(out.bounds[PRIMAL] == 0 && out.bounds[N_BOUNDS + PRIMAL] == 0);
}

template <typename T>
void dense_and_sparse_agree() {
    const Data<T, int32_t> data(60, 9);
    const Labels labels(60, 6);
    const auto sparse = solve(data.sparse_view(), labels, OPTIONS), dense = solve(data.dense_view(), labels, OPTIONS);
    for (size_t k = 0; k < sparse.coef.size(); ++k) CHECK(std::abs(sparse.coef[k] - dense.coef[k]) < 1e-5);
}

void threads_give_the_same_bits() {
    const Data<double, int64_t> data(80, 11);
    const Labels labels(80, 9);
    OneVsAllOptions options = OPTIONS;
    const auto one = solve(data.sparse_view(), labels, options);
    for (int n_threads : {2, 5, 20}) {
        options.n_threads = n_threads;
        const auto many = solve(data.sparse_view(), labels, options);
        CHECK(one.coef == many.coef && one.intercept == many.intercept && one.bounds == many.bounds);
        CHECK(one.records.size() == many.records.size());
    }
}

void pruning_drops_small_weights_only() {
    const Data<double, int32_t> data(60, 9);
    const Labels labels(60, 6);
    OneVsAllOptions options = OPTIONS;
    const auto full = solve(data.sparse_view(), labels, options);
    options.prune = 0.2;
    const auto pruned = solve(data.sparse_view(), labels, options);
    for (size_t k = 0; k < full.coef.size(); ++k) {
        CHECK(pruned.coef[k] == (std::abs(full.coef[k]) < 0.2 ? 0 : full.coef[k]));
    }
    CHECK(full.intercept == pruned.intercept);
}

void degenerate_shapes_are_harmless() {
    const Data<float, int32_t> no_columns(5, 0), one_row(1, 1);
    CHECK(solve(no_columns.sparse_view(), Labels(5, 3), OPTIONS).converged[2] == CONVERGED);
    OneVsAllOptions regularised = OPTIONS;
    regularised.bias_penalty = 1;
    CHECK(solve(no_columns.dense_view(), Labels(5, 3), regularised).converged[2] == CONVERGED);
    Labels single(3, 2);
    single.row_weight.resize(1);
    single.positive_rows = {0};
    single.positive_indptr = {0, 0, 1};
    CHECK(solve(one_row.sparse_view(), single, regularised).converged[1] == CONVERGED);
    CHECK(solve(one_row.sparse_view(), Labels(3, 0), OPTIONS).records.empty());
}

void numbers_that_are_not_finite_end_the_solver() {
    Data<float, int32_t> data(60, 9);
    data.data[10] = NAN;
    CHECK(solve(data.sparse_view(), Labels(60, 6), OPTIONS).converged[3] == NOT_ATTAINED);
}

void parallel_for_runs_every_task_once_and_passes_errors_on() {
    std::vector<std::atomic<int>> runs(100);
    parallel_for(100, 4, [&](int, int64_t i) { ++runs[i]; });
    for (auto &count : runs) CHECK(count == 1);
    bool caught = false;
    try {
        parallel_for(10, 3, [](int, int64_t i) {
            if (i == 7) throw std::runtime_error("seven");
        });
    } catch (const std::runtime_error &) {
        caught = true;
    }
    CHECK(caught);
}

}  // namespace

int main() {
    bounds_meet_and_one_sided_labels_are_exact<float, int32_t>();
    bounds_meet_and_one_sided_labels_are_exact<float, int64_t>();
    bounds_meet_and_one_sided_labels_are_exact<double, int32_t>();
    bounds_meet_and_one_sided_labels_are_exact<double, int64_t>();
    dense_and_sparse_agree<float>();
    dense_and_sparse_agree<double>();
    threads_give_the_same_bits();
    pruning_drops_small_weights_only();
    degenerate_shapes_are_harmless();
    numbers_that_are_not_finite_end_the_solver();
    parallel_for_runs_every_task_once_and_passes_errors_on();
    return 0;
}
