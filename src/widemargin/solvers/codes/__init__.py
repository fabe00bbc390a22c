"""The solvers of output codes."""
