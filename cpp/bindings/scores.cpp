#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "bindings/bind.hpp"
#include "scores/compressed.hpp"
#include "scores/dense.hpp"

namespace widemargin {
namespace {

// Python objects that point into NumPy arrays; `keep_alive` keeps the arrays alive.
struct Rows {
    std::unique_ptr<RowSource> source;
};
struct Weights {
    std::unique_ptr<LinearWeights> weights;
};

template <typename T>
void bind_dense_rows(nb::class_<Rows> &rows) {
    rows.def(
        "__init__",
        [](Rows *self, ConstMatrix<T> x) {
            new (self) Rows{std::make_unique<DenseRows<T>>(x.data(), x.shape(0), x.shape(1))};
        },
        nb::arg("x").noconvert(), nb::keep_alive<1, 2>());
}

template <typename T, typename I>
void bind_sparse_rows(nb::class_<Rows> &rows, CsrTypes<T, I>) {
    rows.def(
        "__init__",
        [](Rows *self, ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features) {
            const int64_t n_stored = std::min(data.shape(0), indices.shape(0));
            new (self) Rows{std::make_unique<SparseRows<T, I>>(data.data(), indices.data(), indptr.data(), n_stored,
                                                               int64_t(indptr.shape(0)) - 1, n_features)};
        },
        nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
        nb::arg("n_features"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>());
}

template <typename T>
void bind_dense_weights(nb::class_<Weights> &weights) {
    weights.def(
        "__init__",
        [](Weights *self, ConstMatrix<T> coef, ConstVector<double> intercept) {
            new (self)
                Weights{std::make_unique<DenseWeights<T>>(coef.data(), intercept.data(), coef.shape(0), coef.shape(1))};
        },
        nb::arg("coef").noconvert(), nb::arg("intercept").noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
}

template <typename T>
void bind_sparse_weights(nb::class_<Weights> &weights) {
    weights.def(
        "__init__",
        [](Weights *self, ConstVector<T> data, ConstVector<uint16_t> labels, ConstMatrix<int64_t> starts,
           ConstMatrix<T> lines, ConstVector<int32_t> line_of, ConstVector<double> largest, int64_t most_repeats,
           int64_t labels_per_block, ConstVector<double> intercept, ConstVector<int32_t> by_intercept) {
            const int64_t n_labels = intercept.shape(0), n_features = line_of.shape(0);
            const int64_t n_blocks = (n_labels + labels_per_block - 1) / std::max<int64_t>(labels_per_block, 1);
            if (int64_t(starts.shape(0)) != n_blocks || int64_t(starts.shape(1)) != n_features + 1 ||
                int64_t(largest.shape(0)) != n_features || int64_t(by_intercept.shape(0)) != n_labels)
                throw std::invalid_argument("index by feature: its arrays do not match");
            const FeatureIndex<T> index{data.data(),
                                        labels.data(),
                                        int64_t(std::min(data.shape(0), labels.shape(0))),
                                        starts.data(),
                                        lines.data(),
                                        int64_t(lines.shape(0)),
                                        int64_t(lines.shape(1)),
                                        line_of.data(),
                                        largest.data(),
                                        most_repeats,
                                        labels_per_block};
            new (self) Weights{
                std::make_unique<SparseWeights<T>>(index, intercept.data(), by_intercept.data(), n_labels, n_features)};
        },
        nb::arg("data").noconvert(), nb::arg("labels").noconvert(), nb::arg("starts").noconvert(),
        nb::arg("lines").noconvert(), nb::arg("line_of").noconvert(), nb::arg("largest").noconvert(),
        nb::arg("most_repeats"), nb::arg("labels_per_block"), nb::arg("intercept").noconvert(),
        nb::arg("by_intercept").noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(),
        nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(), nb::keep_alive<1, 10>(),
        nb::keep_alive<1, 11>());
}

template <typename Q>
void bind_compressed_weights(nb::class_<Weights> &weights) {
    using Starts = nb::ndarray<const uint32_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
    weights.def(
        "__init__",
        [](Weights *self, ConstVector<Q> values, ConstVector<uint8_t> places, Starts starts, ConstMatrix<int64_t> bases,
           ConstVector<float> scale, int64_t labels_per_block, ConstVector<double> intercept,
           ConstVector<int32_t> by_intercept) {
            const int64_t n_labels = intercept.shape(0), n_features = int64_t(starts.shape(1)) - 1;
            const int64_t n_blocks = (n_labels + labels_per_block - 1) / std::max<int64_t>(labels_per_block, 1);
            if (int64_t(starts.shape(0)) != n_blocks || n_features < 0 || starts.shape(2) != 2 ||
                int64_t(bases.shape(0)) != n_blocks || bases.shape(1) != 2 || int64_t(scale.shape(0)) != n_labels ||
                int64_t(by_intercept.shape(0)) != n_labels)
                throw std::invalid_argument("compressed weights: the arrays do not match");
            const CompressedLists<Q> lists{values.data(),
                                           places.data(),
                                           int64_t(values.shape(0)),
                                           int64_t(places.shape(0)),
                                           reinterpret_cast<const ListStart *>(starts.data()),
                                           bases.data(),
                                           scale.data(),
                                           labels_per_block};
            new (self) Weights{std::make_unique<CompressedWeights<Q>>(lists, intercept.data(), by_intercept.data(),
                                                                      n_labels, n_features)};
        },
        nb::arg("values").noconvert(), nb::arg("places").noconvert(), nb::arg("starts").noconvert(),
        nb::arg("bases").noconvert(), nb::arg("scale").noconvert(), nb::arg("labels_per_block"),
        nb::arg("intercept").noconvert(), nb::arg("by_intercept").noconvert(), nb::keep_alive<1, 2>(),
        nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 8>(),
        nb::keep_alive<1, 9>());
}

template <typename I>
void bind_label_scores(nb::class_<Weights> &weights) {
    weights.def(
        "label_scores",
        [](const Weights &self, const Rows &rows, ConstVector<I> labels, ConstVector<I> indptr, int64_t n_threads,
           int64_t work_bytes, OutVector<double> out) {
            label_scores(*self.weights, *rows.source, labels.data(), indptr.data(), {n_threads, work_bytes},
                         out.data());
        },
        nb::arg("rows"), nb::arg("labels").noconvert(), nb::arg("indptr").noconvert(), nb::arg("n_threads"),
        nb::arg("work_bytes"), nb::arg("out").noconvert(), nb::call_guard<nb::gil_scoped_release>(),
        "out[p] = score of row i for labels[p], indptr[i] <= p < indptr[i + 1]; labels and out (n_pairs,).");
}

}  // namespace

void bind_scores(nb::module_ &module) {
    nb::class_<Rows> rows(module, "Rows", "Rows of X: a dense matrix (n, n_features), or a CSR triple.");
    bind_dense_rows<float>(rows);
    bind_dense_rows<double>(rows);

    nb::class_<Weights> weights(
        module, "Weights",
        "Linear weights: dense (n_labels, n_features), or by feature (`FeatureIndex` in problems/scores.py, "
        "`CompressedWeights` in problems/compressed.py), with the labels of every block in the order of their "
        "intercepts.");
    bind_dense_weights<float>(weights);
    bind_dense_weights<double>(weights);
    bind_sparse_weights<float>(weights);
    bind_sparse_weights<double>(weights);
    bind_compressed_weights<int8_t>(weights);
    bind_compressed_weights<int16_t>(weights);
    for_csr_types([&](auto types, const char *) { bind_sparse_rows(rows, types); });
    weights.def(
        "top_k",
        [](const Weights &self, const Rows &rows, int64_t n_threads, int64_t work_bytes, OutMatrix<int64_t> labels,
           OutMatrix<double> scores) {
            self.weights->top_k(*rows.source, labels.shape(1), {n_threads, work_bytes}, labels.data(), scores.data());
        },
        nb::arg("rows"), nb::arg("n_threads"), nb::arg("work_bytes"), nb::arg("labels").noconvert(),
        nb::arg("scores").noconvert(), nb::call_guard<nb::gil_scoped_release>(),
        "The top k labels of every row, best first; labels and scores (n_rows, k).");
    weights.def(
        "scores",
        [](const Weights &self, const Rows &rows, int64_t n_threads, int64_t work_bytes, OutMatrix<double> out) {
            self.weights->scores(*rows.source, {n_threads, work_bytes}, out.data());
        },
        nb::arg("rows"), nb::arg("n_threads"), nb::arg("work_bytes"), nb::arg("out").noconvert(),
        nb::call_guard<nb::gil_scoped_release>(), "All scores; out (n_rows, n_labels).");
    bind_label_scores<int32_t>(weights);
    bind_label_scores<int64_t>(weights);
}

}  // namespace widemargin
