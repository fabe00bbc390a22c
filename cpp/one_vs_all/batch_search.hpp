// Subspace search over all rows for up to 16 frequent labels at once, one label per lane.
//
// Each iteration minimises every lane's objective over span{z, last step, w, intercept} and, for long rows, two
// directions that all labels share (one_vs_all/subspace_search.hpp), where z_k = −g_k / (1 + t spread_k) is the descent
// direction, slightly scaled by the diagonal of the Hessian. It takes one pass of row dots, a small search on the rows
// near the lane's margin, one pass of gradient sums and one sweep over the features. The first search is over span{mean
// positive, intercept} and the shared directions or, without these, the mean row; X · mean row is the same for all
// labels. A given start replaces the mean positive and the first search. The cost does not depend on how frequent a
// label is. Memory: 264 bytes per column, 194 bytes per row, and 24 bytes per near row of a lane, which may be all
// rows: 580 bytes per row. The numbers in a lane do not depend on the labels in the other lanes.
//
// The gradients g of the last two iterates are nearly orthogonal, because the search went along the older one. So there
// is a point between the two iterates with gradient norm ‖g‖‖g'‖ / √(‖g‖² + ‖g'‖²), whose certified gap ½‖g‖² is
// smaller than at either end by a third or more. A lane is done when that point is good enough, and returns it.
//
// Measured on debian-tags (AVX2, 205 labels in batches, 14.7 iterations each before): this point saves 4 % of the
// iterations, the scaling 4 % (none at four times the strength); a reach per row and sampled first searches save 20 %
// of the time per dot pass and 60 % per search. Tried without gain: loose batches finished on working sets (+30 %
// time); the gradient by columns (no row is skipped, so no faster); sums in half lines when only half the lanes are
// active, and z in bfloat16 (the same iterations; the passes wait for rows from the cache and for the copies of near
// rows); the gradient from the last row to the first, because the dot pass has just read the last rows (six turns: .632
// and .633 s, two threads .387 and .388 s); the best scale of the dual point (gain below 1e-6). Within the noise on
// bibtex, rcv1v2-subsets and debian-tags (AVX-512): BATCH_RULE_SHARE 0.9 and 0.95, BATCH_GAP_SHARE 0.95 and 0.98,
// REFILL_LANES 1, 3 and 4, and FREQUENT_SHARE 0.03 and 0.06; 0.08 takes 13 % longer on debian-tags. Next to shared
// directions, one more old step saves nothing, and the best point between three or more iterates 1 to 2 % of the
// iterations (NumPy prototype, pypi-topics, bibtex).
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "one_vs_all/kernels.hpp"
#include "one_vs_all/labels.hpp"
#include "one_vs_all/losses.hpp"
#include "one_vs_all/shared_directions.hpp"
#include "one_vs_all/subspace_search.hpp"

