"""Model files with changed values and correct checksums, and a child process with limits that uses them."""

from __future__ import annotations

import collections
import copy
import hashlib
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tubal
from helpers.mutations import repack, unpack
from tubal.solvers import Admm

SECONDS, MEMORY = 5.0, 1 << 30
# What a forger writes in place of a number, a name or a table.
_PLANTS = [
    None, True, False, -1, -2, 0, 1, 2, 3, 7, 63, 10**3, 10**6, 3 * 10**8, 2**31, 2**63, 10**12, 10**400, 1e-300, 0.5,
    1.0, -1.0, 1e18, 1e308, "", "x", "deformable", "paper", [], [0], {}, {"$float": "nan"}, {"$float": "-inf"},
    {"$tuple": []}, {"$tuple": [1, 1]}, {"$array": "a0"},
    {"$object": "Admm", "fields": {"max_iter": 10**5, "tol": 0.0}},
]  # fmt: skip
_NUMBERS = [0, -1, -2, 1, 3 * 10**8, 2**31 - 1, -(2**31), np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-42, 0.5, 1e10]
_TYPES = ["<f4", "<f8", "<f2", "<f16", "<i4", "<i8", "|i1", "|u1", "<u8", "|b1", "<c8", "|S0", "|S1", "<U1", "<U0"]


