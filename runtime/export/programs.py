"""The programs of an export: executables come in, the module of all their functions goes out, and its interface.

Each executable is compiled once more: for the target, for known sizes, as a program that keeps nothing from call to
call. Around it a function is written (``entries``, ``casadi``), and all are linked (``emit/linked``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from staticgrad.base.errors import GraphError
from staticgrad.base.types import TensorType
from staticgrad.compiler.machine.target import Target, compact
from staticgrad.compiler.native.kernels import at_once, program_objects
from staticgrad.compiler.native.linked import Linked, link_modules
from staticgrad.compiler.native.module import Code
from staticgrad.compiler.program.program import Interface
from staticgrad.compiler.program.slots import ConstantSlot, StateSlot
from staticgrad.graph.optable import Array
from staticgrad.runtime.callers.cfunction import form_of
from staticgrad.runtime.callers.cfunction_text import MOST_ON_STACK
from staticgrad.runtime.export import casadi
from staticgrad.runtime.export.entries import EntryForm, initial_state, text
from staticgrad.runtime.export.interface import (
    Entry,
    ExportedCheck,
    ExportInterface,
    NamedType,
    StateLayout,
    layout,
)
from staticgrad.runtime.export.names import initial_name
from staticgrad.runtime.export.nests import described_nest
from staticgrad.runtime.export.options import ExportOptions
from staticgrad.runtime.running.calling import KEEP_LOCK_BELOW, estimated_seconds

if TYPE_CHECKING:
    from staticgrad.runtime.export.source import ExportSource
    from staticgrad.runtime.running.state import SessionState


class ExportedPrograms:
    """Programs for one target: their interface, the texts of their modules, the state as it begins."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, ExportSource],
        store: SessionState,
        target: Target,
        options: ExportOptions,
        externals: Mapping[str, casadi.External],
    ) -> None:
        self.target = target
        self.options = options
        self._externals = externals
        self._written_for = compact(target) if options.optimize == "size" else target
        compiled = {entry: _Compiled(source, self._written_for, options) for entry, source in entries.items()}
        variables: dict[str, TensorType] = {}
        for one in compiled.values():
            variables |= {slot.name: slot.type for slot in one.interface.slots if isinstance(slot, StateSlot)}
        state = layout(variables, draws=any(one.form.keys for one in compiled.values()))
        initial = state_of(store, state)
        self._forms = {entry: one.entry(state, initial) for entry, one in compiled.items()}
        self._programs = {entry: one.texts for entry, one in compiled.items()}
        known = tuple(compiled[entry].described(entry, form) for entry, form in self._forms.items())
        known = casadi.described(known, externals) if externals else known
        self.initial = initial if options.has_state else b""
        self.interface = ExportInterface(name, target.name, known, state if options.has_state else StateLayout())

    @property
    def has_initial(self) -> bool:
        """True if the state as it begins is a constant of the module."""
        return bool(self.initial) and self.options.initial_state == "data" and self.options.format != "program"

    def linked(self, ir: Literal["text", "bitcode"] | None = None) -> Linked:
        """The module of all entries, if asked for as LLVM's text or bitcode too."""
        shared = []
        if self.has_initial:
            shared.append(initial_state(initial_name(self.interface.name), self.initial, self.target))
        if self.options.is_casadi:
            of, target = self._externals, self.target
            shared += [casadi.description(name, form, target, of[name]) for name, form in self._forms.items()]
        modules = {entry: [self._text(entry), *self._programs[entry]] for entry in self._forms}
        return link_modules(modules, shared, self.target, ir)

    def code(self) -> Code:
        """The machine code of the one entry, for this machine, of kernels that other programs may have: made in less
        time than ``linked``, and not put through the pipeline over the whole. Results are the same to the bit."""
        ((entry, form),) = self._forms.items()
        around = text(form, self._written_for)
        objects = program_objects(self._programs[entry], self._written_for)
        compiled = at_once(self._written_for)
        (own,) = compiled((around,), (False,))
        return objects.code([False] * len(objects.texts), compiled, ((own, around),))

    def _text(self, entry: str) -> str:
        """The module of the function around a program."""
        form, target = self._forms[entry], self._written_for
        return casadi.text(form, target, self._externals[entry]) if self.options.is_casadi else text(form, target)


class _Compiled:
    """An executable's program for a target, and the form of its function."""

    def __init__(self, source: ExportSource, target: Target, options: ExportOptions) -> None:
        types = source.types()
        program = source.program(target, max(1, options.threads))
        self.interface: Interface = program.interface
        self.texts = program.modules
        self._options = options
        self._target = target
        feeds, fetched = list(types.items()), source.fetched
        kind, has_state = "slots" if options.is_casadi else options.signature, options.has_state
        self.form, results = form_of(
            kind, self.interface, feeds, fetched, options.wrt, caller="export", has_state=has_state
        )
        what, nbytes = f"export: {options.signature!r}", self.form.stack_bytes(target)
        if not has_state and self.form.keys:
            raise GraphError(f"{what}: the program draws random numbers, which need a state: 'slots'")
        if not (has_state or options.is_casadi) and nbytes > MOST_ON_STACK:
            raise GraphError(f"{what}: expected a program that takes {MOST_ON_STACK} bytes of the stack, actual"
                             f" {nbytes}: 'slots' is given its memory")  # fmt: skip
        written = any(isinstance(slot, StateSlot) and slot.written for slot in self.interface.slots)
        self._writes = written or bool(self.form.keys)  # which count the runs
        self.feeds = [NamedType(x.name, t) for x, t in feeds]
        self._structure, keys = described_nest(source.fetches)
        self.results = [NamedType(key or x.name, t) for key, (x, t) in zip(keys, results, strict=True)]

    def entry(self, state: StateLayout, initial: bytes) -> EntryForm:
        """The function's form, with a state that lies so."""
        slots = list(enumerate(self.interface.slots))
        constants = tuple((n, slot.value.tobytes()) for n, slot in slots if isinstance(slot, ConstantSlot))
        offsets = {array.name: array.offset for array in state.arrays}
        variables = tuple((n, offsets[slot.name]) for n, slot in slots if isinstance(slot, StateSlot))
        own = b"" if self._options.has_state else initial
        feed_bytes = tuple(feed.type.nbytes for feed in self.feeds)
        return EntryForm(self.form, constants, variables, own, feed_bytes, self._options.threads)

    def described(self, name: str, form: EntryForm) -> Entry:
        """The entry as its caller knows it."""
        has_state = self._options.has_state
        checks = tuple(
            ExportedCheck(c.kind, c.message, str(c.source or ""), c.size, c.offset, c.wraps)
            for c in self.interface.checks
        )
        return Entry(
            name, self._options.signature, tuple(self.feeds), tuple(self.results), self._structure,
            form.workspace_bytes(self._target) if has_state else 0, checks, has_state and form.uses_state,
            has_state and self._writes, self._options.threads, form.stack_bytes(self._target),
            not self.interface.polls and estimated_seconds(self.interface) < KEEP_LOCK_BELOW,
        )  # fmt: skip


def state_of(store: SessionState, state: StateLayout) -> bytes:
    """The bytes of a state as the session has it."""
    store.check_open()
    store.initialize(array.name for array in state.arrays)
    block = bytearray(state.nbytes)

    def take() -> None:
        def put(offset: int, value: Array) -> None:
            block[offset : offset + value.nbytes] = value.tobytes()

        if state.draws:
            put(0, store.random)
        for array in state.arrays:
            put(array.offset, store.array(array.name))

    store.lock.brief(take)
    return bytes(block)
