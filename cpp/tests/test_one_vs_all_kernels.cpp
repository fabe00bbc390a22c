// Every vector kernel of the fast and batched one-vs-all solvers against plain loops in double, for every instruction
// set of this machine. Inputs are multiples of 1/8, so scores are exact: fused or not, a row is on the same side of a
// threshold, and rows exactly at it occur.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"
#include "one_vs_all/kernels.hpp"

using namespace widemargin;

namespace {

std::mt19937 generator(1);
int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); }
float eighths(int largest) { return static_cast<float>(draw(-8 * largest, 8 * largest)) / 8; }

// An aligned table of multiples of 1/8.
AlignedFloats table_of(int64_t n, int largest) {
    AlignedFloats values = aligned_floats(n);
    for (int64_t k = 0; k < n; ++k) values[k] = eighths(largest);
    return values;
}
std::vector<double> copy_of(const AlignedFloats &values, int64_t n) { return {values.get(), values.get() + n}; }
void fill(float *values, int largest) {
    for (int lane = 0; lane < LANES; ++lane) values[lane] = eighths(largest);
}

// A sum of float32 products: right if it is within 2e-6 of the sum of their magnitudes, or of e⁻⁸⁷, the least value of
// the exponential, times products of scores.
struct Sum {
    double value = 0, size = 0;
    void add(double x) { value += x, size += std::abs(x); }
    bool is(double found) const { return std::abs(found - value) <= 2e-6 * size + 1e-32; }
};
bool close(double found, double expected) { return std::abs(found - expected) <= 2e-6 * (1 + std::abs(expected)); }

// Rows sorted by length, from none to 40 entries, with the padding that prefetches read.
struct Rows {
    int64_t n, n_cols = 50;
    std::vector<int64_t> start{0};
    std::vector<RowEntry> entries;

    explicit Rows(int64_t n) : n(n) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t length = 41 * i / n;
            for (int64_t k = 0; k < length; ++k) {
                entries.push_back({static_cast<uint32_t>(k + draw(0, 1) * (k + 10 < n_cols ? 10 : 0)), eighths(2)});
            }
            start.push_back(static_cast<int64_t>(entries.size()));
        }
        entries.resize(entries.size() + PREFETCH_ENTRIES + LINE_ENTRIES);
    }
    template <class F>
    void each(int64_t i, F visit) const {
        for (int64_t k = start[i]; k < start[i + 1]; ++k) visit(entries[k].col, static_cast<double>(entries[k].val));
    }
};

const float THETA[N_DIRECTIONS] = {0.5f, -0.25f, 0.125f, 0.75f};

void check_steps(const VectorKernels &kernels, int64_t n) {
    const AlignedFloats z = table_of(n, 4), p = table_of(n, 4), w = table_of(n, 4);
    const std::vector<double> z0 = copy_of(z, n), p0 = copy_of(p, n), w0 = copy_of(w, n);
    double products[3];
    Sum expected[6];
    kernels.direction_products(n, z.get(), p.get(), w.get(), products);
    for (int64_t k = 0; k < n; ++k) {
        expected[0].add(z0[k] * z0[k]), expected[1].add(z0[k] * p0[k]), expected[2].add(z0[k] * w0[k]);
    }
    for (int j = 0; j < 3; ++j) CHECK(expected[j].is(products[j]));

    kernels.step_features(n, THETA, z.get(), p.get(), w.get(), products);
    for (int64_t k = 0; k < n; ++k) {
        const double step = THETA[0] * z0[k] + THETA[1] * p0[k] + THETA[2] * w0[k], now = w0[k] + step;
        CHECK(p[k] == step && w[k] == now && z[k] == -now);
        expected[3].add(step * step), expected[4].add(step * now), expected[5].add(now * now);
    }
    for (int j = 0; j < 3; ++j) CHECK(expected[3 + j].is(products[j]));

    const AlignedFloats s = table_of(n, 4), sz = table_of(n, 4), sp = table_of(n, 4);
    const std::vector<double> s0 = copy_of(s, n), sp0 = copy_of(sp, n);
    kernels.step_rows(n, 0.25f, THETA, sz.get(), sp.get(), s.get());
    for (int64_t i = 0; i < n; ++i) {
        const double step = THETA[0] * sz[i] + THETA[1] * sp0[i] + THETA[2] * (s0[i] - 0.25);
        CHECK(sp[i] == step && s[i] == s0[i] + step + THETA[3]);
    }
}

