"""What neural functions, layers, optimizers, initial values and random numbers declare, run on the interpreter.

Values of single ops are tested from the op table; here are the ways to call them, what they refuse, names and state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.nn.module import Module
from staticgrad.ops.randoms import threefry2x32, threefry_key, uniform_reference

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


@pytest.fixture
def graph() -> Iterator[Graph]:
    with sg.Graph() as g:
        yield g


def value(x: Any, feeds: Any = None, seed: int = 0) -> Any:
    return sg.Session(x.graph, seed=seed).run(x, feeds)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- contraction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bij,kj->kbi", [(2, 3, 4), (5, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iij,j->i", [(3, 3, 2), (2,)]),
        ("ij,ij->i", [(3, 4), (3, 4)]),
        ("ij,kl->", [(3, 4), (2, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("b...,...->b...", [(2, 3, 4), (3, 4)]),
        ("ij,j->ij", [(3, 4), (1,)]),
    ],
)
def test_einsum_is_numpys(graph: Graph, spec: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [rng(i).normal(size=shape) for i, shape in enumerate(shapes)]
    np.testing.assert_allclose(value(sg.einsum(spec, *arrays)), np.einsum(spec, *arrays), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spec", ["ij,jk->ii", "ij,jk->iz", "ij", "ijk,jk->i", "i1,jk->i", "i...,jk->ijk"])
def test_einsum_refuses(graph: Graph, spec: str) -> None:
    with pytest.raises(sg.GraphError, match="einsum"):
        sg.einsum(spec, np.ones((2, 3)), np.ones((3, 4)))


def test_products_are_numpys(graph: Graph) -> None:
    a, b = rng(0).normal(size=(2, 3, 4)), rng(1).normal(size=(4, 3, 5))
    np.testing.assert_allclose(
        value(sg.tensordot(a, b, axes=([1, 2], [1, 0]))), np.tensordot(a, b, axes=([1, 2], [1, 0]))
    )
    np.testing.assert_allclose(value(sg.tensordot(a, a[0].T, axes=1)), np.tensordot(a, a[0].T, axes=1))
    np.testing.assert_allclose(value(sg.outer(a, b[0])), np.outer(a, b[0]))
    np.testing.assert_allclose(value(sg.vecdot(a, a)), (a * a).sum(-1))
    whole = np.arange(6).reshape(2, 3)
    product = value(sg.matmul(whole, whole.T))
    assert product.dtype == np.int64
    np.testing.assert_array_equal(product, whole @ whole.T)
    np.testing.assert_array_equal(value(sg.matmul(whole > 2, whole.T > 0)), (whole > 2) @ (whole.T > 0))


@pytest.mark.parametrize(
    "declare",
    [
        lambda: sg.matmul(np.ones((2, 3)), np.ones((2, 3))),
        lambda: sg.matmul(np.ones(()), np.ones((2, 3))),
        lambda: sg.matmul(np.ones((2, 3, 4)), np.ones((3, 4, 5))),
        lambda: sg.nn.linear(np.ones((2, 3)), np.ones((4, 2))),
        lambda: sg.nn.linear(np.ones((2, 3)), np.ones((4, 3)), np.ones(3)),
        lambda: sg.nn.conv2d(np.ones((1, 3, 5, 5)), np.ones((4, 2, 3, 3))),
        lambda: sg.nn.conv2d(np.ones((1, 3, 5, 5)), np.ones((4, 3, 3, 3)), padding="same", stride=2),
        lambda: sg.nn.conv2d(np.ones((1, 4, 5, 5)), np.ones((3, 2, 3, 3)), groups=2),
        lambda: sg.nn.max_pool2d(np.ones((1, 1, 4, 4)), 2, padding=2),
        lambda: sg.nn.max_pool2d(np.ones((1, 1, 4, 4)), 5),
        lambda: sg.nn.max_pool2d(np.ones((1, 1, 4, 4), np.int64), 2),
        lambda: sg.nn.cross_entropy(np.ones((4, 3)), np.zeros(5, np.int64)),
        lambda: sg.nn.cross_entropy(np.ones((4, 3)), np.zeros(4, np.int64), reduction="average"),
        lambda: sg.nn.cross_entropy(np.ones((4, 3)), np.zeros(4, np.int64), np.ones(4)),
        lambda: sg.nn.softmax(np.ones((4, 3)), 2),
        lambda: sg.nn.softmax(np.ones((4, 3), np.int64), 1),
        lambda: sg.nn.layer_norm(np.ones((4, 3)), (4,)),
        lambda: sg.nn.group_norm(np.ones((4, 3)), 2),
        lambda: sg.nn.batch_norm(np.ones((4, 3)), None, None),
        lambda: sg.nn.batch_norm(np.ones((1, 3)), None, None, training=True),
        lambda: sg.nn.dropout(np.ones(3), 1.5),
        lambda: sg.nn.embedding(np.ones(3), np.ones((4, 2))),
        lambda: sg.nn.interpolate(np.ones((1, 1, 4, 4)), 3, mode="linear"),
        lambda: sg.nn.pad(np.ones((1, 4)), (4, 0), mode="reflect"),
        lambda: sg.random.uniform((3,), dtype=sg.int64),
        lambda: sg.random.uniform((3,), seed=2**64),
        lambda: sg.optim.SGD(-0.1),
        lambda: sg.optim.Adam(betas=(0.9, 1.0)),
    ],
)
def test_bad_declarations_are_refused(graph: Graph, declare: Callable[[], Any]) -> None:
    with pytest.raises(sg.GraphError):
        declare()


def test_backward_nodes_have_pytorchs_names(graph: Graph) -> None:
    x = sg.placeholder((2, 3, 8, 8), requires_grad=True)
    row = sg.placeholder((4, 5), requires_grad=True)
    t = sg.placeholder((4,), sg.int32)
    names = {
        "ConvolutionBackward0": sg.nn.conv2d(x, np.ones((4, 3, 3, 3), np.float32)),
        "MaxPool2DWithIndicesBackward0": sg.nn.max_pool2d(x, 2),
        "AvgPool2DBackward0": sg.nn.avg_pool2d(x, 2),
        "AddmmBackward0": sg.nn.linear(row, np.ones((3, 5), np.float32), np.ones(3, np.float32)),
        "MmBackward0": row @ np.ones((5, 2), np.float32),
        "SoftmaxBackward0": sg.nn.softmax(row, 1),
        "LogSoftmaxBackward0": sg.nn.log_softmax(row, 1),
        "NllLossBackward0": sg.nn.cross_entropy(row, t),
        "NativeLayerNormBackward0": sg.nn.layer_norm(row, 5),
        "NativeBatchNormBackward0": sg.nn.batch_norm(x, None, None, training=True),
        "MseLossBackward0": sg.nn.mse_loss(row, row),
        "EmbeddingBackward0": sg.nn.embedding(t, row),
    }
    for name, y in names.items():
        assert y.grad_fn is not None
        assert y.grad_fn.name == name


# -- sizes that feeds bind ----------------------------------------------------------------------------------------


def test_a_network_over_any_batch(graph: Graph) -> None:
    x, t = sg.placeholder((None, 3, 8, 8)), sg.placeholder((None,), sg.int64)
    net = sg.nn.Sequential(
        sg.nn.Conv2d(3, 4, 3, padding=1), sg.nn.BatchNorm2d(4), sg.nn.ReLU(), sg.nn.MaxPool2d(2),
        sg.nn.GroupNorm(2, 4), sg.nn.AvgPool2d(2), sg.nn.Flatten(), sg.nn.Linear(16, 5), sg.nn.LayerNorm(5),
    )  # fmt: skip
    loss = sg.nn.cross_entropy(net(x), t, label_smoothing=0.1)
    gradients = sg.gradients(loss, net.parameters())
    sess = sg.Session(graph)
    for n in (2, 3):
        xb, tb = rng(n).normal(size=(n, 3, 8, 8)).astype(np.float32), np.arange(n)
        result, *found = sess.run([loss, *gradients], {x: xb, t: tb})
        assert np.isfinite(result)
        assert [g.shape for g in found] == [v.shape for v in net.parameters()]


# -- neural functions -----------------------------------------------------------------------------------------------


def test_labels_out_of_range(graph: Graph) -> None:
    x, t = sg.placeholder((3, 4)), sg.placeholder((3,), sg.int64)
    loss = sg.nn.cross_entropy(x, t)
    feed = np.zeros((3, 4), np.float32)
    assert value(loss, {x: feed, t: [0, -100, 3]}) == pytest.approx(math.log(4))
    for bad in (4, -1):
        with pytest.raises(sg.BoundsError, match="label"):
            value(loss, {x: feed, t: [0, bad, 3]})
    with pytest.raises(sg.BoundsError, match="label"):
        sg.nn.cross_entropy(x, np.array([0, 4, 1]))
    with pytest.raises(sg.BoundsError):
        sg.nn.embedding(np.array([5]), np.ones((5, 2)))


def test_all_examples_ignored_is_nan_as_in_pytorch(graph: Graph) -> None:
    assert np.isnan(value(sg.nn.cross_entropy(np.zeros((2, 3)), np.array([-100, -100]))))


def test_losses_stay_finite_for_huge_logits(graph: Graph) -> None:
    x = sg.constant(np.array([[1e4, -1e4, 0.0]]))
    loss = sg.nn.cross_entropy(x, np.array([1]))
    (gradient,) = sg.gradients(loss, [x])
    np.testing.assert_allclose(value(loss), 2e4)
    np.testing.assert_allclose(value(gradient), [[1.0, -1.0, 0.0]])
    z = sg.constant(np.array([-800.0, 800.0, 0.0]))
    rows = sg.nn.binary_cross_entropy_with_logits(z, np.array([0.0, 1.0, 1.0]), reduction="none")
    np.testing.assert_allclose(value(rows), [0, 0, math.log(2)], atol=1e-300)
    first = sg.gradients(rows, [z])[0]
    assert first is not None
    np.testing.assert_allclose(value(sg.gradients(first, [z])[0])[2], 0.25)


@pytest.mark.parametrize("open_size", [False, True])
def test_windows_of_minus_infinity_that_touch_the_padding_keep_their_gradient(graph: Graph, open_size: bool) -> None:
    x = sg.placeholder((1, 1, None if open_size else 4, 4), sg.float64)
    y, places = sg.nn.max_pool2d(x, 2, 2, 1, return_indices=True)
    (gradient,) = sg.gradients(y, [x])
    (tangent,) = sg.jvp(y, x, sg.ones_like(x))
    image = np.full((1, 1, 4, 4), -np.inf)
    image[0, 0, 3, 3] = np.nan
    found, chosen, moved = sg.Session(graph).run([gradient, places, tangent], {x: image})
    expected = np.zeros(16)
    np.add.at(expected, chosen.ravel(), 1.0)
    np.testing.assert_array_equal(found.ravel(), expected)
    np.testing.assert_array_equal(moved, np.ones((1, 1, 3, 3)))


def test_max_pool_gradient_goes_to_the_first_of_equals(graph: Graph) -> None:
    x = sg.constant(np.array([[[1.0, 1.0, 0.0, np.nan], [1.0, 0.0, 2.0, 2.0]]]))
    (gradient,) = sg.gradients(sg.nn.max_pool2d(x, 2), [x])
    np.testing.assert_array_equal(value(gradient), [[[1, 0, 0, 1], [0, 0, 0, 0]]])


def test_attention_of_a_query_without_keys_is_zero(graph: Graph) -> None:
    q = sg.constant(rng(0).normal(size=(2, 4)))
    mask = np.array([[True, False], [False, False]])
    y = sg.nn.scaled_dot_product_attention(q, q, q, mask)
    (gradient,) = sg.gradients(y, [q])
    np.testing.assert_array_equal(value(y)[1], 0)
    assert np.isfinite(value(gradient)).all()


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_pad_is_numpys(graph: Graph, mode: Any) -> None:
    x = rng(0).normal(size=(2, 3, 4))
    numpys = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    np.testing.assert_array_equal(value(sg.nn.pad(x, (1, 2, 2, 0), mode)), np.pad(x, ((0, 0), (2, 0), (1, 2)), numpys))


def test_pad_with_negative_counts_takes_away(graph: Graph) -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(value(sg.nn.pad(x, (-1, 1), value=9.0)), [[1, 2, 9], [4, 5, 9]])


def test_interpolate(graph: Graph) -> None:
    x = np.array([[[0.0, 1.0, 2.0, 3.0]]])
    np.testing.assert_array_equal(value(sg.nn.interpolate(x, 2)), [[[0, 2]]])
    np.testing.assert_array_equal(value(sg.nn.interpolate(x, scale_factor=2.0))[0, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_allclose(
        value(sg.nn.interpolate(x, 7, mode="linear", align_corners=True))[0, 0], np.arange(7) / 2
    )
    np.testing.assert_allclose(value(sg.nn.interpolate(x, 2, mode="linear")), [[[0.5, 2.5]]])
    np.testing.assert_allclose(value(sg.nn.interpolate(x, 2, mode="area")), [[[0.5, 2.5]]])


def test_interpolate_averages_all_that_a_smaller_image_stands_for(graph: Graph) -> None:
    """The values are PyTorch's."""
    x = np.repeat(np.arange(7.0) ** 2, 2).reshape(1, 1, 7, 2)

    def first_column(**how: Any) -> Array:
        column: Array = value(sg.nn.interpolate(x, antialias=True, **how))[0, 0, :, 0]
        return column

    bilinear, bicubic = (first_column(size=(3, 2), mode=mode) for mode in ("bilinear", "bicubic"))
    np.testing.assert_allclose(bilinear, [1.2857142857142858, 9.941176470588236, 27])
    np.testing.assert_allclose(bicubic, [0.6774193548387097, 9.363858363858364, 28.06451612903226])
    larger = first_column(scale_factor=(1.5, 1), mode="bicubic")
    np.testing.assert_allclose(larger[[0, 3, 9]], [-0.0657894736842106, 3.361111111111111, 34.84682713347921])
    with pytest.raises(sg.GraphError, match="antialias"):
        sg.nn.interpolate(x, 3, antialias=True)


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm_with_a_projected_state(graph: Graph, reverse: bool) -> None:
    layer = sg.nn.LSTM(3, 5, num_layers=2, bidirectional=reverse, proj_size=2, dtype=np.float64)
    names = [name for name, _ in layer.named_parameters()]
    assert names[:5] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0"]
    x, directions = rng().normal(size=(4, 6, 3)), 1 + reverse
    first = [rng(i).normal(size=(2 * directions, 6, size)) for i, size in ((1, 2), (2, 5))]
    sess = sg.Session(graph)
    y, (h, c) = sess.run(layer(x, (first[0], first[1])))
    p = layer.state_dict(sess)

    def sigmoid(z: Array) -> Array:
        return 1 / (1 + np.exp(-z))

    rows, last = x, []
    for number in range(2):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{number}" + "_reverse" * direction
            hidden, cell = (state[number * directions + direction] for state in first)
            states = []
            for row in rows[::-1] if direction else rows:
                gates = row @ p["weight_ih" + suffix].T + p["bias_ih" + suffix]
                i, f, g, o = np.split(gates + hidden @ p["weight_hh" + suffix].T + p["bias_hh" + suffix], 4, axis=-1)
                cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                hidden = (sigmoid(o) * np.tanh(cell)) @ p["weight_hr" + suffix].T
                states.append(hidden)
            outputs.append(np.stack(states[::-1] if direction else states))
            last.append((hidden, cell))
        rows = np.concatenate(outputs, axis=-1)
    np.testing.assert_allclose(y, rows, rtol=1e-10)
    np.testing.assert_allclose(h, np.stack([hidden for hidden, _ in last]), rtol=1e-10)
    np.testing.assert_allclose(c, np.stack([cell for _, cell in last]), rtol=1e-10)
    with pytest.raises(sg.GraphError, match="proj_size"):
        sg.nn.LSTM(3, 5, proj_size=5)


