// The nodes of one block of constraints, and its loss
//
//     max(0, max_c ρ_c − κ_c (s_winner(c) − s_c)),      one constraint c for every node that may win wrongly.
//
// Along a path, the winners are the nodes of the path, the losers are their siblings, and ρ = κ = 1. Over all nodes,
// the winner is the label, and ρ and κ depend on the tree distance Δ to it. Both sets of nodes are closed under
// ancestors, so the tree algebra of a block stays inside it: y = L⁻¹v and P v = L⁻ᵀ diag(pivots)⁻¹ y need only the
// local nodes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tree/factor.hpp"
#include "tree/groups.hpp"

namespace widemargin {

// The cost of a wrong label: always 1, Δ with the margin scaled by Δ, or Δ with a margin of slope 1.
enum class Rescaling { NONE, SLACK, MARGIN };

constexpr double NO_CONSTRAINT = -1e300;

struct TreeLoss {
    bool over_all = false;  // one group with all nodes, instead of paths
    Rescaling rescaling = Rescaling::NONE;
    const uint8_t *is_output = nullptr;  // (m,) nodes that compete, for over_all
};

struct TreeProblem {
    TreeShape tree;
    AncestorPaths paths;  // of the coupling
    TreeBlocks blocks;
    TreeLoss loss;
};

// One block at a time; arrays are over local nodes, numbered by level from the top.
class WorkingSet {
  public:
    int32_t n = 0, n_levels = 0;
    std::vector<double> score, slack, mass, step;
    std::vector<int32_t> level_start, group;
    std::vector<int32_t> touched;  // nodes where `step` may differ from 0

    explicit WorkingSet(const TreeProblem &problem)
        : problem_(problem), over_all_(problem.loss.over_all), coupled_(problem.paths.n_entries() > problem.paths.m) {
        if (over_all_) fill_all();
    }

    void load(int64_t block, const TreeFactor &factor) {
        factor_ = &factor;
        if (over_all_) {
            load_label(problem_.blocks.node[block]);
        } else {
            load_path(problem_.blocks.node[block], problem_.blocks.n_levels[block]);
        }
    }

    // The node of the tree that a local node is.
    int32_t node(int32_t u) const {
        const int32_t level = level_of(u);
        return first_node_[level] + u - level_start[level];
    }
    // The local node that a node of the tree is, or −1.
    int32_t find(int32_t node) const {
        for (int32_t level = 0; level < n_levels; ++level) {
            const int32_t u = node - first_node_[level] + level_start[level];
            if (u >= level_start[level] && u < level_start[level + 1]) return u;
        }
        return -1;
    }

    // slack_c = ρ_c − κ_c (s_winner − s_c); NO_CONSTRAINT for winners
    void update_slacks() {
        std::fill_n(slack.begin() + n, SLACKS_AT_ONCE, NO_CONSTRAINT);
        if (over_all_) {
            for (int32_t c = 0; c < n; ++c) slack[c] = rho_[c] - kappa_[c] * (score[winner_[c]] - score[c]);
            return;
        }
        for (int32_t level = 0; level < n_levels; ++level) {
            const double best = score[path_position_[level]];
            for (int32_t c = level_start[level]; c < level_start[level + 1]; ++c) slack[c] = 1.0 - (best - score[c]);
            slack[path_position_[level]] = NO_CONSTRAINT;
        }
    }
    // Includes 0, the slack of "no violation". Several maxima at a time so that comparisons do not wait for each other.
    double largest_slack() const {
        double largest[SLACKS_AT_ONCE] = {};
        for (int32_t c = 0; c < n; c += SLACKS_AT_ONCE) {
            for (int k = 0; k < SLACKS_AT_ONCE; ++k) largest[k] = slack[c + k] > largest[k] ? slack[c + k] : largest[k];
        }
        return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
    }
    // The first local node whose slack is at least `least`, −1 if there is none.
    int32_t first_slack(double least) const {
        int32_t found = -1;
        for (int32_t c = n - 1; c >= 0; --c) found = slack[c] >= least ? c : found;
        return found;
    }
    bool has_constraint(int32_t c) const { return winner(c) != c; }
    double rho(int32_t c) const { return over_all_ ? rho_[c] : 1.0; }

