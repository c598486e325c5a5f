"""Exports: other programs can read them, no picture is ever lost, and a move can be undone at any moment."""

from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from helpers.cli_helpers import export as write_pictures
from helpers.cli_helpers import one_sentence, read_csv
from tubal.app.exports import KINDS, Snapshot, export, present_files, put_back
from tubal.app.results import Results
from tubal.app.session import Session
from tubal.cli import run
from tubal.datasets import make_shifted_shapes


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    made = make_shifted_shapes(36, n_classes=3, image_shape=(12, 12), random_state=0)
    write_pictures(made.images, folder / "pictures" / "a")
    # Two files of one name in different folders, and one that no browser shows.
    (folder / "pictures" / "b").mkdir()
    os.rename(folder / "pictures" / "a" / "0035.png", folder / "pictures" / "b" / "0001.png")
    Image.open(folder / "pictures" / "a" / "0034.png").save(folder / "pictures" / "a" / "0034.tif")
    os.unlink(folder / "pictures" / "a" / "0034.png")
    assert run(["cluster", str(folder / "pictures"), "-k", "3", "-o", str(folder / "out"), "--quiet"]) == 0
    return folder


@pytest.fixture
def place(clustered, tmp_path):
    """A copy of pictures and results, in the same places relative to each other."""
    for name in ("pictures", "out"):
        shutil.copytree(clustered / name, tmp_path / name)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    record["files"] = [file.replace(str(clustered), str(tmp_path)) for file in record["files"]]
    (tmp_path / "out" / "run.json").write_text(json.dumps(record))
    return tmp_path


@pytest.fixture
def session(place):
    """Results with a name, a strange name, and an image that was left out."""
    session = Session(Results.open(place / "out"))
    session.act({"kind": "rename", "cluster": 0, "name": "sea / sky"})
    session.act({"kind": "rename", "cluster": 1, "name": "=1+1"})
    session.act({"kind": "move", "images": [5], "to": "out"})
    return session


