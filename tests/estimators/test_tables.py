"""Coders in pipelines of scikit-learn: data frames from ``set_output``, and parameters of ``fit``."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tubal import CSC, GTSC, GraphSC, SparseCoding, TenSR, TubSC
from tubal.datasets import make_shifted_shapes

IMAGES = make_shifted_shapes(24, n_classes=3, image_shape=(8, 8), random_state=0).images
CODERS = [
    *(coder(n_atoms=4, max_iter=1, random_state=0) for coder in (TubSC, GTSC, SparseCoding, GraphSC)),
    TenSR(n_atoms=(2, 2), max_iter=1, random_state=0),
    CSC(n_atoms=4, filter_shape=(3, 3), max_iter=1, random_state=0),
]


@pytest.fixture(params=["pandas", "polars"])
def library(request):
    """The name of a library of data frames, and the library."""
    return request.param, pytest.importorskip(request.param, reason="pip install --group test")


@pytest.mark.parametrize("coder", CODERS, ids=lambda coder: type(coder).__name__)
def test_features_are_a_data_frame_with_names(coder, library):
    name, module = library
    plain = coder.set_output(transform="default").fit(IMAGES).transform(IMAGES[:5])
    frame = coder.set_output(transform=name).transform(IMAGES[:5])
    assert isinstance(frame, module.DataFrame)
    assert list(frame.columns) == list(coder.get_feature_names_out())
    assert frame.columns[0] == f"{type(coder).__name__.lower()}0"
    np.testing.assert_array_equal(frame.to_numpy(), plain)


def test_pipeline_of_rows_returns_a_data_frame(library):
    name, module = library
    coder = TubSC(n_atoms=4, image_shape=(8, 8), max_iter=1, random_state=0)
    pipeline = make_pipeline(coder, StandardScaler()).set_output(transform=name)
    frame = pipeline.fit_transform(IMAGES.reshape(len(IMAGES), -1))
    assert isinstance(frame, module.DataFrame)
    assert list(frame.columns) == ["tubsc0", "tubsc1", "tubsc2", "tubsc3"]


@pytest.mark.parametrize("coder", CODERS, ids=lambda coder: type(coder).__name__)
def test_pipeline_passes_parameters_of_fit_on(coder):
    seen = []
    follow = {"progress": lambda *stage: seen.append(stage)}
    features = clone(coder).fit_transform(IMAGES, chunk_size=10, **follow)
    assert seen
    pipeline = make_pipeline(clone(coder), StandardScaler())
    step = type(coder).__name__.lower()
    named = pipeline.fit_transform(IMAGES, **{f"{step}__chunk_size": 10})
    with config_context(enable_metadata_routing=True):
        asked = make_pipeline(clone(coder).set_fit_request(chunk_size=True), StandardScaler())
        routed = asked.fit_transform(IMAGES, chunk_size=10)
    np.testing.assert_array_equal(named, StandardScaler().fit_transform(features))
    np.testing.assert_array_equal(routed, named)
