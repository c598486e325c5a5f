"""Run many trials on all cores, store each as soon as it is finished, continue where a run stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from pathlib import Path

from tubal.backends.threads import available_cores
from tubal.experiments.trials import Record, Trial, run_trial


class TrialStore:
    """Finished trials, one JSON object a line; a line cut short by a crash is ignored and run again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> list[Record]:
        """Return every whole record in the order it was stored."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict) and "key" in record:
                found.append(record)
        return found

    def finished(self, trials: Iterable[Trial]) -> dict[str, Record]:
        """Return the stored records of ``trials`` by key."""
        wanted = {trial.key for trial in trials}
        return {record["key"]: record for record in self.records() if record["key"] in wanted}

    def add(self, record: Record) -> None:
        """Append a record and see it safely on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            file.seek(0, os.SEEK_END)
            torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
            file.write((b"\n" if torn else b"") + json.dumps(record, sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Forget every stored trial."""
        self.path.unlink(missing_ok=True)


def run_trials(trials: Sequence[Trial], store: TrialStore, *, jobs: int = 1) -> Generator[Record]:
    """Yield a record for each trial not yet stored, storing it first; ``jobs`` trials run at a time.

    With one job trials run in this process with all its threads; with more, each runs in a process of its
    own with an equal share of the cores. An interrupt stops the trials under way and keeps the others.
    """
    done = store.finished(trials)
    waiting = [trial for trial in trials if trial.key not in done]
    with closing(_run_here(waiting) if jobs == 1 else _run_apart(waiting, jobs)) as records:
        for record in records:
            store.add(record)
            yield record


def _run_here(trials: Iterable[Trial]) -> Generator[Record]:
    for trial in trials:
        yield {**run_trial(trial), "jobs": 1}


def _run_apart(trials: Sequence[Trial], jobs: int) -> Generator[Record]:
    others = set(multiprocessing.active_children())
    threads = max(1, available_cores() // jobs)
    executor = ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=_prepare_worker, initargs=(threads,)
    )
    # The longest first, so that no core is left with one long trial at the end.
    queue = sorted(trials, key=rough_cost, reverse=True)
    try:
        pending: set[Future[Record]] = {executor.submit(run_trial, trial) for trial in queue}
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                yield {**future.result(), "jobs": jobs}
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    executor.shutdown()


def _prepare_worker(threads: int) -> None:
    # Ctrl-C reaches the whole process group; the parent alone decides what becomes of the trials.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NUMBA_NUM_THREADS"] = str(threads)
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)


def rough_cost(trial: Trial) -> float:
    """Guess the relative cost of a trial before any of its kind has run."""
    sizes = {"usps": 9298 * 16, "coil20": 1440 * 32, "yale": 165 * 128, "orl": 400 * 32, "digits": 1797 * 8}
    weights = {
        "kmeans": 0.02,
        "spectral": 0.05,
        "sc": 0.5,
        "graphsc": 0.8,
        "tubsc": 1.0,
        "gtsc": 1.5,
        "umap": 0.7,
        "tensr": 0.3,
        "gtensr": 2.0,
        "csc": 15.0,
        "gcsc": 40.0,
    }
    return sizes.get(trial.dataset, 10**5) * weights.get(trial.method, 1.0)


class Forecast:
    """Time left, from how long trials of the same dataset and method took, and a rough guess for the rest."""

    def __init__(self, trials: Sequence[Trial], known: Iterable[Record], jobs: int) -> None:
        self._left = {trial.key: trial for trial in trials}
        self._jobs = jobs
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._rate: list[float] = []
        self._begin = time.monotonic()
        for record in known:
            self.note(record)

    def note(self, record: Record) -> None:
        """Take a finished trial into account."""
        kind = record["dataset"], record["method"]
        self._seconds[kind].append(record["seconds"])
        trial = self._left.pop(record["key"], None)
        if trial is not None:
            self._rate.append(record["seconds"] / rough_cost(trial))

    def seconds_left(self) -> float:
        """Return the expected seconds until the last trial is finished."""
        rate = statistics.median(self._rate) if self._rate else 2e-4
        costs = (self._expected(trial, rate) for trial in self._left.values())
        return sum(costs) / self._jobs

    def _expected(self, trial: Trial, rate: float) -> float:
        seconds = self._seconds.get((trial.dataset, trial.method))
        return statistics.mean(seconds) if seconds else rate * rough_cost(trial)
