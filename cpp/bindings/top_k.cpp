#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/bind.hpp"
#include "top_k/ascent.hpp"

namespace widemargin {
namespace {

template <typename T>
using NumpyMatrix = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;

// Keeps the arrays it reads alive. Dense rows have empty `cols` and `start`.
template <typename T>
class Ascent {
  public:
    Ascent(ConstVector<T> values, ConstVector<int32_t> cols, ConstVector<int64_t> start, int64_t n_features,
           double bias, ConstVector<int32_t> y, ConstVector<double> costs, int64_t n_classes, int64_t k, bool alpha,
           double smoothing, uint64_t seed, int n_threads, const std::string &instruction_set)
        : values_(values),
          cols_(cols),
          start_(start),
          y_(y),
          costs_(costs),
          n_features_(n_features),
          bias_(bias),
          ascent_(rows(values), y.data(), costs.data(),
                  {{k, alpha, smoothing}, static_cast<int>(n_classes), seed, n_threads, true}, instruction_set) {}

    void start_from(ConstVector<int64_t> start, ConstVector<int32_t> classes, ConstVector<double> values) {
        ascent_.start_from(start.data(), classes.data(), values.data());
    }
    int64_t run(int64_t n_passes, double seconds) { return ascent_.run(n_passes, seconds); }
    std::tuple<double, double> evaluate(bool sampled) {
        const Bounds bounds = ascent_.evaluate(sampled);
        return {bounds.primal, bounds.dual};
    }
    template <typename Data>
    std::tuple<double, double> certify(ConstVector<Data> values) {
        const Bounds bounds = ascent_.certify(rows(values));
        return {bounds.primal, bounds.dual};
    }
    std::tuple<NumpyVector<int64_t>, NumpyVector<int32_t>, NumpyVector<double>> duals() const {
        DualLists lists = ascent_.duals();
        return {own(std::move(lists.start)), own(std::move(lists.classes)), own(std::move(lists.values))};
    }
    void read_weights(OutMatrix<T> coef, OutVector<T> constant) const {
        ascent_.read_weights(coef.data(), constant.data());
    }
    NumpyVector<int32_t> next_pass() {
        std::vector<int32_t> order = ascent_.next_pass();
        return own(std::move(order));
    }
    NumpyVector<int32_t> next_sweep() { return own(ascent_.next_sweep()); }
    void visit_block(ConstVector<int32_t> order, ConstMatrix<T> gram, OutMatrix<T> scores, OutMatrix<T> steps) {
        ascent_.visit_block(order.data(), static_cast<int64_t>(order.shape(0)), gram.data(), scores.data(),
                            steps.data());
    }
    void count_visits(int64_t n) { ascent_.count_visits(n); }
    double losses_of_scores(int64_t first, OutMatrix<T> scores) const {
        return ascent_.losses_of_scores(first, static_cast<int64_t>(scores.shape(0)), scores.data());
    }
    double losses_of_exact_scores(int64_t first, OutMatrix<double> scores) const {
        return ascent_.losses_of_exact_scores(first, static_cast<int64_t>(scores.shape(0)), scores.data());
    }
    std::tuple<double, double> bounds_of(double losses) {
        const Bounds bounds = ascent_.bounds_of(losses);
        return {bounds.primal, bounds.dual};
    }
    template <typename Data>
    std::tuple<double, double> penalty_and_dual(ConstVector<Data> values) {
        const double dual = ascent_.certified_dual(rows(values));
        return {ascent_.penalty(), dual};
    }
    // Views of the weights (n_features + 1, stride), valid as long as this object.
    NumpyMatrix<T> weights(nb::handle self) { return view(ascent_.weights(), self); }
    NumpyMatrix<T> primal_weights(nb::handle self) { return view(ascent_.primal_weights(), self); }
    // An array (n, stride) with the alignment that the kernels need.
    NumpyMatrix<T> block(int64_t n) const {
        auto *kept = new AlignedArray<T>(aligned_array<T>(n * ascent_.stride()));
        nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<AlignedArray<T> *>(p); });
        return NumpyMatrix<T>(kept->get(), {static_cast<size_t>(n), static_cast<size_t>(ascent_.stride())}, owner);
    }
    int64_t n_active() const { return ascent_.n_active(); }
    int64_t n_visits() const { return ascent_.n_visits(); }

  private:
    NumpyMatrix<T> view(T *weights, nb::handle self) const {
        const size_t shape[2] = {static_cast<size_t>(n_features_ + 1), static_cast<size_t>(ascent_.stride())};
        return NumpyMatrix<T>(weights, 2, shape, self);
    }

    ConstVector<T> values_;
    ConstVector<int32_t> cols_;
    ConstVector<int64_t> start_;
    ConstVector<int32_t> y_;
    ConstVector<double> costs_;
    int64_t n_features_;
    double bias_;
    TopKAscent<T> ascent_;

