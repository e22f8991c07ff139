"""Executables as JAX functions: ``staticgrad.jax.wrap``.

Input: an executable. Output: a function of JAX arrays, which JAX may trace, compile, differentiate and batch like one
of its own. Inside of a compiled JAX program a call is a custom call of XLA's typed FFI into machine code
(``bridges.xla``): Python has no part in it.

To JAX each program is a primitive with parameters ``program`` and ``batch``, the sizes of the axes by which it is
batched. Its rules are these:

    abstract     the types of the program's results, after the axes of the batch
    lowering     a custom call; only here, on the CPU, a program is compiled
    jvp          a call of the program of tangents; where the results are one number, of the program of value and
                 slopes, whose products with the tangents JAX adds up
    transpose    of a program of tangents: a call of the program of cotangents, and the other way round
    batching     one more size in ``batch``: the handler calls the program for each element. What does not differ along
                 the batch is handed over once.

So derivatives of any order are programs of ours, derived from the graph, in forward and reverse mode.
"""

from __future__ import annotations

import functools
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.boundary import boundary
from staticgrad.base.errors import FeedError, GraphError, refuse_copies
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.recent import Recent
from staticgrad.bridges.derived import Derivable, derivable, variables_of
from staticgrad.bridges.xla import handler, in_place, release, renew, words_of
from staticgrad.graph.graph import Tensor
from staticgrad.runtime.callers.cfunction import CFunction
from staticgrad.runtime.parts.machinery import once
from staticgrad.runtime.running.binding import as_array, wrong_shape
from staticgrad.runtime.running.state import SessionState
from staticgrad.runtime.session.executable import Executable

try:
    import jax
    import jax.numpy as jnp
    from jax.interpreters import ad, batching, mlir
except ImportError as error:
    raise ImportError("staticgrad.jax needs JAX: pip install '.[jax]' in a checkout") from error

KEPT = 64  # combinations of shapes of one function

_Primitive: Any = type(jax.lax.add_p)  # that of jax.extend.core, which imports all of Pallas

_TARGET = f"staticgrad_{uuid.uuid4().hex}"  # addresses are handed over, so no other process may know the name


class JaxFunction:
    """An executable as a JAX function: ``staticgrad.jax.wrap(exe)``.

    It is called with arrays in the order of the executable's feeds and gives arrays in the nest of its fetches. It may
    be used under ``jax.jit``, ``grad``, ``vjp``, ``jvp``, ``hessian``, ``vmap`` and in ``lax.scan`` and other control
    flow, to any depth, and from several threads.

    Variables have the values that they had in the session when the function was made, in its derivatives too;
    ``refresh`` takes them anew.

    Attributes:
        executable: what was wrapped.
    """

    __reduce_ex__ = refuse_copies("a function for JAX", "wrap the executable in each process: staticgrad.jax.wrap(exe)")

    def __init__(self, executable: Executable) -> None:
        """These are made by ``wrap``."""
        self.executable = executable
        self.__name__ = self.__qualname__ = "_".join(x.name for x in executable.feeds[:3]) or "program"
        self._known: Recent[_JaxProgram] = Recent(KEPT)
        self._common = _CommonState(executable)
        shapes = [x.shape for x in executable.feeds]
        if all(x.type.static for x in executable.feeds):
            self._program(tuple(shapes)).words()

    def __repr__(self) -> str:
        return f"<JAX function of {self.executable!r}>"

    def __call__(self, *arrays: Any) -> Any:
        feeds = self.executable.feeds
        if len(arrays) != len(feeds):
            names = ", ".join(repr(x.name) for x in feeds) or "none"
            raise FeedError(f"expected {len(feeds)} arrays (for {names}), actual {len(arrays)}")
        values = [_array(x, value) for x, value in zip(feeds, arrays, strict=True)]
        program = self._program(tuple([value.shape for value in values]))
        return nests.pack(self.executable.fetches, program.spread(program.bind(values)))

    def refresh(self) -> None:
        """Take the session's variables as they are now, for compiled JAX programs too. Calls that have begun end with
        the values that they began with.

        Example:
            >>> import staticgrad.jax
            >>> x, w = sg.placeholder((2,)), sg.Variable([1.0, 2.0])
            >>> sess = sg.Session()
            >>> scaled = staticgrad.jax.wrap(sess.compile(x * w, x))
            >>> sess.set(w, [3.0, 4.0])
            >>> before = scaled(np.ones(2, np.float32)).tolist()
            >>> scaled.refresh()
            >>> before, scaled(np.ones(2, np.float32)).tolist()
            ([1.0, 2.0], [3.0, 4.0])
        """
        self._common.refresh()

    def _program(self, shapes: tuple[Any, ...]) -> _JaxProgram:
        """The program for arrays of these shapes."""
        program = self._known.get(shapes)
        if program is None:
            if not all(isinstance(size, int) for shape in shapes for size in shape):
                raise FeedError(f"expected sizes that are numbers, actual shapes {shapes}")
            made = derivable(self.executable, shapes)
            drawn = made.draws
            if drawn is not None:
                raise GraphError(
                    f"wrap: {drawn.name!r} draws random numbers, and a JAX function gives the same for the same arrays:"
                    " feed the numbers",
                    source=drawn.source,
                )
            leaves = [isinstance(leaf, Tensor) for leaf in nests.flatten(self.executable.fetches)]
            program = self._known.put(shapes, _JaxProgram(made, self._common, leaves))
        for type_ in (*program.derivable.feeds, *program.derivable.results):
            if jax.dtypes.canonicalize_dtype(type_.dtype) != type_.dtype:
                raise FeedError(
                    f"{self._common.name}: {type_.dtype} is among its dtypes, which JAX has only after"
                    ' jax.config.update("jax_enable_x64", True)'
                )
        return program