namespace widemargin {

// Of the stop rule, for both losses. The float32 gradient is accurate, and the certificate moves the intercept to its
// optimum: with 0.9, no certificate on pypi-topics and npm-keywords misses the rule, and 6 to 7 % of the iterations are
// saved compared with 0.5. With 0.8, none of the logistic loss on rcv1v2-subsets and generated text misses it, and 7 %
// of the iterations on rcv1v2-subsets are saved; 0.9 and 0.95 save 1 % more, but one label then misses its gap.
constexpr double BATCH_RULE_SHARE = 0.8;
constexpr double BATCH_GAP_SHARE = 0.9;  // of gap_tol, for ½‖g‖² / f; the rest is for the step of the intercept
constexpr int BATCH_MAX_ITER = 150;      // most labels take 10 to 40; Newton is better for the others
constexpr int64_t BATCH_ROWS = 512;      // rows between two flushes of float32 sums
constexpr int REFILL_LANES = 2;          // free lanes before new labels are taken
constexpr float WIDE_REACH = 1e30f;
// Rows that take part in a search: all (or a sample) in the first; those within a share of the largest move in the
// second, when no step along −g is known yet; then those within a smaller share plus their own moves along z and p.
constexpr float SECOND_REACH = 0.3f, LATER_REACH = 0.03f;
constexpr int SAMPLED_SEARCHES = 2;  // the first two need little accuracy: all positives, and a sample of the negatives
constexpr int64_t SAMPLE_OF_ROWS = 4096;
constexpr double DIAGONAL_SHARE = 0.15;    // of the Hessian's estimated diagonal in z; 0 and 1 take more iterations
constexpr double NEGLIGIBLE_SHARE = 0.04;  // relative to the root mean square of the gradient
constexpr double NEVER = 1e300;

template <class F>
void for_blocks_of_rows(const RowStore &store, F body) {
    for (int64_t begin = 0; begin < store.n_rows; begin += BATCH_ROWS) {
        body(begin, std::min(store.n_rows, begin + BATCH_ROWS));
    }
}

// mean = Σ c x / Σ c, spread = Σ c x² − (Σ c x)² / Σ c, and the scores of the rows, mean · x.
struct RowMeans {
    std::vector<float> mean, spread, scores;
    double total_cost = 0, squared_norm = 0;  // Σ c, ‖mean‖²
};

// Without the mean, it is zero.
inline RowMeans measure_rows(const RowStore &store, const VectorKernels &kernels, bool with_mean = true) {
    const std::vector<float> none(store.n_cols, 0.0f);
    RowMeans rows{none, none, std::vector<float>(store.n_rows, 0.0f)};
    std::vector<double> sum(store.n_cols, 0.0), squares(store.n_cols, 0.0);
    for (int64_t i = 0; i < store.n_rows; ++i) {
        rows.total_cost += store.weight[i];
        for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
            const double x = store.entries[k].val, cx = store.weight[i] * x;
            sum[store.entries[k].col] += cx;
            squares[store.entries[k].col] += cx * x;
        }
    }
    for (int64_t k = 0; k < store.n_cols && rows.total_cost > 0; ++k) {
        rows.spread[k] = static_cast<float>(std::max(0.0, squares[k] - sum[k] * sum[k] / rows.total_cost));
        if (with_mean) rows.mean[k] = static_cast<float>(sum[k] / rows.total_cost);
        rows.squared_norm += static_cast<double>(rows.mean[k]) * rows.mean[k];
    }
    if (with_mean) {
        kernels.row_dots(store.n_rows, store.start.data(), store.entries.get(), rows.mean.data(), rows.scores.data());
    }
    return rows;
}

// The weights of a lane, `back` of its last step taken back; gg = ‖g_w‖². Drops weights of columns that are no longer
// in any active row: even if all were dropped, ‖g‖ would change by at most 4 %.
inline LabelWeights lane_weights(const RowStore &store, const LaneTables &tables, int lane, float back, double gg) {
    const double least = NEGLIGIBLE_SHARE * std::sqrt(gg / std::max<double>(1, static_cast<double>(store.n_used)));
    LabelWeights out;
    out.cols.resize(store.n_used);
    out.vals.resize(store.n_used);
    size_t count = 0;
    for (int64_t k = 0; k < store.n_used; ++k) {
        const float w = tables.W[k * LANES + lane] - back * tables.P[k * LANES + lane];
        out.cols[count] = static_cast<uint32_t>(k);
        out.vals[count] = w;
        count += std::abs(w) > least;
    }
    out.cols.resize(count);
    out.vals.resize(count);
    return out;
}

class BatchSubspace {
  public:
    // shared: null if the labels share no directions.
    BatchSubspace(const RowStore &store, const VectorKernels &kernels, const SharedDirections *shared = nullptr)
        : store_(store),
          kernels_(kernels),
          shared_(shared),
          rows_(measure_rows(store, kernels, shared == nullptr)),
          signs_(store.n_rows, 0),
          args_{} {
        LaneTables &t = tables_;
        for (AlignedFloats *table : {&t.W, &t.P, &t.Z, &t.G}) *table = aligned_floats(store.n_used * LANES);
        for (AlignedFloats *table : {&t.S, &t.SZ, &t.SP}) *table = aligned_floats(store.n_rows * LANES);
        const int64_t near_rows = (store.n_rows + LANES) / LANES * LANES;
        for (AlignedFloats &near : near_) near = untouched_array<float>(NEAR_ARRAYS * near_rows);
        args_.sample_stride = std::max<int64_t>(1, store.n_rows / SAMPLE_OF_ROWS);
    }

