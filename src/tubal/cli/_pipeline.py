"""From a stack of images to a folder of results: what ``cluster`` and ``demo`` share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tubal.cli import _results as results
from tubal.cli._state import State
from tubal.cli._talk import Talk
from tubal.cli._truth import score

__all__ = ["Plan", "cluster_images", "fit_clusterer", "show_summary", "write_results"]


@dataclass
class Plan:
    """What was asked for; ``settings`` goes into ``run.json`` as it is."""

    source: str
    n_clusters: int | None
    preset: str = "default"
    seed: int = 0
    sort: str | None = None
    truth: Sequence[str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)


def cluster_images(
    plan: Plan, stack: Any, stage: Path, talk: Talk, state: State, checkpoint: Any = None
) -> dict[str, Any]:
    """Fit, write every result into ``stage`` and return the record of the run."""
    check_n_clusters(plan.n_clusters, len(stack.images))
    clusterer = fit_clusterer(plan, stack, talk, state, checkpoint)
    return write_results(plan, stack, clusterer, stage, talk, state)


def check_n_clusters(n_clusters: int | None, n_images: int) -> None:
    """Refuse before any work what no clustering can give."""
    if n_clusters is not None and n_clusters > n_images:
        raise ValueError(f"{n_clusters} clusters were asked for but there are only {n_images} images; ask for fewer")
    if n_images < 2:
        raise ValueError("there is only one image; clustering needs at least two")


def fit_clusterer(plan: Plan, stack: Any, talk: Talk, state: State, checkpoint: Any = None) -> Any:
    """Fit an ``ImageClusterer`` on the device asked for, with its stages shown."""
    with talk.stage("clustering") as bar:
        from tubal import ImageClusterer
        from tubal.backends.arrays import to_device

        clusterer = ImageClusterer(n_clusters=plan.n_clusters, preset=plan.preset, random_state=plan.seed)
        images = to_device(stack.images, state.device)
        fit_with_progress(clusterer, bar, lambda: clusterer.fit(images, checkpoint=checkpoint))
    return clusterer


def fit_with_progress(model: Any, bar: Any, fit: Callable[[], Any]) -> None:
    """Call ``fit`` with the stage's bar following the iterations; the model keeps no trace of the bar."""
    bar.rename("finding neighbours")

    def follow(progress: Any) -> None:
        done = progress.n_iter >= progress.max_iter
        bar.rename("cutting the graph" if done else "learning atoms and codes")
        bar(progress.n_iter, progress.max_iter)

    model.set_params(callbacks=follow)
    try:
        fit()
    finally:
        for part in (model, getattr(model, "model_", model)):
            part.set_params(callbacks=None)


def write_results(plan: Plan, stack: Any, clusterer: Any, stage: Path, talk: Talk, state: State) -> dict[str, Any]:
    """Write labels, features, model, report, skipped files and the record of the run."""
    scores = score(clusterer.labels_, plan.truth) if plan.truth is not None else None
    with talk.stage("writing results"):
        write_tables(stack, clusterer, stage)
        write_model(clusterer, stack, stage / "model.tubal")
        if plan.sort:
            results.sort_images(
                stage / results.SORTED, plan.sort, stack.images, stack.names, stack.files, clusterer.labels_
            )
    record = describe_run(plan, stack, clusterer, scores, state)
    with talk.stage("drawing the report"):
        write_page(plan, stack, clusterer, record, stage / "report.html")
    record["seconds"] = dict(talk.seconds)
    outputs = sorted(file for file in stage.iterdir() if file.is_file())
    return results.write_run(stage / "run.json", record, outputs=outputs)


def write_tables(stack: Any, clusterer: Any, stage: Path) -> None:
    """Write labels.csv, skipped.csv and features.npz."""
    from tubal.report.from_clusterer import as_mask, first_of_group

    n_images = len(stack.images)
    results.write_labels(
        stage / "labels.csv",
        stack.names,
        clusterer.labels_,
        confidence=clusterer.confidence_,
        outliers=as_mask(clusterer.outliers_, n_images),
        repeats=first_of_group(clusterer.duplicates_, n_images),
    )
    results.write_skipped(stage / "skipped.csv", stack.skipped)
    results.write_features(
        stage / "features.npz",
        stack.names,
        features=np.asarray(clusterer.features_),
        embedding=np.asarray(clusterer.embedding_),
        labels=np.asarray(clusterer.labels_),
    )


def write_model(clusterer: Any, stack: Any, path: Path) -> None:
    """Save the clusterer together with the names of its images."""
    import tubal
    from tubal.cli._models import name_images

    name_images(clusterer, stack.names)
    tubal.save(clusterer, path)


def write_page(plan: Plan, stack: Any, clusterer: Any, record: dict[str, Any], path: Path) -> None:
    """Write report.html."""
    from tubal.report import write_report
    from tubal.report.from_clusterer import report_data

    data = report_data(
        clusterer,
        stack.images,
        stack.names,
        true_labels=plan.truth,
        scores=record["scores"],
        provenance=record,
        title=f"{Path(plan.source).name or plan.source}: {record['clusters']} clusters",
    )
    write_report(data, path)


def describe_run(
    plan: Plan, stack: Any, clusterer: Any, scores: dict[str, float] | None, state: State
) -> dict[str, Any]:
    """Return the record of a run: settings, versions, seeds, hashes."""
    from tubal.report.from_clusterer import as_mask
    from tubal.storage.provenance import platform_name, versions

    sizes = np.bincount(clusterer.labels_)
    return {
        "source": plan.source,
        "images": len(stack.images),
        "image_shape": list(stack.images.shape[1:]),
        "rule": stack.rule,
        "skipped": len(stack.skipped),
        "clusters": len(sizes),
        "cluster_sizes": sizes.tolist(),
        "outliers": int(as_mask(clusterer.outliers_, len(stack.images)).sum()),
        "duplicate_groups": len(clusterer.duplicates_),
        "scores": scores,
        "settings": {
            **plan.settings,
            "clusters": plan.n_clusters,
            "preset": plan.preset,
            "device": state.device,
            "threads": state.threads,
        },
        "seed": plan.seed,
        "versions": {**versions(), "platform": platform_name()},
        "images_sha256": results.hash_images(stack.images),
        "command": ["tubal", *sys.argv[1:]],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def show_summary(talk: Talk, record: dict[str, Any], out: Path) -> None:
    """Print the table at the end of a run, and the record as JSON where asked."""
    sizes = record["cluster_sizes"]
    estimated = ", estimated" if record["settings"]["clusters"] is None else ""
    rows = [
        (
            "images",
            f"{record['images']} of {'×'.join(map(str, record['image_shape']))}, {record['skipped']} skipped",
        ),
        ("clusters", f"{record['clusters']}{estimated} (smallest {min(sizes)}, largest {max(sizes)})"),
        ("outliers", str(record["outliers"])),
        ("near-duplicates", f"{record['duplicate_groups']} groups"),
    ]
    if record["scores"]:
        found = record["scores"]
        rows.append(
            (
                "against labels",
                f"accuracy {found['accuracy']} %, NMI {found['nmi']} %, purity {found['purity']} %",
            )
        )
    rows.append(("time", f"{sum(record['seconds'].values()):.1f} s"))
    talk.table(rows)
    # Not in the table: a path folded into a column cannot be copied.
    talk.say(f"Open {out / 'report.html'}")
    talk.data({**record, "out": str(out)})
