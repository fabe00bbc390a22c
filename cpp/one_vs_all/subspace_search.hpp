// The exact minimiser of one label's objective over a subspace of four directions,
//
//     min over θ of  ½‖w + θ₀ z + θ₁ p + θ₂ w‖² + ½ bias_penalty (b + θ₃)² + Σ_i c_i max(0, 1 − y_i s_i(θ))²,
//     s_i(θ) = s_i + θ₀ sz_i + θ₁ sp_i + θ₂ (s_i − b) + θ₃,
//
// where z is the negative gradient and p the previous step (SESOP of Narkiss & Zibulevsky). This is a convex piecewise
// quadratic in four variables: Newton steps, shortened by the secant rule if the slope along the step turns positive.
// The caller computes the sums over rows (for one label, or 16 in a batch), so this is a small state machine: evaluate
// at `theta()` and pass the sums to `absorb` until it is done.
#pragma once

#include <algorithm>
#include <cmath>

namespace widemargin {

constexpr int N_DIRECTIONS = 4;            // z, p, w, intercept
constexpr int N_SEARCH_SUMS = 4 + 10 + 1;  // gradient, upper triangle of the Hessian, loss

constexpr double SEARCH_REDUCTION = 0.07;  // of the scaled gradient; a looser value costs more iterations than it saves
constexpr int MAX_SEARCH_PASSES = 8;
constexpr double LARGEST_STEP = 1e18;    // its square is still a float
constexpr int SOLO_ITERATIONS = 2;       // iterations from zero in which w is collinear with p
constexpr double SEARCH_RIDGE = 1e-5;    // relative to the diagonal; directions may be nearly collinear
constexpr double OVERSHOOT_SHARE = 0.3;  // of the slope at the start of a step

// Inner products of the directions, and the intercept's penalty.
struct SubspaceProducts {
    double zz = 0, zp = 0, zw = 0, pp = 0, pw = 0, ww = 0;
    double bias = 0, bias_penalty = 0;
};

class SubspaceSearch {
  public:
    // use[j]: whether direction j takes part.
    void begin(const SubspaceProducts &products, const bool *use) {
        products_ = products;
        std::copy(use, use + N_DIRECTIONS, use_);
        std::fill_n(base_, N_DIRECTIONS, 0.0);
        std::fill_n(step_, N_DIRECTIONS, 0.0);
        passes_ = 0;
        set_trial();
    }
    const float *theta() const { return trial_; }

    // sums: Σ c m y v_j (4), Σ c v_j v_k upper triangle (10), Σ c m² over active rows at theta(). True when done.
    bool absorb(const double *sums) {
        double gradient[N_DIRECTIONS], H[N_DIRECTIONS][N_DIRECTIONS];
        derivatives(sums, gradient, H);
        if (passes_++ == 0) {
            start_norm_ = scaled_norm(gradient, H);
        } else {
            double slope = 0;
            for (int j = 0; j < N_DIRECTIONS; ++j) slope += gradient[j] * step_[j];
            if (slope > OVERSHOOT_SHARE * descent_ && passes_ < MAX_SEARCH_PASSES) return shorten(slope);
            for (int j = 0; j < N_DIRECTIONS; ++j) base_[j] = trial_[j];
        }
        if (scaled_norm(gradient, H) <= (passes_ > 1 ? SEARCH_REDUCTION : 0.0) * start_norm_) return true;
        if (passes_ >= MAX_SEARCH_PASSES) return true;
        return !newton_step(gradient, H);
    }

  private:
    SubspaceProducts products_;
    bool use_[N_DIRECTIONS] = {};
    double base_[N_DIRECTIONS] = {}, step_[N_DIRECTIONS] = {};
    float trial_[N_DIRECTIONS] = {};
    double start_norm_ = 0, descent_ = 0;
    int passes_ = 0;

    void set_trial() {
        for (int j = 0; j < N_DIRECTIONS; ++j) trial_[j] = static_cast<float>(base_[j] + step_[j]);
    }

