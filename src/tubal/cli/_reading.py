"""Options that say how images are read, shared by every command that takes a SOURCE."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tubal.cli._state import State

__all__ = [
    "Reading",
    "SizeType",
    "SourceType",
    "is_collection",
    "read_for_model",
    "read_source",
    "reading_options",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Reading = dict[str, Any]
OPTIONS = ("size", "colour", "fit", "variable", "image_shape", "max_pixels")


class SizeType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """``64`` (the longer side) or ``48x64`` (height x width)."""

    name = "size"

    def __init__(self, *, pair_only: bool = False) -> None:
        self._pair_only = pair_only

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an int or a pair of ints."""
        if not isinstance(value, str):
            return value
        pair = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", value.strip())
        if pair and int(pair[1]) and int(pair[2]):
            return int(pair[1]), int(pair[2])
        if value.strip().isdigit() and 0 < int(value) < 100_000 and not self._pair_only:
            return int(value)
        wanted = "height x width such as 48x64" if self._pair_only else "64, or height x width such as 48x64"
        return self.fail(f"{value!r} is not {wanted}.", param, ctx)


class SourceType(click.ParamType):  # type: ignore[type-arg]
    """A path or the name of a collection; shells complete both."""

    name = "source"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the collections' names, and leave files to the shell."""
        from tubal.datasets.registry import COLLECTIONS

        names = [name for name in ("digits", *COLLECTIONS) if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def reading_options(function: Function) -> Function:
    """Add the options of :func:`tubal.datasets.load_images`; they arrive as keyword arguments."""
    for option in reversed(_options()):
        function = option(function)
    return function


def _options() -> list[Callable[[Any], Any]]:
    return [
        click.option("--size", type=SizeType(), metavar="N|HxW", help="Longer side, or height x width."),
        click.option(
            "--colour",
            "--color",
            type=click.Choice(["auto", "grey", "rgb"]),
            default="auto",
            help="Colour is kept when most images have it.",
        ),
        click.option(
            "--fit",
            type=click.Choice(["pad", "crop"]),
            default="pad",
            show_default=True,
            help="Keep images whole and continue their borders, or fill the frame and cut.",
        ),
        click.option("--variable", metavar="NAME", help="Which array of a .npz, .mat or .h5 file."),
        click.option(
            "--image-shape",
            type=SizeType(pair_only=True),
            metavar="HxW",
            help="Shape of images kept as rows.",
        ),
        click.option(
            "--max-pixels",
            type=click.IntRange(1),
            default=80_000_000,
            metavar="N",
            help="Skip larger pictures unread.",
        ),
    ]


def is_collection(source: str) -> bool:
    """Tell whether SOURCE names a collection rather than something on the disk."""
    return not Path(source).exists()


def read_source(talk: Any, state: State, source: str, reading: Reading, *, exclude: tuple[Path, ...] = ()) -> Any:
    """Read SOURCE with a progress bar and say by which rule."""
    with talk.stage("reading images") as bar:
        from tubal.datasets import load_images

        stack = load_images(source, **reading, exclude=exclude, n_threads=state.threads, progress=bar)
    talk.say(stack.rule)
    if stack.skipped:
        name, reason = stack.skipped[0]
        more = f" and {len(stack.skipped) - 1} more" if len(stack.skipped) > 1 else ""
        talk.say(f"skipped {name!r} ({reason}){more}")
    return stack


def read_for_model(talk: Any, state: State, source: str, reading: Reading, image_shape: tuple[int, ...]) -> Any:
    """Read SOURCE in the shape a model was made for; ``--size`` and ``--colour`` do not apply there."""
    shaped = {**reading, "size": tuple(image_shape[:2]), "colour": "rgb" if len(image_shape) == 3 else "grey"}
    return read_source(talk, state, source, shaped)
