// Biased Euclidean projections of a row a of n values,
//     x = argmin  ½‖x − a‖² + ½ρ⟨1,x⟩²   over
//     capped simplex   0 ≤ x_j ≤ r/k,        ⟨1,x⟩ ≤ r   (or = r)
//     top-k simplex    0 ≤ x_j ≤ ⟨1,x⟩/k,    ⟨1,x⟩ ≤ r   (r = ∞: the top-k cone).
// All have the form x_j = min(max(a_j − pivot − t, 0), hi). If the bound on the sum is active, the pivot is a_[k], the
// k-th largest value, and −hi ≤ t ≤ 0, so a small r is not lost in the rounding of large a. Twins:
// tests/reference/projections.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace widemargin {

constexpr double NO_LIMIT = std::numeric_limits<double>::infinity();

struct Thresholds {
    double pivot, t, hi;
};

// k, r and ρ as above; `exactly`: the sum is r, not at most r (capped simplex only, and ρ has no effect).
struct ProjectionSet {
    int64_t k;
    double r, rho;
    bool exactly;
};

// values[i] - pivot in descending order, sorted only as far as they are read: the sweeps rarely read far.
class DescendingPrefix {
  public:
    DescendingPrefix(double *values, int64_t size) : values_(values), size_(size) {}
    int64_t size() const { return size_; }
    double operator[](int64_t i) {
        if (i >= sorted_) sort_until(i + 1);
        return values_[i] - pivot_;
    }
    double move_pivot_to(int64_t i) { return pivot_ = (*this)[i] + pivot_; }

  private:
    static constexpr int64_t FIRST = 64, GROWTH = 4;  // at most log_4(n / 64) selection passes, 7 for a million

    void sort_until(int64_t needed) {
        const int64_t last = std::min(size_, std::max({needed, FIRST, GROWTH * sorted_}));
        if (last < size_)
            std::nth_element(values_ + sorted_, values_ + last - 1, values_ + size_, std::greater<double>());
        std::sort(values_ + sorted_, values_ + last, std::greater<double>());
        sorted_ = last;
    }

    double *values_, pivot_ = 0.0;
    int64_t size_, sorted_ = 0;
};

// A lower bound on the k-th largest value: the k-th largest of the first n / 16 values. None for short rows, where
// sorting costs less than sampling. `work` has room for n. (A sample of 1024 made rows of 1000 twice as slow:
// benchmarks/projections.py.)
inline double sampled_kth_largest(const double *a, int64_t n, int64_t k, double *work) {
    constexpr int64_t SMALLEST = 64, SHARE = 16, PER_PLACE = 4;
    const int64_t size = std::max({SMALLEST, n / SHARE, PER_PLACE * k});
    if (size >= n) return -NO_LIMIT;
    std::copy(a, a + size, work);
    std::nth_element(work, work + k - 1, work + size, std::greater<double>());
    return work[k - 1];
}

// out = the a_j that are at least `floor`; returns how many.
inline int64_t keep_above(const double *a, int64_t n, double floor, double *out) {
    int64_t count = 0;
    for (int64_t j = 0; j < n; ++j) {
        out[count] = a[j];
        count += a[j] >= floor;
    }
    return count;
}

// --- capped simplex: a continuous quadratic knapsack ---

// What remains once the values far from the threshold are fixed: `free` holds the others, minus the pivot.
struct Knapsack {
    double hi, r, rho;
    bool full;  // the sum is r; otherwise it is less, and t = ρ · sum
    double pivot;
    double *free;
    int64_t n_free, n_capped;

    // The threshold if `count` values of sum `sum` stay between the bounds and `capped` are at the upper one.
    double balance(int64_t capped, double sum, int64_t count) const {
        const double mass = double(capped) * hi + sum;
        if (!full) return rho * mass / (1.0 + rho * double(count));
        return count > 0 ? (mass - r) / double(count) : -NO_LIMIT;
    }
};

