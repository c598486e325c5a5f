"""Reading one picture file: its header, and its pages resized to a common frame.

File contents are not trusted: whatever is wrong with a file becomes a :class:`PictureError` whose text is the reason.
Only the formats named here are tried, so that a renamed file cannot reach another decoder.

A decoder cannot be interrupted, so a file is judged by its headers before anything is decoded. All limits follow from
``max_pixels`` and from the size of the file (:class:`Allowance`): pixels of one page and of all pages, bytes per page,
pages, scans of a JPEG, and processor time spent on headers.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import lzma
import math
import os
import stat
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, features

from tubal.text import count, error_text, shape_text

if TYPE_CHECKING:
    from tifffile import TiffFrame, TiffPage, TiffPageSeries

__all__ = [
    "Content",
    "Frame",
    "Pixels",
    "check_stack_size",
    "content_box",
    "content_of",
    "fit_into",
    "ground_of",
    "place",
    "resize_array",
    "to_grey",
]

Pixels = NDArray[np.float32]

MAX_STACK_BYTES = 8 * 2**30
# Pixels within LOW of the ground (as a share of the full range) belong to it; those beyond HIGH stand out clearly.
LOW, HIGH = 1 / 16, 1 / 4
UNIFORM_SHARE = 0.95  # of the border must be ground
WITH_MARGIN = 1 + 2 / 16  # content and a sixteenth on every side
LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)


@dataclass(frozen=True)
class Frame:
    """The common shape of all pictures; ``fit`` is ``"pad"`` or ``"crop"``.

    With ``cut``, pictures are cut to their content first, and get a small margin if they are padded.
    """

    height: int
    width: int
    in_color: bool
    fit: str = "pad"
    cut: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one picture as an array."""
        return (self.height, self.width, 3) if self.in_color else (self.height, self.width)

    @property
    def inner(self) -> tuple[int, int]:
        """Height and width that a picture may fill."""
        if not self.cut or self.fit == "crop":
            return self.height, self.width
        return max(1, round(self.height / WITH_MARGIN)), max(1, round(self.width / WITH_MARGIN))


@dataclass(frozen=True)
class Content:
    """What a picture shows on its ground, the median colour of its border.

    ``height`` and ``width`` are those of the smallest box around everything that differs from the ground, 0 in a blank
    picture. ``moved`` says how far that box moves, as a share of its longer side, if only strong differences count.
    """

    uniform: bool
    height: int
    width: int
    moved: float


def check_stack_size(what: str, shape: tuple[int, ...], advice: str) -> None:
    """Raise an error before a stack of float32 images is allocated that would not fit into memory."""
    n_bytes = 4 * math.prod(shape)
    if n_bytes > MAX_STACK_BYTES:
        raise ValueError(
            f"{what} would take {n_bytes / 2**30:.0f} GiB as an array of {shape_text(shape)}; "
            f"at most {MAX_STACK_BYTES // 2**30} GiB are read at once, so {advice}"
        )


def to_grey(pixels: Pixels) -> Pixels:
    """Return the luminance ``(..., h, w)`` of colour pictures ``(..., h, w, 3)``; grey pixels keep their exact value.

    >>> to_grey(np.array([[[0.25, 0.25, 0.25], [1.0, 0.0, 0.0]]], dtype=np.float32))
    array([[0.25 , 0.299]], dtype=float32)
    """
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    return np.asarray(np.where((red == green) & (green == blue), red, pixels @ LUMINANCE))


def resize_array(pixels: Pixels, frame: Frame) -> Pixels:
    """Bring a float array ``(h, w)`` or ``(h, w, 3)`` to the shape of the frame, keeping its range of values."""
    if pixels.ndim == 3 and not frame.in_color:
        pixels = to_grey(pixels)
    ground = None
    if frame.cut:
        ground = ground_of(pixels)
        box = content_box(pixels, ground, LOW * _extent(pixels))
        pixels = pixels[box[0] : box[1], box[2] : box[3]] if box else pixels
    if pixels.shape[:2] != frame.inner:
        planes = pixels[..., None] if pixels.ndim == 2 else pixels
        resized = [
            np.asarray(fit_into(Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32)), frame))
            for plane in np.moveaxis(planes, -1, 0)
        ]
        pixels = resized[0] if pixels.ndim == 2 else np.stack(resized, axis=-1)
    pixels = place(pixels, frame, ground)
    if frame.in_color and pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    return np.ascontiguousarray(pixels, dtype=np.float32)


