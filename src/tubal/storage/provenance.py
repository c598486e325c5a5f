"""What a result depends on (versions and machine), and JSON values of anything that is recorded."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from math import isfinite
from pathlib import Path
from typing import TypedDict

from tubal import __version__
from tubal.backends.arrays import available_cores

# Packages whose versions may change a result.
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pillow", "torch")


class Machine(TypedDict):
    """The processor, and how many of its cores the process may use."""

    processor: str
    cores: int


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of tubal, Python and those of ``packages`` that are installed.

    >>> list(versions(["numpy", "not-installed"]))
    ['tubal', 'python', 'numpy']
    """
    found = {"tubal": __version__, "python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


@cache
def machine() -> Machine:
    """Return the processor's name and how many cores this process may use."""
    name = platform.processor()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {"processor": name, "cores": available_cores()}


def platform_name() -> str:
    """Return the operating system and the kind of processor, for example "linux x86_64"."""
    return f"{sys.platform} {platform.machine()}"


def to_plain(value: object) -> object:
    """Return a value as JSON values: arrays and sets become lists, objects without a JSON type become text.

    It can be passed to ``json.dumps`` as ``default``.

    >>> import numpy as np
    >>> to_plain({"scores": np.array([0.5, np.nan]), 3: {"a"}, "path": Path("x")})
    {'scores': [0.5, 'nan'], '3': ['a'], 'path': 'x'}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # arrays and tensors, and single numbers of them
        return to_plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
