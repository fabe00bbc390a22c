// The kernels that take 16 labels at once through the rows or the columns, against plain loops in double, for every
// instruction set of this machine.
#include "kernel_cases.hpp"

using namespace widemargin;

namespace {

// The tables and factors of one iteration of 16 labels.
struct BatchCase {
    const Rows &rows;
    const int64_t lines, columns;  // numbers in a table by row and by column
    AlignedFloats Z, G, S, SZ, SP, cost, shared;
    std::vector<uint16_t> signs;
    std::vector<AlignedFloats> near;
    BatchArgs args{};

    explicit BatchCase(const Rows &rows, int score_size = 2)
        : rows(rows),
          lines(rows.n * LANES),
          columns(rows.n_cols * LANES),
          Z(table_of(columns, 2)),
          G(table_of(columns, 1)),
          S(table_of(lines, score_size)),
          SZ(table_of(lines, 2)),
          SP(table_of(lines, 2)),
          cost(table_of(rows.n, 2)),
          shared(table_of(rows.n * N_SHARED, 2)) {
        for (int64_t i = 0; i < rows.n; ++i) {
            cost[i] = std::abs(cost[i]);
            signs.push_back(static_cast<uint16_t>(draw(0, 65535)));
        }
        args.entries = rows.entries.data(), args.start = rows.start.data();
        args.cost = cost.get(), args.signs = signs.data(), args.shared = shared.get();
        args.Z = Z.get(), args.G = G.get(), args.S = S.get(), args.SZ = SZ.get(), args.SP = SP.get();
        args.sample_stride = 3, args.searched = 0xfdff, args.sampled = 0x0f00;
        fill(args.bias, 1);
        for (float *direction : args.theta) fill(direction, 1);
        for (float *values : {args.positive_factor, args.negative_factor, args.search_factor, args.reach, args.reach_z,
                              args.reach_p, args.largest_move}) {
            fill(values, 1);
            for (int lane = 0; lane < LANES; ++lane) values[lane] = std::abs(values[lane]);
        }
        args.positive_factor[5] = args.negative_factor[5] = 0.0f;  // a lane without a label
        for (int lane = 0; lane < LANES; ++lane) {
            near.push_back(aligned_floats((rows.n / LANES + 1) * NEAR_STRIDE));
            std::fill_n(near[lane].get(), (rows.n / LANES + 1) * NEAR_STRIDE, 77.0f);
            args.near[lane] = {near[lane].get(), 0};
            args.loss[lane] = 1, args.bias_sum[lane] = 2, args.curvature[lane] = 3;  // sums are added to these
        }
    }
    bool positive(int64_t i, int lane) const { return signs[i] >> lane & 1; }
    double factor(int64_t i, int lane) const {
        return double(cost[i]) * double(positive(i, lane) ? args.positive_factor[lane] : args.negative_factor[lane]);
    }
    // θ of a lane, and the directions of row i, given its scores.
    void thetas(int lane, float *theta) const {
        for (int j = 0; j < MAX_DIRECTIONS; ++j) theta[j] = args.theta[j][lane];
    }
    void directions(int64_t i, int lane, double s, double z, double p, double *v) const {
        v[0] = z, v[1] = p, v[2] = s - args.bias[lane], v[3] = 1;
        for (int j = 0; j < N_SHARED; ++j) v[N_DIRECTIONS + j] = shared[i * N_SHARED + j];
    }
};

// Row i times a column of a table.
double dot(const Rows &rows, int64_t i, const AlignedFloats &table, int lane) {
    double sum = 0;
    rows.each(i, [&](uint32_t col, double x) { sum += x * double(table[col * LANES + lane]); });
    return sum;
}

// with_shared: 1 if the kernel knows the shared directions, else 0.
void check_batch_dots(const VectorKernels &kernels, const Rows &rows, int with_shared) {
    BatchCase batch(rows);
    BatchArgs &args = batch.args;
    const int64_t cut = rows.n / 3;
    kernels.batch_dots[with_shared](args, 0, cut);
    kernels.batch_dots[with_shared](args, cut, rows.n);
    for (int lane = 0; lane < LANES; ++lane) {
        int64_t count = 0;
        for (int64_t i = 0; i < rows.n; ++i) {
            const double z = dot(rows, i, batch.Z, lane);
            const int64_t at = i * LANES + lane;
            CHECK(batch.SZ[at] == z);
            const double y = batch.positive(i, lane) ? 1 : -1;
            const double reach =
                args.reach[lane] + args.reach_z[lane] * std::abs(z) + args.reach_p[lane] * std::abs(batch.SP[at]);
            const bool listed = (args.searched >> lane & 1) && (y > 0 || !(args.sampled >> lane & 1) || i % 3 == 0);
            if (!listed || !(1 - y * batch.S[at] > -reach)) continue;
            const float *near = args.near[lane].blocks + NearRows::at(count++);
            CHECK(near[0] == batch.S[at] && near[LANES] == z && near[2 * LANES] == batch.SP[at]);
            const double search_cost = y > 0 ? args.positive_factor[lane] : -args.search_factor[lane];
            CHECK(near[3 * LANES] == search_cost * batch.cost[i]);
            for (int j = 0; j < N_SHARED; ++j) {
                CHECK(near[(4 + j) * LANES] == (with_shared ? batch.shared[i * N_SHARED + j] : 77.0f));
            }
        }
        CHECK(count == args.near[lane].count);
    }
}

// The step along n directions, and the gradient after it.
template <class Terms>
void check_gradient(void (*gradient)(BatchArgs &, int64_t, int64_t), const Rows &rows, int n, int score_size) {
    BatchCase batch(rows, score_size);
    const BatchArgs before = batch.args;
    const std::vector<double> S = copy_of(batch.S, batch.lines), SP = copy_of(batch.SP, batch.lines);
    std::vector<Sum> G(batch.columns);
    for (int64_t k = 0; k < batch.columns; ++k) G[k].add(batch.G[k]);
    gradient(batch.args, 0, rows.n / 3);
    gradient(batch.args, rows.n / 3, rows.n);
    for (int lane = 0; lane < LANES; ++lane) {
        float theta[MAX_DIRECTIONS];
        batch.thetas(lane, theta);
        Sum loss, bias_sum, curvature;
        loss.add(1), bias_sum.add(2), curvature.add(3);
        double largest = before.largest_move[lane];
        for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t at = i * LANES + lane;
            double v[MAX_DIRECTIONS];
            batch.directions(i, lane, S[at], batch.SZ[at], SP[at], v);
            const double now = moved(S[at], v, n, theta);
            CHECK(batch.S[at] == now && batch.SP[at] == now - theta[3] - S[at]);
            const double y = batch.positive(i, lane) ? 1 : -1;
            const Terms terms(y * now, batch.factor(i, lane));
            loss.add(terms.value), bias_sum.add(y * terms.alpha), curvature.add(terms.curvature);
            largest = std::max(largest, std::abs(now - S[at]));
            rows.each(i, [&](uint32_t col, double x) { G[col * LANES + lane].add(y * terms.alpha * x); });
        }
        CHECK(loss.is(batch.args.loss[lane]) && bias_sum.is(batch.args.bias_sum[lane]));
        CHECK(curvature.is(batch.args.curvature[lane]) && batch.args.largest_move[lane] == largest);
    }
    for (int64_t k = 0; k < batch.columns; ++k) CHECK(G[k].is(batch.G[k]));
}

