"""One image under five models: atoms, code, reconstruction, and the number of coefficients.

Figure 1 of the paper sketches four ways to build an image from atoms. This example draws them from real data: SC,
TenSR, CSC, TubSC and also GTSC learn from the same images and encode the same image.

    python examples/four_models.py --out figure1.png [--images orl | digits | FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from tubal import CSC, GTSC, SparseCoding, TenSR, TubSC


def load(name: str) -> np.ndarray:
    """Return a stack of images: scikit-learn's digits, one of the four collections, or a folder of pictures."""
    from tubal import datasets

    if name == "digits":
        return np.asarray(datasets.load_digits_images().images)
    if Path(name).is_dir():
        return np.asarray(datasets.load_image_folder(name).images)
    return np.asarray(datasets.fetch(name).images)


def models(image_shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the five models, small enough to draw."""
    side = min(image_shape[:2])
    filters = (max(2, side // 4),) * 2
    return {
        "SC\nX ≈ Σ bⱼ Dⱼ": SparseCoding(n_atoms=64, random_state=0),
        "TenSR\nX ≈ D₁ B D₂ᵀ": TenSR(n_atoms=(min(12, side),) * 2, random_state=0),
        "CSC\nX ≈ Σ Dⱼ ⊛ Bⱼ": CSC(n_atoms=16, filter_shape=filters, random_state=0),
        "TubSC\nX = D ∗ B": TubSC(n_atoms=24, random_state=0),
        "GTSC\nTubSC with a graph": GTSC(n_atoms=24, random_state=0),
    }


def atoms_of(model: Any) -> np.ndarray:
    """Return the pictures of the atoms: filters for CSC, whole images for the others."""
    return np.asarray(getattr(model, "filters_", model.atoms_))


def code_picture(model: Any, code: np.ndarray) -> np.ndarray:
    """Return the code of one image as a picture: one row per atom and one column per position, or TenSR's matrix."""
    if isinstance(model, TenSR):
        return code
    if isinstance(model, CSC):  # the nine strongest maps in a grid
        order = np.argsort(-np.abs(code).sum(axis=(1, 2)))[:9]
        rows = [np.concatenate(list(code[order[start : start + 3]]), axis=1) for start in (0, 3, 6)]
        return np.concatenate(rows, axis=0)
    return code.reshape(code.shape[0], -1)


def sheet(pictures: np.ndarray, n_columns: int) -> np.ndarray:
    """Return the pictures in a grid, each scaled to the same contrast."""
    pictures = pictures[: n_columns * n_columns]
    height, width = pictures.shape[1:3]
    tiled = np.zeros((n_columns * (height + 1), n_columns * (width + 1)))
    for place, picture in enumerate(pictures):
        row, column = divmod(place, n_columns)
        grey = picture.mean(axis=2) if picture.ndim == 3 else picture
        top, left = row * (height + 1), column * (width + 1)
        tiled[top : top + height, left : left + width] = grey / (np.abs(grey).max() or 1.0)
    return tiled


def describe(model: Any, image: np.ndarray) -> dict[str, Any]:
    """Return the code of one image, its size, and the reconstruction with its error."""
    code = np.asarray(model.encode(image[None]))
    norm = float(np.linalg.norm(image))
    rebuilt = np.asarray(model.decode(code, norms=[norm]))[0]
    error = float(np.square(image - rebuilt).sum() / np.square(image).sum())
    return {"code": code[0], "rebuilt": rebuilt, "stored": code.size, "nonzero": np.count_nonzero(code), "error": error}


def draw(images: np.ndarray, index: int, out: Path) -> list[str]:
    """Fit the five models, draw them, and return one line of text about each."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    fitted = {name: model.fit(images) for name, model in models(images.shape[1:]).items()}
    figure, axes = pyplot.subplots(3, len(fitted) + 1, figsize=(2.6 * (len(fitted) + 1), 8))
    image, lines = images[index], []
    axes[2, 0].imshow(image, cmap="gray")
    axes[2, 0].set_title(f"the image\n{image.size} pixels")
    for axis, text in zip(axes[:2, 0], ("atoms", "code"), strict=True):
        axis.text(0.5, 0.5, text, ha="center", va="center", fontsize=14)
    for line, (name, model) in zip(axes[:, 1:].T, fitted.items(), strict=True):
        found = describe(model, image)
        line[0].imshow(sheet(atoms_of(model), 4), cmap="gray", vmin=-1, vmax=1)
        line[0].set_title(name)
        picture = code_picture(model, found["code"])
        top = float(np.abs(picture).max()) or 1.0
        line[1].imshow(picture, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
        line[1].set_title(f"{found['nonzero']} of {found['stored']} not zero")
        line[2].imshow(found["rebuilt"], cmap="gray")
        line[2].set_title(f"error {100 * found['error']:.2f} %")
        title = name.split("\n")[0]
        lines.append(
            f"{title}: {found['nonzero']} of {found['stored']} coefficients, error {100 * found['error']:.2f} %"
        )
    for axis in axes.flat:
        axis.set_axis_off()
    figure.savefig(out, dpi=100, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return lines


def main() -> None:
    """Run the example from the command line."""
    parser = argparse.ArgumentParser(description="Draw one image under five models.")
    parser.add_argument("--images", default="digits", help="digits, a collection (orl, coil20, ...), or a folder")
    parser.add_argument("--index", type=int, default=0, help="which image to encode")
    parser.add_argument("--out", type=Path, default=Path("figure1.png"), help="where to write the picture")
    arguments = parser.parse_args()
    for line in draw(load(arguments.images), arguments.index, arguments.out):
        print(line)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
