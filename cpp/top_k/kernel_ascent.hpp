// Dual ascent for the kernel top-k SVM, with one row per block and the scores S = K A kept up to date.
//
//     maximise  Σ_i [⟨b_i,x_i⟩ − γ/(2C_i) ‖x_i‖²] − ½⟨A, KA⟩,    a_ij = −x_ij for wrong classes j, a_{i,y_i} = ⟨1,x_i⟩
//
// with the required margins b, by default 1. S is class-major, so a changed class of row i is one contiguous S_c += δ_c
// K_i; reading the scores of a row takes m strided loads. A row whose first-order violation C D max|δ| is below a
// threshold sleeps for 2, 4, … 64 epochs. Every epoch has a new random order. If the columns of K do not fit in memory,
// run() pauses and requests those that the next rows need. Memory: m · n values, the columns, and the non-zero dual
// variables. Tried without gain on letter (3,000 and 10,000 rows): applying 8 to 32 changes at once, with tiles of S in
// the L2 cache; prefetching the next column; skipping changes whose violation is far below the sleep threshold. Other
// orders on 5,000 rows of letter (rbf, k = 1, whole matrix), to gaps of 1e-3 and 1e-5, where this one takes 0.41 and
// 1.47 s: largest violation at the last visit first, 0.41 and 1.47; in order, 1.3; the tenth with the largest
// violations in each pass, 0.72 and 1.91; always the worst row, 23 s with a third of the visits. Twin:
// tests/reference/kernel_top_k.py, and with margins tests/reference/spoc.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "simd/arrays.hpp"
#include "simd/kernel_columns.hpp"
#include "top_k/step.hpp"

namespace widemargin {

struct KernelTask {
    int64_t n, m;
    const int64_t *y;        // (n,)
    const double *cost;      // (n,) C_i; rows of cost 0 are skipped
    const double *diagonal;  // (n,) K_ii
    TopKLoss loss;
    uint64_t seed;
    const double *margins = nullptr;  // (n, m) b, 0 for the true class; null: 1 for the others
};

struct DualEntry {
    int64_t label;
    double value;
};

struct KernelBounds {
    double gap, dual;
};

enum class Pause : int { EPOCH_DONE = 0, COLUMNS = 1, WORK_DONE = 2 };

template <typename T>
class KernelAscent {
  public:
    KernelAscent(const KernelTask &task, int64_t n_slots)
        : task_(task),
          stride_(padded(task.n)),
          S_(aligned_array<T>(stride_ * task.m)),
          columns_(task.n, n_slots),
          step_(task.loss, task.m - 1),
          add_(choose_add_column<T>()),
          support_(task.n),
          level_(task.n, 0),
          next_(task.n, 0),
          threshold_(task.n, 0.0),
          b_(task.m),
          old_(task.m, 0.0),
          new_(task.m),
          random_(task.seed) {}

    ColumnCache<T> &columns() { return columns_; }
    const std::vector<int64_t> &wanted() const { return wanted_; }
    const std::vector<DualEntry> &support(int64_t i) const { return support_[i]; }
    int64_t n_active() const { return n_active_; }
    int64_t epoch() const { return epoch_; }
    int64_t n_visits() const { return n_visits_; }

    void set_row(int64_t i, const DualEntry *entries, int64_t n_entries) {
        support_[i].assign(entries, entries + n_entries);
    }

    // S from scores (n, m), row by row.
    void set_scores(const double *scores) {
        for (int64_t i = 0; i < task_.n; ++i)
            for (int64_t c = 0; c < task_.m; ++c) S_[c * stride_ + i] = static_cast<T>(scores[i * task_.m + c]);
    }

    // Rows with a violation of at most `threshold` go to sleep.
    void begin_epoch(double threshold) {
        sleep_below_ = threshold;
        ++epoch_;
        order_.clear();
        for (int64_t i = 0; i < task_.n; ++i)
            if (next_[i] <= epoch_ && task_.cost[i] > 0.0) order_.push_back(i);
        n_active_ = static_cast<int64_t>(order_.size());
        shuffle();
        position_ = window_end_ = 0;
        again_ = false;
        deferred_.clear();
    }

    // Continues the epoch until it is done, columns are needed, or `work` multiplications are done.
    Pause run(int64_t work) {
        for (work_ = 0; true;) {
            if (position_ == static_cast<int64_t>(order_.size())) {
                columns_.take_back();
                if (deferred_.empty()) return Pause::EPOCH_DONE;
                order_.swap(deferred_);
                deferred_.clear();
                position_ = window_end_ = 0;
                again_ = true;
            }
            if (position_ == window_end_ && look_ahead()) return Pause::COLUMNS;
            while (position_ < window_end_) {
                if (work_ > work) return Pause::WORK_DONE;
                visit_next();
            }
        }
    }

