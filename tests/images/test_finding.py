"""Every file of a folder, an archive or a list is read, or listed with a reason."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image, features

from helpers.mixed_folder import grey, png_bytes
from tubal.datasets import load_image_folder
from tubal.datasets.loading import load_images

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100)


def picture(shade: int = 90, mode: str = "RGB") -> Image.Image:
    pixels = np.full((24, 16, 3), shade, dtype=np.uint8)
    pixels[:8, :8] = (250, 40, 10)
    return Image.fromarray(pixels).convert(mode)


def save_heic(path: Path) -> None:
    """Write the picture as telephones do; only where pillow-heif is installed."""
    import pillow_heif

    pillow_heif.from_pillow(picture()).save(path, quality=100)


def write_every_kind(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Fill a folder; return the names of the pictures that are read, and the reasons for the others."""
    (folder / "nested" / "größer 图").mkdir(parents=True)
    kinds = {
        "a.webp": {},
        "a.gif": {},
        "rgba.png": {"mode": "RGBA"},
        "palette.png": {"mode": "P"},
        "cmyk.jpg": {"mode": "CMYK"},
        "cmyk.tif": {"mode": "CMYK"},
        "nested/größer 图/naïve 🙂.png": {},
        "nested/upper.JPG": {},
    }
    for name, options in kinds.items():
        picture(**options).save(folder / name)
    Image.fromarray(grey(np.random.default_rng(0)).astype(np.uint16) * 257).save(folder / "deep.png")
    exif = picture().getexif()
    exif[274] = 6
    picture().save(folder / "turned.jpg", exif=exif)
    frames = [picture(shade) for shade in (10, 90, 200)]
    frames[0].save(folder / "animated.gif", save_all=True, append_images=frames[1:])
    (folder / "no suffix").write_bytes(png_bytes(grey(np.random.default_rng(1))))
    read = {*kinds, "deep.png", "turned.jpg", "animated.gif", "no suffix"}
    (folder / "phone.heic").write_bytes(HEIC)
    (folder / "drawing.svg").write_text("<svg/>")
    (folder / "layers.psd").write_bytes(b"8BPS" + bytes(50))
    (folder / "nested" / "camera.NEF").write_bytes(b"II*\0" + bytes(50))
    (folder / "broken.png").write_bytes(png_bytes(grey(np.random.default_rng(2)))[:50])
    (folder / "broken.avif").write_bytes(b"\0\0\0\x18ftypavif" + bytes(50))
    (folder / "notes.txt").write_text("BM is how this note begins")
    (folder / "more.zip").write_bytes(b"PK")
    (folder / ".hidden.png").write_bytes(b"x")
    reasons = {
        "phone.heic": "heif|damaged|known format",
        "drawing.svg": "SVG",
        "layers.psd": "PSD",
        "nested/camera.NEF": "NEF",
        "broken.png": "damaged",
        "broken.avif": "known format|damaged|AVIF",
        "notes.txt": "not a picture",
        "more.zip": "archive",
    }
    return read, reasons


def test_every_file_is_read_or_listed(tmp_path: Path) -> None:
    read, reasons = write_every_kind(tmp_path)
    if features.check("avif"):
        picture().save(tmp_path / "good.avif")
        read.add("good.avif")
    if importlib.util.find_spec("pillow_heif"):
        save_heic(tmp_path / "good.heic")
        read.add("good.heic")
    stack = load_image_folder(tmp_path)
    assert set(stack.names) == read
    listed = dict(stack.skipped)
    assert set(listed) == set(reasons)
    for name, words in reasons.items():
        assert any(word in listed[name] for word in words.split("|")), listed[name]
    assert f"{len(reasons)} skipped" in stack.rule