def fit_into(image: Image.Image, frame: Frame) -> Image.Image:
    """Scale a picture to lie inside the frame (pad), or to cover it and keep the middle (crop)."""
    width, height = image.size
    inner_height, inner_width = frame.inner
    if (height, width) == (inner_height, inner_width):
        return image
    # A reducing gap lets Pillow shrink large pictures in two quick steps; it does not support float planes.
    gap = 3.0 if image.mode != "F" else None
    if frame.fit == "crop":
        scale = max(frame.width / width, frame.height / height)
        box_width, box_height = frame.width / scale, frame.height / scale
        left, top = (width - box_width) / 2.0, (height - box_height) / 2.0
        box = (max(left, 0.0), max(top, 0.0), min(left + box_width, width), min(top + box_height, height))
        return image.resize((frame.width, frame.height), Image.Resampling.BILINEAR, box=box, reducing_gap=gap)
    scale = min(inner_width / width, inner_height / height)
    size = (
        min(max(1, round(width * scale)), inner_width),
        min(max(1, round(height * scale)), inner_height),
    )
    return image.resize(size, Image.Resampling.BILINEAR, reducing_gap=gap)


def place(pixels: NDArray[Any], frame: Frame, ground: NDArray[Any] | None) -> NDArray[Any]:
    """Put a picture into the middle of the frame, on ``ground`` or else on the median colour of its own border."""
    height, width = pixels.shape[:2]
    if (height, width) == (frame.height, frame.width):
        return pixels
    placed = np.empty((frame.height, frame.width, *pixels.shape[2:]), dtype=pixels.dtype)
    placed[...] = ground_of(pixels) if ground is None else ground
    top, left = (frame.height - height) // 2, (frame.width - width) // 2
    placed[top : top + height, left : left + width] = pixels
    return placed


def ground_of(values: NDArray[Any]) -> NDArray[Any]:
    """Return the median colour of the border, in the type of the values."""
    return np.asarray(np.median(_border(values), axis=0).astype(values.dtype))


def _extent(values: NDArray[Any]) -> float:
    return float(values.max()) - float(values.min())


def _border(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values[0], values[-1], values[1:-1, 0], values[1:-1, -1]])


def _distance(values: NDArray[Any], ground: NDArray[Any]) -> NDArray[Any]:
    """Return how far pixels are from the ground in the channel that differs most, without a wider type."""
    far = np.maximum(values, ground) - np.minimum(values, ground)
    return np.asarray(far.max(axis=-1) if ground.ndim else far)


def content_box(values: NDArray[Any], ground: NDArray[Any], tolerance: float) -> tuple[int, int, int, int] | None:
    """Return ``(top, bottom, left, right)`` of what differs from the ground by more than the tolerance."""
    differs = _distance(values, ground) > tolerance
    rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
    if not len(rows):
        return None
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def content_of(values: NDArray[Any], size: tuple[int, int]) -> Content:
    """Measure the content of a picture of 8 bits, or of floats, whose full ``size`` may be larger."""
    full = 255.0 if values.dtype == np.uint8 else _extent(values)
    ground = ground_of(values)
    uniform = float((_distance(_border(values), ground) <= LOW * full).mean()) >= UNIFORM_SHARE
    box, strong = (content_box(values, ground, tolerance * full) for tolerance in (LOW, HIGH))
    if box is None:
        return Content(uniform, 0, 0, 0.0)
    height, width = box[1] - box[0], box[3] - box[2]
    moved = float(np.abs(np.subtract(box, strong)).max()) / max(height, width) if strong else 1.0
    scale = max(size) / max(values.shape[:2])
    return Content(uniform, max(1, round(height * scale)), max(1, round(width * scale)), moved)


