"""The ops of PyTensor on one element, of which its elementwise ops and reductions are made."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import as_tensor, as_tensors, cast, functions, spread
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import Translation, body_of, converts, dtype_name, key_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Scalar = Callable[..., Tensor]
Applied = Callable[[Translation, Any, list[Any], str], list[Tensor]]  # see ``apply``


def _cast(x: Tensor, dtype: str) -> Tensor:
    return o.not_equal(x, 0) if dtype == "bool" and x.dtype != bool else cast(x, dtype)


def _folded(function: str, of_bools: str) -> Scalar:
    """A function of two operands, in turn of any number of them."""
    return lambda *xs: functools.reduce(getattr(o, of_bools if xs[0].dtype == bool else function), xs)


def _same(x: Tensor) -> Tensor:
    return x


# Ops whose operands are first cast to the dtype of the result.
IN_RESULT: dict[str, Scalar] = {
    **functions(
        ArcCos="acos", ArcCosh="acosh", ArcSin="asin", ArcSinh="asinh", ArcTan="atan", ArcTan2="atan2",
        ArcTanh="atanh", BetaInc="betainc", Ceil="ceil", Cos="cos", Cosh="cosh", Erf="erf", Erfc="erfc",
        Erfcinv="erfcinv", Erfcx="erfcx", Erfinv="erfinv", Exp="exp", Exp2="exp2", Expm1="expm1", Floor="floor",
        GammaInc="gammainc", GammaIncC="gammaincc", GammaLn="lgamma", I0="i0", I1="i1", IntDiv="floor_divide",
        Iv="iv", Ive="ive", Log="log", Log10="log10", Log1mexp="log1mexp", Log1p="log1p", Log2="log2",
        Maximum="maximum", Minimum="minimum", Mod="remainder", Neg="negative", Pow="pow", Psi="digamma",
        Reciprocal="reciprocal", RoundHalfToEven="round", Sigmoid="sigmoid", Sign="sign", Sin="sin", Sinh="sinh",
        Sqrt="sqrt", Sub="subtract", Tan="tan", Tanh="tanh", TrueDiv="divide", Trunc="trunc",
        XlogY0="xlogy",
    ),
    **dict.fromkeys(("Conj", "Identity", "Real"), _same),
    "Abs": lambda x: x if x.dtype.kind in "bu" else o.abs(x),
    "Add": _folded("add", "logical_or"),
    "Clip": lambda x, low, high: o.where(x < low, low, o.where(x > high, high, x)),
    "Deg2Rad": lambda x: x * (math.pi / 180),
    "Gamma": lambda x: _gamma(x),
    "GammaL": lambda a, x: o.gammainc(a, x) * _gamma(a),
    "GammaU": lambda a, x: o.gammaincc(a, x) * _gamma(a),
    "Mul": _folded("multiply", "logical_and"),
    "MulWithoutZeros": lambda x, y: o.where(x == 0, y, o.where(y == 0, x, x * y)),
    "Rad2Deg": lambda x: x * (180 / math.pi),
    "RoundHalfAwayFromZero": lambda x: o.copysign(o.floor(o.abs(x) + 0.5), x),
    "Second": lambda x, y: spread(y, np.broadcast_shapes(x.shape, y.shape)),
    "Softplus": lambda x: o.logaddexp(x, 0.0),
    "Sqr": lambda x: o.multiply(x, x),
    "TriGamma": lambda x: o.polygamma(1, x),
    "XlogX": lambda x: o.xlogy(x, x),
}  # fmt: skip

# Ops whose operands keep their dtypes.
AS_GIVEN: dict[str, Scalar] = {
    **functions(
        AND="bitwise_and", EQ="equal", GE="greater_equal", GT="greater", Invert="bitwise_invert", LE="less_equal",
        LT="less", NEQ="not_equal", OR="bitwise_or", XOR="bitwise_xor",
    ),
    "Cast": _same,
    "IsInf": lambda x: o.isinf(x) if x.dtype.kind == "f" else o.zeros_like(x, dtype_of(bool)),
    "IsNan": lambda x: o.isnan(x) if x.dtype.kind == "f" else o.zeros_like(x, dtype_of(bool)),
}  # fmt: skip


def _gamma(x: Tensor) -> Tensor:
    """The gamma function of its logarithm; between negative integers its sign alternates."""
    size = o.exp(o.lgamma(x))
    odd = o.remainder(o.floor(x), 2.0) == 1.0
    value = o.where((x < 0) & odd, -size, size)
    return o.where((x < 0) & (o.floor(x) == x), math.nan, value)


def _switch(at: Translation, op: Any, operands: list[Any], dtype: str) -> list[Tensor]:
    condition, *chosen = as_tensors(operands)
    return [o.where(condition, *(cast(x, dtype) for x in chosen))]


def _composite(at: Translation, op: Any, operands: list[Any], dtype: str) -> list[Tensor]:
    return as_tensors(at.call(body_of(op), operands))


def _polygamma(at: Translation, op: Any, operands: list[Any], dtype: str) -> list[Tensor]:
    order, x = operands
    if isinstance(order, Tensor) or np.unique(order).size != 1 or float(np.ravel(order)[0]) % 1:
        raise RefusedError("polygamma is converted for one order, an integer, that is known")
    result = o.polygamma(int(np.ravel(order)[0]), cast(as_tensor(x), dtype))
    return [spread(result, np.broadcast_shapes(result.shape, np.shape(order)))]


def _loop(at: Translation, op: Any, operands: list[Any], dtype: str) -> list[Tensor]:
    """A loop of each element: all run until the last one is done, and those that are done keep their values."""
    body, xs = body_of(op), as_tensors(operands)
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    count = len(body.outputs) - op.is_while
    steps, constants = spread(xs[0], shape), xs[1 + count :]
    states = [spread(cast(x, dtype_name(v)), shape) for x, v in zip(xs[1 : 1 + count], body.inputs)]

    def going(state: Any) -> Tensor:
        number, done, *_ = state
        return o.any(~done & (steps > number))

    def turn(state: Any) -> Any:
        number, done, *values = state
        new = as_tensors(at.call(body, [*values, *constants]))
        active = ~done & (steps > number)
        if op.is_while:
            done = done | (active & new[-1])
        kept = [o.where(active, spread(cast(x, old.dtype), shape), old) for x, old in zip(new, values)]
        return (number + 1, done, *kept)

    start = (o.constant(0, steps.dtype), o.zeros(shape, dtype=dtype_of(bool)), *states)
    _, done, *values = o.while_loop(going, turn, start)
    return [*values, done] if op.is_while else values


def _in_result(function: Scalar) -> Applied:
    return lambda at, op, xs, dtype: [cast(function(*(cast(x, dtype) for x in as_tensors(xs))), dtype)]


def _as_given(function: Scalar) -> Applied:
    return lambda at, op, xs, dtype: [_cast(function(*as_tensors(xs)), dtype)]


SCALARS: dict[str, Applied] = {
    **{name: _in_result(function) for name, function in IN_RESULT.items()},
    **{name: _as_given(function) for name, function in AS_GIVEN.items()},
    "Composite": _composite,
    "PolyGamma": _polygamma,
    "ScalarLoop": _loop,
    "Switch": _switch,
}


def apply(at: Translation, op: Any, operands: list[Any], dtype: str) -> list[Tensor]:
    """The results of a scalar op on tensors, elementwise.

    Args:
        at: lets bodies be converted.
        op: one of PyTensor's scalar ops.
        operands: tensors, or arrays that are known.
        dtype: of the first result.
    """
    return SCALARS[key_of(op, SCALARS)](at, op, operands, dtype)


@converts(*SCALARS)
def scalar(at: Translation, node: Any) -> list[Tensor]:
    """A node of a scalar op, as bodies have it."""
    return apply(at, node.op, [at.value(v) for v in node.inputs], node.outputs[0].type.dtype)
