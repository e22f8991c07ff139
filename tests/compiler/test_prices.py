"""What each hook, retained gradient, print and callback adds, in the reports of programs and tapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.nets import deep

import staticgrad as sg
from staticgrad.compiler.prices import Price

Priced = Callable[[sg.Tensor, sg.Tensor], tuple[Price, ...]]
SIZE = 64
BYTES = SIZE * SIZE * 4
FEED = np.ones((SIZE, SIZE), np.float32)


def tape_prices(x: sg.Tensor, loss: sg.Tensor) -> tuple[Price, ...]:
    return sg.Session(x.graph).forward(loss, {x: FEED}).memory.prices


def program_prices(x: sg.Tensor, loss: sg.Tensor) -> tuple[Price, ...]:
    (dx,) = sg.gradients(loss, [x])
    return sg.Session(x.graph).compile([loss, dx], [x]).memory.prices


BOTH = pytest.mark.parametrize("price_all", [tape_prices, program_prices])


@BOTH
def test_without_interventions_nothing_is_priced(g: sg.Graph, price_all: Priced) -> None:
    x, y, _ = deep(SIZE, 4)
    assert price_all(x, sg.sum(y * y)) == ()


@BOTH
def test_a_symbolic_hook_is_fused(g: sg.Graph, price_all: Priced) -> None:
    x, y, between = deep(SIZE, 4)

    def doubled(grad: sg.Tensor) -> sg.Tensor:
        return grad * 2

    between[2].register_hook(doubled)
    (price,) = price_all(x, sg.sum(y * y))
    assert "doubled" in price.what
    assert between[2].name in price.what
    assert (price.kept_bytes, price.arena_bytes, price.kernels, price.moved_bytes) == (0, 0, 0, 0)
    assert price.source is not None
    assert "def doubled" in price.source.text


@BOTH
def test_a_retained_gradient_costs_its_tensor(g: sg.Graph, price_all: Priced) -> None:
    x, y, between = deep(SIZE, 4)
    between[1].retain_grad()
    (price,) = price_all(x, sg.sum(y * y))
    assert price.what == f"retain_grad of {between[1].name!r}"
    assert price.kept_bytes == BYTES
    assert price.arena_bytes <= 0
    assert price.moved_bytes >= BYTES  # it is written where it was not before
    assert price.source == between[1].source


@BOTH
@pytest.mark.parametrize("at", [0, 1, 4, 6])
def test_a_print_far_down_keeps_no_gradients_of_weights_waiting(g: sg.Graph, price_all: Priced, at: int) -> None:
    """They waited for every print, since one may fail, and what they are made of was alive till then."""
    x, y, between = deep(SIZE, 8)
    between[at].register_hook(lambda grad: sg.print(grad, "between"))
    (price,) = price_all(x, sg.sum(y * y))
    assert price.arena_bytes <= 0


@BOTH
def test_a_hook_that_prints_costs_no_arena(g: sg.Graph, price_all: Priced, capsys: pytest.CaptureFixture[str]) -> None:
    x, y, between = deep(SIZE, 4)
    loss = sg.sum(y * y)
    loss.register_hook(lambda grad: sg.print(grad, "loss"))
    between[1].register_hook(lambda grad: sg.print(grad, "between"))
    prices = price_all(x, loss)
    assert len(prices) == 2  # a print inside a hook belongs to the hook
    assert [price.arena_bytes for price in prices] == [0, 0]
    assert [price.kept_bytes for price in prices] == [0, 0]


def test_a_hook_that_reads_the_forward_keeps_what_it_reads(g: sg.Graph) -> None:
    x, y, between = deep(SIZE, 4)
    kept, read = between[0], sg.exp(between[1])
    between[3].register_hook(lambda grad: grad * kept)
    between[2].register_hook(lambda grad: grad * read)
    assert [p.kept_bytes for p in tape_prices(x, sg.sum(y * y))] == [0, BYTES]


def test_a_callback_is_compared_with_fed_results(g: sg.Graph) -> None:
    x = sg.placeholder((SIZE, SIZE))

    def squared(a: np.ndarray) -> np.ndarray:
        return a * a

    (z,) = sg.py_call(squared, [sg.exp(x)], [(sg.float32, (SIZE, SIZE))])
    (price,) = sg.Session(g).compile(sg.sum(z), [x]).memory.prices
    assert price.what == "py_call of squared"
    assert price.arena_bytes >= 2 * BYTES - 64  # what it is given and gives; the sum's place is needed anyway
    assert price.kernels == 1  # exp


def test_the_memory_of_a_tape_prints_where_a_custom_rule_calls_python(g: sg.Graph) -> None:
    """It ended in KeyError: what a rule declares is in the tape's own continuation of the graph alone."""

    def outside(scale: float, v: sg.Tensor) -> sg.Tensor:
        def scaled(a: np.ndarray) -> np.ndarray:
            return (scale * a).astype(np.float32)

        return sg.py_call(scaled, [sg.stop_gradient(v)], [(v.dtype, v.shape)])[0]

    @sg.custom_gradient
    def doubled(v: sg.Tensor) -> Any:
        known = sg.exp(v)
        return outside(2, v), lambda ct: outside(3, known) * outside(4, ct)

    x = sg.placeholder((SIZE, SIZE), requires_grad=True)
    loss = sg.sum(doubled(x * 2.0))
    sess = sg.Session(g)
    tape = sess.forward(loss, {x: FEED})
    assert str(tape.memory).count("py_call of scaled") == 3  # of the function, and of its rule before and after
    assert [price.kernels for price in tape.memory.prices] == [0, 1, 1]  # the first reads what is fused with more
    assert all(price.kept_bytes == 0 for price in tape.memory.prices)
    tape.backward(loss)
    np.testing.assert_allclose(sess.grad(x), 24 * np.exp(2 * FEED), rtol=1e-6)


