"""The solvers of one-vs-all."""
