"""Threads: how many to use, one shared pool, and BLAS limited to one thread while the pool works."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")


@cache
def _thread_controller() -> ThreadpoolController:
    # Compiled kernels call the BLAS that SciPy ships, so it must be loaded before the controller looks for libraries.
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def available_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Return how many threads to use: as many as BLAS may, but no more than the cores of this process.

    This respects ``threadpoolctl.threadpool_limits(1)``, ``OMP_NUM_THREADS`` and the affinity mask.
    """
    available = available_cores()
    pools = [int(pool["num_threads"]) for pool in _thread_controller().info() if pool["user_api"] == "blas"]
    wanted = int(os.environ.get("OMP_NUM_THREADS", available) or available)
    return max(1, min([available, wanted, *pools]))


class _Cores:
    """Gives the cores to one thread at a time, with BLAS limited to one thread while it has them.

    The limit on BLAS belongs to the whole process. Only the owner sets it, and restores what was there before when it
    leaves. If every thread did so, the last one to leave would restore the limit that another one had set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit = ExitStack()
        self._owner: int | None = None
        self._depth = 0
        self._n_threads = 1

    def acquire(self) -> tuple[int, bool]:
        """Return how many threads the caller may use, and whether its thread owns the cores."""
        with self._lock:
            if self._owner is None:
                self._n_threads = thread_count()
                self._limit.enter_context(_thread_controller().limit(limits=1, user_api="blas"))
                self._owner = threading.get_ident()
            if self._owner != threading.get_ident():
                return 1, False
            self._depth += 1
            return self._n_threads, True

    def release(self) -> None:
        """Leave one block of the owner; the outermost one gives the cores back."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
                self._limit.close()


_cores = _Cores()


@contextmanager
def own_threads() -> Iterator[int]:
    """Limit BLAS to one thread within the block; yield how many threads the caller may use instead.

    Two thread pools on the same cores slow each other down by more than an order of magnitude, and small
    factorisations gain nothing from a second thread. Blocks may be nested. If they overlap in several threads, the
    first thread gets all cores and the others get one thread each.
    """
    count, owned = _cores.acquire()
    try:
        yield count
    finally:
        if owned:
            _cores.release()


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="tubal")


def parallel_ranges(work: Callable[[int, int], Result], total: int, *, grain: int, threads: int) -> list[Result]:
    """Run ``work(start, stop)`` over ``range(total)`` cut at multiples of ``grain``; return the results in order.

    The cuts depend on ``total`` and ``grain`` only, not on ``threads``. So sums over the results are the same for any
    number of threads.
    """
    pieces = max(1, min(-(-total // grain), 64))
    step = -(-total // (pieces * grain)) * grain if total else grain
    bounds = [(start, min(start + step, total)) for start in range(0, total, step)]
    if threads == 1 or len(bounds) == 1:
        return [work(start, stop) for start, stop in bounds]
    found: list[Result | None] = [None] * len(bounds)
    # All threads share one iterator and take the next piece when they are free. So each thread is woken only once.
    waiting = iter(range(len(bounds)))

    def take_pieces() -> None:
        try:
            for place in waiting:
                found[place] = work(*bounds[place])
        except BaseException:
            for _ in waiting:  # use up the iterator, so that no thread starts another piece
                pass
            raise

    helpers = [_pool(threads).submit(take_pieces) for _ in range(min(threads, len(bounds)) - 1)]
    try:
        take_pieces()
    finally:
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)  # no helper may outlive this call: it writes to arrays that the caller reads
    for helper in started:
        helper.result()
    return cast("list[Result]", found)
