"""How quickly ``tubal open`` answers on large piles: ``python -m tools.app --images 20000``.

Makes results of many synthetic pictures (kept in ``--folder`` for the next run), starts the real server on them, and
measures from outside: the time until the page and the first sheet are there, and the time and size of the answer to
each kind of act. Results go to ``app.json`` and ``app.md``. What a browser does with the answers is measured by the
browser tests.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
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
# Requests of each kind; the median is recorded.
REPEATS = 5


class Summary(TypedDict):
    """The content of ``app.json``: seconds and bytes by number of images and kind of request."""

    measured: dict[str, dict[str, dict[str, float]]]
    versions: dict[str, str]


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
    """Write a folder of results of ``n_images`` small pictures, unless it is there; its journal is emptied.

    Neighbours are Euclidean, since the search under deformations would take most of an hour on a laptop.
    """
    answers_beside(out).unlink(missing_ok=True)
    if (out / "run.json").exists():
        return
    images = synthetic_pictures(n_images)
    clusterer = ImageClusterer(N_CLASSES, graph="euclidean", random_state=0).fit(images)
    names = [f"{i // 1000:02d}/{i:05d}.png" for i in range(n_images)]
    stack = Bunch(
        images=images,
        names=names,
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


class Server:
    """A running ``tubal open``, and requests to it."""

    def __init__(self, out: Path) -> None:
        command = [sys.executable, "-m", "tubal", "open", str(out), "--no-browser", "--json", "--quiet"]
        self.began = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += self.process.stdout.readline()
        self.address = json.loads(text)["address"]

    def get(self, path: str) -> bytes:
        """Return the answer to a request."""
        with urllib.request.urlopen(self.address + path, timeout=600) as answer:
            found: bytes = answer.read()
        return found

    def post(self, path: str, **values: object) -> bytes:
        """Return the answer to a request with a JSON object."""
        body = json.dumps(values).encode()
        request = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            found: bytes = answer.read()
        return found

    def wait(self) -> None:
        """Wait until the state is there."""
        while True:
            try:
                self.get("state")
                return
            except urllib.error.HTTPError:
                time.sleep(0.05)

    def stop(self) -> None:
        """End the server at once."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def measure(out: Path) -> dict[str, dict[str, float]]:
    """Return seconds and bytes of each kind of request."""
    server = Server(out)
    try:
        server.wait()
        found: dict[str, dict[str, float]] = {"start": {"seconds": time.perf_counter() - server.began, "bytes": 0}}
        rng = np.random.default_rng(0)
        clusters = [cluster["label"] for cluster in json.loads(server.get("state"))["clusters"]]

        def timed(name: str, ask: Callable[[], bytes], repeats: int = REPEATS) -> None:
            times, size = [], 0
            for _ in range(repeats):
                began = time.perf_counter()
                size = len(ask())
                times.append(time.perf_counter() - began)
            found[name] = {"seconds": float(np.median(times)), "largest": max(times), "bytes": size}

        n_images = int(json.loads(server.get("state"))["labels"]["shape"][0])
        some = [int(i) for i in rng.integers(n_images, size=50)]
        timed("page", lambda: server.get(""))
        timed("first sheet", lambda: server.get("sheet/0"), 1)
        timed("state", lambda: server.get("state"))
        timed("question", lambda: server.get("question"))
        for act in acts(rng, clusters, some, server):
            timed(f"act: {act['kind']}", lambda act=act: server.post("act", **_fresh(act, rng, n_images)))  # type: ignore[misc]
        timed("act: undo", lambda: server.post("act", kind="undo"))
        timed("act: redo", lambda: server.post("act", kind="redo"))
        return found
    finally:
        server.stop()


def acts(rng: np.random.Generator, clusters: list[int], some: list[int], server: Server) -> list[dict[str, Any]]:
    """Return one act of each kind."""
    return [
        {"kind": "name", "images": some[:1], "name": "a name"},
        {"kind": "move", "images": some, "to": clusters[1]},
        {"kind": "rename", "cluster": clusters[0], "name": "another"},
        {"kind": "same", "images": some[:2]},
        {"kind": "clusters", "k": N_CLASSES},
    ]


def _fresh(act: dict[str, Any], rng: np.random.Generator, n_images: int) -> dict[str, Any]:
    """Return an act of the same kind about other images, since an act cannot be repeated."""
    number = int(rng.integers(10**6))
    if act["kind"] == "name":
        return {**act, "images": [int(rng.integers(n_images))], "name": f"name {number % 20}"}
    if act["kind"] == "rename":
        return {**act, "name": f"another {number}"}
    if act["kind"] == "clusters":
        return {**act, "k": 5 + number % 50}
    if act["kind"] == "move":
        return {**act, "images": [int(i) for i in rng.integers(n_images, size=len(act["images"]))], "to": "new"}
    return {**act, "images": [int(i) for i in rng.choice(n_images, size=len(act["images"]), replace=False)]}


def render(summary: Summary) -> str:
    """Return ``app.md``."""
    parts = ["# How quickly `tubal open` answers", "", "Seconds on one core, without the browser; median of five.", ""]
    for title, measured in summary["measured"].items():
        rows = [
            (
                name,
                f"{values['seconds']:.3f}",
                f"{values.get('largest', values['seconds']):.3f}",
                f"{values['bytes']:.0f}",
            )
            for name, values in measured.items()
        ]
        parts += [f"## {title}", "", markdown_table(("request", "median", "largest", "bytes"), rows), ""]
    return "\n".join([*parts, list_versions(summary["versions"]), ""])


def main() -> None:
    """Measure and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=[10_000, 20_000])
    parser.add_argument("--folder", type=Path, default=Path("app-piles"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    measured = {}
    asked.folder.mkdir(exist_ok=True)
    for n_images in asked.images:
        place = asked.folder / f"pile-{n_images}"
        make_results(place, n_images)
        measured[f"{n_images} pictures"] = measure(place)
    summary: Summary = {"measured": measured, "versions": versions(PACKAGES)}
    write_summary("app", summary, render(summary), asked.out)


if __name__ == "__main__":
    main()
