"""The linker and the mode ``"STATICGRAD"`` of PyTensor.

Input: a ``FunctionGraph`` that PyTensor has rewritten. Output: what PyTensor calls to run it.

The nodes are divided into *parts*: as few as possible that are converted and compiled, and between them the nodes that
cannot be, such as draws of random numbers, which PyTensor's own Python code performs. A part is compiled when it is
first called with arrays of some shapes, since only these say all sizes, and the program is kept for these shapes. What
turns out then not to be convertible is performed from then on. Where a size follows from the value of a small operand
of integers, a part is compiled for this value, too, up to ``MOST_VALUES`` of them; then the node is performed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.mode import Mode, predefined_linkers, predefined_modes, register_linker, register_mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors
from pytensor.link.basic import JITLinker
from pytensor.link.utils import raise_with_op
from pytensor.scalar.basic import ScalarType

from staticgrad.base.errors import StaticGradError
from staticgrad.base.recent import KEPT_PROGRAMS, Recent
from staticgrad.base.types import DTYPE_NAMES
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import PYTENSOR, convert, dtype_name
from staticgrad.runtime.session.session import Session

MOST_VALUES = 16  # for which a part is compiled apart
LARGEST_VALUE = 16  # elements of an operand whose values programs are compiled for


def is_dense(variable: Variable) -> bool:
    return dtype_name(variable) in DTYPE_NAMES


def may_be_known(variable: Variable) -> bool:
    """Sizes follow from integers and bools."""
    return is_dense(variable) and np.dtype(variable.type.dtype).kind in "biu"


def _is_number(variable: Variable) -> bool:
    return isinstance(variable.type, ScalarType)


def _value_key(value: Any) -> Any:
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


class CompiledPart:
    """Nodes that are compiled, for each combination of shapes."""

    node = None

    def __init__(self, owner: PartedProgram, nodes: list[Any], inputs: list[Variable], outputs: list[Variable]) -> None:
        self.owner, self.nodes, self.inputs, self.outputs = owner, nodes, inputs, outputs
        self.cells = [owner.storage[v] for v in inputs]
        self.result_cells = [(owner.storage[v], _is_number(v)) for v in outputs]
        self.by_value = [not is_dense(v) or v in owner.by_value for v in inputs]
        self.numbers = [(i, np.dtype(v.type.dtype)) for i, v in enumerate(inputs) if is_dense(v) and _is_number(v)]
        self.programs: Recent[tuple[Callable[..., Any], dict[str, Any]]] = Recent(KEPT_PROGRAMS)
        self.known = {*inputs, *(v for node in nodes for v in (*node.inputs, *node.outputs))}
        self.value_keys: set[Any] = set()
        complete = all(is_dense(v) and None not in v.type.shape for v in inputs)
        self.is_fixed = complete and not any(self.by_value)
        self.fed = [i for i, known in enumerate(self.by_value) if not known]

    def __str__(self) -> str:
        return f"compiled: {len(self.nodes)} nodes, {len(self.inputs)} operands, {len(self.outputs)} results"

    def __call__(self) -> None:
        values = [cell[0] for cell in self.cells]
        for place, dtype in self.numbers:
            values[place] = np.asarray(values[place], dtype)
        key = None if self.is_fixed else self._key(values)
        found = self.programs.get(key)
        program, failures = self._compile(key, values) if found is None else found
        try:
            results = program(*values) if len(self.fed) == len(values) else program(*[values[i] for i in self.fed])
        except StaticGradError as error:
            for text, (kind, message) in failures.items():
                if text in str(error):
                    raise kind(message) from error
            raise
        for (cell, is_number), result in zip(self.result_cells, results):
            cell[0] = result[()] if is_number else result

    def _key(self, values: Sequence[Any]) -> Any:
        return tuple(_value_key(value) if known else value.shape for value, known in zip(values, self.by_value))

    def _compile(self, key: Any, values: Sequence[Any]) -> Any:
        known = {v: value for v, value, is_known in zip(self.inputs, values, self.by_value) if is_known}
        if known:
            self.value_keys.add(tuple(map(_value_key, known.values())))
            if len(self.value_keys) > MOST_VALUES and self.owner.forget_values(list(known)):
                raise _DividedAnewError
        shapes = [None if is_known else value.shape for value, is_known in zip(values, self.by_value)]
        try:
            found = convert(self.inputs, self.outputs, shapes, values=known)
        except RefusedError as error:
            self.owner.refuse(error, values, self)
            raise _DividedAnewError from None
        feeds = [x for x in found.placeholders if x is not None]
        session = Session(found.graph, num_threads=self.owner.num_threads)
        program = session.compile(found.results, feeds)
        return self.programs.put(key, (program, dict(found.failures)))


class PerformedPart:
    """A node that PyTensor performs."""

    def __init__(self, owner: PartedProgram, node: Any) -> None:
        self.owner, self.node = owner, node
        self.thunk = node.op.make_thunk(node, owner.storage, owner.computed, [], impl="py")
        self.thunk.inputs = [owner.storage[v] for v in node.inputs]
        self.thunk.outputs = [owner.storage[v] for v in node.outputs]

    def __str__(self) -> str:
        return f"performed by PyTensor: {self.node}: {self.owner.refused[self.node]}"

    def __call__(self) -> None:
        try:
            self.thunk()
        except Exception:
            raise_with_op(self.owner.fgraph, self.node, self.thunk)


class _DividedAnewError(Exception):
    """The parts are others now."""


class PartedProgram:
    """The program of a graph of PyTensor: ``function.vm.jit_fn``. ``str`` of it lists its parts.

    Attributes:
        refused: the nodes that PyTensor performs, and why.
        by_value: the operands whose values programs are compiled for, with the nodes that ask for them.
        parts: in the order of a run.
    """

    def __init__(
        self, fgraph: Any, order: list[Any], storage: dict[Any, Any], strict: bool, num_threads: int | None
    ) -> None:
        self.fgraph, self.order, self.storage = fgraph, order, storage
        self.strict, self.num_threads = strict, num_threads
        self.computed = {v: [True] for v in storage}
        objections = PYTENSOR.objections(order)
        if strict and objections:
            raise PYTENSOR.refusal(objections)
        self.refused: dict[Any, str] = {}
        for each in objections:
            self.refused.setdefault(each.outer, each.text)
        self.by_value: dict[Variable, set[Any]] = {}
        self._members = set(order)
        self._divide()

    def __str__(self) -> str:
        return "\n".join(f"{number}. {part}" for number, part in enumerate(self.parts, 1))

    def __call__(self, *values: Any) -> list[Any]:
        """The results for operands in the order of the graph's inputs, for callers that go round ``Function``."""
        for variable, value in zip(self.fgraph.inputs, values, strict=True):
            self.storage[variable][0] = value
        self.run()
        return [self.storage[variable][0] for variable in self.fgraph.outputs]

    def run(self) -> None:
        ran: set[Any] = set()  # of the nodes that PyTensor performs: no draw and no effect is repeated in a run
        while True:
            try:
                for part in self.parts:
                    if part.node not in ran:
                        part()
                    if part.node is not None:
                        ran.add(part.node)
                return
            except _DividedAnewError:
                continue

    def refuse(self, error: RefusedError, values: Sequence[Any], part: CompiledPart) -> None:
        """Let PyTensor perform a node, or a part be compiled for values where the node needs them."""
        node = error.node
        if error.needs is not None:
            asked = [error.needs] if error.needs in part.known else node.inputs
            roots = set(ancestors(asked, blockers=part.inputs))
            small = [v for v, value in zip(part.inputs, values) if np.size(value) <= LARGEST_VALUE]
            wanted = [v for v in small if v in roots and v not in self.by_value and may_be_known(v)]
            if wanted:
                self.by_value |= {variable: {node} for variable in wanted}
                return self._divide()
        for variable, nodes in [*self.by_value.items()]:
            nodes.discard(node)
            if not nodes:
                del self.by_value[variable]
        if self.strict:
            raise error
        self.refused[node] = error.reason
        return self._divide()

    def forget_values(self, variables: Sequence[Variable]) -> bool:
        """Let PyTensor perform the nodes that need the values of these operands, which change too often."""
        nodes = {node for variable in variables for node in self.by_value.pop(variable, ())}
        for node in nodes:
            self.refused[node] = f"a size depends on a value that took more than {MOST_VALUES} values"
        if nodes:
            self._divide()
        return bool(nodes)

    def _divide(self) -> None:
        self._perform_what_serves_performed()
        levels: dict[Any, int] = {}
        for node in self.order:
            before = [v.owner for v in node.inputs if v.owner in levels]
            crosses = node not in self.refused
            levels[node] = max((levels[n] + (crosses and n in self.refused) for n in before), default=0)
        parts: list[Any] = []
        for level in range(max(levels.values(), default=0) + 1):
            nodes = [node for node in self.order if levels[node] == level]
            compiled = [node for node in nodes if node not in self.refused]
            parts += self._compiled(compiled)
            parts += [PerformedPart(self, node) for node in nodes if node in self.refused]
        self.parts = parts

    def _perform_what_serves_performed(self) -> None:
        """A compiled part gives arrays; slices that are results, or operands of nodes that PyTensor performs, are made
        by PyTensor, too."""
        for variable in self.fgraph.outputs:
            if variable.owner is not None and variable.owner not in self.refused and not is_dense(variable):
                self.refused[variable.owner] = "its result is no array"
        for node in reversed(self.order):
            if node in self.refused:
                for variable in node.inputs:
                    maker = variable.owner
                    if maker is not None and maker not in self.refused and not is_dense(variable):
                        self.refused[maker] = f"it makes no array, and {type(node.op).__name__} needs it"

    def _compiled(self, nodes: list[Any]) -> list[CompiledPart]:
        own = {v for node in nodes for v in node.outputs}
        inputs = dict.fromkeys(v for node in nodes for v in node.inputs if v not in own and not isinstance(v, Constant))
        inside = set(nodes)
        results = set(self.fgraph.outputs)

        def leaves(variable: Variable) -> bool:
            outside = (client not in inside for client, _ in self._clients(variable))
            return is_dense(variable) and (variable in results or any(outside))

        outputs = [v for node in nodes for v in node.outputs if leaves(v)]
        return [CompiledPart(self, nodes, list(inputs), outputs)] if outputs else []

    def _clients(self, variable: Variable) -> list[tuple[Any, int]]:
        return [c for c in self.fgraph.clients.get(variable, ()) if c[0] in self._members]