// The sums of a subspace search: of αy v_j, hv_j v_k and the loss, for v = (z, p, w, 1).
void add_search_terms(double s, double z, double p, double bias, double alpha_y, double h, double loss, Sum *sums) {
    const double v[N_DIRECTIONS] = {z, p, s - bias, 1.0};
    int at = N_DIRECTIONS;
    for (int j = 0; j < N_DIRECTIONS; ++j) {
        sums[j].add(alpha_y * v[j]);
        for (int k = j; k < N_DIRECTIONS; ++k) sums[at++].add(h * v[j] * v[k]);
    }
    sums[at].add(loss);
}
double moved(double s, double z, double p, double bias, const float *theta) {
    return s + theta[0] * z + theta[1] * p + theta[2] * (s - bias) + theta[3];
}

void check_search(const VectorKernels &kernels, int64_t n, bool interleaved) {
    const int64_t stride = interleaved ? NEAR_STRIDE : LANES, part = interleaved ? LANES : n;
    const AlignedFloats values = table_of(NEAR_ARRAYS * n, 3);
    const float *at = values.get();
    const SearchRows rows{n, stride, at, at + part, at + 2 * part, at + 3 * part};
    for (int64_t i = 0; i < n; i += 5) values[3 * part + i / LANES * stride + i % LANES] = i % 2 == 0 ? 0.0f : -0.0f;
    double sums[N_SEARCH_SUMS];
    kernels.search_sums(rows, 0.25f, THETA, sums);
    Sum expected[N_SEARCH_SUMS];
    for (int64_t i = 0; i < n; ++i) {
        const int64_t k = i / LANES * stride + i % LANES;
        const double y = std::signbit(rows.signed_cost[k]) ? -1 : 1, cost = std::abs(rows.signed_cost[k]);
        const double short_of = 1 - y * moved(rows.s[k], rows.sz[k], rows.sp[k], 0.25, THETA);
        if (!(short_of > 0)) continue;
        add_search_terms(rows.s[k], rows.sz[k], rows.sp[k], 0.25, cost * short_of * y, cost, cost * short_of * short_of,
                         expected);
    }
    for (int j = 0; j < N_SEARCH_SUMS; ++j) CHECK(expected[j].is(sums[j]));
}

void check_dots(const VectorKernels &kernels, const Rows &rows) {
    const AlignedFloats v = table_of(2 * rows.n_cols, 4);
    std::vector<float> out(rows.n + 1, 77.0f);
    kernels.row_dots(rows.n, rows.start.data(), rows.entries.data(), v.get(), out.data());
    CHECK(out[rows.n] == 77.0f);
    std::vector<double> exact(rows.entries.size());
    for (double &x : exact) x = draw(-1000, 1000) / 1024.0;
    for (int64_t i = 0; i < rows.n; ++i) {
        double dot = 0, pair[2] = {}, exact_pair[2] = {}, found[2];
        rows.each(i, [&](uint32_t col, double x) {
            dot += x * v[col];
            for (int j = 0; j < 2; ++j) pair[j] += x * v[2 * col + j];
        });
        for (int64_t k = rows.start[i]; k < rows.start[i + 1]; ++k) {
            for (int j = 0; j < 2; ++j) exact_pair[j] += exact[k] * v[2 * rows.entries[k].col + j];
        }
        CHECK(out[i] == dot);
        const RowView view{static_cast<uint32_t>(i), static_cast<uint32_t>(rows.start[i + 1] - rows.start[i]),
                           rows.entries.data() + rows.start[i]};
        kernels.pair_dots(view, nullptr, v.get(), found);
        CHECK(found[0] == pair[0] && found[1] == pair[1]);
        kernels.pair_dots(view, exact.data() + rows.start[i], v.get(), found);
        CHECK(found[0] == exact_pair[0] && found[1] == exact_pair[1]);
    }
}

// A pass of 32 lanes over packed rows. With `extreme`, rows have up to two entries, and sums are up to 2 · 32767².
struct ScanCase {
    const Rows &rows;
    bool extreme;
    AlignedArray<int16_t> table;
    std::vector<int32_t> allowance;
    std::vector<float> slack;
    std::vector<std::vector<EmittedRow>> out;
    std::vector<std::vector<RowEntry>> copies;
    ScanArgs args{};

