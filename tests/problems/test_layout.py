"""Image stacks to tensors and back: rows, tubes, colour, both axes, odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from helpers import oracles
from tubal.algebra import t_product
from tubal.backends.arrays import is_torch, to_numpy
from tubal.problems.layout import ImageLayout

SHAPES = [(4, 6), (5, 3), (1, 7), (7, 1), (4, 5, 3), (3, 4, 1)]


@pytest.mark.parametrize("tube_axis", [-1, -2])
@pytest.mark.parametrize("shape", SHAPES)
def test_to_images_undoes_to_tensor(rng, backend, shape, tube_axis):
    images = rng.normal(size=(6, *shape)).astype(np.float32)
    layout = ImageLayout(shape, tube_axis)
    tensor = layout.to_tensor(backend(images))
    assert tuple(tensor.shape) == (layout.tube_length, layout.n_rows, 6)
    assert tensor.is_contiguous() if is_torch(tensor) else tensor.flags.c_contiguous
    back = layout.to_images(tensor)
    assert type(back) is type(tensor)
    assert_array_equal(to_numpy(back), images)


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_image_is_one_column(rng, backend, shape):
    images = rng.normal(size=(6, *shape))
    layout = ImageLayout(shape, whole=True)
    tensor = layout.to_tensor(backend(images))
    assert layout.tube_length == 1
    assert_array_equal(to_numpy(tensor)[0].T, images.reshape(6, -1))
    assert_array_equal(to_numpy(layout.to_images(tensor)), images)


def test_tubes_run_along_the_width_by_default(rng):
    """The paper's m×k image has its k columns along the tube."""
    images = rng.normal(size=(3, 4, 6))
    tensor = ImageLayout((4, 6)).to_tensor(images)
    for sample, row, column in np.ndindex(3, 4, 6):
        assert tensor[column, row, sample] == images[sample, row, column]
    turned = ImageLayout((4, 6), -2).to_tensor(images)
    for sample, row, column in np.ndindex(3, 4, 6):
        assert turned[row, column, sample] == images[sample, row, column]


def test_channels_are_further_rows(rng):
    images = rng.normal(size=(2, 4, 5, 3))
    tensor = ImageLayout((4, 5, 3)).to_tensor(images)
    assert tensor.shape == (5, 12, 2)
    assert set(tensor[2, :, 1]) == set(images[1, :, 2, :].ravel())


@pytest.mark.parametrize("tube_axis", [-1, -2])
@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (4, 5, 3)])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_unit_code_shifts_the_atom(rng, shape, tube_axis, shift):
    """The t-product of an atom with a unit code at shift s is the atom rolled by s pixels (eq. 6)."""
    atom = rng.normal(size=shape)
    layout = ImageLayout(shape, tube_axis)
    code = np.zeros((1, 1, layout.tube_length))
    code[0, 0, shift] = 1.0
    product = t_product(oracles.tube_last(layout.to_tensor(atom[None])), code)
    moved = layout.to_images(oracles.tube_first(product))[0]
    np.testing.assert_allclose(moved, layout.shift_atom(atom, shift), atol=1e-12)
    np.testing.assert_allclose(moved, np.roll(atom, shift, axis=1 if tube_axis == -1 else 0), atol=1e-12)
