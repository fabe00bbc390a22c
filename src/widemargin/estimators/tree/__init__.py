"""scikit-learn's face of hierarchical SVMs."""
