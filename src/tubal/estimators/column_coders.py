"""SC and GraphSC: the corners of the model where the whole image is one column and a tube has length one."""

from __future__ import annotations

from typing import Any

from tubal.backends.arrays import Array
from tubal.estimators.tubal_coders import GTSC, TubSC
from tubal.problems.layout import ImageLayout, signed_codes


class _WholeImage:
    """Every pixel a row, tubes of length one (Remark 1); features are the signed codes."""

    def _layout(self, image_shape: tuple[int, ...]) -> ImageLayout:
        return ImageLayout(image_shape, whole=True)

    def _pool(self, codes: Array) -> Array:
        return signed_codes(codes)


class SparseCoding(_WholeImage, TubSC):
    """Conventional sparse coding (Lee et al. 2006): TubSC with the whole image as one column.

    Parameters are those of :class:`TubSC`; ``tube_axis`` has no effect. Features are signed codes.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((20, 6, 5))
    >>> SparseCoding(n_atoms=4, random_state=0).fit_transform(images).shape
    (20, 4)
    """


class GraphSC(_WholeImage, GTSC):
    """Graph-regularised sparse coding (Zheng et al. 2011): GTSC with the whole image as one column.

    Parameters are those of :class:`GTSC`; ``tube_axis`` has no effect. Features are signed codes.
    """


def is_whole_image(estimator: Any) -> bool:
    """Tell whether an estimator treats the image as one column."""
    return isinstance(estimator, _WholeImage)
