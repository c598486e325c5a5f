"""What a browser does with a large pile in ``tubal open``; part of ``python -m tools.app``.

A headless Chromium without a graphics card opens the page, so that the figures are lower bounds for a laptop.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.browser import choose, chromium, click, js, wait

# Drags the map along a curve that leaves the part drawn in advance, and measures the time between frames.
DRAG = """
const [amount, frames, done] = arguments, canvas = document.querySelector('#map');
const box = canvas.getBoundingClientRect(), times = [];
canvas.setPointerCapture = () => {};
const fire = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type,
  {clientX: box.left + x, clientY: box.top + y, pointerId: 1, button: 0, bubbles: true}));
const step = (now) => {
  times.push(now);
  const k = times.length;
  fire('pointermove', 400 + amount * Math.sin(k / 25), 250 + amount / 3 * Math.sin(k / 40));
  if (k <= frames) return requestAnimationFrame(step);
  fire('pointerup', 400, 250);
  return done(times);
};
fire('pointerdown', 400, 250);
requestAnimationFrame(step);
"""
# Answers the question and waits until the next frame in which the answer is counted has been drawn.
ANSWER = """
const [name, done] = arguments, count = document.querySelector('#answer-text'), before = count.textContent;
const began = performance.now();
const look = () => {
  if (count.textContent === before) return setTimeout(look, 2);
  return requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
};
document.querySelector('#ask-name').value = name;
document.querySelector('#ask-form').requestSubmit();
look();
"""
FRAMES = 240


def measure_page(address: str, folder: Path) -> dict[str, float]:
    """Return what a browser does with the page at an address.

    Parameters
    ----------
    address : str
        Address of a running server.
    folder : Path
        Folder for the browser's own files.

    Returns
    -------
    dict of str to float
        Milliseconds, frames per second and megabytes by what was measured.
    """
    found: dict[str, float] = {}
    with chromium(folder, width=1366, height=768) as driver:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.get(address)
        found["first picture of the pile, ms"] = float(
            wait(lambda: js(driver, "return document.documentElement.dataset.ready"), "the page", 60)
        )
        wait(lambda: js(driver, "return document.querySelector('#ask-file').textContent"), "a question", 60)
        time.sleep(3)  # the first thumbnails come
        answers = []
        for number in range(5):
            answers.append(float(driver.execute_async_script(ANSWER, f"name {number}")))
            time.sleep(1)
        found["labels on the screen after an answer, ms"] = float(np.median(answers))
        found |= drag(driver, "the whole pile")
        for _ in range(6):
            click(driver, "#zoom-in")
        time.sleep(2)
        found |= drag(driver, "pictures")
        choose(driver, "#layout", "exact")
        click(driver, "#zoom-fit")
        time.sleep(1)
        found |= drag(driver, "exact positions")
        js(driver, "document.querySelector('#clusters-section').scrollIntoView()")
        time.sleep(2)
        found["memory of the browser, MB"] = memory(driver)
    return found


def drag(driver: Any, what: str) -> dict[str, float]:
    """Return frames per second while the map is dragged, and the processor time of one frame."""
    before = _busy(driver)
    times = np.asarray(driver.execute_async_script(DRAG, 300, FRAMES))
    busy = _busy(driver) - before
    return {
        f"frames a second while dragging {what}": 1000 * (len(times) - 1) / float(times[-1] - times[0]),
        f"processor time of a frame, {what}, ms": 1000 * busy / len(times),
    }


def _busy(driver: Any) -> float:
    """Return the seconds of processor time that the page has used."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def memory(driver: Any) -> float:
    """Return the memory of all processes of the browser in megabytes; what they share counts once."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parent_of = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    inside = {driver.service.process.pid}
    while grown := {pid for pid, parent in parent_of.items() if parent in inside} - inside:
        inside |= grown
    total = 0
    for pid in inside - {driver.service.process.pid}:
        rollup = Path(f"/proc/{pid}/smaps_rollup")
        lines = rollup.read_text(encoding="ascii").splitlines() if rollup.exists() else []
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1000
