"""
How far from the optimum? Both bounds during training
=====================================================

Training a top-k SVM takes several passes over the rows. At the dots, the solver computes two numbers: the objective of
the current weights and a lower bound. The optimum is always between them. Training stops when the gap is below
``tol``, and the last pair is the model's certificate.
"""

from matplotlib import pyplot as plt

from widemargin import TopKClassifier, datasets
from widemargin.displays import ConvergenceDisplay

animals = datasets.load_wordnet_animals()
model = TopKClassifier(k=3, tol=1e-4, random_state=0).fit(animals.X_train, animals.y_train)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
ConvergenceDisplay.from_estimator(model, ax=left)
ConvergenceDisplay.from_estimator(model, scale="gap", ax=right)
right.axhline(model.tol, color="grey", linewidth=0.8)
figure.suptitle("The optimum is between the lines")

# %%
# The certificate contains the same two numbers, recomputed in float64 for the stored weights.

certificate = model.certificate_
print(f"optimum between {certificate.dual:.4f} and {certificate.primal:.4f}")
