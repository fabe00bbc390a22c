// The kernels that take one label through its rows or columns, and the passes that select rows, against plain loops in
// double, for every instruction set of this machine.
#include "kernel_cases.hpp"

using namespace widemargin;

namespace {

const float THETA[MAX_DIRECTIONS] = {0.5f, -0.25f, 0.125f, 0.75f, -0.5f, 0.375f};

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

// The rows of one label's subspace search, in separate arrays, or interleaved with the scores of the shared directions.
struct SearchCase {
    AlignedFloats values;
    SearchRows rows;

    SearchCase(int64_t n, bool interleaved, int score_size)
        : values(table_of(NEAR_ARRAYS * n, 3)), rows(interleaved ? NearRows{values.get(), n}.view(true) : apart(n)) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t k = place(i);
            values[rows.s - values.get() + k] = eighths(score_size);
            if (i % 5 == 0) values[rows.signed_cost - values.get() + k] = i % 2 == 0 ? 0.0f : -0.0f;
        }
    }
    int64_t place(int64_t i) const { return i / LANES * rows.stride + i % LANES; }
    double sign(int64_t i) const { return std::signbit(rows.signed_cost[place(i)]) ? -1 : 1; }
    double cost(int64_t i) const { return std::abs(rows.signed_cost[place(i)]); }
    // The directions of row i, among them as many of the shared ones as `n` says.
    void directions(int64_t i, double bias, int n, double *v) const {
        const int64_t k = place(i);
        v[0] = rows.sz[k], v[1] = rows.sp[k], v[2] = rows.s[k] - bias, v[3] = 1;
        for (int j = N_DIRECTIONS; j < n; ++j) v[j] = rows.shared[k + (j - N_DIRECTIONS) * LANES];
    }

  private:
    SearchRows apart(int64_t n) const {
        const float *at = values.get();
        return {n, LANES, at, at + n, at + 2 * n, at + 3 * n};
    }
};

// The sums of a search with the loss that Terms computes; α and φ'' are halved.
template <class Terms>
void check_search(void (*search)(const SearchRows &, float, const float *, double *), const SearchCase &search_case,
                  bool with_loss = true) {
    const SearchRows &rows = search_case.rows;
    const int n = rows.shared == nullptr ? N_DIRECTIONS : MAX_DIRECTIONS, n_sums = n_search_sums(n);
    std::vector<double> sums(n_sums + 1, 77.0);
    search(rows, 0.25f, THETA, sums.data());
    CHECK(sums[n_sums] == 77.0);
    Sum expected[MAX_SEARCH_SUMS];
    for (int64_t i = 0; i < rows.n; ++i) {
        double v[MAX_DIRECTIONS];
        search_case.directions(i, 0.25, n, v);
        const double y = search_case.sign(i);
        const Terms terms(y * moved(rows.s[search_case.place(i)], v, n, THETA), search_case.cost(i));
        add_search_terms(v, n, 0.5 * y * terms.alpha, 0.5 * terms.curvature, terms.value, expected);
    }
    for (int j = 0; j < n; ++j) CHECK(expected[j].is(sums[j]));
    for (int j = n; j < n_sums - 1; ++j) CHECK(rows.with_hessian ? expected[j].is(sums[j]) : sums[j] == 0.0);
    CHECK(with_loss ? expected[n_sums - 1].is(sums[n_sums - 1]) : sums[n_sums - 1] == 0.0);
}

void check_searches(const VectorKernels &kernels, int64_t n) {
    check_search<HingeTerms>(kernels.search_sums, SearchCase(n, false, 3));
    SearchCase interleaved(n, true, 3);
    check_search<HingeTerms>(kernels.search_sums, interleaved);
    interleaved.rows.with_hessian = false;
    check_search<HingeTerms>(kernels.search_sums, interleaved);
    interleaved.rows.shared = nullptr, interleaved.rows.with_hessian = true;
    check_search<HingeTerms>(kernels.search_sums, interleaved);
    check_search<LogisticTerms>(kernels.logistic_sums, interleaved, false);
    for (int score_size : {3, 200}) {  // e⁻ᵐ is below the smallest float
        check_search<LogisticTerms>(kernels.logistic_sums, SearchCase(n, false, score_size), false);
    }
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

void check_all(const VectorKernels &kernels) {
    for (int64_t n : {0, 16, 48, 512, 528, 2048}) {
        check_steps(kernels, n);
        check_searches(kernels, n);
    }
    for (int64_t n : {1, 2, 3, 5, 63, 64, 65, 255, 300, 900}) {
        check_dots(kernels, Rows(n));
        check_scan(kernels, n);
        check_screen(kernels, n);
    }
}

}  // namespace

int main() {
    for (const std::string &name : available_instruction_sets()) check_all(choose_kernels(name));
    return 0;
}
