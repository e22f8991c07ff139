"""Layer, root mean square and group norm: each example for itself, then weight and bias."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Shape, Size, TensorType, computed, integer, number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_all
from staticgrad.graph.optable import Array, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import floating
from staticgrad.ops.sources import as_shape


@frozen
class StandardizeAttributes:
    """The axes over which mean and variance are taken, and what is added to the variance."""

    axes: tuple[int, ...]
    eps: float


def centered(o: Namespace, x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, x - mean, and the mean square of that; axes are kept. All rules spell it so: equal parts are merged."""
    mean = o.mean(x, axis=axes, keepdims=True)
    difference = o.subtract(x, mean)
    return mean, difference, o.mean(o.multiply(difference, difference), axis=axes, keepdims=True)


def _standardize_expand(o: Namespace, node: Primal[StandardizeAttributes]) -> Sequence[Tensor]:
    _, difference, variance = centered(o, node.inputs[0], node.attrs.axes)
    return [o.multiply(difference, o.rsqrt(o.add(variance, node.attrs.eps)))]


def _standardize_rule(o: Namespace, node: Primal[StandardizeAttributes], t: Tensor) -> Sequence[Tensor | None]:
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
    """The number of last axes that are normalised, what is added under the root, and which of weight and bias
    follow."""

    ndim: int
    eps: float
    weight: bool
    bias: bool


def affine(o: Namespace, y: Tensor, parameters: Sequence[Tensor], has_weight: bool, has_bias: bool) -> Tensor:
    """y·weight + bias, of those that are there; they broadcast against y."""
    rest = list(parameters)
    if has_weight:
        y = o.multiply(y, rest.pop(0))
    return o.add(y, rest.pop(0)) if has_bias else y


def affine_reference(y: Array, parameters: Sequence[Array], has_weight: bool, has_bias: bool) -> Array:
    rest = list(parameters)
    if has_weight:
        y = y * rest.pop(0)
    return np.asarray(y + rest.pop(0)) if has_bias else y


def _last_axes(ndim: int, count: int) -> tuple[int, ...]:
    return tuple(range(ndim - count, ndim))


def _norm_type(what: str) -> Callable[..., TensorType]:
    def infer(attrs: NormAttributes, x: TensorType, *parameters: TensorType) -> TensorType:
        expected = x.shape[x.ndim - attrs.ndim :]
        for parameter in parameters:
            if parameter.ndim != attrs.ndim:
                raise GraphError(f"{what}: expected parameters of shape {expected}, actual {parameter}")
            for wanted, got in zip(expected, parameter.shape, strict=True):
                require_equal(wanted, got, what, f"sizes of the parameter {parameter}, should be {expected}")
        return x

    return infer


def _layer_norm_expand(o: Namespace, node: Primal[NormAttributes]) -> Sequence[Tensor]:
    x, *parameters = node.inputs
    y = o.standardize(x, _last_axes(x.ndim, node.attrs.ndim), node.attrs.eps)
    return [affine(o, y, parameters, node.attrs.weight, node.attrs.bias)]


def _layer_norm_reference(attrs: NormAttributes, x: Array, *parameters: Array) -> Array:
    y = standardize_reference(x, _last_axes(x.ndim, attrs.ndim), attrs.eps)
    return affine_reference(y, parameters, attrs.weight, attrs.bias)


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


