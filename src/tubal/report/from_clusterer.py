"""Report data from a fitted ``ImageClusterer``. No other file of the report uses a clusterer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import to_numpy
from tubal.estimators.explanation import explain_images
from tubal.report.data import ReportData

if TYPE_CHECKING:
    from tubal.clustering import ImageClusterer
    from tubal.graph import Graph

__all__ = ["report_data"]

Array = NDArray[Any]
MAX_TERMS = 96


def report_data(
    clusterer: ImageClusterer,
    images: Array,
    names: Sequence[str],
    *,
    true_labels: Sequence[str] | None = None,
    scores: Mapping[str, float] | None = None,
    provenance: Mapping[str, object] | None = None,
    title: str = "Image clusters",
    progress: Callable[[int, int], object] | None = None,
) -> ReportData:
    """Return what a report shows of a fitted clusterer.

    Of each image's code only the ``MAX_TERMS`` largest terms are kept, together with their number in all.

    Parameters
    ----------
    clusterer : ImageClusterer
        Fitted on ``images``.
    images : float array of shape (n, height, width) or (n, height, width, 3)
        Pixels between 0 and 1.
    names : sequence of n str
        File names.
    true_labels : sequence of n str, optional
        Labels to compare the clusters with.
    scores : mapping of str to float, optional
        Scores of that comparison.
    provenance : mapping, optional
        Settings, versions, seed, hashes and times of the run.
    title : str, default="Image clusters"
        Heading of the page.
    progress : callable or None, default=None
        Called with the number of images explained and the number of all images.

    Returns
    -------
    ReportData
        Input of :func:`tubal.report.write_report`.
    """
    model = clusterer.model_
    neighbors, distances, alignments = _neighborhood(clusterer.graph_, len(images))
    explanations = explain_images(model, images, progress=progress)
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


def first_of_group(groups: Iterable[Iterable[int]], n_images: int) -> Array:
    """Return for each image (n,) the first image of its group of near-duplicates.

    The result is -1 for that first image and for images without a group.

    >>> first_of_group([[1, 3], [0, 4, 5]], 6)
    array([-1, -1, -1,  1,  0,  0])
    """
    first = np.full(n_images, -1)
    for group in groups:
        members = sorted(int(index) for index in group)
        first[members[1:]] = members[0]
    return first


def as_mask(which: ArrayLike, n_images: int) -> Array:
    """Return a boolean mask (n,) from a mask or from indices."""
    given: Array = np.asarray(which)
    if given.dtype == bool:
        return given
    mask = np.zeros(n_images, dtype=bool)
    mask[given.astype(int)] = True
    return mask


def _neighborhood(graph: Graph, n_images: int) -> tuple[Array, Array, Array | None]:
    """Return neighbours (n, q), distances (n, q) and alignments (n, q, 4) of a graph.

    A graph that was given as a matrix has no neighbour lists: its strongest edges take their place.
    """
    if graph.neighbors is not None and graph.distances is not None:
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
        # A distance that orders the edges by weight, strongest first; its size has no meaning.
        distances[i, : len(order)] = 1.0 / adjacency.data[edges][order]
    return neighbors, distances, None
