"""Two-dimensional convolution (cross-correlation) and its two transposes.

    convolution(x, w)              y[n,o,p,q] = Σ x[n, c, p·s + i·d − lo, …]·w[o, c, i, j]
    convolution_input_grad(y, w)   the same sum read the other way: what x receives
    convolution_weight_grad(x, y)  what w receives

Images are (N, C, H, W), weights (O, C / groups, KH, KW). One value of attributes serves all three, so each is the
derivative of the others: every one is linear in each of its operands. What lies outside the image counts as zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Dim, Size, TensorType, float32, float64, integer, integers, sizes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_all
from staticgrad.graph.optable import (
    FUNCTIONS,
    Array,
    BatchedNode,
    Case,
    Namespace,
    Op,
    Primal,
    TypeRule,
    public,
    register,
)
from staticgrad.ops.batch_rules import again, by_example
from staticgrad.ops.contraction import bilinear, require_equal
from staticgrad.ops.elementwise.copies import rounded_once

Sizes = int | Sequence[int]  # one for all axes, or one for each
Pair = tuple[int, int]
Padding = tuple[Pair, Pair]


@frozen
class ConvolutionAttributes:
    """Geometry of a convolution: steps, zeros (before, after) each image axis, and the sizes of image and kernel."""

    stride: Pair
    padding: Padding
    dilation: Pair
    groups: int
    size: tuple[Size, Size]  # height and width of the image
    kernel: tuple[Size, Size]

    @property
    def out_size(self) -> tuple[Size, Size]:
        """Height and width of what the forward direction gives."""
        return self.counts("convolution")

    def counts(self, what: str, image: TensorType | None = None) -> tuple[Size, Size]:
        """Height and width of what the forward direction gives of an image.

        Raises:
            GraphError: a window does not fit.
        """
        height, width = (
            window_count(what, self.size[a], self.kernel[a], self.stride[a], self.padding[a], self.dilation[a], image)
            for a in range(2)
        )
        return height, width


@frozen
class VolumeAttributes:
    """Geometry of a convolution over depth, height and width: steps, zeros (before, after) each axis, and groups."""

    stride: tuple[int, int, int]
    padding: tuple[Pair, Pair, Pair]
    dilation: tuple[int, int, int]
    groups: int


def window_count(
    what: str, size: Size, kernel: Size, stride: int, padding: Pair, dilation: int, image: TensorType | None = None
) -> Size:
    """The number of windows that fit along an axis. For a size that feeds bind it is checked again when that is known.

    Raises:
        GraphError: none does, or a window without elements.
    """
    if isinstance(kernel, int) and kernel < 1:
        raise GraphError(f"{what}: expected a kernel of at least 1 along each axis, actual {kernel}")
    count = steps_of(size, kernel, stride, padding, dilation)
    if (isinstance(count, int) and count < 1) or (isinstance(size, int) and size < 1):
        raise GraphError(
            f"{what}: a window does not fit into its image{'' if image is None else f' {image}'}"
            f"\n  expected at most {size} + {padding[0]} + {padding[1]}, an axis with its padding"
            f"\n  actual   {(kernel - 1) * dilation + 1}, a kernel of {kernel} with dilation {dilation}"
        )
    return count


def steps_of(size: Size, kernel: Size, stride: int, padding: Pair, dilation: int) -> Size:
    """The number of windows that fit along an axis; less than one where it is too short."""
    return (size + padding[0] + padding[1] - (kernel - 1) * dilation - 1) // stride + 1


def _check_images(what: str, **operands: TensorType) -> None:
    for role, type_ in operands.items():
        if type_.ndim != 4:
            raise GraphError(f"{what}: expected the {role} to have 4 dimensions, actual {type_}")


def _check_sizes(what: str, role: str, expected: tuple[Size, ...], actual: tuple[Size, ...]) -> None:
    for wanted, got in zip(expected, actual, strict=True):
        require_equal(wanted, got, what, f"the {role} is {actual} and should be {expected}")


def _forward_type(attrs: ConvolutionAttributes, x: TensorType, w: TensorType, what: str = "convolution") -> TensorType:
    _check_images(what, input=x, weight=w)
    _check_channels(what, attrs.groups, x, w)
    _check_sizes(what, "image", attrs.size, x.shape[2:])
    _check_sizes(what, "kernel", attrs.kernel, w.shape[2:])
    return TensorType((x.shape[0], w.shape[0], *attrs.counts(what, x)), x.dtype)


def _check_channels(what: str, groups: int, x: TensorType, w: TensorType) -> None:
    require_equal(w.shape[1] * groups, x.shape[1], what, f"channels of the input {x} for the weight {w}")
    if isinstance(w.shape[0], int) and w.shape[0] % groups:
        raise GraphError(f"{what}: {w.shape[0]} filters are not divisible into {groups} groups")


def _input_grad_type(attrs: ConvolutionAttributes, y: TensorType, w: TensorType) -> TensorType:
    _check_images("convolution_input_grad", result=y, weight=w)
    require_equal(w.shape[0], y.shape[1], "convolution_input_grad", f"channels of {y} for the weight {w}")
    _check_sizes("convolution_input_grad", "result", attrs.out_size, y.shape[2:])
    _check_sizes("convolution_input_grad", "kernel", attrs.kernel, w.shape[2:])
    return TensorType((y.shape[0], w.shape[1] * attrs.groups, *attrs.size), y.dtype)


def _weight_grad_type(attrs: ConvolutionAttributes, x: TensorType, y: TensorType) -> TensorType:
    _check_images("convolution_weight_grad", input=x, result=y)
    require_equal(x.shape[0], y.shape[0], "convolution_weight_grad", f"batch sizes of {x} and {y}")
    _check_sizes("convolution_weight_grad", "image", attrs.size, x.shape[2:])
    _check_sizes("convolution_weight_grad", "result", attrs.out_size, y.shape[2:])
    return TensorType((y.shape[1], x.shape[1] // attrs.groups, *attrs.kernel), x.dtype)


# -- NumPy references ---------------------------------------------------------------------------------------------


def _padded(x: Array, padding: Padding) -> Array:
    return np.pad(x, ((0, 0), (0, 0), *padding))


def _forward_reference(attrs: ConvolutionAttributes, x: Array, w: Array) -> Array:
    """Every window of the padded image, times the weights, group by group."""
    (sh, sw), (dh, dw) = attrs.stride, attrs.dilation
    kh, kw = w.shape[2:]
    out_h, out_w = (int(size) for size in attrs.out_size)
    y = np.zeros((x.shape[0], w.shape[0], out_h, out_w), x.dtype)
    if 0 in y.shape or 0 in w.shape:
        return y
    spans = ((kh - 1) * dh + 1, (kw - 1) * dw + 1)
    windows = np.lib.stride_tricks.sliding_window_view(_padded(x, attrs.padding), spans, (2, 3))
    windows = windows[:, :, ::sh, ::sw, ::dh, ::dw]
    grouped = windows.reshape(x.shape[0], attrs.groups, w.shape[1], out_h, out_w, kh, kw)
    weights = w.reshape(attrs.groups, -1, *w.shape[1:])
    y = np.einsum("ngcpqij,gocij->ngopq", grouped, weights, optimize=True)
    return np.asarray(y.reshape(x.shape[0], w.shape[0], out_h, out_w), x.dtype)


def _positions(attrs: ConvolutionAttributes, out: tuple[int, ...]) -> Iterator[tuple[int, int, slice, slice]]:
    """Each place (i, j) in the kernel, with what it meets in the padded image."""
    for i in range(int(attrs.kernel[0])):
        for j in range(int(attrs.kernel[1])):
            (sh, sw), (dh, dw) = attrs.stride, attrs.dilation
            rows = slice(i * dh, i * dh + (out[0] - 1) * sh + 1, sh) if out[0] else slice(0, 0)
            columns = slice(j * dw, j * dw + (out[1] - 1) * sw + 1, sw) if out[1] else slice(0, 0)
            yield i, j, rows, columns


def _input_grad_reference(attrs: ConvolutionAttributes, y: Array, w: Array) -> Array:
    """Scatter each result into the places of the image that it was made from."""
    n, groups = y.shape[0], attrs.groups
    (top, bottom), (left, right) = attrs.padding
    height, width = (int(size) for size in attrs.size)
    x = np.zeros((n, groups, w.shape[1], height + top + bottom, width + left + right), y.dtype)
    results = y.reshape(n, groups, w.shape[0] // groups, *y.shape[2:])
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for i, j, rows, columns in _positions(attrs, y.shape[2:]):
        x[..., rows, columns] += np.einsum("ngopq,goc->ngcpq", results, weights[..., i, j], optimize=True)
    x = x.reshape(n, groups * w.shape[1], *x.shape[3:])
    return x[:, :, top : top + height, left : left + width].copy()


def _weight_grad_reference(attrs: ConvolutionAttributes, x: Array, y: Array) -> Array:
    """For each place in the kernel, the image that it saw against the results."""
    n, groups = x.shape[0], attrs.groups
    padded = _padded(x, attrs.padding)
    images = padded.reshape(n, groups, x.shape[1] // groups, *padded.shape[2:])
    results = y.reshape(n, groups, y.shape[1] // groups, *y.shape[2:])
    kernel = tuple(int(size) for size in attrs.kernel)
    w = np.zeros((groups, y.shape[1] // groups, x.shape[1] // groups, *kernel), x.dtype)
    for i, j, rows, columns in _positions(attrs, y.shape[2:]):
        w[..., i, j] = np.einsum("ngcpq,ngopq->goc", images[..., rows, columns], results, optimize=True)
    return w.reshape(y.shape[1], x.shape[1] // groups, *kernel)


# -- the entries --------------------------------------------------------------------------------------------------


def _forward_vjp(o: Namespace, node: Primal[ConvolutionAttributes], ct: Tensor) -> Sequence[Tensor]:
    x, w = node.inputs
    return o.convolution_input_grad(ct, w, node.attrs), o.convolution_weight_grad(x, ct, node.attrs)


def _input_grad_vjp(o: Namespace, node: Primal[ConvolutionAttributes], ct: Tensor) -> Sequence[Tensor]:
    y, w = node.inputs
    return o.convolution(ct, w, node.attrs), o.convolution_weight_grad(ct, y, node.attrs)


def _weight_grad_vjp(o: Namespace, node: Primal[ConvolutionAttributes], ct: Tensor) -> Sequence[Tensor]:
    x, y = node.inputs
    return o.convolution_input_grad(y, ct, node.attrs), o.convolution(x, ct, node.attrs)


def _geometry(
    size: Pair, kernel: Pair, stride: Pair = (1, 1), padding: Padding = ((0, 0), (0, 0)),
    dilation: Pair = (1, 1), groups: int = 1,
) -> ConvolutionAttributes:  # fmt: skip
    return ConvolutionAttributes(stride, padding, dilation, groups, size, kernel)


def _samples() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], ConvolutionAttributes]]:
    """Shapes of x, w and y, and the geometry."""
    for n, channels, filters, attrs in (
        (2, 3, 4, _geometry((5, 6), (3, 3))),
        (1, 2, 3, _geometry((5, 7), (3, 2), stride=(2, 1), padding=((1, 1), (0, 1)))),
        (2, 4, 6, _geometry((6, 5), (2, 3), dilation=(2, 1), groups=2, padding=((1, 0), (1, 1)))),
        (1, 3, 3, _geometry((7, 6), (3, 3), stride=(2, 2), padding=((1, 1), (1, 1)), groups=3)),
        (2, 5, 4, _geometry((3, 4), (1, 1))),
        (1, 2, 2, _geometry((8, 8), (3, 3), stride=(3, 3), dilation=(2, 2), padding=((2, 2), (1, 1)))),
    ):
        size, kernel, out = sizes(attrs.size), sizes(attrs.kernel), sizes(attrs.out_size)
        yield (n, channels, *size), (filters, channels // attrs.groups, *kernel), (n, filters, *out), attrs


def _over_examples(o: Namespace, node: BatchedNode[ConvolutionAttributes]) -> Sequence[Tensor]:
    """With common weights the examples are more images; else each has a convolution of its own."""
    x, w = node.inputs
    if node.op is CONVOLUTION_WEIGHT_GRAD or node.batched[1]:
        return by_example(o, node)
    (made,) = again(node, (o.reshape(x, (node.size * x.shape[1], *x.shape[2:])), w), node.attrs)
    return (o.reshape(made, (node.size, x.shape[1], *made.shape[1:])),)


def _primitive(
    name: str,
    doc: str,
    infer: TypeRule,
    reference: Callable[..., Array],
    vjp: Callable[[Namespace, Primal[Any], Tensor], Sequence[Tensor]],
    operands: str,
) -> Op:
    """The entry of one of the three; ``operands`` are two of x, w and y."""

    def jvp(o: Namespace, node: Primal[object], da: Tensor, db: Tensor) -> Sequence[Tensor | None]:
        function = getattr(o, name)
        return bilinear(o, lambda a, b: function(a, b, node.attrs), node, da, db)

    cases = []
    for x, w, y, attrs in _samples():
        shapes = {"x": x, "w": w, "y": y}
        cases.append(Case(tuple(shapes[operand] for operand in operands), attrs))
    return register(
        Op(
            name,
            doc,
            infer=infer,
            reference=reference,
            vjp=vjp,
            jvp=jvp,
            dtypes=(float32, float64),
            cases=tuple(cases),
            tolerance=4.0,
            role="matrix",
            batch=_over_examples,
        )
    )


CONVOLUTION = _primitive(
    "convolution",
    "Cross-correlation of images (N, C, H, W) with weights (O, C / groups, KH, KW).",
    _forward_type,
    _forward_reference,
    _forward_vjp,
    "xw",
)

CONVOLUTION_INPUT_GRAD = _primitive(
    "convolution_input_grad",
    "The transpose of ``convolution`` in its image: results (N, O, P, Q) back to images.",
    _input_grad_type,
    _input_grad_reference,
    _input_grad_vjp,
    "yw",
)

CONVOLUTION_WEIGHT_GRAD = _primitive(
    "convolution_weight_grad",
    "The transpose of ``convolution`` in its weights: images and results to weights.",
    _weight_grad_type,
    _weight_grad_reference,
    _weight_grad_vjp,
    "xy",
)


@public
def convolution(x: Tensor, w: Tensor, attrs: ConvolutionAttributes) -> Tensor:
    """The primitive that ``conv2d`` is made of."""
    return x.graph.add(CONVOLUTION, (x, w), attrs).outputs[0]


@public
def convolution_input_grad(y: Tensor, w: Tensor, attrs: ConvolutionAttributes) -> Tensor:
    """The cotangent of the image from ``y``, that of the results."""
    return y.graph.add(CONVOLUTION_INPUT_GRAD, (y, w), attrs).outputs[0]


@public
def convolution_weight_grad(x: Tensor, y: Tensor, attrs: ConvolutionAttributes) -> Tensor:
    """The cotangent of the weights from ``y``, that of the results, and the image ``x``."""
    return x.graph.add(CONVOLUTION_WEIGHT_GRAD, (x, y), attrs).outputs[0]


# -- the public functions -----------------------------------------------------------------------------------------


def biased(o: Namespace, y: Tensor, bias: Sequence[Tensor]) -> list[Tensor]:
    return [o.add(y, o.reshape(bias[0], (1, bias[0].shape[0], *(1,) * (y.ndim - 2)))) if bias else y]


def _bias_type(what: str, y: TensorType, bias: Sequence[TensorType]) -> TensorType:
    if bias:
        if bias[0].ndim != 1:
            raise GraphError(f"{what}: expected a bias ({y.shape[1]},), actual {bias[0]}")
        require_equal(y.shape[1], bias[0].shape[0], what, "size of the bias")
    return y


def _conv2d_type(attrs: ConvolutionAttributes, x: TensorType, w: TensorType, *b: TensorType) -> TensorType:
    return _bias_type("conv2d", _forward_type(attrs, x, w, "conv2d"), b)


def _transpose_type(attrs: ConvolutionAttributes, y: TensorType, w: TensorType, *b: TensorType) -> TensorType:
    if any(isinstance(size, int) and size < 1 for size in attrs.size):
        raise GraphError(f"conv_transpose2d: the padding {attrs.padding} leaves nothing of the result of an input {y}")
    return _bias_type("conv_transpose2d", _input_grad_type(attrs, y, w), b)


def _conv3d_type(attrs: VolumeAttributes, x: TensorType, w: TensorType, *b: TensorType) -> TensorType:
    what = "conv3d"
    _check_channels(what, attrs.groups, x, w)
    axes = zip(x.shape[2:], w.shape[2:], attrs.stride, attrs.padding, attrs.dilation, strict=True)
    counts = [window_count(what, *axis, x) for axis in axes]
    return _bias_type(what, TensorType((x.shape[0], w.shape[0], *counts), x.dtype), b)


def _add_bias(y: Array, bias: Sequence[Array]) -> Array:
    return y + bias[0].reshape(-1, *(1,) * (y.ndim - 2)) if bias else y


CONV2D = register(
    Op(
        "conv2d",
        "Two-dimensional convolution with a bias.",
        infer=_conv2d_type,
        reference=lambda a, x, w, *b: _add_bias(_forward_reference(a, x, w), b),
        expand=lambda o, node: biased(o, o.convolution(*node.inputs[:2], node.attrs), node.inputs[2:]),
        dtypes=(float32, float64),
        cases=tuple(Case((x, w, (w[0],))[: 3 - i % 2], attrs) for i, (x, w, _, attrs) in enumerate(_samples())),
        grad_name="Convolution",
        tolerance=4.0,
    )
)

CONV_TRANSPOSE2D = register(
    Op(
        "conv_transpose2d",
        "The transpose of a two-dimensional convolution, with a bias.",
        infer=_transpose_type,
        reference=lambda a, y, w, *b: _add_bias(_input_grad_reference(a, y, w), b),
        expand=lambda o, node: biased(o, o.convolution_input_grad(*node.inputs[:2], node.attrs), node.inputs[2:]),
        dtypes=(float32, float64),
        cases=tuple(Case((y, w, (x[1],))[: 3 - i % 2], attrs) for i, (x, w, y, attrs) in enumerate(_samples())),
        grad_name="Convolution",
        tolerance=4.0,
    )
)


def _planes(attrs: VolumeAttributes, x: TensorType, w: TensorType) -> ConvolutionAttributes:
    """The geometry over height and width alone."""
    height, width, kernel_height, kernel_width = *x.shape[3:], *w.shape[3:]
    return ConvolutionAttributes(
        attrs.stride[1:],
        attrs.padding[1:],
        attrs.dilation[1:],
        attrs.groups,
        (height, width),
        (kernel_height, kernel_width),
    )


def _met(attrs: VolumeAttributes, k: int, depth: Size) -> slice:
    """The layers of the padded image that the kernel's layer ``k`` meets for ``depth`` layers of the result."""
    start = k * attrs.dilation[0]
    return slice(start, start + (depth - 1) * attrs.stride[0] + 1, attrs.stride[0])


