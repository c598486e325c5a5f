"""Masked arrays and tensors that require gradients raise one sentence in every estimator."""

from __future__ import annotations

import numpy as np
import pytest

import tubal

NAMES = ["GTSC", "TubSC", "GraphSC", "SparseCoding", "TenSR", "CSC", "ImageClusterer"]
IMAGES = np.random.default_rng(0).random((12, 6, 5))


def _masked():
    return np.ma.masked_greater(IMAGES, 0.9)


def _with_gradients():
    return pytest.importorskip("torch").tensor(IMAGES, requires_grad=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("make", "sentence"),
    [(_masked, r"masked array with \d+ masked values.*X\.filled"), (_with_gradients, r"gradients.*X\.detach\(\)")],
)
def test_masks_and_gradients_raise_in_fit(name, make, sentence):
    with pytest.raises(ValueError, match=sentence):
        getattr(tubal, name)().fit(make())


@pytest.mark.parametrize(("make", "sentence"), [(_masked, r"X\.filled"), (_with_gradients, r"X\.detach\(\)")])
def test_masks_and_gradients_raise_everywhere(make, sentence):
    model = tubal.TubSC(n_atoms=2, tol=1.0, random_state=0).fit(IMAGES)
    for use in (model.encode, model.partial_fit, lambda images: model.fit(images, chunk_size=4)):
        with pytest.raises(ValueError, match=sentence):
            use(make())
