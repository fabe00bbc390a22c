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

// s = W x_i in double for COUNT vectors of classes from `first` on; the sums stay in registers.
template <typename T, typename Data, int COUNT>
WIDEMARGIN_INLINE void score_chunk_exactly(const DataRows<Data> &X, int64_t i, const T *W, const WeightLayout &layout,
                                           int first, double *s) {
    constexpr int WIDTH = Lanes<double>::WIDTH, PARTS = Lanes<T>::WIDTH / WIDTH;  // of a group
    typedef T Part __attribute__((vector_size(sizeof(T) * WIDTH), may_alias));
    Vec<double> sums[COUNT] = {};
    const auto add = [&](double value, int64_t f) __attribute__((always_inline)) {
        const Vec<double> v = splat<double>(value);
#pragma GCC unroll 8
        for (int c = 0; c < COUNT; ++c) {
            const int64_t at = layout.at(f, (first + c) / PARTS) + (first + c) % PARTS * WIDTH;
            sums[c] += v * __builtin_convertvector(*reinterpret_cast<const Part *>(W + at), Vec<double>);
        }
    };
    const int64_t begin = X.begin(i), length = X.length(i);
    for (int64_t p = 0; p < length; ++p) {
        if (X.cols != nullptr && p + PREFETCH_W < length) {
            __builtin_prefetch(W + layout.at(X.cols[begin + p + PREFETCH_W], first / PARTS));
        }
        const double value = double(X.values[begin + p]);
        if (value != 0) add(value, X.cols == nullptr ? p : X.cols[begin + p]);
    }
    if (X.bias != 0) add(X.bias, X.n_cols);
    std::memcpy(s + first * WIDTH, sums, sizeof sums);
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

// Σ C_i φ(z_i) over the rows row(p) for p in [begin, end); score(i, s) fills the scores.
template <typename Acc, typename T, typename Data, typename R, typename F>
WIDEMARGIN_INLINE double add_losses(const LossArgs<T, Data> &args, int64_t begin, int64_t end, R row, F score) {
    const AlignedArray<Acc> s = aligned_array<Acc>(args.stride);
    std::vector<double> work(2 * args.n_classes);
    double sum = 0.0;
    for (int64_t p = begin; p < end; ++p) {
        const int64_t i = row(p);
        if (args.costs[i] == 0.0) continue;
        score(i, s.get());
        sum += args.costs[i] * loss_of_scores(args.loss, s.get(), args.n_classes, args.y[i], work.data());
    }
    return sum;
}

WIDEMARGIN_INLINE int64_t each_row(int64_t p) { return p; }

// s (stride,) = W x_i in the precision of the weights.
template <typename T>
WIDEMARGIN_INLINE void score_row(const LossArgs<T, T> &args, int64_t i, bool far, T *s) {
    const int n_groups = int(args.stride / Lanes<T>::WIDTH);
    score_groups<T>(args.X, i, args.W, args.layout, args.all_groups, n_groups, far, reinterpret_cast<Vec<T> *>(s));
}

template <typename T>
static double sum_losses(const LossArgs<T, T> &args, int64_t begin, int64_t end) {
    const bool far = is_far(args.X, args.stride);
    return add_losses<T>(args, begin, end, each_row, [&](int64_t i, T *s) { score_row(args, i, far, s); });
}

// Σ C_i φ(z_i) − ⟨x_i,z_i⟩ + γ/(2C_i) ‖x_i‖², none of which is negative, over the rows sampled_row(p) for p in [begin,
// end).
template <typename T>
static double sample_gaps(const LossArgs<T, T> &args, const TopKState<T> &state, int64_t begin, int64_t end) {
    const bool far = is_far(args.X, args.stride);
    std::vector<double> x(args.n_classes);
    double reached = 0.0;
    const double losses = add_losses<T>(args, begin, end, sampled_row, [&](int64_t i, T *s) {
        score_row(args, i, far, s);
        if (state.is_zero_row(i)) return void(reached += args.costs[i]);
        if (state.rows[i].sigma == 0) return;
        state.read_dual(i, x.data());
        const double true_margin = 1.0 - double(s[args.y[i]]);
        double squares = 0.0;
        for (int j = 0; j < args.n_classes; ++j) {
            reached += x[j] * (true_margin + double(s[j]));
            squares += x[j] * (x[j] / args.costs[i]);
        }
        reached -= 0.5 * args.loss.smoothing * squares;
    });
    return losses - reached;
}

// Scores in double, of the vectors that have a class.
template <typename T, typename Data>
static double sum_exact_losses(const LossArgs<T, Data> &args, int64_t begin, int64_t end) {
    constexpr int WIDTH = Lanes<double>::WIDTH;
    return add_losses<double>(args, begin, end, each_row, [&](int64_t i, double *s) {
        in_chunks((args.n_classes + WIDTH - 1) / WIDTH, [&](int first, auto size) __attribute__((always_inline)) {
            score_chunk_exactly<T, Data, decltype(size)::value>(args.X, i, args.W, args.layout, first, s);
        });
    });
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

// In double; n is a multiple of the lanes.
template <typename T>
static WeightProducts weight_products(int64_t n, const T *W, const T *average) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    double ww[WIDTH] = {}, aa[WIDTH] = {}, wa[WIDTH] = {};
    for (int64_t first = 0; first < n; first += WIDTH) {
        for (int lane = 0; lane < WIDTH; ++lane) {
            const double w = double(W[first + lane]), a = double(average[first + lane]);
            ww[lane] += w * w;
            aa[lane] += a * a;
            wa[lane] += w * a;
        }
    }
    WeightProducts total{};
    for (int lane = 0; lane < WIDTH; ++lane) total.ww += ww[lane], total.aa += aa[lane], total.wa += wa[lane];
    return total;
}

template <typename T>
const TopKKernels<T> &top_k_kernels() {
    static const TopKKernels<T> kernels{Lanes<T>::WIDTH,
                                        &visit_rows<T>,
                                        &visit_block<T>,
                                        &sum_losses<T>,
                                        &sample_gaps<T>,
                                        &sum_exact_losses<T, float>,
                                        &sum_exact_losses<T, double>,
                                        &average_weights<T>,
                                        &weight_products<T>,
                                        &thresholds_of<T>,
                                        &losses_of_scores<T>,
                                        &losses_of_scores<double>};
    return kernels;
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
