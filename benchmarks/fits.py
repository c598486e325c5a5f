"""Whole fits: GTSC against UMAP and scikit-learn's dictionary learning, the first use, and the coding steps."""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tubal
from benchmarks.timing import Row, seconds, timed
from tubal import GTSC
from tubal.datasets import fetch, make_shifted_shapes
from tubal.experiments.tables import load_paper
from tubal.solvers import Admm

FloatArray = NDArray[np.floating[Any]]


# --- against UMAP ----------------------------------------------------------------------------------------------
_GTSC_PROGRAM = """
from tubal.datasets import fetch
from tubal import GTSC
GTSC({n_atoms}, random_state=0).fit(fetch({name!r}).images)
"""
_UMAP_PROGRAM = """
from tubal.datasets import fetch
import umap
umap.UMAP(n_neighbors=10, min_dist=0.0, n_components=10, n_jobs=-1).fit(fetch({name!r}).data)
"""


def gtsc_against_umap(repeats: int, names: Sequence[str]) -> list[Row]:
    """Compare a GTSC fit at the paper's settings with UMAP on the same images, in new processes and warm.

    A new process pays for imports and for loading or compiling kernels. A warm fit repeats one in the same process.
    """
    rows = []
    for name in names:
        own = _GTSC_PROGRAM.format(name=name, n_atoms=load_paper()[name].n_atoms)
        peer = _UMAP_PROGRAM.format(name=name)
        pairs = [(_seconds_of_program(own), _seconds_of_program(peer)) for _ in range(repeats)]
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        warm, warm_peer = _warm_seconds(name, repeats)
        rows.append(
            {
                "problem": name,
                "seconds": ours,
                "UMAP seconds": theirs,
                "ratio": theirs / ours,
                "target": 1.0,
                "warm seconds": warm,
                "warm UMAP seconds": warm_peer,
                "warm ratio": warm_peer / warm,
            }
        )
    return rows


def _warm_seconds(name: str, repeats: int) -> tuple[float, float]:
    """Return median seconds of a GTSC fit and of UMAP in this process, each after a first fit that is not timed."""
    import umap

    bunch, n_atoms = fetch(name), load_paper()[name].n_atoms
    works = (
        lambda: GTSC(n_atoms, random_state=0).fit(bunch.images),
        lambda: umap.UMAP(n_neighbors=10, min_dist=0.0, n_components=10, n_jobs=-1).fit(bunch.data),
    )
    medians = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for work in works:
            work()
            medians.append(statistics.median(seconds(work) for _ in range(repeats)))
    return medians[0], medians[1]


def _seconds_of_program(program: str) -> float:
    return _seconds_of_command(["-W", "ignore", "-c", program])


def _seconds_of_command(arguments: Sequence[str], **settings: str) -> float:
    """Return how long a new Python process takes with these arguments and environment variables."""
    command, environment = [sys.executable, *arguments], {**os.environ, **settings}
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True, env=environment))


# --- against dictionary learning -------------------------------------------------------------------------------
# Where both are stopped; None is their own stopping rule. GTSC counts alternations, the peer passes over the images.
ALTERNATIONS = (1, 2, 5, None)
PASSES = (1, 3, None)


class PeerSettings(NamedTuple):
    """How the peer is run."""

    algorithm: str
    jobs: int | None


# The fastest of these counts.
PEER_SETTINGS = tuple(PeerSettings(algorithm, jobs) for algorithm in ("lars", "cd") for jobs in (None, 2))

Score = tuple[float, float]  # mean and standard deviation of the accuracy, in percent
Stages = dict[int | None, tuple[float, Score]]  # seconds and score, by where the fit was stopped


