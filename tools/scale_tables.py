"""The tables of ``docs/scale.md``, made from the stored records of the benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from benchmarks.pages import Bench
from benchmarks.timing import Row
from tubal.experiments.pages import join_parts, markdown_table

MICROSECONDS = 1e6
# The size for which times are extrapolated, and the cores that share them.
EXTRAPOLATED, SHARING_CORES = 10**8, 1000


def candidates_table(record: Bench) -> str:
    """Return the seconds of every search for candidates, on each machine that was measured."""
    return _by_machine(record, ("candidates", "candidates on many cores"))


def umap_table(record: Bench) -> str:
    """Return the seconds of clustering Fashion-MNIST on each machine, and the ratios of the targets."""
    sections = ("scale", "scale on many cores")
    scores = {row["problem"]: f"{row['accuracy']:.1f} / {row['NMI']:.1f}" for row in _rows(record, sections[0])}
    ratios = [
        f"On {_cores(record, section)} cores tubal takes {row['relative time']:.2f} times as long as UMAP + K-means, "
        f"{row['cold relative time']:.2f} times the first time, and {estimated['relative to given']:.2f} times as long "
        "as with a given number if it estimates the number of clusters."
        for section in sections
        if section in record["tables"]
        for row in _rows(record, section)
        for estimated in _rows(record, section)
        if row["problem"] == "tubal, number given" and estimated["problem"] == "tubal, number estimated"
    ]
    table = _by_machine(record, sections, {"accuracy / NMI on 2 cores": scores})
    return join_parts([table, "\n".join(ratios)]).rstrip()


def threads_table(record: Bench) -> str:
    """Return the speed-ups of the steps of a fit."""
    body = [
        [
            row["problem"],
            f"{row['seconds on 2']:.1f}",
            f"{row['seconds']:.1f}",
            f"{row['speed-up']:.1f}",
            f"{row['ratio']:.2f}",
        ]
        for row in record["tables"]["threads"]
    ]
    threads = record["tables"]["threads"][0]["threads"]
    head = ["seconds", "2 threads", f"{threads} threads", "speed-up", "relative to a matrix product"]
    return markdown_table(head, body)


def million_table(record: Bench) -> str:
    """Return time, memory and scores of the images of a file."""
    body = [
        [
            row["problem"],
            f"{row['seconds'] / 60:.1f}",
            f"{row['processor seconds'] / 60:.1f}",
            f"{row['peak MB'] / 1000:.1f}",
            f"{row['accuracy']:.1f} / {row['NMI']:.1f}",
        ]
        for row in record["tables"]["million"]
    ]
    head = ["on 2 cores", "minutes", "minutes of the processor", "peak GB", "accuracy / NMI, %"]
    slope = next(row["slope"] for row in record["tables"]["million"] if "slope" in row)
    return f"{markdown_table(head, body)}\n\nThe log-log slope of the processor time is {slope:.2f}."


def workers_table(record: Bench) -> str:
    """Return the times of a local cluster, relative to one process."""
    body = [
        [
            row["problem"],
            f"{row['seconds']:.0f}",
            f"{row['relative time']:.2f}" if "relative time" in row else "1",
            f"{row['agreement']:.2f}" if "agreement" in row else "",
        ]
        for row in record["tables"]["workers"]
    ]
    return markdown_table(["200 000 images, 2 cores", "seconds", "relative", "agreement with one process (ARI)"], body)


def gpu_table(record: Mapping[str, Any]) -> str:
    """Return time, memory and scores of clusters found on a GPU."""
    body = [
        [
            row["problem"],
            f"{row['seconds']:.1f}",
            f"{row['GPU peak GB']:.1f}",
            f"{row['host peak MB'] / 1000:.1f}",
            f"{row['accuracy']:.1f} / {row['NMI']:.1f}",
        ]
        for row in record["tables"]["clusters"]
    ]
    head = ["on an H200, second fit in a process", "seconds", "GPU peak GB", "host peak GB", "accuracy / NMI, %"]
    return markdown_table(head, body)


def extrapolated_table(record: Bench) -> str:
    """Return the processor time of 100 million images, from the times of two sizes.

    One part is assumed to grow with the number of images n, the other with n^1.5.
    """
    few, many = (row for row in record["tables"]["million"] if "killed" not in row["problem"])
    each = {row["images"]: row["processor seconds"] / row["images"] for row in (few, many)}
    growing = (each[many["images"]] - each[few["images"]]) / (sqrt(many["images"]) - sqrt(few["images"]))
    fixed = each[few["images"]] - growing * sqrt(few["images"])
    parts = {
        "described, warped, compared and cut": ("n", fixed, 1.0),
        "cells and candidates": ("n^1.5", growing, 1.5),
    }
    body = [
        [
            name,
            growth,
            f"{factor * many['images'] ** power / 60:.1f} core-minutes",
            f"{factor * EXTRAPOLATED**power / 3600:.0f} core-hours",
            f"{factor * EXTRAPOLATED**power / 60 / SHARING_CORES:.1f} minutes",
        ]
        for name, (growth, factor, power) in parts.items()
    ]
    measured = " and ".join(f"{MICROSECONDS * each[row['images']]:.0f} µs at {row['problem']}" for row in (few, many))
    head = ["images are", "growth with n", f"{many['images']} images", "10⁸ images", f"on {SHARING_CORES} cores"]
    return f"One process needs, of a processor and per image, {measured}.\n\n{markdown_table(head, body)}"


def _by_machine(record: Bench, sections: Sequence[str], more: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Return the warm and the cold seconds of every program, a column for each section that was measured."""
    measured = [section for section in sections if section in record["tables"]]
    more = more or {}
    found = {section: {row["problem"]: row for row in _rows(record, section)} for section in measured}
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    body = [
        [
            name,
            *(_warm_and_cold(found[section].get(name)) for section in measured),
            *(column.get(name, "") for column in more.values()),
        ]
        for name in names
    ]
    return markdown_table(["seconds", *(f"{_cores(record, section)} cores" for section in measured), *more], body)


def _rows(record: Bench, section: str) -> list[Row]:
    """Return the rows of programs that ran twice."""
    return [row for row in record["tables"][section] if "cold seconds" in row]


def _warm_and_cold(row: Row | None) -> str:
    return "" if row is None else f"{row['seconds']:.3g}, first {row['cold seconds']:.3g}"


def _cores(record: Bench, section: str) -> int:
    return int(record["measured"][section]["cores"])
