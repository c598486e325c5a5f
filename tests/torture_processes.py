"""Stress tests in many processes: forged models, signals, concurrent runs, kills. See tests/torture.py."""

from __future__ import annotations

import collections
import contextlib
import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

Task, Result = TypeVar("Task"), TypeVar("Result")
PROGRAM = (sys.executable, "-m", "tubal")
RESULTS = {"labels.csv", "features.npz", "model.tubal", "report.html", "run.json", "skipped.csv"}


@dataclass
class Workers:
    """Worker processes, the share of the full counts, the seed, and the seconds that all tasks took together."""

    pool: Executor
    count: int
    share: float
    seed: int
    seconds: float = 0.0

    def number(self, full: int) -> int:
        """Return the share of a full count, at least one."""
        return max(1, round(full * self.share))

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Return ``function(task)`` of all tasks, in order."""
        timed = list(self.pool.map(_timed, [(function, task) for task in tasks]))
        self.seconds += sum(seconds for _, seconds in timed)
        return [found for found, _ in timed]


def _timed(work: tuple[Callable[[Task], Result], Task]) -> tuple[Result, float]:
    function, task = work
    began = time.perf_counter()
    return function(task), time.perf_counter() - began


# --- one run of the program --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Run:
    """What one process did: its exit code, what it printed, its time, and the processor time it used."""

    code: int
    printed: str
    seconds: float
    work: float


def run_program(arguments: list[str], *, send: signal.Signals | None = None, after: float = 0.0) -> Run:
    """Run ``tubal`` to its end; with ``send``, send it that signal after some seconds."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    began = time.monotonic()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [*PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=printed, env=environment
        )  # fmt: skip
        timer = threading.Timer(after, process.send_signal, [send])
        if send is not None:
            timer.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    return Run(process.returncode, text, time.monotonic() - began, used.ru_utime + used.ru_stime)


def write_pictures(folder: Path, count: int) -> None:
    """Write noisy shapes of 28 × 28 pixels in eight classes as PNG files."""
    from helpers.cli_helpers import export
    from tubal.datasets import make_shifted_shapes

    shapes = make_shifted_shapes(count, n_classes=8, image_shape=(28, 28), random_state=0).images
    export(np.clip(shapes + 0.15 * np.random.default_rng(3).random(shapes.shape), 0.0, 1.0), folder)


