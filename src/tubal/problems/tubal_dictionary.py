"""The dictionary half of the tubal model: sufficient statistics and the problem they define (eqs. 15-19).

    minimise over D   1/2 ||X - D * B||²   subject to   ||D(:, j, :)||_F <= 1

Everything is double precision on half spectra. A bin counts ``weight_l / k`` in every norm and trace, where
weight is 2 for inner bins; with that the objective is the paper's (15), which (16) prints 2k times too large.
Statistics may be NumPy arrays where dictionaries are tensors: they are small, and the dictionary step is the host's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tubal.algebra import spectrum_weights
from tubal.backends.arrays import Array, as_double, as_like, irfft, is_torch, namespace, restore_like, rfft, to_numpy
from tubal.problems.base import project_to_ball
from tubal.problems.fourier import BlockOperator, as_slices, fold


@dataclass(frozen=True)
class TubalStatistics:
    """What a dictionary step needs of any number of images: same size whatever that number.

    gram : ``B̂ B̂ᴴ`` (frequency, atom, atom); cross : ``X̂ B̂ᴴ`` (frequency, row, atom); both summed over images.
    squares : ``||X||²``.
    """

    gram: Array
    cross: Array
    squares: float
    tube_length: int

    @classmethod
    def from_folded(cls, gram: Array, cross: Array, squares: float) -> TubalStatistics:
        """Build from folded products of real Fourier coefficients, (tube, atom, atom) and (tube, row, atom)."""
        tube_length = gram.shape[0]
        counts = spectrum_weights(tube_length, gram) / tube_length
        return cls(as_slices(gram, counts), as_slices(cross, counts), squares, tube_length)

    @classmethod
    def from_coefficients(cls, data_hat: Array, codes_hat: Array) -> TubalStatistics:
        """Build from the real Fourier coefficients of data and codes (tube, row, sample)."""
        tube_length, n_samples = data_hat.shape[0], data_hat.shape[2]
        n_head = tube_length % 2
        parts = []
        for left in (codes_hat, data_hat):
            head = as_double(left[:n_head] @ _swap(codes_hat[:n_head]))
            left_pairs = left[n_head:].reshape(tube_length // 2, 2 * left.shape[1], n_samples)
            code_pairs = codes_hat[n_head:].reshape(tube_length // 2, 2 * codes_hat.shape[1], n_samples)
            parts.append(fold(BlockOperator(head, as_double(left_pairs @ _swap(code_pairs)))))
        squares = float((as_double(data_hat) ** 2).sum())
        return cls.from_folded(parts[0], parts[1], squares)

    def __add__(self, other: TubalStatistics) -> TubalStatistics:
        """Return the statistics of both sets of images together."""
        return TubalStatistics(
            self.gram + other.gram, self.cross + other.cross, self.squares + other.squares, self.tube_length
        )

    def scaled(self, factor: float) -> TubalStatistics:
        """Return the statistics with every image counted ``factor`` times (online forgetting)."""
        return TubalStatistics(factor * self.gram, factor * self.cross, factor * self.squares, self.tube_length)

    @cached_property
    def usage(self) -> Array:
        """Squared length of each atom's codes, (atom,): zero for an atom no image uses."""
        xp = namespace(self.gram)
        diagonal = xp.diagonal(self.gram, 0, 1, 2).real
        counts = spectrum_weights(self.tube_length, diagonal)[:, None] / self.tube_length
        return (counts * diagonal).sum(0)


class TubalDictionary:
    """The dictionary problem given statistics; dictionaries are (tube, row, atom)."""

    def __init__(self, statistics: TubalStatistics) -> None:
        self.statistics = statistics
        self.counts = spectrum_weights(statistics.tube_length, statistics.gram.real) / statistics.tube_length

    def value(self, dictionary: Array) -> float:
        """Return ``1/2 ||X - D * B||²`` from the statistics alone."""
        return self.value_hat(self.to_spectrum(dictionary))

    def value_hat(self, dictionary_hat: Array) -> float:
        """Return the same from the half spectrum of the dictionary."""
        gram, cross = self.statistics.gram, self.statistics.cross
        xp = namespace(gram)
        quadratic = ((dictionary_hat @ gram) * xp.conj(dictionary_hat)).real.sum((1, 2))
        linear = (cross * xp.conj(dictionary_hat)).real.sum((1, 2))
        return 0.5 * self.statistics.squares + float((self.counts * (0.5 * quadratic - linear)).sum())

    @property
    def lipschitz(self) -> float:
        """The largest eigenvalue of ``B̂ B̂ᴴ`` over all frequencies."""
        return float(namespace(self.statistics.gram).linalg.eigvalsh(self.statistics.gram).max())

    def gradient(self, dictionary: Array) -> Array:
        """Return the gradient ``(D * B - X) * B†``, double precision."""
        slope_hat = self.to_spectrum(dictionary) @ self.statistics.gram - self.statistics.cross
        return restore_like(irfft(slope_hat, self.statistics.tube_length, axis=0), dictionary)

    def project(self, dictionary: Array) -> Array:
        """Return the nearest dictionary whose atoms lie in the unit ball."""
        return project_to_ball(dictionary)

    def norms(self, dictionary_hat: Array) -> Array:
        """Return the squared Frobenius norm of every atom."""
        return (self.counts[:, None] * (abs(dictionary_hat) ** 2).sum(1)).sum(0)

    def to_spectrum(self, dictionary: Array) -> Array:
        """Return the half spectrum of a dictionary, double precision, where the statistics are."""
        here = dictionary if is_torch(self.statistics.gram) else to_numpy(dictionary)
        return rfft(as_double(here), axis=0)

    def from_spectrum(self, dictionary_hat: Array, like: Array) -> Array:
        """Return the dictionary of a half spectrum, inside the unit ball, of the kind of ``like``."""
        return as_like(self.project(irfft(dictionary_hat, self.statistics.tube_length, axis=0)), like)


def _swap(array: Array) -> Array:
    return array.transpose(1, 2) if is_torch(array) else array.transpose(0, 2, 1)
