// SPOC as Python sees it.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "codes/ascent.hpp"
#include "codes/worst_first.hpp"

namespace widemargin {

inline const double *data_of(const std::optional<ConstMatrix<double>> &matrix) {
    return matrix ? matrix->data() : nullptr;
}

// Holds the arrays that an ascent reads.
template <typename Ascent>
class SpocObject {
  public:
    template <typename Last>
    SpocObject(ConstMatrix<double> h, ConstVector<int64_t> y, int64_t n_classes, ConstVector<double> costs,
               std::optional<ConstMatrix<double>> margins, Last last, std::optional<ConstMatrix<double>> kernel = {})
        : h_(h),
          y_(y),
          costs_(costs),
          margins_(margins),
          kernel_(kernel),
          spoc_({static_cast<int64_t>(h.shape(0)), n_classes, static_cast<int64_t>(h.shape(1)), h.data(), y.data(),
                 data_of(margins), costs.data()},
                last) {}

    void set_duals(ConstMatrix<double> x) { spoc_.set_duals(x.data()); }
    int run(double tol, int64_t max_iter, double seconds, bool pause) {
        const nb::gil_scoped_release release;
        return static_cast<int>(spoc_.run(tol, max_iter, seconds, pause));
    }
    std::tuple<double, double> certify() {
        const nb::gil_scoped_release release;
        const SpocBounds bounds = spoc_.certify();
        return {bounds.primal, bounds.dual};
    }

    NumpyVector<double> eta() const { return own(std::vector<double>(spoc_.eta())); }
    NumpyVector<double> code() const { return own(std::vector<double>(spoc_.code())); }
    NumpyVector<double> best_code() const { return own(std::vector<double>(spoc_.best_code())); }
    NumpyVector<double> records() const {
        std::vector<double> table;
        for (const SpocRecord &r : spoc_.records())
            for (const double value :
                 {double(r.n_passes), r.seconds, r.bounds.primal, r.bounds.dual, double(r.n_active)})
                table.push_back(value);
        return own(std::move(table));
    }
    int64_t n_passes() const { return spoc_.n_passes(); }
    double elapsed() const { return spoc_.elapsed(); }
    Ascent &ascent() { return spoc_; }

  private:
    ConstMatrix<double> h_;
    ConstVector<int64_t> y_;
    ConstVector<double> costs_;
    std::optional<ConstMatrix<double>> margins_, kernel_;
    Ascent spoc_;
};

}  // namespace widemargin
