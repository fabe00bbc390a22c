// Which instruction set is in use, and the kernels that several families share, against plain loops.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"
#include "simd/exp_in_place.hpp"
#include "simd/kernel_columns.hpp"

using namespace widemargin;

namespace {

template <class E>
void check_exp(int64_t n, double tolerance) {
    using Float = typename E::Float;
    std::mt19937 random(static_cast<unsigned>(n));
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<Float> values(n + 1, Float(-7));
    for (int64_t i = 0; i < n; ++i) {
        const Float special[] = {Float(0), Float(-0.0), Float(2), E::lowest, Float(1e30), Float(-1e30), -INFINITY};
        values[i] = i % 9 < 7 && i % 2 == 0 ? special[i % 9] : Float(E::lowest * std::pow(uniform(random), 3));
    }
    const std::vector<Float> before = values;
    exp_in_place<E>(values.data(), n);
    for (int64_t i = 0; i < n; ++i) {
        const double x = std::max(std::min(double(before[i]), 0.0), double(E::lowest)), expected = std::exp(x);
        CHECK(std::abs(double(values[i]) - expected) <= tolerance * expected);
    }
    CHECK(values[n] == Float(-7));
}

// Multiples of 1/8: exact, with or without fused multiply-add.
template <typename T>
void check_add_column(int64_t n) {
    std::mt19937 random(static_cast<unsigned>(n));
    std::uniform_int_distribution<int> eighths(-80, 80);
    const auto draw = [&] { return T(eighths(random)) / 8; };
    std::vector<T> column(n);
    for (T &x : column) x = draw();
    for (int n_rows = 1; n_rows <= COLUMN_GROUP; ++n_rows) {
        std::vector<std::vector<T>> rows(n_rows, std::vector<T>(n + 1));
        std::vector<T> factor(n_rows);
        std::vector<T *> pointers;
        for (int g = 0; g < n_rows; ++g) {
            for (T &x : rows[g]) x = draw();
            factor[g] = draw();
            pointers.push_back(rows[g].data());
        }
        const std::vector<std::vector<T>> before = rows;
        choose_add_column<T>()(column.data(), n, factor.data(), pointers.data(), n_rows);
        for (int g = 0; g < n_rows; ++g) {
            for (int64_t i = 0; i < n; ++i) CHECK(rows[g][i] == before[g][i] + factor[g] * column[i]);
            CHECK(rows[g][n] == before[g][n]);
        }
    }
}

}  // namespace

int main() {
    std::printf("instruction set in use: %s\n", choose_instruction_set().c_str());
    for (const std::string &name : available_instruction_sets()) {
        setenv("WIDEMARGIN_ISA", name.c_str(), 1);
        CHECK(choose_instruction_set() == name);
        for (int64_t n : {0, 1, 2, 3, 5, 15, 16, 17, 511, 512, 513, 1500}) {
            check_exp<ExpSingle>(n, 2.5e-7);
            check_exp<ExpDouble>(n, 4.5e-16);
            check_add_column<float>(n);
            check_add_column<double>(n);
        }
    }
    return 0;
}
