"""The built site: links lead somewhere, no network is needed, axe-core finds nothing. ``make docs-check`` runs this."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

from helpers.browser import axe_violations, chromium, js, prefer, resize, wait

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built: make docs"),
]
# One page of every kind.
MAIN_PAGES = (
    "index", "start", "guide", "open", "models", "theory", "scale", "interoperability", "comparison", "faq", "glossary",
    "architecture", "results", "results/piles", "gallery/index", "gallery/plot_01_digits", "api/index", "api/tubal",
    "cli", "about", "trial", "changelog", "contributing",
)  # fmt: skip


class _Addresses(HTMLParser):
    """Collects the names that a page can be entered at, and the addresses that it leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.names |= {name for key in ("id", "name") if (name := found.get(key))}
        self.addresses |= {address for key in ("href", "src") if (address := found.get(key))}


@pytest.fixture(scope="module")
def pages() -> dict[Path, _Addresses]:
    """What every page of the site holds."""
    parsed = {}
    for path in (path for path in SITE.rglob("*.html") if "_static" not in path.parts):  # templates of the theme
        parsed[path.resolve()] = parser = _Addresses()
        parser.feed(path.read_text(encoding="utf-8"))
    return parsed


def _goes_nowhere(page: Path, address: str, pages: dict[Path, _Addresses]) -> bool:
    target, anchor = urldefrag(address)
    path = (page.parent / unquote(target.partition("?")[0])).resolve() if target else page
    if not path.is_file():
        return True
    return bool(anchor) and path in pages and unquote(anchor) not in pages[path].names


def test_every_link_within_the_site_leads_somewhere(pages):
    outside = ("http:", "https:", "mailto:", "data:", "javascript:")
    broken = [
        f"{page.relative_to(SITE.resolve())}: {address}"
        for page, found in pages.items()
        for address in sorted(found.addresses)
        if not address.startswith(outside) and address != "#" and _goes_nowhere(page, address, pages)
    ]
    assert broken == []


def test_no_page_shows_where_it_was_built():
    root = str(SITE.parents[2])
    assert [path.name for path in SITE.rglob("*.html") if root in path.read_text(encoding="utf-8")] == []


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", MAIN_PAGES)
def test_page_is_accessible_and_fits_the_window(browser, page, width, scheme):
    resize(browser, width, 844, phone=width < 500)
    prefer(browser, color_scheme=scheme)
    browser.get((SITE / f"{page}.html").as_uri())
    # Colours fade to those of the scheme; half-way between two schemes nothing can be read.
    js(browser, "document.getAnimations().forEach(animation => animation.finish())")

    violations, passed = axe_violations(browser)

    assert js(browser, "return document.documentElement.dataset.theme") == scheme
    assert violations == []
    assert {"color-contrast", "document-title"} <= set(passed)  # a check that did not run is no success
    assert js(browser, "return document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_pages_need_no_network(browser):
    browser.get_log("performance")
    for page in MAIN_PAGES:
        browser.get((SITE / f"{page}.html").as_uri())
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert len(asked) > len(MAIN_PAGES)
    assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.browser
def test_search_works_offline(browser):
    browser.get((SITE / "search.html").as_uri() + "?q=duplicates")
    found = "return [...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
    assert wait(lambda: js(browser, found), "the results of the search")
