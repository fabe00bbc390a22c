// Turns the weights of a finished label into a row of the model: pruned, signs put right, columns of X ascending.
// Never dense: the memory is that of the row itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "label_problem.hpp"
#include "one_vs_all.hpp"
#include "row_store.hpp"

namespace widemargin {

struct StoredLabel {
    std::vector<int32_t> cols;  // ascending
    std::vector<float> vals;
    float intercept = 0;
    double bounds[N_BOUNDS] = {};
    int64_t n_iter = 0;
    uint8_t converged = 0;
    uint8_t plain = 0;  // finished by the plain Newton solver
};

class ModelWriter {
  public:
    ModelWriter(const RowStore &store, double prune)
        : store_(store), prune_(prune), dense_(store.n_cols), used_((store.n_cols + 63) / 64, 0) {}

    // Sorting by a bitmap of the columns: a set bit for each kept weight, read back in order.
    void write(const SparseWeights &weights, bool swapped, StoredLabel &out) {
        const float sign = swapped ? -1.0f : 1.0f;
        size_t n_kept = 0;
        for (size_t k = 0; k < weights.cols.size(); ++k) {
            if (std::abs(static_cast<double>(weights.vals[k])) < prune_) continue;
            const uint32_t col = store_.col_id[weights.cols[k]];
            dense_[col] = sign * weights.vals[k];
            used_[col / 64] |= uint64_t{1} << (col % 64);
            ++n_kept;
        }
        out.cols.resize(n_kept);
        out.vals.resize(n_kept);
        size_t at = 0;
        for (size_t word = 0; at < n_kept; ++word) {
            for (uint64_t bits = used_[word]; bits != 0; bits &= bits - 1) {
                const size_t col = word * 64 + static_cast<size_t>(__builtin_ctzll(bits));
                out.cols[at] = static_cast<int32_t>(col);
                out.vals[at++] = dense_[col];
            }
            used_[word] = 0;
        }
        out.intercept = sign * static_cast<float>(weights.bias);
    }

  private:
    const RowStore &store_;
    double prune_;
    std::vector<float> dense_;
    std::vector<uint64_t> used_;
};

}  // namespace widemargin
