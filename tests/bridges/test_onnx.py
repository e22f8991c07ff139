"""ONNX models in and out: ``staticgrad.onnx``.

The yardstick for reading is ONNX's own backend test, a share of whose node cases runs here and all of which run among
the slow tests; ONNX Runtime is the one for writing.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper, parser  # noqa: E402
from support import onnx_cases  # noqa: E402
from support.selection import is_chosen  # noqa: E402

import staticgrad.onnx  # noqa: E402

SHARE = 12  # one of as many cases is tried by each commit
LEAST = 1450  # cases that pass
STEPS = 20
runtime.set_default_logger_severity(3)  # it warns of inputs that have defaults


def model_of(text: str, opset: int = 18) -> Any:
    """A model from ONNX's text form, without its first line."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


def run(text: str, *arrays: Any, opset: int = 18) -> Any:
    """The results of a model for these inputs."""
    results = staticgrad.onnx.backend.run_model(model_of(text, opset), [np.asarray(x) for x in arrays])
    return results[0] if len(results) == 1 else results


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are run by the interpreter."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


# -- ONNX's own cases --------------------------------------------------------------------------------------------------


def outcomes(cases: Sequence[Any]) -> dict[str, str]:
    """The reason for each case that does not pass."""
    found = {case.name: onnx_cases.verdict(case) for case in cases}
    return {name: reason for name, reason in found.items() if reason}


def test_a_share_of_the_node_cases_passes(interpreted: None) -> None:
    listed = onnx_cases.listed()
    chosen = [case for number, case in enumerate(onnx_cases.cases()) if is_chosen(number, SHARE)]
    assert len(chosen) > 150
    assert outcomes(chosen) == {case.name: listed[case.name] for case in chosen if case.name in listed}


@pytest.mark.slow
def test_all_node_cases_pass_but_those_that_are_listed(interpreted: None) -> None:
    cases, listed = onnx_cases.cases(), onnx_cases.listed()
    assert outcomes(cases) == listed
    assert len(cases) - len(listed) >= LEAST


def test_some_node_cases_pass_compiled() -> None:
    listed = onnx_cases.listed()
    cases = [case for case in onnx_cases.cases() if case.name not in listed and "expanded" not in case.name]
    chosen = [case for number, case in enumerate(cases) if is_chosen(number, 60)]
    assert len(chosen) > 15
    assert outcomes(chosen) == {}


# -- semantics ---------------------------------------------------------------------------------------------------------

