"""Write those pages of the documentation that follow from the code and the records; ``docs/conf.py`` calls it.

The command line reference comes from the commands, the API reference from the public names, and the pages of results
from ``results/``. None of them is committed, so none of them can be out of date.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tubal.cli import COMMANDS, group

ROOT = Path(__file__).parents[1]
SOURCE = "https://github.com/tubal-developers/tubal/blob/main"
# Public modules, each with the title of its page. A name is documented on the first page that has it.
MODULES = {
    "tubal": "Start here: clusters, codes, files",
    "tubal.estimators": "Estimators: codes of images",
    "tubal.clustering": "Clustering, step by step",
    "tubal.graph": "Neighbour graphs",
    "tubal.datasets": "Reading images, and collections",
    "tubal.metrics": "Scores of a clustering",
    "tubal.plot": "Figures",
    "tubal.report": "The report",
    "tubal.storage": "Model files",
    "tubal.solvers": "Solvers",
    "tubal.problems": "Coding and dictionary problems",
    "tubal.learning": "Dictionary learning",
    "tubal.distributed": "Clusters of machines",
    "tubal.algebra": "Algebra of the t-product",
}
RESULTS = {
    "table2": "Table 2 of the paper",
    "table2_search": "The search behind Table 2",
    "table2_finals": "The second stage of that search",
    "claims": "Claims of the paper",
    "atlas": "One setting at a time",
    "protocol": "The frozen protocol",
    "density": "How sparse default fits are",
    "beyond": "Beyond the paper",
    "family": "The family of models",
    "criterion": "Settings judged without labels",
    "piles": "Piles of pictures",
    "open_piles": "Piles that anybody can build",
    "views": "The default on the collections",
    "confidence": "How far to trust a result",
    "hints": "What a few answers are worth",
    "bench": "Speed",
    "gpu": "GPU",
    "app": "tubal open",
    "torture": "Long tests",
    "release": "Release checks",
}


def write_pages(docs: Path) -> None:
    """Write every generated page below ``docs``."""
    (docs / "cli.rst").write_text("\n".join(command_reference()), encoding="utf-8")
    (docs / "api").mkdir(exist_ok=True)
    for name, text in api_pages():
        (docs / "api" / name).write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "results" / "figures", docs / "results" / "figures", dirs_exist_ok=True)
    for name in RESULTS:
        if (ROOT / "results" / f"{name}.md").exists():
            text = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8")
            (docs / "results" / f"{name}.md").write_text(site_links(text, "results"), encoding="utf-8")
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        (docs / f"{name.lower()}.md").write_text(site_links(text), encoding="utf-8")


def site_links(text: str, folder: str = ".") -> str:
    """Return Markdown whose links to files that are not pages of the site lead to the source repository.

    Parameters
    ----------
    text : str
        Markdown of a file in ``folder``.
    folder : str, default="."
        Folder of the file, relative to the root of the repository.

    Returns
    -------
    str
        The same text with other addresses.

    Examples
    --------
    >>> site_links("[a](../results/beyond.md), [b](models.md)", "docs")
    '[a](results/beyond.md), [b](models.md)'
    """

    def replace(match: re.Match[str]) -> str:
        target = (ROOT / folder / match[1]).resolve()
        if "://" in match[1] or not target.is_relative_to(ROOT):
            return match[0]
        path = target.relative_to(ROOT)
        if folder in ("docs", "results") and path.parts[0] == folder:
            return match[0]
        if path.parts[0] == "results" and path.suffix == ".md":
            return f"]({path.as_posix()})"
        if path.parts[0] == "docs":
            return f"]({'../' if folder == 'results' else ''}{path.relative_to('docs').as_posix()})"
        return f"]({SOURCE}/{path.as_posix()})"

    return re.sub(r"\]\(([^)#\s]+)\)", replace, text)


# --- the command line ---------------------------------------------------------------------------------------------
def command_reference() -> Iterator[str]:
    """Yield the lines of the command line reference, in reStructuredText."""
    yield from ("Command line", "============", "")
    context = click.Context(group, info_name="tubal", **group.context_settings)
    yield from _literal(context.get_help())
    for name in COMMANDS:
        command = group.get_command(context, name)
        if command is not None:
            yield from _one_command(command, click.Context(command, info_name=name, parent=context))
    yield from (
        *("Shell completion", "----------------", ""),
        *("The shell completes commands, options, names of collections and files after one of these:", ""),
        *_literal("\n".join(line.strip() for line in _examples(group.get_command(context, "completion")))),
        *("Colour", "------", ""),
        "Progress and tables are coloured only on a terminal. ``NO_COLOR=1`` switches colour off everywhere.",
        *("", "Data folder", "-----------", ""),
        "The four collections lie in the user's data folder by the convention of the platform, as ``tubal datasets``",
        "shows. The environment variable ``TUBAL_DATA`` names another one.",
        "",
    )


def _one_command(command: click.Command, context: click.Context) -> Iterator[str]:
    title = f"tubal {context.info_name}"
    yield from (f".. _{title.replace(' ', '-')}:", "", title, "-" * len(title), "", f".. program:: {title}", "")
    yield from _literal(context.get_usage().removeprefix("Usage: "))
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from _literal(paragraph.removeprefix("\b\n"))
        else:
            yield from (_escape(" ".join(paragraph.split())), "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (f".. option:: {record[0]}", "", f"   {_escape(' '.join(record[1].split()))}", "")


def _literal(text: str) -> Iterator[str]:
    yield from (".. code-block:: text", "", *(f"   {line}".rstrip() for line in text.splitlines()), "")


def _escape(text: str) -> str:
    return re.sub(r"([*`|_\\])", r"\\\1", text)


def _examples(command: click.Command | None) -> list[str]:
    text = inspect.cleandoc(command.help or "") if command else ""
    return text.partition("Examples:\n")[2].splitlines()


def escape_shapes(lines: Sequence[str]) -> list[str]:
    """Return lines of a docstring in which names like ``n_iter_`` and ``*positions`` are no markup; code stays.

    >>> escape_shapes(["shape (n_iter_,)", "(n, *rest) and ``f(*x)``", ">>> f(*x)", "(1, *y)"])
    ['shape (n_iter\\\\_,)', '(n, \\\\*rest) and ``f(*x)``', '>>> f(*x)', '(1, *y)']
    """
    escaped, in_code = [], False
    for line in lines:
        in_code = line.lstrip().startswith(">>>") or (in_code and bool(line.strip()))
        parts = line.split("``")
        if not in_code:
            parts[::2] = [re.sub(r"(?<=\w)_(?=[,)])|(?<=[ (])\*(?=\w+[,)[])", r"\\\g<0>", part) for part in parts[::2]]
        escaped.append("``".join(parts))
    return escaped


# --- the API ------------------------------------------------------------------------------------------------------
def api_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and text of every page of the API reference."""
    entries = "\n".join(f"   {module}" for module in MODULES)
    yield "index.rst", f"API reference\n=============\n\n.. toctree::\n   :maxdepth: 1\n\n{entries}\n"
    seen: dict[tuple[str, str], str] = {}
    for module_name, title in MODULES.items():
        module = importlib.import_module(module_name)
        new, known = [], []
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.ismodule(item):  # it has a page of its own
                continue
            key = (getattr(item, "__module__", module_name), getattr(item, "__qualname__", name))
            if key in seen:
                known.append(f":obj:`{name} <{seen[key]}.{name}>`")
            else:
                seen[key] = module_name
                new.append(f"   {name}")
        heading = f"{module_name}: {title}"
        summary = "\n\n".join(inspect.cleandoc(module.__doc__ or "").split("\n\n"))
        parts = [heading, "=" * len(heading), "", f".. currentmodule:: {module_name}", "", summary, ""]
        if new:
            parts += [".. autosummary::", "   :toctree: generated", "", *new, ""]
        if known:
            parts += [f"Also importable from here: {', '.join(known)}.", ""]
        yield f"{module_name}.rst", "\n".join(parts)
