"""Images to tensors and back, and codes to features.

Estimators take stacks of images, samples first. Coding problems take tensors with samples last. A layout converts
between the two for one image shape; each model has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeAlias

from tubal.backends.arrays import Array, contiguous, namespace

ImageShape: TypeAlias = tuple[int, ...]  # (height, width) or (height, width, channels)


class Layout(Protocol):
    """What an estimator needs to convert between images and the tensors of a model."""

    @property
    def image_shape(self) -> ImageShape:
        """``(height, width)`` or ``(height, width, channels)``."""

    def to_tensor(self, images: Array) -> Array:
        """Return images as a tensor.

        Parameters
        ----------
        images : array of shape (n_images, height, width) or (n_images, height, width, channels)
            Stack of images.

        Returns
        -------
        array of shape (..., n_images)
            Tensor with samples on the last axis.
        """

    def to_images(self, tensor: Array) -> Array:
        """Undo :meth:`to_tensor`.

        Parameters
        ----------
        tensor : array of shape (..., n_images)
            Tensor with samples on the last axis.

        Returns
        -------
        array of shape (n_images, height, width) or (n_images, height, width, channels)
            Stack of images.
        """

    def shift_atom(self, atom: Array, shift: Array) -> Array:
        """Return an atom moved to the position of one of its coefficients.

        Parameters
        ----------
        atom : array of shape (height, width) or (height, width, channels)
            An atom as an image.
        shift : int or array of int
            Position of the coefficient.

        Returns
        -------
        array of the shape of atom
            The moved atom.
        """


@dataclass(frozen=True)
class ImageLayout:
    """Convert images to tensors (tube, row, sample) and back, for the tubal model.

    Parameters
    ----------
    image_shape : tuple of int
        Shape of one image; tubes run along its height or its width.
    tube_axis : {-1, -2}, default=-1
        -1 runs tubes along the width, as in the paper; -2 runs them along the height.
    whole : bool, default=False
        Treat the image as one column: every pixel is a row and tubes have length one (SC and GraphSC).

    Examples
    --------
    >>> import numpy as np
    >>> ImageLayout((2, 3)).to_tensor(np.arange(6).reshape(1, 2, 3))[:, :, 0]
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """

    image_shape: ImageShape
    tube_axis: int = -1
    whole: bool = False

    @property
    def tube_length(self) -> int:
        """Length of a tube: the size of the tube axis, or one."""
        return 1 if self.whole else self.image_shape[self._axis - 1]

    @property
    def n_rows(self) -> int:
        """Number of rows of the tensor of an image."""
        return prod(self.image_shape) // self.tube_length

    @property
    def _axis(self) -> int:
        """Axis of the tubes in a stack of images."""
        return 2 if self.tube_axis == -1 else 1

    def to_tensor(self, images: Array) -> Array:
        """Return images as a contiguous tensor.

        Parameters
        ----------
        images : array of shape (n_images, height, width) or (n_images, height, width, channels)
            Images of the shape of this layout.

        Returns
        -------
        array of shape (tube, row, n_images)
            Contiguous; entry (t, r, i) is a pixel of image i in row r, at position t along the tube axis.
        """
        n_samples = images.shape[0]
        if self.whole:
            return contiguous(images.reshape(1, n_samples, -1).swapaxes(1, 2))
        moved = namespace(images).moveaxis(images, self._axis, 0)  # (tube, sample, rest...)
        return contiguous(moved.reshape(self.tube_length, n_samples, -1).swapaxes(1, 2))

    def to_images(self, tensor: Array) -> Array:
        """Undo :meth:`to_tensor`; also convert a dictionary (tube, row, atom) to atoms (atom, height, width).

        Parameters
        ----------
        tensor : array of shape (tube, row, n_images)
            What :meth:`to_tensor` returned, or a dictionary.

        Returns
        -------
        array of shape (n_images, height, width) or (n_images, height, width, channels)
            Contiguous stack of images or atoms.
        """
        n_samples = tensor.shape[2]
        if self.whole:
            return tensor[0].swapaxes(0, 1).reshape(n_samples, *self.image_shape)
        rest = [extent for index, extent in enumerate(self.image_shape, 1) if index != self._axis]
        moved = tensor.swapaxes(1, 2).reshape(self.tube_length, n_samples, *rest)
        return contiguous(namespace(tensor).moveaxis(moved, 0, self._axis))

    def shift_atom(self, atom: Array, shift: int) -> Array:
        """Return an atom shifted circularly along the tubes.

        Parameters
        ----------
        atom : array of shape (height, width) or (height, width, channels)
            An atom as an image.
        shift : int
            Number of pixels.

        Returns
        -------
        array of the shape of atom
            The shifted atom.
        """
        axis = self._axis - 1
        cut = -int(shift) % atom.shape[axis]
        before = (slice(None),) * axis
        # Ten times faster than ``roll`` on a small image.
        parts = (atom[(*before, slice(cut, None))], atom[(*before, slice(None, cut))])
        return namespace(atom).concatenate(parts, axis)


@dataclass(frozen=True)
class SeparableLayout:
    """Convert images to tensors (*sides, sample) with one axis per mode, and back, for TenSR.

    Parameters
    ----------
    image_shape : tuple of int
        Height, width and, of colour images, the number of channels.
    n_modes : {2, 3}, default=2
        With two modes the channels of a colour image are stacked as further rows; with three they are a mode.
    """

    image_shape: ImageShape
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
        """Return images as a contiguous tensor.

        Parameters
        ----------
        images : array of shape (n_images, height, width) or (n_images, height, width, channels)
            Grey or colour images.

        Returns
        -------
        array of shape (*sides, n_images)
            Contiguous, one axis for each mode.
        """
        xp = namespace(images)
        if len(self.image_shape) > 2 and self.n_modes == 2:
            images = xp.moveaxis(images, 3, 1).reshape(images.shape[0], *self.sides)
        return contiguous(xp.moveaxis(images, 0, -1))

    def to_images(self, tensor: Array) -> Array:
        """Undo :meth:`to_tensor`.

        Parameters
        ----------
        tensor : array of shape (*sides, n_images)
            One axis for each mode, and the samples.

        Returns
        -------
        array of shape (n_images, height, width) or (n_images, height, width, channels)
            The images, with the channels of colour on their last axis again.
        """
        xp = namespace(tensor)
        images = xp.moveaxis(tensor, -1, 0)
        if len(self.image_shape) > 2 and self.n_modes == 2:
            height, width, n_channels = self.image_shape
            images = xp.moveaxis(images.reshape(images.shape[0], n_channels, height, width), 1, 3)
        return contiguous(images)

    def shift_atom(self, atom: Array, shift: Array) -> Array:
        """Return the atom as it is: outer products have one position only.

        Parameters
        ----------
        atom : array of shape (height, width) or (height, width, channels)
            The atom, as an image; it fills all of it.
        shift : array of shape (0,)
            Ignored.

        Returns
        -------
        array of the shape of atom
            The same array.
        """
        return atom


@dataclass(frozen=True)
class PlaneLayout:
    """Convert images to planes (height, width, channel, sample) and back, for CSC.

    Parameters
    ----------
    image_shape : tuple of int
        ``(height, width)`` or ``(height, width, channels)``.
    """

    image_shape: ImageShape

    def to_tensor(self, images: Array) -> Array:
        """Return images as a tensor whose planes are contiguous in memory.

        Parameters
        ----------
        images : array of shape (n_images, height, width) or (n_images, height, width, channels)
            Images; a grey one becomes a single plane.

        Returns
        -------
        array of shape (height, width, channels, n_images)
            A view; in memory the two sides of a plane come last.
        """
        planes = namespace(images).moveaxis(images, 3, 1) if len(self.image_shape) > 2 else images[:, None]
        return samples_last(contiguous(planes))

    def to_images(self, tensor: Array) -> Array:
        """Undo :meth:`to_tensor`.

        Parameters
        ----------
        tensor : array of shape (height, width, channels, n_images)
            Planes of images, or of a dictionary.

        Returns
        -------
        array of shape (n_images, height, width) or (n_images, height, width, channels)
            Images without the axis of channels if they are grey.
        """
        images = namespace(tensor).moveaxis(tensor, 3, 0)
        return contiguous(images if len(self.image_shape) > 2 else images[..., 0])

    def shift_atom(self, atom: Array, shift: Array) -> Array:
        """Return an atom shifted circularly along both sides.

        Parameters
        ----------
        atom : array of shape (height, width) or (height, width, channels)
            A filter in an image that is zero elsewhere.
        shift : array of shape (2,)
            Pixels down and to the right.

        Returns
        -------
        array of the shape of atom
            The atom after both shifts; what leaves on one side enters on the other.
        """
        return namespace(atom).roll(atom, (int(shift[0]), int(shift[1])), (0, 1))


def planes_first(array: Array) -> Array:
    """Return an array (height, width, plane, sample) as (sample, plane, height, width), contiguous."""
    return contiguous(namespace(array).moveaxis(array, (0, 1, 2, 3), (2, 3, 1, 0)))


def samples_last(array: Array) -> Array:
    """Return a view of an array (sample, plane, height, width) as (height, width, plane, sample)."""
    return namespace(array).moveaxis(array, (0, 1, 2, 3), (3, 2, 0, 1))


# --- codes to features ------------------------------------------------------------------------------------------------
def position_norms(codes: Array) -> Array:
    """Return the norm of the codes of every atom over its positions (eq. 20).

    It says how much of an atom an image contains, wherever in the image it is.

    Parameters
    ----------
    codes : array of shape (n_images, n_atoms, *positions)
        Codes as estimators return them.

    Returns
    -------
    array of shape (n_images, n_atoms)
        Non-negative features.
    """
    axes = tuple(range(2, codes.ndim))
    return namespace(codes).sqrt((codes**2).sum(axes)) if axes else abs(codes)


def signed_codes(codes: Array) -> Array:
    """Return the codes themselves as features; SC, GraphSC and TenSR use them.

    For codes with one position per atom, eq. 20 would be the absolute value and lose the sign.

    Parameters
    ----------
    codes : array of shape (n_images, n_atoms, *positions)
        Codes as estimators return them, with one or more positions.

    Returns
    -------
    array of shape (n_images, n_atoms * n_positions)
        The same numbers, one row per image.
    """
    return codes.reshape(codes.shape[0], -1)


def unit_rows(features: Array) -> Array:
    """Return features (n_images, n_features) with every non-zero row scaled to unit length."""
    xp = namespace(features)
    norms = xp.sqrt((features**2).sum(-1))[:, None]
    return features / xp.where(norms > 0, norms, 1.0)
