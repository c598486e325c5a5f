"""The command line: what it writes, what it says, and what it leaves behind when stopped."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from mixed_folder import ODD_NAMES, build_mixed_folder
from tubal import ImageClusterer
from tubal.cli import COMMANDS, run
from tubal.cli._reading import SourceType
from tubal.cli._truth import read_truth, score
from tubal.datasets import fetch, make_shifted_shapes

RESULTS = {"labels.csv", "features.npz", "model.tubal", "report.html", "run.json", "skipped.csv"}


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def export(images: np.ndarray, folder: Path, target: np.ndarray | None = None) -> None:
    """Write images as PNG, one sub-folder a class where classes are given."""
    for i, image in enumerate(images):
        place = folder / (f"class {target[i]}" if target is not None else "")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(np.round(image * 255))).save(place / f"{i:04d}.png")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 small pictures of three kinds, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("shapes") / "pictures"
    bunch = make_shifted_shapes(60, n_classes=3, image_shape=(12, 12), random_state=0)
    export(bunch.images, folder, bunch.target)
    (folder / "class 0" / "broken.png").write_bytes(b"this is text")
    return folder


@pytest.fixture(scope="module")
def results(shapes: Path) -> Path:
    """The folder of results of one run, shared by the commands that need a model."""
    out = shapes.parent / "results"
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(out), "--labels", "folders", "--quiet"]) == 0
    return out


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of standard error, checking that it is one and that stdout is empty."""
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"tubal: [^\n]+\n", said.err), said.err
    assert "Traceback" not in said.err
    return said.err


# ---------------------------------------------------------------- help and completion


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys, tubal.cli; code = tubal.cli.run(['--help']); "
        "heavy = {'numpy', 'sklearn', 'scipy', 'numba', 'torch', 'rich', 'PIL'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - begin)
        assert done.returncode == 0, done.stderr
    assert min(seconds) < 0.5
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_help_has_an_example_and_takes_debug(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"tubal {name}" in text.split("Usage:")[1].split("\n", 1)[1], "no example"
    assert "--debug" in text


def test_bare_command_shows_help_and_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Start here" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tubal ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_TUBAL_COMPLETE" in capsys.readouterr().out


def test_completion_completes() -> None:
    environment = {
        **os.environ,
        "_TUBAL_COMPLETE": "bash_complete",
        "COMP_WORDS": "tubal clu",
        "COMP_CWORD": "1",
    }
    code = "import sys, tubal.cli; sys.argv = ['tubal']; tubal.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert "cluster" in done.stdout


def test_a_source_completes_to_collections_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    items = SourceType().shell_complete(None, None, "di")
    assert [(item.value, item.type) for item in items] == [("digits", "plain"), ("di", "file")]


# ---------------------------------------------------------------- labels given by people


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file,label\na/1.png,cat\nb/2.png,dog\n", ["cat", "dog", ""]),
        ("cluster,confidence,file\n7,0.5,b/2.png\n", ["", "7", ""]),
        ("1.png,cat\n2.png,dog\n3.png,owl\n", ["cat", "dog", "owl"]),
        ("label\ncat\ndog\nowl\n", ["cat", "dog", "owl"]),
        ("\ufefffile,label\na/1.png,cat\n", ["cat", "", ""]),
    ],
)
def test_labels_in_a_csv(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "labels.csv").write_text(text, encoding="utf-8")
    stack = SimpleNamespace(names=["a/1.png", "b/2.png", "3.png"], files=["x"] * 3, target=None)
    assert read_truth(str(tmp_path / "labels.csv"), stack, is_collection=False) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "wanted file and label"),
        ("label\ncat\n", "1 labels for 3 images"),
        ("a,b,c\n1,2,3\n", "wanted file and label"),
    ],
)
def test_labels_that_cannot_be_used(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "labels.csv").write_text(text)
    stack = SimpleNamespace(names=["a/1.png", "b/2.png", "3.png"], files=["x"] * 3, target=None)
    with pytest.raises(ValueError, match=sentence):
        read_truth(str(tmp_path / "labels.csv"), stack, is_collection=False)