def _expand_conv3d(o: Namespace, node: Primal[VolumeAttributes]) -> list[Tensor]:
    """A sum over the kernel's depth of two-dimensional convolutions, in which the depth is part of the batch."""
    attrs, (x, w, *bias) = node.attrs, node.inputs
    n, channels, depth = *x.shape[:2], _conv3d_type(attrs, x.type, w.type).shape[2]
    geometry = _planes(attrs, x.type, w.type)
    if attrs.padding[0] != (0, 0):
        x = o.pad(x, ((0, 0), (0, 0), attrs.padding[0], (0, 0), (0, 0)))
    parts = []
    for k in range(sizes(w.shape)[2]):
        layers = o.permute_dims(x[:, :, _met(attrs, k, depth)], (0, 2, 1, 3, 4))
        images = o.reshape(layers, (n * depth, channels, *geometry.size))
        parts.append(o.convolution(images, w[:, :, k], geometry))
    total = functools.reduce(o.add, parts)
    y = o.permute_dims(o.reshape(total, (n, depth, *total.shape[1:])), (0, 2, 1, 3, 4))
    return biased(o, y, bias)


def _conv3d_reference(attrs: VolumeAttributes, x: Array, w: Array, *bias: Array) -> Array:
    types = TensorType(x.shape, x.dtype), TensorType(w.shape, w.dtype)
    geometry, y = _planes(attrs, *types), np.zeros(sizes(_conv3d_type(attrs, *types).shape), x.dtype)
    padded = np.pad(x, ((0, 0), (0, 0), attrs.padding[0], (0, 0), (0, 0)))
    for k in range(w.shape[2]):
        layers = padded[:, :, _met(attrs, k, y.shape[2])]
        for place in range(y.shape[2]):
            y[:, :, place] += _forward_reference(geometry, layers[:, :, place], w[:, :, k])
    return _add_bias(y, bias)