# --- reading files ------------------------------------------------------------------------------------------
__all__ = [
    "PICTURE_SUFFIXES",
    "Allowance",
    "Header",
    "Page",
    "PictureError",
    "SecondLook",
    "measure_content",
    "read_header",
    "read_pages",
    "silence_decoders",
]

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "DIB", "PPM", "WEBP", "TIFF")
AVIF_SUFFIXES = frozenset({".avif", ".avifs"})
HEIC_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
TIFF_SUFFIXES = frozenset({".tif", ".tiff"})
PICTURE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".bmp", ".dib", ".webp"}
    | {".pgm", ".ppm", ".pbm", ".pnm", ".apng"}
    | TIFF_SUFFIXES
    | AVIF_SUFFIXES
    | HEIC_SUFFIXES
)
GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"})
ORIENTATION_TAG = 274
DECODER_BYTES = {"WEBP": 8, "AVIF": 8}  # per pixel; these decoders keep several copies of a picture
TILE_TAGS = (322, 323)  # width and height of a tile
DEFLATE, LZMA = (8, 32946), 34925  # compressions of a TIFF
LARGE_PICTURE = 16_000_000  # pixels
# Large pictures are decoded one at a time, because several at once would need too much memory.
_one_large_picture = threading.Semaphore(1)
SAMPLE_SIDE = 512  # pixels that are enough to find the content

# Both libraries log warnings about damaged files; our callers report the reason instead.
for _library in ("tifffile", "PIL.TiffImagePlugin"):
    logging.getLogger(_library).addHandler(logging.NullHandler())


