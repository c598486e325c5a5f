"""Torture at scale: fits in chunks, on a cluster of processes, and what workers bring; see tests/torture.py."""

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
    """Return COIL20 and USPS as float32 stacks."""
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
            lines.append(
                f"{name} ({len(images)} images), α = {weight:g}, 5 chunks: {chunked / whole - 1:+.1e} of the objective"
            )
    return lines


def peak_memory(share: float) -> list[str]:
    """Measure the peak memory of fits in four chunks on real collections against the chunk's need."""
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
    """Compare a cluster of 4 processes with one process, and kill its workers."""
    import pytest

    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", str(HERE / "distributed" / "test_distributed.py"), "--no-header"]
    )
    if code != 0:
        raise AssertionError("the cluster's tests failed; see above")
    lines = ["Dask: 4 worker processes, killed workers (in the fit, in the graph), a lost scheduler: all as promised"]
    return lines if "TUBAL_DATA" not in os.environ else lines + _cluster_objectives(share)


def _cluster_objectives(share: float) -> list[str]:
    """Compare the objective of 4 worker processes with that of one process, both settled."""
    from distributed import Client, LocalCluster
    from tubal.distributed import fit

    lines = []
    cluster = LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with cluster, Client(cluster) as client:
        for name, stack in _collections():
            images = stack[:: max(1, round(len(stack) / 480))]
            for weight, most in ((0.0, 1e-6), (1.0, 1e-3)):
                # Codes nearly exact in every alternation: with five steps the cluster's rounds bring it further.
                model = tubal.GTSC(
                    graph_weight=weight, random_state=0, max_iter=round(40 * max(share, 0.2)), tol=0.0,
                    code_solver=Admm(max_iter=20),
                )  # fmt: skip
                alone = model.fit(images).objective_[-1]
                apart = fit(model, images, client).objective_[-1] / alone - 1
                line = f"{name} ({len(images)} images), α = {weight:g}, 4 workers: {apart:+.1e} of the objective"
                if share >= 1 and abs(apart) > most:
                    raise AssertionError(f"{line}: more than {most:g}")
                lines.append(line)
    return lines


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
