"""Functions of JAX as tensors: ``staticgrad.jax.convert``.

Input: a function of JAX and its arguments, nests of tensors and arrays. JAX traces the function at their shapes and
dtypes into a jaxpr: equations, each of which applies a primitive to variables and literals. Output: tensors, declared
in the graph of the arguments.

The walk is that of ``bridges/importer.py``. ``CONVERTERS`` has a function for each primitive, by its name; the other
modules of the folder fill it. A primitive that a third party defined by a function of JAX is converted as that
function. What depends on constants alone and has few elements, such as an index, is computed at once by the ops'
references, in NumPy.

An array of random keys is one of integers of 64 bits here, so that slices, loops and branches handle it as any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError, SourceLine, UnsupportedError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPE_NAMES, Size
from staticgrad.bridges.arrays import LARGEST_KNOWN, as_tensor, as_tensors, cast, evaluated
from staticgrad.bridges.importer import Converters, Dialect, RefusedError, SourceBody, SourceScope, SourceType
from staticgrad.bridges.jaxpr import versions
from staticgrad.bridges.jaxpr.sizes import OpenSizes
from staticgrad.bridges.jaxpr.versions import dtype_of_aval, jax
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.lifting import graph_of

CONVERTERS = Converters()
converts = CONVERTERS.enter

# Why primitives are refused, beyond that they are not converted.
CALLBACK = "a call of Python: declare it here, by sg.py_call or sg.print"
COLLECTIVES = (
    "all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "ragged_all_to_all", "shard_map",
)  # fmt: skip
MACHINES = "it is about several devices, which sg.distributed is for"
REFUSED: dict[str, str] = {
    **dict.fromkeys(("debug_callback", "debug_print", "io_callback", "pure_callback", "buffer_callback"), CALLBACK),
    **dict.fromkeys(COLLECTIVES, MACHINES),
    **dict.fromkeys(("eig", "schur"), "its results are complex numbers"),
    **dict.fromkeys(("after_all", "create_token"), "tokens order effects, which are declared in their order here"),
    **dict.fromkeys(("rng_bit_generator", "rng_uniform"), "its numbers are those of XLA's own generators"),
}


@frozen
class Choices:
    """Options of a conversion: whether custom rules are kept, and the most turns of a ``while_loop``."""

    keeps_rules: bool = True
    max_steps: int | None = None


KEEPING = Choices()


# Calls of functions, whose arguments and results may be complex.
CALLS = ("jit", "pjit", "closed_call", "core_call", "call")


def is_complex(node: Any) -> bool:
    """True if a complex number is among the operands or results of an equation."""
    return any(getattr(getattr(v.aval, "dtype", None), "kind", "") == "c" for v in (*node.invars, *node.outvars))


@frozen(eq=False)
class ComplexPair:
    """Complex numbers within a function: their two parts."""

    real: Tensor
    imag: Tensor


class _Jax(Dialect):
    """A node is an equation, a variable a variable or literal of it."""

    system = "JAX"
    converters = CONVERTERS
    casts = True

    def name(self, node: Any) -> str:
        return str(node.primitive.name)

    def key(self, node: Any) -> str:
        name = self.name(node)
        if name == "pure_callback" and versions.messages_of(node) is not None:
            return "error_if"
        if is_complex(node) and name not in CALLS:
            return f"complex {name}"
        is_foreign = name not in CONVERTERS and versions.implementation_of(node.primitive) is not None
        return "" if is_foreign else name

    def shown(self, node: Any) -> str:
        operands, results = (", ".join(v.aval.str_short() for v in vs) for vs in (node.invars, node.outvars))
        return f"{operands} to {results}"

    def operands(self, node: Any) -> Sequence[Any]:
        return list(node.invars)

    def results(self, node: Any) -> Sequence[Any]:
        return list(node.outvars)

    def declared(self, variable: Any) -> SourceType | None:
        dtype = dtype_of_aval(variable.aval)
        if dtype is None:
            return None
        return SourceType(dtype, tuple(size if isinstance(size, int) else None for size in variable.aval.shape))

    def bodies(self, node: Any) -> Iterator[SourceBody]:
        return (body_of(versions.parts_of(each)[0]) for each in versions.bodies_of(node.params))

    def source(self, node: Any) -> SourceLine | None:
        return versions.source_of(node)

    def objects_to(self, node: Any) -> Iterator[tuple[str, str]]:
        name = self.name(node)
        if self.key(node) not in CONVERTERS:
            other = "of complex numbers it is not converted" if is_complex(node) else "this op is not converted"
            yield name, REFUSED.get(name, other)
        if any(True for _ in versions.bodies_of(node.params)):
            return  # the nodes inside say it
        for variable in (*node.invars, *node.outvars):
            dtype = dtype_of_aval(variable.aval)
            if dtype is None or not (dtype.kind == "c" or dtype.name in DTYPE_NAMES):
                yield name, f"a value of type {variable.aval.str_short()}"

    def compute(self, node: Any, given: Sequence[Any]) -> Sequence[Any] | None:
        few = all(_is_few(v.aval.shape) for v in node.outvars)
        acts = bool(node.effects) or self.key(node) == "error_if"  # which a run may never come to
        if not few or acts or self.name(node) == "dim_as_value":
            return None
        if is_complex(node) or any(True for _ in versions.bodies_of(node.params)):
            return None
        with Graph():
            scope = JaxScope({v: x for v, x in zip(node.invars, given, strict=True) if not versions.is_literal(v)})
            made = CONVERTERS[self.key(node)](scope, node)
            return evaluated(as_tensors(made if isinstance(made, (list, tuple)) else [made]))


def _is_few(shape: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in shape) and math.prod(shape) <= LARGEST_KNOWN


JAX = _Jax()


def body_of(jaxpr: Any) -> SourceBody:
    return SourceBody([*jaxpr.constvars, *jaxpr.invars], jaxpr.eqns, jaxpr.outvars)


class JaxScope(SourceScope):
    """A tensor of ours, or an array that is known, for each variable of a jaxpr.

    Attributes:
        choices: how the function is converted.
        lifted: tensors in the place of constants of the jaxprs, by their identity.
        given: the tensors that the function was called with.
        open: the open sizes among the shapes.
        part: "real" or "imag" where complex values are seen as this part of them.
        derives: True in JAX's rule for the tangents of a function.
    """

    def __init__(
        self,
        values: Mapping[Any, Any],
        choices: Choices = KEEPING,
        lifted: Mapping[int, Tensor] | None = None,
        sizes: OpenSizes | None = None,
    ) -> None:
        super().__init__(JAX, values)
        self.choices = choices
        self.open = OpenSizes() if sizes is None else sizes
        self.part = ""
        self.lifted: Mapping[int, Tensor] = {} if lifted is None else lifted
        self.given: frozenset[Tensor] = frozenset(self.lifted.values())
        self.derives = False
        self._arrays: dict[int, Any] = {}  # of constants, one for all uses, so that it is one constant

    def value(self, variable: Any) -> Any:
        literal = versions.is_literal(variable)
        found = versions.as_array(variable.val, variable.aval) if literal else super().value(variable)
        is_pair = isinstance(found, ComplexPair) or (isinstance(found, np.ndarray) and found.dtype.kind == "c")
        return getattr(found, self.part) if self.part and is_pair else found

    def tensor(self, variable: Any) -> Tensor:
        return as_tensor(self.value(variable)) if versions.is_literal(variable) else super().tensor(variable)

    def declare_node(self, node: Any) -> None:
        try:
            super().declare_node(node)
        except (TypeError, versions.InconclusiveError) as error:
            if not self.open.sizes:
                raise
            raise JAX.refused_at(
                node, RefusedError(f"it depends on an open size: {str(error).splitlines()[0]}")
            ) from error

    def shape_of(self, variable: Any) -> tuple[Size, ...]:
        """The shape that JAX gives a variable, in sizes of ours."""
        return self.open.shape(variable.aval.shape)

    def constant_of(self, value: Any) -> Any:
        """The array or tensor for a constant of a jaxpr."""
        number = id(value)
        if number not in self._arrays:
            self._arrays[number] = self.lifted[number] if number in self.lifted else versions.as_array(value)
        return self._arrays[number]

    def run(self, body: Any, values: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr, given what its inputs are."""
        jaxpr, constants = versions.parts_of(body)
        return self.call(body_of(jaxpr), [*map(self.constant_of, constants), *values])

    def run_function(self, fn: Callable[..., Any], node: Any, *, known: Sequence[int] = ()) -> list[Any]:
        """The results of a function of JAX in the place of a node's primitive."""
        specs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in node.invars]
        body = jax.make_jaxpr(lambda *xs: jax.tree.leaves(fn(*xs)))(*specs)
        JAX.require(body_of(body.jaxpr))
        return self.run(body, [self.value(v) for v in node.invars])