@pytest.mark.parametrize("layer", [sg.nn.LSTM, sg.nn.GRU])
@pytest.mark.parametrize(
    ("input", "weights", "state", "expected"),
    [
        ("int64", "float64", None, "float64"),
        ("int64", "float32", None, "float64"),
        ("bool", "float16", None, "float16"),
        ("float32", "float64", None, "float64"),
        ("float64", "float32", None, "float64"),
        ("float16", "float32", None, "float32"),
        ("float32", "float16", "float16", "float32"),
        ("float16", "float16", "float32", "float32"),
        ("bfloat16", "bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_a_recurrent_layer_gives_the_dtype_that_its_operands_are_promoted_to(
    graph: Graph, layer: Any, input: str, weights: str, state: str | None, expected: str
) -> None:
    x = sg.constant(np.arange(30).reshape(5, 2, 3) % 4).astype(input)
    h = None if state is None else sg.ones((1, 2, 4), dtype=state)
    y, ends = layer(3, 4, dtype=weights)(x, (h, h) if h is not None and layer is sg.nn.LSTM else h)
    assert {t.dtype.name for t in sg.nest.flatten([y, ends])} == {expected}
    assert np.all(value(sg.astype(y, sg.float64)) != 0)


@pytest.mark.parametrize("depth", [1, 2])
def test_an_open_depth_below_the_kernel_is_refused_when_it_is_fed(graph: Graph, depth: int) -> None:
    x = sg.placeholder((1, 2, None, 4, 4), sg.float64)
    w = np.ones((3, 2, 3, 2, 2))
    y = sg.nn.conv3d(x, w)
    assert str(y.shape[2]) != "0"
    with pytest.raises(sg.GraphError, match="conv3d: a window does not fit into its image"):
        value(y, {x: np.ones((1, 2, depth, 4, 4))})
    assert value(y, {x: np.ones((1, 2, 3, 4, 4))}).shape == (1, 3, 1, 3, 3)


@pytest.mark.parametrize("kernel", [(0, 3), (3, 0), (0, 3, 3), (3, 3, 0), (0,)])
def test_a_kernel_without_elements_is_refused(graph: Graph, kernel: tuple[int, ...]) -> None:
    convolve = {1: sg.nn.conv1d, 2: sg.nn.conv2d, 3: sg.nn.conv3d}[len(kernel)]
    with pytest.raises(sg.GraphError, match=f"conv{len(kernel)}d: expected a kernel of at least 1"):
        convolve(np.ones((1, 1, *(5,) * len(kernel))), np.ones((1, 1, *kernel)))
    if len(kernel) == 2:
        with pytest.raises(sg.GraphError, match="expected a kernel of at least 1"):
            sg.nn.conv_transpose2d(np.ones((1, 1, 5, 5)), np.ones((1, 1, *kernel)))


def test_what_does_not_fit_is_refused_by_the_name_of_the_function(graph: Graph) -> None:
    image, rows = np.ones((1, 1, 4, 4)), np.ones((1, 1, 4))
    calls: dict[str, Callable[[], object]] = {
        r"max_pool2d: a window .* image float64\[1, 1, 4, 4\]": lambda: sg.nn.max_pool2d(image, 5),
        r"avg_pool2d: a window .* image float64\[1, 1, 4, 4\]": lambda: sg.nn.avg_pool2d(image, 5),
        r"conv2d: a window .* image float64\[1, 1, 4, 4\]": lambda: sg.nn.conv2d(image, np.ones((1, 1, 5, 5))),
        r"conv1d: a window .* image float64\[1, 1, 4\]": lambda: sg.nn.conv1d(rows, np.ones((1, 1, 5))),
        r"conv1d: stride: expected one int, actual": lambda: sg.nn.conv1d(rows, np.ones((1, 1, 2)), stride=(1, 2)),
        r"conv1d: padding=": lambda: sg.nn.conv1d(rows, np.ones((1, 1, 2)), padding="full"),  # type: ignore[arg-type]
        r"conv1d: channels": lambda: sg.nn.conv1d(rows, np.ones((1, 2, 2))),
        r"conv3d: channels": lambda: sg.nn.conv3d(image[None], np.ones((1, 2, 1, 2, 2))),
    }
    for words, call in calls.items():
        with pytest.raises(sg.GraphError, match=words):
            call()


def test_an_einsum_of_many_labels_has_the_axis_order_of_numpy(graph: Graph) -> None:
    for labels in ([25, 26], [26, 25], [0, 51], [51, 0], [30, 3]):
        x, y = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
        np.testing.assert_array_equal(value(sg.einsum(x, labels)), np.einsum(x, labels))
        pair = (x, labels, y, [labels[1], 27])
        np.testing.assert_array_equal(value(sg.einsum(*pair)), np.einsum(*pair))


def test_a_recurrent_layer_refuses_operands_without_a_common_dtype(graph: Graph) -> None:
    with pytest.raises(sg.GraphError, match="GRU: NumPy has no common dtype of float16, bfloat16"):
        sg.nn.GRU(3, 4, dtype="bfloat16")(sg.zeros((5, 2, 3), dtype="float16"))


def test_attention_weights_of_a_short_query_and_a_long_key_are_not_rounded(graph: Graph) -> None:
    query, key = sg.zeros((2, 1, 4), dtype="float16"), sg.zeros((3, 1, 4), dtype="float32")
    attended, weights = sg.nn.MultiheadAttention(4, 2, dtype="float16")(query, key, key)
    assert (attended.dtype, weights.dtype) == (sg.float32, sg.float32)


def test_dropout_uses_one_mask_for_value_and_gradient(graph: Graph) -> None:
    x = sg.constant(np.ones((100, 50)))
    y = sg.nn.dropout(x, 0.3)
    (gradient,) = sg.gradients(y, [x])
    kept, slope = sg.Session(graph).run([y, gradient])
    np.testing.assert_array_equal(kept, slope)
    np.testing.assert_allclose(np.unique(kept), [0, 1 / 0.7])
    assert kept.mean() == pytest.approx(1, abs=0.03)
    assert sg.nn.dropout(x, 0.3, training=False) is x
    np.testing.assert_array_equal(value(sg.nn.dropout(x, 1.0)), 0)


# -- batch norm's state ---------------------------------------------------------------------------------------------


def test_running_statistics(graph: Graph) -> None:
    layer = sg.nn.BatchNorm1d(3, dtype=sg.float64)
    x = sg.placeholder((8, 3), sg.float64)
    first, second = layer(x), layer(2.0 * x + 1.0)
    evaluated = layer.eval()(x)
    sess = sg.Session(graph)
    data = rng(0).normal(size=(8, 3))
    sess.run(evaluated, {x: data})
    np.testing.assert_array_equal(sess.get(layer.running_mean), 0)
    sess.run([first, second], {x: data})
    mean, var = data.mean(0), data.var(0, ddof=1)
    np.testing.assert_allclose(sess.get(layer.running_mean), 0.9 * 0.1 * mean + 0.1 * (2 * mean + 1))
    np.testing.assert_allclose(sess.get(layer.running_var), 0.9 * (0.9 + 0.1 * var) + 0.1 * 4 * var)
    assert sess.get(layer.num_batches_tracked) == 2
    sess.run(first, {x: data})
    assert sess.get(layer.num_batches_tracked) == 3


def test_running_means_over_all_batches(graph: Graph) -> None:
    layer = sg.nn.BatchNorm1d(2, momentum=None, dtype=sg.float64)
    x = sg.placeholder((4, 2), sg.float64)
    y = layer(x)
    sess, batches = sg.Session(graph), [rng(i).normal(size=(4, 2)) for i in range(3)]
    for batch in batches:
        sess.run(y, {x: batch})
    np.testing.assert_allclose(sess.get(layer.running_mean), np.mean(batches, axis=(0, 1)))


def test_statistics_that_are_no_variables_stay(graph: Graph) -> None:
    count = len(graph.nodes)
    y = sg.nn.batch_norm(np.ones((4, 3)), sg.zeros(3), sg.ones(3), training=True)
    assert y.op.op.name == "batch_norm"
    assert not any(node.op.effect for node in graph.nodes[count:])


# -- random numbers -------------------------------------------------------------------------------------------------


def test_threefry_known_answers() -> None:
    """The test vectors of the Random123 library for threefry2x32 with 20 rounds."""
    for key, counter, expected in (
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ):
        words = threefry2x32(*(np.array([w], np.uint32) for w in (*key, *counter)))
        assert tuple(int(w[0]) for w in words) == expected


def test_draws_depend_on_seed_run_and_place(graph: Graph) -> None:
    a, b = sg.random.uniform((5,)), sg.random.uniform((5,))
    own = sg.random.uniform((5,), seed=3)
    sess = sg.Session(graph, seed=7)
    first, second = sess.run([a, b, own]), sess.run([a, b, own])
    assert len({tuple(v) for v in (*first, *second)}) == 6
    np.testing.assert_array_equal(first[0], uniform_reference((5,), sg.float32, *threefry_key(7, 0, 0)))
    np.testing.assert_array_equal(second[1], uniform_reference((5,), sg.float32, *threefry_key(7, 1, 1)))
    np.testing.assert_array_equal(first[2], uniform_reference((5,), sg.float32, *threefry_key(3, 0, 0)))
    np.testing.assert_array_equal(sg.Session(graph, seed=7).run(b), first[1])


@pytest.mark.parametrize("dtype", [sg.float32, sg.float64])
def test_distributions(graph: Graph, dtype: np.dtype) -> None:
    u, x = (
        value(sg.random.uniform((20000,), -1.0, 3.0, dtype=dtype)),
        value(sg.random.normal((20000,), 1.0, 2.0, dtype=dtype)),
    )
    assert u.dtype == x.dtype == dtype
    assert -1 <= u.min() < -0.99
    assert 2.99 < u.max() <= 3
    assert u.mean() == pytest.approx(1, abs=0.03)
    assert x.mean() == pytest.approx(1, abs=0.06)
    assert x.std() == pytest.approx(2, abs=0.05)
    assert np.mean(np.abs(x - 1) < 2) == pytest.approx(0.6827, abs=0.015)
    assert value(sg.random.bernoulli(0.3, (20000,))).mean() == pytest.approx(0.3, abs=0.015)
    assert value(sg.random.bernoulli(np.array([0.0, 1.0]))).tolist() == [False, True]


def test_permutations(graph: Graph) -> None:
    drawn = sg.random.permutation(6)
    sess = sg.Session(graph)
    seen = {tuple(sess.run(drawn)) for _ in range(20)}
    assert all(sorted(p) == list(range(6)) for p in seen)
    assert len(seen) > 15


def test_gradients_reach_the_parameters_of_a_distribution(graph: Graph) -> None:
    mean = sg.constant(np.zeros(3))
    x = sg.random.normal((4, 3), mean, 0.1)
    np.testing.assert_array_equal(value(sg.gradients(x, [mean])[0]), [4, 4, 4])


# -- modules --------------------------------------------------------------------------------------------------------


class Net(Module):
    def __init__(self) -> None:
        self.body = sg.nn.Sequential(sg.nn.Linear(3, 4), sg.nn.Tanh(), sg.nn.Linear(4, 4, bias=False))
        self.norm = sg.nn.BatchNorm1d(4)
        self.head = sg.nn.Linear(4, 2)
        self.tied = self.head
        self.note = "no tensor"

    def forward(self, x: Tensor) -> Tensor:
        return self.tied(self.norm(self.body(x)))


def test_names_of_parameters_and_variables(graph: Graph) -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "body.0.weight", "body.0.bias", "body.2.weight", "norm.weight", "norm.bias", "head.weight", "head.bias",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers()] == [
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    ]  # fmt: skip
    assert [v.name for v in net.parameters()][:3] == ["body.0.weight", "body.0.bias", "body.2.weight"]
    assert len(set(graph.variables)) == len(graph.variables) == 10
    assert not any(m.training for m in net.eval().modules())
    assert all(m.training for m in net.train().modules())
    assert "(0): Linear(3, 4, bias=True)" in repr(net)


def test_a_variable_is_named_by_the_attribute_that_holds_it_now(graph: Graph) -> None:
    class Moved(Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = sg.Variable(np.zeros(2, np.float32))
            variable = self.first
            del self.first
            self.second = variable

    assert Moved().second.name == "second"


def test_state_goes_from_session_to_session(graph: Graph) -> None:
    net = Net()
    y = net(sg.constant(np.ones((2, 3), np.float32)))
    one, two = sg.Session(graph, seed=1), sg.Session(graph, seed=2)
    state = net.state_dict(one)
    assert list(state)[:2] == ["body.0.weight", "body.0.bias"]
    assert not np.array_equal(one.get(net.head.weight), two.get(net.head.weight))
    net.load_state_dict(two, state)
    np.testing.assert_array_equal(one.run(y), two.run(y))
    for wrong in ({}, {**state, "more": 1}, {**state, "head.bias": np.zeros(3)}, {**state, "head.bias": ["a", "b"]}):
        with pytest.raises(sg.FormatError):
            net.load_state_dict(two, wrong)
    net.load_state_dict(two, {"head.bias": np.zeros(2)}, strict=False)


def test_a_state_dict_that_cannot_be_cast_changes_nothing(graph: Graph) -> None:
    net = sg.nn.Linear(2, 2, dtype="float16")
    with sg.Session(graph) as sess:
        before = net.state_dict(sess)
        with pytest.raises(RuntimeWarning, match="overflow"):
            net.load_state_dict(sess, {"weight": np.zeros((2, 2)), "bias": np.full(2, 1e30)})
        after = net.state_dict(sess)
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_state_dict_is_loaded_in_one_step(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    net, written = sg.nn.Linear(2, 2), []
    with sg.Session(graph) as sess:
        monkeypatch.setattr(sess.store, "write", written.append)
        net.load_state_dict(sess, {"weight": np.zeros((2, 2)), "bias": np.zeros(2)})
    assert [len(values) for values in written] == [2]


def test_first_values_are_pytorchs(graph: Graph) -> None:
    layer = sg.nn.Linear(50, 400)
    sess = sg.Session(graph)
    weight, bias = sess.get(layer.weight), sess.get(layer.bias)
    bound = 1 / math.sqrt(50)
    for drawn in (weight, bias):
        assert np.abs(drawn).max() <= bound
        assert drawn.std() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    table = sg.nn.Embedding(5, 3, padding_idx=-1)
    np.testing.assert_array_equal(sess.get(table.weight)[4], 0)


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(graph: Graph, batch_first: bool) -> None:
    layer = sg.nn.MultiheadAttention(6, 2, batch_first=batch_first)
    x = rng(0).normal(size=(3, 5, 6)).astype(np.float32)
    hidden = np.zeros((3, 5) if batch_first else (5, 3), bool)
    hidden[0, 1:] = True
    y, weights = layer(x, x, x, key_padding_mask=hidden)
    sess = sg.Session(graph)
    attended, shares = sess.run([y, weights])
    assert attended.shape == x.shape
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(shares[0, :, 0], 1)
    only, none = layer(x, x, x, key_padding_mask=hidden, need_weights=False)
    assert none is None
    np.testing.assert_allclose(sess.run(only), attended, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("bias", "zero"), [(True, False), (False, True), (True, True)])
def test_attention_to_keys_that_all_examples_share(graph: Graph, bias: bool, zero: bool) -> None:
    """They stand behind the others, and no mask hides them."""
    layer = sg.nn.MultiheadAttention(4, 2, add_bias_kv=bias, add_zero_attn=zero, batch_first=True, dtype=np.float64)
    assert [name for name, _ in layer.named_parameters()][2:-2] == ["bias_k", "bias_v"] * bias
    x, hidden = rng().normal(size=(3, 5, 4)), rng(1).random((3, 5)) < 0.5
    hidden[0] = True
    sess = sg.Session(graph)
    y, weights = sess.run(layer(x, x, x, hidden, attn_mask=~np.tri(5, dtype=bool), average_attn_weights=False))
    p = layer.state_dict(sess)
    q, k, v = np.split(x @ p["in_proj_weight"].T + p["in_proj_bias"], 3, axis=-1)
    more = [(p.get("bias_k"), p.get("bias_v"))] * bias + [(np.zeros((1, 1, 4)), np.zeros((1, 1, 4)))] * zero
    for key, other in more:
        k, v = (np.concatenate([a, np.broadcast_to(b, (3, 1, 4))], axis=1) for a, b in ((k, key), (v, other)))
    q, k, v = (np.moveaxis(a.reshape(3, -1, 2, 2), 2, 1) for a in (q, k, v))
    mask = np.pad(hidden[:, None, None] | ~np.tri(5, dtype=bool), [(0, 0)] * 3 + [(0, len(more))])
    scores = np.where(mask, -np.inf, q @ np.swapaxes(k, -1, -2) / math.sqrt(2))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    joined = np.moveaxis(shares @ v, 1, 2).reshape(3, 5, 4)
    np.testing.assert_allclose(weights, shares, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(y, joined @ p["out_proj.weight"].T + p["out_proj.bias"], rtol=1e-10, atol=1e-12)


# -- initial values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("initial", "std"),
    [
        (sg.init.uniform(-1.0, 1.0), 1 / math.sqrt(3)),
        (sg.init.normal(0.0, 2.0), 2.0),
        (sg.init.xavier_uniform(), math.sqrt(2 / 500)),
        (sg.init.xavier_normal(2.0), 2 * math.sqrt(2 / 500)),
        (sg.init.kaiming_uniform(), math.sqrt(2 / 300)),
        (sg.init.kaiming_normal(mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 200)),
    ],
)
def test_spread_of_initial_values(initial: Any, std: float) -> None:
    drawn = initial.make((200, 300), np.dtype("float32"), rng())
    assert drawn.dtype == np.float32
    assert drawn.std() == pytest.approx(std, rel=0.03)


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    q = sg.init.orthogonal(2.0).make(shape, np.dtype("float64"), rng()).reshape(shape[0], -1)
    small = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)


# -- optimizers -----------------------------------------------------------------------------------------------------


def adam(w: Array, gradients: list[Array], lr: float, decay: float) -> Array:
    """Adam as the paper writes it, with the variable decayed apart."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        w = w - lr * decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


def nesterov(w: Array, gradients: list[Array], lr: float, momentum: float) -> Array:
    buffer = np.zeros_like(w)
    for g in gradients:
        buffer = momentum * buffer + g
        w = w - lr * (g + momentum * buffer)
    return w


def rmsprop(w: Array, gradients: list[Array], lr: float) -> Array:
    square = np.zeros_like(w)
    for g in gradients:
        square = 0.99 * square + 0.01 * g * g
        w = w - lr * g / (np.sqrt(square) + 1e-8)
    return w


def adagrad(w: Array, gradients: list[Array], lr: float) -> Array:
    total = np.zeros_like(w)
    for g in gradients:
        total = total + g * g
        w = w - lr * g / (np.sqrt(total) + 1e-10)
    return w


def lion(w: Array, gradients: list[Array], lr: float) -> Array:
    m = np.zeros_like(w)
    for g in gradients:
        w = w - lr * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
    return w


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: sg.optim.SGD(0.1), lambda w, gs: nesterov(w, gs, 0.1, 0.0)),
        (lambda: sg.optim.SGD(0.1, 0.9, True), lambda w, gs: nesterov(w, gs, 0.1, 0.9)),
        (lambda: sg.optim.Adam(0.1), lambda w, gs: adam(w, gs, 0.1, 0.0)),
        (lambda: sg.optim.AdamW(0.1), lambda w, gs: adam(w, gs, 0.1, 0.01)),
        (lambda: sg.optim.RMSprop(0.1), lambda w, gs: rmsprop(w, gs, 0.1)),
        (lambda: sg.optim.Adagrad(0.1), lambda w, gs: adagrad(w, gs, 0.1)),
        (lambda: sg.optim.Lion(0.1), lambda w, gs: lion(w, gs, 0.1)),
    ],
)
def test_updates(graph: Graph, make: Callable[[], Any], expected: Callable[[Array, list[Array]], Array]) -> None:
    start = rng(0).normal(size=(3, 2))
    w, x = sg.Variable(start, name="w"), sg.placeholder((3, 2), sg.float64)
    train = make().minimize(sg.sum(w * x))
    steps = [rng(i).normal(size=(3, 2)) for i in range(1, 5)]
    sess = sg.Session(graph)
    for gradient in steps:
        assert sess.run(train, {x: gradient}) is None
    np.testing.assert_allclose(sess.get(w), expected(start, steps), rtol=1e-12)


def test_state_of_optimizers(graph: Graph) -> None:
    w, b = sg.Variable(np.ones(2, np.float32), name="w"), sg.Variable(np.ones(2, np.float32), name="b")
    frozen = sg.Variable(np.ones(2, np.float32), name="frozen", trainable=False)
    loss = sg.sum(w * frozen)
    first, second = sg.optim.Adam(0.1), sg.optim.Adam(0.2)
    train, _ = first.minimize(loss), second.minimize(loss + sg.sum(b))
    assert {"adam/lr", "w/adam/exp_avg", "w/adam/exp_avg_sq", "w/adam/step"} < set(graph.variables)
    assert {"adam_1/lr", "b/adam_1/step"} < set(graph.variables)
    assert "b/adam/step" not in graph.variables
    sess = sg.Session(graph)
    assert sess.get(first.lr) == 0.1
    sess.run(train)
    assert sess.get(graph.variables["w/adam/step"]) == 1
    sess.set(first.lr, 0.0)
    before = sess.get(w)
    sess.run(train)
    np.testing.assert_array_equal(sess.get(w), before)


@pytest.mark.parametrize("late", [False, True])
def test_frozen_variables_are_not_trained_and_thawed_ones_are(graph: Graph, late: bool) -> None:
    w, b = (sg.Variable(np.ones(2), name=name, trainable=name == "w") for name in "wb")

    def turn() -> None:
        w.requires_grad_(False)
        b.requires_grad_(True)

    if not late:
        turn()
    loss, optimizer = sg.sum(w * w + b), sg.optim.SGD(0.5)
    if late:
        turn()
    loss_of_both = sg.sum(w * w + b)  # a tape reads what required a gradient when its ops were declared
    for train in (optimizer.minimize(loss), optimizer.minimize(loss, [w, b]), optimizer.step(), optimizer.step([w, b])):
        with sg.Session(graph) as sess:
            tape = sess.forward([loss_of_both])
            tape.backward(loss_of_both)
            assert sess.grad(w) is None
            sess.run(train)
            assert (sess.get(w).tolist(), sess.get(b).tolist()) == ([1, 1], [0.5, 0.5])
    with pytest.raises(sg.GraphError, match="requires_grad_"):
        optimizer.minimize(loss, [w])


def test_a_frozen_parameter_stays_a_parameter(graph: Graph) -> None:
    layer = sg.nn.Linear(2, 2)
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    assert list(layer.named_parameters()) == [("weight", layer.weight), ("bias", layer.bias)]
    assert not layer.buffers()
    layer.weight.requires_grad_()
    loss = sg.sum(layer(sg.ones((1, 2))))
    train = sg.optim.SGD(1.0).minimize(loss, layer.parameters())
    with sg.Session(graph) as sess:
        before = sess.get(layer.weight), sess.get(layer.bias)
        sess.run(train)
        np.testing.assert_allclose(sess.get(layer.weight), before[0] - 1)
        np.testing.assert_array_equal(sess.get(layer.bias), before[1])


def test_learning_rate_may_be_a_tensor(graph: Graph) -> None:
    w, rate = sg.Variable(np.ones(2), name="w"), sg.placeholder((), sg.float64)
    train = sg.optim.SGD(rate).minimize(sg.sum(w))
    sess = sg.Session(graph)
    sess.run(train, {rate: 0.25})
    np.testing.assert_array_equal(sess.get(w), 0.75)


def test_what_optimizers_refuse(graph: Graph) -> None:
    w, x = sg.Variable(np.ones(2), name="w"), sg.placeholder((2,), sg.float64)
    opt = sg.optim.SGD(0.1)
    with pytest.raises(sg.GraphError, match="twice"):
        opt.apply_gradients([(x, w), (x, w)])
    with pytest.raises(sg.GraphError, match="variables"):
        opt.apply_gradients([(x, x)])
    with pytest.raises(sg.GraphError, match="shape"):
        opt.apply_gradients([(sg.sum(x), w)])
    with pytest.raises(sg.GraphError, match="no trainable variable"):
        opt.minimize(sg.sum(x))
    opt.minimize(sg.sum(w))
    with sg.Graph():
        other = sg.Variable(np.ones(2), name="w")
        with pytest.raises(sg.GraphError, match="one graph"):
            opt.minimize(sg.sum(other))


def test_a_gradient_of_none_leaves_its_variable(graph: Graph) -> None:
    w, b = sg.Variable(np.ones(2), name="w"), sg.Variable(np.ones(2), name="b")
    train = sg.optim.SGD(0.5, momentum=0.9).apply_gradients([(sg.ones(2, dtype=sg.float64), w), (None, b)])
    sess = sg.Session(graph)
    sess.run(train)
    np.testing.assert_array_equal(sess.get(w), 0.5)
    np.testing.assert_array_equal(sess.get(b), 1)
    assert "b/sgd/momentum_buffer" not in graph.variables


@pytest.mark.filterwarnings("ignore::staticgrad.PromotionWarning")
@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("int64", "int8"), "float64"),
        (("int8", "float32"), "float64"),
        (("float16", "bfloat16"), "float32"),
        (("float16", "float32"), "float32"),
        (("bfloat16", "bfloat16"), "bfloat16"),
    ],
)
def test_the_global_norm_of_integers_is_not_truncated(graph: Graph, kinds: tuple[str, str], expected: str) -> None:
    tensors = [sg.astype(sg.constant([100.0, 0.0]), kind) for kind in kinds]
    norm, clipped = sg.optim.global_norm(tensors), sg.optim.clip_by_global_norm(tensors, 1.0)
    assert norm.dtype.name == expected
    np.testing.assert_allclose(value(sg.astype(norm, sg.float64)), math.sqrt(2) * 100, rtol=4e-3)
    for x in clipped:
        np.testing.assert_allclose(value(sg.astype(x, sg.float64)), [math.sqrt(0.5), 0], rtol=4e-3)


def test_clip_by_global_norm(graph: Graph) -> None:
    grads = [sg.constant(np.array([3.0, 0.0])), None, sg.constant(np.array([[4.0]]))]
    clipped = sg.optim.clip_by_global_norm(grads, 1.0)
    assert clipped[1] is None
    np.testing.assert_allclose(value(clipped[0]), [0.6, 0], rtol=1e-6)
    np.testing.assert_allclose(value(sg.optim.global_norm(grads)), 5)
    np.testing.assert_array_equal(value(sg.optim.clip_by_global_norm(grads, 10.0)[2]), [[4.0]])


# -- nests ----------------------------------------------------------------------------------------------------------


def test_nests_are_packed_again() -> None:
    nest = {"a": [1, (2, None)], "b": 3}
    leaves = sg.nest.flatten(nest)
    assert leaves == [1, 2, 3]
    assert sg.nest.pack(nest, [x * 10 for x in leaves]) == {"a": [10, (20, None)], "b": 30}
    with pytest.raises(sg.GraphError, match="leaves"):
        sg.nest.pack(nest, [1])


def test_the_size_of_an_adaptive_pooling_may_be_an_array_where_a_gradient_flows(graph: Graph) -> None:
    x = sg.placeholder((1, 1, 4, 4), sg.float64, requires_grad=True)
    sizes: list[Any] = [np.array([2, 2]), np.array([1, 1]), [1, 1], 1, np.int64(1), (2, None)]
    pooled = [sg.nn.adaptive_avg_pool2d(x, size) for size in sizes]
    assert [y.shape for y in pooled] == [(1, 1, 2, 2), *[(1, 1, 1, 1)] * 4, (1, 1, 2, 4)]
    names = [None if y.grad_fn is None else y.grad_fn.name for y in pooled]
    assert names == ["AdaptiveAvgPool2DBackward0", *["MeanBackward1"] * 4, "AdaptiveAvgPool2DBackward0"]
    squeezed = [sg.squeeze(pooled[1], axis).grad_fn for axis in ((0, 1), [0, 1], np.array([0, 1]))]  # type: ignore[arg-type]
    assert [None if f is None else f.name for f in squeezed] == ["SqueezeBackward2"] * 3


@pytest.mark.parametrize("name", ["elu", "selu", "elu of 2"])
def test_the_second_derivative_of_elu_is_zero_at_zero(graph: Graph, name: str) -> None:
    x = sg.placeholder((4,), sg.float64)
    y = sg.nn.selu(x) if name == "selu" else sg.nn.elu(x, 2.0 if "2" in name else 1.0)
    (first,) = sg.gradients(y, [x])
    (second,) = sg.gradients(first, [x])
    slope, bend = sg.Session(graph).run([first, second], {x: np.array([0.0, -0.0, -1e-9, np.nan])})
    limit = {"elu": 1.0, "selu": 1.6732632423543772 * 1.0507009873554805, "elu of 2": 2.0}[name]
    np.testing.assert_allclose(slope, [limit, limit, limit, np.nan])
    np.testing.assert_allclose(bend, [0, 0, limit, np.nan])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (0.0, 3.0), (1.0, 1.001), (-2.0, 0.0), (0, 0.1)])
def test_short_uniform_numbers_stay_below_high(graph: Graph, dtype: str, low: float, high: float) -> None:
    drawn = value(sg.astype(sg.random.uniform((4000,), low, high, dtype=dtype), sg.float64))
    assert low <= drawn.min() <= drawn.max() < high


def test_max_pool_with_indices_is_typed_for_every_way_to_ask(graph: Graph) -> None:
    x, given = np.ones((1, 1, 4, 4)), bool(len(graph.nodes))
    alone: Tensor = sg.nn.max_pool2d(x, 2)
    both: tuple[Tensor, Tensor] = sg.nn.max_pool2d(x, 2, 2, 0, 1, False, True)
    by_name: tuple[Tensor, Tensor] = sg.nn.max_pool2d(x, 2, return_indices=True)
    either: Tensor | tuple[Tensor, Tensor] = sg.nn.max_pool2d(x, 2, return_indices=given)
    assert [isinstance(y, tuple) for y in (alone, both, by_name, either)] == [False, True, True, given]
