// The kernels of the fast and the batched solvers, one by one.
#include "one_vs_all/fast.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
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

AlignedFloats aligned_copy(const float *values, int64_t n) {
    AlignedFloats out = aligned_floats((n + LANES - 1) / LANES * LANES);
    std::copy(values, values + n, out.get());
    return out;
}

// rows: (4, n) s, sz, sp, signed cost; products: zz, zp, zw, pp, pw, ww, bias, bias_penalty
std::vector<float> search_subspace(ConstMatrix<float> rows, ConstVector<double> products, ConstVector<bool> use,
                                   const std::string &isa) {
    const int64_t n = static_cast<int64_t>(rows.shape(1)), padded = (n + LANES - 1) / LANES * LANES;
    AlignedFloats arrays[4];
    for (int j = 0; j < 4; ++j) arrays[j] = aligned_copy(rows.data() + j * n, n);
    const SearchRows view{padded, LANES, arrays[0].get(), arrays[1].get(), arrays[2].get(), arrays[3].get()};
    const double *q = products.data();
    SubspaceSearch search;
    search.begin({q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]}, use.data());
    double sums[N_SEARCH_SUMS];
    do {
        choose_kernels(isa).search_sums(view, static_cast<float>(q[6]), search.theta(), sums);
    } while (!search.absorb(sums));
    return {search.theta(), search.theta() + N_DIRECTIONS};
}

// The tables of a batch as tests give them: matrices of LANES columns, rows and columns in the order of X.
struct BatchTables {
    std::vector<int64_t> start;
    AlignedArray<RowEntry> entries;
    std::vector<float> cost;
    std::vector<uint16_t> signs;
    LaneTables tables;
    int64_t n_rows, n_cols;
    BatchArgs args{};

