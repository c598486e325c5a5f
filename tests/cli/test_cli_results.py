"""What the commands write, and that it agrees with the library."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.cli_helpers import RESULTS, export, one_sentence, read_csv
from helpers.mixed_folder import ODD_NAMES, build_mixed_folder
from tubal import ImageClusterer
from tubal.cli import run
from tubal.datasets import fetch, make_shifted_shapes

pytest_plugins = ["helpers.cli_fixtures"]


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


def test_run_json_records_seed_versions_and_hashes(results: Path) -> None:
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


def test_run_ends_with_other_numbers_and_how_far_to_trust_it(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["cluster", str(shapes), "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    record = json.loads(printed.out)
    best, second, *_ = record["plausible_clusters"]
    assert record["clusters"] == best
    *_, numbers, trust, _, last = printed.err.splitlines()
    assert numbers.startswith(f"{best} clusters fit best, {second} or ")
    assert numbers.endswith(f"--clusters {second} --force")
    assert trust.startswith(f"About {100 * record['mean_confidence']:.0f} % of the images are probably in the right")
    assert last.startswith("Open ")


def test_same_seed_gives_same_results(results: Path, shapes: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    assert run(["cluster", str(shapes), "-k", "3", "-o", str(out), "-q", "--labels", "folders"]) == 0
    assert (out / "labels.csv").read_bytes() == (results / "labels.csv").read_bytes()
    with np.load(out / "features.npz") as new, np.load(results / "features.npz") as old:
        np.testing.assert_array_equal(new["features"], old["features"])


def test_json_on_stdout_and_messages_on_stderr(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["clusters"] == 3
    assert "60 pictures, all 12×12 already, in grey; 1 skipped." in printed.err
    assert "report.html" in printed.err
    assert run(["cluster", str(shapes), "-k", "3", "--out", str(out), "--force", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_sort_copies_or_links_images_into_cluster_folders(shapes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    base = ["cluster", str(shapes), "-k", "3", "--out", str(out), "--quiet"]
    assert run([*base, "--sort", "copy"]) == 0
    rows = read_csv(out / "labels.csv")
    copies = [out / "clusters" / f"cluster-{row['cluster']}" / Path(row["file"]).name for row in rows]
    assert all(copy.is_file() and not copy.is_symlink() for copy in copies)
    assert copies[0].read_bytes() == (shapes / rows[0]["file"]).read_bytes()
    (out / "my notes.txt").write_text("kept")
    assert run([*base, "--sort", "link", "--force"]) == 0
    assert all(
        copy.is_symlink() and copy.resolve() == (shapes / row["file"]).resolve()
        for copy, row in zip(copies, rows, strict=True)
    )
    assert run([*base, "--force"]) == 0
    assert not (out / "clusters").exists(), "sorted images of an earlier run must be removed"
    assert (out / "my notes.txt").read_text() == "kept"


def test_sorted_pictures_of_one_name_get_numbers(shapes: Path, tmp_path: Path) -> None:
    # Given pictures of the same name in two folders, and one whose name looks numbered
    source, out = tmp_path / "source", tmp_path / "out"
    files = sorted(shapes.rglob("*.png"))[:12]
    for folder in ("june", "july"):
        (source / folder).mkdir(parents=True)
    for i, file in enumerate(files):
        shutil.copy(file, source / ("june" if i % 2 else "july") / f"{i // 2}.png")
    shutil.copy(files[5], source / "june" / "0-2.png")
    # When they are sorted, twice
    command = ["cluster", str(source), "-k", "1", "--out", str(out), "--sort", "copy", "-q", "--force"]
    assert run(command) == 0
    assert run(command) == 0
    # Then they lie side by side, each under its name or with a number
    found = {path.name: path for path in (out / "clusters" / "cluster-0").iterdir()}
    assert set(found) == {*(f"{i}.png" for i in range(6)), *(f"{i}-2.png" for i in range(6)), "0-3.png"}
    assert found["0-2.png"].read_bytes() == files[5].read_bytes()
    assert len({path.read_bytes() for path in found.values()}) == 12
    assert run([*command[:3], "2", *command[4:]]) == 0


def test_array_file_is_clustered_with_a_label_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bunch = make_shifted_shapes(40, n_classes=2, image_shape=(10, 10), random_state=1)
    np.save(tmp_path / "stack.npy", bunch.images)
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join(f"kind {value}" for value in bunch.target))
    out = tmp_path / "out"
    arguments = [
        "cluster",
        str(tmp_path / "stack.npy"),
        "-k",
        "2",
        "-o",
        str(out),
        "--labels",
        str(tmp_path / "labels.csv"),
    ]
    assert run([*arguments, "--sort", "copy", "--json", "-q"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["scores"]["labelled_images"] == 40
    first = read_csv(out / "labels.csv")[0]
    assert first["file"] == "stack.npy#1"
    assert (out / "clusters" / f"cluster-{first['cluster']}" / "stack.npy#1.png").is_file()


def test_folder_of_mixed_pictures_is_clustered(tmp_path: Path) -> None:
    folder, bad = build_mixed_folder(tmp_path, n_images=200)  # test_folders.py reads 1000
    out = tmp_path / "out"
    assert run(["cluster", str(folder), "-k", "5", "-o", str(out), "-q", "--size", "16", "--colour", "grey"]) == 0
    assert {row["file"] for row in read_csv(out / "skipped.csv") if "link" not in row["reason"]} == bad | {"notes.txt"}
    names = {row["file"] for row in read_csv(out / "labels.csv")}
    assert len(names) == 200
    assert {f"nested/{name}" for name in ODD_NAMES} <= names
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img src=x" not in page


@pytest.mark.collection("coil20")
def test_cluster_command_gives_the_labels_of_the_library(tmp_path: Path) -> None:
    images = fetch("coil20").images[::9]  # 8 views of every object
    export(images, tmp_path / "coil20")
    out = tmp_path / "out"
    assert run(["cluster", str(tmp_path / "coil20"), "-k", "20", "-o", str(out), "-q"]) == 0
    eight_bits = np.float32(np.uint8(np.round(images * 255))) / np.float32(255)
    expected = ImageClusterer(n_clusters=20, random_state=0).fit_predict(eight_bits)
    found = [int(row["cluster"]) for row in read_csv(out / "labels.csv")]
    np.testing.assert_array_equal(found, expected)


def test_demo_beats_k_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert run(["demo", "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    record = json.loads(printed.out)
    assert record["scores"]["accuracy"] > record["k_means"]["accuracy"]
    assert "K-means on pixels" in printed.err
    *_, command, page = printed.err.splitlines()
    assert command.endswith(f": tubal open {out}")
    assert page == f"Open {out / 'report.html'}"
    assert {file.name for file in out.iterdir()} == RESULTS
    capsys.readouterr()
    (out / "run.json").write_text("{}")
    assert run(["demo", "--out", str(out), "-q"]) == 2
    assert "holds files already" in one_sentence(capsys)


def test_assign_finds_the_cluster_of_known_pictures(
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
    assert run(["assign", str(shapes / "class 1"), "-m", str(results / "model.tubal"), "-o", str(out), "-q"]) == 0
    assert len(read_csv(out)) == 20
    assert run(["assign", str(shapes), "-m", str(results), "-o", str(out), "-q"]) == 2
    assert "--force" in one_sentence(capsys)


def test_results_can_be_written_to_the_current_folder(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert run(["cluster", str(shapes), "-k", "3", "--out", ".", "--quiet"]) == 0
    assert {file.name for file in Path.cwd().iterdir()} == RESULTS
    assert [entry.name for entry in tmp_path.iterdir()] == ["empty"]


def test_similar_finds_the_picture_itself(results: Path, shapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_similar_scales_the_picture_as_the_model_did(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "paper"
    assert run(["cluster", str(shapes), "-k", "3", "-o", str(out), "--preset", "paper", "-q"]) == 0
    name = read_csv(out / "labels.csv")[7]["file"]
    assert run(["similar", str(shapes / name), "--model", str(out), "--json", "-q"]) == 0
    nearest = json.loads(capsys.readouterr().out)["similar"][0]
    assert nearest["file"] == name
    assert nearest["distance"] < 1e-3


def test_explain_draws_the_terms(
    results: Path, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = next((shapes / "class 1").iterdir())
    out = tmp_path / "why.png"
    assert run(["explain", str(picture), "-m", str(results), "-o", str(out), "--terms", "5", "--json", "-q"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert 1 <= len(explained["terms"]) <= 5
    strengths = [abs(term["coefficient"]) for term in explained["terms"]]
    assert strengths == sorted(strengths, reverse=True)
    assert explained["unexplained"] < 1.0
    with Image.open(out) as drawn:
        assert drawn.format == "PNG"
        assert drawn.width > 300
    more = tmp_path / "more.png"
    assert run(["explain", str(picture), "-m", str(results), "-o", str(more), "--terms", "40", "--json", "-q"]) == 0
    left = json.loads(capsys.readouterr().out)["unexplained"]
    assert left <= explained["unexplained"] + 1e-6
    # Codes that follow the graph spread over hundreds of terms; 40 of these would leave more than half.
    assert left < 0.25


def test_encode_writes_features_and_codes(
    results: Path, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features.npz"
    assert run(["encode", str(shapes), "-m", str(results), "-o", str(out), "--codes", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["arrays"]["features"][0] == 60
    with np.load(out, allow_pickle=False) as arrays:
        assert arrays["codes"].shape[:2] == arrays["features"].shape
        assert np.isfinite(arrays["features"]).all()


def test_info_describes_a_fitted_model(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_sources_may_be_several_archives_or_a_list(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    base = ["cluster", "-k", "3", "--out", str(out), "--quiet", "--force"]
    archive = shutil.make_archive(str(tmp_path / "shapes"), "zip", shapes)
    assert run([*base, archive]) == 0
    assert len(read_csv(out / "labels.csv")) == 60
    assert run([*base, *map(str, sorted(shapes.iterdir())), "--labels", "folders"]) == 0
    rows = read_csv(out / "labels.csv")
    assert {row["file"] for row in rows} == {p.relative_to(shapes).as_posix() for p in shapes.rglob("[0-9]*.png")}
    paths = "".join(f"{file}\n" for file in sorted(shapes.rglob("*.png")))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(paths.encode())))
    assert run([*base, "-"]) == 0
    assert [row["cluster"] for row in read_csv(out / "labels.csv")] == [row["cluster"] for row in rows]
    capsys.readouterr()
    assert run([*base, str(shapes), str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in one_sentence(capsys)


def test_folders_of_an_archive_are_labels(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = shutil.make_archive(str(tmp_path / "shapes"), "zip", shapes.parent, shapes.name)
    options = ["-k", "3", "--labels", "folders", "--quiet"]
    assert run(["cluster", str(shapes), *options, "--out", str(tmp_path / "of folder")]) == 0
    assert run(["cluster", archive, *options, "--out", str(tmp_path / "of archive")]) == 0
    scores = [json.loads((tmp_path / out / "run.json").read_text())["scores"] for out in ("of folder", "of archive")]
    assert scores[0] == scores[1]
    assert scores[0]["labelled_images"] == 60


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_sorted_pictures_of_an_archive_are_its_files(kind: str, shapes: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "shapes"), kind, shapes)
    out = tmp_path / "out"
    # Smaller than the pictures are, so that images and files differ.
    options = ["-k", "3", "--out", str(out), "-q", "--sort", "copy", "--size", "8"]
    assert run(["cluster", archive, *options]) == 0
    for row in read_csv(out / "labels.csv"):
        found = out / "clusters" / f"cluster-{row['cluster']}" / Path(row["file"]).name
        assert found.read_bytes() == (shapes / row["file"]).read_bytes()
    assert run(["cluster", archive, *options, "--force"]) == 0


def test_skipped_files_are_printed_up_to_ten(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "pictures"
    shutil.copytree(shapes, source)
    for number in range(12):
        (source / f"no picture {number:02d}.png").write_text("text")
    assert run(["cluster", str(source), "-k", "3", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().err.splitlines()
    lines = [line for line in printed if line.startswith("skipped")]
    assert len(lines) == 11
    assert lines[1] == "skipped 'no picture 00.png' (not a picture in a known format)"
    assert lines[-1] == f"skipped 3 other files; {tmp_path / 'out' / 'skipped.csv'} lists all"
    assert len(read_csv(tmp_path / "out" / "skipped.csv")) == 13


def test_results_inside_the_source_are_not_read(shapes: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(shapes, source)
    base = ["cluster", str(source), "-k", "3", "--quiet"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert run([*base, "--sort", "copy", "--out", str(first)]) == 0
    shutil.move(first, source / "first")
    assert run([*base, "--out", str(second)]) == 0
    assert len(read_csv(second / "labels.csv")) == 60


@pytest.mark.filterwarnings("always::sklearn.exceptions.ConvergenceWarning")
def test_fewer_clusters_than_asked_are_announced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = np.repeat(make_shifted_shapes(3, n_classes=3, image_shape=(12, 12), random_state=0).images, 6, axis=0)
    export(np.clip(images, 0, 1), tmp_path / "pictures")
    assert run(["cluster", str(tmp_path / "pictures"), "-k", "5", "-o", str(tmp_path / "out"), "-q"]) == 0
    assert one_sentence(capsys).startswith("tubal: 5 clusters were asked for, but only 3 could be told apart")
    assert len({row["cluster"] for row in read_csv(tmp_path / "out" / "labels.csv")}) == 3
