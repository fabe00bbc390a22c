// A tree problem as Python hands it over.
#pragma once

#include <tuple>
#include <utility>

#include "bindings/bind.hpp"
#include "tree/state.hpp"

namespace widemargin {

// Hands over start, cols and values of lists to Python.
template <typename T>
std::tuple<NumpyVector<int64_t>, NumpyVector<int32_t>, NumpyVector<T>> own(TreeLists<T> &&lists) {
    return {own(std::move(lists.start)), own(std::move(lists.cols)), own(std::move(lists.values))};
}

// The tree, its coupling and the blocks of constraints. Keeps the arrays it reads alive.
class ProblemArrays {
  public:
    ProblemArrays(ConstVector<int32_t> parent, ConstVector<int32_t> group_of, ConstVector<int32_t> group_start,
                  ConstVector<int64_t> path_start, ConstVector<int32_t> path_nodes, ConstVector<int32_t> block_row,
                  ConstVector<int32_t> block_node, ConstVector<int32_t> block_levels, ConstVector<double> block_cost,
                  bool over_all, int rescaling, ConstVector<uint8_t> is_output)
        : parent_(parent),
          group_of_(group_of),
          group_start_(group_start),
          path_start_(path_start),
          path_nodes_(path_nodes),
          block_row_(block_row),
          block_node_(block_node),
          block_levels_(block_levels),
          block_cost_(block_cost),
          is_output_(is_output) {
        problem.tree = {static_cast<int32_t>(parent.shape(0)), static_cast<int32_t>(group_start.shape(0)) - 1,
                        parent.data(), group_of.data(), group_start.data()};
        problem.paths = {static_cast<int32_t>(parent.shape(0)), path_start.data(), path_nodes.data()};
        problem.blocks = {static_cast<int64_t>(block_row.shape(0)), block_row.data(), block_node.data(),
                          block_levels.data(), block_cost.data()};
        problem.loss = {over_all, static_cast<Rescaling>(rescaling), is_output.data()};
    }
    TreeProblem problem;

  private:
    ConstVector<int32_t> parent_, group_of_, group_start_;
    ConstVector<int64_t> path_start_;
    ConstVector<int32_t> path_nodes_, block_row_, block_node_, block_levels_;
    ConstVector<double> block_cost_;
    ConstVector<uint8_t> is_output_;
};

}  // namespace widemargin
