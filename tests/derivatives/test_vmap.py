"""``sg.vmap`` against a Python loop over the examples: every op, nests of axes, derivatives inside and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.sampling import operands

import staticgrad as sg
from staticgrad.graph.optable import OPS, Case, Op

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def run(fetches: Any) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def check(fn: Callable[..., Any], *arrays: Any, in_axes: Any = 0) -> None:
    """``vmap(fn)`` against ``fn`` of each example."""
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(arrays)
    xs = [sg.constant(a) for a in arrays]
    size = next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)
    rows = [
        fn(*(x if axis is None else sg.take(x, i, axis=axis) for x, axis in zip(xs, axes, strict=True)))
        for i in range(size)
    ]
    got, expected = run([sg.vmap(fn, in_axes=in_axes)(*xs), sg.stack(rows)])
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


W, KERNEL, IMAGE = normal(4, 3), normal(2, 1, 2, 2), normal(1, 2, 5, 5)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 2 + 1,
        lambda x: x + sg.constant(W),
        lambda x: sg.sum(x),
        lambda x: sg.max(x, axis=0),
        lambda x: sg.mean(x, axis=-1, keepdims=True) * x,
        lambda x: sg.reshape(x, (2, 6)),
        lambda x: x.T,
        lambda x: x[1:, ::-1],
        lambda x: x[1],
        lambda x: x[:, None, :] - x[None],
        lambda x: sg.broadcast_to(x[0], (5, 3)),
        lambda x: sg.concat([x, sg.constant(W)], axis=1),
        lambda x: sg.stack([x, x * 2], axis=1),
        lambda x: sg.nn.pad(x, (1, 2)),
        lambda x: x @ sg.constant(W.T),
        lambda x: sg.constant(W.T) @ x,
        lambda x: x[0] @ sg.constant(W.T),
        lambda x: x.T @ x,
        lambda x: sg.einsum("ij,kj->ik", x, sg.constant(W)),
        lambda x: sg.nn.softmax(x, dim=-1),
        lambda x: sg.nn.layer_norm(x, (3,)),
        lambda x: sg.nn.gelu(x),
        lambda x: sg.logsumexp(x, axis=0),
        lambda x: sg.var(x, axis=1),
        lambda x: sg.argmax(x, axis=1).astype(sg.float64),
        lambda x: sg.take(x, sg.constant([2, 0, 2]), axis=1),
        lambda x: sg.constant(W)[sg.argmax(x, axis=1)],
        lambda x: x[sg.argmax(x, axis=0)],
        lambda x: sg.take_along_axis(x, sg.argmax(x, axis=1, keepdims=True), axis=1),
        lambda x: sg.scatter(x, sg.constant([0, 0, 1]), x[:3], mode="add"),
        lambda x: sg.where(x > 0, x, 0.0),
        lambda x: sg.cumulative_sum(x, axis=0),
        lambda x: sg.nn.cross_entropy(x, sg.constant([0, 1, 2, 1])),
        lambda x: sg.scan(lambda c, r: (c * 0.5 + r, c), x[0], x)[1],
        lambda x: sg.cond(sg.sum(x) > 0, lambda: x, lambda: -x),
        lambda x: sg.while_loop(lambda s: sg.sum(s) < 9.0, lambda s: s + 1.0, x, max_steps=20),
        lambda x: sg.nn.max_pool2d(x[None, None], 2)[0, 0],
        lambda x: sg.nn.conv2d(x[None, None], sg.constant(KERNEL))[0],
        lambda x: sg.nn.conv2d(sg.constant(IMAGE), sg.reshape(x, (3, 2, 2, 1)))[0],
        lambda x: sg.constant(W),
    ],
)
def test_equals_a_loop_over_examples(fn: Callable[[Any], Any]) -> None:
    check(fn, normal(5, 4, 3))


def test_functions_of_indices_and_of_order_go_over_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    functions: list[Callable[[Any, Any], Any]] = [
        *(lambda x, i, m=mode: sg.scatter(x, i, x[:5], m, bounds="drop") for mode in ("set", "mul", "mean", "max")),
        lambda x, i: sg.take(x, i, 0, bounds="fill"), lambda x, i: sg.quantile(x, [0.2, 0.5], 1),
        lambda x, i: sg.histogram(x, 4)[0], lambda x, i: sg.unique(i, size=4), lambda x, i: sg.nonzero(i, size=4)[0],
        lambda x, i: sg.associative_scan(lambda a, b: a * b + b, x), lambda x, i: sg.lexsort([x, x]),
        lambda x, i: sg.interp(x[:, 0], sg.sort(x[:, 1]), x[:, 2]), lambda x, i: sg.bincount(i, x[:5, 0], length=6),
        lambda x, i: sg.cummax(x, 0, return_indices=True)[1], lambda x, i: sg.bitcast(x, sg.uint8),
    ]  # fmt: skip
    values, places = normal(4, 6, 3), np.random.default_rng(0).integers(-2, 8, (4, 5))
    x, i = sg.placeholder(values.shape, sg.float64), sg.placeholder(places.shape, sg.int64)
    pairs = [(sg.vmap(fn)(x, i), [fn(x[n], i[n]) for n in range(4)]) for fn in functions]
    for got, singles in sg.Session().run(pairs, {x: values, i: places}):
        np.testing.assert_allclose(got, np.stack(singles), atol=1e-12)


def _batchable(op: Op) -> bool:
    return bool(op.cases) and not op.effect and not op.name.startswith("random")


@pytest.mark.share(2)
@pytest.mark.parametrize("op", [op for op in OPS.values() if _batchable(op)], ids=lambda op: op.name)
def test_every_op_of_the_table(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    """All operands by example, and each alone; by the interpreter, since how an op is compiled is tested elsewhere."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    dtype = op.dtypes[0] if op.dtypes else np.dtype(np.float32)
    pairs = [pair for case in op.cases[:4] if case.shapes for pair in _by_example_and_singly(op, case, dtype)]
    if pairs:
        with np.errstate(all="ignore"):
            for got, singles in run(pairs):
                np.testing.assert_allclose(got, np.stack(singles), rtol=2e-5, atol=1e-5, err_msg=op.name)


