"""Images to tensors and back, and codes to features."""

from __future__ import annotations

from dataclasses import dataclass

from tubal.backends.arrays import Array, is_torch, namespace


@dataclass(frozen=True)
class ImageLayout:
    """How images of one shape become tensors and back.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels)
    tube_axis : -1 runs tubes along the width (as in the paper), -2 along the height.
    whole : one column a tube: every pixel is a row and the tube has length one (SC and GraphSC).
    """

    image_shape: tuple[int, ...]
    tube_axis: int = -1
    whole: bool = False

    @property
    def tube_length(self) -> int:
        """Length of a tube: the size of the tube's axis, or one."""
        return 1 if self.whole else self.image_shape[1 if self.tube_axis == -1 else 0]

    @property
    def n_rows(self) -> int:
        """Rows of an image's tensor."""
        size = 1
        for extent in self.image_shape:
            size *= extent
        return size // self.tube_length

    def to_tensor(self, images: Array) -> Array:
        """Return images as a contiguous tensor (tube, row, sample).

        >>> import numpy as np
        >>> ImageLayout((2, 3)).to_tensor(np.arange(6).reshape(1, 2, 3))[:, :, 0]
        array([[0, 3],
               [1, 4],
               [2, 5]])
        """
        n_samples = images.shape[0]
        if self.whole:
            tensor = images.reshape(1, n_samples, -1).swapaxes(1, 2)
        else:
            axis = 2 if self.tube_axis == -1 else 1
            moved = namespace(images).moveaxis(images, axis, 0)  # (tube, sample, rest...)
            tensor = moved.reshape(self.tube_length, n_samples, -1).swapaxes(1, 2)
        return tensor.contiguous() if is_torch(tensor) else _as_contiguous(tensor)

    def to_images(self, tensor: Array) -> Array:
        """Undo :meth:`to_tensor`; also turns a dictionary (tube, row, atom) into atoms (atom, height, width)."""
        n_samples = tensor.shape[2]
        if self.whole:
            return tensor[0].swapaxes(0, 1).reshape(n_samples, *self.image_shape)
        axis = 2 if self.tube_axis == -1 else 1
        rest = [extent for index, extent in enumerate(self.image_shape, 1) if index != axis]
        moved = tensor.swapaxes(1, 2).reshape(self.tube_length, n_samples, *rest)
        images = namespace(tensor).moveaxis(moved, 0, axis)
        return images.contiguous() if is_torch(images) else _as_contiguous(images)

    def shift_atom(self, atom: Array, shift: int) -> Array:
        """Return an atom (an image) moved ``shift`` places around its circle."""
        xp = namespace(atom)
        return xp.roll(atom, shift, (1 if self.tube_axis == -1 else 0,))


@dataclass(frozen=True)
class SeparableLayout:
    """How images become tensors with one axis a mode, samples last (TenSR).

    Two modes are rows and columns, the channels of colour stacked as further rows; three modes leave channels
    a mode of their own.
    """

    image_shape: tuple[int, ...]
    n_modes: int = 2

    @property
    def sides(self) -> tuple[int, ...]:
        """Length of every mode.

        >>> SeparableLayout((4, 5, 3)).sides, SeparableLayout((4, 5, 3), n_modes=3).sides
        ((12, 5), (4, 5, 3))
        """
        height, width, *channels = self.image_shape
        if self.n_modes > 2:
            return self.image_shape
        return (height * (channels[0] if channels else 1), width)

    def to_tensor(self, images: Array) -> Array:
        """Return images as a contiguous tensor (*sides, sample)."""
        xp = namespace(images)
        if len(self.image_shape) > 2 and self.n_modes == 2:
            images = xp.moveaxis(images, 3, 1).reshape(images.shape[0], *self.sides)
        return _contiguous(xp.moveaxis(images, 0, -1))

    def to_images(self, tensor: Array) -> Array:
        """Undo :meth:`to_tensor`."""
        xp = namespace(tensor)
        images = xp.moveaxis(tensor, -1, 0)
        if len(self.image_shape) > 2 and self.n_modes == 2:
            height, width, n_channels = self.image_shape
            images = xp.moveaxis(images.reshape(images.shape[0], n_channels, height, width), 1, 3)
        return _contiguous(images)

    def shift_atom(self, atom: Array, shift: Array) -> Array:
        """Return the atom as it is: outer products do not move."""
        return atom


@dataclass(frozen=True)
class PlaneLayout:
    """How images become planes (height, width, channel, sample), each plane contiguous in memory (CSC)."""

    image_shape: tuple[int, ...]

    def to_tensor(self, images: Array) -> Array:
        """Return images as a tensor (height, width, channel, sample)."""
        xp = namespace(images)
        planes = xp.moveaxis(images, 3, 1) if len(self.image_shape) > 2 else images[:, None]
        return xp.moveaxis(_contiguous(planes), (0, 1, 2, 3), (3, 2, 0, 1))

    def to_images(self, tensor: Array) -> Array:
        """Undo :meth:`to_tensor`."""
        images = namespace(tensor).moveaxis(tensor, (3, 0, 1, 2), (0, 1, 2, 3))
        return _contiguous(images if len(self.image_shape) > 2 else images[..., 0])

    def shift_atom(self, atom: Array, shift: Array) -> Array:
        """Return an atom (an image) moved ``shift = (down, right)`` around both circles."""
        return namespace(atom).roll(atom, (int(shift[0]), int(shift[1])), (0, 1))


def _contiguous(array: Array) -> Array:
    return array.contiguous() if is_torch(array) else _as_contiguous(array)


def _as_contiguous(array: Array) -> Array:
    import numpy as np

    return np.ascontiguousarray(array)


def position_norms(codes: Array) -> Array:
    """Return the length of every atom's code over its positions, (n, atom): eq. 20.

    It says how much of an atom an image holds, wherever in the image it sits.
    """
    axes = tuple(range(2, codes.ndim))
    return namespace(codes).sqrt((codes**2).sum(axes)) if axes else abs(codes)


def signed_codes(codes: Array) -> Array:
    """Return codes as they are, (n, atoms · positions): what SC and GraphSC cluster.

    At tube length one eq. 20 would be the absolute value and lose the sign.
    """
    return codes.reshape(codes.shape[0], -1)


def unit_rows(features: Array) -> Array:
    """Return features with every non-zero row scaled to unit length."""
    xp = namespace(features)
    norms = xp.sqrt((features**2).sum(-1))[:, None]
    return features / xp.where(norms > 0, norms, 1.0)
