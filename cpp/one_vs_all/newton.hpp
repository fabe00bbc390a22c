// Truncated Newton: H δ ≈ −∇L by preconditioned conjugate gradients (CG) and a backtracking step, until ‖∇L‖ ≤ target
// and the caller's own test (the certified gap) holds. The objective is accessed only through value, gradient,
// hess_vec, diagonal and line_search. After Galli & Lin, "Truncated Newton methods for linear classification"
// (liblinear's newton.cpp), with three differences: CG stops by its residual; its tolerance is relative to the stopping
// rule instead of absolute, so scaling the objective changes nothing; and it is tightened once a full step is rejected,
// unless tighten_cg is off. Twin: tests/reference/newton.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "one_vs_all/matrix.hpp"

namespace widemargin {

constexpr double CG_TOLERANCE = 0.5;           // the paper's ε, liblinear 2.50
constexpr double PRECONDITIONER_SHARE = 0.01;  // the paper's α: M = (1 − a) I + a diag(H)
// CG steps per variable, at most: exact arithmetic needs one, hard margins with condition numbers of 1e8 need more.
// With one, as in liblinear (and 20 backtracks), 28 of 1600 random problems with C‖x‖² up to 1e8 did not converge in
// 1000 Newton steps; with 20 (and 60 backtracks) all did, in at most 292. Measured before the tightening below and with
// fewer than 100 backtracks.
constexpr int CG_STEPS_PER_VARIABLE = 20;
// If a full step is rejected, the active set of the direction was wrong, and loose directions would fail again: CG is
// tightened for the rest of the label. On six Debian tags with 3,000 rows and C = 1000, 222 steps per label become 33;
// one label with rows of length 20 and C = 100 converges after 139 steps, instead of not within 300. Factors 0.3 and
// 0.7 were tried only together with an exact line search and did about as well as 0.5; the exact search, alone or with
// this, was no better than backtracking. Labels that take only full steps see no difference. NewtonRule::tighten_cg
// turns it off, to get the method as published.
constexpr double CG_TIGHTENING = 0.5;
constexpr double MIN_CG_TOLERANCE = 1e-3;
// A free intercept far out on the logistic loss has no curvature. Then the step goes straight downhill, because a
// quotient of rounding errors would be meaningless.
constexpr double NO_CURVATURE = 1e-30;
constexpr double CG_TARGET_SHARE = 0.25;  // no residual below this share of what the stopping rule requires
constexpr double TIGHTENING = 0.1;        // of the target, if the rule holds but the certified gap does not
constexpr int MAX_POLISH_STALLS = 10;     // then polishing stops, even above the floor
constexpr double POLISH_DECREASE = 0.5;   // a polishing step that decreases ‖∇L‖ less has reached the rounding floor
// If the tolerance is below rounding, steps repeat forever: the same point, or a short cycle. A step is flat if the
// objective falls by no more than its own rounding error and ‖∇L‖ has not halved since the last step that was not flat.
constexpr int MAX_FLAT_STEPS = 20;
constexpr double FLAT_DECREASE = 4 * std::numeric_limits<double>::epsilon();  // relative to the objective
constexpr double FLAT_GRADIENT = 0.5;
constexpr double GAP_SHARE = 0.99;      // of gap_tol: the rest is for rounding to the stored type
constexpr double ROUNDING_GAP = 1e-12;  // a relative gap this small cannot be improved in double precision

constexpr double ROUNDING_GRADIENT = 4 * std::numeric_limits<double>::epsilon();  // relative to ‖∇L(0)‖

// How a label ended. NOT_ATTAINED: there is no minimiser, or rounding stopped progress before the tolerance was
// reached.
enum Ending : uint8_t { ENDED_EARLY, CONVERGED, NOT_ATTAINED };

struct NewtonRule {
    double scale;    // max(1, min(P, N)) / n · ‖∇L(0)‖
    double tol;      // stop at ‖∇L‖ ≤ tol · scale
    double gap_tol;  // and at relative gap ≤ gap_tol; infinity: no gap required
    double floor;    // a gradient this small is rounding, regardless of tol: ROUNDING_GRADIENT · ‖∇L(0)‖
    int max_iter;
    bool polish = false;     // once all this holds, continue to the rounding floor
    bool tighten_cg = true;  // by CG_TIGHTENING; false: CG's tolerance is CG_TOLERANCE throughout, as published
};

// Work arrays of one thread, each (n_variables,).
struct NewtonWork {
    std::vector<double> gradient, direction, residual, search, H_search, preconditioner, best;
    explicit NewtonWork(int64_t n)
        : gradient(n), direction(n), residual(n), search(n), H_search(n), preconditioner(n), best(n) {}
};

// The state after `iteration` steps, and the step that led there.
struct IterationRecord {
    int64_t iteration;
    double value, gradient_norm;
    int64_t active_rows;
    double step;
    int64_t cg_steps;
};

// Solves H direction = −gradient to ‖residual‖ ≤ tolerance; returns the number of steps.
// Sets: work.direction, residual, search, H_search, preconditioner (the inverse of M).
template <class Objective>
int64_t conjugate_gradients(const Objective &objective, double tolerance, NewtonWork &work) {
    const int64_t n = objective.n_variables(), max_steps = CG_STEPS_PER_VARIABLE * n;
    double *__restrict x = work.direction.data(), *__restrict r = work.residual.data();
    double *__restrict p = work.search.data(), *__restrict inverse_M = work.preconditioner.data();
    objective.diagonal(inverse_M);
    for (int64_t k = 0; k < n; ++k) {
        inverse_M[k] = 1 / ((1 - PRECONDITIONER_SHARE) + PRECONDITIONER_SHARE * inverse_M[k]);
        x[k] = 0;
        r[k] = -work.gradient[k];
        p[k] = inverse_M[k] * r[k];
    }
    double r_dot_Mr = dot(r, p, n);
    int64_t step = 0;
    while (step < max_steps) {
        objective.hess_vec(p, work.H_search.data());
        const double p_dot_Hp = dot(p, work.H_search.data(), n);
        if (!(p_dot_Hp > NO_CURVATURE * squared_norm(p, n))) {  // also if r = 0, or not finite
            if (step == 0) std::copy(p, p + n, x);
            break;
        }
        ++step;
        const double length = r_dot_Mr / p_dot_Hp;
        add_scaled(length, p, n, x);
        add_scaled(-length, work.H_search.data(), n, r);
        if (std::sqrt(squared_norm(r, n)) <= tolerance) break;
        for (int64_t k = 0; k < n; ++k) work.H_search[k] = inverse_M[k] * r[k];
        const double next = dot(r, work.H_search.data(), n), ratio = next / r_dot_Mr;
        for (int64_t k = 0; k < n; ++k) p[k] = work.H_search[k] + ratio * p[k];
        r_dot_Mr = next;
    }
    return step;
}

// Residual norm at which CG may stop: loose far from the solution, tighter close to it so that the last steps converge
// superlinearly; never tighter than the rule needs.
inline double cg_tolerance(double gradient_norm, double target, double scale, double largest) {
    const double relative = scale > 0 ? std::min(largest, std::sqrt(gradient_norm / scale)) : largest;
    return std::max(relative * gradient_norm, CG_TARGET_SHARE * target);
}

// Minimises from v, to which the objective must already have been moved. Returns how it ended, after `n_iter` steps.
// relative_gap(v): the certified relative gap at v. record(IterationRecord): called before the first step and after
// each step. With `polish` it continues once the rule holds, and returns the point with the smallest gradient from then
// on: far from the floor, a step on a piecewise quadratic may raise ‖∇L‖, so one such step is not the end.
template <class Objective, class Gap, class Record>
Ending newton_cg(Objective &objective, const NewtonRule &rule, NewtonWork &work, Gap relative_gap, Record record,
                 double *v, int64_t &n_iter) {
    const int64_t n = objective.n_variables();
    double target = rule.tol * rule.scale, step = 0, looseness = CG_TOLERANCE;
    constexpr double INF = std::numeric_limits<double>::infinity();
    double previous_norm = 0, best_norm = INF, flat_value = INF, flat_norm = INF;
    int64_t cg_steps = 0;
    int stalls = 0, flat_steps = 0;
    bool converged = false;
    for (n_iter = 0;; ++n_iter) {
        objective.gradient(v, work.gradient.data());
        const double norm = std::sqrt(squared_norm(work.gradient.data(), n));
        const double value = objective.value(v);
        record(IterationRecord{n_iter, value, norm, objective.n_active(), step, cg_steps});
        ++flat_steps;
        if (value < (1 - FLAT_DECREASE) * flat_value || norm < FLAT_GRADIENT * flat_norm) {
            flat_value = value;
            flat_norm = norm;
            flat_steps = 0;
        }
        const bool stalled = converged && norm > POLISH_DECREASE * previous_norm;
        if (!converged && norm <= target) {
            converged = std::isinf(rule.gap_tol) || relative_gap(v) <= rule.gap_tol;
            target = converged ? 0 : TIGHTENING * norm;
        }
        if (converged && norm < best_norm) {
            best_norm = norm;
            std::copy(v, v + n, work.best.begin());
        }
        previous_norm = norm;
        if (converged && !rule.polish) break;
        if (stalled && (++stalls == MAX_POLISH_STALLS || relative_gap(v) <= ROUNDING_GAP)) break;
        if (norm <= rule.floor && relative_gap(v) <= ROUNDING_GAP) break;
        if (n_iter == rule.max_iter || norm == 0 || (!converged && flat_steps == MAX_FLAT_STEPS)) break;
        cg_steps = conjugate_gradients(objective, cg_tolerance(norm, target, rule.scale, looseness), work);
        const double slope = dot(work.gradient.data(), work.direction.data(), n);
        step = slope < 0 ? objective.line_search(work.direction.data(), slope, v) : 0;
        if (step < 1 && rule.tighten_cg) looseness = std::max(MIN_CG_TOLERANCE, CG_TIGHTENING * looseness);
        if (step == 0) break;  // nothing left but rounding
    }
    if (converged) std::copy(work.best.begin(), work.best.end(), v);
    if (converged || relative_gap(v) <= ROUNDING_GAP) return CONVERGED;
    return n_iter == rule.max_iter ? ENDED_EARLY : NOT_ATTAINED;
}

}  // namespace widemargin