def _by_example_and_singly(op: Op, case: Case, dtype: np.dtype) -> list[tuple[Any, list[Any]]]:
    examples = [operands(op, case, dtype, "vmap", number) for number in range(3)]
    count = len(case.shapes)
    pairs = []
    for alone in (None, *range(count)) if count > 1 else (None,):
        chosen = [i for i in range(count) if alone in (None, i)]
        common = [sg.constant(examples[0][i]) for i in range(count)]
        xs = [sg.constant(np.stack([e[i] for e in examples])) if i in chosen else common[i] for i in range(count)]
        axes = tuple(0 if i in chosen else None for i in range(count))
        made = sg.vmap(lambda *rows: _added(op, rows, case.attrs), in_axes=axes)(*xs)
        singles = [
            _added(op, [sg.constant(e[i]) if i in chosen else common[i] for i in range(count)], case.attrs)
            for e in examples
        ]
        pairs += [(y, [single[place] for single in singles]) for place, y in enumerate(made)]
    return pairs


def _added(op: Op, xs: Any, attrs: Any) -> tuple[Any, ...]:
    return sg.get_default_graph().add(op, xs, attrs).outputs


def _orbit(x: Any, w: Any) -> Any:
    """Of one example: turns that carry something by example and something common, and read rows of both kinds."""

    def turn(carry: Any, row: Any) -> Any:
        state, common = carry
        state = sg.sin(state * w) + row[0] * common + x[row[1]]
        return (state, common * 0.9), (state * state, common)

    rows = (x, sg.constant([2, 0, 1]))
    (state, common), (squares, powers) = sg.scan(turn, (x[0] * 0.5, sg.constant(1.0, sg.float64)), rows, reverse=True)
    return sg.sum(state) + common + sg.sum(squares) * sg.sum(powers)


