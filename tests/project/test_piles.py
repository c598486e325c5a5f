"""The table of piles: reading, resuming and its page, on two small piles."""

from __future__ import annotations

import json
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image

from tools import piles
from tubal.datasets import make_shifted_shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One pile as a folder and one as a zip archive, of 24 pictures of three classes each."""
    root = tmp_path_factory.mktemp("piles")
    shapes = make_shifted_shapes(24, n_classes=3, image_shape=(20, 20), random_state=0)
    with ZipFile(root / "zipped.zip", "w") as archive:
        for index, (image, label) in enumerate(zip(shapes.images, shapes.target, strict=True)):
            file = root / "plain" / str(label) / f"{index}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.uint8(np.round(255 * image))).save(file)
            archive.write(file, f"zipped/{label}/{index}.png")
    return root


@pytest.fixture
def fast_methods(monkeypatch):
    monkeypatch.setattr(piles, "why_missing", lambda: "no network here")
    monkeypatch.setattr(piles, "METHODS", ("K-means, pixels", "Ward, pixels", "K-means, network", "tubal"))


def test_every_pile_and_method_is_on_the_page(tmp_path, folder, fast_methods):
    summary = piles.run(folder, tmp_path, cache=tmp_path / "cache", n_seeds=2)
    assert {(run["pile"], run["method"]) for run in summary["runs"]} == {
        (pile, method) for pile in ("plain", "zipped") for method in ("K-means, pixels", "Ward, pixels", "tubal")
    }
    page = (tmp_path / "piles.md").read_text()
    assert "| plain | 24 | 3 |" in page
    assert "no network here" in page


def test_finished_runs_are_not_repeated(tmp_path, folder, fast_methods, monkeypatch):
    first = piles.run(folder, tmp_path, cache=tmp_path / "cache", n_seeds=1)
    (tmp_path / "piles.jsonl").open("a").write('{"pile": "half a li')
    monkeypatch.setattr(piles, "run_one", lambda *_: pytest.fail("it ran again"))
    again = piles.run(folder, tmp_path, cache=tmp_path / "cache", n_seeds=1)
    assert again["runs"] == first["runs"]
    assert json.loads((tmp_path / "piles.json").read_text())["runs"] == first["runs"]


def test_pooled_features_are_those_before_square_roots():
    rng = np.random.default_rng(0)
    head = rng.random((4, piles.N_POOLED))
    roots = np.sqrt(head) / np.linalg.norm(np.sqrt(head), axis=1, keepdims=True) / 2**0.5
    described = np.concatenate([rng.random((4, piles.N_FEATURES - piles.N_POOLED)), roots], axis=1)
    pile = piles.Pile(images=np.zeros((4, 2, 2)), described=described, target=np.zeros(4, int))
    expected = head / np.linalg.norm(head, axis=1, keepdims=True)
    np.testing.assert_allclose(piles.pooled_of(pile), expected, atol=1e-6)


def test_empty_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="give the folder of the piles"):
        piles.run(tmp_path, tmp_path / "out", cache=tmp_path / "cache")


def test_collections_are_scored_with_the_default(tmp_path, monkeypatch):
    monkeypatch.setattr(piles, "why_missing", lambda: "no network here")
    found = piles.run_collections(tmp_path, cache=tmp_path / "cache", n_seeds=1, names=("digits",))
    assert [run["accuracy"] > 90.0 for run in found["runs"]] == [True]
    page = (tmp_path / "views.md").read_text()
    assert "| digits | 1797 | 10 | " in page
    assert "Left out: tubal with network: no network here." in page
