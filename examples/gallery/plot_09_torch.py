"""
PyTorch tensors and data sets
=============================

Tensors in, tensors out, on the same device. A ``Dataset`` of torch is a source of batches, so images are loaded,
changed and coded a batch at a time.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

from tubal import TubSC
from tubal.datasets import make_shifted_shapes

shapes = make_shifted_shapes(240, n_classes=4, image_shape=(12, 12), random_state=0)
images = torch.as_tensor(shapes.images, dtype=torch.float32)  # add .cuda() to compute on a GPU

model = TubSC(n_atoms=8, max_iter=4, random_state=0).fit(images)
features = model.transform(images[:5])
print(type(features).__name__, tuple(features.shape), features.device)

# %%
# A loader yields pairs (images, labels); the coder reads the images.
loader = DataLoader(TensorDataset(images, torch.as_tensor(shapes.target)), batch_size=60)
stream = TubSC(n_atoms=8, random_state=0)
for batch, _ in loader:
    stream.partial_fit(batch)
coded = torch.cat([stream.transform(batch) for batch, _ in loader])
print(tuple(coded.shape))
