"""``tubal cluster``: sort images into clusters and write a report. ``tubal demo``: the same on handwritten digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from tubal.cli.options import (
    ImageSettings,
    Source,
    State,
    clusters_option,
    force_option,
    learning_options,
    out_option,
    run_options,
    scheduler_option,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sklearn.utils import Bunch

    from tubal.cli.console import Terminal
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
    "--views",
    metavar="auto|NAME,...",
    default="auto",
    show_default=True,
    help="How to compare images: shape, colour, texture, semantic and layout (the last two need the extra 'photos'), "
    "or several. 'auto' takes all that are available and useful.",
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
@scheduler_option
@learning_options
@click.pass_obj
def cluster(
    state: State,
    sources: tuple[str, ...],
    clusters: int | None,
    out: Path,
    force: bool,
    preset: str,
    views: str,
    labels: str | None,
    hints: str | None,
    sort: str | None,
    scheduler: str | None,
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
      tubal cluster birds/ --hints known.csv --sort copy     names for some, folders for all
      tubal cluster coil20 -k 20                   a collection by name
      tubal cluster june/ july/ august.zip         several folders and archives
      find . -name '*.jpg' | tubal cluster -       a list of files
      tubal cluster photos/ --resume               continue after Ctrl-C or a crash
      tubal cluster scans.npy --scheduler tcp://10.0.0.5:8786    on a Dask cluster
    """
    from tubal.cli.console import Terminal

    terminal = Terminal(state)
    request = ClusterRequest(sources, out, clusters, force, preset, views, labels, hints, sort, resume, seed, scheduler)
    with terminal.compile_and_tell():  # before the long imports of the rest
        from tubal.cli.pipeline import check_scheduler, show_summary

        check_scheduler(scheduler, state, preset)
        show_summary(terminal, cluster_sources(terminal, state, request, image_settings), out)


@dataclass(frozen=True)
class ClusterRequest:
    """The arguments of ``tubal cluster``, without those that say how images are read."""

    sources: tuple[str, ...]
    out: Path
    clusters: int | None = None
    force: bool = False
    preset: str = "default"
    views: str = "auto"
    labels: str | None = None
    hints: str | None = None
    sort: str | None = None
    resume: bool = False
    seed: int = 0
    scheduler: str | None = None


def check_request(asked: ClusterRequest) -> None:
    """Raise an error before any work if a source cannot be read or the results cannot be written."""
    from tubal.cli import inputs, pipeline
    from tubal.datasets.loading import check_source
    from tubal.storage.files import check_place

    for source in asked.sources:
        pipeline.check_apart(source, asked.out)
    inputs.check_label_file(asked.labels)
    check_source(asked.sources)
    check_place(asked.out, force=asked.force)


def cluster_sources(
    terminal: Terminal, state: State, asked: ClusterRequest, settings: ImageSettings, hidden: Path | None = None
) -> dict[str, Any]:
    """Read images, cluster them, write all results, and return the record of the run.

    ``hidden`` is the folder of a reservation that the caller holds already.
    """
    from tubal.cli import inputs, pipeline
    from tubal.storage.files import reserve, staged_folder

    out, sources = asked.out, asked.sources
    for source in sources:
        pipeline.check_apart(source, out)
    inputs.check_label_file(asked.labels)
    teach = _teacher(out, asked.hints)
    network = inputs.NetworkLook(out / "views.npz")
    stale = pipeline.earlier_sorted_folder(out) if asked.force else ()
    # The checkpoint is deleted last, when the results are in place and there is nothing left to resume.
    with (
        nullcontext(hidden) if hidden is not None else reserve(out) as reserved,
        pipeline.checkpoint_beside(out, asked.resume, terminal, state) as (checkpoint, kept),
        pipeline.connected(asked.scheduler, state) as client,
        staged_folder(out, force=asked.force, stale=stale, hidden=reserved) as stage,
    ):
        look = inputs.second_look(network, asked.views, asked.preset)
        stack = inputs.read_images(
            terminal, state, sources, settings, look=look, kept=kept, listed_in=str(out / "skipped.csv")
        )
        network.save(stage / "views.npz")
        known_labels = inputs.read_labels(asked.labels, stack, is_collection=inputs.is_collection(sources))
        pipeline.check_sorting(asked.sort, stack, stage)
        chosen = inputs.choose_views(terminal, asked.views, asked.preset, stack)
        given = {"labels": asked.labels, "hints": asked.hints, "sort": asked.sort, "views": asked.views, **settings}
        plan = pipeline.Plan(
            inputs.name_of(sources),
            asked.clusters,
            asked.preset,
            asked.seed,
            asked.sort,
            known_labels,
            given,
            out,
            chosen,
            client,
        )
        return pipeline.cluster_images(plan, stack, stage, terminal, state, checkpoint, teach)


