// The kernels of the batched certificates, for both losses, against plain loops in double, for every instruction set of
// this machine.
#include "kernel_cases.hpp"

using namespace widemargin;

namespace {

AlignedArray<double> doubles_of(int64_t n, int largest) {
    AlignedArray<double> values = aligned_array<double>(n);
    for (int64_t k = 0; k < n; ++k) values[k] = eighths(largest);
    return values;
}
void fill_factors(double *values) {
    for (int lane = 0; lane < LANES; ++lane) values[lane] = std::abs(eighths(1));
}

// Rows whose values float32 may have rounded, weights, some of which are pruned, and costs. With `one_sided`, no row is
// positive.
struct CertificateCase {
    const Rows &rows;
    const int64_t lines, columns;
    std::vector<double> exact, weight;
    std::vector<uint16_t> signs;
    AlignedFloats W;
    AlignedArray<double> U;
    double bias[LANES];
    bool rounded;
    static constexpr float LEAST_KEPT = 0.5f;  // some weights are exactly that large

    CertificateCase(const Rows &rows, bool rounded, bool one_sided)
        : rows(rows),
          lines(rows.n * LANES),
          columns(rows.n_cols * LANES),
          W(table_of(columns, 2)),
          U(doubles_of(columns, 1)),
          rounded(rounded) {
        for (const RowEntry &entry : rows.entries) {
            exact.push_back(rounded ? draw(-1000, 1000) / 1024.0 : double(entry.val));
        }
        for (int64_t i = 0; i < rows.n; ++i) {
            weight.push_back(i % 6 == 5 ? 0.0 : draw(1, 16) / 8.0);
            signs.push_back(one_sided ? 0 : static_cast<uint16_t>(draw(0, 65535)));
        }
        for (double &b : bias) b = one_sided ? -12.0 + eighths(1) : double(eighths(2));
    }
    const double *exact_values() const { return rounded ? exact.data() : nullptr; }
    bool positive(int64_t i, int lane) const { return signs[i] >> lane & 1; }
    double weight_at(uint32_t col, int lane, bool kept) const {
        const double w = W[col * LANES + lane];
        return kept && std::abs(w) < double(LEAST_KEPT) ? 0.0 : w;
    }
    // The score of row i, of all weights or of those that pruning keeps.
    double score(int64_t i, int lane, bool kept) const {
        double sum = bias[lane];
        for (int64_t k = rows.start[i]; k < rows.start[i + 1]; ++k) {
            sum += exact[k] * weight_at(rows.entries[k].col, lane, kept);
        }
        return sum;
    }
    // ‖W‖², ‖kept W‖², ‖U‖² and ‖W − U‖² of a lane
    void add_norms(const std::vector<double> &u, int lane, Sum *sums) const {
        for (int64_t k = 0; k < rows.n_cols; ++k) {
            const uint32_t col = static_cast<uint32_t>(k);
            const double w = weight_at(col, lane, false), kept = weight_at(col, lane, true), at = u[k * LANES + lane];
            sums[0].add(w * w), sums[1].add(kept * kept), sums[2].add(at * at), sums[3].add((w - at) * (w - at));
        }
    }
    std::vector<double> copy_of_U() const { return {U.get(), U.get() + columns}; }
};

// Sums over the rows that are negative in a lane, at margins m = −s.
struct LogisticSums {
    Sum loss, kept_loss, entropy, alpha, curvature, odds;
    double costs = 0;

