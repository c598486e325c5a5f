"""Threads: how many to use, BLAS limited to one while ours work, and ranges of an array divided among them.

Several threads need Python's lock for each piece of work, if only for a moment, and a thread that waits for it is woken
late. So pieces should be few and long: calls of compiled kernels, which need the lock once, rather than of many NumPy
functions.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")


# --- how many ---------------------------------------------------------------------------------------------------------
@cache
def _thread_controller() -> ThreadpoolController:
    # Compiled kernels call the BLAS that SciPy ships, so it must be loaded before the controller looks for libraries.
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


# Read once, as BLAS does: a local Dask cluster sets this variable for its workers, and leaves it set in this process.
# Of a list, which OpenMP allows, the first number counts; 0 for no limit.
_first_number = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
_WANTED_THREADS = int(_first_number) if _first_number.isdecimal() else 0


def available_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Return how many threads to use: as many as BLAS may, but no more than the cores of this process.

    This respects ``threadpoolctl.threadpool_limits(1)``, the affinity mask, and ``OMP_NUM_THREADS`` as it was when this
    module was imported.
    """
    available = available_cores()
    pools = [int(pool["num_threads"]) for pool in _thread_controller().info() if pool["user_api"] == "blas"]
    return max(1, min([available, _WANTED_THREADS or available, *pools]))


# Seconds after which a thread that runs Python code lets another one do so. Python's default is ten times as long: a
# thread that has finished a short product would wait longer for Python's lock than the product took.
_SWITCH_INTERVAL = 5e-4


class _Cores:
    """A lock on the processor cores; while a thread holds it, BLAS has one thread, and several take turns more often.

    Both settings belong to the whole process. Only the owner sets them, and restores what was there before when it
    leaves. If every thread did so, the last one to leave would restore what another one had set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit = ExitStack()
        self._owner: int | None = None
        self._depth = 0
        self._n_threads = 1

    def acquire(self) -> tuple[int, bool]:
        """Return how many threads the caller may use, and whether its thread holds the lock."""
        with self._lock:
            if self._owner is None:
                self._n_threads = thread_count()
                self._limit.enter_context(_thread_controller().limit(limits=1, user_api="blas"))
                before = sys.getswitchinterval()
                if self._n_threads > 1 and before > _SWITCH_INTERVAL:
                    # Python cuts off parts of a microsecond; half of one more makes it round.
                    self._limit.callback(sys.setswitchinterval, before + 5e-7)
                    sys.setswitchinterval(_SWITCH_INTERVAL)
                self._owner = threading.get_ident()
            if self._owner != threading.get_ident():
                return 1, False
            self._depth += 1
            return self._n_threads, True

    def release(self) -> None:
        """Leave one of the nested blocks; leaving the outermost one releases the lock."""
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


# --- ranges -----------------------------------------------------------------------------------------------------------
class _Job:
    """A function that several threads run at the same time, and the threads that do."""

    def __init__(self, run: Callable[[], None], n_helpers: int) -> None:
        self._run = run
        self._invited = [None] * n_helpers  # one for every helper that may still join
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()  # the error of every helper that has joined
        self._n_helpers = n_helpers

    def help(self, leave: Callable[[], object]) -> None:
        """Run the function in the thread of a helper, unless the job is over; call ``leave`` before others know."""
        try:
            self._invited.pop()
        except IndexError:
            leave()
            return
        error = None
        try:
            self._run()
        except BaseException as raised:
            error = raised
        leave()
        self._ended.put(error)

    def finish(self) -> list[BaseException]:
        """Let no other helper join, wait for all that have, and return their errors."""
        joined = self._n_helpers
        with suppress(IndexError):
            while True:
                self._invited.pop()
                joined -= 1
        return [error for error in (self._ended.get() for _ in range(joined)) if error is not None]


class _Helper:
    """A thread that waits for jobs; it begins sooner than one of a pool, which would take several locks for each."""

    def __init__(self) -> None:
        self._woken = threading.Lock()
        self._woken.acquire()
        self._job: _Job | None = None
        threading.Thread(target=self._serve, name="tubal", daemon=True).start()

    def wake(self, job: _Job) -> None:
        """Let the thread take part in a job."""
        self._job = job
        self._woken.release()

    def _serve(self) -> None:
        while True:
            self._woken.acquire()
            job, self._job = self._job, None
            assert job is not None
            job.help(leave=lambda: _idle.append(self))
            del job  # and with it the arrays that it works on


_helpers: list[_Helper] = []
_idle: list[_Helper] = []  # of these, the ones that wait


def _forget_helpers() -> None:
    _helpers.clear()
    _idle.clear()


if hasattr(os, "register_at_fork"):  # a forked process has no threads but its own
    os.register_at_fork(after_in_child=_forget_helpers)


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
            for index in waiting:
                found[index] = work(*bounds[index])
        except BaseException:
            for _ in waiting:  # use up the iterator, so that no thread starts another piece
                pass
            raise

    helpers = _idle_helpers(min(threads, len(bounds)) - 1)
    job = _Job(take_pieces, len(helpers))
    for helper in helpers:
        helper.wake(job)
    try:
        take_pieces()
    finally:
        errors = job.finish()  # no thread may still run after this call: it writes to arrays that the caller reads
    if errors:
        raise errors[0]
    return cast("list[Result]", found)


def _idle_helpers(wanted: int) -> list[_Helper]:
    """Return helpers that have nothing to do: as many as wanted, fewer while other work is going on."""
    found: list[_Helper] = []
    while len(found) < wanted:
        try:
            found.append(_idle.pop())
        except IndexError:
            if len(_helpers) >= wanted:
                break
            found.append(_Helper())
            _helpers.append(found[-1])
    return found


def in_order(
    work: Callable[[int, int], None], total: int, step: int, threads: int, tell: Callable[[float], None]
) -> None:
    """Run ``work(start, stop)`` over ``range(total)`` on all threads, ``step`` at a time.

    Tell the share that is done in between; the end is left to the caller.
    """

    def shifted(low: int) -> Callable[[int, int], None]:
        return lambda start, stop: work(low + start, low + stop)

    for low in range(0, total, step):
        if low > 0:
            tell(low / total)
        parallel_ranges(shifted(low), min(step, total - low), grain=64, threads=threads)
