"""The session's lock in the code of an entry: when a call waits for it, holds it and gives it back."""

from __future__ import annotations

from staticgrad.compiler.emit.llvm import Value, integer
from staticgrad.runtime.parts.entry_code import EntryWriter
from staticgrad.runtime.parts.entry_words import DRAWS, EntryWord
from staticgrad.runtime.parts.locks import BRIEF
from staticgrad.runtime.parts.locks import LockWord as Lock


class CallLock:
    """Writes what a call does with the session's lock."""

    def __init__(self, code: EntryWriter) -> None:
        self.code = code
        self.f = code.f

    def _kind(self) -> Value:
        """The kind of hold on the lock until the run number is taken."""
        kind = self.code.at(EntryWord.KIND)
        return self.f.emit("i64", f"select {self.code.same(kind, DRAWS)}, i64 {BRIEF}, {kind}")

    def take(self, answer: Value) -> None:
        """Wait for the session's lock, without the GIL; the call ends where a signal handler raises meanwhile."""
        f = self.f
        with self.code.where_set(EntryWord.LOCK):
            acquire = self.code.at(EntryWord.ACQUIRE, "ptr")
            status = f.emit("i32", f"call i32 {acquire.text}({self.code.at(EntryWord.LOCK, 'ptr')}, {self._kind()})")
            with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
                self.code.call("Py_DecRef", "void", f.load("ptr", answer))
                self.code.give_words()
                f.ret(Value("null", "ptr"))
                f.block(f.label("unreachable"))

    def give(self) -> None:
        lock = self.code.at(EntryWord.LOCK, "ptr")
        self.f.line(f"call void {self.code.at(EntryWord.RELEASE, 'ptr').text}({lock}, {self._kind()})")

    def begin(self) -> None:
        """The run number is taken: a program that does not touch state goes on without the lock, one that writes says
        so in the lock."""
        f = self.f
        with self.code.where_set(EntryWord.LOCK):
            with f.when(self.code.same(self.code.at(EntryWord.KIND), DRAWS)):
                self.give()
            with self.code.where_set(EntryWord.WRITING):
                place = f.offset(self.code.at(EntryWord.LOCK, "ptr"), Lock.WRITING, "i64")
                f.store(f.load("i64", place), f.offset(self.code.words, EntryWord.WRITING_BEFORE, "i64"))
                f.store(self.code.at(EntryWord.WRITING), place)
        with self.code.where_set(EntryWord.BEGIN):
            f.line(f"call void {self.code.at(EntryWord.BEGIN, 'ptr').text}({self.code.at(EntryWord.POOL, 'ptr')})")

    def end(self) -> None:
        """Nothing is written any more, and the lock is given back."""
        f = self.f
        with self.code.where_set(EntryWord.LOCK):
            with self.code.where_set(EntryWord.WRITING):
                place = f.offset(self.code.at(EntryWord.LOCK, "ptr"), Lock.WRITING, "i64")
                f.store(self.code.at(EntryWord.WRITING_BEFORE), place)
            with f.when(f.compare("icmp ne", self.code.at(EntryWord.KIND), integer(DRAWS))):
                self.give()
