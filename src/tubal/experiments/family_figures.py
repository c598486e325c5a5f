"""The family's curves as pictures: rate and distortion, and how far features move with their image."""

from __future__ import annotations

from pathlib import Path

from tubal.experiments.family_words import Summary, title_of


def draw(summary: Summary, folder: Path) -> list[Path]:
    """Draw both kinds of curves of every collection; return the paths."""
    import matplotlib as mpl

    mpl.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [_draw_rate(summary, dataset, folder) for dataset in summary["rate"].get("sparsity_fraction", {})]
    return paths + [_draw_shift(summary, dataset, folder) for dataset in summary["shift"]]


def _color(summary: Summary, method: str) -> str:
    """One colour for a member in every picture."""
    return f"C{list(summary['methods']).index(method)}"


def _draw_rate(summary: Summary, dataset: str, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    panels = (("sparsity_fraction", "nonzero", "non-zero"), ("size", "stored", "stored"))
    for axis, (kind, name, word) in zip(axes, panels, strict=True):
        for method, points in summary["rate"].get(kind, {}).get(dataset, {}).items():
            axis.loglog(
                [max(point[name], 0.5) for point in points], [100 * point["error"] for point in points], marker=".",
                color=_color(summary, method), label=summary["methods"][method],
            )  # fmt: skip
        axis.set_xlabel(f"{word} coefficients an image")
    axes[0].set_ylabel("reconstruction error (% of energy)")
    axes[0].set_title(f"{title_of(dataset)}: sparsity varied")
    axes[1].set_title("size of the dictionary varied")
    axes[0].legend()
    path = folder / f"family-rate-{dataset}.png"
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path


def _draw_shift(summary: Summary, dataset: str, folder: Path) -> Path:
    from matplotlib import pyplot

    ways = summary["shift"][dataset]
    figure, axes = pyplot.subplots(1, len(ways), figsize=(3.6 * len(ways), 3.4), sharey=True, squeeze=False)
    for axis, (way, methods) in zip(axes[0], ways.items(), strict=True):
        for method, points in methods.items():
            axis.plot(
                [int(pixel) for pixel in points], points.values(), marker=".", color=_color(summary, method),
                label=summary["methods"][method],
            )  # fmt: skip
        axis.set_title(way)
        axis.set_xlabel("shift (pixels)")
    axes[0, 0].set_ylabel("relative distance of features")
    axes[0, -1].legend(fontsize=7)
    path = folder / f"family-shift-{dataset}.png"
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path
