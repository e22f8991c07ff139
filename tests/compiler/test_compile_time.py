"""Compilation of large graphs: what keeps the work proportional to the number of ops, and that it stays right."""

from __future__ import annotations

import cProfile
import ctypes
import functools
import gc
import inspect
import re
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.phases import phase, watched
from staticgrad.compiler.emit import entry
from staticgrad.compiler.kernels.nest import Access, Compute, Load, Nest, Store
from staticgrad.compiler.lowering import fuse, lower
from staticgrad.compiler.lowering import order as orders
from staticgrad.compiler.lowering.order import Order, Ordered
from staticgrad.compiler.machine.target import AVX2, AVX512, current_target
from staticgrad.compiler.memory.checker import check
from staticgrad.compiler.native import codegen
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.passes import PASSES, loops
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.placement import placement
from staticgrad.compiler.placement.placement import Interval, place
from staticgrad.compiler.plans import tiles
from staticgrad.compiler.plans.nest import costs as nest_costs
from staticgrad.compiler.plans.nest.facts import analyse
from staticgrad.compiler.plans.nest.vectors import choose_vector
from staticgrad.compiler.program.memories import Temp
from staticgrad.compiler.program.schedule import ancestors, dependencies, schedule
from staticgrad.compiler.program.step import Step
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.regions.region import rebuild
from staticgrad.graph.optable import NO_ATTRIBUTES
from staticgrad.graph.text import print_nodes

orders_of = placement._orders
Declared: TypeAlias = tuple[list[Any], list[sg.Tensor]]  # fetches and feeds

# -- merging groups -----------------------------------------------------------------------------------------------


def random_members(seed: int, count: int) -> tuple[Order, list[Ordered], nx.DiGraph]:
    rng = np.random.default_rng(seed)
    order, members, graph = Order(), [], nx.DiGraph()
    for number in range(count):
        item = Ordered()
        before = {members[i]: bool(rng.random() < 0.2) for i in rng.integers(0, number, 2)} if number else {}
        order.add(item, before)
        members.append(item)
        graph.add_node(item)
        graph.add_edges_from((other, item, {"memory": hard}) for other, hard in before.items())
    return order, members, graph


def may_merge(graph: nx.DiGraph, a: Ordered, b: Ordered) -> bool:
    """By definition: no edge through memory, and no way from one to the other through a third."""
    if any(graph.edges[edge]["memory"] for edge in ((a, b), (b, a)) if graph.has_edge(*edge)):
        return False
    without = graph.copy()
    without.remove_edges_from([(a, b), (b, a)])
    return not (nx.has_path(without, a, b) or nx.has_path(without, b, a))


def contract(graph: nx.DiGraph, a: Ordered, b: Ordered) -> None:
    for one, other, data in [*graph.in_edges(b, data=True), *graph.out_edges(b, data=True)]:
        edge = (a if one is b else one, a if other is b else other)
        if edge[0] is not edge[1]:
            memory = graph.edges[edge]["memory"] if graph.has_edge(*edge) else False
            graph.add_edge(*edge, memory=memory or data["memory"])
    graph.remove_node(b)


@pytest.mark.parametrize("seed", range(6))
def test_members_merge_exactly_where_no_cycle_arises_and_ranks_stay_in_order(seed: int) -> None:
    order, members, graph = random_members(seed, 40)
    rng = np.random.default_rng(seed)
    merged = 0
    for _ in range(300):
        a, b = (members[i] for i in rng.choice(len(members), 2, replace=False))
        allowed = may_merge(graph, a, b)
        assert order.merge(a, b) == allowed
        if allowed:
            merged += 1
            contract(graph, a, b)
            members.remove(b)
        assert all(one.rank < other.rank for one, other in graph.edges)
        assert len({item.rank for item in members}) == len(members)
        assert all(set(item.before) == set(graph.predecessors(item)) for item in members)
        assert all(set(item.after) == set(graph.successors(item)) for item in members)
        if len(members) < 3:
            break
    assert merged > 5


