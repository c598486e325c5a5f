"""The report in a real headless Chromium: the map, one image, the atoms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.browser import (
    actions,
    chromium,
    click,
    downloaded,
    js,
    open_image,
    open_report,
    pixels,
    prefer,
    press,
    resize,
    set_slider,
    settled_map,
    text,
    wait,
    wheel,
)
from helpers.digits_report import HOSTILE_NAMES, digits_report
from tubal.graph.affine import bilinear_table
from tubal.report import write_report

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
N_IMAGES = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def data():
    return digits_report(N_IMAGES, hostile=True)


@pytest.fixture(scope="module")
def page(folder, data) -> Path:
    return write_report(data, folder / "report.html")


@pytest.fixture(scope="module")
def driver(folder):
    with chromium(folder) as browser:
        yield browser


@pytest.fixture
def report(driver, page):
    """A freshly opened page of laptop size; afterwards nothing may stand in the console."""
    resize(driver, 1366, 768)
    prefer(driver, color_scheme="light", reduced_motion="reduce")
    driver.get_log("browser")
    open_report(driver, page)
    yield driver
    assert [entry["message"] for entry in driver.get_log("browser")] == []


# The map


def test_map_draws_thumbnails_and_cluster_colours(report):
    picture = settled_map(report)
    background = picture[2, 2]
    drawn = (np.abs(picture.astype(int) - background).max(axis=2) > 24).mean()
    assert drawn > 0.03
    assert len(np.unique(picture.reshape(-1, 4), axis=0)) > 200


def test_clicking_an_image_on_the_map_fills_the_panel(report):

    assert not js(report, "return document.querySelector('#panel').classList.contains('is-open')")
    canvas = report.find_element("css selector", "#map")
    # The map is drawn around its middle; walk outwards until an image is under the pointer.
    for offset in range(0, 300, 12):
        actions(report).move_to_element_with_offset(canvas, offset, 0).perform()
        if js(report, "return document.querySelector('#map').classList.contains('over-image')"):
            break
    assert text(report, "#map-tip").strip()
    actions(report).click().perform()
    wait(lambda: js(report, "return document.querySelectorAll('#panel-full .terms li').length"), "the panel")
    assert text(report, "#panel-heading") != "Image"


def test_wheel_zooms_only_a_focused_map(report):

    canvas = report.find_element("css selector", "#map")
    before = settled_map(report)
    wheel(report, canvas, -120)
    assert (settled_map(report) == before).all()
    js(report, "document.querySelector('#map').focus()")
    focused = settled_map(report)
    wheel(report, canvas, -120)
    assert (settled_map(report) != focused).any()


@pytest.mark.parametrize("mode", ["box", "lasso"])
def test_dragging_selects_images(report, mode, folder):

    click(report, f"#map-mode [data-mode={mode}]")
    canvas = report.find_element("css selector", "#map")
    js(report, "arguments[0].scrollIntoView({block: 'center'})", canvas)
    width, height = canvas.size["width"], canvas.size["height"]
    drag = (
        actions(report, duration=20)
        .move_to_element_with_offset(canvas, -width // 2 + 8, -height // 2 + 8)
        .click_and_hold()
    )
    corners = (
        [(width - 70, 0), (0, height - 20), (-(width - 70), 0)] if mode == "lasso" else [(width - 20, height - 20)]
    )
    for dx, dy in corners:
        drag = drag.move_by_offset(dx, dy)
    drag.release().perform()
    chosen = int(text(report, "#selection h3").split()[0])
    assert chosen > 0.8 * N_IMAGES
    rows = downloaded(report, folder, "selection.csv", "#selection button")
    assert len(rows) == chosen


def test_colour_by_given_label_and_highlight(report):
    clusters = settled_map(report)
    js(
        report,
        "const s = document.querySelector('#color-by'); s.value = 'given';s.dispatchEvent(new Event('change'))",
    )
    labels = settled_map(report)
    assert (labels != clusters).any()
    assert js(report, "return document.querySelectorAll('#legend button').length") == 10
    click(report, "#legend button")
    assert (settled_map(report) != labels).any()
    assert js(report, "return document.querySelector('#legend button').getAttribute('aria-pressed')") == "true"


def test_spread_layout_gives_every_image_a_place_of_its_own(report):
    """In cells that do not overlap every image is found under the pointer somewhere."""
    canvas = report.find_element("css selector", "#map")
    box = js(
        report, "const b = arguments[0].getBoundingClientRect(); return [b.left, b.top, b.width, b.height]", canvas
    )
    seen = js(
        report,
        """
        const canvas = arguments[0], [left, top, width, height] = arguments[1], seen = new Set();
        for (let y = 2; y < height; y += 5) for (let x = 2; x < width; x += 5) {
          canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: left + x, clientY: top + y, pointerId: 99}));
          if (canvas.classList.contains("over-image")) seen.add(document.querySelector("#map-tip strong").textContent);
        }
        return [...seen].length
        """,
        canvas,
        box,
    )
    assert seen == N_IMAGES


def test_computed_layout_can_be_chosen(report):
    before = settled_map(report)
    js(
        report,
        "const s = document.querySelector('#layout'); s.value = 'computed'; s.dispatchEvent(new Event('change'))",
    )
    assert (settled_map(report) != before).mean() > 0.02
    assert not js(report, "return document.querySelector('#size-field').hidden")
    set_slider(report, "#map-size", 60)
    assert (settled_map(report) != before).any()


def test_keyboard_path(report):
    press(report, "TAB")
    assert js(report, "return document.activeElement.className") == "skip"
    press(report, "ENTER")
    for _ in range(12):
        press(report, "TAB")
        if js(report, "return document.activeElement.id") == "map":
            break
    assert js(report, "return document.activeElement.id") == "map"
    press(report, "ARROW_RIGHT")
    first = text(report, "#announcer")
    press(report, "ARROW_RIGHT")
    second = text(report, "#announcer")
    press(report, "ARROW_DOWN")
    assert first != second
    assert text(report, "#announcer") != second
    press(report, "ENTER")
    assert js(report, "return document.querySelector('#panel').classList.contains('is-open')")
    press(report, "SPACE")
    assert text(report, "#selection h3") == "1 image selected"
    before = settled_map(report)
    press(report, "+")
    assert (settled_map(report) != before).any()
    press(report, "0", "ESCAPE")
    assert js(report, "return document.querySelector('#selection').hidden")
    moved = settled_map(report)
    press(report, "+", "+")
    zoomed = settled_map(report)
    press(report, "ARROW_LEFT", shift=True)
    assert (settled_map(report) != zoomed).any()
    assert (zoomed != moved).any()


def test_arrow_keys_wander_widely(report):
    """Sixty random steps do not go round in a small circle; that every image is reachable is not shown here."""
    js(report, "document.querySelector('#map').focus()")
    keys = ["ARROW_RIGHT", "ARROW_DOWN", "ARROW_LEFT", "ARROW_UP"]
    seen = set()
    rng = np.random.default_rng(0)
    for key in rng.choice(keys, 60):
        press(report, str(key))
        seen.add(text(report, "#announcer"))
    assert len(seen) > 20


# One image


def test_reconstruction_grows_term_by_term_to_the_sum_of_shifted_atoms(report, data):
    shot = 20
    open_image(report, shot)
    rows = data.terms[shot][np.argsort(-np.abs(data.terms[shot][:, 3]), kind="stable")]
    for count in (0, 1, 3, len(rows)):
        set_slider(report, "#term-slider", count)
        total = np.zeros((8, 8))
        for atom, dy, dx, coefficient in rows[:count]:
            total += coefficient * np.roll(data.atoms[int(atom)], (int(dy), int(dx)), axis=(0, 1))
        expected = np.clip(255 * data.norms[shot] * total, 0, 255)
        drawn = pixels(report, "#rebuilt")
        positive = total > 0
        np.testing.assert_allclose(drawn[..., 0][positive], expected[positive], atol=2)
        assert text(report, "#panel-full figure:nth-child(2) figcaption").startswith(("all", str(count)))
    error = np.linalg.norm(data.images[shot] / 255 - data.norms[shot] * total) / np.linalg.norm(data.images[shot] / 255)
    assert text(report, "#panel-full figure:nth-child(3) figcaption") == f"{100 * error:.0f} % left over"


def test_play_runs_to_the_end(report):
    open_image(report, 3)
    click(report, "#play-terms")
    assert text(report, "#play-terms") == "Pause"
    wait(lambda: text(report, "#play-terms") == "Play", "the end of the growth")
    assert js(report, "const s = document.querySelector('#term-slider'); return s.value === s.max")


def test_neighbours_show_distance_and_alignment(report, data):
    open_image(report, 20)
    items = report.find_elements("css selector", ".neighbors li")
    assert len(items) == 5
    assert "lies on it as it is" in items[0].text
    for j, item in enumerate(items):
        name = data.names[data.neighbors[20, j]]
        assert name in item.text or data.neighbors[20, j] < len(HOSTILE_NAMES)
    js(report, "document.querySelector('.neighbors .thumb').click()")
    assert text(report, "#panel-heading") == data.names[data.neighbors[20, 0]]


def test_aligned_neighbour_is_the_graphs_own_motion(driver, folder):
    """Pixel for pixel, borders included."""
    images = np.uint8(np.random.default_rng(0).integers(0, 256, (3, 17, 23)))
    motion = (20.0, 1.2, 3.0, -4.0)
    changes = dict.fromkeys(("atoms", "terms", "norms", "true_labels")) | {
        "images": images,
        "names": ["a", "b", "c"],
        "labels": np.zeros(3, int),
        "duplicate_of": np.full(3, -1),
        "neighbors": np.array([[1], [0], [0]]),
        "neighbor_distances": np.ones((3, 1)),
        "alignments": np.tile(np.array(motion), (3, 1, 1)),
    }
    base = digits_report(30)
    rest = {name: getattr(base, name)[:3] for name in ("confidence", "outliers", "embedding")}
    open_report(driver, write_report(digits_report(30, **changes, **rest), folder / "aligned.html"))
    open_image(driver, 0)
    corners, shares = bilinear_table((17, 23), *motion)
    expected = (shares * images[1].ravel()[corners]).sum(axis=0).reshape(17, 23)
    np.testing.assert_allclose(pixels(driver, ".aligned")[..., 0], expected, atol=1)


# Atoms


def test_shift_slider_moves_the_drawing_around_its_circle(report, data):
    item = js(report, "return document.querySelector('.atom').id")
    atom = int(item.split("-")[1])
    canvas, slider = f"#{item} canvas", f"#{item} input"
    start = pixels(report, canvas)
    expected = 255 * data.atoms[atom] / np.abs(data.atoms[atom]).max()
    np.testing.assert_allclose(start[..., 0], expected, atol=2)
    for shift in (1, 5, 7):
        set_slider(report, slider, shift)
        np.testing.assert_array_equal(pixels(report, canvas), np.roll(start, shift, axis=1))
    assert text(report, f"#{item} .readout") == "1 px left"


def test_slider_works_by_keyboard_and_all_atoms_turn_together(report):
    js(report, "document.querySelector('.atom input').focus()")
    press(report, "ARROW_RIGHT", "ARROW_RIGHT")
    assert text(report, ".atom .readout") == "2 px right"
    set_slider(report, "#shift-all", 3)
    shifts = js(report, "return [...document.querySelectorAll('.atom .readout')].map(n => n.textContent)")
    assert set(shifts) == {"3 px right"}
    click(report, "#turn-all")
    wait(lambda: text(report, ".atom .readout") != "3 px right", "the atoms to turn")
    click(report, "#turn-all")


def test_a_term_leads_to_its_atom_at_its_shift(report, data):
    open_image(report, 20)
    atom, _, dx, _ = max(data.terms[20], key=lambda row: abs(row[3]))
    click(report, ".terms .link")
    assert js(report, "return document.activeElement.closest('.atom').id") == f"atom-{int(atom)}"
    assert js(report, "return document.activeElement.value") == str(int(dx))
