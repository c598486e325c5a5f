"""The default preset and its graph: against UMAP, on small collections, and against the number of images."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from benchmarks.scaling import log_log_slope
from benchmarks.timing import Row, call_in_new_process, seconds, timed
from tubal import ImageClusterer
from tubal.backends.arrays import own_threads
from tubal.datasets import fetch
from tubal.experiments.runner import resident_bytes
from tubal.graph import Graph, candidate_recall, deformable_graph
from tubal.graph.cells import CoarseMap
from tubal.graph.deformable import DeformableSearch, Deformation, Effort, working_images
from tubal.graph.neighbors import as_float_stack
from tubal.metrics import clustering_accuracy, clustering_nmi

SMALL = ("coil20", "orl", "yale", "digits")


# --- against UMAP ----------------------------------------------------------------------------------------------
def umap_points(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return points (n_images, 10) of UMAP, on all cores."""
    import umap

    rows = images.reshape(len(images), -1)
    return np.asarray(umap.UMAP(n_neighbors=10, min_dist=0.0, n_components=10, n_jobs=-1).fit_transform(rows))


def umap_and_kmeans(images: NDArray[np.float32], n_clusters: int) -> NDArray[np.int32]:
    """Return labels (n_images,) of UMAP and K-means from ten starts."""
    points = umap_points(images)
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(n_clusters, n_init=10).fit_predict(points))


