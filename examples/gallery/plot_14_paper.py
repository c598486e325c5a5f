"""
Reproducing the paper
=====================

The paper's Table 2 compares K-means, sparse coding (SC), GraphSC, TubSC and GTSC on four collections. One command
reproduces it, with a certificate for every cell::

    tubal datasets --download orl
    tubal reproduce --table 2 --datasets orl --runs 3

Here the same methods run on synthetic shapes that are shifted along their rows, where the paper claims its strength:
codes of shifted images are shifted codes, so a norm along the tube forgets the shift.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

from tubal import GTSC, GraphSC, SparseCoding, TubSC
from tubal.datasets import make_shifted_shapes
from tubal.metrics import clustering_accuracy

shapes = make_shifted_shapes(200, n_classes=4, random_state=0)
pixels = shapes.images.reshape(len(shapes.images), -1)
models = {
    "SC": SparseCoding(n_atoms=16, random_state=0),
    "GraphSC": GraphSC(n_atoms=16, random_state=0),
    "TubSC": TubSC(n_atoms=8, random_state=0),
    "GTSC": GTSC(n_atoms=8, random_state=0),
}
features = {"K-means": pixels} | {name: model.fit_transform(shapes.images) for name, model in models.items()}

# %%
# K-means on the features of every method, ten times. Labels only score the result.
scores = {}
for name, rows in features.items():
    runs = [KMeans(4, n_init=1, random_state=seed).fit_predict(rows) for seed in range(10)]
    scores[name] = [clustering_accuracy(shapes.target, labels) for labels in runs]
    print(f"{name:8} accuracy {np.mean(scores[name]):.1%} ± {np.std(scores[name]):.1%}")

# %%
# Every model certifies its final codes: the duality gap bounds how far the objective lies above the best possible one.
for name, model in models.items():
    share = np.mean(model.codes_ != 0)
    print(f"{name:8} gap {model.duality_gap_:.1e}, {model.n_iter_} alternations, {share:.0%} of the codes non-zero")

# %%
# An image and its shifted copy have the same features under TubSC, up to rounding, and other features under SC.
moved = np.roll(shapes.images, 5, axis=2)
for name in ("SC", "TubSC"):
    before, after = models[name].transform(shapes.images), models[name].transform(moved)
    print(f"{name:6} features change by {np.linalg.norm(after - before) / np.linalg.norm(before):.1%}")

# %%
# Atoms of TubSC: each stands for all its shifts.
figure, axes = plt.subplots(1, 8, figsize=(8, 1.3), layout="constrained")
for axis, atom in zip(axes, models["TubSC"].atoms_, strict=True):
    axis.imshow(atom, cmap="RdBu_r", vmin=-abs(atom).max(), vmax=abs(atom).max())
    axis.set_axis_off()