def content(folder):
    """The content of all files, by their path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_table_lists_names_and_leaves_out_what_was_left_out(session):
    made = export(Snapshot.of(session), "csv")
    rows = read_csv(made.path)
    assert len(rows) == 35
    assert {row["name"] for row in rows} == {"sea / sky", "'=1+1", ""}
    assert session.names[5] not in [row["file"] for row in rows]
    named = {row["file"] for row in rows if row["cluster"] == "0"}
    assert named == {session.names[i] for i in np.flatnonzero(session.clusterer.labels_ == 0) if i != 5}


def test_coco_is_consistent(session, place):
    made = export(Snapshot.of(session), "coco")
    found = json.loads(made.path.read_text())
    assert f"35 images in {len(found['categories'])} categories" in made.text
    assert {category["name"] for category in found["categories"]} >= {"sea / sky", "=1+1"}
    ids = {image["id"] for image in found["images"]}
    categories = {category["id"] for category in found["categories"]}
    assert len(ids) == 35
    for note in found["annotations"]:
        assert note["image_id"] in ids
        assert note["category_id"] in categories
        assert note["bbox"] == [0, 0, 12, 12]
    names = {image["file_name"] for image in found["images"]}
    assert "b/0001.png" in names


def test_parquet_is_the_table(session):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found = pandas.read_parquet(export(Snapshot.of(session), "parquet").path)
    rows = read_csv(export(Snapshot.of(session), "csv").path)
    assert found["file"].tolist() == [row["file"] for row in rows]
    assert found["cluster"].tolist() == [int(row["cluster"]) for row in rows]
    assert set(found["name"]) == {"sea / sky", "=1+1", ""}


def test_parquet_without_pyarrow_gets_one_sentence(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        export(Snapshot.of(session), "parquet")


@pytest.mark.parametrize("mode", ["copy", "link"])
def test_folders_hold_every_picture_under_its_name(session, place, mode):
    before = content(place / "pictures")
    made = export(Snapshot.of(session), "folders", mode=mode)
    assert {path.name for path in made.path.iterdir()} == {"sea _ sky", "=1+1", "cluster-2"}
    found = [path for path in made.path.rglob("*") if not path.is_dir()]
    assert len(found) == made.n_files == 35
    assert all(path.is_symlink() == (mode == "link") for path in found)
    assert sorted(path.read_bytes() for path in found) == sorted(
        data for name, data in before.items() if name != session.names[5]
    )
    assert content(place / "pictures") == before
    # Again, after another name: nothing old is left.
    session.act({"kind": "rename", "cluster": 0, "name": "sea"})
    export(Snapshot.of(session), "folders", mode=mode)
    assert {path.name for path in made.path.iterdir()} == {"sea", "=1+1", "cluster-2"}


def test_a_hugging_face_folder_names_every_picture(session):
    made = export(Snapshot.of(session), "huggingface")
    rows = [json.loads(line) for line in (made.path / "train" / "metadata.jsonl").read_text().splitlines()]
    assert len(rows) == 35
    assert all((made.path / "train" / row["file_name"]).is_file() for row in rows)
    assert {row["label"] for row in rows} == {"sea / sky", "=1+1", "cluster 2"}
    with pytest.raises(ValueError, match="copy or link"):
        export(Snapshot.of(session), "huggingface", mode="move")


def test_a_mode_needs_folders(place, capsys):
    before = content(place)
    assert run(["export", str(place / "out"), "--mode", "move"]) == 2
    assert "add --kind folders" in one_sentence(capsys)
    assert content(place) == before


def test_a_move_can_be_undone(session, place):
    before = content(place / "pictures")
    made = export(Snapshot.of(session), "folders", mode="move")
    assert list(content(place / "pictures")) == [session.names[5]]
    assert len(read_csv(made.path / "manifest.csv")) == made.n_files == 35
    session.forget_files()
    assert all(os.path.isfile(file) for file in session.files)  # they are found where they are now
    second = export(Snapshot.of(session), "folders", mode="move")
    assert second.path != made.path
    session.forget_files()
    assert all(os.path.isfile(file) for file in session.files)
    assert put_back(place / "out") == 35
    assert put_back(place / "out") == 35
    assert content(place / "pictures") == before
    assert not made.path.exists()
    with pytest.raises(ValueError, match="nothing to put back"):
        put_back(place / "out")


@pytest.mark.parametrize("n_moved", [0, 1, 20])
def test_an_interrupted_move_can_be_undone(session, place, monkeypatch, n_moved):
    before, moved = content(place / "pictures"), []

    def move(source, target, moving=shutil.move):
        if len(moved) == n_moved:
            raise KeyboardInterrupt
        moved.append(moving(source, target))

    monkeypatch.setattr(shutil, "move", move)
    with pytest.raises(KeyboardInterrupt):
        export(Snapshot.of(session), "folders", mode="move")
    monkeypatch.undo()
    assert put_back(place / "out") == n_moved
    assert content(place / "pictures") == before


def test_putting_back_overwrites_nothing(session, place):
    made = export(Snapshot.of(session), "folders", mode="move")
    new = place / "pictures" / session.names[7]
    new.write_bytes(b"something else")
    assert put_back(place / "out") == 34
    assert new.read_bytes() == b"something else"
    assert (made.path / "manifest.csv").exists()
    new.unlink()
    assert put_back(place / "out") == 1


def test_a_forged_manifest_reaches_nothing_outside(session, place):
    made = export(Snapshot.of(session), "folders", mode="move")
    precious = place / "precious.txt"
    precious.write_text("mine")
    with open(made.path / "manifest.csv", "a") as stream:
        stream.write(f"{place / 'stolen.txt'},../../../precious.txt\n")
    assert put_back(place / "out") == 35
    assert precious.read_text() == "mine"
    assert present_files(place / "out", ["x"]) == ["x"]


def test_clusters_whose_names_look_alike_get_different_folders(session):
    session.act({"kind": "rename", "cluster": 1, "name": "SEA _ SKY"})
    folders = Snapshot.of(session).folders()
    assert len({folder.casefold() for folder in folders.values()}) == 3


def test_the_command_writes_every_kind(session, place, capsys):
    for kind in KINDS:
        assert run(["export", str(place / "out"), "--kind", kind, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert os.path.exists(answer["path"])
    assert run(["export", str(place / "out"), "--kind", "folders", "--mode", "move"]) == 0
    assert run(["export", str(place / "out"), "--put-back"]) == 0
    capsys.readouterr()
    assert run(["export", str(place / "out"), "--put-back"]) == 2
    assert "nothing to put back" in one_sentence(capsys)


def test_exports_stay_when_results_are_written_again(session, place):
    made = export(Snapshot.of(session), "folders", mode="move")
    table = place / "known.csv"
    table.write_text("path,label\na/0003.png,three\n")
    assert run(["refine", str(place / "out"), "--hints", str(table)]) == 0
    assert made.path.is_dir()
    assert put_back(place / "out") == 35
