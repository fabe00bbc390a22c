// The kernel ascent of a tree: Z is L⁻¹BK of the dual variables, with all columns in memory and with few or none kept,
// along paths and over all nodes; steps in S lower ½ tr(M⁻¹Q) and end with a small gap of the pairs.
#include <cmath>
#include <random>

#include "check.hpp"
#include "tree/kernel_ascent.hpp"

using namespace widemargin;

namespace {

// Two top nodes with children, and a kernel matrix of random rows, two of them equal and one zero.
struct Case {
    std::vector<int32_t> parent{-1, -1, 0, 0, 0, 1, 1}, group_of, group_start,
        path_nodes{0, 1, 2, 0, 3, 0, 4, 0, 5, 1, 6, 1};
    std::vector<int64_t> path_start{0, 1, 2, 4, 6, 8, 10, 12};
    std::vector<int32_t> row, node, levels;
    std::vector<double> cost, kernel, diagonal, M{4.0, 3.0, 1.0, 0.5, 1.0, -0.5, 1.0, 0.5, 1.0, 0.5, 1.0, 0.4};
    std::vector<uint8_t> outputs;
    bool over_all;
    int64_t n = 300;

    explicit Case(bool over_all) : outputs(7, 1), over_all(over_all) {
        group_of = over_all ? std::vector<int32_t>(7, 0) : std::vector<int32_t>{0, 0, 1, 1, 1, 2, 2};
        group_start = over_all ? std::vector<int32_t>{0, 7} : std::vector<int32_t>{0, 2, 5, 7};
        std::mt19937 random(3);
        std::vector<double> x(n * 3);
        for (double &value : x) value = double(random() % 9) - 4.0;
        for (int k = 0; k < 3; ++k) x[k] = 0.0, x[3 + k] = x[6 + k];
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                kernel.push_back(x[3 * i] * x[3 * j] + x[3 * i + 1] * x[3 * j + 1] + x[3 * i + 2] * x[3 * j + 2]);
            }
            diagonal.push_back(kernel[i * n + i]);
            row.push_back(int32_t(i));
            node.push_back(int32_t(random() % 7));
            levels.push_back(over_all || node[i] < 2 ? 1 : 2);
            cost.push_back(i % 13 == 5 ? 0.0 : 0.02);
        }
    }
    TreeProblem problem() const {
        return {{7, int32_t(group_start.size()) - 1, parent.data(), group_of.data(), group_start.data()},
                {7, path_start.data(), path_nodes.data()},
                {n, row.data(), node.data(), levels.data(), cost.data()},
                {over_all, over_all ? Rescaling::MARGIN : Rescaling::NONE, outputs.data()}};
    }
    // B (7, n) of the dual variables, by definition; margin rescaling has slopes of 1.
    std::vector<double> coefficients(const std::vector<int64_t> &start, const std::vector<int32_t> &losers,
                                     const std::vector<double> &values) const {
        std::vector<double> B(7 * n, 0.0);
        for (int64_t b = 0; b < n; ++b) {
            for (int64_t e = start[b]; e < start[b + 1]; ++e) {
                int32_t winner = node[b];
                if (!over_all && parent[winner] != parent[losers[e]]) winner = parent[winner];
                B[winner * n + b] += cost[b] * values[e];
                B[losers[e] * n + b] -= cost[b] * values[e];
            }
        }
        return B;
    }
};

TreeFactor factor_of(const TreeProblem &problem, const double *M) {
    TreeFactor factor;
    CHECK(factorize(problem.paths, M, factor));
    invert_factor(problem.paths, factor);
    return factor;
}

// L⁻¹ B K
std::vector<double> scores_of(const Case &data, const TreeFactor &factor, const std::vector<double> &B) {
    const int64_t n = data.n;
    std::vector<double> Z(7 * n, 0.0);
    for (int32_t i = 0; i < 7; ++i) {
        for (int64_t e = data.path_start[i]; e < data.path_start[i + 1]; ++e) {
            for (int64_t k = 0; k < n; ++k) {
                const double b = factor.R[e] * B[i * n + k];
                for (int64_t j = 0; b != 0.0 && j < n; ++j) Z[data.path_nodes[e] * n + j] += b * data.kernel[k * n + j];
            }
        }
    }
    return Z;
}