INT = "int32[4]"
SEMANTICS: dict[str, tuple[str, list[Any], Any]] = {
    "integers divide towards zero": (
        f"m ({INT} a, {INT} b) => ({INT} y) {{ y = Div(a, b) }}",
        [np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)],
        np.array([3, -3, -3, 3], np.int32),
    ),
    "a remainder has the divisor's sign": (
        f"m ({INT} a, {INT} b) => ({INT} y) {{ y = Mod(a, b) }}",
        [np.array([7, -7, 7, -7], np.int32), np.array([3, 3, -3, -3], np.int32)],
        np.array([1, 2, -2, -1], np.int32),
    ),
    "fmod has the dividend's sign": (
        f"m ({INT} a, {INT} b) => ({INT} y) {{ y = Mod<fmod = 1>(a, b) }}",
        [np.array([7, -7, 7, -7], np.int32), np.array([3, 3, -3, -3], np.int32)],
        np.array([1, -1, 1, -1], np.int32),
    ),
    "a maximum of nothing is minus infinity": (
        "m (float[2, 0] x) => (float[2] y) <int64[1] a = {1}> { y = ReduceMax<keepdims = 0>(x, a) }",
        [np.zeros((2, 0), np.float32)],
        np.array([-np.inf, -np.inf], np.float32),
    ),
    "halves round to even": (
        "m (float[5] x) => (float[5] y) { y = Round(x) }",
        [np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)],
        np.array([0, 2, 2, -0.0, -2], np.float32),
    ),
    "quantization rounds halves to even and saturates": (
        "m (float[6] x) => (uint8[6] y) <float s = {2}, uint8 z = {10}> { y = QuantizeLinear(x, s, z) }",
        [np.array([1, 3, 5, -100, 1000, -21], np.float32)],
        np.array([10, 12, 12, 0, 255, 0], np.uint8),
    ),
    "what is quantized has zero points": (
        "m (int8[2, 2] x) => (float[2, 2] y) <float[2] s = {2, 3}, int8[2] z = {1, -1}>"
        "{ y = DequantizeLinear<axis = 0>(x, s, z) }",
        [np.array([[1, -128], [127, 0]], np.int8)],
        np.array([[0, -258], [384, 3]], np.float32),
    ),
    "negative indices count from the end": (
        "m (float[3] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }",
        [np.arange(3, dtype=np.float32), np.array([-1, 0])],
        np.array([2, 0], np.float32),
    ),
    "a pad wraps around": (
        'm (float[3] x) => (float[7] y) <int64[2] p = {2, 2}> { y = Pad<mode = "wrap">(x, p) }',
        [np.arange(3, dtype=np.float32)],
        np.array([1, 2, 0, 1, 2, 0, 1], np.float32),
    ),
    "updates of one place are added": (
        'm (float[3] x, int64[3] i, float[3] u) => (float[3] y) { y = ScatterElements<reduction = "add">(x, i, u) }',
        [np.ones(3, np.float32), np.array([0, 0, -1]), np.array([1, 2, 3], np.float32)],
        np.array([4, 1, 4], np.float32),
    ),
    "windows may hang over the end": (
        "m (float[1, 1, 5] x) => (float[1, 1, 3] y)"
        "{ y = AveragePool<kernel_shape = [2], strides = [2], ceil_mode = 1>(x) }",
        [np.arange(5, dtype=np.float32).reshape(1, 1, 5)],
        np.array([[[0.5, 2.5, 4]]], np.float32),
    ),
    "half-pixel coordinates prefer the floor": (
        'm (float[4] x) => (float[2] y) <float[1] s = {0.5}> { y = Resize<mode = "nearest">(x, "", s) }',
        [np.arange(4, dtype=np.float32)],
        np.array([0, 2], np.float32),
    ),
    "a power keeps the dtype of its base": (
        "m (int32[3] x, float[3] e) => (int32[3] y) { y = Pow(x, e) }",
        [np.array([2, 3, 4], np.int32), np.array([2, 3, 0.5], np.float32)],
        np.array([4, 27, 2], np.int32),
    ),
}


@pytest.mark.parametrize("what", SEMANTICS)
def test_the_semantics_are_those_of_onnx(what: str, interpreted: None) -> None:
    text, arrays, expected = SEMANTICS[what]
    actual = run(text, *arrays)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def test_floats_of_a_byte_have_the_values_of_ml_dtypes(interpreted: None) -> None:
    import ml_dtypes

    array = np.concatenate([np.random.default_rng(0).normal(size=500) * 10.0 ** np.arange(-4, 6).repeat(50), [0, 1e9]])
    array = array.astype(np.float32)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        elem_type = helper.np_dtype_to_tensor_dtype(dtype)
        text = f"m (float[n] x) => (float[n] y) {{ h = Cast<to = {elem_type}, saturate = 0>(x) y = Cast<to = 1>(h) }}"
        np.testing.assert_array_equal(run(text, array, opset=19), array.astype(dtype).astype(np.float32), err_msg=name)


def test_integers_divided_by_zero_end_no_process(interpreted: None) -> None:
    y = run(f"m ({INT} a, {INT} b) => ({INT} y) {{ y = Div(a, b) }}", np.ones(4, np.int32), np.zeros(4, np.int32))
    assert y.tolist() == [0, 0, 0, 0]


