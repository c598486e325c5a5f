"""Candidates for large collections: an approximate index, and the share of true candidates it finds."""

from __future__ import annotations

from typing import Any

import numpy as np

from .coarse import coarse_candidates
from .structure import Graph
from .warps import Float32, Int32


def approximate_candidates(descriptors: Float32, reach: int, *, random_state: int, threads: int) -> Int32:
    """Indices ``(n, reach)`` of similar descriptors by nearest-neighbour descent, oneself left out."""
    try:
        from pynndescent import NNDescent
    except ImportError as missing:
        raise ImportError(
            f"{len(descriptors)} images are too many to compare all pairs; install the approximate index "
            "with pip install 'tubal[approximate]'"
        ) from missing
    index = NNDescent(descriptors, metric="euclidean", n_neighbors=reach + 1, random_state=random_state, n_jobs=threads)
    return _without_self(index.neighbor_graph[0].astype(np.int32), reach)


def _without_self(lists: Int32, reach: int) -> Int32:
    """Drop each row's own index, or its last entry; an empty slot (-1) becomes some other image."""
    n_images = len(lists)
    own = np.arange(n_images, dtype=np.int32)[:, None]
    # A stable sort on "is it I" moves the own index, if listed, behind everything else.
    order = np.argsort(lists == own, axis=1, kind="stable")[:, :reach]
    lists = np.take_along_axis(lists, order, axis=1)
    filler = (own + 1 + np.arange(reach, dtype=np.int32)) % n_images
    return np.ascontiguousarray(np.where(lists < 0, filler, lists))


def candidate_recall(graph: Graph, n_sample: int = 200, random_state: int = 0) -> float:
    """Share of the true coarse candidates of ``n_sample`` images that the graph's first stage found.

    It is 1 for collections small enough that all pairs were compared.
    """
    search: Any = graph.search
    if getattr(search, "kind", None) != "deformable":
        raise ValueError("only a deformable graph has coarse candidates; build it with deformable_graph()")
    descriptors = search.known.descriptors
    reach = min(search.effort.n_candidates, len(descriptors) - 1)
    lists = search.training_candidates(reach)
    if lists is None:
        return 1.0
    sample = np.random.default_rng(random_state).choice(
        len(descriptors), min(n_sample, len(descriptors)), replace=False
    )
    # One more than needed, because the image itself is in its own exact list here.
    exact = coarse_candidates(descriptors[sample], descriptors, reach + 1, first=None, threads=1)
    shares = [
        len((set(true.tolist()) - {int(own)}) & set(found.tolist())) / reach
        for own, true, found in zip(sample, exact, lists[sample], strict=True)
    ]
    return float(np.mean(shares))