def _array(x: Tensor, value: Any) -> Any:
    """The JAX array for what is given as the feed ``x``."""
    if not isinstance(value, jax.Array):
        return jnp.asarray(as_array(x, value))
    _check_dtype(x, value)
    if value.ndim != x.ndim or any(isinstance(s, int) and s != n for s, n in zip(x.shape, value.shape, strict=True)):
        raise wrong_shape(x, value.shape, f"feed of {x.name!r}")
    return value if value.dtype == x.dtype else value.astype(x.dtype)


def _check_dtype(x: Tensor, value: Any) -> None:
    """Refuse an array whose dtype does not cast safely; those that follow Python numbers cast within their kind."""
    given, wanted = value.dtype, x.dtype
    if given == wanted or (isinstance(given, np.dtype) and np.can_cast(given, wanted, "safe")):
        return
    kinds = [jnp.integer, jnp.floating]
    if getattr(value, "weak_type", False) and any(
        jnp.issubdtype(given, kind) and jnp.issubdtype(wanted, to) for i, kind in enumerate(kinds) for to in kinds[i:]
    ):
        return
    raise FeedError(
        f"feed of {x.name!r}: wrong dtype\n  expected {wanted}\n  actual   {given}, which does not cast to it safely:"
        f" use .astype({wanted.name!r})",
        source=x.source,
    )


@boundary
def wrap(executable: Executable) -> JaxFunction:
    """An executable as a JAX function.

    It runs on the CPU, as machine code that JAX's compiled programs call without Python. Its derivatives are programs
    of the graph's own derivatives, in both modes and of any order; they compute again what they read of the forward,
    unless the result is one number. Under ``vmap`` the program is called for each element of the batch.

    Args:
        executable: of any program that writes no variables, calls no Python and draws no random numbers.

    Returns:
        A function that takes arrays in the order of the feeds and gives the nest of the fetches, None at ops. Open
        sizes are those of the arrays; each combination of them has a program of its own.

    Raises:
        GraphError: another program.
        FeedError: (when called) a wrong number of arrays, a wrong shape or dtype, a dtype of 64 bits without
            ``jax_enable_x64``.
        GradientError: (when differentiated) an op without a derivative on the way.

    Errors inside of a run, such as a failed ``sg.assert_``, are JAX's: ``jax.errors.JaxRuntimeError``, with the text of
    ours.

    Example:
        >>> import jax
        >>> import staticgrad.jax
        >>> x = sg.placeholder((3,))
        >>> f = staticgrad.jax.wrap(sg.Session().compile(sg.sum(sg.exp(-x * x)), x))
        >>> value, slope = jax.jit(jax.value_and_grad(f))(np.zeros(3, np.float32))
        >>> float(value), slope.tolist()
        (3.0, [-0.0, -0.0, -0.0])
    """
    if not isinstance(executable, Executable):
        raise GraphError(f"wrap: expected an executable (sess.compile), actual {executable!r}")
    return JaxFunction(executable)


