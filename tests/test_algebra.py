"""The public algebra: t-product, transpose, spectra and norms, whatever the sizes, types and backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from helpers import oracles
from tubal.algebra import (
    fold,
    from_spectrum,
    spectrum_weights,
    t_product,
    t_transpose,
    to_spectrum,
    tube_norms,
    unfold,
)
from tubal.backends.arrays import to_numpy

SIDES = st.integers(1, 4)
VALUES = st.floats(-10.0, 10.0, allow_subnormal=False)


@st.composite
def tensors(draw, n_factors=1):
    """Tensors that can be multiplied in turn, all with one tube length."""
    tube_length = draw(st.integers(1, 7))
    sides = draw(st.lists(SIDES, min_size=n_factors + 1, max_size=n_factors + 1))
    return [
        draw(arrays(np.float64, (sides[index], sides[index + 1], tube_length), elements=VALUES))
        for index in range(n_factors)
    ]


@given(tensors(2))
def test_product_is_convolution_of_tubes(pair):
    assert_allclose(t_product(*pair), oracles.slow_t_product(*pair), atol=1e-10)


@given(tensors(3))
def test_product_is_associative(three):
    first, second, third = three
    left, right = t_product(t_product(first, second), third), t_product(first, t_product(second, third))
    assert_allclose(left, right, atol=1e-8)


@given(tensors(2))
def test_product_is_linear_in_each_operand(pair):
    left, right = pair
    assert_allclose(t_product(2.0 * left, right), 2.0 * t_product(left, right), atol=1e-9)
    assert_allclose(t_product(left, right - 3.0 * right), -2.0 * t_product(left, right), atol=1e-9)


@given(tensors(2))
def test_transpose_reverses_products_and_undoes_itself(pair):
    left, right = pair
    expected = t_product(t_transpose(right), t_transpose(left))
    assert_allclose(t_transpose(t_product(left, right)), expected, atol=1e-9)
    assert_allclose(t_transpose(t_transpose(left)), left)


@given(tensors(2), st.data())
def test_transpose_is_the_adjoint(pair, data):
    left, codes = pair
    image = data.draw(arrays(np.float64, (left.shape[0], codes.shape[1], left.shape[2]), elements=VALUES))
    there = np.sum(t_product(left, codes) * image)
    back = np.sum(codes * t_product(t_transpose(left), image))
    assert_allclose(there, back, atol=1e-7)


@given(tensors(1))
def test_transpose_is_the_transposed_circulant(single):
    (tensor,) = single
    assert_allclose(oracles.block_circulant(t_transpose(tensor)), oracles.block_circulant(tensor).T)


@given(tensors(1))
def test_parseval_on_half_spectra(single):
    (tensor,) = single
    tube_length = tensor.shape[2]
    spectrum = to_spectrum(tensor)
    weights = spectrum_weights(tube_length, tensor)
    assert weights.sum() == tube_length
    total = np.sum(weights[:, None, None] * np.abs(spectrum) ** 2)
    assert_allclose(total, tube_length * np.sum(tensor**2), rtol=1e-12, atol=1e-12)


@given(tensors(1))
def test_spectrum_goes_back_and_is_the_dft(single):
    (tensor,) = single
    spectrum = to_spectrum(tensor)
    assert_allclose(spectrum, oracles.full_spectrum(tensor)[: tensor.shape[2] // 2 + 1], atol=1e-10)
    assert_allclose(from_spectrum(spectrum, tube_length=tensor.shape[2]), tensor, atol=1e-12)


@given(tensors(1))
def test_unfold_stacks_slices_and_folds_back(single):
    (tensor,) = single
    assert_allclose(unfold(tensor), oracles.stacked(tensor))
    assert_allclose(fold(unfold(tensor), tube_length=tensor.shape[2]), tensor)


@given(tensors(1))
def test_tube_norms_are_lengths_of_tubes(single):
    (tensor,) = single
    assert_allclose(tube_norms(tensor), np.linalg.norm(tensor, axis=2), atol=1e-12)


@pytest.mark.parametrize("tube_length", oracles.TUBE_LENGTHS)
def test_identity_tensor_changes_nothing(rng, tube_length):
    tensor = rng.normal(size=(3, 4, tube_length))
    identity = np.zeros((3, 3, tube_length))
    identity[:, :, 0] = np.eye(3)
    assert_allclose(t_product(identity, tensor), tensor, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tube_length", oracles.TUBE_LENGTHS)
def test_type_and_backend_are_kept(rng, backend, dtype, tube_length):
    left, right = (rng.normal(size=shape).astype(dtype) for shape in [(4, 3, tube_length), (3, 5, tube_length)])
    first, second = backend(left), backend(right)
    product, transposed, norms = t_product(first, second), t_transpose(first), tube_norms(first)
    for result in (product, transposed, norms, unfold(first)):
        assert type(result) is type(first)
        assert result.dtype == first.dtype
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    assert_allclose(to_numpy(product), oracles.slow_t_product(left, right), atol=tolerance)
    assert_allclose(to_numpy(transposed), t_transpose(left))


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 2, 4), (3, 2, 4)), ((3, 2, 4), (2, 2, 5)), ((3, 2), (2, 2)), ((3, 2, 4), (2, 4))],
)
def test_operands_that_do_not_fit_are_named(left, right):
    with pytest.raises(ValueError, match="t_product") as caught:
        t_product(np.zeros(left), np.zeros(right))
    assert str(left) in str(caught.value)
    assert str(right) in str(caught.value)


def test_transpose_of_a_matrix_is_refused():
    with pytest.raises(ValueError, match=r"rows, columns, tube"):
        t_transpose(np.zeros((3, 2)))


def test_operands_are_left_alone(rng):
    left, right = rng.normal(size=(4, 3, 5)), rng.normal(size=(3, 2, 5))
    copies = left.copy(), right.copy()
    t_product(left, right), t_transpose(left), unfold(left)
    assert_allclose(left, copies[0], rtol=0)
    assert_allclose(right, copies[1], rtol=0)
