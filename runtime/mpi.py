"""Collective operations as compiled programs call them: a slot of a program comes in, the address of its words goes
out.

A program calls what the first of the words leads to, as it calls a Python function: ``i32 (ptr words, ptr operands)``.
That is a function of ``mpi.ll``, which calls the function of MPI whose address is the next word, with the handles that
follow. So a program that is kept on disk knows neither addresses nor handles, nor which MPI there is, and Python has no
part in a collective operation. What MPI returns is left in the words where it is no success.

Before a program runs first, all ranks find out whether what they are about to do together is the same (``agree``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.compiler.emit.native import NativeModule
from staticgrad.compiler.program import CollectiveSlot
from staticgrad.errors import GraphError, SourceLine
from staticgrad.optable import Array
from staticgrad.runtime.machinery import named_words, native_part
from staticgrad.runtime.state import SessionState
from staticgrad.world import World, world

# The function of MPI that each op calls.
FUNCTIONS = {
    "all_reduce": "MPI_Allreduce",
    "all_gather": "MPI_Allgather",
    "reduce_scatter": "MPI_Reduce_scatter_block",
    "broadcast": "MPI_Bcast",
    "reduce": "MPI_Reduce",
    "reduce_start": "MPI_Iallreduce",
    "reduce_wait": "MPI_Wait",
    "barrier": "MPI_Barrier",
}
MOST = 2**31 - 1  # elements, which MPI counts by an int
TOO_LONG = -1  # the status of more than that


class CollectiveWord:
    """The words of a collective operation."""

    CALL = 0  # of mpi.ll: i32 (ptr words, ptr operands)
    FUNCTION = 1  # of MPI
    TYPE = 2
    REDUCTION = 3
    COMM = 4
    ROOT = 5
    IS_ROOT = 6  # whether this rank is
    ITEMSIZE = 7
    STATUS = 8  # what MPI returned, if it was no success
    WORDS = 9


_WORDS = """
  %function = load ptr, ptr %FUNCTION
  %comm = load $HANDLE, ptr %COMM"""

_OPERANDS = """
  %itemsize = load i64, ptr %ITEMSIZE
  %in_place = getelementptr ptr, ptr %operands, i64 1
  %out_place = getelementptr ptr, ptr %operands, i64 2
  %count = load i64, ptr %operands
  %in = load ptr, ptr %in_place
  %out = load ptr, ptr %out_place
  %nbytes = mul i64 %count, %itemsize"""

_CHECKED = f"""
  %type = load $HANDLE, ptr %TYPE
  %reduction = load $HANDLE, ptr %REDUCTION
  %root = load i32, ptr %ROOT
  %root_word = load i64, ptr %IS_ROOT
  %is_root = icmp ne i64 %root_word, 0
  %n = trunc i64 %count to i32
  %far = icmp ugt i64 %count, {MOST}
  br i1 %far, label %refuse, label %enough
refuse:
  store i64 {TOO_LONG}, ptr %STATUS
  ret i32 1
enough:"""

_NOTED = """
  %wide = sext i32 %status to i64
  store i64 %wide, ptr %STATUS
  ret i32 %status"""


@functools.cache
def _module(bits: int) -> NativeModule:
    handle = f"i{bits}"
    places = named_words(CollectiveWord, "%words")
    words, checked = (text.replace("$HANDLE", handle) for text in (places + _WORDS, _CHECKED))
    return native_part(
        "mpi",
        {"HANDLE": handle},
        operands=places + _OPERANDS,
        words=words,
        checked=words + _OPERANDS + checked,
        noted=_NOTED,
    )


def words_of(slot: CollectiveSlot, *, at_once: bool) -> Array:
    """The words by which a program takes part in a collective operation. ``at_once``: nothing goes on beside other
    steps, what is started has ended."""
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
    words[CollectiveWord.FUNCTION] = here.function(FUNCTIONS[name])
    handles = {
        CollectiveWord.TYPE: here.datatype(slot.type.dtype),
        CollectiveWord.REDUCTION: here.reduction(slot.reduction),
        CollectiveWord.COMM: here.comm,
    }
    unsigned = words.view(np.uint64)
    for place, thing in handles.items():
        unsigned[place] = here.handle(thing)
    words[CollectiveWord.ROOT] = slot.root
    words[CollectiveWord.IS_ROOT] = slot.root == here.rank
    return words


def failure(operations: Sequence[Array]) -> str:
    """The words of MPI for what went wrong in one of these collective operations."""
    status = next((int(words[CollectiveWord.STATUS]) for words in operations if words[CollectiveWord.STATUS]), 0)
    if status == TOO_LONG:
        return f"expected at most {MOST} elements, which is as far as MPI counts, actual more: reduce it in parts"
    return f"MPI returned {status}: {world().error_text(status)}"


def prepare_run(
    slots: Sequence[CollectiveSlot],
    state: SessionState,
    variables: Sequence[str],
    source_of: Callable[[int], SourceLine | None],
) -> None:
    """Agree with the other ranks on what is done together, before a program runs first, and take rank 0's ``variables``
    where the program says so.

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
        return
    here.agree([slot.text for slot in slots], source_of)
    if any(slot.equalizes for slot in slots):
        equalize(here, state, variables)


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
