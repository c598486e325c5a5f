"""The full counts of kills, mutations and generated fits: ``python -m tests.torture``; results in results/torture.md.

``--share 0.1`` runs a tenth; ``--only kills,files`` some parts.
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

import hostile  # noqa: E402
import mutations  # noqa: E402
import tubal  # noqa: E402

RESULTS = HERE.parent / "results" / "torture.md"
COMMAND = (sys.executable, "-c", "from tubal.cli import main; main()")
FIXTURE = HERE / "data" / "format_1.tubal"


def mutated_files(share: float) -> list[str]:
    """Load mutated model files."""
    count = round(5000 * share)
    expected = tubal.load(FIXTURE)

    def same(model: object) -> None:
        np.testing.assert_array_equal(model.atoms_, expected.atoms_)
        np.testing.assert_array_equal(model.codes_, expected.codes_)
        given = expected.get_params(deep=False)
        if any(not np.all(value == given[name]) for name, value in model.get_params(deep=False).items()):
            raise AssertionError("a parameter changed silently")

    with tempfile.TemporaryDirectory() as folder:
        counts = mutations.try_mutations(FIXTURE.read_bytes(), count, Path(folder), 1, same)
    parts = ", ".join(f"{number} {name}" for name, number in counts.items())
    return [f"{count} mutated model files: {parts}; 0 loaded wrong, 0 crashed"]


def generated_fits(share: float) -> list[str]:
    """Let Hypothesis search for a fit that goes wrong."""
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
        f"{sum(found.values())} generated fits: {found['answer']} answers, {found['sentence']} refused in words; "
        "no NaN, no rising objective, no atom outside the ball, no other exception"
    ]


def hostile_matrix(share: float) -> list[str]:
    """Run every estimator on every hostile input."""
    lines = []
    for name in hostile.ESTIMATORS:
        found = collections.Counter(hostile.outcome(name, case) for case in hostile.CASES)
        lines.append(f"{name}: {found['answer']} right answers, {found['sentence']} clear sentences")
    return [f"{len(hostile.CASES)} classes of input · " + "; ".join(lines)]


def killed_fits(share: float) -> list[str]:
    """Kill fits at random moments and resume them."""
    from test_checkpoints import kill_and_resume

    lines, images = [], np.random.default_rng(0).random((40, 6, 5))
    for chunk, label in ((0, "in memory"), (9, "in chunks on disk")):
        kills = max(1, round(20 * share))
        model = tubal.GTSC(n_atoms=4, max_iter=40, tol=0.0, random_state=0).fit(images, chunk_size=chunk or None)
        with tempfile.TemporaryDirectory() as folder:
            found, hits = kill_and_resume(Path(folder), chunk, kills, 1)
        for name in ("atoms", "codes", "objective"):
            np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
        lines.append(f"fit {label}: {kills} × `kill -9` ({hits} hit it running), resumed bit for bit the same")
    return lines


def killed_saves(share: float) -> list[str]:
    """Kill saves at random moments."""
    from test_persistence import SAVE_FOREVER

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
    return [f"save: {kills} × `kill -9`, the file loaded every time"]


def killed_reproduce(share: float) -> list[str]:
    """Kill ``tubal reproduce`` at random moments; the table must be that of a run left alone."""
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
    return [f"reproduce: {kills} × `kill -9` ({hits} hit it running), the table is that of a run left alone"]


def _scores(folder: Path) -> dict[str, tuple[float, float]]:
    """Return every trial's scores; a line that is no JSON would mean a torn file."""
    import json

    lines = (folder / ".trials" / "table2.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in lines if line.strip()]
    return {trial["key"]: (trial["accuracy"], trial["nmi"]) for trial in trials}


def full_disk(share: float) -> list[str]:
    """Write where there is no room."""
    import pytest

    code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE), "-k", "full_disk", "--no-header"])
    if code != 0:
        raise AssertionError("a full disk was not handled; see above")
    return ["full disk (RLIMIT_FSIZE): save and checkpoint end in one sentence, the former file intact"]


