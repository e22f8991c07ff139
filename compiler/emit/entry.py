"""The entry: steps in order and a plan come in, LLVM text goes out: of one module, or of several for a long program.

``i32 @main(ptr slots, ptr arena, ptr pool)`` calls one function after the other, or, where there are very many, a
function for each segment of them, as the code generator takes longer than in proportion for a long function.
Kernels that are equal up to their operands are one function, and those that take long are handed the pool
(``emit.parallel``), which may be null. A check that fails ends the run with its number. With ``poison`` the arena is
filled with 0xFF bytes (NaN for floats, -1 for integers) where nothing lies that lives, at the start and after the last
use of each buffer, so a read outside its life shows at once. A ``timed`` program notes the clock after each step. Steps
that are ``prepared`` (``prepare.py``) come first, and run only if a variable that they read has another version than
when they ran last. A program that takes long looks between steps and in loops whether it shall end (``emit.polls``),
until the first write of state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from staticgrad.base.config import host_arch
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.base.types import sizes
from staticgrad.compiler.emit.families import emit_kernel
from staticgrad.compiler.emit.llvm import Function, IRModule, Value, integer
from staticgrad.compiler.emit.loops import LoopWriter, write_step
from staticgrad.compiler.emit.polls import commit, end_if_interrupted
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.plan import Plan
from staticgrad.compiler.program.program import POISON
from staticgrad.compiler.program.slots import Check, CollectiveSlot, Prepared, SizesSlot, Slot
from staticgrad.compiler.program.step import Branch, Loop, Rewind, Step, asking

SEGMENT = 128  # steps in one function
MOST_OPERANDS = 1024  # of them together, so that no function loads very many pointers


def read_clock(f: Function) -> Value:
    """Read the counter of even pace that programs of users may read: the time stamp counter, or ARM's virtual one."""
    arch = f.target.isa.arch or host_arch()
    if arch == "aarch64":  # for which LLVM has no steady counter: it is always 0
        return f.intrinsic("llvm.read_volatile_register.i64", "i64", Value('!{!"cntvct_el0"}', "metadata"))
    return f.intrinsic("llvm.readcyclecounter" if arch == "x86_64" else "llvm.readsteadycounter", "i64")


@frozen
class ModuleText:
    """The texts of the program's modules, and the checks in the order of their status codes."""

    texts: tuple[str, ...]
    checks: tuple[Check, ...]
    shares: bool  # some kernel can use a pool
    polls: bool  # it looks whether it shall end
    hot_modules: int | None  # the first ones; None where all had better be optimised at once


