// The kernels of the top-k multiclass SVM. Included by top_k/kernels.hpp once per instruction set, so there is no
// #pragma once.

// clang-format off: each needs what comes before it
#include "simd/isa_vectors.hpp"
#include "top_k/isa_thresholds.hpp"
#include "top_k/isa_visits.hpp"
// clang-format on

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

// The losses at given weights, and the running average of the weights. During the ascent, scores have the precision of
// the weights; in the certificate they are double.

// s = W x_i in double for COUNT groups from `first` on; the sums stay in registers.
template <typename T, typename Data, int COUNT>
WIDEMARGIN_INLINE void score_chunk_exactly(const DataRows<Data> &X, int64_t i, const T *W, const WeightLayout &layout,
                                           int first, double *s) {
    constexpr int WIDTH = Lanes<double>::WIDTH, PARTS = Lanes<T>::WIDTH / WIDTH;
    typedef T Part __attribute__((vector_size(sizeof(T) * WIDTH), may_alias));
    Vec<double> sums[COUNT][PARTS] = {};
    const auto add = [&](double value, int64_t f) __attribute__((always_inline)) {
        const Vec<double> v = splat<double>(value);
#pragma GCC unroll 4
        for (int g = 0; g < COUNT; ++g) {
            const Part *group = reinterpret_cast<const Part *>(W + layout.at(f, first + g));
#pragma GCC unroll 2
            for (int h = 0; h < PARTS; ++h) sums[g][h] += v * __builtin_convertvector(group[h], Vec<double>);
        }
    };
    const int64_t begin = X.begin(i), length = X.length(i);
    for (int64_t p = 0; p < length; ++p) {
        if (X.cols != nullptr && p + PREFETCH_W < length) {
            __builtin_prefetch(W + layout.at(X.cols[begin + p + PREFETCH_W], first));
        }
        const double value = double(X.values[begin + p]);
        if (value != 0) add(value, X.cols == nullptr ? p : X.cols[begin + p]);
    }
    if (X.bias != 0) add(X.bias, X.n_cols);
    std::memcpy(s + first * Lanes<T>::WIDTH, sums, sizeof sums);
}

// s (stride,) = W x_i
template <typename T, typename Data>
WIDEMARGIN_INLINE void score_exactly(const DataRows<Data> &X, int64_t i, const T *W, const WeightLayout &layout,
                                     int n_groups, double *s) {
    int first = 0;
    for (; first + 4 <= n_groups; first += 4) score_chunk_exactly<T, Data, 4>(X, i, W, layout, first, s);
    for (; first + 2 <= n_groups; first += 2) score_chunk_exactly<T, Data, 2>(X, i, W, layout, first, s);
    if (first < n_groups) score_chunk_exactly<T, Data, 1>(X, i, W, layout, first, s);
}

// φ of the margins z (n,), which are overwritten; `work` has room for n.
inline double top_k_loss(const TopKLoss &loss, double *z, int64_t n, double *work) {
    if (loss.smoothing > 0.0) {  // ⟨x,z⟩ − ½γ‖x‖² at the projection x of z/γ
        const ProjectionSet set{loss.k, loss.smoothing, 0.0, false};
        const Thresholds found = loss.alpha ? top_k_simplex(z, n, set, work) : capped_simplex(z, n, set, false, work);
        double value = 0.0;
        for (int64_t j = 0; j < n; ++j) {
            const double x = std::min(std::max(z[j] - found.pivot - found.t, 0.0), found.hi);
            value += x * (z[j] - 0.5 * x);
        }
        return value / loss.smoothing;
    }
    std::nth_element(z, z + loss.k - 1, z + n, std::greater<double>());
    double sum = 0.0;
    for (int64_t j = 0; j < loss.k; ++j) sum += loss.alpha ? z[j] : std::max(z[j], 0.0);
    return std::max(sum, 0.0) / double(loss.k);
}

