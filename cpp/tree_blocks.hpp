// The nodes that one block of constraints is about, and its loss
//
//     max(0, max_c ρ_c − κ_c (s_winner(c) − s_c)),      one constraint c for every node that may win wrongly.
//
// Along a path the winners are the path's nodes and the losers their siblings, ρ = κ = 1. Over all nodes the winner is
// the label, and ρ, κ depend on the tree distance Δ to it. Either set of nodes is closed under ancestors, so that the
// tree algebra of a block stays inside it: y = L⁻¹v and P v = L⁻ᵀ diag(pivots)⁻¹ y need the local nodes only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tree_factor.hpp"
#include "tree_groups.hpp"

namespace widemargin {

// How a wrong label is punished: always 1, Δ with the margin scaled alike, or Δ with a margin of slope 1.
enum class Rescaling { NONE, SLACK, MARGIN };

constexpr double NO_CONSTRAINT = -1e300;

struct TreeLoss {
    bool over_all = false;  // one group with all nodes, and not paths
    Rescaling rescaling = Rescaling::NONE;
    const uint8_t *is_output = nullptr;  // (m,) nodes that compete, for over_all
};

struct TreeProblem {
    TreeShape tree;
    AncestorPaths paths;  // of the coupling
    TreeBlocks blocks;
    TreeLoss loss;
};

// One block at a time; arrays are of local nodes, numbered level after level from the top.
class WorkingSet {
  public:
    int32_t n = 0, n_levels = 0;
    // A node without a constraint is its own winner with ρ = NO_CONSTRAINT, so that loops have no branch for it.
    std::vector<int32_t> node, winner;
    std::vector<double> rho, kappa, score, slack, mass, step;
    std::vector<int32_t> level_start, group;

    explicit WorkingSet(const TreeProblem &problem) : problem_(problem) {
        if (problem.loss.over_all) {
            resize(problem.tree.m);
            fill_all();
        }
    }

    void load(int64_t block, const TreeFactor &factor) {
        factor_ = &factor;
        if (problem_.loss.over_all) {
            load_label(problem_.blocks.node[block]);
        } else {
            load_path(problem_.blocks.node[block], problem_.blocks.n_levels[block]);
        }
    }

    // slack_c = ρ_c − κ_c (s_winner − s_c)
    void update_slacks() {
        for (int32_t c = 0; c < n; ++c) slack[c] = rho[c] - kappa[c] * (score[winner[c]] - score[c]);
    }
    double largest_slack() const {
        double largest = 0.0;
        for (int32_t c = 0; c < n; ++c) largest = std::max(largest, slack[c]);
        return largest;
    }
    bool has_constraint(int32_t c) const { return winner[c] != c; }

    // Scores from those of z: s = L⁻ᵀ diag(pivots)⁻¹ (z·x), in place from the bottom up.
    void scores_from_parts() {
        for (int32_t u = 0; u < n; ++u) score[u] *= factor_->inverse_pivots[node[u]];
        for (int32_t u = n - 1; u >= 0; --u) {
            for (int32_t t = 0; t < n_above_[u]; ++t) score[u] += R_[u][t + 1] * score[above_[u][t]];
        }
    }

    // step += L⁻¹(scale · κ_c (e_winner − e_c)); step must be 0 where `touched` does not say otherwise.
    void add_constraint(int32_t c, double scale) {
        add_node(winner[c], scale * kappa[c]);
        add_node(c, -scale * kappa[c]);
    }
    // vᵀPv for step = L⁻¹v
    double curvature() const {
        double sum = 0.0;
        for (int32_t u : touched) sum += step[u] * step[u] * factor_->inverse_pivots[node[u]];
        return sum;
    }
    // score += scale · P v for step = L⁻¹v
    void move_scores(double scale) {
        for (int32_t u : touched) scaled_[u] = scale * step[u] * factor_->inverse_pivots[node[u]];
        for (int32_t u = 0; u < n; ++u) {
            double change = scaled_[u];
            for (int32_t t = 0; t < n_above_[u]; ++t) change += R_[u][t + 1] * scaled_[above_[u][t]];
            score[u] += change;
        }
        for (int32_t u : touched) scaled_[u] = 0.0;
    }
    void clear_step() {
        for (int32_t u : touched) step[u] = 0.0, is_touched_[u] = 0;
        touched.clear();
    }

    std::vector<int32_t> touched;  // nodes where `step` may differ from 0

