"""Bring your own graph: any symmetric sparse matrix says which images belong together.

    python examples/own_graph.py

Here the images arrive in bursts, as a camera would take them, and neighbours in time are tied as well as
neighbours in looks. Nothing else of the pipeline changes.
"""

import numpy as np
import scipy.sparse as sp

from tubal import GTSC, ImageClusterer
from tubal.datasets import make_shifted_shapes
from tubal.graph import knn_graph, laplacian
from tubal.metrics import clustering_accuracy

shapes = make_shifted_shapes(160, n_classes=4, image_shape=(12, 12), noise=0.25, random_state=0)
order = np.argsort(shapes.target, kind="stable")  # bursts: the same kind for a while, then the next
images, truth = shapes.images[order], shapes.target[order]
n_images = len(images)

looks = knn_graph(images, n_neighbors=3)
print(f"by looks: {looks.adjacency.nnz // 2} edges, largest in-degree {looks.max_in_degree}")

following = sp.diags_array([np.ones(n_images - 1), np.ones(n_images - 1)], offsets=[1, -1], format="csr")
together = looks.adjacency.maximum(following).tocsr()
print(f"with time: {together.nnz // 2} edges; the Laplacian is {laplacian(together).shape}")

for name, graph in (("looks alone", looks), ("looks and time", together)):
    labels = ImageClusterer(4, graph=graph, n_atoms=12, random_state=0).fit_predict(images)
    print(f"clusters by {name}: accuracy {clustering_accuracy(truth, labels):.1%}")

# A coder takes the same matrix. A matrix alone cannot tell who a new image's neighbours are: name them.
coder = GTSC(n_atoms=12, graph=together, graph_weight=1.0, random_state=0).fit(images)
new = make_shifted_shapes(2, n_classes=4, image_shape=(12, 12), noise=0.25, random_state=1).images
print(
    "features of two new images tied to images 0-2 and 3-5:",
    coder.transform(new, neighbors=[[0, 1, 2], [3, 4, 5]]).shape,
)

# A matrix that cannot be a graph is refused in one sentence.
directed = sp.csr_array((np.ones(1), ([0], [1])), shape=(n_images, n_images))
try:
    GTSC(graph=directed).fit(images)
except ValueError as error:
    print("refused:", error)
