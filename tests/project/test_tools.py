"""The developers' tools: pages follow from the stored JSON, and the rule for the sparsity gives its setting."""

from __future__ import annotations

import doctest
import importlib
import inspect
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from test_docstrings import PUBLIC_MODULES

from benchmarks.__main__ import MEASUREMENTS
from benchmarks.pages import SECTIONS
from tools import density, render, scale_tables, site
from tools.sparsity_rule import choose_fraction, measure
from tubal.cli import COMMANDS, group
from tubal.experiments import table2

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


# --- render ----------------------------------------------------------------------------------------------------
PAGES = render.render_pages(RESULTS)


def test_every_result_has_a_page():
    results = {path.stem for path in RESULTS.glob("*.json")} - {"bench_quick"}  # made by `make bench`, not committed
    assert {path.stem for path in PAGES} == results | {"claims"}  # the claims are read from three of them


def test_every_figure_is_shown_on_a_page():
    shown = {name for text in PAGES.values() for name in re.findall(r"\(figures/([^)]+)\)", text)}
    assert {path.name for path in (RESULTS / "figures").iterdir()} <= shown


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_committed_page_equals_its_rendering(path):
    assert path.read_text(encoding="utf-8") == PAGES[path], "run python -m tools.render"


@pytest.mark.parametrize("name", render.BLOCKS)
def test_committed_blocks_equal_their_rendering(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert render.render_blocks(name, text, RESULTS) == text, "run python -m tools.render"


def test_readme_has_one_table_of_results_with_five_rows():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("<!-- summary:begin -->")[2].partition("<!-- summary:end -->")[0]
    assert len(block.strip().splitlines()) == 2 + 5
    assert text.count("±") == 0


def test_site_shows_every_page_of_results():
    shown = re.findall(r"^results/(\w+)$", (ROOT / "docs" / "results.md").read_text(encoding="utf-8"), re.MULTILINE)
    written = {path.stem for path in RESULTS.glob("*.md")} - {"gpu_notes"}  # these notes are part of the page gpu
    assert set(site.RESULTS) == set(shown) == written


def test_tables_of_scale_say_where_and_when_they_were_measured():
    first, second = {"cores": 2, "date": "2026-11-19", "commit": "abc1234"}, {"cores": 16, "date": "2026-11-18"}
    row = {"problem": "cells", "cold seconds": 2.0, "seconds": 1.0}
    sections = ("candidates", "candidates on many cores")
    tables = {section: [row] for section in sections}
    record = {"measured": dict(zip(sections, (first, second), strict=True)), "tables": tables}
    table = scale_tables.candidates_table(record)
    assert "| seconds | 2 cores | 16 cores |" in table
    assert table.endswith("\n\nMeasured on 2 cores, 2026-11-19, commit abc1234, and on 16 cores, 2026-11-18.")


def test_heads_of_scale_tables_follow_the_record():
    row = {"problem": "one process", "images": 300_000, "seconds": 1.0}
    record = {"measured": {"workers": {"cores": 4, "date": "2026-11-19"}}, "tables": {"workers": [row]}}
    assert scale_tables.workers_table(record).startswith("| 300 000 images, 4 cores |")


def rows_of_a_file(fixed, growing):
    """Yield three sizes: a search of ``fixed n + growing n^1.5`` seconds of a processor, and 9 ms an image more."""
    for n_images in (70_000, 200_000, 1_000_000):
        search = fixed * n_images + growing * n_images**1.5
        row = {"problem": f"{n_images} images", "images": n_images, "search processor seconds": search}
        yield {**row, "processor seconds": search + 9e-3 * n_images}


def extrapolated(fixed, growing):
    million = {"cores": 2, "date": "2026-11-19"}
    record = {"tables": {"million": list(rows_of_a_file(fixed, growing))}, "measured": {"million": million}}
    return scale_tables.extrapolated_table(record)


def test_extrapolation_separates_the_parts_of_the_search_and_the_work_of_the_client():
    table = extrapolated(2e-2, 1e-5)
    on_workers = "core-hours, 33 minutes on 1000 cores |"
    assert f"on the workers | n | 5.6 core-hours, 0.33 minutes on 1000 cores | 556 {on_workers}" in table
    assert "on the workers | n^1.5 | 2.8 core-hours, 0.17 minutes on 1000 cores | 2778 core-hours, 167 " in table
    assert "on the client | n | 2.5 core-hours, 9.4 minutes on 16 cores | 250 core-hours, " in table
    assert "24472 µs at 200 000 images and 30000 µs at 1 000 000 images for the search" in table
    assert "9000 µs at 1 000 000 images for everything else" in table
    assert "say how large both are" in table


@pytest.mark.parametrize(
    ("fixed", "growing", "rows"),
    [
        (-1e-3, 1e-5, ["| n | 0 core-hours", "| n^1.5 | 2.5 core-hours", "only the part that grows with n^1.5."]),
        (2e-2, -1e-5, ["| n | 2.8 core-hours", "| n^1.5 | 0 core-hours", "only the part that grows with n."]),
    ],
)
def test_no_part_of_the_search_is_negative(fixed, growing, rows):
    table = extrapolated(fixed, growing)
    assert [row for row in rows if row not in table] == []


def test_readme_has_at_most_800_words():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 800


def test_block_is_replaced_between_its_markers():
    text = "before\n<!-- beyond:begin -->\nold\n<!-- beyond:end -->\nafter\n"
    expected = "before\n<!-- beyond:begin -->\nnew\n<!-- beyond:end -->\nafter\n"
    assert render.replace_block(text, "beyond", "new") == expected


@pytest.mark.parametrize("text", ["no markers", "<!-- t:end --> <!-- t:begin -->", "<!-- t:begin -->"])
def test_block_needs_its_markers(text):
    with pytest.raises(ValueError, match="needs the lines <!-- t:begin --> and <!-- t:end -->"):
        render.replace_block(text, "t", "new")


def test_render_command_writes_what_differs(tmp_path):
    shutil.copy(RESULTS / "criterion.json", tmp_path)
    (tmp_path / "docs").mkdir()
    for name in render.BLOCKS:
        (tmp_path / name).write_text("nothing to replace\n")
    command = [sys.executable, "-m", "tools.render", "--results", str(tmp_path), "--root", str(tmp_path)]

    checked = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    missing = not (tmp_path / "criterion.md").exists()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    again = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, check=False)

    assert (checked.returncode, again.returncode) == (1, 0)
    assert "differs" in checked.stdout
    assert missing
    assert (tmp_path / "criterion.md").read_text() == PAGES[RESULTS / "criterion.md"]


