"""The scikit-learn interface of output codes."""
