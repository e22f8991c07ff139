"""What users saw go wrong, one test a symptom, on the compiled backend and the interpreter.

Values that PyTorch gave are written down where a hand would compute them badly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("backend", "g")

Array = np.ndarray[Any, Any]


def run(fetches: Any, feeds: Any = None, **options: Any) -> Any:
    return sg.Session(sg.get_default_graph(), **options).run(fetches, feeds)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


# -- elementwise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_acosh_of_a_large_negative_number_is_nan(
    target: str, dtype: type[np.floating[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x = sg.placeholder((8,), dtype)
    values = np.array([-np.inf, -3e38, -1e10, -4e4, -1, 0.5, 1, np.inf], dtype)
    got = run(sg.acosh(x), {x: values})
    np.testing.assert_array_equal(got, np.array([np.nan] * 6 + [0, np.inf], dtype))


# -- what is declared -------------------------------------------------------------------------------------------------


def test_rows_of_unequal_lengths_and_numbers_that_do_not_fit_are_refused_by_the_users_line() -> None:
    ragged, huge, x = [[1.0], [2.0, 3.0]], 2**70, sg.placeholder((2,))
    for declare in (
        lambda: sg.constant(ragged),
        lambda: sg.Variable(ragged),
        lambda: sg.where(x > 0, ragged, x),
        lambda: sg.full((2,), ragged),
        lambda: sg.constant(huge),
        lambda: sg.constant(300, sg.uint8),
        lambda: sg.Variable(huge, dtype=sg.int32),
    ):
        with pytest.raises(sg.GraphError, match=r"expected an array of numbers(.|\n)*test_contract_symptoms\.py"):
            declare()


def test_a_triangle_of_a_mask_is_a_mask() -> None:
    mask = np.ones((3, 4), np.bool_)
    lower, upper = sg.tril(sg.constant(mask)), sg.triu(sg.constant(mask), 1)
    assert lower.dtype == upper.dtype == sg.bool
    for got, want in zip(run([lower, upper]), (np.tril(mask), np.triu(mask, 1)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">i8"])
def test_arrays_of_the_other_byte_order_are_lifted(dtype: str) -> None:
    a = np.arange(4).astype(dtype)
    native = a.dtype.newbyteorder("=")
    x = sg.placeholder((4,), dtype)
    results = [sg.constant(a), sg.Variable(a, name="v"), x + a, sg.zeros((4,), dtype=dtype)]
    assert all(y.dtype == native for y in results)
    got = run(results, {x: a})
    assert [y.tolist() for y in got] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 4, 6], [0, 0, 0, 0]]


INTEGERS: dict[str, Callable[[sg.Tensor, Callable[[int], Any]], sg.Tensor]] = {
    "roll": lambda x, i: sg.roll(x, i(1), i(0)),
    "several rolls": lambda x, i: sg.roll(x, np.array([1, 2]), (i(0), i(1))),
    "reshape": lambda x, i: sg.reshape(x, np.array([i(8), i(-1)])),
    "expand_dims": lambda x, i: sg.expand_dims(x, i(0)),
    "stack": lambda x, i: sg.stack([x, x], axis=i(1)),
    "sort": lambda x, i: sg.sort(x, i(0)),
    "moveaxis": lambda x, i: sg.moveaxis(x, i(0), i(-1)),
    "tensordot": lambda x, i: sg.tensordot(x, x.T, axes=i(1)),
    "one_hot": lambda x, i: sg.nn.one_hot([0, 1], i(3)),
    "convolution": lambda x, i: sg.nn.conv2d(x, np.ones((2, 1, 2, 2)), None, i(1), i(1), i(1), i(2)),
    "pooling": lambda x, i: sg.nn.adaptive_avg_pool2d(x, i(2)),
    "layer_norm": lambda x, i: sg.nn.layer_norm(x, i(5)),
    "layer": lambda x, i: sg.nn.LayerNorm(i(5), dtype=np.float64)(x),
    "scan": lambda x, i: sg.scan(lambda c, _: (c, c), sg.zeros(()), None, length=i(3))[1],
    "vmap": lambda x, i: sg.vmap(lambda y: y, in_axes=i(1), out_axes=i(0))(x),
    "polygamma": lambda x, i: sg.polygamma(i(1), x * x + 1),
}


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("name", INTEGERS)
def test_numpy_integers_serve_wherever_an_int_does(name: str, kind: Callable[[int], Any]) -> None:
    a = normal(2, 2, 4, 5)
    x = sg.placeholder(a.shape, sg.float64)
    got, want = run([INTEGERS[name](x, kind), INTEGERS[name](x, int)], {x: a})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "declare",
    [
        lambda x: sg.sum(x, 1.5), lambda x: sg.argmax(x, axis="a"), lambda x: sg.nn.softmax(x, (1,)),
        lambda x: sg.roll(x, x.shape[0], 0), lambda x: sg.expand_dims(x, None),
    ],
    ids=["sum", "argmax", "softmax", "roll", "expand_dims"],
)  # fmt: skip
def test_what_is_no_axis_is_refused_with_its_line(declare: Callable[[sg.Tensor], sg.Tensor]) -> None:
    x = sg.placeholder((None, 3))
    with pytest.raises(sg.GraphError, match=__file__):
        declare(x)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numpy_floats_serve_wherever_a_float_does(kind: Callable[[float], Any]) -> None:
    x = sg.placeholder((1, 2, 4, 5))
    v = sg.Variable(np.ones(3), name="v")
    steps = [sg.optim.SGD(kind(0.5)).minimize((v * v).sum()), sg.optim.Adam(lr=kind(0.5)).minimize((v * v).sum())]
    larger = sg.nn.interpolate(x, scale_factor=np.array([2, 3], kind))
    assert sg.nn.dropout(x, kind(0.25)).shape == x.shape
    with sg.Session(sg.get_default_graph()) as sess:
        assert sess.run(larger, {x: np.ones(x.shape, np.float32)}).shape == (1, 2, 8, 15)
        sess.run(steps[0])
        np.testing.assert_array_equal(sess.get(v), 0)
        sess.set(v, np.ones(3))
        sess.run(steps[1])
        np.testing.assert_allclose(sess.get(v), 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    "declare",
    [lambda: sg.arange(0, 5, 0), lambda: sg.linspace(0, 1, -3), lambda: sg.eye(-1), lambda: sg.zeros(1.5)],
    ids=["arange", "linspace", "eye", "zeros"],
)
def test_factories_say_where_a_size_is_wrong(declare: Callable[[], sg.Tensor]) -> None:
    with pytest.raises(sg.GraphError, match=__file__):
        declare()


def test_ranges_from_a_size_that_feeds_bind() -> None:
    x = sg.placeholder((None,))
    got = run([sg.arange(x.shape[0], 10), sg.arange(1, x.shape[0] * 2, 2)], {x: np.ones(7, np.float32)})
    np.testing.assert_array_equal(got[0], [7, 8, 9])
    np.testing.assert_array_equal(got[1], [1, 3, 5, 7, 9, 11, 13])


def test_repeat_takes_a_count_for_each_element() -> None:
    a = normal(3, 4)
    x = sg.placeholder((3, 4), sg.float64)
    for counts in ([2, 0, 1], np.array([1, 1, 3]), (2,), np.array(2)):
        np.testing.assert_array_equal(run(sg.repeat(x, counts, axis=0), {x: a}), np.repeat(a, counts, axis=0))
    np.testing.assert_array_equal(run(sg.repeat(x, range(12)), {x: a}), np.repeat(a, range(12)))
    (grad,) = sg.gradients(sg.repeat(x, [2, 0, 1], axis=0), [x])
    np.testing.assert_array_equal(run(grad, {x: a}), np.repeat([[2.0], [0.0], [1.0]], 4, axis=1))
    for wrong in ([1, 2], [1, -1, 1], [0.5, 1, 1], sg.constant(np.array([1, 2, 3]))):
        with pytest.raises(sg.GraphError, match="repeat"):
            sg.repeat(x, wrong, axis=0)


# -- neural functions -------------------------------------------------------------------------------------------------

ACTIVATIONS = (
    "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "mish", "softplus", "softsign", "hardtanh", "tanh",
    "hardsigmoid", "hardswish", "logsigmoid", "sigmoid", "softmax", "log_softmax",
)  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_argument_of_an_activation_is_called_input(name: str) -> None:
    function: Callable[..., Any] = getattr(sg.nn, name)
    a = normal(5)
    np.testing.assert_array_equal(*run([function(input=a), function(a)]))


def test_cross_entropy_where_every_label_is_ignored_has_zero_gradients() -> None:
    x = sg.placeholder((2, 3), sg.float64)
    labels = np.array([-100, -100])
    for options in ({}, {"label_smoothing": 0.1}, {"weight": np.array([0.5, 1, 2])}):
        loss = sg.nn.cross_entropy(x, labels, **options)
        value, grad = run([loss, *sg.gradients(loss, [x])], {x: normal(2, 3)})
        assert np.isnan(value)
        np.testing.assert_array_equal(grad, np.zeros((2, 3)))


INTERPOLATED = {
    "nearest-exact": ((3, 5), None, [0, 0, 1, 4, 4, 9, 9, 16, 25, 25, 9, 9, 16, 25, 25]),
    "bicubic": (
        (3, 4), None,
        [-0.8156433105, -0.7471211751, 0.643931071, 2.3550313314, 4.212890625, 6.3994140625, 11.1015625, 14.9306640625,
         9.2414245605, 13.5459493001, 21.559193929, 27.5062967936],
    ),
    "bicubic corners": (
        (3, 4), True,
        [0, 0.3518518519, 2.0555555556, 4, 4.5, 6.5740740741, 10.8333333333, 14.5, 9, 12.7962962963, 19.6111111111, 25],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INTERPOLATED)
def test_interpolate_knows_all_of_pytorchs_modes(name: str) -> None:
    size, align_corners, want = INTERPOLATED[name]
    image = (np.arange(6.0) ** 2).reshape(1, 1, 2, 3)
    got = run(sg.nn.interpolate(image, size, mode=name.split()[0], align_corners=align_corners))
    np.testing.assert_allclose(got.ravel(), want, atol=1e-9)
    with pytest.raises(sg.GraphError, match="6 dimensions"):
        sg.nn.interpolate(np.zeros((1,) * 6), 2, mode="bicubic")


def test_attention_shares_keys_among_groups_of_heads() -> None:
    q, k, v = normal(2, 6, 5, 4), normal(2, 2, 7, 4, seed=1), normal(2, 2, 7, 3, seed=2)
    attention = sg.nn.scaled_dot_product_attention
    shared = attention(q, k, v, enable_gqa=True)
    np.testing.assert_allclose(*run([shared, attention(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1))]), rtol=1e-12)
    with pytest.raises(sg.GraphError, match="multiple"):
        attention(q, k[:, [0, 0, 1, 1]], v, enable_gqa=True)
    with pytest.raises(sg.GraphError):
        attention(q, k, v)


@pytest.mark.parametrize("batch_first", [False, True])
def test_multihead_attention_takes_a_single_example(batch_first: bool) -> None:
    layer = sg.nn.MultiheadAttention(6, 2, batch_first=batch_first, dtype=sg.float64)
    layer.eval()
    q, k, hidden = normal(5, 6), normal(4, 6, seed=1), np.array([False, True, False, False])
    batch = 0 if batch_first else 1
    many = layer(np.expand_dims(q, batch), np.expand_dims(k, batch), np.expand_dims(k, batch), hidden[None])
    (one, weights), (same, many_weights) = run([layer(q, k, k, hidden), many])
    assert one.shape == (5, 6)
    assert weights.shape == (5, 4)
    np.testing.assert_allclose(one, same.reshape(5, 6), rtol=1e-12)
    np.testing.assert_allclose(weights, many_weights[0], rtol=1e-12)
    with pytest.raises(sg.GraphError, match="three dimensions"):
        layer(q, k[None], k[None])


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_conv3d_takes_the_words_for_paddings(padding: str) -> None:
    x, w = normal(1, 2, 5, 4, 6), normal(3, 2, 2, 3, 4)
    got = run(sg.nn.conv3d(x, w, padding=padding))
    pads = [((size - 1) // 2, size - 1 - (size - 1) // 2) if padding == "same" else (0, 0) for size in w.shape[2:]]
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3, 4))
    np.testing.assert_allclose(got, np.einsum("ncijkdhw,ocdhw->noijk", windows, w), rtol=1e-10)


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize(("shape", "image"), [((4, 1, 1, 14), (4, 4, 14, 14)), ((2, 1, 1, 8), (2, 1, 8, 8))])
def test_the_weights_gradient_of_images_whose_rows_are_broadcast(
    target: str, shape: tuple[int, ...], image: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x, cotangent = normal(*shape), normal(image[0], 5, image[2] - 2, image[3] - 2, seed=1)
    w = sg.Variable(normal(5, image[1], 3, 3), name="w")
    y = sg.nn.conv2d(sg.broadcast_to(sg.constant(x), image), w)
    got = run(sg.gradients(y, [w], grad_ys=[cotangent]))[0]
    windows = np.lib.stride_tricks.sliding_window_view(np.broadcast_to(x, image), (3, 3), axis=(2, 3))
    np.testing.assert_allclose(got, np.einsum("nchwij,nohw->ocij", windows, cotangent), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("extra", [1, 2])
def test_a_transposed_convolution_whose_output_padding_is_not_below_its_stride(padding: int, extra: int) -> None:
    x, w, b = normal(2, 4, 5, 4), normal(4, 3, 3, 2), normal(3)
    got = run(sg.nn.conv_transpose2d(x, w, b, 1, padding, extra, 1, 3))
    full = np.zeros((2, 3, 5 + 6 + extra, 4 + 3 + extra))
    for i, j in np.ndindex(3, 2):
        full[:, :, 3 * i : 3 * i + 5, 3 * j : 3 * j + 4] += np.einsum("nchw,co->nohw", x, w[:, :, i, j])
    inner = full[:, :, padding : full.shape[2] - padding, padding : full.shape[3] - padding]
    np.testing.assert_allclose(got, inner + b[:, None, None], rtol=1e-10, atol=1e-12)


def convolved(x: Array, w: Array, stride: int, padding: int, groups: int) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    n, _, *places = windows.shape
    windows = windows.reshape(n, groups, -1, *places)
    filters = w.reshape(groups, -1, *w.shape[1:])
    return np.einsum("ngchwij,gocij->ngohw", windows, filters).reshape(n, w.shape[0], *windows.shape[3:5])


@pytest.mark.share(4)
@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("width", [3, 9, 17])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 1)])
def test_filters_one_pixel_wide_with_a_stride(
    target: str, padding: int, width: int, kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    for channels, filters, groups in ((1, 1, 1), (3, 4, 1), (4, 6, 2)):
        x, w = normal(2, channels, 6, width), normal(filters, channels // groups, *kernel, seed=1)
        image = sg.placeholder(x.shape, sg.float64)
        got = run(sg.nn.conv2d(image, w, None, 2, padding, 1, groups), {image: x})
        np.testing.assert_allclose(got, convolved(x, w, 2, padding, groups), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("stride", [1, 2])
def test_one_tap_over_padded_images_in_groups(target: str, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    for channels, filters, groups in ((2, 16, 2), (24, 48, 6), (3, 40, 1), (40, 40, 1)):
        x, w = normal(2, channels, 6, 9), normal(filters, channels // groups, 1, 1, seed=1)
        image = sg.placeholder(x.shape, sg.float64)
        got = run(sg.nn.conv2d(image, w, None, stride, 1, 1, groups), {image: x})
        np.testing.assert_allclose(got, convolved(x, w, stride, 1, groups), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("kernel", [(1, 1), (2, 3)])
def test_images_without_channels_are_convolved_to_the_bias(
    target: str, kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    for groups in (1, 2):
        x, w, b = normal(2, 0, 7, 6), normal(4, 0, *kernel), normal(4)
        image, bias = sg.placeholder(x.shape, sg.float64), sg.placeholder(b.shape, sg.float64)
        got = run(sg.nn.conv2d(image, w, bias, 1, 1, 1, groups), {image: x, bias: b})
        np.testing.assert_array_equal(got, np.broadcast_to(b[:, None, None], got.shape))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_the_softmax_of_no_elements_and_of_a_scalar(name: str) -> None:
    function = getattr(sg.nn, name)
    x, scalar = sg.placeholder((3, 0), sg.float64), sg.placeholder((), sg.float64)
    empty, one = run([function(x, 1), function(scalar, 0)], {x: normal(3, 0), scalar: 2.5})
    assert empty.shape == (3, 0)
    assert one == (1 if name == "softmax" else 0)
    assert run(sg.gradients(function(x, 1), [x])[0], {x: normal(3, 0)}).shape == (3, 0)


def test_logsumexp_of_no_elements_is_minus_infinity() -> None:
    x = sg.placeholder((3, 0), sg.float64)
    (grad,) = sg.gradients(sg.logsumexp(x, axis=1), [x])
    row, kept, whole, nothing = run(
        [sg.logsumexp(x, axis=1), sg.logsumexp(x, axis=1, keepdims=True), sg.logsumexp(x), grad], {x: normal(3, 0)}
    )
    np.testing.assert_array_equal(row, [-np.inf] * 3)
    assert (kept.shape, whole, nothing.shape) == ((3, 1), -np.inf, (3, 0))


def test_linear_with_a_weight_of_one_dimension_and_a_bias_of_one_number() -> None:
    x, row, w, b = normal(2, 3, 4), normal(4), normal(5, 4, seed=1), normal(1)
    for given in (x, row):
        many, broadcast, one, biased = run(
            [sg.nn.linear(given, w, b), sg.nn.linear(given, w, b[0]), sg.nn.linear(given, w[0]),
             sg.nn.linear(given, w[0], b[0])]
        )  # fmt: skip
        np.testing.assert_allclose(many, given @ w.T + b)
        np.testing.assert_allclose(broadcast, many)
        np.testing.assert_allclose(one, given @ w[0])
        np.testing.assert_allclose(biased, given @ w[0] + b[0])
    for wrong in (normal(2), normal(1, 5)):
        with pytest.raises(sg.GraphError, match="bias"):
            sg.nn.linear(x, w, wrong)


def test_normalize_by_the_largest_element() -> None:
    a = np.array([[3.0, -4.0], [0.0, 0.0], [-2.0, 1.0]])
    np.testing.assert_allclose(run(sg.nn.normalize(a, p=np.inf)), [[0.75, -1], [0, 0], [-1, 0.5]])


def test_binary_cross_entropy_pulls_at_a_probability_of_zero_that_should_be_one() -> None:
    x = sg.placeholder((4,), sg.float64)
    loss = sg.nn.binary_cross_entropy(x, np.array([0.0, 1.0, 1.0, 0.0]), reduction="sum")
    value, grad = run([loss, *sg.gradients(loss, [x])], {x: [0.0, 1.0, 0.0, 1.0]})
    assert value == 200
    np.testing.assert_allclose(grad, [0, 0, -1e12, 1e12])


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [(1, 2), "same"])
def test_a_convolution_layer_pads_by_elements(mode: Any, padding: Any) -> None:
    a, numpy_mode = normal(2, 3, 6, 7), {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    layer = sg.nn.Conv2d(3, 4, (3, 2), padding=padding, padding_mode=mode, dtype=sg.float64)
    line = sg.nn.Conv1d(3, 4, 3, padding=1, padding_mode=mode, dtype=sg.float64)
    widths = [(1, 1), (2, 2)] if padding != "same" else [(1, 1), (0, 1)]
    padded, row = (
        np.pad(a, [(0, 0), (0, 0), *widths], numpy_mode),
        np.pad(a[:, :, 0], [(0, 0), (0, 0), (1, 1)], numpy_mode),
    )
    plain = sg.nn.conv2d(padded, layer.weight, layer.bias), sg.nn.conv1d(row, line.weight, line.bias)
    got, got_line, want, want_line = run([layer(a), line(a[:, :, 0]), *plain])
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got_line, want_line, rtol=1e-12, atol=1e-12)
    with pytest.raises(sg.GraphError, match="padding_mode"):
        sg.nn.Conv1d(3, 4, 3, padding_mode="mirror")


def test_the_layer_of_average_pooling_has_a_divisor() -> None:
    a = normal(1, 2, 4, 4)
    np.testing.assert_allclose(*run([sg.nn.AvgPool2d(2, divisor_override=3)(a), sg.nn.avg_pool2d(a, 2) * 4 / 3]))


def test_interpolate_by_a_factor_whose_coordinates_follow_from_the_sizes() -> None:
    a = normal(1, 2, 5, 3)
    given = sg.nn.interpolate(a, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)
    np.testing.assert_allclose(*run([given, sg.nn.interpolate(a, (8, 5), mode="bilinear")]))


def test_multihead_attention_of_keys_and_values_with_other_features() -> None:
    layer = sg.nn.MultiheadAttention(6, 3, kdim=3, vdim=5, dtype=sg.float64)
    session = sg.Session(sg.get_default_graph())
    state = layer.state_dict(session)
    assert {name: value.shape for name, value in state.items()} == {
        "q_proj_weight": (6, 6), "k_proj_weight": (6, 3), "v_proj_weight": (6, 5), "in_proj_bias": (18,),
        "out_proj.weight": (6, 6), "out_proj.bias": (6,),
    }  # fmt: skip
    q, k, v = normal(4, 2, 6), normal(5, 2, 3), normal(5, 2, 5)
    plain = sg.nn.MultiheadAttention(6, 3, dtype=sg.float64)
    kk, vv = k @ state["k_proj_weight"].T, v @ state["v_proj_weight"].T
    weight = np.concatenate([state["q_proj_weight"], np.eye(6), np.eye(6)])
    plain.load_state_dict(session, {"in_proj_weight": weight, **{n: state[n] for n in list(state)[3:]}})
    for (got, weights), (want, many) in [session.run([layer(q, k, v), plain(q, kk, vv)])]:
        np.testing.assert_allclose(got, want, rtol=1e-10)
        np.testing.assert_allclose(weights, many, rtol=1e-10)


def test_distributions_refuse_numbers_that_are_none_of_theirs() -> None:
    for declare in (
        lambda: sg.random.bernoulli(2.0),
        lambda: sg.random.bernoulli(np.array([0.5, -0.1])),
        lambda: sg.random.bernoulli(float("nan"), (3,)),
        lambda: sg.random.normal((3,), std=-1),
        lambda: sg.random.normal((2,), 0.0, np.array([1.0, -1.0])),
    ):
        with pytest.raises(sg.GraphError, match="expected numbers from 0"):
            declare()
    assert run(sg.random.normal((3,), 2.0, 0.0)).tolist() == [2, 2, 2]


# -- sizes that feeds bind --------------------------------------------------------------------------------------------


def test_a_size_that_feeds_bind_makes_unit_matrices_and_ranges() -> None:
    n = sg.dim("n")
    x = sg.placeholder((n,), sg.float64)
    made = [sg.eye(n), sg.eye(n, 3, k=1), sg.eye(2, n, k=-1), sg.linspace(0, 1, n)]
    made += [sg.linspace(1, 2, n, endpoint=False), sg.linspace(-2, 3.5, 2 * n + 1, dtype=sg.float64), x]
    for k in (1, 2, 5):
        got = run(made, {x: np.zeros(k)})
        want = [np.eye(k), np.eye(k, 3, 1), np.eye(2, k, -1), np.linspace(0, 1, k)]
        want += [np.linspace(1, 2, k, endpoint=False), np.linspace(-2, 3.5, 2 * k + 1)]
        for one, other in zip(got, want, strict=False):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_size_that_feeds_bind_is_an_int_beside_a_tensor() -> None:
    n = sg.dim("n")
    x, i = sg.placeholder((n, 2), sg.float32), sg.placeholder((n,), sg.int64)
    made = [sg.sum(x) / x.shape[0], n * x, n - x, x**n, sg.where(x > n, x, n), i % n, (i > 0) * n, sg.clip(i, 1, n - 2)]
    assert [y.dtype.name for y in made] == ["float32"] * 5 + ["int64"] * 3
    (grad,) = sg.gradients(sg.sum(x * n), [x])
    for k in (3, 4):
        a, b = normal(k, 2).astype(np.float32), np.arange(k) * 3
        *got, slope = run([*made, grad], {x: a, i: b})
        want = [a.sum() / k, k * a, k - a, a**k, np.where(a > k, a, k), b % k, (b > 0) * k, np.clip(b, 1, k - 2)]
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
        np.testing.assert_array_equal(slope, np.full((k, 2), k))
    for wrong in (lambda: n * 1.5, lambda: n + "1", lambda: n / 2):
        with pytest.raises(TypeError, match="unsupported operand"):
            wrong()


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [((1, 4), 3, 1), ((1, 1), 3, (2, 1)), ((2, 1), (5, 2), 1)])
def test_few_lines_to_ask_for_in_more_parts_than_there_are(
    target: str, kernel: tuple[int, int], stride: Any, dilation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last parts are empty: an empty loop was written, which is refused."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x, w = normal(2, 2, 3, 3), normal(2, 3, *kernel, seed=1)
    image = sg.placeholder(x.shape, sg.float64)
    y = sg.nn.conv_transpose2d(image, w, None, stride, 0, 0, 1, dilation)
    (back,) = sg.gradients(y, image)
    got, slopes = run([y, back], {image: x})
    np.testing.assert_allclose(got.sum(), np.einsum("nchw,coij->", x, w), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(slopes[0, :, 0, 0], w.sum((1, 2, 3)), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mode", ["set", "max", "min"])
@pytest.mark.parametrize("shape", [(3000,), (700, 3), (2, 90, 4)])
def test_scatter_at_many_fed_indices_costs_no_pairs_of_them(mode: str, shape: tuple[int, ...], backend: str) -> None:
    """Every index was compared with every other one: 100,000 took seconds, and gigabytes with max and min."""
    rng = np.random.default_rng(0)
    axis = int(np.argmax(shape))
    size, count = shape[axis] // 3, shape[axis]
    key: list[Any] = [slice(None)] * len(shape)
    base = [*shape]
    base[axis] = size
    x, index = sg.placeholder(tuple(base), sg.float64), sg.placeholder((None,), sg.int64)
    updates = sg.placeholder((*shape[:axis], index.shape[0], *shape[axis + 1 :]), sg.float64)
    key[axis] = index
    y = sg.scatter(x, tuple(key), updates, mode=mode)
    feeds = {x: rng.normal(size=base), updates: rng.normal(size=shape), index: rng.integers(-size, size, count)}
    want = feeds[x].copy()
    key[axis] = feeds[index]
    if mode == "set":
        want[tuple(key)] = feeds[updates]
    else:
        (np.maximum if mode == "max" else np.minimum).at(want, tuple(key), feeds[updates])
    executable = sg.Session(sg.get_default_graph(), sizes="exact").compile(y, [x, updates, index])
    np.testing.assert_array_equal(executable(*feeds.values()), want)
    if backend == "compiled":
        assert executable.memory.arena_bytes < 100 * int(np.prod(shape)) + 10_000
    none = {index: np.zeros(0, np.int64), updates: np.zeros([*shape[:axis], 0, *shape[axis + 1 :]])}
    np.testing.assert_array_equal(run(y, feeds | none), feeds[x])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter: NumPy's means of nothing
def test_a_batch_of_one_or_none_leaves_running_statistics_alone() -> None:
    """The feeds bind the batch: the variance over n - 1 was NaN, and stayed."""
    layer = sg.nn.BatchNorm1d(2)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    x, empty = sg.placeholder((None, 2)), sg.placeholder((0, 2))
    y, z = layer(x), layer(empty)
    with sg.Session(sg.get_default_graph()) as sess:
        with pytest.raises(sg.GraphError, match="more than one value"):
            sess.run(y, {x: np.ones((1, 2), np.float32)})
        sess.run(y, {x: np.ones((0, 2), np.float32)})
        sess.run(z, {empty: np.ones((0, 2), np.float32)})
        np.testing.assert_array_equal(sess.get(layer.running_mean), 0)
        np.testing.assert_array_equal(sess.get(layer.running_var), 1)
        sess.run(y, {x: np.array([[0, 2], [2, 4]], np.float32)})
        np.testing.assert_allclose(sess.get(layer.running_mean), [0.1, 0.3], rtol=1e-6)


def test_what_stands_beside_a_lone_tensor_is_a_value_or_a_list_of_one() -> None:
    x = sg.placeholder((1, 2), sg.float64)
    y, total = x * x, (x * x).sum()
    beside = [np.array([[1.0, 2.0]]), [np.array([[1.0, 2.0]])], [[1.0, 2.0]], [sg.constant([[1.0, 2.0]])]]
    results = [sg.jvp(y, x, t) + sg.gradients(y, x, grad_ys=t) for t in beside]
    for got in run(results, {x: [[3.0, 5.0]]}):
        np.testing.assert_array_equal(got, [[[6, 20]]] * 2)
    scaled = [sg.gradients(total, x, grad_ys=weight)[0] for weight in (2.0, [2.0])]
    np.testing.assert_array_equal(run(scaled, {x: [[3.0, 5.0]]}), [[[12, 20]]] * 2)


def test_ties_of_scattered_updates_share_the_gradient() -> None:
    x, index = sg.placeholder((3,), sg.float64), sg.placeholder((5,), sg.int64)
    updates = sg.placeholder((5,), sg.float64)
    y = sg.scatter(x, index, updates, mode="max")
    slopes = sg.gradients(y, [x, updates], grad_ys=np.array([6.0, 12.0, 24.0]))
    (tangent,) = sg.jvp(y, updates, [np.arange(5.0)])
    feeds = {x: np.array([1.0, 2.0, 3.0]), index: np.array([0, 0, 1, 0, 1]), updates: np.array([5.0, 5, 1, 4, 0])}
    (dx, du), t = run([slopes, tangent], feeds)
    np.testing.assert_array_equal(dx, [0, 12, 24])
    np.testing.assert_array_equal(du, [3, 3, 0, 0, 0])
    np.testing.assert_array_equal(t, [0.5, 0, 0])


@pytest.mark.parametrize("mode", ["set", "max"])
def test_a_scattered_index_out_of_range_is_named_as_it_was_fed(mode: str) -> None:
    x, i, j = sg.placeholder((4, 3)), sg.placeholder((2,), sg.int64), sg.placeholder((2,), sg.int64)
    y = sg.scatter(x, (i, j), np.ones(2, np.float32), mode=mode)
    (slope,) = sg.gradients(y, x)
    for wrong in (7, -9):
        with pytest.raises(sg.BoundsError, match=rf"axis 0.*{wrong}\b|{wrong}.*axis 0"):
            run([y, slope], {x: np.ones((4, 3), np.float32), i: [0, wrong], j: [0, 2]})


# -- errors -----------------------------------------------------------------------------------------------------------


def test_what_is_foreign_or_missing_is_named_with_its_line() -> None:
    x = sg.placeholder((1,), name="mine", requires_grad=True)
    y = x * 2
    with sg.Graph():
        other = sg.placeholder((1,), name="theirs")
    sess = sg.Session(sg.get_default_graph())
    tape = sess.forward(y, {x: [1.0]})
    calls: dict[str, tuple[Callable[[], Any], str]] = {
        "run": (lambda: sess.run(other), "theirs"),
        "grad": (lambda: sess.grad(other), "theirs"),
        "get": (lambda: sess.get(other), "theirs"),
        "tape": (lambda: tape[other], "theirs"),
        "backward": (lambda: tape.backward(other), "theirs"),
        "call": (lambda: sess.compile(y, [x])(), "mine"),
    }
    for what, (call, name) in calls.items():
        with pytest.raises((sg.FetchError, sg.FeedError)) as caught:
            call()
        assert repr(name) in str(caught.value), what
        assert f"declared at {__file__}" in str(caught.value), what


def test_wrong_kinds_of_arguments_are_refused_by_name() -> None:
    x = sg.placeholder((1,), requires_grad=True)
    y = x * 2
    sess = sg.Session(sg.get_default_graph())
    with pytest.raises(sg.FeedError, match="expected a dict"):
        sess.run(y, [x])
    sess.run(y, {x: [1.0]})
    with pytest.raises(sg.FeedError, match="expected a dict"):
        sess.run(y, [x])
    with pytest.raises(sg.FetchError, match="backward of 3"):
        sess.forward(y, {x: [1.0]}).backward(3)


def test_gradients_of_a_closed_session_are_refused() -> None:
    x = sg.placeholder((1,), requires_grad=True)
    sess = sg.Session(sg.get_default_graph())
    sess.close()
    for call in (lambda: sess.grad(x), sess.zero_grad):
        with pytest.raises(sg.StaticGradError, match="closed"):
            call()


# -- control flow -----------------------------------------------------------------------------------------------------


def test_a_loop_in_a_checkpoint_has_gradients_to_what_it_captures() -> None:
    a, w = normal(4, 3), normal(3, 3, seed=1)

    def recurrent(x: Any, weight: Any) -> Any:
        return sg.scan(lambda c, row: (sg.sin(c @ weight) + row, c), x[0], x)[1]

    x, weight = (sg.placeholder(v.shape, sg.float64, requires_grad=True) for v in (a, w))
    feeds = {x: a, weight: w}
    plain = sg.sum(recurrent(x, weight) ** 2)
    again = sg.sum(sg.checkpoint(recurrent, x, weight) ** 2)
    want, got = run([sg.gradients(y, [x, weight]) for y in (plain, again)], feeds)
    for first, second in zip(want, got, strict=True):
        np.testing.assert_allclose(second, first, rtol=1e-12)
    sess = sg.Session(sg.get_default_graph())
    sess.forward(again, feeds).backward(again)
    np.testing.assert_allclose(sess.grad(weight), want[1], rtol=1e-12)
    sg.check_gradients(lambda u, v: sg.checkpoint(recurrent, u, v), [a, w], order=2)


def test_a_literal_that_does_not_fit_its_place_in_a_carry_or_branch_is_refused() -> None:
    rows, whole, single = np.zeros((3, 2)), sg.constant(1), sg.constant(np.float32(1))
    condition = sg.placeholder((), sg.bool)
    for literal in (1.5, np.array(2.5), 2**70):
        with pytest.raises(sg.GraphError, match="int64"):
            sg.scan(lambda c, x, new=literal: (new, None), whole, rows)
        with pytest.raises(sg.GraphError, match="int64"):
            sg.while_loop(lambda c: c < 3, lambda c, new=literal: new, whole)
        with pytest.raises(sg.GraphError, match="int64"):
            sg.cond(condition, lambda: whole, lambda new=literal: new)
    for literal in (2, 1.5, np.array(2.5), True):
        last, _ = sg.scan(lambda c, x, new=literal: (new, None), single, rows)
        chosen = sg.cond(condition, lambda new=literal: new, lambda: single)
        assert last.dtype == chosen.dtype == sg.float32
        assert run([last, chosen], {condition: True}) == [literal, literal]


def test_branches_of_different_structure_are_refused() -> None:
    x, condition = sg.placeholder((3,)), sg.placeholder((), sg.bool)
    for answers in ((x, (x, x)), ((x, x), x), ({"a": x}, {"b": x}), (x, None)):
        with pytest.raises(sg.GraphError, match="branches differ in structure"):
            sg.cond(condition, lambda a=answers: a[0], lambda a=answers: a[1])


# -- layouts ----------------------------------------------------------------------------------------------------------

WRITERS_OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "cumulative_sum": lambda x: sg.cumulative_sum(x, axis=3),
    "sort": lambda x: sg.sort(x, axis=2),
    "scan": lambda x: sg.scan(lambda c, row: (c + row, c * row), x[0], x)[1],
    "cond": lambda x: sg.cond(sg.sum(x) > 0, lambda: sg.sin(x), lambda: x * 2),
    "while_loop": lambda x: sg.while_loop(lambda s: s[1] < 2, lambda s: (sg.sin(s[0]), s[1] + 1), (x, 0))[0],
    "py_call": lambda x: sg.py_call(lambda v: v * 2, [x], [(x.dtype, x.shape)])[0],
    "solve": lambda x: sg.linalg.solve(x + np.eye(6) * 9, x),
}


@pytest.mark.parametrize("target", HERE)
def test_a_convolution_of_single_rows_with_one_tap_and_one_filter_compiles(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x, w = normal(2, 64, 256), normal(1, 64, 1, seed=1)
    got = run(sg.nn.conv1d(image := sg.placeholder(x.shape, sg.float64), w), {image: x})
    np.testing.assert_allclose(got, np.einsum("ncl,oci->nol", x, w), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WRITERS_OF_ROWS)
@pytest.mark.parametrize("squashed", [False, True])
def test_a_convolution_reads_what_a_loop_a_routine_or_a_call_has_written(
    name: str, squashed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, w = normal(2, 3, 6, 6), normal(4, 3, 3, 3, seed=1)
    x = sg.placeholder(a.shape, sg.float64)
    image = WRITERS_OF_ROWS[name](x)
    image = sg.tanh(image) if squashed else image
    y = sg.nn.conv2d(image, w, padding=1)
    given = sg.placeholder(a.shape, sg.float64)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    np.testing.assert_allclose(
        run(y, {x: a}), run(sg.nn.conv2d(given, w, padding=1), {given: run(image, {x: a})}), rtol=1e-10, atol=1e-12
    )


# -- scatters ---------------------------------------------------------------------------------------------------------

ROWS = np.array([1, 0, 3, 3, 2])
MIXING = normal(5, 5, seed=2)


def doubled(x: sg.Tensor) -> sg.Tensor:
    return sg.scatter(x, np.array([1, 1]), x * 2, mode="add")


def gradient_through_convolutions(x: sg.Tensor) -> sg.Tensor:
    w = normal(3, 3, 3, 3, seed=1)
    image = sg.broadcast_to(sg.reshape(x[:2, :3], (2, 3, 1, 1)), (2, 3, 6, 6)) * normal(2, 3, 6, 6, seed=3)
    before, after = doubled(sg.nn.conv2d(image, w, padding=1)), sg.nn.conv2d(doubled(image), w, padding=1)
    return sg.gradients(sg.sum(sg.sin(before) * after), [x])[0]


def base_of_a_product(x: sg.Tensor) -> sg.Tensor:
    base = x @ MIXING
    return sg.scatter(base, ROWS, sg.sin(base), mode="add")


def base_of_a_row_kernel(x: sg.Tensor) -> sg.Tensor:
    base = sg.nn.softmax(x)
    return sg.scatter(base, ROWS, base * 2, mode="add")


def base_declared_after_the_updates(x: sg.Tensor) -> sg.Tensor:
    inner = sg.sin(x)
    updates = sg.nn.softmax(inner) * 2
    return sg.scatter(inner @ MIXING, ROWS, updates, mode="add")


def updates_that_are_the_base(x: sg.Tensor) -> sg.Tensor:
    base = sg.sin(x)
    return sg.scatter(base, ROWS, base, mode="add")


def updates_computed_of_the_indices(x: sg.Tensor) -> sg.Tensor:
    index = sg.astype(sg.minimum(sg.abs(x[0]), 4), sg.int64)
    return sg.scatter(x[1], index, sg.astype(index, sg.float64) * 2, mode="add")


def scatters_into_scatters(x: sg.Tensor) -> sg.Tensor:
    base = x @ MIXING
    once = sg.scatter(base, ROWS, sg.sin(base), mode="add")
    twice = sg.scatter(once, ROWS, sg.sin(base) * once, mode="add")
    return sg.scatter(twice, ROWS, once * 2, mode="add") + twice


def base_that_waits_for_the_updates(x: sg.Tensor) -> sg.Tensor:
    updates = sg.sin(x) * 2
    with sg.control_dependencies([updates]):
        base = sg.exp(x) * 3
    return sg.scatter(base, ROWS, updates, mode="add")


def pad_after_a_call_that_reads_what_the_padded_is_made_of(x: sg.Tensor) -> sg.Tensor:
    inner = sg.nn.softmax(x)
    padded = inner * 2
    call = sg.py_call(lambda value: None, [inner], [])
    with sg.control_dependencies([call]):
        return sg.nn.pad(padded, (1, 1))


def pad_after_a_call_after_the_padded(x: sg.Tensor) -> sg.Tensor:
    padded = sg.sin(x) * 2
    with sg.control_dependencies([padded]):
        call = sg.py_call(lambda value: None, [x], [])
    with sg.control_dependencies([call]):
        return sg.nn.pad(padded, (1, 1))


FILLED_THEN_STORED: list[Callable[[sg.Tensor], sg.Tensor]] = [
    gradient_through_convolutions, base_of_a_product, base_of_a_row_kernel, base_declared_after_the_updates,
    updates_that_are_the_base, updates_computed_of_the_indices, scatters_into_scatters,
    base_that_waits_for_the_updates, pad_after_a_call_that_reads_what_the_padded_is_made_of,
    pad_after_a_call_after_the_padded,
]  # fmt: skip


@pytest.mark.parametrize("declare", FILLED_THEN_STORED, ids=lambda declare: declare.__name__)
def test_the_steps_have_an_order_whatever_a_scatter_or_pad_is_filled_with(
    declare: Callable[[sg.Tensor], sg.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = normal(5, 5)
    x = sg.placeholder(a.shape, sg.float64)
    y = declare(x)
    got = run(y, {x: a})
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    poisoned = run(y, {x: a})
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    want = run(y, {x: a})
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(poisoned, want, rtol=1e-10, atol=1e-12)
