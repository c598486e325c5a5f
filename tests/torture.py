"""Stress tests with full counts: killed processes, damaged files, generated fits, large fits, Dask clusters.

``python -m tests.torture --jobs 16`` writes a record of every part, results/torture/<part>.json, and the page of all
records, results/torture.md. ``--share 0.1`` runs a tenth of the counts, ``--only kills,files`` only these parts.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import torture_processes  # noqa: E402
import torture_scale  # noqa: E402
import tubal  # noqa: E402
from helpers import hostile, mutations  # noqa: E402
from torture_processes import PROGRAM, Workers  # noqa: E402
from tubal.storage.files import machine, versions  # noqa: E402

Record = dict[str, Any]

RESULTS = HERE.parent / "results" / "torture.md"
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
            command = [*PROGRAM, "reproduce", *options, "--out", f"{folder}/killed"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if not last:
                time.sleep(float(random.uniform(0.5, 6.0)))
                process.send_signal(signal.SIGKILL)
            error = process.communicate()[1]
            hits += process.returncode == -signal.SIGKILL
            if last and process.returncode != 0:
                raise AssertionError(error.decode()[-400:])
        whole = [*PROGRAM, "reproduce", *options, "--out", f"{folder}/whole"]
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


def killed_pages(share: float) -> list[str]:
    """Do random acts in ``tubal open`` over HTTP, and kill the server in between and at work."""
    from helpers.live_server import clustered_shapes, kill_between_acts

    acts, kills = max(20, round(1000 * share)), max(2, round(50 * share))
    with tempfile.TemporaryDirectory() as folder:
        found = kill_between_acts(clustered_shapes(Path(folder)), n_acts=acts, n_kills=kills, seed=1)
    return [
        f"open: {found['accepted']} random acts over HTTP ({found['refused']} more were refused), {found['kills']} × "
        f"`kill -9` between them and {found['kills at work']} × at work: the state after each restart was that before"
    ]


def full_disk(share: float) -> list[str]:
    """Write to a full disk."""
    import pytest

    code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE), "-k", "full_disk", "--no-header"])
    if code != 0:
        raise AssertionError("the tests of a full disk failed; see above")
    return ["full disk (RLIMIT_FSIZE): save and checkpoint raise a clear error, the previous file stays intact"]


# Parts that are one task of one process.
SINGLE_PARTS: dict[str, Callable[[float], list[str]]] = {
    "files": mutated_files,
    "fits": generated_fits,
    "matrix": hostile_matrix,
    "kills": killed_fits,
    "saves": killed_saves,
    "reproduce": killed_reproduce,
    "hints": hint_sequences,
    "answers": killed_hints,
    "open": killed_pages,
    "disk": full_disk,
    "streaming": torture_scale.streamed_objectives,
    "memory": torture_scale.peak_memory,
    "dask": torture_scale.cluster_of_processes,
    "speed": torture_scale.two_workers,
}
# Parts that share their work between the worker processes.
SHARED_PARTS: dict[str, Callable[[Workers], list[str]]] = {
    "forged": torture_processes.forged_models,
    "signals": torture_processes.random_signals,
    "pairs": torture_processes.concurrent_pairs,
    "clusterings": torture_processes.killed_clusterings,
    "consistency": torture_processes.consistent_answers,
}
PARTS = (*SHARED_PARTS, *SINGLE_PARTS)


def run_part(name: str, workers: Workers) -> Record:
    """Run one part and return its record; a failure is recorded, so that the other parts still run."""
    try:
        if name in SHARED_PARTS:
            lines = SHARED_PARTS[name](workers)
        else:
            (lines,) = workers.map(SINGLE_PARTS[name], [workers.share])
        failed = False
    except Exception as error:
        lines, failed = [f"**{name} FAILED**: {type(error).__name__}: {str(error)[:2000]}"], True
    return {
        "lines": lines, "failed": failed, "seconds": round(workers.seconds), "share": workers.share,
        "jobs": workers.count, "seed": workers.seed, "commit": commit(), "machine": machine(), "versions": versions(),
    }  # fmt: skip


def commit() -> str:
    """Return the commit of the source, from TUBAL_COMMIT where there is no repository."""
    asked = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=7"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False) if shutil.which("git") else None
    return os.environ.get("TUBAL_COMMIT") or (found.stdout.strip() if found and found.returncode == 0 else "unknown")


def write_page(records: Path, page: Path) -> None:
    """Write the page from the records of all parts; the hand-written sections of the previous page are kept."""
    found = {name: json.loads((records / f"{name}.json").read_text()) for name in PARTS if _has_record(records, name)}
    settings = {name: _describe_setting(record) for name, record in found.items()}
    kinds = list(dict.fromkeys(settings.values()))
    lines = ["# Stress tests", "", "Written by `python -m tests.torture`. The letter after a line is its run:", ""]
    lines += [f"- {chr(ord('a') + number)}: {kind}" for number, kind in enumerate(kinds)]
    lines += ["", "Seconds are those of all worker processes together.", ""]
    for name, record in found.items():
        letter = chr(ord("a") + kinds.index(settings[name]))
        lines += [f"- {line} ({letter}, {record['seconds']} s)" for line in record["lines"]]
    text = "\n".join(lines) + "\n" + _findings(page)
    page.write_text(text, encoding="utf-8")


def _has_record(records: Path, name: str) -> bool:
    return (records / f"{name}.json").exists()


def _describe_setting(record: Record) -> str:
    """Return machine, versions, seed, commit and options of a record in one line."""
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    place = f"{record['machine']['processor']}, {record['machine']['cores']} cores"
    return (
        f"`--share {record['share']:g} --jobs {record['jobs']} --seed {record['seed']}` at commit {record['commit']}; "
        f"{place}; {packages}"
    )


def _findings(record: Path) -> str:
    """Return the hand-written sections below the figures of the previous results, which are kept."""
    previous = record.read_text(encoding="utf-8") if record.exists() else ""
    start = previous.find("\n## ")
    return previous[start:] if start >= 0 else ""


def main() -> None:
    """Run the chosen parts and write their records and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of the full counts")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts of {', '.join(PARTS)}")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS, help="page; its records are in a folder beside it")
    parser.add_argument("--page", action="store_true", help="only write the page, from the records there are")
    options = parser.parse_args()
    names, records = [] if options.page else options.only.split(","), options.out.with_suffix("")
    if unknown := set(names) - set(PARTS):
        parser.error(f"there is no part {sorted(unknown)[0]!r}; choose from {', '.join(PARTS)}")
    records.mkdir(parents=True, exist_ok=True)
    # Worker processes and all that they start have one thread each.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    failed = False
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for name in names:
            record = run_part(name, Workers(pool, options.jobs, options.share, options.seed))
            failed |= record["failed"]
            (records / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            sys.stderr.write("\n".join(record["lines"]) + f" ({record['seconds']} s)\n")
    write_page(records, options.out)
    sys.exit(failed)


if __name__ == "__main__":
    main()