def gtsc_against_dictionary_learning(names: Sequence[str], repeats: int = 10) -> list[Row]:
    """Compare GTSC with MiniBatchDictionaryLearning, at the paper's 128 or 256 atoms, by time and score.

    Rows of unit length go to K-means. GTSC's accuracy is a mean over ``repeats`` fits, each with its own seed; the
    peer is fitted once, and its accuracy is a mean over ten seeds of K-means. Set-up is included. First both run
    with their own stopping rule. Then GTSC is stopped as soon as it clusters better than the peer, for the converged
    peer and for the peer stopped early. GTSC's seconds are medians of successive fits; the peer runs once per setting.
    """
    rows = []
    for name in names:
        theirs, peer_settings = _peer_stages(name)
        ours = _gtsc_stages(name, repeats)
        rows.append({**_comparison(name, ours[None], theirs[None], peer_settings, "all"), "target": 5.0})
        for passes in reversed(PASSES):
            stop = first_better(ours, theirs[passes][1][0])
            peer = "converged peer" if passes is None else f"peer after {passes} pass{'es' if passes > 1 else ''}"
            title = f"{name}, GTSC stopped once better than the {peer}"
            row = _comparison(title, ours[stop], theirs[passes], peer_settings, stop or "all")
            rows.append({**row, "target when stopped": 5.0} if passes is None else row)
    return rows


def first_better(stages: Stages, score: float) -> int | None:
    """Return the fastest stage with a score above ``score``; the last stage (None) if there is none."""
    better = [stop for stop, (_, found) in stages.items() if found[0] > score]
    return min(better, key=lambda stop: stages[stop][0], default=None)


def _gtsc_stages(name: str, repeats: int) -> Stages:
    """Return GTSC's median seconds and its score for every number of alternations."""
    bunch, n_atoms = fetch(name), load_paper()[name].n_atoms
    GTSC(n_atoms, random_state=0, max_iter=2).fit(bunch.images[:100])  # compile the kernels
    stages: Stages = {}
    for stop in ALTERNATIONS:
        models = [GTSC(n_atoms, random_state=seed) for seed in range(repeats)]
        if stop is not None:
            models = [model.set_params(max_iter=stop) for model in models]
        measured = [timed(partial(model.fit_transform, bunch.images)) for model in models]
        # One K-means for each fit: the spread of many K-means on one fit would hide that of the fits.
        scores = [_cluster_accuracy(bunch.target, features, seed) for seed, (_, features) in enumerate(measured)]
        deviation = statistics.stdev(scores) if repeats > 1 else 0.0
        stages[stop] = statistics.median(taken for taken, _ in measured), (statistics.mean(scores), deviation)
    return stages


def _peer_stages(name: str) -> tuple[Stages, str]:
    """Return the peer's seconds and score for every number of passes, with its fastest settings, and these."""
    bunch, n_atoms = fetch(name), load_paper()[name].n_vector_atoms
    converged = {settings: timed(partial(_peer_codes, bunch.data, n_atoms, settings)) for settings in PEER_SETTINGS}
    fastest = min(converged, key=lambda settings: converged[settings][0])
    found: dict[int | None, tuple[float, FloatArray]] = {None: converged[fastest]}
    for passes in PASSES[:-1]:
        found[passes] = timed(partial(_peer_codes, bunch.data, n_atoms, fastest, passes))
    stages = {stop: (taken, _accuracy(bunch.target, features)) for stop, (taken, features) in found.items()}
    return stages, f"{fastest.algorithm}, n_jobs={fastest.jobs or 1}"


