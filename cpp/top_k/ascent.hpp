// Dual ascent for the top-k multiclass SVM: passes over the rows in random order, skipping rows that sleep, and sweeps
// over the rows that gained most; the average of the weights is the primal point. Bounds along the way are estimates;
// `certify` recomputes them in double.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simd/random_order.hpp"
#include "simd/threads.hpp"
#include "top_k/common_row.hpp"
#include "top_k/kernels.hpp"
#include "top_k/projections.hpp"
#include "top_k/state.hpp"

namespace widemargin {

// The dual variables of a top-k multiclass SVM as plain lists, made exactly feasible, and the weights they imply.

// Rows of (class, x) for the wrong classes with x > 0, in double.
struct DualLists {
    std::vector<int64_t> start{0};
    std::vector<int32_t> classes;
    std::vector<double> values;
    double sum = 0, smoothing_term = 0;  // Σ_i ⟨1,x_i⟩ and Σ_i γ/(2C_i) ‖x_i‖²

    int64_t n_rows() const { return int64_t(start.size()) - 1; }
};

// Moves x (n,) into the domain of the loss at cost C, which rounding may have left slightly.
inline void make_feasible(const TopKLoss &loss, double cost, double *x, int64_t n, double *work) {
    const double k = double(loss.k);
    double sum = 0.0, top = 0.0;
    for (int64_t j = 0; j < n; ++j) {
        x[j] = std::max(x[j], 0.0);
        if (!loss.alpha) x[j] = std::min(x[j], cost / k);
        sum += x[j];
        top = std::max(top, x[j]);
    }
    if (loss.alpha && top > sum / k) {
        apply_thresholds(x, n, top_k_simplex(x, n, {loss.k, cost, 0.0, false}, work), x);
    } else if (sum > cost) {
        for (int64_t j = 0; j < n; ++j) x[j] *= cost / sum;
    }
}

template <typename T>
DualLists read_duals(const TopKState<T> &state, const double *costs) {
    DualLists lists;
    std::vector<double> x(state.n_classes), wrong(state.n_classes), work(state.n_classes);
    for (int64_t i = 0; i < state.X.n_rows; ++i) {
        const int y = state.rows[i].y;
        if (state.is_zero_row(i)) {
            std::fill(x.begin(), x.end(), costs[i] / (state.n_classes - 1));
        } else if (state.rows[i].sigma > 0) {
            state.read_dual(i, x.data());
        } else {
            lists.start.push_back(int64_t(lists.classes.size()));
            continue;
        }
        x[y] = 0.0;
        // The true class is not one of the coordinates of the domain.
        std::swap(x[y], x[state.n_classes - 1]);
        make_feasible(state.loss, costs[i], x.data(), state.n_classes - 1, work.data());
        std::swap(x[y], x[state.n_classes - 1]);
        double squares = 0.0;
        for (int j = 0; j < state.n_classes; ++j) {
            if (x[j] == 0.0 || j == y) continue;
            lists.classes.push_back(j);
            lists.values.push_back(x[j]);
            lists.sum += x[j];
            squares += x[j] * (x[j] / costs[i]);  // in this order, because squares of small costs underflow
        }
        if (state.loss.smoothing > 0.0) lists.smoothing_term += 0.5 * state.loss.smoothing * squares;
        lists.start.push_back(int64_t(lists.classes.size()));
    }
    return lists;
}

constexpr int64_t STRIP_BYTES = int64_t(8) << 20;
constexpr int STRIP_CLASSES = 8;  // per task: a cache line of doubles

// W(A) = Σ_i a_i x_i' in double, one strip of classes at a time: take(first, last, strip) gets the columns of classes
// [first, last) as (n_cols + 1, last − first).
template <typename Data, class F>
void weights_of_duals(const DataRows<Data> &X, const int32_t *y, const DualLists &dual, int n_classes, int n_threads,
                      F take) {
    const int64_t n_lines = X.n_cols + 1;
    const int64_t affordable = STRIP_BYTES / (8 * n_lines) / STRIP_CLASSES * STRIP_CLASSES;
    const int64_t width = std::min<int64_t>((n_classes + STRIP_CLASSES - 1) / STRIP_CLASSES * STRIP_CLASSES,
                                            std::max<int64_t>(affordable, STRIP_CLASSES));
    const AlignedArray<double> strip = aligned_array<double>(n_lines * width);
    for (int64_t first = 0; first < n_classes; first += width) {
        std::fill_n(strip.get(), n_lines * width, 0.0);
        parallel_for(width / STRIP_CLASSES, n_threads, [&](int, int64_t task) {
            const int64_t low = first + task * STRIP_CLASSES, high = low + STRIP_CLASSES;
            const auto add = [&](int64_t i, int64_t j, double a) {
                double *column = strip.get() + (j - first);
                const int64_t begin = X.begin(i), length = X.length(i);
                for (int64_t p = 0; p < length; ++p) {
                    column[(X.cols == nullptr ? p : X.cols[begin + p]) * width] += a * double(X.values[begin + p]);
                }
                column[X.n_cols * width] += a * X.bias;
            };
            for (int64_t i = 0; i < dual.n_rows(); ++i) {
                double sum = 0.0;
                for (int64_t e = dual.start[i]; e < dual.start[i + 1]; ++e) {
                    sum += dual.values[e];
                    if (dual.classes[e] >= low && dual.classes[e] < high) add(i, dual.classes[e], -dual.values[e]);
                }
                if (sum > 0.0 && y[i] >= low && y[i] < high) add(i, y[i], sum);
            }
        });
        take(first, std::min<int64_t>(first + width, n_classes), strip.get(), width);
    }
}

struct Bounds {
    double primal, dual;
};

struct TopKOptions {
    TopKLoss loss;
    int n_classes;
    uint64_t seed;
    int n_threads;
    bool sweeps = false;  // after every pass, see GAIN_FACTOR
};

// Averages are 6 to 7 % of the time on 20newsgroups. 2 per pass take 1 to 3 % more visits on letter and digits, 0 to 12
// % on 20newsgroups. Leaving out the passes up to 0.7 of those before the next evaluation takes 0 to 5 % more there.
constexpr int AVERAGES_PER_PASS = 4;
constexpr double AVERAGE_POWER =
    12.0;  // weights ~ count¹²: roughly the last 8 % of the run; 6–48 are alike, 3 is worse
// Averaging reads W and writes the average: done once per pass if it costs more than this share of the visits.
constexpr double AVERAGE_SHARE = 0.25;
constexpr int64_t LOSS_ROWS = 1024;  // rows per task
constexpr int LISTS_FROM_CLASSES = 96;
// Share of non-zero values above which the features of a row are often adjacent.
constexpr double CROWDED_FILL = 0.25;
// Passes after which the weights are recomputed from the dual variables: without it, rounding kept the gap on digits
// above 1.5e-5.
constexpr int64_t REFRESH_PASSES = 100;
constexpr int64_t VISITS_AT_ONCE = 4096;  // between checks of the clock
// Sweeps after a pass. Near the optimum, few rows still move, and those for long: similar rows of different classes,
// whose steps undo each other. On 50,000 descriptions of Debian packages in 58 sections (k = 1), 1 % of the rows have
// 99.8 % of the squared distance to the optimum at a gap of 4e-5, and all but 375 of 62,000 free variables have found
// their bounds. Rows whose visit gained more than GAIN_FACTOR times the mean of the pass are visited again until their
// mean gain is below that, too: then a visit gains more in the next pass. A gap of 1e-6 takes 0.70 of the visits
// without sweeps (geometric mean over eleven problems from the Python and npm package indices, USPS, digits,
// silhouettes and generated text) with 4 or 8, 0.77 with 2; it takes 0.73 to 0.77 if rows leave the sweeps one by one.
// Conjugate gradients on the face of the dual lose on the sections: the face is almost flat along the rows that move,
// so 600 of them promise a gain of 40 where about 0.1 is left, and no step down to 1/500 gains anything; 10 at a time
// gain twice what passes do. A proximal term with semismooth Newton steps needs 470 products to halve a gap of 2e-4.
// At 1e-3, with float weights, sweeps take 0.97 of the visits (geometric mean over letter, digits and Debian's
// descriptions, eleven losses: 0.91 to 1.05), and 0.89 on USPS.
constexpr double GAIN_FACTOR = 4.0;
constexpr int MAX_SWEEPS = 100;

template <typename T>
class TopKAscent {
  public:
    TopKAscent(const DataRows<T> &X, const int32_t *y, const double *costs, const TopKOptions &options,
               const std::string &instruction_set)
        : kernels_(choose_top_k_kernels<T>(instruction_set)),
          y_(y),
          costs_(costs),
          options_(options),
          random_(options.seed) {
        state_.X = given_ = X;
        if (X.start != nullptr) {
            auto common = std::make_unique<CommonRow<T>>(X);
            if (common->is_used()) {
                common_ = std::move(common);
                state_.X = common_->rows();
            }
        }
        state_.loss = options.loss;
        state_.n_classes = options.n_classes;
        state_.width = kernels_.width;
        state_.n_groups = (options.n_classes + kernels_.width - 1) / kernels_.width;
        state_.lists = options.n_classes >= LISTS_FROM_CLASSES;
        const int64_t stride = state_.stride();
        state_.layout = layout_for(state_);
        for (auto *array : {&state_.W, &state_.average}) *array = aligned_array<T>(weights_size());
        for (auto *array :
             {&state_.scores, &state_.old_dual, &state_.new_dual, &state_.step, &state_.lane_number, &state_.absent}) {
            *array = aligned_array<T>(stride);
        }
        if (!state_.lists) state_.dual = aligned_array<T>(X.n_rows * stride);
        for (int64_t j = 0; j < stride; ++j) {
            state_.lane_number[j] = T(j);
            state_.absent[j] = j < options.n_classes ? T(0) : T(ABSENT_SCORE);
        }
        for (int g = 0; g < state_.n_groups; ++g) state_.all_groups.push_back(uint32_t(g));
        state_.changed.resize(state_.n_groups);
        set_up_rows();
    }

