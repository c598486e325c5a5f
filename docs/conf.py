"""Settings of the documentation site; ``make docs`` builds it. Nothing is fetched from the network."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "src")]
os.environ.setdefault("MPLBACKEND", "Agg")

from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.ext import autosummary  # noqa: E402
from sphinx_gallery.sorting import FileNameSortKey  # noqa: E402

import tubal  # noqa: E402
from tools.site import escape_shapes, site_links, write_pages  # noqa: E402

project = "tubal"
author = "the tubal developers"
copyright = author
version = release = tubal.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
smartquotes = False  # quotes belong to code more often than to prose here
exclude_patterns = ["_build"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.", "eqs.")  # a summary does not end there
autodoc_typehints = "none"  # numpydoc states the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the template of a class lists them
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"plot_",
    "within_subsection_order": FileNameSortKey,
    "abort_on_example_error": True,  # an example that fails is a failure of the build
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # that page loads scripts from elsewhere
    "default_thumb_file": str(DOCS / "images" / "shifts.png"),
}

html_theme = "pydata_sphinx_theme"
html_title = f"tubal {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "icon_links": [
        {"name": "Source", "url": "https://github.com/tubal-developers/tubal", "icon": "fa-brands fa-github"},
    ],
}
html_sidebars = {"index": [], "start": [], "faq": [], "glossary": [], "comparison": []}


def _lead_links_to_pages(app: Sphinx, name: str, source: list[str]) -> None:
    if app.env.doc2path(name).suffix == ".md" and "/" not in name:
        source[0] = site_links(source[0], "docs")


def _skip_what_others_document(app: Sphinx, kind: str, name: str, item: object, skip: bool, options: object) -> bool:
    """Leave out members that scikit-learn or Python define: their docstrings refer to pages that are not here."""
    if kind in ("class", "method") or callable(item):
        return skip or not str(getattr(item, "__module__", "tubal")).startswith("tubal")
    return skip


def _escape_shapes(app: Sphinx, kind: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Escape what reStructuredText would take for markup in shapes such as (n_iter_,) and (n_atoms, *positions)."""
    lines[:] = escape_shapes(lines)


def setup(app: Sphinx) -> None:
    """Write the generated pages before anything is read."""
    warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
    # Examples make a few iterations only, and a warning would show where the site was built.
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    write_pages(DOCS)
    app.connect("source-read", _lead_links_to_pages)
    app.connect("autodoc-skip-member", _skip_what_others_document)
    app.connect("autodoc-process-docstring", _escape_shapes, priority=400)  # before numpydoc, at 500
