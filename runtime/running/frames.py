"""Frames: the memory of one call of a loaded program.

Input: the arguments of a program and how it is called. Output: ``Frames``, which wait for calls, so that several
threads may call at once. A frame's pointer table has all entries but those that lead to the arrays of a call.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.addresses import data_address
from staticgrad.base.extents import at_sizes, open_sizes
from staticgrad.base.types import TensorType, sizes
from staticgrad.compiler.program.slots import CallbackSlot
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.descriptors import Descriptor
from staticgrad.runtime.parts.interrupts import Context, callback
from staticgrad.runtime.parts.results import workspace
from staticgrad.runtime.running.arguments import Arguments
from staticgrad.runtime.running.calling import Calling

IDLE_FRAMES = 2  # of a program; what more calls at once need is recycled by other programs as well


class CallFrame:
    """The memory that one call in flight owns: the pointer table, the arena, the key of the random ops, the key of
    those that repeat what another run drew, the open sizes of the call, the versions of the variables from which the
    arena is prepared, the context of a program that can be interrupted, what Python functions of the program have
    raised, and, once it is needed, ``call``: a function in machine code that calls the program with all that, and its
    descriptor."""

    __slots__ = (
        "again", "arena", "arena_address", "call", "callbacks", "collectives", "context", "key", "prepared", "raised",
        "sizes", "table", "table_address",
    )  # fmt: skip

    def __init__(
        self, slots: int, arena_bytes: int, prepared: int = 0, context: Context | None = None, sizes: int = 0
    ) -> None:
        self.context = context
        self.call: tuple[Callable[[], Any], Descriptor] | None = None
        self.table: Any = (ctypes.c_void_p * (slots + 1))()  # the last is for feeds that the program does not read
        self.table_address = ctypes.addressof(self.table)
        self.arena = workspace(arena_bytes)
        self.arena_address = data_address(self.arena)
        self.key = np.zeros(2, np.int64)
        self.again = np.zeros(2, np.int64)
        self.sizes = np.zeros(sizes, np.int64)
        self.prepared = np.full(prepared, -1, np.int64)
        self.raised: list[BaseException] = []
        self.callbacks: list[object] = []  # that the table leads to
        self.collectives: list[Array] = []  # the words of collective operations, likewise

    def take_late(self) -> BaseException | None:
        """The first of what was raised in a run that came to its end; then it is forgotten."""
        stopped = self.context.take() if self.context is not None else None
        raised = [*([] if stopped is None else [stopped]), *self.raised, None]
        self.raised.clear()
        return raised[0]


class Frames(deque[CallFrame]):
    """The frames of a program that wait for a call."""

    def __init__(self, arguments: Arguments, calling: Calling, arena_bytes: int, number: int) -> None:
        """``number`` is the program's among those that several processes compute together."""
        super().__init__()
        self._arguments = arguments
        self._calling = calling
        self._arena_bytes = arena_bytes
        self._number = number

    def new(self) -> CallFrame:
        """One more frame, for a call to take."""
        arguments, calling = self._arguments, self._calling
        (prepared_at, prepared), (sizes_at, sizes) = arguments.prepared, arguments.sizes
        context = Context(calling.pool) if calling.is_interruptible else None
        frame = CallFrame(arguments.count, self._arena_bytes, prepared, context, sizes)
        if sizes:
            frame.table[sizes_at] = data_address(frame.sizes)
        if prepared:
            frame.table[prepared_at] = data_address(frame.prepared)
        for position, address in arguments.fixed:
            frame.table[position] = address
        for position, slot in arguments.callbacks:
            frame.table[position] = _callback_address(slot, frame)
        for number, (position, collective) in enumerate(arguments.collectives):
            from staticgrad.runtime.running.mpi import words_of

            words = words_of(collective, self._number, number, at_once=calling.is_stepwise)
            frame.collectives.append(words)
            frame.table[position] = data_address(words)
        for position in (*arguments.keys, *arguments.repeated_keys):
            frame.table[position] = data_address(frame.key)
        return frame


def _callback_address(slot: CallbackSlot, frame: CallFrame) -> int:
    """The address of the words by which a program calls the function with this frame."""
    from staticgrad.ops.interpreter import call_function

    in_views = [_viewer(t, frame.sizes) for t in slot.inputs]
    out_views = [_viewer(t, frame.sizes) for t in slot.outputs]

    count = len(slot.inputs) + len(slot.outputs)

    def call(address: int) -> int:
        operands = (ctypes.c_void_p * count).from_address(address)
        inputs = [view(operands[i]) for i, view in enumerate(in_views)]
        results = call_function(slot.function, inputs, at_sizes(slot.outputs, frame.sizes.tolist()), slot.source)
        for i, (view, result) in enumerate(zip(out_views, results, strict=True), len(in_views)):
            view(operands[i])[...] = result
        return 0

    context = frame.context if slot.late else None
    address, kept = callback(call, frame.raised.append, int(not slot.late), context)
    frame.callbacks.append(kept)
    return address


def _viewer(type_: TensorType, numbers: Array) -> Callable[[int | None], Array]:
    """An array over the memory at an address, as a function of the address; ``numbers`` are the open sizes of the run
    in which it is called."""
    if open_sizes(type_):
        return lambda address: _viewer(at_sizes(type_, numbers.tolist()), numbers)(address)
    shape = sizes(type_.shape)
    count = type_.dtype.itemsize
    for size in shape:
        count *= size
    if not count:
        return lambda address: np.empty(shape, type_.dtype)
    kind = ctypes.c_uint8 * count

    def view(address: int | None) -> Array:
        return np.ctypeslib.as_array(kind.from_address(address or 0)).view(type_.dtype).reshape(shape)

    return view