    // Dual variables to start from, as rows of (class, x).
    void start_from(const int64_t *start, const int32_t *classes, const double *values) {
        std::vector<double> x(options_.n_classes);
        for (int64_t i = 0; i < state_.X.n_rows; ++i) {
            if (!visited_[i]) continue;
            std::fill(x.begin(), x.end(), 0.0);
            for (int64_t e = start[i]; e < start[i + 1]; ++e) x[classes[e]] = values[e];
            x[y_[i]] = 0.0;
            state_.write_dual(i, x.data());
        }
        refresh(given_);
        n_averages_ = 0;
        for (RowState<T> &row : state_.rows) row.next = state_.epoch, row.level = 0;
    }

    // Runs for at most `n_passes` passes and `seconds`; returns the number of finished passes.
    int64_t run(int64_t n_passes, double seconds) {
        const auto begin = std::chrono::steady_clock::now();
        int64_t finished = 0;
        while (finished < n_passes) {
            if (position_ == int64_t(order_.size())) begin_pass();
            while (position_ < int64_t(order_.size())) {
                visit_some();
                const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
                if (elapsed.count() > seconds && position_ < int64_t(order_.size())) return finished;
            }
            if (!begin_sweep()) ++finished;
            const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
            if (elapsed.count() > seconds) return finished;
        }
        return finished;
    }