def test_scores_leave_out_images_without_a_label() -> None:
    found = score(np.array([5, 5, 9, 9, 9]), ["a", "a", "b", "b", ""])
    assert found == {"accuracy": 100.0, "nmi": 100.0, "purity": 100.0, "labelled_images": 4}


# ---------------------------------------------------------------- cluster


def test_cluster_writes_every_result(results: Path, shapes: Path) -> None:
    assert {file.name for file in results.iterdir()} == RESULTS
    rows = read_csv(results / "labels.csv")
    assert len(rows) == 60
    assert list(rows[0]) == ["file", "cluster", "confidence", "outlier", "near_duplicate_of"]
    assert {(shapes / row["file"]).is_file() for row in rows} == {True}
    assert {int(row["cluster"]) for row in rows} == {0, 1, 2}
    assert all(0 <= float(row["confidence"]) <= 1 for row in rows)
    assert read_csv(results / "skipped.csv") == [
        {"file": "class 0/broken.png", "reason": "not a picture in a known format"}
    ]
    with np.load(results / "features.npz", allow_pickle=False) as features:
        assert features["names"].tolist() == [row["file"] for row in rows]
        assert len(features["features"]) == len(features["embedding"]) == 60
        assert features["labels"].tolist() == [int(row["cluster"]) for row in rows]


def test_the_record_says_what_was_done(results: Path) -> None:
    record = json.loads((results / "run.json").read_text())
    assert record["seed"] == 0
    assert record["images"] == 60
    assert record["skipped"] == 1
    assert {"tubal", "python", "numpy"} <= set(record["versions"])
    assert set(record["seconds"]) >= {"reading images", "clustering", "drawing the report"}
    assert record["scores"]["labelled_images"] == 60
    for name, digest in record["outputs"].items():
        assert hashlib.sha256((results / name).read_bytes()).hexdigest() == digest
    assert set(record["outputs"]) == RESULTS - {"run.json"}


