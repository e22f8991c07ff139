"""Modules of PyTorch as modules here: ``staticgrad.torch.convert``.

A conversion declares the whole program once in a graph that is thrown away, with placeholders for what it reads, and
raises all that cannot be converted in one error. Then parameters and buffers become variables of the current graph, and
each call of the module declares the program there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind
from torch.utils import _pytree as pytree

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError
from staticgrad.base.types import Dim, dim, is_floating
from staticgrad.bridges.aten.dialect import ATEN, AtenScope, body_of, dtype_of_torch, shape_of
from staticgrad.bridges.aten.exported import decomposed, export, in_mode, state_of
from staticgrad.bridges.importer import Objection, RefusedError, SourceType
from staticgrad.bridges.torch import array_of, tensors_of
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.naming import Unmatched
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import control_dependencies
from staticgrad.nn.module import Module, StateSource
from staticgrad.ops.variables import Variable

WRITTEN = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


class AtenProgram:
    """An exported program whose nodes have all been declared once.

    Attributes:
        exported: the program of PyTorch's.
        written: names of the buffers that it gives new values.
    """

    def __init__(self, exported: ExportedProgram) -> None:
        self.exported = decomposed(exported)
        self.graph: fx.Graph = self.exported.graph
        self.body = body_of(self.graph)
        signature = self.exported.graph_signature
        self.inputs: list[tuple[fx.Node, InputSpec]] = list(zip(self.body.inputs, signature.input_specs, strict=True))
        self.outputs = list(zip(self.body.outputs, signature.output_specs, strict=True))
        self.constants = {
            name: array_of(value) for name, value in self.exported.constants.items() if isinstance(value, torch.Tensor)
        }
        self.written = [spec.target for _, spec in self.outputs if spec.kind in WRITTEN and spec.target is not None]
        changed = [spec.target for _, spec in self.outputs if spec.kind is OutputKind.USER_INPUT_MUTATION]
        if changed:
            raise RefusedError(f"PyTorch: the program writes to its input {changed[0]}, which is not converted")
        self._survey()

    def __deepcopy__(self, memo: dict[Any, Any]) -> AtenProgram:
        return self

    def _survey(self) -> None:
        """Declare everything in a graph of its own.

        Raises:
            RefusedError: there are nodes without a counterpart; it has all of them.
        """
        found: list[Objection] = []
        sizes: dict[str, Any] = {}
        with Graph():
            values = {node: self._stand_in(node, spec, sizes) for node, spec in self.inputs}
            scope = AtenScope(values)
            for node in self.body.nodes:
                found += _declared(scope, node, sizes)
        if found:
            raise ATEN.refusal(found)

    def _stand_in(self, node: fx.Node, spec: InputSpec, sizes: dict[str, Any]) -> Any:
        """The value of an input while all is declared once: a constant, an open size, or a placeholder of the type
        that PyTorch declares."""
        if spec.target in self.constants and spec.target not in self.written:
            return self.constants[spec.target]
        meta = node.meta.get("val")
        return _open(meta, sizes) if isinstance(meta, torch.SymInt) else _placeholder(meta, sizes)

    def declare(self, state: Mapping[str, Tensor], leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Tensor]]:
        """The outputs of the program, and the new values of buffers by their names.

        Args:
            state: the tensors of parameters and buffers.
            leaves: the inputs of a call, in order.
        """
        given = iter(leaves)
        values: dict[Any, Any] = {}
        for node, spec in self.inputs:
            if spec.kind is InputKind.USER_INPUT:
                values[node] = _checked(node, spec, next(given))
            elif spec.kind is InputKind.TOKEN:  # which orders effects
                values[node] = ()
            else:
                assert spec.target is not None
                values[node] = state[spec.target] if spec.target in state else self.constants[spec.target]
        scope = AtenScope(values)
        scope.walk(self.body)
        results: list[Any] = []
        new = {}
        for output, spec in self.outputs:
            value = scope.tensor(output) if isinstance(output, fx.Node) and _tensor(output) is not None else output
            value = scope.value(output) if isinstance(output, fx.Node) and _tensor(output) is None else value
            if spec.kind in WRITTEN and spec.target is not None:
                new[spec.target] = value
            elif spec.kind is not OutputKind.TOKEN:
                results.append(value)
        return results, new


def _tensor(node: fx.Node) -> Any:
    """PyTorch's description of a node's tensor; None if it gives none."""
    meta = node.meta.get("val")
    return meta if isinstance(meta, torch.Tensor) else None


def _placeholder(meta: Any, sizes: dict[str, Any]) -> Any:
    if not isinstance(meta, torch.Tensor):
        return meta
    shape = [size if isinstance(size, int) else _open(size, sizes) for size in meta.shape]
    return o.placeholder(tuple(shape), dtype_of_torch(meta.dtype))


def _open(size: Any, sizes: dict[str, Any]) -> Any:
    """An open size, the same one for each size that PyTorch writes in the same way."""
    return sizes.setdefault(str(size), dim(f"size{len(sizes)}"))


def _declared(scope: AtenScope, node: fx.Node, sizes: dict[str, Any]) -> list[Objection]:
    """Declare a node; what objections there are to it, and then its results are placeholders."""
    found = ATEN.objections([node])
    if not found:
        try:
            scope.declare_node(node)
            return []
        except RefusedError as error:
            found = [Objection(ATEN.name(node), error.reason, node, node)]
        except GraphError as error:
            found = [Objection(ATEN.name(node), error.message, node, node)]
    meta = node.meta.get("val")
    several = isinstance(meta, (list, tuple))
    try:
        stand_ins = [_placeholder(each, sizes) for each in (meta if several else [meta])]
    except RefusedError:  # of a dtype that there is not: what reads it cannot be declared either
        stand_ins = [None] * (len(meta) if several else 1)
    scope.values[node] = stand_ins if several else stand_ins[0]
    return found


def _checked(node: fx.Node, spec: InputSpec, leaf: Any) -> Any:
    """An input of a call, of the type for which the program was exported.

    Raises:
        GraphError: it is of another one.
    """
    name = spec.arg.name
    if isinstance(spec.arg, ConstantArgument):
        if leaf != spec.arg.value:
            raise GraphError(f"input {name}: expected {spec.arg.value!r}, for which was exported, actual {leaf!r}")
        return leaf
    meta = _tensor(node)
    if meta is None:
        return leaf
    declared = SourceType(dtype_of_torch(meta.dtype), shape_of(meta))
    if isinstance(leaf, torch.Tensor):
        leaf = array_of(leaf)
    x = leaf if isinstance(leaf, Tensor) else o.asarray(leaf, dtype=None if hasattr(leaf, "dtype") else declared.dtype)
    fixed = any(isinstance(size, Dim) and wanted is not None for size, wanted in zip(x.shape, declared.shape or ()))
    if fixed or not declared.fits(x):
        raise GraphError(
            f"input {name}: expected {declared}, for which the module was exported (dynamic_shapes= leaves sizes open),"
            f" actual {x.type}"
        )
    return x


class ModeSource:
    """The programs of a module by its mode; the second is exported when it is asked for."""

    def __init__(self, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> None:
        self.module, self.example = module, (args, kwargs, dynamic_shapes)
        whole = module if isinstance(module, ExportedProgram) else export(module, *self.example)
        self.training = bool(getattr(module, "training", True))
        self.state = state_of(whole)
        self.programs = {self.training: AtenProgram(whole)}

    def __deepcopy__(self, memo: dict[Any, Any]) -> ModeSource:
        return self

    def program(self, training: bool) -> AtenProgram:
        """The program in a mode.

        Raises:
            GraphError: what was converted was exported in the other one.
        """
        if training not in self.programs:
            if isinstance(self.module, ExportedProgram):
                raise GraphError(
                    "an exported program has one mode: convert the torch.nn.Module, or export and convert it once more"
                )
            with in_mode(self.module, training):
                self.programs[training] = AtenProgram(export(self.module, *self.example))
        return self.programs[training]


class ExportedModule(Module):
    """A module of PyTorch: what ``staticgrad.torch.convert`` gives.

    Calling it declares PyTorch's forward, with inputs in the nest of the example's, and gives a nest as PyTorch's; in
    training a run that computes the result also gives buffers, such as running statistics, their new values.
    ``train()`` and ``eval()`` export the other mode of a ``torch.nn.Module``, with the same variables.
    """

    def __init__(self, source: ModeSource) -> None:
        super().__init__()
        self._source = source
        self.training = source.training
        variables: dict[int, Tensor] = {}
        for name, tensor in source.state.items():
            if id(tensor) not in variables:
                variables[id(tensor)] = _variable(tensor)
            self._place(name.split("."), variables[id(tensor)])
        program = source.program(source.training)
        kept = [name for name in program.written if name not in source.state]
        self._kept = {
            name: _variable(program.exported.constants[name]) for name in kept
        }  # written, but not in the state_dict

    def _place(self, path: Sequence[str], variable: Tensor) -> None:
        holder: Module = self
        for part in path[:-1]:
            inner = vars(holder).get(part)
            if inner is None:
                inner = SubmoduleState()
                setattr(holder, part, inner)
            holder = inner
        setattr(holder, path[-1], variable)

    def train(self, mode: bool = True) -> Self:
        self._source.program(bool(mode))
        return super().train(mode)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        program = self._source.program(self.training)
        spec = program.exported.call_spec
        assert spec.in_spec is not None
        assert spec.out_spec is not None
        named = {name: kwargs[name] for name in _names(spec.in_spec) if name in kwargs}
        leaves, actual = pytree.tree_flatten((args, {**named, **kwargs}))
        if actual != spec.in_spec:
            raise GraphError(f"the module was exported for arguments {spec.in_spec}, actual {actual}")
        state = self._state() | self._kept
        read = {
            name: o.latest_value(variable) if name in program.written else variable for name, variable in state.items()
        }
        results, new = program.declare(read, leaves)
        if new:
            with control_dependencies([o.assign(state[name], value) for name, value in new.items()]):
                results = [o.identity(y) if isinstance(y, Tensor) else y for y in results]
        return pytree.tree_unflatten(results, spec.out_spec)

    @boundary
    def state_dict(self, sess: StateSource) -> dict[str, Any]:
        """The values that a session has for parameters and buffers, as tensors of PyTorch's, for its
        ``load_state_dict``."""
        values = super().state_dict(sess)
        return dict(zip(values, tensors_of(list(values.values()))))

    @boundary
    def load_state_dict(self, sess: StateSource, state_dict: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Set a session's values, of arrays or of tensors of PyTorch's."""
        arrays = {
            name: array_of(value) if isinstance(value, torch.Tensor) else value for name, value in state_dict.items()
        }
        return super().load_state_dict(sess, arrays, strict)

    def extra_repr(self) -> str:
        return f"of {type(self._source.module).__name__}"


