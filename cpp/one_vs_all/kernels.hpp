// The vector kernels of the fast and the batched solvers: their arguments, the table of functions, and the choice of
// the instruction set, for each of which isa_kernels.hpp is compiled once.
//
// A "lane" is one label in a batch; tables are (rows or features) × LANES float32, one 64-byte line each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "one_vs_all/row_store.hpp"
#include "one_vs_all/subspace_search.hpp"
#include "simd/arrays.hpp"
#include "simd/cpu.hpp"
#include "simd/exp_in_place.hpp"

namespace widemargin {

constexpr int LANES = 16;       // 64 bytes; 8 and 32 lanes were slower in the prototype
constexpr int SCAN_LANES = 32;  // labels in a batch pass, 16 bits each

// A row above a lane's threshold. Its entries are copied while they are in the cache, to the lane's copy from `begin`
// to `begin` of the next row; if the copy was full, there are none.
struct EmittedRow {
    uint32_t row;
    float score;
    float slack;  // what was added to the score, including the allowance for rounding
    uint32_t begin;
};

// The result of a pass for one lane; rows[n] ends the last row's copy.
struct Emission {
    const EmittedRow *rows;
    int64_t n;
    const RowEntry *copies;

    RowView view(int64_t k, const RowStore &store) const {
        const uint32_t length = rows[k + 1].begin - rows[k].begin;
        return length == 0 ? store.view(rows[k].row) : RowView{rows[k].row, length, copies + rows[k].begin};
    }
};

constexpr int64_t COPY_STEP = 4;  // entries copied at once

// One batch pass: scores all rows for 32 labels and keeps the rows above each lane's threshold. Sums and limits are in
// the lane's units of 1 / (t s), see one_vs_all/batch_pass.hpp.
struct ScanArgs {
    const RowEntry *entries;
    const int64_t *start;
    float scale;               // for the values of rows
    const int32_t *allowance;  // (n_rows,)
    const float *slack;        // (n_rows,) added to a score before the comparison
    const int16_t *table;      // (n_cols × SCAN_LANES) weights
    float bias[SCAN_LANES];
    float unit[SCAN_LANES];
    float limit[SCAN_LANES];        // threshold − intercept; +inf: lane unused
    float with_slack[SCAN_LANES];   // share of the slack that is added
    float slack_share[SCAN_LANES];  // the same in units
    EmittedRow *out[SCAN_LANES];    // where the next row of a lane goes
    RowEntry *copies[SCAN_LANES];   // the lane's copy, with room for COPY_STEP more entries
    uint32_t copied[SCAN_LANES];    // entries in it
    uint32_t room[SCAN_LANES];      // entries that fit in it
};

// A row that a screened pass has yet to score: its place in the block, and the sum over its indexed features.
struct ScreenedRow {
    uint32_t row;
    int32_t sum;
};

// Row arrays of a subspace search of one label, n rows each, n a multiple of LANES (padding has cost 0). Row i is at (i
// / LANES) · stride + i % LANES, so the arrays may be separate or interleaved in blocks of LANES rows. signed_cost = y
// c carries the sign of the label.
struct SearchRows {
    int64_t n, stride;
    const float *s, *sz, *sp, *signed_cost;
    const float *shared = nullptr;  // scores of the shared directions, LANES apart; null if they are not searched
    bool with_hessian = true;       // false, with shared directions: only the gradient is wanted
};

// Rows of one lane's subspace search, those that are active or near the margin: s, sz, sp, signed cost and the scores
// of the shared directions interleaved in blocks of LANES rows so that each lane writes a single stream.
constexpr int64_t NEAR_ARRAYS = 4 + N_SHARED;
constexpr int64_t NEAR_STRIDE = NEAR_ARRAYS * LANES;
struct NearRows {
    float *blocks;
    int64_t count;
    static int64_t at(int64_t k) {
        const uint64_t place = static_cast<uint64_t>(k);  // unsigned so that divisions are shifts
        return static_cast<int64_t>(place / LANES * NEAR_STRIDE + place % LANES);
    }
    SearchRows view(bool shared) const {
        const int64_t n = (count + LANES - 1) / LANES * LANES;
        return {n,
                NEAR_STRIDE,
                blocks,
                blocks + LANES,
                blocks + 2 * LANES,
                blocks + 3 * LANES,
                shared ? blocks + 4 * LANES : nullptr};
    }
};

// One iteration of up to 16 labels over all rows; tables are (rows or columns) × LANES. A lane without a label has
// factors of zero.
struct BatchArgs {
    const RowEntry *entries;
    const int64_t *start;
    const float *cost;      // (n_rows,)
    const uint16_t *signs;  // (n_rows,) bit = lane's label is positive
    const float *Z;         // directions, by column
    float *G;               // Σ −c φ'(m) y x, by column
    float *S, *SZ, *SP;     // scores of weights, direction and last step, by row
    const float *shared;    // (n_rows, N_SHARED) scores of the shared directions
    int64_t sample_stride;  // one row in this many belongs to the sample
    uint32_t searched;      // bit = rows near the margin are listed in `near`
    uint32_t sampled;       // bit = only negatives in the sample are listed
    alignas(LINE_BYTES) float bias[LANES];
    alignas(LINE_BYTES) float theta[MAX_DIRECTIONS][LANES];
    alignas(LINE_BYTES) float positive_factor[LANES];
    alignas(LINE_BYTES) float negative_factor[LANES];
    alignas(LINE_BYTES) float search_factor[LANES];  // for negatives in `near`
    // Rows with 1 − y s > −(reach + reach_z |sz| + reach_p |sp|) are near.
    alignas(LINE_BYTES) float reach[LANES];
    alignas(LINE_BYTES) float reach_z[LANES];
    alignas(LINE_BYTES) float reach_p[LANES];
    alignas(LINE_BYTES) float largest_move[LANES];          // largest change of a score in the last step
    NearRows near[LANES];                                   // with room for all rows
    double loss[LANES], bias_sum[LANES], curvature[LANES];  // Σ c φ, Σ −c φ' y, Σ c φ''
};

struct FeatureArgs {
    int64_t n_cols;
    const float *spread;  // (n_cols,) see `direction` in one_vs_all/batch_search.hpp
    const float *shared;  // (n_cols, N_SHARED) the shared directions
    float *W, *P, *Z, *G;
    alignas(LINE_BYTES) float theta[MAX_DIRECTIONS][LANES];
    alignas(LINE_BYTES) float scaling[LANES];
    double zz[LANES], zp[LANES], zw[LANES], pp[LANES], pw[LANES], ww[LANES];
    double gg[LANES];  // ‖G − W‖²
    double vz[N_SHARED][LANES];
};

// One step of the power method on 16 vectors (one_vs_all/shared_directions.hpp).
struct PowerArgs {
    int64_t n_rows, stride;  // every stride-th row takes part
    const RowEntry *entries;
    const int64_t *start;
    const float *cost;  // (n_rows,)
    const float *Z;     // (n_cols × LANES)
    float *G;           // (n_cols × LANES), or null
    float *SZ;          // (n_rows × LANES), or null
};

// The tables of a batch. By column: weights W, last step P, direction Z, and G. By row: the scores of W, Z and P.
struct LaneTables {
    AlignedFloats W, P, Z, G, S, SZ, SP;