void check_logistic_search(const VectorKernels &kernels, const Rows &rows, int score_size) {
    const BatchCase batch(rows, score_size);
    double sums[N_SEARCH_SUMS][LANES] = {};
    kernels.logistic_search(batch.args, 0, rows.n / 3, sums);
    kernels.logistic_search(batch.args, rows.n / 3, rows.n, sums);
    for (int lane = 0; lane < LANES; ++lane) {
        float theta[MAX_DIRECTIONS];
        batch.thetas(lane, theta);
        Sum expected[N_SEARCH_SUMS];
        for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t at = i * LANES + lane;
            const double y = batch.positive(i, lane) ? 1 : -1;
            double v[MAX_DIRECTIONS];
            batch.directions(i, lane, batch.S[at], batch.SZ[at], batch.SP[at], v);
            const LogisticTerms terms(y * moved(batch.S[at], v, N_DIRECTIONS, theta), batch.factor(i, lane));
            add_search_terms(v, N_DIRECTIONS, 0.5 * y * terms.alpha, 0.5 * terms.curvature, terms.value, expected);
        }
        for (int j = 0; j < N_SEARCH_SUMS; ++j) CHECK(expected[j].is(sums[j][lane]));
    }
}

void check_features(const VectorKernels &kernels, int64_t n_cols, int with_shared) {
    const int64_t n = n_cols * LANES;
    const AlignedFloats W = table_of(n, 2), P = table_of(n, 2), Z = table_of(n, 2), G = table_of(n, 2);
    const AlignedFloats spread = table_of(n_cols, 2), shared = table_of(n_cols * N_SHARED, 2);
    for (int64_t k = 0; k < n_cols; ++k) spread[k] = std::abs(spread[k]);
    const std::vector<double> w0 = copy_of(W, n), p0 = copy_of(P, n), z0 = copy_of(Z, n), g0 = copy_of(G, n);
    FeatureArgs args{};
    args.n_cols = n_cols, args.spread = spread.get(), args.shared = shared.get();
    args.W = W.get(), args.P = P.get(), args.Z = Z.get(), args.G = G.get();
    for (float *direction : args.theta) fill(direction, 1);
    fill(args.scaling, 1);
    for (float &scaling : args.scaling) scaling = std::abs(scaling);
    std::fill_n(args.zz, LANES, 99.0);  // what was there is overwritten
    std::fill_n(args.vz[0], N_SHARED * LANES, 99.0);
    kernels.batch_features[with_shared](args);
    for (int lane = 0; lane < LANES; ++lane) {
        Sum products[7], along[N_SHARED];
        for (int64_t k = lane; k < n; k += LANES) {
            const float *v = shared.get() + k / LANES * N_SHARED;
            double step = args.theta[0][lane] * z0[k] + args.theta[1][lane] * p0[k] + args.theta[2][lane] * w0[k];
            for (int j = 0; j < N_SHARED * with_shared; ++j) step += args.theta[N_DIRECTIONS + j][lane] * v[j];
            const double now = w0[k] + step, descent = g0[k] - now;
            const double direction = descent / (1 + double(args.scaling[lane]) * spread[k / LANES]);
            CHECK(W[k] == now && P[k] == step && G[k] == 0.0f && close(Z[k], direction));
            const double terms[] = {direction * direction, direction * step, direction * now,
                                    step * step,           step * now,       now * now,
                                    descent * descent};
            for (int j = 0; j < 7; ++j) products[j].add(terms[j]);
            for (int j = 0; j < N_SHARED; ++j) along[j].add(v[j] * direction);
        }
        const double found[] = {args.zz[lane], args.zp[lane], args.zw[lane], args.pp[lane],
                                args.pw[lane], args.ww[lane], args.gg[lane]};
        for (int j = 0; j < 7; ++j) CHECK(products[j].is(found[j]));
        for (int j = 0; j < N_SHARED; ++j)
            CHECK(with_shared ? along[j].is(args.vz[j][lane]) : args.vz[j][lane] == 99.0);
    }
}

