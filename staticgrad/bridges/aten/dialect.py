"""The dialect of ATen: how a program that ``torch.export`` gives is read.

A node is a call of a graph of ``torch.fx`` and is itself the variable of its result; where this is a tuple, calls of
``getitem`` take it apart. ``AtenCall.arguments`` binds it to the op's schema, which gives names (``x`` where it says
``self`` or ``input``), order and defaults; lists are tuples, and what only says where and how PyTorch keeps a tensor or
computes (``IGNORED``) is left out. There are two kinds of entries, each for all overloads of an op:

- ``direct``: a function here takes the arguments in the schema's order, after one of few preparations;
- ``converts``, ``entries``: a function takes those arguments of the schema that its parameters name; None stands for
  one that an overload does not have. Another argument has to have its default value. A first parameter ``at`` is the
  call: the dtype and shape that PyTorch declares, and the scope.

PyTorch's rule of promotion is ``AtenCall.common``: numbers give way to tensors without dimensions, and these to others,
unless their kind (bool, integer, float) is higher.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import fx

from staticgrad.base.errors import GraphError, SourceLine
from staticgrad.bridges.arrays import as_tensor, cast
from staticgrad.bridges.importer import Converters, Dialect, RefusedError, SourceBody, SourceScope, SourceType
from staticgrad.bridges.torch import DTYPES, TORCH
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

BOOL, INT64 = np.dtype(bool), np.dtype(np.int64)
CONVERTERS = Converters()
F = TypeVar("F", bound=Callable[..., Any])
IGNORED = frozenset({
    "dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit", "sparse", "sparse_grad",
    "cudnn_enabled", "cudnn_enable", "benchmark", "deterministic", "allow_tf32", "generator", "half_to_float",
    "compute_mode", "output_mask", "check_errors",
})  # fmt: skip
REDUCTIONS = ("none", "mean", "sum")  # of losses, by PyTorch's numbers
COMPARISONS = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_, torch.sym_not,
)  # fmt: skip
# Sizes are computed by Python's operators, of numbers and of open sizes alike.
ON_SIZES = (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.truediv,
    operator.pow, math.floor, math.ceil, math.trunc, torch.sym_int, torch.sym_max, torch.sym_min, torch.sym_float,
    *COMPARISONS,
)  # fmt: skip
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def dtype_of_torch(dtype: torch.dtype) -> np.dtype:
    """The dtype here.

    Raises:
        RefusedError: there is none, as of complex numbers.
    """
    if dtype not in DTYPES:
        raise RefusedError(f"{dtype} is not supported")
    return DTYPES[dtype]


class AtenCall:
    """A call of an op, as its converter sees it.

    Attributes:
        scope: the values of variables.
        node: the call.
    """

    def __init__(self, scope: SourceScope, node: fx.Node) -> None:
        self.scope, self.node = scope, node

    @property
    def op(self) -> str:
        """The name of the op, without its overload."""
        return str(op_key(self.node.target))

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the result, or of the first of several."""
        return dtype_of_torch(self._meta.dtype)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the result that PyTorch declares; None for open sizes."""
        return shape_of(self._meta)

    @property
    def _meta(self) -> Any:
        meta = self.node.meta["val"]
        return meta[0] if isinstance(meta, (list, tuple)) else meta

    def meta(self, number: int) -> Any:
        """PyTorch's description of an operand: its strides, its storage."""
        operand = self.node.args[number]
        assert isinstance(operand, fx.Node)
        return operand.meta["val"]

    def value(self, argument: Any) -> Any:
        """The value of an argument: constants that are known as tensors, lists as tuples."""
        if isinstance(argument, fx.Node):
            value = self.scope.value(argument)
            return self.scope.tensor(argument) if isinstance(value, np.ndarray) else value
        if isinstance(argument, (list, tuple)):
            return tuple(self.value(each) for each in argument)
        if isinstance(argument, slice):
            return slice(*map(self.value, (argument.start, argument.stop, argument.step)))
        return argument

    def arguments(self) -> dict[str, tuple[Any, bool]]:
        """The arguments by their names, in the schema's order, and of each whether it has its default value."""
        found = {}
        for place, argument in enumerate(self.node.target._schema.arguments):
            default = argument.default_value if argument.has_default_value() else None
            given = (
                self.node.args[place] if place < len(self.node.args) else self.node.kwargs.get(argument.name, default)
            )
            value = self.value(given)
            if argument.name == "reduction" and isinstance(value, int):
                value = REDUCTIONS[value]
            if argument.name not in IGNORED:
                name = "x" if argument.name in ("self", "input") else argument.name
                found[name] = value, argument.has_default_value() and given == default
        return found

    def known(self, number: int, what: str) -> Any:
        """The value of an operand that is known when the program is converted; ``what`` depends on it.

        Raises:
            RefusedError: only a run knows it.
        """
        argument = self.node.args[number]
        return self.scope.known(argument, what) if isinstance(argument, fx.Node) else argument

    def is_known(self, number: int) -> bool:
        """True if an operand is an array that is known when the program is converted."""
        argument = self.node.args[number]
        return isinstance(argument, fx.Node) and isinstance(self.scope.value(argument), np.ndarray)

    def cast(self, x: Any) -> Any:
        """The operand in the dtype of the result; a number is weak and stays as it is."""
        return cast(x, self.dtype) if isinstance(x, Tensor) else x

    def common(self, *xs: Any) -> list[Any]:
        """The tensors in the dtype to which PyTorch promotes these operands; numbers stay as they are."""
        dtype = promoted(*xs)
        return [cast(x, dtype) if isinstance(x, Tensor) else x for x in xs]

    def tensor(self, x: Any) -> Tensor:
        """A number as a tensor of the dtype of the result."""
        return self.cast(x) if isinstance(x, Tensor) else as_tensor(np.asarray(x, self.dtype))


