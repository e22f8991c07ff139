"""Convolutions for ranges of sizes: one kernel at every batch of a range, or at many heights and widths, against NumPy
in float64, on every target.

Scratch memory and what lies behind operands are NaN patterns, what lies behind results must stay as it was: a kernel
that reads or writes more images than a call has is found out.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from support.matrix_cases import (
    IMAGE_ORDERS,
    Case,
    Direction,
    conv_gradient,
    conv_reference,
    convolution_case,
)
from support.targets import EVERY, HERE

import staticgrad as sg
from staticgrad.base.extents import OpenSize, OpenSizeError, extent_of, range_of
from staticgrad.compiler.emit.convolution.kernel import PLANNER, emit_convolution
from staticgrad.compiler.emit.families import emit_kernel, plan_kernel
from staticgrad.compiler.emit.llvm import Index, IRModule, Value, memory_type
from staticgrad.compiler.emit.microkernel import span
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.kernels.nest import Nest
from staticgrad.compiler.kernels.planned import Planned
from staticgrad.compiler.machine.target import current_target, named
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.plans.versions import Versions
from staticgrad.runtime.parts.threads import pool_address

F64 = np.dtype("float64")
GUARD = 64  # elements behind each array


@dataclass(frozen=True)
class Layer:
    """A convolution without its batch, as ``convolution_case`` takes it."""

    channels: int
    size: tuple[int, int]
    filters: int
    taps: tuple[int, int]
    how: tuple[tuple[str, Any], ...] = ()

    def case(self, direction: Direction, batch: int) -> Case:
        return convolution_case(
            direction, batch, self.channels, self.size, self.filters, self.taps, **dict(self.how)
        )  # fmt: skip

    @property
    def orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The orders of the axes of x and of y in memory."""
        how = dict(self.how)
        images = how.get("images", "NCHW")
        return IMAGE_ORDERS[images], IMAGE_ORDERS[how.get("outputs", images)]


def layer(channels: int, size: tuple[int, int], filters: int, taps: tuple[int, int], **how: Any) -> Layer:
    return Layer(channels, size, filters, taps, tuple(how.items()))


PADDED = {"padding": (1, 1)}
BLOCK = {"epilogue": True, "store_raw": False}
LAYERS = (
    layer(1, (8, 8), 6, (3, 3), **PADDED),  # rows along pixels
    layer(3, (9, 16), 12, (3, 3), stride=(2, 2), padding=(1, 1), epilogue=True),
    layer(8, (6, 7), 16, (3, 3), **PADDED, **BLOCK),  # few images by planes, many by dots
    layer(12, (7, 6), 20, (3, 3), **PADDED, images="NHWC", weights="HWIO", epilogue=True),
    layer(18, (8, 9), 20, (3, 3), stride=(2, 2), padding=(1, 1), **BLOCK),
    layer(6, (9, 8), 8, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2), groups=2),
    layer(5, (6, 7), 9, (3, 3), **PADDED, images="CHWN"),
    layer(20, (4, 8), 24, (1, 1), epilogue=True),  # one tap
    layer(12, (8, 8), 20, (1, 1), stride=(2, 2), **BLOCK),
    layer(19, (5, 6), 130, (1, 1), images="NHWC"),
    layer(7, (7, 7), 7, (3, 3), **PADDED, groups=7, epilogue=True),  # a channel a group
    layer(3, (9, 40), 3, (3, 3), stride=(2, 2), padding=(1, 1), groups=3),
    layer(20, (6, 7), 20, (3, 3), **PADDED, groups=20, images="NHWC", **BLOCK),
    layer(3, (5, 6), 4, (3, 3), **PADDED, dtype=np.dtype("int32")),
)
DIRECTIONS: tuple[Direction, ...] = ("forward", "input_grad", "weight_grad")


def strides_of(shape: Sequence[int], order: Sequence[int]) -> tuple[int, int, int, int]:
    """The strides of an array whose axes lie in this order in memory; a size may be an extent."""
    strides, step = [0] * 4, 1
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    return strides[0], strides[1], strides[2], strides[3]


