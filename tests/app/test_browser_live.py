"""The live page: accessibility, keyboard, phones, a second page, progress, and Firefox."""

from __future__ import annotations

import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from helpers.browser import (
    axe_violations,
    click,
    count,
    each,
    images_in,
    js,
    map_pixels,
    pixels,
    prefer,
    press,
    rename,
    resize,
    text,
    wait,
)
from helpers.firefox import Firefox
from helpers.live_page import (
    answer_by_typing,
    journal,
    names_of,
    open_page,
    opened,
    question,
    show_clusters,
    state,
    table,
    tap,
    touch_screen,
    until_changed,
    write_digits,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.mark.parametrize(("scheme", "size"), [("dark", (390, 844)), ("light", (1366, 768))])
def test_axe_finds_no_accessibility_problem(live, server, scheme, size):
    resize(live, *size, phone=size[0] < 500)
    prefer(live, color_scheme=scheme, reduced_motion="reduce")
    open_page(live, server.address)
    question(live)
    cluster = int(each(live, ".card", "n => n.dataset.cluster")[0])
    show_clusters(live, cluster)
    click(live, f"#cluster-{cluster} .split-button")
    wait(lambda: count(live, ".split-preview"), "the two parts")
    # The cards are alike: one is enough, with all that it can show.
    js(
        live,
        "document.querySelectorAll('.card').forEach((c, i) => i ? c.remove() : c.style.contentVisibility = 'visible')",
    )
    js(live, "const f = document.querySelector('#search'); f.value = 'digit 012'; f.dispatchEvent(new Event('input'))")
    wait(lambda: count(live, "#select-found"), "images found")
    click(live, "#select-found")
    violations, passed = axe_violations(live)
    assert violations == []
    assert {"color-contrast", "aria-roles", "label", "button-name"} <= set(passed)
    for dialog in ("history", "export"):
        js(live, f"document.querySelector('#{dialog}-open').click()")
        assert axe_violations(live, f"#{dialog}")[0] == []
        js(live, f"document.querySelector('#{dialog}-close').click()")
    assert js(live, "return document.documentElement.scrollWidth") <= size[0]
    line = "return getComputedStyle(document.querySelector('.card')).borderTopColor"
    before = js(live, line)
    prefer(live, color_scheme=scheme, contrast="more")
    assert js(live, line) != before
    assert axe_violations(live, "#ask")[0] == []
    live.get("about:blank")


def test_everything_is_reached_by_keyboard(live, server):
    """Name, select, move and undo without a pointer."""
    found = state(live)
    cluster = int(each(live, ".card", "n => n.dataset.cluster")[0])
    show_clusters(live, cluster)
    js(live, "document.querySelector(arguments[0]).focus()", f"#cluster-{cluster} .thumb")
    press(live, " ", "ARROW_RIGHT", " ")
    assert text(live, "#bar-count") == "2 selected"
    images = images_in(live, "#selection .thumb")
    assert js(live, "return document.activeElement.className").startswith("thumb")
    press(live, "n")
    assert js(live, "return document.activeElement.id") == "bar-name"
    press(live, "ESCAPE")
    assert js(live, "return document.activeElement.className").startswith("thumb")
    press(live, "n", *"by key", "ENTER")
    after = until_changed(live, len(found["history"]))
    assert set(names_of(after)[images]) == {"by key"}
    js(live, "document.querySelector('#bar-clear').focus()")
    press(live, "ENTER")
    assert js(live, "return document.querySelector('#selection-bar').hidden")
    js(live, "document.querySelector('#undo').focus()")
    press(live, "ENTER")
    assert "by key" not in names_of(until_changed(live, len(after["history"])))


def write_striped(folder, n_images: int) -> None:
    """Write digits of 96 pixels below stripes that pictures of 32 pixels do not show."""
    write_digits(folder, n_images)
    for file in folder.iterdir():
        digit = np.asarray(Image.open(file).resize((96, 96), Image.Resampling.BICUBIC))
        Image.fromarray(np.where(np.arange(96) // 2 % 2, digit // 2 + 120, digit // 2)).save(file)


def contrast(values: np.ndarray) -> float:
    """Return how much neighbouring pixels of a row differ."""
    return float(np.abs(np.diff(values[..., :3].astype(float), axis=1)).mean())


def test_thumbnails_and_map_become_sharp(driver, folder):
    pictures, results, thumb = folder / "large pictures", folder / "large results", ".card .thumb canvas"
    write_striped(pictures, 60)
    command = [sys.executable, "-m", "tubal", "cluster", str(pictures), "--crop", "none", "-o", str(results), "--quiet"]
    subprocess.run(command, check=True)
    resize(driver, 1000, 800, phone=True)  # two pixels of the screen for each of the page
    with opened(results) as address:
        open_page(driver, address)
        show_clusters(driver, int(each(driver, ".card", "n => n.dataset.cluster")[0]))
        image = images_in(driver, ".card .thumb")[0]
        wait(lambda: js(driver, "return document.querySelector(arguments[0]).width", thumb) == 92, "a sharp thumbnail")
        assert js(driver, "return document.querySelector(arguments[0]).style.imageRendering", thumb) == ""
        file = Image.open(pictures / f"digit {image:04d}.png").resize((92, 92), Image.Resampling.BICUBIC)
        np.testing.assert_allclose(contrast(pixels(driver, thumb)), contrast(np.asarray(file)[..., None]), rtol=0.25)
        # What is compared with a sum of atoms stays as the model knows it.
        js(driver, "document.querySelector('.card .thumb').click()")
        wait(lambda: count(driver, ".pictures canvas"), "the sum of atoms")
        kept = pixels(driver, ".pictures canvas")
        assert kept.shape == (32, 32, 4)
        assert contrast(kept) < contrast(pixels(driver, thumb)) / 2
        asked = "return performance.getEntriesByType('resource').filter(e => e.name.includes('/fine/')).length"
        assert js(driver, asked) == 1
        js(driver, "document.querySelector('#panel-close').click()")
        js(driver, "document.querySelector('#zoom-in').click()")
        # Without the stripes it is 5.
        wait(lambda: contrast(map_pixels(driver)) > 15, "a sharp map")
        driver.get("about:blank")
        assert [entry["message"] for entry in driver.get_log("browser")] == []


def test_second_page_follows_the_first(live, server):
    first = live.current_window_handle
    live.switch_to.new_window("tab")
    open_page(live, server.address)
    second = live.current_window_handle
    live.switch_to.window(first)
    found = state(live)
    rename(live, found["clusters"][0]["label"], "seen by both")
    until_changed(live, len(found["history"]))
    live.switch_to.window(second)
    wait(lambda: "seen by both" in text(live, "#legend"), "the other page")
    live.close()
    live.switch_to.window(first)


def test_colors_stay_when_clusters_change(live, server):
    """A cluster that is not touched keeps its colour on the map and in the legend."""
    colors = "n => [n.dataset.cluster, n.querySelector('svg').style.fill]"
    before = dict(each(live, "#legend button", colors))
    found = state(live)
    labels = [cluster["label"] for cluster in found["clusters"]]
    js(
        live,
        "const m = document.querySelector(arguments[0]); m.value = arguments[1]; m.dispatchEvent(new Event('change'))",
        f"#cluster-{labels[-1]} .merge",
        labels[-2],
    )
    until_changed(live, len(found["history"]))
    after = dict(each(live, "#legend button", colors))
    kept = set(before) & set(after) - {str(labels[-1]), str(labels[-2])}
    assert len(kept) >= len(before) - 2
    assert all(before[cluster] == after[cluster] for cluster in kept)
    assert len(np.unique(map_pixels(live).reshape(-1, 4), axis=0)) > 100


def test_main_path_on_a_phone(live, server):
    touch_screen(live, True)
    try:
        resize(live, 390, 844, phone=True)
        open_page(live, server.address)
        found, file = state(live), question(live)
        assert not any(each(live, ".ask-label, .name", "n => n.scrollWidth > n.clientWidth"))
        tops = each(live, ".masthead-actions button:not([hidden])", "n => n.getBoundingClientRect().top")
        assert max(tops) - min(tops) < 5  # one row
        tap(live, "#ask-name")
        js(live, "document.querySelector('#ask-name').value = 'by thumb'")
        tap(live, "#ask-say")
        after = until_changed(live, len(found["history"]))
        assert journal(server.results)[-1]["entries"][-1]["files"] == [file]
        assert "by thumb" in names_of(after)
        cluster = int(each(live, ".card", "n => n.dataset.cluster")[0])
        show_clusters(live, cluster)
        first, second = images_in(live, f"#cluster-{cluster} .thumb")[:2]
        tap(live, f"#cluster-{cluster} .thumb[data-image='{first}']", seconds=0.7)
        assert text(live, "#bar-count") == "1 selected"
        tap(live, f"#cluster-{cluster} .thumb[data-image='{second}']")
        assert text(live, "#bar-count") == "2 selected"
        tap(live, "#bar-out")
        left = until_changed(live, len(after["history"]))
        assert set(left["labels"][[first, second]]) == {-1}
        tap(live, "#bar-clear")
        tap(live, "#undo")
        back = until_changed(live, len(left["history"]))
        assert -1 not in back["labels"]
    finally:
        touch_screen(live, False)


def test_progress_is_shown_until_there_are_clusters(driver, folder):
    pictures = folder / "new pictures"
    write_digits(pictures, 150)
    resize(driver, 1366, 768)
    with opened(pictures, "--out", folder / "new results", gently=True) as address:
        driver.get(address)
        stages = set()

        def ready() -> bool:
            stage = js(driver, "const s = document.querySelector('#stage'); return s && s.textContent")
            stages.add(stage)
            return bool(js(driver, "return document.documentElement.dataset.live"))

        wait(ready, "the clusters", 90)
        wait(lambda: js(driver, "return document.documentElement.dataset.ready"), "the page", 30)
        assert len(stages - {None}) >= 2
        assert text(driver, "#summary").startswith("150 images")
        found = answer_by_typing(driver, "first")
        assert "first" in names_of(found)
    assert journal(folder / "new results")
    assert "first" in {row["name"] for row in table(folder / "new results" / "labels.csv")}
    # The server has stopped as Ctrl-C stops it; the page, which is still open, says so.
    js(driver, "document.querySelector('#ask-skip').click()")
    assert "tubal open" in wait(lambda: text(driver, "#problem-text"), "a sentence")
    driver.get("about:blank")
    driver.get_log("browser")


def test_the_page_of_a_failed_clustering_shows_only_the_reason(driver, folder):
    (folder / "no pictures").mkdir()
    (folder / "no pictures" / "notes.txt").write_text("no picture")
    with opened(folder / "no pictures", "--out", folder / "no results") as address:
        driver.get(address)
        wait(lambda: text(driver, "#problem-text"), "a sentence", 60)
    assert "no picture in" in text(driver, "#problem-text")
    assert not any(each(driver, "#waiting-lead, #stage-bar, #stage-text", "n => n.offsetHeight"))
    driver.get("about:blank")
    driver.get_log("browser")


def test_the_page_says_when_the_clustering_was_stopped(driver, folder):
    pictures = folder / "many pictures"
    write_digits(pictures, 1500)
    with opened(pictures, "--out", folder / "stopped results", gently=True) as address:
        driver.get(address)
        wait(lambda: js(driver, "return document.documentElement.dataset.ready"), "the page")
    wait(lambda: text(driver, "#problem-text"), "a sentence")
    assert text(driver, "#problem-text") == "The server has stopped. Start it again with tubal open."
    assert not any(each(driver, "#waiting-lead, #stage-bar, #stage-text", "n => n.offsetHeight"))
    driver.get("about:blank")
    driver.get_log("browser")


def test_main_path_in_firefox(pile: SimpleNamespace, folder):
    results = folder / "for firefox"
    shutil.copytree(pile.out, results)
    with Firefox(folder) as firefox, opened(results) as address:
        firefox.open(address)
        firefox.wait("document.documentElement.dataset.live && document.querySelector('#ask-file').textContent")
        file = firefox.run("document.querySelector('#ask-file').textContent")
        firefox.run(
            "document.querySelector('#ask-name').value = 'in Firefox';"
            "document.querySelector('#ask-form').requestSubmit()"
        )
        firefox.wait(f"document.querySelector('#ask-file').textContent !== {file!r}")
        entry = journal(results)[-1]["entries"][-1]
        assert (entry["name"], entry["files"]) == ("in Firefox", [file])
        assert "in Firefox" in firefox.run("document.querySelector('#legend').textContent")
        drawn = "new Set(document.querySelector('#map').getContext('2d').getImageData(0, 0, 400, 300).data).size"
        assert firefox.run(drawn) > 40
        firefox.run("document.querySelector('#undo').click()")
        firefox.wait("!document.querySelector('#legend').textContent.includes('in Firefox')")
        assert firefox.run("document.querySelector('#problem').hidden")
