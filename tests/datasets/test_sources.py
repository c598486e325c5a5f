"""``load_images`` finds the stack of images in array files, and reads pictures and collections by name."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from tubal.datasets import data_folder, fetch
from tubal.datasets.loading import load_images


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, size=(20, 9, 6), dtype=np.uint8)


def test_npy_and_npz_files_are_read(tmp_path: Path, images: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "b.npz", pictures=images, y=np.arange(20) % 3, scalar=3.0)
    for name in ("a.npy", "b.npz"):
        stack = load_images(tmp_path / name)
        assert_allclose(stack.images, images / 255.0, atol=1e-7)
        assert stack.images.dtype == np.float32
        assert stack.names[1] == f"{name}#2"
    assert_array_equal(stack.target, np.arange(20) % 3)
    assert load_images(tmp_path / "a.npy").target is None


def test_channels_are_read_first_or_last(tmp_path: Path) -> None:
    colour = np.random.default_rng(1).random((5, 8, 7, 3)).astype(np.float32)
    np.save(tmp_path / "last.npy", colour)
    np.save(tmp_path / "first.npy", np.moveaxis(colour, -1, 1))
    np.save(tmp_path / "single.npy", colour[..., :1])
    assert_allclose(load_images(tmp_path / "last.npy").images, colour)
    assert_allclose(load_images(tmp_path / "first.npy").images, colour)
    assert_allclose(load_images(tmp_path / "single.npy").images, colour[..., 0])
    assert load_images(tmp_path / "last.npy", colour="grey").images.shape == (5, 8, 7)


def test_axis_of_images_is_detected(tmp_path: Path) -> None:
    np.save(tmp_path / "first.npy", np.random.default_rng(5).random((12, 12, 10)))
    assert load_images(tmp_path / "first.npy").images.shape == (12, 12, 10)
    np.save(tmp_path / "last.npy", np.random.default_rng(5).random((12, 12, 100)))
    stack = load_images(tmp_path / "last.npy")
    assert stack.images.shape == (100, 12, 12)
    assert "along the last axis" in stack.rule


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_matlab_files_are_column_major(tmp_path: Path, version: str) -> None:
    square = np.random.default_rng(2).random((30, 8, 8))
    # MATLAB's fea has one image per row; reshape(row, 8, 8) fills columns first.
    fea = np.stack([image.flatten(order="F") for image in square])
    gnd = np.arange(30.0)[:, None] % 5
    path = tmp_path / "faces.mat"
    write_matlab(path, {"fea": fea, "gnd": gnd}, version)
    stack = load_images(path)
    assert_allclose(stack.images, square, atol=1e-6)
    assert_array_equal(stack.target, gnd.ravel())
    assert "column by column" in stack.rule
    write_matlab(path, {"fea": fea.T}, version)  # one image per column, as in Yale
    assert_allclose(load_images(path).images, square, atol=1e-6)
    write_matlab(path, {"cube": np.moveaxis(square, 0, -1)}, version)
    assert_allclose(load_images(path).images, square, atol=1e-6)
    write_matlab(path, {"cube": square}, version)  # images first: unusual for MATLAB, but unambiguous
    assert_allclose(load_images(path).images, square, atol=1e-6)


def write_matlab(path: Path, arrays: dict[str, np.ndarray], version: str) -> None:
    if version == "5":
        scipy_io = pytest.importorskip("scipy.io")
        scipy_io.savemat(path, arrays)
        return
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array.T).attrs["MATLAB_class"] = np.bytes_("double")


def test_hdf5_arrays_can_be_joined(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    rows = np.random.default_rng(3).random((10, 16)).astype(np.float32)
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        file["train/data"], file["test/data"] = rows[:7], rows[7:]
        file["elsewhere"] = h5py.ExternalLink("/etc/hostname", "/")
    with pytest.raises(ValueError, match=r"several arrays.*name one with variable="):
        load_images(tmp_path / "digits.h5")
    stack = load_images(tmp_path / "digits.h5", variable="train/data, test/data")
    assert_allclose(stack.images, rows.reshape(10, 4, 4))


def test_rows_need_a_shape_unless_square(tmp_path: Path, images: np.ndarray) -> None:
    np.save(tmp_path / "rows.npy", images.reshape(20, -1))
    with pytest.raises(ValueError, match="no stack of images"):
        load_images(tmp_path / "rows.npy")
    stack = load_images(tmp_path / "rows.npy", image_shape=(9, 6))
    assert_allclose(stack.images, images / 255.0, atol=1e-7)


def test_stack_and_folder_are_resized_alike(tmp_path: Path) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, size=(2, 130, 260), dtype=np.uint8)
    np.save(tmp_path / "large.npy", pixels)
    (tmp_path / "folder").mkdir()
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "folder" / f"{i}.png")
    stack, folder = load_images(tmp_path / "large.npy", size=64), load_images(tmp_path / "folder", size=64)
    assert stack.images.shape == folder.images.shape == (2, 32, 64)
    assert np.abs(stack.images - folder.images).max() < 0.05
    assert "resized from 130×260 to 32×64" in stack.rule
    # By default arrays, whose size somebody chose, stay larger than pictures in files.
    assert load_images(tmp_path / "large.npy").images.shape == (2, 32, 64)
    assert load_images(tmp_path / "folder").images.shape == (2, 16, 32)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"objects\.npy"):
        load_images(tmp_path / "objects.npy")
    np.savez(tmp_path / "objects.npz", images=np.array([[{"a": 1}]], dtype=object))
    with pytest.raises(ValueError, match="no stack of images"):
        load_images(tmp_path / "objects.npz")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.mat", "a.h5", "a.png", "a.tif"])
@pytest.mark.parametrize("body", [b"", b"not what the name says", b"\x93NUMPY\x01\x00\xff\xff"])
def test_wrong_file_contents_raise(tmp_path: Path, name: str, body: bytes) -> None:
    if name == "a.h5":
        pytest.importorskip("h5py", reason="h5py is not installed: pip install 'tubal[io]'")
    (tmp_path / name).write_bytes(body)
    with pytest.raises(ValueError, match=re.escape(name)):
        load_images(tmp_path / name)


def test_huge_array_is_an_error(tmp_path: Path) -> None:
    header = io.BytesIO()
    claim = {"descr": "|u1", "fortran_order": False, "shape": (10_000_000, 64, 64)}
    np.lib.format.write_array_header_1_0(header, claim)
    (tmp_path / "a.npy").write_bytes(header.getvalue() + b"\0" * 64)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue() + b"\0" * 64)
    with pytest.raises(ValueError, match=r"a\.npy"):
        load_images(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"a\.npz.*GiB"):
        load_images(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[[0, 65535]]], dtype=np.uint16), [0, 1]),
        (np.array([[[0.0, 200.0]]]), [0, 200 / 255]),
        (np.array([[[-1.0, 3.0]]]), [0, 1]),
        (np.array([[[0, 16]]], dtype=np.int64), [0, 1]),
        (np.array([[[0, 1]]], dtype=np.uint8), [0, 1]),
        (np.array([[[False, True]]]), [0, 1]),
    ],
)
def test_values_are_scaled_to_unit_interval(tmp_path: Path, values: np.ndarray, expected: list[float]) -> None:
    np.save(tmp_path / "a.npy", values)
    assert_allclose(load_images(tmp_path / "a.npy").images.ravel(), expected, atol=1e-6)


def test_empty_array_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 8, 8)))
    with pytest.raises(ValueError, match="holds no images"):
        load_images(tmp_path / "a.npy", variable="array")


def test_nan_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((2, 4, 4), np.nan))
    with pytest.raises(ValueError, match="NaN"):
        load_images(tmp_path / "a.npy")


def test_load_images_reads_collections_and_multipage_tiffs(tmp_path: Path) -> None:
    digits = load_images("digits")
    assert digits.images.shape == (1797, 8, 8)
    assert digits.target is not None
    with pytest.raises(FileNotFoundError, match="did you mean 'digits'"):
        load_images("digit")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        load_images(tmp_path / "nowhere.png")
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(ValueError, match="kind of file that cannot be read"):
        load_images(tmp_path / "a.docx")
    pages = [Image.fromarray(np.full((6, 5), i, dtype=np.uint8)) for i in range(3)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert load_images(tmp_path / "a.tif").names == ["a.tif#1", "a.tif#2", "a.tif#3"]


@pytest.mark.collection("orl", "yale", "coil20")
def test_array_files_agree_with_fetchers() -> None:
    for name, file in (("orl", "ORL.mat"), ("yale", "Yale_64x64.mat"), ("coil20", "COIL20.mat")):
        assert_allclose(load_images(data_folder() / file).images, fetch(name).images, atol=1e-6)


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_hdf5_reads_no_other_file(tmp_path: Path, kind: str) -> None:
    h5py = pytest.importorskip("h5py")
    secret = np.random.default_rng(5).integers(0, 256, size=(4, 8, 8), dtype=np.uint8)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["images"] = secret
        offset = file["images"].id.get_offset()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if kind == "external":
            place = [(str(tmp_path / "secret.h5"), offset, secret.size)]
            file.create_dataset("images", secret.shape, "u1", external=place)
        else:
            layout = h5py.VirtualLayout(secret.shape, "u1")
            layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "images", secret.shape)
            file.create_virtual_dataset("images", layout)
        file["y"] = np.arange(4)
        file["other"] = np.zeros((4, 8, 8), dtype=np.uint8)
    with pytest.raises(ValueError, match=r"'images' in 'a\.h5' lie in other files"):
        load_images(tmp_path / "a.h5")
    assert not load_images(tmp_path / "a.h5", variable="other").images.any()


def test_labels_are_read_from_no_other_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    np.arange(4).tofile(tmp_path / "secret")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = np.zeros((4, 8, 8), dtype=np.uint8)
        file.create_dataset("y", (4,), "i8", external=[(str(tmp_path / "secret"), 0, 32)])
    assert load_images(tmp_path / "a.h5").target is None


def test_incomplete_npy_file_says_how_much_came(tmp_path: Path) -> None:
    file = tmp_path / "scans.npy"
    np.save(file, np.zeros((20, 8, 8), np.float32))
    whole = file.read_bytes()
    file.write_bytes(whole[:3000])
    with pytest.raises(ValueError, match=f"incomplete: it has 3000 bytes, and {len(whole)} by its header; copy"):
        load_images(file)
    file.write_bytes(whole[:60])
    with pytest.raises(ValueError, match="incomplete: it ends within its header; copy"):
        load_images(file)
