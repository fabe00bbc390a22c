"""scikit-learn's face of one-vs-all."""
