// The reduced problem of one example (Crammer and Singer 2002, figure 3): the threshold θ with Σ_r (D_r − θ)₊ = total.
//
// With D = F/N + η it gives the exact maximum over the example's dual variables, η_r = (D_r − θ)₊. Only the D_r above
// max D − total can matter, so no more than these are sorted: O(k + s log s) for s of them. Everything is measured from
// the largest D, which keeps a small total from being lost in the rounding of large D.
// Twin: reduced_threshold() in reference/spoc.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace widemargin {

struct ReducedThreshold {
    double top;    // the largest D
    double below;  // θ − top, negative
};

// D (k,), work (k,); total > 0.
inline ReducedThreshold reduced_threshold(const double *D, int64_t k, double total, double *work) {
    const double top = *std::max_element(D, D + k);
    int64_t count = 0;
    for (int64_t r = 0; r < k; ++r) {
        work[count] = D[r] - top;
        count += work[count] >= -total;
    }
    std::sort(work, work + count, std::greater<double>());
    double phi = total;
    int64_t r = 1;
    for (; r < count; ++r) {
        const double next = phi - double(r) * (work[r - 1] - work[r]);
        if (next <= 0.0) break;
        phi = next;
    }
    return {top, work[r - 1] - phi / double(r)};
}

}  // namespace widemargin