// The loss of a row from its scores.
template <typename Acc>
WIDEMARGIN_INLINE double loss_of_scores(const TopKLoss &loss, Acc *s, int n_classes, int y, double *work) {
    const Acc true_score = s[y];
    s[y] = -std::numeric_limits<Acc>::infinity();
    if (loss.k == 1 && loss.smoothing == 0.0) {
        Acc top = s[0];
        for (int j = 1; j < n_classes; ++j) top = s[j] > top ? s[j] : top;
        return std::max(1.0 + double(top) - double(true_score), 0.0);
    }
    if (loss.smoothing == 0.0 && loss.k <= LargestValues<Acc>::MOST) {
        LargestValues<Acc> largest(loss.k);
        for (int j = 0; j < n_classes; ++j) largest.offer(s[j]);
        double sum = 0.0;
        for (const Acc top : largest) {
            const double z = 1.0 + double(top) - double(true_score);
            sum += loss.alpha ? z : std::max(z, 0.0);
        }
        return std::max(sum, 0.0) / double(loss.k);
    }
    int64_t n = 0;
    for (int j = 0; j < n_classes; ++j) {
        if (j != y) work[n++] = 1.0 + double(s[j]) - double(true_score);
    }
    return top_k_loss(loss, work, n, work + n_classes);
}

// Σ C_i φ(z_i) over rows [begin, end); score(i, s) fills the scores.
template <typename Acc, typename T, typename Data, typename F>
WIDEMARGIN_INLINE double add_losses(const LossArgs<T, Data> &args, int64_t begin, int64_t end, F score) {
    const AlignedArray<Acc> s = aligned_array<Acc>(args.stride);
    std::vector<double> work(2 * args.n_classes);
    double sum = 0.0;
    for (int64_t i = begin; i < end; ++i) {
        if (args.costs[i] == 0.0) continue;
        score(i, s.get());
        sum += args.costs[i] * loss_of_scores(args.loss, s.get(), args.n_classes, args.y[i], work.data());
    }
    return sum;
}

// Scores in the precision of the weights, in registers.
template <typename T>
static double sum_losses(const LossArgs<T, T> &args, int64_t begin, int64_t end) {
    const int n_groups = int(args.stride / Lanes<T>::WIDTH);
    const bool far = is_far(args.X, args.stride);
    return add_losses<T>(args, begin, end, [&](int64_t i, T *s) {
        Vec<T> *out = reinterpret_cast<Vec<T> *>(s);
        score_groups<T>(args.X, i, args.W, args.layout, args.all_groups, n_groups, far, out);
    });
}

// Scores in double.
template <typename T, typename Data>
static double sum_exact_losses(const LossArgs<T, Data> &args, int64_t begin, int64_t end) {
    const int n_groups = int(args.stride / Lanes<T>::WIDTH);
    return add_losses<double>(
        args, begin, end, [&](int64_t i, double *s) { score_exactly(args.X, i, args.W, args.layout, n_groups, s); });
}

// Σ C_i φ(z_i) of n rows from their scores (n, stride), which are overwritten.
template <typename Acc>
static double losses_of_scores(const TopKLoss &loss, int n_classes, const int32_t *y, const double *costs, int64_t n,
                               int64_t stride, Acc *scores) {
    std::vector<double> work(2 * n_classes);
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        if (costs[i] == 0.0) continue;
        sum += costs[i] * loss_of_scores(loss, scores + i * stride, n_classes, y[i], work.data());
    }
    return sum;
}

// average += share · (W − average)
template <typename T>
static void average_weights(int64_t n, T share, const T *__restrict W, T *__restrict average) {
    for (int64_t k = 0; k < n; ++k) average[k] += share * (W[k] - average[k]);
}

// Σ_k W_k² in double; n is a multiple of the lanes.
template <typename T>
static double squared_norm(int64_t n, const T *__restrict W) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    double sums[WIDTH] = {};
    for (int64_t first = 0; first < n; first += WIDTH) {
        for (int lane = 0; lane < WIDTH; ++lane) sums[lane] += double(W[first + lane]) * double(W[first + lane]);
    }
    double total = 0.0;
    for (const double sum : sums) total += sum;
    return total;
}

template <typename T>
const TopKKernels<T> &top_k_kernels() {
    static const TopKKernels<T> kernels{Lanes<T>::WIDTH,
                                        &visit_rows<T>,
                                        &visit_block<T>,
                                        &sum_losses<T>,
                                        &sum_exact_losses<T, float>,
                                        &sum_exact_losses<T, double>,
                                        &average_weights<T>,
                                        &squared_norm<T>,
                                        &thresholds_of<T>,
                                        &losses_of_scores<T>,
                                        &losses_of_scores<double>};
    return kernels;
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
