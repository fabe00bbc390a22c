// The logistic one-vs-all solver in batches, and the batched kernels one by one for tests against their NumPy twins.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bind.hpp"
#include "one_vs_all/batch_logistic.hpp"
#include "one_vs_all/matrix.hpp"

namespace widemargin {

namespace {

// Holds the data matrix's arrays and the row store made of them.
template <typename T, typename I>
class LogisticSolver {
  public:
    LogisticSolver(ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
                   ConstVector<double> row_weight, const OneVsAllOptions &options)
        : data_(data),
          indices_(indices),
          indptr_(indptr),
          row_weight_(row_weight),
          X_{data.data(), indices.data(), indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1, n_features},
          solver_(X_, row_weight.data(), options) {}

    void solve(ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
               ConstVector<double> positive_factor, ConstVector<double> negative_factor, OutMatrix<T> coef,
               OutVector<T> intercept, OutMatrix<double> bounds, OutVector<int64_t> n_iter,
               OutVector<uint8_t> converged) const {
        nb::gil_scoped_release release;
        solver_.solve({static_cast<int64_t>(positive_factor.shape(0)), positive_rows.data(), positive_indptr.data(),
                       row_weight_.data(), positive_factor.data(), negative_factor.data()},
                      {coef.data(), intercept.data(), bounds.data(), n_iter.data(), converged.data()});
    }

  private:
    ConstVector<T> data_;
    ConstVector<I> indices_, indptr_;
    ConstVector<double> row_weight_;
    CsrView<T, I> X_;
    BatchLogistic<CsrView<T, I>> solver_;
};

template <typename T, typename I>
void bind_solver(nb::module_ &module, const char *name) {
    using Solver = LogisticSolver<T, I>;
    nb::class_<Solver>(module, name, "The batched logistic one-vs-all solver on one CSR matrix.")
        .def(
            "__init__",
            [](Solver *self, ConstVector<T> data, ConstVector<I> indices, ConstVector<I> indptr, int64_t n_features,
               ConstVector<double> row_weight, double C, double bias_value, double bias_penalty, double tol,
               double gap_tol, double prune, int max_iter, int n_threads) {
                new (self) Solver(data, indices, indptr, n_features, row_weight,
                                  {C, bias_value, bias_penalty, tol, gap_tol, prune, max_iter, n_threads, false});
            },
            nb::kw_only(), nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
            nb::arg("n_features"), nb::arg("row_weight").noconvert(), nb::arg("C"), nb::arg("bias_value"),
            nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("prune"), nb::arg("max_iter"),
            nb::arg("n_threads"))
        .def("solve", &Solver::solve, nb::arg("positive_rows").noconvert(), nb::arg("positive_indptr").noconvert(),
             nb::arg("positive_factor").noconvert(), nb::arg("negative_factor").noconvert(),
             nb::arg("coef").noconvert(), nb::arg("intercept").noconvert(), nb::arg("bounds").noconvert(),
             nb::arg("n_iter").noconvert(), nb::arg("converged").noconvert(),
             "Solve the labels of a block; `coef` (n_labels, n_features) must be zero. `bounds` (n_labels, 5) gets\n"
             "primal, dual, primal_at_zero, primal_before_pruning, pruned_share.");
}

const VectorKernels &named_kernels(const std::string &name) {
    const VectorKernels *kernels = find_kernels(name.c_str());
    if (kernels == nullptr) throw std::invalid_argument("this machine has no instruction set '" + name + "'");
    return *kernels;
}

AlignedFloats aligned_copy(const float *values, int64_t n) {
    AlignedFloats out = aligned_floats((n + LANES - 1) / LANES * LANES);
    std::copy(values, values + n, out.get());
    return out;
}

void exp_log1p(ConstVector<float> x, OutVector<float> e, OutVector<float> log1p, const std::string &isa) {
    const int64_t n = static_cast<int64_t>(x.shape(0)), padded = (n + LANES - 1) / LANES * LANES;
    const AlignedFloats in = aligned_copy(x.data(), n);
    AlignedFloats powers = aligned_floats(padded), logs = aligned_floats(padded);
    named_kernels(isa).exp_log1p(padded, in.get(), powers.get(), logs.get());
    std::copy(powers.get(), powers.get() + n, e.data());
    std::copy(logs.get(), logs.get() + n, log1p.data());
}

// rows: (4, n) s, sz, sp, signed cost; products: zz, zp, zw, pp, pw, ww, bias, bias_penalty
std::vector<float> search_subspace(ConstMatrix<float> rows, ConstVector<double> products, ConstVector<bool> use,
                                   const std::string &isa) {
    const int64_t n = static_cast<int64_t>(rows.shape(1)), padded = (n + LANES - 1) / LANES * LANES;
    AlignedFloats arrays[4];
    for (int j = 0; j < 4; ++j) arrays[j] = aligned_copy(rows.data() + j * n, n);
    const SearchRows view{padded, LANES, arrays[0].get(), arrays[1].get(), arrays[2].get(), arrays[3].get()};
    const double *q = products.data();
    SubspaceSearch search;
    search.begin({q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]}, use.data());
    double sums[N_SEARCH_SUMS];
    do {
        named_kernels(isa).search_sums(view, static_cast<float>(q[6]), search.theta(), sums);
    } while (!search.absorb(sums));
    return {search.theta(), search.theta() + N_DIRECTIONS};
}

// The tables of a batch as tests give them: matrices of LANES columns, rows and columns in the order of X.
struct BatchTables {
    std::vector<int64_t> start;
    AlignedArray<RowEntry> entries;
    std::vector<float> cost;
    std::vector<uint16_t> signs;
    AlignedFloats W, P, Z, G, S, SZ, SP;
    int64_t n_rows, n_cols;
    BatchArgs args{};

