// The kernels of the dense solver in float32 against the same sums in double, for every instruction set of the machine.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "one_vs_all/dense.hpp"

using namespace widemargin;

namespace {

struct Arrays {
    std::vector<float> s, sz, sp, cost, slopes;
    explicit Arrays(int64_t n) : s(n), sz(n), sp(n), cost(n), slopes(n) {
        std::mt19937 random(static_cast<unsigned>(n));
        std::normal_distribution<float> normal;
        for (int64_t i = 0; i < n; ++i) {
            s[i] = normal(random), sz[i] = normal(random), sp[i] = normal(random);
            cost[i] = normal(random) < 1 ? -1.5f : 0.75f;
        }
    }
    DenseLabelRows rows() {
        return {static_cast<int64_t>(s.size()), s.data(), sz.data(), sp.data(), cost.data(), slopes.data(), 0.25f};
    }
};

bool close(double a, double b) { return std::abs(a - b) <= 1e-4 * (1 + std::abs(a) + std::abs(b)); }

template <class Loss>
void check_kernels(const RowKernels &kernels, int64_t n) {
    Arrays arrays(n);
    const Arrays before = arrays;
    const float theta[N_DIRECTIONS] = {0.3f, -0.2f, 0.1f, 0.05f};
    double sums[N_SEARCH_SUMS], gradient = 0, curvature = 0, change = 0, loss = 0, slope_sum = 0;
    kernels.search_sums(arrays.rows(), theta, sums);
    const double changed = kernels.loss_change(arrays.rows(), 0.5f, 0.1f);
    const LabelSums moved = kernels.advance(arrays.rows(), theta);
    for (int64_t i = 0; i < n; ++i) {
        const double y = before.cost[i] < 0 ? -1 : 1, c = std::abs(before.cost[i]), s = before.s[i], z = before.sz[i];
        const double w = s - 0.25, step = 0.3f * z - 0.2f * before.sp[i] + 0.1f * w, end = s + step + 0.05f;
        gradient -= 0.5 * c * y * Loss::derivative(y * end) * z;
        curvature += 0.5 * c * Loss::second_derivative(y * end) * z * w;
        change += c * Loss::change(y * s, 0.5 * y * (z + 0.1f));
        loss += c * Loss::value(y * end);
        slope_sum += c * y * Loss::derivative(y * end);
        CHECK(close(arrays.s[i], end) && close(arrays.sp[i], step));
        CHECK(close(arrays.slopes[i], c * y * Loss::derivative(y * end)));
    }
    CHECK(close(sums[0], gradient) && close(sums[6], curvature) && close(changed, change));
    CHECK(close(moved.loss, loss) && close(moved.slope_sum, slope_sum));
}

void check_set(const std::string &name) {
    setenv("WIDEMARGIN_ISA", name.c_str(), 1);
    for (int64_t n : {1, 3, 16, 31, 512, 700}) {
        check_kernels<SquaredHinge>(choose_row_kernels<HingeLanes>(), n);
        check_kernels<Logistic>(choose_row_kernels<LogisticLanes>(), n);
    }
}

// Two rows x = ±1 with weights 1 and an intercept: the optimum of the certificate's rows was computed by hand.
void check_certificate() {
    const DenseView<double> view{nullptr, 2, 0};
    const int8_t y[] = {1, -1};
    const double c[] = {1, 1};
    const BinaryProblem<DenseView<double>> problem{&view, y, c, 1, 1, 1, 0};
    double z[] = {0.9, 0.1}, slopes[2], dual[2];  // scores ±0.4 around an intercept of ½
    const CertifiedRows rows = certify_rows<SquaredHinge>(problem, z, 0.5, false, slopes, dual);
    CHECK(std::abs(rows.intercept) < 1e-15 && std::abs(rows.loss - 2 * 0.36) < 1e-14);
    CHECK(std::abs(slopes[0] + 1.2) < 1e-14 && std::abs(dual[0] - 1.2) < 1e-14 && std::abs(rows.dual_sum) < 1e-15);
    CHECK(std::abs(rows.conjugates - 2 * (1.2 - 0.36)) < 1e-14);
}

}  // namespace

int main() {
    for (const std::string &name : available_instruction_sets()) check_set(name);
    check_certificate();
    return 0;
}
