"""SPORCO, scikit-learn, SciPy and CVXPY solve the same problems and agree."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits
from sklearn.linear_model import Lasso

from helpers import oracles
from tubal import GTSC, SparseCoding, TubSC
from tubal.datasets import fetch_orl
from tubal.graph import knn_graph, laplacian
from tubal.problems.layout import ImageLayout
from tubal.problems.tubal import TubalCoding
from tubal.solvers import Admm, Fista

pytestmark = pytest.mark.peer


def unit(images):
    return images / np.sqrt((images**2).sum((1, 2), keepdims=True))


def tensors(images, n_atoms):
    """Return the first images as atoms and the others as data, tube-first."""
    layout = ImageLayout(images.shape[1:])
    return layout.to_tensor(images[:n_atoms]), layout.to_tensor(images[n_atoms:])


def sporco_codes(dictionary, data, sparsity, max_iter):
    """Return the codes of SPORCO's convolutional basis pursuit along the tube, (tube, atom, sample)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cbpdn = pytest.importorskip("sporco.admm.cbpdn", reason="sporco is not installed: pip install 'tubal[bench]'")
        options = cbpdn.ConvBPDN.Options(
            {"Verbose": False, "MaxMainIter": max_iter, "RelStopTol": 1e-9, "AutoRho": {"Enabled": True}}
        )
        solver = cbpdn.ConvBPDN(dictionary, data, sparsity, options, dimK=1, dimN=1)
        codes = np.squeeze(solver.solve(), axis=1)  # (tube, sample, atom)
    return np.ascontiguousarray(codes.swapaxes(1, 2))


def check_against_sporco(images, *, n_atoms, sparsity, max_iter=3000):
    dictionary, data = tensors(images, n_atoms)
    problem = TubalCoding(dictionary, data, sparsity=sparsity)
    theirs = problem.value(sporco_codes(dictionary, data, sparsity, max_iter))
    solver = Admm(max_iter=20000, tol=1e-9)
    ours = problem.value(solver.codes(problem, solver.minimise(problem).state))
    assert_allclose(ours, theirs, rtol=1e-6)
    fista = Fista(max_iter=40000, tol=1e-8)
    assert_allclose(problem.value(fista.codes(problem, fista.minimise(problem).state)), theirs, rtol=1e-6)


def test_tubsc_coding_equals_sporco():
    digits = unit(load_digits().images[:26].astype(np.float64))
    check_against_sporco(digits, n_atoms=6, sparsity=0.05)


@pytest.mark.collection("orl")
def test_tubsc_coding_equals_sporco_on_faces():
    faces = unit(fetch_orl().images[::40, ::2, ::2].astype(np.float64))
    check_against_sporco(faces, n_atoms=5, sparsity=0.02)


def test_tube_length_one_equals_the_lasso(rng):
    """Fewer atoms than pixels, so the minimiser is unique."""
    dictionary = oracles.unit_atoms(rng, 30, 12, 1)
    data = rng.normal(size=(30, 20, 1))
    problem = TubalCoding(oracles.tube_first(dictionary), oracles.tube_first(data), sparsity=0.3)
    solver = Admm(max_iter=10000, tol=1e-12)
    codes = solver.codes(problem, solver.minimise(problem).state)[0]
    # scikit-learn divides the quadratic by the number of rows.
    lasso = Lasso(alpha=0.3 / 30, fit_intercept=False, tol=1e-12, max_iter=100000)
    expected = lasso.fit(dictionary[:, :, 0], data[:, :, 0]).coef_.T
    assert_allclose(codes, expected, atol=1e-6)
    assert 0.05 < np.mean(expected == 0.0) < 0.95


def test_sparse_coding_equals_the_lasso():
    digits = load_digits().images[:100].astype(np.float64)
    model = SparseCoding(20, sparsity=0.05, max_iter=3, code_solver=Admm(max_iter=2000, tol=1e-12), random_state=0)
    model.fit(digits)
    rows = unit(digits).reshape(100, -1)
    lasso = Lasso(alpha=0.05 / 64, fit_intercept=False, tol=1e-12, max_iter=100000)
    expected = lasso.fit(model.atoms_.reshape(20, -1).T, rows.T).coef_
    assert_allclose(model.transform(digits), expected, atol=1e-6)


@pytest.mark.parametrize("sparsity", [0.01, 0.1])
def test_default_codes_are_within_a_thousandth_of_sporco(sparsity):
    digits = load_digits().images[:40].astype(np.float64)
    model = TubSC(6, sparsity=sparsity, random_state=0).fit(digits[:20])
    data = model._layout_.to_tensor(unit(digits[20:]))
    problem = TubalCoding(model.dictionary_, data, sparsity=sparsity)
    theirs = problem.value(sporco_codes(model.dictionary_, data, sparsity, max_iter=3000))
    ours = problem.value(model._recipe().inner_codes(model.encode(digits[20:])))
    assert theirs * (1 - 1e-6) <= ours <= 1.001 * theirs


