"""A picture of the pile comes back with distance 0, without motion and in its own cluster, on every path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.cli_helpers import read_csv
from helpers.self_consistency import PILES, disagreements, disagreements_on_command_line, unpack_pile
from tubal import ImageClusterer
from tubal.cli import run
from tubal.datasets import fetch, make_shifted_shapes


def write_pile(folder: Path, kind: str) -> None:
    """Write 30 pictures: colour in many sizes with some grey ones, grey with alpha, or floats of a wide range."""
    folder.mkdir()
    shapes = make_shifted_shapes(30, n_classes=3, image_shape=(16, 16), random_state=0).images
    for i, image in enumerate(shapes):
        grey = np.uint8(200 * np.clip(image, 0, 1) + 20)
        if kind == "alpha":
            Image.fromarray(np.stack([grey, np.uint8(255 * (image > 0.2))], axis=-1), "LA").save(folder / f"{i}.png")
        elif kind == "float":
            Image.fromarray((3 * image - 1 - i / 30).astype(np.float32)).save(folder / f"{i}.tif")
        else:
            color = np.stack([grey, 255 - grey, np.full_like(grey, 8 * i)], axis=-1)
            picture = Image.fromarray(grey if i % 7 == 0 else color)
            picture.resize((20 + i, 40 - i)).save(folder / f"{i}.{'jpg' if i % 2 else 'png'}")
    (folder / f"copy{next(folder.iterdir()).suffix}").write_bytes(next(folder.iterdir()).read_bytes())


@pytest.mark.parametrize("kind", ["colour", "alpha", "float"])
def test_results_find_their_own_pictures_again(kind: str, tmp_path: Path) -> None:
    write_pile(tmp_path / "pile", kind)
    assert disagreements_on_command_line(tmp_path / "pile", tmp_path / "out") == []


@pytest.mark.parametrize("options", ["--fit crop", "--crop content", "--preset paper", "--colour grey"])
def test_results_find_pictures_again_under_every_option(options: str, tmp_path: Path) -> None:
    write_pile(tmp_path / "pile", "colour")
    assert disagreements_on_command_line(tmp_path / "pile", tmp_path / "out", options.split()) == []


def test_float_pictures_keep_the_range_of_their_pile(tmp_path: Path) -> None:
    write_pile(tmp_path / "pile", "float")
    options = ["--preset", "paper"]
    assert disagreements_on_command_line(tmp_path / "pile", tmp_path / "out", options) == []


def test_part_of_an_array_keeps_the_range_of_the_whole(tmp_path: Path, rng: np.random.Generator) -> None:
    # Given a model of images whose values are not between 0 and 1
    images = rng.normal(size=(30, 8, 8)) + np.arange(30)[:, None, None]
    np.save(tmp_path / "all.npy", images)
    np.save(tmp_path / "some.npy", images[3:6])
    out = str(tmp_path / "out")
    assert run(["cluster", str(tmp_path / "all.npy"), "-k", "3", "--preset", "paper", "--out", out, "-q"]) == 0
    # When some of them are assigned
    assert run(["assign", str(tmp_path / "some.npy"), "-m", out, "-o", str(tmp_path / "found.csv"), "-q"]) == 0
    # Then they are recognised
    rows = read_csv(tmp_path / "found.csv")
    assert [row["nearest"] for row in rows] == ["all.npy#4", "all.npy#5", "all.npy#6"]
    assert {float(row["distance"]) for row in rows} == {0.0}


def test_near_copies_come_back_in_the_cluster_of_their_group(rng: np.random.Generator) -> None:
    shapes = make_shifted_shapes(30, n_classes=3, image_shape=(12, 12), random_state=0).images
    images = np.concatenate([shapes, shapes[:10], shapes[:10] + 0.002 * rng.random((10, 12, 12))]).clip(0, 1)
    model = ImageClusterer(3, random_state=0).fit(images)
    assert disagreements(model, images) == []
    assert (model.labels_[30:40] == model.labels_[:10]).all()


# Photographs take longest. More pictures of all ten piles are part of ``make torture``.
PHOTOGRAPHS = ("bccd", "flowers", "groceries", "signdigits")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in PHOTOGRAPHS else ()) for name in PILES]
)
def test_pictures_of_a_real_pile_come_back(name: str, tmp_path: Path) -> None:
    unpack_pile(name, tmp_path / "pile", 12)
    assert disagreements_on_command_line(tmp_path / "pile", tmp_path / "out") == []


def test_digits_come_back() -> None:
    images = fetch("digits").images[:120]
    assert disagreements(ImageClusterer(10, random_state=0).fit(images), images) == []
