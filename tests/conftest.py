"""What all tests share: random seeds, both array backends, and a count of the tests on the real collections.

With ``TUBAL_FORBID_SKIPS=1`` every skip is a failure, except where a GPU is missing and where scikit-learn itself skips
its check of the array API.
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

from helpers.collections_plugin import pytest_runtest_setup  # noqa: F401  (a hook that pytest finds by its name)

# No deadline: a kernel is compiled on its first call. Derandomised: every run tries the same examples.
settings.register_profile("tubal", deadline=None, derandomize=True, max_examples=30, database=None)
settings.load_profile("tubal")


if "PYTEST_XDIST_WORKER" in os.environ:
    # One thread for each worker process: several workers with one thread per core each would slow each other down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threadpool_limits(1)
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator with the same seed in every test."""
    return np.random.default_rng(20170618)


@pytest.fixture(params=["numpy", "torch"])
def backend(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """A function that turns a NumPy array into an array of the backend; tests run once for each backend."""
    if request.param == "numpy":
        return np.ascontiguousarray
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")
    return torch.as_tensor


def _is_forbidden_skip(report: pytest.TestReport | pytest.CollectReport) -> bool:
    if os.environ.get("TUBAL_FORBID_SKIPS") != "1" or not report.skipped or hasattr(report, "wasxfail"):
        return False
    reason = str(report.longrepr)
    # scikit-learn checks its array API only where SCIPY_ARRAY_API is set.
    return not any(word in reason for word in ("GPU", "CUDA", "SCIPY_ARRAY_API"))


def _fail_forbidden_skip(report: Any) -> Any:
    if _is_forbidden_skip(report):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nTUBAL_FORBID_SKIPS=1 forbids skipping"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Turn forbidden skips of tests into failures."""
    return _fail_forbidden_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Turn forbidden skips of whole files into failures."""
    return _fail_forbidden_skip((yield))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests on the real collections ran and how many were skipped."""
    counts = {  # reports of files that could not be collected have no keywords
        outcome: sum(
            "collection" in getattr(report, "keywords", ()) for report in terminalreporter.stats.get(outcome, [])
        )
        for outcome in ("passed", "failed", "skipped")
    }
    ran = counts["passed"] + counts["failed"]
    terminalreporter.write_line(f"tests on the real collections: {ran} ran, {counts['skipped']} were skipped")
