"""
Streams, files and clusters of machines
=======================================

Images need not fit in memory. The same learning runs over an array, over a file that is read slice by slice, over
batches that arrive one after the other, and over the machines of a Dask cluster.
"""

import tempfile
from pathlib import Path

import numpy as np
from distributed import Client

from tubal import TubSC
from tubal.datasets import make_shifted_shapes
from tubal.distributed import fit

images = make_shifted_shapes(300, n_classes=4, image_shape=(12, 12), random_state=0).images.astype("float32")
settings = {"n_atoms": 8, "max_iter": 5, "random_state": 0}

# %%
# A memory map is read in chunks. The result is that of the fit in memory.
path = Path(tempfile.mkdtemp()) / "images.npy"
np.save(path, images)
whole = TubSC(**settings).fit(images)
chunked = TubSC(**settings).fit(np.load(path, mmap_mode="r"), chunk_size=100)
print(f"relative difference of the objectives: {abs(chunked.objective_[-1] / whole.objective_[-1] - 1):.0e}")

# %%
# A stream has no end; ``partial_fit`` learns from each batch and forgets it.
stream = TubSC(**settings)
for start in range(0, 300, 50):
    stream.partial_fit(images[start : start + 50])
print("features of new images:", stream.transform(images[:5]).shape)

# %%
# With Dask, each worker codes its own images, and only statistics of a fixed size travel. Here the workers are threads
# of this process; ``connect("tcp://scheduler:8786")`` reaches real ones.
with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
    model = fit(TubSC(**settings), images, client)
print(f"relative difference of the objectives: {abs(model.objective_[-1] / whole.objective_[-1] - 1):.0e}")
