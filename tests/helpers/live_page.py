"""A pile of digits, ``tubal open`` on its results, and what the tests of the live page do in a browser."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from helpers.browser import actions, js, press, text, wait


def write_digits(folder: Path, n_images: int) -> np.ndarray:
    """Write digits as PNG files in the order of their names; return their labels as text."""
    folder.mkdir(parents=True)
    digits = load_digits()
    for i, image in enumerate(digits.images[:n_images]):
        Image.fromarray(np.uint8(np.round(image / 16 * 255))).save(folder / f"digit {i:04d}.png")
    return digits.target[:n_images].astype(str)


@contextmanager
def opened(*arguments: object, gently: bool = False) -> Iterator[str]:
    """Run ``tubal open`` in a process of its own; yield the address of its page.

    At the end the process is killed, since everything is saved at once; with ``gently`` it is stopped as Ctrl-C does,
    and then writes its results again.
    """
    command = [sys.executable, "-m", "tubal", "open", *map(str, arguments), "--no-browser", "--json", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stdout is not None
        printed = "".join(iter(process.stdout.readline, "}\n")) + "}"
        yield json.loads(printed)["address"]
    finally:
        process.send_signal(signal.SIGINT if gently else signal.SIGKILL)
        process.communicate(timeout=60)


def open_page(driver: Any, address: str) -> None:
    """Open the live page and wait until it can be used."""
    driver.get(address)
    wait(lambda: js(driver, "return document.documentElement.dataset.live"), "the page to start", 60)
    wait(lambda: js(driver, "return document.documentElement.dataset.ready"), "the page to start", 60)


def state(driver: Any) -> dict[str, Any]:
    """Ask the server for its state, from the page itself."""
    found = driver.execute_async_script(
        "const done = arguments[0]; fetch('state').then(answer => answer.json()).then(done)"
    )
    for name, dtype in (("labels", np.int32), ("confidence", np.float32)):
        found[name] = unpack(found[name], dtype)
    return found


def unpack(packed: dict[str, Any], dtype: type) -> np.ndarray:
    """Return the array in base64."""
    import base64

    return np.frombuffer(base64.b64decode(packed["data"]), dtype)


def n_changes(driver: Any) -> int:
    """Return how many changes the server has made."""
    return len(state(driver)["history"])


def until_changed(driver: Any, before: int) -> dict[str, Any]:
    """Wait until the history has grown and the page shows it; return the state."""
    wait(lambda: n_changes(driver) != before, "the change")
    wait(lambda: js(driver, "return document.querySelector('#edit-state').textContent !== 'Saving…'"), "the page")
    return state(driver)


def names_of(found: dict[str, Any]) -> np.ndarray:
    """Return the name of each image; empty where nobody said."""
    name = {cluster["label"]: cluster["name"] or "" for cluster in found["clusters"]}
    return np.array([name[label] for label in found["labels"].tolist()])


def journal(results: Path) -> list[Any]:
    """Return the lines of the journal beside results."""
    path = results.with_name(f"{results.name}.hints")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def question(driver: Any) -> str:
    """Wait until the page asks; return the name of the file it asks about."""
    return wait(lambda: text(driver, "#ask-file"), "a question")


def doubt(driver: Any) -> int:
    """Return how many images may have a wrong name, as the page says it."""
    numbers = [int(word.replace(",", "")) for word in text(driver, "#doubt-text").split() if word[0].isdigit()]
    return numbers[0] if numbers else 0


def answer_by_typing(driver: Any, name: str, *, scroll: bool = True) -> dict[str, Any]:
    """Answer the question with a name; return the state after it, when the next question is there."""
    file, before = question(driver), n_changes(driver)
    script = "document.querySelector('#ask-name').focus({preventScroll: !arguments[0]})"
    js(driver, script, scroll)
    press(driver, *name, "ENTER")
    found = until_changed(driver, before)
    wait(lambda: question(driver) != file, "the next question")
    return found


def select(driver: Any, images: list[int]) -> None:
    """Select exactly these images: found by the beginning of their file names, then chosen with Ctrl and a click."""
    js(
        driver,
        """
        const [images] = arguments, names = JSON.parse(document.querySelector('#payload').textContent).names;
        const clear = document.querySelector('#selection-bar:not([hidden]) #bar-clear');
        if (clear) clear.click();
        const field = document.querySelector('#search'), box = document.querySelector('#found');
        const show = (text) => {
          field.value = text;
          field.dispatchEvent(new Event('input', {bubbles: true}));
          return new Promise(done => setTimeout(done, 200));
        };
        // Up to a hundred names that differ in their last two digits alone are found together.
        const beginning = (image) => names[image].replace(/\\d\\d\\.\\w+$/, '') || names[image];
        return (async () => {
          for (const text of new Set(images.map(beginning))) {
            await show(text);
            for (const image of images.filter(image => beginning(image) === text))
              box.querySelector(`.thumb[data-image="${image}"]`).dispatchEvent(
                new MouseEvent('click', {ctrlKey: true, bubbles: true, cancelable: true}));
          }
          await show('');
        })()
        """,
        images,
    )


def held(driver: Any, key: str, *selectors: str) -> None:
    """Click elements while a key is held."""
    from selenium.webdriver import Keys

    chain = actions(driver).key_down(getattr(Keys, key))
    for selector in selectors:
        element = driver.find_element("css selector", selector)
        js(driver, "arguments[0].scrollIntoView({block: 'center'})", element)
        chain = chain.click(element)
    chain.key_up(getattr(Keys, key)).perform()


def chord(driver: Any, *keys: str) -> None:
    """Press keys together; the last one is pressed while the others are held."""
    from selenium.webdriver import Keys

    named = [getattr(Keys, key, key) for key in keys]
    chain = actions(driver)
    for key in named[:-1]:
        chain = chain.key_down(key)
    chain = chain.send_keys(named[-1])
    for key in reversed(named[:-1]):
        chain = chain.key_up(key)
    chain.perform()


def show_clusters(driver: Any, cluster: int) -> None:
    """Scroll to the card of a cluster and wait for its thumbnails."""
    js(driver, "document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", f"#cluster-{cluster}")
    thumbs = f"return document.querySelectorAll('#cluster-{cluster} .thumb').length"
    wait(lambda: js(driver, thumbs), "thumbnails")


def touch_screen(driver: Any, on: bool) -> None:
    """Give the browser a touch screen, or take it away."""
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": on, "maxTouchPoints": 5})


def tap(driver: Any, selector: str, *, seconds: float = 0.05) -> None:
    """Touch the middle of an element with one finger."""
    place = js(
        driver,
        "const n = document.querySelector(arguments[0]); n.scrollIntoView({block: 'center'});"
        "const b = n.getBoundingClientRect(); return {x: b.left + b.width / 2, y: b.top + b.height / 2}",
        selector,
    )
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [place]})
    time.sleep(seconds)
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    time.sleep(0.1)