void run_pass(KernelTreeAscent &ascent, const Case &data, std::vector<double> &loan) {
    for (KernelPause ended = ascent.run(5000, 0.0); ended != KernelPause::PASS_DONE; ended = ascent.run(5000, 0.0)) {
        if (ended != KernelPause::COLUMNS) continue;
        loan.clear();
        for (int64_t i : ascent.wanted()) {
            loan.insert(loan.end(), data.kernel.begin() + i * data.n, data.kernel.begin() + (i + 1) * data.n);
        }
        ascent.columns().lend(ascent.wanted().data(), int64_t(ascent.wanted().size()), loan.data());
    }
}

// The gap that the last pass found; n_slots −1: the whole matrix.
double check_ascent(bool over_all, int64_t n_slots) {
    const Case data(over_all);
    const TreeProblem problem = data.problem();
    const TreeFactor factor = factor_of(problem, data.M.data());
    std::vector<double> Z(7 * data.n, 0.0), loan, values;
    KernelTreeAscent ascent(problem, data.n, data.diagonal.data(), Z.data(), std::max<int64_t>(n_slots, 0), 1);
    ascent.state().factor = factor;
    if (n_slots < 0) ascent.columns().use_matrix(data.kernel.data());
    for (int k = 0; k < 300; ++k) {
        run_pass(ascent, data, loan);
        for (int64_t b = 0; k % 10 == 0 && b < data.n; ++b) ascent.wake(b);
    }
    const TreeLists<double> duals = ascent.duals();
    const std::vector<int64_t> &start = duals.start;
    const std::vector<double> fresh = scores_of(data, factor, data.coefficients(start, duals.cols, duals.values));
    for (size_t k = 0; k < Z.size(); ++k) CHECK(std::abs(Z[k] - fresh[k]) < 1e-8);
    std::vector<double> other_Z(Z);
    KernelTreeAscent other(problem, data.n, data.diagonal.data(), other_Z.data(), 0, 1);
    for (int64_t b = 0; b < data.n; ++b) {
        other.set_duals(b, duals.cols.data() + start[b], duals.values.data() + start[b], start[b + 1] - start[b]);
    }
    CHECK(other.duals().values == duals.values);
    for (int64_t b = 0; b < data.n; ++b) ascent.wake(b);
    run_pass(ascent, data, loan);
    return ascent.summary().gap;
}

void check_signs() {
    const std::vector<int64_t> start{0, 1, 3, 5};
    const std::vector<int32_t> nodes{0, 1, 0, 2, 0};
    const AncestorPaths tree{3, start.data(), nodes.data()};
    const std::vector<double> K{3.0, 1.0, 0.6, 1.0, 0.6}, gram{2.0, 0.3, -0.4, 0.3, 1.0, 0.2, -0.4, 0.2, 0.8};
    std::vector<double> S{1.0, 1.0, 0.0, 1.0, 0.0};  // M is diagonal, so gram is Q
    CHECK(sweep_signs(tree, K.data(), S.data(), gram, 1e-12));
    std::vector<double> M(5);
    for (int e = 0; e < 5; ++e) {
        M[e] = K[e] * S[e];
        CHECK(std::abs(S[e]) <= 1.0);
    }
    TreeFactor factor;
    CHECK(factorize(tree, M.data(), factor));
    invert_factor(tree, factor);
    double after = 0.0;  // ½ tr(M⁻¹Q) = ½ Σ_a (R Q Rᵀ)_aa / pivot_a; R = [[1, r1, r2], [0, 1, 0], [0, 0, 1]]
    const double r[3] = {1.0, factor.R[2], factor.R[4]};
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) after += 0.5 * r[i] * r[j] * gram[3 * i + j] / factor.pivots[0];
    after += 0.5 * (gram[4] / factor.pivots[1] + gram[8] / factor.pivots[2]);
    CHECK(after < 0.5 * (2.0 / 3.0 + 1.0 + 0.8) - 1e-3);
    std::vector<double> bad{1.0, 1.0, 4.0, 1.0, 4.0};
    CHECK(!sweep_signs(tree, K.data(), bad.data(), gram, 0.0));
}

}  // namespace

int main() {
    for (bool over_all : {false, true}) {
        for (int64_t n_slots : {-1, 0, 20}) CHECK(check_ascent(over_all, n_slots) < 1e-3);
    }
    check_signs();
    return 0;
}
