"""Code of loops and branches: a table of pointers is kept for each part, and the part is called.

Input: a step whose kernel is a ``Loop`` or ``Branch``, where its operands and its scratch memory lie. Output: code
in the function under construction. Nothing is allocated; rows are never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staticgrad.base.extents import is_open
from staticgrad.compiler.emit.llvm import Function, Value, integer
from staticgrad.compiler.emit.polls import end_if_interrupted, turns_between
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.program.slots import FeedSlot, FetchSlot
from staticgrad.compiler.program.step import Branch, Loop, Part, Rewind, Step, lent_slots

Address = Callable[[int], Value]  # of an operand, by its number
Table = dict[int, Value]  # by the number of a feed or fetch of a part, its place in the table of pointers


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

    def _tables(
        self, step: Loop | Rewind | Branch, part: Part, table: int
    ) -> tuple[dict[int, Value], dict[int, Value]]:
        """The places in a part's table of its feeds and fetches, by number; what is lent is put into its place."""
        lent = {slot: step.inputs + step.outputs + i for i, slot in enumerate(lent_slots(step.parts))}
        feeds: Table = {}
        fetches: Table = {}
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
        self._note(step, feeds)
        self._call(0, step.tables[0], step.arenas[0])
        self._advance(step, feeds, fetches)
        if self.polls and step.seconds >= RATES.poll_seconds:
            self._look(step.taken, turns_between(step.turn_seconds))
        f.branch(head)
        f.block(done)
        self._end(step, feeds)

    def _note(self, step: Loop, feeds: Table) -> None:
        """Take snapshots if they are due before this turn."""
        if not step.kept:
            return
        f = self.f
        noted = f.load("i64", self.place(step.noted))
        due = self._table("starts", np.array([*step.starts, -1], np.int64))
        turn = f.load("i64", f.offset(due, noted, "i64"))
        with f.when(f.compare("icmp eq", f.load("i64", self.place(step.taken)), turn)):
            for i, j in enumerate(step.kept):
                nbytes = step.carries[j]
                snapshots = self.operand(step.inputs + step.first_result + len(step.results) + i)
                self._move(self._row(snapshots, noted, nbytes), f.load("ptr", feeds[1 + j]), f.index(nbytes))
            f.store(f.binary("add", noted, integer(1)), self.place(step.noted))

    def _table(self, stem: str, numbers: NDArray[Any]) -> Value:
        """The address of constants."""
        module = self.f.module
        return self.f.symbol(module.table(module.unique(f"{self.f.name}.{stem}"), numbers))

    def _move(self, target: Value, source: Value, nbytes: Value) -> None:
        f = self.f
        f.module.declare(f"llvm.memmove.p0.p0.{f.word}", "void", ["ptr", "ptr", f.word, "i1"])
        f.call(f"llvm.memmove.p0.p0.{f.word}", "void", target, source, nbytes, integer(0, "i1"))

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

    def _start(self, step: Loop, feeds: Table, fetches: Table, first: Value) -> None:
        f = self.f
        f.store(first, self.place(step.turn))
        f.store(integer(0), self.place(step.taken))
        f.store(integer(0), self.place(step.noted))
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
        base = step.inputs + step.first_result
        for i, row in enumerate(step.results):
            f.store(self._row(self.operand(base + i), first, row), fetches[len(step.carries) + i])

    @staticmethod
    def _is_exact(step: Loop) -> bool:
        """True if the number of turns that the loop takes is known."""
        return step.length is not None and not is_open(step.length) and not step.counted and step.condition is None

    def _row(self, base: Value, number: Value, row: int) -> Value:
        return self.f.offset(base, self.f.binary("mul", self.f.index(number), self.f.index(row)), "i8")

    def _start_condition(self, step: Loop) -> Table | None:
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

    def _advance(self, step: Loop, feeds: Table, fetches: Table) -> None:
        f, by = self.f, -1 if step.reverse else 1
        for place, change in ((step.turn, by), (step.taken, 1)):
            counter = self.place(place)
            f.store(f.binary("add", f.load("i64", counter), integer(change)), counter)
        self._swap(step, feeds, fetches)
        moving = [(feeds[1 + len(step.carries) + i], row) for i, row in enumerate(step.sequences)]
        moving += [(fetches[len(step.carries) + i], row) for i, row in enumerate(step.results)]
        for pointer, row in moving:
            f.store(f.offset(f.load("ptr", pointer), f.index(by * row), "i8"), pointer)

    def _swap(self, step: Loop | Rewind, feeds: Table, fetches: Table) -> None:
        """Let the next turn read the carries that this one wrote."""
        f = self.f
        for j in range(len(step.carries)):
            written, free = f.load("ptr", fetches[j]), self.place(step.free[j])
            f.store(f.load("ptr", free), fetches[j])
            f.store(written, feeds[1 + j])
            f.store(written, free)

    def _end(self, step: Loop, feeds: Table) -> None:
        f = self.f
        if not self._is_exact(step) or step.length == 0:
            self._hand_out(step, feeds)
        if step.condition is not None:
            f.store(f.load("i64", self.place(step.taken)), self.operand(step.inputs + len(step.carries)))

    def _hand_out(self, step: Loop | Rewind, feeds: Table) -> None:
        """Move the last carries to where they are handed out."""
        f = self.f
        for j, nbytes in enumerate(map(f.index, step.carries)):
            source, result = f.load("ptr", feeds[1 + j]), self.operand(step.inputs + j)
            with f.when(f.compare("icmp ne", source, result)):
                self._move(result, source, nbytes)

    # -- rewound loops ----------------------------------------------------------------------------------------------

    def rewind(self, step: Rewind) -> None:
        f, plan = self.f, step.schedule
        feeds, fetches = self._tables(step, step.body, step.tables[0])
        again, following = self._tables(step, step.advance, step.tables[1])
        turns = f.load("i64", self.operand(0)) if step.counted else integer(step.length)
        carries, states = len(step.carries), len(step.states)
        slots = self._snapshots(step, turns)
        for table in (feeds, again):
            f.store(self.place(step.turn), table[0])
        for j in range(carries):
            f.store(self.operand(step.counted + j), feeds[1 + j])
            f.store(self.operand(step.inputs + j), fetches[j])
            f.store(self.place(step.spare[j]), self.place(step.free[j]))
        for i in range(step.captured):
            x = self.operand(step.inputs - step.captured + i)
            f.store(x, feeds[1 + carries + states + len(step.sequences) + i])
            f.store(x, again[1 + states + len(step.sequences) + i])
        rows = [self.operand(step.counted + carries + states + i) for i in range(len(step.sequences))]
        stacks = [self.operand(step.inputs + carries + i) for i in range(len(step.results))]
        ends = self._table("ends", np.append(plan.ends, np.int32(0)))
        f.store(f.binary("sub", turns, integer(1)), self.place(step.goal))

        def turn_to(turn: Value, table: Table, first: int) -> Value:
            number = turn if step.reverse else f.binary("sub", f.binary("sub", turns, integer(1)), turn)
            f.store(number, self.place(step.turn))
            for i, row in enumerate(step.sequences):
                f.store(self._row(rows[i], number, row), table[first + i])
            return number

        names = ("head", "rewind", "test", "advance", "ready", "ended")
        head, rewind, test, advance, ready, done = map(f.label, names)
        f.branch(head)
        f.block(head)
        goal = f.load("i64", self.place(step.goal))
        f.branch_if(f.compare("icmp sge", goal, integer(0)), rewind, done)
        f.block(rewind)
        top = f.load("i64", self.place(step.top))
        f.store(f.load("i64", self._word(step.turns, top)), self.place(step.at))
        for j, nbytes in enumerate(step.states):
            f.store(self._row(slots[j], top, nbytes), again[1 + j])
        f.branch(test)
        f.block(test)
        at = f.load("i64", self.place(step.at))
        f.branch_if(f.compare("icmp slt", at, goal), advance if plan.advances else ready, ready)
        if plan.advances:
            f.block(advance)
            self._advance_to(step, at, goal, ends, slots, again, following, turn_to)
            f.branch(test)
        f.block(ready)
        for j in range(states):
            f.store(f.load("ptr", again[1 + j]), feeds[1 + carries + j])
        number = turn_to(goal, feeds, 1 + carries + states)
        for i, row in enumerate(step.results):
            f.store(self._row(stacks[i], number, row), fetches[carries + i])
        self._call(0, step.tables[0], step.arena)
        self._swap(step, feeds, fetches)
        top = f.load("i64", self.place(step.top))
        is_used = f.compare("icmp eq", f.load("i64", self._word(step.turns, top)), goal)
        f.store(f.select(is_used, f.binary("sub", top, integer(1)), top), self.place(step.top))
        f.store(f.binary("sub", goal, integer(1)), self.place(step.goal))
        if self.polls and step.seconds >= RATES.poll_seconds:
            self._look(step.goal, turns_between(step.turn_seconds))
        f.branch(head)
        f.block(done)
        self._hand_out(step, feeds)

    def _snapshots(self, step: Rewind, turns: Value) -> list[Value]:
        """The places of the snapshots of each state. The words that tell their turns are set, and which is the last."""
        f, plan = self.f, step.schedule
        slots = [self.operand(step.counted + len(step.carries) + j) for j in range(len(step.states))]
        if not step.owns:
            for j, nbytes in enumerate(step.states):
                copy = self.place(step.copies[j])
                self._move(copy, slots[j], f.index(len(plan.starts) * nbytes))
                slots[j] = copy
        starts = self._table("starts", np.array(plan.starts, np.int64))
        f.store(integer(0), self.place(step.top))
        with f.loop(0, len(plan.starts)) as loop:
            first = f.load("i64", f.offset(starts, loop.index, "i64"))
            f.store(first, self._word(step.turns, loop.index))
            with f.when(f.compare("icmp slt", first, turns)):
                f.store(f.int64(loop.index), self.place(step.top))
        return slots

    def _word(self, first: int, number: Value) -> Value:
        return self.f.offset(self.place(first), number, "i64")

    def _advance_to(
        self,
        step: Rewind,
        at: Value,
        goal: Value,
        ends: Value,
        slots: Sequence[Value],
        again: Table,
        following: Table,
        turn_to: Callable[[Value, Table, int], Value],
    ) -> None:
        """One turn of the other loop, whose states go where a snapshot of them shall be, if one shall, else to the
        spare buffer in which this turn's are not."""
        f = self.f
        turn_to(at, again, 1 + len(step.states))
        then = f.binary("add", at, integer(1))
        serves = f.load("i32", f.offset(ends, then, "i32"))
        keeps = f.compare("icmp sgt", f.emit("i64", f"sext {serves} to i64"), goal)
        top = f.load("i64", self.place(step.top))
        above = f.binary("add", top, integer(1))
        is_odd = f.compare("icmp ne", f.binary("and", at, integer(1)), integer(0))
        for j, nbytes in enumerate(step.states):
            spare = f.select(is_odd, *(self.place(place) for place in step.again[j]))
            f.store(f.select(keeps, self._row(slots[j], above, nbytes), spare), following[j])
        self._call(1, step.tables[1], step.arena)
        for j in range(len(step.states)):
            f.store(f.load("ptr", following[j]), again[1 + j])
        with f.when(keeps):
            f.store(above, self.place(step.top))
            f.store(then, self._word(step.turns, above))
        f.store(then, self.place(step.at))


def write_step(step: Step, writer: LoopWriter) -> None:
    """Write a step that runs parts."""
    if isinstance(step.loop, Loop):
        writer.loop(step.loop)
    elif isinstance(step.loop, Rewind):
        writer.rewind(step.loop)
    elif isinstance(step.loop, Branch):
        writer.branch(step.loop)
