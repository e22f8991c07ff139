"""Objects of a Python class that are called by CPython's vectorcall protocol (PEP 590).

A call of an object whose class defines ``__call__`` packs its arguments in a tuple and a dict and looks the method up:
for a small program that is more than half of the call. A vectorcall hands the arguments over as they lie on the
interpreter's stack.

    class C(Forwarding):
        __slots__ = ("__call__", …)      what an object does, settable per object

    slot = enable(C)                     once a class
    start(x, forward, slot)              x(…) is x.__call__(…), without a detour; before, or where slot is 0, with one

``Forwarding`` has words that Python does not see: the address of ``forward`` (machine code, whose text is in
``entry_text``), which CPython calls, and what that needs. A class made by a ``class`` statement is not called
so by itself: its flag is set in the type object, once every field that is relied on has been found where it is
expected.

Without the GIL another thread may put something else into a slot between reading it and holding what was read: there
``forward`` has the interpreter read the attribute.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any


class ObjectWord:
    """The hidden words of an object, after the head that all objects have."""

    VECTORCALL = 0  # the address of forward, null before ``start``
    SLOT = 1  # offset of what ``__call__`` is; without the GIL its name
    CALL = 2  # PyObject_Vectorcall
    HOLD = 3  # Py_IncRef; without the GIL PyObject_GetAttr
    RELEASE = 4  # Py_DecRef


IS_FREE_THREADED = "t" in getattr(sys, "abiflags", "")  # built so: threads of Python run side by side
HEAD = 32 if IS_FREE_THREADED else 16  # bytes of an object's head: its count of references, its type
WORD = 8
WORDS = 5
HIDDEN = HEAD + WORD * WORDS

# What CPython's headers say: flags of types, slots of a specification, kinds of members, offsets in a type object.
BASETYPE, HAVE_VECTORCALL = 1 << 10, 1 << 11
TP_CALL, TP_MEMBERS = 50, 72
T_PYSSIZET, READONLY = 19, 1
TP_BASICSIZE, TP_VECTORCALL_OFFSET, TP_FLAGS = HEAD + 16, HEAD + 40, HEAD + 152


class _Member(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))  # fmt: skip


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
                ("flags", ctypes.c_uint), ("slots", ctypes.c_void_p))  # fmt: skip


class MethodDef(ctypes.Structure):
    """``PyMethodDef``: a function of machine code that becomes one of Python."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def function_of(definition: MethodDef, owner: object, kept: object) -> Callable[..., Any]:
    """A function of Python that is one of machine code: ``owner`` is its first argument, ``kept`` lives as long as it
    does, in the place of a module's name."""
    new = ctypes.pythonapi["PyCFunction_NewEx"]
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    made: Callable[..., Any] = new(ctypes.addressof(definition), owner, kept)
    return made


def interpreter_address(name: str) -> int:
    """The address of a function of the interpreter."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


def is_known() -> bool:
    """True if objects begin as they do in CPython of 64 bits: not in another interpreter or a build for debugging."""
    return sys.implementation.name == "cpython" and sys.maxsize > 2**62 and object.__basicsize__ == HEAD


def _make_base() -> type:
    """A class of objects with hidden words; one without them on other interpreters."""
    if not is_known():
        return type("Forwarding", (), {"__slots__": (), "__module__": __name__})
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", T_PYSSIZET, HEAD, READONLY, None))
    slots = (_Slot * 3)(
        _Slot(TP_MEMBERS, ctypes.addressof(members)),
        _Slot(TP_CALL, interpreter_address("PyVectorcall_Call")),
    )
    flags = BASETYPE | HAVE_VECTORCALL
    spec = _Spec(f"{__name__}.Forwarding".encode(), HIDDEN, 0, flags, ctypes.addressof(slots))
    make = ctypes.pythonapi["PyType_FromSpec"]  # a function of its own: others may have typed the shared one
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    made: type = make(ctypes.addressof(spec))
    _KEPT.extend((members, slots, spec))
    return made


_CALL = sys.intern("__call__")
_KEPT: list[object] = []  # what the type was made of, which some versions go on reading

if TYPE_CHECKING:

    class Forwarding:
        """The base that ``enable`` expects of a class."""

        __slots__ = ()
else:
    Forwarding = _make_base()


def enable(cls: type[Forwarding]) -> int:
    """Have objects of ``cls`` called by vectorcall once they are started; returns what ``start`` needs, 0 where this
    Python is not known to allow it. ``cls`` has a slot ``__call__``."""
    if Forwarding.__basicsize__ != HIDDEN:
        return 0
    at = id(cls)
    flags = ctypes.c_ulong.from_address(at + TP_FLAGS)
    known = {TP_FLAGS: cls.__flags__, TP_BASICSIZE: cls.__basicsize__, TP_VECTORCALL_OFFSET: HEAD}
    if any(ctypes.c_uint64.from_address(at + offset).value != value for offset, value in known.items()):
        return 0
    slot = _slot_of(cls)
    if slot:
        flags.value |= HAVE_VECTORCALL
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))
    return slot


def _slot_of(cls: type[Forwarding]) -> int:
    """The offset in an object of what its ``__call__`` is, 0 if it is not found."""
    probe, mark = cls.__new__(cls), object()
    object.__setattr__(probe, "__call__", mark)
    words = (ctypes.c_uint64 * (cls.__basicsize__ // WORD)).from_address(id(probe))
    found = [WORD * i for i, word in enumerate(words) if word == id(mark)]
    return found[0] if len(found) == 1 and found[0] >= HIDDEN else 0


def start(x: Forwarding, forward: int, slot: int) -> None:
    """Have calls of ``x`` go to its ``__call__`` by the function at ``forward``, if there is a slot."""
    if not slot:
        return
    words = (ctypes.c_uint64 * WORDS).from_address(id(x) + HEAD)
    words[ObjectWord.SLOT] = id(_CALL) if IS_FREE_THREADED else slot
    words[ObjectWord.CALL] = interpreter_address("PyObject_Vectorcall")
    words[ObjectWord.HOLD] = interpreter_address("PyObject_GetAttr" if IS_FREE_THREADED else "Py_IncRef")
    words[ObjectWord.RELEASE] = interpreter_address("Py_DecRef")
    words[ObjectWord.VECTORCALL] = forward
