"""Reading one picture file: its header, and its pages brought to a common frame.

Everything that can be wrong with a file ends as one :class:`PictureError` whose text is the reason; file
contents are never trusted. Only the formats named here are tried, so that no other decoder is reached
through a renamed file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

__all__ = [
    "SUFFIXES",
    "Frame",
    "Header",
    "Page",
    "PictureError",
    "fit_array",
    "quiet_decoders",
    "read_header",
    "read_pages",
]

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "DIB", "PPM", "WEBP", "TIFF")
TIFF_SUFFIXES = frozenset({".tif", ".tiff"})
SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".bmp", ".dib", ".webp"}
    | {".pgm", ".ppm", ".pbm", ".pnm"}
    | TIFF_SUFFIXES
)
GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"})
ORIENTATION_TAG = 274
MAX_PAGES = 100_000
LARGE = 16_000_000
# Two huge pictures decoded side by side would double the memory needed; small ones run in parallel.
_one_large_picture = threading.Semaphore(1)

# Both libraries log what is odd about damaged files; the reason is reported once, by us.
for _library in ("tifffile", "PIL.TiffImagePlugin"):
    logging.getLogger(_library).addHandler(logging.NullHandler())


@contextlib.contextmanager
def quiet_decoders() -> Iterator[None]:
    """Hush what decoders warn of in damaged or large files; whoever reads them reports a reason instead.

    Entered once around a whole reading, from the thread that starts it: filters belong to the process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


class PictureError(ValueError):
    """A picture that cannot be used; the message is the reason in a few words."""


@dataclass(frozen=True)
class Header:
    """What is known of a file before its pixels are decoded: the upright ``(height, width)`` of each page."""

    path: Path
    sizes: tuple[tuple[int, int], ...]
    colour: bool
    reader: str = "pillow"


