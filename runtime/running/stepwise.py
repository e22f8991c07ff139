"""Programs run step by step and compared with what they should compute: what ``STATICGRAD_VERIFY=2`` asks for.

Input: a loaded program whose steps are functions of their own. Output: a function that is called as its ``main``
and does the same, or raises ``VerifyError`` with the first step that went wrong, its kernel and the user's line. Each
step is judged three times:

    kernel  what it wrote is what the NumPy reference of its kernel writes, from the same memory
    memory  it changed no buffer that a later step reads, but those that it writes
    graph   a tensor that is complete has the value that the interpreter gives it

The first finds faults of emitters, the second of live intervals and of addresses, the third of what rewrites steps:
lowering, fusion, inlining, splitting. How exact a result can be is found by running the reference again on inputs that
are off by a few units in the last place. Steps that call Python are believed.
"""

from __future__ import annotations

import ctypes
import math
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.base.types import dtype_of, is_floating, sizes
from staticgrad.compiler.kernels.matrix import Convolution, Packing
from staticgrad.compiler.kernels.reference import Noise
from staticgrad.compiler.native.module import Loaded
from staticgrad.compiler.program.memories import Memory, Temp, memory_bytes
from staticgrad.compiler.program.program import Stepwise
from staticgrad.compiler.program.slots import (
    CallbackSlot,
    CollectiveSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    KeySlot,
    Slot,
    StateSlot,
)
from staticgrad.compiler.program.step import Step
from staticgrad.compiler.regions.verify import VerifyError
from staticgrad.compiler.steps.reference import Memories, calls_python, run_step, terms_of_step, written_dtypes
from staticgrad.graph.dtypes import finfo
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import Array
from staticgrad.ops.control.bodies import bodies_of
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.control.rewinding import RewoundAttributes
from staticgrad.ops.grouped import GROUPED_DOT
from staticgrad.ops.interpreter import evaluate

TRIALS = 3  # of the reference with noise
SPREAD = 8.0  # factor by which results may be off more than those of the trials
NEIGHBOURS = 7  # elements whose middle spread one may have
UNITS = 64.0  # in the last place that are allowed in any case
SHORT_UNITS = 8.0  # of 16-bit floats, whose ops compute in float32 and round once
LOST = 1e-4  # of the largest element, where products may lose a few digits
KEY_BYTES = 16
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class StepwiseMain:
    """Called as a program's ``main``: ``main(slots, arena, pool) -> status``."""

    def __init__(self, code: Loaded, slots: Sequence[Slot], program: Stepwise) -> None:
        self._steps = program.steps
        self._functions = [_PROTOTYPE(code.address(f"step{number}")) for number in range(len(program.steps))]
        self._slots = slots
        self._program = program
        self._last_reads = {m: time for time, step in enumerate(self._steps) for m in (*step.reads, *step.adds)}
        self._last_writes = {m: time for time, step in enumerate(self._steps) for m in (*step.writes, *step.adds)}
        self._whole = not any(isinstance(slot, CallbackSlot | CollectiveSlot) for slot in slots)

    def __call__(self, table: int, arena: int, pool: int) -> int:
        run = _VerifiedRun(self._program, self._slots, table, arena)
        values = run.values() if self._whole else {}
        for time, (step, function) in enumerate(zip(self._steps, self._functions, strict=True)):
            judged = (step.kernel is not None or step.loop is not None) and not calls_python(step)
            run.begin(step)
            trials = run.expected(step) if judged else []
            status = int(function(table, arena, pool))
            if status:
                return status
            later = {m for m, last in self._last_reads.items() if last > time}
            if judged:
                run.check_kernel(time, step, trials, later)
            run.end(time, step)
            run.check_memory(time, step, later)
            for x, trials_of_x in values.items():
                memory, strides = self._program.places[x]
                if self._last_writes.get(memory) == time and (memory in later or not isinstance(memory, Temp)):
                    run.check_tensor(time, step, x, memory, strides, trials_of_x)
        return 0


