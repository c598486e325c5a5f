"""The report in a headless Chromium: themes, window sizes, accessibility, safety, time and size limits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.browser import (
    axe_violations,
    choose,
    click,
    count,
    downloaded,
    js,
    luminance,
    map_pixels,
    open_image,
    open_report,
    prefer,
    rename,
    resize,
    text,
)
from helpers.digits_report import HOSTILE_NAMES, digits_report
from tubal.report import write_report

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_dark_mode_follows_system_and_button(report, page):
    assert luminance(report, "body") > 200
    light = map_pixels(report)[..., :3].mean()
    click(report, "#theme")
    assert luminance(report, "body") < 50
    assert map_pixels(report)[..., :3].mean() < light / 2
    assert js(report, "return document.querySelector('#theme').getAttribute('aria-pressed')") == "true"
    prefer(report, color_scheme="dark")
    open_report(report, page)
    assert luminance(report, "body") < 50
    click(report, "#theme")
    assert luminance(report, "body") > 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(390, 844), (1366, 768)])
def test_axe_finds_no_accessibility_problem(report, page, scheme, size):
    resize(report, *size, phone=size[0] < 500)
    prefer(report, color_scheme=scheme)
    open_report(report, page)
    open_image(report, 20)
    js(report, "document.querySelectorAll('details').forEach(d => { d.open = true })")
    js(report, "document.querySelectorAll('.card').forEach(c => { c.style.contentVisibility = 'visible' })")
    js(report, "document.querySelector('.matrix td button').click()")
    violations, passed = axe_violations(report)
    bad = [found for found in violations if found[0] in ("moderate", "serious", "critical")]
    assert bad == []
    # axe leaves out rules that it cannot evaluate: a contrast check that did not run must not count as success.
    assert {"color-contrast", "aria-roles", "label", "button-name"} <= set(passed)


@pytest.mark.parametrize("width", [320, 390, 768, 1366, 2560])
def test_page_is_never_wider_than_the_window(report, page, width):
    resize(report, width, 900, phone=width < 500)
    open_report(report, page)
    assert js(report, "return document.documentElement.scrollWidth") <= width


def test_page_sends_no_request(driver, page):
    driver.get_log("performance")
    open_report(driver, page)
    open_image(driver, 20)
    click(driver, "#animate-atoms")
    click(driver, "#animate-atoms")
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    requested = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert requested
    assert {address.split(":")[0] for address in requested} <= {"file", "data", "blob"}
    assert [address for address in requested if address.startswith("file")] == [page.as_uri()]


def test_policy_blocks_injected_markup(driver, page):
    """Even markup that got into the page could not run or send anything."""
    open_report(driver, page)
    js(
        driver,
        "const d = document.createElement('div');"
        'd.innerHTML = \'<img src="https://example.invalid/x.png" onerror="window.handler=1">\';'
        "const s = document.createElement('script'); s.textContent = 'window.injected = 1';"
        "document.body.append(d, s)",
    )
    assert js(driver, "return [window.injected, window.handler]") == [None, None]
    driver.get_log("browser")


def test_hostile_names_are_shown_as_text(report):
    for image, name in enumerate(HOSTILE_NAMES):
        open_image(report, image)
        shown = text(report, "#panel-heading")
        assert "\n" not in shown
        assert "\u202e" not in shown
        if name.isprintable():
            assert shown == name
    assert js(report, "return window.pwned") is None
    assert count(report, "#panel :is(img, script), #clusters :is(img, b)") == 0


def test_hostile_labels_title_and_settings_are_shown_as_text(driver, folder):
    evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    data = digits_report(40, title=evil, true_labels=[evil] * 40, provenance={evil: {evil: evil}}, scores={evil: 0.5})
    driver.get_log("browser")
    open_report(driver, write_report(data, folder / "evil.html"))
    rename(driver, 0, evil)
    open_image(driver, 0)
    assert js(driver, "return window.pwned") is None
    assert evil in text(driver, "#title")
    assert js(driver, "return document.images.length") == 0
    assert driver.get_log("browser") == []


def test_page_of_2000_images_starts_within_two_seconds(driver, folder):
    page = write_report(digits_report(2000), folder / "large.html")
    assert page.stat().st_size < 15e6
    assert open_report(driver, page) < 2.0
    frame = js(
        driver,
        "const t = performance.now(); document.querySelector('#zoom-in').click();"
        "const frame = requestAnimationFrame;"
        "return new Promise(done => frame(() => frame(() => done(performance.now() - t))))",
    )
    assert frame < 500


def test_sampled_report_states_its_sample_and_lists_all_images_in_its_csv(driver, folder):
    data = digits_report(400)
    open_report(driver, write_report(data, folder / "sampled.html", max_images=80))
    assert text(driver, "#sampled").startswith("This page shows 80 of 400 images")
    assert count(driver, "#clusters .card") == 10
    rows = downloaded(driver, folder, "labels-edited.csv", "#download")
    assert [row["file"] for row in rows] == list(data.names)
    js(driver, "document.querySelector('.thumb').click()")
    assert "not shown on this page" in text(driver, "#panel-full")


def few(n: int, **changes):
    """A report of the first ``n`` digits, without neighbours."""
    base = digits_report(30)
    kept = ("images", "names", "labels", "confidence", "outliers", "embedding", "true_labels", "terms", "norms")
    fields = {name: getattr(base, name)[:n] for name in kept}
    no_neighbors = {"neighbors": np.full((n, 5), -1), "neighbor_distances": np.ones((n, 5)), "alignments": None}
    return digits_report(30, **(fields | no_neighbors | {"duplicate_of": np.full(n, -1)} | changes))


@pytest.mark.parametrize(
    "make",
    [
        lambda: few(1),
        lambda: few(2, embedding=np.zeros((2, 2)), labels=np.array([-1, 7])),
        lambda: few(2, embedding=np.array([[-1.0, 1e-17], [1.0, -1e-17]])),
        lambda: few(5, images=np.zeros((5, 3, 90), np.uint8), confidence=np.full(5, np.nan)),
        lambda: digits_report(400, labels=np.arange(400) % 130, embedding=np.c_[np.zeros(400), np.arange(400.0)]),
    ],
    ids=["one image", "one place", "two in a row", "long and thin images", "130 clusters in a row"],
)
def test_unusual_collections_cause_no_error(driver, folder, make):
    driver.get_log("browser")
    page = write_report(make(), folder / "odd.html")
    for width, height in ((320, 400), (1366, 768)):
        resize(driver, width, height, phone=width < 500)
        open_report(driver, page)
        open_image(driver, 0)
        choose(driver, "#layout", "exact")
        map_pixels(driver)
    assert driver.get_log("browser") == []


def test_page_of_2000_images_works_on_a_small_phone(driver, folder):
    driver.get_log("browser")
    page = write_report(digits_report(2000), folder / "large.html")
    resize(driver, 320, 380, phone=True)
    open_report(driver, page)
    map_pixels(driver)
    assert driver.get_log("browser") == []


def test_panel_covers_the_lower_part_of_a_phone(report, page):
    resize(report, 390, 844, phone=True)
    open_report(report, page)
    assert js(report, "return getComputedStyle(document.querySelector('#panel')).display") == "none"
    open_image(report, 20)
    box = js(
        report,
        "const b = document.querySelector('#panel').getBoundingClientRect();return [b.bottom, b.top, innerHeight]",
    )
    assert box[0] == pytest.approx(box[2], abs=2)
    assert box[1] > 0.3 * box[2]
    click(report, "#panel-close")
    assert js(report, "return getComputedStyle(document.querySelector('#panel')).display") == "none"
