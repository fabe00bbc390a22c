// SPOC: the threshold against its equation, visits and steps on faces against their optimality, whole runs by their
// gap.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "codes/ascent.hpp"
#include "codes/worst_first.hpp"

using namespace widemargin;

namespace {

struct Problem {
    int64_t n, k, l;
    std::vector<double> h, b, cost;
    std::vector<int64_t> y;
    SpocTask task(bool margins) const {
        return {n, k, l, h.data(), y.data(), margins ? b.data() : nullptr, cost.data()};
    }
};

// The first row is 0, the second has no cost, the third repeats the fourth.
Problem make_problem(std::mt19937 &random, int64_t n, int64_t k, int64_t l, double C) {
    Problem p{n, k, l, {}, {}, std::vector<double>(n, C), {}};
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < n; ++i) p.y.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(k)));
    for (int64_t j = 0; j < n * l; ++j) p.h.push_back(j < l ? 0.0 : normal(random));
    for (int64_t i = 0; i < n; ++i)
        for (int64_t r = 0; r < k; ++r) p.b.push_back(r == p.y[i] ? 0.0 : 1.0 + normal(random));
    p.cost[1] = 0.0;
    for (int64_t t = 0; t < l; ++t) p.h[2 * l + t] = p.h[3 * l + t];
    return p;
}

void check_thresholds(std::mt19937 &random) {
    std::normal_distribution<double> normal;
    for (int round = 0; round < 2000; ++round) {
        const int64_t k = 1 + static_cast<int64_t>(random() % 12);
        std::vector<double> D(k), work(k);
        for (double &value : D) value = round % 3 == 0 ? std::round(normal(random)) : normal(random);
        const double total = std::exp(3.0 * normal(random));
        const ReducedThreshold at = reduced_threshold(D.data(), k, total, work.data());
        double sum = 0.0;
        for (const double value : D) sum += std::max((value - at.top) - at.below, 0.0);
        CHECK(std::fabs(sum - total) <= 1e-12 * total);
    }
    const std::vector<double> D{1.0, 0.2, 0.6, 0.8, 0.6};  // figure 2 of the paper
    std::vector<double> work(5);
    const ReducedThreshold at = reduced_threshold(D.data(), 5, 1.0, work.data());
    CHECK(std::fabs(at.top + at.below - 0.5) < 1e-15);
    const ReducedThreshold tiny = reduced_threshold(D.data(), 5, 1e-30, work.data());
    CHECK(tiny.top == 1.0 && tiny.below == -1e-30);
}

// Rows of η are at least 0, sum to the cost, and the bounds are in order.
template <typename Ascent>
void check_feasible(const Problem &p, Ascent &spoc, double tol) {
    const SpocBounds bounds = spoc.certify();
    CHECK(bounds.primal >= bounds.dual - 1e-12 * std::fabs(bounds.primal));
    CHECK(bounds.within(tol));
    for (int64_t i = 0; i < p.n; ++i) {
        double sum = 0.0;
        for (int64_t r = 0; r < p.k; ++r) {
            CHECK(spoc.eta()[i * p.k + r] >= 0.0);
            sum += spoc.eta()[i * p.k + r];
        }
        CHECK(std::fabs(sum - p.cost[i]) <= 1e-12 * p.cost[i]);
    }
}

void check_runs(std::mt19937 &random) {
    const double never = std::numeric_limits<double>::infinity();
    for (const double C : {1e-3, 1.0, 100.0}) {
        for (const int64_t l : {1, 2, 7}) {
            const Problem p = make_problem(random, 40, 5, l, C);
            for (const bool margins : {false, true}) {
                Spoc spoc(p.task(margins), 3);
                CHECK(spoc.run(1e-7, 20000, never, false) == SpocEnd::CONVERGED);
                check_feasible(p, spoc, 1e-7);
                Spoc again(p.task(margins), 4);  // from the solution: nothing left to do
                again.set_duals(spoc.eta().data());
                CHECK(again.run(1e-6, 20000, never, false) == SpocEnd::CONVERGED);
                CHECK(again.n_passes() == 0);
            }
        }
    }
}

