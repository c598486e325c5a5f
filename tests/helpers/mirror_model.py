"""A model of atoms that may be mirrored: the example of docs/models.md, written with public names only."""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from tubal import GTSC
from tubal.problems import ImageLayout, ImageModel, LinearMapCoding


def both_ways(atoms, mirror):
    """Return atoms (pixel, atom) followed by their mirror images, (pixel, 2 * atom)."""
    return np.concatenate([atoms, atoms[mirror]], axis=1)


class MirrorCoding(LinearMapCoding):
    """Codes (2, atom, sample) of images (1, pixel, sample); the dictionary holds all atoms both ways."""

    @property
    def codes_shape(self):
        return (2, self.dictionary.shape[1] // 2, self.data.shape[-1])

    def reconstruct(self, codes):
        return (self.dictionary @ codes.reshape(-1, codes.shape[-1]))[None]

    def correlate(self, images):
        return (self.dictionary.T @ images[0]).reshape(self.codes_shape)

    @cached_property
    def eigenbasis(self):
        return np.linalg.eigh(self.dictionary.T @ self.dictionary)

    @property
    def map_norm(self):
        return float(self.eigenbasis[0][-1])

    def solve_shifted(self, right, penalty):
        values, vectors = self.eigenbasis
        rotated = vectors.T @ right.reshape(-1, right.shape[-1])
        return (vectors @ self.solve_rows(rotated, values + penalty)).reshape(right.shape)

    def statistics(self, codes):
        return MirrorStatistics.of(self.data, codes)


@dataclass(frozen=True)
class MirrorStatistics:
    """What the dictionary step needs: codes times codes, images times codes, and the squared norm of the images."""

    gram: np.ndarray
    cross: np.ndarray
    squares: float

    @classmethod
    def of(cls, data, codes):
        images, rows = data[0].astype(float), codes.reshape(-1, codes.shape[-1]).astype(float)
        return cls(rows @ rows.T, images @ rows.T, float((images**2).sum()))

    def __add__(self, other):
        return MirrorStatistics(self.gram + other.gram, self.cross + other.cross, self.squares + other.squares)

    def scaled(self, factor):
        return MirrorStatistics(factor * self.gram, factor * self.cross, factor * self.squares)

    @property
    def usage(self):
        return np.diagonal(self.gram).reshape(2, -1).sum(0)


class MirrorDictionary:
    """The dictionary problem of given statistics; dictionaries are arrays (1, pixel, atom)."""

    def __init__(self, statistics, mirror):
        self.statistics, self.mirror = statistics, mirror

    @property
    def lipschitz(self):
        return 2.0 * float(np.linalg.eigvalsh(self.statistics.gram)[-1])

    def value(self, dictionary):
        atoms = both_ways(dictionary[0], self.mirror)
        product = 0.5 * atoms @ self.statistics.gram - self.statistics.cross
        return 0.5 * self.statistics.squares + float((atoms * product).sum())

    def gradient(self, dictionary):
        slope = both_ways(dictionary[0], self.mirror) @ self.statistics.gram - self.statistics.cross
        straight, mirrored = np.split(slope, 2, axis=1)
        return (straight + mirrored[self.mirror])[None]

    def project(self, dictionary):
        return dictionary / np.maximum(np.linalg.norm(dictionary, axis=1, keepdims=True), 1.0)


class MirrorModel(ImageModel):
    """Images as sums of atoms and of their mirror images; a dictionary is one array (1, pixel, atom)."""

    def __init__(self, image_shape):
        self.mirror = np.arange(np.prod(image_shape)).reshape(image_shape)[:, ::-1].ravel()

    def coding(self, dictionary, data, *, sparsity, graph_weight=0.0, laplacian=None, neighbor_sum=None):
        return MirrorCoding(
            both_ways(dictionary[0], self.mirror), data, sparsity=sparsity, graph_weight=graph_weight,
            laplacian=laplacian, neighbor_sum=neighbor_sum,
        )  # fmt: skip

    def dictionary_problem(self, statistics, dictionary, step):
        return MirrorDictionary(statistics, self.mirror)

    def statistics(self, dictionary, data, codes, step):
        return MirrorStatistics.of(data, codes)

    def replace_atoms(self, dictionary, unused, images):
        replaced = dictionary.copy()
        replaced[:, :, unused] = images / np.maximum(np.linalg.norm(images, axis=1, keepdims=True), 1e-12)
        return replaced


class MirrorLayout(ImageLayout):
    """Whole images as columns; position 1 of a code stands for the mirrored atom."""

    def shift_atom(self, atom, shift):
        return atom[:, ::-1] if shift else atom


class MirrorGTSC(GTSC):
    """GTSC whose atoms may be mirrored instead of shifted. Pass ``dictionary_solver=ProjectedGradient()``."""

    def _model(self):
        return MirrorModel  # learning calls it with the shape of an image

    def _layout(self):
        return partial(MirrorLayout, whole=True)
