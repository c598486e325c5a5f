"""Writing files whole or not at all, and folders of results one run at a time."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tubal.storage import files
from tubal.storage.files import atomic_write, reserve, sha256_of, staged_folder


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def _contents(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _fill(stage: Path, text: str) -> None:
    for name in ("labels.csv", "model.tubal", "run.json"):
        (stage / name).write_text(text)


# --- one file ----------------------------------------------------------------------------------------------------
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
    assert _names(tmp_path) == {"note.txt"}


def test_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "ours") as stream:
        stream.write(b"1")
    (tmp_path / "theirs").write_bytes(b"1")
    assert _mode(tmp_path / "ours") == _mode(tmp_path / "theirs")
    assert sha256_of(tmp_path / "ours") == sha256_of(tmp_path / "theirs")


def test_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "model.tubal"
    target.write_bytes(b"old")
    target.chmod(0o600)
    with atomic_write(target) as stream:
        stream.write(b"new")
    assert target.read_bytes() == b"new"
    assert _mode(target) == 0o600


def test_temporary_file_of_a_killed_write_is_removed(tmp_path: Path) -> None:
    script = f"""
        import os, signal
        from tubal.storage.files import atomic_write
        with atomic_write({str(tmp_path / "note")!r}) as stream:
            stream.write(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert len(_names(tmp_path)) == 1
    (tmp_path / ".note.mine.part").write_text("of the user")
    with atomic_write(tmp_path / "note") as first, atomic_write(tmp_path / "note") as second:
        first.write(b"1")
        second.write(b"2")
    assert _names(tmp_path) == {"note", ".note.mine.part"}


# --- a folder of results -----------------------------------------------------------------------------------------
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
    assert _names(out.parent) == {"out"}


@pytest.mark.parametrize("own", ["kept/own", "own"])
@pytest.mark.parametrize("swap", [True, False])
def test_force_replaces_new_and_stale_entries(
    tmp_path: Path, own: str, swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not swap:
        monkeypatch.setattr(files, "_swap", lambda *_: False)
    out = tmp_path / "out"
    for name in ("folder/old", "stale/old", own):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("old")
    with pytest.raises(FileExistsError, match="--force"), staged_folder(out):
        pytest.fail("the block must not run")
    with staged_folder(out, force=True, stale=["stale", "never there"]) as stage:
        (stage / "folder").mkdir()
        (stage / "folder" / "new").write_text("new")
        (stage / "file").write_text("new")
    assert _contents(out) == {"folder/new": "new", "file": "new", own: "old"}
    assert _names(tmp_path) == {"out"}


def test_errors_are_raised_before_the_block_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="is a file"), staged_folder(tmp_path / "file"):
        pytest.fail("the block must not run")
    with pytest.raises(OSError, match="cannot write results"), staged_folder(tmp_path / "file" / "below"):
        pytest.fail("the block must not run")
    assert _names(tmp_path) == {"file"}


def test_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with staged_folder(out) as stage:
        _fill(stage, "first")
        with pytest.raises(BlockingIOError, match=f"process {os.getpid()}"), staged_folder(out, force=True):
            pytest.fail("the block must not run")
        with staged_folder(tmp_path / "other") as other:
            _fill(other, "other")
    assert set(_contents(out).values()) == {"first"}
    assert _names(tmp_path) == {"out", "other"}


@pytest.mark.parametrize("force", [False, True])
def test_file_that_appears_during_the_run_is_not_overwritten(tmp_path: Path, force: bool) -> None:
    out = tmp_path / "out"
    out.mkdir()
    if force:
        _fill(out, "old")

    def meanwhile() -> None:
        with staged_folder(out, force=force) as stage:
            _fill(stage, "new")
            (out / "labels.csv").write_text("mine, just now")

    with pytest.raises(FileExistsError, match=r"labels\.csv appeared or changed.*out-2"):
        meanwhile()
    assert _contents(out)["labels.csv"] == "mine, just now"
    assert set(_contents(tmp_path / "out-2").values()) == {"new"}
    assert _names(tmp_path) == {"out", "out-2"}


def test_unrelated_file_that_appears_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with staged_folder(out) as stage:
        _fill(stage, "new")
        out.mkdir()
        (out / "notes").write_text("mine")
    assert _contents(out)["notes"] == "mine"
    assert _contents(out)["run.json"] == "new"


def test_file_in_the_place_of_the_folder_is_not_overwritten(tmp_path: Path) -> None:
    def meanwhile() -> None:
        with staged_folder(tmp_path / "out", force=True) as stage:
            _fill(stage, "new")
            (tmp_path / "out").write_text("mine")

    with pytest.raises(FileExistsError, match="out-2"):
        meanwhile()
    assert (tmp_path / "out").read_text() == "mine"
    assert set(_contents(tmp_path / "out-2").values()) == {"new"}


@pytest.mark.parametrize("swap", [True, False])
def test_files_of_the_last_moment_are_kept(tmp_path: Path, swap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("run.json", "notes", "changed"):
        (out / name).write_text("old")
    exchange, really = files._exchange_folders, files._swap
    monkeypatch.setattr(files, "_swap", lambda *paths: swap and really(*paths))

    def late(hidden: Path, target: Path) -> None:
        (out / "labels.csv").write_text("late")
        (out / "appeared").write_text("late")
        (out / "changed").unlink()
        (out / "changed").write_text("late")
        exchange(hidden, target)

    monkeypatch.setattr(files, "_exchange_folders", late)
    with staged_folder(out, force=True) as stage:
        _fill(stage, "new")
    expected = {"labels.csv": "new", "model.tubal": "new", "run.json": "new", "notes": "old"}
    assert _contents(out) == expected | {"labels-2.csv": "late", "appeared": "late", "changed": "late"}
    assert _names(tmp_path) == {"out"}


def test_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    with staged_folder(tmp_path / "out") as stage:
        _fill(stage, "new")
    assert (tmp_path / "out").is_symlink()
    assert set(_contents(tmp_path / "real").values()) == {"new"}


def test_current_folder_is_filled_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.chdir(out)
    for text in ("first", "second"):
        with staged_folder(".", force=text == "second") as stage:
            _fill(stage, text)
        assert {Path(name).read_text() for name in os.listdir()} == {text}
    with pytest.raises(FileExistsError, match="the current folder holds files"), staged_folder("."):
        pytest.fail("the block must not run")


# --- modes and owners --------------------------------------------------------------------------------------------
def test_force_keeps_modes_and_owners(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    _fill(out, "old")
    (out / "model.tubal").chmod(0o600)
    if os.geteuid() == 0:
        os.chown(out, 1234, 5678)
        os.chown(out / "model.tubal", 1234, 5678)
    out.chmod(0o2750)
    before = [(path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in (out, out / "model.tubal")]
    with staged_folder(out, force=True) as stage:
        _fill(stage, "new")
    after = [(path.stat().st_mode, path.stat().st_uid, path.stat().st_gid) for path in (out, out / "model.tubal")]
    assert after == before
    assert set(_contents(out).values()) == {"new"}


@pytest.mark.parametrize(("parent", "expected"), [(0o700, 0o700), (0o755, 0o755), (0o2770, 0o2755)])
def test_new_folder_is_private_where_its_parent_is(tmp_path: Path, parent: int, expected: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(parent)
    former = os.umask(0o022)
    try:
        with staged_folder(home / "out") as stage:
            _fill(stage, "new")
            assert _mode(stage) & 0o077 == 0
    finally:
        os.umask(former)
    assert _mode(home / "out") == expected


def test_interrupted_cleaning_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, calls = tmp_path / "out", []
    out.mkdir()
    _fill(out, "old")
    remove = files._remove_folder

    def interrupted(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(folder)

    def replace() -> None:
        with staged_folder(out, force=True) as stage:
            monkeypatch.setattr(files, "_remove_folder", interrupted)
            _fill(stage, "new")

    with pytest.raises(KeyboardInterrupt):
        replace()
    assert _names(tmp_path) == {"out"}
    assert set(_contents(out).values()) == {"new"}


# --- kills -------------------------------------------------------------------------------------------------------
def _publish_until_killed(out: Path, number: int, how: str) -> None:
    """Replace the results in ``out``; the process is killed before its step ``number`` that changes the disk."""
    calls = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **keywords: object) -> object:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **keywords)

        return call

    if how == "inside":
        os.chdir(out)
    with staged_folder(out, force=True, stale=["clusters"]) as stage:
        _fill(stage, "new")
        for name in ("rename", "replace", "link", "rmdir", "unlink", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
        files._swap = counted(files._swap if how == "swap" else lambda *_: False)  # type: ignore[assignment]


@pytest.mark.parametrize("how", ["swap", "renames", "inside"])
def test_kill_leaves_old_or_new_results(tmp_path: Path, how: str) -> None:
    """Kill the exchange before every single step; the next run completes it or undoes it."""
    seen, results = set(), ("labels.csv", "model.tubal", "run.json")
    for number in range(1, 40):
        home = tmp_path / str(number)
        out = home / "out"
        (out / "clusters").mkdir(parents=True)
        _fill(out, "old")
        (out / "clusters" / "a").write_text("old")
        (out / "notes").write_text("mine")
        process = multiprocessing.get_context("fork").Process(target=_publish_until_killed, args=(out, number, how))
        process.start()
        process.join()
        if how == "swap":  # at every moment, without the help of a later run
            assert len({(out / name).read_text() for name in results}) == 1
        with reserve(home / "another"):
            pass
        assert not list(home.glob(".out.part/*"))
        found = _contents(out)
        assert found.pop("notes") == "mine"
        assert found in (dict.fromkeys((*results, "clusters/a"), "old"), dict.fromkeys(results, "new"))
        seen.add(found["run.json"])
        with reserve(out):
            pass
        assert _names(home) == {"out"}
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert process.exitcode == 0
    assert "new" in seen


def _plant(folder: Path, write: Callable[[Path], object]) -> Path:
    folder.mkdir()
    write(folder)
    return folder


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: (folder / "photo.png").write_text("mine"),
        lambda folder: (folder / "tubal.mark").write_text("no mark of ours"),
        lambda folder: (folder / "tubal.mark").write_text(json.dumps({"made_by": "another"})),
    ],
)
def test_hidden_folder_without_our_mark_is_not_touched(tmp_path: Path, write: Callable[[Path], object]) -> None:
    theirs = [_plant(tmp_path / name, write) for name in (".other.part", ".out.part")]
    before = [_contents(folder) for folder in theirs]
    if "tubal.mark" not in before[1]:
        with pytest.raises(OSError, match="not made by tubal"), staged_folder(tmp_path / "out"):
            pytest.fail("the block must not run")
    with staged_folder(tmp_path / "elsewhere") as stage:
        _fill(stage, "new")
    assert [_contents(folder) for folder in theirs] == before