def test_the_same_seed_gives_the_same_files(results: Path, shapes: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    assert run(["cluster", str(shapes), "-k", "3", "-o", str(out), "-q", "--labels", "folders"]) == 0
    assert (out / "labels.csv").read_bytes() == (results / "labels.csv").read_bytes()
    with np.load(out / "features.npz") as new, np.load(results / "features.npz") as old:
        np.testing.assert_array_equal(new["features"], old["features"])


def test_json_goes_to_stdout_and_talk_to_stderr(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(out), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["clusters"] == 3
    assert "60 pictures, all 12×12 already, in grey; 1 skipped." in said.err
    assert "report.html" in said.err
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(out), "--force", "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out == said.err == ""


def test_sorting_by_copy_and_link_and_force(shapes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    base = ["cluster", str(shapes), "-k", "3", "--out", str(out), "--quiet"]
    assert run([*base, "--sort", "copy"]) == 0
    rows = read_csv(out / "labels.csv")
    copies = [out / "clusters" / f"cluster-{row['cluster']}" / row["file"] for row in rows]
    assert all(copy.is_file() and not copy.is_symlink() for copy in copies)
    assert copies[0].read_bytes() == (shapes / rows[0]["file"]).read_bytes()
    (out / "my notes.txt").write_text("kept")
    assert run([*base, "--sort", "link", "--force"]) == 0
    assert all(
        copy.is_symlink() and copy.resolve() == (shapes / row["file"]).resolve()
        for copy, row in zip(copies, rows, strict=True)
    )
    assert run([*base, "--force"]) == 0
    assert not (out / "clusters").exists(), "an earlier sorting must not outlive its labels"
    assert (out / "my notes.txt").read_text() == "kept"


def test_stacks_names_and_labels_in_a_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bunch = make_shifted_shapes(40, n_classes=2, image_shape=(10, 10), random_state=1)
    np.save(tmp_path / "stack.npy", bunch.images)
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join(f"kind {value}" for value in bunch.target))
    out = tmp_path / "out"
    asked = [
        "cluster",
        str(tmp_path / "stack.npy"),
        "-k",
        "2",
        "-o",
        str(out),
        "--labels",
        str(tmp_path / "labels.csv"),
    ]
    assert run([*asked, "--sort", "copy", "--json", "-q"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["scores"]["labelled_images"] == 40
    first = read_csv(out / "labels.csv")[0]
    assert first["file"] == "stack.npy#1"
    assert (out / "clusters" / f"cluster-{first['cluster']}" / "stack.npy#1.png").is_file()


def test_a_thousand_mixed_pictures(tmp_path: Path) -> None:
    folder, bad = build_mixed_folder(tmp_path, n_images=1000)
    out = tmp_path / "out"
    assert (
        run(["cluster", str(folder), "-k", "5", "-o", str(out), "-q", "--size", "16", "--colour", "grey"])
        == 0
    )
    assert {row["file"] for row in read_csv(out / "skipped.csv") if "link" not in row["reason"]} == bad
    names = {row["file"] for row in read_csv(out / "labels.csv")}
    assert len(names) == 1000
    assert {f"nested/{name}" for name in ODD_NAMES} <= names
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img src=x" not in page


@pytest.mark.collection("coil20")
def test_coil20_as_pictures_gives_the_labels_of_the_python_call(tmp_path: Path) -> None:
    images = fetch("coil20").images
    export(images, tmp_path / "coil20")
    out = tmp_path / "out"
    assert run(["cluster", str(tmp_path / "coil20"), "-k", "20", "-o", str(out), "-q"]) == 0
    eight_bits = np.float32(np.uint8(np.round(images * 255))) / np.float32(255)
    expected = ImageClusterer(n_clusters=20, random_state=0).fit_predict(eight_bits)
    found = [int(row["cluster"]) for row in read_csv(out / "labels.csv")]
    np.testing.assert_array_equal(found, expected)


def test_demo_beats_k_means_and_can_be_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert run(["demo", "--out", str(out), "--json"]) == 0
    said = capsys.readouterr()
    record = json.loads(said.out)
    assert record["scores"]["accuracy"] > record["k_means"]["accuracy"]
    assert "K-means on pixels" in said.err
    assert str(out / "report.html") in said.err.replace("\n", "")
    assert {file.name for file in out.iterdir()} == RESULTS
    capsys.readouterr()
    (out / "run.json").write_text("{}")
    assert run(["demo", "--out", str(out), "-q"]) == 2
    assert "holds files already" in one_sentence(capsys)


# ---------------------------------------------------------------- commands that use a model


def test_assign_puts_known_pictures_where_they_were(
    results: Path, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["assign", str(shapes), "--model", str(results), "-q"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    known = {row["file"]: row["cluster"] for row in read_csv(results / "labels.csv")}
    agree = np.mean([row["cluster"] == known[row["file"]] for row in rows])
    assert len(rows) == 60
    assert agree >= 0.95
    assert all(row["nearest"] in known for row in rows)
    out = tmp_path / "clusters.csv"
    assert (
        run(["assign", str(shapes / "class 1"), "-m", str(results / "model.tubal"), "-o", str(out), "-q"])
        == 0
    )
    assert len(read_csv(out)) == 20
    assert run(["assign", str(shapes), "-m", str(results), "-o", str(out), "-q"]) == 2
    assert "--force" in one_sentence(capsys)


def test_similar_finds_the_picture_itself_first(
    results: Path, shapes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = read_csv(results / "labels.csv")[7]["file"]
    assert run(["similar", str(shapes / name), "--model", str(results), "--count", "4", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)["similar"]
    assert found[0]["file"] == name
    assert found[0]["distance"] < 1e-3
    assert [row["distance"] for row in found] == sorted(row["distance"] for row in found)
    assert {"rotation", "scale", "dy", "dx"} <= set(found[0])
    assert len(found) == 4
    assert run(["similar", str(shapes / name), "--model", str(results), "-q"]) == 0
    assert name in capsys.readouterr().out


def test_explain_draws_the_terms(
    results: Path, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = next((shapes / "class 1").iterdir())
    out = tmp_path / "why.png"
    assert (
        run(["explain", str(picture), "-m", str(results), "-o", str(out), "--terms", "5", "--json", "-q"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert 1 <= len(told["terms"]) <= 5
    strengths = [abs(term["coefficient"]) for term in told["terms"]]
    assert strengths == sorted(strengths, reverse=True)
    assert told["unexplained"] < 1.0
    with Image.open(out) as drawn:
        assert drawn.format == "PNG"
        assert drawn.width > 300
    more = tmp_path / "more.png"
    assert (
        run(["explain", str(picture), "-m", str(results), "-o", str(more), "--terms", "40", "--json", "-q"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["unexplained"] <= told["unexplained"] + 1e-6


def test_encode_matches_the_features_of_the_fit(
    results: Path, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features.npz"
    assert run(["encode", str(shapes), "-m", str(results), "-o", str(out), "--codes", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["arrays"]["features"][0] == 60
    with np.load(out, allow_pickle=False) as arrays:
        assert arrays["codes"].shape[:2] == arrays["features"].shape
        assert np.isfinite(arrays["features"]).all()


def test_fit_and_info(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.tubal"
    assert run(["fit", str(shapes), "--method", "tubsc", "--atoms", "6", "--out", str(model), "-q"]) == 0
    assert run(["info", str(model), "--json"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert card["kind"] == "TubSC"
    assert card["atoms"] == 6
    assert card["image_shape"] == [12, 12]
    assert card["sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert run(["info", str(model)]) == 0
    assert "TubSC" in capsys.readouterr().out
    assert run(["assign", str(shapes), "-m", str(model), "-q"]) == 2
    assert "without clusters" in one_sentence(capsys)
    assert run(["fit", str(shapes), "--out", str(model), "-q"]) == 2
    assert "--force" in one_sentence(capsys)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cluster", "{tmp}/nowhere"], "no file or folder"),
        (["cluster", "digitz"], "did you mean 'digits'"),
        (["cluster", "{tmp}/empty"], "no pictures in"),
        (["cluster", "{tmp}/bad"], "all 1 were skipped"),
        (["cluster", "{shapes}", "--clusters", "61"], "only 60 images"),
        (["cluster", "{shapes}", "--clusters", "0"], "--clusters"),
        (["cluster", "{shapes}", "--preset", "best"], "'best' is not one of"),
        (["cluster", "{shapes}", "--size", "big"], "'big' is not"),
        (["cluster", "{shapes}", "--colour", "blue"], "'blue' is not one of"),
        (["cluster", "{shapes}", "--out", "{tmp}/bad"], "holds files already"),
        (["cluster", "{shapes}", "--out", "{tmp}/bad/a.png"], "is a file"),
        (["cluster", "{shapes}", "--out", "{tmp}/bad/a.png/below"], "cannot write results"),
        (["cluster", "{shapes}", "--labels", "{tmp}/none.csv"], "no file of labels"),
        (["cluster", "{shapes}/class 1", "--labels", "given"], "carry no labels"),
        (["cluster", "{shapes}/class 1", "--labels", "folders"], "at least two sub-folders"),
        (["cluster", "{shapes}", "--device", "cuda"], "cuda"),
        (["cluster", "{shapes}", "--nonsense"], "No such option"),
        (["cluster"], "Missing argument 'SOURCE'"),
        (["clutser"], "No such command 'clutser'"),
        (["info", "{tmp}/none.tubal"], "there is no model"),
        (["info", "{tmp}/bad/a.png"], "a.png"),
        (["assign", "{shapes}", "--model", "{tmp}/none"], "there is no model"),
        (["similar", "{shapes}/none.png", "--model", "{results}"], "no file or folder"),
        (
            ["explain", "{shapes}", "--model", "{results}", "--out", "{tmp}/no/where.png"],
            "there is no folder",
        ),
        (["encode", "{tmp}/empty", "--model", "{results}", "--out", "{tmp}/f.npz"], "no pictures in"),
        (["fit", "{shapes}", "--method", "magic"], "'magic' is not one of"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["datasets", "--nonsense"], "No such option"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_two(
    arguments: list[str],
    sentence: str,
    shapes: Path,
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"no picture")
    filled = [part.format(tmp=tmp_path, shapes=shapes, results=results) for part in arguments]
    quiet = ["--quiet"] if filled[0] in ("cluster", "fit", "encode", "assign", "similar", "explain") else []
    assert run([*filled, *quiet]) == 2
    assert sentence in one_sentence(capsys)
    assert {entry.name for entry in tmp_path.iterdir()} == {"empty", "bad"}, "something was left behind"


def test_a_model_of_another_version_is_one_sentence(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = (results / "model.tubal").read_bytes()
    (tmp_path / "cut.tubal").write_bytes(body[: len(body) // 2])
    assert run(["info", str(tmp_path / "cut.tubal")]) == 2
    one_sentence(capsys)


def test_an_unwritable_folder_is_one_sentence(shapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", str(shapes), "--out", "/proc/tubal-results", "--quiet"]) == 2
    assert "cannot write results" in one_sentence(capsys)


def test_debug_shows_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", str(tmp_path / "nowhere"), "-o", str(tmp_path / "out"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert run(["--debug", "info", str(tmp_path / "none")]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_our_own_failures_exit_with_one(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("tubal.datasets.sources.load_image_folder", fail)
    assert run(["cluster", str(shapes), "-q", "-o", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
    capsys.readouterr()


def test_control_characters_in_names_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "evil\x1b[2J.png").write_bytes(b"text")
    assert run(["cluster", str(tmp_path / "p"), "-o", str(tmp_path / "out")]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_no_color_is_obeyed(shapes: Path, tmp_path: Path) -> None:
    done = call(
        ["cluster", str(shapes), "-k", "3", "-o", str(tmp_path / "out")], FORCE_COLOR="1", NO_COLOR="1"
    )
    assert done.returncode == 0
    assert "\x1b[3" not in done.stderr


# ---------------------------------------------------------------- Ctrl-C


def call(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import tubal.cli; tubal.cli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("moment", ["0.3", "0.8", "reading images", "clustering", "writing results"])
@pytest.mark.parametrize("with_earlier_results", [False, True])
def test_ctrl_c_leaves_nothing_half_written(
    moment: str, with_earlier_results: bool, shapes: Path, results: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    if with_earlier_results:
        out.mkdir()
        for name in RESULTS:
            (out / name).write_bytes((results / name).read_bytes())
    before = {file.name: file.read_bytes() for file in out.iterdir()} if out.exists() else {}
    code = "import tubal.cli; tubal.cli.main()"
    asked = ["cluster", str(shapes), "-k", "4", "-o", str(out), "--force", "--sort", "copy"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *asked], stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stderr is not None
    said = ""
    if moment[0].isdigit():
        time.sleep(float(moment))
    else:
        while not said.endswith("\n") or f"{moment}:" not in said:
            line = process.stderr.readline()
            if not line:
                break
            said += line
    process.send_signal(signal.SIGINT)
    said += process.stderr.read()
    assert process.wait(timeout=60) in (130, 0)
    assert "Traceback" not in said
    assert not [entry for entry in tmp_path.rglob("*") if entry.name.endswith(".part")]
    if process.returncode == 0:  # it had finished before the signal was seen
        assert {file.name for file in out.iterdir()} == RESULTS | {"clusters"}
        return
    assert said.splitlines()[-1] == "tubal: stopped; no half-written file was left behind"
    assert said.count("tubal:") == 1
    after = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} if out.exists() else {}
    assert after == before
