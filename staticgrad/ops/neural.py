"""Neural ops over rows: softmax, normalisations, batch norm, embedding.

Each is one named op whose expansion consists of reductions that keep their axes and of broadcasting elementwise ops,
so that it fuses into one loop nest, and so does its backward. Derivatives are closed forms where these are shorter
than what the expansion would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.errors import BoundsError, GraphError, user_source
from staticgrad.frozen import frozen
from staticgrad.graph import Node, Tensor, control_dependencies, get_default_graph, lift, lift_all, no_grad
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.reductions import count
from staticgrad.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.types import (
    Dim,
    Shape,
    Size,
    TensorType,
    float32,
    float64,
    int64,
    is_floating,
    normalize_axis,
    product,
)

FLOATS = (float32, float64)


@frozen
class AxisAttributes:
    """The axis along which an op works."""

    axis: int


def floating(value: Any, what: str) -> Tensor:
    """A tensor that must be floating."""
    x = lift(value, get_default_graph())
    if not is_floating(x.dtype):
        raise GraphError(f"{what}: expected a floating tensor, actual {x.type}")
    return x


# -- softmax ------------------------------------------------------------------------------------------------------


def shifted_exp(o: Namespace, x: Any, axis: int) -> tuple[Any, Any, Any]:
    """x - max, its exponential, and that one's sum along the axis, which stays with size 1.

    The maximum only keeps the exponential in range: the results do not depend on it, and no derivative is taken of it.
    """
    shifted = o.subtract(x, o.max(o.stop_gradient(x), axis=axis, keepdims=True))
    e = o.exp(shifted)
    return shifted, e, o.sum(e, axis=axis, keepdims=True)


def _softmax_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    _, e, total = shifted_exp(o, node.inputs[0], node.attrs.axis)
    return [o.multiply(e, o.reciprocal(total))]  # one division a row; the sum is at least one


def _softmax_rule(o: Namespace, node: Primal, t: Any) -> Sequence[Any]:
    """diag(y) - y·yᵀ: symmetric, so the vjp is the jvp."""
    (y,) = node.outputs
    inner = o.sum(o.multiply(t, y), axis=node.attrs.axis, keepdims=True)
    return (o.multiply(y, o.subtract(t, inner)),)


def softmax_reference(x: Array, axis: int) -> Array:
    """exp(x) over its sum along an axis."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - np.max(x, axis=axis, keepdims=True))
        return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def log_softmax_reference(x: Array, axis: int) -> Array:
    """The logarithm of the softmax, without the detour."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True)
        return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


def _log_softmax_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    shifted, _, total = shifted_exp(o, node.inputs[0], node.attrs.axis)
    return [o.subtract(shifted, o.log(total))]


def _log_softmax_vjp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    (y,) = node.outputs
    return (o.subtract(ct, o.multiply(o.exp(y), o.sum(ct, axis=node.attrs.axis, keepdims=True))),)


def _log_softmax_jvp(o: Namespace, node: Primal, dx: Any) -> Sequence[Any]:
    (y,) = node.outputs
    return (o.subtract(dx, o.sum(o.multiply(o.exp(y), dx), axis=node.attrs.axis, keepdims=True)),)


_ROW_CASES = tuple(
    Case((shape,), AxisAttributes(axis))
    for shape, axis in (((4, 7), 1), ((5,), 0), ((3, 4, 5), 1), ((2, 3, 17), 2), ((1, 1), 1), ((6, 33), 0))
)

SOFTMAX = register(
    Op(
        "softmax",
        "exp(x) / Σ exp(x) along an axis.",
        infer=lambda attrs, x: x,
        reference=lambda attrs, x: softmax_reference(x, attrs.axis),
        expand=_softmax_expand,
        vjp=_softmax_rule,
        jvp=_softmax_rule,
        dtypes=FLOATS,
        cases=_ROW_CASES,
    )
)

LOG_SOFTMAX = register(
    Op(
        "log_softmax",
        "x - log Σ exp(x) along an axis.",
        infer=lambda attrs, x: x,
        reference=lambda attrs, x: log_softmax_reference(x, attrs.axis),
        expand=_log_softmax_expand,
        vjp=_log_softmax_vjp,
        jvp=_log_softmax_jvp,
        dtypes=FLOATS,
        cases=_ROW_CASES,
    )
)


@public
def softmax(input: Any, dim: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) along ``dim``, computed after subtracting the largest element.

    Raises:
        GraphError: the input is not floating, or ``dim`` out of range.
    """
    x = floating(input, "softmax")
    return x.graph.add(SOFTMAX, (x,), AxisAttributes(normalize_axis(dim, x.ndim, "softmax"))).outputs[0]


