"""The scikit-learn interface of one-vs-all."""
