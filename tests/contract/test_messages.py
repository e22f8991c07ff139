"""What new users stumble over: each refusal names what is at fault and says what to write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg
from staticgrad.graph.scopes import checkpointed, in_module


@pytest.fixture(autouse=True)
def graph() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


# -- checkpoints of nets without a common module ----------------------------------------------------------------------


def saved_and_restored(declare: Callable[[str], dict[str, sg.nn.Linear]], path: Path) -> tuple[Any, Any]:
    """The weights of net "a", saved by a program that declares a and b, restored by one that declares b and a."""
    weights = []
    for number, order in enumerate(("ab", "ba")):
        with sg.Graph() as graph:
            nets = declare(order)
        sess = sg.Session(graph, seed=number)
        if number == 0:
            sess.save(path)
        else:
            sess.restore(path)
        weights.append(sess.get(nets["a"].weight))
    return weights[0], weights[1]


def test_restoring_nets_that_one_line_declares_follows_their_order_as_its_help_says(tmp_path: Path) -> None:
    before, after = saved_and_restored(lambda order: {n: sg.nn.Linear(2, 2) for n in order}, tmp_path / "state")
    assert not np.array_equal(before, after)
    text = " ".join(inspect.getdoc(sg.Session.restore).split())  # type: ignore[union-attr]
    assert "declared in another order, those variables get each other's values" in text
    assert "hold several nets in one ``sg.nn.Module``" in text


def test_restoring_nets_that_one_module_holds_follows_their_names(tmp_path: Path) -> None:
    nets: list[sg.nn.Module] = []  # a module that is gone names nothing that another one holds

    def declare(order: str) -> dict[str, sg.nn.Linear]:
        both = sg.nn.Module()
        for name in order:
            setattr(both, name, sg.nn.Linear(2, 2))
        nets.append(both)
        return {"a": both.a, "b": both.b}

    before, after = saved_and_restored(declare, tmp_path / "state")
    np.testing.assert_array_equal(before, after)


# -- loops and branches -----------------------------------------------------------------------------------------------


def leaked(kind: str) -> sg.Tensor:
    """A tensor of a body, kept by a list."""
    kept: list[sg.Tensor] = []

    def double(x: sg.Tensor) -> sg.Tensor:
        kept.append(x * 2)
        return kept[0]

    if kind == "scan":
        sg.scan(lambda c, x: (double(x), None), 0.0, sg.ones(3))
    if kind == "map":
        sg.map(double, sg.ones(3))
    if kind == "while_loop":
        sg.while_loop(lambda s: s < 10.0, double, 1.0)
    if kind == "cond":
        sg.cond(sg.placeholder((), sg.bool), lambda: double(sg.ones(())), lambda: 0.0)
    return kept[0]


@pytest.mark.parametrize("kind", ["scan", "map", "while_loop", "cond"])
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: sg.exp(x),
        lambda x: sg.ones(()) * x,
        lambda x: sg.gradients(x, sg.Variable(1.0)),
        lambda x: sg.scan(lambda c, _: (c + x, None), 0.0, length=2),
        lambda x: sg.Session().run(x),
        lambda x: sg.Session().forward(x),
        lambda x: sg.Session().run(sg.ones(()), {x: 1.0}),
    ],
    ids=["number", "function", "tensor", "gradients", "scan", "run", "forward", "feed"],
)
def test_using_a_tensor_of_a_body_outside_names_it_and_its_loop(kind: str, use: Callable[[sg.Tensor], Any]) -> None:
    x = leaked(kind)
    with pytest.raises(sg.StaticGradError) as caught:
        use(x)
    text = str(caught.value)
    assert f"'multiply' belongs to the body of a {kind}, and has a value only there\n  made at {x.source}" in text
    assert f"in the {kind} at {__file__}" in text
    assert "return it from the body: " in text


def test_a_branch_cannot_use_a_tensor_of_the_other_branch() -> None:
    kept: list[sg.Tensor] = []

    def then() -> sg.Tensor:
        kept.append(sg.exp(x))
        return kept[0]

    x = sg.placeholder(())
    with pytest.raises(sg.GraphError, match="'exp' belongs to the body of a cond"):
        sg.cond(x > 0, then, lambda: kept[0])


def test_errors_of_map_speak_of_map() -> None:
    for xs, text in (((), "map: expected xs with a tensor of rows"), (1.0, "map: xs are read row by row")):
        with pytest.raises(sg.GraphError, match=text):
            sg.map(lambda x: x, xs)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_a_carry_of_another_dtype_names_its_leaf_and_the_dtype_to_begin_with() -> None:
    init = {"w": Pair(0.0, (1, sg.zeros((), dtype=sg.int32)))}

    def body(c: Any, x: sg.Tensor) -> Any:
        first, (number, total) = c["w"]
        return {"w": Pair(first, (number, total + x))}, None

    with pytest.raises(sg.GraphError) as caught:
        sg.scan(body, init, sg.ones(3, dtype=sg.int64))
    lines = str(caught.value).splitlines()
    assert lines[:4] == [
        "scan: the carry keeps its types, which carry['w'].second[1] does not",
        "  expected int32[], as init['w'].second[1]",
        "  actual   int64[], 'add' that the body returns",
        "  give init['w'].second[1] dtype=sg.int64: sg.astype(init['w'].second[1], sg.int64); or return"
        " .astype(sg.int32)",
    ]


def test_a_count_that_becomes_a_sum_is_told_to_begin_with_a_float() -> None:
    with pytest.raises(sg.GraphError, match=r"give init\[1\] dtype=sg.float32 or dtype=sg.float64"):
        sg.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] / 2), (0, 1))


def test_a_carry_of_another_shape_names_its_leaf_and_the_shape_to_begin_with() -> None:
    with pytest.raises(sg.GraphError) as caught:
        sg.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + sg.ones(3)), (0, 0.0))
    assert "while_loop: the carry keeps its types, which carry[1] does not" in str(caught.value)
    assert "give init[1] the shape (3,), or let the body return ()" in str(caught.value)


def test_a_number_that_is_none_of_the_carry_names_its_leaf() -> None:
    with pytest.raises(sg.GraphError, match=r"while_loop: carry\[1\]: 1.5 is no int64"):
        sg.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, 1.5), (0, 1))


# -- running inside of a block that declares --------------------------------------------------------------------------


@pytest.mark.parametrize("block", ["control_dependencies", "no_grad", "module", "checkpoint"])
def test_a_block_around_a_run_changes_nothing_of_it(graph: sg.Graph, block: str) -> None:
    w, x = sg.Variable(f32(1, 2, 3), name="w"), sg.placeholder((2, 3))
    loss = sg.sum(sg.nn.softmax(x * w) ** 2)
    total, _ = sg.scan(lambda c, row: (c + sg.sum(row * w), None), 0.0, x)
    write = sg.assign(w, w * 2)
    blocks: dict[str, Callable[[], Any]] = {
        "control_dependencies": lambda: sg.control_dependencies([write]),
        "no_grad": sg.no_grad,
        "module": lambda: in_module(sg.nn.Linear(2, 2)._holder_place),
        "checkpoint": checkpointed,
    }
    feeds = {x: np.arange(6, dtype=np.float32).reshape(2, 3)}

    def results() -> list[Any]:
        sess = sg.Session(graph, seed=1)
        with sess.forward(loss, feeds) as tape:
            tape.backward(loss)
        exe = sess.compile([loss, total], [x])
        exe.profile(*feeds.values())
        return [*sess.run([loss, total], feeds), *exe(*feeds.values()), sess.grad(w), sess.get(w), exe.text("graph")]

    expected = results()
    with blocks[block]():
        found = results()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


# -- losses and layers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [sg.nn.cross_entropy, sg.nn.nll_loss])
def test_labels_that_are_floats_are_told_to_be_declared_as_integers(loss: Callable[..., sg.Tensor]) -> None:
    x, t = sg.placeholder((None, 3), name="x"), sg.placeholder((None,), name="t")
    with pytest.raises(sg.GraphError) as caught:
        loss(x, t)
    text = str(caught.value)
    assert "class indices are integers: declare them by sg.placeholder((None,), sg.int64)" in text
    assert "expected integers (None,)" in text
    assert "actual   float32 (None,), 't'" in text


def test_probabilities_as_targets_are_still_taken() -> None:
    loss = sg.nn.cross_entropy(sg.zeros((2, 4)), sg.ones((2, 4)) / 4)
    np.testing.assert_allclose(sg.Session().run(loss), np.log(4), rtol=1e-6)


def test_one_example_in_the_place_of_a_batch_is_told_that_its_batch_axis_is_missing() -> None:
    x = sg.placeholder((None, 1, 8, 8), name="x")
    y = sg.nn.MaxPool2d(2)(sg.nn.Conv2d(1, 4, 3)(x))
    image = np.zeros((1, 8, 8), np.float32)
    calls: list[Callable[[], Any]] = [
        lambda: sg.Session().run(y, {x: image}),
        lambda: sg.Session().compile(y, [x])(image),
        lambda: sg.Session().compile(y, {x: image.shape}),
    ]
    for call in calls:
        with pytest.raises(sg.FeedError) as caught:
            call()
        assert "'x': wrong shape\n  expected (None, 1, 8, 8)\n  actual   (1, 8, 8)\n" in str(caught.value)
        assert "the first axis is missing: give the input a batch axis" in str(caught.value)
    with pytest.raises(sg.FeedError) as caught:
        sg.Session().run(y, {x: np.zeros((2, 1, 7, 8), np.float32)})
    assert "batch axis" not in str(caught.value)


def layers() -> list[type[sg.nn.Module]]:
    found = [getattr(sg.nn, name) for name in sg.nn.__all__ if name not in ("Module", "Identity")]
    return [layer for layer in found if isinstance(layer, type) and issubclass(layer, sg.nn.Module)]


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.__name__)
def test_layers_refuse_arguments_that_they_do_not_have(layer: type[sg.nn.Module]) -> None:
    with pytest.raises(TypeError, match="bogus"):
        layer(bogus=1)


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.__name__)
def test_the_help_of_a_layer_says_what_each_argument_is(layer: type[sg.nn.Module]) -> None:
    said = re.search(r"^Args:\n((?: .*\n|\n)+)", inspect.getdoc(layer) or "", re.MULTILINE)
    names = re.findall(r"^ {4}(\w+):", said[1], re.MULTILINE) if said else []
    assert names == list(inspect.signature(layer).parameters)


@pytest.mark.parametrize("layer", [sg.nn.Sigmoid, sg.nn.Tanh])
def test_activations_without_arguments_say_so(layer: type[sg.nn.Module]) -> None:
    with pytest.raises(TypeError, match=rf"{layer.__name__}\(\) takes no arguments, actual 3, inplace=True"):
        layer(3, inplace=True)


def test_a_module_without_an_initializer_takes_no_arguments() -> None:
    class Net(sg.nn.Module):
        """A net without variables."""

    with pytest.raises(TypeError, match=r"Net\(\) takes no arguments, actual 3"):
        Net(3)


def test_identity_stands_in_the_place_of_any_layer() -> None:
    assert sg.nn.Identity(54, unused=0.1)(sg.ones(3)).shape == (3,)


def test_an_unknown_approximation_of_gelu_is_refused_where_the_layer_is_made() -> None:
    with pytest.raises(sg.GraphError, match="GELU: approximate='sigmoid': expected 'none' or 'tanh'"):
        sg.nn.GELU("sigmoid")


# -- modules and names in the place of variables ----------------------------------------------------------------------


def net_and_loss() -> tuple[sg.nn.Sequential, sg.Tensor]:
    net = sg.nn.Sequential(sg.nn.Linear(3, 4), sg.nn.BatchNorm1d(4))
    other = sg.Variable(1.0, name="other")
    return net, sg.sum((net(sg.random.normal((2, 3), seed=1)) + 1.0) ** 2) * other


def changed(sess: sg.Session, train: Any) -> set[str]:
    before = {name: sess.get(x) for name, x in sess.graph.variables.items()}
    sess.run(train)
    return {name for name, x in before.items() if not np.array_equal(x, sess.get(sess.graph.variables[name]))}


def test_minimizing_over_a_module_updates_its_parameters() -> None:
    net, loss = net_and_loss()
    net[0].bias.requires_grad_(False)
    train = sg.optim.SGD(0.1).minimize(loss, net)
    sess = sg.Session()
    moved = changed(sess, train)
    assert {"1.weight", "1.bias"} <= moved
    assert not {"other", "0.bias"} & moved
    for update in (sg.optim.SGD(0.1).minimize(loss, net[1].weight), sg.optim.SGD(0.1).minimize(loss, [net[1].weight])):
        assert "1.weight" in changed(sess, update)


def test_steps_groups_and_averages_take_a_module_for_its_parameters() -> None:
    net, loss = net_and_loss()
    opt = sg.optim.SGD(0.1, groups=[{"params": net[1], "lr": 0.01}])
    assert opt.groups[0].params == (net[1].weight, net[1].bias)
    update, ema = opt.step(net), sg.optim.EMA(0.9)
    average = ema.update(net)
    assert set(ema.variables) == set(net.parameters())
    sess = sg.Session()
    with sess.forward(loss) as tape:
        tape.backward(loss)
    assert "other" not in changed(sess, [update, average])


def test_restoring_a_module_takes_its_variables(tmp_path: Path) -> None:
    net, loss = net_and_loss()
    sess = sg.Session(seed=1)
    sess.save(tmp_path / "state")
    before = net.state_dict(sess)
    sess.run(sg.optim.SGD(0.1).minimize(loss))
    missing, unexpected = sess.restore(tmp_path / "state", variables=net)
    assert (missing, unexpected) == ([], ["other"])
    for name, value in net.state_dict(sess).items():
        np.testing.assert_array_equal(value, before[name])


def test_names_in_the_place_of_variables_are_answered_by_where_the_variable_is(tmp_path: Path) -> None:
    sg.Variable(1.0, name="w")
    sess = sg.Session()
    sess.save(tmp_path / "state")
    calls: list[Callable[[], Any]] = [
        lambda: sess.get("w"),  # type: ignore[arg-type]
        lambda: sess.set("w", 2.0),  # type: ignore[arg-type]
        lambda: sess.set_all({"w": 2.0}),  # type: ignore[dict-item]
        lambda: sess.restore(tmp_path / "state", variables="w"),
        lambda: sess.restore(tmp_path / "state", variables=["w"]),  # type: ignore[list-item]
    ]
    for call in calls:
        with pytest.raises(sg.FetchError) as caught:
            call()
        assert "variables go by tensor, that of this name is sess.graph.variables['w']" in str(caught.value)
    with pytest.raises(sg.FetchError, match=r"sess\.graph\.variables has those that there are"):
        sess.get("v")  # type: ignore[arg-type]
    with pytest.raises(sg.FetchError, match=r"the module Linear .* net.state_dict\(sess\) gives their values"):
        sess.get(sg.nn.Linear(1, 1))  # type: ignore[arg-type]


# -- functions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("take", lambda x, i: sg.take(x, i)),
        ("take", lambda x, i: x.take(i)),
        ("take", lambda x, i: sg.gradients(sg.take(x, i), x)),
        ("take_along_axis", lambda x, i: sg.take_along_axis(x, i)),
        ("scatter", lambda x, i: sg.scatter(x, i, 1.0)),
        ("scatter", lambda x, i: sg.scatter(x, i, 1.0, mode="max")),
    ],
)
def test_an_index_out_of_range_names_the_function_that_was_called(name: str, call: Callable[..., Any]) -> None:
    i = sg.placeholder((1,), sg.int64)
    y = call(sg.placeholder((3,)) * 2 if name == "x" else sg.ones(3), i)
    with pytest.raises(sg.BoundsError, match=f"^{name}: axis 0: index 7 is out of range for size 3"):
        sg.Session().run(y, {i: [7]})


def test_indices_that_are_none_name_take() -> None:
    for indices, text in ((1.5, "expected integer indices"), ([True, False], "a boolean mask")):
        with pytest.raises(sg.GraphError, match=f"^take: {text}"):
            sg.take([1.0, 2.0], indices)
    with pytest.raises(sg.BoundsError, match=r"^take: index 5 is out of range for size 2"):
        sg.take([1.0, 2.0], 5)


def test_the_text_of_a_take_reads_back() -> None:
    g = sg.take(sg.ones(3), sg.placeholder((1,), sg.int64)).graph
    assert "what='take'" in str(g)
    assert str(sg.parse(str(g))) == str(g)


def test_a_vector_has_no_matrix_transpose() -> None:
    x = sg.ones(3)
    assert not hasattr(x, "mT")
    assert hasattr(sg.ones((2, 3)), "mT")
    for error in (sg.GraphError, AttributeError):
        with pytest.raises(error, match="mT: expected at least two axes, actual 'full' float32"):
            _ = x.mT


# -- what stands in the place of a tensor or an array -----------------------------------------------------------------


@pytest.mark.parametrize("fetch", [lambda y: y, lambda y: [y], lambda y: {"y": y}], ids=["tensor", "list", "dict"])
@pytest.mark.parametrize("runs", [0, 1])
def test_an_executable_that_is_called_by_name_says_the_order_of_its_arrays(fetch: Any, runs: int) -> None:
    x, array = sg.placeholder((2,), name="x"), np.ones(2, np.float32)
    exe = sg.Session().compile(fetch(x * 2), [x])
    for _ in range(runs):
        exe(array)
    with pytest.raises(TypeError, match=r"no 'x': it is called with arrays in the order of its feeds, exe\(x\); sess"):
        exe(x=array)
    for feeds in ({x: array}, {"x": array}):
        with pytest.raises(
            sg.FeedError, match=r"expected arrays, actual a dict: .* in the order of its feeds, exe\(x\)"
        ):
            exe(feeds)


@pytest.mark.parametrize("what", ["gradients", "jacobian", "hessian"])
def test_a_function_in_the_place_of_a_tensor_is_told_to_be_called(what: str) -> None:
    def energy(x: sg.Tensor) -> sg.Tensor:
        return sg.sum(x**2)

    x = sg.Variable([1.0, 2.0])
    with pytest.raises(sg.GraphError, match=r"expected tensors, actual <function .*>: call it, energy\(x\)"):
        getattr(sg, what)(energy, x)
    with pytest.raises(sg.GraphError, match=r"call it, fn\(x\)"):
        getattr(sg, what)(lambda x: x, x)


def test_a_module_in_the_place_of_tensors_is_answered_by_its_parameters() -> None:
    net = sg.nn.Linear(3, 2)
    with pytest.raises(
        sg.GraphError, match=r"xs: expected tensors, actual Linear.*: net\.parameters\(\) has the variables"
    ):
        sg.gradients(sg.sum(net(sg.ones((1, 3)))), net)  # type: ignore[call-overload]


@pytest.mark.parametrize("join", [sg.concat, sg.stack])
def test_a_gradient_that_is_none_is_answered_by_zeros(join: Callable[..., Any]) -> None:
    w, unused = sg.Variable([1.0, 2.0]), sg.Variable([3.0])
    gradients = sg.gradients(sg.sum(w**2), [w, unused])
    with pytest.raises(sg.GraphError, match=r"None cannot be used as a tensor: a gradient is None where .*='zero'"):
        join(gradients)


@pytest.mark.parametrize("kind", ["scan", "map", "cond", "vmap"])
def test_batch_norm_in_a_body_is_named(kind: str) -> None:
    norm, rows = sg.nn.BatchNorm1d(3), sg.ones((4, 2, 3))
    calls: dict[str, Callable[[], Any]] = {
        "scan": lambda: sg.scan(lambda c, row: (c, norm(row)), 0.0, rows),
        "map": lambda: sg.map(norm, rows),
        "cond": lambda: sg.cond(sg.placeholder((), sg.bool), lambda: norm(rows[0]), lambda: rows[0]),
        "vmap": lambda: sg.vmap(norm)(rows),
    }
    with pytest.raises(sg.GraphError, match=rf"{kind}: .*: batch norm in training mode .* after eval\(\).*GroupNorm"):
        calls[kind]()
    norm.eval()
    calls[kind]()


@pytest.mark.parametrize("kind", ["scan", "map", "vmap"])
def test_a_body_that_leaves_its_tensor_in_a_module_is_refused_and_the_module_is_as_before(kind: str) -> None:
    net, rows = sg.nn.Linear(3, 2), sg.ones((4, 2, 3))
    weight = net.weight

    def replaced(row: sg.Tensor) -> sg.Tensor:
        net.weight = row
        return net(sg.ones((1, 3)))

    def put_back(row: sg.Tensor) -> sg.Tensor:
        y = replaced(row)
        net.weight = weight
        return y

    calls: dict[str, Callable[[Any], Any]] = {
        "scan": lambda fn: sg.scan(lambda c, row: (c, fn(row)), 0.0, rows)[1],
        "map": lambda fn: sg.map(fn, rows),
        "vmap": lambda fn: sg.vmap(fn)(rows),
    }
    with pytest.raises(sg.GraphError, match=rf"{kind}: the function leaves .* of the variable Linear\.weight"):
        calls[kind](replaced)
    assert net.weight is weight
    assert [name for name, _ in net.named_parameters()] == ["weight", "bias"]
    assert calls[kind](put_back).shape == (4, 1, 2)


@pytest.mark.parametrize(
    ("symbol", "use"),
    [
        ("/", lambda size: size / 2),
        ("/", lambda size: 1.0 / size),
        ("%", lambda size: size % 2),
        (r"\*\*", lambda size: size**2),
        ("<", lambda size: size < 3),
        (">", lambda size: size > 3),
        (r"\*", lambda size: size * 1.5),
        (r"divmod\(\)", lambda size: divmod(size, 2)),
        (r"\*", lambda size: size * np.ones(3)),
        ("/", lambda size: np.arange(0, size, 2.0) if size / 2 else None),
    ],
)
def test_an_operator_that_sizes_do_not_have_says_that_the_size_is_symbolic(
    symbol: str, use: Callable[[Any], Any]
) -> None:
    x = sg.placeholder((None, 3), name="x")
    with pytest.raises(TypeError, match=rf"for {symbol}: x\.0 and .* x\.0 is a size of a symbolic tensor.*sg\.shape"):
        use(x.shape[0])


def test_operators_of_sizes_and_tensors_are_those_of_tensors() -> None:
    x = sg.placeholder((None,), name="x")
    n = x.shape[0]
    results = sg.Session().run([sg.sum(x) / n, n / sg.sum(x), n % sg.constant(2), n < sg.sum(x)], {x: [1.0, 2.0, 5.0]})
    np.testing.assert_allclose(results, [8 / 3, 3 / 8, 1, True])


@pytest.mark.parametrize("make", [sg.zeros, sg.ones, sg.empty])
def test_a_dtype_may_stand_after_the_shape(make: Callable[..., sg.Tensor]) -> None:
    assert make((5, 5), sg.int64).dtype == sg.int64
    assert make(5, np.float64).dtype == sg.float64
    with pytest.raises(sg.GraphError, match=r"3 is not a dtype: sizes are given as one shape, sg\.zeros\(\(2, 3\)\)"):
        make(2, 3)


def test_a_dtype_stands_where_numpy_has_it() -> None:
    x = sg.ones((2, 3))
    for y in (sg.full(2, 7, sg.int8), sg.full_like(x, 7, sg.int8), sg.arange(0, 5, 1, sg.int8)):
        assert y.dtype == sg.int8
    for like in (sg.zeros_like, sg.ones_like, sg.empty_like):
        assert (like(x, sg.int64).dtype, like(x, sg.int64).shape) == (sg.int64, (2, 3))
    with pytest.raises(sg.GraphError, match=r"eye: a shape holds sizes, not dtype.*: give a dtype by name, dtype="):
        sg.eye(5, sg.int64)  # type: ignore[arg-type]


X = sg.constant([1.0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sg.optim.clip_by_global_norm(None, 1.0), "clip_by_global_norm: expected a list of tensors or None"),
        (lambda: sg.optim.clip_by_global_norm(X, 1.0), "clip_by_global_norm: expected a list of tensors or None"),
        (lambda: sg.optim.clip_by_global_norm([1], 1.0), "clip_by_global_norm: .*actual 1 in it"),
        (
            lambda: sg.optim.clip_by_global_norm([X], None),
            "max_norm: expected a number or a scalar tensor, actual None",
        ),
        (
            lambda: sg.optim.clip_by_global_norm([X], X),
            "max_norm: expected a number or a scalar tensor, actual <tensor",
        ),
        (lambda: sg.optim.global_norm("ab"), "global_norm: expected a list of tensors or None, actual 'ab'"),
        (lambda: sg.py_call(None, [X], []), "py_call: fn: expected a function of arrays, actual None"),
        (lambda: sg.py_call(print, X, []), "py_call: inputs: expected a list of tensors, actual <tensor"),
        (lambda: sg.py_call(print, [None], []), r"py_call: inputs: expected a list of tensors, actual \[None\]"),
        (lambda: sg.py_call(print, [], 3), r"py_call: dtypes_shapes: expected a list of pairs \(dtype, shape\)"),
        (lambda: sg.py_call(print, [], [sg.float32]), r"py_call: dtypes_shapes: expected pairs \(dtype, shape\)"),
        (lambda: sg.nest.map(None, [1]), "nest.map: expected a function of leaves, then the nests, actual None"),
        (lambda: sg.nest.map("fn", {}), "nest.map: expected a function of leaves, then the nests, actual 'fn'"),
        (lambda: sg.nest.pack([1, 2], None), "nest.pack: expected 2 leaves in a list, actual None"),
    ],
)
def test_nonsense_arguments_name_the_function_and_what_it_expects(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(sg.GraphError, match=text):
        call()
