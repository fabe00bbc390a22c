// The state of the ascent of the top-k multiclass SVM: rows of X, dual variables, and weights by feature. The kernels
// that work on it are in top_k/isa_kernels.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "simd/arrays.hpp"
#include "top_k/projections.hpp"
#include "top_k/step.hpp"

namespace widemargin {

constexpr double ABSENT_SCORE = -1e30;  // for the true class and for lanes without a class: never above a threshold

// The projection of one visit, in units of scores: see top_k/isa_thresholds.hpp.
struct TopKTarget {
    int64_t k;
    double r, rho;
    bool alpha;
};

// The k largest of the values offered one by one, ascending; for small k, where a heap or a selection costs more.
template <typename T>
class LargestValues {
  public:
    static constexpr int64_t MOST = 32;
    explicit LargestValues(int64_t k) : k_(k) { std::fill_n(values_, k, -std::numeric_limits<T>::infinity()); }
    void offer(T value) {
        if (!(value > values_[0])) return;
        int64_t at = 0;
        for (; at + 1 < k_ && values_[at + 1] < value; ++at) values_[at] = values_[at + 1];
        values_[at] = value;
    }
    T smallest() const { return values_[0]; }
    const T *begin() const { return values_; }
    const T *end() const { return values_ + k_; }

  private:
    int64_t k_;
    T values_[MOST];
};

template <typename T>
struct ClassThresholds {
    T t, hi;  // hi = 0: all of x is 0
};

// Rows of X, sparse (columns in any order) or dense (cols is null), and a constant feature of value `bias` after them.
// Sparse rows may be differences d_i = x_i − μ from a common row, see top_k/common_row.hpp: then along[i] = ⟨x_i,μ⟩,
// and W has two more lines, u = Σ_i a_i and q = V'μ, for W = V + μu':
//     W'x_i = V'd_i + q + ⟨x_i,μ⟩ u;     a step a_i x_i' adds a_i d_i' to V, a_i to u and ⟨d_i,μ⟩ a_i to q
template <typename T>
struct DataRows {
    const T *values;
    const int32_t *cols;
    const int64_t *start;  // null when dense
    int64_t n_rows, n_cols;
    double bias;  // double for any T so that a certificate for float32 values uses the exact constant
    const T *along = nullptr;
    double common_norm = 0.0;  // ‖μ‖²

