"""The default preset and its graph: against UMAP, on small collections, and against the number of images."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.timing import resident, seconds

SMALL = ("coil20", "orl", "yale", "digits")


def shifted_digits(n_images: int, seed: int = 0, size: int = 16) -> Any:
    """Return ``n_images`` pictures (n, 16, 16) of scikit-learn's digits, each deformed anew, and their classes.

    A digit is drawn at random, enlarged 1.5 to 1.9 times, turned by up to 10 degrees, shifted by up to 1.5
    pixels, and covered with Gaussian noise of deviation 0.03. Any number of images can be had from 1797.
    """
    from scipy.ndimage import map_coordinates
    from sklearn.datasets import load_digits

    generator = np.random.default_rng(seed)
    digits = load_digits()
    source = digits.images.astype(np.float32) / 16
    chosen = generator.integers(len(source), size=n_images)
    turns, zooms = np.deg2rad(generator.uniform(-10, 10, n_images)), generator.uniform(1.5, 1.9, n_images)
    shifts = generator.uniform(-1.5, 1.5, (2, n_images))
    rows, columns = np.mgrid[:size, :size] - (size - 1) / 2
    images = np.empty((n_images, size, size), np.float32)
    for start in range(0, n_images, 1000):
        part = slice(start, start + 1000)
        turn, zoom, down, across, which = (values[part, None, None] for values in (turns, zooms, *shifts, chosen))
        y, x = (rows - down) / zoom, (columns - across) / zoom
        places = [
            np.broadcast_to(which, y.shape),
            np.cos(turn) * y + np.sin(turn) * x + 3.5,
            np.cos(turn) * x - np.sin(turn) * y + 3.5,
        ]
        images[part] = map_coordinates(source, places, order=1)
    return images + 0.03 * generator.standard_normal(images.shape, np.float32), digits.target[chosen]


def umap_unit(images: Any, n_clusters: int) -> Any:
    """One unit: UMAP to ten dimensions on all cores, then K-means from ten starts."""
    import umap
    from sklearn.cluster import KMeans

    rows = images.reshape(len(images), -1)
    flat = umap.UMAP(n_neighbors=10, min_dist=0.0, n_components=10, n_jobs=-1).fit_transform(rows)
    return KMeans(n_clusters, n_init=10).fit_predict(flat)


def against_umap(repeats: int, name: str = "usps") -> list[dict[str, Any]]:
    """Seconds of the deformable graph and of the whole default preset in units of UMAP + K-means, taken in turn."""
    from tubal import ImageClusterer
    from tubal.datasets import fetch
    from tubal.graph import deformable_graph

    bunch = fetch(name)
    images, n_clusters = bunch.images, len(np.unique(bunch.target))
    works = {
        "UMAP + K-means": lambda: umap_unit(images, n_clusters),
        "deformable graph": lambda: deformable_graph(images, 5),
        "default preset": lambda: ImageClusterer(n_clusters, random_state=0).fit(images),
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
        {"problem": f"{name}, {title}", "seconds": median, "units": median / medians["UMAP + K-means"]}
        | ({"at most": limits[title]} if title in limits else {})
        for title, median in medians.items()
    ]


_FIT = """
import json, sys
from benchmarks.clustering import fit_small
print(json.dumps(fit_small(sys.argv[1])))
"""
_GROW = """
import json, sys
from benchmarks.clustering import grow
print(json.dumps(grow(int(sys.argv[1]))))
"""


def _apart(program: str, argument: str) -> dict[str, Any]:
    """Run in a process of its own, whose peak memory is then that of this problem and of Python itself."""
    command = [sys.executable, "-W", "ignore", "-c", program, argument]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fit_small(name: str) -> dict[str, Any]:
    """Fit the default preset once, kernels loaded before."""
    from tubal import ImageClusterer
    from tubal.datasets import fetch

    bunch = fetch(name)
    ImageClusterer(2, random_state=0).fit(bunch.images[:30])
    model = ImageClusterer(len(np.unique(bunch.target)), random_state=0)
    taken = seconds(lambda: model.fit(bunch.images))
    return {"problem": name, "images": len(bunch.images), "seconds": taken, "peak MB": resident("VmHWM") / 2**20}


def small_collections(names: tuple[str, ...] = SMALL) -> list[dict[str, Any]]:
    """Seconds of the default preset on collections under 2000 images, and their sum; at most 10 s and 2 GB."""
    rows = [_apart(_FIT, name) for name in names]
    total, most = sum(row["seconds"] for row in rows), max(row["peak MB"] for row in rows)
    limits = {"seconds at most": 10.0, "MB at most": 2000.0}
    return [*rows, {"problem": "all", "seconds": total, "peak MB": most, **limits}]


def grow(n_images: int) -> dict[str, Any]:
    """Time graph and default preset on deformed digits, in this process, kernels and index compiled before."""
    from tubal import ImageClusterer
    from tubal.graph import candidate_recall, deformable_graph
    from tubal.graph.deformable import Effort
    from tubal.metrics import clustering_accuracy

    small, _ = shifted_digits(2500, seed=1)
    deformable_graph(small, 5, effort=Effort(50, 30, 64, 1, exact_limit=1000))
    ImageClusterer(10, random_state=0).fit(small)
    images, target = shifted_digits(n_images)
    graphs: list[Any] = []
    graph_seconds = seconds(lambda: graphs.append(deformable_graph(images, 5)))
    recall = candidate_recall(graphs.pop())
    after_graph = resident("VmHWM") / 2**20
    model = ImageClusterer(10, random_state=0)
    preset_seconds = seconds(lambda: model.fit(images))
    return {
        "problem": f"{n_images} images",
        "n": n_images,
        "graph seconds": graph_seconds,
        "recall of candidates": recall,
        "graph peak MB": after_graph,
        "preset seconds": preset_seconds,
        "peak MB": resident("VmHWM") / 2**20,
        "accuracy": 100 * clustering_accuracy(target, model.labels_),
    }


def approximate_index(name: str = "usps") -> list[dict[str, Any]]:
    """What the approximate index finds of the exact candidates, and what its graph shares with the exact graph."""
    from dataclasses import replace

    from tubal.datasets import fetch
    from tubal.graph import candidate_recall, deformable_graph
    from tubal.graph.deformable import Effort

    images = fetch(name).images
    usual = Effort.for_collection(len(images), 5)
    exact = deformable_graph(images, 5)
    near = deformable_graph(images, 5, effort=replace(usual, exact_limit=1000))
    pairs = zip(exact.neighbors, near.neighbors, strict=True)
    common = np.mean([len(set(left.tolist()) & set(right.tolist())) / 5 for left, right in pairs])
    recall = candidate_recall(near, n_sample=1000)
    return [{"problem": name, "recall of candidates": recall, "common 5-neighbours": float(common)}]


def time_against_n(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Time and memory of graph and preset against the number of images, and the log-log slopes; at most 1.5."""
    rows = [_apart(_GROW, str(n_images)) for n_images in sizes]
    slopes = {
        f"{part} seconds": float(
            np.polyfit(np.log([row["n"] for row in rows]), np.log([row[f"{part} seconds"] for row in rows]), 1)[0]
        )
        for part in ("graph", "preset")
    }
    return [*rows, {"problem": "log-log slope", **slopes, "at most": 1.5}]
