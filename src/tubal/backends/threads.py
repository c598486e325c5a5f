"""Threads: how many may run, one pool of our own, and BLAS held to one thread meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any


@cache
def _thread_controller() -> Any:
    # Compiled kernels call the BLAS that SciPy ships: it must be loaded before the pools are counted.
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def available_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Return how many threads to use: what BLAS is allowed, at most the cores this process may run on.

    ``threadpoolctl.threadpool_limits(1)``, ``OMP_NUM_THREADS`` and the affinity mask are all obeyed.
    """
    available = available_cores()
    pools = [int(pool["num_threads"]) for pool in _thread_controller().info() if pool["user_api"] == "blas"]
    wanted = int(os.environ.get("OMP_NUM_THREADS", available) or available)
    return max(1, min([available, wanted, *pools]))


_granted: ContextVar[int] = ContextVar("threads granted to the caller by own_threads", default=0)


@contextmanager
def own_threads() -> Iterator[int]:
    """Give BLAS one thread while the caller runs its own, and yield how many that may be; may be nested.

    Two pools on the same cores slow each other down by more than an order of magnitude, and small
    factorisations gain nothing from a second thread.
    """
    if _granted.get():
        yield _granted.get()
        return
    count = thread_count()
    token = _granted.set(count)
    try:
        with _thread_controller().limit(limits=1, user_api="blas"):
            yield count
    finally:
        _granted.reset(token)


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="tubal")


def parallel_ranges(work: Callable[[int, int], Any], total: int, *, grain: int, threads: int) -> list[Any]:
    """Run ``work(start, stop)`` over ``range(total)`` cut at multiples of ``grain``; return results in order.

    Cuts depend on ``total`` and ``grain`` only, never on ``threads``, so sums over the results are the
    same whatever the number of threads.
    """
    pieces = max(1, min(-(-total // grain), 64))
    step = -(-total // (pieces * grain)) * grain if total else grain
    bounds = [(start, min(start + step, total)) for start in range(0, total, step)]
    if threads == 1 or len(bounds) == 1:
        return [work(start, stop) for start, stop in bounds]
    found: list[Any] = [None] * len(bounds)
    waiting = iter(range(len(bounds)))  # shared: who is free takes the next, and a thread is woken once, not per piece

    def take() -> None:
        try:
            for place in waiting:
                found[place] = work(*bounds[place])
        except BaseException:
            for _ in waiting:  # what nobody has begun is not begun any more
                pass
            raise

    helpers = [_pool(threads).submit(take) for _ in range(min(threads, len(bounds)) - 1)]
    try:
        take()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]  # another finds nothing left to do
        wait(begun)  # none may outlive the call: they write where the caller reads
    for helper in begun:
        helper.result()
    return found