    BatchTables(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                ConstVector<float> row_cost, ConstMatrix<bool> positive, ConstMatrix<float> columns,
                ConstMatrix<float> rows, ConstMatrix<float> lanes)
        : start(indptr.data(), indptr.data() + indptr.shape(0)),
          entries(aligned_array<RowEntry>(static_cast<int64_t>(data.shape(0)) + PREFETCH_ENTRIES)),
          cost(row_cost.data(), row_cost.data() + row_cost.shape(0)),
          signs(row_cost.shape(0), 0),
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
        tables.connect(args);
        args.sample_stride = 1;
        const float *row = lanes.data();
        for (float *to : {args.bias, args.theta[0], args.theta[1], args.theta[2], args.theta[3], args.positive_factor,
                          args.negative_factor, args.reach, args.reach_z, args.reach_p}) {
            std::copy(row, row + LANES, to);
            row += LANES;
        }
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

// Returns (lane, s, sz, sp, signed cost) of the near rows, five numbers each.
std::vector<float> batch_dots(BatchTables &batch, uint32_t sampled, int64_t stride, OutMatrix<float> sz,
                              const std::string &isa) {
    const std::vector<AlignedFloats> room = give_room(batch);
    batch.args.searched = 0xffff;
    batch.args.sampled = sampled;
    batch.args.sample_stride = stride;
    for (int64_t begin = 0; begin < batch.n_rows; begin += BATCH_ROWS) {
        choose_kernels(isa).batch_dots(batch.args, begin, std::min(batch.n_rows, begin + BATCH_ROWS));
    }
    std::copy(batch.tables.SZ.get(), batch.tables.SZ.get() + batch.n_rows * LANES, sz.data());
    std::vector<float> out;
    for (int lane = 0; lane < LANES; ++lane) {
        for (int64_t k = 0; k < batch.args.near[lane].count; ++k) {
            out.push_back(static_cast<float>(lane));
            for (int j = 0; j < 4; ++j) out.push_back(batch.args.near[lane].blocks[NearRows::at(k) + j * LANES]);
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

// The step θ in all tables and the next direction. sums: loss, bias_sum, curvature, zz, zp, zw, pp, pw, ww, gg by lane.
void batch_step(BatchTables &batch, const std::string &loss, ConstVector<float> spread, ConstVector<float> scaling,
                OutMatrix<float> columns, OutMatrix<float> rows, OutMatrix<double> sums, const std::string &isa) {
    const VectorKernels &kernels = choose_kernels(isa);
    (loss == "logistic" ? kernels.logistic_gradient : kernels.batch_gradient)(batch.args, 0, batch.n_rows);
    FeatureArgs args{};
    args.n_cols = batch.n_cols;
    args.spread = spread.data();
    batch.tables.connect(args);
    std::copy(&batch.args.theta[0][0], &batch.args.theta[0][0] + N_DIRECTIONS * LANES, &args.theta[0][0]);
    std::copy(scaling.data(), scaling.data() + LANES, args.scaling);
    kernels.batch_features(args);
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
}

template <class Loss>
int run_batch(const TestMatrix &X, const LabelBlock &labels, const OneVsAllOptions &options,
              const VectorKernels &kernels, double rule_factor, float *coef, double *intercept, int64_t *n_iter) {
    const RowStore store = build_row_store(X, labels.row_weight);
    const LabelSetup setup(store, options);
    std::vector<double> scratch(X.n_cols, 0.0);
    int64_t taken = 0;
    int n_stuck = 0;
    const std::atomic<bool> never{false};
    BatchSubspace<Loss>(store, kernels)
        .run(
            never,
            [&](Candidate &c) {
                if (taken == labels.n_labels) return false;
                c = Candidate{};
                c.index = taken++;
                setup.prepare(labels, c.index, scratch, c.label);
                c.label.rule *= rule_factor;
                return true;
            },
            [&](Candidate &&c) {
                const double sign = c.label.swapped ? -1 : 1;
                for (size_t k = 0; k < c.weights.cols.size(); ++k) {
                    coef[c.index * X.n_cols + store.col_id[c.weights.cols[k]]] =
                        static_cast<float>(sign * c.weights.vals[k]);
                }
                intercept[c.index] = sign * c.weights.bias;
                n_iter[c.index] = c.n_iter;
                n_stuck += c.stuck;
            });
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
        return run_batch<Logistic>(X, labels, options, kernels, LOGISTIC_RULE_FACTOR, coef.data(), intercept.data(),
                                   n_iter.data());
    }
    return run_batch<SquaredHinge>(X, labels, options, kernels, 1.0, coef.data(), intercept.data(), n_iter.data());
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
    module.def("search_subspace", &search_subspace, nb::arg("rows").noconvert(), nb::arg("products").noconvert(),
               nb::arg("use").noconvert(), nb::arg("isa"),
               "Squared-hinge subspace search. rows (4, n): s, sz, sp, signed cost; products (8,): zz, zp, zw, pp, pw, "
               "ww,\nbias, bias_penalty; use (4,). Returns theta (4,).");
    nb::class_<BatchTables>(
        module, "BatchTables",
        "Tables of a batch of 16 lanes: columns (3 n_features, 16): W, P, Z; rows (3 n_samples, 16): "
        "S, SZ, SP;\nlanes (10, 16): bias, 4 theta, positive and negative factor, 3 reaches.")
        .def(nb::init<ConstVector<float>, ConstVector<int32_t>, ConstVector<int32_t>, ConstVector<float>,
                      ConstMatrix<bool>, ConstMatrix<float>, ConstMatrix<float>, ConstMatrix<float>>(),
             nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
             nb::arg("cost").noconvert(), nb::arg("positive").noconvert(), nb::arg("columns").noconvert(),
             nb::arg("rows").noconvert(), nb::arg("lanes").noconvert())
        .def("dots", &batch_dots, nb::arg("sampled"), nb::arg("stride"), nb::arg("sz").noconvert(), nb::arg("isa"),
             "SZ = X Z; returns lane, s, sz, sp, signed cost of the near rows, five numbers each.")
        .def("search", &batch_search, nb::arg("sums").noconvert(), nb::arg("isa"),
             "Sums (15, 16) of the logistic search at theta.")
        .def("step", &batch_step, nb::arg("loss"), nb::arg("spread").noconvert(), nb::arg("scaling").noconvert(),
             nb::arg("columns").noconvert(), nb::arg("rows").noconvert(), nb::arg("sums").noconvert(), nb::arg("isa"),
             "The step theta in all tables and the next direction; sums (10, 16): loss, bias_sum, curvature, zz, zp, "
             "zw, pp,\npw, ww, gg.");
    module.def("solve_batch", &solve_batch, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("row_weight").noconvert(), nb::arg("loss"),
               nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("coef").noconvert(),
               nb::arg("intercept").noconvert(), nb::arg("n_iter").noconvert(), nb::arg("isa"),
               "The batched subspace search alone, without certificates; returns the number of labels it gave up.");
}

}  // namespace widemargin