  private:
    const TreeProblem &problem_;
    const TreeFactor *factor_ = nullptr;
    std::vector<const int32_t *> above_;  // local numbers of a node's ancestors, nearest first
    std::vector<const double *> R_;       // the node's place in R
    std::vector<int32_t> n_above_, chain_, path_position_;
    std::vector<double> scaled_;
    std::vector<uint8_t> is_touched_;

    void add_node(int32_t u, double value) {
        touch(u);
        step[u] += value;
        for (int32_t t = 0; t < n_above_[u]; ++t) {
            const int32_t a = above_[u][t];
            touch(a);
            step[a] += R_[u][t + 1] * value;
        }
    }
    void touch(int32_t u) {
        if (!is_touched_[u]) is_touched_[u] = 1, touched.push_back(u);
    }
    void resize(int32_t size) {
        if (int32_t(node.size()) >= size) return;
        for (auto *array : {&node, &winner, &n_above_}) array->resize(size);
        for (auto *array : {&rho, &kappa, &score, &slack, &mass, &step, &scaled_}) array->resize(size, 0.0);
        above_.resize(size);
        R_.resize(size);
        is_touched_.resize(size, 0);
    }

    void load_path(int32_t label, int32_t levels) {
        const TreeShape &tree = problem_.tree;
        const bool coupled = problem_.paths.n_entries() > problem_.paths.m;
        n_levels = levels;
        level_start.resize(levels + 1);
        group.resize(levels);
        path_position_.resize(levels);
        level_start[0] = 0;
        int32_t a = label;
        for (int32_t level = levels - 1; level >= 0; --level, a = tree.parent[a]) {
            group[level] = tree.group_of[a];
            path_position_[level] = a - tree.group_start[group[level]];
        }
        for (int32_t level = 0; level < levels; ++level) {
            level_start[level + 1] = level_start[level] + tree.width(group[level]);
            path_position_[level] += level_start[level];
        }
        n = level_start[levels];
        resize(n);
        chain_.resize(levels);  // path nodes from the lowest up: those above level l are the last l of them
        for (int32_t level = 0; level < levels; ++level) chain_[levels - 1 - level] = path_position_[level];
        for (int32_t level = 0; level < levels; ++level) fill_level(level, coupled);
    }
    void fill_level(int32_t level, bool coupled) {
        const int32_t first = problem_.tree.group_start[group[level]] - level_start[level];
        for (int32_t u = level_start[level]; u < level_start[level + 1]; ++u) {
            node[u] = first + u;
            winner[u] = path_position_[level];
            rho[u] = kappa[u] = 1.0;
            R_[u] = factor_->R.data() + problem_.paths.start[node[u]];
            above_[u] = chain_.data() + (n_levels - level);
            n_above_[u] = coupled ? level : 0;
        }
        rho[path_position_[level]] = NO_CONSTRAINT;
    }

    void fill_all() {
        const int32_t m = problem_.tree.m;
        n = m, n_levels = 1;
        level_start = {0, m};
        group = {0};
        for (int32_t u = 0; u < m; ++u) {
            node[u] = u;
            above_[u] = problem_.paths.path(u) + 1;
            n_above_[u] = problem_.paths.depth(u) - 1;
        }
        path_position_.resize(m);
    }
    // Δ(label, u) = (depth of label + depth of u) / 2 − depth of the last node they share, from the top down.
    void load_label(int32_t label) {
        const TreeShape &tree = problem_.tree;
        std::vector<int32_t> &shared = path_position_, &depth = chain_;
        if (int32_t(depth.size()) != n) {
            depth.resize(n);
            for (int32_t u = 0; u < n; ++u) depth[u] = tree.parent[u] < 0 ? 1 : depth[tree.parent[u]] + 1;
        }
        for (int32_t u = 0; u < n; ++u) shared[u] = tree.parent[u] < 0 ? 0 : -1;
        for (int32_t a = label; a >= 0; a = tree.parent[a]) shared[a] = depth[a];
        for (int32_t u = 0; u < n; ++u) {
            if (shared[u] < 0) shared[u] = shared[tree.parent[u]];
            const double delta = 0.5 * (depth[label] + depth[u]) - shared[u];
            const bool competes = u != label && problem_.loss.is_output[u];
            winner[u] = competes ? label : u;
            rho[u] = !competes ? NO_CONSTRAINT : problem_.loss.rescaling == Rescaling::NONE ? 1.0 : delta;
            R_[u] = factor_->R.data() + problem_.paths.start[u];
            kappa[u] = problem_.loss.rescaling == Rescaling::SLACK ? delta : 1.0;
        }
    }
};

}  // namespace widemargin
