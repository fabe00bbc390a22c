// The kernels of the fast and the batched solvers, one by one.
#include "one_vs_all/fast.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/one_vs_all.hpp"
#include "bindings/testing/hooks.hpp"
#include "one_vs_all/batch_logistic.hpp"

namespace widemargin {
namespace {

// float32 data with 32-bit indices
using TestMatrix = CsrView<float, int32_t>;

// Weights of a dense vector in the columns of the store.
LabelWeights sparse_weights(const RowStore &store, const float *coef, double intercept) {
    LabelWeights weights;
    for (int64_t k = 0; k < store.n_cols; ++k) {
        if (coef[store.col_id[k]] == 0) continue;
        weights.cols.push_back(static_cast<uint32_t>(k));
        weights.vals.push_back(coef[store.col_id[k]]);
    }
    weights.bias = intercept;
    return weights;
}

std::tuple<NumpyVector<uint32_t>, NumpyVector<uint32_t>> store_order(ConstVector<float> data,
                                                                     ConstVector<int32_t> indices,
                                                                     ConstVector<int32_t> indptr, int64_t n_features) {
    const TestMatrix X = csr_view(data, indices, indptr, n_features);
    const std::vector<double> ones(X.n_rows, 1.0);
    RowStore store = build_row_store(X, ones.data());
    return {own(std::move(store.row_id)), own(std::move(store.col_id))};
}

using PreparedLabel = std::tuple<NumpyVector<int64_t>, double, double, double, bool, double, double>;

PreparedLabel prepare_label(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                            int64_t n_features, ConstVector<int64_t> positives, ConstVector<double> row_weight,
                            double positive_factor, double negative_factor, double bias_value, double tol) {
    const TestMatrix X = csr_view(data, indices, indptr, n_features);
    const RowStore store = build_row_store(X, row_weight.data());
    OneVsAllOptions options{};
    options.C = 1.0;
    options.bias_value = bias_value;
    options.tol = tol;
    const int64_t ends[2] = {0, static_cast<int64_t>(positives.shape(0))};
    const LabelBlock block{1, positives.data(), ends, row_weight.data(), &positive_factor, &negative_factor};
    std::vector<double> scratch(n_features, 0.0);
    LabelProblem label;
    const LabelSides sides = LabelSetup(store, options).prepare(block, 0, scratch, label);
    std::vector<int64_t> rows;
    for (uint32_t i : label.positives) rows.push_back(store.row_id[i]);
    std::sort(rows.begin(), rows.end());
    return {own(std::move(rows)), label.positive_factor, label.negative_factor, label.rule,
            label.swapped,        sides.positive,        sides.negative};
}

using EmittedLists = std::tuple<NumpyVector<int64_t>, NumpyVector<int64_t>, NumpyVector<float>>;

EmittedLists scan_rows(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                       ConstMatrix<float> coef, ConstVector<float> intercept, ConstVector<float> threshold,
                       ConstVector<float> slack, const std::string &isa) {
    const TestMatrix X = csr_view(data, indices, indptr, static_cast<int64_t>(coef.shape(1)));
    const std::vector<double> ones(X.n_rows, 1.0);
    const RowStore store = build_row_store(X, ones.data());
    std::vector<float> sorted_slack(X.n_rows);
    for (int64_t i = 0; i < X.n_rows; ++i) sorted_slack[i] = slack.data()[store.row_id[i]];
    const PackedRows packed = pack_rows(store);
    BatchPass pass(store, packed, choose_kernels(isa), sorted_slack.data());
    const int n_lanes = static_cast<int>(std::min<size_t>(coef.shape(0), SCAN_LANES));
    for (int lane = 0; lane < n_lanes; ++lane) {
        const LabelWeights weights = sparse_weights(store, coef.data() + lane * X.n_cols, intercept.data()[lane]);
        pass.set(lane, weights, threshold.data()[lane], RowSlack::PRUNING);
    }
    pass.run();
    std::vector<int64_t> ends{0}, rows;
    std::vector<float> scores;
    for (int lane = 0; lane < n_lanes; ++lane) {
        const Emission found = pass.emitted(lane);
        for (int64_t k = 0; k < found.n; ++k) {
            rows.push_back(store.row_id[found.rows[k].row]);
            scores.push_back(found.rows[k].score);
        }
        ends.push_back(static_cast<int64_t>(rows.size()));
    }
    return {own(std::move(ends)), own(std::move(rows)), own(std::move(scores))};
}

// used, rows, scores, upper bounds of scores
using Screened = std::tuple<bool, NumpyVector<int64_t>, NumpyVector<float>, NumpyVector<double>>;

Screened screen_rows(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                     ConstVector<float> coef, double intercept, double threshold, double prune, bool proof,
                     int64_t entries_share, const std::string &isa) {
    const TestMatrix X = csr_view(data, indices, indptr, static_cast<int64_t>(coef.shape(0)));
    const std::vector<double> ones(X.n_rows, 1.0);
    const RowStore store = build_row_store(X, ones.data());
    const FastShared shared = make_shared(store, choose_kernels(isa), prune);
    const RowIndex index = build_row_index(store);
    ScreenedPass pass(store, index, shared.kernels, entries_share);
    const LabelWeights weights = shared.envelope(sparse_weights(store, coef.data(), intercept));
    std::vector<int64_t> rows;
    std::vector<float> scores;
    std::vector<double> upper;
    bool used = false;
    for (int repetition = 0; repetition < 2; ++repetition) {  // what the first leaves behind must not matter
        used = pass.find(weights, threshold, proof);
    }
    const Emission found = used ? pass.emitted() : Emission{};
    for (int64_t k = 0; k < found.n; ++k) {
        const EmittedRow &row = found.rows[k];
        rows.push_back(store.row_id[row.row]);
        scores.push_back(row.score);
        upper.push_back(static_cast<double>(row.score) + row.slack);
    }
    return {used, own(std::move(rows)), own(std::move(scores)), own(std::move(upper))};
}

// One label on a row store, for the tests of the local problem and of the certificate.
struct TestLabel {
    TestMatrix X;
    OneVsAllOptions options;
    RowStore store;
    LabelProblem label;