def test_a_print_in_a_custom_rule_has_a_price(g: sg.Graph, capfd: pytest.CaptureFixture[str]) -> None:
    @sg.custom_gradient
    def shown(v: sg.Tensor) -> Any:
        def rule(ct: sg.Tensor) -> sg.Tensor:
            return sg.print(ct * sg.print(sg.exp(v), "value"), "gradient") * 2

        return v * 2, rule

    x = sg.placeholder((SIZE, SIZE), requires_grad=True)
    loss = sg.sum(sg.sin(shown(x * 2.0)))
    prices = sg.Session(g).forward(loss, {x: FEED}).memory.prices
    assert [price.what for price in prices] == ["print of 'exp'", "print of 'multiply_2'"]
    assert prices[1].kernels == 1


def test_a_print_between_two_fused_ops_parts_them(g: sg.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    x = sg.placeholder((SIZE, SIZE))
    y = sg.print(sg.exp(x), "middle") * 2
    exe = sg.Session(g).compile(y, [x])
    (price,) = exe.memory.prices
    assert price.kernels == 1
    assert price.arena_bytes == BYTES
    assert price.moved_bytes == 2 * BYTES
    assert price.what in str(exe.memory)
    np.testing.assert_allclose(exe(FEED), np.exp(FEED) * 2, rtol=1e-6)


def test_hooks_of_one_tensor_are_priced_one_by_one(g: sg.Graph) -> None:
    x, y, between = deep(SIZE, 4)
    between[2].register_hook(lambda grad: grad * 2)
    between[2].register_hook(lambda grad: sg.sum(grad, axis=0) + grad)
    assert len(tape_prices(x, sg.sum(y * y))) == 2


def test_pricing_changes_nothing(g: sg.Graph) -> None:
    x, y, between = deep(SIZE, 4)
    between[1].retain_grad()
    loss = sg.sum(y * y)
    sess = sg.Session(g)
    tape = sess.forward(loss, {x: FEED})
    nodes, compiled = len(g.nodes), sess.compile_count
    before = tape.memory
    assert "retain_grad" in str(before)
    assert (len(g.nodes), sess.compile_count) == (nodes, compiled)
    tape.backward(loss)
    assert sess.grad(between[1]) is not None


@BOTH
def test_prices_print_as_a_table(g: sg.Graph, price_all: Priced) -> None:
    """They printed as a tuple of dataclasses."""
    x, y, between = deep(SIZE, 4)
    between[1].retain_grad()
    prices = price_all(x, sg.sum(y * y))
    header, row = str(prices).splitlines()
    assert header.split("  ")[0] == "adds"
    assert row.startswith(f"retain_grad of {between[1].name!r}")
    assert f"+{BYTES}" in row
    assert repr(prices) == f"<prices: {prices[0].what}>"
    assert "<td" in prices._repr_html_()  # type: ignore[attr-defined]
    assert between[1].name in prices._repr_html_()  # type: ignore[attr-defined]


def test_no_prices_print_as_a_line(g: sg.Graph) -> None:
    x, y, _ = deep(SIZE, 2)
    prices = tape_prices(x, sg.sum(y * y))
    assert prices == ()
    assert str(prices) == "no hook, retained gradient, print or callback"
