"""What every page of results needs: tables in Markdown, and blocks of the README made from results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tubal.storage.files import atomic_write


def markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_block(text: str, name: str, block: str) -> str:
    """Return a text with what stands between its markers ``name`` replaced.

    >>> with_block("a <!-- t:begin --> old <!-- t:end --> z", "t", "new").split()[4]
    'new'
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the README must hold the lines {begin} and {end} once, in this order")
    return f"{text[: text.index(begin)]}{begin}\n{block}\n{text[text.index(end) :]}"


def replace_block(readme: Path, name: str, block: str) -> None:
    """Replace the block ``name`` of a README, or leave the file as it is with an error."""
    text = with_block(readme.read_text(encoding="utf-8"), name, block)
    with atomic_write(readme, "w", encoding="utf-8") as file:
        file.write(text)
