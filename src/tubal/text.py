"""Wording that messages share: counted nouns, sizes, text that is safe to print. Any module may import this one."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["count", "error_text", "from_table_cell", "printable", "safe_file_name", "shape_text", "table_cell"]

# A spreadsheet takes a cell that begins with one of these for a formula; an apostrophe is added before them.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, in the plural unless the number is one.

    >>> count(1, "picture"), count(12, "picture"), count(0, "class", "classes")
    ('1 picture', '12 pictures', '0 classes')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def shape_text(shape: Iterable[int]) -> str:
    """Return the sides of an array joined by multiplication signs.

    >>> shape_text((48, 64, 3))
    '48×64×3'
    """
    return "×".join(str(side) for side in shape)


def error_text(error: BaseException, *, limit: int = 160) -> str:
    """Return the message of an error in one line of at most ``limit`` characters, or its type if it has none.

    >>> error_text(ValueError("two\\nlines")), error_text(KeyError())
    ('two lines', 'KeyError')
    """
    return " ".join(str(error).split())[:limit] or type(error).__name__


def printable(text: str) -> str:
    """Return text from outside with control characters escaped, so that it cannot steer a terminal.

    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\x0a'
    """
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def table_cell(text: str) -> str:
    """Return text from outside as it is written to a CSV file: a spreadsheet must not take it for a formula.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab, a line break or an apostrophe gets an apostrophe in front.
    :func:`from_table_cell` removes it.

    >>> table_cell("=1+1.png"), table_cell("a=b.png"), table_cell("'quoted'.png")
    ("'=1+1.png", 'a=b.png', "''quoted'.png")
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def from_table_cell(cell: str) -> str:
    """Return the text that :func:`table_cell` was given.

    >>> [from_table_cell(table_cell(text)) for text in ("=1+1.png", "a=b.png", "'quoted'.png", "'=x")]
    ['=1+1.png', 'a=b.png', "'quoted'.png", "'=x"]
    """
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def safe_file_name(text: str) -> str:
    """Return text as part of a file name, without characters that some systems do not allow.

    >>> safe_file_name(" sea / sky. ")
    'sea _ sky'
    """
    return re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", text).strip(" .")[:80].strip(" .")
