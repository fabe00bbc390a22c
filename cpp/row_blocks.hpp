// Threads over blocks of rows: each worker owns its work arrays and writes disjoint rows, so results do not depend on
// the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "parallel_for.hpp"

namespace widemargin {

// Calls worker(first, last) for every block of rows; make_worker() is called once in each thread. An exception of any
// thread stops the others and is thrown again here.
template <typename MakeWorker>
void for_each_row_block(int64_t n_rows, int64_t rows_per_block, int64_t n_threads, MakeWorker make_worker) {
    std::atomic<int64_t> next{0};
    const int64_t n_blocks = (n_rows + rows_per_block - 1) / rows_per_block;
    run_in_threads(std::min(n_threads, n_blocks), [&](int) {
        try {
            auto worker = make_worker();
            for (int64_t first = next.fetch_add(rows_per_block); first < n_rows;
                 first = next.fetch_add(rows_per_block)) {
                worker(first, std::min(first + rows_per_block, n_rows));
            }
        } catch (...) {
            next = n_rows;
            throw;
        }
    });
}

// Rows in a block such that their work arrays fit in `work_bytes`, and that every thread gets some.
inline int64_t choose_rows_per_block(int64_t n_rows, int64_t most, int64_t n_threads, int64_t work_bytes,
                                     int64_t bytes_per_row) {
    const int64_t fitting = work_bytes / (n_threads * bytes_per_row);
    const int64_t fair = (n_rows + n_threads - 1) / n_threads;
    return std::max<int64_t>(1, std::min({most, fitting, fair}));
}

}  // namespace widemargin
