"""The report in a headless Chromium: the map, one image, the atoms."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from helpers.browser import (
    actions,
    choose,
    click,
    count,
    downloaded,
    each,
    js,
    map_pixels,
    open_image,
    open_report,
    pixels,
    press,
    set_slider,
    text,
    wait,
    wheel,
)
from helpers.digits_report import HOSTILE_NAMES, NO_OPTIONAL_PARTS, digits_report
from tubal.graph.affine import bilinear_table
from tubal.report import write_report
from tubal.report.page import relative_address

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def panel_is_open(driver) -> bool:
    return js(driver, "return document.querySelector('#panel').classList.contains('is-open')")


# The map


def test_map_draws_thumbnails_and_cluster_colors(report):
    picture = map_pixels(report)
    background = picture[2, 2]
    drawn = (np.abs(picture.astype(int) - background).max(axis=2) > 24).mean()
    assert drawn > 0.03
    assert len(np.unique(picture.reshape(-1, 4), axis=0)) > 200


def test_click_on_map_opens_panel(report):
    assert not panel_is_open(report)
    canvas = report.find_element("css selector", "#map")
    # Move from the middle to the right until an image is under the pointer.
    for offset in range(0, 300, 12):
        actions(report).move_to_element_with_offset(canvas, offset, 0).perform()
        if js(report, "return document.querySelector('#map').classList.contains('over-image')"):
            break
    assert text(report, "#map-tip").strip()
    actions(report).click().perform()
    wait(lambda: count(report, "#panel-full .terms li"), "the panel")
    assert text(report, "#panel-heading") != "Image"


def test_wheel_zooms_only_a_focused_map(report):
    canvas = report.find_element("css selector", "#map")
    before = map_pixels(report)
    wheel(report, canvas, -120)
    assert (map_pixels(report) == before).all()
    js(report, "document.querySelector('#map').focus()")
    focused = map_pixels(report)
    wheel(report, canvas, -120)
    assert (map_pixels(report) != focused).any()


@pytest.mark.parametrize("mode", ["box", "lasso"])
def test_dragging_selects_images(report, data, mode, folder):
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
    assert chosen > 0.8 * data.n_images
    rows = downloaded(report, folder, "selection.csv", "#selection button")
    assert len(rows) == chosen


def test_map_can_be_colored_by_label_and_show_one_label(report):
    clusters = map_pixels(report)
    choose(report, "#color-by", "given")
    labels = map_pixels(report)
    assert (labels != clusters).any()
    assert count(report, "#legend button") == 10
    click(report, "#legend button")
    assert (map_pixels(report) != labels).any()
    assert each(report, "#legend button", "n => n.getAttribute('aria-pressed')")[0] == "true"


def test_images_do_not_overlap_in_the_first_layout(report, data):
    """Every image can be found under the pointer."""
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
    assert seen == data.n_images


def test_exact_positions_can_be_chosen(report):
    before = map_pixels(report)
    choose(report, "#layout", "exact")
    assert (map_pixels(report) != before).mean() > 0.02
    assert not js(report, "return document.querySelector('#size-field').hidden")
    set_slider(report, "#map-size", 60)
    assert (map_pixels(report) != before).any()


@pytest.mark.parametrize("layout", ["spread", "exact"])
def test_plus_never_zooms_into_emptiness(driver, folder, layout):
    """Four groups in the corners: the middle of the map is empty."""
    rng = np.random.default_rng(0)
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])[np.arange(60) % 4]
    data = digits_report(60, embedding=corners + 0.05 * rng.normal(size=(60, 2)))
    open_report(driver, write_report(data, folder / "corners.html"))
    choose(driver, "#layout", layout)
    for _ in range(6):
        click(driver, "#zoom-in")
        picture = map_pixels(driver)[..., :3].astype(int)
        middle = picture[picture.shape[0] // 4 : -picture.shape[0] // 4, picture.shape[1] // 4 : -picture.shape[1] // 4]
        assert np.ptp(middle, axis=(0, 1)).max() > 100, "a picture is drawn near the middle"


def test_plus_zooms_towards_the_opened_image(report):
    open_image(report, 20)
    name = text(report, "#panel-heading")
    for _ in range(9):
        click(report, "#zoom-in")
    map_pixels(report)
    canvas = report.find_element("css selector", "#map")
    js(report, "arguments[0].scrollIntoView({block: 'center'})", canvas)
    actions(report).move_to_element(canvas).perform()
    assert text(report, "#map-tip strong") == name


def test_map_works_by_keyboard(report):
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
    assert panel_is_open(report)
    press(report, "SPACE")
    assert text(report, "#selection h3") == "1 image selected"
    before = map_pixels(report)
    press(report, "+")
    assert (map_pixels(report) != before).any()
    press(report, "0", "ESCAPE")
    assert js(report, "return document.querySelector('#selection').hidden")
    whole = map_pixels(report)
    press(report, "+", "+")
    zoomed = map_pixels(report)
    press(report, "ARROW_LEFT", shift=True)
    assert (map_pixels(report) != zoomed).any()
    assert (zoomed != whole).any()


def test_arrow_keys_reach_many_images(report):
    """Sixty random steps visit more than twenty images. That every image can be reached is not tested here."""
    js(report, "document.querySelector('#map').focus()")
    keys = ["ARROW_RIGHT", "ARROW_DOWN", "ARROW_LEFT", "ARROW_UP"]
    seen = set()
    for key in np.random.default_rng(0).choice(keys, 60):
        press(report, str(key))
        seen.add(text(report, "#announcer"))
    assert len(seen) > 20


# One image


def test_slider_adds_shifted_atoms_one_by_one(report, data):
    image = 20
    open_image(report, image)
    rows = data.terms[image][np.argsort(-np.abs(data.terms[image][:, 3]), kind="stable")]
    for n_terms in (0, 1, 3, len(rows)):
        set_slider(report, "#term-slider", n_terms)
        total = np.zeros((8, 8))
        for atom, dy, dx, coefficient in rows[:n_terms]:
            total += coefficient * np.roll(data.atoms[int(atom)], (int(dy), int(dx)), axis=(0, 1))
        expected = np.clip(255 * data.norms[image] * total, 0, 255)
        drawn = pixels(report, "#rebuilt")
        positive = total > 0
        np.testing.assert_allclose(drawn[..., 0][positive], expected[positive], atol=2)
        assert text(report, "#panel-full figure:nth-child(2) figcaption").startswith(("all", str(n_terms)))
    original = data.images[image] / 255
    left = np.square(original - data.norms[image] * total).sum() / np.square(original).sum()
    assert text(report, "#panel-full figure:nth-child(3) figcaption") == f"unexplained {100 * left:.1f} %"


def test_panel_shows_neighbors_above_atoms(report):
    open_image(report, 20)
    assert each(report, "#panel-full > section", "n => n.className") == ["near", "build"]


def test_panel_states_the_share_explained(driver, folder):
    share = np.linspace(0.7, 1.0, 30)
    open_report(driver, write_report(digits_report(30, explained=share), folder / "share.html"))
    open_image(driver, 12)
    assert f"All 8 terms together explain {100 * share[12]:.1f} % of it." in text(driver, ".build .hint")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (NO_OPTIONAL_PARTS, "made without atoms"),
        ({"terms": None}, "made without codes"),
        ({"terms": [np.empty((0, 4))] * 30}, "blank, or unlike every atom"),
    ],
    ids=["no atoms", "no codes", "no terms"],
)
def test_panel_says_why_there_are_no_terms(driver, folder, changes, sentence):
    open_report(driver, write_report(digits_report(30, **changes), folder / "no-terms.html"))
    open_image(driver, 3)
    assert sentence in text(driver, ".build")


def test_original_is_shown_where_it_lies_beside_the_page(driver, folder):
    place = folder / "photos <b>#1%?"
    place.mkdir()
    Image.fromarray(np.full((90, 120), 77, np.uint8)).save(place / "javascript: 'a' & \"b\".png")
    originals = [""] * 30
    originals[0] = relative_address(place / "javascript: 'a' & \"b\".png", folder)
    originals[1] = relative_address(place / "missing.png", folder)
    open_report(driver, write_report(digits_report(30, originals=originals), folder / "originals.html"))
    open_image(driver, 0)
    wait(lambda: count(driver, ".main-picture img"), "the original")
    assert js(driver, "return document.querySelector('.main-picture img').naturalWidth") == 120
    assert text(driver, ".main-picture figcaption") == "photos <b>#1%?/javascript: 'a' & \"b\".png"
    for image, shown in ((1, "photos <b>#1%?/missing.png"), (2, "digits/2/image 0002.png")):
        open_image(driver, image)
        map_pixels(driver)
        assert (count(driver, ".main-picture img"), count(driver, ".main-picture .tile")) == (0, 1)
        assert text(driver, ".main-picture figcaption") == shown
    driver.get_log("browser")


def test_play_adds_all_terms(report):
    open_image(report, 3)
    click(report, "#play-terms")
    assert text(report, "#play-terms") == "Pause"
    wait(lambda: text(report, "#play-terms") == "Play", "the last term")
    assert js(report, "const s = document.querySelector('#term-slider'); return s.value === s.max")


def test_neighbors_show_distance_and_alignment(report, data):
    open_image(report, 20)
    items = report.find_elements("css selector", ".neighbors li")
    assert len(items) == 5
    assert "matches without alignment" in items[0].text
    for j, item in enumerate(items):
        name = data.names[data.neighbors[20, j]]
        assert name in item.text or data.neighbors[20, j] < len(HOSTILE_NAMES)
    js(report, "document.querySelector('.neighbors .thumb').click()")
    assert text(report, "#panel-heading") == data.names[data.neighbors[20, 0]]


def test_aligned_neighbor_equals_that_of_the_graph(driver, folder):
    """Pixel for pixel, borders included."""
    images = np.uint8(np.random.default_rng(0).integers(0, 256, (3, 17, 23)))
    motion = (20.0, 1.2, 3.0, -4.0)
    changes = NO_OPTIONAL_PARTS | {
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


def test_unused_atoms_come_last_and_are_said_to_be_unused(driver, folder):
    base = digits_report(30)
    kept = [rows[np.isin(rows[:, 0], [3, 7, 11])] for rows in base.terms]
    open_report(driver, write_report(digits_report(30, terms=kept), folder / "unused.html"))
    used = each(driver, ".atom .atom-text span", "n => n.textContent")
    assert set(each(driver, ".atom", "n => n.id")[:3]) == {"atom-3", "atom-7", "atom-11"}
    assert all("of images" in line for line in used[:3])
    assert set(used[3:]) == {"no image uses this atom"}
    assert "17 atoms are used by no image" in text(driver, "#atoms-lead")


@pytest.mark.parametrize(("least", "every"), [(0.9, True), (0.001, False)])
def test_every_image_is_a_sum_of_atoms_only_where_that_is_true(driver, folder, least, every):
    share = np.linspace(least, 1.0, 30)
    open_report(driver, write_report(digits_report(30, explained=share), folder / "every.html"))
    assert ("Every image is" in text(driver, "#atoms-lead")) == every


def test_slider_shifts_an_atom_circularly(report, data):
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


def test_atoms_can_be_shifted_by_keyboard_and_all_together(report):
    js(report, "document.querySelector('.atom input').focus()")
    press(report, "ARROW_RIGHT", "ARROW_RIGHT")
    assert text(report, ".atom .readout") == "2 px right"
    set_slider(report, "#shift-all", 3)
    assert set(each(report, ".atom .readout", "n => n.textContent")) == {"3 px right"}
    click(report, "#animate-atoms")
    wait(lambda: text(report, ".atom .readout") != "3 px right", "the atoms to move")
    click(report, "#animate-atoms")


def test_term_links_to_its_shifted_atom(report, data):
    open_image(report, 20)
    atom, _, dx, _ = max(data.terms[20], key=lambda row: abs(row[3]))
    click(report, ".terms .link")
    assert js(report, "return document.activeElement.closest('.atom').id") == f"atom-{int(atom)}"
    assert js(report, "return document.activeElement.value") == str(int(dx))
