"""The search, the atlas and the frozen protocol: plans, rules and pages."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.exceptions import ConvergenceWarning

from helpers.experiment_records import make_record
from tools.best_score_search import FILES, text_of
from tubal import cli
from tubal.cli.reproduce import reproduce
from tubal.experiments import atlas, finals, protocol, search, table2
from tubal.experiments.methods import CODERS, pool_codes, table_graph
from tubal.experiments.runner import run_trial


# --- the search ------------------------------------------------------------------------------------------------
def test_every_method_tries_the_same_number_of_settings():
    assert {len(search.grid(method)) for method in search.METHODS} == {72}


def test_search_keeps_what_the_paper_states():
    for method in CODERS:
        assert not {"graph_weight", "n_atoms", "pca_variance"} & set(search.grid(method)[0])


def test_search_seeds_are_not_those_of_the_table():
    seeds = {trial["run"] for trial in search.plan(["orl"], ["kmeans"], 10)}
    assert not seeds & set(range(10))


def test_one_fit_serves_both_kinds_of_features():
    planned = search.plan(["orl"], ["gtsc"], 1)
    records = [make_record(trial, variants={"plain": {"accuracy": 40.0, "nmi": 40.0}}) for trial in planned]

    summary = search.summarise(records)

    assert len(planned) == 36
    assert [entry["setting"] for entry in summary["trials"]] == list(range(72))
    assert summary["trials"][1]["accuracy"] == 40.0


def test_ranking_is_by_the_mean_of_both_scores():
    planned = search.plan(["orl"], ["kmeans"], 1)
    planned += [{**trial, "run": 101} for trial in planned]
    records = [make_record(trial, accuracy=50.0) for trial in planned]
    for entry in records:
        if entry["settings"]["kmeans_pca"] == 0.9:
            entry["accuracy"] += 2 if entry["seed"] == 100 else 0
        if entry["settings"]["kmeans_pca"] == 0.8:
            entry["accuracy"], entry["nmi"] = entry["accuracy"] + 3, entry["nmi"] - 3

    finalists = search.summarise(records)["finalists"]["kmeans"]["orl"]

    assert len(finalists) == 6
    assert finalists[0]["changes"]["kmeans_pca"] == 0.9
    assert finalists[0]["setting"] == 3, "ties go to the earlier setting"
    assert finalists[0]["accuracy"] == 51.0


def test_ranking_uses_seeds_that_every_setting_has():
    records = [make_record(trial) for trial in search.plan(["orl"], ["kmeans"], 1)]
    lucky = {**search.plan(["orl"], ["kmeans"], 1)[-1], "run": 101}

    summary = search.summarise([*records, make_record(lucky, accuracy=99.0)])

    assert summary["finalists"]["kmeans"]["orl"][0]["setting"] == 0


def test_every_method_has_six_finalists():
    chosen = finals.read_toml("finalists.toml")
    assert set(chosen) == set(search.METHODS)
    assert {len(set(places)) for cells in chosen.values() for places in cells.values()} == {6}
    assert all(set(cells) == set(search.DATASETS) for cells in chosen.values())


def test_final_seeds_are_used_nowhere_else():
    seeds = {trial["run"] for trial in finals.plan(["orl"], ["kmeans"], 10)}
    assert len(seeds) == 4
    assert not seeds & {trial["run"] for trial in search.plan(["orl"], ["kmeans"], 10)}
    assert not seeds & set(range(10))


def test_finals_leave_out_features_that_are_not_among_the_finalists():
    planned = finals.plan(["orl"], ["gtsc"], 1)
    records = [make_record(trial, variants={"plain": {"accuracy": 99.0, "nmi": 99.0}}) for trial in planned]

    ranked = finals.summarise(records)["ranking"]["gtsc"]["orl"]

    chosen = finals.read_toml("finalists.toml")["gtsc"]["orl"]
    assert {setting["setting"] for setting in ranked} == set(chosen)
    assert ranked[0]["changes"]["features"] == "plain"


def test_log_has_one_trial_a_line(tmp_path):
    records = [make_record(trial) for trial in search.plan(["orl"], ["kmeans"], 1)]

    path = search.write(records, tmp_path)[0]

    assert sum(line.startswith('  {"dataset"') for line in path.read_text().splitlines()) == 72
    assert json.loads(path.read_text())["finalists"]["kmeans"]["orl"][0]["setting"] == 0


@pytest.mark.parametrize("stage", FILES)
def test_package_holds_what_the_log_selects(stage):
    log, path = FILES[stage]
    if not log.exists():
        pytest.skip("the search has not run yet")
    assert path.read_text(encoding="utf-8") == text_of(stage), f"run python -m tools.best_score_search {stage}"


# --- the atlas -------------------------------------------------------------------------------------------------
def test_atlas_changes_one_setting_at_a_time():
    base = table2.settings_for("label-free", "gtsc", "orl")
    for trial in atlas.plan(["orl"], ["gtsc"], 1):
        changed = {name for name, value in trial["settings"].items() if base.get(name) != value}
        assert len(changed) <= 1


def test_curves_share_the_label_free_trial():
    records = [make_record(trial, details={"gap": 1e-4, "density": 0.1}) for trial in atlas.plan(["orl"], ["gtsc"], 2)]

    curves = atlas.summarise(records)["curves"]

    assert set(curves) == set(atlas.SWEEPS)
    assert [point["value"] for point in curves["tube_axis"]["orl"]["gtsc"]] == [-1, -2]
    assert curves["final_steps"]["orl"]["gtsc"][-1]["value"] is None
    assert all(point["runs"] == 2 for by_dataset in curves.values() for point in by_dataset["orl"]["gtsc"])
    assert "![ORL: score against each setting](figures/atlas-orl.png)" in atlas.page(atlas.summarise(records))


def test_heat_weights_fall_with_the_distance(rng):
    images = np.cumsum(rng.random((12, 1, 1)), axis=0) * np.ones((12, 4, 4))
    settings = {"scale": "pixels", "n_neighbors": 2}

    binary, heat = (table_graph(images, {**settings, "edges": name}).adjacency.toarray() for name in ("binary", "heat"))

    distance = np.abs(images[:, 0, 0][:, None] - images[:, 0, 0])
    edges = np.argwhere(binary)
    order = np.argsort(distance[tuple(edges.T)])
    assert (np.diff(heat[tuple(edges[order].T)]) <= 1e-6).all()
    assert ((heat > 0) == (binary > 0)).all()


def test_unknown_pooling_raises():
    class Coder:
        def by_atom(self, codes):
            return codes

    codes = np.array([[[3.0, -4.0]]])
    assert pool_codes(Coder(), codes, "sum").tolist() == [[7.0]]
    assert pool_codes(Coder(), codes, "max").tolist() == [[4.0]]
    with pytest.raises(ValueError, match="choose 'norm', 'sum' or 'max'"):
        pool_codes(Coder(), codes, "median")


# --- the frozen protocol ---------------------------------------------------------------------------------------
def test_frozen_settings_do_not_depend_on_the_images():
    trials = protocol.plan(["a", "b"], list(protocol.METHODS), 1)
    half = len(trials) // 2
    assert [trial["settings"] for trial in trials[:half]] == [trial["settings"] for trial in trials[half:]]
    assert len(protocol.hash_of_defaults()) == 16


@pytest.fixture
def labelled_file(tmp_path, rng):
    """48 images of three patterns with their labels, in an array file."""
    target = np.repeat([0, 1, 2], 16)
    images = rng.random((3, 8, 8))[target] + 0.05 * rng.random((48, 8, 8))
    path = tmp_path / "patterns.npz"
    np.savez(path, images=images, labels=target)
    return path


@pytest.fixture
def labelled_folder(tmp_path, rng):
    """48 pictures of three patterns in a folder with one sub-folder for each class."""
    from PIL import Image

    patterns = rng.integers(0, 200, (3, 12, 12))
    for index in range(48):
        path = tmp_path / "pictures" / "abc"[index % 3] / f"{index:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((patterns[index % 3] + rng.integers(0, 20, (12, 12))).astype(np.uint8)).save(path)
    return tmp_path / "pictures"


def run_protocol(out, *arguments):
    options = ("--table", "protocol", "--out", out, "--runs", 1, "--jobs", 1)
    return CliRunner().invoke(reproduce, [str(argument) for argument in (*options, *arguments)])


def test_protocol_takes_folders_and_array_files(labelled_folder, labelled_file, tmp_path):
    out, methods = tmp_path / "out", ("--methods", "kmeans,tubsc,unseen-pixels,unseen-pca")

    result = run_protocol(out, *methods, "--images", labelled_folder, "--images", labelled_file)

    assert result.exit_code == 0, result.output
    summary = json.loads((out / "protocol.json").read_text())
    assert list(summary["clustering"]) == ["pictures", "patterns"]
    assert summary["sizes"]["pictures"] == {"images": 48, "height": 12, "width": 12, "classes": 3}
    assert summary["clustering"]["patterns"]["tubsc"]["certificate"]["gap"] <= 1e-3
    assert summary["unseen"]["pictures"]["pixels"]["neighbors"] == [100.0, 0.0]
    assert protocol.hash_of_defaults() in result.output
    assert str(tmp_path) not in (out / "protocol.md").read_text() + (out / "protocol.json").read_text()
    assert protocol.page(summary) == (out / "protocol.md").read_text()


def test_protocol_page_keeps_methods_of_earlier_commands(labelled_file, tmp_path):
    for methods in ("kmeans", "unseen-pixels"):
        run_protocol(tmp_path / "out", "--methods", methods, "--images", labelled_file)

    summary = json.loads((tmp_path / "out" / "protocol.json").read_text())
    assert "kmeans" in summary["clustering"]["patterns"]
    assert "pixels" in summary["unseen"]["patterns"]


def test_protocol_never_reuses_trials_of_other_images(labelled_file, tmp_path):
    methods = ("--methods", "kmeans", "--images", labelled_file)
    run_protocol(tmp_path / "out", *methods)
    content = dict(np.load(labelled_file))

    np.savez(labelled_file, images=content["images"], labels=np.roll(content["labels"], 5))
    result = run_protocol(tmp_path / "out", *methods)

    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "out" / "protocol.json").read_text())
    assert summary["clustering"]["patterns"]["kmeans"]["accuracy"][0] < 100.0


def test_protocol_says_what_is_wrong_with_bad_input(labelled_folder, labelled_file, tmp_path, rng, capsys):
    images = rng.random((50, 8, 8))
    (labelled_folder / "loose.png").write_bytes((labelled_folder / "a" / "00.png").read_bytes())
    files = {"unlabelled": {}, "one": {"labels": np.zeros(50, int)}, "short": {"labels": np.arange(49)}}
    for name, labels in files.items():
        np.savez(tmp_path / f"{name}.npz", images=images, **labels)
    np.savez(tmp_path / "few.npz", images=images[:10], labels=np.arange(10) % 2)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "patterns.npz").write_bytes(labelled_file.read_bytes())
    cases = {
        "come without labels; give a folder whose pictures all lie in sub-folders": [labelled_folder],
        "unlabelled.npz' come without labels": [tmp_path / "unlabelled.npz"],
        "short.npz' come without labels": [tmp_path / "short.npz"],
        "one.npz' have the label 0; give images of at least two classes": [tmp_path / "one.npz"],
        "has 10 images; half of them are for fitting, so give at least 40": [tmp_path / "few.npz"],
        "two of the sources are called 'patterns'": [labelled_file, tmp_path / "copy" / "patterns.npz"],
    }
    for message, paths in cases.items():
        named = [part for path in paths for part in ("--images", str(path))]

        code = cli.run(
            ["reproduce", "--table", "protocol", "--methods", "kmeans", "--out", str(tmp_path / "out"), *named]
        )

        assert code == 2, message
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert message in lines[0]
        assert not (tmp_path / "out" / "protocol.md").exists()


@pytest.mark.parametrize("side", [5, 8])
def test_every_feature_fits_small_images(rng, side):
    images = rng.random((30, side, side))
    for name in protocol._TITLES:
        settings = protocol.settings_for(f"unseen-{name}")
        model = protocol.feature_model(name, settings, 0, images.shape)
        if hasattr(model, "max_iter"):
            model.set_params(max_iter=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            features = np.asarray(model.fit(images).transform(images))
        assert features.shape[0] == 30
        assert np.isfinite(features).all()


@pytest.mark.parametrize("method", ["unseen-pixels", "unseen-pca", "unseen-tubsc"])
def test_features_of_unseen_images_are_classified(labelled_file, method):
    trial = protocol.plan([str(labelled_file)], [method], 1)[0]
    trial["settings"] = {**trial["settings"], **({} if method == "unseen-pixels" else {"n_atoms": 6})}

    record = run_trial(trial)

    assert record["details"]["linear"] == 100.0
    assert record["details"]["neighbors"] == 100.0
    assert record["accuracy"] == 100.0
    if method == "unseen-tubsc":
        assert record["variants"]["circle, right, 4"]["nmi"] == pytest.approx(record["nmi"])
    else:
        assert record["variants"]["circle, right, 4"]["nmi"] < 100.0
