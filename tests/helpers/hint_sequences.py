"""Random sequences of what a person may do to a clusterer, and the facts that must hold after every step."""

from __future__ import annotations

import copy
import csv
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import tubal
from helpers.cli_helpers import export
from tubal import ImageClusterer
from tubal.clustering import Hints
from tubal.datasets import make_shifted_shapes
from tubal.storage.journal import Journal

NAMES = ("circle", "cross", "bar", "ring")
STEPS = ("names", "names", "pairs", "contradiction", "forget", "update", "remove", "store", "questions")


def small_collection(n_images=60):
    """Return a fitted clusterer and images to add to it."""
    made = make_shifted_shapes(n_images + 30, n_classes=4, max_shift=1, noise=0.1, random_state=0)
    images = made.images[np.random.default_rng(1).permutation(len(made.images))]
    fitted = ImageClusterer(4, n_atoms=4, max_iter=1, random_state=0).fit(images[:n_images])
    return fitted, images[n_images:]


def check_facts(model):
    """Raise an error unless all hints hold and all fitted attributes fit each other."""
    labels, names, hints = model.labels_, model.names_, model.hints_
    n_images = len(labels)
    assert sorted(set(labels)) == list(range(model.n_clusters_)) == list(range(len(names)))
    said = [name for name in names if name is not None]
    assert len(said) == len(set(said))
    assert set(said) == set(hints.said)
    for image, name in hints.names.items():
        assert names[labels[image]] == name
    assert all(labels[i] == labels[j] for i, j in hints.same)
    assert all(labels[i] != labels[j] for i, j in hints.different)
    assert model.confidence_.shape == model.outliers_.shape == model.outlier_scores_.shape == (n_images,)
    assert all(graph.n_images == n_images for graph in model.view_graphs_.values())
    assert (model.confidence_[hints.mentioned] == 1.0).all()
    assert model.medoids_.shape == (model.n_clusters_,)
    assert n_images == model.graph_.n_images == len(model.features_) == len(model.model_.codes_)
    assert model.affinity_.shape == (n_images, n_images)


def state_of(model):
    return model.labels_.tolist(), list(model.names_), model.hints_, model.n_clusters_, len(model.features_)


def run_sequence(fitted, extra, seed, folder: Path, n_steps=8):
    """Do random steps to a copy of a fitted clusterer, check all facts after each, and count what was done."""
    rng, model, done = np.random.default_rng(seed), copy.copy(fitted), Counter()
    for step in rng.choice(STEPS, n_steps):
        before = state_of(model)
        try:
            model = globals()[f"_{step}"](model, rng, extra, folder) or model
            done[str(step)] += 1
        except ValueError:
            assert state_of(model) == before, "something changed although an error was raised"
            done["refused"] += 1
        check_facts(model)
    _check_undo(model, fitted, rng)
    return done


def _check_undo(model, fitted, rng):
    """Forgetting one hint gives what would be without it, and forgetting all gives no names."""
    hints = model.hints_
    if len(hints) == 0:
        return
    image = int(rng.choice(hints.mentioned))
    left, other = hints.without([image]), copy.copy(model)
    other.forget(other.hints_.mentioned).refine(left.names, same=left.same, different=left.different)
    model.forget([image])
    np.testing.assert_array_equal(model.labels_, other.labels_)
    check_facts(model)
    model.forget(model.hints_.mentioned)
    assert len(model.hints_) == 0
    assert set(model.names_) == {None}


def _pick(model, rng, n):
    return [int(image) for image in rng.choice(len(model.labels_), n, replace=False)]


def _names(model, rng, extra, folder):
    model.refine({image: str(rng.choice(NAMES)) for image in _pick(model, rng, int(rng.integers(1, 4)))})


def _pairs(model, rng, extra, folder):
    a, b, c, d = _pick(model, rng, 4)
    model.refine(same=[(a, b)] if rng.random() < 0.6 else (), different=[(c, d)] if rng.random() < 0.6 else ())


