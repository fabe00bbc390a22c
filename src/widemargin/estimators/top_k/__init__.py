"""scikit-learn's face of the top-k multiclass SVM."""
