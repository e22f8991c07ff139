"""Arguments that PyTorch knows: those of norms, optimizers, pools and losses, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

nn = sg.nn


@pytest.fixture(autouse=True)
def _graph() -> None:
    sg.reset_default_graph()


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: nn.BatchNorm1d(4, **options),
        lambda **options: nn.BatchNorm2d(4, **options),
        lambda **options: nn.GroupNorm(2, 4, **options),
        lambda **options: nn.LayerNorm(4, **options),
    ],
)
def test_norms_without_a_bias_have_a_weight(make: Callable[..., nn.Module]) -> None:
    layer, whole = make(bias=False), make()
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert [name for name, _ in whole.named_parameters()] == ["weight", "bias"]
    shape = (3, 4, 2, 2) if isinstance(layer, nn.BatchNorm2d) else (3, 4)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    got, want = sg.Session().run([layer(x), whole(x)])
    np.testing.assert_array_equal(got, want)


# -- optimizers: three steps from θ = (1, -2) with gradients of these -------------------------------------------------

START, GRADIENTS = np.array([1.0, -2.0]), [np.array([0.5, -1.0]), np.array([0.25, 2.0]), np.array([-1.0, 0.125])]


def trained(optimizer: Any) -> Any:
    w, g = sg.Variable(START), sg.placeholder((2,), sg.float64)
    step = optimizer.apply_gradients([(g, w)])
    with sg.Session() as sess:
        for gradient in GRADIENTS:
            sess.run(step, {g: gradient})
        return sess.get(w)


def test_sgd_dampens_from_the_second_step_on() -> None:
    theta, buffer = START, np.zeros(2)
    for number, g in enumerate(GRADIENTS):
        buffer = g if number == 0 else 0.9 * buffer + (1 - 0.25) * g
        theta = theta - 0.1 * buffer
    np.testing.assert_allclose(trained(sg.optim.SGD(0.1, momentum=0.9, dampening=0.25)), theta, rtol=1e-14)
    np.testing.assert_allclose(trained(sg.optim.SGD(0.1, dampening=0.25)), START - 0.1 * sum(GRADIENTS), rtol=1e-14)
    with pytest.raises(sg.GraphError, match="dampening"):
        sg.optim.SGD(0.1, momentum=0.9, nesterov=True, dampening=0.1)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_maximizing_is_minimizing_of_the_negative(name: str) -> None:
    make = getattr(sg.optim, name)
    up = trained(make(lr=0.1, maximize=True))
    sg.reset_default_graph()
    for gradient in GRADIENTS:
        gradient *= -1
    try:
        down = trained(make(lr=0.1))
    finally:
        for gradient in GRADIENTS:
            gradient *= -1
    np.testing.assert_array_equal(up, down)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sg.optim.SGD(0.1, momentum="a"),
        lambda: sg.optim.SGD(0.1, weight_decay=-1.0),
        lambda: sg.optim.Adam(0.1, betas=0.9),
        lambda: sg.optim.Adam(0.1, betas=(0.9, "a")),
        lambda: sg.optim.Adam(0.1, eps=None),
        lambda: sg.optim.RMSprop(0.1, alpha=2.0),
        lambda: sg.optim.Adagrad(0.1, lr_decay="a"),
        lambda: sg.optim.SGD(0.1).minimize(3.0),
        lambda: nn.Dropout("a"),
        lambda: nn.Dropout(1.5),
        lambda: nn.LSTM(2, 3, 2, dropout="a"),
        lambda: nn.interpolate(np.ones((1, 1, 4, 4)), scale_factor="a"),
        lambda: nn.interpolate(np.ones((1, 1, 4, 4)), scale_factor=float("nan")),
        lambda: nn.interpolate(np.ones((1, 1, 4, 4)), scale_factor=(2.0, None)),
        lambda: nn.interpolate(np.ones((1, 1, 4, 4)), scale_factor=(2.0,) * 3),
        lambda: nn.ReLU(inplace=True),
        lambda: nn.ReLU(True),
        lambda: nn.Dropout(0.5, True),
        lambda: nn.LeakyReLU(inplace=True),
        lambda: nn.relu(np.ones(2), inplace=True),
        lambda: nn.leaky_relu(np.ones(2), 0.1, True),
        lambda: nn.dropout(np.ones(2), 0.5, True, True),
        lambda: nn.Embedding(3, 2, max_norm=1.0),
        lambda: nn.embedding(np.array([0]), np.ones((2, 2)), scale_grad_by_freq=True),
        lambda: nn.ConvTranspose2d(2, 2, 3, padding_mode="reflect"),
        lambda: nn.mse_loss(np.ones((2, 3)), np.ones((2, 3)), weight=np.ones(3)),
    ],
)
def test_what_is_wrong_or_not_supported_is_refused_by_the_users_line(make: Callable[[], Any]) -> None:
    with pytest.raises(sg.GraphError, match=__file__):
        make()


# -- pools and losses -------------------------------------------------------------------------------------------------


def places(x: Any, kernel: int, stride: int, padding: int, dilation: int) -> tuple[Any, Any]:
    """The largest elements of each window and row·W + column of the first of each, in plain loops."""
    height, width = x.shape[-2:]
    span = (kernel - 1) * dilation + 1
    values, where = [], []
    for top in range(-padding, height + padding - span + 1, stride):
        for left in range(-padding, width + padding - span + 1, stride):
            inside = [
                (i, j)
                for i in range(top, top + span, dilation)
                for j in range(left, left + span, dilation)
                if 0 <= i < height and 0 <= j < width
            ]
            seen = np.stack([x[..., i, j] for i, j in inside])
            values.append(seen.max(0))
            where.append(np.array([i * width + j for i, j in inside])[seen.argmax(0)])
    return np.stack(values, -1), np.stack(where, -1)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(2, 2, 0, 1), (3, 2, 1, 1), (2, 1, 1, 2), (3, 1, 0, 2)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_max_pool_returns_the_places_of_the_largest(
    kernel: int, stride: int, padding: int, dilation: int, dtype: Any
) -> None:
    image = np.random.default_rng(0).integers(-3, 3, (2, 3, 7, 6)).astype(dtype)  # many of them equal
    image[0, 0] = -np.inf
    x, free = sg.placeholder(image.shape, dtype), sg.placeholder((2, 3, None, None), dtype)
    layer = nn.MaxPool2d(kernel, stride, padding, dilation, return_indices=True)
    results = [layer(x), nn.max_pool2d(free, kernel, stride, padding, dilation, return_indices=True)]
    values, where = places(image, kernel, stride, padding, dilation)
    for y, index in sg.Session().run(results, {x: image, free: image}):
        assert index.dtype == np.int64
        np.testing.assert_array_equal(y.reshape(values.shape), values)
        np.testing.assert_array_equal(index.reshape(where.shape), where)
    assert nn.MaxPool2d(2, 2, 0, 1, False, True).ceil_mode  # PyTorch's order of arguments
    y, index = results[0]
    assert not index.requires_grad
    (slope,) = sg.gradients(y, [x])
    image = np.maximum(image, -9)
    assert sg.Session().run(slope, {x: image}).sum() == values.size


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_weighted_elements(reduction: str) -> None:
    x, t, w = np.random.default_rng(0).uniform(0.1, 2.0, (3, 4, 5))
    d = x - t
    rows = {"mse_loss": d**2, "l1_loss": abs(d), "huber_loss": np.where(abs(d) < 1, d**2 / 2, abs(d) - 0.5)}
    for name, row in rows.items():
        over = w.sum() if name != "huber_loss" else w.size
        want = {"mean": (row * w).sum() / over, "sum": (row * w).sum(), "none": row * w}[reduction]
        got = sg.Session().run(getattr(nn, name)(x, t, reduction, weight=w))
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_softmax_in_another_dtype() -> None:
    x = np.array([1.0, 2.0], np.float16)
    for function in (nn.softmax, nn.log_softmax):
        y, want = sg.Session().run([function(sg.constant(x), 0, dtype=sg.float32), function(x.astype(np.float32), 0)])
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, want)