# -- programs ---------------------------------------------------------------------------------------------------------


class _CommonState:
    """The data that a function shares with its derivatives: the compiler, the values of variables, the C functions."""

    def __init__(self, executable: Executable) -> None:
        self.session = executable.session
        self.options = executable._programs.options
        self.name = f"program of {', '.join(x.name for x in executable.feeds) or 'no feeds'}"
        self.lock = reentrant_lock()
        self._functions: list[CFunction] = []
        self._variables = variables_of(executable)
        self._state: SessionState = self.session.store.copy(self._variables)
        weakref.finalize(self, release, self._functions)

    def words(self, program: Derivable) -> int:
        """The address by which the handler calls a program, which is compiled now."""
        function, address = words_of(program, self.name, self.session.compiler, self.options, self._state)
        self._functions.append(function)
        return address

    def refresh(self) -> None:
        """Take all variables anew."""
        with self.lock:
            self._state = self.session.store.copy(self._variables)
            renew(self._functions, self._state)


class _JaxProgram:
    """A program for arrays of known types: a parameter of the primitive."""

    def __init__(self, derivable: Derivable, family: _CommonState, leaves: Sequence[bool] = ()) -> None:
        self.derivable = derivable
        self._common = family
        self._leaves = leaves
        self._address = 0
        self._derived: dict[Derivable, _JaxProgram] = {}
        self._compiled: dict[tuple[int, ...], Callable[..., Any]] = {}

    def __repr__(self) -> str:
        names = ("", "derivative of the ", "second derivative of the ")
        order = self.derivable.order
        return (names[order] if order < len(names) else f"derivative of order {order} of the ") + self._common.name

    def bind(self, arrays: Sequence[Any], batch: tuple[int, ...] = ()) -> list[Any]:
        found: list[Any] = _call.bind(*arrays, program=self, batch=batch)
        return found

    def spread(self, results: Sequence[Any]) -> list[Any]:
        """The results as leaves of the nest of fetches."""
        given = iter(results)
        return [next(given) if is_tensor else None for is_tensor in self._leaves]

    def words(self) -> int:
        """The address by which the handler calls it."""
        with self._common.lock:
            if not self._address:
                self._address = self._common.words(self.derivable)
            return self._address

    def compiled(self, batch: tuple[int, ...]) -> Callable[..., Any]:
        """A call outside of everything that JAX traces."""
        if batch not in self._compiled:
            self._compiled[batch] = jax.jit(functools.partial(_call.bind, program=self, batch=batch))
        return self._compiled[batch]

    def of(self, derivative: Derivable) -> _JaxProgram:
        """The program of a derivative of this one."""
        with self._common.lock:
            if derivative not in self._derived:
                self._derived[derivative] = _JaxProgram(derivative, self._common)
            return self._derived[derivative]


def _axes(program: _JaxProgram, number: int, array: Any) -> int:
    """The number of axes by which the feed is batched."""
    found: int = np.ndim(array) if not hasattr(array, "ndim") else array.ndim
    return found - program.derivable.feeds[number].ndim


# -- the primitive ----------------------------------------------------------------------------------------------------


def _abstract(*arrays: Any, program: _JaxProgram, batch: tuple[int, ...]) -> list[Any]:
    return [jax.core.ShapedArray((*batch, *t.shape), t.dtype) for t in program.derivable.results]


def _implementation(*arrays: Any, program: _JaxProgram, batch: tuple[int, ...]) -> Any:
    return program.compiled(batch)(*arrays)


