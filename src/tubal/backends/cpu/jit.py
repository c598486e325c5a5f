"""The Numba options that all kernels share, and their cache on disk, which may fail without failing a run.

Numba recompiles a cached kernel when the file that defines it changes, and only then. It does not notice a change in
another file: of a constant, of a function that the kernel calls, or of the options below. Two rules follow:

- A kernel uses constants and compiled functions of its own file only (``tests/backends/test_kernels.py`` checks this).
- After a change in this file, delete the cache: ``find . -name '*.nb[ci]' -delete``.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numba as nb
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target

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
        compiler = _compilers.get(self._py_func)
        while compiler is not None and compiler.process.is_alive() and self.is_empty():
            compiler.tell()
            time.sleep(POLL_SECONDS)
        found = self._load(sig, target_context)
        for _ in range(POLLS_FOR_CODE if compiler is not None else 0):
            if found is not None:
                break
            time.sleep(POLL_SECONDS)  # Numba writes the index of a kernel before its code
            found = self._load(sig, target_context)
        return found

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


def njit(*, cache: bool = False, **options: bool | str) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles a kernel on its first call, as Numba does, with a cache that cannot fail.

    Parameters
    ----------
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
        if cache and hasattr(kernel, "compile"):  # not with NUMBA_DISABLE_JIT
            try:
                kernel._cache = KernelCache(function)
            except RuntimeError:  # Numba has found no folder that it can write to
                _warn_once("compiled kernels cannot be kept on disk; set NUMBA_CACHE_DIR to a folder that is writable")
        return kernel

    return decorate


# --- compiled by other processes --------------------------------------------------------------------------------------
# What clustering in single precision and its report need. The processes take them in turn: of two, the first one
# compiles every other kernel. Kernels that are needed first stand first, those that take longest stand early, and both
# processes are done after half of the time.
FOR_CLUSTERING = tuple(
    f"tubal.backends.cpu.{name}"
    for name in (
        "deformation.unit_fields",
        "deformation.warp_energies",
        "deformation.best_motions",
        "deformation.keep_largest",
        "coding.graph_step",
        "deformation.pair_distances",
        "deformation.add_edges",
        "coding.solve_graph_systems",
        "deformation.place_on_map",
        "coding.descend",
    )
)
MOST_PROCESSES = 3
# How often to look whether a kernel has been written, and how many times more for its code.
POLL_SECONDS, POLLS_FOR_CODE = 0.02, 5
# A forked process need not import anything again. Libraries of macOS do not survive a fork, and Windows has none.
_CAN_FORK = sys.platform == "linux"


@dataclass(frozen=True)
class _Compiler:
    """A process that compiles a kernel, and whom to tell that the kernel is waited for."""

    process: BaseProcess
    tell: Callable[[], object]


_compilers: dict[Callable[..., Any], _Compiler] = {}  # by the function of the kernel


@contextlib.contextmanager
def compiled_ahead(names: Sequence[str] = FOR_CLUSTERING, tell: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Compile kernels in other processes while the block runs.

    Numba compiles one kernel at a time in a process, so this uses further cores, and the time in which modules are
    imported and pictures are read. The first call of such a kernel waits until a process has written it.

    Parameters
    ----------
    names : sequence of str, default=FOR_CLUSTERING
        Kernels with their modules. A module has a dict ``TYPES``, from its kernels' names to the types of arguments.
    tell : callable, default does nothing
        Called again and again while a kernel is waited for.
    """
    n_processes = min(available_cores(), MOST_PROCESSES)
    with contextlib.ExitStack() as running:
        if n_processes > 1 and sys.executable:
            cpu_target.target_context.refresh()  # half a second, once for all processes that are forked
            for first in range(n_processes):
                running.enter_context(_compiled_by_process(names[first::n_processes], tell))
        yield


@contextlib.contextmanager
def _compiled_by_process(names: Sequence[str], tell: Callable[[], object]) -> Iterator[None]:
    """Compile kernels in a process while the block runs; at its end, the process is ended."""
    functions = [find_kernel(name)[0].py_func for name in names]
    context = multiprocessing.get_context("fork") if _CAN_FORK else multiprocessing.get_context("spawn")
    process: BaseProcess = context.Process(target=_compile_silently, args=(names,), daemon=True)
    with warnings.catch_warnings():
        # Python 3.12 warns because BLAS has threads. The new process never calls BLAS.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    _compilers.update(dict.fromkeys(functions, _Compiler(process, tell)))
    try:
        yield
    finally:
        for function in functions:
            _compilers.pop(function, None)
        process.kill()
        process.join()


def _compile_silently(names: Sequence[str]) -> None:
    """Compile kernels in a process of its own, which prints nothing and ends with the first signal."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    _compilers.clear()  # a forked process cannot wait for others
    gc.disable()  # the process ends soon, and looking for garbage would take a twentieth of its time
    compile_kernels(names)


def compile_kernels(names: Sequence[str]) -> None:
    """Compile kernels, so that they are on the disk."""
    for name in names:
        kernel, types = find_kernel(name)
        kernel.compile(types)


def find_kernel(name: str) -> tuple[Any, tuple[object, ...]]:
    """Return a kernel, named with its module, and the types of its arguments."""
    module, kernel = name.rsplit(".", 1)
    home = importlib.import_module(module)
    return getattr(home, kernel), home.TYPES[kernel]


@functools.cache
def _warn_once(sentence: str) -> None:
    """Warn about the cache once, although every kernel has a cache of its own."""
    warnings.warn(sentence, KernelCacheWarning, stacklevel=3)


compiled = njit(**CACHED)
# For a helper that one kernel calls in one place: it is compiled as part of that kernel and not a second time alone.
inlined = nb.njit(inline="always", **OPTIONS)
