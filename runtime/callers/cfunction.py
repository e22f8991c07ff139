"""Programs as C functions: what calls a program without Python, without the GIL, from many threads at once.

Input: an executable's program of known sizes that writes no state and calls no Python, and the name of a signature.
Output: a ``CFunction``: an address, and the objects by which ctypes, SciPy and others take it.

The program is compiled once more, as one that keeps nothing from call to call. A few lines of LLVM text around it
(``cfunction_text``) make it a function of the signature; what differs between two functions of one form are words in
memory (``CWord``), so that their machine code is kept on disk like that of programs. A call has its memory on the
stack, or, if it takes more than 64 KiB in all, in a block of its thread that all such functions share and that goes
when the thread ends (``blocks.c``). The session's variables are copied when the function is made and by ``refresh``:
calls that are under way then still read the old copies, which go at the first ``refresh`` that finds none of them.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from staticgrad.base.addresses import aligned, aligned_copy
from staticgrad.base.errors import GraphError, refuse_copies
from staticgrad.base.types import TensorType, sizes
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.program.program import Interface
from staticgrad.compiler.program.slots import (
    CallbackSlot,
    CollectiveSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    KeySlot,
    StateSlot,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.callers.cfunction_text import CWord, Form, SignatureName, text
from staticgrad.runtime.parts.entry import order
from staticgrad.runtime.parts.machinery import native_part, once
from staticgrad.runtime.running.state import SessionState

if TYPE_CHECKING:
    from staticgrad.compiler.binary import Binary

F64 = np.dtype(np.float64)
Typed = tuple[Tensor, TensorType]
Roles = dict[str, int | tuple[int, ...]]  # fields of a form
GRADIENTS = ("logp", "nlopt")  # signatures of a number and its gradient
C_INT, C_DOUBLE, C_POINTER = ctypes.c_int, ctypes.c_double, ctypes.c_void_p


class _Prototype:
    """A signature: its C text, with ``NAME`` where a name goes, and its types for ctypes, the result's first."""

    def __init__(self, prototype: str, *types: Any) -> None:
        self.prototype = prototype
        self.types = types

    @property
    def text(self) -> str:
        return self.prototype.replace("NAME", "")


SIGNATURES: dict[SignatureName, _Prototype] = {
    "slots": _Prototype(
        "int NAME(const void *const *in, void *const *out, void *user)", C_INT, C_POINTER, C_POINTER, C_POINTER
    ),
    "logp": _Prototype(
        "int NAME(size_t n, const double *x, double *grad, double *value, void *user)",
        C_INT, ctypes.c_size_t, C_POINTER, C_POINTER, C_POINTER, C_POINTER,
    ),
    "nlopt": _Prototype(
        "double NAME(unsigned n, const double *x, double *grad, void *user)",
        C_DOUBLE, ctypes.c_uint, C_POINTER, C_POINTER, C_POINTER,
    ),
    "ode": _Prototype(
        "void NAME(double t, const double *u, double *du, const double *p)",
        None, C_DOUBLE, C_POINTER, C_POINTER, C_POINTER,
    ),
    "vector": _Prototype(
        "int NAME(size_t n, size_t m, const double *x, double *y, void *user)",
        C_INT, ctypes.c_size_t, ctypes.c_size_t, C_POINTER, C_POINTER, C_POINTER,
    ),
    "scalar": _Prototype("double NAME(double, void *)", C_DOUBLE, C_DOUBLE, C_POINTER),
    "scalars": _Prototype("double NAME(int, double *, void *)", C_DOUBLE, C_INT, C_POINTER, C_POINTER),
}  # fmt: skip


