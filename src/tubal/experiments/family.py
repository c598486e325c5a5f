"""The whole family compared: SC, TubSC, TenSR and CSC, each with and without the graph, on the same images.

The sparsity of every model follows one sentence: the share of ``settings.toml`` times the largest product that an
atom of unit length can have with an image, averaged over the images. For atoms as large as the image that is
the image's length, for outer products its largest singular value, for small filters its strongest patch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tubal.experiments.models import Method, Outcome, Settings, cluster_rows, scale_images
from tubal.experiments.paper import load_paper, read_toml
from tubal.experiments.trials import Record, Trial

__all__ = ["DATASETS", "EXTRA_DATASETS", "METHODS", "TITLE", "plan", "settings_for", "update_readme", "write"]

TITLE = "The family: code size, cost and clustering of every model"
DATASETS = ("orl", "coil20", "yale")
EXTRA_DATASETS = ("usps", "digits")
FIVE = ("sc", "tensr", "csc", "tubsc", "gtsc")  # the models of the paper's Figure 1, and GTSC

Images = NDArray[Any]


# --- one member ------------------------------------------------------------------------------------------------
def attainable(kind: str, images: Images, filter_shape: Sequence[int]) -> float:
    """Return the largest product of an image with an atom of unit length, averaged over the images.

    >>> image = np.outer([3.0, 0.0], [0.0, 1.0])[None]
    >>> [round(attainable(kind, image, (1, 1)), 9) for kind in ("sc", "tensr", "csc")]
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


def build(kind: str, images: Images, settings: Settings, seed: int) -> Any:
    """Return the unfitted estimator of one member; ``images`` have unit length."""
    from tubal import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
    from tubal.graph import knn_graph

    size = settings["size"]
    sparsity = settings["sparsity_fraction"] * attainable(kind, images, settings.get("filter_shape", ()))
    common: dict[str, Any] = {
        "n_atoms": tuple(size) if kind == "tensr" else size,
        "sparsity": sparsity,
        "code_solver": code_solver(kind, sparsity, settings),
        "scale": "unit" if settings["scale"] == "unit" else None,  # solvers' defaults know images of unit length
        "max_iter": settings["max_iter"],
        "random_state": seed,
    }
    if kind == "csc":
        common["filter_shape"] = tuple(settings["filter_shape"])
    if "graph_weight" not in settings:
        return {"sc": SparseCoding, "tubsc": TubSC, "tensr": TenSR, "csc": CSC}[kind](**common)
    common["graph_weight"] = settings["graph_weight"]
    common["graph"] = knn_graph(images, settings["n_neighbors"])
    return {"sc": GraphSC, "tubsc": GTSC, "tensr": TenSR, "csc": CSC}[kind](**common)


def code_solver(kind: str, sparsity: float, settings: Settings) -> Any:
    """Return the coding solver of a member: as many steps for all, at its estimator's own penalty or a stated one.

    >>> code_solver("tubsc", 0.03, {"code_steps": 5, "code_tol": 1e-3}).penalty
    4.0
    """
    from tubal.estimators.convolutional_coder import PENALTY
    from tubal.learning.fitting import default_code_solver
    from tubal.solvers import Admm

    if "code_penalty" in settings:
        least, slope = settings["code_penalty"]
        penalty = least + slope * sparsity
    else:
        penalty = PENALTY if kind == "csc" else default_code_solver(sparsity, "unit").penalty
    return Admm(max_iter=settings["code_steps"], tol=settings["code_tol"], penalty=penalty)


def _member(kind: str) -> Callable[[Images, int, Settings, int], Outcome]:
    def cluster(images: Images, n_clusters: int, settings: Settings, seed: int) -> Outcome:
        from tubal.backends.arrays import is_torch, namespace, to_device, to_numpy

        chosen = spread(len(images), settings.get("n_images"))
        scaled = scale_images(images[chosen], settings["scale"])
        model = build(kind, scaled, settings, seed)
        data = to_device(scaled, settings.get("device", "cpu"))
        if is_torch(data):
            namespace(data).cuda.reset_peak_memory_stats()
        features = to_numpy(model.fit_transform(data))
        codes = model.codes_
        residual = to_numpy(model.decode(codes)) - scaled
        n_images = len(scaled)
        details = {
            "sparsity": float(model.sparsity),
            "objective": float(model.objective_[-1]),
            "n_iter": float(model.n_iter_),
            "stored": float(np.prod(codes.shape[1:])),
            "nonzero": float((codes != 0).sum()) / n_images,
            "error": float(np.square(residual).sum() / np.square(scaled).sum()),
            "features": float(features.shape[1]),
        }
        if is_torch(data):
            details["device_memory_mb"] = namespace(data).cuda.max_memory_allocated() / 2**20
        if "shifts" in settings:
            details.update(_shift_distances(model, scaled, settings))
        labels = np.full(len(images), -1)
        labels[chosen] = cluster_rows(features, min(n_clusters, n_images), settings, seed)
        return Outcome(labels, details)

    return cluster


def spread(n_images: int, wanted: int | None) -> NDArray[Any]:
    """Return which of the images to take, evenly spread; all of them without a wish.

    >>> spread(10, 4)
    array([0, 2, 5, 7])
    """
    count = n_images if wanted is None else min(wanted, n_images)
    return np.arange(count) * n_images // count


# --- shifts ----------------------------------------------------------------------------------------------------
def moved(images: Images, pixels: int, way: str) -> Images:
    """Return images moved by some pixels: around the circle, or out of the picture with the border repeated.

    >>> moved(np.arange(4.0).reshape(1, 1, 4), 1, "border, right")
    array([[[0., 0., 1., 2.]]])
    """
    how, direction = way.split(", ")
    axis = 2 if direction == "right" else 1
    if how == "circle":
        return np.roll(images, pixels, axis)
    places = np.clip(np.arange(images.shape[axis]) - pixels, 0, None)
    return np.take(images, places, axis)


