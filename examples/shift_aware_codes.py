"""Which atoms, at which shifts, build an image? The paper's Figure 2 from a learned dictionary.

    python examples/shift_aware_codes.py [FILE.png]

Shapes appear anywhere along the width. Ordinary sparse coding needs an atom for every place; a tubal code uses one
atom and says how far it has been moved around its circle. With a file name, atoms of the handwritten digits are drawn,
one of them at all its shifts (matplotlib).
"""

import sys

import numpy as np

from tubal import SparseCoding, TubSC
from tubal.datasets import make_shifted_shapes

shapes = make_shifted_shapes(120, n_classes=4, noise=0.02, random_state=0)
shift_aware = TubSC(n_atoms=4, sparsity=0.02, random_state=0).fit(shapes.images)
ordinary = SparseCoding(n_atoms=4, sparsity=0.02, random_state=0).fit(shapes.images)


def left_over(model) -> float:
    """Share of the images' energy that the codes do not explain."""
    unit = shapes.images / np.linalg.norm(shapes.images, axis=(1, 2), keepdims=True)
    return float(((unit - model.decode(model.codes_)) ** 2).sum() / (unit**2).sum())


shares = f"{left_over(shift_aware):.1%} (TubSC) and {left_over(ordinary):.1%} (SC)"
print(f"Four atoms for {len(shapes.images)} images leave over {shares} of their energy")

image = shapes.images[0]
explanation = shift_aware.explain(image)
print(f"\nimage 0 ({shapes.target_names[shapes.target[0]]}) is a sum of {len(explanation)} shifted atoms; the largest:")
for k in range(3):
    atom, shift, coefficient = explanation.atoms[k], explanation.shifts[k], explanation.coefficients[k]
    print(f"  atom {atom}, {shift:2d} pixels to the right, times {coefficient:+.3f}")

# Move the image and only the shifts move; the pooled features (eq. 20) hardly change, if at all.
moved = np.roll(image, 5, axis=1)
before, after = shift_aware.transform(np.stack([image, moved]))
print(f"\nmoved by 5 pixels, features change by {np.linalg.norm(after - before) / np.linalg.norm(before):.2%}")

if len(sys.argv) > 1:
    from matplotlib import pyplot
    from sklearn.datasets import load_digits

    from tubal import plot

    digits = np.pad(load_digits().images[:900], ((0, 0), (0, 0), (2, 2)))  # room to move
    model = TubSC(n_atoms=12, sparsity=0.15, random_state=1).fit(digits)
    most_used = int(np.linalg.norm(model.codes_, axis=(0, 2)).argmax())
    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(9, 2.3), layout="constrained")
    plot.atoms(model, n_columns=12, ax=top)
    plot.shifts(model, atom=most_used, n_shifts=12, ax=bottom)
    figure.savefig(sys.argv[1], dpi=110, metadata={"Software": None})
    print("drawn to", sys.argv[1])