    TestLabel(const TestMatrix &matrix, ConstVector<int64_t> positives, ConstVector<double> row_weight,
              const OneVsAllOptions &given)
        : X(matrix), options(given), store(build_row_store(matrix, row_weight.data())) {
        const int64_t indptr[] = {0, static_cast<int64_t>(positives.shape(0))};
        const double one = 1;
        std::vector<double> scratch(X.n_cols, 0.0);
        LabelSetup(store, options).prepare({1, positives.data(), indptr, nullptr, &one, &one}, 0, scratch, label);
    }
};

std::tuple<NumpyVector<float>, double, int, bool> solve_local(ConstVector<float> data, ConstVector<int32_t> indices,
                                                              ConstVector<int32_t> indptr, int64_t n_features,
                                                              ConstVector<int64_t> positives,
                                                              ConstVector<double> row_weight, ConstVector<int64_t> rows,
                                                              double intercept, double bias_penalty, bool fixed_bias,
                                                              double gradient_norm, const std::string &isa) {
    const OneVsAllOptions options{1.0, 1.0, bias_penalty, 0.01, 1e-3, 0.0, 100, 1};
    const TestLabel test(csr_view(data, indices, indptr, n_features), positives, row_weight, options);
    std::vector<RowView> chosen;
    for (size_t k = 0; k < rows.shape(0); ++k) chosen.push_back(test.store.view(test.store.position[rows.data()[k]]));
    std::sort(chosen.begin(), chosen.end(), [](const RowView &a, const RowView &b) { return a.row < b.row; });
    LabelWeights weights;
    weights.bias = intercept;
    LocalProblem local(test.store, choose_kernels(isa));
    local.build(test.label, chosen, weights);
    bool converged = false;
    const int n_iter = local.solve({gradient_norm, 1e30, fixed_bias, LOCAL_MAX_ITER}, converged);
    local.read(weights);
    std::vector<float> coef(n_features, 0.0f);
    for (size_t k = 0; k < weights.cols.size(); ++k) coef[test.store.col_id[weights.cols[k]]] = weights.vals[k];
    return {own(std::move(coef)), weights.bias, n_iter, converged};
}

// intercept, primal, dual, primal_before_pruning, pruned_share, gradient_norm, valid, pruned_valid
using Certified = std::tuple<double, double, double, double, double, double, bool, bool>;

Certified certify_weights(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                          ConstVector<int64_t> positives, ConstVector<double> row_weight, ConstVector<float> coef,
                          double intercept, double bias_value, double bias_penalty, double prune, double threshold) {
    const OneVsAllOptions options{1.0, bias_value, bias_penalty, 0.01, 1e-3, prune, 100, 1};
    const TestMatrix X = csr_view(data, indices, indptr, static_cast<int64_t>(coef.shape(0)));
    const TestLabel test(X, positives, row_weight, options);
    const FastShared shared = make_shared(test.store, choose_kernels(choose_instruction_set()), prune);
    LabelWeights weights = sparse_weights(test.store, coef.data(), intercept);
    BatchPass pass(test.store, shared.packed, shared.kernels, shared.slack.data());
    const bool covers_pruning = shared.covers_pruning(intercept);
    pass.set(0, shared.envelope(weights), threshold, covers_pruning ? RowSlack::PRUNING : RowSlack::UNBOUNDED_ROWS);
    pass.run();
    const EmittedRows emitted{pass.emitted(0), threshold, covers_pruning};
    SparseCertificate certificate(test.store, shared.kernels);
    LabelBounds b = certificate.evaluate(test.label, emitted, prune, weights);
    if (!b.pruned_valid) {  // a separate pass, as in the scheduler
        const LabelWeights kept = weights.pruned(prune);
        pass.set(0, kept, threshold, RowSlack::UNBOUNDED_ROWS);
        pass.run();
        certificate.objective(test.label, {pass.emitted(0), threshold, false}, kept, b.primal);
    }
    return {weights.bias,   b.primal,        b.dual,  b.primal_before_pruning,
            b.pruned_share, b.gradient_norm, b.valid, b.pruned_valid};
}

// out (n_labels, 6): intercept, primal, dual, primal_before_pruning, pruned_share, gradient_norm
void certify_batch(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                   ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                   ConstVector<double> row_weight, ConstMatrix<float> coef, ConstVector<double> intercept,
                   double bias_value, double bias_penalty, double prune, OutMatrix<double> out,
                   const std::string &isa) {
    const OneVsAllOptions options{1.0, bias_value, bias_penalty, 0.01, 1e-3, prune, 100, 1};
    const int64_t n_labels = static_cast<int64_t>(coef.shape(0)), n_features = static_cast<int64_t>(coef.shape(1));
    const RowStore store = build_row_store(csr_view(data, indices, indptr, n_features), row_weight.data());
    const LabelSetup setup(store, options);
    const std::vector<double> ones(n_labels, 1.0);
    const LabelBlock labels{n_labels,          positive_rows.data(), positive_indptr.data(),
                            row_weight.data(), ones.data(),          ones.data()};
    std::vector<double> scratch(n_features, 0.0);
    BatchCertificate certificate(store, choose_kernels(isa), prune);
    auto run = [&] {
        certificate.run([&](Candidate &&c, const LabelBounds &b) {
            const double sign = c.label.swapped ? -1 : 1;
            const double numbers[] = {sign * c.weights.bias,   b.primal,       b.dual,
                                      b.primal_before_pruning, b.pruned_share, b.gradient_norm};
            std::copy(numbers, numbers + 6, out.data() + c.index * 6);
        });
    };
    for (int64_t j = 0; j < n_labels; ++j) {
        Candidate c;
        c.index = j;
        setup.prepare(labels, j, scratch, c.label);
        c.weights = sparse_weights(store, coef.data() + j * n_features, intercept.data()[j]);
        if (c.label.swapped) {
            for (float &w : c.weights.vals) w = -w;
            c.weights.bias = -c.weights.bias;
        }
        certificate.add(std::move(c));
        if (certificate.full()) run();
    }
    if (!certificate.empty()) run();
}

AlignedFloats aligned_copy(const float *values, int64_t n) {
    AlignedFloats out = aligned_floats((n + LANES - 1) / LANES * LANES);
    std::copy(values, values + n, out.get());
    return out;
}

template <int N>
std::vector<float> run_search(const SearchRows &rows, const SubspaceProducts &products, const bool *use,
                              const VectorKernels &kernels) {
    SubspaceSearch<N> search;
    search.begin(products, use);
    double sums[MAX_SEARCH_SUMS];
    do {
        kernels.search_sums(rows, static_cast<float>(products.bias), search.theta(), sums);
    } while (!search.absorb(sums));
    return {search.theta(), search.theta() + N};
}

// rows: (4, n) s, sz, sp, signed cost, or (6, n) with the shared directions; products: zz, zp, zw, pp, pw, ww, bias,
// bias_penalty, and two each of vz, vp, vw
std::vector<float> search_subspace(ConstMatrix<float> rows, ConstVector<double> products, ConstVector<bool> use,
                                   const std::string &isa) {
    const int64_t n = static_cast<int64_t>(rows.shape(1)), padded = (n + LANES - 1) / LANES * LANES;
    const int n_arrays = static_cast<int>(rows.shape(0));
    AlignedFloats blocks = aligned_floats(n_arrays * padded);
    for (int j = 0; j < n_arrays; ++j) {
        for (int64_t i = 0; i < n; ++i) {
            blocks[(i / LANES * n_arrays + j) * LANES + i % LANES] = rows.data()[j * n + i];
        }
    }
    const float *at = blocks.get();
    SearchRows view{padded, n_arrays * LANES, at, at + LANES, at + 2 * LANES, at + 3 * LANES};
    const double *q = products.data();
    SubspaceProducts given{q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]};
    const VectorKernels &kernels = choose_kernels(isa);
    if (n_arrays == 4) return run_search<N_DIRECTIONS>(view, given, use.data(), kernels);
    view.shared = at + 4 * LANES;
    std::copy_n(q + 8, N_SHARED, given.vz);
    std::copy_n(q + 8 + N_SHARED, N_SHARED, given.vp);
    std::copy_n(q + 8 + 2 * N_SHARED, N_SHARED, given.vw);
    return run_search<MAX_DIRECTIONS>(view, given, use.data(), kernels);
}

// The shared directions, (n_features, N_SHARED), and their scores, (n_rows, N_SHARED), in the order of X.
std::tuple<std::vector<float>, std::vector<float>> shared_directions(ConstVector<float> data,
                                                                     ConstVector<int32_t> indices,
                                                                     ConstVector<int32_t> indptr, int64_t n_features,
                                                                     ConstVector<double> row_weight,
                                                                     const std::string &isa) {
    const RowStore store = build_row_store(csr_view(data, indices, indptr, n_features), row_weight.data());
    const SharedDirections found = find_shared_directions(store, choose_kernels(isa));
    std::vector<float> columns(n_features * N_SHARED, 0.0f), scores(store.n_rows * N_SHARED);
    for (int64_t k = 0; k < store.n_used; ++k) {
        std::copy_n(found.columns.begin() + k * N_SHARED, N_SHARED, columns.begin() + store.col_id[k] * N_SHARED);
    }
    for (int64_t i = 0; i < store.n_rows; ++i) {
        std::copy_n(found.scores.begin() + i * N_SHARED, N_SHARED, scores.begin() + store.row_id[i] * N_SHARED);
    }
    return {columns, scores};
}

// The tables of a batch as tests give them: matrices of LANES columns, rows and columns in the order of X.
struct BatchTables {
    std::vector<int64_t> start;
    AlignedArray<RowEntry> entries;
    std::vector<float> cost;
    std::vector<uint16_t> signs;
    std::vector<float> shared_columns, shared_rows;
    LaneTables tables;
    int64_t n_rows, n_cols;
    BatchArgs args{};

