"""The text of the functions by which programs are called. Words, records and offsets are those of ``entry_words`` and
``vectorcall``.

Input: the target. Output: LLVM IR, needed only where no machine code of it was kept.
"""

from __future__ import annotations

from staticgrad.compiler.emit.llvm import IRModule, Value, integer
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.program.slots import INTERRUPTED
from staticgrad.runtime.parts.entry_arrays import CallArrays, write_apart, write_fits
from staticgrad.runtime.parts.entry_code import EntryMemory, EntryWriter, call_memory
from staticgrad.runtime.parts.entry_lock import CallLock
from staticgrad.runtime.parts.entry_words import DATA, LIST_ITEMS, LIST_SIZE, TYPE, EntryWord, Field
from staticgrad.runtime.parts.machinery import part_text
from staticgrad.runtime.parts.vectorcall import HEAD, IS_FREE_THREADED, WORD
from staticgrad.runtime.parts.vectorcall import ObjectWord as Hidden


def text(target: Target) -> str:
    """A module with the functions ``enter``, ``forward`` and ``order``."""
    module = IRModule(target)
    order = module.function("order", [], internal=False)
    order.line("fence seq_cst")
    order.finish()
    _write_enter(module)
    _write_forward(module)
    offsets = {"TYPE": TYPE, "DATA": DATA, "LIST_SIZE": LIST_SIZE, "LIST_ITEMS": LIST_ITEMS}
    return module.text() + part_text(__file__, "foreign", **offsets)


def _write_enter(module: IRModule) -> None:
    """Write ``PyObject *enter(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)``: the stages
    of a call."""
    fits, apart = write_fits(module), write_apart(module)
    f = module.function("enter", ["ptr", "ptr", "i64", "ptr"], "ptr", internal=False)
    code = EntryWriter(f)
    memory, lock = call_memory(code), CallLock(code)
    arrays = CallArrays(code, memory, fits, apart)
    code.take_words()
    arrays.check_feeds()
    f.branch_if(code.is_null(code.names), "fresh", "given")
    f.block("given")
    arrays.take_out()
    f.branch("run")
    f.block("fresh")
    arrays.make_results()
    f.branch("run")
    f.block("run")
    _ProgramRun(code, memory, lock).run()
    f.block("drop")  # too late for anything but the slow way
    with code.where_set(EntryWord.LOCK):
        lock.give()
    code.call("Py_DecRef", "void", f.load("ptr", memory.answer))
    f.branch("leave")
    f.block("leave")
    code.give_words()
    f.branch("miss")
    f.block("miss")
    f.ret(code.call("PyObject_Vectorcall", "ptr", code.at(EntryWord.SLOW, "ptr"), code.args, code.nargs, code.names))
    f.finish()


