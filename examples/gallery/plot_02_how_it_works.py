"""
How it works, in pictures
=========================

Four ideas: atoms that shift, codes that are sparse, neighbours that may be deformed, and a cut of the graph.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from tubal import ImageClusterer, TubSC, plot
from tubal.algebra import t_product
from tubal.graph import deformable_graph, knn_graph

digits = load_digits()
images, target = digits.images[:600] / 16.0, digits.target[:600]

# %%
# 1. Atoms that shift: the t-product
# ----------------------------------
# The t-product convolves along one side of the image, around a circle. If the tube of an atom is zero except at place
# *s*, the product is the atom shifted by *s*. Two places that are not zero give the sum of two shifted atoms.
atom = np.zeros((8, 1, 8))
atom[2:6, 0, 1:3] = 1.0
figure, row = plt.subplots(1, 4, figsize=(8, 2.3), layout="constrained")
for axis, places in zip(row, ([0], [2], [5], [0, 4]), strict=True):
    tube = np.zeros((1, 1, 8))
    tube[0, 0, places] = 1.0
    axis.imshow(t_product(atom, tube)[:, 0, :], cmap="gray_r")
    axis.set(title=f"tube is 1 at {', '.join(map(str, places))}", xticks=[], yticks=[])

# %%
# So one learned atom stands for all its shifts, where ordinary sparse coding needs an atom for each.
model = TubSC(n_atoms=16, sparsity=0.02, max_iter=8, random_state=0).fit(images)
plot.shifts(model)

# %%
# 2. Codes that are sparse
# ------------------------
# An image is a sum of few shifted atoms. Its code has one row for each atom and one column for each shift.
code = model.encode(images[:1])[0]
rebuilt = model.decode(model.encode(images[:1]))[0]
figure, row = plt.subplots(1, 3, figsize=(8, 2.6), layout="constrained", width_ratios=[1, 2, 1])
row[0].imshow(images[0], cmap="gray_r")
row[0].set_title("the image")
row[1].imshow(code, cmap="RdBu", vmin=-abs(code).max(), vmax=abs(code).max(), aspect="auto")
row[1].set(title=f"its code: {np.count_nonzero(code)} of {code.size} are not zero", xlabel="shift", ylabel="atom")
row[2].imshow(rebuilt, cmap="gray_r")
row[2].set_title("rebuilt")
for axis in row[::2]:
    axis.set_axis_off()

# %%
# 3. Neighbours that may be deformed
# ----------------------------------
# Two people write the same digit at slightly different places and slants. Pixel by pixel such images are far apart. The
# deformable graph compares them after small shifts, turns and local deformations.
for name, graph in (("Euclidean", knn_graph(images, 5)), ("deformable", deformable_graph(images, 5))):
    same = np.mean(target[graph.neighbors] == target[:, None])
    print(f"{name:10} neighbours that show the same digit: {same:.1%}")

# %%
# 4. A cut of the graph
# ---------------------
# Clusters are parts of the graph with many edges inside and few between them. Sorted by cluster, the matrix of edges
# has its entries in blocks on the diagonal.
clusterer = ImageClusterer(n_clusters=10, random_state=0).fit(images)
order = np.argsort(clusterer.labels_, kind="stable")
figure, row = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
row[0].spy(clusterer.affinity_, markersize=0.6)
row[0].set_title("edges, images in any order")
row[1].spy(clusterer.affinity_.tocsr()[order][:, order], markersize=0.6)
row[1].set_title("the same edges, sorted by cluster")
plt.show()
