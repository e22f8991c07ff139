"""The text of the C functions by which other systems call a program.

Input: a target and a ``Form``: the signature, what the program's slots are, how much memory a call takes. Output: LLVM
IR of a module with the function ``entry`` of the signature, and ``bind``, which is told where the words of ``CWord``
are. Addresses are in those words alone, so that the machine code of a form can be kept.

    entry       what C sees: checks what it is given, makes tables of addresses, says NaN where a check has failed
    program     i32 (ptr feeds, ptr results): memory for the call, the table of slots, ``main``
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Literal

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import Function, IRModule, Value, integer
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target

SignatureName = Literal["slots", "logp", "nlopt", "vector", "ode", "scalar", "scalars"]
WRONG_CALL, NO_MEMORY = -1, -2  # statuses
MOST_ON_STACK = 64 << 10  # bytes of a call in all: its memory, tables of addresses, frames of functions
NULL = Value("null", "ptr")
NAN = Value("0x7FF8000000000000", "double")


class CWord:
    """The words of a C function, which Python writes before it is called and when its state is taken anew."""

    MAIN = 0  # i32 (ptr slots, ptr arena, ptr pool)
    TABLE = 1  # the slots; what is the same in each call is filled in
    BLOCK = 2  # ptr (i64 nbytes): memory of the calling thread
    CALLS = 3  # how many calls are under way; only counted where there is state
    SEED = 4
    RUN = 5  # how many calls have drawn random numbers
    COUNT = 6


@frozen
class Form:
    """A signature and the program below it.

    Attributes:
        slots: how many the program has.
        feeds: how many arrays come in; ``results``: how many bytes each of those takes that go out.
        feed_slots: slot and number of each feed that the program reads; ``result_slots`` likewise.
        repeated: numbers of results that are another one once more, and of that one.
        keys: the slots of keys of random numbers.
        counted: whether calls are counted, since state may be taken anew.
        x: the feed that is given as x; -1: there is none.
        user: the feeds that are the user's data: ``user`` is the address of one, or of a table of addresses of several.
        size: how many elements x has; of ``scalars`` whose feeds are single numbers, how many there are.
        out: how many elements the result of ``vector`` has.
        value, grad: the results that are written as such, for ``ode`` ``grad`` the derivative.
        t: the feed of the time.
    """

    signature: SignatureName
    slots: int
    arena_bytes: int
    feeds: int
    results: tuple[int, ...]
    feed_slots: tuple[tuple[int, int], ...]
    result_slots: tuple[tuple[int, int], ...]
    repeated: tuple[tuple[int, int], ...] = ()
    keys: tuple[int, ...] = ()
    counted: bool = False
    x: int = -1
    user: tuple[int, ...] = ()
    size: int = 0
    out: int = 0
    value: int = -1
    grad: int = -1
    t: int = -1

    @property
    def frame_bytes(self) -> int:
        """Bytes of memory of a call: the arena, and room for results that are not asked for."""
        return rounded(self.arena_bytes) + sum(map(rounded, self.results))

    @property
    def table_bytes(self) -> int:
        """Bytes of the table of slots of a call."""
        return rounded(8 * (self.slots + 1))

    def stack_bytes(self, target: Target) -> int:
        """Bytes that a call takes at most if all of its memory is on the stack."""
        tables = self.table_bytes + 8 * (self.feeds + len(self.results))
        return self.frame_bytes + tables + target.machine.frame_bytes


def rounded(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


def text(form: Form, target: Target) -> str:
    """The module of a form."""
    module = IRModule(target)
    words = module.words("bound", 1)
    bind = module.function("bind", ["ptr"], internal=False)
    bind.store(bind.params[0], bind.symbol(words))
    bind.finish()
    _write_program(module, form, words)
    write_entry(module, form)
    return module.text()


def write_entry(module: IRModule, form: Form) -> None:
    """Add ``entry``, the function of the form's signature, which calls ``program``."""
    _ENTRIES[form.signature](module, form)


# -- the program ------------------------------------------------------------------------------------------------------


def _write_program(module: IRModule, form: Form, bound: str) -> None:
    f = module.function("program", ["ptr", "ptr"], "i32")
    feeds, results = f.params
    on_stack, nbytes = form.stack_bytes(module.target) <= MOST_ON_STACK, form.frame_bytes + form.table_bytes
    key, frame = f.stack(16), f.stack(nbytes) if on_stack else NULL
    words = f.load("ptr", f.symbol(bound))

    def word(number: int, type_: str = "i64") -> Value:
        return f.load(type_, f.offset(words, number, "i64"))

    if not on_stack:
        frame = f.call(word(CWord.BLOCK, "ptr"), "ptr", integer(nbytes))
        end_if(f, f.compare("icmp eq", frame, NULL), integer(NO_MEMORY, "i32"))
    table = f.offset(frame, form.frame_bytes, "i8")
    calls = f.offset(words, CWord.CALLS, "i64")
    if form.counted:
        # First counted, then looked at: who takes state anew sees the call, or the call sees the new table.
        f.emit("i64", f"atomicrmw add {calls}, i64 1 seq_cst")
    place = f.offset(words, CWord.TABLE, "i64")
    given = f.emit("ptr", f"load atomic ptr, {place} seq_cst, align 8")
    f.intrinsic("llvm.memcpy.p0.p0.i64", "void", table, given, integer(8 * form.slots), Value("false", "i1"))
    point_slots(f, form, table, feeds, results, f.offset(frame, rounded(form.arena_bytes), "i8"))
    if form.keys:
        f.store(word(CWord.SEED), key)
        run = f.emit("i64", f"atomicrmw add {f.offset(words, CWord.RUN, 'i64')}, i64 1 seq_cst")
        f.store(run, f.offset(key, 1, "i64"))
    for slot in form.keys:
        f.store(key, f.offset(table, slot, "ptr"))
    status = f.call(word(CWord.MAIN, "ptr"), "i32", table, frame, NULL)
    repeat_results(f, form, results)
    if form.counted:
        f.emit("i64", f"atomicrmw sub {calls}, i64 1 seq_cst")
    f.ret(status)
    f.finish()


