"""Triton kernels of the deformable distance against plain torch; they need a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tubal.graph import Deformation
from tubal.graph.deformable import DeformableSearch, Effort

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("triton") is None, reason="needs a CUDA GPU and Triton"
)


@needs_gpu
@pytest.mark.parametrize(
    ("shape", "window", "context"),
    [((28, 28), 1 / 32, 1), ((9, 13), 1 / 32, 2), ((12, 10, 2), 0.0, 1), ((16, 40), 1 / 8, 0)],
)
def test_fused_distances_equal_those_of_plain_torch(rng, monkeypatch, shape, window, context):
    from tubal.graph import deformable_torch

    images = rng.random((30, *shape)).astype(np.float32)
    images[2] = 0.5
    search = DeformableSearch(images, Deformation(window=window), Effort(5, 4, 16, context))
    search = deformable_torch.DeviceSearch.of(search, torch.as_tensor(images, device="cuda"))
    limits = len(search.prepared.images), len(search.bank.warps), len(search.bank.shifts)
    pairs = [torch.as_tensor(rng.integers(limit, size=(20, 7)), device="cuda") for limit in limits]
    shares = []
    found = search._pair_distances(search.prepared.images[:20], *pairs, shares.append)
    assert shares[-1] == 1.0
    monkeypatch.setattr(deformable_torch, "find_spec", lambda name: None)
    wanted = search._pair_distances(search.prepared.images[:20], *pairs, lambda share: None)
    assert_allclose(found.cpu(), wanted.cpu(), atol=2e-6)
