"""What an estimator with a graph adds: building it, storing it, and tying new images to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tubal.backends.arrays import Array, as_like, namespace, to_numpy
from tubal.estimators._base import ImageCoder, scale_images
from tubal.estimators._validation import check_integer, check_weight
from tubal.graph import laplacian, resolve_graph


@dataclass(frozen=True)
class NewTies:
    """How new images are tied: neighbours (n, q) in training, weights (n, q), and the same image there (n,) or -1."""

    indices: np.ndarray
    weights: np.ndarray
    same: np.ndarray

    def of(self, part: slice) -> NewTies:
        """Return the ties of some of the images."""
        return NewTies(self.indices[part], self.weights[part], self.same[part])


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
            from tubal.graph.chunked import chunked_knn_graph

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

    def _new_ties(self, images: Array, neighbors: Any) -> NewTies | None:
        if self.graph_weight == 0:
            return None
        scaled, _ = scale_images(images, self.scale, self.scale_factor_)
        if neighbors is not None:
            indices = self._checked_names(neighbors, len(images))
            return NewTies(indices, np.ones(indices.shape), np.full(len(images), -1))
        indices, weights = self.graph_.query(scaled)
        return NewTies(np.asarray(indices), np.asarray(weights, np.float64), np.asarray(self.graph_.identical(scaled)))

    def _tie_terms(self, images: Array, ties: NewTies | None) -> dict[str, Any]:
        if ties is None:
            return {}
        used, places = np.unique(ties.indices, return_inverse=True)
        tied = namespace(images).moveaxis(as_like(self.codes_[used], images), 0, -1)
        starts = np.arange(0, places.size + 1, ties.indices.shape[1])
        mixing = sp.csr_array((ties.weights.reshape(-1), places.reshape(-1), starts), shape=(len(images), len(used)))
        rows = to_numpy(tied.reshape(-1, tied.shape[-1]))
        summed = as_like((mixing @ rows.T).T.reshape(*tied.shape[:-1], len(images)), images)
        return {
            "graph_weight": self.graph_weight,
            "laplacian": sp.diags_array(ties.weights.sum(1)),
            "neighbor_sum": self._inner_order(summed),
        }

    def _inner_order(self, codes: Array) -> Array:
        """Return public codes with samples moved last, (atom, tube, sample), as (tube, atom, sample)."""
        xp = namespace(codes)
        moved = xp.swapaxes(codes, 0, 1)
        return xp.ascontiguousarray(moved) if xp.__name__ == "numpy" else moved.contiguous()

    def _checked_names(self, neighbors: Any, n_images: int) -> np.ndarray:
        """Return the training images named for each new one, (n, q), or say what is wrong with them."""
        indices = np.asarray(neighbors)
        n_known = self.codes_.shape[0]
        if indices.ndim != 2 or len(indices) != n_images or indices.dtype.kind not in "iu":
            raise ValueError(
                f"neighbors has shape {indices.shape} and type {indices.dtype}; integers (n, q) are wanted, one row "
                f"for each of the {n_images} images"
            )
        if indices.size == 0 or indices.min() < 0 or indices.max() >= n_known:
            span = f"names images {indices.min()} to {indices.max()}" if indices.size else "is empty"
            raise ValueError(f"neighbors {span}; indices of training images, 0 to {n_known - 1}, are wanted")
        return indices

    def _recognise(self, codes: Array, ties: NewTies | None) -> Array:
        inside = np.flatnonzero(ties.same >= 0) if ties is not None else np.empty(0, np.intp)
        if ties is not None and len(inside):
            codes[inside] = as_like(self.codes_[ties.same[inside]], codes)
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