    LogisticSums() {
        for (Sum *sum : {&loss, &kept_loss, &entropy, &alpha, &curvature, &odds}) sum->add(1);
    }
    void add(double s, double s_kept, double c) {
        const LogisticTerms terms(-s, c);
        loss.add(terms.value), kept_loss.add(LogisticTerms(-s_kept, c).value);
        alpha.add(terms.alpha), curvature.add(terms.curvature), odds.add(c * std::exp(s));
        // c H(σ) from the logarithms of σ and 1 − σ; the kernel takes it as loss − α s, so its error has their size.
        const double sigma = 1 / (1 + std::exp(-s)), rest = 1 / (1 + std::exp(s));
        entropy.add(c * sigma * (sigma > 0.5 ? -std::log1p(-rest) : -std::log(sigma)));
        entropy.add(c * rest * (rest > 0.5 ? -std::log1p(-sigma) : -std::log(rest)));
        entropy.size += terms.value + std::abs(terms.alpha * s);
        costs += c;
    }
};

// With `uniform`, all rows have the cost of the first, which is all that may be read.
void check_logistic(const VectorKernels &kernels, const Rows &rows, bool rounded, bool uniform, double bias) {
    CertificateCase certificate(rows, rounded, false);
    const double first = certificate.weight[0];
    if (uniform) std::fill(certificate.weight.begin() + 1, certificate.weight.end(), NAN);
    for (int lane = 0; lane < LANES; lane += 2) certificate.bias[lane] += bias;
    CertificateArgs args{};
    args.n_rows = rows.n, args.n_cols = rows.n_cols, args.entries = rows.entries.data();
    args.start = rows.start.data(), args.exact = certificate.exact_values(), args.weight = certificate.weight.data();
    args.signs = certificate.signs.data(), args.W = certificate.W.get(), args.U = certificate.U.get();
    args.least_kept = CertificateCase::LEAST_KEPT, args.uniform = uniform;
    fill_factors(args.negative_factor);
    args.negative_factor[5] = 0;  // a lane without a label
    std::copy_n(certificate.bias, LANES, args.bias);
    for (double *sums : {args.loss, args.kept_loss, args.entropy, args.alpha, args.curvature, args.odds}) {
        std::fill_n(sums, LANES, 1.0);  // sums are added to these
    }
    std::vector<Sum> U(certificate.columns);
    for (int64_t k = 0; k < certificate.columns; ++k) U[k].add(certificate.U[k]);
    kernels.logistic_certificate(args);
    for (int lane = 0; lane < LANES; ++lane) {
        LogisticSums expected;
        for (int64_t i = 0; i < rows.n; ++i) {
            if (certificate.positive(i, lane)) continue;
            const double c = (uniform ? first : certificate.weight[i]) * args.negative_factor[lane];
            const double s = certificate.score(i, lane, false);
            expected.add(s, certificate.score(i, lane, true), c);
            for (int64_t k = rows.start[i]; k < rows.start[i + 1]; ++k) {
                U[rows.entries[k].col * LANES + lane].add(-LogisticTerms(-s, c).alpha * certificate.exact[k]);
            }
        }
        if (uniform) {  // the logarithm of a product, each factor of which is rounded
            const double rounding = std::ldexp(expected.costs, -52) / OF_DOUBLES;
            expected.loss.size += rounding, expected.kept_loss.size += rounding, expected.entropy.size += rounding;
        }
        CHECK(expected.loss.is(args.loss[lane], OF_DOUBLES));
        CHECK(expected.kept_loss.is(args.kept_loss[lane], OF_DOUBLES));
        CHECK(expected.entropy.is(args.entropy[lane], OF_DOUBLES));
        CHECK(expected.alpha.is(args.alpha[lane], OF_DOUBLES));
        CHECK(expected.curvature.is(args.curvature[lane], OF_DOUBLES));
        CHECK(expected.odds.is(args.odds[lane], OF_DOUBLES));
    }
    for (int64_t k = 0; k < certificate.columns; ++k) CHECK(U[k].is(certificate.U[k], OF_DOUBLES));

    const std::vector<double> before = certificate.copy_of_U();
    kernels.certificate_columns(args);
    for (int lane = 0; lane < LANES; ++lane) {
        Sum norms[4];
        certificate.add_norms(before, lane, norms);
        const double found[] = {args.norm[lane], args.kept_norm[lane], args.u_norm[lane], args.residual[lane]};
        for (int j = 0; j < 4; ++j) CHECK(norms[j].is(found[j], OF_DOUBLES));
    }
    for (int64_t k = 0; k < certificate.columns; ++k) CHECK(certificate.U[k] == 0.0);
}

// The certificate of the squared hinge for the first `used` lanes; what belongs to the others stays.
struct HingeCase : CertificateCase {
    const int variant, used;
    AlignedArray<double> S;
    std::vector<float> l1_norm;
    alignas(LINE_BYTES) double shift[LANES];
    alignas(LINE_BYTES) double shrink[2][LANES];
    alignas(LINE_BYTES) double sums[4][LANES];
    CheckArgs args{};

