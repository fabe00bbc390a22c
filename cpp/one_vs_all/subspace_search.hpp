// The exact minimiser of one label's objective over a subspace of four directions, and of orthonormal directions v_j
// that all labels share if there are any (one_vs_all/shared_directions.hpp),
//
//     min over θ of  ½‖w + θ₀ z + θ₁ p + θ₂ w + Σ_j θ₄₊ⱼ v_j‖² + ½ bias_penalty (b + θ₃)²
//                    + Σ_i c_i max(0, 1 − y_i s_i(θ))²,
//     s_i(θ) = s_i + θ₀ sz_i + θ₁ sp_i + θ₂ (s_i − b) + θ₃ + Σ_j θ₄₊ⱼ v_j·x_i,
//
// where z is the negative gradient and p the previous step (SESOP of Narkiss & Zibulevsky). This is a convex piecewise
// quadratic in few variables: Newton steps, shortened by the secant rule if the slope along the step turns positive.
// The caller computes the sums over rows (for one label, or 16 in a batch), so this is a small state machine: evaluate
// at `theta()` and pass the sums to `absorb` until it is done.
#pragma once

#include <algorithm>
#include <cmath>

namespace widemargin {

constexpr int N_DIRECTIONS = 4;  // z, p, w, intercept
constexpr int N_SHARED = 2;      // directions that the labels of a batch share
constexpr int MAX_DIRECTIONS = N_DIRECTIONS + N_SHARED;
// gradient, upper triangle of the Hessian, loss
constexpr int n_search_sums(int n) { return n + n * (n + 1) / 2 + 1; }
constexpr int N_SEARCH_SUMS = n_search_sums(N_DIRECTIONS);
constexpr int MAX_SEARCH_SUMS = n_search_sums(MAX_DIRECTIONS);

constexpr double SEARCH_REDUCTION = 0.07;  // of the scaled gradient; a looser value costs more iterations than it saves
constexpr int MAX_SEARCH_PASSES = 8;
// With shared directions, a pass with the Hessian costs three times one without: the second Hessian is kept while the
// gradient falls quickly. That takes 0.2 to 0.5 passes more per search.
constexpr int HESSIAN_PASSES = 2;
constexpr double SLOW_SHARE = 0.3;
constexpr double LARGEST_STEP = 1e18;    // its square is still a float
constexpr int SOLO_ITERATIONS = 2;       // iterations from zero in which w is collinear with p
constexpr double SEARCH_RIDGE = 1e-5;    // relative to the diagonal; directions may be nearly collinear
constexpr double OVERSHOOT_SHARE = 0.3;  // of the slope at the start of a step

// Inner products of the directions, and the intercept's penalty.
struct SubspaceProducts {
    double zz = 0, zp = 0, zw = 0, pp = 0, pw = 0, ww = 0;
    double bias = 0, bias_penalty = 0;
    double vz[N_SHARED] = {}, vp[N_SHARED] = {}, vw[N_SHARED] = {};
};

// N: N_DIRECTIONS, or MAX_DIRECTIONS to search the shared ones, too.
template <int N = N_DIRECTIONS>
class SubspaceSearch {
  public:
    // use[j]: whether direction j takes part.
    void begin(const SubspaceProducts &products, const bool *use) {
        for (int j = 0; j < N; ++j) {
            for (int k = j; k < N; ++k) quadratic_[j][k] = quadratic_[k][j] = product(products, j, k);
            linear_[j] = j == 3 ? products.bias_penalty * products.bias : quadratic_[j][2];
        }
        std::copy(use, use + N, use_);
        std::fill_n(base_, N, 0.0);
        std::fill_n(step_, N, 0.0);
        passes_ = 0;
        wants_hessian_ = true;
        set_trial();
    }
    const float *theta() const { return trial_; }

    // Whether the next sums must contain the Hessian.
    bool wants_hessian() const { return wants_hessian_; }

    // sums: Σ c m y v_j (N), Σ c v_j v_k upper triangle, Σ c m² over active rows at theta(). True when done.
    bool absorb(const double *sums) {
        double gradient[N];
        if (wants_hessian_) set_hessian(sums + N);
        set_gradient(sums, gradient);
        const double norm = scaled_norm(gradient);
        if (passes_++ == 0) {
            start_norm_ = norm;
        } else {
            double slope = 0;
            for (int j = 0; j < N; ++j) slope += gradient[j] * step_[j];
            if (slope > OVERSHOOT_SHARE * descent_ && passes_ < MAX_SEARCH_PASSES) return shorten(slope);
            for (int j = 0; j < N; ++j) base_[j] = trial_[j];
        }
        if (norm <= (passes_ > 1 ? SEARCH_REDUCTION : 0.0) * start_norm_) return true;
        if (passes_ >= MAX_SEARCH_PASSES) return true;
        wants_hessian_ = N == N_DIRECTIONS || passes_ < HESSIAN_PASSES || norm > SLOW_SHARE * last_norm_;
        last_norm_ = norm;
        return !newton_step(gradient);
    }

