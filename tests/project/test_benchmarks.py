"""The record of the benchmarks: pages made from it alone, promises read from it and from nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import fits, report
from benchmarks.__main__ import SECTIONS

from tubal.experiments.pages import with_block

ROOT = Path(__file__).parents[2]


def test_the_readme_and_the_page_are_generated_from_the_committed_record():
    record = json.loads((ROOT / "results" / "bench.json").read_text(encoding="utf-8"))
    assert set(record["tables"]) == set(SECTIONS)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_block(text, "bench", report.readme_block(record)) == text
    titles = {name: section.title for name, section in SECTIONS.items()}
    assert (ROOT / "results" / "bench.md").read_text(encoding="utf-8") == report.markdown(record, titles)


def test_a_promise_that_one_figure_breaks_is_broken():
    rows = [
        {"problem": "orl, 200 images, float32", "ratio": 30.0, "wanted": 20.0},
        {"problem": "usps, graph weight 1", "ratio": 19.9, "wanted": 20.0},
    ]
    block = report.readme_block({"tables": {"sporco": rows}})
    assert "| orl: 30; usps, graph weight 1: 19.9 | at least 20 | **no** |" in block
    kept = report.readme_block({"tables": {"memory": [{"problem": "a", "peak in codes": 2.0, "at most": 2.0}]}})
    assert kept.endswith("| a: 2 | at most 2 | yes |")


def test_faster_to_a_worse_score_breaks_the_promise():
    row = {"ratio": 9.0, "wanted": 5.0, "dictionary learning's": "60.0 ± 2.0"}
    better = {**row, "problem": "orl", "K-means accuracy": "61.0 ± 1.0"}
    worse = {**row, "problem": "yale", "K-means accuracy": "59.0 ± 1.0"}
    early = {"problem": "orl, until better than the peer to its end", "ratio": 4.0}
    block = report.readme_block({"tables": {"dictionary learning": [better, early]}})
    assert "| orl: 9 | at least 5 | yes |" in block
    assert "orl: 4" not in block
    block = report.readme_block({"tables": {"dictionary learning": [better, worse]}})
    assert "| orl: 9; yale: 9 | at least 5 | **no** |" in block


def test_a_course_that_never_gets_better_is_shown_with_its_end():
    course = {1: (0.5, (50.0, 1.0)), 5: (1.0, (60.0, 1.0)), None: (4.0, (58.0, 1.0))}
    assert fits._first_better(course, 55.0) == 5
    assert fits._first_better(course, 40.0) == 1
    assert fits._first_better(course, 70.0) is None


def test_every_promise_belongs_to_a_section():
    assert {claim.section for claim in report.CLAIMS} <= set(SECTIONS)
