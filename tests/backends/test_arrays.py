"""NumPy and torch give the same numbers, and every function returns the library it was given."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits

from tubal import GTSC, GraphSC, SparseCoding, TubSC
from tubal.backends import arrays as backend_module
from tubal.backends.arrays import (
    as_double,
    as_like,
    irfft,
    is_floating,
    is_torch,
    machine_epsilon,
    namespace,
    rfft,
    sparse_like,
    to_device,
    to_numpy,
)
from tubal.problems.base import atom_norms, project_to_ball, soft_threshold
from tubal.problems.layout import position_norms, signed_codes, unit_rows

ALL = [TubSC, GTSC, SparseCoding, GraphSC]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed: pip install 'tubal[torch]'")


@pytest.fixture(scope="module")
def digits():
    return load_digits().images[:60].astype(np.float64)


# --- estimators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL)
def test_tensors_give_the_same_codes(torch, digits, estimator):
    parameters = {"n_atoms": 8, "max_iter": 3, "random_state": 0}
    ours, theirs = estimator(**parameters).fit(digits), estimator(**parameters).fit(torch.as_tensor(digits))
    for name in ("atoms_", "codes_"):
        assert isinstance(getattr(theirs, name), torch.Tensor)
    # The two libraries solve the graph systems with different accuracy, so few steps agree only roughly.
    tolerance = 1e-8 if estimator in (TubSC, SparseCoding) else 2e-2
    assert_allclose(theirs.objective_[:-1], ours.objective_[:-1], rtol=tolerance)
    # Both stop as soon as their codes are certified, which rounding may delay by a few steps.
    assert_allclose(theirs.objective_[-1], ours.objective_[-1], rtol=max(1e-3, 0.6 * tolerance))


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_outputs_are_tensors_of_the_input_type(torch, digits, estimator, kind):
    images = torch.as_tensor(digits).to(getattr(torch, kind))
    model = estimator(n_atoms=8, max_iter=2, random_state=0)
    returned = {
        "features": model.fit_transform(images), "atoms": model.atoms_, "codes": model.codes_,
        "transform": model.transform(images[:5]), "new": model.transform(images[:5] + 1.0),
        "encode": model.encode(images[:5]), "decode": model.decode(model.codes_),
    }  # fmt: skip
    for name, value in returned.items():
        assert isinstance(value, torch.Tensor), name
        assert value.dtype == images.dtype, name
        assert value.device == images.device, name
    tolerance = 1e-5 if kind == "float32" else 1e-10  # rounding may differ in a smaller batch
    assert_allclose(to_numpy(returned["encode"]), to_numpy(model.codes_[:5]), atol=tolerance)


@pytest.mark.parametrize("kind", ["uint8", "int64", "bool", "float16", "bfloat16"])
def test_other_types_compute_in_single_precision(torch, digits, kind):
    images = torch.as_tensor(digits).to(getattr(torch, kind))
    assert TubSC(n_atoms=4, max_iter=1, random_state=0).fit(images).codes_.dtype == torch.float32


@pytest.mark.parametrize("estimator", [TubSC, GTSC])
def test_arrays_and_tensors_mix_between_fit_and_encode(torch, digits, estimator):
    for fitted, new_images in [(digits, torch.as_tensor(digits)), (torch.as_tensor(digits), digits)]:
        model = estimator(n_atoms=8, max_iter=2, random_state=0).fit(fitted)
        codes = model.encode(new_images[:6])
        assert is_torch(codes) == is_torch(new_images)
        # Both are certified to a thousandth of the objective, by different solvers.
        assert_allclose(to_numpy(codes), to_numpy(model.codes_)[:6], atol=5e-3)
        assert np.isfinite(to_numpy(model.transform(new_images[:6] + 1.0))).all()


def test_fitting_arrays_never_loads_torch():
    code = (
        "import sys, numpy as np\nfrom tubal import GTSC\n"
        "GTSC(n_atoms=3, max_iter=1).fit(np.random.rand(9, 4, 5))\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_torch_gradients_are_not_tracked(torch, digits):
    images = torch.as_tensor(digits).requires_grad_()
    model = TubSC(n_atoms=4, max_iter=1, random_state=0).fit(images.detach())
    assert not model.codes_.requires_grad


# --- functions --------------------------------------------------------------------------------------------------------


def test_namespace_returns_the_library_of_the_array(torch):
    assert namespace(np.zeros(2)) is np
    assert namespace(torch.zeros(2)) is torch
    assert not is_torch(np.zeros(2))
    assert is_torch(torch.zeros(2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conversions_keep_library_and_type(backend, dtype):
    reference = backend(np.zeros(2, dtype))
    for values in ([1.0, 2.0], np.array([1, 2])):
        found = as_like(values, reference)
        assert type(found) is type(reference)
        assert found.dtype == reference.dtype
    assert to_numpy(as_double(reference)).dtype == np.float64
    assert to_numpy(as_double(rfft(reference, axis=0))).dtype == np.complex128
    assert machine_epsilon(reference) == np.finfo(dtype).eps
    assert is_floating(reference)
    assert not is_floating(backend(np.zeros(2, np.int64)))


@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_transforms_equal_numpy(rng, backend, length):
    signal = rng.normal(size=(length, 3))
    spectrum = rfft(backend(signal), axis=0)
    assert_allclose(to_numpy(spectrum), np.fft.rfft(signal, axis=0), atol=1e-12)
    assert_allclose(to_numpy(irfft(spectrum, length, axis=0)), signal, atol=1e-12)


def test_sparse_products_equal_scipy(torch, rng):
    matrix = sparse.random(7, 7, 0.4, format="csr", random_state=0)
    dense = torch.as_tensor(rng.normal(size=(7, 3)))
    assert_allclose(to_numpy(sparse_like(matrix, dense) @ dense), matrix @ to_numpy(dense), atol=1e-12)


def test_cpu_device_returns_the_array():
    array = np.zeros(3)
    assert to_device(array, "cpu") is array
    if not backend_module._cuda_is_likely():
        assert to_device(array, "auto") is array


def test_missing_gpu_raises(torch):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ValueError, match=r"'cuda'.*'auto' or 'cpu'"):
        to_device(np.zeros(3), "cuda")


def test_norms_and_thresholds_equal_numpy(rng, backend):
    values = rng.normal(size=(4, 3, 5))
    array = backend(values)
    assert_allclose(to_numpy(soft_threshold(array, 0.5)), np.sign(values) * np.maximum(abs(values) - 0.5, 0))
    assert_allclose(to_numpy(atom_norms(array)), np.sqrt((values**2).sum((0, 1))))
    assert to_numpy(atom_norms(project_to_ball(array))).max() <= 1.0 + 1e-12
    assert_allclose(to_numpy(position_norms(array)), np.sqrt((values**2).sum(2)))
    assert_allclose(to_numpy(position_norms(array[:, :, 0])), abs(values[:, :, 0]))
    assert_array_equal(to_numpy(signed_codes(array)), values.reshape(4, 15))
    features = values[:, :, 0].copy()
    features[2] = 0.0
    rows = to_numpy(unit_rows(backend(features)))
    assert_allclose(np.linalg.norm(rows, axis=1), [1.0, 1.0, 0.0, 1.0])
