"""Beyond the paper: the default preset against what a user would otherwise pick, with its ablation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tubal.experiments.models import METHODS as BASELINES
from tubal.experiments.models import Images, Method, Outcome, Settings, cluster_rows, scale_images
from tubal.experiments.trials import Record, Trial

__all__ = ["ABLATION", "DATASETS", "METHODS", "TITLE", "plan", "settings_for", "update_readme", "write"]

TITLE = "Beyond the paper: neighbours under small deformations, codes, and both together"
DATASETS = ("coil20", "usps", "orl", "yale", "digits")
_N_NEIGHBORS = 5

# What is changed in the default preset, one thing at a time.
ABLATION: Mapping[str, Mapping[str, Any]] = {
    "no affine bank": {"deformation": "no affine bank"},
    "no local warp": {"deformation": "no local warp"},
    "neither": {"deformation": "neither"},
    "pixels instead of gradients": {"deformation": "pixels"},
    "Euclidean graph": {"graph": "euclidean"},
    "edges weighted by codes": {"code_power": 4.0},
    **{f"q = {q}": {"n_neighbors": q} for q in (2, 3, 4, 6, 8, 10)},
    **{f"graph weight {weight:g}": {"graph_weight": weight} for weight in (0.1, 1.0, 100.0)},
    "number of clusters estimated": {"estimate": True},
}


def build_graph(images: Images, n_neighbors: int, deformation: str = "full", seed: int = 0) -> Any:
    """Return the deformable graph, or one with a part of the model left out.

    >>> build_graph(np.random.default_rng(0).random((12, 8, 8)), 3, "no local warp").neighbors.shape
    (12, 3)
    """
    from tubal.clustering.affinity import clustering_effort
    from tubal.graph import deformable_graph
    from tubal.graph.deformable import Deformation

    still = {"rotation": 0.0, "n_rotations": 1, "scale": 1.0, "n_scales": 1, "shift": 0.0}
    parts: dict[str, dict[str, Any]] = {
        "full": {},
        "no affine bank": still,
        "no local warp": {"window": 0.0},
        "neither": {**still, "window": 0.0},
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


def fit_default(images: Images, n_clusters: int | None, settings: Settings, seed: int) -> Any:
    """Fit the default preset, changed as the settings say."""
    from tubal import ImageClusterer
    from tubal.clustering.clusterer import draw_seed

    graph = settings.get("graph")
    n_neighbors = settings["n_neighbors"]
    if "deformation" in settings:
        # Twice as many neighbours, since the clusterer compares two readings of the distances; its own seed.
        graph = build_graph(images, 2 * n_neighbors, settings["deformation"], draw_seed(seed))
    return ImageClusterer(
        None if settings.get("estimate") else n_clusters,
        graph=graph,
        n_neighbors=n_neighbors,
        graph_weight=settings.get("graph_weight"),
        code_power=settings.get("code_power", 0.0),
        random_state=seed,
    ).fit(images)


def _default(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    model = fit_default(images, n_clusters, settings, seed)
    details = {"n_clusters": float(model.n_clusters_), "confidence": float(model.confidence_.mean())}
    return Outcome(model.labels_, details)


def _graph_alone(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """The default preset without GTSC: the same graph, the same cut, nothing proposed by codes."""
    from tubal import clustering
    from tubal.clustering.affinity import choice_weights, choose_neighbors
    from tubal.clustering.clusterer import draw_seed
    from tubal.clustering.cuts import partition_graph

    seed = draw_seed(seed)  # the clusterer's own, so that the two differ by the codes and nothing else
    images = scale_images(images, "unit")
    wide = build_graph(images, 2 * settings["n_neighbors"], seed=seed)
    graph = choose_neighbors(wide, settings["n_neighbors"])
    ties = clustering.with_second_order(choice_weights(graph))
    rows = images.reshape(len(images), -1)
    labels = partition_graph(ties, graph, n_clusters, features=rows, propose_from_features=False, seed=seed)
    return Outcome(labels, {})


def _spectral(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """scikit-learn's spectral clustering on the deformable graph."""
    from sklearn.cluster import SpectralClustering

    graph = build_graph(images, settings["n_neighbors"], seed=seed)
    model = SpectralClustering(n_clusters, affinity="precomputed", assign_labels="cluster_qr", random_state=seed)
    return Outcome(model.fit_predict(graph.adjacency.astype(np.float64)), {})


def _codes_alone(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
    """GTSC on the deformable graph, then K-means on its pooled codes."""
    from tubal import GTSC
    from tubal.clustering.clusterer import PRESETS

    preset = PRESETS["default"]
    model = GTSC(
        graph=build_graph(images, settings["n_neighbors"], seed=seed),
        sparsity=preset.sparsity,
        graph_weight=preset.graph_weight,
        max_iter=preset.max_iter,
        code_solver=preset.code_solver,
        random_state=seed,
    )
    features = model.fit_transform(images)
    return Outcome(cluster_rows(features, n_clusters, {"features": "unit", "n_starts": 10}, seed), {})


METHODS: dict[str, Method] = {
    "kmeans": BASELINES["kmeans"],
    "umap": BASELINES["umap"],
    "spectral": Method("Spectral, Euclidean graph", BASELINES["spectral"].cluster, BASELINES["spectral"].settings),
    "spectral-deformable": Method("Spectral, deformable graph", _spectral, ("n_neighbors",)),
    "gtsc": Method("GTSC on the deformable graph + K-means", _codes_alone, ("n_neighbors",)),
    "graph-alone": Method("Default without codes", _graph_alone, ("n_neighbors",)),
    "default": Method("Default preset", _default, ("n_neighbors",)),
}
_SHARED: Mapping[str, Any] = {
    "scale": "unit",
    "n_starts": 10,
    "cut": "cluster_qr",
    "n_neighbors": _N_NEIGHBORS,
    "umap_neighbors": 10,
    "umap_dimensions": 10,
}


def settings_for(method: str, row: str = "table") -> dict[str, Any]:
    """Return every setting a method reads, the same for every collection.

    >>> settings_for("default", "q = 3")
    {'n_neighbors': 3}
    """
    merged = {name: _SHARED[name] for name in METHODS[method].settings if name in _SHARED}
    return merged | dict(ABLATION[row]) if row != "table" else merged


def plan(datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False) -> list[Trial]:
    """Return the trials: every method ``runs`` times, every ablation a fifth as often; ``sweep`` adds nothing."""
    trials = [
        Trial("beyond", dataset, method, "table", run, settings_for(method))
        for run in range(runs)
        for dataset in datasets
        for method in methods
    ]
    if "default" in methods:
        trials += [
            Trial("beyond", dataset, "default", row, run, settings_for("default", row))
            for run in range(max(1, runs // 5))
            for row in ABLATION
            for dataset in datasets
        ]
    return trials


def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``beyond.json``, ``beyond.md`` and the figures; return the paths."""
    from tubal.experiments import beyond_report

    summary = beyond_report.summarise(records, METHODS, tuple(ABLATION))
    summary["purity"] = beyond_report.neighbour_purity(summary["datasets"])
    paths = beyond_report.write(summary, folder)
    if figures:
        from tubal.experiments.beyond_figures import draw_all

        paths += draw_all(summary["datasets"], folder / "figures")
    return paths


def update_readme(readme: Path, folder: Path) -> None:
    """Put the block generated from ``folder/beyond.json`` between the markers of the README."""
    from tubal.experiments.beyond_report import readme_block
    from tubal.experiments.pages import replace_block

    replace_block(readme, "beyond", readme_block(json.loads((folder / "beyond.json").read_text(encoding="utf-8"))))
