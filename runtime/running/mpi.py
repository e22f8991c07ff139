"""Collective operations as compiled programs call them: a slot of a program comes in, the address of its words goes
out.

A program calls what the first of the words leads to, as it calls a Python function: ``i32 (ptr words, ptr operands)``.
That is a function of ``mpi.c``, which calls the function of MPI whose address is the next word, with the handles that
follow. So a program that is kept on disk knows neither addresses nor handles, nor which MPI there is, and Python has no
part in a collective operation. Why it failed is left in the words.

Before a program runs first, all ranks find out whether what they are about to do together is the same (``agree``), and
from then on the program has a number, the same on all of them. Ranks that do the same may nevertheless be at different
places of it, so each operation begins with a header (``staticgrad/base/world.py``): number of the program, place in it,
op, dtype, reduction, root, number of elements.

What that costs has decided its form. A reduction of headers by MPI would double the latency of a small operation, and
one in the same message as the operand would still be a message of another length where lengths differ, at which MPICH
ends the process. A message from neighbour to neighbour takes a third of the time of MPI's smallest reduction, here on
two processes of a machine, as it is tested for rather than waited for. So *short* operands, those that fit into a
buffer of ``SHORT`` bytes with those of all other ranks and the headers, travel after the headers: after log2(size)
rounds each rank has all of them (Bruck and others, *Efficient algorithms for all-to-all communications in multiport
message-passing systems*, IEEE TPDS 8, 1997), and reduces them in the order of ranks, so that all have the same bits.
For long ones the header goes first, to the neighbour alone, and the operand as MPI likes; by its time the header is
small. Every message of a round may be received into a whole buffer, so none is too long for what is received, whatever
ranks are at. ``MPI_Comm_dup`` for each program, which would keep programs apart at no price, knows no places in a
program, and lets ranks that differ wait rather than say so.

No wait is MPI's own: requests are tested, and after every ``LOOKS`` tests the clock is read. When the time is up
the operation fails; where MPI may still write to a program's memory then, that is kept for ever.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError, SourceLine
from staticgrad.base.world import BLOCK, FINISHED, HEADER, World, kind_of, patience, world
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.program.slots import CollectiveSlot
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.machinery import native_part
from staticgrad.runtime.running.state import SessionState

# The function of MPI that each op calls.
FUNCTIONS = {
    "all_reduce": "MPI_Iallreduce",
    "all_gather": "MPI_Iallgather",
    "reduce_scatter": "MPI_Ireduce_scatter_block",
    "broadcast": "MPI_Ibcast",
    "reduce": "MPI_Ireduce",
    "reduce_start": "MPI_Iallreduce",
    "barrier": "MPI_Ibarrier",
}
MOST = 2**31 - 1  # elements, which MPI counts by an int
SHORT = BLOCK  # bytes of the headers and operands of all ranks that travel together
HEADER_BYTES = 8 * HEADER
HEADER_UP = HEADER_BYTES + 7  # to round up to a multiple of 8
LOOKS = 255  # tests between two looks at the clock, one less than a power of two

# Statuses of our own.
TOO_LONG, TOO_LATE, DIFFERENT, OUT_OF_STEP = -1, -2, -3, -4


class CollectiveWord:
    """The words of a collective operation."""

    CALL = 0  # of mpi.c: i32 (ptr words, ptr operands)
    FUNCTION = 1  # of MPI
    TYPE = 2
    REDUCTION = 3
    ROOT = 4
    IS_ROOT = 5  # whether this rank is
    ITEMSIZE = 6
    STATUS = 7  # why the operation failed: ours, or what MPI returned
    MEETING = 8  # address of the words of the meeting
    PLACE = 9  # of the header
    KIND = 10
    OWN_COUNT = 11  # the rest of the header, where another one differs
    FOUND = 12  # the header that differs
    FOUND_RANK = FOUND + HEADER  # whose it is
    WORDS = FOUND_RANK + 1


class MeetingWord:
    """The words that all operations of a process share."""

    RANK = 0
    SIZE = 1
    COMM = 2
    BYTE = 3  # the datatype
    RECEIVE = 4  # functions of MPI
    SEND = 5
    TEST_ALL = 6
    REDUCE_LOCAL = 7
    PATIENCE = 8  # nanoseconds
    FAILED = 9  # address of the word that says whether an operation has failed
    BLOCKS = 10  # address of a buffer of twice SHORT bytes
    WORDS = 11


@functools.cache
def _module(bits: int) -> NativeModule:
    """The part for handles of that number of bits."""
    return native_part(__file__, f"mpi{bits}", MONOTONIC=time.CLOCK_MONOTONIC)


@functools.cache
def _meeting() -> Array:
    """The words of the meeting, followed by the buffer."""
    here = world()
    words = np.zeros(MeetingWord.WORDS + 2 * SHORT // 8, np.int64)
    words[MeetingWord.RANK], words[MeetingWord.SIZE] = here.rank, here.size
    unsigned = words.view(np.uint64)
    unsigned[MeetingWord.COMM], unsigned[MeetingWord.BYTE] = here.handle(here.comm), here.handle(here.mpi.BYTE)
    functions = {
        MeetingWord.RECEIVE: "MPI_Irecv",
        MeetingWord.SEND: "MPI_Isend",
        MeetingWord.TEST_ALL: "MPI_Testall",
        MeetingWord.REDUCE_LOCAL: "MPI_Reduce_local",
    }
    for place, name in functions.items():
        words[place] = here.function(name)
    words[MeetingWord.FAILED] = here.failed.ctypes.data
    words[MeetingWord.BLOCKS] = words[MeetingWord.WORDS :].ctypes.data
    return words


def words_of(slot: CollectiveSlot, program: int, number: int, *, at_once: bool) -> Array:
    """The words by which a program takes part in a collective operation.

    Args:
        program: its number among those that the ranks compute together.
        number: of the operation in the program.
        at_once: nothing goes on while other steps run, what is started has ended.
    """
    here = world()
    name = "all_reduce" if at_once and slot.name == "reduce_start" else slot.name
    words = np.zeros(CollectiveWord.WORDS, np.int64)
    words[CollectiveWord.ITEMSIZE] = slot.type.dtype.itemsize
    alone = here.size == 1
    if alone or (at_once and name == "reduce_wait"):
        call = "copy" if alone and name not in ("reduce_wait", "barrier") else "nothing"
        words[CollectiveWord.CALL] = _module(64).address(call)
        return words
    words[CollectiveWord.CALL] = _module(here.handle_bits).address(name)
    meeting, limit = _meeting(), patience()
    meeting[MeetingWord.PATIENCE] = min(limit * 1e9, 2**62)
    words[CollectiveWord.MEETING] = meeting.ctypes.data
    words[CollectiveWord.PLACE] = program << 32 | number
    words[CollectiveWord.KIND] = kind_of(slot.name, slot.type.dtype, slot.reduction, slot.root)
    if name in FUNCTIONS:
        words[CollectiveWord.FUNCTION] = here.function(FUNCTIONS[name])
    unsigned = words.view(np.uint64)
    unsigned[CollectiveWord.TYPE] = here.handle(here.datatype(slot.type.dtype))
    unsigned[CollectiveWord.REDUCTION] = here.handle(here.reduction(slot.reduction))
    words[CollectiveWord.ROOT] = slot.root
    words[CollectiveWord.IS_ROOT] = slot.root == here.rank
    return words


_kept: list[object] = []  # what MPI may still write to


def failure(operations: Sequence[Array], memory: object) -> str:
    """The words for what went wrong in one of these collective operations, whose operands lie in ``memory``."""
    words = next((words for words in operations if words[CollectiveWord.STATUS]), None)
    status = 0 if words is None else int(words[CollectiveWord.STATUS])
    if words is not None:
        words[CollectiveWord.STATUS] = 0  # before the frame is used again
    if words is None or status == TOO_LONG:
        return f"expected at most {MOST} elements, which is as far as MPI counts, actual more: reduce it in parts"
    if status == OUT_OF_STEP:
        return FINISHED
    here = world()
    if status == TOO_LATE:
        _kept.append(memory)
        return here.late()
    if status == DIFFERENT:
        place, kind, count = (
            int(words[at]) for at in (CollectiveWord.PLACE, CollectiveWord.KIND, CollectiveWord.OWN_COUNT)
        )
        found = words[CollectiveWord.FOUND : CollectiveWord.FOUND_RANK].tolist()
        return here.differing((place, kind, count), tuple(found), int(words[CollectiveWord.FOUND_RANK]))
    return f"MPI returned {status}: {here.error_text(status)}"


def prepare_run(
    slots: Sequence[CollectiveSlot],
    names: tuple[str, ...],
    state: SessionState,
    variables: Sequence[str],
    source_of: Callable[[int], SourceLine | None],
) -> int:
    """Agree with the other ranks on what is done together, before a program runs first, and take rank 0's ``variables``
    where the program says so. Programs of a session for other sizes, which have operations of the same ``names``, need
    not agree again: ranks may come to them at different times.

    Returns:
        The number of the program, the same on all ranks.

    Raises:
        GraphError: the programs of the ranks differ, or were declared on another number of ranks.
    """
    here = world()
    for place, slot in enumerate(slots):
        if slot.ranks != here.size:
            raise GraphError(
                f"{slot.name}: expected {slot.ranks} ranks, as where it was declared, actual {here.size}: declare the"
                " graph in the processes that run it",
                source=source_of(place),
            )
    if here.size == 1:
        return 0
    if names not in state.programs:
        here.agree([slot.text for slot in slots], source_of)
        state.programs[names] = here.count()
    if any(slot.equalizes for slot in slots):
        equalize(here, state, variables)
    return state.programs[names]


def equalize(here: World, state: SessionState, variables: Sequence[str]) -> None:
    """Give all ranks rank 0's values of variables, once in a session.

    Raises:
        GraphError: the ranks have different variables.
    """
    names = sorted(set(variables) - state.equalized)
    if not names:
        return
    here.agree([f"variable {name!r} {state.array(name).dtype} {state.array(name).shape}" for name in names])
    state.equalized.update(names)
    state.write({name: here.broadcast(state.array(name), 0) for name in names})
