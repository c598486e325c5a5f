"""``tubal demo``: cluster the handwritten digits of scikit-learn, compare with K-means, write a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tubal.cli.options import State, force_option, out_option, run_options

if TYPE_CHECKING:
    from sklearn.utils import Bunch

    from tubal.cli.console import Terminal


@click.command()
@out_option("demo", "Folder for the results. The results of an earlier demo are replaced.", folder=True)
@force_option("Write into a folder that holds other files.")
@run_options
@click.pass_obj
def command(state: State, out: Path, force: bool, seed: int) -> None:
    """Cluster the 1797 handwritten digits that come with scikit-learn and write a report.

    The known digits are only used to compare the clusters with those of K-means.

    \b
    Examples:
      tubal demo
      tubal demo --out digits --json
    """
    from tubal.cli.console import Terminal
    from tubal.cli.inputs import read_images, read_labels
    from tubal.cli.pipeline import Plan, cluster_images, earlier_record, show_summary
    from tubal.storage.files import staged_folder

    terminal = Terminal(state)
    is_demo = earlier_record(out).get("settings", {}).get("demo", False)
    with staged_folder(out, force=force or is_demo) as stage:
        stack = read_images(terminal, state, "digits", {})
        known_labels = read_labels("given", stack, is_collection=True)
        plan = Plan("digits", 10, seed=seed, known_labels=known_labels, settings={"demo": True})
        record = cluster_images(plan, stack, stage, terminal, state)
        baseline = _score_k_means(stack, known_labels or [], terminal, seed)
    _show_comparison(terminal, record, baseline)
    show_summary(terminal, {**record, "k_means": baseline}, out)


def _score_k_means(stack: Bunch, known_labels: Sequence[str], terminal: Terminal, seed: int) -> dict[str, float]:
    """Return the scores and the duration of K-means on the pixels."""
    from sklearn.cluster import KMeans

    from tubal.cli.inputs import compare_with_labels

    with terminal.stage("K-means on pixels"):
        rows = stack.images.reshape(len(stack.images), -1)
        labels = KMeans(10, n_init=10, random_state=seed).fit_predict(rows)
    return {**compare_with_labels(labels, known_labels), "seconds": terminal.seconds["K-means on pixels"]}


def _show_comparison(terminal: Terminal, record: Mapping[str, Any], baseline: Mapping[str, float]) -> None:
    ours = {**record["scores"], "seconds": record["seconds"]["clustering"]}
    rows = [
        (name, f"{found['accuracy']:.1f} %", f"{found['nmi']:.1f} %", f"{found['seconds']:.1f} s")
        for name, found in (("K-means on pixels", baseline), ("tubal", ours))
    ]
    terminal.print_line("Handwritten digits in ten clusters, found without labels:")
    terminal.print_table(rows, header=("", "accuracy", "NMI", "time"))