def _lower(context: Any, *operands: Any, program: _JaxProgram, batch: tuple[int, ...]) -> Any:
    _register()
    given, made = ([(x.shape, x.dtype) for x in types] for types in (context.avals_in, context.avals_out))
    shared = {n: of for n, of in in_place(program.derivable).items() if given[n] == made[of]}
    rule: Any = jax.ffi.ffi_lowering(_TARGET, operand_output_aliases=shared)
    return rule(context, *operands, program=np.int64(program.words()))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: _JaxProgram, batch: tuple[int, ...]) -> Any:
    function = program.derivable
    by = tuple(n for n, t in enumerate(tangents) if type(t) is not ad.Zero)
    if function.is_number and by:
        slopes = program.of(function.slopes(by))
        both = slopes.bind(primals, batch)
        count = len(function.results)
        results, by_each = both[:count], both[count:]
        products = [_contracted(s, tangents[n], len(batch)) for n, s in zip(by, by_each, strict=True)]
        place = function.floating[0]
        moved = {place: sum(products[1:], products[0]).reshape(results[place].shape)}
    else:
        results = program.bind(primals, batch)
        moved = {}
        if by and function.floating:
            forward = program.of(function.pushforward(by, function.floating))
            found = forward.bind([*primals, *(tangents[n] for n in by)], batch)
            moved = dict(zip(function.floating, found, strict=True))
    return results, [moved[n] if n in moved else _no_tangent(result) for n, result in enumerate(results)]


def _contracted(slope: Any, tangent: Any, axes: int) -> Any:
    """The sum of products over the axes after those of the batch."""
    return jnp.sum(slope * tangent, axis=tuple(range(axes, slope.ndim)))


def _no_tangent(result: Any) -> Any:
    dtype = result.dtype if jnp.issubdtype(result.dtype, jnp.floating) else jax.dtypes.float0
    return ad.Zero(jax.core.ShapedArray(result.shape, dtype))


def _transpose(cotangents: Sequence[Any], *arrays: Any, program: _JaxProgram, batch: tuple[int, ...]) -> list[Any]:
    function = program.derivable
    by = tuple(n for n, a in enumerate(arrays) if ad.is_undefined_primal(a))
    of = tuple(n for n, ct in enumerate(cotangents) if type(ct) is not ad.Zero)
    if not of:
        return [ad.Zero(a.aval) if ad.is_undefined_primal(a) else None for a in arrays]
    back = program.of(function.transposed(by, of))
    given = [*arrays[: min(function.linear)], *(cotangents[n] for n in of)]
    found = back.bind(given, batch)
    result: list[Any] = [None] * len(arrays)
    for n, ct in zip(by, found, strict=True):
        if batch and arrays[n].aval.ndim == function.feeds[n].ndim:  # one for all elements of the batch
            ct = jnp.sum(ct, axis=tuple(range(len(batch))))
        result[n] = ct
    return result


def _batch(arrays: Sequence[Any], axes: Sequence[Any], *, program: _JaxProgram, batch: tuple[int, ...]) -> Any:
    (size,) = {a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None}
    given = []
    for number, (array, axis) in enumerate(zip(arrays, axes, strict=True)):
        item = program.derivable.feeds[number].shape
        if axis is not None:
            array = jnp.moveaxis(array, axis, 0)
            if batch and _axes(program, number, array) == 1:
                array = array.reshape(size, *[1] * len(batch), *item)
        if axis is not None or (batch and _axes(program, number, array) == len(batch)):
            array = jnp.broadcast_to(array, (size, *batch, *item))
        given.append(array)
    results = program.bind(given, (size, *batch))
    return results, [0] * len(results)


_call = _Primitive("staticgrad")
_call.multiple_results = True
_call.def_impl(_implementation)
_call.def_abstract_eval(_abstract)
ad.primitive_jvps[_call] = _jvp
ad.primitive_transposes[_call] = _transpose
batching.primitive_batchers[_call] = _batch
mlir.register_lowering(_call, _lower, platform="cpu")


@once
def _register() -> None:
    """Tell XLA the handler, once in a process."""
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handler(jax.ffi.include_dir())), platform="cpu")


__all__ = ["JaxFunction", "wrap"]
