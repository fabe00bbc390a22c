// The fast one-vs-all solver: every path on small random data. Its rule and bounds are recomputed here.
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "check.hpp"
#include "one_vs_all/fast.hpp"
#include "one_vs_all_data.hpp"

using namespace widemargin;

namespace {

// Rows of up to 12 entries of at least `least`, scaled to length 1; labels with the given shares of positives.
TestRows make_data(int64_t n_rows, int64_t n_cols, const std::vector<double> &shares, double least = -0.2) {
    return random_rows(5, n_rows, n_cols, shares, [n_cols, least](TestRows &d, auto draw) {
        const int length = static_cast<int>(12 * draw());
        double norm = 0;
        std::vector<float> values;
        for (int k = 0; k < length; ++k) values.push_back(static_cast<float>(draw() + least));
        for (float x : values) norm += static_cast<double>(x) * x;
        for (int k = 0; k < length; ++k) {
            d.add_entry((k * n_cols + static_cast<int64_t>(n_cols * draw())) / 12, values[k] / std::sqrt(norm));
        }
    });
}

// The objective of a stored label, in double precision over all rows.
double objective(const TestRows &d, int64_t j, const StoredLabel &label) {
    std::vector<double> w(d.n_cols, 0.0);
    for (size_t k = 0; k < label.cols.size(); ++k) w[label.cols[k]] = label.vals[k];
    return d.objective(j, w, label.intercept, 1.0, SquaredHinge::value);
}

using Solver = FastOneVsAll<TestRows::Matrix>;

void check_labels(const TestRows &d, double prune, int n_threads, bool indexed = false) {
    const int64_t n_labels = d.n_labels();
    const TestRows::Matrix X = d.view();
    Solver solver(X, d.row_weight.data(), {1.0, 1.0, 0.0, 0.01, 1e-3, prune, 100, n_threads});
    if (indexed) solver.index_rows();
    solver.begin(d.block());
    solver.solve(0, n_labels);
    const std::vector<StoredLabel> labels = solver.take(0, n_labels, false, int64_t{1} << 40);
    CHECK(static_cast<int64_t>(labels.size()) == n_labels);
    for (int64_t j = 0; j < n_labels; ++j) {
        const StoredLabel &label = labels[j];
        CHECK(label.converged);
        CHECK(std::abs(objective(d, j, label) - label.bounds[PRIMAL]) <= 1e-9 * (1 + label.bounds[PRIMAL]));
        CHECK(label.bounds[DUAL] <= label.bounds[PRIMAL_BEFORE_PRUNING]);
        CHECK(label.bounds[PRIMAL_BEFORE_PRUNING] - label.bounds[DUAL] <= 1e-3 * label.bounds[PRIMAL_BEFORE_PRUNING]);
        for (float w : label.vals) CHECK(std::abs(w) >= prune);
    }
}

// Labels in two parts, second part first, with the choices made for all of them: the same weights.
void check_parts(const TestRows &d, int64_t cut, bool indexed = false) {
    const int64_t n_labels = d.n_labels();
    const TestRows::Matrix X = d.view();
    Solver solver(X, d.row_weight.data(), {1.0, 1.0, 0.0, 0.01, 1e-3, 0.01, 100, 2});
    if (indexed) solver.index_rows();
    solver.begin(d.block());
    solver.solve(0, n_labels);
    const std::vector<StoredLabel> whole = solver.take(0, n_labels, false, int64_t{1} << 40);
    const SharedChoices all = solver.shared_choices();
    for (const auto &[first, last] : {std::pair{cut, n_labels}, std::pair{int64_t{0}, cut}}) {
        SharedChoices choices{{}, all.whole, BiasPrior(all.prior.sums(), all.prior.counts())};
        for (int64_t j : all.pilot) {
            if (j >= first && j < last) choices.pilot.push_back(j - first);
        }
        solver.begin_part(d.block(first, last), choices);
        solver.solve(0, last - first);
        const std::vector<StoredLabel> part = solver.take(0, last - first, false, int64_t{1} << 40);
        for (int64_t j = first; j < last; ++j) {
            CHECK(part[j - first].cols == whole[j].cols && part[j - first].vals == whole[j].vals);
            CHECK(part[j - first].intercept == whole[j].intercept && part[j - first].n_iter == whole[j].n_iter);
        }
    }
}

// Rows of every length, with ascending columns or with columns in any order, some of them repeated, are in the store
// with ascending columns and the sums of their values.
void check_row_store(bool ascending) {
    constexpr int LONGEST = 70, N_COLS = 997;
    std::vector<float> data;
    std::vector<int32_t> indices, indptr{0};
    std::vector<std::map<int32_t, double>> expected;
    for (int length = 0; length <= LONGEST; ++length) {
        std::map<int32_t, double> row;
        for (int k = 0; k < length; ++k) {
            const int32_t col = ascending ? 14 * k + (k * length) % 14 : (k * k * 31 + 7 * length) % N_COLS;
            indices.push_back(col);
            data.push_back(static_cast<float>(k + 1));
            row[col] += k + 1;
        }
        indptr.push_back(static_cast<int32_t>(indices.size()));
        expected.push_back(row);
    }
    const std::vector<double> row_weight(LONGEST + 1, 1.0);
    const CsrView<float, int32_t> X{data.data(), indices.data(), indptr.data(), LONGEST + 1, N_COLS};
    const RowStore store = build_row_store(X, row_weight.data());
    for (int64_t i = 0; i <= LONGEST; ++i) {
        std::map<int32_t, double> row;
        for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
            CHECK(k == store.start[i] || store.entries[k - 1].col < store.entries[k].col);
            row[static_cast<int32_t>(store.col_id[store.entries[k].col])] = store.entries[k].val;
        }
        CHECK(row == expected[store.row_id[i]]);
    }
}

