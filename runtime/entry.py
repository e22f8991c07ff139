"""The fast entry: a Python function in machine code that checks arrays, makes results and calls a program.

Calling a small program through ctypes costs more than running it. So one function is made, once in a process, with
CPython's own calling convention (``METH_FASTCALL | METH_KEYWORDS``). It is driven by a *descriptor*, a table of 64-bit
words that is its ``self``: what arrays to expect, where their addresses go, what to allocate, what to call. Whatever is
not exactly as expected — another shape, a list, an array to be cast, a lock that is held, a closed session — is left
to the executable's ``slow`` path in Python, which converts it or raises.

The interpreter's lock is held while the descriptor's memory is used, except inside programs that take long; ``busy``
says that one of those is running, and a second call goes the slow way, which has memory of its own. Programs that touch
state run here only if they keep the interpreter's lock and nobody holds the session's lock (its gate is zero).

It reads fields of array, list and tuple objects directly. Their offsets are not asked for by version: they are probed
on real objects, once in a process, and where one differs (another interpreter, a free-threaded build, a layout to come)
there is no fast entry, and every call goes the way through Python.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from staticgrad.compiler.emit.llvm import Module, Value, integer
from staticgrad.compiler.emit.native import NativeModule
from staticgrad.compiler.emit.target import Target, current_target
from staticgrad.frozen import frozen
from staticgrad.runtime import results
from staticgrad.runtime.vectorcall import write_forward
from staticgrad.types import TensorType, sizes

# -- the descriptor -------------------------------------------------------------------------------------------------


class Word(IntEnum):
    """The words of a descriptor: addresses, counts, flags."""

    MAIN = 0  # i32 (ptr slots, ptr arena, ptr pool)
    TABLE = 1  # the slots; what does not change from call to call is filled in
    ARENA = 2
    BUSY = 3
    RELEASES = 4  # whether the program runs without the interpreter's lock
    GATE = 5  # address of the session lock's gate, or null
    CLOSED = 6  # address of the session's word that says it is closed
    RANDOM = 7  # address of the session's (seed, run number), or null
    KEY = 8  # address of the call's own (seed, run number)
    FEEDS = 9  # how many, and their records
    FEED_RECORDS = 10
    LEAVES = 11  # how many, and their records; an op has a record without dtype
    LEAF_RECORDS = 12
    SINGLE = 13  # the result is one array, not a list
    WRITES = 14  # address of the number of writes so far
    VERSIONS = 15  # how many variables are written, and the addresses of the numbers of their last writes
    VERSION_ADDRESSES = 16
    SLOW = 17  # Python callables: with the call's arguments; with a status, raises
    FAIL = 18
    POOL = 19  # the threads that the program may use, or null
    FIRST_API = 20


API = (
    "PyArray_Type", "PyList_Type", "Py_None", "out", "PyArray_NewFromDescr", "Py_IncRef", "Py_DecRef", "PyList_New",
    "PyList_SetItem", "PyObject_Vectorcall", "PyObject_CallOneArg", "PyLong_FromLong", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyDataMem_SetHandler", "PyErr_Clear", "PyErr_NoMemory",
)  # fmt: skip


class Field(IntEnum):
    """The words of the record of an array."""

    SLOT = 0
    DTYPE = 1
    NDIM = 2
    DIMS = 3  # address
    NBYTES = 4
    HANDLER = 5  # of a large result: the memory handler with which it is made, else null


RECORD = len(Field)
MOST_LEAVES = 256  # the result objects of a call lie on the stack until the list takes them

# offsets in bytes
TYPE = object.__basicsize__ - 8
DATA = object.__basicsize__
NDIM = DATA + 8
DIMS = DATA + 16
DTYPE = DATA + 40
FLAGS = DATA + 48
TUPLE_SIZE = DATA
TUPLE_ITEM = tuple.__basicsize__  # CPython 3.14 keeps a hash before the items
LIST_SIZE = DATA
LIST_ITEMS = DATA + 8  # the address of the items; behind it how many have room

READABLE = 0x0101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
WRITABLE = READABLE | 0x0400  # | NPY_ARRAY_WRITEABLE


def layout_is_known() -> bool:
    """Whether the fields lie where this module expects them. An address that was read is followed only where its
    surroundings are as they should be: another layout shall be found out, not run into."""
    if sys.implementation.name != "cpython" or sys.maxsize < 2**62 or object.__basicsize__ != 16:
        return False  # another interpreter, 32 bits, a build for debugging or without the interpreter's lock
    return _arrays_are_known() and _tuples_are_known() and _lists_are_known()


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _int(address: int) -> int:
    return ctypes.c_int.from_address(address).value


def _arrays_are_known() -> bool:
    array = np.zeros((5, 7), np.float32)[1:]
    frozen = np.zeros((3, 3))[:, ::2]
    frozen.flags.writeable = False
    at = id(array)
    fields = (_word(at + TYPE), _word(at + DATA), _int(at + NDIM), _word(at + DTYPE))
    if fields != (id(np.ndarray), array.__array_interface__["data"][0], 2, id(array.dtype)):
        return False
    flags = (_int(at + FLAGS) & 0x0507, _int(id(frozen) + FLAGS) & 0x0507)
    dims, strides = _word(at + DIMS), _word(at + DIMS + 8)
    if flags != (WRITABLE, 0x0100) or strides != dims + 16:  # NumPy allocates strides behind dims
        return False
    return [_word(dims), _word(dims + 8)] == [4, 7]


def _tuples_are_known() -> bool:
    pair = ("first", None)
    return (_word(id(pair) + TUPLE_SIZE), _word(id(pair) + TUPLE_ITEM)) == (2, id(pair[0]))


def _lists_are_known() -> bool:
    items = ["first", None]
    has_fields = list.__basicsize__ == LIST_ITEMS + 16 and _word(id(items) + LIST_SIZE) == 2
    return has_fields and _word(_word(id(items) + LIST_ITEMS)) == id(items[0])


# -- the function ---------------------------------------------------------------------------------------------------


class _Writer:
    """Writes ``PyObject *enter(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)``."""

    def __init__(self, module: Module) -> None:
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
        return self.at(Word.FIRST_API + API.index(name), "ptr")

    def call(self, name: str, result: str, *args: Value) -> Value:
        text = f"call {result} {self.api(name).text}({', '.join(map(str, args))})"
        if result == "void":
            self.f.line(text)
            return Value("", "void")
        return self.f.emit(result, text)

    def require(self, condition: Value, otherwise: str = "miss") -> None:
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

    def field(self, record: Value, field: Field, type_: str = "i64") -> Value:
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
        expected = f.load("ptr", f.offset(record, int(Field.DTYPE), "i64"))
        require(f.compare("icmp eq", part(DTYPE, "ptr"), expected))
        require(f.compare("icmp eq", f.binary("and", part(FLAGS, "i32"), flags), flags))
        ndim = f.load("i64", f.offset(record, int(Field.NDIM), "i64"))
        require(f.compare("icmp eq", f.emit("i64", f"zext {part(NDIM, 'i32')} to i64"), ndim))
        dims = f.load("ptr", f.offset(record, int(Field.DIMS), "i64"))
        actual = part(DIMS, "ptr")
        with f.loop(0, ndim) as axis:
            a = f.load("i64", f.offset(actual, axis.index, "i64"))
            require(f.compare("icmp eq", a, f.load("i64", f.offset(dims, axis.index, "i64"))))
        f.ret(integer(1, "i1"))
        f.block(no)
        f.ret(integer(0, "i1"))
        return f.finish()

    def _apart(self) -> str:
        """i1 apart(array, nbytes, array, nbytes): the memory of the two does not overlap."""
        f = self.module.function("apart", ["ptr", "i64", "ptr", "i64"], "i1")
        a, a_bytes, b, b_bytes = f.params
        a_start, b_start = (f.load("i64", f.offset(x, DATA, "i8")) for x in (a, b))
        a_end = f.binary("add", a_start, a_bytes)
        b_end = f.binary("add", b_start, b_bytes)
        before = f.compare("icmp ule", a_end, b_start)
        f.ret(f.binary("or", before, f.compare("icmp ule", b_end, a_start)))
        return f.finish()

    # -- the stages of a call

    def write(self) -> None:
        f = self.f
        leaves = self.at(Word.LEAVES)
        count = f.intrinsic("llvm.smax.i64", "i64", leaves, integer(1))
        objects = f.emit("ptr", f"alloca ptr, {count}, align 8")  # a result for each leaf
        answer = f.emit("ptr", "alloca ptr, align 8")  # what is returned, one reference of it
        self.require(self.same(f.load("i64", self.at(Word.CLOSED, "ptr")), 0))
        self._check_feeds()
        f.branch_if(self.is_null(self.names), "fresh", "given")
        f.block("given")
        self._take_out(objects, answer)
        f.branch("run")
        f.block("fresh")
        self._make_results(objects, answer)
        f.branch("run")
        f.block("run")
        self._run(objects, answer)
        f.block("drop")  # too late for anything but the slow way
        self.call("Py_DecRef", "void", f.load("ptr", answer))
        f.branch("miss")
        f.block("miss")
        f.ret(self.call("PyObject_Vectorcall", "ptr", self.at(Word.SLOW, "ptr"), self.args, self.nargs, self.names))
        f.finish()

    def _check_feeds(self) -> None:
        f = self.f
        self.require(self.same(self.nargs, self.at(Word.FEEDS)))
        records, array_type = self.at(Word.FEED_RECORDS, "ptr"), self.api("PyArray_Type")
        with f.loop(0, self.nargs) as feed:
            record = self.record(records, feed.index)
            array = self.item(self.args, feed.index)
            self.require(f.call(self.fits, "i1", array, record, integer(READABLE, "i32"), array_type))

    def _take_out(self, objects: Value, answer: Value) -> None:
        """The caller's arrays, where ``out`` is the only keyword and everything in it is exactly right."""
        f = self.f
        self.require(self.same(f.load("i64", f.offset(self.names, TUPLE_SIZE, "i8")), 1))
        self.require(self.same(f.load("ptr", f.offset(self.names, TUPLE_ITEM, "i8")), self.api("out")))
        out = self.item(self.args, self.nargs)
        leaves = self.at(Word.LEAVES)
        one, several, known = f.label("one"), f.label("several"), f.label("known")
        f.branch_if(self.same(self.at(Word.SINGLE), 0), several, one)
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
        records = self.at(Word.LEAF_RECORDS, "ptr")
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
        array_type = self.api("PyArray_Type")
        self.require(f.call(self.fits, "i1", array, record, integer(WRITABLE, "i32"), array_type))
        nbytes = self.field(record, Field.NBYTES)
        feeds = self.at(Word.FEED_RECORDS, "ptr")
        with f.loop(0, self.nargs) as feed:
            other = self.field(self.record(feeds, feed.index), Field.NBYTES)
            self.require(f.call(self.apart, "i1", array, nbytes, self.item(self.args, feed.index), other))
        with f.loop(0, index) as earlier:
            other_record = self.record(records, earlier.index)
            with f.when(f.compare("icmp ne", self.field(other_record, Field.DTYPE, "ptr"), Value("null", "ptr"))):
                other = self.field(other_record, Field.NBYTES)
                self.require(f.call(self.apart, "i1", array, nbytes, self.item(objects, earlier.index), other))
        f.branch(done)
        f.block(done)

    def _make_results(self, objects: Value, answer: Value) -> None:
        f = self.f
        leaves, records = self.at(Word.LEAVES), self.at(Word.LEAF_RECORDS, "ptr")
        null, none = Value("null", "ptr"), self.api("Py_None")
        one, several, done = f.label("one"), f.label("several"), f.label("made")
        f.branch_if(self.same(self.at(Word.SINGLE), 0), several, one)
        f.block(one)
        f.store(self._new_array(records), objects)
        f.store(f.load("ptr", objects), answer)
        self.require(f.compare("icmp ne", f.load("ptr", answer), null), "failed")
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
            f.branch(kept)
            f.block(kept)
            self.call("PyList_SetItem", "i32", result, leaf.index, self.item(objects, leaf.index))
        f.branch(done)
        f.block("out_of_memory")
        self.call("Py_DecRef", "void", f.load("ptr", answer))
        f.branch("failed")
        f.block("failed")  # with a Python exception set
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

    def _run(self, objects: Value, answer: Value) -> None:
        """Nothing from here on allocates, so nothing else runs in this thread until the program has."""
        f = self.f
        self.require(self.same(self.at(Word.BUSY), 0), "drop")
        gate = self.at(Word.GATE, "ptr")
        with f.when(f.compare("icmp ne", gate, Value("null", "ptr"))):
            self.require(self.same(f.load("i64", gate), 0), "drop")
        self._fill_table(objects)
        self._draw()
        busy = f.offset(self.words, int(Word.BUSY), "i64")
        f.store(integer(1), busy)
        status = self._call_main()
        with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
            self._fail(status, answer)
            f.block(f.label("unreachable"))
        f.store(integer(0), busy)
        writes, addresses = self.at(Word.WRITES, "ptr"), self.at(Word.VERSION_ADDRESSES, "ptr")
        with f.loop(0, self.at(Word.VERSIONS)) as written:
            number = f.binary("add", f.load("i64", writes), integer(1))
            f.store(number, writes)
            f.store(number, self.item(addresses, written.index))
        f.ret(f.load("ptr", answer))

    def _fill_table(self, objects: Value) -> None:
        f, table = self.f, self.at(Word.TABLE, "ptr")

        def put(record: Value, array: Value) -> None:
            data = f.load("ptr", f.offset(array, DATA, "i8"))
            f.store(data, f.offset(table, self.field(record, Field.SLOT), "ptr"))

        feeds, leaves = self.at(Word.FEED_RECORDS, "ptr"), self.at(Word.LEAF_RECORDS, "ptr")
        with f.loop(0, self.nargs) as feed:
            put(self.record(feeds, feed.index), self.item(self.args, feed.index))
        with f.loop(0, self.at(Word.LEAVES)) as leaf:
            record = self.record(leaves, leaf.index)
            with f.when(f.compare("icmp ne", self.field(record, Field.DTYPE, "ptr"), Value("null", "ptr"))):
                put(record, self.item(objects, leaf.index))

    def _draw(self) -> None:
        """Take the run number, as the key of this call's random ops."""
        f = self.f
        random, key = self.at(Word.RANDOM, "ptr"), self.at(Word.KEY, "ptr")
        with f.when(f.compare("icmp ne", random, Value("null", "ptr"))):
            number = f.load("i64", f.offset(random, 1, "i64"))
            f.store(f.load("i64", random), key)
            f.store(number, f.offset(key, 1, "i64"))
            f.store(f.binary("add", number, integer(1)), f.offset(random, 1, "i64"))

    def _call_main(self) -> Value:
        f = self.f
        main, *operands = (self.at(word, "ptr") for word in (Word.MAIN, Word.TABLE, Word.ARENA, Word.POOL))
        passed = ", ".join(map(str, operands))
        short, long, done = f.label("short"), f.label("long"), f.label("ran")
        f.branch_if(self.same(self.at(Word.RELEASES), 0), short, long)
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
        random, key = self.at(Word.RANDOM, "ptr"), self.at(Word.KEY, "ptr")
        with f.when(f.compare("icmp ne", random, null)):
            number = f.load("i64", f.offset(key, 1, "i64"))
            place = f.offset(random, 1, "i64")
            with f.when(self.same(f.load("i64", place), f.binary("add", number, integer(1)))):
                f.store(number, place)
        self.call("Py_DecRef", "void", f.load("ptr", answer))
        code = self.call("PyLong_FromLong", "ptr", f.emit("i64", f"sext {status} to i64"))
        raised = self.call("PyObject_CallOneArg", "ptr", self.at(Word.FAIL, "ptr"), code)
        self.call("Py_DecRef", "void", code)
        f.store(integer(0), f.offset(self.words, int(Word.BUSY), "i64"))
        f.ret(raised)  # null: the exception is set


