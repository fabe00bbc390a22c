// The data matrix as the fast one-vs-all solver reads it: rows sorted by length, features renumbered by descending
// frequency, entries stored as (column, value) in 8 bytes.
//
// Rows of equal length make the trip counts of all row kernels predictable. Adjacent frequent features keep the
// most-used lines of a (features × lanes) table in the cache. Built once per fit; 8 bytes per entry, and 8 more if
// float32 cannot hold the values. Twin: tests/reference/fast_one_vs_all.py.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "one_vs_all/matrix.hpp"
#include "simd/arrays.hpp"
#include "simd/threads.hpp"

namespace widemargin {

struct RowEntry {
    uint32_t col;
    float val;
};

constexpr int64_t PREFETCH_ENTRIES = 48;  // how far ahead certificates prefetch; 24 to 200 differ only by noise

constexpr double NORM_SLACK = 1 + 1e-6;  // covers the rounding of the norms themselves
constexpr double LARGEST_NORM = 1e30;    // of a row; beyond, float32 may not hold its values, and a pass proves nothing

constexpr int64_t LINE_ENTRIES = 8;   // entries per cache line
constexpr int64_t ROWS_AHEAD = 20;    // how far ahead rows are prefetched
constexpr int64_t BUILD_ROWS = 2048;  // rows per task when the store is built

// A row and where its entries are: in the store, or in a copy. The rows of a working set may be far apart; prefetching
// them where they are copied and scored gains nothing, on yso-finna-en and in the shape of Amazon-670K.
struct RowView {
    uint32_t row, length;
    const RowEntry *entries;
};

struct RowStore {
    int64_t n_rows = 0, n_cols = 0;
    int64_t n_used = 0;              // columns with entries; they come first
    std::vector<int64_t> start;      // (n_rows + 1,)
    AlignedArray<RowEntry> entries;  // (nnz + PREFETCH_ENTRIES + 1,); the tail is padding for prefetches
    std::vector<double> exact;       // (nnz,) the values if float32 rounds some of them, else empty
    std::vector<uint32_t> row_id;    // position -> row of X
    std::vector<uint32_t> position;  // row of X -> position
    std::vector<uint32_t> col_id;    // renumbered column -> column of X
    std::vector<double> weight;      // (n_rows,) C · sample_weight
    std::vector<float> cost;         // (n_rows,) the same in float32
    std::vector<float> l1_norm;      // (n_rows,) Σ_k |x_ik|, rounded up
    double max_norm = 0;             // largest ‖x_i‖
    double max_value = 0;            // largest |x_ik|
    bool uniform = true;             // all weights are the same: no need to look them up
    bool nonnegative = true;         // no value is below zero
    int64_t nnz() const { return start[n_rows]; }
    int64_t length(int64_t i) const { return start[i + 1] - start[i]; }
    RowView view(uint32_t i) const { return {i, static_cast<uint32_t>(length(i)), entries.get() + start[i]}; }
    double weight_of(int64_t i) const { return weight[uniform ? 0 : i]; }
    float cost_of(int64_t i) const { return cost[uniform ? 0 : i]; }
    // Bound on ‖x‖ ‖w‖ + |b| + 1 for all rows.
    double score_size(double weight_norm, double bias) const { return max_norm * weight_norm + std::abs(bias) + 1; }
    double value(int64_t k) const { return exact.empty() ? static_cast<double>(entries[k].val) : exact[k]; }
};

// Sorts `order` by ascending key, stably: a counting sort, because keys are counts.
inline void sort_by(const std::vector<int64_t> &key, std::vector<uint32_t> &order) {
    const int64_t largest = key.empty() ? 0 : *std::max_element(key.begin(), key.end());
    std::vector<int64_t> place(largest + 2, 0);
    for (int64_t k : key) ++place[k + 1];
    std::partial_sum(place.begin(), place.end(), place.begin());
    std::vector<uint32_t> sorted(order.size());
    for (uint32_t i : order) sorted[place[key[i]]++] = i;
    order.swap(sorted);
}

namespace row_store_detail {

constexpr int64_t LONG_ROW = 48;     // entries; such rows are sorted by digits
constexpr int64_t COUNTED_ROW = 96;  // entries; shorter rows are placed by counting (with 48, 5 % more on yso-finna-en)

// rank: (n_cols,) new numbers of the columns, by descending frequency.
template <typename T, typename I>
void number_columns(const CsrView<T, I> &X, RowStore &store, std::vector<uint32_t> &rank) {
    std::vector<int64_t> frequency(X.n_cols, 0);
    for (int64_t k = 0; k < int64_t{X.indptr[X.n_rows]}; ++k) ++frequency[X.indices[k]];
    const int64_t most = X.n_cols == 0 ? 0 : *std::max_element(frequency.begin(), frequency.end());
    std::vector<int64_t> rareness(X.n_cols);
    for (int64_t k = 0; k < X.n_cols; ++k) rareness[k] = most - frequency[k];
    store.col_id.resize(X.n_cols);
    std::iota(store.col_id.begin(), store.col_id.end(), 0u);
    sort_by(rareness, store.col_id);
    rank.resize(X.n_cols);
    for (int64_t k = 0; k < X.n_cols; ++k) {
        rank[store.col_id[k]] = static_cast<uint32_t>(k);
        store.n_used += frequency[k] > 0;
    }
}

// Rows of equal length are sorted by their rarest column: neighbours are similar, so lines of a table are reused while
// they are in the cache (a pass is 8 % faster on yso-finna-en).
template <typename T, typename I>
void number_rows(const CsrView<T, I> &X, const std::vector<uint32_t> &rank, RowStore &store) {
    std::vector<int64_t> length(X.n_rows), rarest(X.n_rows, 0);
    for (int64_t i = 0; i < X.n_rows; ++i) {
        length[i] = X.indptr[i + 1] - X.indptr[i];
        for (int64_t k = X.indptr[i]; k < int64_t{X.indptr[i + 1]}; ++k) {
            rarest[i] = std::max<int64_t>(rarest[i], rank[X.indices[k]]);
        }
    }
    store.row_id.resize(X.n_rows);
    std::iota(store.row_id.begin(), store.row_id.end(), 0u);
    sort_by(rarest, store.row_id);
    sort_by(length, store.row_id);
    store.position.resize(X.n_rows);
    for (int64_t i = 0; i < X.n_rows; ++i) store.position[store.row_id[i]] = static_cast<uint32_t>(i);
}

// Sorts keys by their upper 32 bits, which are below `limit`. Long rows are sorted by digits of 8 bits (on rows of 200
// entries this takes a quarter of the time of std::sort).
inline void sort_keys(std::vector<uint64_t> &keys, std::vector<uint64_t> &scratch, uint64_t limit) {
    if (static_cast<int64_t>(keys.size()) < LONG_ROW) return std::sort(keys.begin(), keys.end());
    scratch.resize(keys.size());
    for (int shift = 32; shift < 64 && (limit >> (shift - 32)) != 0; shift += 8) {
        uint32_t place[257] = {};
        for (uint64_t key : keys) ++place[(key >> shift & 255) + 1];
        std::partial_sum(place, place + 257, place);
        for (uint64_t key : keys) scratch[place[key >> shift & 255]++] = key;
        keys.swap(scratch);
    }
}

// Reads rows of X in renumbered columns, ascending; duplicate entries of a column are added up.
class RowReader {
  public:
    std::vector<std::pair<uint32_t, double>> row;

