"""Explanations: they add up to the reconstruction, and Python, the command line and the report give the same one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.linear_model import Lasso

import tubal
from tubal import CSC, GTSC, GraphSC, ImageClusterer, SparseCoding, TenSR, TubSC
from tubal.checkpoints import Checkpoint
from tubal.cli import run
from tubal.datasets import make_shifted_shapes
from tubal.estimators import explain_images
from tubal.estimators.explanation import READABLE_GAP, READABLE_SHARE
from tubal.report.from_clusterer import report_data


@pytest.fixture(scope="module")
def shapes():
    return make_shifted_shapes(30, n_classes=3, image_shape=(8, 9), random_state=0).images


@pytest.mark.parametrize("tube_axis", [-1, -2])
@pytest.mark.parametrize("shape", [(8, 7), (5, 4, 3)])
@pytest.mark.parametrize("estimator", [TubSC, GTSC, SparseCoding, GraphSC])
def test_terms_of_an_explanation_sum_to_the_reconstruction(rng, estimator, shape, tube_axis):
    images = rng.random((12, *shape))
    model = estimator(n_atoms=5, max_iter=3, random_state=0, tube_axis=tube_axis).fit(images)
    explanation = model.explain(images[3], with_graph=True)
    rebuilt = model.decode(model.codes_[3:4])[0]
    assert len(explanation) == np.count_nonzero(model.codes_[3])
    assert_allclose(explanation.reconstruction(), rebuilt, atol=1e-10)
    assert_allclose(sum(explanation.term(index) for index in range(len(explanation))), rebuilt, atol=1e-10)
    assert np.all(np.diff(np.abs(explanation.coefficients)) <= 0.0)
    first = np.roll(model.atoms_[explanation.atoms[0]], explanation.shifts[0], axis=1 if tube_axis == -1 else 0)
    if estimator in (TubSC, GTSC):
        assert_allclose(explanation.term(0), explanation.coefficients[0] * first, atol=1e-12)


def test_offsets_and_norm_rebuild_the_image_by_hand(shapes):
    model = TubSC(n_atoms=5, max_iter=3, tube_axis=-2, random_state=0).fit(shapes)
    explanation = model.explain(shapes[4])
    by_hand = sum(
        weight * np.roll(model.atoms_[int(atom)], (int(down), int(right)), axis=(0, 1))
        for atom, down, right, weight in explanation.table()
    )
    assert_allclose(explanation.reconstruction(), by_hand, atol=1e-5)
    left = np.square(shapes[4] - np.linalg.norm(shapes[4]) * by_hand).sum() / np.square(shapes[4]).sum()
    assert_allclose(explanation.unexplained(), left, rtol=1e-4)
    assert explanation.unexplained() <= explanation.unexplained(n_terms=3) <= explanation.unexplained(n_terms=0) == 1.0


def test_rows_are_explained_as_images(shapes):
    model = TubSC(n_atoms=5, max_iter=3, random_state=0, image_shape=(8, 9)).fit(shapes.reshape(30, -1))
    from_row, from_image = model.explain(shapes[2].ravel()), model.explain(shapes[2])
    assert_array_equal(from_row.coefficients, from_image.coefficients)
    assert from_row.image.shape == (8, 9)


def test_explanation_ignores_the_graph_by_default(shapes):
    """With a strong graph a model's codes are dense and rebuild badly; an explanation must do both better."""
    model = GTSC(n_atoms=20, graph_weight=10.0, sparsity=0.003, max_iter=2, random_state=0).fit(shapes)
    alone, joined = (explain_images(model, shapes, with_graph=flag) for flag in (False, True))
    assert sum(map(len, alone)) < 0.5 * sum(map(len, joined))
    assert np.mean([e.unexplained() for e in alone]) < np.mean([e.unexplained() for e in joined])
    assert "alone" in alone[0].note
    assert joined[0].note == ""
    assert (model.graph_weight, model.sparsity) == (10.0, 0.003)


def test_without_graph_weight_the_codes_themselves_are_explained(shapes):
    model = GTSC(n_atoms=5, graph_weight=0.0, max_iter=1, random_state=0).fit(shapes)
    explanations = explain_images(model, shapes)
    assert [len(explanation) for explanation in explanations] == [np.count_nonzero(codes) for codes in model.codes_]
    assert explanations[0].note == ""


