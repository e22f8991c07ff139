"""The families of ops of which large programs are drawn.

A family is a function of the maker and a tensor: it declares one op, or one small composition as users write it, on the
tensor and gives the result, or None where the tensor does not suit. Results are of moderate size: sums are divided by
the root of their number of terms, exponentials are taken of what is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import staticgrad as sg
from staticgrad.graph.graph import Tensor
from support.large_draws import Maker, broadcasts
from support.large_networks import attention, convolution, factorisation, loop, normalisation, product

Family = Callable[[Maker, Tensor], "Tensor | None"]


# -- pointwise ---------------------------------------------------------------------------------------------------------

UNARY: tuple[Callable[[Tensor], Tensor], ...] = (
    sg.tanh, sg.nn.sigmoid, sg.nn.relu, sg.nn.gelu, sg.nn.silu, sg.nn.softplus, sg.abs, sg.negative, sg.sin, sg.erf,
    lambda x: sg.exp(sg.tanh(x)), lambda x: sg.sqrt(x * x + 0.5), lambda x: sg.log(x * x + 1.0), lambda x: x / 3.0,
    lambda x: sg.where(x > 0.1, x, x * 0.25), lambda x: sg.clip(x, -0.5, 0.7), lambda x: 2.0 - x, sg.square,
    lambda x: sg.atan(x), lambda x: sg.log2(x * x + 1.0), lambda x: x**3 * 0.1, lambda x: sg.asin(sg.tanh(x) * 0.9),
    lambda x: sg.pow(x * x + 0.5, 0.7), lambda x: sg.exp2(sg.tanh(x)), sg.erfc, lambda x: sg.sinh(sg.tanh(x)),
    lambda x: sg.rsqrt(x * x + 1.0), lambda x: sg.cos(x) * x, sg.expm1, lambda x: sg.nn.leaky_relu(x, 0.1),
)  # fmt: skip
BINARY: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: b - a, lambda a, b: a * sg.tanh(b), sg.maximum, sg.minimum,
    lambda a, b: a / (b * b + 1.0), lambda a, b: sg.where(b > 0.0, a, b * 0.5), sg.logaddexp,
    lambda a, b: sg.atan2(a, b * b + 0.5), lambda a, b: sg.hypot(a, sg.cos(b) + 1.5),
    lambda a, b: a * 0.5 + b * 0.25, lambda a, b: sg.nn.relu(a + b), lambda a, b: sg.nn.sigmoid(b) * a,
)  # fmt: skip


def unary(m: Maker, x: Tensor) -> Tensor:
    y: Tensor = m.choose(UNARY)(sg.clip(x, -4.0, 4.0) if m.chance(0.1) else x)
    return sg.tanh(y) if y.op.op.name in ("expm1", "square") else y


def binary(m: Maker, x: Tensor) -> Tensor:
    """With an operand that broadcasts to ``x``, or one to which ``x`` broadcasts."""
    wider = [y for y in m.pool if y.size > x.size and broadcasts(x.shape, y.shape)]
    y = m.choose(wider) if wider and m.chance(0.6) else m.operand(x.shape)
    result: Tensor = m.choose(BINARY)(*((x, y) if m.chance(0.5) else (y, x)))
    return m.squash(result) if m.chance(0.2) else result


def pointwise(m: Maker, x: Tensor) -> Tensor | None:
    return binary(m, x) if m.chance(0.7) else unary(m, x)


def outer(m: Maker, x: Tensor) -> Tensor | None:
    """``x`` beside a new axis, against an operand along that axis."""
    room = m.most // max(1, x.size)
    if room < 2 or x.ndim > 4:
        return None
    axis, size = m.number(0, x.ndim), m.size(room)
    shape = [1] * (x.ndim + 1)
    shape[axis] = size
    for a in range(x.ndim + 1):
        if a != axis and m.chance(0.3):
            shape[a] = x.shape[a - (a > axis)]
    y = m.feed(tuple(shape)) if m.chance(0.5) else m.permuted(tuple(shape))
    result: Tensor = m.choose(BINARY)(sg.expand_dims(x, axis=axis), y)
    return result


# -- views -------------------------------------------------------------------------------------------------------------


def _regrouped(m: Maker, x: Tensor) -> Tensor:
    """Another shape: axes merged, or one cut in two."""
    shape = list(x.shape)
    if len(shape) > 1 and m.chance(0.5):
        a = m.number(0, len(shape) - 2)
        shape[a : a + 2] = [shape[a] * shape[a + 1]]
    else:
        a = m.axis(x)
        factors = [f for f in range(1, min(shape[a], 4096) + 1) if shape[a] % f == 0]
        factor = m.choose(factors)
        shape[a : a + 1] = m.choose(([factor, shape[a] // factor], [shape[a] // factor, factor]))
    return sg.reshape(x, tuple(shape)) if len(shape) <= 5 else x


def _cut(m: Maker, x: Tensor) -> Tensor:
    picked = [slice(None)] * x.ndim
    for a in m.axes(x):
        half = max(1, x.shape[a] // 2)
        picked[a] = m.choose(
            (slice(None, None, 2), slice(None, None, -1), slice(half, None), slice(1, None), slice(None, -1),
             slice(None, None, 3), slice(None, None, -2), slice(0, half))
        )  # fmt: skip
    return x[tuple(picked)]


def _joined(m: Maker, x: Tensor) -> Tensor:
    parts = [x, m.choose(UNARY[:6])(x), m.operand(x.shape)]
    parts = [sg.broadcast_to(p, x.shape) for p in parts[: m.number(2, 3)]]
    return sg.stack(parts, axis=m.number(0, x.ndim)) if m.chance(0.3) else sg.concat(parts, axis=m.axis(x))


def _repeated(m: Maker, x: Tensor) -> Tensor | None:
    room = m.most // x.size
    if room < 2:
        return None
    count, axis = m.number(2, min(room, 9)), m.axis(x)
    kind = m.number(0, 2)
    if kind == 0:
        return sg.repeat(x, count, axis=axis)
    if kind == 1:
        return sg.tile(x, tuple(count if a == axis else 1 for a in range(x.ndim)))
    return sg.broadcast_to(sg.expand_dims(x, axis=0), (count, *x.shape)) if x.ndim < 5 else None


def view(m: Maker, x: Tensor) -> Tensor | None:
    kind = m.number(0, 11)
    if x.ndim == 0:
        return None
    if kind <= 2:
        y = sg.permute_dims(x, m.permutation(x.ndim))
    elif kind <= 4:
        y = _regrouped(m, x)
    elif kind == 5:
        y = _cut(m, x)
    elif kind == 6:
        y = sg.flip(x, axis=m.axes(x))
    elif kind == 7:
        if 3 * x.size > m.most:
            return None
        y = _joined(m, x)
    elif kind == 8:
        y = sg.pad(x, [(m.number(0, 3), m.number(0, 3)) for _ in x.shape], m.choose((0, 1.5)))
    elif kind == 9:
        a = m.axis(x)
        y = sg.roll(x, m.number(-x.shape[a], x.shape[a]), axis=a)
    elif kind == 10:
        return _repeated(m, x)
    else:
        a = m.axis(x)
        first, second = sg.split(x, [x.shape[a] // 3], axis=a)
        y = second if m.chance(0.5) or not first.size else first * 0.5
    return pointwise(m, y) if m.chance(0.4) else y


# -- reductions --------------------------------------------------------------------------------------------------------


MOST_FACTORS = 4000  # of more the rounding adds up to what decides comparisons


def _near_one(x: Tensor, count: int) -> Tensor:
    """Factors of which the product of so many is of moderate size."""
    return 1.0 + sg.tanh(x) * (0.5 / count**0.5 if count < 64 else 4.0 / count)


def _product(m: Maker, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return sg.prod(_near_one(x, math.prod(x.shape[a] for a in axes)), axes, keepdims=keep)


def _decided(m: Maker, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """Reductions whose results are no floats, of elements that are free of rounding."""
    kind, y = m.number(0, 4), m.exact(x)
    if kind == 0:
        return sg.astype(sg.any(y > 2.5, axes, keepdims=keep), x.dtype)
    if kind == 1:
        return sg.astype(sg.all(y > -2.5, axes, keepdims=keep), x.dtype)
    if kind == 2:
        return sg.astype(sg.count_nonzero(y > 0.3, axes, keepdims=keep), x.dtype) * 0.01
    axis = axes[0]
    at = (sg.argmax if kind == 3 else sg.argmin)(y, axis, keepdims=True)
    return sg.take_along_axis(x, at, axis=axis) if m.chance(0.6) else sg.astype(at, x.dtype) * (1.0 / x.shape[axis])


def reduction(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim == 0:
        return None
    axes, keep = m.axes(x), m.chance(0.5)
    count = math.prod(x.shape[a] for a in axes)
    kind = m.number(0, 11)
    if kind <= 2:
        return sg.sum(x, axes, keepdims=keep) * (1.0 / count**0.5)
    if kind == 3:
        return sg.mean(x * x if m.chance(0.5) else x, axes, keepdims=keep)
    if kind <= 5:
        return (sg.max if kind == 4 else sg.min)(m.peaked(x), axes, keepdims=keep)
    if kind == 6:
        return _product(m, x, axes, keep) if count <= MOST_FACTORS else None
    if kind <= 8:
        return _decided(m, x, axes, keep)
    if kind == 9:
        return sg.logsumexp(x, axes, keepdims=keep)
    if kind == 10:
        return sg.var(x, axes, keepdims=keep) if count > 1 else None
    y = sg.sum(x * m.operand(x.shape), axes, keepdims=keep) * (1.0 / count**0.5)
    return m.squash(y)


def folded(m: Maker, x: Tensor) -> Tensor | None:
    """A reduction of what is combined of ``x`` and operands in other orders of their axes."""
    if x.ndim < 2:
        return None
    y = m.choose(BINARY)(x, m.permuted(x.shape))
    y = m.choose(BINARY)(m.operand(x.shape), y) if m.chance(0.3) else y
    axes = (m.axis(x),) if m.chance(0.6) else m.axes(x)
    function = m.choose((sg.sum, sg.sum, sg.mean, sg.max, sg.logsumexp, sg.var))
    result: Tensor = function(m.peaked(y) if function is sg.max else y, axes, keepdims=m.chance(0.3))
    return result * math.prod(x.shape[a] for a in axes) ** -0.5 if function is sg.sum else result


def centred(m: Maker, x: Tensor) -> Tensor | None:
    """What a reduction gives is broadcast against what it was taken of."""
    if x.ndim == 0:
        return None
    axes = m.axes(x)
    kind = m.number(0, 3)
    if kind == 0:
        return x - sg.mean(x, axes, keepdims=True)
    if kind == 1:
        return x / (1.0 + sg.max(sg.abs(m.peaked(x)), axes, keepdims=True))
    if kind == 2:
        return x * sg.rsqrt(sg.mean(x * x, axes, keepdims=True) + 0.1)
    y = sg.exp(sg.tanh(x))
    return y / sg.sum(y, axes, keepdims=True) * float(math.prod(x.shape[a] for a in axes))


# -- in other places ---------------------------------------------------------------------------------------------------


def arrangement(m: Maker, x: Tensor) -> Tensor | None:
    """Sorts and running sums."""
    if x.ndim == 0:
        return None
    axis, kind = m.axis(x), m.number(0, 8)
    size = x.shape[axis]
    if kind <= 1:
        return sg.sort(x, axis=axis, descending=m.chance(0.5))
    if kind == 2:
        return sg.take_along_axis(x, sg.argsort(m.exact(x), axis=axis, descending=m.chance(0.5)), axis=axis)
    if kind == 3:
        largest = sg.moveaxis(sg.sort(x, axis=axis, descending=True), axis, -1)
        return largest[..., : max(1, min(size, m.number(1, 20)))]
    if kind <= 5:
        y = sg.cumulative_sum(x, axis=axis, include_initial=m.chance(0.2))
        return y * (1.0 / size**0.5)
    if kind == 6 and size <= MOST_FACTORS:
        return sg.cumulative_prod(_near_one(x, size), axis=axis)
    if kind == 7:
        return sg.log(sg.cumulative_sum(sg.exp(sg.tanh(x)), axis=axis))
    return sg.diff(x, axis=axis) if size > 1 else None


def gather(m: Maker, x: Tensor) -> Tensor | None:
    """Elements at indices, and additions to elements at indices."""
    if x.ndim == 0:
        return None
    axis, kind = m.axis(x), m.number(0, 7)
    size = x.shape[axis]
    rest = x.size // size
    count = max(1, min(m.size(2 * size), m.most // rest))
    if kind <= 1:
        return sg.take(x, m.indices((count,), size), axis=axis)
    if kind == 2:
        shape = tuple(count if a == axis else s for a, s in enumerate(x.shape))
        return sg.take_along_axis(x, m.indices(shape, size), axis=axis)
    if kind == 3:
        return x[(*(slice(None),) * axis, m.indices((count,), size, -size))]
    if kind == 4 and x.ndim >= 2:
        return x[m.indices((count,), x.shape[0]), m.indices((count,), x.shape[1])]
    width = m.size(256)
    if kind == 5 and x.ndim <= 3:
        rows = max(1, m.elements // width // 2)
        ids = m.indices((m.number(1, 4), max(1, rows // 4)), m.size(5000) + 1)
        bound = int(m.feeds[ids].max()) + 1
        return sg.nn.embedding(ids, m.weight((bound, width)))
    mode = m.choose(("add", "add", "max", "set"))
    count = min(count, x.shape[0]) if mode == "set" else max(1, min(count, m.most // (x.size // x.shape[0])))
    index = m.indices((count,), x.shape[0])
    if mode == "set":
        m.feeds[index] = m.rng.permutation(x.shape[0])[:count].astype(index.dtype)
    return sg.scatter(x, index, m.feed((count, *x.shape[1:])), mode=mode)


FAMILIES: dict[str, Family] = {
    "pointwise": pointwise, "outer": outer, "view": view, "reduction": reduction, "folded": folded, "centred": centred,
    "normalisation": normalisation, "product": product, "convolution": convolution, "attention": attention,
    "arrangement": arrangement, "gather": gather, "loop": loop, "factorisation": factorisation,
}  # fmt: skip
WEIGHTS = {
    "pointwise": 5, "outer": 1.5, "view": 5, "reduction": 3, "folded": 4, "centred": 2, "normalisation": 3,
    "product": 5, "convolution": 8, "attention": 1, "arrangement": 1.5, "gather": 1.5, "loop": 1.5,
    "factorisation": 0.7,
}  # fmt: skip


# -- what a program begins with ----------------------------------------------------------------------------------------


def _anything(m: Maker) -> Tensor:
    return m.operand(m.shape(m.choose((1, 2, 2, 3, 3, 3, 4))))


def _cube(m: Maker) -> Tensor:
    """Three axes or four, of which the inner ones are often short."""
    shape = m.shape(m.choose((2, 3, 3, 4)))
    if m.chance(0.5):
        shape = tuple(sorted(shape, reverse=True))
    return m.operand(shape) if m.chance(0.6) else m.permuted(shape)


def _rows(m: Maker) -> Tensor:
    return m.operand(m.shape(m.choose((2, 2, 3, 4))))


def _matrix(m: Maker) -> Tensor:
    return m.operand(m.shape(m.choose((2, 2, 3)), m.elements // m.choose((1, 1, 2, 4))))


NETWORKS = ((3, 224), (16, 112), (32, 112), (64, 56), (128, 28), (144, 56), (256, 14), (512, 7), (960, 7), (24, 33))


def _images(m: Maker) -> Tensor:
    """As layers of networks have them, or of any sizes."""
    if m.chance(0.5):
        channels, size = m.choose(NETWORKS)
        if m.scale > 1:
            channels, size = max(1, channels // 4), max(7, size // 4)
        most = max(1, m.elements // (channels * size * size))
        return m.feed((min(most, m.choose((1, 2, 4, 16))), channels, size, size))
    channels = m.choose((1, 3, 3, 4, 8, 12, 16, 16, 24, 32, 33, 48, 64, 64, 96, 128))
    batch = m.choose((1, 1, 2, 3, 4, 8, 9))
    points = max(4, m.elements // m.choose((1, 2, 4)) // (channels * batch))
    height = min(points // 2, max(2, round(points ** m.choose((0.5, 0.5, 0.5, 0.4, 0.6))) + m.number(-1, 1)))
    return m.feed((batch, channels, height, max(2, points // height)))


def _squares(m: Maker) -> Tensor:
    """Batches of square matrices; one that is not small takes as much work as many that are."""
    size = m.number(2, 12) if m.chance(0.5) else m.number(12, 150 if m.scale == 1 else 40)
    return m.feed((max(1, m.elements // 2 // size**3 * 4), size, size))


def _tokens(m: Maker) -> Tensor:
    width = m.choose((8, 16, 24, 32, 48, 64, 64, 80, 128))
    batch, heads = m.choose((1, 1, 2, 3)), m.choose((1, 2, 3, 4, 8, 12))
    if m.scale > 8:
        width, heads = min(width, 32), min(heads, 3)
    length = max(2, m.elements // 2 // (width * batch * heads) + m.number(-1, 1))
    return m.feed((batch, heads, min(length, round(m.flops**0.5 / 8)), width))


STARTS: dict[str, Callable[[Maker], Tensor]] = {
    "pointwise": _anything, "view": _anything, "product": _matrix, "convolution": _images, "attention": _tokens,
    "normalisation": _rows, "loop": _rows, "folded": _cube, "reduction": _cube, "factorisation": _squares,
}  # fmt: skip
