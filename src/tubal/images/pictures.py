"""Reading one picture file: its header, and its pages resized to a common frame.

File contents are not trusted: whatever is wrong with a file becomes a :class:`PictureError` whose text is the reason.
Only the formats named here are tried, so that a renamed file cannot reach another decoder.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from tubal.text import count, error_text, shape_text

if TYPE_CHECKING:
    from tifffile import TiffPageSeries

__all__ = [
    "PICTURE_SUFFIXES",
    "Frame",
    "Header",
    "Page",
    "PictureError",
    "Pixels",
    "check_stack_size",
    "read_header",
    "read_pages",
    "resize_array",
    "silence_decoders",
    "to_grey",
]

Pixels = NDArray[np.float32]

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "DIB", "PPM", "WEBP", "TIFF")
TIFF_SUFFIXES = frozenset({".tif", ".tiff"})
PICTURE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".bmp", ".dib", ".webp"}
    | {".pgm", ".ppm", ".pbm", ".pnm"}
    | TIFF_SUFFIXES
)
GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"})
ORIENTATION_TAG = 274
MAX_PAGES = 100_000
MAX_STACK_BYTES = 8 * 2**30
LARGE_PICTURE = 16_000_000  # pixels
# Large pictures are decoded one at a time, because several at once would need too much memory.
_one_large_picture = threading.Semaphore(1)
LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)

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
class Header:
    """What is known about a file before its pixels are decoded: the upright ``(height, width)`` of each page."""

    path: Path
    sizes: tuple[tuple[int, int], ...]
    in_color: bool
    reader: str = "pillow"


@dataclass(frozen=True)
class Frame:
    """The common shape of all pictures; ``fit`` is ``"pad"`` or ``"crop"``."""

    height: int
    width: int
    in_color: bool
    fit: str = "pad"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one picture as an array."""
        return (self.height, self.width, 3) if self.in_color else (self.height, self.width)


@dataclass(frozen=True)
class Page:
    """One decoded page.

    ``needs_scaling`` marks floats and 32-bit integers: their full scale is known only when all pictures are read.
    """

    pixels: Pixels
    needs_scaling: bool


