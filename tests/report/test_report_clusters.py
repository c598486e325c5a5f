"""The report in a real headless Chromium: galleries, renaming, merging, curves, labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.browser import (
    chromium,
    click,
    downloaded,
    each,
    js,
    merge,
    open_image,
    open_report,
    pixels,
    prefer,
    press,
    rename,
    resize,
    set_slider,
    shots,
    text,
)
from helpers.digits_report import digits_report
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


def test_galleries_are_most_typical_first_with_marks(report, data):
    js(report, "document.querySelectorAll(\".show-all[aria-expanded='false']\").forEach(n => n.click())")
    for cluster in range(10):
        shown = shots(report, f"#cluster-{cluster} .thumb")
        assert sorted(shown) == np.flatnonzero(data.labels == cluster).tolist()
        alone = [s for s in shown if s not in (5, 7, 9)]
        order = [(bool(data.outliers[s]), -round(float(data.confidence[s]), 4)) for s in alone]
        assert order == sorted(order)
    marked = shots(report, "#clusters .is-outlier")
    assert sorted(marked) == np.flatnonzero(data.outliers).tolist()
    doubtful = shots(report, "#clusters .is-doubtful")
    assert sorted(doubtful) == np.flatnonzero(~data.outliers & (data.confidence < 0.5)).tolist()


def test_near_duplicates_stand_together(driver, folder):
    labels = np.zeros(60, int)
    open_report(driver, write_report(digits_report(60, labels=labels), folder / "duplicates.html"))
    js(driver, "document.querySelectorAll(\".show-all[aria-expanded='false']\").forEach(n => n.click())")
    groups = each(driver, ".duplicates", "g => [...g.children].map(n => Number(n.dataset.shot))")
    assert [sorted(group) for group in groups] == [[5, 7, 9]]


def test_renaming_changes_page_and_downloaded_csv(report, folder, data):
    rename(report, 3, 'six, "really" <b>')
    assert 'six, "really" <b>' in text(report, "#legend")
    assert "1 change" in text(report, "#edit-state")
    rows = downloaded(report, folder, "labels-edited.csv", "#download")
    for i, row in enumerate(rows):
        assert int(row["cluster"]) == int(row["cluster_found"]) == data.labels[i]
        assert row["cluster_name"] == ('six, "really" <b>' if data.labels[i] == 3 else f"Cluster {data.labels[i]}")
        assert row["outlier"] == ("true" if data.outliers[i] else "false")
        if "\udcff" not in data.names[i]:
            assert row["file"] == data.names[i]
    assert rows[7]["near_duplicate_of"] == data.names[5]


def test_renaming_by_keyboard(report):
    js(report, "const i = document.querySelector('#name-2'); i.focus(); i.select()")
    press(report, *"sevens", "ENTER")
    assert "sevens" in text(report, "#legend")


def test_merging_changes_page_and_csv_and_can_be_undone(report, folder, data):
    merge(report, 4, 1)
    assert js(report, "return document.querySelector('#cluster-4')") is None
    assert js(report, "return document.activeElement.id") == "name-1"
    assert "9 clusters" in text(report, "#summary")
    assert text(report, "#cluster-1 .facts").startswith(f"{np.isin(data.labels, (1, 4)).sum()} images")
    assert js(report, "return document.querySelectorAll('.matrix thead th').length") == 9
    rows = downloaded(report, folder, "labels-edited.csv", "#download")
    assert [int(row["cluster"]) for row in rows] == np.where(data.labels == 4, 1, data.labels).tolist()
    assert [int(row["cluster_found"]) for row in rows] == data.labels.tolist()
    # A merge into a cluster that is merged on keeps the whole chain together.
    merge(report, 1, 0)
    assert text(report, "#cluster-0 .facts").startswith(f"{np.isin(data.labels, (0, 1, 4)).sum()} images")
    click(report, "#undo")
    click(report, "#undo")
    assert "10 clusters" in text(report, "#summary")
    assert js(report, "return document.querySelector('#undo').hidden")


# Learning, labels, provenance


def test_curves_and_confusion_and_provenance(report, data):
    assert js(report, "return document.querySelectorAll('svg.chart .dot').length") == 24
    cells = "r => [...r.querySelectorAll('td')].map(c => Number(c.textContent) || 0)"
    counts = np.array(each(report, ".matrix tbody tr", cells))
    truth = np.unique(data.true_labels, return_counts=True)[1]
    assert counts.sum(axis=1).tolist() == truth.tolist()
    assert sorted(counts.sum(axis=0)) == sorted(np.bincount(data.labels))
    click(report, ".matrix td button")
    assert not js(report, "return document.querySelector('#selection').hidden")
    assert "79.3 %" in text(report, "#scores")
    assert "n atoms" in text(report, "#provenance")


def test_parts_without_data_are_absent(driver, folder):
    bare = {
        "alignments": None,
        "atoms": None,
        "terms": None,
        "norms": None,
        "true_labels": None,
        "scores": None,
    }
    driver.get_log("browser")
    data = digits_report(40, **bare, objective=(), sparsity=(), provenance={})
    open_report(driver, write_report(data, folder / "bare.html"))
    hidden = js(driver, "return [...document.querySelectorAll('main > section')].filter(n => n.hidden).map(n => n.id)")
    assert hidden == ["atoms-section", "learning-section", "confusion-section"]
    open_image(driver, 0)
    assert js(driver, "return document.querySelectorAll('.neighbors li').length") == 5
    assert driver.get_log("browser") == []


def test_two_way_shifts_have_two_sliders(driver, folder):
    base = digits_report(40)
    terms = [np.c_[rows[:, 0], rows[:, 2], rows[:, 1:2] + 1, rows[:, 3]] for rows in base.terms]
    open_report(driver, write_report(digits_report(40, terms=terms), folder / "both.html"))
    assert js(driver, "return document.querySelectorAll('.atom')[0].querySelectorAll('input').length") == 2
    start = pixels(driver, ".atom canvas")
    set_slider(driver, ".atom input:nth-of-type(2)", 3)
    np.testing.assert_array_equal(pixels(driver, ".atom canvas"), np.roll(start, 3, axis=0))
