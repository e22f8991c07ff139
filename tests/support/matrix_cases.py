"""Contractions and convolutions with operands, and what must come out, by NumPy in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from staticgrad.compiler.kernels.matrix import Contraction, Convolution
from staticgrad.compiler.kernels.nest import Nest

Direction = Literal["forward", "input_grad", "weight_grad"]


F32, F64 = np.dtype("float32"), np.dtype("float64")


DIRECTIONS: tuple[Direction, ...] = ("forward", "input_grad", "weight_grad")


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)


def four_strides(array: np.ndarray) -> tuple[int, int, int, int]:
    first, second, third, fourth = strides_of(array)
    return first, second, third, fourth


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 9, shape).astype(dtype)


def permuted(rng: np.random.Generator, shape: tuple[int, ...], order: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of ``shape`` whose axes lie in memory in ``order``."""
    array = random_array(rng, tuple(shape[axis] for axis in order), dtype)
    return array.transpose(np.argsort(order))


@dataclass
class Case:
    """A kernel with its operands and what must come out, in the order of the kernel's result indices."""

    label: str
    kernel: Contraction | Convolution
    operands: tuple[np.ndarray, np.ndarray]
    result: np.ndarray
    expected: np.ndarray
    magnitude: np.ndarray  # Σ |a|·|b|: what rounding errors scale with
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def has_epilogue(self) -> bool:
        return self.kernel.epilogue is not None


LAYOUTS: dict[str, Callable[[int], tuple[int, ...]]] = {
    "n": lambda rank: tuple(range(rank)),
    "t": lambda rank: (*range(rank - 2), rank - 1, rank - 2),
    "b": lambda rank: tuple(reversed(range(rank))),  # the batch lies innermost: no unit stride among the last two
}


def contraction_case(
    m: int, n: int, k: int, *, layouts: str = "nnn", batch: tuple[int, ...] = (), dtype: np.dtype = F32,
    shared: str = "", epilogue: bool = False, store_raw: bool = True, step: int = 1,
) -> Case:  # fmt: skip
    """A contraction; ``shared`` names operands that all batches share, ``step`` strides every innermost axis."""
    rng = np.random.default_rng(m * 31 + n * 7 + k)

    def operand(name: str, shape: tuple[int, ...], layout: str) -> np.ndarray:
        full = () if name in shared else batch
        array = permuted(rng, (*full, *shape[:-1], shape[-1] * step), LAYOUTS[layout](len(full) + 2), dtype)
        return np.broadcast_to(array[..., ::step], (*batch, *shape))

    a, b = operand("a", (m, k), layouts[0]), operand("b", (k, n), layouts[1])
    c = np.array(operand("c", (m, n), layouts[2]), order="K", copy=True)
    if step > 1:
        c = np.zeros((*batch, m, n * step), dtype)[..., ::step]
    label = f"{m}x{n}x{k} {layouts} {dtype} batch{batch}{shared} step{step} epilogue{epilogue:d} raw{store_raw:d}"
    kernel = Contraction(dtype, batch, m, n, k, strides_of(a), strides_of(b), strides_of(c))
    if dtype.kind == "f":
        expected = a.astype(F64) @ b.astype(F64)
    else:
        expected = a @ b
    magnitude = np.abs(a.astype(F64)) @ np.abs(b.astype(F64))
    return with_epilogue(Case(label, kernel, (a, b), c, expected, magnitude), epilogue, store_raw)


def with_epilogue(case: Case, epilogue: bool, store_raw: bool) -> Case:
    """The case with an epilogue ``out = 2·raw + bias`` where asked for, the bias along the first result index."""
    if not epilogue:
        return case
    dtype, shape = case.kernel.dtype, case.expected.shape
    case.bias = np.arange(shape[0]).astype(dtype)
    nest = Nest(shape, (), (dtype, dtype, dtype), ())
    return replace(case, kernel=replace(case.kernel, epilogue=nest, store_raw=store_raw))


