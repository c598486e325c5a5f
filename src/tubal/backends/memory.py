"""What happens to freed memory: given back to the system at once, or kept for the next array."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator

# Parameters of ``mallopt`` in the GNU C library: how much free memory at the end of the heap is kept, and from which
# size on an array gets pages of its own. The environment sets the variables of these names.
_PARAMETERS = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
_WANTED = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25}
_DEFAULT = 2**17

_lock = threading.Lock()
_blocks: list[None] = []  # that have begun and not ended


@contextlib.contextmanager
def freed_memory_reused() -> Iterator[None]:
    """Keep freed memory for the next arrays within the block, where the environment says otherwise.

    Workers of Dask give it back at once, so that a worker at rest is small. But then every array consists of new pages,
    which the system must clear first, and a search takes a seventh longer. Blocks may overlap in several threads.
    """
    with _lock:
        _blocks.append(None)
        _set_thresholds(_WANTED)
    try:
        yield
    finally:
        with _lock:
            _blocks.pop()
            if not _blocks:
                _set_thresholds({name: int(os.environ.get(name, _DEFAULT)) for name in _PARAMETERS})


def _set_thresholds(values: dict[str, int]) -> None:
    """Set the parameters; without such variables the library adapts them itself, which is better."""
    if sys.platform == "linux" and any(name in os.environ for name in _PARAMETERS):
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):  # other C libraries have none
            for name, value in values.items():
                library.mallopt(_PARAMETERS[name], value)
