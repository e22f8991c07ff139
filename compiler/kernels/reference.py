"""The definition of every kernel, in NumPy, that compiled kernels are held against.

Input: a kernel as a value, and the memory that its arguments address as flat arrays. Output: the same memory, with what
the kernel writes. A product is added up in float64, everything else in the dtype that the kernel says. Operands that a
matrix kernel is given packed are handed over here as they were before, since how they are packed is the emitter's.

With ``Noise`` every float that is loaded or computed is off by a few units in its last place: how much results move by
that says how exact they can be expected to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from staticgrad.compiler.kernels.kernel import Kernel, LoneKernel
from staticgrad.compiler.kernels.matrix import Contraction, Convolution, Packing
from staticgrad.compiler.kernels.nest import Access, Compute, Constant, Iota, Load, Nest, Reduce, Running, Store
from staticgrad.compiler.kernels.routines import Batch
from staticgrad.graph.optable import OPS, Array
from staticgrad.ops.grouped import GROUPINGS, in_order
from staticgrad.ops.randoms import uniform_at

STEPS = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
    "all": np.logical_and,
}  # fmt: skip
UNITS = 4  # in the last place, about, by which noisy floats are off
WIDE = np.dtype(np.float64)


class Noise:
    """Relative errors of a few units in the last place, drawn from ``seed``. Zeros, infinities and NaN stay. With
    ``coarse`` operands of products of groups are off by a step: inside of loops they may have been rounded either
    way."""

    def __init__(self, seed: int, coarse: bool = False) -> None:
        self.seed = seed
        self.coarse = coarse
        self._rng = np.random.default_rng(seed)

    @property
    def in_loops(self) -> Noise:
        """Such noise for the steps of a loop."""
        return self if self.coarse else Noise(self.seed, coarse=True)

    def on(self, x: Array) -> Array:
        """``x`` with errors, where it is an array of floats."""
        if x.dtype.kind != "f":
            return x
        with np.errstate(all="ignore"):
            off = 1 + UNITS * float(np.finfo(x.dtype).eps) * self._rng.standard_normal(x.shape)
            return np.asarray((x * off).astype(x.dtype))

    def after(self, result: Array, operands: Sequence[Array]) -> Array:
        """A result with errors, but for elements that an op has taken from its operands without rounding, up to their
        sign: comparisons find those again."""
        if result.dtype.kind != "f":
            return result
        taken = [np.abs(x).ravel() for x in operands if x.dtype.kind == "f"]
        exact = np.isin(np.abs(result), np.concatenate(taken)) if taken else np.zeros(result.shape, bool)
        return np.where(exact, result, self.on(result))

    def of_short(self, x: Array, kind: str) -> Array:
        """Operands of a product of groups, of which about half are the next number: what is rounded to few digits after
        it was computed in another order may come out as either."""
        if kind == "int8":
            chosen = self._rng.random(x.shape) < 0.5
            step = np.where(x > x.dtype.type(0), x - 1, x + 1)
            return np.where(chosen & (x.dtype.itemsize == 1), step, x).astype(x.dtype)
        bits = np.ascontiguousarray(x).view(np.uint16)
        changed = (self._rng.random(bits.shape) < 0.5) & ((bits & 0x7F80) != 0x7F80)
        found: Array = (bits ^ changed.astype(np.uint16)).view(x.dtype)
        return found

    def of_sum(self, total: Array, largest: Array) -> Array:
        """A sum with errors as large as those of its largest term. The errors of terms are whole steps, which may
        cancel by chance: then they would allow none for a sum that cancels."""
        with np.errstate(all="ignore"):
            unit = UNITS * float(np.finfo(total.dtype).eps) * largest
            return np.asarray((total + unit * self._rng.standard_normal(total.shape)).astype(total.dtype))


def run_kernel(kernel: Kernel, arrays: Sequence[Array], noise: Noise | None = None) -> None:
    """Run a kernel on flat arrays, one for each argument, in place. Without a reference of its own (packing) nothing is
    written."""
    REFERENCES[type(kernel)](kernel, arrays, noise)


# -- nests ----------------------------------------------------------------------------------------------------------


def run_nest(nest: Nest, arrays: Sequence[Array], noise: Noise | None = None, raw: Array | None = None) -> None:
    """Run a nest: each instruction at once for all iterations. ``raw`` has what argument 0 of an epilogue holds, an
    element for each outer index."""
    values: list[Any] = []
    for instr in nest.body:
        match instr:
            case Constant(number, dtype):
                values.append(np.full((1,) * len(nest.dims), number, dtype))
            case Iota(dim):
                values.append(_axis(nest.dims, dim))
            case Load(access) if raw is not None and access.arg == 0:
                values.append(raw.reshape(nest.dims))
            case Load():
                loaded = _load(nest, instr, arrays[instr.access.arg], values)
                values.append(loaded if noise is None else noise.on(loaded))
            case Compute(op, attrs, args, dtype):
                operands = [values[a] for a in args]
                with np.errstate(all="ignore"):
                    if OPS[op].draws:  # both key words and the flat index, as lowering computes them
                        key0, key1, index = operands
                        value = uniform_at(index, dtype, key0, key1)
                    else:
                        value = np.asarray(OPS[op].reference(attrs, *operands), dtype)
                values.append(value if noise is None else noise.after(value, operands))
            case Reduce(kind, arg, dtype):
                value = _reduce(nest, instr, values[arg]) if nest.inner else values[arg].astype(dtype)
                if noise is not None:
                    value = noise.after(value, [values[arg]])
                    if kind == "sum" and nest.inner and dtype.kind == "f":
                        value = noise.of_sum(value, _reduce(nest, Reduce("max", arg, dtype), np.abs(values[arg])))
                values.append(value)
            case Running():
                value = _run(nest, instr, values[instr.arg])
                if noise is not None and instr.kind == "sum" and instr.dtype.kind == "f":
                    value = noise.of_sum(value, _run(nest, replace(instr, kind="max"), np.abs(values[instr.arg])))
                values.append(value)
            case Store():
                _store(nest, instr, arrays[instr.access.arg], values)
                values.append(None)


def _axis(dims: tuple[int, ...], dim: int) -> Array:
    shape = [1] * len(dims)
    shape[dim] = dims[dim]
    return np.arange(dims[dim]).reshape(shape)


def _address(nest: Nest, access: Access, values: list[Any]) -> Array:
    at = np.full((1,) * len(nest.dims), access.offset)
    for dim, stride in enumerate(access.strides):
        if stride:
            at = at + stride * _axis(nest.dims, dim)
    for value, stride in access.terms:
        at = at + stride * values[value]
    return at


def _load(nest: Nest, load: Load, array: Array, values: list[Any]) -> Array:
    at = _address(nest, load.access, values)
    if load.guard is None:
        return np.asarray(array[at])
    at, on = np.broadcast_arrays(at, values[load.guard])
    value = np.zeros(at.shape, load.dtype)
    value[on] = array[at[on]]
    return value


def _store(nest: Nest, store: Store, array: Array, values: list[Any]) -> None:
    x = values[store.value]
    at = _address(nest, store.access, values)
    on = np.ones_like(at, bool) if store.guard is None else values[store.guard]
    rows = len(nest.outer)
    varies = any(n != 1 for n in np.broadcast_shapes(at.shape, x.shape, on.shape)[rows:])
    shape = (*nest.outer, *(nest.inner if varies else (1,) * len(nest.inner)))
    at, x, on = (np.broadcast_to(a, shape) for a in (at, x, on))
    with np.errstate(all="ignore"):
        if store.mode == "set":
            array[at[on]] = x[on]
        else:
            np.add.at(array, at[on], x[on])


def _reduce(nest: Nest, reduce: Reduce, x: Array) -> Array:
    axes = tuple(range(len(nest.outer), len(nest.dims)))
    outer = np.broadcast_shapes(x.shape[: len(nest.outer)])
    x = np.broadcast_to(x, (*outer, *nest.inner))
    kind, dtype = reduce.kind, reduce.dtype
    with np.errstate(all="ignore"):
        if kind in ("any", "all"):
            return np.asarray(getattr(np, kind)(x, axis=axes, keepdims=True).astype(dtype))
        if kind in ("sum", "prod"):
            if dtype.kind == "b":
                return np.asarray((np.any if kind == "sum" else np.all)(x, axis=axes, keepdims=True))
            wide = WIDE if dtype.kind == "f" else dtype
            return np.asarray(getattr(np, kind)(x.astype(wide), axis=axes, keepdims=True).astype(dtype))
        return np.asarray(getattr(np, kind)(x, axis=axes, keepdims=True, initial=_least(kind, dtype)))


def _run(nest: Nest, running: Running, x: Array) -> Array:
    x = np.broadcast_to(x, (nest.dims[0], *x.shape[1:]))
    wide = WIDE if running.dtype.kind == "f" else running.dtype
    with np.errstate(all="ignore"):
        return np.asarray(STEPS[running.kind].accumulate(x.astype(wide), axis=0).astype(running.dtype))


def _least(kind: str, dtype: np.dtype) -> Any:
    """The identity of a maximum or minimum: its value over no elements."""
    if dtype.kind == "b":
        return kind == "min"
    if dtype.kind == "f":
        return -np.inf if kind == "max" else np.inf
    info = np.iinfo(dtype)
    return info.min if kind == "max" else info.max


# -- products -------------------------------------------------------------------------------------------------------


def _strided(array: Array, strides: Sequence[int], shape: Sequence[int]) -> Array:
    """A view of flat memory with strides in elements."""
    if 0 in shape:
        return np.zeros(shape, array.dtype)
    return np.lib.stride_tricks.as_strided(array, shape, [stride * array.itemsize for stride in strides])


def _wide(x: Array, noise: Noise | None) -> Array:
    noisy = x if noise is None else noise.on(x)
    return noisy.astype(WIDE) if x.dtype.kind == "f" else noisy


def _finish(
    kernel: Contraction | Convolution, product: Array, strides: Sequence[int], arrays: Sequence[Array],
    noise: Noise | None,
) -> None:  # fmt: skip
    """Store a product, and run the epilogue on it. ``arrays`` are the kernel's arguments after its operands."""
    with np.errstate(all="ignore"):
        product = product.astype(kernel.dtype)
    if kernel.store_raw:
        _strided(arrays[0], strides, product.shape)[...] = product
        arrays = arrays[1:]
    if kernel.epilogue is not None:
        run_nest(kernel.epilogue, [product, *arrays], noise, raw=product)