// Σ_j min(max(a_j − t, 0), hi), and how many values satisfy counted(a_j − t).
template <class Counted>
inline __attribute__((always_inline)) std::pair<double, int64_t> clipped_sum(const double *a, int64_t n, double t,
                                                                             double hi, Counted counted) {
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t j = 0; j < n; ++j) {
        const double x = a[j] - t;
        sum += std::min(std::max(x, 0.0), hi);
        count += counted(x);
    }
    return {sum, count};
}

// Whether the sum of the values, minus t and clipped to [0, hi], is at least r = k · hi. Having k values at the cap is
// sufficient, even if their rounded sum falls short.
inline bool reaches_bound(const ProjectionSet &set, const double *values, int64_t n, double t, double hi) {
    const auto [sum, n_capped] = clipped_sum(values, n, t, hi, [=](double x) { return x >= hi; });
    return n_capped >= set.k || sum >= set.r;
}

// `values` holds all values that can be above 0, and at least k of them if `exactly`. It becomes the knapsack's free
// values: −hi < a_j − a_[k] < hi for a full knapsack, where −hi ≤ t ≤ 0; otherwise 0 < a_j < ρr + hi, because t ≤ ρr.
inline Knapsack reduce_capped_simplex(const ProjectionSet &set, double *values, int64_t n) {
    const double hi = set.r / double(set.k), bias = set.rho * set.r;
    const bool full = n >= set.k && (set.exactly || reaches_bound(set, values, n, bias, hi));
    double pivot = 0.0;
    if (full) {
        std::nth_element(values, values + set.k - 1, values + n, std::greater<double>());
        pivot = values[set.k - 1];
    }
    const double low = full ? -hi : 0.0, high = full ? hi : bias + hi;
    int64_t n_free = 0, n_capped = 0;
    for (int64_t j = 0; j < n; ++j) {
        const double b = values[j] - pivot;
        values[n_free] = b;
        n_free += b > low && b < high;
        n_capped += b >= high;
    }
    return {hi, set.r, set.rho, full, pivot, values, n_free, n_capped};
}

// Moves t down over the breakpoints b_j and b_j - hi; p of the free values are at hi, q - p between the bounds.
inline double sweep_knapsack(const Knapsack &sack, int64_t k) {
    DescendingPrefix b(sack.free, sack.n_free);
    double sum = 0.0;
    int64_t p = 0, q = 0;
    while (true) {
        // The sum is r on a whole interval of t; this is its upper end.
        if (p == q && p > 0 && sack.n_capped + p >= k) return b[p - 1] - sack.hi;
        const double entering = q < b.size() ? b[q] : -NO_LIMIT;
        const double leaving = p < q ? b[p] - sack.hi : -NO_LIMIT;
        const double t = sack.balance(sack.n_capped + p, sum, q - p);
        if (t >= std::max(entering, leaving)) return t;
        if (entering > leaving) {
            sum += b[q++];
        } else {
            sum = p + 1 == q ? 0.0 : sum - b[p];
            ++p;
        }
    }
}

// What clipping the values to [t, t + hi] adds, minus what it removes.
inline double clipping_gain(const double *values, int64_t n, double t, double hi) {
    double added = 0.0, taken = 0.0;
    for (int64_t j = 0; j < n; ++j) {
        const double x = values[j] - t;
        added += std::max(-x, 0.0);
        taken += std::max(x - hi, 0.0);
    }
    return added - taken;
}

// Kiwiel's variable fixing (Math. Program. 112, 2008): solve without bounds, then fix the side that clipping moves
// more.
inline double fix_knapsack(const Knapsack &sack) {
    if (!sack.full && sack.rho == 0.0) return 0.0;
    double low = sack.full ? -sack.hi : 0.0, high = NO_LIMIT;
    int64_t n = sack.n_free, capped = sack.n_capped;
    while (n > 0) {
        const double t = sack.balance(capped, std::accumulate(sack.free, sack.free + n, 0.0), n);
        const double gain = clipping_gain(sack.free, n, t, sack.hi);
        if (gain == 0.0) return t;
        const auto stays = [&](double b) { return gain > 0.0 ? b - t > 0.0 : b - t < sack.hi; };
        const int64_t kept = std::partition(sack.free, sack.free + n, stays) - sack.free;
        if (gain < 0.0) capped += n - kept;
        (gain > 0.0 ? low : high) = t;
        n = kept;
    }
    return high < NO_LIMIT ? high : std::max(low, sack.balance(capped, 0.0, 0));
}

