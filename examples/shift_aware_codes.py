"""Which atoms build an image, and how far are they shifted? Figure 2 of the paper with a learned dictionary.

    python examples/shift_aware_codes.py [FILE.png]

The shapes appear at any horizontal position. Sparse coding needs an atom for every position. A tubal code uses one
atom and says how far it is shifted; what leaves on one side comes back on the other. With a file name the example also
draws atoms learned from handwritten digits, one of them with all its shifts (this needs matplotlib).
"""

import sys

import numpy as np

from tubal import SparseCoding, TubSC
from tubal.datasets import make_shifted_shapes

shapes = make_shifted_shapes(120, n_classes=4, noise=0.02, random_state=0)
shift_aware = TubSC(n_atoms=4, sparsity=0.02, random_state=0).fit(shapes.images)
ordinary = SparseCoding(n_atoms=4, sparsity=0.02, random_state=0).fit(shapes.images)


def relative_error(model) -> float:
    """Return the squared reconstruction error relative to the squared images."""
    unit = shapes.images / np.linalg.norm(shapes.images, axis=(1, 2), keepdims=True)
    return float(((unit - model.decode(model.codes_)) ** 2).sum() / (unit**2).sum())


errors = f"{relative_error(shift_aware):.1%} (TubSC) and {relative_error(ordinary):.1%} (SC)"
print(f"Four atoms approximate {len(shapes.images)} images with an error of {errors}")

image = shapes.images[0]
explanation = shift_aware.explain(image)
kind = shapes.target_names[shapes.target[0]]
print(f"\nimage 0 ({kind}) is a sum of {len(explanation)} shifted atoms; the largest terms:")
for k in range(3):
    atom, shift, coefficient = explanation.atoms[k], explanation.shifts[k], explanation.coefficients[k]
    print(f"  atom {atom}, {shift:2d} pixels to the right, times {coefficient:+.3f}")

# Shifting the image changes the shifts of the atoms; the pooled features (eq. 20) stay nearly the same.
shifted = np.roll(image, 5, axis=1)
before, after = shift_aware.transform(np.stack([image, shifted]))
change = np.linalg.norm(after - before) / np.linalg.norm(before)
print(f"\nwith the image shifted by 5 pixels, features change by {change:.2%}")

if len(sys.argv) > 1:
    from matplotlib import pyplot
    from sklearn.datasets import load_digits

    from tubal import plot

    digits = np.pad(load_digits().images[:900], ((0, 0), (0, 0), (2, 2)))  # empty columns, so that shifts are visible
    model = TubSC(n_atoms=12, sparsity=0.15, random_state=1).fit(digits)
    most_used = int(np.linalg.norm(model.codes_, axis=(0, 2)).argmax())
    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(9, 2.3), layout="constrained")
    plot.atoms(model, n_columns=12, ax=top)
    plot.shifts(model, atom=most_used, n_shifts=12, ax=bottom)
    figure.savefig(sys.argv[1], dpi=110, metadata={"Software": None})
    print("wrote", sys.argv[1])
