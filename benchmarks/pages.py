"""The pages ``bench.md`` and ``gpu.md``, and the plots, made from the stored JSON alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from benchmarks.timing import Row
from tubal.experiments.pages import join_parts, list_versions, markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Environment: TypeAlias = Mapping[str, Any]  # the day, the machine, the commit, the versions, and the load before


class Bench(TypedDict):
    """The content of ``bench.json``: the environment and the table of every section, and convergence curves."""

    quick: bool
    measured: dict[str, Environment]
    tables: dict[str, list[Row]]
    curves: dict[str, dict[str, list[tuple[float, float]]]]


class Section(TypedDict):
    """The title of a table, and what it shows."""

    title: str
    text: str


SECTIONS: Mapping[str, Section] = {
    "sporco": {
        "title": "Coding without a graph, against SPORCO",
        "text": "Seconds to the objective that SPORCO's ADMM has after 200 iterations. SPORCO uses the best of three "
        "penalties.",
    },
    "encode": {
        "title": "Coding without a graph to 1.001 of the optimum, against SPORCO",
        "text": "Seconds to 1.001 times the best objective. The ADMM of both programs uses the best of three penalties "
        "and stops at the first step that is good enough; neither pays for knowing it. Default `TubSC.encode` does not "
        "know the best objective: it continues until a duality gap certifies every single image. Images that need few "
        "codes it solves directly, as at sparsity 0.1, the default. The target is for the faster of the two.",
    },
    "convolutional": {
        "title": "CSC coding, against SPORCO",
        "text": "Seconds, set-up included, to the objective that SPORCO's two-dimensional ConvBPDN has after 200 "
        "iterations. Both use the best of four penalties.",
    },
    "algorithm 1": {
        "title": "Coding with a graph, against Algorithm 1",
        "text": "Seconds, set-up included, to 1.001 times the best objective. Algorithm 1 of the paper gets the exact "
        "Lipschitz constant and restarts; exactly as printed it stalls at a higher objective.",
    },
    "umap": {
        "title": "A GTSC fit, against UMAP",
        "text": "GTSC at the paper's settings. Seconds and ratio are those of new processes, which pay for imports and "
        "for loading kernels; the warm columns repeat a fit in one process. Final codes of GTSC are certified, which "
        "takes most of its time; warm, UMAP is faster on every collection.",
    },
    "dictionary learning": {
        "title": "A GTSC fit, against scikit-learn's dictionary learning",
        "text": "The peer is MiniBatchDictionaryLearning with the 128 or 256 atoms of the paper. Accuracy is that of "
        "K-means on the codes: mean ± standard deviation over ten fits of GTSC, and over ten K-means on one fit of the "
        "peer. Final codes of GTSC are certified by a duality gap, which takes most of its time; those of the peer are "
        "not. In the first row of a collection both programs use their own stopping rule. In the other rows GTSC is "
        "stopped as soon as it clusters better than the peer: the converged peer, and the peer stopped after a few "
        "passes over the images.",
    },
    "learning": {
        "title": "Steps of a coding step, and their penalty",
        "text": "Objective of a default GTSC fit, without looking at labels. Digits and shapes were measured first.",
    },
    "images": {
        "title": "Coding time against the number of images",
        "text": "Twenty coding steps of 28×28 images with 45 atoms.",
    },
    "atoms": {
        "title": "Coding time against the number of atoms",
        "text": "Twenty coding steps of 2000 images.",
    },
    "tube": {
        "title": "Coding time against the length of the tube",
        "text": "Twenty coding steps of 2000 images.",
    },
    "memory": {
        "title": "Peak memory of coding",
        "text": "Relative to the size of the codes, images included. Without a graph this is `encode`, with a graph "
        "it is one coding step of a fit.",
    },
    "thread": {
        "title": "Speed-up by a second thread",
        "text": "Compared with the speed-up of a plain matrix product in the same run.",
    },
    "first use": {
        "title": "First use in a new process",
        "text": "From the start of Python to its end: a small fit of `GTSC`, `tubal cluster` on 200 pictures of 32×32 "
        "and `tubal demo`, with an empty cache of compiled kernels and with a full one. If the network is "
        "installed, the first `tubal cluster` shows it the pictures; with `--views shape` it does not, as in a plain "
        "installation.",
    },
    "photographs": {
        "title": "Photographs of 8 megapixels",
        "text": "`tubal cluster` on 600 enlarged photographs, report included, the number of clusters estimated, in a "
        "new process with compiled kernels in the cache. Without the network, the views are those of a plain "
        "installation.",
    },
    "default preset": {
        "title": "The default preset, against UMAP + K-means",
        "text": "Times of the deformable graph and of the whole preset relative to UMAP + K-means.",
    },
    "small collections": {"title": "The default preset on collections under 2000 images", "text": ""},
    "copies": {
        "title": "The default preset on collections with copies",
        "text": "NMI of digits repeated with 2 % noise, at most 2 points below one copy each, and of shifted digits, "
        "not below that of 2000 images. Where draws are counted, NMI is their mean and sd its standard deviation.",
    },
    "approximate index": {
        "title": "Candidates from nearby cells",
        "text": "Share of the exact candidates that they contain, and share of the 5 neighbours that their graph has "
        "in common with the exact graph.",
    },
    "candidates": {
        "title": "The search for candidates",
        "text": "64 candidates of each of 30 000 deformed digits of 16×16 pixels, by their descriptors of 128 numbers. "
        "Each search runs twice in a new process; the cold time is that of the first one, with the import of the "
        "library. Kernels of tubal come from the cache; pynndescent compiles in every process. The effort is the least "
        "of a few that finds 99 % of the exact candidates: neighbours asked for (pynndescent), cells searched (faiss), "
        "length of lists (hnswlib, usearch). Cells are compared with the fastest other search of that recall.",
    },
    "candidates on many cores": {
        "title": "The search for candidates on a machine with many cores",
        "text": "The same as the section before, on another machine, without libraries that are not installed there.",
    },
    "hints": {
        "title": "Questions, answers and new images after a fit",
        "text": "Synthetic shifted digits of 16×16 pixels: five rounds of ten questions, then three batches of 100 new "
        "images. The first call of each kind, and the slowest of the later ones.",
    },
    "many images": {
        "title": "The default preset against the number of images",
        "text": "Synthetic shifted digits of 16×16 pixels.",
    },
    "scale": {
        "title": "Fashion-MNIST, against UMAP + K-means and UMAP + HDBSCAN",
        "text": "Each program runs twice in a new process with an empty cache of compiled functions: the first call is "
        "cold, the second warm. Times are relative to UMAP + K-means. HDBSCAN finds its own number of clusters; images "
        "that it leaves out count as one more. The floor is what the counted operations would take at the speed of a "
        "matrix product on the same cores. Accuracy and NMI are those of the second call. The images are checked by "
        "their SHA-256. tubal has seed 0; UMAP has none, because with a seed it uses one thread, so its scores differ "
        "from run to run.",
    },
    "scale on many cores": {
        "title": "Fashion-MNIST on a machine with many cores, against UMAP + K-means",
        "text": "The same as the section before, on another machine, without HDBSCAN.",
    },
    "orders": {
        "title": "Labels of many images in another order",
        "text": "Fashion-MNIST in the order of its files and in a random one, with two seeds each. The agreement of "
        "two partitions is their adjusted Rand index; least is that of the pair that agrees least.",
    },
    "threads": {
        "title": "Speed-up from two threads to many",
        "text": "Steps of a fit of Fashion-MNIST on two threads and on all, compared with the speed-up of a matrix "
        "product in the same run. Seconds are the least of three fits in a process, after a fit of few images; the "
        "record of commit c62964b has those of one fit.",
    },
    "million": {
        "title": "Deformed copies of Fashion-MNIST from a file",
        "text": "Images beyond the first 70 000 are originals after a random rotation, scaling and shift. Each size is "
        "clustered in a new process, with compiled functions in the cache. Seconds of the processor are those of all "
        "threads; search seconds are those of the search for neighbours alone. In the last row the run is killed "
        "without warning once half of the neighbours are found, and resumed in a new process; the seconds are those of "
        "both together. Lost images are those that the first process had reported and the second one searches again.",
    },
    "workers": {
        "title": "The same on a local Dask cluster, against one process",
        "text": "One process uses all cores; the workers, one thread each, share them. In one row two workers are "
        "killed during the search for neighbours. The workers do not sample what they run, and watch their event loops "
        "once a second only; in the last row they have Dask's defaults. The agreement is the "
        "adjusted Rand index of both partitions.",
    },
}


@dataclass(frozen=True)
class Target:
    """A target that the figures of a section should meet.

    Attributes
    ----------
    section : str
        The section that holds the figures.
    words : str
        What is measured.
    column : str
        The column of the figures.
    bound : str
        The column of the bound. Rows without it do not belong to the target.
    larger_is_better : bool
        Whether the figures should be at least, or at most, the bound.
    """

    section: str
    words: str
    column: str = "ratio"
    bound: str = "target"
    larger_is_better: bool = True

    def rows(self, record: Bench) -> list[Row]:
        """Return the rows that belong to the target."""
        return [row for row in record["tables"].get(self.section, ()) if self.bound in row]

    def is_met(self, row: Row) -> bool:
        """Return whether a row meets the target; being faster than a peer counts only with a better accuracy."""
        if "peer accuracy" in row and _mean(row["accuracy"]) <= _mean(row["peer accuracy"]):
            return False
        value, bound = row[self.column], row[self.bound]
        return bool(value >= bound if self.larger_is_better else value <= bound)


TARGETS = (
    Target("sporco", "coding without a graph: times faster than SPORCO"),
    Target("encode", "coding without a graph to 1.001 of the optimum: times faster than SPORCO", "best ratio"),
    Target("algorithm 1", "coding with a graph: times faster than the paper's Algorithm 1"),
    Target("convolutional", "CSC coding: times faster than SPORCO"),
    Target("umap", "GTSC fit in a new process: times faster than UMAP"),
    Target(
        "dictionary learning",
        "default GTSC fit: times faster than MiniBatchDictionaryLearning, with a better clustering",
    ),
    Target(
        "dictionary learning",
        "GTSC stopped once it clusters better than that converged peer: times faster",
        bound="target when stopped",
    ),
    Target("default preset", "time relative to UMAP + K-means", "relative time", "limit", False),
    Target("small collections", "clustering COIL20, ORL, Yale and digits: seconds", "seconds", "seconds limit", False),
    Target("candidates", "search for candidates: time relative to the fastest peer", "relative time", "limit", False),
    Target("candidates on many cores", "the same on many cores", "relative time", "limit", False),
    Target("hints", "questions, answers and new images in 10 000 images: seconds", "seconds", "limit", False),
    Target("copies", "NMI on collections with copies", "NMI", "target", True),
    Target(
        "many images", "deformable graph of 20 000 to 50 000 images: log-log slope", "graph seconds", "limit", False
    ),
    Target("many images", "default preset on the same images: log-log slope", "preset seconds", "limit", False),
    Target("scale", "Fashion-MNIST: time relative to UMAP + K-means", "relative time", "limit", False),
    Target("scale", "the same from an empty cache", "cold relative time", "cold limit", False),
    Target("scale", "the same: peak memory in MB", "peak MB", "MB limit", False),
    Target("scale", "number estimated: time relative to a given number", "relative to given", "estimate limit", False),
    Target("scale on many cores", "the same on many cores", "relative time", "limit", False),
    Target("scale on many cores", "the same from an empty cache", "cold relative time", "cold limit", False),
    Target("scale on many cores", "the same: peak memory in MB", "peak MB", "MB limit", False),
    Target(
        "scale on many cores",
        "number estimated on many cores: time relative to a given number",
        "relative to given",
        "estimate limit",
        False,
    ),
    Target("threads", "speed-up from two threads to many relative to that of a matrix product"),
    Target("million", "many images from a file: seconds", "seconds", "seconds limit", False),
    Target("million", "the same: peak memory in MB", "peak MB", "MB limit", False),
    Target("million", "the same: log-log slope of processor time from 70 000", "slope", "slope limit", False),
    Target(
        "million",
        "killed half-way and resumed: images whose neighbours are found again",
        "lost images",
        "lost limit",
        False,
    ),
    Target("workers", "four Dask workers: agreement with one process", "agreement", "least", True),
    Target("workers", "the same: time relative to one process on these cores", "relative time", "limit", False),
    Target("images", "coding against the number of images: log-log slope", "seconds", "limit", False),
    Target("memory", "peak memory of coding relative to the codes", "peak / codes", "limit", False),
    Target("thread", "speed-up by a second thread relative to that of a matrix product"),
    Target("first use", "first use in a new process: seconds", "seconds", "limit", False),
    Target("photographs", "600 photographs of 8 megapixels: seconds", "seconds", "limit", False),
)


# --- bench.md --------------------------------------------------------------------------------------------------
# Figures below a section, with what to see in them.
_FIGURES = {
    "algorithm 1": "The objective falls far sooner with ADMM than with Algorithm 1.\n\n"
    "![Objective against seconds of the coding solvers](figures/bench-convergence.png)",
    "images": "Seconds grow in proportion to images, atoms and tube length.\n\n"
    "![Coding time against images, atoms and tube length](figures/bench-scaling.png)",
}


def bench_page(record: Bench) -> str:
    """Return the whole of ``bench.md``."""
    tables = record["tables"]
    measured = {name: environment for name, environment in record["measured"].items() if name in tables}
    machines = list(dict.fromkeys(_machine(environment) for environment in measured.values()))
    parts = [
        "# Benchmarks",
        f"Written by `python -m benchmarks{' --quick' if record['quick'] else ''}`. Every ratio compares two programs "
        "timed in the same run on the same cores, in turn where repeated. Times are medians. Every section names its "
        "machine:",
        "\n".join(f"{number}. {machine}" for number, machine in enumerate(machines, 1)),
    ]
    if not record["quick"]:
        parts += ["## Targets", target_table(record)]
    for name, section in SECTIONS.items():
        if name in tables:
            parts += [f"## {section['title']}", section["text"], _row_table(tables[name])]
            place = machines.index(_machine(measured[name])) + 1
            parts.append(f"Machine {place}, {_occasion(measured[name])}.")
            if name in _FIGURES and not record["quick"]:
                parts.append(_FIGURES[name])
    missing = [section["title"] for name, section in SECTIONS.items() if name not in tables]
    if missing and not record["quick"]:
        parts.append(f"Not measured yet: {'; '.join(missing)}.")
    return join_parts(parts)


def _machine(environment: Environment) -> str:
    """Return the machine and the versions as one line of text."""
    versions = list_versions({name: version for name, version in environment["versions"].items() if version})
    return f"{environment['processor']}, {environment['cores']} cores, {versions}"


def _occasion(environment: Environment) -> str:
    """Return the day, the commit and the load before the run, as far as they are recorded."""
    commit = f", commit {environment['commit']}" if environment.get("commit") else ""
    load = f"{environment['load before']:.1f}" if "load before" in environment else "not recorded"
    return f"{environment['date']}{commit}; load before: {load}"


def target_table(record: Bench) -> str:
    """Return every target with all its figures, the bound, and whether all figures meet it."""
    body = []
    for target in TARGETS:
        rows = target.rows(record)
        for bound in sorted({row[target.bound] for row in rows}):
            bounded = [row for row in rows if row[target.bound] == bound]
            figures = [f"{_short_name(row['problem'])}: {_figure(row[target.column])}" for row in bounded]
            side = f"{'at least' if target.larger_is_better else 'at most'} {bound:g}"
            met = "yes" if all(target.is_met(row) for row in bounded) else "**no**"
            body.append([target.words, "; ".join(figures), side, met])
    return markdown_table(["measured", "result", "target", "met"], body)


def _row_table(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return markdown_table(columns, [[_show(row.get(column, "")) for column in columns] for row in rows])


def _short_name(problem: str) -> str:
    """Return the name of a problem without the sizes that the full table shows.

    >>> _short_name("orl, 400 images, graph weight 1")
    'orl, graph weight 1'
    """
    first, *rest = problem.split(", ")
    kept = [part for part in rest if part.startswith("graph weight") or not any(letter.isdigit() for letter in part)]
    return ", ".join([first, *(part for part in kept if not part.startswith("GTSC stopped"))])


def _figure(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def _mean(score: str) -> float:
    """Return the mean of a score written as "mean ± standard deviation"."""
    return float(score.split(" ", maxsplit=1)[0])


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# --- gpu.md ----------------------------------------------------------------------------------------------------
GPU_TITLES = {
    "coding": "Coding 20 000 images of 32×32 with 45 atoms",
    "fit": "USPS: the whole GTSC fit, graph included",
    "graph": "USPS: the deformable graph",
    "million": "A million images of 28×28 with 45 atoms",
    "clusters": "Clusters of Fashion-MNIST and of deformed copies of it, number given",
    "agreement": "GPU against CPU: relative differences at convergence, 300 USPS images",
}


def gpu_page(record: Mapping[str, Any], notes: str = "") -> str:
    """Return the whole of ``gpu.md``; ``notes`` are written by hand and stand at the end."""
    parts = ["# On the GPU", "Written by `python -m benchmarks.gpu`."]
    for name, title in GPU_TITLES.items():
        if name in record["tables"]:
            own = dict(record["measured"][name])
            day, device = own.pop("date"), own.pop("device")
            parts += [f"## {title}", _row_table(record["tables"][name])]
            parts.append(f"Measured on {day}: {device}, {list_versions(own)}.")
    targets = gpu_targets(record["tables"])
    parts += ["## Targets", _row_table(targets)] if targets else []
    return join_parts([*parts, notes.strip()])


def gpu_targets(tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return every target that was measured, with its bound and result."""
    without, with_graph = tables.get("coding", ({}, {}))
    fit, graph, million = (tables.get(name, ({},))[0] for name in ("fit", "graph", "million"))
    targets = [
        ("one step without a graph, ms", "at most", 0.6, without.get("ms per step")),
        ("coding without a graph: times faster than plain torch", "at least", 5.0, without.get("ratio")),
        ("coding with a graph: times faster than plain torch", "at least", 5.0, with_graph.get("ratio")),
        ("USPS fit to the objective of the CPU fit, seconds", "at most", 0.4, fit.get("seconds to the CPU objective")),
        ("images of 28×28 coded at once", "at least", 1_000_000, million.get("images")),
        ("deformable graph of USPS, seconds", "at most", 3.0, graph.get("seconds")),
        *_cluster_targets(tables.get("clusters", ())),
    ]
    return [
        {"measured": words, "result": found, "target": f"{side} {bound}", "met": "yes" if met else "**no**"}
        for words, side, bound, found in targets
        if found is not None
        for met in [found <= bound if side == "at most" else found >= bound]
    ]


