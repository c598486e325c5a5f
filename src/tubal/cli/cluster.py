"""``tubal cluster``: sort images into clusters and write a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

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

if TYPE_CHECKING:
    from sklearn.utils import Bunch

    from tubal.clustering import ImageClusterer


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
    "--labels",
    metavar="CSV|folders|given",
    help="Known labels to score the clusters against: a CSV file with columns file and label, the names of the "
    "sub-folders, or the labels stored with the images. They do not influence the clusters.",
)
@click.option(
    "--hints",
    metavar="CSV|folders",
    help="What you know about some images, as tubal refine takes it, or the names of the sub-folders. Unlike --labels, "
    "hints decide the clusters of these images, and guide those of all others.",
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
    labels: str | None,
    hints: str | None,
    sort: str | None,
    resume: bool,
    seed: int,
    **image_settings: Unpack[ImageSettings],
) -> None:
    """Sort images into clusters and write a report to explore.

    SOURCE is a folder of pictures (sub-folders included), a zip or tar archive, a multi-page TIFF, or several of
    these; a .npy, .npz, .mat or .h5 file; the name of a collection (see tubal datasets); or - for a list of paths on
    standard input. File names, folders and labels do not influence the clusters, unless they are given as --hints.
    Answers that were given to earlier results in the same place (OUT.hints) are applied again.

    \b
    The results folder holds
      report.html    the report; open it in any browser
      labels.csv     file, cluster, confidence, outlier, near-duplicate of
      features.npz   the features of each image and its position on the map
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
      tubal cluster birds/ --hints known.csv --sort copy     names for some, folders for all
      tubal cluster coil20 -k 20                   a collection by name
      tubal cluster june/ july/ august.zip         several folders and archives
      find . -name '*.jpg' | tubal cluster -       a list of files
      tubal cluster photos/ --resume               continue after Ctrl-C or a crash
    """
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import check_label_file, is_collection, read_images, read_labels
    from tubal.cli.pipeline import (
        Plan,
        check_apart,
        check_sorting,
        checkpoint_beside,
        cluster_images,
        earlier_sorted_folder,
        show_summary,
    )
    from tubal.storage.files import reserve, staged_folder

    terminal = Terminal(state)
    for source in sources:
        check_apart(source, out)
    check_label_file(labels)
    teach = _teacher(out, hints)
    stale = earlier_sorted_folder(out) if force else ()
    # The checkpoint is deleted last, when the results are in place and there is nothing left to resume.
    with (
        reserve(out) as hidden,
        terminal.announce_compiling(),
        checkpoint_beside(out, resume, terminal, state) as checkpoint,
        staged_folder(out, force=force, stale=stale, hidden=hidden) as stage,
    ):
        stack = read_images(terminal, state, sources, image_settings)
        known_labels = read_labels(labels, stack, is_collection=is_collection(sources))
        check_sorting(sort, stack, stage)
        settings = {"labels": labels, "hints": hints, "sort": sort, **image_settings}
        source = sources[0] if len(sources) == 1 else ", ".join(Path(name).name for name in sources)
        plan = Plan(source, clusters, preset, seed, sort, known_labels, settings, out)
        record = cluster_images(plan, stack, stage, terminal, state, checkpoint, teach)
    show_summary(terminal, record, out)


def _teacher(out: Path, hints: str | None) -> Callable[[ImageClusterer, Bunch], object] | None:
    """Return the function that gives a clusterer what is known; None if there are neither hints nor answers."""
    from tubal.cli.pipeline import answers_beside

    if hints is None and not answers_beside(out).exists():
        return None
    from tubal.cli.hints import check_hint_file, teach_known_hints

    check_hint_file(hints)
    return teach_known_hints(out, hints)
