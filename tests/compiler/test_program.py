"""Programs: memory as planned, lifetimes recomputed, no kernel that leaves native code, and that faults are caught."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.nets import Training, lenet, mlp, resnet20, training
from support.op_cases import check_derivatives

import staticgrad as sg
from staticgrad.base.types import TensorType, float32
from staticgrad.compiler.machine.target import current_target
from staticgrad.compiler.memory import checker
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.placement.problems import Interval, Pinned, PlanError
from staticgrad.compiler.program.program import Program
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.regions.region import Region
from staticgrad.compiler.regions.verify import VerifyError, verify
from staticgrad.graph.graph import Graph, Node
from staticgrad.graph.optable import NO_ATTRIBUTES, OPS, Case


def adam() -> Any:
    return sg.optim.Adam(lr=1e-3)


def momentum() -> Any:
    return sg.optim.SGD(lr=0.01, momentum=0.9)


NETS: dict[str, Callable[[], Training]] = {
    "mlp": lambda: training(lambda: mlp(64, 128, 64, 10), (64, 64), adam),
    "lenet": lambda: training(lenet, (16, 1, 28, 28), momentum),
    "resnet20": lambda: training(resnet20, (8, 3, 32, 32), momentum),
}


@pytest.fixture(scope="module", params=list(NETS))
def program(request: pytest.FixtureRequest) -> Program:
    with Graph():
        net = NETS[request.param]()
        session = sg.Session(net.graph, num_threads=1)
        step = session.compile([net.loss, net.train], list(net.feeds))
    made: Program = step._programs.native().program
    return made


def test_the_arena_is_at_the_lower_bound(program: Program) -> None:
    assert program.arena_bytes <= 1.05 * program.lower_bound_bytes


def used_in_text(program: Program) -> dict[str, tuple[int, int]]:
    """Live ranges read off the printed kernels: the first and last step that names ``buffer@offset``."""
    found: dict[str, tuple[int, int]] = {}
    for line in program.kernels_text.split("\n"):
        step = re.match(r"(\d+): ", line)
        if step is None:
            continue
        time = int(step.group(1))
        for place in re.findall(r"([^\s(,]+)@(\d+)\[", line):
            key = "@".join(place)
            first, _ = found.get(key, (time, time))
            found[key] = (first, time + 1)
    return found


def test_lifetimes_recomputed_from_the_kernels_agree(program: Program) -> None:
    """Buffers of one name and offset are one life in the text: their planned ranges are joined as well."""
    planned: dict[str, tuple[int, int]] = {}
    for buffer in program.buffers:
        if "scratch" not in buffer.reason and "call out" not in buffer.reason:
            key = f"{buffer.name}@{buffer.offset}"
            first, last = planned.get(key, (buffer.first, buffer.last))
            planned[key] = (min(first, buffer.first), max(last, buffer.last))
    assert planned == used_in_text(program)


def intervals(program: Program) -> list[Interval]:
    return [Interval(f"{b.name}#{n}", b.first, b.last, b.nbytes) for n, b in enumerate(program.buffers)]


def test_the_checker_refuses_a_corrupted_plan(program: Program) -> None:
    ranges = intervals(program)
    offsets = [buffer.offset for buffer in program.buffers]
    checker.check(ranges, offsets, program.arena_bytes)
    sized = [n for n, b in enumerate(program.buffers) if b.nbytes > 0]
    pairs = itertools.combinations(sized, 2)
    first, other = next(
        (a, b) for a, b in pairs if ranges[a].first < ranges[b].last and ranges[b].first < ranges[a].last
    )
    moved = list(offsets)
    moved[other] = offsets[first]
    with pytest.raises(PlanError):
        checker.check(ranges, moved, program.arena_bytes)
    longer = [replace(r, first=0, last=max(x.last for x in ranges)) for r in ranges]
    with pytest.raises(PlanError):
        checker.check(longer, offsets, program.arena_bytes)


def calls_in(text: str) -> list[str]:
    """What is called: functions by name; a chosen one (by ``select``, also of what was chosen) counts as all that it
    may be. Where chunks are shared between threads the part counts, and not the pool that calls it."""
    found: list[str] = re.findall(r"call void @parallel\(ptr [^,]+, ptr (@[\w.$-]+)", text)
    for function in text.split("\ndefine ")[1:]:
        if re.match(r"(internal|hidden) void @parallel\(", function):
            continue
        chosen: dict[str, list[str]] = {}
        selects = r"(%[\w.]+) = select i1 [^,]+, ptr ([@%][\w.$-]+), ptr ([@%][\w.$-]+)"
        for value, *both in re.findall(selects, function):
            chosen[value] = [target for choice in both for target in chosen.get(choice, [choice])]
        for target in re.findall(r"\bcall [^@%\n]*([@%][\w.$-]+)\(", function):
            found.extend(chosen.get(target, [target]))
    return found


def test_no_kernel_leaves_native_code(program: Program) -> None:
    defined = set(re.findall(r"^define [^@]*(@[\w.$-]+)\(", program.llvm_text, re.MULTILINE))
    for target in calls_in(program.llvm_text):
        assert target in defined or target.startswith("@llvm."), f"{target} is called, but is no part of the program"
    assert not re.search(r"^\d+: call ", program.kernels_text, re.MULTILINE)


def test_only_py_call_and_print_leave_native_code() -> None:
    with Graph() as graph:
        x = sg.placeholder((4,))
        (y,) = sg.py_call(lambda v: [v * 2], [sg.exp(x)], [(sg.float32, (4,))])
        z = sg.tanh(sg.print(y, "y"))
        exe = sg.Session(graph).compile(z, [x])
    steps = re.findall(r"^\d+: (\w+) (\w+)", exe.text("kernels"), re.MULTILINE)
    assert [name for family, name in steps if family == "call"] == ["py_call", "print"]
    pointers = [target for target in calls_in(exe.text("llvm")) if target.startswith("%")]
    assert len(pointers) == 2


# -- faults are caught ------------------------------------------------------------------------------------------------


def test_a_wrong_derivative_is_caught() -> None:
    good = OPS["tanh"]
    wrong = replace(good, vjp=lambda o, node, ct: [ct * (1.0 - node.outputs[0])])
    with pytest.raises(AssertionError, match="vjp"):
        check_derivatives(wrong)


def test_a_region_with_a_wrong_type_is_refused() -> None:
    with Graph() as graph:
        x = sg.placeholder((2, 3))
        y = sg.exp(x)
    bad = Node(graph, y.op.op, (x,), NO_ATTRIBUTES, (TensorType((3, 2), float32),), "bad", (), None, False)
    graph.nodes.append(bad)
    with pytest.raises(VerifyError, match="has types"):
        verify(Region(graph, (x,), (bad.outputs[0],)), "test")


def test_a_region_that_reads_before_it_makes_is_refused() -> None:
    with Graph() as graph:
        x = sg.placeholder((2,))
        y = sg.exp(x)
    graph.nodes.reverse()
    with pytest.raises(VerifyError, match="not made before"):
        verify(Region(graph, (x,), (y,)), "test")


def test_broken_llvm_text_is_refused() -> None:
    text = "define i32 @main(ptr %p0, ptr %p1) {\nentry:\n  %x = add i32 1, %missing\n  ret i32 %x\n}\n"
    with pytest.raises(RuntimeError):
        NativeModule(text, current_target())


def test_a_buffer_that_dies_too_early_is_found_by_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted lifetime bug: every buffer is said to die one step after it is made. The checker finds it, too."""
    from staticgrad.compiler.memory import plan

    honest = plan.live_ranges

    def too_short(steps: Any) -> Any:
        return {temp: (first, first + 1) for temp, (first, _) in honest(steps).items()}

    with Graph() as graph:
        x = sg.placeholder((8, 8))
        y = sg.sum(sg.matmul(sg.matmul(sg.exp(x), x), sg.matmul(x, sg.exp(x))))
        value = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
        want = sg.Session(graph).run(y, {x: value})
        assert np.isfinite(want)
        monkeypatch.setattr(plan, "live_ranges", too_short)
        monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
        monkeypatch.setenv("STATICGRAD_CACHE", "0")  # where the right plan may be kept
        with pytest.raises(PlanError, match="overlaps"):
            sg.Session(graph).run(y, {x: value})
        monkeypatch.setattr(plan, "check_steps", lambda *args, **options: None)
        assert not np.isfinite(sg.Session(graph).run(y, {x: value}))


