"""More images than memory: fit from a file in chunks, or learn from a stream of batches.

python examples/streaming.py
"""

import tempfile
from pathlib import Path

import numpy as np

from tubal import GTSC, TubSC
from tubal.checkpoints import Checkpoint
from tubal.datasets import make_shifted_shapes

folder = Path(tempfile.mkdtemp())
shapes = make_shifted_shapes(600, n_classes=4, random_state=0)
np.save(folder / "images.npy", shapes.images)

# Memory maps, HDF5 datasets, Zarr arrays and functions that yield batches are all read in chunks.
images = np.load(folder / "images.npy", mmap_mode="r")
settings = {"n_atoms": 8, "max_iter": 8, "random_state": 0}
whole = TubSC(**settings).fit(shapes.images)
chunked = TubSC(**settings).fit(images, chunk_size=100)
difference = abs(chunked.objective_[-1] / whole.objective_[-1] - 1.0)
print(f"objective in memory {whole.objective_[-1]:.4f}, in chunks of 100 images: relative difference {difference:.0e}")

# With a graph, edges between chunks count as well.
graph = GTSC(**settings, n_neighbors=3).fit(images, chunk_size=150, checkpoint=Checkpoint(folder / "fit.ckpt"))
print(f"with a graph of {graph.graph_.adjacency.nnz // 2} edges: objective {graph.objective_[-1]:.4f}")

# A stream: the model keeps statistics of earlier batches, not their images.
model = TubSC(**settings)
for start in range(0, 600, 60):
    model.partial_fit(images[start : start + 60])
print(f"after a stream of {model.n_samples_seen_} images, mean objective of the first and the last batch:")
print(model.objective_[[0, -1]].round(4))
print("features of new images:", model.transform(make_shifted_shapes(3, random_state=7).images).shape)