def umap_and_hdbscan(images: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return labels (n_images,) of UMAP and HDBSCAN, with the settings that UMAP's tutorial uses for 70 000 digits.

    Images that belong to no cluster get the largest label.
    """
    points = umap_points(images)
    import hdbscan

    labels = hdbscan.HDBSCAN(min_samples=10, min_cluster_size=500, core_dist_n_jobs=-1).fit_predict(points)
    return np.asarray(np.where(labels < 0, labels.max() + 1, labels))


def preset_against_umap(repeats: int, name: str = "usps") -> list[Row]:
    """Measure the deformable graph and the whole default preset relative to UMAP + K-means, in turn."""
    bunch = fetch(name)
    images, n_clusters = bunch.images, len(np.unique(bunch.target))
    works: dict[str, Callable[[], object]] = {
        "UMAP + K-means": lambda: umap_and_kmeans(images, n_clusters),
        "deformable graph": lambda: deformable_graph(images, 5),
        "default preset": lambda: ImageClusterer(n_clusters, views="shape", random_state=0).fit(images),
    }
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {title: [] for title in works}
    for _ in range(repeats):
        for title, work in works.items():
            taken[title].append(seconds(work))
    medians = {title: statistics.median(times) for title, times in taken.items()}
    limits = {"deformable graph": 0.5, "default preset": 2.0}
    return [
        {"problem": f"{name}, {title}", "seconds": median, "relative time": median / medians["UMAP + K-means"]}
        | ({"limit": limits[title]} if title in limits else {})
        for title, median in medians.items()
    ]


# --- small collections -----------------------------------------------------------------------------------------
def preset_on_small_collections(names: Sequence[str] = SMALL) -> list[Row]:
    """Measure the default preset on collections under 2000 images, each in a new process, and their total."""
    rows = [call_in_new_process("clustering:fit_preset", name=name) for name in names]
    total, most = sum(row["seconds"] for row in rows), max(row["peak MB"] for row in rows)
    return [*rows, {"problem": "all", "seconds": total, "peak MB": most, "seconds limit": 10.0, "MB limit": 2000.0}]


def fit_preset(name: str) -> Row:
    """Fit the default preset once, with kernels compiled before."""
    bunch = fetch(name)
    ImageClusterer(2, views="shape", random_state=0).fit(bunch.images[:30])
    model = ImageClusterer(len(np.unique(bunch.target)), views="shape", random_state=0)
    taken = seconds(lambda: model.fit(bunch.images))
    peak = resident_bytes("VmHWM") / 2**20
    return {"problem": name, "images": len(bunch.images), "seconds": taken, "peak MB": peak}


# --- many images -----------------------------------------------------------------------------------------------
def preset_by_images(sizes: Sequence[int]) -> list[Row]:
    """Measure graph and default preset against the number of images, each in a new process, and the slopes."""
    rows = [call_in_new_process("clustering:fit_shifted_digits", n_images=size) for size in sizes]
    slopes = {
        column: log_log_slope([row["images"] for row in rows], [row[column] for row in rows])
        for column in ("graph seconds", "preset seconds")
    }
    return [*rows, {"problem": "log-log slope", **slopes, "limit": 1.5}]


def fit_shifted_digits(n_images: int) -> Row:
    """Measure graph and default preset on deformed digits, with kernels and index compiled before."""
    small, _ = shifted_digits(2500, seed=1)
    deformable_graph(small, 5, effort=Effort(50, 30, 64, 1, exact_limit=1000))
    ImageClusterer(10, views="shape", random_state=0).fit(small)
    images, target = shifted_digits(n_images)
    graph_seconds, graph = timed(lambda: deformable_graph(images, 5))
    recall = candidate_recall(graph)
    del graph
    graph_peak = resident_bytes("VmHWM") / 2**20
    model = ImageClusterer(10, views="shape", random_state=0)
    preset_seconds = seconds(lambda: model.fit(images))
    return {
        "problem": f"{n_images} images",
        "images": n_images,
        "graph seconds": graph_seconds,
        "recall of candidates": recall,
        "graph peak MB": graph_peak,
        "preset seconds": preset_seconds,
        "peak MB": resident_bytes("VmHWM") / 2**20,
        "accuracy": 100 * clustering_accuracy(target, model.labels_),
    }


# --- after the fit ---------------------------------------------------------------------------------------------
def hints_and_growth(n_images: int) -> list[Row]:
    """Measure questions, refine and update after a fit, in a new process."""
    found = call_in_new_process("clustering:answer_and_grow", n_images=n_images)
    limits = {"questions(10)": 0.3, "refine": 0.3, "update with 100 images": 2.0}
    return [
        {"problem": title, "images": n_images, "first seconds": found[f"first {title}"], "seconds": found[title]}
        | {"limit": limit}
        for title, limit in limits.items()
    ]


def answer_and_grow(n_images: int, n_rounds: int = 5, n_new: int = 100) -> Row:
    """Return the seconds of the first call, and the most of later ones, with the true names as answers."""
    images, target = shifted_digits(n_images + 3 * n_new)
    model = ImageClusterer(10, views="shape", random_state=0).fit(images[:n_images])
    taken: dict[str, list[float]] = {"questions(10)": [], "refine": [], f"update with {n_new} images": []}
    for _ in range(n_rounds):
        asking, asked = timed(lambda: model.questions(10))
        answers = {int(image): str(target[image]) for image in np.asarray(asked)}
        taken["questions(10)"].append(asking)
        taken["refine"].append(seconds(partial(model.refine, answers)))
    for start in range(n_images, len(images), n_new):
        new = images[start : start + n_new]
        taken[f"update with {n_new} images"].append(seconds(partial(model.update, new)))
    first = {f"first {title}": times[0] for title, times in taken.items()}
    return {**first, **{title: max(times[1:]) for title, times in taken.items()}}


def shifted_digits(n_images: int, seed: int = 0, size: int = 16) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return images (n_images, 16, 16) of randomly deformed digits of scikit-learn, and their classes.

    Each image is a random digit, enlarged 1.5 to 1.9 times, rotated by up to 10 degrees, shifted by up to 1.5 pixels,
    with Gaussian noise of standard deviation 0.03.
    """
    from scipy.ndimage import map_coordinates
    from sklearn.datasets import load_digits

    generator = np.random.default_rng(seed)
    digits = load_digits()
    source = digits.images.astype(np.float32) / 16
    chosen = generator.integers(len(source), size=n_images)
    angles, zooms = np.deg2rad(generator.uniform(-10, 10, n_images)), generator.uniform(1.5, 1.9, n_images)
    shifts = generator.uniform(-1.5, 1.5, (2, n_images))
    rows, columns = np.mgrid[:size, :size] - (size - 1) / 2
    images = np.empty((n_images, size, size), np.float32)
    for start in range(0, n_images, 1000):
        part = slice(start, start + 1000)
        angle, zoom, down, across, which = (values[part, None, None] for values in (angles, zooms, *shifts, chosen))
        y, x = (rows - down) / zoom, (columns - across) / zoom
        places = [
            np.broadcast_to(which, y.shape),
            np.cos(angle) * y + np.sin(angle) * x + 3.5,
            np.cos(angle) * x - np.sin(angle) * y + 3.5,
        ]
        images[part] = map_coordinates(source, places, order=1)
    return images + 0.03 * generator.standard_normal(images.shape, np.float32), digits.target[chosen]


# --- copies ----------------------------------------------------------------------------------------------------
def preset_on_copies(
    numbers: Sequence[int] = (2, 4, 6, 12), draws: Mapping[int, int] = MappingProxyType({2000: 8, 8000: 4})
) -> list[Row]:
    """Measure the NMI of noisy copies of the digits, and of many deformed digits, against that of few.

    ``draws`` says how many samples of deformed digits are drawn for each number of images; the least number comes
    first. Their mean is recorded, because samples differ in which digits they hold.
    """
    once = nmi_of_preset(*noisy_digits(1))
    rows = [{"problem": "the digits", "images": 1797, "NMI": once}]
    for number in numbers:
        images, target = noisy_digits(number)
        score = nmi_of_preset(images, target)
        rows.append(
            {"problem": f"{number} copies of the digits", "images": len(images), "NMI": score, "target": once - 2.0}
        )
    few: float | None = None
    for size, number in draws.items():
        scores = [nmi_of_preset(*shifted_digits(size, seed)) for seed in range(number)]
        row: Row = {"problem": f"{size} shifted digits", "images": size, "NMI": float(np.mean(scores))}
        row |= {"draws": number, "sd": float(np.std(scores, ddof=1)) if number > 1 else None, "target": few}
        rows.append({name: value for name, value in row.items() if value is not None})
        few = row["NMI"] if few is None else few
    return rows


def nmi_of_preset(images: NDArray[np.float32], target: NDArray[np.intp]) -> float:
    """Return the NMI, in percent, of the default preset with the true number of clusters."""
    found = ImageClusterer(len(np.unique(target)), views="shape", random_state=0).fit_predict(images)
    return 100 * float(clustering_nmi(target, found))


def noisy_digits(n_copies: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return the digits of scikit-learn, repeated with Gaussian noise of 2 % unless there is one copy, and classes."""
    bunch = fetch("digits")
    images = np.repeat(bunch.images / bunch.images.max(), n_copies, axis=0)
    if n_copies > 1:
        noise = np.random.default_rng(seed).normal(scale=0.02, size=images.shape)
        images = np.maximum(images + noise, 0.0)
    return images.astype(np.float32), np.repeat(bunch.target, n_copies)


# --- candidates ------------------------------------------------------------------------------------------------
def describe_digits(n_images: int) -> NDArray[np.float32]:
    """Return the descriptors of deformed digits; kernels are compiled afterwards."""
    digits, _ = shifted_digits(n_images)
    search = DeformableSearch(as_float_stack(digits), Deformation(), Effort.for_collection(n_images, 5))
    with own_threads() as threads:
        images = working_images(search, hold=True)[0]
        coarse, pooled = CoarseMap.fit(images.range(0, len(images)), search.size.shape, threads)
        return coarse.project(pooled)


def share_of_lists(found: NDArray[np.int32], exact: NDArray[np.int32], n_sample: int = 2000) -> float:
    """Return the mean share of the exact lists that the lists found contain, over the first images.

    >>> share_of_lists(np.array([[3, 4, 5]]), np.array([[4, 6]]))
    0.5
    """
    pairs = zip(found[:n_sample], exact[:n_sample], strict=True)
    return float(np.mean([np.isin(true, here).mean() for here, true in pairs]))


def approximate_index(name: str = "usps") -> list[Row]:
    """Measure the share of exact candidates that the search in cells finds, and of neighbours it has in common."""
    images = fetch(name).images
    usual = Effort.for_collection(len(images), 5)
    exact = deformable_graph(images, 5)
    approximate = deformable_graph(images, 5, effort=replace(usual, exact_limit=1000))
    recall = candidate_recall(approximate, n_sample=1000)
    shared = shared_neighbors(exact, approximate)
    return [{"problem": name, "recall of candidates": recall, "shared neighbours": shared}]


def shared_neighbors(left: Graph, right: Graph) -> float:
    """Return the mean share of neighbours that two graphs of the same images have in common.

    >>> lists = np.array([[1, 2], [0, 2], [0, 1]]), np.array([[2, 1], [0, 2], [1, 1]])
    >>> round(shared_neighbors(*(Graph(None, neighbors=found) for found in lists)), 3)
    0.833
    """
    first, second = np.asarray(left.neighbors), np.asarray(right.neighbors)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return float(np.mean([len(set(here) & set(there)) / first.shape[1] for here, there in pairs]))
