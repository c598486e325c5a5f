"""The methods that the tables compare: images, a number of clusters, settings and a seed in; labels out.

Three groups: the baselines and sparse coders of Table 2, the eight members of the family, and the default preset of
:class:`tubal.ImageClusterer` with its parts. Each table collects its methods under ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array
from tubal.experiments.trials import Images, Labels, Outcome, Settings
from tubal.problems.base import CodingProblem, MomentumState
from tubal.solvers import Admm, Fista, Solution

if TYPE_CHECKING:
    from tubal import CSC, GTSC, ImageClusterer, TenSR, TubSC
    from tubal.graph import Graph

    Member = TubSC | GTSC | TenSR | CSC

Features = NDArray[np.floating[Any]]


# --- shared steps ----------------------------------------------------------------------------------------------
def normalize_images(images: Images, scale: str) -> Images:
    """Return the images unchanged (``"pixels"``) or each scaled to unit length (``"unit"``).

    >>> float(np.linalg.norm(normalize_images(np.full((1, 2, 2), 3.0), "unit")))
    1.0
    """
    if scale == "pixels":
        return images
    if scale != "unit":
        raise ValueError(f"scale is {scale!r}; choose 'unit' or 'pixels'")
    lengths = np.sqrt((images**2).sum(axis=(1, 2), keepdims=True))
    return np.asarray(images / np.where(lengths > 0, lengths, images.dtype.type(1)))


def cluster_rows(features: Features, n_clusters: int, settings: Settings, seed: int) -> Labels:
    """Run K-means on the rows of ``features``, scaled to unit length if ``settings["features"]`` is "unit"."""
    from sklearn.cluster import KMeans

    from tubal.problems.layout import unit_rows

    rows = unit_rows(features) if settings["features"] == "unit" else features
    return np.asarray(KMeans(n_clusters, n_init=settings["n_starts"], random_state=seed).fit_predict(rows))


# --- baselines -------------------------------------------------------------------------------------------------
def kmeans_on_pixels(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """K-means on the pixels."""
    rows = normalize_images(images, settings["scale"]).reshape(len(images), -1)
    return Outcome(cluster_rows(rows, n_clusters, {**settings, "features": "plain"}, seed), {})


def spectral_on_pixels(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """scikit-learn's spectral clustering on the Euclidean neighbour graph."""
    from sklearn.cluster import SpectralClustering

    from tubal.graph import knn_graph

    graph = knn_graph(normalize_images(images, settings["scale"]), settings["n_neighbors"])
    model = SpectralClustering(n_clusters, affinity="precomputed", assign_labels=settings["cut"], random_state=seed)
    return Outcome(model.fit_predict(graph.adjacency.astype(np.float64)), {})


