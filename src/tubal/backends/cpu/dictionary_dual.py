"""Kernel of the dictionary step: value, gradient and Hessian terms of the Lagrange dual, frequency by frequency.

Real and imaginary parts are stored apart, so that every inner loop fills whole vector registers. Calling LAPACK instead
would be as fast on one thread, but takes Numba five times as long to compile, and its threads wait for each other.
"""

from __future__ import annotations

import numpy as np

from tubal.backends.cpu.jit import compiled


@compiled
def _invert(real, imag):
    """Invert a positive definite Hermitian matrix in place, by Gauss-Jordan steps, which need no pivoting here."""
    size = real.shape[0]
    row_real, row_imag = np.empty(size), np.empty(size)
    for pivot in range(size):
        scale = 1.0 / real[pivot, pivot]
        for column in range(size):
            row_real[column] = scale * real[pivot, column]
            row_imag[column] = scale * imag[pivot, column]
        for row in range(size):
            if row == pivot:
                continue
            factor_real, factor_imag = real[row, pivot], imag[row, pivot]
            for column in range(size):
                real[row, column] -= factor_real * row_real[column] - factor_imag * row_imag[column]
                imag[row, column] -= factor_real * row_imag[column] + factor_imag * row_real[column]
            real[row, pivot], imag[row, pivot] = -scale * factor_real, -scale * factor_imag
        for column in range(size):
            real[pivot, column], imag[pivot, column] = row_real[column], row_imag[column]
        real[pivot, pivot], imag[pivot, pivot] = scale, 0.0


@compiled
def _solve_dictionary(cross, real, imag, hat_real, hat_imag):
    """Set D̂ (``hat_real``, ``hat_imag``) to ``cross`` (row, atom) times the inverse; return ``Re <D̂, cross>``."""
    total = 0.0
    for row in range(cross.shape[0]):
        for column in range(cross.shape[1]):
            hat_real[row, column] = hat_imag[row, column] = 0.0
        for inner in range(cross.shape[1]):
            left_real, left_imag = cross[row, inner].real, cross[row, inner].imag
            for column in range(cross.shape[1]):
                hat_real[row, column] += left_real * real[inner, column] - left_imag * imag[inner, column]
                hat_imag[row, column] += left_real * imag[inner, column] + left_imag * real[inner, column]
        for column in range(cross.shape[1]):
            total += hat_real[row, column] * cross[row, column].real + hat_imag[row, column] * cross[row, column].imag
    return total


@compiled
def _curvature(hat_real, hat_imag, real, imag, count, norms, curvature):
    """Set the squared norms of the atoms and ``Re[(D̂ᴴ D̂) ∘ inverseᵀ]``, both times ``count``."""
    n_rows, n_atoms = hat_real.shape
    product_real, product_imag = np.empty(n_atoms), np.empty(n_atoms)
    for atom in range(n_atoms):
        for other in range(n_atoms):
            product_real[other] = product_imag[other] = 0.0
        for row in range(n_rows):
            here_real, here_imag = hat_real[row, atom], hat_imag[row, atom]
            for other in range(n_atoms):
                product_real[other] += here_real * hat_real[row, other] + here_imag * hat_imag[row, other]
                product_imag[other] += here_real * hat_imag[row, other] - here_imag * hat_real[row, other]
        norms[atom] = count * product_real[atom]
        for other in range(n_atoms):
            # The inverse is Hermitian, so its transpose is its conjugate.
            both = product_real[other] * real[atom, other] + product_imag[other] * imag[atom, other]
            curvature[atom, other] = count * both


@compiled
def dual_terms(gram, cross, counts, multipliers, start, stop, dictionary_hat, fitted, norms, curvature):
    """Compute the terms of the dual at ``multipliers`` (atom,) for frequencies [start, stop).

    ``dictionary_hat`` (frequency, row, atom) is set to ``D̂ = cross (gram + Λ)⁻¹``. The three sums are multiplied by
    the count of their frequency: ``fitted`` (frequency,) is ``Re <D̂, cross>``, ``norms`` (frequency, atom) are the
    squared norms of the atoms, ``curvature`` (frequency, atom, atom) is ``Re[(D̂ᴴ D̂) ∘ ((gram + Λ)⁻¹)ᵀ]``.
    """
    n_rows, n_atoms = cross.shape[1], cross.shape[2]
    real, imag = np.empty((n_atoms, n_atoms)), np.empty((n_atoms, n_atoms))
    hat_real, hat_imag = np.empty((n_rows, n_atoms)), np.empty((n_rows, n_atoms))
    for frequency in range(start, stop):
        for row in range(n_atoms):
            for column in range(n_atoms):
                real[row, column] = gram[frequency, row, column].real
                imag[row, column] = gram[frequency, row, column].imag
            real[row, row] += multipliers[row]
        _invert(real, imag)
        count = counts[frequency]
        fitted[frequency] = count * _solve_dictionary(cross[frequency], real, imag, hat_real, hat_imag)
        _curvature(hat_real, hat_imag, real, imag, count, norms[frequency], curvature[frequency])
        for row in range(n_rows):
            for column in range(n_atoms):
                dictionary_hat[frequency, row, column] = complex(hat_real[row, column], hat_imag[row, column])
