// What SPOC solves: the l2 code M (k × l) for outputs h_i of l classifiers, or the multiclass SVM where h(x) = x.
//
//     minimise  ½‖M‖² + Σ_i C_i max_r (b_ir + ⟨h_i, M_r − M_{y_i}⟩)
//     maximise  Σ_ir b_ir η_ir − ½‖M‖²,    M_r = Σ_i h_i (C_i [[r = y_i]] − η_ir),   η_i ≥ 0, Σ_r η_ir = C_i
//
// With F_ir = b_ir + ⟨h_i, M_r⟩ the gap is Σ_i g_i, g_i = Σ_r η_ir (max_q F_iq − F_ir) ≥ 0. M is stored by column, (l,
// k), so the k scores of a row are computed side by side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace widemargin {

// The reduced problem of one example (Crammer and Singer 2002, figure 3): the threshold θ with Σ_r (D_r − θ)₊ = total.
//
// With D = F/N + η it gives the exact maximum over the example's dual variables, η_r = (D_r − θ)₊. Only the s values
// D_r above max D − total matter, so only these are sorted: O(k + s log s). All values are relative to the largest D
// so that a small total is not lost in the rounding of large D. Twin: reduced_threshold() in tests/reference/spoc.py.

struct ReducedThreshold {
    double top;    // the largest D
    double below;  // θ − top, negative
};

// D (k,), work (k,); total > 0.
inline ReducedThreshold reduced_threshold(const double *D, int64_t k, double total, double *work) {
    const double top = *std::max_element(D, D + k);
    int64_t count = 0;
    for (int64_t r = 0; r < k; ++r) {
        work[count] = D[r] - top;
        count += work[count] >= -total;
    }
    std::sort(work, work + count, std::greater<double>());
    double phi = total;
    int64_t r = 1;
    for (; r < count; ++r) {
        const double next = phi - double(r) * (work[r - 1] - work[r]);
        if (next <= 0.0) break;
        phi = next;
    }
    return {top, work[r - 1] - phi / double(r)};
}

struct SpocTask {
    int64_t n, k, l;
    const double *h;     // (n, l)
    const int64_t *y;    // (n,)
    const double *b;     // (n, k) margins, 0 for the true class; null: 1 for the others
    const double *cost;  // (n,) C_i; rows of cost 0 are skipped

    double margin(int64_t i, int64_t r) const { return b != nullptr ? b[i * k + r] : double(r != y[i]); }
    const double *row(int64_t i) const { return h + i * l; }
};

// F (k,) of row i for M (l, k)
inline void spoc_scores(const SpocTask &task, const double *__restrict M, int64_t i, double *__restrict F) {
    const double *h = task.row(i);
    for (int64_t r = 0; r < task.k; ++r) F[r] = task.margin(i, r);
    for (int64_t t = 0; t < task.l; ++t) {
        const double value = h[t], *m = M + t * task.k;
        for (int64_t r = 0; r < task.k; ++r) F[r] += value * m[r];
    }
}

// ⟨h_i, M_r⟩
inline double spoc_score(const SpocTask &task, const double *M, int64_t i, int64_t r) {
    const double *h = task.row(i);
    double sum = 0.0;
    for (int64_t t = 0; t < task.l; ++t) sum += h[t] * M[t * task.k + r];
    return sum;
}

// M_r += factor · h_i
inline void spoc_add(const SpocTask &task, double *M, int64_t i, int64_t r, double factor) {
    const double *h = task.row(i);
    for (int64_t t = 0; t < task.l; ++t) M[t * task.k + r] += factor * h[t];
}

// The true class of row i gets the rest of C; if the others exceed C, they are scaled down.
inline void spoc_complete(const SpocTask &task, int64_t i, double *eta) {
    double sum = 0.0;
    for (int64_t r = 0; r < task.k; ++r) sum += r == task.y[i] ? 0.0 : eta[r];
    if (sum > task.cost[i])
        for (int64_t r = 0; r < task.k; ++r) eta[r] *= task.cost[i] / sum;
    eta[task.y[i]] = std::max(task.cost[i] - sum, 0.0);
}

// M (l, k) = Σ_i h_i τ_i'
inline void spoc_code(const SpocTask &task, const double *eta, double *M) {
    std::fill_n(M, task.l * task.k, 0.0);
    for (int64_t i = 0; i < task.n; ++i) {
        double sum = 0.0;
        for (int64_t r = 0; r < task.k; ++r) {
            const double value = eta[i * task.k + r];
            if (r == task.y[i] || value == 0.0) continue;
            sum += value;
            spoc_add(task, M, i, r, -value);
        }
        if (sum > 0.0) spoc_add(task, M, i, task.y[i], sum);
    }
}

// g_i of F (k,) and η_i (k,)
inline double spoc_row_gap(int64_t k, const double *eta, const double *F) {
    const double top = *std::max_element(F, F + k);
    double gap = 0.0;
    for (int64_t r = 0; r < k; ++r) gap += eta[r] * (top - F[r]);
    return gap;
}

// The exact maximum of the dual over η_i: best (k,) from F (k,) and η_i (k,), with N = K_ii and C = C_i; work (2k,).
inline void spoc_best(int64_t k, const double *F, double N, double C, const double *eta, double *work, double *best) {
    if (!(N * C > 0.0)) {  // the row moves no score: all of C goes to the largest margin
        std::fill_n(best, k, 0.0);
        best[std::max_element(F, F + k) - F] = C;
        return;
    }
    double *u = work + k;
    for (int64_t r = 0; r < k; ++r) u[r] = F[r] + N * eta[r];
    const ReducedThreshold at = reduced_threshold(u, k, N * C, work);
    for (int64_t r = 0; r < k; ++r) best[r] = std::max((u[r] - at.top) - at.below, 0.0) / N;
}

}  // namespace widemargin