    // Visits rows in the given order, awake or not; needs the whole matrix.
    void visit_rows(const int64_t *rows, int64_t n_rows) {
        for (int64_t r = 0; r < n_rows; ++r) {
            if (task_.cost[rows[r]] == 0.0) continue;
            if (find_change(rows[r]) > 0.0) change(rows[r], columns_.find(rows[r]));
        }
    }

    // Gap and dual objective from the current scores.
    KernelBounds evaluate() {
        KernelBounds sums{0.0, 0.0};
        for (int64_t i = 0; i < task_.n; ++i) {
            if (task_.cost[i] == 0.0) continue;
            load_margins(i);
            const double total = load_duals(i);
            const double conjugate = step_.conjugate(old_.data(), task_.m - 1, task_.cost[i]);
            double product = 0.0;
            for (int64_t j = 0; j < task_.m - 1; ++j) product += old_[j] * b_[j];
            const double asked = task_.margins == nullptr ? total : asked_of(i);
            clear_duals(i);
            sums.gap += task_.cost[i] * step_.value(b_.data(), task_.m - 1) - product + conjugate;
            sums.dual += asked - conjugate - 0.5 * (asked - product);  // ⟨a,s⟩ = σ s_y − ⟨x,s⟩ = ⟨b,x⟩ − ⟨x,z⟩
        }
        return sums;
    }

  private:
    static constexpr int64_t PAD = 16, PAGE = 4096;
    static constexpr int64_t BLOCK = 128;    // columns requested together
    static constexpr int64_t WINDOW = 2048;  // rows examined for them
    static constexpr int MAX_LEVEL = 6;      // sleep of at most 64 epochs; 4 was 10–15 % slower on digits and letter
    // Changes below this share of C, or of 1/K_ii if that is less, are not made: S could not represent them.
    static constexpr double SKIP = sizeof(T) == 4 ? 1e-8 : 1e-14;

    // Rows of S do not start at the same offset in a page: m strided loads would compete for the same cache lines.
    static int64_t padded(int64_t n) {
        const int64_t stride = (n + PAD - 1) / PAD * PAD;
        return stride * int64_t(sizeof(T)) % PAGE == 0 ? stride + PAD : stride;
    }

    void shuffle() {
        for (int64_t i = n_active_ - 1; i > 0; --i) {
            const int64_t j = static_cast<int64_t>(random_() % static_cast<uint64_t>(i + 1));
            std::swap(order_[i], order_[j]);
        }
    }

    // ⟨b_i,x_i⟩
    double asked_of(int64_t i) const {
        double sum = 0.0;
        for (const DualEntry &e : support_[i]) sum += e.value * task_.margins[i * task_.m + e.label];
        return sum;
    }
    // b_ = b_ij + s_j − s_y of the wrong classes
    void load_margins(int64_t i) {
        const T *s = S_.get() + i;
        const int64_t y = task_.y[i];
        const double own = s[y * stride_];
        for (int64_t c = 0; c < y; ++c) b_[c] = 1.0 - own + s[c * stride_];
        for (int64_t c = y + 1; c < task_.m; ++c) b_[c - 1] = 1.0 - own + s[c * stride_];
        if (task_.margins == nullptr) return;
        const double *margins = task_.margins + i * task_.m;
        for (int64_t c = 0; c < y; ++c) b_[c] += margins[c] - 1.0;
        for (int64_t c = y + 1; c < task_.m; ++c) b_[c - 1] += margins[c] - 1.0;
    }
    int64_t place(int64_t i, int64_t label) const { return label - (label > task_.y[i]); }

    // old_ = x_i; returns its sum.
    double load_duals(int64_t i) {
        double sum = 0.0;
        for (const DualEntry &e : support_[i]) {
            old_[place(i, e.label)] = e.value;
            sum += e.value;
        }
        return sum;
    }
    void clear_duals(int64_t i) {
        for (const DualEntry &e : support_[i]) old_[place(i, e.label)] = 0.0;
    }