def _contradiction(model, rng, extra, folder):
    a, b = _pick(model, rng, 2)
    kind = rng.integers(3)
    if kind == 0:
        model.refine({a: "circle", b: "cross"}, same=[(a, b)])
    elif kind == 1:
        model.refine(same=[(a, b)], different=[(b, a)])
    else:
        model.refine({a: "circle", b: "circle"}, different=[(a, b)])
    raise AssertionError("a contradiction was accepted")


def _forget(model, rng, extra, folder):
    hinted = model.hints_.mentioned
    if len(hinted):
        model.forget([int(image) for image in rng.choice(hinted, min(2, len(hinted)), replace=False)])


def _update(model, rng, extra, folder):
    hints, names = model.hints_, set(model.names_)
    n_old = len(model.labels_)
    model.update(extra[rng.choice(len(extra), int(rng.integers(1, 6)), replace=False)])
    assert model.hints_ == hints
    assert names - {None} <= set(model.names_)
    assert len(model.labels_) > n_old


def _remove(model, rng, extra, folder):
    gone = _pick(model, rng, 3)
    hints = model.hints_.without(gone)
    model.remove(gone)
    assert sorted(model.hints_.said) == sorted(hints.said)
    assert len(model.hints_) == len(hints)


def _store(model, rng, extra, folder):
    path = folder / "model.tubal"
    tubal.save(model, path)
    loaded = tubal.load(path)
    assert state_of(loaded) == state_of(model)
    assert isinstance(loaded.hints_, Hints)
    return loaded


def _questions(model, rng, extra, folder):
    asked = model.questions(5)
    assert len(set(asked.tolist())) == len(asked) == 5
    assert not set(asked.tolist()) & set(model.hints_.mentioned.tolist())
    assert 0 <= model.n_doubtful_ <= len(model.labels_)


# --- killed commands -------------------------------------------------------------------------------------
COMMAND = (sys.executable, "-c", "from tubal.cli import main; main()")


def killed_commands(folder: Path, kills: int, seed: int) -> int:
    """Kill ``ask``, ``refine`` and ``add`` at random moments, and return how many kills hit them running.

    After every kill, all answers that were given are in the journal, and the results are whole.
    """
    rng, hits = np.random.default_rng(seed), 0
    made = make_shifted_shapes(40 + kills, n_classes=3, image_shape=(12, 12), random_state=0)
    export(made.images[:40], folder / "pictures")
    out = folder / "out"
    subprocess.run([*COMMAND, "cluster", str(folder / "pictures"), "-k", "3", "-o", str(out), "-q"], check=True)
    expected: set[str] = set()
    for number in range(kills):
        command = ("ask", "refine", "add")[number % 3]
        if command == "add":
            export(made.images[40 + number : 41 + number], folder / f"more {number}")
            arguments, answers = [str(folder / f"more {number}")], ""
        elif command == "refine":
            (folder / "known.csv").write_text(f"path,label\n{number % 40:04d}.png,name {number}\n")
            arguments, answers = ["--hints", str(folder / "known.csv")], ""
        else:
            arguments, answers = [], f"answer {number}\n"
        process = subprocess.Popen(
            [*COMMAND, command, str(out), *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        process.stdin.write(answers)
        process.stdin.flush()
        time.sleep(float(rng.uniform(0.5, 5.0)))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        hits += process.returncode == -signal.SIGKILL
        found = {entry.name for entry in Journal(folder / "out.hints").read()}
        assert expected <= found, f"answers were lost: {expected - found}"
        expected = found
        check_results(out)
    subprocess.run([*COMMAND, "refine", str(out), "--hints", str(folder / "known.csv")], check=True)
    check_results(out)
    return hits


def check_results(out: Path):
    """Raise an error unless the table and the model in a folder of results belong together."""
    model = tubal.load(out / "model.tubal")
    check_facts(model)
    with open(out / "labels.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["cluster"]) for row in rows] == model.labels_.tolist()
