"""The search behind the best-score rows of Table 2: settings tried for every coder, with the score each reached.

It looks at labels, as the paper must have done; only the rows called "best score" use what it found, and none of the
library's defaults does. ``python -m benchmarks.best_score_search OUT.jsonl [SECONDS] [PROCESSES]`` tries the settings
in random order until the time is over and appends one JSON line a trial.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

CODERS = {"sc": (False, False), "graphsc": (False, True), "tubsc": (True, False), "gtsc": (True, True)}
SCALES = ("unit", "pixels")
STARTS = ("images", "random")
FRACTIONS = (0.0003, 0.003, 0.01, 0.03, 0.1, 0.2)  # sparsity as a share of the mean length of what is coded
ALTERNATIONS = (3, 10, 20)


def jobs() -> list[tuple[Any, ...]]:
    """Return every setting to try, shuffled; the large collection gets the middle of the grid only."""
    small = list(
        itertools.product(("orl", "yale", "coil20"), CODERS, SCALES, FRACTIONS, STARTS, ALTERNATIONS, (0,))
    ) + list(itertools.product(("orl", "yale", "coil20"), CODERS, SCALES, FRACTIONS, STARTS, (10,), (1,)))
    large = list(itertools.product(("usps",), CODERS, SCALES, FRACTIONS[2:], STARTS, (10,), (0,)))
    both = small + large
    random.Random(0).shuffle(both)
    return both


def score(job: tuple[Any, ...]) -> str:
    """Fit one coder with one setting and return its scores with plain and with unit feature rows, as JSON."""
    from tubal.datasets import fetch
    from tubal.experiments.models import cluster_rows, fit_coder
    from tubal.experiments.table2 import settings_for
    from tubal.metrics import clustering_accuracy, clustering_nmi

    name, method, scale, fraction, init, max_iter, seed = job
    bunch = fetch(name)
    settings = dict(settings_for("label-free", method, name))
    settings.update(scale=scale, sparsity_fraction=fraction, init=init, max_iter=max_iter)
    tubal, graph = CODERS[method]
    began = time.time()
    model, features = fit_coder(bunch.images, settings, seed, tubal=tubal, graph=graph)
    scores = []
    for rows in ("unit", "plain"):
        labels = cluster_rows(features, len(set(bunch.target.tolist())), {**settings, "features": rows}, seed)
        scores.append((rows, clustering_accuracy(bunch.target, labels), clustering_nmi(bunch.target, labels)))
    return json.dumps({"job": job, "sparsity": model.sparsity, "scores": scores, "seconds": time.time() - began})


def main(out: str, seconds: str = "600", processes: str = "2") -> None:
    """Try settings until the time is over."""
    os.environ["OMP_NUM_THREADS"] = "1"
    end = time.time() + float(seconds)
    with get_context("spawn").Pool(int(processes)) as pool, Path(out).open("a") as lines:
        for line in pool.imap_unordered(score, jobs()):
            lines.write(line + "\n")
            lines.flush()
            if time.time() > end:
                pool.terminate()
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
