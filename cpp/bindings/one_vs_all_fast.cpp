#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bind.hpp"
#include "fast_solver.hpp"
#include "one_vs_all/fast.hpp"
#include "one_vs_all/matrix.hpp"
#include "one_vs_all/stored_objective.hpp"

namespace widemargin {

namespace {

template <typename T, typename I>
void bind_solver(nb::module_ &module, const char *name) {
    using Solver = FastSolver<T, I>;
    nb::class_<Solver>(module, name, "The fast squared-hinge one-vs-all solver on one CSR matrix.")
        .def(
            "__init__",
            [](Solver *self, ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
               ConstVector<double> row_weight, double C, double bias_value, double bias_penalty, double tol,
               double gap_tol, double prune, int max_iter, int n_threads) {
                new (self) Solver(data, indices, indptr, n_features, row_weight,
                                  {C, bias_value, bias_penalty, tol, gap_tol, prune, max_iter, n_threads});
            },
            nb::kw_only(), nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
            nb::arg("n_features"), nb::arg("row_weight").noconvert(), nb::arg("C"), nb::arg("bias_value"),
            nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("prune"), nb::arg("max_iter"),
            nb::arg("n_threads"))
        .def("begin", &Solver::begin, nb::arg("positive_rows").noconvert(), nb::arg("positive_indptr").noconvert(),
             nb::arg("positive_factor").noconvert(), nb::arg("negative_factor").noconvert(),
             "Take all labels of the fit, the positives of label j being positive_rows[positive_indptr[j]:"
             "positive_indptr[j + 1]],\nfactors of shape (n_labels,), and begin to solve the pilot labels; then wait.")
        .def("begin_from", &Solver::begin_from, nb::arg("positive_rows").noconvert(),
             nb::arg("positive_indptr").noconvert(), nb::arg("positive_factor").noconvert(),
             nb::arg("negative_factor").noconvert(), nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
             nb::arg("indptr").noconvert(), nb::arg("intercept").noconvert(),
             "The same with weights to start from, CSR of shape (n_labels, n_features), and intercepts (n_labels,); "
             "labels whose\nweights are all zero start as usual.")
        .def("begin_part", &Solver::begin_part, nb::arg("positive_rows").noconvert(),
             nb::arg("positive_indptr").noconvert(), nb::arg("positive_factor").noconvert(),
             nb::arg("negative_factor").noconvert(), nb::arg("pilot"), nb::arg("whole"), nb::arg("prior"),
             "Take some labels of a fit instead of all, and what `choices` gave for all of them, `pilot` being the "
             "places of the pilot\nlabels among these; each label then gets the weights that it has in the whole fit.")
        .def("choices", &Solver::choices,
             "What `begin` decided on all labels: the pilot labels, whether frequent labels are solved one by one, and "
             "the usual bias\n(sums and counts in 64 bins of frequency).")
        .def("start", &Solver::start, nb::arg("first"), nb::arg("last"),
             "Begin to solve labels first ... last - 1 in the background, those not solved yet.")
        .def("wait", &Solver::wait, nb::arg("seconds"),
             "Whether the work begun has ended, after at most so many seconds; its error is raised here.")
        .def("stop", &Solver::stop, nb::call_guard<nb::gil_scoped_release>(),
             "End the work soon and wait for its threads; labels in hand are lost, and no more are solved.")
        .def("take", &Solver::take, nb::arg("first"), nb::arg("last"), nb::arg("all"),
             "Take over the labels from `first` on, up to the first that is not finished unless `all`, and not much "
             "more "
             "than a million\nweights. Returns data, indices, indptr of the pruned weights (n, n_features), intercept, "
             "bounds (5 values a label:\nprimal, dual, primal_at_zero, primal_before_pruning, pruned_share), n_iter, "
             "converged, and plain: finished by the plain\nNewton solver.")
        .def("progress", &Solver::progress, nb::arg("last"),
             "Number of finished labels before `last`, and the sums of their primal and dual bounds.")
        .def("is_finished", &Solver::is_finished, nb::arg("first"), nb::arg("last"),
             "Flags of labels first ... last - 1, uint8 of shape (last - first,).")
        .def("counts", &Solver::counts,
             "Work so far: passes, lanes used in them, local iterations, local solves, rows in working sets, rows "
             "emitted, certificates.")
        .def("instruction_set", &Solver::instruction_set, "Name of the instruction set in use.");
}

template <typename T, typename I>
NumpyVector<double> bound_pruned_objectives(ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr,
                                            int64_t n_features, ConstVector<double> row_weight,
                                            ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                                            ConstVector<double> positive_factor, ConstVector<double> negative_factor,
                                            double C, double bias_value, double bias_penalty, int n_threads,
                                            ConstVector<float> coef_data, ConstVector<int32_t> coef_indices,
                                            ConstVector<int64_t> coef_indptr, ConstVector<float> intercept,
                                            const std::vector<double> &thresholds) {
    const CsrView<T, I> X{data.data(), indices.data(), indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1,
                          n_features};
    const OneVsAllOptions options{C, bias_value, bias_penalty, 1.0, 1.0, 0.0, 0, n_threads, false};
    const LabelBlock labels{static_cast<int64_t>(positive_factor.shape(0)),
                            positive_rows.data(),
                            positive_indptr.data(),
                            row_weight.data(),
                            positive_factor.data(),
                            negative_factor.data()};
    const WeightsView weights{coef_data.data(), coef_indices.data(), coef_indptr.data(), intercept.data()};
    std::vector<double> out(labels.n_labels * thresholds.size());
    {
        nb::gil_scoped_release release;
        pruned_objectives(X, row_weight.data(), options, labels, weights, thresholds, out.data());
    }
    return own(std::move(out));
}

template <typename T, typename I>
void bind_objectives(nb::module_ &module) {
    module.def("pruned_objectives", &bound_pruned_objectives<T, I>, nb::kw_only(), nb::arg("data").noconvert(),
               nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("n_features"),
               nb::arg("row_weight").noconvert(), nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("positive_factor").noconvert(),
               nb::arg("negative_factor").noconvert(), nb::arg("C"), nb::arg("bias_value"), nb::arg("bias_penalty"),
               nb::arg("n_threads"), nb::arg("coef_data").noconvert(), nb::arg("coef_indices").noconvert(),
               nb::arg("coef_indptr").noconvert(), nb::arg("intercept").noconvert(), nb::arg("thresholds"),
               "Squared-hinge objectives of stored weights (CSR, (n_labels, n_features)) without those below each "
               "threshold.\nReturns (n_thresholds * n_labels,) float64; NaN where float32 passes prove too little.");
}

// The kernels one by one, for tests against their NumPy twins; float32 data with 32-bit indices.
using TestMatrix = CsrView<float, int32_t>;

TestMatrix test_matrix(const ConstVector<float> &data, const ConstVector<int32_t> &indices,
                       const ConstVector<int32_t> &indptr, int64_t n_features) {
    return {data.data(), indices.data(), indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1, n_features};
}

// Weights of a dense vector in the columns of the store.
SparseWeights sparse_weights(const RowStore &store, const float *coef, double intercept) {
    SparseWeights weights;
    for (int64_t k = 0; k < store.n_cols; ++k) {
        if (coef[store.col_id[k]] == 0) continue;
        weights.cols.push_back(static_cast<uint32_t>(k));
        weights.vals.push_back(coef[store.col_id[k]]);
    }
    weights.bias = intercept;
    return weights;
}

const VectorKernels &named_kernels(const std::string &name) {
    const VectorKernels *kernels = find_kernels(name);
    if (kernels == nullptr) throw std::invalid_argument("this machine has no instruction set '" + name + "'");
    return *kernels;
}

std::tuple<NumpyVector<uint32_t>, NumpyVector<uint32_t>> store_order(ConstVector<float> data,
                                                                     ConstVector<int32_t> indices,
                                                                     ConstVector<int32_t> indptr, int64_t n_features) {
    const TestMatrix X = test_matrix(data, indices, indptr, n_features);
    const std::vector<double> ones(X.n_rows, 1.0);
    RowStore store = build_row_store(X, ones.data());
    return {own(std::move(store.row_id)), own(std::move(store.col_id))};
}

using PreparedLabel = std::tuple<NumpyVector<int64_t>, double, double, double, bool, double, double>;

PreparedLabel prepare_label(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                            int64_t n_features, ConstVector<int64_t> positives, ConstVector<double> row_weight,
                            double positive_factor, double negative_factor, double bias_value, double tol) {
    const TestMatrix X = test_matrix(data, indices, indptr, n_features);
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
    const TestMatrix X = test_matrix(data, indices, indptr, static_cast<int64_t>(coef.shape(1)));
    const std::vector<double> ones(X.n_rows, 1.0);
    const RowStore store = build_row_store(X, ones.data());
    std::vector<float> sorted_slack(X.n_rows);
    for (int64_t i = 0; i < X.n_rows; ++i) sorted_slack[i] = slack.data()[store.row_id[i]];
    const PackedRows packed = pack_rows(store);
    BatchPass pass(store, packed, named_kernels(isa), sorted_slack.data());
    const int n_lanes = static_cast<int>(std::min<size_t>(coef.shape(0), SCAN_LANES));
    for (int lane = 0; lane < n_lanes; ++lane) {
        const SparseWeights weights = sparse_weights(store, coef.data() + lane * X.n_cols, intercept.data()[lane]);
        pass.set(lane, weights, threshold.data()[lane]);
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
    const TestLabel test(test_matrix(data, indices, indptr, n_features), positives, row_weight, options);
    std::vector<RowView> chosen;
    for (size_t k = 0; k < rows.shape(0); ++k) chosen.push_back(test.store.view(test.store.position[rows.data()[k]]));
    std::sort(chosen.begin(), chosen.end(), [](const RowView &a, const RowView &b) { return a.row < b.row; });
    SparseWeights weights;
    weights.bias = intercept;
    LocalProblem local(test.store, named_kernels(isa));
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
    const TestMatrix X = test_matrix(data, indices, indptr, static_cast<int64_t>(coef.shape(0)));
    const TestLabel test(X, positives, row_weight, options);
    const FastShared shared = make_shared(test.store, choose_kernels(), prune);
    SparseWeights weights = sparse_weights(test.store, coef.data(), intercept);
    BatchPass pass(test.store, shared.packed, shared.kernels, shared.slack.data());
    pass.set(0, weights, threshold);
    pass.run();
    const EmittedRows emitted{pass.emitted(0), threshold, shared.covers_pruning};
    SparseCertificate certificate(test.store, shared.kernels);
    LabelBounds b = certificate.evaluate(test.label, emitted, prune, weights);
    if (!b.pruned_valid) {  // a pass of its own, as in the scheduler
        const SparseWeights kept = weights.pruned(prune);
        pass.set(0, kept, threshold);
        pass.run();
        certificate.objective(test.label, {pass.emitted(0), threshold, false}, kept, b.primal);
    }
    return {weights.bias,   b.primal,        b.dual,  b.primal_before_pruning,
            b.pruned_share, b.gradient_norm, b.valid, b.pruned_valid};
}

void bind_kernels(nb::module_ &module) {
    module.def("store_order", &store_order, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("n_features"),
               "Rows and columns in the order of the row store, each an array of their numbers.");
    module.def(
        "prepare_label", &prepare_label, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("indptr").noconvert(), nb::arg("n_features"), nb::arg("positives").noconvert(),
        nb::arg("row_weight").noconvert(), nb::arg("positive_factor"), nb::arg("negative_factor"),
        nb::arg("bias_value"), nb::arg("tol"),
        "A label's problem with C = 1: rows of the rarer side, its factor and that of the other side, the "
        "gradient norm\nat which to stop, whether the sides are turned round, weight of positives and negatives.");
    module.def(
        "scan_rows", &scan_rows, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("indptr").noconvert(), nb::arg("coef").noconvert(), nb::arg("intercept").noconvert(),
        nb::arg("threshold").noconvert(), nb::arg("slack").noconvert(), nb::arg("isa"),
        "Batch pass for up to 32 labels: coef (n_labels, n_features), intercept and threshold (n_labels,), slack "
        "(n_samples,).\nReturns indptr (n_labels + 1,), rows and scores of the rows with score + slack > "
        "threshold.");
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
}

}  // namespace

void bind_one_vs_all_fast(nb::module_ &module) {
    bind_solver<float, int32_t>(module, "FastOneVsAllF32I32");
    bind_solver<float, int64_t>(module, "FastOneVsAllF32I64");
    bind_solver<double, int32_t>(module, "FastOneVsAllF64I32");
    bind_solver<double, int64_t>(module, "FastOneVsAllF64I64");
    bind_objectives<float, int32_t>(module);
    bind_objectives<float, int64_t>(module);
    bind_objectives<double, int32_t>(module);
    bind_objectives<double, int64_t>(module);
    bind_kernels(module);
}

}  // namespace widemargin