# -- making entries -------------------------------------------------------------------------------------------------


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


METH_FASTCALL_KEYWORDS = 0x0080 | 0x0002
_OUT = sys.intern("out")


@frozen
class _Machinery:
    """What all entries of a process share."""

    module: NativeModule
    definition: _MethodDef
    api: np.ndarray[Any, np.dtype[np.uint64]]


NEW_FROM_DESCR = 94  # PyArray_NewFromDescr


def _text(target: Target) -> str:
    module = Module(target)
    _Writer(module).write()
    write_forward(module)
    return module.text()


@functools.cache
def _machinery() -> _Machinery | None:
    if not layout_is_known():
        return None
    objects = {"PyArray_Type": np.ndarray, "PyList_Type": list, "Py_None": None, "out": _OUT}
    addresses = {name: id(value) for name, value in objects.items()}
    addresses["PyArray_NewFromDescr"] = results.numpy_api(NEW_FROM_DESCR)
    addresses["PyDataMem_SetHandler"] = results.numpy_api(results.SET_HANDLER)
    for name in API:
        if name not in addresses:
            addresses[name] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    target = current_target()
    native = NativeModule(functools.partial(_text, target), target, key=f"entry for {sys.implementation.cache_tag}")
    definition = _MethodDef(b"executable", native.address("enter"), METH_FASTCALL_KEYWORDS, None)
    return _Machinery(native, definition, np.array([addresses[name] for name in API], np.uint64))


