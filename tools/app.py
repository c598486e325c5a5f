"""How quickly ``tubal open`` answers on large piles: ``python -m tools.app --images 20000``.

Makes results of many synthetic pictures (kept in ``--folder`` for the next run), starts the real server on them, and
measures from outside: the time until it is ready, and the time and size of its answers. A headless Chromium then opens
the page of a second server (:mod:`tools.app_page`), unless none is installed. Results go to ``app.json`` and
``app.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from sklearn.utils import Bunch

from tubal.cli.console import Terminal
from tubal.cli.options import State
from tubal.cli.pipeline import Plan, write_clusters
from tubal.clustering import ImageClusterer
from tubal.experiments.pages import list_versions, markdown_table, write_summary
from tubal.experiments.runner import PACKAGES
from tubal.storage.files import answers_beside, staged_folder, versions

N_CLASSES, SIDE = 20, 16
# Requests of each kind; the median and the largest are recorded.
REPEATS = 5
NO_BROWSER = "No browser is installed here, so what it does with the page was not measured."


class Answer(TypedDict):
    """Seconds until answers were there, and the size of one."""

    median: float
    largest: float
    bytes: int


class Summary(TypedDict):
    """The content of ``app.json``, by number of pictures."""

    answers: dict[str, dict[str, Answer]]
    browser: dict[str, dict[str, float]]
    versions: dict[str, str]


# --- a large pile --------------------------------------------------------------------------------------------------
def synthetic_pictures(n_images: int) -> NDArray[np.float32]:
    """Return pictures (n, side, side) of smooth random patterns, each moved by at most a pixel, with noise."""
    rng = np.random.default_rng(0)
    patterns = gaussian_filter(rng.normal(size=(N_CLASSES, SIDE, SIDE)), (0, 2, 2))
    patterns = (patterns - patterns.min()) / np.ptp(patterns)
    chosen = rng.integers(N_CLASSES, size=n_images)
    shifts = rng.integers(-1, 2, size=(n_images, 2))
    moved = [np.roll(patterns[i], shift, axis=(0, 1)) for i, shift in zip(chosen, shifts, strict=True)]
    return np.clip(np.array(moved) + rng.normal(scale=0.12, size=(n_images, SIDE, SIDE)), 0, 1).astype(np.float32)


def make_results(out: Path, n_images: int) -> None:
    """Write a folder of results of many small pictures, unless it is there; its journal is emptied.

    Neighbours are Euclidean: a search under deformations would take far longer, and changes nothing for the server.
    """
    answers_beside(out).unlink(missing_ok=True)
    if (out / "run.json").exists():
        return
    images = synthetic_pictures(n_images)
    clusterer = ImageClusterer(N_CLASSES, graph="euclidean", random_state=0).fit(images)
    stack = Bunch(
        images=images,
        names=[f"{i // 1000:02d}/{i:05d}.png" for i in range(n_images)],
        files=[""] * n_images,
        skipped=[],
        rule="synthetic pictures",
        crop="none",
        fit="pad",
        value_range=None,
        target=None,
    )
    state = State(quiet=True)
    plan = Plan("synthetic pictures", N_CLASSES, settings={"sort": None}, out=out)
    with staged_folder(out) as stage:
        write_clusters(plan, stack, clusterer, stage, Terminal(state), state)


# --- a server ------------------------------------------------------------------------------------------------------
class Server:
    """A running ``tubal open``, and requests to it."""

    def __init__(self, out: Path) -> None:
        command = [sys.executable, "-m", "tubal", "open", str(out), "--no-browser", "--json", "--quiet"]
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        printed = "".join(iter(self.process.stdout.readline, "}\n")) + "}" if self.process.stdout else "{}"
        self.address = json.loads(printed)["address"]
        self.seconds_to_page = time.perf_counter() - began
        self.wait()
        self.seconds_to_ready = time.perf_counter() - began

    def wait(self) -> None:
        """Wait until the results are open."""
        while not self._is_ready():
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server at once, without writing results."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _is_ready(self) -> bool:
        try:
            self.get("state")
        except urllib.error.HTTPError:  # it says that it is not ready yet
            return False
        return True

    def get(self, path: str) -> bytes:
        """Return the answer to a request."""
        with urllib.request.urlopen(self.address + path, timeout=600) as answer:
            found: bytes = answer.read()
        return found

    def act(self, **values: object) -> bytes:
        """Return the answer to an act."""
        body = json.dumps(values).encode()
        request = urllib.request.Request(f"{self.address}act", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            found: bytes = answer.read()
        return found


@contextmanager
def served(out: Path) -> Iterator[Server]:
    """Serve results without what was said before; the server is killed at the end, so that nothing is written."""
    answers_beside(out).unlink(missing_ok=True)
    server = Server(out)
    try:
        yield server
    finally:
        server.stop()


# --- measuring -----------------------------------------------------------------------------------------------------
def measure_answers(out: Path) -> dict[str, Answer]:
    """Return how long answers of each kind take."""
    rng = np.random.default_rng(0)
    with served(out) as server:
        first = _once(_seconds(lambda: server.get("question")))
        state = json.loads(server.get("state"))
        n_images, clusters = int(state["labels"]["shape"][0]), [cluster["label"] for cluster in state["clusters"]]

        def some(number: int) -> list[int]:
            return [int(image) for image in rng.choice(n_images, number, replace=False)]

        def answer_question() -> bytes:
            asked = json.loads(server.get("question"))
            return server.act(kind="name", images=[asked["image"]], name=f"name {rng.integers(N_CLASSES)}")

        def merge() -> bytes:
            return server.act(kind="merge", **{"from": clusters.pop(), "into": clusters[0]})

        requests: dict[str, Callable[[], bytes]] = {
            "page": lambda: server.get(""),
            "a sheet of pictures": lambda: server.get(f"sheet/{rng.integers(n_images // 256)}"),
            "state": lambda: server.get("state"),
            "next question": lambda: server.get("question"),
            "answer to a question": answer_question,
            "move of 100 pictures": lambda: server.act(kind="move", images=some(100), to=clusters[0]),
            "new cluster of 100 pictures": lambda: server.act(kind="move", images=some(100), to="new"),
            "merge": merge,
            "split": lambda: server.act(kind="split", cluster=clusters[int(rng.integers(1, len(clusters)))]),
            "another number of clusters": lambda: server.act(kind="clusters", k=int(rng.integers(5, 60))),
            "undo": lambda: server.act(kind="undo"),
            "redo": lambda: server.act(kind="redo"),
        }
        found: dict[str, Answer] = {
            "start, until a page shows the progress": _once(server.seconds_to_page),
            "start, until the page is there": _once(server.seconds_to_ready),
            "first question": first,
        }
        return found | {name: _timed(ask) for name, ask in requests.items()}


def _seconds(ask: Callable[[], bytes]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


def _once(seconds: float) -> Answer:
    return {"median": seconds, "largest": seconds, "bytes": 0}


def _timed(ask: Callable[[], bytes]) -> Answer:
    sizes: list[int] = []

    def counted() -> bytes:
        answer = ask()
        sizes.append(len(answer))
        return answer

    times = [_seconds(counted) for _ in range(REPEATS)]
    return {"median": float(np.median(times)), "largest": max(times), "bytes": sizes[-1]}


def measure_browser(out: Path) -> dict[str, float]:
    """Return what a browser does with the page; nothing if there is no browser."""
    if not shutil.which("chromedriver"):
        return {}
    from tools.app_page import measure_page

    with served(out) as server, tempfile.TemporaryDirectory() as folder:
        return measure_page(server.address, Path(folder))


# --- the page of results -------------------------------------------------------------------------------------------
def page(summary: Summary) -> str:
    """Return ``app.md``."""
    parts = ["# How quickly `tubal open` answers", "", "Made by `python -m tools.app`. Synthetic pictures, one core."]
    for title, answers in summary["answers"].items():
        rows = [
            (name, f"{told['median']:.3f}", f"{told['largest']:.3f}", f"{told['bytes'] / 1000:.0f}")
            for name, told in answers.items()
        ]
        head = ("request", "seconds, median", "seconds, largest of five", "kB")
        parts += ["", f"## {title}: the server", "", markdown_table(head, rows)]
        browser = summary["browser"].get(title, {})
        shown = [(name, f"{value:.0f}") for name, value in browser.items()]
        table = markdown_table(("in the browser", "measured"), shown) if shown else NO_BROWSER
        parts += ["", f"## {title}: the page", "", table]
    return "\n".join([*parts, "", f"Versions: {list_versions(summary['versions'])}", ""])


def main() -> None:
    """Measure and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=[10_000, 20_000])
    parser.add_argument("--folder", type=Path, default=Path("app-piles"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    summary: Summary = {"answers": {}, "browser": {}, "versions": versions(PACKAGES)}
    for n_images in asked.images:
        place, title = asked.folder / f"pile-{n_images}", f"{n_images} pictures"
        make_results(place, n_images)
        summary["answers"][title] = measure_answers(place)
        summary["browser"][title] = measure_browser(place)
    plain: dict[str, Any] = {**summary}
    write_summary("app", plain, page(summary), asked.out)


if __name__ == "__main__":
    main()
