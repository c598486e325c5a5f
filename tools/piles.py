"""Piles of pictures of every kind: ``python -m tools.piles --piles FOLDER``.

A pile is a zip archive, or a folder, of pictures in one sub-folder per class. Labels only score. Every pile is read as
``tubal cluster`` reads it, then clustered by tubal and its peers with ten seeds. The scores go to ``piles.json`` and
``piles.md``. Each finished run is kept in ``piles.jsonl`` beside them, so a run that was stopped continues. Methods
whose package is not installed are left out and named on the page.

``--collections`` runs the default of tubal, with and without the network, on the collections instead; the scores go to
``views.json`` and ``views.md``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from tubal import ImageClusterer
from tubal.backends.network import N_FEATURES, why_missing
from tubal.cli.inputs import NetworkLook, second_look
from tubal.datasets import fetch, load_images
from tubal.experiments.pages import join_parts, list_versions, markdown_table, write_summary
from tubal.experiments.runner import PACKAGES
from tubal.metrics import clustering_accuracy, clustering_nmi
from tubal.storage.files import atomic_write, platform_name, versions

N_SEEDS = 10
N_POOLED = 1280  # features of the network's head, the last of all its features
Labels = NDArray[np.intp]


class Pile(TypedDict):
    """One pile as it was read; ``described`` has no rows where the network was not asked."""

    images: NDArray[np.float32]
    described: NDArray[np.float32]
    target: Labels


class Run(TypedDict):
    """The score of one method with one seed."""

    pile: str
    method: str
    seed: int
    accuracy: float
    nmi: float
    seconds: float
    views: dict[str, float]


class Summary(TypedDict):
    """All runs, and what they were made with."""

    piles: dict[str, dict[str, int]]
    runs: list[Run]
    missing: dict[str, str]
    versions: dict[str, str]
    platform: str


# --- methods -------------------------------------------------------------------------------------------------
def pixels_of(pile: Pile) -> NDArray[np.float32]:
    """Return the pixels of every picture, as rows."""
    return pile["images"].reshape(len(pile["images"]), -1)


def pooled_of(pile: Pile) -> NDArray[np.float32]:
    """Return the usual features of a network: its last maps averaged over all places, of unit length."""
    roots = pile["described"][:, N_FEATURES - N_POOLED :]
    pooled = roots.astype(np.float64) ** 2
    return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True), dtype=np.float32)


def kmeans_labels(rows: NDArray[Any], n_clusters: int, seed: int) -> Labels:
    """Return the labels of K-means, the best of ten starts."""
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(rows), dtype=np.intp)


def ward_labels(rows: NDArray[Any], n_clusters: int, seed: int) -> Labels:
    """Return the labels of Ward's method, which has no random choice."""
    from sklearn.cluster import AgglomerativeClustering

    return np.asarray(AgglomerativeClustering(n_clusters).fit_predict(rows), dtype=np.intp)


def umap_labels(rows: NDArray[Any], n_clusters: int, seed: int) -> Labels:
    """Return the labels of K-means after UMAP to ten dimensions."""
    import umap

    reduced = umap.UMAP(n_neighbors=10, min_dist=0.0, n_components=10, random_state=seed, n_jobs=1).fit_transform(rows)
    return kmeans_labels(reduced, n_clusters, seed)


PEERS: Mapping[str, Callable[[NDArray[Any], int, int], Labels]] = {
    "K-means": kmeans_labels,
    "Ward": ward_labels,
    "UMAP + K-means": umap_labels,
}
INPUTS: Mapping[str, Callable[[Pile], NDArray[np.float32]]] = {"pixels": pixels_of, "network": pooled_of}
# Views of tubal by the name of the method; the first two are what users get without and with the extra `photos`.
TUBAL: Mapping[str, tuple[str, ...]] = {
    "tubal": ("shape", "colour", "texture"),
    "tubal with network": ("shape", "colour", "semantic", "layout", "texture"),
    "shape alone": ("shape",),
    "network alone": ("semantic", "layout"),
}
DEFAULTS = ("tubal", "tubal with network")
COLLECTIONS = ("digits", "coil20", "usps", "orl", "yale")
METHODS = (*(f"{peer}, {kind}" for kind in INPUTS for peer in PEERS), *TUBAL)


