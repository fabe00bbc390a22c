// The joint dual ascent of a tree: the factor against a dense one, both S-steps against each other, valid bounds, and
// sparse tables, for float and double and several threads; and its kernels against plain loops, for every instruction
// set of this machine.
#include <cmath>
#include <random>

#include "check.hpp"
#include "tree/joint_dual.hpp"

using namespace widemargin;

namespace {

// A tree of three levels with an only child, its groups, paths and blocks, and sparse rows.
struct Case {
    std::vector<int32_t> parent{-1, -1, -1, 0, 0, 1, 3, 3, 3, 5};
    std::vector<int32_t> group_of, group_start{0}, path_nodes, row, node, levels, cols;
    std::vector<int64_t> path_start{0}, start{0};
    std::vector<double> cost, values, K;
    std::vector<uint8_t> outputs;
    int64_t n_cols = 12;

    explicit Case(bool over_all, unsigned seed) {
        const int32_t m = int32_t(parent.size());
        std::vector<int32_t> size(m, 1);
        for (int32_t i = m - 1; i >= 0; --i) {
            if (parent[i] >= 0) size[parent[i]] += size[i];
        }
        for (int32_t i = 0; i < m; ++i) {
            if (i > 0 && parent[i] != parent[i - 1] && !over_all) group_start.push_back(i);
            group_of.push_back(int32_t(group_start.size()) - 1);
            for (int32_t a = i; a >= 0; a = parent[a]) {
                path_nodes.push_back(a);
                K.push_back(a == i ? size[i] : 0.4);
            }
            path_start.push_back(int64_t(path_nodes.size()));
        }
        group_start.push_back(m);
        outputs.assign(m, 1);
        draw_rows(over_all, seed);
    }
    void draw_rows(bool over_all, unsigned seed) {
        std::mt19937 random(seed);
        for (int32_t i = 0; i < 40; ++i) {
            for (int32_t f = 0; f < n_cols; ++f) {
                if (random() % 3 != 0 || i == 7) continue;  // row 7 is empty
                cols.push_back(f);
                values.push_back(double(random() % 7) - 3.0 + 0.5);
            }
            start.push_back(int64_t(cols.size()));
            row.push_back(i);
            node.push_back(int32_t(random() % parent.size()));
            levels.push_back(over_all ? 1 : int32_t(path_start[node[i] + 1] - path_start[node[i]]));
            cost.push_back(i % 11 == 0 ? 0.0 : 0.3);
        }
    }
    TreeProblem problem(bool over_all) const {
        const int32_t m = int32_t(parent.size());
        return {{m, int32_t(group_start.size()) - 1, parent.data(), group_of.data(), group_start.data()},
                {m, path_start.data(), path_nodes.data()},
                {int64_t(row.size()), row.data(), node.data(), levels.data(), cost.data()},
                {over_all, over_all ? Rescaling::SLACK : Rescaling::NONE, outputs.data()}};
    }
};

void check_factor() {
    const Case data(false, 1);
    const TreeProblem problem = data.problem(false);
    TreeFactor factor;
    CHECK(factorize(problem.paths, data.K.data(), factor));
    invert_factor(problem.paths, factor);
    std::vector<double> P;
    inverse_on_pairs(problem.paths, factor, P);
    const int32_t m = problem.paths.m;
    std::vector<double> dense(size_t(m) * m, 0.0), inverse(size_t(m) * m, 0.0);
    for (int32_t i = 0; i < m; ++i) {
        for (int32_t t = 0; t < problem.paths.depth(i); ++t) {
            const int32_t a = problem.paths.path(i)[t];
            const int64_t e = problem.paths.start[i] + t;
            dense[size_t(a) * m + i] = dense[size_t(i) * m + a] = data.K[e];
            inverse[size_t(a) * m + i] = inverse[size_t(i) * m + a] = P[e];
        }
    }
    for (int32_t i = 0; i < m; ++i) {  // row i of M times column i of M⁻¹: only comparable nodes matter there
        double sum = 0.0;
        for (int32_t k = 0; k < m; ++k) sum += dense[size_t(i) * m + k] * inverse[size_t(k) * m + i];
        CHECK(std::abs(sum - 1.0) < 1e-12);
    }
    std::vector<double> bad = data.K;
    bad[0] = -1.0;
    CHECK(!factorize(problem.paths, bad.data(), factor));
}

template <typename T>
void check_bounds(bool over_all, bool learns, int n_threads, int32_t small_subtree) {
    const Case data(over_all, 2);
    const TreeProblem problem = data.problem(over_all);
    const std::vector<T> values(data.values.begin(), data.values.end());
    const TreeRows<T> X{values.data(), data.cols.data(), data.start.data(), int64_t(data.row.size()), data.n_cols};
    JointDual<T> solver(problem, X, data.K.data(), learns, {5, n_threads, small_subtree});
    double best_dual = -1e300, best_primal = 1e300, primal = 0.0, dual = 0.0;
    for (int k = 0; k < 200; ++k) {
        while (!solver.run(0.0)) {
        }
        double estimate = 0.0;
        solver.improve_coupling(0.0, 3, estimate);
        solver.certify(data.values.data(), primal, dual);
        CHECK(dual <= primal + 1e-9 * std::abs(primal));
        best_dual = std::max(best_dual, dual), best_primal = std::min(best_primal, primal);
        CHECK(best_dual <= best_primal + 1e-9 * std::abs(best_primal));
        CHECK(std::abs(estimate - dual) <= 1e-4 * std::abs(dual));
        solver.extrapolate(estimate);
    }
    CHECK(best_primal - best_dual <= 1e-3 * best_primal);
    const TreeLists<double> duals = solver.duals();
    const std::vector<double> S = learns ? solver.coupling()->S : std::vector<double>();
    JointDual<T> again(problem, X, data.K.data(), learns, {5, n_threads, small_subtree});
    again.start_from(duals.start.data(), duals.cols.data(), duals.values.data(), S.data(), data.values.data());
    double other_primal = 0.0, other_dual = 0.0;
    solver.certify(data.values.data(), primal, dual);
    again.certify(data.values.data(), other_primal, other_dual);
    CHECK(std::abs(primal - other_primal) <= 1e-5 * std::abs(primal));
    CHECK(std::abs(dual - other_dual) <= 1e-9 * std::abs(dual));
    const TreeLists<T> parts = again.parts();
    CHECK(parts.start.size() == data.parent.size() + 1 && parts.cols.size() == parts.values.size());
    std::vector<double> W(data.parent.size() * size_t(data.n_cols), 0.0);
    again.read_weights(W.data());
    for (const double w : W) CHECK(std::isfinite(w));
}

// Multiples of 1/8, exact with or without fused multiply-add, in groups of all widths up to several strips.
struct SmallTable {
    static constexpr int32_t n_lines = 9;
    int32_t width;
    int64_t n;
    std::vector<int32_t> places;
    std::vector<double> table, values, changes;

