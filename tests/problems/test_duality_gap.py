"""The duality gap bounds how far codes lie above the minimum, and ADMM can stop by it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from tubal import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
from tubal.graph import knn_graph, laplacian
from tubal.problems import ConvolutionalModel, SeparableModel, TubalModel
from tubal.solvers import Admm

SHAPES = {
    "tubal": (TubalModel(), (5, 4, 6), (5, 4, 9)),
    "separable": (SeparableModel(), ((5, 4), (6, 4)), (5, 6, 9)),
    "convolutional": (ConvolutionalModel(), (3, 3, 1, 4), (6, 5, 1, 9)),
}


def make_problem(kind, rng, *, sparsity=0.3, graph=False, neighbors=False):
    """Return a small coding problem of nine images; some edges leave the batch if ``neighbors`` is set."""
    model, dictionary_shape, data_shape = SHAPES[kind]
    parts = [rng.standard_normal(shape) for shape in np.atleast_2d(dictionary_shape)]
    dictionary = tuple(part / np.linalg.norm(part, axis=0) for part in parts) if kind == "separable" else parts[0] / 4
    data = rng.standard_normal(data_shape)
    terms = {}
    if graph:
        weights = sp.random(9, 9, 0.4, rng=rng)
        weights = weights + weights.T
        terms = {"graph_weight": 0.5, "laplacian": sp.diags(np.asarray(weights.sum(0)).ravel()) - weights}
    problem = model.coding(dictionary, data, sparsity=sparsity, **terms)
    if neighbors:
        degrees = rng.random(9)
        terms = {"graph_weight": 0.5, "laplacian": terms.get("laplacian", sp.csr_matrix((9, 9))) + sp.diags(degrees)}
        fixed = degrees * rng.standard_normal(problem.codes_shape)
        problem = model.coding(dictionary, data, sparsity=sparsity, neighbor_sum=fixed, **terms)
    return problem


def solve(problem, max_iter=4000):
    solver = Admm(max_iter=max_iter, tol=1e-12)
    return solver.codes(problem, solver.minimise(problem).state)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(("graph", "neighbors"), [(False, False), (True, False), (True, True), (False, True)])
def test_gap_bounds_the_excess_and_vanishes_at_the_minimum(kind, graph, neighbors, rng):
    problem = make_problem(kind, rng, graph=graph, neighbors=neighbors)
    best = solve(problem)
    minimum = problem.value(best)
    for noise in (0.5, 0.05, 0.005):
        codes = best + noise * rng.standard_normal(best.shape) * (best != 0)
        excess, found = problem.value(codes) - minimum, problem.duality_gap(codes)
        assert found.gaps.sum() >= excess - 1e-9
    assert problem.duality_gap(best).relative < 1e-6


def test_gap_of_each_independent_image_is_its_own(rng):
    problem = make_problem("tubal", rng)
    codes = problem.zeros() + 0.1 * rng.standard_normal(problem.codes_shape)
    together = problem.duality_gap(codes)
    alone = problem.restrict(3, 4).duality_gap(codes[..., 3:4])
    np.testing.assert_allclose(together.gaps[3], alone.gaps[0])


def test_gap_agrees_with_lasso(rng):
    atoms, images = rng.standard_normal((12, 8)), rng.standard_normal((12, 5))
    problem = TubalModel().coding(atoms[None], images[None], sparsity=2.0)
    # scikit-learn divides the squares by the number of samples.
    lasso = Lasso(2.0 / 12, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(atoms, images)
    codes = np.ascontiguousarray(lasso.coef_.T)[None]
    found = problem.duality_gap(codes)
    assert found.relative < 1e-7
    # scikit-learn's own bound, of all images together, is in units of 1 / n_samples.
    assert abs(found.gaps.sum() - 12 * np.sum(lasso.dual_gap_)) < 1e-7 * found.values.sum()


@pytest.mark.parametrize("graph", [False, True])
def test_admm_stops_when_its_codes_are_certified(graph, rng):
    problem = make_problem("tubal", rng, graph=graph)
    solver = Admm(max_iter=3000, gap=1e-4, check_every=5)
    solution = solver.minimise(problem)
    codes = solver.codes(problem, solution.state)
    assert solution.converged
    assert solution.n_iter < 3000
    assert problem.duality_gap(codes).relative <= 1e-4
    assert problem.value(codes) <= (1 + 1e-4) * problem.value(solve(problem))


def test_certified_codes_do_not_depend_on_the_batch(rng):
    problem = make_problem("tubal", rng)
    solver = Admm(max_iter=3000, gap=1e-3, check_every=5)
    together = solver.codes(problem, solver.minimise(problem).state)
    part = problem.restrict(2, 5)
    alone = solver.codes(part, solver.minimise(part).state)
    np.testing.assert_allclose(together[..., 2:5], alone, atol=1e-12)


@pytest.mark.parametrize("gap", [0.0, -1.0, float("nan")])
def test_gap_must_be_positive(gap):
    with pytest.raises(ValueError, match="gap"):
        Admm(gap=gap)


@pytest.mark.parametrize(
    "coder", [SparseCoding(6), TubSC(6), GraphSC(6), GTSC(6), TenSR((4, 4)), CSC(3, filter_shape=(3, 3))], ids=repr
)
def test_default_fit_certifies_its_codes(coder, rng):
    images = rng.random((40, 7, 6))
    coder.set_params(random_state=0).fit(images)
    assert coder.converged_
    assert coder.duality_gap_ <= 1e-3
    assert len(coder.objective_) == coder.n_iter_
    assert coder.density_[-1] == np.count_nonzero(coder.codes_) / coder.codes_.size


def test_last_objective_is_that_of_the_codes(rng):
    images = rng.random((30, 6, 5))
    model = GTSC(5, random_state=0).fit(images)
    scaled = images / np.linalg.norm(images, axis=(1, 2), keepdims=True)
    problem = TubalModel().coding(
        model.dictionary_, model._layout_.to_tensor(scaled), sparsity=model.sparsity, graph_weight=model.graph_weight,
        laplacian=laplacian(knn_graph(scaled, 3)),
    )  # fmt: skip
    codes = np.moveaxis(model.codes_, 0, -1).swapaxes(0, 1)
    np.testing.assert_allclose(model.objective_[-1], problem.value(codes))


def test_chunks_without_a_graph_are_certified(rng):
    images = rng.random((30, 6, 5))
    assert TubSC(5, random_state=0).fit(images, chunk_size=7).duality_gap_ <= 1e-3


def test_gap_of_chunks_that_a_graph_joins_is_unknown(rng):
    images = rng.random((30, 6, 5))
    assert np.isnan(GTSC(5, random_state=0).fit(images, chunk_size=7).duality_gap_)


def test_fit_that_did_not_converge_warns(rng):
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        TubSC(5, max_iter=2, tol=0.0, random_state=0).fit(rng.random((30, 6, 5)))
