"""The graph that a user declares, and that the compiler rewrites.

    Graph  ::= Node*                             in SSA order: operands come before their users
    Node   ::= outputs = op(inputs; attributes)  [after nodes]  @ source line
    Tensor ::= an output of a node, with its TensorType

Only declarations extend a graph. The compiler works on graphs of its own, into which it copies what a program needs.
What is kept beside the nodes: names, the hooks and retained set of tensors, the place count of random ops.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar, cast

import numpy as np

from staticgrad.base import hints
from staticgrad.base.boundary import boundary, end_at_user
from staticgrad.base.errors import (
    AbsentError,
    GraphError,
    SourceLine,
    UpdateWarning,
    ran_before,
    refuse_copies,
    user_source,
    warn,
)
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.frozen import frozen
from staticgrad.base.reach import reach
from staticgrad.base.types import Dim, DTypeLike, Shape, Size, TensorType, is_floating, is_weak, result_types
from staticgrad.graph import numpy_calls, numpy_methods
from staticgrad.graph.hooks import (
    FROZEN,
    AccumulationHook,
    Hook,
    HookCall,
    HookHandle,
    Hooks,
    add_accumulation_hook,
    add_hook,
    note_change,
)
from staticgrad.graph.optable import FUNCTIONS, NO_ATTRIBUTES, Op, with_python_integers
from staticgrad.graph.scopes import scope

if TYPE_CHECKING:
    from staticgrad.graph.naming import Origin, Place, Unnamed
    from staticgrad.graph.reruns import Pair, Root
    from staticgrad.graph.scopes import Checkpoint
    from staticgrad.graph.warned import Call

# What modules above do for graphs: ``names`` and ``settle`` those of variables, ``text`` and ``html``.
_provided: dict[str, Callable[..., Any]] = {}


def provide(**functions: Callable[..., Any]) -> None:
    """Let graphs have what modules above can do for them, by its name."""
    _provided.update(functions)


T = TypeVar("T")
COPIER = "staticgrad.copier"  # in the memo of a deep copy: what becomes of a tensor


class Node(metaclass=hints.Answering):
    """One op of a graph. Fetching a node runs it; its tensors are ``outputs``.

    Example:
        >>> w = sg.Variable(1.0)
        >>> node = sg.assign(w, 2.0)
        >>> node.op.name, node.graph is w.graph
        ('assign', True)
        >>> sg.Session().run({"op": node, "w": w})
        {'op': None, 'w': array(1., dtype=float32)}
    """

    __slots__ = {
        **dict.fromkeys(("_name", "blocked", "checkpoint", "control", "epoch", "module", "original", "part", "primal")),
        **dict.fromkeys(("serial", "shown", "source")),
        "attrs": "What the op is told beside its operands.",
        "graph": "The graph that it is declared in.",
        "inputs": "The tensors that it reads, in order.",
        "op": "Its entry in the op table, whose ``name`` says what it computes.",
        "outputs": "The tensors that it makes, in order.",
    }

    def __init__(
        self,
        graph: Graph,
        op: Op,
        inputs: tuple[Tensor, ...],
        attrs: Any,
        types: tuple[TensorType, ...],
        name: str,
        control: tuple[Node, ...],
        source: SourceLine | None,
        blocked: bool,
    ) -> None:
        """Nodes are made by the functions that declare ops."""
        self.graph = graph
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self._name = name
        self.control = control  # nodes that run before this one, whether it reads them or not
        self.source = source
        self.blocked = blocked  # declared under no_grad: values pass, gradients do not
        self.serial = len(graph.nodes)
        self.checkpoint: Checkpoint | None = None  # what is declared in there is not kept for a backward
        self.original: Node | None = None  # whose results this node computes again
        self.shown: tuple[str, tuple[Tensor, ...]] | None = None  # see GradFn
        self.module: Place | None = None  # whose call declares it, the innermost one
        self.primal: Node | None = None  # of whose derivative it is a part
        self.part = ""  # the name of the user's own op that it is a part of, which kernels show
        self.epoch = 0  # 0, or the number of the recomputation: nodes of different ones are never merged
        self.outputs = tuple([Tensor(self, index, type_) for index, type_ in enumerate(types)])

    @property
    def name(self) -> str:
        """The name in texts and messages. Names of a graph are distinct when they are settled."""
        if self.graph.unsettled:
            _ = self.graph.variables  # works their names out
        return self._name

    __reduce_ex__ = refuse_copies("an op of a graph", "str(graph) is the graph as text, and sg.parse makes one of it")

    @property
    def value_inputs(self) -> tuple[Tensor, ...]:
        """The operands that its value is made of. Others are there for its derivative: a rule of the user's gives their
        gradients, or may not be derived by them."""
        values = self.op.values
        return self.inputs if values is None else self.inputs[: values(self.attrs)]

    @property
    def before(self) -> list[Node]:
        """The nodes that must run before this one: those of its operands, and those it was declared to follow."""
        return [*[x.op for x in self.inputs], *self.control]

    def __repr__(self) -> str:
        return f"<op {self.name!r} {self.op.name}>"


def needed_nodes(fetches: Iterable[Tensor], effects: Iterable[Node]) -> set[Node]:
    """Every node that the fetches and effects depend on, through operands and control edges, and their own."""
    return reach([*(x.op for x in fetches), *effects], lambda node: node.before)


def _unnumbered(name: str) -> str:
    """The name without the number that made it unique."""
    stem, mark, number = name.rpartition("_")
    return stem if mark and number.isdecimal() else name


class GradFn:
    """The backward node of a declared op, in PyTorch's form. Where one function declares several ops, the last one is
    ``shown`` as the function's backward node: its name, and its operands."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @property
    def name(self) -> str:
        """``MulBackward0``, ``AccumulateGrad``, …"""
        node = self._tensor.op
        if self._tensor.is_leaf:
            return "AccumulateGrad"
        return node.op.backward_name(node) if node.shown is None else node.shown[0]

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """``(backward node, index of the output it belongs to)`` for each operand; ``(None, 0)`` without gradient."""
        if self._tensor.is_leaf:
            return ()
        node = self._tensor.op
        return tuple(
            (GradFn(x), 0 if x.is_leaf else x.index) if x.requires_grad else (None, 0)
            for x in (node.inputs if node.shown is None else node.shown[1])
            if is_floating(x.dtype)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and self._key() is other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> object:
        return self._tensor if self._tensor.is_leaf else self._tensor.op

    def __repr__(self) -> str:
        return f"<{self.name}>"


@frozen(eq=False)
class GradientCall:
    """A call of ``sg.gradients``: what was derived, by what and with which results (None: unconnected), the number of
    the node that the graph had next after it, and the user's line."""

    ys: tuple[Tensor, ...]
    xs: tuple[Tensor, ...]
    results: tuple[Tensor | None, ...]
    last: int
    source: SourceLine | None


_COMMUTATIVE = frozenset({"add", "multiply"})
_Operator = Callable[["Tensor", Any], "Tensor"]
_REFLECTED = {"subtract": "RsubBackward1", "divide": "MulBackward0"}  # of a number and a tensor


def show_as(y: Tensor, name: str, operands: Sequence[Tensor]) -> Tensor:
    """Show the op that made ``y``, the last of those of one function, as this backward node (see ``GradFn``)."""
    if all(y is not x for x in operands):
        y.op.shown = name, tuple(operands)
    return y


def _binary(name: str, reflected: bool = False) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Any:  # a tensor or NotImplemented
        if not _liftable(other):
            return NotImplemented
        function = getattr(FUNCTIONS, name)
        try:
            # As in PyTorch 3 * x is x * 3, also to grad_fn.
            if not reflected or (name in _COMMUTATIVE and is_weak(other)):
                return function(self, other)
            y = function(other, self)
        except Exception as error:
            end_at_user(error)
            raise
        return show_as(y, _REFLECTED[name], (self,)) if name in _REFLECTED and is_weak(other) else y

    return method


def _augmented(symbol: str) -> Callable[[Tensor, Any], Tensor]:
    """The operator ``symbol=``: Python takes the plain one, of a variable after a warning that it changes nothing."""

    def method(self: Tensor, other: Any) -> Any:  # NotImplemented
        if self.op.op.name == "variable":  # which is not named: a loop over many is warned of once
            warn(
                UpdateWarning,
                f"'{symbol}=' makes a new tensor and leaves the variable w as it is. To change it in a run declare the"
                f" op sg.assign(w, w {symbol} …) and fetch it, or let an optimizer do so,"
                f" sg.optim.SGD(lr).minimize(loss). For a new tensor write y = w {symbol} …",
            )
        return NotImplemented

    return method


def _operator(name: str, symbol: str) -> tuple[_Operator, _Operator, _Operator]:
    """The methods of an operator that is the function ``name``: of a tensor and another operand, of these the other way
    round, and the augmented one."""
    return _binary(name), _binary(name, reflected=True), _augmented(symbol)


def _method(name: str, home: str = "") -> Callable[..., Tensor]:
    """The method that is a function of the namespace, whose result is a new tensor; users find it in ``sg.<home>``."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        function = getattr(FUNCTIONS, name)
        try:
            y: Tensor = function(self, *args, **kwargs)
        except Exception as error:
            end_at_user(error, function)
            raise
        return y

    method.__name__ = name
    method.__doc__ = f"``sg.{home}{name}`` of this tensor."
    return method


class _Namesakes:
    """A stand-in in a class for methods that are the functions of their names; users find them in ``sg.<home>``."""

    def __init__(self, home: str) -> None:
        self.home = home

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, _method(name, self.home))


def _namesakes(home: str = "") -> Callable[..., Tensor]:
    """One method under each name that it is assigned to in a class: the function of that name."""
    return cast("Callable[..., Tensor]", _Namesakes(home))


def refuse_value(x: Tensor, what: str) -> NoReturn:
    """Say that ``what`` needs the value of ``x``.

    Raises:
        TypeError: always.
    """
    instead = f"; {hints.CONVERSIONS[what]}" if what in hints.CONVERSIONS else ""
    raise TypeError(f"{what} needs the value of {x.name!r}, which has none before a run: {hints.VALUE}{instead}")


def _valueless(what: str, _: type[T]) -> Callable[[Tensor], T]:
    """The method of a conversion, which would give a ``T`` if the tensor had a value."""

    def method(self: Tensor) -> T:
        refuse_value(self, what)

    return method


def _liftable(value: Any) -> bool:
    return isinstance(value, (Tensor, Node, np.ndarray, np.generic, bool, int, float, list, tuple, Dim))


class Tensor(metaclass=hints.Answering):
    """A value of the graph: a name for what a run computes, not an array.

    Its operators, its index and its methods declare further ops, with NumPy's broadcasting, promotion and indexing;
    ``==`` compares elementwise, and the hash is the identity. Its value comes from a session: ``bool(x)``,
    ``float(x)``, iteration and ``np.asarray(x)`` raise, and ``x[i] = v`` names ``sg.scatter``.

    Example:
        >>> x = sg.placeholder((2, 3), name="x")
        >>> y = (x - x.mean(axis=0)).T @ [1.0, -1.0]
        >>> y.shape, y.dtype
        ((3,), dtype('float32'))
        >>> x[0, ::2].shape, x[:, None, -1].shape
        ((2,), (2, 1))
    """

    __slots__ = {
        **dict.fromkeys(("__weakref__", "_hooks", "_requires", "index", "type")),
        "op": "The node that makes it.",
        "requires_grad": "True where gradients pass, as for variables and what is computed from them.",
        "retains_grad": "True where ``retain_grad`` was called.",
    }
    __array_priority__ = 1000

    def __init__(self, op: Node, index: int, type_: TensorType) -> None:
        """Tensors are made by the functions that declare ops."""
        self.op = op
        self.index = index
        self.type = type_
        self.requires_grad = False
        self.retains_grad = False
        self._requires = False  # set by requires_grad_, which makes the tensor a leaf
        self._hooks: Hooks | None = None  # few tensors have some

    __reduce_ex__ = refuse_copies(
        "a tensor",
        "it stands for a value that a session computes; keep values (sess.run, sess.save, module.state_dict(sess)), or"
        " the graph as text (str(graph), sg.parse)",
    )

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        copier: Callable[[Tensor], Tensor] | None = memo.get(COPIER)  # of the module that holds this tensor
        return self.__reduce_ex__(4) if copier is None else copier(self)

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Sizes: numbers, and ``Dim`` where the feeds of a call say how many.

        Example:
            >>> n = sg.dim("n")
            >>> sg.placeholder((n, 3)).shape, sg.placeholder((2, 3)).shape
            ((n, 3), (2, 3))
        """
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype of the elements.

        Example:
            >>> sg.constant(1.5).dtype == sg.float32
            True
        """
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes.

        Example:
            >>> sg.zeros((2, 3)).ndim
            2
        """
        return len(self.type.shape)

    @property
    def size(self) -> Size:
        """The number of elements.

        Example:
            >>> sg.zeros((2, 3)).size
            6
        """
        return self.type.size

    @property
    def graph(self) -> Graph:
        """The graph that it is declared in."""
        return self.op.graph

    @property
    def name(self) -> str:
        """The name of its op; ``qr:1`` is that of an op's second result.

        Example:
            >>> x = sg.placeholder((), name="x")
            >>> x.name, (x * 2).name, (x * 3).name
            ('x', 'multiply', 'multiply_1')
        """
        return self.op.name if self.index == 0 else f"{self.op.name}:{self.index}"

    @property
    def source(self) -> SourceLine | None:
        """The user's line that declared it."""
        return self.op.source

    @property
    def original(self) -> Tensor:
        """The tensor whose value this one is when it is computed again, else the tensor itself."""
        return self if self.op.original is None else self.op.original.outputs[self.index]

    @property
    def is_leaf(self) -> bool:
        """True without ``requires_grad``, as in PyTorch, and for what a gradient ends at.

        Example:
            >>> w = sg.Variable(1.0)
            >>> w.is_leaf, (w * 2).is_leaf, sg.constant(1.0).is_leaf
            (True, False, True)
        """
        return not self.requires_grad or self._requires or not self.op.inputs

    @property
    def grad_fn(self) -> GradFn | None:
        """The backward node, under PyTorch's name; None for a leaf.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> y = sg.sum(w * 3)
            >>> y.grad_fn, y.grad_fn.next_functions
            (<SumBackward0>, ((<MulBackward0>, 0),))
        """
        return None if self.is_leaf else GradFn(self)

    def __repr__(self) -> str:
        return f"<{'variable' if self.op.op.name == 'variable' else 'tensor'} {self.name!r} {self.type}>"

    # -- gradients ----------------------------------------------------------------------------------------------

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for this leaf's gradient (or stop asking). Ops declared from now on see it.

        Raises:
            GraphError: the tensor is not floating, or it is no leaf and shall stop requiring its gradient.

        Example:
            >>> w = sg.Variable(3.0).requires_grad_(False)
            >>> (w * 2).requires_grad
            False
        """
        if requires_grad and not is_floating(self.dtype):
            raise GraphError(
                f"only floating-point tensors can require gradients: {self.name!r} is {self.dtype.name}",
                source=self.source,
            )
        if not self.is_leaf:
            if not requires_grad:
                raise GraphError(f"{self.name!r} is no leaf: use detach() to cut its gradient", source=self.source)
            return self
        if self.requires_grad and not requires_grad:
            note_change(self, FROZEN)
        elif requires_grad:
            self.op.graph.unread.pop((self, FROZEN), None)
        self.requires_grad = self._requires = requires_grad
        self.graph.touch()
        return self

    def retain_grad(self) -> None:
        """Let this tensor's gradient, after all hooks, add up in ``sess.grad``, as for leaves.

        It adds up in backwards of tapes that begin after this, and in each run of ``sg.gradients`` or
        ``opt.minimize`` that passes the tensor and was declared after this. ``sess.zero_grad()`` forgets what has
        added up.

        Raises:
            GradientError: the tensor does not require a gradient, or nobody could read it: there is one in each turn of
                a loop, and one of a branch if it runs.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> y = w * 3
            >>> y.retain_grad()
            >>> sess = sg.Session()
            >>> with sess.forward(loss := sg.sum(y**2)) as tape:
            ...     tape.backward(loss)
            >>> sess.grad(y), sess.grad(w)
            (array([ 6., 12.], dtype=float32), array([18., 36.], dtype=float32))
        """
        from staticgrad.base.errors import GradientError

        if not self.requires_grad:
            raise GradientError(f"can't retain_grad on {self.name!r}: it does not require grad", source=self.source)
        if not self.graph.keeps_gradients:
            raise GradientError(
                f"can't retain_grad on {self.name!r}: it belongs to the body of a loop or a branch, whose gradients"
                " nobody can read after a backward; register a hook on it, or make it a result of the body",
                source=self.source,
            )
        if not self.is_leaf and not self.retains_grad:
            self.retains_grad = True
            self.graph.touch()

    def register_hook(self, hook: Hook) -> HookHandle:
        """Call ``hook(grad)`` with the symbolic gradient whenever one is derived through this tensor.

        What it returns replaces the gradient, a float of another width in the tensor's dtype; None leaves it. Hooks
        run in the order of registration.

        Raises:
            GraphError: the hook is no function.
            GradientError: the tensor does not require a gradient.

        Example:
            >>> w = sg.Variable([3.0, -4.0])
            >>> handle = w.register_hook(lambda grad: sg.clip(grad, -1.0, 1.0))
            >>> sg.Session().run(sg.gradients(sg.sum(w**2), [w]))
            [array([ 1., -1.], dtype=float32)]
            >>> handle.remove()
            >>> sg.Session().run(sg.gradients(sg.sum(w**2), [w]))
            [array([ 6., -8.], dtype=float32)]
        """
        return add_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], object]) -> HookHandle:
        """Let every backward of a tape that adds to the gradient of this leaf do after it what ``hook(leaf)`` declares.

        The function is called now, once; what it declares that has an effect (assigns, optimizer steps, prints, calls)
        becomes part of those backwards, in the order of registration. There ``sg.accumulated_grad(leaf)``, which
        ``optimizer.step([leaf])`` reads as well, is the sum with what this backward has added.

        Raises:
            GraphError: the hook is no function, or it reads the accumulated gradient of another tensor, or one that was
                declared before it.
            GradientError: the tensor is no leaf, or it does not require a gradient.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> opt = sg.optim.SGD(lr=0.25)
            >>> handle = w.register_post_accumulate_grad_hook(lambda w: opt.step([w]))
            >>> loss = sg.sum(w**2)
            >>> sess = sg.Session()
            >>> with sess.forward(loss) as tape:
            ...     tape.backward(loss)
            >>> sess.get(w)
            array([0.5, 1. ], dtype=float32)
        """
        return add_accumulation_hook(self, hook, writable(self.graph))

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The functions that its gradient goes through, in order."""
        return () if self._hooks is None else tuple(self._hooks.through.values())

    @property
    def accumulation_hooks(self) -> tuple[AccumulationHook, ...]:
        """The hooks that run after the gradient of this tensor was accumulated, in order."""
        return () if self._hooks is None else tuple(self._hooks.after.values())

    def detach(self) -> Tensor:
        """The same value, through which no gradient flows.

        Example:
            >>> x = sg.Variable(3.0)
            >>> y = x * x.detach()
            >>> sg.Session().run(sg.gradients(y, [x]))
            [array(3., dtype=float32)]
        """
        return FUNCTIONS.stop_gradient(self)

    # -- what it is not -----------------------------------------------------------------------------------------

    __bool__ = _valueless("bool()", bool)
    __float__ = _valueless("float()", float)
    __int__ = _valueless("int()", int)
    __index__ = _valueless("an index", int)

    def __iter__(self) -> Iterator[Tensor]:
        refuse_value(self, "iteration")

    def __len__(self) -> int:
        if not self.shape or not isinstance(self.shape[0], int):
            refuse_value(self, "len()")
        return self.shape[0]

    def __format__(self, spec: str) -> str:
        if spec:
            refuse_value(self, "formatting")
        return str(self)

    if not TYPE_CHECKING:  # for type checkers a tensor is nothing that an array's operators take: array * x is a tensor

        def __array__(self, *_: object, **__: object) -> NoReturn:
            refuse_value(self, "np.asarray()")

    @boundary
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return numpy_calls.of_ufunc(self, ufunc, method, inputs, options)

    @boundary
    def __array_function__(self, function: Any, types: object, arguments: Any, options: dict[str, Any]) -> Any:
        return numpy_calls.of_function(self, function, arguments, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """``sg.array_api``, for libraries that are written for the array API standard."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise GraphError(f"array API: expected a version from 2021.12 to 2024.12, actual {api_version!r}")
        return _provided["namespace"]()

    @property
    def device(self) -> str:
        """The place of values, ``"cpu"``, for which the array API standard asks."""
        return "cpu"

    def __contains__(self, _: object) -> bool:
        refuse_value(self, "in")

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise TypeError("tensors are values and can't be assigned to: use sg.scatter(x, index, updates)")

    # -- operators ----------------------------------------------------------------------------------------------

    __hash__ = object.__hash__

    @boundary
    def __getitem__(self, index: Any) -> Tensor:
        return FUNCTIONS.getitem(self, index)

    @property
    @boundary
    def T(self) -> Tensor:
        """The axes in reverse order.

        Example:
            >>> sg.zeros((2, 3)).T.shape
            (3, 2)
        """
        return FUNCTIONS.permute_dims(self, tuple(reversed(range(self.ndim))))

    @property
    @boundary
    def mT(self) -> Tensor:
        """The last two axes swapped, which is each matrix of a batch transposed. A tensor of fewer axes has no ``mT``.

        Example:
            >>> sg.zeros((8, 2, 3)).mT.shape
            (8, 3, 2)
        """
        if self.ndim < 2:
            raise AbsentError(f"mT: expected at least two axes, actual {self.name!r} {self.type}")
        return FUNCTIONS.matrix_transpose(self)

    @boundary
    def reshape(self, *shape: Any) -> Tensor:
        """``sg.reshape``; sizes one by one or as one sequence, one of them may be -1.

        Example:
            >>> x = sg.zeros((2, 3, 4))
            >>> x.reshape(6, 4).shape, x.reshape((2, -1)).shape
            ((6, 4), (2, 12))
        """
        return FUNCTIONS.reshape(self, shape[0] if len(shape) == 1 else shape)

    @boundary
    def astype(self, dtype: DTypeLike) -> Tensor:
        """``sg.astype``.

        Example:
            >>> sg.constant([1.5, 2.5]).astype(sg.int32).dtype
            dtype('int32')
        """
        return FUNCTIONS.astype(self, dtype)

    __add__, __radd__, __iadd__ = _operator("add", "+")
    __sub__, __rsub__, __isub__ = _operator("subtract", "-")
    __mul__, __rmul__, __imul__ = _operator("multiply", "*")
    __truediv__, __rtruediv__, __itruediv__ = _operator("divide", "/")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operator("floor_divide", "//")
    __mod__, __rmod__, __imod__ = _operator("remainder", "%")
    __pow__, __rpow__, __ipow__ = _operator("pow", "**")
    __matmul__, __rmatmul__, __imatmul__ = _operator("matmul", "@")
    __and__, __rand__, __iand__ = _operator("bitwise_and", "&")
    __or__, __ror__, __ior__ = _operator("bitwise_or", "|")
    __xor__, __rxor__, __ixor__ = _operator("bitwise_xor", "^")
    __lshift__, __rlshift__, __ilshift__ = _operator("bitwise_left_shift", "<<")
    __rshift__, __rrshift__, __irshift__ = _operator("bitwise_right_shift", ">>")
    # Tensors are compared element by element, in the graph, though object's comparisons give a bool.
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    __neg__ = _method("negative")
    __pos__ = _method("positive")
    __abs__ = _method("abs")
    __invert__ = _method("bitwise_invert")
    sum = mean = max = min = prod = var = std = any = all = argmax = argmin = count_nonzero = logsumexp = _namesakes()
    abs = acos = acosh = asin = asinh = atan = atanh = ceil = cos = cosh = digamma = erf = erfc = erfinv = _namesakes()
    exp = exp2 = expm1 = floor = isfinite = isinf = isnan = lgamma = log = log10 = log1p = log2 = _namesakes()
    reciprocal = round = rsqrt = sign = sin = sinh = sqrt = square = tan = tanh = trunc = _namesakes()
    clip = matmul = maximum = minimum = pow = _namesakes()
    argsort = cumulative_prod = cumulative_sum = broadcast_to = expand_dims = flatten = flip = moveaxis = _namesakes()
    permute_dims = repeat = roll = squeeze = swapaxes = take = take_along_axis = tile = tril = triu = _namesakes()
    log_softmax = relu = sigmoid = softmax = _namesakes("nn.")

    # NumPy's spelling, where a function here has another name or other arguments

    copy = _method("identity")

    transpose = numpy_methods.transpose
    sort = numpy_methods.sort
    ravel = numpy_methods.ravel
    cumsum = numpy_methods.cumsum
    cumprod = numpy_methods.cumprod
    dot = numpy_methods.dot
    split = numpy_methods.split
    topk = numpy_methods.topk
    diagonal = numpy_methods.diagonal
    trace = numpy_methods.trace


hints.answer(Node, ("before", "blocked", "checkpoint", "control", "epoch", "module", "original", "part", "primal",
                    "serial", "shown", "source", "value_inputs"))  # fmt: skip
hints.answer(Tensor, ("accumulation_hooks", "hooks", "index", "original", "source", "type"))


# -- the graph ----------------------------------------------------------------------------------------------------


class GraphEntry(NamedTuple):
    """Fetches and feeds that are compiled under a name: a nest of tensors and ops, and shapes by tensor. They are the
    arguments of ``sess.compile``.

    Example:
        >>> x = sg.placeholder((None,), name="x")
        >>> graph = x.graph
        >>> sg.save_graph("doubled.sgt", entries={"doubled": (x * 2, [x])})
        >>> loaded = sg.load_graph("doubled.sgt")
        >>> double = sg.Session(loaded).compile(*loaded.entries["doubled"])
        >>> double([1.0, 2.0])
        array([2., 4.], dtype=float32)
    """

    fetches: Any
    feeds: Mapping[Tensor, Shape]


class Graph(metaclass=hints.Answering):
    """Nodes in SSA order. ``with graph:`` makes it the current one of this thread, into which ops are declared.

    Outside of any such block ops go into the thread's default graph. ``str(graph)`` is a text that ``sg.parse`` reads.

    Example:
        >>> with sg.Graph() as graph:
        ...     x = sg.placeholder((2,))
        ...     y = x * 10
        >>> sg.Session(graph).run(y, {x: [1.0, 2.0]})
        array([10., 20.], dtype=float32)
    """

    __reduce_ex__ = refuse_copies(
        "a graph", "sg.save_graph(path, graph) writes a file, of which sg.load_graph(path) makes an equal one"
    )
    keeps_gradients = True  # whether the gradients that its tensors retain can be read

    def __init__(self) -> None:
        """Make an empty graph."""
        self.nodes: list[Node] = []
        self.version = 0  # grows with every declaration, hook and change of what requires a gradient
        self.finalized = False
        self.hands_over = False  # nothing but one compilation has it, whose next graph may take over its nodes
        self.random_ops = 0
        self._variables: dict[str, Tensor] = {}  # whose names stay
        self.unsettled: dict[Node, Unnamed] = {}  # variables whose names are worked out when asked for
        self.named: tuple[int, dict[str, Tensor]] | None = None  # what was worked out last, after how many changes
        self.origins: dict[str, Origin] = {}  # of variables whose names follow the order of declaration
        self.hook_calls: list[HookCall] = []
        # What optimizers declare once for all their updates: learning rates that follow the runs, and their count. A
        # backward in which hooks update declares it again, once: it is of that run, not of the forward's.
        self.shared_by_updates: set[Node] = set()
        self.calls: list[Call] = []  # of modules
        self.gradient_calls: list[GradientCall] = []
        # What of a tensor changed after gradients were declared and no derivation has read since, with the number of
        # the node that was next then.
        self.unread: dict[tuple[Tensor, str], int] = {}
        self.programs = 0  # how many sessions have begun to make
        self.roots: dict[object, tuple[Root, int]] = {}  # the latest of each kind, and how many programs there were
        self.repeated: list[Pair] = []  # of which the second may be the first once more, until a session looks at them
        self.looked_up: weakref.WeakSet[Lookup] = weakref.WeakSet()  # by which sessions know a program at once
        self.entries: dict[str, GraphEntry] = {}  #: what of it is compiled under which name, as a file said
        self.searches: dict[object, Any] = {}  # the programs of ``sg.minimize`` over losses of this graph
        self._names: dict[str, int] = {}
        self._lifted: dict[int, tuple[object, Tensor]] = {}
        self._lock = reentrant_lock()

    def __enter__(self) -> Graph:
        _current.open.append(writable(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.open.pop()

    @property
    def variables(self) -> dict[str, Tensor]:
        """The variables by name, in order of declaration. A loop over this dict gives names, ``.values()`` the
        variables. Names that users have not given follow the modules that hold the variables, until they are settled.

        Example:
            >>> w, b = sg.Variable([1.0, 2.0], name="w"), sg.Variable(0.0, name="b")
            >>> list(sg.get_default_graph().variables)
            ['w', 'b']
        """
        if not self.unsettled:
            return self._variables
        found: dict[str, Tensor] = _provided["names"](self)
        return found

    def settle_names(self) -> None:
        """Let the names that the variables have now be theirs for good, since something keeps one of them."""
        if self.unsettled:
            _provided["settle"](self)

    def touch(self) -> int:
        self.version += 1
        return self.version

    def holds(self, item: Tensor | Node) -> bool:
        """True if a tensor or node may be used in this graph."""
        return item.graph is self

    def adopt(self, x: Tensor, what: str) -> Tensor:
        """The tensor by which an op of this graph reads ``x``: itself (the body of a loop has its own).

        Raises:
            GraphError: it belongs to another graph.
        """
        if not self.holds(x):
            raise GraphError(f"{what}: operand {x.graph.whereabouts(x, 'the one it is used in')}")
        return x

    def whereabouts(self, item: Tensor | Node, other: str) -> str:
        """For messages: the name of ``item``, which this graph holds, and why ``other`` cannot use it."""
        return f"{item.name!r} belongs to another graph than {other}"

    def again_elsewhere(self, item: Tensor | Node) -> str:
        """For messages of a session of this graph: what to do if ``item`` is of another graph because the cell that
        declares it ran again; "" where it did not."""
        node = item.op if isinstance(item, Tensor) else item
        alike = (other for other in self.nodes if other.op is node.op and other.name == node.name)
        what = next((text for other in alike if (text := ran_before(other.source, node.source))), "")
        instead = "where a cell has declared again, make a new session, sg.Session(g), and compile again"
        return f"\n  {what}, in the session's graph: {instead}" if what else ""

    def why_final(self, operands: Sequence[Tensor]) -> str:
        """For messages: why no op of ``operands`` can be added to this graph, which is final."""
        return "the graph is finalized, no op can be added"

    def check_readable(self, x: Tensor) -> None:
        """Refuse a tensor of this graph, which is final, if nothing that is declared from now on can read it: that of
        a body.

        Raises:
            GraphError: it is one of a body.
        """

    def outermost(self, x: Tensor) -> Tensor:
        """The tensor that is read as ``x`` here: itself, or what a body captured under this parameter, however far out
        it is declared."""
        return x

    def take_place(self) -> int:
        """The number of a new random op."""
        self.random_ops += 1
        return self.random_ops - 1

    def loop_indices(self) -> tuple[Tensor, ...]:
        """The numbers of the turns of the loops in whose bodies this graph is, outermost first."""
        return ()

    def finalize(self) -> None:
        """Refuse every further op: building nodes inside a loop is found at once.

        Example:
            >>> graph = sg.get_default_graph()
            >>> x = sg.constant(1.0)
            >>> graph.finalize()
            >>> x * 2
            Traceback (most recent call last):
                ...
            staticgrad.errors.GraphError: constant: the graph is finalized, no op can be added...
        """
        self.finalized = True

    def unique_name(self, name: str) -> str:
        """The name, or the name with ``_1``, ``_2``, … where it is taken."""
        if name not in self._names:
            self._names[name] = 0
            return name
        while True:
            self._names[name] += 1
            candidate = f"{name}_{self._names[name]}"
            if candidate not in self._names:
                self._names[candidate] = 0
                return candidate

    def add(
        self,
        op: Op,
        inputs: Sequence[Tensor] = (),
        attrs: Any = NO_ATTRIBUTES,
        *,
        name: str | None = None,
        types: tuple[TensorType, ...] | None = None,
        control: Sequence[Node] = (),
    ) -> Node:
        """Declare an op. Its types follow from the op's rule unless they are handed in.

        Raises:
            GraphError: the op's rule refuses the operands, they belong to another graph, or the graph is final.
        """
        graph = writable(self)
        if graph is not self:
            return graph.add(op, inputs, attrs, name=name, types=types, control=control)
        if self.finalized:
            raise GraphError(f"{op.name}: {self.why_final(inputs)}")
        inputs = tuple([x if x.op.graph is self else self.adopt(x, op.name) for x in inputs])
        if attrs is not NO_ATTRIBUTES:
            attrs = with_python_integers(attrs)
        if types is None:
            types = result_types(op.infer, attrs, [x.type for x in inputs])
        with self._lock:
            blocked = not scope.grad_enabled
            node = Node(
                self,
                op,
                inputs,
                attrs,
                types,
                self.unique_name(name or op.name),
                (*control, *scope.control),
                user_source(),
                blocked,
            )
            node.checkpoint = scope.checkpoint
            node.module, node.primal = scope.module, scope.primal
            if not blocked and op.differentiable and True in [x.requires_grad for x in inputs]:
                for y in node.outputs:
                    y.requires_grad = is_floating(y.dtype)
            self.nodes.append(node)
            self.version += 1
        return node

    def clone(self, node: Node, inputs: Sequence[Tensor], control: Sequence[Node] = ()) -> Node:
        """Copy a node of another graph into this one, over new operands; the compiler's way to rebuild a graph. A node
        of a graph that ``hands_over`` moves into this one, unless its types change."""
        for x, y in zip(inputs, node.inputs, strict=True):
            if x is not y and x.type is not y.type and x.type != y.type:
                types = result_types(node.op.infer, node.attrs, (x.type for x in inputs))
                break
        else:
            if node.graph.hands_over and node.graph is not self:
                node._name = self._name_like(node)
                node.graph, node.serial = self, len(self.nodes)
                node.inputs, node.control = tuple(inputs), tuple(control)
                self.nodes.append(node)
                return node
            types = tuple([y.type for y in node.outputs])
        name = self._name_like(node)
        new = Node(self, node.op, tuple(inputs), node.attrs, types, name, tuple(control), node.source, node.blocked)
        new.epoch, new.part = node.epoch, node.part
        self.nodes.append(new)
        return new

    def _name_like(self, node: Node) -> str:
        """The name of a node of another graph, with another number where it is taken."""
        return self.unique_name(node.name if node.name not in self._names else _unnumbered(node.name))

    def repeat(self, node: Node, inputs: Sequence[Tensor], control: Sequence[Node], epoch: int) -> Node:
        """Declare that ``node`` is computed again, from ``inputs`` of equal values, after the nodes ``control``."""
        with self._lock:
            new = self.clone(node, inputs, (*node.control, *control))
            new.epoch, new.original = epoch, node
            for y, again in zip(node.outputs, new.outputs, strict=True):
                again.requires_grad = y.requires_grad
            self.version += 1
        return new

    def __str__(self) -> str:
        return self.text()

    def text(self, full: bool = False) -> str:
        """A line for each op, which ``sg.parse`` reads back; the grammar is in ``staticgrad.graph.text``.

        Args:
            full: print arrays of more than 4,096 elements too. Otherwise, and in ``str(graph)``, such a constant or
                first value of a variable is elided: its dtype, shape and digest stand there, and ``sg.parse`` refuses
                the text.

        Example:
            >>> g = sg.Graph()
            >>> with g:
            ...     x = sg.constant([1.0, 2.0], name="x")
            >>> print(g.text())
            %x = constant() Constant(data=[1.0, 2.0]) : float32[2]
        """
        found: str = _provided["text"](self, full)
        return found

    def __repr__(self) -> str:
        return f"<graph of {len(self.nodes)} ops, {len(self._variables) + len(self.unsettled)} variables>"

    def _repr_html_(self) -> str:
        found: str = _provided["html"](self)
        return found

    def to_networkx(self) -> Any:
        """A ``networkx.MultiDiGraph`` of the nodes, an edge for each operand; ops as the attribute ``op``.

        Example:
            >>> import networkx
            >>> x = sg.constant([1.0, 2.0])
            >>> y = sg.exp(x) * x
            >>> view = y.graph.to_networkx()
            >>> [data["op"] for _, data in view.nodes(data=True)]
            ['constant', 'exp', 'multiply']
            >>> networkx.is_directed_acyclic_graph(view)
            True
        """
        import networkx as nx

        self.settle_names()
        view = nx.MultiDiGraph()
        for node in self.nodes:
            view.add_node(node.name, op=node.op.name, outputs=[str(y.type) for y in node.outputs])
            for position, x in enumerate(node.inputs):
                view.add_edge(x.op.name, node.name, operand=position, output=x.index)
            for before in node.control:
                view.add_edge(before.name, node.name, operand=None, output=None)
        return view


hints.answer(
    Graph,
    (
        "add", "adopt", "again_elsewhere", "calls", "check_readable", "clone", "gradient_calls", "hands_over", "holds",
        "hook_calls", "keeps_gradients", "looked_up", "loop_indices", "named", "origins", "outermost", "programs",
        "random_ops", "repeat", "repeated", "roots", "searches", "settle_names", "shared_by_updates", "take_place",
        "touch", "unique_name", "unread", "unsettled", "version", "whereabouts", "why_final",
    ),
)  # fmt: skip


class Derivation(Graph):
    """A private continuation of a graph: it begins with the nodes of ``base`` and takes what is declared while it is
    current, also by functions of the user that know tensors of ``base`` alone (hooks). ``base`` stays as it is."""

    def __init__(self, base: Graph) -> None:
        super().__init__()
        self.base = base
        base.settle_names()
        with base._lock:
            self.nodes = list(base.nodes)
            self._variables = dict(base.variables)
            self.hook_calls = list(base.hook_calls)
            self.random_ops = base.random_ops
            self._names = dict(base._names)
            self._lifted = dict(base._lifted)
        self.first = len(self.nodes)  # nodes from here on are this graph's own
        self.replaced: list[tuple[Any, str, object]] = []  # variables in whose place in a module a tensor was put

    def holds(self, item: Tensor | Node) -> bool:
        node = item.op if isinstance(item, Tensor) else item
        return node.graph is self or (node.serial < self.first and self.nodes[node.serial] is node)

    def outermost(self, x: Tensor) -> Tensor:
        return self.base.outermost(x)

    def continues(self, graph: Graph) -> bool:
        """True if what is declared for ``graph`` goes here."""
        waiting, known = [*self.around()], set()
        while waiting:
            other = waiting.pop()
            if other is graph:
                return True
            if isinstance(other, Derivation) and other not in known:
                known.add(other)
                waiting += other.around()
        return False

    def around(self) -> tuple[Graph, ...]:
        """The graphs whose tensors are read here as they are, or by a parameter."""
        return (self.base,)


class Lookup(Protocol):
    """A cache of what is known of calls, which can be told to forget it."""

    def clear(self) -> None: ...

    def __hash__(self) -> int: ...


class Computation(Protocol):
    """A graph with what is handed in and out: the compiler's regions, and bodies of loops, are of this form."""

    @property
    def graph(self) -> Graph: ...
    @property
    def feeds(self) -> tuple[Tensor, ...]: ...
    @property
    def fetches(self) -> tuple[Tensor, ...]: ...
    @property
    def effects(self) -> tuple[Node, ...]: ...


# -- the current graph of this thread ----------------------------------------------------------------------------


class _CurrentGraphs(threading.local):
    """The graphs into which a thread declares: those of open blocks, and its own."""

    def __init__(self) -> None:
        self.open: list[Graph] = []
        self.default = Graph()


_current = _CurrentGraphs()


def writable(graph: Graph) -> Graph:
    """The graph into which a declaration for ``graph`` goes: the current derivation of it, if there is one."""
    current = _current.open[-1] if _current.open else None
    return current if isinstance(current, Derivation) and current.continues(graph) else graph


@contextmanager
def around(graph: Graph) -> Iterator[Graph]:
    """Declare into ``graph`` itself, also where a derivation of it is current."""
    _current.open.append(graph)
    try:
        yield graph
    finally:
        _current.open.pop()


def get_default_graph() -> Graph:
    """The graph that ops are declared into now: that of the innermost ``with graph:``, else the thread's own.

    Example:
        >>> x = sg.constant(1.0)
        >>> x.graph is sg.get_default_graph()
        True
        >>> with sg.Graph() as graph:
        ...     sg.get_default_graph() is graph
        True
    """
    return _current.open[-1] if _current.open else _current.default


def reset_default_graph() -> None:
    """Start a new implicit graph for this thread.

    Example:
        >>> x = sg.constant(1.0)
        >>> sg.reset_default_graph()
        >>> x.graph is sg.get_default_graph()
        False
    """
    _current.default = Graph()
