"""The text of exported functions: what C calls, around a program that is linked to it.

Input: a target and an ``EntryForm``: how the program's slots come about. Output: LLVM IR of a module that defines
``entry`` and calls ``main``. A function of signature ``"slots"`` is given its memory:

    i32 entry(ptr in, ptr out, ptr workspace, ptr state)
    i32 entry_on_threads(ptr in, ptr out, ptr workspace, ptr state, ptr threads)     if it may run on several

Functions of other signatures have theirs on the stack, and the state as constant data, which nobody writes.
"""

from __future__ import annotations

from staticgrad.compiler.emit.linked import ENTRY, MAIN
from staticgrad.compiler.emit.llvm import Function, IRModule, Value, integer
from staticgrad.compiler.emit.target import Target
from staticgrad.frozen import frozen
from staticgrad.runtime.cfunction_text import (
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
    def workspace_bytes(self) -> int:
        """Bytes of memory that a call works in."""
        return rounded(self.form.arena_bytes)


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
    table, key = f.stack(8 * (entry.form.slots + 1)), f.stack(16)
    given = [*([workspace] if entry.workspace_bytes else []), *([state] if entry.uses_state else [])]
    if given:
        end_if(f, any_of(f, [is_null(f, address) for address in given]), integer(WRONG_CALL, "i32"))
    end_if_missing(f, entry.form, feeds, results)
    point_memory(f, entry, table, state, key)
    point_slots(f, entry.form, table, feeds, results, workspace)
    status = f.call(MAIN, "i32", table, workspace, threads)
    if entry.form.keys:  # a run that has drawn is counted, unless it failed
        run, succeeded = f.offset(state, RUN, "i64"), f.compare("icmp eq", status, integer(0, "i32"))
        with f.when(succeeded):
            f.store(f.binary("add", f.load("i64", run), integer(1)), run)
    repeat_results(f, entry.form, results)
    f.ret(status)
    f.finish()


def _write_program(module: IRModule, entry: EntryForm) -> None:
    form = entry.form
    assert form.frame_bytes <= MOST_ON_STACK
    f = module.function("program", ["ptr", "ptr"], "i32")
    feeds, results = f.params
    table, key, frame = f.stack(8 * (form.slots + 1)), f.stack(16), f.stack(max(form.frame_bytes, 1))
    state = f.symbol(module.data("state", entry.initial)) if entry.initial else NULL
    point_memory(f, entry, table, state, key)
    point_slots(f, form, table, feeds, results, f.offset(frame, rounded(form.arena_bytes), "i8"))
    status = f.call(MAIN, "i32", table, frame, NULL)
    repeat_results(f, form, results)
    f.ret(status)
    f.finish()


def point_memory(f: Function, entry: EntryForm, table: Value, state: Value, key: Value) -> None:
    """Enter the addresses of constants and of what lies in the state."""

    def enter(slot: int, address: Value) -> None:
        f.store(address, f.offset(table, slot, "ptr"))

    for slot, content in entry.constants:
        enter(slot, f.symbol(f.module.data(f"constant{slot}", content)))
    for slot, offset in entry.variables:
        enter(slot, f.offset(state, offset, "i8"))
    if entry.form.keys:
        for word in (SEED, RUN):
            f.store(f.load("i64", f.offset(state, word, "i64")), f.offset(key, word, "i64"))
    for slot in entry.form.keys:
        enter(slot, key)
