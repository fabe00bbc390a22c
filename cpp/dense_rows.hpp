// Row kernels of the dense one-vs-all solver: what happens to one label between two matrix products.
//
//     s(θ) = s + θ₀ sz + θ₁ sp + θ₂ (s − b) + θ₃        scores after a step along (z, p, w, intercept)
//
// Scores of a label stand one after another as float32; matrix products over blocks of labels make them, see
// solvers/_dense_block.py. Sums run in 16 lanes of float32 that are emptied into double every FLUSH rows, so that the
// compiler can use vectors without reordering anything. Twin: reference/dense_one_vs_all.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "binary_objective.hpp"
#include "cpu.hpp"
#include "logistic.hpp"
#include "squared_hinge.hpp"
#include "subspace_search.hpp"

namespace widemargin {

constexpr int64_t FLUSH = 512;  // rows; a multiple of LANES
constexpr int N_PAIRS = 10;     // upper triangle of 4 × 4

// A loss in float32, all branches as selections.  half_slope = −½ φ'(m), half_curvature = ½ φ''(m).
struct HingeLane {
    static float half_slope(float m) { return m < 1 ? 1 - m : 0.0f; }
    static float half_curvature(float m) { return m < 1 ? 1.0f : 0.0f; }
    static float value(float m) { return m < 1 ? (1 - m) * (1 - m) : 0.0f; }
    // φ(m + step) − φ(m) without the cancellation of the difference.
    static float change(float m, float step) {
        const float before = 1 - m, after = before - step;
        const float difference = (after > 0 ? after * after : 0.0f) - (before > 0 ? before * before : 0.0f);
        return before > 0 && after > 0 ? step * (step - 2 * before) : difference;
    }
};

// e^−|m| to float32: e^x = 2^k e^r with r in [−½ ln 2, ½ ln 2], and a polynomial for e^r.
inline float exp_minus_abs(float m) {
    const float x = std::max(-std::abs(m), -87.0f);
    const int k = static_cast<int>(x * 1.44269504f - 0.5f);
    const float r = x - k * 0.693359375f + k * 2.12194440e-4f;  // ln 2 in two parts, after Cephes' expf
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const int32_t bits = (k + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof(power));
    return (p * r * r + r + 1) * power;
}

struct LogisticLane {
    static float half_slope(float m) {
        const float e = exp_minus_abs(m);
        return 0.5f * (m < 0 ? 1.0f : e) / (1 + e);
    }
    static float half_curvature(float m) {
        const float e = exp_minus_abs(m);
        return 0.5f * e / ((1 + e) * (1 + e));
    }
    // log(1 + e) = 2 artanh(t), t = e / (2 + e) ≤ 1/3: the series to t¹¹ is exact to float32.
    static float value(float m) {
        const float e = exp_minus_abs(m), t = e / (2 + e), q = t * t;
        const float series = 1 + q * (1 / 3.0f + q * (1 / 5.0f + q * (1 / 7.0f + q * (1 / 9.0f + q * (1 / 11.0f)))));
        return 2 * t * series + (m < 0 ? -m : 0.0f);
    }
    static float change(float m, float step) { return value(m + step) - value(m); }
};

// One label's rows; `cost` is y c, the row's weight with the sign of the label. `s`, `sp` and `slopes` are written.
struct DenseLabelRows {
    int64_t n;
    float *s;
    const float *sz;
    float *sp;
    const float *cost;
    float *slopes;  // y c φ'(m)
    float bias;
};

struct LabelSums {
    double loss = 0, slope_sum = 0, n_active = 0;
};

// 16 rows from `i` on; beyond the end the cost is zero, so that nothing is added.
struct RowChunk {
    float s[LANES], sz[LANES], sp[LANES], cost[LANES];
};

__attribute__((always_inline)) inline void load_chunk(const DenseLabelRows &rows, int64_t i, RowChunk &chunk) {
    const int64_t count = std::min<int64_t>(LANES, rows.n - i);
    if (count < LANES) chunk = RowChunk{};
    std::memcpy(chunk.s, rows.s + i, count * sizeof(float));
    std::memcpy(chunk.sz, rows.sz + i, count * sizeof(float));
    std::memcpy(chunk.sp, rows.sp + i, count * sizeof(float));
    std::memcpy(chunk.cost, rows.cost + i, count * sizeof(float));
}

template <int N>
__attribute__((always_inline)) inline void flush(float (&lanes)[N][LANES], double *sums) {
    for (int j = 0; j < N; ++j) {
        for (int k = 0; k < LANES; ++k) sums[j] += static_cast<double>(lanes[j][k]);
        std::fill(lanes[j], lanes[j] + LANES, 0.0f);
    }
}

// What SubspaceSearch::absorb takes: −½ Σ cφ'y v_j (4), ½ Σ cφ'' v_j v_k (10, upper triangle), and 0.
template <class Lane>
__attribute__((always_inline)) inline void add_search_chunk(const RowChunk &chunk, float bias, const float *theta,
                                                            float (&sums)[N_DIRECTIONS + N_PAIRS][LANES]) {
    for (int k = 0; k < LANES; ++k) {
        const float w = chunk.s[k] - bias, y = chunk.cost[k] < 0 ? -1.0f : 1.0f, c = std::abs(chunk.cost[k]);
        const float z = chunk.sz[k], p = chunk.sp[k];
        const float m = y * (chunk.s[k] + theta[0] * z + theta[1] * p + theta[2] * w + theta[3]);
        const float a = c * y * Lane::half_slope(m), h = c * Lane::half_curvature(m);
        sums[0][k] += a * z, sums[1][k] += a * p, sums[2][k] += a * w, sums[3][k] += a;
        const float hz = h * z, hp = h * p, hw = h * w;
        sums[4][k] += hz * z, sums[5][k] += hz * p, sums[6][k] += hz * w, sums[7][k] += hz;
        sums[8][k] += hp * p, sums[9][k] += hp * w, sums[10][k] += hp;
        sums[11][k] += hw * w, sums[12][k] += hw, sums[13][k] += h;
    }
}

template <class Lane>
__attribute__((always_inline)) inline void search_sums(const DenseLabelRows &rows, const float *theta, double *out) {
    float lanes[N_DIRECTIONS + N_PAIRS][LANES] = {};
    RowChunk chunk;
    std::fill(out, out + N_SEARCH_SUMS, 0.0);
    for (int64_t first = 0; first < rows.n; first += FLUSH) {
        for (int64_t i = first; i < std::min(rows.n, first + FLUSH); i += LANES) {
            load_chunk(rows, i, chunk);
            add_search_chunk<Lane>(chunk, rows.bias, theta, lanes);
        }
        flush(lanes, out);
    }
}

// Σ c (φ(m + t y sz') − φ(m)) with sz' = sz + bias_step: the change of the losses along a Newton direction.
template <class Lane>
__attribute__((always_inline)) inline double loss_change(const DenseLabelRows &rows, float t, float bias_step) {
    float lanes[1][LANES] = {};
    double sum = 0;
    RowChunk chunk;
    for (int64_t first = 0; first < rows.n; first += FLUSH) {
        for (int64_t i = first; i < std::min(rows.n, first + FLUSH); i += LANES) {
            load_chunk(rows, i, chunk);
            for (int k = 0; k < LANES; ++k) {
                const float y = chunk.cost[k] < 0 ? -1.0f : 1.0f;
                const float step = t * y * (chunk.sz[k] + bias_step);
                lanes[0][k] += std::abs(chunk.cost[k]) * Lane::change(y * chunk.s[k], step);
            }
        }
        flush(lanes, &sum);
    }
    return sum;
}

// Goes to s(θ): writes s, sp (the step's scores without the intercept) and the slopes there.
template <class Lane>
__attribute__((always_inline)) inline LabelSums advance(const DenseLabelRows &rows, const float *theta) {
    float lanes[3][LANES] = {}, slopes[LANES];
    double sums[3] = {};
    RowChunk chunk;
    for (int64_t first = 0; first < rows.n; first += FLUSH) {
        for (int64_t i = first; i < std::min(rows.n, first + FLUSH); i += LANES) {
            load_chunk(rows, i, chunk);
            for (int k = 0; k < LANES; ++k) {
                const float w = chunk.s[k] - rows.bias;
                const float y = chunk.cost[k] < 0 ? -1.0f : 1.0f, c = std::abs(chunk.cost[k]);
                chunk.sp[k] = theta[0] * chunk.sz[k] + theta[1] * chunk.sp[k] + theta[2] * w;
                chunk.s[k] += chunk.sp[k] + theta[3];
                const float m = y * chunk.s[k], half = Lane::half_slope(m);
                slopes[k] = -2 * c * y * half;
                lanes[0][k] += c * Lane::value(m);
                lanes[1][k] += slopes[k];
                lanes[2][k] += half > 0 && c > 0 ? 1.0f : 0.0f;
            }
            const int64_t count = std::min<int64_t>(LANES, rows.n - i);
            std::memcpy(rows.s + i, chunk.s, count * sizeof(float));
            std::memcpy(rows.sp + i, chunk.sp, count * sizeof(float));
            std::memcpy(rows.slopes + i, slopes, count * sizeof(float));
        }
        flush(lanes, sums);
    }
    return {sums[0], sums[1], sums[2]};
}

struct RowKernels {
    void (*search_sums)(const DenseLabelRows &, const float *, double *);
    double (*loss_change)(const DenseLabelRows &, float, float);
    LabelSums (*advance)(const DenseLabelRows &, const float *);
};

// The three functions for each instruction set.
#define WIDEMARGIN_ROW_KERNELS(name, attribute)                                                     \
    template <class Lane>                                                                           \
    attribute void search_sums_##name(const DenseLabelRows &rows, const float *theta, double *out) { \
        search_sums<Lane>(rows, theta, out);                                                        \
    }                                                                                               \
    template <class Lane>                                                                           \
    attribute double loss_change_##name(const DenseLabelRows &rows, float t, float bias_step) {      \
        return loss_change<Lane>(rows, t, bias_step);                                               \
    }                                                                                               \
    template <class Lane>                                                                           \
    attribute LabelSums advance_##name(const DenseLabelRows &rows, const float *theta) {             \
        return advance<Lane>(rows, theta);                                                          \
    }                                                                                               \
    template <class Lane>                                                                           \
    RowKernels row_kernels_##name() {                                                               \
        return {search_sums_##name<Lane>, loss_change_##name<Lane>, advance_##name<Lane>};          \
    }
WIDEMARGIN_ROW_KERNELS(baseline, )
#if defined(__x86_64__)
WIDEMARGIN_ROW_KERNELS(avx2, __attribute__((target("avx2,fma"))))
WIDEMARGIN_ROW_KERNELS(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,fma"))))
#endif
#undef WIDEMARGIN_ROW_KERNELS

// What WIDEMARGIN_ISA names if this machine has it, else the widest.
template <class Lane>
RowKernels choose_row_kernels() {
#if defined(__x86_64__)
    const char *widest = detect_instruction_set(), *pinned = std::getenv("WIDEMARGIN_ISA");
    const char *name = pinned != nullptr && *pinned != '\0' ? pinned : widest;
    const bool has_avx512 = std::strcmp(widest, "avx512") == 0;
    const bool has_avx2 = has_avx512 || std::strcmp(widest, "avx2") == 0;
    if (std::strcmp(name, "avx512") == 0 && has_avx512) return row_kernels_avx512<Lane>();
    if (std::strcmp(name, "baseline") != 0 && has_avx2) return row_kernels_avx2<Lane>();
#endif
    return row_kernels_baseline<Lane>();
}

}  // namespace widemargin