    template <typename T, typename I>
    void read(const CsrView<T, I> &X, int64_t source, const std::vector<uint32_t> &rank) {
        const int64_t begin = X.indptr[source], length = X.indptr[source + 1] - begin;
        const I *cols = X.indices + begin;
        sort(cols, length, rank);
        row.clear();
        for (uint64_t key : keys_) {
            const uint32_t col = static_cast<uint32_t>(key >> 32);
            const double value = X.data[begin + static_cast<int64_t>(key & 0xffffffffu)];
            if (!row.empty() && row.back().first == col) {
                row.back().second += value;
            } else {
                row.emplace_back(col, value);
            }
        }
    }

    // Writes a row of X none of whose columns is repeated; returns whether float32 rounds some value.
    template <typename T, typename I>
    bool place(const T *data, const I *cols, int64_t length, const std::vector<uint32_t> &rank, RowEntry *out) {
        sort(cols, length, rank);
        bool rounded = false;
        for (uint64_t key : keys_) {
            const T exact = data[key & 0xffffffffu];
            const float value = static_cast<float>(exact);
            rounded |= static_cast<T>(value) != exact;
            *out++ = {static_cast<uint32_t>(key >> 32), value};
        }
        return rounded;
    }

  private:
    std::vector<uint64_t> keys_, scratch_;  // column, place in the row

