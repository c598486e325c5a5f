"""TenSR and CSC work with plots, reports and new images like the other coders."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tubal import CSC, TenSR, plot
from tubal.estimators import explain_images

MODELS = [
    pytest.param(lambda: CSC(n_atoms=4, filter_shape=(3, 2), **SHARED), id="CSC"),
    pytest.param(lambda: TenSR(n_atoms=(4, 3), **SHARED), id="TenSR"),
]
SHARED = {"max_iter": 3, "graph_weight": 0.5, "n_neighbors": 2, "random_state": 0}


@pytest.mark.parametrize("make", MODELS)
def test_plots_and_explanations_show_the_model(make, rng):
    pytest.importorskip("matplotlib").use("agg")
    images = rng.random((12, 6, 5))
    model = make().fit(images)
    for drawn in (plot.atoms(model), plot.codes(model, 2), plot.convergence(model), plot.neighbors(model, images, 3)):
        assert drawn.figure is not None
    terms = [explanation.table() for explanation in explain_images(model, images, with_graph=True)]
    for rows, image in zip(terms, model.decode(model.codes_), strict=True):
        parts = [value * np.roll(model.atoms_[int(atom)], (int(dy), int(dx)), (0, 1)) for atom, dy, dx, value in rows]
        assert_allclose(np.sum(parts, axis=0), image, atol=1e-10)


@pytest.mark.parametrize("make", MODELS)
def test_new_codes_do_not_depend_on_the_batch(make, rng):
    images, fresh = rng.random((12, 6, 5)), rng.random((4, 6, 5))
    model = make().fit(images)
    assert_allclose(model.encode(fresh[:1]), model.encode(fresh)[:1], atol=1e-12)