def test_positions_of_a_pool_of_three_dimensions_are_those_of_all_elements(interpreted: None) -> None:
    text = """m (float[2, 1, 3, 4, 4] x) => (float[n, c, d, h, w] y, int64[n, c, d, h, w] i)
    { y, i = MaxPool<kernel_shape = [2, 2, 2], strides = [1, 2, 2], auto_pad = "SAME_UPPER">(x) }"""
    x = np.random.default_rng(0).normal(size=(2, 1, 3, 4, 4)).astype(np.float32)
    y, places = run(text, x)
    assert y.shape == (2, 1, 3, 2, 2)
    np.testing.assert_array_equal(x.ravel()[places], y)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, [(0, 0)] * 2 + [(0, 1)] + [(0, 0)] * 2, "edge"), (2, 2, 2), (2, 3, 4)
    )
    np.testing.assert_array_equal(windows[:, :, :, ::2, ::2].max((-3, -2, -1)), y)


def test_means_at_the_borders_of_images_of_any_size_count_what_is_there() -> None:
    text = """m (float[1, 1, h, w] x) => (float[1, 1, p, q] y)
    { y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) }"""
    with sg.Graph() as g:
        net = staticgrad.onnx.load(model_of(text))
        (x,) = net.placeholders()
        y = net(x)
    session = runtime.InferenceSession(model_of(text).SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in ((1, 1, 4, 5), (1, 1, 7, 3)):
        array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        actual, (expected,) = sg.Session(g).run(y, {x: array}), session.run(None, {"x": array})
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_columns_become_a_volume(interpreted: None) -> None:
    text = """m (float[1, 8, 2] x) => (float[1, 1, 2, 2, 3] y) <int64[3] image = {2, 2, 3}, int64[3] block = {2, 2, 2}>
    { y = Col2Im(x, image, block) }"""
    y = run(text, np.arange(16, dtype=np.float32).reshape(1, 8, 2))
    expected = np.zeros((2, 2, 3), np.float32)
    for place, (d, h, w) in enumerate(np.ndindex(2, 2, 2)):
        expected[d, h, w : w + 2] += [2 * place, 2 * place + 1]
    np.testing.assert_array_equal(y[0, 0], expected)


def test_pads_of_a_transposed_convolution_that_differ_are_those_of_onnx_runtime(interpreted: None) -> None:
    text = """m (float[1, 2, 3, 4] x, float[2, 3, 3, 3] w, float[3] b) => (float[n, c, h, k] y)
    { y = ConvTranspose<strides = [2, 2], pads = [0, 1, 2, 0], output_padding = [0, 1]>(x, w, b) }"""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((1, 2, 3, 4), (2, 3, 3, 3), (3,))]
    session = runtime.InferenceSession(model_of(text).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, dict(zip("xwb", arrays)))
    np.testing.assert_allclose(run(text, *arrays), expected, rtol=1e-4, atol=1e-5)


def test_a_branch_that_is_known_need_not_have_the_declared_shape(interpreted: None) -> None:
    text = """m (float[2, 2] x) => (float[4] y) <bool c = {0}>
    { y = If(c) <then_branch = t () => (float[4] a) { s = Constant<value_ints = [4]>() a = Reshape(x, s) },
                 else_branch = e () => (float[2, 2] b) { b = Neg(x) }> }"""
    assert run(text, np.eye(2, dtype=np.float32)).tolist() == [[-1, 0], [0, -1]]


# -- load --------------------------------------------------------------------------------------------------------------

NET = """m (float[n, 3] x) => (float[n, 2] y)
<float[3, 2] fc = {1, 2, 3, 4, 5, 6}, float[2] training = {-3, 0.5}, int64[2] target = {-1, 2}>
{ h = MatMul(x, fc) r = Reshape(h, target) s = Add(r, training) y = Relu(s) }"""


def test_initializers_become_variables_under_their_names() -> None:
    with sg.Graph() as g:
        net = staticgrad.onnx.load(model_of(NET))
        (x,) = net.placeholders()
        y = net(x)
        loss = sg.sum(y)
        slopes = sg.gradients(loss, net.parameters())
    assert [name for name, _ in net.named_parameters()] == ["fc", "training_"]  # a module has a ``training``
    with sg.Session(g) as sess:
        assert net.state_dict(sess)["fc"].tolist() == [[1, 2], [3, 4], [5, 6]]
        for count in (1, 4):  # one open size
            batch = np.ones((count, 3), np.float32)
            value, (weight, bias) = sess.run((y, slopes), {x: batch})
            np.testing.assert_array_equal(value, [[6, 12.5]] * count)
            assert weight.tolist() == [[count] * 2] * 3
            assert bias.tolist() == [count] * 2