    BatchTables(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                ConstVector<float> row_cost, ConstMatrix<bool> positive, ConstMatrix<float> columns,
                ConstMatrix<float> rows, ConstMatrix<float> lanes)
        : start(indptr.data(), indptr.data() + indptr.shape(0)),
          entries(aligned_array<RowEntry>(static_cast<int64_t>(data.shape(0)) + PREFETCH_ENTRIES)),
          cost(row_cost.data(), row_cost.data() + row_cost.shape(0)),
          signs(row_cost.shape(0), 0),
          n_rows(static_cast<int64_t>(row_cost.shape(0))),
          n_cols(static_cast<int64_t>(columns.shape(0)) / 3) {
        for (size_t k = 0; k < data.shape(0); ++k) {
            entries[k] = {static_cast<uint32_t>(indices.data()[k]), data.data()[k]};
        }
        for (int64_t i = 0; i < n_rows * LANES; ++i) {
            signs[i / LANES] = static_cast<uint16_t>(signs[i / LANES] | (positive.data()[i] << (i % LANES)));
        }
        AlignedFloats *by_column[] = {&W, &P, &Z}, *by_row[] = {&S, &SZ, &SP};
        for (int t = 0; t < 3; ++t) {
            *by_column[t] = aligned_copy(columns.data() + t * n_cols * LANES, n_cols * LANES);
            *by_row[t] = aligned_copy(rows.data() + t * n_rows * LANES, n_rows * LANES);
        }
        G = aligned_floats(n_cols * LANES);
        args.entries = entries.get();
        args.start = start.data();
        args.cost = cost.data();
        args.signs = signs.data();
        args.Z = Z.get();
        args.G = G.get();
        args.S = S.get();
        args.SZ = SZ.get();
        args.SP = SP.get();
        args.sample_stride = 1;
        const float *row = lanes.data();
        for (float *to : {args.bias, args.theta[0], args.theta[1], args.theta[2], args.theta[3], args.positive_factor,
                          args.negative_factor, args.reach, args.reach_z, args.reach_p}) {
            std::copy(row, row + LANES, to);
            row += LANES;
        }
        std::copy(args.negative_factor, args.negative_factor + LANES, args.search_factor);
    }
};

// Room for the near rows of every lane.
std::vector<AlignedFloats> give_room(BatchTables &batch) {
    std::vector<AlignedFloats> room;
    for (NearRows &near : batch.args.near) {
        room.push_back(aligned_floats((batch.n_rows / LANES + 2) * NEAR_STRIDE));
        near = {room.back().get(), 0};
    }
    return room;
}

// Returns (lane, s, sz, sp, signed cost) of the near rows, five numbers each.
std::vector<float> batch_dots(BatchTables &batch, uint32_t sampled, int64_t stride, OutMatrix<float> sz,
                              const std::string &isa) {
    const std::vector<AlignedFloats> room = give_room(batch);
    batch.args.searched = 0xffff;
    batch.args.sampled = sampled;
    batch.args.sample_stride = stride;
    for (int64_t begin = 0; begin < batch.n_rows; begin += BATCH_ROWS) {
        named_kernels(isa).batch_dots(batch.args, begin, std::min(batch.n_rows, begin + BATCH_ROWS));
    }
    std::copy(batch.SZ.get(), batch.SZ.get() + batch.n_rows * LANES, sz.data());
    std::vector<float> out;
    for (int lane = 0; lane < LANES; ++lane) {
        for (int64_t k = 0; k < batch.args.near[lane].count; ++k) {
            out.push_back(static_cast<float>(lane));
            for (int j = 0; j < 4; ++j) out.push_back(batch.args.near[lane].blocks[NearRows::at(k) + j * LANES]);
        }
    }
    return out;
}

// (N_SEARCH_SUMS, LANES)
void batch_search(BatchTables &batch, OutMatrix<double> sums, const std::string &isa) {
    double own[N_SEARCH_SUMS][LANES] = {};
    named_kernels(isa).logistic_search(batch.args, 0, batch.n_rows, own);
    std::copy(&own[0][0], &own[0][0] + N_SEARCH_SUMS * LANES, sums.data());
}

// The step θ in all tables and the next direction. sums: loss, bias_sum, curvature, zz, zp, zw, pp, pw, ww, gg by lane.
void batch_step(BatchTables &batch, const std::string &loss, ConstVector<float> spread, ConstVector<float> scaling,
                OutMatrix<float> columns, OutMatrix<float> rows, OutMatrix<double> sums, const std::string &isa) {
    const VectorKernels &kernels = named_kernels(isa);
    (loss == "logistic" ? kernels.logistic_gradient : kernels.batch_gradient)(batch.args, 0, batch.n_rows);
    FeatureArgs args{};
    args.n_cols = batch.n_cols;
    args.spread = spread.data();
    args.W = batch.W.get();
    args.P = batch.P.get();
    args.Z = batch.Z.get();
    args.G = batch.G.get();
    std::copy(&batch.args.theta[0][0], &batch.args.theta[0][0] + N_DIRECTIONS * LANES, &args.theta[0][0]);
    std::copy(scaling.data(), scaling.data() + LANES, args.scaling);
    kernels.batch_features(args);
    const AlignedFloats *by_column[] = {&batch.W, &batch.P, &batch.Z}, *by_row[] = {&batch.S, &batch.SZ, &batch.SP};
    for (int t = 0; t < 3; ++t) {
        std::copy_n(by_column[t]->get(), batch.n_cols * LANES, columns.data() + t * batch.n_cols * LANES);
        std::copy_n(by_row[t]->get(), batch.n_rows * LANES, rows.data() + t * batch.n_rows * LANES);
    }
    const double *all[] = {batch.args.loss,
                           batch.args.bias_sum,
                           batch.args.curvature,
                           args.zz,
                           args.zp,
                           args.zw,
                           args.pp,
                           args.pw,
                           args.ww,
                           args.gg};
    for (int j = 0; j < 10; ++j) std::copy_n(all[j], LANES, sums.data() + j * LANES);
}

template <class Loss>
int run_batch(const CsrView<float, int32_t> &X, const LabelBlock &labels, const OneVsAllOptions &options,
              const VectorKernels &kernels, double rule_factor, float *coef, double *intercept, int64_t *n_iter) {
    const RowStore store = build_row_store(X, labels.row_weight);
    const LabelSetup setup(store, options);
    std::vector<double> scratch(X.n_cols, 0.0);
    int64_t taken = 0;
    int n_stuck = 0;
    const std::atomic<bool> never{false};
    BatchSubspace<Loss>(store, kernels)
        .run(
            never,
            [&](Candidate &c) {
                if (taken == labels.n_labels) return false;
                c = Candidate{};
                c.index = taken++;
                setup.prepare(labels, c.index, scratch, c.label);
                c.label.rule *= rule_factor;
                return true;
            },
            [&](Candidate &&c) {
                const double sign = c.label.swapped ? -1 : 1;
                for (size_t k = 0; k < c.weights.cols.size(); ++k) {
                    coef[c.index * X.n_cols + store.col_id[c.weights.cols[k]]] =
                        static_cast<float>(sign * c.weights.vals[k]);
                }
                intercept[c.index] = sign * c.weights.bias;
                n_iter[c.index] = c.n_iter;
                n_stuck += c.stuck;
            });
    return n_stuck;
}

int solve_batch(ConstVector<float> data, ConstVector<int32_t> indices, ConstVector<int32_t> indptr,
                ConstVector<int64_t> positive_rows, ConstVector<int64_t> positive_indptr,
                ConstVector<double> row_weight, const std::string &loss, double bias_penalty, double tol,
                double gap_tol, OutMatrix<float> coef, OutVector<double> intercept, OutVector<int64_t> n_iter,
                const std::string &isa) {
    const CsrView<float, int32_t> X{data.data(), indices.data(), indptr.data(),
                                    static_cast<int64_t>(indptr.shape(0)) - 1, static_cast<int64_t>(coef.shape(1))};
    const OneVsAllOptions options{1.0, 1.0, bias_penalty, tol, gap_tol, 0.0, 100, 1, false};
    const std::vector<double> ones(coef.shape(0), 1.0);
    const LabelBlock labels{static_cast<int64_t>(coef.shape(0)),
                            positive_rows.data(),
                            positive_indptr.data(),
                            row_weight.data(),
                            ones.data(),
                            ones.data()};
    const VectorKernels &kernels = named_kernels(isa);
    if (loss == "logistic") {
        return run_batch<Logistic>(X, labels, options, kernels, LOGISTIC_RULE_FACTOR, coef.data(), intercept.data(),
                                   n_iter.data());
    }
    return run_batch<SquaredHinge>(X, labels, options, kernels, 1.0, coef.data(), intercept.data(), n_iter.data());
}

void bind_kernels(nb::module_ &module) {
    module.def("exp_log1p", &exp_log1p, nb::arg("x").noconvert(), nb::arg("e").noconvert(),
               nb::arg("log1p").noconvert(), nb::arg("isa"), "e = exp(x) and log(1 + e) for x <= 0, all (n,).");
    module.def("search_subspace", &search_subspace, nb::arg("rows").noconvert(), nb::arg("products").noconvert(),
               nb::arg("use").noconvert(), nb::arg("isa"),
               "Squared-hinge subspace search. rows (4, n): s, sz, sp, signed cost; products (8,): zz, zp, zw, pp, pw, "
               "ww,\nbias, bias_penalty; use (4,). Returns theta (4,).");
    nb::class_<BatchTables>(
        module, "BatchTables",
        "Tables of a batch of 16 lanes: columns (3 n_features, 16): W, P, Z; rows (3 n_samples, 16): "
        "S, SZ, SP;\nlanes (10, 16): bias, 4 theta, positive and negative factor, 3 reaches.")
        .def(nb::init<ConstVector<float>, ConstVector<int32_t>, ConstVector<int32_t>, ConstVector<float>,
                      ConstMatrix<bool>, ConstMatrix<float>, ConstMatrix<float>, ConstMatrix<float>>(),
             nb::arg("data").noconvert(), nb::arg("indices").noconvert(), nb::arg("indptr").noconvert(),
             nb::arg("cost").noconvert(), nb::arg("positive").noconvert(), nb::arg("columns").noconvert(),
             nb::arg("rows").noconvert(), nb::arg("lanes").noconvert())
        .def("dots", &batch_dots, nb::arg("sampled"), nb::arg("stride"), nb::arg("sz").noconvert(), nb::arg("isa"),
             "SZ = X Z; returns lane, s, sz, sp, signed cost of the near rows, five numbers each.")
        .def("search", &batch_search, nb::arg("sums").noconvert(), nb::arg("isa"),
             "Sums (15, 16) of the logistic search at theta.")
        .def("step", &batch_step, nb::arg("loss"), nb::arg("spread").noconvert(), nb::arg("scaling").noconvert(),
             nb::arg("columns").noconvert(), nb::arg("rows").noconvert(), nb::arg("sums").noconvert(), nb::arg("isa"),
             "The step theta in all tables and the next direction; sums (10, 16): loss, bias_sum, curvature, zz, zp, "
             "zw, pp,\npw, ww, gg.");
    module.def("solve_batch", &solve_batch, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("indptr").noconvert(), nb::arg("positive_rows").noconvert(),
               nb::arg("positive_indptr").noconvert(), nb::arg("row_weight").noconvert(), nb::arg("loss"),
               nb::arg("bias_penalty"), nb::arg("tol"), nb::arg("gap_tol"), nb::arg("coef").noconvert(),
               nb::arg("intercept").noconvert(), nb::arg("n_iter").noconvert(), nb::arg("isa"),
               "The batched subspace search alone, without certificates; returns the number of labels it gave up.");
}

}  // namespace

void bind_one_vs_all_batch(nb::module_ &module) {
    bind_solver<float, int32_t>(module, "BatchLogisticF32I32");
    bind_solver<float, int64_t>(module, "BatchLogisticF32I64");
    bind_solver<double, int32_t>(module, "BatchLogisticF64I32");
    bind_solver<double, int64_t>(module, "BatchLogisticF64I64");
    bind_kernels(module);
}

}  // namespace widemargin
