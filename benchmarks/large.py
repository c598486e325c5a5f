"""Many images: Fashion-MNIST with the default preset, against UMAP with K-means or HDBSCAN, cold and warm.

The collection is the Debian package ``dataset-fashion-mnist``; the variable FASHION_MNIST names another folder with its
four files.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from benchmarks.clustering import umap_and_hdbscan, umap_and_kmeans
from benchmarks.scaling import log_log_slope
from benchmarks.timing import Row, call_in_new_process, seconds, timed
from tubal import ImageClusterer
from tubal.backends.arrays import thread_count
from tubal.checkpoints import Checkpoint
from tubal.experiments.runner import resident_bytes
from tubal.graph.affine import bilinear_table
from tubal.metrics import clustering_accuracy, clustering_nmi

FOLDER = "/usr/share/datasets/fashion-mnist"
# Of the bytes of all images, and then of all labels.
SHA256 = "2cbc59191665e1ba3f2494648f17edac5974f748ab89fb2ae05597d658161f54"
N_CLASSES = 10
# What the floor counts: compared candidates per root of n, dimensions of a descriptor, measured pairs per image.
_COMPARED_PER_ROOT, _DIMENSIONS, _PAIRS, _MOVES, _OPERATIONS = 20.0, 128, 20, 25, 14
# Edges per image of the graph that is cut, and bytes of each: a weight and an index.
_EDGES, _EDGE_BYTES, _VECTORS = 74, 12, 30
# Rows and columns of the first factor of the matrix product that speeds are compared with.
_PRODUCT = (8192, 2048)
# Images of 28×28 pixels in one block of the search, and seconds from half of the search to the end of a killed run.
_IMAGES_OF_BLOCK, _SECONDS_LEFT = 4096, 0.3


def fashion_mnist(n_images: int = 70_000) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the last ``n_images`` images (n, 28, 28) of training and test set, and their classes."""
    folder = Path(os.environ.get("FASHION_MNIST", FOLDER))
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} does not exist; install the Debian package dataset-fashion-mnist, or set FASHION_MNIST to a "
            "folder with its four files"
        )
    images, labels = (
        np.concatenate([_read(folder / f"{part}-{kind}-ubyte.gz", header) for part in ("train", "t10k")])
        for kind, header in (("images-idx3", 16), ("labels-idx1", 8))
    )
    if hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() != SHA256:
        raise ValueError(f"the files in {folder} are not Fashion-MNIST; install the Debian package again")
    return images.reshape(-1, 28, 28)[-n_images:], labels[-n_images:]


def _read(path: Path, header: int) -> NDArray[np.uint8]:
    with gzip.open(path) as stream:
        return np.frombuffer(stream.read(), np.uint8)[header:]


def write_deformed_copies(path: Path, n_images: int, *, chunk: int = 10_000) -> NDArray[np.uint8]:
    """Write deformed Fashion-MNIST images (n, 28, 28) to a ``.npy`` file; return their classes.

    The first 70 000 are the originals, in random order. All others are originals after a random rotation of up to 15
    degrees, scaling of up to 15 %, shift of up to 2 pixels, and change of brightness, so no two are equal.
    """
    images, labels = fashion_mnist()
    rng = np.random.default_rng(0)
    start = rng.permutation(len(images))
    chosen = np.concatenate([start, rng.integers(len(images), size=max(0, n_images - len(images)))])[:n_images]
    tables = [
        bilinear_table((28, 28), rng.uniform(-15, 15), rng.uniform(0.87, 1.15), *rng.uniform(-2, 2, size=2))
        for _ in range(500)
    ]
    found = np.lib.format.open_memmap(path, "w+", np.uint8, (n_images, 28, 28))
    for first in range(0, n_images, chunk):
        block = images[chosen[first : first + chunk]].reshape(-1, 784).astype(np.float32)
        motions = rng.integers(len(tables), size=len(block))
        for motion in range(len(tables)):
            moved = np.flatnonzero((motions == motion) & (np.arange(first, first + len(block)) >= len(images)))
            corners, weights = tables[motion]
            block[moved] = (block[moved][:, corners] * weights).sum(axis=1) * rng.uniform(
                0.8, 1.0, size=(len(moved), 1)
            )
        found[first : first + len(block)] = np.rint(block).reshape(-1, 28, 28)
    found.flush()
    return np.asarray(labels[chosen])


