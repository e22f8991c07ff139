"""Products of short numbers, drawn: on every instruction set, with its instructions for them or without, they are exact
for int8 and within the rounding of float32 sums for bfloat16; programs of medium precision agree step by step with
NumPy, and with the precision that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.large_checks import environment
from support.selection import rotating, slow
from support.targets import EVERY, EXTENDED

import staticgrad as sg
from staticgrad.base import config
from staticgrad.base.types import dtype_of
from staticgrad.compiler.machine import target as targets
from staticgrad.compiler.machine.machine import small
from staticgrad.compiler.machine.target import Target, current_target, runs_here
from staticgrad.graph.graph import Tensor
from staticgrad.ops.grouped import GROUPINGS, grouped_dot

Array = np.ndarray[Any, np.dtype[Any]]
BF16 = dtype_of("bfloat16")
UNIT = 2.0**-9  # by which rounding to bfloat16 moves a number, as a part of it
COUNT = 400

# The widest set of this machine that takes groups where it can, without any instruction for them.
_PLAIN = current_target()
EMULATED = Target("emulated", replace(_PLAIN.isa, name="emulated", prefers_groups=("bfloat16", "int8")), _PLAIN.machine)
EMULATED_SMALL = Target("emulated-small", EMULATED.isa, small(_PLAIN.machine))


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more targets, by their names."""
    switch = config.SWITCHES["TARGET"]
    for target in (EMULATED, EMULATED_SMALL):
        assert runs_here(target)
        monkeypatch.setitem(targets.TARGETS, target.name, target)
    names = (*switch.values, EMULATED.name, EMULATED_SMALL.name, *EXTENDED)
    monkeypatch.setitem(config.SWITCHES, "TARGET", replace(switch, values=names))


TAKING = [EMULATED.name, EMULATED_SMALL.name, *(name for name in EXTENDED if "bf16" in name)]


# -- products ---------------------------------------------------------------------------------------------------------


@dataclass
class Product:
    """Operands in groups, as arrays for placeholders, and what their product is; ``wide`` bounds its terms."""

    kind: str
    a: Array
    b: Array
    turned: tuple[bool, bool]  # whether each operand's last two axes lie the other way round in memory
    exact: Array
    wide: Array


def drawn_product(seed: int) -> Product:
    rng = np.random.default_rng((seed, 91))
    kind = ("int8", "bfloat16")[seed % 2]
    grouping = GROUPINGS[kind]

    def size(most: int) -> int:
        return int(rng.choice((1, 2, 7, 16, 33, rng.integers(1, most))))

    m, n, k = size(90), size(150), size(300)
    batch = tuple(size(5) for _ in range(rng.choice(3, p=(0.6, 0.3, 0.1))))
    if kind == "int8":
        a, b = rng.integers(0, 256, (*batch, m, k, 4), np.uint8), rng.integers(-128, 128, (*batch, k, n, 4), np.int8)
    else:
        a, b = (rng.standard_normal((*batch, *s, 2)).astype(BF16) for s in ((m, k), (k, n)))
    wide = np.int64 if kind == "int8" else np.float64
    left, right = a.astype(wide), b.astype(wide)
    exact = np.einsum("...mgt,...gnt->...mn", left, right)
    terms = np.einsum("...mgt,...gnt->...mn", np.abs(left), np.abs(right))
    words = rng.random(2) < 0.4
    given = [x.view(np.int32)[..., 0] if word else x for x, word in zip((a, b), words, strict=True)]
    turned = tuple(bool(t) for t in rng.random(2) < 0.5)
    lying = [np.ascontiguousarray(_turn(x, word) if t else x) for x, word, t in zip(given, words, turned, strict=True)]
    assert grouping.terms == a.shape[-1]
    return Product(kind, *lying, turned, exact, terms)  # type: ignore[arg-type]


def _turn(x: Any, word: bool) -> Any:
    return x.swapaxes(-1, -2) if word else x.swapaxes(-2, -3)


def check_product(seed: int, names: Sequence[str]) -> None:
    case = drawn_product(seed)
    with sg.Graph() as graph:
        feeds = [sg.placeholder(x.shape, x.dtype) for x in (case.a, case.b)]
        a, b = (
            (sg.swapaxes(x, -1, -2) if x.dtype == np.int32 else sg.swapaxes(x, -2, -3)) if turned else x
            for x, turned in zip(feeds, case.turned, strict=True)
        )
        y = grouped_dot(a, b, case.kind)  # type: ignore[arg-type]
        scaled = sg.nn.relu(sg.astype(y, sg.float32) * 0.5)
    fetches = ([y], [scaled], [y, scaled])[seed % 3]
    for name in names:
        for threads in (1, 2):
            with environment(TARGET=name, CACHE="0"), sg.Session(graph, num_threads=threads) as session:
                found = session.run(fetches, dict(zip(feeds, (case.a, case.b), strict=True)))
            for got, x in zip(found, fetches, strict=True):
                want = case.exact if x is y else np.maximum(case.exact.astype(np.float64) * 0.5, 0)
                if case.kind == "int8" and x is y:
                    np.testing.assert_array_equal(got, want, err_msg=f"seed {seed} on {name}")
                else:
                    room = (case.a.size + 4) * 2.0**-24 * case.wide if case.kind == "bfloat16" else 2.0**-23 * case.wide
                    assert (np.abs(got - want) <= room + 1e-30).all(), f"seed {seed} on {name}, {threads} threads"


