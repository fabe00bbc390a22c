// Biased Euclidean projections of a row a of n values,
//     x = argmin  ½‖x − a‖² + ½ρ⟨1,x⟩²   over
//     capped simplex   0 ≤ x_j ≤ r/k,        ⟨1,x⟩ ≤ r   (or = r)
//     top-k simplex    0 ≤ x_j ≤ ⟨1,x⟩/k,    ⟨1,x⟩ ≤ r   (r = ∞: the top-k cone).
// All have the form x_j = min(max(a_j − top − t, 0), hi) with top = max a: thresholds are measured from the largest
// value, so that r is not lost in the rounding of large a. Twins and derivations: reference/projections.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>

namespace widemargin {

constexpr double NO_LIMIT = std::numeric_limits<double>::infinity();

struct Thresholds {
    double top, t, hi;
};

// k, r and ρ as above; `exactly`: the sum is r, not at most r (capped simplex only, and ρ has no effect).
struct ProjectionSet {
    int64_t k;
    double r, rho;
    bool exactly;
};

// The values from the largest down, sorted no further than somebody looks: the sweeps seldom look far.
class DescendingPrefix {
  public:
    DescendingPrefix(double *values, int64_t size) : values_(values), size_(size) {}
    int64_t size() const { return size_; }
    double operator[](int64_t i) {
        if (i >= sorted_) sort_until(i + 1);
        return values_[i];
    }

  private:
    static constexpr int64_t FIRST = 64, GROWTH = 4;  // selection passes: log_4(n / 64) at most, 7 for a million

    void sort_until(int64_t needed) {
        const int64_t last = std::min(size_, std::max({needed, FIRST, GROWTH * sorted_}));
        if (last < size_)
            std::nth_element(values_ + sorted_, values_ + last - 1, values_ + size_, std::greater<double>());
        std::sort(values_ + sorted_, values_ + last, std::greater<double>());
        sorted_ = last;
    }

