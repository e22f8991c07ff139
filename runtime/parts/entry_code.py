"""The code of an entry while it is written: the words and records of a call, calls of Python, and whose the words are.

Input: the function that is written. Output: LLVM values. Words, records and offsets are those of ``entry_words``.
"""

from __future__ import annotations

import contextlib

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import Function, Value, integer
from staticgrad.runtime.parts.entry_words import API, DATA, RECORD, EntryWord
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED


class EntryWriter:
    """Writes into ``PyObject *enter(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)``."""

    def __init__(self, f: Function) -> None:
        self.f = f
        own, self.args, self.nargs, self.names = f.params
        self.words = f.load("ptr", f.offset(own, DATA, "i8"))

    def at(self, word: int, type_: str = "i64") -> Value:
        """A word of the entry."""
        return self.f.load(type_, self.f.offset(self.words, word, "i64"))

    def api(self, name: str) -> Value:
        """An object or function of Python or NumPy."""
        return self.at(EntryWord.FIRST_API + API.index(name), "ptr")

    def call(self, name: str, result: str, *args: Value) -> Value:
        """Call a function of Python or NumPy."""
        text = f"call {result} {self.api(name).text}({', '.join(map(str, args))})"
        if result == "void":
            self.f.line(text)
            return Value("", "void")
        return self.f.emit(result, text)

    def require(self, condition: Value, otherwise: str = "leave") -> None:
        """Go on where this holds, else at another label."""
        going_on = self.f.label("on")
        self.f.branch_if(condition, going_on, otherwise)
        self.f.block(going_on)

    def same(self, a: Value, b: Value | int) -> Value:
        return self.f.compare("icmp eq", a, integer(b) if isinstance(b, int) else b)

    def is_null(self, pointer: Value) -> Value:
        return self.f.compare("icmp eq", pointer, Value("null", "ptr"))

    def item(self, items: Value, index: Value, type_: str = "ptr") -> Value:
        """The item of an array of words."""
        return self.f.load(type_, self.f.offset(items, index, "i64"))

    def record(self, records: Value, index: Value) -> Value:
        """The record of a feed or leaf."""
        return self.f.offset(records, self.f.mul(index, RECORD), "i64")

    def field(self, record: Value, field: int, type_: str = "i64") -> Value:
        """A field of a record."""
        return self.f.load(type_, self.f.offset(record, int(field), "i64"))

    def is_there(self, pointer: Value) -> Value:
        return self.f.compare("icmp ne", pointer, Value("null", "ptr"))

    def where_set(self, word: int) -> contextlib.AbstractContextManager[None]:
        """Code that runs where a word is an address."""
        return self.f.when(self.is_there(self.at(word, "ptr")))

    # -- the words, which are one call's at a time --------------------------------------------------------------------

    def take_words(self) -> None:
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

    def give_words(self) -> None:
        busy = self.f.offset(self.words, EntryWord.BUSY, "i64")
        self.f.line(f"store atomic i64 0, {busy} release, align 8")


@frozen
class EntryMemory:
    """The memory of a call on the stack: its results as ``objects`` and where their data lie (``made``), one reference
    of what is returned (``answer``), where the data of feeds lie (``given``), room for those that are numbers of Python
    (``numbers``), and for one more (``spare``)."""

    objects: Value
    made: Value
    answer: Value
    given: Value
    numbers: Value
    spare: Value


def call_memory(code: EntryWriter) -> EntryMemory:
    """Room on the stack for a call."""
    f = code.f
    leaves, feeds = code.at(EntryWord.LEAVES), code.at(EntryWord.FEEDS)
    count = f.intrinsic("llvm.smax.i64", "i64", leaves, integer(1))
    objects, made = (f.emit("ptr", f"alloca ptr, {count}, align 8") for _ in range(2))
    answer = f.emit("ptr", "alloca ptr, align 8")
    given = f.emit("ptr", f"alloca ptr, {feeds}, align 8")
    numbers = f.emit("ptr", f"alloca i64, {feeds}, align 8")
    return EntryMemory(objects, made, answer, given, numbers, f.emit("ptr", "alloca i64, align 8"))