def streamed_objectives(share: float) -> list[str]:
    """Compare fits in chunks with fits in memory on real collections."""
    if "TUBAL_DATA" not in os.environ:
        return ["streaming on collections: not run, TUBAL_DATA is not set"]
    from tubal.datasets import fetch_coil20, fetch_usps

    lines = []
    for name, fetch in (("COIL20", fetch_coil20), ("USPS", fetch_usps)):
        images = np.asarray(fetch().images, np.float32)[: round(3000 * max(share, 0.2))]
        for weight in (0.0, 1.0):
            model = tubal.GTSC(graph_weight=weight, random_state=0)
            whole = model.fit(images).objective_[-1]
            chunked = model.fit(images, chunk_size=len(images) // 5 + 1).objective_[-1]
            if chunked > 1.01 * whole:
                raise AssertionError(f"{name}, α = {weight}: {chunked} in chunks, {whole} in memory")
            lines.append(
                f"{name} ({len(images)} images), α = {weight:g}, 5 chunks: {chunked / whole - 1:+.1e} of the objective"
            )
    return lines


def cluster_of_processes(share: float) -> list[str]:
    """Compare a cluster of 4 processes with one process, and kill its workers."""
    import pytest

    code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE / "test_distributed.py"), "--no-header"])
    if code != 0:
        raise AssertionError("the cluster's tests failed; see above")
    return ["Dask: 4 worker processes, killed workers (in the fit, in the graph), a lost scheduler: all as promised"]


HALF = """
    import sys, time, numpy as np, tubal
    images = np.load(sys.argv[1])[int(sys.argv[2]) :: int(sys.argv[3])]
    tubal.TubSC(n_atoms=4, max_iter=1).fit(images[:40])  # compile
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    tubal.TubSC(n_atoms=32, max_iter=6, tol=0.0, random_state=0).fit(images)
    print(time.perf_counter() - began, flush=True)
"""


def _together(path: Path, parts: int) -> float:
    """Fit parts of the images in processes of one thread at the same time; return the seconds of the slowest."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HALF), str(path), str(part), str(parts)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for part in range(parts)
    ]  # fmt: skip
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return max(float(process.communicate()[0]) for process in processes)


def two_workers(share: float) -> list[str]:
    """Compare the speed-up of two one-thread workers with that of two independent processes, in turns."""
    from distributed import Client, LocalCluster

    from tubal.distributed import fit

    n_images = max(4000, round(16000 * share))
    with tempfile.TemporaryDirectory() as folder:
        images = np.random.default_rng(0).random((n_images, 24, 24)).astype(np.float32)
        paths = [Path(folder) / f"{part}.npy" for part in (0, 1)]
        np.save(Path(folder) / "all.npy", images)
        for part, path in enumerate(paths):
            np.save(path, images[part::2])
        ratios = []
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
        with cluster, Client(cluster) as client:
            fit(tubal.TubSC(n_atoms=4, max_iter=1), images[:80], client)
            for _ in range(3):
                alone, halves = _together(Path(folder) / "all.npy", 1), _together(Path(folder) / "all.npy", 2)
                began = time.perf_counter()
                fit(tubal.TubSC(n_atoms=32, max_iter=6, tol=0.0, random_state=0), paths, client, gather=False)
                ratios.append((alone / halves, alone / (time.perf_counter() - began)))
    independent, workers = (float(np.median([pair[at] for pair in ratios])) for at in (0, 1))
    line = f"{n_images} images: two independent processes {independent:.2f} ×, two Dask workers {workers:.2f} ×"
    if workers < 0.8 * independent:
        raise AssertionError(f"{line}: less than 0.8 of it")
    return [f"{line}, {workers / independent:.2f} of it (median of three turns)"]


PARTS: dict[str, Callable[[float], list[str]]] = {
    "files": mutated_files,
    "fits": generated_fits,
    "matrix": hostile_matrix,
    "kills": killed_fits,
    "saves": killed_saves,
    "reproduce": killed_reproduce,
    "disk": full_disk,
    "streaming": streamed_objectives,
    "dask": cluster_of_processes,
    "speed": two_workers,
}


def main() -> None:
    """Run the parts asked for and record what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = [
        "# Torture",
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
        except Exception as error:  # a part that fails is recorded, and the others still run
            found, failed = [f"**{name} FAILED**: {type(error).__name__}: {str(error)[:300]}"], True
        lines += [f"- {line} ({time.perf_counter() - began:.0f} s)" for line in found]
        sys.stderr.write("\n".join(lines[-len(found) :]) + "\n")
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