  private:
    double quadratic_[N][N], linear_[N], H_[N][N];
    bool use_[N] = {}, moves_[N] = {};
    double base_[N] = {}, step_[N] = {};
    float trial_[N] = {};
    double start_norm_ = 0, last_norm_ = 0, descent_ = 0;
    bool wants_hessian_ = true;
    int passes_ = 0;

    void set_trial() {
        for (int j = 0; j < N; ++j) trial_[j] = static_cast<float>(base_[j] + step_[j]);
    }

    // The step overshot the minimum along itself: goes back to where a linear slope would vanish.
    bool shorten(double slope) {
        const double share = descent_ / (descent_ + slope);
        for (double &x : step_) x *= share;
        descent_ *= share;
        wants_hessian_ = true;
        set_trial();
        return false;
    }

    // Inner product of directions j ≤ k; the intercept is orthogonal to the others.
    static double product(const SubspaceProducts &q, int j, int k) {
        const double own[N_DIRECTIONS][N_DIRECTIONS] = {
            {q.zz, q.zp, q.zw, 0}, {q.zp, q.pp, q.pw, 0}, {q.zw, q.pw, q.ww, 0}, {0, 0, 0, q.bias_penalty}};
        if (k < N_DIRECTIONS) return own[j][k];
        if (j >= N_DIRECTIONS) return j == k ? 1.0 : 0.0;
        const double *shared[N_DIRECTIONS] = {q.vz, q.vp, q.vw, nullptr};
        return shared[j] == nullptr ? 0.0 : shared[j][k - N_DIRECTIONS];
    }

    // Directions that take no part get the identity.
    void set_hessian(const double *upper) {
        for (int j = 0; j < N; ++j) {
            for (int k = j; k < N; ++k) H_[j][k] = H_[k][j] = quadratic_[j][k] + 2 * *upper++;
        }
        for (int j = 0; j < N; ++j) {
            moves_[j] = use_[j] && H_[j][j] > 0;
            if (moves_[j]) continue;
            for (int k = 0; k < N; ++k) H_[j][k] = H_[k][j] = 0;
            H_[j][j] = 1;
        }
    }

    void set_gradient(const double *sums, double *gradient) const {
        for (int j = 0; j < N; ++j) {
            gradient[j] = linear_[j] - 2 * sums[j];
            for (int k = 0; k < N; ++k) gradient[j] += quadratic_[j][k] * trial_[k];
            if (!moves_[j]) gradient[j] = 0;
        }
    }

    double scaled_norm(const double *gradient) const {
        double sum = 0;
        for (int j = 0; j < N; ++j) sum += gradient[j] * gradient[j] / H_[j][j];
        return std::sqrt(sum);
    }

    // step = −H⁻¹ gradient by Cholesky of the matrix scaled to a unit diagonal, with a small ridge. False, and no step,
    // if float32 cannot hold it.  Sets: step_, descent_, trial_.
    bool newton_step(const double *gradient) {
        double L[N][N] = {}, scale[N], x[N];
        for (int j = 0; j < N; ++j) scale[j] = 1 / std::sqrt(H_[j][j]);
        for (int j = 0; j < N; ++j) {
            for (int k = 0; k <= j; ++k) {
                double a = H_[j][k] * scale[j] * scale[k] + (j == k ? SEARCH_RIDGE : 0.0);
                for (int l = 0; l < k; ++l) a -= L[j][l] * L[k][l];
                L[j][k] = j == k ? std::sqrt(std::max(a, SEARCH_RIDGE)) : a / L[k][k];
            }
        }
        for (int j = 0; j < N; ++j) {
            x[j] = -gradient[j] * scale[j];
            for (int l = 0; l < j; ++l) x[j] -= L[j][l] * x[l];
            x[j] /= L[j][j];
        }
        descent_ = 0;
        for (int j = N - 1; j >= 0; --j) {
            for (int l = j + 1; l < N; ++l) x[j] -= L[l][j] * x[l];
            x[j] /= L[j][j];
            step_[j] = x[j] * scale[j];
            descent_ -= gradient[j] * step_[j];
        }
        double largest = 0;
        for (int j = 0; j < N; ++j) largest += std::abs(step_[j]);
        if (!(largest < LARGEST_STEP)) std::fill_n(step_, N, 0.0);
        set_trial();
        return largest < LARGEST_STEP;
    }
};

}  // namespace widemargin