def test_a_scan_runs_all_examples_in_one_loop() -> None:
    w = sg.constant(1.3, sg.float64)
    check(lambda x: _orbit(x, w), normal(4, 3))
    check(lambda x: sg.gradients(_orbit(x, w), [x])[0], normal(4, 3))
    check(lambda x: sg.hessian(_orbit(x, w), x), normal(4, 3))
    xs = sg.constant(normal(5, 3))

    def with_slope(x: Any) -> Any:
        y = _orbit(x, w)
        return y, sg.gradients(y, [x])[0]

    values, slopes = sg.vmap(with_slope)(xs)
    got = run([slopes, *sg.gradients(values, [xs]), *sg.gradients(sg.sum(slopes * slopes), [w])])
    np.testing.assert_allclose(got[0], got[1], rtol=1e-10)
    rows = [sg.gradients(_orbit(xs[i], w), [xs])[0][i] for i in range(5)]
    np.testing.assert_allclose(got[2], run(sg.gradients(sum(sg.sum(r * r) for r in rows), [w])[0]), rtol=1e-10)
    with sg.Session(num_threads=1) as session:
        kernels = session.compile([values, slopes], []).text("kernels")
    assert [kernels.count(" turns"), kernels.count(" turns, reversed")] == [2, 1], kernels


def _grown(x: Any, limit: Any) -> Any:
    """Of one example: it stops after a number of turns of its own, also with a state that no longer is finite."""

    def body(state: Any) -> Any:
        y, common, steps = state
        return y * common + sg.sqrt(40.0 - sg.sum(y)), common * 1.01, steps + 1

    init = (x, sg.constant(1.5, sg.float64), sg.constant(0))
    y, common, steps = sg.while_loop(lambda s: sg.sum(s[0]) < limit, body, init, max_steps=12)
    return sg.sum(y) * common + sg.astype(steps, sg.float64)


def test_a_while_loop_runs_all_examples_until_the_last_one_stops() -> None:
    limit, xs = (
        sg.constant(39.0, sg.float64),
        sg.constant(np.abs(normal(6, 3)) * np.array([[1], [5], [20], [0.1], [2], [9]])),
    )
    check(lambda x: _grown(x, limit), np.abs(normal(6, 3)) * 4)
    check(lambda x: sg.gradients(_grown(x, limit), [x])[0], np.abs(normal(6, 3)))
    check(lambda x: sg.jvp(_grown(x, limit), x, np.ones(3))[0], np.abs(normal(6, 3)))
    check(
        lambda x: sg.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + 1), (x, 0), max_steps=9)[0],
        normal(4, 3),
    )
    rows = [sg.gradients(_grown(xs[i], limit), [xs])[0][i] for i in range(6)]
    got, *expected = run([sg.gradients(sg.vmap(lambda x: _grown(x, limit))(xs), [xs])[0], *rows])
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    with sg.Session(num_threads=1) as session:
        kernels = session.compile(sg.vmap(lambda x: _grown(x, limit))(xs), []).text("kernels")
    assert kernels.count("loop ") == 2, kernels  # its kernel and its turns


def test_scans_of_examples_in_scans_with_rules_of_their_own() -> None:
    @sg.custom_gradient
    def halved(x: Any) -> Any:
        return sg.exp(x), lambda ct: ct * sg.exp(x) * 0.5

    def fn(x: Any) -> Any:
        def inner(c: Any, r: Any) -> Any:
            return halved(c * r) * 0.3, None

        def outer(c: Any, r: Any) -> Any:
            return sg.scan(inner, c + r, x)[0], c

        last, states = sg.scan(outer, sg.zeros((), dtype=sg.float64), x)
        return last + sg.sum(states)

    check(fn, normal(4, 3))
    check(lambda x: sg.gradients(fn(x), [x])[0], normal(4, 3))
    xs = sg.constant(normal(4, 3))
    got, *rows = run([sg.gradients(sg.vmap(fn)(xs), [xs])[0], *(sg.gradients(fn(xs[i]), [xs])[0][i] for i in range(4))])
    np.testing.assert_allclose(got, rows, rtol=1e-10)


