"""Run trials on all cores, store each as soon as it is finished, and continue where a run stopped."""

from __future__ import annotations

import ctypes
import gc
import json
import multiprocessing
import os
import platform
import signal
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Literal, cast

from sklearn.exceptions import ConvergenceWarning

from tubal.backends.arrays import available_cores
from tubal.datasets import fetch
from tubal.experiments import find_table
from tubal.experiments.methods import evenly_spaced
from tubal.experiments.tables import Images, Labels, Outcome, Record, Score, Trial, trial_key
from tubal.metrics import clustering_accuracy, clustering_nmi
from tubal.storage.files import machine, versions

# Packages that a score may depend on.
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "umap-learn")

# Guesses for trials that have not run yet: values coded per collection, and cost per value of each method.
_SIZES = {"usps": 9298 * 16, "coil20": 1440 * 32, "yale": 165 * 128, "orl": 400 * 32, "digits": 1797 * 8}
_COSTS = {
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
    "answers": 5.0,
    "growth": 6.0,
}


# --- one trial -------------------------------------------------------------------------------------------------
def run_trial(trial: Trial) -> Record:
    """Run one trial from images to labels and return its record; true labels are only used for the scores.

    ``seconds`` is the time from the loaded images to the labels. ``peak_memory_mb`` is the peak resident memory
    above that at the start of the trial, in MiB. ``process_memory_mb`` is the peak of the whole process. Both
    need Linux; elsewhere ``peak_memory_mb`` is the peak of the process since it started. A setting ``subset`` limits
    the trial to so many evenly spaced images.
    """
    table = find_table(trial["table"])
    images, target, data_hash = _load_dataset(trial["table"], trial["dataset"])
    chosen = evenly_spaced(len(images), trial["settings"].get("subset"))
    images, target = images[chosen], target[chosen]
    start = _reset_peak_memory()
    begin = time.perf_counter()
    if hasattr(table, "measure"):  # a person is simulated, who knows the labels
        outcome = table.measure(trial, images, target)
    else:
        method = table.METHODS[trial["method"]]
        outcome = method.cluster(images, len(set(target.tolist())), trial["settings"], trial["run"])
    seconds = time.perf_counter() - begin
    peak = _peak_memory()
    scores = _scores(target, outcome.labels)
    return Record(
        **trial,
        key=trial_key(trial),
        seed=trial["run"],
        accuracy=scores["accuracy"],
        nmi=scores["nmi"],
        seconds=round(seconds, 3),
        peak_memory_mb=round((peak - start) / 2**20, 1),
        process_memory_mb=round(peak / 2**20, 1),
        memory_measure="peak resident set above the start" if start else "peak resident set of the process",
        details={**outcome.details, **_classify(target, outcome)},
        variants={name: _scores(target, labels) for name, labels in outcome.variants.items()},
        data_sha256=data_hash,
        versions=versions(PACKAGES),
        machine=machine(),
        jobs=1,
    )


def _scores(target: Labels, labels: Labels) -> dict[Score, float]:
    """Return the scores in percent; images with label -1 are left out."""
    known = labels >= 0
    target, labels = target[known], labels[known]
    return {"accuracy": 100 * clustering_accuracy(target, labels), "nmi": 100 * clustering_nmi(target, labels)}


def _classify(target: Labels, outcome: Outcome) -> dict[str, float]:
    """Return the accuracy of two classifiers on features of images that the method was not fitted to, in percent."""
    if outcome.features is None or outcome.train is None:
        return {}
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, rows = outcome.train, outcome.features
    models = {
        "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        "neighbors": KNeighborsClassifier(min(5, int(train.sum()))),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return {
            name: 100 * float(model.fit(rows[train], target[train]).score(rows[~train], target[~train]))
            for name, model in models.items()
        }


@cache
def _load_dataset(table: str, dataset: str) -> tuple[Images, Labels, str]:
    """Return the images, labels and SHA-256 of a collection, read by the table itself if it has a function for it."""
    load = getattr(find_table(table), "load", None)
    if load is not None:
        found: tuple[Images, Labels, str] = load(dataset)
        return found
    bunch = fetch(dataset)
    return bunch.images, bunch.target, bunch.sha256


