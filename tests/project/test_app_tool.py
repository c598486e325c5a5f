"""The measurement of ``tubal open`` on large piles."""

from __future__ import annotations

import numpy as np
import pytest

from tools import app
from tubal.storage.files import earlier_record


def test_synthetic_pictures_are_always_the_same():
    first, second = app.synthetic_pictures(30), app.synthetic_pictures(30)
    np.testing.assert_array_equal(first, second)
    assert first.shape == (30, app.SIDE, app.SIDE)
    assert 0.0 <= first.min() <= first.max() <= 1.0


def test_the_page_lists_what_was_measured():
    told = {"median": 0.25, "largest": 0.5, "bytes": 12_000}
    summary = {"answers": {"9 pictures": {"undo": told}}, "browser": {}, "versions": {"tubal": "1"}}
    page = app.page(summary)
    assert "| undo | 0.250 | 0.500 | 12 |" in page
    assert app.NO_BROWSER in page
    summary["browser"] = {"9 pictures": {"memory of the browser, MB": 321.4}}
    assert "| memory of the browser, MB | 321 |" in app.page(summary)


@pytest.mark.slow
def test_every_kind_of_answer_is_measured(tmp_path):
    app.make_results(tmp_path / "pile", 400)
    assert earlier_record(tmp_path / "pile")["images"] == 400
    found = app.measure_answers(tmp_path / "pile")
    assert len(found) == 15
    assert all(0.0 <= told["median"] <= told["largest"] for told in found.values())