// A pass that computes SZ, and the sums of a search along z from there; lanes of `fresh` start.
void check_logistic_dots(const VectorKernels &kernels, const Rows &rows, uint32_t fresh, int score_size) {
    const BatchCase batch(rows, score_size);
    const std::vector<double> S = copy_of(batch.S, batch.lines), SP = copy_of(batch.SP, batch.lines);
    const AlignedFloats mean_scores = table_of(rows.n, 2);
    const float *means = fresh == 0 ? nullptr : mean_scores.get();
    double sums[N_SEARCH_SUMS][LANES];
    std::fill_n(sums[0], N_SEARCH_SUMS * LANES, 2.0);  // sums are added to these
    kernels.logistic_dots(batch.args, 0, rows.n / 3, fresh, means, sums);
    kernels.logistic_dots(batch.args, rows.n / 3, rows.n, fresh, means, sums);
    for (int lane = 0; lane < LANES; ++lane) {
        const bool starts = fresh >> lane & 1;
        Sum expected[N_SEARCH_SUMS];
        for (Sum &sum : expected) sum.add(2.0);
        for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t at = i * LANES + lane;
            const double s = starts ? double(batch.args.bias[lane]) : S[at], p = starts ? double(means[i]) : SP[at];
            const double z = dot(rows, i, batch.Z, lane), now = s + batch.args.theta[0][lane] * z;
            CHECK(batch.S[at] == s && batch.SP[at] == p && batch.SZ[at] == z);
            const double y = batch.positive(i, lane) ? 1 : -1;
            double v[MAX_DIRECTIONS];
            batch.directions(i, lane, now, z, p, v);
            const LogisticTerms terms(y * now, batch.factor(i, lane));
            add_search_terms(v, N_DIRECTIONS, 0.5 * y * terms.alpha, 0.5 * terms.curvature, 0.0, expected);
        }
        for (int j = 0; j < N_SEARCH_SUMS; ++j) CHECK(expected[j].is(sums[j][lane]));
    }
}

