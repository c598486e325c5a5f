"""The duality gap bounds how far codes lie above the minimum, and ADMM can stop by it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from helpers import oracles
from tubal import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
from tubal.graph import laplacian
from tubal.learning import fitting
from tubal.problems import ConvolutionalModel, SeparableModel, TubalModel
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm, Fista
from tubal.solvers.coding import FIRST_PHASE

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
        weights = sp.random(9, 9, 0.4, random_state=rng)
        weights = weights + weights.T
        terms = {"graph_weight": 0.5, "laplacian": sp.diags(np.asarray(weights.sum(0)).ravel()) - weights}
    problem = model.coding(dictionary, data, sparsity=sparsity, **terms)
    if neighbors:
        degrees = rng.random(9)
        terms = {"graph_weight": 0.5, "laplacian": terms.get("laplacian", sp.csr_matrix((9, 9))) + sp.diags(degrees)}
        fixed = degrees * rng.standard_normal(problem.codes_shape)
        problem = model.coding(dictionary, data, sparsity=sparsity, neighbor_sum=fixed, **terms)
    return problem


@pytest.fixture
def iterations_only(monkeypatch):
    """Images that need few codes are not solved directly."""
    monkeypatch.setattr(TubalCoding, "few_codes", lambda self, tolerance: None)


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
        corrected = problem.duality_gap(codes, wanted=1e-9)
        assert excess - 1e-9 <= corrected.gaps.sum() <= found.gaps.sum() + 1e-9
    assert problem.duality_gap(best).relative < 1e-6


def test_gap_of_each_independent_image_is_its_own(rng):
    problem = make_problem("tubal", rng)
    codes = problem.zeros() + 0.1 * rng.standard_normal(problem.codes_shape)
    together = problem.duality_gap(codes)
    alone = problem.restrict(3, 4).duality_gap(codes[..., 3:4])
    np.testing.assert_allclose(together.gaps[3], alone.gaps[0])


def test_gap_of_connected_images_is_relative_to_the_objective(rng):
    problem = make_problem("tubal", rng, graph=True)
    codes = rng.standard_normal(problem.codes_shape)
    problem.data = problem.reconstruct(codes)  # the rest, the energies of the edges, is negative for some images
    np.testing.assert_allclose(problem.duality_gap(codes).values.sum(), problem.value(codes))


def test_good_codes_of_a_graph_are_certified_under_weak_sparsity(rng):
    problem = make_problem("tubal", rng, sparsity=1e-3, graph=True)
    minimum = problem.value(solve(problem, max_iter=10_000))
    solver = Admm(max_iter=3000, gap=1e-3, penalty=0.1)
    solution = solver.minimise(problem)
    codes = solver.codes(problem, solution.state)
    assert problem.value(codes) <= (1 + 1e-3) * minimum
    assert problem.duality_gap(codes, wanted=1e-3).relative <= 1e-3
    # Their own residual proves far less.
    assert problem.duality_gap(codes).relative > 1e-2


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
    assert problem.duality_gap(codes, wanted=1e-4).relative <= 1e-4
    assert problem.value(codes) <= (1 + 1e-4) * problem.value(solve(problem))


def test_certified_codes_do_not_depend_on_the_batch(rng):
    problem = make_problem("tubal", rng)
    solver = Admm(max_iter=3000, gap=1e-3, check_every=5)
    together = solver.codes(problem, solver.minimise(problem).state)
    part = problem.restrict(2, 5)
    alone = solver.codes(part, solver.minimise(part).state)
    np.testing.assert_allclose(together[..., 2:5], alone, atol=1e-12)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("neighbors", [False, True])
def test_certified_images_are_dropped_from_the_batch(kind, neighbors, rng, monkeypatch, iterations_only):
    """Images of very different lengths are certified at different times; each gets the codes it has alone."""
    problem = make_problem(kind, rng, neighbors=neighbors)
    problem.data = problem.data * np.geomspace(0.3, 3.0, problem.data.shape[-1])
    sizes, select = [], type(problem).select
    monkeypatch.setattr(type(problem), "select", lambda self, images: sizes.append(len(images)) or select(self, images))
    solver = Admm(max_iter=5000, gap=1e-3, check_every=2)

    together = solver.codes(problem, solver.minimise(problem).state)

    assert sizes == sorted(sizes, reverse=True)
    assert sizes
    assert problem.duality_gap(together).by_image.max() <= 1e-3 * (1 + 1e-6)
    for image in range(problem.data.shape[-1]):
        alone = select(problem, np.array([image]))
        codes = solver.codes(alone, solver.minimise(alone).state)
        np.testing.assert_allclose(together[..., [image]], codes, atol=1e-10)


@pytest.mark.parametrize("tube_length", [1, 2, 5, 6])
@pytest.mark.parametrize("sparsity", [0.3, 0.1])
def test_few_codes_agree_with_lasso(tube_length, sparsity, rng):
    atoms, images = rng.standard_normal((tube_length, 8, 4)), rng.standard_normal((tube_length, 8, 6))
    images[..., 0] = 0.0
    atoms /= np.sqrt(np.square(atoms).sum((0, 1)))
    images[..., 1:] /= np.sqrt(np.square(images[..., 1:]).sum((0, 1)))
    problem = TubalModel().coding(atoms, images, sparsity=sparsity)
    matrix, n_values = oracles.block_circulant(np.moveaxis(atoms, 0, -1)), tube_length * 8
    # scikit-learn divides the squares by the number of values of an image.
    lasso = Lasso(sparsity / n_values, fit_intercept=False, tol=1e-12, max_iter=1_000_000)

    codes = problem.few_codes(1e-10)

    expected = lasso.fit(matrix, images.reshape(n_values, -1)).coef_.T
    np.testing.assert_allclose(codes.reshape(-1, 6), expected, atol=1e-6)
    assert problem.duality_gap(codes).by_image[1:].max() < 1e-7


def test_few_codes_leave_hard_images_to_admm(rng):
    """Images under a weak sparsity need many codes; they get zeros here, and their codes later."""
    problem = TubalModel().coding(rng.standard_normal((3, 8, 4)), rng.standard_normal((3, 8, 5)), sparsity=1e-3)
    solver = Admm(max_iter=3000, gap=1e-3, check_every=5)

    found, codes = problem.few_codes(1e-4), solver.codes(problem, solver.minimise(problem).state)

    assert not found.any()
    assert problem.duality_gap(codes).by_image.max() <= 1e-3


def test_few_codes_are_divided_between_equal_atoms(rng):
    atoms = rng.standard_normal((5, 8, 4))
    atoms[..., 1] = np.roll(atoms[..., 0], 2, axis=0)
    atoms /= np.sqrt(np.square(atoms).sum((0, 1)))
    images = np.stack([np.roll(atoms[..., 0], shift, axis=0) for shift in range(5)], axis=-1)
    problem = TubalModel().coding(atoms, images, sparsity=0.1)

    codes = problem.few_codes(1e-4)

    np.testing.assert_allclose(codes[:, 0], 0.45 * np.eye(5), atol=1e-3)
    np.testing.assert_allclose(np.roll(codes[:, 1], 2, axis=0), codes[:, 0], atol=1e-9)
    assert problem.duality_gap(codes).by_image.max() <= 1e-3


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("neighbors", [False, True])
def test_certified_codes_of_tensors_do_not_depend_on_the_batch(kind, neighbors, rng, iterations_only):
    torch = pytest.importorskip("torch")
    arrays = make_problem(kind, rng, neighbors=neighbors)
    terms = {}
    if neighbors:
        fixed = torch.as_tensor(arrays.graph.neighbor_sum)
        terms = {"graph_weight": 0.5, "laplacian": arrays.graph.laplacian, "neighbor_sum": fixed}
    model, tensor = SHAPES[kind][0], torch.as_tensor(arrays.data)
    dictionary = arrays.dictionary
    dictionary = tuple(map(torch.as_tensor, dictionary)) if kind == "separable" else torch.as_tensor(dictionary)
    solver = Admm(max_iter=3000, gap=1e-3, check_every=5)
    together = model.coding(dictionary, tensor, sparsity=0.3, **terms)
    found = solver.codes(together, solver.minimise(together).state)
    if neighbors:
        terms["laplacian"] = sp.csr_array(terms["laplacian"])[2:5, 2:5]
        terms["neighbor_sum"] = terms["neighbor_sum"][..., 2:5].contiguous()
    alone = model.coding(dictionary, tensor[..., 2:5].contiguous(), sparsity=0.3, **terms)
    np.testing.assert_allclose(
        found[..., 2:5].numpy(), solver.codes(alone, solver.minimise(alone).state).numpy(), atol=1e-10
    )
    expected = solver.codes(arrays, solver.minimise(arrays).state)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize(("graph", "penalty"), [(False, 5.0), (True, 50.0)])
def test_codes_stay_right_when_the_penalty_changes(graph, penalty, rng, iterations_only):
    problem = make_problem("tubal", rng, graph=graph)
    solver = Admm(max_iter=3000, gap=1e-4, penalty=penalty)
    seen = []
    solution = solver.minimise(problem, monitor=lambda n, state: seen.append((n, solver.codes(problem, state))))
    assert solution.converged
    assert solution.n_iter > FIRST_PHASE, "the penalty did not change"
    codes = solver.codes(problem, solution.state)
    assert problem.duality_gap(codes, wanted=1e-4).relative <= 1e-4
    assert [n for n, _ in seen] == sorted({n for n, _ in seen})
    assert seen[-1][0] == solution.n_iter
    np.testing.assert_array_equal(seen[-1][1], codes)


def test_zeros_stay_zero_when_the_penalty_changes(rng, iterations_only):
    model, dictionary_shape, data_shape = SHAPES["tubal"]
    dictionary = (rng.standard_normal(dictionary_shape) / 4).astype(np.float32)
    problem = model.coding(dictionary, rng.standard_normal(data_shape).astype(np.float32), sparsity=0.3)
    solver = Admm(max_iter=1000, gap=1e-5, penalty=0.05)
    codes = solver.codes(problem, solver.minimise(problem).state)
    assert not ((codes != 0) & (abs(codes) < 1e-6)).any()


def test_without_sparsity_admm_stops_by_its_tolerance(rng):
    problem = make_problem("tubal", rng, sparsity=0.0)
    solution = Admm(max_iter=3000, gap=1e-3).minimise(problem)
    assert solution.converged
    assert solution.n_iter < 3000


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


@pytest.mark.parametrize("coder", [SparseCoding(6), TubSC(6), TenSR((4, 4)), CSC(3, filter_shape=(3, 3))], ids=repr)
def test_default_encode_is_within_a_thousandth_of_the_minimum(coder, rng):
    images = rng.random((40, 7, 6))
    coder.set_params(random_state=0).fit(images[:20])
    codes = coder._recipe().inner_codes(coder.encode(images[20:]))
    scaled = images[20:] / np.linalg.norm(images[20:], axis=(1, 2), keepdims=True)
    problem = coder._model()((7, 6)).coding(
        coder.dictionary_, coder._layout_.to_tensor(scaled), sparsity=coder.sparsity
    )
    assert problem.value(codes) <= 1.001 * problem.value(solve(problem, 20_000))


@pytest.mark.parametrize("code_solver", [None, Admm(max_iter=2), Fista(max_iter=2)], ids=repr)
@pytest.mark.parametrize("coder", [TubSC, GTSC])
def test_last_objective_is_that_of_the_codes(coder, code_solver, rng):
    images = rng.random((30, 6, 5))
    model = coder(5, code_solver=code_solver, random_state=0).fit(images)
    terms = {"graph_weight": 1.0, "laplacian": laplacian(model.graph_)} if coder is GTSC else {}
    scaled = images / np.linalg.norm(images, axis=(1, 2), keepdims=True)
    problem = TubalModel().coding(model.dictionary_, model._layout_.to_tensor(scaled), sparsity=model.sparsity, **terms)
    codes = np.ascontiguousarray(model._recipe().inner_codes(model.codes_))
    np.testing.assert_allclose(model.objective_[-1], problem.value(codes))
    wanted = fitting.FINAL_GAP if code_solver is None else None
    np.testing.assert_allclose(model.duality_gap_, problem.duality_gap(codes, wanted=wanted).relative, rtol=1e-6)


def test_chunks_without_a_graph_are_certified(rng):
    images = rng.random((30, 6, 5))
    assert TubSC(5, random_state=0).fit(images, chunk_size=7).duality_gap_ <= 1e-3


def test_gap_of_chunks_that_a_graph_joins_is_unknown(rng):
    images = rng.random((30, 6, 5))
    assert np.isnan(GTSC(5, random_state=0).fit(images, chunk_size=7).duality_gap_)


def test_fit_that_did_not_converge_warns(rng):
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        TubSC(5, max_iter=2, tol=0.0, random_state=0).fit(rng.random((30, 6, 5)))


def test_converged_fit_does_not_warn(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TubSC(5, random_state=0).fit(rng.random((30, 6, 5))).converged_


def test_fit_stopped_by_a_callback_does_not_warn(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TubSC(5, tol=0.0, callbacks=lambda progress: progress.n_iter == 2, random_state=0).fit(rng.random((30, 6, 5)))


def test_gap_without_sparsity_is_unknown(rng):
    assert np.isnan(TubSC(5, sparsity=0.0, max_iter=2, random_state=0).fit(rng.random((30, 6, 5))).duality_gap_)


def test_partial_fit_certifies_nothing(rng):
    model = TubSC(5, random_state=0).partial_fit(rng.random((30, 6, 5)))
    assert np.isnan(model.duality_gap_)


def test_solver_may_name_the_solver_of_final_codes(rng):
    images = rng.random((30, 6, 5))
    assert TubSC(5, code_solver=TwoSteps(), random_state=0).fit(images).duality_gap_ <= 1e-3


@dataclass(frozen=True)
class TwoSteps(Fista):
    """Two steps while learning, certified codes at the end."""

    max_iter: int = 2

    @property
    def final(self):
        return Admm(max_iter=3000, gap=1e-3)


def test_codes_that_cannot_be_certified_are_announced(rng, monkeypatch, iterations_only):
    monkeypatch.setattr(fitting, "FINAL_STEPS", 1)
    images = rng.random((30, 6, 5))
    with pytest.warns(ConvergenceWarning, match="above the minimum"):
        model = TubSC(5, random_state=0).fit(images)
    assert model.duality_gap_ > 1e-3
    with pytest.warns(ConvergenceWarning, match="above the minimum"):
        model.encode(images[:3])