    // next(Candidate &): false when no label is left. done(Candidate &&): a label whose weights have yet to be checked.
    template <class Next, class Done>
    void run(const std::atomic<bool> &stop, Next next, Done done) {
        bool more = true;
        while (!stop) {
            if (more && n_free() >= REFILL_LANES) more = refill(next);
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
        Candidate candidate;
        SubspaceProducts products;
        float theta[MAX_DIRECTIONS] = {};
        float bias = 0;
        double loss = 0, bias_sum = 0, curvature = 0;
        double gg = NEVER, gg_before = NEVER;  // ‖g_w‖² of the last two iterates
        int iteration = 0;
        // Share of the last step to take back, see above.
        double step_back() const { return gg / (gg + gg_before); }
    };
    const RowStore &store_;
    const VectorKernels &kernels_;
    const SharedDirections *shared_;
    const RowMeans rows_;
    std::vector<uint16_t> signs_;
    LaneTables tables_;
    Lane lanes_[LANES];
    AlignedFloats near_[LANES];  // memory is used only as far as it is written
    BatchArgs args_;

    bool shares() const { return shared_ != nullptr; }

    int n_free() const {
        return static_cast<int>(std::count_if(lanes_, lanes_ + LANES, [](const Lane &lane) { return !lane.busy; }));
    }

    // Takes labels for all free lanes; false when there are no more.
    template <class Next>
    bool refill(Next &next) {
        std::vector<int> fresh;
        bool more = true;
        uint32_t keep = (1u << LANES) - 1;
        alignas(LINE_BYTES) float bias[LANES] = {}, none[LANES] = {};
        for (int lane = 0; lane < LANES && more; ++lane) {
            if (lanes_[lane].busy) continue;
            more = next(lanes_[lane].candidate);
            if (more) fresh.push_back(lane);
        }
        if (fresh.empty()) return more;
        for (int lane : fresh) {
            start(lane);
            keep &= ~(1u << lane);
            bias[lane] = lanes_[lane].bias;
        }
        const float *mean_row = shares() ? nullptr : rows_.mean.data();
        // Setting each table block by block, right before a pass reads it, saves only 0.3 % of a fit of debian-tags.
        kernels_.set_lanes(store_.n_used, keep, nullptr, none, tables_.W.get());
        kernels_.set_lanes(store_.n_used, keep, mean_row, none, tables_.P.get());
        kernels_.set_lanes(store_.n_used, keep, nullptr, none, tables_.Z.get());
        kernels_.set_lanes(store_.n_rows, keep, nullptr, bias, tables_.S.get());
        kernels_.set_lanes(store_.n_rows, keep, shares() ? nullptr : rows_.scores.data(), none, tables_.SP.get());
        for (int lane : fresh) set_first_direction(lane);
        FeatureArgs args{};
        args.n_cols = store_.n_used;
        args.shared = shares() ? shared_->columns.data() : mean_row;
        tables_.connect(args);
        kernels_.first_products[shares()](args);
        for (int lane : fresh) {
            SubspaceProducts &products = lanes_[lane].products;
            products.zz = args.zz[lane];
            for (int j = 0; shares() && j < N_SHARED; ++j) products.vz[j] = args.vz[j][lane];
            if (!shares()) products.zp = args.vz[0][lane];
        }
        return more;
    }

    void start(int lane) {
        Lane &state = lanes_[lane];
        const LabelProblem &label = state.candidate.label;
        state.busy = true;
        state.iteration = 0;
        state.candidate.n_iter = 0;
        const double share = static_cast<double>(label.positives.size()) / static_cast<double>(store_.n_rows);
        const double bias = state.candidate.carried ? state.candidate.weights.bias : 2 * share - 1;
        state.bias = label.has_bias ? static_cast<float>(bias) : 0.0f;
        for (uint32_t i : label.positives) signs_[i] = static_cast<uint16_t>(signs_[i] | (1u << lane));
        args_.positive_factor[lane] = static_cast<float>(label.positive_factor);
        args_.negative_factor[lane] = static_cast<float>(label.negative_factor);
        args_.reach[lane] = WIDE_REACH;
        args_.reach_z[lane] = args_.reach_p[lane] = 0;
    }

    // z = mean positive, or the given start; p = mean row is already set.
    void set_first_direction(int lane) {
        Lane &state = lanes_[lane];
        const auto &positives = state.candidate.label.positives;
        const LabelWeights &given = state.candidate.weights;
        const float share = positives.empty() ? 0.0f : 1.0f / static_cast<float>(positives.size());
        for (size_t k = 0; k < given.cols.size(); ++k)
            tables_.Z[static_cast<size_t>(given.cols[k]) * LANES + lane] = given.vals[k];
        for (uint32_t i : positives) {
            for (int64_t k = store_.start[i]; k < store_.start[i + 1] && !state.candidate.carried; ++k) {
                tables_.Z[static_cast<size_t>(store_.entries[k].col) * LANES + lane] += share * store_.entries[k].val;
            }
        }
        state.products = SubspaceProducts{};
        state.products.pp = rows_.squared_norm;
        state.products.bias_penalty = state.candidate.label.bias_penalty;
    }

    void dots() {
        args_.entries = store_.entries.get();
        args_.start = store_.start.data();
        args_.cost = store_.cost.data();
        args_.signs = signs_.data();
        if (shares()) args_.shared = shared_->scores.data();
        tables_.connect(args_);
        args_.searched = args_.sampled = 0;
        for (int lane = 0; lane < LANES; ++lane) {
            const bool sampled = lanes_[lane].iteration < SAMPLED_SEARCHES && !lanes_[lane].candidate.carried;
            args_.searched |= static_cast<uint32_t>(lanes_[lane].busy) << lane;
            args_.sampled |= static_cast<uint32_t>(sampled) << lane;
            args_.bias[lane] = lanes_[lane].bias;
            args_.near[lane] = {near_[lane].get(), 0};
            if (!lanes_[lane].busy) args_.positive_factor[lane] = args_.negative_factor[lane] = 0;
            args_.search_factor[lane] =
                args_.negative_factor[lane] * (sampled ? static_cast<float>(args_.sample_stride) : 1.0f);
        }
        for_blocks_of_rows(store_,
                           [&](int64_t begin, int64_t end) { kernels_.batch_dots[shares()](args_, begin, end); });
    }

    template <int N>
    SubspaceSearch<N> begin_search(int lane) {
        Lane &state = lanes_[lane];
        bool use[N];
        std::fill_n(use, N, state.busy);
        use[2] = state.busy && state.iteration >= SOLO_ITERATIONS;
        use[3] = state.busy && state.candidate.label.has_bias;
        state.products.bias = state.bias;
        SubspaceSearch<N> search;
        search.begin(state.products, use);
        return search;
    }

    // Sets: theta of every lane.
    void search() {
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            std::fill_n(state.theta, MAX_DIRECTIONS, 0.0f);
            if (!state.busy) continue;
            if (state.candidate.carried && state.iteration == 0) {
                state.theta[0] = 1;  // all of the start; the next search finds its length, as that of the last step
                continue;
            }
            NearRows &near = args_.near[lane];
            for (int64_t k = near.count; k < near.view(shares()).n; ++k) {
                for (int array = 0; array < NEAR_ARRAYS; ++array) near.blocks[NearRows::at(k) + array * LANES] = 0;
            }
            shares() ? search_near<MAX_DIRECTIONS>(lane) : search_near<N_DIRECTIONS>(lane);
        }
    }

