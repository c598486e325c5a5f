"""The methods of the tables: normalisation, the sparse coders, the family's members, the default preset."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tubal.datasets import load_digits_images
from tubal.experiments import beyond, family, table2
from tubal.experiments.methods import (
    ablated_graph,
    fit_default_preset,
    largest_correlation,
    normalize_images,
    principal_components,
    shift_images,
)


@pytest.fixture(scope="module")
def digits():
    bunch = load_digits_images()
    return bunch.images[:120], bunch.target[:120]


@pytest.fixture
def noisy_patterns(rng):
    """36 images (10, 10): three random patterns, twelve noisy copies of each."""
    patterns = rng.normal(size=(3, 10, 10))
    return np.repeat(patterns, 12, axis=0) + 0.1 * rng.normal(size=(36, 10, 10))


# --- shared steps ----------------------------------------------------------------------------------------------
def test_normalized_images_have_unit_length_and_blank_ones_stay_blank():
    images = np.stack([np.full((3, 3), 2.0), np.zeros((3, 3))]).astype(np.float32)

    lengths = np.linalg.norm(normalize_images(images, "unit").reshape(2, -1), axis=1)

    assert_allclose(lengths, [1.0, 0.0], rtol=1e-6)
    assert normalize_images(images, "pixels") is images
    with pytest.raises(ValueError, match="'unit' or 'pixels'"):
        normalize_images(images, "max")


def test_principal_components_keep_the_wanted_variance():
    images = load_digits_images().images

    rows = principal_components(images, 0.98)

    kept = rows.var(axis=0).sum() / images.reshape(len(images), -1).var(axis=0).sum()
    assert 0.98 <= kept < 0.985


def test_missing_package_is_reported_in_one_sentence(monkeypatch):
    monkeypatch.setattr("tubal.experiments.tables.find_spec", lambda name: None)
    assert table2.METHODS["umap"].unavailable() == "UMAP + K-means needs the package umap: pip install umap-learn"
    assert table2.METHODS["kmeans"].unavailable() is None


# --- the family ------------------------------------------------------------------------------------------------
def small_settings(method, **changes):
    sizes = {"tensr": [3, 3], "gtensr": [3, 3], "csc": 4, "gcsc": 4}
    settings = {**family.settings_for(method, "digits"), "max_iter": 2, "n_starts": 2, "size": sizes.get(method, 5)}
    if "filter_shape" in settings:
        settings["filter_shape"] = [3, 3]
    return {**settings, **changes}


def test_largest_correlation_is_attained(rng):
    images = rng.normal(size=(4, 7, 6))
    lengths = [np.linalg.norm(image) for image in images]
    singular_values = [np.linalg.svd(image, compute_uv=False)[0] for image in images]
    strongest_patches = [
        max(
            np.linalg.norm(np.roll(image, (-row, -column), (0, 1))[:3, :2])
            for row in range(image.shape[0])
            for column in range(image.shape[1])
        )
        for image in images
    ]

    assert_allclose(largest_correlation("sc", images, ()), np.mean(lengths))
    assert_allclose(largest_correlation("tensr", images, ()), np.mean(singular_values))
    assert_allclose(largest_correlation("csc", images, (3, 2)), np.mean(strongest_patches))


@pytest.mark.parametrize(("kind", "expected"), [("circle, right", [2, 0, 1]), ("border, right", [0, 0, 1])])
def test_shifts_are_circular_or_repeat_the_border(kind, expected):
    images = np.arange(3.0).reshape(1, 1, 3)
    assert_array_equal(shift_images(images, 1, kind)[0, 0], expected)
    down = kind.replace("right", "down")
    assert_array_equal(shift_images(images.transpose(0, 2, 1), 1, down)[0, :, 0], expected)


@pytest.mark.parametrize("method", family.METHODS)
def test_every_member_clusters_and_describes_its_codes(digits, method):
    images, target = digits

    outcome = family.METHODS[method].cluster(images, 10, small_settings(method), 0)

    assert outcome.labels.shape == target.shape
    details = outcome.details
    stored = {"sc": 5, "graphsc": 5, "tensr": 9, "gtensr": 9, "csc": 256, "gcsc": 256, "tubsc": 40, "gtsc": 40}
    assert details["stored"] == stored[method]
    assert 0 < details["nonzero"] <= details["stored"]
    assert 0 < details["error"] < 1


def test_features_are_invariant_to_the_shifts_of_their_model(digits):
    """Circular shifts: in both directions for CSC, along the tube for TubSC, in none for SC and TenSR."""
    images, _ = digits
    distances = {}
    for method in ("sc", "tensr", "csc", "tubsc"):
        settings = small_settings(method, shifts=[3], shift_images=20)
        distances[method] = family.METHODS[method].cluster(images, 10, settings, 0).details

    for kind in ("circle, right", "circle, down"):
        assert distances["csc"][f"{kind}, 3"] < 1e-3
        assert distances["sc"][f"{kind}, 3"] > 0.1
        assert distances["tensr"][f"{kind}, 3"] > 0.1
    assert distances["tubsc"]["circle, right, 3"] < 1e-3
    assert distances["tubsc"]["circle, down, 3"] > 0.1
    assert all(details["border, right, 3"] > 1e-2 for details in distances.values())


# --- the default preset ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["default", "graph-alone", "spectral-deformable", "gtsc"])
def test_methods_separate_noisy_patterns(noisy_patterns, method):
    outcome = beyond.METHODS[method].cluster(noisy_patterns, 3, beyond.settings_for(method), 0)
    assert [len(set(outcome.labels[start : start + 12])) for start in (0, 12, 24)] == [1, 1, 1]
    assert len(set(outcome.labels)) == 3


@pytest.mark.parametrize(
    "row",
    [
        *("no affine bank", "no local warp", "no affine bank, no local warp", "pixels instead of gradients"),
        *("Euclidean graph", "q = 2"),
    ],
)
def test_ablation_changes_one_part(noisy_patterns, row):
    model = fit_default_preset(noisy_patterns, 3, beyond.settings_for("default", row), 0)
    assert model.graph_.neighbors.shape == (36, 2 if row == "q = 2" else 5)
    if row == "no affine bank":
        assert not model.graph_.alignments.rotation.any()
        assert not model.graph_.alignments.dx.any()


def test_unknown_part_of_the_deformation_raises():
    with pytest.raises(ValueError, match="no local warp"):
        ablated_graph(np.zeros((5, 8, 8)), 2, "no gradients")