NAMES = [*EVERY, *EXTENDED, EMULATED.name, EMULATED_SMALL.name]
CHUNK = 8


def chunks(count: int) -> list[Any]:
    found = [range(at, at + CHUNK) for at in range(0, count, CHUNK)]
    return [*rotating(found[: len(found) // 4]), *map(slow, found[len(found) // 4 :])]


@pytest.mark.parametrize("seeds", chunks(COUNT), ids=lambda seeds: str(seeds[0]))
def test_products_of_groups_are_right_on_every_target(seeds: range) -> None:
    for seed in seeds:
        check_product(seed, [NAMES[(seed + i * len(NAMES) // 3) % len(NAMES)] for i in range(3)])


# -- programs of medium precision -------------------------------------------------------------------------------------


def drawn_network(seed: int) -> tuple[sg.Graph, list[Tensor], dict[Tensor, Array]]:
    """A small network that multiplies matrices in some ways, with gradients; of bfloat16 tensors now and then."""
    rng = np.random.default_rng((seed, 92))
    dtype = BF16 if seed % 4 == 3 else np.dtype(np.float32)
    rows, width, out = (int(rng.integers(1, 70)) for _ in range(3))

    def values(*shape: int) -> Array:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32).astype(dtype)

    feeds: dict[Tensor, Array] = {}

    def feed(*shape: int) -> Tensor:
        x = sg.placeholder(shape, dtype)
        feeds[x] = values(*shape)
        return x

    graph = sg.Graph()
    with graph:
        x = feed(rows, width)
        w = sg.Variable(values(out, width)) if rng.random() < 0.4 else feed(out, width)
        match int(rng.integers(5)):
            case 0:
                y = sg.tanh(sg.nn.linear(x, w)) @ feed(out, width)
            case 1:
                y = sg.sin(x @ w.T) @ w
            case 2:
                q, k = feed(2, 3, rows, width), feed(2, 3, rows, width)
                y = sg.nn.softmax(q @ sg.swapaxes(k, -1, -2), -1) @ k + x
            case 3:
                square = feed(width, width)
                y, _ = sg.scan(lambda h, row: (sg.tanh(h @ square + row), h), x, sg.stack([x, x * 0.5, x * 0.25]))
            case _:
                y = sg.nn.gelu(feed(width, rows).T @ feed(width, out)) @ w
        loss = sg.sum(sg.square(sg.astype(y, sg.float32)))
        leaves = [p for p in (x, w) if p is not None]
        fetches = [y, *(g for g in sg.gradients(loss, leaves) if g is not None)]
    return graph, fetches, feeds


def check_network(seed: int, name: str) -> None:
    graph, fetches, feeds = drawn_network(seed)
    found = []
    plan = (("medium", 1, "2"), ("medium", 2, "0"), ("highest", 1, "0"))
    for precision, threads, verify in plan:
        with (
            environment(TARGET=name, CACHE="0", VERIFY=verify),
            sg.Session(graph, num_threads=threads, matmul_precision=precision) as session,  # type: ignore[arg-type]
        ):
            found.append([np.asarray(y).astype(np.float64) for y in session.run(fetches, feeds)])
    for one, two, highest in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=f"seed {seed} on {name}: threads differ")
        off, size = (np.sqrt(np.mean(np.square(y))) for y in (one - highest, highest))
        assert off <= 16 * UNIT * size + 1e-6, f"seed {seed} on {name}: off by {off / size:.2e}"


@pytest.mark.parametrize("seeds", chunks(COUNT // 2), ids=lambda seeds: str(seeds[0]))
def test_programs_of_medium_precision_are_right_step_by_step(seeds: range) -> None:
    for seed in seeds:
        check_network(seed, TAKING[seed // 4 % len(TAKING)])


def test_instructions_and_their_emulation_give_the_same_bits() -> None:
    """But for denormal numbers, which no drawn program has here."""
    with_instructions = [name for name in EXTENDED if "bf16" in name and not name.endswith("-small")]
    if not with_instructions or EMULATED.isa.vector_bytes != 64:
        pytest.skip("this processor has no instruction for products of bfloat16")
    for seed in range(40):
        graph, fetches, feeds = drawn_network(seed)
        found = []
        for name in (with_instructions[0], EMULATED.name):
            with environment(TARGET=name, CACHE="0"), sg.Session(graph, matmul_precision="medium") as session:
                found.append(session.run(fetches, feeds))
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}")
