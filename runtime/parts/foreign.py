"""Fed objects that are no arrays of NumPy: numbers of Python, lists of them, and tensors of other frameworks.

The fast entry (``entry``) takes them as it takes arrays: it asks ``data_of``, a function in machine code whose
text is ``foreign.ll``, for the address of the data. A number is written to a word first, those of a list to memory that
the entry has for a feed of few bytes. A tensor is read where it lies: its framework describes it through DLPack's
exchange of C structures (dmlc/dlpack, ``DLPackExchangeAPI``, version 1.3), without an object of Python in between.
Types that have it are learnt when the slow way first meets one (``learn``); what the entry does not know goes that way,
and ``as_numpy`` gives an array over the same memory where there is a protocol for it.

    known     ::= words (``ForeignWord``), producers, the last of which has a null type
    producer  ::= words (``ProducerWord``)

A tensor whose data is not what its memory holds is refused: one that records derivatives (``requires_grad``), since
they would be lost silently, and one whose sign is to be changed when it is read (``is_neg``).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.errors import FeedError
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.frozen import frozen
from staticgrad.base.types import numpy_dtype
from staticgrad.graph.optable import Array

# What DLPack's header says: kinds of elements, of devices, the place of a function in the structure of them.
INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6
CPU = 1
MAJOR = 1  # version; others may have another structure
DESCRIBE = 5  # word of ``dltensor_from_py_object_no_sync``
EXCHANGE, EXCHANGE_NAME = "__dlpack_c_exchange_api__", b"dlpack_exchange_api"

KINDS = {"b": BOOL, "i": INT, "u": UINT, "f": FLOAT, "V": BFLOAT}  # by NumPy's letters
MOST_PRODUCERS = 15
_Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


def element_word(dtype: np.dtype) -> int:
    """DLPack's description of an element, as it lies in its structure: kind, bits, one lane."""
    return KINDS[dtype.kind] | 8 * dtype.itemsize << 8 | 1 << 16


FLOAT64, FLOAT32, INT64, INT32 = (element_word(np.dtype(name)) for name in ("float64", "float32", "int64", "int32"))


class ForeignWord:
    """The words before the producers: types and what is false."""

    FLOAT = 0
    FLOAT64 = 1
    INT = 2
    FALSE = 3
    LIST = 4
    PRODUCERS = 5


class ProducerWord:
    """The words of a type of tensors."""

    TYPE = 0
    FUNCTION = 1  # int (PyObject *, DLTensor *)
    ATTRIBUTE = 2  # names of an attribute and of a method that are false of tensors which are taken, or null
    METHOD = 3
    WRITABLE = 4  # whether results may be written to its memory


PRODUCER = 5  # words


@frozen
class _Producer:
    """A learnt type, and what its words lead to."""

    describe: Callable[[Any, Any], int]
    writable: bool
    kept: object


def _new_words() -> np.ndarray[Any, np.dtype[np.uint64]]:
    words = np.zeros(ForeignWord.PRODUCERS + PRODUCER * (MOST_PRODUCERS + 1), np.uint64)
    probe = np.float64(0.5)
    if ctypes.c_double.from_address(id(probe) + object.__basicsize__).value == 0.5:  # where a float has it
        words[ForeignWord.FLOAT64] = id(np.float64)
    words[ForeignWord.FLOAT], words[ForeignWord.INT], words[ForeignWord.FALSE] = id(float), id(int), id(False)
    words[ForeignWord.LIST] = id(list)
    return words


_WORDS = _new_words()
_KEPT: dict[type, _Producer] = {}
_learning = reentrant_lock()


def known_address() -> int:
    """The address of what ``data_of`` knows."""
    return int(_WORDS.ctypes.data)


def learn(type_: type) -> None:
    """Let the fast entry take objects of exactly this type, if they have DLPack's exchange."""
    if type_ in _KEPT or not hasattr(type_, EXCHANGE):
        return
    with _learning:
        if type_ in _KEPT or len(_KEPT) == MOST_PRODUCERS:
            return
        exchange = getattr(type_, EXCHANGE)
        get = ctypes.pythonapi["PyCapsule_GetPointer"]
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        table = (ctypes.c_uint64 * (DESCRIBE + 1)).from_address(get(exchange, EXCHANGE_NAME))
        if table[0] & 0xFFFFFFFF != MAJOR or not table[DESCRIBE]:
            return
        at = ForeignWord.PRODUCERS + PRODUCER * len(_KEPT)
        names = [sys.intern(name) if hasattr(type_, name) else None for name in ("requires_grad", "is_neg")]
        attribute, method = (0 if name is None else id(name) for name in names)
        writable = any(base.__module__.partition(".")[0] == "torch" for base in type_.__mro__)
        # The type comes last: a call may look at the words at any time.
        _WORDS[at + 1 : at + PRODUCER] = table[DESCRIBE], attribute, method, int(writable)
        _WORDS[at] = id(type_)
        _KEPT[type_] = _Producer(_Describe(table[DESCRIBE]), writable, (exchange, names))


def as_numpy(value: Any, what: str, source: Any = None) -> Array | None:
    """An array over the memory of an object that has DLPack's protocol; None of one that has not, or whose memory is
    none that an array can be over.

    Raises:
        FeedError: ``what`` would lose its derivatives.
    """
    if not hasattr(value, "__dlpack__"):
        return None
    if getattr(value, "requires_grad", False) is True:
        raise FeedError(
            f"{what}: the tensor records derivatives (requires_grad), which end here: use .detach(), or"
            " staticgrad.torch.wrap, which gives them",
            source=source,
        )
    if hasattr(value, "is_neg") and value.is_neg() is not False:
        return None
    learn(type(value))
    try:
        if type(value) in _KEPT:
            return _described(value)
        return np.from_dlpack(value)
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None  # some producers know no read-only memory; the buffer protocol may


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Owner:
    """The owner of an array's memory, as NumPy's array interface says."""

    __slots__ = ("__array_interface__", "_value")

    def __init__(self, value: object, interface: dict[str, Any]) -> None:
        self._value = value
        self.__array_interface__ = interface


def _described(value: Any) -> Array:
    """An array over the memory of a tensor of a learnt type."""
    kind = type(value)
    function, writable = _KEPT[kind].describe, _KEPT[kind].writable
    tensor = _DLTensor()
    function(value, ctypes.byref(tensor))
    dtype = _dtype_of(tensor.kind, tensor.bits)
    if tensor.device != CPU or tensor.lanes != 1:
        raise BufferError("the memory of the tensor is that of another device")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(dtype.itemsize * step for step in tensor.strides[: tensor.ndim]) if tensor.strides else None
    data = (tensor.data or 0) + tensor.offset
    raw = f"V{dtype.itemsize}" if dtype.kind == "V" else dtype.str
    interface = {"version": 3, "shape": shape, "typestr": raw, "strides": strides, "data": (data, not writable)}
    return np.asarray(_Owner(value, interface)).view(dtype)


def _dtype_of(kind: int, bits: int) -> np.dtype:
    if kind == BFLOAT and bits == 16:
        return numpy_dtype("bfloat16")
    for letter, number in KINDS.items():
        if number == kind and bits in (8, 16, 32, 64):
            return np.dtype(f"{letter}{bits // 8}")
    raise TypeError("no array has such elements")
