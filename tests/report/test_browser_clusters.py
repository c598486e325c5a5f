"""The report in a headless Chromium: galleries, renaming, merging, curves, labels."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.browser import (
    choose,
    click,
    count,
    downloaded,
    each,
    images_in,
    js,
    merge,
    open_image,
    open_report,
    pixels,
    press,
    rename,
    set_slider,
    show_all,
    text,
)
from helpers.digits_report import NO_OPTIONAL_PARTS, digits_report
from tubal.report import write_report
from tubal.report.page import typical_first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def confusion_counts(driver) -> np.ndarray:
    """Return the numbers in the table of labels (rows) and clusters (columns)."""
    cells = "row => [...row.querySelectorAll('td')].map(cell => Number(cell.textContent) || 0)"
    return np.array(each(driver, ".matrix tbody tr", cells))


def test_galleries_are_ordered_by_typicality(report, data):
    order = typical_first(data)
    show_all(report)
    for cluster in range(10):
        shown = images_in(report, f"#cluster-{cluster} .thumb")
        expected = order[data.labels[order] == cluster].tolist()
        assert sorted(shown) == sorted(expected)
        # The near-duplicates 5, 7 and 9 stand together, at the place of the most typical of them.
        assert [i for i in shown if i not in (5, 7, 9)] == [i for i in expected if i not in (5, 7, 9)]


def test_outliers_and_doubtful_images_are_marked(report, data):
    show_all(report)
    assert sorted(images_in(report, "#clusters .is-outlier")) == np.flatnonzero(data.outliers).tolist()
    doubtful = np.flatnonzero(~data.outliers & (data.confidence < 0.5))
    assert sorted(images_in(report, "#clusters .is-doubtful")) == doubtful.tolist()


def test_least_certain_images_have_lowest_confidence(driver, folder):
    data = digits_report(100, labels=np.zeros(100, int))
    open_report(driver, write_report(data, folder / "one_cluster.html"))
    shown = images_in(driver, "#cluster-0 .label + .thumbs .thumb")
    marked = np.flatnonzero(data.doubtful | data.outliers)
    assert shown == marked[np.argsort(data.confidence[marked], kind="stable")][:12].tolist()


def test_near_duplicates_are_adjacent(driver, folder):
    labels = np.zeros(60, int)
    open_report(driver, write_report(digits_report(60, labels=labels), folder / "duplicates.html"))
    show_all(driver)
    groups = each(driver, ".duplicates", "g => [...g.children].map(n => Number(n.dataset.image))")
    assert [sorted(group) for group in groups] == [[5, 7, 9]]


def test_renaming_changes_page_and_csv(report, folder, data):
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


def test_given_names_of_clusters_are_shown(driver, folder):
    named = digits_report(60, cluster_names={3: "<b>threes"})
    open_report(driver, write_report(named, folder / "named.html"))
    assert "<b>threes" in text(driver, "#legend")
    assert js(driver, "return document.querySelector('#name-3').value") == "<b>threes"


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
    assert count(report, ".matrix thead th") == 9
    rows = downloaded(report, folder, "labels-edited.csv", "#download")
    assert [int(row["cluster"]) for row in rows] == np.where(data.labels == 4, 1, data.labels).tolist()
    assert [int(row["cluster_found"]) for row in rows] == data.labels.tolist()
    # Cluster 4, merged into 1, follows it into 0.
    merge(report, 1, 0)
    assert text(report, "#cluster-0 .facts").startswith(f"{np.isin(data.labels, (0, 1, 4)).sum()} images")
    click(report, "#undo")
    click(report, "#undo")
    assert "10 clusters" in text(report, "#summary")
    assert js(report, "return document.querySelector('#undo').hidden")


def test_selected_images_can_be_moved_and_downloaded(report, folder, data):
    """A page in a file has no server: changes stay in it until they are downloaded."""
    images = images_in(report, "#cluster-2 .thumb")[:3]
    for image in images:
        script = "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', arguments[1]))"
        options = {"ctrlKey": True, "bubbles": True, "cancelable": True}
        js(report, script, f"#cluster-2 .thumb[data-image='{image}']", options)
    assert text(report, "#bar-count") == "3 selected"
    choose(report, "#bar-move", "new")
    assert "11 clusters" in text(report, "#summary")
    choose(report, "#bar-move", 0)
    assert "10 clusters" in text(report, "#summary")
    click(report, "#bar-clear")
    rows = downloaded(report, folder, "labels-edited.csv", "#download")
    expected = data.labels.copy()
    expected[images] = 0
    assert [int(row["cluster"]) for row in rows] == expected.tolist()
    click(report, "#undo")
    click(report, "#undo")
    assert text(report, "#cluster-2 .facts").startswith(f"{(data.labels == 2).sum()} images")
    click(report, "#redo")
    assert "11 clusters" in text(report, "#summary")


def test_selecting_in_a_gallery_does_not_move_it(report):
    js(report, "document.querySelector('#clusters-section').scrollIntoView()")
    place = "return document.querySelector('#clusters .thumb').getBoundingClientRect().top"
    before = js(report, place)
    press = "new MouseEvent('click', {ctrlKey: true, bubbles: true, cancelable: true})"
    js(report, f"document.querySelector('#clusters .thumb').dispatchEvent({press})")
    assert text(report, "#bar-count") == "1 selected"
    assert js(report, place) == pytest.approx(before, abs=1)
    click(report, "#bar-clear")
    assert js(report, place) == pytest.approx(before, abs=1)


def test_sampled_report_counts_all_images(driver, folder):
    data = digits_report(400)
    sizes = np.bincount(data.labels)
    open_report(driver, write_report(data, folder / "sampled.html", max_images=80))
    for cluster, size in enumerate(sizes):
        assert text(driver, f"#cluster-{cluster} .facts").startswith(f"{size} images")
    assert [int(number) for number in each(driver, "#legend .count", "n => n.textContent")] == sizes.tolist()
    counts = confusion_counts(driver)
    assert counts.sum(axis=1).tolist() == np.unique(data.true_labels, return_counts=True)[1].tolist()
    assert sorted(counts.sum(axis=0)) == sorted(sizes)
    doubtful = (~data.outliers & (data.confidence < 0.5)).sum()
    assert f"{doubtful} doubtful" in text(driver, "#summary")


# Learning, labels, provenance


def test_curves_labels_scores_and_settings_are_shown(report, data):
    assert count(report, "svg.chart .dot") == 24
    counts = confusion_counts(report)
    assert counts.sum(axis=1).tolist() == np.unique(data.true_labels, return_counts=True)[1].tolist()
    assert sorted(counts.sum(axis=0)) == sorted(np.bincount(data.labels))
    click(report, ".matrix td button")
    assert not js(report, "return document.querySelector('#selection').hidden")
    assert "79.3 %" in text(report, "#scores")
    assert "n atoms" in text(report, "#provenance")
    assert "sends nothing" in text(report, "#provenance-lead")


def test_sections_without_data_are_hidden(driver, folder):
    driver.get_log("browser")
    data = digits_report(40, **NO_OPTIONAL_PARTS)
    open_report(driver, write_report(data, folder / "bare.html"))
    hidden = js(driver, "return [...document.querySelectorAll('main > section')].filter(n => n.hidden).map(n => n.id)")
    assert hidden == ["learning-section", "confusion-section"]
    open_image(driver, 0)
    assert count(driver, ".neighbors li") == 5
    assert driver.get_log("browser") == []


def test_atoms_with_two_shift_directions_have_two_sliders(driver, folder):
    base = digits_report(40)
    terms = [np.c_[rows[:, 0], rows[:, 2], rows[:, 1:2] + 1, rows[:, 3]] for rows in base.terms]
    open_report(driver, write_report(digits_report(40, terms=terms), folder / "both.html"))
    assert js(driver, "return document.querySelectorAll('.atom')[0].querySelectorAll('input').length") == 2
    start = pixels(driver, ".atom canvas")
    set_slider(driver, ".atom input:nth-of-type(2)", 3)
    np.testing.assert_array_equal(pixels(driver, ".atom canvas"), np.roll(start, 3, axis=0))


@pytest.mark.parametrize(("n_iter", "n_charts"), [(2, 0), (3, 2)])
def test_short_learning_is_a_sentence_instead_of_a_curve(driver, folder, n_iter, n_charts):
    values = list(np.linspace(0.5, 0.4, n_iter + 1))
    data = digits_report(30, objective=values, sparsity=values, n_iterations=n_iter)
    open_report(driver, write_report(data, folder / "short.html"))
    assert count(driver, ".chart") == n_charts
    assert ("learned in only 2 iterations" in text(driver, "#learning-lead")) == (n_charts == 0)