    // Bounds at the average and at the dual variables, from weights that carry the rounding errors of all steps. The
    // losses may be those of a sample of the rows. A plain estimate from it would vary by more than the gap; this one
    // is Σ_i ⟨x_i,z_i⟩ = Σ_i ⟨1,x_i⟩ − ⟨average, W⟩, which is known, and an estimate of the rest, which is small where
    // the gap is: 0.92 to 1.08 of the gap in evaluations before the last ones (20newsgroups, letter, Debian's
    // sections), in 0.4 of the time on 20newsgroups.
    Bounds evaluate(bool sampled = false) {
        const LossArgs<T, T> args = loss_args(state_.X);
        const WeightProducts products = weight_products();
        if (!sampled || state_.X.n_rows < LEAST_SAMPLED_ROWS) {
            const auto losses = [&](int64_t a, int64_t b) { return kernels_.sum_losses(args, a, b); };
            return bounds_of(sum_over_rows(state_.X.n_rows, losses), products);
        }
        const auto gaps = [&](int64_t a, int64_t b) { return kernels_.sample_gaps(args, state_, a, b); };
        const int64_t n_sampled = state_.X.n_rows / SAMPLED_OF * SAMPLED_RUN;
        const double rest = double(state_.X.n_rows) / double(n_sampled) * sum_over_rows(n_sampled, gaps);
        return bounds_of(dual_gain() - products.wa + rest, products);
    }

