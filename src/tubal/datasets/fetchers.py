"""The image collections: what is known about each, and fetching one as scikit-learn does.

Fetching finds a collection's file or downloads it, checks its hash, and reads it. Synthetic shapes, shifted along their
rows, are classes that shift-aware codes should tell apart.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tubal.storage.files import atomic_write, sha256_of

if TYPE_CHECKING:
    from sklearn.utils import Bunch


# --- the collections -----------------------------------------------------------------------------------------------


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


def _read_collections() -> dict[str, Collection]:
    """Return the collections that ``collections.toml`` describes, by name."""
    content = tomllib.loads(resources.files(__package__).joinpath("collections.toml").read_text(encoding="utf-8"))
    return {
        name: Collection(
            name, **{**entry, "image_shape": tuple(entry["image_shape"]), "addresses": tuple(entry["addresses"])}
        )
        for name, entry in content.items()
    }


COLLECTIONS = _read_collections()


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


# --- fetching ------------------------------------------------------------------------------------------------------

BLOCK_SIZE = 1 << 16


class DownloadError(OSError):
    """The file could not be downloaded from any address."""


class HashMismatchError(OSError):
    """A file exists, but its contents are not the published ones."""


class _PermanentFailure(Exception):
    """Another attempt at the same address would fail again."""


def verify_file(path: Path, sha256: str) -> None:
    """Raise :class:`HashMismatchError` unless the file has this hash; the file is never deleted."""
    found = sha256_of(path)
    if found != sha256:
        raise HashMismatchError(
            f"{path} is damaged, or a different file of the same name: expected SHA-256 {sha256}, "
            f"found {found}; move it somewhere else and download it again"
        )


def download(
    addresses: Sequence[str],
    destination: Path,
    *,
    sha256: str,
    attempts: int = 3,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Download a file from the first address that has it, and return ``destination``.

    A broken connection is retried up to ``attempts`` times, after ``pause`` seconds that double each time. A missing
    page or a wrong hash moves on to the next address. ``destination`` appears only when the file is complete.
    """
    _make_folder(destination)
    failures = []
    for address in addresses:
        for attempt in range(attempts):
            try:
                _download_once(address, destination, sha256, timeout)
            except _PermanentFailure as failure:
                failures.append(f"{address}: {failure}")
                break
            except (OSError, http.client.HTTPException) as failure:
                if attempt + 1 == attempts:
                    failures.append(f"{address}: {failure} ({attempts} attempts)")
                else:
                    time.sleep(pause * 2**attempt)
            else:
                return destination
    raise DownloadError(
        f"{destination.name} could not be downloaded ({'; '.join(failures)}); "
        f"get it elsewhere and put it at {destination}"
    )