    int64_t n_lines() const { return n_cols + (along == nullptr ? 1 : 3); }  // of W
    int64_t u_line() const { return n_cols + 1; }
    int64_t q_line() const { return n_cols + 2; }
    int64_t begin(int64_t i) const { return start != nullptr ? start[i] : i * n_cols; }
    int64_t length(int64_t i) const { return start != nullptr ? start[i + 1] - start[i] : n_cols; }
    double squared_norm(int64_t i) const {
        double sum = bias * bias;
        const T *x = values + begin(i);
        for (int64_t p = 0; p < length(i); ++p) sum += double(x[p]) * double(x[p]);
        return sum;
    }
};

// Where the weights of feature f and group g start: by feature so that the groups of a feature are contiguous, or by
// group so that adjacent features share a cache line (10 % less time on silhouettes, half of whose values are 0).
// Without the lanes that have no class, 20newsgroups (20 classes of 32 lanes) took as long: W is 3.9 instead of 6.3 MB,
// but vectors cross cache lines; the same with 24 lanes.
struct WeightLayout {
    int64_t feature_step, group_step;
    int64_t at(int64_t f, int64_t g) const { return f * feature_step + g * group_step; }
};

// The groups of classes that visits of a row look at, with their dual variables: all groups, or a list.
template <typename T>
struct ListedGroups {
    AlignedArray<T> lanes;  // (count, width)
    std::vector<uint32_t> ids;
};

template <typename T>
struct alignas(32) RowState {
    T t = 0, hi = 0;  // thresholds of the last visit
    T sigma = 0;      // sum of the dual variables
    T norm = 0;       // ‖x_i‖², the constant feature included
    T cost = 0;
    int32_t y = 0;
    int32_t next = 0;  // pass of the next visit
    uint8_t level = 0, visits = 0;
};

// Sleep: a row whose visit changed almost nothing is skipped for 1, 2, 4 … 64 passes. A cap of 16 was as good on text
// and 10–15 % worse on digits and letter. SLEEP_SHARE is the share of the mean gap per row that counts as almost
// nothing: 0.1–0.5 are alike; 2 is 1.5 times slower for α with k = 10. The gap is that of the last evaluation. An
// estimate from the changes of every pass, 0.3 or 1 of their sum, gains nothing on the whole: 0.96 to 1.03 of the
// visits on 20newsgroups, USPS and silhouettes if used before the first evaluation, 0.94 to 1.12 after each pass.
constexpr int MAX_SLEEP_LEVEL = 6;
constexpr double SLEEP_SHARE = 0.5;
// A change below this share of the cost, or of 1/‖x_i‖² if that is less (dual variables do not grow with the cost where
// classes are separable), is not made. With float, 1e-6 stalls at a gap of 4e-5 if x is far below the cost; with
// double, 1e-8 stalls at 1e-7.
template <typename T>
constexpr double SKIPPED_CHANGE = sizeof(T) == 4 ? 1e-8 : 1e-15;
// Radius of a projection, C‖x_i‖² + γ in units of margins, below which it cannot be distinguished from 0.
template <typename T>
constexpr double LOST_RADIUS = sizeof(T) == 4 ? 1e-6 : 1e-10;
constexpr int FULL_VISIT_EVERY = 16;  // visits of a row with a list between those of all groups
// Sleep level from which every visit is of all groups: otherwise a row that sleeps 64 passes at a time sees the other
// groups once in 1024. With it, npm's packages by first keyword (400 classes, α, k = 5) take 16 instead of 32 passes to
// a gap of 1e-3, 159 instead of 1,742 to 1e-6; level 4 leaves the former as it was, and 1 takes as many, dearer,
// passes.
constexpr int FULL_VISIT_LEVEL = 2;

// A row of zeros has margins of 1 for any weights: any x with sum C is optimal, and the row is never visited. The same
// holds for a row so short that no weights with ‖W‖² ≤ 2 Σ C_i (which the optimum satisfies) change its margins by more
// than 1e-12.
constexpr double ZERO_ROW = 1e-24;

// Evaluations that are not expected to be the last look at SAMPLED_RUN of every SAMPLED_OF rows, if there are enough:
// at varying places, because rows may repeat with a period; in runs, because single rows are read at half the speed.
constexpr int64_t SAMPLED_RUN = 16, SAMPLED_OF = 64, LEAST_SAMPLED_ROWS = 8192;
inline int64_t sampled_row(int64_t p) {
    const int64_t run = p / SAMPLED_RUN, place = uint32_t(run) * 2654435761u >> 30;
    static_assert(SAMPLED_OF == 4 * SAMPLED_RUN, "two bits choose a place");
    return run * SAMPLED_OF + place * SAMPLED_RUN + p % SAMPLED_RUN;
}

template <typename T>
struct TopKState {
    DataRows<T> X;
    TopKLoss loss;
    int n_classes, width, n_groups;
    bool lists;                  // rows have lists of groups; otherwise visits look at all groups
    AlignedArray<T> W, average;  // n_lines * stride values
    WeightLayout layout;
    AlignedArray<T> dual;         // (n_rows, stride), without lists
    AlignedArray<T> lane_number;  // (stride,) 0, 1, 2 …
    AlignedArray<T> absent;       // (stride,) ABSENT_SCORE in lanes without a class, 0 elsewhere
    std::vector<RowState<T>> rows;
    std::vector<ListedGroups<T>> listed;  // (n_rows,) with lists
    std::vector<double> gains;  // (n_rows,) about twice the dual's gain in a row's last visit; empty if not needed
    int32_t epoch = 0;
    double total_cost = 0;
    double still = 0;     // change of the objective below which a row sleeps longer
    double drift = 1e-4;  // running mean of the threshold's change, with lists
    std::vector<double> work;
    AlignedArray<T> scores, old_dual, new_dual, step;  // (stride,) of one visit
    std::vector<uint32_t> all_groups, changed;

    int64_t stride() const { return int64_t(n_groups) * width; }
    int64_t weight_at(int64_t f, int64_t j) const { return layout.at(f, j / width) + j % width; }

    bool is_zero_row(int64_t i) const {
        return rows[i].cost > 0 && double(rows[i].norm) * total_cost <= ZERO_ROW && loss.smoothing == 0.0;
    }

    // The dual variables of a row, (n_classes,) with 0 at the true class.
    void read_dual(int64_t i, double *x) const {
        std::fill_n(x, n_classes, 0.0);
        if (!lists) {
            for (int j = 0; j < n_classes; ++j) x[j] = double(dual[i * stride() + j]);
            return;
        }
        const ListedGroups<T> &groups = listed[i];
        for (size_t g = 0; g < groups.ids.size(); ++g) {
            for (int lane = 0; lane < width; ++lane) {
                const int j = groups.ids[g] * width + lane;
                if (j < n_classes) x[j] = double(groups.lanes[g * width + lane]);
            }
        }
    }

    // Sets the dual variables of a row; `W` must then be recomputed.
    void write_dual(int64_t i, const double *x) {
        double sum = 0.0;
        for (int j = 0; j < n_classes; ++j) sum += double(T(x[j]));
        rows[i].sigma = T(sum);
        if (!lists) {
            for (int j = 0; j < n_classes; ++j) dual[i * stride() + j] = T(x[j]);
            return;
        }
        ListedGroups<T> &groups = listed[i];
        groups.ids.clear();
        for (int g = 0; g < n_groups; ++g) {
            bool used = rows[i].y / width == g;
            for (int j = g * width; j < std::min(n_classes, (g + 1) * width); ++j) used |= x[j] != 0.0;
            if (used) groups.ids.push_back(uint32_t(g));
        }
        groups.lanes = aligned_array<T>(int64_t(groups.ids.size()) * width);
        for (size_t g = 0; g < groups.ids.size(); ++g) {
            const int first = groups.ids[g] * width, last = std::min(n_classes, first + width);
            for (int j = first; j < last; ++j) groups.lanes[g * width + (j - first)] = T(x[j]);
        }
        rows[i].visits = 0;
    }
};

}  // namespace widemargin
