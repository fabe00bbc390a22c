// The projection of a visit, without sorting. Input: b (n_groups vectors). Output: t and hi of x_j = min(max(b_j − t,
// 0), hi), where x minimises ½‖x − b‖² + ½ρ⟨1,x⟩² over the domain of the loss, ⟨1,x⟩ ≤ r. Included once per instruction
// set.
//
// Each step takes the values above the current threshold, starting from that of the last visit, and solves as if no
// others counted. The sets {b > t} are nested, so equal counts mean equal sets, and then t is exact. If the steps fail,
// or values are too close together, `sorted_threshold` sorts. Twin: tests/reference/projections.py, the same
// projections by sorting.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr int MAX_SCANS = 25;  // usually 2.0–2.4

// The values above t: `count` values below t + hi, with Σ (b − t) = `sum`, and `n_capped` values of at least t + hi.
struct Scan {
    int count, n_capped;
    double sum, capped_sum;
};

template <typename T, int GROUPS>
WIDEMARGIN_INLINE Scan scan_above(const Vec<T> *b, int n_groups, T t, T hi) {
    const Vec<T> low = splat<T>(t), high = splat<T>(t + hi);
    Vec<T> sum{}, capped_sum{};
    Scan found{0, 0, 0.0, 0.0};
    for (int g = 0; g < (GROUPS ? GROUPS : n_groups); ++g) {
        const Mask<T> above = b[g] > low, capped = b[g] >= high;
        const Vec<T> excess = where<T>(above, b[g] - low);
        sum += where<T>(~capped, excess);
        capped_sum += where<T>(capped, excess);
        found.n_capped += count_lanes(capped);
        found.count += count_lanes(above);
    }
    found.count -= found.n_capped;
    found.sum = sum_lanes(sum);
    found.capped_sum = sum_lanes(capped_sum);
    return found;
}

template <typename T, int GROUPS>
WIDEMARGIN_INLINE T largest_value(const Vec<T> *b, int n_groups) {
    Vec<T> top = b[0];
    for (int g = 1; g < (GROUPS ? GROUPS : n_groups); ++g) top = larger<T>(top, b[g]);
    return max_lanes(top);
}

// The smallest value that is at least t.
template <typename T, int GROUPS>
WIDEMARGIN_INLINE T smallest_above(const Vec<T> *b, int n_groups, T t) {
    const Vec<T> low = splat<T>(t), none = splat<T>(std::numeric_limits<T>::infinity());
    Vec<T> least = none;
    for (int g = 0; g < (GROUPS ? GROUPS : n_groups); ++g) {
        least = smaller<T>(least, select<T>(b[g] >= low, b[g], none));
    }
    return -max_lanes(-least);
}

// A lower bound on t. With the k largest values alone, t would be at least b_[k] − s/k, where s = ⟨1,x⟩ is at most r;
// for α it is also at most (mean of the k largest) / (ρ + 1/n), because ρs² + ‖x‖² = ⟨x,b⟩ ≤ s · that mean.
template <typename T>
WIDEMARGIN_INLINE double least_threshold(const T *values, int64_t n, const TopKTarget &target) {
    if (target.k > LargestValues<T>::MOST) return ABSENT_SCORE / 2;
    LargestValues<T> largest(target.k);
    for (int64_t j = 0; j < n; ++j) largest.offer(values[j]);
    double mean = 0.0;
    for (const T v : largest) mean += double(v) / double(target.k);
    const double sum =
        target.alpha ? std::min(target.r, std::max(mean, 0.0) / (target.rho + 1.0 / double(n))) : target.r;
    return std::max(double(largest.smallest()) - sum / double(target.k), ABSENT_SCORE / 2);
}

// By top_k/projections.hpp, in double, from the k largest values and all others that can be above the threshold.
template <typename T>
__attribute__((noinline)) ClassThresholds<T> sorted_threshold(const Vec<T> *b, int n_groups, const TopKTarget &target,
                                                              std::vector<double> &work) {
    const int64_t n = static_cast<int64_t>(n_groups) * Lanes<T>::WIDTH;
    work.resize(2 * n);
    const T *values = reinterpret_cast<const T *>(b);
    const T floor = T(least_threshold(values, n, target));
    int64_t count = 0;
    for (int64_t j = 0; j < n; ++j) {
        work[count] = values[j];
        count += values[j] >= floor;
    }
    const ProjectionSet set{target.k, target.r, target.rho, false};
    const Thresholds found = target.alpha ? top_k_simplex(work.data(), count, set, work.data() + n)
                                          : capped_simplex(work.data(), count, set, false, work.data() + n);
    if (found.hi <= 0.0) return {target.alpha ? T(found.pivot) : T(0), T(0)};
    return {T(found.pivot + found.t), T(found.hi)};
}