    // Scores from the products with z: s = L⁻ᵀ diag(pivots)⁻¹ (z·x), in place, bottom up.
    void scores_from_parts() {
        for (int32_t level = 0; level < n_levels; ++level) {
            const int32_t begin = level_start[level], width = level_start[level + 1] - begin;
            const double *inverse_pivots = factor_->inverse_pivots.data() + first_node_[level];
            for (int32_t j = 0; j < width; ++j) score[begin + j] *= inverse_pivots[j];
        }
        add_from_ancestors(score.data(), score.data());
    }

    // step += L⁻¹(scale · κ_c (e_winner − e_c)); step must be 0 outside `touched`.
    void add_constraint(int32_t c, double scale) {
        if (over_all_) {
            add_node(winner_[c], scale * kappa_[c]);
            add_node(c, -scale * kappa_[c]);
            return;
        }
        const int32_t level = level_of(c), first = level_start[level], best = path_position_[level];
        add_to_step(best, scale);
        add_to_step(c, -scale);
        for (int32_t k = 0; coupled_ && k < level; ++k) {
            const Lift lift = lift_to(level, k);
            add_to_step(path_position_[k], scale * (lift[best - first] - lift[c - first]));
        }
    }
    // out_u = κ_u (e_winner(u) − e_u)ᵀ P κ_c (e_winner(c) − e_c): by how much a unit of mass at c lowers slack u
    void read_column(int32_t c, double *out) {
        clear_step();
        add_constraint(c, 1.0);
        for (int32_t u : touched) scaled_[u] = step[u] * factor_->inverse_pivots[node(u)];
        std::copy_n(scaled_.begin(), n, out);
        add_from_ancestors(scaled_.data(), out);
        for (int32_t u : touched) scaled_[u] = 0.0;
        clear_step();
        subtract_from_winners(out);
    }
    void clear_step() {
        for (int32_t u : touched) step[u] = 0.0, is_touched_[u] = 0;
        touched.clear();
    }

  private:
    static constexpr int SLACKS_AT_ONCE = 4;  // `slack` has as many more, without a constraint
    const TreeProblem &problem_;
    const bool over_all_, coupled_;
    const TreeFactor *factor_ = nullptr;
    std::vector<double> scaled_;
    std::vector<uint8_t> is_touched_;
    // The first node of each level, and along a path the local node on the path.
    std::vector<int32_t> first_node_, path_position_;
    // Over all nodes. A node without a constraint is its own winner with ρ = NO_CONSTRAINT.
    std::vector<int32_t> winner_, shared_, depth_;
    std::vector<double> rho_, kappa_;

    // R from the nodes of one level to the path's node on a level above. Siblings have paths of the same length.
    struct Lift {
        const double *R;
        int64_t depth;
        double operator[](int32_t j) const { return R[j * depth]; }
    };
    Lift lift_to(int32_t level, int32_t above) const {
        const int32_t first = first_node_[level];
        return {factor_->R.data() + problem_.paths.start[first] + level - above, problem_.paths.depth(first)};
    }
    int32_t level_of(int32_t u) const {
        int32_t level = 0;
        while (u >= level_start[level + 1]) ++level;
        return level;
    }
    int32_t winner(int32_t c) const { return over_all_ ? winner_[c] : path_position_[level_of(c)]; }

