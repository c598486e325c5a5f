"""
Pipelines and grid search
=========================

A coder is a scikit-learn transformer. Here its features feed a classifier, and a grid search chooses the number of
atoms and the sparsity by cross-validation. (With labels, this is supervised learning; clustering never uses them.)
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tubal import TubSC

digits = load_digits()
rows, target = digits.data[:400] / 16.0, digits.target[:400]

coder = TubSC(image_shape=(8, 8), max_iter=4, random_state=0)
pipeline = make_pipeline(coder, StandardScaler(), LogisticRegression(max_iter=500))
search = GridSearchCV(pipeline, {"tubsc__n_atoms": [10, 20, 40], "tubsc__sparsity": [0.01, 0.05]}, cv=3)
search.fit(rows, target)
print("best settings:", search.best_params_)

# %%
scores = np.reshape(search.cv_results_["mean_test_score"], (3, 2))
for sparsity, column in zip((0.01, 0.05), scores.T, strict=True):
    plt.plot([10, 20, 40], column, marker="o", label=f"sparsity {sparsity}")
plt.xlabel("atoms")
plt.ylabel("accuracy, cross-validated")
plt.legend()
plt.show()
