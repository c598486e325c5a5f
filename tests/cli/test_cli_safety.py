"""What a command must never do: delete, overwrite or mix up files of the user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.cli_helpers import RESULTS, one_sentence, read_csv
from tubal.cli import pipeline, run
from tubal.storage.files import reserve
from tubal.text import from_table_cell

pytest_plugins = ["helpers.cli_fixtures"]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- the source --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize(
    ("source", "out", "relation"),
    [
        ("photos", "photos", "is"),
        ("photos", "photos/new", "lies in"),
        ("photos", "link/new", "lies in"),
        ("link", "photos", "is"),
        ("photos", ".", "holds"),
        ("photos/class 1", "photos", "holds"),
        ("stack.npy", ".", "holds"),
    ],
)
def test_source_is_never_a_target(
    source: str,
    out: str,
    relation: str,
    force: list[str],
    shapes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(shapes, tmp_path / "photos")
    (tmp_path / "link").symlink_to("photos")
    (tmp_path / "stack.npy").write_bytes(b"never read")
    before = snapshot(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["cluster", source, "-k", "3", "--out", out, "--sort", "copy", "-q", *force]) == 2
    assert f"{out!r} {relation} the source {source!r}" in one_sentence(capsys)
    assert snapshot(tmp_path) == before


def test_sorted_pictures_can_be_clustered_elsewhere_only(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["cluster", str(shapes), "-k", "3", "--sort", "copy", "-q"]) == 0
    before = snapshot(tmp_path / "tubal-out")
    assert run(["cluster", "tubal-out/clusters", "-k", "3", "--force", "-q"]) == 2
    assert "holds the source" in one_sentence(capsys)
    assert snapshot(tmp_path / "tubal-out") == before


@pytest.mark.parametrize("command", ["fit", "encode", "assign", "explain"])
def test_pictures_and_models_are_not_replaced_by_a_result(
    command: str, shapes: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = shutil.copy(next((shapes / "class 1").iterdir()), tmp_path / "a.png")
    model = shutil.copy(results / "model.tubal", tmp_path / "model.tubal")
    before = snapshot(tmp_path)
    given = [] if command == "fit" else ["--model", str(model)]
    assert run([command, str(picture), "--out", str(picture), "--force", "-q", *given]) == 2
    assert "is the source" in one_sentence(capsys)
    if given:
        assert run([command, str(picture), "--out", str(model), "--force", "-q", *given]) == 2
        assert "is the model" in one_sentence(capsys)
    assert snapshot(tmp_path) == before


def test_picture_added_to_the_sorted_ones_is_not_deleted(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["cluster", str(shapes), "-k", "3", "--out", str(out), "--sort", "copy", "--force", "-q"]
    assert run(command) == 0
    assert run(command) == 0
    added = out / "clusters" / "cluster-1" / "my own.png"
    shutil.copy(next((shapes / "class 1").iterdir()), added)
    before = snapshot(out)
    assert run(command) == 2
    assert "my own.png' was not put there by tubal" in one_sentence(capsys)
    assert snapshot(out) == before


# --- checkpoints -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "place", ["res.checkpoint", "res.checkpoint/notes", "res.checkpoint.codes/notes", "res.checkpoint.later"]
)
@pytest.mark.parametrize("options", [[], ["--force"], ["--resume"]])
@pytest.mark.parametrize("command", ["cluster", "fit"])
def test_file_named_like_a_checkpoint_survives(
    command: str, options: list[str], place: str, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("mine")
    assert run([command, str(shapes), "-k", "3", "--out", str(tmp_path / "res"), "-q", *options]) == 2
    assert "move or rename it" in one_sentence(capsys)
    assert snapshot(tmp_path) == {place: b"mine"}
    assert not (tmp_path / "res").exists()


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_damaged_checkpoint_says_what_to_do(damage, shapes, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(pipeline.Terminal, "stage", stop_at("writing results", pipeline.Terminal.stage))
    command = ["cluster", str(shapes), "-k", "3", "--out", str(tmp_path / "res"), "-q"]
    assert run(command) == 130
    file = tmp_path / "res.checkpoint"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content[: len(content) // 2] if damage == "truncated" else content)
    capsys.readouterr()
    assert run([*command, "--resume"]) == 2
    sentence = one_sentence(capsys)
    assert "start again without --resume" in sentence
    assert str(file) in sentence
    file.unlink()
    monkeypatch.undo()
    assert run(command) == 0


def stop_at(name: str, stage):
    """Return what Terminal.stage is replaced by to press Ctrl-C at one stage."""

    def stop(terminal, stage_name):
        if stage_name == name:
            signal.raise_signal(signal.SIGINT)
        return stage(terminal, stage_name)

    return stop


def test_model_is_not_taken_for_a_checkpoint(
    shapes: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(results / "model.tubal", tmp_path / "res.checkpoint")
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(tmp_path / "res"), "-q"]) == 2
    assert "not a checkpoint" in one_sentence(capsys)
    assert (tmp_path / "res.checkpoint").read_bytes() == (results / "model.tubal").read_bytes()


# --- two runs ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("command", "out"), [("cluster", "out"), ("fit", "model.tubal"), ("demo", "out")])
def test_second_run_is_refused_at_once(
    command: str, out: str, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = [] if command == "demo" else [str(shapes)]
    with reserve(tmp_path / out):
        assert run([command, *source, "--out", str(tmp_path / out), "--force", "-q"]) == 2
    assert "another run" in one_sentence(capsys)
    assert not list(tmp_path.iterdir())


def test_results_are_put_beside_a_file_that_appeared(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    draw = pipeline._write_page

    def meanwhile(*arguments: object) -> None:
        draw(*arguments)  # type: ignore[arg-type]
        out.mkdir()
        (out / "labels.csv").write_text("mine")

    monkeypatch.setattr(pipeline, "_write_page", meanwhile)
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(out), "-q"]) == 2
    assert "out-2" in one_sentence(capsys)
    assert snapshot(out) == {"labels.csv": b"mine"}
    assert {file.name for file in (tmp_path / "out-2").iterdir()} == RESULTS
    assert len(read_csv(tmp_path / "out-2" / "labels.csv")) == 60


def test_model_is_put_beside_a_file_that_appeared(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.tubal"
    save = pipeline.save_model
    monkeypatch.setattr(
        pipeline, "save_model", lambda *given, **named: (model.write_text("mine"), save(*given, **named))
    )
    assert run(["fit", str(shapes), "--method", "tubsc", "--atoms", "2", "--out", str(model), "-q"]) == 2
    assert "model-2.tubal" in one_sentence(capsys)
    assert model.read_text() == "mine"
    assert (tmp_path / "model-2.tubal").exists()


# --- names and arguments -----------------------------------------------------------------------------------------
FORMULAS = ["=1+1.png", "+a.png", "-b.png", "@c.png", "'d.png", "'=e.png"]


def test_names_are_no_formulas_in_tables(
    shapes: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "pictures", tmp_path / "out"
    folder.mkdir()
    pictures = sorted(path for path in shapes.rglob("*.png") if path.name != "broken.png")
    for name, picture in zip(FORMULAS, pictures, strict=False):
        shutil.copy(picture, folder / name)
    (folder / "=broken.png").write_bytes(b"text")
    assert run(["cluster", str(folder), "-k", "2", "--out", str(out), "-q"]) == 0
    table = read_csv(out / "labels.csv")
    assert {row["file"][0] for row in table} == {"'"}
    assert {from_table_cell(row["file"]) for row in table} == set(FORMULAS)
    assert read_csv(out / "skipped.csv")[0]["file"] == "'=broken.png"
    # The table can be given back as labels.
    labels = str(out / "labels.csv")
    assert (
        run(["cluster", str(folder), "-k", "2", "--out", str(tmp_path / "b"), "--labels", labels, "-q", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["scores"]["labelled_images"] == len(FORMULAS)
    assert run(["assign", str(folder), "--model", str(out), "-q"]) == 0
    assert "\n'=1+1.png," in capsys.readouterr().out


def test_assign_does_not_steer_a_terminal(
    shapes: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").mkdir()
    shutil.copy(next((shapes / "class 1").iterdir()), tmp_path / "p" / "evil\x1b[2J.png")
    command = ["assign", str(tmp_path / "p"), "--model", str(results), "-q"]
    assert run(command) == 0
    assert "evil\x1b[2J.png" in capsys.readouterr().out  # a file or a pipe gets the true name
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(command) == 0
    assert "evil\\x1b[2J.png" in capsys.readouterr().out


def test_traceback_does_not_steer_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(tmp_path / "evil\x1b[2J"), "--debug"]) == 2
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "\x1b" not in printed


def test_sorting_loses_no_picture_of_the_same_name(tmp_path: Path) -> None:
    folder, out = tmp_path / "pictures", tmp_path / "out"
    folder.mkdir()
    rng = np.random.default_rng(0)
    pages = [Image.fromarray(rng.integers(0, 256, (12, 12), dtype=np.uint8)) for _ in range(8)]
    pages[0].save(folder / "a.tif", save_all=True, append_images=pages[1:6])
    pages[6].save(folder / "a.tif#1.png")
    pages[7].save(folder / "a.tif#2.png")
    assert run(["cluster", str(folder), "-k", "1", "--out", str(out), "--sort", "copy", "-q"]) == 0
    sorted_files = [path for path in (out / "clusters").rglob("*") if path.is_file()]
    assert len(sorted_files) == len(read_csv(out / "labels.csv")) == 8
    assert run(["cluster", str(folder), "-k", "1", "--out", str(out), "-q", "--sort", "copy", "--force"]) == 0
    for name in ("a.tif#1.png", "a.tif#2.png"):
        assert (out / "clusters" / "cluster-0" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["{stack}", "--sort", "link"], "use --sort copy"),
        (["{shapes}", "--labels", "{tmp}/none.csv"], "no file of labels"),
        (["{shapes}", "--labels", "{tmp}/others.csv"], "no image has a label in"),
    ],
)
def test_bad_arguments_are_refused_before_the_fit(
    options: list[str],
    sentence: str,
    shapes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "stack.npy", np.random.default_rng(0).random((9, 8, 8)))
    (tmp_path / "others.csv").write_text("file,label\nx.png,cat\n")
    monkeypatch.setattr(pipeline, "fit_clusterer", lambda *_: pytest.fail("the fit has started"))
    filled = [part.format(tmp=tmp_path, shapes=shapes, stack=tmp_path / "stack.npy") for part in options]
    assert run(["cluster", *filled, "-k", "3", "--out", str(tmp_path / "out"), "-q"]) == 2
    assert sentence in one_sentence(capsys)


def test_links_that_cannot_be_made_are_refused_before_the_fit(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    monkeypatch.setattr(pipeline, "fit_clusterer", lambda *_: pytest.fail("the fit has started"))
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(tmp_path / "out"), "--sort", "link", "-q"]) == 2
    assert "links cannot be made here" in one_sentence(capsys)


def test_limit_of_pixels_comes_with_the_command_to_raise_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p").mkdir()
    Image.new("L", (20, 10)).save(tmp_path / "p" / "large.png")
    asked = ["cluster", str(tmp_path / "p"), "--out", str(tmp_path / "out"), "--max-pixels", "100", "-q"]
    assert run(asked) == 2
    printed = one_sentence(capsys)
    assert "max_pixels" not in printed
    assert printed.endswith("--max-pixels 200\n")