class _Main:
    """Writes ``main``, a segment of it, or the function of a loop's part."""

    def __init__(
        self,
        module: IRModule,
        numbers: Mapping[Slot, int],
        plan: Plan,
        poison: bool,
        checks: list[Check],
        name: str = "main",
        base: int = 0,
        polls_before: float = 0,
        turns: float = 1,
        *,
        is_external: bool = False,
        stepwise: bool = False,
    ) -> None:
        self.module = module
        self.f: Function = module.function(name, ["ptr", "ptr", "ptr"], "i32", internal=not is_external)
        self.most = 1 if stepwise else SEGMENT  # steps in one function, which then are functions to be called
        for slot, position in numbers.items():
            if isinstance(slot, SizesSlot):
                self.f.opening.sizes_at(self.f.params[0], position)
        self.base = base  # where the arena of a part begins in the program's
        self.plan = plan
        self.poison = poison
        self.numbers = numbers
        self.checks = checks  # of the whole program
        self.shares = False
        self.polls_before = polls_before  # the program looks whether it shall end in steps before this one
        self.turns = turns  # how often it is called in a call of the program
        self._unseen = 0.0  # estimated seconds since it last did
        self._bases: dict[Slot, Value] = {}
        self._pointers: Value | None = None  # on the stack: what a call out is handed
        self._ticks: str | None = None  # the global where the time after each step is noted
        self._ending: Mapping[int, Sequence[Temp]] = {}  # the buffers to poison after a time

    def note_times(self, steps: int) -> None:
        """Note the time before the first step and after each in words whose address the function ``ticks`` gives."""
        self._ticks = self.module.words("tick_words", steps + 1)
        f = self.module.function("ticks", [], "ptr", internal=False)
        f.ret(f.symbol(self._ticks))
        f.finish()

    def write(self, steps: Sequence[Step], prepared: Prepared | None = None) -> None:
        """The whole function: all steps, of which the first may be prepared."""
        if self.poison:
            self._ending = _ending(self.plan)
            for offset, nbytes in _gaps(self.plan):
                self._fill(offset, nbytes)
        self._note_time(0)
        begin = 0
        if prepared is not None:
            begin = prepared.steps
            self._prepare(steps[:begin], prepared)
        segments = _segments(steps[begin:], self.most)
        if len(segments) == 1 and self.most > 1:
            self._steps(steps[begin:], begin)
        else:
            self._segments(segments, begin)
        self._finish()

    def _prepare(self, steps: Sequence[Step], prepared: Prepared) -> None:
        """Run steps if the version of a variable differs from the one that they saw last; at the first call those that
        read none."""
        f = self.f

        def word(slot: Slot) -> Value:
            return f.load("ptr", f.offset(f.params[0], self.numbers[slot], "ptr"))

        seen = word(prepared.seen)
        versions = [f.load("i64", word(slot)) for slot in prepared.versions] or [integer(0)]
        places = [f.offset(seen, number, "i64") for number in range(len(versions))]
        changed = integer(0, "i1")
        for version, place in zip(versions, places, strict=True):
            changed = f.binary("or", changed, f.compare("icmp ne", version, f.load("i64", place)))
        ticks, self._ticks = self._ticks, None  # they are timed together: most calls skip them
        with f.when(changed):
            self._segments(_segments(steps, self.most), 0)
            for version, place in zip(versions, places, strict=True):
                f.store(version, place)
        self._ticks = ticks
        for number in range(len(steps)):
            self._note_time(number + 1)

    def _finish(self) -> None:
        self.f.ret(integer(0, "i32"))
        self.f.finish()

    def _segments(self, segments: Sequence[Sequence[Step]], first: int) -> None:
        for steps in segments:
            self._segment(steps, first)
            first += len(steps)

    def _segment(self, steps: Sequence[Step], first: int) -> None:
        """A call of a function of its own for some steps."""
        known = len(self.checks)
        stepwise = self.most == 1
        name = f"step{first}" if stepwise else self.module.unique(f"{self.f.name}.steps{first}")
        part = _Main(self.module, self.numbers, self.plan, self.poison, self.checks, name, self.base, self.polls_before,
                     self.turns, is_external=stepwise)  # fmt: skip
        part._ticks, part._ending = self._ticks, self._ending
        part._steps(steps, first)
        part._finish()
        self.shares |= part.shares
        status = self.f.call(name, "i32", *self.f.params)
        if len(self.checks) > known or first < self.polls_before:
            with self.f.when(self.f.compare("icmp ne", status, integer(0, "i32"))):
                self.f.ret(status)
                self.f.block(self.f.label("unreachable"))

    def _steps(self, steps: Sequence[Step], first: int) -> None:
        operands = [len(step.operands) for step in steps if step.callback is not None]
        if operands:
            most = 1 + max(operands)  # with the count of a collective operation
            self._pointers = self.f.emit("ptr", f"alloca ptr, i64 {most}, align 8")
        self._load_bases(steps)
        for time, step in enumerate(steps, first):
            if time == self.polls_before and time:
                commit(self.f)
            polls = time < self.polls_before
            with asking(step):
                self._step(step, polls)
            if polls:
                self._look(step)
            self._note_time(time + 1)
            for temp in self._ending.get(time + 1, ()):
                self._fill(self.plan.offsets[temp], temp.nbytes)

    def _note_time(self, number: int) -> None:
        if self._ticks is not None:
            self.f.store(read_clock(self.f), self.f.offset(self.f.symbol(self._ticks), number, "i64"))

    def _load_bases(self, steps: Sequence[Step]) -> None:
        used = [o.memory for step in steps for o in step.operands] + [s.callback for s in steps if s.callback]
        for memory in dict.fromkeys(used):
            if not isinstance(memory, Temp):
                place = self.f.offset(self.f.params[0], self.numbers[memory], "ptr")
                self._bases[memory] = self.f.load("ptr", place)

    def _address(self, memory: Memory, offset: int = 0) -> Value:
        if isinstance(memory, Temp):
            return self.f.offset(self.f.params[1], self.plan.offsets[memory] + offset, "i8")
        return self.f.offset(self._bases[memory], offset, "i8")

    def _fill(self, offset: int, nbytes: int) -> None:
        if nbytes:
            place = self.f.offset(self.f.params[1], offset, "i8")
            name = f"llvm.memset.p0.{self.f.word}"
            self.module.declare(name, "void", ["ptr", "i8", self.f.word, "i1"])
            args = (place, integer(POISON - 256, "i8"), self.f.index(nbytes), integer(0, "i1"))
            self.f.call(name, "void", *args)

    def _look(self, step: Step) -> None:
        """The program ends if it shall: it asks where that was long ago, and is told where a kernel or a Python
        function may have been."""
        self._unseen += step.seconds
        asks = self._unseen >= RATES.poll_seconds
        if asks:
            self._unseen = 0.0
        is_told = step.callback is not None or (step.planned is not None and step.planned.is_shared)
        if asks or is_told:
            end_if_interrupted(self.f, asks=asks)

    def _step(self, step: Step, polls: bool) -> None:
        if step.planned is not None:
            shared = step.planned.is_shared
            self.shares |= shared
            name = emit_kernel(self.module, step.planned, f"{step.family}_{step.name}")
            pointers = [self._address(o.memory, o.offset) for o in step.operands]
            scratch = self._address(step.scratch) if step.scratch is not None else Value("null", "ptr")
            self.module.spend(name, step.seconds * self.turns)
            self.f.call(name, "void", *pointers, scratch, *self.f.params[2:] * shared)
        elif step.loop is not None:
            self._run_parts(step, step.loop, polls)
        elif step.callback is not None:
            self._call_out(step)
        elif step.check is not None:
            self._test(step.check, step.operands[0])

    def _run_parts(self, step: Step, loop: Loop | Rewind | Branch, polls: bool) -> None:
        """A loop or branch: its parts become functions of their own, with arenas inside the scratch memory."""
        scratch = step.scratch
        assert scratch is not None
        functions = []
        for part, arena in zip(loop.parts, loop.arenas, strict=True):
            base = self.base + self.plan.offsets[scratch] + arena
            name = self.module.unique(f"{self.f.name}.{step.name}")
            until = math.inf if polls else 0
            turns = self.turns * loop.most_turns
            writer = _Main(
                self.module, _numbers(part.slots), part.plan, self.poison, self.checks, name, base, until, turns
            )
            writer.write(part.steps)
            self.module.spend(name, RATES.turn_seconds * turns)
            self.shares |= writer.shares
            functions.append(name)

        def operand(number: int) -> Value:
            return self._address(step.operands[number].memory)

        write_step(step, LoopWriter(self.f, operand, lambda place: self._address(scratch, place), functions, polls))

    def _call_out(self, step: Step) -> None:
        f, check, slot = self.f, step.check, step.callback
        table = self._pointers
        assert slot is not None
        assert table is not None
        first = 0
        if isinstance(slot, CollectiveSlot):
            f.store(f.int64(math.prod(sizes(slot.type.shape))), table)
            first = 1
        for position, operand in enumerate(step.operands, first):
            f.store(self._address(operand.memory), f.offset(table, position, "ptr"))
        words = self._bases[slot]
        status = f.emit("i32", f"call i32 {f.load('ptr', words).text}({words}, {table})")
        if check is not None:
            self._end_if(f.compare("icmp ne", status, integer(0, "i32")), check)

    def _test(self, check: Check, found: Operand) -> None:
        f = self.f
        assert isinstance(found.memory, Temp)
        place = self._address(found.memory)
        low = f.load("i64", place)
        if check.kind == "bounds":
            high = f.load("i64", f.offset(place, 1, "i64"))
            below = f.compare("icmp slt", low, integer(0))
            above = f.compare("icmp sge", high, f.int64(check.size))
            failed = f.binary("or", below, above)
        else:
            failed = f.compare("icmp eq", low, integer(0))
        self._end_if(failed, replace(check, offset=self.base + self.plan.offsets[found.memory]))

    def _end_if(self, failed: Value, check: Check) -> None:
        self.checks.append(check)
        with self.f.when(failed):
            self.f.ret(integer(len(self.checks), "i32"))
            self.f.block(self.f.label("unreachable"))