def run_contraction(kernel: Contraction, arrays: Sequence[Array], noise: Noise | None = None) -> None:
    """The sum over k of A·B for each point of the batch."""
    left = _strided(arrays[0], kernel.a_strides, (*kernel.batch, kernel.m, kernel.k))
    right = _strided(arrays[1], kernel.b_strides, (*kernel.batch, kernel.k, kernel.n))
    if kernel.grouping:
        if noise is not None and noise.coarse:
            left, right = (noise.of_short(x, kernel.grouping) for x in (left, right))
        left, right = (x.astype(WIDE) for x in in_order(left, right, GROUPINGS[kernel.grouping]))
    a, b = _wide(left, noise), _wide(right, noise)
    with np.errstate(all="ignore"):
        product = np.matmul(a, b)  # of integers in groups exact, too: no sum has more than 53 bits
        if noise is not None and kernel.dtype.kind == "f" and kernel.k:
            largest = np.abs(a).max(-1, keepdims=True) * np.abs(b).max(-2, keepdims=True)
            product = noise.of_sum(product.astype(kernel.dtype), largest)
    _finish(kernel, product, kernel.c_strides, arrays[2:], noise)


def run_convolution(kernel: Convolution, arrays: Sequence[Array], noise: Noise | None = None) -> None:
    """The convolution, or one of its transposes, tap by tap over a framed image, group by group."""
    g, channels, filters = kernel.groups, kernel.channels // kernel.groups, kernel.filters // kernel.groups
    shapes = {
        "x": ((kernel.batch, kernel.channels, kernel.height, kernel.width), kernel.x_strides),
        "w": ((kernel.filters, channels, *kernel.kernel), kernel.w_strides),
        "y": ((kernel.batch, kernel.filters, kernel.out_height, kernel.out_width), kernel.y_strides),
    }
    roles = {"forward": "xw", "input_grad": "yw", "weight_grad": "xy"}[kernel.direction]
    given = {
        role: _wide(_strided(array, strides, shape), noise)
        for role, array, (shape, strides) in zip(roles, arrays, map(shapes.__getitem__, roles), strict=False)
    }
    frame = _FramedImages(kernel)
    with np.errstate(all="ignore"):
        if kernel.direction == "forward":
            x = frame.framed(given["x"]).reshape(kernel.batch, g, channels, *frame.size)
            w = given["w"].reshape(g, filters, channels, *kernel.kernel)
            product = np.zeros((kernel.batch, g, filters, kernel.out_height, kernel.out_width), x.dtype)
            for i, j in frame.taps:
                product += np.einsum("ngcpq,goc->ngopq", frame.at(x, i, j), w[..., i, j])
        elif kernel.direction == "input_grad":
            y = given["y"].reshape(kernel.batch, g, filters, kernel.out_height, kernel.out_width)
            w = given["w"].reshape(g, filters, channels, *kernel.kernel)
            x = np.zeros((kernel.batch, g, channels, *frame.size), y.dtype)
            for i, j in frame.taps:
                frame.at(x, i, j)[...] += np.einsum("ngopq,goc->ngcpq", y, w[..., i, j])
            product = frame.inside(x)
        else:
            x = frame.framed(given["x"]).reshape(kernel.batch, g, channels, *frame.size)
            y = given["y"].reshape(kernel.batch, g, filters, kernel.out_height, kernel.out_width)
            taps = [np.einsum("ngcpq,ngopq->goc", frame.at(x, i, j), y) for i, j in frame.taps]
            product = np.stack(taps, -1) if taps else np.zeros((g, filters, channels, 0), x.dtype)
    _finish(kernel, product.reshape(kernel.result_sizes), kernel.result_strides, arrays[2:], noise)