@contextlib.contextmanager
def pictures(count: int) -> Iterator[Path]:
    """Yield a temporary folder that holds pictures, after a first run has compiled all kernels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(folder / "pictures", count)
        write_pictures(folder / "some", min(count, 300))
        first = run_program(_arguments(folder / "some", folder / "first"))
        if first.code != 0:
            raise AssertionError(first.printed[-400:])
        yield folder


def _arguments(source: Path, out: Path, *options: str, clusters: int = 8) -> list[str]:
    return ["cluster", str(source), "-k", str(clusters), "-o", str(out), "-q", *options]


def check_results(out: Path) -> str | None:
    """Return what is wrong with a folder of results: a missing file, or files of different runs."""
    names = {path.name for path in out.iterdir()}
    if names != RESULTS:
        return f"the results are {sorted(names)}"
    record = json.loads((out / "run.json").read_text())
    for name, expected in record["outputs"].items():
        if hashlib.sha256((out / name).read_bytes()).hexdigest() != expected:
            return f"{name} is of another run than run.json"
    with open(out / "labels.csv", newline="") as stream:
        found = len({row["cluster"] for row in csv.DictReader(stream)})
    return None if found == record["clusters"] else f"{found} clusters in labels.csv, {record['clusters']} in run.json"


def check_outcomes(counts: collections.Counter[str], allowed: set[str], what: str) -> None:
    """Raise an error that lists all outcomes that are not allowed."""
    wrong = [name for name in counts if name not in allowed]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {what}: {'; '.join(wrong)}")


# --- forged models -----------------------------------------------------------------------------------------------
def forged_models(workers: Workers) -> list[str]:
    """Load and use models with changed values and correct checksums, in child processes with limits."""
    from helpers import forgeries

    count = workers.number(5000)
    with tempfile.TemporaryDirectory() as folder:
        models = forgeries.small_models(Path(folder))
        forgeries.try_forgeries(models, 1, Path(folder) / "compile", workers.seed)
    parts = [count // workers.count + (part < count % workers.count) for part in range(workers.count)]
    tasks = [(models, number, workers.seed, part) for part, number in enumerate(parts) if number]
    counts = sum(workers.map(_try_forgeries, tasks), collections.Counter())
    check_outcomes(counts, {"refused", "clear error", "used"}, f"{count} forged models")
    return [
        f"{count} forged models with correct checksums ({', '.join(sorted(models))}): {counts['refused']} refused with "
        f"one sentence, {counts['clear error']} with one when used, {counts['used']} used with finite results; none "
        f"crashed, took over {forgeries.SECONDS:g} s or over {forgeries.MEMORY >> 20} MB"
    ]


def _try_forgeries(task: tuple[dict[str, bytes], int, int, int]) -> collections.Counter[str]:
    from helpers import forgeries

    models, count, seed, part = task
    with tempfile.TemporaryDirectory() as folder:
        return forgeries.try_forgeries(models, count, Path(folder) / "work", (seed, part))


# --- signals -----------------------------------------------------------------------------------------------------
def random_signals(workers: Workers) -> list[str]:
    """Send SIGINT or SIGTERM to ``tubal cluster`` at random moments; half of the runs would replace earlier results."""
    count, random = workers.number(200), np.random.default_rng(workers.seed)
    with pictures(300) as folder:
        whole = max(workers.map(_undisturbed, [(folder, number) for number in range(min(workers.count, count))]))
        tasks = [
            (folder, number, float(random.uniform(0.0, whole)), bool(random.integers(2))) for number in range(count)
        ]
        found = collections.Counter(workers.map(_signal, tasks))
    check_outcomes(found, {"stopped", "finished", "early"}, f"{count} signals")
    return [
        f"{count} × SIGINT or SIGTERM at random moments of `tubal cluster`: {found['stopped']} runs stopped with one "
        f"sentence and exit code 130 or 143, {found['early']} ended while the program was being imported, "
        f"{found['finished']} had finished; earlier results intact, nothing half-written, no other exit code"
    ]


def _undisturbed(task: tuple[Path, int]) -> float:
    folder, number = task
    return run_program(_arguments(folder / "some", folder / f"undisturbed {number}")).seconds


def _signal(task: tuple[Path, int, float, bool]) -> str:
    """Send one signal; return "stopped", "finished", "early", or what went wrong."""
    folder, number, after, replace = task
    sent = (signal.SIGINT, signal.SIGTERM)[number % 2]
    home = folder / f"signal {number}"
    home.mkdir()
    out, before = home / "out", {}
    if replace:
        out.mkdir()
        for path in (folder / "first").iterdir():
            (out / path.name).write_bytes(path.read_bytes())
        before = {path.name: path.read_bytes() for path in out.iterdir()}
    run = run_program(_arguments(folder / "some", out, "--force", clusters=7), send=sent, after=after)
    where = f"{sent.name} after {after:.2f} s"
    left = {path.name for path in home.iterdir()} - {"out", "out.checkpoint"}
    if left:
        return f"{where}: {sorted(left)} left behind"
    if run.code == 0:
        return f"{where}: {check_results(out)}" if check_results(out) else "finished"
    after_it = {path.name: path.read_bytes() for path in out.iterdir()} if out.exists() else {}
    if after_it != before:
        return f"{where}: the earlier results changed"
    return _judge_stop(run, sent, where)


def _judge_stop(run: Run, sent: signal.Signals, where: str) -> str:
    """Return "stopped", "early" for a signal before the command line has its own handlers, or what went wrong."""
    quiet = run.code == 128 + sent and not run.printed  # while the command line is imported
    by_python = "tubal/cli" not in run.printed and (run.code == -sent or "KeyboardInterrupt" in run.printed)
    if quiet or by_python:
        return "early"
    if run.code != 128 + sent:
        return f"{where}: exit code {run.code}: {run.printed[-300:]}"
    one_sentence = run.printed.startswith("tubal: stopped") and run.printed.count("\n") == 1
    return "stopped" if one_sentence else f"{where}: not one sentence: {run.printed[-300:]}"


# --- concurrent runs ---------------------------------------------------------------------------------------------
def concurrent_pairs(workers: Workers) -> list[str]:
    """Start two runs into one results folder at random distances; half of the pairs with ``--force``."""
    count, random = workers.number(100), np.random.default_rng(workers.seed + 1)
    with pictures(300) as folder:
        whole = max(workers.map(_undisturbed, [(folder, number) for number in range(min(workers.count, count))]))
        tasks = [(folder, number, float(random.uniform(0.0, whole))) for number in range(count)]
        found = collections.Counter(workers.map(_pair, tasks))
    check_outcomes(found, {"one refused", "one after the other"}, f"{count} pairs")
    return [
        f"{count} pairs of concurrent runs into one folder: in {found['one refused']} one run was refused with one "
        f"sentence, in {found['one after the other']} both finished one after the other (`--force`); every folder "
        "holds the files of one run"
    ]


def _pair(task: tuple[Path, int, float]) -> str:
    """Start two runs with different numbers of clusters; return how they ended, or what went wrong."""
    folder, number, delay = task
    home = folder / f"pair {number}"
    home.mkdir()
    force = ["--force"] if number % 2 else []
    runs: list[Run | None] = [None, None]

    def start(place: int) -> None:
        time.sleep(delay * place)
        runs[place] = run_program(_arguments(folder / "some", home / "out", *force, clusters=5 + place))

    threads = [threading.Thread(target=start, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = [run for run in runs if run is not None]
    codes = sorted(run.code for run in ended)
    where = f"pair {number}, {delay:.2f} s apart"
    if codes not in ([0, 2], [0, 0]) or (codes == [0, 0] and not force):
        return f"{where}: exit codes {codes}: {' '.join(run.printed[-200:] for run in ended)}"
    if any(run.code == 2 and run.printed.count("\n") != 1 for run in ended):
        return f"{where}: not one sentence: {[run.printed[-300:] for run in ended]}"
    if {path.name for path in home.iterdir()} != {"out"}:
        return f"{where}: {sorted(path.name for path in home.iterdir())} left behind"
    wrong = check_results(home / "out")
    return f"{where}: {wrong}" if wrong else "one refused" if codes == [0, 2] else "one after the other"


# --- kills -------------------------------------------------------------------------------------------------------
def killed_clusterings(workers: Workers) -> list[str]:
    """Kill ``tubal cluster`` on 5 000 pictures at random moments, and resume it each time."""
    kills, count, random = workers.number(20), max(200, workers.number(5000)), np.random.default_rng(workers.seed + 2)
    with pictures(count) as folder:
        # As many undisturbed runs at once as killed ones later, so that all meet the same load.
        whole = workers.map(_cluster_all, [(folder, number) for number in range(min(workers.count, kills))])
        labels = {found for _, found in whole}
        seconds, work = (np.mean([getattr(run, name) for run, _ in whole]) for name in ("seconds", "work"))
        tasks = [(folder, number, float(random.uniform(0.0, seconds))) for number in range(kills)]
        runs = workers.map(_kill, tasks)
    labels |= {found for *_, found in runs}
    if len(labels) != 1:
        raise AssertionError("other labels after a kill")
    ratios = np.array([[killed.work + resumed.work, killed.seconds + resumed.seconds] for killed, resumed, _ in runs])
    ratios /= [work, seconds]
    line = (
        f"`tubal cluster` on {count} pictures: {kills} × `kill -9` ({sum(run.code < 0 for run, *_ in runs)} while "
        f"running), same labels each time; processor time with the resumed run {ratios[:, 0].mean():.2f} times that of "
        f"an undisturbed one ({work:.0f} s), at most {ratios[:, 0].max():.2f} times; elapsed time "
        f"{ratios[:, 1].mean():.2f} times, at most {ratios[:, 1].max():.2f} times"
    )
    if workers.share >= 1 and ratios[:, 0].max() > 1.3:
        raise AssertionError(f"{line}: over 1.3")
    return [line]


def _cluster_all(task: tuple[Path, int]) -> tuple[Run, bytes]:
    folder, number = task
    out = folder / f"whole {number}"
    run = run_program(_arguments(folder / "pictures", out))
    return _finished(run), (out / "labels.csv").read_bytes()


def _kill(task: tuple[Path, int, float]) -> tuple[Run, Run, bytes]:
    """Kill one run and resume it; return both runs and the labels."""
    folder, number, after = task
    out = folder / f"killed {number}"
    killed = run_program(_arguments(folder / "pictures", out), send=signal.SIGKILL, after=after)
    resumed = Run(0, "", 0.0, 0.0)
    if killed.code != 0:
        resumed = _finished(run_program(_arguments(folder / "pictures", out, "--resume")))
    return killed, resumed, (out / "labels.csv").read_bytes()


def _finished(run: Run) -> Run:
    if run.code != 0:
        raise AssertionError(f"exit code {run.code}: {run.printed[-400:]}")
    return run


# --- answers that agree ------------------------------------------------------------------------------------------
def consistent_answers(workers: Workers) -> list[str]:
    """Ask for every training image of piles and collections by all paths: each must come back as itself."""
    from helpers.self_consistency import PILES

    piles = [(name, workers.number(100)) for name in PILES] if "TUBAL_PILES" in os.environ else []
    sets = [(name, workers.number(500)) for name in COLLECTIONS] if "TUBAL_DATA" in os.environ else []
    wrong = [line for lines in workers.map(_disagreements, piles + sets) for line in lines]
    if wrong:
        raise AssertionError(f"{len(wrong)} disagreements: {'; '.join(wrong[:8])}")
    return [
        f"{len(piles)} piles of {workers.number(100)} pictures and {len(sets)} collections of at most "
        f"{workers.number(500)} images: `predict`, `similar`, `kneighbors`, `explain`, the report and, for piles, "
        "`tubal assign` and `tubal similar` agree on every training image"
    ]


COLLECTIONS = ("coil20", "usps", "orl", "yale", "digits")


def _disagreements(task: tuple[str, int]) -> list[str]:
    """Return what differs in one pile or collection."""
    from helpers.self_consistency import disagreements, disagreements_on_command_line, unpack_pile
    from tubal import ImageClusterer
    from tubal.datasets import fetch

    name, count = task
    if name in COLLECTIONS:
        images = fetch(name).images
        images = images[:: max(1, len(images) // count)]
        found = disagreements(ImageClusterer(8, random_state=0).fit(images), images)
    else:
        with tempfile.TemporaryDirectory() as folder:
            unpack_pile(name, Path(folder) / "pile", count)
            found = disagreements_on_command_line(Path(folder) / "pile", Path(folder) / "out", n_single=4)
    return [f"{name}: {line}" for line in found]
