"""
Faces
=====

Forty people, ten photographs each: the ORL faces. People turn their heads, smile, and take their glasses off, so pixels
alone are a poor guide. The deformable graph compares two faces after it has moved one onto the other.

The collection is not part of tubal. ``tubal datasets --download orl`` fetches it; where it is missing, this page draws
synthetic shapes instead, so that the code runs everywhere.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

from tubal import ImageClusterer
from tubal.datasets import fetch_orl, make_shifted_shapes
from tubal.metrics import clustering_accuracy, clustering_nmi

try:
    collection = fetch_orl(download_if_missing=False)
except FileNotFoundError:
    collection = make_shifted_shapes(200, n_classes=8, image_shape=(24, 24), random_state=0)
images, people = collection.images, collection.target
n_people = len(np.unique(people))
print(f"{len(images)} pictures of {n_people} people or shapes, {images.shape[1]} × {images.shape[2]} pixels")

# %%
# K-means on pixels against tubal. Labels only score the result.
clusterer = ImageClusterer(n_clusters=n_people, random_state=0).fit(images)
baseline = KMeans(n_people, n_init=10, random_state=0).fit_predict(images.reshape(len(images), -1))
for name, labels in (("K-means", baseline), ("tubal", clusterer.labels_)):
    print(f"{name:8} accuracy {clustering_accuracy(people, labels):.1%}  NMI {clustering_nmi(people, labels):.1%}")

# %%
# Three pictures and their nearest neighbours, with the motion that brings each onto the picture on the left.
chosen = np.random.default_rng(0).choice(len(images), 3, replace=False)
found = clusterer.similar(images[chosen], 6)
figure, rows = plt.subplots(3, 6, figsize=(8, 4.4), layout="constrained")
for row, neighbors, moves in zip(rows, found.indices, np.moveaxis(found.alignments.stack(), 0, -1), strict=True):
    for axis, i, (rotation, scale, down, right) in zip(row, neighbors, moves, strict=True):
        axis.imshow(images[i], cmap="gray")
        axis.set_axis_off()
        axis.set_title(f"{rotation:+.0f}°, ×{scale:.2f}, {down:+.0f} ↓ {right:+.0f} →", fontsize=7)

# %%
# The least certain pictures are the ones to look at first.
figure, row = plt.subplots(1, 8, figsize=(8, 1.4), layout="constrained")
for axis, i in zip(row, np.argsort(clusterer.confidence_)[:8], strict=True):
    axis.imshow(images[i], cmap="gray")
    axis.set_axis_off()
    axis.set_title(f"{clusterer.confidence_[i]:.0%}", fontsize=8)
