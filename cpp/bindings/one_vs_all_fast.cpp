// The fast one-vs-all solver as Python sees it (arrays in, work in the background, arrays out), and the objectives of
// stored weights.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/one_vs_all.hpp"
#include "one_vs_all/fast.hpp"
#include "one_vs_all/stored_objective.hpp"
#include "simd/arrays.hpp"
#include "simd/threads.hpp"

namespace widemargin {

namespace {

using FastResult = std::tuple<NumpyVector<int64_t>, NumpyVector<float>, NumpyVector<double>, NumpyVector<int64_t>,
                              NumpyVector<uint8_t>, NumpyVector<uint8_t>, NumpyVector<int64_t>>;

// Appends the weights and columns of one label.
template <typename T>
void append_weights(const StoredLabel &label, GrowingArray<T> &data, GrowingArray<int32_t> &indices) {
    indices.append(label.cols.data(), label.cols.size());
    if constexpr (std::is_same_v<T, float>) {
        data.append(label.vals.data(), label.vals.size());
    } else {
        for (float w : label.vals) data.push(w);
    }
}

// Joins the labels; the weights go to the end of data and indices, the duals to that of `duals`. Each label is freed as
// soon as it is copied.
template <typename T>
FastResult join(std::vector<StoredLabel> &&labels, GrowingArray<T> &data, GrowingArray<int32_t> &indices,
                const DualArrays &duals) {
    const size_t n = labels.size();
    std::vector<int64_t> lengths(n), n_iter(n), n_duals(n);
    std::vector<float> intercept(n);
    std::vector<double> bounds(n * N_BOUNDS);
    std::vector<uint8_t> converged(n), plain(n);
    for (size_t j = 0; j < n; ++j) {
        StoredLabel label = std::move(labels[j]);
        lengths[j] = static_cast<int64_t>(label.cols.size());
        append_weights(label, data, indices);
        std::copy(label.bounds, label.bounds + N_BOUNDS, bounds.begin() + static_cast<int64_t>(j) * N_BOUNDS);
        intercept[j] = label.intercept;
        n_iter[j] = label.n_iter;
        converged[j] = label.converged;
        plain[j] = label.plain;
        n_duals[j] = duals.append(label.duals);
    }
    return {own(std::move(lengths)),   own(std::move(intercept)), own(std::move(bounds)), own(std::move(n_iter)),
            own(std::move(converged)), own(std::move(plain)),     own(std::move(n_duals))};
}

// Weights are handed over 8 MB at a time so that the GIL is not held for long.
constexpr int64_t WEIGHTS_TAKEN = 1 << 20;

// Holds the arrays of the data matrix and the row store built from them. Labels are solved in the background: the
// caller waits with the GIL released, for a short time each, so Python can handle signals in between.
template <typename T, typename I>
class FastSolver {
  public:
    FastSolver(const HeldRows<T, I> &rows, const OneVsAllOptions &options)
        : rows_(rows), solver_(rows_.X, rows_.row_weight.data(), options) {}

    ~FastSolver() { stop(); }

    void index_rows() {
        nb::gil_scoped_release release;
        solver_.index_rows();
    }

    void keep_duals() { solver_.keep_duals(); }

    void begin(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
               ConstVector<double> positive_factor, ConstVector<double> negative_factor,
               const std::vector<double> &prior) {
        const LabelBlock labels = hold(positive_rows, positive_indptr, positive_factor, negative_factor);
        const BiasPrior known = prior.empty() ? BiasPrior() : prior_of(prior);
        background_.start([this, labels, known, start = take_start(labels)] { solver_.begin(labels, start, known); });
    }

    void begin_part(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                    ConstVector<double> positive_factor, ConstVector<double> negative_factor,
                    const std::vector<int64_t> &pilot, bool whole, const std::vector<double> &prior) {
        const LabelBlock labels = hold(positive_rows, positive_indptr, positive_factor, negative_factor);
        for (int64_t j : pilot) {
            if (j < 0 || j >= labels.n_labels) throw std::invalid_argument("pilot contains a label that is not here");
        }
        const SharedChoices choices{pilot, whole, prior_of(prior)};
        background_.start(
            [this, labels, choices, start = take_start(labels)] { solver_.begin_part(labels, choices, start); });
    }

    std::tuple<std::vector<int64_t>, bool, std::vector<double>> choices() const {
        const SharedChoices &found = solver_.shared_choices();
        std::vector<double> prior(found.prior.sums(), found.prior.sums() + BiasPrior::BINS);
        prior.insert(prior.end(), found.prior.counts(), found.prior.counts() + BiasPrior::BINS);
        return {found.pilot, found.whole, prior};
    }