void check_monotone(std::mt19937 &random) {
    const Problem p = make_problem(random, 30, 4, 2, 1.0);
    Spoc spoc(p.task(true), 1);
    double before = spoc.certify().dual;
    for (int round = 0; round < 50; ++round) {
        const int64_t row = static_cast<int64_t>(random() % 30);
        spoc.visit_rows(&row, 1);
        const double after = spoc.certify().dual;
        CHECK(after >= before - 1e-12);
        const double gain = spoc.face_step();
        before = spoc.certify().dual;
        CHECK(gain >= 0.0 && std::fabs(before - after - gain) <= 1e-9);
    }
}

void check_limits(std::mt19937 &random) {
    const Problem p = make_problem(random, 40, 4, 3, 50.0);
    Spoc spoc(p.task(false), 1);
    CHECK(spoc.run(1e-15, 3, 1e9, false) == SpocEnd::MAX_ITER && spoc.n_passes() == 3);
    check_feasible(p, spoc, 10.0);
    Spoc paused(p.task(false), 1);
    CHECK(paused.run(1e-15, 1000, -1.0, false) == SpocEnd::PAUSED && paused.n_passes() == 1);
    check_feasible(p, paused, 10.0);
}

// Worst-first reaches the same optimum as random order, with rows and with their Gram matrix, and the dual never falls.
void check_worst_first(std::mt19937 &random) {
    const double never = std::numeric_limits<double>::infinity();
    const Problem p = make_problem(random, 30, 4, 3, 0.5);
    std::vector<double> K(p.n * p.n, 0.0);
    for (int64_t i = 0; i < p.n; ++i)
        for (int64_t j = 0; j < p.n; ++j)
            for (int64_t t = 0; t < p.l; ++t) K[i * p.n + j] += p.h[i * p.l + t] * p.h[j * p.l + t];
    Spoc spoc(p.task(true), 1);
    CHECK(spoc.run(1e-8, 20000, never, false) == SpocEnd::CONVERGED);
    for (const double *matrix : {static_cast<const double *>(nullptr), static_cast<const double *>(K.data())}) {
        SpocWorstFirst worst(p.task(true), matrix);
        double before = worst.certify().dual;
        for (int step = 0; step < 20; ++step) {
            CHECK(worst.step());
            const double after = worst.certify().dual;
            CHECK(after >= before - 1e-12);
            before = after;
        }
        CHECK(worst.run(1e-6, 20000, never, false) == SpocEnd::CONVERGED);
        check_feasible(p, worst, 1e-6);
        CHECK(std::fabs(worst.certify().dual - spoc.certify().dual) <= 2e-6 * std::fabs(spoc.certify().dual));
        SpocWorstFirst limited(p.task(true), matrix);
        CHECK(limited.run(1e-15, 2, never, false) == SpocEnd::MAX_ITER && limited.n_passes() == 2);
        SpocWorstFirst paused(p.task(true), matrix);
        CHECK(paused.run(1e-15, 1000, -1.0, false) == SpocEnd::PAUSED);
        CHECK(paused.run(1e-6, 20000, never, false) == SpocEnd::CONVERGED);
    }
}

// Large costs on rows that cannot be separated: rounding keeps the gap above the tolerance, and the ascent
// reports it long before its limit.
void check_rounding(std::mt19937 &random) {
    const Problem p = make_problem(random, 40, 4, 2, 1e14);
    Spoc spoc(p.task(false), 1);
    CHECK(spoc.run(1e-12, 100000, 1e9, false) == SpocEnd::NOT_ATTAINED);
    CHECK(spoc.n_passes() < 5000 && spoc.best_code().size() == spoc.code().size());
}

}  // namespace

int main() {
    std::mt19937 random(1);
    check_thresholds(random);
    check_runs(random);
    check_monotone(random);
    check_limits(random);
    check_worst_first(random);
    check_rounding(random);
    return 0;
}
