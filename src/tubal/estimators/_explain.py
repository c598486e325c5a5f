"""Which atom at which shift contributes how much (section 2.4, eq. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Explanation:
    """An image as a sum of shifted atoms, the largest coefficient first.

    atoms, shifts, coefficients : one entry per non-zero code; shifts are places around the circle, (t, 2) pairs
    (down, right) under CSC, and (t, 0), none, under TenSR, whose atoms are outer products.
    """

    atoms: np.ndarray
    shifts: np.ndarray
    coefficients: np.ndarray
    dictionary: np.ndarray
    layout: Any

    def __len__(self) -> int:
        return len(self.coefficients)

    def term(self, index: int) -> np.ndarray:
        """Return one term: a shifted atom times its coefficient, an image."""
        atom = self.layout.shift_atom(self.dictionary[self.atoms[index]], self.shifts[index])
        return np.asarray(self.coefficients[index] * atom)

    def reconstruction(self, n_terms: int | None = None) -> np.ndarray:
        """Return the sum of the first ``n_terms`` terms; of all of them, the model's reconstruction."""
        total = np.zeros(self.layout.image_shape, self.dictionary.dtype)
        for index in range(len(self) if n_terms is None else min(n_terms, len(self))):
            total += self.term(index)
        return total


def explain_codes(codes: np.ndarray, atoms: np.ndarray, layout: Any) -> Explanation:
    """Return the explanation of one image's codes (atom, *positions)."""
    where, *positions = np.nonzero(codes)
    coefficients = codes[codes != 0]
    order = np.argsort(-abs(coefficients), kind="stable")
    shifts = positions[0] if len(positions) == 1 else np.array(positions, int).reshape(len(positions), len(where)).T
    return Explanation(where[order], shifts[order], coefficients[order], atoms, layout)
