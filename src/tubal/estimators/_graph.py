"""What an estimator with a graph adds: building it, storing it, and tying new images to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tubal._backend import Array, as_like, namespace, to_numpy
from tubal.estimators._base import ImageCoder
from tubal.estimators._validation import check_integer, check_weight
from tubal.graph import laplacian, resolve_graph


class GraphCoder(ImageCoder):
    """A coder whose codes are smooth along a neighbour graph."""

    graph_: Any

    def _graph_terms(self, images: Array) -> tuple[float, Any]:
        weight = check_weight("graph_weight", self.graph_weight)
        n_neighbors = self._checked_neighbors(len(images))
        self.graph_ = resolve_graph(self.graph, images, n_neighbors=n_neighbors)
        return weight, laplacian(self.graph_)

    def _checked_neighbors(self, n_images: int) -> int:
        n_neighbors = check_integer("n_neighbors", self.n_neighbors, least=1)
        if isinstance(self.graph, str) and n_neighbors >= n_images:
            raise ValueError(
                f"n_neighbors={n_neighbors} but n_samples = {n_images}: an image has at most n_samples - 1 "
                "neighbours; lower n_neighbors or pass more images"
            )
        return n_neighbors

    def _graph_weight(self) -> float:
        return check_weight("graph_weight", self.graph_weight)

    def _chunk_graph(self, rows: Any) -> Any:
        """Return the graph of images in a file: as given, or their neighbours found in blocks."""
        n_images = rows.shape[0]
        n_neighbors = self._checked_neighbors(n_images)
        if not isinstance(self.graph, str):
            self.graph_ = resolve_graph(self.graph, range(n_images))
        elif self.graph in ("euclidean", "cosine"):
            from tubal.chunked_graph import chunked_knn_graph

            self.graph_ = chunked_knn_graph(rows, n_neighbors, self.graph)
        elif self.graph == "deformable":
            raise ValueError(
                f"graph='deformable' needs all {n_images} images in memory and they come in chunks; build it with "
                "deformable_graph() where they fit and pass the Graph, or use graph='euclidean'"
            )
        else:
            self.graph_ = resolve_graph(self.graph, range(n_images))  # which names the choices
        return self.graph_

    @property
    def partial_fit(self) -> Any:
        """Learn from one batch of a stream, without a graph (graph_weight=0)."""
        if self.graph_weight != 0:
            raise AttributeError(
                f"partial_fit learns from each batch alone, and graph_weight={self.graph_weight} ties images of all "
                "batches; use graph_weight=0, or fit, which reads images a chunk at a time"
            )
        return super().partial_fit

    def _new_graph_terms(self, images: Array, neighbors: Any) -> dict[str, Any]:
        if self.graph_weight == 0:
            return {}
        indices, weights = self._neighbors_of(images, neighbors)
        tied = namespace(images).moveaxis(as_like(self.codes_, images), 0, -1)
        mixing = sp.csr_array(
            (weights.reshape(-1), indices.reshape(-1), np.arange(0, indices.size + 1, indices.shape[1])),
            shape=(len(indices), tied.shape[-1]),
        )
        rows = to_numpy(tied.reshape(-1, tied.shape[-1]))
        summed = as_like((mixing @ rows.T).T.reshape(*tied.shape[:-1], len(indices)), images)
        return {
            "graph_weight": self.graph_weight,
            "laplacian": sp.diags_array(weights.sum(1)),
            "neighbor_sum": self._inner_order(summed),
        }

    def _inner_order(self, codes: Array) -> Array:
        """Return public codes with samples moved last, (atom, tube, sample), as (tube, atom, sample)."""
        xp = namespace(codes)
        moved = xp.swapaxes(codes, 0, 1)
        return xp.ascontiguousarray(moved) if xp.__name__ == "numpy" else moved.contiguous()

    def _neighbors_of(self, images: Array, neighbors: Any) -> tuple[np.ndarray, np.ndarray]:
        if neighbors is None:
            indices, weights = self.graph_.query(images)
            return np.asarray(indices), np.asarray(weights, np.float64)
        indices = np.asarray(neighbors)
        n_known = self.codes_.shape[0]
        if indices.ndim != 2 or len(indices) != len(images) or indices.dtype.kind not in "iu":
            raise ValueError(
                f"neighbors has shape {indices.shape} and type {indices.dtype}; integers (n, q) are wanted, one row "
                f"for each of the {len(images)} images"
            )
        if indices.size == 0 or indices.min() < 0 or indices.max() >= n_known:
            span = f"names images {indices.min()} to {indices.max()}" if indices.size else "is empty"
            raise ValueError(f"neighbors {span}; indices of training images, 0 to {n_known - 1}, are wanted")
        return indices, np.ones(indices.shape)

    def _recognise(self, images: Array, codes: Array, neighbors: Any) -> Array:
        if self.graph_weight == 0 or neighbors is not None:
            return codes
        known = np.asarray(self.graph_.identical(images))
        inside = np.flatnonzero(known >= 0)
        if len(inside):
            codes[inside] = as_like(self.codes_[known[inside]], codes)
        return codes


class OptionalGraphCoder(GraphCoder):
    """A coder that has a graph only where ``graph_weight`` is above zero; else ``graph_`` is None."""

    def _graph_terms(self, images: Array) -> tuple[float, Any]:
        if self._graph_weight() > 0.0:
            return super()._graph_terms(images)
        self.graph_ = None
        return 0.0, None

    def _chunk_graph(self, rows: Any) -> Any:
        if self._graph_weight() > 0.0:
            return super()._chunk_graph(rows)
        self.graph_ = None
        return None