def opened(case: Case, of: Layer, low: int, high: int) -> Case:
    """The case with a kernel for every batch from ``low`` to ``high``."""
    kernel, batch = cast(Convolution, case.kernel), extent_of(OpenSize(0, low, high, "n"))
    x, y = (
        strides_of((batch, *sizes), order)
        for sizes, order in zip(
            (
                (kernel.channels, kernel.height, kernel.width),
                (kernel.filters, kernel.out_height, kernel.out_width),
            ),
            of.orders,
        )
    )
    return replace(case, kernel=replace(kernel, batch=batch, x_strides=x, y_strides=y))


class Images:
    """A layer's operands at the greatest batch, and the terms of what must come out."""

    def __init__(self, of: Layer, direction: Direction, batch: int) -> None:
        self.case, self.direction = of.case(direction, batch), direction
        orders = {"x": of.orders[0], "y": of.orders[1]}
        names = {"forward": "xwy", "input_grad": "ywx", "weight_grad": "xyw"}[direction]
        self.orders = [orders.get(name) for name in names]  # None: it has no batch
        kernel = cast(Convolution, self.case.kernel)
        self.expected, self.magnitude = self.case.expected, self.case.magnitude
        if direction == "weight_grad":
            x, y = (operand.astype(F64) for operand in self.case.operands)
            w = np.zeros(self.case.expected.shape)
            self.expected, self.magnitude = (
                np.cumsum(
                    [conv_gradient(direction, a[i : i + 1], w, b[i : i + 1], kernel) for i in range(batch)], axis=0
                )
                for a, b in ((x, y), (np.abs(x), np.abs(y)))
            )

    def wanted(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """What must come out, and what rounding errors scale with."""
        if self.direction == "weight_grad":
            return self.expected[batch - 1], self.magnitude[batch - 1]
        return self.expected[:batch], self.magnitude[:batch]


def placed(array: np.ndarray, order: Sequence[int] | None, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Some images of an array in memory of their own, and that memory: NaN behind them."""
    if order is None:
        return array, array
    some = array[:batch].transpose(order)
    memory = np.frombuffer(bytearray(b"\xff" * ((some.size + GUARD) * array.itemsize)), array.dtype)
    memory[: some.size] = some.ravel()
    return memory[: some.size].reshape(some.shape).transpose(np.argsort(order)), memory


def check(native: NativeModule, images: Images, planned: Planned, number: int, batch: int, *, sizes: bool,
          threads: int | None = None, image: tuple[int, ...] = ()) -> np.ndarray:  # fmt: skip
    """Call a kernel for some images, or for some of this height and width; what comes out, which must be what is
    expected."""
    case, kernel = images.case, cast(Convolution, images.case.kernel)
    expected, tolerance = images.wanted(batch)
    orders = [None if image else order for order in images.orders]
    operands = [placed(x, order, batch) for x, order in zip(case.operands, orders)]
    result, behind = placed(case.result, orders[2], batch)
    result.fill(99)
    size = planned.scratch_bytes(threads or 1)
    memory = np.full(size + 64 + GUARD, 0xFF, np.uint8)
    scratch = -(-memory.ctypes.data // 64) * 64
    out = np.full(expected.shape, 99, kernel.dtype)
    pointers = [operand.ctypes.data for operand, _ in operands]
    if kernel.store_raw:
        pointers.append(result.ctypes.data)
    if case.has_epilogue:
        pointers += [case.bias.ctypes.data, out.ctypes.data]
    pointers.append(scratch)
    if threads is not None:
        pointers.append(pool_address(threads))
    open_sizes = np.array(image or [batch], np.int64)
    if sizes:
        pointers.append(open_sizes.ctypes.data)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(native.address(f"run{number}"))(*pointers)
    what = f"{native.target.name}: {case.label} at batch {batch}"
    assert (memory[scratch - memory.ctypes.data + size :] == 0xFF).all(), f"{what}: wrote behind its scratch memory"
    if orders[2] is not None:
        assert (behind.view(np.uint8)[-GUARD * kernel.dtype.itemsize :] == 0xFF).all(), f"{what}: wrote too much"
    got = out if case.has_epilogue else result
    tolerance = tolerance * 20 * (np.finfo(kernel.dtype).eps if kernel.dtype.kind == "f" else 0)
    if case.has_epilogue:
        shift = case.bias.astype(F64).reshape(-1, *[1] * (expected.ndim - 1))[: len(expected)]
        expected, tolerance = 2 * expected + shift, 3 * tolerance + 1e-5
    assert (np.abs(got.astype(F64) - expected) <= tolerance).all(), what
    return got.copy()


def emitted(module: IRModule, case: Case, number: int) -> Planned:
    """Add the function of a kernel that runs alone. An epilogue that is written by hand knows one plan."""
    kernel, name = cast(Convolution, case.kernel), f"kernel{number}"
    if case.has_epilogue:
        planned: Any = replace(PLANNER.planned_whole(kernel, module.target), is_shared=False)
        epilogue = write_epilogue(module, kernel, planned.raw_strides, f"epilogue{number}")
        emit_convolution(module, planned, name, epilogue)
    else:
        planned = replace(plan_kernel(kernel, module.target), is_shared=False)
        name = emit_kernel(module, planned, name)
    f = module.function(f"run{number}", ["ptr"] * (3 + kernel.store_raw + 2 * case.has_epilogue), internal=False)
    f.call(name, "void", *f.params)
    f.finish()
    return cast(Planned, planned)


def check_range(layers: Sequence[Layer], name: str, low: int, high: int, batches: Sequence[int]) -> None:
    """One module of all directions of some layers, each called at every batch."""
    target = named(name)
    module = IRModule(target, has_sizes=True)
    images = [Images(of, direction, high) for of in layers for direction in DIRECTIONS]
    cases = [opened(some.case, of, low, high) for some, of in zip(images, [of for of in layers for _ in DIRECTIONS])]
    for number, case in enumerate(cases):
        emitted(module, case, number)
    native = NativeModule(module.texts(), target)
    for number, (some, case) in enumerate(zip(images, cases)):
        for batch in batches:
            check(native, some, plan_kernel(case.kernel, target), number, batch,
                  sizes=module.takes_sizes(f"run{number}"))  # fmt: skip


def opened_images(case: Case, of: Layer, low: int, high: int) -> Case:
    """The case with a kernel for every height and width from ``low`` to ``high``."""
    kernel = cast(Convolution, case.kernel)
    size = tuple(extent_of(OpenSize(number, low, high, "hw"[number])) for number in range(2))
    out = [
        (size[i] + 2 * kernel.padding[i] - kernel.dilation[i] * (kernel.kernel[i] - 1) - 1) // kernel.stride[i] + 1
        for i in range(2)
    ]
    x, y = (
        strides_of((kernel.batch, *sizes), order)
        for sizes, order in zip(((kernel.channels, *size), (kernel.filters, *out)), of.orders)
    )
    opened = replace(
        kernel, height=size[0], width=size[1], out_height=out[0], out_width=out[1], x_strides=x, y_strides=y
    )
    if case.has_epilogue:
        opened = replace(opened, epilogue=Nest(opened.result_sizes, (), (kernel.dtype,) * 3, ()))
    return replace(case, kernel=opened)


def write_epilogue(module: IRModule, kernel: Convolution, raw: Sequence[int], name: str) -> str:
    """``emit_epilogue`` for a result of open sizes."""
    element, shape = memory_type(kernel.dtype), kernel.result_sizes
    f = module.function(name, ["ptr"] * 3 + ["i64"] * 8)
    bounds, out = f.params[3:], strides_of(shape, range(4))

    def at(base: Value, numbers: Sequence[Index], strides: Sequence[int]) -> Value:
        for number, stride in zip(numbers, strides):
            base = f.offset(base, f.mul(number, stride), element)
        return base

    with contextlib.ExitStack() as loops:
        numbers = [loops.enter_context(span(f, bounds[2 * d], bounds[2 * d + 1])) for d in range(4)]
        value, shift = f.load(element, at(f.params[0], numbers, raw)), f.load(element, at(f.params[1], numbers, [1]))
        f.store(f.binary("fadd", f.binary("fadd", value, value), shift), at(f.params[2], numbers, out))
    return f.finish()


def check_sizes(layers: Sequence[Layer], name: str, low: int, high: int, sizes: Sequence[tuple[int, int]]) -> None:
    """One module of all directions of some layers, each called for images of these sizes."""
    target, kernels = named(name), []
    module = IRModule(target, has_sizes=True)
    for number, (of, direction) in enumerate(itertools.product(layers, DIRECTIONS)):
        case = opened_images(of.case(direction, 2), of, low, high)
        kernels.append((of, direction, emitted(module, case, number)))
    native = NativeModule(module.texts(), target)
    for number, (of, direction, planned) in enumerate(kernels):
        for size in sizes:
            images = Images(replace(of, size=size), direction, 2)
            check(native, images, planned, number, 2, sizes=module.takes_sizes(f"run{number}"), image=size)


OPEN_IMAGES = (
    layer(3, (16, 16), 12, (3, 3), **PADDED),
    layer(18, (16, 16), 20, (3, 3), **PADDED, **BLOCK),
    layer(12, (16, 16), 20, (3, 3), **PADDED, images="NHWC", weights="HWIO", epilogue=True),
    layer(20, (16, 16), 24, (1, 1), epilogue=True),
    layer(19, (16, 16), 130, (1, 1), images="NHWC"),
    layer(6, (16, 16), 8, (5, 3), padding=(2, 1), groups=2),
    layer(5, (16, 16), 9, (3, 3), **PADDED, images="CHWN"),
)
STRIDED_IMAGES = (
    layer(18, (32, 32), 20, (3, 3), stride=(2, 2), padding=(1, 1), **BLOCK),
    layer(6, (32, 32), 8, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2), groups=2),
    layer(12, (32, 32), 20, (1, 1), stride=(2, 2), epilogue=True),
    layer(4, (32, 32), 5, (3, 4), stride=(4, 2), padding=(1, 2), dilation=(2, 4), images="NHWC"),
)


@pytest.mark.parametrize("name", [*HERE, EVERY[-1]])
def test_images_of_any_height_and_width(name: str) -> None:
    """Those of the first range, one pixel too; with strides those of the second."""
    check_sizes(OPEN_IMAGES, name, *range_of(1), ((1, 1), (2, 3), (7, 5), (1, 9), (12, 1), (16, 15), (16, 16)))
    check_sizes(STRIDED_IMAGES, name, *range_of(17), ((17, 17), (18, 31), (25, 20), (32, 32)))


def test_depthwise_convolutions_are_of_one_size_of_images() -> None:
    """Their tiles are written for the pixels of a row."""
    for images in ("NCHW", "NHWC"):
        of = layer(20, (16, 16), 20, (3, 3), **PADDED, groups=20, images=images)
        for direction in DIRECTIONS:
            kernel = cast(Convolution, opened_images(of.case(direction, 2), of, 1, 16).kernel)
            with pytest.raises(OpenSizeError, match="depthwise"):
                PLANNER.plan(kernel, current_target())


@pytest.mark.parametrize("name", EVERY)
def test_every_batch_of_the_first_range(name: str) -> None:
    check_range(LAYERS, name, *range_of(1), range(1, 17))


@pytest.mark.parametrize("name", [current_target().name, "avx512-small" if "avx512-small" in EVERY else EVERY[-1]])
def test_batches_of_the_second_range(name: str) -> None:
    check_range(LAYERS, name, *range_of(17), (17, 20, 31, 32))


def test_a_batch_of_one_of_a_wide_range() -> None:
    """Scratch memory and chunks are those of many images."""
    check_range((LAYERS[2], LAYERS[7], LAYERS[10]), current_target().name, 1, 100, (1, 2, 99, 100))


@pytest.mark.parametrize("name", [current_target().name, *(name for name in EVERY if name.endswith("-small"))])
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    """Chunks have a size, and as many of them are run as a call has."""
    target = named(name)
    layers = (layer(16, (14, 14), 16, (3, 3), **PADDED), layer(16, (14, 15), 24, (1, 1)),
              layer(6, (20, 21), 6, (3, 3), **PADDED, groups=6))  # fmt: skip
    module, shared = IRModule(target, has_sizes=True), []
    high = 48
    images = [Images(of, direction, high) for of in layers for direction in DIRECTIONS]
    for number, (some, of) in enumerate(zip(images, [of for of in layers for _ in DIRECTIONS])):
        kernel = cast(Convolution, opened(some.case, of, 1, high).kernel)
        planned = plan_kernel(kernel, target)
        name = emit_kernel(module, planned, f"kernel{number}")
        f = module.function(f"run{number}", ["ptr"] * (4 + planned.is_shared), internal=False)
        f.call(name, "void", *f.params)
        f.finish()
        shared.append((number, some, planned))
    native = NativeModule(module.texts(), target)
    assert any(planned.is_shared for _, _, planned in shared)
    for number, some, planned in shared:
        run = functools.partial(check, native, some, planned, number, sizes=module.takes_sizes(f"run{number}"))
        for batch in (1, 2, 7, high) if planned.is_shared else ():
            found = [run(batch, threads=threads) for threads in (1, 2, 3)]
            assert all(np.array_equal(found[0], other) for other in found[1:]), some.case.label


def test_few_images_have_a_plan_of_their_own_where_it_is_another() -> None:
    """By the plan of many images the gradient of weights of one or two took twice as long."""
    target = named("avx512")
    of = layer(8, (8, 8), 16, (5, 5), padding=(2, 2))
    plans = [
        plan_kernel(opened(of.case("weight_grad", high), of, low, high).kernel, target).plan
        for low, high in ((1, 16), (17, 32))
    ]
    assert isinstance(plans[0], Versions)
    assert not isinstance(plans[1], Versions)
    known = PLANNER.plan(cast(Convolution, of.case("weight_grad", plans[0].ends[0]).kernel), target)
    assert type(known) is type(plans[0].parts[0].plan)


def test_programs_with_an_open_batch_are_compiled_once_a_range() -> None:
    """Three directions with an epilogue, beside programs for each size."""
    x = sg.placeholder((None, 3, 8, 8), sg.float64, name="x")
    w = sg.placeholder((5, 3, 3, 3), sg.float64, name="w")
    y = sg.nn.relu(sg.nn.conv2d(x, w, padding=1))
    fetches = [y, *sg.gradients((y * y).sum(), [x, w])]
    session, rng = sg.Session(num_threads=1), np.random.default_rng(3)
    run = session.compile(fetches, [x, w])
    kernel = rng.uniform(-1, 1, w.shape)
    for batch in (3, 1, 16, 8, 17, 32):
        image = rng.uniform(-1, 1, (batch, 3, 8, 8))
        forward = np.maximum(conv_reference(image, kernel, _geometry(batch)), 0)
        got = run(image, kernel)
        np.testing.assert_allclose(got[0], forward, rtol=1e-12, atol=1e-12)
        for found, direction in zip(got[1:], ("input_grad", "weight_grad"), strict=True):
            wanted = conv_gradient(direction, image, kernel, 2 * forward, _geometry(batch))
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-11)
    assert session.compile_count == 2


def _geometry(batch: int) -> Convolution:
    return cast(Convolution, convolution_case("forward", batch, 3, (8, 8), 5, (3, 3), padding=(1, 1)).kernel)
