"""``staticgrad.jax.jit``: a function of JAX that staticgrad compiles.

Input: a function of JAX. Output: one that JAX code calls in its place. For each signature (the structure of the
arguments, shapes and dtypes) the function is converted in a graph of its own, compiled, and called through ``wrap``, so
that it works wherever a function of JAX does. Python calls it through ``jax.jit``, whose calls of known signatures
take a few microseconds, where to bind a primitive takes several times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError, refuse_copies
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.recent import Recent
from staticgrad.base.types import dtype_of
from staticgrad.bridges.jax import JaxFunction, wrap
from staticgrad.bridges.jaxpr import versions
from staticgrad.bridges.jaxpr.conversion import Choices, Traced, declare, trace
from staticgrad.bridges.jaxpr.randoms import joined
from staticgrad.bridges.jaxpr.versions import dtype_of_type, jax
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.runtime.session.session import Session

KEPT = 64  # signatures of one function


class CompiledFunction:
    """A function of JAX that is converted and compiled here: ``staticgrad.jax.jit(fn)``.

    Attributes:
        function: what JAX calls for the latest signature, made by ``wrap``; None before the first call.
    """

    __reduce_ex__ = refuse_copies("a compiled function of JAX", "compile it in each process: staticgrad.jax.jit(fn)")

    def __init__(self, fn: Callable[..., Any], static: Sequence[int], choices: Choices) -> None:
        """These are made by ``jit``."""
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._static = frozenset(static)
        self._choices = choices
        self._known: Recent[tuple[JaxFunction, Traced]] = Recent(KEPT)
        self._lock = reentrant_lock()
        self.function: JaxFunction | None = None
        self._called = jax.jit(self._call, static_argnums=static)

    def __repr__(self) -> str:
        return f"<function of JAX {getattr(self._fn, '__qualname__', self._fn)!r}, compiled by staticgrad>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._called(*args, **named)

    def _call(self, *args: Any, **named: Any) -> Any:
        static = {n % len(args): args[n] for n in self._static if -len(args) <= n < len(args)}
        moving = [x for n, x in enumerate(args) if n not in static]
        leaves, tree = jax.tree.flatten((moving, named))
        arrays = [leaf if isinstance(leaf, jax.Array) else jax.numpy.asarray(leaf) for leaf in leaves]
        types = tuple([(a.shape, a.dtype, getattr(a, "weak_type", False)) for a in arrays])
        key = (tree, tuple(sorted(static.items())), types)
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._compile(static, tree, arrays)
                if not found[1].free:
                    self._known.put(key, found)
        self.function, traced = found
        results = self.function(*map(_words_of, [*arrays, *traced.free]))
        given = [_wrapped(y, key) for y, key in zip(results, traced.keys, strict=True)]
        return jax.tree.unflatten(traced.tree, given)

    def _compile(self, static: dict[int, Any], tree: Any, arrays: Sequence[Any]) -> tuple[JaxFunction, Traced]:
        def fn(*moving: Any, **named: Any) -> Any:
            given = iter(moving)
            count = len(moving) + len(static)
            return self._fn(*(static[n] if n in static else next(given) for n in range(count)), **named)

        specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False)) for a in arrays]
        traced = trace(fn, specs, tree)
        with Graph() as graph:
            feeds, values = zip(*(_feed(x) for x in [*arrays, *traced.free])) if arrays or traced.free else ((), ())
            lifted = dict(zip(map(id, traced.free), values[len(arrays) :]))
            results = declare(traced, values[: len(arrays)], self._choices, lifted)
            return wrap(Session(graph).compile(results, list(feeds))), traced


def _feed(array: Any) -> tuple[Tensor, Tensor]:
    """A placeholder for an array, and the tensor that a converted function sees."""
    if versions.is_key(array.dtype):
        words = o.placeholder((*array.shape, 2), dtype_of("uint32"))
        return words, joined(words)
    x = o.placeholder(tuple(array.shape), dtype_of_type(array))
    return x, x


def _words_of(array: Any) -> Any:
    return jax.random.key_data(array) if versions.is_key(array.dtype) else array


def _wrapped(result: Any, key: Any) -> Any:
    """A result that is one of random keys as such."""
    return result if key is None else jax.random.wrap_key_data(result, impl=key._impl.name)


@boundary
def jit(
    fn: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
    derivatives: str = "source",
    max_steps: int | None = None,
) -> CompiledFunction:
    """A function of JAX that staticgrad compiles, in the place of ``jax.jit(fn)``.

    It may be called wherever JAX code calls functions: eagerly, under ``jax.jit``, ``grad``, ``vjp``, ``jvp``,
    ``vmap``, in ``lax.scan``. For each structure, shapes and dtypes of the arguments ``fn`` is traced, converted
    (``convert``) and compiled once. Arrays that ``fn`` reads from around are constants, as with ``jax.jit``.

    Args:
        fn: of nests (pytrees) of arrays.
        static_argnums: positions of arguments that are no arrays and that ``fn`` is compiled for; these are hashable.
        donate_argnums: taken for the sake of ``jax.jit``, and without effect: nothing overwrites an argument.
        derivatives: as in ``convert``.
        max_steps: as in ``convert``.

    Raises:
        GraphError: no function, or another word for ``derivatives``.
        UnsupportedError: (when called) primitives or dtypes without a counterpart, all at once.

    Example:
        >>> import jax
        >>> import staticgrad.jax
        >>> energy = staticgrad.jax.jit(lambda x: (x**4).sum())
        >>> jax.grad(energy)(np.array([1.0, 2.0], np.float32)).tolist()
        [4.0, 32.0]
    """
    if not callable(fn):
        raise GraphError(f"jit: expected a function, actual {fn!r}")
    if derivatives not in ("source", "ours"):
        raise GraphError(f"jit: derivatives is 'source' or 'ours', not {derivatives!r}")
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    return CompiledFunction(fn, static, Choices(derivatives == "source", max_steps))
