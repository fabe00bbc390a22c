// The fast one-vs-all solver as Python sees it: arrays in, work in the background, arrays out.
#pragma once

#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "one_vs_all/fast.hpp"
#include "one_vs_all/matrix.hpp"
#include "owned_arrays.hpp"
#include "simd/threads.hpp"

namespace widemargin {

using FastResult = std::tuple<NumpyVector<float>, NumpyVector<int32_t>, NumpyVector<int64_t>, NumpyVector<float>,
                              NumpyVector<double>, NumpyVector<int64_t>, NumpyVector<uint8_t>, NumpyVector<uint8_t>>;

// Joins the pieces of the labels, giving each back as soon as it is copied.
inline FastResult join(std::vector<StoredLabel> &&labels) {
    const size_t n = labels.size();
    std::vector<int64_t> indptr(n + 1, 0), n_iter(n);
    std::vector<float> intercept(n);
    std::vector<double> bounds(n * N_BOUNDS);
    std::vector<uint8_t> converged(n), plain(n);
    for (size_t j = 0; j < n; ++j) indptr[j + 1] = indptr[j] + static_cast<int64_t>(labels[j].cols.size());
    std::vector<float> data(indptr[n]);
    std::vector<int32_t> indices(indptr[n]);
    for (size_t j = 0; j < n; ++j) {
        StoredLabel label = std::move(labels[j]);
        std::copy(label.vals.begin(), label.vals.end(), data.begin() + indptr[j]);
        std::copy(label.cols.begin(), label.cols.end(), indices.begin() + indptr[j]);
        std::copy(label.bounds, label.bounds + N_BOUNDS, bounds.begin() + static_cast<int64_t>(j) * N_BOUNDS);
        intercept[j] = label.intercept;
        n_iter[j] = label.n_iter;
        converged[j] = label.converged;
        plain[j] = label.plain;
    }
    return {own(std::move(data)),   own(std::move(indices)), own(std::move(indptr)),    own(std::move(intercept)),
            own(std::move(bounds)), own(std::move(n_iter)),  own(std::move(converged)), own(std::move(plain))};
}

// Weights handed over at a time: 8 MB, so that the pieces of a large model are not held twice.
constexpr int64_t WEIGHTS_TAKEN = 1 << 20;

// Holds the data matrix's arrays and the row store made of them. Labels are solved in the background: the caller waits
// with the GIL released, a little at a time, so that Python sees to signals in between.
template <typename T, typename I>
class FastSolver {
  public:
    FastSolver(ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
               ConstVector<double> row_weight, const OneVsAllOptions &options)
        : data_(data),
          indices_(indices),
          indptr_(indptr),
          row_weight_(row_weight),
          X_{data.data(), indices.data(), indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1, n_features},
          solver_(X_, row_weight.data(), options) {}

    ~FastSolver() { stop(); }

    void begin(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
               ConstVector<double> positive_factor, ConstVector<double> negative_factor) {
        const LabelBlock labels = hold(positive_rows, positive_indptr, positive_factor, negative_factor);
        background_.start([this, labels] { solver_.begin(labels, start_); });
    }

    void begin_part(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                    ConstVector<double> positive_factor, ConstVector<double> negative_factor,
                    const std::vector<int64_t> &pilot, bool whole, const std::vector<double> &prior) {
        const LabelBlock labels = hold(positive_rows, positive_indptr, positive_factor, negative_factor);
        if (prior.size() != 2 * BiasPrior::BINS) throw std::invalid_argument("prior must have 128 values");
        for (int64_t j : pilot) {
            if (j < 0 || j >= labels.n_labels) throw std::invalid_argument("pilot has a label that is not here");
        }
        const SharedChoices choices{pilot, whole, BiasPrior(prior.data(), prior.data() + BiasPrior::BINS)};
        background_.start([this, labels, choices] { solver_.begin_part(labels, choices); });
    }

    std::tuple<std::vector<int64_t>, bool, std::vector<double>> choices() const {
        const SharedChoices &found = solver_.shared_choices();
        std::vector<double> prior(found.prior.sums(), found.prior.sums() + BiasPrior::BINS);
        prior.insert(prior.end(), found.prior.counts(), found.prior.counts() + BiasPrior::BINS);
        return {found.pilot, found.whole, prior};
    }

    void begin_from(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                    ConstVector<double> positive_factor, ConstVector<double> negative_factor, ConstVector<float> data,
                    ConstVector<int32_t> indices, ConstVector<int64_t> indptr, ConstVector<float> intercept) {
        start_data_ = data;
        start_indices_ = indices;
        start_indptr_ = indptr;
        start_intercept_ = intercept;
        start_ = {start_data_.data(), start_indices_.data(), start_indptr_.data(), start_intercept_.data()};
        begin(positive_rows, positive_indptr, positive_factor, negative_factor);
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

    FastResult take(int64_t first, int64_t last, bool all) {
        std::vector<StoredLabel> labels = solver_.take(first, last, all, WEIGHTS_TAKEN);
        for (const StoredLabel &label : labels) add_bounds(label, taken_);
        return join(std::move(labels));
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
    std::vector<double> counts() const {
        const SchedulerCounts &c = solver_.counts;
        std::vector<double> all{double(c.passes),   double(c.lanes),   double(c.iterations), double(c.solves),
                                double(c.set_rows), double(c.emitted), double(c.certified)};
        return all;
    }
    const char *instruction_set() const { return solver_.instruction_set(); }

  private:
    ConstVector<T> data_;
    ConstVector<I> indices_, indptr_;
    ConstVector<double> row_weight_, positive_factor_, negative_factor_;
    ConstVector<int64_t> positive_rows_, positive_indptr_, start_indptr_;
    ConstVector<float> start_data_, start_intercept_;
    ConstVector<int32_t> start_indices_;
    WeightsView start_;
    CsrView<T, I> X_;
    FastOneVsAll<CsrView<T, I>> solver_;
    Background background_;

    struct BoundSums {
        double primal = 0, dual = 0;
    };
    BoundSums taken_;  // of the labels given away

    // Keeps the arrays of the labels.
    LabelBlock hold(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                    ConstVector<double> positive_factor, ConstVector<double> negative_factor) {
        positive_rows_ = positive_rows;
        positive_indptr_ = positive_indptr;
        positive_factor_ = positive_factor;
        negative_factor_ = negative_factor;
        taken_ = {};
        return {static_cast<int64_t>(positive_factor.shape(0)),
                positive_rows_.data(),
                positive_indptr_.data(),
                row_weight_.data(),
                positive_factor_.data(),
                negative_factor_.data()};
    }

    static void add_bounds(const StoredLabel &label, BoundSums &sums) {
        sums.primal += label.bounds[PRIMAL];
        sums.dual += label.bounds[DUAL];
    }
};

}  // namespace widemargin
