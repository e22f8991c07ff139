"""Code of loops and branches: a table of pointers is kept for each part, and the part is called.

Input: a step whose kernel is a ``Loop`` or ``Branch``, where its operands and its scratch memory lie. Output: code
in the function under construction. Nothing is allocated; rows are never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.base.extents import is_open
from staticgrad.compiler.emit.llvm import Function, Value, integer
from staticgrad.compiler.emit.polls import end_if_interrupted, turns_between
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.program.slots import FeedSlot, FetchSlot
from staticgrad.compiler.program.step import Branch, Loop, Part, Step, lent_slots

Address = Callable[[int], Value]  # of an operand, by its number


class LoopWriter:
    """Writes one loop or branch into ``f``.

    Args:
        operand: gives an operand's address.
        place: gives the address of a byte of the step's scratch memory.
        functions: the names of the parts' functions.
        polls: whether a loop that takes long looks whether the program shall end.
    """

    def __init__(
        self, f: Function, operand: Address, place: Address, functions: Sequence[str], polls: bool = False
    ) -> None:
        self.polls = polls
        self.f = f
        self.operand = operand
        self.place = place
        self.functions = functions

    # -- both -------------------------------------------------------------------------------------------------------

    def _tables(self, step: Loop | Branch, part: Part, table: int) -> tuple[dict[int, Value], dict[int, Value]]:
        """The places in a part's table of its feeds and fetches, by number; what is lent is put into its place."""
        lent = {slot: step.inputs + step.outputs + i for i, slot in enumerate(lent_slots(step.parts))}
        feeds: dict[int, Value] = {}
        fetches: dict[int, Value] = {}
        for number, slot in enumerate(part.slots):
            place = self.place(table + self.f.target.isa.pointer_bytes * number)
            if isinstance(slot, FeedSlot):
                feeds[slot.index] = place
            elif isinstance(slot, FetchSlot):
                fetches[slot.index] = place
            else:
                self.f.store(self.operand(lent[slot]), place)
        return feeds, fetches

    def _call(self, number: int, table: int, arena: int) -> None:
        f = self.f
        arguments = (self.place(table), self.place(arena), *f.params[2:])
        status = f.call(self.functions[number], "i32", *arguments)
        with f.when(f.compare("icmp ne", status, integer(0, "i32"))):
            f.ret(status)
            f.block(f.label("unreachable"))

    # -- branches ---------------------------------------------------------------------------------------------------

    def branch(self, step: Branch) -> None:
        f = self.f
        labels = [f.label("then"), f.label("otherwise")]
        done = f.label("chosen")
        holds = f.compare("icmp ne", f.load("i8", self.operand(0)), integer(0, "i8"))
        f.branch_if(holds, *labels)
        for number, (part, label) in enumerate(zip(step.parts, labels, strict=True)):
            f.block(label)
            feeds, fetches = self._tables(step, part, step.table)
            for i, place in feeds.items():
                f.store(self.operand(1 + i), place)
            for i, place in fetches.items():
                f.store(self.operand(step.inputs + i), place)
            self._call(number, step.table, step.arena)
            f.branch(done)
        f.block(done)

    # -- loops ------------------------------------------------------------------------------------------------------

    def loop(self, step: Loop) -> None:
        f = self.f
        feeds, fetches = self._tables(step, step.body, step.tables[0])
        turns = self._turns(step)
        first = integer(0)
        if step.reverse:
            assert turns is not None
            first = f.binary("sub", turns, integer(1))
        self._start(step, feeds, fetches, first)
        tests = self._start_condition(step)
        head, body, done = f.label("head"), f.label("body"), f.label("ended")
        f.branch(head)
        f.block(head)
        if turns is not None:
            goes_on = f.label("within")
            f.branch_if(f.compare("icmp slt", f.load("i64", self.place(step.taken)), turns), goes_on, done)
            f.block(goes_on)
        if tests is not None:
            for j in range(len(step.carries)):
                f.store(f.load("ptr", feeds[1 + j]), tests[1 + j])
            self._call(1, step.tables[1], step.arenas[1])
            f.branch_if(f.compare("icmp ne", f.load("i8", self.place(step.flag)), integer(0, "i8")), body, done)
        else:
            f.branch(body)
        f.block(body)
        self._call(0, step.tables[0], step.arenas[0])
        self._advance(step, feeds, fetches)
        if self.polls and step.seconds >= RATES.poll_seconds:
            self._look(step.taken, turns_between(step.turn_seconds))
        f.branch(head)
        f.block(done)
        self._end(step, feeds)

    def _look(self, taken: int, every: int) -> None:
        """Let the program end, if it was interrupted, after each ``every`` turns, a power of two."""
        f = self.f
        past = f.binary("and", f.load("i64", self.place(taken)), integer(every - 1))
        with f.when(f.compare("icmp eq", past, integer(0))):
            end_if_interrupted(f, asks=True)

    def _turns(self, step: Loop) -> Value | None:
        if step.counted:
            return self.f.load("i64", self.operand(0))
        return None if step.length is None else self.f.int64(step.length)

    def _start(self, step: Loop, feeds: dict[int, Value], fetches: dict[int, Value], first: Value) -> None:
        f = self.f
        f.store(first, self.place(step.turn))
        f.store(integer(0), self.place(step.taken))
        f.store(self.place(step.turn), feeds[0])
        for j in range(len(step.carries)):
            result, spare = self.operand(step.inputs + j), self.place(step.spare[j])
            if self._is_exact(step) and step.length is not None and step.length % 2 == 0:
                result, spare = spare, result  # so that the last turn writes the result
            f.store(self.operand(step.counted + j), feeds[1 + j])
            f.store(result, fetches[j])
            f.store(spare, self.place(step.free[j]))
        base, feed = step.counted + len(step.carries), 1 + len(step.carries)
        for i, row in enumerate(step.sequences):
            f.store(self._row(self.operand(base + i), first, row), feeds[feed + i])
        base, feed = base + len(step.sequences), feed + len(step.sequences)
        for i in range(step.captured):
            f.store(self.operand(base + i), feeds[feed + i])
        base = step.inputs + step.outputs - len(step.results)
        for i, row in enumerate(step.results):
            f.store(self._row(self.operand(base + i), first, row), fetches[len(step.carries) + i])

    @staticmethod
    def _is_exact(step: Loop) -> bool:
        """True if the number of turns that the loop takes is known."""
        return step.length is not None and not is_open(step.length) and not step.counted and step.condition is None

    def _row(self, base: Value, number: Value, row: int) -> Value:
        return self.f.offset(base, self.f.binary("mul", self.f.index(number), self.f.index(row)), "i8")

    def _start_condition(self, step: Loop) -> dict[int, Value] | None:
        """The places of the condition's feeds; all but the carries are set."""
        if step.condition is None:
            return None
        f = self.f
        feeds, fetches = self._tables(step, step.condition, step.tables[1])
        f.store(self.place(step.turn), feeds[0])
        f.store(self.place(step.flag), fetches[0])
        skip = 1 + len(step.carries) + len(step.sequences)
        for i in range(step.captured):
            f.store(self.operand(step.inputs - step.captured + i), feeds[skip + i])
        return feeds

    def _advance(self, step: Loop, feeds: dict[int, Value], fetches: dict[int, Value]) -> None:
        f, by = self.f, -1 if step.reverse else 1
        for place, change in ((step.turn, by), (step.taken, 1)):
            counter = self.place(place)
            f.store(f.binary("add", f.load("i64", counter), integer(change)), counter)
        for j in range(len(step.carries)):
            written, free = f.load("ptr", fetches[j]), self.place(step.free[j])
            f.store(f.load("ptr", free), fetches[j])
            f.store(written, feeds[1 + j])
            f.store(written, free)
        moving = [(feeds[1 + len(step.carries) + i], row) for i, row in enumerate(step.sequences)]
        moving += [(fetches[len(step.carries) + i], row) for i, row in enumerate(step.results)]
        for pointer, row in moving:
            f.store(f.offset(f.load("ptr", pointer), f.index(by * row), "i8"), pointer)

    def _end(self, step: Loop, feeds: dict[int, Value]) -> None:
        f = self.f
        if not self._is_exact(step) or step.length == 0:
            f.module.declare(f"llvm.memmove.p0.p0.{f.word}", "void", ["ptr", "ptr", f.word, "i1"])
            for j, nbytes in enumerate(map(f.index, step.carries)):
                source, result = f.load("ptr", feeds[1 + j]), self.operand(step.inputs + j)
                with f.when(f.compare("icmp ne", source, result)):
                    f.call(f"llvm.memmove.p0.p0.{f.word}", "void", result, source, nbytes, integer(0, "i1"))
        if step.condition is not None:
            f.store(f.load("i64", self.place(step.taken)), self.operand(step.inputs + len(step.carries)))


def write_step(step: Step, writer: LoopWriter) -> None:
    """Write a step that runs parts."""
    if isinstance(step.loop, Loop):
        writer.loop(step.loop)
    elif isinstance(step.loop, Branch):
        writer.branch(step.loop)
