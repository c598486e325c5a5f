"""The benchmarks: targets are judged by the stored figures, and stages of a fit are compared by score."""

from __future__ import annotations

import gzip
import json
import subprocess

import pytest

from benchmarks import __main__ as program
from benchmarks import fits, large, timing
from benchmarks.pages import SECTIONS, TARGETS, bench_page, gpu_targets, target_table


def test_target_fails_if_one_figure_misses_it():
    rows = [
        {"problem": "orl, 200 images, float32", "ratio": 30.0, "target": 20.0},
        {"problem": "usps, graph weight 1", "ratio": 19.9, "target": 20.0},
    ]
    table = target_table({"tables": {"sporco": rows}})
    assert "| orl: 30; usps, graph weight 1: 19.9 | at least 20 | **no** |" in table


def test_target_is_met_when_its_limit_is_reached():
    row = {"problem": "a", "peak / codes": 2.0, "limit": 2.0}
    assert target_table({"tables": {"memory": [row]}}).endswith("| a: 2 | at most 2 | yes |")


def test_faster_fit_with_a_worse_score_misses_the_target():
    row = {"ratio": 9.0, "target": 5.0, "peer accuracy": "60.0 ± 2.0"}
    better = {**row, "problem": "orl", "accuracy": "61.0 ± 1.0"}
    worse = {**row, "problem": "yale", "accuracy": "59.0 ± 1.0"}
    without_target = {"problem": "orl, GTSC stopped once better than the peer after 1 pass", "ratio": 4.0}

    met = target_table({"tables": {"dictionary learning": [better, without_target]}})
    missed = target_table({"tables": {"dictionary learning": [better, worse]}})

    assert "| orl: 9 | at least 5 | yes |" in met
    assert "orl: 4" not in met
    assert "| orl: 9; yale: 9 | at least 5 | **no** |" in missed


def test_fastest_stage_above_the_score_is_found():
    stages = {1: (0.5, (50.0, 1.0)), 5: (1.0, (60.0, 1.0)), None: (4.0, (58.0, 1.0))}
    assert fits.first_better(stages, 55.0) == 5
    assert fits.first_better(stages, 40.0) == 1
    assert fits.first_better(stages, 70.0) is None


def test_every_target_belongs_to_a_section():
    assert {target.section for target in TARGETS} <= set(SECTIONS)


def test_gpu_targets_list_only_what_was_measured():
    record = {"graph": [{"seconds": 4.0}]}
    row = {"measured": "deformable graph of USPS, seconds", "result": 4.0, "target": "at most 3.0", "met": "**no**"}
    assert gpu_targets(record) == [row]


def test_missing_collection_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        large.fashion_mnist()


def test_other_images_are_not_measured(monkeypatch, tmp_path):
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (tmp_path / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(bytes(16 + 784)))
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path))
    with pytest.raises(ValueError, match="are not Fashion-MNIST"):
        large.fashion_mnist()


# --- a killed run ----------------------------------------------------------------------------------------------
def test_search_is_measured_from_its_first_report_to_the_end_of_it(monkeypatch, tmp_path):
    clock = iter([10.0, 12.0, 17.0, 20.0])  # the start, both reports of the search, and the end
    monkeypatch.setattr(large.time, "process_time", lambda: next(clock))
    watch = large.Watch(tmp_path)
    for stage, done in (("reading", 5), ("finding neighbours", 0), ("finding neighbours", 3)):
        watch.follow(stage, done, 3)
    spent = watch.spent()
    assert (spent["processor seconds"], spent["search processor seconds"]) == (10.0, 5.0)
    assert watch.shares == [0.0, 1.0]


def test_run_is_killed_a_little_after_half_of_the_search(monkeypatch, tmp_path):
    killed = []
    monkeypatch.setattr(large.os, "kill", lambda *signals: killed.append(signals))
    monkeypatch.setattr(large, "_SECONDS_LEFT", 0.05)
    watch = large.Watch(tmp_path, die_at=0.5)
    watch.follow("finding neighbours", 4, 10)
    assert watch.end is None
    watch.follow("finding neighbours", 5, 10)
    assert not killed
    watch.follow("finding neighbours", 6, 10)
    watch.end.join()
    assert len(killed) == 1
    assert json.loads((tmp_path / "killed.json").read_text())["done"] == 0.6


@pytest.mark.parametrize(("kept", "lost"), [(0.4, 1000), (0.5, 0), (0.6, 0)])
def test_lost_images_were_reported_and_are_searched_again(monkeypatch, tmp_path, kept, lost):
    spent = {"seconds": 1.0, "processor seconds": 2.0, "search processor seconds": 1.5, "peak MB": 100.0}
    (tmp_path / "killed.json").write_text(json.dumps({"done": 0.5, **spent}))
    second = {"problem": "10000 images", "images": 10_000, **spent, "done after resuming": kept}
    monkeypatch.setattr(large, "call_in_new_process", lambda *_, **__: dict(second))

    row = large.killed_and_resumed(str(tmp_path))

    assert row["lost images"] == lost
    assert [row[name] for name in spent] == [2.0, 4.0, 3.0, 100.0]
    table = target_table({"tables": {"million": [row]}})
    assert f"found again | 10000 images, killed and resumed: {lost} | at most 4096 | yes |" in table