def preset_against_umap(n_images: int = 70_000) -> list[Row]:
    """Measure both programs in new processes with empty caches: the first call there is cold, the second warm.

    HDBSCAN is left out where it is not installed.
    """
    measured = {
        title: _measured(program=program, n_images=n_images)
        for title, program in (
            ("UMAP + K-means", "umap"),
            ("UMAP + HDBSCAN", "hdbscan"),
            ("tubal, number given", "given"),
            ("tubal, number estimated", "estimated"),
        )
        if program != "hdbscan" or find_spec("hdbscan")
    }
    peer, given = measured["UMAP + K-means"], measured["tubal, number given"]
    floor = floor_seconds(n_images)
    for title, row in measured.items():
        row |= {"problem": title, "relative time": row["seconds"] / peer["seconds"]}
        row["cold relative time"] = row["cold seconds"] / peer["cold seconds"]
    given |= {"limit": 1.0, "cold limit": 0.5, "MB limit": 3000.0}
    estimated = measured["tubal, number estimated"]
    estimated |= {"relative to given": estimated["seconds"] / given["seconds"], "estimate limit": 1.5}
    return [{"problem": f"floor of the processor, {thread_count()} threads", **floor}, *measured.values()]


def _measured(**arguments: str | int) -> Row:
    with tempfile.TemporaryDirectory() as cache:
        row: Row = call_in_new_process("large:fit_twice", {"NUMBA_CACHE_DIR": cache}, **arguments)
    return row


def fit_twice(program: str, n_images: int) -> Row:
    """Cluster twice; return the seconds of both calls, the scores of the second and the peak memory."""
    began = time.time()
    images, target = fashion_mnist(n_images)
    work: Callable[[], NDArray[Any]]
    peers: dict[str, Callable[[Any], NDArray[Any]]] = {
        "umap": partial(umap_and_kmeans, n_clusters=N_CLASSES),
        "hdbscan": umap_and_hdbscan,
    }
    peer = peers.get(program)
    if peer is not None:
        work = partial(peer, (images / 255).astype(np.float32))
    else:
        n_clusters = N_CLASSES if program == "given" else None
        work = lambda: ImageClusterer(n_clusters, random_state=0).fit_predict(images)  # noqa: E731
    # Importing tubal compiles kernels, which belongs to its cold time; UMAP is imported within the call.
    before = 0.0 if peer is not None else began - psutil.Process().create_time()
    cold = before + seconds(work)
    warm, labels = timed(work)
    return {
        "problem": program,
        "images": len(images),
        "threads": thread_count(),
        "cold seconds": cold,
        "seconds": warm,
        **_scores(target, labels),
        "clusters": int(labels.max()) + 1,
        "peak MB": resident_bytes("VmHWM") / 2**20,
    }


def floor_seconds(n_images: int) -> Row:
    """Return the least time that the counted operations would take at the speed of a matrix product on all cores.

    Counted are the products of the search for candidates, ``20 n^1.5`` pairs of 128 numbers, and the differences of
    the deformable distances, 20 pairs per image of 784 pixels that move to 25 places each. The graph that is cut is
    read once for every vector of its eigenspace; its size is given, too.
    """
    speed = 2 * _PRODUCT[0] ** 2 * _PRODUCT[1] / matrix_product_seconds()
    search = 2.0 * _COMPARED_PER_ROOT * n_images**1.5 * _DIMENSIONS
    distances = float(n_images) * _PAIRS * _MOVES * 784 * _OPERATIONS
    return {
        "images": n_images,
        "seconds": (search + distances) / speed,
        "search GFLOP": search / 1e9,
        "distances GFLOP": distances / 1e9,
        "GFLOP/s": speed / 1e9,
        "graph MB": n_images * _EDGES * _EDGE_BYTES / 2**20,
        "graph MB read": n_images * _EDGES * _EDGE_BYTES * _VECTORS / 2**20,
    }


