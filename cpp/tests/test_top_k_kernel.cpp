// The kernel top-k ascent: steps against their optimality conditions, columns on demand against the whole matrix, and
// the exponential against the library's.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "simd/exp_in_place.hpp"
#include "top_k/kernel_ascent.hpp"

using namespace widemargin;

namespace {

// ⟨x,b⟩ − ½D‖x‖² − ½N⟨1,x⟩² has no ascent at x towards a vertex of the domain: 0, or C/k on the k largest slopes.
void check_step(const TopKLoss &loss, const std::vector<double> &b, double N, double C) {
    const int64_t n = static_cast<int64_t>(b.size());
    TopKStep step(loss, n);
    std::vector<double> x(n), slope(n);
    double threshold = 0.3 * b[0];
    step.maximise(b.data(), n, N, C, threshold, x.data());
    const double D = step.curvature(N, C);
    double sum = 0.0, at_x = 0.0;
    for (const double value : x) sum += value;
    for (int64_t j = 0; j < n; ++j) {
        slope[j] = b[j] - D * x[j] - N * sum;
        at_x += slope[j] * x[j];
        CHECK(x[j] >= 0.0 && x[j] <= (loss.alpha ? sum : C) / double(loss.k) * (1.0 + 1e-12));
    }
    CHECK(sum <= C * (1.0 + 1e-15));
    const double best = TopKStep({loss.k, loss.alpha, 0.0}, n).value(slope.data(), n);
    CHECK(C * best - at_x <= 1e-9 * C * (1.0 + std::fabs(b[0]) + N * C));
}

void check_steps(std::mt19937 &random) {
    std::normal_distribution<double> normal;
    for (int round = 0; round < 3000; ++round) {
        const int64_t n = 1 + static_cast<int64_t>(random() % 20);
        const TopKLoss loss{1 + static_cast<int64_t>(random() % n), random() % 2 == 0, random() % 3 == 0 ? 0.4 : 0.0};
        std::vector<double> b(n);
        for (double &value : b) value = round % 4 == 0 ? std::round(normal(random)) : 1.0 + normal(random);
        check_step(loss, b, std::exp(3.0 * normal(random)), std::exp(3.0 * normal(random)));
        check_step({loss.k, loss.alpha, 0.0}, b, 0.0, 2.0);  // margins that no weights can move
    }
    const std::vector<double> tied(7, 1.0);
    for (const double C : {1e-12, 1.0, 1e12}) check_step({1, false, 0.0}, tied, 1.0, C);
    std::vector<double> x(3);
    double threshold = 0.0;
    TopKStep({1, false, 0.0}, 3).maximise(tied.data(), 3, 0.0, 2.0, threshold, x.data());  // a row of zeros
    for (const double value : x) CHECK(std::fabs(value - 2.0 / 3.0) < 1e-15);
}

struct Problem {
    int64_t n = 40, m = 4;
    std::vector<double> K, diagonal, cost;
    std::vector<int64_t> y;
};

Problem make_problem(std::mt19937 &random) {
    Problem problem;
    std::normal_distribution<double> normal;
    std::vector<double> points(2 * problem.n);
    for (double &value : points) value = normal(random);
    for (int64_t i = 0; i < problem.n; ++i) {
        problem.y.push_back(static_cast<int64_t>(random() % problem.m));
        problem.cost.push_back(i == 5 ? 0.0 : 1.0);
        problem.diagonal.push_back(1.0);
        for (int64_t j = 0; j < problem.n; ++j) {
            const double u = points[2 * i] - points[2 * j], v = points[2 * i + 1] - points[2 * j + 1];
            problem.K.push_back(std::exp(-u * u - v * v));
        }
    }
    return problem;
}

template <typename T>
KernelBounds solve(const Problem &p, const TopKLoss &loss, int64_t n_slots, bool whole) {
    KernelAscent<T> ascent({p.n, p.m, p.y.data(), p.cost.data(), p.diagonal.data(), loss, 7}, n_slots);
    const std::vector<T> K(p.K.begin(), p.K.end());
    std::vector<T> loan;
    if (whole) ascent.columns().use_matrix(K.data());
    for (int epoch = 0; epoch < 300; ++epoch) {
        ascent.begin_epoch(1e-9);
        for (Pause pause = ascent.run(1000); pause != Pause::EPOCH_DONE; pause = ascent.run(1000)) {
            if (pause == Pause::WORK_DONE) continue;
            const std::vector<int64_t> &rows = ascent.wanted();
            loan.clear();
            for (const int64_t i : rows) loan.insert(loan.end(), K.begin() + i * p.n, K.begin() + (i + 1) * p.n);
            ascent.columns().lend(rows.data(), static_cast<int64_t>(rows.size()), loan.data());
        }
    }
    return ascent.evaluate();
}

void check_solutions(std::mt19937 &random) {
    const Problem problem = make_problem(random);
    for (const TopKLoss &loss : {TopKLoss{1, false, 0.0}, TopKLoss{2, true, 0.0}, TopKLoss{3, false, 0.5}}) {
        const KernelBounds whole = solve<double>(problem, loss, 0, true);
        CHECK(whole.gap >= -1e-12 && whole.gap <= 1e-6 * whole.dual);
        for (const int64_t n_slots : {0, 1, 13, 40}) {
            const KernelBounds some = solve<double>(problem, loss, n_slots, false);
            CHECK(std::fabs(some.dual - whole.dual) <= 1e-6 * whole.dual);
        }
        CHECK(std::fabs(solve<float>(problem, loss, 13, false).dual - whole.dual) <= 1e-4 * whole.dual);
    }
}

template <class E>
void check_exponential() {
    using Float = typename E::Float;
    std::vector<Float> values;
    for (int i = 0; i <= 1500; ++i) values.push_back(static_cast<Float>(E::lowest * i / 1500.0));
    std::vector<Float> out = values;
    exp_in_place<E>(out.data(), static_cast<int64_t>(out.size()));
    for (size_t i = 0; i < values.size(); ++i) {
        const double exact = std::exp(static_cast<double>(values[i]));
        CHECK(std::fabs(out[i] - exact) <= 2.0 * std::numeric_limits<Float>::epsilon() * exact);
    }
}

}  // namespace

int main() {
    std::mt19937 random(1);
    check_steps(random);
    check_solutions(random);
    check_exponential<ExpSingle>();
    check_exponential<ExpDouble>();
    return 0;
}