    template <typename I>
    void sort(const I *cols, int64_t length, const std::vector<uint32_t> &rank) {
        keys_.resize(length);
        for (int64_t k = 0; k < length; ++k) {
            keys_[k] = static_cast<uint64_t>(rank[cols[k]]) << 32 | static_cast<uint64_t>(k);
        }
        sort_keys(keys_, scratch_, rank.size());
    }
};

// Whether the columns of a row of X ascend, so that none is repeated.
template <typename I>
bool ascends(const I *cols, int64_t length) {
    bool ascending = true;
    for (int64_t k = 1; k < length; ++k) ascending &= cols[k - 1] < cols[k];
    return ascending;
}

// Writes a row with fewer than COUNTED_ROW entries, none of them repeated, in renumbered columns, ascending; returns
// whether float32 rounds some value. Each entry goes to the place given by the number of smaller columns, counted for
// eight entries at a time: without branches, which would be unpredictable. The store of yso-finna-en (10 entries per
// row) is built in half the time that std::sort takes. Counting the smaller columns of one entry after the other, with
// a sum across a vector for each, is faster than std::sort on rows of 33 entries, but not on rows of 10.
template <typename T, typename I>
bool place_short_row(const T *data, const I *cols, int64_t length, const std::vector<uint32_t> &rank, RowEntry *out) {
    typedef int32_t Four __attribute__((vector_size(16), may_alias));
    constexpr int64_t COUNTED = 8;
    alignas(16) int32_t numbers[COUNTED_ROW + COUNTED], places[COUNTED_ROW + COUNTED];
    for (int64_t k = 0; k < length; ++k) numbers[k] = static_cast<int32_t>(rank[cols[k]]);
    std::fill_n(numbers + length, COUNTED, 0);
    for (int64_t first = 0; first < length; first += COUNTED) {
        const Four *own = reinterpret_cast<const Four *>(numbers + first);
        const Four low = own[0], high = own[1];
        Four low_place{}, high_place{};
        for (int64_t j = 0; j < length; ++j) {
            const Four number = Four{} + numbers[j];
            low_place -= low > number;
            high_place -= high > number;
        }
        reinterpret_cast<Four *>(places + first)[0] = low_place;
        reinterpret_cast<Four *>(places + first)[1] = high_place;
    }
    bool rounded = false;
    for (int64_t k = 0; k < length; ++k) {
        const float value = static_cast<float>(data[k]);
        rounded |= static_cast<T>(value) != data[k];
        out[places[k]] = {static_cast<uint32_t>(numbers[k]), value};
    }
    return rounded;
}

struct LargestRows {
    double norm = 0, value = 0;  // as RowStore::max_norm and max_value
    bool nonnegative = true;

