"""``tubal fit``: learn a model from images and keep it in one file."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from tubal.cli._checkpoint import resume_option
from tubal.cli._reading import SizeType, SourceType, read_source, reading_options
from tubal.cli._state import State, computing_options, talking_options

METHODS = {
    "clusterer": "ImageClusterer",
    "gtsc": "GTSC",
    "tubsc": "TubSC",
    "graphsc": "GraphSC",
    "sc": "SparseCoding",
    "tensr": "TenSR",
    "csc": "CSC",
}
# Options that are parameters of an estimator: which one. What is not given is left to the estimator.
PARAMETERS = {
    "clusters": "n_clusters",
    "atoms": "n_atoms",
    "filter_size": "filter_shape",
    "sparsity": "sparsity",
    "graph_weight": "graph_weight",
    "neighbors": "n_neighbors",
    "graph": "graph",
}


@click.command()
@click.argument("source", type=SourceType())
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("model.tubal"),
    show_default=True,
    help="File for the model.",
)
@click.option("--force", is_flag=True, help="Replace a model that is already there.")
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="clusterer",
    show_default=True,
    help="The whole clusterer, or one of the coders.",
)
@click.option("-k", "--clusters", type=click.IntRange(1), metavar="K", help="Number of clusters (clusterer).")
@click.option("--atoms", type=SizeType(), metavar="N|RxC", help="Number of atoms; rows x columns for tensr.  [45]")
@click.option("--filter-size", type=SizeType(pair_only=True), metavar="HxW", help="Size of a filter (csc).  [8x8]")
@click.option("--sparsity", type=float, metavar="X", help="Weight of the L1 norm.  [0.01]")
@click.option("--graph-weight", type=float, metavar="X", help="Weight of the graph.  [1; tensr, csc: 0]")
@click.option("--neighbors", type=click.IntRange(1), metavar="N", help="Neighbours of an image.  [3]")
@click.option("--graph", type=click.Choice(["euclidean", "cosine", "deformable"]), help="Who is a neighbour.")
@click.option("--scheduler", metavar="ADDRESS", help="Fit a coder on the Dask cluster at this address.")
@resume_option
@reading_options
@computing_options
@talking_options
@click.pass_obj
def command(
    state: State,
    /,
    source: str,
    out: Path,
    force: bool,
    method: str,
    scheduler: str | None,
    resume: bool,
    seed: int,
    **options: Any,
) -> None:
    """Learn a model from images and keep it in one file.

    \b
    Examples:
      tubal fit photos/ --clusters 12 --out photos.tubal
      tubal fit digits --method gtsc --atoms 45 --graph deformable --out digits.tubal
      tubal fit digits --method tensr --atoms 8x8 --out tensr.tubal
      tubal fit scans.h5 --method tubsc --scheduler tcp://10.0.0.5:8786
      tubal encode more-photos/ --model photos.tubal
    """
    import tubal
    from tubal.cli._checkpoint import checkpointed
    from tubal.cli._models import check_place, name_images
    from tubal.cli._pipeline import check_n_clusters, fit_with_progress
    from tubal.cli._talk import Talk

    talk = Talk(state)
    model = _build(method, {name: options.pop(name) for name in PARAMETERS}, seed, scheduler)
    check_place(out, force)
    with _cluster(scheduler) as client:
        stack = read_source(talk, state, source, options)
        check_n_clusters(getattr(model, "n_clusters", None), len(stack.images))
        with checkpointed(out, resume, talk) as checkpoint:
            with talk.stage(f"fitting {METHODS[method]}") as bar:
                fit_with_progress(model, bar, _fitting(model, stack.images, state, client, checkpoint))
            if method == "clusterer":
                name_images(model, stack.names)
            with talk.stage("writing the model"):
                tubal.save(model, out)
    talk.say(f"{METHODS[method]} of {len(stack.images)} images written to {out}")
    talk.data({"model": str(out), "method": METHODS[method], "images": len(stack.images), "rule": stack.rule})


def _build(method: str, given: dict[str, Any], seed: int, scheduler: str | None) -> Any:
    """Return the estimator asked for, refusing options it does not know."""
    import tubal

    kind = getattr(tubal, METHODS[method])
    known = inspect.signature(kind).parameters
    settings = {PARAMETERS[name]: (name, value) for name, value in given.items() if value is not None}
    for parameter, (name, _) in settings.items():
        if parameter not in known:
            raise click.UsageError(f"--{name.replace('_', '-')} means nothing to --method {method}; leave it out.")
    if "n_atoms" in settings and isinstance(settings["n_atoms"][1], tuple) != (method == "tensr"):
        wanted = "rows x columns such as 8x8" if method == "tensr" else "one number such as 45"
        raise click.UsageError(f"--atoms of --method {method} must be {wanted}.")
    if scheduler is not None and method == "clusterer":
        raise click.UsageError("--scheduler fits coders, not the clusterer; add --method gtsc, for example.")
    return kind(**{name: value for name, (_, value) in settings.items()}, random_state=seed)


@contextlib.contextmanager
def _cluster(scheduler: str | None) -> Iterator[Any]:
    """Yield a client of the cluster, or None; before any work is done that would be lost without one."""
    if scheduler is None:
        yield None
        return
    from tubal import distributed

    with distributed.connect(scheduler) as client:
        yield client


def _fitting(model: Any, images: Any, state: State, client: Any, checkpoint: Any) -> Callable[[], Any]:
    """Return what fits the model: here, or on a cluster."""
    if client is not None:
        from tubal import distributed

        return lambda: distributed.fit(model, images, client, checkpoint=checkpoint)
    from tubal.backends.arrays import to_device

    placed = to_device(images, state.device)
    return lambda: model.fit(placed, checkpoint=checkpoint)
