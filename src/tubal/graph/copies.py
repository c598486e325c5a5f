"""Exact copies: searched once, then shared out so that many copies make a ring and not a hub."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .structure import IndexArray


def spread_over_copies(
    lists: NDArray[Any], group: IndexArray, length: int, *, training: bool
) -> tuple[IndexArray, IndexArray]:
    """Turn neighbour lists of distinct images into lists over all their copies.

    ``lists`` (distinct, K) names distinct images, ``group`` (n,) the distinct image each image is a copy of.
    With ``training`` there is an answer for every image of ``group`` and its own copies come first; without,
    there is one for every row of ``lists``. Returns images and the slot of ``lists`` each came from, both
    ``(m, length)``: slot -1 is an own copy, image -1 the end of a list.

    >>> spread_over_copies(np.array([[1], [0]]), np.array([0, 1, 0]), 2, training=True)[0]
    array([[2, 1],
           [0, 2],
           [0, 1]])
    """
    order = np.argsort(group, kind="stable")
    n_distinct = int(group.max()) + 1
    starts = np.searchsorted(group[order], np.arange(n_distinct + 1))
    single = np.diff(starts) == 1
    own_groups = group if training else np.arange(len(lists))
    images = np.full((len(own_groups), length), -1, dtype=np.intp)
    slots = np.full((len(own_groups), length), -1, dtype=np.intp)
    width = min(length, lists.shape[1])
    plain = single[lists[:, :width]].all(axis=1)[own_groups]
    if training:
        plain &= single[own_groups]
    images[plain, :width] = order[starts[lists[own_groups[plain], :width]]]
    slots[plain, :width] = np.arange(width)
    for row in np.flatnonzero(~plain):
        copies = order[starts[own_groups[row]] : starts[own_groups[row] + 1]] if training else order[:0]
        place = int(np.searchsorted(copies, row))
        members = [*copies[place + 1 :], *copies[:place]]
        sources = [-1] * len(members)
        for slot, other in enumerate(lists[own_groups[row]]):
            if len(members) >= length:
                break
            # Copies share their neighbours' copies in turn rather than all naming the first one.
            others = np.roll(order[starts[other] : starts[other + 1]], -place)
            members.extend(others)
            sources.extend([slot] * len(others))
        n_found = min(length, len(members))
        images[row, :n_found], slots[row, :n_found] = members[:length], sources[:length]
    return images, slots
