"""Fit once, save the model, and assign later images to the same clusters.

python examples/new_images.py
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import tubal
from tubal import ImageClusterer

digits = load_digits()
images = digits.images / 16.0
known, new = images[:900], images[900:1100]

clusterer = ImageClusterer(n_clusters=10, random_state=0).fit(known)
path = Path(tempfile.mkdtemp()) / "digits.tubal"
tubal.save(clusterer, path)  # arrays and JSON with checksums, no pickle; it contains the training images
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")

# Later, in another process:
clusterer = tubal.load(path)
labels = clusterer.predict(new)
distances, nearest = clusterer.kneighbors(new, n_neighbors=3)
print("image  cluster  nearest known images  how the nearest one is aligned with it")
alignments = clusterer.similar(new[:5]).alignments
for i in range(5):
    rotation, down, right = alignments.rotation[i, 0], alignments.dy[i, 0], alignments.dx[i, 0]
    motion = f"rotated {rotation:+.0f}°, moved {down:+.1f} px down and {right:+.1f} px right"
    print(f"{i:5}  {labels[i]:7}  {nearest[i]!s:20}  {motion}")

# Labels are used only here, for scoring: a cluster stands for the digit that most of its known images show.
digit_of = np.array([np.bincount(digits.target[:900][clusterer.labels_ == k]).argmax() for k in range(10)])
print(f"new images in the cluster of their digit: {(digit_of[labels] == digits.target[900:1100]).mean():.1%}")
