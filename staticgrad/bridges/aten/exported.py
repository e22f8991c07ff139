"""A module of PyTorch's as a program in the form that the converters read.

``torch.export`` gives the forward in the mode that the module has. Ops that have a converter stay whole; all others are
decomposed by PyTorch's own rules into core ATen. What is written in place becomes values: new values of buffers are
results of the program. Parts under ``torch.no_grad`` lose their mark when PyTorch does that, so each of their ops gets
a ``detach`` before.
"""

from __future__ import annotations

import copy
import operator
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from staticgrad.base.errors import GraphError
from staticgrad.bridges.aten.dialect import CONVERTERS, op_key
from staticgrad.bridges.aten.rules import rules_kept

PACKED = (
    "\ntorch.export does not know the sizes of packed sequences: give the recurrent layers padded ones, and mask what"
    " is past their ends"
)
NO_GRAD = "wrap_with_set_grad_enabled"
# Ops with a converter that PyTorch's rules take apart only for backends of its own.
_WHOLE_ONLY_AS_GIVEN = frozenset({"_batch_norm_with_update", "_native_batch_norm_legit"})


def export(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """The program of a module at example arguments.

    Raises:
        GraphError: ``torch.export`` cannot export it.
    """
    args, kwargs = _apart((tuple(args), dict(kwargs)))
    fast, known = torch.backends.mha.get_fastpath_enabled(), warnings.catch_warnings()
    torch.backends.mha.set_fastpath_enabled(False)  # an op of its own for inference in encoders
    try:
        with known:
            warnings.simplefilter("ignore")
            with rules_kept():
                return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        hint = PACKED if _is_packed(error) else ""
        raise GraphError(f"convert: torch.export cannot export {type(module).__name__}: {error}{hint}") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _is_packed(error: Exception) -> bool:
    """True if an error is about a packed sequence, whose sizes are values."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__")
        if module == "torch.nn.utils.rnn" or (
            module == "torch.nn.modules.rnn" and frame.f_locals.get("batch_sizes") is not None
        ):
            return True
    return False


def _apart(arguments: Any) -> Any:
    """Arguments without a tensor that is there twice: ``torch.export`` would read one input for both."""
    seen: set[int] = set()

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or id(x) not in seen:
            seen.add(id(x))
            return x
        return x.detach().clone()

    return pytree.tree_map(own, arguments)


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program without writes, in ops that have converters as far as PyTorch's rules lead there."""
    table = torch.export.default_decompositions()
    for op in list(table):
        if op_key(op) in CONVERTERS and op_key(op) not in _WHOLE_ONLY_AS_GIVEN:
            del table[op]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if any(NO_GRAD in str(node.target) for module in _graphs(program) for node in module.graph.nodes):
            program = copy.deepcopy(program)
            _detach(program.graph_module, True)
        return program.run_decompositions(table)


def _graphs(program: ExportedProgram) -> Iterator[fx.GraphModule]:
    return (module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule))


def _detach(module: fx.GraphModule, enabled: bool) -> None:
    """Put a ``detach`` after each op that is without gradients."""
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        if NO_GRAD in str(node.target):
            body = getattr(module, node.args[1].target)
            _detach(body, node.args[0])
        elif not enabled and _gives_floats(node):
            with module.graph.inserting_after(node):
                stopped = module.graph.call_function(torch.ops.aten.detach.default, (node,))
            stopped.meta = dict(node.meta)
            node.replace_all_uses_with(stopped, delete_user_cb=lambda user, own=stopped: user is not own)
    module.recompile()


def _gives_floats(node: fx.Node) -> bool:
    """True if a call makes a floating tensor, or takes it out of several that an op makes."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    if node.target is operator.getitem:
        return _is_op(node.args[0])
    return _is_op(node) and not node.target._schema.is_mutable


def _is_op(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)


def state_of(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers by their names; shared ones are one tensor under each of their names."""
    own: dict[Any, torch.Tensor] = {}
    found = {}
    for name, tensor in program.state_dict.items():
        found[name] = own.setdefault(_identity(tensor), tensor)
    return found


def _identity(tensor: torch.Tensor) -> Any:
    """A key that tensors share which are the same memory in the same shape."""
    if tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


@contextmanager
def in_mode(module: torch.nn.Module, training: bool) -> Iterator[None]:
    """A module and all in it in a mode; afterwards each is in its own again."""
    before = [(each, each.training) for each in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for each, mode in before:
            each.training = mode
