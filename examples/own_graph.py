"""Use your own graph: any symmetric sparse matrix of edge weights between images.

    python examples/own_graph.py

Here the images are in the order in which a camera took them. The graph joins images that look alike and also images
that follow each other. The rest of the pipeline stays the same.
"""

import numpy as np
import scipy.sparse as sp

from tubal import GTSC, ImageClusterer
from tubal.datasets import make_shifted_shapes
from tubal.graph import knn_graph, laplacian
from tubal.metrics import clustering_accuracy

shapes = make_shifted_shapes(160, n_classes=4, image_shape=(12, 12), noise=0.25, random_state=0)
order = np.argsort(shapes.target, kind="stable")  # one kind of shape for a while, then the next
images, true_labels = shapes.images[order], shapes.target[order]
n_images = len(images)

looks = knn_graph(images, n_neighbors=3)
print(f"looks alone: {looks.adjacency.nnz // 2} edges, largest in-degree {looks.max_in_degree}")

following = sp.diags_array([np.ones(n_images - 1), np.ones(n_images - 1)], offsets=[1, -1], format="csr")
together = looks.adjacency.maximum(following).tocsr()
print(f"looks and time: {together.nnz // 2} edges, Laplacian of shape {laplacian(together).shape}")

for name, graph in (("looks alone", looks), ("looks and time", together)):
    labels = ImageClusterer(4, graph=graph, n_atoms=12, random_state=0).fit_predict(images)
    print(f"clusters from {name}: accuracy {clustering_accuracy(true_labels, labels):.1%}")

# A coder accepts the same matrix. A matrix has no neighbours for new images, so pass them.
coder = GTSC(n_atoms=12, graph=together, graph_weight=1.0, random_state=0).fit(images)
new = make_shifted_shapes(2, n_classes=4, image_shape=(12, 12), noise=0.25, random_state=1).images
print(
    "features of two new images with the neighbours 0-2 and 3-5:",
    coder.transform(new, neighbors=[[0, 1, 2], [3, 4, 5]]).shape,
)

# A matrix that is not symmetric raises an error that says what to do.
directed = sp.csr_array((np.ones(1), ([0], [1])), shape=(n_images, n_images))
try:
    GTSC(graph=directed).fit(images)
except ValueError as error:
    print("error:", error)
