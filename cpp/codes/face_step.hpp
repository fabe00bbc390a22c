// A step of SPOC on the face of the dual that the ascent has settled on, for the last digits, where single-row steps
// crawl.
//
// The positive η_ir of a row are free except for their sum; a direction v has Σ_r v_ir = 0 there and is 0 elsewhere:
//     D(η + v) = D(η) + ⟨F, v⟩ − ½‖G‖²,   G_r = Σ_i h_i v_ir
// is maximised by conjugate gradients, preconditioned by ‖h_i‖². A ridge ρ‖h_i‖² v_i² bounds directions that do not
// move M at all; ρ starts at 1e-4 and falls while full steps succeed. The step is then shortened until it improves the
// dual after projecting every row onto its simplex. For a code of 10 classes and 15 classifiers (2,000 rows, C = 1), a
// gap of 1e-6 takes 0.3 s with these steps and 4.5 to 7 s without; 5,000 points of four quadrants take 8 and 18 ms.
// With ρ fixed at 0.01 or 0.1, the former takes 1.0 or 3.7 s. Memory: six numbers per free variable. Twin: face_step()
// in tests/reference/spoc.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "codes/problem.hpp"

namespace widemargin {

class SpocFace {
  public:
    SpocFace(const SpocTask &task, const std::vector<double> &norms, const std::vector<double> &eta, double ridge)
        : task_(task), norms_(norms), ridge_(ridge), G_(task.k * task.l), work_(task.k) {
        for (int64_t i = 0; i < task.n; ++i) {
            if (norms[i] > 0.0) add_row(i, &eta[i * task.k]);
        }
    }

    // Improves η (n, k) and M (l, k); returns the gain of the dual, 0 if no step was found.
    double step(std::vector<double> &M, std::vector<double> &eta) {
        if (rows_.empty()) return 0.0;
        load_gradient(M);
        ascend();
        moved_.resize(rows_.size() * task_.k);
        for (double length = 1.0; length >= SHORTEST; length *= 0.5) {
            const double gain = try_step(M, eta, length);
            if (!(gain > 0.0)) continue;
            for (size_t a = 0; a < rows_.size(); ++a)
                std::copy_n(&moved_[a * task_.k], task_.k, &eta[rows_[a] * task_.k]);
            for (size_t j = 0; j < M.size(); ++j) M[j] -= G_[j];
            length_ = length;
            return gain;
        }
        return 0.0;
    }

    // ρ for the next step: smaller after a full step, larger after a shortened one.
    double next_ridge() const {
        if (length_ == 1.0) return std::max(ridge_ / FASTER, LEAST_RIDGE);
        return length_ < CUT ? std::min(ridge_ * FASTER, RIDGE) : ridge_;
    }
    static constexpr double RIDGE = 1e-4;  // the first ρ

  private:
    static constexpr double AT_BOUND = 1e-12;  // relative to C: smaller values count as 0
    static constexpr double LEAST_RIDGE = 1e-12, FASTER = 3.0, CUT = 0.1;
    static constexpr double RESIDUAL = 1e-10;  // relative to the first residual, at which conjugate gradients stop
    static constexpr double NOISE = 1e-14;     // relative to F: a gradient below this is rounding
    static constexpr int MAX_STEPS = 100;      // of conjugate gradients
    static constexpr double SHORTEST = 1e-4;   // shortest step tried

    // Rows with a single positive variable cannot move.
    void add_row(int64_t i, const double *eta) {
        const double least = AT_BOUND * task_.cost[i];
        const size_t before = label_.size();
        for (int64_t r = 0; r < task_.k; ++r) {
            if (eta[r] > least) label_.push_back(r);
        }
        if (label_.size() < before + 2) return label_.resize(before);
        rows_.push_back(i);
        begin_.push_back(static_cast<int64_t>(label_.size()));
    }

    void centre(std::vector<double> &v) const {
        for (size_t a = 0; a < rows_.size(); ++a) {
            double *first = v.data() + begin_[a], *last = v.data() + begin_[a + 1];
            const double mean = std::accumulate(first, last, 0.0) / double(last - first);
            for (double *p = first; p < last; ++p) *p -= mean;
        }
    }

    // residual_ = F on the face, floor_ = its rounding error
    void load_gradient(const std::vector<double> &M) {
        residual_.resize(label_.size());
        scaled_.resize(label_.size());
        for (size_t a = 0; a < rows_.size(); ++a)
            for (int64_t e = begin_[a]; e < begin_[a + 1]; ++e)
                residual_[e] = task_.margin(rows_[a], label_[e]) + spoc_score(task_, M.data(), rows_[a], label_[e]);
        floor_ = NOISE * NOISE * precondition();
        centre(residual_);
    }

