// Subspace search with the logistic loss for up to 16 labels at once, one label per lane; every row counts.
//
// Each iteration minimises every lane's objective over span{z, last step, w, intercept}, like
// one_vs_all/batch_search.hpp, with which it shares tables and the sweep over features. It takes two passes over the
// rows: the first computes X z together with the derivatives of all lanes in their subspaces, from which one Newton
// step follows; the second takes that step and sums the gradients. A second evaluation would only confirm the step in
// most searches after the first, so a lane searches to the end only once a step did not decrease its objective.
//
// The start is the minimiser over span{mean positive, mean row, intercept} on a sample of rows. It is corrected by the
// first Newton step, which sees all rows. Memory: 268 bytes per column, and 198 bytes per row. The numbers in a lane do
// not depend on the labels in the other lanes.
//
// Before, when every step was confirmed, 22 % of the searches after the first on rcv1v2-subsets took a second step, and
// none on generated text. Tried without gain on these two: shares 0.05, 0.4 and 0.8 of the Hessian's diagonal
// (iterations differ by 1 %), and refilling lanes two at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/batch_search.hpp"
#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/subspace_search.hpp"

namespace widemargin {

constexpr int64_t START_ROWS = 1024;     // of either side in the sample; 512 to 4096 take the same iterations
constexpr double VALUE_ROUNDING = 1e-6;  // relative, of objectives that are summed in float32

// The start of one label, on a sample of rows: arrays of a subspace search with z = mean positive and p = mean row.
struct StartSample {
    AlignedFloats data;
    int64_t capacity = 0, n = 0;
    // Forgets the rows and makes room for n.
    void clear(int64_t room) {
        room = (room + LANES) / LANES * LANES;
        if (room > capacity) {
            data = aligned_floats(4 * room);
            capacity = room;
        }
        n = 0;
    }
    void add(float s, float sz, float sp, float signed_cost) {
        const float values[] = {s, sz, sp, signed_cost};
        for (int j = 0; j < 4; ++j) data[j * capacity + n] = values[j];
        ++n;
    }
    // Padded with rows of cost 0.
    SearchRows view() {
        while (n % LANES != 0) add(0, 0, 0, 0);
        return {n, LANES, data.get(), data.get() + capacity, data.get() + 2 * capacity, data.get() + 3 * capacity};
    }
};

class LogisticSearch {
  public:
    LogisticSearch(const RowStore &store, const VectorKernels &kernels)
        : store_(store),
          kernels_(kernels),
          rows_(measure_rows(store, kernels)),
          direction_(store.n_cols, 0.0f),
          signs_(store.n_rows, 0),
          args_{} {
        LaneTables &t = tables_;
        for (AlignedFloats *table : {&t.W, &t.P, &t.Z, &t.G}) *table = aligned_floats(store.n_used * LANES);
        for (AlignedFloats *table : {&t.S, &t.SZ, &t.SP}) *table = aligned_floats(store.n_rows * LANES);
        args_.entries = store_.entries.get();
        args_.start = store_.start.data();
        args_.cost = store_.cost.data();
        args_.signs = signs_.data();
        tables_.connect(args_);
        copy_sample();
    }

    // next(Candidate &): false when no label is left. done(Candidate &&): a label whose weights have yet to be checked.
    template <class Next, class Done>
    void run(Next next, Done done) {
        for (bool more = true;;) {
            if (more) more = refill(next);
            if (n_free() == LANES) return;
            dots();
            search();
            gradient();
            features();
            for (int lane = 0; lane < LANES; ++lane) {
                if (lanes_[lane].busy && finished(lane)) done(take_out(lane));
            }
        }
    }

