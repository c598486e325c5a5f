"""The strip of pictures in the README: ``python -m tools.strip``.

Three hundred handwritten digits are clustered and opened with ``tubal open``. A simulated person answers twelve
questions from the labels of scikit-learn; the page is photographed before the first answer, in the middle and at the
end. Labels are used for the answers and for the score in the caption only.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits

from tests.helpers.browser import chromium, js, prefer, wait
from tools.app import Server, served

N_IMAGES, N_ANSWERS = 300, 12
WIDTH, HEIGHT = 1180, 860
# Each picture in the strip is this wide, twice what a README shows; captions are below.
PANEL, GAP, CAPTION = 800, 30, 56
# The colour of the page.
PAGE = "#f7f5f1"


def write_pile(folder: Path) -> np.ndarray:
    """Write the digits as PNG files; return their labels as text."""
    digits = load_digits()
    folder.mkdir()
    for i, image in enumerate(digits.images[:N_IMAGES]):
        Image.fromarray(np.uint8(np.round(image / 16 * 255))).save(folder / f"{i:04d}.png")
    return np.asarray(digits.target[:N_IMAGES].astype(str))


def names(server: Server) -> np.ndarray:
    """Return the name of each image; empty where none was given."""
    import base64

    state = json.loads(server.get("state"))
    labels = np.frombuffer(base64.b64decode(state["labels"]["data"]), np.int32)
    name = {cluster["label"]: cluster["name"] or "" for cluster in state["clusters"]}
    return np.array([name[label] for label in labels.tolist()])


def photograph(driver: Any) -> Image.Image:
    """Return the map with the questions beside it."""
    js(driver, "document.activeElement.blur(); document.querySelector('.map-box').scrollIntoView()")
    time.sleep(1.5)
    shot = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    edge = "return document.querySelector(arguments[0]).getBoundingClientRect()[arguments[1]]"
    left, top = js(driver, edge, ".map-box", "left"), js(driver, edge, ".map-box", "top")
    right, bottom = js(driver, edge, "#side", "right"), js(driver, edge, "#map", "bottom")
    shown = shot.crop((round(left) - 10, round(top), round(right) + 10, round(bottom)))
    return shown.resize((PANEL, round(PANEL * shown.height / shown.width)), Image.Resampling.LANCZOS)


def answer(driver: Any, truth: np.ndarray) -> None:
    """Answer the question on the page."""
    file = js(driver, "return document.querySelector('#ask-file').textContent")
    js(
        driver,
        "document.querySelector('#ask-name').value = arguments[0];document.querySelector('#ask-form').requestSubmit()",
        str(truth[int(Path(file).stem)]),
    )
    wait(lambda: js(driver, "return document.querySelector('#ask-file').textContent") != file, "the next question")


def take_pictures(folder: Path) -> list[tuple[Image.Image, str]]:
    """Cluster, open, answer; return pictures with captions."""
    truth = write_pile(folder / "digits")
    out = folder / "results"
    subprocess.run(
        [sys.executable, "-m", "tubal", "cluster", str(folder / "digits"), "--out", str(out), "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with served(out) as server, chromium(folder, width=WIDTH, height=HEIGHT) as driver:
        prefer(driver, color_scheme="light", reduced_motion="reduce")
        driver.get(server.address)
        wait(lambda: js(driver, "return document.querySelector('#ask-file').textContent"), "a question", 60)
        pictures = [(photograph(driver), f"{N_IMAGES} pictures, no label")]
        for number in range(1, N_ANSWERS + 1):
            answer(driver, truth)
            if number in (N_ANSWERS // 2, N_ANSWERS):
                share = float(np.mean(names(server) == truth))
                pictures.append((photograph(driver), f"{number} answers: {100 * share:.1f} % named right"))
        return pictures


def compose(pictures: list[tuple[Image.Image, str]]) -> Image.Image:
    """Return the pictures side by side with their captions."""
    height = pictures[0][0].height
    strip = Image.new("RGB", (len(pictures) * (PANEL + GAP) - GAP, height + CAPTION), PAGE)
    draw = ImageDraw.Draw(strip)
    font = ImageFont.load_default(30)
    for place, (picture, caption) in enumerate(pictures):
        left = place * (PANEL + GAP)
        strip.paste(picture, (left, 0))
        draw.text((left + PANEL / 2, height + CAPTION / 2), caption, "#1d1c1a", font, anchor="mm")
    return strip


def main() -> None:
    """Write the strip."""
    parser = argparse.ArgumentParser(prog="python -m tools.strip", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/open.png"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        strip = compose(take_pictures(Path(folder)))
    strip.save(asked.out, optimize=True)
    print(f"{asked.out}: {strip.width} x {strip.height}, {asked.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
