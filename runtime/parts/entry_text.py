"""The text of the functions by which programs are called. Words, records and offsets are those of ``entry_words`` and
``vectorcall``.

Input: the target. Output: LLVM IR, needed only where no machine code of it was kept.
"""

from __future__ import annotations

import contextlib

from staticgrad.compiler.emit.llvm import IRModule, Value, integer
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.program.slots import INTERRUPTED
from staticgrad.runtime.parts.entry_words import (
    API,
    DATA,
    DIMS,
    DRAWS,
    DTYPE,
    FLAGS,
    LIST_ITEMS,
    LIST_SIZE,
    NDIM,
    READABLE,
    RECORD,
    TUPLE_ITEM,
    TUPLE_SIZE,
    TYPE,
    WRITABLE,
    EntryWord,
    Field,
)
from staticgrad.runtime.parts.locks import BRIEF
from staticgrad.runtime.parts.locks import LockWord as Lock
from staticgrad.runtime.parts.machinery import part_text
from staticgrad.runtime.parts.vectorcall import HEAD, IS_FREE_THREADED, WORD
from staticgrad.runtime.parts.vectorcall import ObjectWord as Hidden


def text(target: Target) -> str:
    """A module with the functions ``enter``, ``forward`` and ``order``."""
    module = IRModule(target)
    order = module.function("order", [], internal=False)
    order.line("fence seq_cst")
    order.finish()
    _EntryWriter(module).write()
    _write_forward(module)
    return module.text() + part_text(__file__, "foreign", TYPE=TYPE, DATA=DATA)


