"""Means, variances and standard deviations along axes."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, TensorType, normalize_axes, number, takes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array, Case, Namespace, Op, Primal, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import FLOAT, accepted, declare
from staticgrad.ops.reductions import (
    Axis,
    Numbered,
    ReduceAttributes,
    along_axes,
    count,
    fill,
    reduce_cases,
    reduce_reference,
    reduced,
    reduced_shape,
    spread,
)


def float_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: ReduceAttributes | VarianceAttributes, x: TensorType) -> TensorType:
        if not takes(FLOATS, x.dtype):
            raise GraphError(f"{name}: expected float32 or float64, actual {x}")
        return TensorType(reduced_shape(x.shape, attrs.axes, attrs.keepdims), x.dtype)

    return infer


def _vjp_mean(o: Namespace, node: Primal[ReduceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, axes = node.inputs[0], node.attrs.axes
    return (fill(o, _over(o, ct, count(o, x, axes)), x, axes),)


def _over(o: Namespace, x: Tensor, divisor: float | Tensor) -> Tensor:
    return x if isinstance(divisor, float) and divisor == 1 else o.divide(x, divisor)


def _expand_mean(o: Namespace, node: Primal[ReduceAttributes]) -> Sequence[Tensor]:
    x, attrs = node.inputs[0], node.attrs
    total = o.sum(x, axis=attrs.axes, keepdims=attrs.keepdims)
    return [_over(o, total, count(o, x, attrs.axes))]


MEAN = register(
    Op(
        "mean",
        "The arithmetic mean along axes.",
        infer=float_type("mean"),
        reference=reduce_reference(np.mean),
        expand=_expand_mean,
        vjp=_vjp_mean,
        linear=True,
        dtypes=FLOATS,
        cases=reduce_cases(neutral=False),
        grad_name=Numbered("Mean", 0, 1),
        batch=leading,
    )
)


@along_axes()
def mean(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The arithmetic mean along ``axis``; of integers and bools it is float64, of no elements NaN.

    Example:
        >>> sg.Session().run(sg.mean([[1.0, 2.0], [3.0, 4.0]], axis=0))
        array([2., 3.], dtype=float32)
        >>> sg.Session().run(sg.mean([1, 2]))
        array(1.5)
    """
    return reduced(MEAN, accepted("mean", FLOAT, x)[0], axis, keepdims)


@frozen
class VarianceAttributes:
    """The axes that are reduced, whether they stay with size 1, and the number that is subtracted from the number of
    elements to give the divisor."""

    axes: tuple[int, ...]
    keepdims: bool
    correction: float


def _degrees_of_freedom(o: Namespace, x: Tensor, attrs: VarianceAttributes) -> float | Tensor:
    number = count(o, x, attrs.axes)
    if isinstance(number, float):
        return builtins.max(number - attrs.correction, 0.0)
    return o.maximum(number - attrs.correction, 0)


def _centred(o: Namespace, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x - o.mean(x, axis=axes, keepdims=True)


def _expand_var(o: Namespace, node: Primal[VarianceAttributes]) -> Sequence[Tensor]:
    x, attrs = node.inputs[0], node.attrs
    squares = o.square(_centred(o, x, attrs.axes))
    total = o.sum(squares, axis=attrs.axes, keepdims=attrs.keepdims)
    return [_over(o, total, _degrees_of_freedom(o, x, attrs))]


def _vjp_var(o: Namespace, node: Primal[VarianceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, attrs = node.inputs[0], node.attrs
    each = _over(o, ct * 2.0, _degrees_of_freedom(o, x, attrs))
    return (o.multiply_no_nan(_centred(o, x, attrs.axes), spread(o, each, x, attrs.axes)),)


def _per_deviation(o: Namespace, node: Primal[VarianceAttributes], t: Tensor) -> Tensor:
    """``t`` over the standard deviation and the degrees of freedom; 0 where all elements are equal."""
    x, y = node.inputs[0], node.outputs[0]
    flat = o.equal(y, 0)
    return o.where(flat, 0, _over(o, t, _degrees_of_freedom(o, x, node.attrs)) / o.where(flat, 1, y))


def _vjp_std(o: Namespace, node: Primal[VarianceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, axes = node.inputs[0], node.attrs.axes
    each = _per_deviation(o, node, ct)
    return (o.multiply_no_nan(_centred(o, x, axes), spread(o, each, x, axes)),)


def _jvp_std(o: Namespace, node: Primal[VarianceAttributes], t: Tensor) -> Sequence[Tensor | None]:
    x, attrs = node.inputs[0], node.attrs
    moved = o.multiply_no_nan(_centred(o, x, attrs.axes), t)
    return (_per_deviation(o, node, o.sum(moved, axis=attrs.axes, keepdims=attrs.keepdims)),)


def _moment_reference(function: Callable[..., Array]) -> Callable[[VarianceAttributes, Array], Array]:
    def evaluate(attrs: VarianceAttributes, x: Array) -> Array:
        with np.errstate(all="ignore"):
            result = function(x.astype(np.float64), axis=attrs.axes, ddof=attrs.correction, keepdims=attrs.keepdims)
        return np.asarray(result).astype(x.dtype)

    return evaluate


_MOMENT_CASES = (
    Case(((3, 4),), VarianceAttributes((1,), False, 0.0)),
    Case(((3, 4),), VarianceAttributes((0,), True, 1.0)),
    Case(((2, 3, 5),), VarianceAttributes((0, 2), False, 1.0)),
    Case(((2, 3, 5),), VarianceAttributes((0, 1, 2), False, 0.5)),
)

VAR, STD = (
    register(
        Op(
            name,
            doc,
            infer=float_type(name),
            reference=_moment_reference(function),
            expand=expansion,
            vjp=vjp,
            jvp=jvp,
            dtypes=FLOATS,
            cases=_MOMENT_CASES,
            tolerance=2.0,
        )
    )
    for name, doc, function, expansion, vjp, jvp in (
        ("var", "The variance along axes.", np.var, _expand_var, _vjp_var, None),
        (
            "std",
            "The standard deviation along axes; its derivative where all elements are equal is 0.",
            np.std,
            lambda o, node: [o.sqrt(_expand_var(o, node)[0])],
            _vjp_std,
            _jvp_std,
        ),
    )
)


def _moment(op: Op, x: TensorLike, axis: Axis, correction: float, keepdims: bool) -> Tensor:
    x = accepted(op.name, FLOAT, x)[0]
    axes = normalize_axes(axis, x.ndim, op.name)
    return declare(op, (x,), VarianceAttributes(axes, bool(keepdims), number(correction, f"{op.name}: correction")))


@along_axes()
def var(x: TensorLike, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along ``axis``: the sum of squared distances from the mean over ``n - correction``.

    ``correction`` 0 gives that of the elements (NumPy's default), 1 an unbiased estimate from a sample (PyTorch's).

    Example:
        >>> sg.Session().run([sg.var([1.0, 3.0]), sg.var([1.0, 3.0], correction=1)])
        [array(1., dtype=float32), array(2., dtype=float32)]
    """
    return _moment(VAR, x, axis, correction, keepdims)


@along_axes()
def std(x: TensorLike, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation along ``axis``, the square root of ``var``; its gradient is 0 where all are equal.

    Example:
        >>> sg.Session().run(sg.std([[1.0, 3.0], [2.0, 2.0]], axis=1))
        array([1., 0.], dtype=float32)
    """
    return _moment(STD, x, axis, correction, keepdims)