def test_sizes_that_a_model_computes_stay_open() -> None:
    text = """m (float[n, 4, k] x) => (float[n, p] y) <int64[1] two = {2}, int64[1] rest = {-1}, int64 first = {0}>
    { s = Shape(x) n1 = Gather<axis = 0>(s, first) axes = Constant<value_ints = [0]>() nu = Unsqueeze(n1, axes)
      wanted = Concat<axis = 0>(nu, rest) y = Reshape(x, wanted) }"""
    with sg.Graph() as g:
        net = staticgrad.onnx.load(model_of(text))
        (x,) = net.placeholders()
        y = net(x)
    with sg.Session(g) as sess:
        for n, k in ((2, 3), (5, 1)):
            array = np.random.default_rng(0).normal(size=(n, 4, k)).astype(np.float32)
            np.testing.assert_array_equal(sess.run(y, {x: array}), array.reshape(n, 4 * k))


def test_arrays_may_steer_shapes() -> None:
    text = "m (float[6] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }"
    with sg.Graph():
        net = staticgrad.onnx.load(model_of(text))
        x, shape = net.placeholders()
        assert net(x, np.array([2, -1])).shape == (2, 3)
        assert net(x=x, shape=[3, 2]).shape == (3, 2)
        with pytest.raises(
            sg.UnsupportedError, match="the shape of the result depends on values that only a run knows"
        ):
            net(x, shape)
        with pytest.raises(sg.GraphError, match="missing \\['shape'\\], unknown \\['form'\\]"):
            net(x, form=[3, 2])
        with pytest.raises(
            sg.GraphError, match="input 'x' of the model: expected float32\\[6\\], actual float32\\[5\\]"
        ):
            net(sg.placeholder((5,)), [5, 1])


def test_all_that_is_not_supported_is_said_at_once() -> None:
    text = """m (float[3, 4] x, string[2] names) => (int64[n, 3] y) <int64[1] i = {1}>
    { a = ImageDecoder(x) b = com.other.Thing(x) c = com.other.Thing(b) y = Cast<to = 7>(c) }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 20, "com.other": 1]> {text}')
    model.graph.node[1].metadata_props.add(
        key="pkg.torch.onnx.stack_trace", value='File "net.py", line 7, in forward\n    y = thing(x)'
    )
    with sg.Graph() as g, pytest.raises(sg.UnsupportedError) as caught:
        staticgrad.onnx.load(model)
    assert "net.py:7" in str(caught.value)
    assert {op.name: op.count for op in caught.value.ops} == {"input": 1, "ImageDecoder": 1, "com.other::Thing": 2}
    assert not g.nodes
    assert not staticgrad.onnx.backend.is_compatible(model)


def test_older_opsets_are_converted_by_onnx(interpreted: None) -> None:
    text = "m (float[2, 3] x, float[3] b) => (float[2, 3] y) { y = Add<broadcast = 1>(x, b) }"
    assert run(text, np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32), opset=6).tolist() == [[1, 2, 3]] * 2


def test_functions_of_a_model_are_inlined(interpreted: None) -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "own": 1]>
    m (float[3] x) => (float[3] y) { h = own.twice(x) y = own.scaled<by = 3.0>(h) }
    <domain: "own", opset_import: ["": 18]> twice (a) => (b) { b = Add(a, a) }
    <domain: "own", opset_import: ["": 18]> scaled<by>(a) => (b)
    { c = Constant<value_float: float = @by>() b = Mul(a, c) }"""
    results = staticgrad.onnx.backend.run_model(parser.parse_model(text), [np.arange(3, dtype=np.float32)])
    assert results[0].tolist() == [0, 6, 12]


LOOP = """m (float[2] x, int64 turns) => (float[2] y, float[n, 2] rows) <bool go = {1}>
{ y, rows = Loop(turns, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] r)
  { d = Identity(c) t = Add(s, s) r = Mul(t, x) } > }"""