    BatchTables(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                ConstVector<float> row_cost, ConstMatrix<bool> positive, ConstMatrix<float> columns,
                ConstMatrix<float> rows, ConstMatrix<float> lanes, ConstMatrix<float> of_columns,
                ConstMatrix<float> of_rows)
        : start(indptr.data(), indptr.data() + indptr.shape(0)),
          entries(aligned_array<RowEntry>(static_cast<int64_t>(data.shape(0)) + PREFETCH_ENTRIES)),
          cost(row_cost.data(), row_cost.data() + row_cost.shape(0)),
          signs(row_cost.shape(0), 0),
          shared_columns(of_columns.data(), of_columns.data() + of_columns.size()),
          shared_rows(of_rows.data(), of_rows.data() + of_rows.size()),
          n_rows(static_cast<int64_t>(row_cost.shape(0))),
          n_cols(static_cast<int64_t>(columns.shape(0)) / 3) {
        for (size_t k = 0; k < data.shape(0); ++k) {
            entries[k] = {static_cast<uint32_t>(indices.data()[k]), data.data()[k]};
        }
        for (int64_t i = 0; i < n_rows * LANES; ++i) {
            signs[i / LANES] = static_cast<uint16_t>(signs[i / LANES] | (positive.data()[i] << (i % LANES)));
        }
        AlignedFloats *by_column[] = {&tables.W, &tables.P, &tables.Z}, *by_row[] = {&tables.S, &tables.SZ, &tables.SP};
        for (int t = 0; t < 3; ++t) {
            *by_column[t] = aligned_copy(columns.data() + t * n_cols * LANES, n_cols * LANES);
            *by_row[t] = aligned_copy(rows.data() + t * n_rows * LANES, n_rows * LANES);
        }
        tables.G = aligned_floats(n_cols * LANES);
        args.entries = entries.get();
        args.start = start.data();
        args.cost = cost.data();
        args.signs = signs.data();
        args.shared = shared_rows.data();
        tables.connect(args);
        args.sample_stride = 1;
        const float *row = lanes.data();
        for (float *to : {args.bias, args.theta[0], args.theta[1], args.theta[2], args.theta[3], args.positive_factor,
                          args.negative_factor, args.reach, args.reach_z, args.reach_p}) {
            std::copy(row, row + LANES, to);
            row += LANES;
        }
        std::copy(row, row + N_SHARED * LANES, args.theta[N_DIRECTIONS]);
        std::copy(args.negative_factor, args.negative_factor + LANES, args.search_factor);
    }
};

// Room for the near rows of every lane.
std::vector<AlignedFloats> give_room(BatchTables &batch) {
    std::vector<AlignedFloats> room;
    for (NearRows &near : batch.args.near) {
        room.push_back(aligned_floats((batch.n_rows / LANES + 2) * NEAR_STRIDE));
        near = {room.back().get(), 0};
    }
    return room;
}

// Returns (lane, s, sz, sp, signed cost, scores of the shared directions) of the near rows, seven numbers each.
std::vector<float> batch_dots(BatchTables &batch, uint32_t sampled, int64_t stride, OutMatrix<float> sz,
                              const std::string &isa) {
    const std::vector<AlignedFloats> room = give_room(batch);
    batch.args.searched = 0xffff;
    batch.args.sampled = sampled;
    batch.args.sample_stride = stride;
    for (int64_t begin = 0; begin < batch.n_rows; begin += BATCH_ROWS) {
        choose_kernels(isa).batch_dots[1](batch.args, begin, std::min(batch.n_rows, begin + BATCH_ROWS));
    }
    std::copy(batch.tables.SZ.get(), batch.tables.SZ.get() + batch.n_rows * LANES, sz.data());
    std::vector<float> out;
    for (int lane = 0; lane < LANES; ++lane) {
        for (int64_t k = 0; k < batch.args.near[lane].count; ++k) {
            out.push_back(static_cast<float>(lane));
            for (int j = 0; j < NEAR_ARRAYS; ++j)
                out.push_back(batch.args.near[lane].blocks[NearRows::at(k) + j * LANES]);
        }
    }
    return out;
}

// (N_SEARCH_SUMS, LANES)
void batch_search(BatchTables &batch, OutMatrix<double> sums, const std::string &isa) {
    double own[N_SEARCH_SUMS][LANES] = {};
    choose_kernels(isa).logistic_search(batch.args, 0, batch.n_rows, own);
    std::copy(&own[0][0], &own[0][0] + N_SEARCH_SUMS * LANES, sums.data());
}

// scores (2 n_rows, LANES): S and SP; sums (N_SEARCH_SUMS, LANES).
void logistic_dots(BatchTables &batch, uint32_t fresh, ConstVector<float> mean_scores, OutMatrix<float> sz,
                   OutMatrix<float> scores, OutMatrix<double> sums, const std::string &isa) {
    double own[N_SEARCH_SUMS][LANES] = {};
    choose_kernels(isa).logistic_dots(batch.args, 0, batch.n_rows, fresh, mean_scores.data(), own);
    std::copy(&own[0][0], &own[0][0] + N_SEARCH_SUMS * LANES, sums.data());
    std::copy_n(batch.tables.SZ.get(), batch.n_rows * LANES, sz.data());
    std::copy_n(batch.tables.S.get(), batch.n_rows * LANES, scores.data());
    std::copy_n(batch.tables.SP.get(), batch.n_rows * LANES, scores.data() + batch.n_rows * LANES);
}

// rows (4, n): s, sz, sp, signed cost; n is a multiple of LANES.
void logistic_sums(ConstMatrix<float> rows, float bias, ConstVector<float> theta, OutVector<double> sums,
                   const std::string &isa) {
    const int64_t n = static_cast<int64_t>(rows.shape(1));
    AlignedFloats own = aligned_floats(4 * n);
    std::copy_n(rows.data(), 4 * n, own.get());
    const SearchRows view{n, LANES, own.get(), own.get() + n, own.get() + 2 * n, own.get() + 3 * n};
    choose_kernels(isa).logistic_sums(view, bias, theta.data(), sums.data());
}

// The step θ in all tables and the next direction. sums: loss, bias_sum, curvature, zz, zp, zw, pp, pw, ww, gg, and
// four each of vz, vp, vw by lane.
void batch_step(BatchTables &batch, const std::string &loss, ConstVector<float> spread, ConstVector<float> scaling,
                OutMatrix<float> columns, OutMatrix<float> rows, OutMatrix<double> sums, const std::string &isa) {
    const VectorKernels &kernels = choose_kernels(isa);
    (loss == "logistic" ? kernels.logistic_gradient : kernels.batch_gradient[1])(batch.args, 0, batch.n_rows);
    FeatureArgs args{};
    args.n_cols = batch.n_cols;
    args.spread = spread.data();
    batch.tables.connect(args);
    args.shared = batch.shared_columns.data();
    std::copy(&batch.args.theta[0][0], &batch.args.theta[0][0] + MAX_DIRECTIONS * LANES, &args.theta[0][0]);
    std::copy(scaling.data(), scaling.data() + LANES, args.scaling);
    kernels.batch_features[loss != "logistic"](args);
    const LaneTables &tables = batch.tables;
    const AlignedFloats *by_column[] = {&tables.W, &tables.P, &tables.Z},
                        *by_row[] = {&tables.S, &tables.SZ, &tables.SP};
    for (int t = 0; t < 3; ++t) {
        std::copy_n(by_column[t]->get(), batch.n_cols * LANES, columns.data() + t * batch.n_cols * LANES);
        std::copy_n(by_row[t]->get(), batch.n_rows * LANES, rows.data() + t * batch.n_rows * LANES);
    }
    const double *all[] = {batch.args.loss,
                           batch.args.bias_sum,
                           batch.args.curvature,
                           args.zz,
                           args.zp,
                           args.zw,
                           args.pp,
                           args.pw,
                           args.ww,
                           args.gg};
    for (int j = 0; j < 10; ++j) std::copy_n(all[j], LANES, sums.data() + j * LANES);
    std::copy_n(args.vz[0], N_SHARED * LANES, sums.data() + 10 * LANES);
}

// run(store, next, done): the search.
template <class Run>
int run_batch(const TestMatrix &X, const LabelBlock &labels, const OneVsAllOptions &options, double rule_factor,
              float *coef, double *intercept, int64_t *n_iter, Run run) {
    const RowStore store = build_row_store(X, labels.row_weight);
    const LabelSetup setup(store, options);
    std::vector<double> scratch(X.n_cols, 0.0);
    int64_t taken = 0;
    int n_stuck = 0;
    auto next = [&](Candidate &c) {
        if (taken == labels.n_labels) return false;
        c = Candidate{};
        c.index = taken++;
        setup.prepare(labels, c.index, scratch, c.label);
        c.label.rule *= rule_factor;
        return true;
    };
    auto done = [&](Candidate &&c) {
        const double sign = c.label.swapped ? -1 : 1;
        for (size_t k = 0; k < c.weights.cols.size(); ++k) {
            coef[c.index * X.n_cols + store.col_id[c.weights.cols[k]]] = static_cast<float>(sign * c.weights.vals[k]);
        }
        intercept[c.index] = sign * c.weights.bias;
        n_iter[c.index] = c.n_iter;
        n_stuck += c.stuck;
    };
    run(store, next, done);
    return n_stuck;
}

int solve_batch(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                ConstVector<double> row_weight, const std::string &loss, double bias_penalty, double tol,
                double gap_tol, OutMatrix<float> coef, OutVector<double> intercept, OutVector<int64_t> n_iter,
                const std::string &isa) {
    const TestMatrix X = csr_view(data, indices, indptr, static_cast<int64_t>(coef.shape(1)));
    const OneVsAllOptions options{1.0, 1.0, bias_penalty, tol, gap_tol, 0.0, 100, 1, false};
    const std::vector<double> ones(coef.shape(0), 1.0);
    const LabelBlock labels{static_cast<int64_t>(coef.shape(0)),
                            positive_rows.data(),
                            positive_indptr.data(),
                            row_weight.data(),
                            ones.data(),
                            ones.data()};
    const VectorKernels &kernels = choose_kernels(isa);
    if (loss == "logistic") {
        return run_batch(
            X, labels, options, LOGISTIC_RULE_FACTOR, coef.data(), intercept.data(), n_iter.data(),
            [&](const RowStore &store, auto &next, auto &done) { LogisticSearch(store, kernels).run(next, done); });
    }
    return run_batch(X, labels, options, 1.0, coef.data(), intercept.data(), n_iter.data(),
                     [&](const RowStore &store, auto &next, auto &done) {
                         const std::atomic<bool> never{false};
                         const SharedDirections shared = find_shared_directions(store, kernels);
                         BatchSubspace(store, kernels, &shared).run(never, next, done);
                     });
}

// out (n_labels, 7): primal, dual, primal_before_pruning, pruned_share, gradient_norm, next intercept, swapped.
void certify_logistic(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                      ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                      ConstVector<double> row_weight, ConstMatrix<double> factors, ConstMatrix<float> coef,
                      ConstVector<double> intercept, double bias_value, double bias_penalty, double prune,
                      OutMatrix<double> out, const std::string &isa) {
    const TestMatrix X = csr_view(data, indices, indptr, static_cast<int64_t>(coef.shape(1)));
    const RowStore store = build_row_store(X, row_weight.data());
    const OneVsAllOptions options{1.0, bias_value, bias_penalty, 0.01, 0.01, prune, 100, 1, false};
    const int64_t n = static_cast<int64_t>(coef.shape(0));
    const LabelBlock labels{
        n, positive_rows.data(), positive_indptr.data(), row_weight.data(), factors.data(), factors.data() + n};
    const LabelSetup setup(store, options);
    std::vector<double> scratch(X.n_cols, 0.0);
    std::vector<Candidate> candidates(n);
    std::vector<const Candidate *> pointers;
    for (int64_t j = 0; j < n; ++j) {
        Candidate &candidate = candidates[j];
        setup.prepare(labels, j, scratch, candidate.label);
        const float sign = candidate.label.swapped ? -1.0f : 1.0f;
        candidate.weights = sparse_weights(store, coef.data() + j * X.n_cols, sign * intercept.data()[j]);
        for (float &w : candidate.weights.vals) w *= sign;
        pointers.push_back(&candidate);
    }
    LogisticCertificate certificate(store, choose_kernels(isa));
    for (int repetition = 0; repetition < 2; ++repetition) {  // the second finds the tables as the first left them
        LogisticCertificate::Outcome outcomes[LANES];
        certificate.evaluate(pointers, prune, outcomes);
        for (int64_t j = 0; j < n; ++j) {
            const LabelBounds &bounds = outcomes[j].bounds;
            const bool swapped = candidates[j].label.swapped;
            const double row[] = {bounds.primal,
                                  bounds.dual,
                                  bounds.primal_before_pruning,
                                  bounds.pruned_share,
                                  bounds.gradient_norm,
                                  swapped ? -outcomes[j].next_bias : outcomes[j].next_bias,
                                  static_cast<double>(swapped)};
            std::copy(row, row + 7, out.data() + j * 7);
        }
    }
}

}  // namespace