CONV3D = register(
    Op(
        "conv3d",
        "Three-dimensional convolution with a bias.",
        infer=_conv3d_type,
        reference=_conv3d_reference,
        expand=_expand_conv3d,
        dtypes=(float32, float64),
        cases=(
            Case(((2, 2, 4, 3, 5), (3, 2, 2, 3, 2), (3,)), VolumeAttributes((1,) * 3, ((0, 0),) * 3, (1,) * 3, 1)),
            Case(
                ((1, 4, 5, 5, 4), (2, 2, 3, 2, 2)),
                VolumeAttributes((2, 1, 2), ((1, 1), (0, 1), (1, 0)), (1, 2, 1), 2),
            ),
        ),
        grad_name="Convolution",
        tolerance=4.0,
    )
)


def pair(value: Sizes, what: str, least: int = 0) -> Pair:
    """An int for both axes, or one for each; no smaller than ``least``."""
    height, width = along(value, 2, what, least)
    return height, width


def along(value: Sizes, axes: int, what: str, least: int = 0) -> tuple[int, ...]:
    """An int for each axis, from one for all or one for each; none is smaller than ``least``."""
    items = integers(value, what, least)
    if len(items) not in (1, axes):
        several = "" if axes == 1 else f" or {axes}"
        raise GraphError(f"{what}: expected one int{several}, actual {value!r}")
    return items if len(items) == axes else items * axes