def test_every_benchmark_has_a_section_on_the_page():
    page = (RESULTS / "bench.md").read_text(encoding="utf-8")
    assert set(SECTIONS) == set(MEASUREMENTS)
    assert [section["title"] for section in SECTIONS.values() if section["title"] not in page] == []


# --- site ------------------------------------------------------------------------------------------------------
def test_command_reference_has_every_option():
    text = "\n".join(site.command_reference())
    context = click.Context(group)
    for name in COMMANDS:
        section = text.partition(f".. program:: tubal {name}\n")[2].partition(".. program::")[0]
        for option in group.get_command(context, name).params:
            if isinstance(option, click.Option) and not option.hidden:
                assert f".. option:: {option.opts[0]}" in section, (name, option.opts)


def test_api_reference_has_every_public_name():
    pages = dict(site.api_pages())
    for module_name in PUBLIC_MODULES:
        module, listed = importlib.import_module(module_name), pages[f"{module_name}.rst"]
        for name in module.__all__:
            is_module = inspect.ismodule(getattr(module, name))
            assert is_module or f"   {name}\n" in listed or f"`{name} <" in listed, f"{module_name}.{name}"


def test_links_of_copied_pages_lead_to_pages_of_the_site():
    text = "[m](docs/models.md) [r](results/beyond.md) [e](examples/solvers.py) [w](https://a.example/b)"
    source = f"[m](models.md) [r](results/beyond.md) [e]({site.SOURCE}/examples/solvers.py) [w](https://a.example/b)"
    assert site.site_links(text) == source
    assert (
        site.site_links("[f](figures/a.png) [m](../docs/models.md)", "results")
        == "[f](figures/a.png) [m](../models.md)"
    )


# --- studies ---------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_sparsity_fraction_follows_from_the_rule():
    """On fewer images and candidates, the rule gives the fraction of the label-free rows."""
    fraction = choose_fraction(measure(n_images=150, candidates=(0.003, 0.03, 0.1)))
    assert fraction == table2.settings_for("label-free", "gtsc", "orl")["sparsity_fraction"]


def test_density_is_recorded_once_for_each_setting(monkeypatch):
    monkeypatch.setattr(density, "measure", fake_fit)
    study = {"subsets": {}, "fits": [], "versions": {}}
    settings = density.plan(["orl", "yale"], [0, 1])

    first = list(density.measure_missing(study, settings[:4], math.inf))
    again = list(density.measure_missing(study, settings, math.inf))

    assert len(first) + len(again) == len(study["fits"]) == len(settings) == len(set(settings))
    assert {fit["sparsity"] for fit in first} == {density.DEFAULT}
    page = density.page(study)
    assert "GTSC on ORL misses it (22 %; sparsity 0.15 meets it)." in page
    assert "| GTSC | 0.1 |  | 22.0 ± 1.4 | 4.0 ± 0.0 |  |  |" in page


def fake_fit(setting):
    dense = setting.model == "GTSC" and setting.dataset == "orl"
    share = (0.021 + 0.002 * setting.seed) / setting.sparsity if dense else 0.04
    measured = {"error": 0.1, "gap": 1e-4, "converged": True, "accuracy": 60.0, "seconds": 1.0}
    return {**setting._asdict(), "density": share, **measured}


@pytest.mark.parametrize(
    "name",
    [
        *("tools.render", "tools.criterion", "tools.sparsity_rule", "tools.claims", "tools.site", "tools.scale_tables"),
        *("benchmarks.pages", "benchmarks.scaling", "benchmarks.clustering"),
    ],
)
def test_docstring_examples_of_tools_pass(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