    double *values_;
    int64_t size_, sorted_ = 0;
};

// A lower bound of the k-th largest value: that of the first 1024 (or 4k) values. `work` has room for n.
inline double sampled_kth_largest(const double *a, int64_t n, int64_t k, double *work) {
    constexpr int64_t SAMPLE = 1024, SAMPLE_PER_PLACE = 4;
    const int64_t size = std::min(n, std::max(SAMPLE, SAMPLE_PER_PLACE * k));
    std::copy(a, a + size, work);
    std::nth_element(work, work + k - 1, work + size, std::greater<double>());
    return work[k - 1];
}

// out = the a_j - top that are at least `floor`; returns how many.
inline int64_t keep_above(const double *a, int64_t n, double top, double floor, double *out) {
    int64_t count = 0;
    for (int64_t j = 0; j < n; ++j) {
        const double value = a[j] - top;
        out[count] = value;
        count += value >= floor;
    }
    return count;
}

// --- capped simplex: a continuous quadratic knapsack ---

// Threshold at which the sum fits, if `free` values of sum `mass` (the capped ones included) stay between the bounds:
// t + top = ρ · sum where the sum is below r, sum = r otherwise.
inline double balance(const ProjectionSet &set, double top, double mass, int64_t free) {
    const double full = free > 0 ? (mass - set.r) / double(free) : -NO_LIMIT;
    if (set.exactly) return full;
    return std::max(full, (set.rho * mass - top) / (1.0 + set.rho * double(free)));
}

// Moves t down over the breakpoints b_j and b_j - hi; p values are at hi, q - p between the bounds.
inline double sweep_capped_simplex(const ProjectionSet &set, double top, DescendingPrefix b) {
    const double hi = set.r / double(set.k);
    double sum = 0.0;
    int64_t p = 0, q = 0;
    while (true) {
        if (p == q && p >= set.k) return b[p - 1] - hi;  // the sum is r on a whole interval; this is its upper end
        const double entering = q < b.size() ? b[q] : -NO_LIMIT;
        const double leaving = p < q ? b[p] - hi : -NO_LIMIT;
        const double t = balance(set, top, double(p) * hi + sum, q - p);
        if (t >= std::max(entering, leaving)) return t;
        if (entering > leaving) {
            sum += b[q++];
        } else {
            sum = p + 1 == q ? 0.0 : sum - b[p];
            ++p;
        }
    }
}

// What clipping the free values to [t, t + hi] adds and takes.
struct Clipping {
    double short_of = 0.0, excess = 0.0;
};
inline Clipping clip_at(const double *free, int64_t n, double t, double hi) {
    Clipping sums;
    for (int64_t j = 0; j < n; ++j) {
        const double x = free[j] - t;
        sums.short_of += std::max(-x, 0.0);
        sums.excess += std::max(x - hi, 0.0);
    }
    return sums;
}

// Kiwiel's variable fixing (Math. Program. 112, 2008): solve without bounds, then fix the side that clipping moves more.
inline double fix_capped_simplex(ProjectionSet set, double top, double *free, int64_t n) {
    const double hi = set.r / double(set.k);
    if (set.rho == 0.0 && !set.exactly) {
        const auto add = [=](double sum, double b) { return sum + std::min(std::max(b + top, 0.0), hi); };
        if (std::accumulate(free, free + n, 0.0, add) <= set.r) return -top;
        set.exactly = true;
    }
    double low = -top, high = NO_LIMIT;
    int64_t p = 0;
    while (n > 0) {
        const double t = balance(set, top, std::accumulate(free, free + n, double(p) * hi), n);
        const Clipping moved = clip_at(free, n, t, hi);
        if (moved.short_of == moved.excess) return t;
        const bool fix_low = moved.short_of > moved.excess;
        const auto stays = [=](double b) { return fix_low ? b - t > 0.0 : b - t < hi; };
        const int64_t kept = std::partition(free, free + n, stays) - free;
        if (!fix_low) p += n - kept;
        (fix_low ? low : high) = t;
        n = kept;
    }
    return high < NO_LIMIT ? high : low;
}

// `work` has room for n values. No value at or below a_[k] - r/k is ever above the threshold, nor a negative one.
inline Thresholds capped_simplex(const double *a, int64_t n, const ProjectionSet &set, bool by_fixing, double *work) {
    const double hi = set.r / double(set.k), top = *std::max_element(a, a + n);
    const double kth = sampled_kth_largest(a, n, set.k, work) - top;
    const double floor = set.exactly ? kth - hi : std::max(kth - hi, -top);
    const int64_t count = keep_above(a, n, top, floor, work);
    const double t = by_fixing ? fix_capped_simplex(set, top, work, count)
                               : sweep_capped_simplex(set, top, DescendingPrefix(work, count));
    return {top, std::max(t, floor), hi};
}

// --- top-k simplex and cone ---

// Grows s = ⟨1,x⟩ from 0: values only leave the cap (p falls) and enter from zero (q grows).
inline Thresholds sweep_top_k_simplex(const ProjectionSet &set, double top, DescendingPrefix b) {
    const double k = double(set.k);
    double upper = 0.0;
    for (int64_t j = 0; j < set.k; ++j) upper += b[j];
    if (upper + k * top <= 0.0) return {top, 0.0, 0.0};
    double s = std::min((upper + k * top) / (1.0 + set.rho * k), set.r);
    if (set.k == b.size() || s <= k * (b[set.k - 1] - b[set.k])) return {top, b[set.k - 1] - s / k, s / k};
    int64_t p = set.k - 1, q = set.k + 1;
    upper = p == 0 ? 0.0 : upper - b[p];
    double middle = b[p] + b[p + 1];
    while (true) {
        const double free = double(q - p), below = k - double(p);
        const double curvature = below * below + (double(p) + set.rho * k * k) * free;
        s = std::min(k * (free * upper + below * middle + k * free * top) / curvature, set.r);
        const double enter = q < b.size() ? k * (middle - free * b[q]) / below : NO_LIMIT;
        const double leave = p > 0 ? k * (free * b[p - 1] - middle) / (double(q) - k) : NO_LIMIT;
        if (s <= std::min(enter, leave)) return {top, (middle - s * below / k) / free, s / k};
        if (enter <= leave) {
            middle += b[q++];
        } else {
            middle += b[--p];
            upper = p == 0 ? 0.0 : upper - b[p];
        }
    }
}

// The sum s is at most max a / (ρ + 1/n), as ⟨x, a − x⟩ = ρs² where r does not bind, and t is at least a_[k] − s/k.
inline Thresholds top_k_simplex(const double *a, int64_t n, const ProjectionSet &set, double *work) {
    const double top = *std::max_element(a, a + n);
    if (top <= 0.0) return {top, 0.0, 0.0};
    const double reach = std::min(set.r, top / (set.rho + 1.0 / double(n)));
    const double floor = sampled_kth_largest(a, n, set.k, work) - top - reach / double(set.k);
    const int64_t count = keep_above(a, n, top, floor, work);
    return sweep_top_k_simplex(set, top, DescendingPrefix(work, count));
}

// out[j] = min(max(a[j] - top - t, 0), hi)
inline void apply_thresholds(const double *a, int64_t n, const Thresholds &at, double *out) {
    for (int64_t j = 0; j < n; ++j) out[j] = std::min(std::max((a[j] - at.top) - at.t, 0.0), at.hi);
}

}  // namespace widemargin
