// Weights from the caller: where the fast one-vs-all solver starts (the solution for another C, or of an earlier fit),
// or a stored model whose objective is asked for.
//
// They are read a label at a time from a CSR matrix over the columns of X and turned into columns of the row store,
// with the signs of the label's own problem. Memory: 4 bytes a column; the matrix itself belongs to the caller.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "label_problem.hpp"
#include "row_store.hpp"

namespace widemargin {

// (n_labels, n_features) weights in CSR and (n_labels,) intercepts; null pointers: none are given.
struct WeightsView {
    const float *data = nullptr;
    const int32_t *indices = nullptr;
    const int64_t *indptr = nullptr;
    const float *intercept = nullptr;
};

class GivenStart {
  public:
    GivenStart() = default;
    GivenStart(const RowStore &store, const WeightsView &weights) : weights_(weights) {
        if (!given()) return;
        rank_.resize(store.n_cols);
        for (int64_t k = 0; k < store.n_cols; ++k) rank_[store.col_id[k]] = static_cast<uint32_t>(k);
        n_used_ = static_cast<uint32_t>(store.n_used);
    }

    bool given() const { return weights_.indptr != nullptr; }

    // To start from. Weights on columns without an entry are left out, as the optimum has none there.
    SparseWeights label(int64_t j, bool swapped) const { return read(j, swapped, 0, n_used_); }

    // As they are, without those below `prune`.
    SparseWeights pruned(int64_t j, bool swapped, double prune) const {
        return read(j, swapped, prune, static_cast<uint32_t>(rank_.size()));
    }

  private:
    WeightsView weights_;
    std::vector<uint32_t> rank_;  // column of X -> column of the store
    uint32_t n_used_ = 0;

    SparseWeights read(int64_t j, bool swapped, double prune, uint32_t n_cols) const {
        const float sign = swapped ? -1.0f : 1.0f;
        SparseWeights out;
        for (int64_t k = weights_.indptr[j]; k < weights_.indptr[j + 1]; ++k) {
            const float w = weights_.data[k];
            const uint32_t col = rank_[weights_.indices[k]];
            if (w == 0 || col >= n_cols || std::abs(static_cast<double>(w)) < prune) continue;
            out.cols.push_back(col);
            out.vals.push_back(sign * w);
        }
        out.bias = sign * weights_.intercept[j];
        return out;
    }
};

}  // namespace widemargin
