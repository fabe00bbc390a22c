// Weights by feature in 8 or 16 bits: W[l, f] = scale[l] · q, exact in double, so the scores are those that
// scores/sparse.hpp defines. The kernels read the arrays as they are stored.
//
// Labels are in blocks. The entries of feature f in block b are the list
//     values[starts[b][f].entry … starts[b][f + 1].entry)      q, plus the first entry of the block
//     places[starts[b][f].byte … starts[b][f + 1].byte)        the labels, plus the first byte of the block
// in increasing order of labels. A list is narrow, one byte per entry: the distance from the label before, the first
// from label 0; distances above 255 are bridged by entries with q = 0. Or it is wide: two bytes per entry, the label in
// the block, low byte first. Its bytes and entries tell which.
#pragma once

#include "scores/sparse.hpp"

namespace widemargin {

struct ListStart {
    uint32_t entry, byte;
};

template <typename Q>
struct CompressedLists {
    const Q *values;        // (n_entries,)
    const uint8_t *places;  // (n_bytes,)
    int64_t n_entries, n_bytes;
    const ListStart *starts;  // (n_blocks, n_features + 1)
    const int64_t *bases;     // (n_blocks, 2): first entry and first byte of each block
    const float *scale;       // (n_labels,)
    int64_t labels_per_block;
};

template <typename Q>
class CompressedRow;

// `by_intercept` lists the labels of each block, best intercept first.
template <typename Q>
class CompressedWeights final : public LinearWeights {
  public:
    using Row = CompressedRow<Q>;
    // The exact score of a candidate would read whole lists; that takes as long as scoring all labels.
    static constexpr bool HAS_ESTIMATES = false;

    struct List {
        const Q *values;
        const uint8_t *places;
        int64_t size;
        bool is_wide;
    };

    // Throws std::invalid_argument if the lists would make a kernel read outside their arrays.
    CompressedWeights(const CompressedLists<Q> &lists, const double *intercept, const int32_t *by_intercept,
                      int64_t n_labels, int64_t n_features)
        : LinearWeights(n_labels, n_features, intercept),
          by_intercept(by_intercept),
          scale(n_labels + MOST_LOCAL_LABELS),
          lists_(lists) {
        check_lists();
        std::copy_n(lists.scale, n_labels, scale.begin());
    }

    void top_k(const RowSource &rows, int64_t k, WorkPlan plan, int64_t *labels, double *scores) const override {
        top_k_by_feature(*this, rows, k, plan, labels, scores);
    }
    void scores(const RowSource &rows, WorkPlan plan, double *out) const override {
        scores_by_feature(*this, rows, plan, out);
    }
    double score(const RowBuffer &buffer, int64_t row, int64_t label) const override;

    int64_t labels_per_block() const { return lists_.labels_per_block; }
    List list(int64_t block, int64_t feature) const {
        const ListStart *start = lists_.starts + block * (n_features + 1) + feature;
        const int64_t *base = lists_.bases + 2 * block;
        const int64_t size = start[1].entry - start[0].entry, n_bytes = start[1].byte - start[0].byte;
        return {lists_.values + base[0] + start->entry, lists_.places + base[1] + start->byte, size, n_bytes > size};
    }

    const int32_t *by_intercept;
    std::vector<double> scale;  // with places for the labels of a damaged list
    mutable LabelArraysPool pool;

  private:
    void check_lists() const {
        const int64_t per_block = lists_.labels_per_block;
        if (per_block < LINE_STEP || per_block > MOST_LOCAL_LABELS || per_block % LINE_STEP != 0)
            throw std::invalid_argument("compressed weights: a block has an invalid number of labels");
        int64_t entry = 0, byte = 0;
        for (int64_t block = 0; block * per_block < n_labels; ++block) {
            const ListStart *start = lists_.starts + block * (n_features + 1);
            const int64_t *base = lists_.bases + 2 * block;
            if (base[0] != entry || base[1] != byte || start->entry != 0 || start->byte != 0)
                throw std::invalid_argument("compressed weights: a block does not begin where the last one ends");
            for (int64_t f = 0; f < n_features; ++f) {
                const int64_t size = int64_t(start[f + 1].entry) - start[f].entry;
                const int64_t n_bytes = int64_t(start[f + 1].byte) - start[f].byte;
                if (size < 0 || (n_bytes != size && n_bytes != 2 * size))
                    throw std::invalid_argument("compressed weights: a list has an invalid length");
            }
            entry += start[n_features].entry;
            byte += start[n_features].byte;
        }
        if (entry != lists_.n_entries || byte != lists_.n_bytes)
            throw std::invalid_argument("compressed weights: the lists do not match the values");
    }

    const CompressedLists<Q> lists_;
};

// Calls visit(label in the block, q) for every entry of a list, fillers included. A label has 16 bits, whatever the
// file says.
template <class List, class Visit>
__attribute__((always_inline)) inline void for_each_entry(const List &list, Visit visit) {
    if (list.is_wide) {
        for (int64_t p = 0; p < list.size; ++p)
            visit(uint16_t(list.places[2 * p] | list.places[2 * p + 1] << 8), list.values[p]);
    } else {
        uint32_t label = 0;
        for (int64_t p = 0; p < list.size; ++p) {
            label = (label + list.places[p]) & 0xffff;
            visit(label, list.values[p]);
        }
    }
}

// A row in one block of labels: the list of each non-zero.
template <typename Q>
class CompressedRow {
  public:
    CompressedRow(const CompressedWeights<Q> &weights, const RowBuffer &buffer) : w_(weights), buffer_(buffer) {}

    void find(int64_t row, int64_t block, int64_t) {
        first_ = buffer_.starts[row];
        const int64_t n = buffer_.starts[row + 1] - first_;
        lists_.resize(n);
        products_ = 0;
        for (int64_t j = 0; j < n; ++j) {
            lists_[j] = w_.list(block, buffer_.features[first_ + j]);
            products_ += lists_[j].size;
            __builtin_prefetch(lists_[j].values);
            __builtin_prefetch(lists_[j].places);
        }
        scale_ = w_.scale.data() + block * w_.labels_per_block();
    }
    int64_t n_products() const { return products_; }

    // sums[l] += score of label base + l − intercept, in the order that defines the score.
    void add_exact(double *sums) const {
        for_each_product([&](int64_t local, double product) { sums[local] += product; });
    }

    // Calls add(label in the block, product) for every entry; the product of a filler is 0.
    template <class Add>
    void for_each_product(Add add) const {
        const double *scale = scale_;
        for (size_t j = 0; j < lists_.size(); ++j) {
            const double x = buffer_.values[first_ + j];
            for_each_entry(lists_[j],
                           [&](int64_t local, Q q) { add(local, x * (scale[local] * static_cast<double>(q))); });
        }
    }

  private:
    const CompressedWeights<Q> &w_;
    const RowBuffer &buffer_;
    const double *scale_ = nullptr;
    int64_t first_ = 0, products_ = 0;
    std::vector<typename CompressedWeights<Q>::List> lists_;
};

template <typename Q>
double CompressedWeights<Q>::score(const RowBuffer &buffer, int64_t row, int64_t label) const {
    const int64_t block = label / labels_per_block(), local = label - block * labels_per_block();
    double sum = intercept[label];
    for (int64_t j = buffer.starts[row]; j < buffer.starts[row + 1]; ++j)
        for_each_entry(list(block, buffer.features[j]), [&](int64_t found, Q q) {
            if (found == local) sum += buffer.values[j] * (scale[label] * static_cast<double>(q));
        });
    return sum;
}

}  // namespace widemargin