def test_a_loop_is_a_scan_with_a_gradient() -> None:
    with sg.Graph() as g:
        net = staticgrad.onnx.load(model_of(LOOP))
        x, _ = net.placeholders()
        y, rows = net(x, np.array(3))
        (slope,) = sg.gradients(sg.sum(rows), [x])
    values = sg.Session(g).run((y, rows, slope), {x: np.array([1, 3], np.float32)})
    assert values[0].tolist() == [8, 24]
    assert values[1].tolist() == [[2, 18], [4, 36], [8, 72]]
    assert values[2].tolist() == [28, 84]  # of (2 + 4 + 8) x²
    assert sum(node.op.name == "scan" for node in g.nodes) >= 1


def test_a_branch_runs_where_a_run_chooses(interpreted: None) -> None:
    text = """m (float[2] x, bool c) => (float[2] y)
    { y = If(c) <then_branch = t () => (float[2] a) { a = Add(x, x) },
                 else_branch = e () => (float[2] b) { b = Neg(x) }> }"""
    with sg.Graph() as g:
        net = staticgrad.onnx.load(model_of(text))
        x, c = net.placeholders()
        y = net(x, c)
    sess, array = sg.Session(g), np.array([1, 2], np.float32)
    assert sess.run(y, {x: array, c: True}).tolist() == [2, 4]
    assert sess.run(y, {x: array, c: False}).tolist() == [-1, -2]


def test_a_batch_norm_s_statistics_are_no_parameters() -> None:
    text = """m (float[2, 1, 2] x) => (float[2, 1, 2] y)
    <float[1] s = {2}, float[1] b = {1}, float[1] mean = {0.5}, float[1] var = {4}>
    { y = BatchNormalization(x, s, b, mean, var) }"""
    with sg.Graph():
        net = staticgrad.onnx.load(model_of(text))
        assert [name for name, _ in net.named_parameters()] == ["s", "b"]
        assert [name for name, _ in net.named_buffers()] == ["mean", "var"]


# -- the backend -------------------------------------------------------------------------------------------------------


def test_a_backend_compiles_for_shapes_and_for_what_steers_them() -> None:
    text = "m (float[n] x, int64[2] shape) => (float[a, b] y) { z = Neg(x) y = Reshape(z, shape) }"
    ready = staticgrad.onnx.backend.prepare(model_of(text))
    array = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3], [1, -1]):
        (y,) = ready.run([array, np.array(shape)])
        np.testing.assert_array_equal(y, -array.reshape(shape))
    assert ready.run({"x": array[:2], "shape": np.array([2, 1])})["y"].shape == (2, 1)


def test_data_whose_shape_steers_is_no_value_of_a_program() -> None:
    text = """m (float[n] x, int64[1] shape) => (float[k] y)
    { s = Shape(x) d = Sub(shape, s) z = Constant<value_ints = [0]>() p = Concat<axis = 0>(z, d) y = Pad(x, p) }"""
    ready = staticgrad.onnx.backend.prepare(model_of(text))
    for value in (1.0, 2.0):
        (y,) = ready.run([np.full(2, value, np.float32), np.array([3])])
        assert y.tolist() == [value, value, 0]
    assert len(ready._made) == 1  # the program serves other data


def test_a_backend_runs_a_node() -> None:
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=1)
    (y,) = staticgrad.onnx.backend.run_node(node, [np.ones((2, 1), np.float32), np.zeros((2, 2), np.float32)])
    assert y.tolist() == [[1, 0, 0]] * 2
    assert staticgrad.onnx.backend.supports_device("CPU")
    assert not staticgrad.onnx.backend.supports_device("CUDA")


# -- save --------------------------------------------------------------------------------------------------------------

nn = sg.nn