def test_a_folder_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "photos").mkdir()
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(ValueError, match="'photos' cannot be read: permission denied"):
        load_image_folder(tmp_path / "photos")


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "phone.heic").write_bytes(HEIC)
    with pytest.raises(ValueError, match=r"phone\.heic.*pip install pillow-heif"):
        load_images(tmp_path / "phone.heic")


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_avif_is_read(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.avif", quality=100)
    picture().save(tmp_path / "a.png")
    avif, png = load_image_folder(tmp_path).images
    assert np.abs(avif - png).mean() < 0.02


@pytest.mark.skipif(not importlib.util.find_spec("pillow_heif"), reason="pillow-heif is not installed")
def test_heic_is_read(tmp_path: Path) -> None:
    save_heic(tmp_path / "a.heic")
    picture().save(tmp_path / "a.png")
    heic, png = load_image_folder(tmp_path).images
    assert np.abs(heic - png).mean() < 0.02


def test_earlier_results_are_not_pictures(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    results = tmp_path / "results"
    (results / "clusters" / "0").mkdir(parents=True)
    picture().save(results / "clusters" / "0" / "a.png")
    assert load_image_folder(tmp_path).names == ["a.png", "results/clusters/0/a.png"]
    (results / "run.json").write_text(json.dumps({"settings": {}, "versions": {}}))
    stack = load_image_folder(tmp_path)
    assert stack.names == ["a.png"]
    assert stack.skipped == [("results", "results of an earlier run")]
    assert load_image_folder(results / "clusters").names == ["0/a.png"]


def make_archive(path: Path, members: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, body in members.items():
                archive.writestr(name, body)
        return path
    with tarfile.open(path, "w:" + {".gz": "gz", ".xz": "xz", ".bz2": "bz2"}.get(path.suffix, "")) as archive:
        for name, body in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return path


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2"])
def test_archive_is_read_like_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_every_kind(folder)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    members = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
    expected, stack = load_images(folder), load_images(make_archive(tmp_path / name, members))
    assert sorted(stack.names) == sorted(expected.names)
    order = [stack.names.index(name) for name in expected.names]
    assert_array_equal(stack.images[order], expected.images)
    assert sorted(stack.skipped) == sorted(expected.skipped)
    assert stack.files == [""] * len(stack.names)


@pytest.mark.parametrize("name", ["a.zip", "a.tar"])
def test_archive_writes_nothing_outside(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = png_bytes(grey(np.random.default_rng(3)))
    workspace = tmp_path / "deep" / "workspace"
    workspace.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(workspace))
    hostile = {"../../escape.png": good, str(tmp_path / "absolute.png"): good, "good.png": good}
    archive = make_archive(tmp_path / name, hostile)
    stack = load_images(archive)
    assert stack.names == ["good.png"]
    assert [reason for _, reason in stack.skipped] == ["its path leads out of the archive"] * 2
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == [name]


def test_links_in_archives_are_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        body = png_bytes(grey(np.random.default_rng(4)))
        member = tarfile.TarInfo("good.png")
        member.size = len(body)
        archive.addfile(member, io.BytesIO(body))
    stack = load_images(tmp_path / "a.tar")
    assert stack.skipped == [("link.png", "a link, not followed")]


@pytest.mark.parametrize("name", ["a.zip", "a.tar.xz"])
def test_archive_is_bounded(tmp_path: Path, name: str) -> None:
    members = {"good.png": png_bytes(grey(np.random.default_rng(5))), "zeros.pgm": bytes(1 << 22)}
    archive = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for member, body in members.items():
                file.writestr(member, body)
    else:
        make_archive(archive, members)
    with pytest.raises(ValueError, match=rf"{name}.*--max-pixels"):
        load_images(archive, max_pixels=100_000)
    assert load_images(archive).names == ["good.png"]


@pytest.mark.parametrize("body", [b"", b"not an archive", b"PK\x05\x06" + bytes(10), b"\x1f\x8b" + bytes(20)])
@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_damaged_archive_is_an_error(tmp_path: Path, name: str, body: bytes) -> None:
    (tmp_path / name).write_bytes(body)
    with pytest.raises(ValueError, match=name):
        load_images(tmp_path / name)


def test_several_sources(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        picture().save(tmp_path / folder / "a.png")
    make_archive(tmp_path / "three.zip", {"a.png": (tmp_path / "one" / "a.png").read_bytes()})
    picture().save(tmp_path / "b.png")
    sources = [tmp_path / "one", tmp_path / "two", tmp_path / "three.zip", tmp_path / "b.png", tmp_path / "one/a.png"]
    stack = load_images(sources)
    assert stack.names == ["one/a.png", "two/a.png", "three.zip/a.png", (tmp_path / "b.png").as_posix()]
    assert load_images([tmp_path / "one"]).names == ["a.png"]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_images([tmp_path / "one", tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="empty"):
        load_images([])
    np.save(tmp_path / "a.npy", np.zeros((3, 4, 4)))
    with pytest.raises(ValueError, match=r"a\.npy.*several"):
        load_images([tmp_path / "one", tmp_path / "a.npy"])


@pytest.mark.parametrize("separator", [b"\n", b"\r\n", b"\0"])
def test_paths_on_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separator: bytes) -> None:
    for name in ("a.png", "b c.png"):
        picture().save(tmp_path / name)
    lines = [os.fsencode(tmp_path / name) for name in ("b c.png", "missing.png", "a.png")]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(separator.join(lines) + separator)))
    stack = load_images("-")
    assert [Path(name).name for name in stack.names] == ["b c.png", "a.png"]
    assert stack.skipped == [((tmp_path / "missing.png").as_posix(), "no such file or directory")]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    with pytest.raises(ValueError, match="no path on standard input"):
        load_images("-")