@contextlib.contextmanager
def silence_decoders() -> Iterator[None]:
    """Hide the warnings of decoders about damaged or large files; callers report a reason instead.

    Enter it once, in the thread that starts the others: warning filters belong to the whole process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


class PictureError(ValueError):
    """A picture cannot be used; the message is the reason in a few words."""


@dataclass(frozen=True)
class Allowance:
    """How much a file of ``n_bytes`` may decode to, given that one picture may have ``max_pixels`` pixels.

    Real pictures are rarely compressed to less than a byte per hundred pixels. A file that decodes to more than that
    is decoded only as long as it stays below ``max_pixels`` in all.

    >>> Allowance(80_000_000, n_bytes=500_000).pixels, Allowance(80_000_000, n_bytes=2_000_000).pixels
    (80000000, 200000000)
    """

    max_pixels: int
    n_bytes: int

    PIXELS_PER_BYTE: ClassVar[int] = 100
    PIXELS_PER_SECOND: ClassVar[int] = 16_000_000  # slower than any decoder
    BYTES_PER_PIXEL: ClassVar[int] = 4
    BYTES_PER_PAGE: ClassVar[int] = 1024
    PIXELS_PER_FREE_PAGE: ClassVar[int] = 80_000
    SCANS: ClassVar[int] = 16  # encoders write about ten

    @property
    def pixels(self) -> int:
        """The pixels of all pages together."""
        return max(self.max_pixels, self.PIXELS_PER_BYTE * self.n_bytes)

    @property
    def pages(self) -> int:
        """The number of pages."""
        return max(1000, self.max_pixels // self.PIXELS_PER_FREE_PAGE) + self.n_bytes // self.BYTES_PER_PAGE

    @property
    def seconds(self) -> float:
        """The processor time for reading the headers."""
        return self.pixels / self.PIXELS_PER_SECOND

    def check_page(self, n_pixels: int, bytes_per_pixel: int = 1) -> None:
        """Raise an error if one page has too many pixels, or takes too many bytes once it is decoded."""
        if n_pixels > self.max_pixels:
            raise PictureError(f"too large: {n_pixels} pixels, {self._limit(self.max_pixels)}")
        n_bytes, most = n_pixels * bytes_per_pixel, self.BYTES_PER_PIXEL * self.max_pixels
        if n_bytes > most:
            size = f"{n_bytes / 1e6:.0f} MB"
            raise PictureError(f"too large: {size} when decoded, the limit is {most / 1e6:.0f} MB (--max-pixels)")

    def check_file(self, n_pages: int, n_pixels: int) -> None:
        """Raise an error if the pages of a file are too many, or have too many pixels together."""
        if n_pages > self.pages:
            raise PictureError(
                f"too many pages for a file of {self.n_bytes} bytes, the limit is {self.pages} (--max-pixels)"
            )
        if n_pixels > self.pixels:
            raise PictureError(
                f"too large: over {n_pixels} pixels in {count(n_pages, 'page')} of a file of {self.n_bytes} bytes, "
                f"{self._limit(self.pixels)}"
            )

    def check_scans(self, n_scans: int, n_pixels: int) -> None:
        """Raise an error if a JPEG has too many scans: every scan passes over all pixels."""
        most = self.SCANS * max(1, self.max_pixels // max(n_pixels, 1))
        if n_scans > most:
            raise PictureError(f"a JPEG of {n_scans} scans, the limit for its size is {most} (--max-pixels)")

    @staticmethod
    def _limit(pixels: int) -> str:
        return f"the limit is {pixels} (--max-pixels)"


@dataclass(frozen=True)
class Header:
    """What is known about a file before its pixels are decoded: the upright ``(height, width)`` of each page."""

    path: Path
    sizes: tuple[tuple[int, int], ...]
    in_color: bool
    allowance: Allowance
    reader: str = "pillow"

    @property
    def n_pixels(self) -> int:
        """The pixels of all pages together."""
        return sum(height * width for height, width in self.sizes)

    @property
    def n_inflated(self) -> int:
        """The pixels beyond what a file of this size usually holds."""
        return max(0, self.n_pixels - Allowance.PIXELS_PER_BYTE * self.allowance.n_bytes)


@dataclass(frozen=True)
class Page:
    """One decoded page.

    ``needs_scaling`` marks floats and 32-bit integers: their full scale is known only when all pictures are read.
    ``large`` is the same page in a second frame, as bytes; None if that was not asked for.
    """

    pixels: Pixels
    needs_scaling: bool
    large: NDArray[np.uint8] | None = None


def read_header(path: Path, *, max_pixels: int) -> Header:
    """Return sizes and colour of a picture; raise :class:`PictureError` if it is empty, unknown or too large."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise PictureError("not an ordinary file")
        if status.st_size == 0:
            raise PictureError("empty file")
        allowance = Allowance(max_pixels, status.st_size)
        with _open(path) as image:
            sizes = tuple(_page_sizes(image, allowance))
            header = Header(path, sizes, image.mode not in GREY_MODES, allowance)
        return _header_of_all_pages(header)
    except UnidentifiedImageError:
        if path.suffix.lower() in TIFF_SUFFIXES:
            return _series_header(path, allowance)
        raise PictureError("not a picture in a known format") from None
    except PictureError:
        raise
    except Exception as error:  # a decoder may raise anything on a malicious file
        raise PictureError(_reason(error)) from error


def read_pages(header: Header, frame: Frame, large: Frame | None = None) -> Iterator[tuple[int, Page | PictureError]]:
    """Yield ``(page number, page resized to the frame)``, or the reason in place of a damaged page.

    With a second, larger frame the page is also resized to that one.
    """
    reader = _read_series if header.reader == "tifffile" else _read_with_pillow
    try:
        with _memory_for(header):
            yield from reader(header, frame, large)
    except Exception as error:  # the file can no longer be opened
        for page in range(len(header.sizes)):
            yield page, PictureError(_reason(error))


def measure_content(header: Header) -> Content | None:
    """Return where the content of a file's first page lies, or None if that cannot be told."""
    if header.reader != "pillow":
        return None
    try:
        with _memory_for(header), _open_checked(header) as image:
            image.draft(None, (SAMPLE_SIDE, SAMPLE_SIDE))
            values = _plain_values(_load_upright(image, SAMPLE_SIDE))
    except Exception:  # the reason is given when the picture is read
        return None
    return content_of(values, header.sizes[0])