def matrix_product_seconds() -> float:
    """Return the least time of a product of two large matrices; one with its own transpose would be another routine."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape, np.float32) for shape in (_PRODUCT, _PRODUCT[::-1]))
    return min(seconds(lambda: left @ right) for _ in range(6))


# --- orders ---------------------------------------------------------------------------------------------------
def agreement_of_orders(n_images: int = 70_000, seeds: Sequence[int] = (0, 1)) -> list[Row]:
    """Cluster the images in the order of the files and in a random one, with several seeds, and compare all labels."""
    images, target = fashion_mnist(n_images)
    rows: list[Row] = []
    labels = []
    for title, order in (
        ("order of the files", np.arange(len(images))),
        ("random order", np.random.default_rng(0).permutation(len(images))),
    ):
        for seed in seeds:
            found = np.empty(len(images), np.intp)
            found[order] = ImageClusterer(N_CLASSES, random_state=seed).fit_predict(images[order])
            labels.append(found)
            rows.append({"problem": f"{title}, seed {seed}", "images": len(images), **_scores(target, found)})
    agreements = [adjusted_rand_score(*pair) for pair in combinations(labels, 2)]
    return [*rows, {"problem": "all pairs", "agreement": fmean(agreements), "least agreement": min(agreements)}]


def _scores(target: NDArray[np.uint8], labels: NDArray[np.intp]) -> Row:
    """Return accuracy and NMI in percent."""
    return {
        "accuracy": 100 * float(clustering_accuracy(target, labels)),
        "NMI": 100 * float(clustering_nmi(target, labels)),
    }


# --- threads ---------------------------------------------------------------------------------------------------
# Steps of a fit that use threads, and the functions that they are.
STEPS = {
    "neighbour graph": ("tubal.clustering.affinity", "neighbor_lists"),
    "deformable distances": ("tubal.graph.deformable", "Comparison._local_distances"),
    "coding": ("tubal.clustering.clusterer", "ImageClusterer._learn"),
    "eigenvectors": ("tubal.clustering.spectral", "spectrum"),
    "cut": ("tubal.clustering.cuts", "partition_graph"),
}


def two_threads_and_all(n_images: int = 70_000) -> list[Row]:
    """Measure the steps of a fit on two threads and on all, and a matrix product beside them."""
    few, many = (call_in_new_process("large:fit_in_steps", n_images=n_images, threads=n) for n in (2, thread_count()))
    product = few["matrix product"] / many["matrix product"]
    return [
        {
            "problem": step,
            "threads": thread_count(),
            "seconds on 2": few[step],
            "seconds": many[step],
            "speed-up": few[step] / many[step],
            "matrix product speed-up": product,
            "ratio": few[step] / many[step] / product,
            "target": 0.6,
        }
        for step in STEPS
    ]


def fit_in_steps(n_images: int, threads: int) -> Row:
    """Return the least seconds of every step in three fits, after one on few images, and of a matrix product."""
    images, _ = fashion_mnist(n_images)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    with threadpool_limits(threads):
        ImageClusterer(N_CLASSES, random_state=0).fit(images[:25_000])
        spent = [dict.fromkeys(STEPS, 0.0) for _ in range(3)]
        for fit in spent:
            with contextlib.ExitStack() as patches:
                for step, place in STEPS.items():
                    patches.enter_context(_added_to(fit, step, *place))
                ImageClusterer(N_CLASSES, random_state=0).fit(images)
        least = {step: min(fit[step] for fit in spent) for step in STEPS}
        return least | {"matrix product": matrix_product_seconds()}


@contextlib.contextmanager
def _added_to(spent: dict[str, float], step: str, module: str, name: str) -> Iterator[None]:
    """Add the seconds of all calls of a function, or of a method, to ``spent[step]``."""
    owner, last = import_module(module), name.rsplit(".", maxsplit=1)[-1]
    if "." in name:
        owner = getattr(owner, name.split(".", maxsplit=1)[0])
    original = getattr(owner, last)

    def measured(*arguments: Any, **options: Any) -> Any:
        needed, result = timed(lambda: original(*arguments, **options))
        spent[step] += needed
        return result

    # Modules that have imported the function by its name call that.
    holders = [module for module in list(sys.modules.values()) if getattr(module, last, None) is original]
    for holder in [owner, *holders]:
        setattr(holder, last, measured)
    try:
        yield
    finally:
        for holder in [owner, *holders]:
            setattr(holder, last, original)


# --- a file of many images -------------------------------------------------------------------------------------
def preset_by_size(sizes: Sequence[int] = (70_000, 200_000, 1_000_000)) -> list[Row]:
    """Measure collections in files; the largest once more in a run that is killed half-way and resumed.

    Seconds and processor seconds of that run are those of both its processes together.
    """
    rows: list[Row] = []
    limits = {"seconds limit": 1200.0, "MB limit": 12_000.0}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "target.npy", write_deformed_copies(Path(folder) / "images.npy", size))
            rows.append(call_in_new_process("large:fit_file", folder=folder))
            if size == sizes[-1]:
                times = [row["processor seconds"] for row in (rows[0], rows[-1])]
                rows[-1] |= {"slope": log_log_slope([sizes[0], size], times), "slope limit": 1.15, **limits}
                rows.append(killed_and_resumed(folder) | limits)
    return rows


def killed_and_resumed(folder: str) -> Row:
    """Cluster the images of a file in two processes, of which the first one dies while it finds neighbours.

    Lost are the images that the first process had reported and the second one searches again.
    """
    notes = Path(folder) / "killed.json"
    with contextlib.suppress(subprocess.CalledProcessError):
        call_in_new_process("large:fit_file", folder=folder, die_at=0.5)
    first = json.loads(notes.read_text(encoding="utf-8"))
    row: Row = call_in_new_process("large:fit_file", folder=folder, resume=True)
    for column in ("seconds", "processor seconds", "search processor seconds"):
        row[column] += first[column]
    row["peak MB"] = max(row["peak MB"], first["peak MB"])
    lost = max(0, round((first["done"] - row["done after resuming"]) * row["images"]))
    return row | {
        "problem": f"{row['problem']}, killed and resumed",
        "done when killed": first["done"],
        "lost images": lost,
        "lost limit": _IMAGES_OF_BLOCK,
    }


def fit_file(folder: str, die_at: float | None = None, resume: bool = False) -> Row:
    """Cluster the images of a file; return seconds, scores and the peak memory.

    With ``die_at`` the process kills itself soon after so large a share of the neighbours is found, see
    :class:`Watch`.
    """
    fit_small_part(Path(folder))
    target = np.load(Path(folder) / "target.npy")
    kept = None if die_at is None and not resume else Checkpoint(Path(folder) / "checkpoint", resume=resume)
    model, watch = ImageClusterer(N_CLASSES, random_state=0), Watch(Path(folder), die_at)
    labels = model.fit(Path(folder) / "images.npy", checkpoint=kept, progress=watch.follow).labels_
    return {
        "problem": f"{len(target)} images",
        "images": len(target),
        "threads": thread_count(),
        **watch.spent(),
        **_scores(target, labels),
        **({"done after resuming": next(share for share in watch.shares if share > 0.0)} if resume else {}),
    }


class Watch:
    """Measures a process from now on, and within it the search for neighbours by the reports of a fit.

    With ``die_at`` the process kills itself soon after so large a share of the neighbours is found, and leaves what it
    has measured in the file ``killed.json`` of ``folder``.
    """

    def __init__(self, folder: Path, die_at: float | None = None) -> None:
        self.folder, self.die_at = folder, die_at
        self.began, self.before = time.perf_counter(), time.process_time()
        self.shares: list[float] = []
        self.search_began: float | None = None
        self.search_ended: float | None = None
        self.end: threading.Timer | None = None

    def follow(self, stage: str, done: int, total: int) -> None:
        """Note a report of the fit."""
        if stage != "finding neighbours":
            return
        self.shares.append(done / total)
        if self.search_began is None:
            self.search_began = time.process_time()
        if done == total and self.search_ended is None:
            self.search_ended = time.process_time()
        if self.die_at is not None and self.shares[-1] >= self.die_at and self.end is None:
            # Reports come at the end of a block; a little later the next one is under way.
            self.end = threading.Timer(_SECONDS_LEFT, self.die)
            self.end.start()

    def spent(self) -> Row:
        """Return the seconds so far, those of the processor for the search alone, and the peak memory."""
        now = time.process_time()
        ended = now if self.search_ended is None else self.search_ended
        return {
            "seconds": time.perf_counter() - self.began,
            "processor seconds": now - self.before,
            "search processor seconds": 0.0 if self.search_began is None else ended - self.search_began,
            "peak MB": resident_bytes("VmHWM") / 2**20,
        }

    def die(self) -> None:
        """Write what was measured, and kill this process."""
        notes = {"done": self.shares[-1], **self.spent()}
        (self.folder / "killed.json").write_text(json.dumps(notes), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)


def fit_small_part(folder: Path) -> None:
    """Compile, or load from the cache, what a fit needs."""
    ImageClusterer(3, random_state=0).fit(np.load(folder / "images.npy", mmap_mode="r")[:300])


# --- a local cluster -------------------------------------------------------------------------------------------
def workers_against_one_process(n_images: int = 200_000, n_workers: int = 4) -> list[Row]:
    """Measure the same clusters in one process and on a local Dask cluster that loses two workers."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "target.npy", write_deformed_copies(Path(folder) / "images.npy", n_images))
        one = call_in_new_process("large:fit_and_keep", folder=folder)
        rows = [one]
        for n_killed, default in ((0, False), (2, False), (0, True)):
            settings = {"n_workers": n_workers, "n_killed": n_killed, "default": default}
            row = call_in_new_process("large:fit_on_workers", folder=folder, **settings)
            agreement = float(adjusted_rand_score(np.load(Path(folder) / "labels.npy"), row.pop("labels")))
            row |= {"agreement": agreement, "least": 0.98, "relative time": row["seconds"] / one["seconds"]}
            rows.append(row | ({} if n_killed or default else {"limit": 1.3}))
    return rows


