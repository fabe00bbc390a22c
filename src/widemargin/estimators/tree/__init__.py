"""The scikit-learn interface of hierarchical SVMs."""
