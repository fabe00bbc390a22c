"""The solvers of hierarchical SVMs."""
