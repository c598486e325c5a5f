"""``tubal cluster --views``: what pictures are compared by, with and without the network."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from helpers.cli_helpers import export, one_sentence
from tubal.backends import network
from tubal.cli import run
from tubal.datasets import make_shifted_shapes

pytest_plugins = ["helpers.cli_fixtures"]


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (8, 40, 40, 3), dtype=np.uint8)):
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def record_of(folder):
    return json.loads((folder / "run.json").read_text())


def test_missing_network_is_said_and_does_no_harm(pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(network, "WEIGHTS_PACKAGE", "a_package_that_is_not_there")
    reason = network.why_missing()  # names torch where that is missing too
    assert run(["cluster", str(pictures), "-k", "2", "-o", str(tmp_path / "out")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if reason in line]
    assert len(lines) == 1
    assert set(record_of(tmp_path / "out")["views"]) == {"shape", "colour", "texture"}


@pytest.mark.parametrize("views", ["nonsense", "auto,shape", "shape,", ""])
def test_unknown_views_end_with_2(pictures, tmp_path, views):
    assert run(["cluster", str(pictures), "--views", views, "-o", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(bool(network.why_missing()), reason=f"no network: {network.why_missing()}")
def test_pictures_are_shown_to_the_network_once(pictures, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert run(["cluster", str(pictures), "-k", "2", "-o", str(out)]) == 0
    first = record_of(out)
    assert set(first["views"]) == {"shape", "colour", "semantic", "layout"}
    monkeypatch.setattr(network, "describe_pictures", lambda pictures: pytest.fail("it looked again"))
    assert run(["cluster", str(pictures), "-k", "2", "-o", str(out), "--force"]) == 0
    assert record_of(out)["views"] == first["views"]
    assert record_of(out)["cluster_sizes"] == first["cluster_sizes"]


def test_tensors_of_a_gpu_pass_through_the_whole_command(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)  # the drawing of an explanation is written here

    def refuse(*_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    # A tensor on a GPU refuses to become an array by itself; here tensors on the CPU refuse it too.
    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    monkeypatch.setattr("tubal.backends.arrays.to_device", lambda array, device: torch.as_tensor(array))
    shapes = make_shifted_shapes(30, n_classes=3, image_shape=(12, 12), random_state=0)
    export(shapes.images, tmp_path / "pictures", shapes.target)
    arguments = ["cluster", str(tmp_path / "pictures"), "-k", "3", "-o", str(tmp_path / "out"), "-q"]
    assert run([*arguments, "--hints", "folders"]) == 0
    picture = str(next((tmp_path / "pictures").rglob("*.png")))
    for command in ("assign", "similar", "explain"):
        assert run([command, picture, "--model", str(tmp_path / "out")]) == 0, command


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--views", "shape,colour"], "cannot be compared by colour: the pictures are grey; give --views shape"),
        (["--views", "colour"], "the pictures are grey; give --views auto"),
        (["--views", "shape,texture", "--size", "6"], "at least 16×16 pixels, and these have 6×6"),
        (["--views", "shape,texture", "--preset", "paper"], "leave out one of them"),
    ],
)
def test_unsuited_view_is_named_and_leaves_nothing_behind(options, said, shapes, tmp_path, capsys):
    assert run(["cluster", str(shapes), "-q", "-o", str(tmp_path / "out"), *options]) == 2
    assert said in one_sentence(capsys)
    assert not list(tmp_path.iterdir())
