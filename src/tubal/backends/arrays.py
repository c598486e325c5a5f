"""Arrays: one set of functions for NumPy and torch, and threads that work on ranges of an array.

Most code needs only ``xp = namespace(array)``, because NumPy 2 and torch share enough of the array API. Torch is never
imported before the user passes a tensor or asks for a device; afterwards it is found in ``sys.modules``.

The second part divides work among threads: how many to use, BLAS limited to one thread while they work, and threads
that wait for work. The last part uses memory again, because the system must clear every new page before an array can
use it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, lru_cache
from itertools import pairwise
from math import prod
from queue import SimpleQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import scipy.sparse as sp
    from threadpoolctl import ThreadpoolController

# A numpy.ndarray or a torch.Tensor. A function returns the kind it was given. Type checkers see no common base class of
# the two, hence Any.
Array: TypeAlias = Any
# Any sparse array or matrix of SciPy.
SparseMatrix: TypeAlias = "sp.sparray | sp.spmatrix"

# Numbers that a thread copies or counts at a time, at least.
_COPIED_AT_A_TIME = 2**17

Value = TypeVar("Value")
Result = TypeVar("Result")


# --- which library ----------------------------------------------------------------------------------------------------
def is_torch(array: object) -> bool:
    """Return whether ``array`` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(array: Array) -> ModuleType:
    """Return the module, ``numpy`` or ``torch``, whose functions apply to ``array``.

    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    return sys.modules["torch"] if is_torch(array) else np


def is_floating(array: Array) -> bool:
    """Return whether the array holds real floating-point numbers."""
    return bool(array.dtype.is_floating_point) if is_torch(array) else array.dtype.kind == "f"


def machine_epsilon(array: Array) -> float:
    """Return the rounding unit of the array's floating type."""
    return float(namespace(array).finfo(array.dtype).eps)


# --- to NumPy, and back -----------------------------------------------------------------------------------------------
def to_numpy(array: Array) -> NDArray[Any]:
    """Return ``array`` as a NumPy array, copied from its device if necessary."""
    if not is_torch(array):
        return np.asarray(array)
    if not array.is_cuda:
        return cast("NDArray[Any]", array.detach().cpu().numpy())
    # Memory of NumPy has large pages, which the system provides faster than the small ones of torch.
    torch = sys.modules["torch"]
    host = np.empty(tuple(array.shape), torch.empty(0, dtype=array.dtype).numpy().dtype)
    torch.as_tensor(host).copy_(array.detach())
    return host


def to_numpy_meanwhile(array: Array) -> tuple[NDArray[Any], Callable[[], None]]:
    """Return an array that another thread fills from a tensor on a GPU, and a function that waits until it is full.

    The copy does not wait for work that the GPU is given after this call, nor that work for the copy.
    """
    torch = sys.modules["torch"]
    host = np.empty(tuple(array.shape), torch.empty(0, dtype=array.dtype).numpy().dtype)
    stream = torch.cuda.Stream(array.device)
    stream.wait_stream(torch.cuda.current_stream(array.device))

    def copy() -> None:
        with torch.cuda.stream(stream):
            torch.as_tensor(host).copy_(array.detach())

    filled = _copier().submit(copy)
    return host, filled.result


@cache
def _copier() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="tubal")


def to_numpy_together(*arrays: Array) -> list[NDArray[Any]]:
    """Return arrays of one type as NumPy arrays; tensors are copied from their device in one transfer."""
    if not is_torch(arrays[0]):
        return [np.asarray(array) for array in arrays]
    whole = to_numpy(sys.modules["torch"].cat([array.reshape(-1) for array in arrays]))
    ends = np.cumsum([array.numel() for array in arrays])
    parts = np.split(whole, ends[:-1])
    return [part.reshape(tuple(array.shape)) for part, array in zip(parts, arrays, strict=True)]


def as_like(values: ArrayLike | Array, reference: Array) -> Array:
    """Return ``values`` as an array of the library, device and type of ``reference``."""
    if is_torch(reference):
        torch = sys.modules["torch"]
        if isinstance(values, np.ndarray) and reference.dtype == torch.float32:
            values = values.astype(np.float32, copy=False)  # torch would start all its threads for this conversion
        return torch.as_tensor(values, dtype=reference.dtype, device=reference.device)
    return np.asarray(to_numpy(values), dtype=reference.dtype)