@contextlib.contextmanager
def _memory_for(header: Header) -> Iterator[None]:
    """Wait until no other large picture is being decoded, if this one is large."""
    large = max(height * width for height, width in header.sizes) > LARGE_PICTURE
    with _one_large_picture if large else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Image.Image]:
    # By stream, not by name: Pillow 13 memory-maps an uncompressed TIFF by its rotated size and garbles it.
    with open(path, "rb") as stream, Image.open(stream, formats=_formats_for(path)) as image:
        yield image


def _formats_for(path: Path) -> tuple[str, ...]:
    """Return the formats to try for a file; raise an error if the one its name promises needs another package."""
    suffix = path.suffix.lower()
    if suffix in HEIC_SUFFIXES:
        try:
            import pillow_heif
        except ImportError:
            raise PictureError("HEIC pictures need pillow-heif: pip install pillow-heif") from None
        pillow_heif.register_heif_opener()
        return (*_formats(), "HEIF")
    if suffix in AVIF_SUFFIXES and "AVIF" not in _formats():
        raise PictureError("AVIF pictures need Pillow 11.3 or later: pip install --upgrade pillow")
    return _formats()


@cache
def _formats() -> tuple[str, ...]:
    return (*FORMATS, "AVIF") if features.check("avif") else FORMATS


@contextlib.contextmanager
def _open_checked(header: Header) -> Iterator[Image.Image]:
    """Open a picture for decoding, after a check of the scans of a JPEG."""
    with _open(header.path) as image:
        if image.format in ("JPEG", "MPO"):
            header.allowance.check_scans(_count_scans(header.path), header.n_pixels)
        yield image


def _read_with_pillow(header: Header, frame: Frame, large: Frame | None) -> Iterator[tuple[int, Page | PictureError]]:
    # A picture that is cut fills the frame with a part of itself, so it is decoded at a larger size.
    side = (8 if frame.cut else 2) * max(frame.height, frame.width)
    if large is None:
        yield from _decode_pages(header, frame, None, side)
        return
    large_side = max(side, (2 if frame.cut else 1) * max(large.height, large.width))
    if not _size_depends_on_use(header):
        yield from _decode_pages(header, frame, large, large_side)
        return
    # A picture must be the same with and without a second look, or a model would not know its own pictures again.
    alone = list(_decode_pages(header, frame, None, side))
    for (page, first), (_, second) in zip(alone, _decode_pages(header, frame, large, large_side), strict=True):
        if isinstance(first, PictureError) or isinstance(second, PictureError):
            yield page, first if isinstance(first, PictureError) else second
        else:
            yield page, replace(first, large=second.large)


def _size_depends_on_use(header: Header) -> bool:
    """Tell whether a picture is decoded at a smaller size where that is enough: a JPEG, or a very large one."""
    with _open(header.path) as image:
        is_jpeg = image.format in ("JPEG", "MPO")
    return is_jpeg or max(height * width for height, width in header.sizes) > LARGE_PICTURE


def _decode_pages(
    header: Header, frame: Frame, large: Frame | None, side: int
) -> Iterator[tuple[int, Page | PictureError]]:
    """Yield the pages of a file, decoded with sides of at least ``side`` pixels where they have as many."""
    with _open_checked(header) as image:
        for page in range(len(header.sizes)):
            try:
                if page:
                    image.seek(page)
                # A JPEG can be decoded directly at a half, a quarter or an eighth of its size.
                image.draft(None, (side, side))
                yield page, _decode_page(_load_upright(image, 2 * side), frame, large)
            except Exception as error:
                yield page, PictureError(_reason(error))


def _count_scans(path: Path) -> int:
    """Return how many scans a JPEG has: their marker cannot occur inside compressed data."""
    marker, n_scans, tail = b"\xff\xda", 0, b""
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            n_scans += (tail + block).count(marker)
            tail = block[-1:]
    return n_scans


def _load_upright(image: Image.Image, side: int) -> Image.Image:
    """Decode a picture and turn it upright; a very large one is shrunk, but no side to less than ``side``."""
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    width, height = image.size
    factor = min(width, height) // side
    if width * height <= LARGE_PICTURE or factor < 2 or image.mode.startswith("I;16"):
        return image
    plain = _without_palette(image)
    shrunk = (plain.convert("L") if plain.mode == "1" else plain).reduce(factor)
    shrunk.format = image.format  # tells 16-bit pictures from others
    return shrunk


