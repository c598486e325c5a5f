"""The search behind the best-score rows of Table 2: ``python -m tools.best_score_search OUT.jsonl``.

It tries many settings of every coder in random order until the time is over, and appends one JSON line per trial with
the scores. It looks at labels, as the paper must have done. Only the best-score rows use its results; no default of
the library does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import time
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tubal.experiments.methods import CODERS

SMALL = ("orl", "yale", "coil20")
SCALES = ("unit", "pixels")
STARTS = ("images", "random")
FRACTIONS = (0.0003, 0.003, 0.01, 0.03, 0.1, 0.2)  # sparsity as a fraction of the mean length of the coded rows
ALTERNATIONS = (3, 10, 20)


class Candidate(NamedTuple):
    """One setting to try."""

    dataset: str
    method: str
    scale: str
    sparsity_fraction: float
    init: str
    max_iter: int
    seed: int


def candidates() -> list[Candidate]:
    """Return every setting to try, shuffled; USPS, the large collection, gets a smaller grid."""
    grids = [
        itertools.product(SMALL, CODERS, SCALES, FRACTIONS, STARTS, ALTERNATIONS, (0,)),
        itertools.product(SMALL, CODERS, SCALES, FRACTIONS, STARTS, (10,), (1,)),
        itertools.product(("usps",), CODERS, SCALES, FRACTIONS[2:], STARTS, (10,), (0,)),
    ]
    found = [Candidate(*values) for values in itertools.chain(*grids)]
    random.Random(0).shuffle(found)
    return found


def score(candidate: Candidate) -> str:
    """Fit one coder with one setting; return its scores, with plain and with unit feature rows, as JSON."""
    from tubal.datasets import fetch
    from tubal.experiments.methods import cluster_rows, fit_sparse_coder
    from tubal.experiments.table2 import settings_for
    from tubal.metrics import clustering_accuracy, clustering_nmi

    dataset, method, scale, fraction, init, max_iter, seed = candidate
    bunch = fetch(dataset)
    settings = settings_for("label-free", method, dataset)
    settings.update(scale=scale, sparsity_fraction=fraction, init=init, max_iter=max_iter)
    began = time.time()
    model, features = fit_sparse_coder(method, bunch.images, settings, seed)
    scores = []
    for rows in ("unit", "plain"):
        labels = cluster_rows(features, len(set(bunch.target.tolist())), {**settings, "features": rows}, seed)
        scores.append((rows, clustering_accuracy(bunch.target, labels), clustering_nmi(bunch.target, labels)))
    return json.dumps({"job": candidate, "sparsity": model.sparsity, "scores": scores, "seconds": time.time() - began})


def main() -> None:
    """Try settings until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tools.best_score_search", description=__doc__)
    parser.add_argument("out", type=Path, help="file of JSON lines to append to")
    parser.add_argument("--seconds", type=float, default=600.0, help="when to stop")
    parser.add_argument("--processes", type=int, default=2, help="settings tried at a time")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    end = time.time() + options.seconds
    with get_context("spawn").Pool(options.processes) as pool, options.out.open("a") as lines:
        for line in pool.imap_unordered(score, candidates()):
            lines.write(line + "\n")
            lines.flush()
            if time.time() > end:
                pool.terminate()
                break


if __name__ == "__main__":
    main()