# --- every kind of picture --------------------------------------------------------------------------------------
def piles():
    """Small piles of pictures by name: light on dark, dark on light, and colour."""
    digits = (load_digits().images[:80] / 16.0).astype(np.float32)
    shapes = make_shifted_shapes(40, n_classes=3, image_shape=(16, 16), random_state=0).images
    return {
        "digits": digits,
        "ink": 1.0 - digits,
        "large ink": 1.0 - np.kron(digits, np.ones((3, 3), np.float32)),
        "color": np.stack([1.0 - 0.8 * digits, 1.0 - 0.3 * digits, 1.0 - 0.1 * digits], axis=-1),
        "shapes": shapes,
    }


@pytest.mark.parametrize("pile", ["digits", "ink", "large ink", "color", "shapes"])
def test_every_pile_is_explained_better_than_by_its_best_atom(pile):
    images = piles()[pile]
    clusterer = ImageClusterer(4, random_state=0).fit(images)
    explanations = explain_images(clusterer, images[:20])
    pictures = [
        np.roll(atom, shift, axis=1).ravel() for atom in clusterer.model_.atoms_ for shift in range(images.shape[2])
    ]
    for image, explanation in zip(images[:20], explanations, strict=True):
        cosines = (np.array(pictures) @ image.ravel()) / np.linalg.norm(pictures, axis=1) / np.linalg.norm(image)
        assert 1 <= len(explanation) <= 60
        assert explanation.explained() > max(0.9, np.square(cosines).max())


