"""``tubal similar`` and ``ImageClusterer.similar`` give the same result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tubal
from helpers.cli_helpers import export
from tubal.cli import run
from tubal.datasets import load_images, make_shifted_shapes


@pytest.fixture(scope="module", params=[(preset, color) for preset in ("default", "paper") for color in (False, True)])
def clustered(request, tmp_path_factory):
    """A folder of 40 pictures, 10 more that the model was not fitted on, and the results folder of the model."""
    preset, color = request.param
    home = tmp_path_factory.mktemp("similar")
    images = make_shifted_shapes(50, n_classes=3, image_shape=(12, 12), random_state=0).images
    if color:
        images = np.stack([images, 0.5 * images, 1.0 - images], axis=-1)
    export(images[:40], home / "known")
    export(images[40:], home / "new")
    command = ["cluster", str(home / "known"), "-k", "3", "--preset", preset, "--out", str(home / "results"), "--quiet"]
    assert run(command) == 0
    return home


def from_command_line(picture: Path, results: Path, capsys) -> list[dict[str, float | str]]:
    assert run(["similar", str(picture), "--model", str(results), "--count", "4", "--json", "-q"]) == 0
    found: list[dict[str, float | str]] = json.loads(capsys.readouterr().out)["similar"]
    return found


@pytest.mark.parametrize("place", ["known/0007.png", "new/0003.png"])
def test_command_line_and_python_agree(clustered, place, capsys):
    # Given a model and a picture
    model = tubal.load(clustered / "results" / "model.tubal")
    picture = clustered / place
    # When its neighbours are computed in both ways
    shown = from_command_line(picture, clustered / "results", capsys)
    found = model.similar(load_images(picture).images, 4)
    distances, indices = model.kneighbors(load_images(picture).images, 4)
    # Then they agree
    assert [row["file"] for row in shown] == [model.file_names_[index] for index in found.indices[0]]
    assert [row["distance"] for row in shown] == pytest.approx(found.distances[0], abs=1e-6)
    assert (indices == found.indices).all()
    assert (distances == found.distances).all()
    if found.alignments is not None:
        for name in ("rotation", "scale", "dy", "dx"):
            assert [row[name] for row in shown] == pytest.approx(getattr(found.alignments, name)[0], abs=1e-3)


def test_training_picture_comes_first_without_motion(clustered, capsys):
    first = from_command_line(clustered / "known" / "0007.png", clustered / "results", capsys)[0]
    assert first["file"] == "0007.png"
    assert first["distance"] == 0.0
    motion = {name: first[name] for name in ("rotation", "scale", "dy", "dx") if name in first}
    assert motion in ({}, {"rotation": 0.0, "scale": 1.0, "dy": 0.0, "dx": 0.0})


@pytest.mark.parametrize(("command", "verb"), [("similar", "compared"), ("explain", "explained")])
def test_only_the_first_of_several_images_is_used(clustered, command, verb, tmp_path, capsys):
    out = ["--out", str(tmp_path / "terms.png")] if command == "explain" else []
    assert run([command, str(clustered / "new"), "--model", str(clustered / "results"), *out]) == 0
    assert f"10 images given; only the first, 0000.png, is {verb}" in " ".join(capsys.readouterr().err.split())
