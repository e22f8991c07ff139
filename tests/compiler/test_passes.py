"""Each pass: its text before and after as a golden file, and that it changes no value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg
from staticgrad.base.types import TensorType
from staticgrad.compiler.kernels.layout import layouts
from staticgrad.compiler.passes import PASSES, Pass
from staticgrad.compiler.passes.materialize import materialize
from staticgrad.compiler.passes.simplify import POWERS
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.regions.region import Region
from staticgrad.compiler.regions.verify import verify
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.text import print_nodes
from staticgrad.ops.interpreter import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
ALL = (*PASSES, Pass("materialize", materialize, optional=False))


def softmax_of_a_product(x: Tensor, w: Tensor) -> list[Tensor]:
    """Composed ops, a reduction that drops its axis, a common subexpression, dead code."""
    sg.exp(x * 3.0)
    probabilities = sg.nn.softmax(x @ w, -1)
    return [sg.mean(probabilities, 1), sg.sum(sg.nn.softmax(x @ w, -1) * 1.0)]


def constants(x: Tensor, w: Tensor) -> list[Tensor]:
    """What folds: arithmetic of constants, x − 0, x · 1, x², casts and reshapes of themselves."""
    scale = sg.sqrt(sg.constant(4.0)) * sg.constant(np.array([1.0, 1.0, 1.0], np.float32))
    y = (x - 0.0) * 1.0 / 1.0
    return [(y**2.0 * scale).astype(np.float32), sg.reshape(sg.reshape(w, (2, 6)), (3, 4)).T.T]


def views(x: Tensor, w: Tensor) -> list[Tensor]:
    """Views that need memory: a reshape of a transpose, a fetched slice, what goes into a concat."""
    return [sg.exp(sg.reshape(w.T, (3, 4))), x[:, 1:], sg.concat([x, x[:, ::-1]], axis=0)]


def rows_of_a_batch(x: Tensor, w: Tensor) -> list[Tensor]:
    """Behind a product of flattened rows: bias, activation, residual, norm; then what has to stay as it is."""
    batch = sg.stack([x, x * 2.0])  # (2, 2, 3)
    y = sg.nn.relu(batch @ w + sg.sum(w, 0))  # (2, 2, 4)
    z = y @ w.T + batch
    normed = (z - sg.mean(z, -1, keepdims=True)) * sg.max(z, (0, 1))
    each = z * sg.reshape(sg.sum(x, 1), (2, 1, 1))  # one number for each member of the batch: no matrix
    return [normed, sg.sum(y, (0, 1)), each, sg.concat([z + 1.0, z], axis=0)]


def blocks_of_columns(x: Tensor, w: Tensor) -> list[Tensor]:
    """Gates of a cell; then a block that others than elementwise ops read, and blocks that overlap."""
    taken, value = sg.split(x @ w + sg.sum(w, 0) * 2.0, 2, axis=-1)
    y, z = x @ w + 1.0, x @ w - 1.0
    return [sg.nn.sigmoid(taken) * sg.tanh(value), sg.exp(y[:, :2]), y[:, 2:] @ w[:2], z[:, :3] * z[:, 1:]]


def added_products(x: Tensor, w: Tensor) -> list[Tensor]:
    """The gradients of a weight that is read four times; and what is no longer than its factors, which stays."""
    state, loss = x[:1], sg.constant(0.0)
    for _ in range(4):
        y = sg.tanh(state @ w)
        state, loss = y[:, :3], loss + sg.sum(y)
    few = sum(((x * scale) @ w for scale in (3.0, 4.0, 5.0)), x @ w)
    return [sg.gradients(loss, w)[0], few]


GRAPHS: dict[str, Callable[[Tensor, Tensor], list[Tensor]]] = {
    f.__name__: f for f in (softmax_of_a_product, constants, views, rows_of_a_batch, blocks_of_columns, added_products)
}


def region_of(name: str) -> tuple[Region, list[Array]]:
    rng = np.random.default_rng(0)
    with Graph() as graph:
        x, w = sg.placeholder((2, 3), name="x"), sg.placeholder((3, 4), name="w")
        fetches = GRAPHS[name](x, w)
        fed = {x: TensorType((2, 3), x.dtype), w: TensorType((3, 4), w.dtype)}
        return cut(graph, fetches, fed), [rng.normal(size=t.shape).astype(np.float32) for t in fed.values()]


def values(region: Region, arrays: list[Array]) -> list[Array]:
    def no_variable(key: str) -> Array:
        raise AssertionError(f"variable {key} in a graph without variables")

    return [np.asarray(v) for v in evaluate(region, arrays, no_variable).values]


@pytest.mark.parametrize("name", list(GRAPHS))
def test_passes_leave_the_values_and_write_this_text(name: str, golden: Callable[[str, str], None]) -> None:
    region, arrays = region_of(name)
    want = values(region, arrays)
    text = print_nodes(region.graph.nodes)
    stages = [f"cut\n{text}"]
    for step in ALL:
        region = step.run(region)
        verify(region, step.name)
        for got, expected in zip(values(region, arrays), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6, err_msg=step.name)
        before, text = text, print_nodes(region.graph.nodes)
        if text != before:  # so a pass that leaves a graph as it is changes no golden file
            stages.append(f"{step.name}\n{text}")
    golden(f"passes_{name}.txt", "\n\n".join(stages) + "\n")


def ops_after(name: str, *passes: str) -> list[str]:
    region, _ = region_of(name)
    for step in ALL:
        if step.name in passes:
            region = step.run(region)
    return [node.op.name for node in region.graph.nodes]


def test_expand_leaves_no_composed_op() -> None:
    assert not {"softmax", "mean", "matmul"} & set(ops_after("softmax_of_a_product", "expand"))


def test_cse_merges_equal_nodes_and_dce_drops_what_nobody_needs() -> None:
    everything = ops_after("softmax_of_a_product", "expand")
    merged = ops_after("softmax_of_a_product", "expand", "cse", "dce")
    assert everything.count("dot") == 2
    assert merged.count("dot") == 1
    assert merged.count("exp") == 1


def test_fold_and_simplify_leave_one_product() -> None:
    left = ops_after("constants", *(step.name for step in PASSES))
    assert "sqrt" not in left
    assert "pow" not in left
    assert left.count("multiply") == 2  # x·x and the scale


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_known_exponents_need_no_pow(dtype: type) -> None:
    info = np.finfo(dtype)
    ends = [0.0, info.smallest_subnormal, info.tiny, 1.0, 2.0, 1 / 3, 5.5, info.max, np.inf]
    middle = np.exp(np.random.default_rng(0).uniform(-1, 1, 500) * np.log(info.max))
    x = np.array([*ends, *np.negative(ends), np.nan, *middle, *-middle], dtype)
    for exponent in POWERS["f"]:
        with Graph() as graph:
            a = sg.placeholder(x.shape, dtype)
            executable = sg.Session(graph).compile(a**exponent, [a])
            got = executable(x)
        assert "pow" not in executable.text("kernels")
        with np.errstate(all="ignore"):
            expected = np.power(x.astype(np.longdouble), exponent).astype(dtype)
            near = np.abs(got - expected) <= 2 * np.spacing(np.abs(expected))
        same = (got == expected) | np.isnan(got) & np.isnan(expected)
        np.testing.assert_array_equal(near | same, True, err_msg=str(exponent))
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]), err_msg=str(exponent))


def kernels_of(fetches: Callable[[Tensor, Tensor], Tensor], x: Array, w: Array) -> list[str]:
    """The families of the kernels of a program, which gives what the interpreter gives."""
    with Graph() as graph:
        a, b = sg.placeholder(x.shape), sg.placeholder(w.shape)
        executable = sg.Session(graph).compile(fetches(a, b), [a, b])
        region = cut(graph, [fetches(a, b)], {a: TensorType(x.shape, a.dtype), b: TensorType(w.shape, b.dtype)})
    np.testing.assert_allclose(executable(x, w), values(region, [x, w])[0], rtol=1e-5, atol=1e-5)
    lines = executable.text("kernels").splitlines()
    return [line.split()[1] for line in lines if line[:1].isdigit()]


def test_what_follows_a_product_of_a_batch_of_rows_is_in_its_kernel() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 5, 7), (7, 7)))

    def block(x: Tensor, w: Tensor) -> Tensor:
        return sg.tanh(x @ w + 1.0) * 0.5 + x

    assert kernels_of(block, x, w) == ["contraction"]
    assert kernels_of(lambda x, w: x @ w, x, w) == ["contraction"]
    assert kernels_of(lambda x, w: block(block(x, w), w), x, w) == ["contraction"] * 2


def test_a_fetched_batch_of_rows_is_also_read_and_fetched_in_another_shape() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 5, 7), (7, 4)))
    with Graph() as graph:
        a, b = sg.placeholder(x.shape), sg.placeholder(w.shape)
        y = a @ b + 1.0
        got = sg.Session(graph).run([y, sg.reshape(y, (15, 4)), sg.reshape(y, (5, 12)), sg.sum(y, 1), y], {a: x, b: w})
    expected = x @ w + 1
    for value, want in zip(
        got, (expected, expected.reshape(15, 4), expected.reshape(5, 12), expected.sum(1), expected)
    ):
        np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)


def test_a_sum_over_a_middle_axis_is_stored_where_it_is_fetched() -> None:
    x, w = (np.ones(shape, np.float32) for shape in ((3, 5, 7), (3, 7)))
    assert kernels_of(lambda x, w: sg.sum(x, 1), x, w) == ["reduce"]
    assert kernels_of(lambda x, w: sg.sum(x, (0, 1)), x, w) == ["reduce"]


def pads_of(x: Tensor, pieces: list[tuple[int, int, int]], axis: int, width: int) -> Tensor:
    """The sum of ``x[first:end]`` along ``axis``, each put at a place of zeros as wide as ``width``."""
    total: Tensor | None = None
    for first, end, place in pieces:
        piece = x[first:end] if axis == 0 else x[:, first:end]
        sides = [(0, 0), (0, 0)]
        sides[axis] = (place, width - place - (end - first))
        padded = sg.pad(piece * 2.0, sides)
        total = padded if total is None else total + padded
    assert total is not None
    return total


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize(
    ("pieces", "axis", "width", "joined"),
    [
        ([(0, 3, 4), (3, 7, 0)], 1, 7, True),
        ([(4, 5, 36), (0, 17, 0), (0, 19, 17)], 1, 37, True),
        ([(1, 3, 3), (0, 3, 0), (2, 3, 5)], 0, 6, True),
        ([(0, 3, 0), (0, 3, 4)], 1, 7, False),  # a gap
        ([(0, 4, 0), (0, 4, 3)], 1, 7, False),  # an overlap
        ([(0, 3, 1), (0, 3, 4)], 1, 7, False),  # nothing at the beginning
        ([(0, 3, 0), (0, 3, 3)], 1, 7, False),  # nothing at the end
    ],
)
def test_pads_side_by_side_are_a_concatenation(
    pieces: list[tuple[int, int, int]],
    axis: int,
    width: int,
    joined: bool,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x = np.random.default_rng(0).normal(size=(5, 23)).astype(np.float32)
    x[1, 2], x[2, 4] = np.float32(-0.0), np.nan
    with Graph() as graph:
        a = sg.placeholder(x.shape)
        y = pads_of(a, pieces, axis, width)
        fed = {a: TensorType(x.shape, a.dtype)}
        region = cut(graph, [y], fed)
        executable = sg.Session(graph).compile(y, [a])
    for step in PASSES:
        region = step.run(region)
    assert ("concat" in [node.op.name for node in region.graph.nodes]) == joined
    want = cut(graph, [y], fed)
    (expected,), got = values(want, [x]), executable(x)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))  # a part's -0.0 became the sum's 0.0


def test_pads_that_others_read_too_or_that_are_summed_on_the_way_stay() -> None:
    x = np.ones((2, 6), np.float32)
    with Graph() as graph:
        a = sg.placeholder(x.shape)
        left, right = sg.pad(a, ((0, 0), (0, 6))), sg.pad(a * 2.0, ((0, 0), (6, 0)))
        fed = {a: TensorType(x.shape, a.dtype)}
        for fetches in ([left + right, left], [sg.exp(left + right)], [sg.sum(left + right)], [left + right + 1.0]):
            region = cut(graph, fetches, fed)
            for step in PASSES:
                region = step.run(region)
            assert "concat" not in [node.op.name for node in region.graph.nodes]


def test_the_gradient_of_a_split_is_stored_where_it_belongs_without_looking_where_it_is() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 6), (12, 3)))
    with Graph() as graph:
        a, b = sg.placeholder(x.shape), sg.placeholder(w.shape)
        y = (sg.pad(a * 2.0, ((0, 0), (0, 6))) + sg.pad(sg.tanh(a), ((0, 0), (6, 0)))) @ b
        executable = sg.Session(graph).compile(y, [a, b])
    np.testing.assert_allclose(executable(x, w), np.concatenate([x * 2, np.tanh(x)], 1) @ w, rtol=1e-5, atol=1e-5)
    text = executable.text("kernels")
    assert "where" not in text
    assert "to arg1[6 + (12, 1)]" in text  # the second part, behind six columns of the first


def test_an_effect_is_never_merged_nor_dropped() -> None:
    seen: list[float] = []

    def note(x: Array) -> list[Array]:
        seen.append(float(x))
        return [x]

    with Graph() as graph:
        x = sg.placeholder(())
        first = sg.py_call(note, [x], [(sg.float32, ())])
        second = sg.py_call(note, [x], [(sg.float32, ())])
        with sg.control_dependencies([*first, *second]):
            y = sg.identity(x)
        sg.Session(graph).run(y, {x: np.float32(2.0)})
    assert seen == [2.0, 2.0]


def test_images_between_a_single_convolution_and_the_user_stay_in_planes() -> None:
    """Between two convolutions they are channels last."""
    shapes = ((2, 3, 8, 8), (3, 3, 3, 3), (3, 1, 1))
    with sg.Graph() as graph:
        x, w, b = (sg.placeholder(shape) for shape in shapes)
        one = sg.maximum(sg.nn.functional.conv2d(x, w, padding=1) + b, 0.0)
        two = sg.nn.functional.conv2d(one, w, padding=1) * 2.0
        fed = {t: TensorType(shape, t.dtype) for t, shape in zip((x, w, b), shapes, strict=True)}
        found = []
        for fetch in (one, two):
            region = cut(graph, [fetch], fed)
            for step in PASSES:
                region = step.run(region)
            names = [node.op.name for node in region.graph.nodes]
            found.append((names.count("convolution"), {t.op.op.name for t in layouts(region)}))
    assert found[0] == (1, set())
    assert found[1][0] == 2
    assert found[1][1] >= {"convolution", "add", "maximum"}


@pytest.mark.parametrize("read", ["fed", "gradient"])
def test_images_made_of_what_users_hold_stay_in_planes(read: str) -> None:
    """A gradient that the session keeps lies as its tensor does: beside a single convolution nothing is turned."""
    shapes = ((2, 3, 8, 8), (3, 3, 3, 3))
    with sg.Graph() as graph:
        x, w = (sg.placeholder(shape, requires_grad=True) for shape in shapes)
        image = {"fed": lambda: x, "gradient": lambda: sg.accumulated_grad(x)}[read]()
        y = sg.nn.functional.conv2d(image * 2.0, w, padding=1)
        region = cut(graph, [y], {t: TensorType(shape, t.dtype) for t, shape in zip((x, w), shapes, strict=True)})
        for step in PASSES:
            region = step.run(region)
    assert not layouts(region)


def test_a_choice_between_a_value_and_itself_without_a_gradient_costs_nothing_forward() -> None:
    with Graph() as graph:
        x = sg.placeholder((4,))
        y = sg.where(x > 0, x, sg.stop_gradient(x))
        slope = sg.gradients(y, x)[0]
        executable = sg.Session(graph).compile([sg.exp(y), slope], [x])
    values = np.array([-1, 0, 1, np.nan], np.float32)
    y_, slope_ = executable(values)
    np.testing.assert_array_equal(slope_, [0, 0, 1, 0])
    np.testing.assert_allclose(y_, np.exp(values), rtol=1e-6)
    with Graph() as graph:
        x = sg.placeholder((4,))
        executable = sg.Session(graph).compile(sg.exp(sg.where(x > 0, x, sg.stop_gradient(x))), x)
    executable(values)
    assert "greater" not in executable.text("kernels")


def test_slices_of_concats_are_read_from_the_pieces() -> None:
    """A part of a matrix that is replaced step by step: nothing is copied but into the last matrix."""
    with sg.Graph() as graph:
        x = sg.placeholder((6, 4), sg.float64)
        y = x
        for step in range(4):
            y = sg.concat([y[: step + 1], sg.sin(y[step + 1 :])], axis=0)
    exe = sg.Session(graph).compile(y, [x])
    assert exe.memory.arena_bytes < 4 * x.type.nbytes
    given = expected = np.random.default_rng(0).normal(size=(6, 4))
    for step in range(4):
        expected = np.concatenate([expected[: step + 1], np.sin(expected[step + 1 :])])
    np.testing.assert_allclose(exe(given), expected, rtol=1e-13)


def test_slices_over_the_ends_of_pieces_hold_what_they_held() -> None:
    x, y = sg.placeholder((3, 5), sg.float32), sg.placeholder((4, 5), sg.float32)
    both = sg.concat([x, y], axis=0)
    cuts = [
        both[1:3],
        both[3:],
        both[2:6],
        both[::2],
        both[5:1:-1, 1:4],
        both[2:2],
        sg.concat([both[1:5, 2:], y[:, 2:]]),
    ]
    values = [np.arange(15, dtype=np.float32).reshape(3, 5), -np.arange(20, dtype=np.float32).reshape(4, 5)]
    z = np.concatenate(values)
    expected = [z[1:3], z[3:], z[2:6], z[::2], z[5:1:-1, 1:4], z[2:2], np.concatenate([z[1:5, 2:], values[1][:, 2:]])]
    for found, wanted in zip(sg.Session().compile(cuts, [x, y])(*values), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