def test_axes_of_arguments_and_results() -> None:
    x, y = normal(3, 5), normal(3, 2)
    made = sg.vmap(lambda a, b: a[:, None] * b, in_axes=(1, None), out_axes=2)(sg.constant(x), sg.constant(y))
    np.testing.assert_allclose(run(made), np.einsum("ie,ij->ije", x, y))


def test_nests_of_arguments_and_results() -> None:
    x, y = normal(5, 3), normal(3, 5)

    def fn(pair: dict[str, Any], scale: Any) -> dict[str, Any]:
        return {"sum": pair["x"] + pair["y"], "scaled": (pair["x"] * scale,)}

    made = sg.vmap(fn, in_axes=({"x": 0, "y": 1}, None))({"x": sg.constant(x), "y": sg.constant(y)}, 2.0)
    got = run(made)
    np.testing.assert_allclose(got["sum"], x + y.T)
    np.testing.assert_allclose(got["scaled"][0], 2 * x)


def test_gradients_by_example_of_a_captured_weight() -> None:
    w, x, t = sg.Variable(normal(3, 2), name="w"), normal(6, 3), np.array([0, 1, 1, 0, 1, 0])

    def slope(row: Any, label: Any) -> Any:
        return sg.gradients(sg.nn.cross_entropy((row @ w)[None], label[None]), [w])[0]

    xs, ts = sg.constant(x), sg.constant(t)
    by_example = sg.vmap(slope)(xs, ts)
    singles = [slope(xs[i], ts[i]) for i in range(6)]
    got, expected = run([by_example, singles])
    assert got.shape == (6, 3, 2)
    np.testing.assert_allclose(got, np.stack(expected), rtol=1e-10)


def test_gradients_through_a_vmapped_function() -> None:
    x = sg.constant(normal(4, 3))
    y = sg.vmap(lambda row: sg.sum(sg.exp(row) * row[::-1]))(x)
    z = sg.sum(sg.exp(x) * x[:, ::-1], axis=1)
    got, expected = run([sg.gradients(y, [x])[0], sg.gradients(z, [x])[0]])
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_vmap_of_a_vmapped_function() -> None:
    x, y = normal(4, 3), normal(5, 3)
    distance = sg.vmap(lambda a: sg.vmap(lambda b: sg.sum((a - b) ** 2))(sg.constant(y)))(sg.constant(x))
    np.testing.assert_allclose(run(distance), ((x[:, None] - y) ** 2).sum(-1))


def test_a_jacobian_by_example() -> None:
    x = normal(4, 3)
    made = sg.vmap(lambda row: sg.jacobian(sg.tanh(row) * sg.sum(row), row))(sg.constant(x))
    rows = [sg.jacobian(sg.tanh(r) * sg.sum(r), r) for r in map(sg.constant, x)]
    got, expected = run([made, rows])
    np.testing.assert_allclose(got, np.stack(expected), rtol=1e-10)


def test_random_numbers_differ_between_examples() -> None:
    noise = run(sg.vmap(lambda row: row * 0 + sg.random.uniform((3,)))(sg.constant(np.zeros((4, 3), np.float32))))
    assert len({tuple(row) for row in noise}) == 4


def test_random_numbers_of_a_vmapped_function_are_drawn_by_no_other_op() -> None:
    """The op after it drew the same ones."""
    x = sg.constant(np.zeros((4, 3), np.float32))
    inside = sg.vmap(lambda row: row + sg.random.uniform((3,)))(x)
    noise, more = run([inside, sg.random.uniform((4, 3))])
    assert len(np.unique([noise, more])) == 24