@pytest.mark.parametrize("sparsity", [0.01, 0.1])
def test_default_codes_are_within_a_thousandth_of_the_lasso(sparsity):
    digits = load_digits().images[:100].astype(np.float64)
    model = SparseCoding(20, sparsity=sparsity, random_state=0).fit(digits[:50])
    atoms, rows = model.atoms_.reshape(20, -1).T, unit(digits[50:]).reshape(50, -1)
    lasso = Lasso(alpha=sparsity / 64, fit_intercept=False, tol=1e-12, max_iter=100000).fit(atoms, rows.T)

    def value(codes):
        return 0.5 * ((rows - codes @ atoms.T) ** 2).sum() + sparsity * abs(codes).sum()

    assert value(model.transform(digits[50:])) <= 1.001 * value(lasso.coef_)


@pytest.mark.parametrize("graph_weight", [0.3, 3.0])
def test_graph_problem_equals_cvxpy(rng, graph_weight):
    cvxpy = pytest.importorskip("cvxpy", reason="cvxpy is not installed: pip install 'tubal[dev]'")
    tube_length, samples = 4, 6
    dictionary = oracles.unit_atoms(rng, 3, 4, tube_length)
    data = rng.normal(size=(3, samples, tube_length))
    matrix = oracles.path_laplacian(samples, rng)
    values, vectors = np.linalg.eigh(matrix)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    codes = cvxpy.Variable((4 * tube_length, samples))
    objective = (
        0.5 * cvxpy.sum_squares(oracles.stacked(data) - oracles.block_circulant(dictionary) @ codes)
        + graph_weight * cvxpy.sum_squares(codes @ root)
        + 0.1 * cvxpy.norm1(cvxpy.vec(codes, order="F"))
    )
    optimum = cvxpy.Problem(cvxpy.Minimize(objective)).solve(solver="CLARABEL")
    problem = TubalCoding(
        oracles.tube_first(dictionary),
        oracles.tube_first(data),
        sparsity=0.1,
        graph_weight=graph_weight,
        laplacian=matrix,
    )
    for solver in (Admm(max_iter=20000, tol=1e-10), Fista(max_iter=40000, tol=1e-9)):
        assert_allclose(problem.value(solver.codes(problem, solver.minimise(problem).state)), optimum, rtol=1e-5)


def test_graph_problem_equals_scipy():
    """Codes split into positive and negative parts make it a bounded smooth problem, which L-BFGS-B solves."""
    from scipy.optimize import minimize

    digits = unit(load_digits().images[:14].astype(np.float64))
    dictionary, data = tensors(digits, 4)
    matrix = laplacian(knn_graph(digits[4:], 3)).toarray()
    problem = TubalCoding(dictionary, data, sparsity=0.05, graph_weight=1.0, laplacian=matrix)
    smooth = TubalCoding(dictionary, data, sparsity=0.0, graph_weight=1.0, laplacian=matrix)
    shape, size = problem.codes_shape, int(np.prod(problem.codes_shape))

    def value_and_slope(halves):
        codes = (halves[:size] - halves[size:]).reshape(shape)
        slope = smooth.gradient(codes).ravel()
        return smooth.value(codes) + 0.05 * halves.sum(), np.concatenate([slope + 0.05, 0.05 - slope])

    found = minimize(
        value_and_slope, np.zeros(2 * size), jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (2 * size),
        options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    solver = Admm(max_iter=20000, tol=1e-10)
    assert_allclose(problem.value(solver.codes(problem, solver.minimise(problem).state)), found.fun, rtol=1e-5)


def test_gtsc_codes_are_close_to_the_minimum():
    """The default number of final steps comes close to a converged solver."""
    digits = load_digits().images[:200].astype(np.float64)
    model = GTSC(20, random_state=0, max_iter=5).fit(digits)
    layout = ImageLayout((8, 8))
    problem = TubalCoding(
        layout.to_tensor(model.atoms_), layout.to_tensor(unit(digits)), sparsity=model.sparsity, graph_weight=1.0,
        laplacian=laplacian(model.graph_),
    )  # fmt: skip
    found = problem.value(np.ascontiguousarray(model.codes_.transpose(2, 1, 0)))
    solver = Admm(max_iter=5000, tol=1e-9)
    best = problem.value(solver.codes(problem, solver.minimise(problem).state))
    assert found <= best * (1.0 + 1e-3)
