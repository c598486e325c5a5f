"""The search for candidates, against the nearest-neighbour libraries that a person could install.

Each library runs in a process of its own. It is tuned first: of growing efforts, the least one that finds 99 % of the
exact candidates. Then a new process searches twice with that effort; the first time includes the import. Libraries that
are not installed are left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clustering import describe_digits, share_of_lists
from benchmarks.timing import Row, call_in_new_process, timed
from tubal.backends.arrays import own_threads, thread_count
from tubal.graph.cells import cell_candidates, most_similar

Lists = NDArray[np.int32]
Search = Callable[[NDArray[np.float32], int, int], Lists]

LEAST_RECALL = 0.99


def compared_searches(n_images: int = 30_000, reach: int = 64) -> list[Row]:
    """Measure all searches for ``reach`` candidates of every image, by descriptors of deformed digits."""
    with tempfile.TemporaryDirectory() as folder:
        descriptors = describe_digits(n_images)
        np.save(Path(folder) / "descriptors.npy", descriptors)
        with own_threads() as threads:
            np.save(Path(folder) / "exact.npy", most_similar(descriptors, descriptors, reach, threads, first=0))
        rows = []
        for name, (_, efforts) in SEARCHES.items():
            library = name.split(",")[0]
            if library in LIBRARIES and find_spec(library) is None:
                continue
            effort = call_in_new_process("searches:least_effort", folder=folder, name=name) if efforts else 0
            rows.append(call_in_new_process("searches:search_twice", folder=folder, name=name, effort=effort))
    cells = next(row for row in rows if row["problem"] == "cells")
    for column, relative in (("seconds", "relative time"), ("cold seconds", "cold relative time")):
        others = [row[column] for row in rows if row is not cells and row["recall of candidates"] >= LEAST_RECALL]
        cells |= {relative: cells[column] / min(others), "limit": 1.0}
    return rows


def least_effort(folder: str, name: str) -> int:
    """Return the least effort that finds enough of the exact candidates; the largest if none does."""
    search, efforts = SEARCHES[name]
    descriptors, exact = _stored(folder)
    for effort in efforts:
        if share_of_lists(search(descriptors, exact.shape[1], effort), exact) >= LEAST_RECALL:
            break
    return effort


def search_twice(folder: str, name: str, effort: int) -> Row:
    """Return the seconds of both searches, and the share of the exact candidates that were found."""
    descriptors, exact = _stored(folder)
    cold, _ = timed(lambda: SEARCHES[name][0](descriptors, exact.shape[1], effort))
    warm, found = timed(lambda: SEARCHES[name][0](descriptors, exact.shape[1], effort))
    return {
        "problem": name,
        "threads": thread_count(),
        "cold seconds": cold,
        "seconds": warm,
        "recall of candidates": share_of_lists(found, exact),
    } | ({"effort": effort} if effort else {})


def _stored(folder: str) -> Iterator[NDArray[Any]]:
    return (np.load(Path(folder) / f"{name}.npy") for name in ("descriptors", "exact"))


# --- the searches ----------------------------------------------------------------------------------------------
def _all_pairs(descriptors: NDArray[np.float32], reach: int, _: int) -> Lists:
    with own_threads() as threads:
        return np.asarray(most_similar(descriptors, descriptors, reach, threads, first=0))


def _cells(descriptors: NDArray[np.float32], reach: int, _: int) -> Lists:
    with own_threads() as threads:
        return np.asarray(cell_candidates(descriptors, reach, random_state=0, threads=threads))


def _pynndescent(descriptors: NDArray[np.float32], reach: int, effort: int) -> Lists:
    from pynndescent import NNDescent

    index = NNDescent(
        descriptors, metric="euclidean", n_neighbors=max(effort, reach + 1), random_state=0, n_jobs=thread_count()
    )
    return np.asarray(index.neighbor_graph[0], dtype=np.int32)


def _faiss_all_pairs(descriptors: NDArray[np.float32], reach: int, _: int) -> Lists:
    import faiss

    index = faiss.IndexFlatIP(descriptors.shape[1])
    index.add(descriptors)
    return np.asarray(index.search(descriptors, reach + 1)[1], dtype=np.int32)


def _faiss_cells(descriptors: NDArray[np.float32], reach: int, effort: int) -> Lists:
    import faiss

    index: Any = faiss.index_factory(
        descriptors.shape[1], f"IVF{int(3 * len(descriptors) ** 0.5)},Flat", faiss.METRIC_INNER_PRODUCT
    )
    index.train(descriptors)
    index.add(descriptors)
    index.nprobe = effort
    return np.asarray(index.search(descriptors, reach + 1)[1], dtype=np.int32)


def _hnswlib(descriptors: NDArray[np.float32], reach: int, effort: int) -> Lists:
    import hnswlib

    index = hnswlib.Index(space="ip", dim=descriptors.shape[1])
    index.init_index(max_elements=len(descriptors), ef_construction=100, M=16)
    index.add_items(descriptors)
    index.set_ef(effort)
    return np.asarray(index.knn_query(descriptors, reach + 1)[0], dtype=np.int32)


def _usearch(descriptors: NDArray[np.float32], reach: int, effort: int) -> Lists:
    from usearch.index import Index

    index = Index(ndim=descriptors.shape[1], metric="ip", dtype="f32", expansion_search=effort)
    index.add(np.arange(len(descriptors)), descriptors)
    return np.asarray(index.search(descriptors, reach + 1).keys).astype(np.int32)


# A search, and its efforts to try: neighbours that pynndescent is asked for, cells that faiss searches, and the length
# of the lists of hnswlib and usearch.
SEARCHES: dict[str, tuple[Search, tuple[int, ...]]] = {
    "all pairs": (_all_pairs, ()),
    "cells": (_cells, ()),
    "pynndescent": (_pynndescent, (65, 80, 100, 130)),
    "faiss, all pairs": (_faiss_all_pairs, ()),
    "faiss, cells": (_faiss_cells, (8, 16, 24, 32, 48, 64, 96)),
    "hnswlib": (_hnswlib, (65, 80, 100, 130, 200, 300)),
    "usearch": (_usearch, (65, 80, 100, 130, 200, 300)),
}
LIBRARIES = ("pynndescent", "faiss", "hnswlib", "usearch")