def read_header(path: Path, *, max_pixels: int) -> Header:
    """Return sizes and colour of a picture; raise :class:`PictureError` if it is empty, unknown or too large."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise PictureError("not an ordinary file")
        if status.st_size == 0:
            raise PictureError("empty file")
        with _open(path) as image:
            pages = min(getattr(image, "n_frames", 1), MAX_PAGES) if image.format == "TIFF" else 1
            sizes = tuple(_upright_size(image, page, max_pixels) for page in range(pages))
            header = Header(path, sizes, image.mode not in GREY_MODES)
        return _header_of_all_pages(header, max_pixels)
    except UnidentifiedImageError:
        if path.suffix.lower() in TIFF_SUFFIXES:
            return _series_header(path, max_pixels)
        raise PictureError("not a picture in a known format") from None
    except PictureError:
        raise
    except Exception as error:  # a decoder may raise anything on a malicious file
        raise PictureError(_reason(error)) from error


def read_pages(header: Header, frame: Frame) -> Iterator[tuple[int, Page | PictureError]]:
    """Yield ``(page number, page resized to the frame)``, or the reason in place of a damaged page."""
    large = max(height * width for height, width in header.sizes) > LARGE_PICTURE
    if large:
        _one_large_picture.acquire()
    try:
        reader = _read_series if header.reader == "tifffile" else _read_with_pillow
        yield from reader(header, frame)
    except Exception as error:  # the file can no longer be opened
        for page in range(len(header.sizes)):
            yield page, PictureError(_reason(error))
    finally:
        if large:
            _one_large_picture.release()


def check_stack_size(what: str, shape: tuple[int, ...], advice: str) -> None:
    """Raise an error before a stack of float32 images is allocated that would not fit into memory."""
    n_bytes = 4 * math.prod(shape)
    if n_bytes > MAX_STACK_BYTES:
        raise ValueError(
            f"{what} would take {n_bytes / 2**30:.0f} GiB as an array of {shape_text(shape)}; "
            f"at most {MAX_STACK_BYTES // 2**30} GiB are read at once, so {advice}"
        )


def to_grey(pixels: Pixels) -> Pixels:
    """Return the luminance ``(..., h, w)`` of colour pictures ``(..., h, w, 3)``."""
    return np.asarray(pixels @ LUMINANCE)


def resize_array(pixels: Pixels, frame: Frame) -> Pixels:
    """Bring a float array ``(h, w)`` or ``(h, w, 3)`` to the shape of the frame, keeping its range of values."""
    if pixels.ndim == 3 and not frame.in_color:
        pixels = to_grey(pixels)
    if pixels.shape[:2] != (frame.height, frame.width):
        planes = pixels[..., None] if pixels.ndim == 2 else pixels
        resized = [
            np.asarray(_resize(Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32)), frame))
            for plane in np.moveaxis(planes, -1, 0)
        ]
        pixels = resized[0] if pixels.ndim == 2 else np.stack(resized, axis=-1)
        pixels = _pad_edges(pixels, frame)
    if frame.in_color and pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    return np.ascontiguousarray(pixels, dtype=np.float32)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Image.Image]:
    # By stream, not by name: Pillow 13 memory-maps an uncompressed TIFF by its rotated size and garbles it.
    with open(path, "rb") as stream, Image.open(stream, formats=FORMATS) as image:
        yield image


def _read_with_pillow(header: Header, frame: Frame) -> Iterator[tuple[int, Page | PictureError]]:
    with _open(header.path) as image:
        for page in range(len(header.sizes)):
            try:
                if page:
                    image.seek(page)
                # A JPEG can be decoded directly at a half, a quarter or an eighth of its size.
                longest = 2 * max(frame.height, frame.width)
                image.draft(None, (longest, longest))
                yield page, _decode_page(image, frame)
            except Exception as error:
                yield page, PictureError(_reason(error))


def _decode_page(image: Image.Image, frame: Frame) -> Page:
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I") or upright.mode == "F":
        return _decode_deep(upright, frame)
    plain = _without_alpha(upright).convert("RGB" if frame.in_color else "L")
    pixels = _pad_edges(np.asarray(_resize(plain, frame)), frame)
    return Page(pixels.astype(np.float32) / np.float32(255.0), needs_scaling=False)


def _decode_deep(image: Image.Image, frame: Frame) -> Page:
    """Decode a picture of more than eight bits per channel."""
    values = np.asarray(image).astype(np.float32)
    if not np.isfinite(values).all():
        raise PictureError("contains NaN or infinity")
    # Pillow keeps 16-bit PGM and PNG pictures as 32-bit integers, in the range of 16 bits.
    sixteen_bits = image.mode.startswith("I;16") or getattr(image, "format", None) in ("PPM", "PNG")
    if sixteen_bits:
        values /= np.float32(65535.0)
    return Page(resize_array(values, frame), needs_scaling=not sixteen_bits)


def _without_alpha(image: Image.Image) -> Image.Image:
    """Put a transparent picture on a white background, as a browser does; palettes become colours first."""
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif "transparency" in image.info and image.mode in ("1", "L", "RGB"):
        image = image.convert("RGBA")
    if image.mode not in ("LA", "La", "PA", "RGBA", "RGBa"):
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _resize(image: Image.Image, frame: Frame) -> Image.Image:
    """Scale a picture to lie inside the frame (pad), or to cover it and keep the middle (crop)."""
    width, height = image.size
    if (height, width) == (frame.height, frame.width):
        return image
    # A reducing gap lets Pillow shrink large pictures in two quick steps; it does not support float planes.
    gap = 3.0 if image.mode != "F" else None
    if frame.fit == "crop":
        scale = max(frame.width / width, frame.height / height)
        box_width, box_height = frame.width / scale, frame.height / scale
        left, top = (width - box_width) / 2.0, (height - box_height) / 2.0
        box = (max(left, 0.0), max(top, 0.0), min(left + box_width, width), min(top + box_height, height))
        return image.resize((frame.width, frame.height), Image.Resampling.BILINEAR, box=box, reducing_gap=gap)
    scale = min(frame.width / width, frame.height / height)
    size = (
        min(max(1, round(width * scale)), frame.width),
        min(max(1, round(height * scale)), frame.height),
    )
    return image.resize(size, Image.Resampling.BILINEAR, reducing_gap=gap)


def _pad_edges(pixels: NDArray[Any], frame: Frame) -> NDArray[Any]:
    """Repeat the border pixels up to the frame; a margin of one colour would add an edge."""
    missing = (frame.height - pixels.shape[0], frame.width - pixels.shape[1])
    if missing == (0, 0):
        return pixels
    margins = [(extra // 2, extra - extra // 2) for extra in missing] + [(0, 0)] * (pixels.ndim - 2)
    return np.pad(pixels, margins, mode="edge")


def _upright_size(image: Image.Image, page: int, max_pixels: int) -> tuple[int, int]:
    if page:
        image.seek(page)
    width, height = image.size
    _check_pixels(width * height, max_pixels)
    # Pillow rotates TIFF pages itself and reports their upright size.
    rotated = image.format != "TIFF" and image.getexif().get(ORIENTATION_TAG, 1) in (5, 6, 7, 8)
    return (width, height) if rotated else (height, width)


def _check_pixels(n_pixels: int, max_pixels: int) -> None:
    if n_pixels > max_pixels:
        raise PictureError(f"too large: {n_pixels} pixels, the limit is {max_pixels} (max_pixels)")


def _header_of_all_pages(header: Header, max_pixels: int) -> Header:
    """Return a header for tifffile if the file is an ImageJ stack: only its first page has a header for Pillow."""
    if header.path.suffix.lower() not in TIFF_SUFFIXES or len(header.sizes) > 1:
        return header
    with open(header.path, "rb") as stream:
        if b"ImageJ=" not in stream.read(1 << 16):
            return header
    try:
        series = _series_header(header.path, max_pixels)
    except PictureError:
        return header
    return series if len(series.sizes) > 1 else header


def _series_header(path: Path, max_pixels: int) -> Header:
    with _open_series(path) as series:
        n_pages, height, width, *channels = _series_shape(series)
        _check_pixels(height * width, max_pixels)
        if not 0 < n_pages <= MAX_PAGES:
            raise PictureError(f"a TIFF of {count(n_pages, 'page')}; at most {MAX_PAGES} are read")
    return Header(path, ((height, width),) * n_pages, bool(channels), reader="tifffile")


def _read_series(header: Header, frame: Frame) -> Iterator[tuple[int, Page | PictureError]]:
    with _open_series(header.path) as series:
        shape = _series_shape(series)
        planar = series.axes.endswith("SYX") and len(shape) == 4
        values = series.asarray()
    stack = (np.moveaxis(values, -3, -1) if planar else values).reshape(shape)
    scale = {"uint8": 255.0, "uint16": 65535.0}.get(stack.dtype.name)
    for page, page_values in enumerate(stack):
        pixels = np.asarray(page_values, dtype=np.float32) / np.float32(scale or 1.0)
        if np.isfinite(pixels).all():
            yield page, Page(resize_array(pixels, frame), needs_scaling=scale is None)
        else:
            yield page, PictureError("contains NaN or infinity")


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
        return "too large: looks like a decompression bomb"
    if isinstance(error, MemoryError):
        return "too large for the memory of this machine"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return f"damaged: {error_text(error)}"
