// The batched pass over all rows: scores of up to 16 labels at once, of which only the rows above each label's
// threshold are kept, so that no (rows × labels) array exists.
//
// Weights stand in a (features × 16) float32 table, of which only the non-zero entries of a label are written and
// later cleared. Memory: 64 bytes a feature, and 8 bytes for every row kept. Twin: reference/fast_one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "label_problem.hpp"
#include "lanes.hpp"

namespace widemargin {

constexpr int64_t SCAN_ROWS = 4096;     // rows between two looks at the room left for emitted rows
constexpr int64_t KEPT_ROWS = 1 << 15;  // room that a lane keeps from one pass to the next

class BatchPass {
  public:
    // slack: (n_rows,) added to every score before it is compared.
    BatchPass(const RowStore &store, const VectorKernels &kernels, const float *slack)
        : store_(store), kernels_(kernels), slack_(slack), table_(aligned_floats(store.n_cols * LANES)) {
        for (int lane = 0; lane < LANES; ++lane) clear(lane);
    }

    // Puts weights into a lane; rows with score + slack > threshold will be emitted.
    void set(int lane, const std::vector<uint32_t> &cols, const float *vals, float bias, float threshold) {
        clear(lane);
        written_[lane] = cols;
        for (size_t k = 0; k < cols.size(); ++k) table_[static_cast<size_t>(cols[k]) * LANES + lane] = vals[k];
        bias_[lane] = bias;
        threshold_[lane] = threshold;
    }

    void clear(int lane) {
        // One label near whose margin most rows lie would else cost every lane the memory of all rows for ever.
        if (static_cast<int64_t>(emitted_[lane].size()) > KEPT_ROWS) std::vector<EmittedRow>().swap(emitted_[lane]);
        for (uint32_t col : written_[lane]) table_[static_cast<size_t>(col) * LANES + lane] = 0;
        written_[lane].clear();
        bias_[lane] = 0;
        threshold_[lane] = std::numeric_limits<float>::infinity();
    }

    void run() {
        int64_t count[LANES] = {};
        ScanArgs args{store_.entries.get(), store_.start.data(), slack_, table_.get(), {}, {}, {}};
        std::copy(bias_, bias_ + LANES, args.bias);
        std::copy(threshold_, threshold_ + LANES, args.threshold);
        for (int64_t begin = 0; begin < store_.n_rows; begin += SCAN_ROWS) {
            const int64_t end = std::min(store_.n_rows, begin + SCAN_ROWS);
            for (int lane = 0; lane < LANES; ++lane) {
                make_room(lane, count[lane] + SCAN_ROWS);
                args.out[lane] = emitted_[lane].data() + count[lane];
            }
            kernels_.scan(args, begin, end);
            for (int lane = 0; lane < LANES; ++lane) count[lane] = args.out[lane] - emitted_[lane].data();
        }
        std::copy(count, count + LANES, n_emitted_);
    }

    const EmittedRow *emitted(int lane) const { return emitted_[lane].data(); }
    int64_t n_emitted(int lane) const { return n_emitted_[lane]; }

  private:
    const RowStore &store_;
    const VectorKernels &kernels_;
    const float *slack_;
    AlignedFloats table_;
    std::vector<uint32_t> written_[LANES];
    std::vector<EmittedRow> emitted_[LANES];
    int64_t n_emitted_[LANES] = {};
    float bias_[LANES], threshold_[LANES];

    void make_room(int lane, int64_t size) {
        if (threshold_[lane] == std::numeric_limits<float>::infinity()) size = 1;
        if (static_cast<int64_t>(emitted_[lane].size()) >= size) return;
        emitted_[lane].resize(std::max(size, std::min(size + size / 2, store_.n_rows)));
    }
};

}  // namespace widemargin