def test_a_search_over_the_budget_gives_up_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    order, members, graph = random_members(1, 60)
    monkeypatch.setattr(orders, "BUDGET", 0)
    before = {item: (item.rank, dict(item.before), list(item.after)) for item in members}
    refused = 0
    for a in members[:30]:
        for b in members[30:]:
            if may_merge(graph, a, b) and not order.merge(a, b):
                refused += 1
                assert {item: (item.rank, dict(item.before), list(item.after)) for item in members} == before
            elif b not in (item for item in members if item.rank >= 0):
                break
        if refused > 20:
            break
    assert refused


def test_a_kernel_with_an_old_and_a_new_member_is_no_way_around_a_cycle() -> None:
    """``v`` reads ``t``, and ``q``, which reads the older of two members of a kernel whose newer one reads ``t``: in
    one kernel ``t`` and ``v`` would have to run before and after that."""
    with sg.Graph() as graph:
        x, y = sg.placeholder((4, 6), "float64"), sg.placeholder((6, 4), "float64")
        p = sg.sin(y)
        q = sg.tanh(p.T)
        t = sg.exp(x)
        r = p + t.T
        v = t * q
        run = sg.Session(graph).compile([r, v], [x, y])
    a, b = np.random.default_rng(0).standard_normal((2, 24))
    a, b = a.reshape(4, 6), b.reshape(6, 4)
    found_r, found_v = run(a, b)
    np.testing.assert_allclose(found_r, np.sin(b) + np.exp(a).T)
    np.testing.assert_allclose(found_v, np.exp(a) * np.tanh(np.sin(b).T))


# -- long bodies ------------------------------------------------------------------------------------------------------


def bodies_of_chain(elements: int) -> list[int]:
    """The numbers of computed values in the kernels of a long chain of cheap ops, checked against NumPy."""
    with sg.Graph() as graph:
        x = sg.placeholder((elements,), "float64")
        y = x
        for number in range(600):
            y = y * 0.5 + x if number % 2 else sg.abs(y) - 0.25
        run = sg.Session(graph).compile(y, [x])
    a = np.random.default_rng(0).standard_normal(elements)
    expected = a
    for number in range(600):
        expected = expected * 0.5 + a if number % 2 else np.abs(expected) - 0.25
    np.testing.assert_allclose(run(a), expected)
    return [len(re.findall(r"v\d+ = \w+\(", text)) for text in run.text("kernels").split("for (")[1:]]


def test_a_long_chain_is_cut_into_short_bodies_where_its_values_stay_in_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_DISABLE", "reroll")  # else it is a loop
    near = bodies_of_chain(50)
    assert len(near) >= 3
    assert max(near) <= fuse.LARGEST_NEAR
    assert len(bodies_of_chain(1 << 16)) == 1


# -- long programs --------------------------------------------------------------------------------------------------


def test_a_long_program_is_cut_into_functions_and_a_check_in_any_of_them_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    monkeypatch.setenv("STATICGRAD_MEMORY", "plan")  # filling buffers would be calls as well
    monkeypatch.setattr(entry, "SEGMENT", 3)
    with sg.Graph() as graph:
        x, index = sg.placeholder((4, 5), "float64"), sg.placeholder((3,), "int64")
        y = x
        for _ in range(12):
            y = sg.tanh(y.T @ y)[:4] + x[:, :1]
        z = sg.take(y, index, axis=0)
        run = sg.Session(graph).compile([y, z], [x, index])
    text = run.text("llvm")
    assert len(re.findall(r"define internal i32 @main\.steps\d+", text)) > 3
    assert text.split("@main(", 1)[1].split("\n}", 1)[0].count("call ") < 20
    a = np.random.default_rng(0).standard_normal((4, 5))
    expected = a
    for _ in range(12):
        expected = np.tanh(expected.T @ expected)[:4] + a[:, :1]
    found_y, found_z = run(a, np.array([3, 0, 1]))
    np.testing.assert_allclose(found_y, expected)
    np.testing.assert_allclose(found_z, expected[[3, 0, 1]])
    with pytest.raises(sg.BoundsError):
        run(a, np.array([0, 9, 1]))