    template <int N>
    void search_near(int lane) {
        Lane &state = lanes_[lane];
        SearchRows rows = args_.near[lane].view(shares());
        SubspaceSearch<N> search = begin_search<N>(lane);
        double sums[n_search_sums(N)];
        do {
            rows.with_hessian = search.wants_hessian();
            kernels_.search_sums(rows, state.bias, search.theta(), sums);
        } while (!search.absorb(sums));
        std::copy_n(search.theta(), N, state.theta);
    }

    void gradient() {
        for (int lane = 0; lane < LANES; ++lane) {
            for (int j = 0; j < MAX_DIRECTIONS; ++j) args_.theta[j][lane] = lanes_[lane].theta[j];
            args_.loss[lane] = args_.bias_sum[lane] = args_.curvature[lane] = args_.largest_move[lane] = 0;
        }
        for_blocks_of_rows(store_,
                           [&](int64_t begin, int64_t end) { kernels_.batch_gradient[shares()](args_, begin, end); });
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            state.loss = args_.loss[lane];
            state.bias_sum = args_.bias_sum[lane];
            state.curvature = args_.curvature[lane];
            state.bias += state.theta[3];
            const bool first = state.iteration == 0;
            args_.reach[lane] = (first ? SECOND_REACH : LATER_REACH) * args_.largest_move[lane];
            args_.reach_z[lane] = first ? 0.0f : std::abs(state.theta[0]);
            args_.reach_p[lane] = first ? 0.0f : std::abs(state.theta[1]);
        }
    }

    void features() {
        FeatureArgs args{};
        args.n_cols = store_.n_used;
        args.spread = rows_.spread.data();
        if (shares()) args.shared = shared_->columns.data();
        tables_.connect(args);
        std::copy(&args_.theta[0][0], &args_.theta[0][0] + MAX_DIRECTIONS * LANES, &args.theta[0][0]);
        for (int lane = 0; lane < LANES; ++lane) {
            const double share = rows_.total_cost > 0 ? lanes_[lane].curvature / rows_.total_cost : 0.0;
            args.scaling[lane] = static_cast<float>(DIAGONAL_SHARE * share);
        }
        kernels_.batch_features[shares()](args);
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            SubspaceProducts products{args.zz[lane], args.zp[lane], args.zw[lane], args.pp[lane],
                                      args.pw[lane], args.ww[lane], 0.0,           state.products.bias_penalty};
            for (int j = 0; j < N_SHARED; ++j) {  // p and w moved in the span of directions with known products
                const SubspaceProducts &old = state.products;
                products.vz[j] = args.vz[j][lane];
                products.vp[j] = state.theta[0] * old.vz[j] + state.theta[1] * old.vp[j] + state.theta[2] * old.vw[j] +
                                 state.theta[N_DIRECTIONS + j];
                products.vw[j] = old.vw[j] + products.vp[j];
            }
            state.products = products;
            state.gg_before = state.gg;
            state.gg = args.gg[lane];
            ++state.iteration;
        }
    }

    bool finished(int lane) const {
        const Lane &state = lanes_[lane];
        const LabelProblem &label = state.candidate.label;
        const double bias = state.bias,
                     bias_gradient = label.has_bias ? label.bias_penalty * bias - state.bias_sum : 0.0;
        const double value = state.loss + 0.5 * state.products.ww + 0.5 * label.bias_penalty * bias * bias;
        const double gg = state.gg * (1 - state.step_back());
        const double norm = std::sqrt(gg + bias_gradient * bias_gradient);
        const bool reached =
            norm <= BATCH_RULE_SHARE * label.rule && 0.5 * gg <= BATCH_GAP_SHARE * label.gap_tol * value;
        return reached || state.iteration >= BATCH_MAX_ITER;
    }

    Candidate take_out(int lane) {
        Lane &state = lanes_[lane];
        Candidate out = std::move(state.candidate);
        const float back = static_cast<float>(state.step_back());
        out.weights = lane_weights(store_, tables_, lane, back, state.gg);
        out.weights.bias = state.bias - back * state.theta[3];
        out.n_iter = state.iteration;
        out.solved = true;
        out.stuck = state.iteration >= BATCH_MAX_ITER;
        for (uint32_t i : out.label.positives) signs_[i] = static_cast<uint16_t>(signs_[i] & ~(1u << lane));
        state = Lane{};
        return out;
    }
};

}  // namespace widemargin
