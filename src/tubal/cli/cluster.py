"""``tubal cluster``: a folder of images in, clusters and an explorer out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._checkpoint import resume_option
from tubal.cli._reading import SourceType, is_collection, read_source, reading_options
from tubal.cli._state import State, computing_options, talking_options


@click.command()
@click.argument("source", type=SourceType())
@click.option(
    "-k",
    "--clusters",
    type=click.IntRange(1),
    metavar="K",
    help="Number of clusters; estimated when left out.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("tubal-out"),
    show_default=True,
    help="Folder for the results.",
)
@click.option("--force", is_flag=True, help="Replace results that are already there.")
@click.option(
    "--preset",
    type=click.Choice(["default", "paper"]),
    default="default",
    help="Our best, or the paper's method.",
)
@click.option("--labels", metavar="CSV|folders|given", help="Known labels, only to score the clusters with.")
@click.option("--sort", type=click.Choice(["copy", "link"]), help="Also put images into one folder per cluster.")
@resume_option
@reading_options
@computing_options
@talking_options
@click.pass_obj
def command(
    state: State,
    /,
    source: str,
    clusters: int | None,
    out: Path,
    force: bool,
    preset: str,
    labels: str | None,
    sort: str | None,
    resume: bool,
    seed: int,
    **reading: Any,
) -> None:
    """Sort images into clusters and write a report to explore.

    SOURCE is a folder of pictures (read with its sub-folders), a .npy, .npz, .mat or .h5 stack, a multi-page
    TIFF, or the name of a collection. Nothing is learnt from names, folders or labels.

    \b
    The results folder holds
      report.html    open it in any browser
      labels.csv     file, cluster, confidence, outlier, near-duplicate of
      features.npz   features and map positions
      model.tubal    for tubal assign, similar, explain, encode
      run.json       settings, versions, seeds, hashes, times
      skipped.csv    files that could not be read, and why

    \b
    Examples:
      tubal cluster photos/
      tubal cluster photos/ --clusters 12 --out results --sort link
      tubal cluster scans.tif -k 8 --json > run.json
      tubal cluster birds/ --labels folders        score against sub-folders
      tubal cluster coil20 -k 20
      tubal cluster huge/ --resume                 go on after Ctrl-C or a crash
    """
    from tubal.cli._checkpoint import checkpointed
    from tubal.cli._pipeline import Plan, cluster_images, show_summary
    from tubal.cli._results import sorted_earlier
    from tubal.cli._talk import Talk
    from tubal.cli._truth import read_truth
    from tubal.storage.files import staged_folder

    talk = Talk(state)
    stale = sorted_earlier(out) if force else ()
    # The checkpoint goes last: only once the results have their names is nothing left to take up.
    with checkpointed(out, resume, talk) as checkpoint, staged_folder(out, force=force, stale=stale) as stage:
        stack = read_source(talk, state, source, reading, exclude=(out,))
        truth = read_truth(labels, stack, is_collection=is_collection(source))
        plan = Plan(source, clusters, preset, seed, sort, truth, settings={"labels": labels, "sort": sort, **reading})
        record = cluster_images(plan, stack, stage, talk, state, checkpoint)
    show_summary(talk, record, out)
