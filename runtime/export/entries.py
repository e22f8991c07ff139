"""The text of exported functions: what C calls, around a program that is linked to it.

Input: a target and an ``EntryForm``: how the program's slots come about. Output: LLVM IR of a module that defines
``entry`` and calls ``main``. A function of signature ``"slots"`` is given its memory:

    i32 entry(ptr in, ptr out, ptr workspace, ptr state)
    i32 entry_on_threads(ptr in, ptr out, ptr workspace, ptr state, ptr threads)     if it may run on several

Functions of other signatures have theirs on the stack, and the state as constant data, which is never written.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import Function, IRModule, Value, integer
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native.linked import ENTRY, MAIN
from staticgrad.runtime.callers.cfunction_text import (
    MOST_ON_STACK,
    NULL,
    WRONG_CALL,
    Form,
    any_of,
    end_if,
    end_if_missing,
    is_null,
    point_slots,
    repeat_results,
    rounded,
    write_entry,
)
from staticgrad.runtime.export.names import ON_THREADS

SEED, RUN = 0, 1  # the words with which a state begins whose program draws random numbers


@frozen
class EntryForm:
    """A signature and the program below it.

    Attributes:
        form: the signature, feeds, results and what else a C function has.
        constants: slots that are arrays of the program's own, and their bytes.
        variables: slots that lie in the state, and their offsets.
        initial: the state, where the function isn't given it.
        feed_bytes: bytes of each feed.
        threads: how many may share its work, 0 for none.
    """

    form: Form
    constants: tuple[tuple[int, bytes], ...] = ()
    variables: tuple[tuple[int, int], ...] = ()
    initial: bytes = b""
    feed_bytes: tuple[int, ...] = ()
    threads: int = 0

    @property
    def uses_state(self) -> bool:
        """True if the function reads or writes its state."""
        return bool(self.variables or self.form.keys)

    @property
    def arena_bytes(self) -> int:
        """Bytes of memory that the program works in."""
        return rounded(self.form.arena_bytes)

    def has_long_table(self, target: Target) -> bool:
        """True if the table of slots is too long for the stack, and so lies in the workspace after the arena."""
        return self.form.table_bytes + target.machine.frame_bytes > MOST_ON_STACK

    def workspace_bytes(self, target: Target) -> int:
        """Bytes of memory that a function of signature ``"slots"`` is given."""
        return self.arena_bytes + self.form.table_bytes * self.has_long_table(target)

    def stack_bytes(self, target: Target) -> int:
        """Bytes of the stack that a call takes at most."""
        if self.form.signature != "slots":
            return self.form.stack_bytes(target)
        return target.machine.frame_bytes + self.form.table_bytes * (not self.has_long_table(target))


def text(entry: EntryForm, target: Target) -> str:
    """The module of an entry."""
    module = IRModule(target)
    module.declare(MAIN, "i32", ["ptr", "ptr", "ptr"])
    if entry.form.signature == "slots":
        _write_slots(module, entry)
    else:
        _write_program(module, entry)
        write_entry(module, entry.form)
    return module.text()


def initial_state(name: str, content: bytes, target: Target) -> str:
    """The module of a state as it begins, constant data that others see as ``name``."""
    module = IRModule(target)
    module.data(name, content, internal=False)
    return module.text()


def _write_slots(module: IRModule, entry: EntryForm) -> None:
    given = ["ptr"] * 4
    if not entry.threads:
        _write_call(module.function(ENTRY, given, "i32", internal=False), entry, NULL)
        return
    f = module.function(f"{ENTRY}{ON_THREADS}", [*given, "ptr"], "i32", internal=False)
    _write_call(f, entry, f.params[-1])
    alone = module.function(ENTRY, given, "i32", internal=False)
    alone.ret(alone.call(f.name, "i32", *alone.params, NULL))
    alone.finish()


def _write_call(f: Function, entry: EntryForm, threads: Value) -> None:
    """A call of the program in the memory that a function is given."""
    feeds, results, workspace, state = f.params[:4]
    target = f.target
    table = f.offset(workspace, entry.arena_bytes, "i8") if entry.has_long_table(target) else None
    memory = CallMemory(f, entry, table)
    given = [*([workspace] if entry.workspace_bytes(target) else []), *([state] if entry.uses_state else [])]
    if given:
        end_if(f, any_of(f, [is_null(f, address) for address in given]), integer(WRONG_CALL, "i32"))
    end_if_missing(f, entry.form, feeds, results)
    status = memory.run(feeds, results, workspace, workspace, state, threads)
    if entry.form.keys:  # a run that has drawn is counted, unless it failed
        run, succeeded = f.offset(state, RUN, "i64"), f.compare("icmp eq", status, integer(0, "i32"))
        with f.when(succeeded):
            f.store(f.binary("add", f.load("i64", run), integer(1)), run)
    f.ret(status)
    f.finish()


def _write_program(module: IRModule, entry: EntryForm) -> None:
    form = entry.form
    assert form.stack_bytes(module.target) <= MOST_ON_STACK
    f = module.function("program", ["ptr", "ptr"], "i32")
    feeds, results = f.params
    memory, frame = CallMemory(f, entry), f.stack(max(form.frame_bytes, 1))
    unwanted = f.offset(frame, entry.arena_bytes, "i8")
    f.ret(memory.run(feeds, results, frame, unwanted, memory.own_state(), NULL))
    f.finish()


class CallMemory:
    """The memory of a function that calls a program: the table of slots, the key of random numbers. Both are on the
    stack unless a ``table`` is given. It is made before the function opens a block."""

    def __init__(self, f: Function, entry: EntryForm, table: Value | None = None) -> None:
        self._f = f
        self._entry = entry
        self._table, self._key = table or f.stack(8 * (entry.form.slots + 1)), f.stack(16)

    def own_state(self) -> Value:
        """The address of the state of a function that is not given it, constant data."""
        f, content = self._f, self._entry.initial
        return f.symbol(f.module.data("state", content)) if content else NULL

    def run(
        self, feeds: Value, results: Value, workspace: Value, unwanted: Value, state: Value, threads: Value
    ) -> Value:
        """Call the program, and give its status. Results whose address is null lie in the memory ``unwanted``."""
        f, form = self._f, self._entry.form
        self._point(state)
        point_slots(f, form, self._table, feeds, results, unwanted)
        status = f.call(MAIN, "i32", self._table, workspace, threads)
        repeat_results(f, form, results)
        return status

    def _point(self, state: Value) -> None:
        """Enter the addresses of constants and of what lies in the state."""
        f, entry = self._f, self._entry

        def enter(slot: int, address: Value) -> None:
            f.store(address, f.offset(self._table, slot, "ptr"))

        for slot, content in entry.constants:
            enter(slot, f.symbol(f.module.data(f"constant{slot}", content)))
        for slot, offset in entry.variables:
            enter(slot, f.offset(state, offset, "i8"))
        if entry.form.keys:
            for word in (SEED, RUN):
                f.store(f.load("i64", f.offset(state, word, "i64")), f.offset(self._key, word, "i64"))
        for slot in entry.form.keys:
            enter(slot, self._key)
