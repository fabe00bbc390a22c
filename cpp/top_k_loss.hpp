// Which top-k loss: k, α or β, and the smoothing γ (problems/top_k_losses.py).
#pragma once

#include <cstdint>

namespace widemargin {

struct TopKLoss {
    int64_t k;
    bool alpha;
    double smoothing;
};

}  // namespace widemargin