void check_set_lanes(const VectorKernels &kernels, int64_t n, uint32_t keep) {
    const AlignedFloats table = table_of((n + 1) * LANES, 2), by_line = table_of(n, 2), by_lane = table_of(LANES, 2);
    std::vector<double> expected = copy_of(table, (n + 1) * LANES);  // the last line stays
    for (const float *lines : {static_cast<const float *>(by_line.get()), static_cast<const float *>(nullptr)}) {
        kernels.set_lanes(n, keep, lines, by_lane.get(), table.get());
        for (int64_t k = 0; k < n * LANES; ++k) {
            if (keep >> k % LANES & 1) continue;
            expected[k] = double(by_lane[k % LANES]) + (lines == nullptr ? 0.0 : double(lines[k / LANES]));
        }
        CHECK(copy_of(table, (n + 1) * LANES) == expected);
    }
}

// With one shared direction, the products with the others are zero.
void check_first_products(const VectorKernels &kernels, int64_t n_cols) {
    const AlignedFloats Z = table_of(n_cols * LANES, 2), shared = table_of(n_cols * N_SHARED, 2);
    for (int variant : {0, 1}) {
        const int n_shared = variant == 0 ? 1 : N_SHARED;
        FeatureArgs args{};
        args.n_cols = n_cols, args.Z = Z.get(), args.shared = shared.get();
        std::fill_n(args.zz, LANES, 99.0);
        std::fill_n(args.vz[0], N_SHARED * LANES, 99.0);
        kernels.first_products[variant](args);
        for (int lane = 0; lane < LANES; ++lane) {
            Sum zz, vz[N_SHARED];
            for (int64_t k = 0; k < n_cols; ++k) {
                const double z = Z[k * LANES + lane];
                zz.add(z * z);
                for (int j = 0; j < n_shared; ++j) vz[j].add(shared[k * n_shared + j] * z);
            }
            CHECK(zz.is(args.zz[lane]));
            for (int j = 0; j < N_SHARED; ++j) CHECK(vz[j].is(args.vz[j][lane]));
        }
    }
}