def point_slots(f: Function, form: Form, table: Value, feeds: Value, results: Value, unwanted: Value) -> None:
    """Enter the addresses of feeds and results in the table of slots; a result whose address is null lies in the memory
    ``unwanted``."""
    for slot, number in form.feed_slots:
        f.store(item(f, feeds, number), f.offset(table, slot, "ptr"))
    dropped = list(itertools.accumulate(map(rounded, form.results), initial=0))
    for slot, number in form.result_slots:
        wanted = item(f, results, number)
        chosen = f.select(is_null(f, wanted), f.offset(unwanted, dropped[number], "i8"), wanted)
        f.store(chosen, f.offset(table, slot, "ptr"))


def repeat_results(f: Function, form: Form, results: Value) -> None:
    """Copy results to where they are wanted once more."""
    for number, other in form.repeated:
        to, source = item(f, results, number), item(f, results, other)
        nbytes, no = integer(form.results[number]), Value("false", "i1")
        with f.when(f.compare("icmp ne", to, source)):
            f.intrinsic("llvm.memmove.p0.p0.i64", "void", to, source, nbytes, no)


def item(f: Function, table: Value, number: int) -> Value:
    """The address that stands in a table."""
    return f.load("ptr", f.offset(table, number, "ptr"))


def end_if(f: Function, condition: Value, value: Value | None) -> None:
    """Return ``value`` where a condition holds."""
    wrong, on = f.label("wrong"), f.label("on")
    f.branch_if(condition, wrong, on)
    f.block(wrong)
    f.ret(value)
    f.block(on)


def any_of(f: Function, conditions: Sequence[Value]) -> Value:
    """True where one of the conditions holds."""
    return functools.reduce(lambda a, b: f.binary("or", a, b), conditions)


def is_null(f: Function, pointer: Value) -> Value:
    """True for the null pointer."""
    return f.compare("icmp eq", pointer, NULL)


# -- entries ----------------------------------------------------------------------------------------------------------


class _Tables:
    """The tables of addresses that an entry hands to ``program``."""

    def __init__(self, f: Function, form: Form) -> None:
        self.f = f
        self.form = form
        self.feeds, self.results = f.stack(8 * max(form.feeds, 1)), f.stack(8 * max(len(form.results), 1))

    def feed(self, number: int, address: Value) -> None:
        if number >= 0:
            self.f.store(address, self.f.offset(self.feeds, number, "ptr"))

    def data(self, user: Value) -> None:
        """The feeds that are the user's data."""
        match self.form.user:
            case (number,):
                self.feed(number, user)
            case numbers:
                for place, number in enumerate(numbers):
                    self.feed(number, item(self.f, user, place))

    def result(self, number: int, address: Value) -> None:
        if number >= 0:
            self.f.store(address, self.f.offset(self.results, number, "ptr"))

    def run(self) -> Value:
        for number in range(len(self.form.results)):
            if number not in (self.form.value, self.form.grad):
                self.result(number, NULL)
        return self.f.call("program", "i32", self.feeds, self.results)

    def missing(self, *needed: Value, user: Value | None) -> Value:
        """True where an address is null that must not be."""
        asked = [*needed, *([user] if user is not None and self.form.user else [])]
        return any_of(self.f, [is_null(self.f, address) for address in asked])


def _fill(f: Function, address: Value, count: int) -> None:
    """Say NaN for ``count`` numbers."""
    with f.loop(0, max(count, 1)) as loop:
        f.store(NAN, f.offset(address, loop.index, "double"))


def end_if_missing(f: Function, form: Form, feeds: Value, results: Value) -> None:
    """Refuse a call whose tables, or an address in them, are null."""
    for table, count in ((feeds, form.feeds), (results, len(form.results))):
        if count:
            end_if(f, is_null(f, table), integer(WRONG_CALL, "i32"))
            with f.loop(0, count) as loop:
                missing = is_null(f, f.load("ptr", f.offset(table, loop.index, "ptr")))
                end_if(f, missing, integer(WRONG_CALL, "i32"))