def window_padding(
    padding: Sizes | Literal["same", "valid"],
    kernel: Sequence[Size],
    stride: Sequence[int],
    dilation: Sequence[int],
    what: str,
) -> tuple[Pair, ...]:
    """The numbers of elements that are added before and after each axis.

    Raises:
        GraphError: no padding, or ``"same"`` where it cannot be.
    """
    if not isinstance(padding, str):
        return tuple((zeros, zeros) for zeros in along(padding, len(kernel), f"{what}: padding"))
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise GraphError(f"{what}: padding={padding!r}: expected 'same', 'valid' or numbers")
    if any(step != 1 for step in stride):
        raise GraphError(f"{what}: padding='same' needs stride 1, actual {tuple(stride)}")
    halves = []
    for size, step in zip(kernel, dilation, strict=True):
        if isinstance(size, Dim):
            raise GraphError(f"{what}: padding='same' needs a kernel of known size")
        total = step * (size - 1)
        halves.append((total // 2, total - total // 2))
    return tuple(halves)


def batched_operands(
    what: str, ndim: int, input: TensorLike, weight: TensorLike, bias: TensorLike | None
) -> tuple[Tensor, Tensor, list[Tensor], bool]:
    """The input with a batch axis, the weight, the bias if there is one, and whether the batch axis was added.

    Raises:
        GraphError: an input of neither ``ndim`` nor ``ndim`` − 1 dimensions, or a weight of others than ``ndim``.
    """
    x, w, *given = lift_all((input, weight) if bias is None else (input, weight, bias), what=what)
    if x.ndim not in (ndim, ndim - 1):
        raise GraphError(f"{what}: expected an input of {ndim} (or {ndim - 1}) dimensions, actual {x.type}")
    if w.ndim != ndim:
        raise GraphError(f"{what}: expected a weight of {ndim} dimensions, actual {w.type}")
    added = x.ndim == ndim - 1
    return FUNCTIONS.expand_dims(x, 0) if added else x, w, given, added


def unbatched(y: Tensor, added: bool) -> Tensor:
    return FUNCTIONS.reshape(y, y.shape[1:]) if added else y


@public
def conv2d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes | Literal["same", "valid"] = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Two-dimensional convolution (cross-correlation).

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (O, C / groups, KH, KW).
        bias: (O,) or None.
        padding: zeros around the image; ``"same"`` keeps its size (stride 1 only), ``"valid"`` adds none.

    Returns:
        (N, O, P, Q) with P = (H + 2·padding − dilation·(KH − 1) − 1) // stride + 1, Q likewise.

    Raises:
        GraphError: sizes that do not agree.

    Example:
        >>> x = sg.constant([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
        >>> sg.Session().run(sg.nn.conv2d(x, [[[[1.0, 0.0], [0.0, -1.0]]]]))
        array([[[-4., -4.]]], dtype=float32)
        >>> sg.nn.conv2d(sg.zeros((8, 3, 32, 32)), sg.zeros((16, 3, 3, 3)), padding="same").shape
        (8, 16, 32, 32)
        >>> sg.nn.conv2d(sg.zeros((8, 4, 32, 32)), sg.zeros((8, 1, 3, 3)), groups=4).shape
        (8, 8, 30, 30)
    """
    what = "conv2d"
    x, w, given, added = batched_operands(what, 4, input, weight, bias)
    groups, kernel = integer(groups, f"{what}: groups", 1), (w.shape[2], w.shape[3])
    steps, spread = pair(stride, f"{what}: stride", 1), pair(dilation, f"{what}: dilation", 1)
    rows, columns = window_padding(padding, kernel, steps, spread, what)
    attrs = ConvolutionAttributes(steps, (rows, columns), spread, groups, (x.shape[2], x.shape[3]), kernel)
    return unbatched(x.graph.add(CONV2D, (x, w, *given), attrs).outputs[0], added)


@public
def conv_transpose2d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The transpose of ``conv2d``: its gradient with respect to the image.

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (C, O / groups, KH, KW).
        bias: (O,) or None.
        output_padding: rows and columns added at the end, where a stride leaves several sizes possible.

    Returns:
        (N, O, P, Q) with P = (H − 1)·stride − 2·padding + dilation·(KH − 1) + output_padding + 1, Q likewise.

    Raises:
        GraphError: sizes that do not agree, or an output padding that is not below the stride or the dilation.

    Example:
        >>> x = sg.constant([[[1.0, 2.0]]])
        >>> sg.Session().run(sg.nn.conv_transpose2d(x, [[[[1.0, 10.0]]]], stride=2))
        array([[[ 1., 10.,  2., 20.]]], dtype=float32)
        >>> x, weight = sg.zeros((8, 16, 7, 7)), sg.zeros((16, 4, 3, 3))
        >>> sg.nn.conv_transpose2d(x, weight, stride=2, padding=1, output_padding=1).shape
        (8, 4, 14, 14)
    """
    what = "conv_transpose2d"
    y, w, given, added = batched_operands(what, 4, input, weight, bias)
    groups = integer(groups, f"{what}: groups", 1)
    steps, spread = pair(stride, f"{what}: stride", 1), pair(dilation, f"{what}: dilation", 1)
    zeros, extra = pair(padding, f"{what}: padding"), pair(output_padding, f"{what}: output_padding")
    return unbatched(transposed_images(what, y, w, given, steps, zeros, extra, groups, spread), added)


def transposed_ends(
    what: str, padding: Sequence[int], extra: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding at the end and the zeros behind the result of a transpose, by axis: elements that ``output_padding``
    adds beyond the stride are elements that less padding at the end leaves, and beyond those of zeros.

    Raises:
        GraphError: an output padding that is not below the stride or the dilation.
    """
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise GraphError(
            f"{what}: output_padding {tuple(extra)} must be below the stride {tuple(stride)} or the dilation"
            f" {tuple(dilation)}"
        )
    axes = zip(padding, extra, stride, strict=True)
    return [(z, 0) if e < s else (max(z - e, 0), max(e - z, 0)) for z, e, s in axes]


def transposed_size(size: Size, kernel: Size, stride: int, padding: int, extra: int, dilation: int) -> Size:
    """The size of an axis of the result of a transpose."""
    return (size - 1) * stride - 2 * padding + (kernel - 1) * dilation + extra + 1


def transposed_images(
    what: str, y: Tensor, w: Tensor, bias: Sequence[Tensor], steps: Pair, zeros: Pair, extra: Pair, groups: int,
    spread: Pair,
) -> Tensor:  # fmt: skip
    """``conv_transpose2d`` of a batch under the name of the function that asks."""
    (bottom, below), (right, beside) = transposed_ends(what, zeros, extra, steps, spread)
    height, width = (
        transposed_size(y.shape[2 + a], w.shape[2 + a], steps[a], zeros[a], extra[a], spread[a]) for a in range(2)
    )
    attrs = ConvolutionAttributes(
        steps,
        ((zeros[0], bottom), (zeros[1], right)),
        spread,
        groups,
        (height - below, width - beside),
        (w.shape[2], w.shape[3]),
    )
    if not (below or beside):
        return y.graph.add(CONV_TRANSPOSE2D, (y, w, *bias), attrs).outputs[0]
    o = FUNCTIONS

    def padded(y: Tensor, w: Tensor, *bias: Tensor) -> Tensor:
        plain = y.graph.add(CONV_TRANSPOSE2D, (y, w), attrs).outputs[0]
        return biased(o, o.pad(plain, ((0, 0), (0, 0), (0, below), (0, beside))), bias)[0]

    return rounded_once(padded, y, w, *bias)


@public
def conv1d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes | Literal["same", "valid"] = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """One-dimensional convolution: ``conv2d`` of images one row high.

    Args:
        input: (N, C, L) or (C, L).
        weight: (O, C / groups, K).
        bias: (O,) or None.

    Returns:
        (N, O, M) with M = (L + 2·padding − dilation·(K − 1) − 1) // stride + 1.

    Raises:
        GraphError: sizes that do not agree.

    Example:
        >>> x = sg.constant([[[1.0, 2.0, 3.0, 4.0]]])
        >>> sg.Session().run(sg.nn.conv1d(x, [[[1.0, -1.0]]]))
        array([[[-1., -1., -1.]]], dtype=float32)
        >>> sg.nn.conv1d(sg.zeros((8, 3, 100)), sg.zeros((16, 3, 5)), stride=2, padding=2).shape
        (8, 16, 50)
    """
    o, what = FUNCTIONS, "conv1d"
    x, w, given, added = batched_operands(what, 3, input, weight, bias)
    (step,), (spread,) = along(stride, 1, f"{what}: stride", 1), along(dilation, 1, f"{what}: dilation", 1)
    groups = integer(groups, f"{what}: groups", 1)
    (zeros,) = window_padding(padding, w.shape[2:], (step,), (spread,), what)
    _check_channels(what, groups, x.type, w.type)
    window_count(what, x.shape[2], w.shape[2], step, zeros, spread, x.type)
    attrs = ConvolutionAttributes((1, step), ((0, 0), zeros), (1, spread), groups, (1, x.shape[2]), (1, w.shape[2]))
    high = [o.expand_dims(x, 2), o.expand_dims(w, 2)]
    y = x.graph.add(CONV2D, (*high, *given), attrs).outputs[0]
    return unbatched(o.reshape(y, (y.shape[0], y.shape[1], y.shape[3])), added)


@public
def conv3d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes | Literal["same", "valid"] = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Three-dimensional convolution: a sum over the kernel's depth of two-dimensional ones.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        weight: (O, C / groups, KD, KH, KW).
        bias: (O,) or None.

    Returns:
        (N, O, P, Q, R), each size as in ``conv2d``.

    Raises:
        GraphError: sizes that do not agree, or a kernel whose depth is not known.

    Example:
        >>> sg.nn.conv3d(sg.zeros((2, 3, 8, 32, 32)), sg.zeros((4, 3, 3, 3, 3)), padding=1).shape
        (2, 4, 8, 32, 32)
    """
    what = "conv3d"
    x, w, given, added = batched_operands(what, 5, input, weight, bias)
    if not isinstance(w.shape[2], int):
        raise GraphError(f"{what}: expected a weight of known depth, actual {w.type}")
    (sd, sh, sw), (dd, dh, dw) = along(stride, 3, f"{what}: stride", 1), along(dilation, 3, f"{what}: dilation", 1)
    depth, rows, columns = window_padding(padding, w.shape[2:], (sd, sh, sw), (dd, dh, dw), what)
    groups = integer(groups, f"{what}: groups", 1)
    attrs = VolumeAttributes((sd, sh, sw), (depth, rows, columns), (dd, dh, dw), groups)
    return unbatched(x.graph.add(CONV3D, (x, w, *given), attrs).outputs[0], added)
