"""Fit once, save, and put images that come later into the same clusters.

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
tubal.save(clusterer, path)  # arrays and JSON with checksums; no pickle, safe to share
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")

# Elsewhere, later:
clusterer = tubal.load(path)
labels = clusterer.predict(new)
distances, nearest = clusterer.kneighbors(new, n_neighbors=3)
print("image  cluster  nearest known images  how they were brought onto it")
alignments = clusterer.similar(new[:5]).alignments
for i in range(5):
    rotation, down, right = alignments.rotation[i, 0], alignments.dy[i, 0], alignments.dx[i, 0]
    motion = f"turned {rotation:+.0f}°, moved {down:+.1f} down and {right:+.1f} to the right"
    print(f"{i:5}  {labels[i]:7}  {nearest[i]!s:20}  {motion}")

# Scored only here: the digit most of a cluster's known images show, against what the new ones show.
digit_of = np.array([np.bincount(digits.target[:900][clusterer.labels_ == k]).argmax() for k in range(10)])
print(f"new images in the cluster of their digit: {(digit_of[labels] == digits.target[900:1100]).mean():.1%}")