# --- the record ------------------------------------------------------------------------------------------------
def git(folder, *command):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *command], cwd=folder, check=True, capture_output=True)


def test_record_names_the_commit_and_says_if_the_code_was_changed(tmp_path):
    assert timing.commit(tmp_path) is None

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "code.py").write_text("a = 1\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "results.md").write_text("not code")
    name = timing.commit(tmp_path)
    assert len(name) >= 7
    assert name.isalnum()

    (tmp_path / "src" / "code.py").write_text("a = 2\n")
    assert timing.commit(tmp_path) == f"{name} with changes"


def test_variable_names_the_commit_of_code_without_its_history(tmp_path, monkeypatch):
    monkeypatch.setenv("TUBAL_COMMIT", "abc1234")
    assert timing.commit(tmp_path) == "abc1234"


def test_page_names_the_commit_of_every_section():
    place = {"date": "2026-11-19", "processor": "one", "cores": 2, "versions": {}, "load before": 0.3}
    record = {
        "quick": False,
        "measured": {"sporco": {**place, "commit": "abc1234"}, "encode": place},
        "tables": {"sporco": [], "encode": []},
        "curves": {},
    }
    page = bench_page(record)
    assert "Machine 1, 2026-11-19, commit abc1234; load before: 0.3." in page
    assert "Machine 1, 2026-11-19; load before: 0.3." in page


# --- the program -----------------------------------------------------------------------------------------------
def run_benchmarks(monkeypatch, folder, measurements, *options):
    monkeypatch.setattr(program, "MEASUREMENTS", measurements)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--out", str(folder), *options])
    program.main()
    return json.loads((folder / "bench.json").read_text(encoding="utf-8"))


def measured(seconds):
    return program.Measurement(lambda: [{"problem": "a", "seconds": seconds}])


def test_interrupted_run_keeps_the_record_of_sections_it_has_not_reached(monkeypatch, tmp_path):
    def stop():
        raise KeyboardInterrupt

    both = {"sporco": measured(1.0), "encode": measured(1.0)}
    before = run_benchmarks(monkeypatch, tmp_path, both, "--only", "sporco,encode")
    monkeypatch.setattr(program, "environment", lambda: {**before["measured"]["sporco"], "processor": "another"})

    stopped = {"sporco": measured(2.0), "encode": program.Measurement(stop)}
    with pytest.raises(KeyboardInterrupt):
        run_benchmarks(monkeypatch, tmp_path, stopped, "--only", "sporco,encode")

    after = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert after["tables"]["sporco"][0]["seconds"] == 2.0
    assert after["measured"]["sporco"]["processor"] == "another"
    assert after["measured"]["encode"] == before["measured"]["encode"]
    page = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert "\n1. another, " in page
    assert "Machine 1, " in page


def test_sections_for_many_cores_keep_their_record_on_a_small_machine(monkeypatch, tmp_path, capsys):
    many = {"sporco": measured(1.0), "threads": program.Measurement(measured(1.0).full, least_cores=8)}
    monkeypatch.setattr(program, "thread_count", lambda: 16)
    run_benchmarks(monkeypatch, tmp_path, many)

    monkeypatch.setattr(program, "thread_count", lambda: 2)
    changed = {"sporco": measured(2.0), "threads": program.Measurement(measured(2.0).full, least_cores=8)}
    after = run_benchmarks(monkeypatch, tmp_path, changed)

    assert [after["tables"][name][0]["seconds"] for name in ("sporco", "threads")] == [2.0, 1.0]
    with pytest.raises(SystemExit):
        run_benchmarks(monkeypatch, tmp_path, changed, "--only", "threads")
    assert "threads: this machine has 2 cores; 8 are needed" in capsys.readouterr().err


@pytest.mark.parametrize("folder", [None, "missing"])
def test_missing_folder_of_a_section_is_named_before_anything_is_measured(folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--only", "photographs", "--out", str(tmp_path)])
    monkeypatch.delenv("TUBAL_PILES", raising=False)
    if folder is not None:
        monkeypatch.setenv("TUBAL_PILES", str(tmp_path / folder))
    monkeypatch.setattr(program, "environment", pytest.fail)
    with pytest.raises(SystemExit) as error:
        program.main()
    assert error.value.code == 2
    assert "photographs: the variable TUBAL_PILES names no folder" in capsys.readouterr().err
