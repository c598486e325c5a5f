"""Stress tests with full counts: killed processes, damaged files, generated fits, large fits, Dask clusters.

``python -m tests.torture`` writes results/torture.md. ``--share 0.1`` runs a tenth of the counts, and
``--only kills,files`` runs only these parts.
"""

from __future__ import annotations

import argparse
import collections
import os
import platform
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import torture_scale  # noqa: E402
import tubal  # noqa: E402
from helpers import hostile, mutations  # noqa: E402

RESULTS = HERE.parent / "results" / "torture.md"
COMMAND = (sys.executable, "-c", "from tubal.cli import main; main()")
FIXTURE = HERE / "data" / "format_1.tubal"


def mutated_files(share: float) -> list[str]:
    """Load damaged and forged model files."""
    count = round(5000 * share)
    expected = tubal.load(FIXTURE)

    def check_same(model: object) -> None:
        np.testing.assert_array_equal(model.atoms_, expected.atoms_)
        np.testing.assert_array_equal(model.codes_, expected.codes_)
        given = expected.get_params(deep=False)
        if any(not np.all(value == given[name]) for name, value in model.get_params(deep=False).items()):
            raise AssertionError("a parameter changed without an error")

    with tempfile.TemporaryDirectory() as folder:
        counts = mutations.try_mutations(FIXTURE.read_bytes(), count, Path(folder), 1, check_same)
    parts = ", ".join(f"{number} {name}" for name, number in counts.items())
    return [f"{count} damaged or forged model files: {parts}; 0 loaded with wrong contents, 0 crashed"]


def forged_models(share: float) -> list[str]:
    """Load and use models with changed values and correct checksums, in child processes with limits."""
    from helpers import forgeries

    count = round(5000 * share)
    with tempfile.TemporaryDirectory() as folder:
        models = forgeries.small_models(Path(folder))
        work = Path(folder) / "work"
        work.mkdir()
        counts = forgeries.try_forgeries(models, count, work, 1)
    wrong = [name for name in counts if name not in ("refused", "clear error", "used")]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {count} forged models: {'; '.join(wrong)}")
    return [
        f"{count} forged models with correct checksums ({', '.join(sorted(models))}): {counts['refused']} refused with "
        f"one sentence, {counts['clear error']} with one when used, {counts['used']} used with finite results; none "
        f"crashed, took over {forgeries.SECONDS:g} s or over {forgeries.MEMORY >> 20} MB"
    ]


def generated_fits(share: float) -> list[str]:
    """Let Hypothesis search for a fit that fails."""
    from hypothesis import HealthCheck, given, settings

    count, found = round(2000 * share), collections.Counter()

    @settings(
        max_examples=count, deadline=None, derandomize=False, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(hostile.fits())
    def search(case: object) -> None:
        found[hostile.check_fit(case)] += 1

    search()
    return [
        f"{sum(found.values())} generated fits: {found['result']} results, {found['error']} clear errors; "
        "no NaN, no rising objective, no atom outside the ball, no other exception"
    ]


def hostile_matrix(share: float) -> list[str]:
    """Fit every estimator on every kind of bad input."""
    lines = []
    for name in hostile.ESTIMATORS:
        found = collections.Counter(hostile.outcome(name, case) for case in hostile.CASES)
        lines.append(f"{name}: {found['result']} right results, {found['error']} clear errors")
    return [f"{len(hostile.CASES)} classes of input · " + "; ".join(lines)]


def killed_fits(share: float) -> list[str]:
    """Kill fits at random moments and resume them."""
    from helpers.kills import kill_and_resume

    lines, images = [], np.random.default_rng(0).random((40, 6, 5))
    for chunk, label in ((0, "in memory"), (9, "in chunks on disk")):
        kills = max(1, round(20 * share))
        model = tubal.GTSC(n_atoms=4, max_iter=40, tol=0.0, random_state=0).fit(images, chunk_size=chunk or None)
        with tempfile.TemporaryDirectory() as folder:
            found, hits = kill_and_resume(Path(folder), chunk, kills, 1)
        for name in ("atoms", "codes", "objective"):
            np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
        lines.append(f"fit {label}: {kills} × `kill -9` ({hits} while running), resumed fit bit for bit the same")
    return lines


def killed_clusterings(share: float) -> list[str]:
    """Kill ``tubal cluster`` on 5 000 pictures at random moments, and resume it each time."""
    from helpers.cli_helpers import export
    from helpers.kills import cluster_seconds
    from tubal.datasets import make_shifted_shapes

    kills, count, random = max(1, round(20 * share)), max(200, round(5000 * share)), np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shapes = make_shifted_shapes(count, n_classes=8, image_shape=(28, 28), random_state=0).images
        export(np.clip(shapes + 0.15 * random.random(shapes.shape), 0.0, 1.0), folder / "pictures")
        cluster_seconds(folder / "pictures", folder / "first")  # compiles kernels
        whole = cluster_seconds(folder / "pictures", folder / "whole")
        labels, ratios = (folder / "whole" / "labels.csv").read_bytes(), []
        for number in range(kills):
            out = folder / f"killed {number}"
            spent = cluster_seconds(folder / "pictures", out, kill_after=float(random.uniform(0.0, whole)))
            if not out.exists():
                spent += cluster_seconds(folder / "pictures", out, "--resume")
            if (out / "labels.csv").read_bytes() != labels:
                raise AssertionError(f"other labels after kill {number}")
            ratios.append(spent / whole)
    return [
        f"`tubal cluster` on {count} pictures: {kills} × `kill -9`, same labels each time; time with the resumed run "
        f"{np.mean(ratios):.2f} times that of an undisturbed one ({whole:.0f} s), at most {max(ratios):.2f} times"
    ]


def killed_saves(share: float) -> list[str]:
    """Kill saves at random moments."""
    from helpers.kills import SAVE_FOREVER

    kills, random = max(1, round(20 * share)), np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tubal"
        tubal.save(tubal.load(FIXTURE), path)
        for _ in range(kills):
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(SAVE_FOREVER), str(FIXTURE), str(path)], stdout=subprocess.PIPE
            )
            process.stdout.readline()
            time.sleep(float(random.uniform(0.0, 0.2)))
            process.send_signal(signal.SIGKILL)
            process.wait()
            tubal.load(path)
    return [f"save: {kills} × `kill -9`, the file could be loaded every time"]


