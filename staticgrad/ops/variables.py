"""``sg.Variable``: a tensor whose value is state of a session."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from staticgrad.base.errors import GraphError, again_hint, user_source
from staticgrad.base.types import DTypeLike, Shape, ShapeLike, declared_array, dtype_of, float32, is_floating, sizes
from staticgrad.graph import naming
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array, public
from staticgrad.graph.scopes import uncontrolled
from staticgrad.ops.sources import VARIABLE, VariableAttributes, as_shape

BASE = "variable"


@runtime_checkable
class Initializer(Protocol):
    """Makes the first value of a variable; ``sg.init`` has many.

    Example:
        >>> class Diagonal:
        ...     def make(self, shape, dtype, rng):
        ...         return np.eye(*shape, dtype=dtype)
        >>> w = sg.Variable(Diagonal(), shape=(2, 2))
        >>> sg.Session().run(w)
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        """An array of this shape and dtype; all randomness comes from ``rng``."""
        ...


@public
def Variable(
    value: TensorLike | Initializer,
    *,
    name: str | None = None,
    dtype: DTypeLike | None = None,
    trainable: bool | None = None,
    shape: ShapeLike | None = None,
) -> Tensor:
    """A tensor whose value is kept by each session, from run to run.

    Args:
        value: its first value (copied now), or an initializer of ``sg.init`` together with ``shape``.
        name: the key in checkpoints. By default the path of the module that holds the variable as an attribute
            (``encoder.weight``), and in no module ``variable``, ``variable_1``, …
        dtype: without it arrays keep theirs, Python floats and initializers are float32.
        trainable: whether it requires a gradient; by default floating variables do.
        shape: with a number, the shape that it fills.

    Returns:
        A tensor, the variable's value at the start of a run.

    Raises:
        GraphError: the name is taken by another variable, an integer variable shall be trainable, or a shape is
            missing or wrong.

    Example:
        >>> w = sg.Variable([1.0, 2.0], name="w")
        >>> table = sg.Variable(sg.init.normal(std=0.02), shape=(1000, 64))
        >>> table.shape, table.requires_grad, sg.Variable(0).requires_grad
        ((1000, 64), True, False)
        >>> sess = sg.Session()
        >>> sess.run(sg.assign(w, w * 10))
        >>> sess.run(w)
        array([10., 20.], dtype=float32)
    """
    graph = get_default_graph()
    if name is not None and name in graph._variables:
        before = graph._variables[name].source
        raise GraphError(
            f"a variable named {name!r} exists already (declared at {before}):"
            f" names of variables are the keys of checkpoints{again_hint(before, user_source())}"
        )
    attrs = _attributes(BASE if name is None else name, value, dtype, shape)
    if trainable and not is_floating(attrs.dtype):
        what = f"variable {attrs.key!r} is {attrs.dtype.name}"
        raise GraphError(f"only floating-point tensors can require gradients: {what}")
    trains = is_floating(attrs.dtype) if trainable is None else bool(trainable)
    key = f"{BASE} {len(graph.nodes)}" if name is None else name  # no name for long: it is worked out
    attrs = VariableAttributes(key, attrs.shape, attrs.dtype, attrs.initial, trains)
    with uncontrolled():
        x = graph.add(VARIABLE, (), attrs, name=key).outputs[0]
    if name is None:
        naming.register(graph, x, BASE)
    else:
        graph._variables[key] = x
        naming.note_change()
    if trains:
        x.requires_grad_()
    return x


def another(variable: Tensor) -> Tensor:
    """A new variable like ``variable``, in its graph: same type and first value, and no name of its own."""
    attrs: VariableAttributes = variable.op.attrs
    value: Any = attrs.initial.value if isinstance(attrs.initial, Fixed) else attrs.initial
    with variable.graph:
        new = Variable(
            getattr(value, "initializer", value), shape=attrs.shape, dtype=attrs.dtype, trainable=attrs.trainable
        )
    if new.requires_grad != variable.requires_grad:
        new.requires_grad_(variable.requires_grad)
    return new


def _attributes(
    key: str, value: TensorLike | Initializer, dtype: DTypeLike | None, shape: ShapeLike | None
) -> VariableAttributes:
    if not isinstance(value, np.ndarray) and isinstance(value, Initializer):
        if shape is None:
            raise GraphError(f"variable {key!r}: an initializer needs shape=")
        kind = float32 if dtype is None else dtype_of(dtype)
        return VariableAttributes(key, _static(key, shape), kind, Initial(value, _static(key, shape), kind))
    if isinstance(value, Tensor):
        raise GraphError(f"variable {key!r}: the first value is an array or an initializer, not tensor {value.name!r}")
    array = declared_array(value, None if dtype is None else dtype_of(dtype)).copy()
    if shape is not None:
        wanted = sizes(_static(key, shape))
        if array.ndim and array.shape != wanted:
            raise GraphError(f"variable {key!r}: expected a value of shape {wanted}, actual {array.shape}")
        array = np.broadcast_to(array, wanted).copy()
    return VariableAttributes(key, array.shape, array.dtype, Fixed(array))


def _static(key: str, shape: ShapeLike) -> Shape:
    result = as_shape(shape, f"variable {key!r}")
    if not all(isinstance(size, int) for size in result):
        raise GraphError(f"variable {key!r}: the sizes of a variable are numbers, not {result}")
    return result


class Fixed:
    """The first value is the array that was given."""

    def __init__(self, value: Array) -> None:
        self.value = value

    def __call__(self, rng: np.random.Generator) -> Array:
        return self.value.copy()


class Initial:
    """The first value comes from an initializer."""

    def __init__(self, initializer: Initializer, shape: Shape, dtype: np.dtype) -> None:
        self.initializer = initializer
        self.shape = sizes(shape)
        self.dtype = dtype
        self.fill: float | None = getattr(initializer, "_fill", None)  # the number in every place, if there is one

    def __call__(self, rng: np.random.Generator) -> Array:
        value = np.asarray(self.initializer.make(self.shape, self.dtype, rng))
        if value.shape != self.shape:
            raise GraphError(f"an initializer made a value of shape {value.shape}, expected {self.shape}")
        return value.astype(self.dtype, copy=False)
