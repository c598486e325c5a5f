"""Write the fixture of format 1 with views; run once with the last version that wrote format 1, then only ever read."""

from pathlib import Path

import numpy as np

import tubal

FOLDER = Path(__file__).parent


def main() -> None:
    """Fit a small clusterer that trusts colours, and save it beside this file with some of its answers."""
    random = np.random.default_rng(11)
    levels = random.integers(0, 100, (16, 8, 8, 3))
    levels[::2, ..., 0] += 150
    levels[1::2, ..., 2] += 150
    images = (levels / 255).astype(np.float32)
    model = tubal.ImageClusterer(2, n_atoms=3, views=["colour"], random_state=0).fit(images)
    tubal.save(model, FOLDER / "format_1_views.tubal")
    new = images[:4] * np.float32(0.9)
    found = model.similar(new)
    answers = {"labels": model.labels_, "neighbors": found.indices, "distances": found.distances}
    np.savez_compressed(FOLDER / "format_1_views.npz", images=images, new=new, **answers)


if __name__ == "__main__":
    main()
