"""Options that several commands share, and the settings of one run that they fill in.

Only click is imported here, so that ``tubal --help`` stays quick.
"""

from __future__ import annotations

import os
import re
import shlex
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
    "applying_options",
    "clusters_option",
    "count_option",
    "debug_option",
    "force_option",
    "json_option",
    "learning_options",
    "model_option",
    "out_option",
    "run_options",
    "scheduler_option",
]

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass
class State:
    """Settings of one run that are not arguments of its command; click passes it on as the context's object."""

    debug: bool = False
    quiet: bool = False
    json: bool = False
    interrupted: int = 0  # the number of the signal
    device: str = "auto"
    threads: int | None = None
    arguments: tuple[str, ...] = ()

    def command_with(self, *options: str) -> str:
        """Return the command line of this run with more options, ready to be pasted into a shell."""
        kept = [part for part in self.arguments if part != "--resume" or part not in options]
        return shlex.join(["tubal", *kept, *options])


class ImageSettings(TypedDict, total=False):
    """Values of the options that say how images are read.

    They are arguments of :func:`tubal.datasets.load_images`, or None for an option that is not given.
    """

    size: int | tuple[int, int] | None
    colour: str
    fit: str
    crop: str
    value_range: tuple[float, float] | None
    variable: str | None
    image_shape: tuple[int, int] | None
    max_pixels: int


def _store_value(field: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """Return a callback that stores an option's value in the run's state.

    A flag given before the command, as in ``tubal --debug info``, stays set if it is not repeated after the command.
    """

    def store(context: click.Context, _: click.Parameter, value: object) -> None:
        if value:
            setattr(context.ensure_object(State), field, value)

    return store


def _store_threads(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Store the number of threads and limit every numerical library to it."""
    if value is None:
        return
    _store_value("threads")(context, parameter, value)
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
        from tubal.datasets.fetchers import COLLECTIONS

        names = [name for name in ("digits", *COLLECTIONS) if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


# --- one option --------------------------------------------------------------------------------------------------


def count_option(
    *names: str,
    help: str,
    least: int = 1,
    most: int | None = None,
    default: int | None = None,
    show_default: str | bool = True,
    metavar: str = "N",
) -> Callable[[Function], Function]:
    """Return an option that takes a whole number from ``least`` to ``most``."""
    kind = click.IntRange(least, most)
    return click.option(*names, type=kind, default=default, show_default=show_default, metavar=metavar, help=help)


def clusters_option(note: str = "") -> Callable[[Function], Function]:
    """Return the option ``--clusters``; its help says that the number is estimated by default."""
    return count_option("-k", "--clusters", help=f"Number of clusters{note}.", show_default="estimated", metavar="K")


def out_option(
    default: str | None, help: str, *, folder: bool = False, show_default: str | bool = True
) -> Callable[[Function], Function]:
    """Return the option ``--out``: a file, or with ``folder`` a folder."""
    place = click.Path(path_type=Path, dir_okay=folder)
    return click.option("-o", "--out", type=place, default=default, show_default=show_default, help=help)


def force_option(help: str = "Replace what is already at --out.") -> Callable[[Function], Function]:
    """Return the option ``--force``."""
    return click.option("--force", is_flag=True, help=help)


def debug_option() -> click.Option:
    """Return the option ``--debug``, which the group adds to every command."""
    help_text = "Show the full traceback of an error."
    return click.Option(["--debug"], is_flag=True, expose_value=False, callback=_store_value("debug"), help=help_text)


model_option = click.option(
    "-m",
    "--model",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="The model: a .tubal file, or the results folder of tubal cluster.",
)
json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_store_value("json"),
    help="Print the results as JSON on standard output.",
)
_quiet = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_store_value("quiet"), help="Do not show progress."
)
_resume = click.option(
    "--resume", is_flag=True, help="Continue a run of the same command that was interrupted or crashed."
)
_seed = count_option(
    "--seed",
    help="Seed of all random choices. The same seed gives the same result.",
    least=0,
    most=2**32 - 1,
    default=0,
)
_device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=_store_value("device"),
    help="Where to compute. 'auto' uses a GPU if PyTorch finds one.",
)
_threads = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    expose_value=False,
    callback=_store_threads,
    help="Use at most N processor cores.",
    show_default="all",
)
scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS", help="Compute on the Dask cluster with this scheduler, such as tcp://host:8786."
)
_size = click.option(
    "--size",
    type=ImageSize(),
    metavar="N|HxW",
    help="Bring all images to this size: N is the longer side, HxW height and width.",
    show_default="the median size, longer side at most 32, of arrays 64",
)
_colour = click.option(
    "--colour",
    "--color",
    "colour",
    type=click.Choice(["auto", "grey", "rgb"]),
    default="auto",
    show_default=True,
    help="Read in colour or in grey. 'auto' keeps colour if more than half of the images show any.",
)


def _fit_option(default: str | None, show_default: str | bool = True) -> Callable[[Function], Function]:
    return click.option(
        "--fit",
        type=click.Choice(["pad", "crop"]),
        default=default,
        show_default=show_default,
        help="How pictures of another shape fill the frame: 'pad' keeps the whole picture on the colour of its border, "
        "'crop' cuts off what sticks out.",
    )


_crop = click.option(
    "--crop",
    type=click.Choice(["auto", "content", "none"]),
    default="auto",
    show_default=True,
    help="Cut pictures to their content. 'auto' does so where borders have one colour and content is clear; with a "
    "model, it does what was done for the model.",
)
_variable = click.option(
    "--variable", metavar="NAME", help="Which array to read from a .npz, .mat or .h5 file that holds several."
)
_image_shape = click.option(
    "--image-shape",
    type=ImageSize(pair_only=True),
    metavar="HxW",
    help="Height and width of the images in an array that stores one image per row.",
    show_default="square",
)
_max_pixels = count_option(
    "--max-pixels", help="Skip pictures of more pixels, without decoding them.", show_default="80 million"
)


# --- several options, in the order in which help lists them ------------------------------------------------------


def applying_options(command: Function) -> Function:
    """Add the options of a command that applies a model; the model fixes the size and the colour of the images."""
    return _fit_option(None, "as for the model")(_array_options(_threads(_output_options(command))))


def run_options(command: Function) -> Function:
    """Add the options of a command that fits a model, except those that say how images are read."""
    return _seed(_device(_threads(_output_options(command))))


def learning_options(command: Function) -> Function:
    """Add the options of a command that fits a model to images; it can be resumed."""
    return _resume(_size(_colour(_fit_option("pad")(_array_options(run_options(command))))))


def _array_options(command: Function) -> Function:
    return _crop(_variable(_image_shape(_max_pixels(command))))


def _output_options(command: Function) -> Function:
    return json_option(_quiet(command))