def test_a_long_sum_of_products_keeps_no_product_but_the_last_sum() -> None:
    """Each addition is the epilogue of its product, so that two buffers do, however long the sum is."""
    turns = 40
    with sg.Graph() as graph:
        xs = [sg.placeholder((8, 16), "float32") for _ in range(turns)]
        total = xs[0].T @ xs[0]
        for x in xs[1:]:
            total = total + x.T @ x
        run = sg.Session(graph).compile(total, xs)
    arrays = [np.random.default_rng(k).standard_normal((8, 16)).astype(np.float32) for k in range(turns)]
    np.testing.assert_allclose(run(*arrays), sum(a.T @ a for a in arrays), rtol=1e-4, atol=1e-3)
    assert run.memory.arena_bytes - run.memory.scratch_bytes <= 3 * 16 * 16 * 4


# -- very many buffers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_very_many_buffers_are_placed_right_and_as_tight_as_by_the_order_of_births(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    count = 700
    births = rng.integers(0, count, count)
    lives = rng.integers(1, 40, count)
    sizes = rng.integers(0, 3000, count)
    intervals = [
        Interval(f"b{k}", int(birth), int(birth + life), int(size))
        for k, (birth, life, size) in enumerate(zip(births, lives, sizes, strict=True))
    ]
    few = place(intervals)
    monkeypatch.setattr(placement, "LARGE", 100)
    many = place(intervals)
    check(intervals, many.offsets, many.arena_bytes)
    monkeypatch.setattr(placement, "LARGE", 10**9)
    monkeypatch.setattr(placement, "REVISED", 0)
    monkeypatch.setattr(placement, "_orders", lambda problem: iter([next(iter(orders_of(problem)))]))
    by_birth = place(intervals)
    assert few.arena_bytes <= many.arena_bytes <= by_birth.arena_bytes


# -- phases -------------------------------------------------------------------------------------------------------


def test_phases_count_for_themselves_alone_and_only_while_watched() -> None:
    @phase("outer")
    def outer() -> None:
        with phase("inner"):
            pass
        with phase("inner"):
            pass

    outer()
    with watched() as seconds:
        outer()
    assert list(seconds) == ["inner", "outer"]
    outer()
    assert all(value >= 0 for value in seconds.values())
    with watched() as nothing:
        pass
    assert nothing == {}


@pytest.fixture
def shallow() -> Iterator[int]:
    """A recursion limit so low that short chains exceed it: the calls that are left."""
    usual, left = sys.getrecursionlimit(), 250
    sys.setrecursionlimit(len(inspect.stack()) + left)
    yield left
    sys.setrecursionlimit(usual)


def test_a_sum_of_very_many_pads_exceeds_no_recursion_limit(shallow: int) -> None:
    """The gradient of a tensor that is read slice by slice."""
    rows = shallow + 50
    with sg.Graph() as graph:
        x = sg.placeholder((rows, 2), "float64")
        y = sum((sg.tanh(x[i]) for i in range(1, rows)), sg.tanh(x[0]))
        (dx,) = sg.gradients(y, [x])
    value = np.random.default_rng(0).normal(size=(rows, 2))
    np.testing.assert_allclose(sg.Session(graph).run(dx, {x: value}), 1 - np.tanh(value) ** 2, rtol=1e-12)


# -- work in proportion to the number of ops -------------------------------------------------------------------------


def running_sum(terms: int) -> Declared:
    """``s = 0; for x in xs: s = s + x`` over so many operands."""
    xs = [sg.placeholder((8,), "float64") for _ in range(terms)]
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return [total, *sg.gradients(sg.sum(total * total), xs[:2])], xs


def sum_of_rows(terms: int) -> Declared:
    x = sg.placeholder((terms, 4), "float64")
    total = sum([x[i] for i in range(1, terms)], x[0])
    return [total, *sg.gradients(sg.sum(total * total), [x])], [x]


def long_chain(terms: int) -> Declared:
    x = sg.placeholder((16,), "float64")
    y = x
    for number in range(terms):
        y = sg.tanh(y) if number % 3 else y * 1.01 + x
    return [sg.sum(y), *sg.gradients(sg.sum(y), [x])], [x]


