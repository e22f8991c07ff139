"""Modules of PyTorch, converted: values, gradients and buffers beside PyTorch's own."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.aten_cases import FAMILIES, Case  # noqa: E402
from support.aten_layers import LAYERS  # noqa: E402
from support.torch_models import MODELS  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import staticgrad as sg  # noqa: E402
import staticgrad.torch  # noqa: E402
from staticgrad.bridges.aten import CONVERTERS  # noqa: E402
from staticgrad.torch import convert  # noqa: E402

CASES = FAMILIES | LAYERS
QUICK = ("ResNet", "BERT", "GPT-2", "LSTM")  # others take the wide lane
TOLERANCES = {np.dtype("float64"): 1e-9, np.dtype("float32"): 2e-5, np.dtype("float16"): 2e-3}


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    torch.manual_seed(0)
    with sg.Graph() as graph:
        yield graph


def dtype_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def placeholders(tensors: Sequence[Any]) -> list[Any]:
    return [sg.placeholder(tuple(t.shape), dtype_of(t)) for t in tensors]


def leaves(nest: Any) -> list[Any]:
    return list(pytree.tree_leaves(nest))


def close(actual: Any, expected: Any, what: str = "", tolerance: float | None = None) -> None:
    expected = expected.detach().numpy(force=True)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), what
    if tolerance is None:
        tolerance = TOLERANCES.get(expected.dtype, 0.0)
    scale = float(np.nanmax(np.abs(np.where(np.isfinite(expected), expected, 0)), initial=1.0))
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def weighted(ys: Sequence[Any]) -> Any:
    """One number of several results, to which each of their elements contributes otherwise."""
    return sum((y * _weights(y.shape, dtype_of(y))).sum() for y in ys)


def _weights(shape: Any, dtype: str, *, ours: bool = False) -> Any:
    weights = np.cos(np.arange(math.prod(shape)) + 1.0).reshape(tuple(shape)).astype(dtype)
    return weights if ours else torch.tensor(weights)


class Family(nn.Module):
    """Functions, each of its own operands."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, operands: Any) -> Any:
        return [case.function(*own) for case, own in zip(self.cases, operands)]


def agree(cases: Sequence[Case], dtype: Any, tolerance: float | None = None) -> None:
    """Values and gradients of functions, in one program."""
    operands = [
        [x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype == torch.float64 else x for x in case.operands]
        for case in cases
    ]
    inputs = [placeholders(own) for own in operands]
    results = convert(Family(cases), operands)(inputs)
    fetches, expected, names = [], [], []
    for case, own, xs, ys in zip(cases, operands, inputs, results):
        given = [x.clone().requires_grad_(case.gradients and x.is_floating_point()) for x in own]
        wanted, got = leaves(case.function(*given)), leaves(ys)
        pairs = [
            (y, w) for y, w in zip(got, wanted, strict=True) if isinstance(y, sg.Tensor) and w.dtype != torch.bfloat16
        ]
        derived = [(y, w) for y, w in pairs if w.requires_grad]
        by = [(x, w) for x, w in zip(xs, given) if w.requires_grad]
        names += [case.name] * len(pairs)
        if derived and by:
            total = sum(sg.sum(y * _weights(w.shape, dtype_of(w), ours=True)) for y, w in derived)
            gradients = sg.gradients(total, [x for x, _ in by], unconnected_gradients="zero")
            wanted_gradients = torch.autograd.grad(
                weighted([w for _, w in derived]), [w for _, w in by], allow_unused=True
            )
            pairs += [
                (a, torch.zeros_like(w) if b is None else b) for a, b, (_, w) in zip(gradients, wanted_gradients, by)
            ]
            names += [f"gradient of {case.name}"] * len(by)
        fetches += [y for y, _ in pairs]
        expected += [w for _, w in pairs]
    feeds = {x: t.numpy() for xs, own in zip(inputs, operands) for x, t in zip(xs, own)}
    for name, actual, wanted in zip(names, sg.Session().run(fetches, feeds), expected, strict=True):
        close(actual, wanted, name, 1e-7 if "hardsigmoid" in name and dtype == torch.float64 else tolerance)


