"""Schedules of convolutions: scratch memory divided without overlaps, and sums over segments cut in chunks."""

from __future__ import annotations

import ctypes
import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from support.targets import HERE

from staticgrad.compiler.emit.convolution.kernel import EMITTERS, PLANNER
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.taps import within
from staticgrad.compiler.emit.convolution.weights_store import store_sums
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, place_area
from staticgrad.compiler.emit.families import plan_kernel
from staticgrad.compiler.emit.llvm import Function, IRModule, integer
from staticgrad.compiler.kernels.matrix import Convolution, Direction
from staticgrad.compiler.machine.target import SMALL_TARGETS, TARGETS
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.plans.convolution.choice import ConvolutionPlanner
from staticgrad.compiler.plans.convolution.images import Strides
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.schedule import SumChunks, SumPlan


def test_areas_lie_behind_each_other_and_those_of_workers_behind_all() -> None:
    scratch = Scratch((Area("sums", 128, copies=3), Area("weights", 64)), areas(np.dtype("float32"), strip=17, tile=1))
    f = IRModule(TARGETS["generic"]).function("f", ())
    pieces = [(place_area(scratch, f, "sums", 0, number), 128) for number in range(3)]
    pieces.append((place_area(scratch, f, "weights", 0, 0), 64))
    for worker in range(2):
        own = scratch.shared_bytes + worker * scratch.own_bytes
        pieces += [(place_area(scratch, f, name, own, 0), scratch.find(name).nbytes) for name in ("strip", "tile")]
    end = 0
    for start, nbytes in pieces:
        assert start == end
        end += nbytes
    assert end == scratch.shared_bytes + 2 * scratch.own_bytes
    with pytest.raises(KeyError, match="line"):
        place_area(scratch, f, "line", integer(0), 0)