def _make_folder(destination: Path) -> None:
    """Create the folder of ``destination``, or raise an error before any request if it cannot be written to."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=destination.parent):
            pass
    except OSError as failure:
        raise DownloadError(
            f"the folder {destination.parent} cannot be written to ({failure.strerror or failure}); "
            f"name another folder with data_home or the environment variable TUBAL_DATA"
        ) from failure


def _download_once(address: str, destination: Path, sha256: str, timeout: float) -> None:
    with atomic_write(destination) as file:
        found = _copy_body(address, file, timeout)
        if found != sha256:
            raise _PermanentFailure(f"expected SHA-256 {sha256}, received {found}")


def _copy_body(address: str, file: IO[bytes], timeout: float) -> str:
    """Write the body found at ``address`` to ``file`` and return its SHA-256."""
    try:
        response = urllib.request.urlopen(address, timeout=timeout)
    except urllib.error.HTTPError as failure:
        with failure:
            if 400 <= failure.code < 500:
                raise _PermanentFailure(f"HTTP {failure.code} {failure.reason}") from None
            raise ConnectionError(f"HTTP {failure.code} {failure.reason}") from None
    digest, received = hashlib.sha256(), 0
    with response:
        expected = response.headers.get("Content-Length")
        while block := response.read(BLOCK_SIZE):
            file.write(block)
            digest.update(block)
            received += len(block)
    if expected is not None and received != int(expected):
        raise ConnectionError(f"the body ended after {received} of {expected} bytes")
    return digest.hexdigest()


# --- fetching -----------------------------------------------------------------------------------------------

Folder: TypeAlias = "str | os.PathLike[str] | None"
Images: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
# A scikit-learn Bunch, or the pair (data, target) with ``return_X_y=True``; scikit-learn has no type annotations.
Fetched: TypeAlias = Any


def fetch(
    name: str,
    *,
    data_home: Folder = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Fetched:
    """Fetch a collection by name.

    Parameters
    ----------
    name : {"coil20", "usps", "orl", "yale", "digits"}
        The collection; ``"digits"`` comes with scikit-learn and needs no file.
    data_home : str or path-like, optional
        Folder of the files; by default that of :func:`data_folder`.
    download_if_missing : bool, default=True
        Whether to download a missing file. An existing file is never replaced.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a bunch.

    Returns
    -------
    Bunch or (ndarray, ndarray)
        A dictionary whose keys are also attributes, or its ``data`` and ``target``:

        images : ndarray of shape (n_images, height, width)
            Float32 values in [0, 1].
        data : ndarray of shape (n_images, height * width)
            The same images as rows.
        target : ndarray of shape (n_images,)
            The class of each image, counted from zero.
        DESCR : str
            A description with licence and citation.
        sha256 : str
            Hash of the file, or of the pixels for ``"digits"``.

    Examples
    --------
    >>> fetch("digits").images.shape
    (1797, 8, 8)
    """
    if name == "digits":
        return _as_fetched(*_digits(), return_X_y=return_X_y)
    collection = find_collection(name)
    path = locate(name, data_home=data_home, download_if_missing=download_if_missing)
    images, target = read_collection(path, collection)
    return _as_fetched(images, target, collection.description, collection.sha256, return_X_y=return_X_y)


def fetch_coil20(*, data_home: Folder = None, download_if_missing: bool = True, return_X_y: bool = False) -> Fetched:
    """Fetch COIL-20: 1440 images of 20 objects on a turntable, 32×32 pixels.

    Parameters
    ----------
    data_home : str or path-like, optional
        Folder of the file; by default that of :func:`data_folder`.
    download_if_missing : bool, default=True
        Whether to download a missing file. An existing file is never replaced.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a bunch.

    Returns
    -------
    Bunch or (ndarray, ndarray)
        ``images`` (1440, 32, 32), ``data`` (1440, 1024), ``target`` (1440,), ``DESCR`` and ``sha256``, as described
        for :func:`fetch`; or ``data`` and ``target`` alone.
    """
    return fetch("coil20", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def fetch_usps(*, data_home: Folder = None, download_if_missing: bool = True, return_X_y: bool = False) -> Fetched:
    """Fetch USPS: 9298 handwritten digits, 16×16 pixels, the 7291 training images first. Needs h5py.

    Parameters
    ----------
    data_home : str or path-like, optional
        Folder of the file; by default that of :func:`data_folder`.
    download_if_missing : bool, default=True
        Whether to download a missing file. An existing file is never replaced.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a bunch.

    Returns
    -------
    Bunch or (ndarray, ndarray)
        ``images`` (9298, 16, 16), ``data`` (9298, 256), ``target`` (9298,), ``DESCR`` and ``sha256``, as described
        for :func:`fetch`; or ``data`` and ``target`` alone.
    """
    return fetch("usps", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def fetch_orl(*, data_home: Folder = None, download_if_missing: bool = True, return_X_y: bool = False) -> Fetched:
    """Fetch ORL: 400 pictures of 40 faces, 32×32 pixels.

    Parameters
    ----------
    data_home : str or path-like, optional
        Folder of the file; by default that of :func:`data_folder`.
    download_if_missing : bool, default=True
        Whether to download a missing file. An existing file is never replaced.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a bunch.

    Returns
    -------
    Bunch or (ndarray, ndarray)
        ``images`` (400, 32, 32), ``data`` (400, 1024), ``target`` (400,), ``DESCR`` and ``sha256``, as described
        for :func:`fetch`; or ``data`` and ``target`` alone.
    """
    return fetch("orl", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def fetch_yale(*, data_home: Folder = None, download_if_missing: bool = True, return_X_y: bool = False) -> Fetched:
    """Fetch Yale: 165 pictures of 15 faces under changing light, 64×64 pixels.

    Parameters
    ----------
    data_home : str or path-like, optional
        Folder of the file; by default that of :func:`data_folder`.
    download_if_missing : bool, default=True
        Whether to download a missing file. An existing file is never replaced.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a bunch.

    Returns
    -------
    Bunch or (ndarray, ndarray)
        ``images`` (165, 64, 64), ``data`` (165, 4096), ``target`` (165,), ``DESCR`` and ``sha256``, as described
        for :func:`fetch`; or ``data`` and ``target`` alone.
    """
    return fetch("yale", data_home=data_home, download_if_missing=download_if_missing, return_X_y=return_X_y)


def load_digits_images(*, return_X_y: bool = False) -> Fetched:
    """Load the 1797 handwritten digits that come with scikit-learn, 8×8 pixels.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a bunch.

    Returns
    -------
    Bunch or (ndarray, ndarray)
        ``images`` (1797, 8, 8), ``data`` (1797, 64), ``target`` (1797,), ``DESCR`` and ``sha256``, as described for
        :func:`fetch`; or ``data`` and ``target`` alone.

    Examples
    --------
    >>> load_digits_images().images.max()
    np.float32(1.0)
    """
    return fetch("digits", return_X_y=return_X_y)


def data_folder(data_home: Folder = None) -> Path:
    """Return the folder that holds the files of the collections.

    It is the first of: ``data_home``; the environment variable ``TUBAL_DATA``; ``~/tubal_data`` if that folder exists,
    because earlier versions used it; the user's data folder (``~/.local/share/tubal`` on Linux).

    Parameters
    ----------
    data_home : str or path-like, optional
        A folder of your own choice.

    Returns
    -------
    Path
        The folder; it need not exist yet.

    Examples
    --------
    >>> data_folder("/somewhere").as_posix()
    '/somewhere'
    """
    return choose_data_folder(data_home)[0]


def choose_data_folder(data_home: Folder = None) -> tuple[Path, str]:
    """Return the folder of :func:`data_folder`, and in a few words why it is this one."""
    from platformdirs import user_data_path

    earlier_default = Path.home() / "tubal_data"
    if data_home:
        return Path(data_home).expanduser(), "as given"
    if os.environ.get("TUBAL_DATA"):
        return Path(os.environ["TUBAL_DATA"]).expanduser(), "set by TUBAL_DATA"
    if earlier_default.is_dir():
        return earlier_default, "the default of earlier versions, used because it exists"
    return user_data_path("tubal", appauthor=False), "the default"


def locate(name: str, *, data_home: Folder = None, download_if_missing: bool = True) -> Path:
    """Return the path of a collection's file after checking its hash.

    Parameters
    ----------
    name : {"coil20", "usps", "orl", "yale"}
        The collection.
    data_home : str or path-like, optional
        Folder of the files; by default that of :func:`data_folder`.
    download_if_missing : bool, default=True
        Whether to download a missing file. An existing file is never replaced.

    Returns
    -------
    Path
        The file, with the published contents.
    """
    collection = find_collection(name)
    folder, reason = choose_data_folder(data_home)
    path = folder / collection.file
    if path.exists():
        verify_file(path, collection.sha256)
    elif download_if_missing:
        download(collection.addresses, path, sha256=collection.sha256)
    else:
        raise FileNotFoundError(
            f"{path} does not exist; put {collection.file} into {folder} ({reason}), set TUBAL_DATA to the folder "
            f"that holds it, or allow the download with download_if_missing=True"
        )
    return path


def read_collection(path: Path, collection: Collection) -> tuple[Images, Labels]:
    """Return images (n, height, width) and labels (n,) of the collection stored at ``path``."""
    from tubal.images.stacks import to_unit_interval

    pixels, labels = _read_hdf5(path) if collection.layout == "hdf5" else _read_mat(path)
    rows = pixels.T if collection.layout == "mat-columns" else pixels
    images = to_unit_interval(rows)[0].reshape(-1, *collection.image_shape)
    if collection.layout != "hdf5":
        # MATLAB stores a matrix column by column; reshaped row by row, an image lies on its side.
        images = np.ascontiguousarray(images.swapaxes(1, 2))
    classes = np.unique(labels.ravel(), return_inverse=True)[1].astype(np.int64)
    expected = (collection.n_images, *collection.image_shape)
    if images.shape != expected or len(classes) != len(images):
        raise ValueError(
            f"{path} holds images of shape {images.shape} and {len(classes)} labels where {collection.title} "
            f"has {expected}; other files of the same name exist, get this one with tubal datasets --download"
        )
    return images, classes


def _read_mat(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    from scipy.io import loadmat

    contents = loadmat(path)
    for images, labels in (("X", "Y"), ("fea", "gnd")):
        if images in contents and labels in contents:
            return contents[images], contents[labels]
    found = ", ".join(sorted(name for name in contents if not name.startswith("__")))
    raise ValueError(f"{path} holds {found or 'nothing'}; variables X and Y, or fea and gnd, were expected")


def _read_hdf5(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    from tubal.images.stacks import import_h5py

    with import_h5py(path).File(path, "r") as file:
        parts = [file["train"], file["test"]]
        pixels = np.concatenate([part["data"][:] for part in parts])
        labels = np.concatenate([part["target"][:] for part in parts])
    return pixels, labels


def _digits() -> tuple[Images, Labels, str, str]:
    import sklearn

    # The files of ``load_digits``, whose import takes longer than reading them.
    folder = Path(sklearn.__file__).parent / "datasets"
    table = np.loadtxt(folder / "data" / "digits.csv.gz", delimiter=",", dtype=np.float32)
    images = np.ascontiguousarray(table[:, :-1].reshape(-1, 8, 8) / np.float32(16.0))
    description = (folder / "descr" / "digits.rst").read_text(encoding="utf-8")
    return images, table[:, -1].astype(np.int64), description, hashlib.sha256(images.tobytes()).hexdigest()


def _as_fetched(images: Images, target: Labels, description: str, sha256: str, *, return_X_y: bool) -> Fetched:
    from sklearn.utils import Bunch

    data = images.reshape(len(images), -1)
    if return_X_y:
        return data, target
    return Bunch(images=images, data=data, target=target, DESCR=description, sha256=sha256)


# --- synthetic shapes -------------------------------------------------------------------------------------------------

Grid = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Each shape is a condition on coordinates in [-1, 1]; rows increase downwards, columns to the right.
_SHAPES: dict[str, Callable[[Grid, Grid], Mask]] = {
    "disc": lambda row, column: row**2 + column**2 < 0.4,
    "bars": lambda row, column: (abs(abs(column) - 0.4) < 0.15) & (abs(row) < 0.8),
    "cross": lambda row, column: ((abs(row) < 0.18) | (abs(column) < 0.18)) & (abs(row) + abs(column) < 0.9),
    "triangle": lambda row, column: (row > 2 * abs(column) - 0.6) & (row < 0.6),
    "ring": lambda row, column: abs(np.hypot(row, column) - 0.6) < 0.16,
    "stair": lambda row, column: (np.floor(2.5 * row) == np.floor(2.5 * column)) & (abs(row) < 0.8),
    "frame": lambda row, column: abs(np.maximum(abs(row), abs(column)) - 0.65) < 0.15,
    "step": lambda row, column: np.where(row < 0, abs(column + 0.3) < 0.2, abs(column - 0.1) < 0.5) > 0,
}


def make_shifted_shapes(
    n_samples: int = 200,
    *,
    n_classes: int = 4,
    image_shape: tuple[int, int] = (16, 16),
    max_shift: int | None = None,
    noise: float = 0.05,
    random_state: int | np.random.Generator | None = None,
) -> Bunch:
    """Make images of simple shapes, each shifted circularly along its rows.

    Parameters
    ----------
    n_samples : int, default=200
        Number of images.
    n_classes : int, default=4
        Number of different shapes, 2 to 8; they occur equally often.
    image_shape : (int, int), default=(16, 16)
        Height and width of an image, at least 8 each.
    max_shift : int, optional
        Largest shift in pixels to either side; by default half the width, so that every position occurs.
    noise : float, default=0.05
        Standard deviation of the Gaussian noise added to every pixel; the sum is clipped to [0, 1].
    random_state : int or numpy.random.Generator, optional
        Seed of the shifts, the noise and the order of the classes.

    Returns
    -------
    Bunch
        A dictionary whose keys are also attributes:

        images : ndarray of shape (n_samples, height, width)
            Float32 values in [0, 1].
        data : ndarray of shape (n_samples, height * width)
            The same images as rows.
        target : ndarray of shape (n_samples,)
            The class of each image.
        shifts : ndarray of shape (n_samples,)
            The shift of each image in pixels to the right.
        target_names : list of str
            The names of the shapes.
        DESCR : str
            A description.

    Examples
    --------
    >>> shapes = make_shifted_shapes(6, n_classes=3, random_state=0)
    >>> shapes.images.shape, sorted(shapes.target.tolist())
    ((6, 16, 16), [0, 0, 1, 1, 2, 2])
    """
    from sklearn.utils import Bunch

    _check_arguments(n_samples, n_classes, image_shape, noise)
    if max_shift is not None and max_shift < 0:
        raise ValueError(f"max_shift is {max_shift}; a number of pixels of at least 0 is wanted, or None")
    generator = np.random.default_rng(random_state)
    largest = image_shape[1] // 2 if max_shift is None else max_shift
    names = list(_SHAPES)[:n_classes]
    templates = np.stack([_draw(name, image_shape) for name in names])
    target = generator.permutation(np.arange(n_samples) % n_classes)
    shifts = generator.integers(-largest, largest + 1, size=n_samples)
    columns = (np.arange(image_shape[1]) - shifts[:, None]) % image_shape[1]
    clean = np.take_along_axis(templates[target], columns[:, None, :], axis=2)
    noisy = clean + generator.normal(scale=noise, size=clean.shape)
    images = np.clip(noisy, 0.0, 1.0).astype(np.float32)
    return Bunch(
        images=images,
        data=images.reshape(n_samples, -1),
        target=target.astype(np.int64),
        shifts=shifts,
        target_names=names,
        DESCR=f"{n_samples} images of {n_classes} shapes, shifted circularly along their rows.",
    )


def _draw(name: str, image_shape: tuple[int, int]) -> Grid:
    height, width = image_shape
    row, column = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    return _SHAPES[name](row, column).astype(np.float64)


def _check_arguments(n_samples: int, n_classes: int, image_shape: tuple[int, int], noise: float) -> None:
    if not 2 <= n_classes <= len(_SHAPES):
        raise ValueError(f"n_classes is {n_classes}; there are shapes for 2 to {len(_SHAPES)} classes")
    if n_samples < 1:
        raise ValueError(f"n_samples is {n_samples}; make at least one image")
    if len(image_shape) != 2 or min(image_shape) < 8:
        raise ValueError(f"image_shape is {image_shape}; the shapes need (height, width) of at least 8 pixels")
    if noise < 0:
        raise ValueError(f"noise is {noise}; a standard deviation cannot be negative")
