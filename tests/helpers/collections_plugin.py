"""Tests marked ``collection("orl", ...)`` are skipped, with a reason, if the files of these collections are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tubal.datasets import COLLECTIONS


def missing_collection(names: tuple[str, ...]) -> str | None:
    """Return why the named collections (all of them if none is named) cannot be read, or None."""
    home = os.environ.get("TUBAL_DATA")
    if not home:
        return "TUBAL_DATA is not set to the folder of the collections"
    files = [COLLECTIONS[name].file for name in names or COLLECTIONS]
    missing = [file for file in files if not (Path(home) / file).exists()]
    return f"{', '.join(missing)} not in {home}" if missing else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("collection"):
        reason = missing_collection(marker.args)
        if reason is None:
            continue
        if os.environ.get("TUBAL_FORBID_SKIPS") == "1":
            pytest.fail(f"{reason}, and TUBAL_FORBID_SKIPS=1 forbids skipping", pytrace=False)
        pytest.skip(reason)
