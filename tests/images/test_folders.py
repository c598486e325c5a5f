"""A folder of pictures becomes one stack, for all kinds of files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from PIL import Image

from helpers.mixed_folder import ODD_NAMES, build_mixed_folder, grey, png_bytes
from tubal.datasets import load_image_folder
from tubal.images.folders import ReadingOptions, load_pictures
from tubal.images.pictures import SecondLook


def test_equal_sizes_are_read_exactly(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pictures = [grey(rng) for _ in range(4)]
    for i, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    stack = load_image_folder(tmp_path)
    assert stack.images.dtype == np.float32
    assert_array_equal(stack.images, np.stack(pictures).astype(np.float32) / np.float32(255.0))
    assert "all 12×10 already" in stack.rule
    assert stack.target is None


@pytest.mark.parametrize("suffix", [".png", ".gif", ".bmp", ".pgm", ".tif", ".webp", ".jpg", ".PNG"])
def test_formats_give_the_same_picture(tmp_path: Path, suffix: str) -> None:
    ramp = np.tile(np.linspace(20, 230, 16).astype(np.uint8), (16, 1))
    lossless = {"lossless": True} if suffix == ".webp" else {"quality": 98} if suffix == ".jpg" else {}
    Image.fromarray(ramp).save(tmp_path / f"a{suffix}", **lossless)
    stack = load_image_folder(tmp_path)
    assert stack.images.shape == (1, 16, 16)
    assert_allclose(stack.images[0], ramp / 255.0, atol=0.02 if suffix == ".jpg" else 1e-6)


def test_mixed_sizes_get_the_median_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for i, (height, width) in enumerate([(100, 200), (100, 200), (50, 300)]):
        Image.fromarray(grey(rng, height, width)).save(tmp_path / f"{i}.png")
    assert load_image_folder(tmp_path).images.shape == (3, 16, 32)
    assert load_image_folder(tmp_path, size=64).images.shape == (3, 32, 64)
    assert load_image_folder(tmp_path, size=20).images.shape == (3, 10, 20)
    assert load_image_folder(tmp_path, size=(9, 7), fit="crop").images.shape == (3, 9, 7)


def test_pad_continues_the_ground_and_crop_cuts(tmp_path: Path) -> None:
    pixels = np.zeros((10, 20), dtype=np.uint8)
    pixels[0], pixels[-1] = 100, 200
    Image.fromarray(pixels).save(tmp_path / "a.png")
    padded = load_image_folder(tmp_path, size=(20, 20)).images[0] * 255
    border = np.concatenate([pixels[0], pixels[-1], pixels[1:-1, 0], pixels[1:-1, -1]])
    assert_allclose(padded[:5], np.median(border), atol=1e-4)
    assert_allclose(padded[5:15], pixels, atol=1e-4)
    assert_allclose(padded[15:], np.median(border), atol=1e-4)
    assert_allclose(load_image_folder(tmp_path, size=(6, 4), fit="crop").images[0, 2:4], 0, atol=1e-6)


@pytest.mark.parametrize(("suffix", "orientation"), [(".jpg", 6), (".png", 8), (".tif", 6), (".webp", 3)])
def test_exif_orientation_is_respected(tmp_path: Path, suffix: str, orientation: int) -> None:
    pixels = np.zeros((16, 32), dtype=np.uint8)
    pixels[:8, :16] = 255
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[274] = orientation
    image.save(tmp_path / f"a{suffix}", exif=exif, quality=95)
    shown = load_image_folder(tmp_path).images[0]
    expected = {6: np.rot90(pixels, -1), 8: np.rot90(pixels), 3: np.rot90(pixels, 2)}[orientation]
    assert shown.shape == expected.shape
    assert np.abs(shown - expected / 255.0).mean() < 0.05


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_sixteen_bits_are_kept(tmp_path: Path, suffix: str) -> None:
    deep = np.array([[0, 1, 300, 65535]], dtype=np.uint16).repeat(4, axis=0)
    Image.fromarray(deep).save(tmp_path / f"a{suffix}")
    assert_allclose(load_image_folder(tmp_path).images[0], deep / 65535.0, atol=1e-7)


def test_one_bit_palette_alpha_and_cmyk_pictures_are_converted(tmp_path: Path) -> None:
    Image.fromarray(np.eye(8, dtype=bool)).save(tmp_path / "bits.png")
    red = Image.new("RGB", (8, 8), (255, 0, 0))
    red.quantize(4).save(tmp_path / "palette.png")
    red.convert("CMYK").save(tmp_path / "cmyk.tif")
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    stack = load_image_folder(tmp_path, colour="rgb")
    pictures = dict(zip(stack.names, stack.images, strict=True))
    assert_allclose(pictures["bits.png"][..., 0], np.eye(8), atol=1e-6)
    assert_allclose(pictures["palette.png"][0, 0], [1, 0, 0], atol=0.01)
    assert_allclose(pictures["cmyk.tif"][0, 0], [1, 0, 0], atol=0.02)
    assert_allclose(pictures["clear.png"][0, 0], [1, 1, 1], atol=1e-6)


def test_stack_has_the_colour_mode_of_the_majority(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for i in range(3):
        Image.fromarray(grey(rng)).convert("RGB").save(tmp_path / f"grey{i}.png")
    assert load_image_folder(tmp_path).images.ndim == 3
    for i in range(4):
        Image.new("RGB", (10, 12), (250, 10, 40 * i)).save(tmp_path / f"red{i}.png")
    stack = load_image_folder(tmp_path)
    assert stack.images.shape == (7, 12, 10, 3)
    assert "in colour" in stack.rule
    assert load_image_folder(tmp_path, colour="grey").images.ndim == 3


def test_tiff_pages_are_separate_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    pages = [Image.fromarray(grey(rng)) for _ in range(5)]
    pages[0].save(tmp_path / "scan.tif", save_all=True, append_images=pages[1:])
    stack = load_image_folder(tmp_path)
    assert stack.names == [f"scan.tif#{i}" for i in range(1, 6)]
    assert_array_equal(stack.images[3], np.asarray(pages[3]) / np.float32(255))


def test_imagej_stack_and_float_tiff_are_read(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    rng = np.random.default_rng(4)
    deep = rng.integers(0, 65536, size=(6, 9, 8), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "imagej.tif", deep, imagej=True)
    assert_allclose(load_image_folder(tmp_path).images, deep / 65535.0, atol=1e-6)
    (tmp_path / "imagej.tif").unlink()
    doubles = rng.normal(size=(9, 8)) * 50
    tifffile.imwrite(tmp_path / "doubles.tif", doubles)
    shown = load_image_folder(tmp_path).images[0]
    assert_allclose(shown, (doubles - doubles.min()) / np.ptp(doubles), atol=1e-5)


@pytest.mark.parametrize("wild", [1e30, -1e30, 3e38])
def test_wild_float_does_not_flatten_the_others(tmp_path: Path, wild: float) -> None:
    values = np.random.default_rng(13).normal(50, 20, size=(5, 9, 8)).astype(np.float32)
    for i, page in enumerate(values):
        Image.fromarray(page).save(tmp_path / f"{i}.tif")
    alone = load_image_folder(tmp_path).images
    damaged = values[0].copy()
    damaged[4, 4] = wild
    Image.fromarray(damaged).save(tmp_path / "wild.tif")
    stack = load_image_folder(tmp_path)
    assert_allclose(stack.images[:5], alone, atol=1e-6)
    assert_allclose(alone, (values - values.min()) / np.ptp(values), atol=1e-6)
    assert np.isfinite(stack.images).all()


def test_too_large_floats_are_listed(tmp_path: Path) -> None:
    values = np.full((90, 90), 3e38, dtype=np.float32)
    values[::2] = -3e38
    Image.fromarray(values).save(tmp_path / "wild.tif")
    Image.fromarray(np.eye(90, dtype=np.float32)).save(tmp_path / "good.tif")
    stack = load_image_folder(tmp_path, size=64)
    assert np.isfinite(stack.images).all()
    assert stack.images.min() >= 0
    assert stack.images.max() <= 1
    assert stack.images[0].max() > 0.3
    assert {*stack.names, *(name for name, _ in stack.skipped)} == {"good.tif", "wild.tif"}


def test_folder_of_1000_mixed_pictures_is_read(tmp_path: Path) -> None:
    folder, bad = build_mixed_folder(tmp_path, n_images=1000)
    calls: list[tuple[int, int]] = []
    stack = load_image_folder(folder, progress=lambda done, total: calls.append((done, total)))
    links = {name for name, reason in stack.skipped if "link" in reason}
    assert {name for name, _ in stack.skipped} - links == bad | {"notes.txt"}
    assert stack.skipped[-1] == ("notes.txt", "not a picture")
    assert len(bad) == 20
    assert links == {"link to outside.png", "nested/link folder", "loop"}
    assert len(stack.images) == len(stack.names) == 1000
    assert not any("secret" in name for name in stack.names)
    assert set(ODD_NAMES) <= {Path(name).name for name in stack.names}
    assert np.isfinite(stack.images).all()
    assert stack.images.min() >= 0
    assert stack.images.max() <= 1
    assert calls == sorted(calls)
    assert len({total for _, total in calls}) == 1
    assert calls[-1][0] == calls[-1][1]
    again = load_image_folder(folder, n_threads=1)
    assert again.names == stack.names
    assert_array_equal(again.images, stack.images)


def test_planar_colour_tiff_is_read(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    planes = np.random.default_rng(11).random((3, 9, 8))
    tifffile.imwrite(tmp_path / "planar.tif", planes, photometric="rgb", planarconfig="separate")
    assert_allclose(load_image_folder(tmp_path).images[0], np.moveaxis(planes, 0, -1), atol=1e-6)


def test_mutated_files_are_skipped(tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    for i in range(160):
        suffix = [".png", ".jpg", ".gif", ".bmp", ".pgm", ".webp", ".tif"][i % 7]
        path = tmp_path / f"{i:03d}{suffix}"
        Image.fromarray(grey(rng)).save(path)
        body = bytearray(path.read_bytes())
        for _ in range(rng.integers(1, 6)):
            body[rng.integers(0, min(len(body), 120))] = rng.integers(0, 256)
        path.write_bytes(body[: rng.integers(1, len(body))] if i % 5 == 0 else body)
    (tmp_path / "good.png").write_bytes(png_bytes(grey(rng)))
    stack = load_image_folder(tmp_path)
    assert "good.png" in stack.names
    assert np.isfinite(stack.images).all()
    read = {name.split("#")[0] for name in stack.names}
    lost = {name.split("#")[0] for name, _ in stack.skipped}
    assert read | lost == {entry.name for entry in tmp_path.iterdir()}


def test_named_pipe_is_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "good.png").write_bytes(png_bytes(grey(np.random.default_rng(6))))
    stack = load_image_folder(tmp_path)
    assert stack.skipped == [("pipe.png", "not an ordinary file")]


def test_file_name_that_is_not_unicode_is_read(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.png"
    with open(raw, "wb") as stream:
        stream.write(png_bytes(grey(np.random.default_rng(7))))
    stack = load_image_folder(tmp_path)
    assert os.fsencode(stack.names[0]) == b"caf\xe9.png"


def test_sub_folders_become_targets(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    for name in ("cats", "dogs"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.png").write_bytes(png_bytes(grey(rng)))
    (tmp_path / "link").symlink_to(tmp_path / "data")
    stack = load_image_folder(tmp_path / "link")
    assert stack.names == ["cats/1.png", "dogs/1.png"]
    assert_array_equal(stack.target, ["cats", "dogs"])


def test_bad_folders_and_options_raise(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        load_image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no pictures in"):
        load_image_folder(tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        load_image_folder(tmp_path / "a.png")
    with pytest.raises(ValueError, match="1 file skipped"):
        load_image_folder(tmp_path)
    (tmp_path / "b.png").write_bytes(png_bytes(grey(np.random.default_rng(9))))
    for wrong in (
        {"size": 0},
        {"size": (1, 2, 3)},
        {"size": (8,)},
        {"colour": "blue"},
        {"fit": "stretch"},
        {"max_pixels": 0},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
            load_image_folder(tmp_path, **wrong)


def test_too_large_stack_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(png_bytes(grey(np.random.default_rng(10))))
    with pytest.raises(ValueError, match="GiB"):
        load_image_folder(tmp_path, size=(60_000, 60_000))


def test_pictures_are_described_at_a_larger_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(7):
        Image.fromarray(rng.integers(0, 256, (60 + i, 80, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    (tmp_path / "3.png").write_bytes(b"not a picture")
    shapes = []

    def describe(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        shapes.append(pictures.shape[1:])
        assert pictures.dtype == np.uint8
        return pictures.reshape(len(pictures), -1).mean(axis=1, keepdims=True).astype(np.float32)

    look = SecondLook(describe, 50, least_side=32, ready=lambda n: True, batch=2)
    stack = load_pictures([tmp_path], ReadingOptions(size=10, crop="none"), look)
    large = load_image_folder(tmp_path, size=(50, 50), crop="none")
    assert set(shapes) == {(50, 50, 3)}
    assert_allclose(stack.described[:, 0], 255 * large.images.mean(axis=(1, 2, 3)), atol=0.5)
    assert len(stack.described) == len(stack.images) == 6


@pytest.mark.parametrize("crop", ["none", "content"])
@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_a_second_look_changes_no_pixel(tmp_path: Path, suffix: str, crop: str) -> None:
    # A JPEG can be decoded at a fraction of its size, and the second look needs a larger one.
    rng = np.random.default_rng(0)
    for i in range(3):
        pixels = np.full((300, 400, 3), 255, dtype=np.uint8)
        pixels[40:250, 60:330] = rng.integers(0, 200, (210, 270, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}{suffix}")
    look = SecondLook(lambda pictures: np.ones((len(pictures), 1), np.float32), 200, least_side=1, ready=lambda n: True)
    stack = load_pictures([tmp_path], ReadingOptions(size=12, crop=crop), look)
    assert len(stack.described) == 3
    assert_array_equal(stack.images, load_image_folder(tmp_path, size=12, crop=crop).images)


@pytest.mark.parametrize(("least_side", "most"), [(61, 100), (10, 2)])
def test_small_or_very_many_pictures_are_not_described(tmp_path: Path, least_side: int, most: int) -> None:
    for i in range(3):
        Image.fromarray(np.full((60, 80), 40 * i, dtype=np.uint8)).save(tmp_path / f"{i}.png")
    look = SecondLook(
        lambda pictures: pytest.fail("it was called"), 50, least_side=least_side, ready=lambda n: n <= most
    )
    stack = load_pictures([tmp_path], ReadingOptions(size=10, crop="none"), look)
    assert stack.described is None