def fit_and_keep(folder: str) -> Row:
    """Cluster the images of a file in this process, and keep the labels beside them."""
    fit_small_part(Path(folder))
    work = ImageClusterer(N_CLASSES, random_state=0)
    needed = seconds(lambda: work.fit(Path(folder) / "images.npy"))
    np.save(Path(folder) / "labels.npy", work.labels_)
    return {"problem": "one process", "images": len(work.labels_), "threads": thread_count(), "seconds": needed}


# Settings with which the workers of Dask do not watch themselves all the time.
UNWATCHED = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}


def fit_on_workers(folder: str, n_workers: int, n_killed: int, default: bool) -> Row:
    """Cluster the images of a file on a local cluster while some of its workers are killed.

    With ``default`` the workers have the settings of Dask; otherwise :data:`UNWATCHED`.
    """
    import dask
    from distributed import Client, LocalCluster

    from tubal.distributed import cluster

    waiting = [(number + 1) / (n_killed + 1) for number in range(n_killed)]
    with (
        dask.config.set({} if default else UNWATCHED),
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None, silence_logs=50) as local,
        Client(local) as client,
    ):

        def follow(stage: str, done: int, total: int) -> None:
            if stage == "finding neighbours" and waiting and done >= waiting[0] * total:
                waiting.pop(0)
                os.kill(processes.pop(), signal.SIGKILL)

        client.run(fit_small_part, Path(folder))
        processes = list(client.run(os.getpid).values())
        model = ImageClusterer(N_CLASSES, random_state=0)
        path = Path(folder) / "images.npy"
        needed = seconds(lambda: cluster(path, client, model=model, progress=follow))
    title = (
        f"{n_workers} workers" + (f", {n_killed} killed" if n_killed else "") + (", Dask's defaults" if default else "")
    )
    return {"problem": title, "images": len(model.labels_), "seconds": needed, "labels": model.labels_.tolist()}