def _peer_codes(rows: FloatArray, n_atoms: int, settings: PeerSettings, passes: int | None = None) -> FloatArray:
    """Return scikit-learn's sparse codes of rows scaled to unit length."""
    from sklearn.decomposition import MiniBatchDictionaryLearning

    rows = rows / (rows**2).sum(1, keepdims=True) ** 0.5
    model = MiniBatchDictionaryLearning(
        n_atoms, alpha=0.01, fit_algorithm=settings.algorithm, transform_algorithm="lasso_cd", transform_alpha=0.01,
        random_state=0, n_jobs=settings.jobs, **({} if passes is None else {"max_iter": passes}),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns for every image whose coordinate descent has not converged
        return np.asarray(model.fit(rows).transform(rows))


def _comparison(
    title: str, ours: tuple[float, Score], theirs: tuple[float, Score], peer_settings: str, alternations: int | str
) -> Row:
    return {
        "problem": title, "alternations": alternations, "seconds": ours[0], "peer seconds": theirs[0],
        "peer settings": peer_settings, "accuracy": _show(ours[1]), "peer accuracy": _show(theirs[1]),
        "ratio": theirs[0] / ours[0],
    }  # fmt: skip


def _show(score: Score) -> str:
    return f"{score[0]:.1f} ± {score[1]:.1f}"


def _accuracy(target: NDArray[np.integer[Any]], features: FloatArray) -> Score:
    """Return mean and standard deviation of the accuracy of K-means over ten seeds, in percent."""
    scores = [_cluster_accuracy(target, features, seed) for seed in range(10)]
    return statistics.mean(scores), statistics.stdev(scores)


def _cluster_accuracy(target: NDArray[np.integer[Any]], features: FloatArray, seed: int) -> float:
    """Return the accuracy of K-means on rows of unit length, in percent."""
    from sklearn.cluster import KMeans

    from tubal.metrics import clustering_accuracy
    from tubal.problems.layout import unit_rows

    model = KMeans(len(set(target.tolist())), n_init=10, random_state=seed)
    return 100 * clustering_accuracy(target, model.fit_predict(unit_rows(features)))


# --- the first use ---------------------------------------------------------------------------------------------
_FIRST_FIT_PROGRAM = """
from tubal import GTSC
from tubal.datasets import load_digits_images
GTSC(10, random_state=0).fit(load_digits_images().images[:200])
"""


def first_use(repeats: int = 3) -> list[Row]:
    """Measure small fits and runs of the program with an empty and with a filled cache of compiled kernels.

    Python's own bytecode is there from the beginning, as after an installation with pip.
    """
    rows = []
    compileall.compile_dir(Path(tubal.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        pictures = _write_digits(Path(folder) / "pictures", 200)
        cluster = ["-m", "tubal", "cluster", pictures, "--force", "--out"]
        for name, program, *limits in (
            ("first fit", ["-c", _FIRST_FIT_PROGRAM], 10.0, 2.0),
            ("tubal cluster, 200 pictures", [*cluster, f"{folder}/out"], 12.0, 4.0),
            ("tubal cluster --views shape", [*cluster, f"{folder}/shape", "--views", "shape"], 12.0, 4.0),
            ("tubal demo", ["-m", "tubal", "demo", "--out", f"{folder}/demo", "--force"], 8.0, None),
        ):
            caches = [f"{folder}/{name} {number}" for number in range(repeats)]
            # Each run with an empty cache, and then each with what that run has left there.
            found = [
                statistics.median(_seconds_of_command(program, NUMBA_CACHE_DIR=cache) for cache in caches)
                for _ in range(2)
            ]
            for state, taken, limit in zip(("nothing compiled", "kernels cached"), found, limits, strict=True):
                rows.append({"problem": f"{name}, {state}", "seconds": taken} | ({"limit": limit} if limit else {}))
    return rows


def _write_digits(folder: Path, n_pictures: int) -> str:
    """Write handwritten digits, enlarged four times, as PNG files; return the folder."""
    from PIL import Image
    from sklearn.datasets import load_digits

    folder.mkdir()
    for number, digit in enumerate(load_digits().images[:n_pictures]):
        Image.fromarray(np.uint8(255 * digit / 16)).resize((32, 32)).save(folder / f"{number:03d}.png")
    return str(folder)


# --- photographs -----------------------------------------------------------------------------------------------
_MEGAPIXELS = 8.0


def photographs(name: str = "flowers") -> list[Row]:
    """Measure ``tubal cluster`` on a pile of photographs of 8 megapixels, in new processes with compiled kernels.

    The pile is an archive in the folder that the variable TUBAL_PILES names; its pictures are enlarged.
    """
    pile = Path(os.environ["TUBAL_PILES"]) / f"{name}.zip"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        n_pictures = _enlarge(pile, Path(folder) / "pictures")
        _enlarge(pile, Path(folder) / "few", at_most=40)
        for title, views, limit in (
            ("without the network", "shape,colour,texture", 20.0),
            ("with the network", "auto", 90.0),
        ):
            command = ["-m", "tubal", "cluster", "--views", views, "--out", f"{folder}/out {title}"]
            # The first run compiles what is not in the cache.
            _, taken = (_seconds_of_command([*command, f"{folder}/{part}", "--force"]) for part in ("few", "pictures"))
            rows.append({"problem": f"{n_pictures} {name}, {title}", "seconds": taken, "limit": limit})
    return rows


def _enlarge(archive: Path, folder: Path, at_most: int | None = None) -> int:
    """Write the pictures of an archive as JPEG files of about 8 megapixels; return their number."""
    from PIL import Image

    folder.mkdir()
    with zipfile.ZipFile(archive) as pile:
        names = [name for name in pile.namelist() if name.lower().endswith((".jpg", ".jpeg", ".png"))][:at_most]
        for number, name in enumerate(names):
            picture = Image.open(pile.open(name)).convert("RGB")
            factor = (1e6 * _MEGAPIXELS / (picture.width * picture.height)) ** 0.5
            size = (round(factor * picture.width), round(factor * picture.height))
            picture.resize(size, Image.Resampling.BILINEAR).save(folder / f"{number:04d}.jpg", quality=85)
    return len(names)


# --- the coding steps of a fit ---------------------------------------------------------------------------------
# Steps of each coding step, and the penalty at the default sparsity 0.01.
STEPS_AND_PENALTIES = ((5, 1.5), (5, 3.0), (5, 5.0), (5, 8.0), (3, 3.0), (3, 5.0))
EARLY = 3

Course = list[tuple[float, float]]  # seconds and objective after every alternation


def steps_and_penalty(names: Sequence[str]) -> list[Row]:
    """Measure seconds and objective of a default GTSC fit for several numbers of coding steps and penalties."""
    rows = []
    for name in names:
        _fit_course(name, *STEPS_AND_PENALTIES[0])  # compile the kernels and read the images
        courses = {choice: _fit_course(name, *choice) for choice in STEPS_AND_PENALTIES}
        best_early = min(_objective_after(course, EARLY) for course in courses.values())
        best_late = min(course[-1][1] for course in courses.values())
        for (steps, penalty), course in courses.items():
            rows.append(
                {
                    "problem": name, "steps": steps, "penalty": penalty, "alternations": len(course),
                    "seconds": course[-1][0], "objective": course[-1][1],
                    f"% above the best after {EARLY} alternations":
                        100 * (_objective_after(course, EARLY) / best_early - 1),
                    "% above the best at the end": 100 * (course[-1][1] / best_late - 1),
                }
            )  # fmt: skip
    return rows


def _fit_course(name: str, steps: int, penalty: float) -> Course:
    """Return seconds and objective after every alternation of a default GTSC fit, without its final codes."""
    images, course, began = _images_of(name), [], time.perf_counter()
    collections = load_paper().collections
    GTSC(
        collections[name].n_atoms if name in collections else 45,
        code_solver=Admm(max_iter=steps, tol=1e-3, penalty=penalty),
        random_state=0,
        callbacks=lambda progress: course.append((time.perf_counter() - began, progress.objective)),
    ).fit(images)
    return course


def _images_of(name: str) -> FloatArray:
    bunch = make_shifted_shapes(n_samples=500, random_state=0) if name == "shapes" else fetch(name)
    return np.asarray(bunch.images)


def _objective_after(course: Course, n_alternations: int) -> float:
    """Return the objective after some alternations, or after the last if there are fewer."""
    return course[min(n_alternations, len(course)) - 1][1]