    template <typename Data>
    DataRows<Data> rows(const ConstVector<Data> &values) const {
        const bool dense = start_.shape(0) == 0;
        return {values.data(),
                dense ? nullptr : cols_.data(),
                dense ? nullptr : start_.data(),
                static_cast<int64_t>(y_.shape(0)),
                n_features_,
                bias_};
    }
};

template <typename T>
void bind_ascent(nb::module_ &module, const char *name) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Ascent<T>>(module, name)
        .def(nb::init<ConstVector<T>, ConstVector<int32_t>, ConstVector<int64_t>, int64_t, double, ConstVector<int32_t>,
                      ConstVector<double>, int64_t, int64_t, bool, double, uint64_t, int, const std::string &>(),
             nb::arg("values").noconvert(), nb::arg("cols").noconvert(), nb::arg("start").noconvert(),
             nb::arg("n_features"), nb::arg("bias"), nb::arg("y").noconvert(), nb::arg("costs").noconvert(),
             nb::arg("n_classes"), nb::arg("k"), nb::arg("alpha"), nb::arg("smoothing"), nb::arg("seed"),
             nb::arg("n_threads"), nb::arg("instruction_set"),
             "Rows of X as CSR parts, or dense rows with empty cols and start; y and costs (n,).")
        .def("start_from", &Ascent<T>::start_from, nb::arg("start").noconvert(), nb::arg("classes").noconvert(),
             nb::arg("values").noconvert(), Release(), "Set the dual variables, CSR parts of (n, n_classes).")
        .def("run", &Ascent<T>::run, nb::arg("n_passes"), nb::arg("seconds"), Release(),
             "Run passes, as many as fit in the seconds; returns the number of finished passes.")
        .def("evaluate", &Ascent<T>::evaluate, nb::arg("sampled") = false, Release(),
             "Estimates of the primal and the dual bound; `sampled`: the primal from some of the rows.")
        .def("certify", &Ascent<T>::template certify<float>, nb::arg("values").noconvert(), Release(),
             "Primal and dual bound in double; `values` are the data of X as given.")
        .def("certify", &Ascent<T>::template certify<double>, nb::arg("values").noconvert(), Release(),
             "Primal and dual bound in double; `values` are the data of X as given.")
        .def("duals", &Ascent<T>::duals, "Dual variables, CSR parts of (n, n_classes).")
        .def("read_weights", &Ascent<T>::read_weights, nb::arg("coef").noconvert(), nb::arg("constant").noconvert(),
             Release(),
             "coef (n_classes, n_features): the weights; constant (n_classes,): those of the constant feature.")
        .def("next_pass", &Ascent<T>::next_pass, "Rows of the next pass, in order; visit them with visit_block.")
        .def("next_sweep", &Ascent<T>::next_sweep, "Rows of a sweep after the pass, in order; none at its end.")
        .def("visit_block", &Ascent<T>::visit_block, nb::arg("order").noconvert(), nb::arg("gram").noconvert(),
             nb::arg("scores").noconvert(), nb::arg("steps").noconvert(), Release(),
             "Visits n rows with Gram matrix (n, n) and scores (n, stride) at W; fills steps (n, stride): W += X' "
             "steps.")
        .def("count_visits", &Ascent<T>::count_visits, nb::arg("n"), Release(),
             "Count n visits; averages and recomputes W when due.")
        .def("losses_of_scores", &Ascent<T>::losses_of_scores, nb::arg("first"), nb::arg("scores").noconvert(),
             Release(),
             "Sum of losses of the rows from `first` on, from their scores (n, stride), which are overwritten.")
        .def("losses_of_exact_scores", &Ascent<T>::losses_of_exact_scores, nb::arg("first"),
             nb::arg("scores").noconvert(), Release(), "The same in double.")
        .def("bounds_of", &Ascent<T>::bounds_of, nb::arg("losses"), Release(),
             "Like `evaluate`, with the given sum of losses.")
        .def("penalty_and_dual", &Ascent<T>::template penalty_and_dual<float>, nb::arg("values").noconvert(), Release(),
             "Parts of `certify`: the penalty of the average, and the dual bound.")
        .def("penalty_and_dual", &Ascent<T>::template penalty_and_dual<double>, nb::arg("values").noconvert(),
             Release(), "Parts of `certify`: the penalty of the average, and the dual bound.")
        .def_prop_ro(
            "weights", [](nb::handle self) { return nb::cast<Ascent<T> &>(self).weights(self); },
            "W (n_features + 1, stride), not a copy.")
        .def_prop_ro(
            "primal_weights", [](nb::handle self) { return nb::cast<Ascent<T> &>(self).primal_weights(self); },
            "The average (n_features + 1, stride), not a copy.")
        .def("block", &Ascent<T>::block, nb::arg("n"), "An aligned array (n, stride).")
        .def_prop_ro("n_active", &Ascent<T>::n_active, "Rows of the last pass.")
        .def_prop_ro("n_visits", &Ascent<T>::n_visits, "Visits so far.");
}

}  // namespace

void bind_top_k(nb::module_ &module) {
    bind_ascent<float>(module, "TopKAscent32");
    bind_ascent<double>(module, "TopKAscent64");
}

}  // namespace widemargin
