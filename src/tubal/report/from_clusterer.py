"""From a fitted ``ImageClusterer`` to what a report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import to_numpy
from tubal.estimators.explanation import explain_images
from tubal.report.data import ReportData

__all__ = ["report_data"]

Array = NDArray[Any]
MAX_TERMS = 96


def report_data(
    clusterer: Any,
    images: Array,
    names: Sequence[str],
    *,
    true_labels: Sequence[str] | None = None,
    scores: Mapping[str, float] | None = None,
    provenance: Mapping[str, Any] | None = None,
    title: str = "Image clusters",
) -> ReportData:
    """Gather what ``tubal.report`` draws from a fitted clusterer and the images ``(n, h, w[, 3])`` in [0, 1].

    Of each image's code the largest terms are kept, with a count of them all: what a person can follow.
    """
    model = clusterer.model_
    neighbors, distances, alignments = _neighbourhood(clusterer.graph_, len(images))
    explanations = explain_images(model, images)
    return ReportData(
        images=(np.clip(images, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8),
        names=names,
        labels=clusterer.labels_,
        confidence=clusterer.confidence_,
        outliers=as_mask(clusterer.outliers_, len(images)),
        duplicate_of=first_of_group(clusterer.duplicates_, len(images)),
        embedding=clusterer.embedding_,
        neighbors=neighbors,
        neighbor_distances=distances,
        alignments=alignments,
        atoms=to_numpy(model.atoms_),
        terms=[explanation.table(MAX_TERMS) for explanation in explanations],
        term_counts=np.array([len(explanation) for explanation in explanations]),
        terms_note=explanations[0].note,
        norms=np.array([explanation.norm for explanation in explanations]),
        objective=[float(value) for value in getattr(model, "objective_", ())],
        sparsity=[float(value) for value in getattr(model, "density_", ())],
        true_labels=true_labels,
        scores=scores,
        provenance=provenance or {},
        title=title,
    )


def first_of_group(groups: Any, n_images: int) -> Array:
    """Return for each image the first image of its near-duplicate group, or -1.

    >>> first_of_group([[1, 3], [0, 4, 5]], 6)
    array([-1, -1, -1,  1,  0,  0])
    """
    first = np.full(n_images, -1)
    for group in groups:
        members = sorted(int(index) for index in group)
        first[members[1:]] = members[0]
    return first


def as_mask(which: Any, n_images: int) -> Array:
    """Return a boolean mask of the images named by a mask or by their indices."""
    given: Array = np.asarray(which)
    if given.dtype == bool:
        return given
    mask = np.zeros(n_images, dtype=bool)
    mask[given.astype(int)] = True
    return mask


def _neighbourhood(graph: Any, n_images: int) -> tuple[Array, Array, Array | None]:
    """Return neighbours, distances and alignments ``(n, q)``; a matrix has its edges only."""
    if graph.neighbors is not None:
        moved = None if graph.alignments is None else np.moveaxis(graph.alignments.stack(), 0, -1)
        return graph.neighbors, graph.distances, moved
    adjacency = graph.adjacency
    degree = int(min(8, np.diff(adjacency.indptr).max(initial=1)))
    neighbors = np.full((n_images, degree), -1)
    distances = np.zeros((n_images, degree))
    for i in range(n_images):
        edges = slice(adjacency.indptr[i], adjacency.indptr[i + 1])
        order = np.argsort(-adjacency.data[edges], kind="stable")[:degree]
        neighbors[i, : len(order)] = adjacency.indices[edges][order]
        # Stronger edges are nearer; only their order means anything here.
        distances[i, : len(order)] = 1.0 / adjacency.data[edges][order]
    return neighbors, distances, None
