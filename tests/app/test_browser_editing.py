"""The live page in a headless Chromium: naming, moving, merging, splitting, history, search, duplicates, exports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.browser import (
    actions,
    choose,
    click,
    count,
    each,
    images_in,
    js,
    map_pixels,
    merge,
    prefer,
    press,
    rename,
    text,
    wait,
)
from helpers.live_page import (
    chord,
    held,
    journal,
    names_of,
    select,
    show_clusters,
    state,
    table,
    until_changed,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def changes(driver) -> int:
    return len(state(driver)["history"])


def last_act(server) -> str:
    return journal(server.results)[-1]["act"]


def largest(found, place: int = 0) -> int:
    """The label of a large cluster; 0 for the largest."""
    clusters = [cluster for cluster in found["clusters"] if cluster["label"] >= 0]
    return sorted(clusters, key=lambda cluster: -cluster["size"])[place]["label"]


def members(found, cluster: int) -> list[int]:
    return np.flatnonzero(found["labels"] == cluster).tolist()


def test_renamed_cluster_is_saved(live, server):
    found = state(live)
    cluster = largest(found)
    rename(live, cluster, "a <b>name</b>")
    after = until_changed(live, len(found["history"]))
    assert "a <b>name</b>" in last_act(server)
    assert set(names_of(after)[members(found, cluster)]) == {"a <b>name</b>"}
    assert "a <b>name</b>" in text(live, "#legend")


def test_merged_clusters_become_one(live, server):
    found = state(live)
    source, target = largest(found, 2), largest(found, 1)
    merge(live, source, target)
    after = until_changed(live, len(found["history"]))
    assert "merged into" in last_act(server)
    together = members(found, source) + members(found, target)
    assert len(set(after["labels"][together])) == 1
    assert len(after["clusters"]) == len(found["clusters"]) - 1
    assert count(live, "#clusters .card") == len(after["clusters"])


def test_split_is_shown_first_and_then_made(live, server):
    found = state(live)
    cluster = largest(found)
    click(live, f"#cluster-{cluster} .split-button")
    wait(lambda: count(live, ".split-preview"), "the two parts")
    sizes = [int(part.split()[2]) for part in each(live, ".split-preview .label", "n => n.textContent")]
    assert sum(sizes) == len(members(found, cluster))
    assert changes(live) == len(found["history"])
    click(live, ".split-now")
    after = until_changed(live, len(found["history"]))
    parts = np.unique(after["labels"][members(found, cluster)], return_counts=True)[1]
    assert sorted(parts) == sorted(sizes)


def test_images_dragged_to_a_card_move_there(live, server):
    found = state(live)
    cards = [int(label) for label in each(live, ".card", "n => n.dataset.cluster")]
    source, target = cards[0], cards[1]
    show_clusters(live, source)
    images = images_in(live, f"#cluster-{source} .thumb")[:2]
    held(live, "CONTROL", *(f"#cluster-{source} .thumb[data-image='{image}']" for image in images))
    card = live.find_element("css selector", f"#cluster-{target} .facts")
    thumb = live.find_element("css selector", f"#cluster-{source} .thumb[data-image='{images[0]}']")
    actions(live, duration=50).click_and_hold(thumb).move_by_offset(15, 5).move_to_element(card).release().perform()
    after = until_changed(live, len(found["history"]))
    assert set(after["labels"][images]) == {target}
    assert last_act(server).startswith("2 images moved to")
    assert text(live, "#bar-count") == "2 selected"


def test_image_dragged_to_the_bar_gets_a_cluster_of_its_own(live, server):
    found = state(live)
    source = largest(found)
    show_clusters(live, source)
    thumb = live.find_element("css selector", f"#cluster-{source} .thumb")
    image = int(thumb.get_attribute("data-image"))
    chain = actions(live, duration=50).click_and_hold(thumb).move_by_offset(15, 5)
    chain.perform()
    assert not js(live, "return document.querySelector('#drop-bar').hidden")
    target = live.find_element("css selector", "#drop-bar [data-drop=new]")
    actions(live, duration=50).move_to_element(target).release().perform()
    after = until_changed(live, len(found["history"]))
    assert (after["labels"] == after["labels"][image]).sum() >= 1
    assert after["labels"][image] not in found["labels"]
    assert not js(live, "return document.querySelector('#panel').classList.contains('is-open')")


def test_selected_images_can_be_dragged_off_the_map(live, server):
    found = state(live)
    js(live, "document.querySelector('#map').scrollIntoView({block: 'center'}); document.querySelector('#map').focus()")
    press(live, "ARROW_RIGHT", " ")
    image = images_in(live, "#selection .thumb")
    canvas = live.find_element("css selector", "#map")
    # The image under the keyboard is in the middle of the map when the map is zoomed in on it.
    for _ in range(14):
        press(live, "+")
    map_pixels(live)
    press_at = actions(live, duration=50).move_to_element(canvas).click_and_hold().move_by_offset(12, 4)
    press_at.perform()
    assert not js(live, "return document.querySelector('#drop-bar').hidden")
    target = live.find_element("css selector", "#drop-bar [data-drop=out]")
    actions(live, duration=50).move_to_element(target).release().perform()
    after = until_changed(live, len(found["history"]))
    assert after["labels"][image].tolist() == [-1]


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_splits_and_merges_move_only_if_the_reader_allows_motion(live, server, motion):
    prefer(live, reduced_motion=motion)
    found = state(live)
    cards = [int(label) for label in each(live, ".card", "n => n.dataset.cluster")]
    show_clusters(live, cards[1])
    js(
        live,
        "window.moved = 0; const animate = Element.prototype.animate;"
        "Element.prototype.animate = function (...a) { window.moved++; return animate.apply(this, a) }",
    )
    merge(live, cards[1], cards[0])
    after = until_changed(live, len(found["history"]))
    assert (js(live, "return window.moved") > 0) == (motion == "no-preference")
    # The focus is in the name of the merged cluster; Ctrl-Z still takes back the merge, not letters.
    assert js(live, "return document.activeElement.id") == f"name-{cards[0]}"
    chord(live, "CONTROL", "z")
    until_changed(live, len(after["history"]))


@pytest.mark.parametrize("mode", ["box", "lasso"])
def test_images_selected_on_the_map_get_a_name(live, server, mode):
    js(live, "scrollTo(0, 0)")
    found = state(live)
    click(live, f"#map-mode [data-mode={mode}]")
    canvas = live.find_element("css selector", "#map")
    js(live, "arguments[0].scrollIntoView({block: 'center'})", canvas)
    drag = actions(live, duration=30).move_to_element_with_offset(canvas, -60, -60).click_and_hold()
    corners = [(90, 0), (0, 90), (-90, 0)] if mode == "lasso" else [(90, 90)]
    for dx, dy in corners:
        drag = drag.move_by_offset(dx, dy)
    drag.release().perform()
    images = wait(lambda: images_in(live, "#selection .thumb"), "a selection")
    click(live, "#bar-name")
    press(live, *f"in a {mode}", "ENTER")
    after = until_changed(live, len(found["history"]))
    assert set(names_of(after)[images]) == {f"in a {mode}"}
    assert f"in a {mode}" in last_act(server)


def test_range_is_selected_with_shift_and_left_out(live, server):
    found = state(live)
    source = largest(found)
    show_clusters(live, source)
    images = images_in(live, f"#cluster-{source} .thumb")[:4]
    thumb = f"#cluster-{source} .thumb[data-image='{{}}']"
    held(live, "CONTROL", thumb.format(images[0]))
    held(live, "SHIFT", thumb.format(images[3]))
    assert text(live, "#bar-count") == "4 selected"
    click(live, "#bar-out")
    after = until_changed(live, len(found["history"]))
    newly = (after["labels"] == -1) & (found["labels"] != -1)
    assert np.flatnonzero(newly).tolist() == sorted(images)
    assert "Not these" in text(live, "#clusters")
    assert "left out" in last_act(server)


def test_selected_images_can_be_said_same_or_different(live, server):
    found = state(live)
    first, second = members(found, largest(found, 1))[0], members(found, largest(found, 3))[0]
    select(live, [first, second])
    click(live, "#bar-same")
    same = until_changed(live, len(found["history"]))
    assert same["labels"][first] == same["labels"][second]
    chord(live, "CONTROL", "z")
    undone = until_changed(live, len(same["history"]))
    click(live, "#bar-different")
    different = until_changed(live, len(undone["history"]))
    assert different["labels"][first] != different["labels"][second]
    kinds = [next(iter(entry)) for entry in journal(server.results)[-1]["entries"]]
    assert "different" in kinds


def test_slider_changes_the_number_of_clusters(live, server):
    found = state(live)
    js(live, "const s = document.querySelector('#k-slider'); s.focus()")
    press(live, "ARROW_RIGHT", "ARROW_RIGHT")
    after = until_changed(live, len(found["history"]))
    assert after["k"] == found["k"] + 2
    assert last_act(server) == f"{after['k']} clusters"
    assert text(live, "#k-value") == str(after["k"])
    assert js(live, "return document.activeElement.id") == "k-slider"


def test_everything_can_be_undone_and_done_again(live, server):
    found = state(live)
    rename(live, largest(found), "one more")
    before = until_changed(live, len(found["history"]))
    lines = len(journal(server.results))
    click(live, "#history-open")
    listed = each(live, "#history-list bdi", "n => n.textContent")
    assert listed == [item["text"] for item in reversed(before["history"])]
    click(live, "#history-close")
    for left in range(len(before["history"]), 0, -1):
        chord(live, "CONTROL", "z")
        until_changed(live, left)
    empty = state(live)
    assert not empty["canUndo"]
    assert set(names_of(empty)) == {""}
    assert js(live, "return document.querySelector('#undo').disabled")
    for done in range(len(before["history"])):
        chord(live, "CONTROL", "y")
        until_changed(live, done)
    again = state(live)
    assert again["labels"].tolist() == before["labels"].tolist()
    assert [c["name"] for c in again["clusters"]] == [c["name"] for c in before["clusters"]]
    # Undoing takes nothing away from the journal.
    assert len(journal(server.results)) == lines + 2 * len(before["history"])


def test_history_leads_back_to_an_earlier_change(live, server):
    found = state(live)
    for number in range(3):
        rename(live, largest(found), f"name {number}")
        until_changed(live, len(found["history"]) + number)
    click(live, "#history-open")
    click(live, "#history-list li:nth-child(3) button")
    wait(lambda: changes(live) == len(found["history"]) + 1, "the earlier state")
    assert "name 0" in names_of(state(live))
    assert "name 2" not in text(live, "#legend")


def test_panel_follows_a_change(live, server):
    """The clusters of the open image and of its neighbours are the present ones."""
    found = state(live)
    cluster = largest(found, 1)
    show_clusters(live, cluster)
    js(live, "document.querySelector(arguments[0]).click()", f"#cluster-{cluster} .thumb")
    wait(lambda: count(live, ".neighbors li"), "neighbours")
    rename(live, cluster, "seen in the panel")
    until_changed(live, len(found["history"]))
    assert "seen in the panel" in text(live, ".image-facts")
    assert "seen in the panel" in text(live, ".neighbors")
    assert count(live, ".main-picture :is(img, canvas)") == 1


def test_contradiction_is_one_sentence_and_changes_nothing(live, server):
    lines = len(journal(server.results))
    js(live, "document.querySelector('#provenance').scrollIntoView()")
    js(
        live,
        "document.querySelector('#k-slider').max = 999999; document.querySelector('#k-slider').value = 999999;"
        "document.querySelector('#k-slider').dispatchEvent(new Event('input'))",
    )
    sentence = wait(lambda: text(live, "#problem-text"), "a sentence")
    assert "not a number of clusters" in sentence
    top, bottom, height = js(
        live,
        "const { top, bottom } = document.querySelector('#problem').getBoundingClientRect();"
        "return [top, bottom, innerHeight]",
    )
    assert 0 <= top < bottom <= height  # the reader sees it, wherever on the page
    assert len(journal(server.results)) == lines
    live.get_log("browser")  # the browser itself notes the refused request
    click(live, "#problem-close")


def test_search_finds_files_and_names(live, server):
    js(live, "document.body.focus()")
    press(live, "/")
    assert js(live, "return document.activeElement.id") == "search"
    press(live, *"digit 012")
    wait(lambda: each(live, "#found h3", "n => n.textContent") == ["10 images found"], "ten files")
    click(live, "#select-found")
    assert text(live, "#bar-count") == "10 selected"
    click(live, "#search")
    press(live, "ESCAPE")
    assert js(live, "return document.querySelector('#found').hidden")


def test_clusters_can_be_sorted_by_doubt(live, server):
    choose(live, "#sort", "doubt")
    doubtful = {c["label"]: c["doubtful"] for c in state(live)["clusters"]}
    shown = [doubtful[int(label)] for label in each(live, ".card", "n => n.dataset.cluster") if int(label) >= 0]
    assert shown == sorted(shown, reverse=True)
    first = int(each(live, ".card", "n => n.dataset.cluster")[0])
    show_clusters(live, first)
    confidence = state(live)["confidence"][images_in(live, f"#cluster-{first} .thumb")]
    assert (np.diff(confidence) >= 0).all()


def test_best_of_near_duplicates_is_kept(live, server):
    found = state(live)
    js(live, "document.querySelector('#duplicates-section').scrollIntoView()")
    wait(lambda: count(live, ".duplicate-group"), "near-duplicates")
    groups = count(live, ".duplicate-group")
    kept, dropped = each(live, ".duplicate-group:first-child input", "n => [Number(n.value), n.checked]")[:2]
    if not kept[1]:
        kept, dropped = dropped, kept
    click(live, ".duplicate-group:first-child .keep")
    after = until_changed(live, len(found["history"]))
    assert after["labels"][dropped[0]] == -1
    assert after["labels"][kept[0]] != -1
    wait(lambda: count(live, ".duplicate-group") == groups - 1, "one group less")


def test_exports_are_written_into_the_results(live, server):
    found = state(live)
    click(live, "#export-open")
    written = {}
    for kind in ("csv", "folders", "coco"):
        click(live, f"#export-{kind}")
        wait(lambda kind=kind: "ritten" in text(live, "#export-status"), kind)
        path = Path(text(live, "#export-status bdi"))
        assert path.resolve().is_relative_to(server.results.resolve())
        written[kind] = path
        js(live, "document.querySelector('#export-status').textContent = ''")
    rows = table(written["csv"])
    assert len(rows) == (found["labels"] != -1).sum() or len(rows) == len(found["labels"])
    pictures = list(written["folders"].rglob("*.png"))
    assert len(pictures) == (found["labels"] != -1).sum()
    file = written["coco"] if written["coco"].is_file() else next(written["coco"].rglob("*.json"))
    assert {"images", "annotations", "categories"} <= set(json.loads(file.read_text(encoding="utf-8")))
