"""The page: template, scripts, styles and data joined into one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cache
from importlib.resources import files
from pathlib import Path

from tubal.report.data import ReportData
from tubal.report.payload import choose_sample, encode_payload, to_script_json
from tubal.storage.files import atomic_write

MAX_IMAGES = 2000

STYLES = ("theme.css", "frame.css", "map.css", "cards.css", "numbers.css", "panel.css", "screens.css")

# The script of the page is these files in this order, in one scope.
SCRIPTS = (
    "base.js",
    "data.js",
    "colors.js",
    "edits.js",
    "pictures.js",
    "thumbs.js",
    "camera.js",
    "spread.js",
    "map.js",
    "map_input.js",
    "legend.js",
    "selection.js",
    "gallery.js",
    "atoms.js",
    "panel.js",
    "neighbors.js",
    "charts.js",
    "confusion.js",
    "provenance.js",
    "main.js",
)


def build_report(data: ReportData, *, max_images: int = MAX_IMAGES) -> str:
    """Return the page as text.

    Parameters
    ----------
    data : ReportData
        What the page shows.
    max_images : int, default=2000
        Above this number of images the page shows a sample of every cluster, in proportion to its size, and says so.

    Returns
    -------
    str
        The HTML page. It needs no other file and no network.
    """
    from jinja2 import Environment  # imported here to keep the start of the command line fast

    if max_images < 1:
        raise ValueError(f"max_images is {max_images}; give a number of images to show, at least 1")
    payload = encode_payload(data, choose_sample(data, max_images))
    script, style = _script(), _style()
    template = Environment(autoescape=True).from_string(_asset("template.html.j2"))
    return template.render(
        title=data.title.encode("utf-8", "replace").decode("utf-8"),
        policy=_policy(script, style),
        script=script,
        style=style,
        payload=to_script_json(payload),
    )


def write_report(data: ReportData, path: str | os.PathLike[str], *, max_images: int = MAX_IMAGES) -> Path:
    """Write the page to a file, which appears only when it is complete.

    Parameters
    ----------
    data : ReportData
        What the page shows.
    path : str or path-like
        Where to write; an existing file is replaced.
    max_images : int, default=2000
        Above this number of images the page shows a sample of every cluster, in proportion to its size, and says so.

    Returns
    -------
    pathlib.Path
        The path of the page.
    """
    target = Path(path)
    page = build_report(data, max_images=max_images)
    with atomic_write(target, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(page)
    return target


@cache
def _asset(name: str) -> str:
    return files("tubal.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return "\n".join(_asset(f"css/{name}") for name in STYLES)


@cache
def _script() -> str:
    """Join the scripts inside one function, so that they define no global names."""
    body = "\n".join(_asset(f"js/{name}") for name in SCRIPTS)
    return f'(function () {{\n"use strict";\n{body}\n}})();\n'


def _policy(script: str, style: str) -> str:
    """Return a policy that allows only this script, this style and embedded pictures: no requests, no injected code."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