def conv_reference(x: np.ndarray, w: np.ndarray, kernel: Convolution) -> np.ndarray:
    """The definition: a sum over taps of strided, padded views."""
    height, width = kernel.out_height, kernel.out_width
    need = [(s - 1) * st + (t - 1) * d + 1 for s, st, t, d in
            zip((height, width), kernel.stride, kernel.kernel, kernel.dilation)]  # fmt: skip
    after = [max(0, need[i] - x.shape[2 + i] - kernel.padding[i]) for i in range(2)]
    padded = np.pad(x, ((0, 0), (0, 0), (kernel.padding[0], after[0]), (kernel.padding[1], after[1])))
    y = np.zeros((x.shape[0], kernel.groups, w.shape[0] // kernel.groups, height, width))
    weights = w.reshape(kernel.groups, -1, *w.shape[1:])
    for i, j in itertools.product(*map(range, kernel.kernel)):
        top, left = i * kernel.dilation[0], j * kernel.dilation[1]
        view = padded[:, :, top:, left:][:, :, :: kernel.stride[0], :: kernel.stride[1]][:, :, :height, :width]
        view = view.reshape(x.shape[0], kernel.groups, w.shape[1], height, width)
        y += np.einsum("ngcpq,goc->ngopq", view, weights[..., i, j])
    return y.reshape(x.shape[0], w.shape[0], height, width)


def conv_gradient(which: Direction, x: np.ndarray, w: np.ndarray, y: np.ndarray, kernel: Convolution) -> np.ndarray:
    """A transpose of the bilinear map, by data or by weights, one tap at a time."""
    groups, (top, left) = kernel.groups, kernel.padding
    reach = [(t - 1) * d + (s - 1) * st + 1 for t, d, s, st in
             zip(kernel.kernel, kernel.dilation, (kernel.out_height, kernel.out_width), kernel.stride)]  # fmt: skip
    wide = np.zeros((*x.shape[:2], *map(max, reach, (top + x.shape[2], left + x.shape[3]))))
    inside = np.s_[:, :, top : top + x.shape[2], left : left + x.shape[3]]
    if which == "weight_grad":
        wide[inside] = x
    dw = np.zeros(w.shape)
    weights = w.reshape(groups, -1, *w.shape[1:])
    back = y.reshape(y.shape[0], groups, w.shape[0] // groups, *y.shape[2:])
    for i, j in itertools.product(*map(range, kernel.kernel)):
        rows = i * kernel.dilation[0] + kernel.stride[0] * np.arange(kernel.out_height)
        columns = j * kernel.dilation[1] + kernel.stride[1] * np.arange(kernel.out_width)
        at = np.ix_(np.arange(x.shape[0]), np.arange(x.shape[1]), rows, columns)
        if which == "weight_grad":
            view = wide[at].reshape(x.shape[0], groups, w.shape[1], len(rows), len(columns))
            dw[:, :, i, j] = np.einsum("ngcpq,ngopq->goc", view, back).reshape(w.shape[:2])
        else:
            terms = np.einsum("ngopq,goc->ngcpq", back, weights[..., i, j])
            wide[at] += terms.reshape(*x.shape[:2], len(rows), len(columns))
    return dw if which == "weight_grad" else wide[inside]


IMAGE_ORDERS = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "CHWN": (1, 2, 3, 0)}


WEIGHT_ORDERS = {"OIHW": (0, 1, 2, 3), "HWIO": (2, 3, 1, 0), "OHWI": (0, 2, 3, 1)}


def convolution_case(
    direction: Direction, batch: int, channels: int, size: tuple[int, int], filters: int, taps: tuple[int, int], *,
    stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0), dilation: tuple[int, int] = (1, 1),
    groups: int = 1, images: str = "NCHW", weights: str = "OIHW", dtype: np.dtype = F32, epilogue: bool = False,
    store_raw: bool = True, outputs: str | None = None,
) -> Case:  # fmt: skip
    """A kernel over random numbers; ``outputs`` is the order of y, if it is not that of x."""
    rng = np.random.default_rng(batch + channels + filters)
    out = [(size[i] + 2 * padding[i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    x = permuted(rng, (batch, channels, *size), IMAGE_ORDERS[images], dtype)
    w = permuted(rng, (filters, channels // groups, *taps), WEIGHT_ORDERS[weights], dtype)
    y = permuted(rng, (batch, filters, *out), IMAGE_ORDERS[outputs or images], dtype)
    kernel = Convolution(
        direction, dtype, batch, channels, *size, filters, taps, out[0], out[1], stride, padding, dilation, groups,
        four_strides(x), four_strides(w), four_strides(y),
    )  # fmt: skip
    exact, sizes = [v.astype(F64) for v in (x, w, y)], [np.abs(v.astype(F64)) for v in (x, w, y)]
    operands, result = {"forward": ((x, w), y), "input_grad": ((y, w), x), "weight_grad": ((x, y), w)}[direction]
    if direction == "forward":
        expected, magnitude = (conv_reference(v[0], v[1], kernel) for v in (exact, sizes))
    else:
        expected, magnitude = (conv_gradient(direction, v[0], v[1], v[2], kernel) for v in (exact, sizes))
    label = (f"{direction} {batch} {channels} {size} {filters} {taps} s{stride} p{padding} d{dilation} g{groups} "
             f"{images} {outputs or images} {weights} {dtype} epilogue{epilogue:d} raw{store_raw:d}")  # fmt: skip
    result = np.zeros_like(result)
    return with_epilogue(Case(label, kernel, operands, result, expected, magnitude), epilogue, store_raw)
