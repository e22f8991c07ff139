"""Families of large programs with matrix kernels and loops: norms, products, convolutions, attention, scans."""

from __future__ import annotations

import math
from collections.abc import Callable

import staticgrad as sg
from staticgrad.graph.graph import Tensor
from support.large_draws import Maker

ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    sg.nn.relu, sg.nn.relu, sg.tanh, sg.nn.gelu, sg.nn.silu, sg.nn.sigmoid, sg.nn.softplus,
)  # fmt: skip


# -- norms -------------------------------------------------------------------------------------------------------------


def _losses(m: Maker, x: Tensor) -> Tensor | None:
    """Cross entropies of the rows of ``x``."""
    classes = x.shape[-1]
    if classes < 2:
        return None
    rows = sg.reshape(x, (-1, classes))
    labels = m.indices((rows.shape[0],), classes)
    if m.chance(0.3):
        m.feeds[labels][: max(1, rows.shape[0] // 10)] = -100
    reduction, smoothing = m.choose(("none", "mean", "none")), m.choose((0.0, 0.0, 0.1))
    return sg.nn.cross_entropy(rows, labels, reduction=reduction, label_smoothing=smoothing)


def _layer_norm(m: Maker, x: Tensor) -> Tensor:
    shape = x.shape[-1:] if m.chance(0.75) else x.shape[-2:]
    weight = m.weight(shape) if m.chance(0.7) else None
    return sg.nn.layer_norm(x, shape, weight, m.feed(shape) if weight is not None and m.chance(0.7) else None)


def _channel_norm(m: Maker, x: Tensor) -> Tensor | None:
    """Batch or group norm over axis 1."""
    if x.ndim not in (2, 3, 4) or x.size // x.shape[1] < 2:
        return None
    channels = x.shape[1]
    weight, bias = (m.weight((channels,)), m.feed((channels,))) if m.chance(0.7) else (None, None)
    if m.chance(0.5):
        return sg.nn.batch_norm(x, None, None, weight, bias, training=True)
    groups = m.choose([g for g in (1, 2, 3, 4, 8, 16, channels) if channels % g == 0])
    return sg.nn.group_norm(x, groups, weight, bias) if x.ndim > 2 else None


def normalisation(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim < 2 or x.shape[-1] * x.shape[-2] < 2:
        return None
    kind, axis = m.number(0, 8), m.axis(x)
    if kind <= 1:
        return sg.nn.softmax(x, axis) * float(x.shape[axis])
    if kind == 2:
        return sg.nn.log_softmax(x, axis)
    if kind <= 4:
        return _layer_norm(m, x)
    if kind == 5:
        return sg.nn.rms_norm(x, x.shape[-1:], m.weight(x.shape[-1:]) if m.chance(0.7) else None)
    if kind == 6:
        return _losses(m, x)
    if kind == 7:
        return sg.nn.normalize(x, dim=axis)
    return _channel_norm(m, x)


# -- products ----------------------------------------------------------------------------------------------------------


def _epilogue(m: Maker, y: Tensor) -> Tensor:
    """Some of: a scale, a bias along either axis, an activation, a residual."""
    if m.chance(0.2):
        y = y * 0.5
    if m.chance(0.4):
        y = y + m.weight(y.shape[-1:], 0.5)
    elif m.chance(0.15) and y.ndim >= 2:
        y = y + m.feed((y.shape[-2], 1))
    if m.chance(0.4):
        y = m.choose(ACTIVATIONS)(y)
    if m.chance(0.3):
        y = y + m.operand(y.shape)
    return y


def _columns(m: Maker, rows: int, depth: int) -> int:
    """How many columns a product of (rows, depth) with (depth, columns) may have."""
    return m.size(max(1, min(m.flops // (rows * depth), m.most // max(rows, depth))))


def _by_weight(m: Maker, x: Tensor) -> Tensor:
    depth = x.shape[-1]
    columns = _columns(m, x.size // depth, depth)
    spread = depth**-0.5
    if m.chance(0.5):
        w = m.weight((columns, depth), spread)
        return sg.nn.linear(x, w, m.feed((columns,)) if m.chance(0.5) else None)
    return sg.matmul(x, m.weight((depth, columns), spread))


def _from_left(m: Maker, x: Tensor) -> Tensor:
    depth = x.shape[-2]
    rows = _columns(m, x.size // depth, depth)
    if m.chance(0.5):
        return sg.matmul(m.weight((rows, depth), depth**-0.5), x)
    return sg.matmul(sg.matrix_transpose(m.weight((depth, rows), depth**-0.5)), x)


def _transposed(m: Maker, x: Tensor) -> Tensor | None:
    """Sums over the last but one axis of both operands, or over the last."""
    if m.chance(0.5):
        rows = sg.reshape(x, (-1, x.shape[-1]))
        y = m.feed((rows.shape[0], _columns(m, rows.shape[1], rows.shape[0])), rows.shape[0] ** -0.5)
        return sg.matmul(rows.T, y)
    room = min(m.flops // x.size, m.most * x.shape[-1] // x.size)
    if x.shape[-2] > room:
        return None
    return sg.matmul(x, sg.matrix_transpose(x)) * x.shape[-1] ** -0.5


def _batched(m: Maker, x: Tensor) -> Tensor:
    batch, depth = x.shape[:-2], x.shape[-1]
    columns = m.size(max(1, min(m.flops // x.size, m.most // (math.prod(batch) * max(x.shape[-2], depth)))))
    y = m.whole((*batch, depth, columns)) if m.chance(0.5) else m.permuted((*batch, depth, columns))
    return sg.matmul(x, y) * depth**-0.5


EINSUMS = {
    2: ("ij,jk->ik", "ij,ik->jk", "ij,kj->ki", "ij,ij->i", "ij,j->i", "ij,i->j", "ij,ij->j"),
    3: ("bij,bjk->bik", "bij,kj->bki", "bij,bik->bjk", "bij,jk->ibk", "bij,bj->bi", "bij,bij->b", "bij,ijk->bk",
        "bij,bij->ij", "bij,ibk->bjk", "bij,bkj->kbi"),
    4: ("bhij,bhjk->bhik", "bhij,hjk->bihk", "bihd,bjhd->bhij", "bhij,bhij->bi", "bhij,hik->bjk", "bhij,jk->bkhi"),
}  # fmt: skip


def _einsum(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim not in EINSUMS:
        return None
    text: str = m.choose(EINSUMS[x.ndim])
    left, right = text.partition("->")[0].split(",")
    sizes = dict(zip(left, x.shape))
    new = next((letter for letter in right if letter not in sizes), None)
    if new is not None:
        others = math.prod(sizes[letter] for letter in right if letter in sizes)
        result = math.prod(sizes[letter] for letter in text.partition("->")[2] if letter in sizes)
        sizes[new] = m.size(max(1, min(m.flops // x.size, m.most // max(others, result))))
    summed = math.prod(size for letter, size in sizes.items() if letter not in text.partition("->")[2])
    return sg.einsum(text, x, m.whole(tuple(sizes[letter] for letter in right))) * summed**-0.5


def product(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim < 1 or x.ndim > 4:
        return None
    kind = m.number(0, 9) if x.ndim >= 2 else 0
    if kind <= 2:
        y: Tensor | None = _by_weight(m, x)
    elif kind == 3:
        y = _from_left(m, x)
    elif kind == 4:
        y = _transposed(m, x)
    elif kind <= 6:
        y = _batched(m, x) if x.ndim > 2 else _by_weight(m, x)
    elif kind == 7:
        y = sg.matmul(x, m.feed(x.shape[-1:], x.shape[-1] ** -0.5))
    else:
        y = _einsum(m, x)
    return y if y is None or not y.ndim or y.size > m.most else _epilogue(m, y)


# -- images ------------------------------------------------------------------------------------------------------------


def _as_images(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim == 4:
        return x
    if x.ndim == 3:
        return sg.expand_dims(x, axis=m.number(0, 1))
    return None


def _one_axis(m: Maker, x: Tensor) -> Tensor | None:
    batch, channels, length = x.shape
    kernel = m.choose((1, 3, 5, 9))
    if length < kernel or channels > 600:
        return None
    out = m.size(max(1, min(m.flops // (x.size * kernel), m.most // (batch * length))))
    w = m.weight((out, channels, kernel), (channels * kernel) ** -0.5)
    return sg.nn.conv1d(x, w, stride=m.choose((1, 1, 2)), padding=m.choose((0, kernel // 2)))


def _pooled(m: Maker, x: Tensor) -> Tensor:
    kernel, stride = m.choose((2, 3, 2)), m.choose((None, 1, 2))
    if m.chance(0.6):
        return sg.nn.max_pool2d(x, kernel, stride=stride, padding=m.number(0, 1))
    if m.chance(0.7):
        return sg.nn.avg_pool2d(x, kernel, stride=stride, padding=m.number(0, 1))
    return sg.nn.adaptive_avg_pool2d(x, m.choose((1, 2, 3)))


def _groups(m: Maker, channels: int) -> int:
    """Usually one; else as many as there are channels, or a divisor."""
    if m.chance(0.5):
        return 1
    return channels if m.chance(0.7) else int(m.choose([g for g in (1, 2, 3, 4, 8) if channels % g == 0]))


def _weighted(m: Maker, x: Tensor) -> Tensor | None:
    """A convolution, forward or transposed, with what usually follows it."""
    batch, channels, height, width = x.shape
    kh, kw = m.choose(((1, 1), (1, 1), (1, 1), (3, 3), (3, 3), (3, 3), (3, 3), (5, 5), (2, 2), (1, 3), (7, 7), (3, 1)))
    if height < kh + 2 or width < kw + 2:
        kh = kw = 1
    groups, inner = _groups(m, channels), kh * kw
    work = m.flops * m.choose((1, 1, 3)) * groups
    limit = max(1, min(work // (x.size * inner), m.most // (batch * height * width)))
    out = min(limit, m.choose((8, 16, 24, 32, 64, channels, channels // 4, channels * 4, m.size(100), m.size(100), 3)))
    out = channels if groups == channels and m.chance(0.8) else groups * max(1, out // groups)
    spread = (channels // groups * inner) ** -0.5
    stride, dilation = m.choose((1, 1, 1, 2, 2, 3)), m.choose((1, 1, 1, 1, 2)) if min(height, width) > 16 else 1
    bias = m.weight((out,)) if m.chance(0.5) else None
    if m.chance(0.2):
        w = m.weight((channels, out // groups, kh, kw), spread)
        return sg.nn.conv_transpose2d(x, w, bias, stride=min(stride, 2), padding=m.number(0, kh // 2), groups=groups)
    w = m.weight((out, channels // groups, kh, kw), spread)
    padding = m.choose(((0, 0), (kh // 2, kw // 2), (kh // 2, kw // 2), (1, 0)))
    return sg.nn.conv2d(x, w, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


def convolution(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim == 3 and m.chance(0.6):
        y = _one_axis(m, x)
        return None if y is None else m.choose(ACTIVATIONS)(y)
    images = _as_images(m, x)
    if images is None or min(images.shape[2:]) < 4:
        return None
    if m.chance(0.25):
        return _pooled(m, images)
    y = _weighted(m, images)
    if y is None or y.size > m.most:
        return y
    if m.chance(0.25) and y.size > y.shape[1]:
        y = sg.nn.batch_norm(y, None, None, training=True)
    if m.chance(0.6):
        y = m.choose(ACTIVATIONS)(y)
    return y + m.operand(y.shape) if m.chance(0.2) else y


def attention(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim < 3:
        return None
    (*batch, length, width) = x.shape
    others = m.choose((length, length, m.size(2 * length)))
    if math.prod(batch) * length * others > 2 * m.most or 2 * x.size * others > 2 * m.flops or width > 512:
        return None
    key, value = m.whole((*batch, others, width)), m.whole((*batch, others, width))
    if m.chance(0.6):
        causal = others == length and m.chance(0.5)
        mask = m.feed((length, others)) if not causal and m.chance(0.2) else None
        return sg.nn.scaled_dot_product_attention(x, key, value, attn_mask=mask, is_causal=causal)
    scores = sg.matmul(x, sg.matrix_transpose(key)) * width**-0.5
    return sg.matmul(sg.nn.softmax(scores, -1), value)


# -- matrices ---------------------------------------------------------------------------------------------------------


def factorisation(m: Maker, x: Tensor) -> Tensor | None:
    """Of symmetric matrices whose eigenvalues are far from zero, and systems with them."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] > 160 or x.size * x.shape[-1] > m.flops // 4:
        return None
    size = x.shape[-1]
    y = sg.tanh(x)
    square = (y + sg.matrix_transpose(y)) * (0.5 / size**0.5) + sg.eye(size, dtype=x.dtype) * 3.0
    kind = m.number(0, 7)
    if kind == 0:
        return sg.linalg.cholesky(square)
    if kind == 1:
        return sg.linalg.solve(square + sg.tril(y) * (0.5 / size), m.whole((*x.shape[:-1], m.number(1, 9))))
    if kind == 2:
        return sg.linalg.slogdet(square)[1]
    if kind == 3:
        return sg.linalg.solve_triangular(sg.linalg.cholesky(square), m.whole((*x.shape[:-1], m.number(1, 40))))
    if kind == 4:
        return sg.linalg.eigvalsh(square)
    if kind == 5:
        return sg.linalg.svdvals(x * 0.3)
    if kind == 6:
        return sg.linalg.qr(square)[m.number(0, 1)]
    return sg.linalg.inv(square)


# -- loops -------------------------------------------------------------------------------------------------------------

MOST_STEPS = 48  # the reference takes each in Python


MOST_UNROLLED = 10


def _gated(m: Maker, rows: Tensor, backwards: bool) -> Tensor | None:
    """A cell whose gates are blocks of columns of a product, over matrices, as a scan or unrolled."""
    rows = sg.expand_dims(rows, axis=1) if rows.ndim == 2 else rows
    if rows.ndim != 3 or rows.shape[-1] > 300 or 4 * rows.size * rows.shape[-1] > m.flops:
        return None
    width = rows.shape[-1]
    w, b, first = m.weight((width, 3 * width), width**-0.5), m.feed((3 * width,)), m.feed(rows.shape[1:])

    def turn(c: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        forgotten, taken, value = sg.split(c @ w + b, 3, axis=-1)
        c = sg.nn.sigmoid(forgotten) * c + sg.nn.sigmoid(taken + row) * sg.tanh(value)
        return c, c

    if m.chance(0.5):
        return sg.scan(turn, first, rows, reverse=backwards)[1]
    states = [first]
    for step in range(min(rows.shape[0], MOST_UNROLLED)):
        states.append(turn(states[-1], rows[step])[0])
    return sg.stack(states[1:])


def loop(m: Maker, x: Tensor) -> Tensor | None:
    """Scans and maps over the rows of an axis that is not long."""
    if x.ndim < 2 or min(x.shape) > MOST_STEPS:
        return None
    axis = m.choose([a for a, s in enumerate(x.shape) if s <= MOST_STEPS])
    rows, backwards, kind = sg.moveaxis(x, axis, 0), m.chance(0.4), m.number(0, 9)
    if kind >= 8:
        return _gated(m, rows, backwards)
    first = m.feed(rows.shape[1:])
    if kind == 0:
        return sg.scan(lambda c, row: (sg.tanh(c * 0.5 + row), c - row), first, rows, reverse=backwards)[1]
    if kind == 1:
        return sg.scan(lambda c, row: (sg.sin(c * 0.7 + row), None), first, rows, reverse=backwards)[0]
    if kind == 2:
        width = rows.shape[-1]
        if width > 300 or rows.size * width > m.flops:
            return None
        w = m.weight((width, width), width**-0.5)
        return sg.scan(lambda c, row: (y := sg.tanh(sg.matmul(c, w) + row), y), first, rows, reverse=backwards)[1]
    if kind == 3:
        return sg.map(lambda row: sg.nn.softmax(row * 0.5) if row.ndim else sg.tanh(row), rows)
    if kind == 4:
        return sg.map(lambda row: sg.sum(sg.tanh(row) * first) * first.size**-0.5, rows)
    if kind == 5:
        return sg.map(lambda row: row - sg.mean(row, 0, keepdims=True) if row.ndim else row * 0.5, rows)
    if kind == 6:
        return sg.while_loop(lambda s: s[1] < 3, lambda s: (sg.cos(s[0]) + x * 0.1, s[1] + 1), (x, 0), max_steps=4)[0]
    return sg.cond(sg.sum(first * first) > 0.0, lambda: sg.sin(x), lambda: x * x[0] * 0.1)


# -- layers ------------------------------------------------------------------------------------------------------------

FEW, MANY = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32), (16, 17, 31, 33, 40, 48, 64, 65, 96, 128, 192, 256, 384, 512)


def layer(m: Maker) -> tuple[Tensor, Tensor]:
    """An image batch and a convolution of it, of any geometry and layout that the size of the program has room for."""
    kernel = (m.choose((1, 1, 2, 3, 3, 3, 4, 5, 7)), m.choose((1, 1, 2, 3, 3, 3, 4, 5, 7)))
    kernel = (kernel[0], kernel[0]) if m.chance(0.7) else kernel
    depthwise, grouped = m.chance(0.3), m.chance(0.2)
    groups = m.choose(m.choose((FEW, MANY))) if depthwise else m.choose((2, 3, 4)) if grouped else 1
    channels = groups * (1 if depthwise else m.choose(m.choose((FEW, MANY, MANY))))
    filters = groups * (m.choose((1, 1, 1, 2)) if depthwise else m.choose(m.choose((FEW, MANY, MANY))))
    taps, work = kernel[0] * kernel[1], m.flops * (2 if m.scale == 1 else 4)
    pixels = max(1, min(m.elements // max(channels, filters), work * groups // (taps * channels * filters)))
    batch = min(pixels, m.choose((1, 1, 2, 3, 8, 16, 31)))
    side = max(1, math.isqrt(pixels // batch))
    height = -(-side // 4) * 4 if m.chance(0.3) else m.size(side * m.choose((1, 1, 2)))
    width = max(1, pixels // (batch * height))
    sizes = (height, width if m.chance(0.3) else m.size(width))
    stride = (m.choose((1, 1, 1, 2, 3)), m.choose((1, 1, 1, 2)))
    stride = (stride[0], stride[0]) if m.chance(0.8) else stride
    dilation = tuple(m.choose((1, 1, 1, 2)) for _ in kernel)
    reach = tuple((k - 1) * d for k, d in zip(kernel, dilation))
    padding = m.choose(((0, 0), tuple(r // 2 for r in reach), tuple(r // 2 for r in reach), reach, (1, 0)))
    shape = (batch, channels, *(max(s * t, r + 1) for s, t, r in zip(sizes, stride, reach)))
    x = m.permuted(shape) if m.chance(0.3) else m.feed(shape)
    if m.chance(0.4):
        x = sg.permute_dims(m.feed((shape[0], *shape[2:], shape[1])), (0, 3, 1, 2))  # channels last
    spread = (channels // groups * taps) ** -0.5
    if m.chance(0.15) and dilation == (1, 1):
        w = m.weight((channels, filters // groups, *kernel), spread)
        return x, sg.nn.conv_transpose2d(x, w, stride=stride, padding=tuple(r // 2 for r in reach), groups=groups)
    w = m.weight((filters, channels // groups, *kernel), spread)
    y = sg.nn.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return x, sg.permute_dims(y, (0, 2, 3, 1)) if m.chance(0.3) else y
