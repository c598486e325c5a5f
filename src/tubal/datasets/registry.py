"""The list of collections: file, hash, shape, addresses, licence and citation of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["COLLECTIONS", "Collection", "find_collection"]


@dataclass(frozen=True)
class Collection:
    """What is known about a collection before its file is opened.

    Parameters
    ----------
    name : str
        The name to fetch it by, such as ``"orl"``.
    title : str
        The name to print.
    file : str
        Name of its file in the data folder.
    sha256 : str
        Hash of that file, in hexadecimal digits.
    n_images : int
        Number of images.
    image_shape : (int, int)
        Height and width of an image.
    n_classes : int
        Number of classes.
    layout : {"mat-rows", "mat-columns", "hdf5"}
        How the file stores images: MATLAB with one image per row or per column, or HDF5.
    addresses : tuple of str
        Where to download the file, in order of preference.
    licence : str
        What the images may be used for.
    citation : str
        The publication to cite.
    about : str
        One sentence about what the images show.
    """

    name: str
    title: str
    file: str
    sha256: str
    n_images: int
    image_shape: tuple[int, int]
    n_classes: int
    layout: Literal["mat-rows", "mat-columns", "hdf5"]
    addresses: tuple[str, ...]
    licence: str
    citation: str
    about: str

    @property
    def description(self) -> str:
        """A description of the collection, the ``DESCR`` of a fetched bunch."""
        height, width = self.image_shape
        return (
            f"{self.title}\n{'=' * len(self.title)}\n\n{self.about}\n\n"
            f"{self.n_images} images of {height}x{width} pixels, {self.n_classes} classes.\n"
            f"File: {self.file} (SHA-256 {self.sha256})\n"
            f"Licence: {self.licence}; the images may not be republished.\nCitation: {self.citation}\n"
        )


_SKFEATURE = (
    "https://raw.githubusercontent.com/jundongl/scikit-feature/48cffad4e88ff4b9d2f1c7baffb314d1b3303792/skfeature/data/"
)
_UNIVR = (
    "https://raw.githubusercontent.com/MetinUnlu/Univr_FoDA/"
    "863d92de2dd6a61706f01b7606b58d4c9e940ddf/data/Yale_64x64.mat"
)
_LEARNING = (
    "https://raw.githubusercontent.com/niuers/Learning-From-Data-A-Short-Course/"
    "879a698b960e5867f7c2b11f8938fa89c3d21839/data/usps.h5"
)
_RESEARCH = "research use only"

COLLECTIONS: dict[str, Collection] = {
    collection.name: collection
    for collection in (
        Collection(
            name="coil20",
            title="COIL-20 objects",
            file="COIL20.mat",
            sha256="4595ebdda07f47b0eb014fcfaddc22b452f9aed9c1d9261a0d5bc336c1ee1344",
            n_images=1440,
            image_shape=(32, 32),
            n_classes=20,
            layout="mat-rows",
            addresses=(_SKFEATURE + "COIL20.mat",),
            licence=f"{_RESEARCH} (Columbia University)",
            citation="S. A. Nene, S. K. Nayar, H. Murase: Columbia Object Image Library (COIL-20), "
            "Technical Report CUCS-005-96, Columbia University, 1996.",
            about="Twenty objects on a turntable, photographed every five degrees.",
        ),
        Collection(
            name="usps",
            title="USPS handwritten digits",
            file="usps.h5",
            sha256="734f88c541104a956d88be2c95d03b4a463ffd74ccc2ba9c80841fb98e3fcb36",
            n_images=9298,
            image_shape=(16, 16),
            n_classes=10,
            layout="hdf5",
            addresses=(_LEARNING,),
            licence=f"{_RESEARCH} (US Postal Service)",
            citation="J. J. Hull: A database for handwritten text recognition research, IEEE Transactions "
            "on Pattern Analysis and Machine Intelligence 16(5), 1994.",
            about="Digits from envelopes; the 7291 training images come first, the 2007 test images after.",
        ),
        Collection(
            name="orl",
            title="ORL faces",
            file="ORL.mat",
            sha256="e257ec36002e48688ed7f3b9fda13f479f2fd98864fa0672d1353eda1912b189",
            n_images=400,
            image_shape=(32, 32),
            n_classes=40,
            layout="mat-rows",
            addresses=(_SKFEATURE + "ORL.mat",),
            licence=f"{_RESEARCH} (AT&T Laboratories)",
            citation="F. S. Samaria, A. C. Harter: Parameterisation of a stochastic model for human face "
            "identification, IEEE Workshop on Applications of Computer Vision, 1994.",
            about="Forty people, ten pictures each, with changing pose and expression.",
        ),
        Collection(
            name="yale",
            title="Yale faces",
            file="Yale_64x64.mat",
            sha256="315433db65209b636ea80f55f921662d6173a5757c9e99ec8b3daea6da2a8233",
            n_images=165,
            image_shape=(64, 64),
            n_classes=15,
            layout="mat-columns",
            addresses=(_UNIVR,),
            licence=f"{_RESEARCH} (Yale University)",
            citation="P. N. Belhumeur, J. P. Hespanha, D. J. Kriegman: Eigenfaces vs. Fisherfaces, IEEE "
            "Transactions on Pattern Analysis and Machine Intelligence 19(7), 1997.",
            about="Fifteen people, eleven pictures each, with strong lighting; two pairs are identical.",
        ),
    )
}


def find_collection(name: str) -> Collection:
    """Return what is known about a collection.

    Parameters
    ----------
    name : str
        One of the names in ``COLLECTIONS``.

    Returns
    -------
    Collection
        Its file, hash, shape, addresses, licence and citation.

    Examples
    --------
    >>> find_collection("orl").n_classes
    40
    """
    if name not in COLLECTIONS:
        raise ValueError(f"there is no collection {name!r}; choose one of {', '.join(COLLECTIONS)}")
    return COLLECTIONS[name]