def consumed_gradient(graph: Graph) -> Any:
    """The gradient that a consuming backward adds, of a graph in which one value is saved by several ops."""
    with graph:
        x = sg.placeholder((4, 8), requires_grad=True)
        y = sg.sum(sg.nn.layer_norm(x, (8,)) * sg.nn.sigmoid(sg.nn.layer_norm(x, (8,))) * sg.exp(x))
    with sg.Session(graph) as session:
        session.forward(y, {x: np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)}).backward(y)
        return session.grad(x)


def test_a_kept_value_that_dies_too_early_is_found_by_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bug planted in a backward that consumes: values that the forward kept die with their first read."""
    from staticgrad.compiler.memory import plan

    honest = plan.live_ranges
    want = consumed_gradient(Graph())

    def too_short(steps: Any) -> Any:
        return {t: (first, first + 1 if t.pinned is not None else last) for t, (first, last) in honest(steps).items()}

    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    monkeypatch.setenv("STATICGRAD_DISABLE", "fuse")
    np.testing.assert_allclose(consumed_gradient(Graph()), want, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(plan, "live_ranges", too_short)
    monkeypatch.setattr(plan, "check_steps", lambda *args, **options: None)
    assert not np.isfinite(consumed_gradient(Graph())).all()


def test_two_feeds_at_one_place_of_the_block_are_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker knows it by the address, though the planner takes one feed's last read for the value's."""
    from staticgrad.compiler import pipeline

    with Graph() as graph:
        a, b = sg.placeholder((8, 8)), sg.placeholder((8, 8))
        y = sg.sum(sg.matmul(sg.matmul(sg.exp(a), a), sg.matmul(a, b)) @ b)
    region = cut(graph, [y], {a: a.type, b: b.type})
    pinned = [Pinned("kept", 0, 256, number, donated=True) for number in range(2)]
    options = CompileOptions(current_target())
    assert pipeline.compile_region(region, options, pinned).borrows
    honest = pipeline.donate
    monkeypatch.setattr(pipeline, "donate", lambda steps, pinned: honest(steps, pinned[:1]))
    with pytest.raises(PlanError, match="overlaps"):
        pipeline.compile_region(region, options, pinned)


def test_every_case_of_the_table_names_an_op_that_exists() -> None:
    for op in OPS.values():
        assert all(isinstance(case, Case) for case in op.cases), op.name
