"""Feeds and results that are no arrays of NumPy: numbers of Python, tensors of other frameworks, without a detour."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.runtime.parts import foreign
from staticgrad.runtime.parts.descriptors import layout_is_known
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED
from staticgrad.runtime.session.calls import Calls
from staticgrad.runtime.session.executable import Executable

RNG = np.random.default_rng(0)
native = pytest.mark.skipif(not layout_is_known(), reason="this interpreter has no fast entry")


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each call that goes the slow way."""
    seen: list[int] = []
    given = Calls.given

    def counted(self: Calls, values: Any) -> Any:
        seen.append(len(values))
        return given(self, values)

    monkeypatch.setattr(Calls, "given", counted)
    return seen


def doubled(shape: tuple[int, ...], dtype: Any) -> Executable:
    with sg.Graph() as graph:
        x = sg.placeholder(shape, dtype, name="x")
        exe = sg.Session(graph).compile(x * 2, x)
    exe(np.zeros(shape, x.dtype))
    return exe


# -- lists ------------------------------------------------------------------------------------------------------------

lists = pytest.mark.skipif(not layout_is_known() or IS_FREE_THREADED, reason="lists are read through Python here")
LISTS: tuple[tuple[Any, list[Any]], ...] = (
    (sg.float64, [[1.5, -0.0, 1e308], [float("inf"), 5e-324, np.float64(2.5)]]),
    (sg.float64, [[1, 2.5, -(2**53)], [2**53, 0, -7]]),
    (sg.float32, [[1.5, 3.4028234e38, 1e-46], [2**24 + 1, -7, 0.1]]),
    (sg.float32, [[2**53, 2**30 + 1, -(2**53)], [0, 1, 2]]),
    (sg.int64, [[0, -1, 2**61], [5, 6, -(2**61)]]),
    (sg.int32, [[0, -1, 2**30 - 1], [5, 6, -(2**30)]]),
)


@lists
@pytest.mark.parametrize(("dtype", "numbers"), LISTS)
def test_lists_are_fed_without_a_detour(dtype: Any, numbers: list[Any], slow_calls: list[int]) -> None:
    exe, first = doubled((2, 3), dtype), doubled((3,), dtype)
    slow_calls.clear()
    got, row = exe(numbers), first(numbers[0])
    again = exe([numbers[1], numbers[0]])  # what was given before is forgotten
    assert not slow_calls
    with np.errstate(over="ignore"):
        wanted = np.asarray(numbers).astype(dtype) * np.asarray(2, dtype)
    for result, expected in ((got, wanted), (row, wanted[0]), (again, wanted[::-1])):
        assert result.dtype == expected.dtype
        assert result.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize(
    ("dtype", "given", "slow"),
    [
        (sg.float64, [2**60, 0.5, 1.0], 1), (sg.float32, [2**60, 0.5, 1.0], 1), (sg.float64, [True, 0.5, 1.0], 1),
        (sg.int64, [True, 2, 3], 1), (sg.float32, [np.float32(0.1), 0.5, 1.0], 1), (sg.float64, (1.0, 2.0, 3.0), 1),
        (sg.float64, [np.array(1.0), 2.0, 3.0], 1), (sg.bool, [True, False, True], 1),
        (sg.int8, [1, 2, 3], 1),
    ],
)  # fmt: skip
def test_lists_of_other_things_are_numpys(dtype: Any, given: Any, slow: int, slow_calls: list[int]) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((3,), dtype)
        exe = sg.Session(graph).compile(sg.identity(x), x)
    exe(np.zeros(3, x.dtype))
    slow_calls.clear()
    assert exe(given).tobytes() == np.asarray(given).astype(x.dtype).tobytes()
    assert len(slow_calls) == slow


