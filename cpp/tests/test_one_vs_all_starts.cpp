// Starts and the logistic loss: threads, degenerate means.
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/starts.hpp"
#include "one_vs_all_data.hpp"

using namespace widemargin;

namespace {

// Two groups of rows around (1, 0, …) and (0, 1, …), and rows of zeros.
template <typename T>
struct Data : TestLabels {
    int64_t n_rows = 40, n_cols = 5;
    std::vector<T> values;
    Data() : values(n_rows * n_cols) {
        row_weight.assign(n_rows, 1.0);
        for (int64_t i = 0; i < n_rows; ++i) {
            if (i % 10 == 9) continue;
            values[i * n_cols + i % 2] = 1;
            values[i * n_cols + 2 + i % 3] = static_cast<T>(0.1 * (i % 7));
            row_weight[i] = 1 + i % 3;
        }
        for (int64_t j = 0; j < 4; ++j) {  // label 0 has no positives, label 1 no negatives
            for (int64_t i = 0; i < n_rows && j > 0; i += j == 1 ? 1 : 2 * (j - 1)) positive_rows.push_back(i);
            end_label(j == 3 ? 2.0 : 1.0);
        }
    }
    DenseView<T> view() const { return {values.data(), n_rows, n_cols}; }
};

template <class Loss, typename T>
TestOutputs<T> solve(const Data<T> &data, OneVsAllOptions options, const MeanStartOptions *start) {
    const DenseView<T> X = data.view();
    const LabelBlock block = data.block();
    TestOutputs<T> out(block.n_labels, X.n_cols);
    std::vector<double> x(X.n_cols), scores(X.n_rows);
    mean_row(X, block.row_weight, x.data(), scores.data());
    double total = 0;
    for (double weight : data.row_weight) total += weight;
    const MeanRow mean{x.data(), scores.data(), total};
    if (start != nullptr) {
        MeanStarts<DenseView<T>, Loss>(X, block, options, mean, *start).fill(out.coef.data(), out.intercept.data());
    }
    OneVsAllSolver<DenseView<T>, Loss>(X, block, options).solve(out.view());
    return out;
}

constexpr OneVsAllOptions OPTIONS{1.0, 1.0, 0.0, 1e-8, 1e-9, 0.0, 100, 3, false, false};

template <class Loss, typename T>
void starts_lead_to_the_optimum_from_zero() {
    const Data<T> data;
    for (double bias_penalty : {0.0, 1.0}) {
        OneVsAllOptions options = OPTIONS;
        options.bias_penalty = bias_penalty;
        const TestOutputs<T> zero = solve<Loss>(data, options, nullptr);
        for (const MeanStartOptions &start : {MeanStartOptions{false, 1, -2}, MeanStartOptions{true, 0, 0}}) {
            const TestOutputs<T> other = solve<Loss>(data, options, &start);
            for (int64_t j = 0; j < 4; ++j) {
                const double a = zero.bounds[j * N_BOUNDS + PRIMAL], b = other.bounds[j * N_BOUNDS + PRIMAL];
                CHECK(std::abs(a - b) <= 1e-5 * (1 + std::abs(a)));
                CHECK(zero.converged[j] == other.converged[j]);
            }
        }
    }
}

void one_sided_labels_are_not_attained_unless_they_are_asked_to_be_solved() {
    const Data<double> data;
    OneVsAllOptions options = OPTIONS;
    const auto answer = solve<Logistic>(data, options, nullptr);
    CHECK(answer.converged[0] == NOT_ATTAINED && answer.converged[1] == NOT_ATTAINED &&
          answer.converged[2] == CONVERGED);
    CHECK(answer.intercept[0] == -30 && answer.intercept[1] == 30 && answer.bounds[DUAL] == 0);
    options.solve_one_sided = true;
    options.tol = 0.4;
    options.gap_tol = INFINITY;
    const auto solved = solve<Logistic>(data, options, nullptr);
    CHECK(solved.converged[0] == CONVERGED && solved.n_iter[0] > 0 && solved.intercept[0] > -30);
    CHECK(solve<SquaredHinge>(data, options, nullptr).n_iter[1] > 0);
}

void mean_separating_meets_its_equations_and_its_degenerate_cases() {
    // p̄ = (1, 0), n̄ = (0, 1), a quarter of the rows positive
    const double share = 0.25, xx = share * share + 0.75 * 0.75;
    const SpanPoint w = mean_separating({1, share, xx}, share, 1, -2);
    CHECK(std::abs(w.p + w.x * share - 1) < 1e-12);
    CHECK(std::abs(w.x * 0.75 + 2) < 1e-12);
    const SpanPoint none = mean_separating({1, 1, 1}, share, 1, -2), zero = mean_separating({0, 0, 1}, share, 1, -2);
    CHECK(none.p == 0 && none.x == 0 && zero.p == 0 && zero.x == 0);
    const SpanPoint orthogonal = mean_separating({4, 0, 2}, 0.5, 1, -2);
    CHECK(orthogonal.p == 0.25 && orthogonal.x == -0.25);
}

void three_equations_leave_out_dependent_variables() {
    double H[3][3] = {{4, 2, 0}, {2, 1, 0}, {0, 0, 0}}, d[3];
    const double g[3] = {-4, -2, 0};
    solve_three(H, g, d);
    CHECK(d[0] == 1 && d[1] == 0 && d[2] == 0);
}

void logistic_loss_is_finite_everywhere() {
    for (double m : {-1e308, -800.0, -1.0, 0.0, 1.0, 800.0, 1e308}) {
        CHECK(std::isfinite(Logistic::value(m)) && std::isfinite(Logistic::derivative(m)));
        CHECK(Logistic::derivatives(m).first == Logistic::derivative(m) || std::abs(m) < 800);
        CHECK(Logistic::second_derivative(m) >= 0 && Logistic::change(m, 0) == 0);
    }
    CHECK(Logistic::dual_value(0, 1) == 0 && Logistic::dual_value(1, 1) == 0 && Logistic::dual_value(0, 0) == 0);
    CHECK(std::abs(Logistic::dual_value(1, 2) - 2 * std::log(2.0)) < 1e-15);
}

}  // namespace

int main() {
    starts_lead_to_the_optimum_from_zero<SquaredHinge, double>();
    starts_lead_to_the_optimum_from_zero<SquaredHinge, float>();
    starts_lead_to_the_optimum_from_zero<Logistic, double>();
    starts_lead_to_the_optimum_from_zero<Logistic, float>();
    one_sided_labels_are_not_attained_unless_they_are_asked_to_be_solved();
    mean_separating_meets_its_equations_and_its_degenerate_cases();
    three_equations_leave_out_dependent_variables();
    logistic_loss_is_finite_everywhere();
    return 0;
}