class _EntryWriter:
    """Writes ``PyObject *enter(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)``."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.fits = self._fits()
        self.apart = self._apart()
        self.f = module.function("enter", ["ptr", "ptr", "i64", "ptr"], "ptr", internal=False)
        self.self_, self.args, self.nargs, self.names = self.f.params
        self.words = self.f.load("ptr", self.f.offset(self.self_, DATA, "i8"))

    # -- small parts

    def at(self, word: int, type_: str = "i64") -> Value:
        return self.f.load(type_, self.f.offset(self.words, word, "i64"))

    def api(self, name: str) -> Value:
        return self.at(EntryWord.FIRST_API + API.index(name), "ptr")

    def call(self, name: str, result: str, *args: Value) -> Value:
        text = f"call {result} {self.api(name).text}({', '.join(map(str, args))})"
        if result == "void":
            self.f.line(text)
            return Value("", "void")
        return self.f.emit(result, text)

    def require(self, condition: Value, otherwise: str = "leave") -> None:
        going_on = self.f.label("on")
        self.f.branch_if(condition, going_on, otherwise)
        self.f.block(going_on)

    def same(self, a: Value, b: Value | int) -> Value:
        return self.f.compare("icmp eq", a, integer(b) if isinstance(b, int) else b)

    def is_null(self, pointer: Value) -> Value:
        return self.f.compare("icmp eq", pointer, Value("null", "ptr"))

    def item(self, items: Value, index: Value, type_: str = "ptr") -> Value:
        return self.f.load(type_, self.f.offset(items, index, "i64"))

    def record(self, records: Value, index: Value) -> Value:
        return self.f.offset(records, self.f.mul(index, RECORD), "i64")

    def field(self, record: Value, field: int, type_: str = "i64") -> Value:
        return self.f.load(type_, self.f.offset(record, int(field), "i64"))

    # -- the checks of one array

    def _fits(self) -> str:
        """i1 fits(array, record, flags, PyArray_Type): exactly an array of this dtype and shape, with the flags."""
        f = self.module.function("fits", ["ptr", "ptr", "i32", "ptr"], "i1")
        array, record, flags, array_type = f.params
        no = "no"

        def require(condition: Value) -> None:
            going_on = f.label("on")
            f.branch_if(condition, going_on, no)
            f.block(going_on)

        def part(offset: int, type_: str) -> Value:
            return f.load(type_, f.offset(array, offset, "i8"))

        require(f.compare("icmp eq", part(TYPE, "ptr"), array_type))
        expected = f.load("ptr", f.offset(record, Field.DTYPE, "i64"))
        require(f.compare("icmp eq", part(DTYPE, "ptr"), expected))
        require(f.compare("icmp eq", f.binary("and", part(FLAGS, "i32"), flags), flags))
        ndim = f.load("i64", f.offset(record, Field.NDIM, "i64"))
        require(f.compare("icmp eq", f.emit("i64", f"zext {part(NDIM, 'i32')} to i64"), ndim))
        dims = f.load("ptr", f.offset(record, Field.DIMS, "i64"))
        actual = part(DIMS, "ptr")
        with f.loop(0, ndim) as axis:
            a = f.load("i64", f.offset(actual, axis.index, "i64"))
            require(f.compare("icmp eq", a, f.load("i64", f.offset(dims, axis.index, "i64"))))
        f.ret(integer(1, "i1"))
        f.block(no)
        f.ret(integer(0, "i1"))
        return f.finish()

    def _apart(self) -> str:
        """i1 apart(address, nbytes, address, nbytes): the two stretches of memory do not overlap."""
        f = self.module.function("apart", ["i64", "i64", "i64", "i64"], "i1")
        a, a_bytes, b, b_bytes = f.params
        a_end = f.binary("add", a, a_bytes)
        b_end = f.binary("add", b, b_bytes)
        before = f.compare("icmp ule", a_end, b)
        f.ret(f.binary("or", before, f.compare("icmp ule", b_end, a)))
        return f.finish()

    # -- the stages of a call

    def write(self) -> None:
        f = self.f
        leaves, feeds = self.at(EntryWord.LEAVES), self.at(EntryWord.FEEDS)
        count = f.intrinsic("llvm.smax.i64", "i64", leaves, integer(1))
        objects, self.made = (f.emit("ptr", f"alloca ptr, {count}, align 8") for _ in range(2))  # results, their data
        answer = f.emit("ptr", "alloca ptr, align 8")  # what is returned, one reference of it
        self.given = f.emit("ptr", f"alloca ptr, {feeds}, align 8")  # where the data of feeds lie
        self.numbers = f.emit("ptr", f"alloca i64, {feeds}, align 8")  # those that are numbers of Python
        self.spare = f.emit("ptr", "alloca i64, align 8")
        self._take_words()
        self._check_feeds()
        f.branch_if(self.is_null(self.names), "fresh", "given")
        f.block("given")
        self._take_out(objects, answer)
        f.branch("run")
        f.block("fresh")
        self._make_results(objects, answer)
        f.branch("run")
        f.block("run")
        self._run(answer)
        f.block("drop")  # too late for anything but the slow way
        with self._where_set(EntryWord.LOCK):
            self._give_lock()
        self.call("Py_DecRef", "void", f.load("ptr", answer))
        f.branch("leave")
        f.block("leave")
        self._give_words()
        f.branch("miss")
        f.block("miss")
        f.ret(
            self.call("PyObject_Vectorcall", "ptr", self.at(EntryWord.SLOW, "ptr"), self.args, self.nargs, self.names)
        )
        f.finish()

    # -- the words, which are one call's at a time

    def _take_words(self) -> None:
        """Say that the words are in use, unless they are; where there is no GIL those of another frame may be free."""
        f, first = self.f, self.words
        if IS_FREE_THREADED:
            before, look, other = f.label("before"), f.label("look"), f.label("other")
            f.branch(before)
            f.block(before)
            f.branch(look)
            f.block(look)
            self.words = Value("%frame", "ptr")
            f.line(f"%frame = phi ptr [ {first.text}, %{before} ], [ %next_frame, %{other} ]")
        self.require(self.same(f.load("i64", self.at(EntryWord.CLOSED, "ptr")), 0), "miss")
        busy = f.offset(self.words, EntryWord.BUSY, "i64")
        if not IS_FREE_THREADED:
            self.require(self.same(f.load("i64", busy), 0), "miss")
            f.store(integer(1), busy)
            return
        pair = f.emit("{ i64, i1 }", f"cmpxchg {busy}, i64 0, i64 1 seq_cst seq_cst")
        taken = f.label("taken")
        f.branch_if(f.emit("i1", f"extractvalue {pair}, 1"), taken, other)
        f.block(other)
        f.line(f"%next_frame = load ptr, {f.offset(self.words, EntryWord.NEXT, 'i64')}")
        f.branch_if(self.is_null(Value("%next_frame", "ptr")), "miss", look)
        f.block(taken)

    def _give_words(self) -> None:
        busy = self.f.offset(self.words, EntryWord.BUSY, "i64")
        self.f.line(f"store atomic i64 0, {busy} release, align 8")

    def _check_feeds(self) -> None:
        f = self.f
        self.require(self.same(self.nargs, self.at(EntryWord.FEEDS)))
        self.known, array_type = self.at(EntryWord.FEED_RECORDS, "ptr"), self.api("PyArray_Type")
        with f.loop(0, self.nargs) as feed:
            record = self.record(self.known, feed.index)
            given = self.item(self.args, feed.index)
            number = f.offset(self.numbers, feed.index, "i64")
            data = self._data(given, record, READABLE, array_type, number)
            f.store(data, f.offset(self.given, feed.index, "ptr"))

    def _data(self, given: Value, record: Value, flags: int, array_type: Value, number: Value) -> Value:
        """The address of the data of something given, if it is as its record expects."""
        f = self.f
        an_array, foreign, known = f.label("array"), f.label("foreign"), f.label("data")
        f.branch_if(f.call(self.fits, "i1", given, record, integer(flags, "i32"), array_type), an_array, foreign)
        f.block(an_array)
        own = f.load("ptr", f.offset(given, DATA, "i8"))
        f.branch(known)
        f.block(foreign)
        writes = integer(int(flags == WRITABLE), "i32")
        operands = ", ".join(map(str, (given, record, number, self.api("known"), writes)))
        other = f.emit("ptr", f"call ptr @data_of({operands})")
        self.require(f.compare("icmp ne", other, Value("null", "ptr")))
        last = f.label("view")
        f.branch(last)
        f.block(last)
        f.branch(known)
        f.block(known)
        return f.emit("ptr", f"phi ptr [ {own.text}, %{an_array} ], [ {other.text}, %{last} ]")

    def _take_out(self, objects: Value, answer: Value) -> None:
        """The caller's arrays, where ``out`` is the only keyword and everything in it is exactly right."""
        f = self.f
        self.require(self.same(f.load("i64", f.offset(self.names, TUPLE_SIZE, "i8")), 1))
        self.require(self.same(f.load("ptr", f.offset(self.names, TUPLE_ITEM, "i8")), self.api("out")))
        out = self.item(self.args, self.nargs)
        leaves = self.at(EntryWord.LEAVES)
        one, several, known = f.label("one"), f.label("several"), f.label("known")
        f.branch_if(self.same(self.at(EntryWord.SINGLE), 0), several, one)
        f.block(one)
        f.store(out, objects)
        f.branch(known)
        f.block(several)
        self.require(self.same(f.load("ptr", f.offset(out, TYPE, "i8")), self.api("PyList_Type")))
        self.require(self.same(f.load("i64", f.offset(out, LIST_SIZE, "i8")), leaves))
        items = f.load("ptr", f.offset(out, LIST_ITEMS, "i8"))
        with f.loop(0, leaves) as leaf:
            f.store(self.item(items, leaf.index), f.offset(objects, leaf.index, "ptr"))
        f.branch(known)
        f.block(known)
        records = self.at(EntryWord.LEAF_RECORDS, "ptr")
        with f.loop(0, leaves) as leaf:
            self._check_out(objects, records, leaf.index)
        self.call("Py_IncRef", "void", out)
        f.store(out, answer)

    def _check_out(self, objects: Value, records: Value, index: Value) -> None:
        f = self.f
        record, array = self.record(records, index), self.item(objects, index)
        an_op, a_tensor, done = f.label("op"), f.label("tensor"), f.label("checked")
        f.branch_if(self.is_null(self.field(record, Field.DTYPE, "ptr")), an_op, a_tensor)
        f.block(an_op)
        self.require(self.same(array, self.api("Py_None")))
        f.branch(done)
        f.block(a_tensor)
        data = self._data(array, record, WRITABLE, self.api("PyArray_Type"), self.spare)
        f.store(data, f.offset(self.made, index, "ptr"))
        nbytes = self.field(record, Field.NBYTES)
        address = f.load("i64", f.offset(self.made, index, "ptr"))
        feeds = self.at(EntryWord.FEED_RECORDS, "ptr")

        def require_apart(others: Value, other: Value, record: Value) -> None:
            start = self.item(others, other, "i64")
            self.require(f.call(self.apart, "i1", address, nbytes, start, self.field(record, Field.NBYTES)))

        with f.loop(0, self.nargs) as feed:
            require_apart(self.given, feed.index, self.record(feeds, feed.index))
        with f.loop(0, index) as earlier:
            other_record = self.record(records, earlier.index)
            with f.when(f.compare("icmp ne", self.field(other_record, Field.DTYPE, "ptr"), Value("null", "ptr"))):
                require_apart(self.made, earlier.index, other_record)
        f.branch(done)
        f.block(done)

    def _make_results(self, objects: Value, answer: Value) -> None:
        f = self.f
        leaves, records = self.at(EntryWord.LEAVES), self.at(EntryWord.LEAF_RECORDS, "ptr")
        null, none = Value("null", "ptr"), self.api("Py_None")
        one, several, done = f.label("one"), f.label("several"), f.label("made")
        f.branch_if(self.same(self.at(EntryWord.SINGLE), 0), several, one)
        f.block(one)
        only = self._new_array(records)
        f.store(only, answer)
        self.require(f.compare("icmp ne", only, null), "failed")
        f.store(f.load("ptr", f.offset(only, DATA, "i8")), self.made)
        f.branch(done)
        f.block(several)
        result = self.call("PyList_New", "ptr", leaves)
        f.store(result, answer)
        self.require(f.compare("icmp ne", result, null), "failed")
        with f.loop(0, leaves) as leaf:
            record = self.record(records, leaf.index)
            an_op, a_tensor, kept = f.label("op"), f.label("tensor"), f.label("kept")
            f.branch_if(self.is_null(self.field(record, Field.DTYPE, "ptr")), an_op, a_tensor)
            f.block(an_op)
            self.call("Py_IncRef", "void", none)
            f.store(none, f.offset(objects, leaf.index, "ptr"))
            f.branch(kept)
            f.block(a_tensor)
            array = self._new_array(record)
            self.require(f.compare("icmp ne", array, null), "out_of_memory")
            f.store(array, f.offset(objects, leaf.index, "ptr"))
            f.store(f.load("ptr", f.offset(array, DATA, "i8")), f.offset(self.made, leaf.index, "ptr"))
            f.branch(kept)
            f.block(kept)
            self.call("PyList_SetItem", "i32", result, leaf.index, self.item(objects, leaf.index))
        f.branch(done)
        f.block("out_of_memory")
        self.call("Py_DecRef", "void", f.load("ptr", answer))
        f.branch("failed")
        f.block("failed")  # with a Python exception set
        self._give_words()
        f.ret(null)
        f.block(done)

    def _new_array(self, record: Value) -> Value:
        """A new array, or null with an exception set. A large one is made with its memory handler in force."""
        f = self.f
        handler = self.field(record, Field.HANDLER, "ptr")
        null = Value("null", "ptr")
        small, large, in_force, made = f.label("small"), f.label("large"), f.label("in_force"), f.label("array")
        f.branch_if(self.is_null(handler), small, large)
        f.block(small)
        from_numpy = self._array_of(record)
        f.branch(made)
        f.block(large)
        before = self.call("PyDataMem_SetHandler", "ptr", handler)
        f.branch_if(self.is_null(before), made, in_force)
        f.block(in_force)
        recycled = self._array_of(record)
        with f.when(self.is_null(recycled)):
            self.call("PyErr_Clear", "void")  # what follows wants no exception set
        self.call("Py_DecRef", "void", self.call("PyDataMem_SetHandler", "ptr", before))
        self.call("Py_DecRef", "void", before)
        with f.when(self.is_null(recycled)):
            self.call("PyErr_NoMemory", "ptr")
        last = f.label("recycled")
        f.branch(last)
        f.block(last)
        f.branch(made)
        f.block(made)
        arrays = ((from_numpy, small), (null, large), (recycled, last))
        return f.emit("ptr", "phi ptr " + ", ".join(f"[ {array.text}, %{label} ]" for array, label in arrays))

    def _array_of(self, record: Value) -> Value:
        f, null = self.f, Value("null", "ptr")
        dtype = self.field(record, Field.DTYPE, "ptr")
        self.call("Py_IncRef", "void", dtype)  # NumPy takes over a reference
        ndim = f.emit("i32", f"trunc {self.field(record, Field.NDIM)} to i32")
        dims = self.field(record, Field.DIMS, "ptr")
        array_type, no_flags = self.api("PyArray_Type"), integer(0, "i32")
        return self.call("PyArray_NewFromDescr", "ptr", array_type, dtype, ndim, dims, null, null, no_flags, null)

    def _run(self, answer: Value) -> None:
        """Nothing from here on allocates, so that nothing else runs in this thread until the program has, but for
        signal handlers while the lock is waited for and where the program looks for them."""
        f, null = self.f, Value("null", "ptr")
        guarded = f.compare("icmp ne", self.at(EntryWord.GUARDED), integer(0))
        with f.when(guarded):
            self._take_lock(answer)
        gate = self.at(EntryWord.GATE, "ptr")
        with f.when(f.compare("icmp ne", gate, null)):
            self.require(self.same(f.load("i64", gate), 0), "drop")
        self._fill_table()
        self._draw()
        with f.when(guarded):
            self._begin()
        status = self._call_main()
        with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
            with f.when(guarded):
                self._end()
            self._fail(status, answer)
            f.block(f.label("unreachable"))
        writes, addresses = self.at(EntryWord.WRITES, "ptr"), self.at(EntryWord.VERSION_ADDRESSES, "ptr")
        with f.loop(0, self.at(EntryWord.VERSIONS)) as written:
            number = f.binary("add", f.load("i64", writes), integer(1))
            f.store(number, writes)
            f.store(number, self.item(addresses, written.index))
        with f.when(guarded):
            marks = self.at(EntryWord.MARK_ADDRESSES, "ptr")
            with f.loop(0, self.at(EntryWord.MARKS)) as mark:
                f.store(integer(1), self.item(marks, mark.index))
            self._end()
        self._give_words()
        f.ret(f.load("ptr", answer))

    # -- the session's lock

    def _where_set(self, word: int) -> contextlib.AbstractContextManager[None]:
        return self.f.when(self.f.compare("icmp ne", self.at(word, "ptr"), Value("null", "ptr")))

    def _kind(self) -> Value:
        """The kind of hold on the lock until the run number is taken."""
        kind = self.at(EntryWord.KIND)
        return self.f.emit("i64", f"select {self.same(kind, DRAWS)}, i64 {BRIEF}, {kind}")

    def _take_lock(self, answer: Value) -> None:
        """Wait for the session's lock, without the GIL; the call ends where a signal handler raises meanwhile."""
        f = self.f
        with self._where_set(EntryWord.LOCK):
            acquire = self.at(EntryWord.ACQUIRE, "ptr")
            status = f.emit("i32", f"call i32 {acquire.text}({self.at(EntryWord.LOCK, 'ptr')}, {self._kind()})")
            with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
                self.call("Py_DecRef", "void", f.load("ptr", answer))
                self._give_words()
                f.ret(Value("null", "ptr"))
                f.block(f.label("unreachable"))

    def _give_lock(self) -> None:
        lock = self.at(EntryWord.LOCK, "ptr")
        self.f.line(f"call void {self.at(EntryWord.RELEASE, 'ptr').text}({lock}, {self._kind()})")

    def _begin(self) -> None:
        """The run number is taken: a program that does not touch state goes on without the lock, one that writes says
        so in the lock."""
        f = self.f
        with self._where_set(EntryWord.LOCK):
            with f.when(self.same(self.at(EntryWord.KIND), DRAWS)):
                self._give_lock()
            with self._where_set(EntryWord.WRITING):
                place = f.offset(self.at(EntryWord.LOCK, "ptr"), Lock.WRITING, "i64")
                f.store(f.load("i64", place), f.offset(self.words, EntryWord.WRITING_BEFORE, "i64"))
                f.store(self.at(EntryWord.WRITING), place)
        with self._where_set(EntryWord.BEGIN):
            f.line(f"call void {self.at(EntryWord.BEGIN, 'ptr').text}({self.at(EntryWord.POOL, 'ptr')})")

    def _end(self) -> None:
        """Nothing is written any more, and the lock is given back."""
        f = self.f
        with self._where_set(EntryWord.LOCK):
            with self._where_set(EntryWord.WRITING):
                place = f.offset(self.at(EntryWord.LOCK, "ptr"), Lock.WRITING, "i64")
                f.store(self.at(EntryWord.WRITING_BEFORE), place)
            with f.when(f.compare("icmp ne", self.at(EntryWord.KIND), integer(DRAWS))):
                self._give_lock()

    def _fill_table(self) -> None:
        f, table = self.f, self.at(EntryWord.TABLE, "ptr")

        def put(record: Value, data: Value) -> None:
            f.store(data, f.offset(table, self.field(record, Field.SLOT), "ptr"))

        feeds, leaves = self.at(EntryWord.FEED_RECORDS, "ptr"), self.at(EntryWord.LEAF_RECORDS, "ptr")
        with f.loop(0, self.nargs) as feed:
            put(self.record(feeds, feed.index), self.item(self.given, feed.index))
        with f.loop(0, self.at(EntryWord.LEAVES)) as leaf:
            record = self.record(leaves, leaf.index)
            with f.when(f.compare("icmp ne", self.field(record, Field.DTYPE, "ptr"), Value("null", "ptr"))):
                put(record, self.item(self.made, leaf.index))

    def _draw(self) -> None:
        """Take the run number, as the key of this call's random ops."""
        f = self.f
        random, key = self.at(EntryWord.RANDOM, "ptr"), self.at(EntryWord.KEY, "ptr")
        with f.when(f.compare("icmp ne", random, Value("null", "ptr"))):
            number = f.load("i64", f.offset(random, 1, "i64"))
            f.store(f.load("i64", random), key)
            f.store(number, f.offset(key, 1, "i64"))
            f.store(f.binary("add", number, integer(1)), f.offset(random, 1, "i64"))

    def _call_main(self) -> Value:
        f = self.f
        main, *operands = (
            self.at(word, "ptr") for word in (EntryWord.MAIN, EntryWord.TABLE, EntryWord.ARENA, EntryWord.POOL)
        )
        passed = ", ".join(map(str, operands))
        short, long, done = f.label("short"), f.label("long"), f.label("ran")
        f.branch_if(self.same(self.at(EntryWord.RELEASES), 0), short, long)
        f.block(short)
        kept = f.emit("i32", f"call i32 {main.text}({passed})")
        f.branch(done)
        f.block(long)
        thread = self.call("PyEval_SaveThread", "ptr")
        released = f.emit("i32", f"call i32 {main.text}({passed})")
        self.call("PyEval_RestoreThread", "void", thread)
        f.branch(done)
        f.block(done)
        return f.emit("i32", f"phi i32 [ {kept.text}, %{short} ], [ {released.text}, %{long} ]")

    def _fail(self, status: Value, answer: Value) -> None:
        """Undo the run number unless another run has drawn since; raise through Python; the arena stays ours."""
        f, null = self.f, Value("null", "ptr")
        random, key = self.at(EntryWord.RANDOM, "ptr"), self.at(EntryWord.KEY, "ptr")
        with f.when(f.compare("icmp ne", random, null)):
            number = f.load("i64", f.offset(key, 1, "i64"))
            place, after = f.offset(random, 1, "i64"), f.binary("add", number, integer(1))
            f.emit("{ i64, i1 }", f"cmpxchg {place}, {after}, {number} monotonic monotonic")
        self.call("Py_DecRef", "void", f.load("ptr", answer))
        with f.when(f.compare("icmp eq", status, integer(INTERRUPTED, "i32"))):
            self._give_words()
            f.line(f"call void {self.at(EntryWord.RAISE, 'ptr').text}({self.at(EntryWord.POOL, 'ptr')})")
            f.ret(null)
            f.block(f.label("unreachable"))
        code = self.call("PyLong_FromLong", "ptr", f.emit("i64", f"sext {status} to i64"))
        raised = self.call("PyObject_CallOneArg", "ptr", self.at(EntryWord.FAIL, "ptr"), code)
        self.call("Py_DecRef", "void", code)
        self._give_words()
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
