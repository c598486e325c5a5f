"""Which atom at which shift contributes how much (section 2.4, eq. 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tubal.layout import ImageLayout


@dataclass(frozen=True)
class Explanation:
    """An image as a sum of shifted atoms, the largest coefficient first.

    atoms, shifts, coefficients : one entry per non-zero code; shifts are places around the circle.
    """

    atoms: np.ndarray
    shifts: np.ndarray
    coefficients: np.ndarray
    dictionary: np.ndarray
    layout: ImageLayout

    def __len__(self) -> int:
        return len(self.coefficients)

    def term(self, index: int) -> np.ndarray:
        """Return one term: a shifted atom times its coefficient, an image."""
        atom = self.layout.shift_atom(self.dictionary[self.atoms[index]], int(self.shifts[index]))
        return self.coefficients[index] * atom

    def reconstruction(self, n_terms: int | None = None) -> np.ndarray:
        """Return the sum of the first ``n_terms`` terms; of all of them, the model's reconstruction."""
        total = np.zeros(self.layout.image_shape, self.dictionary.dtype)
        for index in range(len(self) if n_terms is None else min(n_terms, len(self))):
            total += self.term(index)
        return total


def explain_codes(codes: np.ndarray, atoms: np.ndarray, layout: ImageLayout) -> Explanation:
    """Return the explanation of one image's codes (atom, tube)."""
    where, shifts = np.nonzero(codes)
    coefficients = codes[where, shifts]
    order = np.argsort(-abs(coefficients), kind="stable")
    return Explanation(where[order], shifts[order], coefficients[order], atoms, layout)