// A Newton step for t = ρ · sum: the sums that gave t had large terms, whereas the clipped values are small.
inline double refine(const ProjectionSet &set, const double *a, int64_t n, double t, double hi) {
    const auto [sum, free] = clipped_sum(a, n, t, hi, [=](double x) { return x > 0.0 && x < hi; });
    return t + (set.rho * sum - t) / (1.0 + set.rho * double(free));
}

// `work` has room for n values. No value below a_[k] - r/k, nor a negative one, is ever above the threshold.
inline Thresholds capped_simplex(const double *a, int64_t n, const ProjectionSet &set, bool by_fixing, double *work) {
    const double hi = set.r / double(set.k);
    if (hi == 0.0) return {0.0, 0.0, 0.0};
    const double floor = sampled_kth_largest(a, n, set.k, work) - hi;
    const int64_t count = keep_above(a, n, set.exactly ? floor : std::max(floor, 0.0), work);
    const Knapsack sack = reduce_capped_simplex(set, work, count);
    const double t = by_fixing ? fix_knapsack(sack) : sweep_knapsack(sack, set.k);
    return {sack.pivot, sack.full ? t : refine(set, a, n, t, hi), hi};
}

// --- top-k simplex and cone ---

// Grows s = ⟨1,x⟩ from 0: values only leave the cap (p falls) and enter from zero (q grows).
inline Thresholds sweep_top_k_simplex(const ProjectionSet &set, DescendingPrefix b) {
    const double k = double(set.k), pivot = b.move_pivot_to(set.k - 1);
    double upper = 0.0;
    for (int64_t j = 0; j < set.k; ++j) upper += b[j];
    if (upper + k * pivot <= 0.0) return {pivot, 0.0, 0.0};
    double s = std::min((upper + k * pivot) / (1.0 + set.rho * k), set.r);
    if (set.k == b.size() || s <= -k * b[set.k]) return {pivot, -s / k, s / k};
    int64_t p = set.k - 1, q = set.k + 1;
    double middle = b[p + 1];  // b[p] is 0
    while (true) {
        const double free = double(q - p), below = k - double(p);
        const double curvature = below * below + (double(p) + set.rho * k * k) * free;
        s = std::min(k * (free * upper + below * middle + k * free * pivot) / curvature, set.r);
        const double enter = q < b.size() ? k * (middle - free * b[q]) / below : NO_LIMIT;
        const double leave = p > 0 ? k * (free * b[p - 1] - middle) / (double(q) - k) : NO_LIMIT;
        if (s <= std::min(enter, leave)) return {pivot, (middle - s * below / k) / free, s / k};
        if (enter <= leave) {
            middle += b[q++];
        } else {
            middle += b[--p];
            upper = p == 0 ? 0.0 : upper - b[p];
        }
    }
}

// The sum s is at most max a / (ρ + 1/n), because ⟨x, a − x⟩ = ρs² where r does not bind; t is at least a_[k] − s/k.
inline Thresholds top_k_simplex(const double *a, int64_t n, const ProjectionSet &set, double *work) {
    const double top = *std::max_element(a, a + n);
    if (top <= 0.0) return {top, 0.0, 0.0};
    const double reach = std::min(set.r, top / (set.rho + 1.0 / double(n)));
    const double floor = sampled_kth_largest(a, n, set.k, work) - reach / double(set.k);
    const int64_t count = keep_above(a, n, floor, work);
    return sweep_top_k_simplex(set, DescendingPrefix(work, count));
}

// out[j] = min(max(a[j] - pivot - t, 0), hi)
inline void apply_thresholds(const double *a, int64_t n, const Thresholds &at, double *out) {
    for (int64_t j = 0; j < n; ++j) out[j] = std::min(std::max((a[j] - at.pivot) - at.t, 0.0), at.hi);
}

}  // namespace widemargin
