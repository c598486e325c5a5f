"""Fair timing of two programs: alternately, in the same run, with the same threads; medians of the repeats."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tubal.storage.files import machine, versions

Result = TypeVar("Result")
Row = dict[str, Any]  # one line of a table: column title -> value

_PACKAGES = (
    "numpy", "scipy", "numba", "scikit-learn", "sporco", "umap-learn", "hdbscan", "pynndescent", "faiss-cpu", "hnswlib",
    "usearch", "torch",
)  # fmt: skip
# What decides the figures of a benchmark.
_CODE = ("src", "benchmarks")


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    return timed(work)[0]


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the wall time of one call, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def alternate(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the median seconds of both, called in turn."""
    pairs = [(seconds(first), seconds(second)) for _ in range(repeats)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def call_in_new_process(function: str, variables: Mapping[str, str] | None = None, /, **arguments: Any) -> Any:
    """Return what ``module:function`` of this folder returns in a new process, passed as JSON.

    The peak memory of that process is then the peak of this one call, and of Python itself. ``variables`` are added to
    its environment.
    """
    module, name = function.split(":")
    program = (
        f"import json, sys; from benchmarks.{module} import {name}; "
        f"print(json.dumps({name}(**json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, json.dumps(arguments)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **(variables or {})}
    )
    return json.loads(done.stdout.splitlines()[-1])


def environment() -> dict[str, Any]:
    """Return the machine, the commit, the versions, and the load before the run."""
    return {
        **machine(),
        "commit": commit(),
        "python": platform.python_version(),
        "versions": versions(_PACKAGES),
        "load before": os.getloadavg()[0],
    }


def commit(folder: Path = Path(__file__).parent.parent) -> str | None:
    """Return the commit that is checked out, with a mark if the code was changed since.

    Where the code comes without its history, the variable TUBAL_COMMIT names the commit; without both it is None.
    """
    if named := os.environ.get("TUBAL_COMMIT"):
        return named
    try:
        name, changes = (
            subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
            for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", *_CODE])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{name} with changes" if changes else name