@public
def log_softmax(input: Any, dim: int = -1) -> Tensor:
    """log(softmax(x)) along ``dim``, accurate also where the softmax is tiny.

    Raises:
        GraphError: the input is not floating, or ``dim`` out of range.
    """
    x = floating(input, "log_softmax")
    return x.graph.add(LOG_SOFTMAX, (x,), AxisAttributes(normalize_axis(dim, x.ndim, "log_softmax"))).outputs[0]


# -- normalisation ------------------------------------------------------------------------------------------------


@frozen
class StandardizeAttributes:
    """The axes over which mean and variance are taken, and what is added to the variance."""

    axes: tuple[int, ...]
    eps: float


def centered(o: Namespace, x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Mean, x - mean, and the mean square of that; axes are kept. All rules spell it so: equal parts are merged."""
    mean = o.mean(x, axis=axes, keepdims=True)
    difference = o.subtract(x, mean)
    return mean, difference, o.mean(o.multiply(difference, difference), axis=axes, keepdims=True)


def _standardize_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    _, difference, variance = centered(o, node.inputs[0], node.attrs.axes)
    return [o.multiply(difference, o.rsqrt(o.add(variance, node.attrs.eps)))]


def _standardize_rule(o: Namespace, node: Primal, t: Any) -> Sequence[Any]:
    """(t - mean(t) - y·mean(t·y)) / σ: the Jacobian is symmetric, so the vjp is the jvp."""
    axes = node.attrs.axes
    (y,) = node.outputs
    _, _, variance = centered(o, node.inputs[0], axes)
    along = o.multiply(y, o.mean(o.multiply(t, y), axis=axes, keepdims=True))
    inner = o.subtract(o.subtract(t, o.mean(t, axis=axes, keepdims=True)), along)
    return (o.multiply(inner, o.rsqrt(o.add(variance, node.attrs.eps))),)


def standardize_reference(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """Mean 0 and variance 1 over the axes."""
    variance = np.var(x, axis=axes, keepdims=True)
    return np.asarray((x - np.mean(x, axis=axes, keepdims=True)) / np.sqrt(variance + np.asarray(eps, x.dtype)))


STANDARDIZE = register(
    Op(
        "standardize",
        "(x - mean) / sqrt(variance + eps) over some axes: what layer, group and batch norm share.",
        infer=lambda attrs, x: x,
        reference=lambda attrs, x: standardize_reference(x, attrs.axes, attrs.eps),
        expand=_standardize_expand,
        vjp=_standardize_rule,
        jvp=_standardize_rule,
        dtypes=FLOATS,
        cases=(
            Case(((4, 7),), StandardizeAttributes((1,), 1e-5)),
            Case(((3, 4, 5),), StandardizeAttributes((0, 2), 1e-3)),
            Case(((2, 3, 4, 5),), StandardizeAttributes((2, 3), 1e-5)),
            Case(((5, 33),), StandardizeAttributes((0,), 0.1)),
        ),
        tolerance=4.0,
    )
)


@public
def standardize(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over ``axes``."""
    return x.graph.add(STANDARDIZE, (x,), StandardizeAttributes(axes, float(eps))).outputs[0]


@frozen
class NormAttributes:
    """How many last axes are normalised, what is added under the root, and which of weight and bias follow."""

    ndim: int
    eps: float
    weight: bool
    bias: bool


def _affine(o: Namespace, y: Any, parameters: Sequence[Any], has_weight: bool, has_bias: bool) -> Any:
    """y·weight + bias, of those that are there; they broadcast against y."""
    rest = list(parameters)
    if has_weight:
        y = o.multiply(y, rest.pop(0))
    return o.add(y, rest.pop(0)) if has_bias else y


def _affine_reference(y: Array, parameters: Sequence[Array], has_weight: bool, has_bias: bool) -> Array:
    rest = list(parameters)
    if has_weight:
        y = y * rest.pop(0)
    return np.asarray(y + rest.pop(0)) if has_bias else y


def _last_axes(ndim: int, count: int) -> tuple[int, ...]:
    return tuple(range(ndim - count, ndim))


def _norm_type(what: str) -> Any:
    def infer(attrs: NormAttributes, x: TensorType, *parameters: TensorType) -> TensorType:
        expected = x.shape[x.ndim - attrs.ndim :]
        for parameter in parameters:
            if parameter.ndim != attrs.ndim:
                raise GraphError(f"{what}: expected parameters of shape {expected}, actual {parameter}")
            for wanted, got in zip(expected, parameter.shape, strict=True):
                require_equal(wanted, got, what, f"sizes of the parameter {parameter}, should be {expected}")
        return x

    return infer


def _layer_norm_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    x, *parameters = node.inputs
    y = o.standardize(x, _last_axes(x.ndim, node.attrs.ndim), node.attrs.eps)
    return [_affine(o, y, parameters, node.attrs.weight, node.attrs.bias)]


def _layer_norm_reference(attrs: NormAttributes, x: Array, *parameters: Array) -> Array:
    y = standardize_reference(x, _last_axes(x.ndim, attrs.ndim), attrs.eps)
    return _affine_reference(y, parameters, attrs.weight, attrs.bias)


LAYER_NORM = register(
    Op(
        "layer_norm",
        "Mean 0 and variance 1 over the last axes, then weight and bias.",
        infer=_norm_type("layer_norm"),
        reference=_layer_norm_reference,
        expand=_layer_norm_expand,
        dtypes=FLOATS,
        cases=(
            Case(((4, 7), (7,), (7,)), NormAttributes(1, 1e-5, True, True)),
            Case(((2, 3, 5),), NormAttributes(1, 1e-5, False, False)),
            Case(((2, 3, 5), (3, 5)), NormAttributes(2, 1e-3, True, False)),
            Case(((3, 33), (33,)), NormAttributes(1, 1e-5, False, True)),
        ),
        grad_name="NativeLayerNorm",
        tolerance=4.0,
    )
)


def _inverse_rms(o: Namespace, x: Any, axes: tuple[int, ...], eps: float) -> Any:
    return o.rsqrt(o.add(o.mean(o.multiply(x, x), axis=axes, keepdims=True), eps))


def _rms_norm_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    x, *weight = node.inputs
    y = o.multiply(x, _inverse_rms(o, x, _last_axes(x.ndim, node.attrs.ndim), node.attrs.eps))
    return [_affine(o, y, weight, bool(weight), False)]


def _rms_norm_vjp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, *weight = node.inputs
    axes = _last_axes(x.ndim, node.attrs.ndim)
    inverse = _inverse_rms(o, x, axes, node.attrs.eps)
    y = o.multiply(x, inverse)
    inner = o.multiply(ct, weight[0]) if weight else ct
    dx = o.multiply(inverse, o.subtract(inner, o.multiply(y, o.mean(o.multiply(inner, y), axis=axes, keepdims=True))))
    return [dx, *(o.unbroadcast(o.multiply(ct, y), w.shape) for w in weight)]


def _rms_norm_reference(attrs: NormAttributes, x: Array, *weight: Array) -> Array:
    mean_square = np.mean(x * x, axis=_last_axes(x.ndim, attrs.ndim), keepdims=True)
    return _affine_reference(x / np.sqrt(mean_square + np.asarray(attrs.eps, x.dtype)), weight, bool(weight), False)


RMS_NORM = register(
    Op(
        "rms_norm",
        "x over its root mean square along the last axes, then weight (Zhang and Sennrich 2019).",
        infer=_norm_type("rms_norm"),
        reference=_rms_norm_reference,
        expand=_rms_norm_expand,
        vjp=_rms_norm_vjp,
        dtypes=FLOATS,
        cases=(
            Case(((4, 7), (7,)), NormAttributes(1, 1e-6, True, False)),
            Case(((2, 3, 5),), NormAttributes(2, 1e-6, False, False)),
            Case(((3, 33), (33,)), NormAttributes(1, 1e-2, True, False)),
        ),
        grad_name="FusedRmsNorm",
        tolerance=4.0,
    )
)


@frozen
class GroupNormAttributes:
    """Into how many groups the channels fall, what is added to the variance, which of weight and bias follow."""

    groups: int
    eps: float
    weight: bool
    bias: bool


def _per_channel_type(what: str) -> Any:
    def infer(attrs: Any, x: TensorType, *parameters: TensorType) -> TensorType:
        if x.ndim < 2:
            raise GraphError(f"{what}: expected an input (N, C, *), actual {x}")
        for parameter in parameters:
            if parameter.ndim != 1:
                raise GraphError(f"{what}: expected parameters of shape ({x.shape[1]},), actual {parameter}")
            require_equal(x.shape[1], parameter.shape[0], what, f"channels of {x} and the parameter {parameter}")
        return x

    return infer


def _grouped(shape: Shape, groups: int) -> tuple[Shape, Shape]:
    """The shapes of image and parameter with the channels split into groups."""
    within = shape[1] // groups
    return (shape[0], groups, within, *shape[2:]), (1, groups, within, *(1 for _ in shape[2:]))


def _group_norm_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    x, *parameters = node.inputs
    attrs: GroupNormAttributes = node.attrs
    image, parameter = _grouped(x.shape, attrs.groups)
    y = o.standardize(o.reshape(x, image), tuple(range(2, len(image))), attrs.eps)
    y = _affine(o, y, [o.reshape(p, parameter) for p in parameters], attrs.weight, attrs.bias)
    return [o.reshape(y, x.shape)]


def _group_norm_reference(attrs: GroupNormAttributes, x: Array, *parameters: Array) -> Array:
    rows = x.reshape(x.shape[0] * attrs.groups, -1)
    y = standardize_reference(rows, (1,), attrs.eps).reshape(x.shape)
    shape = (-1, *(1 for _ in x.shape[2:]))
    return _affine_reference(y, [p.reshape(shape) for p in parameters], attrs.weight, attrs.bias)


GROUP_NORM = register(
    Op(
        "group_norm",
        "Mean 0 and variance 1 over the channels of a group and all places, then weight and bias by channel.",
        infer=_per_channel_type("group_norm"),
        reference=_group_norm_reference,
        expand=_group_norm_expand,
        dtypes=FLOATS,
        cases=(
            Case(((2, 6, 4), (6,), (6,)), GroupNormAttributes(3, 1e-5, True, True)),
            Case(((2, 4, 3, 3),), GroupNormAttributes(2, 1e-5, False, False)),
            Case(((3, 4), (4,)), GroupNormAttributes(1, 1e-3, True, False)),
        ),
        grad_name="NativeGroupNorm",
        tolerance=4.0,
    )
)


def _with_parameters(what: str, input: Any, *parameters: Any) -> tuple[Tensor, ...]:
    """The input and the parameters that are not None, in one floating dtype."""
    result = lift_all((input, *(p for p in parameters if p is not None)), what=what)
    floating(result[0], what)
    return result


@public
def layer_norm(
    input: Any, normalized_shape: int | Sequence[Size], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + eps)·weight + bias over the last axes (Ba, Kiros, Hinton 2016).

    Args:
        input: (\\*, \\*normalized_shape).
        normalized_shape: sizes of the last axes.
        weight: of shape ``normalized_shape``, or None.
        bias: likewise.

    Raises:
        GraphError: shapes that do not agree.
    """
    x, *parameters = _with_parameters("layer_norm", input, weight, bias)
    ndim = _check_normalized("layer_norm", x, normalized_shape)
    attrs = NormAttributes(ndim, float(eps), weight is not None, bias is not None)
    return x.graph.add(LAYER_NORM, (x, *parameters), attrs).outputs[0]


@public
def rms_norm(
    input: Any, normalized_shape: int | Sequence[Size], weight: Any = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x²) + eps)·weight over the last axes; ``eps`` None: the dtype's machine epsilon.

    Raises:
        GraphError: shapes that do not agree.
    """
    x, *parameters = _with_parameters("rms_norm", input, weight)
    ndim = _check_normalized("rms_norm", x, normalized_shape)
    small = float(np.finfo(x.dtype).eps) if eps is None else float(eps)
    return x.graph.add(RMS_NORM, (x, *parameters), NormAttributes(ndim, small, weight is not None, False)).outputs[0]


def _check_normalized(what: str, x: Tensor, normalized_shape: int | Sequence[Size]) -> int:
    sizes = (normalized_shape,) if isinstance(normalized_shape, (int, Dim)) else tuple(normalized_shape)
    if not 1 <= len(sizes) <= x.ndim:
        raise GraphError(f"{what}: normalized_shape {sizes} for an input {x.type}")
    for wanted, got in zip(sizes, x.shape[x.ndim - len(sizes) :], strict=True):
        require_equal(wanted, got, what, f"the last axes of the input {x.type} for normalized_shape {sizes}")
    return len(sizes)


@public
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps)·weight + bias over groups of channels (Wu and He 2018).

    Args:
        input: (N, C, \\*).
        num_groups: divides C.
        weight: (C,) or None.
        bias: (C,) or None.

    Raises:
        GraphError: shapes that do not agree.
    """
    x, *parameters = _with_parameters("group_norm", input, weight, bias)
    channels = x.shape[1] if x.ndim > 1 else 0
    if isinstance(channels, int) and (num_groups < 1 or channels % num_groups or x.ndim < 2):
        raise GraphError(f"group_norm: the channels of {x.type} do not fall into {num_groups} groups")
    attrs = GroupNormAttributes(num_groups, float(eps), weight is not None, bias is not None)
    return x.graph.add(GROUP_NORM, (x, *parameters), attrs).outputs[0]


# -- batch norm ---------------------------------------------------------------------------------------------------


@frozen
class BatchNormAttributes:
    """What is added to the variance, and which of weight and bias follow."""

    eps: float
    weight: bool
    bias: bool


def _channel_axes(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim))


def _by_channel(o: Namespace, parameter: Any, ndim: int) -> Any:
    return o.reshape(parameter, (1, parameter.shape[0], *(1 for _ in range(ndim - 2))))


def _batch_norm_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    x, *parameters = node.inputs
    y = o.standardize(x, _channel_axes(x.ndim), node.attrs.eps)
    return [_affine(o, y, [_by_channel(o, p, x.ndim) for p in parameters], node.attrs.weight, node.attrs.bias)]


def _batch_norm_reference(attrs: BatchNormAttributes, x: Array, *parameters: Array) -> Array:
    y = standardize_reference(x, _channel_axes(x.ndim), attrs.eps)
    shape = (-1, *(1 for _ in x.shape[2:]))
    return _affine_reference(y, [p.reshape(shape) for p in parameters], attrs.weight, attrs.bias)


def _batch_norm_inference_expand(o: Namespace, node: Primal) -> Sequence[Any]:
    x, *parameters = node.inputs
    mean, variance, *affine = (_by_channel(o, p, x.ndim) for p in parameters)
    scale = o.rsqrt(o.add(variance, node.attrs.eps))
    if node.attrs.weight:
        scale = o.multiply(scale, affine.pop(0))
    y = o.multiply(o.subtract(x, mean), scale)
    return [o.add(y, affine.pop(0)) if node.attrs.bias else y]


def _batch_norm_inference_reference(attrs: BatchNormAttributes, x: Array, *parameters: Array) -> Array:
    shape = (-1, *(1 for _ in x.shape[2:]))
    mean, variance, *affine = (p.reshape(shape) for p in parameters)
    y = (x - mean) / np.sqrt(variance + np.asarray(attrs.eps, x.dtype))
    return _affine_reference(y, affine, attrs.weight, attrs.bias)


BATCH_NORM = register(
    Op(
        "batch_norm",
        "Mean 0 and variance 1 of each channel over the batch and all places, then weight and bias.",
        infer=_per_channel_type("batch_norm"),
        reference=_batch_norm_reference,
        expand=_batch_norm_expand,
        dtypes=FLOATS,
        cases=(
            Case(((5, 3, 2, 2), (3,), (3,)), BatchNormAttributes(1e-5, True, True)),
            Case(((6, 4),), BatchNormAttributes(1e-5, False, False)),
            Case(((4, 2, 7), (2,)), BatchNormAttributes(1e-2, False, True)),
        ),
        grad_name="NativeBatchNorm",
        tolerance=4.0,
    )
)

_POSITIVE = Range(0.2, 3.0)
_ANY = Range()

BATCH_NORM_INFERENCE = register(
    Op(
        "batch_norm_inference",
        "Batch norm with a given mean and variance by channel.",
        infer=_per_channel_type("batch_norm"),
        reference=_batch_norm_inference_reference,
        expand=_batch_norm_inference_expand,
        dtypes=FLOATS,
        cases=(
            Case(
                ((5, 3, 2, 2), (3,), (3,), (3,), (3,)),
                BatchNormAttributes(1e-5, True, True),
                (_ANY, _ANY, _POSITIVE, _ANY, _ANY),
            ),
            Case(((6, 4), (4,), (4,)), BatchNormAttributes(1e-5, False, False), (_ANY, _ANY, _POSITIVE)),
        ),
        grad_name="NativeBatchNorm",
        tolerance=4.0,
    )
)


def is_variable(value: Any) -> bool:
    """Whether a value is the tensor of a variable, so that it can be assigned to."""
    return isinstance(value, Tensor) and value.op.op.name == "variable"


def _update(variable: Tensor, statistic: Tensor, momentum: Any) -> Node:
    o = FUNCTIONS
    before = o.latest_value(variable)
    new = o.add(o.multiply(before, 1 - momentum), o.multiply(o.astype(statistic, variable.dtype), momentum))
    return o.assign(variable, new)


def _running_updates(x: Tensor, running_mean: Any, running_var: Any, momentum: Any) -> list[Node]:
    """The assignments of running statistics: (1 - momentum)·old + momentum·new, the variance with n / (n - 1)."""
    o = FUNCTIONS
    axes = _channel_axes(x.ndim)
    if product(tuple(x.shape[axis] for axis in axes)) == 1:
        raise GraphError(f"batch_norm: expected more than one value for each channel when training, actual {x.type}")
    nodes = []
    with no_grad():
        mean, _, variance = centered(o, x, axes)
        if is_variable(running_mean):
            nodes.append(_update(running_mean, o.reshape(mean, running_mean.shape), momentum))
        if is_variable(running_var):
            n = count(o, x, axes)
            unbiased = o.multiply(o.reshape(variance, running_var.shape), n / (n - 1.0))
            nodes.append(_update(running_var, unbiased, momentum))
    return nodes


@public
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch normalisation (Ioffe and Szegedy 2015).

    With ``training`` the statistics are the batch's own. Where ``running_mean`` and ``running_var`` are variables, a
    run that computes the result also updates them, once: (1 - momentum)·old + momentum·new, the variance unbiased.

    Args:
        input: (N, C, \\*).
        running_mean: (C,); None or any tensor when training.
        running_var: (C,); likewise.
        weight: (C,) or None.
        bias: (C,) or None.

    Raises:
        GraphError: shapes that do not agree, or no statistics where they are needed.
    """
    o, what = FUNCTIONS, "batch_norm"
    x, *parameters = _with_parameters(what, input, weight, bias)
    attrs = BatchNormAttributes(float(eps), weight is not None, bias is not None)
    if not training:
        if running_mean is None or running_var is None:
            raise GraphError(f"{what}: expected running_mean and running_var, unless training")
        operands = lift_all((x, running_mean, running_var, *parameters), what=what)
        return x.graph.add(BATCH_NORM_INFERENCE, operands, attrs).outputs[0]
    _per_channel_type(what)(attrs, x.type, *(p.type for p in parameters))
    for statistic in (running_mean, running_var):
        if isinstance(statistic, Tensor):
            _per_channel_type(what)(attrs, x.type, statistic.type)
    with x.graph:
        updates = _running_updates(x, running_mean, running_var, momentum)
        y = x.graph.add(BATCH_NORM, (x, *parameters), attrs).outputs[0]
        if not updates:
            return y
        with control_dependencies(updates):
            return o.identity(y)