DRAWING: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "vmap in a scan": lambda x: sg.scan(
        lambda c, row: (c, sg.vmap(lambda q: q + sg.random.uniform(()))(row)), sg.zeros(()), x
    )[1],
    "scan in a vmap": lambda x: sg.vmap(
        lambda row: sg.scan(lambda c, q: (c, q + sg.random.uniform(())), sg.zeros(()), row)[1]
    )(x),
    "vmap in a vmap": lambda x: sg.vmap(sg.vmap(lambda q: q + sg.random.uniform(())))(x),
    "branch in a vmap": lambda x: sg.vmap(
        lambda row: sg.cond(row.sum() < 1, lambda: row + sg.random.uniform((3,)), lambda: row)
    )(x),
    "map in a vmap in a map": lambda x: sg.map(
        lambda row: sg.vmap(lambda q: sg.map(lambda z: z + sg.random.uniform(()), q))(sg.reshape(row, (3, 1))), x
    ),
}


@pytest.mark.parametrize("name", DRAWING)
def test_random_numbers_differ_between_turns_and_examples(name: str) -> None:
    """Turns of a loop around, or examples of a loop within, drew the same ones."""
    assert len(np.unique(run(DRAWING[name](sg.constant(np.zeros((4, 3), np.float32)))))) == 12


def test_a_dropout_mask_within_a_body_is_that_of_its_gradient() -> None:
    x = sg.constant(np.ones((3, 40)))
    y = sg.vmap(lambda row: sg.map(lambda q: sg.nn.dropout(q, 0.5), row))(x)
    kept, slope = run([y, sg.gradients(y, x)[0]])
    np.testing.assert_array_equal(kept, slope)
    assert len(np.unique(kept, axis=0)) == 3


@pytest.mark.parametrize("around", ["scan", "map", "cond", "vmap of a scan"])
def test_within_a_body_it_reads_what_lies_outside(around: str) -> None:
    """The function's tensors were taken for those of another graph."""
    a = normal(2, 3)
    x, w = sg.constant(a), sg.Variable(np.array(1.5), name="w")

    def scaled(row: sg.Tensor) -> sg.Tensor:
        return sg.vmap(lambda q: q * w)(row)

    def stacked(rows: sg.Tensor) -> sg.Tensor:
        result: sg.Tensor = sg.scan(lambda c, row: (c, scaled(row)), sg.zeros(()), rows)[1]
        return result

    y = {
        "scan": lambda: stacked(x),
        "map": lambda: sg.map(scaled, x),
        "cond": lambda: sg.cond(w > 0, lambda: scaled(x), lambda: x),
        "vmap of a scan": lambda: sg.vmap(stacked)(sg.expand_dims(x, 1))[:, 0],
    }[around]()
    got, slope = run([y, sg.gradients(y, w)[0]])
    np.testing.assert_allclose(got, a * 1.5)
    np.testing.assert_allclose(slope, a.sum())


@sg.custom_gradient
def wavy(x: sg.Tensor, w: sg.Tensor) -> Any:
    """A derivative of its own that is none, and reads what was made on the way."""
    e = sg.exp(x)
    return e * w, lambda ct: (ct * sg.sin(e) * w, sg.sum(ct * e))