def _teacher(out: Path, hints: str | None) -> Callable[[ImageClusterer, Bunch], object] | None:
    """Return the function that gives a clusterer what is known; None if there are neither hints nor answers."""
    from tubal.storage.files import answers_beside

    if hints is None and not answers_beside(out).exists():
        return None
    from tubal.cli.hints import check_hint_file, teach_known_hints

    check_hint_file(hints)
    return teach_known_hints(out, hints)


# --- demo ----------------------------------------------------------------------------------------------------------
@click.command()
@out_option("demo", "Folder for the results. The results of an earlier demo are replaced.", folder=True)
@force_option("Write into a folder that holds other files.")
@run_options
@click.pass_obj
def demo(state: State, out: Path, force: bool, seed: int) -> None:
    """Cluster the 1797 handwritten digits that come with scikit-learn and write a report.

    The known digits are only used to compare the clusters with those of K-means.

    \b
    Examples:
      tubal demo
      tubal demo --out digits --json
    """
    from tubal.cli.console import Terminal

    terminal = Terminal(state)
    with terminal.compile_and_tell():  # before the long imports of the rest
        _cluster_digits(terminal, state, out, force=force, seed=seed)


def _cluster_digits(terminal: Terminal, state: State, out: Path, *, force: bool, seed: int) -> None:
    """Cluster the digits, compare the clusters with those of K-means, and print both."""
    from tubal.cli.inputs import read_images, read_labels
    from tubal.cli.pipeline import Plan, cluster_images, show_summary
    from tubal.storage.files import earlier_record, staged_folder

    is_demo = earlier_record(out).get("settings", {}).get("demo", False)
    with staged_folder(out, force=force or is_demo) as stage:
        stack = read_images(terminal, state, "digits", {})
        known_labels = read_labels("given", stack, is_collection=True)
        # K-means comes first: on first use, kernels are compiled meanwhile.
        baseline = _score_k_means(stack, known_labels or [], terminal, seed)
        plan = Plan("digits", 10, seed=seed, known_labels=known_labels, settings={"demo": True})
        record = cluster_images(plan, stack, stage, terminal, state)
    _show_comparison(terminal, record, baseline)
    show_summary(terminal, {**record, "k_means": baseline}, out)


def _score_k_means(stack: Bunch, known_labels: Sequence[str], terminal: Terminal, seed: int) -> dict[str, float]:
    """Return the scores and the duration of K-means on the pixels: the best of ten random starts."""
    import numpy as np

    from tubal.cli.inputs import compare_with_labels
    from tubal.clustering.spectral import lloyd

    def inertia(labels: NDArray[np.intp]) -> float:
        groups = (rows[labels == label] for label in np.unique(labels))
        return float(sum(np.square(group - group.mean(axis=0)).sum() for group in groups))

    rng = np.random.default_rng(seed)
    # Importing the K-means of scikit-learn would take longer than all starts.
    with terminal.stage("K-means on pixels"):
        rows = stack.images.reshape(len(stack.images), -1)
        starts = [rows[rng.choice(len(rows), 10, replace=False)] for _ in range(10)]
        labels = min((lloyd(rows, start) for start in starts), key=inertia)
    return {**compare_with_labels(labels, known_labels), "seconds": terminal.seconds["K-means on pixels"]}


def _show_comparison(terminal: Terminal, record: Mapping[str, Any], baseline: Mapping[str, float]) -> None:
    ours = {**record["scores"], "seconds": record["seconds"]["clustering"]}
    rows = [
        (name, f"{found['accuracy']:.1f} %", f"{found['nmi']:.1f} %", f"{found['seconds']:.1f} s")
        for name, found in (("K-means on pixels", baseline), ("tubal", ours))
    ]
    terminal.print_line("Handwritten digits in ten clusters, found without labels:")
    terminal.print_table(rows, header=("", "accuracy", "NMI", "time"))