# -- embedding ----------------------------------------------------------------------------------------------------


@frozen
class EmbeddingAttributes:
    """The row that receives no gradient, if any."""

    padding_idx: int | None


def _embedding_type(attrs: EmbeddingAttributes, weight: TensorType, index: TensorType) -> TensorType:
    if weight.ndim != 2:
        raise GraphError(f"embedding: expected a weight (rows, features), actual {weight}")
    return TensorType((*index.shape, weight.shape[1]), weight.dtype)


def _embedding_vjp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    weight, index = node.inputs
    if node.attrs.padding_idx is not None:
        ct = o.where(o.equal(o.expand_dims(index, -1), node.attrs.padding_idx), 0, ct)
    zeros = o.full(weight.shape, 0, dtype=weight.dtype)
    with control_dependencies(checked(index, weight.shape[0], "embedding")):  # a program may need the gradient alone
        return o.scatter_add(zeros, ct, index), None


def _embedding_jvp(o: Namespace, node: Primal, dweight: Any, _: Any = None) -> Sequence[Any]:
    if dweight is None:
        return (None,)
    weight, index = node.inputs
    with control_dependencies(checked(index, weight.shape[0], "embedding")):
        return (o.gather(dweight, index),)


EMBEDDING = register(
    Op(
        "embedding",
        "Rows of a table, by indices in range.",
        infer=_embedding_type,
        reference=lambda attrs, weight, index: weight[index],
        expand=lambda o, node: [o.gather(node.inputs[0], node.inputs[1])],
        vjp=_embedding_vjp,
        jvp=_embedding_jvp,
        dtypes=FLOATS,
        cases=(
            Case(((5, 3), (4,)), EmbeddingAttributes(None), (_ANY, Range(0, 4)), (None, int64)),
            Case(((4, 2), (2, 3)), EmbeddingAttributes(None), (_ANY, Range(0, 3)), (None, int64)),
        ),
    )
)


