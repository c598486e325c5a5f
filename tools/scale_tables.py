"""The tables of ``docs/scale.md``, made from the stored records of the benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10, sqrt
from typing import Any

from benchmarks.pages import Bench
from benchmarks.timing import Row
from tubal.experiments.pages import join_parts, markdown_table

MICROSECONDS = 1e6
# The size for which times are extrapolated, and the cores of all workers and of the client.
EXTRAPOLATED, SHARING_CORES, CLIENT_CORES = 10**8, 1000, 16
# Two measured sizes of the same algorithm; smaller collections are cut in another way.
CUT_BY_LEVELS = (200_000, 1_000_000)


def candidates_table(record: Bench) -> str:
    """Return the seconds of every search for candidates, on each machine that was measured."""
    sections = ("candidates", "candidates on many cores")
    return join_parts([_by_machine(record, sections), _measured(record, sections)]).rstrip()


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
    table = _by_machine(record, sections, {f"accuracy / NMI on {_cores(record, sections[0])} cores": scores})
    return join_parts([table, "\n".join(ratios), _measured(record, sections)]).rstrip()


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
    return join_parts([markdown_table(head, body), _measured(record, ["threads"])]).rstrip()


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
    cores = f"on {_cores(record, 'million')} cores"
    head = [cores, "minutes", "minutes of the processor", "peak GB", "accuracy / NMI, %"]
    slope = next(row["slope"] for row in record["tables"]["million"] if "slope" in row)
    text = f"The log-log slope of the processor time is {slope:.2f}."
    return join_parts([markdown_table(head, body), text, _measured(record, ["million"])]).rstrip()


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
    size = f"{_spaced(record['tables']['workers'][0]['images'])} images, {_cores(record, 'workers')} cores"
    table = markdown_table([size, "seconds", "relative", "agreement with one process (ARI)"], body)
    return join_parts([table, _measured(record, ["workers"])]).rstrip()


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
    place = record["measured"]["clusters"]
    head = ["second fit in a process", "seconds", "GPU peak GB", "host peak GB", "accuracy / NMI, %"]
    return f"{markdown_table(head, body)}\n\nMeasured on one {_occasion(place['device'], place)}."


def extrapolated_table(record: Bench) -> str:
    """Return the processor time of clusters of 100 million images on a cluster, from the times of files.

    The search for neighbours is work of the workers. One part of it grows with the number of images n, the other
    with n^1.5; two sizes that are cut by levels give both. The rest is the work of the client and grows with n.
    """
    rows = {row["images"]: row for row in record["tables"]["million"] if "killed" not in row["problem"]}
    source = _measured(record, ["million"], "From times measured")
    if CUT_BY_LEVELS[0] not in rows:
        return join_parts([_one_process_table(rows), source]).rstrip()
    few, many = (rows[n_images] for n_images in CUT_BY_LEVELS)
    fixed, growing = _search_constants(few, many)
    rest = (many["processor seconds"] - many["search processor seconds"]) / many["images"]
    parts = [
        ("search: description, warps, distances", "the workers", SHARING_CORES, "n", fixed, 1.0),
        ("search: cells and candidates", "the workers", SHARING_CORES, "n^1.5", growing, 1.5),
        ("everything else", "the client", CLIENT_CORES, "n", rest, 1.0),
    ]
    body = [
        [f"{name}, on {where}", growth, *(_hours_and_minutes(factor * n**power, cores) for n in (10**6, EXTRAPOLATED))]
        for name, where, cores, growth, factor, power in parts
    ]
    table = markdown_table(["work", "grows with", "10⁶ images", "10⁸ images"], body)
    return join_parts([_measured_times(few, many, rest), table, _assumptions(few, many), source]).rstrip()


def _search_constants(few: Row, many: Row) -> tuple[float, float]:
    """Return the factors of n and of n^1.5 in the seconds of the search; none is negative.

    If one of both would be negative, the other alone explains the time of the larger size.
    """
    each = [_search_of_one(row) for row in (few, many)]
    roots = [sqrt(row["images"]) for row in (few, many)]
    growing = (each[1] - each[0]) / (roots[1] - roots[0])
    fixed = each[1] - growing * roots[1]
    if growing < 0.0:
        return each[1], 0.0
    return (fixed, growing) if fixed >= 0.0 else (0.0, each[1] / roots[1])


def _search_of_one(row: Row) -> float:
    """Return the processor seconds of the search per image."""
    return float(row["search processor seconds"] / row["images"])


def _measured_times(few: Row, many: Row, rest: float) -> str:
    """Return the measured times that the extrapolation starts from, as a sentence."""
    search = " and ".join(
        f"{MICROSECONDS * _search_of_one(row):.0f} µs at {_spaced(row['images'])} images" for row in (few, many)
    )
    return (
        f"One process needs, of a processor and per image, {search} for the search for neighbours, and "
        f"{MICROSECONDS * rest:.0f} µs at {_spaced(many['images'])} images for everything else."
    )


def _assumptions(few: Row, many: Row) -> str:
    """Return what the extrapolation assumes."""
    fixed, growing = _search_constants(few, many)
    if 0.0 in (fixed, growing):
        known = f"the times of two sizes show only the part that grows with {'n^1.5' if growing else 'n'}"
    else:
        known = "the times of two sizes say how large both are"
    return (
        f"One part of the search is assumed to grow with n, the other with n^1.5; {known}. All of it counts as work of "
        f"the workers, also the little that the client does for it. The work of the client is assumed to grow with n. "
        f"The minutes are those on {SHARING_CORES} cores of workers, and on {CLIENT_CORES} cores of the client, if all "
        "these cores always have work."
    )


def _hours_and_minutes(seconds: float, cores: int) -> str:
    """Return core-hours, and the minutes on some cores.

    >>> _hours_and_minutes(7200.0, 16)
    '2.0 core-hours, 7.5 minutes on 16 cores'
    """
    return f"{_figure(seconds / 3600)} core-hours, {_figure(seconds / 60 / cores)} minutes on {cores} cores"


def _figure(value: float) -> str:
    """Return a number of any size with about two digits.

    >>> _figure(2778.2), _figure(33.3), _figure(2.0), _figure(0.0123), _figure(0.0)
    ('2778', '33', '2.0', '0.012', '0')
    """
    if value == 0.0:
        return "0"
    return f"{value:.{max(0, 1 - floor(log10(value)))}f}"


def _spaced(number: int) -> str:
    """Return a whole number in groups of three digits.

    >>> _spaced(200_000)
    '200 000'
    """
    return f"{number:,}".replace(",", " ")


def _one_process_table(rows: Mapping[int, Row]) -> str:
    """Return the processor time of all work of 100 million images, from the smallest and the largest of ``rows``."""
    few, many = rows[min(rows)], rows[max(rows)]
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


def _measured(record: Bench, sections: Sequence[str], begin: str = "Measured") -> str:
    """Return the cores, the day and the commit of every section that was measured, as a sentence."""
    places = [record["measured"][section] for section in sections if section in record["tables"]]
    each = dict.fromkeys(f"on {_occasion(str(place['cores']) + ' cores', place)}" for place in places)
    return f"{begin} {', and '.join(each)}."


def _occasion(machine: str, place: Mapping[str, Any]) -> str:
    """Return the machine, the day and, if it is recorded, the commit of one measurement.

    >>> _occasion("2 cores", {"date": "2026-11-19", "commit": "b0f6035"})
    '2 cores, 2026-11-19, commit b0f6035'
    """
    commit = [f"commit {place['commit']}"] if place.get("commit") else []
    return ", ".join([machine, place["date"], *commit])