// Either result may be left out; rows between those of the sample keep what is in SZ.
void check_power_step(const VectorKernels &kernels, const Rows &rows, int64_t stride, bool with_G, bool with_SZ) {
    const BatchCase batch(rows);
    const std::vector<double> G = copy_of(batch.G, batch.columns), SZ = copy_of(batch.SZ, batch.lines);
    kernels.power_step({rows.n, stride, rows.entries.data(), rows.start.data(), batch.cost.get(), batch.Z.get(),
                        with_G ? batch.G.get() : nullptr, with_SZ ? batch.SZ.get() : nullptr});
    for (int lane = 0; lane < LANES; ++lane) {
        std::vector<Sum> expected(rows.n_cols);
        for (int64_t k = 0; k < rows.n_cols; ++k) expected[k].add(G[k * LANES + lane]);
        for (int64_t i = 0; i < rows.n; ++i) {
            const bool taken = i % stride == 0;
            const double z = dot(rows, i, batch.Z, lane);
            CHECK(batch.SZ[i * LANES + lane] == (taken && with_SZ ? z : SZ[i * LANES + lane]));
            if (!taken || !with_G) continue;
            rows.each(i, [&](uint32_t col, double x) { expected[col].add(batch.cost[i] * z * x); });
        }
        for (int64_t k = 0; k < rows.n_cols; ++k) CHECK(expected[k].is(batch.G[k * LANES + lane]));
    }
}

void check_gram(const VectorKernels &kernels, int64_t n) {
    const AlignedFloats table = table_of(n * LANES, 2), costs = table_of(n, 2);
    for (const float *cost : {static_cast<const float *>(costs.get()), static_cast<const float *>(nullptr)}) {
        double out[LANES][LANES];
        std::fill_n(out[0], LANES * LANES, 0.5);  // products are added to these
        kernels.gram(n, table.get(), cost, out);
        for (int a = 0; a < LANES; ++a) {
            for (int b = 0; b < LANES; ++b) {
                Sum expected;
                expected.add(0.5);
                for (int64_t i = 0; i < n; ++i) {
                    const double c = cost == nullptr ? 1.0 : cost[i];
                    expected.add(c * double(table[i * LANES + a]) * double(table[i * LANES + b]));
                }
                CHECK(expected.is(out[a][b]));
            }
        }
    }
}

void check_rows(const VectorKernels &kernels, const Rows &rows) {
    for (int with_shared : {0, 1}) {
        check_batch_dots(kernels, rows, with_shared);
        const int n = with_shared ? MAX_DIRECTIONS : N_DIRECTIONS;
        check_gradient<HingeTerms>(kernels.batch_gradient[with_shared], rows, n, 2);
    }
    for (int score_size : {2, 200}) {  // with 200, e⁻ᵐ is below the smallest float
        check_gradient<LogisticTerms>(kernels.logistic_gradient, rows, N_DIRECTIONS, score_size);
        check_logistic_search(kernels, rows, score_size);
        for (uint32_t fresh : {0u, 0x8421u, 0xffffu}) check_logistic_dots(kernels, rows, fresh, score_size);
    }
    for (int64_t stride : {1, 4}) {
        check_power_step(kernels, rows, stride, true, true);
        check_power_step(kernels, rows, stride, true, false);
        check_power_step(kernels, rows, stride, false, true);
    }
}

void check_all(const VectorKernels &kernels) {
    for (int64_t n : {1, 2, 3, 5, 63, 64, 65, 255, 300, 900}) {
        check_rows(kernels, Rows(n));
        for (int with_shared : {0, 1}) check_features(kernels, n, with_shared);
        for (uint32_t keep : {0u, 0x8421u, 0xffffu}) check_set_lanes(kernels, n, keep);
        check_first_products(kernels, n);
        check_gram(kernels, n);
    }
}

}  // namespace

int main() {
    for (const std::string &name : available_instruction_sets()) check_all(choose_kernels(name));
    return 0;
}
