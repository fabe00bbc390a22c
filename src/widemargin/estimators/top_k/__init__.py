"""The scikit-learn interface of the top-k multiclass SVM."""