def views_of(pile: Pile, names: Sequence[str]) -> dict[str, NDArray[Any] | None]:
    """Return the views of a pile by name, for ImageClusterer; a view that it does not have is left out."""
    from tubal.clustering.views import FROM_NETWORK, LEAST_SIDE, LEAST_TEXTURED, has_colour, network_parts

    images = pile["images"]
    # As tubal cluster does, which does not show the network pictures that are smaller than this.
    network = [
        name
        for name in names
        if name in FROM_NETWORK and ("shape" not in names or max(images.shape[1:3]) >= LEAST_SIDE)
    ]
    textured = not network and min(images.shape[1:3]) >= LEAST_TEXTURED
    there = {"shape": True, "colour": has_colour(images), "texture": textured}
    views: dict[str, NDArray[Any] | None] = {name: None for name in names if there.get(name)}
    parts = network_parts(pile["described"]) if network else {}
    views |= {name: parts[name] for name in network}
    return views


def fit_tubal(pile: Pile, n_clusters: int, seed: int, names: Sequence[str]) -> tuple[Labels, dict[str, float]]:
    """Return labels and the trust in each view."""
    model = ImageClusterer(n_clusters, views=views_of(pile, names) or "shape", random_state=seed).fit(pile["images"])
    return model.labels_, model.view_weights_


def run_one(file: Path, name: str, method: str, seed: int) -> Run:
    """Return the score of one method with one seed on one pile, read from its cached file."""
    pile = load_pile(file)
    n_clusters = len(np.unique(pile["target"]))
    start = time.perf_counter()
    views: dict[str, float] = {}
    if method in TUBAL:
        labels, views = fit_tubal(pile, n_clusters, seed, TUBAL[method])
    else:
        peer, kind = method.rsplit(", ", 1)
        labels = PEERS[peer](INPUTS[kind](pile), n_clusters, seed)
    seconds = time.perf_counter() - start
    accuracy = 100.0 * clustering_accuracy(pile["target"], labels)
    nmi = 100.0 * clustering_nmi(pile["target"], labels)
    return Run(pile=name, method=method, seed=seed, accuracy=accuracy, nmi=nmi, seconds=seconds, views=views)


# --- all runs ------------------------------------------------------------------------------------------------
def read_pile(source: Path, cache: Path) -> Path:
    """Read a pile as ``tubal cluster`` does, network included, and return the file that keeps it."""
    file = cache / f"{source.stem}.npz"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        stack = load_images(
            source, look=second_look(NetworkLook(), "semantic" if not why_missing() else "auto", "default")
        )
        target = np.unique(stack.target, return_inverse=True)[1]
        described = np.empty((0, N_FEATURES), np.float32) if stack.described is None else stack.described
        with atomic_write(file) as stream:
            np.savez(stream, images=stack.images, described=described, target=target)
    return file


def load_pile(file: Path) -> Pile:
    """Return a pile from the file that keeps it."""
    with np.load(file) as stored:
        return Pile(images=stored["images"], described=stored["described"], target=stored["target"])


def read_collection(name: str, cache: Path) -> Path:
    """Keep a collection in the same form as a pile; the network sees its images where they are large enough."""
    from tubal.backends.network import describe_pictures
    from tubal.clustering.views import network_can_help

    file = cache / f"{name}.npz"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        bunch = fetch(name)
        images = np.asarray(bunch.images / bunch.images.max(), dtype=np.float32)
        described = np.empty((0, N_FEATURES), np.float32)
        if network_can_help(len(images), images.shape[1:3]):
            described = describe_pictures(images)
        with atomic_write(file) as stream:
            np.savez(stream, images=images, described=described, target=np.unique(bunch.target, return_inverse=True)[1])
    return file


def missing_methods() -> dict[str, str]:
    """Return the methods that cannot run here, and why."""
    found: dict[str, str] = {}
    if importlib.util.find_spec("umap") is None:
        found |= {method: "umap-learn is not installed" for method in METHODS if method.startswith("UMAP")}
    if why_missing():
        found |= {method: why_missing() for method in METHODS if "network" in method}
    return found


