"""Options that several commands share, and the settings of one run that they fill in.

Only click is imported here, so that ``tubal --help`` stays quick.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, TypeVar

import click
from click.shell_completion import CompletionItem

__all__ = [
    "ImageSettings",
    "ImageSize",
    "Source",
    "State",
    "array_options",
    "debug_option",
    "device_option",
    "force_option",
    "image_options",
    "json_option",
    "model_option",
    "output_options",
    "resume_option",
    "seed_option",
    "threads_option",
]

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass
class State:
    """Settings of one run that are not arguments of its command; click passes it on as the context's object."""

    debug: bool = False
    quiet: bool = False
    json: bool = False
    interrupted: bool = False
    device: str = "auto"
    threads: int | None = None


class ImageSettings(TypedDict, total=False):
    """Values of the options that :func:`image_options` and :func:`array_options` add.

    They are arguments of :func:`tubal.datasets.load_images`, or None for an option that is not given.
    """

    size: int | tuple[int, int] | None
    colour: str
    fit: str
    crop: str
    variable: str | None
    image_shape: tuple[int, int] | None
    max_pixels: int


def _store(field: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """Return a callback that stores an option's value in the run's state.

    A flag given before the command, as in ``tubal --debug info``, is not reset by its absence after it.
    """

    def store(context: click.Context, _: click.Parameter, value: object) -> None:
        if value:
            setattr(context.ensure_object(State), field, value)

    return store


def _store_threads(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Store the number of threads and hold every numerical library to it."""
    if value is None:
        return
    _store("threads")(context, parameter, value)
    if "numpy" not in sys.modules:
        for library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
            os.environ[f"{library}_NUM_THREADS"] = str(value)
        return
    from threadpoolctl import threadpool_limits

    threadpool_limits(value)
    if "numba" in sys.modules:
        import numba

        numba.set_num_threads(min(value, numba.config.NUMBA_NUM_THREADS))


class ImageSize(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """A size in pixels: ``64`` (the longer side) or ``48x64`` (height x width)."""

    name = "size"

    def __init__(self, *, pair_only: bool = False) -> None:
        self._pair_only = pair_only

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, int]:
        """Return one side or ``(height, width)``."""
        if isinstance(value, (int, tuple)):
            return value
        text = str(value).strip()
        pair = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", text)
        if pair and int(pair[1]) and int(pair[2]):
            return int(pair[1]), int(pair[2])
        if text.isdecimal() and 0 < int(text) < 100_000 and not self._pair_only:
            return int(text)
        wanted = "height x width such as 48x64" if self._pair_only else "64, or height x width such as 48x64"
        return self.fail(f"{text!r} is not {wanted}.", param, ctx)


class Source(click.ParamType):  # type: ignore[type-arg]
    """A path, or the name of a collection; shells complete both."""

    name = "source"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, which must not be empty: an unset shell variable must not mean the current folder."""
        text = str(value)
        return text or self.fail("it is empty; give a path or the name of a collection.", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the names of the collections, and let the shell complete files."""
        from tubal.datasets.registry import COLLECTIONS

        names = [name for name in ("digits", *COLLECTIONS) if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def debug_option() -> click.Option:
    """Return the option ``--debug``, which the group adds to every command."""
    help_text = "Show the full traceback of an error."
    return click.Option(["--debug"], is_flag=True, expose_value=False, callback=_store("debug"), help=help_text)


json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_store("json"),
    help="Print the results as JSON on standard output.",
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_store("quiet"), help="Do not show progress."
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of all random choices. The same seed gives the same result.",
)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=_store("device"),
    help="Where to compute. 'auto' uses a GPU if PyTorch finds one.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    expose_value=False,
    callback=_store_threads,
    help="Use at most N processor cores.",
    show_default="all",
)
resume_option = click.option(
    "--resume", is_flag=True, help="Continue a run of the same command that was interrupted or crashed."
)
force_option = click.option("--force", is_flag=True, help="Replace what is already at --out.")
model_option = click.option(
    "-m",
    "--model",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="The model: a .tubal file, or the results folder of tubal cluster.",
)


def output_options(command: Function) -> Function:
    """Add ``--json`` and ``--quiet``."""
    return json_option(quiet_option(command))


def image_options(command: Function) -> Function:
    """Add the options that say how images are read; they arrive as :class:`ImageSettings`."""
    size = click.option(
        "--size",
        type=ImageSize(),
        metavar="N|HxW",
        help="Bring all images to this size: N is the longer side, HxW height and width.",
        show_default="the median size, longer side at most 64",
    )
    colour = click.option(
        "--colour",
        "--color",
        "colour",
        type=click.Choice(["auto", "grey", "rgb"]),
        default="auto",
        show_default=True,
        help="Read in colour or in grey. 'auto' keeps colour if more than half of the images show any.",
    )
    return size(colour(array_options(command)))


def array_options(command: Function) -> Function:
    """Add the image options that also apply where a model fixes the size and the colour of the images."""
    options = [
        click.option(
            "--fit",
            type=click.Choice(["pad", "crop"]),
            default="pad",
            show_default=True,
            help="How pictures of another shape fill the frame: 'pad' keeps the whole picture on the colour of its "
            "border, 'crop' cuts off what sticks out.",
        ),
        click.option(
            "--crop",
            type=click.Choice(["auto", "content", "none"]),
            default="auto",
            show_default=True,
            help="Cut pictures to their content. 'auto' does so where borders have one colour and content is clear; "
            "with a model, it does what was done for the model.",
        ),
        click.option(
            "--variable", metavar="NAME", help="Which array to read from a .npz, .mat or .h5 file that holds several."
        ),
        click.option(
            "--image-shape",
            type=ImageSize(pair_only=True),
            metavar="HxW",
            help="Height and width of the images in an array that stores one image per row.",
            show_default="square",
        ),
        click.option(
            "--max-pixels",
            type=click.IntRange(1),
            metavar="N",
            help="Skip pictures of more pixels, without decoding them.",
            show_default="80 million",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