def resident_bytes(field: Literal["VmRSS", "VmHWM"]) -> int:
    """Return the resident memory of this process, now (``"VmRSS"``) or at its peak (``"VmHWM"``); Linux only."""
    # Not `ru_maxrss`, which a child process inherits from its parent.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _reset_peak_memory() -> int:
    """Reset the peak resident memory and return the current one; 0 where the system cannot do that."""
    gc.collect()
    try:
        # Memory that earlier trials freed but the allocator kept would hide what this trial needs.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return 0
    return _peak_memory()


def _peak_memory() -> int:
    try:
        return resident_bytes("VmHWM")
    except OSError:
        import resource

        unit = 1 if platform.system() == "Darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# --- many trials -----------------------------------------------------------------------------------------------
class TrialStore:
    """A file of finished trials, one JSON object per line.

    A line that was cut short by a crash is ignored, so its trial runs again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> list[Record]:
        """Return every complete record in the order it was stored."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict) and "key" in record:
                found.append(cast(Record, record))
        return found

    def finished(self, trials: Iterable[Trial]) -> dict[str, Record]:
        """Return the stored records of ``trials`` by key."""
        wanted = {trial_key(trial) for trial in trials}
        return {record["key"]: record for record in self.records() if record["key"] in wanted}

    def add(self, record: Record) -> None:
        """Append a record and flush it to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            file.seek(0, os.SEEK_END)
            cut_short = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
            file.write((b"\n" if cut_short else b"") + json.dumps(record, sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Delete every stored trial."""
        self.path.unlink(missing_ok=True)


def run_trials(trials: Sequence[Trial], store: TrialStore, *, jobs: int = 1) -> Generator[Record]:
    """Run the trials that are not stored yet; store and yield the record of each.

    With one job, trials run in this process with all its threads. With more, ``jobs`` trials run at a time, each
    in its own process with an equal share of the cores. An interrupt stops the running trials and keeps the
    finished ones.
    """
    done = store.finished(trials)
    waiting = [trial for trial in trials if trial_key(trial) not in done]
    with closing(_run_here(waiting) if jobs == 1 else _run_in_processes(waiting, jobs)) as records:
        for record in records:
            store.add(record)
            yield record


def _run_here(trials: Iterable[Trial]) -> Generator[Record]:
    for trial in trials:
        yield run_trial(trial)


def _run_in_processes(trials: Sequence[Trial], jobs: int) -> Generator[Record]:
    others = set(multiprocessing.active_children())
    threads = max(1, available_cores() // jobs)
    executor = ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=_prepare_worker, initargs=(threads,)
    )
    # The first runs first, so that a run that is stopped fills every cell of the table alike. Within a run the longest
    # first, so that no core is left with one long trial at the end.
    queue = sorted(trials, key=lambda trial: (trial["run"], -rough_cost(trial)))
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
    # Ctrl-C reaches the whole process group; only the parent decides whether trials stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NUMBA_NUM_THREADS"] = str(threads)
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)


# --- time left -------------------------------------------------------------------------------------------------
def rough_cost(trial: Trial) -> float:
    """Guess the relative cost of a trial before any of its kind has run."""
    return _SIZES.get(trial["dataset"], 10**5) * _COSTS.get(trial["method"], 1.0)


class Forecast:
    """Expected time left, from finished trials of the same collection and method, else from a rough guess."""

    def __init__(self, trials: Sequence[Trial], known: Iterable[Record], jobs: int) -> None:
        self._left = {trial_key(trial): trial for trial in trials}
        self._jobs = jobs
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._rates: list[float] = []
        for record in known:
            self.note(record)

    def note(self, record: Record) -> None:
        """Take a finished trial into account."""
        kind = record["dataset"], record["method"]
        self._seconds[kind].append(record["seconds"])
        trial = self._left.pop(record["key"], None)
        if trial is not None:
            self._rates.append(record["seconds"] / rough_cost(trial))

    def seconds_left(self) -> float:
        """Return the expected seconds until the last trial is finished."""
        rate = statistics.median(self._rates) if self._rates else 2e-4
        costs = (self._expected(trial, rate) for trial in self._left.values())
        return sum(costs) / self._jobs

    def _expected(self, trial: Trial, rate: float) -> float:
        seconds = self._seconds.get((trial["dataset"], trial["method"]))
        return statistics.mean(seconds) if seconds else rate * rough_cost(trial)
