from .fetchers import (
    COLLECTIONS,
    Collection,
    data_folder,
    fetch,
    fetch_coil20,
    fetch_orl,
    fetch_usps,
    fetch_yale,
    find_collection,
    load_digits_images,
    locate,
)
from .loading import load_image_folder, load_images
from .synthetic import make_shifted_shapes

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
