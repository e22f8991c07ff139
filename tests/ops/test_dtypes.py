"""Dtypes of all widths: integers of 8 to 64 bits; floats of 16 bits, which are kept short and computed in float32."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sampling import Array, operand_dtypes, operands, relative_error
from support.selection import slow
from support.targets import HERE

import staticgrad as sg
from staticgrad.base.types import FLOATS, INTEGERS, is_floating
from staticgrad.graph.optable import OPS, Op
from staticgrad.ops.control.bodies import bodies_of

SHORT = [np.dtype("float16"), sg.bfloat16]


def run(fetches: Any, feeds: Any = None, **options: Any) -> Any:
    return sg.Session(**options).run(fetches, feeds)


@pytest.fixture(autouse=True)
def _graph() -> None:
    sg.reset_default_graph()


# -- lists ----------------------------------------------------------------------------------------------------------


def test_lists_of_python_numbers_take_the_dtype_of_the_floats_that_they_meet() -> None:
    for dtype in FLOATS:
        x = sg.placeholder((2,), dtype)
        for numbers in ([1, 2], (0.5, 2), [[True, False], [0, 1]]):
            assert (x + numbers).dtype == (numbers * x).dtype == sg.where(x > 0, x, numbers).dtype == dtype
    exact = sg.constant(np.ones(2)) * [0.1, 0.2]
    assert run(exact).tolist() == [0.1, 0.2]


def test_lists_that_meet_no_float_or_hold_numpy_scalars_are_arrays() -> None:
    i, x = sg.placeholder((2,), sg.int32), sg.placeholder((2,))
    assert (i * [1, 2]).dtype == sg.int64
    assert (i * [0.5, 1]).dtype == sg.float64
    assert (x * [np.float32(1), np.float32(2)]).dtype == sg.float32
    with pytest.warns(sg.PromotionWarning):
        assert (x * [np.int64(1), np.int64(2)]).dtype == sg.float64


# -- numbers and lists with a dtype ----------------------------------------------------------------------------------

# What a conversion on the way, to float32 or float64, or to int64, would change.
EXACT: dict[str, list[Any]] = {
    "float64": [1 / 3, 1e-60, 1e300],
    "int64": [2**53 + 1, -(2**53) - 1, 2**62 + 1],
    "uint64": [2**63 + 1, 1, 2**64 - 1],
}
Ways = dict[str, tuple[Any, Any]]


def _declared_by_name(n: Any, ns: list[Any], kind: Any) -> Ways:
    """Each function that is told the dtype, and the numbers that its result shall have."""
    return {
        "asarray": (sg.asarray(n, dtype=kind), n),
        "asarray of a list": (sg.asarray([ns, ns], dtype=kind), [ns, ns]),
        "constant": (sg.constant(n, kind), n),
        "constant of a list": (sg.constant(ns, kind), ns),
        "astype": (sg.astype(n, kind), n),
        "astype of a list": (sg.astype(ns, kind), ns),
        "full": (sg.full(2, n, dtype=kind), [n, n]),
        "full_like": (sg.full_like([0, 0], n, dtype=kind), [n, n]),
        "Variable": (sg.Variable(n, dtype=kind) + 0, n),
        "Variable of a list": (sg.Variable(ns, dtype=kind) + 0, ns),
        "init.constant": (sg.Variable(sg.init.constant(n), shape=(2,), dtype=kind) + 0, [n, n]),
        "sum": (sg.sum([n], dtype=kind), n),
        "prod": (sg.prod([n], dtype=kind), n),
        "cumulative_sum": (sg.cumulative_sum([n], dtype=kind), [n]),
        "cumulative_prod": (sg.cumulative_prod([n], dtype=kind), [n]),
        "trace": (sg.linalg.trace([[n]], dtype=kind), n),
        "py_call": (sg.py_call(lambda: n, [], [(kind, ())])[0], n),
    }


def _beside_tensors(n: Any, ns: list[Any], kind: Any) -> Ways:
    """Each function in which a number or a list takes the dtype of a tensor."""
    o = sg.constant(np.zeros(len(ns), kind))
    one, kept = o[0], sg.Variable(np.zeros(len(ns), kind))
    most, rest = max(ns), [0] * (len(ns) - 1)
    return {
        "full_like": (sg.full_like(o, n), [n] * len(ns)),
        "add": (o + n, [n] * len(ns)),
        "equal": (sg.equal(sg.constant(np.array(n, kind)), n), True),
        "where": (sg.where(sg.constant(True), n, one), n),
        "clip": (sg.clip(one, n, n), n),
        "pad": (sg.pad(o[:1], (1, 0), value=n), [n, 0]),
        "nn.pad": (sg.nn.pad(o[:1], (1, 0), value=n), [n, 0]),
        "stack": (sg.stack([one, n]), [0, n]),
        "concat": (sg.concat([o, ns]), [0] * len(ns) + ns),
        "scatter": (sg.scatter(o, 0, n), [n, *rest]),
        "scatter of a list": (sg.scatter(o, slice(None), ns), ns),
        "scatter at duplicates": (sg.scatter(o, [0] * len(ns), ns, mode="max"), [most, *rest]),
        "assign": (sg.identity(sg.assign(kept, n)), [n] * len(ns)),
        "scan": (sg.scan(lambda carry, _: (n, carry), one, None, length=2)[0], n),
        "while_loop": (sg.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, n), (sg.constant(0), one))[1], n),
        "cond": (sg.cond(sg.constant(True), lambda: n, lambda: one), n),
    }


def _of_floats(n: float, ns: list[float], kind: Any) -> Ways:
    """What takes floats alone: gradients, random numbers, losses, layers, conditions."""
    x = sg.constant(np.ones(len(ns)))
    hooked, written = sg.Variable(np.ones(len(ns))), sg.Variable(np.zeros(len(ns)))
    hooked.register_hook(lambda grad: grad * 0 + ns)

    @sg.custom_gradient
    def custom(x: Any) -> Any:
        return x * 1.0, lambda ct: [ns]

    linear = sg.nn.Linear(len(ns), 1, bias=False, dtype=kind)
    weight = sg.assign(linear.weight, [[1.0, 0.0, 0.0]])
    with sg.control_dependencies([weight]):
        layer = sg.nn.linear(ns, sg.identity(weight))
    norm = sg.nn.BatchNorm1d(1, eps=0.0, dtype=kind).eval()
    return {
        "where of lists": (sg.where(x > 0, ns, x), ns),
        "a list beside integers": (sg.add(sg.constant(np.zeros(1, np.int64)), [n]), [n]),
        "clip to a list": (sg.clip(x * 0, ns), ns),
        "assign of a list": (sg.identity(sg.assign(written, ns)), ns),
        "arange": (sg.arange(n, 2 * n, n, dtype=kind), [n]),
        "linspace": (sg.linspace(n, n, 1, dtype=kind), [n]),
        "einsum": (sg.einsum("i,i->i", x, ns), ns),
        "power": (n**x, [n] * len(ns)),
        "grad_ys": (sg.gradients(x * 1.0, [x], grad_ys=ns)[0], ns),
        "jvp": (sg.jvp(x * 1.0, x, ns)[0], ns),
        "custom_gradient": (sg.gradients(custom(x), [x])[0], ns),
        "hook": (sg.gradients(hooked * 1.0, [hooked])[0], ns),
        "uniform": (sg.random.uniform((2,), n, n, dtype=kind), [n, n]),
        "uniform between lists": (sg.random.uniform((len(ns),), ns, ns, dtype=kind), ns),
        "normal": (sg.random.normal((len(ns),), ns, 0.0, dtype=kind), ns),
        "mse_loss": (sg.nn.mse_loss(sg.constant(np.array(ns[:2])), ns[:2]), 0.0),
        "linear": (layer, [n]),
        "BatchNorm1d": (norm([[n]]), [[n]]),
        "condition": (sg.where([1e-60], 1, 0), [1]),
        "logical_not": (sg.logical_not(1e-60), False),
        "any": (sg.any([1e-60]), True),
    }


@pytest.mark.parametrize("dtype", EXACT)
def test_numbers_and_lists_are_converted_once_wherever_they_are_declared(dtype: str) -> None:
    ns, kind = EXACT[dtype], np.dtype(dtype)
    ways = {f"{key}, by name": way for key, way in _declared_by_name(ns[0], ns, kind).items()}
    ways |= {f"{key}, beside a tensor": way for key, way in _beside_tensors(ns[0], ns, kind).items()}
    if dtype == "float64":
        ways |= _of_floats(ns[0], ns, kind)
    got = run({key: x for key, (x, _) in ways.items()})
    changed = {key: got[key].tolist() for key, (_, wanted) in ways.items() if got[key].tolist() != wanted}
    assert not changed


@pytest.mark.parametrize("dtype", EXACT)
def test_numbers_and_lists_are_converted_once_where_a_session_takes_them(dtype: str) -> None:
    ns, kind = EXACT[dtype], np.dtype(dtype)
    x, xs = sg.placeholder((), kind), sg.placeholder((len(ns),), kind)
    w, module = sg.Variable(np.zeros(len(ns), kind)), sg.nn.Module()
    module.w = w
    with sg.Session() as sess:
        assert [y.tolist() for y in sess.run([x + 0, xs + 0], {x: ns[0], xs: ns})] == [ns[0], ns]
        sess.set(w, ns)
        assert sess.get(w).tolist() == ns
        sess.set(w, [0] * len(ns))
        module.load_state_dict(sess, {"w": ns})
        assert sess.get(w).tolist() == ns
        if kind.kind != "f":
            with pytest.raises(sg.FormatError, match=f"0.5 is no {dtype}"):
                module.load_state_dict(sess, {"w": [0.5, 1, 2]})


def test_large_integers_are_rounded_once_to_float32() -> None:
    n = 2**60 + 2**36 + 1  # just above the middle of two float32; rounded to float64 first it is the middle
    x = sg.placeholder((1,))
    made = [sg.asarray(n, dtype=sg.float32), sg.constant([n], sg.float32), sg.add(np.zeros(1, np.float32), [n])]
    assert [float(np.ravel(y)[0]) for y in [*run(made), run(x + 0, {x: [n]})]] == [2.0**60 + 2.0**37] * 4


def test_integers_that_no_dtype_holds_together_are_refused_and_not_rounded() -> None:
    for numbers in ([2**63, -1], [2**64, 1]):
        with pytest.raises(sg.GraphError, match=r"out of bounds|expected an array|not supported"):
            sg.constant(numbers)
    assert run(sg.constant([2**63 + 1, 1])).tolist() == [2**63 + 1, 1]
    with pytest.raises(sg.GraphError, match="out of bounds"):
        sg.asarray(-1, dtype=sg.uint8)
    with pytest.raises(sg.GraphError, match="out of bounds"):
        sg.pad(sg.constant(np.zeros(2, np.uint8)), 1, value=-1)
    assert run(sg.astype(-1, sg.uint8)) == 255  # which converts as it converts tensors


def test_ranges_beyond_int64_are_exact_as_uint64() -> None:
    low = 2**63 + 1
    ways = [
        sg.arange(low, low + 3, dtype=sg.uint64), sg.arange(low + 4, low, -2, dtype=sg.uint64),
        sg.random.randint((2,), low, low + 1, dtype=sg.uint64),
        sg.random.randint((1,), 2**64 - 1, 2**64, dtype=sg.uint64),
    ]  # fmt: skip
    assert [x.tolist() for x in run(ways)] == [[low, low + 1, low + 2], [low + 4, low + 2], [low] * 2, [2**64 - 1]]
    with pytest.raises(sg.GraphError, match="out of range for int64"):
        sg.arange(low, low + 3)


# -- conversions ----------------------------------------------------------------------------------------------------


def near_ties(dtype: np.dtype) -> Array:
    """Doubles on, just above and just below the middle of neighbours of a short dtype."""
    bits = np.arange(0, 0x8000, 7, np.uint16)
    with np.errstate(all="ignore"):
        low = bits.view(dtype).astype(np.float64)
        high = (bits + np.uint16(1)).view(dtype).astype(np.float64)
        middle = (low + high) / 2
        found = np.concatenate([middle, middle * (1 + 1e-7), middle * (1 - 1e-7), middle * (1 + 1e-13), low])
    return np.concatenate([found, -found, [65519.99, 65520.0, 1e39, -1e-46, np.inf, -np.inf, np.nan, 0.0, -0.0]])


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_conversions_round_as_numpy_does(target: str, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    doubles = near_ties(dtype)
    wholes = np.array([0, 1, -1, 257, 2049, -2051, 65519, 65520, 10**9], np.int64)
    with np.errstate(all="ignore"):
        singles = doubles.astype(np.float32)
        expected: list[Array] = [
            patterns.astype(np.float32), patterns.astype(np.float64), patterns.astype(np.float32) != 0,
            singles.astype(dtype), doubles.astype(dtype), wholes.astype(dtype), (wholes != 0).astype(dtype),
        ]  # fmt: skip
    x, s, d, n = map(sg.constant, (patterns, singles, doubles, wholes))
    fed = {f: f.op.attrs.value for f in (x, s, d, n)}
    actual = run([x.astype("float32"), x.astype("float64"), x.astype(bool), s.astype(dtype), d.astype(dtype),
                  n.astype(dtype), n.astype(bool).astype(dtype)], fed)  # fmt: skip
    for got, want in zip(actual, expected, strict=True):
        assert got.dtype == want.dtype
        with np.errstate(all="ignore"):
            got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(got, want)
        numbers = ~np.isnan(want)  # zeros with their signs
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


BEYOND = [math.nan, math.inf, -math.inf, 1e30, -1e30, -0.5, -3.7, -300.0, 255.9, 40000.0, 65541.0, *(
    sign * 2.0**power + rest for sign in (1, -1) for power in (15, 31, 32, 33, 40, 62, 63, 64) for rest in (0, 0.5, 7)
)]  # fmt: skip


@pytest.mark.parametrize("target", [*HERE, "reference"])
@pytest.mark.parametrize("dtype", [*SHORT, *FLOATS], ids=str)
def test_floats_that_no_integer_equals_become_what_numpy_makes_of_one_of_them(
    target: str, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND" if target == "reference" else "STATICGRAD_TARGET", target)
    with np.errstate(all="ignore"):
        values = np.array(BEYOND * 3).astype(dtype)  # of many at once NumPy makes several things as uint32
        expected = [np.array([x.astype(to) for x in values]) for to in INTEGERS]
    x = sg.placeholder(values.shape, dtype)
    for got, want in zip(run([x.astype(to) for to in INTEGERS], {x: values}), expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_what_is_only_moved_keeps_its_bits(dtype: np.dtype) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(256, 256)  # signalling NaNs too
    p = sg.placeholder(x.shape, dtype)
    moved = [p.T, p[3:9, ::-1], sg.concat([p, p], axis=1), p.reshape(-1), p[[5, 3]], sg.roll(p, 3, axis=0),
             sg.broadcast_to(p[:1], (4, 256)), p.astype("float32").astype(dtype)]  # fmt: skip
    wanted = [x.T, x[3:9, ::-1], np.concatenate([x, x], 1), x.reshape(-1), x[[5, 3]], np.roll(x, 3, 0),
              np.broadcast_to(x[:1], (4, 256)), x]  # fmt: skip
    for got, want in zip(run(moved, {p: x}), wanted, strict=True):
        assert got.dtype == dtype
        assert got.view(np.uint16).tolist() == np.ascontiguousarray(want).view(np.uint16).tolist()


# -- ops ------------------------------------------------------------------------------------------------------------


def of_floats(op: Op) -> bool:
    return bool(op.cases) and not op.effect and not (op.dtypes and np.float32 not in op.dtypes)


TESTED = sorted((op for op in OPS.values() if of_floats(op)), key=lambda op: op.name)


def check_op(op: Op, number: int, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    case = op.cases[number % len(op.cases)]
    dtypes = operand_dtypes(case, dtype)
    arrays = [a.astype(d) for a, d in zip(operands(op, case, np.dtype(np.float32)), dtypes, strict=True)]
    graph = sg.get_default_graph()
    xs = [sg.placeholder(a.shape, d) for a, d in zip(arrays, dtypes, strict=True)]
    ys = list(graph.add(op, xs, case.attrs).outputs)
    feeds = dict(zip(xs, arrays, strict=True))
    compiled = run(ys, feeds)
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with np.errstate(all="ignore"):
        reference = run(ys, feeds)
    for y, got, want in zip(ys, compiled, reference, strict=True):
        assert got.dtype == y.dtype
        short = y.dtype in SHORT
        step = float(sg.finfo(y.dtype).eps) if short else 3e-6 * op.tolerance
        wide = (got.astype(np.float32), want.astype(np.float32)) if short else (got, want)
        assert relative_error(*wide) <= step, f"{op.name} {case}: {got} expected {want}"


@pytest.mark.share(3)
@pytest.mark.parametrize("op", TESTED, ids=lambda op: op.name)
def test_ops_of_short_floats_equal_their_references(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    check_op(op, 0, SHORT[len(op.name) % 2], monkeypatch)


@pytest.mark.parametrize(
    ("op", "number", "dtype"),
    [slow(op, number, dtype) for op in TESTED for number in range(len(op.cases)) for dtype in SHORT],
    ids=lambda value: value.name if isinstance(value, Op) else str(value),
)
def test_ops_of_short_floats_in_all_their_cases(
    op: Op, number: int, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_op(op, number, dtype, monkeypatch)


def check_derivatives(op: Op, number: int, dtype: np.dtype) -> None:
    """Those of short floats are those of float32 at the same values, rounded; where they read a result, it is a rounded
    one."""
    case = op.cases[number % len(op.cases)]
    found = []
    for kind in (dtype, np.dtype(np.float32)):
        drawn = zip(operands(op, case, np.dtype(np.float32)), operand_dtypes(case, dtype), strict=True)
        arrays = [a.astype(d).astype(kind) if is_floating(d) else a.astype(d) for a, d in drawn]
        with sg.Graph() as graph:
            xs = [sg.placeholder(a.shape, a.dtype) for a in arrays]
            ys = [y for y in graph.add(op, xs, case.attrs).outputs if is_floating(y.dtype)]
            chosen = xs if case.differentiable is None else [xs[i] for i in case.differentiable]
            by = [x for x in chosen if is_floating(x.dtype)]
            if not ys or not by:
                return
            grads = [g for g in sg.gradients(ys, by, unconnected_gradients="zero") if g is not None]
            pushed = sg.jvp(ys, by, [sg.ones_like(x) for x in by])
        found.append(sg.Session(graph).run([*grads, *pushed], dict(zip(xs, arrays, strict=True))))
    for got, want in zip(*found, strict=True):
        assert got.dtype == dtype
        with np.errstate(over="ignore"):
            rounded = want.astype(dtype).astype(np.float32)
        error = relative_error(got.astype(np.float32), rounded, floor=1.0)
        assert error <= 4 * float(sg.finfo(dtype).eps), f"{op.name} {case}: {got} expected {rounded}"


DERIVED = [op for op in TESTED if op.differentiable and op.name != "astype"]


@pytest.mark.share(3)
@pytest.mark.parametrize("op", DERIVED, ids=lambda op: op.name)
def test_derivatives_of_short_floats_are_those_of_float32_rounded(op: Op) -> None:
    check_derivatives(op, 0, SHORT[len(op.name) % 2])


@pytest.mark.parametrize(
    ("op", "number", "dtype"),
    [slow(op, number, dtype) for op in DERIVED for number in range(len(op.cases)) for dtype in SHORT],
    ids=lambda value: value.name if isinstance(value, Op) else str(value),
)
def test_derivatives_of_short_floats_in_all_cases(op: Op, number: int, dtype: np.dtype) -> None:
    check_derivatives(op, number, dtype)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_more_elements_than_a_short_float_counts_have_a_mean_with_a_gradient(dtype: np.dtype) -> None:
    x = sg.placeholder((80_000,), dtype)
    mean, (slope,) = sg.mean(x), sg.gradients(sg.mean(x), [x])
    value, found = run([mean, slope], {x: np.ones(80_000, dtype)})
    assert value.astype(float) == 1
    np.testing.assert_array_equal(found, np.full(80_000, 1 / 80_000, np.float32).astype(dtype))


# -- programs -------------------------------------------------------------------------------------------------------


def trained(dtype: np.dtype, steps: int = 5) -> list[Array]:
    """Losses of a small net, and one of its gradients and weights after them."""
    rng = np.random.default_rng(5)
    points, labels = rng.normal(size=(16, 12)), rng.integers(0, 4, 16)
    first, second = rng.normal(size=(12, 20)) / 4, rng.normal(size=(20, 4)) / 4
    with sg.Graph() as graph:
        x, t = sg.placeholder((16, 12), dtype), sg.placeholder((16,), sg.int64)
        w, v = sg.Variable(first.astype(dtype), name="w"), sg.Variable(second.astype(dtype), name="v")
        hidden = sg.nn.layer_norm(sg.nn.gelu(x @ w), (20,))
        loss = sg.nn.cross_entropy(hidden @ v, t)
        (dw,) = sg.gradients(loss, [w])
        train = sg.optim.SGD(lr=0.5, momentum=0.5).minimize(loss)
    with sg.Session(graph) as session:
        step = session.compile([loss, dw, train], [x, t])
        results = [step(points.astype(dtype), labels) for _ in range(steps)]
        return [np.array([r[0] for r in results]), results[-1][1], session.get(w)]


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_a_net_of_short_floats_trains_as_one_of_float32(dtype: np.dtype) -> None:
    short, single = trained(dtype), trained(np.dtype(np.float32))
    for got, want in zip(short, single, strict=True):
        assert got.dtype == dtype
        assert relative_error(got.astype(np.float32), want) < 12 * float(sg.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_saved_values_of_short_floats_take_half_the_bytes(dtype: np.dtype) -> None:
    saved = []
    for kind in (dtype, np.dtype(np.float32)):
        with sg.Graph() as graph:
            x = sg.placeholder((64, 64), kind, requires_grad=True)
            y = sg.sum(sg.exp(sg.sin(x) * x))
        with sg.Session(graph) as session, session.forward([y], {x: np.ones((64, 64), kind)}) as tape:
            saved.append(tape.memory.saved_bytes)
            tape.backward(y, np.ones((), kind), retain_graph=True)
            tape.backward(y)
            twice = 2 * (np.cos(1) + np.sin(1)) * np.exp(np.sin(1))
            gradient = session.grad(x)
            assert gradient is not None
            assert gradient.dtype == kind
            np.testing.assert_allclose(gradient.astype(np.float64), twice, rtol=0.03)
    assert saved[0] * 2 == saved[1]


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_loops_and_branches_carry_short_floats(dtype: np.dtype, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", backend)
    x = sg.placeholder((3,), dtype)
    last, all_ = sg.scan(lambda c, _: (c * 1.5 + x, c), sg.zeros((3,), dtype=dtype), None, length=4)
    (slope,) = sg.gradients(last, [x])
    chosen = sg.cond(sg.sum(x) > 0, lambda: x + 1.0, lambda: x - 1.0)
    (doubled,) = sg.while_loop(lambda c: sg.max(c[0]) < 100.0, lambda c: (c[0] * 2.0,), (x,))
    assert bodies_of(last.op)
    got = run([last, all_, slope, chosen, doubled], {x: np.array([1, 2, 3], dtype)})
    total = np.array(1 + 1.5 + 2.25 + 3.375, np.float32).astype(dtype)
    assert [g.dtype for g in got] == [dtype] * 5
    np.testing.assert_allclose(got[0].astype(float), np.array([1, 2, 3]) * float(total), rtol=0.02)
    np.testing.assert_array_equal(got[1][1].astype(float), [1, 2, 3])
    np.testing.assert_allclose(got[2].astype(float), float(total), rtol=0.01)
    np.testing.assert_array_equal(got[3].astype(float), [2, 3, 4])
    np.testing.assert_array_equal(got[4].astype(float), [64, 128, 192])


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_drawn_and_counted_numbers_may_be_short(dtype: np.dtype) -> None:
    drawn = [sg.random.uniform((50,), dtype=dtype, seed=1), sg.random.normal((50,), dtype=dtype, seed=2)]
    same = [sg.random.uniform((50,), seed=1), sg.random.normal((50,), seed=2)]
    counted = [sg.arange(5, dtype=dtype), sg.linspace(0, 1, 5, dtype=dtype), sg.eye(3, dtype=dtype),
               sg.full((2,), 1.5, dtype=dtype), sg.ones((2,), dtype=dtype)]  # fmt: skip
    w = sg.Variable(sg.init.normal(), shape=(100,), dtype=dtype, name="w")
    short, wide, numbers, first = run([drawn, same, counted, w])
    assert {g.dtype for g in (*short, *numbers, first)} == {dtype}
    for got, want in zip(short, wide, strict=True):
        np.testing.assert_allclose(got.astype(float), want, rtol=0.03, atol=0.01)
    heads = [n.astype(float).ravel()[:3].tolist() for n in numbers]
    assert heads == [[0, 1, 2], [0, 0.25, 0.5], [1, 0, 0], [1.5, 1.5], [1, 1]]
    assert 0.5 < first.astype(float).std() < 2


# -- around programs --------------------------------------------------------------------------------------------------

NEW = [np.dtype(name) for name in ("int8", "int16", "uint16", "uint32", "uint64", "float16")] + [sg.bfloat16]


@pytest.mark.parametrize("dtype", NEW, ids=str)
def test_state_is_saved_and_restored(dtype: np.dtype, tmp_path: Path) -> None:
    w = sg.Variable(np.arange(6).astype(dtype).reshape(2, 3), name="w")
    double = sg.assign(w, w + w)
    with sg.Session() as session:
        session.run(double)
        session.save(tmp_path / "state")
        session.run(double)
        session.restore(tmp_path / "state")
        np.testing.assert_array_equal(session.get(w), (2 * np.arange(6)).astype(dtype).reshape(2, 3))
        session.set(w, np.ones((2, 3), dtype))
        assert session.get(w).dtype == dtype


@pytest.mark.parametrize("dtype", NEW, ids=str)
def test_texts_read_back(dtype: np.dtype) -> None:
    x = sg.placeholder((3,), dtype)
    array = np.array([0, 1, 2.5], np.float32).astype(dtype)
    y = sg.where(x > sg.constant(array), x, x + sg.full((3,), 1, dtype=dtype)).astype("float64")
    again = sg.parse(str(sg.get_default_graph()))
    assert str(again) == str(sg.get_default_graph())
    (read,) = [node.outputs[0] for node in again.nodes if node.name == y.op.name]
    fed = next(node.outputs[0] for node in again.nodes if node.op.name == "placeholder")
    values = np.array([3, 0, 7]).astype(dtype)
    np.testing.assert_array_equal(sg.Session(again).run(read, {fed: values}), run(y, {x: values}))


@pytest.mark.parametrize("dtype", NEW, ids=str)
def test_feeds_become_what_is_declared(dtype: np.dtype) -> None:
    x = sg.placeholder((3,), dtype)
    step = sg.Session().compile(x + x, [x])
    strided = np.array([1, 9, 2, 9, 3], dtype)[::2]
    for fed in ([1, 2, 3], np.array([1, 2, 3], dtype), strided, np.array([1, 0, 1], bool)):
        np.testing.assert_array_equal(step(fed), (2 * np.asarray(fed).astype(int)).astype(dtype))
    out = np.empty(3, dtype)
    assert step(np.ones(3, dtype), out=out) is out
    assert (out.astype(int) == 2).all()
    with pytest.raises(sg.FeedError, match="does not cast"):
        step(np.ones(3))


def test_python_numbers_are_fed_as_short_floats() -> None:
    x = sg.placeholder((2,), sg.bfloat16)
    assert run(x, {x: [1.5, 2]}).astype(float).tolist() == [1.5, 2.0]
    with pytest.raises(sg.FeedError):
        run(x, {x: ["1", "2"]})


@pytest.mark.filterwarnings("ignore::staticgrad.PromotionWarning")
def test_promotion_is_numpys() -> None:
    kinds = [*INTEGERS, *FLOATS, np.dtype("float16"), np.dtype(bool)]
    for a in kinds:
        for b in kinds:
            assert (sg.placeholder((1,), a) + sg.placeholder((1,), b)).dtype == np.result_type(a, b)
    for a in (*FLOATS, sg.bfloat16):
        assert (sg.placeholder((1,), a) + sg.placeholder((1,), sg.bfloat16)).dtype == np.result_type(a, sg.bfloat16)
    x = sg.placeholder((1,), sg.bfloat16)
    assert (x * 2.0).dtype == (2 * x).dtype == (x + True).dtype == sg.bfloat16
    with pytest.raises(sg.GraphError, match="no common dtype of bfloat16, int32"):
        _ = x + sg.placeholder((1,), sg.int32)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_of_all_widths_wrap_multiply_index_and_add_up(dtype: np.dtype) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.max, info.max, 1, 0, 2], dtype)
    p, q = sg.placeholder((5,), dtype), sg.placeholder((2, 3), dtype)
    table, where = np.arange(10.0), np.array([3, 0, 1, 9, 2], dtype)
    i = sg.placeholder((5,), dtype)
    fetches = [p + p, p * p, sg.sum(p[2:]), q @ q.T, sg.constant(table)[i], sg.cumulative_sum(p), sg.max(p),
               sg.argmin(p), sg.scatter(p, i % 5, p, mode="add"), sg.sort(p), p // 2, p.astype("float32"),
               sg.mean(p)]  # fmt: skip
    matrix = np.arange(6).reshape(2, 3).astype(dtype)
    got = run(fetches, {p: x, q: matrix, i: where})
    added = x.copy()
    with np.errstate(all="ignore"):
        np.add.at(added, where % 5, x)
        wanted = [x + x, x * x, np.sum(x[2:]), matrix @ matrix.T, table[where], np.cumsum(x), x.max(),
                  np.int64(3), added, np.sort(x), x // 2, x.astype(np.float32), x.astype(float).mean()]  # fmt: skip
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


def test_dtypes_that_are_not_supported_are_refused() -> None:
    for dtype in ("complex64", "float128", "S3", object, "datetime64[s]"):
        with pytest.raises(sg.GraphError, match="not supported"):
            sg.placeholder((1,), dtype)


def test_checks_of_numerics_see_short_floats() -> None:
    x = sg.placeholder((2,), "float16")
    with pytest.raises(sg.NumericsError):
        run(sg.exp(x), {x: np.array([1, 12], np.float16)}, check_numerics=True)


def test_short_floats_pass_through_effects(capfd: pytest.CaptureFixture[str]) -> None:
    x = sg.placeholder((2,), sg.bfloat16)
    printed = sg.print(x, "short") + 1.0
    (called,) = sg.py_call(lambda a: a * a, [printed], [(sg.bfloat16, (2,))])
    assert run(called, {x: np.array([1, 2], sg.bfloat16)}).astype(float).tolist() == [4, 9]
    assert "short [1 2]" in capfd.readouterr().out


def test_importing_staticgrad_imports_no_ml_dtypes() -> None:
    code = "import staticgrad as sg, sys; x = sg.placeholder((1,)); sg.Session().run(x + x, {x: [1]}); "
    subprocess.run([sys.executable, "-c", code + "sys.exit('ml_dtypes' in sys.modules)"], check=True)
