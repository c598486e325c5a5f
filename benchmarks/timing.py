"""Timing two things fairly: alternately, in the same run, with the same threads; medians of repeats."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

from tubal.backends.threads import available_cores


def seconds(work: Callable[[], Any]) -> float:
    """Return the wall time of one call."""
    return timed(work)[0]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the wall time of one call and what it returned."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def alternate(first: Callable[[], Any], second: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Return the median seconds of both, called in turn."""
    pairs = [(seconds(first), seconds(second)) for _ in range(repeats)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def resident(name: str) -> int:
    """Return the bytes this process holds, ``"VmRSS"``, or held at its peak, ``"VmHWM"``; Linux only.

    Not ``ru_maxrss``: a child takes that over from its parent.
    """
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    names = ["numpy", "scipy", "numba", "scikit-learn", "sporco", "umap-learn", "torch"]
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "processor": _processor(),
        "cores": available_cores(),
        "python": platform.python_version(),
        "versions": versions,
        "load before": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
