"""Piles from packages: what is built, from pictures that the tests make themselves, and the page of scores."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tools import open_piles, piles


def draw(path: Path, shade: int, size: tuple[int, int] = (12, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGBA", size, (shade, 0, 0, 255)).save(path)


@pytest.fixture
def items_package(monkeypatch):
    """A package with 45 bottles, 20 gems and 3 hats instead of the real one."""

    def unpack(_, folder):
        for number in range(45):
            draw(folder / f"package/items/bottle/{number:02}.png", number)
        for number in range(20):
            draw(folder / f"package/items/gem/{number:02}.png", 255 - number, size=(10, 12))
        for number in range(3):
            draw(folder / f"package/items/hat/{number}.png", 200)
        return "sprites-1.tgz"

    monkeypatch.setattr(open_piles, "unpack", unpack)


def test_pile_has_a_folder_per_class_without_rare_classes(tmp_path, items_package):
    source = open_piles.build("items", tmp_path)
    assert sorted(path.name for path in (tmp_path / "items").iterdir()) == ["bottle", "gem"]
    assert len(list((tmp_path / "items" / "bottle").iterdir())) == 40
    assert source["archives"] == ["sprites-1.tgz"]


def test_pile_is_built_once(tmp_path, items_package, monkeypatch):
    first = open_piles.build("items", tmp_path / "one")
    second = open_piles.build("items", tmp_path / "two")
    monkeypatch.setattr(open_piles, "unpack", lambda *_: pytest.fail("it was downloaded again"))
    again = open_piles.build("items", tmp_path / "one")
    assert first == second == again


def test_changed_pixel_changes_the_hash(tmp_path, items_package, monkeypatch):
    before = open_piles.build("items", tmp_path / "one")["sha256"]
    original = open_piles.unpack

    def changed(package, folder):
        name = original(package, folder)
        draw(folder / "package/items/bottle/00.png", 255)
        return name

    monkeypatch.setattr(open_piles, "unpack", changed)
    assert open_piles.build("items", tmp_path / "two")["sha256"] != before


def test_glyph_is_cut_to_its_ink_and_missing_ones_are_left_out():
    matplotlib = pytest.importorskip("matplotlib", reason="needs the font that matplotlib brings")
    font = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    ink = np.argwhere(np.array(open_piles._glyph(font, "A")) < 128)
    shape = np.array(open_piles._glyph(font, "A")).shape
    assert ink.min(axis=0).tolist() == [4, 4]
    assert ink.max(axis=0).tolist() == [shape[0] - 5, shape[1] - 5]
    assert open_piles._glyph(font, "あ") is None


def test_failed_download_names_the_command(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "no such package\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match="npm pack --silent nothing@1 brought no archive: no such package"):
        open_piles.unpack(open_piles.Package("npm", "nothing", "1"), tmp_path)


def test_page_names_packages_and_numbers_of_clusters(tmp_path, items_package, monkeypatch):
    monkeypatch.setattr(open_piles, "RECIPES", {"items": open_piles.RECIPES["items"]})
    monkeypatch.setattr(piles, "METHODS", ("Ward, pixels",))
    monkeypatch.setattr(open_piles, "named_numbers", lambda pile, **_: [len(pile["images"]), 2])

    open_piles.run(tmp_path / "piles", tmp_path, cache=tmp_path / "read", n_seeds=1, jobs=1)

    page = (tmp_path / "open_piles.md").read_text(encoding="utf-8")
    summary = json.loads((tmp_path / "open_piles.json").read_text(encoding="utf-8"))
    assert "| items | 60 | icons of things, by sort, with transparency | 60, 2 (2) | `" in page
    assert "Packages: sprites-1.tgz." in page
    assert page == open_piles.page(summary)