WAYS = ("circle, right", "circle, down", "border, right", "border, down")


def _shift_distances(model: Any, images: Images, settings: Settings) -> dict[str, float]:
    """Return how far features are from those of the unmoved images, relative to their length, for every shift."""
    from tubal.backends.arrays import to_device, to_numpy

    still = images[spread(len(images), settings["shift_images"])]
    cases = [(way, pixels) for way in WAYS for pixels in settings["shifts"]]
    stack = np.concatenate([still, *(moved(still, pixels, way) for way, pixels in cases)])
    features = to_numpy(model.transform(to_device(stack, settings.get("device", "cpu"))))
    first, *others = features.reshape(len(cases) + 1, len(still), -1)
    lengths = np.linalg.norm(first, axis=1)
    safe = np.where(lengths > 0, lengths, 1.0)
    return {
        f"{way}, {pixels}": float(np.mean(np.linalg.norm(after - first, axis=1) / safe))
        for (way, pixels), after in zip(cases, others, strict=True)
    }


# --- the table -------------------------------------------------------------------------------------------------
_SETTINGS = ("scale", "features", "sparsity_fraction", "max_iter", "code_steps", "code_tol", "n_starts", "size")
_GRAPH = ("graph_weight", "n_neighbors")

METHODS: dict[str, Method] = {
    "sc": Method("SC", _member("sc"), _SETTINGS),
    "graphsc": Method("GraphSC", _member("sc"), (*_SETTINGS, *_GRAPH)),
    "tensr": Method("TenSR", _member("tensr"), _SETTINGS),
    "gtensr": Method("TenSR + graph", _member("tensr"), (*_SETTINGS, *_GRAPH)),
    "csc": Method("CSC", _member("csc"), (*_SETTINGS, "filter_shape")),
    "gcsc": Method("CSC + graph", _member("csc"), (*_SETTINGS, "filter_shape", *_GRAPH)),
    "tubsc": Method("TubSC", _member("tubsc"), _SETTINGS),
    "gtsc": Method("GTSC", _member("tubsc"), (*_SETTINGS, *_GRAPH)),
}


@cache
def _given() -> tuple[dict[str, Any], dict[str, Any]]:
    return read_toml("settings.toml")["label-free"], read_toml("family.toml")


def settings_for(method: str, dataset: str) -> dict[str, Any]:
    """Return every setting a member reads on a collection.

    >>> settings_for("tensr", "orl")["size"]
    [16, 16]
    """
    paper = load_paper()
    shape = paper.collections.get(dataset, paper["usps"])
    label_free, family = _given()
    table = family["table"]
    sizes = {"sc": shape.n_vector_atoms, "graphsc": shape.n_vector_atoms, "csc": table["filters"]}
    sizes |= {"gcsc": table["filters"], "tensr": table["separable_atoms"], "gtensr": table["separable_atoms"]}
    merged = {
        **label_free,
        **table,
        "graph_weight": paper.graph_weight,
        "n_neighbors": paper.n_neighbors,
        "size": sizes.get(method, shape.n_atoms),
    }
    return {name: merged[name] for name in sorted(METHODS[method].settings) if name in merged}


def plan(
    datasets: Sequence[str], methods: Sequence[str], runs: int, *, sweep: bool = False, device: str = "cpu"
) -> list[Trial]:
    """Return the trials of the table and, with ``sweep``, of the rate and shift curves."""
    extra = {} if device == "cpu" else {"device": device}
    trials = [
        Trial("family", dataset, method, "table", run, {**settings_for(method, dataset), **extra})
        for run in range(runs)
        for dataset in datasets
        for method in methods
    ]
    if sweep:
        trials += [trial for method in methods for trial in _curve_trials(datasets, method, extra)]
    return trials


def _curve_trials(datasets: Sequence[str], method: str, extra: dict[str, Any]) -> list[Trial]:
    family = _given()[1]
    sizes, pixels = family["sizes"][method], family["shift"]["pixels"]
    changes: list[tuple[str, dict[str, Any]]] = []
    if method in FIVE:
        rate = family["rate"]
        to_the_end = {name: rate[name] for name in ("max_iter", "code_steps", "code_tol", "code_penalty")}
        shares = [{**to_the_end, "sparsity_fraction": share} for share in rate["sparsity_fraction"]]
        changes += [("rate sparsity_fraction", change) for change in shares]
        changes += [("rate size", {**to_the_end, "size": size}) for size in sizes]
    changes.append(("shift", {"shifts": pixels, "shift_images": family["shift"]["images"]}))
    base = {**extra, "n_images": family["curves"]["n_images"], "size": sizes[-2]}
    return [
        Trial("family", dataset, method, row, 0, {**settings_for(method, dataset), **base, **change})
        for dataset in datasets
        if dataset in family["curves"]["datasets"]
        for row, change in changes
    ]


def write(records: Sequence[Record], folder: Path, *, figures: bool = True) -> list[Path]:
    """Write ``family.json``, ``family.md`` and the curves' pictures; return the paths."""
    from tubal.experiments import family_report

    return family_report.write(records, folder, METHODS, figures=figures)


def update_readme(readme: Path, folder: Path) -> None:
    """Bring the README's table of the family up to date with ``family.json``."""
    from tubal.experiments.family_words import readme_block
    from tubal.experiments.pages import replace_block

    replace_block(readme, "family", readme_block(json.loads((folder / "family.json").read_text(encoding="utf-8"))))