@converts("")
def foreign(at: JaxScope, node: Any) -> list[Any]:
    """A primitive of a third party: what its implementation does."""
    implementation = versions.implementation_of(node.primitive)
    return at.run_function(lambda *xs: implementation(*xs, **node.params), node)  # type: ignore[misc]


# -- functions ---------------------------------------------------------------------------------------------------------


@frozen
class Traced:
    """A function as JAX traced it: the jaxpr, and the structure of its results."""

    body: Any
    tree: Any
    keys: Sequence[Any]

    @property
    def free(self) -> list[Any]:
        """The constants that JAX is tracing itself, such as the arguments of a function around."""
        return [value for value in self.body.consts if versions.is_traced(value)]


def trace(fn: Callable[..., Any], specs: Sequence[Any], tree: Any) -> Traced:
    """Trace a function of the leaves of its arguments, whose structure is ``tree``; random keys among its results come
    as their words."""
    found: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        args, named = jax.tree.unflatten(tree, leaves)
        results, structure = jax.tree.flatten(fn(*args, **named))
        keys = [versions.is_key(getattr(y, "dtype", np.dtype(bool))) for y in results]
        found[:] = structure, [y.dtype if key else None for y, key in zip(results, keys)]
        return [jax.random.key_data(y) if key else y for y, key in zip(results, keys)]

    body = jax.make_jaxpr(flat)(*specs)
    return Traced(body, *found)


