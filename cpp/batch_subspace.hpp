// Subspace search over all rows for up to 16 frequent labels at once, one label a lane.
//
// Each iteration minimises every lane's objective over span{−g, last step, w, bias} (subspace_search.hpp): one pass of
// row dots, a small search on the rows near the lane's margin, one pass of gradient sums, one sweep over the features.
// The first search is over span{mean positive, mean row, bias}; X · mean row is the same for all labels. A start from
// outside takes the place of the mean positive, so its length is found by that search. The cost does not depend on how
// frequent a label is. Memory: 256 bytes a column, 194 bytes a row, and 16 bytes for every near row of a lane, which
// are all rows at first: 450 bytes a row. A lane's numbers do not depend on the labels in the other lanes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "label_problem.hpp"
#include "lanes.hpp"
#include "subspace_search.hpp"

namespace widemargin {

constexpr double BATCH_RULE_SHARE = 0.5;  // of the stop rule
constexpr double BATCH_GAP_SHARE = 0.9;   // of gap_tol, for ½‖g‖² / f; the rest is for the bias step
constexpr int BATCH_MAX_ITER = 150;       // ordinary labels take 10 to 40; the others are better served by Newton
constexpr int64_t BATCH_ROWS = 512;       // rows between two flushes of float32 sums
constexpr int REFILL_LANES = 2;           // free lanes before new labels are taken in
constexpr float REACH_MOVES = 0.3f;       // rows within this many of the last largest moves take part in a search
constexpr float WIDE_REACH = 1e30f;

class BatchSubspace {
  public:
    BatchSubspace(const RowStore &store, const VectorKernels &kernels)
        : store_(store),
          kernels_(kernels),
          mean_row_(store.n_cols, 0.0f),
          mean_scores_(store.n_rows, 0.0f),
          signs_(store.n_rows, 0),
          args_{} {
        for (AlignedFloats *table : {&W_, &P_, &Z_, &G_}) *table = aligned_floats(store.n_used * LANES);
        for (AlignedFloats *table : {&S_, &SZ_, &SP_}) *table = aligned_floats(store.n_rows * LANES);
        find_mean_row();
    }

    // next(Candidate &): false when no label is left. done(Candidate &&): a label whose weights wait for their check.
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
        float theta[N_DIRECTIONS] = {};
        float bias = 0;
        double loss = 0, bias_sum = 0;
        int iteration = 0;
    };
    // The near rows of one lane.
    struct NearBuffer {
        AlignedFloats data;
        int64_t capacity = 0;
    };
    const RowStore &store_;
    const VectorKernels &kernels_;
    std::vector<float> mean_row_, mean_scores_;
    std::vector<uint16_t> signs_;
    AlignedFloats W_, P_, Z_, G_, S_, SZ_, SP_;
    Lane lanes_[LANES];
    NearBuffer near_[LANES];
    BatchArgs args_;

    int n_free() const {
        return static_cast<int>(std::count_if(lanes_, lanes_ + LANES, [](const Lane &lane) { return !lane.busy; }));
    }