def as_complex_like(values: Array, reference: Array) -> Array:
    """Return complex ``values`` in the precision and on the device of ``reference``, a real array."""
    if is_torch(reference):
        torch = sys.modules["torch"]
        kind = torch.complex64 if reference.dtype == torch.float32 else torch.complex128
        return torch.as_tensor(values, dtype=kind, device=reference.device)
    return np.asarray(to_numpy(values), np.complex64 if reference.dtype == np.float32 else np.complex128)


def restore_like(value: Value, reference: Array) -> Value | Array:
    """Return a NumPy array in the library and on the device of ``reference``, its type unchanged.

    Any other value is returned as it is.
    """
    if not isinstance(value, np.ndarray) or not is_torch(reference):
        return value
    # Torch warns of arrays that cannot be written to.
    return sys.modules["torch"].as_tensor(value if value.flags.writeable else value.copy(), device=reference.device)


def constant_like(make: Callable[[int], NDArray[np.float64]], size: int, reference: Array) -> Array:
    """Return ``make(size)``, a constant, as an array like ``reference``. Tensors are cached: do not change them.

    Sending even nine numbers to a GPU takes as long as one ADMM step, so a device receives each constant once.
    """
    if is_torch(reference):
        return _constant_tensor(make, size, reference.dtype, reference.device)
    return np.asarray(make(size), dtype=reference.dtype)


@lru_cache(maxsize=64)
def _constant_tensor(make: Callable[[int], NDArray[np.float64]], size: int, dtype: object, device: object) -> Array:
    return sys.modules["torch"].as_tensor(make(size), dtype=dtype, device=device)


def to_device(array: NDArray[Any], device: str) -> Array:
    """Return ``array`` for ``device``: "cpu" leaves it as it is, "cuda" makes a tensor, "auto" uses a GPU if present.

    >>> to_device(np.zeros(3), "cpu").shape
    (3,)
    """
    if device == "cpu" or (device == "auto" and not _cuda_is_likely()):
        return array
    try:
        import torch
    except ImportError:
        if device == "auto":
            return array
        raise ImportError("device 'cuda' needs PyTorch; install it: pip install 'tubal[torch]'") from None
    if not torch.cuda.is_available():
        if device == "auto":
            return array
        raise ValueError("device is 'cuda' but PyTorch finds no usable GPU; use 'auto' or 'cpu'")
    return torch.as_tensor(array, device="cuda")


def _cuda_is_likely() -> bool:
    # Importing torch takes a second or more. Without the driver's device file there is no need to try.
    return os.name == "nt" or os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")


# --- precision and memory ---------------------------------------------------------------------------------------------
def as_double(array: Array) -> Array:
    """Return ``array`` in double precision; real stays real, complex stays complex."""
    if is_torch(array):
        torch = sys.modules["torch"]
        return array.to(torch.complex128 if array.is_complex() else torch.float64)
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64, copy=False)


def as_complex(real: Array, imag: Array) -> Array:
    """Return ``real + i imag`` of two real arrays."""
    if is_torch(real):
        return sys.modules["torch"].complex(real, imag)
    joined = np.empty(real.shape, np.result_type(real, np.complex64))
    joined.real, joined.imag = real, imag
    return joined


