"""Pictures are cut to their content where that is clear, and padded with the colour of their border."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image, ImageDraw

from tubal.cli import run
from tubal.datasets import load_image_folder
from tubal.datasets.loading import load_images


def write_signs(folder: Path, *, ground: int = 255, ink: int = 0, alpha: bool = False, blur: bool = False) -> None:
    """Write the same cross at twelve places of pictures of 100×80."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(12):
        image = Image.new("L", (80, 100), ground)
        left, top = int(rng.integers(2, 46)), int(rng.integers(2, 66))
        draw = ImageDraw.Draw(image)
        draw.rectangle((left, top + 13, left + 31, top + 18), fill=ink)
        draw.rectangle((left + 13, top, left + 18, top + 31), fill=ink)
        if blur:
            pixels = np.asarray(image, dtype=np.float32)
            far = np.hypot(*np.meshgrid(np.arange(100) - top - 16, np.arange(80) - left - 16, indexing="ij"))
            image = Image.fromarray(np.uint8(np.minimum(pixels, np.clip(4 * far, 0, 255))))
        if alpha:
            layer = Image.new("RGBA", image.size, (0, 0, 0, 0))
            layer.putalpha(image.point(lambda value: 255 if value == ink else 0))
            image = layer
        image.save(folder / f"{i:02d}.png")


@pytest.mark.parametrize("kind", [{}, {"ground": 20, "ink": 240}, {"alpha": True}])
def test_clear_content_is_cut(tmp_path: Path, kind: dict[str, int]) -> None:
    write_signs(tmp_path / "signs", **kind)
    stack = load_image_folder(tmp_path / "signs", size=64)
    assert stack.crop == "content"
    assert "cut to their content" in stack.rule
    assert stack.images.shape[1:3] == (36, 36)  # 32 pixels of content, and a sixteenth on every side
    assert_array_equal(stack.images, np.repeat(stack.images[:1], 12, axis=0))
    margin = stack.images[0][:2]
    assert_array_equal(margin, np.full_like(margin, kind.get("ground", 255) / 255))
    assert load_image_folder(tmp_path / "signs").images.shape[1:3] == (32, 32)
    assert load_image_folder(tmp_path / "signs", crop="none").images.shape[1:3] == (32, 26)


def test_white_drawing_on_nothing_is_seen(tmp_path: Path) -> None:
    pixels = np.full((40, 40, 4), 255, dtype=np.uint8)
    pixels[..., 3] = 0
    pixels[10:30, 5:25, 3] = 255
    Image.fromarray(pixels).save(tmp_path / "white.png")
    Image.fromarray(np.zeros_like(pixels)).save(tmp_path / "clear.png")
    clear, white = load_image_folder(tmp_path, size=64, crop="none").images
    assert_array_equal(white, pixels[..., 3] / 255)
    assert_array_equal(clear, np.ones((40, 40)))


def test_soft_content_is_not_cut(tmp_path: Path) -> None:
    write_signs(tmp_path / "soft", blur=True)
    assert load_image_folder(tmp_path / "soft").crop == "none"
    assert load_image_folder(tmp_path / "soft", crop="content").crop == "content"


def test_photographs_are_not_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for i in range(5):
        Image.fromarray(rng.integers(0, 256, size=(30, 40, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    assert load_image_folder(tmp_path).crop == "none"


def test_shapes_keep_their_aspect(tmp_path: Path) -> None:
    for i, (width, height) in enumerate([(20, 40), (40, 20), (40, 40)]):
        image = Image.new("RGB", (100, 100), (200, 220, 90))
        ImageDraw.Draw(image).rectangle((7 * i, 5, 7 * i + width - 1, 5 + height - 1), fill=(10, 20, 30))
        image.save(tmp_path / f"{i}.png")
    stack = load_image_folder(tmp_path, size=45)
    dark = stack.images[..., 0] < 0.4
    boxes = [(mask.any(axis=1).sum(), mask.any(axis=0).sum()) for mask in dark]
    assert boxes == [(40, 20), (20, 40), (40, 40)]
    assert_allclose(stack.images[0, 0, 0] * 255, (200, 220, 90), atol=1e-3)


def test_array_files_are_cut_only_on_demand(tmp_path: Path) -> None:
    write_signs(tmp_path / "signs")
    pictures = [np.asarray(Image.open(file)) for file in sorted((tmp_path / "signs").iterdir())]
    np.save(tmp_path / "signs.npy", np.stack(pictures))
    assert load_images(tmp_path / "signs.npy", size=(100, 80)).crop == "none"
    cut = load_images(tmp_path / "signs.npy", size=(36, 36), crop="content")
    assert_allclose(cut.images, load_images(tmp_path / "signs", size=64).images, atol=1e-6)


def test_blank_picture_is_not_cut(tmp_path: Path) -> None:
    write_signs(tmp_path / "signs")
    Image.new("L", (80, 100), 255).save(tmp_path / "signs" / "blank.png")
    stack = load_image_folder(tmp_path / "signs")
    assert stack.crop == "content"
    assert_array_equal(stack.images[stack.names.index("blank.png")], np.ones((32, 32)))


def test_one_picture_reads_like_its_folder(tmp_path: Path) -> None:
    write_signs(tmp_path / "signs")
    rng = np.random.default_rng(2)
    colored = rng.integers(0, 256, size=(80, 60, 3), dtype=np.uint8)
    Image.fromarray(colored).save(tmp_path / "signs" / "photo.png")
    stack = load_image_folder(tmp_path / "signs")
    assert stack.images.ndim == 3  # one picture in colour among twelve
    for name, image in zip(stack.names, stack.images, strict=True):
        alone = load_images(tmp_path / "signs" / name, size=image.shape, colour="grey", crop=stack.crop)
        assert_array_equal(alone.images[0], image)


def test_model_remembers_the_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_signs(tmp_path / "signs")
    out = tmp_path / "out"
    assert run(["cluster", str(tmp_path / "signs"), "-k", "1", "-o", str(out)]) == 0
    assert "cut to their content" in capsys.readouterr().err
    assert run(["assign", str(tmp_path / "signs" / "00.png"), "-m", str(out)]) == 0
    assert "cut to" in capsys.readouterr().err