  private:
    struct Lane {
        bool busy = false;
        bool rose = false;     // the last step did not decrease the objective
        bool careful = false;  // searches to the end, because some step did not
        Candidate candidate;
        SubspaceProducts products;
        SubspaceSearch<> search;
        float theta[N_DIRECTIONS] = {};
        float bias = 0;
        double value = NEVER, curvature = 0;
        double bias_gradient = 0, bias_gradient_before = 0;
        double gg = NEVER, gg_before = NEVER;  // ‖g_w‖² of the last two iterates
        int iteration = 0;
        // Share of the last step to take back, see one_vs_all/batch_search.hpp.
        double step_back() const { return gg / (gg + gg_before); }
    };
    const RowStore &store_;
    const VectorKernels &kernels_;
    const RowMeans rows_;
    std::vector<float> direction_;
    std::vector<int64_t> sampled_rows_, sample_start_{0};  // rows of the sample, and where their entries start
    std::vector<RowEntry> sample_entries_;
    std::vector<float> sample_scores_;
    std::vector<uint16_t> signs_;
    LaneTables tables_;
    Lane lanes_[LANES];
    BatchArgs args_;
    StartSample sample_;
    double sums_[N_SEARCH_SUMS][LANES] = {};

    int n_free() const {
        return static_cast<int>(std::count_if(lanes_, lanes_ + LANES, [](const Lane &lane) { return !lane.busy; }));
    }

    // Every stride-th row, side by side.
    void copy_sample() {
        for (int64_t i = 0; i < store_.n_rows; i += sample_stride()) {
            sampled_rows_.push_back(i);
            sample_entries_.insert(sample_entries_.end(), store_.entries.get() + store_.start[i],
                                   store_.entries.get() + store_.start[i + 1]);
            sample_start_.push_back(static_cast<int64_t>(sample_entries_.size()));
        }
        sample_scores_.resize(sampled_rows_.size());
    }
    int64_t sample_stride() const { return std::max<int64_t>(1, store_.n_rows / START_ROWS); }

    // Takes labels for all free lanes; false when there are no more.
    template <class Next>
    bool refill(Next &next) {
        bool more = true;
        for (int lane = 0; lane < LANES && more; ++lane) {
            if (lanes_[lane].busy) continue;
            lanes_[lane] = Lane{};
            more = next(lanes_[lane].candidate);
            if (more) start(lane);
        }
        return more;
    }

    // Sets: the lane's column in W = 0, P = mean row, Z = start; rows are set by the next pass.
    void start(int lane) {
        Lane &state = lanes_[lane];
        const LabelProblem &label = state.candidate.label;
        state.busy = true;
        for (uint32_t i : label.positives) signs_[i] = static_cast<uint16_t>(signs_[i] | (1u << lane));
        args_.positive_factor[lane] = static_cast<float>(label.positive_factor);
        args_.negative_factor[lane] = static_cast<float>(label.negative_factor);
        double theta[N_DIRECTIONS];
        search_sample(label, theta);
        SubspaceProducts &products = state.products = SubspaceProducts{};
        products.bias_penalty = label.bias_penalty;
        products.pp = rows_.squared_norm;
        state.bias = static_cast<float>(theta[3]);
        for (int64_t k = 0; k < store_.n_used; ++k) {
            const float p = rows_.mean[k];
            const float z = static_cast<float>(theta[0] * direction_[k] + theta[1] * p);
            tables_.W[k * LANES + lane] = 0;
            tables_.P[k * LANES + lane] = p;
            tables_.Z[k * LANES + lane] = z;
            products.zz += static_cast<double>(z) * z;
            products.zp += static_cast<double>(z) * p;
            direction_[k] = 0;
        }
        // As seen from w = z, where the first search starts.
        products.zw = products.ww = products.zz;
        products.pw = products.zp;
    }

    static double start_bias(double share) { return std::log(share / (1 - share)); }

    // The minimiser over span{mean positive, mean row, intercept} on a sample of both sides; theta[3] is the intercept.
    // Sets: direction_ = mean positive.
    void search_sample(const LabelProblem &label, double *theta) {
        const int64_t n_positive = static_cast<int64_t>(label.positives.size());
        const float share = 1.0f / static_cast<float>(n_positive);
        for (uint32_t i : label.positives) {
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                direction_[store_.entries[k].col] += share * store_.entries[k].val;
            }
        }
        SubspaceProducts products;
        products.pp = rows_.squared_norm;
        products.bias_penalty = label.bias_penalty;
        for (int64_t k = 0; k < store_.n_used; ++k) {
            const double z = direction_[k];
            products.zz += z * z;
            products.zp += z * rows_.mean[k];
        }
        const float bias =
            label.has_bias
                ? static_cast<float>(start_bias(static_cast<double>(n_positive) / static_cast<double>(store_.n_rows)))
                : 0.0f;
        products.bias = bias;
        fill_sample(label, bias);
        const SearchRows rows = sample_.view();
        const bool use[N_DIRECTIONS] = {true, true, false, label.has_bias};
        SubspaceSearch<> search;
        search.begin(products, use);
        double sums[N_SEARCH_SUMS];
        do {
            kernels_.logistic_sums(rows, bias, search.theta(), sums);
        } while (!search.absorb(sums));
        std::copy_n(search.theta(), N_DIRECTIONS, theta);
        theta[3] += bias;
    }