def _cluster_targets(rows: Sequence[Row]) -> list[tuple[str, str, float, float]]:
    """Return the targets of clusters found on a device: seconds, and the accuracy relative to the first row."""
    found = []
    for row, limit in zip(rows, (2.0, 60.0), strict=False):
        found.append((f"clusters of {row['images']} images, seconds", "at most", limit, row["seconds"]))
        if row is not rows[0]:
            share = row["accuracy"] / rows[0]["accuracy"]
            found.append((f"accuracy of {row['images']} images, relative", "at least", 0.97, share))
    return found


# --- files -----------------------------------------------------------------------------------------------------
def write_bench(record: Bench, path: Path) -> None:
    """Write the record, its page and, for a full run, its plots."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_record(record, path, bench_page(record))
    if not record["quick"]:
        draw_bench(record, path.parent / "figures")


def write_record(record: Mapping[str, Any], path: Path, page: str) -> None:
    """Write a record as JSON, and its page beside it."""
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page, encoding="utf-8")


def draw_bench(record: Bench, folder: Path) -> None:
    """Draw objective against seconds, and time and memory against sizes, as far as they were measured."""
    import matplotlib as mpl

    mpl.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    if record["curves"]:
        _draw_convergence(record, folder / "bench-convergence.png")
    if all(name in record["tables"] for name in ("images", "atoms", "tube", "memory")):
        _draw_scaling(record, folder / "bench-scaling.png")


def _draw_convergence(record: Bench, path: Path) -> None:
    from matplotlib import pyplot

    groups = record["curves"]
    figure, axes = pyplot.subplots(1, len(groups), figsize=(6 * len(groups), 4), squeeze=False)
    for axis, (title, curves) in zip(axes[0], groups.items(), strict=True):
        best = min(value for curve in curves.values() for _, value in curve)
        for label, curve in curves.items():
            above = [value / best - 1 + 1e-6 for _, value in curve]
            axis.loglog([moment for moment, _ in curve], above, label=label)
        axis.set(title=title, xlabel="seconds", ylabel="objective above the best, relative")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_scaling(record: Bench, path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7))
    labels = {"images": "images", "atoms": "atoms", "tube": "length of the tube"}
    for (name, label), time_axis, memory_axis in zip(labels.items(), axes[0], axes[1], strict=True):
        rows = [row for row in record["tables"][name] if name in row]
        time_axis.loglog([row[name] for row in rows], [row["seconds"] for row in rows], "o-")
        time_axis.set(xlabel=label, ylabel="seconds of 20 steps")
        _label_sizes(time_axis, [row[name] for row in rows])
        _draw_memory(memory_axis, [row for row in record["tables"]["memory"] if row["varied"] == name], name)
        memory_axis.set(xlabel=label, ylabel="peak MB, images included")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_memory(axis: Axes, rows: Sequence[Row], name: str) -> None:
    for weight in sorted({row["graph weight"] for row in rows}):
        some = [row for row in rows if row["graph weight"] == weight]
        sizes, peaks = [row[name] for row in some], [row["peak MB"] for row in some]
        axis.loglog(sizes, peaks, "o-", label=f"graph weight {weight:g}")
    _label_sizes(axis, sorted({row[name] for row in rows}))
    axis.legend()


def _label_sizes(axis: Axes, sizes: Sequence[int]) -> None:
    """Label the measured sizes, and no others."""
    axis.set_xticks(sizes, [f"{size:,}".replace(",", " ") for size in sizes])
    axis.set_xticks([], minor=True)