def forward_address() -> int:
    """Of the function by which objects are called (``runtime.vectorcall``); 0 where there are no entries either."""
    machinery = _machinery()
    return 0 if machinery is None else machinery.module.address("forward")


class _Descriptor(np.ndarray[Any, np.dtype[np.uint64]]):
    """The words, and everything that must live as long as the entry does."""

    kept: tuple[object, ...]


@frozen
class ArraySpec:
    """An array of a call: where its address goes and its type; an op has no type."""

    slot: int
    type: TensorType | None


@frozen
class EntrySpec:
    """What an entry does. Addresses are those of memory that ``kept`` keeps alive; 0 says: not needed."""

    main: int
    table: int
    arena: int
    pool: int
    releases: bool
    gate: int
    closed: int
    random: int
    key: int
    feeds: Sequence[ArraySpec]
    leaves: Sequence[ArraySpec]
    single: bool
    writes: int
    versions: Sequence[int]
    slow: Callable[..., Any]
    fail: Callable[[int], Any]
    kept: tuple[object, ...]


def make_entry(spec: EntrySpec) -> Callable[..., Any] | None:
    """A Python function for ``spec``; None where this Python or NumPy has another layout, or a call is too large."""
    machinery = _machinery()
    if machinery is None or len(spec.leaves) > MOST_LEAVES:
        return None
    feeds, feed_dims = _records(spec.feeds, made=False)
    leaves, leaf_dims = _records(spec.leaves, made=True)
    versions = np.array(list(spec.versions) or [0], np.uint64)
    words = np.zeros(Word.FIRST_API + len(API), np.uint64).view(_Descriptor)
    values = {
        Word.MAIN: spec.main, Word.TABLE: spec.table, Word.ARENA: spec.arena, Word.RELEASES: int(spec.releases),
        Word.GATE: spec.gate, Word.CLOSED: spec.closed, Word.RANDOM: spec.random, Word.KEY: spec.key,
        Word.FEEDS: len(spec.feeds), Word.FEED_RECORDS: feeds.ctypes.data,
        Word.LEAVES: len(spec.leaves), Word.LEAF_RECORDS: leaves.ctypes.data, Word.SINGLE: int(spec.single),
        Word.WRITES: spec.writes, Word.VERSIONS: len(spec.versions), Word.VERSION_ADDRESSES: versions.ctypes.data,
        Word.SLOW: id(spec.slow), Word.FAIL: id(spec.fail), Word.POOL: spec.pool,
    }  # fmt: skip
    for word, value in values.items():
        words[word] = value
    words[Word.FIRST_API :] = machinery.api
    words.kept = (spec, feeds, feed_dims, leaves, leaf_dims, versions, machinery)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    entry: Callable[..., Any] = new(ctypes.addressof(machinery.definition), words, None)
    return entry


_Words = np.ndarray[Any, np.dtype[np.int64]]


def _records(specs: Sequence[ArraySpec], *, made: bool) -> tuple[_Words, list[object]]:
    """The records of arrays that the entry is given or makes, and what they point to."""
    records = np.zeros((max(len(specs), 1), RECORD), np.int64)
    kept: list[object] = []
    for record, spec in zip(records, specs, strict=False):
        if spec.type is None:
            continue
        shape = sizes(spec.type.shape)
        dims = np.array(shape or (0,), np.int64)
        dtype = np.dtype(spec.type.dtype.name)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        handler = results.handler() if made and nbytes >= results.RECYCLED_FROM else None
        kept += [dims, dtype, handler]
        record[:] = spec.slot, id(dtype), len(shape), dims.ctypes.data, nbytes, 0 if handler is None else id(handler)
    return records, kept