class CFunction:
    """A compiled program as a C function, which any thread may call at any time, without Python and without the GIL.

    It is made by ``exe.cfunc`` and keeps the executable alive; its address is valid as long as it lives itself. It
    returns 0, a positive number if a check of the program failed (an index out of range, an assertion; results that
    are numbers are NaN then), a negative one if the call was wrong (another ``n``, a null pointer: -1; no memory: -2).
    Functions that return numbers return NaN in all of these cases. Arrays are C-contiguous and aligned as their dtypes
    ask; those that go out must not overlap others. Nothing is written beyond them.

    Variables have the values that they had in the session when the function was made; ``refresh`` takes them anew.
    Random ops draw with the session's seed and count the calls of the function.

    Attributes:
        signature: the C type of the function, such as ``"double (double, void *)"``.
        address: where it is, an int.

    Example:
        >>> x = sg.placeholder((), sg.float64)
        >>> exe = sg.Session().compile(sg.exp(-x * x), x)
        >>> gauss = exe.cfunc("scalar")
        >>> round(gauss.ctypes(0.5, None), 4)
        0.7788
        >>> from scipy import integrate
        >>> round(integrate.quad(gauss.low_level_callable(), 0, 10)[0], 6)
        0.886227
    """

    __slots__ = ("__weakref__", "_binary", "_constants", "_feeds", "_form", "_kept", "_module", "_name", "_old",
                 "_results", "_state", "_words", "address", "executable", "signature")  # fmt: skip

    __reduce_ex__ = refuse_copies("a C function", "make it in each process: exe.cfunc(…)")

    def __init__(
        self,
        executable: Any,
        binary: Binary,
        store: SessionState,
        target: Target,
        form: Form,
        feeds: Sequence[Typed],
        results: Sequence[Typed],
    ) -> None:
        """C functions are made by ``exe.cfunc``."""
        self._feeds, self._results = [[(x.name, t) for x, t in typed] for typed in (feeds, results)]
        self.executable = executable
        self.signature = SIGNATURES[form.signature].text
        self._form = form
        self._binary = binary
        self._state = store
        self._name = ctypes.create_string_buffer(self.signature.encode())
        self._module = NativeModule(functools.partial(text, form, target), target, key=f"C function {form!r}")
        self._words = np.zeros(CWord.COUNT, np.int64)
        self._words[CWord.MAIN] = binary.code.address("main")
        self._words[CWord.BLOCK] = _blocks().address("block")
        self._constants = [(n, aligned(s.value)) for n, s in enumerate(self._slots) if isinstance(s, ConstantSlot)]
        self._kept: list[object] = []
        self._old: list[object] = []
        self.refresh()
        ctypes.CFUNCTYPE(None, C_POINTER)(self._module.address("bind"))(self._words.ctypes.data)
        self.address = self._module.address("entry")

    def __repr__(self) -> str:
        return f"<C function {self.signature} of {self.executable!r}>"

    @property
    def _slots(self) -> Sequence[Any]:
        return self._binary.interface.slots

    def refresh(self) -> None:
        """Take the session's variables, seed and number of runs as they are now. Calls that have begun end with the
        values that they began with.

        Example:
            >>> x, w = sg.placeholder((), sg.float64), sg.Variable(np.float64(2.0))
            >>> sess = sg.Session()
            >>> times = sess.compile(x * w, x).cfunc("scalar")
            >>> sess.set(w, 5.0)
            >>> before = times.ctypes(3.0, None)
            >>> times.refresh()
            >>> before, times.ctypes(3.0, None)
            (6.0, 15.0)
        """
        self._state.check_open()
        states = [(n, slot) for n, slot in enumerate(self._slots) if isinstance(slot, StateSlot)]
        self._state.initialize(slot.name for _, slot in states)

        def take() -> None:
            arrays = [*self._constants, *((n, aligned_copy(self._state.array(slot.name))) for n, slot in states)]
            table = np.zeros(max(self._form.slots, 1), np.int64)
            for number, array in arrays:
                table[number] = array.ctypes.data
            self._words[CWord.SEED], self._words[CWord.RUN] = self._state.random
            self._old.append(self._kept)
            self._kept = [table, arrays]
            self._words[CWord.TABLE] = table.ctypes.data  # one store: a call sees the old table or the new one
            order()  # a call counts itself, then looks at the table: of the two at least one sees the other
            if not self._words[CWord.CALLS]:
                self._old.clear()

        self._state.lock.brief(take)

    # -- ways to take it ----------------------------------------------------------------------------------------------

    @property
    def ctypes(self) -> Any:
        """The function for ctypes, which calls it without the GIL. Pointers are ``c_void_p``: addresses, or None.

        Example:
            >>> x = sg.placeholder((2,), sg.float64)
            >>> total = sg.Session().compile(sg.sum(x), x).cfunc("scalars")
            >>> total.ctypes(2, np.array([1.0, 2.0]).ctypes.data, None)
            3.0
        """
        function: Any = ctypes.CFUNCTYPE(*SIGNATURES[self._form.signature].types)(self.address)
        function.keeps = self
        return function

    @property
    def capsule(self) -> Any:
        """A PyCapsule with the address, named by the signature; it keeps the function alive.

        Example:
            >>> x = sg.placeholder((), sg.float64)
            >>> sg.Session().compile(x * x, x).cfunc("scalar").capsule
            <capsule object "double (double, void *)" at ...>
        """
        api = ctypes.pythonapi
        make = ctypes.PYFUNCTYPE(ctypes.py_object, C_POINTER, C_POINTER, C_POINTER)(("PyCapsule_New", api))
        hold = ctypes.PYFUNCTYPE(C_INT, ctypes.py_object, C_POINTER)(("PyCapsule_SetContext", api))
        capsule = make(self.address, ctypes.addressof(self._name), _blocks().address("forget"))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        hold(capsule, id(self))
        return capsule

    def low_level_callable(self, user_data: Any = None) -> Any:
        """The ``scipy.LowLevelCallable`` of the function.

        Args:
            user_data: what SciPy hands over as the last argument: an array of float64 for the feed that is read from
                there, or what else ``LowLevelCallable`` takes.

        Example:
            >>> from scipy import integrate
            >>> x, power = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
            >>> exe = sg.Session().compile(x**power, [x, power])
            >>> cube = exe.cfunc("scalar").low_level_callable(np.array(3.0))
            >>> round(integrate.quad(cube, 0, 2)[0], 6)
            4.0
        """
        from scipy import LowLevelCallable

        if not isinstance(user_data, np.ndarray):
            return LowLevelCallable(self.capsule, user_data)
        pointer = user_data.ctypes.data_as(C_POINTER)  # it keeps the array
        return LowLevelCallable(self.capsule, pointer)

    def raw(self, *arrays: Array) -> int:
        """Call the function on arrays of exactly its types and return the status: what goes in, then what goes out, in
        the order of the executable's feeds and fetches. For ``"slots"``.

        Raises:
            GraphError: another signature, a wrong number of arrays, an array of another type.

        Example:
            >>> x = sg.placeholder((2,))
            >>> doubled = sg.Session().compile(x * 2, x).cfunc("slots")
            >>> out = np.zeros(2, np.float32)
            >>> doubled.raw(np.array([1, 2], np.float32), out), out
            (0, array([2., 4.], dtype=float32))
        """
        form = self._form
        if form.signature != "slots":
            raise GraphError(f"raw: expected a function of signature 'slots', actual {form.signature!r}")
        feeds, results = self._feeds, self._results
        if len(arrays) != len(feeds) + len(results):
            wanted = f"{len(feeds)} feeds and {len(results)} results"
            raise GraphError(f"raw: expected {wanted}, actual {len(arrays)} arrays")
        for (name, type_), array in zip((*feeds, *results), arrays, strict=True):
            fits = array.shape == type_.shape and array.dtype == type_.dtype and array.flags.c_contiguous
            if not fits or not array.flags.aligned:
                raise GraphError(f"raw: {name}: expected a C-contiguous {type_}, actual {array.dtype} {array.shape}")
        addresses = [array.ctypes.data for array in arrays]
        into = (C_POINTER * max(len(feeds), 1))(*addresses[: len(feeds)])
        out = (C_POINTER * max(len(results), 1))(*addresses[len(feeds) :])
        status: int = self.ctypes(ctypes.addressof(into), ctypes.addressof(out), None)
        return status

    def header(self, name: str = "program") -> str:
        """C text, for C99 and C++, that declares the function as ``name`` and says what goes in and out.

        Example:
            >>> x = sg.placeholder((), sg.float64, name="x")
            >>> square = sg.Session().compile(x * x, x).cfunc("scalar")
            >>> "double square(double, void *);" in square.header("square")
            True
        """
        ways = (("in", self._feeds), ("out", self._results))
        lines = [f" *   {way}[{i}]: {x}, {t}" for way, typed in ways for i, (x, t) in enumerate(typed)]
        declared = SIGNATURES[self._form.signature].prototype.replace("NAME", name)
        return "\n".join([
            f"/* {name}: a program compiled by staticgrad.", *lines,
            " * A status is 0, positive if a check failed, negative if the call was wrong. */",
            "#include <stddef.h>", "#ifdef __cplusplus", 'extern "C" {', "#endif", f"{declared};", "#ifdef __cplusplus",
            "}", "#endif", "",
        ])  # fmt: skip