class SubmoduleState(Module):
    """A module inside one of PyTorch's: it holds variables."""


def _variable(tensor: torch.Tensor) -> Tensor:
    """A variable with a tensor's value; a parameter is one that may be trained, also where it is frozen."""
    array = array_of(tensor)
    is_parameter = isinstance(tensor, torch.nn.Parameter) and is_floating(array.dtype)
    variable = Variable(array, dtype=array.dtype, trainable=is_parameter)
    return variable.requires_grad_(False) if is_parameter and not tensor.requires_grad else variable


def _names(spec: Any) -> Sequence[str]:
    """The names of keyword arguments in the order of the export."""
    return list(spec.child(1).context) if hasattr(spec, "child") else list(spec.children_specs[1].context)


@boundary
def convert(
    module_or_exported: torch.nn.Module | ExportedProgram,
    *example_args: Any,
    dynamic_shapes: Any = None,
    example_kwargs: Mapping[str, Any] | None = None,
) -> ExportedModule:
    """A module of PyTorch's as a module here.

    The forward is exported (``torch.export``) in the mode that the module has, and declared by ops of staticgrad;
    derivatives are staticgrad's. Parameters and buffers are variables of the current graph under the names of
    ``state_dict``, with the module's values; tied parameters are one variable.

    Args:
        module_or_exported: a ``torch.nn.Module``, or what ``torch.export.export`` gave.
        example_args: arguments of its forward, tensors of the shapes and dtypes with which it is to be called.
        dynamic_shapes: the sizes that calls may choose, as ``torch.export.export`` takes them; None: none.
        example_kwargs: keyword arguments of its forward.

    Raises:
        UnsupportedError: ops that are not supported, all of them with their counts and lines.
        GraphError: ``torch.export`` cannot export the module.
    """
    if isinstance(module_or_exported, ExportedProgram):
        if example_args or example_kwargs or dynamic_shapes is not None:
            raise GraphError("convert: an exported program takes no example arguments: it was exported with its own")
    elif not isinstance(module_or_exported, torch.nn.Module):
        raise GraphError(
            f"convert: expected a torch.nn.Module or an ExportedProgram, actual {type(module_or_exported).__name__}"
        )
    return ExportedModule(ModeSource(module_or_exported, example_args, example_kwargs or {}, dynamic_shapes))
