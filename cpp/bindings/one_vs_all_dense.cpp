#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/bind.hpp"
#include "one_vs_all/dense.hpp"

namespace widemargin {

namespace {

constexpr int64_t N_STEP_INPUTS = 11, N_STEP_OUTPUTS = 7, N_CERTIFIED = 5;

RowKernels row_kernels_of(const std::string &loss) {
    if (loss == "squared_hinge") return choose_row_kernels<HingeLanes>();
    if (loss == "logistic") return choose_row_kernels<LogisticLanes>();
    throw std::invalid_argument("unknown loss '" + loss + "'");
}

void dense_steps(const std::string &loss, bool use_bias, double bias_penalty, OutMatrix<float> scores,
                 ConstMatrix<float> direction_scores, OutMatrix<float> step_scores, ConstMatrix<float> cost,
                 ConstMatrix<double> inputs, OutMatrix<float> slopes, OutMatrix<double> out) {
    const RowKernels kernels = row_kernels_of(loss);
    const int64_t n = static_cast<int64_t>(scores.shape(1));
    for (int64_t l = 0; l < static_cast<int64_t>(scores.shape(0)); ++l) {
        const double *in = inputs.data() + l * N_STEP_INPUTS;
        const DenseStep step{in[0], in[1], in[2],        in[3],         in[4],    in[5],       in[6],
                             in[7], in[8], in[9] != 0.0, in[10] != 0.0, use_bias, bias_penalty};
        const DenseLabelRows rows{n,
                                  scores.data() + l * n,
                                  direction_scores.data() + l * n,
                                  step_scores.data() + l * n,
                                  cost.data() + l * n,
                                  slopes.data() + l * n,
                                  static_cast<float>(step.bias)};
        float theta[N_DIRECTIONS];
        const LabelSums sums = take_step(kernels, rows, step, theta);
        double *row = std::copy(theta, theta + N_DIRECTIONS, out.data() + l * N_STEP_OUTPUTS);
        row[0] = sums.loss, row[1] = sums.slope_sum, row[2] = sums.n_active;
    }
}

// y and c of the rows of a label, from their signed costs.
struct Costs {
    std::vector<int8_t> y;
    std::vector<double> c;
    explicit Costs(int64_t n) : y(n), c(n) {}
    void set(const double *signed_cost) {
        for (size_t i = 0; i < y.size(); ++i) {
            y[i] = std::signbit(signed_cost[i]) ? -1 : 1;
            c[i] = std::abs(signed_cost[i]);
        }
    }
};

void certify_dense(const std::string &loss, double bias_value, double bias_penalty, bool single,
                   OutMatrix<double> scores, ConstMatrix<double> cost, ConstVector<double> intercept,
                   OutMatrix<double> slopes, OutMatrix<double> dual_slopes, OutMatrix<double> out) {
    const int64_t n = static_cast<int64_t>(scores.shape(1));
    const DenseView<double> view{nullptr, n, 0};
    Costs costs(n);
    const auto certify = loss == "logistic" ? certify_rows<Logistic> : certify_rows<SquaredHinge>;
    for (int64_t l = 0; l < static_cast<int64_t>(scores.shape(0)); ++l) {
        costs.set(cost.data() + l * n);
        const BinaryProblem<DenseView<double>> problem{&view, costs.y.data(), costs.c.data(), 1.0,
                                                       1.0,   bias_value,     bias_penalty};
        const CertifiedRows rows = certify(problem, scores.data() + l * n, intercept.data()[l], single,
                                           slopes.data() + l * n, dual_slopes.data() + l * n);
        const double values[] = {rows.intercept, rows.loss, rows.conjugates, rows.slope_sum, rows.dual_sum};
        std::copy(values, values + N_CERTIFIED, out.data() + l * N_CERTIFIED);
    }
}

constexpr const char *STEP_DOC =
    "One step for every label of a block. Updates scores and step_scores (n_labels, n_samples) and fills slopes with\n"
    "y c φ'(m); `inputs` (n_labels, 11): zz, zp, zw, pp, pw, ww, bias, bias_step, slope, newton, use_w; `out`\n"
    "(n_labels, 7): θ (4), loss, sum of slopes, active rows. θ is zero if no step decreases the objective.";
constexpr const char *CERTIFY_DOC =
    "Float64 rows of the certificate for every label of a block. Scores (n_labels, n_samples) move with a free\n"
    "intercept to its optimum; slopes = y c φ'(m), dual_slopes = y α for a feasible α; `out` (n_labels, 5): "
    "intercept,\n"
    "loss, sum of conjugates, sum of slopes, sum of dual slopes. `cost` is y c; `single` rounds intercepts to float32.";

}  // namespace

void bind_one_vs_all_dense(nb::module_ &module) {
    module.def("dense_steps", &dense_steps, nb::arg("loss"), nb::arg("use_bias"), nb::arg("bias_penalty"),
               nb::arg("scores").noconvert(), nb::arg("direction_scores").noconvert(),
               nb::arg("step_scores").noconvert(), nb::arg("cost").noconvert(), nb::arg("inputs").noconvert(),
               nb::arg("slopes").noconvert(), nb::arg("out").noconvert(), nb::call_guard<nb::gil_scoped_release>(),
               STEP_DOC);
    module.def("certify_dense", &certify_dense, nb::arg("loss"), nb::arg("bias_value"), nb::arg("bias_penalty"),
               nb::arg("single"), nb::arg("scores").noconvert(), nb::arg("cost").noconvert(),
               nb::arg("intercept").noconvert(), nb::arg("slopes").noconvert(), nb::arg("dual_slopes").noconvert(),
               nb::arg("out").noconvert(), nb::call_guard<nb::gil_scoped_release>(), CERTIFY_DOC);
}

}  // namespace widemargin
