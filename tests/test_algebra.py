"""The algebra of tubes, public and internal, for all sizes, types and both array libraries."""

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
from tubal.backends.arrays import as_double, rfft, to_numpy
from tubal.problems.linear_map import (
    as_blocks,
    fourier_basis,
    from_coefficients,
    hermitian_parts,
    slices_from_parts,
    to_coefficients,
)
from tubal.problems.tubal import TubalStatistics

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
def test_product_convolves_tubes(pair):
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
def test_transpose_reverses_products(pair):
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
def test_parseval_holds_on_half_spectra(single):
    (tensor,) = single
    tube_length = tensor.shape[2]
    spectrum = to_spectrum(tensor)
    weights = spectrum_weights(tube_length, tensor)
    assert weights.sum() == tube_length
    total = np.sum(weights[:, None, None] * np.abs(spectrum) ** 2)
    assert_allclose(total, tube_length * np.sum(tensor**2), rtol=1e-12, atol=1e-12)


@given(tensors(1))
def test_spectrum_is_the_invertible_dft(single):
    (tensor,) = single
    spectrum = to_spectrum(tensor)
    assert_allclose(spectrum, oracles.full_spectrum(tensor)[: tensor.shape[2] // 2 + 1], atol=1e-10)
    assert_allclose(from_spectrum(spectrum, tube_length=tensor.shape[2]), tensor, atol=1e-12)


@given(tensors(1))
def test_fold_undoes_unfold(single):
    (tensor,) = single
    assert_allclose(unfold(tensor), oracles.stacked(tensor))
    assert_allclose(fold(unfold(tensor), tube_length=tensor.shape[2]), tensor)


@given(tensors(1))
def test_tube_norms_are_euclidean(single):
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
def test_type_and_library_are_kept(rng, backend, dtype, tube_length):
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
def test_mismatched_operands_raise(left, right):
    with pytest.raises(ValueError, match="t_product") as caught:
        t_product(np.zeros(left), np.zeros(right))
    assert str(left) in str(caught.value)
    assert str(right) in str(caught.value)


def test_transpose_of_a_matrix_raises():
    with pytest.raises(ValueError, match=r"rows, columns, tube"):
        t_transpose(np.zeros((3, 2)))


CUBE = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: t_product(CUBE.tolist(), CUBE), "got a list"),
        (lambda: t_product(CUBE, CUBE.swapaxes(0, 1) + 1j), "real numbers, got complex128"),
        (lambda: t_product(CUBE[:, :, :0], CUBE.swapaxes(0, 1)[:, :, :0]), "at least one number"),
        (lambda: t_transpose(CUBE.tolist()), "got a list"),
        (lambda: unfold(CUBE[0]), r"got shape \(3, 4\)"),
        (lambda: fold(CUBE[0], tube_length=2), "3 rows for tube_length=2"),
        (lambda: fold(CUBE[0], tube_length=0), "3 rows for tube_length=0"),
        (lambda: fold(CUBE, tube_length=2), r"got shape \(2, 3, 4\)"),
        (lambda: from_spectrum(to_spectrum(CUBE), tube_length=7), "3 frequencies for tube_length=7"),
        (lambda: tube_norms(CUBE + 1j), "real numbers, got complex128"),
        (lambda: tube_norms(CUBE.tolist()), "got a list"),
    ],
)
def test_bad_tensors_raise_a_one_sentence_error(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_tensors_and_arrays_are_not_mixed(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")
    array, tensor = rng.normal(size=(2, 2, 3)), torch.ones(2, 2, 3)
    for left, right in ((array, tensor), (tensor, array), (tensor, tensor.double())):
        with pytest.raises(TypeError, match="two NumPy arrays, or two torch tensors of one type"):
            t_product(left, right)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_norms_of_integers_do_not_overflow(backend, dtype):
    values = np.full((2, 3, 4), 100, dtype)
    assert_allclose(to_numpy(tube_norms(backend(values))), np.full((2, 3), 200.0))


def test_operands_are_not_changed(rng):
    left, right = rng.normal(size=(4, 3, 5)), rng.normal(size=(3, 2, 5))
    copies = left.copy(), right.copy()
    t_product(left, right), t_transpose(left), unfold(left)
    assert_allclose(left, copies[0], rtol=0)
    assert_allclose(right, copies[1], rtol=0)


# --- the real Fourier basis -------------------------------------------------------------------------------------------
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 32)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_fourier_basis_is_orthonormal_and_begins_with_the_mean(tube_length):
    basis = fourier_basis(tube_length, np.zeros(1))
    assert_allclose(basis @ basis.T, np.eye(tube_length), atol=1e-13)
    assert_allclose(basis[0], np.full(tube_length, tube_length**-0.5))
    if tube_length % 2 == 0:
        assert_allclose(basis[1] * tube_length**0.5, (-1.0) ** np.arange(tube_length), atol=1e-13)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_coefficients_are_the_real_form_of_the_dft(rng, tube_length):
    """Each pair (cosine, sine) holds sqrt(2/k) times the real and imaginary part of one DFT bin."""
    tensor = rng.normal(size=(tube_length, 2, 3))
    coefficients, spectrum = to_coefficients(tensor), np.fft.rfft(tensor, axis=0)
    n_ends = 1 if tube_length % 2 else 2
    assert_allclose(coefficients[0], spectrum[0].real * tube_length**-0.5, atol=1e-12)
    if n_ends == 2:
        assert_allclose(coefficients[1], spectrum[-1].real * tube_length**-0.5, atol=1e-12)
    for frequency in range(1, (tube_length + 1) // 2):
        cosine, sine = coefficients[n_ends + 2 * frequency - 2], coefficients[n_ends + 2 * frequency - 1]
        assert_allclose(cosine + 1j * sine, spectrum[frequency] * (2.0 / tube_length) ** 0.5, atol=1e-12)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_coefficients_are_invertible_and_keep_norms(rng, backend, tube_length):
    tensor = rng.normal(size=(tube_length, 3, 4))
    coefficients = to_coefficients(backend(tensor))
    assert_allclose(to_numpy(from_coefficients(coefficients)), tensor, atol=1e-12)
    assert_allclose(np.sum(to_numpy(coefficients) ** 2), np.sum(tensor**2), rtol=1e-12)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_blocks_multiply_like_the_t_product(rng, backend, tube_length):
    left, right = rng.normal(size=(4, 3, tube_length)), rng.normal(size=(3, 5, tube_length))
    inner = backend(oracles.tube_first(right))
    slices = rfft(as_double(backend(oracles.tube_first(left))), axis=0)
    operator = as_blocks(slices, tube_length, inner)
    product = to_numpy(from_coefficients(operator @ to_coefficients(inner)))
    assert_allclose(oracles.tube_last(product), oracles.slow_t_product(left, right), atol=1e-12)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_transposed_blocks_are_the_adjoint(rng, tube_length):
    slices = np.fft.rfft(rng.normal(size=(tube_length, 4, 3)), axis=0)
    codes, images = rng.normal(size=(tube_length, 3, 5)), rng.normal(size=(tube_length, 4, 5))
    operator = as_blocks(slices, tube_length, codes)
    assert_allclose(np.sum((operator @ codes) * images), np.sum(codes * (operator.transpose @ images)), rtol=1e-11)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_hermitian_parts_of_a_map_are_its_slices(rng, tube_length):
    """Each slice is multiplied by the number of times its bin occurs in the full spectrum."""
    slices = np.fft.rfft(rng.normal(size=(tube_length, 3, 2)), axis=0)
    back = slices_from_parts(hermitian_parts(as_blocks(slices, tube_length, np.zeros(1))), np.ones(len(slices)))
    counts = np.array([1.0 if 2 * bin_ in (0, tube_length) else 2.0 for bin_ in range(tube_length // 2 + 1)])
    assert_allclose(back, counts[:, None, None] * slices, atol=1e-12)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_statistics_are_products_of_spectra(rng, backend, tube_length):
    data, codes = rng.normal(size=(tube_length, 4, 6)), rng.normal(size=(tube_length, 3, 6))
    found = TubalStatistics.from_coefficients(to_coefficients(backend(data)), to_coefficients(backend(codes)))
    data_hat, codes_hat = np.fft.rfft(data, axis=0), np.fft.rfft(codes, axis=0)
    adjoint = codes_hat.conj().swapaxes(1, 2)
    assert_allclose(to_numpy(found.gram), codes_hat @ adjoint, atol=1e-10)
    assert_allclose(to_numpy(found.cross), data_hat @ adjoint, atol=1e-10)
    assert_allclose(found.squares, np.sum(data**2), rtol=1e-12)
    assert_allclose(to_numpy(found.usage), np.sum(codes**2, axis=(0, 2)), rtol=1e-10)


@pytest.mark.parametrize("tube_length", [5, 6])
def test_block_operators_keep_single_precision(rng, backend, tube_length):
    tensor = backend(rng.normal(size=(tube_length, 2, 3)).astype(np.float32))
    assert to_coefficients(tensor).dtype == tensor.dtype
    operator = as_blocks(rfft(as_double(tensor), axis=0), tube_length, tensor)
    assert operator.pairs.dtype == tensor.dtype
    assert operator.head.dtype == tensor.dtype