    ScanCase(const Rows &rows, bool extreme)
        : rows(rows), extreme(extreme), table(aligned_array<int16_t>(rows.n_cols * SCAN_LANES)) {
        const int largest = extreme ? 32767 : 500;
        for (int64_t k = 0; k < rows.n_cols * SCAN_LANES; ++k) {
            table[k] = static_cast<int16_t>(extreme ? (draw(0, 1) ? largest : -largest) : draw(-largest, largest));
        }
        for (int64_t i = 0; i < rows.n; ++i) {
            allowance.push_back(draw(0, 1000));
            slack.push_back(static_cast<float>(draw(0, 3)));
        }
        args.entries = rows.entries.data(), args.start = rows.start.data();
        args.scale = extreme ? 32767.0f : 16000.0f;
        args.allowance = allowance.data(), args.slack = slack.data(), args.table = table.get();
        for (int lane = 0; lane < SCAN_LANES; ++lane) set_lane(lane);
    }
    void set_lane(int lane) {
        args.bias[lane] = eighths(1);
        args.unit[lane] = 0.125f;
        args.with_slack[lane] = lane % 2 == 0 ? 1.0f : 0.0f;
        args.slack_share[lane] = lane % 2 == 0 ? 1024.0f : 0.0f;  // a power of two: slack times share is exact
        args.limit[lane] = lane % 7 == 3   ? INFINITY
                           : lane % 7 == 4 ? -INFINITY
                                           : static_cast<float>(draw(-30000, 30000)) * (extreme ? 30000 : 100);
        args.room[lane] = lane % 3 == 0 ? 100 : 1u << 16;
        out.emplace_back(rows.n + LINE_ENTRIES);
        copies.emplace_back(args.room[lane] + COPY_STEP);
        args.out[lane] = out[lane].data(), args.copies[lane] = copies[lane].data(), args.copied[lane] = 0;
    }
    // The sum of a row, by the definition in one_vs_all/batch_pass.hpp.
    int64_t sum(int64_t i, int lane) const {
        int64_t total = allowance[i];
        rows.each(i, [&](uint32_t col, double x) {
            total += static_cast<int64_t>(std::nearbyint(args.scale * x)) * table[col * SCAN_LANES + lane];
        });
        return total;
    }
    void check_lane(int lane) const {
        const EmittedRow *found = out[lane].data();
        uint32_t copied = 0;
        for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t total = sum(i, lane);
            if (!(static_cast<float>(total) + slack[i] * args.slack_share[lane] > args.limit[lane])) continue;
            CHECK(found->row == i && found->begin == copied);
            CHECK(close(found->score, 0.125 * double(total - allowance[i]) + args.bias[lane]));
            CHECK(found->slack == args.with_slack[lane] * slack[i] + 0.125f * static_cast<float>(allowance[i]));
            const int64_t length = rows.start[i + 1] - rows.start[i];
            if (length <= args.room[lane] - copied) {
                for (int64_t k = 0; k < length; ++k) {
                    CHECK(copies[lane][copied + k].col == rows.entries[rows.start[i] + k].col);
                    CHECK(copies[lane][copied + k].val == rows.entries[rows.start[i] + k].val);
                }
                copied += static_cast<uint32_t>(length);
            }
            ++found;
        }
        CHECK(found == args.out[lane] && copied == args.copied[lane]);
    }
};

void check_scan(const VectorKernels &kernels, int64_t n) {
    Rows rows(n);
    ScanCase usual(rows, false);
    kernels.scan(usual.args, 0, n / 3);
    kernels.scan(usual.args, n / 3, n);
    for (int lane = 0; lane < SCAN_LANES; ++lane) usual.check_lane(lane);

    for (int64_t i = 0; i < n; ++i) {
        rows.start[i + 1] = rows.start[i] + std::min<int64_t>(2, i);
        for (int64_t k = rows.start[i]; k < rows.start[i + 1]; ++k) rows.entries[k].val = draw(0, 1) ? 1.0f : -1.0f;
    }
    ScanCase extreme(rows, true);
    kernels.scan(extreme.args, 0, n);
    for (int lane = 0; lane < SCAN_LANES; ++lane) extreme.check_lane(lane);
}

// Sums and norms are such that the comparison is exact; padding up to a multiple of LANES is never listed.
void check_screen(const VectorKernels &kernels, int64_t n) {
    const int64_t padded = (n + LANES - 1) / LANES * LANES;
    AlignedArray<int32_t> sums = aligned_array<int32_t>(padded);
    AlignedArray<uint8_t> norms = aligned_array<uint8_t>(padded);
    for (float share : {0.0f, 0.5f, 64.0f}) {
        for (float limit : {0.5f, 3000.0f, 8000.0f, 3e9f}) {
            std::vector<ScreenedRow> expected, found(n + 1, {77, 77});
            for (int64_t i = 0; i < n; ++i) {
                sums[i] = draw(0, 5000), norms[i] = static_cast<uint8_t>(draw(0, 255));
                if (sums[i] + double(share) * norms[i] > double(limit)) {
                    expected.push_back({static_cast<uint32_t>(i), sums[i]});
                }
            }
            const int64_t count = kernels.screen(n, norms.get(), share, limit, sums.get(), found.data());
            CHECK(count == static_cast<int64_t>(expected.size()));
            for (int64_t k = 0; k < count; ++k)
                CHECK(found[k].row == expected[k].row && found[k].sum == expected[k].sum);
            CHECK(found[count].row == 77 && found[count].sum == 77);
            for (int64_t i = 0; i < padded; ++i) CHECK(sums[i] == 0);
        }
    }
}