def _write_slots(module: IRModule, form: Form) -> None:
    f = module.function("entry", ["ptr", "ptr", "ptr"], "i32", internal=False)
    feeds, results, _ = f.params
    end_if_missing(f, form, feeds, results)
    f.ret(f.call("program", "i32", feeds, results))
    f.finish()


def _write_logp(module: IRModule, form: Form) -> None:
    f = module.function("entry", [module.target.isa.word, *["ptr"] * 4], "i32", internal=False)
    n, x, grad, value, user = f.params
    tables = _Tables(f, form)
    wrong = f.binary("or", f.compare("icmp ne", n, f.index(form.size)), tables.missing(x, value, user=user))
    end_if(f, wrong, integer(WRONG_CALL, "i32"))
    f.ret(_run_density(f, tables, x, grad, value, user))
    f.finish()


def _write_nlopt(module: IRModule, form: Form) -> None:
    f = module.function("entry", ["i32", "ptr", "ptr", "ptr"], "double", internal=False)
    n, x, grad, user = f.params
    tables, value = _Tables(f, form), f.stack(8)
    size = f.compare("icmp ne", n, integer(form.size, "i32"))
    end_if(f, f.binary("or", size, tables.missing(x, user=user)), NAN)
    _run_density(f, tables, x, grad, value, user)
    f.ret(f.load("double", value))
    f.finish()


def _run_density(f: Function, tables: _Tables, x: Value, grad: Value, value: Value, user: Value) -> Value:
    """The status of a run that gives a value and its gradient, which is not asked for if it is null."""
    form = tables.form
    tables.feed(form.x, x)
    tables.data(user)
    tables.result(form.value, value)
    tables.result(form.grad, grad)
    status = tables.run()
    with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
        f.store(NAN, value)
        with f.when(f.compare("icmp ne", grad, NULL)):
            _fill(f, grad, form.size)
    return status


def _write_vector(module: IRModule, form: Form) -> None:
    f = module.function("entry", [*[module.target.isa.word] * 2, *["ptr"] * 3], "i32", internal=False)
    n, m, x, y, user = f.params
    tables = _Tables(f, form)
    sizes = [f.compare("icmp ne", given, f.index(size)) for given, size in ((n, form.size), (m, form.out))]
    end_if(f, any_of(f, [*sizes, tables.missing(x, y, user=user)]), integer(WRONG_CALL, "i32"))
    tables.feed(form.x, x)
    tables.data(user)
    tables.result(form.value, y)
    status = tables.run()
    with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
        _fill(f, y, form.out)
    f.ret(status)
    f.finish()


def _write_ode(module: IRModule, form: Form) -> None:
    f = module.function("entry", ["double", "ptr", "ptr", "ptr"], internal=False)
    t, u, du, p = f.params
    tables, time = _Tables(f, form), f.stack(8)
    end_if(f, is_null(f, du), None)
    wrong, run, failed, done = (f.label(stem) for stem in ("wrong", "run", "failed", "done"))
    f.branch_if(tables.missing(u, user=p), wrong, run)
    f.block(wrong)
    f.branch(failed)
    f.block(run)
    f.store(t, time)
    tables.feed(form.t, time)
    tables.feed(form.x, u)
    tables.data(p)
    tables.result(form.grad, du)
    f.branch_if(f.compare("icmp ne", tables.run(), integer(0, "i32")), failed, done)
    f.block(failed)
    _fill(f, du, form.size)
    f.branch(done)
    f.block(done)
    f.ret()
    f.finish()


def _write_scalar(module: IRModule, form: Form) -> None:
    f = module.function("entry", ["double", "ptr"], "double", internal=False)
    number, user = f.params
    tables, x, value = _Tables(f, form), f.stack(8), f.stack(8)
    f.store(number, x)
    end_if(f, tables.missing(x, user=user), NAN)
    tables.feed(form.x, x)
    _finish_scalar(f, tables, value, user)


def _write_scalars(module: IRModule, form: Form) -> None:
    f = module.function("entry", ["i32", "ptr", "ptr"], "double", internal=False)
    n, x, user = f.params
    tables, value = _Tables(f, form), f.stack(8)
    size = f.compare("icmp ne", n, integer(form.size, "i32"))
    end_if(f, f.binary("or", size, tables.missing(x, user=user)), NAN)
    if form.x >= 0:
        tables.feed(form.x, x)
    else:
        for number in range(form.feeds):
            tables.feed(number, f.offset(x, number, "double"))
    _finish_scalar(f, tables, value, user)


def _finish_scalar(f: Function, tables: _Tables, value: Value, user: Value) -> None:
    tables.data(user)
    tables.result(tables.form.value, value)
    status = tables.run()
    f.ret(f.select(f.compare("icmp eq", status, integer(0, "i32")), f.load("double", value), NAN))
    f.finish()


_ENTRIES: dict[str, Callable[[IRModule, Form], None]] = {
    "slots": _write_slots, "logp": _write_logp, "nlopt": _write_nlopt, "vector": _write_vector, "ode": _write_ode,
    "scalar": _write_scalar, "scalars": _write_scalars,
}  # fmt: skip