// k = 1: the function whose root is t is convex and decreasing, so Newton's steps are monotone from the second one on.
template <typename T, int GROUPS>
WIDEMARGIN_INLINE ClassThresholds<T> hinge_threshold(const Vec<T> *b, int n_groups, const TopKTarget &target, T t,
                                                     std::vector<double> &work) {
    int previous = -1;
    for (int scan = 0; scan < MAX_SCANS; ++scan) {
        const Vec<T> low = splat<T>(t);
        Vec<T> sum{};
        int count = 0;
        for (int g = 0; g < (GROUPS ? GROUPS : n_groups); ++g) {
            const Mask<T> above = b[g] > low;
            sum += where<T>(above, b[g] - low);
            count += count_lanes(above);
        }
        if (count == previous) return {t, T(target.r)};
        previous = count;
        if (count == 0) {
            const T top = t > 0 ? largest_value<T, GROUPS>(b, n_groups) : T(0);
            if (!(top > 0)) return {T(0), T(0)};
            t = T(std::max(target.rho * top / (1.0 + target.rho), top - target.r));
            previous = -1;
            continue;
        }
        const double total = double(sum_lanes(sum)) + double(count) * double(t);
        t = T(std::max(target.rho * total / (1.0 + target.rho * count), (total - target.r) / count));
    }
    return sorted_threshold<T>(b, n_groups, target, work);
}

// β: the same with caps, where Newton may leave the bracket of the root.
template <typename T, int GROUPS>
WIDEMARGIN_INLINE ClassThresholds<T> capped_threshold(const Vec<T> *b, int n_groups, const TopKTarget &target, T t,
                                                      std::vector<double> &work) {
    const double hi = target.r / double(target.k), rho = target.rho;
    double low = 0.0, high = std::numeric_limits<double>::infinity();
    int count = -1, n_capped = -1;
    for (int scan = 0; scan < MAX_SCANS; ++scan) {
        const Scan found = scan_above<T, GROUPS>(b, n_groups, t, T(hi));
        const double mass = found.n_capped * hi + found.sum, at = double(t);
        if (found.count == 0 && found.n_capped == 0) {
            const T top = t > 0 ? largest_value<T, GROUPS>(b, n_groups) : T(0);
            if (!(top > 0)) return {T(0), T(0)};
            high = at;
            t = T(std::min(rho * hi, rho * top / (1.0 + rho)));  // the root if the largest value were the only one
            count = -1;
            continue;
        }
        // Too many values at the cap are never a solution, even if the count repeats: their sum is above r.
        const bool possible = found.count > 0 || found.n_capped <= target.k;
        if (possible && found.count == count && found.n_capped == n_capped) return {t, T(hi)};
        if (found.count == 0 && found.n_capped == target.k && at >= rho * target.r) return {t, T(hi)};
        (std::max(rho * mass - at, mass - target.r) > 0.0 ? low : high) = at;
        const double total = mass + found.count * at;
        double next = rho * total / (1.0 + rho * found.count);
        if (found.count > 0) next = std::max(next, (total - target.r) / found.count);
        const bool newton = possible && next >= low && next <= high;
        count = newton ? found.count : -1;  // a count that repeats after a bisection proves nothing
        n_capped = found.n_capped;
        if (!newton) next = high < 1e300 ? 0.5 * (low + high) : 2.0 * at + hi;
        t = T(next);
    }
    return sorted_threshold<T>(b, n_groups, target, work);
}

