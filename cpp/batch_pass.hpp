// The batched pass over all rows: scores of up to 16 labels at once, of which only the rows above each label's
// threshold are kept, so that no (rows × labels) array exists.
//
// Weights stand in a (features × 16) float32 table, of which only the non-zero entries of a label are written and
// later cleared. The entries of rows that are kept are copied, up to COPY_LIMIT a label: what is done next with them,
// renumbering and scoring in float64, otherwise spends most of its time waiting for rows far apart (a fifth of the
// solver's time on yso-finna-en). Memory: 64 bytes a feature, 16 bytes for every row kept, and at most 8 COPY_LIMIT
// bytes a label. Twin: reference/fast_one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "label_problem.hpp"
#include "lanes.hpp"

namespace widemargin {

constexpr int64_t SCAN_ROWS = 512;        // rows between two looks at the room left for emitted rows
constexpr size_t COLUMNS_AHEAD = 16;      // how far ahead lines of the table are asked for
constexpr int64_t COPY_LIMIT = 48 << 10;  // entries; twice what a label of yso-finna-en has, and 6 MB for all lanes
constexpr size_t KEPT_ROWS = 8 << 10;     // room that a lane keeps from one pass to the next

class BatchPass {
  public:
    // slack: (n_rows,) added to every score before it is compared.
    BatchPass(const RowStore &store, const VectorKernels &kernels, const float *slack)
        : store_(store),
          kernels_(kernels),
          slack_(slack),
          table_(aligned_floats(store.n_cols * LANES)),
          copies_(new RowEntry[LANES * (COPY_LIMIT + COPY_STEP)]) {
        for (int lane = 0; lane < LANES; ++lane) clear(lane);
    }

    // Puts weights into a lane; rows with score + slack > threshold will be emitted. A lane that proves nothing about
    // the other rows does without slack.
    void set(int lane, const std::vector<uint32_t> &cols, const float *vals, float bias, float threshold,
             bool with_slack = true) {
        clear(lane);
        written_[lane] = cols;
        for (size_t k = 0; k < cols.size(); ++k) {
            ask_for(cols, k + COLUMNS_AHEAD);
            table_[static_cast<size_t>(cols[k]) * LANES + lane] = vals[k];
        }
        bias_[lane] = bias;
        threshold_[lane] = threshold;
        allowance_[lane] = with_slack ? 1.0f : 0.0f;
    }

    void clear(int lane) {
        // One label near whose margin most rows lie would else cost every lane the memory of all rows for ever.
        if (emitted_[lane].size() != KEPT_ROWS) std::vector<EmittedRow>(KEPT_ROWS).swap(emitted_[lane]);
        const std::vector<uint32_t> &cols = written_[lane];
        for (size_t k = 0; k < cols.size(); ++k) {
            ask_for(cols, k + COLUMNS_AHEAD);
            table_[static_cast<size_t>(cols[k]) * LANES + lane] = 0;
        }
        written_[lane].clear();
        bias_[lane] = 0;
        threshold_[lane] = std::numeric_limits<float>::infinity();
    }

    void run() {
        ScanArgs args{store_.entries.get(), store_.start.data(), slack_, table_.get(), {}, {}, {}, {}, {}, {}, {}};
        std::copy(bias_, bias_ + LANES, args.bias);
        std::copy(threshold_, threshold_ + LANES, args.threshold);
        std::copy(allowance_, allowance_ + LANES, args.allowance);
        std::fill_n(n_emitted_, LANES, 0);
        for (int64_t begin = 0; begin < store_.n_rows; begin += SCAN_ROWS) {
            const int64_t end = std::min(store_.n_rows, begin + SCAN_ROWS);
            for (int lane = 0; lane < LANES; ++lane) make_room(lane, end - begin, args);
            kernels_.scan(args, begin, end);
            for (int lane = 0; lane < LANES; ++lane) n_emitted_[lane] = args.out[lane] - emitted_[lane].data();
        }
        for (int lane = 0; lane < LANES; ++lane) {
            emitted_[lane].resize(std::max<size_t>(emitted_[lane].size(), n_emitted_[lane] + 1));
            emitted_[lane][n_emitted_[lane]].begin = args.copied[lane];
        }
    }

    Emission emitted(int lane) const {
        return {emitted_[lane].data(), n_emitted_[lane], copies_.get() + lane * (COPY_LIMIT + COPY_STEP)};
    }

  private:
    const RowStore &store_;
    const VectorKernels &kernels_;
    const float *slack_;
    AlignedFloats table_;
    std::vector<uint32_t> written_[LANES];
    std::vector<EmittedRow> emitted_[LANES];
    std::unique_ptr<RowEntry[]> copies_;  // LANES times room for COPY_LIMIT + COPY_STEP; pages not used cost nothing
    int64_t n_emitted_[LANES] = {};
    float bias_[LANES], threshold_[LANES], allowance_[LANES] = {};

    void ask_for(const std::vector<uint32_t> &cols, size_t k) const {
        if (k < cols.size()) __builtin_prefetch(table_.get() + static_cast<size_t>(cols[k]) * LANES, 1);
    }

    // Room for all of the next rows; of their entries there are copies up to COPY_LIMIT.
    void make_room(int lane, int64_t n_rows, ScanArgs &args) {
        if (threshold_[lane] == std::numeric_limits<float>::infinity()) n_rows = 0;
        std::vector<EmittedRow> &rows = emitted_[lane];
        const size_t wanted = n_emitted_[lane] + n_rows;
        const size_t most = static_cast<size_t>(store_.n_rows) + 1;
        if (rows.size() < wanted) rows.resize(std::max(wanted, std::min(wanted + wanted / 2, most)));
        args.out[lane] = rows.data() + n_emitted_[lane];
        args.copies[lane] = copies_.get() + lane * (COPY_LIMIT + COPY_STEP);
        args.room[lane] = COPY_LIMIT;
    }
};

}  // namespace widemargin
