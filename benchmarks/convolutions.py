"""Measure convolutions beside PyTorch, layer by layer of well-known networks, each direction by itself.

    python benchmarks/convolutions.py [--net NAMES] [--batch SIZES] [--direction NAMES] [--threads N] [--seed N]
                                      [--layers N] [--match TEXT] [--seconds S] [--inside] [--constant] [--no-peer]

What one call does is what a user of the public interface sees: one layer compiled by itself, with placeholders for
its two operands, called as ``exe(first, second)`` with NumPy arrays as users hold them, images (N, C, H, W) and weights
(out, in, height, width) row-major, and a NumPy array of the same kind as the result. With ``--inside`` it is what the
layer costs inside a compiled network, where images belong to the program and lie channels last: the convolution's
kernel as the compiler emits it, over such images and the same weights, and nothing else; packing weights and images is
part of it, converting a whole network's inputs is not. With ``--constant`` weights stay the same from call to call, as
in inference: they are packed beforehand.

PyTorch (oneDNN) gets tensors that are channels last already, and tensors in its usual order, where it converts nothing
either; the faster of the two counts, layer by layer. PyTorch makes a new result each time, in memory that malloc is
told to keep; so do we, but for ``--inside``, where it is made once.

An answer must agree with PyTorch's before it is timed. The contestants take turns and the least time of each counts;
the ratio is PyTorch's time over ours, above 1 we are faster. ``--layers`` draws that many of each network. Goes out:
a table in Markdown, with the geometric mean and the worst ratio of each direction.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from optimised import optimised

import staticgrad as sg
from staticgrad.compiler.emit.families import emit_kernel, packed_kernel, plan_kernel
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.kernels.matrix import Convolution, Packing
from staticgrad.compiler.machine.target import current_target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.runtime.parts.threads import pool_address

Array = NDArray[Any]
Direction = Literal["forward", "input_grad", "weight_grad"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "input_grad", "weight_grad")
F32 = np.dtype("float32")
CHANNELS_LAST = (0, 2, 3, 1)
TOLERANCE = 2e-4  # of the largest element: sums of up to a million float32 products, in another order
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}


@dataclass(frozen=True, slots=True)
class Layer:
    """A square convolution with padding that keeps the size (but for the stride)."""

    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def out(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    def flops(self, batch: int) -> int:
        return 2 * batch * self.filters * self.out**2 * self.channels // self.groups * self.kernel**2

    def __str__(self) -> str:
        kind = f"{self.kernel}×{self.kernel}" + (f"/{self.stride}" if self.stride > 1 else "")
        groups = f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.channels}→{self.filters} {self.size}² {kind}{groups}"


# -- networks -------------------------------------------------------------------------------------------------------


def resnet18() -> Iterator[Layer]:
    """He et al. (2015), table 1, 18 layers."""
    yield Layer(3, 64, 224, 7, 2)
    channels, size = 64, 56
    for filters in (64, 128, 256, 512):
        if filters != channels:
            yield Layer(channels, filters, size, 3, 2)
            yield Layer(channels, filters, size, 1, 2)
            channels, size = filters, size // 2
        yield Layer(channels, channels, size, 3)


def resnet50() -> Iterator[Layer]:
    """He et al. (2015), table 1, 50 layers; the stride in the 3×3 convolution, as PyTorch has it."""
    yield Layer(3, 64, 224, 7, 2)
    channels, size = 64, 56
    for width in (64, 128, 256, 512):
        stride = 1 if width == 64 else 2
        yield Layer(channels, width, size, 1)
        yield Layer(width, width, size, 3, stride)
        yield Layer(channels, 4 * width, size, 1, stride)
        channels, size = 4 * width, size // stride
        yield Layer(width, channels, size, 1)
        yield Layer(channels, width, size, 1)
        yield Layer(width, width, size, 3)


# Sandler et al. (2018), table 2: expansion, channels, repeats, stride.
MOBILE_BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def mobilenet_v2() -> Iterator[Layer]:
    """Sandler et al. (2018): expand, depthwise, project."""
    yield Layer(3, 32, 224, 3, 2)
    channels, size = 32, 112
    for expansion, filters, repeats, first in MOBILE_BLOCKS:
        for number in range(repeats):
            stride, wide = first if number == 0 else 1, channels * expansion
            if expansion > 1:
                yield Layer(channels, wide, size, 1)
            yield Layer(wide, wide, size, 3, stride, wide)
            size //= stride
            yield Layer(wide, filters, size, 1)
            channels = filters
    yield Layer(channels, 1280, size, 1)


def vgg11() -> Iterator[Layer]:
    """Simonyan and Zisserman (2014), table 1, configuration A."""
    for channels, filters, size in ((3, 64, 224), (64, 128, 112), (128, 256, 56), (256, 256, 56), (256, 512, 28),
                                    (512, 512, 28), (512, 512, 14)):  # fmt: skip
        yield Layer(channels, filters, size, 3)


def cifar() -> Iterator[Layer]:
    """He et al. (2015), section 4.2: the residual nets of 32×32 images."""
    yield Layer(3, 16, 32, 3)
    for channels, size in ((16, 32), (32, 16), (64, 8)):
        yield Layer(channels, channels, size, 3)
        if channels < 64:
            yield Layer(channels, 2 * channels, size, 3, 2)
            yield Layer(channels, 2 * channels, size, 1, 2)


def small() -> Iterator[Layer]:
    """Few channels, groups, large filters: what the others do not have."""
    yield Layer(1, 6, 28, 5)
    yield Layer(6, 16, 14, 5)
    yield Layer(1, 32, 28, 3)
    yield Layer(1, 8, 64, 3)
    yield Layer(4, 4, 64, 3)
    yield Layer(8, 8, 64, 3)
    yield Layer(8, 1, 64, 3)
    yield Layer(16, 3, 64, 9)
    yield Layer(128, 128, 28, 3, 1, 32)
    yield Layer(256, 256, 28, 3, 2, 32)
    yield Layer(64, 64, 56, 5, 1, 64)


NETS: dict[str, Callable[[], Iterator[Layer]]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "vgg11": vgg11,
    "cifar": cifar,
    "small": small,
}


# -- contestants ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operands:
    """x, w and y of one layer, in the usual order of axes."""

    x: Array
    w: Array
    y: Array

    @staticmethod
    def draw(layer: Layer, batch: int, seed: int) -> Operands:
        r = np.random.default_rng(seed)
        shapes = (
            (batch, layer.channels, layer.size, layer.size),
            (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel),
            (batch, layer.filters, layer.out, layer.out),
        )
        return Operands(*(r.standard_normal(shape, F32) for shape in shapes))


def channels_last(image: Array) -> Array:
    """The image with its axes where they were, in memory channels last."""
    return np.ascontiguousarray(image.transpose(CHANNELS_LAST)).transpose(np.argsort(CHANNELS_LAST))


def strides(array: Array) -> tuple[int, int, int, int]:
    a, b, c, d = (s // array.itemsize for s in array.strides)
    return a, b, c, d


class Program:
    """One layer, compiled by itself, called by a user."""

    def __init__(self, layer: Layer, batch: int, direction: Direction, threads: int, data: Operands) -> None:
        with sg.Graph():
            x, w, gradient = (sg.placeholder(array.shape) for array in (data.x, data.w, data.y))
            y = sg.nn.functional.conv2d(x, w, stride=layer.stride, padding=layer.padding, groups=layer.groups)
            session = sg.Session(num_threads=threads)
            if direction == "forward":
                run = optimised(session.compile(y, [x, w]))
                self.call = lambda: run(data.x, data.w)
            elif direction == "input_grad":
                run = optimised(session.compile(sg.gradients(y, [x], grad_ys=[gradient])[0], [gradient, w]))
                self.call = lambda: run(data.y, data.w)
            else:
                run = optimised(session.compile(sg.gradients(y, [w], grad_ys=[gradient])[0], [x, gradient]))
                self.call = lambda: run(data.x, data.y)


class Kernel:
    """The kernel of one layer as it is inside a network, with weights that are packed at each call or, if they are
    ``constant``, beforehand."""

    def __init__(
        self, layer: Layer, batch: int, direction: Direction, threads: int, data: Operands, constant: bool
    ) -> None:
        x, w, y = channels_last(data.x), data.w, channels_last(data.y)
        result = np.empty_like({"forward": y, "input_grad": x, "weight_grad": w}[direction])
        operands = {"forward": (x, w), "input_grad": (y, w), "weight_grad": (x, y)}[direction]
        pair = (layer.stride, layer.stride)
        kernel = Convolution(
            direction, F32, batch, layer.channels, layer.size, layer.size, layer.filters, (layer.kernel,) * 2,
            layer.out, layer.out, pair, (layer.padding,) * 2, (1, 1), layer.groups, strides(x), strides(w), strides(y),
        )  # fmt: skip
        target = current_target()
        packed = packed_kernel(kernel, target, 1) if constant and direction != "weight_grad" else None
        module, planned = IRModule(target), packed or plan_kernel(kernel, target)
        shared = planned.is_shared
        name = emit_kernel(module, planned, "kernel")
        f = module.function("run", ["ptr"] * (4 + shared), internal=False)
        f.call(name, "void", *f.params)
        f.finish()
        if packed is not None:
            packing = emit_kernel(module, plan_kernel(Packing(replace(kernel, packed=1)), target), "packing")
            f = module.function("pack", ["ptr"] * 3, internal=False)
            f.call(packing, "void", *f.params)
            f.finish()
        self.native = NativeModule(module.text(), target)
        self.memory = np.zeros(planned.scratch_bytes(threads) + 64, np.uint8)
        if packed is not None:
            self.packed = np.empty(packed.packed_bytes // 4 + 16, F32)
            place = self.packed[-self.packed.ctypes.data % 64 // 4 :]
            pack = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(self.native.address("pack"))
            pack(operands[1].ctypes.data, place.ctypes.data, self.memory.ctypes.data)
            operands = operands[0], place
        pointers = [a.ctypes.data for a in (*operands, result)]
        pointers += [-(-self.memory.ctypes.data // 64) * 64, *[pool_address(threads)] * shared]
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(self.native.address("run"))
        arguments = tuple(ctypes.c_void_p(pointer) for pointer in pointers)
        self.operands = operands

        def call() -> Array:
            function(*arguments)
            return result

        self.call = call


class Torch:
    """PyTorch on one layer in one order of axes."""

    def __init__(self, layer: Layer, direction: Direction, data: Operands, last: bool) -> None:
        import torch

        def tensor(array: Array, *, last: bool) -> Any:
            t = torch.from_numpy(array)
            return t.contiguous(memory_format=torch.channels_last) if last else t

        x, y = tensor(data.x, last=last), tensor(data.y, last=last)
        w = tensor(data.w, last=last)
        stride, padding = [layer.stride] * 2, [layer.padding] * 2
        back, mask = torch.ops.aten.convolution_backward, [direction == "input_grad", direction == "weight_grad", False]

        def forward() -> Any:
            return torch.nn.functional.conv2d(x, w, None, stride, padding, 1, layer.groups)

        def backward() -> Any:
            found = back(y, x, w, None, stride, padding, [1, 1], False, [0, 0], layer.groups, mask)
            return found[0] if direction == "input_grad" else found[1]

        self.call = forward if direction == "forward" else backward


# -- measuring ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """One layer in one direction; seconds."""

    net: str
    batch: int
    direction: Direction
    layer: Layer
    ours: float
    peers: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return min(self.peers.values()) / self.ours if self.peers else math.nan


def turn(call: Callable[[], Any], seconds: float) -> float:
    """The least time of some calls that take about ``seconds`` together."""
    least, end = math.inf, time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        call()
        stop = time.perf_counter()
        least = min(least, stop - start)
        if stop > end:
            return least


def least_times(calls: dict[str, Callable[[], Any]], seconds: float, rounds: int = 4) -> dict[str, float]:
    """The least time of each, taking turns; who is far behind after a round is not asked again."""
    found = {name: turn(call, seconds / rounds) for name, call in calls.items()}
    ahead = min(time for name, time in found.items() if name != "ours") if len(found) > 1 else 0.0
    racing = [name for name in calls if name == "ours" or found[name] < 1.3 * ahead]
    for _ in range(rounds - 1):
        for name in racing:
            found[name] = min(found[name], turn(calls[name], seconds / rounds))
    return found


def measure(net: str, layer: Layer, batch: int, direction: Direction, plan: argparse.Namespace) -> Row:
    data = Operands.draw(layer, batch, plan.seed)
    ours: Kernel | Program
    if plan.inside or plan.constant:
        ours = Kernel(layer, batch, direction, plan.threads, data, plan.constant)
    else:
        ours = Program(layer, batch, direction, plan.threads, data)
    calls: dict[str, Callable[[], Any]] = {"ours": ours.call}
    result = ours.call()
    if plan.peer:
        usual, last = (Torch(layer, direction, data, last=last) for last in (False, True))
        expected = usual.call().numpy()
        error = float(np.max(np.abs(result - expected)) / np.max(np.abs(expected)))
        if not error <= TOLERANCE:
            raise SystemExit(f"{direction} of {layer}, batch {batch}: relative error {error:.1e}")
        last.call()
        calls |= {"usual": usual.call, "last": last.call}
    found = least_times(calls, plan.seconds)
    return Row(net, batch, direction, layer, found.pop("ours"), found)


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def chosen(plan: argparse.Namespace) -> Iterator[tuple[str, Layer]]:
    r = np.random.default_rng(plan.seed)
    for net in plan.net.split(","):
        layers = [layer for layer in dict.fromkeys(NETS[net]()) if plan.match in str(layer)]
        picked = sorted(r.permutation(len(layers))[: plan.layers]) if plan.layers else range(len(layers))
        yield from ((net, layers[number]) for number in picked)


def report(row: Row) -> None:
    peers = {name: f"{row.peers[name] * 1e6:.1f}" if name in row.peers else "" for name in ("usual", "last")}
    print(
        f"| {row.net} | {row.layer} | {row.batch} | {row.direction} | {row.ours * 1e6:.1f} | {peers['usual']} |"
        f" {peers['last']} | {row.layer.flops(row.batch) / row.ours / 1e9:.0f} | {row.ratio:.2f} |",
        flush=True,
    )


def summarize(rows: list[Row]) -> None:
    print("\n| direction | batch | layers | geometric mean | worst | below 1 | below 0.75 |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for direction, batch in dict.fromkeys((row.direction, row.batch) for row in rows):
        ratios = [row.ratio for row in rows if (row.direction, row.batch) == (direction, batch)]
        print(
            f"| {direction} | {batch} | {len(ratios)} | {geometric_mean(ratios):.3f} | {min(ratios):.2f} |"
            f" {sum(r < 1 for r in ratios)} | {sum(r < 0.75 for r in ratios)} |"
        )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--net", default="resnet18,resnet50,mobilenet_v2,vgg11", help=f"of {', '.join(NETS)}")
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--direction", default=",".join(DIRECTIONS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=0, help="of each network, drawn by the seed; 0 for all")
    parser.add_argument("--match", default="", help="only layers in whose description this text occurs")
    parser.add_argument("--seconds", type=float, default=0.2, help="of measuring each contestant")
    parser.add_argument("--inside", action="store_true", help="the kernel inside a network, images channels last")
    parser.add_argument("--constant", action="store_true", help="the same, with weights that are packed beforehand")
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="only ours")
    return parser.parse_args()


def main() -> None:
    plan = options()
    if any(os.environ.get(name) != value for name, value in KEPT_MEMORY.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEPT_MEMORY)
    if plan.peer:
        import torch

        torch.set_num_threads(plan.threads)
        torch.set_grad_enabled(False)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-plan.threads :])
    print("| net | layer | batch | direction | ours, µs | usual | last | GFLOP/s | ratio |")
    print("|---|---|--:|---|--:|--:|--:|--:|--:|")
    rows = []
    for net, layer in chosen(plan):
        for batch in map(int, plan.batch.split(",")):
            for direction in plan.direction.split(","):
                rows.append(measure(net, layer, batch, direction, plan))
                report(rows[-1])
    summarize(rows)


if __name__ == "__main__":
    main()