def _is_deep(image: Image.Image) -> bool:
    return image.mode.startswith("I") or image.mode == "F"


def _plain(image: Image.Image) -> Image.Image:
    """Return a picture of eight bits per channel in grey or in colour, without transparency."""
    opaque = _without_alpha(image)
    return opaque.convert("L" if opaque.mode in GREY_MODES else "RGB")


def _decode_page(image: Image.Image, frame: Frame, large: Frame | None) -> Page:
    if _is_deep(image):
        return _decode_deep(image, frame, large)
    plain, ground = _plain(image), None
    if frame.cut:
        values = np.asarray(plain)
        ground = ground_of(values)
        box = content_box(values, ground, LOW * 255.0)
        plain = plain.crop((box[2], box[0], box[3], box[1])) if box else plain
    placed = place(np.asarray(fit_into(plain, frame)), frame, ground)
    pixels = placed.astype(np.float32) / np.float32(255.0)
    if frame.in_color and pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    second = None if large is None else place(np.asarray(fit_into(plain, large)), large, ground)
    return Page(pixels if frame.in_color or pixels.ndim == 2 else to_grey(pixels), needs_scaling=False, large=second)


def _decode_deep(image: Image.Image, frame: Frame, large: Frame | None) -> Page:
    """Decode a picture of more than eight bits per channel."""
    values = np.asarray(image).astype(np.float32)
    # Pillow keeps 16-bit PGM and PNG pictures as 32-bit integers, in the range of 16 bits.
    sixteen_bits = image.mode.startswith("I;16") or getattr(image, "format", None) in ("PPM", "PNG")
    if sixteen_bits:
        values /= np.float32(65535.0)
    return _deep_page(values, frame, large, needs_scaling=not sixteen_bits)


def _deep_page(values: Pixels, frame: Frame, large: Frame | None, *, needs_scaling: bool) -> Page:
    if not np.isfinite(values).all():
        raise PictureError("contains NaN or infinity")
    pixels = resize_array(values, frame)
    if not np.isfinite(pixels).all():
        raise PictureError(f"values up to {float(np.abs(values).max()):.0e} are too large to compute with")
    return Page(pixels, needs_scaling, None if large is None else _as_bytes(resize_array(values, large)))


def _as_bytes(pixels: Pixels) -> NDArray[np.uint8]:
    """Return a picture in bytes, its darkest value 0 and its brightest 255; a blank one stays blank."""
    low, extent = float(pixels.min()), _extent(pixels)
    return np.asarray((pixels - low) * (255.0 / extent if extent > 0.0 else 0.0) + 0.5).astype(np.uint8)


def _without_alpha(image: Image.Image) -> Image.Image:
    """Put a transparent picture on a white ground, as a browser does, or on black if it would not be seen on white."""
    image = _without_palette(image)
    if image.mode not in ("LA", "La", "PA", "RGBA", "RGBa"):
        return image
    layer = image.convert("RGBA")
    on_white = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    if min(low for low, _ in on_white.getextrema()) < 255 or layer.getextrema()[3][1] == 0:  # type: ignore[misc, index]
        return on_white
    return Image.alpha_composite(Image.new("RGBA", layer.size, "black"), layer).convert("RGB")


def _without_palette(image: Image.Image) -> Image.Image:
    """Return a picture with a palette, or with one transparent colour, as plain colours and alpha."""
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    if "transparency" in image.info and image.mode in ("1", "L", "RGB"):
        return image.convert("RGBA")
    return image


def _plain_values(image: Image.Image) -> NDArray[Any]:
    return np.asarray(image).astype(np.float32) if _is_deep(image) else np.asarray(_plain(image))


