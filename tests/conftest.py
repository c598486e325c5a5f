"""What all tests share: seeds, both array backends, and an honest count of what was skipped.

``TUBAL_FORBID_SKIPS=1`` turns every skip into a failure, except those for want of a GPU
and of an interface that scikit-learn itself has not switched on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from helpers.collections_plugin import pytest_runtest_setup  # noqa: F401  (a hook: pytest finds it by its name here)

# Compiling a kernel on its first call takes longer than any deadline; the same examples on every run.
settings.register_profile("tubal", deadline=None, derandomize=True, max_examples=30, database=None)
settings.load_profile("tubal")


if "PYTEST_XDIST_WORKER" in os.environ:
    # A worker has one core; libraries would start a thread for every core in every worker, and in their children.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threadpool_limits(1)
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts the same in every test."""
    return np.random.default_rng(20170618)


@pytest.fixture(params=["numpy", "torch"])
def backend(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Turn a NumPy array into an array of each backend in turn."""
    if request.param == "numpy":
        return np.ascontiguousarray
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")
    return torch.as_tensor


def _forbidden(report: pytest.TestReport | pytest.CollectReport) -> bool:
    if os.environ.get("TUBAL_FORBID_SKIPS") != "1" or not report.skipped or hasattr(report, "wasxfail"):
        return False
    reason = str(report.longrepr)
    # scikit-learn skips a check of an interface that nobody here has switched on.
    return not any(word in reason for word in ("GPU", "CUDA", "SCIPY_ARRAY_API"))


def _refuse(report: Any) -> Any:
    if _forbidden(report):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nTUBAL_FORBID_SKIPS=1 forbids skipping"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Fail what would have been skipped, where skipping is forbidden."""
    return _refuse((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """The same for whole files."""
    return _refuse((yield))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests on the real collections ran and how many were skipped."""
    counts = {  # a file that could not be collected whole has no keywords
        outcome: sum(
            "collection" in getattr(report, "keywords", ()) for report in terminalreporter.stats.get(outcome, [])
        )
        for outcome in ("passed", "failed", "skipped")
    }
    ran = counts["passed"] + counts["failed"]
    terminalreporter.write_line(f"tests on the real collections: {ran} ran, {counts['skipped']} were skipped")
