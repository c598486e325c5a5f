"""
Handwritten digits
==================

1,797 handwritten digits of 8 × 8 pixels come with scikit-learn. We cluster them without labels and look at what the
clusterer says about single images. Labels are used only to score the result.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from tubal import ImageClusterer, plot
from tubal.metrics import clustering_accuracy, clustering_nmi

digits = load_digits()
images = digits.images / 16.0

clusterer = ImageClusterer(n_clusters=10, random_state=0).fit(images)
baseline = KMeans(10, n_init=10, random_state=0).fit_predict(images.reshape(len(images), -1))

for name, labels in (("K-means", baseline), ("tubal", clusterer.labels_)):
    accuracy = clustering_accuracy(digits.target, labels)
    print(f"{name:8} accuracy {accuracy:.1%}  NMI {clustering_nmi(digits.target, labels):.1%}")

# %%
# The map puts neighbours close together. Colours are clusters; crosses are the most typical images.
figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
axes.scatter(*clusterer.embedding_.T, c=clusterer.labels_, cmap="tab10", s=6)
axes.scatter(*clusterer.embedding_[clusterer.medoids_].T, marker="x", color="black", s=60)
axes.set(title="Map of all digits", xticks=[], yticks=[])

# %%
# The most typical image of each cluster, and the twelve images of which the clusterer is least sure.
figure, rows = plt.subplots(2, 12, figsize=(9, 2), layout="constrained")
doubtful = np.argsort(clusterer.confidence_)[:12]
for row, chosen, title in zip(rows, (clusterer.medoids_, doubtful), ("typical", "doubtful"), strict=True):
    for axis in row:
        axis.set_axis_off()
    for axis, i in zip(row, chosen, strict=False):
        axis.imshow(images[i], cmap="gray_r")
    row[0].set_title(title, loc="left", fontsize=9)

# %%
# Which digits are in which cluster.
plot.confusion(digits.target, clusterer.labels_)

# %%
# Another number of clusters needs no new fit: graph and codes stay the same.
print("sizes of five clusters:", np.bincount(clusterer.labels_for(5)))
