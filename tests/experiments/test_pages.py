"""The figures of the tables: neighbours are drawn with their alignment."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from tubal.experiments.methods import ablated_graph
from tubal.experiments.pages import align


@pytest.mark.parametrize("motion", ["rotation", "scale", "shift"])
def test_alignment_moves_a_neighbour_onto_its_image(rng, motion):
    blobs = ndimage.gaussian_filter(rng.normal(size=(24, 32, 32)), (0, 3, 3)) * 10
    move = {
        "rotation": lambda image: ndimage.rotate(image, 10.0, reshape=False, order=1, mode="nearest"),
        "scale": lambda image: ndimage.affine_transform(
            image, np.eye(2) / 1.08, offset=15.5 * (1 - 1 / 1.08), order=1, mode="nearest"
        ),
        "shift": lambda image: ndimage.shift(image, (2.0, -1.0), order=1, mode="nearest"),
    }[motion]
    images = np.concatenate([blobs, np.stack([move(image) for image in blobs])])

    graph = ablated_graph(images, 1)

    partner = (np.arange(48) + 24) % 48
    assert (graph.neighbors[:, 0] == partner).mean() > 0.9
    before, after = np.empty(48), np.empty(48)
    for index in range(48):
        neighbour = images[graph.neighbors[index, 0]]
        before[index] = np.square(neighbour - images[index])[4:-4, 4:-4].sum()
        after[index] = np.square(align(neighbour, graph, index, 0) - images[index])[4:-4, 4:-4].sum()
    assert np.median(after / before) < 0.3
