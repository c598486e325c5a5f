"""Stress tests of large fits: in chunks, within a memory limit, on a Dask cluster. See tests/torture.py."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np

import tubal
from helpers.peak_memory import peak_of
from tubal.solvers import Admm

HERE = Path(__file__).parent
NO_COLLECTIONS = "not run, TUBAL_DATA is not set"


def _collections() -> list[tuple[str, np.ndarray]]:
    """Return COIL20 and USPS as stacks in single precision."""
    from tubal.datasets import fetch_coil20, fetch_usps

    return [
        (name, np.asarray(fetch().images, np.float32))
        for name, fetch in (("COIL20", fetch_coil20), ("USPS", fetch_usps))
    ]


def streamed_objectives(share: float) -> list[str]:
    """Compare fits in chunks with fits in memory on real collections."""
    if "TUBAL_DATA" not in os.environ:
        return [f"streaming on collections: {NO_COLLECTIONS}"]
    lines = []
    for name, stack in _collections():
        images = stack[: round(10_000 * max(share, 0.1))]
        for weight in (0.0, 1.0):
            model = tubal.GTSC(graph_weight=weight, random_state=0)
            whole = model.fit(images).objective_[-1]
            chunked = model.fit(images, chunk_size=len(images) // 5 + 1).objective_[-1]
            if chunked > 1.01 * whole:
                raise AssertionError(f"{name}, α = {weight}: {chunked} in chunks, {whole} in memory")
            setting = f"{name} ({len(images)} images), α = {weight:g}, 5 chunks"
            lines.append(f"{setting}: objective {chunked / whole - 1:+.1e} relative to the fit in memory")
    return lines


def peak_memory(share: float) -> list[str]:
    """Compare the peak memory of fits in four chunks on real collections with the estimate for a chunk."""
    if "TUBAL_DATA" not in os.environ:
        return [f"peak memory on collections: {NO_COLLECTIONS}"]
    lines = []
    for name, images in _collections():
        for weight in (0.0, 1.0):
            chunk = len(images) // 4 + 1
            with tempfile.TemporaryDirectory() as folder:
                peak, need = peak_of(images, Path(folder), chunk=chunk, weight=weight, n_atoms=45)
            share_of_need = peak / need.for_images(chunk)
            line = f"{name}, α = {weight:g}, 4 chunks: peak {peak / 2**20:.0f} MB, {share_of_need:.2f} of the need"
            if share_of_need > 1.2:
                raise AssertionError(f"{line}: over 1.2")
            lines.append(line)
    return lines


def cluster_of_processes(share: float) -> list[str]:
    """Run the tests of the Dask cluster, and compare 4 worker processes with one process."""
    import pytest

    code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE / "distributed"), "--no-header"])
    if code != 0:
        raise AssertionError("the tests of the cluster failed; see above")
    lines = ["Dask: 4 worker processes, workers killed (in the fit, in the graph), a lost scheduler: all tests pass"]
    return lines if "TUBAL_DATA" not in os.environ else lines + _cluster_objectives(share)


def _cluster_objectives(share: float) -> list[str]:
    """Compare the objective of 4 worker processes with that of one process, both converged."""
    from distributed import Client, LocalCluster

    from tubal.distributed import fit

    lines = []
    cluster = LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with cluster, Client(cluster) as client:
        for name, stack in _collections():
            images = stack[:: max(1, round(len(stack) / 480))]
            for weight, limit in ((0.0, 1e-6), (1.0, 1e-3)):
                # Nearly exact codes in every iteration. With the default of five steps the cluster would be ahead,
                # because its exchange rounds make more progress.
                model = tubal.GTSC(
                    graph_weight=weight, random_state=0, max_iter=round(40 * max(share, 0.2)), tol=0.0,
                    code_solver=Admm(max_iter=20),
                )  # fmt: skip
                one_process = model.fit(images).objective_[-1]
                difference = fit(model, images, client).objective_[-1] / one_process - 1
                setting = f"{name} ({len(images)} images), α = {weight:g}, 4 workers"
                line = f"{setting}: objective {difference:+.1e} relative to one process"
                if share >= 1 and abs(difference) > limit:
                    raise AssertionError(f"{line}: more than {limit:g}")
                lines.append(line)
    return lines


FIT_A_PART = """
    import sys, time, numpy as np, tubal
    images = np.load(sys.argv[1])[int(sys.argv[2]) :: int(sys.argv[3])]
    tubal.TubSC(n_atoms=4, max_iter=1).fit(images[:40])  # compile
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    tubal.TubSC(n_atoms=32, max_iter=6, tol=0.0, random_state=0).fit(images)
    print(time.perf_counter() - began, flush=True)
"""


def _slowest_fit(path: Path, parts: int) -> float:
    """Fit each part of the images in its own one-thread process, all at once; return the seconds of the slowest."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(FIT_A_PART), str(path), str(part), str(parts)],
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
    """Compare the speed-up of two one-thread Dask workers with that of two independent processes, alternately."""
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
                alone, halves = _slowest_fit(Path(folder) / "all.npy", 1), _slowest_fit(Path(folder) / "all.npy", 2)
                began = time.perf_counter()
                fit(tubal.TubSC(n_atoms=32, max_iter=6, tol=0.0, random_state=0), paths, client, gather=False)
                ratios.append((alone / halves, alone / (time.perf_counter() - began)))
    independent, workers = (float(np.median([pair[at] for pair in ratios])) for at in (0, 1))
    speedups = f"two independent processes {independent:.2f} ×, two Dask workers {workers:.2f} ×"
    line = f"{n_images} images, speed-up over one process: {speedups}"
    if workers < 0.8 * independent:
        raise AssertionError(f"{line}: less than 0.8 of that")
    return [f"{line}, {workers / independent:.2f} of that (median of three)"]