@pytest.mark.filterwarnings("ignore:index_reduce")  # PyTorch calls it beta
@pytest.mark.parametrize("family", CASES)
def test_ops_have_pytorchs_values_and_gradients(family: str) -> None:
    agree(CASES[family], torch.float64)


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model in float64 and its inputs."""
    build, inputs = MODELS[name]
    return build().double(), inputs()


def same_as_pytorch(model: Any, given: Sequence[Any]) -> None:
    """Outputs, gradients by all parameters and inputs, and buffers afterwards."""
    net = convert(model, *given)
    xs = placeholders(given)
    outputs = leaves(net(*xs))
    given = [x.clone().requires_grad_(x.is_floating_point()) for x in given]
    wanted = leaves(model(*given))
    ours = dict(net.named_parameters())
    theirs = dict(model.named_parameters())
    assert list(ours) == list(theirs)
    by = [(x, t) for x, t in zip(xs, given) if t.requires_grad] + [(ours[name], theirs[name]) for name in ours]
    loss = sum(sg.sum(y * _weights(w.shape, dtype_of(w), ours=True)) for y, w in zip(outputs, wanted, strict=True))
    gradients = sg.gradients(loss, [x for x, _ in by], unconnected_gradients="zero")
    expected = torch.autograd.grad(weighted(wanted), [t for _, t in by], allow_unused=True, materialize_grads=True)
    sess = sg.Session()
    feeds = {x: t.detach().numpy() for x, t in zip(xs, given)}
    got_outputs, got_gradients = sess.run([outputs, gradients], feeds)
    for actual, want in zip(got_outputs, wanted):
        close(actual, want, "output")
    names = [*(f"input {n}" for n in range(len(by) - len(ours))), *ours]
    for name, actual, want in zip(names, got_gradients, expected, strict=True):
        close(actual, want, name)
    values = net.state_dict(sess)
    assert list(values) == list(model.state_dict())
    for name, want in model.state_dict().items():
        close(values[name].numpy(), want, name)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.wide) for name in MODELS]
)
def test_a_model_computes_what_it_does_in_pytorch(name: str) -> None:
    model, given = made(name)
    same_as_pytorch(model, given)


@pytest.mark.parametrize("name", ["ResNet", pytest.param("WaveNet", marks=pytest.mark.wide), "BERT"])
def test_a_model_for_use_is_the_same_too(name: str) -> None:
    model, given = made(name)
    same_as_pytorch(model.eval(), given)


# -- training ----------------------------------------------------------------------------------------------------------


def test_twenty_steps_of_training_have_pytorchs_losses_and_buffers() -> None:
    model, (images,) = made("ResNet")
    labels = torch.tensor([0, 2])
    x, t = placeholders([images, labels])
    net = convert(model, images)
    loss = sg.nn.cross_entropy(net(x), t)
    train = sg.optim.SGD(lr=0.05, momentum=0.9).minimize(loss)
    step = sg.Session().compile([loss, train], [x, t])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(20):
        batch = images + 0.1 * torch.randn(images.shape, dtype=torch.float64)
        optimizer.zero_grad()
        want = F.cross_entropy(model(batch), labels)
        want.backward()
        optimizer.step()
        actual, _ = step(batch.numpy(), labels.numpy())
        close(actual, want, f"loss {number}", 1e-8)
    for name, value in net.state_dict(step.session).items():
        close(value.numpy(), model.state_dict()[name], name, 1e-7)
    assert int(model.state_dict()["1.num_batches_tracked"]) == 20


def test_the_mode_is_switched_with_the_same_variables() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.0)).double()
    images = torch.randn(5, 3, dtype=torch.float64)
    net = convert(model, images)
    (x,) = placeholders([images])
    trained, parameters = net(x), net.parameters()
    assert net.training
    used = net.eval()(x)
    assert net.parameters() == parameters
    sess, feeds = sg.Session(), {x: images.numpy()}
    close(sess.run(trained, feeds), model(images))
    assert model.training
    close(sess.run(used, feeds), model.eval()(images))
    close(sess.run(used, feeds), model(images))  # which updates nothing


def test_buffers_are_written_once_for_each_call_in_order() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.register_buffer("calls", torch.tensor(0), persistent=False)

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.seen.mul_(0.5).add_(x.sum(0))
            return self.seen * self.calls

    model, given = Counter(), torch.arange(6.0).reshape(2, 3)
    net = convert(model, given)
    (x,) = placeholders([given])
    first, second = net(x), net(x * 2)
    sess = sg.Session()
    for _ in range(2):
        a, b = sess.run([first, second], {x: given.numpy()})
        close(a, model(given))
        close(b, model(given * 2))
    assert list(net.state_dict(sess)) == ["seen"]
    close(net.state_dict(sess)["seen"].numpy(), model.seen)


def test_dropout_drops_with_bits_of_our_own() -> None:
    model = nn.Sequential(nn.Dropout(0.25), nn.Dropout1d(0.5))
    given = torch.ones(64, 32, 4)
    (x,) = placeholders([given])
    y = convert(model, given)(x)
    (dx,) = sg.gradients(sg.sum(y), [x])
    sess = sg.Session()
    once, again, slope = (sess.run(z, {x: given.numpy()}) for z in (y, y, dx))
    assert not np.array_equal(once, again)
    assert {round(float(v), 5) for v in np.unique(once)} == {0.0, round(1 / 0.375, 5)}
    assert abs((once != 0).mean() - 0.375) < 0.05
    assert abs(slope.mean() - 1) < 0.15
    rows = (once != 0).any(axis=2)
    assert 0.4 < rows.mean() < 0.6  # whole channels of the second


# -- state -------------------------------------------------------------------------------------------------------------


def test_state_goes_back_to_pytorch() -> None:
    model, (images,) = made("ResNet")
    net = convert(model, images)
    sess = sg.Session()
    changed = {name: value * 2 for name, value in net.state_dict(sess).items()}
    assert net.load_state_dict(sess, changed) == ([], [])
    other = copy.deepcopy(model)
    assert not other.load_state_dict(net.state_dict(sess)).missing_keys
    for name, value in other.state_dict().items():
        assert torch.equal(value, model.state_dict()[name] * 2), name
    (x,) = placeholders([images])
    close(sess.run(net(x), {x: images.numpy()}), other(images))


def test_tied_parameters_are_one_variable_and_frozen_ones_stay_frozen() -> None:
    model, (ids,) = made("GPT-2")
    model.ln_f.weight.requires_grad_(False)
    net = convert(model, ids)
    assert net.head.weight is net.wte.weight
    assert {"head.weight", "wte.weight"} <= set(net.state_dict(sg.Session()))
    frozen = [name for name, p in net.named_parameters() if not p.requires_grad]
    assert frozen == ["ln_f.weight"]
    assert "mask" not in "".join(net.state_dict(sg.Session()))  # not persistent


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_keep_their_dtype(dtype: Any) -> None:
    model = nn.Linear(3, 2).to(dtype)
    given = torch.randn(4, 3).to(dtype)
    net = convert(model, given)
    sess = sg.Session()
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in net.state_dict(sess).items())
    y = net(given)
    assert y.dtype.name == dtype_of(given)
    wide = (given.float() @ model.weight.float().T + model.bias.float()).detach().numpy()
    np.testing.assert_allclose(sess.run(sg.astype(y, sg.float32)), wide, rtol=2e-2, atol=2e-2)


# -- what export knows -------------------------------------------------------------------------------------------------


def test_open_sizes_stay_open() -> None:
    model, _ = made("Llama")
    batch, steps = torch.export.Dim("batch", max=64), torch.export.Dim("steps", min=2, max=16)
    net = convert(model, torch.zeros(2, 6, dtype=torch.int64), dynamic_shapes={"ids": {0: batch, 1: steps}})
    x = sg.placeholder((None, None), sg.int64)
    y, sess = net(x), sg.Session()
    for shape in ((2, 6), (3, 9), (1, 4)):
        ids = torch.randint(0, 11, shape)
        close(sess.run(y, {x: ids.numpy()}), model(ids))


def test_an_input_of_another_type_is_refused_by_name() -> None:
    net = convert(nn.Linear(3, 2), torch.zeros(4, 3))
    with pytest.raises(sg.GraphError, match=r"input input: expected float32\[4, 3\].*actual float32\[5, 3\]"):
        net(sg.zeros((5, 3)))
    with pytest.raises(sg.GraphError, match=r"expected float32\[4, 3\].*actual float64"):
        net(np.zeros((4, 3)))
    with pytest.raises(sg.GraphError, match="dynamic_shapes"):
        net(sg.placeholder((None, 3)))
    with pytest.raises(sg.GraphError, match="was exported for arguments"):
        net(sg.zeros((4, 3)), 1)


def test_arguments_and_results_are_nests() -> None:
    class Nest(nn.Module):
        def forward(self, pair: Any, *, scale: Any, power: int = 2) -> Any:
            a, b = pair["a"], pair["b"]
            return {"sum": (a + b) * scale, "rest": (a**power, None, 7)}

    a, b, scale = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.tensor(2.0)
    net = convert(Nest(), {"a": a, "b": b}, example_kwargs={"scale": scale, "power": 3})
    y = net({"a": sg.constant([1.0, 2.0]), "b": b}, power=3, scale=2.0)
    assert y["rest"][1:] == (None, 7)
    got = sg.Session().run([y["sum"], y["rest"][0]])
    np.testing.assert_allclose(got, [[8, 12], [1, 8]])
    with pytest.raises(sg.GraphError, match="power: expected 3"):
        net({"a": a, "b": b}, scale=scale, power=2)


def test_a_tensor_that_is_given_twice_is_two_inputs() -> None:
    class Difference(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x - 2 * y

    same = torch.ones(3)
    y = convert(Difference(), same, same)(np.full(3, 5, np.float32), np.ones(3, np.float32))
    np.testing.assert_array_equal(sg.Session().run(y), [3, 3, 3])


def test_an_exported_program_is_taken_as_it_is() -> None:
    model, (images,) = made("ResNet")
    exported = torch.export.export(model.eval(), (images,))
    net = convert(exported)
    (x,) = placeholders([images])
    close(sg.Session().run(net(x), {x: images.numpy()}), model(images))
    with pytest.raises(sg.GraphError, match="takes no example arguments"):
        convert(exported, images)
    with pytest.raises(sg.GraphError, match="one mode"):
        net.eval()


def test_gradients_stop_where_pytorch_has_none() -> None:
    class Stopped(nn.Module):
        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                fixed = x.exp() * 2
                with torch.enable_grad():
                    free = x * fixed
                rounded = x.round()
                greatest, place = x.topk(2)
            return x * fixed + free * 3 + (x + (rounded - x).detach()) + greatest.sum() + place

    x = torch.tensor([0.3, 1.2], dtype=torch.float64)
    same_as_pytorch(Stopped(), [x])


class Branches(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))


def test_branches_run_as_in_pytorch() -> None:
    given = torch.tensor([1.0, 2.0], dtype=torch.float64)
    (x,) = placeholders([given])
    y = convert(Branches(), given)(x)
    (dx,) = sg.gradients(sg.sum(y), [x])
    for sign in (1.0, -1.0):
        at = (sign * given).requires_grad_()
        want = Branches()(at)
        got, slope = sg.Session().run([y, dx], {x: at.detach().numpy()})
        close(got, want)
        close(slope, torch.autograd.grad(want.sum(), at)[0])


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_all_that_is_not_supported_is_named_at_once() -> None:
    class Odd(nn.Module):
        def forward(self, x: Any) -> Any:
            spectrum = torch.fft.rfft(x).abs()
            places = torch.nonzero(x)
            return spectrum.sum() + torch.nonzero(x > 1).sum() + places.sum()

    before = len(sg.get_default_graph().nodes)
    with pytest.raises(sg.UnsupportedError) as error:
        convert(Odd(), torch.ones(4))
    found = {op.name: op for op in error.value.ops}
    assert found["aten.nonzero.default"].count == 2
    assert found["aten._fft_r2c.default"].count == 1
    assert {line.text for line in found["aten.nonzero.default"].sources} == {
        "places = torch.nonzero(x)",
        "return spectrum.sum() + torch.nonzero(x > 1).sum() + places.sum()",
    }
    assert "test_torch_convert.py" in str(error.value)
    assert len(sg.get_default_graph().nodes) == before


def test_what_depends_on_values_is_refused_by_its_line() -> None:
    class Chosen(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[x > 0].sum()

    with pytest.raises(sg.UnsupportedError, match="how many elements a mask chooses") as error:
        convert(Chosen(), torch.ones(4))
    assert "return x[x > 0].sum()" in str(error.value)


def test_a_write_to_an_input_is_refused() -> None:
    class Writer(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.add_(1)

    with pytest.raises(sg.UnsupportedError, match="writes to its input"):
        convert(Writer(), torch.ones(4))


def test_what_pytorch_cannot_export_is_an_error_with_its_reason() -> None:
    class Data(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(sg.GraphError, match=r"torch\.export cannot export Data"):
        convert(Data(), torch.ones(4))
    with pytest.raises(sg.GraphError, match=r"expected a torch\.nn\.Module"):
        convert(len, torch.ones(4))


def test_the_median_of_a_number_along_an_axis_is_converted() -> None:
    class Median(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.median(0)

    same_as_pytorch(Median(), [torch.tensor(2.5, dtype=torch.float64)])


def test_a_packed_sequence_is_refused_with_the_way_out() -> None:
    class Packed(nn.Module):
        def __init__(self, padded: bool) -> None:
            super().__init__()
            self.cell, self.padded = nn.GRU(3, 2, batch_first=True), padded

        def forward(self, x: Any, first: Any) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]), batch_first=True)
            y, last = self.cell(packed, first) if self.padded else self.cell(packed)
            return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0] if self.padded else last

    for padded in (False, True):  # which fail at different places inside of PyTorch
        with pytest.raises(sg.GraphError, match=r"packed sequences: give the recurrent layers padded ones"):
            convert(Packed(padded), torch.ones(2, 4, 3), torch.zeros(1, 2, 2))


def core_names() -> set[str]:
    """The names of ops that PyTorch tags as core."""
    names = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name, None)
        overloads = packet.overloads() if hasattr(packet, "overloads") else []
        if any(torch.Tag.core in getattr(packet, overload).tags for overload in overloads):
            names.add(name)
    return names


def test_core_aten_is_converted_but_for_complex_numbers_and_shapes_by_values() -> None:
    missing = core_names() - set(CONVERTERS)
    written_in_place = {"resize_", "sym_is_contiguous"}  # they do not come through functionalization
    assert missing - written_in_place == {"_fft_c2r", "_fft_r2c", "nonzero"}


def test_a_converter_names_only_arguments_that_pytorch_has() -> None:
    entries: dict[Any, list[str]] = {}
    for name, converter in CONVERTERS.items():
        if hasattr(converter, "__wrapped__"):  # bound to the schema by the names of its parameters
            entries.setdefault(converter, []).append(name)
    for converter, names in entries.items():
        packets = [getattr(torch.ops.aten, name, None) or getattr(torch.ops.prims, name) for name in names]
        schemas = [getattr(packet, overload)._schema for packet in packets for overload in packet.overloads()]
        known = {"x" if a.name in ("self", "input") else a.name for schema in schemas for a in schema.arguments}
        assert set(inspect.signature(converter).parameters) - {"at"} <= known, names
    assert len(entries) > 100


class Loops(nn.Module):
    """Loops of the kinds that ``torch.export`` keeps."""

    def forward(self, x: Any) -> Any:
        def doubled(n: Any, y: Any) -> Any:
            return n + 1, y * 2

        count, grown = torch.while_loop(lambda n, y: (n < 9) & (y.sum() < 20), doubled, (torch.tensor(0), x))
        return count, grown


def test_while_loops_run_as_in_pytorch() -> None:
    given = torch.tensor([0.5, 1.0], dtype=torch.float64)
    (x,) = placeholders([given])
    count, grown = convert(Loops(), given)(x)
    for scale in (1, 8):
        got = sg.Session().run([count, grown], {x: scale * given.numpy()})
        for actual, want in zip(got, Loops()(scale * given)):
            close(actual, want)


@pytest.mark.wide
def test_scans_and_maps_run_as_in_pytorch() -> None:
    from torch._higher_order_ops import map as torch_map
    from torch._higher_order_ops import scan as torch_scan

    class Folds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(0.5))

        def forward(self, x: Any) -> Any:
            def step(carry: Any, row: Any) -> Any:
                new = carry * self.rate + row.sin()
                return new, new * 2

            end, rows = torch_scan(step, torch.zeros(3, dtype=x.dtype), x)
            return end, rows, torch_map(lambda row: row.cos() * self.rate, x)

    same_as_pytorch(Folds().double(), [torch.randn(5, 3, dtype=torch.float64)])


def test_random_tensors_have_pytorchs_distributions() -> None:
    class Draws(nn.Module):
        def forward(self, x: Any) -> Any:
            return (
                torch.rand(2000), torch.randn_like(x), torch.randint(3, 7, (2000,)), torch.bernoulli(x * 0 + 0.25),
                torch.randperm(50), x + torch.rand_like(x) * 0,
            )  # fmt: skip

    x = torch.zeros(2000, dtype=torch.float64)
    uniform, normal, integers, coins, order, same = sg.Session().run(convert(Draws(), x)(x))
    assert (uniform.dtype, normal.dtype, integers.dtype) == (np.float32, np.float64, np.int64)
    assert abs(uniform.mean() - 0.5) < 0.05
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(normal.mean()) < 0.1
    assert abs(normal.std() - 1) < 0.1
    assert set(integers) == {3, 4, 5, 6}
    assert set(coins) == {0, 1}
    assert abs(coins.mean() - 0.25) < 0.05
    assert sorted(order) == list(range(50))
    assert not same.any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("family", CASES)
def test_ops_agree_in_float32(family: str) -> None:
    agree(CASES[family], torch.float32, 2e-3)


class Steep(torch.autograd.Function):
    """Rounds with a slope of its own, and counts what is above a threshold."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any, threshold: float) -> Any:
        ctx.save_for_backward(x, scale)
        ctx.threshold = threshold
        above = (x > threshold).sum()
        ctx.mark_non_differentiable(above)
        return (x * scale).round(), x + 1, above

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any, _: Any) -> Any:
        x, scale = ctx.saved_tensors
        slope = torch.where(x > ctx.threshold, 3.0, 0.5)
        return g * slope * scale - h, (g * x).sum(), None


class Apart(torch.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.clamp(-0.5, 0.5) * ctx.saved_tensors[0]


def test_rules_of_autograd_functions_are_kept() -> None:
    class Rules(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Any) -> Any:
            rounded, more, above = Steep.apply(x.sin() * 3, self.scale, 0.2)
            with torch.no_grad():
                fixed = Apart.apply(x)
            return Apart.apply(rounded / 4) * more + above + fixed, rounded.sum()

    apply = torch.autograd.Function.apply
    same_as_pytorch(Rules().double(), [torch.randn(5, dtype=torch.float64)])
    assert torch.autograd.Function.apply == apply
