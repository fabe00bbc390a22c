#include <nanobind/stl/string.h>

#include "bindings/bind.hpp"
#include "text/reader.hpp"
#include "text/writer.hpp"

namespace widemargin {

namespace {

// Hands over a block to NumPy without a copy.
template <typename T>
nb::object to_numpy(GrowingArray<T> &array) {
    const std::size_t size = array.size();
    T *block = array.release();
    nb::capsule owner(block, [](void *memory) noexcept { std::free(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(block, {size}, owner));
}

template <typename Value, typename Label>
nb::dict take(TextReader<Value, Label> &reader) {
    nb::dict out;
    out["data"] = to_numpy(reader.data);
    out["indices"] = to_numpy(reader.indices);
    out["indptr"] = to_numpy(reader.indptr);
    out["labels"] = to_numpy(reader.labels);
    out["label_indptr"] = to_numpy(reader.label_indptr);
    out["n_samples"] = reader.header.n_samples;
    out["n_features"] = reader.header.n_features;
    out["n_labels"] = reader.header.n_labels;
    const TextStats &stats = reader.stats;
    out["min_feature"] = stats.max_feature < 0 ? -1 : stats.min_feature;
    out["max_feature"] = stats.max_feature;
    out["min_label"] = stats.max_label < 0 ? -1 : stats.min_label;
    out["max_label"] = stats.max_label;
    out["feature_limit_line"] = stats.feature_limit_line;
    out["label_limit_line"] = stats.label_limit_line;
    out["n_unsorted_rows"] = stats.n_unsorted_rows;
    out["n_duplicate_rows"] = stats.n_duplicate_rows;
    out["disorder_line"] = stats.disorder_line;
    return out;
}

template <typename Value, typename Label>
void bind_reader(nb::module_ &module, const char *name) {
    using Reader = TextReader<Value, Label>;
    nb::class_<Reader>(module, name, "Streaming text reader; see tests/reference/text_reader.py for what it accepts.")
        .def(
            "__init__",
            [](Reader *self, int format, int base, std::int64_t n_features, bool refuse_disorder,
               std::int64_t max_nonzeros, int n_threads) {
                new (self) Reader({static_cast<TextFormat>(format), static_cast<IndexBase>(base), n_features,
                                   refuse_disorder, max_nonzeros, n_threads, kMinPieceBytes, kRemappedBytes});
            },
            nb::arg("format"), nb::arg("base"), nb::arg("n_features"), nb::arg("refuse_disorder"),
            nb::arg("max_nonzeros"), nb::arg("n_threads"))
        .def(
            "feed",
            [](Reader &self, ConstVector<std::uint8_t> block) {
                return self.feed(reinterpret_cast<const char *>(block.data()), block.size());
            },
            nb::arg("block").noconvert(), nb::call_guard<nb::gil_scoped_release>(),
            "Parse the next bytes, shape (n_bytes,); False if there is a problem.")
        .def("finish", &Reader::finish, nb::call_guard<nb::gil_scoped_release>(),
             "End the text; False if there is a problem.")
        .def(
            "take_rows",
            [](Reader &self) {
                const auto n_rows = static_cast<std::int64_t>(self.indptr.size()) - 1;
                nb::dict out = take(self);
                self.begin_new_arrays(n_rows);
                return out;
            },
            "The same for the rows since the last call, which are handed over; the statistics cover all rows.")
        .def("take", &take<Value, Label>,
             "Arrays data, indices, indptr, labels, label_indptr, the header and statistics; call it once, after "
             "`finish`.")
        .def_prop_ro("n_lines", [](const Reader &self) { return self.n_lines; })
        .def_prop_ro("counts",
                     [](const Reader &self) {
                         return nb::make_tuple(self.header.n_samples, self.header.n_features, self.header.n_labels);
                     })
        .def_prop_ro("problem", [](const Reader &self) { return static_cast<int>(self.finding.problem); })
        .def_prop_ro("line", [](const Reader &self) { return self.finding.line; })
        .def_prop_ro("token", [](const Reader &self) {
            return nb::bytes(self.finding.token.data(), self.finding.token.size());
        });
}

template <typename Value>
nb::bytes write_rows(ConstVector<Value> data, ConstVector<std::int32_t> indices, ConstVector<std::int64_t> indptr,
                     ConstVector<std::int32_t> labels, ConstVector<std::int64_t> label_indptr, int base) {
    std::string out;
    {
        nb::gil_scoped_release release;
        format_rows(data.data(), indices.data(), indptr.data(), labels.data(), label_indptr.data(), indptr.size() - 1,
                    base, out);
    }
    return nb::bytes(out.data(), out.size());
}

template <typename Value>
void bind_writer(nb::module_ &module) {
    module.def("format_rows", &write_rows<Value>, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("labels").noconvert(), nb::arg("label_indptr").noconvert(),
               nb::arg("base"),
               "Rows as XMC text. indptr and label_indptr, shape (n_rows + 1,), are positions in the other arrays.");
}

}  // namespace

void bind_text(nb::module_ &module) {
    bind_reader<float, std::int32_t>(module, "XmcReader32");
    bind_reader<double, std::int32_t>(module, "XmcReader64");
    bind_reader<float, double>(module, "SvmlightReader32");
    bind_reader<double, double>(module, "SvmlightReader64");
    bind_writer<float>(module);
    bind_writer<double>(module);
}

}  // namespace widemargin