def random_graph(terms: int) -> Declared:
    """Each op reads two of the hundred before it."""
    rng = np.random.default_rng(0)
    x = sg.placeholder((6,), "float64")
    ys = [x * 0.5, x + 1.0]
    for number in range(terms):
        a, b = (ys[i] for i in rng.integers(max(0, len(ys) - 100), len(ys), 2))
        ys.append(a + b if number % 3 else sg.sin(a) * b)
    return [sg.sum(ys[-1]), *sg.gradients(sg.sum(ys[-1]), [x])], [x]


def stacked_and_read(terms: int) -> Declared:
    """What very many ops write together, very many read, each a row."""
    xs = [sg.placeholder((5,), "float64") for _ in range(terms)]
    y = sg.stack([sg.tanh(x) for x in xs])
    return [sg.sum(sg.sin(y[i]) * float(i)) for i in range(terms)], xs


def many_results(terms: int) -> Declared:
    x = sg.placeholder((3, 2), "float64")
    return [sg.reshape(x * float(i), (2, 3)) for i in range(terms)], [x]


def many_variables(terms: int) -> Declared:
    x = sg.placeholder((4, 8), "float32")
    y = x
    for _ in range(terms):
        y = sg.tanh(y @ sg.Variable(np.ones((8, 8), np.float32))) + y
    loss = sg.sum(y)
    return [loss, sg.optim.SGD(lr=0.1).minimize(loss)], [x]


def many_loops(terms: int) -> Declared:
    x, xs = sg.placeholder((6,), "float64"), sg.placeholder((3, 6), "float64")
    y = x
    for _ in range(terms):
        y, _unused = sg.scan(lambda carry, row: (sg.tanh(carry + row), carry), y, xs)
    return [sg.sum(y)], [x, xs]


def sum_of_short_reductions(terms: int) -> Declared:
    """Each of which can be computed again where its sum is read, and saves memory there."""
    x = sg.placeholder((16384, 4), "float32")
    total = sg.sum(x, axis=1)
    for number in range(1, terms):
        total = total + sg.sum(sg.sin(x * float(number)), axis=1)
    return [total], [x]


def values_of_written_variables(terms: int) -> Declared:
    """Each of which is computed where it is read, unless the variable may have been written by then."""
    results: list[Any] = []
    for _ in range(terms):
        v = sg.Variable(np.ones((256, 128), np.float32))
        value = v * 1.5 + 0.5
        results += [sg.sum(value, axis=0), sg.sum(value, axis=1), sg.assign(v, v * 0.9)]
    return results, []


def compiled_text(declare: Callable[[int], Declared], terms: int, disabled: str = "reroll") -> str:
    with sg.Graph() as graph:
        fetches, feeds = declare(terms)
        region = cut(graph, fetches, {x: x.type for x in feeds})
    return compile_region(region, CompileOptions(current_target(), disabled=frozenset({disabled}))).llvm_text


def calls(declare: Callable[[int], Declared], terms: int, disabled: str = "reroll") -> Counter[str]:
    """How often each function is called in a compilation, built-in ones included."""
    profile = cProfile.Profile()
    gc.collect()  # not in it: what tests before have left, which calls back when it is collected
    gc.disable()
    try:
        profile.runcall(compiled_text, declare, terms, disabled)
    finally:
        gc.enable()
    counts = Counter[str]()
    for called in profile.getstats():
        code = called.code
        name = code if isinstance(code, str) else f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
        counts[name] += called.callcount
    return counts