def _page_sizes(image: Image.Image, allowance: Allowance) -> Iterator[tuple[int, int]]:
    """Yield the upright size of every page; raise an error as soon as the file passes a limit."""
    start, n_pixels = time.thread_time(), 0
    for page in itertools.count():
        try:
            image.seek(page)
        except EOFError:
            return
        width, height = image.size
        n_pixels += width * height
        allowance.check_page(width * height, DECODER_BYTES.get(image.format or "", 1))
        allowance.check_file(page + 1, n_pixels)
        if time.thread_time() - start > allowance.seconds:
            raise PictureError(f"its headers take over {allowance.seconds:.0f} s to read (--max-pixels)")
        if image.format != "TIFF":
            rotated = image.getexif().get(ORIENTATION_TAG, 1) in (5, 6, 7, 8)
            yield (width, height) if rotated else (height, width)
            return
        # libtiff allocates a whole tile, whatever the size of the page. Pillow rotates pages itself.
        tile_width, tile_height = (int(image.tag_v2.get(tag, 1)) for tag in TILE_TAGS)  # type: ignore[attr-defined]
        allowance.check_page(tile_width * tile_height)
        yield height, width


def _header_of_all_pages(header: Header) -> Header:
    """Return a header for tifffile if the file is an ImageJ stack: only its first page has a header for Pillow."""
    if header.path.suffix.lower() not in TIFF_SUFFIXES or len(header.sizes) > 1:
        return header
    with open(header.path, "rb") as stream:
        if b"ImageJ=" not in stream.read(1 << 16):
            return header
    try:
        series = _series_header(header.path, header.allowance)
    except PictureError:
        return header
    return series if len(series.sizes) > 1 else header


def _series_header(path: Path, allowance: Allowance) -> Header:
    with _open_series(path) as series:
        n_pages, height, width, *channels = _series_shape(series)
        pixel_bytes = series.dtype.itemsize * math.prod(channels)
        allowance.check_page(height * width, pixel_bytes)
        allowance.check_file(n_pages, n_pages * height * width)
        tile = series.keyframe.tilewidth * series.keyframe.tilelength if series.keyframe.is_tiled else 0
        allowance.check_page(tile, pixel_bytes)
    return Header(path, ((height, width),) * n_pages, bool(channels), allowance, reader="tifffile")


def _read_series(header: Header, frame: Frame, large: Frame | None) -> Iterator[tuple[int, Page | PictureError]]:
    with _open_series(header.path) as series:
        shape = _series_shape(series)
        planar = series.axes.endswith("SYX") and len(shape) == 4
        scale = {"uint8": 255.0, "uint16": 65535.0}.get(series.dtype.name)
        for page, values in enumerate(_series_pages(series, shape[0], header.allowance)):
            upright = (np.moveaxis(values, -3, -1) if planar else values).reshape(shape[1:])
            with np.errstate(over="ignore"):  # too large for 32 bits: infinite, and an error below
                pixels = np.asarray(upright, dtype=np.float32) / np.float32(scale or 1.0)
            try:
                yield page, _deep_page(pixels, frame, large, needs_scaling=scale is None)
            except PictureError as reason:
                yield page, reason


def _series_pages(series: TiffPageSeries, n_pages: int, allowance: Allowance) -> Iterator[NDArray[Any]]:
    """Yield the pages one after the other; only a stack that lies in the file as one block is read as a whole."""
    if len(series.pages) == n_pages:
        for page in series.pages:
            _check_segments(page)
            yield page.asarray()
        return
    if series.dataoffset is None:
        allowance.check_page(math.prod(series.shape), series.dtype.itemsize)
        for page in series.pages:
            _check_segments(page)
    yield from series.asarray().reshape(n_pages, -1)


def _check_segments(page: TiffPage | TiffFrame) -> None:
    """Raise an error if a strip or tile of a page decompresses to more than its share: tifffile would take it all."""
    compression = int(page.keyframe.compression)
    if compression not in (*DEFLATE, LZMA):
        return
    most = page.keyframe.nbytes + page.keyframe.dtype.itemsize * math.prod(page.keyframe.chunks)
    for segment, _ in page.parent.filehandle.read_segments(page.dataoffsets, page.databytecounts):
        decoder = lzma.LZMADecompressor() if compression == LZMA else zlib.decompressobj()
        if segment and len(decoder.decompress(segment, most + 1)) > most:
            raise PictureError("a part of it decompresses to more than the whole picture")