def promoted(*xs: Any) -> np.dtype:
    """The dtype to which PyTorch promotes tensors and numbers."""
    ranks: list[list[torch.dtype]] = [[], [], []]
    for x in xs:
        if isinstance(x, Tensor):
            ranks[0 if x.ndim else 1].append(TORCH[x.dtype])
        else:
            kind = torch.bool if isinstance(x, bool) else torch.int64 if isinstance(x, int) else torch.float32
            ranks[2].append(kind)
    result: torch.dtype | None = None
    for dtypes in ranks:
        for dtype in dtypes[1:]:
            dtypes[0] = torch.promote_types(dtypes[0], dtype)
        if dtypes and (result is None or _kind(dtypes[0]) > _kind(result)):
            result = dtypes[0]
    assert result is not None
    return dtype_of_torch(result)


def _kind(dtype: torch.dtype) -> int:
    return 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1


def shape_of(meta: Any) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in meta.shape)


def converts(*names: str) -> Callable[[F], F]:
    """A decorator: the converter of all overloads of the ops of these names, as the module's text says."""

    def enter(function: F) -> F:
        parameters = list(inspect.signature(function).parameters)
        takes_call = parameters[:1] == ["at"]
        wanted = parameters[takes_call:]

        @functools.wraps(function)
        def converter(scope: SourceScope, node: fx.Node) -> list[Any]:
            at = AtenCall(scope, node)
            given = at.arguments()
            for name, (value, is_default) in given.items():
                if name not in wanted and not is_default:
                    raise RefusedError(f"{name}={value} is not converted")
            values = [given[name][0] if name in given else None for name in wanted]
            return [function(at, *values) if takes_call else function(*values)]

        CONVERTERS.enter(*names)(converter)
        return function

    return enter


def entries(table: Mapping[str, Callable[..., Any]]) -> None:
    """Enter converters, each under the names in its key."""
    for names, function in table.items():
        converts(*names.split())(function)


def direct(prepare: Callable[..., Sequence[Any]], names: str) -> None:
    """Enter functions here that take the arguments of the schema in its order.

    Args:
        prepare: ``as_given``, ``in_result``, … : what is done with the operands before.
        names: of ops; after ``=`` the name of the function here, where it is another one.
    """
    for name, _, own in (entry.partition("=") for entry in names.split()):
        CONVERTERS.enter(name)(_direct(prepare, own or name))


def _direct(prepare: Callable[..., Sequence[Any]], name: str) -> Callable[[SourceScope, fx.Node], list[Any]]:
    def converter(scope: SourceScope, node: fx.Node) -> list[Any]:
        at = AtenCall(scope, node)
        return [getattr(o, name)(*prepare(at, *(value for value, _ in at.arguments().values())))]

    return converter


def as_given(at: AtenCall, *xs: Any) -> Sequence[Any]:
    return xs


def in_result(at: AtenCall, *xs: Any) -> Sequence[Any]:
    """The operands in the dtype of the result, the first one a tensor."""
    return [at.tensor(xs[0]), *(at.cast(x) for x in xs[1:])]