@pytest.mark.wide
@pytest.mark.parametrize(
    ("declare", "terms"),
    [
        (running_sum, 300), (sum_of_rows, 120), (long_chain, 120), (random_graph, 100), (stacked_and_read, 60),
        (many_results, 80), (many_variables, 40), (many_loops, 12),
        (values_of_written_variables, 20),
        (sum_of_short_reductions, 80),  # so long that both look for signals between their steps
    ],
)  # fmt: skip
def test_twice_as_many_ops_take_twice_as_many_calls(declare: Callable[[int], Declared], terms: int) -> None:
    compiled_text(declare, terms // 4)  # what is computed once in a process
    few, many = calls(declare, terms), calls(declare, 2 * terms)
    assert many.total() < 2.2 * few.total()
    grown = {
        who: (few[who], many[who])
        for who in many
        if many[who] > max(3 * few[who], 10 * terms) and not who.endswith("__eq__")  # equal kernels come in with length
    }
    assert not grown, "a function is called in proportion to the square"


def test_passes_with_nothing_to_do_copy_nothing() -> None:
    """Most of what a pass takes is the copy of its region."""
    with sg.Graph() as graph:
        x = sg.placeholder((4, 6), "float64")
        y = sg.sum(sg.tanh(x * 2.0) @ x.T, keepdims=True)
        region = cut(graph, [y], {x: x.type})
    idle = {step.name for step in PASSES if step.run(region) is region}
    assert idle == {
        "reroll", "bodies", "trim", "hoist", "rewind", "added", "sums", "keepdims", "rows", "parts", "unstack", "dce",
        "row_updates", "pads",
    }  # fmt: skip


def recurrence(turns: int) -> Declared:
    x, rows = sg.placeholder((8,), "float64"), sg.placeholder((turns, 8), "float64")
    y = x
    for turn in range(turns):
        y = sg.tanh(y * 0.5 + rows[turn])
    return [y, *sg.gradients(sg.sum(y), [x, rows])], [x, rows]


@pytest.mark.wide
def test_twice_as_many_turns_of_an_unrolled_loop_take_twice_as_many_calls() -> None:
    few, many = calls(recurrence, 800, ""), calls(recurrence, 1600, "")
    assert many.total() < 2.2 * few.total()
    grown = {who: (few[who], many[who]) for who in many if many[who] > max(3 * few[who], 2000)}
    assert not grown, "a function is called in proportion to the square"


def test_the_text_of_a_large_value_copies_nothing_of_it() -> None:
    """Each program has the text of its graph, in which large values are but a number of bytes."""
    with sg.Graph() as graph:
        sg.Variable(np.arange(1 << 20, dtype=np.float32))
        sg.constant(np.arange(1 << 20, dtype=np.float32))
    tracemalloc.start()
    try:
        text = print_nodes(graph.nodes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert text.count("<4194304 bytes>") == 2
    assert peak < 1 << 18


def test_a_tiling_is_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of fewer rows may give the same panels, and a mask on the last vector none."""
    made: list[tiles.Tiling] = []
    honest = tiles.tiling_cost

    def tiling_cost(tiling: tiles.Tiling, depth: int) -> float:
        made.append(tiling)
        return honest(tiling, depth)

    monkeypatch.setattr(tiles, "tiling_cost", tiling_cost)
    for m, n in ((10, 64), (128, 512), (7, 48), (100, 1000)):
        tiles.tilings(AVX512, np.dtype(np.float32), m, n, 64)
    assert len(made) == len(set(made))


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_costs_are_counted_once_for_all_axes_along_which_vectors_may_lie(
    axes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    honest = nest_costs.cost_of

    def cost_of(nest: Nest, number: int) -> int:
        counted.append(number)
        return honest(nest, number)

    monkeypatch.setattr(nest_costs, "cost_of", cost_of)
    strides = tuple(64**axis for axis in range(axes))
    int16 = np.dtype("int16")  # too short for tiles
    read, write = Access(0, 0, strides), Access(1, 0, strides)
    nest = Nest((64,) * axes, (), (int16, int16), (
        Load(read, int16), Compute("square", NO_ATTRIBUTES, (0,), int16), Store(write, 1),
    ))  # fmt: skip
    choose_vector(nest, analyse(nest), AVX2)
    assert sorted(counted) == [0, 1, 2]


@pytest.mark.parametrize("declare", [running_sum, sum_of_short_reductions])
def test_no_function_grows_with_the_number_of_operands(declare: Callable[[int], Declared]) -> None:
    """The code generator takes longer than in proportion for a long function."""
    lengths = []
    for terms in (1500, 3000) if declare is running_sum else (30, 60):
        functions = compiled_text(declare, terms).split("\ndefine ")[1:]
        lengths.append(max(function.count("\n") for function in functions))
    assert lengths[1] < 1.3 * lengths[0] < 8000, lengths


def test_what_many_steps_make_and_many_read_is_ordered_without_naming_each_pair() -> None:
    shared = Temp("stacked", 800, "read by many", None)
    makers = [Step(f"make{i}", "pointwise", None, (), (), (), adds=(shared,), serial=i) for i in range(100)]
    readers = [Step(f"read{i}", "pointwise", None, (), (shared,), (), serial=100 + i) for i in range(100)]
    before = dependencies([*readers, *makers])
    assert sum(map(len, before.values())) <= 200
    assert ancestors(readers[:1], before) == set(makers)
    assert schedule([*readers, *makers]) == [*makers, *readers]


def test_writes_that_are_in_the_way_are_deferred_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering is tried again where some are, not for each."""
    tries = []

    class Counted(lower.Lowering):
        def run(self) -> lower.Steps:
            tries.append(len(self.deferred))
            return super().run()

    monkeypatch.setattr(lower, "Lowering", Counted)
    with sg.Graph() as graph:
        x = sg.placeholder((8, 8), "float32")
        variables = [sg.Variable(np.arange(64.0, dtype=np.float32).reshape(8, 8)) for _ in range(12)]
        update = sg.group(*(sg.assign(v, v.T + x) for v in variables))
    session = sg.Session(graph)
    session.run(update, {x: np.ones((8, 8), np.float32)})
    assert tries == [0, 12]
    for v in variables:
        np.testing.assert_array_equal(session.get(v), np.arange(64.0).reshape(8, 8).T + 1)


def test_loops_are_trimmed_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(loops, "rebuild", lambda *args: calls.append(args) or rebuild(*args))
    with sg.Graph() as graph:
        fetches, feeds = many_loops(8)
        region = cut(graph, fetches, {x: x.type for x in feeds})
    trimmed = [node for node in loops.trim(region).graph.nodes if node.op.name == "scan"]
    assert [len(node.outputs) for node in trimmed] == [1] * 8
    assert len(calls) == 1


# -- very many programs in one process ------------------------------------------------------------------------------


class Heap(ctypes.Structure):
    """What the C library's allocator tells of itself (``mallinfo2``), in bytes."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks", "used", "fordblks", "keepcost",
    )]  # fmt: skip


def heap_bytes() -> int:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("this C library does not tell how much memory is in use")
    library.mallinfo2.restype = Heap
    heap: Heap = library.mallinfo2()
    return int(heap.used + heap.mapped)


def test_no_constant_of_a_program_stays_in_llvm() -> None:
    """In LLVM's global context they stay for ever: some kilobytes of each program."""

    def compiled(number: int) -> None:
        sums = "\n".join(f"  %a{i + 1} = fadd double %a{i}, {number * 40 + i + 0.5:e}" for i in range(40))
        codegen.objects([f"define double @f(double %a0) #0 {{\n{sums}\n  ret double %a40\n}}\n"], AVX2)

    for number in range(20):
        compiled(number)
    gc.collect()
    before = heap_bytes()
    for number in range(20, 120):
        compiled(number)
    gc.collect()
    assert heap_bytes() - before < 100 * 400


def test_a_program_that_is_gone_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither objects, beside the compiler's bounded caches, nor mappings of machine code."""
    monkeypatch.setenv("STATICGRAD_CACHE", "0")

    def used(first: int) -> tuple[int, int]:
        for number in range(first, first + 12):
            with sg.Graph() as graph:
                x = sg.placeholder((3 + number % 5,), "float64", requires_grad=True)
                y = sg.sum(sg.tanh(x * float(number + 1)))
                run = sg.Session(graph).compile(y, [x])
            value = np.ones(3 + number % 5)
            run(value)
            with sg.Session(graph) as session:
                session.forward(y, {x: value}).backward(y)
        del graph, x, y, run, session
        caches = [cached for cached in gc.get_objects() if isinstance(cached, functools._lru_cache_wrapper)]
        for cached in caches:
            if str(cached.__module__).startswith("staticgrad") and cached.cache_parameters()["maxsize"]:
                cached.cache_clear()
        gc.collect()
        with open("/proc/self/maps", encoding="ascii") as mappings:
            return sys.getallocatedblocks(), len(mappings.readlines())

    if not Path("/proc/self/maps").exists():
        pytest.skip("this system does not list a process's mappings")
    used(0)
    (blocks, mappings), (later_blocks, later_mappings) = used(12), used(24)
    assert later_blocks - blocks < 12 * 50
    assert later_mappings - mappings < 5