def declare(
    traced: Traced,
    values: Sequence[Any],
    choices: Choices,
    lifted: Mapping[int, Tensor],
    sizes: OpenSizes | None = None,
) -> list[Tensor]:
    """Declare what a traced function computes of tensors and known arrays."""
    JAX.require(body_of(traced.body.jaxpr))
    for variable in traced.body.jaxpr.outvars:
        if getattr(variable.aval.dtype, "kind", "") == "c":
            shown = variable.aval.str_short()
            raise RefusedError(f"JAX: a result of type {shown}: return its real and imaginary parts")
    scope = JaxScope({}, choices, lifted, sizes)
    given = [_of_type(variable, value) for variable, value in zip(traced.body.jaxpr.invars, values, strict=True)]
    scope.given |= {value for value in given if isinstance(value, Tensor)}
    return as_tensors(scope.run(traced.body, given))


def _of_type(variable: Any, value: Any) -> Any:
    """An argument in the dtype in which JAX traced it, which has 32 bits where JAX has no others."""
    if not isinstance(value, Tensor):
        return versions.as_array(value, variable.aval)
    dtype = dtype_of_aval(variable.aval)
    return cast(value, dtype) if dtype is not None else value


def _traced_open(fn: Callable[..., Any], leaves: Sequence[Any], tree: Any, sizes: OpenSizes) -> Traced:
    """Trace at the shapes of tensors, of which some are open.

    Raises:
        UnsupportedError: the function asks for what only a number answers.
    """
    specs = [
        jax.ShapeDtypeStruct(sizes.dimensions(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves
    ]
    try:
        return trace(fn, specs, tree)
    except (TypeError, ValueError, NotImplementedError, versions.InconclusiveError) as error:
        if not sizes.sizes or isinstance(error, GraphError):
            raise
        asking = next(leaf for leaf in leaves if isinstance(leaf, Tensor) and not leaf.type.static)
        names = ", ".join(f"{size} as {name}" for name, size in sizes.sizes.items())
        raise UnsupportedError(
            f"convert: {asking.name!r} has the open shape {asking.shape}, at which JAX cannot trace the function:"
            f" declare numbers, or sizes that are equal as one sg.dim\n  JAX, which has {names}, says:"
            f" {str(error).splitlines()[0]}",
            source=asking.source,
        ) from error


def convert(fn: Callable[..., Any], *, derivatives: str = "source", max_steps: int | None = None) -> Callable[..., Any]:
    """A function of JAX as a function of tensors.

    The result is called with the arguments of ``fn``, nests (pytrees) with tensors and arrays as leaves, and declares
    what ``fn`` computes in the tensors' graph. Tensors stay tensors, which gradients flow to; arrays, and what ``fn``
    reads from around, are constants. Values are JAX's: random numbers bit for bit, indices that are out of range,
    casts, integer division, NaN, derivatives where functions have kinks. Only ``where`` differs: what it does not
    choose contributes 0 to a gradient, where JAX may give NaN.

    Args:
        fn: traced once in each call, at the shapes and dtypes of the arguments. Open sizes are symbolic dimensions to
            JAX (``jax.export``), which takes for granted that they are at least 1.
        derivatives: ``"source"`` keeps the rules of ``jax.custom_jvp`` and ``jax.custom_vjp``; with ``"ours"``
            derivatives are those of what the functions compute.
        max_steps: the most turns of each ``lax.while_loop``, at which it stops; one that shall be derived in reverse
            needs it.

    Returns:
        A function that gives the nest of ``fn`` with a tensor for each array.

    Raises:
        GraphError: another word for ``derivatives``, or arguments without a tensor.
        UnsupportedError: (when called) primitives or dtypes without a counterpart, all at once; an open size on
            which the function's own course depends.

    Source: JAX's jaxprs (Bradbury et al. 2018); semantics of the primitives are those of XLA's operations.

    Example:
        >>> import jax.numpy as jnp
        >>> import staticgrad.jax
        >>> x = sg.placeholder((3,))
        >>> y = staticgrad.jax.convert(lambda x: {"norm": jnp.linalg.norm(x)})(x)["norm"]
        >>> sg.Session().run([y, *sg.gradients(y, x)], {x: [3, 0, 4]})
        [array(5., dtype=float32), array([0.6, 0. , 0.8], dtype=float32)]
    """
    if derivatives not in ("source", "ours"):
        raise GraphError(f"convert: derivatives is 'source' or 'ours', not {derivatives!r}")
    choices = Choices(derivatives == "source", max_steps)

    @boundary
    def declared(*args: Any, **named: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, named))
        graph = graph_of([leaf for leaf in leaves if isinstance(leaf, Tensor)])
        sizes = OpenSizes()
        traced = _traced_open(fn, leaves, tree, sizes)
        with graph:
            return jax.tree.unflatten(traced.tree, declare(traced, leaves, choices, {}, sizes))

    return declared
