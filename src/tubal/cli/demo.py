"""``tubal demo``: the embedded handwritten digits, against K-means, with a report to open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tubal.cli._state import State, computing_options, talking_options


@click.command()
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Folder for the results; an earlier demo there is replaced.",
)
@click.option("--force", is_flag=True, help="Write into a folder that holds something else.")
@computing_options
@talking_options
@click.pass_obj
def command(state: State, /, out: Path, force: bool, seed: int) -> None:
    """Cluster the 1797 handwritten digits that come with scikit-learn and write a report.

    \b
    Examples:
      tubal demo
      tubal demo --out digits --json
    """
    from tubal.cli._pipeline import Plan, cluster_images, show_summary
    from tubal.cli._reading import read_source
    from tubal.cli._results import earlier_run
    from tubal.cli._talk import Talk
    from tubal.cli._truth import read_truth
    from tubal.storage.files import staged_folder

    talk = Talk(state)
    with staged_folder(out, force=force or earlier_run(out).get("settings", {}).get("demo", False)) as stage:
        stack = read_source(talk, state, "digits", {})
        truth = read_truth("given", stack, is_collection=True)
        plan = Plan("digits", 10, seed=seed, truth=truth, settings={"demo": True})
        record = cluster_images(plan, stack, stage, talk, state)
        baseline = _k_means(stack, truth, talk, seed)
    _show_table(talk, record, baseline)
    show_summary(talk, {**record, "k_means": baseline}, out)


def _k_means(stack: Any, truth: Any, talk: Any, seed: int) -> dict[str, float]:
    from sklearn.cluster import KMeans

    from tubal.cli._truth import score

    with talk.stage("K-means on pixels"):
        rows = stack.images.reshape(len(stack.images), -1)
        labels = KMeans(10, n_init=10, random_state=seed).fit_predict(rows)
    return {**score(labels, truth), "seconds": talk.seconds["K-means on pixels"]}


def _show_table(talk: Any, record: dict[str, Any], baseline: dict[str, float]) -> None:
    ours = {**record["scores"], "seconds": record["seconds"]["clustering"]}
    rows = [
        (name, f"{found['accuracy']:.1f} %", f"{found['nmi']:.1f} %", f"{found['seconds']:.1f} s")
        for name, found in (("K-means on pixels", baseline), ("tubal", ours))
    ]
    talk.say("Handwritten digits, ten clusters, no labels used:")
    talk.table(rows, header=("", "accuracy", "NMI", "time"))