def test_a_function_with_a_gradient_of_its_own() -> None:
    x, w = sg.constant(normal(3, 4)), sg.Variable(np.array(1.5), name="w")
    forms = [
        (sg.vmap(lambda row: wavy(row, w))(x), [wavy(x[i], w) for i in range(3)]),
        (sg.vmap(lambda row: wavy(w, row.sum()))(x), [wavy(w, x[i].sum()) for i in range(3)]),
        (sg.vmap(lambda row: sg.gradients(wavy(row, w) ** 2, row)[0])(x),
         [sg.gradients(wavy(x[i], w) ** 2, x)[0][i] for i in range(3)]),
    ]  # fmt: skip
    for together, rows in forms:
        results = []
        for y in (together, sg.stack(rows)):
            slopes = sg.gradients((y * y).sum(), [x, w])
            tangent = sg.jvp(y, x, sg.ones_like(x))
            results.append([y, slopes, tangent, sg.gradients([(g * g).sum() for g in slopes], [x, w])])
        got, want = run(results)
        for a, b in zip(sg.nest.flatten(got), sg.nest.flatten(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_inside_a_scan_and_with_sizes_bound_by_feeds() -> None:
    x = sg.placeholder((None, 3), sg.float64)
    doubled = sg.vmap(lambda row: row / sg.sum(row))(x)
    last, _ = sg.scan(lambda c, _: (sg.vmap(lambda row: row + sg.sum(row))(c), ()), x, None, length=2)
    values = np.abs(normal(4, 3)) + 1
    sess = sg.Session(sg.get_default_graph())
    got = sess.run([doubled, last], {x: values})
    np.testing.assert_allclose(got[0], values / values.sum(1, keepdims=True))
    once = values + values.sum(1, keepdims=True)
    np.testing.assert_allclose(got[1], once + once.sum(1, keepdims=True))


def test_prints_come_example_by_example(capfd: pytest.CaptureFixture[str]) -> None:
    run(sg.vmap(lambda row: sg.print(row, "row") * 1.0)(sg.constant(np.arange(3.0))))
    assert capfd.readouterr().out.count("row") == 3


def test_an_index_out_of_range_is_found(g: sg.Graph) -> None:
    x, index = sg.constant(normal(2, 3)), sg.placeholder((2,), sg.int64)
    made = sg.vmap(lambda row, i: row[i])(x, index)
    with pytest.raises(sg.BoundsError):
        sg.Session(g).run(made, {index: np.array([0, 3])})


def test_bad_use_is_refused() -> None:
    x, y = sg.constant(normal(2, 3)), sg.constant(normal(4, 3))
    v = sg.Variable(np.zeros(3), name="v")
    with pytest.raises(sg.GraphError, match="numbers of examples differ: 2, 4"):
        sg.vmap(lambda a, b: a + b)(x, y)
    with pytest.raises(sg.GraphError, match=r'differ: a\.0, b\.0; sg\.dim\("n"\) is one size'):
        sg.vmap(lambda a, b: a + b)(sg.placeholder((None,), name="a"), sg.placeholder((None,), name="b"))
    with pytest.raises(sg.GraphError, match="no axis 2"):
        sg.vmap(lambda a: a, in_axes=2)(x)
    with pytest.raises(sg.GraphError, match="no argument"):
        sg.vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(sg.GraphError, match="one of in_axes"):
        sg.vmap(lambda a: a, in_axes=(0, 0))(x)
    with pytest.raises(sg.GraphError, match="register hooks and retain gradients outside"):
        sg.vmap(lambda a: (a * v).register_hook(lambda ct: ct * 2) and a * v)(x)
    with pytest.raises(sg.GraphError, match="write the variable"):
        sg.vmap(lambda a: sg.assign(v, a))(x)


@pytest.mark.parametrize("axis", [1, -2, "0", 0.5])
def test_what_is_no_axis_of_the_examples_is_refused(g: sg.Graph, axis: Any) -> None:
    x = sg.placeholder((4,), name="examples")
    with pytest.raises(sg.GraphError, match=r"'examples'.*has no axis"):
        sg.vmap(lambda one: one, in_axes=axis)(x)


def test_examples_of_a_size_that_feeds_bind_are_indexed_and_searched(g: sg.Graph, backend: str) -> None:
    x, labels = sg.placeholder((None, None, 2), sg.float64), sg.placeholder((2,), sg.int32)
    rows = sg.vmap(lambda one: one[labels])(x)
    best = sg.vmap(lambda one: sg.argmax(one, axis=0))(x)
    loss = sg.vmap(lambda one: sg.nn.cross_entropy(one, sg.argmax(one, axis=1)))(x)
    sess, a = sg.Session(g), np.random.default_rng(0).normal(size=(3, 4, 2))
    got = sess.run([rows, best, loss], {x: a, labels: [-1, 0]})
    surprise = np.log(np.exp(a).sum(2)) - a.max(2)
    for one, expected in zip(got, (a[:, [-1, 0]], a.argmax(1), surprise.mean(1)), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-12)
    with pytest.raises(sg.BoundsError, match="-5"):
        sess.run(rows, {x: a, labels: [0, -5]})