// Every row of a pass can be read, whether its copy had room or not.
void check_copies(int64_t n_rows) {
    const TestRows d = make_data(n_rows, 50, {});
    const std::vector<float> slack(n_rows, 0.0f);
    const RowStore store = build_row_store(d.view(), d.row_weight.data());
    const PackedRows packed = pack_rows(store);
    BatchPass pass(store, packed, choose_kernels(choose_instruction_set()), slack.data());
    for (int lane = 0; lane < SCAN_LANES; ++lane) pass.set(lane, {}, lane % 2 == 0 ? -1.0 : 1.0, RowSlack::NONE);
    for (int repetition = 0; repetition < 2; ++repetition) {
        pass.run();
        for (int lane = 0; lane < SCAN_LANES; ++lane) {
            const Emission found = pass.emitted(lane);
            CHECK(found.n == (lane % 2 == 0 ? n_rows : 0));
            CHECK(static_cast<int64_t>(found.rows[found.n].begin) <= COPY_LIMIT);
            for (int64_t k = 0; k < found.n; ++k) {
                const RowView got = found.view(k, store), expected = store.view(static_cast<uint32_t>(k));
                CHECK(got.row == k && got.length == expected.length);
                for (uint32_t e = 0; e < got.length; ++e) {
                    CHECK(got.entries[e].col == expected.entries[e].col);
                    CHECK(got.entries[e].val == expected.entries[e].val);
                }
            }
        }
    }
}

}  // namespace

int main() {
    check_row_store(true);
    check_row_store(false);
    check_copies(3000);                  // 16,000 entries
    check_copies(COPY_LIMIT / 5 + 999);  // a few more than have room
    const TestRows rare = make_data(9000, 400, {0.0, 0.0005, 0.001, 0.002, 0.003, 0.003, 0.9999, 1.0});
    const TestRows frequent = make_data(700, 90, {0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.05, 0.02});
    const TestRows lone = make_data(2500, 200, {0.3, 0.001, 0.002});
    check_parts(rare, 3);
    check_parts(frequent, 5);
    check_parts(lone, 1);
    const TestRows rare_unsigned = make_data(9000, 400, {0.0, 0.0005, 0.001, 0.002, 0.003, 0.003, 0.9999, 1.0}, 0.0);
    check_parts(rare_unsigned, 3, true);
    for (double prune : {0.0, 0.01, 0.5}) {
        check_labels(rare, prune, 1);
        check_labels(frequent, prune, 2);
        check_labels(lone, prune, 3);
        check_labels(rare_unsigned, prune, 2, true);
        check_labels(rare, prune, 2, true);  // some values are below zero: nothing is indexed
    }
    return 0;
}