    void find_mean_row() {
        std::vector<double> sum(store_.n_cols, 0.0);
        double total = 0;
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            total += store_.weight[i];
            for (int64_t k = store_.start[i]; k < store_.start[i + 1]; ++k) {
                sum[store_.entries[k].col] += store_.weight[i] * store_.entries[k].val;
            }
        }
        for (int64_t k = 0; k < store_.n_cols; ++k)
            mean_row_[k] = total > 0 ? static_cast<float>(sum[k] / total) : 0.0f;
        kernels_.row_dots(store_.n_rows, store_.start.data(), store_.entries.get(), mean_row_.data(),
                          mean_scores_.data());
    }

    // Takes in labels for all free lanes; false when there are no more.
    template <class Next>
    bool refill(Next &next) {
        std::vector<int> fresh;
        bool more = true;
        for (int lane = 0; lane < LANES && more; ++lane) {
            if (lanes_[lane].busy) continue;
            more = next(lanes_[lane].candidate);
            if (more) fresh.push_back(lane);
        }
        for (int lane : fresh) start(lane);
        for (int64_t k = 0; k < store_.n_used; ++k) {
            for (int lane : fresh) {
                W_[k * LANES + lane] = Z_[k * LANES + lane] = 0;
                P_[k * LANES + lane] = mean_row_[k];
            }
        }
        for (int64_t i = 0; i < store_.n_rows; ++i) {
            for (int lane : fresh) {
                S_[i * LANES + lane] = lanes_[lane].bias;
                SP_[i * LANES + lane] = mean_scores_[i];
            }
        }
        for (int lane : fresh) set_first_direction(lane);
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
    }

    // z = mean positive, or the start from outside; p = mean row stands already.
    void set_first_direction(int lane) {
        Lane &state = lanes_[lane];
        const auto &positives = state.candidate.label.positives;
        const SparseWeights &given = state.candidate.weights;
        const float share = positives.empty() ? 0.0f : 1.0f / static_cast<float>(positives.size());
        for (size_t k = 0; k < given.cols.size(); ++k)
            Z_[static_cast<size_t>(given.cols[k]) * LANES + lane] = given.vals[k];
        for (uint32_t i : positives) {
            for (int64_t k = store_.start[i]; k < store_.start[i + 1] && !state.candidate.carried; ++k) {
                Z_[static_cast<size_t>(store_.entries[k].col) * LANES + lane] += share * store_.entries[k].val;
            }
        }
        state.products = SubspaceProducts{};
        for (int64_t k = 0; k < store_.n_used; ++k) {
            const double z = Z_[k * LANES + lane], p = mean_row_[k];
            state.products.zz += z * z;
            state.products.zp += z * p;
            state.products.pp += p * p;
        }
        state.products.bias_penalty = state.candidate.label.bias_penalty;
    }

    void dots() {
        args_.entries = store_.entries.get();
        args_.start = store_.start.data();
        args_.cost = store_.cost.data();
        args_.signs = signs_.data();
        args_.Z = Z_.get();
        args_.G = G_.get();
        args_.S = S_.get();
        args_.SZ = SZ_.get();
        args_.SP = SP_.get();
        args_.lanes = 0;
        for (int lane = 0; lane < LANES; ++lane) {
            args_.lanes |= static_cast<uint32_t>(lanes_[lane].busy) << lane;
            args_.bias[lane] = lanes_[lane].bias;
            args_.near[lane].count = 0;
            if (!lanes_[lane].busy) args_.positive_factor[lane] = args_.negative_factor[lane] = args_.reach[lane] = 0;
        }
        for (int64_t begin = 0; begin < store_.n_rows; begin += BATCH_ROWS) {
            for (int lane = 0; lane < LANES; ++lane) make_room(lane);
            kernels_.batch_dots(args_, begin, std::min(store_.n_rows, begin + BATCH_ROWS));
        }
    }

    // Room for one more block of near rows and the padding.
    void make_room(int lane) {
        NearRows &near = args_.near[lane];
        NearBuffer &buffer = near_[lane];
        const int64_t wanted = near.count + BATCH_ROWS + LANES;
        if (lanes_[lane].busy && wanted > buffer.capacity) {
            const int64_t roomy = std::max(wanted, std::min(wanted + wanted / 2, store_.n_rows + LANES));
            const int64_t capacity = (roomy + LANES) / LANES * LANES;
            AlignedFloats data = aligned_floats(NEAR_STRIDE / LANES * capacity);
            if (near.count > 0) std::copy_n(near.blocks, NearRows::at(near.count) + 3 * LANES, data.get());
            buffer.data = std::move(data);
            buffer.capacity = capacity;
        }
        near.blocks = buffer.data.get();
    }

    // Sets: theta of every lane.
    void search() {
        for (int lane = 0; lane < LANES; ++lane) {
            Lane &state = lanes_[lane];
            std::fill_n(state.theta, N_DIRECTIONS, 0.0f);
            if (!state.busy) continue;
            NearRows &near = args_.near[lane];
            const SearchRows rows = near.view();
            for (int64_t k = near.count; k < rows.n; ++k) {
                for (int array = 0; array < 4; ++array) near.blocks[NearRows::at(k) + array * LANES] = 0;
            }
            const bool use[N_DIRECTIONS] = {true, true, state.iteration >= SOLO_ITERATIONS,
                                            state.candidate.label.has_bias};
            state.products.bias = state.bias;
            SubspaceSearch search;
            search.begin(state.products, use);
            double sums[N_SEARCH_SUMS];
            do {
                kernels_.search_sums(rows, state.bias, search.theta(), sums);
            } while (!search.absorb(sums));
            std::copy_n(search.theta(), N_DIRECTIONS, state.theta);
        }
    }

    void gradient() {
        for (int lane = 0; lane < LANES; ++lane) {
            for (int j = 0; j < N_DIRECTIONS; ++j) args_.theta[j][lane] = lanes_[lane].theta[j];
            args_.loss[lane] = args_.bias_sum[lane] = args_.largest_move[lane] = 0;
        }
        for (int64_t begin = 0; begin < store_.n_rows; begin += BATCH_ROWS) {
            kernels_.batch_gradient(args_, begin, std::min(store_.n_rows, begin + BATCH_ROWS));
        }
        for (int lane = 0; lane < LANES; ++lane) {
            lanes_[lane].loss = args_.loss[lane];
            lanes_[lane].bias_sum = args_.bias_sum[lane];
            lanes_[lane].bias += lanes_[lane].theta[3];
            args_.reach[lane] = REACH_MOVES * args_.largest_move[lane];
        }
    }

    void features() {
        FeatureArgs args{};
        args.n_cols = store_.n_used;
        args.W = W_.get();
        args.P = P_.get();
        args.Z = Z_.get();
        args.G = G_.get();
        std::copy(&args_.theta[0][0], &args_.theta[0][0] + N_DIRECTIONS * LANES, &args.theta[0][0]);
        kernels_.batch_features(args);
        for (int lane = 0; lane < LANES; ++lane) {
            SubspaceProducts &products = lanes_[lane].products;
            products = {args.zz[lane], args.zp[lane], args.zw[lane], args.pp[lane],
                        args.pw[lane], args.ww[lane], 0.0,           products.bias_penalty};
            ++lanes_[lane].iteration;
        }
    }

    bool finished(int lane) const {
        const Lane &state = lanes_[lane];
        const LabelProblem &label = state.candidate.label;
        const double bias = state.bias,
                     bias_gradient = label.has_bias ? label.bias_penalty * bias - state.bias_sum : 0.0;
        const double value = state.loss + 0.5 * state.products.ww + 0.5 * label.bias_penalty * bias * bias;
        const double norm = std::sqrt(state.products.zz + bias_gradient * bias_gradient);
        const bool reached =
            norm <= BATCH_RULE_SHARE * label.rule && 0.5 * state.products.zz <= BATCH_GAP_SHARE * label.gap_tol * value;
        return reached || state.iteration >= BATCH_MAX_ITER;
    }

    Candidate take_out(int lane) {
        Lane &state = lanes_[lane];
        Candidate out = std::move(state.candidate);
        out.weights = SparseWeights{};
        for (int64_t k = 0; k < store_.n_used; ++k) {
            const float w = W_[k * LANES + lane];
            if (w == 0) continue;
            out.weights.cols.push_back(static_cast<uint32_t>(k));
            out.weights.vals.push_back(w);
        }
        out.weights.bias = state.bias;
        out.n_iter = state.iteration;
        out.solved = true;
        out.stuck = state.iteration >= BATCH_MAX_ITER;
        for (uint32_t i : out.label.positives) signs_[i] = static_cast<uint16_t>(signs_[i] & ~(1u << lane));
        state = Lane{};
        return out;
    }
};

}  // namespace widemargin
