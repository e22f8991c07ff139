"""Arguments that are none: refused with words, by the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.graph import numpy_calls

nn = sg.nn
Declare = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _graph() -> None:
    sg.reset_default_graph()


def x(*shape: int | None) -> sg.Tensor:
    return sg.placeholder(shape or (4, 4))


# -- integers ---------------------------------------------------------------------------------------------------------

# Every argument that counts something, each with a value that is right.
COUNTS: dict[str, tuple[Declare, int]] = {
    "matrix_power": (lambda n: sg.linalg.matrix_power(x(), n), 2),
    "nn.pad": (lambda n: nn.pad(x(), (n, 0)), 1),
    "pad": (lambda n: sg.pad(x(), n), 1),
    "pad pairs": (lambda n: sg.pad(x(), ((n, 0), (0, 0))), 1),
    "adaptive_avg_pool2d": (lambda n: nn.adaptive_avg_pool2d(x(1, 4, 4), n), 2),
    "adaptive_avg_pool2d pair": (lambda n: nn.adaptive_avg_pool2d(x(1, 4, 4), (n, 2)), 2),
    "split": (lambda n: sg.split(x(), n), 2),
    "split places": (lambda n: sg.split(x(), [n]), 2),
    "max_pool2d kernel_size": (lambda n: nn.max_pool2d(x(1, 4, 4), n), 2),
    "max_pool2d stride": (lambda n: nn.max_pool2d(x(1, 4, 4), 2, n), 2),
    "max_pool2d padding": (lambda n: nn.max_pool2d(x(1, 4, 4), 2, padding=n), 1),
    "max_pool2d dilation": (lambda n: nn.max_pool2d(x(1, 4, 4), 2, dilation=n), 1),
    "avg_pool2d divisor": (lambda n: nn.avg_pool2d(x(1, 4, 4), 2, divisor_override=n), 3),
    "conv1d stride": (lambda n: nn.conv1d(x(1, 1, 4), x(1, 1, 2), stride=n), 2),
    "conv2d stride": (lambda n: nn.conv2d(x(1, 1, 4, 4), x(1, 1, 2, 2), stride=n), 2),
    "conv2d padding": (lambda n: nn.conv2d(x(1, 1, 4, 4), x(1, 1, 2, 2), padding=n), 1),
    "conv2d groups": (lambda n: nn.conv2d(x(1, 2, 4, 4), x(2, 1, 2, 2), groups=n), 2),
    "conv3d dilation": (lambda n: nn.conv3d(x(1, 1, 4, 4, 4), x(1, 1, 2, 2, 2), dilation=n), 1),
    "conv_transpose2d": (lambda n: nn.conv_transpose2d(x(1, 1, 4, 4), x(1, 1, 2, 2), None, 2, 0, n), 1),
    "interpolate": (lambda n: nn.interpolate(x(1, 1, 4, 4), n), 2),
    "interpolate pair": (lambda n: nn.interpolate(x(1, 1, 4, 4), (n, 3)), 2),
    "one_hot": (lambda n: nn.one_hot(np.array([0, 1]), n), 3),
    "embedding": (lambda n: nn.embedding(np.array([0, 1]), x(), n), 1),
    "cross_entropy": (lambda n: nn.cross_entropy(x(), np.array([0, 1, 2, 3]), ignore_index=n), 1),
    "nll_loss": (lambda n: nn.nll_loss(x(), np.array([0, 1, 2, 3]), ignore_index=n), 1),
    "group_norm": (lambda n: nn.group_norm(x(), n), 2),
    "layer_norm": (lambda n: nn.layer_norm(x(), (n,)), 4),
    "softmax": (lambda n: nn.softmax(x(), n), 1),
    "sum": (lambda n: sg.sum(x(), n), 1),
    "sum of several": (lambda n: sg.sum(x(), (n, 0)), 1),
    "permute_dims": (lambda n: sg.permute_dims(x(), (n, 0)), 1),
    "moveaxis": (lambda n: sg.moveaxis(x(), n, 0), 1),
    "expand_dims": (lambda n: sg.expand_dims(x(), n), 1),
    "flatten": (lambda n: sg.flatten(x(), 0, n), 1),
    "reshape": (lambda n: sg.reshape(x(), (n, 8)), 2),
    "reshape to the rest": (lambda n: sg.reshape(x(), (n, 8)), -1),
    "broadcast_to": (lambda n: sg.broadcast_to(x(), (n, 4, 4)), 2),
    "roll": (lambda n: sg.roll(x(), n, 0), 1),
    "repeat": (lambda n: sg.repeat(x(), n, axis=0), 2),
    "repeat each": (lambda n: sg.repeat(x(), [n, 1, 1, 1], axis=0), 2),
    "tile": (lambda n: sg.tile(x(), n), 2),
    "tile axes": (lambda n: sg.tile(x(), (n, 1)), 2),
    "tril": (lambda n: sg.tril(x(), n), 1),
    "diagonal": (lambda n: sg.linalg.diagonal(x(), offset=n), 1),
    "trace": (lambda n: sg.linalg.trace(x(), offset=n), 1),
    "eye": (lambda n: sg.eye(n), 3),
    "eye k": (lambda n: sg.eye(3, k=n), 1),
    "linspace": (lambda n: sg.linspace(0.0, 1.0, n), 3),
    "iota": (lambda n: sg.iota((2, 3), n), 1),
    "zeros": (lambda n: sg.zeros((n,)), 2),
    "diff": (lambda n: sg.diff(x(), n=n), 1),
    "polygamma": (lambda n: sg.polygamma(n, x()), 1),
    "tensordot": (lambda n: sg.tensordot(x(), x(), axes=n), 1),
    "tensordot axes": (lambda n: sg.tensordot(x(), x(), axes=([n], [0])), 1),
    "slice": (lambda n: x()[n:], 1),
    "index": (lambda n: x()[n], 1),
    "take": (lambda n: sg.take(x(), np.array([1]), axis=n), 1),
    "scan": (lambda n: sg.scan(lambda c, _: (c, None), 0.0, length=n), 2),
    "while_loop": (lambda n: sg.while_loop(lambda s: s < 3, lambda s: s + 1, 0, max_steps=n), 2),
    "vmap": (lambda n: sg.vmap(sg.sum, n)(x()), 1),
    "permutation": (lambda n: sg.random.permutation(n), 3),
    "uniform": (lambda n: sg.random.uniform((n,)), 3),
    "seed": (lambda n: sg.random.uniform((3,), seed=n), 3),
    "Linear in": (lambda n: nn.Linear(n, 3), 2),
    "Linear out": (lambda n: nn.Linear(3, n), 2),
    "Embedding": (lambda n: nn.Embedding(n, 3), 2),
    "Embedding dim": (lambda n: nn.Embedding(3, n), 2),
    "Embedding padding": (lambda n: nn.Embedding(3, 3, n), 2),
    "Conv2d in": (lambda n: nn.Conv2d(n, 3, 3), 2),
    "Conv2d out": (lambda n: nn.Conv2d(3, n, 3), 2),
    "Conv2d groups": (lambda n: nn.Conv2d(4, 4, 3, groups=n), 2),
    "Conv1d kernel": (lambda n: nn.Conv1d(3, 3, n), 2),
    "ConvTranspose2d": (lambda n: nn.ConvTranspose2d(3, 3, n), 2),
    "BatchNorm1d": (lambda n: nn.BatchNorm1d(n), 2),
    "LayerNorm": (lambda n: nn.LayerNorm(n), 2),
    "RMSNorm": (lambda n: nn.RMSNorm((n, 3)), 2),
    "GroupNorm groups": (lambda n: nn.GroupNorm(n, 4), 2),
    "GroupNorm channels": (lambda n: nn.GroupNorm(2, n), 2),
    "LSTM": (lambda n: nn.LSTM(n, 3), 2),
    "LSTM hidden": (lambda n: nn.LSTM(3, n), 2),
    "LSTM projection": (lambda n: nn.LSTM(3, 4, proj_size=n), 2),
    "GRU layers": (lambda n: nn.GRU(3, 4, n), 2),
    "MultiheadAttention": (lambda n: nn.MultiheadAttention(n, 2), 4),
    "MultiheadAttention heads": (lambda n: nn.MultiheadAttention(4, n), 2),
    "MultiheadAttention kdim": (lambda n: nn.MultiheadAttention(4, 2, kdim=n), 2),
}


@pytest.mark.parametrize("name", COUNTS)
def test_an_argument_that_counts_takes_integers_alone(name: str) -> None:
    declare, right = COUNTS[name]
    declare(right)
    sg.reset_default_graph()
    declare(np.int32(right))
    for wrong in (right + 0.5, float(right), str(right), np.float64(right), object()):
        sg.reset_default_graph()
        with pytest.raises(sg.GraphError, match=__file__):
            declare(wrong)


# -- windows that do not fit ------------------------------------------------------------------------------------------

WINDOWS: dict[str, tuple[Declare, tuple[int, ...]]] = {
    "conv1d": (lambda x: nn.conv1d(x, np.ones((1, 1, 4), np.float32)), (1, 1, 3)),
    "conv2d": (lambda x: nn.conv2d(x, np.ones((1, 1, 3, 3), np.float32)), (1, 1, 2, 5)),
    "conv2d padded": (lambda x: nn.conv2d(x, np.ones((1, 1, 5, 5), np.float32), padding=1), (1, 1, 2, 5)),
    "conv2d dilated": (lambda x: nn.conv2d(x, np.ones((1, 1, 2, 2), np.float32), dilation=3), (1, 1, 9, 3)),
    "conv3d": (lambda x: nn.conv3d(x, np.ones((1, 1, 2, 3, 3), np.float32)), (1, 1, 4, 2, 5)),
    "conv3d of too few layers": (lambda x: nn.conv3d(x, np.ones((1, 1, 3, 2, 2), np.float32)), (1, 1, 1, 4, 5)),
    "conv_transpose2d": (
        lambda x: nn.conv_transpose2d(x, np.ones((1, 1, 3, 3), np.float32), padding=2),
        (1, 1, 2, 2),
    ),
    "max_pool2d": (lambda x: nn.max_pool2d(x, 3), (1, 1, 2, 5)),
    "avg_pool2d": (lambda x: nn.avg_pool2d(x, (2, 4)), (1, 1, 2, 3)),
    "max_pool2d of nothing": (lambda x: nn.max_pool2d(x, 3, padding=1), (1, 1, 0, 5)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_larger_than_its_image_is_refused_whenever_its_size_is_known(name: str) -> None:
    declare, shape = WINDOWS[name]
    with pytest.raises(sg.GraphError, match=rf"(conv|pool)(.|\n)*{__file__}"):
        declare(sg.placeholder(shape))
    image = sg.placeholder((1, 1, *(None for _ in shape[2:])))
    y = declare(image)
    fetches = [y, sg.gradients(y, [image])]
    for fetch in fetches:
        with pytest.raises(sg.GraphError, match=rf"(conv|pool|negative)(.|\n)*{__file__}"):
            sg.Session().run(fetch, {image: np.ones(shape, np.float32)})
    larger = tuple(size + 9 for size in shape[2:])
    assert np.isfinite(sg.Session().run(y, {image: np.ones((1, 1, *larger), np.float32)})).all()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "area"])
def test_interpolating_an_image_of_integers_names_astype(mode: Any) -> None:
    image = sg.constant(np.arange(16, dtype=np.int32).reshape(1, 1, 4, 4))
    with pytest.raises(sg.GraphError, match="astype"):
        nn.interpolate(image, (3, 3), mode=mode)
    with pytest.raises(sg.GraphError, match="floating"):
        nn.adaptive_avg_pool2d(image, (3, 3))
    assert nn.interpolate(image, (3, 3)).dtype == np.int32


# -- operands that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declare",
    [
        lambda a, b: sg.sin([a, b]),
        lambda a, b: a * [a, b],
        lambda a, b: [a, b] * a,
        lambda a, b: sg.matmul(a, [a, b]),
        lambda a, b: sg.where(a > 0, [a], 0),
        lambda a, b: nn.softmax([a, b]),
        lambda a, b: sg.sum([[a, 1.0], [b, 2.0]]),
        lambda a, b: sg.constant([a, b]),
        lambda a, b: sg.Variable([a, b]),
    ],
)
def test_a_list_of_tensors_is_no_operand(declare: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(sg.GraphError, match=rf"sg\.stack(.|\n)*{__file__}"):
        declare(x(), x())


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (np.sum, "sg.sum"), (np.sin, "sg.sin"), (np.mean, "sg.mean"), (np.arctan, "sg.atan"), (np.cumsum, "sg.cumul"),
        (np.reshape, "sg.reshape"), (np.exp, "sg.exp"), (np.linalg.inv, "sg.linalg.inv"), (np.trace, "sg.linalg.trace"),
        (np.linalg.norm, "sg.linalg.vector_norm"), (np.dot, "sg.matmul"), (np.unique, "sess.run"), (np.sort, "sg.sort"),
        (np.tril, "sg.tril"), (np.add.reduce, "sess.run"), (np.cross, "sg.linalg.cross"), (np.where, "sg.where"),
    ],
)  # fmt: skip
def test_a_function_of_numpy_names_the_one_of_the_graph(function: Any, named: str) -> None:
    arguments = {np.dot: 2, np.cross: 2, np.reshape: 2, np.where: 3}.get(function, 1)
    with pytest.raises(TypeError, match=rf"np\..*'placeholder.*{named}(.|\n)*{__file__}"):
        function(*[x() for _ in range(arguments)])


def test_what_numpys_functions_are_named_like_exists() -> None:
    for name in numpy_calls.RENAMED.values():
        home, _, last = name.rpartition(".")
        assert hasattr(sg.linalg if home else sg, last), name


def test_arrays_on_the_left_of_operators_and_questions_of_shape_go_on_working() -> None:
    a, left = x(2, 3), np.full((2, 3), 2.0, np.float32)
    fed = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
    pairs = [
        (left + a, left + fed), (left - a, left - fed), (left * a, left * fed), (left / a, left / fed),
        (left // a, left // fed), (left % a, left % fed), (left**a, left**fed), (left.T @ a, left.T @ fed),
        (left == a, left == fed), (left != a, left != fed), (left < a, left < fed), (left >= a, left >= fed),
        (np.float32(2) - a, 2 - fed), (np.float32(2) ** a, 2**fed), (left[0] - a, left[0] - fed),
    ]  # fmt: skip
    for got, want in zip(sg.Session().run([y for y, _ in pairs], {a: fed}), [want for _, want in pairs], strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6)
    whole, bits = sg.constant(np.array([1, 2])), np.array([3, 1])
    results = sg.Session().run([bits & whole, bits | whole, bits ^ whole, bits << whole, bits >> whole])
    assert [y.tolist() for y in results] == [[1, 0], [3, 3], [2, 3], [6, 4], [1, 0]]
    assert (np.shape(a), np.ndim(a), np.size(a)) == ((2, 3), 2, 6)
    with pytest.raises(TypeError, match=r"a = a \+ x"):
        left += a


def test_einsum_takes_lists_of_labels() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 3, 3))
    y = [sg.einsum(a, [0, 1], b, [1, 2], [0, 2]), sg.einsum(a, [0, 1]), sg.einsum(a, [..., 5], b, [..., 5])]
    want = [a @ b, a, (a * b).sum(-1)]
    for got, expected in zip(sg.Session().run(y), want, strict=True):
        np.testing.assert_allclose(got, expected)
    for wrong in ((3, a), (a,), (a, [0, 99]), (a, "ij"), ("ij",), (a, [0.5, 1])):
        with pytest.raises(sg.GraphError, match=__file__):
            sg.einsum(*wrong)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0, 0)])
def test_inverses_and_ranks_of_empty_matrices(shape: tuple[int, ...]) -> None:
    a = sg.constant(np.zeros(shape))
    inverse, rank = sg.Session().run([sg.linalg.pinv(a), sg.linalg.matrix_rank(a)])
    assert inverse.shape == np.linalg.pinv(np.zeros(shape)).shape
    assert np.all(rank == 0)


# -- sizes and graphs -------------------------------------------------------------------------------------------------


def test_a_tensor_of_more_bytes_than_memory_can_address_is_refused() -> None:
    for declare in (
        lambda: sg.placeholder((2**62,)),
        lambda: sg.zeros((2**32, 2**32)),
        lambda: sg.broadcast_to(x(1), (2**61,)),
        lambda: sg.placeholder((None, 2**62)),
    ):
        with pytest.raises(sg.GraphError, match=rf"memory can address(.|\n)*{__file__}"):
            declare()
    rows = sg.placeholder((None, 1))
    wide = sg.sum(sg.broadcast_to(rows, (rows.shape[0], 2**60)))
    with pytest.raises(sg.GraphError, match=rf"memory can address(.|\n)*{__file__}"):
        sg.Session().run(wide, {rows: np.ones((3, 1), np.float32)})


def test_a_size_is_written_as_python_reads_it() -> None:
    n, m = sg.dim("n"), sg.dim("m")
    texts = ["2*n + 2", "((n + 1) // 2)", "3*((n + 1) // 2)", "n - 1", "-n + 1", "((n + 1) // (m + 1))", "-2*n",
             "m*n - m - n + 1", "((m*n) // (2*m))", "2*(n // 2) - 3"]  # fmt: skip
    sizes = [(n + 1) * 2, (n + 1) // 2, (n + 1) // 2 * 3, n - 1, 1 - n, (n + 1) // (m + 1), -n * 2, (n - 1) * (m - 1),
             (n * m) // (2 * m), n // 2 * 2 - 3]  # fmt: skip
    assert [str(size) for size in sizes] == texts
    assert [eval(text, {"n": n, "m": m}) for text in texts] == sizes
    assert -n + n == 0
    with pytest.raises(ZeroDivisionError, match="n"):
        _ = n // 0


def test_a_product_of_two_sizes_of_one_name_has_no_order() -> None:
    n, other = (sg.placeholder((None,), name="n").shape[0] for _ in range(2))
    assert n != other
    assert n * other == other * n
    assert (n // 2) * (other // 2) == (other // 2) * (n // 2)


def test_a_session_is_of_a_graph() -> None:
    loss = sg.sum(x())
    with pytest.raises(sg.GraphError, match=r"sess\.run\(x\)"):
        sg.Session(loss)  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match="expected a graph"):
        sg.Session("graph")  # type: ignore[arg-type]


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "batch_norm: eps": lambda n: nn.batch_norm(x(), None, None, training=True, eps=n),
    "batch_norm: momentum": lambda n: nn.batch_norm(x(), None, None, training=True, momentum=n),
    "layer_norm: eps": lambda n: nn.layer_norm(x(), (4,), eps=n),
    "group_norm: eps": lambda n: nn.group_norm(x(), 2, eps=n),
    "leaky_relu: negative_slope": lambda n: nn.leaky_relu(x(), n),
    "elu: alpha": lambda n: nn.elu(x(), n),
    "softplus: beta": lambda n: nn.softplus(x(), n),
    "softplus: threshold": lambda n: nn.softplus(x(), threshold=n),
    "hardtanh: min_val": lambda n: nn.hardtanh(x(), n),
    "hardtanh: max_val": lambda n: nn.hardtanh(x(), max_val=n),
    "huber_loss: delta": lambda n: nn.huber_loss(x(), x(), delta=n),
    "smooth_l1_loss: beta": lambda n: nn.smooth_l1_loss(x(), x(), beta=n),
    "cross_entropy: label_smoothing": lambda n: nn.cross_entropy(x(), np.zeros(4, np.int64), label_smoothing=n),
    "var: correction": lambda n: sg.var(x(), correction=n),
    "std: correction": lambda n: sg.std(x(), correction=n),
    "vector_norm: ord": lambda n: sg.linalg.vector_norm(x(), ord=n),
    "normalize: p": lambda n: nn.normalize(x(), p=n),
    "normal: std": lambda n: sg.random.normal((3,), std=n),
    "bernoulli: p": lambda n: sg.random.bernoulli(n),
    "linspace: start": lambda n: sg.linspace(n, 1.0, 3),
    "linspace: stop": lambda n: sg.linspace(0.0, n, 3),
    "arange": lambda n: sg.arange(0, 3, n),
    "sgd: momentum": lambda n: sg.optim.SGD(0.1, momentum=n),
    "adam: eps": lambda n: sg.optim.Adam(0.1, eps=n),
    "BatchNorm1d: eps": lambda n: nn.BatchNorm1d(3, eps=n),
    "LayerNorm: eps": lambda n: nn.LayerNorm(3, eps=n),
    "GroupNorm: eps": lambda n: nn.GroupNorm(2, 4, eps=n),
    "LeakyReLU: negative_slope": nn.LeakyReLU,
    "ELU: alpha": nn.ELU,
    "Softplus: beta": nn.Softplus,
    "Softplus: threshold": lambda n: nn.Softplus(threshold=n),
    "MultiheadAttention: dropout": lambda n: nn.MultiheadAttention(4, 2, dropout=n),
    "MaxPool2d: kernel_size": nn.MaxPool2d,
    "MaxPool2d: padding": lambda n: nn.MaxPool2d(2, padding=n),
    "AvgPool2d: kernel_size": nn.AvgPool2d,
    "Conv2d: stride": lambda n: nn.Conv2d(2, 2, 3, stride=n),
    "Conv1d: dilation": lambda n: nn.Conv1d(2, 2, 3, dilation=n),
    "Conv2d: padding": lambda n: nn.Conv2d(2, 2, 3, padding=n),
    "ConvTranspose2d: stride": lambda n: nn.ConvTranspose2d(2, 2, 3, stride=n),
}
OPTIONAL_NUMBERS: dict[str, Callable[[Any], Any]] = {  # None is something else
    "rms_norm: eps": lambda n: nn.rms_norm(x(), (4,), eps=n),
    "scaled_dot_product_attention: scale": lambda n: nn.scaled_dot_product_attention(x(), x(), x(), scale=n),
    "pinv: rtol": lambda n: sg.linalg.pinv(x(), rtol=n),
    "matrix_rank: rtol": lambda n: sg.linalg.matrix_rank(x(), rtol=n),
    "BatchNorm1d: momentum": lambda n: nn.BatchNorm1d(3, momentum=n),
    "RMSNorm: eps": lambda n: nn.RMSNorm(3, eps=n),
    "MaxPool2d: stride": lambda n: nn.MaxPool2d(2, n),
}


@pytest.mark.parametrize("wrong", ["abc", None, ("a",)], ids=str)
@pytest.mark.parametrize("name", [*NUMBERS, *OPTIONAL_NUMBERS])
def test_what_is_no_number_is_refused_by_its_name(name: str, wrong: Any) -> None:
    if wrong is None and name in OPTIONAL_NUMBERS:
        OPTIONAL_NUMBERS[name](None)
        return
    with pytest.raises(sg.GraphError, match=rf"{name}(.|\n)*{__file__}"):
        (NUMBERS | OPTIONAL_NUMBERS)[name](wrong)


@pytest.mark.parametrize("one", [1, 1.0, np.float32(1), np.int64(1), np.array(1.0)], ids=repr)
def test_numbers_of_python_and_numpy_are_numbers(one: Any) -> None:
    for name in ("layer_norm: eps", "elu: alpha", "huber_loss: delta", "var: correction", "linspace: stop", "arange"):
        NUMBERS[name](one)


def test_axes_of_tensordot_and_permute_dims_that_are_single_numbers() -> None:
    a, b = np.arange(12.0).reshape(4, 3), np.arange(8.0).reshape(2, 4)
    got = sg.Session().run(sg.tensordot(a, b, axes=(0, 1)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(got, np.tensordot(a, b, axes=(0, 1)))
    for call in (
        lambda: sg.tensordot(a, b, axes=(0, 1, 1)),  # type: ignore[arg-type]
        lambda: sg.tensordot(a, b, axes="ab"),  # type: ignore[arg-type]
        lambda: sg.permute_dims(a, 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(sg.GraphError, match=r"tensordot|permute"):
            call()


def test_losses_are_refused_by_their_own_names() -> None:
    y = np.ones((2, 3))
    for words, call in (
        ("mse_loss: expected weights", lambda: nn.mse_loss(y, y, weight=np.ones(3))),
        ("mse_loss: reduction='avg'", lambda: nn.mse_loss(y, y, "avg", weight=y)),
        ("l1_loss: reduction='avg'", lambda: nn.l1_loss(y, y, "avg", weight=y)),
        ("huber_loss: expected weights", lambda: nn.huber_loss(y, y, weight=np.ones(3))),
        ("smooth_l1_loss: beta: expected a number of at least 0", lambda: nn.smooth_l1_loss(y, y, beta=-1)),
        ("smooth_l1_loss: reduction='avg'", lambda: nn.smooth_l1_loss(y, y, "avg", beta=0)),
    ):
        with pytest.raises(sg.GraphError, match=words):
            call()
