"""The real Fourier basis: orthonormal, and t-products as small real blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from helpers import oracles
from tubal.backends.arrays import as_double, rfft, to_numpy
from tubal.problems.fourier import as_blocks, as_slices, fold, fourier_basis, from_coefficients, to_coefficients
from tubal.problems.tubal_dictionary import TubalStatistics

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 32)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_basis_is_orthonormal_and_ordered(tube_length):
    basis = fourier_basis(tube_length, np.zeros(1))
    assert_allclose(basis @ basis.T, np.eye(tube_length), atol=1e-13)
    assert_allclose(basis[0], np.full(tube_length, tube_length**-0.5))
    if tube_length % 2 == 0:
        assert_allclose(basis[1] * tube_length**0.5, (-1.0) ** np.arange(tube_length), atol=1e-13)


@pytest.mark.parametrize("tube_length", LENGTHS)
def test_coefficients_are_the_dft_in_real_form(rng, tube_length):
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
def test_coefficients_go_back_and_keep_norms(rng, backend, tube_length):
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
def test_blocks_and_slices_name_the_same_map(rng, tube_length):
    """Blocks of a map, read as slices, give it back: twice where the pair counts twice."""
    slices = np.fft.rfft(rng.normal(size=(tube_length, 3, 2)), axis=0)
    back = as_slices(fold(as_blocks(slices, tube_length, np.zeros(1))), np.ones(len(slices)))
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
def test_single_precision_is_kept(rng, backend, tube_length):
    tensor = backend(rng.normal(size=(tube_length, 2, 3)).astype(np.float32))
    assert to_coefficients(tensor).dtype == tensor.dtype
    operator = as_blocks(rfft(as_double(tensor), axis=0), tube_length, tensor)
    assert operator.pairs.dtype == tensor.dtype
    assert operator.head.dtype == tensor.dtype