@pytest.mark.parametrize(
    ("shape", "dtype", "given", "message"),
    [
        ((3,), sg.float64, [1.0, 2.0], r"wrong shape\n  expected \(3,\)\n  actual   \(2,\)"),
        ((3,), sg.float64, [1.0, 2.0, 3.0, 4.0], "wrong shape"), ((3,), sg.float64, [[1.0, 2.0, 3.0]], "wrong shape"),
        ((2, 2), sg.float64, [1.0, 2.0], "wrong shape"), ((2, 2), sg.float64, [[1.0, 2.0], [3.0]], "feed of 'x'"),
        ((3,), sg.int64, [1, 2, 2.5], "expected int64"), ((3,), sg.int32, [1, 2, 2**31], "feed of 'x'"),
        ((3,), sg.float64, [1.0, None, 2.0], "feed of 'x'"), ((3,), sg.float64, [1.0, "2", 2.0], "feed of 'x'"),
        ((), sg.float64, [1.0], "wrong shape"),
    ],
)  # fmt: skip
def test_lists_that_do_not_fit_are_refused(shape: Any, dtype: Any, given: Any, message: str) -> None:
    exe = doubled(shape, dtype)
    for _ in range(2):
        with pytest.raises(sg.FeedError, match=message):
            exe(given)


@lists
def test_lists_of_a_range_of_sizes_and_long_ones(slow_calls: list[int]) -> None:
    n = sg.dim("n")
    with sg.Graph() as graph:
        x, y = sg.placeholder((n, 2), sg.float64), sg.placeholder((600,), sg.float64)
        exe, long = sg.Session(graph).compile(sg.sum(x, 0), x), sg.Session(graph).compile(sg.sum(y), y)
    for rows in (3, 5, 3, 3):
        assert exe([[float(row), 1.0] for row in range(rows)]).tolist() == [rows * (rows - 1) / 2, rows]
    long(np.zeros(600))
    slow_calls.clear()
    assert exe([[1.0, 2.0]] * 3).tolist() == [3, 6]
    assert not slow_calls
    assert long([1.0] * 600) == 600  # of more bytes than an entry has memory for
    assert slow_calls == [1]


# -- numbers ----------------------------------------------------------------------------------------------------------


@native
@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        (sg.float64, [1.5, -0.0, float("inf"), float("nan"), 1e308, 5e-324, np.float64(2.5), 3, -(2**62), 0]),
        (sg.float32, [1.5, -0.0, float("inf"), float("nan"), 3.4028234e38, 1e-46, np.float64(0.1), 2**24 + 1, -7]),
        (sg.int64, [0, -1, 2**61, -(2**61)]),
        (sg.int32, [0, -1, 2**30 - 1, -(2**30)]),
    ],
)
def test_numbers_are_fed_without_a_detour(dtype: Any, numbers: list[Any], slow_calls: list[int]) -> None:
    exe = doubled((), dtype)
    slow_calls.clear()
    got = [exe(number) for number in numbers]
    assert not slow_calls
    with np.errstate(over="ignore"):
        expected = [np.asarray(number).astype(dtype) * np.asarray(2, dtype) for number in numbers]
    for result, wanted in zip(got, expected, strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)
        assert np.signbit(result) == np.signbit(wanted)


