"""The solvers of the top-k multiclass SVM."""