    // Bounds in double from the current average and from the dual variables, from which W is recomputed. X is the
    // original data, of which the ascent may have a rounded copy.
    template <typename Data>
    Bounds certify(const DataRows<Data> &X) {
        const double dual = certified_dual(X);
        settle(primal_weights());
        const LossArgs<T, Data> args = loss_args(X);
        const double losses = sum_over_rows(X.n_rows, [&](int64_t a, int64_t b) {
            if constexpr (std::is_same_v<Data, float>)
                return kernels_.exact_losses_of_floats(args, a, b);
            else
                return kernels_.exact_losses_of_doubles(args, a, b);
        });
        return {penalty() + losses, dual};
    }

    // --- For a caller that computes the scores of many rows at once ---

    // The rows of the next pass, in order.
    const std::vector<int32_t> &next_pass() {
        begin_pass();
        position_ = int64_t(order_.size());
        return order_;
    }
    // The rows of a sweep after it, in order, or none at the end of the pass.
    std::vector<int32_t> next_sweep() {
        if (!begin_sweep()) return {};
        position_ = int64_t(order_.size());
        return order_;
    }
    // Visits some of them, see visit_block; the caller must then add X' steps to W before `count_visits`.
    void visit_block(const int32_t *order, int64_t n, const T *gram, T *scores, T *steps) {
        kernels_.visit_block(state_, order, n, gram, scores, steps);
    }
    void count_visits(int64_t n) {
        n_visits_ += n;
        // Sweeps are not averaged, since most rows stand still: with them, 5,500 descriptions of Python packages (α,
        // k = 5) took twice as many visits.
        if (sweeps_ == 0) visits_to_average_ -= n;
        visits_to_refresh_ -= n;
        if (visits_to_refresh_ <= 0) refresh(given_);
        if (visits_to_average_ <= 0) average_weights();
    }
    // Losses of rows [first, first + n) from their scores (n, stride), which are overwritten.
    double losses_of_scores(int64_t first, int64_t n, T *scores) const {
        return kernels_.losses_of_scores(options_.loss, options_.n_classes, y_ + first, costs_ + first, n, stride(),
                                         scores);
    }
    double losses_of_exact_scores(int64_t first, int64_t n, double *scores) const {
        return kernels_.losses_of_exact_scores(options_.loss, options_.n_classes, y_ + first, costs_ + first, n,
                                               stride(), scores);
    }
    // The bounds of `evaluate`, from the sum of losses at the average.
    Bounds bounds_of(double losses) { return bounds_of(losses, weight_products()); }
    Bounds bounds_of(double losses, const WeightProducts &products) {
        const Bounds bounds{0.5 * products.aa + losses, dual_gain() - 0.5 * products.ww};
        const double gap = std::max(bounds.primal - bounds.dual, 0.0);
        state_.still = SLEEP_SHARE * gap / double(state_.X.n_rows);
        return bounds;
    }
    // Half the squared norm of the average, and the dual bound, as in `certify`.
    double penalty() const { return 0.5 * weight_products().aa; }
    template <typename Data>
    double certified_dual(const DataRows<Data> &X) {
        const DualLists dual = read_duals(state_, costs_);
        const double norm = refresh_from(X, dual);
        return dual.sum - dual.smoothing_term - 0.5 * norm;
    }
    T *weights() { return state_.W.get(); }
    T *primal_weights() const { return n_averages_ > 0 ? state_.average.get() : state_.W.get(); }
    int64_t stride() const { return state_.stride(); }

    DualLists duals() const { return read_duals(state_, costs_); }

    // coef (n_classes, n_cols) = the average; `constant` (n_classes,) = its weights for the constant feature.
    void read_weights(T *coef, T *constant) const {
        const T *average = primal_weights();
        const int64_t n_cols = state_.X.n_cols;
        for (int64_t f = 0; f < n_cols; ++f) {
            for (int j = 0; j < options_.n_classes; ++j) coef[j * n_cols + f] = T(weight(average, f, j));
        }
        for (int j = 0; j < options_.n_classes; ++j) constant[j] = average[state_.weight_at(n_cols, j)];
    }

    int64_t n_active() const { return n_active_; }
    int64_t n_visits() const { return n_visits_; }

