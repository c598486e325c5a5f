"""``tubal fit``: learn a model from images and save it in one file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from tubal.cli.options import (
    ImageSettings,
    ImageSize,
    Source,
    State,
    clusters_option,
    count_option,
    force_option,
    learning_options,
    out_option,
    scheduler_option,
)

if TYPE_CHECKING:
    import numpy as np
    from distributed import Client
    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator

    from tubal.checkpoints import Checkpoint

METHODS = {
    "clusterer": "ImageClusterer",
    "gtsc": "GTSC",
    "tubsc": "TubSC",
    "graphsc": "GraphSC",
    "sc": "SparseCoding",
    "tensr": "TenSR",
    "csc": "CSC",
}
# Options that set a parameter of the estimator. An option that is not given leaves the estimator's own default.
PARAMETERS = {
    "clusters": "n_clusters",
    "atoms": "n_atoms",
    "filter-size": "filter_shape",
    "sparsity": "sparsity",
    "graph-weight": "graph_weight",
    "neighbors": "n_neighbors",
    "graph": "graph",
}


@click.command()
@click.argument("source", type=Source())
@out_option("model.tubal", "File for the model.")
@force_option()
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="clusterer",
    show_default=True,
    help="What to fit: 'clusterer' finds clusters, the others only learn sparse codes.",
)
@clusters_option("; only for clusterer")
@click.option(
    "--atoms",
    type=ImageSize(),
    metavar="N|RxC",
    help="Number of atoms to learn; for tensr in rows and columns, such as 8x8.",
    show_default="45; tensr: 16x16",
)
@click.option(
    "--filter-size",
    type=ImageSize(pair_only=True),
    metavar="HxW",
    help="Height and width of a filter; only for csc.",
    show_default="8x8",
)
@click.option(
    "--sparsity",
    type=float,
    metavar="X",
    help="Weight of the L1 norm: a larger weight gives codes with fewer terms.",
    show_default="0.1; clusterer: 0.003",
)
@click.option(
    "--graph-weight",
    type=float,
    metavar="X",
    help="Weight of the graph term: a larger weight makes the codes of neighbours more alike.",
    show_default="1; clusterer: 10; tensr and csc: 0",
)
@count_option("--neighbors", help="Number of neighbours of an image in the graph.", show_default="3; clusterer: 5")
@click.option(
    "--graph",
    type=click.Choice(["euclidean", "cosine", "deformable"]),
    help="Distance that defines the neighbours; 'deformable' tolerates small shifts, rotations and scalings.",
    show_default="euclidean; clusterer: deformable",
)
@scheduler_option
@learning_options
@click.pass_obj
def fit(
    state: State,
    source: str,
    out: Path,
    force: bool,
    method: str,
    clusters: int | None,
    atoms: int | tuple[int, int] | None,
    filter_size: tuple[int, int] | None,
    sparsity: float | None,
    graph_weight: float | None,
    neighbors: int | None,
    graph: str | None,
    scheduler: str | None,
    resume: bool,
    seed: int,
    **image_settings: Unpack[ImageSettings],
) -> None:
    """Learn a model from images and save it in one file.

    \b
    SOURCE is what tubal cluster reads. The methods are
      clusterer   clusters, and the sparse codes behind them
      gtsc        shift-aware sparse codes, similar for images that look alike (the paper's method)
      tubsc       the same without the graph
      sc          sparse codes of whole images, not shift-aware
      graphsc     the same with the graph
      tensr       codes over separable atoms
      csc         codes over small filters that move in both directions

    \b
    Examples:
      tubal fit photos/ --clusters 12 --out photos.tubal
      tubal fit digits --method gtsc --atoms 45 --graph deformable --out digits.tubal
      tubal fit digits --method tensr --atoms 8x8 --out tensr.tubal
      tubal fit scans.h5 --method tubsc --scheduler tcp://10.0.0.5:8786
      tubal encode more-photos/ --model photos.tubal
    """
    from tubal.cli import pipeline
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import read_images
    from tubal.storage.files import reserve
    from tubal.text import count

    terminal = Terminal(state)
    pipeline.check_scheduler(scheduler, state)
    given = (clusters, atoms, filter_size, sparsity, graph_weight, neighbors, graph)
    parameters = dict(zip(PARAMETERS, given, strict=True))
    model = _build(method, parameters, seed)
    pipeline.check_output_file(out, force=force, source=source)
    with (
        reserve(out),
        terminal.announce_compiling(),
        pipeline.checkpoint_beside(out, resume, terminal, state) as (checkpoint, kept),
        pipeline.connected(scheduler, state) as client,
    ):
        stack = read_images(terminal, state, source, image_settings, kept=kept)
        with terminal.stage(f"fitting {METHODS[method]}") as bar:
            if client is None or method == "clusterer":
                pipeline.fit_clusterer(model, stack.images, bar, state, checkpoint, client)
            else:
                pipeline.fit_with_progress(model, bar, _cluster_call(model, stack.images, client, checkpoint))
        with terminal.stage("writing the model"):
            pipeline.save_model(model, stack, out, force=force)
    terminal.print_line(f"fitted {METHODS[method]} to {count(len(stack.images), 'image')}; the model is in {out}")
    terminal.print_json({"model": str(out), "method": METHODS[method], "images": len(stack.images), "rule": stack.rule})


def _build(method: str, options: Mapping[str, object], seed: int) -> BaseEstimator:
    """Return the estimator, or raise an error that names an option it does not have."""
    import tubal

    kind = getattr(tubal, METHODS[method])
    known = inspect.signature(kind).parameters
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if PARAMETERS[name] not in known:
            raise click.UsageError(f"--{name} does not apply to --method {method}; leave it out.")
    if "atoms" in given and isinstance(given["atoms"], tuple) != (method == "tensr"):
        wanted = "rows x columns such as 8x8" if method == "tensr" else "one number such as 45"
        raise click.UsageError(f"--atoms must be {wanted} with --method {method}.")
    return kind(**{PARAMETERS[name]: value for name, value in given.items()}, random_state=seed)


def _cluster_call(
    model: BaseEstimator, images: NDArray[np.float32], client: Client, checkpoint: Checkpoint
) -> Callable[[], object]:
    """Return the call that fits the model on a cluster."""
    from tubal import distributed

    return lambda: distributed.fit(model, images, client, checkpoint=checkpoint)