    // Negatives of the sample, and as many positives at most; costs make up for the rows between them.
    void fill_sample(const LabelProblem &label, float bias) {
        const int64_t n_positive = static_cast<int64_t>(label.positives.size());
        const int64_t n_sampled = static_cast<int64_t>(sampled_rows_.size());
        const int64_t step = (n_positive + START_ROWS - 1) / START_ROWS;
        kernels_.row_dots(n_sampled, sample_start_.data(), sample_entries_.data(), direction_.data(),
                          sample_scores_.data());
        sample_.clear(n_sampled + n_positive / step + 1);
        const float positive_factor = static_cast<float>(label.positive_factor * static_cast<double>(step));
        const float negative_factor = static_cast<float>(label.negative_factor * static_cast<double>(sample_stride()));
        for (int64_t k = 0; k < n_positive; k += step) {
            const int64_t i = label.positives[k];
            float z;
            kernels_.row_dots(1, store_.start.data() + i, store_.entries.get(), direction_.data(), &z);
            sample_.add(bias, z, rows_.scores[i], positive_factor * store_.cost[i]);
        }
        auto positive = label.positives.begin();
        for (int64_t k = 0; k < n_sampled; ++k) {
            const int64_t i = sampled_rows_[k];
            while (positive != label.positives.end() && *positive < i) ++positive;
            if (positive != label.positives.end() && *positive == i) continue;
            sample_.add(bias, sample_scores_[k], rows_.scores[i], -negative_factor * store_.cost[i]);
        }
    }

