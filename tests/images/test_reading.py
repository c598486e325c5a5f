"""Decoding many pictures; what an interrupted run has read is not read again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from helpers.cli_helpers import export
from tubal.datasets import load_images
from tubal.images import reading
from tubal.images.pictures import Frame, SecondLook, read_header
from tubal.images.reading import KeptPictures, PageStack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(np.random.default_rng(0).random((12, 9, 9)), tmp_path / "pictures")
    return tmp_path / "pictures"


def _kept(folder: Path, *, resume: bool) -> KeptPictures:
    return KeptPictures(folder.with_name("run.checkpoint.pictures"), resume=resume, every_seconds=0.0)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every decoded file is appended; the first run is interrupted at the eighth."""
    names: list[str] = []
    plain = reading.read_pages

    def counted(header, *frames):
        names.append(header.path.name)
        if len(names) >= 8 and "resumed" not in names:
            raise KeyboardInterrupt
        return plain(header, *frames)

    monkeypatch.setattr(reading, "read_pages", counted)
    return names


def _look(described: list[int]) -> SecondLook:
    def describe(pictures):
        described.append(len(pictures))
        return pictures.reshape(len(pictures), -1)[:, :5].astype(np.float32)

    return SecondLook(describe, 16, least_side=1, ready=lambda n_pictures: True, batch=2)


def test_a_resumed_run_decodes_only_the_pictures_that_are_missing(folder, decoded):
    with pytest.raises(KeyboardInterrupt):
        load_images(folder, n_threads=1, kept=_kept(folder, resume=False))
    decoded.append("resumed")
    resumed = load_images(folder, n_threads=1, kept=_kept(folder, resume=True))
    assert decoded[decoded.index("resumed") + 1 :] == [f"{number:04d}.png" for number in range(7, 12)]
    whole = load_images(folder)
    np.testing.assert_array_equal(resumed.images, whole.images)
    assert resumed.names == whole.names


def test_a_resumed_run_recalls_what_was_seen_at_a_larger_size(folder, decoded):
    with pytest.raises(KeyboardInterrupt):
        load_images(folder, n_threads=1, kept=_kept(folder, resume=False), look=_look([]))
    decoded.append("resumed")
    described: list[int] = []
    resumed = load_images(folder, n_threads=1, kept=_kept(folder, resume=True), look=_look(described))
    assert sum(described) == 6  # batches of two: the seventh picture was read, but not yet described
    np.testing.assert_array_equal(resumed.described, load_images(folder, look=_look([])).described)


def test_a_picture_that_changed_is_read_again(folder):
    load_images(folder, kept=_kept(folder, resume=False))
    export(np.ones((1, 9, 9)), folder)  # the first picture, all white
    first = sorted(folder.iterdir())[0]
    os.utime(first, ns=(1, 1))
    found = load_images(folder, kept=_kept(folder, resume=True))
    np.testing.assert_array_equal(found.images, load_images(folder).images)
    assert found.images[0].min() == 1.0


def test_a_picture_that_vanished_has_a_reason(folder):
    file = folder / "0003.png"
    header = read_header(file, max_pixels=1000)
    file.unlink()
    stack = PageStack.empty(1, Frame(9, 9, in_color=False), None)
    reasons = _kept(folder, resume=False).read_missing([str(file)], [header], stack)
    assert list(reasons) == [0]
    assert not stack.good.any()


def test_a_damaged_file_of_kept_pictures_is_ignored(folder):
    kept = _kept(folder, resume=False)
    whole = load_images(folder, kept=kept)
    for part in folder.with_name("run.checkpoint.pictures").glob("*.npz"):
        part.write_bytes(part.read_bytes()[:100])
    found = load_images(folder, kept=_kept(folder, resume=True))
    np.testing.assert_array_equal(found.images, whole.images)


def test_a_folder_of_the_user_is_not_used_for_kept_pictures(folder):
    place = folder.with_name("run.checkpoint.pictures")
    place.mkdir()
    (place / "holiday.png").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="was not made by tubal"):
        _kept(folder, resume=False)
    assert (place / "holiday.png").read_bytes() == b"mine"


def test_deleting_kept_pictures_removes_their_folder(folder):
    kept = _kept(folder, resume=False)
    load_images(folder, kept=kept)
    assert kept.exists()
    kept.delete()
    assert not folder.with_name("run.checkpoint.pictures").exists()
