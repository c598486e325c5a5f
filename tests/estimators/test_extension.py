"""Writing a new coder: a subclass of ImageCoder lists its parameters and overrides the hooks in which it differs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from tubal import SparseCoding
from tubal.estimators import ImageCoder
from tubal.estimators.image_coder import GraphCoder
from tubal.problems.layout import ImageLayout, signed_codes

IMAGES = np.random.default_rng(0).random((20, 6, 5))


class OwnCoder(ImageCoder):
    """Ordinary sparse coding, written as an extension."""

    def __init__(self, n_atoms=4, *, sparsity=0.01, max_iter=3, init="images", random_state=None):
        super().__init__(sparsity=sparsity, max_iter=max_iter, init=init, random_state=random_state)
        self.n_atoms = n_atoms

    def _layout(self):
        return partial(ImageLayout, whole=True)

    def _pool(self, codes):
        return signed_codes(codes)


class OwnGraphCoder(GraphCoder):
    """The same with a graph."""

    _layout, _pool = OwnCoder._layout, OwnCoder._pool

    def __init__(self, n_atoms=4, *, graph_weight=0.5, n_neighbors=2, graph="euclidean", random_state=None):
        super().__init__(max_iter=3, random_state=random_state)
        self.n_atoms = n_atoms
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.graph = graph


def test_user_defined_coder_equals_sparse_coding():
    own = OwnCoder(random_state=0).fit(IMAGES)
    expected = SparseCoding(n_atoms=4, sparsity=0.01, max_iter=3, random_state=0).fit(IMAGES)
    assert_array_equal(own.codes_, expected.codes_)
    assert_array_equal(own.transform(IMAGES[:3]), expected.transform(IMAGES[:3]))


@pytest.mark.parametrize("estimator", [OwnCoder, OwnGraphCoder])
def test_user_defined_coder_supports_checkpoints_chunks_and_explanations(estimator, tmp_path):
    own = estimator(random_state=0)
    whole = clone(own).fit(IMAGES, checkpoint=tmp_path / "fit.ckpt")
    chunked = clone(own).fit(IMAGES, chunk_size=8)
    assert_allclose(chunked.objective_[-1], whole.objective_[-1], rtol=0.2)
    assert len(whole.explain(IMAGES[0])) > 0
    assert_allclose(whole.encode(IMAGES), whole.codes_, atol=1e-6)
    assert whole.decode(whole.codes_).shape == IMAGES.shape


def test_user_defined_coder_learns_from_batches():
    own = OwnCoder(random_state=0).partial_fit(IMAGES[:10]).partial_fit(IMAGES[10:])
    assert own.n_samples_seen_ == 20
    assert not hasattr(OwnGraphCoder(), "partial_fit")


def test_parameters_of_user_defined_coders_are_checked():
    with pytest.raises(ValueError, match="n_atoms=0; it must be at least 1"):
        OwnCoder(n_atoms=0).fit(IMAGES)
    with pytest.raises(ValueError, match="graph_weight=-1"):
        OwnGraphCoder(graph_weight=-1.0).fit(IMAGES)