def _gaps(plan: Plan) -> list[tuple[int, int]]:
    """The gaps of the arena in which nothing lies before the first step, as offsets and bytes."""
    before = sorted(plan.before)
    ends = [0, *(offset + nbytes for offset, nbytes in before)]
    starts = [*(offset for offset, _ in before), plan.arena_bytes]
    return [(end, start - end) for end, start in zip(ends, starts, strict=True) if start > end]


def _segments(steps: Sequence[Step], most: int) -> list[list[Step]]:
    """Steps in order, cut where a function would have more than ``most`` steps, or very many operands; at least one
    piece."""
    found: list[list[Step]] = [[]]
    operands = 0
    for step in steps:
        operands += len(step.operands)
        if found[-1] and (len(found[-1]) == most or operands > MOST_OPERANDS):
            found.append([])
            operands = len(step.operands)
        found[-1].append(step)
    return found


def _ending(plan: Plan) -> dict[int, list[Temp]]:
    """The buffers whose lives end at a time."""
    found: dict[int, list[Temp]] = {}
    for temp, interval in zip(plan.temps, plan.intervals, strict=True):
        found.setdefault(interval.last, []).append(temp)
    return found


def _numbers(slots: Sequence[Slot]) -> dict[Slot, int]:
    return {slot: number for number, slot in enumerate(slots)}


@phase("emit text")
def emit_entry(
    steps: Sequence[Step], slots: Sequence[Slot], plan: Plan, target: Target, *, poison: bool, timed: bool = False,
    prepared: Prepared | None = None, stepwise: bool = False, tiers: bool = False,
) -> ModuleText:  # fmt: skip
    """The text of the modules that run ``steps`` over ``plan``; ``stepwise`` as functions ``step0``, ``step1``, …, for
    two ``tiers`` of code with the hot functions in the first modules."""
    module = IRModule(target, has_sizes=any(isinstance(slot, SizesSlot) for slot in slots))
    writing = next((time for time, step in enumerate(steps) if step.writes_state), len(steps))
    polls = sum(step.seconds for step in steps[:writing]) >= RATES.polls_from_seconds
    main = _Main(module, _numbers(slots), plan, poison, [], polls_before=writing if polls else 0, is_external=True,
                 stepwise=stepwise)  # fmt: skip
    if timed:
        main.note_times(len(steps))
    main.write(steps, prepared)
    hot = module.hot() if tiers else None
    first, others = module.texts_apart(hot or ())
    number = None if hot is None else len(first)
    return ModuleText((*first, *others), tuple(main.checks), main.shares, polls, number)
