"""Accessors of JAX that are not public, or that differ between its releases.

All other modules of the folder read attributes of ``jax.make_jaxpr``'s result alone: equations with ``primitive``,
``params``, ``invars`` and ``outvars``, literals with ``val``, variables with ``aval``. Releases from 0.5 on are known.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import SourceLine

try:
    import jax
except ImportError as error:
    raise ImportError("staticgrad.jax needs JAX: pip install '.[jax]' in a checkout") from error
from jax._src import core  # what jax.extend.core has, without that package's import of all of Pallas

__all__ = [
    "DEFINITIONS", "KEY_DTYPE", "InconclusiveError", "as_array", "bodies_of", "definition_of", "depend",
    "dtype_of_aval", "dtype_of_type", "function_of", "gamma_of", "has_two_words", "implementation_of", "is_key",
    "is_literal", "is_traced", "jax", "messages_of", "packed_keys", "parts_of", "source_of", "symbolic_scope",
    "symbolic_size",
]  # fmt: skip

InconclusiveError: type[Exception] = core.InconclusiveDimensionOperation  # of what depends on an open size

KEY_DTYPE = np.dtype(np.uint64)  # of an array of random keys: the two words of each, the first one in the upper half


def is_key(dtype: Any) -> bool:
    """True for the dtype of arrays of random keys (``jax.random.key``)."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def has_two_words(dtype: Any) -> bool:
    """True if keys of this dtype are those of Threefry."""
    return tuple(dtype._impl.key_shape) == (2,)


def dtype_of_aval(aval: Any) -> np.dtype | None:
    """The NumPy dtype by which values of a type of JAX are known here; None where there is none."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not is_key(dtype):
        return None if dtype is None or not isinstance(dtype, np.dtype) else dtype
    return KEY_DTYPE if has_two_words(dtype) else None


def dtype_of_type(aval: Any) -> np.dtype:
    """The dtype of a type that has one here."""
    dtype = dtype_of_aval(aval)
    assert dtype is not None
    return dtype


def packed_keys(words: np.ndarray) -> np.ndarray:
    """Keys as integers of 64 bits, of their words along the last axis."""
    return words[..., 0].astype(KEY_DTYPE) << KEY_DTYPE.type(32) | words[..., 1].astype(KEY_DTYPE)


def as_array(value: Any, aval: Any = None) -> np.ndarray:
    """The value of a literal or a constant as an array of NumPy."""
    if is_key(getattr(value, "dtype", np.dtype(bool))):
        return packed_keys(np.asarray(jax.random.key_data(value)))
    return np.asarray(value, None if aval is None else dtype_of_aval(aval))


def symbolic_scope() -> Any:
    """The scope that symbolic dimensions of one trace have in common."""
    from jax._src.export import shape_poly  # what jax.export has, which in some releases asks for absl besides

    importlib.import_module("jax._src.export.shape_poly_decision")  # with which bounds are compared
    return shape_poly.SymbolicScope()


def symbolic_size(name: str, scope: Any) -> Any:
    """A size that JAX traces by this name."""
    from jax._src.export import shape_poly

    return shape_poly.symbolic_shape(name, scope=scope)[0]


def source_of(equation: Any) -> SourceLine | None:
    """The line of the user's program that made an equation."""
    from jax._src import source_info_util

    info = equation.source_info
    for place in (getattr(info, "traceback", None), info):
        try:
            frames = list(source_info_util.user_frames(place))
        except (AttributeError, TypeError):  # this release asks for the other one
            continue
        own = os.path.dirname(os.path.dirname(__file__))
        found = next((frame for frame in frames if not frame.file_name.startswith(own)), None)
        return None if found is None else SourceLine(found.file_name, int(found.start_line), found.function_name)
    return None


def bodies_of(parameters: Any) -> Iterator[Any]:
    """The jaxprs, with or without constants, among the parameters of an equation."""
    for value in parameters.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(each, (core.ClosedJaxpr, core.Jaxpr)):
                yield each