@once
def _blocks() -> NativeModule:
    module = native_part(__file__, "blocks32" if sys.platform == "linux" else "blocks64")  # bits of pthread_key_t
    if ctypes.CFUNCTYPE(C_INT)(module.address("start"))():
        raise MemoryError("this process has no key left for memory of threads (pthread_key_create)")
    return module


# -- forms ------------------------------------------------------------------------------------------------------------


@functools.singledispatch
def _reason(slot: object) -> str:
    """Why a program with such a slot cannot be called from C; empty if it can."""
    return ""


@_reason.register
def _(slot: CallbackSlot) -> str:
    return f"it calls Python{'' if slot.source is None else f' ({slot.source})'}"


@_reason.register
def _(slot: CollectiveSlot) -> str:
    return f"it takes part in {slot.name} of {slot.ranks} ranks"


@_reason.register
def _(slot: GradSlot) -> str:
    return "it reads gradients that a tape has left"


@_reason.register
def _(slot: StateSlot) -> str:
    return f"it writes variable {slot.name!r}" if slot.written else ""


def form_of(
    signature: str,
    interface: Interface,
    feeds: Sequence[Typed],
    fetched: Sequence[tuple[Tensor, int]],
    wrt: Tensor | None = None,
    *,
    caller: str = "cfunc",
    has_state: bool = False,
) -> tuple[Form, list[Typed]]:
    """The form of a program's function, and what goes out of it.

    Args:
        fetched: the tensors that are fetched, as often as they are mentioned, and which of the program's results each
            is.
        caller: what errors begin with.
        has_state: whether the function is given a state that the program may write.

    Raises:
        GraphError: an unknown signature, a program of another kind than it asks for, with what it is and what it should
            be.
    """
    if signature == "casadi":
        raise GraphError(
            f"{caller}: CasADi loads external functions from shared libraries, it takes no addresses: export the"
            ' program, exe.export("f.so", format="shared", signature="casadi")'
        )
    if signature not in SIGNATURES:
        raise GraphError(f"{caller}: expected a signature of {', '.join(map(repr, SIGNATURES))}, actual {signature!r}")
    for slot in interface.slots:
        if not (has_state and isinstance(slot, StateSlot)) and (reason := _reason(slot)):
            raise GraphError(f"{caller}: this program cannot be called from C: {reason}")
    types = {slot.index: slot.type for slot in interface.slots if isinstance(slot, FetchSlot)}
    results = [(x, types[place]) for x, place in fetched]
    first = {place: number for number, (_, place) in reversed(list(enumerate(fetched)))}
    slots = list(enumerate(interface.slots))
    bare = Form(
        signature=signature,
        slots=len(slots),
        arena_bytes=interface.arena_bytes,
        feeds=len(feeds),
        results=tuple(math.prod(sizes(t.shape)) * t.dtype.itemsize for _, t in results),
        feed_slots=tuple((n, slot.index) for n, slot in slots if isinstance(slot, FeedSlot)),
        result_slots=tuple((n, first[slot.index]) for n, slot in slots if isinstance(slot, FetchSlot)),
        repeated=tuple((n, first[place]) for n, (_, place) in enumerate(fetched) if first[place] != n),
        keys=tuple(n for n, slot in slots if isinstance(slot, KeySlot)),
        counted=any(isinstance(slot, StateSlot) for _, slot in slots),
    )
    return _Roles(signature, feeds, results, wrt, caller).assign(bare), results