void bind_fast_hooks(nb::module_ &module) {
    module.def("store_order", &store_order, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("n_features"),
               "Rows and columns in the order of the row store, each an array of their numbers.");
    module.def("prepare_label", &prepare_label, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("n_features"), nb::arg("positives").noconvert(),
               nb::arg("row_weight").noconvert(), nb::arg("positive_factor"), nb::arg("negative_factor"),
               nb::arg("bias_value"), nb::arg("tol"),
               "A label's problem with C = 1: rows of the rarer side, its factor and that of the other side, the "
               "gradient norm\nat which to stop, whether the sides are swapped, weight of positives and negatives.");
    module.def(
        "scan_rows", &scan_rows, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("indptr").noconvert(), nb::arg("coef").noconvert(), nb::arg("intercept").noconvert(),
        nb::arg("threshold").noconvert(), nb::arg("slack").noconvert(), nb::arg("isa"),
        "Batch pass for up to 32 labels: coef (n_labels, n_features), intercept and threshold (n_labels,), slack "
        "(n_samples,).\nReturns indptr (n_labels + 1,), rows and scores of the rows with score + slack > "
        "threshold.");
    module.def(
        "screen_rows", &screen_rows, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("indptr").noconvert(), nb::arg("coef").noconvert(), nb::arg("intercept"), nb::arg("threshold"),
        nb::arg("prune"), nb::arg("proof"), nb::arg("entries_share"), nb::arg("isa"),
        "Screened pass for the envelope of one label's weights: coef (n_features,). Returns whether the index was "
        "used, "
        "and the rows\nwith scores above the threshold, their scores and upper bounds; entries_share=0: however many "
        "entries are added up.");
    module.def(
        "solve_local", &solve_local, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("indptr").noconvert(), nb::arg("n_features"), nb::arg("positives").noconvert(),
        nb::arg("row_weight").noconvert(), nb::arg("rows").noconvert(), nb::arg("intercept"), nb::arg("bias_penalty"),
        nb::arg("fixed_bias"), nb::arg("gradient_norm"), nb::arg("isa"),
        "One label on a working set, from zero weights. Returns coef (n_features,), intercept, n_iter, converged.");
    module.def("certify_weights", &certify_weights, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("positives").noconvert(), nb::arg("row_weight").noconvert(),
               nb::arg("coef").noconvert(), nb::arg("intercept"), nb::arg("bias_value"), nb::arg("bias_penalty"),
               nb::arg("prune"), nb::arg("threshold"),
               "Sparse certificate of one label's weights. Returns intercept (moved to its optimum when free), primal, "
               "dual,\nprimal_before_pruning, pruned_share, gradient_norm, valid, pruned_valid.");
    module.def(
        "logistic_sums", &logistic_sums, nb::arg("rows").noconvert(), nb::arg("bias"), nb::arg("theta").noconvert(),
        nb::arg("sums").noconvert(), nb::arg("isa"),
        "Sums (15,) of one label's logistic search. rows (4, n): s, sz, sp, signed cost; n is a multiple of 16.");
    module.def("certify_batch", &certify_batch, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("row_weight").noconvert(), nb::arg("coef").noconvert(),
               nb::arg("intercept").noconvert(), nb::arg("bias_value"), nb::arg("bias_penalty"), nb::arg("prune"),
               nb::arg("out").noconvert(), nb::arg("isa"),
               "Certificates of all labels, 16 at a time. out (n_labels, 6): intercept, primal, dual, "
               "primal_before_pruning,\npruned_share, gradient_norm.");
    module.def(
        "search_subspace", &search_subspace, nb::arg("rows").noconvert(), nb::arg("products").noconvert(),
        nb::arg("use").noconvert(), nb::arg("isa"),
        "Squared-hinge subspace search. rows (4, n): s, sz, sp, signed cost; products (14,): zz, zp, zw, pp, pw, "
        "ww,\nbias, bias_penalty, 2 vz, 2 vp, 2 vw; use (4,). Returns theta (4,). With 2 shared directions: rows "
        "(6, n), use (6,),\ntheta (6,).");
    module.def("shared_directions", &shared_directions, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("n_features"), nb::arg("row_weight").noconvert(), nb::arg("isa"),
               "Directions that the labels of a batch share, (n_features, 2), and their scores, (n_samples, 2).");
    nb::class_<BatchTables>(
        module, "BatchTables",
        "Tables of a batch of 16 lanes: columns (3 n_features, 16): W, P, Z; rows (3 n_samples, 16): "
        "S, SZ, SP;\nlanes (12, 16): bias, 4 theta, positive and negative factor, 3 reaches, 2 theta of the shared "
        "directions; their columns\n(n_features, 2) and scores (n_samples, 2).")
        .def(nb::init<ConstVector<float>, ConstVector<int32_t>, ConstVector<int32_t>, ConstVector<float>,
                      ConstMatrix<bool>, ConstMatrix<float>, ConstMatrix<float>, ConstMatrix<float>, ConstMatrix<float>,
                      ConstMatrix<float>>(),
             nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
             nb::arg("cost").noconvert(), nb::arg("positive").noconvert(), nb::arg("columns").noconvert(),
             nb::arg("rows").noconvert(), nb::arg("lanes").noconvert(), nb::arg("shared_columns").noconvert(),
             nb::arg("shared_rows").noconvert())
        .def("dots", &batch_dots, nb::arg("sampled"), nb::arg("stride"), nb::arg("sz").noconvert(), nb::arg("isa"),
             "SZ = X Z; returns lane, s, sz, sp, signed cost and 2 scores of the near rows, seven numbers each.")
        .def("search", &batch_search, nb::arg("sums").noconvert(), nb::arg("isa"),
             "Sums (15, 16) of the logistic search at theta.")
        .def("logistic_dots", &logistic_dots, nb::arg("fresh"), nb::arg("mean_scores").noconvert(),
             nb::arg("sz").noconvert(), nb::arg("scores").noconvert(), nb::arg("sums").noconvert(), nb::arg("isa"),
             "SZ = X Z and the sums (15, 16) at s + theta[0] sz; scores (2 n_samples, 16): S and SP, which lanes whose "
             "bit is in\n`fresh` set to the intercept and to mean_scores.")
        .def("step", &batch_step, nb::arg("loss"), nb::arg("spread").noconvert(), nb::arg("scaling").noconvert(),
             nb::arg("columns").noconvert(), nb::arg("rows").noconvert(), nb::arg("sums").noconvert(), nb::arg("isa"),
             "The step theta in all tables and the next direction; sums (12, 16): loss, bias_sum, curvature, zz, zp, "
             "zw, pp,\npw, ww, gg, 2 vz.");
    module.def("solve_batch", &solve_batch, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("row_weight").noconvert(), nb::arg("loss"),
               nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("coef").noconvert(),
               nb::arg("intercept").noconvert(), nb::arg("n_iter").noconvert(), nb::arg("isa"),
               "The batched subspace search alone, without certificates; returns the number of labels it gave up.");
    module.def("certify_logistic", &certify_logistic, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("row_weight").noconvert(),
               nb::arg("factors").noconvert(), nb::arg("coef").noconvert(), nb::arg("intercept").noconvert(),
               nb::arg("bias_value"), nb::arg("bias_penalty"), nb::arg("prune"), nb::arg("out").noconvert(),
               nb::arg("isa"),
               "Logistic certificates of up to 16 labels: factors (2, n_labels) of positives and negatives, coef "
               "(n_labels,\nn_features), out (n_labels, 7): primal, dual, primal_before_pruning, pruned_share, "
               "gradient_norm, next intercept,\nswapped.");
}

}  // namespace widemargin
