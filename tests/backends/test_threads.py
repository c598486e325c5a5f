"""Threads: how work is cut, how errors are raised, and the limit on BLAS."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_info, threadpool_limits

from tubal import TubSC
from tubal.backends import arrays as module
from tubal.backends.arrays import own_threads, parallel_ranges, thread_count


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize(("value", "expected"), [("1", 1), ("1,4", 1), ("", None), ("many", None)])
def test_number_of_threads_is_read_when_the_module_is_imported(value, expected):
    script = (
        "import os\n"
        "from tubal.backends.arrays import available_cores, thread_count\n"
        "first = thread_count()\n"
        "os.environ['OMP_NUM_THREADS'] = '1'  # as a local Dask cluster does\n"
        "print(first == thread_count(), first, available_cores())"
    )
    names = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    environment = {name: text for name, text in os.environ.items() if name not in names}
    environment["OMP_NUM_THREADS"] = value
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    same, first, cores = done.stdout.split()
    assert same == "True"
    assert int(first) == (expected or int(cores))


def test_pieces_do_not_depend_on_thread_count():
    for total in (0, 1, 31, 32, 33, 1000, 5000):
        pieces = [
            parallel_ranges(lambda start, stop: (start, stop), total, grain=32, threads=count) for count in (1, 2, 5)
        ]
        assert pieces[0] == pieces[1] == pieces[2]
        covered = [index for start, stop in pieces[0] for index in range(start, stop)]
        assert covered == list(range(total))
        assert all(start % 32 == 0 for start, _ in pieces[0])


@pytest.mark.parametrize("total", [64, 65, 127, 129, 157])
def test_pieces_are_of_nearly_equal_length(total):
    pieces = parallel_ranges(lambda start, stop: stop - start, total, grain=1, threads=1)
    assert len(pieces) == 64
    assert max(pieces) - min(pieces) <= 1


def test_error_in_a_piece_is_raised():
    def work(start, stop):
        raise RuntimeError(f"piece {start} failed")

    with pytest.raises(RuntimeError, match="failed"):
        parallel_ranges(work, 100, grain=10, threads=2)


@pytest.mark.parametrize("threads", [2, 4])
def test_error_stops_all_pieces(threads):
    started, ended = [], []

    def work(start, stop):
        started.append(start)
        time.sleep(0.01)
        ended.append(start)
        if start == 20:
            raise RuntimeError("piece 20 failed")

    with pytest.raises(RuntimeError, match="failed"):
        parallel_ranges(work, 600, grain=10, threads=threads)
    assert sorted(started) == sorted(ended)
    assert len(started) < 60
    time.sleep(0.05)
    assert len(started) == len(ended) < 60


def waiting_threads():
    return sum(thread.name == "tubal" for thread in threading.enumerate())


def test_threads_are_used_again():
    before = waiting_threads()
    for _ in range(50):
        parallel_ranges(lambda start, stop: time.sleep(1e-4), 20, grain=1, threads=6)
    assert waiting_threads() <= max(before, 5)


def test_no_thread_is_lost_where_another_cannot_be_started(monkeypatch):
    parallel_ranges(lambda start, stop: time.sleep(1e-3), 20, grain=1, threads=6)

    def refuse():
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_Helper", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            parallel_ranges(lambda start, stop: None, 64, grain=1, threads=64)
    meeting = threading.Barrier(6, timeout=30)
    parallel_ranges(lambda start, stop: meeting.wait(), 6, grain=1, threads=6)


def test_work_may_be_divided_once_more():
    def work(start, stop):
        return sum(parallel_ranges(lambda low, high: start * (high - low), 12, grain=2, threads=4))

    assert parallel_ranges(work, 20, grain=1, threads=4) == [12 * start for start in range(20)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_threads_of_its_own():
    script = (
        "import os, threading\n"
        "from tubal.backends.arrays import parallel_ranges\n"
        "def used():\n"
        "    meeting = threading.Barrier(4, timeout=30)\n"
        "    parallel_ranges(lambda start, stop: meeting.wait(), 4, grain=1, threads=4)\n"
        "    return 4\n"
        "first, child = used(), os.fork()\n"
        "if child == 0:\n"
        "    os._exit(used())\n"
        "print(first, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "4"]


def test_thread_limits_are_respected():
    with threadpool_limits(1):
        assert thread_count() == 1


def test_blas_limit_is_set_and_restored():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with own_threads() as outer, own_threads() as inner:
            assert set(blas_threads()) == {1}
            assert outer == inner >= 1
        assert blas_threads() == before


@pytest.fixture
def switch_interval():
    """A function that sets Python's switch interval until the end of the test."""
    before = sys.getswitchinterval()
    yield sys.setswitchinterval
    sys.setswitchinterval(before)


