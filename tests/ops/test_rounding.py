"""Functions of short floats round once: what they compose is composed in float32."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import is_short_float
from staticgrad.graph.graph import Graph, Node, Tensor

SHORT = [np.dtype("float16"), sg.bfloat16]
Call = Callable[..., Any]

# How to call public functions that take floats, by name: tensors of these shapes, and the call where it is not the
# function of them alone. A function that is not here is called with a square matrix for each parameter without default.
SQUARE, ROWS, IMAGE, IMAGES = (4, 4), (6, 5), (1, 2, 6, 6), (1, 2, 4, 4, 4)
TARGETS = np.arange(6) % 5
CALLS: dict[str, tuple[Sequence[tuple[int, ...]], Call | None]] = {
    "broadcast_arrays": ((SQUARE, SQUARE), None),
    "zeta": ((SQUARE, SQUARE), None),
    "arange": ((), lambda dtype: sg.arange(0.0, 9.0, 0.3, dtype=dtype)),
    "bitcast": ((SQUARE,), lambda x: sg.bitcast(x, "int16")),
    "astype": (((SQUARE,)), lambda x: sg.astype(x, "float64")),
    "betainc": ((SQUARE,) * 3, None),
    "block_diag": ((SQUARE, SQUARE), lambda *xs: sg.linalg.block_diag(*xs)),
    "broadcast_to": ((ROWS,), lambda x: sg.broadcast_to(x, (2, *ROWS))),
    "clip": ((SQUARE, SQUARE), lambda x, y: sg.clip(x, -1, y)),
    "constant": ((), lambda dtype: sg.constant(0.1, dtype)),
    "concat": ((SQUARE, SQUARE), lambda *xs: sg.concat(xs)),
    "cross": (((4, 3), (4, 3)), None),
    "cumulative_prod": ((SQUARE,), lambda x: sg.cumulative_prod(x, axis=0)),
    "cumulative_sum": ((SQUARE,), lambda x: sg.cumulative_sum(x, axis=0)),
    "cummax": ((SQUARE,), lambda x: sg.cummax(x, 0, return_indices=True)),
    "cummin": ((SQUARE,), lambda x: sg.cummin(x, 1)),
    "logcumsumexp": ((SQUARE,), lambda x: sg.logcumsumexp(x, 1)),
    "einsum": ((SQUARE, SQUARE, SQUARE), lambda *xs: sg.einsum("ij,jk,kl->l", *xs)),
    "empty": ((), lambda dtype: sg.empty(SQUARE, dtype=dtype)),
    "expand_dims": ((SQUARE,), None),
    "eye": ((), lambda dtype: sg.eye(3, dtype=dtype)),
    "full": ((), lambda dtype: sg.full((3,), 0.1, dtype=dtype)),
    "full_like": ((SQUARE,), lambda x: sg.full_like(x, 0.1)),
    "iota": ((), lambda dtype: sg.iota((3, 4), 1, dtype=dtype)),
    "householder_product": ((SQUARE, (4,)), None),
    "lu_solve": ((SQUARE, SQUARE), lambda x, y: sg.linalg.lu_solve(x, np.arange(4), y)),
    "tridiagonal_solve": (((4,),) * 4, None),
    "linspace": ((), lambda dtype: sg.linspace(0.0, 1.0, 7, dtype=dtype)),
    "matrix_power": ((SQUARE,), lambda x: sg.linalg.matrix_power(x, -5)),
    "meshgrid": (((3,), (4,)), None),
    "moveaxis": ((SQUARE,), lambda x: sg.moveaxis(x, 0, 1)),
    "ones": ((), lambda dtype: sg.ones(SQUARE, dtype=dtype)),
    "permute_dims": ((SQUARE,), lambda x: sg.permute_dims(x, (1, 0))),
    "polygamma": ((SQUARE,), lambda x: sg.polygamma(2, x)),
    "repeat": ((SQUARE,), lambda x: sg.repeat(x, [1, 2, 0, 3], axis=0)),
    "reshape": ((SQUARE,), lambda x: sg.reshape(x, (-1, 2))),
    "roll": ((SQUARE,), lambda x: sg.roll(x, 1)),
    "scatter": ((SQUARE, SQUARE), lambda x, y: sg.scatter(x, np.zeros(4, int), y, mode="add")),
    "digitize": ((SQUARE, (9,)), None),
    "histogram": ((ROWS,), lambda x: sg.histogram(x, 3, density=True)),
    "interp": ((SQUARE, (9,), (9,)), lambda *xs: sg.interp(*xs, left=0.5)),
    "gradient": ((SQUARE,), lambda x: sg.gradient(x, 0.1, edge_order=2)),
    "trapezoid": ((SQUARE, SQUARE), None),
    "average": ((SQUARE, SQUARE), lambda x, w: sg.average(x, 0, w)),
    "percentile": ((SQUARE,), lambda x: sg.percentile(x, [3, 50], axis=1)),
    "quantile": ((SQUARE, ()), lambda x, q: sg.quantile(x, q)),
    "lexsort": ((SQUARE, SQUARE), lambda *xs: sg.lexsort(xs)),
    "nonzero": ((SQUARE,), lambda x: sg.nonzero(x, size=3)),
    "unique": ((SQUARE,), lambda x: sg.unique(x, size=3)),
    **{
        name: ((SQUARE, SQUARE), lambda *xs, name=name: getattr(sg, name)(xs))
        for name in ("vstack", "hstack", "dstack", "column_stack")
    },
    "searchsorted": (((9,), (4,)), None),
    "solve_triangular": ((SQUARE, SQUARE), None),
    "split": ((SQUARE,), lambda x: sg.split(x, 2)),
    "stack": ((SQUARE, SQUARE), lambda *xs: sg.stack(xs)),
    "swapaxes": ((SQUARE,), lambda x: sg.swapaxes(x, 0, 1)),
    "take": ((SQUARE,), lambda x: sg.take(x, np.array([2, 1]), axis=0)),
    "take_along_axis": ((SQUARE,), lambda x: sg.take_along_axis(x, np.zeros((4, 1), int), 1)),
    "tile": ((SQUARE,), lambda x: sg.tile(x, 2)),
    "topk": ((SQUARE,), lambda x: sg.topk(x, 2)),
    "where": ((SQUARE, SQUARE), lambda x, y: sg.where(sg.greater(x, 0), x, y)),
    "zeros": ((), lambda dtype: sg.zeros(SQUARE, dtype=dtype)),
    "adaptive_avg_pool2d": ((IMAGE,), lambda x: sg.nn.adaptive_avg_pool2d(x, (4, 5))),
    **{
        f"{kind}_pool{axes}d": (
            (IMAGES[: axes + 2],),
            lambda x, kind=kind, axes=axes: getattr(sg.nn, f"{kind}_pool{axes}d")(x, 3),
        )
        for kind in ("avg", "max", "adaptive_avg", "adaptive_max")
        for axes in (1, 2, 3)
        if (kind, axes) not in (("avg", 2), ("max", 2), ("adaptive_avg", 2))
    },
    "ctc_loss": (((4, 1, 3),), lambda x: sg.nn.ctc_loss(x, [[1]], [4], [1])),
    "fft": ((SQUARE, SQUARE), None),
    "ifft": ((SQUARE, SQUARE), None),
    "rfft": ((SQUARE,), None),
    "irfft": ((SQUARE, SQUARE), None),
    "fold": (((8, 9),), lambda x: sg.nn.fold(x, 4, 2)),
    "unfold": ((IMAGE,), lambda x: sg.nn.unfold(x, 2)),
    "grid_sample": ((IMAGE, (1, 3, 3, 2)), lambda x, grid: sg.nn.grid_sample(x, grid, "bicubic")),
    "affine_grid": (((1, 2, 3),), lambda theta: sg.nn.affine_grid(theta, (1, 1, 3, 3))),
    "conv_transpose1d": (((1, 2, 9), (2, 3, 3), (3,)), None),
    "conv_transpose3d": ((IMAGES, (2, 3, 3, 3, 3), (3,)), None),
    "avg_pool2d": ((IMAGE,), lambda x: sg.nn.avg_pool2d(x, 3, padding=1, count_include_pad=False)),
    "batch_norm": ((ROWS, (5,), (5,)), lambda x, w, b: sg.nn.batch_norm(x, None, None, w, b, True)),
    "conv1d": (((1, 2, 9), (3, 2, 3), (3,)), None),
    "conv2d": ((IMAGE, (3, 2, 3, 3), (3,)), None),
    "conv3d": ((IMAGES, (3, 2, 3, 3, 3), (3,)), None),
    "conv_transpose2d": (
        (IMAGE, (2, 3, 3, 3), (3,)),
        lambda *xs: sg.nn.conv_transpose2d(*xs, dilation=3, output_padding=2),
    ),
    "cross_entropy": ((ROWS, (5,)), lambda x, w: sg.nn.cross_entropy(x, TARGETS, w, label_smoothing=0.1)),
    "dropout": ((ROWS,), None),
    "embedding": ((ROWS,), lambda x: sg.nn.embedding(TARGETS, x)),
    "group_norm": (((2, 4, 3), (4,), (4,)), lambda x, w, b: sg.nn.group_norm(x, 2, w, b)),
    "funm": ((SQUARE,), lambda x: sg.linalg.funm(x, sg.tanh)),
    "interpolate": ((IMAGES,), lambda x: sg.nn.interpolate(x, (3, 5, 6), mode="trilinear")),
    "layer_norm": ((ROWS, (5,), (5,)), lambda x, w, b: sg.nn.layer_norm(x, (5,), w, b)),
    "linear": ((ROWS, (3, 5), (3,)), None),
    "max_pool2d": ((IMAGE,), lambda x: sg.nn.max_pool2d(x, 2)),
    "nll_loss": ((ROWS,), lambda x: sg.nn.nll_loss(x, TARGETS)),
    "one_hot": ((), lambda dtype: sg.nn.one_hot(TARGETS, dtype=dtype)),
    "pad": ((SQUARE,), lambda x: sg.pad(x, 1)),
    "rms_norm": ((ROWS, (5,)), lambda x, w: sg.nn.rms_norm(x, (5,), w)),
    "scaled_dot_product_attention": (((2, 6, 8),) * 3, None),
    "bernoulli": ((SQUARE,), None),
    "categorical": ((SQUARE,), None),
    "choice": ((SQUARE, (4,)), lambda x, p: sg.random.choice(x, (3,), p=p)),
    "exponential": ((SQUARE,), lambda scale: sg.random.exponential(SQUARE, scale)),
    "gamma": ((SQUARE, SQUARE), lambda alpha, scale: sg.random.gamma(alpha, SQUARE, scale)),
    "normal": ((SQUARE,), lambda mean: sg.random.normal(SQUARE, mean, 2.0)),
    "uniform": ((SQUARE, SQUARE), lambda low, high: sg.random.uniform(SQUARE, low, high)),
    "global_norm": ((SQUARE, ROWS), lambda *xs: sg.optim.global_norm(xs)),
    "kl_div batchmean": ((SQUARE, SQUARE), lambda x, y: sg.nn.kl_div(x, y, "batchmean")),
    "binary_cross_entropy weight": ((SQUARE,) * 3, None),
    "binary_cross_entropy_with_logits weight": (
        (SQUARE,) * 4,
        lambda x, t, w, p: sg.nn.binary_cross_entropy_with_logits(x, t, w, "sum", p),
    ),
    "diff thrice": ((SQUARE,), lambda x: sg.diff(x, n=3)),
    **{
        f"scatter {mode}": (
            (SQUARE, SQUARE),
            lambda x, y, mode=mode: sg.scatter(x, np.zeros(4, int), y, mode, include_self=mode == "mul"),
        )
        for mode in ("mul", "mean", "max", "add")
    },
    "vector_norm 3": ((SQUARE,), lambda x: sg.linalg.vector_norm(x, ord=3)),
    "matrix_norm nuc": ((SQUARE,), lambda x: sg.linalg.matrix_norm(x, ord="nuc")),
    "batch_norm running": ((ROWS,) + ((5,),) * 4, lambda *xs: sg.nn.batch_norm(*xs)),
    "gelu tanh": ((SQUARE,), lambda x: sg.nn.gelu(x, "tanh")),
    "clip_by_global_norm": ((SQUARE, ROWS), lambda *xs: sg.optim.clip_by_global_norm(xs, 1.0)),
}
NOT_OF_FLOATS = """
Variable assert_ assign bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
associative_scan bincount clz popcount accumulated_grad
can_cast check_gradients checkpoint cond control_dependencies custom_gradient dim enable_grad export finfo
function get_default_graph is_grad_enabled load load_graph load_safetensors save_graph
gradients group hessian hvp iinfo isdtype jacobian jvp map minimize no_grad parse placeholder permutation print py_call
randint
pivots_to_permutation summary
quantize_dynamic quantized_linear
fixed_point ggn_product least_squares linearize odeint root sparse_hessian sparse_jacobian sparsity
once_differentiable op reset_default_graph result_type scan set_grad_enabled value_and_grad vmap while_loop
"""
HOMES = (sg, sg.nn, sg.linalg, sg.random, sg.optim)


def public_functions() -> dict[str, Call]:
    homes = [(home, dir(home)) for home in HOMES]
    found = {name: getattr(home, name) for home, names in homes for name in names if name[0] != "_"}
    return {name: f for name, f in found.items() if inspect.isfunction(f) and f.__module__.startswith("staticgrad")}


def call_of(name: str) -> tuple[Sequence[tuple[int, ...]], Call]:
    """The shapes of operands, and the function that is called with them."""
    shapes, call = CALLS.get(name, (None, None))
    function = call or public_functions()[name.split()[0]]
    if shapes is None:
        parameters = inspect.signature(function).parameters.values()
        shapes = (SQUARE,) * sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    return shapes, function


def roundings(graph: Graph, results: Sequence[Tensor]) -> dict[Node, int]:
    """How often what reaches each result has been rounded to a short float on the way, at most."""
    count: dict[Node, int] = {}
    for node in graph.nodes:
        before = max([count[x.op] for x in node.inputs], default=0)
        from_wider = node.op.name == "astype" and not is_short_float(node.inputs[0].dtype)
        makes_short = any(is_short_float(y.dtype) for y in node.outputs)
        count[node] = before + (makes_short and bool(node.inputs) and (from_wider or node.op.widens(node.inputs)))
    return {y.op: count[y.op] for y in results}


@pytest.mark.parametrize("name", sorted({*CALLS, *public_functions()} - set(NOT_OF_FLOATS.split())))
def test_a_function_of_short_floats_rounds_once(name: str) -> None:
    shapes, function = call_of(name)
    assert shapes or name in CALLS, f"how {name} is called is to be said in CALLS"
    for dtype in SHORT:
        with sg.Graph() as graph:
            xs = [sg.placeholder(shape, dtype) for shape in shapes]
            results = sg.nest.flatten(function(*xs) if shapes else function(dtype))
        assert max(roundings(graph, results).values()) <= 1, f"{name} rounds more than once:\n{graph}"


def against_float32(function: Call, *arrays: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a function gives of short floats, and of the same numbers as float32, rounded."""
    dtype, results = arrays[0].dtype, []
    for kind in (dtype, np.dtype("float32")):
        with sg.Graph() as graph:
            xs = [sg.placeholder(a.shape, kind) for a in arrays]
            y = function(*xs)
            fetched = [y, *sg.gradients(y, xs)]
        feeds = {x: a.astype(kind) for x, a in zip(xs, arrays, strict=True)}
        values = sg.Session(graph).run(fetched, feeds)
        results.append(np.concatenate([np.ravel(v).astype(dtype).astype(np.float64) for v in values]))
    return results[0], results[1]


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("scale", [300.0, 2e-3])
@pytest.mark.parametrize(
    "function",
    [
        sg.linalg.vector_norm,
        lambda x: sg.linalg.vector_norm(x, 1, ord=3),
        sg.linalg.matrix_norm,
        sg.nn.normalize,
        lambda x: sg.nn.normalize(x, 3.0),
        lambda x: sg.optim.clip_by_global_norm([x], 1.0)[0],
        lambda x: sg.nn.interpolate(sg.reshape(x, (1, 1, 8, 6)), (5, 9), mode="bilinear"),
    ],
)
def test_norms_of_numbers_whose_squares_no_short_float_holds(function: Call, scale: float, dtype: np.dtype) -> None:
    x = (np.random.default_rng(5).standard_normal((8, 6)) * scale).astype(dtype)
    with np.errstate(all="ignore"):
        got, want = against_float32(function, x)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol=1.01 * float(sg.finfo(dtype).eps), atol=1e-7)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_random_numbers_of_short_floats_are_as_many_and_as_wide(dtype: np.dtype) -> None:
    n = 200_000
    drawn = [sg.random.normal((n,), dtype=dtype, seed=1), sg.random.uniform((n,), dtype=dtype, seed=1),
             sg.random.uniform((n,), 2.0, 3.0, dtype=dtype, seed=1),
             sg.nn.dropout(sg.ones((n,), dtype=dtype), 0.1, seed=1)]  # fmt: skip
    normal, unit, shifted, kept = (x.astype(np.float64) for x in sg.Session().run(drawn))
    assert np.isfinite(normal).all()
    assert 4.0 < np.abs(normal).max() < 6.0
    assert (unit < 1).all()
    assert 1 - unit.max() <= float(sg.finfo(dtype).eps)
    assert (shifted <= 3).all()
    assert abs((kept == 0).mean() - 0.1) < 0.002


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"])
def test_an_optimizer_updates_short_floats_as_float32(name: str, dtype: np.dtype) -> None:
    values = []
    for kind in (dtype, np.dtype("float32")):
        with sg.Graph() as graph:
            w = sg.Variable(np.linspace(0.5, 2.0, 8).astype(dtype).astype(kind))
            optimizer = getattr(sg.optim, name)(lr=0.01, weight_decay=0.1)
            step = optimizer.apply_gradients([(sg.constant(np.full(8, 1e-4, dtype).astype(kind)), w)])
        with sg.Session(graph) as sess:
            for _ in range(3):
                sess.run(step)
                sess.set(w, sess.get(w).astype(dtype).astype(kind))  # the variable is short, its slots are not
            values.append(sess.get(w).astype(np.float64))
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_running_statistics_of_large_short_floats_are_finite(dtype: np.dtype) -> None:
    x = (np.random.default_rng(0).standard_normal((16, 3)) * 300).astype(dtype)
    mean = sg.Variable(np.zeros(3, np.float32), trainable=False)
    variance = sg.Variable(np.ones(3, np.float32), trainable=False)
    y = sg.nn.batch_norm(sg.constant(x), mean, variance, training=True)
    with sg.Session() as sess:
        sess.run(y)
        np.testing.assert_allclose(sess.get(mean), x.astype(float).mean(0) * 0.1, rtol=1e-5)
        np.testing.assert_allclose(sess.get(variance), 0.9 + 0.1 * x.astype(float).var(0, ddof=1), rtol=1e-5)


@pytest.mark.parametrize("layer", [sg.nn.LSTM, sg.nn.GRU])
def test_a_recurrent_layer_of_short_floats_rounds_what_it_gives(layer: Any) -> None:
    for dtype in SHORT:
        with sg.Graph() as graph:
            output, ends = layer(3, 4, num_layers=2, dtype=dtype)(sg.placeholder((5, 2, 3), dtype))
        assert {x.dtype for x in sg.nest.flatten([output, ends])} == {dtype}
        assert max(roundings(graph, sg.nest.flatten([output, ends])).values()) == 1


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_rms_norm_of_short_floats_has_the_epsilon_of_float32(dtype: np.dtype) -> None:
    x = (np.arange(1, 7).reshape(2, 3) * 1e-3).astype(dtype)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 2.0**-23)
    y = sg.Session().run(sg.nn.rms_norm(sg.constant(x), (3,))).astype(np.float64)
    np.testing.assert_allclose(y, expected, rtol=float(sg.finfo(dtype).eps))
