"""The Numba options that all kernels share.

Numba recompiles a cached kernel when the file that defines it changes, and only then. It does not notice a change in
another file: of a constant, of a function that the kernel calls, or of the options below. Two rules follow:

- A kernel uses constants and compiled functions of its own file only (``tests/backends/test_kernels.py`` checks this).
- After a change in this file, delete the cache: ``find . -name '*.nb[ci]' -delete``.
"""

from __future__ import annotations

from typing import Any

import numba as nb

# The GIL is released, so that threads of ours can run kernels side by side.
OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": True, "error_model": "numpy"}
CACHED: dict[str, Any] = {"cache": True, **OPTIONS}

compiled = nb.njit(**CACHED)
# For a helper that one kernel calls in one place: it is compiled as part of that kernel and not a second time alone.
inlined = nb.njit(inline="always", **OPTIONS)