@pytest.mark.parametrize("microseconds", [5000, 2999, 501])
def test_long_switch_interval_is_shortened_and_restored(switch_interval, microseconds, monkeypatch):
    monkeypatch.setattr(module, "thread_count", lambda: 4)
    switch_interval(1e-6 * microseconds + 5e-7)
    before = sys.getswitchinterval()
    for _ in range(3):
        with own_threads(), own_threads():
            assert sys.getswitchinterval() == pytest.approx(5e-4, abs=1e-6)
        assert sys.getswitchinterval() == before


@pytest.mark.parametrize(("seconds", "threads"), [(1e-4, 4), (5e-3, 1)])
def test_short_switch_interval_and_that_of_one_thread_stay(switch_interval, seconds, threads, monkeypatch):
    monkeypatch.setattr(module, "thread_count", lambda: threads)
    switch_interval(seconds)
    before = sys.getswitchinterval()
    with own_threads():
        assert sys.getswitchinterval() == before
    assert sys.getswitchinterval() == before


# Two threads are inside ``own_threads`` at the same time; the first one to enter leaves first.
OVERLAP = """
import threading
from threadpoolctl import threadpool_info
from tubal.backends import arrays as module

def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

def enter_first():
    with module.own_threads() as count:
        print("first", count)
        first_is_in.set()
        second_is_in.wait(10)

def enter_second():
    first_is_in.wait(10)
    with module.own_threads() as count:
        print("second", count)
        second_is_in.set()
        first.join(10)
        with module.own_threads() as count:
            print("second, when the first has left", count)

module.thread_count()  # loads BLAS
module.thread_count = lambda: 8
before = blas_threads()
first_is_in, second_is_in = threading.Event(), threading.Event()
first, second = threading.Thread(target=enter_first), threading.Thread(target=enter_second)
for thread in (first, second):
    thread.start()
for thread in (first, second):
    thread.join()
print("restored", blas_threads() == before)
"""


@pytest.fixture(scope="module")
def overlap():
    """The lines that OVERLAP prints in a new process, in which nothing else limits BLAS."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    found = subprocess.run([sys.executable, "-c", OVERLAP], check=True, capture_output=True, text=True, env=environment)
    return found.stdout.splitlines()


def test_blas_limit_is_restored_after_overlapping_threads(overlap):
    assert "restored True" in overlap


def test_overlapping_threads_share_the_cores(overlap):
    assert overlap[:3] == ["first 8", "second 1", "second, when the first has left 8"]


def test_helpers_get_one_thread(monkeypatch):
    monkeypatch.setattr("tubal.backends.arrays.thread_count", lambda: 2)
    caller, seen = threading.get_ident(), []

    def work(start, stop):
        time.sleep(0.01)  # long enough for the second thread to take a piece
        with own_threads() as count:
            seen.append((threading.get_ident() == caller, count))

    with own_threads() as threads:
        parallel_ranges(work, 8, grain=1, threads=threads)
    assert set(seen) == {(True, 2), (False, 1)}


def test_concurrent_fits_give_the_same_codes():
    digits = load_digits().images[:60]
    alone = TubSC(n_atoms=6, max_iter=3, random_state=0).fit(digits)
    found = {}

    def fit(name):
        found[name] = TubSC(n_atoms=6, max_iter=3, random_state=0).fit(digits)

    threads = [threading.Thread(target=fit, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for model in found.values():
        assert_array_equal(model.codes_, alone.codes_)