    void set_start(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int64_t> indptr,
                   ConstVector<float> intercept) {
        start_data_ = data;
        start_indices_ = indices;
        start_indptr_ = indptr;
        start_intercept_ = intercept;
        start_ = {start_data_.data(), start_indices_.data(), start_indptr_.data(), start_intercept_.data()};
    }

    void start(int64_t first, int64_t last) {
        background_.start([this, first, last] { solver_.solve(first, last); });
    }
    bool wait(double seconds) {
        nb::gil_scoped_release release;
        return background_.wait(seconds);
    }
    void stop() {
        solver_.stop();
        background_.join();
    }

    FastResult take(int64_t first, int64_t last, bool all, GrowingArray<T> &data, GrowingArray<int32_t> &indices,
                    GrowingArray<int32_t> *dual_rows, GrowingArray<float> *dual_values) {
        std::vector<StoredLabel> labels = solver_.take(first, last, all, WEIGHTS_TAKEN);
        for (const StoredLabel &label : labels) add_bounds(label, taken_);
        return join(std::move(labels), data, indices, DualArrays{dual_rows, dual_values});
    }

    // Number of finished labels before `last`, and the sums of their bounds.
    std::tuple<int64_t, double, double> progress(int64_t last) const {
        int64_t n_finished = 0;
        BoundSums sums = taken_;
        for (int64_t j = 0; j < last; ++j) {
            if (!solver_.is_finished(j)) continue;
            ++n_finished;
            if (solver_.finished_label(j) != nullptr) add_bounds(*solver_.finished_label(j), sums);
        }
        return {n_finished, sums.primal, sums.dual};
    }
    NumpyVector<uint8_t> is_finished(int64_t first, int64_t last) const {
        std::vector<uint8_t> flags;
        for (int64_t j = first; j < last; ++j) flags.push_back(solver_.is_finished(j));
        return own(std::move(flags));
    }

  private:
    HeldRows<T, I> rows_;
    ConstVector<double> positive_factor_, negative_factor_;
    ConstVector<int64_t> positive_rows_, positive_indptr_, start_indptr_;
    ConstVector<float> start_data_, start_intercept_;
    ConstVector<int32_t> start_indices_;
    WeightsView start_;
    FastOneVsAll<CsrView<T, I>> solver_;
    Background background_;

    static BiasPrior prior_of(const std::vector<double> &prior) {
        if (prior.size() != 2 * BiasPrior::BINS) throw std::invalid_argument("prior must have 128 values");
        return BiasPrior(prior.data(), prior.data() + BiasPrior::BINS);
    }

    struct BoundSums {
        double primal = 0, dual = 0;
    };
    BoundSums taken_;  // of the labels handed over

    // Keeps the arrays of the labels.
    LabelBlock hold(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                    ConstVector<double> positive_factor, ConstVector<double> negative_factor) {
        positive_rows_ = positive_rows;
        positive_indptr_ = positive_indptr;
        positive_factor_ = positive_factor;
        negative_factor_ = negative_factor;
        taken_ = {};
        return label_block(positive_rows_, positive_indptr_, rows_.row_weight, positive_factor_, negative_factor_);
    }

    // The start of these labels, for one call.
    WeightsView take_start(const LabelBlock &labels) {
        const WeightsView start = std::exchange(start_, {});
        const size_t n = static_cast<size_t>(labels.n_labels);
        if (start.indptr != nullptr && (start_indptr_.shape(0) != n + 1 || start_intercept_.shape(0) != n)) {
            throw std::invalid_argument("the start must have one row per label");
        }
        return start;
    }