class _VerifiedRun:
    """One run: the real memory, and ``shadow``, what it should be."""

    def __init__(self, program: Stepwise, slots: Sequence[Slot], table: int, arena: int) -> None:
        pointers = (ctypes.c_void_p * len(slots)).from_address(table)
        self.program = program
        self.slots = slots
        self.real: dict[Memory, Array] = {}
        for slot, pointer in zip(slots, pointers, strict=True):
            nbytes = KEY_BYTES if isinstance(slot, KeySlot) else memory_bytes(slot)
            self.real[slot] = _memory_at(pointer or 0, nbytes)
        for temp, offset in program.offsets.items():
            self.real[temp] = _memory_at(arena + offset, temp.nbytes)
        self.shadow: dict[Memory, Array] = {}
        self.packed: dict[Memory, Array] = {}  # what really lies where the shadow has operands as they were
        self.writers: dict[Memory, int] = {}
        self.short = short_operands(program.region.graph)
        self.lost = LOST * any(_loses_digits(step) for step in program.steps)

    # -- before a step ----------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        """Take memory that is touched for the first time as it is."""
        for memory in step.memories:
            if memory not in self.shadow:
                self.shadow[memory] = self.real[memory].copy()

    def expected(self, step: Step) -> list[dict[Memory, Array]]:
        """The memories that the reference of the step writes, exactly and with noise."""
        found = []
        for seed in range(TRIALS + 1):
            own = {m: self.shadow[m].copy() for m in (*step.writes, *step.adds)}
            memories: Memories = ChainMap(own, self.shadow)
            try:
                run_step(step, memories, Noise(seed) if seed else None)
            except IndexError:
                if not seed:
                    raise
                continue  # an index that the noise has led astray
            found.append(own)
        return found

    # -- after it ---------------------------------------------------------------------------------------------------

    def check_kernel(
        self, time: int, step: Step, trials: Sequence[Mapping[Memory, Array]], later: Collection[Memory]
    ) -> None:
        """Compare what the kernel wrote with the trials, but for what is not read ``later``, which may have been
        poisoned already."""
        if isinstance(step.kernel, Packing):
            (packed,) = step.writes
            self.shadow[packed] = trials[0][packed]
            self.packed[packed] = self.real[packed].copy()
            return
        for memory, dtype in written_dtypes(step).items():
            if isinstance(memory, Temp) and memory not in later:
                continue
            size = self.real[memory].size // dtype.itemsize * dtype.itemsize
            got, *found = (x[:size].view(dtype) for x in (self.real[memory], *(trial[memory] for trial in trials)))
            at = first_wrong(got, found, terms_of_step(step), self.lost)
            if at is not None:
                told = f"element {at} of {_name(memory)} is {got[at]}, by the reference of the kernel {found[0][at]}"
                raise self._error(time, step, told)

    def end(self, time: int, step: Step) -> None:
        """Take what the step wrote for right: later ones are judged by it."""
        for memory in dict.fromkeys((*step.writes, *step.adds)):
            self.writers[memory] = time
            if memory not in self.packed:
                self.shadow[memory] = self.real[memory].copy()

    def check_memory(self, time: int, step: Step, later: Collection[Memory]) -> None:
        for memory in self.writers:
            if isinstance(memory, Temp) and memory in later:
                changed = np.flatnonzero(self.real[memory] != self.packed.get(memory, self.shadow[memory]))
                if changed.size:
                    writer = self.writers[memory]
                    name = self.program.steps[writer].name
                    told = (
                        f"it changed byte {changed[0]} of {_name(memory)}, which step {writer} ({name}) has written"
                        " and a later step reads: a live interval or an address is wrong"
                    )
                    raise self._error(time, step, told)

    def check_tensor(
        self, time: int, step: Step, x: Tensor, memory: Memory, strides: Sequence[int], trials: Sequence[Array]
    ) -> None:
        if memory in self.packed:
            return
        shape = sizes(x.shape)
        flat = self.real[memory].view(x.dtype)
        got = np.lib.stride_tricks.as_strided(flat, shape, [s * x.dtype.itemsize for s in strides]).ravel()
        found = [trial.ravel() for trial in trials]
        if x.dtype == np.int32 and self.short.get(x) == "bfloat16":
            got, *found = (words.view(dtype_of("bfloat16")) for words in (got, *found))
        at = first_wrong(got, found, max(1, terms_of_step(step)) * 16, self.lost)
        if at is not None:
            index = tuple(map(int, np.unravel_index(at * math.prod(shape) // got.size, shape)))
            told = (
                f"{x.name!r} ({x.op.op.name}) at {index} is {got[at]}, by the graph {found[0][at]}: the kernel does"
                " what it says, so what made it of the graph is wrong: lowering, fusion, inlining"
            )
            raise self._error(time, step, told, x)

    def _error(self, time: int, step: Step, told: str, x: Tensor | None = None) -> VerifyError:
        kernel = step.planned.text if step.planned is not None else step.loop.title if step.loop is not None else ""
        source = step.source if x is None or x.source is None else x.source
        return VerifyError(f"step {time}, {step.family} {step.name}: {told}\n{kernel}", source=source)

    # -- the graph --------------------------------------------------------------------------------------------------

    def values(self) -> dict[Tensor, list[Array]]:
        """The value of each tensor that has memory of its own, exactly and with noise."""
        region, short = self.program.region, self.short
        kept = {x for x, (memory, _) in self.program.places.items() if isinstance(memory, Temp | FetchSlot)}
        kept -= {x for x in kept if _is_open(x)}
        found: dict[Tensor, list[Array]] = {x: [] for x in kept}
        feeds = [self._value(FeedSlot(index, x.type)) for index, x in enumerate(region.feeds)]
        keys = {slot.again: self.real[slot].view(np.int64) for slot in self.slots if isinstance(slot, KeySlot)}
        states = {slot.name: self._value(slot) for slot in self.slots if isinstance(slot, StateSlot)}
        sums = {slot.key: self._value(slot) for slot in self.slots if isinstance(slot, GradSlot)}
        for seed in range(TRIALS + 1):
            noise = Noise(seed) if seed else None

            def observe(x: Tensor, value: Array, operands: Sequence[Array], noise: Noise | None = noise) -> Array:
                noisy = value
                if noise is not None and x.op.graph is region.graph:  # bodies go without but for short numbers
                    noisy = noise.after(value, operands)
                if noise is not None and x in short:
                    noisy = noise.of_short(noisy, short[x])
                if x in kept:
                    found[x].append(noisy)
                return noisy

            key = keys.get(False, keys.get(True))
            fed = feeds if noise is None else [noise.on(feed) for feed in feeds]
            try:
                evaluate(region, fed, lambda attrs: states[attrs.key], key, sums.get, keys.get(True), observe)
            except StaticGradError:
                if not seed:
                    return {}  # the program finds it, too
        return {x: several for x, several in found.items() if len(several) > 1}

    def _value(self, slot: FeedSlot | StateSlot | GradSlot) -> Array:
        memory = self.real.get(slot)
        shape = sizes(slot.type.shape)
        if memory is None:  # nothing reads it
            return np.zeros(shape, slot.type.dtype)
        return memory.view(slot.type.dtype).reshape(shape).copy()


def short_operands(graph: Graph) -> dict[Tensor, str]:
    """The operands of products of groups, through views and pads, and the kind of each product."""
    found: dict[Tensor, str] = {}
    for node in graph.nodes:
        for body in bodies_of(node):
            found |= short_operands(body.graph)
        for x in node.inputs if node.op is GROUPED_DOT else ():
            found[x] = node.attrs.kind
            while x.op.op.view or x.op.op.name == "pad":
                x = x.op.inputs[0]
                found[x] = node.attrs.kind
    return {x: kind for x, kind in found.items() if not x.op.op.view}


def _is_open(x: Tensor) -> bool:
    """A stacked result of a loop that may end early: the rows of turns that were not taken hold anything."""
    attrs = x.op.attrs
    if isinstance(attrs, RewoundAttributes):
        return attrs.counted and x.index >= attrs.carries
    return isinstance(attrs, LoopAttributes) and attrs.ends_early and x.index >= attrs.first_result


def _memory_at(address: int, nbytes: int) -> Array:
    if not nbytes:
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _name(memory: Memory) -> str:
    match memory:
        case Temp():
            return f"buffer {memory.name!r}"
        case StateSlot():
            return f"variable {memory.name!r}"
        case FetchSlot():
            return f"result {memory.index}"
        case _:
            return type(memory).__name__


def _spread_around(spread: Array, places: Array) -> Array:
    """The spreads at some places, or of their neighbours the middle one where that is more: by chance all trials of one
    element may be nearly exact, as of many thousands some are."""
    around = np.arange(-(NEIGHBOURS // 2), NEIGHBOURS // 2 + 1)
    neighbours = spread[np.clip(places[:, None] + around, 0, len(spread) - 1)]
    found: Array = np.fmax(spread[places], np.median(neighbours, axis=1))
    return found


def _loses_digits(step: Step) -> bool:
    return isinstance(step.kernel, Convolution) and step.kernel.precision != "highest"


def first_wrong(got: Array, trials: Sequence[Array], terms: int, lost: float = 0.0) -> int | None:
    """The first element that is not what the trials allow. The first trial is exact, the others say how far off one may
    be; where these have no finite values nothing is known. Where a part of the largest element may be ``lost``, all may
    be off by that, and of what is no float, such as a comparison of floats, nothing is known."""
    want, *noisy = trials
    if not noisy or not got.size:
        return None
    with np.errstate(all="ignore"):
        if is_floating(got.dtype):
            exact = want.astype(np.float64)
            spread = np.max([np.abs(x.astype(np.float64) - exact) for x in noisy], axis=0)
            info = finfo(got.dtype)
            units = SHORT_UNITS if got.dtype.itemsize == 2 else UNITS
            rounding = (units + terms**0.5) * info.eps * np.abs(exact) + info.smallest_normal
            rounding += lost * np.max(np.abs(exact), where=np.isfinite(exact), initial=0.0)
            allowed = SPREAD * spread + rounding
            off = np.abs(got.astype(np.float64) - exact)
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            wrong = ~(same | (off <= allowed) | ~np.isfinite(allowed) & ~np.isfinite(exact + spread))
            if wrong.any():
                around = _spread_around(spread, np.flatnonzero(wrong))
                wrong[wrong] = ~(off[wrong] <= SPREAD * around + rounding[wrong])  # NaN is not
        elif lost:
            return None
        else:
            wrong = got != want
            g, w, *others = (x[wrong].astype(object) for x in (got, want, *noisy))  # whose differences are exact
            if g.size:
                spread = np.max([np.abs(x - w) for x in others], axis=0)
                wrong[wrong] = np.abs(g - w) > SPREAD * spread
    found = np.flatnonzero(wrong)
    return int(found[0]) if found.size else None
