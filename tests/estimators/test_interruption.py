"""A fit stores all its results together at the end: an interrupted one leaves the former fit untouched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tubal
from tubal.solvers import Admm

CODERS = ["TubSC", "GTSC", "SparseCoding", "GraphSC", "TenSR", "CSC"]
IMAGES = np.random.default_rng(0).random((20, 6, 5))
OTHERS = np.random.default_rng(1).random((25, 4, 7))  # other number, other shape


class Interrupted(KeyboardInterrupt):
    pass


def interrupt(progress):
    raise Interrupted


def coder(name, **parameters):
    small = {"n_atoms": (3, 3) if name == "TenSR" else 4, "max_iter": 2, "random_state": 0}
    if name in ("TenSR", "CSC"):
        small["graph_weight"] = 0.5
    return getattr(tubal, name)(**small | parameters)


def fitted(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def check_untouched(model, before):
    after = fitted(model)
    assert after.keys() == before.keys()
    assert [name for name in before if after[name] is not before[name]] == []


@pytest.mark.parametrize("chunk_size", [None, 10])
@pytest.mark.parametrize("name", CODERS)
def test_interrupted_second_fit_keeps_the_first_fit(name, chunk_size):
    model = coder(name).fit(IMAGES)
    before, features = fitted(model), model.transform(IMAGES)
    model.set_params(callbacks=interrupt)
    with pytest.raises(Interrupted):
        model.fit(OTHERS, chunk_size=chunk_size)
    check_untouched(model, before)
    assert_array_equal(model.transform(IMAGES), features)


@pytest.mark.parametrize("name", CODERS)
def test_interrupted_first_fit_leaves_the_model_unfitted(name):
    model = coder(name, callbacks=interrupt)
    with pytest.raises(Interrupted):
        model.fit(IMAGES)
    assert fitted(model) == {}


@pytest.mark.parametrize("wrong", [np.full((5, 3, 3), np.nan), np.zeros((0, 6, 5)), "images"])
def test_fit_on_bad_images_keeps_the_previous_fit(wrong):
    model = coder("GTSC").fit(IMAGES)
    before = fitted(model)
    with pytest.raises((ValueError, TypeError)):
        model.fit(wrong)
    check_untouched(model, before)


@dataclass(frozen=True)
class Failing(Admm):
    """A coding solver that is interrupted in its first step."""

    def minimise(self, problem, start=None, monitor=None):
        raise Interrupted


def test_interrupted_partial_fit_keeps_the_previous_fit():
    model = coder("TubSC").partial_fit(IMAGES)
    before, n_objectives = fitted(model), len(model.objective_)
    model.set_params(code_solver=Failing())
    with pytest.raises(Interrupted):
        model.partial_fit(IMAGES)
    check_untouched(model, before)
    assert len(model.objective_) == n_objectives


def test_fit_discards_earlier_partial_fits():
    model = coder("TubSC").partial_fit(OTHERS).fit(IMAGES)
    assert not hasattr(model, "statistics_")
    assert model.partial_fit(IMAGES).n_samples_seen_ == len(IMAGES)


class Frame(np.ndarray):
    """Rows with named columns, in place of a data frame."""


def test_feature_names_in_is_replaced_by_fit(monkeypatch):
    names = np.array([f"pixel {index}" for index in range(30)], object)
    monkeypatch.setattr(
        "sklearn.utils.validation._get_feature_names", lambda X: names if isinstance(X, Frame) else None
    )
    frame = IMAGES.reshape(20, -1).view(Frame)
    model = coder("TubSC").fit(frame)
    assert_array_equal(model.feature_names_in_, names)
    model = coder("TubSC").partial_fit(frame).partial_fit(frame)
    assert_array_equal(model.feature_names_in_, names)
    assert not hasattr(model.fit(IMAGES), "feature_names_in_")