def _inverse_rms(o: Namespace, x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    return o.rsqrt(o.add(o.mean(o.multiply(x, x), axis=axes, keepdims=True), eps))


def _rms_norm_expand(o: Namespace, node: Primal[NormAttributes]) -> Sequence[Tensor]:
    x, *weight = node.inputs
    y = o.multiply(x, _inverse_rms(o, x, _last_axes(x.ndim, node.attrs.ndim), node.attrs.eps))
    return [affine(o, y, weight, bool(weight), False)]


def _rms_norm_vjp(o: Namespace, node: Primal[NormAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, *weight = node.inputs
    axes = _last_axes(x.ndim, node.attrs.ndim)
    inverse = _inverse_rms(o, x, axes, node.attrs.eps)
    y = o.multiply(x, inverse)
    inner = o.multiply(ct, weight[0]) if weight else ct
    dx = o.multiply(inverse, o.subtract(inner, o.multiply(y, o.mean(o.multiply(inner, y), axis=axes, keepdims=True))))
    return [dx, *(o.unbroadcast(o.multiply(ct, y), w.shape) for w in weight)]


def _rms_norm_reference(attrs: NormAttributes, x: Array, *weight: Array) -> Array:
    mean_square = np.mean(x * x, axis=_last_axes(x.ndim, attrs.ndim), keepdims=True)
    return affine_reference(x / np.sqrt(mean_square + np.asarray(attrs.eps, x.dtype)), weight, bool(weight), False)


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


def per_channel_type(what: str) -> Callable[..., TensorType]:
    def infer(attrs: object, x: TensorType, *parameters: TensorType) -> TensorType:
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


def _group_norm_expand(o: Namespace, node: Primal[GroupNormAttributes]) -> Sequence[Tensor]:
    x, *parameters = node.inputs
    attrs: GroupNormAttributes = node.attrs
    image, parameter = _grouped(x.shape, attrs.groups)
    y = o.standardize(o.reshape(x, image), tuple(range(2, len(image))), attrs.eps)
    y = affine(o, y, [o.reshape(p, parameter) for p in parameters], attrs.weight, attrs.bias)
    return [o.reshape(y, x.shape)]


def _group_norm_reference(attrs: GroupNormAttributes, x: Array, *parameters: Array) -> Array:
    count = x.shape[0] * attrs.groups
    rows = x.reshape(count, x.size // max(count, 1))
    y = standardize_reference(rows, (1,), attrs.eps).reshape(x.shape)
    shape = (-1, *(1 for _ in x.shape[2:]))
    return affine_reference(y, [p.reshape(shape) for p in parameters], attrs.weight, attrs.bias)


GROUP_NORM = register(
    Op(
        "group_norm",
        "Mean 0 and variance 1 over the channels of a group and all places, then weight and bias by channel.",
        infer=per_channel_type("group_norm"),
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


def with_parameters(what: str, input: TensorLike, *parameters: TensorLike | None) -> tuple[Tensor, ...]:
    """The input and the parameters that are not None, in one floating dtype."""
    result = lift_all((input, *(p for p in parameters if p is not None)), what=what)
    floating(result[0], what)
    return result


@public
def layer_norm(
    input: TensorLike,
    normalized_shape: int | Sequence[Size],
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps)·weight + bias over the last axes (Ba, Kiros, Hinton 2016).

    Args:
        input: ``(…, *normalized_shape)``.
        normalized_shape: sizes of the last axes.
        weight: of shape ``normalized_shape``, or None.
        bias: likewise.

    Raises:
        GraphError: shapes that do not agree.

    Example:
        >>> x = sg.constant([[1.0, 3.0], [10.0, 30.0]])
        >>> sg.Session().run(sg.nn.layer_norm(x, 2)).round(2)
        array([[-1.,  1.],
               [-1.,  1.]], dtype=float32)
        >>> sg.nn.layer_norm(sg.zeros((8, 5, 64)), 64, weight=sg.ones(64), bias=sg.zeros(64)).shape
        (8, 5, 64)
    """
    x, *parameters = with_parameters("layer_norm", input, weight, bias)
    ndim = _check_normalized("layer_norm", x, normalized_shape)
    attrs = NormAttributes(ndim, number(eps, "layer_norm: eps"), weight is not None, bias is not None)
    return x.graph.add(LAYER_NORM, (x, *parameters), attrs).outputs[0]


@public
def rms_norm(
    input: TensorLike,
    normalized_shape: int | Sequence[Size],
    weight: TensorLike | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x²) + eps)·weight over the last axes; ``eps`` None: the machine epsilon of the
    dtype, of float32 for short floats.

    Raises:
        GraphError: shapes that do not agree.

    Example:
        >>> x = sg.constant([[3.0, 4.0], [0.0, 2.0]])
        >>> sg.Session().run(sg.nn.rms_norm(x, 2)).round(3)
        array([[0.849, 1.131],
               [0.   , 1.414]], dtype=float32)
    """
    x, *parameters = with_parameters("rms_norm", input, weight)
    ndim = _check_normalized("rms_norm", x, normalized_shape)
    small = float(np.finfo(computed(x.dtype)).eps) if eps is None else number(eps, "rms_norm: eps")
    return x.graph.add(RMS_NORM, (x, *parameters), NormAttributes(ndim, small, weight is not None, False)).outputs[0]


def _check_normalized(what: str, x: Tensor, normalized_shape: int | Sequence[Size]) -> int:
    sizes = as_shape(normalized_shape, what)
    if not 1 <= len(sizes) <= x.ndim:
        raise GraphError(f"{what}: normalized_shape {sizes} for an input {x.type}")
    for wanted, got in zip(sizes, x.shape[x.ndim - len(sizes) :], strict=True):
        require_equal(wanted, got, what, f"the last axes of the input {x.type} for normalized_shape {sizes}")
    return len(sizes)


@public
def group_norm(
    input: TensorLike,
    num_groups: int,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps)·weight + bias over groups of channels (Wu and He 2018).

    Args:
        input: (N, C, …).
        num_groups: divides C.
        weight: (C,) or None.
        bias: (C,) or None.

    Raises:
        GraphError: shapes that do not agree.

    Example:
        >>> x = sg.constant([[1.0, 3.0, 10.0, 30.0]])
        >>> sg.Session().run(sg.nn.group_norm(x, 2)).round(2)
        array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    x, *parameters = with_parameters("group_norm", input, weight, bias)
    num_groups = integer(num_groups, "group_norm: num_groups", 1)
    channels = x.shape[1] if x.ndim > 1 else 0
    if isinstance(channels, int) and (channels % num_groups or x.ndim < 2):
        raise GraphError(f"group_norm: the channels of {x.type} do not fall into {num_groups} groups")
    attrs = GroupNormAttributes(num_groups, number(eps, "group_norm: eps"), weight is not None, bias is not None)
    return x.graph.add(GROUP_NORM, (x, *parameters), attrs).outputs[0]