def in_common(at: AtenCall, *xs: Any) -> Sequence[Any]:
    """The operands in the dtype to which PyTorch promotes theirs."""
    return at.common(*xs)


def as_bools(at: AtenCall, *xs: Any) -> Sequence[Any]:
    return [as_bool(x) for x in xs]


def as_bool(x: Tensor) -> Tensor:
    return x if x.dtype == BOOL else x != 0


def op_key(target: Any) -> Any:
    """The key of an op in the table: its name without the overload, or the Python function itself."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        return name if namespace in ("aten", "prims") else f"{namespace}.{name}"
    return target.name() if isinstance(target, torch._ops.HigherOrderOperator) else target


class _Aten(Dialect):
    """A node and a variable is an ``fx.Node``."""

    system = "PyTorch"
    converters = CONVERTERS

    def name(self, node: fx.Node) -> str:
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            return str(target)
        key = op_key(target)
        return key if isinstance(key, str) else getattr(key, "__name__", str(key))

    def key(self, node: fx.Node) -> Any:
        return op_key(node.target)

    def operands(self, node: fx.Node) -> Sequence[Any]:
        return list(node.all_input_nodes)

    def results(self, node: fx.Node) -> Sequence[Any]:
        return [node]

    def constant(self, variable: Any) -> Any:
        return super().constant(variable) if isinstance(variable, fx.Node) else variable

    def bodies(self, node: fx.Node) -> Iterator[SourceBody]:
        return (body_of(part.graph) for part in parts_of(node))

    def declared(self, variable: fx.Node) -> SourceType | None:
        meta = variable.meta.get("val")
        return SourceType(dtype_of_torch(meta.dtype), shape_of(meta)) if isinstance(meta, torch.Tensor) else None

    def source(self, node: fx.Node) -> SourceLine | None:
        frames = [
            SourceLine(found["file"], int(found["line"]), found["function"])
            for found in _FRAME.finditer(node.meta.get("stack_trace") or "")
        ]
        own = [frame for frame in frames if _TORCH not in frame.file]
        return next(reversed(own or frames), None)


_TORCH = torch.__path__[0]
ATEN = _Aten()


class AtenScope(SourceScope):
    """The values of the nodes of a graph. A node whose dtype is not supported is refused like one without converter."""

    def __init__(self, values: dict[Any, Any]) -> None:
        super().__init__(ATEN, values)

    def _computed(self, node: Any) -> None:
        """All nodes are converted; constants are folded when programs are compiled."""


def parts_of(node: fx.Node) -> Iterator[fx.GraphModule]:
    """The graphs that a call is given, such as branches."""
    for argument in node.args:
        if isinstance(argument, fx.Node) and argument.op == "get_attr":
            part = getattr(node.graph.owning_module, str(argument.target))
            if isinstance(part, fx.GraphModule):
                yield part


def body_of(graph: fx.Graph) -> SourceBody:
    """The calls of a graph between its placeholders and its outputs."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in graph.nodes if node.op == "output")
    calls = [node for node in graph.nodes if node.op == "call_function"]
    given = output.args[0]
    return SourceBody(inputs, calls, list(given) if isinstance(given, (list, tuple)) else [given])


def _on_sizes(scope: SourceScope, node: fx.Node) -> list[Any]:
    """The result of an operator of Python's. A comparison that is only asserted, of sizes that are not known, is left
    to the checks of types."""
    given = AtenCall(scope, node).value(node.args)
    if all(isinstance(value, (int, float)) for value in given):
        return [node.target(*given)]
    if (
        all("assert" in str(user.target) or user.target in ON_SIZES for user in node.users)
        and node.target in COMPARISONS
    ):
        return [None]
    try:
        return [node.target(*given)]
    except (TypeError, GraphError) as error:
        raise RefusedError(f"of open sizes: {error}") from error


for _function in ON_SIZES:
    CONVERTERS.enter(_function)(_on_sizes)


@CONVERTERS.enter("with_effects")
def _with_effects(scope: SourceScope, node: fx.Node) -> list[Any]:
    """A check of a decomposition: what fails is NaN here, and no error."""
    token, op, *_ = node.args
    if op is not torch.ops.aten._linalg_check_errors.default:
        raise RefusedError(f"the effect {op} is not converted")
    return [[scope.value(token), None]]


@CONVERTERS.enter(operator.getitem)
def _getitem(scope: SourceScope, node: fx.Node) -> list[Any]:
    values, place = node.args
    value = scope.value(values)[place]
    if value is None and node.users:
        raise RefusedError(f"result {place} of {values} is not converted")
    return [value]
