"""Solvers reject parameters and problems that they cannot handle, in one clear sentence."""

from __future__ import annotations

import numpy as np
import pytest

from tubal import CSC, TenSR
from tubal.solvers import Admm, Fista, LagrangeDual, PrintedIstt, ProjectedGradient, iterate


@pytest.mark.parametrize("solver", [Admm, Fista, PrintedIstt, LagrangeDual, ProjectedGradient])
@pytest.mark.parametrize("max_iter", [0, -1])
def test_max_iter_must_be_positive(solver, max_iter):
    with pytest.raises(ValueError, match=f"max_iter={max_iter}; it must be at least 1"):
        solver(max_iter=max_iter)


@pytest.mark.parametrize("solver", [Admm, Fista, LagrangeDual, ProjectedGradient])
@pytest.mark.parametrize("tol", [-1e-3, float("nan"), float("inf")])
def test_tol_must_be_finite_and_non_negative(solver, tol):
    with pytest.raises(ValueError, match=r"tol=.*finite number of at least 0"):
        solver(tol=tol)


@pytest.mark.parametrize(
    ("solver", "parameters", "sentence"),
    [
        (Admm, {"relaxation": 3.5}, "relaxation=3.5; it must be a finite number above 0 and below 2"),
        (Admm, {"relaxation": 2.0}, "relaxation=2.0; .* below 2"),
        (Admm, {"relaxation": 0.0}, "relaxation=0.0; .* above 0"),
        (Admm, {"penalty": 0}, "penalty=0; it must be a finite number above 0"),
        (Admm, {"penalty": float("nan")}, "penalty=nan"),
        (Admm, {"check_every": 0}, "check_every=0; it must be at least 1"),
        (Fista, {"check_every": 0}, "check_every=0; it must be at least 1"),
        (PrintedIstt, {"growth": 0.5}, "growth=0.5; it must be a finite number of at least 1"),
        (LagrangeDual, {"ridge": -1.0}, "ridge=-1.0; it must be a finite number of at least 0"),
    ],
)
def test_numbers_out_of_range_raise(solver, parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        solver(**parameters)


@pytest.mark.parametrize("parameters", [{"max_iter": 2.5}, {"max_iter": True}, {"tol": "small"}, {"penalty": None}])
def test_wrong_types_raise(parameters):
    with pytest.raises(TypeError, match=f"{next(iter(parameters))}=.* is wanted"):
        Admm(**parameters)


def test_numpy_numbers_are_accepted():
    assert Admm(max_iter=np.int64(3), tol=np.float32(0.0), penalty=2).max_iter == 3


def test_iterate_rejects_check_every_zero():
    with pytest.raises(ValueError, match="check_every=0"):
        iterate(lambda state, n_steps: state, 0, stop=lambda state: False, max_iter=10, check_every=0)


@pytest.mark.parametrize("model", [CSC(n_atoms=3, filter_shape=(2, 2)), TenSR(n_atoms=(3, 3))])
def test_printed_algorithm_rejects_other_models(rng, model):
    with pytest.raises(TypeError, match=r"PrintedIstt cannot solve a \w+Coding: .* use Fista\(\) or Admm\(\)"):
        model.set_params(code_solver=PrintedIstt()).fit(rng.random((8, 5, 4)))


def test_lagrange_dual_rejects_filters(rng):
    model = CSC(n_atoms=3, filter_shape=(2, 2), dictionary_solver=LagrangeDual())
    with pytest.raises(TypeError, match=r"LagrangeDual cannot solve a Conv\w+: .* use ProjectedGradient\(\)"):
        model.fit(rng.random((8, 5, 4)))