def as_index(value: Any, what: str) -> Tensor:
    """An int64 tensor from one of any integer dtype."""
    index = lift(value, get_default_graph())
    if index.dtype.kind not in "iu":
        raise GraphError(f"{what}: expected integers, actual {index.type}")
    return index if index.dtype == int64 else FUNCTIONS.astype(index, int64)


@public
def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """Rows of ``weight`` (rows, features), one for each index of ``input``.

    Args:
        input: integers of any shape, in [0, rows); others end the run with a ``BoundsError``.
        padding_idx: a row that receives no gradient; it may count from the end.

    Returns:
        (\\*input.shape, features).

    Raises:
        GraphError: the input is not of integers, or the weight not a matrix.
    """
    what = "embedding"
    index, table = as_index(input, what), floating(weight, what)
    if table.ndim != 2:
        raise GraphError(f"{what}: expected a weight (rows, features), actual {table.type}")
    rows = table.shape[0]
    if padding_idx is not None and isinstance(rows, int):
        padding_idx = normalize_axis(padding_idx, rows, f"{what}: padding_idx")
    with table.graph:
        check = checked(index, rows, what)
        return table.graph.add(EMBEDDING, (table, index), EmbeddingAttributes(padding_idx), control=check).outputs[0]


def checked(index: Tensor, size: Size, what: str, ignored: int | None = None) -> list[Node]:
    """The node that ends a run where an index is not in [0, size); who uses the index runs after it.

    ``ignored`` is allowed as well. Constants are checked here and now.

    Raises:
        BoundsError: a constant index is out of range.
    """
    o = FUNCTIONS
    source = index.op.inputs[0].op if index.op.op.name == "astype" else index.op
    if source.op.name == "constant" and isinstance(size, int):
        values = source.attrs.value
        wrong = values[((values < 0) | (values >= size)) & (True if ignored is None else values != ignored)]
        if wrong.size:
            raise BoundsError(f"{what} {wrong[0]} is out of range\n  expected [0, {size})", source=user_source())
        return []
    if ignored is not None and not (isinstance(size, int) and 0 <= ignored < size):
        index = o.where(o.equal(index, ignored), 0, index)
    return [o.bounds_check(index, size, what)]