@dataclass(frozen=True)
class Frame:
    """The common shape all pictures are brought to; ``fit`` is ``"pad"`` or ``"crop"``."""

    height: int
    width: int
    colour: bool
    fit: str = "pad"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one picture as an array."""
        return (self.height, self.width, 3) if self.colour else (self.height, self.width)


@dataclass(frozen=True)
class Page:
    """One decoded page; ``measured`` marks values whose full scale only the whole collection can tell."""

    pixels: np.ndarray
    measured: bool


def read_header(path: Path, *, max_pixels: int) -> Header:
    """Return sizes and colour of a picture, refusing what is empty, special, unknown or too large."""
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
        return _prefer_series(header, max_pixels)
    except UnidentifiedImageError:
        if path.suffix.lower() in TIFF_SUFFIXES:
            return _series_header(path, max_pixels)
        raise PictureError("not a picture in a known format") from None
    except PictureError:
        raise
    except Exception as error:  # a hostile file may raise anything inside a decoder
        raise PictureError(_reason(error)) from error


def read_pages(header: Header, frame: Frame) -> Iterator[tuple[int, Page | PictureError]]:
    """Yield ``(page number, page brought to the frame)``, or the reason in place of a damaged page."""
    large = max(height * width for height, width in header.sizes) > LARGE
    if large:
        _one_large_picture.acquire()
    try:
        reader = _read_series if header.reader == "tifffile" else _read_with_pillow
        yield from reader(header, frame)
    except Exception as error:  # the file itself cannot be opened any more
        for page in range(len(header.sizes)):
            yield page, PictureError(_reason(error))
    finally:
        if large:
            _one_large_picture.release()


def fit_array(pixels: np.ndarray, frame: Frame) -> np.ndarray:
    """Bring a float array ``(h, w)`` or ``(h, w, 3)`` to the frame, keeping its range of values."""
    if pixels.ndim == 3 and not frame.colour:
        pixels = pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    if pixels.shape[:2] != (frame.height, frame.width):
        planes = pixels[..., None] if pixels.ndim == 2 else pixels
        fitted = [
            np.asarray(_fit(Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32)), frame))
            for plane in np.moveaxis(planes, -1, 0)
        ]
        pixels = fitted[0] if pixels.ndim == 2 else np.stack(fitted, axis=-1)
        pixels = _pad_edges(pixels, frame)
    if frame.colour and pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    return np.ascontiguousarray(pixels, dtype=np.float32)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Image.Image]:
    # By stream, not by name: Pillow 13 maps an uncompressed TIFF by its turned size and garbles it.
    with open(path, "rb") as stream, Image.open(stream, formats=FORMATS) as image:
        yield image


def _read_with_pillow(header: Header, frame: Frame) -> Iterator[tuple[int, Page | PictureError]]:
    with _open(header.path) as image:
        for page in range(len(header.sizes)):
            try:
                if page:
                    image.seek(page)
                # JPEG can decode straight to a half, a quarter or an eighth of its size.
                longest = 2 * max(frame.height, frame.width)
                image.draft(None, (longest, longest))
                yield page, _decode(image, frame)
            except Exception as error:
                yield page, PictureError(_reason(error))


def _decode(image: Image.Image, frame: Frame) -> Page:
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I") or upright.mode == "F":
        return _decode_deep(upright, frame)
    plain = _without_alpha(upright).convert("RGB" if frame.colour else "L")
    pixels = _pad_edges(np.asarray(_fit(plain, frame)), frame)
    return Page(pixels.astype(np.float32) / np.float32(255.0), measured=False)


def _decode_deep(image: Image.Image, frame: Frame) -> Page:
    values = np.asarray(image).astype(np.float32)
    if not np.isfinite(values).all():
        raise PictureError("holds values that are not finite")
    # Pillow keeps 16-bit PGM and PNG in 32-bit integers, already on the scale of 16 bits.
    known = image.mode.startswith("I;16") or getattr(image, "format", None) in ("PPM", "PNG")
    if known:
        values /= np.float32(65535.0)
    return Page(fit_array(values, frame), measured=not known)


def _without_alpha(image: Image.Image) -> Image.Image:
    """Lay a transparent picture on white, as a browser would; palettes become colours first."""
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif "transparency" in image.info and image.mode in ("1", "L", "RGB"):
        image = image.convert("RGBA")
    if image.mode not in ("LA", "La", "PA", "RGBA", "RGBa"):
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _fit(image: Image.Image, frame: Frame) -> Image.Image:
    """Scale to lie inside the frame (pad) or to cover it and cut the middle out (crop)."""
    width, height = image.size
    if (height, width) == (frame.height, frame.width):
        return image
    # A gap lets Pillow shrink very large pictures in two steps; float planes do not support it.
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


def _pad_edges(pixels: np.ndarray, frame: Frame) -> np.ndarray:
    """Continue the border pixels to the frame: a flat margin would draw an edge that is not there."""
    missing = (frame.height - pixels.shape[0], frame.width - pixels.shape[1])
    if missing == (0, 0):
        return pixels
    margins = [(extra // 2, extra - extra // 2) for extra in missing] + [(0, 0)] * (pixels.ndim - 2)
    return np.pad(pixels, margins, mode="edge")


def _upright_size(image: Image.Image, page: int, max_pixels: int) -> tuple[int, int]:
    if page:
        image.seek(page)
    width, height = image.size
    _refuse_large(width * height, max_pixels)
    # Pillow turns TIFF pages itself, and tells their upright size from the start.
    turned = image.format != "TIFF" and image.getexif().get(ORIENTATION_TAG, 1) in (5, 6, 7, 8)
    return (width, height) if turned else (height, width)


def _refuse_large(pixels: int, max_pixels: int) -> None:
    if pixels > max_pixels:
        raise PictureError(f"too large: {pixels} pixels, the limit is {max_pixels} (max_pixels)")


def _prefer_series(header: Header, max_pixels: int) -> Header:
    """Use tifffile for an ImageJ stack, whose pages after the first have no header of their own."""
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
    shape = _series(path, pixels=False, max_pixels=max_pixels)
    return Header(path, (shape[1:3],) * shape[0], len(shape) == 4, reader="tifffile")


def _read_series(header: Header, frame: Frame) -> Iterator[tuple[int, Page | PictureError]]:
    stack = _series(header.path, pixels=True, max_pixels=0)
    scale = {"uint8": 255.0, "uint16": 65535.0}.get(stack.dtype.name)
    for page, values in enumerate(stack):
        pixels = np.asarray(values, dtype=np.float32) / np.float32(scale or 1.0)
        if np.isfinite(pixels).all():
            yield page, Page(fit_array(pixels, frame), measured=scale is None)
        else:
            yield page, PictureError("holds values that are not finite")


def _series(path: Path, *, pixels: bool, max_pixels: int) -> Any:
    """Return shape or values of the first series of a TIFF as ``(pages, height, width[, 3])``."""
    try:
        import tifffile
    except ImportError:
        raise PictureError("this kind of TIFF needs tifffile: pip install 'tubal[io]'") from None
    try:
        with tifffile.TiffFile(path) as file:
            series = file.series[0]
            shape = _series_shape(series)
            if not pixels:
                _refuse_large(shape[1] * shape[2], max_pixels)
                if not 0 < shape[0] <= MAX_PAGES:
                    raise PictureError(f"a TIFF of {shape[0]} pages; at most {MAX_PAGES} are read")
                return shape
            planar = series.axes.endswith("SYX") and len(shape) == 4
            values = series.asarray()
            return (np.moveaxis(values, -3, -1) if planar else values).reshape(shape)
    except PictureError:
        raise
    except Exception as error:
        raise PictureError(_reason(error)) from error


def _series_shape(series: Any) -> tuple[int, ...]:
    """Return ``(pages, height, width[, 3])`` of a series whose colour channels lie first or last."""
    axes, shape = series.axes, tuple(series.shape)
    if axes.endswith("SYX") and shape[-3] == 3:
        axes, shape = axes[:-3] + "YXS", (*shape[:-3], *shape[-2:], 3)
    colour = axes.endswith("YXS") and shape[-1] == 3
    keep = 3 if colour else 2
    if len(shape) < keep or ("S" in axes and not colour) or series.dtype.kind not in "buif":
        raise PictureError(f"a TIFF of axes {axes or '(none)'} and type {series.dtype} is not understood")
    return (int(np.prod(shape[:-keep], dtype=np.int64)), *shape[-keep:])


def _reason(error: Exception) -> str:
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
    text = " ".join(str(error).split())[:160]
    return f"damaged: {text or type(error).__name__}"
