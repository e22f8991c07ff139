"""Schedules of convolutions: scratch memory divided without overlaps, and sums over segments cut in chunks."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from support.targets import HERE

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter
from staticgrad.compiler.emit.convolution.kernel import plan_convolution
from staticgrad.compiler.emit.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.schedule import SumChunks, SumPlan
from staticgrad.compiler.emit.convolution.weights_store import Strides, store_sums
from staticgrad.compiler.emit.llvm import Function, IRModule, integer
from staticgrad.compiler.emit.target import SMALL_TARGETS, TARGETS
from staticgrad.compiler.kernels.matrix import Convolution, Direction


def test_areas_lie_behind_each_other_and_those_of_workers_behind_all() -> None:
    scratch = Scratch((Area("sums", 128, copies=3), Area("weights", 64)), areas(np.dtype("float32"), strip=17, tile=1))
    f = IRModule(TARGETS["generic"]).function("f", ())
    pieces = [(scratch.place(f, "sums", 0, number), 128) for number in range(3)]
    pieces.append((scratch.place(f, "weights", 0, 0), 64))
    for worker in range(2):
        own = scratch.shared_bytes + worker * scratch.own_bytes
        pieces += [(scratch.place(f, name, own, 0), scratch.find(name).nbytes) for name in ("strip", "tile")]
    end = 0
    for start, nbytes in pieces:
        assert start == end
        end += nbytes
    assert end == scratch.shared_bytes + 2 * scratch.own_bytes
    with pytest.raises(KeyError, match="line"):
        scratch.place(f, "line", integer(0), 0)


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
        plan = plan_convolution(layer("weight_grad", channels, size, filters, taps), target)
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
