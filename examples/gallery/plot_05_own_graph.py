"""
Your own graph
==============

Any symmetric sparse matrix of edge weights can be the graph. Here images come in the order in which a camera took them,
so that an image probably shows the same thing as the one before.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from tubal import GTSC, ImageClusterer
from tubal.datasets import make_shifted_shapes
from tubal.graph import knn_graph
from tubal.metrics import clustering_accuracy

shapes = make_shifted_shapes(160, n_classes=4, image_shape=(12, 12), noise=0.25, random_state=0)
order = np.argsort(shapes.target, kind="stable")
images, target = shapes.images[order], shapes.target[order]

looks = knn_graph(images, n_neighbors=3).adjacency
following = sp.diags_array([np.ones(159), np.ones(159)], offsets=[1, -1], format="csr")
together = looks.maximum(following).tocsr()

figure, row = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for axis, title, graph in zip(row, ("looks", "looks and time"), (looks, together), strict=True):
    labels = ImageClusterer(4, graph=graph, n_atoms=12, random_state=0).fit_predict(images)
    axis.spy(graph, markersize=1)
    axis.set_title(f"{title}: accuracy {clustering_accuracy(target, labels):.0%}")
plt.show()

# %%
# A coder accepts the same matrix. A matrix has no neighbours for new images, so they are passed with them.
coder = GTSC(n_atoms=12, graph=together, random_state=0).fit(images)
new = make_shifted_shapes(2, n_classes=4, image_shape=(12, 12), noise=0.25, random_state=1).images
print(coder.transform(new, neighbors=[[0, 1, 2], [3, 4, 5]]).shape)

# %%
# A matrix that is not symmetric raises an error that says what to do.
try:
    GTSC(graph=sp.csr_array((np.ones(1), ([0], [1])), shape=(160, 160))).fit(images)
except ValueError as error:
    print(error)