    void connect(BatchArgs &args) const {
        args.Z = Z.get();
        args.G = G.get();
        args.S = S.get();
        args.SZ = SZ.get();
        args.SP = SP.get();
    }
    void connect(FeatureArgs &args) const {
        args.W = W.get();
        args.P = P.get();
        args.Z = Z.get();
        args.G = G.get();
    }
};

// One pass of the logistic certificate over all rows, for up to 16 labels: see one_vs_all/batch_logistic.hpp.
struct CertificateArgs {
    int64_t n_rows, n_cols;
    const RowEntry *entries;
    const int64_t *start;
    const double *exact;    // the values in float64, or null
    const double *weight;   // (n_rows,); if uniform, only the first is read
    const uint16_t *signs;  // (n_rows,) bit = positive, which the pass skips
    const float *W;         // (n_cols, LANES) weights
    double *U;              // (n_cols, LANES): −Σ α x is added
    float least_kept;       // the smallest weight that is not pruned
    bool uniform;
    alignas(LINE_BYTES) double bias[LANES];
    alignas(LINE_BYTES) double negative_factor[LANES];
    // Sums over the negatives of c φ, the same for the kept weights, c H(σ), α, c φ'' and c e^−m.
    double loss[LANES], kept_loss[LANES], entropy[LANES], alpha[LANES], curvature[LANES], odds[LANES];
    // ‖W‖², the same for the kept weights, ‖U‖² and ‖W − U‖²
    alignas(LINE_BYTES) double norm[LANES];
    alignas(LINE_BYTES) double kept_norm[LANES];
    alignas(LINE_BYTES) double u_norm[LANES];
    alignas(LINE_BYTES) double residual[LANES];
};

// Up to 16 labels whose certificates are computed together (one_vs_all/batch_certificate.hpp).
struct CheckArgs {
    int64_t n_rows, n_cols;
    const RowEntry *entries;
    const double *exact;  // the values if float32 rounds some of them, else null
    const int64_t *start;
    const double *weight;   // (n_rows,)
    const float *l1_norm;   // (n_rows,)
    const uint16_t *signs;  // (n_rows,) bit = lane's label is positive
    const float *W;         // weights, by column
    double *S, *U;          // scores by row; Σ y α x by column
    double prune;
    float least_kept;  // the smallest weight that is not pruned
    alignas(LINE_BYTES) double bias[LANES];
    alignas(LINE_BYTES) double positive_factor[LANES];  // 0 in a lane without a label, like the other factor
    alignas(LINE_BYTES) double negative_factor[LANES];
};

struct VectorKernels {
    void (*scan)(ScanArgs &args, int64_t begin, int64_t end);
    // Appends the rows of a block with sum + share · norm > limit > 0 to `out`, returns their number, and clears the
    // sums. `norms` and `sums` are read up to the next multiple of LANES.
    int64_t (*screen)(int64_t n, const uint8_t *norms, float share, float limit, int32_t *sums, ScreenedRow *out);
    // sums at s + θ·(sz, sp, s − b, 1)
    void (*search_sums)(const SearchRows &rows, float bias, const float *theta, double *sums);
    // s and sp after a step of θ; s_i += θ·(sz, sp, s − b, 1), sp_i = the same without the intercept
    void (*step_rows)(int64_t n, float bias, const float *theta, const float *sz, float *sp, float *s);
    // p = θ₀ z + θ₁ p + θ₂ w; w += p; z = −w.  products = p·p, p·w, w·w
    void (*step_features)(int64_t n, const float *theta, float *z, float *p, float *w, double *products);
    // products = z·z, z·p, z·w
    void (*direction_products)(int64_t n, const float *z, const float *p, const float *w, double *products);
    // out_i = x_i · v for the rows of a local CSR
    void (*row_dots)(int64_t n, const int64_t *start, const RowEntry *entries, const float *v, float *out);
    // out = x · v in double for two vectors at once, with v₀ and v₁ of a column side by side; exact: the values of x,
    // or null
    void (*pair_dots)(const RowView &row, const double *exact, const float *pairs, double *out);
    // The kernels of a batch exist without [0] and with [1] shared directions.
    // SZ = X Z, and the rows near the margin of each lane, for rows [begin, end)
    void (*batch_dots[2])(BatchArgs &args, int64_t begin, int64_t end);
    // the step θ in S and SP, then G += X' (−c φ' y), for rows [begin, end)
    void (*batch_gradient[2])(BatchArgs &args, int64_t begin, int64_t end);
    // the step θ in W and P, Z = (G − W) / (1 + scaling spread), G = 0, and all inner products
    void (*batch_features[2])(FeatureArgs &args);
    // the lanes that are not in `keep` become by_line_i + by_lane; by_line: null for zeros
    void (*set_lanes)(int64_t n, uint32_t keep, const float *by_line, const float *by_lane, float *table);
    // zz and vz of all lanes, with one or N_SHARED directions in args.shared
    void (*first_products[2])(FeatureArgs &args);
    // SZ = X Z, G += X' (c X Z)
    void (*power_step)(const PowerArgs &args);
    // out += Σ_i c_i t_i t_i' for the lines t_i of a table; cost: null for ones
    void (*gram)(int64_t n, const float *table, const float *cost, double (*out)[LANES]);
    // The logistic loss: the sums of a search over rows [begin, end) for all lanes, (N_SEARCH_SUMS, LANES); gradient.
    void (*logistic_search)(const BatchArgs &args, int64_t begin, int64_t end, double (*sums)[LANES]);
    void (*logistic_gradient)(BatchArgs &args, int64_t begin, int64_t end);
    // search_sums with the logistic loss; the last sum, the loss, stays zero
    void (*logistic_sums)(const SearchRows &rows, float bias, const float *theta, double *sums);
    // SZ = X Z, and the sums at s + θ₀ sz, without the loss; lanes of `fresh` first set S to the intercept and SP to
    // the scores of the mean row
    void (*logistic_dots)(const BatchArgs &args, int64_t begin, int64_t end, uint32_t fresh, const float *mean_scores,
                          double (*sums)[LANES]);
    // The sums over rows, and those over columns, after which U = 0.
    void (*logistic_certificate)(CertificateArgs &args);
    void (*certificate_columns)(CertificateArgs &args);
    // The kernels of a certificate exist for 8 [0] and for 16 lanes [1].
    // S = X W + bias
    void (*check_scores[2])(const CheckArgs &args);
    // with m = max(0, 1 − y (S + shift)): Σ c m of the negatives and of the positives, Σ c where m > 0, Σ c m²
    void (*check_losses[2])(const CheckArgs &args, const double *shift, double (*sums)[LANES]);
    // U = Σ y α x, α shrunk by side (negatives, positives); Σ (α − α² / (4 c)), and the loss of the kept weights
    void (*check_gradient[2])(const CheckArgs &args, const double *shift, const double (*shrink)[LANES],
                              double (*sums)[LANES]);
    // ‖W‖², ‖kept W‖², ‖U‖², ‖W − U‖²; then U = 0
    void (*check_columns[2])(const CheckArgs &args, double (*sums)[LANES]);
};

}  // namespace widemargin

#define WIDEMARGIN_KERNEL_FILE "one_vs_all/isa_kernels.hpp"
#include "simd/each_isa.hpp"

namespace widemargin {

inline const VectorKernels &choose_kernels(const std::string &instruction_set) {
    return for_instruction_set(instruction_set, &avx512::kernels, &avx2::kernels, &baseline::kernels)();
}

}  // namespace widemargin