// The tables and factors of one iteration of 16 labels.
struct BatchCase {
    const Rows &rows;
    const int64_t lines, columns;  // numbers in a table by row and by column
    AlignedFloats Z, G, S, SZ, SP, cost;
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
          cost(table_of(rows.n, 2)) {
        for (int64_t i = 0; i < rows.n; ++i) {
            cost[i] = std::abs(cost[i]);
            signs.push_back(static_cast<uint16_t>(draw(0, 65535)));
        }
        args.entries = rows.entries.data(), args.start = rows.start.data();
        args.cost = cost.get(), args.signs = signs.data();
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
            args.near[lane] = {near[lane].get(), 0};
            args.loss[lane] = 1, args.bias_sum[lane] = 2, args.curvature[lane] = 3;  // sums are added to these
        }
    }
    bool positive(int64_t i, int lane) const { return signs[i] >> lane & 1; }
    double factor(int64_t i, int lane) const {
        return double(cost[i]) * double(positive(i, lane) ? args.positive_factor[lane] : args.negative_factor[lane]);
    }
    void thetas(int lane, float *theta) const {
        for (int j = 0; j < N_DIRECTIONS; ++j) theta[j] = args.theta[j][lane];
    }
};

void check_batch_dots(const VectorKernels &kernels, const Rows &rows) {
    BatchCase batch(rows);
    BatchArgs &args = batch.args;
    const int64_t cut = rows.n / 3;
    kernels.batch_dots[0](args, 0, cut);
    kernels.batch_dots[0](args, cut, rows.n);
    for (int lane = 0; lane < LANES; ++lane) {
        int64_t count = 0;
        for (int64_t i = 0; i < rows.n; ++i) {
            double dot = 0;
            rows.each(i, [&](uint32_t col, double x) { dot += x * batch.Z[col * LANES + lane]; });
            const int64_t at = i * LANES + lane;
            CHECK(batch.SZ[at] == dot);
            const double y = batch.positive(i, lane) ? 1 : -1;
            const double reach =
                args.reach[lane] + args.reach_z[lane] * std::abs(dot) + args.reach_p[lane] * std::abs(batch.SP[at]);
            const bool listed = (args.searched >> lane & 1) && (y > 0 || !(args.sampled >> lane & 1) || i % 3 == 0);
            if (!listed || !(1 - y * batch.S[at] > -reach)) continue;
            const float *near = args.near[lane].blocks + NearRows::at(count++);
            CHECK(near[0] == batch.S[at] && near[LANES] == dot && near[2 * LANES] == batch.SP[at]);
            const double search_cost = y > 0 ? args.positive_factor[lane] : -args.search_factor[lane];
            CHECK(near[3 * LANES] == search_cost * batch.cost[i]);
        }
        CHECK(count == args.near[lane].count);
    }
}

struct HingeTerms {
    double alpha, value, curvature;
    HingeTerms(double m, double c) : alpha(0), value(0), curvature(0) {
        if (m < 1) alpha = 2 * c * (1 - m), value = c * (1 - m) * (1 - m), curvature = 2 * c;
    }
};
struct LogisticTerms {
    double alpha, value, curvature;
    LogisticTerms(double m, double c) {
        const double share = 1 / (1 + std::exp(m));
        alpha = c * share, curvature = alpha / (1 + std::exp(-m));
        value = c * (m > 0 ? std::log1p(std::exp(-m)) : std::log1p(std::exp(m)) - m);
    }
};