    // X z, and the sums of all lanes where their searches start.
    void dots() {
        uint32_t fresh = 0;
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            const bool first = state.iteration == 0;
            fresh |= static_cast<uint32_t>(state.busy && first) << lane;
            for (int j = 0; j < N_DIRECTIONS; ++j) args_.theta[j][lane] = j == 0 && first ? 1.0f : 0.0f;
            args_.bias[lane] = state.bias;
            if (!state.busy) args_.positive_factor[lane] = args_.negative_factor[lane] = 0;
            for (int j = 0; j < N_SEARCH_SUMS; ++j) sums_[j][lane] = 0;
        }
        for_blocks_of_rows(store_, [&](int64_t begin, int64_t end) {
            kernels_.logistic_dots(args_, begin, end, fresh, rows_.scores.data(), sums_);
        });
    }

    // Sets: theta of every lane.
    void search() {
        bool open[LANES];
        int n_open = 0;
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            const bool use[N_DIRECTIONS] = {state.busy, state.busy, state.busy && state.iteration >= SOLO_ITERATIONS,
                                            state.busy && state.candidate.label.has_bias};
            state.products.bias = state.bias;
            state.search.begin(state.products, use);
            open[lane] = !absorb(lane) && state.careful;
            n_open += open[lane];
        }
        while (n_open > 0) {
            for (int lane = 0; lane < LANES; ++lane) {
                for (int j = 0; j < N_DIRECTIONS; ++j) args_.theta[j][lane] = lanes_[lane].search.theta()[j];
                for (int j = 0; j < N_SEARCH_SUMS; ++j) sums_[j][lane] = 0;
            }
            for_blocks_of_rows(store_,
                               [&](int64_t begin, int64_t end) { kernels_.logistic_search(args_, begin, end, sums_); });
            for (int lane = 0; lane < LANES; ++lane) {
                if (!open[lane]) continue;
                open[lane] = !absorb(lane);
                n_open -= !open[lane];
            }
        }
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            std::copy_n(state.search.theta(), N_DIRECTIONS, state.theta);
            if (state.iteration == 0) state.theta[0] += 1;
        }
    }

    bool absorb(int lane) {
        double own[N_SEARCH_SUMS];
        for (int j = 0; j < N_SEARCH_SUMS; ++j) own[j] = sums_[j][lane];
        return lanes_[lane].search.absorb(own);
    }

    void gradient() {
        for (int lane = 0; lane < LANES; ++lane) {
            for (int j = 0; j < N_DIRECTIONS; ++j) args_.theta[j][lane] = lanes_[lane].theta[j];
            args_.loss[lane] = args_.bias_sum[lane] = args_.curvature[lane] = args_.largest_move[lane] = 0;
        }
        for_blocks_of_rows(store_, [&](int64_t begin, int64_t end) { kernels_.logistic_gradient(args_, begin, end); });
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            const LabelProblem &label = state.candidate.label;
            state.curvature = args_.curvature[lane];
            state.bias += state.theta[3];
            state.bias_gradient_before = state.bias_gradient;
            state.bias_gradient = label.has_bias ? label.bias_penalty * state.bias - args_.bias_sum[lane] : 0.0;
        }
    }

    void features() {
        FeatureArgs args{};
        args.n_cols = store_.n_used;
        args.spread = rows_.spread.data();
        tables_.connect(args);
        std::copy(&args_.theta[0][0], &args_.theta[0][0] + N_DIRECTIONS * LANES, &args.theta[0][0]);
        for (int lane = 0; lane < LANES; ++lane) {
            const double share = rows_.total_cost > 0 ? lanes_[lane].curvature / rows_.total_cost : 0.0;
            args.scaling[lane] = static_cast<float>(DIAGONAL_SHARE * share);
        }
        kernels_.batch_features[0](args);
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            const double penalty = state.products.bias_penalty;
            state.products = {args.zz[lane], args.zp[lane], args.zw[lane], args.pp[lane],
                              args.pw[lane], args.ww[lane], 0.0,           penalty};
            state.gg_before = state.gg;
            state.gg = args.gg[lane];
            const double before = state.value;
            state.value = args_.loss[lane] + 0.5 * state.products.ww + 0.5 * penalty * state.bias * state.bias;
            state.rose = !(state.value <= (1 + VALUE_ROUNDING) * before);
            state.careful = state.careful || state.rose;
            ++state.iteration;
        }
    }

    bool finished(int lane) const {
        const Lane &state = lanes_[lane];
        const LabelProblem &label = state.candidate.label;
        const double gg = state.gg * (1 - state.step_back());
        const double norm = std::sqrt(gg + state.bias_gradient * state.bias_gradient);
        const bool reached =
            norm <= BATCH_RULE_SHARE * label.rule && 0.5 * gg <= BATCH_GAP_SHARE * label.gap_tol * state.value;
        return reached || given_up(state);
    }

    // Float32 steps do not converge, or have left its range.
    static bool given_up(const Lane &state) {
        return state.iteration >= BATCH_MAX_ITER || !std::isfinite(state.gg + state.value);
    }

    Candidate take_out(int lane) {
        Lane &state = lanes_[lane];
        Candidate out = std::move(state.candidate);
        const float back = static_cast<float>(state.step_back());
        out.weights = lane_weights(store_, tables_, lane, back, state.gg);
        out.weights.bias = state.bias - back * state.theta[3];
        // One Newton step of the intercept; its derivative is nearly linear between the last two iterates.
        const double slope = (1 - back) * state.bias_gradient + back * state.bias_gradient_before;
        const double step = slope / (state.curvature + out.label.bias_penalty);
        if (std::abs(step) < 1) out.weights.bias = static_cast<float>(out.weights.bias - step);
        out.n_iter = state.iteration;
        out.solved = true;
        out.stuck = given_up(state);
        for (uint32_t i : out.label.positives) signs_[i] = static_cast<uint16_t>(signs_[i] & ~(1u << lane));
        state = Lane{};
        return out;
    }
};

}  // namespace widemargin