    void include(const LargestRows &other) {
        norm = std::max(norm, other.norm);
        value = std::max(value, other.value);
        nonnegative = nonnegative && other.nonnegative;
    }
};

// Measures row i: its norms, its largest value, and its signs.
inline void measure_row(int64_t i, RowStore &store, LargestRows &largest) {
    double sum = 0, squares = 0, least = 0;
    for (int64_t k = store.start[i]; k < store.start[i + 1]; ++k) {
        const double value = store.value(k), x = std::abs(value);
        sum += x;
        squares += x * x;
        largest.value = std::max(largest.value, x);
        least = std::min(least, value);
    }
    store.l1_norm[i] = static_cast<float>(sum * NORM_SLACK);
    largest.norm = std::max(largest.norm, std::sqrt(squares) * NORM_SLACK);
    largest.nonnegative = largest.nonnegative && least == 0;
}

// Calls body(first, last) for ranges of rows on several threads.
template <class F>
void for_row_ranges(int64_t n_rows, int n_threads, F body) {
    const int64_t n_ranges = (n_rows + BUILD_ROWS - 1) / BUILD_ROWS;
    parallel_for(n_ranges, n_threads,
                 [&](int, int64_t r) { body(r * BUILD_ROWS, std::min(n_rows, (r + 1) * BUILD_ROWS)); });
}

// Writes the rows in order, each where its entries would be if none were merged.  Sets: start, entries. Returns whether
// float32 rounds some value; `lengths` (n_rows,) gets the numbers of entries after merging.
template <typename T, typename I>
bool fill_entries(const CsrView<T, I> &X, const std::vector<uint32_t> &rank, int n_threads, RowStore &store,
                  std::vector<uint32_t> &lengths) {
    std::vector<int64_t> source(X.n_rows);  // where the entries are in X: looked up here, all loads at once
    store.start.resize(X.n_rows + 1);
    for (int64_t i = 0; i < X.n_rows; ++i) {
        source[i] = X.indptr[store.row_id[i]];
        store.start[i + 1] = store.start[i] + X.indptr[store.row_id[i] + 1] - source[i];
    }
    store.entries = untouched_array<RowEntry>(store.nnz() + PREFETCH_ENTRIES + 1);
    std::fill_n(store.entries.get() + store.nnz(), PREFETCH_ENTRIES + 1, RowEntry{});
    const bool numbers_fit = X.n_cols <= std::numeric_limits<int32_t>::max();
    std::atomic<bool> rounded{false};
    for_row_ranges(X.n_rows, n_threads, [&](int64_t first, int64_t last) {
        RowReader reader;
        bool any = false;
        for (int64_t i = first; i < last; ++i) {
            const int64_t later = std::min(last - 1, i + ROWS_AHEAD);
            for (int64_t k : {source[later], source[later] + store.length(later)}) {  // without the ends, 15 % slower
                __builtin_prefetch(X.indices + k);
                __builtin_prefetch(X.data + k);
            }
            const int64_t begin = source[i], length = store.length(i);
            RowEntry *entry = store.entries.get() + store.start[i];
            const T *data = X.data + begin;
            const I *cols = X.indices + begin;
            if (ascends(cols, length)) {
                any |= length < COUNTED_ROW && numbers_fit ? place_short_row(data, cols, length, rank, entry)
                                                           : reader.place(data, cols, length, rank, entry);
                lengths[i] = static_cast<uint32_t>(length);
                continue;
            }
            reader.read(X, store.row_id[i], rank);
            lengths[i] = static_cast<uint32_t>(reader.row.size());
            for (const auto &[col, value] : reader.row) {
                any |= static_cast<double>(static_cast<float>(value)) != value;
                *entry++ = {col, static_cast<float>(value)};
            }
        }
        if (any) rounded = true;
    });
    return rounded;
}

// Closes the gaps that merged entries left.
inline void close_gaps(const std::vector<uint32_t> &lengths, RowStore &store) {
    int64_t filled = 0;
    for (int64_t i = 0; i < store.n_rows; ++i) {
        const RowEntry *source = store.entries.get() + store.start[i];
        store.start[i] = filled;
        if (source != store.entries.get() + filled) std::copy_n(source, lengths[i], store.entries.get() + filled);
        filled += lengths[i];
    }
    std::fill(store.entries.get() + filled, store.entries.get() + store.nnz(), RowEntry{});
    store.start[store.n_rows] = filled;
}

// Sets: exact.
template <typename T, typename I>
void fill_exact(const CsrView<T, I> &X, const std::vector<uint32_t> &rank, int n_threads, RowStore &store) {
    store.exact.resize(store.nnz());
    for_row_ranges(X.n_rows, n_threads, [&](int64_t first, int64_t last) {
        RowReader reader;
        for (int64_t i = first; i < last; ++i) {
            reader.read(X, store.row_id[i], rank);
            for (size_t k = 0; k < reader.row.size(); ++k) store.exact[store.start[i] + k] = reader.row[k].second;
        }
    });
}

// Sets: weight, cost, uniform, l1_norm, max_norm, max_value, nonnegative.
inline void measure_rows(const double *row_weight, double C, int n_threads, RowStore &store) {
    store.weight.resize(store.n_rows);
    store.cost.resize(store.n_rows);
    store.l1_norm.resize(store.n_rows);
    std::mutex lock;
    LargestRows largest;
    for_row_ranges(store.n_rows, n_threads, [&](int64_t first, int64_t last) {
        LargestRows part;
        for (int64_t i = first; i < last; ++i) {
            store.weight[i] = C * row_weight[store.row_id[i]];
            store.cost[i] = static_cast<float>(store.weight[i]);
            measure_row(i, store, part);
        }
        const std::lock_guard<std::mutex> guard(lock);
        largest.include(part);
    });
    store.max_norm = largest.norm;
    store.max_value = largest.value;
    store.nonnegative = largest.nonnegative;
    for (int64_t i = 0; i < store.n_rows; ++i) {
        store.uniform = store.uniform && store.weight[i] == store.weight[0];
    }
}

}  // namespace row_store_detail

// row_weight (n_rows,) is in the order of X. The result does not depend on the number of threads.
template <typename T, typename I>
RowStore build_row_store(const CsrView<T, I> &X, const double *row_weight, double C = 1, int n_threads = 1) {
    RowStore store;
    store.n_rows = X.n_rows;
    store.n_cols = X.n_cols;
    std::vector<uint32_t> rank;
    row_store_detail::number_columns(X, store, rank);
    row_store_detail::number_rows(X, rank, store);
    std::vector<uint32_t> lengths(X.n_rows);
    const bool rounded = row_store_detail::fill_entries(X, rank, n_threads, store, lengths);
    row_store_detail::close_gaps(lengths, store);
    if (rounded) row_store_detail::fill_exact(X, rank, n_threads, store);
    row_store_detail::measure_rows(row_weight, C, n_threads, store);
    return store;
}

}  // namespace widemargin