template <class Terms>
void check_gradient(void (*gradient)(BatchArgs &, int64_t, int64_t), const Rows &rows, int score_size) {
    BatchCase batch(rows, score_size);
    const BatchArgs before = batch.args;
    const std::vector<double> S = copy_of(batch.S, batch.lines), SP = copy_of(batch.SP, batch.lines);
    std::vector<Sum> G(batch.columns);
    for (int64_t k = 0; k < batch.columns; ++k) G[k].add(batch.G[k]);
    gradient(batch.args, 0, rows.n / 3);
    gradient(batch.args, rows.n / 3, rows.n);
    for (int lane = 0; lane < LANES; ++lane) {
        float theta[N_DIRECTIONS];
        batch.thetas(lane, theta);
        Sum loss, bias_sum, curvature;
        loss.add(1), bias_sum.add(2), curvature.add(3);
        double largest = before.largest_move[lane];
        for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t at = i * LANES + lane;
            const double now = moved(S[at], batch.SZ[at], SP[at], before.bias[lane], theta);
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
        float theta[N_DIRECTIONS];
        batch.thetas(lane, theta);
        const double bias = batch.args.bias[lane];
        Sum expected[N_SEARCH_SUMS];
        for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t at = i * LANES + lane;
            const double s = batch.S[at], z = batch.SZ[at], p = batch.SP[at], y = batch.positive(i, lane) ? 1 : -1;
            const LogisticTerms terms(y * moved(s, z, p, bias, theta), batch.factor(i, lane));
            add_search_terms(s, z, p, bias, 0.5 * y * terms.alpha, 0.5 * terms.curvature, terms.value, expected);
        }
        for (int j = 0; j < N_SEARCH_SUMS; ++j) CHECK(expected[j].is(sums[j][lane]));
    }
}

void check_features(const VectorKernels &kernels, int64_t n_cols) {
    const int64_t n = n_cols * LANES;
    const AlignedFloats W = table_of(n, 2), P = table_of(n, 2), Z = table_of(n, 2), G = table_of(n, 2);
    const AlignedFloats spread = table_of(n_cols, 2);
    for (int64_t k = 0; k < n_cols; ++k) spread[k] = std::abs(spread[k]);
    const std::vector<double> w0 = copy_of(W, n), p0 = copy_of(P, n), z0 = copy_of(Z, n), g0 = copy_of(G, n);
    FeatureArgs args{};
    args.n_cols = n_cols, args.spread = spread.get();
    args.W = W.get(), args.P = P.get(), args.Z = Z.get(), args.G = G.get();
    for (float *direction : args.theta) fill(direction, 1);
    fill(args.scaling, 1);
    for (float &scaling : args.scaling) scaling = std::abs(scaling);
    std::fill_n(args.zz, LANES, 99.0);  // what was there is overwritten
    kernels.batch_features[0](args);
    for (int lane = 0; lane < LANES; ++lane) {
        Sum products[7];
        for (int64_t k = lane; k < n; k += LANES) {
            const double step = args.theta[0][lane] * z0[k] + args.theta[1][lane] * p0[k] + args.theta[2][lane] * w0[k];
            const double now = w0[k] + step, descent = g0[k] - now;
            const double direction = descent / (1 + double(args.scaling[lane]) * spread[k / LANES]);
            CHECK(W[k] == now && P[k] == step && G[k] == 0.0f && close(Z[k], direction));
            const double terms[] = {direction * direction, direction * step, direction * now,
                                    step * step,           step * now,       now * now,
                                    descent * descent};
            for (int j = 0; j < 7; ++j) products[j].add(terms[j]);
        }
        const double found[] = {args.zz[lane], args.zp[lane], args.zw[lane], args.pp[lane],
                                args.pw[lane], args.ww[lane], args.gg[lane]};
        for (int j = 0; j < 7; ++j) CHECK(products[j].is(found[j]));
    }
}

void check_all(const VectorKernels &kernels) {
    for (int64_t n : {0, 16, 48, 512, 528, 2048}) {
        check_steps(kernels, n);
        for (bool interleaved : {false, true}) check_search(kernels, n, interleaved);
    }
    for (int64_t n : {1, 2, 3, 5, 63, 64, 65, 255, 300, 900}) {
        const Rows rows(n);
        check_dots(kernels, rows);
        check_scan(kernels, n);
        check_screen(kernels, n);
        check_batch_dots(kernels, rows);
        check_gradient<HingeTerms>(kernels.batch_gradient[0], rows, 2);
        check_gradient<LogisticTerms>(kernels.logistic_gradient, rows, 2);
        check_gradient<LogisticTerms>(kernels.logistic_gradient, rows, 200);  // e⁻ᵐ is below the smallest float
        check_logistic_search(kernels, rows, 2);
        check_logistic_search(kernels, rows, 200);
        check_features(kernels, n);
    }
}

}  // namespace

int main() {
    for (const std::string &name : available_instruction_sets()) check_all(choose_kernels(name));
    return 0;
}
