"""The live page in a headless Chromium: questions and answers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.browser import click, count, each, js, map_pixels, press, set_value, text, wait
from helpers.live_page import (
    answer_by_typing,
    chord,
    doubt,
    journal,
    names_of,
    open_page,
    question,
    select,
    state,
    until_changed,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture
def truth(pile: SimpleNamespace, live: Any) -> np.ndarray:
    """The digit of each image, in the order of the page; copies are what their originals are."""
    names = js(live, "return JSON.parse(document.querySelector('#payload').textContent).names")
    return np.array([pile.labels[int(re.search(r"(\d{4})", Path(name).name)[1])] for name in names])


def undo_all(live: Any) -> None:
    while (found := state(live))["canUndo"]:
        click(live, "#undo")
        until_changed(live, len(found["history"]))


def test_typed_name_is_saved_and_the_pile_follows(live, server):
    file, before = question(live), doubt(live)
    found = answer_by_typing(live, "seven")
    entry = journal(server.results)[-1]["entries"][-1]
    assert (entry["name"], entry["files"]) == ("seven", [file])
    assert names_of(found).tolist().count("seven") > 50
    assert doubt(live) < before
    assert "seven" in text(live, "#legend")
    assert "seven" in each(live, "#clusters input.name", "n => n.value")
    assert "seven" in each(live, "#known-names option", "n => n.value")
    assert question(live) != file


def test_how_to_answer_is_said_until_a_likely_answer_has_a_name(live):
    undo_all(live)
    question(live)
    shown = "return [!document.querySelector('#ask-hint').hidden, document.querySelector('#ask-name').placeholder]"
    assert js(live, shown) == [True, "Its name…"]
    for _ in range(12):
        answer_by_typing(live, "seven")
        wait(lambda: question(live), "a question")
        if any(each(live, ".ask-label", "n => n.textContent === 'seven'")):
            break
    assert js(live, shown) == [False, "Another name…"]


def test_progress_is_the_same_when_the_page_is_loaded_again(live, server):
    answer_by_typing(live, "seven")
    share = "return document.querySelector('#doubt-bar span').style.width"
    before = js(live, share)
    assert float(before.rstrip("%")) > 0
    open_page(live, server.address)
    assert js(live, share) == before


def test_without_an_answer_no_number_of_wrong_names_is_said(live, server):
    answer_by_typing(live, "seven")
    undo_all(live)
    assert text(live, "#doubt-text") == "None of the 1,799 images has a name yet."


def test_the_asked_picture_covers_no_name_on_the_map(live, server):
    question(live)
    js(
        live,
        "const draw = CanvasRenderingContext2D.prototype.roundRect; window.boxes = [];"
        "CanvasRenderingContext2D.prototype.roundRect = function (x, y, width, height, radius) {"
        "  window.boxes.push([x, y, x + width, y + height, height, this.lineWidth]);"
        "  return draw.call(this, x, y, width, height, radius);"
        "}",
    )
    click(live, "#theme")
    map_pixels(live)
    boxes = js(live, "return window.boxes")
    click(live, "#theme")
    asked = [box for box in boxes if box[5] == 3 and box[4] > 30][-1]
    names = [box for box in boxes if box[4] == 20]
    assert len(names) > 5
    for left, top, right, bottom, *_ in names:
        assert right < asked[0] or left > asked[2] or bottom < asked[1] or top > asked[3]


def test_digit_key_answers_with_a_likely_name(live, server):
    answer_by_typing(live, "some digit")
    file = question(live)
    names = each(live, ".ask-label", "n => n.textContent")
    key = names.index("some digit") + 1
    before = len(state(live)["history"])
    js(live, "document.activeElement.blur()")
    press(live, str(key))
    until_changed(live, before)
    assert journal(server.results)[-1]["entries"][-1]["files"] == [file]
    assert js(live, "return document.activeElement.id") == "ask"


def test_key_of_an_unnamed_cluster_leaves_it_unnamed(live, server):
    wait(lambda: count(live, ".ask-choice"), "answers")
    names = each(live, ".ask-label", "n => n.textContent")
    place = next(i for i, name in enumerate(names) if name.startswith("Cluster "))
    before = state(live)
    click(live, f"#ask-{place + 1}")
    found = until_changed(live, len(before["history"]))
    assert len(found["clusters"]) == len(before["clusters"])
    assert names[place] in text(live, "#legend")


def test_skipped_question_is_not_asked_again(live, server):
    lines = len(journal(server.results))
    asked = [question(live)]
    for _ in range(2):
        click(live, "#ask-skip")
        wait(lambda: question(live) not in asked, "another question")
        asked.append(question(live))
    assert len(set(asked)) == 3
    assert len(journal(server.results)) == lines


def test_undone_answer_is_asked_again(live, server):
    file, before = question(live), state(live)
    after = answer_by_typing(live, "wrong answer")
    assert "wrong answer" in names_of(after)
    n_changes = len(after["history"])
    click(live, "#ask-undo")
    found = until_changed(live, n_changes)
    assert found["labels"].tolist() == before["labels"].tolist()
    assert "wrong answer" not in names_of(found)
    wait(lambda: question(live) == file, "the same question")


def test_answer_keeps_scroll_position_and_selection(live, server):
    js(live, "document.querySelector('#clusters-section').scrollIntoView()")
    wait(lambda: count(live, "#clusters .thumb") > 20, "thumbnails")
    images = each(live, "#clusters .thumb", "n => Number(n.dataset.image)")[:3]
    select(live, images)
    top = "return document.querySelector('#clusters').getBoundingClientRect().top"
    before = js(live, top)
    answer_by_typing(live, "another digit", scroll=False)
    assert js(live, top) == pytest.approx(before, abs=20)
    assert text(live, "#bar-count") == "3 selected"
    assert sorted(each(live, "#selection .thumb", "n => Number(n.dataset.image)")) == sorted(images)


def test_a_person_names_99_percent_of_the_digits_with_20_answers(live, truth):
    """The person answers while questions bring news, then names the pictures that are wrong in the same way."""
    while state(live)["canUndo"]:
        before = len(state(live)["history"])
        chord(live, "CONTROL", "z")
        until_changed(live, before)
    scores = []
    names = names_of(state(live))
    while len(scores) < 20 and np.mean(names == truth) < 0.99:
        image = js(live, "return Number(document.querySelector('#ask-picture').dataset.image)")
        if names[image] != truth[image]:
            found = answer_by_typing(live, truth[image])
        else:
            (_, digit), _ = Counter(zip(names[names != truth], truth[names != truth], strict=True)).most_common(1)[0]
            wrong = Counter(names[(names != truth) & (truth == digit)]).most_common(1)[0][0]
            select(live, np.flatnonzero((names == wrong) & (truth == digit)).tolist())
            before = len(state(live)["history"])
            set_value(live, "#bar-name", digit, "input")
            click(live, "#bar-say")
            found = until_changed(live, before)
        names = names_of(found)
        scores.append(float(np.mean(names == truth)))
    assert max(scores) >= 0.99, scores