def run(folder: Path, out: Path, *, cache: Path, n_seeds: int = N_SEEDS, jobs: int = 1) -> Summary:
    """Run what is not done yet, and write the summary and its page."""
    sources = sorted(path for path in folder.iterdir() if path.suffix == ".zip" or path.is_dir())
    if not sources:
        raise FileNotFoundError(f"no zip archive and no folder in {str(folder)!r}; give the folder of the piles")
    summary = finish(
        {source.stem: read_pile(source, cache) for source in sources}, METHODS, out / "piles.jsonl", n_seeds, jobs
    )
    write_summary("piles", summary, page(summary), out)
    return summary


def run_collections(
    out: Path, *, cache: Path, n_seeds: int = N_SEEDS, jobs: int = 1, names: Sequence[str] = COLLECTIONS
) -> Summary:
    """Run the default of tubal on collections, and write the summary and its page."""
    files = {name: read_collection(name, cache / "collections") for name in names}
    summary = finish(files, DEFAULTS, out / "views.jsonl", n_seeds, jobs)
    write_summary("views", summary, collections_page(summary), out)
    return summary


def finish(files: Mapping[str, Path], methods: Sequence[str], log: Path, n_seeds: int, jobs: int) -> Summary:
    """Run the methods on piles that were read, except what the log of finished runs holds, and return everything."""
    missing = {method: reason for method, reason in missing_methods().items() if method in methods}
    done = _read_log(log)
    wanted = [
        (name, method, seed)
        for name in files
        for method in methods
        if method not in missing
        for seed in range(1 if method.startswith("Ward") else n_seeds)
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    left = [key for key in wanted if key not in done]
    with log.open("a", encoding="utf-8") as stream:
        for result in _run_all(files, left, jobs):
            done[result["pile"], result["method"], result["seed"]] = result
            stream.write(json.dumps(result) + "\n")
            stream.flush()
    return Summary(
        piles={name: _describe(file) for name, file in files.items()},
        runs=[done[key] for key in wanted],
        missing=missing,
        versions={name: version for name, version in versions().items() if name in PACKAGES},
        platform=platform_name(),
    )


def _run_all(files: Mapping[str, Path], left: Sequence[tuple[str, str, int]], jobs: int) -> Iterable[Run]:
    """Yield each run as it ends; with several jobs, each in a process that uses one thread."""
    if jobs == 1:
        yield from (run_one(files[name], name, method, seed) for name, method, seed in left)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        running = [pool.submit(run_one, files[name], name, method, seed) for name, method, seed in left]
        for future in as_completed(running):
            yield future.result()


def _one_thread() -> None:
    import numba
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    numba.set_num_threads(1)


def _read_log(log: Path) -> dict[tuple[str, str, int], Run]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    runs: list[Run] = []
    for line in lines:
        try:
            runs.append(json.loads(line))
        except ValueError:  # the last line of a run that was killed
            continue
    return {(item["pile"], item["method"], item["seed"]): item for item in runs}


def _describe(file: Path) -> dict[str, int]:
    with np.load(file) as stored:
        target = stored["target"]
        return {"images": len(target), "classes": len(np.unique(target)), "side": max(stored["images"].shape[1:3])}


# --- the page ------------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return the page of a summary."""
    with_network = "tubal with network" not in summary["missing"]
    left_out = "; ".join(f"{method}: {reason}" for method, reason in summary["missing"].items())
    return join_parts(
        [
            "# Piles of pictures of every kind",
            "Accuracy / NMI (by the larger entropy) in per cent, mean ± standard deviation of ten seeds; Ward has no "
            "seed. Every pile is read as `tubal cluster` reads it; the number of clusters is the number of classes, "
            'and no other label is used. "pixels" are those of the working size, "network" the pooled features of '
            'EfficientNet-Lite0, of unit length. "tubal" is the default without the extra `photos`, "tubal with '
            'network" the default with it. The last two columns are the views by themselves.',
            score_table(summary),
            "Trust in the views of tubal with network, mean of the seeds:" if with_network else "",
            _trust_table(summary) if with_network else "",
            f"Left out: {left_out}." if left_out else "",
            f"{summary['platform']}; {list_versions(summary['versions'])}. Made by `make piles`.",
        ]
    )


def score_table(summary: Summary) -> str:
    """Return a table of the scores of all methods on all piles, and their means."""
    methods = [method for method in METHODS if method not in summary["missing"]]
    found = seed_scores(summary)
    rows = []
    for pile, facts in summary["piles"].items():
        cells = [_cell(found[pile, method]) if (pile, method) in found else "–" for method in methods]
        rows.append([pile, str(facts["images"]), str(facts["classes"]), *cells])
    known = [[found[pile, method] for pile in summary["piles"] if (pile, method) in found] for method in methods]
    rows.append(["**mean**", "", "", *map(_mean_cell, known)])
    return markdown_table(["pile", "images", "classes", *methods], rows)


def collections_page(summary: Summary) -> str:
    """Return the page of the default on the collections."""
    methods = [method for method in DEFAULTS if method not in summary["missing"]]
    found = seed_scores(summary)
    rows = [
        [name, str(facts["images"]), str(facts["classes"]), *(_cell(found[name, method]) for method in methods)]
        for name, facts in summary["piles"].items()
    ]
    left_out = "; ".join(f"{method}: {reason}" for method, reason in summary["missing"].items())
    return join_parts(
        [
            "# The default on the collections, with and without the network",
            "Accuracy / NMI (by the larger entropy) in per cent, mean ± standard deviation of ten seeds, number of "
            'clusters given. "tubal" is `ImageClusterer(k)` without the extra `photos`, "tubal with network" is the '
            "same with it; the network is not asked about images with a side of less than 32 pixels.",
            markdown_table(["collection", "images", "classes", *methods], rows),
            f"Trust in the views of {methods[-1]}, mean of the seeds:",
            _trust_table(summary, methods[-1]),
            f"Left out: {left_out}." if left_out else "",
            f"{summary['platform']}; {list_versions(summary['versions'])}. "
            "Made by `python -m tools.piles --collections`.",
        ]
    )


def seed_scores(summary: Summary) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return accuracy and NMI of every seed (n_seeds, 2), by pile and method."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for item in sorted(summary["runs"], key=lambda item: item["seed"]):
        found[item["pile"], item["method"]].append((item["accuracy"], item["nmi"]))
    return {key: np.array(pairs) for key, pairs in found.items()}


def _cell(scores: NDArray[np.float64]) -> str:
    """Return the mean and standard deviation of scores (n_seeds, 2)."""
    spread = scores.std(axis=0, ddof=1) if len(scores) > 1 else np.zeros(2)
    return " / ".join(f"{mean:.1f}±{around:.1f}" for mean, around in zip(scores.mean(axis=0), spread, strict=True))


def _mean_cell(scores: Sequence[NDArray[np.float64]]) -> str:
    """Return the same of the mean over piles."""
    if not scores:
        return "–"
    n_seeds = min(map(len, scores))
    return f"**{_cell(np.mean([rows[:n_seeds] for rows in scores], axis=0))}**"


def _trust_table(summary: Summary, method: str = "tubal with network") -> str:
    names = TUBAL[method]
    trust: dict[str, list[dict[str, float]]] = defaultdict(list)
    for item in summary["runs"]:
        if item["method"] == method:
            trust[item["pile"]].append(item["views"])
    rows = [
        [pile, *(f"{np.mean([run[name] for run in runs]):.2f}" if name in runs[0] else "–" for name in names)]
        for pile, runs in trust.items()
    ]
    return markdown_table(["pile", *names], rows)


def main() -> None:
    """Read the command line and run what is left."""
    parser = argparse.ArgumentParser(prog="python -m tools.piles", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--piles", type=Path, help="folder of the piles: zip archives or folders")
    what.add_argument("--collections", action="store_true", help="run the default on the collections instead")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the summary and its page")
    parser.add_argument(
        "--cache", type=Path, default=Path("build/piles"), help="folder for the piles as they were read"
    )
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="seeds per method")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, each on one core")
    options = parser.parse_args()
    how = {"cache": options.cache, "n_seeds": options.seeds, "jobs": options.jobs}
    if options.collections:
        run_collections(options.out, **how)
    else:
        run(options.piles, options.out, **how)


if __name__ == "__main__":
    main()