def layer(direction: Direction, channels: int, size: int, filters: int, taps: int, groups: int = 1) -> Convolution:
    of_group = channels // groups
    return Convolution(
        direction, np.dtype("float32"), 16, channels, size, size, filters, (taps, taps), size, size, (1, 1),
        (taps // 2, taps // 2), (1, 1), groups, (channels * size * size, size * size, size, 1),
        (of_group * taps * taps, taps * taps, taps, 1), (filters * size * size, size * size, size, 1),
    )  # fmt: skip


@pytest.mark.parametrize("name", [*HERE, *SMALL_TARGETS])
def test_chunks_of_sums_have_every_segment_once_and_sums_of_their_own(name: str) -> None:
    target, seen = (TARGETS | SMALL_TARGETS)[name], set()
    for channels, size, filters, taps in itertools.product((3, 64), (14, 56), (16, 128), (1, 3)):
        plan = PLANNER.plan(layer("weight_grad", channels, size, filters, taps), target)
        assert isinstance(plan, SumPlan)
        cuts: SumChunks = plan.sharing
        seen.add((cuts.part > 0, cuts.share is not None))
        if cuts.part:
            assert cuts.share is None
            assert (cuts.parts - 1) * cuts.part < cuts.segments <= cuts.parts * cuts.part
            assert plan.scratch.find("sums").copies == cuts.parts
    assert {(True, False), (False, True)} <= seen


def test_all_parts_of_a_run_are_all_of_its_lines() -> None:
    """Each part is asked for between two tiles: together they leave out no line."""
    for nbytes, parts in itertools.product((1, 64, 65, 1000, 4096), (1, 3, 7)):
        f = IRModule(TARGETS["generic"]).function("f", ["ptr"] * 3)
        writer = ConvolutionWriter(f, layer("forward", 3, 14, 16, 3), None, f.params)
        for part in range(parts):
            PrefetchRuns(f.params[0], nbytes, unrolled=True).ask(writer, part, parts)
        f.finish()
        text = f.module.text()
        steps = {
            to: (base, int(by)) for to, base, by in re.findall(r"(\S+) = getelementptr i8, ptr (\S+), i64 (\d+)", text)
        }

        def distance(name: str, steps: dict[str, tuple[str, int]] = steps) -> int:
            return steps[name][1] + distance(steps[name][0]) if name in steps else 0

        asked = [distance(name) for name in re.findall(r"prefetch.p0\(ptr (%\S+),", text)]
        assert {*asked} >= {*range(0, nbytes, 64)}
        assert len(asked) == parts * -(-nbytes // (64 * parts))


def test_what_lies_inside_is_a_range() -> None:
    f = IRModule(TARGETS["generic"]).function("f", ())
    for origin, step, size, count in itertools.product((-9, -3, 0, 2, 7), (1, 2, 3), (1, 5), (1, 4, 9)):
        low, high = within(f, origin, step, size, count)
        assert isinstance(low, int)
        assert isinstance(high, int)
        assert [*range(low, high)] == [t for t in range(count) if 0 <= origin + t * step < size]


ARRAYS = (  # the order of axes in the copy, that in the source, and the axes that the source has backwards
    ((0, 1, 2), (0, 1, 2), ()), ((0, 1, 2), (2, 0, 1), ()), ((2, 1, 0), (0, 1, 2), (1,)),
    ((0, 1, 2), (2, 0, 1), (0, 1)), ((1, 0, 2), (0, 2, 1), (0, 1, 2)), ((0, 1), (1, 0), ()), ((0,), (0,), (0,)),
)  # fmt: skip


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize(("to", "source", "backwards"), ARRAYS)
@pytest.mark.parametrize("is_known", [True, False])
def test_arrays_are_rearranged(
    name: str, to: tuple[int, ...], source: tuple[int, ...], backwards: tuple[int, ...], is_known: bool
) -> None:
    """In any order of axes, forwards and backwards, with a first size that is known or not."""
    sizes = (5, 3, 18)[: len(to)]
    before = np.arange(np.prod(sizes), dtype=np.float32).reshape([sizes[axis] for axis in source])
    after = np.zeros([sizes[axis] for axis in to], np.float32)
    x, y = (array.transpose(np.argsort(order)) for array, order in ((before, source), (after, to)))
    for axis in backwards:
        x = np.flip(x, axis)
    module = IRModule(TARGETS[name])
    f = module.function("f", ["ptr"] * 4 + ["i64"], internal=False)
    writer = ConvolutionWriter(f, layer("forward", 3, 14, 16, 3), None, f.params[:4])
    counts = [sizes[0] if is_known else f.params[4], *sizes[1:]]
    strides = [[s // 4 for s in array.strides] for array in (y, x)]
    writer.rearrange(f.params[0], f.params[1], *zip(counts, *strides, strict=True))
    f.finish()
    native = NativeModule(module.text(), module.target)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(native.address("f"))
    run(after.ctypes.data, x.__array_interface__["data"][0], None, None, sizes[0])
    np.testing.assert_array_equal(y, x)


def test_axes_that_are_one_run_on_both_sides_are_one() -> None:
    f = IRModule(TARGETS["avx512"]).function("f", ["ptr"] * 4)
    writer = ConvolutionWriter(f, layer("forward", 3, 14, 16, 3), None, f.params)
    writer.rearrange(f.params[0], f.params[1], (5, 60, 60), (3, 20, 20), (20, 1, 1))
    f.finish()
    assert f.module.text().count("call void @copy_rows") == 1
    assert ", i64 1, i64 300)" in f.module.text()


def some_of_each() -> list[Convolution]:
    """Layers of all directions, with images in planes and channels last."""
    last = (16, 1, 56 * 16, 16)
    layers = [
        layer(direction, channels, size, filters, taps, groups)
        for direction in ("forward", "input_grad", "weight_grad")
        for channels, size, filters, taps, groups in (
            (3, 56, 64, 3, 1), (64, 56, 64, 3, 1), (64, 56, 64, 1, 1), (32, 28, 32, 3, 32), (4, 56, 4, 3, 1),
            (64, 14, 64, 5, 1),
        )
    ]  # fmt: skip
    return [*layers, *(replace(kernel, x_strides=last, y_strides=last) for kernel in layers)]


def test_each_plan_is_that_of_some_kernel() -> None:
    assert {type(PLANNER.plan(kernel, TARGETS["avx512"])) for kernel in some_of_each()} == {*EMITTERS}


def test_the_plan_with_the_fewest_cycles_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another estimate makes another choice, of those that can run the kernel."""
    target, several = TARGETS["avx2"], 0
    for kernel in some_of_each():
        plans = [plan for kind in EMITTERS if (plan := kind.make(kernel, target)) is not None]
        cycles = [plan.cycles(kernel, target) for plan in plans]
        assert min(cycles) > 0
        assert PLANNER.plan(kernel, target) == plans[cycles.index(min(cycles))]
        several += len(plans) > 1
        with monkeypatch.context() as patched:
            patched.setattr(type(plans[-1]), "cycles", lambda *_: 1.0)
            assert ConvolutionPlanner(tuple(reversed(EMITTERS))).plan(kernel, target) == plans[-1]
    assert several > 5


def test_the_text_of_a_kernel_tells_which_plans_lost_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = layer("forward", 64, 56, 64, 1)
    usual = plan_kernel(kernel, TARGETS["avx512"]).text
    assert "choice" not in usual
    monkeypatch.setenv("STATICGRAD_EXPLAIN", "1")
    text = plan_kernel(kernel, TARGETS["avx512"]).text
    assert text.startswith(f"{usual}\nchoice: Products ")
    found = re.findall(r"; (\w+) ([\d.]+) times that", text)
    assert {name for name, _ in found} == {"Planar", "ForwardPlan"}
    assert 1 <= float(found[0][1]) <= float(found[1][1])


@pytest.mark.parametrize(("weights", "loops"), [((36, 9, 3, 1), 0), ((1, 32, 384, 128), 1)], ids=["OIHW", "HWIO"])
def test_axes_that_follow_each_other_on_both_sides_are_stored_as_one(weights: Strides, loops: int) -> None:
    """Sums ``[c][i][j][filter]`` go to the weights in one transpose, or in one copy for each tap."""
    kernel = replace(layer("weight_grad", 4, 8, 32, 3), w_strides=weights)
    f = IRModule(TARGETS["avx2"]).function("f", ("ptr",) * 4)
    store_sums(ConvolutionWriter(f, kernel, None, f.params), f.params[1], (1, 288, 96, 32), 0, 32)
    f.finish()
    body = f.module.text().partition("@f(")[2]
    assert body.count("call void") == 1
    assert body.count("phi i64") == loops


def test_equal_leaf_functions_are_written_once() -> None:
    def write(f: Function, count: int) -> None:
        f.store(integer(count), f.params[0])

    f = IRModule(TARGETS["generic"]).function("f", ("ptr",))
    for count in (1, 2, 1):
        f.call_leaf("set", write, (count,), f.params[0])
    f.finish()
    assert f.module.text().count("define internal void @set") == 2