@contextlib.contextmanager
def _open_series(path: Path) -> Iterator[TiffPageSeries]:
    """Yield the first series of pages in a TIFF, with every error turned into :class:`PictureError`."""
    try:
        import tifffile
    except ImportError:
        raise PictureError("this kind of TIFF needs tifffile: pip install 'tubal[io]'") from None
    try:
        with tifffile.TiffFile(path) as file:
            yield file.series[0]
    except PictureError:
        raise
    except Exception as error:
        raise PictureError(_reason(error)) from error


def _series_shape(series: TiffPageSeries) -> tuple[int, ...]:
    """Return ``(pages, height, width[, 3])`` of a series whose colour channels come first or last."""
    axes, shape = series.axes, tuple(series.shape)
    if axes.endswith("SYX") and shape[-3] == 3:
        axes, shape = axes[:-3] + "YXS", (*shape[:-3], *shape[-2:], 3)
    in_color = axes.endswith("YXS") and shape[-1] == 3
    keep = 3 if in_color else 2
    if len(shape) < keep or ("S" in axes and not in_color) or series.dtype.kind not in "buif":
        raise PictureError(f"a TIFF with axes {axes or '(none)'} and type {series.dtype} is not supported")
    return (math.prod(shape[:-keep]), *shape[-keep:])


def _reason(error: Exception) -> str:
    """Return in a few words why a file cannot be read."""
    if isinstance(error, PictureError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "not a picture in a known format"
    if isinstance(error, Image.DecompressionBombError):
        return f"too large: over {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels, the most that Pillow opens"
    if isinstance(error, MemoryError):
        return "too large for the memory of this machine"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return f"damaged: {error_text(error)}"


# --- a second look -------------------------------------------------------------------------------------------
class SecondLook:
    """Describes pictures at a larger size while they are read, a few at a time, so that few are in memory.

    Parameters
    ----------
    describe : callable
        Returns features (m, d) of pictures (m, side, side, 3) in bytes.
    side : int
        Height and width of the pictures it is called with.
    least_side : int
        Collections whose typical picture has a shorter side than this are not described.
    ready : callable
        Called with the number of pictures; returns whether so many can be described.
    batch : int, default=32
        Pictures per call.
    """

    def __init__(
        self,
        describe: Callable[[NDArray[np.uint8]], NDArray[np.float32]],
        side: int,
        *,
        least_side: int,
        ready: Callable[[int], bool],
        batch: int = 32,
    ) -> None:
        self._describe, self._batch = describe, batch
        self.side, self._least_side, self._ready = side, least_side, ready
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, NDArray[np.uint8]]] = []
        self._rows: dict[int, NDArray[np.float32]] = {}

    def is_worthwhile(self, sizes: Sequence[tuple[int, int]]) -> bool:
        """Return whether pictures of these (height, width) are described."""
        return float(np.median(np.min(sizes, axis=1))) >= self._least_side and self._ready(len(sizes))

    def add(self, index: int, picture: NDArray[np.uint8]) -> None:
        """Take one picture (side, side[, 3]); threads that add more wait while a batch is described."""
        color = np.repeat(picture[..., None], 3, axis=-1) if picture.ndim == 2 else picture
        with self._lock:
            self._waiting.append((index, color))
            if len(self._waiting) >= self._batch:
                self._empty()

    def recall(self, index: int, row: NDArray[np.float32]) -> None:
        """Take the features (d,) of a picture from an earlier run."""
        with self._lock:
            self._rows[index] = row

    def described(self) -> dict[int, NDArray[np.float32]]:
        """Return the features (d,) of the pictures described so far, by index."""
        return dict(self._rows)

    def features(self) -> NDArray[np.float32]:
        """Return the features (n, d) of all pictures, in the order of their indices, and forget them."""
        with self._lock:
            self._empty()
            return np.stack([self._rows.pop(index) for index in sorted(self._rows)])

    def _empty(self) -> None:
        if self._waiting:
            found = self._describe(np.stack([picture for _, picture in self._waiting]))
            self._rows.update(zip((index for index, _ in self._waiting), found, strict=True))
            self._waiting = []
