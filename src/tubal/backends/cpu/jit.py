"""The Numba options that all kernels share, and their cache on disk, which may fail without failing a run.

Numba recompiles a cached kernel when the file that defines it changes, and only then. It does not notice a change in
another file: of a constant, of a function that the kernel calls, or of the options below. Two rules follow:

- A kernel uses constants and compiled functions of its own file only (``tests/backends/test_kernels.py`` checks this).
- After a change in this file, delete the cache: ``find . -name '*.nb[ci]' -delete``.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba as nb
from numba.core.caching import FunctionCache

from tubal.backends.arrays import available_cores

# The GIL is released, so that threads of ours can run kernels side by side.
OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": True, "error_model": "numpy"}
CACHED: dict[str, Any] = {"cache": True, **OPTIONS}


class KernelCacheWarning(RuntimeWarning):
    """Compiled kernels cannot be kept on disk, or were damaged there."""


class KernelCache(FunctionCache):
    """Numba's cache of one kernel. A damaged file is removed, a place that cannot be written to is left out."""

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return the compiled kernel from the disk, or None if it must be compiled.

        If another process is compiling it, wait for that first.
        """
        process = _compilers.get(self._py_func)
        while process is not None and process.poll() is None and self.is_empty():
            time.sleep(POLL_SECONDS)
        return self._load(sig, target_context)

    def is_empty(self) -> bool:
        """Return whether there is no compiled kernel on the disk."""
        with contextlib.suppress(Exception):  # a damaged file is repaired when the kernel is loaded
            return not self._cache_file._load_index()
        return False

    def _load(self, sig: object, target_context: object) -> object:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged pickle can raise anything
            for file in Path(self.cache_path).glob(f"{self._impl.filename_base}.*nb[ci]"):
                file.unlink(missing_ok=True)
            _warn_once(f"the cache of compiled kernels in {self.cache_path!r} was damaged and is repaired")
            return None

    def save_overload(self, sig: object, data: object) -> None:
        """Write a compiled kernel to the disk if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:  # a full disk, for example; the kernel itself is good
            self.disable()
            reason = getattr(error, "strerror", None) or type(error).__name__
            _warn_once(
                f"compiled kernels cannot be kept in {self.cache_path!r} ({reason}); every run compiles them again"
            )


def njit(
    signature: object = None, *, cache: bool = False, **options: bool | str
) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles a kernel, as Numba's own does, with a cache that cannot fail.

    Parameters
    ----------
    signature : Numba signature, optional
        Types of the arguments. The kernel is compiled for them at once; by default on its first call.
    cache : bool, default=False
        Keep the compiled kernel on disk.
    **options : bool or str
        Options of ``numba.njit``.

    Returns
    -------
    callable
        The decorator.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = nb.njit(**options)(function)
        if not hasattr(kernel, "compile"):  # NUMBA_DISABLE_JIT
            return kernel
        if cache:
            try:
                kernel._cache = KernelCache(function)
            except RuntimeError:  # Numba has found no folder that it can write to
                _warn_once("compiled kernels cannot be kept on disk; set NUMBA_CACHE_DIR to a folder that is writable")
        if signature is not None:
            kernel.compile(signature)
            kernel.disable_compile()
        return kernel

    return decorate


# Processes that compile kernels, by the function of the kernel; how often to look whether they have written it.
_compilers: dict[Callable[..., Any], subprocess.Popen[bytes]] = {}
POLL_SECONDS = 0.02


@contextlib.contextmanager
def compiled_ahead(module: ModuleType) -> Iterator[None]:
    """Compile the kernels of a module in a second process while the block runs.

    Numba compiles one kernel at a time in a process, so this uses a second core. The first call of such a kernel waits
    until the process has written it.

    Parameters
    ----------
    module : module
        It has a tuple ``AHEAD`` of pairs of a kernel and the types of its arguments.
    """
    if available_cores() == 1 or not sys.executable:
        yield
        return
    program = f"from tubal.backends.cpu import jit; import {module.__name__} as kernels; jit.compile_kernels(kernels)"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program],  # -P: nothing is imported from the current folder, which holds pictures
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    waiting = dict.fromkeys((kernel.py_func for kernel, _ in module.AHEAD), process)
    _compilers.update(waiting)
    try:
        yield
    finally:
        for function in waiting:
            _compilers.pop(function, None)
        process.kill()
        process.wait()


def compile_kernels(module: ModuleType) -> None:
    """Compile the kernels that a module names in ``AHEAD``, so that they are on the disk."""
    for kernel, types in module.AHEAD:
        kernel.compile(types)


@functools.cache
def _warn_once(sentence: str) -> None:
    """Warn about the cache once, although every kernel has a cache of its own."""
    warnings.warn(sentence, KernelCacheWarning, stacklevel=3)


compiled = njit(**CACHED)
# For a helper that one kernel calls in one place: it is compiled as part of that kernel and not a second time alone.
inlined = nb.njit(inline="always", **OPTIONS)
