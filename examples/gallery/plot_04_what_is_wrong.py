"""
Finding what is wrong in a data set
===================================

Before anybody trains on a data set, three questions are worth asking: which images are copies of others, which belong
to nothing, and which labels are wrong? We damage 600 digits on purpose and look for the damage.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from tubal import ImageClusterer

rng = np.random.default_rng(0)
digits = load_digits()
images, target = digits.images[:600] / 16.0, digits.target[:600].copy()

copies = np.clip(images[:8] + rng.normal(scale=0.01, size=(8, 8, 8)), 0, 1)
noise = rng.uniform(size=(6, 8, 8))
images = np.concatenate([images, copies, noise])
wrong = rng.choice(600, size=20, replace=False)
target[wrong] = (target[wrong] + rng.integers(1, 10, size=20)) % 10

clusterer = ImageClusterer(n_clusters=10, random_state=0).fit(images)

# %%
# Copies
# ------
# Groups of near-identical images. The planted pairs are *i* and 600 + *i*.
print("groups:", [group.tolist() for group in clusterer.duplicates_ if group.max() >= 600])

# %%
# Outliers
# --------
# Images that lie unusually far from their nearest neighbours; the planted ones are the last six.
outliers = np.flatnonzero(clusterer.outliers_)
print("outliers:", outliers, "planted:", np.arange(608, 614))

# %%
# Wrong labels
# ------------
# No classifier is needed. An image whose label few of its neighbours share is suspicious. The graph was made without
# labels, so wrong ones cannot hide themselves.
neighbours = clusterer.graph_.neighbors[:600]
known = neighbours < 600  # planted copies and noise have no label
agree = (target[np.where(known, neighbours, 0)] == target[:, None]) & known
support = agree.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
suspects = np.argsort(support, kind="stable")[:30]
print(f"of 20 wrong labels, {np.isin(wrong, suspects).sum()} are among the 30 images with least support")

figure, row = plt.subplots(1, 10, figsize=(9, 1.4), layout="constrained")
for axis, i in zip(row, suspects, strict=False):
    axis.imshow(images[i], cmap="gray_r")
    axis.set_axis_off()
    axis.set_title(f"label {target[i]}", fontsize=8)
plt.show()
