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
    make_shifted_shapes,
)
from .loading import load_image_folder, load_images

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
