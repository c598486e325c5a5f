"""A small file that decodes to far too much gives one sentence, quickly and in little memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from helpers.bombs import read_in_child, shared_strip_tiff, write_bombs
from tubal.datasets import load_image_folder
from tubal.datasets.loading import load_images

Answers = dict[str, tuple[str, float, int]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    pytest.importorskip("tifffile")
    pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("bombs")
    write_bombs(folder)
    return read_in_child(folder)


@pytest.mark.parametrize(
    "name",
    [
        "shared-strip.tif",
        "many-pages.tif",
        "huge-tile.tif",
        "scans.jpg",
        "doubles.tif",
        "planes.tif",
        "zeros.npz",
        "sparse.h5",
    ],
)
def test_bomb_gives_one_sentence(answers: Answers, name: str) -> None:
    answer, seconds, size = answers[name]
    assert name in answer
    assert "--max-pixels" in answer
    assert seconds < 5.0
    assert size < 1 << 30


def test_array_is_not_larger_than_its_header_says(answers: Answers) -> None:
    answer, seconds, size = answers["lying.mat"]
    assert "lying.mat" in answer
    assert "more than its header says" in answer
    assert seconds < 5.0
    assert size < 1 << 28


def test_small_files_are_bounded_in_all(tmp_path: Path) -> None:
    for i in range(40):
        Image.new("L", (300, 300)).save(tmp_path / f"{i:02d}.png")
    stack = load_image_folder(tmp_path, max_pixels=100_000)
    assert 20 <= len(stack.images) < 40
    assert len(stack.images) + len(stack.skipped) == 40
    assert "--max-pixels" in stack.skipped[0][1]
    assert len(load_image_folder(tmp_path).images) == 40


def test_interrupt_stops_between_pages(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(shared_strip_tiff(pages=900, side=8))
    Image.new("L", (8, 8)).save(tmp_path / "b.png")
    read: list[int] = []

    def follow(done: int, total: int) -> None:
        if done:  # headers are not counted
            read.append(done)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_image_folder(tmp_path, n_threads=2, progress=follow)
    assert read == [1]


@pytest.mark.parametrize("raised", [False, True])
def test_max_pixels_raises_the_limits(tmp_path: Path, raised: bool) -> None:
    (tmp_path / "a.tif").write_bytes(shared_strip_tiff(pages=20, side=200))
    if raised:
        assert load_images(tmp_path / "a.tif", max_pixels=1_000_000).images.shape == (20, 32, 32)
    else:
        with pytest.raises(ValueError, match=r"a\.tif.*--max-pixels"):
            load_images(tmp_path / "a.tif", max_pixels=50_000)
