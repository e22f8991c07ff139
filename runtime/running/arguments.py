"""Arguments: the pointers that a loaded program is called with, by what they lead to.

Input: the slots of a program and the state of a session. Output: ``Arguments``, which say for each entry of the
program's pointer table, known by its position, where its address comes from: the arrays of a call, its frame, or memory
that is the same in all calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from staticgrad.base.addresses import aligned, data_address
from staticgrad.base.errors import StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType
from staticgrad.compiler.program.slots import (
    CallbackSlot,
    CollectiveSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    KeySlot,
    PreparedSlot,
    SizesSlot,
    Slot,
    StateSlot,
    VersionSlot,
)
from staticgrad.graph.optable import Array
from staticgrad.runtime.running.state import SessionState

S = TypeVar("S")
Placed = list[tuple[int, S]]  # positions in the table, each with what its address comes from


@frozen(eq=False)
class Arguments:
    """The entries of a program's pointer table.

    Attributes:
        count: the number of entries.
        feeds, fetches: the number of the array that is fed, or fetched.
        fixed: addresses that are the same in all calls: of variables, of their versions, of constants.
        gradients: sums of the session that the program adds to.
        keys, repeated_keys: positions of the keys of random ops, and of those that repeat what another run drew.
        callbacks, collectives: Python functions that the program calls, and operations of several processes.
        prepared: where the versions of the variables are that the arena is prepared from, and their number, or 0.
        sizes: where the open sizes are, and their number, or 0.
        types: the type of each result.
        variables, written: names of variables that the program reads or writes, and of those that it writes.
        constants: the arrays of the program's own, which live as long as this.
    """

    count: int
    feeds: Placed[int]
    fetches: Placed[int]
    fixed: Placed[int]
    gradients: Placed[GradSlot]
    keys: list[int]
    repeated_keys: list[int]
    callbacks: Placed[CallbackSlot]
    collectives: Placed[CollectiveSlot]
    prepared: tuple[int, int]
    sizes: tuple[int, int]
    types: tuple[TensorType, ...]
    variables: tuple[str, ...]
    written: tuple[str, ...]
    constants: list[Array]


def arguments_of(slots: Sequence[Slot], store: SessionState) -> Arguments:
    """The arguments of a program with these slots, for runs on a session's state, whose variables are made now.

    Raises:
        StaticGradError: the session has a variable of another type.
    """
    by_type: dict[type, Placed[Any]] = {}
    for position, slot in enumerate(slots):
        by_type.setdefault(type(slot), []).append((position, slot))

    def of(kind: type[S]) -> Placed[S]:
        return by_type.get(kind, [])

    store.initialize(slot.name for slot in slots if isinstance(slot, StateSlot | VersionSlot))
    states, constants = of(StateSlot), [(position, aligned(slot.value)) for position, slot in of(ConstantSlot)]
    memory = [(position, _variable(store, slot)) for position, slot in states]
    memory += [(position, store.version_word(slot.name)) for position, slot in of(VersionSlot)]
    types = {slot.index: slot.type for _, slot in of(FetchSlot)}
    return Arguments(
        count=len(slots),
        feeds=[(position, slot.index) for position, slot in of(FeedSlot)],
        fetches=[(position, slot.index) for position, slot in of(FetchSlot)],
        fixed=[(position, data_address(array)) for position, array in (*memory, *constants)],
        gradients=of(GradSlot),
        keys=[position for position, slot in of(KeySlot) if not slot.again],
        repeated_keys=[position for position, slot in of(KeySlot) if slot.again],
        callbacks=of(CallbackSlot),
        collectives=of(CollectiveSlot),
        prepared=next(((position, slot.count) for position, slot in of(PreparedSlot)), (0, 0)),
        sizes=next(((at, 1 + max(size.number for size in slot.sizes)) for at, slot in of(SizesSlot)), (0, 0)),
        types=tuple(types[index] for index in range(len(types))),
        variables=tuple(slot.name for _, slot in states),
        written=tuple(slot.name for _, slot in states if slot.written),
        constants=[array for _, array in constants],
    )


def _variable(store: SessionState, slot: StateSlot) -> Array:
    array = store.array(slot.name)
    if array.shape != slot.type.shape or array.dtype != slot.type.dtype:
        raise StaticGradError(f"variable {slot.name!r}: the program expects {slot.type}")
    return array