// α: a fixed point of the partition into capped, free and zero values; eq. (6) of Lapin, Hein, Schiele (2015).
template <typename T, int GROUPS>
WIDEMARGIN_INLINE ClassThresholds<T> top_k_threshold(const Vec<T> *b, int n_groups, const TopKTarget &target,
                                                     ClassThresholds<T> last, std::vector<double> &work) {
    constexpr int MAX_ALPHA_SCANS = 8;
    const double k = double(target.k), rho = target.rho;
    T t = last.t, hi = last.hi;
    int count = -1, n_capped = -1;
    for (int scan = 0; scan < MAX_ALPHA_SCANS; ++scan) {
        const Scan found = scan_above<T, GROUPS>(b, n_groups, t, hi);
        // The sum of the k largest is at most k c + Σ (b_j − c)₊ for every c; a visit with x = 0 leaves c ≈ b_[k].
        if (hi <= 0 && k * double(t) + found.capped_sum <= 0.0) return {t, T(0)};
        if (found.count == count && found.n_capped == n_capped) return {t, hi};
        count = found.count;
        n_capped = found.n_capped;
        if (count == 0 && n_capped == target.k) {  // only the k largest, according to this partition
            const double s = std::min(target.r, (found.capped_sum + k * double(t)) / (1.0 + rho * k));
            if (!(s > 0.0)) break;
            hi = T(s / k);
            t = T(double(smallest_above<T, GROUPS>(b, n_groups, t)) - s / k);
            continue;
        }
        if (count == 0 || n_capped > target.k || n_capped + count < target.k) break;
        const double p = n_capped, free = count, below = k - p, at = double(t);
        const double upper = found.capped_sum + p * at, middle = found.sum + free * at;
        const double curvature = below * below + (p + rho * k * k) * free;
        const double s = std::min(target.r, k * (free * upper + below * middle) / curvature);
        if (!(s > 0.0)) break;
        hi = T(s / k);
        t = T((middle - s * below / k) / free);
    }
    return sorted_threshold<T>(b, n_groups, target, work);
}

template <typename T, int GROUPS>
WIDEMARGIN_INLINE ClassThresholds<T> find_thresholds(const Vec<T> *b, int n_groups, const TopKTarget &target,
                                                     ClassThresholds<T> last, std::vector<double> &work) {
    if (target.k == 1) return hinge_threshold<T, GROUPS>(b, n_groups, target, last.t, work);
    if (target.alpha) return top_k_threshold<T, GROUPS>(b, n_groups, target, last, work);
    return capped_threshold<T, GROUPS>(b, n_groups, target, last.t, work);
}

// If C‖x_i‖² is negligible compared with the margins, thresholds are lost in their rounding. Giving C/k to each of the
// k largest of b (n lanes), as if W did not change, is within C · C‖x_i‖² of the optimum. Equal values share the rest
// so that it does not all go to the first classes. Writes x (n lanes).
template <typename T>
__attribute__((noinline)) ClassThresholds<T> choose_largest(const T *b, int64_t n, const TopKLoss &loss, T cost, T r,
                                                            std::vector<double> &work, T *x) {
    work.assign(b, b + n);
    std::nth_element(work.begin(), work.begin() + (loss.k - 1), work.end(), std::greater<double>());
    const double last = work[loss.k - 1];
    double sum = 0.0;
    int64_t n_above = 0, n_equal = 0;
    for (int64_t c = 0; c < loss.k; ++c) sum += work[c];
    for (int64_t j = 0; j < n; ++j) n_above += double(b[j]) > last, n_equal += double(b[j]) == last;
    const double share = double(cost) / double(loss.k), rest = share * double(loss.k - n_above) / double(n_equal);
    for (int64_t j = 0; j < n; ++j) {
        const double value = double(b[j]), chosen = value > last ? share : value == last ? rest : 0.0;
        x[j] = (loss.alpha ? sum > 0.0 : value > 0.0) ? T(chosen) : T(0);
    }
    return {T(last), T(double(r) / double(loss.k))};
}

// The same as a function for other files; b (n_groups, width) is aligned to a vector.
template <typename T>
static ClassThresholds<T> thresholds_of(const T *b, int n_groups, const TopKTarget &target, ClassThresholds<T> last,
                                        std::vector<double> &work) {
    const Vec<T> *groups = reinterpret_cast<const Vec<T> *>(b);
    if (n_groups == 1) return find_thresholds<T, 1>(groups, 1, target, last, work);
    return find_thresholds<T, 0>(groups, n_groups, target, last, work);
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
