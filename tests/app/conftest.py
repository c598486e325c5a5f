"""A pile of digits, its results, ``tubal open`` on a copy of them, and a browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.browser import chromium, js, prefer, require_browser, resize
from helpers.live_page import open_page, opened, write_digits

# All of them: a simulated person finishes the whole pile.
N_DIGITS = 1797
# The command line, without the report in a file, which would take as long as everything else.
CLUSTER = "import tubal.cli.pipeline as p; p._write_page = lambda *_: None; import tubal.cli; tubal.cli.main()"

# Brings a page that is open into the state of a new one, which is quicker than opening it again.
RESET = """
const find = (selector) => document.querySelector(selector), click = (selector) => find(selector).click();
if (!document.documentElement.dataset.ready || find('.card').dataset.spoiled || !find('#problem').hidden) return false;
document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close());
if (!find('#selection-bar').hidden) click('#bar-clear');
if (!find('#panel-full').hidden) click('#panel-close');
for (const [selector, value, event] of [['#search', '', 'input'], ['#sort', 'typical', 'change']]) {
  find(selector).value = value;
  find(selector).dispatchEvent(new Event(event));
}
document.querySelectorAll('.split-preview').forEach((node) => node.remove());
['#tab-ask', '#map-mode [data-mode=pan]', '#zoom-fit'].forEach(click);
document.activeElement.blur();
scrollTo(0, 0);
return new Promise((done) => setTimeout(() => done(true), 150));
"""


def clustered(folder: Path, n_images: int, *, copies: int = 0) -> SimpleNamespace:
    """Write digits into a folder and cluster them; return the pictures, their labels and the results."""
    require_browser()
    pictures, out = folder / "digits", folder / "results"
    labels = write_digits(pictures, n_images)
    for i in range(copies):
        shutil.copy(pictures / f"digit {i:04d}.png", pictures / f"digit {i:04d} again.png")
    subprocess.run([sys.executable, "-c", CLUSTER, "cluster", str(pictures), "--out", str(out), "--quiet"], check=True)
    return SimpleNamespace(pictures=pictures, out=out, labels=labels)


@pytest.fixture(scope="session")
def pile(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Pictures of digits, two of them twice, and the results of clustering them."""
    return clustered(tmp_path_factory.mktemp("pile"), N_DIGITS, copies=2)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the browser and for copies of results."""
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="session")
def driver(folder: Path) -> Iterator[Any]:
    """One browser for all tests."""
    with chromium(folder) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, pile: SimpleNamespace, folder: Path, driver: Any
) -> Iterator[SimpleNamespace]:
    """``tubal open`` on a copy of the results, for one file of tests."""
    results = folder / request.module.__name__ / "results"
    shutil.copytree(pile.out, results)
    with opened(results) as address:
        yield SimpleNamespace(address=address, results=results)
        driver.get("about:blank")  # a page without its server would complain


@pytest.fixture
def live(driver: Any, server: SimpleNamespace) -> Iterator[Any]:
    """The live page as it is when it was just opened, on a laptop. The test fails if the page writes to the console."""
    resize(driver, 1366, 768)
    prefer(driver, color_scheme="light", reduced_motion="reduce")
    driver.get_log("browser")
    if driver.current_url != server.address or not js(driver, RESET):
        open_page(driver, server.address)
    yield driver
    assert [entry["message"] for entry in driver.get_log("browser")] == []
