"""Report data and the notebook gallery of a fitted ``ImageClusterer``. No other file of the report uses a clusterer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tubal.backends.arrays import to_numpy
from tubal.clustering.views import leading_graph
from tubal.report.data import ReportData
from tubal.report.page import MAX_IMAGES, build_report, choose_sample

if TYPE_CHECKING:
    from tubal.clustering import ImageClusterer
    from tubal.graph import Graph, Stage

__all__ = ["Gallery", "gallery", "report_data"]

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
    originals: Sequence[str] | None = None,
    title: str = "Image clusters",
    stage: Stage | None = None,
    explain: bool = True,
) -> ReportData:
    """Return what a report shows of a fitted clusterer.

    Only images that the page shows are explained. Of their codes the ``MAX_TERMS`` largest terms are kept, together
    with the number of all.

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
    originals : sequence of n str, optional
        Addresses of the original pictures relative to the page; "" for none.
    title : str, default="Image clusters"
        Heading of the page.
    stage : Stage or None, default=None
        Reports how many images are explained, and keeps their explanations if it has a checkpoint.
    explain : bool, default=True
        Also explain images; a live page asks for explanations of single images.

    Returns
    -------
    ReportData
        Input of :func:`tubal.report.write_report`.
    """
    model = clusterer.model_
    deciding = leading_graph(clusterer)[1]
    neighbors, distances, alignments = _neighborhood(deciding, len(images), clusterer.graph_.n_neighbors)
    data = ReportData(
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
        affinity=clusterer.affinity_,
        atoms=to_numpy(model.atoms_),
        objective=[float(value) for value in getattr(model, "objective_", ())],
        sparsity=[float(value) for value in getattr(model, "density_", ())],
        n_iterations=int(model.n_iter_),
        true_labels=true_labels,
        scores=scores,
        provenance=provenance or {},
        originals=originals,
        cluster_names={label: name for label, name in enumerate(clusterer.names_) if name is not None},
        title=title,
    )
    if not explain:
        return data
    return replace(data, **_explained(clusterer, images, choose_sample(data, MAX_IMAGES), stage))


def _explained(clusterer: ImageClusterer, images: Array, shown: Array, stage: Stage | None) -> dict[str, Any]:
    """Return the terms of the images shown, as fields of ReportData; the other images have none."""
    from tubal.estimators.explanation import explain_images  # a server starts without it

    explanations = dict(zip(shown.tolist(), explain_images(clusterer.model_, images[shown], stage=stage), strict=True))
    counts, norms = np.zeros(len(images), int), np.ones(len(images))
    shares = np.full(len(images), np.nan)
    for i, explanation in explanations.items():
        counts[i], norms[i], shares[i] = len(explanation), explanation.norm, explanation.explained()
    terms = [explanations[i].table(MAX_TERMS) if i in explanations else np.empty((0, 4)) for i in range(len(images))]
    note = next(iter(explanations.values())).note
    return {"terms": terms, "term_counts": counts, "terms_note": note, "norms": norms, "explained": shares}


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


def _neighborhood(graph: Graph, n_images: int, most: int | None = None) -> tuple[Array, Array, Array | None]:
    """Return neighbours (n, q), distances (n, q) and alignments (n, q, 4) of a graph, at most ``most`` of each image.

    A graph that was given as a matrix has no neighbour lists: its strongest edges take their place.
    """
    if graph.neighbors is not None and graph.distances is not None:
        moved = None if graph.alignments is None else np.moveaxis(graph.alignments.stack(), 0, -1)[:, :most]
        return graph.neighbors[:, :most], graph.distances[:, :most], moved
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


# --- notebooks -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Gallery:
    """A report that a notebook displays in a frame; it needs no server and no network.

    Parameters
    ----------
    page : str
        The report, as :func:`tubal.report.build_report` returns it.
    height : int
        Height of the frame in pixels.
    """

    page: str
    height: int

    def _repr_html_(self) -> str:
        # The frame may run the page's own script and download its table; it cannot reach the notebook around it.
        return (
            f'<iframe title="Image clusters" sandbox="allow-scripts allow-downloads" loading="lazy" '
            f'style="width:100%;height:{self.height}px;border:1px solid #8888;border-radius:6px" '
            f'srcdoc="{escape(self.page)}"></iframe>'
        )


def gallery(
    clusterer: ImageClusterer,
    images: Array,
    names: Sequence[str] | None = None,
    *,
    height: int = 640,
    max_images: int = 500,
) -> Gallery:
    """Return the report of a fitted clusterer as an object that a notebook displays.

    Map, clusters, neighbours and explanations work as in the report's file. A notebook stores what it displays, so the
    default shows a sample where there are many images.

    Parameters
    ----------
    clusterer : ImageClusterer
        Fitted on ``images``.
    images : float array of shape (n, height, width) or (n, height, width, 3)
        The pictures that the gallery shows, with pixels between 0 and 1.
    names : sequence of n str, optional
        Names of the images; by default their indices.
    height : int, default=640
        Height of the frame in pixels.
    max_images : int, default=500
        Above this number of images the page shows a sample of every cluster, in proportion to its size, and says so.

    Returns
    -------
    Gallery
        Displayed by Jupyter where it is the last value of a cell.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tubal import ImageClusterer
    >>> images = load_digits().images[:40] / 16
    >>> found = gallery(ImageClusterer(4, random_state=0).fit(images), images)
    >>> found._repr_html_().startswith("<iframe")
    True
    """
    if len(images) != len(clusterer.labels_):
        raise ValueError(
            f"there are {len(images)} images, but the clusterer was fitted on {len(clusterer.labels_)}; pass those"
        )
    data = report_data(clusterer, images, names or [str(index) for index in range(len(images))])
    return Gallery(build_report(data, max_images=max_images), height)
