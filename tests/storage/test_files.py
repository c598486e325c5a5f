"""Writing files whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tubal.storage.files import atomic_write, sha256_of, staged_folder


def test_failed_write_keeps_the_old_file_only(tmp_path: Path) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old")

    def write_half() -> None:
        with atomic_write(target, "w", encoding="utf-8") as stream:
            stream.write("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["note.txt"]


def test_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "ours") as stream:
        stream.write(b"1")
    (tmp_path / "theirs").write_bytes(b"1")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode
    assert sha256_of(tmp_path / "ours") == sha256_of(tmp_path / "theirs")


@pytest.mark.parametrize("exists", [False, True])
def test_failed_folder_leaves_no_files(tmp_path: Path, exists: bool) -> None:
    out = tmp_path / "below" / "out"
    if exists:
        out.mkdir(parents=True)

    def fail() -> None:
        with staged_folder(out) as stage:
            (stage / "half").write_text("x")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert not (out / "half").exists()
    with staged_folder(out) as stage:
        (stage / "a").write_text("1")
        assert not (out / "a").exists()
    assert (out / "a").read_text() == "1"
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]


def test_force_replaces_new_and_stale_entries(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in ("folder/old", "stale/old", "kept/own"):
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text("old")
    with pytest.raises(FileExistsError, match="--force"), staged_folder(out):
        pytest.fail("the block must not run")
    with staged_folder(out, force=True, stale=["stale", "never there"]) as stage:
        (stage / "folder").mkdir()
        (stage / "folder" / "new").write_text("new")
        (stage / "file").write_text("new")
    found = {entry.relative_to(out).as_posix() for entry in out.rglob("*") if entry.is_file()}
    assert found == {"folder/new", "file", "kept/own"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_errors_are_raised_before_the_block_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="is a file"), staged_folder(tmp_path / "file"):
        pytest.fail("the block must not run")
    with pytest.raises(OSError, match="cannot write results"), staged_folder(tmp_path / "file" / "below"):
        pytest.fail("the block must not run")