class _FramedImages:
    """The images of a convolution with zeros around them, as far as taps reach."""

    def __init__(self, kernel: Convolution) -> None:
        self.kernel = kernel
        outs = (kernel.out_height, kernel.out_width)
        reach = [
            (out - 1) * stride + (taps - 1) * dilation + 1
            for out, stride, taps, dilation in zip(outs, kernel.stride, kernel.kernel, kernel.dilation, strict=True)
        ]
        sizes = (kernel.height, kernel.width)
        ends = [max(0, r - p - s) for r, p, s in zip(reach, kernel.padding, sizes, strict=True)]
        self.ends = ends
        self.size = tuple(s + p + e for s, p, e in zip(sizes, kernel.padding, ends, strict=True))
        self.taps = [(i, j) for i in range(kernel.kernel[0]) for j in range(kernel.kernel[1])]

    def framed(self, x: Array) -> Array:
        (top, left), (bottom, right) = self.kernel.padding, self.ends
        return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))

    def inside(self, x: Array) -> Array:
        (top, left), kernel = self.kernel.padding, self.kernel
        return x[..., top : top + kernel.height, left : left + kernel.width]

    def at(self, x: Array, i: int, j: int) -> Array:
        """The pixels that tap (i, j) reads for each pixel of the result, as a view."""
        kernel = self.kernel
        (di, dj), (si, sj) = kernel.dilation, kernel.stride
        rows = slice(i * di, i * di + (kernel.out_height - 1) * si + 1, si)
        columns = slice(j * dj, j * dj + (kernel.out_width - 1) * sj + 1, sj)
        return x[..., rows, columns]


# -- routines -------------------------------------------------------------------------------------------------------


def run_lone(kernel: LoneKernel, arrays: Sequence[Array], noise: Noise | None = None) -> None:
    """The op that the kernel computes, by its own reference."""
    if kernel.call is None or not any(array.size for array in arrays):
        return
    operands = arrays[: len(arrays) - len(kernel.results)]
    with np.errstate(all="ignore"):
        found = kernel.call([x if noise is None else noise.on(x) for x in operands])
    for array, number in zip(arrays[len(operands) :], kernel.results, strict=True):
        array[...] = np.asarray(found[number]).ravel()


REFERENCES: dict[type, Callable[[Any, Sequence[Array], Noise | None], None]] = {
    Nest: run_nest,
    Contraction: run_contraction,
    Convolution: run_convolution,
    Batch: run_lone,
    Packing: lambda kernel, arrays, noise: None,
}