class _ProgramRun:
    """Writes the run of the program in a call."""

    def __init__(self, code: EntryWriter, memory: EntryMemory, lock: CallLock) -> None:
        self.code = code
        self.memory = memory
        self.lock = lock
        self.f = code.f

    def run(self) -> None:
        """Nothing from here on allocates, so that nothing else runs in this thread until the program has, but for
        signal handlers while the lock is waited for and where the program looks for them."""
        f = self.f
        guarded = f.compare("icmp ne", self.code.at(EntryWord.GUARDED), integer(0))
        with f.when(guarded):
            self.lock.take(self.memory.answer)
        for word in (EntryWord.GATE, EntryWord.OTHER_GATE):
            gate = self.code.at(word, "ptr")
            with f.when(self.code.is_there(gate)):
                self.code.require(self.code.same(f.load("i64", gate), 0), "drop")
        self._fill_table()
        self._draw()
        with f.when(guarded):
            self.lock.begin()
        status = self._call_main()
        with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
            with f.when(guarded):
                self.lock.end()
            self._fail(status)
            f.block(f.label("unreachable"))
        writes, addresses = self.code.at(EntryWord.WRITES, "ptr"), self.code.at(EntryWord.VERSION_ADDRESSES, "ptr")
        with f.loop(0, self.code.at(EntryWord.VERSIONS)) as written:
            number = f.binary("add", f.load("i64", writes), integer(1))
            f.store(number, writes)
            f.store(number, self.code.item(addresses, written.index))
        with f.when(guarded):
            marks = self.code.at(EntryWord.MARK_ADDRESSES, "ptr")
            with f.loop(0, self.code.at(EntryWord.MARKS)) as mark:
                f.store(integer(1), self.code.item(marks, mark.index))
            self.lock.end()
        self.code.give_words()
        f.ret(f.load("ptr", self.memory.answer))

    def _fill_table(self) -> None:
        f, table = self.f, self.code.at(EntryWord.TABLE, "ptr")

        def put(record: Value, data: Value) -> None:
            f.store(data, f.offset(table, self.code.field(record, Field.SLOT), "ptr"))

        feeds, leaves = self.code.at(EntryWord.FEED_RECORDS, "ptr"), self.code.at(EntryWord.LEAF_RECORDS, "ptr")
        with f.loop(0, self.code.nargs) as feed:
            put(self.code.record(feeds, feed.index), self.code.item(self.memory.given, feed.index))
        with f.loop(0, self.code.at(EntryWord.LEAVES)) as leaf:
            record = self.code.record(leaves, leaf.index)
            with f.when(self.code.is_there(self.code.field(record, Field.DTYPE, "ptr"))):
                put(record, self.code.item(self.memory.made, leaf.index))

    def _draw(self) -> None:
        """Take the run number, as the key of this call's random ops."""
        f = self.f
        random, key = self.code.at(EntryWord.RANDOM, "ptr"), self.code.at(EntryWord.KEY, "ptr")
        with f.when(self.code.is_there(random)):
            number = f.load("i64", f.offset(random, 1, "i64"))
            f.store(f.load("i64", random), key)
            f.store(number, f.offset(key, 1, "i64"))
            f.store(f.binary("add", number, integer(1)), f.offset(random, 1, "i64"))

    def _call_main(self) -> Value:
        f = self.f
        words = EntryWord.MAIN, EntryWord.TABLE, EntryWord.ARENA, EntryWord.POOL, EntryWord.STATE
        main, *operands = (self.code.at(word, "ptr") for word in words)  # of which a program may take but the first
        passed = ", ".join(map(str, operands))
        short, long, done = f.label("short"), f.label("long"), f.label("ran")
        f.branch_if(self.code.same(self.code.at(EntryWord.RELEASES), 0), short, long)
        f.block(short)
        kept = f.emit("i32", f"call i32 {main.text}({passed})")
        f.branch(done)
        f.block(long)
        thread = self.code.call("PyEval_SaveThread", "ptr")
        released = f.emit("i32", f"call i32 {main.text}({passed})")
        self.code.call("PyEval_RestoreThread", "void", thread)
        f.branch(done)
        f.block(done)
        return f.emit("i32", f"phi i32 [ {kept.text}, %{short} ], [ {released.text}, %{long} ]")

    def _fail(self, status: Value) -> None:
        """Undo the run number unless another run has drawn since; raise through Python; the arena stays ours."""
        f, null = self.f, Value("null", "ptr")
        random, key = self.code.at(EntryWord.RANDOM, "ptr"), self.code.at(EntryWord.KEY, "ptr")
        with f.when(self.code.is_there(random)):
            number = f.load("i64", f.offset(key, 1, "i64"))
            place, after = f.offset(random, 1, "i64"), f.binary("add", number, integer(1))
            f.emit("{ i64, i1 }", f"cmpxchg {place}, {after}, {number} monotonic monotonic")
        self.code.call("Py_DecRef", "void", f.load("ptr", self.memory.answer))
        with f.when(f.compare("icmp eq", status, integer(INTERRUPTED, "i32"))):
            self.code.give_words()
            f.line(f"call void {self.code.at(EntryWord.RAISE, 'ptr').text}({self.code.at(EntryWord.POOL, 'ptr')})")
            f.ret(null)
            f.block(f.label("unreachable"))
        code = self.code.call("PyLong_FromLong", "ptr", f.emit("i64", f"sext {status} to i64"))
        raised = self.code.call("PyObject_CallOneArg", "ptr", self.code.at(EntryWord.FAIL, "ptr"), code)
        self.code.call("Py_DecRef", "void", code)
        self.code.give_words()
        f.ret(raised)  # null: the exception is set


def _write_forward(module: IRModule) -> None:
    """Write ``PyObject *forward(PyObject *x, PyObject *const *args, size_t nargsf, PyObject *kwnames)``: what ``x``
    does is held during the call, in which it may be given something else to do."""
    f = module.function("forward", ["ptr", "ptr", "i64", "ptr"], "ptr", internal=False)
    x, args, count, names = f.params

    def word(number: int, type_: str = "ptr") -> str:
        return f.load(type_, f.offset(x, integer(HEAD + WORD * number), "i8")).text

    if IS_FREE_THREADED:
        target = f.emit("ptr", f"call ptr {word(Hidden.HOLD)}({x}, ptr {word(Hidden.SLOT)})")
        with f.when(f.compare("icmp eq", target, Value("null", "ptr"))):
            f.ret(target)
            f.block(f.label("unreachable"))
    else:
        slot = f.load("i64", f.offset(x, integer(HEAD + WORD * Hidden.SLOT), "i8"))
        target = f.load("ptr", f.offset(x, slot, "i8"))
        f.line(f"call void {word(Hidden.HOLD)}({target})")
    answer = f.emit("ptr", f"call ptr {word(Hidden.CALL)}({target}, {args}, {count}, {names})")
    f.line(f"call void {word(Hidden.RELEASE)}({target})")
    f.ret(answer)
    f.finish()
