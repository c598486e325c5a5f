"""The label-free criterion prefers settings whose partitions repeat, and its page states the verdicts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tools import criterion


def test_criterion_prefers_repeatable_partitions():
    """Of two made-up settings, one gives every sample the same halves, the other random ones."""
    generator = np.random.default_rng(0)
    samples = []
    for _ in range(4):
        members = np.sort(generator.permutation(200)[:160])
        labels = {("q", 5): generator.integers(2, size=160), ("q", 3): (members < 100).astype(np.intp)}
        samples.append(criterion.Sample(members, labels, dict.fromkeys(labels, 0.5)))

    stable, stable_error = criterion.jackknife(criterion.agreement(samples, ("q", 3)))
    random, random_error = criterion.jackknife(criterion.agreement(samples, ("q", 5)))
    better = criterion.stability_of(samples, "q", 3)

    assert (stable, stable_error) == (1.0, 0.0)
    assert abs(random) < 0.05
    assert random_error > 0
    assert better["minus_default"] == pytest.approx(1.0 - random, abs=1e-4)
    assert better["minus_default"] > 2 * better["minus_default_error"]


def test_jackknife_error_of_independent_samples_is_that_of_a_mean(rng):
    """Pairs that are sums of two samples' values have twice the mean of those values."""
    values = rng.normal(size=40)
    pairs = values[:, None] + values
    np.fill_diagonal(pairs, 0.0)

    mean, error = criterion.jackknife(pairs)

    assert mean == pytest.approx(2 * values.mean())
    assert error == pytest.approx(2 * values.std(ddof=1) / np.sqrt(40), rel=1e-6)


def test_study_runs_in_order_and_writes_its_page(tmp_path, monkeypatch):
    monkeypatch.setenv("TUBAL_DATA", str(tmp_path / "nothing"))
    few = {"q": (3, 5), "graph weight": (10.0,), "sparsity": (0.003,), "assignment": criterion.CHOICES["assignment"]}
    monkeypatch.setattr(criterion, "CHOICES", few)
    monkeypatch.setattr(criterion, "THEN", ())

    table, page = criterion.run(tmp_path, n_samples=3, most_images=80)

    study = json.loads(table.read_text())
    assert study["order"] == ["digits", "shapes"]
    assert set(study["verdicts"]["first"]) == set(few)
    text = page.read_text()
    assert text == criterion.page(study)
    assert "after the scores on Yale had been seen" in text
    assert "**5** (default)" in text


def test_default_far_below_the_best_is_rejected():
    collections = {"digits": {"settings": {"q": {str(q): _stability(0.6, 0.0, 0.0) for q in criterion.CHOICES["q"]}}}}
    collections["digits"]["settings"]["q"]["3"] = _stability(0.9, 0.3, 0.01)

    verdict = criterion.verdict(collections, "q", ["digits"])

    assert verdict["best"] == 3
    assert not verdict["default_stands"]


def test_standard_error_needs_three_samples(tmp_path):
    with pytest.raises(ValueError, match="samples=2: a standard error needs at least 3"):
        criterion.run(tmp_path, n_samples=2)


def _stability(stability, difference, error):
    return {
        "stability": stability,
        "standard_error": 0.01,
        "minus_default": difference,
        "minus_default_error": error,
        "modularity": 0.5,
    }