  private:
    const TopKKernels<T> &kernels_;
    const int32_t *y_;
    const double *costs_;
    TopKOptions options_;
    TopKState<T> state_;
    DataRows<T> given_;                     // X without a common row
    std::unique_ptr<CommonRow<T>> common_;  // null if X is used as it is
    RandomOrder random_;
    std::vector<uint8_t> visited_;  // whether a row is ever visited
    std::vector<int32_t> order_;
    int64_t n_active_ = 0;    // rows in the last pass
    int sweeps_ = 0;          // since then; order_ has the rows that gained most
    double pass_gain_ = 0.0;  // mean of its visits
    int64_t position_ = 0, n_visits_ = 0, visits_to_average_ = 0, average_every_ = 1, visits_to_refresh_ = 0;
    double n_averages_ = 0;

    // By group if visits look at few groups and the features of a row are adjacent; products of blocks of rows, used
    // for dense rows, need it by feature.
    static WeightLayout layout_for(const TopKState<T> &state) {
        const DataRows<T> &X = state.X;
        const bool sparse = X.start != nullptr;
        const bool crowded = sparse && double(X.start[X.n_rows]) >= CROWDED_FILL * double(X.n_rows) * double(X.n_cols);
        if (state.lists && crowded) return {state.width, X.n_lines() * state.width};
        return {state.stride(), state.width};
    }

    int64_t weights_size() const { return state_.X.n_lines() * state_.stride(); }

    // The weight of a feature, the common row's part included.
    double weight(const T *weights, int64_t f, int64_t j) const {
        const double own = double(weights[state_.weight_at(f, j)]);
        if (common_ == nullptr || f == state_.X.n_cols) return own;
        return own + double(common_->mu()[f]) * double(weights[state_.weight_at(state_.X.u_line(), j)]);
    }

    // Moves the common row's part into the weights of the features: V = W, u = 0, q = W'μ.
    void settle(T *weights) const {
        if (common_ == nullptr) return;
        for (int j = 0; j < options_.n_classes; ++j) {
            double score = 0.0;
            for (int64_t f = 0; f < state_.X.n_cols; ++f) {
                T &own = weights[state_.weight_at(f, j)];
                own = T(weight(weights, f, j));
                score += double(common_->mu()[f]) * double(own);
            }
            weights[state_.weight_at(state_.X.u_line(), j)] = T(0);
            weights[state_.weight_at(state_.X.q_line(), j)] = T(score);
        }
    }

    void set_up_rows() {
        const int64_t n = state_.X.n_rows;
        state_.rows.resize(n);
        visited_.assign(n, 0);
        if (state_.lists) state_.listed.resize(n);
        if (options_.sweeps) state_.gains.resize(n);
        int64_t entries = 0;
        for (int64_t i = 0; i < n; ++i) state_.total_cost += costs_[i];
        for (int64_t i = 0; i < n; ++i) {
            RowState<T> &row = state_.rows[i];
            row.y = y_[i];
            row.norm = T(given_.squared_norm(i));
            row.cost = T(costs_[i]);
            visited_[i] = row.cost > 0 && !state_.is_zero_row(i);
            entries += state_.X.length(i);
        }
        const bool often =
            double(weights_size()) * AVERAGES_PER_PASS <= AVERAGE_SHARE * double(entries * state_.stride());
        average_every_ = std::max<int64_t>(1, often ? n / AVERAGES_PER_PASS : n);
        visits_to_average_ = average_every_;
        visits_to_refresh_ = REFRESH_PASSES * n;
    }

    void begin_pass() {
        ++state_.epoch;
        order_.clear();
        position_ = 0;
        int32_t wake = std::numeric_limits<int32_t>::max();
        for (int64_t i = 0; i < state_.X.n_rows; ++i) {
            if (!visited_[i]) continue;
            wake = std::min(wake, state_.rows[i].next);
            if (state_.rows[i].next <= state_.epoch) order_.push_back(int32_t(i));
        }
        if (order_.empty() &&
            wake != std::numeric_limits<int32_t>::max()) {  // all asleep: skip to the next row that wakes
            state_.epoch = wake - 1;
            return begin_pass();
        }
        n_active_ = int64_t(order_.size());
        random_.shuffle(order_);
    }

