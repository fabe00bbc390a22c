"""scikit-learn's face of output codes."""