def parts_of(body: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr without its constants, and these."""
    return (body.jaxpr, body.consts) if isinstance(body, core.ClosedJaxpr) else (body, ())


def depend(jaxpr: Any, variables: Sequence[Any]) -> list[bool]:
    """For each result of a jaxpr, False if it does not depend on any of these variables."""
    found = set(variables)
    for equation in jaxpr.eqns:
        if any(not is_literal(v) and v in found for v in equation.invars):
            found.update(equation.outvars)
    return [not is_literal(v) and v in found for v in jaxpr.outvars]


def is_literal(variable: Any) -> bool:
    return isinstance(variable, core.Literal)


def is_traced(value: Any) -> bool:
    """True for a value that JAX knows only when what it traces is run."""
    return isinstance(value, jax.core.Tracer)


def function_of(equation: Any) -> tuple[Callable[..., list[Any]], list[Any]]:
    """An equation as a function of JAX, and the variables, each once, that it is a function of. JAX's transformations
    of it follow the custom rules that the equation has."""
    variables = list(dict.fromkeys(v for v in equation.invars if not is_literal(v)))

    def function(*values: Any) -> list[Any]:
        given = dict(zip(variables, values, strict=True))
        operands = [v.val if is_literal(v) else given[v] for v in equation.invars]
        found = equation.primitive.get_bind_params(equation.params)
        functions, parameters = found if isinstance(found, tuple) else ((), found)
        results = equation.primitive.bind(*functions, *operands, **parameters)
        return list(results) if equation.primitive.multiple_results else [results]

    return function, variables


# Products of JAX's sparse matrices, whose functions it keeps beside the primitives, to have kernels for GPUs first.
SPARSE_PRODUCTS = ("bcoo_dot_general", "bcsr_dot_general")


def implementation_of(primitive: Any) -> Callable[..., Any] | None:
    """The function of JAX that a primitive of a third party, or of JAX's sparse matrices, was defined by; None of its
    others, which XLA has."""
    name = str(primitive.name)
    format_ = f"jax.experimental.sparse.{name.split('_')[0]}"
    if name in SPARSE_PRODUCTS and format_ in sys.modules:
        return getattr(sys.modules[format_], f"_{name}_impl", None)
    function = getattr(primitive, "impl", None)
    module = getattr(getattr(function, "func", function), "__module__", "jax")
    is_own = module.split(".")[0] in ("jax", "jaxlib") and not module.startswith("jax.experimental.sparse.")
    return None if is_own else function


# Primitives that JAX itself lowers as functions of others: the module and the name of each.
DEFINITIONS: dict[str, tuple[str, str]] = {
    "cholesky_update": ("lax.linalg", "_cholesky_update_jax_fn"),
    "ragged_dot_general": ("lax.lax", "_ragged_dot_general_impl"),
    "symmetric_product": ("lax.linalg", "_symmetric_product_jax_fn"),
}


def definition_of(name: str) -> Callable[..., Any] | None:
    """The function of JAX by which it defines a primitive of the table; None in releases that have no such."""
    module, function = DEFINITIONS[name]
    try:
        return getattr(importlib.import_module(f"jax._src.{module}"), function, None)
    except ImportError:
        return None


def messages_of(equation: Any) -> Sequence[str] | None:
    """The messages of Equinox's ``error_if``, of which the operand has the number of one; None of another callback.
    What follows the error there, for accelerators that go on, has none."""
    function: Any = getattr(equation.params.get("callback"), "callback_func", None)
    if getattr(function, "__module__", None) != "equinox._errors":
        return None
    if function.__name__ == "raises":
        return inspect.getclosurevars(function).nonlocals.get("msgs")
    return () if function.__name__ == "tpu_msg" else None


def gamma_of(keys: Any, shape: Any, *, log_space: bool) -> Any:
    """JAX's samples of gamma distributions, by its own primitives."""
    from jax._src import random

    own = random._gamma_impl if hasattr(random, "_gamma_impl") else random.core._gamma_impl
    return own(keys, shape, log_space=log_space, use_vmap=False)