def umap_and_kmeans(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """UMAP, then K-means on its coordinates."""
    import umap

    rows = normalize_images(images, settings["scale"]).reshape(len(images), -1)
    model = umap.UMAP(
        n_neighbors=settings["umap_neighbors"],
        n_components=settings["umap_dimensions"],
        min_dist=0.0,
        random_state=seed,
        n_jobs=1,
    )
    return Outcome(cluster_rows(model.fit_transform(rows), n_clusters, {**settings, "features": "plain"}, seed), {})


# --- the sparse coders of Table 2 ------------------------------------------------------------------------------
class CoderKind(NamedTuple):
    """Whether codes have circular shifts (TubSC, GTSC) and whether a graph couples them (GraphSC, GTSC)."""

    shifts: bool
    graph: bool


CODERS = {
    "sc": CoderKind(shifts=False, graph=False),
    "graphsc": CoderKind(shifts=False, graph=True),
    "tubsc": CoderKind(shifts=True, graph=False),
    "gtsc": CoderKind(shifts=True, graph=True),
}


@dataclass(frozen=True)
class FixedSteps:
    """Algorithm 1 with the exact Lipschitz constant and exactly ``steps`` steps in every coding step.

    Estimators raise ``max_iter`` for their final codes. That has no effect here, so the work of a trial is always
    "alternations × steps".
    """

    steps: int = 30
    max_iter: int = 0

    def minimise(self, problem: CodingProblem, start: MomentumState | Array | None = None) -> Solution[MomentumState]:
        """Take the steps, from zero or from the state of the previous coding step."""
        return self._algorithm.minimise(problem, start)

    def codes(self, problem: CodingProblem, state: MomentumState) -> Array:
        """Return the codes of a state."""
        return self._algorithm.codes(problem, state)

    @property
    def _algorithm(self) -> Fista:
        return Fista(max_iter=self.steps)


def fit_sparse_coder(name: str, images: Images, settings: Settings, seed: int) -> tuple[TubSC | GTSC, Features]:
    """Fit one of the four sparse coders; return it with its features (n_images, n_atoms).

    Coders without shifts first reduce the images by PCA, as the paper does. The neighbour graph is always that of
    the images themselves.
    """
    from tubal import GTSC, GraphSC, SparseCoding, TubSC
    from tubal.graph import knn_graph

    kind = CODERS[name]
    rows = coder_input(name, images, settings)
    common: dict[str, Any] = {
        "n_atoms": settings["n_atoms"],
        "sparsity": absolute_sparsity(rows, settings),
        "scale": None,
        "max_iter": settings["max_iter"],
        "tol": 0.0,
        "code_solver": FixedSteps(settings["code_iterations"]),
        "init": settings["init"],
        "random_state": seed,
    }
    if kind.graph:
        common["graph_weight"] = settings["graph_weight"]
        common["graph"] = knn_graph(normalize_images(images, settings["scale"]), settings["n_neighbors"])
    estimators = {"sc": SparseCoding, "graphsc": GraphSC, "tubsc": TubSC, "gtsc": GTSC}
    model = estimators[name](**common)
    return model, np.asarray(model.fit_transform(rows))


def coder_input(name: str, images: Images, settings: Settings) -> Features:
    """Return what a coder reads: scaled images (n, height, width), or their principal components (n, d)."""
    scaled = normalize_images(images, settings["scale"])
    return scaled if CODERS[name].shifts else principal_components(scaled, settings["pca_variance"])


def principal_components(images: Images, variance: float) -> Features:
    """Return rows (n, d): the fewest principal components that keep the share ``variance`` of the variance."""
    from sklearn.decomposition import PCA

    rows = images.reshape(len(images), -1)
    return np.asarray(PCA(n_components=variance, svd_solver="full").fit_transform(rows))


def atom_pictures(name: str, atoms: Features, images: Images, settings: Settings) -> Images:
    """Return atoms (n_atoms, height, width) as pictures; those of coders behind PCA are mapped back to pixels."""
    from sklearn.decomposition import PCA

    if CODERS[name].shifts:
        return atoms
    rows = normalize_images(images, settings["scale"]).reshape(len(images), -1)
    components = PCA(n_components=settings["pca_variance"], svd_solver="full").fit(rows).components_
    return np.asarray((atoms.reshape(len(atoms), -1) @ components).reshape(-1, *images.shape[1:]))


def absolute_sparsity(rows: Features, settings: Settings) -> float:
    """Return the sparsity weight: as given, or as a fraction of the mean length of the rows.

    >>> absolute_sparsity(np.array([[3.0, 4.0], [0.0, 5.0]]), {"sparsity_fraction": 0.1})
    0.5
    """
    if "sparsity" in settings:
        return float(settings["sparsity"])
    lengths = np.linalg.norm(rows.reshape(len(rows), -1), axis=1)
    return float(settings["sparsity_fraction"] * lengths.mean())


def sparse_coder(name: str) -> Callable[[Images, int, Settings, int], Outcome]:
    """Return the method that fits a coder of Table 2 and runs K-means on its features."""

    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        model, features = fit_sparse_coder(name, images, settings, seed)
        codes = np.asarray(model.codes_)
        details = {
            "sparsity": float(model.sparsity),
            "objective": float(model.objective_[-1]),
            "n_iter": float(model.n_iter_),
            "nonzero_share": float(np.count_nonzero(codes) / codes.size),
        }
        return Outcome(cluster_rows(features, n_clusters, settings, seed), details)

    return cluster


# --- the family ------------------------------------------------------------------------------------------------
SHIFT_KINDS = ("circle, right", "circle, down", "border, right", "border, down")


def family_member(kind: str) -> Callable[[Images, int, Settings, int], Outcome]:
    """Return the method that fits one model ("sc", "tubsc", "tensr", "csc") and runs K-means on its features.

    Settings with a graph weight add the graph. ``n_images`` limits the images, ``shifts`` asks for the distances
    of features under shifts, ``device`` names a device other than the processor.
    """

    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        from tubal.backends.arrays import is_torch, namespace, to_device, to_numpy

        chosen = evenly_spaced(len(images), settings.get("n_images"))
        scaled = normalize_images(images[chosen], settings["scale"])
        model = build_member(kind, scaled, settings, seed)
        data = to_device(scaled, settings.get("device", "cpu"))
        if is_torch(data):
            namespace(data).cuda.reset_peak_memory_stats()
        features = to_numpy(model.fit_transform(data))
        details = _describe_codes(model, scaled, features)
        if is_torch(data):
            details["device_memory_mb"] = namespace(data).cuda.max_memory_allocated() / 2**20
        if "shifts" in settings:
            details.update(_shift_distances(model, scaled, settings))
        labels = np.full(len(images), -1)
        labels[chosen] = cluster_rows(features, min(n_clusters, len(scaled)), settings, seed)
        return Outcome(labels, details)

    return cluster


def build_member(kind: str, images: Images, settings: Settings, seed: int) -> Member:
    """Return the unfitted estimator of one member, for images of unit length."""
    from tubal import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
    from tubal.graph import knn_graph

    size = settings["size"]
    sparsity = settings["sparsity_fraction"] * largest_correlation(kind, images, settings.get("filter_shape", ()))
    common: dict[str, Any] = {
        "n_atoms": tuple(size) if kind == "tensr" else size,
        "sparsity": sparsity,
        "code_solver": member_solver(kind, sparsity, settings),
        "scale": "unit" if settings["scale"] == "unit" else None,  # default penalties assume unit length
        "max_iter": settings["max_iter"],
        "random_state": seed,
    }
    if kind == "csc":
        common["filter_shape"] = tuple(settings["filter_shape"])
    if "graph_weight" not in settings:
        plain: dict[str, type[Member]] = {"sc": SparseCoding, "tubsc": TubSC, "tensr": TenSR, "csc": CSC}
        return plain[kind](**common)
    common["graph_weight"] = settings["graph_weight"]
    common["graph"] = knn_graph(images, settings["n_neighbors"])
    with_graph: dict[str, type[Member]] = {"sc": GraphSC, "tubsc": GTSC, "tensr": TenSR, "csc": CSC}
    return with_graph[kind](**common)


def largest_correlation(kind: str, images: Images, filter_shape: Sequence[int]) -> float:
    """Return the largest product of an image with an atom of unit length, averaged over the images.

    For atoms as large as the image this is the image's length, for outer products ("tensr") its largest singular
    value, for small filters ("csc") the length of its strongest patch.

    >>> image = np.outer([3.0, 0.0], [0.0, 1.0])[None]
    >>> [round(largest_correlation(kind, image, (1, 1)), 9) for kind in ("sc", "tensr", "csc")]
    [3.0, 3.0, 3.0]
    """
    if kind == "tensr":
        return float(np.linalg.norm(images, ord=2, axis=(1, 2)).mean())
    if kind == "csc":
        window = np.zeros(images.shape[1:])
        window[: filter_shape[0], : filter_shape[1]] = 1.0
        spectrum = np.fft.rfft2(np.square(images, dtype=np.float64)) * np.conj(np.fft.rfft2(window))
        energy = np.fft.irfft2(spectrum, images.shape[1:]).max(axis=(1, 2))
        return float(np.sqrt(energy).mean())
    return float(np.linalg.norm(images.reshape(len(images), -1), axis=1).mean())


def member_solver(kind: str, sparsity: float, settings: Settings) -> Admm:
    """Return the coding solver of a member: the same steps for all, with the estimator's penalty or a stated one.

    >>> member_solver("tubsc", 0.03, {"code_steps": 5, "code_tol": 1e-3}).penalty
    4.0
    """
    from tubal.estimators.convolutional_coder import PENALTY
    from tubal.learning.fitting import default_code_solver

    if "code_penalty" in settings:
        least, slope = settings["code_penalty"]
        penalty = least + slope * sparsity
    else:
        penalty = PENALTY if kind == "csc" else default_code_solver(sparsity, "unit").penalty
    return Admm(max_iter=settings["code_steps"], tol=settings["code_tol"], penalty=penalty)


def _describe_codes(model: Member, images: Images, features: Features) -> dict[str, float]:
    """Return size, number of non-zero coefficients and reconstruction error of a fitted member's codes."""
    from tubal.backends.arrays import to_numpy

    codes = model.codes_
    residual = to_numpy(model.decode(codes)) - images
    return {
        "sparsity": float(model.sparsity),
        "objective": float(model.objective_[-1]),
        "n_iter": float(model.n_iter_),
        "stored": float(np.prod(codes.shape[1:])),
        "nonzero": float((codes != 0).sum()) / len(images),
        "error": float(np.square(residual).sum() / np.square(images).sum()),
        "features": float(features.shape[1]),
    }


def evenly_spaced(n_images: int, wanted: int | None) -> NDArray[np.intp]:
    """Return ``wanted`` evenly spaced indices of ``n_images`` images; all of them for None.

    >>> evenly_spaced(10, 4)
    array([0, 2, 5, 7])
    """
    count = n_images if wanted is None else min(wanted, n_images)
    return np.arange(count) * n_images // count


def shift_images(images: Images, pixels: int, kind: str) -> Images:
    """Return shifted images: circularly ("circle, ..."), or with the border repeated ("border, ...").

    >>> shift_images(np.arange(4.0).reshape(1, 1, 4), 1, "border, right")
    array([[[0., 0., 1., 2.]]])
    """
    boundary, direction = kind.split(", ")
    axis = 2 if direction == "right" else 1
    if boundary == "circle":
        return np.roll(images, pixels, axis)
    sources = np.clip(np.arange(images.shape[axis]) - pixels, 0, None)
    return np.take(images, sources, axis)


def _shift_distances(model: Member, images: Images, settings: Settings) -> dict[str, float]:
    """Return, for every shift, the distance between shifted and unshifted features, relative to their length."""
    from tubal.backends.arrays import to_device, to_numpy

    unshifted = images[evenly_spaced(len(images), settings["shift_images"])]
    cases = [(kind, pixels) for kind in SHIFT_KINDS for pixels in settings["shifts"]]
    stack = np.concatenate([unshifted, *(shift_images(unshifted, pixels, kind) for kind, pixels in cases)])
    features = to_numpy(model.transform(to_device(stack, settings.get("device", "cpu"))))
    first, *others = features.reshape(len(cases) + 1, len(unshifted), -1)
    lengths = np.linalg.norm(first, axis=1)
    safe = np.where(lengths > 0, lengths, 1.0)
    return {
        f"{kind}, {pixels}": float(np.mean(np.linalg.norm(after - first, axis=1) / safe))
        for (kind, pixels), after in zip(cases, others, strict=True)
    }


# --- the default preset and its parts --------------------------------------------------------------------------
def ablated_graph(images: Images, n_neighbors: int, deformation: str = "full", seed: int = 0) -> Graph:
    """Return the deformable graph, or one with a part of the deformation left out.

    >>> ablated_graph(np.random.default_rng(0).random((12, 8, 8)), 3, "no local warp").neighbors.shape
    (12, 3)
    """
    from tubal.clustering.affinity import clustering_effort
    from tubal.graph import deformable_graph
    from tubal.graph.deformable import Deformation

    no_motion = {"rotation": 0.0, "n_rotations": 1, "scale": 1.0, "n_scales": 1, "shift": 0.0}
    parts: dict[str, dict[str, Any]] = {
        "full": {},
        "no affine bank": no_motion,
        "no local warp": {"window": 0.0},
        "neither": {**no_motion, "window": 0.0},
        "pixels": {"field": "pixels"},
    }
    if deformation not in parts:
        raise ValueError(f"deformation is {deformation!r}; choose one of {', '.join(parts)}")
    return deformable_graph(
        images,
        n_neighbors,
        deformation=Deformation(**parts[deformation]),
        effort=clustering_effort(len(images), n_neighbors),
        random_state=seed,
    )


def fit_default_preset(images: Images, n_clusters: int, settings: Settings, seed: int) -> ImageClusterer:
    """Fit the default preset with the changes that the settings name."""
    from tubal import ImageClusterer
    from tubal.clustering.clusterer import draw_seed

    graph = settings.get("graph")
    n_neighbors = settings["n_neighbors"]
    if "deformation" in settings:
        # The clusterer looks at twice as many neighbours as it keeps, and derives its own seed.
        graph = ablated_graph(images, 2 * n_neighbors, settings["deformation"], draw_seed(seed))
    return ImageClusterer(
        None if settings.get("estimate") else n_clusters,
        graph=graph,
        n_neighbors=n_neighbors,
        views="shape",  # the same on machines with and without the network
        graph_weight=settings.get("graph_weight"),
        code_power=settings.get("code_power", 0.0),
        random_state=seed,
    ).fit(images)


def default_preset(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """The default preset of ImageClusterer."""
    model = fit_default_preset(images, n_clusters, settings, seed)
    details = {"n_clusters": float(model.n_clusters_), "confidence": float(model.confidence_.mean())}
    return Outcome(model.labels_, details)


def graph_without_codes(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """The default preset without GTSC: the same graph and cut, but no partition proposed by codes."""
    from tubal import clustering
    from tubal.clustering.affinity import choice_weights, choose_neighbors
    from tubal.clustering.clusterer import draw_seed
    from tubal.clustering.cuts import partition_graph

    seed = draw_seed(seed)  # the seed of the clusterer, so that only the codes differ
    images = normalize_images(images, "unit")
    wide = ablated_graph(images, 2 * settings["n_neighbors"], seed=seed)
    graph = choose_neighbors(wide, settings["n_neighbors"])
    affinity = clustering.with_second_order(choice_weights(graph))
    rows = images.reshape(len(images), -1)
    labels = partition_graph(affinity, graph, n_clusters, features=rows, propose_from_features=False, seed=seed)
    return Outcome(labels, {})


def spectral_on_deformable_graph(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """scikit-learn's spectral clustering on the deformable graph."""
    from sklearn.cluster import SpectralClustering

    graph = ablated_graph(images, settings["n_neighbors"], seed=seed)
    model = SpectralClustering(n_clusters, affinity="precomputed", assign_labels="cluster_qr", random_state=seed)
    return Outcome(model.fit_predict(graph.adjacency.astype(np.float64)), {})


def codes_on_deformable_graph(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """GTSC on the deformable graph, then K-means on its pooled codes."""
    from tubal import GTSC
    from tubal.clustering.clusterer import PRESETS

    preset = PRESETS["default"]
    model = GTSC(
        graph=ablated_graph(images, settings["n_neighbors"], seed=seed),
        sparsity=preset.sparsity,
        graph_weight=preset.graph_weight,
        max_iter=preset.max_iter,
        code_solver=preset.code_solver,
        random_state=seed,
    )
    features = model.fit_transform(images)
    return Outcome(cluster_rows(features, n_clusters, {"features": "unit", "n_starts": 10}, seed), {})
