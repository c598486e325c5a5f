"""Collections of small images: the paper's four, digits, synthetic shapes, a folder of pictures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tubal.datasets._fetch import (
        data_folder,
        fetch,
        fetch_coil20,
        fetch_orl,
        fetch_usps,
        fetch_yale,
        load_digits_images,
        locate,
    )
    from tubal.datasets._registry import COLLECTIONS, Collection, find_collection
    from tubal.datasets.folders import load_image_folder
    from tubal.datasets.sources import load_images
    from tubal.datasets.synthetic import make_shifted_shapes

_HOMES = {
    "_fetch": (
        "data_folder",
        "fetch",
        "fetch_coil20",
        "fetch_orl",
        "fetch_usps",
        "fetch_yale",
        "load_digits_images",
        "locate",
    ),
    "_registry": ("COLLECTIONS", "Collection", "find_collection"),
    "folders": ("load_image_folder",),
    "sources": ("load_images",),
    "synthetic": ("make_shifted_shapes",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "COLLECTIONS",
    "Collection",
    "data_folder",
    "fetch",
    "fetch_coil20",
    "fetch_orl",
    "fetch_usps",
    "fetch_yale",
    "find_collection",
    "load_digits_images",
    "load_image_folder",
    "load_images",
    "locate",
    "make_shifted_shapes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
