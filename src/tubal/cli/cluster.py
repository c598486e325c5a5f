"""``tubal cluster``: sort images into clusters and write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from tubal.cli.options import (
    ImageSettings,
    Source,
    State,
    clusters_option,
    force_option,
    learning_options,
    out_option,
)


@click.command()
@click.argument("sources", metavar="SOURCE...", type=Source(), nargs=-1, required=True)
@clusters_option()
@out_option("tubal-out", "Folder for the results.", folder=True)
@force_option()
@click.option(
    "--preset",
    type=click.Choice(["default", "paper"]),
    default="default",
    show_default=True,
    help="'default' finds the best clusters; 'paper' follows the published method.",
)
@click.option(
    "--views",
    metavar="auto|NAME,...",
    default="auto",
    show_default=True,
    help="How to compare images: shape, colour, semantic and layout (both need the extra 'photos'), or several. "
    "'auto' takes all that are available and useful.",
)
@click.option(
    "--labels",
    metavar="CSV|folders|given",
    help="Known labels to score the clusters against: a CSV file with columns file and label, the names of the "
    "sub-folders, or the labels stored with the images. They do not influence the clusters.",
)
@click.option(
    "--sort", type=click.Choice(["copy", "link"]), help="Also copy or link the images into one folder per cluster."
)
@learning_options
@click.pass_obj
def command(
    state: State,
    sources: tuple[str, ...],
    clusters: int | None,
    out: Path,
    force: bool,
    preset: str,
    views: str,
    labels: str | None,
    sort: str | None,
    resume: bool,
    seed: int,
    **image_settings: Unpack[ImageSettings],
) -> None:
    """Sort images into clusters and write a report to explore.

    SOURCE is a folder of pictures (sub-folders included), a zip or tar archive, a multi-page TIFF, or several of
    these; a .npy, .npz, .mat or .h5 file; the name of a collection (see tubal datasets); or - for a list of paths on
    standard input. File names, folders and labels do not influence the clusters.

    \b
    The results folder holds
      report.html    the report; open it in any browser
      labels.csv     file, cluster, confidence, outlier, near-duplicate of
      features.npz   the features of each image and its position on the map
      views.npz      what the network saw in each picture, for the next run with the same --out
      model.tubal    the model, for tubal assign, similar, explain and encode
      run.json       settings, versions, seed, hashes and times
      skipped.csv    files that could not be read, and why

    The folder must lie outside SOURCE. In the CSV files, a name that a spreadsheet could take for a formula begins with
    an apostrophe; --labels removes it again.

    \b
    Examples:
      tubal cluster photos/
      tubal cluster photos/ --clusters 12 --out results --sort link
      tubal cluster scans.tif -k 8 --json > run.json
      tubal cluster birds/ --labels folders        score against the sub-folders
      tubal cluster coil20 -k 20                   a collection by name
      tubal cluster june/ july/ august.zip         several folders and archives
      find . -name '*.jpg' | tubal cluster -       a list of files
      tubal cluster photos/ --resume               continue after Ctrl-C or a crash
    """
    from tubal.cli import inputs, pipeline
    from tubal.cli.console import Terminal
    from tubal.storage.files import reserve, staged_folder

    terminal = Terminal(state)
    for source in sources:
        pipeline.check_apart(source, out)
    inputs.check_label_file(labels)
    network = inputs.NetworkLook(out / "views.npz")
    look = inputs.second_look(network, views, preset)
    stale = pipeline.earlier_sorted_folder(out) if force else ()
    # The checkpoint is deleted last, when the results are in place and there is nothing left to resume.
    with (
        reserve(out) as hidden,
        terminal.announce_compiling(),
        pipeline.checkpoint_beside(out, resume, terminal, state) as checkpoint,
        staged_folder(out, force=force, stale=stale, hidden=hidden) as stage,
    ):
        stack = inputs.read_images(terminal, state, sources, image_settings, look=look)
        known_labels = inputs.read_labels(labels, stack, is_collection=inputs.is_collection(sources))
        pipeline.check_sorting(sort, stack, stage)
        chosen = inputs.choose_views(terminal, views, preset, stack)
        settings = {"labels": labels, "sort": sort, "views": views, **image_settings}
        plan = pipeline.Plan(
            inputs.name_of(sources), clusters, preset, seed, sort, known_labels, settings, out, chosen, network
        )
        record = pipeline.cluster_images(plan, stack, stage, terminal, state, checkpoint)
    pipeline.show_summary(terminal, record, out)