    // curved_ = (H + ρN) direction_
    void multiply() {
        std::fill(G_.begin(), G_.end(), 0.0);
        for (size_t a = 0; a < rows_.size(); ++a)
            for (int64_t e = begin_[a]; e < begin_[a + 1]; ++e)
                spoc_add(task_, G_.data(), rows_[a], label_[e], direction_[e]);
        for (size_t a = 0; a < rows_.size(); ++a)
            for (int64_t e = begin_[a]; e < begin_[a + 1]; ++e)
                curved_[e] =
                    spoc_score(task_, G_.data(), rows_[a], label_[e]) + ridge_ * norms_[rows_[a]] * direction_[e];
        centre(curved_);
    }

    // scaled_ = N⁻¹ residual_; returns their product.
    double precondition() {
        double product = 0.0;
        for (size_t a = 0; a < rows_.size(); ++a)
            for (int64_t e = begin_[a]; e < begin_[a + 1]; ++e) {
                scaled_[e] = residual_[e] / norms_[rows_[a]];
                product += scaled_[e] * residual_[e];
            }
        return product;
    }

    // v_ = the maximiser on the face
    void ascend() {
        const size_t size = label_.size();
        v_.assign(size, 0.0);
        curved_.resize(size);
        double product = precondition();
        const double target = std::max(RESIDUAL * RESIDUAL * product, floor_);
        direction_ = scaled_;
        for (int step = 0; step < MAX_STEPS && product > target; ++step) {
            multiply();
            const double curvature = std::inner_product(curved_.begin(), curved_.end(), direction_.begin(), 0.0);
            if (!(curvature > 0.0)) break;
            const double length = product / curvature, before = product;
            for (size_t e = 0; e < size; ++e) {
                v_[e] += length * direction_[e];
                residual_[e] -= length * curved_[e];
            }
            product = precondition();
            for (size_t e = 0; e < size; ++e) direction_[e] = scaled_[e] + product / before * direction_[e];
        }
        centre(v_);  // rounding errors have no curvature and would grow
    }

    // moved_ = η + length · v projected onto the simplex, G_ = the change of −M; returns the gain of the dual.
    double try_step(const std::vector<double> &M, const std::vector<double> &eta, double length) {
        std::fill(G_.begin(), G_.end(), 0.0);
        double gain = 0.0;
        for (size_t a = 0; a < rows_.size(); ++a) {
            const int64_t i = rows_[a];
            move_row(a, &eta[i * task_.k], length);
            for (int64_t e = begin_[a]; e < begin_[a + 1]; ++e) {
                const int64_t r = label_[e];
                const double change = moved_[a * task_.k + r] - eta[i * task_.k + r];
                gain += change * task_.margin(i, r);
                spoc_add(task_, G_.data(), i, r, change);
            }
        }
        for (size_t j = 0; j < M.size(); ++j) gain += G_[j] * (M[j] - 0.5 * G_[j]);
        return gain;
    }

    void move_row(size_t a, const double *eta, double length) {
        const int64_t count = begin_[a + 1] - begin_[a], *labels = &label_[begin_[a]];
        double *moved = &moved_[a * task_.k], lowest = 0.0;
        std::fill_n(moved, task_.k, 0.0);
        sums_.resize(task_.k);
        for (int64_t e = 0; e < count; ++e) {
            sums_[e] = eta[labels[e]] + length * v_[begin_[a] + e];
            lowest = std::min(lowest, sums_[e]);
        }
        if (lowest < 0.0) {
            const ReducedThreshold at = reduced_threshold(sums_.data(), count, task_.cost[rows_[a]], work_.data());
            for (int64_t e = 0; e < count; ++e) sums_[e] = std::max((sums_[e] - at.top) - at.below, 0.0);
        }
        for (int64_t e = 0; e < count; ++e) moved[labels[e]] = sums_[e];
    }

    const SpocTask &task_;
    const std::vector<double> &norms_;
    double ridge_, length_ = 0.0;
    std::vector<double> G_, work_, sums_;
    std::vector<int64_t> rows_, label_, begin_{0};  // free rows, and the free classes of each
    double floor_ = 0.0;
    std::vector<double> v_, residual_, scaled_, direction_, curved_, moved_;
};

}  // namespace widemargin