@pytest.mark.parametrize(
    ("dtype", "number", "message"),
    [
        (sg.float32, 1e39, "out of range"),
        (sg.int32, 2**31, "out of bounds|too large|out of range"),
        (sg.int64, 2**63, "feed of 'x'"),
        (sg.int64, 1.5, "expected int64"),
        (sg.bool, 1, "expected bool"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(dtype: Any, number: Any, message: str) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((), dtype, name="x")
        exe = sg.Session(graph).compile(sg.identity(x), x)
    exe(np.zeros((), dtype))
    with pytest.raises(sg.FeedError, match=message):
        exe(number)


def test_a_number_in_the_place_of_a_vector_is_refused() -> None:
    with pytest.raises(sg.FeedError, match="wrong shape"):
        doubled((2,), sg.float64)(1.5)


@native
def test_numbers_beside_arrays_and_threads_that_release_the_lock() -> None:
    """The words that numbers are put into are the call's own."""
    from concurrent.futures import ThreadPoolExecutor

    with sg.Graph() as graph:
        a, x, b = sg.placeholder((), sg.float64), sg.placeholder((300, 300), sg.float64), sg.placeholder((), sg.float32)
        exe = sg.Session(graph).compile(a * sg.sum(x @ x) + sg.astype(b, sg.float64), [a, x, b])
    ones = np.ones((300, 300))

    def call(number: int) -> None:
        assert exe(float(number), ones, number) == number * 300**3 + number

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(40)))


# -- tensors ----------------------------------------------------------------------------------------------------------


class Tensor:
    """A tensor of a framework that has DLPack's exchange of C structures."""

    requires_grad = False

    def __init__(self, array: Any, *, requires_grad: bool = False, device: int = foreign.CPU, kind: int = -1) -> None:
        self.array, self.requires_grad = array, requires_grad
        self.shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        self.strides = (ctypes.c_int64 * max(array.ndim, 1))(*(step // array.itemsize for step in array.strides))
        self.device = device
        self.kind = foreign.KINDS[array.dtype.kind] if kind < 0 else kind
        self.negated = False

    def is_neg(self) -> bool:
        return self.negated

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Writable(Tensor):
    """One that results may be written to."""

    __module__ = "torch"


def describe(tensor: Tensor, place: int) -> int:
    d = foreign._DLTensor.from_address(place)
    d.offset = 3 * tensor.array.itemsize
    d.data = tensor.array.__array_interface__["data"][0] - d.offset
    d.device, d.ndim = tensor.device, tensor.array.ndim
    d.kind, d.bits, d.lanes = tensor.kind, 8 * tensor.array.itemsize, 1
    d.shape = ctypes.cast(tensor.shape, ctypes.POINTER(ctypes.c_int64))
    d.strides = ctypes.cast(tensor.strides, ctypes.POINTER(ctypes.c_int64))
    return 0


DESCRIBE = foreign._Describe(describe)
TABLE = (ctypes.c_uint64 * 8)(1 | 3 << 32, 0, 0, 0, 0, ctypes.cast(DESCRIBE, ctypes.c_void_p).value or 0)


def capsule() -> object:
    new = ctypes.pythonapi["PyCapsule_New"]
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    made: object = new(ctypes.addressof(TABLE), foreign.EXCHANGE_NAME, None)
    return made


@pytest.fixture(autouse=True)
def unlearnt() -> Iterator[None]:
    """Types are learnt for good: in tests they are forgotten."""
    for kind in (Tensor, Writable):
        setattr(kind, foreign.EXCHANGE, capsule())
    words, known = foreign._WORDS.copy(), dict(foreign._KEPT)
    yield
    foreign._WORDS[:] = words
    foreign._KEPT.clear()
    foreign._KEPT.update(known)


@native
def test_a_tensor_is_fed_without_a_detour_once_its_type_is_known(slow_calls: list[int]) -> None:
    exe, x = doubled((2, 3), sg.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(exe(Tensor(x)), 2 * x)
    slow_calls.clear()
    np.testing.assert_array_equal(exe(Tensor(x + 1)), 2 * x + 2)
    assert not slow_calls


def test_drawn_tensors_of_any_strides_and_kinds_are_read_as_arrays_are() -> None:
    executables: dict[Any, Executable] = {}
    for _ in range(300):
        rank = int(RNG.integers(0, 4))
        shape = tuple(int(n) for n in RNG.integers(0, 4, rank))
        steps = tuple(slice(None, None, int(RNG.choice([1, 1, 1, 2, -1]))) for _ in range(rank))
        whole = tuple(n * abs(s.step) if n else 0 for n, s in zip(shape, steps, strict=True))
        dtype = np.dtype(str(RNG.choice(["f4", "f8", "i4", "i8", "u1", "b1"])))
        values = RNG.integers(0, 2 if dtype.kind == "b" else 50, (*whole, 2)).astype(dtype)
        array = values.transpose(*reversed(range(rank + 1)))[0, ...].transpose(*reversed(range(rank)))[(*steps, ...)]
        array = array.copy() if RNG.random() < 0.5 else array
        key = (array.shape, dtype)
        if key not in executables:
            with sg.Graph() as graph:
                x = sg.placeholder(array.shape, dtype)
                executables[key] = sg.Session(graph).compile(sg.identity(x), x)
        np.testing.assert_array_equal(executables[key](Tensor(array)), array)


@pytest.mark.parametrize("known", [False, True])
def test_a_tensor_that_records_derivatives_is_refused(known: bool) -> None:
    exe, x = doubled((2,), sg.float32), np.ones(2, np.float32)
    if known:
        exe(Tensor(x))
    with pytest.raises(sg.FeedError, match=r"feed of 'x': the tensor records derivatives"):
        exe(Tensor(x, requires_grad=True))
    with pytest.raises(sg.FeedError, match=r"out for .*: the tensor records derivatives"):
        exe(x, out=Writable(np.empty(2, np.float32), requires_grad=True))


@pytest.mark.parametrize("known", [False, True])
def test_wrong_tensors_are_refused(known: bool) -> None:
    exe, x = doubled((2,), sg.float32), np.ones(2, np.float32)
    if known:
        exe(Tensor(x))
    with pytest.raises(sg.FeedError, match="wrong shape"):
        exe(Tensor(np.ones(3, np.float32)))
    with pytest.raises(sg.FeedError, match="wrong dtype"):
        exe(Tensor(np.ones(2, np.float64)))
    with pytest.raises(sg.FeedError, match="feed of 'x'"):
        exe(Tensor(x, device=2))
    negated = Tensor(x)
    negated.negated = True
    with pytest.raises(sg.FeedError, match="feed of 'x'"):
        exe(negated)
    np.testing.assert_array_equal(exe(Tensor(np.ones(4, np.float32)[::2])), [2, 2])


@native
def test_results_are_written_to_tensors(slow_calls: list[int]) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((2,), sg.float32, name="x")
        single = sg.Session(graph).compile(x * 2, x)
        several = sg.Session(graph).compile({"y": x * 2, "z": x + 1}, x)
    ones = np.ones(2, np.float32)
    for exe in (single, several):
        exe(Writable(ones))
    for _ in range(2):
        out, y = Writable(np.zeros(2, np.float32)), Writable(np.zeros(2, np.float32))
        assert single(ones, out=out) is out
        np.testing.assert_array_equal(out.array, [2, 2])
        result = several(Writable(ones), out={"y": y, "z": None})
        assert result["y"] is y
        np.testing.assert_array_equal(y.array, [2, 2])
        np.testing.assert_array_equal(result["z"], [2, 2])
    slow_calls.clear()
    single(Writable(ones), out=Writable(np.zeros(2, np.float32)))
    assert not slow_calls


def test_results_are_not_written_where_they_must_not_be() -> None:
    exe, x = doubled((2,), sg.float32), np.ones(2, np.float32)
    exe(Writable(x))
    with pytest.raises(sg.FeedError, match="overlaps a feed"):
        exe(Writable(x), out=Writable(x))
    with pytest.raises(sg.FeedError, match="overlaps a feed"):
        exe(x, out=Writable(x))
    with pytest.raises(sg.FeedError, match="writeable"):
        exe(x, out=Tensor(np.zeros(2, np.float32)))
    with pytest.raises(sg.FeedError, match="contiguous"):
        exe(x, out=Writable(np.zeros(4, np.float32)[::2]))
    with pytest.raises(sg.FeedError, match="out for"):
        exe(x, out=Writable(np.zeros(3, np.float32)))


@pytest.mark.parametrize("version", [0, 2])
def test_an_exchange_of_another_version_is_left_alone(version: int) -> None:
    before, TABLE[0] = TABLE[0], version
    try:
        exe, x = doubled((2,), sg.float32), np.ones(2, np.float32)
        for _ in range(2):
            np.testing.assert_array_equal(exe(Tensor(x)), [2, 2])
        assert Tensor not in foreign._KEPT
    finally:
        TABLE[0] = before


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"):
        with sg.Graph() as graph:
            x = sg.placeholder((2, 3), dtype)
            exe = sg.Session(graph).compile(sg.identity(x), x)
        value = torch.tensor([[1, 0, 3], [4, 5, 6]]).to(getattr(torch, dtype))
        for tensor in (value, value.t().contiguous().t()):
            out = torch.zeros_like(value)
            for _ in range(2):
                assert exe(tensor, out=out) is out
                assert torch.equal(out, value)
    exe = doubled((2,), sg.float32)
    with pytest.raises(sg.FeedError, match="detach"):
        exe(torch.ones(2, requires_grad=True))
    negative = torch.complex(torch.ones(1), torch.ones(1)).conj().imag.expand(2)
    for _ in range(2):
        np.testing.assert_array_equal(exe(torch.resolve_neg(negative)), [-2, -2])
        with pytest.raises(sg.FeedError):
            exe(torch._neg_view(torch.ones(2)))