    SmallTable(int32_t width, int64_t n) : width(width), n(n), table(n_lines * width + STRIP), changes(width + STRIP) {
        std::mt19937 random(unsigned(100 * width + n));
        const auto draw = [&] { return (double(random() % 65) - 32.0) / 8.0; };
        for (double &x : table) x = draw();
        for (int64_t k = 0; k < n; ++k) places.push_back(int32_t(random() % n_lines)), values.push_back(draw());
        for (int32_t j = 0; j < width; ++j) changes[j] = random() % 3 == 0 ? draw() : 0.0;  // some strips are skipped
    }
    template <typename S, typename T, typename V>
    void check_sum(SumRows<S, T, V> sum_rows) const {
        const std::vector<T> lines(table.begin(), table.end());
        const std::vector<V> row(values.begin(), values.end());
        std::vector<S> out(width + 1, S(77));
        sum_rows(lines.data(), width, places.data(), row.data(), n, out.data());
        for (int32_t j = 0; j < width; ++j) {
            double sum = 0.0;
            for (int64_t k = 0; k < n; ++k) sum += values[k] * table[places[k] * width + j];
            CHECK(double(out[j]) == sum);
        }
        CHECK(out[width] == S(77));
    }
    template <typename S, typename V>
    void check_add(AddRows<S, V> add_rows) const {
        std::vector<S> found(table.begin(), table.end());
        const std::vector<S> by(changes.begin(), changes.end());
        const std::vector<V> row(values.begin(), values.end());
        std::vector<double> expected = table;
        for (int64_t k = 0; k < n; ++k) {
            for (int32_t j = 0; j < width; ++j) expected[places[k] * width + j] += values[k] * changes[j];
        }
        add_rows(found.data(), width, places.data(), row.data(), n, by.data());
        for (size_t k = 0; k < expected.size(); ++k) CHECK(double(found[k]) == expected[k]);
    }
};

template <typename T>
void check_kernels(const TreeKernels<T> &kernels) {
    for (int32_t width = 1; width <= 60; ++width) {
        for (const int64_t n : {0, 1, 2, 3, 8, 13}) {
            const SmallTable small(width, n);
            small.check_sum(kernels.sum_own);
            small.check_sum(kernels.sum_floats);
            small.check_sum(kernels.sum_doubles);
            small.check_add(kernels.add_own);
            small.check_add(kernels.add_floats);
            small.check_add(kernels.add_doubles);
        }
    }
}

}  // namespace

int main() {
    for (const std::string &name : available_instruction_sets()) {
        check_kernels(choose_tree_kernels<float>(name));
        check_kernels(choose_tree_kernels<double>(name));
    }
    check_factor();
    for (int n_threads : {1, 3}) {
        for (int32_t small_subtree : {0, 150}) {
            check_bounds<double>(false, true, n_threads, small_subtree);
            check_bounds<float>(false, true, n_threads, small_subtree);
        }
        check_bounds<double>(false, false, n_threads, 150);
        check_bounds<float>(true, false, n_threads, 150);
        check_bounds<double>(true, false, n_threads, 150);
    }
    return 0;
}
