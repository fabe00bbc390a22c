// Projections of random rows (ties, constants, negative values) against their optimality conditions and bisection.
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "top_k/projections.hpp"

using namespace widemargin;

namespace {

constexpr double TOLERANCE = 1e-10;

std::vector<double> make_row(std::mt19937 &random, int64_t n, int shape) {
    std::normal_distribution<double> normal(shape == 3 ? 50.0 : 0.0, 3.0);
    std::vector<double> a(n);
    for (double &value : a) value = shape == 1 ? std::round(normal(random)) : normal(random);
    if (shape == 2) std::fill(a.begin(), a.end(), a[0]);
    if (shape == 4)
        for (double &value : a) value = -std::fabs(value);
    return a;
}

double total(const std::vector<double> &x) { return std::accumulate(x.begin(), x.end(), 0.0); }

// The sum of the k largest.
double top_sum(std::vector<double> values, int64_t k) {
    std::sort(values.begin(), values.end(), std::greater<double>());
    return std::accumulate(values.begin(), values.begin() + k, 0.0);
}

// The point x is optimal iff no vertex of the set is better than x along g = a - x - rho * sum(x).
void check_optimal(const std::vector<double> &a, const std::vector<double> &x, const ProjectionSet &set, bool capped) {
    const double sum = total(x), bound = (capped ? set.r : sum) / double(set.k);
    std::vector<double> g(a.size());
    double at_x = 0.0;
    for (size_t j = 0; j < a.size(); ++j) {
        CHECK(x[j] >= 0.0 && x[j] <= bound + TOLERANCE);
        g[j] = a[j] - x[j] - set.rho * sum;
        at_x += g[j] * x[j];
        if (capped) g[j] = std::max(g[j], 0.0);
    }
    CHECK(sum <= set.r + TOLERANCE);
    const double best = std::max(top_sum(g, set.k), 0.0) / double(set.k);
    const double scale = 1e3 * double(a.size());
    if (set.r < NO_LIMIT) CHECK(best * set.r - at_x <= TOLERANCE * scale);
    if (set.r == NO_LIMIT) CHECK(best <= TOLERANCE * scale && std::fabs(at_x) <= TOLERANCE * scale);
}

void check_exact_sum(const std::vector<double> &a, const ProjectionSet &set, const std::vector<double> &x) {
    double low = *std::min_element(a.begin(), a.end()) - set.r, high = *std::max_element(a.begin(), a.end());
    for (int step = 0; step < 200; ++step) {
        const double t = 0.5 * (low + high);
        double sum = 0.0;
        for (double value : a) sum += std::min(std::max(value - t, 0.0), set.r / double(set.k));
        (sum > set.r ? low : high) = t;
    }
    for (size_t j = 0; j < a.size(); ++j)
        CHECK(std::fabs(x[j] - std::min(std::max(a[j] - high, 0.0), set.r / double(set.k))) <= TOLERANCE);
}

void check_row(const std::vector<double> &a, int64_t k, double r, double rho) {
    const int64_t n = int64_t(a.size());
    std::vector<double> work(n), x(n);
    for (bool by_fixing : {false, true}) {
        apply_thresholds(a.data(), n, capped_simplex(a.data(), n, {k, r, rho, false}, by_fixing, work.data()),
                         x.data());
        check_optimal(a, x, {k, r, rho, false}, true);
        if (r == 0.0) continue;
        apply_thresholds(a.data(), n, capped_simplex(a.data(), n, {k, r, 0, true}, by_fixing, work.data()), x.data());
        check_exact_sum(a, {k, r, 0, true}, x);
    }
    for (double bound : {r, NO_LIMIT}) {
        apply_thresholds(a.data(), n, top_k_simplex(a.data(), n, {k, bound, rho, false}, work.data()), x.data());
        check_optimal(a, x, {k, bound, rho, false}, false);
    }
}

}  // namespace

int main() {
    std::mt19937 random(0);
    for (int64_t n : {1, 2, 3, 7, 40, 300, 3000})
        for (int shape = 0; shape < 5; ++shape)
            for (int64_t k : {int64_t(1), (n + 1) / 2, n})
                for (double r : {0.0, 1e-3, 1.0, 1e3})
                    for (double rho : {0.0, 0.37, 5.0}) check_row(make_row(random, n, shape), k, r, rho);
    return 0;
}