    // After a pass or a sweep: whether another sweep is worthwhile, which is then in order_.
    bool begin_sweep() {
        if (state_.gains.empty() || order_.empty()) return false;
        double gain = 0.0;
        for (const int32_t i : order_) gain += state_.gains[i];
        gain /= double(order_.size());
        if (sweeps_ == 0) {
            pass_gain_ = gain;
            const auto is_small = [&](int32_t i) { return state_.gains[i] <= GAIN_FACTOR * pass_gain_; };
            order_.erase(std::remove_if(order_.begin(), order_.end(), is_small), order_.end());
            position_ = int64_t(order_.size());
            if (order_.empty()) return false;
        } else if (gain < GAIN_FACTOR * pass_gain_ || sweeps_ == MAX_SWEEPS) {
            // All are in the next pass: visits of one pass are not a reason to sleep for several.
            for (const int32_t i : order_) state_.rows[i].next = state_.epoch + 1, state_.rows[i].level = 0;
            sweeps_ = 0;
            return false;
        }
        ++sweeps_;
        random_.shuffle(order_);
        position_ = 0;
        return true;
    }

    void visit_some() {
        const int64_t n = std::min({int64_t(order_.size()) - position_, visits_to_average_, VISITS_AT_ONCE});
        kernels_.visit_rows(state_, order_.data() + position_, n);
        position_ += n;
        count_visits(n);
    }

    void average_weights() {
        visits_to_average_ = average_every_;
        n_averages_ += 1.0;
        const double share = (AVERAGE_POWER + 1.0) / (n_averages_ + AVERAGE_POWER);
        kernels_.average_weights(weights_size(), T(share), state_.W.get(), state_.average.get());
    }

    template <typename Data>
    LossArgs<T, Data> loss_args(const DataRows<Data> &X) const {
        return {X,
                y_,
                costs_,
                options_.loss,
                options_.n_classes,
                state_.stride(),
                state_.layout,
                state_.all_groups.data(),
                primal_weights()};
    }

    template <class F>
    double sum_over_rows(int64_t n, F sum) const {
        const int64_t n_tasks = (n + LOSS_ROWS - 1) / LOSS_ROWS;
        std::vector<double> sums(n_tasks);
        parallel_for(n_tasks, options_.n_threads, [&](int, int64_t task) {
            sums[task] = sum(task * LOSS_ROWS, std::min(n, (task + 1) * LOSS_ROWS));
        });
        double total = 0.0;
        for (const double s : sums) total += s;
        return total;
    }

    WeightProducts weight_products() const {
        if (common_ == nullptr) {  // lanes without a class have weight 0
            return kernels_.weight_products(weights_size(), state_.W.get(), primal_weights());
        }
        WeightProducts total{};
        for (int64_t f = 0; f <= state_.X.n_cols; ++f) {
            for (int j = 0; j < options_.n_classes; ++j) {
                const double w = weight(state_.W.get(), f, j), a = weight(primal_weights(), f, j);
                total.ww += w * w, total.aa += a * a, total.wa += w * a;
            }
        }
        return total;
    }

    // Σ_i ⟨1,x_i⟩ − γ/(2C_i) ‖x_i‖²
    double dual_gain() const {
        if (options_.loss.smoothing > 0.0) {
            const DualLists dual = duals();
            return dual.sum - dual.smoothing_term;
        }
        double sum = 0.0;
        for (int64_t i = 0; i < state_.X.n_rows; ++i) {
            sum += state_.is_zero_row(i) ? costs_[i] : std::min(double(state_.rows[i].sigma), costs_[i]);
        }
        return sum;
    }

    template <typename Data>
    void refresh(const DataRows<Data> &X) {
        refresh_from(X, read_duals(state_, costs_));
    }

    // W = W(A); returns ‖W(A)‖².
    template <typename Data>
    double refresh_from(const DataRows<Data> &X, const DualLists &dual) {
        visits_to_refresh_ = REFRESH_PASSES * state_.X.n_rows;
        double total = 0.0;
        const auto take = [&](int64_t first, int64_t last, const double *strip, int64_t width) {
            for (int64_t f = 0; f <= X.n_cols; ++f) {
                for (int64_t j = first; j < last; ++j) {
                    const double w = strip[f * width + (j - first)];
                    total += w * w;
                    state_.W[state_.weight_at(f, j)] = T(w);
                }
            }
        };
        weights_of_duals(X, y_, dual, options_.n_classes, options_.n_threads, take);
        for (int j = 0; common_ != nullptr && j < options_.n_classes; ++j) {
            state_.W[state_.weight_at(state_.X.u_line(), j)] = T(0);
        }
        settle(state_.W.get());
        return total;
    }
};

}  // namespace widemargin