    static void add_bounds(const StoredLabel &label, BoundSums &sums) {
        sums.primal += label.bounds[PRIMAL];
        sums.dual += label.bounds[DUAL];
    }
};

template <typename T, typename I>
void bind_solver(nb::module_ &module, const std::string &name, CsrTypes<T, I>) {
    using Solver = FastSolver<T, I>;
    bind_csr_solver<Solver, T, I>(module, name, "The fast squared-hinge one-vs-all solver on one CSR matrix.")
        .def("index_rows", &Solver::index_rows,
             "Index the rows by feature, if no value is below zero; call it before `begin`. Labels with few positive "
             "weights\nthen need no passes over all rows.")
        .def("keep_duals", &Solver::keep_duals,
             "Keep the dual points of the bounds, for `take`; call it before `begin`.")
        .def("begin", &Solver::begin, nb::arg("positive_rows").noconvert(), nb::arg("positive_indptr").noconvert(),
             nb::arg("positive_factor").noconvert(), nb::arg("negative_factor").noconvert(),
             nb::arg("prior") = std::vector<double>(),
             "Take all labels of the fit and start to solve the pilot labels; then call `wait`. The positives of label "
             "j "
             "are\npositive_rows[positive_indptr[j]:positive_indptr[j + 1]]; factors have shape (n_labels,). `prior`: "
             "as of `choices`,\nthe intercepts of labels that were solved before; frequencies that have enough of them "
             "need no pilots.")
        .def("set_start", &Solver::set_start, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
             nb::arg("indptr").noconvert(), nb::arg("intercept").noconvert(),
             "Give the labels of the next `begin` or `begin_part` a start: weights as CSR of shape (n_labels, "
             "n_features), and\nintercepts (n_labels,). Labels without weights start as usual.")
        .def("begin_part", &Solver::begin_part, nb::arg("positive_rows").noconvert(),
             nb::arg("positive_indptr").noconvert(), nb::arg("positive_factor").noconvert(),
             nb::arg("negative_factor").noconvert(), nb::arg("pilot"), nb::arg("whole"), nb::arg("prior"),
             "Take some labels of a fit, and the `choices` for all of its labels; `pilot` are the places of the pilot "
             "labels\namong these. Each label gets the weights that it has in the whole fit.")
        .def(
            "choices", &Solver::choices,
            "What `begin` decided for all labels: the pilot labels, whether frequent labels are solved one by one, and "
            "the usual\nintercept (sums and counts in 64 bins of frequency).")
        .def("start", &Solver::start, nb::arg("first"), nb::arg("last"),
             "Start to solve labels first ... last - 1 in the background, except those already solved.")
        .def("wait", &Solver::wait, nb::arg("seconds"),
             "Wait for at most `seconds`; returns whether the work is done, and raises its error.")
        .def("stop", &Solver::stop, nb::call_guard<nb::gil_scoped_release>(),
             "Stop the work soon and wait for its threads. Labels in progress are lost, and no more are solved.")
        .def(
            "take", &Solver::take, nb::arg("first"), nb::arg("last"), nb::arg("all"), nb::arg("data"),
            nb::arg("indices"), nb::arg("dual_rows") = nb::none(), nb::arg("dual_values") = nb::none(),
            "Hand over the labels from `first` on, up to the first unfinished one unless `all`, and not much more than "
            "a million\nweights. Appends the pruned weights to data (of the type of X) and their columns to indices. "
            "Returns the number of\nweights of each label, intercept, bounds (5 values per label: primal, dual, "
            "primal_at_zero, primal_before_pruning,\npruned_share), n_iter, converged, plain: finished by the "
            "plain Newton solver, and the number of\ndual variables, which are appended to dual_rows and dual_values.")
        .def("progress", &Solver::progress, nb::arg("last"),
             "Number of finished labels before `last`, and the sums of their primal and dual bounds.")
        .def("is_finished", &Solver::is_finished, nb::arg("first"), nb::arg("last"),
             "Flags of labels first ... last - 1, uint8 of shape (last - first,).");
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
    const CsrView<T, I> X = csr_view(data, indices, indptr, n_features);
    const OneVsAllOptions options{C, bias_value, bias_penalty, 1.0, 1.0, 0.0, 0, n_threads, false};
    const LabelBlock labels = label_block(positive_rows, positive_indptr, row_weight, positive_factor, negative_factor);
    const WeightsView weights{coef_data.data(), coef_indices.data(), coef_indptr.data(), intercept.data()};
    std::vector<double> out(labels.n_labels * thresholds.size());
    {
        nb::gil_scoped_release release;
        pruned_objectives(X, row_weight.data(), options, labels, weights, thresholds, out.data());
    }
    return own(std::move(out));
}

template <typename T, typename I>
void bind_objectives(nb::module_ &module, CsrTypes<T, I>) {
    module.def("pruned_objectives", &bound_pruned_objectives<T, I>, nb::kw_only(), nb::arg("data").noconvert(),
               nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(), nb::arg("n_features"),
               nb::arg("row_weight").noconvert(), nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("positive_factor").noconvert(),
               nb::arg("negative_factor").noconvert(), nb::arg("C"), nb::arg("bias_value"), nb::arg("bias_penalty"),
               nb::arg("n_threads"), nb::arg("coef_data").noconvert(), nb::arg("coef_indices").noconvert(),
               nb::arg("coef_indptr").noconvert(), nb::arg("intercept").noconvert(), nb::arg("thresholds"),
               "Squared-hinge objectives of stored weights (CSR, (n_labels, n_features)) without those below each "
               "threshold.\nReturns (n_thresholds * n_labels,) float64; NaN if float32 passes prove too little.");
}

}  // namespace

void bind_one_vs_all_fast(nb::module_ &module) {
    for_csr_types([&](auto types, const char *suffix) {
        bind_solver(module, std::string("FastOneVsAll") + suffix, types);
        bind_objectives(module, types);
    });
}

}  // namespace widemargin
