"""``tubal ask``, ``refine``, ``add`` and ``cluster --hints``: answers hold in all results and are never lost."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tubal
from helpers.cli_helpers import RESULTS, cluster_shapes, export, one_sentence, read_csv
from tubal.app.results import Results, add_entries, journal_of
from tubal.cli import run
from tubal.cli.hints import _edited_entries
from tubal.datasets import make_shifted_shapes
from tubal.storage.journal import Entry


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    """A folder of pictures without sub-folders, and the results of clustering it."""
    folder = tmp_path_factory.mktemp("hints")
    made = cluster_shapes(folder)
    return folder, {f"{i:04d}.png": f"class {label}" for i, label in enumerate(made.target)}


@pytest.fixture
def place(clustered, tmp_path):
    """A copy of both, and the true classes by file name."""
    folder, classes = clustered
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "pictures")
    shutil.copytree(folder / "pictures", tmp_path / "copy" / "pictures")
    return tmp_path / "copy", classes


def write_table(path, rows, head=("path", "label")):
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([head, *rows])
    return str(path)


def names_in(out):
    return {row["file"]: row.get("name", "") for row in read_csv(out / "labels.csv")}


def answers_of(out):
    return [(entry.kind, entry.name) for entry in journal_of(out).current()]


def test_refine_names_all_images(place, capsys):
    folder, classes = place
    out = folder / "out"
    table = write_table(folder / "known.csv", [*list(classes.items())[:9], ("0020.png", "")])
    assert run(["refine", str(out), "--hints", table, "--sort", "copy"]) == 0
    found = names_in(out)
    assert found == classes
    assert {path.name for path in out.iterdir()} == RESULTS | {"clusters"}
    sorted_names = {path.name for path in (out / "clusters").iterdir()}
    assert sorted_names == {f"cluster-{i} {name}" for i, name in enumerate(_names_by_size(out))}
    record = json.loads((out / "run.json").read_text())
    assert record["hints"] == 9
    assert set(record["cluster_names"]) == set(classes.values())
    assert "9 new hints" in capsys.readouterr().err


def _names_by_size(out):
    return tubal.load(out / "model.tubal").names_


def test_a_second_refine_replaces_sorted_folders(place):
    folder, _ = place
    out = folder / "out"
    first = write_table(folder / "a.csv", [("0000.png", "x / y")])
    assert run(["refine", str(out), "--hints", first, "--sort", "copy"]) == 0
    second = write_table(folder / "b.csv", [("0000.png", "z")])
    assert run(["refine", str(out), "--hints", second]) == 0
    folders = {path.name for path in (out / "clusters").iterdir()}
    assert any(name.endswith(" z") for name in folders)
    assert not any("x _ y" in name for name in folders)
    assert names_in(out)["0000.png"] == "z"


def test_contradictions_change_nothing(place, capsys):
    folder, _ = place
    out = folder / "out"
    shutil.copy(folder / "pictures" / "0000.png", folder / "pictures" / "copy.png")
    assert run(["cluster", str(folder / "pictures"), "-k", "3", "-o", str(out), "--force", "--quiet"]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()
    table = write_table(folder / "bad.csv", [("0000.png", "a"), ("copy.png", "b")])
    assert run(["refine", str(out), "--hints", table]) == 2
    assert "the same picture" in one_sentence(capsys)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert not journal_of(out).path.exists()


@pytest.mark.parametrize(
    ("rows", "head", "message"),
    [
        ([("nowhere.png", "a")], ("path", "label"), "no image has a name"),
        ([("a", "b")], ("what", "ever"), "wanted path and label"),
    ],
)
def test_useless_tables_get_one_sentence(place, capsys, rows, head, message):
    folder, _ = place
    table = write_table(folder / "bad.csv", rows, head)
    assert run(["refine", str(folder / "out"), "--hints", table]) == 2
    assert message in one_sentence(capsys)


def test_a_missing_table_and_missing_results_get_one_sentence(place, capsys, tmp_path):
    folder, _ = place
    assert run(["refine", str(folder / "out"), "--hints", "nowhere.csv"]) == 2
    assert "no file of hints" in one_sentence(capsys)
    assert run(["ask", str(tmp_path)]) == 2
    assert "holds no results" in one_sentence(capsys)


def test_the_edited_table_of_the_report_is_read_back(place):
    folder, _classes = place
    out = folder / "out"
    head = ("file", "cluster", "confidence", "outlier", "near_duplicate_of", "cluster_name", "cluster_found")
    rows = []
    for row in read_csv(out / "labels.csv"):
        cluster = {"0": "0", "1": "1", "2": "1"}[row["cluster"]]
        name = {"0": "first", "1": "Cluster 1"}[cluster]
        rows.append((row["file"], cluster, row["confidence"], "false", "", name, row["cluster"]))
    before = {row["file"]: row["cluster"] for row in read_csv(out / "labels.csv")}
    assert run(["refine", str(out), "--hints", write_table(folder / "labels-edited.csv", rows, head)]) == 0
    found = names_in(out)
    assert {file for file, name in found.items() if name} == {file for file, label in before.items() if label == "0"}
    model = tubal.load(out / "model.tubal")
    assert len(model.hints_.same) == 1
    assert answers_of(out) == [("name", "first"), ("same", "")]


def test_names_that_the_report_already_showed_are_no_answers(place):
    folder, _classes = place
    out = folder / "out"
    model = tubal.load(out / "model.tubal")
    model.refine({int(model.medoids_[0]): "first"})
    rows = [
        {"file": name, "cluster": str(label), "cluster_found": str(label), "cluster_name": model.names_[label] or "new"}
        for name, label in zip(model.file_names_, model.labels_, strict=True)
    ]
    digests = [str(digest) for digest in model.file_digests_]
    entries = _edited_entries(rows, list(model.file_names_), digests, model, "labels-edited.csv")
    assert {entry.name for entry in entries} == {"new"}


def answer_all(classes):
    """Answer like a person who knows all classes: one process, whose questions are read from standard error."""

    def answer(out, n_questions, *, kill_after=None, undo=False):
        command = [sys.executable, "-c", "from tubal.cli import main; main()", "ask", str(out)]
        process = subprocess.Popen(
            [*command, "--questions", str(n_questions)],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0,
        )  # fmt: skip
        given, text = [], ""
        while process.poll() is None and (char := process.stderr.read(1)):
            text += char
            if not text.endswith(".png:"):  # older versions of click write the space after it to standard output
                continue
            name = Path(text.rsplit("\n", 1)[-1][:-1]).name
            if kill_after == len(given):
                process.send_signal(signal.SIGKILL)
                break
            process.stdin.write(f"{classes[name]}\n")
            process.stdin.flush()
            given.append(classes[name])
        process.communicate()
        return given, process.returncode

    return answer


def test_ask_saves_every_answer_and_writes_results(place):
    folder, classes = place
    out = folder / "out"
    given, code = answer_all(classes)(out, 6)
    assert code == 0
    assert [name for _, name in answers_of(out)] == given
    assert names_in(out) == classes


def test_ask_undoes_skips_and_stops(place, monkeypatch, capsys):
    folder, _ = place
    out = folder / "out"
    said = iter(["wrong", "/undo", "", "right", "/quit"])
    monkeypatch.setattr("tubal.cli.hints._read_answer", lambda picture: next(said))
    assert run(["ask", str(out)]) == 0
    assert answers_of(out) == [("name", "right")]
    assert set(names_in(out).values()) == {"right", ""}
    printed = capsys.readouterr().err.splitlines()
    assert printed[1].startswith("no image has a name yet; the next answer decides about ")
    taken_back = next(line for line in printed if line.startswith("taken back: "))
    assert taken_back.endswith("is wrong")


@pytest.mark.parametrize(("no_color", "is_shown"), [("", True), ("1", False)])
def test_ask_shows_pictures_where_the_terminal_has_colours(place, monkeypatch, capsys, no_color, is_shown):
    out = place[0] / "out"
    size = {"COLUMNS": "100", "LINES": "24"}
    for name, value in {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "NO_COLOR": no_color, **size}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tubal.cli.hints._read_answer", lambda picture: None)

    assert run(["ask", str(out)]) == 0

    printed = capsys.readouterr().err
    assert (printed.count("▀") == 18 * 36) is is_shown
    results = Results.open(out)
    red, green, blue = results.picture(int(results.clusterer.questions(1)[0]), 40)[0, 0]
    assert (f"38;2;{red};{green};{blue}" in printed) is is_shown


def test_picture_is_that_of_the_file_or_else_of_the_model(place, monkeypatch, tmp_path):
    Image.new("RGB", (50, 40), (200, 100, 255)).save(tmp_path / "large.png")
    results = Results.open(place[0] / "out")
    kept = np.uint8(np.round(255 * results.stack().images[0]))[..., None].repeat(3, axis=2)
    wanted = {"large.png": np.full((30, 30, 3), (200, 100, 255)), "gone.png": kept}
    for file, pixels in wanted.items():
        monkeypatch.setattr(Results, "files", [str(tmp_path / file)])
        np.testing.assert_allclose(results.picture(0, 30), pixels, atol=1)


def test_ask_goes_on_after_a_contradiction(place, monkeypatch, capsys):
    folder, _ = place
    out = folder / "out"
    results = Results.open(out)
    asked = [int(image) for image in results.clusterer.questions(2)]
    add_entries(results, [Entry("same", tuple(results.digests[image] for image in asked))])
    said = iter(["first", "second"])
    monkeypatch.setattr("tubal.clustering.ImageClusterer.questions", lambda *_, **__: (asked[:1], [5.0]))
    monkeypatch.setattr("tubal.cli.hints._read_answer", lambda picture: asked.reverse() or next(said, None))
    assert run(["ask", str(out)]) == 0
    assert "cannot both belong together and be different" in capsys.readouterr().err
    assert ("name", "first") in answers_of(out)


def test_ask_may_undo_an_earlier_answer(place, monkeypatch, capsys):
    folder, classes = place
    out = folder / "out"
    assert run(["refine", str(out), "--hints", write_table(folder / "known.csv", list(classes.items())[:1])]) == 0
    said = iter(["/undo", "/quit"])
    monkeypatch.setattr("tubal.cli.hints._read_answer", lambda picture: next(said))
    capsys.readouterr()
    assert run(["ask", str(out)]) == 0
    assert answers_of(out) == []
    assert re.search(r"done +0 answers", capsys.readouterr().err)


def test_a_killed_ask_loses_no_answer(place):
    folder, classes = place
    out = folder / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    given, code = answer_all(classes)(out, 20, kill_after=4)
    assert code == -signal.SIGKILL
    assert [name for _, name in answers_of(out)] == given
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    table = write_table(folder / "empty.csv", [("0000.png", classes["0000.png"])])
    assert run(["refine", str(out), "--hints", table]) == 0
    assert len(tubal.load(out / "model.tubal").hints_) >= 4


def test_answers_are_kept_when_files_are_renamed_and_clustered_again(place):
    folder, classes = place
    out = folder / "out"
    table = write_table(folder / "known.csv", list(classes.items())[:9])
    assert run(["refine", str(out), "--hints", table]) == 0
    for path in (folder / "pictures").iterdir():
        path.rename(path.with_name(f"renamed {path.name}"))
    shutil.rmtree(out)
    assert run(["cluster", str(folder / "pictures"), "-k", "3", "-o", str(out), "--quiet"]) == 0
    assert names_in(out) == {f"renamed {name}": label for name, label in classes.items()}


def test_sub_folders_serve_as_hints(place):
    folder, classes = place
    for name, label in list(classes.items())[:12]:
        (folder / "pictures" / label).mkdir(exist_ok=True)
        (folder / "pictures" / name).rename(folder / "pictures" / label / name)
    command = ["cluster", str(folder / "pictures"), "-k", "3", "-o", str(folder / "new"), "--hints", "folders"]
    assert run([*command, "--sort", "copy", "--quiet"]) == 0
    found = {Path(file).name: name for file, name in names_in(folder / "new").items()}
    assert found == classes


def test_add_reads_only_new_files(place, capsys):
    folder, classes = place
    out = folder / "out"
    table = write_table(folder / "known.csv", list(classes.items())[:9])
    assert run(["refine", str(out), "--hints", table]) == 0
    more = make_shifted_shapes(60, n_classes=3, image_shape=(12, 12), random_state=0)
    for i in range(48, 60):
        Image.fromarray(np.uint8(np.round(more.images[i] * 255))).save(folder / "pictures" / f"{i:04d}.png")
    before = names_in(out)
    assert run(["add", str(out), str(folder / "pictures")]) == 0
    assert "12 images added" in capsys.readouterr().err
    found = names_in(out)
    assert len(found) == 60
    assert {name: found[name] for name in before} == before
    model = tubal.load(out / "model.tubal")
    assert len(model.labels_) == len(model.file_names_) == len(model.file_digests_) == 60
    assert run(["add", str(out), str(folder / "pictures")]) == 0
    assert "no new image" in capsys.readouterr().err


def test_add_finds_nothing_new_in_a_folder_with_damaged_pictures(place, capsys):
    folder, _ = place
    (folder / "pictures" / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert run(["add", str(folder / "out"), str(folder / "pictures")]) == 0
    printed = capsys.readouterr().err
    assert "damaged.png" in printed
    assert "holds no new image" in printed


def test_add_replaces_changed_files(place):
    folder, _ = place
    out, file = folder / "new", folder / "pictures" / "0005.png"
    assert run(["cluster", str(folder / "pictures"), "-k", "3", "-o", str(out), "--quiet"]) == 0
    pixels = np.asarray(Image.open(file))
    Image.fromarray(np.roll(pixels, 1, axis=1)).save(file)
    assert run(["add", str(out), str(folder / "pictures")]) == 0
    rows = [row["file"] for row in read_csv(out / "labels.csv")]
    assert len(rows) == 48
    assert rows[-1] == "0005.png"


@pytest.mark.parametrize("command", ["refine", "add"])
def test_a_kill_leaves_whole_results(place, command):
    folder, classes = place
    out = folder / "out"
    if command == "add":
        made = make_shifted_shapes(6, n_classes=3, image_shape=(12, 12), random_state=9)
        export(made.images, folder / "more")
        arguments = [command, str(out), str(folder / "more")]
    else:
        arguments = [command, str(out), "--hints", write_table(folder / "known.csv", list(classes.items())[:9])]
    process = subprocess.Popen([sys.executable, "-c", "from tubal.cli import main; main()", *arguments])
    time.sleep(float(np.random.default_rng(len(command)).uniform(1.0, 3.0)))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(tubal.load(out / "model.tubal").labels_) == len(read_csv(out / "labels.csv"))
    assert run(arguments) == 0
    assert len(read_csv(out / "labels.csv")) == (54 if command == "add" else 48)
