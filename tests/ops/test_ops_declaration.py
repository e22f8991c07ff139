"""What is decided when an op is declared: shapes, promotion, names of backward nodes, errors with the user's line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import bind
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS, Namespace


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph() as current:
        yield current


def f32(*shape: Any) -> Any:
    return sg.placeholder(shape)


def of(dtype: Any, *shape: Any) -> Any:
    return sg.placeholder(shape, dtype)


# -- promotion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: f32(3) + 1, sg.float32),
        (lambda: f32(3) * 0.5, sg.float32),
        (lambda: f32(3) + of(sg.int32, 3), sg.float64),
        (lambda: f32(3) + of(sg.float64, 3), sg.float64),
        (lambda: of(sg.int32, 3) + 1, sg.int32),
        (lambda: of(sg.int32, 3) + 0.5, sg.float64),
        (lambda: of(sg.int32, 3) / of(sg.int32, 3), sg.float64),
        (lambda: of(sg.int32, 3) // 2, sg.int32),
        (lambda: of(sg.int32, 3) ** 2, sg.int32),
        (lambda: of(sg.uint8, 3) + of(sg.int32, 3), sg.int32),
        (lambda: of(sg.bool, 3) + of(sg.bool, 3), sg.bool),
        (lambda: of(sg.bool, 3) + 1, sg.int64),
        (lambda: sg.exp(of(sg.int64, 3)), sg.float64),
        (lambda: sg.sqrt(of(sg.bool, 3)), sg.float64),
        (lambda: f32(3) < 1, sg.bool),
        (lambda: sg.where(of(sg.bool, 3), 1.0, 0.0), sg.float32),
        (lambda: sg.where(of(sg.int32, 3), f32(3), 0), sg.float32),
        (lambda: np.ones(3, np.float32) + f32(3), sg.float32),
        (lambda: sg.sum(of(sg.int32, 3)), sg.int64),
        (lambda: sg.sum(of(sg.bool, 3)), sg.int64),
        (lambda: sg.prod(of(sg.uint8, 3)), sg.uint64),
        (lambda: sg.sum(of(sg.int32, 3), dtype=sg.float32), sg.float32),
        (lambda: sg.mean(of(sg.int32, 3)), sg.float64),
        (lambda: sg.max(of(sg.int32, 3)), sg.int32),
        (lambda: sg.argmax(f32(3)), sg.int64),
        (lambda: sg.any(f32(3)), sg.bool),
        (lambda: sg.floor(of(sg.int32, 3)), sg.int32),
        (lambda: sg.isnan(of(sg.int32, 3)), sg.bool),
        (lambda: sg.concat([f32(3), of(sg.float64, 2)]), sg.float64),
        (lambda: sg.clip(f32(3), 0, 1), sg.float32),
        (lambda: sg.clip(of(sg.int32, 3), 0), sg.int32),
        (lambda: FUNCTIONS.one_hot(of(sg.int32, 3), 4), sg.int64),
        (lambda: f32(3).astype(np.float64), sg.float64),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::staticgrad.PromotionWarning")
def test_dtypes_follow_numpy(make: Callable[[], Tensor], dtype: np.dtype) -> None:
    assert make().dtype == np.dtype(dtype)


def test_a_numpy_scalar_that_widens_warns_with_the_line() -> None:
    x = f32(3)
    with pytest.warns(sg.PromotionWarning, match="a Python float keeps float32") as caught:
        y = x * np.float64(2)
    assert y.dtype == sg.float64
    assert [w.filename for w in caught] == [__file__]
    with pytest.warns(sg.PromotionWarning):
        _ = np.array(1.0) + x


def test_what_keeps_float32_or_is_meant_does_not_warn() -> None:
    x = f32(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (x * 2.0).dtype == (x * np.float32(2)).dtype == sg.float32
        assert (x.astype(sg.float64) * np.ones(3)).dtype == (x * f32(3).astype(sg.float64)).dtype == sg.float64
        assert (of(sg.float64, 3) * np.float64(2)).dtype == sg.float64


def test_a_python_integer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="out of bounds for uint8"):
        _ = of(sg.uint8, 3) + 300


# -- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: f32(3, 1) + f32(4), (3, 4)),
        (lambda: f32(0, 3) + f32(3), (0, 3)),
        (lambda: sg.where(of(sg.bool, 3, 1), f32(4), 0), (3, 4)),
        (lambda: sg.sum(f32(2, 3, 4), 1), (2, 4)),
        (lambda: f32(2, 3, 4).sum((0, -1), keepdims=True), (1, 3, 1)),
        (lambda: sg.var(f32(2, 3)), ()),
        (lambda: sg.argmax(f32(2, 3), 1), (2,)),
        (lambda: sg.argmax(f32(2, 3), keepdims=True), (1, 1)),
        (lambda: f32(2, 3).reshape(3, 2), (3, 2)),
        (lambda: f32(2, 3).reshape(-1), (6,)),
        (lambda: sg.reshape(f32(2, 3), (1, -1, 2)), (1, 3, 2)),
        (lambda: f32(2, 3).T, (3, 2)),
        (lambda: f32(5, 2, 3).mT, (5, 3, 2)),
        (lambda: sg.moveaxis(f32(2, 3, 4), 0, -1), (3, 4, 2)),
        (lambda: sg.expand_dims(f32(2, 3), (0, -1)), (1, 2, 3, 1)),
        (lambda: sg.squeeze(f32(1, 2, 1)), (2,)),
        (lambda: sg.squeeze(f32(1, 2, 1), 0), (2, 1)),
        (lambda: f32(2, 3, 4).flatten(1), (2, 12)),
        (lambda: sg.broadcast_to(f32(3), (2, 3)), (2, 3)),
        (lambda: sg.concat([f32(2, 3), f32(2, 1)], axis=-1), (2, 4)),
        (lambda: sg.concat([f32(2, 3), f32(4)], axis=None), (10,)),
        (lambda: sg.stack([f32(2), f32(2), f32(2)], axis=-1), (2, 3)),
        (lambda: sg.split(f32(6, 2), 3)[1], (2, 2)),
        (lambda: sg.split(f32(6), [2, 5])[2], (1,)),
        (lambda: sg.unstack(f32(6, 2), 1)[1], (6,)),
        (lambda: sg.pad(f32(2, 3), 1), (4, 5)),
        (lambda: sg.pad(f32(2, 3), ((0, 1), (2, 0))), (3, 5)),
        (lambda: sg.tile(f32(2, 3), (2, 1, 2)), (2, 2, 6)),
        (lambda: sg.repeat(f32(2, 3), 2, axis=1), (2, 6)),
        (lambda: sg.roll(f32(5), 2), (5,)),
        (lambda: sg.flip(f32(5, 2)), (5, 2)),
        (lambda: f32(4, 5, 6)[1, ..., ::2], (5, 3)),
        (lambda: f32(4, 5, 6)[None, -1:0:-2, 2], (1, 2, 6)),
        (lambda: f32(4, 5, 6)[:, [0, 1, 2]], (4, 3, 6)),
        (lambda: f32(4, 5, 6)[of(sg.int64, 7), :, of(sg.int32, 2, 1)], (2, 7, 5)),
        (lambda: f32(4, 5, 6)[:, of(sg.int64, 7), 0], (4, 7)),
        (lambda: sg.take(f32(4, 5), of(sg.int64, 2, 3), axis=1), (4, 2, 3)),
        (lambda: sg.take_along_axis(f32(4, 5), of(sg.int64, 4, 2)), (4, 2)),
        (lambda: FUNCTIONS.one_hot(of(sg.int64, 2, 3), 5), (2, 3, 5)),
        (lambda: sg.shape(f32(4, 5)), (2,)),
    ],
)  # fmt: skip
def test_shapes(make: Callable[[], Tensor], shape: tuple[int, ...]) -> None:
    assert make().shape == shape


def test_sizes_that_feeds_bind_stay_symbolic() -> None:
    n = sg.dim("n")
    x = f32(n, 4)
    bindings = {n.terms[0][0][0]: 7}

    def bound(y: Tensor) -> Any:
        return bind(y.shape, bindings)

    assert (x + 1).shape == (n, 4)
    assert (x * f32(n, 1)).shape == (n, 4)
    assert bound(x.reshape(-1)) == (28,)
    assert bound(x.reshape(-1, 2)) == (14, 2)
    assert bound(sg.reshape(x, (2, x.shape[0], 2))) == (2, 7, 2)
    assert bound(x[1:]) == (6, 4)
    assert bound(x[::2]) == (4, 4)
    assert bound(x[-1]) == (4,)
    assert bound(x[::-1]) == (7, 4)
    assert bound(sg.concat([x, f32(3, 4)])) == (10, 4)
    assert bound(sg.pad(x, 1)) == (9, 6)
    assert bound(sg.tile(x, (2, 1))) == (14, 4)
    assert x.sum(0).shape == (4,)
    assert sg.shape(x).shape == (2,)


def test_a_free_size_broadcasts_only_against_itself() -> None:
    x, y = f32(None, 3), f32(None, 3)
    assert (x + x).shape == x.shape
    assert (x + f32(1, 3)).shape == x.shape
    assert (x + y).ndim == 2  # checked when both are fed


# -- what is returned as it is --------------------------------------------------------------------------------------


def test_nothing_is_declared_where_nothing_changes() -> None:
    x = f32(2, 3)
    same = [
        x.reshape(2, 3), x.astype(sg.float32), sg.permute_dims(x, (0, 1)), sg.broadcast_to(x, (2, 3)), +x, x[:], x[...],
        sg.concat([x]), sg.clip(x), sg.pad(x, 0), FUNCTIONS.unbroadcast(x, (2, 3)),
    ]  # fmt: skip
    assert all(y is x for y in same)


def test_unbroadcast_sums_what_was_stretched() -> None:
    x = f32(5, 2, 3)
    assert FUNCTIONS.unbroadcast(x, (2, 3)).shape == (2, 3)
    assert FUNCTIONS.unbroadcast(x, (2, 1)).shape == (2, 1)
    assert FUNCTIONS.unbroadcast(x, ()).shape == ()
    assert FUNCTIONS.unbroadcast(x, (5, 1, 3)).shape == (5, 1, 3)


# -- gradients at declaration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: x + 1, "AddBackward0"), (lambda x: x - 1, "SubBackward0"), (lambda x: x * 2, "MulBackward0"),
        (lambda x: x / 2, "DivBackward0"), (lambda x: x**2, "PowBackward0"), (lambda x: -x, "NegBackward0"),
        (lambda x: abs(x), "AbsBackward0"), (lambda x: sg.exp(x), "ExpBackward0"),
        (lambda x: sg.nn.relu(x), "ReluBackward0"), (lambda x: sg.where(x > 0, x, 0), "WhereBackward0"),
        (lambda x: x.sum(), "SumBackward0"), (lambda x: x.sum(0), "SumBackward1"),
        (lambda x: x.mean(), "MeanBackward0"), (lambda x: x.mean(1), "MeanBackward1"),
        (lambda x: sg.logsumexp(x, 1), "LogsumexpBackward0"), (lambda x: x.reshape(6), "ViewBackward0"),
        (lambda x: x.T, "PermuteBackward0"), (lambda x: sg.broadcast_to(x, (5, 2, 3)), "ExpandBackward0"),
        (lambda x: x[:1], "SliceBackward0"), (lambda x: sg.concat([x, x]), "CatBackward0"),
        (lambda x: sg.stack([x, x]), "StackBackward0"), (lambda x: sg.identity(x), "CloneBackward0"),
        (lambda x: x[[1, 0]], "IndexBackward0"),
        (lambda x: x**x, "PowBackward1"), (lambda x: 2.0**x, "PowBackward2"),
        (lambda x: 1 - x, "RsubBackward1"), (lambda x: 2 / x, "MulBackward0"), (lambda x: x % 2, "RemainderBackward0"),
        (lambda x: x[0], "SelectBackward0"), (lambda x: x[:, 1], "SelectBackward0"), (lambda x: x[:], "SliceBackward0"),
        (lambda x: x[0, 1:], "SliceBackward0"), (lambda x: x[None], "UnsqueezeBackward0"),
        (lambda x: x[...], "AliasBackward0"), (lambda x: x[:, [0, 1]], "IndexBackward0"),
        (lambda x: sg.sum(x, (0, 1)), "SumBackward1"), (lambda x: sg.expand_dims(x, 0), "UnsqueezeBackward0"),
        (lambda x: sg.squeeze(x[:1], 0), "SqueezeBackward1"), (lambda x: x.mT, "TransposeBackward0"),
        (lambda x: sg.flip(x, axis=0), "FlipBackward0"), (lambda x: sg.roll(x, 1), "RollBackward0"),
        (lambda x: sg.tile(x, 2), "RepeatBackward0"), (lambda x: sg.split(x, 2)[1], "SplitBackward0"),
        (lambda x: sg.unstack(x)[1], "UnbindBackward0"), (lambda x: sg.take(x, [0], axis=1), "IndexSelectBackward0"),
        (lambda x: sg.take_along_axis(x, np.zeros((2, 1), int)), "GatherBackward0"),
        (lambda x: sg.scatter(x, [0], 1.0), "IndexPutBackward0"), (lambda x: sg.scatter(x, 0, 1.0), "CopySlices"),
        (lambda x: sg.tril(x), "TrilBackward0"), (lambda x: sg.linalg.diagonal(x), "DiagonalBackward0"),
        (lambda x: sg.linalg.vector_norm(x), "LinalgVectorNormBackward0"),
        (lambda x: sg.linalg.inv(x @ x.T), "LinalgInvExBackward0"), (lambda x: x[0] @ x[1], "DotBackward0"),
        (lambda x: x @ x[0], "MvBackward0"), (lambda x: sg.clip(x, 0, 1), "ClampBackward1"),
        (lambda x: sg.log1p(x), "Log1PBackward0"), (lambda x: sg.nn.mish(x), "MishBackward0"),
        (lambda x: sg.nn.interpolate(x[None, None], scale_factor=2), "UpsampleNearest2DBackward0"),
        (lambda x: sg.nn.pad(x[None], (1, 1), mode="reflect"), "ReflectionPad1DBackward0"),
        (lambda x: sg.nn.linear(x, np.ones((2, 3), np.float32)), "MmBackward0"),
    ],
)  # fmt: skip
def test_backward_nodes_have_pytorchs_names(make: Callable[[Any], Tensor], name: str) -> None:
    x = sg.placeholder((2, 3), requires_grad=True)
    node = make(x).grad_fn
    assert node is not None
    assert node.name == name


def test_a_function_of_several_ops_is_one_backward_node_over_its_operands() -> None:
    x = sg.placeholder((2, 3), requires_grad=True)
    h = x * 2
    node = h[0].grad_fn
    assert node is not None
    ((before, index),) = node.next_functions
    assert before is not None
    assert (before.name, index) == ("MulBackward0", 0)
    assert before == h.grad_fn


def test_where_gradients_stop() -> None:
    x = sg.placeholder((2, 3), requires_grad=True)
    assert sg.exp(x).requires_grad
    assert sg.floor(x).requires_grad
    for y in (sg.stop_gradient(x), x.detach(), x > 0, sg.argmax(x), sg.isnan(x), x.astype(sg.int32)):
        assert not y.requires_grad
        assert y.grad_fn is None


def test_bounds_of_random_numbers_are_what_an_operand_may_be() -> None:
    assert sg.random.uniform((2,), [0.0, 1.0], [1.0, 3.0]).shape == (2,)
    assert sg.random.uniform((2,), f32(2), 1.0).shape == (2,)


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: f32(3) + f32(4), "do not broadcast"),
        (lambda: of(sg.bool, 3) - of(sg.bool, 3), "not defined for bool"),
        (lambda: -of(sg.bool, 3), "not defined for bool"),
        (lambda: f32(3) & f32(3), "not defined for float32"),
        (lambda: of(sg.bool, 3) << of(sg.bool, 3), "not defined for bool"),
        (lambda: sg.sum(f32(3), 1), "axis 1 is out of range"),
        (lambda: sg.sum(f32(3, 3), (0, 0)), "repeated axis"),
        (lambda: sg.max(f32(0, 3), 0), "no max of no elements"),
        (lambda: sg.argmax(f32(3, 0), 1), "no element"),
        (lambda: sg.iota((2, 3), 2), "axis 2 is out of range"),
        (lambda: sg.iota(()), "axis 0 is out of range"),
        (lambda: f32(2, 3).reshape(4, 2), "6 elements"),
        (lambda: f32(2, 3).reshape(-1, -1), "only one size"),
        (lambda: f32(2, 3).reshape(-1, 4), "does not fill"),
        (lambda: sg.permute_dims(f32(2, 3), (0, 0)), "no permutation"),
        (lambda: f32(3).mT, "at least two axes"),
        (lambda: sg.squeeze(f32(2, 1), 0), "not 1"),
        (lambda: sg.broadcast_to(f32(3), (2, 4)), "does not broadcast"),
        (lambda: sg.concat([f32(2, 3), f32(3, 3)], axis=1), "differ in axis 0"),
        (lambda: sg.concat([]), "expected a list"),
        (lambda: sg.split(f32(5), 2), "no 2 equal parts"),
        (lambda: sg.unstack(f32(None, 2)), "must be known"),
        (lambda: sg.pad(f32(2), -2), "take at most 2 elements away"),
        (lambda: f32(3)[of(sg.bool, 3)], "sg.where"),
        (lambda: f32(3)[np.array([True, False, True])], "sg.where"),
        (lambda: f32(3)[0, 0], "2 indices"),
        (lambda: f32(3, 3)[..., ...], "one Ellipsis"),
        (lambda: f32(3)[1.5], "neither an index"),
        (lambda: f32(3)[of(sg.int64) :], "sg.take"),
        (lambda: f32(3)[f32(2)], "expected integer indices"),
        (lambda: sg.scatter(f32(3), 0, 1.0, mode="sub"), "mode is one of"),
        (lambda: sg.scatter(of(sg.int32, 3), 0, 1.5), "not cast safely"),
        (lambda: sg.nn.gelu(f32(3), "fast"), "approximate"),
        (lambda: FUNCTIONS.one_hot(of(sg.int64, 3)), "num_classes"),
        (lambda: sg.assign(f32(3), 1.0), "expected a variable"),
        (lambda: sg.assign(sg.Variable(np.zeros(3)), f32(4)), "does not fit"),
        (lambda: sg.assign(sg.Variable(np.zeros(3, np.float32)), of(sg.float64, 3)), "does not fit"),
        (lambda: sg.assign(sg.Variable(np.zeros(3, np.int32)), 0.5), "is no int32"),
        (lambda: sg.Variable(np.zeros(3, np.int32), trainable=True), "only floating-point tensors"),
        (lambda: sg.Variable(sg.init.zeros()), "needs shape"),
        (lambda: sg.Variable(np.zeros(3), shape=(4,)), "expected a value of shape"),
    ],
)  # fmt: skip
def test_bad_declarations_name_the_users_line(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(sg.GraphError, match=words) as caught:
        make()
    assert "test_ops_declaration.py" in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: f32(3)[3], lambda: f32(3)[-4], lambda: f32(3)[[0, 3]], lambda: f32(2, 3)[:, np.array([-4])],
        lambda: sg.take(f32(3), [5]), lambda: sg.take_along_axis(f32(2, 3), np.array([[3], [0]])),
        lambda: sg.scatter(f32(3), [3], 1.0, mode="add"), lambda: FUNCTIONS.one_hot(np.array([0, 4]), 4),
    ],
)  # fmt: skip
def test_constant_indices_out_of_range_are_found_at_once(make: Callable[[], Any]) -> None:
    with pytest.raises(sg.BoundsError, match=r"test_ops_declaration\.py"):
        make()


# -- variables and effects -------------------------------------------------------------------------------------------


def test_variables_have_names_types_and_gradients(graph: Graph) -> None:
    value = np.zeros((2, 3), np.float32)
    w = sg.Variable(value, name="layer.w")
    assert (w.name, w.shape, w.dtype, w.requires_grad, w.is_leaf) == ("layer.w", (2, 3), sg.float32, True, True)
    assert graph.variables["layer.w"] is w
    assert not sg.Variable(value, trainable=False).requires_grad
    assert [sg.Variable(0.5).name, sg.Variable(0.5).name] == ["variable_1", "variable_2"]
    assert sg.Variable(0.5).dtype == sg.float32
    step = sg.Variable(0)
    assert (step.dtype, step.requires_grad) == (sg.int64, False)
    made = sg.Variable(sg.init.normal(), shape=(4, 5))
    assert (made.shape, made.dtype) == ((4, 5), sg.float32)
    with pytest.raises(sg.GraphError, match=r"layer\.w"):
        sg.Variable(value, name="layer.w")


def test_a_variable_keeps_a_copy_of_its_first_value() -> None:
    value = np.zeros(3)
    w = sg.Variable(value)
    value[:] = 1
    np.testing.assert_array_equal(w.op.attrs.initial(np.random.default_rng(0)), np.zeros(3))


def test_effects_are_ops_or_pass_their_operand() -> None:
    x = sg.placeholder((3,), requires_grad=True)
    w = sg.Variable(np.zeros(3, np.float32))
    write = sg.assign(w, x)
    assert isinstance(write, Node)
    assert sg.add(write, 1).shape == (3,)
    assert isinstance(sg.assign(w, 0), Node)
    assert sg.print(x, "x").requires_grad
    (y,) = sg.py_call(np.sin, [x], [(sg.float32, (3,))])
    assert (y.shape, y.dtype) == ((3,), sg.float32)
    assert isinstance(sg.py_call(lambda: None, [], []), Node)
    check = sg.assert_(x > 0, "positive")
    both = sg.group(write, check)
    assert both.control == (write, check)
    assert not both.outputs
    with sg.control_dependencies([both]):
        assert both in sg.identity(w).op.control


def test_a_gradient_through_a_python_function_is_refused() -> None:
    x = sg.placeholder((3,), requires_grad=True)
    (y,) = sg.py_call(np.sin, [x], [(sg.float32, (3,))])
    with pytest.raises(sg.GradientError, match="py_call"):
        sg.gradients(y, [x])


# -- types ----------------------------------------------------------------------------------------------------------


def test_the_namespace_says_what_its_functions_give() -> None:
    """What is not named in the class gives a tensor; a type variable is Any to those who call by name."""
    given = {name: getattr(FUNCTIONS, name).__annotations__["return"] for name in FUNCTIONS.names()}
    others = {name: f"Callable[..., {annotation}]" for name, annotation in given.items() if annotation != "Tensor"}
    others = {name: re.sub(r"\b[TRCY]\b", "Any", others[name]).replace("[P,", "[...,") for name in others}
    assert Namespace.__annotations__ == others


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_over_no_classes_is_refused_when_it_is_declared(smoothing: float) -> None:
    """With label smoothing its derivative divided by zero, outside of any message."""
    with pytest.raises(sg.GraphError, match="expected at least one class"):
        sg.nn.cross_entropy(f32(2, 0), of(sg.int64, 2), label_smoothing=smoothing)


@pytest.mark.parametrize(("ord", "which"), [(2, "largest"), (-2, "smallest")])
def test_the_extreme_singular_value_of_nothing_is_refused_when_it_is_declared(ord: int, which: str) -> None:
    """The refusal came from the first run, and spoke of a maximum that the user had not asked for."""
    with pytest.raises(sg.GraphError, match=f"no {which} singular value of matrices without elements"):
        sg.linalg.matrix_norm(f32(3, 0), ord=ord)
    assert sg.linalg.matrix_norm(f32(3, 0), ord="nuc").shape == ()
