"""The methods of the tables: images, a number of clusters, settings and a seed in, labels out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Images = NDArray[Any]
Settings = Mapping[str, Any]


class Outcome(NamedTuple):
    """Labels (n,) of one trial and what is worth knowing about how they came about."""

    labels: NDArray[Any]
    details: dict[str, float]


@dataclass(frozen=True)
class Method:
    """A column entry of a table: its title, its function and the names of the settings it reads."""

    title: str
    cluster: Callable[[Images, int, Settings, int], Outcome]
    settings: tuple[str, ...]
    requires: str | None = None
    hint: str = field(default="")

    def unavailable(self) -> str | None:
        """Return one sentence on the missing package, or None when the method can run."""
        if self.requires is None or find_spec(self.requires) is not None:
            return None
        return f"{self.title} needs the package {self.requires}: {self.hint}"


def scale_images(images: Images, scale: str) -> Images:
    """Return the images as they are (``"pixels"``) or each with unit length (``"unit"``).

    >>> float(np.linalg.norm(scale_images(np.full((1, 2, 2), 3.0), "unit")))
    1.0
    """
    if scale == "pixels":
        return images
    if scale != "unit":
        raise ValueError(f"scale is {scale!r}; choose 'unit' or 'pixels'")
    lengths = np.sqrt((images**2).sum(axis=(1, 2), keepdims=True))
    return np.asarray(images / np.where(lengths > 0, lengths, images.dtype.type(1)))


def cluster_rows(features: NDArray[Any], n_clusters: int, settings: Settings, seed: int) -> NDArray[Any]:
    """K-means on the rows of ``features``, scaled to unit length first where the settings say so."""
    from sklearn.cluster import KMeans

    from tubal.problems.layout import unit_rows

    rows = unit_rows(features) if settings["features"] == "unit" else features
    return np.asarray(KMeans(n_clusters, n_init=settings["n_starts"], random_state=seed).fit_predict(rows))


def _pixels(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    rows = scale_images(images, settings["scale"]).reshape(len(images), -1)
    return Outcome(cluster_rows(rows, n_clusters, {**settings, "features": "plain"}, seed), {})


def _spectral(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    from sklearn.cluster import SpectralClustering

    from tubal.graph import knn_graph

    graph = knn_graph(scale_images(images, settings["scale"]), settings["n_neighbors"])
    model = SpectralClustering(n_clusters, affinity="precomputed", assign_labels=settings["cut"], random_state=seed)
    return Outcome(model.fit_predict(graph.adjacency.astype(np.float64)), {})


def _umap(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    import umap

    rows = scale_images(images, settings["scale"]).reshape(len(images), -1)
    model = umap.UMAP(
        n_neighbors=settings["umap_neighbors"],
        n_components=settings["umap_dimensions"],
        min_dist=0.0,
        random_state=seed,
        n_jobs=1,
    )
    return Outcome(cluster_rows(model.fit_transform(rows), n_clusters, {**settings, "features": "plain"}, seed), {})


def fit_coder(images: Images, settings: Settings, seed: int, *, tubal: bool, graph: bool) -> tuple[Any, NDArray[Any]]:
    """Fit the corner of the family that ``tubal`` (codes shift) and ``graph`` (neighbours agree) name.

    Returns the fitted estimator and the features (n, n_atoms). One-column corners first reduce the images
    by PCA, as the paper does; the neighbour graph is always that of the images.
    """
    from tubal import GTSC, GraphSC, SparseCoding, TubSC
    from tubal.experiments.coding import FixedSteps
    from tubal.graph import knn_graph

    coded = prepare(images, settings, tubal=tubal)
    common: dict[str, Any] = {
        "n_atoms": settings["n_atoms"],
        "sparsity": absolute_sparsity(coded, settings),
        "scale": None,
        "max_iter": settings["max_iter"],
        "tol": 0.0,
        "code_solver": FixedSteps(settings["code_iterations"]),
        "init": settings["init"],
        "random_state": seed,
    }
    if graph:
        common["graph_weight"] = settings["graph_weight"]
        common["graph"] = knn_graph(scale_images(images, settings["scale"]), settings["n_neighbors"])
    corner = (GTSC if tubal else GraphSC) if graph else (TubSC if tubal else SparseCoding)
    model = corner(**common)
    return model, np.asarray(model.fit_transform(coded))


def prepare(images: Images, settings: Settings, *, tubal: bool) -> NDArray[Any]:
    """Return what is coded: scaled images (n, height, width), or their principal components (n, d)."""
    scaled = scale_images(images, settings["scale"])
    return scaled if tubal else reduce_dimensions(scaled, settings["pca_variance"])


def reduce_dimensions(images: Images, variance: float) -> NDArray[Any]:
    """Return rows (n, d): the fewest principal components that keep ``variance`` of the variance."""
    from sklearn.decomposition import PCA

    rows = images.reshape(len(images), -1)
    return np.asarray(PCA(n_components=variance, svd_solver="full").fit_transform(rows))


def absolute_sparsity(coded: NDArray[Any], settings: Settings) -> float:
    """Return the sparsity weight: as given, or as a share of the mean length of what is coded.

    >>> absolute_sparsity(np.array([[3.0, 4.0], [0.0, 5.0]]), {"sparsity_fraction": 0.1})
    0.5
    """
    if "sparsity" in settings:
        return float(settings["sparsity"])
    lengths = np.linalg.norm(coded.reshape(len(coded), -1), axis=1)
    return float(settings["sparsity_fraction"] * lengths.mean())


def _coder(*, tubal: bool, graph: bool) -> Callable[[Images, int, Settings, int], Outcome]:
    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        model, features = fit_coder(images, settings, seed, tubal=tubal, graph=graph)
        codes = np.asarray(model.codes_)
        details = {
            "sparsity": float(model.sparsity),
            "objective": float(model.objective_[-1]),
            "n_iter": float(model.n_iter_),
            "nonzero_share": float(np.count_nonzero(codes) / codes.size),
        }
        return Outcome(cluster_rows(features, n_clusters, settings, seed), details)

    return cluster


_CODER = (
    *("scale", "features", "sparsity", "sparsity_fraction", "init", "max_iter", "code_iterations"),
    *("n_starts", "n_atoms"),
)
_GRAPH = ("graph_weight", "n_neighbors")

METHODS: dict[str, Method] = {
    "kmeans": Method("K-means", _pixels, ("scale", "n_starts")),
    "sc": Method("SC", _coder(tubal=False, graph=False), (*_CODER, "pca_variance")),
    "graphsc": Method("GraphSC", _coder(tubal=False, graph=True), (*_CODER, *_GRAPH, "pca_variance")),
    "tubsc": Method("TubSC", _coder(tubal=True, graph=False), _CODER),
    "gtsc": Method("GTSC", _coder(tubal=True, graph=True), (*_CODER, *_GRAPH)),
    "spectral": Method("Spectral", _spectral, ("scale", "cut", "n_neighbors")),
    "umap": Method(
        "UMAP + K-means",
        _umap,
        ("scale", "n_starts", "umap_neighbors", "umap_dimensions"),
        requires="umap",
        hint="pip install 'tubal[bench]'",
    ),
}
