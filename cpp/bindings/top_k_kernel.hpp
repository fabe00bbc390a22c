// The kernel top-k SVM as Python sees it.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "top_k/kernel_ascent.hpp"

namespace widemargin {

// Holds the arrays that the ascent reads. Runs release the GIL and return after a bounded amount of work so that
// Python can handle signals in between.
template <typename T>
class KernelAscentObject {
  public:
    KernelAscentObject(ConstVector<int64_t> y, int64_t n_classes, ConstVector<double> costs,
                       ConstVector<double> diagonal, int64_t k, bool alpha, double smoothing, uint64_t seed,
                       int64_t n_slots, std::optional<ConstMatrix<double>> margins)
        : y_(y),
          costs_(costs),
          diagonal_(diagonal),
          margins_(margins),
          ascent_({static_cast<int64_t>(y.shape(0)),
                   n_classes,
                   y.data(),
                   costs.data(),
                   diagonal.data(),
                   {k, alpha, smoothing},
                   seed,
                   margins ? margins->data() : nullptr},
                  n_slots) {}

    void use_matrix(ConstMatrix<T> matrix) {
        matrix_ = matrix;
        ascent_.columns().use_matrix(matrix_.data());
    }
    void lend_columns(ConstMatrix<T> columns) {
        loan_ = columns;
        const std::vector<int64_t> &rows = ascent_.wanted();
        ascent_.columns().lend(rows.data(), static_cast<int64_t>(rows.size()), loan_.data());
    }
    NumpyVector<int64_t> wanted() const { return own(std::vector<int64_t>(ascent_.wanted())); }

    void set_duals(ConstVector<int64_t> indptr, ConstVector<int64_t> indices, ConstVector<double> data,
                   ConstMatrix<double> scores) {
        std::vector<DualEntry> entries;
        for (size_t i = 0; i + 1 < indptr.shape(0); ++i) {
            entries.clear();
            for (int64_t p = indptr.data()[i]; p < indptr.data()[i + 1]; ++p) {
                if (data.data()[p] > 0.0) entries.push_back({indices.data()[p], data.data()[p]});
            }
            ascent_.set_row(static_cast<int64_t>(i), entries.data(), static_cast<int64_t>(entries.size()));
        }
        ascent_.set_scores(scores.data());
    }
    std::tuple<NumpyVector<int64_t>, NumpyVector<int64_t>, NumpyVector<double>> duals() const {
        std::vector<int64_t> indptr{0}, indices;
        std::vector<double> data;
        for (size_t i = 0; i < y_.shape(0); ++i) {
            for (const DualEntry &e : ascent_.support(static_cast<int64_t>(i))) {
                indices.push_back(e.label);
                data.push_back(e.value);
            }
            indptr.push_back(static_cast<int64_t>(data.size()));
        }
        return {own(std::move(indptr)), own(std::move(indices)), own(std::move(data))};
    }

    void begin_epoch(double threshold) { ascent_.begin_epoch(threshold); }
    int run(int64_t work) {
        const nb::gil_scoped_release release;
        return static_cast<int>(ascent_.run(work));
    }
    std::tuple<double, double> evaluate() {
        const nb::gil_scoped_release release;
        const KernelBounds bounds = ascent_.evaluate();
        return {bounds.gap, bounds.dual};
    }
    int64_t n_active() const { return ascent_.n_active(); }
    int64_t n_visits() const { return ascent_.n_visits(); }
    KernelAscent<T> &ascent() { return ascent_; }

  private:
    ConstVector<int64_t> y_;
    ConstVector<double> costs_, diagonal_;
    std::optional<ConstMatrix<double>> margins_;
    ConstMatrix<T> matrix_, loan_;
    KernelAscent<T> ascent_;
};

}  // namespace widemargin
