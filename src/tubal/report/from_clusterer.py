"""Report data from a fitted ``ImageClusterer``. Only this file of the report knows a clusterer."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import to_numpy
from tubal.report.data import ReportData

if TYPE_CHECKING:
    from tubal.clustering import ImageClusterer
    from tubal.graph import Graph

__all__ = ["image_terms", "report_data"]

Array = NDArray[Any]
MAX_TERMS = 96
READABLE_SPARSITY = 0.02


def report_data(
    clusterer: ImageClusterer,
    images: Array,
    names: Sequence[str],
    *,
    true_labels: Sequence[str] | None = None,
    scores: Mapping[str, float] | None = None,
    provenance: Mapping[str, object] | None = None,
    title: str = "Image clusters",
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

    Returns
    -------
    ReportData
        Input of :func:`tubal.report.write_report`.
    """
    model = clusterer.model_
    neighbors, distances, alignments = _neighborhood(clusterer.graph_, len(images))
    codes, note = readable_codes(model, images)
    terms = image_terms(model, codes, limit=MAX_TERMS)
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
        atoms=to_numpy(model.atoms_) if terms is not None else None,
        terms=terms,
        term_counts=count_terms(codes) if terms is not None else None,
        terms_note=note,
        norms=image_norms(model, images) if terms is not None else None,
        objective=[float(value) for value in getattr(model, "objective_", ())],
        sparsity=[float(value) for value in getattr(model, "density_", ())],
        true_labels=true_labels,
        scores=scores,
        provenance=provenance or {},
        title=title,
    )


def image_terms(model: Any, codes: Array, *, limit: int) -> list[Array] | None:
    """Return for each image its largest terms, rows ``(atom, dy, dx, coefficient)``, largest first.

    ``codes`` is ``(n, atoms, positions…)``: a position along the tube is a circular shift of the atom along
    the tube's axis (section 2.4), a pair of positions a shift both ways. Other codes give ``None``.
    """
    codes = model.by_atom(codes) if hasattr(model, "by_atom") else codes
    if codes.ndim not in (2, 3, 4) or codes.shape[1] != len(model.atoms_):
        return None
    across = getattr(model, "tube_axis", -1) == -1
    terms = []
    for code in codes:
        flat = code.reshape(-1)
        keep = np.argsort(-np.abs(flat), kind="stable")[:limit]
        keep = keep[flat[keep] != 0.0]
        atom, *shift = np.unravel_index(keep, code.shape)
        still = [np.zeros(len(keep), dtype=int)] * (2 - len(shift))
        dy, dx = [*still, *shift] if across else [*shift, *still]
        terms.append(np.column_stack([atom, dy, dx, flat[keep]]).astype(np.float64))
    return terms


def readable_codes(model: Any, images: Array) -> tuple[Array, str]:
    """Return codes ``(n, atoms, positions…)`` that say what builds each image, and a note on how they were found."""
    coder, note = readable_coder(model)
    if coder is model:
        return to_numpy(model.codes_), note
    return to_numpy(coder.encode(images.astype(to_numpy(model.codes_).dtype, copy=False))), note


def readable_coder(model: Any) -> tuple[Any, str]:
    """Return a coder whose codes a person can follow, and a note on what was changed.

    A strong graph ties an image's code to its neighbours' and fills it with hundreds of small terms: right for
    clustering, unreadable as an explanation. Such images are coded once more, alone, with the model's own atoms.
    """
    if not getattr(model, "graph_weight", 0.0):
        return model, ""
    alone = copy.copy(model)
    alone.graph_weight = 0.0
    if getattr(model, "scale", None) == "unit" and isinstance(model.sparsity, int | float):
        alone.sparsity = max(float(model.sparsity), READABLE_SPARSITY)
    note = f"This image coded alone, at sparsity {alone.sparsity:g}. The clusters use codes tied to the neighbours'."
    return alone, note


def count_terms(codes: Array) -> Array:
    """Return how many codes of each image are not zero.

    >>> count_terms(np.array([[[0.0, 1.0]], [[2.0, 3.0]]]))
    array([1, 2])
    """
    return np.asarray(np.count_nonzero(codes.reshape(len(codes), -1), axis=1))


def image_norms(model: Any, images: Array) -> Array:
    """Return what undoes the scaling a model applied to each image: its length, or one factor for all."""
    if model.scale == "unit":
        lengths = np.linalg.norm(images.reshape(len(images), -1), axis=1)
        return np.asarray(np.where(lengths > 0.0, lengths, 1.0))
    return np.full(len(images), float(model.scale_factor_))


def first_of_group(groups: Iterable[Iterable[int]], n_images: int) -> Array:
    """Return for each image (n,) the first image of its group of near-duplicates, or -1 for the first and for others.

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
