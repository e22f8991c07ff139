"""The ops of PyTensor on one element, of which its elementwise ops and reductions are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.pytensor.conversion import CONVERTERS, RefusedError, Translation, dtype_name
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Scalar = Callable[..., Tensor]


def cast(x: Tensor, dtype: Any) -> Tensor:
    dtype = np.dtype(dtype)
    return x if x.dtype == dtype else o.astype(x, dtype_of(dtype))


# Ops whose operands are first cast to the dtype of the result.
IN_RESULT: dict[str, Scalar] = {
    "Abs": lambda x: x if x.dtype.kind in "bu" else o.abs(x),
    "Add": lambda *xs: _fold(o.logical_or if xs[0].dtype == bool else o.add, xs),
    "ArcCos": lambda x: o.acos(x),
    "ArcCosh": lambda x: o.acosh(x),
    "ArcSin": lambda x: o.asin(x),
    "ArcSinh": lambda x: o.asinh(x),
    "ArcTan": lambda x: o.atan(x),
    "ArcTan2": lambda y, x: o.atan2(y, x),
    "ArcTanh": lambda x: o.atanh(x),
    "BetaInc": lambda a, b, x: o.betainc(a, b, x),
    "Cast": lambda x: x,
    "Ceil": lambda x: o.ceil(x),
    "Clip": lambda x, low, high: o.where(x < low, low, o.where(x > high, high, x)),
    "Conj": lambda x: x,
    "Cos": lambda x: o.cos(x),
    "Cosh": lambda x: o.cosh(x),
    "Deg2Rad": lambda x: x * (math.pi / 180),
    "Erf": lambda x: o.erf(x),
    "Erfc": lambda x: o.erfc(x),
    "Erfcinv": lambda x: o.erfcinv(x),
    "Erfcx": lambda x: o.erfcx(x),
    "Erfinv": lambda x: o.erfinv(x),
    "Exp": lambda x: o.exp(x),
    "Exp2": lambda x: o.exp2(x),
    "Expm1": lambda x: o.expm1(x),
    "Floor": lambda x: o.floor(x),
    "GammaInc": lambda a, x: o.gammainc(a, x),
    "GammaIncC": lambda a, x: o.gammaincc(a, x),
    "GammaL": lambda a, x: o.gammainc(a, x) * _gamma(a),
    "GammaLn": lambda x: o.lgamma(x),
    "GammaU": lambda a, x: o.gammaincc(a, x) * _gamma(a),
    "Gamma": lambda x: _gamma(x),
    "I0": lambda x: o.i0(x),
    "I1": lambda x: o.i1(x),
    "Identity": lambda x: x,
    "IntDiv": lambda x, y: o.floor_divide(x, y),
    "Iv": lambda order, x: o.iv(order, x),
    "Ive": lambda order, x: o.ive(order, x),
    "Log": lambda x: o.log(x),
    "Log10": lambda x: o.log10(x),
    "Log1mexp": lambda x: o.log1mexp(x),
    "Log1p": lambda x: o.log1p(x),
    "Log2": lambda x: o.log2(x),
    "Maximum": lambda x, y: o.maximum(x, y),
    "Minimum": lambda x, y: o.minimum(x, y),
    "Mod": lambda x, y: o.remainder(x, y),
    "Mul": lambda *xs: _fold(o.logical_and if xs[0].dtype == bool else o.multiply, xs),
    "MulWithoutZeros": lambda x, y: o.where(x == 0, y, o.where(y == 0, x, x * y)),
    "Neg": lambda x: o.negative(x),
    "Pow": lambda x, y: o.pow(x, y),
    "Psi": lambda x: o.digamma(x),
    "Rad2Deg": lambda x: x * (180 / math.pi),
    "Real": lambda x: x,
    "Reciprocal": lambda x: o.reciprocal(x),
    "RoundHalfAwayFromZero": lambda x: o.copysign(o.floor(o.abs(x) + 0.5), x),
    "RoundHalfToEven": lambda x: o.round(x),
    "Second": lambda x, y: o.broadcast_to(y, np.broadcast_shapes(x.shape, y.shape)),
    "Sigmoid": lambda x: o.sigmoid(x),
    "Sign": lambda x: o.sign(x),
    "Sin": lambda x: o.sin(x),
    "Sinh": lambda x: o.sinh(x),
    "Softplus": lambda x: o.logaddexp(x, 0.0),
    "Sqr": lambda x: o.multiply(x, x),
    "Sqrt": lambda x: o.sqrt(x),
    "Sub": lambda x, y: o.subtract(x, y),
    "Tan": lambda x: o.tan(x),
    "Tanh": lambda x: o.tanh(x),
    "TriGamma": lambda x: o.polygamma(1, x),
    "TrueDiv": lambda x, y: o.divide(x, y),
    "Trunc": lambda x: o.trunc(x),
    "XlogX": lambda x: o.xlogy(x, x),
    "XlogY0": lambda x, y: o.xlogy(x, y),
}

# Ops whose operands keep their dtypes.
AS_GIVEN: dict[str, Scalar] = {
    "AND": lambda x, y: o.bitwise_and(x, y),
    "EQ": lambda x, y: o.equal(x, y),
    "GE": lambda x, y: o.greater_equal(x, y),
    "GT": lambda x, y: o.greater(x, y),
    "Invert": lambda x: o.bitwise_invert(x),
    "IsInf": lambda x: o.isinf(x) if x.dtype.kind == "f" else o.zeros_like(x, dtype_of(np.dtype(bool))),
    "IsNan": lambda x: o.isnan(x) if x.dtype.kind == "f" else o.zeros_like(x, dtype_of(np.dtype(bool))),
    "LE": lambda x, y: o.less_equal(x, y),
    "LT": lambda x, y: o.less(x, y),
    "NEQ": lambda x, y: o.not_equal(x, y),
    "OR": lambda x, y: o.bitwise_or(x, y),
    "XOR": lambda x, y: o.bitwise_xor(x, y),
}


def _fold(function: Scalar, xs: tuple[Tensor, ...]) -> Tensor:
    total = xs[0]
    for x in xs[1:]:
        total = function(total, x)
    return total


def _gamma(x: Tensor) -> Tensor:
    """The gamma function of its logarithm; between negative integers its sign alternates."""
    size = o.exp(o.lgamma(x))
    odd = o.remainder(o.floor(x), 2.0) == 1.0
    value = o.where((x < 0) & odd, -size, size)
    return o.where((x < 0) & (o.floor(x) == x), math.nan, value)


def apply(at: Translation, op: Any, operands: list[Any], dtype: str) -> list[Tensor]:
    """The results of a scalar op on tensors, elementwise.

    Args:
        at: lets inner graphs be converted.
        op: one of PyTensor's scalar ops.
        operands: tensors, or arrays that are known.
        dtype: of the first result.
    """
    name = next((c.__name__ for c in type(op).__mro__ if c.__name__ in _NAMES), None)
    if name is None:
        raise RefusedError(f"the function {op} is not converted")
    if name == "Composite":
        inner = at.inner(op.fgraph.inputs, operands)
        inner.convert(op.fgraph.inputs, op.fgraph.outputs)
        return inner.tensors(op.fgraph.outputs)
    if name == "ScalarLoop":
        return _loop(at, op, operands)
    if name == "PolyGamma":
        return [_polygamma(operands[0], operands[1], dtype)]
    xs = [x if isinstance(x, Tensor) else o.constant(x) for x in operands]
    if name == "Switch":
        condition, chosen, other = xs
        return [o.where(condition, cast(chosen, dtype), cast(other, dtype))]
    if name in AS_GIVEN:
        return [cast(AS_GIVEN[name](*xs), dtype)]
    if name == "Cast" and dtype == "bool":
        return [o.not_equal(xs[0], 0) if xs[0].dtype != bool else xs[0]]
    return [cast(IN_RESULT[name](*(cast(x, dtype) for x in xs)), dtype)]


_NAMES = {*IN_RESULT, *AS_GIVEN, "Switch", "Composite", "ScalarLoop", "PolyGamma"}


def _polygamma(order: Any, x: Any, dtype: str) -> Tensor:
    if isinstance(order, Tensor) or np.unique(order).size != 1 or float(np.ravel(order)[0]) % 1:
        raise RefusedError("polygamma is converted for one order, an integer, that is known")
    whole = int(np.ravel(order)[0])
    result = o.polygamma(whole, cast(x if isinstance(x, Tensor) else o.constant(x), dtype))
    return o.broadcast_to(result, np.broadcast_shapes(result.shape, np.shape(order)))


def _loop(at: Translation, op: Any, operands: list[Any]) -> list[Tensor]:
    """A loop of each element: all run until the last one is done, and those that are done keep their values."""
    xs = [x if isinstance(x, Tensor) else o.constant(x) for x in operands]
    steps, *rest = xs
    inputs, outputs = list(op.fgraph.inputs), list(op.fgraph.outputs)
    updates = outputs[:-1] if op.is_while else outputs
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    states = [o.broadcast_to(cast(x, dtype_name(v)), shape) for x, v in zip(rest[: len(updates)], inputs, strict=False)]
    constants = rest[len(updates) :]
    steps = o.broadcast_to(steps, shape)

    def going(state: Any) -> Tensor:
        number, done, *_ = state
        return o.any(~done & (steps > number))

    def turn(state: Any) -> Any:
        number, done, *values = state
        inner = at.inner(inputs, [*values, *constants])
        inner.convert(inputs, outputs)
        new = inner.tensors(outputs)
        active = ~done & (steps > number)
        if op.is_while:
            done = done | (active & new[-1])
        kept = [
            o.where(active, o.broadcast_to(cast(after, before.dtype), shape), before)
            for after, before in zip(new, values, strict=False)
        ]
        return (number + 1, done, *kept)

    start = (o.constant(0, steps.dtype), o.zeros(shape, dtype=dtype_of(np.dtype(bool))), *states)
    _, done, *values = o.while_loop(going, turn, start)
    return [*values, done] if op.is_while else values


def convert_scalar(at: Translation, node: Any) -> list[Tensor]:
    """A node of a scalar op, as inner graphs have it."""
    return apply(at, node.op, [at.find(v) for v in node.inputs], node.outputs[0].type.dtype)


CONVERTERS["ScalarOp"] = convert_scalar