# --- models to forge -----------------------------------------------------------------------------------------
def small_models(folder: Path) -> dict[str, bytes]:
    """Return the files of small models of several kinds, fitted on digits."""
    from sklearn.datasets import load_digits

    images = (load_digits().images[:40] / 16).astype(np.float32)
    short: dict[str, Any] = {"max_iter": 2, "random_state": 0}
    models = {
        "GTSC": tubal.GTSC(n_atoms=4, graph="deformable", **short),
        "ImageClusterer": tubal.ImageClusterer(random_state=0, n_atoms=5),
        "CSC": tubal.CSC(n_atoms=3, filter_shape=(3, 3), graph_weight=0.1, **short),
        "TenSR": tubal.TenSR(n_atoms=(3, 3), graph_weight=0.1, code_solver=Admm(max_iter=20), **short),
        "paper": tubal.ImageClusterer(3, preset="paper", random_state=np.random.RandomState(0), n_atoms=5, max_iter=2),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = {name: model.fit(images) for name, model in models.items()}
        fitted["TubSC"] = tubal.TubSC(n_atoms=3, random_state=0).partial_fit(images)
    for name, model in fitted.items():
        tubal.save(model, folder / name)
    return {name: (folder / name).read_bytes() for name in fitted}


# --- forging -------------------------------------------------------------------------------------------------
def forge_values(data: bytes, random: np.random.Generator) -> bytes:
    """Return a file in which one to three values of the manifest or of arrays are changed, with correct checksums."""
    manifest, members = unpack(data)
    for _ in range(int(random.integers(1, 4))):
        if random.random() < 0.5:
            _change_manifest(manifest["content"], random)
        else:
            _change_array(manifest, members, random)
    return repack(manifest, members)


def set_value(manifest: dict[str, Any], path: str, value: object) -> None:
    """Replace the value at a dotted path below the content of a manifest."""
    *parents, last = path.split(".")
    tree = manifest["content"]
    for key in parents:
        tree = tree[key]
    tree[last] = value


def set_array(manifest: dict[str, Any], members: dict[str, bytes], path: str, change: Callable[[Any], Any]) -> None:
    """Replace the array at a dotted path by ``change`` of it."""
    tree = manifest["content"]
    for key in path.split("."):
        tree = tree[key]
    name = tree["$array"]
    array = np.load(io.BytesIO(members[f"arrays/{name}.npy"]))
    store_array(manifest, members, name, np.asarray(change(array)))


def store_array(manifest: dict[str, Any], members: dict[str, bytes], name: str, array: np.ndarray) -> None:
    """Store an array under a name, with its checksum."""
    stream = io.BytesIO()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(stream, header)
    member = stream.getvalue() + array.tobytes()
    members[f"arrays/{name}.npy"] = member
    entry = {"dtype": array.dtype.str, "shape": list(array.shape), "size": len(member)}
    manifest["arrays"][name] = entry | {"sha256": hashlib.sha256(member).hexdigest()}


def _leaves(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place (container, key) of a tree of JSON."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _leaves(tree[key])


def _change_manifest(content: Any, random: np.random.Generator) -> None:
    places = list(_leaves(content))
    tree, key = places[int(random.integers(len(places)))]
    if random.random() < 0.1:
        del tree[key]
        return
    if isinstance(tree[key], (int, float)) and random.random() < 0.3:
        factor = [2, -1, 10, 1000, 0.01][int(random.integers(5))]
        tree[key] = type(tree[key])(tree[key] * factor)
        return
    # A copy: the next change may write into it.
    tree[key] = copy.deepcopy(_PLANTS[int(random.integers(len(_PLANTS)))])


def _change_array(manifest: dict[str, Any], members: dict[str, bytes], random: np.random.Generator) -> None:
    names = sorted(manifest["arrays"])
    name = names[int(random.integers(len(names)))]
    array = np.load(io.BytesIO(members[f"arrays/{name}.npy"]))
    kind = int(random.integers(6))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if kind < 3 and array.size:
            flat = array.reshape(-1).copy()
            places = random.integers(flat.size, size=int(random.choice([1, 3, flat.size])))
            number = _NUMBERS[int(random.integers(len(_NUMBERS)))]
            flat[places] = np.array(float(number)).astype(array.dtype)
            array = flat.reshape(array.shape)
        elif kind == 3:
            array = _retyped(array, _TYPES[int(random.integers(len(_TYPES)))])
        elif kind == 4 and array.ndim and len(array):
            array = [array[:-1], array[:0], np.concatenate([array, array]), array[None], array.T, array.reshape(-1)][
                int(random.integers(6))
            ]
        else:
            other = names[int(random.integers(len(names)))]
            array = np.load(io.BytesIO(members[f"arrays/{other}.npy"]))
    store_array(manifest, members, name, array)


def _retyped(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind in "SU" or (name[1] in "SU" and name.endswith("0")):  # an earlier change may have made it text
        return np.zeros(array.shape, name)
    return array.astype(name)


# --- using -----------------------------------------------------------------------------------------------------------
def use_model(model: Any) -> None:
    """Use everything that a loaded model offers, and raise an AssertionError for a result that is not finite."""
    images = (np.random.default_rng(0).integers(0, 256, (3, 8, 8)) / 255).astype(np.float32)
    results: list[Any] = []
    if isinstance(model, tubal.ImageClusterer):
        results += [model.predict(images), model.similar(images).distances, model.labels_for(3)]
        results += [model.kneighbors()[1], model.embedding_, model.model_.encode(images)]
    else:
        codes = model.encode(images)
        results += [codes, model.transform(images), model.decode(codes), model.explain(images[0]).coefficients]
    if hasattr(model, "statistics_"):
        model.partial_fit(images)
        results += [model.atoms_, model.codes_]
    if not all(np.isfinite(np.asarray(found)).all() for found in results):
        raise AssertionError("a result is not finite")


def outcome(path: str | os.PathLike[str]) -> str:
    """Load and use one file; return "refused", "clear error", "used", or what went wrong."""
    try:
        model = tubal.load(path)
    except ValueError as error:
        return "refused" if "\n" not in str(error) else f"not one sentence: {error}"
    except BaseException as error:
        return f"load: {type(error).__name__}: {str(error)[:200]}"
    try:
        use_model(model)
    except (ValueError, TypeError) as error:
        return "clear error" if "\n" not in str(error) else f"not one sentence: {error}"
    except BaseException as error:
        return f"use: {type(error).__name__}: {str(error)[:200]}"
    return "used"


def _child() -> None:
    """Try every file named on standard input under limits of time and memory; print one line for each."""
    import resource
    import signal

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    warm, *_ = sys.argv[1:]
    for name in sorted(Path(warm).iterdir()):  # compiles what the limits must not count, also coding without a graph
        outcome(name)
        model = tubal.load(name)
        if "graph_weight" in model.get_params():
            use_model(model.set_params(graph_weight=0.0))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        found = outcome(line.strip())
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def try_forgeries(
    models: dict[str, bytes], count: int, folder: Path, seed: int | tuple[int, ...]
) -> collections.Counter[str]:
    """Load and use ``count`` forged files in child processes; return how often each outcome came.

    A child that dies is replaced; "crash" and the signal are the outcome of the file that it was using.
    """
    random, names = np.random.default_rng(seed), sorted(models)
    good, forged = folder / "good", folder / "forged"
    good.mkdir(parents=True)
    forged.mkdir()
    for name, data in models.items():
        (good / name).write_bytes(data)
    files = [forged / f"{number}-{names[number % len(names)]}" for number in range(count)]
    for number, path in enumerate(files):
        path.write_bytes(forge_values(models[names[number % len(names)]], random))
    counts: collections.Counter[str] = collections.Counter()
    while files:
        lines, code = _run_child(good, files)
        for path, line in zip(files, lines, strict=False):
            counts[line if line in ("refused", "clear error", "used") else f"{path.name}: {line}"] += 1
        files = files[len(lines) :]
        if files:
            counts[f"{files[0].name}: crash, exit code {code}"] += 1
            files = files[1:]
    return counts


def _run_child(good: Path, files: list[Path]) -> tuple[list[str], int]:
    """Return the outcomes that one child reported, and its exit code."""
    command = [sys.executable, "-c", "from helpers.forgeries import _child; _child()", str(good)]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    run = subprocess.run(
        command, input="\n".join(map(str, files)), capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    if not lines and run.returncode == 1:
        raise AssertionError(f"the child process failed: {run.stderr[-400:]}")
    return lines, run.returncode