def contiguous(array: Array) -> Array:
    """Return the array in C order, copied if necessary; threads share a large one of NumPy along its first axis."""
    if is_torch(array):
        return array.contiguous()
    if array.flags.c_contiguous or array.size <= _COPIED_AT_A_TIME:
        return np.ascontiguousarray(array)
    copy = np.empty(array.shape, array.dtype)

    def fill(start: int, stop: int) -> None:
        copy[start:stop] = array[start:stop]

    with own_threads() as threads:
        grain = max(1, _COPIED_AT_A_TIME * len(array) // array.size)
        parallel_ranges(fill, len(array), grain=grain, threads=threads)
    return copy


def count_nonzero(array: Array) -> int:
    """Return how many entries are not zero; threads share a large array of NumPy along its first axis.

    >>> count_nonzero(np.array([[0.0, 2.0], [3.0, 0.0]]))
    2
    """
    if is_torch(array):
        return int(array.count_nonzero())

    def count(start: int, stop: int) -> int:
        return int(np.count_nonzero(array[start:stop] != 0))  # faster than counting the numbers themselves

    with own_threads() as threads:
        grain = max(1, _COPIED_AT_A_TIME * len(array) // max(array.size, 1))
        return sum(parallel_ranges(count, len(array), grain=grain, threads=threads))


def new_zeros(shape: tuple[int, ...], reference: Array) -> Array:
    """Return zeros of ``shape`` in the library, type and device of ``reference``."""
    return namespace(reference).zeros(shape, dtype=reference.dtype, device=reference.device)


# --- linear algebra ---------------------------------------------------------------------------------------------------
def adjoint(matrices: Array) -> Array:
    """Return the conjugate transpose of every matrix (batch, rows, columns)."""
    xp = namespace(matrices)
    return xp.conj(xp.swapaxes(matrices, 1, 2))


def gram_eigh(factors: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return eigenvalues (batch, n) and eigenvectors (batch, n, n) of ``Fᴴ F`` for small factors F (batch, rows, n).

    LAPACK on all cores of the host is faster than a GPU here: 1.5 ms against 5.5 ms on an H200 for nine 45 × 45
    matrices. With few rows most eigenvalues are zero. Then ``Fᴴ = Q R`` reduces the problem to the size of the rows,
    and Q gives the other eigenvectors; that is too little work for several threads.
    """
    n_rows, size = factors.shape[1:]
    transposed = adjoint(factors)
    if 2 * n_rows > size:
        with own_threads() as threads:
            parts = parallel_ranges(
                lambda start, stop: np.linalg.eigh(transposed[start:stop] @ factors[start:stop]),
                len(factors), grain=1, threads=threads,
            )  # fmt: skip
        values, vectors = (np.concatenate(results) for results in zip(*parts, strict=True))
        return values, vectors
    vectors, triangle = np.linalg.qr(transposed, mode="complete")
    core = triangle[:, :n_rows]
    largest, rotation = np.linalg.eigh(core @ adjoint(core))
    values = np.zeros((len(factors), size))
    values[:, :n_rows], vectors[:, :, :n_rows] = largest, vectors[:, :, :n_rows] @ rotation
    return values, vectors


def sparse_like(matrix: sp.csr_array, reference: Array) -> Array:
    """Return a square CSR matrix as a sparse tensor with the type and device of ``reference``, a tensor."""
    torch = sys.modules["torch"]
    pointers, columns = (torch.as_tensor(part, device=reference.device) for part in (matrix.indptr, matrix.indices))
    return sparse_tensor(pointers, columns, as_like(matrix.data, reference))


def sparse_tensor(pointers: Array, columns: Array, values: Array) -> Array:
    """Return the square sparse tensor with the given CSR parts."""
    torch = sys.modules["torch"]
    shape = (len(pointers) - 1,) * 2
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse ", UserWarning)  # "in beta", "checks are disabled"
        return torch.sparse_csr_tensor(pointers.long(), columns.long(), values, size=shape, check_invariants=False)


# --- Fourier transforms -----------------------------------------------------------------------------------------------
# SciPy's transforms keep single precision; those of NumPy do not.
def rfft(array: Array, axis: int) -> Array:
    """Return the half spectrum of a real array along ``axis``."""
    if is_torch(array):
        return sys.modules["torch"].fft.rfft(array, dim=axis)
    import scipy.fft

    return scipy.fft.rfft(array, axis=axis)


def irfft(array: Array, length: int, axis: int) -> Array:
    """Return the real signal of ``length`` whose half spectrum along ``axis`` is ``array``."""
    if is_torch(array):
        return sys.modules["torch"].fft.irfft(array, n=length, dim=axis)
    import scipy.fft

    return scipy.fft.irfft(array, n=length, axis=axis)


def rfft2(array: Array, axes: tuple[int, int]) -> Array:
    """Return the half spectrum of a real array along two axes; the second one is halved."""
    if is_torch(array):
        return sys.modules["torch"].fft.rfft2(array, dim=axes)
    import scipy.fft

    return scipy.fft.rfft2(array, axes=axes)


def irfft2(array: Array, shape: tuple[int, int], axes: tuple[int, int]) -> Array:
    """Return the real planes of ``shape`` whose half spectrum along ``axes`` is ``array``."""
    if is_torch(array):
        return sys.modules["torch"].fft.irfft2(array, s=shape, dim=axes)
    import scipy.fft

    return scipy.fft.irfft2(array, s=shape, axes=axes)


# --- half spectra -----------------------------------------------------------------------------------------------------
def spectrum_weights(tube_length: int, reference: Array) -> Array:
    """Return how often each bin of a half spectrum occurs in the full spectrum: once or twice.

    With these weights Parseval's identity is ``k ||X||² = sum_l weight_l ||X̂_l||²``.

    Parameters
    ----------
    tube_length : int
        Length k of the tubes.
    reference : array
        The result has the kind, real type and device of this array.

    Returns
    -------
    array of shape (tube_length // 2 + 1,)
        1 for the mean and, for even lengths, the last bin; 2 for all others. Tensors are cached: do not change them.
    """
    return constant_like(_bin_weights, tube_length, reference)


def _bin_weights(tube_length: int) -> NDArray[np.float64]:
    frequencies = np.arange(tube_length // 2 + 1)
    return np.where((frequencies == 0) | (2 * frequencies == tube_length), 1.0, 2.0)


# --- how many threads -------------------------------------------------------------------------------------------------
@cache
def _thread_controller() -> ThreadpoolController:
    # Compiled kernels call the BLAS that SciPy ships, so it must be loaded before the controller looks for libraries.
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


# Read once, as BLAS does: a local Dask cluster sets this variable for its workers, and leaves it set in this process.
# Of a list, which OpenMP allows, the first number counts; 0 for no limit.
_first_number = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
_WANTED_THREADS = int(_first_number) if _first_number.isdecimal() else 0


def available_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Return how many threads to use: as many as BLAS may, but no more than the cores of this process.

    This respects ``threadpoolctl.threadpool_limits(1)``, the affinity mask, and ``OMP_NUM_THREADS`` as it was when this
    module was imported.
    """
    available = available_cores()
    pools = [int(pool["num_threads"]) for pool in _thread_controller().info() if pool["user_api"] == "blas"]
    return max(1, min([available, _WANTED_THREADS or available, *pools]))


# Seconds after which a thread that runs Python code lets another one do so. Python's default is ten times as long: a
# thread that has finished a short product would wait longer for Python's lock than the product took.
_SWITCH_INTERVAL = 5e-4


class _Cores:
    """A lock on the processor cores; while a thread holds it, BLAS has one thread, and several take turns more often.

    Both settings belong to the whole process. Only the owner sets them, and restores what was there before when it
    leaves. If every thread did so, the last one to leave would restore what another one had set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit = ExitStack()
        self._owner: int | None = None
        self._depth = 0
        self._n_threads = 1

    def acquire(self) -> tuple[int, bool]:
        """Return how many threads the caller may use, and whether its thread holds the lock."""
        with self._lock:
            if self._owner is None:
                self._n_threads = thread_count()
                self._limit.enter_context(_thread_controller().limit(limits=1, user_api="blas"))
                before = sys.getswitchinterval()
                if self._n_threads > 1 and before > _SWITCH_INTERVAL:
                    # Python cuts off parts of a microsecond; half of one more makes it round.
                    self._limit.callback(sys.setswitchinterval, before + 5e-7)
                    sys.setswitchinterval(_SWITCH_INTERVAL)
                self._owner = threading.get_ident()
            if self._owner != threading.get_ident():
                return 1, False
            self._depth += 1
            return self._n_threads, True

    def release(self) -> None:
        """Leave one of the nested blocks; leaving the outermost one releases the lock."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
                self._limit.close()


_cores = _Cores()


@contextmanager
def own_threads() -> Iterator[int]:
    """Limit BLAS to one thread within the block; yield how many threads the caller may use instead.

    Two thread pools on the same cores slow each other down by more than an order of magnitude, and small
    factorisations gain nothing from a second thread. Blocks may be nested. If they overlap in several threads, the
    first thread gets all cores and the others get one thread each.
    """
    count, owned = _cores.acquire()
    try:
        yield count
    finally:
        if owned:
            _cores.release()


# --- ranges of an array, divided among threads ------------------------------------------------------------------------
# A thread needs Python's lock before and after every function of NumPy, if only for a moment, and one that waits for it
# is woken late. So pieces should be few and long: compiled kernels, or few functions on many rows.
class _Job:
    """A function that several threads run at the same time, and the threads that do."""

    def __init__(self, run: Callable[[], None], n_helpers: int) -> None:
        self._run = run
        self._invited = [None] * n_helpers  # one for every helper that may still join
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()  # the error of every helper that has joined
        self._n_helpers = n_helpers

    def help(self, leave: Callable[[], object]) -> None:
        """Run the function in the thread of a helper, unless the job is over; call ``leave`` before others know."""
        try:
            self._invited.pop()
        except IndexError:
            leave()
            return
        error = None
        try:
            self._run()
        except BaseException as raised:
            error = raised
        leave()
        self._ended.put(error)
        error = None  # its traceback leads back here, and would keep all arrays

    def finish(self) -> list[BaseException]:
        """Let no other helper join, wait for all that have, and return their errors."""
        joined = self._n_helpers
        with suppress(IndexError):
            while True:
                self._invited.pop()
                joined -= 1
        return [error for error in (self._ended.get() for _ in range(joined)) if error is not None]


class _Helper:
    """A thread that waits for jobs. It begins sooner than a thread of a pool, which takes several locks for a job."""

    def __init__(self) -> None:
        self._woken = threading.Lock()
        self._woken.acquire()
        self._job: _Job | None = None
        threading.Thread(target=self._serve, name="tubal", daemon=True).start()

    def wake(self, job: _Job) -> None:
        """Let the thread take part in a job."""
        self._job = job
        self._woken.release()

    def _serve(self) -> None:
        while True:
            self._woken.acquire()
            job, self._job = self._job, None
            assert job is not None
            job.help(leave=lambda: _idle.append(self))
            del job  # and with it the arrays that it works on


_helpers: list[_Helper] = []
_idle: list[_Helper] = []  # of these, the ones that wait


def _forget_helpers() -> None:
    _helpers.clear()
    _idle.clear()


if hasattr(os, "register_at_fork"):  # a forked process has no threads but its own
    os.register_at_fork(after_in_child=_forget_helpers)


def parallel_ranges(work: Callable[[int, int], Result], total: int, *, grain: int, threads: int) -> list[Result]:
    """Run ``work(start, stop)`` over ``range(total)`` cut at multiples of ``grain``; return the results in order.

    There are at most 64 pieces, and none is longer than another by more than ``grain``. The cuts depend on ``total``
    and ``grain`` only, not on ``threads``. So sums over the results are the same for any number of threads.
    """
    n_grains = -(-total // grain)
    pieces = min(n_grains, 64)
    edges = [min(grain * (piece * n_grains // pieces), total) for piece in range(pieces + 1)] if pieces else []
    bounds = list(pairwise(edges))
    if threads == 1 or len(bounds) <= 1:
        return [work(start, stop) for start, stop in bounds]
    found: list[Result | None] = [None] * len(bounds)
    # All threads share one iterator and take the next piece when they are free. So each thread is woken only once.
    waiting = iter(range(len(bounds)))

    def take_pieces() -> None:
        try:
            for index in waiting:
                found[index] = work(*bounds[index])
        except BaseException:
            for _ in waiting:  # use up the iterator, so that no thread starts another piece
                pass
            raise

    helpers = _idle_helpers(min(threads, len(bounds)) - 1)
    job = _Job(take_pieces, len(helpers))
    try:
        while helpers:
            helpers.pop().wake(job)
        take_pieces()
    finally:
        _idle.extend(helpers)  # those that an interrupt has left asleep
        errors = job.finish()  # no thread may still run after this call: it writes to arrays that the caller reads
    try:
        for error in errors:
            raise error
    finally:
        errors.clear()  # a traceback leads to this list, and would keep all arrays
    return cast("list[Result]", found)


def _idle_helpers(wanted: int) -> list[_Helper]:
    """Return helpers that have nothing to do: as many as wanted, fewer while other work is going on."""
    found: list[_Helper] = []
    try:
        while len(found) < wanted:
            try:
                found.append(_idle.pop())
            except IndexError:
                if len(_helpers) >= wanted:
                    break
                found.append(_Helper())
                _helpers.append(found[-1])
    except BaseException:
        _idle.extend(found)
        raise
    return found


@atexit.register
def _await_helpers() -> None:
    """Let helpers that an interrupt has left at work end their pieces, five seconds at most, before Python ends."""
    end = time.monotonic() + 5.0
    while len(_idle) < len(_helpers) and time.monotonic() < end:
        time.sleep(0.01)


def in_order(
    work: Callable[[int, int], None], total: int, step: int, threads: int, tell: Callable[[float], None]
) -> None:
    """Run ``work(start, stop)`` over ``range(total)`` on all threads, ``step`` at a time.

    Tell the share that is done in between; the end is left to the caller.
    """

    def shifted(low: int) -> Callable[[int, int], None]:
        return lambda start, stop: work(low + start, low + stop)

    for low in range(0, total, step):
        if low > 0:
            tell(low / total)
        parallel_ranges(shifted(low), min(step, total - low), grain=64, threads=threads)


# --- memory that is used again ---------------------------------------------------------------------------------------
class Workspace:
    """Arrays of single precision that take the memory of earlier ones of the same name.

    Every thread has arrays of its own. A copy, also in another process, begins empty.

    >>> workspace = Workspace()
    >>> first, second = workspace.array("pixels", (4, 100)), workspace.array("pixels", (3, 50))
    >>> second.shape, np.shares_memory(first, second)
    ((3, 50), True)
    """

    def __init__(self) -> None:
        self._kept = threading.local()

    def __reduce__(self) -> tuple[type[Workspace], tuple[()]]:
        return Workspace, ()

    def array(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return an array with arbitrary values, valid until this thread asks for the next one of this name."""
        wanted = prod(shape)
        kept: NDArray[np.float32] | None = vars(self._kept).get(name)
        if kept is None or len(kept) < wanted:
            kept = vars(self._kept)[name] = None  # freed first
            # Twice as much, because the next array may be larger. The system provides only pages that are used.
            kept = vars(self._kept)[name] = np.empty(2 * wanted, np.float32)
        return kept[:wanted].reshape(shape)


# Parameters of ``mallopt`` in the GNU C library: how much free memory at the end of the heap is kept, and from which
# size on an array gets pages of its own. The environment sets the variables of these names.
_PARAMETERS = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
_WANTED = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25}
_DEFAULT = 2**17

_lock = threading.Lock()
_blocks: list[None] = []  # that have begun and not ended


@contextmanager
def freed_memory_reused() -> Iterator[None]:
    """Keep freed memory for the next arrays within the block, where the environment says otherwise.

    Workers of Dask give it back at once, so that a worker at rest is small. But then every array consists of new pages,
    which the system must clear first, and a search takes a seventh longer. Blocks may overlap in several threads.
    """
    with _lock:
        _blocks.append(None)
        _set_thresholds(_WANTED)
    try:
        yield
    finally:
        with _lock:
            _blocks.pop()
            if not _blocks:
                _set_thresholds({name: int(os.environ.get(name, _DEFAULT)) for name in _PARAMETERS})


def _set_thresholds(values: dict[str, int]) -> None:
    """Set the parameters; without such variables the library adapts them itself, which is better."""
    if sys.platform == "linux" and any(name in os.environ for name in _PARAMETERS):
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):  # other C libraries have none
            for name, value in values.items():
                library.mallopt(_PARAMETERS[name], value)