class _Roles:
    """Finds among a program's feeds and results the arguments of a signature."""

    def __init__(
        self, signature: str, feeds: Sequence[Typed], results: Sequence[Typed], wrt: Tensor | None, caller: str
    ) -> None:
        self.signature = signature
        self.caller = caller
        self.feeds = list(feeds)
        self.results = list(results)
        self.wrt = wrt

    def assign(self, form: Form) -> Form:
        """The form with its roles."""
        roles: Callable[[], Roles] = getattr(self, f"_{self.signature}")
        return replace(form, **cast(dict[str, Any], roles()))

    def _slots(self) -> Roles:
        return {}

    def _logp(self) -> Roles:
        x, user = self._x_and_user()
        n = self._numbers(self.feeds[x])
        if len(self.results) != 2:
            self._refuse("fetches a float64 scalar and its gradient", self.results)
        value, grad = (0, 1) if self._numbers(self.results[0], 1, check=False) == 1 else (1, 0)
        self._numbers(self.results[value], 1)
        self._numbers(self.results[grad], n)
        return {"x": x, "user": user, "size": n, "value": value, "grad": grad}

    _nlopt = _logp

    def _vector(self) -> Roles:
        x, user = self._x_and_user()
        if len(self.results) != 1:
            self._refuse("fetches one float64 array", self.results)
        sizes = {"size": self._numbers(self.feeds[x]), "out": self._numbers(self.results[0])}
        return {"x": x, "user": user, **sizes, "value": 0}

    def _ode(self) -> Roles:
        if len(self.feeds) not in (2, 3):
            self._refuse("is fed t, u and p, or t and u", self.feeds)
        if len(self.results) != 1:
            self._refuse("fetches du", self.results)
        names = {x.name: number for number, (x, _) in enumerate(self.feeds)}
        t, u, p = (names[n] for n in "tup") if names.keys() == set("tup") else (0, 1, 2)
        p = p if len(self.feeds) == 3 else -1
        self._numbers(self.feeds[t], 1)
        n = self._numbers(self.feeds[u])
        if p >= 0:
            self._numbers(self.feeds[p])
        self._numbers(self.results[0], n)
        return {"t": t, "x": u, "user": (p,) if p >= 0 else (), "size": n, "grad": 0}

    def _scalar(self) -> Roles:
        x, user = self._x_and_user()
        self._numbers(self.feeds[x], 1)
        self._value()
        return {"x": x, "user": user, "size": 1, "value": 0}

    def _scalars(self) -> Roles:
        self._value()
        if self.feeds and all(self._numbers(feed, check=False) == 1 for feed in self.feeds):
            return {"size": len(self.feeds), "value": 0}
        x, user = self._x_and_user()
        return {"x": x, "user": user, "size": self._numbers(self.feeds[x]), "value": 0}

    def _value(self) -> None:
        if len(self.results) != 1:
            self._refuse("fetches one float64 number", self.results)
        self._numbers(self.results[0], 1)

    def _x_and_user(self) -> tuple[int, tuple[int, ...]]:
        """The feed that is given as x, and those that are read from the user's data."""
        if not self.feeds:
            self._refuse("is fed x", self.feeds)
        x = 0
        if self.wrt is not None:
            x = next((number for number, (feed, _) in enumerate(self.feeds) if feed is self.wrt), -1)
            if x < 0:
                raise GraphError(f"{self.caller}: wrt: {self.wrt.name!r} is not fed", source=self.wrt.source)
        return x, tuple(number for number in range(len(self.feeds)) if number != x)

    def _numbers(self, typed: Typed, count: int | None = None, *, check: bool = True) -> int:
        """The number of elements of a feed or result, which shall be float64, and ``count`` of them; -1 for other
        dtypes if that is not checked."""
        x, type_ = typed
        n = math.prod(sizes(type_.shape))
        if check and (type_.dtype != F64 or (count is not None and n != count)):
            wanted = "float64" if count is None else f"{count} of float64"
            text = f"{self.caller}: {self.signature!r}: {x.name!r}: expected {wanted}, actual {type_}"
            raise GraphError(text, source=x.source)
        return n if type_.dtype == F64 else -1

    def _refuse(self, wanted: str, actual: Sequence[Typed]) -> NoReturn:
        found = ", ".join(f"{x.name!r} {t}" for x, t in actual) or "nothing"
        prototype = SIGNATURES[cast(SignatureName, self.signature)].text
        raise GraphError(f"{self.caller}: expected a program that {wanted} for {prototype}, actual {found}")
