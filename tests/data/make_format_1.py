"""Write the format 1 fixture; run once per format, then only ever read."""

from pathlib import Path

import numpy as np

import tubal
from tubal.solvers import Admm

FOLDER = Path(__file__).parent


def main() -> None:
    """Fit a small model and save it beside this file, with the features it gives."""
    images = np.random.default_rng(7).random((12, 5, 4)).round(3)
    model = tubal.GTSC(n_atoms=3, max_iter=3, n_neighbors=2, random_state=0, code_solver=Admm(max_iter=40)).fit(images)
    tubal.save(model, FOLDER / "format_1.tubal")
    np.save(FOLDER / "format_1_features.npy", model.transform(images[:4] + 0.01))


if __name__ == "__main__":
    main()
