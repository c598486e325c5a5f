"""The dictionary step's small systems, compiled: what the dual needs of one frequency after another."""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def dual_terms(gram, cross, counts, multipliers, start, stop, dictionary_hat, fitted, norms, curvature):
    """Set every frequency's share of the dual at ``multipliers`` (atom,) for frequencies [start, stop).

    With ``D̂ = cross (gram + Λ)⁻¹``, (frequency, row, atom): ``fitted`` (frequency,) is ``Re <D̂, cross>``, ``norms``
    (frequency, atom) the atoms' squared norms, ``curvature`` (frequency, atom, atom) is
    ``Re[(D̂ᴴ D̂) ∘ ((gram + Λ)⁻¹)ᵀ]``, each times its frequency's count.
    """
    n_rows, n_atoms = cross.shape[1], cross.shape[2]
    for frequency in range(start, stop):
        shifted = gram[frequency].copy()
        for atom in range(n_atoms):
            shifted[atom, atom] += multipliers[atom]
        inverse = np.linalg.inv(shifted)
        hat = np.dot(cross[frequency], inverse)
        products = np.dot(np.ascontiguousarray(np.conj(hat).T), hat)
        count, total = counts[frequency], 0.0
        for row in range(n_rows):
            for atom in range(n_atoms):
                here, there = hat[row, atom], cross[frequency, row, atom]
                total += here.real * there.real + here.imag * there.imag
        fitted[frequency] = count * total
        for atom in range(n_atoms):
            norms[frequency, atom] = count * products[atom, atom].real
            for other in range(n_atoms):
                left, right = products[atom, other], inverse[other, atom]
                curvature[frequency, atom, other] = count * (left.real * right.real - left.imag * right.imag)
        dictionary_hat[frequency] = hat