class StaticgradLinker(JITLinker):  # type: ignore[misc]
    """Runs what PyTensor has rewritten as programs of staticgrad; see the module.

    Args:
        strict: refuse a graph that has a node which cannot be converted, instead of letting PyTensor perform the node.
        num_threads: of the programs; by default all cores.
        allow_gc: whether PyTensor gives intermediate results back after a call; None for PyTensor's setting.
    """

    required_rewrites = ("minimum_compile", "scan_save_mem_no_prealloc")
    incompatible_rewrites = (
        "cxx_only", "BlasOpt", "fusion", "inplace", "local_careduce_fusion", "scan_save_mem_prealloc",
        "reuse_lu_decomposition_multiple_solves", "scan_split_non_sequence_lu_decomposition_solve",
    )  # fmt: skip

    def __init__(
        self, *, strict: bool = False, num_threads: int | None = None, allow_gc: bool | None = None,
        schedule: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(allow_gc=allow_gc, schedule=schedule)
        self.strict, self.num_threads = strict, num_threads

    def accept(self, fgraph: Any, no_recycling: Any = None, profile: Any = None) -> StaticgradLinker:
        if self.fgraph is not None and self.fgraph is not fgraph:
            fresh = type(self)(strict=self.strict, num_threads=self.num_threads, allow_gc=self.allow_gc)
            return fresh.accept(fgraph, no_recycling, profile)
        super().accept(fgraph, no_recycling, profile)
        return self

    def fgraph_convert(
        self, fgraph: Any, order: Any, input_storage: Any, output_storage: Any, storage_map: Any, **_: Any
    ) -> Any:
        """The program of a graph."""
        return PartedProgram(fgraph, list(order), storage_map, self.strict, self.num_threads)

    def create_thunk_inputs(self, storage_map: dict[Variable, list[Any]]) -> list[Any]:
        return [storage_map[v] for v in self.fgraph.inputs]

    def jit_compile(self, fn: Any) -> Any:
        return fn

    def create_jitable_thunk(
        self, compute_map: Any, order: Any, input_storage: Any, output_storage: Any, storage_map: Any
    ) -> tuple[list[Any], list[Any], Any]:
        program = self.fgraph_convert(self.fgraph, order, input_storage, output_storage, storage_map)

        def thunk() -> None:
            program.run()

        thunk.inputs = self.create_thunk_inputs(storage_map)  # type: ignore[attr-defined]
        thunk.outputs = [storage_map[v] for v in self.fgraph.outputs]  # type: ignore[attr-defined]
        thunk.lazy = False  # type: ignore[attr-defined]
        return [thunk], [v.owner for v in self.fgraph.outputs if v.owner is not None][:1], program


def register() -> None:
    """Make ``mode="STATICGRAD"`` and ``Mode(linker="staticgrad")`` known to PyTensor."""
    if "staticgrad" not in predefined_linkers:
        register_linker("staticgrad", StaticgradLinker())
    if "STATICGRAD" not in predefined_modes:
        register_mode("STATICGRAD", mode())


def mode(**options: Any) -> Mode:
    """The mode with options of ``StaticgradLinker``."""
    return Mode(StaticgradLinker(**options), RewriteDatabaseQuery(include=["fast_run"]))