def killed_reproduce(share: float) -> list[str]:
    """Kill ``tubal reproduce`` at random moments; the table must equal that of an undisturbed run."""
    if "TUBAL_DATA" not in os.environ:
        return ["reproduce: not run, TUBAL_DATA is not set"]
    kills, random = max(1, round(20 * share)), np.random.default_rng(2)
    options = [
        "--table",
        "2",
        "--datasets",
        "yale",
        "--methods",
        "kmeans,tubsc",
        "--runs",
        "2",
        "--jobs",
        "1",
        "--no-figures",
    ]
    with tempfile.TemporaryDirectory() as folder:
        hits = 0
        for number in range(kills + 1):
            last = number == kills
            command = [*COMMAND, "reproduce", *options, "--out", f"{folder}/killed"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if not last:
                time.sleep(float(random.uniform(0.5, 6.0)))
                process.send_signal(signal.SIGKILL)
            error = process.communicate()[1]
            hits += process.returncode == -signal.SIGKILL
            if last and process.returncode != 0:
                raise AssertionError(error.decode()[-400:])
        whole = [*COMMAND, "reproduce", *options, "--out", f"{folder}/whole"]
        subprocess.run(whole, check=True, capture_output=True)
        scores = [_scores(Path(folder) / name) for name in ("killed", "whole")]
    if scores[0] != scores[1]:
        raise AssertionError(f"the table differs after kills: {scores}")
    return [f"reproduce: {kills} × `kill -9` ({hits} while running), same table as in an undisturbed run"]


def _scores(folder: Path) -> dict[str, tuple[float, float]]:
    """Return the scores of every trial; a line that is not JSON would be a half-written file."""
    import json

    lines = (folder / ".trials" / "table2.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in lines if line.strip()]
    return {trial["key"]: (trial["accuracy"], trial["nmi"]) for trial in trials}


def hint_sequences(share: float) -> list[str]:
    """Do random sequences of hints, updates, removals, saves and loads, and check all facts after every step."""
    from helpers.hint_sequences import run_sequence, small_collection

    count, found = max(1, round(1000 * share)), collections.Counter()
    fitted, extra = small_collection()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            found += run_sequence(fitted, extra, 1000 + seed, Path(folder))
    done = ", ".join(f"{number} {name}" for name, number in sorted(found.items()))
    return [f"{count} random sequences of hints ({done}): all hints held after every step, refusals changed nothing"]


def killed_hints(share: float) -> list[str]:
    """Kill ``tubal ask``, ``refine`` and ``add`` at random moments."""
    from helpers.hint_sequences import killed_commands

    kills = max(3, round(60 * share))
    with tempfile.TemporaryDirectory() as folder:
        hits = killed_commands(Path(folder), kills, 1)
    return [f"ask, refine, add: {kills} × `kill -9` ({hits} while running), no answer lost, results whole every time"]


def full_disk(share: float) -> list[str]:
    """Write to a full disk."""
    import pytest

    code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE), "-k", "full_disk", "--no-header"])
    if code != 0:
        raise AssertionError("the tests of a full disk failed; see above")
    return ["full disk (RLIMIT_FSIZE): save and checkpoint raise a clear error, the previous file stays intact"]


PARTS: dict[str, Callable[[float], list[str]]] = {
    "files": mutated_files,
    "forged": forged_models,
    "fits": generated_fits,
    "matrix": hostile_matrix,
    "kills": killed_fits,
    "clusterings": killed_clusterings,
    "saves": killed_saves,
    "reproduce": killed_reproduce,
    "hints": hint_sequences,
    "answers": killed_hints,
    "disk": full_disk,
    "streaming": torture_scale.streamed_objectives,
    "memory": torture_scale.peak_memory,
    "dask": torture_scale.cluster_of_processes,
    "speed": torture_scale.two_workers,
}


def _findings(record: Path) -> str:
    """Return the hand-written sections below the figures of the previous results, which are kept."""
    previous = record.read_text(encoding="utf-8") if record.exists() else ""
    start = previous.find("\n## ")
    return previous[start:] if start >= 0 else ""


def main() -> None:
    """Run the chosen parts and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = [
        "# Stress tests",
        "",
        f"`python -m tests.torture --share {options.share:g}` on {platform.system()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores.",
        "",
    ]
    failed = False
    for name in options.only.split(","):
        began = time.perf_counter()
        try:
            found = PARTS[name](options.share)
        except Exception as error:  # the other parts still run, and the failure is recorded
            found, failed = [f"**{name} FAILED**: {type(error).__name__}: {str(error)[:300]}"], True
        lines += [f"- {line} ({time.perf_counter() - began:.0f} s)" for line in found]
        sys.stderr.write("\n".join(lines[-len(found) :]) + "\n")
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n" + _findings(options.out), encoding="utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
