"""
A folder of colour pictures
===========================

Pictures in a folder may have any size, colour and format. We write 120 small ones of two sizes, read the folder as
``tubal cluster`` does, and cluster it.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from tubal import ImageClusterer
from tubal.datasets import load_image_folder, make_shifted_shapes
from tubal.metrics import clustering_accuracy

shapes = make_shifted_shapes(120, n_classes=4, image_shape=(24, 24), max_shift=3, random_state=0)
colours = np.array([[0.9, 0.2, 0.1], [0.1, 0.5, 0.9], [0.2, 0.7, 0.2], [0.9, 0.7, 0.1]])
folder = Path(tempfile.mkdtemp()) / "photos"
folder.mkdir()
for i, (image, kind) in enumerate(zip(shapes.images, shapes.target, strict=True)):
    pixels = 1 - image[..., None] * (1 - colours[kind])
    picture = Image.fromarray(np.uint8(np.round(255 * pixels)))
    picture.resize((24, 24) if i % 2 else (36, 36)).save(folder / f"{i:03d}.png")
(folder / "notes.png").write_text("this is no picture")

pictures = load_image_folder(folder)
print(pictures.images.shape, "images; skipped:", pictures.skipped)

# %%
# Pictures are compared by shape and by colour. The file that is no picture was skipped and listed with a reason.
clusterer = ImageClusterer(n_clusters=4, random_state=0).fit(pictures.images)
print("sizes of the clusters:", np.bincount(clusterer.labels_))
print(f"agreement with the four kinds: {clustering_accuracy(shapes.target, clusterer.labels_):.0%}")

# %%
# Eight pictures of each cluster, the surest first.
figure, rows = plt.subplots(clusterer.n_clusters_, 8, figsize=(6, 0.8 * clusterer.n_clusters_), layout="constrained")
for label, row in enumerate(np.atleast_2d(rows)):
    members = np.flatnonzero(clusterer.labels_ == label)
    for axis, i in zip(row, members[np.argsort(-clusterer.confidence_[members], kind="stable")], strict=False):
        axis.imshow(np.clip(pictures.images[i], 0, 1))
    for axis in row:
        axis.set_axis_off()
plt.show()
