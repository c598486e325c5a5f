"""A report of 300 digits, opened in a headless Chromium: one browser for each test file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import chromium, open_report, prefer, resize
from helpers.digits_report import digits_report
from tubal.report import ReportData, write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pages and downloads."""
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def data() -> ReportData:
    """The data of the report that most tests open."""
    return digits_report(300, hostile=True)


@pytest.fixture(scope="module")
def page(folder: Path, data: ReportData) -> Path:
    """The report that most tests open."""
    return write_report(data, folder / "report.html")


@pytest.fixture(scope="module")
def driver(folder: Path) -> Iterator[Any]:
    """A browser that downloads into the folder."""
    with chromium(folder) as browser:
        yield browser


@pytest.fixture
def report(driver: Any, page: Path) -> Iterator[Any]:
    """The report, freshly opened at the size of a laptop. The test fails if the page writes to the console."""
    resize(driver, 1366, 768)
    prefer(driver, color_scheme="light", reduced_motion="reduce")
    driver.get_log("browser")
    open_report(driver, page)
    yield driver
    assert [entry["message"] for entry in driver.get_log("browser")] == []
