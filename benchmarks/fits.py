"""Whole fits from a cold process against UMAP, and against scikit-learn's dictionary learning."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

from benchmarks.timing import timed

ATOMS = {"coil20": 45, "usps": 45, "orl": 45, "yale": 80}
PEER_ATOMS = {"coil20": 256, "usps": 128, "orl": 256, "yale": 128}

_GTSC = """
from tubal.datasets import fetch
from tubal import GTSC
GTSC({atoms}, random_state=0).fit(fetch({name!r}).images)
"""
_UMAP = """
from tubal.datasets import fetch
import umap
umap.UMAP(n_neighbors=10, min_dist=0.0, n_components=10, n_jobs=-1).fit(fetch({name!r}).data)
"""


def _cold(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True)
    return time.perf_counter() - began


def against_umap(repeats: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Seconds of a GTSC fit at the paper's setting and of UMAP on the same images, each in a fresh process."""
    rows = []
    for name in names:
        programs = _GTSC.format(name=name, atoms=ATOMS[name]), _UMAP.format(name=name)
        pairs = [(_cold(programs[0]), _cold(programs[1])) for _ in range(repeats)]
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        rows.append({"problem": name, "seconds": ours, "UMAP seconds": theirs, "ratio": theirs / ours, "wanted": 1.0})
    return rows


# Where both are stopped, None where they stop themselves: GTSC after so many alternations, the peer after so many
# passes over the images. And the ways to run the peer, of which the fastest counts.
ALTERNATIONS = (1, 2, 5, None)
PASSES = (1, 3, None)
WAYS = tuple((algorithm, jobs) for algorithm in ("lars", "cd") for jobs in (None, 2))


def against_dictionary_learning(names: tuple[str, ...], repeats: int = 3) -> list[dict[str, Any]]:
    """GTSC against MiniBatchDictionaryLearning at the paper's 128 or 256 atoms, by the score each has when it ends.

    Both give rows of unit length to K-means, whose accuracy is a mean over ten seeds; whatever it takes to set up is
    counted. First both as they come; then GTSC stopped as soon as it clusters better than the peer, at the peer's own
    end and where the peer is stopped early. GTSC's seconds are medians of fits in a row, the peer runs once each way.
    """
    rows = []
    for name in names:
        theirs, way = _peer_course(name)
        ours = _own_course(name, repeats)
        rows.append({**_compared(name, ours[None], theirs[None], way, "all"), "wanted": 5.0})
        for passes in reversed(PASSES):
            stop = _first_better(ours, theirs[passes][1][0])
            until = "to its end" if passes is None else f"stopped after {passes} passes"
            title = f"{name}, until better than the peer {until}"
            row = _compared(title, ours[stop], theirs[passes], way, stop or "all")
            rows.append({**row, "wanted so": 5.0} if passes is None else row)
    return rows


Course = dict[int | None, tuple[float, tuple[float, float]]]  # seconds and score by where it was stopped


def _first_better(course: Course, score: float) -> int | None:
    """Return where the course first has more than the score; its end where it never has, so that the row shows it."""
    better = [stop for stop, (_, found) in course.items() if found[0] > score]
    return min(better, key=lambda stop: course[stop][0], default=None)


def _own_course(name: str, repeats: int) -> Course:
    """Return GTSC's median seconds and its score for every number of alternations."""
    from tubal import GTSC
    from tubal.datasets import fetch

    bunch, course = fetch(name), {}
    GTSC(ATOMS[name], random_state=0, max_iter=2).fit(bunch.images[:100])
    for stop in ALTERNATIONS:
        model = GTSC(ATOMS[name], random_state=0, **({} if stop is None else {"max_iter": stop}))
        measured = [timed(lambda m=model: m.fit_transform(bunch.images)) for _ in range(repeats)]
        course[stop] = statistics.median(took for took, _ in measured), _accuracy(bunch.target, measured[0][1])
    return course


def _peer_course(name: str) -> tuple[Course, str]:
    """Return the peer's seconds and score for every number of passes, run in the way that is fastest to its end."""
    from tubal.datasets import fetch

    bunch = fetch(name)
    ends = {way: timed(lambda w=way: _learned(bunch.data, PEER_ATOMS[name], *w, None)) for way in WAYS}
    way = min(ends, key=lambda way: ends[way][0])
    course = {None: ends[way]}
    for passes in PASSES[:-1]:
        course[passes] = timed(lambda p=passes: _learned(bunch.data, PEER_ATOMS[name], *way, p))
    scored = {stop: (took, _accuracy(bunch.target, features)) for stop, (took, features) in course.items()}
    return scored, f"{way[0]}, {way[1] or 1} jobs"


def _compared(title: str, ours: Any, theirs: Any, way: str, alternations: Any) -> dict[str, Any]:
    return {
        "problem": title, "alternations": alternations, "seconds": ours[0], "dictionary learning seconds": theirs[0],
        "its way": way, "K-means accuracy": _shown(ours[1]), "dictionary learning's": _shown(theirs[1]),
        "ratio": theirs[0] / ours[0],
    }  # fmt: skip


def _shown(score: tuple[float, float]) -> str:
    return f"{score[0]:.1f} ± {score[1]:.1f}"


def _learned(rows: Any, n_atoms: int, algorithm: str, jobs: int | None, passes: int | None) -> Any:
    """Return scikit-learn's sparse codes of rows brought to unit length."""
    from sklearn.decomposition import MiniBatchDictionaryLearning

    rows = rows / (rows**2).sum(1, keepdims=True) ** 0.5
    model = MiniBatchDictionaryLearning(
        n_atoms, alpha=0.01, fit_algorithm=algorithm, transform_algorithm="lasso_cd", transform_alpha=0.01,
        random_state=0, n_jobs=jobs, **({} if passes is None else {"max_iter": passes}),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its coordinate descent has not converged, image after image
        return model.fit(rows).transform(rows)


def _accuracy(target: Any, features: Any) -> tuple[float, float]:
    """Return mean and standard deviation over ten seeds of K-means, in percent."""
    from sklearn.cluster import KMeans

    from tubal.metrics import clustering_accuracy
    from tubal.problems.layout import unit_rows

    rows, n_clusters = unit_rows(features), len(set(target.tolist()))
    labels = [KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(rows) for seed in range(10)]
    scores = [100 * clustering_accuracy(target, found) for found in labels]
    return statistics.mean(scores), statistics.stdev(scores)


def first_use(repeats: int = 3) -> list[dict[str, Any]]:
    """Seconds of the first small fit in a new process, with an empty and with a filled kernel cache."""
    import os
    import tempfile

    program = (
        "import time; began = time.perf_counter()\nfrom sklearn.datasets import load_digits\nfrom tubal import GTSC\n"
        "GTSC(10, random_state=0).fit(load_digits().images[:200].astype('float32'))\nprint(time.perf_counter() - began)"
    )
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        measured = []
        for _ in range(repeats + 1):
            done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=environment)
            measured.append(json.loads(done.stdout))
    rows.append({"problem": "first fit, nothing compiled", "seconds": measured[0], "at most": 10.0})
    rows.append({"problem": "first fit, kernels cached", "seconds": statistics.median(measured[1:]), "at most": 2.0})
    return rows
