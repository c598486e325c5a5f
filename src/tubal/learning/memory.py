"""How much memory a fit needs, how much there is, and how many images fit at a time."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

# A fit may fill this share of what is free; the rest is for the graph, the interpreter and other programs.
SHARE = 0.7
# Copies of a chunk's images and of its codes that are alive at the worst moment of a coding step, as measured
# (docs/scale.md): images as read, scaled and as a tensor; codes, point, thresholds and the solver's right-hand
# sides; with a graph also its systems and the two sums of neighbours' codes.
IMAGE_COPIES = 4.0
CODE_COPIES = 7.0
GRAPH_CODE_COPIES = 10.0
# The graph of the whole collection, beside whatever chunk: neighbours, weights and how chunks are tied, an image.
GRAPH_BYTES = 1 << 10
# Blocks in which files are read and neighbours searched.
BUFFERS = 8 << 20
SMALLEST_CHUNK = 64


@dataclass(frozen=True)
class Need:
    """Bytes per image of a fit, and bytes whatever the number of images."""

    per_image: float
    fixed: float

    def of(self, n_images: int) -> float:
        """Return the bytes that a chunk of ``n_images`` takes."""
        return self.fixed + n_images * self.per_image


def fit_need(*, pixels: int, codes: int, atom_values: int, itemsize: int, n_tied: int = 0) -> Need:
    """Return what a fit needs; ``pixels`` and ``codes`` are per image, ``atom_values`` is the dictionary's size.

    ``n_tied`` is how many images a graph ties in all, in whatever chunk: 0 without one.

    >>> need = fit_need(pixels=1024, codes=45 * 32, atom_values=45 * 1024, itemsize=4, n_tied=1000)
    >>> round(need.of(1000) / 2**20)
    93
    """
    copies = GRAPH_CODE_COPIES if n_tied else CODE_COPIES
    per_image = itemsize * (IMAGE_COPIES * pixels + copies * codes)
    # Statistics and operators are double precision and complex; a handful of each is alive.
    fixed = BUFFERS + GRAPH_BYTES * n_tied + 16.0 * 8 * (atom_values + codes * (atom_values / max(pixels, 1)))
    return Need(per_image, fixed)


def available_memory() -> int:
    """Return the bytes this process may still take: free memory, or what its control group leaves it."""
    limits = [_free_memory(), _control_group_room()]
    return min(limit for limit in limits if limit is not None)


def chunk_size_for(need: Need, n_images: int, available: int | None = None) -> int:
    """Return how many images to hold at a time: all of them if they fit, else as many as do.

    >>> chunk_size_for(Need(per_image=1e6, fixed=0.0), 1000, available=10**9)
    700
    """
    room = SHARE * (available_memory() if available is None else available)
    if need.of(n_images) <= room:
        return n_images
    size = int((room - need.fixed) // need.per_image) if need.per_image else n_images
    if size < min(SMALLEST_CHUNK, n_images):
        raise MemoryError(
            f"a fit on {SMALLEST_CHUNK} images at a time needs {need.of(SMALLEST_CHUNK) / 2**20:.0f} MB and "
            f"{room / 2**20:.0f} MB may be used; use fewer atoms, smaller images or float32"
        )
    return size


def _free_memory() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 4 << 30


def _control_group_room(root: str = "/sys/fs/cgroup") -> int | None:
    """Return what a memory limit of a container leaves, or None where there is none."""
    second = ("memory.max", "memory.current")
    first = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
    for limit, used in (second, first):
        with contextlib.suppress(OSError, ValueError):
            most = int(Path(root, limit).read_text())
            if most < 1 << 60:
                return max(0, most - int(Path(root, used).read_text()))
    return None
