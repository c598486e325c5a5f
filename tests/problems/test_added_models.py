"""A new model and a new solver need public names only: the two examples of docs/models.md at work."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from helpers import ista, mirror_model
from helpers.ista import Ista
from helpers.mirror_model import MirrorGTSC, MirrorModel
from tubal import GTSC
from tubal.solvers import Admm, Fista, ProjectedGradient

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
EXAMPLES = pytest.mark.parametrize("example", [mirror_model, ista], ids=["model", "solver"])


@pytest.fixture
def images(rng):
    """Two patterns, each in both directions: 80 images, more than one block of a thread."""
    patterns = rng.random((2, 6, 5))
    stack = np.concatenate([patterns, patterns[:, :, ::-1]])
    return np.repeat(stack, 20, axis=0) + 0.05 * rng.random((80, 6, 5))


def mirror_coder(graph_weight):
    return MirrorGTSC(
        n_atoms=4, graph_weight=graph_weight, max_iter=8, dictionary_solver=ProjectedGradient(), random_state=0
    )


@pytest.mark.parametrize("graph_weight", [0.0, 0.5])
def test_new_model_fits(images, graph_weight):
    model = mirror_coder(graph_weight).fit(images)
    assert model.codes_.shape == (80, 4, 2)
    assert np.all(np.diff(model.objective_) <= 1e-12 * model.objective_[0])
    assert model.objective_[-1] < 0.9 * model.objective_[0]
    assert np.linalg.norm(model.atoms_.reshape(4, -1), axis=1).max() <= 1.0 + 1e-9


def test_new_model_codes_new_images(images):
    model = mirror_coder(graph_weight=0.0).fit(images)
    mirrored = model.encode(images[:6, :, ::-1])
    assert_allclose(mirrored, model.encode(images[:6])[:, :, ::-1], atol=1e-2)
    assert_allclose(model.transform(images[:6]), np.linalg.norm(model.codes_[:6], axis=2), atol=1e-6)
    assert_allclose(model.explain(images[3]).reconstruction(), model.decode(model.encode(images[3:4]))[0], atol=1e-10)


def test_new_model_learns_from_chunks(images):
    model = mirror_coder(graph_weight=0.0)
    whole = model.fit(images).atoms_
    assert_allclose(model.fit(images, chunk_size=30).atoms_, whole, atol=1e-6)


@pytest.mark.parametrize("graph_weight", [0.0, 0.7])
def test_new_model_equals_dense_algebra(rng, graph_weight):
    dictionary, data, codes = rng.normal(size=(1, 30, 3)), rng.normal(size=(1, 30, 8)), rng.normal(size=(2, 3, 8))
    ring = np.roll(np.eye(8), 1, 1)
    problem = MirrorModel((6, 5)).coding(
        dictionary, data, sparsity=0.1, graph_weight=graph_weight, laplacian=2.0 * np.eye(8) - ring - ring.T
    )
    solved = problem.solve_shifted(codes, 0.3)
    assert_allclose(problem.hessian_product(solved) + 0.3 * solved, codes, atol=1e-9)
    mirrored = dictionary[0].reshape(6, 5, 3)[:, ::-1].reshape(30, 3)
    assert_allclose(problem.reconstruct(codes)[0], dictionary[0] @ codes[0] + mirrored @ codes[1], atol=1e-12)


def test_gradient_of_new_dictionary_problem_equals_finite_differences(rng):
    model, dictionary = MirrorModel((6, 5)), rng.normal(size=(1, 30, 3))
    statistics = model.statistics(dictionary, rng.normal(size=(1, 30, 8)), rng.normal(size=(2, 3, 8)), 0)
    problem, direction, step = model.dictionary_problem(statistics, dictionary, 0), rng.normal(size=(1, 30, 3)), 1e-6
    slope = problem.value(dictionary + step * direction) - problem.value(dictionary - step * direction)
    assert_allclose((problem.gradient(dictionary) * direction).sum(), slope / (2 * step), rtol=1e-6)


def test_new_solver_reaches_the_same_minimum(rng):
    dictionary, data = rng.normal(size=(1, 30, 3)), rng.normal(size=(1, 30, 8))
    problem = MirrorModel((6, 5)).coding(dictionary / 10.0, data, sparsity=0.1)
    values = []
    for solver in (Ista(max_iter=20_000, tol=1e-10), Admm(max_iter=5000, tol=1e-9), Fista(max_iter=20_000, tol=1e-9)):
        values.append(problem.value(solver.codes(problem, solver.minimise(problem).state)))
    assert_allclose(values, min(values), rtol=1e-7)


def test_new_solver_fits(images):
    model = GTSC(n_atoms=4, max_iter=5, random_state=0, code_solver=Ista(max_iter=50)).fit(images)
    assert np.all(np.diff(model.objective_) <= 1e-12 * model.objective_[0])


@EXAMPLES
def test_examples_use_public_names_only(example):
    tree = ast.parse(Path(example.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"dataclasses", "functools", "tubal", "tubal.problems", "tubal.solvers"}
    assert any(name.startswith("tubal") for name in imported)


@EXAMPLES
def test_documentation_shows_the_examples(example):
    _, code = Path(example.__file__).read_text(encoding="utf-8").split("\n\n", 1)
    assert f"```python\n{code}```" in DOCS.read_text(encoding="utf-8")
