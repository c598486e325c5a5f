"""The problems every figure is measured on: real images, some of them as atoms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tubal.datasets import fetch
from tubal.graph import knn_graph, laplacian
from tubal.problems.layout import ImageLayout
from tubal.problems.tubal import TubalCoding


@dataclass(frozen=True)
class Case:
    """Unit-length images (tube, row, sample) and atoms drawn from them (tube, row, atom)."""

    name: str
    images: np.ndarray
    data: np.ndarray
    atoms: np.ndarray

    def coding(self, *, sparsity: float = 0.01, graph_weight: float = 0.0, dtype: type = np.float32) -> TubalCoding:
        """Return the coding problem; a 3-nearest-neighbour graph where it has weight."""
        graph = laplacian(knn_graph(self.images, 3)) if graph_weight else None
        return TubalCoding(
            self.atoms.astype(dtype),
            self.data.astype(dtype),
            sparsity=sparsity,
            graph_weight=graph_weight,
            laplacian=graph,
        )


def load_case(name: str, n_images: int | None = None, n_atoms: int = 45) -> Case:
    """Return the first ``n_images`` of a collection with ``n_atoms`` random ones of them as atoms."""
    images = fetch(name).images[:n_images]
    lengths = np.sqrt((images.reshape(len(images), -1) ** 2).sum(1))
    images = (images / lengths[:, None, None]).astype(np.float32)
    data = ImageLayout(images.shape[1:]).to_tensor(images)
    chosen = np.random.default_rng(0).choice(len(images), n_atoms, replace=False)
    return Case(name, images, data, np.ascontiguousarray(data[:, :, chosen]))