@pytest.mark.parametrize("pile", ["digits", "ink"])
def test_explanation_is_the_exact_lasso(pile):
    images = piles()[pile][:30]
    model = GTSC(n_atoms=6, max_iter=2, random_state=0).fit(images)
    explanation = model.explain(images[3])
    pictures = np.array([np.roll(atom, shift, axis=1).ravel() for atom in model.atoms_ for shift in range(8)], float)
    image = images[3].ravel() / explanation.norm
    lasso = Lasso(alpha=READABLE_SHARE / 64, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(pictures.T, image)
    codes = np.zeros((6, 8))
    codes[explanation.atoms, explanation.shifts] = explanation.coefficients

    def objective(codes):
        return 0.5 * np.square(image - codes.ravel() @ pictures).sum() + READABLE_SHARE * np.abs(codes).sum()

    assert_allclose(explanation.norm, np.abs(pictures @ images[3].ravel()).max(), rtol=1e-5)
    assert objective(codes) <= (1.0 + READABLE_GAP) * objective(lasso.coef_)


def test_zero_code_is_explained_at_a_readable_sparsity(shapes):
    model = TubSC(n_atoms=5, sparsity=0.5, max_iter=2, scale=None, random_state=0).fit(shapes)
    faint = 1e-3 * shapes[:1]
    explanation = model.explain(faint[0])
    assert not model.encode(faint).any()
    assert explanation.explained() > 0.5
    assert "own code of this image is zero" in explanation.note


@pytest.mark.parametrize("estimator", [GTSC, GraphSC])
def test_interrupted_explanations_continue_where_they_stopped(shapes, estimator, tmp_path, monkeypatch):
    monkeypatch.setattr("tubal.estimators.explanation.BATCH", 8)
    model = estimator(4, n_neighbors=2, max_iter=2, random_state=0).fit(shapes)
    whole = explain_images(model, shapes)
    place, counts = Checkpoint(tmp_path / "fit.ckpt", every_seconds=0.0, resume=True), []

    def stop(done, total):
        counts.append(done)
        if done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain_images(model, shapes, stage=place.stages_after("model").stage("explanations", report=stop))
    again = explain_images(model, shapes, stage=place.stages_after("model").stage("explanations", report=stop))
    assert counts == [8, 16, 24, 30]
    for expected, found in zip(whole, again, strict=True):
        assert_array_equal(found.table(), expected.table())
        assert found.norm == expected.norm
    others = explain_images(model, shapes[::-1], stage=place.stages_after("model").stage("explanations"))
    assert_allclose(others[0].table(), whole[-1].table(), atol=1e-5)


def test_what_was_kept_for_another_model_is_not_used(tmp_path):
    place = Checkpoint(tmp_path / "fit.ckpt", resume=True)
    place.stages_after("first").stage("map").keep(lambda: {"embedding": np.ones(3)}, finished=True)
    assert_array_equal(place.stages_after("first").stage("map").kept()["embedding"], np.ones(3))
    assert not place.stages_after("second").stage("map").kept()


def test_blank_image_has_no_terms(shapes):
    explanation = GTSC(n_atoms=5, max_iter=2, random_state=0).fit(shapes).explain(np.zeros((8, 9)))
    assert (len(explanation), explanation.norm) == (0, 1.0)


def test_command_states_the_share_explained(tmp_path, capsys):
    ink = piles()["ink"]
    tubal.save(ImageClusterer(4, random_state=0).fit(ink), tmp_path / "model.tubal")
    np.save(tmp_path / "ink.npy", ink[:1])
    command = ["explain", str(tmp_path / "ink.npy"), "-m", str(tmp_path / "model.tubal"), "-o", str(tmp_path / "a.png")]
    assert run([*command, "--terms", "3"]) == 0
    printed = capsys.readouterr()
    assert "they explain" in printed.out + printed.err
    assert run([*command, "--terms", "3", "--force", "--json", "-q"]) == 0
    shares = json.loads(capsys.readouterr().out)
    assert shares["explained_by_all_terms"] > 0.9
    assert_allclose(shares["explained"] + shares["unexplained"], 1.0)
    assert shares["n_terms"] >= len(shares["terms"]) == 3


def test_command_says_that_a_blank_image_has_no_terms(shapes, tmp_path, capsys):
    tubal.save(GTSC(5, max_iter=2, random_state=0).fit(shapes), tmp_path / "model.tubal")
    np.save(tmp_path / "blank.npy", np.zeros((1, 8, 9), np.float32))
    assert run(["explain", str(tmp_path / "blank.npy"), "-m", str(tmp_path / "model.tubal")]) == 2
    assert "is blank" in capsys.readouterr().err


# --- one explanation everywhere --------------------------------------------------------------------------------
def explained_by_command(model, image, folder, capsys, n_terms=60):
    """Return the terms that ``tubal explain`` prints, (t, 4), and the share it leaves unexplained."""
    tubal.save(model, folder / "model.tubal")
    np.save(folder / "image.npy", image[None])
    command = ["explain", str(folder / "image.npy"), "-m", str(folder / "model.tubal"), "-o", str(folder / "why.png")]
    assert run([*command, "--terms", str(n_terms), "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [[term["atom"], term["dy"], term["dx"], term["coefficient"]] for term in found["terms"]]
    return np.array(rows), found["unexplained"]


@pytest.mark.parametrize(
    "model",
    [
        TubSC(5, max_iter=3, random_state=0),
        TubSC(5, max_iter=3, tube_axis=-2, scale="max", random_state=0),
        GTSC(5, max_iter=3, random_state=0),
        SparseCoding(5, max_iter=3, random_state=0),
        GraphSC(5, max_iter=3, random_state=0),
        TenSR((4, 3), max_iter=3, graph_weight=1.0, random_state=0),
        CSC(4, filter_shape=(3, 3), max_iter=3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_command_and_python_give_the_same_explanation_of_a_coder(model, shapes, tmp_path, capsys):
    explanation = model.fit(shapes).explain(shapes[7])
    terms, unexplained = explained_by_command(model, shapes[7], tmp_path, capsys)
    assert_allclose(terms, explanation.table(60), atol=1e-6)
    assert_allclose(unexplained, explanation.unexplained(60), rtol=1e-5)


def test_command_report_and_python_give_the_same_explanation_of_a_clusterer(shapes, tmp_path, capsys):
    clusterer = ImageClusterer(3, n_atoms=8, random_state=0).fit(shapes)
    explanation = explain_images(clusterer, shapes[7:8])[0]
    terms, unexplained = explained_by_command(clusterer, shapes[7], tmp_path, capsys)
    page = report_data(clusterer, shapes, [f"image {index}" for index in range(30)])
    assert_allclose(terms, explanation.table(60), atol=1e-6)
    assert_allclose(unexplained, explanation.unexplained(60), rtol=1e-5)
    assert_allclose(page.terms[7], explanation.table(96), atol=2e-4)  # in one batch with the other images
    assert page.term_counts[7] == len(explanation) == len(clusterer.model_.explain(shapes[7]))
    assert_allclose(page.norms[7], explanation.norm, rtol=1e-6)
    assert page.terms_note == explanation.note