    // new_ = the best x_i, delta_ = the change of a_i where there is one; returns its violation, 0 if too small.
    double find_change(int64_t i) {
        const int64_t n_wrong = task_.m - 1;
        const double N = task_.diagonal[i], C = task_.cost[i];
        load_margins(i);
        const double sigma = load_duals(i);
        for (int64_t j = 0; j < n_wrong; ++j) b_[j] += N * sigma;
        for (const DualEntry &e : support_[i]) b_[place(i, e.label)] += N * e.value;
        step_.maximise(b_.data(), n_wrong, N, C, threshold_[i], new_.data());
        delta_.clear();
        double largest = 0.0, sum = 0.0;
        for (int64_t j = 0; j < n_wrong; ++j) {
            sum += new_[j];
            const double d = old_[j] - new_[j];
            if (d == 0.0) continue;
            delta_.push_back({j + (j >= task_.y[i]), d});
            largest = std::max(largest, std::fabs(d));
        }
        clear_duals(i);
        if (largest <= SKIP * C && largest * N <= SKIP) return 0.0;
        if (sum != sigma) delta_.push_back({task_.y[i], sum - sigma});
        // Without curvature, the row moves no score: it is done.
        return std::max(C * step_.curvature(N, C) * largest, std::numeric_limits<double>::min());
    }

    // Applies new_ and delta_.
    void change(int64_t i, const T *column) {
        support_[i].clear();
        for (int64_t j = 0; j < task_.m - 1; ++j)
            if (new_[j] > 0.0) support_[i].push_back({j + (j >= task_.y[i]), new_[j]});
        T factor[COLUMN_GROUP], *rows[COLUMN_GROUP];
        for (size_t first = 0; first < delta_.size(); first += COLUMN_GROUP) {
            const int count = static_cast<int>(std::min<size_t>(COLUMN_GROUP, delta_.size() - first));
            for (int g = 0; g < count; ++g) {
                factor[g] = static_cast<T>(delta_[first + g].value);
                rows[g] = S_.get() + delta_[first + g].label * stride_;
            }
            add_(column, task_.n, factor, rows, count);
        }
        work_ += static_cast<int64_t>(delta_.size()) * task_.n;
    }

    // Sets the window of the next rows and `wanted`, the columns that they probably need; false if there are none.
    bool look_ahead() {
        const int64_t end = static_cast<int64_t>(order_.size());
        columns_.take_back();
        wanted_.clear();
        if (columns_.has_matrix()) {
            window_end_ = end;
            return false;
        }
        for (; window_end_ < std::min(end, position_ + WINDOW) && static_cast<int64_t>(wanted_.size()) < BLOCK;
             ++window_end_) {
            const int64_t i = order_[window_end_];
            if (columns_.find(i) == nullptr && (again_ || find_change(i) > 0.0)) wanted_.push_back(i);
        }
        return !wanted_.empty();
    }

    void visit_next() {
        const int64_t i = order_[position_++];
        if (position_ < window_end_) prefetch(order_[position_]);
        work_ += task_.m;
        const double violation = find_change(i);
        const T *column = columns_.find(i);
        if (violation > 0.0 && column == nullptr) {
            deferred_.push_back(i);
            return;
        }
        ++n_visits_;
        if (violation > 0.0) change(i, column);
        schedule(i, violation);
        columns_.keep(i, next_.data());
    }

    WIDEMARGIN_PREFETCH void prefetch(int64_t i) const {
        for (int64_t c = 0; c < task_.m; ++c) __builtin_prefetch(S_.get() + c * stride_ + i);
    }

    void schedule(int64_t i, double violation) {
        level_[i] = violation <= sleep_below_ ? std::min(level_[i] + 1, MAX_LEVEL) : 0;
        next_[i] = static_cast<int32_t>(epoch_ + (int64_t{1} << level_[i]));
    }

    KernelTask task_;
    int64_t stride_;
    AlignedArray<T> S_;  // (m, stride)
    ColumnCache<T> columns_;
    TopKStep step_;
    AddColumn<T> add_;
    std::vector<std::vector<DualEntry>> support_;  // x_i, by label
    std::vector<int> level_;
    std::vector<int32_t> next_;  // epoch of the next visit
    std::vector<double> threshold_;
    std::vector<double> b_, old_, new_;  // of the wrong classes of one row
    std::vector<DualEntry> delta_;
    std::mt19937_64 random_;
    std::vector<int64_t> order_, deferred_, wanted_;
    int64_t position_ = 0, window_end_ = 0, epoch_ = 0, n_active_ = 0, n_visits_ = 0, work_ = 0;
    bool again_ = false;  // these rows were postponed because their columns were missing
    double sleep_below_ = 0.0;
};

}  // namespace widemargin