    // The step overshot the minimum along itself: goes back to where a linear slope would vanish.
    bool shorten(double slope) {
        const double share = descent_ / (descent_ + slope);
        for (double &x : step_) x *= share;
        descent_ *= share;
        set_trial();
        return false;
    }

    void derivatives(const double *sums, double *gradient, double (*H)[N_DIRECTIONS]) const {
        const SubspaceProducts &q = products_;
        const double quadratic[N_DIRECTIONS][N_DIRECTIONS] = {
            {q.zz, q.zp, q.zw, 0}, {q.zp, q.pp, q.pw, 0}, {q.zw, q.pw, q.ww, 0}, {0, 0, 0, q.bias_penalty}};
        const double linear[N_DIRECTIONS] = {q.zw, q.pw, q.ww, q.bias_penalty * q.bias};
        const double *upper = sums + N_DIRECTIONS;
        for (int j = 0; j < N_DIRECTIONS; ++j) {
            gradient[j] = linear[j] - 2 * sums[j];
            for (int k = 0; k < N_DIRECTIONS; ++k) gradient[j] += quadratic[j][k] * trial_[k];
            for (int k = j; k < N_DIRECTIONS; ++k) H[j][k] = H[k][j] = quadratic[j][k] + 2 * *upper++;
        }
        for (int j = 0; j < N_DIRECTIONS; ++j) {
            if (use_[j] && H[j][j] > 0) continue;
            gradient[j] = 0;
            for (int k = 0; k < N_DIRECTIONS; ++k) H[j][k] = H[k][j] = 0;
            H[j][j] = 1;
        }
    }

    static double scaled_norm(const double *gradient, const double (*H)[N_DIRECTIONS]) {
        double sum = 0;
        for (int j = 0; j < N_DIRECTIONS; ++j) sum += gradient[j] * gradient[j] / H[j][j];
        return std::sqrt(sum);
    }

    // step = −H⁻¹ gradient by Cholesky of the matrix scaled to a unit diagonal, with a small ridge. False, and no step,
    // if float32 cannot hold it.  Sets: step_, descent_, trial_.
    bool newton_step(const double *gradient, const double (*H)[N_DIRECTIONS]) {
        double L[N_DIRECTIONS][N_DIRECTIONS] = {}, scale[N_DIRECTIONS], x[N_DIRECTIONS];
        for (int j = 0; j < N_DIRECTIONS; ++j) scale[j] = 1 / std::sqrt(H[j][j]);
        for (int j = 0; j < N_DIRECTIONS; ++j) {
            for (int k = 0; k <= j; ++k) {
                double a = H[j][k] * scale[j] * scale[k] + (j == k ? SEARCH_RIDGE : 0.0);
                for (int l = 0; l < k; ++l) a -= L[j][l] * L[k][l];
                L[j][k] = j == k ? std::sqrt(std::max(a, SEARCH_RIDGE)) : a / L[k][k];
            }
        }
        for (int j = 0; j < N_DIRECTIONS; ++j) {
            x[j] = -gradient[j] * scale[j];
            for (int l = 0; l < j; ++l) x[j] -= L[j][l] * x[l];
            x[j] /= L[j][j];
        }
        descent_ = 0;
        for (int j = N_DIRECTIONS - 1; j >= 0; --j) {
            for (int l = j + 1; l < N_DIRECTIONS; ++l) x[j] -= L[l][j] * x[l];
            x[j] /= L[j][j];
            step_[j] = x[j] * scale[j];
            descent_ -= gradient[j] * step_[j];
        }
        double largest = 0;
        for (double x : step_) largest += std::abs(x);
        if (!(largest < LARGEST_STEP)) std::fill_n(step_, N_DIRECTIONS, 0.0);
        set_trial();
        return largest < LARGEST_STEP;
    }
};

}  // namespace widemargin
