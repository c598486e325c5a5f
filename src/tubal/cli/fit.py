"""``tubal fit``: learn a model from images and keep it in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._reading import SourceType, read_source, reading_options
from tubal.cli._state import State, computing_options, talking_options

METHODS = {
    "clusterer": "ImageClusterer",
    "gtsc": "GTSC",
    "tubsc": "TubSC",
    "graphsc": "GraphSC",
    "sc": "SparseCoding",
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
    help="The whole clusterer, or one of the paper's coders.",
)
@click.option("-k", "--clusters", type=click.IntRange(1), metavar="K", help="Number of clusters (clusterer).")
@click.option("--atoms", type=click.IntRange(1), default=45, metavar="N", help="Number of atoms (coders).  [45]")
@click.option("--sparsity", type=float, default=0.01, metavar="X", help="Weight of the L1 norm (coders).  [0.01]")
@click.option("--graph-weight", type=float, default=1.0, metavar="X", help="Weight of the graph.  [1]")
@click.option("--neighbors", type=click.IntRange(1), default=3, metavar="N", help="Neighbours of an image.  [3]")
@click.option("--graph", type=click.Choice(["euclidean", "deformable"]), default="euclidean")
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
    clusters: int | None,
    seed: int,
    atoms: int,
    sparsity: float,
    graph_weight: float,
    neighbors: int,
    graph: str,
    **reading: Any,
) -> None:
    """Learn a model from images and keep it in one file.

    \b
    Examples:
      tubal fit photos/ --clusters 12 --out photos.tubal
      tubal fit digits --method gtsc --atoms 45 --graph deformable --out digits.tubal
      tubal encode more-photos/ --model photos.tubal
    """
    import tubal
    from tubal._backend import to_device
    from tubal.cli._models import check_place, name_images
    from tubal.cli._pipeline import check_n_clusters, fit_with_progress
    from tubal.cli._talk import Talk

    talk = Talk(state)
    check_place(out, force)
    stack = read_source(talk, state, source, reading)
    check_n_clusters(clusters, len(stack.images))
    coding: dict[str, Any] = {"n_atoms": atoms, "sparsity": sparsity}
    if method in ("gtsc", "graphsc"):
        coding |= {"graph_weight": graph_weight, "n_neighbors": neighbors, "graph": graph}
    if method == "clusterer":
        coding = {"n_clusters": clusters}
    model = getattr(tubal, METHODS[method])(**coding, random_state=seed)
    with talk.stage(f"fitting {METHODS[method]}") as bar:
        fit_with_progress(model, to_device(stack.images, state.device), bar)
    if method == "clusterer":
        name_images(model, stack.names)
    with talk.stage("writing the model"):
        tubal.save(model, out)
    talk.say(f"{METHODS[method]} of {len(stack.images)} images written to {out}")
    talk.data({"model": str(out), "method": METHODS[method], "images": len(stack.images), "rule": stack.rule})
