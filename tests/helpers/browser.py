"""A headless Chromium, and what the tests of the report do in it."""

from __future__ import annotations

import base64
import csv
import io
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def require_browser() -> str:
    """Return the path of Chromium, or skip; with ``TUBAL_FORBID_SKIPS=1`` fail instead."""
    program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    missing = [name for name in ("selenium", "axe_core_python") if find_spec(name) is None]
    if not program or not shutil.which("chromedriver"):
        missing.append("chromium with chromedriver")
    if missing:
        reason = f"needs {', '.join(missing)}: pip install --group browser, apt-get install chromium-driver"
        if os.environ.get("TUBAL_FORBID_SKIPS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return str(program)


@contextmanager
def chromium(folder: Path, *, width: int = 1440, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """Start a browser that downloads into ``folder`` and logs its console and its network requests."""
    program = require_browser()
    from selenium import webdriver  # may be missing; then the tests skip
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    flags = (
        "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
        "disable-component-update disable-sync hide-scrollbars disable-dev-shm-usage"
    )
    for flag in flags.split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    options.add_argument(f"--window-size={width},{height}")
    if dark:
        options.add_argument("--force-dark-mode")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    driver.set_script_timeout(60)
    try:
        # Headless windows have borders of their own: set the size of the page, not of the window.
        resize(driver, width, height)
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int, *, phone: bool = False) -> None:
    """Give the page exactly this many CSS pixels."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone},
    )


def prefer(driver: Any, **features: str) -> None:
    """Emulate media features, for example ``color_scheme="dark"``."""
    wanted = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})


def open_report(driver: Any, path: Path) -> float:
    """Open a report and wait until it can be used; return the seconds that took by the page's own clock."""
    driver.get(path.as_uri())
    ready = "return document.documentElement.dataset.ready"
    return float(wait(lambda: driver.execute_script(ready), "the report to start")) / 1000


def actions(driver: Any, **options: Any) -> Any:
    """Return Selenium's chain of pointer and key actions."""
    from selenium.webdriver import ActionChains

    return ActionChains(driver, **options)


def press(driver: Any, *keys: str, shift: bool = False) -> None:
    """Press keys one after another; names such as ``ARROW_LEFT`` mean that key."""
    from selenium.webdriver import Keys

    chain = actions(driver)
    if shift:
        chain.key_down(Keys.SHIFT)
    for key in keys:
        chain.send_keys(getattr(Keys, key, key))
    if shift:
        chain.key_up(Keys.SHIFT)
    chain.perform()


def wheel(driver: Any, element: Any, amount: int) -> None:
    """Turn the mouse wheel over the middle of an element."""
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    actions(driver).scroll_from_origin(ScrollOrigin.from_element(element), 0, amount).perform()


def axe_violations(driver: Any, part: str = "html") -> tuple[list[list[Any]], list[str]]:
    """Run axe-core on the page, or a part of it; return the violations it found and the rules that passed."""
    import axe_core_python

    driver.execute_script((Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = driver.execute_async_script(
        "const [part, done] = arguments; axe.run(part).then(result => done({passed: result.passes.map(p => p.id),"
        "violations: result.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.target.join(' '))])}))",
        part,
    )
    return found["violations"], found["passed"]


def wait(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    """Wait until ``condition()`` is true and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(f"waited {seconds} s for {what}")


def js(driver: Any, script: str, *arguments: Any) -> Any:
    """Run JavaScript in the page."""
    return driver.execute_script(script, *arguments)


def text(driver: Any, selector: str) -> str:
    """Return the text of the first element that matches."""
    return str(js(driver, "return document.querySelector(arguments[0]).textContent", selector))


def each(driver: Any, selector: str, arrow: str) -> Any:
    """Apply a JavaScript arrow function to every element that matches and return the results."""
    return js(driver, f"return [...document.querySelectorAll(arguments[0])].map({arrow})", selector)


def count(driver: Any, selector: str) -> int:
    """Return how many elements match."""
    return int(js(driver, "return document.querySelectorAll(arguments[0]).length", selector))


def images_in(driver: Any, selector: str) -> list[int]:
    """Return the indices of the images whose thumbnails match."""
    return list(each(driver, selector, "n => Number(n.dataset.image)"))


def click(driver: Any, selector: str) -> None:
    """Scroll to an element and click it."""
    element = driver.find_element("css selector", selector)
    js(driver, "arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def set_value(driver: Any, selector: str, value: object, event: str) -> None:
    """Set the value of an input and send the event by which the page notices it."""
    js(
        driver,
        "const node = document.querySelector(arguments[0]); node.value = String(arguments[1]);"
        "node.dispatchEvent(new Event(arguments[2], {bubbles: true}))",
        selector,
        value,
        event,
    )


def choose(driver: Any, selector: str, value: object) -> None:
    """Choose an option of a menu."""
    set_value(driver, selector, value, "change")


def set_slider(driver: Any, selector: str, value: int) -> None:
    """Move a slider."""
    set_value(driver, selector, value, "input")


def merge(driver: Any, cluster: int, into: int) -> None:
    """Merge a cluster into another one by its menu."""
    choose(driver, f"#cluster-{cluster} .merge", into)


def rename(driver: Any, cluster: int, name: str) -> None:
    """Rename a cluster."""
    set_value(driver, f"#name-{cluster}", name, "change")


def show_all(driver: Any) -> None:
    """Show all images of every cluster."""
    js(driver, "document.querySelectorAll(\".show-all[aria-expanded='false']\").forEach(n => n.click())")


def open_image(driver: Any, image: int) -> None:
    """Open an image in the panel by its thumbnail."""
    thumb = f".thumb[data-image='{image}']"
    if not count(driver, thumb):
        show_all(driver)
    js(driver, "document.querySelector(arguments[0]).click()", thumb)


def pixels(driver: Any, selector: str) -> np.ndarray:
    """Return the pixels of a canvas, (height, width, 4)."""
    address = js(driver, "return document.querySelector(arguments[0]).toDataURL()", selector)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).convert("RGBA"))


def map_pixels(driver: Any) -> np.ndarray:
    """Return the pixels of the map, once it has been drawn."""
    js(
        driver,
        "const frame = requestAnimationFrame;"
        "return new Promise(done => frame(() => frame(() => setTimeout(done, 60))))",
    )
    return pixels(driver, "#map")


def downloaded(driver: Any, folder: Path, name: str, button: str) -> list[dict[str, str]]:
    """Click a button and return the rows of the CSV file that it downloads."""
    for old in folder.glob("*.csv"):
        old.unlink()
    click(driver, button)
    path = folder / name
    wait(lambda: path.exists() and path.stat().st_size, "the download")
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


def luminance(driver: Any, selector: str) -> float:
    """Return the mean of the red, green and blue of an element's background."""
    color = js(driver, "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor", selector)
    return float(np.mean([float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]]))
