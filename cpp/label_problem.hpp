// One label as the fast solver sees it: which rows are positive, what a row costs, when to stop; and sparse weights.
//
//     f(w, b) = ½‖w‖² + ½ bias_penalty b² + Σ_i c_i max(0, 1 − y_i (w·x_i + b))²
//
// "Positive" means the rarer side: a label with more positives than negatives is solved with the signs of y, w and b
// turned round, which leaves f as it is.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "row_store.hpp"

namespace widemargin {

struct LabelProblem {
    std::vector<uint32_t> positives;  // positions in the row store, ascending
    double positive_factor = 1, negative_factor = 1;
    double bias_penalty = 0;
    bool has_bias = true;
    bool swapped = false;
    double rule = 0;     // tol · max(1, min(P, N)) / n · ‖∇f(0)‖
    double gap_tol = 0;  // wanted relative gap
};

// A sparse vector of weights over renumbered columns, and an intercept.
struct SparseWeights {
    std::vector<uint32_t> cols;
    std::vector<float> vals;
    double bias = 0;

    double squared_norm() const {
        double sum = 0;
        for (float x : vals) sum += static_cast<double>(x) * x;
        return sum;
    }

    // Without the weights smaller than `least`.
    SparseWeights pruned(double least) const {
        SparseWeights kept;
        kept.bias = bias;
        for (size_t k = 0; k < cols.size(); ++k) {
            if (std::abs(static_cast<double>(vals[k])) < least) continue;
            kept.cols.push_back(cols[k]);
            kept.vals.push_back(vals[k]);
        }
        return kept;
    }
};

// A label on its way through the solver.
struct Candidate {
    int64_t index = 0;
    LabelProblem label;
    SparseWeights weights;
    int64_t n_iter = 0;
    bool whole = false;    // to be solved on all rows at once
    bool carried = false;  // `weights` are a start from outside
    bool solved = false;   // `weights` were found on all rows and wait for their check
    bool stuck = false;    // float32 steps did not get there
};

}  // namespace widemargin