    // to_u += Σ_a R[u, a] from_a over the ancestors a of u; `from` may be `to`, because ancestors come first
    void add_from_ancestors(const double *from, double *to) const {
        if (!coupled_) return;
        if (over_all_) return add_along_paths(from, to);
        for (int32_t level = n_levels - 1; level > 0; --level) {
            const int32_t first = level_start[level], width = level_start[level + 1] - first;
            for (int32_t k = 0; k < level; ++k) {
                const double factor = from[path_position_[k]];
                if (factor == 0.0) continue;
                const Lift lift = lift_to(level, k);
                for (int32_t j = 0; j < width; ++j) to[first + j] += factor * lift[j];
            }
        }
    }
    // values_u = κ_u (values_winner(u) − values_u)
    void subtract_from_winners(double *values) const {
        for (int32_t level = 0; !over_all_ && level < n_levels; ++level) {
            const double best = values[path_position_[level]];
            for (int32_t u = level_start[level]; u < level_start[level + 1]; ++u) values[u] = best - values[u];
        }
        for (int32_t u = 0; over_all_ && u < n; ++u) {
            if (winner_[u] != u) values[u] = kappa_[u] * (values[winner_[u]] - values[u]);
        }
        for (int32_t u = 0; over_all_ && u < n; ++u) {
            if (winner_[u] == u) values[u] = 0.0;
        }
    }
    void add_along_paths(const double *from, double *to) const {
        for (int32_t u = n - 1; u >= 0; --u) {
            const int32_t *path = problem_.paths.path(u), depth = problem_.paths.depth(u);
            const double *R = factor_->R.data() + problem_.paths.start[u];
            for (int32_t t = 1; t < depth; ++t) to[u] += R[t] * from[path[t]];
        }
    }
    void add_node(int32_t u, double value) {
        const int32_t *path = problem_.paths.path(u), depth = problem_.paths.depth(u);
        const double *R = factor_->R.data() + problem_.paths.start[u];
        for (int32_t t = 0; t < depth; ++t) add_to_step(path[t], R[t] * value);
    }
    void add_to_step(int32_t u, double value) {
        if (!is_touched_[u]) is_touched_[u] = 1, touched.push_back(u);
        step[u] += value;
    }
    void resize(int32_t size) {
        if (int32_t(score.size()) >= size) return;
        for (auto *array : {&score, &mass, &step, &scaled_}) array->resize(size, 0.0);
        slack.resize(size + SLACKS_AT_ONCE);
        is_touched_.resize(size, 0);
    }

    void load_path(int32_t label, int32_t levels) {
        const TreeShape &tree = problem_.tree;
        if (int32_t(group.size()) < levels) {
            for (auto *array : {&group, &first_node_, &path_position_}) array->resize(levels);
            level_start.resize(levels + 1, 0);
        }
        n_levels = levels;
        for (int32_t level = levels - 1, a = label; level >= 0; --level, a = tree.parent[a]) {
            group[level] = tree.group_of[a];
            first_node_[level] = tree.group_start[group[level]];
            path_position_[level] = a - first_node_[level];
        }
        for (int32_t level = 0; level < levels; ++level) {
            level_start[level + 1] = level_start[level] + tree.width(group[level]);
            path_position_[level] += level_start[level];
        }
        n = level_start[levels];
        resize(n);
    }

    void fill_all() {
        const TreeShape &tree = problem_.tree;
        n = tree.m, n_levels = 1;
        level_start = {0, n};
        group = first_node_ = {0};
        resize(n);
        for (auto *array : {&winner_, &shared_, &depth_}) array->resize(n);
        for (auto *array : {&rho_, &kappa_}) array->resize(n);
        for (int32_t u = 0; u < n; ++u) depth_[u] = tree.parent[u] < 0 ? 1 : depth_[tree.parent[u]] + 1;
    }
    // Δ(label, u) = (depth of label + depth of u) / 2 − depth of their lowest common ancestor, top down.
    void load_label(int32_t label) {
        const TreeShape &tree = problem_.tree;
        for (int32_t u = 0; u < n; ++u) shared_[u] = tree.parent[u] < 0 ? 0 : -1;
        for (int32_t a = label; a >= 0; a = tree.parent[a]) shared_[a] = depth_[a];
        for (int32_t u = 0; u < n; ++u) {
            if (shared_[u] < 0) shared_[u] = shared_[tree.parent[u]];
            const double delta = 0.5 * (depth_[label] + depth_[u]) - shared_[u];
            const bool competes = u != label && problem_.loss.is_output[u];
            winner_[u] = competes ? label : u;
            rho_[u] = !competes ? NO_CONSTRAINT : problem_.loss.rescaling == Rescaling::NONE ? 1.0 : delta;
            kappa_[u] = problem_.loss.rescaling == Rescaling::SLACK ? delta : 1.0;
        }
    }
};

}  // namespace widemargin