    HingeCase(const Rows &rows, bool rounded, bool one_sided, int variant)
        : CertificateCase(rows, rounded, one_sided),
          variant(variant),
          used(variant == 0 ? LANES / 2 : LANES),
          S(aligned_array<double>(lines)) {
        std::fill_n(S.get(), lines, 77.0);
        for (int64_t i = 0; i < rows.n; ++i) {
            double norm = 0;
            for (int64_t k = rows.start[i]; k < rows.start[i + 1]; ++k) norm += std::abs(exact[k]);
            l1_norm.push_back(static_cast<float>(norm));  // exact, because values are multiples of 1/1024
        }
        args.n_rows = rows.n, args.n_cols = rows.n_cols, args.entries = rows.entries.data();
        args.exact = exact_values(), args.start = rows.start.data(), args.weight = weight.data();
        args.l1_norm = l1_norm.data(), args.signs = signs.data();
        args.W = W.get(), args.S = S.get(), args.U = U.get();
        args.prune = double(LEAST_KEPT), args.least_kept = LEAST_KEPT;
        std::copy_n(bias, LANES, args.bias);
        for (double *values : {args.positive_factor, args.negative_factor, shrink[0], shrink[1]}) fill_factors(values);
        args.positive_factor[5] = args.negative_factor[5] = 0;  // a lane without a label
        for (double &t : shift) t = eighths(1);
        clear_sums();
    }
    void clear_sums() { std::fill_n(sums[0], 4 * LANES, 77.0); }
    double sign(int64_t i, int lane) const { return positive(i, lane) ? 1 : -1; }
    double cost(int64_t i, int lane) const {
        return weight[i] * (positive(i, lane) ? args.positive_factor[lane] : args.negative_factor[lane]);
    }
    // max(0, 1 − y (s + shift))
    double short_of(int64_t i, int lane, bool kept) const {
        return std::max(0.0, 1 - sign(i, lane) * (score(i, lane, kept) + shift[lane]));
    }
    void check_sums(int lane, int n, const Sum *expected) const {
        for (int j = 0; j < 4; ++j) {
            CHECK(j < n && lane < used ? expected[j].is(sums[j][lane], OF_DOUBLES) : sums[j][lane] == 77.0);
        }
    }
};

void check_scores(const VectorKernels &kernels, HingeCase &hinge) {
    kernels.check_scores[hinge.variant](hinge.args);
    for (int64_t k = 0; k < hinge.lines; ++k) {
        const int lane = static_cast<int>(k % LANES);
        CHECK(hinge.S[k] == (lane < hinge.used ? hinge.score(k / LANES, lane, false) : 77.0));
    }
}

void check_losses(const VectorKernels &kernels, HingeCase &hinge) {
    hinge.clear_sums();
    kernels.check_losses[hinge.variant](hinge.args, hinge.shift, hinge.sums);
    for (int lane = 0; lane < LANES; ++lane) {
        Sum expected[4];
        for (int64_t i = 0; i < hinge.rows.n; ++i) {
            const double m = hinge.short_of(i, lane, false), c = hinge.cost(i, lane);
            expected[hinge.positive(i, lane) ? 1 : 0].add(c * m);
            expected[2].add(m > 0 ? c : 0.0), expected[3].add(c * m * m);
        }
        hinge.check_sums(lane, 4, expected);
    }
}

// Without pruning, the loss of the kept weights is not computed.
void check_gradient(const VectorKernels &kernels, HingeCase &hinge, bool pruned) {
    const Rows &rows = hinge.rows;
    hinge.args.prune = pruned ? double(HingeCase::LEAST_KEPT) : 0.0;
    hinge.clear_sums();
    std::fill_n(hinge.U.get(), hinge.columns, 0.0);
    kernels.check_gradient[hinge.variant](hinge.args, hinge.shift, hinge.shrink, hinge.sums);
    std::vector<Sum> U(hinge.columns);
    for (int lane = 0; lane < LANES; ++lane) {
        Sum expected[2];
        for (int64_t i = 0; i < rows.n && lane < hinge.used; ++i) {
            const double c = hinge.cost(i, lane), y = hinge.sign(i, lane), kept = hinge.short_of(i, lane, true);
            if (c == 0) continue;
            const double alpha = 2 * c * hinge.short_of(i, lane, false) * hinge.shrink[y > 0 ? 1 : 0][lane];
            expected[0].add(alpha), expected[0].add(-alpha * alpha / (4 * c));
            if (pruned) expected[1].add(c * kept * kept);
            for (int64_t k = rows.start[i]; k < rows.start[i + 1]; ++k) {
                U[rows.entries[k].col * LANES + lane].add(y * alpha * hinge.exact[k]);
            }
        }
        hinge.check_sums(lane, 2, expected);
    }
    for (int64_t k = 0; k < hinge.columns; ++k) CHECK(U[k].is(hinge.U[k], OF_DOUBLES));
}

void check_columns(const VectorKernels &kernels, HingeCase &hinge) {
    for (int64_t k = 0; k < hinge.columns; ++k) hinge.U[k] = eighths(2);
    const std::vector<double> before = hinge.copy_of_U();
    hinge.clear_sums();
    kernels.check_columns[hinge.variant](hinge.args, hinge.sums);
    for (int lane = 0; lane < LANES; ++lane) {
        Sum norms[4];
        hinge.add_norms(before, lane, norms);
        hinge.check_sums(lane, 4, norms);
    }
    for (int64_t k = 0; k < hinge.columns; ++k) CHECK(hinge.U[k] == (k % LANES < hinge.used ? 0.0 : before[k]));
}

void check_all(const VectorKernels &kernels) {
    for (int64_t n : {1, 2, 3, 5, 63, 64, 65, 255, 300, 900}) {
        const Rows rows(n);
        for (bool rounded : {false, true}) {
            for (bool uniform : {false, true}) {
                for (double bias : {0.0, -500.0, 500.0}) check_logistic(kernels, rows, rounded, uniform, bias);
            }
            for (bool one_sided : {false, true}) {
                for (int variant : {0, 1}) {
                    HingeCase hinge(rows, rounded, one_sided, variant);
                    check_scores(kernels, hinge);
                    check_losses(kernels, hinge);
                    for (bool pruned : {false, true}) check_gradient(kernels, hinge, pruned);
                    check_columns(kernels, hinge);
                }
            }
        }
    }
}

}  // namespace

int main() {
    for (const std::string &name : available_instruction_sets()) check_all(choose_kernels(name));
    return 0;
}
