"""One trial: a dataset, a method, a kind of row and a run; measured, scored and described in full."""

from __future__ import annotations

import ctypes
import gc
import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tubal
from tubal.datasets import fetch
from tubal.metrics import clustering_accuracy, clustering_nmi
from tubal.storage.provenance import machine, versions

Record = dict[str, Any]

# Packages that a score may depend on.
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "umap-learn")


@dataclass(frozen=True)
class Trial:
    """What identifies a trial; ``settings`` holds everything its method reads."""

    table: str
    dataset: str
    method: str
    row: str
    run: int
    settings: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """The random seed, the number of the run."""
        return self.run

    @property
    def key(self) -> str:
        """A text that two trials share exactly when they would give the same record."""
        return json.dumps({**asdict(self), "tubal": tubal.__version__}, sort_keys=True)


def run_trial(trial: Trial) -> Record:
    """Run one trial from pixels to labels and return its record; labels are read for the scores only.

    ``seconds`` covers everything from the loaded images to the labels. ``peak_memory_mb`` is how far the
    resident size of the process rose above where it stood when the trial began, in MiB; ``process_memory_mb``
    is its height itself, with Python, libraries and images. Both need Linux, else the peak is that of the
    process since it began.
    """
    from tubal.experiments import find_table

    method = find_table(trial.table).METHODS[trial.method]
    images, target, data_hash = _load(trial.dataset)
    start = _reset_peak_memory()
    begin = time.perf_counter()
    outcome = method.cluster(images, len(set(target.tolist())), trial.settings, trial.seed)
    seconds = time.perf_counter() - begin
    peak = _peak_memory()
    return {
        **asdict(trial),
        "key": trial.key,
        "seed": trial.seed,
        "accuracy": 100 * clustering_accuracy(target, outcome.labels),
        "nmi": 100 * clustering_nmi(target, outcome.labels),
        "seconds": round(seconds, 3),
        "peak_memory_mb": round((peak - start) / 2**20, 1),
        "process_memory_mb": round(peak / 2**20, 1),
        "memory_measure": "peak resident set above the start" if start else "peak resident set of the process",
        "details": outcome.details,
        "data_sha256": data_hash,
        "versions": versions(PACKAGES),
        "machine": machine(),
    }


@cache
def _load(dataset: str) -> tuple[Any, Any, str]:
    bunch = fetch(dataset)
    return bunch.images, bunch.target, bunch.sha256


def _reset_peak_memory() -> int:
    """Forget the largest resident size so far and return the present one; 0 where that cannot be done."""
    gc.collect()
    try:
        # Blocks that earlier trials freed but the allocator keeps would hide what this one needs.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return 0
    return _peak_memory()


def _peak_memory() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        unit = 1 if platform.system() == "Darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
