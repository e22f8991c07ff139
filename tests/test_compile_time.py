"""Compilation of large graphs: what keeps the work proportional to the number of ops, and that it stays right."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import networkx as nx
import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.emit import entry
from staticgrad.compiler.lowering import fuse
from staticgrad.compiler.lowering import order as orders
from staticgrad.compiler.lowering.order import Order, Ordered
from staticgrad.compiler.memory import placement
from staticgrad.compiler.memory.checker import check
from staticgrad.compiler.memory.placement import Interval, place
from staticgrad.phases import phase, watched

orders_of = placement._orders

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


def test_a_long_chain_is_cut_into_short_bodies_where_its_values_stay_in_cache() -> None:
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
    assert run.memory.arena_bytes <= 3 * 16 * 16 * 4


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