class Attention(nn.Module):
    """A transformer's layer of the form before attention and perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: sg.Tensor) -> sg.Tensor:
        h = self.before(x)
        x = x + self.attention(h, h, h)[0]
        return x + self.down(nn.gelu(self.up(self.after(x))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: sg.Tensor) -> sg.Tensor:
        return nn.relu(x + self.second(nn.silu(self.norm(self.first(x)))))


def _first(layer: nn.Module) -> Callable[[sg.Tensor], sg.Tensor]:
    def forward(x: sg.Tensor) -> sg.Tensor:
        found: sg.Tensor = layer(x)[0]
        return found

    return forward


NETS: dict[str, tuple[tuple[int, ...], Callable[[], Callable[[sg.Tensor], sg.Tensor]]]] = {
    "perceptron": ((4, 6), lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3), nn.Softmax(-1))),
    "layer norm": ((4, 6), lambda: nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 3))),
    "pools": (
        (2, 3, 9, 9),
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)),
    ),
    "batch norm": (
        (2, 3, 8, 8),
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.LeakyReLU(0.1)).eval(),
    ),
    "depthwise": (
        (2, 4, 9, 7),
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, groups=4, padding=1), nn.Conv2d(4, 6, 1), nn.SiLU()),
    ),
    "transposed": (
        (2, 3, 5, 4),
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1), nn.Sigmoid()),
    ),
    "residual": ((2, 3, 6, 6), lambda: Residual().eval()),
    "attention": ((2, 5, 8), Attention),
    "lstm": ((5, 2, 6), lambda: _first(nn.LSTM(6, 4, num_layers=2))),
    "gru": ((5, 2, 6), lambda: _first(nn.GRU(6, 4, bidirectional=True))),
    "groups": ((2, 6, 4), lambda: nn.Sequential(nn.Conv1d(6, 6, 2, dilation=2), nn.GroupNorm(3, 6), nn.Softplus())),
}


def session_of(path: Path) -> Any:
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", NETS)
def test_nets_go_out_and_in_again(name: str, tmp_path: Path) -> None:
    shape, make = NETS[name]
    array = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    with sg.Graph() as g:
        x = sg.placeholder(shape, name="x")
        exe = sg.Session(g, seed=3).compile(make()(x), x)
    ours, path = exe(array), tmp_path / "net.onnx"
    assert np.ptp(ours) > 0.1
    staticgrad.onnx.save(path, exe)
    (theirs,) = session_of(path).run(None, {"x": array})
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
    with sg.Graph() as g:
        net = staticgrad.onnx.load(path)
        (x,) = net.placeholders()
        again = sg.Session(g).run(net(x), {x: array})
    np.testing.assert_allclose(again, ours, rtol=1e-4, atol=1e-5)


OPEN: dict[str, Callable[[], tuple[sg.Tensor, sg.Tensor]]] = {}


def opened(make: Callable[[], tuple[sg.Tensor, sg.Tensor]]) -> Callable[[], tuple[sg.Tensor, sg.Tensor]]:
    """Enter a net whose input has open sizes, under its name."""
    OPEN[make.__name__] = make
    return make


@opened
def images() -> tuple[sg.Tensor, sg.Tensor]:
    x = sg.placeholder((sg.dim("n"), 3, 8, 8), name="x")
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    return x, nn.Sequential(*layers).eval()(x)


@opened
def sentences() -> tuple[sg.Tensor, sg.Tensor]:
    x = sg.placeholder((sg.dim("n"), sg.dim("time"), 8), name="x")
    return x, Attention()(x)


@opened
def turns() -> tuple[sg.Tensor, sg.Tensor]:
    x = sg.placeholder((sg.dim("time"), sg.dim("n"), 6), name="x")
    return x, nn.LSTM(6, 4)(x)[0]


@opened
def slices() -> tuple[sg.Tensor, sg.Tensor]:
    x = sg.placeholder((sg.dim("n"), 4), name="x")
    rows = sg.concat([x[1:] * sg.mean(x), x[:-1]]) + sg.reshape(
        sg.arange(2 * x.shape[0] - 2, dtype=sg.float32), (-1, 1)
    )
    return x, sg.sort(rows, axis=0)


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes_stay_open(name: str, tmp_path: Path) -> None:
    with sg.Graph() as g:
        x, y = OPEN[name]()
    exe, path = sg.Session(g, seed=3).compile(y, x), tmp_path / "net.onnx"
    model = staticgrad.onnx.save(path, exe)  # before any call
    assert "n" in [each.dim_param for each in model.graph.input[0].type.tensor_type.shape.dim]
    ready, rng = session_of(path), np.random.default_rng(2)
    for count in (2, 5):
        array = rng.normal(size=[size if isinstance(size, int) else count + k for k, size in enumerate(x.shape)])
        array = array.astype(np.float32)
        np.testing.assert_allclose(ready.run(None, {"x": array})[0], exe(array), rtol=1e-4, atol=1e-5)


def test_a_size_that_has_to_be_known_is_that_of_the_latest_call(tmp_path: Path) -> None:
    with sg.Graph() as g:
        x = sg.placeholder((None, None), name="x")
        exe = sg.Session(g).compile(nn.max_pool2d(sg.reshape(x, (1, 1, *x.shape)), 2), x)
    with pytest.raises(sg.GraphError, match="sizes of the feeds are open and there was no call yet"):
        staticgrad.onnx.save(tmp_path / "net.onnx", exe)
    array = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    expected = exe(array)
    model = staticgrad.onnx.save(tmp_path / "net.onnx", exe)
    np.testing.assert_array_equal(session_of(tmp_path / "net.onnx").run(None, {"x": array})[0], expected)
    assert [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim] == [6, 4]


def _digits(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(np.float32), rng.integers(0, 3, shape[0])


TRAINED: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module], Callable[[], Any]]] = {
    "perceptron, momentum": (
        (16, 6),
        lambda: nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3)),
        lambda: sg.optim.SGD(lr=0.1, momentum=0.9),
    ),
    "images, batch norm, Adam": (
        (8, 2, 8, 8),
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2), nn.GELU(), nn.Flatten(), nn.Linear(16, 3),
        ),
        lambda: sg.optim.Adam(lr=0.01),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINED)
def test_onnx_runtime_trains_to_our_losses(name: str, tmp_path: Path) -> None:
    shape, make, optimizer = TRAINED[name]
    images, labels = _digits(shape)
    with sg.Graph() as g:
        batch = sg.dim("batch")
        x, t = sg.placeholder((batch, *shape[1:]), name="x"), sg.placeholder((batch,), sg.int64, name="t")
        net = make()
        loss = sg.identity(nn.cross_entropy(net(x), t), name="loss")
        step = optimizer().minimize(loss)
    sess = sg.Session(g, seed=2)
    exe, path = sess.compile([loss, step], [x, t]), tmp_path / "step.onnx"
    model = staticgrad.onnx.save(path, exe)
    state = json.loads({each.key: each.value for each in model.metadata_props}["staticgrad.state"])
    ready, feed = session_of(path), dict[str, Any]()
    outputs = [each.name for each in ready.get_outputs()]
    for turn in range(STEPS):
        count = shape[0] - turn % 2  # the size of the batch is open
        feed |= {"x": images[:count], "t": labels[:count]}
        ours = exe(feed["x"], feed["t"])[0]
        found = dict(zip(outputs, ready.run(outputs, feed)))
        np.testing.assert_allclose(found["loss"], ours, rtol=2e-4, err_msg=f"step {turn}")
        feed |= {name: found[new] for name, new in state.items()}
    assert ours < 0.75 * np.log(3)  # it has learned something
    for name, variable in net.named_parameters():
        np.testing.assert_allclose(feed[variable.name], sess.get(variable), rtol=2e-3, atol=1e-4, err_msg=name)


def test_a_loop_without_rows_is_written(tmp_path: Path) -> None:
    with sg.Graph() as g:
        x = sg.placeholder((3,), name="x")
        (y,), _ = sg.scan(lambda state, now: ([state[0] * 2 + now], []), [x], sg.arange(4, dtype=sg.float32))
        exe = sg.Session(g).compile(y, x)
    staticgrad.onnx.save(tmp_path / "net.onnx", exe)
    array = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(session_of(tmp_path / "net.onnx").run(None, {"x": array})[0], exe(array))


def test_ops_without_a_counterpart_are_said_at_once(tmp_path: Path) -> None:
    with sg.Graph() as g:
        x = sg.placeholder((3, 3), name="x")
        with sg.control_dependencies([sg.assert_(sg.all(x > 0), "positive")]):
            y = sg.linalg.cholesky(x) + nn.dropout(x) + sg.iv(0.5, x) + sg.iv(0.5, sg.print(2 * x))
        exe = sg.Session(g).compile(y, x)
    with pytest.raises(sg.UnsupportedError) as caught:
        staticgrad.onnx.save(tmp_path / "net.onnx", exe)
    counts = {op.name: op.count for op in caught.value.ops}
    assert counts == {"cholesky_factor": 1, "random_uniform": 1, "iv": 2, "assertion": 1, "print": 1}
    assert "test_onnx.py" in str(caught.value)
    assert not (tmp_path / "net.onnx").exists()
    with pytest.raises(sg.GraphError, match="expected an executable, actual Tensor"):
        staticgrad.onnx.save(tmp_path / "net.onnx", y)


# -- files of PyTorch's exporter ---------------------------------------------------------------------------------------


def _images_net(torch: Any) -> tuple[Any, Any]:
    """A residual net of images of any number, with batch norms, uneven pads and a resized skip."""
    F = torch.nn.functional

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 7, 2, 3, bias=False)
            self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8)])
            self.inner, self.down = torch.nn.Conv2d(8, 8, 3, padding=1, groups=4), torch.nn.Conv2d(8, 8, 1, 2)
            self.up, self.head = torch.nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1), torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.norms[0](self.stem(x))), 3, 2, 1, ceil_mode=True)
            y = self.up(F.hardswish(self.down(x))) + F.interpolate(self.down(x), scale_factor=2, mode="bilinear")
            y = F.silu(self.norms[1](self.inner(x))) + y[:, :, :9, :9]
            return self.head(F.adaptive_avg_pool2d(F.pad(y, (1, 2, 0, 1), mode="reflect"), 1).flatten(1))

    return Net(), torch.randn(2, 3, 33, 33)


def _sentences_net(torch: Any) -> tuple[Any, Any]:
    """An encoder of sentences of any number and length, with a mask of what comes later."""

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = torch.nn.Embedding(20, 16), torch.nn.Parameter(torch.randn(1, 32, 16))
            layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=True, activation="gelu")
            self.layers, self.head = (
                torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                torch.nn.Linear(16, 20),
            )

        def forward(self, t: Any) -> Any:
            size = t.shape[1]
            mask = torch.triu(torch.full((size, size), float("-inf")), 1)
            return self.head(self.layers(self.words(t) + self.places[:, :size], mask=mask))

    return Net(), torch.randint(0, 20, (2, 5))


def _rows_net(torch: Any) -> tuple[Any, Any]:
    """Recurrent layers of both directions over rows of any number and length."""

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 6, 2, bidirectional=True, batch_first=True)
            self.gru = torch.nn.GRU(12, 3, batch_first=True)

        def forward(self, x: Any) -> Any:
            y, (h, _) = self.lstm(x)
            return self.gru(y)[0], h

    return Net(), torch.randn(3, 7, 4)


@pytest.mark.parametrize("make", [_images_net, _sentences_net, _rows_net], ids=lambda make: make.__name__.strip("_"))
def test_files_of_pytorch_s_exporter_are_loaded(make: Callable[[Any], tuple[Any, Any]], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net, x = make(torch)
    path, axes = tmp_path / "net.onnx", {0: "n"} if x.ndim == 4 else {0: "n", 1: "time"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about sizes that it takes for constants
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # it is an op that ONNX does not have
        torch.onnx.export(net.eval(), (x,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": axes})
        torch.backends.mha.set_fastpath_enabled(fast)
    ready = session_of(path)
    with sg.Graph() as g:
        loaded = staticgrad.onnx.load(path)
        (given,) = loaded.placeholders()
        results = loaded(given)
    exe = sg.Session(g).compile(results if isinstance(results, tuple) else [results], given)
    batch = np.asarray(x)
    for array in (batch, np.concatenate([batch, batch[::-1]])):
        for actual, expected in zip(exe(array), ready.run(None, {"x": array}), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
