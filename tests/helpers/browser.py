"""A real headless Chromium, and what the tests of the report do in it."""

from __future__ import annotations

import base64
import csv
import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def require_browser() -> str:
    """Return the path of Chromium, or skip; ``TUBAL_FORBID_SKIPS=1`` turns the skip into a failure."""
    program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    missing = [name for name in ("selenium", "axe_core_python") if find_spec(name) is None]
    if not program or not shutil.which("chromedriver"):
        missing.append("chromium with chromedriver")
    if missing:
        reason = f"needs {', '.join(missing)}: pip install 'tubal[browser]', apt-get install chromium-driver"
        if os.environ.get("TUBAL_FORBID_SKIPS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return str(program)


@contextmanager
def chromium(folder: Path, *, width: int = 1440, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """Start a fresh browser that may download into ``folder``; it logs its console and its network."""
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
        # Headless windows have borders of their own: fix the page's size, not the window's.
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
    """Open the file and wait until it can be used; return the seconds that took by the page's own clock."""
    driver.get(path.as_uri())
    ready = "return document.documentElement.dataset.ready"
    return float(wait(lambda: driver.execute_script(ready), "the report to start")) / 1000


def actions(driver: Any, **options: Any) -> Any:
    """Selenium's chain of pointer and key actions."""
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
    """Turn the wheel over the middle of an element."""
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    actions(driver).scroll_from_origin(ScrollOrigin.from_element(element), 0, amount).perform()


def axe_violations(driver: Any) -> tuple[list[list[Any]], list[str]]:
    """Run axe-core over the page; return what it found wrong and the rules it found kept."""
    import axe_core_python

    driver.execute_script((Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = driver.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(result => done({kept: result.passes.map(p => p.id),"
        "violations: result.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.target.join(' '))])}))"
    )
    return found["violations"], found["kept"]


def wait(condition: Any, what: str, seconds: float = 20) -> Any:
    """Poll until ``condition()`` is true and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(f"waited {seconds} s for {what}")


def js(driver: Any, script: str, *arguments):
    return driver.execute_script(script, *arguments)


def text(driver: Any, selector: str) -> str:
    return js(driver, "return document.querySelector(arguments[0]).textContent", selector)


def each(driver: Any, selector: str, arrow: str):
    """Apply a JavaScript arrow function to every element that matches."""
    return js(driver, f"return [...document.querySelectorAll(arguments[0])].map({arrow})", selector)


def shots(driver: Any, selector: str) -> list[int]:
    return each(driver, selector, "n => Number(n.dataset.shot)")


def merge(driver: Any, cluster: int, into: int) -> None:
    js(
        driver,
        "const m = document.querySelector(`#cluster-${arguments[0]} .merge`);"
        "m.value = String(arguments[1]); m.dispatchEvent(new Event('change'))",
        cluster,
        into,
    )


def click(driver: Any, selector: str) -> None:
    element = driver.find_element("css selector", selector)
    js(driver, "arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def set_slider(driver: Any, selector: str, value: int) -> None:
    js(
        driver,
        "const s = document.querySelector(arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('input', {bubbles: true}))",
        selector,
        value,
    )


def pixels(driver: Any, selector: str) -> np.ndarray:
    """The canvas as the browser holds it, (height, width, 4)."""
    address = js(driver, "return document.querySelector(arguments[0]).toDataURL()", selector)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).convert("RGBA"))


def settled_map(driver: Any) -> np.ndarray:
    js(
        driver,
        "const frame = requestAnimationFrame;"
        "return new Promise(done => frame(() => frame(() => setTimeout(done, 60))))",
    )
    return pixels(driver, "#map")


def downloaded(driver: Any, folder: Path, name: str, press_button: str) -> list[dict[str, str]]:
    for old in folder.glob("*.csv"):
        old.unlink()
    click(driver, press_button)
    path = folder / name
    wait(lambda: path.exists() and path.stat().st_size, "the download")
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


def open_image(driver: Any, shot: int) -> None:
    js(driver, "document.querySelector('.thumb') || 0")
    if not js(driver, "return !!document.querySelector(`.thumb[data-shot='${arguments[0]}']`)", shot):
        for node in driver.find_elements("css selector", ".show-all[aria-expanded='false']"):
            js(driver, "arguments[0].click()", node)
    js(driver, "document.querySelector(`.thumb[data-shot='${arguments[0]}']`).click()", shot)


def rename(driver: Any, cluster: int, name: str) -> None:
    js(
        driver,
        "const i = document.querySelector(`#name-${arguments[0]}`); i.value = arguments[1];"
        "i.dispatchEvent(new Event('change'))",
        cluster,
        name,
    )


def luminance(driver: Any, selector: str) -> float:
    color = js(driver, "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor", selector)
    return float(np.mean([float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]]))
